"""The closed-form bound of the Bayesian GP-LVM (Titsias and Lawrence 2010): the reference for the sampled one."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.collapsed import allowed_rounding, inverse_root
from inducing.bounds.objective import AbstractBound, Optimum, checked
from inducing.data import Data
from inducing.features.points import InducingPoints
from inducing.kernels.forms import PsiStatistics
from inducing.kernels.stationary import SquaredExponential
from inducing.layers.latent_variable import LatentVariable
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.gaussian import Gaussian
from inducing.linalg import Dense
from inducing.means import Constant, Zero
from inducing.model import Model
from inducing.priors.gp import GP
from inducing.priors.independent import Independent


class _GplvmElbo(AbstractBound):
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, _optimal_q)


@_GplvmElbo
def gplvm_elbo(model: Model, data: Any) -> Float[Array, ""]:
    """The bound of the Bayesian GP-LVM with q(u) at its optimum, in closed form (appendix, eq:elbo_lv_iid_unsup).

    It is the collapsed bound of each output with tr Kff, Kfu and Kuf Kfu replaced by their expectations under q(h),
    ψ0, ψ1 and ψ2, minus Σ_n KL(q(h_n) ‖ p(h_n)).

    The model is a LatentVariable (diagonal q(h)), a SparseGP with inducing points, one squared-exponential kernel for
    all outputs and a zero or constant mean, and a Gaussian likelihood. `ig.elbo` estimates, by sampling h, the bound at
    the model's own q(u): in expectation it is at most this, and equal for `gplvm_collapse(model, data)`. Where rounding
    would make up the bound (little noise, or float32 with many inducing points) it is NaN.

    >>> import jax.numpy as jnp
    >>> import inducing as ig
    >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(jnp.array([[0.0], [1.0], [2.0]]), scale=0.1))
    >>> prior = ig.priors.Independent(ig.kernels.SquaredExponential(), num=2)
    >>> gp = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model = ig.Model([latent, gp], ig.likelihoods.Gaussian(0.1))
    >>> ig.gplvm_elbo(model, ig.Data(None, jnp.ones((3, 2)))).shape
    ()
    """
    y, noise, psi, Lambda, c, kl, rounding = _optimum(model, data)
    N, P = y.shape
    constant = jnp.where(0.5 * rounding / noise <= N * allowed_rounding(y.dtype), -0.5 * N * P, jnp.nan)
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
    """The same model with the optimal q(u) given q(h).

    >>> import jax.numpy as jnp
    >>> import inducing as ig
    >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(jnp.array([[0.0], [1.0], [2.0]]), scale=0.1))
    >>> prior = ig.priors.Independent(ig.kernels.SquaredExponential(), num=2)
    >>> gp = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model = ig.Model([latent, gp], ig.likelihoods.Gaussian(0.1))
    >>> ig.gplvm_collapse(model, ig.Data(None, jnp.ones((3, 2)))).layers[1].mean.shape
    (2, 2)
    """
    return _optimal_q(model, checked(model, data))


def _optimal_q(model: Model, data: Data) -> Model:
    """`gplvm_collapse` for a model and data that have been checked."""
    _, _, _, Lambda, c, _, _ = _optimum(model, data)
    gp = model.layers[1]
    assert isinstance(gp, SparseGP)
    L, M = gp.prior.num_latents, gp.num_features
    root = jnp.broadcast_to(inverse_root(Lambda.matrix), (L, M, M))
    optimal = SparseGP(gp.prior, gp.features, Lambda.solve(c).T, root, "w", gp.jitter)
    return eqx.tree_at(lambda m: m.layers[1], model, optimal.with_coordinates(gp.coordinates))


def _optimum(model: Model, data: Data) -> tuple[Array, Array, PsiStatistics, Dense, Array, Array, Array]:
    """y − μ, the noise variance, the ψ-statistics, Λ = I + Luu⁻¹ψ2Luu⁻ᵀ/σ², c = Luu⁻¹ψ1ᵀy/σ² [M, P], Σ_n KL_n, and
    about how wrong tr Luu⁻¹ψ2Luu⁻ᵀ is, since each entry of ψ2 is wrong by ε of itself."""
    latent, gp, kernel = _parts(model, data)
    mean, scale, kl = latent.posterior(data)
    if scale.ndim == 3:
        raise TypeError("the ψ-statistics are for a diagonal q(h); use ig.elbo for a full covariance.")
    noise = model.likelihood.variance  # ty: ignore[missing-attribute]
    Z = gp.features.Z  # ty: ignore[missing-attribute]
    assert data.y is not None
    y = data.y - gp.prior.mean(Z[:1])  # the same everywhere
    psi = kernel.gaussian_expectations(Z, mean, scale**2)
    Kuu = Dense(kernel.gram(Z), gp.jitter)
    whitened = Kuu.root_solve(Kuu.root_solve(psi.psi2).T)
    Lambda = Dense(jnp.eye(len(Z), dtype=Z.dtype) + 0.5 * (whitened + whitened.T) / noise)
    size = jnp.abs(Kuu.inverse_root)
    rounding = jax.lax.stop_gradient(jnp.finfo(Z.dtype).eps * jnp.sum((size @ psi.psi2) * size))
    return y, noise, psi, Lambda, Kuu.root_solve(psi.psi1.T @ y) / noise, jnp.sum(kl), rounding


def _parts(model: Model, data: Data) -> tuple[LatentVariable, SparseGP, SquaredExponential]:
    kinds = (LatentVariable, SparseGP)
    if len(model.layers) == 2 and all(isinstance(v, k) for v, k in zip(model.layers, kinds, strict=True)):
        layers: Any = model.layers
        latent, gp = layers
        prior = gp.prior.latents[0] if isinstance(gp.prior, Independent) and len(gp.prior.latents) == 1 else gp.prior
        suitable = (
            (data.x is None or data.x.shape[1] == 0)
            and isinstance(prior, GP)
            and type(prior.kernel) is SquaredExponential
            and isinstance(gp.features, InducingPoints)
            and isinstance(model.likelihood, Gaussian)
            and getattr(model.likelihood.variance, "ndim", None) == 0
        )
        if suitable and all(isinstance(p.mean_function, Zero | Constant) for p in (prior, gp.prior)):
            if data.y is None or (not isinstance(data.mask, jax.core.Tracer) and data.num_missing):
                raise ValueError("the closed form needs labels y without missing entries; use ig.elbo.")
            return latent, gp, prior.kernel
    raise TypeError(
        "the closed form is for data without inputs and a model [LatentVariable, SparseGP] with inducing points, one "
        "squared-exponential GP of zero or constant mean for all outputs, and a Gaussian likelihood of one variance; "
        "use ig.elbo."
    )
