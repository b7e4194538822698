"""What q(u) does to each point by itself: the mean it adds to the prior, and the variance it takes away."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import barrier
from inducing._xla.matmul import (
    lower_gram,
    lower_times_transpose,
    lower_transpose_times,
    product,
    products,
    splits,
    times_transpose,
)
from inducing.linalg import root_derivative


def column_sums(A: Float[Array, "K M n"]) -> Float[Array, "K n"]:
    """Σ_m A[k, m, n], as a product with ones (a sum over the leading axis of a wide array is slow on CPUs).

    >>> column_sums(jnp.ones((1, 2, 3))).tolist()
    [[2.0, 2.0, 2.0]]
    """
    return (jnp.ones((len(A), 1, A.shape[1]), A.dtype) @ A)[:, 0]


def quadratic_forms(C: Float[Array, "L M M"], B: Float[Array, "K M n"], block: int = 128) -> Float[Array, "L n"]:
    """diag(Bᵀ C B) for symmetric C: blocks of rows are multiplied from the diagonal on, those right of it twice.

    >>> quadratic_forms(jnp.eye(2)[None], jnp.ones((1, 2, 3))).tolist()
    [[2.0, 2.0, 2.0]]
    """
    total = jnp.zeros((), C.dtype)
    for start in range(0, C.shape[1], block):
        end = start + block
        rows = jnp.concatenate([C[:, start:end, start:end], 2.0 * C[:, start:end, end:]], axis=2)
        product = products(rows, B[:, start:])
        total = total + column_sums(jnp.broadcast_to(B[:, start:end], product.shape) * product)
    return total


@jax.custom_jvp
def mean_and_reduction(
    K: Float[Array, "K M M"],
    inverse_root: Float[Array, "K M M"],
    Kuf: Float[Array, "K M n"],
    m: Float[Array, "L M"],
    root: Float[Array, "L M M"],
) -> tuple[Float[Array, "L n"], Float[Array, "L n"]]:
    """Mean and lost variance of each latent at each point, for q(w) = N(m, R Rᵀ) with a lower-triangular R,
    w = Luu⁻¹ v and A = Luu⁻¹ Kuf.

        mean = mᵀA,      reduction = diag(Kfu T),   T = Luu⁻ᵀ W A,   W = I − R Rᵀ

    so that the variance is Kff − reduction. `K` is Kuu and `inverse_root` is Luu⁻¹, which must be that of K: the
    derivative is taken through K. With E = −Φ(Luu⁻¹ dK Luu⁻ᵀ) (Φ: the lower triangle with half the diagonal) and
    dA = Luu⁻¹ dKuf + E A, and since W is symmetric

        d mean = (dm + Eᵀm)ᵀ A + (Luu⁻ᵀm)ᵀ dKuf,   d reduction = 2 diag(dKfu T) + diag(Aᵀ H A),   H = 2 W E − 2 R dRᵀ.

    The reverse pass of this needs one large product, A diag(·) Aᵀ for H, where that of the formula needs four. H is
    right up to an antisymmetric part, which the quadratic form does not see. diag(Kfu T) loses as many digits as A has
    lost already by a product with Luu⁻¹: √cond(Kuu), not cond(Kuu).

    >>> eye = jnp.eye(2)[None]
    >>> mean, reduction = mean_and_reduction(eye, eye, jnp.ones((1, 2, 3)), jnp.zeros((1, 2)), 0.5 * eye)
    >>> reduction.tolist()
    [[1.5, 1.5, 1.5]]
    """
    mean, reduction, _ = _evaluate(inverse_root, Kuf, m, root)
    return mean, reduction


def row_products(m: Float[Array, "L M"], A: Float[Array, "K M n"]) -> Float[Array, "L n"]:
    """m_lᵀ A_l for each latent l, which may share A (K = 1).

    >>> row_products(jnp.ones((3, 2)), jnp.ones((1, 2, 4))).shape
    (3, 4)
    """
    return products(m[:, None, :], A)[:, 0]


def _evaluate(inverse_root: Array, Kuf: Array, m: Array, root: Array) -> tuple[Array, Array, tuple[Array, ...]]:
    A = products(inverse_root, Kuf, "lower")
    W = jnp.eye(root.shape[-1], dtype=root.dtype)[None] - lower_gram(root)
    T = products(_back(inverse_root, W), A)
    return row_products(m, A), column_sums(jnp.broadcast_to(Kuf, T.shape) * T), (A, W, T)


@mean_and_reduction.defjvp
def _mean_and_reduction_jvp(primals, tangents):
    _, inverse_root, Kuf, m, root = primals
    dK, _, dKuf, dm, droot = tangents
    mean, reduction, (A, W, T) = _evaluate(inverse_root, Kuf, m, root)
    E = -root_derivative(inverse_root, dK)
    H = 2.0 * _half_form(W, E, root, droot)
    dmean = row_products(dm + row_products(m, E), A) + row_products(row_products(m, inverse_root), dKuf)
    HA = products(H, A, "symmetric")
    # plain sums, whose transpose is a broadcast that fuses with what follows
    dreduction = jnp.sum(2.0 * T * _for_each(dKuf, len(T)), axis=1) + jnp.sum(_for_each(A, len(T)) * HA, axis=1)
    # The reverse pass of what follows is computed once, not in each loop over [L, M, n] that it is multiplied in.
    return (mean, reduction), barrier((dmean, dreduction))


def _back(inverse_root: Float[Array, "K M M"], W: Float[Array, "L M M"]) -> Float[Array, "L M M"]:
    """Luu⁻ᵀ W."""
    upper = jnp.swapaxes(inverse_root, 1, 2)
    if not splits(W.shape[-1]):
        return upper @ W
    return product(jnp.broadcast_to(barrier(upper), W.shape), W, "upper")


def _half_form(W: Array, E: Array, R: Array, dR: Array) -> Float[Array, "L M M"]:
    """W E − R dRᵀ or its transpose, which has the same quadratic form: the reverse pass of the one is quicker for
    small matrices, that of the other computes only what E and dR, which are lower triangular, need."""
    if not splits(W.shape[-1]):
        return products(W, E) - times_transpose(R, dR)
    return lower_transpose_times(E, W) - lower_times_transpose(dR, R)


def _for_each(A: Float[Array, "K M n"], L: int) -> Float[Array, "L M n"]:
    """A for each of L latents. As a stack if they are few: its reverse is a sum of arrays, ten times as fast as one
    over a leading axis."""
    return jnp.concatenate([A] * L) if A.shape[0] == 1 < L <= 16 else jnp.broadcast_to(A, (L, *A.shape[1:]))
