"""The continuous ranked probability score of predictive distributions: closed forms, integrals and sums."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

Cdf = Callable[[Array], Array]
LEVELS = (1e-6, 0.25, 0.5, 0.75, 1 - 1e-6)  # the tails beyond the first and the last enter the score as squares
_NODES = np.polynomial.legendre.leggauss(64)
CELLS = 256  # the number of cells into which a sum over counts is split; with fewer counts it is exact


def crps_of_gaussians(
    y: Float[Array, "N P"], mean: Float[Array, "S N P"], variance: Float[Array, "S N P"]
) -> Float[Array, "N P"]:
    """The score of an equal mixture of S Gaussians, in closed form (Grimit et al. 2006), at a cost of S².

        CRPS = 1/S Σ_s A(y − m_s, v_s) − 1/(2 S²) Σ_st A(m_s − m_t, v_s + v_t),   A(m, v) = E|N(m, v)|

    Examples:
        >>> one = jnp.ones((1, 1, 1))
        >>> print(crps_of_gaussians(one[0], one, one).round(4))  # (√2 − 1)/√π
        [[0.2337]]
    """

    def add(total: Array, component: tuple[Array, Array]) -> tuple[Array, None]:
        m, v = component
        return total + jnp.mean(_mean_size(mean - m[None], variance + v[None]), axis=0), None

    spread, _ = jax.lax.scan(add, jnp.zeros_like(y), (mean, variance))
    return jnp.mean(_mean_size(y[None] - mean, variance), axis=0) - 0.5 * spread / len(mean)


def _mean_size(m: Array, v: Array) -> Array:
    """E|N(m, v)|."""
    sd = jnp.sqrt(jnp.maximum(v, jnp.finfo(v.dtype).tiny))
    z = m / sd
    return m * (2 * ndtr(z) - 1) + math.sqrt(2 / math.pi) * sd * jnp.exp(-0.5 * z * z)


def crps_by_integral(cdf: Cdf, quantiles: Float[Array, "5 N P"], y: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """The score of continuous labels, ∫ (F(z) − 1{z ≥ y})² dz, by Gauss-Legendre quadrature on both sides of y.

    The variable is t in z = median + ½ IQR sinh t, which follows F in its middle and in tails of any weight. Beyond the
    quantiles 10⁻⁶ and 1 − 10⁻⁶ F counts as 0 and 1. The relative error is about 10⁻⁵.

    Args:
        cdf: the distribution function F, elementwise.
        quantiles: the quantiles `LEVELS`.
        y: labels.

    Returns:
        Scores.

    Examples:
        >>> uniform = lambda z: jnp.clip(z, 0.0, 1.0)
        >>> print(crps_by_integral(uniform, jnp.array(LEVELS)[:, None, None], jnp.zeros((1, 1))).round(4))
        [[0.3333]]
    """
    lower, q25, median, q75, upper = quantiles
    scale = jnp.maximum(0.5 * (q75 - q25), jnp.finfo(y.dtype).tiny)
    inside = jnp.clip(y, lower, upper)
    first, middle, last = (jnp.arcsinh((z - median) / scale) for z in (lower, inside, upper))

    def add(total: Array, node: tuple[Array, Array, Array]) -> tuple[Array, None]:
        place, weight, above = node  # whether the node is above y
        a, b = (jnp.where(above > 0, *ends) for ends in ((middle, first), (last, middle)))
        t = 0.5 * (a + b) + 0.5 * (b - a) * place
        gap = cdf(median + scale * jnp.sinh(t)) - above
        return total + 0.5 * (b - a) * weight * gap * gap * scale * jnp.cosh(t), None

    place, weight = (jnp.asarray(np.tile(a, 2), y.dtype) for a in _NODES)
    above = jnp.repeat(jnp.arange(2, dtype=y.dtype), len(_NODES[0]))
    return jnp.abs(y - inside) + jax.lax.scan(add, jnp.zeros_like(y), (place, weight, above))[0]


def crps_of_counts(cdf: Cdf, quantiles: Float[Array, "5 N P"], y: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """The score of counts, Σ_k (F(k) − 1{k ≥ y})².

    The sum is over at most 256 cells between whole numbers. Where a cell holds more than one, F is linear within it and
    the relative error below 10⁻³; else there is none.

    Args:
        cdf: the distribution function F, elementwise.
        quantiles: the quantiles `LEVELS`.
        y: labels.

    Returns:
        Scores.

    Examples:
        >>> fair = lambda k: jnp.where(k < 0, 0.0, jnp.where(k < 1, 0.5, 1.0))
        >>> crps_of_counts(fair, (jnp.array(LEVELS) > 0.5)[:, None, None].astype(float), jnp.ones((1, 1))).tolist()
        [[0.25]]
    """
    lower, q25, median, q75, upper = quantiles
    low, high = jnp.minimum(lower, y) - 1, jnp.maximum(upper, y)
    scale = jnp.maximum(q75 - q25, 1.0)
    first, last = (jnp.arcsinh((k - median) / scale) for k in (low, high))

    def node(i: Array) -> Array:
        even = low + i
        spaced = jnp.round(median + scale * jnp.sinh(first + (last - first) * i / CELLS))
        return jnp.clip(jnp.where(high - low <= CELLS, even, spaced), low, high)

    nodes = jax.vmap(node)(jnp.arange(CELLS + 1, dtype=y.dtype))
    nodes = jnp.sort(jnp.concatenate([nodes, (y - 1)[None], y[None]]), axis=0)  # so that 1{k ≥ y} is constant in a cell
    F = jax.lax.map(cdf, nodes)
    n = nodes[1:] - nodes[:-1]
    a, d = F[:-1] - (nodes[1:] >= y[None]).astype(y.dtype), F[1:] - F[:-1]
    cells = n * a * a + a * d * (n + 1) + d * d * (n + 1) * (2 * n + 1) / (6 * jnp.maximum(n, 1))
    return jnp.sum(jnp.where(n > 0, cells, 0.0), axis=0)
