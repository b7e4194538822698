"""The interface of covariance matrices: products and solves with K and with a root of K."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float


class AbstractCovariance(eqx.Module):
    """A positive-definite matrix with a root.

        K = R Rᵀ

    K and R are [M, M]; products and solves take and return matrices [M, n]. A subclass stores what it needs to compute
    them. Its fields may have a leading axis [K, …], for one matrix for each latent; `batched` then applies a method.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> K = ig.features.Fourier(0.0, 1.0, 2).Kuu(ig.kernels.Matern32(), 0.0)
        >>> R = K.root_matmul(jnp.eye(5))
        >>> type(K).__name__, bool(jnp.allclose(R @ R.T, K.dense()))
        ('DiagonalPlusLowRank', True)
    """

    @property
    @abc.abstractmethod
    def relative_jitter(self) -> Float[Array, "..."]:
        """What was added to the diagonal, relative to it; 0 if nothing was."""

    @abc.abstractmethod
    def matmul(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """Compute K B."""

    @abc.abstractmethod
    def solve(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """Compute K⁻¹ B."""

    @abc.abstractmethod
    def root_matmul(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """Compute R B."""

    @abc.abstractmethod
    def root_solve(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """Compute R⁻¹ B."""

    @abc.abstractmethod
    def root_solve_transpose(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """Compute R⁻ᵀ B."""

    @abc.abstractmethod
    def logdet(self) -> Float[Array, ""]:
        """Compute log |K|."""

    @abc.abstractmethod
    def diagonal(self) -> Float[Array, " M"]:
        """Return the diagonal of K."""

    @abc.abstractmethod
    def dense(self) -> Float[Array, "M M"]:
        """Return K as an array."""


def diagonal_of(A: Float[Array, "*L M M"]) -> Float[Array, "*L M"]:
    """Return the diagonals of matrices.

    Args:
        A: square matrices [*L, M, M].

    Returns:
        Their diagonals [*L, M].

    Examples:
        >>> import jax.numpy as jnp
        >>> diagonal_of(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [1.0, 4.0]
    """
    # The reverse pass of a strided slice is a padded copy. That of `jnp.diagonal` is a loop that adds single numbers.
    M = A.shape[-1]
    return jax.lax.slice_in_dim(A.reshape(*A.shape[:-2], M * M), 0, M * M, M + 1, axis=-1)


def batched(verb: str, covariance: AbstractCovariance, *args: Array) -> Array:
    """Apply a method of `AbstractCovariance` to matrices that are stacked along a leading axis.

    Args:
        verb: the name of the method, such as "solve".
        covariance: covariance matrices with a leading axis [K, …] of all arrays.
        args: its arguments [K, …].

    Returns:
        The results [K, …].

    Examples:
        >>> import jax.numpy as jnp
        >>> from inducing.linalg import Diagonal
        >>> stack = jax.vmap(Diagonal)(jnp.array([[1.0, 4.0], [9.0, 16.0]]))
        >>> batched("logdet", stack).shape
        (2,)
    """
    # The method is given by name because all structures have the same methods: `batched("solve", K, B)` is
    # `K.solve(B)` for each latent, whatever the structure of K. This does not depend on the class of K.
    return eqx.filter_vmap(lambda c, *a: getattr(c, verb)(*a))(covariance, *args)
