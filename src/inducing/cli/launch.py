"""`inducing launch`: run a script in several processes of this machine, and restart all of them if one is lost."""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Any

from inducing.distributed import LAUNCHED

POLL = 0.1  # seconds
GRACE = 30.0  # seconds for processes to end after Ctrl-C
PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # huge pages, because page faults of small pages take long


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    launch = commands.add_parser("launch", help="run a script in several processes of this machine; restart lost ones")
    launch.add_argument("--processes", type=int, default=2, help="number of processes (default: 2)")
    launch.add_argument("--restarts", type=int, default=3, help="how often to restart all processes (default: 3)")
    launch.add_argument("script", metavar="SCRIPT", help="a Python script that calls ig.distributed.initialize()")
    launch.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")
    launch.set_defaults(run=run, no_cache=True, quiet=False)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: the options of the command line.

    Raises:
        ValueError: if a number is out of range.
        SystemExit: with the exit code of the script.
    """
    if options.processes < 1 or options.restarts < 0:
        raise ValueError(
            f"--processes must be at least 1 and --restarts at least 0, got {options.processes} and {options.restarts}"
        )
    before = [signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        raise SystemExit(launch([options.script, *options.rest], options.processes, options.restarts))
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def launch(script: list[str], processes: int, restarts: int) -> int:
    """Run a script in several processes until all of them succeed.

    If a process fails, is killed, or hangs (which the others notice by its heartbeats), all processes are killed and
    restarted, up to `restarts` times. A script that trains with `ig.fit(checkpoint=...)` then resumes from its last
    checkpoint. On Linux, the processes use huge pages, unless the environment sets other `GLIBC_TUNABLES`.

    Args:
        script: the script and its arguments.
        processes: the number of processes. Each has its share of the cores.
        restarts: how often to restart.

    Returns:
        The exit code: 0, or that of the first process that failed in the last attempt.
    """
    code = 0
    for attempt in range(restarts + 1):
        code, interrupted = _attempt(script, processes)
        if code == 0 or interrupted:
            return code
        what = f"signal {-code}" if code < 0 else f"exit code {code}"
        left = restarts - attempt
        action = f"restarting all {processes}, {left} restarts left" if left else "no restarts left"
        print(f"inducing launch: a process ended with {what}; {action}", file=sys.stderr, flush=True)
    return code if code > 0 else 128 - code


def _attempt(script: list[str], processes: int) -> tuple[int, bool]:
    """The exit code of the processes, and whether the user has interrupted them by Ctrl-C or SIGTERM."""
    with _started(script, processes) as running:
        try:
            while True:
                codes = [process.poll() for process in running]
                failed = [code for code in codes if code]
                if failed or all(code == 0 for code in codes):
                    return (failed or [0])[0], False
                time.sleep(POLL)
        except KeyboardInterrupt:  # the terminal does not interrupt them, because they are in sessions of their own
            for process in running:
                process.send_signal(signal.SIGINT)
            deadline = time.monotonic() + GRACE
            codes = []
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    codes.append(process.wait(max(0.0, deadline - time.monotonic())))
            return max([abs(code) for code in codes], default=130), True


@contextlib.contextmanager
def _started(script: list[str], processes: int) -> Generator[list[subprocess.Popen]]:
    """Start the processes. Those that still run at the end of the block are killed."""
    address = f"127.0.0.1:{_free_port()}"
    running: list[subprocess.Popen] = []
    try:
        for number in range(processes):
            environment = PAGES | os.environ | {LAUNCHED: f"{address},{processes},{number}"}
            running.append(subprocess.Popen([sys.executable, *script], env=environment, start_new_session=True))
            _pin(running[-1].pid, number, processes)
        yield running
    finally:
        for process in running:
            process.kill()  # SIGKILL ends stopped processes too
        for process in running:
            process.wait()


def _pin(pid: int, number: int, processes: int) -> None:
    """Give a process its share of the cores, if there are enough. Otherwise, XLA's threads slow each other down."""
    if sys.platform != "linux":
        return
    cores = sorted(os.sched_getaffinity(0))
    if processes <= len(cores):
        share = cores[number * len(cores) // processes : (number + 1) * len(cores) // processes]
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, share)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
