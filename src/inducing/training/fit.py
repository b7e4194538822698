"""`fit`: train a model on data."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from inducing._xla import compiled, limited_threads, own_array
from inducing.bounds.collapsed import collapse
from inducing.bounds.elbo import elbo
from inducing.checks import check_model, check_model_and_data
from inducing.data import Data, as_data
from inducing.layers.sparse_gp import sparse_gps
from inducing.model import Model
from inducing.parameters import POSITIVE, Partition, as_key, check, dtype_of, partition
from inducing.training.arguments import check_functions, check_numbers, checked_held_out
from inducing.training.climb import ascents, climb
from inducing.training.interrupt import deferred_interrupt
from inducing.training.lbfgs import Ascent
from inducing.training.monitor import History
from inducing.training.outcome import Outcome, Watch, is_unbounded, message, noise_share, took_for_noise
from inducing.training.plan import Plan, make_plan
from inducing.training.problem import Objective, Problem, make_problem, tied_again
from inducing.training.scales import automatic_scales, with_shorter_lengthscales
from inducing.training.stochastic import shuffled, start_key
from inducing.training.walk import walk

SPREAD = 1.5  # of the logarithms of positive parameters between starts


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
    >>> result
    FitResult(adam (as asked); 5 steps on all data: all steps done; bound ...; 2 missing labels; largest ... 1e-08.)
    """

    model: Any
    history: History
    message: str
    method: str
    bound: float

    def __repr__(self) -> str:
        return f"FitResult({self.message})"


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
    first 10 steps; where Adam fades, so does it, over the last ninth and to a tenth. Where noise is not
    Gaussian, steps that would move w by more than 3 + |w|/10 are shortened. Whoever gives a smaller `batch_size`,
    `optimiser`, `learning_rate`, `gamma` or `clamp` asks for gradient steps: `"auto"` then takes no L-BFGS.

    **What moves.** `freeze` names parts that stay: `lambda m: m.layers[0].features`, or a tuple of parts. `clamp` is
    the schedule of section 4.1: for so many steps only variational parameters (q, encoders and inducing features) move,
    while generative ones (priors, p(h), decoders and likelihood) are clamped; then all move together.

    **Start.** With `initialise`, a model whose q(u) is still the prior has its scales set from the data
    (`ig.initialise.scales`), where parameters hold their default values or are off by a factor of a thousand: labels of
    size 1e-12 or 1e12 need no care (where f is the logarithm of a scale, give the prior a constant mean). Other values
    are kept. `starts` > 1 also runs from randomly perturbed positive parameters and keeps the best. Where the collapsed
    bound or the evidence ends with nearly all of the labels as noise, one more start has lengthscales as short as the
    features resolve: labels may vary faster than the first ones let them.

    **Watching.** `held_out` data, or else the (smoothed) bound, decide which parameters were best; these are returned,
    also after Ctrl-C (a first one waits for the steps under way). `patience` stops after so many steps without
    improvement. `callback(progress)` is called with `progress.step`, `.bound`, `.seconds` and `.model`; if it returns
    True, training stops. Both look every 10 to 100 steps, a hundredth of all (L-BFGS: after each), so that a smaller
    `patience` is that. A step that gives NaN or infinity is skipped and counted. `progress` shows a bar, labelled with
    the method or, if it is a text, with that.
    The same `key` gives the same result.

    >>> import jax.numpy as jnp
    >>> import inducing as ig
    >>> X = jnp.linspace(0.0, 1.0, 20)
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[::4, None]))
    >>> result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (X, jnp.sin(6 * X)), steps=10, progress=False)
    >>> result.method
    'collapsed'
    """
    check_model(model)
    check_functions(objective, freeze, log_prior, optimiser, callback)
    data = as_data(data, dtype_of(model))
    check(model)
    check_model_and_data(model, data)
    check_numbers(steps, batch_size, learning_rate, gamma, clamp, starts, patience, len(data))
    batch_size, starts = None if batch_size is None else int(batch_size), int(starts)
    held = None if held_out is None else checked_held_out(model, held_out, data)
    if key is not None:
        as_key(key)  # None stays: compiled code makes key 0 where it needs one

    parts = partition(model, freeze)
    rescaled = False
    if initialise:
        model, rescaled = automatic_scales(model, data, _trained(model, parts))
        parts = partition(model, freeze)
    options = {"optimiser": optimiser, "learning_rate": learning_rate, "gamma": gamma, "clamp": clamp or None}
    asked = tuple(name for name, value in options.items() if value is not None)
    plan = make_plan(model, data, parts, objective, log_prior, method, batch_size, gamma, asked)
    parts = _partition(model, freeze, plan)
    steps = plan.default_steps if steps is None else int(steps)

    outcomes: list[Outcome] = []
    reached: list[float] = []
    interrupted, again, failed = False, False, None
    with limited_threads(), deferred_interrupt() as look:
        watch = {"progress": progress, "callback": callback, "patience": patience, "look": look}
        for start in range(starts + 1):
            seed, own = (key, own_array(start, np.int32)), model
            if start == starts:
                own = _one_more(plan, model, parts, outcomes, data) if initialise else None
                if own is None:
                    break
                again = True
            try:
                begin = parts if own is model else _partition(own, freeze, plan)
                begin = begin if start in (0, starts) else _perturbed(begin, start_key(*seed))
                outcome = _run(plan, own, begin, data, held, watch, steps, seed, optimiser, learning_rate, clamp)
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
        best = _best(outcomes)
        finish = partial(_finisher(plan), best.problem, best.free, plan.optimal_q, data if plan.optimal_q else None)
        try:
            trained, jitter = jax.block_until_ready(finish())
        except KeyboardInterrupt:  # the fit is at its end already, and not lost
            trained, jitter = jax.block_until_ready(finish())
    unbounded = is_unbounded(plan, best, model.likelihood, data)
    noise = noise_share(trained.likelihood, data)
    said = message(plan, best, reached, interrupted, data, float(jitter), rescaled, again, noise, unbounded)
    return FitResult(tied_again(trained, parts), best.history, said, plan.method, best.bound)


def _trained(model: Model, parts: Partition) -> Callable[[Array], bool]:
    """Whether an array of the model is among those that move."""
    ids = {id(leaf) for leaf, (free, _) in zip(jax.tree.leaves(model), parts.slots, strict=True) if free}
    return lambda leaf: id(leaf) in ids


def _partition(model: Model, freeze: Callable | None, plan: Plan) -> Partition:
    """What moves, and what stays: what the user freezes, and q(u) where its optimum is found at the end."""
    if not plan.optimal_q:
        return partition(model, freeze)
    q = [(gp.mean, gp.root) for gp in sparse_gps(model)]
    return partition(model, lambda m: (freeze(m) if freeze else (), q))


def _best(outcomes: list[Outcome]) -> Outcome:
    return max(outcomes, key=lambda o: o.bound if np.isfinite(o.bound) else -np.inf)


def _one_more(plan: Plan, model: Model, parts: Partition, outcomes: list[Outcome], data: Data) -> Model | None:
    """Where to start once more, if the starts before took the labels for noise: with shorter lengthscales."""
    if plan.optimal_q is not collapse or plan.objective.log_prior is not None or not outcomes:
        return None
    if not took_for_noise(_best(outcomes), data):
        return None
    return with_shorter_lengthscales(model, data, _trained(model, parts))


def _run(
    plan: Plan, model: Model, parts, data: Data, held: Data | None, asked: dict, steps, seed, optimiser, rate, clamp
) -> Outcome:
    problem = make_problem(model, parts, data)

    def build(free):
        return _finisher(plan)(problem, free, plan.optimal_q, data)[0] if plan.optimal_q else problem.model(free)

    def held_out(free):
        score = Objective(plan.objective.fn)
        return float(compiled(_held_out_score)(problem, free, score, data, held, seed, plan.optimal_q))

    watch = Watch(**asked, build=build, held_out=None if held is None else held_out)
    if not parts.free:
        history = History(np.zeros(0, int), np.zeros(0), np.zeros(0))
        rows = data if plan.batch_size is None else data.rows(shuffled(start_key(*seed), len(data))[: plan.batch_size])
        bound = compiled(_value)(model, plan.objective, rows, seed, len(data)) if held is None else held_out([])
        return Outcome(problem, [], history, float(bound), "nothing to train", 0)
    if plan.method == "collapsed":
        return climb(ascents(plan, problem, model, data, steps, seed), seed, watch, plan)
    if plan.method == "lbfgs":
        return climb([(Ascent(problem, data, len(data), plan.objective), steps)], seed, watch, plan)
    return walk(plan, problem, model, data, steps, seed, watch, optimiser, rate, clamp)


def _value(model, objective, data, seed, num_data):
    return objective(model, data, start_key(*seed), num_data)


def _held_out_score(problem, free, score, data, held, seed, optimal_q):
    model, key = problem.model(free), start_key(*seed)
    if optimal_q:
        return elbo(optimal_q(model, data), held, key=key, num_data=len(data))
    return score(model, held, key, len(data))


def _finisher(plan: Plan) -> Callable:
    return compiled(_finish, once=plan.optimal_q is None)


def _finish(problem: Problem, free: list[Array], optimal_q: Callable | None, data: Data | None) -> tuple[Any, Array]:
    """The trained model, with its optimal q(u) if there is a way to find it, and the largest relative jitter in it."""
    model = problem.model(free)
    model = model if optimal_q is None else optimal_q(model, data)
    used = [jnp.max(layer.Kuu().relative_jitter) for layer in sparse_gps(model)]
    return model, jnp.max(jnp.stack(used)) if used else jnp.zeros(())


def _perturbed(parts: Partition, key: Array) -> Partition:
    keys = jax.random.split(key, len(parts.free))
    free = [
        f + SPREAD * jax.random.normal(k, f.shape, f.dtype) if c is POSITIVE else f
        for f, c, k in zip(parts.free, parts.constraints, keys, strict=True)
    ]
    return Partition(free, parts.rest, parts.treedef, parts.slots, parts.constraints)
