"""Structured positive-definite matrices and the few things one does with them.

Every class has a square, invertible root R with K = R Rᵀ that is smooth in the entries of K; whitening is
w = R⁻¹ v. `Dense` is the only place in the library where jitter is added.
"""

import abc
import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .lapack import cholesky, triangular_inverse
from .parameters import Module
from .products import product, splits, times_transpose


def default_jitter(dtype) -> float:
    """The relative jitter that keeps a Gram matrix of some thousand points factorisable in `dtype`.

    >>> default_jitter(jnp.float64)
    1e-08
    """
    return 1e-8 if jnp.finfo(dtype).bits == 64 else 1e-5


def diagonal_of(A: Float[Array, "*L M M"]) -> Float[Array, "*L M"]:
    """The diagonals of matrices.

    Every (M+1)-th entry, so that the reverse pass spreads them out again; that of `jnp.diagonal` is a loop that adds
    one number at a time.

    >>> diagonal_of(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    M = A.shape[-1]
    return jax.lax.slice_in_dim(A.reshape(*A.shape[:-2], M * M), 0, M * M, M + 1, axis=-1)


def root_derivative(inverse_root: Float[Array, "*L M M"], dK: Float[Array, "*L M M"]) -> Float[Array, "*L M M"]:
    """P = Φ(L⁻¹ dK L⁻ᵀ): where K = L Lᵀ moves by dK, its root moves by dL = L P, and dL⁻¹ = −P L⁻¹.

    Φ takes the lower triangle with half the diagonal; dK is symmetric, so that L⁻¹ dK L⁻ᵀ = L⁻¹ (L⁻¹ dK)ᵀ.

    >>> root_derivative(jnp.eye(2), jnp.ones((2, 2))).tolist()
    [[0.5, 0.0], [1.0, 0.5]]
    """
    M = dK.shape[-1]
    half = jnp.asarray(np.tril(np.ones((M, M))) - 0.5 * np.eye(M), dK.dtype)
    if splits(M):  # in the order whose reverse pass knows that L⁻¹ is triangular
        whitened = product(inverse_root, times_transpose(dK, inverse_root), "lower")
    else:
        whitened = times_transpose(inverse_root, inverse_root @ dK)
    return whitened * jnp.broadcast_to(half, dK.shape)


def _shift(K: Array, jitter: float, more: Array | None = None) -> Array:
    """K + jitter·diag(K) + more·mean(diag K)·I."""
    eye = jnp.eye(K.shape[-1], dtype=K.dtype)
    shifted = K * (1.0 + jitter * eye)
    return shifted if more is None else shifted + more * (jnp.sum(K * eye) / len(eye)) * eye


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@partial(jax.jit, static_argnums=1)  # or else the loop is compiled anew at every call outside of jit
def _factor(K: Array, jitter: float) -> tuple[Array, Array, Array]:
    """The Cholesky factor L of `_shift`(K, jitter, more), its inverse, and the `more` that was needed.

    The factorisation's own rounding errors are relative to each K_ii, so that `jitter` is too: features of any units
    stand beside each other. What is wrong with K itself may be of the size of its largest entries: if the
    factorisation fails (a failure is NaN), `more` grows tenfold until it succeeds.
    """
    smallest = max(jitter, float(jnp.finfo(K.dtype).eps))

    def failed(state):
        more, L = state
        return jnp.isnan(L[-1, -1]) & (more < 1.0)

    def escalate(state):
        # Without the barrier XLA computes ahead of the loop, which hardly ever runs, what is the same in every turn.
        more, own = jax.lax.optimization_barrier((jnp.maximum(10.0 * state[0], smallest), K))
        return more, cholesky(_shift(own, jitter, more))

    start = jnp.zeros((), K.dtype), cholesky(_shift(K, jitter))
    more, L = jax.lax.while_loop(failed, escalate, start)
    return L, triangular_inverse(L), more


@_factor.defjvp
def _factor_jvp(jitter, primals, tangents):
    # products only, and their transposes in reverse mode
    (K,), (dK,) = primals, tangents
    L, Linv, more = _factor(K, jitter)
    P = root_derivative(Linv, _shift(dK, jitter, more))
    return (L, Linv, more), (L @ P, -P @ Linv, jnp.zeros_like(more))


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


class Dense(AbstractCovariance):
    """Any positive-definite matrix; R is its Cholesky factor, kept with its explicit inverse.

    The inverse makes every solve a matrix product, which on a CPU is several times faster than triangular
    substitution. `jitter` is relative to each entry of the diagonal. Where K is not numerically positive definite,
    more is added, relative to the mean of the diagonal; `jitter` then is the sum of the two.

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

    def root_matmul_transpose(self, B):
        return self.root.T @ B

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


class Diagonal(AbstractCovariance):
    """A diagonal matrix: every verb in O(M).

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

    def root_matmul_transpose(self, B):
        return self.root_matmul(B)

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
    """K = diag(d) + V Vᵀ with V [M, p], p ≪ M: every verb in O(M p).

    The root is square and smooth in d and V:

        R = D^½ (I + A X Aᵀ),   A = D^−½ V,   X = C⁻ᵀ (T − I) C⁻¹,   C = chol(AᵀA),   T = chol(I + CᵀC)

    so that V needs full column rank.

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
        """The same matrix and root with V [..., M, p]: columns of zeros are added, on which C and T are the identity.

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
        """The same for (I + A X Aᵀ)⁻¹: T⁻¹ − I."""
        eye = jnp.eye(self.T.shape[0], dtype=self.T.dtype)
        return triangular_inverse(self.T) - eye

    def matmul(self, B):
        return self.entries[:, None] * B + self.factor @ (self.factor.T @ B)

    def solve(self, B):
        return self.root_solve_transpose(self.root_solve(B))

    def root_matmul(self, B):
        return jnp.sqrt(self.entries)[:, None] * self._inner(self._X(), B)

    def root_matmul_transpose(self, B):
        return self._inner(self._X().T, jnp.sqrt(self.entries)[:, None] * B)

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
    """A matrix made of smaller ones, its `parts`, so that each verb is that verb of the parts."""

    parts: eqx.AbstractVar[tuple[AbstractCovariance, ...]]

    @abc.abstractmethod
    def _each(self, verb: str, B: Array) -> Array:
        """The verb of this matrix, by that of its parts."""

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

    def root_matmul_transpose(self, B):
        return self._each("root_matmul_transpose", B)

    def root_solve(self, B):
        return self._each("root_solve", B)

    def root_solve_transpose(self, B):
        return self._each("root_solve_transpose", B)


class Kronecker(_AbstractComposite):
    """K = K₁ ⊗ K₂ ⊗ …, the first part's index running slowest; R is the Kronecker product of the roots.

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
    """K = blockdiag(K₁, K₂, …): independent blocks of any kinds and sizes along the diagonal.

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
    """The trees with all their low-rank parts padded to the largest number of columns, so that they can be stacked."""

    def is_low(node: Any) -> bool:
        return isinstance(node, DiagonalPlusLowRank)

    parts = [part for part in jax.tree.leaves(trees, is_leaf=is_low) if is_low(part)]
    p = max((part.factor.shape[-1] for part in parts), default=0)
    return [jax.tree.map(lambda c: c.padded(p) if is_low(c) else c, tree, is_leaf=is_low) for tree in trees]


def batched(verb: str, covariance: AbstractCovariance, *args: Array) -> Array:
    """A verb of covariances that are stacked along a leading axis [K, …], for arguments [K, …] or shared.

    >>> stack = jax.vmap(Diagonal)(jnp.array([[1.0, 4.0], [9.0, 16.0]]))
    >>> batched("logdet", stack).shape
    (2,)
    """
    return eqx.filter_vmap(lambda c, *a: getattr(c, verb)(*a))(covariance, *args)
