"""`fit`: train a model on data."""

import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..checks import check_model_and_data
from ..collapsed import bound_of_sample, orders_of_sums
from ..data import Data, as_data
from ..layers.bayesian_dense import BayesianDense
from ..layers.deterministic import Skip
from ..layers.encoders import PerDatum
from ..layers.latent_variable import LatentVariable
from ..layers.sparse_gp import SparseGP, sparse_gps
from ..likelihoods.base import AbstractLikelihood
from ..likelihoods.base import PerDatum as PerDatumValues
from ..model import Model
from ..objectives import elbo
from ..parameters import POSITIVE, Partition, as_key, check, dtype_of, partition
from ..runtime import jit, limited_threads, own_array
from .choice import Plan, make_plan
from .lbfgs import Ascent, maximise
from .monitor import STOPPED, History, Monitor
from .problem import Objective, Problem, make_problem, tied_again
from .scales import automatic_scales
from .stochastic import CHUNK, Loop, Pace, compiled_steps, initial_state, shuffled, start_key

SECONDS = 0.4  # how long compiled steps run between two looks at the keyboard
RATE = 0.01  # Adam's learning rate if nobody says
STREAK = 100  # so many failed steps in a row end a fit
FADE = 1 / 3  # the share of the steps over which Adam under noise becomes quiet
LOOK = (10, 100)  # the fewest and most steps between two judgements of the parameters, of which a run has about 100
MANY, SAMPLE, FIRST = 80_000, 20_000, 300  # of so many rows, L-BFGS looks at a sample in its first steps
SPREAD = 0.7  # of the logarithms of positive parameters between starts


_Seed = tuple[Array | None, Array]  # the user's key, and the number of a start


class FitResult(NamedTuple):
    """What `ig.fit` returns: the trained `model`, the `history` of the bound, and a `message` on what happened.

    `method` is what was used, `bound` the score of the model: its objective, smoothed if that is noisy, or held out.
    `history` has `step`, `bound` and `seconds`, an entry for each step.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> data = ([0.0, 0.3, 0.6, 1.0], [0.5, float("nan"), float("nan"), 0.2])
    >>> result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), data, method="adam", steps=5, progress=False)
    >>> result.message
    'adam (as asked); 5 steps on all data: all steps done; bound ...; 2 missing labels; largest relative jitter 1e-08.'
    >>> result.history.bound.shape, bool(abs(result.bound - ig.elbo(result.model, data)) < 1e-9)
    ((5,), True)
    """

    model: Any
    history: History
    message: str
    method: str
    bound: float


class _Outcome(NamedTuple):
    """How one start ended; `free` are its best parameters, `sampled` is how many steps saw a sample of the data."""

    problem: Problem
    free: list[Array]
    history: History
    bound: float
    reason: str
    failures: int
    sampled: int = 0


class _Watch(NamedTuple):
    """What the user asked to see while it runs; `build` makes a model of free arrays, `held_out` a score."""

    progress: bool | str
    callback: Callable | None
    patience: int | None
    build: Callable[[list[Array]], Any]
    held_out: Callable[[list[Array]], float] | None


def fit(
    model: Model,
    data: Any,
    *,
    objective: Callable = elbo,
    method: str = "auto",
    steps: int | None = None,
    batch_size: int | None = None,
    optimiser: optax.GradientTransformation | None = None,
    learning_rate: float | None = None,
    gamma: float | None = None,
    freeze: Callable[[Any], Any] | None = None,
    clamp: int = 0,
    log_prior: Callable[[Any], Any] | None = None,
    initialise: bool = True,
    starts: int = 1,
    held_out: Any = None,
    patience: int | None = None,
    callback: Callable | None = None,
    progress: bool | str = True,
    key: Array | None = None,
) -> FitResult:
    """Train `model` on `data`, (X, y) or `ig.Data`, by raising `objective`; the model that is passed stays as it is.

    **Method.** `"adam"`: gradient steps for everything. `"natgrad"`: natural-gradient steps for q(u) of the last
    SparseGP layer (`"natgrad-all"`: of all of them) and gradient steps for the rest.
    `"collapsed"`: L-BFGS on the collapsed bound, for one SparseGP layer with Gaussian noise; q(u) is set to its optimum
    at the end. `"lbfgs"`: L-BFGS on any objective without noise. `"auto"` takes the collapsed bound where it exists and
    is affordable, L-BFGS for objectives of all data at once (`ig.log_evidence`), else natural gradients, else Adam, and
    says so in `result.message`.

    **Objective.** Any function of (model, data) to be maximised; it is also given `key` and `num_data` if it
    accepts them, as `ig.elbo` does: `partial(ig.elbo, beta=0.5)`, `partial(ig.elbo, importance=10)`. One that does
    not take `num_data` sees all data at every step. `ig.collapsed_elbo`, `ig.log_evidence` and `ig.gplvm_elbo` do not
    look at q(u); it is set to its optimum at the end. `log_prior(model)` is added to the objective: a log density of
    the natural values of parameters with respect to the Lebesgue measure on these values, so the result is the maximum
    a posteriori of the natural values (no Jacobian of the unconstraining maps is added).

    **Steps.** `steps` gradient steps (by default 2000 with natural gradients, 5000 without) or L-BFGS iterations (1000)
    on minibatches of `batch_size` rows (by default 1024, or all data up to 2048), drawn without replacement in every
    epoch. From 80,000 rows on, the first third of L-BFGS on the collapsed bound (at most 300 steps) looks at 20,000
    random rows that stand for all, and its part of `history` is about right only.
    `optimiser` is any Optax transformation, by default Adam with `learning_rate` (0.01), which fades over the last
    third of the steps if the bound is noisy. Positive parameters move in their logarithm, inducing inputs in units
    of the data's spread. `gamma` is the length of natural-gradient steps: by default 1 for Gaussian noise and all data
    (and a q(u) that can be optimal: not diagonal, coupled where outputs mix latents), else 0.1, approached over the
    first 10 steps; where Adam fades, so does it, over the last ninth and to a tenth. Whoever gives a smaller
    `batch_size`, `optimiser`, `learning_rate`, `gamma` or `clamp` asks for gradient steps: `"auto"` then takes no
    L-BFGS.

    **What moves.** `freeze` names parts that stay: `lambda m: m.layers[0].features`, or a tuple of parts. `clamp` is
    the schedule of section 4.1: for so many steps only variational parameters (q, encoders and inducing features) move,
    while generative ones (priors, p(h), decoders and likelihood) are clamped; then all move together.

    **Start.** With `initialise`, a model whose q(u) is still the prior has its scales set from the data
    (`ig.initialise.scales`), where parameters hold their default values or are off by a factor of a thousand: labels of
    size 1e-12 or 1e12 need no care (where f is the logarithm of a scale, give the prior a constant mean). Other values
    are kept. `starts` > 1 also runs from randomly perturbed positive parameters and keeps the best.

    **Watching.** `held_out` data, or else the (smoothed) bound, decide which parameters were best; these are returned,
    also after Ctrl-C. `patience` stops after so many steps without improvement. `callback(progress)` is called with
    `progress.step`, `.bound`, `.seconds` and `.model`; if it returns True, training stops. Both look every 10 to 100
    steps, a hundredth of all (L-BFGS: after each), so that a smaller `patience` is that. A step that gives NaN or
    infinity is skipped and counted. `progress` shows a bar, labelled with the method or, if it is a text, with that.
    The same `key` gives the same result.

    >>> import jax.numpy as jnp
    >>> import inducing as ig
    >>> X = jnp.linspace(0.0, 1.0, 20)
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[::4, None]))
    >>> result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (X, jnp.sin(6 * X)), steps=10, progress=False)
    >>> result.method
    'collapsed'
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be an ig.Model, got {type(model).__name__}.")
    if not callable(objective):
        raise TypeError(f"objective must be callable as objective(model, data), got {type(objective).__name__}.")
    if freeze is not None and not callable(freeze):
        raise TypeError(
            "freeze must be a function of the model such as lambda m: m.layers[0].features, got "
            f"{type(freeze).__name__}."
        )
    if log_prior is not None and not callable(log_prior):
        raise TypeError(f"log_prior must be callable as log_prior(model), got {type(log_prior).__name__}.")
    if optimiser is not None and not callable(getattr(optimiser, "update", None)):
        raise TypeError(f"optimiser must be an Optax one such as optax.adam(0.01), got {optimiser!r}.")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable as callback(progress), got {type(callback).__name__}.")
    data = as_data(data, dtype_of(model))
    check(model)
    check_model_and_data(model, data)
    _check_numbers(steps, batch_size, learning_rate, gamma, clamp, starts, patience, len(data))
    batch_size, starts = None if batch_size is None else int(batch_size), int(starts)
    held = None if held_out is None else _checked_held_out(model, held_out, data)
    if key is not None:
        as_key(key)  # None stays: compiled code makes key 0 where it needs one

    parts = partition(model, freeze)
    rescaled = False
    if initialise:
        trained = {id(leaf) for leaf, (free, _) in zip(jax.tree.leaves(model), parts.slots, strict=True) if free}
        model, rescaled = automatic_scales(model, data, lambda leaf: id(leaf) in trained)
        parts = partition(model, freeze)
    options = {"optimiser": optimiser, "learning_rate": learning_rate, "gamma": gamma, "clamp": clamp or None}
    asked = tuple(name for name, value in options.items() if value is not None)
    plan = make_plan(model, data, parts, objective, log_prior, method, batch_size, gamma, asked)
    if plan.optimal_q:
        q = [(gp.mean, gp.root) for gp in sparse_gps(model)]
        parts = partition(model, lambda m: (freeze(m) if freeze else (), q))
    watch = {"progress": progress, "callback": callback, "patience": patience}
    steps = plan.default_steps if steps is None else int(steps)

    outcomes: list[_Outcome] = []
    reached: list[float] = []
    interrupted, failed = False, None
    with limited_threads():
        for start in range(starts):
            seed = key, own_array(start, np.int32)
            try:
                begin = parts if start == 0 else _perturbed(parts, start_key(*seed))
                outcome = _run(plan, model, begin, data, held, watch, steps, seed, optimiser, learning_rate, clamp)
            except FloatingPointError as error:  # the objective is no number at this start
                reached.append(np.nan)
                failed = failed or error
                continue
            except KeyboardInterrupt:  # before this start took a step
                if not outcomes:
                    raise
                interrupted = True
                break
            outcomes.append(outcome)
            reached.append(outcome.bound)
            if interrupted := outcome.reason == "interrupted":
                break
        if failed and not outcomes:
            raise failed
        best = max(outcomes, key=lambda o: o.bound if np.isfinite(o.bound) else -np.inf)
        finish = partial(_compiled(_finish), best.problem, best.free, plan.optimal_q, data if plan.optimal_q else None)
        try:
            trained, jitter = jax.block_until_ready(finish())
        except KeyboardInterrupt:  # the fit is at its end already, and not lost
            trained, jitter = jax.block_until_ready(finish())
    unbounded = _is_unbounded(plan, best, model.likelihood, data)
    message = _message(plan, best, reached, interrupted, data, float(jitter), rescaled, unbounded)
    return FitResult(tied_again(trained, parts), best.history, message, plan.method, best.bound)


def _run(
    plan: Plan, model: Model, parts, data: Data, held: Data | None, asked: dict, steps, seed, optimiser, rate, clamp
) -> _Outcome:
    problem = make_problem(model, parts, data)

    def build(free):
        finish = _compiled(_finish)  # which the end needs too
        return finish(problem, free, plan.optimal_q, data)[0] if plan.optimal_q else problem.model(free)

    def held_out(free):
        score = Objective(plan.objective.fn)
        return float(_compiled(_held_out_score)(problem, free, score, data, held, seed, plan.optimal_q))

    watch = _Watch(**asked, build=build, held_out=None if held is None else held_out)
    if not parts.free:
        history = History(np.zeros(0, int), np.zeros(0), np.zeros(0))
        rows = data if plan.batch_size is None else data.rows(shuffled(start_key(*seed), len(data))[: plan.batch_size])
        bound = _compiled(_value)(model, plan.objective, rows, seed, len(data)) if held is None else held_out([])
        return _Outcome(problem, [], history, float(bound), "nothing to train", 0)
    if plan.method == "collapsed":
        return _climb(_ascents(plan, problem, model, data, steps, seed), seed, watch, plan)
    if plan.method == "lbfgs":
        return _climb([(Ascent(problem, data, len(data), plan.objective), steps)], seed, watch, plan)
    where = problem.positions()
    adam = _adam(RATE if rate is None else float(rate)) if optimiser is None else optimiser
    loop = Loop(problem, data, plan.objective, adam, plan.natural, plan.batch_size, _per_datum(where))
    pace = _pace(plan, parts, where, model, clamp, steps, plan.noisy and optimiser is None)
    return _walk(loop, pace, steps, seed, watch, plan)


def _per_datum(where: Any) -> tuple[int, ...]:
    """The positions of arrays whose rows belong to single data."""
    nodes = jax.tree.leaves(where, is_leaf=lambda v: isinstance(v, PerDatum))
    return tuple(i for node in nodes if isinstance(node, PerDatum) for i in jax.tree.leaves(node))


def _value(model, objective, data, seed, num_data):
    return objective(model, data, start_key(*seed), num_data)


def _held_out_score(problem, free, score, data, held, seed, optimal_q):
    model, key = problem.model(free), start_key(*seed)
    if optimal_q:
        return elbo(optimal_q(model, data), held, key=key, num_data=len(data))
    return score(model, held, key, len(data))


def _ascents(
    plan: Plan, problem: Problem, model: Model, data: Data, steps: int, seed: _Seed
) -> list[tuple[Ascent, int]]:
    """Where L-BFGS looks, and until which step: at all data, but if these are many at a sample first."""

    def on(rows: Data, of: Callable[[Callable], Callable]) -> Ascent:
        orders = (Objective(of(bound), plan.objective.log_prior) for bound in orders_of_sums(model, rows))
        return Ascent(problem, rows, len(data), *orders)

    everything = on(data, lambda bound: bound), steps
    if len(data) < MANY or steps < 3:
        return [everything]
    sample = data.rows(shuffled(start_key(*seed), len(data))[:SAMPLE])
    return [(on(sample, lambda bound: partial(bound_of_sample, bound=bound)), min(FIRST, steps // 3)), everything]


def _climb(ascents: list[tuple[Ascent, int]], seed: _Seed, watch: _Watch, plan: Plan) -> _Outcome:
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
        reason = "interrupted"
    finally:
        history = monitor.close(reason)
    best = free if monitor.best is None else monitor.best
    sampled = monitor.step if sampled is None else sampled
    return _Outcome(problem, best, history, monitor.best_score, reason, failures, sampled)


def _start(problem: Problem) -> list[Array]:
    """The arrays that move, by NumPy: nothing is compiled for them."""
    arrays = jax.tree.map(np.asarray, eqx.filter(problem, eqx.is_array))
    return [own_array(start, f.dtype) for start, f in zip(arrays.free, problem.partition.free, strict=True)]


def _walk(loop: Loop, pace: Pace, steps: int, seed: _Seed, watch: _Watch, plan: Plan) -> _Outcome:
    """Gradient steps. The parameters are judged at steps that depend on nothing but `steps`: same key, same result."""
    advance = compiled_steps()
    state = _compiled(initial_state)(loop, *seed)
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
            new, values = jax.block_until_ready(advance(loop, pace, state, own_array(n, np.int32)))
            elapsed = time.perf_counter() - began
            values = np.asarray(values, float)[:n]
            stop = None
            if not plan.noisy and monitor.step % look == 0:  # the value before the first step is that of `state`
                stop = monitor.judge(state.free, float(values[0]))
            first = monitor.step == 0
            monitor.record(values)
            state, failures = new, int(new.failures)
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
                _, values = advance(loop, pace, state, own_array(1, np.int32))
                monitor.judge(state.free, float(np.asarray(values)[0]))
    except KeyboardInterrupt:
        reason = "interrupted"
    finally:
        history = monitor.close(reason)
    best = state.free if monitor.best is None else monitor.best
    return _Outcome(loop.problem, best, history, monitor.best_score, reason, failures)


@cache
def _compiled(fn: Callable) -> Callable:
    return jit(fn)


def _finish(problem: Problem, free: list[Array], optimal_q: Callable | None, data: Data | None) -> tuple[Any, Array]:
    """The trained model, with its optimal q(u) if there is a way to find it, and the largest relative jitter in it."""
    model = problem.model(free)
    model = model if optimal_q is None else optimal_q(model, data)
    used = [jnp.max(layer.Kuu().relative_jitter) for layer in sparse_gps(model)]
    return model, jnp.max(jnp.stack(used)) if used else jnp.zeros(())


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
    numbers = (own_array(v, dtype) for v in (start, plan.gamma, ramp, fade, end))
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


def _perturbed(parts: Partition, key: Array) -> Partition:
    keys = jax.random.split(key, len(parts.free))
    free = [
        f + SPREAD * jax.random.normal(k, f.shape, f.dtype) if c is POSITIVE else f
        for f, c, k in zip(parts.free, parts.constraints, keys, strict=True)
    ]
    return Partition(free, parts.rest, parts.treedef, parts.slots, parts.constraints)


def _message(
    plan: Plan,
    best: _Outcome,
    reached: list[float],
    interrupted: bool,
    data: Data,
    jitter: float,
    rescaled: bool,
    unbounded: bool,
) -> str:
    says = [f"{plan.method} ({plan.why})"]
    rows = "all data" if plan.batch_size is None else f"minibatches of {plan.batch_size}"
    rows += f" (the first {best.sampled} on a sample of {SAMPLE})" if best.sampled else ""
    says.append(f"{len(best.history.bound)} steps on {rows}: {best.reason}")
    says.append(f"bound {best.bound:.6g}")
    if len(reached) > 1:
        says.append(f"best of {len(reached)} starts, which reached {', '.join(f'{bound:.6g}' for bound in reached)}")
    if interrupted and best.reason != "interrupted":
        says.append("interrupted in a later start")
    if rescaled:
        says.append("starting scales set from the data")
    if best.failures:
        cause = " (labels without noise, or far from the prior's mean, which then needs training: ig.means.Constant())"
        hint = cause if plan.method == "collapsed" else ""
        says.append(f"{best.failures} steps were NaN or infinite and skipped{hint}")
    if unbounded:
        says.append(
            "all labels are equal, so that the bound grows without end as the noise goes to 0: freeze the likelihood "
            "or pass a log_prior of it"
        )
    if data.num_missing:
        says.append(f"{data.num_missing} missing label{'s' if data.num_missing > 1 else ''}")
    says.append(f"largest relative jitter {jitter:.0e}")
    return "; ".join(says) + "."


def _is_unbounded(plan: Plan, best: _Outcome, likelihood: AbstractLikelihood, data: Data) -> bool:
    """Whether a density can be as high as it likes at the labels: all are equal, and its width trains."""
    trains = bool(jax.tree.leaves(best.problem.positions().likelihood)) and plan.objective.log_prior is None
    if not trains or any(support.kind == "count" for support in likelihood.supports):
        return False
    y, mask = np.asarray(data.y), np.asarray(data.mask)
    lowest, highest = np.where(mask, y, np.inf).min(axis=0), np.where(mask, y, -np.inf).max(axis=0)
    return bool((lowest >= highest).all())


def _checked_held_out(model: Model, held_out: Any, data: Data) -> Data:
    try:
        held = as_data(held_out, dtype_of(model))
    except (TypeError, ValueError) as error:
        raise type(error)(f"held_out: {error}") from error
    kinds = {type(v) for v in jax.tree.leaves(model, is_leaf=lambda v: isinstance(v, PerDatum | PerDatumValues))}
    if PerDatum in kinds:
        raise ValueError(
            "held_out needs q(h) of new data, but an encoder is PerDatum, with Gaussians of the training data alone; "
            "use ig.layers.Amortised, or leave held_out out."
        )
    if PerDatumValues in kinds and (shared := np.intersect1d(held.index, data.index)).size:
        raise ValueError(
            f"held_out has rows of index {shared[0]}, a training datum, whose PerDatum value is not theirs; "
            "pass ig.Data(X, y, index=...) with the rows of PerDatum values that belong to held_out."
        )
    try:
        check_model_and_data(model, held)
    except ValueError as error:
        raise ValueError(f"held_out: {error}") from error
    return held


def _check_numbers(steps, batch_size, learning_rate, gamma, clamp, starts, patience, N) -> None:
    def whole(name, value, least, most=None):
        bounds = f"at least {least}" if most is None else f"from {least} to the number of rows, {most}"
        within = _is_number(value) and value % 1 == 0 and least <= value and (most is None or value <= most)
        if not within:
            raise ValueError(f"{name} must be a whole number, {bounds}; got {value!r}.")

    for name, value, *bounds in (("steps", steps, 0), ("batch_size", batch_size, 1, N), ("patience", patience, 1)):
        if value is not None:
            whole(name, value, *bounds)
    whole("clamp", clamp, 0)
    whole("starts", starts, 1)
    if callable(learning_rate):
        raise TypeError("learning_rate must be a number; pass a schedule as optimiser=optax.adam(schedule).")
    if learning_rate is not None and not (_is_number(learning_rate) and 0 < learning_rate < np.inf):
        raise ValueError(f"learning_rate must be a number greater than 0, got {learning_rate!r}.")
    if gamma is not None and not (_is_number(gamma) and 0 < gamma <= 1):
        raise ValueError(f"gamma, the length of natural-gradient steps, must be in (0, 1], got {gamma!r}.")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"
