"""The closed-form bound of the Bayesian GP-LVM (Titsias and Lawrence 2010)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.conjugate import inverse_root, with_q
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.rounding import allowed_rounding
from inducing.bounds.terms import counts, labels, weighted_sum
from inducing.checks import checked_data
from inducing.data import Data
from inducing.kernels.base import AbstractKernel
from inducing.kernels.forms import PsiStatistics
from inducing.layers.sparse_gp import SparseGP
from inducing.linalg import Dense, batched
from inducing.model import Model
from inducing.priors.base import AbstractPrior


class _GplvmElbo(AbstractBound):
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, _optimal_q)


@_GplvmElbo
def gplvm_elbo(model: Model, data: Any) -> Float[Array, ""]:
    """The bound of the Bayesian GP-LVM with q(u) at its optimum, in closed form (appendix, eq:elbo_lv_iid_unsup).

        Σ_p ( log N(y_p | 0, ψ1 Kuu⁻¹ ψ1ᵀ + σ²I)  with ψ1ᵀψ1 → ψ2, tr Kff → ψ0 )  −  Σ_n KL(q(h_n) ‖ p(h_n))

    It is the collapsed bound of each output with tr Kff, Kfu and Kuf Kfu replaced by their expectations under q(h),
    the ψ-statistics ψ0, ψ1 and ψ2. If labels are missing, the statistics of each output are sums over its own labels.
    This takes O(P M³) instead of O(M³). A row without labels contributes nothing. `ig.elbo` estimates the bound at the
    model's own q(u) by sampling h. Its expectation is at most the value of `gplvm_elbo`, and equal to it for the model
    `gplvm_collapse(model, data)`.

    Args:
        model: a `LatentVariable` layer with a diagonal q(h), and a `SparseGP` layer with inducing points, one
            squared-exponential kernel for all outputs and a zero or constant mean, with a `Gaussian` likelihood of one
            variance. Its q(u) does not matter.
        data: `ig.Data(None, y)`; labels may be missing.

    Returns:
        The bound, one number. It is NaN where rounding would falsify it: with little noise, or in float32 with many
        inducing points.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if the data do not fit the model.

    Examples:
        >>> import jax.numpy as jnp
        >>> import inducing as ig
        >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(jnp.array([[0.0], [1.0], [2.0]]), scale=0.1))
        >>> prior = ig.priors.Independent(ig.kernels.SquaredExponential(), num=2)
        >>> gp = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model([latent, gp], ig.likelihoods.Gaussian(0.1))
        >>> ig.gplvm_elbo(model, ig.Data(None, jnp.ones((3, 2)))).shape
        ()
    """
    return _by_labels(_bound, model, data)


def gplvm_collapse(model: Model, data: Any) -> Model:
    """The Bayesian GP-LVM with the optimal q(u), given its q(h).

        q(w_p) = N(Λ⁻¹ c_p, Λ⁻¹),    Λ = I + Luu⁻¹ ψ2 Luu⁻ᵀ/σ²,    c_p = Luu⁻¹ ψ1ᵀ y_p/σ²

    Args:
        model: a model as for `ig.gplvm_elbo`.
        data: `ig.Data(None, y)`; labels may be missing.

    Returns:
        The same model with another q(u), in the same coordinates.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if the data do not fit the model.

    Examples:
        >>> import jax.numpy as jnp
        >>> import inducing as ig
        >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(jnp.array([[0.0], [1.0], [2.0]]), scale=0.1))
        >>> prior = ig.priors.Independent(ig.kernels.SquaredExponential(), num=2)
        >>> gp = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model([latent, gp], ig.likelihoods.Gaussian(0.1))
        >>> ig.gplvm_collapse(model, ig.Data(None, jnp.ones((3, 2)))).layers[1].mean.shape
        (2, 2)
    """
    return _optimal_q(model, checked_data(model, data))


def _optimal_q(model: Model, data: Data) -> Model:
    """`gplvm_collapse` for a model and data that have been checked."""
    return with_q(model, 1, *_by_labels(_mean_and_root, model, data))


class _Solved(NamedTuple):
    """The terms of the bound and of the optimal q(u). K is 1, or P if labels are missing or have weights.

    Attributes:
        squares: Σ w_n (y_np − μ_p)², over the labels that are present, with the weights w of the rows.
        count: the number of labels of each output, Σ w_n [P].
        noise: σ².
        psi0: ψ0 [K].
        Lambda: Λ = I + Luu⁻¹ ψ2 Luu⁻ᵀ/σ², stacked along K.
        c: Luu⁻¹ ψ1ᵀ y/σ² [K, M, P/K].
        kl: Σ_n KL(q(h_n) ‖ p(h_n)), over the rows with labels.
        error: an estimate of the rounding error of tr Luu⁻¹ ψ2 Luu⁻ᵀ [K], if entries of ψ2 have a relative error ε.
    """

    squares: Float[Array, ""]
    count: Float[Array, " P"]
    noise: Float[Array, ""]
    psi0: Float[Array, " K"]
    Lambda: Dense
    c: Float[Array, "K M Q"]
    kl: Float[Array, ""]
    error: Float[Array, " K"]


def _by_labels(fn: Callable[[_Solved], Any], model: Model, data: Data) -> Any:
    """fn of the terms, which are shared by all outputs if no label is missing and there are no weights."""
    mask = labels(data)[1]
    if isinstance(mask, jax.core.Tracer) and data.weight is None:
        together, apart = (lambda a=a: fn(_solved(model, data, a)) for a in (False, True))
        return jax.lax.cond(jnp.all(mask), together, apart)
    return fn(_solved(model, data, data.weight is not None or data.num_missing > 0))


def _bound(solved: _Solved) -> Float[Array, ""]:
    squares, count, noise, psi0, Lambda, c, kl, error = solved
    allowed = jnp.all(0.5 * error / noise <= count * allowed_rounding(squares.dtype))
    explained = jnp.sum(batched("diagonal", Lambda) - 1.0, axis=1) * noise
    each = batched("logdet", Lambda) + (psi0 - explained) / noise
    return (
        jnp.where(allowed, -0.5 * jnp.sum(count), jnp.nan) * jnp.log(2.0 * jnp.pi * noise)
        - 0.5 * squares / noise
        - 0.5 * (len(count) // len(psi0)) * jnp.sum(each)
        + 0.5 * jnp.sum(batched("root_solve", Lambda, c) ** 2)
        - kl
    )


def _mean_and_root(solved: _Solved) -> tuple[Float[Array, "P M"], Float[Array, "P M M"]]:
    """Mean and root of the optimal q(w)."""
    P, M = len(solved.count), solved.c.shape[1]
    mean = jnp.swapaxes(batched("solve", solved.Lambda, solved.c), 1, 2).reshape(P, M)
    return mean, jnp.broadcast_to(jax.vmap(inverse_root)(solved.Lambda.matrix), (P, M, M))


def _solved(model: Model, data: Data, apart: bool) -> _Solved:
    (mean, scale, kl), gp, kernel, Z, noise = _parts(model, data)
    if scale.ndim == 3:
        raise TypeError("the ψ-statistics are for a diagonal q(h); use ig.elbo for a full covariance.")
    (y, mask), each = labels(data), counts(data)
    y = jnp.where(mask, y - gp.prior.mean(Z[:1]), 0.0)  # the mean is the same everywhere
    psi0, psi1, psi2 = _psi(kernel, Z, mean, scale**2, each if apart else None)
    Kuu = Dense(kernel.gram(Z), gp.jitter)
    whitened = jax.vmap(lambda psi: Kuu.root_solve(Kuu.root_solve(psi).T))(psi2)
    eye = jnp.eye(len(Z), dtype=Z.dtype)[None]
    Lambda = jax.vmap(Dense)(eye + 0.5 * (whitened + jnp.swapaxes(whitened, 1, 2)) / noise)
    c = Kuu.root_solve(psi1.T @ (each * y)) / noise
    size = jnp.abs(Kuu.inverse_root)
    error = jax.lax.stop_gradient(jnp.finfo(Z.dtype).eps * jnp.sum((size[None] @ psi2) * size[None], axis=(1, 2)))
    kl = weighted_sum(data, kl.reshape(-1))
    squares, count = jnp.sum(each * y**2), jnp.sum(each, axis=0)
    return _Solved(squares, count, noise, psi0, Lambda, c.T[:, :, None] if apart else c[None], kl, error)


def _psi(
    kernel: AbstractKernel, Z: Array, mean: Array, variance: Array, counts: Array | None
) -> tuple[Float[Array, " K"], Float[Array, "N M"], Float[Array, "K M M"]]:
    """The ψ-statistics of all data (K = 1) or, given how often each label counts, those of each output (K = P)."""

    def statistics(mean: Array, variance: Array) -> PsiStatistics:
        psi = kernel.gaussian_expectations(Z, mean, variance)
        return _refuse() if psi is None else psi

    if counts is None:
        psi = statistics(mean, variance)
        return psi.psi0[None], psi.psi1, psi.psi2[None]

    @jax.checkpoint
    def add(total, datum):  # a loop over the data, so that memory is O(P M²) instead of O(N M²)
        mu, v, count = datum
        psi = statistics(mu[None], v[None])
        return (total[0] + count * psi.psi0, total[1] + count[:, None, None] * psi.psi2[None]), psi.psi1[0]

    P, M = counts.shape[1], len(Z)
    start = jnp.zeros((P,), Z.dtype), jnp.zeros((P, M, M), Z.dtype)
    (psi0, psi2), psi1 = jax.lax.scan(add, start, (mean, variance, counts))
    return psi0, psi1, psi2


def _parts(model: Model, data: Data) -> tuple[tuple[Array, Array, Array], SparseGP, AbstractKernel, Array, Array]:
    """q(h), the sparse GP, its kernel and inducing inputs, and the noise variance, if the model has the right form."""
    if len(model.layers) != 2 or (data.x is not None and data.x.shape[1] > 0):
        _refuse()
    gp, noise = model.layers[1].as_sparse_gp(), model.likelihood.shared_noise
    if gp is None or noise is None or isinstance(gp.features, tuple) or not gp.features.are_values:
        _refuse()
    kernel, Z = gp.prior.shared_kernel, gp.features.locations
    if kernel is None or Z is None or not _has_constant_mean(gp.prior):
        _refuse()
    posterior = model.layers[0].latent_posterior(data)
    return (posterior, gp, kernel, Z, noise) if posterior is not None else _refuse()


def _has_constant_mean(prior: AbstractPrior) -> bool:
    means = prior.mean_functions()
    return bool(means) and all(mean.is_constant for _, mean in means)


def _refuse() -> NoReturn:
    raise TypeError(
        "the closed form is for data without inputs and a model [LatentVariable, SparseGP] with inducing points, one "
        "squared-exponential GP of zero or constant mean for all outputs, and a Gaussian likelihood of one variance; "
        "use ig.elbo."
    )
