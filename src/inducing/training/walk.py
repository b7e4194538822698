"""One start by gradient steps: how they are paced, and what is looked at between them."""

import time
from collections import Counter
from functools import cache
from typing import Any

import jax
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from inducing._xla import compiled, own_array
from inducing.data import Data
from inducing.layers.bayesian_dense import BayesianDense
from inducing.layers.deterministic import Skip
from inducing.layers.encoders import PerDatumEncoder
from inducing.layers.latent_variable import LatentVariable
from inducing.layers.sparse_gp import SparseGP
from inducing.model import Model
from inducing.parameters import Partition, dtype_of
from inducing.training.monitor import Monitor
from inducing.training.outcome import Outcome, Seed, Watch
from inducing.training.plan import Plan
from inducing.training.problem import Problem
from inducing.training.stochastic import CHUNK, Loop, Pace, advance, initial_state

RATE = 0.01  # Adam's learning rate if nobody says
SECONDS = 0.4  # how long compiled steps run between two looks at the keyboard
STREAK = 100  # so many failed steps in a row end a fit
FADE = 1 / 3  # the share of the steps over which Adam under noise becomes quiet
LOOK = (10, 100)  # the fewest and most steps between two judgements of the parameters, of which a run has about 100


def walk(
    plan: Plan,
    problem: Problem,
    model: Model,
    data: Data,
    steps: int,
    seed: Seed,
    watch: Watch,
    optimiser: optax.GradientTransformation | None,
    rate: float | None,
    clamp: int,
) -> Outcome:
    """Gradient steps. The parameters are judged at steps that depend on nothing but `steps`: same key, same result."""
    where = problem.positions()
    mover = _adam(RATE if rate is None else float(rate)) if optimiser is None else optimiser
    loop = Loop(problem, data, plan.objective, mover, plan.natural, plan.batch_size, _per_datum(where))
    pace = _pace(plan, problem.partition, where, model, clamp, steps, plan.noisy and optimiser is None)
    take = compiled(advance)
    state = compiled(initial_state, once=True)(loop, *seed)
    epoch = len(loop.data) / (loop.batch_size or len(loop.data))
    window = min(max(50.0, epoch), 500.0) if plan.noisy else 1.0
    monitor = Monitor(steps, label=plan.method, window=window, **watch._asdict())
    look = min(max(LOOK[0], steps // 100), LOOK[1])
    reason, n, failures = "failed", 1, 0
    try:
        while monitor.step < steps:
            until_look = look - monitor.step % look
            n = max(1, min(n, until_look, steps - monitor.step, CHUNK))
            began = time.perf_counter()
            new, values = jax.block_until_ready(take(loop, pace, state, own_array(n, np.int32)))
            elapsed = time.perf_counter() - began
            values = np.asarray(values, float)[:n]
            stop = None
            if not plan.noisy and monitor.step % look == 0:  # the value before the first step is that of `state`
                stop = monitor.judge(state.free, float(values[0]))
            first = monitor.step == 0
            monitor.record(values)
            state, failures = new, int(new.failures)
            monitor.look()
            if plan.noisy and (monitor.step % look == 0 or monitor.step == steps):
                stop = monitor.judge(state.free)
            if int(state.streak) >= STREAK:
                stop = (
                    f"the last {int(state.streak)} steps were NaN or infinite: start elsewhere, or take shorter steps"
                )
            if stop:
                reason = stop
                break
            n = look if first else int(n * SECONDS / max(elapsed, 1e-6))
        else:
            reason = "all steps done"
            if not plan.noisy or steps == 0:
                _, values = take(loop, pace, state, own_array(1, np.int32))
                monitor.judge(state.free, float(np.asarray(values)[0]))
    except KeyboardInterrupt:
        if monitor.knows_nothing:
            raise
        reason = "interrupted"
    finally:
        history = monitor.close(reason)
    best = state.free if monitor.best is None else monitor.best
    return Outcome(loop.problem, best, history, monitor.best_score, reason, failures)


@cache
def _adam(learning_rate: float) -> optax.GradientTransformation:
    """Adam on all arrays as one: the same steps, in a fifth less time to compile."""
    adam = optax.adam(learning_rate)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        flat, unravel = ravel_pytree(updates)
        change, state = adam.update(flat, state)
        return unravel(change), state  # ty: ignore[invalid-argument-type]

    return optax.GradientTransformation(lambda params: adam.init(ravel_pytree(params)[0]), update)


def _pace(plan: Plan, parts: Partition, where: Any, model: Any, clamp: int, steps: int, fades: bool) -> Pace:
    places, variational = Counter(jax.tree.leaves(where)), Counter(jax.tree.leaves(_variational(where.layers)))
    active = own_array([variational[i] == places[i] for i in range(len(parts.free))], bool)
    dtype = dtype_of(model)
    ramp = 10.0 if plan.gamma < 1.0 else 1e-3
    start = 0.01 * plan.gamma if plan.gamma < 1.0 else plan.gamma
    fade, end = (FADE * steps, steps) if fades else (1.0, np.inf)
    numbers = (own_array(v, dtype) for v in (start, plan.gamma, plan.reach, ramp, fade, end))
    return Pace(*numbers, own_array(clamp, np.int32), active)


def _variational(layers: Any) -> list[Any]:
    """The parts of layers that are q: of functions, of weights, of latent variables."""
    found: list[Any] = []
    for layer in layers:
        if isinstance(layer, SparseGP):
            found.append((layer.features, layer.mean, layer.root))
        elif isinstance(layer, BayesianDense):
            found.append((layer.mean, layer.scale, layer.root))
        elif isinstance(layer, LatentVariable):
            found.append(layer.encoder)
        elif isinstance(layer, Skip):
            found.append(_variational(layer.layers))
    return found


def _per_datum(where: Any) -> tuple[int, ...]:
    """The positions of arrays whose rows belong to single data."""
    nodes = jax.tree.leaves(where, is_leaf=lambda v: isinstance(v, PerDatumEncoder))
    return tuple(i for node in nodes if isinstance(node, PerDatumEncoder) for i in jax.tree.leaves(node))
