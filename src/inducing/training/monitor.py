"""Monitoring of a run: its history, the best parameters so far, early stopping, the progress bar and callbacks."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from inducing.streams.agreement import Agreement
from inducing.training.levelling import has_levelled
from inducing.training.problem import Problem

STOPPED = "the callback asked to stop"
TIME = "the time is up"
LATE = 5.0  # seconds after which the progress bar appears with progress="auto"
LOOK = 10  # the fewest steps between two checks whether the bound has levelled off
LEVELLED = "levelled off"
AT_START = (
    "at the start; check the starting values, or let initialise=True set their scales. Labels much farther from the "
    "prior's mean than from each other need a trained one, ig.means.Constant(); those with little noise, float64: "
    'jax.config.update("jax_enable_x64", True).'
)
ENDED = ("converged", "the line search", LEVELLED)  # reasons that begin like this mean that more steps gain little


class History(NamedTuple):
    """The objective during a fit.

    Attributes:
        step: the number of each step.
        bound: the objective before each step.
        seconds: the seconds from the start of the run to the end of each step.
    """

    step: np.ndarray
    bound: np.ndarray
    seconds: np.ndarray


class Outcome(NamedTuple):
    """The outcome of one start.

    Attributes:
        problem: the problem of the run.
        free: the best values of its free arrays.
        history: the objective at each step.
        bound: the score of `free`.
        reason: why the run ended.
        failures: the number of steps, or values in line searches, that were NaN or infinite.
        sampled: the number of steps that used only a sample of the rows.
        sample: the number of rows in that sample.
    """

    problem: Problem
    free: list[Array]
    history: History
    bound: float
    reason: str
    failures: int
    sampled: int = 0
    sample: int = 0


class Clock:
    """The time that a fit has taken, in all calls that resumed it together."""

    def __init__(self):
        self.go_on(0.0)

    def go_on(self, seconds: float) -> None:
        """Continue to count from this time."""
        self._zero, self._held = time.perf_counter() - seconds, None

    def hold(self, seconds: float) -> None:
        """Stop the clock at this time until `go_on` is called, while recorded steps are repeated."""
        self._held = seconds

    def now(self) -> float:
        """The seconds since the fit began."""
        return time.perf_counter() - self._zero if self._held is None else self._held


class Progress:
    """The argument of callbacks.

    Attributes:
        step: the number of steps so far.
        bound: the bound, smoothed if it is noisy; or the score on held-out data.
        seconds: the seconds since the start of the run.
        bounds: the objective before each step so far.
        model: the model at this point.
    """

    def __init__(
        self, step: int, bound: float, seconds: float, build: Callable[[], Any], bounds: Sequence[np.ndarray] = ()
    ):
        self.step, self.bound, self.seconds = step, bound, seconds
        self._build, self._bounds = build, bounds

    @property
    def bounds(self) -> np.ndarray:
        """The objective before each step so far."""
        return np.concatenate([*self._bounds, np.zeros(0)])

    @property
    def model(self) -> Any:
        """The model at this point, built on request."""
        return self._build()


class Watch(NamedTuple):
    """Functions and limits that a run uses between its steps.

    Attributes:
        progress: whether to show a progress bar, or its label.
        callback: the user's callback.
        patience: the number of steps without improvement after which to stop.
        agreement: decides whether to stop because of Ctrl-C, or because the time is up.
        build: makes a model from free arrays.
        held_out: the score of free arrays on held-out data.
        clock: measures the time of the fit.
        deadline: the time at which the run ends.
        num_data: the number of data if the run ends when the objective has levelled off, else None; see `levelling`.
    """

    progress: bool | str
    callback: Callable | None
    patience: int | None
    agreement: Agreement
    build: Callable[[list[Array]], Any]
    held_out: Callable[[list[Array]], float] | None
    clock: Clock
    deadline: float = np.inf
    num_data: int | None = None


class Monitor:
    """Collects the history, keeps the best parameters, and decides when to stop.

    Parameters are compared by their score on held-out data, if there are any. Otherwise they are compared by the bound
    if it is deterministic, or by its moving average if it comes from minibatches or samples.

    Args:
        total: the number of steps of the run.
        label: the label of the progress bar, unless the user gave one.
        window: the length of the moving average in steps; 1 for a deterministic bound.
        watch: functions and limits that are used between steps.
        fewest: the fewest steps after which a deterministic bound counts as level.
    """

    def __init__(self, total: int, label: str, window: float, watch: Watch, fewest: int = 300):
        self.build, self.callback, self.held_out = watch.build, watch.callback, watch.held_out
        self.patience, self.window, self.clock = watch.patience, window, watch.clock
        self.agreement, self.look = watch.agreement, watch.agreement.look
        self.deadline, self.num_data, self.fewest, self.since = watch.deadline, watch.num_data, fewest, 0
        self.total, self.looked = total, 0
        self.bounds: list[np.ndarray] = []
        self.times: list[np.ndarray] = []
        self.step = 0
        self.seen, self.smoothed = 0, np.nan
        self.best_score, self.best, self.best_step, self.outdated = -np.inf, None, 0, False
        self.started = self.clock.now()
        shown = watch.progress if isinstance(watch.progress, str) and watch.progress != "auto" else label
        self.bar = _bar(total, shown, watch.progress) if watch.progress else None

    def record(self, values: np.ndarray) -> None:
        """Add the objective of some steps."""
        now = self.clock.now() - self.started
        before = self.times[-1][-1] if self.times else 0.0
        self.bounds.append(values)
        self.times.append(np.linspace(before, now, len(values) + 1)[1:])
        self.step += len(values)
        for value in values[np.isfinite(values)]:  # one by one, so that it does not matter how many are added at a time
            self.seen += 1
            rate = 1.0 / min(self.window, self.seen)
            self.smoothed = value if rate == 1.0 else self.smoothed + rate * (value - self.smoothed)
        if self.bar is not None:
            left = f", {self.deadline - self.clock.now():.0f} s left" if np.isfinite(self.deadline) else ""
            self.bar.set_postfix_str(f"bound {self.smoothed:.6g}{left}", refresh=False)
            self.bar.update(len(values))

    def judge(self, parameters: Any, score: float | None = None) -> str | None:
        """Compare these parameters with the best so far, and ask whether to stop.

        Args:
            parameters: the free arrays.
            score: their bound if it is known exactly; otherwise the moving average is used.

        Returns:
            The reason to stop, or None.
        """
        score = self.smoothed if score is None else score
        if self.held_out is not None:
            score = self.held_out(parameters)
        if np.isfinite(score) and (score > self.best_score or self.outdated):
            self.best_score, self.best, self.best_step, self.outdated = float(score), parameters, self.step, False
        if self.callback is not None:
            seconds = self.clock.now() - self.started
            progress = Progress(self.step, float(score), seconds, lambda: self.build(parameters), self.bounds)
            asked = self.callback(progress)
            if self.agreement.asks_to_stop(bool(asked)):
                return asked if isinstance(asked, str) else STOPPED
        if self.patience is not None and self.step - self.best_step >= self.patience:
            return f"no improvement for {self.step - self.best_step} steps"
        if self.agreement.is_over():
            return TIME
        return LEVELLED if self._has_levelled() else None

    def _has_levelled(self) -> bool:
        noisy = self.window > 1.0
        if self.num_data is None or self.step < self.looked + LOOK or (noisy and 3 * self.step // 2 >= self.total):
            return False  # a noisy run that has at most its last third left would gain nothing by stopping early
        self.looked = self.step
        return has_levelled(np.concatenate(self.bounds)[self.since :], self.num_data, self.fewest, noisy)

    def change(self) -> None:
        """Tell the monitor that the objective has changed.

        The parameters judged next then replace the best ones, unless held-out data decide.
        """
        self.outdated, self.best_step, self.since = self.held_out is None, self.step, self.step

    def numbers(self) -> np.ndarray:
        """The state of the monitor, except for the history and the best parameters."""
        of_best = (self.best_score, self.best_step, self.outdated)
        return np.array([self.total, self.started, self.step, self.looked, self.seen, self.smoothed, *of_best], float)

    def restore(self, numbers: np.ndarray, bounds: np.ndarray, times: np.ndarray, best: Any) -> None:
        """Continue from the state of another monitor, its `numbers`, history and best parameters."""
        *counts, self.smoothed, self.best_score, best_step, outdated = map(float, numbers)
        total, self.started, step, looked, seen = counts
        self.total, self.step, self.looked, self.seen = int(total), int(step), int(looked), int(seen)
        self.best_step, self.outdated = int(best_step), bool(outdated)
        self.bounds, self.times, self.best = [bounds], [times], best
        self.resumed(f"at step {self.step}")
        if self.bar is not None:
            self.bar.initial = self.bar.n = self.step

    def resumed(self, where: str) -> None:
        """Show in the progress bar that the run was resumed."""
        if self.bar is not None:
            self.bar.set_description_str(f"{self.bar.desc.rstrip(': ')} (resumed {where})", refresh=False)

    @property
    def is_empty(self) -> bool:
        """Whether no step has been taken and no parameters have been judged, so that there is no result."""
        return self.step == 0 and self.best is None

    def close(self, reason: str) -> History:
        """Close the progress bar, which shows why the run ended, and return the history.

        If no parameters were judged, the moving average becomes the best score.
        """
        if self.best is None:
            self.best_score = self.smoothed
        if self.bar is not None:
            self.bar.set_postfix_str(f"bound {self.best_score:.6g}, {reason}", refresh=False)
            self.bar.close()
        bounds = np.concatenate([*self.bounds, np.zeros(0)])
        return History(np.arange(len(bounds)), bounds, np.concatenate([*self.times, np.zeros(0)]))


def _bar(total: int, label: str, when: bool | str) -> Any:
    from tqdm.auto import tqdm

    late = {"delay": LATE, "disable": None} if when == "auto" else {}  # disable=None: where there is no terminal
    return tqdm(total=total, desc=label, unit="step", dynamic_ncols=True, mininterval=0.2, **late)
