"""Expectations over the latents of C classes, in O(C), with derivatives from the same pass over the nodes.

Arrays have the shape [nodes, classes, rows] and hold a block of rows at a time, so that they stay in the cache and
loops run along the rows. Nothing is stored for the reverse pass but the derivatives themselves.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from inducing._xla import barrier
from inducing.numerics.cubature import matched_rule, tensor_rule
from inducing.numerics.quadrature import graded_nodes
from inducing.numerics.special import safe_sqrt

ENTRIES = 2**17  # of an array over a block of rows


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def expected_logsumexp(mean: Float[Array, "N C"], variance: Float[Array, "N C"], num: int) -> Float[Array, "N 1"]:
    """E log Σ_c e^{f_c} of independent f_c ~ N(mean, variance), as an average over nodes f = mean + sd·z.

    With p the softmax at a node, the derivatives are averages too: E p_c in the mean, and E p_c z_c / (2 sd_c) in the
    variance, which is that of the average itself.

    Args:
        mean: means [N, C].
        variance: variances [N, C].
        num: the number of nodes z, those of `matched_rule`.

    Returns:
        Expectations [N, 1].

    Examples:
        >>> zero = jnp.zeros((1, 3))
        >>> round(float(expected_logsumexp(zero, zero, 16)[0, 0]), 6)      # log 3
        1.098612
    """
    return _logsumexp(mean, variance, num)[0]


@expected_logsumexp.defjvp
def _expected_logsumexp_jvp(num, primals, tangents):
    value, slope, bend = _logsumexp(*primals, num)
    return value, jnp.sum(slope * tangents[0] + bend * tangents[1], axis=1, keepdims=True)


def _logsumexp(mean: Array, variance: Array, num: int) -> tuple[Array, Array, Array]:
    """The expectation [N, 1] and its derivatives in the mean and the variance [N, C]."""
    z = jnp.asarray(matched_rule(mean.shape[1], num), mean.dtype)[:, :, None]

    def block(mean: Array, variance: Array) -> tuple[Array, Array, Array]:  # [C, n]
        sd = safe_sqrt(variance)
        f = barrier(mean[None] + sd[None] * z)
        top = jnp.max(f, axis=1, keepdims=True)
        e = barrier(jnp.exp(f - top))
        total = jnp.sum(e, axis=1, keepdims=True)
        value = jnp.sum(top + jnp.log(total), axis=0) / num
        p = e * (1.0 / (num * total))
        return value, jnp.sum(p, axis=0), _half_inverse(sd) * jnp.sum(p * z, axis=0)

    return _over_rows(block, num, mean, variance)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def expected_log_of_three(mean: Float[Array, "N 2"], root: Float[Array, "N 3"], num: int) -> Float[Array, "N 1"]:
    """E log(1 + e^a + e^b) of a = mean_a + r_1 z_1 and b = mean_b + r_2 z_1 + r_3 z_2, z ~ N(0, I).

    Args:
        mean: means of a and b [N, 2].
        root: (r_1, r_2, r_3), the root of their covariance [N, 3].
        num: the number of nodes in each dimension, of `tensor_rule`.

    Returns:
        Expectations [N, 1].

    Examples:
        >>> round(float(expected_log_of_three(jnp.zeros((1, 2)), jnp.zeros((1, 3)), 16)[0, 0]), 6)      # log 3
        1.098612
    """
    return _of_three(mean, root, num)[0]


@expected_log_of_three.defjvp
def _expected_log_of_three_jvp(num, primals, tangents):
    value, slope, bend = _of_three(*primals, num)
    moved = jnp.sum(slope * tangents[0], axis=1, keepdims=True) + jnp.sum(bend * tangents[1], axis=1, keepdims=True)
    return value, moved


def _of_three(mean: Array, root: Array, num: int) -> tuple[Array, Array, Array]:
    """The expectation [N, 1], and its derivatives in the means [N, 2] and the root [N, 3]."""
    z, w = tensor_rule(2, num)
    z1, z2 = (jnp.asarray(column[:, None], mean.dtype) for column in z.T)
    weights = jnp.asarray(np.stack([w, w * z[:, 0], w * z[:, 1]]), mean.dtype)

    def block(mean: Array, root: Array) -> tuple[Array, Array, Array]:  # [2, n] and [3, n]
        a, b = barrier((mean[:1] + root[:1] * z1, mean[1:] + root[1:2] * z1 + root[2:] * z2))
        top = jnp.maximum(jnp.maximum(a, b), 0.0)
        e_a, e_b = barrier((jnp.exp(a - top), jnp.exp(b - top)))
        total = jnp.exp(-top) + e_a + e_b
        logs, p_a, p_b = barrier((top + jnp.log(total), e_a / total, e_b / total))
        of_a, of_b = weights[:2] @ p_a, weights @ p_b
        return weights[:1] @ logs, jnp.stack([of_a[0], of_b[0]]), jnp.concatenate([of_a[1:], of_b[1:]])

    return _over_rows(block, len(z), mean, root)


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def prob_largest(
    mean: Float[Array, "N C"], variance: Float[Array, "N C"], y: Float[Array, "N 1"], num: int
) -> Float[Array, "N 1"]:
    """P(f_y > f_c for all c ≠ y) of independent f_c ~ N(mean, variance).

        P = E_{f_y} Π_{c ≠ y} Φ((f_y − m_c)/s_c)

    by the graded trapezoid rule in f_y, whose nodes gather where the product rises. Deviations s_c of rivals count as
    at least a thousandth of s_y.

    Args:
        mean: means [N, C].
        variance: variances [N, C].
        y: labels [N, 1].
        num: the number of nodes.

    Returns:
        Probabilities [N, 1].

    Examples:
        >>> two = jnp.zeros((1, 2)), jnp.ones((1, 2))
        >>> round(float(prob_largest(*two, jnp.zeros((1, 1)), 40)[0, 0]), 6)
        0.5
    """
    return _largest(mean, variance, y, num)[0]


@prob_largest.defjvp
def _prob_largest_jvp(num, primals, tangents):
    value, slope, bend = _largest(*primals, num)
    return value, jnp.sum(slope * tangents[0] + bend * tangents[1], axis=1, keepdims=True)


def _largest(mean: Array, variance: Array, y: Array, num: int) -> tuple[Array, Array, Array]:
    """The probability [N, 1] and its derivatives in the mean and the variance [N, C].

    With h_c = φ_c/Φ_c at f_y, moving f_y by d multiplies the product by 1 + d Σ_c h_c/s_c.
    """
    tiny = jnp.finfo(mean.dtype).tiny

    def block(mean: Array, variance: Array, y: Array) -> tuple[Array, Array, Array]:  # [C, n], and [1, n]
        own = jnp.arange(len(mean), dtype=mean.dtype)[:, None] == y
        m, v = (jnp.sum(jnp.where(own, a, 0.0), axis=0, keepdims=True) for a in (mean, variance))
        own_sd, free = safe_sqrt(v), safe_sqrt(variance)
        least = 1e-3 * own_sd + 1e-8
        sd = jnp.maximum(free, least)
        best = jnp.where(own, -jnp.inf, mean - 3 * sd)  # the steepest cdf that no other one cuts off
        best = best == jnp.max(best, axis=0, keepdims=True)
        centre, width = (jnp.max(jnp.where(best, a, -jnp.inf), axis=0, keepdims=True) for a in (mean, sd))
        f, w = graded_nodes(m, v, num, centre, 1.5 * width)
        f, w = barrier((f, w))  # [num, 1, n]
        t = barrier((f - mean[None]) / sd[None])
        Phi = jnp.where(own[None], 1.0, jnp.maximum(ndtr(t), tiny))
        phi = jnp.where(own[None], 0.0, jnp.exp(-0.5 * t * t) * ((2 * np.pi) ** -0.5 / sd)[None])
        hazard = barrier(phi / Phi)
        product = barrier(w * jnp.prod(Phi, axis=1, keepdims=True))
        rivals, spread = jnp.sum(product * hazard, axis=0), jnp.sum(product * hazard * t, axis=0)
        whole = jnp.sum(hazard, axis=1, keepdims=True) * product
        half = 2.0 * _half_inverse(own_sd) ** 2  # f = m + s z, so that df/dv = z/2s = (f − m)/2v
        of_own = jnp.sum(whole, axis=0), half * jnp.sum(whole * (f - m[None]), axis=0)
        slope = jnp.where(own, of_own[0], -rivals)
        bend = jnp.where(own, of_own[1], jnp.where(free > least, -_half_inverse(free) * spread, 0.0))
        return jnp.sum(product, axis=0), slope, bend

    return _over_rows(block, num, mean, variance, y)


def _half_inverse(sd: Array) -> Array:
    """d sd / d variance = 1/(2 sd); 0 at 0."""
    positive = sd > 0
    return jnp.where(positive, 0.5 / jnp.where(positive, sd, 1.0), 0.0)


def _over_rows(block: Callable, num: int, *arrays: Array) -> tuple[Array, Array, Array]:
    """block of the transposed arrays, some rows at a time; its results are transposed back."""
    N, C = arrays[0].shape
    n = min(max(ENTRIES // (num * C), 16), max(N, 1))
    pieces = [jnp.pad(a, ((0, -N % n), (0, 0)), mode="edge").reshape(-1, n, a.shape[1]) for a in arrays]
    out = jax.lax.map(lambda rows: tuple(o.T for o in block(*(a.T for a in rows))), tuple(pieces))
    value, slope, bend = (o.reshape(-1, o.shape[2])[:N] for o in out)
    return value, slope, bend
