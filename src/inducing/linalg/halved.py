"""Large symmetric matrices, factorised and inverted by halving.

A matrix is stored as its lower triangle of blocks, a tree of halves,

    K = [[K₁, ·], [B, K₂]],    K₁ and K₂ of the same kind, down to single blocks of at most a few hundred rows.

All work on large blocks is matrix products, at the speed of these, and nothing above the diagonal is computed or
stored. LAPACK factorises the blocks on the diagonal only: jaxlib runs it on one core.

    K₁ = L₁ L₁ᵀ,    C = B L₁⁻ᵀ,    K₂ − C Cᵀ = L₂ L₂ᵀ              gives L = [[L₁, ·], [C, L₂]]
    P₂ = (L₂ L₂ᵀ)⁻¹,    V = C L₁⁻¹,    P₁ = (L₁ L₁ᵀ)⁻¹ + Vᵀ P₂ V       gives K⁻¹ = [[P₁, ·], [−P₂ V, P₂]]

For n rows the factor takes n³/3 and the inverse 2n³/3 operations.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import barrier
from inducing._xla.lapack import cholesky, substituted_inverse
from inducing._xla.matmul import times_transpose
from inducing.linalg.base import diagonal_of
from inducing.linalg.dense import root_derivative

BLOCK = 384  # the most rows of a block on the diagonal


class Halves(NamedTuple):
    """The lower triangle [[first, ·], [below, last]]; `first` and `last` are `Halves`, or whole blocks [n, n]."""

    first: Any
    below: Array
    last: Any


def depth(rows: int) -> int:
    """How often so many rows are halved until blocks are small.

    Examples:
        >>> depth(256), depth(257), depth(3000)
        (0, 1, 4)
    """
    return max(0, math.ceil(math.log2(max(rows, 1) / BLOCK)))


@jax.custom_jvp
def log_density(K: Any, r: Float[Array, " n"]) -> Float[Array, ""]:
    """log N(r | 0, K) without the constant: −½ rᵀK⁻¹r − ½ log |K|.

    With α = K⁻¹ r its derivative is ½ tr (α αᵀ − K⁻¹) dK − αᵀ dr, so that the reverse pass costs one inverse and no
    derivative of the factorisation.

    Args:
        K: a positive-definite matrix, as `Halves` or one block.
        r: residuals [n].

    Returns:
        One number; NaN if K is not positive definite.

    Examples:
        >>> K = Halves(jnp.array([[4.0]]), jnp.array([[0.0]]), jnp.array([[1.0]]))
        >>> round(float(log_density(K, jnp.array([2.0, 0.0]))), 4)      # −½ − log 2
        -1.1931
    """
    return _density(_factor(K), r)[0]


@log_density.defjvp
def _log_density_jvp(primals, tangents):
    (K, r), (dK, dr) = primals, tangents
    L = _factor(K)
    value, a = _density(L, r)
    alpha = _solve_transpose(L, a)
    return value, _change(_inverse(L), alpha, dK) - jnp.sum(alpha * dr)


def _density(L: Any, r: Array) -> tuple[Array, Array]:
    a = _solve(L, r)
    return -0.5 * jnp.sum(a * a) - _half_logdet(L), a


def _change(P: Any, alpha: Array, dK: Any) -> Array:
    """½ tr (α αᵀ − P) dK."""
    if not isinstance(P, Halves):
        return 0.5 * jnp.sum((alpha[:, None] * alpha[None, :] - P) * dK)
    h = P.below.shape[1]
    own = _change(P.first, alpha[:h], dK.first) + _change(P.last, alpha[h:], dK.last)
    return own + jnp.sum((alpha[h:, None] * alpha[None, :h] - P.below) * dK.below)


# Below, the leaves of a factor L are the inverses of its blocks on the diagonal: solves are then products, too.


@jax.custom_jvp
def _inverse_root(K: Array) -> Array:
    L = cholesky(K)
    h = len(K) // 2
    if h == 0:
        return substituted_inverse(L)
    A, C = substituted_inverse(L[:h, :h]), substituted_inverse(L[h:, h:])  # LAPACK is slow with more rows
    return jnp.block([[A, jnp.zeros((h, len(K) - h), K.dtype)], [-(C @ L[h:, :h]) @ A, C]])


@_inverse_root.defjvp
def _inverse_root_jvp(primals, tangents):
    X = _inverse_root(*primals)
    return X, -root_derivative(X, tangents[0]) @ X


def _factor(K: Any) -> Any:
    if not isinstance(K, Halves):
        return _inverse_root(K)
    first = _factor(K.first)
    below = _right_solve_transpose(first, K.below)
    return Halves(first, below, _factor(_minus(K.last, below, below)))


def _inverse(L: Any) -> Any:
    """K⁻¹ of the factor of K."""
    if not isinstance(L, Halves):
        return times_transpose(L.T, L.T)
    first, last = _inverse(L.first), _inverse(L.last)
    V = _right_solve(L.first, L.below)
    below = -_symmetric_times(last, V)
    return Halves(_minus(first, *barrier((V.T, below.T))), below, last)


def _minus(K: Any, U: Array, W: Array) -> Any:
    """K − U Wᵀ, where the product is symmetric."""
    if not isinstance(K, Halves):
        return K - times_transpose(U, W)
    h = K.below.shape[1]
    below = K.below - times_transpose(U[h:], W[:h])
    return Halves(_minus(K.first, U[:h], W[:h]), below, _minus(K.last, U[h:], W[h:]))


def _symmetric_times(P: Any, V: Array) -> Array:
    """P V for a symmetric P."""
    if not isinstance(P, Halves):
        return P @ V
    h = P.below.shape[1]
    upper = _symmetric_times(P.first, V[:h]) + barrier(P.below.T) @ V[h:]
    return jnp.concatenate([upper, P.below @ V[:h] + _symmetric_times(P.last, V[h:])])


def _right_solve_transpose(L: Any, B: Array) -> Array:
    """B L⁻ᵀ."""
    if not isinstance(L, Halves):
        return times_transpose(B, L)
    h = L.below.shape[1]
    left = _right_solve_transpose(L.first, B[:, :h])
    right = _right_solve_transpose(L.last, B[:, h:] - times_transpose(left, L.below))
    return jnp.concatenate([left, right], axis=1)


def _right_solve(L: Any, B: Array) -> Array:
    """B L⁻¹."""
    if not isinstance(L, Halves):
        return B @ L
    h = L.below.shape[1]
    right = _right_solve(L.last, B[:, h:])
    left = _right_solve(L.first, B[:, :h] - right @ L.below)
    return jnp.concatenate([left, right], axis=1)


def _solve(L: Any, r: Array) -> Array:
    """L⁻¹ r."""
    if not isinstance(L, Halves):
        return L @ r
    h = L.below.shape[1]
    first = _solve(L.first, r[:h])
    return jnp.concatenate([first, _solve(L.last, r[h:] - L.below @ first)])


def _solve_transpose(L: Any, a: Array) -> Array:
    """L⁻ᵀ a."""
    if not isinstance(L, Halves):
        return a @ L
    h = L.below.shape[1]
    last = _solve_transpose(L.last, a[h:])
    return jnp.concatenate([_solve_transpose(L.first, a[:h] - last @ L.below), last])


def _half_logdet(L: Any) -> Array:
    if not isinstance(L, Halves):
        return -jnp.sum(jnp.log(diagonal_of(L)))
    return _half_logdet(L.first) + _half_logdet(L.last)
