"""`fit`: train a model on data."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from inducing._xla import compiled, limited_threads, own_array, process
from inducing.bounds.elbo import elbo
from inducing.bounds.objective import Target
from inducing.bounds.passes import Counted, Pass, model_of_counted
from inducing.data import Data
from inducing.model import Model
from inducing.parameters import POSITIVE, Partition, dtype_of, partition
from inducing.streams.agreement import Agreement
from inducing.training.arguments import Arguments, checked
from inducing.training.ascent_by_passes import sums_at
from inducing.training.checkpoint import Checkpoint, opened
from inducing.training.compiled_steps import shuffled, start_key
from inducing.training.gradient_steps import run_gradient_steps
from inducing.training.interrupt import deferred_interrupt
from inducing.training.lbfgs import run_lbfgs
from inducing.training.message import Facts, is_unbounded, message
from inducing.training.monitor import TIME, Clock, History, Outcome, Watch
from inducing.training.noise import is_no_better_than_constant, noise_share
from inducing.training.plan import LBFGS, Plan, make_plan
from inducing.training.problem import Problem, free_positions, make_problem, restore_ties
from inducing.training.run import Run, Seed
from inducing.training.same_call import check_same_call
from inducing.training.scales import automatic_scales, with_shorter_lengthscales

SPREAD = 1.5  # the standard deviation of the perturbations of the logarithms of positive parameters


class FitResult(NamedTuple):
    """The result of `ig.fit`.

    Attributes:
        model: the trained model.
        history: `history.step`, `history.bound` and `history.seconds`, with one entry for each step.
        message: a summary of the fit in one line.
        method: the method that was used.
        bound: the objective of the trained model, smoothed if it is noisy; or its score on held-out data, if there are
            any.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> data = ([0.0, 0.3, 0.6, 1.0], [0.5, float("nan"), float("nan"), 0.2])
        >>> result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), data, method="adam", steps=5, progress=False)
        >>> result.message
        'adam (as asked); 5 steps on all data: all steps done; bound ...; 2 missing labels; ... jitter 1e-08.'
        >>> result.history.bound.shape, bool(abs(result.bound - ig.elbo(result.model, data)) < 1e-9)
        ((5,), True)
        >>> result
        FitResult(adam (as asked); 5 steps on all data: all steps done; bound ...; 2 missing labels; ... 1e-08.)
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
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: int | None = None,
    seconds: int | float | None = None,
) -> FitResult:
    """Train a model on data by maximising an objective.

    The given model is not changed. `fit` returns the best parameters that it has found: those with the highest score on
    the `held_out` data or, without such data, with the highest bound (smoothed if it is noisy). After Ctrl-C it
    finishes the steps in progress and returns the best parameters so far. A step that gives NaN or infinity is skipped;
    the message says how many were.

    In float32 the result is that of float64 up to rounding errors, with these limits: `Kuu` has a jitter of 1e-5, noise
    below a few thousandths of the signal cannot be learnt, and where `Kuu` is badly conditioned the bound is accurate
    to about 0.3 nats per label. If float32 cannot tell the values of a column apart, there is a warning or an error. If
    in doubt, use float64.

    With a `checkpoint`, a fit that was killed or interrupted can be resumed by the same call. It then gives the same
    result as without the interruption: parameters, bounds and message are equal bit for bit on the same machine, with
    the same versions and number of threads, unless the fit is ended by its time limit `seconds`. Only the times differ.
    If the fit has already ended, the call returns its result. SIGTERM writes a checkpoint before it ends the process.
    Calls are the same if the model, the data and all arguments except `progress`, `seconds` and `checkpoint_every` are
    the same. Arrays are compared by their values. Functions and Optax optimisers are compared by their names, so do not
    change what they do. Callbacks are called again for steps after the last checkpoint.

    If the trained model is hardly better than a constant function (by less than 0.05 nats per label, with the trained
    likelihood), the labels may vary faster than the initial lengthscales allow. For models of one layer, `fit` then
    trains again from lengthscales as short as the features can resolve, and keeps the better result.

    Args:
        model: the model to train.
        data: (X, y) or `ig.Data`; or an `ig.Stream` of data larger than memory. For a stream, starting values come
            from a sample of it, minibatches are read from it (default: 1024 rows), and the collapsed bound takes one
            pass over it for a value and two with the gradient. With several devices or processes, each works on its
            share of the rows; see `ig.distributed.initialize`.
        objective: a function of (model, data) to maximise. It also receives `key` and `num_data` if it accepts them, as
            `ig.elbo` does: `partial(ig.elbo, beta=0.5)`, `partial(ig.elbo, importance=10)`. An objective that does not
            accept `num_data` sees all data at every step. `ig.collapsed_elbo`, `ig.log_evidence` and `ig.gplvm_elbo` do
            not depend on q(u), which is set to its optimum at the end.
        method: how to train.

            - `"adam"`: gradient steps for all parameters.
            - `"natgrad"`: natural-gradient steps for q(u) of the last SparseGP layer, gradient steps for the rest.
            - `"natgrad-all"`: the same with natural-gradient steps for q(u) of all SparseGP layers.
            - `"collapsed"`: L-BFGS on the collapsed bound, for one SparseGP layer with Gaussian noise. q(u) is set to
              its optimum at the end. From 80,000 rows on, the first third of the iterations (at most 300) uses 20,000
              random rows in place of all, and that part of `history` is approximate.
            - `"lbfgs"`: L-BFGS on any objective without noise.
            - `"auto"`: the collapsed bound if it exists and is affordable, L-BFGS for objectives of all data at once
              (`ig.log_evidence`), else natural gradients, else Adam. `result.message` says which. A `batch_size`
              smaller than the data, `optimiser`, `learning_rate`, `gamma` or `clamp` ask for gradient steps, so that
              L-BFGS is not used.
        steps: the number of gradient steps (default: 2000 with natural gradients, 5000 without) or of L-BFGS iterations
            (default: 1000).
        batch_size: the number of rows in a minibatch (default: 1024, or all data up to 2048 rows). Minibatches are
            drawn without replacement in every epoch.
        optimiser: any Optax optimiser (default: Adam). Positive parameters move in their logarithm, inducing inputs in
            units of the spread of the data.
        learning_rate: the learning rate of the default Adam (default: 0.01). If the bound is noisy, it decreases over
            the last third of the steps.
        gamma: the length of natural-gradient steps, in (0, 1]. The default is 1 for Gaussian noise and all data, if
            q(u) can be optimal: not diagonal, and coupled if outputs mix latents. Otherwise it is 0.1, approached over
            the first 10 steps. If the learning rate decreases, gamma decreases to a tenth over the last ninth of the
            steps. Unless the noise is Gaussian, steps that would move w by more than 3 + |w|/10 are shortened.
        freeze: a function of the model that returns the parts to keep fixed, such as `lambda m: m.layers[0].features`,
            or a tuple of parts.
        clamp: the number of initial steps in which only variational parameters move (q, encoders and inducing
            features), while generative ones (priors, p(h), decoders and likelihood) are clamped. Afterwards all of them
            move. See section 4.1.
        log_prior: a function of the model whose value is added to the objective: the log density of parameters in their
            natural values, with respect to Lebesgue measure. The result is the maximum a posteriori estimate of the
            natural values; no Jacobian of the unconstraining maps is added.
        initialise: whether to set scales from the data (`ig.initialise.scales`) in a model whose q(u) is still the
            prior. Only parameters that have their default value, or are off by a factor of a thousand, change. Labels
            of size 1e-12 or 1e12 then need not be scaled. If f is the logarithm of a scale, give the prior a constant
            mean for such labels.
        starts: the number of starts. All but the first start have randomly perturbed positive parameters. The best
            result is kept.
        held_out: more data, like `data`. The score on them decides which parameters are best.
        patience: the number of steps without improvement after which to stop. Parameters are judged about 100 times
            in a run, every 10 to 100 steps (L-BFGS: after each iteration), and patience is rounded up to a multiple of
            that. By default, training stops when the bound has levelled off, if it is in nats, like `ig.elbo`, and no
            `optimiser` is given. A bound without noise has levelled off if the last quarter of the steps (at least
            3 / `learning_rate` and at least 30; L-BFGS: at least 40) raised it by less than 2e-4 nats per datum. A
            noisy bound has levelled off if the last half of the steps (at least 1000) raised it by less than 2e-3 nats
            per datum, even with two standard errors added. Then the learning rate starts to decrease, and training ends
            when this is done.
        callback: a function that receives `progress`, with `progress.step`, `.bound`, `.seconds`, `.bounds` (of all
            steps so far) and `.model`, whenever parameters are judged. If it returns True, or the reason as a text,
            training stops.
        progress: whether to show a progress bar, labelled with the method; "auto" for one in a terminal, of fits that
            take over five seconds. Another string is used as its label.
        key: a JAX random key (default: key 0). The same key gives the same result.
        checkpoint: a folder for everything needed to resume the fit. It is created if it does not exist.
        checkpoint_every: the number of steps (of L-BFGS: values of the objective) between two checkpoints, rounded up
            to when parameters are judged (default: about 30 seconds).
        seconds: the time limit, compilation included. It is checked between steps, or about twice a second if these
            are short. Several starts share it equally. A resumed fit has the time that is left, and a call with a
            higher limit continues a fit that ran out of time.

    Returns:
        A `FitResult` with the trained model, the history of the bound, and a message on what happened.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument is out of range, if arguments contradict each other, if the data do not fit the
            model, or if `checkpoint` holds another fit.
        OSError: if a checkpoint cannot be written.
        FloatingPointError: if L-BFGS finds an objective or gradient that is not finite at every start.

    Examples:
        >>> import jax.numpy as jnp
        >>> import inducing as ig
        >>> X = jnp.linspace(0.0, 1.0, 20)
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[::4, None]))
        >>> result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (X, jnp.sin(6 * X)), steps=10, progress=False)
        >>> result.method
        'collapsed'
    """
    given = checked(
        Arguments(
            model=model,
            data=data,
            objective=objective,
            method=method,
            steps=steps,
            batch_size=batch_size,
            optimiser=optimiser,
            learning_rate=learning_rate,
            gamma=gamma,
            freeze=freeze,
            clamp=clamp,
            log_prior=log_prior,
            initialise=initialise,
            starts=starts,
            held_out=held_out,
            patience=patience,
            callback=callback,
            progress=progress,
            key=key,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            seconds=seconds,
        )
    )
    check_same_call(given)
    job, clock = _plan(given), Clock()
    checkpoint_of_fit = contextlib.nullcontext() if given.checkpoint is None else opened(given, clock)
    with limited_threads(), deferred_interrupt() as look, checkpoint_of_fit as saved:
        return _finish(job, _run(job, _Watcher(look, clock, saved)))


class _Job(NamedTuple):
    """What to do. `model` has its starting scales, and `rescaled` says whether these differ from the given model's."""

    given: Arguments
    model: Model
    rescaled: bool
    plan: Plan
    parts: Partition


class _Watcher(NamedTuple):
    """What all starts share. `look` raises KeyboardInterrupt after Ctrl-C."""

    look: Callable[[], None]
    clock: Clock
    checkpoint: Checkpoint | None


def _plan(given: Arguments) -> _Job:
    """Set starting scales, choose a method, and split the model into what moves and what does not."""
    model, rescaled, parts = given.model, False, partition(given.model, given.freeze)
    if given.initialise:
        model, rescaled = automatic_scales(model, given.data, _trained(model, parts))
        parts = partition(model, given.freeze) if rescaled else parts
    plan = make_plan(given, model, parts)
    return _Job(given, model, rescaled, plan, _split(model, given, plan))


def _trained(model: Model, parts: Partition) -> Callable[[Array], bool]:
    """Whether an array of the model is trained."""
    where = free_positions(model, parts)
    return lambda leaf: id(leaf) in where


def _split(model: Model, given: Arguments, plan: Plan) -> Partition:
    """The model split into what moves and what does not. If q(u) is set to its optimum at the end, it is frozen."""
    if plan.optimal_q is None:
        return partition(model, given.freeze)
    q = [layer.gaussians() for layer in model.layers]
    return partition(model, lambda m: (given.freeze(m) if given.freeze else (), q))


@dataclasses.dataclass
class _Starts:
    """The starts of a fit and how they ended.

    Attributes:
        outcomes: of the starts that took a step.
        reached: the bound that each start reached, NaN for one that failed.
        failed: the error of the first start that failed.
        interrupted: whether Ctrl-C ended the last start.
        restarted: whether there was one more start, with shorter lengthscales.
    """

    outcomes: list[Outcome] = dataclasses.field(default_factory=list)
    reached: list[float] = dataclasses.field(default_factory=list)
    failed: FloatingPointError | None = None
    interrupted: bool = False
    restarted: bool = False

    @property
    def best(self) -> Outcome:
        return max(self.outcomes, key=lambda o: o.bound if np.isfinite(o.bound) else -np.inf)


def _run(job: _Job, watcher: _Watcher) -> _Starts:
    """Run all starts, and one more with shorter lengthscales if the best start explains the labels by noise alone."""
    starts = _Starts()
    for number in range(job.given.starts):
        if not starts.interrupted:
            _attempt(job, starts, number, job.model, watcher)
    shorter = None if starts.interrupted or not starts.outcomes else _shorter(job, starts.best)
    if shorter is not None:
        starts.restarted = True
        _attempt(job, starts, job.given.starts, shorter, watcher)
    if starts.failed and not starts.outcomes:
        raise starts.failed
    return starts


def _attempt(job: _Job, starts: _Starts, number: int, model: Model, watcher: _Watcher) -> None:
    """Run one start at `model`, perturbed for all starts but the first and the one with shorter lengthscales."""
    seed = job.given.key, own_array(number, np.int32)
    try:
        parts = job.parts if model is job.model else _split(model, job.given, job.plan)
        if 0 < number < job.given.starts:
            parts = _perturbed(parts, start_key(*seed))
        outcome = _one_start(job, model, parts, seed, watcher)
    except FloatingPointError as error:  # the objective is not finite at this start
        starts.reached.append(np.nan)
        starts.failed = starts.failed or error
    except KeyboardInterrupt:  # before the first step of this start
        if not starts.outcomes:
            raise
        starts.interrupted = True
    else:
        starts.outcomes.append(outcome)
        starts.reached.append(outcome.bound)
        starts.interrupted = outcome.reason == "interrupted"


def _perturbed(parts: Partition, key: Array) -> Partition:
    keys = jax.random.split(key, len(parts.free))
    free = [
        f + SPREAD * jax.random.normal(k, f.shape, f.dtype) if c is POSITIVE else f
        for f, c, k in zip(parts.free, parts.constraints, keys, strict=True)
    ]
    return eqx.tree_at(lambda p: p.free, parts, free)


def _shorter(job: _Job, best: Outcome) -> Model | None:
    """The model with shorter lengthscales, if the best start explains the labels by noise alone."""
    given, plan, model = job.given, job.plan, job.model
    if not given.initialise or given.log_prior is not None or not plan.objective.is_in_nats or len(model.layers) > 1:
        return None
    shorter = with_shorter_lengthscales(model, given.data, _trained(model, job.parts))
    if shorter is None:
        return None
    noise_alone = is_no_better_than_constant(best, plan.noisy, model.likelihood, given.data, given.num_data)
    return shorter if noise_alone else None


def _one_start(job: _Job, model: Model, parts: Partition, seed: Seed, watcher: _Watcher) -> Outcome:
    given, plan = job.given, job.plan
    data, held = given.data, given.held_out
    problem = make_problem(model, parts, data)
    look, clock, checkpoint = watcher
    number = int(seed[1])
    share = min(1.0, (number + 1) / given.starts)  # all starts have equal shares of the time
    deadline = np.inf if given.seconds is None else given.seconds * share
    agreement = Agreement(look, lambda: clock.now() >= deadline)
    passes = Pass(given.stream, data, agreement) if given.stream is not None and plan.method == "collapsed" else None

    def build(free):
        return _build_model(plan, data, passes, problem, free)[0] if plan.optimal_q else problem.model(free)

    def held_out(free):
        score, optimal = Target(plan.objective.fn), _optimal_q(plan, data, passes, problem, free)
        return float(compiled(_held_out_score)(problem, free, score, given.num_data, held, seed, *optimal))

    if not parts.free:
        history = History(np.zeros(0, int), np.zeros(0), np.zeros(0))
        bound = _bound_at(job, model, seed) if held is None else held_out([])
        return Outcome(problem, [], history, bound, "nothing to train", 0)
    if checkpoint is not None and (done := checkpoint.begin(number, problem)) is not None:
        return done
    score = None if held is None else held_out
    progress = given.progress if process()[0] == 0 else False
    levels_off = given.num_data if plan.levels_off else None
    watch = Watch(progress, given.callback, given.patience, agreement, build, score, clock, deadline, levels_off)
    run = Run(given, plan, model, problem, seed, watch, checkpoint, passes)
    outcome = run_lbfgs(run) if plan.method in LBFGS else run_gradient_steps(run)
    if checkpoint is not None and outcome.reason not in ("interrupted", TIME):  # these can be resumed later
        checkpoint.end(outcome)
    return outcome


def _bound_at(job: _Job, model: Model, seed: Seed) -> float:
    """The objective of a model without trained parameters. If training would use minibatches, it is that of one."""
    given, plan, data = job.given, job.plan, job.given.data
    if plan.batch_size is not None and given.stream is None:
        data = data.rows(shuffled(start_key(*seed), len(data))[: plan.batch_size])
    return float(compiled(_value)(model, plan.objective, data, seed, given.num_data))


def _value(model: Model, objective: Target, data: Data, seed: Seed, num_data: int) -> Array:
    return objective(model, data, start_key(*seed), num_data)


def _optimal_q(plan: Plan, data: Data, passes: Pass | None, problem: Problem, free: list[Array]) -> tuple[Any, Any]:
    """A function that sets q(u) to its optimum, and the data or sums over them; two Nones if the plan has none."""
    if plan.optimal_q is None:
        return None, None
    if passes is None:
        return plan.optimal_q, data
    return model_of_counted, passes.sum(sums_at, problem, free)


def _held_out_score(problem, free, score, num_data, held, seed, optimal_q, data) -> Array:
    model, key = problem.model(free), start_key(*seed)
    if optimal_q:
        return elbo.evaluate(optimal_q(model, data), held, key=key, num_data=num_data)
    return score(model, held, key, num_data)


def _finish(job: _Job, starts: _Starts) -> FitResult:
    """Build the best model and say what happened."""
    plan, data, best = job.plan, job.given.data, starts.best
    stream = job.given.stream
    passes = Pass(stream, data) if stream is not None and plan.method == "collapsed" else None
    build = partial(_build_model, plan, data, passes, best.problem, best.free)
    try:
        trained, jitter = jax.block_until_ready(build())
    except KeyboardInterrupt:  # training is done, so keep its result
        trained, jitter = jax.block_until_ready(build())
    facts = Facts(
        plan=plan,
        best=best,
        reached=starts.reached,
        interrupted=starts.interrupted,
        rescaled=job.rescaled,
        restarted=starts.restarted,
        jitter=float(jitter),
        noise=noise_share(trained.likelihood, data),
        unbounded=is_unbounded(plan, job.model, job.parts, data),
        missing=data.num_missing,
        streamed=None if job.given.stream is None else len(job.given.stream),
    )
    return FitResult(restore_ties(trained, job.parts), best.history, message(facts), plan.method, best.bound)


def _build_model(plan: Plan, data: Data, passes: Pass | None, problem: Problem, free: list[Array]) -> tuple[Any, Array]:
    """The model of free arrays, with the optimal q(u) if there is one, and the largest relative jitter in it."""
    optimal = _optimal_q(plan, data, passes, problem, free)
    return compiled(_trained_model, once=plan.optimal_q is None)(problem, free, *optimal)


def _trained_model(
    problem: Problem, free: list[Array], optimal_q: Callable | None, data: Data | Counted | None
) -> tuple[Any, Array]:
    model = problem.model(free)
    model = model if optimal_q is None else optimal_q(model, data)
    dtype = dtype_of(model)
    return model, jnp.max(jnp.stack([layer.relative_jitter().astype(dtype) for layer in model.layers]))
