"""A clock for training runs: looks at the held-out quality now and then, and does not count the looking."""

import time
from collections.abc import Callable

import numpy as np


class Clock:
    """Counts seconds of training from its creation; `look` evaluates when it is due and says when to stop.

    A run ends at `cap` seconds, or when after a minute the best held-out log-likelihood of the last third of its time
    is not better than before by 0.002.
    """

    def __init__(self, evaluate: Callable[..., float], cap: float):
        self.evaluate, self.cap = evaluate, cap
        self.trace: list[tuple[float, float]] = []
        self.spent, self.due = 0.0, 0.0
        self.resumed = time.perf_counter()

    def look(self, *arguments, last: bool = False) -> bool:
        """Evaluate if it is time; True when the run should end."""
        elapsed = self.spent + time.perf_counter() - self.resumed
        if elapsed < min(self.due, self.cap) and not last:
            return False
        value = float(self.evaluate(*arguments))
        if np.isfinite(value):
            self.trace.append((elapsed, value))
        self.spent, self.due = elapsed, 1.03 * elapsed + 0.02
        self.resumed = time.perf_counter()
        return elapsed >= self.cap or self._settled(elapsed)

    def _settled(self, elapsed: float) -> bool:
        before = [v for t, v in self.trace if t <= elapsed * 2 / 3]
        since = [v for t, v in self.trace if t > elapsed * 2 / 3]
        return elapsed > 60 and bool(before) and bool(since) and max(since) < max(before) + 0.002


def load(path: str) -> dict[str, np.ndarray]:
    """X, y, Xtest, ytest, Z, and the starting lengthscales, variance and noise."""
    with np.load(path) as file:
        return dict(file)


def log_density(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """The mean log density of Gaussian predictions."""
    y, mean, variance = (np.asarray(a, float).reshape(-1) for a in (y, mean, variance))
    return float(np.mean(-0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)))
