"""Kernels of directions: functions of the angle between inputs, for features on the sphere."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.kernels.base import AbstractKernel, FeatureMap, as_inputs, check_size
from inducing.kernels.distance import squared_distance, squared_distance_self
from inducing.kernels.dot_product import arc_cosine_0, arc_cosine_1, arc_cosine_2
from inducing.kernels.stationary import AbstractStationary, fourier_features, weighted_frequencies
from inducing.parameters import as_whole, positive


class AbstractZonal(AbstractKernel):
    """k(x, y) = |wx|ⁿ |wy|ⁿ g(|x̂ − ŷ|²), x̂ = wx/|wx|: a function of the angle between scaled inputs, of degree n.

    `scale` is w, one number or one for each column. Data of ℝᵈ are brought to the sphere in ℝᵈ⁺¹ by a constant last
    column (`with_bias`), whose scale is the bias: far inputs then differ in direction the less the farther they are.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.SphericalArcCosine(1)      # degree 1: k(2x, y) = 2 k(x, y)
    >>> x, y = jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0])
    >>> float(k(2.0 * x, y) / k(x, y))
    2.0
    """

    scale: eqx.AbstractVar[Float[Array, "..."]]

    @property
    @abc.abstractmethod
    def degree(self) -> int:
        """n: how draws grow along rays from the origin."""

    @abc.abstractmethod
    def angular(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        """g(s) at squared distances s = 2 − 2 cos θ of unit vectors."""

    def polar(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D"], Float[Array, " N"]]:
        """Unit vectors x̂ and |wx|ⁿ; the origin has no direction, x̂ = 0."""
        check_size(self, "scale", self.scale, X.shape[1])
        U = X * jnp.broadcast_to(self.scale, X.shape)
        square = jnp.sum(U * U, axis=1)
        size = jnp.where(square > 0, square, 1.0)
        power = size ** (0.5 * self.degree)
        return U / jnp.sqrt(size)[:, None], power if self.degree == 0 else jnp.where(square > 0, power, 0.0)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        (u, a), (v, b) = self.polar(x[None, :]), self.polar(y[None, :])
        return a[0] * b[0] * self.angular(jnp.sum((u - v) ** 2))

    def gram(self, X, X2=None):
        X, X2 = as_inputs(self, X, X2)
        U, a = self.polar(X)
        one = jnp.ones(U.shape[1], U.dtype)
        rough = self.smoothness < 1
        if X2 is None:
            b, s = a, squared_distance_self(U, one, rough)
        else:
            V, b = self.polar(X2)
            s = squared_distance(U, V, one, rough)
        return (a[:, None] * b[None, :]) * self.angular(s)

    def diag(self, X):
        X, _ = as_inputs(self, X)
        return self.polar(X)[1] ** 2 * self.angular(jnp.zeros((), X.dtype))


class Spherical(AbstractZonal):
    """k(x, y) = k'(x̂, ŷ): a stationary kernel (Matérn, squared exponential, …) of directions.

    The distance is that through the sphere, |x̂ − ŷ|, so the lengthscale is one number, and 2 is the far side.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.Spherical(ig.kernels.Matern32(lengthscale=0.5))
    >>> x, y = jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0])
    >>> bool(jnp.allclose(k(2.0 * x, y), k(x, y)))      # only the direction counts
    True
    """

    kernel: AbstractStationary
    scale: Float[Array, "..."] = positive(1.0)

    def __check_init__(self):
        if not isinstance(self.kernel, AbstractStationary) or self.kernel.lengthscale.size != 1:
            raise TypeError(
                "Spherical needs a stationary kernel with one lengthscale, such as ig.kernels.Matern32(); different "
                "dimensions are weighed by `scale`."
            )

    @property
    def smoothness(self) -> int | float:
        return self.kernel.smoothness

    @property
    def degree(self) -> int:
        return 0

    def angular(self, s):
        return self.kernel.variance * self.kernel.profile(s / self.kernel.lengthscale.reshape(()) ** 2)

    def amplitude(self) -> list[tuple[Array, float]]:
        return self.kernel.amplitude()

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        omega, variance = weighted_frequencies(self.kernel, key, -(-num // 2), dim)
        features = fourier_features(omega / self.kernel.lengthscale.reshape(()), variance)
        return lambda X: features(self.polar(X)[0])


class SphericalArcCosine(AbstractZonal):
    """k(x, y) = σ²/π |wx|ⁿ |wy|ⁿ Jₙ(θ): the `ArcCosine` kernel without its own bias, order n = 0, 1 or 2.

    On inputs `with_bias` it is `ArcCosine` with weight variances `scale`², the last of which is the bias variance.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.SphericalArcCosine(order=1, scale=[1.0, 2.0])
    >>> same = ig.kernels.ArcCosine(order=1, bias_variance=4.0)
    >>> X = jnp.array([[0.3], [-2.0]])
    >>> bool(jnp.allclose(k.gram(ig.kernels.with_bias(X)), same.gram(X)))
    True
    """

    order: int = eqx.field(static=True, converter=as_whole)
    variance: Float[Array, ""] = positive(1.0)
    scale: Float[Array, "..."] = positive(1.0)

    def __check_init__(self):
        if isinstance(self.order, bool) or self.order not in (0, 1, 2):
            raise ValueError(f"SphericalArcCosine.order must be 0, 1 or 2, got {self.order!r}.")

    @property
    def smoothness(self) -> int | float:
        return self.order

    @property
    def degree(self) -> int:
        return self.order

    def angular(self, s):
        return self.variance * (arc_cosine_0, arc_cosine_1, arc_cosine_2)[self.order](s) / math.pi

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        W = jax.random.normal(key, (dim, num), self.variance.dtype)

        def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
            A = (X * jnp.broadcast_to(self.scale, X.shape)) @ W
            return jnp.sqrt(2.0 * self.variance / num) * jnp.where(A > 0, A**self.order, 0.0)

        return features


def with_bias(X: Any) -> Float[Array, "N E"]:
    """X [N, D] with a column of ones: data of ℝᴰ as directions in ℝᴰ⁺¹.

    >>> import jax.numpy as jnp
    >>> with_bias(jnp.zeros((2, 1))).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    X = jnp.asarray(X)
    return jnp.concatenate([X, jnp.ones((X.shape[0], 1), X.dtype)], axis=1)
