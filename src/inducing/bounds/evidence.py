"""The exact log marginal likelihood of models with Gaussian noise."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from inducing._xla import check_memory
from inducing.bounds.collapsed import optimal_q
from inducing.bounds.conjugate import Conjugate
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.terms import counts, inputs, labels
from inducing.data import Data
from inducing.linalg.halved import Halves, depth, log_density
from inducing.model import Model
from inducing.priors.base import AbstractPrior


class _LogEvidence(AbstractBound):
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, optimal_q)


@_LogEvidence
def log_evidence(model: Model, data: Any) -> Float[Array, ""]:
    """The exact log marginal likelihood of the prior under the model's Gaussian likelihood.

        log p(y) = log N(y | μ, Kff + Σ),    Σ the noise

    A row of weight w has the likelihood N(y | f, σ²)^w, which is N(y | f, σ²/w) times a constant.

    It does not depend on the features. For n = NP labels, value and gradient take n³ operations, nearly all of them in
    matrix products, and memory for about five triangles of n²/2 numbers: 180 MB for n = 3,000 in float64. As an
    objective, `ig.fit(model, data, objective=ig.log_evidence)` trains an exact GP.

    Args:
        model: one `SparseGP` layer with a Gaussian likelihood. Its features and q(u) do not matter.
        data: (X, y) or `ig.Data`, all of them.

    Returns:
        The log marginal likelihood, one number.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if the data do not fit the model, or if the covariance of the labels is not positive definite, or so
            nearly singular that the value would be dominated by rounding errors. (In compiled code the value is then
            NaN.)

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> bool(ig.log_evidence(model, data) >= ig.collapsed_elbo(model, data))
        True
    """
    conjugate = Conjugate(model)
    count, noise = counts(data), conjugate.noise(data)
    value = log_density(*_residuals(conjugate, data)) - _constant(count, noise)
    if not isinstance(value, jax.core.Tracer) and not jnp.isfinite(value):
        noise = jnp.min(jnp.where(count > 0.0, noise, jnp.inf))
        raise ValueError(
            "the covariance of the labels is not positive definite up to rounding with a noise variance of "
            f"{noise:.3g}; pass a larger one, or drop repeated inputs."
        )
    return value


def _constant(count: Float[Array, "N P"], noise: Float[Array, "N P"]) -> Float[Array, ""]:
    """½ log 2π for each label; for one that counts w times, ½ (w log 2πσ² − log σ²/w)."""
    seen = count > 0.0
    count = jnp.where(seen, count, 1.0)
    each = count * math.log(2.0 * math.pi) + (count - 1.0) * jnp.log(noise) + jnp.log(count)
    return 0.5 * jnp.sum(jnp.where(seen, each, 0.0))


def _residuals(conjugate: Conjugate, data: Data) -> tuple[Any, Float[Array, " n"]]:
    """The covariance Kff + Σ of the labels as `Halves`, and y − μ, flattened datum by datum.

    Rows are padded, so that matrices can be halved. The padding, and labels that do not count, are treated as
    independent standard normal variables with the value 0. They add only a constant, which `_constant` leaves out.
    """
    prior, (N, P) = conjugate.layer.prior, labels(data)[0].shape
    triangles = (5, N * P, N * P // 2)
    check_memory("the evidence", triangles, labels(data)[0].dtype, "use ig.collapsed_elbo, or fewer rows")
    blocks = 2 ** depth(N * P)
    extra = -N % blocks

    def padded(a: Array, **how: Any) -> Array:
        return jnp.pad(a, [(0, extra)] + [(0, 0)] * (a.ndim - 1), **how)

    y, count = labels(data)[0], counts(data)
    x, seen = padded(inputs(data), mode="edge"), padded(count > 0.0).reshape(-1)  # a kernel may not be finite at 0
    r = padded(jnp.where(count > 0.0, y - prior.mean(inputs(data)), 0.0)).reshape(-1)
    noise = conjugate.noise(data) / jnp.where(count > 0.0, count, 1.0)
    noise = jnp.where(seen, padded(noise).reshape(-1), 1.0)
    return _covariance(prior, x, seen, noise, blocks), r


def _covariance(prior: AbstractPrior, x: Array, seen: Array, noise: Array, blocks: int) -> Any:
    """Kff + Σ as `Halves`. All blocks of one size are computed at once, so that each size is compiled once."""

    def cut(a: Array, pieces: int) -> Array:
        return a.reshape(pieces, -1, *a.shape[1:])

    def masked(K: Array, rows: Bool[Array, " n"], columns: Bool[Array, " m"]) -> Array:
        return jnp.where(rows[:, None] & columns[None, :], K, 0.0)

    def own(x: Array, seen: Array, noise: Array) -> Array:
        return masked(prior.covariance(x), seen, seen) + jnp.diag(noise)

    def between(x: Array, seen: Array) -> Array:
        return masked(prior.covariance(x[0], x[1]), seen[0], seen[1])

    parts = list(jax.vmap(own)(cut(x, blocks), cut(seen, blocks), cut(noise, blocks)))
    while (pairs := len(parts) // 2) > 0:
        halves = (cut(a, 2 * pairs).reshape(pairs, 2, -1, *a.shape[1:]) for a in (x, seen))
        above = jax.vmap(between)(*halves)
        parts = [Halves(parts[2 * i], above[i], parts[2 * i + 1]) for i in range(pairs)]
    return parts[0]
