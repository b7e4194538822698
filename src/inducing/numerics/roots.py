"""Zeros and maxima of functions of one variable, elementwise over arrays.

All decisions are comparisons, so flat, steep and undefined parts of a function do no harm.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def bisect(below: Callable[[Array], Array], lower: Array, upper: Array, steps: int) -> Array:
    """The x in [lower, upper] where below(x) changes from true to false, elementwise, by bisection.

    The result is the upper end of the last bracket.

    Examples:
        >>> print(bisect(lambda x: x * x < 2.0, jnp.zeros(1), jnp.ones(1) * 2, 40).round(6))
        [1.414214]
    """

    def step(_, ends):
        lower, upper = ends
        middle = 0.5 * (lower + upper)
        low = below(middle)
        return jnp.where(low, middle, lower), jnp.where(low, upper, middle)

    return jax.lax.fori_loop(0, steps, step, (lower, upper))[1]


def crossing(fn: Callable[[Array], Array], lower: Array, upper: Array, steps: int) -> Array:
    """The x in [lower, upper] where an increasing fn crosses 0, elementwise, at least as exact as `steps` bisections.

    Half as many evaluations suffice where fn is smooth (`_bracket`), and a Newton step refines the result. Derivatives
    with respect to what fn depends on are those of the crossing, −∂fn/fn′. The result is NaN where fn(lower) is.

    Examples:
        >>> print(crossing(lambda x: x**3 - 2.0, jnp.zeros(1), 2 * jnp.ones(1), 20).round(12))
        [1.25992105]
        >>> float(jax.grad(lambda a: crossing(lambda x: x - a, jnp.zeros(()), jnp.ones(()), 20))(0.3))
        1.0
    """
    width = (upper - lower) * 0.5**steps
    x, other = _bracket(lambda x: jax.lax.stop_gradient(fn(x)), lower, upper, width)
    value, slope = jax.jvp(fn, (x,), (jnp.ones_like(x),))
    slope = jax.lax.stop_gradient(slope)
    rises = slope > 0
    step = jnp.where(rises, value / jnp.where(rises, slope, 1.0), 0.0)
    return jnp.clip(x - step, jnp.minimum(x, other) - width, jnp.maximum(x, other) + width)


def _bracket(fn: Callable[[Array], Array], lower: Array, upper: Array, width: Array) -> tuple[Array, Array]:
    """Two points at most 2 widths apart between which an increasing fn crosses 0; the first is the last one evaluated.

    Chandrupatla's method: inverse quadratic interpolation through the last three points if these indicate that fn is
    smooth between them, else bisection. NaN counts as positive. If fn does not change sign, both points are the end
    at which it is closest to 0. Where fn(lower) is NaN, nothing is known, and the first point is NaN.
    """

    def unfinished(state):
        (x1, _), (x2, _), *_, tried = state
        return (tried < 100) & jnp.any(jnp.abs(x2 - x1) > 2 * width)

    def step(state):
        (x1, f1), (x2, f2), share, tried = state
        x = x1 + share * (x2 - x1)
        f = fn(x)
        same = (f < 0) == (f1 < 0)
        x3, f3 = jnp.where(same, x1, x2), jnp.where(same, f1, f2)
        x2, f2 = jnp.where(same, x2, x1), jnp.where(same, f2, f1)
        xi, phi = (x - x2) / (x3 - x2), (f - f2) / (f3 - f2)
        smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        guess = f / (f2 - f) * f3 / (f2 - f3) + (x3 - x) / (x2 - x) * f / (f3 - f) * f2 / (f3 - f2)
        least = jnp.minimum(width / jnp.abs(x2 - x), 0.5)
        return (x, f), (x2, f2), jnp.clip(jnp.where(smooth, guess, 0.5), least, 1 - least), tried + 1

    first, last = fn(lower), fn(upper)
    lower, upper = jnp.where(last < 0, upper, lower), jnp.where(first >= 0, lower, upper)
    start = (lower, first), (upper, last), jnp.full_like(lower, 0.5), 0
    (x, _), (other, _), *_ = jax.lax.while_loop(unfinished, step, start)
    return jnp.where(jnp.isnan(first), first, x), other


def _slope(fn: Callable[[Array], Array], x: Array) -> Array:
    return jax.jvp(fn, (x,), (jnp.ones_like(x),))[1]


def largest_between(fn: Callable[[Array], Array], end: Array) -> Array:
    """The point between 0 and `end` where fn, which has one maximum, is largest, with a relative precision.

    Examples:
        >>> print(largest_between(lambda x: -((x - 1e-3) ** 2), jnp.ones(1)).round(9))
        [0.001]
    """
    reach = jnp.arcsinh(end)
    share = bisect(lambda s: ~(_slope(fn, jnp.sinh(s * reach)) * end < 0), jnp.zeros_like(end), jnp.ones_like(end), 50)
    return jnp.sinh(share * reach)


def half_width(fn: Callable[[Array], Array], peak: Array) -> Array:
    """The distance from its peak at which fn has decreased by ½, on the steeper side: σ for −½ (f/σ)².

    Examples:
        >>> print(half_width(lambda f: -0.5 * (f / 3) ** 2, jnp.zeros(1)).round(1))
        [3.]
    """
    top = fn(peak)

    def inside(log_distance: Array) -> Array:
        distance = jnp.exp(log_distance)
        return jnp.minimum(fn(peak + distance), fn(peak - distance)) > top - 0.5

    return jnp.exp(bisect(inside, jnp.full_like(peak, -40.0), jnp.full_like(peak, 40.0), 12))


def peak_of(log_fn: Callable[[Array], Array], start: Array) -> tuple[Array, Array, Array]:
    """The f where log_fn(f) is largest, elementwise, the width of that peak, and whether log_fn falls on both sides.

    The largest value on the grid start ± sinh t is next to the peak, which bisection on the slope then locates.

    Examples:
        >>> peak, width, falls = peak_of(lambda f: -0.5 * ((f - 2) / 1e-3) ** 2, jnp.zeros(1))
        >>> print(peak.round(6), (1e3 * width).round(1), falls)
        [2.] [1.] [ True]
    """
    steps = jnp.asarray(np.sinh(np.linspace(-40.0, 40.0, 41)), start.dtype)
    grid = start[None] + steps.reshape((-1,) + (1,) * start.ndim)
    values = jax.vmap(log_fn)(grid)
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    best = jnp.argmax(values, axis=0)
    t0 = jnp.take(jnp.linspace(-40.0, 40.0, 41).astype(start.dtype), best)

    def below(t: Array) -> Array:  # where the slope is 0 or NaN, the peak is on the side of the best point
        slope = _slope(log_fn, start + jnp.sinh(t))
        return jnp.where((slope == 0) | jnp.isnan(slope), t < t0, slope > 0)

    peak = start + jnp.sinh(bisect(below, t0 - 2.0, t0 + 2.0, 50))
    falls = jnp.maximum(values[0], values[-1]) < jnp.max(values, axis=0) - 0.5
    return peak, half_width(log_fn, peak), falls
