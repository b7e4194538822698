"""Stationary kernels: σ² g(s) of the squared scaled distance s = Σ_d ((x_d − y_d)/ℓ_d)²."""

import abc
import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from inducing._xla import apart, barrier
from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_inputs, check_size
from inducing.kernels.distance import (
    by_differences,
    centred,
    half_tangent,
    moved,
    squared_distance,
    squared_distance_self,
)
from inducing.kernels.starting_values import start_lengthscale
from inducing.parameters import Start, positive

WIDER = 8.0  # how far half of the frequencies of draws are spread, for processes with few derivatives


class AbstractStationary(AbstractKernel):
    """k(x, y) = σ² g(Σ_d ((x_d − y_d)/ℓ_d)²), with g(0) = 1.

    `lengthscale` is one number or one per input dimension. A new stationary kernel gives `profile`, `smoothness`,
    `unit_spectral_density` and `unit_frequencies`; see docs/extend.md.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.Matern32(lengthscale=2.0, variance=3.0)
    >>> float(k.profile(jnp.zeros(())))      # g(0)
    1.0
    >>> bool(jnp.allclose(k(jnp.zeros(1), jnp.ones(1)), 3.0 * k.profile(jnp.asarray(0.25))))      # s = (1/2)²
    True
    """

    lengthscale: Float[Array, "..."] = positive(1.0)
    variance: Float[Array, ""] = positive(1.0)

    @abc.abstractmethod
    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        """g(s), elementwise, with derivatives that are right at s = 0 as far as the process has them."""

    @abc.abstractmethod
    def unit_spectral_density(self, w2: Float[Array, " K"], dim: int) -> Float[Array, " K"]:
        """∫ g(|τ|²) e^{−iω·τ} dτ in `dim` dimensions, at |ω|² = w2."""

    @abc.abstractmethod
    def unit_frequencies(self, key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "num dim"]:
        """Frequencies ω with E cos(ω·τ) = g(|τ|²)."""

    def scaled(self, X: Float[Array, "..."]) -> Float[Array, "..."]:
        """X [N, D] or [D] in units of the lengthscale."""
        check_size(self, "lengthscale", self.lengthscale, X.shape[-1])
        return X / jnp.broadcast_to(self.lengthscale, X.shape)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self.variance * self.profile(jnp.sum(self.scaled(x - y) ** 2))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_inputs(self, X, X2)
        X, X2 = centred(X, X2)
        check_size(self, "lengthscale", self.lengthscale, X.shape[-1])
        return self.gram_at(X, X2, jnp.broadcast_to(self.lengthscale, X.shape[1:]))

    def gram_at(
        self, X: Float[Array, "N D"], X2: Float[Array, "N2 D"] | None, lengthscale: Float[Array, " D"]
    ) -> Float[Array, "N N2"]:
        """`gram` of inputs near the origin, with a lengthscale for each of their columns.

        >>> import jax.numpy as jnp, inducing as ig
        >>> x = jnp.array([[0.0], [2.0]])
        >>> k = ig.kernels.Matern52()
        >>> bool(jnp.allclose(k.gram_at(x, None, jnp.full(1, 2.0)), ig.kernels.Matern52(2.0).gram(x)))
        True
        """
        rough = self.smoothness < 1
        s = squared_distance_self(X, lengthscale, rough) if X2 is None else squared_distance(X, X2, lengthscale, rough)
        # s by differences is in the same loop as g(s)
        return self.variance * self.profile(s if by_differences(X.shape[1], rough) else apart(s))

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_inputs(self, X)
        return jnp.broadcast_to(self.variance, X.shape[:1])

    def spectral_density(self, omega: Float[Array, "K D"]) -> Float[Array, " K"]:
        """S(ω) = ∫ k(τ) e^{−iω·τ} dτ, so that k(τ) = (2π)^−D ∫ S(ω) e^{iω·τ} dω.

        >>> import jax.numpy as jnp, inducing as ig
        >>> omega = jnp.linspace(-20.0, 20.0, 401)[:, None]
        >>> S = ig.kernels.SquaredExponential(lengthscale=0.5, variance=2.0).spectral_density(omega)
        >>> round(float(S.sum() * 0.1 / (2 * jnp.pi)), 6)
        2.0
        """
        dim = omega.shape[-1]
        check_size(self, "lengthscale", self.lengthscale, dim)
        lengthscale = jnp.broadcast_to(self.lengthscale, (dim,))
        w2 = jnp.sum((omega * lengthscale[None, :]) ** 2, axis=-1)
        return self.variance * jnp.prod(lengthscale) * self.unit_spectral_density(w2, dim)

    def start(self, x: np.ndarray) -> list[Start]:
        return start_lengthscale(self.lengthscale, x)

    def lengthscales(self) -> list[Array]:
        return [self.lengthscale]

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        half = fourier_features(*weighted_frequencies(self, key, -(-num // 2), dim))
        return lambda X: half(self.scaled(X))


def weighted_frequencies(
    kernel: AbstractStationary, key: PRNGKeyArray, num: int, dim: int
) -> tuple[Float[Array, "K D"], Float[Array, " K"]]:
    """Frequencies ω and variances v with E Σ_k v_k cos(ω_k·τ) = σ² g(|τ|²).

    Of a process with few derivatives, what is left between its inducing points is of high frequencies. Of K frequencies
    from the spectral density p few are so high, and draws would be too wild or too tame there. So each is from p or, as
    likely, from p spread `WIDER` times, q(ω) = p(ω/W)/Wᴰ, with its share v = σ²/K · p/(½p + ½q) of the variance.

    >>> import jax, inducing as ig
    >>> omega, v = weighted_frequencies(ig.kernels.Matern32(), jax.random.key(0), 1000, 1)
    >>> omega.shape, bool(abs(v.sum() - 1.0) < 0.1)
    ((1000, 1), True)
    """
    omega = kernel.unit_frequencies(key, num, dim)
    if kernel.smoothness == math.inf:
        return omega, jnp.broadcast_to(kernel.variance / num, (num,))
    wide = jax.random.bernoulli(jax.random.fold_in(key, 1), shape=(num, 1))
    omega = jnp.where(wide, WIDER * omega, omega)
    w2 = jnp.sum(omega**2, axis=1)
    q_over_p = WIDER**-dim * kernel.unit_spectral_density(w2 / WIDER**2, dim) / kernel.unit_spectral_density(w2, dim)
    return omega, kernel.variance / num * 2.0 / (1.0 + q_over_p)


def fourier_features(omega: Float[Array, "K D"], variance: Float[Array, "*K"]) -> FeatureMap:
    """φ(x) = v_k^½ [cos ω_k·x, sin ω_k·x]: pairs, so that φ(x)·φ(x) = Σ_k v_k."""

    def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
        angle = X @ omega.T
        size = jnp.broadcast_to(jnp.sqrt(variance), angle.shape)
        return jnp.concatenate([size * jnp.cos(angle), size * jnp.sin(angle)], axis=1)

    return features


class SquaredExponential(AbstractStationary):
    """k = σ² exp(−s/2), s = Σ_d ((x_d − y_d)/ℓ_d)², also called RBF. Samples have all derivatives.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.SquaredExponential(lengthscale=[1.0, 2.0], variance=3.0)
    >>> float(k(jnp.zeros(2), jnp.zeros(2)))
    3.0
    """

    smoothness: ClassVar[int | float] = math.inf

    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.exp(-0.5 * s)

    def gram_at(
        self, X: Float[Array, "N D"], X2: Float[Array, "N2 D"] | None, lengthscale: Float[Array, " D"]
    ) -> Float[Array, "N N2"]:
        return _gaussian(X, X2, lengthscale, self.variance)

    def unit_spectral_density(self, w2: Float[Array, " K"], dim: int) -> Float[Array, " K"]:
        return (2.0 * math.pi) ** (dim / 2) * jnp.exp(-0.5 * w2)

    def unit_frequencies(self, key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "num dim"]:
        return jax.random.normal(key, (num, dim), self.variance.dtype)

    def smoothed(self, variance: Float[Array, " D"]) -> "SquaredExponential":
        """∫ N(t | 0, diag v) k(x − t, y) dt: again a squared exponential, with ℓ² + v in place of ℓ².

        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.kernels.SquaredExponential(lengthscale=3.0).smoothed(jnp.array([16.0])).lengthscale.tolist()
        [5.0]
        """
        check_size(self, "lengthscale", self.lengthscale, variance.shape[0])
        lengthscale = jnp.broadcast_to(self.lengthscale, variance.shape)
        wider = jnp.sqrt(lengthscale**2 + variance)
        return SquaredExponential(wider, self.variance * jnp.prod(lengthscale / wider))


class RationalQuadratic(AbstractStationary):
    """k = σ² (1 + s/(2α))^−α, s = Σ_d ((x_d − y_d)/ℓ_d)²: a Gamma mixture of squared exponentials of many lengthscales.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.RationalQuadratic(lengthscale=1.0, variance=1.0, alpha=1.0)
    >>> round(float(k(jnp.zeros(1), jnp.sqrt(jnp.full(1, 2.0)))), 6)
    0.5
    """

    alpha: Float[Array, ""] = positive(1.0)
    smoothness: ClassVar[int | float] = math.inf

    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.exp(-self.alpha * jnp.log1p(s / (2.0 * self.alpha)))

    def unit_spectral_density(self, w2: Float[Array, " K"], dim: int) -> Float[Array, " K"]:
        raise TypeError(
            "RationalQuadratic has no spectral density here (it needs Bessel functions of real order); use "
            "SquaredExponential, Matern12, Matern32 or Matern52, or a sum of SquaredExponential kernels."
        )

    def unit_frequencies(self, key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "num dim"]:
        scale, normal = jax.random.split(key)
        tau = jax.random.gamma(scale, self.alpha, (num, 1), self.alpha.dtype) / self.alpha
        return jnp.sqrt(tau) * jax.random.normal(normal, (num, dim), self.alpha.dtype)


class Matern12(AbstractStationary):
    """k = σ² exp(−r), r² = Σ_d ((x_d − y_d)/ℓ_d)². Samples are continuous and have no derivative.

    >>> import jax.numpy as jnp, inducing as ig
    >>> round(float(ig.kernels.Matern12()(jnp.zeros(1), jnp.ones(1))), 6)
    0.367879
    """

    smoothness: ClassVar[int | float] = 0

    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        return matern12_profile(s)

    def unit_spectral_density(self, w2: Float[Array, " K"], dim: int) -> Float[Array, " K"]:
        return _matern_density(0.5, w2, dim)

    def unit_frequencies(self, key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "num dim"]:
        return _matern_frequencies(0.5, key, num, dim, self.variance.dtype)


class Matern32(AbstractStationary):
    """k = σ² (1 + √3 r) exp(−√3 r), r² = Σ_d ((x_d − y_d)/ℓ_d)². Samples have one derivative.

    >>> import jax, jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.Matern32(lengthscale=0.5)
    >>> x = jnp.ones(1)
    >>> round(float(jax.jacfwd(jax.jacrev(k, 0), 1)(x, x)[0, 0]), 6)      # var f'(x) = 3 σ²/ℓ²
    12.0
    """

    smoothness: ClassVar[int | float] = 1

    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        return matern32_profile(s)

    def unit_spectral_density(self, w2: Float[Array, " K"], dim: int) -> Float[Array, " K"]:
        return _matern_density(1.5, w2, dim)

    def unit_frequencies(self, key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "num dim"]:
        return _matern_frequencies(1.5, key, num, dim, self.variance.dtype)


class Matern52(AbstractStationary):
    """k = σ² (1 + √5 r + 5/3 r²) exp(−√5 r), r² = Σ_d ((x_d − y_d)/ℓ_d)². Samples have two derivatives.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = ig.kernels.Matern52(lengthscale=[1.0, 100.0], variance=2.0)      # the second column hardly matters
    >>> [round(float(k(jnp.zeros(2), jnp.array(y))), 3) for y in ([1.0, 0.0], [0.0, 1.0])]
    [1.048, 2.0]
    """

    smoothness: ClassVar[int | float] = 2

    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        return matern52_profile(s)

    def unit_spectral_density(self, w2: Float[Array, " K"], dim: int) -> Float[Array, " K"]:
        return _matern_density(2.5, w2, dim)

    def unit_frequencies(self, key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "num dim"]:
        return _matern_frequencies(2.5, key, num, dim, self.variance.dtype)


@jax.custom_jvp
def _gaussian(X: Array, Z: Array | None, lengthscale: Array, variance: Array) -> Array:
    """σ² exp(−s/2), whose derivative K (d log σ² − ds/2) takes one pass over K: σ² needs no sum of its own."""
    s = squared_distance_self(X, lengthscale) if Z is None else squared_distance(X, Z, lengthscale)
    return variance * jnp.exp(-0.5 * s)


@partial(_gaussian.defjvp, symbolic_zeros=True)
def _gaussian_jvp(primals, tangents):
    (X, Z, lengthscale, variance), (dX, dZ, dlengthscale, dvariance) = primals, tangents
    K = barrier(_gaussian(X, Z, lengthscale, variance))  # or else each use multiplies by σ² anew
    other, dother = (X, dX) if Z is None else (Z, dZ)
    dlog = moved(dvariance) / jnp.maximum(variance, jnp.finfo(variance.dtype).tiny)  # σ² may have underflown to 0
    # apart: or else the gradient of K is written over K
    return K, apart(K) * half_tangent((X, other, lengthscale), (dX, dother, dlengthscale), -1.0, dlog)


# The profiles as functions of s = r². Each derivative of a Matérn profile in s is a Matérn profile of lower order:
#
#     d/ds (1 + a + a²/3) e^−a = −5/6 (1 + a) e^−a    (a = √5 r),        d/ds (1 + a) e^−a = −c²/2 e^−a    (a = c r),
#
# so derivatives are finite and right at s = 0 until e^−a is reached, whose derivative in s diverges there. It is
# taken as 0, which is right wherever it is multiplied by ds = 0, as it is in every derivative that exists.


def _distance(s: Array) -> Array:
    """√s with all derivatives 0 at s = 0.

    Where s is a rounding error, compiled code may compute it twice and find it positive once: then √s is ε, not 1.
    """
    positive_s = s > 0
    return jnp.where(positive_s, jnp.sqrt(jnp.where(positive_s, s, jnp.finfo(s.dtype).eps ** 2)), 0.0)


def _exponential(c: float, s: Array) -> Array:
    return jnp.exp(-(c * _distance(s)))  # written like e^−a in the profiles, so that the compiler sees one exponential


def _once_differentiable(c: float) -> Callable[[Array], Array]:
    @jax.custom_jvp
    def profile(s):
        a = c * _distance(s)
        return (1.0 + a) * jnp.exp(-a)

    @profile.defjvp
    def _jvp(primals, tangents):
        (s,), (ds,) = primals, tangents
        return profile(s), -0.5 * c * c * _exponential(c, s) * ds

    return profile


def matern12_profile(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """e^−r."""
    return _exponential(1.0, s)


matern32_profile = _once_differentiable(math.sqrt(3.0))
_matern52_slope = _once_differentiable(math.sqrt(5.0))


@jax.custom_jvp
def matern52_profile(s: Float[Array, "..."]) -> Float[Array, "..."]:
    """(1 + √5 r + 5/3 r²) e^−√5 r."""
    a = math.sqrt(5.0) * _distance(s)
    return (1.0 + a + (5.0 / 3.0) * s) * jnp.exp(-a)


@matern52_profile.defjvp
def _matern52_jvp(primals, tangents):
    (s,), (ds,) = primals, tangents
    return matern52_profile(s), (-5.0 / 6.0) * _matern52_slope(s) * ds


def _matern_density(nu: float, w2: Array, dim: int) -> Array:
    log_constant = (
        dim * math.log(2.0)
        + 0.5 * dim * math.log(math.pi)
        + math.lgamma(nu + 0.5 * dim)
        - math.lgamma(nu)
        + nu * math.log(2.0 * nu)
    )
    return jnp.exp(log_constant - (nu + 0.5 * dim) * jnp.log(2.0 * nu + w2))


def _matern_frequencies(nu: float, key: PRNGKeyArray, num: int, dim: int, dtype: jnp.dtype) -> Array:
    """Student's t with 2ν degrees of freedom: a normal over the root mean square of 2ν others."""
    normals = jax.random.normal(key, (num, dim + round(2 * nu)), dtype)
    return normals[:, :dim] / jnp.sqrt(jnp.mean(normals[:, dim:] ** 2, axis=1, keepdims=True))
