"""A kernel of a categorical input."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points
from inducing.parameters import positive, real


class Coregion(AbstractKernel):
    """Kernel of a categorical input: a covariance matrix of low rank plus a diagonal.

        k(i, j) = (W Wᵀ + diag κ)_ij,    i, j = 0, …, P − 1

    The inputs are one column [N, 1] of category numbers. If the categories are in column d of wider inputs, use
    `ActiveDims(Coregion(W, kappa), (d,))`.

    Args:
        W: the factors [P, rank] that the categories share.
        kappa: κ, the variance of each category's own part [P].

    Raises:
        ValueError: if W is not a matrix, or if kappa does not have one entry for each row of W.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.Coregion(W=[[1.0], [2.0]], kappa=[0.5, 0.5])
        >>> k.gram(jnp.array([[0.0], [1.0]])).tolist()
        [[1.5, 2.0], [2.0, 4.5]]
    """

    W: Float[Array, "P rank"] = real()
    kappa: Float[Array, " P"] = positive()
    smoothness: ClassVar[int | float] = 0

    def __check_init__(self):
        if self.W.ndim != 2 or self.kappa.shape != self.W.shape[:1]:
            raise ValueError(
                f"Coregion needs W of shape [P, rank] and kappa of shape [P], got W {list(self.W.shape)} "
                f"and kappa {list(self.kappa.shape)}."
            )

    @property
    def continuous_smoothness(self) -> int | float:
        return math.inf  # the only column contains categories

    def _index(self, X: Float[Array, "... D"]) -> Int[Array, "..."]:
        if X.shape[-1] != 1:
            raise ValueError(
                f"Coregion takes one column of category numbers, but X has {X.shape[-1]} columns; "
                "choose it with ActiveDims(Coregion(...), (column,))."
            )
        if not isinstance(X, jax.core.Tracer):
            self.check_inputs(np.atleast_2d(np.asarray(X)))
        return jnp.round(X[..., 0]).astype(int)

    def check_inputs(self, X: np.ndarray) -> None:
        P = self.W.shape[0]
        whole = np.round(X)
        wrong = X[~((np.abs(X - whole) <= 1e-6) & (whole >= 0) & (whole < P))]
        if wrong.size:
            raise ValueError(
                f"Coregion's input must hold whole numbers from 0 to {P - 1}, got {wrong[0]}; choose inducing inputs "
                "among the rows of the data (not means of rows) by ig.initialise.random_subset."
            )

    def _matrix(self) -> Float[Array, "P P"]:
        return self.W @ self.W.T + jnp.diag(self.kappa)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self._matrix()[self._index(x), self._index(y)]

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        i = self._index(X)
        j = i if X2 is None else self._index(X2)
        return self._matrix()[i][:, j]

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return (jnp.sum(self.W**2, axis=1) + self.kappa)[self._index(X)]

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        table = jnp.concatenate([self.W, jnp.diag(jnp.sqrt(self.kappa))], axis=1)
        return lambda X: table[self._index(X)]
