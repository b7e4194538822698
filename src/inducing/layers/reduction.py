"""The effect of q(u) at single points: the mean that it adds to the prior, and the variance that it removes."""

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
from inducing.linalg import Dense, root_derivative


def column_sums(A: Float[Array, "K M n"]) -> Float[Array, "K n"]:
    """The sums Σ_m A[k, m, n], as a product with ones: XLA sums over a leading axis of a wide array slowly on CPUs.

    Examples:
        >>> column_sums(jnp.ones((1, 2, 3))).tolist()
        [[2.0, 2.0, 2.0]]
    """
    return (jnp.ones((len(A), 1, A.shape[1]), A.dtype) @ A)[:, 0]


def quadratic_forms(C: Float[Array, "L M M"], B: Float[Array, "K M n"], block: int = 128) -> Float[Array, "L n"]:
    """The quadratic forms diag(Bᵀ C B) of symmetric matrices C.

    Only the blocks on the diagonal and to the right of it are multiplied, and the latter count twice. This saves up to
    half of the work.

    Examples:
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


def mean_and_reduction(
    Kuu: Dense,
    Kuf: Float[Array, "K M n"],
    m: Float[Array, "L M"],
    root: Float[Array, "L M M"],
) -> tuple[Float[Array, "L n"], Float[Array, "L n"]]:
    """The mean that q(w) = N(m, R Rᵀ) adds to each latent at each point, and the variance that it takes away.

        mean = mᵀA,      reduction = diag(Kfu T),      A = Luu⁻¹ Kuf,   T = Luu⁻ᵀ W A,   W = I − R Rᵀ

    The variance is Kff − reduction. The rounding error of diag(Kfu T) grows with √cond(Kuu), like that of A, and not
    with cond(Kuu).

    Args:
        Kuu: the covariances of u, stacked along a leading axis K that is L, or 1 if all latents share it.
        Kuf: their covariances with the latents at n points.
        m: the mean of q(w).
        root: R, lower triangular.

    Returns:
        Mean and reduction.

    Examples:
        >>> Kuu = jax.vmap(Dense)(jnp.eye(2)[None])
        >>> mean, reduction = mean_and_reduction(Kuu, jnp.ones((1, 2, 3)), jnp.zeros((1, 2)), 0.5 * jnp.eye(2)[None])
        >>> reduction.tolist()
        [[1.5, 1.5, 1.5]]
    """
    return _mean_and_reduction(Kuu.matrix, Kuu.inverse_root, Kuf, m, root)


def row_products(m: Float[Array, "L M"], A: Float[Array, "K M n"]) -> Float[Array, "L n"]:
    """The products m_lᵀ A_l for each latent l. A may be shared by all latents (K = 1).

    Examples:
        >>> row_products(jnp.ones((3, 2)), jnp.ones((1, 2, 4))).shape
        (3, 4)
    """
    return products(m[:, None, :], A)[:, 0]


@jax.custom_jvp
def _mean_and_reduction(K: Array, inverse_root: Array, Kuf: Array, m: Array, root: Array) -> tuple[Array, Array]:
    """`mean_and_reduction` with the two parts of Kuu that it needs.

    The derivative is taken through K and ignores the tangent of `inverse_root`, which is a function of K. With
    E = −Φ(Luu⁻¹ dK Luu⁻ᵀ) (Φ: the lower triangle with half the diagonal), dA = Luu⁻¹ dKuf + E A and W symmetric,

        d mean = (dm + Eᵀm)ᵀ A + (Luu⁻ᵀm)ᵀ dKuf,   d reduction = 2 diag(dKfu T) + diag(Aᵀ H A),   H = 2 W E − 2 R dRᵀ.

    The reverse pass of this rule needs one large product, A diag(·) Aᵀ for H, where that of the formula needs four.
    """
    mean, reduction, _ = _evaluate(inverse_root, Kuf, m, root)
    return mean, reduction


def _evaluate(inverse_root: Array, Kuf: Array, m: Array, root: Array) -> tuple[Array, Array, tuple[Array, ...]]:
    A = products(inverse_root, Kuf, "lower")
    W = jnp.eye(root.shape[-1], dtype=root.dtype)[None] - lower_gram(root)
    T = products(_back(inverse_root, W), A)
    return row_products(m, A), column_sums(jnp.broadcast_to(Kuf, T.shape) * T), (A, W, T)


@_mean_and_reduction.defjvp
def _mean_and_reduction_jvp(primals, tangents):
    _, inverse_root, Kuf, m, root = primals
    dK, _, dKuf, dm, droot = tangents
    mean, reduction, (A, W, T) = _evaluate(inverse_root, Kuf, m, root)
    E = -root_derivative(inverse_root, dK)
    H = 2.0 * _half_of_H(W, E, root, droot)
    dmean = row_products(dm + row_products(m, E), A) + row_products(row_products(m, inverse_root), dKuf)
    form = _form_of_symmetric_part(H, A)
    # a plain sum, whose transpose is a broadcast that fuses with what follows
    dreduction = jnp.sum(2.0 * T * _for_each(dKuf, len(T)), axis=1) + form
    # With the barrier, the reverse pass of what follows is computed once, not in each loop over [L, M, n].
    return (mean, reduction), barrier((dmean, dreduction))


def _back(inverse_root: Float[Array, "K M M"], W: Float[Array, "L M M"]) -> Float[Array, "L M M"]:
    """Luu⁻ᵀ W."""
    upper = jnp.swapaxes(inverse_root, 1, 2)
    if not splits(W.shape[-1]):
        return upper @ W
    return product(jnp.broadcast_to(barrier(upper), W.shape), W, "upper")


def _form_of_symmetric_part(H: Float[Array, "L M M"], A: Float[Array, "K M n"]) -> Float[Array, "L n"]:
    """diag(Aᵀ H A), which depends on the symmetric part of H alone: aᵀHa = aᵀHᵀa for every column a of A.

    So the caller may pass whichever matrix with this symmetric part is cheapest to compute. The cotangent of H,
    A diag(·) Aᵀ, is symmetric, as required by the product of form "symmetric", which computes only half of it.
    """
    HA = products(H, A, "symmetric")
    return jnp.sum(_for_each(A, len(H)) * HA, axis=1)  # a plain sum: its transpose is a broadcast


def _half_of_H(W: Array, E: Array, R: Array, dR: Array) -> Float[Array, "L M M"]:
    """W E − R dRᵀ or its transpose, which have the same symmetric part, for `_form_of_symmetric_part`.

    The first is faster in the reverse pass for small matrices. The reverse pass of the second computes only the lower
    triangles, since E and dR are lower triangular.
    """
    if not splits(W.shape[-1]):
        return products(W, E) - times_transpose(R, dR)
    return lower_transpose_times(E, W) - lower_times_transpose(dR, R)


def _for_each(A: Float[Array, "K M n"], L: int) -> Float[Array, "L M n"]:
    """A for each of L latents.

    For few latents it is a stack of copies, whose reverse pass is a sum of arrays. On CPUs this is much faster than a
    sum over a leading axis, which is the reverse pass of a broadcast.
    """
    return jnp.concatenate([A] * L) if A.shape[0] == 1 < L <= 16 else jnp.broadcast_to(A, (L, *A.shape[1:]))
