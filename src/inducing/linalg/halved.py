"""Large symmetric matrices, factorised and inverted by halving.

A matrix is stored as its upper triangle of blocks, a tree of halves,

    K = [[K₁, B], [·, K₂]],    K₁ and K₂ of the same kind, down to single blocks of at most a few hundred rows.

All work on large blocks is matrix products, at the speed of these, and nothing below the diagonal is computed or
stored. LAPACK factorises the blocks on the diagonal only: jaxlib runs it on one core.

    K₁ = L₁ L₁ᵀ,    R = L₁⁻¹ B,    K₂ − Rᵀ R = L₂ L₂ᵀ                      gives Lᵀ = [[L₁ᵀ, R], [·, L₂ᵀ]]
    P₂ = (L₂ L₂ᵀ)⁻¹,    V = L₁⁻ᵀ R,    Q = −V P₂,    P₁ = (L₁ L₁ᵀ)⁻¹ − Q Vᵀ    gives K⁻¹ = [[P₁, Q], [·, P₂]]

For n rows the factor takes n³/3 and the inverse 2n³/3 operations. No product has the form Aᵀ B, which on CPUs runs at
half the speed of A B and A Bᵀ; so R is stored along with its transpose.
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
ROUNDING = 8.0  # a pivot is known if it is larger than this times √n ε, relative to its entry of the diagonal


class Halves(NamedTuple):
    """The upper triangle [[first, above], [·, last]]; `first` and `last` are `Halves`, or whole blocks [n, n]."""

    first: Any
    above: Array
    last: Any


class _Factor(NamedTuple):
    """L, by the factors of both halves, R and Rᵀ."""

    first: Any
    above: Array
    below: Array
    last: Any


class _Leaf(NamedTuple):
    """L⁻¹ and L⁻ᵀ of a block on the diagonal: solves are then products, too."""

    inverse: Array
    transpose: Array


def depth(rows: int) -> int:
    """How often a number of rows is halved until blocks are small.

    Examples:
        >>> depth(BLOCK), depth(BLOCK + 1), depth(8 * BLOCK)
        (0, 1, 3)
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
        One number; NaN if K is not positive definite, or so close to singular that rounding errors decide the value.

    Examples:
        >>> K = Halves(jnp.array([[4.0]]), jnp.array([[0.0]]), jnp.array([[1.0]]))
        >>> round(float(log_density(K, jnp.array([2.0, 0.0]))), 4)      # −½ − log 2
        -1.1931
    """
    return _density(K, _factor(K), r)[0]


@log_density.defjvp
def _log_density_jvp(primals, tangents):
    (K, r), (dK, dr) = primals, tangents
    L = _factor(K)
    value, a = _density(K, L, r)
    alpha = _solve_transpose(L, a)
    return value, _change(_inverse(L), alpha, dK) - jnp.sum(alpha * dr)


def _density(K: Any, L: Any, r: Array) -> tuple[Array, Array]:
    a = _solve(L, r)
    known = _cancellation(K, L) * (ROUNDING * math.sqrt(len(r)) * float(jnp.finfo(r.dtype).eps)) < 1.0
    return jnp.where(known, -0.5 * jnp.sum(a * a) - _half_logdet(L), jnp.nan), a


def _cancellation(K: Any, L: Any) -> Array:
    """The largest K_ii / L_ii², by which the relative rounding errors of the pivots L_ii² exceed those of K."""
    if isinstance(L, _Leaf):
        return jnp.max(diagonal_of(K) * diagonal_of(L.inverse) ** 2)
    return jnp.maximum(_cancellation(K.first, L.first), _cancellation(K.last, L.last))


def _change(P: Any, alpha: Array, dK: Any) -> Array:
    """½ tr (α αᵀ − P) dK."""
    if not isinstance(P, Halves):
        return 0.5 * jnp.sum((alpha[:, None] * alpha[None, :] - P) * dK)
    h = len(P.above)
    own = _change(P.first, alpha[:h], dK.first) + _change(P.last, alpha[h:], dK.last)
    return own + jnp.sum((alpha[:h, None] * alpha[None, h:] - P.above) * dK.above)


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
        X = _inverse_root(K)
        return _Leaf(*barrier((X, X.T)))
    first = _factor(K.first)
    above = _solve(first, K.above)
    above, below = barrier((above, above.T))
    return _Factor(first, above, below, _factor(_minus(K.last, below, below)))


def _inverse(L: Any) -> Any:
    """K⁻¹ of the factor of K."""
    if isinstance(L, _Leaf):
        return times_transpose(L.transpose, L.transpose)
    first, last = _inverse(L.first), _inverse(L.last)
    V = _solve_transpose(L.first, L.above)
    above = -_times_symmetric(V, last)
    return Halves(_minus(first, above, V), above, last)


def _minus(K: Any, U: Array, W: Array) -> Any:
    """K − U Wᵀ, where the product is symmetric."""
    if not isinstance(K, Halves):
        return K - times_transpose(U, W)
    h = len(K.above)
    above = K.above - times_transpose(U[:h], W[h:])
    return Halves(_minus(K.first, U[:h], W[:h]), above, _minus(K.last, U[h:], W[h:]))


def _times_symmetric(V: Array, P: Any) -> Array:
    """V P for a symmetric P."""
    if not isinstance(P, Halves):
        return V @ P
    h = len(P.above)
    left, right = V[:, :h], V[:, h:]
    first = _times_symmetric(left, P.first) + times_transpose(right, P.above)
    return jnp.concatenate([first, left @ P.above + _times_symmetric(right, P.last)], axis=1)


def _solve(L: Any, B: Array) -> Array:
    """L⁻¹ B, of a matrix or a vector."""
    if isinstance(L, _Leaf):
        return L.inverse @ B
    h = len(L.above)
    first = _solve(L.first, B[:h])
    return jnp.concatenate([first, _solve(L.last, B[h:] - L.below @ first)])


def _solve_transpose(L: Any, B: Array) -> Array:
    """L⁻ᵀ B, of a matrix or a vector."""
    if isinstance(L, _Leaf):
        return L.transpose @ B
    h = len(L.above)
    last = _solve_transpose(L.last, B[h:])
    return jnp.concatenate([_solve_transpose(L.first, B[:h] - L.above @ last), last])


def _half_logdet(L: Any) -> Array:
    if isinstance(L, _Leaf):
        return -jnp.sum(jnp.log(diagonal_of(L.inverse)))
    return _half_logdet(L.first) + _half_logdet(L.last)
