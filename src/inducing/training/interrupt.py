"""Ctrl-C during a fit."""

import contextlib
import signal
import threading
from collections.abc import Callable, Generator


@contextlib.contextmanager
def deferred_interrupt() -> Generator[Callable[[], None]]:
    """Inside the block, Ctrl-C takes effect at the next call of the function that is given; a second one at once.

    An exception that is raised anywhere may be lost: JAX runs Python code when garbage is collected, and what is raised
    there is printed and ignored. Where SIGINT has another handler than Python's own it is left to that, as it is in
    other threads than the main one, which get no signals.

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
