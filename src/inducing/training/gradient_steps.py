"""One start by gradient steps: the lengths of steps, and what happens between two calls of the compiled loop."""

import time
from collections import Counter
from functools import cache
from typing import Any

import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from inducing._xla import compiled, own_array
from inducing.parameters import dtype_of
from inducing.training.batches import Drawn, Streamed
from inducing.training.compiled_steps import CHUNK, Loop, Pace, State, initial_state
from inducing.training.monitor import AT_START, LEVELLED, TIME, Monitor, Outcome
from inducing.training.problem import free_positions
from inducing.training.run import Run

RATE = 0.01  # the default learning rate of Adam
# The fewest steps in which a bound without noise may level off: LEVEL at the default learning rate, inversely
# proportional to the rate, and at least FEWEST.
LEVEL, FEWEST = 300, 30
SECONDS = 0.4  # how long the compiled loop runs before we look for Ctrl-C
STREAK = 100  # a run ends after this number of failed steps in a row
FADE = 1 / 3  # the share of the steps, at the end, in which those of Adam become shorter if the objective is noisy
LOOK = (10, 100)  # the fewest and most steps between two judgements of the parameters, of which a run has about 100


def run_gradient_steps(run: Run) -> Outcome:
    """Train by gradient steps.

    When the parameters are judged depends on the number of steps alone, not on the clock, so that the same key gives
    the same result.
    """
    stepper, noisy = _Stepper(run), run.plan.noisy
    rows = run.given.num_data
    window = min(max(50.0, rows / (run.plan.batch_size or rows)), 500.0) if noisy else 1.0
    fewest = round(max(FEWEST, LEVEL * RATE / _rate(run)))
    monitor = Monitor(run.plan.steps, run.plan.method, window, run.watch, fewest)
    monitor.since = run.given.clamp
    reason = "failed"
    if run.checkpoint is not None:
        stepper.state = run.checkpoint.restore(stepper.state, monitor)
        stepper.fade_until(monitor.total)
    try:
        reason = _until_stopped(stepper, monitor, run)
    except KeyboardInterrupt:
        if monitor.is_empty:
            raise
        reason = "interrupted"
    finally:
        stepper.batches.close()
        history = monitor.close(reason)
    failures = int(stepper.state.failures)
    if failures and failures == monitor.step:
        raise FloatingPointError(f"the objective or its gradient is NaN or infinite {AT_START}")
    best = stepper.state.free if monitor.best is None else monitor.best
    return Outcome(run.problem, best, history, monitor.best_score, reason, failures)


def _until_stopped(stepper: "_Stepper", monitor: Monitor, run: Run) -> str:
    """Take steps until all are done or there is a reason to stop, and return that reason."""
    noisy, checkpoint = run.plan.noisy, run.checkpoint
    look = min(max(LOOK[0], run.plan.steps // 100), LOOK[1])
    n = 1
    while monitor.step < monitor.total and not monitor.agreement.is_over():
        n = max(1, min(n, look - monitor.step % look, monitor.total - monitor.step, CHUNK))
        began = time.perf_counter()
        new, values = stepper.after(n)
        elapsed = time.perf_counter() - began
        stop = None
        if not noisy and monitor.step % look == 0:  # values[0] is the objective before the step, at the old state
            stop = monitor.judge(stepper.state.free, float(values[0]))
        monitor.record(values)
        stepper.state = new
        monitor.look()
        if noisy and (monitor.step % look == 0 or monitor.step == monitor.total):
            stop = monitor.judge(new.free)
        if int(new.streak) >= STREAK:
            stop = f"the last {int(new.streak)} steps were NaN or infinite: start elsewhere, or take shorter steps"
        if stop == LEVELLED and noisy:
            monitor.total = 3 * monitor.step // 2
            stepper.fade_until(monitor.total)
        elif stop:
            return stop
        if checkpoint is not None:
            checkpoint.keep(stepper.state, monitor)
        n = _steps_of_a_call(stepper.batches.seconds_of_a_step(elapsed / n))
    _judge_last(stepper, monitor, noisy, look)
    if monitor.step < monitor.total:
        return TIME
    return "all steps done" if monitor.total == run.plan.steps else LEVELLED


def _steps_of_a_call(seconds: float) -> int:
    """The number of steps to take before looking for Ctrl-C, if one takes `seconds`; 0 if that is not known."""
    return int(SECONDS / seconds) if seconds > 0.0 else 1


def _judge_last(stepper: "_Stepper", monitor: Monitor, noisy: bool, look: int) -> None:
    """Judge the final parameters, unless that was done in the loop."""
    if not noisy or monitor.step == 0:
        _, values = stepper.after(1)
        monitor.judge(stepper.state.free, float(values[0]))
    elif monitor.step < monitor.total and monitor.step % look:
        monitor.judge(stepper.state.free)


class _Stepper:
    """Calls the compiled loop, and holds its state."""

    state: State

    def __init__(self, run: Run):
        plan, given = run.plan, run.given
        optimiser = _adam(_rate(run)) if given.optimiser is None else given.optimiser
        per_datum = _per_datum(run)
        data = given.data if given.stream is None else None
        kind = plan.objective, optimiser, plan.natural, plan.batch_size, per_datum
        loop = Loop(run.problem, data, *kind, None if given.stream is None else len(given.stream))
        self._loop, self._run = loop, run
        self.fade_until(run.plan.steps)
        self.state = compiled(initial_state, once=True)(loop, *run.seed)
        self.batches = Drawn() if given.stream is None else Streamed(run)

    def fade_until(self, end: int) -> None:
        """Set the number of steps in whose last third the steps become shorter, if they do."""
        self._pace = _pace(self._run, end)

    def after(self, n: int) -> tuple[State, np.ndarray]:
        """The state after n steps, or fewer if another process asks to stop, and the objective before each of them."""
        return self.batches.advance(self._loop, self._pace, self.state, n)


def _rate(run: Run) -> float:
    """The learning rate of the default Adam."""
    return RATE if run.given.learning_rate is None else float(run.given.learning_rate)


@cache
def _adam(learning_rate: float) -> optax.GradientTransformation:
    """Adam on all arrays as one vector. The steps are the same, and there is less to compile."""
    adam = optax.adam(learning_rate)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        flat, unravel = ravel_pytree(updates)
        change, state = adam.update(flat, state)
        return unravel(change), state  # ty: ignore[invalid-argument-type]

    return optax.GradientTransformation(lambda params: adam.init(ravel_pytree(params)[0]), update)


def _pace(run: Run, steps: int) -> Pace:
    gamma = run.plan.gamma
    ramp, start = (10.0, 0.01 * gamma) if gamma < 1.0 else (1e-3, gamma)
    fades = run.plan.noisy and run.given.optimiser is None
    fade, end = (FADE * steps, steps) if fades else (1.0, np.inf)
    dtype = dtype_of(run.model)
    numbers = (own_array(v, dtype) for v in (start, gamma, run.plan.reach, ramp, fade, end))
    return Pace(*numbers, own_array(run.given.clamp, np.int32), own_array(_variational(run), bool))


def _variational(run: Run) -> list[bool]:
    """For each free array, whether it belongs to q wherever it occurs in the model."""
    places = Counter(id(leaf) for leaf in jax.tree.leaves(run.model))
    q = Counter(id(leaf) for leaf in jax.tree.leaves([layer.variational() for layer in run.model.layers]))
    where = free_positions(run.model, run.problem.partition)
    active = {i for leaf, i in where.items() if q[leaf] == places[leaf]}
    return [i in active for i in range(len(run.problem.units))]


def _per_datum(run: Run) -> tuple[int, ...]:
    """The positions of the free arrays whose rows belong to single data."""
    where = free_positions(run.model, run.problem.partition)
    arrays = jax.tree.leaves([layer.per_datum() for layer in run.model.layers])
    return tuple(where[id(leaf)] for leaf in arrays if id(leaf) in where)
