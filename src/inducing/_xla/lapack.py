"""Factorisations of batches of matrices, one after the other.

jaxlib 0.10 spreads a batch over XLA's threads and waits for it on one of these threads: two batches side by side on two
cores wait for each other for ever. So a batch is cut into pieces that LAPACK keeps in one thread.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SUBSTITUTED = 112  # rows up to which halving gains 10 µs at most, and takes a dozen more loops to compile
ONE_THREAD = 199_999  # operations (about M³ for each matrix) up to which a call stays in the thread that it comes from


def in_turn(fn: Callable[[Array], Any], operations: int = 1) -> Callable[[Array], Any]:
    """fn of matrices [*n, M, M], `operations` times M³ each, in pieces, also under `vmap`. It has no derivatives.

    >>> in_turn(jnp.linalg.cholesky)(jnp.ones((1000, 1, 1))).shape
    (1000, 1, 1)
    """

    @jax.custom_batching.custom_vmap
    def batched(A: Array) -> Any:
        M, size = A.shape[-1], math.prod(A.shape[:-2])
        at_a_time = max(1, ONE_THREAD // (operations * M**3))
        if size <= at_a_time:
            return fn(A)
        out = jax.lax.map(fn, A.reshape(size, M, M), batch_size=at_a_time)
        return jax.tree.map(lambda a: a.reshape(*A.shape[:-2], *a.shape[1:]), out)

    @batched.def_vmap
    def _more(size, in_batched, A):
        out = batched(A)
        return out, jax.tree.map(lambda _: True, out)

    return batched


def _substitute(L: Array) -> Array:
    eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    return jax.lax.linalg.triangular_solve(L, eye, left_side=False, lower=True)  # X with X L = I


_cholesky = in_turn(partial(jax.lax.linalg.cholesky, symmetrize_input=False))
_eigh = in_turn(jnp.linalg.eigh, operations=100)
_substituted = in_turn(_substitute)


def cholesky(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower Cholesky factor of K, of which the lower triangle is read; NaN where there is none. No derivatives.

    >>> cholesky(4.0 * jnp.eye(2)).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    return _cholesky(K)


def eigh(K: Float[Array, "M M"]) -> tuple[Float[Array, " M"], Float[Array, "M M"]]:
    """Eigenvalues in ascending order and eigenvectors (columns) of a symmetric matrix. No derivatives.

    >>> eigh(jnp.diag(jnp.array([3.0, 2.0])))[0].tolist()
    [2.0, 3.0]
    """
    return _eigh(K)


@jax.custom_jvp
def triangular_inverse(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L⁻¹ of a lower-triangular L by halving, [[A, 0], [B, C]]⁻¹ = [[A⁻¹, 0], [−C⁻¹BA⁻¹, C⁻¹]]: mostly matrix products.

    What multiplies L⁻¹ is of the form L A, so that L⁻¹L must be near I. The product of two inverses loses cond(L) more
    than substitution does: in float32 that is put right by one step, X ← X − (X A + C⁻¹B) A⁻¹.

    >>> L = jnp.array([[2.0, 0.0], [1.0, 4.0]])
    >>> bool(jnp.allclose(triangular_inverse(L) @ L, jnp.eye(2)))
    True
    """
    M = L.shape[-1]
    if M <= SUBSTITUTED:
        return _substituted(L)
    h = M // 2
    A, C = triangular_inverse(L[:h, :h]), triangular_inverse(L[h:, h:])
    right = C @ L[h:, :h]
    below = -right @ A
    if L.dtype == jnp.float32:
        below = below - (below @ L[:h, :h] + right) @ A
    above = jnp.zeros((h, M - h), L.dtype)
    return jnp.concatenate([jnp.concatenate([A, above], 1), jnp.concatenate([below, C], 1)], 0)


@triangular_inverse.defjvp
def _triangular_inverse_jvp(primals, tangents):
    inverse = triangular_inverse(*primals)
    return inverse, -inverse @ jnp.tril(tangents[0]) @ inverse
