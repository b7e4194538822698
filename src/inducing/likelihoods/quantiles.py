"""Searches for quantiles: the smallest label y with cdf(y) ≥ q, one search for each kind of support."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing.numerics.roots import crossing

Cdf = Callable[[Array], Array]


def _search_real(cdf: Cdf, q: Array, mean: Array, variance: Array) -> Array:
    """Search for t in y = location + scale·sinh(t), which reaches scales of any size and heavy tails."""
    scale = jnp.where(jnp.isfinite(variance) & (variance > 0), jnp.sqrt(variance), 1.0)
    location = jnp.where(jnp.isfinite(mean), mean, 0.0)
    reach = jnp.full_like(mean, 40.0)
    t = crossing(lambda t: cdf(location + scale * jnp.sinh(t)) - q, -reach, reach, _steps(mean))
    beyond = jnp.abs(t) > 39.999  # as for infinite variances, of which the cdf is ½ everywhere
    return location + scale * jnp.sinh(jnp.where(beyond, jnp.copysign(jnp.inf, t), t))


def _search_positive(cdf: Cdf, q: Array, mean: Array, variance: Array) -> Array:
    """Search for t in y = e^t; beyond all numbers of the dtype, y is 0 or infinite."""
    reach = jnp.full_like(mean, 0.98 * math.log(float(jnp.finfo(mean.dtype).max)))
    t = crossing(lambda t: cdf(jnp.exp(t)) - q, -reach, reach, _steps(mean))
    return jnp.exp(jnp.where(jnp.abs(t) > 0.9999 * reach, jnp.copysign(jnp.inf, t), t))


def _search_unit(cdf: Cdf, q: Array, mean: Array, variance: Array) -> Array:
    """Search for t in y = sigmoid(t): y may be as close to 0 as the dtype can represent, and may round to 1."""
    info = jnp.finfo(mean.dtype)
    lower, upper = (
        jnp.full_like(mean, 0.98 * math.log(float(info.tiny))),
        jnp.full_like(mean, -1.1 * math.log(float(info.eps))),
    )
    return jax.nn.sigmoid(crossing(lambda t: cdf(jax.nn.sigmoid(t)) - q, lower, upper, _steps(mean)))


def _search_count(cdf: Cdf, q: Array, mean: Array, variance: Array) -> Array:
    """Search for the smallest whole number with cdf ≥ q bit by bit, which is exact for all integers of the dtype.

    A cdf can be expensive, so only as many bits are tried as the largest element needs.
    """
    bits = 52 if mean.dtype == jnp.float64 else 23
    powers = jnp.asarray(2.0 ** np.arange(bits), mean.dtype)  # jnp.exp2 is not exact

    def too_small(k):
        return (k < bits) & jnp.any(cdf(jnp.broadcast_to(powers[k] - 1, mean.shape)) < q)

    def step(i, position):
        trial = position + powers[top - 1 - i]
        return jnp.where(cdf(trial) < q, trial, position)

    top = jax.lax.while_loop(too_small, lambda k: k + 1, jnp.zeros((), int))
    found = jax.lax.fori_loop(0, top, step, jnp.full_like(mean, -1.0)) + 1
    unknown = jnp.isnan(mean) | jnp.isnan(cdf(jnp.zeros_like(mean)))  # as for infinite variances
    return jnp.where(unknown, jnp.nan, found)


def _steps(mean: Array) -> int:
    """The number of bisections after which one Newton step reaches the precision of the dtype."""
    return 34 if mean.dtype == jnp.float64 else 22


SEARCHES = {"real": _search_real, "positive": _search_positive, "unit": _search_unit, "count": _search_count}
"""The search for each kind of support: (cdf, q, mean, variance) ↦ y, all arrays but cdf [N, P]."""
