"""Expectations under Gaussians of one dimension, by graded trapezoid rules.

The trapezoid rule converges geometrically for analytic integrands that decay. It needs about half the nodes of
Gauss–Hermite when the integrand has singularities near the real axis, as Student-t densities have. A *graded* rule
changes variables so that nodes are dense around one place where the integrand is curved on a scale much smaller than
the Gaussian's standard deviation. Wide Gaussians then need no more nodes than narrow ones. For integrands with a bend
the change of variables is a cubic, which leaves most nodes for the rest. For densities with a peak it is a hyperbolic
sine, whose nodes are dense at every scale between the width of the peak and that of the Gaussian (`log_expectation`).
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from inducing._xla import barrier
from inducing.numerics.roots import half_width, largest_between
from inducing.numerics.special import safe_sqrt

REACH = 7.0  # the rules span this many standard deviations on either side
ROWS = 4096  # nodes are stored for this many Gaussians at a time


def graded_nodes(
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
    num: int,
    centre: Float[Array, "*shape"] | None = None,
    width: Float[Array, "*shape"] | None = None,
) -> tuple[Float[Array, "num *shape"], Float[Array, "num *shape"]]:
    """Nodes f and weights w with E[g(f)] ≈ Σ_k w_k g(f_k) for f ~ N(mean, variance), elementwise.

    The trapezoid rule in t, where f = mean + sd·z and z − z0 = b t + a t³, z0 = (centre − mean)/sd. Its spacing is as
    fine as `width` around `centre` and coarse far from it. It is uniform in z if the Gaussian is not much wider than
    `width`, or if there is no centre. The choice of nodes is not differentiated: derivatives pass through
    f = mean + sd·z alone.

    Args:
        mean: means of the Gaussians.
        variance: their variances; 0 is allowed.
        num: the number of nodes.
        centre: where the integrand has its bend.
        width: the width of the bend.

    Returns:
        Nodes and weights, each with a leading axis of `num`.
    """
    sd = safe_sqrt(variance)
    steps = np.linspace(-1.0, 1.0, num)
    if centre is None or width is None:
        z = REACH * steps
        w = np.exp(-0.5 * z**2)
        expand = (num,) + (1,) * mean.ndim
        z, w = (jnp.asarray(a, mean.dtype).reshape(expand) for a in (z, w / w.sum()))
        return mean[None] + sd[None] * z, jnp.broadcast_to(w, (num, *mean.shape))
    z0, a, b, lower, step = (x[None] for x in _grading(mean, sd, num, centre, width))
    k = jnp.arange(num, dtype=mean.dtype).reshape((num,) + (1,) * mean.ndim)
    z, w = _graded_node(z0, a, b, lower + step * k)
    return mean[None] + sd[None] * z, w / jnp.sum(w, axis=0, keepdims=True)


def skewed_nodes(
    mean: Float[Array, "*shape"], variance: Float[Array, "*shape"], num: int, rate: float
) -> tuple[Float[Array, "num *shape"], Float[Array, "num *shape"]]:
    """Nodes f and logarithms of weights w for E[g(f)] ≈ Σ_k w_k g(f_k) of a g that grows like e^{−rate f} as f falls.

    The product of e^{−rate f} and the Gaussian peaks `rate` · sd standard deviations below the mean, so the trapezoid
    rule reaches that much farther down. Add the logarithms of w and g there, because g alone may overflow. The choice
    of nodes is not differentiated: derivatives pass through f = mean + sd·z alone.

    Args:
        mean: means of the Gaussians.
        variance: their variances; 0 is allowed.
        num: the number of nodes.
        rate: how fast g grows.

    Returns:
        Nodes and logarithms of weights, each with a leading axis of `num`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from inducing.numerics.quadrature import skewed_nodes
        >>> f, log_w = skewed_nodes(jnp.zeros(1), 4.0 * jnp.ones(1), 80, 2.0)
        >>> print((jnp.sum(jnp.exp(log_w - 2 * f), axis=0) / jnp.exp(8.0)).round(9))
        [1.]
    """
    sd = safe_sqrt(variance)
    lower = -REACH - rate * jax.lax.stop_gradient(sd)
    steps = jnp.linspace(0.0, 1.0, num, dtype=mean.dtype).reshape((num,) + (1,) * mean.ndim)
    z = lower[None] + (REACH - lower[None]) * steps
    log_w = -0.5 * z**2
    return mean[None] + sd[None] * z, log_w - jax.nn.logsumexp(log_w, axis=0, keepdims=True)


def _standardised(mean, sd, centre, width):
    """The centre and the width in standard deviations of the Gaussian, as constants."""
    m, s, c, h = (jax.lax.stop_gradient(x) for x in (mean, sd, centre, width))
    s = jnp.maximum(s, jnp.finfo(m.dtype).tiny ** 0.5)
    return (c - m) / s, jnp.clip(h / s, 1e-15, 1e6)


def _grading(mean, sd, num, centre, width):
    """The map z = z0 + b t + a t³, and the first t and the step of `num` nodes that span ±`REACH`."""
    z0, h = _standardised(mean, sd, centre, width)
    z0 = jnp.clip(z0, -50.0, 50.0)  # a centre farther away has no influence
    # On t ∈ [−1, 1] the plain rule has z = REACH·t. Near the centre we want dz/dt ≈ num/4 widths.
    b = jnp.minimum(0.25 * num * h + jnp.maximum(jnp.abs(z0) - REACH, 0.0), REACH)
    a = REACH - b
    lower, upper = _cubic_inverse(-REACH - z0, a, b), _cubic_inverse(REACH - z0, a, b)
    return z0, a, b, lower, (upper - lower) / (num - 1)


def _graded_node(z0: Array, a: Array, b: Array, t: Array) -> tuple[Array, Array]:
    """The node z at t and its weight, φ(z) dz/dt up to a constant."""
    z = z0 + t * (b + a * t * t)
    return z, jnp.exp(-0.5 * z * z) * (b + 3 * a * t * t)


def _cubic_inverse(x: Array, a: Array, b: Array) -> Array:
    """The real t with a t³ + b t = x, for a, b ≥ 0 not both 0 (two Newton steps polish the closed form)."""
    tiny = jnp.finfo(x.dtype).eps
    safe_a, safe_b = jnp.maximum(a, tiny), jnp.maximum(b, tiny)
    scale = jnp.sqrt(safe_b / (3 * safe_a))
    t = 2 * scale * jnp.sinh(jnp.arcsinh(1.5 * x / (safe_b * scale)) / 3)
    for _ in range(2):
        t = t - (t * (safe_b + safe_a * t * t) - x) / (safe_b + 3 * safe_a * t * t)
    return t


def expectation(
    fn: Callable[[Array], Array],
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
    num: int,
    centre: Float[Array, "*shape"] | None = None,
    width: Float[Array, "*shape"] | None = None,
) -> Float[Array, "*shape"]:
    """E[fn(f)] under f ~ N(mean, variance), elementwise, by the graded trapezoid rule (see `graded_nodes`).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from inducing.numerics.quadrature import expectation
        >>> zero, one = jnp.zeros(1), jnp.ones(1)
        >>> print(expectation(jax.nn.softplus, zero, 1e4 * one, 32, zero, one).round(4))  # 100 / √(2π) + …
        [39.901]
    """
    f, w = graded_nodes(mean, variance, num, centre, width)
    return jnp.sum(w * jax.vmap(fn)(f), axis=0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 3, 5))
def tower_expectation(
    tower: Callable[[Array], tuple[Array, Array, Array]],
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
    num: int,
    centre: Float[Array, "*shape"],
    width: float,
) -> Float[Array, "*shape"]:
    """E[g(f)] under f ~ N(mean, variance) by the graded trapezoid rule, for a fixed g with tower(f) = (g, g', g'')(f).

    The values are those of `expectation`. The derivatives ∂/∂mean = E g' (Bonnet) and ∂/∂variance = ½ E g'' (Price)
    come from the same pass over the nodes, which makes the gradient cheap, and correct also at variance 0. Nodes are
    stored only for a block of rows at a time.
    """
    return _tower(tower, mean, variance, num, centre, width)[0]


@tower_expectation.defjvp
def _tower_jvp(tower, num, width, primals, tangents):
    (mean, variance, centre), (dmean, dvariance, _) = primals, tangents
    value, slope, bend = _tower(tower, mean, variance, num, centre, width)
    return value, slope * dmean + 0.5 * bend * dvariance


def _tower(tower, mean, variance, num, centre, width):
    once = barrier  # so that XLA computes it once, and not again in each loop that uses it

    def block(mean, variance, centre):  # [1, n]; the nodes are the rows of what follows
        def at_nodes(x: Array) -> Array:
            return jnp.broadcast_to(x, (num, x.shape[1]))

        sd = safe_sqrt(variance)
        # The nodes of a wide Gaussian resolve g' but not the peak of g''. There we use Stein's lemma instead:
        # E g'' = E[g' (f − mean)] / variance.
        wide = sd > 20 * width
        stein = jnp.where(wide, 1.0 / jnp.where(wide, variance, 1.0), 0.0)
        grading = _grading(mean, sd, num, centre, jnp.full_like(mean, width))
        mean, sd, stein, z0, a, b, lower, step = map(at_nodes, once((mean, sd, stein, *grading)))
        z, w = _graded_node(z0, a, b, lower + step * jax.lax.broadcasted_iota(mean.dtype, mean.shape, 0))
        f, w = once((mean + sd * z, w))
        ones = jnp.ones((1, num), mean.dtype)
        total = ones @ w
        value, slope, bend = tower(f)
        bend = jnp.where(stein > 0, slope * (f - mean) * stein, bend)
        return tuple((ones @ (w * term)) / total for term in (value, slope, bend))

    n = min(max(mean.size, 1), ROWS)
    whole = [jnp.pad(a.ravel(), (0, -mean.size % n)).reshape(-1, 1, n) for a in (mean, variance, centre)]
    sums = jax.lax.map(lambda a: block(*a), whole)
    return tuple(s.ravel()[: mean.size].reshape(mean.shape) for s in sums)


def log_expectation(
    log_fn: Callable[[Array], Array],
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
    num: int,
    centre: Float[Array, "*shape"],
    width: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """log E[exp(log_fn(f))] under f ~ N(mean, variance), elementwise, for a density with a peak.

    The trapezoid rule in t, where f = mean + sd·z and sinh(z − z0) = h sinh t, h = width/sd. Its spacing is as fine as
    `width` around the centre, then proportional to the distance from it, and uniform beyond one standard deviation.
    The peak may therefore be a million times narrower than the Gaussian. The nodes span the Gaussian and reach out to
    the centre. If the integrand has its maximum between the two, too narrow for these nodes, they are centred there.

    If the Gaussian is wider than the peak, derivatives move the Gaussian and keep the nodes fixed. Moving the nodes
    would add the slopes of both sides of the peak, which cancel and leave only the error of the rule.

    Args:
        log_fn: the logarithm of the density, elementwise.
        mean: means of the Gaussians.
        variance: their variances.
        num: the number of nodes.
        centre: where the density has its peak.
        width: the width of the peak.

    Returns:
        The logarithms of the expectations.

    Examples:
        >>> zero, one = jnp.zeros(1), jnp.ones(1)
        >>> print(log_expectation(lambda f: -0.5 * f * f, zero, 1e8 * one, 80, zero, one).round(4))  # −½ log(1e8 + 1)
        [-9.2103]
    """
    sd = safe_sqrt(variance)
    z0, h = _standardised(mean, sd, centre, width)
    wide = h < 1
    m, s = (jnp.where(wide, jax.lax.stop_gradient(x), x) for x in (mean, sd))
    scale = jnp.where(wide, sd, 1.0)
    shrinks = jnp.log(jax.lax.stop_gradient(scale) / scale)  # 0, with the derivative of the Gaussian's height

    def log_integrand(z: Array) -> Array:
        u = jnp.where(wide, (m - mean + s * z) / scale, z)
        return log_fn(m + s * z) - 0.5 * u * u + shrinks

    far = min(100.0, 0.5 * math.log(float(jnp.finfo(z0.dtype).max)) - 10.0)  # sinh² does not overflow up to here
    between = jax.lax.stop_gradient(largest_between(log_integrand, z0))
    fall = jax.lax.stop_gradient(half_width(log_integrand, between))
    gain = log_integrand(between) + jnp.log(fall) - log_integrand(z0) - jnp.log(jnp.minimum(h, 1.0))
    leave = ~(gain < 12.0) | (jnp.abs(z0) > far)  # the peak holds less than e⁻¹² of the integral
    # The integrand has one maximum that the nodes around z0 do not resolve: they are too far apart there.
    one_hill = log_integrand(0.5 * (between + z0)) >= log_integrand(z0)
    spacing = 0.5 * jnp.minimum(jnp.hypot(h, between - z0), 1.0)
    move = leave | (one_hill & ((fall < spacing) | (jnp.abs(z0) > 20.0)))
    z0, h = jnp.where(move, between, z0), jnp.minimum(jnp.where(move, fall, h), 1.0)
    reach = jnp.where(leave | (move & (jnp.abs(z0) > 20.0)), 0.0, z0)
    lower = jnp.arcsinh(jnp.sinh(jnp.minimum(-reach, 0.0) - REACH) / h)
    upper = jnp.arcsinh(jnp.sinh(jnp.maximum(-reach, 0.0) + REACH) / h)
    t = jnp.linspace(lower, upper, num)
    x = h[None] * jnp.sinh(t)
    z = z0[None] + jnp.arcsinh(x)
    log_w = jnp.log((upper - lower) / (num - 1))[None] + jnp.log(h[None] * jnp.cosh(t)) - 0.5 * jnp.log1p(x * x)
    return logsumexp(jax.vmap(log_integrand)(z) + log_w, axis=0) - 0.5 * math.log(2 * math.pi)
