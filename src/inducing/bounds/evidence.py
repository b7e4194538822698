"""The exact log marginal likelihood of models with Gaussian noise."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from inducing.bounds.collapsed import optimal_q
from inducing.bounds.conjugate import Conjugate
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.terms import inputs, labels
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

    It does not depend on the features. For n = NP labels value and gradient take n³ operations, all but few of them
    in matrix products, and memory for about five triangles of n²/2 numbers: 160 MB for n = 3,000 in float64. As an
    objective, `ig.fit(model, data, objective=ig.log_evidence)` trains an exact GP.

    Args:
        model: one `SparseGP` layer with a Gaussian likelihood. Its features and q(u) do not matter.
        data: (X, y) or `ig.Data`, all of them.

    Returns:
        The log marginal likelihood, one number.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if the data do not fit the model, or the covariance of the labels is not positive definite. (In
            compiled code the value is then NaN.)

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> bool(ig.log_evidence(model, data) >= ig.collapsed_elbo(model, data))
        True
    """
    conjugate = Conjugate(model)
    mask = labels(data)[1]
    K, r = _residuals(conjugate, data)
    value = log_density(K, r) - 0.5 * math.log(2.0 * math.pi) * jnp.sum(mask, dtype=r.dtype)
    if not isinstance(value, jax.core.Tracer) and not jnp.isfinite(value):
        noise = jnp.min(jnp.where(mask, conjugate.noise(data), jnp.inf))
        raise ValueError(
            f"the covariance of the labels is not positive definite with a noise variance of {noise:.3g}; pass a "
            "larger one, or drop repeated inputs."
        )
    return value


def _residuals(conjugate: Conjugate, data: Data) -> tuple[Any, Float[Array, " n"]]:
    """The covariance Kff + Σ of the labels as `Halves`, and y − μ, flattened datum by datum.

    Rows are added until halves are equal. Their labels, and those that are missing, count as independent standard
    normal variables with the value 0, which changes nothing.
    """
    prior, (N, P) = conjugate.layer.prior, labels(data)[0].shape
    blocks = 2 ** depth(N * P)
    extra = -N % blocks

    def padded(a: Array, **how: Any) -> Array:
        return jnp.pad(a, [(0, extra)] + [(0, 0)] * (a.ndim - 1), **how)

    y, mask = labels(data)
    x, seen = padded(inputs(data), mode="edge"), padded(mask).reshape(-1)  # a kernel may not be finite at 0
    r = padded(jnp.where(mask, y - prior.mean(inputs(data)), 0.0)).reshape(-1)
    noise = jnp.where(seen, padded(conjugate.noise(data)).reshape(-1), 1.0)
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
