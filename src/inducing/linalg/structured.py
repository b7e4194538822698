"""Structured matrices: diagonal, diagonal plus low rank, Kronecker products and blocks."""

import abc
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from inducing._xla.lapack import triangular_inverse
from inducing.linalg.base import AbstractCovariance, diagonal_of


class Diagonal(AbstractCovariance):
    """A diagonal matrix. Every operation on a vector takes O(M).

    Args:
        entries: the diagonal [M], positive.

    Examples:
        >>> Diagonal(jnp.array([4.0, 9.0])).root_solve(jnp.ones((2, 1)))[:, 0].tolist()
        [0.5, 0.3333333333333333]
    """

    entries: Float[Array, " M"]

    @property
    def relative_jitter(self) -> Float[Array, "..."]:
        return jnp.zeros((), self.entries.dtype)

    def matmul(self, B):
        return self.entries[:, None] * B

    def solve(self, B):
        return B / self.entries[:, None]

    def root_matmul(self, B):
        return jnp.sqrt(self.entries)[:, None] * B

    def root_solve(self, B):
        return B / jnp.sqrt(self.entries)[:, None]

    def root_solve_transpose(self, B):
        return self.root_solve(B)

    def logdet(self):
        return jnp.sum(jnp.log(self.entries))

    def diagonal(self):
        return self.entries

    def dense(self):
        return jnp.diag(self.entries)


class DiagonalPlusLowRank(AbstractCovariance):
    """A diagonal matrix plus a matrix of low rank.

        K = diag(d) + V Vᵀ
        R = D^½ (I + A X Aᵀ),   A = D^−½ V,   X = C⁻ᵀ (T − I) C⁻¹,   C = chol(AᵀA),   T = chol(I + CᵀC)

    Every operation on a vector takes O(M p). The root R is square and depends smoothly on d and V, which needs full
    column rank.

    Args:
        entries: d [M], positive.
        factor: V [M, p] with p ≪ M.

    Examples:
        >>> K = DiagonalPlusLowRank(jnp.array([1.0, 2.0, 3.0]), jnp.ones((3, 1)))
        >>> bool(jnp.allclose(K.solve(K.dense()), jnp.eye(3)))
        True
    """

    entries: Float[Array, " M"]
    factor: Float[Array, "M p"]
    scaled: Float[Array, "M p"]
    C: Float[Array, "p p"]
    T: Float[Array, "p p"]

    def __init__(self, entries: Float[Array, " M"], factor: Float[Array, "M p"]):
        self.entries = entries
        self.factor = factor
        self.scaled = factor / jnp.sqrt(entries)[:, None]
        eye = jnp.eye(factor.shape[1], dtype=factor.dtype)
        self.C = jnp.linalg.cholesky(self.scaled.T @ self.scaled)
        self.T = jnp.linalg.cholesky(eye + self.C.T @ self.C)

    def padded(self, p: int) -> "DiagonalPlusLowRank":
        """Return the same matrix and root with zeros as further columns of V, for which C and T are the identity.

        Args:
            p: the number of columns of V afterwards.

        Examples:
            >>> K = DiagonalPlusLowRank(jnp.array([1.0, 2.0, 3.0]), jnp.ones((3, 1)))
            >>> bool(jnp.allclose(K.padded(2).root_matmul(jnp.eye(3)), K.root_matmul(jnp.eye(3))))
            True
        """
        more = p - self.factor.shape[-1]
        wide = [(0, 0)] * (self.factor.ndim - 1) + [(0, more)]
        both = [(0, 0)] * (self.C.ndim - 2) + [(0, more)] * 2
        eye = jnp.diag((jnp.arange(p) >= p - more).astype(self.C.dtype))
        triangles = [jnp.pad(t, both) for t in (self.C, self.T)]
        C, T = (t + jnp.broadcast_to(eye, t.shape) for t in triangles)
        V, A = jnp.pad(self.factor, wide), jnp.pad(self.scaled, wide)
        return eqx.tree_at(lambda c: (c.factor, c.scaled, c.C, c.T), self, (V, A, C, T))

    @property
    def relative_jitter(self) -> Float[Array, "..."]:
        return jnp.zeros((), self.entries.dtype)

    def _inner(self, middle: Float[Array, "p p"], B: Array) -> Array:
        """B + A C⁻ᵀ middle C⁻¹ Aᵀ B."""
        inverse = triangular_inverse(self.C)
        return B + self.scaled @ (inverse.T @ (middle @ (inverse @ (self.scaled.T @ B))))

    def _X(self) -> Array:
        return self.T - jnp.eye(self.T.shape[0], dtype=self.T.dtype)

    def _X_inverse(self) -> Array:
        """T⁻¹ − I, which takes the place of T − I in (I + A X Aᵀ)⁻¹."""
        eye = jnp.eye(self.T.shape[0], dtype=self.T.dtype)
        return triangular_inverse(self.T) - eye

    def matmul(self, B):
        return self.entries[:, None] * B + self.factor @ (self.factor.T @ B)

    def solve(self, B):
        return self.root_solve_transpose(self.root_solve(B))

    def root_matmul(self, B):
        return jnp.sqrt(self.entries)[:, None] * self._inner(self._X(), B)

    def root_solve(self, B):
        return self._inner(self._X_inverse(), B / jnp.sqrt(self.entries)[:, None])

    def root_solve_transpose(self, B):
        return self._inner(self._X_inverse().T, B) / jnp.sqrt(self.entries)[:, None]

    def logdet(self):
        return jnp.sum(jnp.log(self.entries)) + 2.0 * jnp.sum(jnp.log(diagonal_of(self.T)))

    def diagonal(self):
        return self.entries + jnp.sum(self.factor**2, axis=1)

    def dense(self):
        return jnp.diag(self.entries) + self.factor @ self.factor.T


class _AbstractComposite(AbstractCovariance):
    """A matrix made of smaller ones, its `parts`, such that each operation is that operation on the parts."""

    parts: eqx.AbstractVar[tuple[AbstractCovariance, ...]]

    @abc.abstractmethod
    def _each(self, verb: str, B: Array) -> Array:
        """Apply an operation, given by the name of its method, through that of the parts."""

    def _sizes(self) -> list[int]:
        return [jax.eval_shape(part.diagonal).shape[0] for part in self.parts]

    @property
    def relative_jitter(self) -> Float[Array, "..."]:
        return reduce(jnp.maximum, [part.relative_jitter for part in self.parts])

    def matmul(self, B):
        return self._each("matmul", B)

    def solve(self, B):
        return self._each("solve", B)

    def root_matmul(self, B):
        return self._each("root_matmul", B)

    def root_solve(self, B):
        return self._each("root_solve", B)

    def root_solve_transpose(self, B):
        return self._each("root_solve_transpose", B)


class Kronecker(_AbstractComposite):
    """A Kronecker product of matrices.

        K = K₁ ⊗ K₂ ⊗ …,    R = R₁ ⊗ R₂ ⊗ …

    The index of the first part runs slowest.

    Args:
        parts: the matrices K₁, K₂, ….

    Examples:
        >>> K = Kronecker((Diagonal(jnp.array([1.0, 2.0])), Diagonal(jnp.array([3.0, 5.0]))))
        >>> K.diagonal().tolist()
        [3.0, 5.0, 6.0, 10.0]
    """

    parts: tuple[AbstractCovariance, ...]

    def _each(self, verb: str, B: Array) -> Array:
        sizes = self._sizes()
        out = B.reshape(*sizes, B.shape[1])
        for axis, part in enumerate(self.parts):
            rows = jnp.moveaxis(out, axis, 0)
            done = getattr(part, verb)(rows.reshape(sizes[axis], -1))
            out = jnp.moveaxis(done.reshape(rows.shape), 0, axis)
        return out.reshape(B.shape)

    def logdet(self):
        sizes = self._sizes()
        total = math.prod(sizes)
        return reduce(jnp.add, [part.logdet() * (total // n) for part, n in zip(self.parts, sizes, strict=True)])

    def diagonal(self):
        return reduce(jnp.kron, [part.diagonal() for part in self.parts])

    def dense(self):
        return reduce(jnp.kron, [part.dense() for part in self.parts])


class BlockDiagonal(_AbstractComposite):
    """A block-diagonal matrix.

        K = blockdiag(K₁, K₂, …),    R = blockdiag(R₁, R₂, …)

    Args:
        parts: the blocks K₁, K₂, …, of any structures and sizes.

    Examples:
        >>> from inducing.linalg import Dense
        >>> K = BlockDiagonal((Diagonal(jnp.array([1.0, 2.0])), Dense(jnp.array([[4.0]]))))
        >>> K.diagonal().tolist()
        [1.0, 2.0, 4.0]
    """

    parts: tuple[AbstractCovariance, ...]

    def _each(self, verb: str, B: Array) -> Array:
        rows = jnp.split(B, np.cumsum(self._sizes())[:-1])
        return jnp.concatenate([getattr(part, verb)(r) for part, r in zip(self.parts, rows, strict=True)])

    def logdet(self):
        return reduce(jnp.add, [part.logdet() for part in self.parts])

    def diagonal(self):
        return jnp.concatenate([part.diagonal() for part in self.parts])

    def dense(self):
        return jax.scipy.linalg.block_diag(*[part.dense() for part in self.parts])


def same_rank(trees: Sequence[PyTree]) -> list[PyTree]:
    """Pad all matrices of low rank to the same number of columns, so that they can be stacked.

    Args:
        trees: pytrees that may contain `DiagonalPlusLowRank` matrices.

    Returns:
        The pytrees, with the largest number of columns that any of the matrices has.

    Examples:
        >>> small, large = (DiagonalPlusLowRank(jnp.ones(3), jnp.eye(3)[:, :p]) for p in (1, 2))
        >>> [K.factor.shape for K in same_rank([small, large])]
        [(3, 2), (3, 2)]
    """

    def is_low(node: Any) -> bool:
        return isinstance(node, DiagonalPlusLowRank)

    parts = [part for part in jax.tree.leaves(trees, is_leaf=is_low) if is_low(part)]
    p = max((part.factor.shape[-1] for part in parts), default=0)
    return [jax.tree.map(lambda c: c.padded(p) if is_low(c) else c, tree, is_leaf=is_low) for tree in trees]
