"""`fit`: train a model on data."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ..checks import check_model_and_data
from ..collapsed import collapsed_elbo, log_evidence
from ..data import Data, as_data
from ..layers import qu
from ..layers.sparse_gp import SparseGP
from ..likelihoods.gaussian import Gaussian
from ..model import Model
from ..objectives import elbo
from ..parameters import Partition, check, dtype_of, partition
from ..runtime import jit, limited_threads
from .monitor import History, Monitor
from .problem import Objective, Problem, make_problem
from .stochastic import CHUNK, Loop, Pace, compiled_steps, initial_state

METHODS = ("auto", "adam", "natgrad", "natgrad-all", "lbfgs", "collapsed")
BATCH = 1024  # rows in a default minibatch; up to twice as many data are taken whole
SECONDS = 0.4  # how long compiled steps run between two looks at the keyboard
STREAK = 100  # so many failed steps in a row end a fit
AFFORDABLE = 4e9  # N·M² up to which the collapsed bound and its gradient take less than about a second


class FitResult(NamedTuple):
    """What `ig.fit` returns: the trained `model`, the `history` of the bound, and a `message` on what happened.

    `bound` is the score of the model that is returned: its objective, smoothed over minibatches, or held out.
    """

    model: Any
    history: History
    message: str
    method: str
    bound: float


class _Outcome(NamedTuple):
    model: Any
    history: History
    bound: float
    reason: str
    failures: int


def fit(
    model: Model,
    data: Any,
    *,
    objective: Callable = elbo,
    method: str = "auto",
    steps: int | None = None,
    batch_size: int | None = None,
    optimiser: optax.GradientTransformation | None = None,
    learning_rate: float = 0.01,
    gamma: float | None = None,
    freeze: Callable[[Any], Any] | None = None,
    clamp: int = 0,
    log_prior: Callable[[Any], Array] | None = None,
    initialise: bool = True,
    starts: int = 1,
    held_out: Any = None,
    patience: int | None = None,
    callback: Callable | None = None,
    progress: bool = True,
    key: Array | None = None,
) -> FitResult:
    """Train.

    >>> import jax.numpy as jnp
    >>> import inducing as ig
    >>> X = jnp.linspace(0.0, 1.0, 20)
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[::4, None]))
    >>> result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (X, jnp.sin(6 * X)), steps=10, progress=False)
    >>> result.method
    'collapsed'
    """
    data = as_data(data, dtype_of(model))
    check(model)
    check_model_and_data(model, data)
    target = Objective(objective, log_prior)
    method = "adam"
    loop, pace = _stochastic(
        model, data, target, method, partition(model, freeze), batch_size, optimiser, learning_rate, gamma
    )
    with limited_threads():
        outcome = _run_steps(
            loop,
            pace,
            1000 if steps is None else steps,
            key if key is not None else jax.random.key(0),
            progress,
            callback,
            None,
            patience,
        )
    return FitResult(outcome.model, outcome.history, outcome.reason, method, outcome.bound)


@cache
def _adam(learning_rate: float) -> optax.GradientTransformation:
    return optax.adam(learning_rate)


def _stochastic(
    model, data, target, method, parts: Partition, batch_size, optimiser, learning_rate, gamma
) -> tuple[Loop, Pace]:
    problem = make_problem(model, parts, data)
    if batch_size is None and target.takes_num_data and len(data) > 2 * BATCH:
        batch_size = BATCH
    loop = Loop(
        problem,
        data,
        target,
        _adam(learning_rate) if optimiser is None else optimiser,
        (),
        None if batch_size == len(data) else batch_size,
    )
    dtype = dtype_of(model)
    number = lambda v: jnp.asarray(v, dtype)
    pace = Pace(number(0.1), number(0.1), number(1.0), jnp.asarray(0, jnp.int32), (True,) * len(parts.free))
    return loop, pace


def _run_steps(loop: Loop, pace: Pace, steps: int, key: Array, progress, callback, held_out, patience) -> _Outcome:
    advance = compiled_steps()
    state = initial_state(loop, key)
    noisy = loop.batch_size is not None
    epoch = len(loop.data) // loop.batch_size if noisy else 1
    monitor = Monitor(
        loop.problem.model,
        steps,
        progress=progress,
        label="fit",
        callback=callback,
        held_out=held_out,
        patience=patience,
        window=max(50.0, min(epoch, 500.0)) if noisy else 1.0,
    )
    reason, n, failures = "all steps done", 1, 0
    try:
        while monitor.step < steps:
            n = int(min(n, steps - monitor.step, CHUNK))
            began = time.perf_counter()
            new, history = jax.block_until_ready(advance(loop, pace, state, jnp.asarray(n, jnp.int32)))
            elapsed = time.perf_counter() - began
            values = np.asarray(history[:n], float)
            first = monitor.step == 0
            stop = None if noisy else monitor.judge(state.free, values[0])
            monitor.record(values)
            state, failures = new, int(new.failures)
            if noisy:
                stop = monitor.judge(state.free)
            if int(state.streak) >= STREAK:
                stop = f"{int(state.streak)} steps in a row were NaN or infinite"
            if stop:
                reason = stop
                break
            n = 8 if first else max(1, min(8 * n, int(n * SECONDS / max(elapsed, 1e-6))))
        if not noisy:
            _, history = advance(loop, pace, state, jnp.asarray(1, jnp.int32))
            monitor.judge(state.free, float(history[0]))
    except KeyboardInterrupt:
        reason = "interrupted"
    best = state.free if monitor.best is None else monitor.best
    return _Outcome(jit(loop.problem.model)(best), monitor.close(), monitor.best_score, reason, failures)
