"""Fourier features of Matérn kernels on an interval (Hensman, Durrande & Solin 2018; section 2.3)."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.data import as_inputs
from inducing.features.base import AbstractFeatures, check_columns, refuse
from inducing.features.fourier_sums import fourier_sums
from inducing.features.quadrature_rules import gauss_legendre
from inducing.kernels.base import AbstractKernel
from inducing.linalg import Dense, DiagonalPlusLowRank
from inducing.parameters import as_whole, at_least_one, fixed, positive


class Fourier(AbstractFeatures):
    """Variational Fourier features, inner products in the Hilbert space of a Matérn kernel on [a, b].

        u[m] = ⟨φ_m, f⟩,    Kuf[m](x) = φ_m(x) on [a, b],    Kuu[m, n] = ⟨φ_m, φ_n⟩ = D + V Vᵀ
        φ = (1, cos ω_1(x − a), …, cos ω_F(x − a), sin ω_1(x − a), …, sin ω_F(x − a)),    ω_m = 2πm/(b − a)

    V has p = 1, 2 or 3 columns, so Kuu of the M = 2F + 1 features is inverted in O(M), and Kuf does not depend on the
    kernel. The inner product of Matérn 1/2, 3/2 and 5/2, with p = 1, 2, 3 and λ = √(2p − 1)/ℓ, is

        ⟨g, h⟩ = c ∫ₐᵇ (λ + d/dx)ᵖg (λ + d/dx)ᵖh dx + ĝᵀ B ĥ,    ĝ = (g, g'/λ, g''/λ²)(a), the first p of them
        p = 1:  c = 1/(2λσ²),    B = [1]/σ²
        p = 2:  c = 1/(4λ³σ²),   B = I/σ²
        p = 3:  c = 3/(16λ⁵σ²),  B = [[9/8, 0, 3/8], [0, 3, 0], [3/8, 0, 9/8]]/σ²

    where B⁻¹ is the prior covariance of the scaled values at a. So D[m] = c (λ² + ω_m²)ᵖ (b − a)/2, twice that for the
    constant, and V = φ̂(a) chol(B).

    Outside [a, b] the features continue by the Markov property, as E[f(x) | f on [a, b]]. The features are periodic:
    with growing F, Kfu Kuu⁻¹ Kuf approaches the covariance of f given that its values and first p − 1 derivatives agree
    at a and b. Therefore let [a, b] extend beyond the data, as `Fourier.around` does. The features are for one input
    column; for several use `Product` or `Additive`.

    Draws, and means in coordinates "u", need `apply`, which computes ⟨φ, f⟩ by partial integration and quadrature. For
    ℓ ≥ (b − a)/100 the variances of draws are accurate to 2 % of σ² for Matérn 1/2 and to 0.2 % for the others; for
    ℓ ≥ (b − a)/300 they are accurate to 4 %.

    Args:
        a: the lower end of the interval, not trained.
        b: the upper end of the interval, not trained.
        num: F, the number of frequencies.

    Raises:
        ValueError: if a < b does not hold, or if `num` is not a positive integer.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> features, k = ig.features.Fourier(-4.0, 5.0, 30), ig.kernels.Matern32()
        >>> X = jnp.linspace(0.0, 1.0, 4)[:, None]
        >>> Kuf = features.Kuf(k, X)
        >>> Kuf.shape, bool(jnp.allclose(Kuf.T @ features.Kuu(k, 0.0).solve(Kuf), k.gram(X), atol=1e-3))
        ((61, 4), True)
    """

    a: Float[Array, ""] = fixed()
    b: Float[Array, ""] = fixed()
    num: int = eqx.field(static=True, converter=as_whole)
    num_inputs = 1

    def __check_init__(self):
        check_interval(self, self.a, self.b)
        at_least_one("Fourier.num", self.num)

    @classmethod
    def around(cls, X: Any, num: int, margin: float = 2.0) -> "Fourier":
        """Features on an interval that extends beyond given inputs.

        The function values at both ends of the interval agree, which has no effect on data that are four lengthscales
        away. The default margin therefore suits lengthscales up to half the range of X; for a lengthscale ℓ the margin
        should be 4ℓ/range. A wider interval needs more frequencies, because the features resolve frequencies up to
        2π num/(b − a).

        Args:
            X: inputs, [N] or [N, 1].
            num: the number of frequencies.
            margin: how far the interval extends on both sides of X, as a multiple of the range of X.

        Returns:
            Fourier features.

        Raises:
            ValueError: if X has several columns.

        Examples:
            >>> import inducing as ig
            >>> features = ig.features.Fourier.around([0.0, 1.0, 4.0], 10)
            >>> float(features.a), float(features.b)
            (-8.0, 12.0)
        """
        X = as_inputs(X)
        if X.shape[1] != 1:
            raise ValueError(f"Fourier.around needs one input column, got {X.shape[1]}; pass X[:, d] for each d.")
        low, high = jnp.min(X), jnp.max(X)
        return cls(low - margin * (high - low), high + margin * (high - low), num)

    @property
    def num_features(self) -> int:
        return 2 * self.num + 1

    @property
    def frequencies(self) -> Float[Array, " F"]:
        """The frequencies ω_m = 2πm/(b − a) [F]."""
        return 2.0 * math.pi * jnp.arange(1, self.num + 1, dtype=self.a.dtype) / (self.b - self.a)

    def apply(self, f, kernel=None):
        return _apply(self, self.frequencies, f, kernel)

    def Kuu(self, kernel, jitter):
        p, omega, length, variance = _in_own_units(self, self.frequencies, kernel)
        half = jnp.concatenate([length[None], jnp.broadcast_to(0.5 * length, (2 * self.num,))])
        every = jnp.concatenate([jnp.zeros((1,), omega.dtype), omega, omega])
        D = _scale(p, variance) * (1.0 + every**2) ** p * half
        ends = _waves(omega, jnp.zeros((1,), omega.dtype), p)[:, 0]
        return DiagonalPlusLowRank(D, ends @ jnp.linalg.cholesky(_boundary(p, variance)))

    def Kuf(self, kernel, X):
        return _Kuf(self, self.frequencies, kernel, X)

    def fixed_sums(self, X, y, count):
        check_columns(self, X, 1)
        theta = (2.0 * math.pi / (self.b - self.a)) * (X[:, 0] - self.a)
        if isinstance(X, jax.core.Tracer):  # values are not known: where they lie outside, the sums are NaN
            low, high = jnp.min(X), jnp.max(X)
            outside = (low < self.a) | (high > self.b)
            return fourier_sums(theta, jnp.where(outside, jnp.nan, y), count, self.num)
        low, high, a, b = float(X.min()), float(X.max()), float(self.a), float(self.b)
        if low < a or high > b:
            raise ValueError(
                f"the data reach from {low:.6g} to {high:.6g}, beyond [{a:.6g}, {b:.6g}], where the features depend on "
                "the kernel; use Fourier.around(X, num), or ig.collapsed_elbo."
            )
        return fourier_sums(theta, y, count, self.num)


class FreeFourier(AbstractFeatures):
    """Fourier features with arbitrary frequencies, which are trained.

        u[m] = ⟨φ_m, f⟩,    φ = (1, cos ω_1(x − a), …, cos ω_F(x − a), sin ω_1(x − a), …, sin ω_F(x − a))
        Kuu[m, n] = c ∫ₐᵇ (λ + d/dx)ᵖφ_m (λ + d/dx)ᵖφ_n dx + φ̂_mᵀ B φ̂_n,    with c, B and φ̂ as in `Fourier`

    The features are neither periodic on [a, b] nor orthogonal, so Kuu is dense. With α = (λ + iω_m)ᵖ, β = (λ + iω_n)ᵖ
    and E(ν) = ∫₀^{b−a} e^{iνx} dx, the integral is

        ½ Re(α β̄ E(ω_m − ω_n) ± α β E(ω_m + ω_n))   for two cosines (+) or two sines (−)
        ½ Im(α β E(ω_m + ω_n) − α β̄ E(ω_m − ω_n))   for a cosine m and a sine n

    Use them if few frequencies matter and these are not multiples of 2π/(b − a).

    Args:
        a: the lower end of the interval, not trained.
        b: the upper end of the interval, not trained.
        frequencies: ω, positive numbers [F].

    Raises:
        ValueError: if a < b does not hold, or if the frequencies are not a vector.

    Examples:
        >>> import inducing as ig
        >>> features = ig.features.FreeFourier(0.0, 1.0, frequencies=[3.0, 20.0])
        >>> features.Kuu(ig.kernels.Matern52(), 0.0).dense().shape
        (5, 5)
    """

    a: Float[Array, ""] = fixed()
    b: Float[Array, ""] = fixed()
    frequencies: Float[Array, " F"] = positive()
    num_inputs = 1

    def __check_init__(self):
        check_interval(self, self.a, self.b)
        if self.frequencies.ndim != 1:
            raise ValueError(f"FreeFourier.frequencies must be a vector, got shape {list(self.frequencies.shape)}.")

    @property
    def num_features(self) -> int:
        return 2 * self.frequencies.shape[0] + 1

    def apply(self, f, kernel=None):
        return _apply(self, self.frequencies, f, kernel)

    def Kuu(self, kernel, jitter):
        p, free, length, variance = _in_own_units(self, self.frequencies, kernel)
        zero = jnp.zeros((1,), free.dtype)
        omega = jnp.concatenate([zero, free])
        # (1 + d/dx)ᵖ of cos and sin are Re and Im of (1 + iω)ᵖ e^{iωx}
        A = jax.lax.complex(jnp.ones_like(omega), omega) ** p

        def E(nu):
            half = 0.5 * nu * length
            size = length * jnp.sinc(half / math.pi)
            return jax.lax.complex(size * jnp.cos(half), size * jnp.sin(half))

        minus = A[:, None] * jnp.conj(A)[None, :] * E(omega[:, None] - omega[None, :])
        plus = A[:, None] * A[None, :] * E(omega[:, None] + omega[None, :])
        cc, ss = 0.5 * jnp.real(minus + plus), 0.5 * jnp.real(minus - plus)
        cs = 0.5 * jnp.imag(plus - minus)  # rows cos, columns sin
        K = jnp.concatenate(
            [jnp.concatenate([cc, cs[:, 1:]], 1), jnp.concatenate([cs[:, 1:].T, ss[1:, 1:]], 1)]
        ) * _scale(p, variance)
        ends = _waves(free, zero, p)[:, 0]
        K = K + ends @ _boundary(p, variance) @ ends.T
        return Dense(0.5 * (K + K.T), jitter)

    def Kuf(self, kernel, X):
        return _Kuf(self, self.frequencies, kernel, X)


def check_interval(features: AbstractFeatures, a: Any, b: Any) -> None:
    """Raise a ValueError unless a and b are numbers with a < b."""
    if any(isinstance(v, jax.core.Tracer) or not eqx.is_array(v) for v in (a, b)):
        return
    name = type(features).__name__
    if a.ndim or b.ndim:
        raise ValueError(f"{name}: a and b must be numbers, got shapes {list(a.shape)} and {list(b.shape)}.")
    if not 0.0 < float(b) - float(a) < math.inf:
        raise ValueError(f"{name}: the interval [a, b] must have a < b, got a = {float(a)} and b = {float(b)}.")


def matern(features: AbstractFeatures, kernel: AbstractKernel | None) -> tuple[int, Array, Array]:
    """p (1, 2, 3 for Matérn 1/2, 3/2, 5/2), λ and σ² of a Matérn kernel in one dimension; raises for others."""
    form = None if kernel is None else kernel.matern_form()
    p = None if form is None else {0.5: 1, 1.5: 2, 2.5: 3}.get(form.order)
    if form is None or p is None:
        refuse(
            features,
            kernel,
            "a Matern12, Matern32 or Matern52 kernel",
            "for other kernels use features.plain_fourier, features.InducingPoints, or kernels.HilbertSpace with "
            "features.EigenLaplacian",
        )
    if form.lengthscale.size != 1:
        raise ValueError(
            f"{type(features).__name__} features live in one dimension but {type(kernel).__name__} has "
            f"{form.lengthscale.size} lengthscales; use features.Product with a product of one-dimensional kernels."
        )
    return p, math.sqrt(2 * p - 1) / form.lengthscale.reshape(()), form.variance


def _in_own_units(features: Any, omega: Array, kernel: AbstractKernel | None) -> tuple[int, Array, Array, Array]:
    """p, the frequencies ω/λ, the length λ(b − a) and σ².

    Inner products do not depend on the unit of x. In units of 1/λ, λ is 1 and its powers cannot overflow.
    """
    p, lam, variance = matern(features, kernel)
    return p, omega / lam, lam * (features.b - features.a), variance


def _scale(p: int, variance: Array) -> Array:
    """The constant c of the inner product for λ = 1."""
    return (1.0 / 2.0, 1.0 / 4.0, 3.0 / 16.0)[p - 1] / variance


def _boundary(p: int, variance: Array) -> Float[Array, "p p"]:
    """The matrix B of the inner product for λ = 1, the inverse prior covariance of (f, f', f'')(a)."""
    unit = (
        [[1.0]],
        [[1.0, 0.0], [0.0, 1.0]],
        [[9.0 / 8.0, 0.0, 3.0 / 8.0], [0.0, 3.0, 0.0], [3.0 / 8.0, 0.0, 9.0 / 8.0]],
    )[p - 1]
    return jnp.asarray(unit, variance.dtype) / variance


def _waves(omega: Float[Array, " F"], tau: Float[Array, " n"], num: int) -> Float[Array, "M n num"]:
    """φ_m and its derivatives of orders 0 … num − 1 at τ = x − a."""
    angle = omega[:, None] * tau[None, :]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    cycle = (cos, -sin, -cos, sin)  # the derivatives of cos; those of sin are one step behind
    powers = [omega[:, None] ** j for j in range(num)]
    ones = [jnp.full((1, tau.shape[0]), 1.0 if j == 0 else 0.0, tau.dtype) for j in range(num)]
    rows = [
        jnp.concatenate([one, power * cycle[j % 4], power * cycle[(j - 1) % 4]])
        for j, (one, power) in enumerate(zip(ones, powers, strict=True))
    ]
    return jnp.stack(rows, axis=-1)


def _Kuf(features: Any, omega: Array, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
    """φ(x) inside the interval, and outside e^{−λs} q(s) at the distance s from the nearer end.

        q(s) = g₀ + (λg₀ + g₁) s + (λ²g₀ + 2λg₁ + g₂) s²/2, the first p terms

    g_j is the outward derivative of φ of order j at that end, so that p − 1 derivatives are continuous.
    """
    p, lam, _ = matern(features, kernel)
    check_columns(features, X, 1)
    x = X[:, 0]
    # not jnp.clip, whose slope at a and b is ½
    end = jnp.where(x < features.a, features.a, jnp.where(x > features.b, features.b, x))
    outwards = jnp.sign(x - end)
    s = jnp.abs(x - end)
    waves = _waves(omega, end - features.a, p)
    ls = lam * s
    series = [1.0 + ls + 0.5 * ls**2, s + lam * s**2, 0.5 * s**2]
    if p < 3:
        series = [1.0 + ls, s] if p == 2 else [jnp.ones_like(s)]
    weights = jnp.stack([jnp.exp(-ls) * c * outwards**j for j, c in enumerate(series)], axis=-1)
    return jnp.sum(waves * weights[None], axis=-1)


def _apply(features: Any, omega: Array, f: Callable, kernel: AbstractKernel | None) -> Array:
    """⟨φ, f⟩ for a function that need not be in the Hilbert space: partial integration moves p derivatives to φ.

        ∫ Pφ Pf = (λ² + ω²)ᵖ ∫ φ f + Σ_{k<p} [ (λ − d)ᵏ Pφ · (λ + d)^{p−1−k} f ]ₐᵇ,     P = (λ + d)ᵖ, d = d/dx

    Then f needs only p − 1 derivatives, at a and b, which draws of the prior have. Units are such that λ = 1.
    """
    p, omega, length, variance = _in_own_units(features, omega, kernel)
    t, w = gauss_legendre(8, 2 * omega.shape[0] + 16)
    unit = (features.b - features.a) / length

    def g(tau):
        return f(features.a + unit * tau)

    tau = length * jnp.asarray(t, length.dtype)
    phi = _waves(omega, tau, 1)[..., 0] * (length * jnp.asarray(w, length.dtype))[None, :]
    every = jnp.concatenate([jnp.zeros((1,), omega.dtype), omega, omega])
    inner = ((1.0 + every**2) ** p)[:, None] * phi
    u = jnp.tensordot(inner, g(tau[:, None]), 1)
    ends = jnp.stack([jnp.zeros_like(length), length])
    orders: list[Callable] = [g]
    for _ in range(p - 1):
        orders.append(lambda X, h=orders[-1]: jax.jvp(h, (X,), (jnp.ones_like(X),))[1])
    dg = [h(ends[:, None]) for h in orders]  # [2, …] for each order
    dphi = _waves(omega, ends, 2 * p)  # [M, 2, 2p]
    sign = jnp.asarray([-1.0, 1.0], length.dtype)
    for k in range(p):
        left = _operator(k, p, dphi)  # [M, 2]
        right = sum(c * dg[j] for j, c in enumerate(_binomial(p - 1 - k)))
        u = u + jnp.tensordot(left * sign[None, :], right, 1)
    u = _scale(p, variance) * u
    at_a = dphi[:, 0, :p] @ _boundary(p, variance)
    return u + jnp.tensordot(at_a, jnp.stack([d[0] for d in dg]), 1)


def _binomial(n: int) -> list[float]:
    return [float(math.comb(n, j)) for j in range(n + 1)]


def _operator(k: int, p: int, derivatives: Array) -> Array:
    """(1 − d)ᵏ (1 + d)ᵖ of functions given by their derivatives (last axis)."""
    coefficients = np.array([1.0])
    for factor in [[1, -1]] * k + [[1, 1]] * p:
        coefficients = np.convolve(coefficients, factor)
    return derivatives[..., : k + p + 1] @ jnp.asarray(coefficients, derivatives.dtype)
