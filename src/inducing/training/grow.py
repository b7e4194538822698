"""`grow`: train a sparse GP with as many inducing points as the data need."""

import contextlib
import functools
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled, own_array
from inducing.bounds.collapsed import optimal_q
from inducing.bounds.conjugate import conjugate_layer
from inducing.bounds.evidence import log_evidence
from inducing.bounds.upper import evidence_upper_bound
from inducing.checks import checked_data
from inducing.data import Data, as_inputs
from inducing.declared import shown
from inducing.features.points import InducingPoints
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.model import Model
from inducing.parameters import as_key, at_least_one
from inducing.priors.base import prior_variances
from inducing.training.arguments import check_seconds, is_number
from inducing.training.fit import FitResult, fit
from inducing.training.initialise import kmeans
from inducing.training.kernel_search import (
    EXACT,
    all_but_hyperparameters,
    evidence_alone,
    moderated,
    once_level,
    padded,
    without_rows,
)
from inducing.training.message import MOSTLY
from inducing.training.noise import noise_share
from inducing.training.plan import BATCH

SUBSET, STARTS, SEARCH = 500, 3, 60  # rows, starts and iterations of the search for initial hyperparameters
FIRST, FACTOR, STEPS = 256, 4, 50  # the first number of points, by how much it grows, and iterations with each number
AFFORDABLE = 8e9  # N M² of an iteration that takes about a second
SHARE = 0.5  # of the seconds, for the largest number of points
FEWER, QUICK, SLOW = 100, 1e7, 1.5e8  # other likelihoods: the fewest points to try, and rows × M² L of steps
WHOLE = 5000  # classes: the most rows that are used whole at each step,
RATES: dict[str, Any] = {"steps": 300, "learning_rate": 0.1, "gamma": 0.3}  # and the lengths of these steps
JUDGES = 1000  # the most held-out rows
RESOLVED = 30.0  # see `_with_resolved_noise`


class Timer:
    """The seconds that are left.

    Examples:
        >>> Timer(None).left is None, Timer(10.0).is_over
        (True, False)
    """

    def __init__(self, seconds: int | float | None):
        self._end = None if seconds is None else time.perf_counter() + seconds

    @property
    def left(self) -> float | None:
        return None if self._end is None else max(self._end - time.perf_counter(), 1e-3)

    def has_less_than(self, seconds: float) -> bool:
        """Whether fewer seconds are left."""
        return self.left is not None and self.left < seconds

    @property
    def is_over(self) -> bool:
        return self._end is not None and time.perf_counter() >= self._end


class Job(NamedTuple):
    """Data and how to fit them."""

    data: Data
    timer: Timer
    progress: bool | str
    key: Array
    folder: Path | None = None

    def fit(self, model: Model, data: Data, label: str | None, **options: Any) -> FitResult:
        """Fit a model, with a bar of this label; without a bar or checkpoint if there is no label."""
        shown = (label or False) if self.progress is True or label is None else self.progress
        own = None if self.folder is None or label is None else self.folder / label.replace(" ", "-")
        return fit(model, data, seconds=self.timer.left, progress=shown, key=self.key, checkpoint=own, **options)


def _folder(checkpoint: Any) -> Path | None:
    if not isinstance(checkpoint, str | os.PathLike | None):
        raise TypeError(f"checkpoint must be the path of a folder, such as 'run/', got {checkpoint!r}.")
    return None if checkpoint is None else Path(checkpoint)


def grow(
    model: Model,
    data: Any,
    *,
    most: int = 2048,
    gain: float = 0.005,
    seconds: int | float | None = None,
    progress: bool | str = True,
    key: Array | None = None,
    checkpoint: str | os.PathLike | None = None,
) -> FitResult:
    """Train a model of one sparse GP with as many inducing points as the data need.

    For Gaussian noise, the initial hyperparameters are the best of three fits that maximise the evidence of 500 random
    rows. With at most 3,000 labels the GP is then exact: `grow` maximises the evidence of all rows and puts an inducing
    point at each distinct input. Otherwise the number of points M starts at 256 and grows by factors of four. Each fit
    starts at the initial hyperparameters, with points at k-means centres of X in units of the lengthscales. Growing
    stops when

        (bound(M) − bound(M')) / (number of labels × log₂ M/M')  <  gain,

    when M reaches `most`, when N M² reaches about 8·10⁹ (with `seconds`, what half of these allow), or when the time is
    over. The best model is returned.

    For other likelihoods, natural gradients train q(u) and Adam the rest; for classes by long steps, each on all rows
    if there are at most 5,000. The number of points starts where steps are quick (N M² L ≈ 10⁷ for L latents, at least
    100 points) and grows by factors of four up to where they are slow (N M² L ≈ 1.5·10⁸, at most half the rows). If
    that at least doubles it, a tenth of the rows (at most 1,000) are held out. Growing stops by the rule above, or when
    the log density of these rows falls by more than its standard error. The best model is then trained further on all
    rows.

    Args:
        model: one `SparseGP` layer with inducing points, and any likelihood. Its inducing points and q(u) are replaced.
        data: (X, y) or `ig.Data`.
        most: the largest number of inducing points.
        gain: the gain in nats per label, for twice as many points, below which growing stops.
        seconds: the time after which to stop, compilation included; None for no limit.
        progress: whether to show progress bars.
        key: a JAX random key (default: key 0). The same key gives the same result, if the time is not limited.
        checkpoint: a folder for what is needed to resume after a kill: one folder in it for each fit, as for `ig.fit`.
            The same call then goes on in the fit that was not finished, and gives the same result. With `seconds`, that
            fit has the seconds of the new call.

    Returns:
        The `FitResult` of the best model. Its message says how the model grew.

    Raises:
        TypeError: if the model has more than one layer, or other features than inducing points.
        ValueError: if the data do not fit the model, or an argument is out of range.

    Examples:
        >>> import numpy as np
        >>> import inducing as ig
        >>> X = np.linspace(0.0, 1.0, 30)
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0]]))
        >>> result = ig.grow(ig.Model(gp, ig.likelihoods.Gaussian()), (X, np.sin(9 * X)), progress=False)
        >>> result.model.layers[0].num_features
        30
    """
    data = checked_data(model, data, every_output=True)
    layer = _sparse_gp(model)
    most = at_least_one("most", most)
    if not is_number(gain) or np.isnan(gain):
        raise ValueError(f"gain must be a number, got {shown(gain)}.")
    check_seconds(seconds)
    job = Job(data, Timer(seconds), progress, as_key(key), _folder(checkpoint))
    if conjugate_layer(model) is None:
        return _grown_by_steps(job, model, _other_sizes(job, model, layer, most), gain)
    if layer.prior.num_sites > 1:
        return _grown(job, model, _other_sizes(job, model, layer, most), gain, {})
    search, seen = _search(job, model), len(data) <= _few(job)
    if not seen:
        search = search._replace(model=moderated(search.model, data))
    return grow_from(job, model, search, seen, most=most, gain=gain)


def grow_from(
    job: Job, model: Model, search: FitResult, seen: bool, *, most: int = 2048, gain: float = 0.005
) -> FitResult:
    """Grow a model with Gaussian noise from the hyperparameters of a search.

    Args:
        job: the data and how to fit them.
        model: the model before the search, from which to start if the search misled.
        search: the result of the search.
        seen: whether the search has fitted all rows.
        most: see `grow`.
        gain: see `grow`.

    Returns:
        The result of the best fit.
    """
    data, layer = job.data, _sparse_gp(search.model)
    if int(np.asarray(data.mask).sum()) <= EXACT:
        return _exact(job, model, search, seen)
    model = search.model
    in_time = AFFORDABLE * (1.0 if job.timer.left is None else SHARE * job.timer.left / STEPS)
    sizes = _sizes(FIRST, most, (in_time / len(data) / layer.prior.num_latents) ** 0.5)
    collapsed = {"method": "collapsed", "steps": STEPS} if sizes else {}  # of many rows, minibatches
    return _grown(job, model, sizes or [min(2 * FIRST, most)], gain, collapsed | {"initialise": False})


def _sizes(first: int, most: int, affordable: float) -> list[int]:
    """The numbers of points to try: each is FACTOR times the one before, or the largest affordable one.

    That is left out if it is less than 1.5 times the one before, because it would gain little for another compilation.
    """
    most = min(most, int(affordable))
    if most < min(first, FEWER):
        return []
    sizes = [min(first, most)]
    while 1.5 * sizes[-1] <= most:
        sizes.append(min(FACTOR * sizes[-1], most))
    return sizes


def _other_sizes(job: Job, model: Model, layer: SparseGP, most: int) -> list[int]:
    """The first number of points makes quick steps, and the last one slow ones, if that is at least twice as many."""
    rows = _rows_of_step(job, model.likelihood) * layer.prior.num_sites * layer.prior.num_latents
    quick, slow = (min(most, max(FEWER, int((work / rows) ** 0.5))) for work in (QUICK, SLOW))
    slow = min(slow, len(job.data) // 2)
    return [quick] if slow < 2 * quick else _sizes(quick, most, float(slow))


def _rows_of_step(job: Job, likelihood: AbstractLikelihood) -> int:
    whole = 2 * BATCH if likelihood.class_count() is None else WHOLE
    return len(job.data) if len(job.data) <= whole else BATCH


def _sparse_gp(model: Model) -> SparseGP:
    layer = model.layers[0].as_sparse_gp() if len(model.layers) == 1 else None
    if layer is None or isinstance(layer.features, tuple) or not layer.features.are_values:
        raise TypeError(
            "grow is for a model of one SparseGP layer with features.InducingPoints; train other models by ig.fit."
        )
    return layer


def with_points(model: Model, Z: Array) -> Model:
    """The model with inducing points Z, and the prior as q(u)."""
    layer = _sparse_gp(model)
    new = SparseGP(layer.prior, InducingPoints(Z), coordinates=layer.coordinates, jitter=layer.jitter)
    return eqx.tree_at(lambda m: m.layers[0].as_sparse_gp(), model, new)


def _search(job: Job, model: Model) -> FitResult:
    """The best of several exact fits to a few rows; only its hyperparameters are used."""
    N, few, rows, steps = len(job.data), _few(job), job.data, None
    if few < N:
        chosen = jax.random.choice(jax.random.fold_in(job.key, 1), N, (few,), replace=False)
        rows, steps = job.data.rows(own_array(np.sort(np.asarray(chosen)), int)), SEARCH
    options = {"objective": log_evidence, "starts": STARTS, "steps": steps, "freeze": _features}
    small = with_points(model, as_inputs(rows.x)[:1])
    return job.fit(small, rows, f"{STARTS} starts on {len(rows)} rows", **options)


def _few(job: Job) -> int:
    """The number of rows of the search: the cost of the evidence depends on the number of labels."""
    return max(50, SUBSET // np.asarray(job.data.mask).shape[1])


def _features(model: Model) -> Any:
    return _sparse_gp(model).features


def _exact(job: Job, model: Model, search: FitResult, seen: bool) -> FitResult:
    """An exact GP, which has an inducing point at each distinct input.

    Rows of weight 0 are added for the fit, so that data of nearly the same size share its program.
    """
    Z = own_array(np.unique(np.asarray(job.data.x), axis=0), as_inputs(job.data.x).dtype)
    what = "exact, with an inducing point at each distinct input"
    result = search
    if not seen:
        one, rows = Z[:1], padded(job.data, np.arange(len(job.data)))
        options = {"objective": evidence_alone, "freeze": all_but_hyperparameters, "initialise": False}
        try:
            result = job.fit(with_points(search.model, one), rows, "exact", callback=once_level(job.data), **options)
        except FloatingPointError:  # a few rows without repeated inputs may lead to a noise variance of zero
            what += "; not started from few rows, whose noise is too small for all"
            again = {"objective": log_evidence, "freeze": _features}
            result = job.fit(with_points(model, one), job.data, "exact once more", **again)
    trained = compiled(optimal_q, once=True)(with_points(_with_resolved_noise(result.model, Z), Z), job.data)
    return result._replace(model=trained, message=f"{what}; {result.message}")


def _with_resolved_noise(model: Model, Z: Array) -> Model:
    """The model with a noise variance of at least 30 n ε k(x, x), for n inputs and the rounding error ε.

    Labels without noise let the evidence push the variance to zero. The condition number of the equations for q(u) is
    about n k(x, x) / σ², so rounding errors would falsify predictions long before; the error that this noise makes is
    smaller than that of the jitter.
    """
    least = RESOLVED * len(Z) * float(np.finfo(Z.dtype).eps) * float(prior_variances(_sparse_gp(model).prior, Z).max())
    noise = jax.tree.map(lambda a: jnp.maximum(a, least) if eqx.is_inexact_array(a) else a, model.likelihood)
    return eqx.tree_at(lambda m: m.likelihood, model, noise)


def _grown(job: Job, model: Model, sizes: list[int], gain: float, options: dict[str, Any]) -> FitResult:
    """Fits with increasing numbers of points, until more points gain little.

    Each fit starts at the hyperparameters of `model`, or of the best fit so far, whichever have the larger bound with
    the new points. A fit with too few points may explain the labels as noise, and a fit with more points that started
    at its result would not recover: then only `model` is a start.
    """
    labels = int(np.asarray(job.data.mask).sum())
    best, reached = None, []
    for M in sizes:
        Z = _centres(job, model, M, trained=bool(options))
        start = with_points(model, Z)
        if best is not None and best.method == "collapsed" and noise_share(best.model.likelihood, job.data) < MOSTLY:
            start = _best_start(job, [start, with_points(best.model, Z)], options)
        result = job.fit(start, job.data, f"{len(Z)} inducing points", **options)
        reached.append((len(Z), result.bound))
        if best is None or result.bound > best.bound:
            best = result
        if len(Z) < M or _gain(reached, labels) < gain or job.timer.is_over:
            break
    assert best is not None  # because there is a first size
    bounds = ", ".join(f"{bound:.6g} with {points}" for points, bound in reached)
    kept = f"{_sparse_gp(best.model).num_features} inducing points are enough or affordable, bound {bounds}"
    return best._replace(message=f"{kept}{_certificate(job, best, labels)}; {best.message}")


def _grown_by_steps(job: Job, model: Model, sizes: list[int], gain: float) -> FitResult:
    """Fits by natural gradients with increasing numbers of points, until more points gain little.

    Each fit starts at `model`: few points may not follow the labels, and lead to hyperparameters without a way back. If
    there is more than one size, a tenth of the rows (at most 1,000) judge the fits to the others. More points are kept
    if the bound gains enough, and if the judges do not become less probable beyond the standard error. The best model
    is then trained further on all rows.
    """
    data, options, labels = job.data, options_of_steps(job, model.likelihood), int(np.asarray(job.data.mask).sum())
    train, judges = (data, None) if len(sizes) == 1 else _parted(job)
    fits: list[_Judged] = []
    best = None
    for M in sizes:
        start = with_points(model, _centres(job, model, M, trained=False))
        began = time.perf_counter()
        fits.append(_Judged(job.fit(start, train, f"{M} inducing points", **options), judges))
        took = time.perf_counter() - began
        if best is not None and not _is_better(best, fits[-1], labels, gain):
            break
        best = fits[-1]
        if best.points < M or job.timer.has_less_than(FACTOR * took):
            break
    assert best is not None  # because there is a first size
    result = best.result
    if judges is not None and not job.timer.is_over:
        result = job.fit(result.model, data, "all rows", initialise=False, **options)
    return result._replace(message=f"{_said(fits)}; {result.message}")


class _Judged:
    """A fit, and the log density of each held-out row, computed when it is asked for."""

    def __init__(self, result: FitResult, judges: Data | None):
        self.result, self._judges = result, judges

    @property
    def points(self) -> int:
        """The number of inducing points."""
        return _sparse_gp(self.result.model).num_features

    @functools.cached_property
    def judged(self) -> np.ndarray:
        """The log densities."""
        assert self._judges is not None
        mask = np.asarray(self._judges.mask)
        y = np.where(mask, np.asarray(self._judges.y), np.nan)
        return np.asarray(self.result.model.predict(self._judges.x).log_prob(y))[mask.any(axis=1)]


def _is_better(before: _Judged, now: _Judged, labels: int, gain: float) -> bool:
    """Whether more points have gained enough."""
    gained = _gain([(before.points, before.result.bound), (now.points, now.result.bound)], labels)
    change = now.judged - before.judged
    return bool(gained >= gain and change.mean() > -change.std() / np.sqrt(max(len(change), 1)))


def _said(fits: list[_Judged]) -> str:
    if len(fits) == 1:
        return f"{fits[0].points} inducing points"
    each = ", ".join(f"{f.result.bound:.6g} and {f.judged.mean():.3g} with {f.points}" for f in fits)
    return f"bound, and log density of each of {len(fits[0].judged)} held-out rows: {each} inducing points"


def options_of_steps(job: Job, likelihood: AbstractLikelihood) -> dict[str, Any]:
    """The options of fits by natural gradients: for classes, all rows at each step, and long steps.

    A class says little about f, so that the bound changes slowly. For numbers with little noise, long steps overshoot.

    Args:
        job: the data and how to fit them.
        likelihood: the likelihood.

    Returns:
        Options of `fit`.
    """
    data = job.data
    if len(data) > WHOLE or likelihood.class_count() is None:
        return {}
    weight = np.ones(len(data)) if data.weight is None else np.asarray(data.weight)
    used = (weight > 0) | ~np.asarray(data.mask).any(axis=1)  # `fit` drops the other rows
    return {"batch_size": max(1, int(used.sum()))} | RATES


def _parted(job: Job) -> tuple[Data, Data]:
    """The data without a tenth of their rows, which then have the weight 0, and these rows."""
    N = len(job.data)
    chosen = np.asarray(jax.random.permutation(jax.random.fold_in(job.key, 2), N))[: min(N // 10, JUDGES)]
    return without_rows(job.data, chosen), job.data.rows(own_array(np.sort(chosen), int))


def _best_start(job: Job, starts: list[Model], options: dict[str, Any]) -> Model:
    """The start with the largest bound."""
    fits = []
    for start in starts:
        with contextlib.suppress(FloatingPointError):
            fits.append((job.fit(start, job.data, None, **(options | {"steps": 0})).bound, start))
    return max(fits, key=lambda fit: fit[0])[1] if fits else starts[0]


def _certificate(job: Job, best: FitResult, labels: int) -> str:
    """An upper bound of KL(q ‖ exact posterior) for the message, if it is known and below one nat per label.

    It costs N M², as much as many steps on minibatches, and is left out when the time is over.
    """
    if conjugate_layer(best.model) is None or job.timer.is_over:
        return ""
    most = (float(evidence_upper_bound(best.model, job.data)) - best.bound) / labels
    return f"; KL(q ‖ posterior) ≤ {most:.2g} nats for each label" if most <= 1.0 else ""


def _centres(job: Job, model: Model, M: int, trained: bool) -> Array:
    """k-means centres, in units of the shortest lengthscale of each column if the kernel is trained and has them."""
    X = as_inputs(job.data.x)
    prior = _sparse_gp(model).prior
    scales = [np.asarray(scale, float) for kernel in prior.kernels for scale in kernel.lengthscales()]
    known = trained and scales and all(scale.shape in ((), (X.shape[1],)) for scale in scales)
    shortest = np.min([np.broadcast_to(scale, X.shape[1]) for scale in scales], axis=0) if known else None
    return kmeans(X, M, lengthscales=shortest, key=job.key)


def _gain(reached: list[tuple[int, float]], labels: int) -> float:
    """The last gain for twice as many points, in nats per label."""
    if len(reached) < 2:
        return np.inf
    (before, low), (now, high) = reached[-2:]
    return (high - low) / (labels * np.log2(now / before))
