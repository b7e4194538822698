"""Decisions that all processes of a fit make together."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Array

from inducing._xla import local, num_devices, process

FLAGS = 4  # Ctrl-C, the time is up, the callback asks to stop, rows cannot be read; the seconds of a step follow


class Agreement:
    """Decides when to stop, such that all processes stop at the same step.

    Each process appends its signals (Ctrl-C, the time is up, the callback asks to stop, rows cannot be read) to the
    vector that every step or pass sums over the devices. All processes act on this sum only, so that no process waits
    for another one that has stopped. A single process acts at once.

    Args:
        look: raises KeyboardInterrupt if the user has pressed Ctrl-C in this process.
        is_over: whether the time of this process is up.

    Examples:
        >>> agreement = Agreement(lambda: None, lambda: True)
        >>> agreement.look(), agreement.is_over()
        (None, True)
    """

    def __init__(self, look: Callable[[], None], is_over: Callable[[], bool]):
        self._look, self._is_over = look, is_over
        self._alone = process()[1] == 1
        self._asks, self._error = False, None
        self._heard = np.zeros(FLAGS, bool)
        self._seconds = self._heard_seconds = 0.0

    def look(self) -> None:
        """Raise KeyboardInterrupt if the user has pressed Ctrl-C in any process."""
        if self._alone:
            self._look()
        elif self._heard[0]:
            raise KeyboardInterrupt

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._is_over() if self._alone else bool(self._heard[1])

    def asks_to_stop(self, asked: bool) -> bool:
        """Note whether the callback of this process asks to stop; return whether that of any process has."""
        self._asks |= asked
        return self._asks if self._alone else bool(self._heard[2])

    def seconds_of_a_step(self, measured: float) -> float:
        """The duration of a step, equal on all processes: the mean of what they measured before."""
        self._seconds = measured
        return measured if self._alone else self._heard_seconds

    def failed(self, error: Exception) -> None:
        """Note that this process cannot read its rows. A single process raises the error at once."""
        if self._alone:
            raise error
        self._error = self._error or error

    def own(self, dtype: np.dtype) -> np.ndarray:
        """The signals of this process, one row for each of its devices."""
        signals = np.zeros(FLAGS + 1, dtype)
        if not self._alone:
            try:
                self._look()
            except KeyboardInterrupt:
                signals[0] = 1.0
            signals[1:] = self._is_over(), self._asks, self._error is not None, self._seconds
        return np.tile(signals, (num_devices() // process()[1], 1))

    def hears(self, signals: Array) -> bool:
        """Whether the reduced signals, a mean or a sum over all processes, ask to stop.

        Raises:
            Exception: if any process cannot read its rows.
        """
        numbers = np.asarray(local(signals))
        heard, self._heard_seconds = numbers[:FLAGS] > 0.0, float(numbers[FLAGS])
        if self._error is not None:
            raise self._error
        if heard[3]:
            raise RuntimeError("another process could not read its rows, and reports why; all processes stop.")
        self._heard |= heard
        return bool(heard.any())
