"""Several processes, on one machine or on many."""

import os

import jax

HEARTBEAT = 10  # seconds after which a process that is not heard of counts as dead; JAX's own default is 100
LAUNCHED = (
    "INDUCING_PROCESS"  # set by `inducing launch`: the coordinator's address, the number of processes, the own one
)


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat: int = HEARTBEAT,
) -> None:
    """Connect this process with the others; call it before anything else that uses JAX.

    `ig.fit` on an `ig.Stream` then shares the work among all devices of all processes: each reads its part of the rows,
    and one all-reduce in each step adds up what they have computed. It is `jax.distributed.initialize` with short
    heartbeats. Processes that `inducing launch`, Slurm, Open MPI, Kubernetes or a TPU pod has started find each other.
    A process that was started alone stays alone.

    Args:
        coordinator_address: the address and port of process 0, such as `"10.0.0.1:8476"`.
        num_processes: the number of processes.
        process_id: the number of this process, from 0.
        heartbeat: the seconds after which a process that has died or is stuck counts as lost. All others then end, so
            that whatever has started them can start all of them again; `ig.fit(checkpoint=...)` goes on where it was.

    Raises:
        RuntimeError: if JAX was used before.
        ValueError: if only some of the arguments are given.

    Examples:
        In a script that `inducing launch --processes 2 train.py` starts, `initialize()` is enough. Without a launcher,
        each process needs all three:

        >>> initialize("10.0.0.1:8476")
        Traceback (most recent call last):
            ...
        ValueError: initialize needs coordinator_address, num_processes and process_id, ...
    """
    launched = os.environ.get(LAUNCHED)
    given = (coordinator_address, num_processes, process_id)
    if launched is not None and given == (None, None, None):
        coordinator_address, number, own = launched.split(",")
        num_processes, process_id = int(number), int(own)
    elif any(value is not None for value in given) and not all(value is not None for value in given):
        raise ValueError(
            "initialize needs coordinator_address, num_processes and process_id, or none of them where a launcher "
            f"sets them; got {given}."
        )
    try:
        jax.distributed.initialize(
            coordinator_address,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=heartbeat,
        )
    except ValueError as error:
        if coordinator_address is None and "should be defined" in str(error):
            return  # nobody has started other processes
        raise
