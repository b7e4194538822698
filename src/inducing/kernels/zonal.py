"""Zonal kernels: functions of the angle between inputs, for features on the sphere."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.kernels.base import AbstractKernel, FeatureMap, as_points, check_size
from inducing.kernels.distance import squared_distance, squared_distance_self
from inducing.kernels.dot_product import arc_cosine_0, arc_cosine_1, arc_cosine_2
from inducing.kernels.stationary import AbstractStationary, fourier_features, weighted_frequencies
from inducing.parameters import as_whole, positive


class AbstractZonal(AbstractKernel):
    """A kernel that is a function of the angle between scaled inputs, homogeneous of degree n.

        k(x, y) = |wx|ⁿ |wy|ⁿ g(|x̂ − ŷ|²),    x̂ = wx/|wx|

    To use such a kernel for data in ℝᵈ, add a constant last column with `with_bias`, which maps the data to directions
    in ℝᵈ⁺¹. The scale of that column is the bias. Inputs far from the origin then differ little in direction.

    A zonal kernel of your own declares the field `scale` (w, one number or one for each column [D]) and implements
    `degree`, `angular`, `smoothness` and `random_features`.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.SphericalArcCosine(1)      # degree 1: k(2x, y) = 2 k(x, y)
        >>> x, y = jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0])
        >>> float(k(2.0 * x, y) / k(x, y))
        2.0
    """

    _such_as = "a zonal kernel, such as ig.kernels.Spherical(ig.kernels.Matern52())"

    scale: eqx.AbstractVar[Float[Array, "..."]]

    @property
    @abc.abstractmethod
    def degree(self) -> int:
        """The degree n: draws grow as the n-th power of the distance from the origin."""

    @abc.abstractmethod
    def angular(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        """The function g.

        Args:
            s: squared distances s = 2 − 2 cos θ of unit vectors, of any shape.

        Returns:
            g(s), elementwise.
        """

    def polar(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D"], Float[Array, " N"]]:
        """The directions and sizes of points.

        Args:
            X: points [N, D].

        Returns:
            Unit vectors x̂ [N, D], which are 0 at the origin, and |wx|ⁿ [N].
        """
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
        X, X2 = as_points(self, X, X2)
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
        X, _ = as_points(self, X)
        return self.polar(X)[1] ** 2 * self.angular(jnp.zeros((), X.dtype))


class Spherical(AbstractZonal):
    """Stationary kernel of directions.

        k(x, y) = k'(x̂, ŷ),    x̂ = wx/|wx|

    Distances |x̂ − ŷ| are straight lines through the sphere; opposite points are at distance 2.

    Args:
        kernel: k', a stationary kernel with a single lengthscale.
        scale: w, one number or one for each column [D].

    Raises:
        TypeError: if the kernel is not stationary or has several lengthscales.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.Spherical(ig.kernels.Matern32(lengthscale=0.5))
        >>> x, y = jnp.array([1.0, 0.0]), jnp.array([1.0, 1.0])
        >>> bool(jnp.allclose(k(2.0 * x, y), k(x, y)))      # only directions matter
        True
    """

    kernel: AbstractStationary
    scale: Float[Array, "..."] = positive(1.0)
    degree = 0

    def __check_init__(self):
        if not isinstance(self.kernel, AbstractStationary) or self.kernel.lengthscale.size != 1:
            raise TypeError(
                "Spherical needs a stationary kernel with one lengthscale, such as ig.kernels.Matern32(); different "
                "dimensions are weighed by `scale`."
            )

    @property
    def smoothness(self) -> int | float:
        return self.kernel.smoothness

    def angular(self, s):
        return self.kernel.variance * self.kernel.profile(s / self.kernel.lengthscale.reshape(()) ** 2)

    def amplitude(self) -> list[tuple[Array, float]]:
        return self.kernel.amplitude()

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        omega, variance = weighted_frequencies(self.kernel, key, -(-num // 2), dim)
        features = fourier_features(omega / self.kernel.lengthscale.reshape(()), variance)
        return lambda X: features(self.polar(X)[0])


class SphericalArcCosine(AbstractZonal):
    """Arc-cosine kernel of directions, without a bias of its own.

        k(x, y) = σ²/π |wx|ⁿ |wy|ⁿ Jₙ(θ),    θ the angle between wx and wy

    For inputs `with_bias` it equals `ArcCosine` with weight variances w², the last of which is the bias variance.

    Args:
        order: n, which is 0, 1 or 2.
        variance: σ².
        scale: w, one number or one for each column [D].

    Raises:
        ValueError: if the order is not 0, 1 or 2.

    Examples:
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
    """Append a column of ones, which maps data in ℝᴰ to directions in ℝᴰ⁺¹.

    Args:
        X: points [N, D].

    Returns:
        The points with a last column of ones [N, D + 1].

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.kernels.with_bias(jnp.zeros((2, 1))).tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """
    X = jnp.asarray(X)
    return jnp.concatenate([X, jnp.ones((X.shape[0], 1), X.dtype)], axis=1)
