"""A sum of functions of single columns."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from inducing._xla import apart
from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points, check_size
from inducing.kernels.starting_values import column_spread, start_lengthscale
from inducing.parameters import FAR, Start, positive


class Additive(AbstractKernel):
    """The covariance of a sum of independent functions, one of each column (Duvenaud et al. 2011, first order).

        k(x, y) = Σ_d σ_d² exp(−½ ((x_d − y_d)/ℓ_d)²)

    What one column adds does not depend on the others, so that few data are enough in many columns. Add it to a kernel
    of all columns, which then explains the interactions: `Matern52(np.ones(D)) + Additive(np.ones(D))`.

    Args:
        lengthscale: ℓ, one number or one for each column [D].
        variance: σ², the prior variances of the functions, one number or one for each column [D].

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.Additive(lengthscale=[1.0, 1.0], variance=[2.0, 3.0])
        >>> round(float(k(jnp.zeros(2), jnp.array([0.0, 99.0]))), 6)  # far apart in the second column
        2.0
    """

    lengthscale: Float[Array, "..."] = positive(1.0)
    variance: Float[Array, "..."] = positive(1.0)
    smoothness: ClassVar[int | float] = math.inf

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        lengthscale, variance = self._columns(x)
        return jnp.sum(variance * jnp.exp(-0.5 * ((x - y) / lengthscale) ** 2))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        Z = X if X2 is None else X2
        return _gram(X, Z, *self._columns(X))

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.broadcast_to(jnp.sum(self._columns(X)[1]), X.shape[:1])

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        pairs = -(-num // (2 * dim))  # a cosine and a sine for each frequency
        frequencies = jax.random.normal(key, (dim, pairs), self.lengthscale.dtype)

        def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
            lengthscale, variance = self._columns(X)
            angle = ((X / lengthscale[None])[:, :, None] * frequencies[None]).reshape(len(X), -1)
            scale = jnp.repeat(jnp.sqrt(variance / pairs), pairs)
            return jnp.concatenate([scale[None] * jnp.cos(angle), scale[None] * jnp.sin(angle)], axis=1)

        return features

    def start(self, x: np.ndarray) -> list[Start]:
        if self.lengthscale.shape != (x.shape[1],):
            return start_lengthscale(self.lengthscale, x)
        spread = column_spread(x)
        ratio = np.asarray(self.lengthscale, float) / spread
        return [Start(self.lengthscale, spread, bool((ratio > FAR).any() or (ratio < 1.0 / FAR).any()))]

    def lengthscales(self) -> list[Array]:
        return [self.lengthscale]

    def lengthscale_along(self, column: int) -> float:
        lengthscale = np.asarray(self.lengthscale, float)
        return float(lengthscale if lengthscale.ndim == 0 else lengthscale[column])

    def _columns(self, X: Float[Array, "..."]) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
        """ℓ and σ² of each column of X."""
        dim = X.shape[-1:]
        check_size(self, "lengthscale", self.lengthscale, dim[0])
        check_size(self, "variance", self.variance, dim[0])
        return jnp.broadcast_to(self.lengthscale, dim), jnp.broadcast_to(self.variance, dim)


def _gram(X: Array, Z: Array, lengthscale: Array, variance: Array) -> Float[Array, "N N2"]:
    """One column after the other, computed again for the derivative, so that no array is larger than the result."""

    @jax.checkpoint
    def one(x: Array, z: Array, scale: Array, size: Array) -> Array:
        return size * jnp.exp(-0.5 * ((x[:, None] - z[None, :]) / scale) ** 2)

    def add(total: Array, column: tuple[Array, ...]) -> tuple[Array, None]:
        return apart(total) + one(*column), None

    zero = jnp.zeros((len(X), len(Z)), jnp.result_type(X, Z, lengthscale))
    return lax.scan(add, zero, (X.T, Z.T, lengthscale, variance))[0]
