"""Dense matrices and their Cholesky factors, the only place where jitter is added."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import barrier, static_jit
from inducing._xla.lapack import cholesky, triangular_inverse
from inducing._xla.matmul import product, splits, times_transpose
from inducing.linalg.base import AbstractCovariance, diagonal_of


def default_jitter(dtype) -> float:
    """Return the relative jitter with which a Gram matrix of a few thousand points can be factorised.

    Args:
        dtype: the type of the matrix, which decides about its rounding errors.

    Returns:
        The jitter, relative to the diagonal.

    Examples:
        >>> default_jitter(jnp.float64)
        1e-08
    """
    return 1e-8 if jnp.finfo(dtype).bits == 64 else 1e-5


def root_derivative(inverse_root: Float[Array, "*L M M"], dK: Float[Array, "*L M M"]) -> Float[Array, "*L M M"]:
    """Compute the derivative of a Cholesky factor.

        P = Φ(L⁻¹ dK L⁻ᵀ),    dL = L P,    dL⁻¹ = −P L⁻¹

    L is the root of K = L Lᵀ, and Φ takes the lower triangle with half the diagonal.

    Args:
        inverse_root: L⁻¹ [*L, M, M].
        dK: the derivative of K [*L, M, M], a symmetric matrix.

    Returns:
        P [*L, M, M].

    Examples:
        >>> root_derivative(jnp.eye(2), jnp.ones((2, 2))).tolist()
        [[0.5, 0.0], [1.0, 0.5]]
    """
    M = dK.shape[-1]
    half = jnp.asarray(np.tril(np.ones((M, M))) - 0.5 * np.eye(M), dK.dtype)
    if splits(M):  # this order lets the reverse pass use that L⁻¹ is triangular
        whitened = product(inverse_root, times_transpose(dK, inverse_root), "lower")
    else:  # dK is symmetric, so that L⁻¹ dK L⁻ᵀ = L⁻¹ (L⁻¹ dK)ᵀ
        whitened = times_transpose(inverse_root, inverse_root @ dK)
    return whitened * jnp.broadcast_to(half, dK.shape)


def _shift(K: Array, jitter: float, more: Array | None = None) -> Array:
    """K + jitter·diag(K) + more·mean(diag K)·I."""
    eye = jnp.eye(K.shape[-1], dtype=K.dtype)
    shifted = K * (1.0 + jitter * eye)
    return shifted if more is None else shifted + more * (jnp.sum(K * eye) / len(eye)) * eye


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@static_jit  # otherwise each call outside of jit would compile the loop again
def _factor(K: Array, jitter: float) -> tuple[Array, Array, Array]:
    """The Cholesky factor L of `_shift`(K, jitter, more), its inverse, and the `more` that was needed.

    The rounding errors of the factorisation are relative to each K_ii, and so is `jitter`: features with different
    units can occur in one matrix. Errors of K itself may be as large as those of its largest entries. Where the
    factorisation fails, which gives NaN, `more` grows tenfold until it succeeds.
    """
    smallest = max(jitter, float(jnp.finfo(K.dtype).eps))

    def failed(state):
        more, L = state
        return jnp.isnan(L[-1, -1]) & (more < 1.0)

    def escalate(state):
        # The loop hardly ever runs. Without the barrier, XLA would move what does not change in it to before the loop.
        more, own = barrier((jnp.maximum(10.0 * state[0], smallest), K))
        return more, cholesky(_shift(own, jitter, more))

    start = jnp.zeros((), K.dtype), cholesky(_shift(K, jitter))
    more, L = jax.lax.while_loop(failed, escalate, start)
    return L, triangular_inverse(L), more


@_factor.defjvp
def _factor_jvp(jitter, primals, tangents):
    # Only matrix products, so that the reverse pass consists of matrix products too.
    (K,), (dK,) = primals, tangents
    L, Linv, more = _factor(K, jitter)
    P = root_derivative(Linv, _shift(dK, jitter, more))
    return (L, Linv, more), (L @ P, -P @ Linv, jnp.zeros_like(more))


class Dense(AbstractCovariance):
    """A dense positive-definite matrix, with its Cholesky factor R.

    The inverse of R is stored as well. It makes every solve a matrix product, which on a CPU is several times faster
    than triangular substitution. If the matrix is not positive definite numerically, a multiple of the mean of its
    diagonal is added to the diagonal; the field `jitter` is then the sum of both.

    Args:
        matrix: K [M, M].
        jitter: what to add to the diagonal, relative to each of its entries.

    Examples:
        >>> K = Dense(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        >>> bool(jnp.allclose(K.solve(jnp.eye(2)), jnp.linalg.inv(K.dense())))
        True
    """

    matrix: Float[Array, "M M"]
    root: Float[Array, "M M"]
    inverse_root: Float[Array, "M M"]
    jitter: Float[Array, ""]

    def __init__(self, matrix: Float[Array, "M M"], jitter: float = 0.0):
        self.root, self.inverse_root, more = _factor(matrix, jitter)
        self.matrix = _shift(matrix, jitter, jax.lax.stop_gradient(more))
        self.jitter = jitter + more

    @property
    def relative_jitter(self) -> Float[Array, "..."]:
        return self.jitter

    def matmul(self, B):
        return self.matrix @ B

    def solve(self, B):
        return self.inverse_root.T @ (self.inverse_root @ B)

    def root_matmul(self, B):
        return self.root @ B

    def root_solve(self, B):
        return self.inverse_root @ B

    def root_solve_transpose(self, B):
        return self.inverse_root.T @ B

    def logdet(self):
        return -2.0 * jnp.sum(jnp.log(diagonal_of(self.inverse_root)))

    def diagonal(self):
        return diagonal_of(self.matrix)

    def dense(self):
        return self.matrix
