"""Factorisations of batches of matrices, one piece after the other.

jaxlib 0.10 distributes a batch over XLA's threads and waits for it on one of them. On two cores, two batches at the
same time can then wait for each other forever. We cut a batch into pieces so small that each stays in one thread.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SUBSTITUTED = 112  # up to this number of rows, halving gains little and compiles a dozen more loops
ONE_THREAD = 199_999  # up to this number of operations (about M³ for each matrix), jaxlib stays in the calling thread


def in_turn(fn: Callable[[Array], Any], operations: int = 1) -> Callable[[Array], Any]:
    """Make a function of batches of matrices work piece by piece, also under `vmap`.

    Args:
        fn: a function of matrices [*n, M, M].
        operations: how many operations it takes for each matrix, in units of M³.

    Returns:
        The function, which has no derivatives.

    Examples:
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
    """Compute the lower Cholesky factor of a matrix, without derivatives.

    Args:
        K: a positive-definite matrix [M, M], of which the lower triangle is read.

    Returns:
        L [M, M] with K = L Lᵀ, NaN if K is not positive definite.

    Examples:
        >>> cholesky(4.0 * jnp.eye(2)).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    return _cholesky(K)


def eigh(K: Float[Array, "M M"]) -> tuple[Float[Array, " M"], Float[Array, "M M"]]:
    """Compute the eigenvalues and eigenvectors of a symmetric matrix, without derivatives.

    Args:
        K: a symmetric matrix [M, M].

    Returns:
        The eigenvalues [M] in ascending order, and the eigenvectors as columns [M, M].

    Examples:
        >>> eigh(jnp.diag(jnp.array([3.0, 2.0])))[0].tolist()
        [2.0, 3.0]
    """
    return _eigh(K)


def substituted_inverse(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Invert a lower-triangular matrix by substitution, without derivatives: compiled sooner than `triangular_inverse`.

    Args:
        L: a lower-triangular matrix [M, M].

    Returns:
        L⁻¹ [M, M].

    Examples:
        >>> substituted_inverse(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    return _substituted(L)


@jax.custom_jvp
def triangular_inverse(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Invert a lower-triangular matrix by halving, which is mostly matrix products.

        [[A, 0], [B, C]]⁻¹ = [[A⁻¹, 0], [−C⁻¹BA⁻¹, C⁻¹]]

    We multiply L⁻¹ by matrices of the form L A, so L⁻¹L must be close to I. The product of two inverses is less
    accurate than substitution by a factor cond(L). In float32 one Newton step, X ← X − (X A + C⁻¹B) A⁻¹, corrects that.

    Args:
        L: a lower-triangular matrix [M, M].

    Returns:
        L⁻¹ [M, M].

    Examples:
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
