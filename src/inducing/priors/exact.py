"""Exact Gaussian-process regression, for small data and as a reference for sparse approximations."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.data import Data, as_inputs
from inducing.linalg import Dense
from inducing.parameters import Module, dtype_of
from inducing.priors.base import AbstractPrior, mix_variance


class ExactGP(Module):
    """The exact posterior of f given labels with Gaussian noise (eq:cond_gp with u = y).

        y = f(X) + ε,    ε ~ N(0, σ²)

    The computation takes O((N P)³) and adds no jitter. Missing labels (NaN in y) are left out.

    Args:
        prior: the prior of f, with P outputs.
        X: inputs [N, D], or [N] for D = 1.
        y: labels [N, P], or [N] for P = 1; NaN where missing.
        noise_variance: σ², one number, or one for each output [P], datum [N] or label [N, P]. It may be 0, for
            interpolation, if the covariance of the labels is regular.

    Raises:
        ValueError: if the shapes do not fit, or the covariance of the labels is not positive definite.

    Examples:
        >>> import inducing as ig
        >>> exact = ig.GP(ig.kernels.SquaredExponential()).condition([0.0, 1.0], [1.0, 2.0], noise_variance=0.0)
        >>> exact.mean([0.0, 1.0]).round(6).tolist(), exact.covariance([0.5, 0.7]).shape      # it interpolates
        ([[1.0], [2.0]], (2, 2))
    """

    prior: AbstractPrior
    data: Data
    _Kyy: Dense
    _residual: Float[Array, "NP 1"]
    _seen: Array

    def __init__(self, prior: AbstractPrior, X: Any, y: Any, noise_variance: Any):
        self.prior = prior
        dtype = dtype_of(prior)
        self.data = Data(X, y).astype(dtype)
        x, target, mask = self.data.x, self.data.y, self.data.mask
        if x is None or target is None or mask is None:
            raise ValueError("conditioning needs inputs X and labels y; got None.")
        if target.shape[1] != prior.num_outputs:
            raise ValueError(f"y has {target.shape[1]} columns but the prior has {prior.num_outputs} outputs.")
        noise = _noise(noise_variance, target, mask).reshape(-1)
        self._seen = mask.reshape(-1)
        residual = jnp.where(self._seen, (target - prior.mean(x)).reshape(-1), 0.0)
        # A missing label is treated as an independent standard normal variable of value zero, which changes nothing.
        keep = self._seen[:, None] & self._seen[None, :]
        K = jnp.where(keep, prior.covariance(x), 0.0) + jnp.diag(jnp.where(self._seen, noise, 1.0))
        self._Kyy = Dense(K, 0.0)
        _check_regular(self._Kyy, jnp.min(jnp.where(self._seen, noise, jnp.inf)))
        self._residual = residual[:, None]

    @property
    def log_marginal_likelihood(self) -> Float[Array, ""]:
        """The log marginal likelihood log p(y | X), also called the evidence."""
        a = self._Kyy.root_solve(self._residual)
        n = jnp.sum(self._seen).astype(a.dtype)
        return -0.5 * (jnp.sum(a**2) + self._Kyy.logdet() + n * math.log(2.0 * math.pi))

    def _cross(self, X: Array) -> Array:
        assert self.data.x is not None
        return jnp.where(self._seen[:, None], self.prior.covariance(self.data.x, X), 0.0)

    def mean(self, X: Any) -> Float[Array, "N P"]:
        """Compute the posterior mean E[f(X) | y] [N, P] at inputs X [N, D]."""
        X = as_inputs(X, self._residual.dtype)
        mean = self._cross(X).T @ self._Kyy.solve(self._residual)
        return self.prior.mean(X) + mean.reshape(-1, self.prior.num_outputs)

    def covariance(self, X: Any) -> Float[Array, "NP NP"]:
        """Compute the posterior covariance Cov[f(X) | y] [N·P, N·P] at inputs X [N, D], flattened datum by datum."""
        X = as_inputs(X, self._residual.dtype)
        A = self._Kyy.root_solve(self._cross(X))
        return self.prior.covariance(X) - A.T @ A

    def variance(self, X: Any) -> Float[Array, "N P"]:
        """Compute the posterior variance Var[f(X) | y] [N, P] at inputs X [N, D]."""
        X = as_inputs(X, self._residual.dtype)
        prior = mix_variance(self.prior, self.prior.Kff_diag(X))
        A = self._Kyy.root_solve(self._cross(X))
        return prior - jnp.sum(A**2, axis=0).reshape(prior.shape)


def _noise(value: Any, y: Float[Array, "N P"], mask: Array) -> Float[Array, "N P"]:
    """Broadcast the noise variances to all labels, and check them where they are concrete."""
    value = jnp.asarray(value, y.dtype)
    N, P, given = *y.shape, list(value.shape)
    if value.ndim == 1 and value.shape[0] not in (1, P):
        value = value[:, None]
    if value.ndim > 2 or any(n not in (1, m) for n, m in zip(value.shape[::-1], (P, N), strict=False)):
        raise ValueError(
            f"noise_variance has shape {given}; pass one number, or [{P}], [{N}] or [{N}, {P}] for each "
            "output, datum or label."
        )
    noise = jnp.broadcast_to(value, (N, P))
    if not any(isinstance(a, jax.core.Tracer) for a in (noise, mask)):
        seen = np.asarray(noise)[np.asarray(mask)]
        bad = seen[~(np.isfinite(seen) & (seen >= 0))]
        if bad.size:
            raise ValueError(f"noise_variance must be finite and at least 0, got {bad[0]}; pass the variance of y − f.")
    return noise


def _check_regular(Kyy: Dense, noise: Float[Array, ""]) -> None:
    """Raise a ValueError if jitter was added, since the posterior would be that of another model."""
    if not isinstance(Kyy.jitter, jax.core.Tracer) and not Kyy.jitter == 0:
        raise ValueError(
            f"the covariance of the labels is not positive definite with noise_variance {noise:.3g}; pass a larger "
            "noise_variance, or drop repeated inputs."
        )
