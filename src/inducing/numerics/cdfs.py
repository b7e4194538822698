"""Distribution functions that are integrals over one variable."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from inducing.numerics.roots import bisect


def threshold_cdf(
    log_density: Callable[[Array], Array],
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
    num: int,
    centre: Float[Array, "*shape"],
    width: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """P(f < u), elementwise, under f ~ N(mean, variance) and a random threshold u.

    This is E[F(f)] for any F that decreases from 1 to 0, with the density −F′ of u. Many cdfs P(y ≤ k | f) have a
    simple derivative in f, but take hundreds of operations themselves.

    The trapezoid rule in t. Its spacing is as fine as the standard deviation around the mean, where Φ((u − mean)/sd)
    rises, then proportional to the distance from the mean, and as fine as `width` beyond one width; in the tails of u
    it is proportional to the distance from `centre`. A Gaussian narrower than a hundredth of the width is replaced by
    Φ(z) + ½ ρ z φ(z) of that width w, ρ = 1 − variance/w², which has the same variance. The error is 1e-9.

    Args:
        log_density: the log density of u up to a constant, elementwise. It has one maximum.
        mean: means of the Gaussians.
        variance: their variances; 0 is allowed.
        num: the number of nodes.
        centre: where the density of u has its maximum.
        width: the approximate width of that.

    Returns:
        Probabilities.

    Examples:
        >>> zero, one = jnp.zeros(1), jnp.ones(1)
        >>> print(threshold_cdf(lambda u: -0.5 * u * u, one, 3.0 * one, 80, zero, one).round(6))  # Φ(−1/2)
        [0.308538]
    """
    m, c, w = (jax.lax.stop_gradient(a) for a in (mean, centre, width))
    wide = jnp.maximum(variance, (0.01 * w) ** 2)
    sd, rho = jnp.sqrt(wide), 1 - variance / wide
    top = jax.lax.stop_gradient(log_density(c))

    def holds(s: Array) -> Array:  # whether the mass at u = centre + width·sinh s matters
        return jax.lax.stop_gradient(log_density(c + w * jnp.sinh(s))) - top + jnp.log(jnp.cosh(s)) > -20.0

    def end(sign: float) -> Array:  # of the mass, in widths from the centre
        return sign * jnp.sinh(bisect(lambda s: holds(sign * s), jnp.ones_like(m), jnp.full_like(m, 33.0), 6))

    lower, upper = end(-1.0), end(1.0)
    even = jnp.where(
        upper - lower > 1e4, 1.0, 3.0
    )  # the number of widths around the centre in which nodes are spaced evenly

    def stretched(x: Array) -> Array:
        return even * jnp.arcsinh(x / even)

    lower, upper = stretched(lower), stretched(upper)
    s0 = jnp.clip(stretched((m - c) / w), lower, upper)
    h = jnp.minimum(jax.lax.stop_gradient(sd) / (w * jnp.cosh(s0 / even)), 1.0)
    first, last = jnp.arcsinh(jnp.sinh(lower - s0) / h), jnp.arcsinh(jnp.sinh(upper - s0) / h)
    step = (last - first) / (num - 1)

    def add(sums: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        t = first + step * i
        x = h * jnp.sinh(t)
        s = (s0 + jnp.arcsinh(x)) / even
        u = c + w * even * jnp.sinh(s)
        mass = jnp.exp(log_density(u) - top) * jnp.cosh(s) * jnp.cosh(t) / jnp.sqrt(1 + x * x)
        z = (u - mean) / sd
        rise = ndtr(z) + (0.5 / math.sqrt(2 * math.pi)) * rho * z * jnp.exp(-0.5 * z * z)
        return (sums[0] + mass, sums[1] + mass * rise), None

    zero = jnp.zeros_like(mean)
    # A scan over the nodes computes only once everything that does not depend on the node.
    (total, above), _ = jax.lax.scan(add, (zero, zero), jnp.arange(num, dtype=mean.dtype))
    return above / total


def student_t_cdf(
    x: Float[Array, "*shape"], df: Float[Array, "*shape"], variance: Float[Array, "*shape"], num: int
) -> Float[Array, "*shape"]:
    """P(e + t ≤ x), elementwise, where e ~ N(0, variance) and t has a Student-t distribution.

    Given the precision g ~ Gamma(df/2, df/2) of t, the sum is Gaussian and the result E[Φ(x √g / √(variance g + 1))].
    It is computed by the trapezoid rule in τ, where 2 τ = arcsinh((h − a)/w) + arcsinh((h − b)/w), h = log g. Nodes are
    dense around a, where the density of h is curved, and around b, where Φ is, e^{−b} = x² + variance. The relative
    error is about 1e-7 for all tails and widths.

    Args:
        x: where to evaluate the cdf.
        df: the degrees of freedom of t.
        variance: the variance of e; 0 is allowed.
        num: the number of nodes.

    Returns:
        Probabilities.

    Examples:
        >>> zero = jnp.zeros(1)
        >>> print(f"{student_t_cdf(zero - 1e6, zero + 1, zero, 80)[0]:.6e}")  # Cauchy: 1e-6/π
        3.183099e-07
    """
    k = 0.5 * df
    rate = jax.lax.stop_gradient(k)
    fall = 36.0 / rate  # the nodes span where the density of h, (h − e^h + 1) k, has fallen by no more than e⁻³⁶
    lower, upper = -fall - jnp.sqrt(2 * fall), jnp.minimum(jnp.sqrt(2 * fall), jnp.log(2 * fall + 2))
    for _ in range(5):
        lower, upper = (h - (jnp.expm1(h) - h - fall) / jnp.expm1(h) for h in (lower, upper))
    width = 2 / jnp.sqrt(jnp.maximum(rate, 1.0))
    a = jnp.maximum(-jnp.log(rate), 0.0)
    b = jnp.clip(-jnp.log(jax.lax.stop_gradient(x * x + variance)), lower, upper)
    middle, half = 0.5 * (a + b), 0.5 * (a - b) / width
    first, last = (0.5 * (jnp.arcsinh((h - a) / width) + jnp.arcsinh((h - b) / width)) for h in (lower, upper))
    step = (last - first) / (num - 1)

    def add(sums: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        tau = first + step * i
        e = jnp.exp(tau)
        cosh, sinh = 0.5 * (e + 1 / e), 0.5 * (e - 1 / e)
        root = jnp.sqrt(cosh * cosh + half * half)
        h = middle + width * (sinh / cosh) * root
        r = jnp.exp(0.5 * h)
        mass = jnp.exp(k * (h - jnp.expm1(h))) * (root / (cosh * cosh) + sinh * sinh / root)
        return (sums[0] + mass, sums[1] + mass * ndtr(x * r / jnp.sqrt(variance * r * r + 1))), None

    zero = jnp.zeros_like(x)
    (total, below), _ = jax.lax.scan(add, (zero, zero), jnp.arange(num, dtype=x.dtype))
    return below / total
