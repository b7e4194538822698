"""How a command ends before it is done: at Ctrl-C, and when nobody reads its output any more."""

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
    """Whether a file is being written, and whether Ctrl-C was pressed meanwhile."""

    now = pressed = False


@contextlib.contextmanager
def ends_early() -> Generator[None]:
    """Ctrl-C inside the block ends the process with exit code 130 and one line; output that is not read, quietly.

    The handler ends the process itself: an exception that it raised could be lost (see `deferred_interrupt`), and `fit`
    would take it for the wish to go on with what was reached. A file that is being written is finished first.

    Raises:
        SystemExit: if standard output is a pipe that was closed, as `head` does.

    Examples:
        >>> with ends_early():
        ...     print("done")
        done
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, _interrupt) if main else None
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # all is done, only JAX takes a while to end
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what Python writes when it ends
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
    with contextlib.suppress(Exception):  # a pipe that was closed, or an output that the handler interrupted
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, b"\ninducing: interrupted\n" if os.isatty(2) else b"inducing: interrupted\n")
    os._exit(INTERRUPTED)


def write(path: str | Path, content: bytes) -> None:
    """Write a file as a whole, or not at all.

    Args:
        path: the file. Anything that is not a regular file, such as /dev/stdout, is written directly.
        content: what goes into it.

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
