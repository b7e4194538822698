"""One start by L-BFGS on all data, or on a sample of them first, for objectives without noise."""

import importlib
import threading
from collections.abc import Callable, Iterable
from functools import partial

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import compiled, own_array
from inducing.bounds.collapsed import bound_of_sample, orders_of_sums
from inducing.bounds.objective import Target
from inducing.data import Data
from inducing.training.ascent_by_passes import StreamedAscent
from inducing.training.checkpoint import Checkpoint
from inducing.training.compiled_steps import shuffled, start_key
from inducing.training.levelling import GAIN
from inducing.training.monitor import AT_START, STOPPED, TIME, Monitor, Outcome
from inducing.training.problem import Problem, flat
from inducing.training.run import Run

MANY, SAMPLE, FIRST = 80_000, 20_000, 300  # from MANY rows on, the first steps (at most FIRST) use SAMPLE rows
RESTARTS = 3  # how often SciPy's optimiser is called, at most
SPELL = 10  # the number of evaluations for which the careful objective is used when it is first needed
SETTLE = 40  # the fewest iterations after which the bound may count as level
REACH = 3.0  # the farthest that one step may move a free number: a factor of e³ for a scale, 3 units for a location


class Ascent(eqx.Module):
    """What L-BFGS maximises, on data in memory.

    Attributes:
        problem: the model split into free arrays and all the rest.
        data: all data, or a sample of them.
        num_data: the number of all data.
        objective: the objective.
    """

    problem: Problem
    data: Data
    num_data: int
    objective: Target

    def trace(self, free: list[Array], key: Array | None) -> None:
        """Trace the program, so that the first evaluation only has to compile and run it."""
        compiled(value_and_gradient).lower(self, free, key)

    def numbers(self, free: list[Array], key: Array | None) -> np.ndarray:
        """The objective at free arrays, followed by its gradient."""
        value, grads = compiled(value_and_gradient)(self, free, key)
        return flat([value, *grads])


Ascents = tuple[Ascent | StreamedAscent, ...]
"""One objective, or the same objective computed fast and computed more accurately."""


def run_lbfgs(run: Run) -> Outcome:
    """Train by L-BFGS."""
    stages = _stages(run)
    problem, (everything, steps) = run.problem, stages[-1]
    monitor, checkpoint = _monitor(run), run.checkpoint
    key = start_key(*run.seed) if run.plan.objective.takes_key else None
    start = free = _start(problem)
    reason, failures, sampled = "failed", 0, None
    try:
        for number, (ascents, until) in enumerate(stages):
            if number > 0:
                monitor.change()
            sampled = monitor.step if ascents is everything else None
            try:
                reason, failed = maximise(ascents, free, until, monitor, key, checkpoint)
            except FloatingPointError:  # NaN on the sample, or on all data at the optimum of the sample
                if sampled is not None and free is start:
                    raise
                sampled = monitor.step
                reason, failures = maximise(everything, start, steps, monitor, key, checkpoint)
                break
            free, failures = free if monitor.best is None else monitor.best, failures + failed
            if reason in (STOPPED, TIME):
                break
    except KeyboardInterrupt:
        if monitor.is_empty:
            raise
        reason = "interrupted"
    finally:
        history = monitor.close(reason)
    best = free if monitor.best is None else monitor.best
    sampled = monitor.step if sampled is None else sampled
    return Outcome(problem, best, history, monitor.best_score, reason, failures, sampled, SAMPLE)


def _monitor(run: Run) -> Monitor:
    """The monitor of the run. If the fit is resumed, it first sees the recorded steps."""
    watch = run.watch if run.checkpoint is None else run.checkpoint.watched(run.watch)
    monitor = Monitor(run.plan.steps, run.plan.method, 1.0, watch, SETTLE)
    if run.checkpoint is not None and run.checkpoint.replays:
        monitor.resumed("from its record")
    return monitor


def _stages(run: Run) -> list[tuple[Ascents, int]]:
    """What to maximise, and until which step: the objective on all data, preceded by one on a sample if N is large."""
    data, steps, target = run.given.data, run.plan.steps, run.plan.objective
    N, streamed = run.given.num_data, run.given.stream is not None
    if run.plan.method != "collapsed":
        return [((Ascent(run.problem, data, N, target),), steps)]

    def on(rows: Data, bounds: Iterable[Callable]) -> Ascents:
        return tuple(Ascent(run.problem, rows, N, Target(bound, target.log_prior)) for bound in bounds)

    if run.passes is not None:
        everything = (StreamedAscent(run.problem, run.passes, target.log_prior),)
    else:
        everything = on(data, orders_of_sums(run.model, data))
    if N < MANY or steps < 3:
        return [(everything, steps)]
    sample = data if streamed else data.rows(shuffled(start_key(*run.seed), N)[:SAMPLE])
    bounds = (partial(bound_of_sample, bound=bound) for bound in orders_of_sums(run.model, sample))
    return [(on(sample, bounds), min(FIRST, steps // 3)), (everything, steps)]


def _start(problem: Problem) -> list[Array]:
    """The initial values of the free arrays. NumPy computes them, so that nothing is compiled."""
    arrays = jax.tree.map(np.asarray, eqx.filter(problem, eqx.is_array))
    return [own_array(start, f.dtype) for start, f in zip(arrays.free, problem.partition.free, strict=True)]


def maximise(
    ascents: Ascents,
    start: list[Array],
    steps: int,
    monitor: Monitor,
    key: Array | None,
    checkpoint: Checkpoint | None,
) -> tuple[str, int]:
    """Maximise until the bound converges or `steps` iterations are done.

    Args:
        ascents: what to maximise: one way to compute it, or a fast one and a more accurate one.
        start: the free arrays to start from.
        steps: the iteration of `monitor` at which to end.
        monitor: holds the best parameters afterwards.
        key: the random key, if the objective takes one.
        checkpoint: records values and gradients, and returns those that have been recorded.

    Returns:
        The reason for the end, and the number of values in line searches that were NaN or infinite.

    Raises:
        FloatingPointError: if the objective or its gradient is not finite at the start.
    """
    ascents[0].trace(start, key)
    threading.Thread(target=importlib.import_module, args=("scipy.optimize",)).start()  # while XLA compiles
    ways = [partial(ascent.numbers, key=key) for ascent in ascents]
    if checkpoint is not None:
        ways = [partial(checkpoint.numbers, way) for way in ways]
    evaluate, *careful = ways
    search = _Search(_with_fallback(evaluate, *careful) if careful else evaluate, start, monitor)
    f, _ = search.value(search.best_x)
    if not np.isfinite(search.best_f):
        what = "gradient of the objective is not finite" if np.isfinite(f) else f"objective is {-f}"
        raise FloatingPointError(f"the {what} {AT_START}")
    reason = monitor.judge(search.unflatten(search.best_x), -f)
    if reason is None:
        try:
            reason = _converge(search, steps, monitor)
        except _Stop as stop:
            reason = str(stop)
    return reason, search.failures


def value_and_gradient(ascent: Ascent, free: list[Array], key: Array | None) -> tuple[Float[Array, ""], list[Array]]:
    """The objective at free arrays, and its gradient."""
    problem, data, num_data = ascent.problem, ascent.data, ascent.num_data
    return jax.value_and_grad(lambda free: ascent.objective(problem.model(free), data, key, num_data))(free)


def _with_fallback(quick: Callable, careful: Callable) -> Callable:
    """A function that calls `quick`, but `careful` for a while after `quick` has returned NaN.

    The number of calls of `careful` doubles each time.
    """
    left, spell = 0, SPELL

    def evaluate(free: list[Array]) -> np.ndarray:
        nonlocal left, spell
        if left == 0 and np.isfinite((numbers := quick(free))[0]):
            return numbers
        numbers = careful(free)
        if left > 0:
            left -= 1
        elif np.isfinite(numbers[0]):  # otherwise the parameters are the reason, not rounding
            left, spell = spell, 2 * spell
        return numbers

    return evaluate


class _Stop(Exception):
    """Ends SciPy's optimiser from inside its callback."""


class _Search:
    """The negative objective that SciPy's L-BFGS minimises, and the best point so far.

    If the value at a point is NaN or infinite, or the point is so far away that rounding errors could make its value
    look good (such as a noise variance of 1e-80), the line search receives a high value with a slope that leads back.
    It then shortens its step.
    """

    def __init__(self, evaluate: Callable, start: list[Array], monitor: Monitor):
        self._evaluate, self._start, self._monitor = evaluate, start, monitor
        self._ends = np.cumsum([f.size for f in start])[:-1]
        self.best_x, self.best_f = flat(start), np.inf
        self.began = -np.inf  # the value at which the current line search begins
        self.failures = 0

    def unflatten(self, x: np.ndarray) -> list[Array]:
        pieces = zip(np.split(x, self._ends), self._start, strict=True)
        return [own_array(piece.reshape(f.shape), f.dtype) for piece, f in pieces]  # copies: SciPy overwrites x

    def value(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        if np.isfinite(self.best_f):
            self._monitor.look()
        away, top = x - self.best_x, max(self.best_f, self.began)
        wall = 10.0 * (1.0 + abs(top))
        if np.abs(away).max() <= REACH:
            numbers = -self._evaluate(self.unflatten(x))
            f, g = float(numbers[0]), numbers[1:]
            if np.isfinite(f) and np.isfinite(g).all():
                if f < self.best_f:
                    self.best_x, self.best_f = x.copy(), f
                return f, g
            self.failures += 1
            if not np.isfinite(self.best_f):
                return f, g
        return top + wall, 2.0 * wall * away / max(float(away @ away), 1e-300)

    def callback(self, intermediate_result) -> None:  # SciPy requires this name
        self.began = float(intermediate_result.fun)
        self._monitor.record(np.array([-intermediate_result.fun]))
        if reason := self._monitor.judge(self.unflatten(intermediate_result.x), -self.began):
            raise _Stop(reason)


def _converge(search: _Search, steps: int, monitor: Monitor) -> str:
    """Run SciPy's L-BFGS, restart it if it gives up early, and return the reason for the end."""
    from scipy.optimize import minimize  # imported by `maximise` in another thread

    for restarts in range(RESTARTS):
        before = search.began = search.best_f
        left = steps - monitor.step
        if left <= 0:
            return "all steps done"
        options = {"maxiter": left, "maxfun": 20 * left, "maxcor": 60, "maxls": 15, "ftol": 1e-10, "gtol": 1e-5}
        done = minimize(
            search.value, search.best_x, jac=True, method="L-BFGS-B", callback=search.callback, options=options
        )
        if done.status == 0:
            return "converged"
        little = 1e-9 * (1.0 + abs(search.best_f))
        if restarts and monitor.num_data is not None:
            little = max(little, GAIN * monitor.num_data)
        if before - search.best_f <= little:  # line searches fail because of rounding errors
            return "converged as far as rounding allows"
    return "the line search gave up" if monitor.step < steps else "all steps done"
