"""Kernels of inner products: linear, polynomial and arc-cosine."""

import itertools
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.declared import shown
from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points, check_size, symmetric
from inducing.kernels.distance import squared_distance, squared_distance_self
from inducing.kernels.starting_values import start_weights
from inducing.parameters import Start, as_whole, positive


def _weighted(kernel: AbstractKernel, name: str, variance: Array, X: Array) -> Array:
    """X with each column multiplied by the standard deviation of its weight."""
    check_size(kernel, name, variance, X.shape[-1])
    return X * jnp.broadcast_to(jnp.sqrt(variance), X.shape)


def _products(X: Array, X2: Array | None) -> Array:
    return symmetric(X @ X.T) if X2 is None else X @ X2.T


class Linear(AbstractKernel):
    """Linear kernel, the covariance of a random linear function through the origin.

        k(x, y) = Σ_d σ_d² x_d y_d

    Args:
        variance: σ², the variances of the weights, one number or one for each input dimension [D].

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> round(float(ig.kernels.Linear([1.0, 2.0])(jnp.ones(2), jnp.ones(2))), 6)
        3.0
    """

    variance: Float[Array, "..."] = positive(1.0)
    smoothness: ClassVar[int | float] = math.inf

    def _scaled(self, X: Array) -> Array:
        return _weighted(self, "variance", self.variance, X)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return jnp.dot(self._scaled(x), self._scaled(y))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        return _products(self._scaled(X), None if X2 is None else self._scaled(X2))

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.sum(self._scaled(X) ** 2, axis=1)

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        return self._scaled

    def start(self, x: np.ndarray) -> list[Start]:
        starts = start_weights(self.variance, float(x.any(axis=0).sum()), x)
        # here the weights are also the amplitude, so the labels tell whether the user's value is far off
        return [start._replace(far=False) for start in starts]


class Polynomial(AbstractKernel):
    """Polynomial kernel, the covariance of a random polynomial.

        k(x, y) = (Σ_d σ_d² x_d y_d + c)^p

    Args:
        degree: p, a positive integer.
        variance: σ², one number or one for each input dimension [D].
        offset: c, which weighs the terms of lower degree.

    Raises:
        ValueError: if the degree is not a whole number from 1 to 100.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> round(float(ig.kernels.Polynomial(degree=2, variance=1.0, offset=1.0)(jnp.ones(2), jnp.ones(2))), 6)
        9.0
    """

    degree: int = eqx.field(static=True, converter=as_whole)
    variance: Float[Array, "..."] = positive(1.0)
    offset: Float[Array, ""] = positive(1.0)
    smoothness: ClassVar[int | float] = math.inf

    def __check_init__(self):
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or not 1 <= self.degree <= 100:
            raise ValueError(f"Polynomial.degree must be a whole number from 1 to 100, got {shown(self.degree)}.")

    def _scaled(self, X: Array) -> Array:
        return _weighted(self, "variance", self.variance, X)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return (jnp.dot(self._scaled(x), self._scaled(y)) + self.offset) ** self.degree

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        return (_products(self._scaled(X), None if X2 is None else self._scaled(X2)) + self.offset) ** self.degree

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return (jnp.sum(self._scaled(X) ** 2, axis=1) + self.offset) ** self.degree

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        # the C(dim + degree, degree) monomials, each times the root of its multinomial coefficient
        terms = list(itertools.combinations_with_replacement(range(dim + 1), self.degree))
        counts = [math.prod(math.factorial(term.count(i)) for i in set(term)) for term in terms]
        roots = [math.sqrt(math.factorial(self.degree) / count) for count in counts]

        def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
            X = self._scaled(X)
            one = jnp.broadcast_to(jnp.sqrt(self.offset), (X.shape[0], 1))
            monomials = jnp.concatenate([X, one], axis=1)[:, jnp.array(terms)]
            return jnp.asarray(roots, X.dtype)[None, :] * jnp.prod(monomials, axis=2)

        return features

    def start(self, x: np.ndarray) -> list[Start]:
        return start_weights(self.variance, float(self.offset), x)

    def amplitude(self) -> list[tuple[Array, float]]:
        return [(self.variance, 1.0 / self.degree), (self.offset, 1.0 / self.degree)]


class ArcCosine(AbstractKernel):
    """Arc-cosine kernel, the covariance of a layer of infinitely many units max(0, a)ⁿ (Cho & Saul 2009).

        k(x, y) = σ²/π |u|ⁿ |v|ⁿ Jₙ(θ),    u = (√w x, √b),    v = (√w y, √b),    θ the angle between u and v
        J₀ = π − θ,    J₁ = sin θ + (π − θ) cos θ,    J₂ = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ)

    The angle is computed from the squared distance s = 2 − 2 cos θ of the unit vectors, so it is exact where x = y.

    Args:
        order: n, which is 0 (step functions), 1 (rectified linear units) or 2.
        variance: σ².
        weight_variance: w, the variances of the weights, one number or one for each input dimension [D].
        bias_variance: b, the variance of the bias.

    Raises:
        ValueError: if the order is not 0, 1 or 2.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.ArcCosine(order=0, variance=2.0)
        >>> float(k(jnp.ones(3), jnp.ones(3)))
        2.0
    """

    order: int = eqx.field(static=True, converter=as_whole)
    variance: Float[Array, ""] = positive(1.0)
    weight_variance: Float[Array, "..."] = positive(1.0)
    bias_variance: Float[Array, ""] = positive(1.0)

    def __check_init__(self):
        if isinstance(self.order, bool) or self.order not in (0, 1, 2):
            raise ValueError(f"ArcCosine.order must be 0, 1 or 2, got {self.order!r}.")

    @property
    def smoothness(self) -> int | float:
        return self.order

    def _augmented(self, X: Float[Array, "N D"]) -> Float[Array, "N E"]:
        X = _weighted(self, "weight_variance", self.weight_variance, X)
        return jnp.concatenate([X, jnp.broadcast_to(jnp.sqrt(self.bias_variance), (X.shape[0], 1))], axis=1)

    def _polar(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N E"], Float[Array, " N"]]:
        U = self._augmented(X)
        square = jnp.sum(U * U, axis=1)
        return U / jnp.sqrt(square)[:, None], square ** (0.5 * self.order)

    def _angular(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        return (arc_cosine_0, arc_cosine_1, arc_cosine_2)[self.order](s) / math.pi

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        (u, a), (v, b) = self._polar(x[None, :]), self._polar(y[None, :])
        return self.variance * a[0] * b[0] * self._angular(jnp.sum((u - v) ** 2))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        U, a = self._polar(X)
        one = jnp.ones(U.shape[1], U.dtype)
        rough = self.order == 0
        if X2 is None:
            b, s = a, squared_distance_self(U, one, rough)
        else:
            V, b = self._polar(X2)
            s = squared_distance(U, V, one, rough)
        return self.variance * (a[:, None] * b[None, :]) * self._angular(s)

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        U = self._augmented(X)
        return self.variance * (1.0, 1.0, 3.0)[self.order] * jnp.sum(U * U, axis=1) ** self.order

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        W = jax.random.normal(key, (dim + 1, num), self.variance.dtype)

        def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
            A = self._augmented(X) @ W
            return jnp.sqrt(2.0 * self.variance / num) * jnp.where(A > 0, A**self.order, 0.0)

        return features

    def start(self, x: np.ndarray) -> list[Start]:
        return start_weights(self.weight_variance, float(self.bias_variance), x)


# The angular functions of s = 2 − 2 cos θ. With c = cos θ, dJ₁/dc = J₀ and dJ₂/dc = 4 J₁. Written this way, the
# derivatives of J₁ and J₂ are finite and exact at s = 0. That of J₀ diverges there; we set it to 0.


def arc_cosine_0(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """J₀ = π − θ."""
    between = (s > 0) & (s < 4)
    inner = jnp.where(between, s, 1.0)
    theta = 2.0 * jnp.atan2(jnp.sqrt(inner), jnp.sqrt(4.0 - inner))
    return jnp.where(between, math.pi - theta, jnp.where(s > 0, 0.0, math.pi))


@jax.custom_jvp
def arc_cosine_1(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """J₁ = sin θ + (π − θ) cos θ."""
    return _sine(s) + arc_cosine_0(s) * (1.0 - 0.5 * s)


@jax.custom_jvp
def arc_cosine_2(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """J₂ = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ)."""
    c = 1.0 - 0.5 * s
    return 3.0 * _sine(s) * c + arc_cosine_0(s) * (1.0 + 2.0 * c * c)


arc_cosine_1.defjvp(lambda p, t: (arc_cosine_1(*p), -0.5 * arc_cosine_0(*p) * t[0]))
arc_cosine_2.defjvp(lambda p, t: (arc_cosine_2(*p), -2.0 * arc_cosine_1(*p) * t[0]))


def _sine(s: Array) -> Array:
    return 0.5 * jnp.sqrt(jnp.maximum(s * (4.0 - s), 0.0))
