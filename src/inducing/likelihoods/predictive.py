"""Predictive distributions of labels: p(y) = E p(y | f), where f is Gaussian or a mixture of Gaussians."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtri
from jaxtyping import Array, Float, Int, Key

from inducing._xla import compiled, default_jit, own_array
from inducing.data import as_labels
from inducing.likelihoods.crps import LEVELS, crps_by_integral, crps_of_counts, crps_of_gaussians
from inducing.likelihoods.quantiles import SEARCHES
from inducing.likelihoods.sampling import as_shape, lenient, refuse_variances_alone, sample_mixture
from inducing.likelihoods.supports import fill_missing
from inducing.linalg import Dense
from inducing.parameters import as_key, as_probability

if TYPE_CHECKING:
    from inducing.likelihoods.base import AbstractLikelihood


BLOCK = 8192  # the number of rows that are computed at a time, to bound the memory
CLOSED_CRPS = (
    256  # up to this number of components the closed form, whose cost is quadratic in it, is cheaper than an integral
)
MANY = 2**20  # the number of components of all rows that are computed at a time


class Predictive(eqx.Module):
    """The predictive distribution of the labels at N inputs, as `Model.predict` returns it.

        p(y_n) = 1/S Σ_s E_{N(f | mean_sn, cov_sn)} p(y_n | f)

    Everything is computed on demand, by closed forms where the likelihood has them and by quadrature elsewhere.
    Programs are compiled, and many rows are computed in blocks.

    Args:
        likelihood: the likelihood p(y | f).
        latent_mean: means of the latents, [N, F], or [S, N, F] for a mixture of S Gaussians.
        latent_cov: their variances, of the same shape, or covariances [..., F, F].
        index: which data these are [N], for `PerDatum` parameters.
        correlated: whether the latents may be correlated although `latent_cov` holds only variances. Sampling is then
            refused; all other results are the same.
        source: a function (key, shape) that draws latents [*shape, N, F] anew, for `sample`. Without one they are drawn
            from the components.

    Examples:
        >>> import jax, inducing as ig
        >>> one = jnp.ones((1, 1))
        >>> pred = ig.likelihoods.Gaussian(0.5).predictive(2.0 * one, 0.5 * one)  # N(2, 1)
        >>> lower, upper = pred.interval(0.95)
        >>> [round(float(v[0, 0]), 4) for v in (pred.mean, pred.variance, lower, upper)]
        [2.0, 1.0, 0.04, 3.96]
        >>> print(pred.log_prob([2.0]).round(4), pred.sample(jax.random.key(0), 10).shape)
        [-0.9189] (10, 1, 1)
    """

    likelihood: "AbstractLikelihood"
    latent_mean: Float[Array, "*S N F"]
    latent_cov: Float[Array, "..."]
    index: Int[Array, "N"] | None = None
    correlated: bool = eqx.field(static=True, default=False)
    source: Any = None

    @property
    def mean(self) -> Float[Array, "N P"]:
        """The mean E[y]."""
        return _blocks(_mean, self)

    @property
    def variance(self) -> Float[Array, "N P"]:
        """The variance Var[y]."""
        return _blocks(_variance, self)

    def log_prob(self, y: Any) -> Float[Array, "N"]:
        """The log density log p(y_n) of each row of labels.

        Within a component of the mixture, the outputs of a row count as independent, unless all noise is Gaussian and
        the covariance of the latents was computed (`predict(X, output_cov=True)`).

        Args:
            y: labels [N, P], or [N] for one output. Missing labels (NaN) are left out.

        Returns:
            Log densities [N], summed over the outputs.

        Raises:
            ValueError: if labels have the wrong shape or lie outside the support of the likelihood.
        """
        y = self._labels(y)
        self.likelihood.check(y, index=self.index)
        _refuse_huge(y)
        return _blocks(_log_prob, self, y)

    def cdf(self, y: Any) -> Float[Array, "N P"]:
        """The distribution function P(label ≤ y) of each output.

        Args:
            y: values [N, P], or [N] for one output.

        Returns:
            Probabilities [N, P].

        Raises:
            ValueError: if `y` has the wrong shape.
        """
        return _blocks(_cdf, self, self._labels(y))

    def quantile(self, q: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """The quantile of each output: the smallest y with cdf(y) ≥ q.

        Args:
            q: a probability, strictly between 0 and 1.

        Returns:
            Quantiles [N, P].

        Raises:
            ValueError: if `q` is not one number between 0 and 1.
        """
        q = as_probability("q", q)
        N = self.latent_mean.shape[-2]
        return _blocks(_quantile, self, jnp.full((N, 1), q, self.latent_mean.dtype))

    def interval(self, level: float = 0.95) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """The central interval of each output: its quantiles (1 ∓ level)/2.

        Args:
            level: the probability that the interval contains.

        Returns:
            Its lower and upper ends, [N, P] each.

        Raises:
            ValueError: if `level` does not lie between 0 and 1.
        """
        level = as_probability("level", level)
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    def crps(self, y: Any) -> Float[Array, "N P"]:
        """The continuous ranked probability score of each label; 0 is best.

            CRPS = ∫ (P(label ≤ z) − 1{z ≥ y})² dz = E|Y − y| − ½ E|Y − Y′|

        It has the unit of y, and is |Y − y| if the prediction is certain. For Gaussian noise it has a closed form. For
        counts, and for classes by their numbers, it is a sum (for two classes, half the Brier score). Otherwise it is
        integrated between quantiles. `inducing.scores.crps` is its mean.

        Args:
            y: labels [N, P], or [N] for one output.

        Returns:
            Scores [N, P], NaN where the label is missing.

        Raises:
            ValueError: if labels have the wrong shape or lie outside the support of the likelihood.
        """
        y = self._labels(y)
        self.likelihood.check(y, index=self.index)
        return _blocks(_crps, self, y)

    @property
    def median(self) -> Float[Array, "N P"]:
        """The median, the quantile 1/2."""
        return self.quantile(0.5)

    def sample(self, key: Key[Array, ""], shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Labels, sampled independently for each input and jointly over its outputs.

        A model whose inner layers are sampled is run again for each sample, so that all samples are independent.

        Correlated outputs need `predict(X, output_cov=True)`. Samples that are joint over inputs too need
        `predict(X, full_cov=True)`.

        Args:
            key: a random key.
            shape: the number of samples, or a shape of samples.

        Returns:
            Samples [*shape, N, P].

        Raises:
            ValueError: if the outputs may be correlated and only variances were computed.
        """
        key = as_key(key)
        refuse_variances_alone(self.correlated, "predict")
        latent, label = jax.random.split(key)
        shape = as_shape(shape, self.latent_mean.reshape(-1, *self.latent_mean.shape[-2:])[0])
        f = _latents(self, latent, shape) if self.source is None else self.source(latent, shape)
        return labels_given(self.likelihood, f, self.index, label)

    @property
    def probabilities(self) -> Float[Array, "N *P C"]:
        """The probabilities of the classes, [N, C], or [N, P, C] for several outputs.

        This raises a TypeError if the likelihood is not one of classes.
        """
        if self.likelihood.class_count() is None:
            raise TypeError(
                f"{type(self.likelihood).__name__} is not a classification likelihood, so it has no class "
                "probabilities; use `log_prob` or `cdf`."
            )
        out = _blocks(_probabilities, self)
        return out[:, 0] if out.shape[1] == 1 else out

    def _labels(self, y: Any) -> Array:
        y = as_labels(y, self.latent_mean.dtype)
        N, F = self.latent_mean.shape[-2:]
        if y.ndim != 2 or y.shape[0] != N or self.likelihood.num_latents(y.shape[1]) != F:
            raise ValueError(
                f"y must have a row for each of the {N} inputs and a column for each output, got shape {y.shape}; "
                "missing labels are NaN."
            )
        return y


def _refuse_huge(y: Array) -> None:
    """Raise a ValueError for labels whose squares overflow, so that their log density would be −∞."""
    if not isinstance(y, jax.core.Tracer):
        huge = np.abs(np.asarray(y)) > 0.1 * np.sqrt(jnp.finfo(y.dtype).max)
        if huge.any():
            raise ValueError(f"y has {np.asarray(y)[huge][0]:.4g}, whose square is too large for {y.dtype}; scale it.")


def _blocks(fn: Callable[..., Array], predictive: Predictive, *rows: Array) -> Array:
    """fn(predictive, *rows), compiled. Repeating the last row up to a power of two leaves few shapes to compile."""
    p, N = predictive, predictive.latent_mean.shape[-2]
    p = Predictive(p.likelihood, p.latent_mean, p.latent_cov, p.index)  # without its source, which is not used
    if not isinstance(N, int):  # a symbol, under `jax.export`: rows cannot be counted, and are computed all at once
        return fn(p, *rows)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((p, rows))):  # the outer program compiles this
        return _in_blocks(fn, p, *rows)
    more = (1 << (N - 1).bit_length()) - N
    if more == 0 or _rows(p) < N:
        return compiled(_in_blocks)(fn, p, *rows)

    def longer(a: Array, axis: int = 0) -> Array:  # NumPy compiles nothing
        more_rows = [(0, more if i == axis else 0) for i in range(a.ndim)]
        return own_array(np.pad(np.asarray(a), more_rows, mode="edge"), a.dtype)

    axis = p.latent_mean.ndim - 2
    index = None if p.index is None else longer(p.index)
    p = Predictive(p.likelihood, longer(p.latent_mean, axis), longer(p.latent_cov, axis), index)
    out = compiled(_in_blocks)(fn, p, *map(longer, rows))
    return own_array(np.asarray(out)[:N], out.dtype)


def _in_blocks(fn: Callable[..., Array], predictive: Predictive, *rows: Array) -> Array:
    """fn(predictive, *rows), in blocks of rows if there are many."""
    if predictive.latent_mean.shape[-2] <= _rows(predictive):
        return fn(predictive, *rows)
    mean, cov = _components(predictive)

    def one(row):
        mean, cov, index, *rest = row
        part = Predictive(predictive.likelihood, mean[:, None], cov[:, None], None if index is None else index[None])
        return fn(part, *(r[None] for r in rest))[0]

    return jax.lax.map(
        one, (mean.swapaxes(0, 1), cov.swapaxes(0, 1), predictive.index, *rows), batch_size=_rows(predictive)
    )


def _rows(p: Predictive) -> int:
    """How many rows are computed at a time."""
    return max(1, min(BLOCK, MANY // math.prod(p.latent_mean.shape[:-2])))


def _components(p: Predictive) -> tuple[Array, Array]:
    """Mean and covariance with a leading axis S of components, which is 1 for a single Gaussian."""
    return (p.latent_mean, p.latent_cov) if p.latent_mean.ndim == 3 else (p.latent_mean[None], p.latent_cov[None])


def _each(p: Predictive, fn: Callable[[Array, Array], Array]) -> Array:
    """fn(mean, cov) for each component of the mixture, stacked along a leading axis."""
    mean, cov = _components(p)
    return fn(mean[0], cov[0])[None] if len(mean) == 1 else jax.vmap(fn)(mean, cov)


def _moments(p: Predictive) -> tuple[Array, Array]:
    both = _each(p, lambda m, c: jnp.stack(p.likelihood.predictive_moments(m, c, index=p.index)))
    first, second = both[:, 0], both[:, 1]
    if len(both) == 1:  # unchanged, since what follows makes NaN of moments that overflow
        return first[0], second[0]
    mean = jnp.mean(first, axis=0)
    return mean, jnp.mean(second + (first - mean[None]) ** 2, axis=0)


def _mean(p: Predictive) -> Array:
    return _moments(p)[0]


def _variance(p: Predictive) -> Array:
    return _moments(p)[1]


def _log_prob(p: Predictive, y: Array) -> Array:
    filled, present = fill_missing(y, p.likelihood.fill)

    def row(m, c):
        noise = p.likelihood.gaussian_noise(y.shape, p.index) if c.ndim > m.ndim else None
        if noise is not None:
            return jax.vmap(gaussian_log_prob)(filled, m, c, noise, present)
        each = p.likelihood.predictive_log_prob(m, c, filled, index=p.index)
        return jnp.sum(jnp.where(present, each, 0.0), axis=-1)

    logs = _each(p, row)
    return logsumexp(logs, axis=0) - math.log(len(logs))


def _quantile(p: Predictive, q: Array) -> Array:
    mean, variance = _moments(p)
    if len(_components(p)[0]) == 1 and p.likelihood.gaussian_noise(mean.shape, p.index) is not None:
        return mean + jnp.sqrt(variance) * ndtri(jnp.maximum(q, jnp.finfo(q.dtype).tiny))  # XLA rounds less to 0
    supports = p.likelihood.supports
    kinds = [s.kind for s in supports] * (mean.shape[-1] if len(supports) == 1 else 1)
    found = {kind: SEARCHES[kind](lambda y: _cdf(p, y), q, mean, variance) for kind in dict.fromkeys(kinds)}
    return jnp.stack([found[kind][:, i] for i, kind in enumerate(kinds)], axis=-1)


def _crps(p: Predictive, y: Array) -> Array:
    filled, present = fill_missing(y, p.likelihood.fill)
    if p.likelihood.gaussian_noise(y.shape, p.index) is not None and len(_components(p)[0]) <= CLOSED_CRPS:
        both = _each(p, lambda m, c: jnp.stack(p.likelihood.predictive_moments(m, c, index=p.index)))
        return jnp.where(present, crps_of_gaussians(filled, both[:, 0], both[:, 1]), jnp.nan)

    levels = jnp.asarray(LEVELS, y.dtype)
    quantiles = jax.lax.map(lambda q: _quantile(p, jnp.broadcast_to(q, (y.shape[0], 1))), levels)  # compiled once
    kinds = [s.kind == "count" for s in p.likelihood.supports] * (y.shape[1] if len(p.likelihood.supports) == 1 else 1)
    ways = {kind: crps_of_counts if kind else crps_by_integral for kind in dict.fromkeys(kinds)}
    found = {kind: way(lambda z: _cdf(p, z), quantiles, filled) for kind, way in ways.items()}
    return jnp.where(present, jnp.stack([found[kind][:, i] for i, kind in enumerate(kinds)], axis=-1), jnp.nan)


_ENDS = {"real": (-np.inf, np.inf), "positive": (0.0, np.inf), "unit": (0.0, 1.0), "count": (-np.inf, np.inf)}


def _cdf(p: Predictive, y: Array) -> Array:
    """The cdf, 0 and 1 beyond the ends of the support, where a likelihood need not define it."""
    ends = np.array([_ENDS[s.kind] for s in p.likelihood.supports])
    lower, upper = jnp.asarray(ends[None, :, 0], y.dtype), jnp.asarray(ends[None, :, 1], y.dtype)
    inside = jnp.where((y <= lower) | (y >= upper), jnp.asarray(p.likelihood.fill, y.dtype), y)
    cdf = jnp.mean(_each(p, lambda m, c: p.likelihood.predictive_cdf(m, c, inside, index=p.index)), axis=0)
    return jnp.where(y <= lower, 0.0, jnp.where(y >= upper, 1.0, cdf))


def _probabilities(p: Predictive) -> Array:
    return jnp.mean(_each(p, lambda m, c: p.likelihood.class_probabilities(m, c, index=p.index)), axis=0)


@default_jit
def _latents(p: Predictive, key: Array, shape: tuple[int, ...]) -> Array:
    return sample_mixture(*_components(p), key, shape)


@default_jit
def labels_given(likelihood: "AbstractLikelihood", f: Array, index: Array | None, key: Array) -> Array:
    """Labels [..., N, P] sampled from p(y | f), one for each value of f [..., N, F].

    Examples:
        >>> import jax, inducing as ig
        >>> labels_given(ig.likelihoods.Gaussian(0.1), jnp.zeros((5, 2, 1)), None, jax.random.key(0)).shape
        (5, 2, 1)
    """
    with lenient():
        return likelihood.distribution(f, index=index).sample(key).astype(f.dtype)


def gaussian_log_prob(y: Array, mean: Array, cov: Array, noise: Array, present: Array) -> Array:
    """log N(y | mean, cov + diag(noise)) of the labels that are present.

    Args:
        y: labels [...], n in all.
        mean: their means [...].
        cov: the covariance [n, n] of the latents.
        noise: the noise variances [...].
        present: which labels are not missing [...].

    Returns:
        The log density, one number.

    Examples:
        >>> one = jnp.ones(1)
        >>> round(float(gaussian_log_prob(0 * one, 0 * one, 0.5 * one[None], 0.5 * one, one > 0)), 4)
        -0.9189
    """
    # A missing label is replaced by an independent standard normal of value 0, whose constant is left out.
    seen = present.reshape(-1)
    residual = jnp.where(seen, (y - mean).reshape(-1), 0.0)
    K = jnp.where(seen[:, None] & seen[None, :], cov, 0.0) + jnp.diag(jnp.where(seen, noise.reshape(-1), 1.0))
    K = Dense(K)
    a = K.root_solve(residual[:, None])
    return -0.5 * (jnp.sum(a**2) + K.logdet() + jnp.sum(seen).astype(a.dtype) * math.log(2.0 * math.pi))
