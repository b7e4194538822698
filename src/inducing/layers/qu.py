"""The Gaussian q(u) over the inducing variables of L latents, given by its mean [L, M] and a root of its covariance.

The form of the root follows from its shape:

    full      [L, M, M]    one lower-triangular root for each latent
    diagonal  [L, 1, M]    independent inducing variables
    coupled   [L·M, L·M]   one lower-triangular root for all latents together
    Kronecker ([L, M₁, M₁], [L, M₂, M₂], …)   a product of small roots for each latent, M = M₁ M₂ …, in w coordinates
"""

import math
from functools import reduce
from typing import TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla.matmul import products
from inducing.declared import shown
from inducing.linalg import AbstractCovariance, batched, diagonal_of
from inducing.priors.latents import repeat as repeat

Root = Array | tuple[Array, ...]


def is_kronecker(root: Root) -> bool:
    """Whether the root is a Kronecker product of smaller ones."""
    return isinstance(root, tuple)


def is_coupled(root: Root) -> bool:
    """Whether the root correlates the latents."""
    return not isinstance(root, tuple) and root.ndim == 2


def is_diagonal(root: Root) -> bool:
    """Whether the root is diagonal. The root of a single inducing variable counts as full."""
    return not isinstance(root, tuple) and root.ndim == 3 and root.shape[1] == 1 and root.shape[2] > 1


def is_full(root: Root) -> TypeGuard[Array]:
    """Whether there is one lower-triangular root for each latent."""
    return not isinstance(root, tuple) and root.ndim == 3 and root.shape[1] == root.shape[2]


def is_scalar(root: Root) -> bool:
    """Whether a concrete root is a multiple of the identity."""
    for factor in map(np.asarray, root if isinstance(root, tuple) else (root,)):
        identity = np.eye(factor.shape[-1]) if factor.shape[-2] == factor.shape[-1] else 1.0
        if np.any(factor != factor.flat[0] * identity):
            return False
    return True


def as_root(root: Root, L: int, M: int) -> Root:
    """Convert a user's root to one of the forms above.

    It may be [M], [M, M], [L, M], [L, M, M], [L·M, L·M] or a tuple of factors.
    """
    if isinstance(root, tuple):
        if any(jnp.ndim(f) < 2 for f in root):
            raise ValueError(f"root must be an array, or a tuple of matrices, got {shown(root)}.")
        factors = tuple(jnp.broadcast_to(f, (L, *f.shape[-2:])) for f in root)
        if any(f.shape[-1] != f.shape[-2] for f in factors) or math.prod(f.shape[-1] for f in factors) != M:
            shapes = [list(f.shape) for f in root]
            raise ValueError(f"root has factors of shapes {shapes}; square ones with sizes of product {M} are needed.")
        return factors
    accepted = {
        (L, M, M): lambda r: r,
        (L, 1, M): lambda r: r,
        (L, M): lambda r: r[:, None, :],
    }
    if L > 1:
        accepted[(L * M, L * M)] = lambda r: r
    else:
        accepted |= {(M, M): lambda r: r[None], (M,): lambda r: r[None, None, :]}
    if root.shape not in accepted:
        shapes = ", ".join(str(list(s)) for s in accepted)
        raise ValueError(f"root has shape {list(root.shape)}; for {L} latents and {M} features pass one of {shapes}.")
    return accepted[root.shape](root)


def _along_factors(root: tuple[Array, ...], A: Float[Array, "K M n"], side: int) -> Float[Array, "L M n"]:
    """R A (side 1) or Rᵀ A (side 0) for R = R₁ ⊗ R₂ ⊗ …."""
    L, sizes = root[0].shape[0], [f.shape[-1] for f in root]

    def one(factors, a):
        out = a.reshape(*sizes, -1)
        for axis, f in enumerate(factors):
            out = jnp.moveaxis(jnp.tensordot(f, out, ((side,), (axis,))), 0, axis)
        return out.reshape(a.shape)

    return jax.vmap(one)(root, jnp.broadcast_to(A, (L, *A.shape[1:])))


def root_transpose_matmul(root: Root, A: Float[Array, "K M n"]) -> Float[Array, "L M2 n"]:
    """T_l = R_lᵀ A_l, so that Cov(f_l, f_k) = T_lᵀ T_k; M2 is M, or L·M for a coupled root. A may be shared (K = 1)."""
    if isinstance(root, tuple):
        return _along_factors(root, A, 0)
    if is_diagonal(root):
        return root[:, 0, :, None] * A
    if is_coupled(root):
        M = A.shape[1]
        rows = root.reshape(root.shape[0] // M, M, root.shape[1])
        return jnp.swapaxes(rows, 1, 2) @ A
    return products(jnp.swapaxes(root, 1, 2), A)


def log_abs_det(root: Root) -> Float[Array, ""]:
    """log |det R|, summed over the latents."""
    if isinstance(root, tuple):
        M = math.prod(f.shape[-1] for f in root)
        return reduce(jnp.add, [log_abs_det(f) * (M // f.shape[-1]) for f in root])
    diagonal = root if is_diagonal(root) else diagonal_of(root)
    return jnp.sum(jnp.log(jnp.abs(diagonal)))


def whitened_kl(m: Float[Array, "L M"], root: Root, log_det: Float[Array, ""]) -> Float[Array, ""]:
    """KL( N(m, R Rᵀ) ‖ N(0, I) ) of all latents, for q in w coordinates.

        ½ ( |R|² + |m|² − LM ) − log |det R|

    The caller passes `log_det` = log |det R|, because R need not be triangular if q was whitened. The determinant then
    follows from those of Luu and of the root in the original coordinates (see `SparseGP.kl`).
    """
    factors = root if isinstance(root, tuple) else (root.reshape(-1, *root.shape[-2:]),)
    squares = reduce(jnp.multiply, [jnp.sum(f**2, axis=(1, 2)) for f in factors])
    return 0.5 * (jnp.sum(squares) + jnp.sum(m**2) - m.size) - log_det


def expand(root: Root) -> Array:
    """A diagonal or Kronecker root as a full one. Other roots are returned unchanged."""
    if isinstance(root, tuple):
        return reduce(jax.vmap(jnp.kron), root)
    return jnp.eye(root.shape[-1], dtype=root.dtype)[None] * root if is_diagonal(root) else root


def whiten(root: Root, Kuu: AbstractCovariance, L: int) -> Array:
    """Luu⁻¹ R for a root of v."""
    return _left("root_solve", expand(root), Kuu, L)


def colour(root: Root, Kuu: AbstractCovariance, L: int) -> Array:
    """Luu R for a root of w."""
    return _left("root_matmul", expand(root), Kuu, L)


def _left(verb: str, root: Array, Kuu: AbstractCovariance, L: int) -> Array:
    if is_coupled(root):
        rows = root.reshape(L, root.shape[0] // L, root.shape[1])
        return batched(verb, repeat(Kuu, L), rows).reshape(root.shape)
    return batched(verb, repeat(Kuu, L), root)


def repeat_dense(Kuu: AbstractCovariance, L: int) -> Float[Array, "L M M"]:
    """The covariances as arrays [L, M, M]."""
    return batched("dense", repeat(Kuu, L))


def root_matmul(root: Root, x: Float[Array, "L M"]) -> Float[Array, "L M"]:
    """R x for a vector of all latents."""
    if isinstance(root, tuple):
        return _along_factors(root, x[..., None], 1)[..., 0]
    if is_diagonal(root):
        return root[:, 0] * x
    if is_coupled(root):
        return (root @ x.reshape(-1)).reshape(x.shape)
    return (root @ x[..., None])[..., 0]


def triangular(root: Array) -> Array:
    """The lower-triangular root with a positive diagonal of the same covariance R Rᵀ, by a QR factorisation of Rᵀ."""
    upper = jnp.linalg.qr(jnp.swapaxes(root, -1, -2), mode="r")
    signs = jnp.sign(diagonal_of(upper))
    signs = jnp.where(signs == 0, 1.0, signs).astype(root.dtype)
    return jnp.tril(jnp.swapaxes(upper * signs[..., :, None], -1, -2))
