"""Matrix products that use the structure of their left factor and have a fast reverse pass.

For the cotangent of B in A @ B, JAX computes (c̄ᵀ A)ᵀ. That is a product over leading axes, which is slow on CPUs, and
it needs a transposed copy of a wide array. `product` computes Aᵀ c̄ instead and transposes the small matrix A. If c̄ is
small too, the product over leading axes is the faster one, because XLA runs small products of the other kind on one
core. Triangular and symmetric matrices are multiplied block by block, which saves up to three eighths of the work.
"""

from typing import Literal

import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from inducing._xla.barriers import barrier

BLOCK = 128  # rows of a block: a smaller product does not use the cores well
Form = Literal["full", "lower", "upper", "symmetric"]
"""The structure of the left factor. For "symmetric" its cotangent is symmetric too, and half of that is computed."""

_TRANSPOSED: dict[Form, Form] = {"full": "full", "lower": "upper", "upper": "lower", "symmetric": "full"}


def _blocks(M: int, smallest: int) -> list[tuple[int, int]]:
    """Two to four ranges of rows: more of them would save little more work and take longer to compile."""
    size = max(smallest, -(-M // 4))
    return [(s, min(s + size, M)) for s in range(0, M, size)]


def splits(M: int) -> bool:
    """Tell whether matrices with M rows are multiplied block by block.

    Examples:
        >>> splits(100), splits(1000)
        (False, True)
    """
    return M >= 2 * BLOCK


def _transpose(A: Array) -> Array:
    return jnp.swapaxes(A, -1, -2)


def _matmul(A: Array, B: Array, *, form: Form) -> Array:
    M = A.shape[-2]
    if form not in ("lower", "upper") or not splits(M):
        return A @ B
    if form == "lower":
        return jnp.concatenate([A[..., s:e, :e] @ B[..., :e, :] for s, e in _blocks(M, BLOCK)], axis=-2)
    return jnp.concatenate([A[..., s:e, s:] @ B[..., s:, :] for s, e in _blocks(M, BLOCK)], axis=-2)


def times_transpose(A: Float[Array, "*L m n"], B: Float[Array, "*L p n"]) -> Float[Array, "*L m p"]:
    """Compute A Bᵀ without a transposed copy of B.

    For A @ Bᵀ, XLA makes such a copy in batches of one, and where A is a single row.

    Examples:
        >>> times_transpose(jnp.ones((2, 3)), jnp.ones((4, 3))).shape
        (2, 4)
    """
    if A.shape[-2] == 1:
        return _transpose(B @ _transpose(A))
    return jnp.einsum("...mn,...pn->...mp", A, B)


def symmetric_product(A: Float[Array, "*L JM n"], B: Float[Array, "*L M n"]) -> Float[Array, "*L JM M"]:
    """Compute A_j Bᵀ for J matrices A_j, one below the other, where each product is known to be symmetric.

    Only the blocks up to the diagonal are computed; the others are their mirror images.

    Examples:
        >>> symmetric_product(jnp.ones((2, 3)), jnp.ones((2, 3))).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    *L, M, n = B.shape
    J = A.shape[-2] // M
    if not splits(M if J == 1 else 2 * M):
        return times_transpose(A, B)
    A = A.reshape(*L, J, M, n)
    blocks = _blocks(M, BLOCK if J == 1 else BLOCK // 2)
    rows = [times_transpose(A[..., s:e, :].reshape(*L, -1, n), B[..., :e, :]) for s, e in blocks]
    return _mirrored([r.reshape(*L, J, -1, e) for r, (_, e) in zip(rows, blocks, strict=True)]).reshape(*L, J * M, M)


def _mirrored(rows: list[Array]) -> Array:
    """A symmetric matrix from the blocks of its rows up to and including the diagonal."""
    whole, start = [], 0
    for i, row in enumerate(rows):
        end = row.shape[-1]
        above = [_transpose(below[..., start:end]) for below in rows[i + 1 :]]
        whole.append(jnp.concatenate([row, *above], axis=-1))
        start = end
    return jnp.concatenate(whole, axis=-2)


def lower_gram(R: Float[Array, "*L M M"]) -> Float[Array, "*L M M"]:
    """Compute R Rᵀ for a lower-triangular R.

    Examples:
        >>> lower_gram(jnp.array([[2.0, 0.0], [1.0, 1.0]])).tolist()
        [[4.0, 2.0], [2.0, 2.0]]
    """
    M = R.shape[-1]
    if not splits(M):
        return times_transpose(R, R)
    return _mirrored([times_transpose(R[..., s:e, :e], R[..., :e, :e]) for s, e in _blocks(M, BLOCK)])


def lower_times_transpose(A: Float[Array, "*L M M"], B: Float[Array, "*L p M"]) -> Float[Array, "*L M p"]:
    """Compute A Bᵀ for a lower-triangular A.

    The reverse pass computes only the blocks of A's gradient up to the diagonal.

    Examples:
        >>> lower_times_transpose(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.ones((1, 2))).tolist()
        [[2.0], [2.0]]
    """
    return jnp.concatenate(
        [times_transpose(A[..., s:e, :e], B[..., :e]) for s, e in _blocks(A.shape[-1], BLOCK)], axis=-2
    )


def lower_transpose_times(A: Float[Array, "*K M M"], B: Float[Array, "*L M n"]) -> Float[Array, "*L M n"]:
    """Compute Aᵀ B for a lower-triangular A.

    The reverse pass computes only the blocks of A's gradient up to the diagonal.

    Examples:
        >>> lower_transpose_times(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.ones((2, 1))).tolist()
        [[3.0], [1.0]]
    """
    M = A.shape[-1]
    A = jnp.broadcast_to(A, (*B.shape[:-2], M, M))
    total = jnp.zeros((), B.dtype)
    for s, e in _blocks(M, BLOCK):
        part = jnp.einsum("...km,...kn->...mn", A[..., s:e, :e], B[..., s:e, :])
        total = total + jnp.pad(part, [(0, 0)] * (part.ndim - 2) + [(0, M - e), (0, 0)])
    return total


def _pull_back(c: Array, A: Array, form: Form) -> Array:
    """Aᵀ c, for the cotangent c of a product A @ B."""
    if not splits(max(*A.shape[-2:], c.shape[-1])):  # small: XLA splits a product over leading axes between cores
        return jnp.einsum("...km,...kn->...mn", A, c)
    return product(barrier(_transpose(A)), c, _TRANSPOSED[form])  # without the barrier, XLA undoes the transposition


_product = Primitive("product")
_product.def_impl(_matmul)
_product.def_abstract_eval(lambda A, B, *, form: A.update(shape=(*A.shape[:-1], B.shape[-1])))
mlir.register_lowering(_product, mlir.lower_fun(_matmul, multiple_results=False))
ad.defbilinear(
    _product,
    lambda c, A, B, *, form: symmetric_product(c, B) if form == "symmetric" else times_transpose(c, B),
    lambda c, A, B, *, form: _pull_back(c, A, form),
)


def _batched(arguments, axes, *, form):
    size = next(a.shape[axis] for a, axis in zip(arguments, axes, strict=True) if axis is not None)
    A, B = (
        jnp.broadcast_to(a, (size, *a.shape)) if axis is None else jnp.moveaxis(a, axis, 0)
        for a, axis in zip(arguments, axes, strict=True)
    )
    return product(A, B, form), 0


batching.primitive_batchers[_product] = _batched


def product(A: Float[Array, "*L m k"], B: Float[Array, "*L k n"], form: Form = "full") -> Float[Array, "*L m n"]:
    """Compute A @ B for a small A and a wide B, or batches of them.

    Args:
        A: the small factor [*L, m, k].
        B: the wide factor [*L, k, n].
        form: the structure of A, or of its cotangent.

    Returns:
        A B [*L, m, n].

    Examples:
        >>> product(jnp.ones((2, 3)), jnp.ones((3, 4))).shape
        (2, 4)
    """
    dtype = jnp.result_type(A, B)  # a primitive does not promote types itself
    return _product.bind(A.astype(dtype), B.astype(dtype), form=form)


def products(A: Float[Array, "L m k"], B: Float[Array, "K k n"], form: Form = "full") -> Float[Array, "L m n"]:
    """Compute A_l B_l for each latent l, as a single product if all latents share B (K = 1).

    Examples:
        >>> products(jnp.ones((3, 2, 2)), jnp.ones((1, 2, 5))).shape
        (3, 2, 5)
    """
    L, m, k = A.shape
    if L == B.shape[0] == 1:
        return product(A[0], B[0], form)[None]
    if B.shape[0] == 1:
        return product(A.reshape(L * m, k), B[0], form if form == "symmetric" else "full").reshape(L, m, -1)
    return product(A, B, form)
