"""What watches a fit: history, the best parameters so far, early stopping, the progress bar and callbacks."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

STOPPED = "the callback asked to stop"


class History(NamedTuple):
    """The objective along the way: for each step its number, the bound before it, and seconds since the start."""

    step: np.ndarray
    bound: np.ndarray
    seconds: np.ndarray


class Progress:
    """What a callback is given: `step`, `bound` (smoothed or held out), `seconds`, and `model` at this point."""

    def __init__(self, step: int, bound: float, seconds: float, build: Callable[[], Any]):
        self.step, self.bound, self.seconds = step, bound, seconds
        self._build = build

    @property
    def model(self) -> Any:
        """The model at this point (built when asked for)."""
        return self._build()


class Monitor:
    """Collects history and decides what was best and when to stop.

    The score that decides is `held_out(parameters)` where given; else the bound itself when it is deterministic,
    or its moving average over about `window` steps when it comes from minibatches or samples.
    """

    def __init__(
        self,
        total: int,
        *,
        progress: bool | str,
        label: str,
        callback: Callable | None,
        patience: int | None,
        look: Callable[[], None],
        build: Callable[[Any], Any],
        held_out: Callable | None,
        window: float,
    ):
        self.build, self.callback, self.held_out = build, callback, held_out
        self.patience, self.look, self.window = patience, look, window
        self.bounds: list[np.ndarray] = []
        self.times: list[np.ndarray] = []
        self.step = 0
        self.seen, self.smoothed = 0, np.nan
        self.best_score, self.best, self.best_step, self.outdated = -np.inf, None, 0, False
        self.started = time.perf_counter()
        self.bar = _bar(total, progress if isinstance(progress, str) else label) if progress else None

    def record(self, values: np.ndarray) -> None:
        """Add the objective of some steps."""
        now = time.perf_counter() - self.started
        before = self.times[-1][-1] if self.times else 0.0
        self.bounds.append(values)
        self.times.append(np.linspace(before, now, len(values) + 1)[1:])
        self.step += len(values)
        for value in values[np.isfinite(values)]:  # one by one: how many come at a time is the clock's choice
            self.seen += 1
            rate = 1.0 / min(self.window, self.seen)
            self.smoothed = value if rate == 1.0 else self.smoothed + rate * (value - self.smoothed)
        if self.bar is not None:
            self.bar.set_postfix_str(f"bound {self.smoothed:.6g}", refresh=False)
            self.bar.update(len(values))

    def judge(self, parameters: Any, score: float | None = None) -> str | None:
        """Compare these parameters with the best; a reason to stop, or None.

        `score` is their bound where it is known exactly; without it the moving average stands in.
        """
        score = self.smoothed if score is None else score
        if self.held_out is not None:
            score = self.held_out(parameters)
        if np.isfinite(score) and (score > self.best_score or self.outdated):
            self.best_score, self.best, self.best_step, self.outdated = float(score), parameters, self.step, False
        if self.callback is not None:
            seconds = time.perf_counter() - self.started
            if self.callback(Progress(self.step, float(score), seconds, lambda: self.build(parameters))):
                return STOPPED
        if self.patience is not None and self.step - self.best_step >= self.patience:
            return f"no improvement for {self.step - self.best_step} steps"
        return None

    def change(self) -> None:
        """The objective is another one from now on: what is judged next replaces the best, unless held-out data do."""
        self.outdated, self.best_step = self.held_out is None, self.step

    @property
    def knows_nothing(self) -> bool:
        """Whether no step was taken and nothing judged: then there is nothing to return."""
        return self.step == 0 and self.best is None

    def close(self, reason: str) -> History:
        """End the progress bar, which says why the fit ended; the history. Without a judgement the average stands."""
        if self.best is None:
            self.best_score = self.smoothed
        if self.bar is not None:
            self.bar.set_postfix_str(f"bound {self.best_score:.6g}, {reason}", refresh=False)
            self.bar.close()
        bounds = np.concatenate([*self.bounds, np.zeros(0)])
        return History(np.arange(len(bounds)), bounds, np.concatenate([*self.times, np.zeros(0)]))


def _bar(total: int, label: str) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=label, unit="step", dynamic_ncols=True, mininterval=0.2)
