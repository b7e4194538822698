"""Samples of a sparse GP: at single points, jointly over the replicates of a datum, and of whole functions."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import barrier
from inducing.layers import qu
from inducing.layers.base import standard_normal
from inducing.linalg import Dense, batched
from inducing.numerics.special import safe_sqrt
from inducing.priors.base import mix_mean
from inducing.priors.latents import apply_features

if TYPE_CHECKING:
    from inducing.layers.sparse_gp import SparseGP


def sample_each(layer: "SparseGP", X: Float[Array, "n D"], key: Array) -> Float[Array, "n P"]:
    """Independent samples of f at each point, for latents with one site that q(u) does not couple."""
    # Without the barrier, XLA fuses the transpose into the product that gives the mean, which makes that product slow.
    mean_s, reduction = barrier(layer.mean_and_reduction(X))
    mean = layer.prior.mean(X) + mix_mean(layer.prior, mean_s.T[..., None])
    prior_variance = jnp.broadcast_to(layer.prior.Kff_diag(X)[..., 0], mean_s.shape)
    variance = (prior_variance - reduction).T
    scale = safe_sqrt(jnp.maximum(variance, jnp.finfo(X.dtype).eps * prior_variance.T))
    noise = standard_normal(key, scale.shape, X.dtype)
    return mean + mix_mean(layer.prior, (scale * noise)[..., None])


def sample_jointly(layer: "SparseGP", x: Float[Array, "N R D"], key: Array) -> Float[Array, "N R L J"]:
    """A sample of the sites without their mean function, joint over the replicates of a datum."""
    mean, cov = layer.site_covariance(x)
    # Where the process has no variance, such as a linear one at 0, the covariance has no root, and f equals its mean.
    moves = jnp.max(jnp.diagonal(cov, axis1=2, axis2=3), axis=2)[..., None, None] > 0
    eye = jnp.eye(cov.shape[-1], dtype=cov.dtype)[None, None]
    root = jax.vmap(jax.vmap(lambda c: Dense(c, layer.jitter).root))(jnp.where(moves, cov, eye))
    root = jnp.where(moves, root, 0.0)
    noise = standard_normal(key, root.shape[:-1], x.dtype)
    return jnp.swapaxes(mean + jnp.einsum("nlgh,nlh->nlg", root, noise).reshape(mean.shape), 1, 2)


def sample_with_u(
    layer: "SparseGP", X: Float[Array, "N D"], key: Array
) -> tuple[Float[Array, "N P"], Float[Array, ""]]:
    """A sample of u ~ q(u) and f(X) ~ p(f(X) | u), joint over all inputs, and log p(u)/q(u).

        (w, s(X)) ~ N(0, [[I, A], [Aᵀ, Kff]]) a priori,    A = Luu⁻¹ Kuf

    The Cholesky factor of this covariance gives s(X) from w and noise, in O((M + N J)³). It does not depend on the
    sample, so `vmap` over keys factorises once if X is the same for all keys.
    """
    prior, L, M = layer.prior, layer.prior.num_latents, layer.num_features
    key_u, key_f = jax.random.split(key)
    Kuu = layer.Kuu()
    m, root = layer.whitened(Kuu)
    noise = standard_normal(key_u, m.shape, m.dtype)
    w = m + qu.root_matmul(root, noise)
    # KL is the mean of this ratio, and both need the determinant of q(w)
    log_ratio = 0.5 * (jnp.sum(noise**2) - jnp.sum(w**2)) + layer.log_det_q(Kuu)

    Kuf, Kff = prior.Kuf(layer.features, X), prior.Kff(X)
    K, n = Kuf.shape[0], Kuf.shape[2] * Kuf.shape[3]
    A = batched("root_solve", Kuu, Kuf.reshape(K, M, n))

    def conditional(A: Array, Kff: Array) -> Array:  # jitter relative to the prior variances: given u, these may vanish
        eye = jnp.eye(M, dtype=A.dtype)
        return Dense(jnp.block([[eye, A], [A.T, Kff]]), layer.jitter).root[M:]

    rows = jnp.broadcast_to(jax.vmap(conditional)(A, Kff.reshape(K, n, n)), (L, n, M + n))
    both = jnp.concatenate([w, standard_normal(key_f, (L, n), m.dtype)], axis=1)
    sites = jnp.einsum("lnm,lm->nl", rows, both).reshape(X.shape[0], -1, L)
    return prior.mean(X) + mix_mean(prior, jnp.swapaxes(sites, 1, 2)), log_ratio


def draw_function(layer: "SparseGP", key: Array, num: int, dim: int) -> Callable[..., Float[Array, "n P"]]:
    """One function drawn from q(f), by pathwise conditioning (Matheron's rule).

        f(·) = μ(·) + g(·) + k_·u Kuu⁻¹ (v − apply(g)),     g ~ GP(0, k),  v ~ q(v)

    g is drawn by `num` random features of the kernel. Over draws, mean and covariance of f are those of q(f).
    """
    prior, features, L = layer.prior, layer.features, layer.prior.num_latents
    key_g, key_u = jax.random.split(key)
    g, sites = prior.draw_latents(key_g, num, dim)
    Kuu = layer.Kuu()
    m, root = layer.whitened(Kuu)
    noise = standard_normal(key_u, m.shape, m.dtype)
    w = m + qu.root_matmul(root, noise)
    own = apply_features(features, prior.kernels, g, L)  # [L, M]
    whitened_own = batched("root_solve", qu.repeat(Kuu, L), own[..., None])[..., 0]
    weights = batched("root_solve_transpose", qu.repeat(Kuu, L), (w - whitened_own)[..., None])[..., 0]

    def f(X: Float[Array, "n D"], x: Array | None = None) -> Float[Array, "n P"]:
        Kuf = prior.Kuf(features, X)
        update = jnp.einsum("lm,lmnj->nlj", weights, jnp.broadcast_to(Kuf, (L, *Kuf.shape[1:])))
        return prior.mean(X) + mix_mean(prior, sites(X) + update)

    return f
