"""One start by L-BFGS: on all data, or on a sample of them first."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array
from inducing.bounds.collapsed import bound_of_sample, orders_of_sums
from inducing.data import Data
from inducing.model import Model
from inducing.training.lbfgs import Ascent, maximise
from inducing.training.monitor import STOPPED, Monitor
from inducing.training.outcome import Outcome, Seed, Watch
from inducing.training.plan import Plan
from inducing.training.problem import Objective, Problem
from inducing.training.stochastic import shuffled, start_key

MANY, SAMPLE, FIRST = 80_000, 20_000, 300  # of so many rows, L-BFGS looks at a sample in its first steps


def ascents(plan: Plan, problem: Problem, model: Model, data: Data, steps: int, seed: Seed) -> list[tuple[Ascent, int]]:
    """Where L-BFGS looks, and until which step: at all data, but if these are many at a sample first."""

    def on(rows: Data, of: Callable[[Callable], Callable]) -> Ascent:
        orders = (Objective(of(bound), plan.objective.log_prior) for bound in orders_of_sums(model, rows))
        return Ascent(problem, rows, len(data), *orders)

    everything = on(data, lambda bound: bound), steps
    if len(data) < MANY or steps < 3:
        return [everything]
    sample = data.rows(shuffled(start_key(*seed), len(data))[:SAMPLE])
    return [(on(sample, lambda bound: partial(bound_of_sample, bound=bound)), min(FIRST, steps // 3)), everything]


def climb(ascents: list[tuple[Ascent, int]], seed: Seed, watch: Watch, plan: Plan) -> Outcome:
    """L-BFGS."""
    problem, steps = ascents[-1][0].problem, ascents[-1][1]
    monitor = Monitor(steps, label=plan.method, window=1.0, **watch._asdict())
    key = start_key(*seed) if plan.objective.takes_key else None
    start = free = _start(problem)
    reason, failures, sampled = "failed", 0, None
    try:
        for ascent, until in ascents:
            monitor.change()
            sampled = monitor.step if ascent is ascents[-1][0] else None
            try:
                reason, failed = maximise(ascent, free, until, monitor, key)
            except FloatingPointError:  # no number on the sample, or none on all data where the sample led
                if sampled is not None and free is start:
                    raise
                sampled = monitor.step
                reason, failures = maximise(ascents[-1][0], start, steps, monitor, key)
                break
            free, failures = free if monitor.best is None else monitor.best, failures + failed
            if reason == STOPPED:
                break
    except KeyboardInterrupt:
        if monitor.knows_nothing:
            raise
        reason = "interrupted"
    finally:
        history = monitor.close(reason)
    best = free if monitor.best is None else monitor.best
    sampled = monitor.step if sampled is None else sampled
    return Outcome(problem, best, history, monitor.best_score, reason, failures, sampled, SAMPLE)


def _start(problem: Problem) -> list[Array]:
    """The arrays that move, by NumPy: nothing is compiled for them."""
    arrays = jax.tree.map(np.asarray, eqx.filter(problem, eqx.is_array))
    return [own_array(start, f.dtype) for start, f in zip(arrays.free, problem.partition.free, strict=True)]
