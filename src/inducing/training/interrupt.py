"""Ctrl-C and SIGTERM during a fit."""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator


@contextlib.contextmanager
def deferred_interrupt() -> Generator[Callable[[], None]]:
    """Inside the block, Ctrl-C takes effect at the next call of the yielded function. A second Ctrl-C acts at once.

    An exception raised in a signal handler may be lost: JAX runs Python code during garbage collection, and Python
    prints and ignores exceptions raised there. If SIGINT has a handler other than Python's own, we leave it in place.
    Threads other than the main one receive no signals.

    Yields:
        A function that raises KeyboardInterrupt if Ctrl-C was pressed.

    Examples:
        >>> with deferred_interrupt() as look:
        ...     signal.raise_signal(signal.SIGINT)
        ...     try:
        ...         look()
        ...     except KeyboardInterrupt:
        ...         print("interrupted")
        interrupted
    """
    pressed = False

    def note(number, frame):
        nonlocal pressed
        if pressed:
            signal.default_int_handler(number, frame)
        pressed = True

    def look():
        if pressed:
            raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield look
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield look
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def deferred_termination(save: Callable[[], None]) -> Generator[Callable[[], None]]:
    """Inside the block, SIGTERM takes effect at the next call of the yielded function, or at the end of the block.

    It then has its usual effect, which by default is to end the process. A second one acts at once. Threads other than
    the main one receive no signals.

    Args:
        save: a function that is called before the process ends.

    Yields:
        A function that saves and ends the process if SIGTERM was received.

    Examples:
        >>> before = signal.signal(signal.SIGTERM, lambda number, frame: print("ended"))
        >>> with deferred_termination(lambda: print("saved")) as look:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     print("in a step")
        ...     look()
        in a step
        saved
        ended
        >>> _ = signal.signal(signal.SIGTERM, before)
    """
    before, received = signal.getsignal(signal.SIGTERM), False

    def note(number, frame):
        nonlocal received
        if received:
            signal.signal(signal.SIGTERM, before)
            signal.raise_signal(signal.SIGTERM)
        received = True

    def look():
        nonlocal received
        if received:
            received = False
            save()
            signal.signal(signal.SIGTERM, before)
            signal.raise_signal(signal.SIGTERM)

    ours = threading.current_thread() is threading.main_thread()
    if not ours or before in (None, signal.SIG_IGN):  # None: a handler set by C code, which Python cannot restore
        yield look
        return
    signal.signal(signal.SIGTERM, note)
    try:
        yield look
    finally:
        look()
        signal.signal(signal.SIGTERM, before)
