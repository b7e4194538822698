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
from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points, check_size
from inducing.kernels.distance import (
    bounded,
    by_differences,
    centred,
    half_tangent,
    moved,
    squared_distance,
    squared_distance_self,
)
from inducing.kernels.forms import GaussianForm, MaternForm, PsiStatistics
from inducing.kernels.smoothed import SmoothedMatern
from inducing.kernels.starting_values import start_lengthscale
from inducing.parameters import Start, positive, question

WIDER = 8.0  # the factor by which half of the frequencies are stretched, for processes with few derivatives


class AbstractStationary(AbstractKernel):
    """A kernel that is a function of the scaled distance of its inputs.

        k(x, y) = σ² g(s),    s = Σ_d ((x_d − y_d)/ℓ_d)²,    g(0) = 1

    A stationary kernel of your own implements `profile`, `smoothness`, `unit_spectral_density` and `unit_frequencies`;
    docs/extend.md has an example.

    Args:
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ², the prior variance.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.Matern32(lengthscale=2.0, variance=3.0)
        >>> float(k.profile(jnp.zeros(())))      # g(0)
        1.0
        >>> bool(jnp.allclose(k(jnp.zeros(1), jnp.ones(1)), 3.0 * k.profile(jnp.asarray(0.25))))      # s = (1/2)²
        True
    """

    _such_as = "a stationary kernel, such as ig.kernels.Matern52()"

    lengthscale: Float[Array, "..."] = positive(1.0)
    variance: Float[Array, ""] = positive(1.0)

    @abc.abstractmethod
    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        """The profile g.

        Args:
            s: squared scaled distances of any shape.

        Returns:
            g(s), elementwise. At s = 0 it needs as many finite derivatives as the process has.
        """

    @abc.abstractmethod
    def unit_spectral_density(self, w2: Float[Array, " K"], dim: int) -> Float[Array, " K"]:
        """The spectral density of the kernel with unit lengthscales and variance.

            S(ω) = ∫ g(|τ|²) e^{−iω·τ} dτ

        Args:
            w2: squared frequencies |ω|² [K].
            dim: the number of input dimensions.

        Returns:
            S [K].

        Raises:
            TypeError: if the kernel has no spectral density in closed form.
        """

    @abc.abstractmethod
    def unit_frequencies(self, key: PRNGKeyArray, num: int, dim: int) -> Float[Array, "num dim"]:
        """Random frequencies ω from the spectral density, so that E cos(ω·τ) = g(|τ|²).

        Args:
            key: a random key.
            num: the number of frequencies.
            dim: the number of input dimensions.

        Returns:
            Frequencies [num, dim], for unit lengthscales.
        """

    def scaled(self, X: Float[Array, "..."]) -> Float[Array, "..."]:
        """The points divided by the lengthscale.

        Args:
            X: points [N, D], or one point [D].

        Returns:
            X/ℓ, of the same shape.

        Raises:
            ValueError: if there is neither one lengthscale nor one for each column of X.
        """
        check_size(self, "lengthscale", self.lengthscale, X.shape[-1])
        return X / jnp.broadcast_to(self.lengthscale, X.shape)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self.variance * self.profile(jnp.sum(bounded(self.scaled(x - y)[None]) ** 2))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        X, X2 = centred(X, X2)
        check_size(self, "lengthscale", self.lengthscale, X.shape[-1])
        return self.gram_at(X, X2, jnp.broadcast_to(self.lengthscale, X.shape[1:]))

    @question
    def gram_at(
        self, X: Float[Array, "N D"], X2: Float[Array, "N2 D"] | None, lengthscale: Float[Array, " D"]
    ) -> Float[Array, "N N2"]:
        """The Gram matrix of inputs near the origin, with the given lengthscales instead of the kernel's own.

        The default evaluates `profile` at squared distances, which suits every kernel. A kernel may answer with an
        equivalent computation whose derivative is cheaper.

        Args:
            X: points [N, D].
            X2: points [N2, D]; None stands for X.
            lengthscale: one number for each column [D].

        Returns:
            The covariances [N, N2].

        Examples:
            >>> import jax.numpy as jnp, inducing as ig
            >>> x = jnp.array([[0.0], [2.0]])
            >>> k = ig.kernels.Matern52()
            >>> bool(jnp.allclose(k.gram_at(x, None, jnp.full(1, 2.0)), ig.kernels.Matern52(2.0).gram(x)))
            True
        """
        rough = self.smoothness < 1
        s = squared_distance_self(X, lengthscale, rough) if X2 is None else squared_distance(X, X2, lengthscale, rough)
        # a sum of squared differences fuses with g(s) into one loop; a matrix product must stay apart from it
        return self.variance * self.profile(s if by_differences(X.shape[1], rough) else apart(s))

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.broadcast_to(self.variance, X.shape[:1])

    def spectral_density(self, omega: Float[Array, "K D"]) -> Float[Array, " K"]:
        """The spectral density of the kernel.

            S(ω) = ∫ k(τ) e^{−iω·τ} dτ,    k(τ) = (2π)^−D ∫ S(ω) e^{iω·τ} dω

        Args:
            omega: frequencies ω [K, D].

        Returns:
            S [K].

        Raises:
            TypeError: if the kernel has no spectral density in closed form.

        Examples:
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

    def lengthscale_along(self, column: int) -> float:
        if self.lengthscale.ndim == 0:
            return float(self.lengthscale)
        return float(self.lengthscale[column]) if column < len(self.lengthscale) else math.nan

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        half = fourier_features(*weighted_frequencies(self, key, -(-num // 2), dim))
        return lambda X: half(self.scaled(X))

    def smoothed_features(self, key, num, dim):
        # A wave of frequency ω is damped by exp(−½ Σ_d ω_d² v_d).
        omega, variance = weighted_frequencies(self, key, -(-num // 2), dim)
        phi = fourier_features(omega, variance)

        def damping(v: Float[Array, " D"]) -> Float[Array, " num"]:
            return jnp.tile(jnp.exp(-0.5 * (self.scaled(omega) ** 2 @ v)), 2)  # cosines, then sines

        return lambda X: phi(self.scaled(X)), damping


def weighted_frequencies(
    kernel: AbstractStationary, key: PRNGKeyArray, num: int, dim: int
) -> tuple[Float[Array, "K D"], Float[Array, " K"]]:
    """Frequencies ω and variances v with E Σ_k v_k cos(ω_k·τ) = σ² g(|τ|²).

    If a process has few derivatives, its residual between inducing points consists of high frequencies. Few of K
    frequencies from the spectral density p are that high, so the variance of draws would be inaccurate between inducing
    points. We therefore sample half of the frequencies from the wider density q(ω) = p(ω/W)/Wᴰ, W = `WIDER`, and give
    each frequency the importance weight v = σ²/K · p/(½p + ½q).

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
    """The map φ(x) = √v_k [cos ω_k·x, sin ω_k·x], in pairs so that φ(x)·φ(x) = Σ_k v_k exactly."""

    def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
        angle = X @ omega.T
        size = jnp.broadcast_to(jnp.sqrt(variance), angle.shape)
        return jnp.concatenate([size * jnp.cos(angle), size * jnp.sin(angle)], axis=1)

    return features


class SquaredExponential(AbstractStationary):
    """Squared exponential covariance function, also called Gaussian or RBF kernel.

        k(x, y) = σ² exp(−s/2),    s = Σ_d ((x_d − y_d)/ℓ_d)²

    Sample functions are infinitely differentiable.

    Args:
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ², the prior variance.

    Examples:
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

    def gaussian_form(self) -> GaussianForm:
        return GaussianForm(self.lengthscale, self.variance)

    def smoothed(self, variance: Float[Array, " D"]) -> "SquaredExponential":
        check_size(self, "lengthscale", self.lengthscale, variance.shape[0])
        lengthscale = jnp.broadcast_to(self.lengthscale, variance.shape)
        wider = jnp.sqrt(lengthscale**2 + variance)
        return SquaredExponential(wider, self.variance * jnp.prod(lengthscale / wider))

    def gaussian_expectations(
        self, Z: Float[Array, "M D"], mean: Float[Array, "N D"], variance: Float[Array, "N D"]
    ) -> PsiStatistics:
        # ψ1[n, m] = σ² Π_d (1 + v/ℓ²)^−½ exp(−½ (μ − z_m)² / (ℓ² + v))
        # ψ2[m, m'] = σ⁴ Σ_n Π_d (1 + 2v/ℓ²)^−½ exp(−¼ (z_m − z_m')²/ℓ² − (μ − (z_m + z_m')/2)² / (ℓ² + 2v))
        N, D = mean.shape
        l2 = jnp.broadcast_to(self.lengthscale**2, (D,))
        scaled = (mean[:, None] - Z[None]) ** 2 / (l2[None] + variance)[:, None]
        log_psi1 = -0.5 * (jnp.sum(jnp.log1p(variance / l2[None]), axis=1)[:, None] + jnp.sum(scaled, axis=2))
        between = jnp.sum((Z[:, None] - Z[None]) ** 2 / l2[None, None], axis=2)
        middle = 0.5 * (Z[:, None] + Z[None])

        @jax.checkpoint
        def add(total, datum):  # a loop over the data, so that memory is O(M²) instead of O(N M²)
            mu, v = datum
            around = jnp.sum((mu[None, None] - middle) ** 2 / (l2 + 2.0 * v)[None, None], axis=2)
            return total + jnp.exp(-0.5 * jnp.sum(jnp.log1p(2.0 * v / l2)) - 0.25 * between - around), None

        psi2, _ = jax.lax.scan(add, jnp.zeros_like(between), (mean, variance))
        return PsiStatistics(N * self.variance, self.variance * jnp.exp(log_psi1), self.variance**2 * psi2)


class RationalQuadratic(AbstractStationary):
    """Rational quadratic covariance function, a Gamma mixture of squared exponentials of different lengthscales.

        k(x, y) = σ² (1 + s/(2α))^−α,    s = Σ_d ((x_d − y_d)/ℓ_d)²

    Args:
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ², the prior variance.
        alpha: α, the shape of the mixture; as it grows, the kernel approaches the squared exponential.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.RationalQuadratic(lengthscale=1.0, variance=1.0, alpha=1.0)
        >>> round(float(k(jnp.zeros(1), jnp.sqrt(jnp.full(1, 2.0)))), 6)
        0.5
    """

    alpha: Float[Array, ""] = positive(1.0)
    smoothness: ClassVar[int | float] = math.inf

    def profile(self, s: Float[Array, "..."]) -> Float[Array, "..."]:
        s = jnp.minimum(s, jnp.finfo(s.dtype).max)  # the derivative in α would be infinite times 0
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
    """Matérn 1/2 covariance function, the exponential kernel.

        k(x, y) = σ² exp(−r),    r² = Σ_d ((x_d − y_d)/ℓ_d)²

    Sample functions are continuous but not differentiable.

    Args:
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ², the prior variance.

    Examples:
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

    def matern_form(self) -> MaternForm:
        return MaternForm(0.5, self.lengthscale, self.variance)

    def smoothed(self, variance: Float[Array, " D"]) -> SmoothedMatern:
        return SmoothedMatern(self, variance)


class Matern32(AbstractStationary):
    """Matérn 3/2 covariance function.

        k(x, y) = σ² (1 + √3 r) exp(−√3 r),    r² = Σ_d ((x_d − y_d)/ℓ_d)²

    Sample functions are once differentiable in mean square.

    Args:
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ², the prior variance.

    Examples:
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

    def matern_form(self) -> MaternForm:
        return MaternForm(1.5, self.lengthscale, self.variance)

    def smoothed(self, variance: Float[Array, " D"]) -> SmoothedMatern:
        return SmoothedMatern(self, variance)


class Matern52(AbstractStationary):
    """Matérn 5/2 covariance function.

        k(x, y) = σ² (1 + √5 r + 5/3 r²) exp(−√5 r),    r² = Σ_d ((x_d − y_d)/ℓ_d)²

    Sample functions are twice differentiable in mean square.

    Args:
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ², the prior variance.

    Examples:
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

    def matern_form(self) -> MaternForm:
        return MaternForm(2.5, self.lengthscale, self.variance)

    def smoothed(self, variance: Float[Array, " D"]) -> SmoothedMatern:
        return SmoothedMatern(self, variance)


@jax.custom_jvp
def _gaussian(X: Array, Z: Array | None, lengthscale: Array, variance: Array) -> Array:
    """σ² exp(−s/2), whose derivative K (d log σ² − ds/2) takes a single pass over K, including that in σ²."""
    s = squared_distance_self(X, lengthscale) if Z is None else squared_distance(X, Z, lengthscale)
    return variance * jnp.exp(-0.5 * s)


@partial(_gaussian.defjvp, symbolic_zeros=True)
def _gaussian_jvp(primals, tangents):
    (X, Z, lengthscale, variance), (dX, dZ, dlengthscale, dvariance) = primals, tangents
    K = barrier(_gaussian(X, Z, lengthscale, variance))  # otherwise each use would multiply by σ² again
    other, dother = (X, dX) if Z is None else (Z, dZ)
    dlog = moved(dvariance) / jnp.maximum(variance, jnp.finfo(variance.dtype).tiny)  # σ² may have underflowed to 0
    # without `apart`, XLA would write the gradient of K over K
    return K, apart(K) * half_tangent((X, other, lengthscale), (dX, dother, dlengthscale), -1.0, dlog)


# The profiles as functions of s = r². The derivative of a Matérn profile in s is a Matérn profile of lower order:
#
#     d/ds (1 + a + a²/3) e^−a = −5/6 (1 + a) e^−a    (a = √5 r),        d/ds (1 + a) e^−a = −c²/2 e^−a    (a = c r),
#
# so derivatives are finite and exact at s = 0 until e^−a is reached, whose derivative in s diverges there. We set it
# to 0. That is correct wherever it is multiplied by ds = 0, which is the case in every derivative that exists.


def _distance(s: Array) -> Array:
    """√s with all derivatives 0 at s = 0, and finite for infinite s, since a polynomial of r is multiplied by e^−r = 0.

    If s is a rounding error, compiled code may compute it twice and find it positive only once. The inner `where` then
    returns ε², whose root is harmless, instead of 1.
    """
    positive_s, info = s > 0, jnp.finfo(s.dtype)
    return jnp.where(positive_s, jnp.sqrt(jnp.where(positive_s, jnp.minimum(s, info.max / 16), info.eps**2)), 0.0)


def _exponential(c: float, s: Array) -> Array:
    return jnp.exp(-(c * _distance(s)))  # written as in the profiles, so that XLA shares the exponential


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
    return (1.0 + a + a * a / 3.0) * jnp.exp(-a)


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
    """Samples of Student's t with 2ν degrees of freedom: normals over the root mean square of 2ν other normals."""
    normals = jax.random.normal(key, (num, dim + round(2 * nu)), dtype)
    return normals[:, :dim] / jnp.sqrt(jnp.mean(normals[:, dim:] ** 2, axis=1, keepdims=True))
