"""The collapsed bound of Gaussian likelihoods (Titsias 2009): q(u) at its optimum, in closed form.

For y_np = f_p(x_n) + ε, with precisions τ_np (0 for a missing label) and residuals r = y − μ, the labels enter
through two statistics of the whitened latents,

    Λ = I + Σ_np τ_np b_np b_npᵀ,      c = Σ_np τ_np r_np b_np,      b_np = Luu⁻¹ Cov(u, f_p(x_n)),

and the optimal q(w) = N(Λ⁻¹c, Λ⁻¹) gives the bound

    ½ ( Σ log τ/2π − Σ τ r² + cᵀΛ⁻¹c − log |Λ| − Σ τ (k_np − b_npᵀb_np) ).

Where outputs mix latents, Λ couples them: it is [L·M, L·M], else one [M, M] for each latent.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .checks import check_shapes
from .covariance import Dense, batched
from .data import Data, as_data
from .layers import qu
from .layers.sparse_gp import Cache, SparseGP
from .likelihoods.base import broadcast
from .likelihoods.gaussian import Gaussian
from .model import Model
from .objectives import labels
from .parameters import dtype_of
from .priors.base import AbstractPrior, by_site, mix_variance, weights

BLOCK = 1024


class _Statistics(NamedTuple):
    """Sums over the data, in u coordinates: Ψ [G, M', M'] and b [G, M'], for G groups of coupled latents."""

    Psi: Array
    b: Array
    constant: Array
    trace: Array


def collapsed_elbo(model: Model, data: Any) -> Float[Array, ""]:
    """Titsias' bound: the `elbo` of a one-layer model with a Gaussian likelihood at its optimal q(u).

    O(N M²) time and O(M²) memory beyond the data: the sums run over blocks, recomputed in the reverse pass.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> bool(ig.collapsed_elbo(model, data) >= ig.elbo(model, data))
    True
    """
    layer, data = _checked(model, data)
    stats, Lambda, c, _ = _optimum(model, layer, data)
    quadratic = jnp.sum(batched("root_solve", Lambda, c[..., None]) ** 2)
    explained = jnp.sum(jnp.trace(Lambda.matrix, axis1=1, axis2=2)) - c.size
    return 0.5 * (stats.constant + quadratic - jnp.sum(batched("logdet", Lambda)) - stats.trace + explained)


def collapse(model: Model, data: Any) -> Model:
    """The same model with the optimal q(u) for its Gaussian likelihood.

    Where outputs mix latents, the optimum couples them and the root becomes [L·M, L·M].

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> optimal = ig.collapse(model, data)
    >>> abs(float(ig.elbo(optimal, data) - ig.collapsed_elbo(model, data))) < 1e-9
    True
    """
    layer, data = _checked(model, data)
    _, Lambda, c, _ = _optimum(model, layer, data)
    L, M = layer.prior.num_latents, layer.num_features
    m = batched("solve", Lambda, c[..., None])[..., 0].reshape(L, M)
    root = jax.vmap(inverse_root)(Lambda.matrix)
    root = root if root.shape[0] == L else root[0]
    optimal = SparseGP(layer.prior, layer.features, m, root, "w", layer.jitter).with_coordinates(layer.coordinates)
    return eqx.tree_at(lambda m: m.layers, model, (optimal,))


def inverse_root(Lambda: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower-triangular R with R Rᵀ = Λ⁻¹, from the Cholesky factor of Λ with rows and columns reversed.

    >>> R = inverse_root(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> bool(jnp.allclose(R @ R.T, jnp.linalg.inv(jnp.array([[2.0, 1.0], [1.0, 2.0]]))))
    True
    """
    return Dense(Lambda[::-1, ::-1]).inverse_root[::-1, ::-1].T


def log_evidence(model: Model, data: Any) -> Float[Array, ""]:
    """The exact log marginal likelihood of the prior under the model's Gaussian likelihood: O((NP)³), no features.

    An objective as any other: `ig.fit(model, data, objective=ig.log_evidence)` trains an exact GP.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> bool(ig.log_evidence(model, data) >= ig.collapsed_elbo(model, data))
    True
    """
    layer, data = _checked(model, data)
    x, y, mask, noise = _observed(model, data)
    return layer.prior.condition(x, jnp.where(mask, y, jnp.nan), noise).log_marginal_likelihood


def _checked(model: Model, data: Any) -> tuple[SparseGP, Data]:
    layer = model.layers[-1]
    if len(model.layers) != 1 or not isinstance(layer, SparseGP) or not isinstance(model.likelihood, Gaussian):
        kinds = ", ".join(type(part).__name__ for part in (*model.layers, model.likelihood))
        raise TypeError(
            f"the optimal q(u) has a closed form for one SparseGP layer with a Gaussian likelihood, not for ({kinds}); "
            "use ig.elbo."
        )
    data = as_data(data, dtype_of(model))
    check_shapes(model, data)
    return layer, data


def _observed(model: Model, data: Data) -> tuple[Array, Array, Array, Array]:
    """x, y, mask and the noise variances [N, P] of data that were checked."""
    assert isinstance(model.likelihood, Gaussian) and data.x is not None
    y, mask = labels(data)
    return data.x, y, mask, broadcast(model.likelihood.variance, y.shape, data.index)


def _optimum(model: Model, layer: SparseGP, data: Data) -> tuple[_Statistics, Dense, Array, Cache]:
    """The statistics, Λ (stacked [G, M', M']), c [G, M'], and the factorised Kuu."""
    cache = layer.factors()
    L = layer.prior.num_latents
    # In float64 the sums of Kuf Kfu are whitened at the end (one product a block); with little or no jitter, or in
    # float32, that loses too many digits, and each block is whitened first.
    late = dtype_of(model) == jnp.float64 and layer.jitter >= 1e-7
    Kuu = qu.repeat(cache.Kuu, L)
    stats = _statistics(model, layer, data, None if late else cache.Kuu)
    Psi, b = stats.Psi, stats.b
    if late:
        G = Psi.shape[0]
        n = L // G
        M = Psi.shape[1] // n

        def whiten(B):  # [G, n·M, k] -> Luu⁻¹ of each latent's rows
            return batched("root_solve", Kuu, B.reshape(L, M, -1)).reshape(B.shape)

        Psi = whiten(jnp.swapaxes(whiten(Psi), 1, 2))
        b = whiten(b[..., None])[..., 0]
    eye = jnp.eye(Psi.shape[1], dtype=Psi.dtype)[None]
    Lambda = jax.vmap(Dense)(0.5 * (Psi + jnp.swapaxes(Psi, 1, 2)) + eye)
    return stats, Lambda, b, cache


def _statistics(model: Model, layer: SparseGP, data: Data, Kuu: Any) -> _Statistics:
    """Sum over blocks of rows; the reverse pass recomputes each block instead of storing it."""
    N, size = len(data), min(BLOCK, len(data))
    blocks = -(-N // size)
    # The last block is filled up with copies of the last row (whatever a kernel may do at 0), all masked.
    padded = jax.tree.map(lambda a: jnp.pad(a, [(0, blocks * size - N)] + [(0, 0)] * (a.ndim - 1), mode="edge"), data)
    seen = jnp.arange(blocks * size)[:, None] < N
    padded = eqx.tree_at(lambda d: d.mask, padded, padded.mask & seen)
    padded = jax.tree.map(lambda a: a.reshape(blocks, size, *a.shape[1:]), padded)

    @jax.checkpoint
    def add(total, block):
        return jax.tree.map(jnp.add, total, _block_statistics(model, layer, block, Kuu)), None

    first = _block_statistics(model, layer, jax.tree.map(lambda a: a[0], padded), Kuu)
    if blocks == 1:
        return first
    total, _ = jax.lax.scan(add, first, jax.tree.map(lambda a: a[1:], padded))
    return total


def _at_sites(prior: AbstractPrior, t: Float[Array, "n P"], V: Float[Array, "P c"]) -> Float[Array, "n J c"]:
    """Σ_q t[n, (q, j)] V[(q, j), c], over the outputs that look at a site."""
    if prior.num_sites == 1:
        return (t @ V)[:, None]
    return jnp.einsum("nqj,qjc->njc", t.reshape(t.shape[0], -1, prior.num_sites), by_site(prior, V))


@jax.custom_jvp
def _weighted_gram(B: Float[Array, "K M n"], tau: Float[Array, "K n"]) -> Float[Array, "K M M"]:
    """B diag(τ) Bᵀ. Its derivative is right up to an antisymmetric part, which `_optimum` takes out: one product in the
    reverse pass instead of two."""
    return (B * tau[:, None, :]) @ jnp.swapaxes(B, 1, 2)


@_weighted_gram.defjvp
def _weighted_gram_jvp(primals, tangents):
    (B, tau), (dB, dtau) = primals, tangents
    left = 2.0 * dB * tau[:, None, :] + B * dtau[:, None, :]
    return _weighted_gram(B, tau), left @ jnp.swapaxes(B, 1, 2)


def _uncoupled(Kuf: Float[Array, "K M n"], tau: Float[Array, "n L"]) -> Float[Array, "L M M"]:
    """Σ_n τ_nl Kuf[l, :, n] Kuf[l, :, n]ᵀ for each latent; once for all of them if kernel and precisions are shared."""
    L = tau.shape[1]

    def each():
        return _weighted_gram(jnp.broadcast_to(Kuf, (L, *Kuf.shape[1:])), tau.T)

    def once():
        Psi = _weighted_gram(Kuf, tau[:, :1].T)
        return jnp.broadcast_to(Psi, (L, *Psi.shape[1:]))

    if Kuf.shape[0] == L:
        return each()
    return jax.lax.cond(jnp.all(tau == tau[:, :1]), once, each)


def _coupled(Kuf: Float[Array, "K M i"], omega: Float[Array, "i L L"]) -> Float[Array, "1 LM LM"]:
    """Σ_i ω_i[l, k] Kuf[l, :, i] Kuf[k, :, i]ᵀ: one batch of L products for each latent, never all at once."""
    L, M = omega.shape[1], Kuf.shape[1]
    transposed = jnp.swapaxes(Kuf, 1, 2)

    def rows(item):
        left, weight = item  # [M, i], [L, i]
        return (left[None] * weight[:, None, :]) @ transposed  # [L, M, M]

    left = jnp.broadcast_to(Kuf, (L, *Kuf.shape[1:]))
    Psi = jax.lax.map(rows, (left, jnp.transpose(omega, (1, 2, 0))))  # [l, k, M, M]
    return jnp.swapaxes(Psi, 1, 2).reshape(1, L * M, L * M)


def _block_statistics(model: Model, layer: SparseGP, data: Data, Kuu: Any) -> _Statistics:
    prior = layer.prior
    L, J = prior.num_latents, prior.num_sites
    x, y, mask, noise = _observed(model, data)
    tau = jnp.where(mask, 1.0 / noise, 0.0)
    r = jnp.where(mask, y - prior.mean(x), 0.0)
    n = r.shape[0]
    Kuf = prior.Kuf(layer.features, x)
    Kuf = Kuf.reshape(*Kuf.shape[:2], n * J)
    if Kuu is not None:
        Kuf = batched("root_solve", Kuu, Kuf)
    W = weights(prior)
    if W is None:  # each latent is an output: no coupling
        Psi = _uncoupled(Kuf, tau)
        b = (tau * r).T @ Kuf[0].T if Kuf.shape[0] == 1 else jnp.einsum("lmn,ln->lm", Kuf, (tau * r).T)
    else:
        squares = (W[:, :, None] * W[:, None, :]).reshape(-1, L * L)
        omega = _at_sites(prior, tau, squares).reshape(n * J, L, L)
        rho = _at_sites(prior, tau * r, W).reshape(n * J, L)
        Psi = _coupled(Kuf, omega)
        b = (rho.T @ Kuf[0].T if Kuf.shape[0] == 1 else jnp.einsum("lmi,il->lm", Kuf, rho)).reshape(1, -1)
    Kff = prior.Kff_diag(x)
    variance = mix_variance(prior, jnp.broadcast_to(Kff, (L, n, J)))
    log_tau = jnp.where(mask, -jnp.log(2.0 * np.pi * noise), 0.0)
    return _Statistics(Psi, b, jnp.sum(log_tau) - jnp.sum(tau * r**2), jnp.sum(tau * variance))
