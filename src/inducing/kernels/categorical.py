"""A kernel on categories that depends only on whether they are equal."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points, check_size
from inducing.parameters import positive, unit_interval


class Categorical(AbstractKernel):
    """Kernel on categories: each column in which two points differ multiplies their covariance by ρ.

        k(x, y) = σ² Π_d ρ_d^{1{x_d ≠ y_d}}

    This is an exponential of the Hamming distance, ρ_d = exp(−1/ℓ_d). All pairs of categories are equally similar,
    and predictions may contain new categories. To learn a correlation for each pair of categories use `Coregion`.
    The columns contain category numbers. Use another kernel for the other columns:

        ActiveDims(Matern52(), (0, 1)) * ActiveDims(Categorical(), (2,))

    Inducing inputs must be categories too, and are not trained here: the kernel is constant between them. Choose them
    among the rows of the data by `ig.initialise.random_subset`.

    Args:
        correlation: ρ, strictly between 0 and 1, one number or one for each column [D].
        variance: σ².

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.Categorical(correlation=[0.5, 0.2], variance=2.0)
        >>> k.gram(jnp.array([[0.0, 3.0], [1.0, 3.0], [1.0, 4.0]])).round(6).tolist()
        [[2.0, 1.0, 0.2], [1.0, 2.0, 0.4], [0.2, 0.4, 2.0]]
    """

    correlation: Float[Array, "..."] = unit_interval(0.5)
    variance: Float[Array, ""] = positive(1.0)
    smoothness: ClassVar[int | float] = 0

    @property
    def continuous_smoothness(self) -> int | float:
        return math.inf  # all columns contain categories

    def check_inputs(self, X: np.ndarray) -> None:
        wrong = X[~((np.abs(X - np.round(X)) <= 1e-6) & (X > -0.5))]
        if wrong.size:
            raise ValueError(
                f"Categorical's inputs must hold whole numbers from 0, got {wrong[0]}; choose inducing inputs among "
                "the rows of the data (not means of rows) by ig.initialise.random_subset, and other columns by "
                "ActiveDims."
            )

    def _rho(self, dim: int) -> Float[Array, " D"]:
        check_size(self, "correlation", self.correlation, dim)
        return jnp.broadcast_to(self.correlation, (dim,))

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        rho = self._rho(x.shape[-1])
        return self.variance * jnp.prod(jnp.where(jnp.round(x) == jnp.round(y), 1.0, rho))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        X, X2 = jnp.round(X), jnp.round(X if X2 is None else X2)
        rho = self._rho(X.shape[1])
        K = jnp.broadcast_to(self.variance, (len(X), len(X2)))
        for d in range(X.shape[1]):
            K = K * jnp.where(X[:, d, None] == X2[None, :, d], 1.0, rho[d])
        return K

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.broadcast_to(self.variance, X.shape[:1])

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        # A feature is a product over the columns; a factor is 1 with probability ρ, else a random sign of the category.
        rho = self._rho(dim)
        shared, signs = jax.random.split(key)
        ones = jax.random.uniform(shared, (dim, num), rho.dtype) < rho[:, None]

        def sign(column: Array, category: Array) -> Array:
            own = jax.random.fold_in(jax.random.fold_in(signs, column), category)
            return jax.random.rademacher(own, (num,), rho.dtype)

        def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
            columns = jnp.arange(dim)
            each = jax.vmap(lambda x: jax.vmap(sign)(columns, jnp.round(x).astype(int)))(X)
            return jnp.sqrt(self.variance / num) * jnp.prod(jnp.where(ones[None], 1.0, each), axis=1)

        return features
