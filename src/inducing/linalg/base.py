"""What a covariance matrix can do: products and solves with K and with a root of K."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float

from inducing.parameters import Module


class AbstractCovariance(Module):
    """A positive-definite matrix K [M, M] = R Rᵀ. The verbs take and give matrices [M, n].

    `relative_jitter` is what was added to the diagonal, relative to it (0 where nothing was).

    >>> import inducing as ig
    >>> K = ig.features.Fourier(0.0, 1.0, 2).Kuu(ig.kernels.Matern32(), 0.0)
    >>> type(K).__name__, bool(jnp.allclose(K.root_matmul(K.root_matmul_transpose(jnp.eye(5))), K.dense()))
    ('DiagonalPlusLowRank', True)
    """

    @property
    @abc.abstractmethod
    def relative_jitter(self) -> Float[Array, "..."]:
        """How much was added to the diagonal."""

    @abc.abstractmethod
    def matmul(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """K B."""

    @abc.abstractmethod
    def solve(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """K⁻¹ B."""

    @abc.abstractmethod
    def root_matmul(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """R B."""

    @abc.abstractmethod
    def root_matmul_transpose(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """Rᵀ B."""

    @abc.abstractmethod
    def root_solve(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """R⁻¹ B."""

    @abc.abstractmethod
    def root_solve_transpose(self, B: Float[Array, "M n"]) -> Float[Array, "M n"]:
        """R⁻ᵀ B."""

    @abc.abstractmethod
    def logdet(self) -> Float[Array, ""]:
        """log |K|."""

    @abc.abstractmethod
    def diagonal(self) -> Float[Array, " M"]:
        """The diagonal of K."""

    @abc.abstractmethod
    def dense(self) -> Float[Array, "M M"]:
        """K as an array."""


def diagonal_of(A: Float[Array, "*L M M"]) -> Float[Array, "*L M"]:
    """The diagonals of matrices.

    Every (M+1)-th entry, so that the reverse pass spreads them out again; that of `jnp.diagonal` is a loop that adds
    one number at a time.

    >>> diagonal_of(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    M = A.shape[-1]
    return jax.lax.slice_in_dim(A.reshape(*A.shape[:-2], M * M), 0, M * M, M + 1, axis=-1)


def batched(verb: str, covariance: AbstractCovariance, *args: Array) -> Array:
    """A verb of covariances that are stacked along a leading axis [K, …], for arguments [K, …] or shared.

    >>> stack = jax.vmap(Diagonal)(jnp.array([[1.0, 4.0], [9.0, 16.0]]))
    >>> batched("logdet", stack).shape
    (2,)
    """
    return eqx.filter_vmap(lambda c, *a: getattr(c, verb)(*a))(covariance, *args)
