"""Periodic kernels: any stationary kernel on a circle, and a single cosine."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points, check_size, symmetric
from inducing.kernels.distance import centred
from inducing.kernels.stationary import AbstractStationary, fourier_features, weighted_frequencies
from inducing.parameters import positive


class Periodic(AbstractKernel):
    """Periodic version of a stationary kernel with profile g, lengthscale ℓ and variance σ².

        k(x, y) = σ² g(Σ_d (sin(π (x_d − y_d)/p_d)/ℓ_d)²)

    This is the base kernel at the points ½ (cos 2πx/p, sin 2πx/p) of a circle, so it is valid in any dimension. With a
    squared exponential base it is σ² exp(−½ Σ_d (sin(π (x_d − y_d)/p_d)/ℓ_d)²).

    Args:
        base: a stationary kernel.
        period: p, one number or one for each input dimension [D].

    Raises:
        TypeError: if the base is not a stationary kernel.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.Periodic(ig.kernels.SquaredExponential(lengthscale=0.5), period=2.0)
        >>> round(float(k(jnp.zeros(1), jnp.full(1, 4.0))), 6)
        1.0
    """

    base: AbstractStationary
    period: Float[Array, "..."] = positive(1.0)

    def __check_init__(self):
        if not isinstance(self.base, AbstractStationary):
            raise TypeError(
                f"Periodic.base must be a stationary kernel, got {type(self.base).__name__}; "
                "use SquaredExponential, Matern12, Matern32, Matern52 or RationalQuadratic."
            )

    @property
    def smoothness(self) -> int | float:
        return self.base.smoothness

    def _turns(self, X: Array) -> Array:
        check_size(self, "period", self.period, X.shape[-1])
        return _fraction(X / jnp.broadcast_to(self.period, X.shape))

    def _embed(self, X: Float[Array, "N D"]) -> Float[Array, "N E"]:
        angle = 2.0 * math.pi * self._turns(X)
        return 0.5 * jnp.concatenate([self.base.scaled(jnp.cos(angle)), self.base.scaled(jnp.sin(angle))], axis=1)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        s = jnp.sum(self.base.scaled(jnp.sin(math.pi * self._turns(x - y))) ** 2)
        return self.base.variance * self.base.profile(s)

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        X, X2 = centred(X, X2)
        X, X2 = self._embed(X), None if X2 is None else self._embed(X2)
        return self.base.gram_at(X, X2, jnp.ones(X.shape[1], X.dtype))

    def diag(self, X: Points) -> Float[Array, " N"]:
        return self.base.diag(X)

    def amplitude(self) -> list[tuple[Array, float]]:
        return self.base.amplitude()

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        half = fourier_features(*weighted_frequencies(self.base, key, -(-num // 2), 2 * dim))
        return lambda X: half(self._embed(X))


class Cosine(AbstractKernel):
    """Cosine kernel, the covariance of a single wave of random amplitude and phase; it has rank two.

        k(x, y) = σ² cos(2π Σ_d (x_d − y_d)/ℓ_d)

    Args:
        lengthscale: ℓ, the wavelength, one number or one for each input dimension [D].
        variance: σ².

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> round(float(ig.kernels.Cosine(lengthscale=2.0)(jnp.zeros(1), jnp.ones(1))), 6)
        -1.0
    """

    lengthscale: Float[Array, "..."] = positive(1.0)
    variance: Float[Array, ""] = positive(1.0)
    smoothness: ClassVar[int | float] = math.inf

    def _phase(self, X: Float[Array, "..."]) -> Float[Array, "..."]:
        check_size(self, "lengthscale", self.lengthscale, X.shape[-1])
        return 2.0 * math.pi * jnp.sum(_fraction(X / jnp.broadcast_to(self.lengthscale, X.shape)), axis=-1)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self.variance * jnp.cos(self._phase(x - y))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        X, X2 = centred(X, X2)
        waves = self._waves(X)  # a product, so the Gram matrix is positive semi-definite even if phases are rounded
        return symmetric(waves @ waves.T) if X2 is None else waves @ self._waves(X2).T

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.broadcast_to(self.variance, X.shape[:1])

    def _waves(self, X: Float[Array, "N D"]) -> Float[Array, "N 2"]:
        phase = self._phase(X)
        return jnp.sqrt(self.variance) * jnp.stack([jnp.cos(phase), jnp.sin(phase)], axis=1)

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        return self._waves


def _fraction(turns: Array) -> Array:
    """Turns without the whole ones, so that the angle of a point far away is finite."""
    return turns - jax.lax.stop_gradient(jnp.round(turns))
