"""Exact Gaussian-process regression, for small data and as the truth that sparse ones are measured by."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..covariance import Dense
from ..data import Data, as_inputs
from ..parameters import Module, dtype_of
from .base import AbstractPrior


class ExactGP(Module):
    """The posterior of f given y = f(X) + ε, ε ~ N(0, σ²) (eq:cond_gp with u = y): O((NP)³), without jitter.

    Missing labels (NaN in y) are left out. `noise_variance` is a scalar, one value for each output [P], or one
    for each label [N, P].

    >>> import inducing as ig
    >>> exact = ig.GP(ig.kernels.SquaredExponential()).condition([0.0, 1.0], [1.0, 2.0], noise_variance=0.1)
    >>> exact.covariance([0.5, 0.7]).shape
    (2, 2)
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
        noise = jnp.broadcast_to(jnp.asarray(noise_variance, dtype), target.shape).reshape(-1)
        self._seen = mask.reshape(-1)
        residual = jnp.where(self._seen, (target - prior.mean(x)).reshape(-1), 0.0)
        # A missing label becomes an independent standard normal of value zero: it changes nothing.
        keep = self._seen[:, None] & self._seen[None, :]
        K = jnp.where(keep, prior.covariance(x), 0.0) + jnp.diag(jnp.where(self._seen, noise, 1.0))
        self._Kyy = Dense(K, 0.0)
        self._residual = residual[:, None]

    @property
    def log_marginal_likelihood(self) -> Float[Array, ""]:
        """log p(y | X), the evidence."""
        a = self._Kyy.root_solve(self._residual)
        n = jnp.sum(self._seen).astype(a.dtype)
        return -0.5 * (jnp.sum(a**2) + self._Kyy.logdet() + n * np.log(2.0 * np.pi))

    def _cross(self, X: Array) -> Array:
        assert self.data.x is not None
        return jnp.where(self._seen[:, None], self.prior.covariance(self.data.x, X), 0.0)

    def mean(self, X: Any) -> Float[Array, "N P"]:
        """E[f(X) | y]."""
        X = as_inputs(X, self._residual.dtype)
        mean = self._cross(X).T @ self._Kyy.solve(self._residual)
        return self.prior.mean(X) + mean.reshape(-1, self.prior.num_outputs)

    def covariance(self, X: Any) -> Float[Array, "NP NP"]:
        """Cov[f(X) | y], flattened datum by datum."""
        X = as_inputs(X, self._residual.dtype)
        A = self._Kyy.root_solve(self._cross(X))
        return self.prior.covariance(X) - A.T @ A

    def variance(self, X: Any) -> Float[Array, "N P"]:
        """Var[f(X) | y]."""
        return jnp.diagonal(self.covariance(X)).reshape(-1, self.prior.num_outputs)
