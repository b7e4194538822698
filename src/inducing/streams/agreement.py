"""What all processes of a fit decide together."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Array

from inducing._xla import local, num_devices, process


class Agreement:
    """Decides when to stop: all processes do so at the same step.

    Each process adds its signals (Ctrl-C, the time is up, the callback asks to stop, rows cannot be read) to the vector
    that every step or pass sums over the devices anyway. All processes act on the sum alone, so that none waits for one
    that has stopped. A single process acts at once.

    Args:
        look: raises KeyboardInterrupt if the user has pressed Ctrl-C here.
        is_over: whether the time is up here.

    Examples:
        >>> agreement = Agreement(lambda: None, lambda: True)
        >>> agreement.look(), agreement.is_over()
        (None, True)
    """

    def __init__(self, look: Callable[[], None], is_over: Callable[[], bool]):
        self._look, self._is_over = look, is_over
        self._alone = process()[1] == 1
        self._asks, self._error = False, None
        self._heard = np.zeros(4, bool)

    def look(self) -> None:
        """Raise KeyboardInterrupt if somebody has pressed Ctrl-C."""
        if self._alone:
            self._look()
        elif self._heard[0]:
            raise KeyboardInterrupt

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._is_over() if self._alone else bool(self._heard[1])

    def asks_to_stop(self, asked: bool) -> bool:
        """Whether to stop because the callback of some process has asked for it, as this one has or has not now."""
        self._asks |= asked
        return self._asks if self._alone else bool(self._heard[2])

    def failed(self, error: Exception) -> None:
        """Note that rows cannot be read here. A single process raises the error at once."""
        if self._alone:
            raise error
        self._error = self._error or error

    def own(self, dtype: np.dtype) -> np.ndarray:
        """The signals of this process, a row for each of its devices."""
        signals = np.zeros(4, dtype)
        if not self._alone:
            try:
                self._look()
            except KeyboardInterrupt:
                signals[0] = 1.0
            signals[1:] = self._is_over(), self._asks, self._error is not None
        return np.tile(signals, (num_devices() // process()[1], 1))

    def hears(self, signals: Array) -> bool:
        """Whether a sum or mean of the signals of all processes asks to stop.

        Raises:
            Exception: if rows cannot be read, here or elsewhere.
        """
        heard = np.asarray(local(signals)) > 0.0
        if self._error is not None:
            raise self._error
        if heard[3]:
            raise RuntimeError("another process could not read its rows, and says why; this one stops with it.")
        self._heard |= heard
        return bool(heard.any())
