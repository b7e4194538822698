"""Kernels that ignore distances: a constant and white noise."""

import math
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points
from inducing.parameters import positive


class Constant(AbstractKernel):
    """Constant kernel, the covariance of one random number that is the same everywhere.

        k(x, y) = σ²

    Args:
        variance: σ².

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.kernels.Constant(2.0).gram(jnp.zeros((1, 1)), jnp.ones((2, 1))).tolist()
        [[2.0, 2.0]]
    """

    variance: Float[Array, ""] = positive(1.0)
    smoothness: ClassVar[int | float] = math.inf
    is_constant = True

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self.variance

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        return jnp.broadcast_to(self.variance, (X.shape[0], (X if X2 is None else X2).shape[0]))

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.broadcast_to(self.variance, X.shape[:1])

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        return lambda X: jnp.broadcast_to(jnp.sqrt(self.variance), (X.shape[0], 1))


class White(AbstractKernel):
    """White noise, whose values at different points are independent.

        k(x, y) = σ² if x = y in every coordinate, else 0

    Args:
        variance: σ².

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.kernels.White(0.5).gram(jnp.array([[0.0], [1.0]]), jnp.array([[1.0]])).tolist()
        [[0.0], [0.5]]
    """

    variance: Float[Array, ""] = positive(1.0)
    smoothness: ClassVar[int | float] = 0

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self.variance * jnp.all(x == y).astype(self.variance.dtype)

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        X2 = X if X2 is None else X2
        equal = jnp.all(X[:, None, :] == X2[None, :, :], axis=-1)
        return self.variance * equal.astype(self.variance.dtype)

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.broadcast_to(self.variance, X.shape[:1])

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        raise TypeError(
            "White has no random features: a white process has no function draws, its values at any two points are "
            "independent. Put the noise into the likelihood, or draw without the White term."
        )
