"""The sums over the data that the collapsed bound needs, in O(M²) memory beyond the data.

For y_np = f_p(x_n) + ε, with residuals r = y − μ and τ_np the precision times the weight of the row (0 for a missing
label), these are

    Ψ = Σ_np τ_np b_np b_npᵀ,    c = Σ_np τ_np r_np b_np,    b_np = Luu⁻¹ Cov(u, f_p(x_n)),

and three numbers. `whitened_first` and `whitened_last` compute the same sums in two orders.

Symmetry saves work. The derivative dΨ = dB Bᵀ + B dBᵀ takes two products in the reverse pass, while 2 dB Bᵀ takes only
one. The latter is not symmetric, but its symmetric part is dΨ, and it is enough to symmetrise once, after all sums. So
the derivatives of the private functions of this module are correct only up to an antisymmetric part. Both public
functions return through `_symmetrised`, which removes that part, so that callers need not know about it.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from inducing._xla.matmul import products, symmetric_product, times_transpose
from inducing.bounds.conjugate import Conjugate
from inducing.bounds.terms import counts, inputs, labels
from inducing.data import Data
from inducing.layers import qu
from inducing.layers.sparse_gp import SparseGP
from inducing.linalg import AbstractCovariance, Dense, batched, root_derivative
from inducing.numerics.special import quotient
from inducing.priors.base import AbstractPrior, by_site, mix_variance, weights

# A block has about ENTRIES covariances, but at least FEWEST sites and at most MOST rows.
FEWEST, MOST, ENTRIES = 1024, 4096, 2**19


class Statistics(NamedTuple):
    """Sums over the data, for G groups of coupled latents: G = L, or 1 where outputs mix latents.

    Attributes:
        Psi: Ψ [G, M', M'], symmetric, and so are its derivatives.
        c: c [G, M'].
        log_tau: Σ −weight log 2πσ².
        squares: Σ τ r².
        trace: Σ τ k(x_n, x_n).
    """

    Psi: Float[Array, "G M M"]
    c: Float[Array, "G M"]
    log_tau: Float[Array, ""]
    squares: Float[Array, ""]
    trace: Float[Array, ""]


def whitened_last(conjugate: Conjugate, data: Data, Kuu: AbstractCovariance) -> Statistics:
    """The sums of Kuf Kfu, whitened at the end. This saves two large products, but rounding grows with cond(Kuu)."""
    stats = _statistics(conjugate, data, None)
    L, (G, rows, _) = conjugate.layer.prior.num_latents, stats.Psi.shape
    M = rows * G // L
    whole = qu.repeat(Kuu, L)

    def whiten(B):  # [G, n·M, k] -> Luu⁻¹ of each latent's rows
        return batched("root_solve", whole, B.reshape(L, M, -1)).reshape(B.shape)

    Psi = whiten(jnp.swapaxes(whiten(stats.Psi), 1, 2))
    return _symmetrised(stats._replace(Psi=Psi, c=whiten(stats.c[..., None])[..., 0]))


def whitened_first(conjugate: Conjugate, data: Data, Kuu: AbstractCovariance) -> Statistics:
    """The sums of A Aᵀ, with A = Luu⁻¹ Kuf whitened block by block. Rounding errors grow only with √cond(Kuu).

    The derivative with respect to a dense Kuu is taken once, after all sums.
    """
    if isinstance(Kuu, Dense):
        stats = _statistics(conjugate, data, jax.tree.map(jax.lax.stop_gradient, Kuu))
        Psi, c = _through_root(Kuu.matrix, Kuu.inverse_root, stats.Psi, stats.c)
        stats = stats._replace(Psi=Psi, c=c)
    else:
        stats = _statistics(conjugate, data, Kuu)
    return _symmetrised(stats)


def _symmetrised(stats: Statistics) -> Statistics:
    """The sums with a Ψ whose derivative is symmetric."""
    return stats._replace(Psi=0.5 * (stats.Psi + jnp.swapaxes(stats.Psi, 1, 2)))


@jax.custom_jvp
def _through_root(K: Array, inverse_root: Array, Psi: Array, c: Array) -> tuple[Array, Array]:
    """Ψ and c, which were computed with a fixed Luu⁻¹. The derivative adds the terms that depend on Luu⁻¹.

    dLuu⁻¹ = E Luu⁻¹ with E = −Φ(Luu⁻¹ dK Luu⁻ᵀ), so that dΨ = … + E Ψ + Ψ Eᵀ (here 2 E Ψ, to be symmetrised) and
    dc = … + E c.
    """
    return Psi, c


@_through_root.defjvp
def _through_root_jvp(primals, tangents):
    _, inverse_root, Psi, c = primals
    dK, _, dPsi, dc = tangents
    M = inverse_root.shape[1]
    E = -root_derivative(inverse_root, dK)
    E = jnp.broadcast_to(E, (c.size // M, M, M))
    own = (2.0 * E @ Psi.reshape(len(E), M, -1)).reshape(Psi.shape)
    return (Psi, c), (dPsi + own, dc + (E @ c.reshape(len(E), M, 1)).reshape(c.shape))


def _statistics(conjugate: Conjugate, data: Data, Kuu: Any) -> Statistics:
    """The sums over all blocks, of Kuf as it is (Kuu is None) or whitened.

    If all labels share one noise variance, it is taken out of the sums, which then need no derivative with respect to
    τ. With a dense Kuu, labels and functions are also expressed in a fixed unit, √noise. Otherwise, for labels of size
    1e-12, the reverse pass would multiply 1/noise by Luu⁻¹, and the product would overflow in float32.
    """
    noise = conjugate.likelihood.shared_noise
    if noise is None:
        return _sums(conjugate, data, Kuu, None)
    unit = jnp.ones_like(noise)
    if isinstance(Kuu, Dense):
        unit = jax.lax.stop_gradient(jnp.sqrt(noise))
        Kuu = eqx.tree_at(lambda K: K.inverse_root, Kuu, Kuu.inverse_root / unit)
    Psi, c, log_tau, squares, trace = _sums(conjugate, data, Kuu, unit)
    log_tau = log_tau - jnp.sum(counts(data)) * jnp.log(noise)
    scaled = noise / unit**2
    return Statistics(Psi / scaled, c / scaled, log_tau, quotient(squares, noise), quotient(trace, noise))


def _sums(conjugate: Conjugate, data: Data, Kuu: Any, unit: Array | None) -> Statistics:
    """The sums over all blocks. If there is a unit, the noise variance is taken to be 1, and c is in this unit."""
    N, blocks = len(data), num_blocks(conjugate.layer, len(data))
    size = -(-N // blocks)
    # The last block is filled with copies of the last row, all masked. (A kernel may not be finite at 0.)
    padded = jax.tree.map(lambda a: jnp.pad(a, [(0, blocks * size - N)] + [(0, 0)] * (a.ndim - 1), mode="edge"), data)
    seen = jnp.arange(blocks * size)[:, None] < N
    padded = eqx.tree_at(lambda d: d.mask, padded, padded.mask & seen)
    padded = jax.tree.map(lambda a: a.reshape(blocks, size, *a.shape[1:]), padded)

    of_block = partial(_block_statistics, conjugate, Kuu=Kuu, unit=unit)

    @jax.checkpoint  # the reverse pass recomputes each block instead of storing it
    def add(total, block):
        return jax.tree.map(jnp.add, total, of_block(block)), None

    one = jax.tree.map(lambda a: a[0], padded)
    if blocks == 1:
        return of_block(one)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(of_block, one))
    return jax.lax.scan(add, zero, padded)[0]


def num_blocks(layer: SparseGP, N: int) -> int:
    """The number of blocks into which N rows are cut."""
    sites = layer.prior.num_sites
    most = ENTRIES // (layer.num_features * layer.prior.num_latents * sites)
    return -(-N // min(max(most, FEWEST // sites, 1), MOST))


def _block_statistics(conjugate: Conjugate, data: Data, Kuu: Any, unit: Array | None) -> Statistics:
    prior, features = conjugate.layer.prior, conjugate.layer.features
    L, J = prior.num_latents, prior.num_sites
    x, (y, mask) = inputs(data), labels(data)
    noise = conjugate.noise(data) if unit is None else jnp.ones_like(y)
    count = counts(data)
    tau = jnp.where(mask, quotient(count, noise), 0.0)
    r = jnp.where(mask, y - prior.mean(x), 0.0)
    weighted = tau * r if unit is None else tau * (r / unit)
    n = r.shape[0]
    Kuf = prior.Kuf(features, x)
    Kuf = Kuf.reshape(*Kuf.shape[:2], n * J)
    W = weights(prior)
    if W is None:  # each output looks at one latent: no coupling
        own, rho = (jnp.swapaxes(t.reshape(n, L, J), 1, 2).reshape(n * J, L) for t in (tau, weighted))
        Psi = _uncoupled(Kuf, own, Kuu)
    else:
        squares = (W[:, :, None] * W[:, None, :]).reshape(-1, L * L)
        omega = _at_sites(prior, tau, squares).reshape(n * J, L, L)
        rho = _at_sites(prior, weighted, W).reshape(n * J, L)
        Psi = _coupled(Kuf if Kuu is None else batched("root_solve", Kuu, Kuf), omega)
    c = (Kuf[0] @ rho).T if Kuf.shape[0] == 1 else jnp.einsum("lmi,il->lm", Kuf, rho)
    if Kuu is not None:
        c = batched("root_solve", qu.repeat(Kuu, L), c[..., None])[..., 0]
    c = c.reshape(Psi.shape[:2])
    variance = mix_variance(prior, prior.Kff_diag(x))
    log_tau = jnp.where(mask, -count * jnp.log(2.0 * np.pi * noise), 0.0)
    return Statistics(Psi, c, jnp.sum(log_tau), jnp.sum(tau * r**2), jnp.sum(tau * variance))


def _at_sites(prior: AbstractPrior, t: Float[Array, "n P"], V: Float[Array, "P c"]) -> Float[Array, "n J c"]:
    """Σ_q t[n, (q, j)] V[(q, j), c], over the outputs that look at a site."""
    if prior.num_sites == 1:
        return (t @ V)[:, None]
    return jnp.einsum("nqj,qjc->njc", t.reshape(t.shape[0], -1, prior.num_sites), by_site(prior, V))


def _uncoupled(Kuf: Float[Array, "K M n"], tau: Float[Array, "n L"], Kuu: Any) -> Float[Array, "L M M"]:
    """Σ_n τ_nl Kuf[l, :, n] Kuf[l, :, n]ᵀ for each latent, with Kuf whitened first if Kuu is given.

    If all latents share kernel and precisions, the sum is computed once.
    """
    L = tau.shape[1]

    def gram(Kuf, tau):
        if isinstance(Kuu, Dense):
            return _whitened_gram(jnp.broadcast_to(Kuu.inverse_root, (len(Kuf), *Kuu.inverse_root.shape[1:])), Kuf, tau)
        return _weighted_gram(Kuf if Kuu is None else batched("root_solve", qu.repeat(Kuu, len(Kuf)), Kuf), tau)

    def each():
        return gram(jnp.broadcast_to(Kuf, (L, *Kuf.shape[1:])), tau.T)

    def once():
        Psi = gram(Kuf, tau[:, :1].T)
        return jnp.broadcast_to(Psi, (L, *Psi.shape[1:]))

    if Kuf.shape[0] == L:
        return each()
    return jax.lax.cond(jnp.all(tau == tau[:, :1]), once, each)


def _coupled(Kuf: Float[Array, "K M i"], omega: Float[Array, "i L L"]) -> Float[Array, "1 LM LM"]:
    """Σ_i ω_i[l, k] Kuf[l, :, i] Kuf[k, :, i]ᵀ, by one batch of L products for each latent to save memory."""
    L, M = omega.shape[1], Kuf.shape[1]
    own = jnp.broadcast_to(Kuf, (L, *Kuf.shape[1:]))

    def rows(item):
        left, weight = item  # [M, i], [L, i]
        return times_transpose(left[None] * weight[:, None, :], own)  # [L, M, M]

    Psi = jax.lax.map(rows, (own, jnp.transpose(omega, (1, 2, 0))))  # [l, k, M, M]
    return jnp.swapaxes(Psi, 1, 2).reshape(1, L * M, L * M)


@jax.custom_jvp
def _weighted_gram(B: Float[Array, "K M n"], tau: Float[Array, "K n"]) -> Float[Array, "K M M"]:
    """B diag(τ) Bᵀ, with the derivative (2 dB diag(τ) + B diag(dτ)) Bᵀ, to be symmetrised."""
    return symmetric_product(B * tau[:, None, :], B)


@partial(_weighted_gram.defjvp, symbolic_zeros=True)
def _weighted_gram_jvp(primals, tangents):
    (B, tau), (dB, dtau) = primals, tangents
    return _weighted_gram(B, tau), times_transpose(_moved(B, tau, dB, dtau), B)


@jax.custom_jvp
def _whitened_gram(
    inverse_root: Float[Array, "K M M"], Kuf: Float[Array, "K M n"], tau: Float[Array, "K n"]
) -> Float[Array, "K M M"]:
    """A diag(τ) Aᵀ, A = Luu⁻¹ Kuf, for a fixed Luu⁻¹.

    Its derivative is Luu⁻¹ (2 dKuf diag(τ) + Kuf diag(dτ)) Aᵀ, to be symmetrised.
    """
    return _weighted_gram(products(inverse_root, Kuf, "lower"), tau)


@partial(_whitened_gram.defjvp, symbolic_zeros=True)
def _whitened_gram_jvp(primals, tangents):
    (inverse_root, Kuf, tau), (_, dKuf, dtau) = primals, tangents
    A = products(inverse_root, Kuf, "lower")
    return _weighted_gram(A, tau), inverse_root @ times_transpose(_moved(Kuf, tau, dKuf, dtau), A)


def _moved(B: Array, tau: Array, dB: Any, dtau: Any) -> Array:
    """2 dB diag(τ) + B diag(dτ), where dB or dτ may be zero."""
    if isinstance(dtau, SymbolicZero):
        return 2.0 * dB * tau[:, None, :]
    if isinstance(dB, SymbolicZero):
        return B * dtau[:, None, :]
    return 2.0 * dB * tau[:, None, :] + B * dtau[:, None, :]
