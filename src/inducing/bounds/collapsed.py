"""The collapsed bound of Gaussian likelihoods (Titsias 2009): q(u) at its optimum, in closed form.

For y_np = f_p(x_n) + ε, with precisions τ_np (0 for a missing label) and residuals r = y − μ, the labels enter
through two statistics of the whitened latents,

    Λ = I + Σ_np τ_np b_np b_npᵀ,      c = Σ_np τ_np r_np b_np,      b_np = Luu⁻¹ Cov(u, f_p(x_n)),

and the optimal q(w) = N(Λ⁻¹c, Λ⁻¹) gives the bound

    ½ ( Σ log τ/2π − Σ τ r² + cᵀΛ⁻¹c − log |Λ| − Σ τ (k_np − b_npᵀb_np) ).

Where outputs mix latents, Λ couples them: it is [L·M, L·M], else one [M, M] for each latent.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from inducing._xla.matmul import products, symmetric_product, times_transpose
from inducing.bounds.conjugate import required_layer, with_layer
from inducing.bounds.objective import AbstractBound, Optimum, checked
from inducing.bounds.terms import labels
from inducing.data import Data
from inducing.layers import qu
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import PerDatum
from inducing.likelihoods.gaussian import Gaussian
from inducing.linalg import AbstractCovariance, Dense, batched, root_derivative
from inducing.model import Model
from inducing.parameters import dtype_of
from inducing.priors.base import AbstractPrior, by_site, mix_variance, weights

FEWEST, MOST, ENTRIES = 1024, 4096, 2**19  # sites of a block, its rows, and covariances that make it large enough
ROUNDING = 0.03  # by how much rounding may falsify the bound in its quick order, or the share of each label in it


class _Statistics(NamedTuple):
    """Sums over the data: Ψ [G, M', M'] and b [G, M'] for G groups of coupled latents, of log τ/2π, of τ r², of τ k."""

    Psi: Array
    b: Array
    log_tau: Array
    squares: Array
    trace: Array


_Order = Callable[[Model, SparseGP, Data, AbstractCovariance], _Statistics]  # of summing and whitening


class _CollapsedElbo(AbstractBound):
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, optimal_q, collapsed=True)


@_CollapsedElbo
def collapsed_elbo(model: Model, data: Any) -> Float[Array, ""]:
    """Titsias' bound: the `elbo` of a one-layer model with a Gaussian likelihood at its optimal q(u).

        log N(y | μ, Q + Σ) − ½ tr Σ⁻¹ (Kff − Q),    Q = Kfu Kuu⁻¹ Kuf,    Σ the noise

    O(N M²) time and O(M²) memory beyond the data: the sums run over blocks, recomputed in the reverse pass.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> bool(ig.collapsed_elbo(model, data) >= ig.elbo(model, data))
    True
    """
    return _bound(model, data, _whitened_either)


@_CollapsedElbo
def quick_bound(model: Model, data: Any) -> Float[Array, ""]:
    """`collapsed_elbo` in its quicker order of sums alone, which takes a third less to compile; NaN where rounding
    would falsify that.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> abs(float(quick_bound(model, data) - careful_bound(model, data))) < 1e-9
    True
    """
    return _bound(model, data, _whitened_last_or_nan)


@_CollapsedElbo
def careful_bound(model: Model, data: Any) -> Float[Array, ""]:
    """`collapsed_elbo` in its more accurate order of sums alone; NaN where rounding would make up even that.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> abs(float(careful_bound(model, data) - ig.collapsed_elbo(model, data))) < 1e-9
    True
    """
    return _bound(model, data, _whitened_first_or_nan)


def orders_of_sums(model: Model, data: Data) -> tuple[Callable, ...]:
    """What to climb: `quick_bound` as long as it is a number, then `careful_bound`; the latter alone where it costs no
    more, since data of one block are few.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> len(orders_of_sums(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ig.Data([0.0, 1.0], [0.5, 0.2])))
    1
    """
    layer = required_layer(model)
    if _num_blocks(layer, len(data)) == 1 or not _has_two_orders(model, jax.eval_shape(layer.Kuu)):
        return (careful_bound,)
    return quick_bound, careful_bound


def bound_of_sample(model: Model, data: Any, bound: Any, num_data: int) -> Float[Array, ""]:
    """`bound` (one of the above) of `num_data` rows, of which `data` are a random sample: each row counts num_data/n
    times. About right for many rows, and not on average: the bound is no sum over rows.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    >>> twice = ig.collapsed_elbo(model, ([0.0, 1.0, 0.0, 1.0], [0.5, 0.2, 0.5, 0.2]))
    >>> abs(float(bound_of_sample(model, ([0.0, 1.0], [0.5, 0.2]), careful_bound, 4) - twice)) < 1e-9
    True
    """
    data = checked(model, data)
    times = num_data / len(data)
    _, _, mask, noise = _observed(model, data)
    log_tau = jnp.where(mask, -jnp.log(2.0 * np.pi * noise), 0.0)
    # All that a Gaussian likelihood holds is its noise. Divided by `times` it counts each row so often in all terms but
    # that of log τ, which `bound` then counts once, of times·τ.
    missing = 0.5 * jnp.sum((times - 1.0) * log_tau - jnp.where(mask, np.log(times), 0.0))
    sharper = jax.tree.map(lambda v: v / times if eqx.is_inexact_array(v) else v, model.likelihood)
    return bound.evaluate(eqx.tree_at(lambda m: m.likelihood, model, sharper), data) + missing


def collapse(model: Model, data: Any) -> Model:
    """The same model with the optimal q(u) for its Gaussian likelihood.

        q(w) = N(S A Σ⁻¹ (y − μ), S),    S = (I + A Σ⁻¹ Aᵀ)⁻¹,    A = Luu⁻¹ Kuf,    Σ the noise, w = Luu⁻¹ (u − μ_u)

    Where outputs mix latents, the optimum couples them and the root becomes [L·M, L·M].

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> optimal = ig.collapse(model, data)
    >>> abs(float(ig.elbo(optimal, data) - ig.collapsed_elbo(model, data))) < 1e-9
    True
    """
    return optimal_q(model, checked(model, data))


def optimal_q(model: Model, data: Data) -> Model:
    """`collapse` for a model and data that have been checked."""
    layer = required_layer(model)
    stats, Lambda = _optimum(model, layer, data, _whitened_first)
    L, M = layer.prior.num_latents, layer.num_features
    m = batched("solve", Lambda, stats.b[..., None])[..., 0].reshape(L, M)
    root = jax.vmap(inverse_root)(Lambda.matrix)
    root = root if root.shape[0] == L else root[0]
    optimal = SparseGP(layer.prior, layer.features, m, root, "w", layer.jitter).with_coordinates(layer.coordinates)
    return with_layer(model, optimal)


def inverse_root(Lambda: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower-triangular R with R Rᵀ = Λ⁻¹, from the Cholesky factor of Λ with rows and columns reversed.

    >>> R = inverse_root(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> bool(jnp.allclose(R @ R.T, jnp.linalg.inv(jnp.array([[2.0, 1.0], [1.0, 2.0]]))))
    True
    """
    return Dense(Lambda[::-1, ::-1]).inverse_root[::-1, ::-1].T


class _LogEvidence(AbstractBound):
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, optimal_q)


@_LogEvidence
def log_evidence(model: Model, data: Any) -> Float[Array, ""]:
    """The exact log marginal likelihood of the prior under the model's Gaussian likelihood: O((NP)³), no features.

        log p(y) = log N(y | μ, Kff + Σ),    Σ the noise

    An objective as any other: `ig.fit(model, data, objective=ig.log_evidence)` trains an exact GP.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> bool(ig.log_evidence(model, data) >= ig.collapsed_elbo(model, data))
    True
    """
    layer = required_layer(model)
    x, y, mask, noise = _observed(model, data)
    return layer.prior.condition(x, jnp.where(mask, y, jnp.nan), noise).log_marginal_likelihood


def _observed(model: Model, data: Data) -> tuple[Array, Array, Array, Array]:
    """x, y, mask and the noise variances [N, P] of data that were checked."""
    y, mask = labels(data)
    noise = model.likelihood.gaussian_noise(y.shape, data.index)
    assert noise is not None and data.x is not None
    return data.x, y, mask, noise


def _bound(model: Model, data: Data, whitened: _Order) -> Float[Array, ""]:
    layer = required_layer(model)
    stats, Lambda = _optimum(model, layer, data, whitened)
    quadratic = jnp.sum(batched("root_solve", Lambda, stats.b[..., None]) ** 2)
    explained = jnp.sum(batched("diagonal", Lambda) - 1.0)
    constant = stats.log_tau - stats.squares
    return 0.5 * (constant + quadratic - jnp.sum(batched("logdet", Lambda)) - stats.trace + explained)


def _optimum(model: Model, layer: SparseGP, data: Data, whitened: _Order) -> tuple[_Statistics, Dense]:
    """The statistics in w coordinates, where b is c, and Λ (stacked [G, M', M'])."""
    stats = whitened(model, layer, data, layer.factors().Kuu)
    eye = jnp.eye(stats.Psi.shape[1], dtype=stats.Psi.dtype)[None]
    Lambda = jax.vmap(Dense)(0.5 * (stats.Psi + jnp.swapaxes(stats.Psi, 1, 2)) + eye)
    return stats, Lambda


def _whitened_either(model: Model, layer: SparseGP, data: Data, Kuu: AbstractCovariance) -> _Statistics:
    if not _has_two_orders(model, Kuu):
        return _whitened_first(model, layer, data, Kuu)
    orders = (partial(order, model, layer, data, Kuu) for order in (_whitened_last, _whitened_first))
    return jax.lax.cond(_rounding(model, layer, data, Kuu) <= ROUNDING, *orders)


def _whitened_last_or_nan(model: Model, layer: SparseGP, data: Data, Kuu: AbstractCovariance) -> _Statistics:
    if not _has_two_orders(model, Kuu):
        return _whitened_first(model, layer, data, Kuu)
    stats = _whitened_last(model, layer, data, Kuu)
    right = _rounding(*jax.lax.stop_gradient((model, layer, data, Kuu))) <= ROUNDING
    return stats._replace(squares=jnp.where(right, stats.squares, jnp.nan))


def _whitened_first_or_nan(model: Model, layer: SparseGP, data: Data, Kuu: AbstractCovariance) -> _Statistics:
    """The bound is a small difference of Σ τ r² and Σ τ k from what features explain of them, wrong by ε |Luu⁻¹|."""
    stats = _whitened_first(model, layer, data, Kuu)
    if not isinstance(Kuu, Dense):
        return stats
    wrong = jnp.finfo(stats.squares.dtype).eps * jnp.sqrt(_condition(Kuu)) * (stats.squares + stats.trace)
    right = wrong <= allowed_rounding(wrong.dtype) * jnp.sum(labels(data)[1], dtype=wrong.dtype)
    return stats._replace(squares=jnp.where(right, stats.squares, jnp.nan))


def allowed_rounding(dtype: Any) -> float:
    """By how many nats rounding may falsify the bound, for each label. In float32 estimates of that are ten times the
    errors seen, where it matters, and less is asked for.

    >>> allowed_rounding(jnp.float64)
    0.03
    """
    return ROUNDING if dtype == jnp.float64 else 10.0 * ROUNDING


def _condition(Kuu: AbstractCovariance) -> Float[Array, ""]:
    """|Luu⁻¹|² in units of the prior variance of u, a bound on the condition number of Kuu."""
    assert isinstance(Kuu, Dense)
    return jnp.max(jnp.max(batched("diagonal", Kuu), axis=1) * jnp.sum(Kuu.inverse_root**2, axis=(1, 2)))


def _has_two_orders(model: Model, Kuu: AbstractCovariance) -> bool:
    return dtype_of(model) == jnp.float64 and isinstance(Kuu, Dense)


def _rounding(model: Model, layer: SparseGP, data: Data, Kuu: AbstractCovariance) -> Float[Array, ""]:
    """About how wrong the bound becomes at most if Σ τ Kuf Kfu is whitened after it was summed.

    By Cauchy and Schwarz its entries are at most N τ times the prior variances of u and of f, and wrong by ε of that;
    whitening multiplies by |Luu⁻¹|². Errors that were seen are up to ten times this product.
    """
    prior, (x, _, _, noise) = layer.prior, _observed(model, data)
    outputs = mix_variance(prior, prior.Kff_diag(x[:: -(-len(x) // FEWEST)]))  # rows in an order may grow
    groups = 1 if weights(prior) is not None else prior.num_latents  # of coupled latents
    of_f = jnp.max(jnp.sum(outputs.reshape(len(outputs), groups, -1), axis=2))
    eps = jnp.finfo(x.dtype).eps
    return 10.0 * eps * len(data) * prior.num_latents * of_f * _condition(Kuu) / jnp.min(noise)


def _whitened_last(model: Model, layer: SparseGP, data: Data, Kuu: AbstractCovariance) -> _Statistics:
    """Two large products, and loses cond(Kuu)."""
    stats = _statistics(model, layer, data, None)
    L, (G, rows, _) = layer.prior.num_latents, stats.Psi.shape
    M = rows * G // L
    whole = qu.repeat(Kuu, L)

    def whiten(B):  # [G, n·M, k] -> Luu⁻¹ of each latent's rows
        return batched("root_solve", whole, B.reshape(L, M, -1)).reshape(B.shape)

    Psi = whiten(jnp.swapaxes(whiten(stats.Psi), 1, 2))
    return stats._replace(Psi=Psi, b=whiten(stats.b[..., None])[..., 0])


def _whitened_first(model: Model, layer: SparseGP, data: Data, Kuu: AbstractCovariance) -> _Statistics:
    """Each block is whitened by itself: half as many products again, and loses √cond(Kuu) alone.

    For a dense Kuu the derivative through it is taken once, at the end.
    """
    if not isinstance(Kuu, Dense):
        return _statistics(model, layer, data, Kuu)
    stats = _statistics(model, layer, data, jax.tree.map(jax.lax.stop_gradient, Kuu))
    Psi, b = _through_root(Kuu.matrix, Kuu.inverse_root, stats.Psi, stats.b)
    return stats._replace(Psi=Psi, b=b)


@jax.custom_jvp
def _through_root(K: Array, inverse_root: Array, Psi: Array, b: Array) -> tuple[Array, Array]:
    """Ψ and b as they are, made with a Luu⁻¹ that was held fixed; the derivative adds what they owe to it.

    dLuu⁻¹ = E Luu⁻¹ with E = −Φ(Luu⁻¹ dK Luu⁻ᵀ), so dΨ = … + E Ψ + Ψ Eᵀ (here 2 E Ψ: its antisymmetric part is taken
    out by `_optimum`), db = … + E b.
    """
    return Psi, b


@_through_root.defjvp
def _through_root_jvp(primals, tangents):
    _, inverse_root, Psi, b = primals
    dK, _, dPsi, db = tangents
    M = inverse_root.shape[1]
    E = -root_derivative(inverse_root, dK)
    E = jnp.broadcast_to(E, (b.size // M, M, M))
    own = (2.0 * E @ Psi.reshape(len(E), M, -1)).reshape(Psi.shape)
    return (Psi, b), (dPsi + own, db + (E @ b.reshape(len(E), M, 1)).reshape(b.shape))


def _statistics(model: Model, layer: SparseGP, data: Data, Kuu: Any) -> _Statistics:
    """Sum over blocks of rows; the reverse pass recomputes each block instead of storing it.

    A noise that all labels share is taken out of the sums, which then need no derivative by τ.
    """
    noise = model.likelihood.variance if isinstance(model.likelihood, Gaussian) else None
    if noise is None or isinstance(noise, PerDatum) or noise.ndim > 0:
        return _sums(model, layer, data, Kuu)
    unit = eqx.tree_at(lambda m: m.likelihood.variance, model, jnp.ones_like(noise))
    Psi, b, log_tau, squares, trace = _sums(unit, layer, data, Kuu)
    log_tau = log_tau - jnp.sum(jnp.where(labels(data)[1], jnp.log(noise), 0.0))
    return _Statistics(Psi / noise, b / noise, log_tau, squares / noise, trace / noise)


def _sums(model: Model, layer: SparseGP, data: Data, Kuu: Any) -> _Statistics:
    N, blocks = len(data), _num_blocks(layer, len(data))
    size = -(-N // blocks)
    # The last block is filled up with copies of the last row (whatever a kernel may do at 0), all masked.
    padded = jax.tree.map(lambda a: jnp.pad(a, [(0, blocks * size - N)] + [(0, 0)] * (a.ndim - 1), mode="edge"), data)
    seen = jnp.arange(blocks * size)[:, None] < N
    padded = eqx.tree_at(lambda d: d.mask, padded, padded.mask & seen)
    padded = jax.tree.map(lambda a: a.reshape(blocks, size, *a.shape[1:]), padded)

    def of_block(block):
        return _block_statistics(model, layer, block, Kuu)

    @jax.checkpoint
    def add(total, block):
        return jax.tree.map(jnp.add, total, of_block(block)), None

    one = jax.tree.map(lambda a: a[0], padded)
    if blocks == 1:
        return of_block(one)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(of_block, one))
    return jax.lax.scan(add, zero, padded)[0]


def _num_blocks(layer: SparseGP, N: int) -> int:
    sites = layer.prior.num_sites
    most = ENTRIES // (layer.num_features * layer.prior.num_latents * sites)
    return -(-N // min(max(most, FEWEST // sites, 1), MOST))


def _at_sites(prior: AbstractPrior, t: Float[Array, "n P"], V: Float[Array, "P c"]) -> Float[Array, "n J c"]:
    """Σ_q t[n, (q, j)] V[(q, j), c], over the outputs that look at a site."""
    if prior.num_sites == 1:
        return (t @ V)[:, None]
    return jnp.einsum("nqj,qjc->njc", t.reshape(t.shape[0], -1, prior.num_sites), by_site(prior, V))


@jax.custom_jvp
def _weighted_gram(B: Float[Array, "K M n"], tau: Float[Array, "K n"]) -> Float[Array, "K M M"]:
    """B diag(τ) Bᵀ. Its derivative is right up to an antisymmetric part, which `_optimum` takes out: one product in the
    reverse pass instead of two."""
    return symmetric_product(B * tau[:, None, :], B)


@partial(_weighted_gram.defjvp, symbolic_zeros=True)
def _weighted_gram_jvp(primals, tangents):
    (B, tau), (dB, dtau) = primals, tangents
    return _weighted_gram(B, tau), times_transpose(_moved(B, tau, dB, dtau), B)


def _moved(B: Array, tau: Array, dB: Any, dtau: Any) -> Array:
    """2 dB diag(τ) + B diag(dτ), where one of them may not move."""
    if isinstance(dtau, SymbolicZero):
        return 2.0 * dB * tau[:, None, :]
    if isinstance(dB, SymbolicZero):
        return B * dtau[:, None, :]
    return 2.0 * dB * tau[:, None, :] + B * dtau[:, None, :]


@jax.custom_jvp
def _whitened_gram(
    inverse_root: Float[Array, "K M M"], Kuf: Float[Array, "K M n"], tau: Float[Array, "K n"]
) -> Float[Array, "K M M"]:
    """A diag(τ) Aᵀ, A = Luu⁻¹ Kuf, for a fixed Luu⁻¹. Its derivative is Luu⁻¹ (2 dKuf τ + Kuf dτ) Aᵀ, again up to an
    antisymmetric part: one product in the reverse pass."""
    return _weighted_gram(products(inverse_root, Kuf, "lower"), tau)


@partial(_whitened_gram.defjvp, symbolic_zeros=True)
def _whitened_gram_jvp(primals, tangents):
    (inverse_root, Kuf, tau), (_, dKuf, dtau) = primals, tangents
    A = products(inverse_root, Kuf, "lower")
    return _weighted_gram(A, tau), inverse_root @ times_transpose(_moved(Kuf, tau, dKuf, dtau), A)


def _uncoupled(Kuf: Float[Array, "K M n"], tau: Float[Array, "n L"], Kuu: Any) -> Float[Array, "L M M"]:
    """Σ_n τ_nl Kuf[l, :, n] Kuf[l, :, n]ᵀ for each latent; once for all of them if kernel and precisions are shared.

    With a Kuu, Kuf is whitened first.
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
    """Σ_i ω_i[l, k] Kuf[l, :, i] Kuf[k, :, i]ᵀ: one batch of L products for each latent, never all at once."""
    L, M = omega.shape[1], Kuf.shape[1]
    own = jnp.broadcast_to(Kuf, (L, *Kuf.shape[1:]))

    def rows(item):
        left, weight = item  # [M, i], [L, i]
        return times_transpose(left[None] * weight[:, None, :], own)  # [L, M, M]

    Psi = jax.lax.map(rows, (own, jnp.transpose(omega, (1, 2, 0))))  # [l, k, M, M]
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
    W = weights(prior)
    if W is None:  # each output looks at one latent: no coupling
        own, rho = (jnp.swapaxes(t.reshape(n, L, J), 1, 2).reshape(n * J, L) for t in (tau, tau * r))
        Psi = _uncoupled(Kuf, own, Kuu)
    else:
        squares = (W[:, :, None] * W[:, None, :]).reshape(-1, L * L)
        omega = _at_sites(prior, tau, squares).reshape(n * J, L, L)
        rho = _at_sites(prior, tau * r, W).reshape(n * J, L)
        Psi = _coupled(Kuf if Kuu is None else batched("root_solve", Kuu, Kuf), omega)
    b = (Kuf[0] @ rho).T if Kuf.shape[0] == 1 else jnp.einsum("lmi,il->lm", Kuf, rho)
    if Kuu is not None:
        b = batched("root_solve", qu.repeat(Kuu, L), b[..., None])[..., 0]
    b = b.reshape(Psi.shape[:2])
    variance = mix_variance(prior, prior.Kff_diag(x))
    log_tau = jnp.where(mask, -jnp.log(2.0 * np.pi * noise), 0.0)
    return _Statistics(Psi, b, jnp.sum(log_tau), jnp.sum(tau * r**2), jnp.sum(tau * variance))
