"""`grow`: train a sparse GP with as many inducing points as the data need."""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array
from inducing.bounds.conjugate import conjugate_layer
from inducing.bounds.evidence import log_evidence
from inducing.checks import checked_data
from inducing.data import Data, as_inputs
from inducing.features.points import InducingPoints
from inducing.layers.sparse_gp import SparseGP
from inducing.model import Model
from inducing.parameters import as_key, at_least_one
from inducing.training.fit import FitResult, fit
from inducing.training.initialise import greedy_variance

EXACT = 2000  # the most labels for which the evidence itself is trained
FIRST, FACTOR = 128, 4  # the first number of inducing points, and by how much it grows: at most three are compiled
AFFORDABLE = 6e9  # N M² of a step that takes about half a second
SUBSET, STARTS, STEPS = 500, 3, 60  # rows, starts and iterations of the search for a place to begin
CANDIDATES = 20_000  # rows among which inducing points are chosen


def grow(
    model: Model,
    data: Any,
    *,
    most: int = 2048,
    gain: float = 0.005,
    seconds: float | None = None,
    progress: bool | str = True,
    key: Array | None = None,
) -> FitResult:
    """Train a model of one sparse GP with as many inducing points as the data need.

    For Gaussian noise and at most 2,000 labels the GP is exact: it is trained by the evidence, and has an inducing point
    at each distinct input. Otherwise the number of points M starts at 128 and grows by a factor of four. New points are
    the rows of X with the largest variance given those before them, under the kernel trained so far (Burt et al. 2020).
    Each fit starts at the hyperparameters of the one before. Growing ends when

        (bound(M) − bound(M')) / (number of labels × log₂ M/M')  <  gain,

    when M reaches `most` or N M² about 6·10⁹, or when the time is over. The best model is kept.

    For Gaussian noise, hyperparameters begin at the best of three fits of the evidence of 500 rows.

    Args:
        model: one `SparseGP` layer with inducing points, and any likelihood. Its points and q(u) do not matter.
        data: (X, y) or `ig.Data`.
        most: the largest number of inducing points.
        gain: the gain of a doubling, in nats for each label, below which more points are not worth their time.
        seconds: the time after which to stop, compilation included; None for no limit.
        progress: whether to show progress bars.
        key: a JAX random key (default: key 0). The same key gives the same result, if the time is not limited.

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
    job = _Job(data, _Timer(seconds), progress, as_key(key))
    if conjugate_layer(model) is None:
        return _grown(job, model, most, gain, fresh=True)
    model = _promising(job, model)
    if int(np.asarray(data.mask).sum()) <= EXACT and layer.prior.num_sites == 1:
        return _exact(job, model)
    return _grown(job, model, most, gain, fresh=False)


class _Timer:
    """The seconds that are left."""

    def __init__(self, seconds: float | None):
        self._end = None if seconds is None else time.perf_counter() + seconds

    @property
    def left(self) -> float | None:
        return None if self._end is None else max(self._end - time.perf_counter(), 1e-3)

    @property
    def is_over(self) -> bool:
        return self._end is not None and time.perf_counter() >= self._end


class _Job(NamedTuple):
    data: Data
    timer: _Timer
    progress: bool | str
    key: Array

    def fit(self, model: Model, data: Data, label: str, **options: Any) -> FitResult:
        shown = label if self.progress is True else self.progress
        limit = {} if self.timer.left is None else {"seconds": self.timer.left}
        return fit(model, data, **limit, progress=shown, key=self.key, **options)


def _sparse_gp(model: Model) -> SparseGP:
    layer = model.layers[0].as_sparse_gp() if len(model.layers) == 1 else None
    if layer is None or isinstance(layer.features, tuple) or not layer.features.are_values:
        raise TypeError(
            "grow is for a model of one SparseGP layer with features.InducingPoints; train others by ig.fit."
        )
    return layer


def _with_points(model: Model, Z: Array) -> Model:
    """The model with inducing points Z, and the prior as q(u)."""
    layer = _sparse_gp(model)
    new = SparseGP(layer.prior, InducingPoints(Z), coordinates=layer.coordinates, jitter=layer.jitter)
    return eqx.tree_at(lambda m: m.layers[0].as_sparse_gp(), model, new)


def _promising(job: _Job, model: Model) -> Model:
    """The model with the hyperparameters of the best of some exact fits to few rows."""
    N = len(job.data)
    rows = job.data
    if N > SUBSET:
        chosen = jax.random.choice(jax.random.fold_in(job.key, 1), N, (SUBSET,), replace=False)
        rows = job.data.rows(own_array(np.sort(np.asarray(chosen)), int))
    options = {"objective": log_evidence, "starts": STARTS, "steps": STEPS, "freeze": _features}
    small = _with_points(model, as_inputs(rows.x)[:1])
    return job.fit(small, rows, f"{STARTS} starts on {len(rows)} rows", **options).model


def _features(model: Model) -> Any:
    return model.layers[0].as_sparse_gp().features


def _exact(job: _Job, model: Model) -> FitResult:
    Z = own_array(np.unique(np.asarray(job.data.x), axis=0), as_inputs(job.data.x).dtype)
    exact = _with_points(model, Z)
    result = job.fit(exact, job.data, "exact", objective=log_evidence, freeze=_features, initialise=False)
    return result._replace(message=f"exact, with an inducing point at each distinct input; {result.message}")


def _grown(job: _Job, model: Model, most: int, gain: float, fresh: bool) -> FitResult:
    """Fits with more and more points, until that gains little; `fresh` if the model needs starting values."""
    X, labels = as_inputs(job.data.x), int(np.asarray(job.data.mask).sum())
    every = -(-len(X) // CANDIDATES)
    most = min(most, max(FIRST, int((AFFORDABLE / len(X)) ** 0.5)))
    best, reached = None, []
    M = min(FIRST, most)
    while best is None or not job.timer.is_over:
        Z = greedy_variance(_kernel(model), X[::every], M)
        result = job.fit(_with_points(model, Z), job.data, f"{len(Z)} inducing points", initialise=fresh, freeze=_features, steps=100)
        reached.append((len(Z), result.bound))
        if best is None or result.bound > best.bound:
            best = result
        if len(Z) < M or M == most or _gain(reached, labels) < gain:
            break
        model, fresh, M = result.model, False, min(FACTOR * M, most)
    assert best is not None
    bounds = ", ".join(f"{bound:.6g} with {points} points" for points, bound in reached)
    return best._replace(message=f"grown, bounds {bounds}; {best.message}")


def _gain(reached: list[tuple[int, float]], labels: int) -> float:
    """The last gain of a doubling, in nats for each label."""
    if len(reached) < 2:
        return np.inf
    (before, low), (now, high) = reached[-2:]
    return (high - low) / (labels * np.log2(now / before))


def _kernel(model: Model) -> Any:
    """The kernel by which inducing points are chosen: that of the first latent."""
    return _sparse_gp(model).prior.kernels[0]
