"""Early ends of a command: Ctrl-C, and a closed output."""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn

from inducing.io.container import write_atomically

INTERRUPTED, NOT_READ = 128 + signal.SIGINT, 128 + 13  # as shells report a process that SIGINT or SIGPIPE ended


class _Writing:
    """Whether a file is being written, and whether Ctrl-C was pressed in the meantime."""

    now = pressed = False


@contextlib.contextmanager
def ends_early() -> Generator[None]:
    """End the process on Ctrl-C with exit code 130 and one line, and quietly if its output is closed.

    The handler ends the process itself, because an exception could be lost (see `deferred_interrupt`), and `fit` would
    return what it has reached so far. A file that is being written is finished first.

    Raises:
        SystemExit: if standard output is a pipe that was closed, as `head` does.

    Examples:
        >>> with ends_early():
        ...     print("done")
        done
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, _interrupt) if main else None
    atexit.register(
        signal.signal, signal.SIGINT, signal.SIG_IGN
    )  # the work is done; only the shutdown of JAX takes a while
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what Python writes at exit
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        raise SystemExit(NOT_READ) from None
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: Any) -> None:
    if _Writing.now:
        _Writing.pressed = True
    else:
        _leave()


def _leave() -> NoReturn:
    with contextlib.suppress(Exception):  # a closed pipe, or output that the handler interrupted
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, b"\ninducing: interrupted\n" if os.isatty(2) else b"inducing: interrupted\n")
    os._exit(INTERRUPTED)


def write(path: str | Path, content: bytes) -> None:
    """Write a file completely or not at all.

    Args:
        path: the file. Anything that is not a regular file, such as /dev/stdout, is written directly.
        content: its content.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(f"{folder}/a", b"abc")
        ...     print(Path(folder, "a").read_text())
        abc
    """
    path = Path(path)
    with finished_first():
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            write_atomically(path, content)


@contextlib.contextmanager
def finished_first() -> Generator[None]:
    """Finish the block, which writes a file, before Ctrl-C ends the process.

    Examples:
        >>> with finished_first():
        ...     print("written")
        written
    """
    _Writing.now = True
    try:
        yield
    finally:
        _Writing.now = False
    if _Writing.pressed:
        _leave()
