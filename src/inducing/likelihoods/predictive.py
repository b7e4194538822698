"""Predictive distributions of labels: p(y) = E p(y | f), f Gaussian or a mixture of Gaussians."""

import contextlib
import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Key

from inducing._xla import default_jit, own_array
from inducing.data import as_labels
from inducing.likelihoods.supports import fill_missing
from inducing.linalg import Dense, default_jitter
from inducing.numerics.quadrature import safe_sqrt
from inducing.numerics.roots import crossing
from inducing.parameters import as_key

if TYPE_CHECKING:
    from inducing.likelihoods.base import AbstractLikelihood


BLOCK = 8192


@contextlib.contextmanager
def lenient():
    """JAX's standard promotion rules, which NumPyro's samplers and moments rely on, whatever the user's setting."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Predictive(eqx.Module):
    """The distribution of the labels at N inputs, p(y_n) = 1/S Σ_s E_{N(f | mean_sn, cov_sn)} p(y_n | f).

    `mean`, `variance`, `median`, `quantile(q)`, `interval(level)` and `cdf(y)` are [N, P] (`interval` a pair of them),
    each output by itself; `log_prob(y)` is [N], the outputs of a row summed; `sample(key, shape)` is [*shape, N, P],
    and for classes `probabilities` is [N, C].

    Everything is computed on demand, compiled and in blocks of rows: by closed forms where the likelihood has
    them, else by quadrature whose nodes gather where the label asks. `latent_mean` is [N, F] or, for a mixture,
    [S, N, F]; `latent_cov` holds variances of that shape, or covariances [..., F, F]. `correlated` says that the
    latents are correlated although only their variances are here: all but `sample` is the same then.

    >>> import jax, inducing as ig
    >>> one = jnp.ones((1, 1))
    >>> pred = ig.likelihoods.Gaussian(0.5).predictive(2.0 * one, 0.5 * one)      # N(2, 1); from a model: predict
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

    @property
    def mean(self) -> Float[Array, "N P"]:
        """E[y]."""
        return _blocks(_mean, self)

    @property
    def variance(self) -> Float[Array, "N P"]:
        """Var[y]."""
        return _blocks(_variance, self)

    def log_prob(self, y: Any) -> Float[Array, "N"]:
        """log p(y_n): outputs summed, missing ones (NaN) left out; mixtures by log-mean-exp of whole rows.

        Within a component the outputs are taken as independent, unless all noise is Gaussian (also by `PerOutput`)
        and the latents' covariance was asked for (`output_cov=True`).
        """
        y = self._labels(y)
        self.likelihood.check(y, index=self.index)
        return _blocks(_log_prob, self, y)

    def cdf(self, y: Any) -> Float[Array, "N P"]:
        """P(label ≤ y), each output by itself."""
        return _blocks(_cdf, self, self._labels(y))

    def quantile(self, q: float | Float[Array, ""]) -> Float[Array, "N P"]:
        """The smallest y with cdf(y) ≥ q, each output by itself: where the cdf crosses q."""
        if np.ndim(q):
            raise ValueError(f"q must be one number, got shape {np.shape(q)}; ask for one quantile at a time.")
        if not isinstance(q, jax.core.Tracer) and not 0 < q < 1:
            raise ValueError(f"q must lie strictly between 0 and 1, got {q}; 0.5 gives the median.")
        N = self.latent_mean.shape[-2]
        return _blocks(_quantile, self, jnp.full((N, 1), q, self.latent_mean.dtype))

    def interval(self, level: float = 0.95) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """The central interval that holds probability `level`: the quantiles (1 ∓ level)/2."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level}; 0.95 gives the 95% interval.")
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    @property
    def median(self) -> Float[Array, "N P"]:
        """The quantile 1/2."""
        return self.quantile(0.5)

    def sample(self, key: Key[Array, ""], shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Labels drawn independently for each input, its outputs jointly.

        Correlated outputs need `predict(X, output_cov=True)`; for samples that are joint over inputs too there is
        `predict(X, full_cov=True)`.
        """
        key = as_key(key)
        refuse_variances_alone(self.correlated, "predict")
        return _sample(self, key, as_shape(shape))

    @property
    def probabilities(self) -> Float[Array, "N *P C"]:
        """The probability of each class, [N, C] (or [N, P, C] for several outputs)."""
        if self.likelihood.class_count() is None:
            raise TypeError(
                f"{type(self.likelihood).__name__} is no classification likelihood, so it has no class probabilities; "
                "use `log_prob` or `cdf`."
            )
        out = _blocks(_probabilities, self)
        return out[:, 0] if out.shape[1] == 1 else out

    def _labels(self, y: Any) -> Array:
        y = as_labels(y, self.latent_mean.dtype)
        N, F = self.latent_mean.shape[-2:]
        if y.ndim != 2 or len(y) != N or self.likelihood.num_latents(y.shape[1]) != F:
            raise ValueError(
                f"y must have a row for each of the {N} inputs and a column for each output, got shape {y.shape}; "
                "missing labels are NaN."
            )
        return y


def _blocks(fn: Callable[..., Array], predictive: Predictive, *rows: Array) -> Array:
    """fn(predictive, *rows), compiled. The last row is repeated up to a power of two of them: few shapes to compile."""
    p, N = predictive, predictive.latent_mean.shape[-2]
    more = (1 << (N - 1).bit_length()) - N
    if more == 0 or N > BLOCK or any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((p, rows))):
        return _compiled(fn, p, *rows)

    def longer(a: Array, axis: int = 0) -> Array:  # by NumPy, which compiles nothing
        more_rows = [(0, more if i == axis else 0) for i in range(a.ndim)]
        return own_array(np.pad(np.asarray(a), more_rows, mode="edge"), a.dtype)

    axis = p.latent_mean.ndim - 2
    index = None if p.index is None else longer(p.index)
    p = Predictive(p.likelihood, longer(p.latent_mean, axis), longer(p.latent_cov, axis), index)
    out = _compiled(fn, p, *map(longer, rows))
    return own_array(np.asarray(out)[:N], out.dtype)


@default_jit
def _compiled(fn: Callable[..., Array], predictive: Predictive, *rows: Array) -> Array:
    """fn(predictive, *rows); many inputs go through in blocks, so that memory stays bounded."""
    if predictive.latent_mean.shape[-2] <= BLOCK:
        return fn(predictive, *rows)
    mean, cov = _components(predictive)

    def one(row):
        mean, cov, index, *rest = row
        part = Predictive(predictive.likelihood, mean[:, None], cov[:, None], None if index is None else index[None])
        return fn(part, *(r[None] for r in rest))[0]

    return jax.lax.map(one, (mean.swapaxes(0, 1), cov.swapaxes(0, 1), predictive.index, *rows), batch_size=BLOCK)


def _components(p: Predictive) -> tuple[Array, Array]:
    """Mean and covariance with the axis S of the mixture, 1 if there is none."""
    return (p.latent_mean, p.latent_cov) if p.latent_mean.ndim == 3 else (p.latent_mean[None], p.latent_cov[None])


def _each(p: Predictive, fn: Callable[[Array, Array], Array]) -> Array:
    """fn(mean, cov) for each component of the mixture, stacked along a leading axis."""
    mean, cov = _components(p)
    return fn(mean[0], cov[0])[None] if len(mean) == 1 else jax.vmap(fn)(mean, cov)


def _moments(p: Predictive) -> tuple[Array, Array]:
    both = _each(p, lambda m, c: jnp.stack(p.likelihood.predictive_moments(m, c, index=p.index)))
    first, second = both[:, 0], both[:, 1]
    if len(both) == 1:  # either may have overflowed
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


def _cdf(p: Predictive, y: Array) -> Array:
    """0 and 1 beyond the ends of the support, where a likelihood need not know its cdf."""
    ends = np.array([_ENDS[s.kind] for s in p.likelihood.supports])
    lower, upper = jnp.asarray(ends[None, :, 0], y.dtype), jnp.asarray(ends[None, :, 1], y.dtype)
    inside = jnp.where((y <= lower) | (y >= upper), jnp.asarray(p.likelihood.fill, y.dtype), y)
    cdf = jnp.mean(_each(p, lambda m, c: p.likelihood.predictive_cdf(m, c, inside, index=p.index)), axis=0)
    return jnp.where(y <= lower, 0.0, jnp.where(y >= upper, 1.0, cdf))


def _probabilities(p: Predictive) -> Array:
    num = p.likelihood.class_count()
    assert num is not None

    def one(m, c):
        P = 1 if p.likelihood.joint else m.shape[-1]
        labels = jnp.broadcast_to(jnp.arange(num, dtype=m.dtype)[:, None, None], (num, m.shape[0], P))
        each = jax.vmap(lambda y: p.likelihood.predictive_log_prob(m, c, y, index=p.index))(labels)
        return jnp.moveaxis(jnp.exp(each), 0, -1)

    each = jnp.mean(_each(p, one), axis=0)
    return each / jnp.sum(each, axis=-1, keepdims=True)  # quadrature leaves their sum 1e-5 off


def as_shape(shape: Any) -> tuple[int, ...]:
    """A number of samples, or a shape of them, as a shape.

    >>> as_shape(3), as_shape((2, 3))
    ((3,), (2, 3))
    >>> as_shape(2.5)
    Traceback (most recent call last):
        ...
    ValueError: shape must be a number of samples or a tuple of such numbers, got 2.5.
    """
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    if not all(isinstance(n, numbers.Integral) and n >= 0 for n in sizes):
        raise ValueError(f"shape must be a number of samples or a tuple of such numbers, got {shape!r}.")
    return tuple(int(n) for n in sizes)


def refuse_variances_alone(correlated: bool, method: str) -> None:
    """The error of samples of correlated outputs by their variances alone."""
    if correlated:
        raise ValueError(
            "the outputs are correlated, but only their variances were computed; to sample them use "
            f"{method}(X, output_cov=True)."
        )


@default_jit
def _sample(p: Predictive, key: Array, shape: tuple[int, ...]) -> Array:
    latent, label = jax.random.split(key)
    f = sample_mixture(*_components(p), latent, shape)
    with lenient():
        return p.likelihood.distribution(f, index=p.index).sample(label).astype(f.dtype)


def sample_mixture(
    mean: Float[Array, "S N F"], cov: Float[Array, "S N F ..."], key: Array, shape: tuple[int, ...]
) -> Float[Array, "*shape N F"]:
    """Values of f for each input by itself, of a component of the mixture each; cov is [S, N, F] or [S, N, F, F]."""
    S, N, F = mean.shape
    pick, noise = jax.random.split(key)
    s = jax.random.randint(pick, (*shape, N), 0, S)
    n = jnp.broadcast_to(jnp.arange(N), s.shape)
    z = jax.random.normal(noise, (*shape, N, F), mean.dtype)
    if cov.ndim == mean.ndim:
        return mean[s, n] + safe_sqrt(cov[s, n]) * z

    def one(item):  # one input at a time: roots of all samples would not fit
        cov, s, z = item
        roots = jax.vmap(sampling_root)(cov)
        return z @ roots[0].T if S == 1 else jnp.einsum("...fg,...g->...f", roots[s], z)

    deviations = jax.lax.map(one, (jnp.swapaxes(cov, 0, 1), jnp.moveaxis(s, -1, 0), jnp.moveaxis(z, -2, 0)))
    return mean[s, n] + jnp.moveaxis(deviations, 0, -2)


def sampling_root(cov: Float[Array, "F F"]) -> Float[Array, "F F"]:
    """A root of a covariance that may be singular, or zero, to within a jitter that samples do not show."""
    diagonal = jnp.diagonal(cov)
    lift = jnp.maximum(diagonal, float(jnp.finfo(cov.dtype).tiny) ** 0.5) - diagonal
    return Dense(cov + jnp.diag(lift), default_jitter(cov.dtype)).root


def _quantile(p: Predictive, q: Array) -> Array:
    mean, variance = _moments(p)
    supports = p.likelihood.supports
    kinds = [s.kind for s in supports] * (mean.shape[-1] if len(supports) == 1 else 1)
    found = {kind: _SEARCH[kind](lambda y: _cdf(p, y), q, mean, variance) for kind in dict.fromkeys(kinds)}
    return jnp.stack([found[kind][:, i] for i, kind in enumerate(kinds)], axis=-1)


def _search_real(cdf, q, mean, variance):
    """y = location + scale·sinh(t): t is searched, so that scales of any size and heavy tails are reached."""
    scale = jnp.where(jnp.isfinite(variance) & (variance > 0), jnp.sqrt(variance), 1.0)
    location = jnp.where(jnp.isfinite(mean), mean, 0.0)
    reach = jnp.full_like(mean, 40.0)
    t = crossing(lambda t: cdf(location + scale * jnp.sinh(t)) - q, -reach, reach, _steps(mean))
    return location + scale * jnp.sinh(t)


def _search_positive(cdf, q, mean, variance):
    reach = jnp.full_like(mean, 0.98 * math.log(float(jnp.finfo(mean.dtype).max)))
    return jnp.exp(crossing(lambda t: cdf(jnp.exp(t)) - q, -reach, reach, _steps(mean)))


def _search_unit(cdf, q, mean, variance):
    """y = sigmoid(t), searched in t: shares may crowd at 0 as closely as the dtype can tell, and round to 1."""
    info = jnp.finfo(mean.dtype)
    lower, upper = (
        jnp.full_like(mean, 0.98 * math.log(float(info.tiny))),
        jnp.full_like(mean, -1.1 * math.log(float(info.eps))),
    )
    return jax.nn.sigmoid(crossing(lambda t: cdf(jax.nn.sigmoid(t)) - q, lower, upper, _steps(mean)))


def _search_count(cdf, q, mean, variance):
    """The smallest whole number with cdf ≥ q, bit by bit: exact, up to the last integer the dtype can hold.

    A cdf may cost milliseconds, so no bits are tried beyond the first 2ᵏ − 1 that is large enough for all.
    """
    bits = 52 if mean.dtype == jnp.float64 else 23
    powers = jnp.asarray(2.0 ** np.arange(bits), mean.dtype)  # exactly, as jnp.exp2 is not

    def too_small(k):
        return (k < bits) & jnp.any(cdf(jnp.broadcast_to(powers[k] - 1, mean.shape)) < q)

    def step(i, position):
        trial = position + powers[top - 1 - i]
        return jnp.where(cdf(trial) < q, trial, position)

    top = jax.lax.while_loop(too_small, lambda k: k + 1, jnp.zeros((), int))
    return jax.lax.fori_loop(0, top, step, jnp.full_like(mean, -1.0)) + 1


_ENDS = {"real": (-np.inf, np.inf), "positive": (0.0, np.inf), "unit": (0.0, 1.0), "count": (-np.inf, np.inf)}


def _steps(mean: Array) -> int:
    """So many that a step of Newton's does the rest."""
    return 34 if mean.dtype == jnp.float64 else 22


_SEARCH = {"real": _search_real, "positive": _search_positive, "unit": _search_unit, "count": _search_count}


def gaussian_log_prob(y: Array, mean: Array, cov: Array, noise: Array, present: Array) -> Array:
    """log N(y | mean, cov + noise) of the labels that are present: all arrays [...] but cov [n, n], n labels in all.

    >>> one = jnp.ones(1)
    >>> round(float(gaussian_log_prob(0 * one, 0 * one, 0.5 * one[None], 0.5 * one, one > 0)), 4)
    -0.9189
    """
    # A missing label becomes an independent standard normal of value zero; its constant is left out.
    seen = present.reshape(-1)
    residual = jnp.where(seen, (y - mean).reshape(-1), 0.0)
    K = jnp.where(seen[:, None] & seen[None, :], cov, 0.0) + jnp.diag(jnp.where(seen, noise.reshape(-1), 1.0))
    K = Dense(K)
    a = K.root_solve(residual[:, None])
    return -0.5 * (jnp.sum(a**2) + K.logdet() + jnp.sum(seen).astype(a.dtype) * math.log(2.0 * math.pi))
