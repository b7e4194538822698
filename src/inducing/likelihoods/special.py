"""Special functions that must stay exact in the tails: the logarithm of the normal cdf and its relatives."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln, gammaln
from jaxtyping import Array, Float
from numpy.polynomial import chebyshev

from inducing.runtime import apart

_SHIFT, _DEGREE = 2.5, 22


@functools.cache
def _coefficients() -> tuple[float, ...]:
    """Powers of s in erfcx(z) / t, t = 1 / (1 + z / 2.5), s = 2t − 1: smooth for all z ≥ 0, so degree 22 suffices."""
    from scipy.special import erfcx

    def fn(s):
        t = (s + 1) / 2
        return erfcx(_SHIFT / t - _SHIFT) / t

    return tuple(float(c) for c in chebyshev.cheb2poly(chebyshev.chebinterpolate(fn, _DEGREE)))


def half_erfcx(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """½ erfcx(z) = Φ(−√2 z) e^{z²} for z ≥ 0, by one polynomial.

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
def log_ndtr(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log Φ(x), the logarithm of the standard normal cdf, with relative accuracy everywhere.

    Derivatives of any order are finite: the first is the inverse Mills ratio φ(x)/Φ(x).

    >>> import jax.numpy as jnp
    >>> from inducing.likelihoods.special import log_ndtr
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
    """e^x, a straight line where it would overflow, so that log densities −e^x keep finite slopes.

    >>> import jax.numpy as jnp
    >>> print(bounded_exp(jnp.zeros(1)), bool(bounded_exp(jnp.asarray(1e6)) < bounded_exp(jnp.asarray(1e7))))
    [1.] True
    """
    bound = 0.5 * math.log(float(jnp.finfo(x.dtype).max))
    return jnp.exp(jnp.minimum(x, bound)) * (1 + jnp.maximum(x - bound, 0.0))


def log1mexp(a: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(1 − e^a) for a < 0, without cancellation at either end."""
    near = a > -math.log(2)
    return jnp.where(near, jnp.log(-jnp.expm1(jnp.where(near, a, -1.0))), jnp.log1p(-jnp.exp(jnp.where(near, -1.0, a))))


def log_beta(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """log B(a, b) = log Γ(a) + log Γ(b) − log Γ(a + b), whose large terms do not cancel where one of a, b is large.

    >>> import jax.numpy as jnp
    >>> print(f"{log_beta(jnp.asarray(2.0), jnp.asarray(1e12)):.6f}")      # −log(b (b + 1))
    -55.262042
    """
    large = jnp.maximum(a, b) > 100  # JAX's series is off by 1e-7 below
    direct = gammaln(a) + gammaln(b) - gammaln(a + b)
    return jnp.where(large, betaln(a, b), direct)


def log_ndtr_difference(lower: Float[Array, "..."], upper: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(Φ(upper) − Φ(lower)) for lower < upper (either may be infinite), exact in both tails.

    Both ends are mirrored to the left half-line, where log Φ resolves what Φ does not:
    log Φ(b) + log(1 − Φ(a)/Φ(b)).

    >>> import jax.numpy as jnp
    >>> from inducing.likelihoods.special import log_ndtr_difference
    >>> print(f"{log_ndtr_difference(jnp.asarray(20.0), jnp.asarray(21.0)):.6f}")
    -203.917155
    """
    flip = lower + upper > 0
    lower, upper = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    finite = jnp.isfinite(lower)
    a = jnp.where(finite, lower, jnp.minimum(upper, 0.0) - 1.0)
    log_upper = jnp.where(jnp.isfinite(upper), log_ndtr(jnp.where(jnp.isfinite(upper), upper, 0.0)), 0.0)
    return log_upper + jnp.where(finite, log1mexp(log_ndtr(a) - log_upper), 0.0)
