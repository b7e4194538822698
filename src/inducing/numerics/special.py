"""Special functions that are accurate in the tails, such as the logarithm of the normal cdf."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln, gammaln
from jaxtyping import Array, Float
from numpy.polynomial import chebyshev

from inducing._xla import apart

_SHIFT, _DEGREE = 2.5, 22


@functools.cache
def _coefficients() -> tuple[float, ...]:
    """Coefficients of the powers of s in erfcx(z) / t, t = 1 / (1 + z / 2.5), s = 2t − 1.

    As a function of s this is smooth for all z ≥ 0, so degree 22 suffices.
    """
    from scipy.special import erfcx

    def fn(s):
        t = (s + 1) / 2
        return erfcx(_SHIFT / t - _SHIFT) / t

    return tuple(float(c) for c in chebyshev.cheb2poly(chebyshev.chebinterpolate(fn, _DEGREE)))


def half_erfcx(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """½ erfcx(z) = Φ(−√2 z) e^{z²} for z ≥ 0, by a single polynomial.

    Examples:
        >>> import jax.numpy as jnp
        >>> print(f"{half_erfcx(jnp.asarray(0.0)):.6f}")
        0.500000
    """
    t = _SHIFT / (_SHIFT + z)
    s = 2 * t - 1
    out = jnp.zeros_like(s)
    for c in reversed(_coefficients()):
        out = out * s + c
    return 0.5 * t * out


def _log_ndtr_and_ratio(x: Array) -> tuple[Array, Array]:
    half_square = 0.5 * x * x
    gauss = jnp.exp(-half_square)
    scaled = apart(half_erfcx(jnp.abs(x) * math.sqrt(0.5)))  # Φ(−|x|) e^{x²/2}
    tail = scaled * gauss
    right = x > 0
    base = jnp.where(right, 1 - tail, scaled)  # one logarithm for both sides
    value = jnp.log(base) - jnp.where(right, 0.0, half_square)
    value = jnp.where(x > 4, -tail * (1 + tail * (0.5 + tail / 3)), value)  # log1p(−tail), tail < 4e-5
    return value, math.sqrt(0.5 / math.pi) * jnp.where(right, gauss, 1.0) / base


@jax.custom_jvp
def quotient(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """a / b, with a derivative that does not leave the range of numbers where 1/b² does.

        d(a/b) = (da − (a/b) db) / b

    JAX computes a/b² for it, as a · b⁻². In float32 that is infinite for variances below 1e-19, such as those of labels
    of 1e-10.

    Args:
        a: numbers of any shape.
        b: numbers of the same shape, or one.

    Returns:
        a / b.

    Examples:
        >>> variance = jnp.asarray(1e-26, jnp.float32)
        >>> print(f"{jax.grad(quotient, 1)(jnp.asarray(1e-24, jnp.float32), variance):.1e}")
        -1.0e+28
    """
    return a / b


@quotient.defjvp
def _quotient_jvp(primals, tangents):
    (a, b), (da, db) = primals, tangents
    q = quotient(a, b)
    return q, da / b - q * db / b


@jax.custom_jvp
def log_ndtr(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log Φ(x), the logarithm of the standard normal cdf, with relative accuracy for all x.

    Derivatives of any order are finite: the first is the inverse Mills ratio φ(x)/Φ(x).

    Examples:
        >>> import jax.numpy as jnp
        >>> from inducing.numerics.special import log_ndtr
        >>> print(f"{log_ndtr(jnp.asarray(-40.0)):.6f}")
        -804.608442
    """
    return _log_ndtr_and_ratio(x)[0]


@log_ndtr.defjvp
def _log_ndtr_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    value, _ = _log_ndtr_and_ratio(x)
    return value, mills_ratio(x) * dx


@jax.custom_jvp
def mills_ratio(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """φ(x)/Φ(x), the derivative of log Φ; tends to −x on the left and to 0 on the right."""
    return _log_ndtr_and_ratio(x)[1]


@mills_ratio.defjvp
def _mills_ratio_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    ratio = mills_ratio(x)
    return ratio, -ratio * (x + ratio) * dx


def log_ndtr_tower(x: Array) -> tuple[Array, Array, Array]:
    """log Φ and its first two derivatives."""
    value, ratio = _log_ndtr_and_ratio(x)
    return value, ratio, -ratio * (x + ratio)


def log_sigmoid_tower(x: Array) -> tuple[Array, Array, Array]:
    """log(1 / (1 + e^{−x})) and its first two derivatives."""
    e = jnp.exp(-jnp.abs(x))
    s = 1 / (1 + e)
    complement = jnp.where(x > 0, e * s, s)  # sigmoid(−x)
    return jnp.minimum(x, 0.0) - jnp.log1p(e), complement, -e * s * s


def bounded_exp(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """e^x, continued by a straight line where it would overflow, so that log densities −e^x have finite slopes.

    Examples:
        >>> import jax.numpy as jnp
        >>> print(bounded_exp(jnp.zeros(1)), bool(bounded_exp(jnp.asarray(1e6)) < bounded_exp(jnp.asarray(1e7))))
        [1.] True
    """
    bound = 0.5 * math.log(float(jnp.finfo(x.dtype).max))
    return jnp.exp(jnp.minimum(x, bound)) * (1 + jnp.maximum(x - bound, 0.0))


def log_softplus(f: Float[Array, "..."]) -> Float[Array, "..."]:
    """log log(1 + e^f), which is f − e^f/2 far on the left, where log(1 + e^f) would underflow."""
    left = f < -15
    return jnp.where(
        left, f - 0.5 * jnp.exp(jnp.where(left, f, 0.0)), jnp.log(jax.nn.softplus(jnp.where(left, 0.0, f)))
    )


def safe_sqrt(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """√x with derivative 0 instead of ∞ at x = 0, and 0 for x < 0, so that gradients at variance 0 are finite."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def log1mexp(a: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(1 − e^a) for a < 0, without cancellation at either end."""
    near = a > -math.log(2)
    return jnp.where(near, jnp.log(-jnp.expm1(jnp.where(near, a, -1.0))), jnp.log1p(-jnp.exp(jnp.where(near, -1.0, a))))


def log_beta(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """log B(a, b) = log Γ(a) + log Γ(b) − log Γ(a + b), without cancellation if a or b is large.

    Examples:
        >>> import jax.numpy as jnp
        >>> print(f"{log_beta(jnp.asarray(2.0), jnp.asarray(1e12)):.6f}")      # −log(b (b + 1))
        -55.262042
    """
    large = jnp.maximum(a, b) > 100  # below, the series of JAX has an error of 1e-7
    direct = gammaln(a) + gammaln(b) - gammaln(a + b)
    return jnp.where(large, betaln(a, b), direct)


def stirling_remainder(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The remainder of Stirling's formula, log Γ(x) − (x − ½) log x + x − ½ log 2π ≈ 1/(12 x), for x > 0.

    Examples:
        >>> import jax.numpy as jnp
        >>> print(f"{stirling_remainder(jnp.asarray(1.0)):.6f}")      # 1 − ½ log 2π
        0.081061
    """
    large = x > 10
    r = 1 / jnp.where(large, x, 10.0)
    series = r * (1 / 12 - r * r * (1 / 360 - r * r * (1 / 1260 - r * r * (1 / 1680 - r * r / 1188))))
    small = jnp.where(large, 1.0, x)
    direct = gammaln(small) - (small - 0.5) * jnp.log(small) + small - 0.5 * math.log(2 * math.pi)
    return jnp.where(large, series, direct)


def beta_remainder(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """(a − 1) log(a/n) + (b − 1) log(b/n) − log B(a, b), n = a + b, without the large terms of B, which cancel."""
    n = a + b
    remainders = stirling_remainder(a) + stirling_remainder(b) - stirling_remainder(n)
    return 1.5 * jnp.log(n) - 0.5 * (jnp.log(a) + jnp.log(b) + math.log(2 * math.pi)) - remainders


@jax.custom_jvp
def beta_cdf(a: Float[Array, "..."], b: Float[Array, "..."], y: Float[Array, "..."]) -> Float[Array, "..."]:
    """P(x ≤ y) under x ~ Beta(a, b), for 0 < y < 1.

    The error is 1e-9 in float64; in float32 it is 1e-5, or 3e-4 if a + b is 10⁴. JAX's `betainc` has no derivatives
    with respect to a and b, and always takes all of its 600 iterations, because it waits until no bit changes.

    Examples:
        >>> import jax.numpy as jnp
        >>> print(f"{beta_cdf(jnp.asarray(2.0), jnp.asarray(1.0), jnp.asarray(0.3)):.6f}")      # y²
        0.090000
    """
    return _beta_cdf(a, b, y)


@beta_cdf.defjvp
def _beta_cdf_jvp(primals, tangents):
    a, b, y = primals
    one = jnp.ones_like(y)
    by_a = jax.jvp(lambda a: _beta_cdf(a, b, y), (a,), (one,))[1]
    by_b = jax.jvp(lambda b: _beta_cdf(a, b, y), (b,), (one,))[1]
    by_y = jnp.exp(_log_beta_front(a, b, y, 1 - y)) / (y * (1 - y))
    da, db, dy = tangents
    return beta_cdf(a, b, y), by_a * da + by_b * db + by_y * dy


def _beta_cdf(a: Array, b: Array, y: Array) -> Array:
    rest = 1 - y
    left = y * (a + b + 2) < a + 1  # else compute P(1 − x < 1 − y), which converges faster
    a, b = jnp.where(left, a, b), jnp.where(left, b, a)
    y, rest = jnp.where(left, y, rest), jnp.where(left, rest, y)
    tail = jnp.exp(_log_beta_front(a, b, y, rest)) / a * _beta_fraction(a, b, y)
    return jnp.where(left, tail, 1 - tail)


def _log_beta_front(a: Array, b: Array, y: Array, rest: Array) -> Array:
    """a log y + b log(rest) − log B(a, b), rest = 1 − y, as a log(y n/a) + b log(rest n/b) + small terms, n = a + b."""
    n, d = a + b, y * b - rest * a
    remainders = stirling_remainder(a) + stirling_remainder(b) - stirling_remainder(n)
    small = 0.5 * (jnp.log(a) + jnp.log(b) - jnp.log(n) - math.log(2 * math.pi)) - remainders
    return a * _log_ratio(d / a, y, n / a) + b * _log_ratio(-d / b, rest, n / b) + small


def _log_ratio(excess: Array, y: Array, times: Array) -> Array:
    """log(y · times), computed from excess = y · times − 1 where that is small."""
    near = jnp.abs(excess) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, excess, 0.0)), jnp.log(y) + jnp.log(times))


def _beta_fraction(a: Array, b: Array, y: Array) -> Array:
    """The continued fraction 8.17.22 of the DLMF, by Lentz's method, two terms at a time."""
    n = a + b
    noise = float(jnp.finfo(y.dtype).eps) * (20 + jnp.sqrt(n))  # the rounding error of a step's factor

    def unfinished(state: tuple[Array, ...]) -> Array:
        m, *_, factor = state
        return (m < 500) & jnp.any(jnp.abs(factor - 1) > 1e-10 + noise)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        m, c, d, value, _ = state
        k = a + 2 * m
        even, odd = m * (b - m) * y / ((k - 1) * k), -(a + m) * (n + m) * y / (k * (k + 1))
        c, d = _nonzero(1 + even / c), 1 / _nonzero(1 + even * d)
        value = value * c * d
        c, d = _nonzero(1 + odd / c), 1 / _nonzero(1 + odd * d)
        return m + 1, c, d, value * c * d, c * d

    one = jnp.ones_like(y)
    first = 1 / _nonzero(1 - n * y / (a + 1))
    return jax.lax.while_loop(unfinished, step, (jnp.ones((), y.dtype), one, first, first, 2 * one))[3]


def _nonzero(x: Array) -> Array:
    return jnp.where(jnp.abs(x) < 1e-30, 1e-30, x)


def logistic_log_prob(f: Float[Array, "..."], y: Float[Array, "..."], rest: Float[Array, "..."]) -> Float[Array, "..."]:
    """y log σ(f) + rest log σ(−f) − log B(y + 1, rest + 1), σ(f) = 1 / (1 + e^{−f}), for y, rest ≥ 0.

    The three terms may be a million times larger than their sum. Stirling's formula for B leaves small terms and

        y log(σ(f) n/a) + rest log(σ(−f) n/b),    a = y + 1, b = rest + 1, n = a + b,

    which near its peak is y t − (y + rest) log(1 + (e^t − 1) a/n), where t is f minus the log-odds of a/n, or the same
    with the two sides exchanged, whichever has smaller terms.

    Examples:
        >>> import jax.numpy as jnp
        >>> zero, half = jnp.asarray(0.0), jnp.asarray(5e5)
        >>> print(f"{logistic_log_prob(zero, half, half) - jnp.log(1e6 + 1):.6f}")      # log Binomial(5e5; 1e6, ½)
        -7.133547
    """
    a, b = y + 1, rest + 1
    n = a + b
    t = f - (jnp.log(a) - jnp.log(b))
    close = jnp.abs(t) < 1
    t = jnp.where(close, jnp.where(a < b, t, -t), 0.0)
    near = jnp.minimum(y, rest) * t - (y + rest) * jnp.log1p(jnp.minimum(a, b) / n * jnp.expm1(t))
    right = f > 0  # minimum and maximum would have wrong slopes at f = 0
    far = logistic_terms(f, -jnp.log1p(jnp.exp(jnp.where(right, -f, f))), y, rest)
    return beta_remainder(a, b) + jnp.where(close, near, far)


def logistic_terms(
    f: Float[Array, "..."], bend: Float[Array, "..."], y: Float[Array, "..."], rest: Float[Array, "..."]
) -> Float[Array, "..."]:
    """y log(σ(f) n/a) + rest log(σ(−f) n/b) as in `logistic_log_prob`, given bend = log σ(|f|) or its expectation."""
    right = f > 0
    log_p, log_rest = jnp.where(right, 0.0, f) + bend, jnp.where(right, -f, 0.0) + bend
    odds = (y + 1) / (rest + 1)
    return y * (log_p + jnp.log1p(1 / odds)) + rest * (log_rest + jnp.log1p(odds))


def log_ndtr_difference(lower: Float[Array, "..."], upper: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(Φ(upper) − Φ(lower)) for lower < upper, either of which may be infinite, accurate in both tails.

    Both ends are mirrored to the left half-line, where log Φ(b) + log(1 − Φ(a)/Φ(b)) loses no digits.

    Examples:
        >>> import jax.numpy as jnp
        >>> from inducing.numerics.special import log_ndtr_difference
        >>> print(f"{log_ndtr_difference(jnp.asarray(20.0), jnp.asarray(21.0)):.6f}")
        -203.917155
    """
    flip = lower + upper > 0
    lower, upper = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    finite = jnp.isfinite(lower)
    a = jnp.where(finite, lower, jnp.minimum(upper, 0.0) - 1.0)
    log_upper = jnp.where(jnp.isfinite(upper), log_ndtr(jnp.where(jnp.isfinite(upper), upper, 0.0)), 0.0)
    log_ratio = jnp.minimum(log_ndtr(a) - log_upper, -float(jnp.finfo(a.dtype).eps))  # rounding may make them equal
    return log_upper + jnp.where(finite, log1mexp(log_ratio), 0.0)


def log_ndtr_narrow(middle: Float[Array, "..."], width: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(Φ(middle + ½ width) − Φ(middle − ½ width)) to width²/8, for |middle| width < 2.

    This is log φ(middle) + log width + log(sinh(x)/x), x = ½ middle width. In float32 the difference itself would keep
    few digits.

    Examples:
        >>> import jax.numpy as jnp
        >>> print(f"{log_ndtr_narrow(jnp.asarray(0.0), jnp.asarray(1e-6)):.6f}")      # log(1e-6/√2π)
        -14.734449
    """
    square = (0.5 * middle * width) ** 2
    curved = square * (1 / 6 - square * (1 / 180 - square * (1 / 2835 - square / 37800)))
    return jnp.log(width / math.sqrt(2 * math.pi)) - 0.5 * middle**2 + curved
