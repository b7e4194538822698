"""Several processes, on one machine or on many."""

import os

import jax

HEARTBEAT = 10  # seconds without a heartbeat after which a process counts as lost; the default of JAX is 100
LAUNCHED = "INDUCING_PROCESS"  # set by `inducing launch`: address of the coordinator, number of processes, own number


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat: int = HEARTBEAT,
) -> None:
    """Connect this process with the others. Call it before anything else that uses JAX.

    `ig.fit` on an `ig.Stream` then distributes the work over all devices of all processes. Each process reads its part
    of the rows, and one all-reduce in each step sums their results. This function is `jax.distributed.initialize` with
    a short heartbeat timeout. The arguments are not needed if `inducing launch`, Slurm, Open MPI or a TPU pod started
    the processes, or Kubernetes with `pip install 'jax[k8s]'`. Without arguments and launcher, a process trains alone.

    Args:
        coordinator_address: the address and port of process 0, such as `"10.0.0.1:8476"`.
        num_processes: the number of processes.
        process_id: the number of this process, from 0.
        heartbeat: the seconds after which a process that has died or hangs counts as lost. All others then end, so that
            their launcher can restart all of them. `ig.fit(checkpoint=...)` continues from its checkpoint.

    Raises:
        RuntimeError: if JAX has been used before.
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
            "initialize needs coordinator_address, num_processes and process_id, or none of them if a launcher sets "
            f"them; got {given}."
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
            return  # there is no launcher, and so no other process
        raise
