"""`inducing launch`: run a script in several processes on this machine, and restart all of them if one fails."""

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
GRACE = 30.0  # seconds that processes have to end after Ctrl-C or SIGTERM
PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # huge pages: page faults of small ones take much time


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    launch = commands.add_parser(
        "launch", help="run a script in several processes on this machine, and restart them after a failure"
    )
    launch.add_argument("--processes", type=int, default=2, help="number of processes (default: 2)")
    launch.add_argument("--restarts", type=int, default=3, help="how often to restart all of them (default: 3)")
    launch.add_argument("script", metavar="SCRIPT", help="a Python script that calls ig.distributed.initialize()")
    launch.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")
    launch.set_defaults(run=run, no_cache=True, quiet=False)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: the options of the command line.

    Raises:
        FileNotFoundError: if there is no such script.
        ValueError: if a number is out of range.
        SystemExit: with the exit code of the script.
    """
    if options.processes < 1 or options.restarts < 0:
        raise ValueError(
            f"--processes must be at least 1 and --restarts at least 0, got {options.processes} and {options.restarts}"
        )
    if not os.path.isfile(options.script):
        raise FileNotFoundError(f"there is no script {options.script!r}")
    before = [signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        raise SystemExit(launch([options.script, *options.rest], options.processes, options.restarts))
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt(number)


def launch(script: list[str], processes: int, restarts: int) -> int:
    """Run a script in several processes until all of them succeed.

    If one of them fails, is killed, or hangs until the others miss its heartbeats, all are killed and started again, up
    to `restarts` times. A script that trains with `ig.fit(checkpoint=...)` then continues from its checkpoint. Ctrl-C
    and SIGTERM are passed on to all processes, which have 30 seconds to end. On Linux, the C library is told to request
    huge pages, unless the environment sets `GLIBC_TUNABLES`.

    Args:
        script: the script and its arguments.
        processes: the number of processes, which share the cores equally.
        restarts: how many times to restart all of them.

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
    """The exit code of all processes, and whether Ctrl-C or SIGTERM has interrupted them."""
    with _started(script, processes) as running:
        try:
            while True:
                codes = [process.poll() for process in running]
                failed = [code for code in codes if code]
                if failed or all(code == 0 for code in codes):
                    return (failed or [0])[0], False
                time.sleep(POLL)
        except KeyboardInterrupt as told:  # sessions of their own keep the signals of the terminal from the processes
            number = told.args[0] if told.args else signal.SIGINT
            for process in running:
                process.send_signal(number)
            return max(_ended(running, time.monotonic() + GRACE)), True


def _ended(running: list[subprocess.Popen], deadline: float) -> list[int]:
    """The exit codes of processes, as a shell gives them; that of SIGKILL for one that outlives the deadline."""
    codes = []
    for process in running:
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        codes.append(code if code >= 0 else 128 - code)
    return codes


@contextlib.contextmanager
def _started(script: list[str], processes: int) -> Generator[list[subprocess.Popen]]:
    """The processes. Those that still run at the end of the block are killed."""
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
    """Pin a process to its share of the cores, if there are enough: otherwise XLA's threads compete for them."""
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
