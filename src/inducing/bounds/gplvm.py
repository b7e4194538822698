"""The closed-form bound of the Bayesian GP-LVM (Titsias and Lawrence 2010): the reference for the sampled bound."""

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.conjugate import inverse_root, with_q
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.rounding import allowed_rounding
from inducing.bounds.terms import labels
from inducing.checks import checked_data
from inducing.data import Data
from inducing.kernels.base import AbstractKernel
from inducing.kernels.forms import PsiStatistics
from inducing.layers.sparse_gp import SparseGP
from inducing.linalg import Dense
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
    the ψ-statistics ψ0, ψ1 and ψ2. `ig.elbo` estimates the bound at the model's own q(u) by sampling h. In expectation
    it is at most this one, and equal for `gplvm_collapse(model, data)`.

    Args:
        model: a `LatentVariable` layer with a diagonal q(h), and a `SparseGP` layer with inducing points, one
            squared-exponential kernel for all outputs and a zero or constant mean, with a `Gaussian` likelihood of one
            variance. Its q(u) does not matter.
        data: `ig.Data(None, y)`, without missing labels.

    Returns:
        The bound, one number. It is NaN where rounding would falsify it: with little noise, or in float32 with many
        inducing points.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if labels are missing, or the data do not fit the model.

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
    y, noise, psi, Lambda, c, kl, error = _solved(model, data)
    N, P = y.shape
    constant = jnp.where(0.5 * error / noise <= N * allowed_rounding(y.dtype), -0.5 * N * P, jnp.nan)
    quadratic = jnp.sum(Lambda.root_solve(c) ** 2)
    explained = jnp.sum(Lambda.diagonal() - 1.0) * noise
    return (
        constant * jnp.log(2.0 * jnp.pi * noise)
        - 0.5 * jnp.sum(y**2) / noise
        - 0.5 * P * Lambda.logdet()
        + 0.5 * quadratic
        - 0.5 * P / noise * (psi.psi0 - explained)
        - kl
    )


def gplvm_collapse(model: Model, data: Any) -> Model:
    """The Bayesian GP-LVM with the optimal q(u), given its q(h).

        q(w_p) = N(Λ⁻¹ c_p, Λ⁻¹),    Λ = I + Luu⁻¹ ψ2 Luu⁻ᵀ/σ²,    c_p = Luu⁻¹ ψ1ᵀ y_p/σ²

    Args:
        model: a model as for `ig.gplvm_elbo`.
        data: `ig.Data(None, y)`, without missing labels.

    Returns:
        The same model with another q(u), in the same coordinates.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if labels are missing, or the data do not fit the model.

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
    solved = _solved(model, data)
    gp = model.layers[1].as_sparse_gp()
    assert gp is not None
    L, M = gp.prior.num_latents, gp.num_features
    root = jnp.broadcast_to(inverse_root(solved.Lambda.matrix), (L, M, M))
    optimal = with_q(gp, solved.Lambda.solve(solved.c).T, root)
    return eqx.tree_at(lambda m: m.layers[1].as_sparse_gp(), model, optimal)


class _Solved(NamedTuple):
    """What the bound and the optimal q(u) are made of.

    Attributes:
        y: y − μ [N, P].
        noise: σ².
        psi: the ψ-statistics.
        Lambda: Λ = I + Luu⁻¹ ψ2 Luu⁻ᵀ/σ².
        c: Luu⁻¹ ψ1ᵀ y/σ² [M, P].
        kl: Σ_n KL(q(h_n) ‖ p(h_n)).
        error: an estimate of the rounding error of tr Luu⁻¹ ψ2 Luu⁻ᵀ, given that entries of ψ2 have a relative error ε.
    """

    y: Float[Array, "N P"]
    noise: Float[Array, ""]
    psi: PsiStatistics
    Lambda: Dense
    c: Float[Array, "M P"]
    kl: Float[Array, ""]
    error: Float[Array, ""]


def _solved(model: Model, data: Data) -> _Solved:
    (mean, scale, kl), gp, kernel, Z, noise = _parts(model, data)
    if scale.ndim == 3:
        raise TypeError("the ψ-statistics are for a diagonal q(h); use ig.elbo for a full covariance.")
    psi = kernel.gaussian_expectations(Z, mean, scale**2)
    if psi is None:
        _refuse()
    y = labels(data)[0] - gp.prior.mean(Z[:1])  # the mean is the same everywhere
    Kuu = Dense(kernel.gram(Z), gp.jitter)
    whitened = Kuu.root_solve(Kuu.root_solve(psi.psi2).T)
    Lambda = Dense(jnp.eye(len(Z), dtype=Z.dtype) + 0.5 * (whitened + whitened.T) / noise)
    size = jnp.abs(Kuu.inverse_root)
    error = jax.lax.stop_gradient(jnp.finfo(Z.dtype).eps * jnp.sum((size @ psi.psi2) * size))
    return _Solved(y, noise, psi, Lambda, Kuu.root_solve(psi.psi1.T @ y) / noise, jnp.sum(kl), error)


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
    if not isinstance(data.mask, jax.core.Tracer) and data.num_missing:
        raise ValueError("the closed form needs labels y without missing entries; use ig.elbo.")
    if data.weight is not None:
        raise ValueError("the closed form is for data without weights; use ig.elbo.")
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
