"""Matrix products that know the structure of their left factor, and whose reverse pass is laid out as fast as they are.

JAX transposes B in A @ B into (c̄ᵀ A)ᵀ: a product over leading axes, which runs slower on CPUs, and a transposed copy of
a wide array. `product` has the transpose Aᵀ c̄ with the small A laid out anew. If c̄ is small too, the product over
leading axes is the faster one: XLA runs small products of the other kind on one core. Triangular and symmetric matrices
are multiplied block by block, which leaves out almost half of the work.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

BLOCK = 128
Form = Literal["full", "lower", "upper", "symmetric"]
"""What the left factor is; "symmetric" says that its cotangent is symmetric, so that half of that is computed."""

_TRANSPOSED: dict[Form, Form] = {"full": "full", "lower": "upper", "upper": "lower", "symmetric": "full"}


def _blocks(M: int, block: int) -> list[tuple[int, int]]:
    return [(s, min(s + block, M)) for s in range(0, M, block)]


def _transpose(A: Array) -> Array:
    return jnp.swapaxes(A, -1, -2)


def _matmul(A: Array, B: Array, *, form: Form) -> Array:
    M = A.shape[-2]
    if form not in ("lower", "upper") or M < 2 * BLOCK:
        return A @ B
    if form == "lower":
        return jnp.concatenate([A[..., s:e, :e] @ B[..., :e, :] for s, e in _blocks(M, BLOCK)], axis=-2)
    return jnp.concatenate([A[..., s:e, s:] @ B[..., s:, :] for s, e in _blocks(M, BLOCK)], axis=-2)


def times_transpose(A: Float[Array, "*L m n"], B: Float[Array, "*L p n"]) -> Float[Array, "*L m p"]:
    """A Bᵀ, without a transposed copy of B: XLA makes one of A @ Bᵀ in batches of one, and where A is a row.

    >>> times_transpose(jnp.ones((2, 3)), jnp.ones((4, 3))).shape
    (2, 4)
    """
    if A.shape[-2] == 1:
        return _transpose(B @ _transpose(A))
    return jnp.einsum("...mn,...pn->...mp", A, B)


def symmetric_product(A: Float[Array, "*L JM n"], B: Float[Array, "*L M n"]) -> Float[Array, "*L JM M"]:
    """A_j Bᵀ for J matrices A_j on top of each other, where each is symmetric: blocks up to the diagonal, mirrored.

    >>> symmetric_product(jnp.ones((2, 3)), jnp.ones((2, 3))).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    *L, M, n = B.shape
    J = A.shape[-2] // M
    block = BLOCK if J == 1 else BLOCK // 2
    if 2 * block > M:
        return times_transpose(A, B)
    A = A.reshape(*L, J, M, n)
    blocks = _blocks(M, block)
    rows = [
        times_transpose(A[..., s:e, :].reshape(*L, -1, n), B[..., :e, :]).reshape(*L, J, e - s, e) for s, e in blocks
    ]
    whole = [
        jnp.concatenate([row] + [_transpose(below[..., s:e]) for below in rows[i + 1 :]], axis=-1)
        for i, (row, (s, e)) in enumerate(zip(rows, blocks, strict=True))
    ]
    return jnp.concatenate(whole, axis=-2).reshape(*L, J * M, M)


def _pull_back(c: Array, A: Array, form: Form) -> Array:
    """Aᵀ c, for the cotangent c of a product A @ B."""
    if max(*A.shape[-2:], c.shape[-1]) < 2 * BLOCK:  # a product over leading axes, which XLA splits between cores
        return jnp.einsum("...km,...kn->...mn", A, c)
    return product(jax.lax.optimization_barrier(_transpose(A)), c, _TRANSPOSED[form])


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
    """A @ B, for a small A and a wide B, or a batch of such.

    >>> product(jnp.ones((2, 3)), jnp.ones((3, 4))).shape
    (2, 4)
    """
    dtype = jnp.result_type(A, B)  # what binds a primitive promotes nothing
    return _product.bind(A.astype(dtype), B.astype(dtype), form=form)


def products(A: Float[Array, "L m k"], B: Float[Array, "K k n"], form: Form = "full") -> Float[Array, "L m n"]:
    """A_l B_l for each latent l: a single product if all share B (K = 1).

    >>> products(jnp.ones((3, 2, 2)), jnp.ones((1, 2, 5))).shape
    (3, 2, 5)
    """
    L, m, k = A.shape
    if L == B.shape[0] == 1:
        return product(A[0], B[0], form)[None]
    if B.shape[0] == 1:
        return product(A.reshape(L * m, k), B[0], form if form == "symmetric" else "full").reshape(L, m, -1)
    return product(A, B, form)
