"""Expectations under Gaussians: graded trapezoid, tensor and quasi-Monte Carlo rules.

The rule of choice in one dimension is the *graded trapezoid*. The trapezoid rule converges
geometrically for analytic integrands that decay, and it needs about half the nodes of Gauss–Hermite
when the integrand has singularities near the real axis (Student-t). A change of variables crowds its
nodes around one place where the integrand bends within a width that is small beside the Gaussian's
standard deviation, so that wide Gaussians need no more nodes than narrow ones. For integrands that bend it is a
cubic, which keeps most nodes for the rest; for densities that peak it is a hyperbolic sine, whose nodes are dense
at every scale from the peak's to the Gaussian's (`log_expectation`).
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

from inducing._xla import barrier
from inducing.numerics.roots import bisect, half_width, largest_between

REACH = 7.0  # standard deviations that the rules span on either side
ROWS = 4096  # of a block of Gaussians whose nodes are stored at a time


def safe_sqrt(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """√x with derivative 0, not ∞, at x = 0 (and value 0 below): a deterministic f keeps finite gradients."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def graded_nodes(
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
    num: int,
    centre: Float[Array, "*shape"] | None = None,
    width: Float[Array, "*shape"] | None = None,
) -> tuple[Float[Array, "num *shape"], Float[Array, "num *shape"]]:
    """Nodes f and weights w with E[g(f)] ≈ Σ_k w_k g(f_k) for f ~ N(mean, variance), elementwise.

    A trapezoid rule in t, where f = mean + sd·z and z − z0 = b t + a t³: spacing `width`-fine around
    `centre` (z0 = (centre − mean)/sd) and coarse far from it; uniform in z when the Gaussian is no wider
    than a few widths, or without a centre. z spans ±`REACH`. The nodes depend on mean and variance only as a choice
    of rule, so derivatives pass through f = mean + sd·z alone.
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


def _standardised(mean, sd, centre, width):
    """The centre and the width in standard deviations of the Gaussian, as constants."""
    m, s, c, h = (jax.lax.stop_gradient(x) for x in (mean, sd, centre, width))
    s = jnp.maximum(s, jnp.finfo(m.dtype).tiny ** 0.5)
    return (c - m) / s, jnp.clip(h / s, 1e-15, 1e6)


def _grading(mean, sd, num, centre, width):
    """The map z = z0 + b t + a t³, and the first t and the step of `num` nodes that span ±`REACH`."""
    z0, h = _standardised(mean, sd, centre, width)
    z0 = jnp.clip(z0, -50.0, 50.0)  # farther from the Gaussian a centre does not matter
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
    """E[fn(f)], f ~ N(mean, variance), elementwise, by the graded trapezoid rule (see `graded_nodes`).

    >>> import jax, jax.numpy as jnp
    >>> from inducing.numerics.quadrature import expectation
    >>> zero, one = jnp.zeros(1), jnp.ones(1)
    >>> print(expectation(jax.nn.softplus, zero, 1e4 * one, 32, zero, one).round(4))   # 100 / √(2π) + …
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
    """E[g(f)], f ~ N(mean, variance), by the graded trapezoid rule, for a fixed g with tower(f) = (g, g', g'')(f).

    The same numbers as `expectation`, three times as fast with its gradient, which is right at variance 0 too:
    ∂/∂mean = E g' (Bonnet) and ∂/∂variance = ½ E g'' (Price) come out of the same pass over the nodes, which
    are stored for blocks of rows only.
    """
    return _tower(tower, mean, variance, num, centre, width)[0]


@tower_expectation.defjvp
def _tower_jvp(tower, num, width, primals, tangents):
    (mean, variance, centre), (dmean, dvariance, _) = primals, tangents
    value, slope, bend = _tower(tower, mean, variance, num, centre, width)
    return value, slope * dmean + 0.5 * bend * dvariance


def _tower(tower, mean, variance, num, centre, width):
    once = barrier  # computed once, not in each loop that uses it

    def block(mean, variance, centre):  # [1, n]; the nodes are the rows of what follows
        def at_nodes(x: Array) -> Array:
            return jnp.broadcast_to(x, (num, x.shape[1]))

        sd = safe_sqrt(variance)
        # Nodes of a wide Gaussian resolve g', not the peak of g'': there E g'' = E[g' (f − mean)] / variance (Stein).
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
    """log E[exp(log_fn(f))], f ~ N(mean, variance), elementwise, for a density that peaks at `centre` within `width`.

    A trapezoid rule in t, where f = mean + sd·z and sinh(z − z0) = h sinh t, h = width/sd: spacing `width`-fine around
    the centre, then in proportion to the distance from it, and uniform from one standard deviation on. So a peak may be
    a million times narrower than the Gaussian. Nodes span the Gaussian and reach out to the centre. Where the
    integrand is largest at some point between the two, too narrowly for these nodes, they gather there.

    Where the Gaussian is wider than the peak, it is the Gaussian that moves with mean and variance, and the nodes stay
    where they are: the slopes of the peak's two sides would cancel, all but the errors of the rule.

    >>> zero, one = jnp.zeros(1), jnp.ones(1)
    >>> print(log_expectation(lambda f: -0.5 * f * f, zero, 1e8 * one, 80, zero, one).round(4))   # −½ log(1e8 + 1)
    [-9.2103]
    """
    sd = safe_sqrt(variance)
    z0, h = _standardised(mean, sd, centre, width)
    wide = h < 1
    m, s = (jnp.where(wide, jax.lax.stop_gradient(x), x) for x in (mean, sd))
    scale = jnp.where(wide, sd, 1.0)
    shrinks = jnp.log(jax.lax.stop_gradient(scale) / scale)  # 0, with the slope of the Gaussian's height

    def log_integrand(z: Array) -> Array:
        u = jnp.where(wide, (m - mean + s * z) / scale, z)
        return log_fn(m + s * z) - 0.5 * u * u + shrinks

    far = min(100.0, 0.5 * math.log(float(jnp.finfo(z0.dtype).max)) - 10.0)  # where sinh² still has a value
    between = jax.lax.stop_gradient(largest_between(log_integrand, z0))
    fall = jax.lax.stop_gradient(half_width(log_integrand, between))
    gain = log_integrand(between) + jnp.log(fall) - log_integrand(z0) - jnp.log(jnp.minimum(h, 1.0))
    leave = ~(gain < 12.0) | (jnp.abs(z0) > far)  # what the peak itself holds is less than e⁻¹² of the whole
    # The integrand has one hill, which nodes around z0 do not resolve: too far apart there, or everywhere.
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


def threshold_cdf(
    log_density: Callable[[Array], Array],
    mean: Float[Array, "*shape"],
    variance: Float[Array, "*shape"],
    num: int,
    centre: Float[Array, "*shape"],
    width: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """P(f < u), f ~ N(mean, variance), elementwise, for a threshold u of density exp(log_density), up to a factor.

    That is E[F(f)] for any F that falls from 1 to 0, with −F′ the density of u: many a cdf P(y ≤ k | f) has a simple
    derivative in f, but itself takes hundreds of operations. The density has one hill at `centre` of about `width`.

    A trapezoid rule in t. Nodes are spaced sd-fine around the mean, where Φ((u − mean)/sd) rises, in proportion to the
    distance from it, and width-fine from one width on; in the tails of u, in proportion to the distance from `centre`.
    A Gaussian narrower than a hundredth of the width is replaced by a function of that width that has its variance,
    Φ(z) + ½ ρ z φ(z), ρ = 1 − variance/that width²: an error of 1e-9.

    >>> zero, one = jnp.zeros(1), jnp.ones(1)
    >>> print(threshold_cdf(lambda u: -0.5 * u * u, one, 3.0 * one, 80, zero, one).round(6))   # Φ(−1/2)
    [0.308538]
    """
    m, c, w = (jax.lax.stop_gradient(a) for a in (mean, centre, width))
    wide = jnp.maximum(variance, (0.01 * w) ** 2)
    sd, rho = jnp.sqrt(wide), 1 - variance / wide
    top = jax.lax.stop_gradient(log_density(c))

    def holds(s: Array) -> Array:  # whether there is any mass to speak of at u = centre + width·sinh s
        return jax.lax.stop_gradient(log_density(c + w * jnp.sinh(s))) - top + jnp.log(jnp.cosh(s)) > -20.0

    def end(sign: float) -> Array:  # of the mass, in widths from the centre
        return sign * jnp.sinh(bisect(lambda s: holds(sign * s), jnp.ones_like(m), jnp.full_like(m, 33.0), 6))

    lower, upper = end(-1.0), end(1.0)
    even = jnp.where(upper - lower > 1e4, 1.0, 3.0)  # so many widths around the centre are spaced evenly

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
    # One node at a time: what is the same for all of them is then computed once.
    (total, above), _ = jax.lax.scan(add, (zero, zero), jnp.arange(num, dtype=mean.dtype))
    return above / total


def student_t_cdf(
    x: Float[Array, "*shape"], df: Float[Array, "*shape"], variance: Float[Array, "*shape"], num: int
) -> Float[Array, "*shape"]:
    """P(e + t ≤ x), e ~ N(0, variance) and t Student-t with `df` degrees of freedom, elementwise.

    Given the precision g ~ Gamma(df/2, df/2) of t, the sum is Gaussian: E[Φ(x √g / √(variance g + 1))]. A trapezoid
    rule in τ, where 2 τ = arcsinh((h − a)/w) + arcsinh((h − b)/w), h = log g: nodes are dense around a, where the
    density of h bends, and around b, where Φ does, e^{−b} = x² + variance. The error is relative, about 1e-7, however
    heavy the tails and narrow or wide the Gaussian.

    >>> zero = jnp.zeros(1)
    >>> print(f"{student_t_cdf(zero - 1e6, zero + 1, zero, 80)[0]:.6e}")      # Cauchy: 1e-6/π
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


@functools.cache
def tensor_rule(dim: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [K, dim] and weights [K] for N(0, I): a product of trapezoid rules without its negligible corners."""
    reach = 6.5
    z1 = np.linspace(-reach, reach, num)
    z = np.stack(np.meshgrid(*[z1] * dim, indexing="ij"), -1).reshape(-1, dim)
    z = z[(z**2).sum(-1) <= reach**2 * 1.0001]
    w = np.exp(-0.5 * (z**2).sum(-1))
    return z, w / w.sum()


@functools.cache
def qmc_rule(dim: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [num, dim] and weights [num] for N(0, I): Sobol points in antithetic pairs, the same every time."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    half = num // 2
    sobol = qmc.Sobol(dim, scramble=True, rng=np.random.default_rng(0))
    u = sobol.random_base2(math.ceil(math.log2(half)))[:half]
    z = ndtri(np.clip(u, 1e-12, 1 - 1e-12))
    z = np.concatenate([z, -z])
    return z, np.full(len(z), 1.0 / len(z))


def root(cov: Float[Array, "*N F F"]) -> Float[Array, "*N F F"]:
    """A lower-triangular square root of positive semi-definite matrices, singular ones included.

    Column by column with vanishing pivots skipped (value and derivative), so that zero variances and
    perfectly correlated latents are fine. F is small here: the number of latents of one datum.
    """
    F = cov.shape[-1]
    eps = jnp.finfo(cov.dtype).eps
    diagonal = jnp.diagonal(cov, axis1=-2, axis2=-1)
    columns = []
    rest = cov
    for i in range(F):
        pivot = rest[..., i, i]
        good = pivot > 10 * eps * jnp.abs(diagonal[..., i])
        scale = jnp.where(good, jax.lax.rsqrt(jnp.where(good, pivot, 1.0)), 0.0)
        below = jnp.asarray(np.arange(F) >= i, cov.dtype)
        column = rest[..., :, i] * scale[..., None] * jnp.broadcast_to(below, rest.shape[:-1])
        rest = rest - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return jnp.stack(columns, axis=-1)


def gaussian_nodes(mean: Float[Array, "*N F"], cov: Float[Array, "..."], z: np.ndarray) -> Float[Array, "K *N F"]:
    """The standard nodes z [K, F] moved to N(mean, cov); cov is [*N, F] (variances) or [*N, F, F]."""
    nodes = jnp.asarray(z, mean.dtype)
    if cov.ndim == mean.ndim:
        return mean[None] + safe_sqrt(cov)[None] * nodes.reshape((len(z),) + (1,) * (mean.ndim - 1) + (z.shape[-1],))
    return mean[None] + jnp.einsum("...fg,kg->k...f", root(cov), nodes)
