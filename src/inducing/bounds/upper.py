"""An upper bound of the evidence, which certifies a sparse GP (Titsias 2014; Gibbs & MacKay 1997).

In units of the noise, K̃ = T Kff T and ỹ = T r with T² = diag τ, the evidence is

    log p(y) = ½ ( Σ log τ/2π − log |I + K̃| − ỹᵀ(I + K̃)⁻¹ỹ ).

With Q̃ = T Kfu Kuu⁻¹ Kuf T ⪯ K̃ and t = tr (K̃ − Q̃), I + Q̃ ⪯ I + K̃ ⪯ Q̃ + (1 + t) I, so that

    log |I + K̃| ≥ log |Λ|,    ỹᵀ(I + K̃)⁻¹ỹ ≥ ỹᵀ(Q̃ + (1 + t) I)⁻¹ỹ = (ỹᵀỹ − cᵀ((1 + t) I + Ψ)⁻¹c) / (1 + t)

with Λ = I + Ψ and the sums Ψ and c of the module `sums`. For any a, ỹᵀ(I + K̃)⁻¹ỹ ≥ 2 aᵀỹ − aᵀ(I + K̃) a holds too. Steps
of conjugate gradients, which start at a = (I + Q̃)⁻¹ỹ = T (y − mean of the optimal q(f)), increase this lower bound.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import compiled
from inducing.bounds.collapsed import optimal_q
from inducing.bounds.conjugate import Conjugate
from inducing.bounds.optimal import precision
from inducing.bounds.passes import pass_over, sums_of_rows
from inducing.bounds.sums import Statistics, whitened_first
from inducing.bounds.terms import counts, inputs, labels
from inducing.checks import checked_data
from inducing.data import Data
from inducing.linalg import Dense, batched
from inducing.model import Model
from inducing.priors.base import AbstractPrior
from inducing.streams import Stream

LABELS = 6000  # the largest number of labels for which conjugate gradients are used
STEPS, ROWS = 10, 256  # steps of conjugate gradients, and rows of K̃ in memory at a time


def evidence_upper_bound(model: Model, data: Any) -> Float[Array, ""]:
    """An upper bound of `log_evidence`, for a model of one sparse GP with Gaussian noise.

        log p(y) ≤ ½ ( Σ log τ/2π − log |Λ| − quadratic ),    τ = 1/σ²

    The quadratic term is replaced by a lower bound. That of Titsias (2014) costs O(N M²). For up to 6,000 labels, that
    of Gibbs & MacKay (1997) is computed as well, by 10 steps of conjugate gradients in O(N²) each, and the larger of
    the two is used. Sums run over blocks of rows, so that the memory beyond the data is O(M²), or O(256 N).

    Together with `collapsed_elbo` it bounds the error of the approximation, for these hyperparameters:

        KL(q ‖ posterior) = log p(y) − collapsed_elbo ≤ evidence_upper_bound − collapsed_elbo.

    The bound is loose if the variance tr (Kff − Q) that the features do not explain is large compared with the noise.

    Args:
        model: one `SparseGP` layer with a Gaussian likelihood. Its q(u) is not used.
        data: all data, (X, y) or `ig.Data`; or an `ig.Stream`, which is read once. No conjugate gradients are computed
            for a stream.

    Returns:
        The bound, one number.

    Raises:
        TypeError: if the model has several layers or another likelihood.
        ValueError: if the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> bool(ig.collapsed_elbo(model, data) < ig.log_evidence(model, data) < ig.evidence_upper_bound(model, data))
        True
    """
    if isinstance(data, Stream):
        return compiled(_upper_of_sums)(pass_over(model, data).sum(sums_of_rows, model).stats)
    data = checked_data(model, data)
    return compiled(_upper)(model, data)


def _upper(model: Model, data: Data) -> Float[Array, ""]:
    conjugate = Conjugate(model)
    stats = whitened_first(conjugate, data, conjugate.layer.Kuu())
    quadratic = _by_the_trace(stats)
    if labels(data)[0].size <= LABELS:
        quadratic = jnp.maximum(quadratic, _by_conjugate_gradients(conjugate, optimal_q(model, data), data))
    return _from_quadratic(stats, quadratic)


def _upper_of_sums(stats: Statistics) -> Float[Array, ""]:
    return _from_quadratic(stats, _by_the_trace(stats))


def _from_quadratic(stats: Statistics, quadratic: Array) -> Float[Array, ""]:
    return 0.5 * (stats.log_tau - jnp.sum(batched("logdet", precision(stats))) - quadratic)


def _by_the_trace(stats: Statistics) -> Float[Array, ""]:
    """ỹᵀ(Q̃ + (1 + t) I)⁻¹ỹ. Rounding may make t a little negative where features explain everything."""
    more = 1.0 + jnp.maximum(stats.trace - jnp.sum(jnp.trace(stats.Psi, axis1=1, axis2=2)), 0.0)
    eye = jnp.eye(stats.Psi.shape[1], dtype=stats.Psi.dtype)[None]
    explained = jnp.sum(batched("root_solve", jax.vmap(Dense)(stats.Psi + more * eye), stats.c[..., None]) ** 2)
    return (stats.squares - explained) / more


def _by_conjugate_gradients(conjugate: Conjugate, optimal: Model, data: Data) -> Float[Array, ""]:
    """2 aᵀỹ − aᵀ(I + K̃) a. Labels that do not count have T = 0."""
    prior, x, count = conjugate.layer.prior, inputs(data), counts(data)
    T = jnp.sqrt(jnp.where(count > 0.0, count / conjugate.noise(data), 0.0))  # [N, P]
    y = jnp.where(count > 0.0, labels(data)[0], 0.0)

    def scaled(residuals: Array) -> Array:
        return jnp.where(count > 0.0, T * residuals, 0.0)

    def product(a: Array) -> Array:
        return a + T * _covariance_times(prior, x, T * a)

    target = scaled(y - prior.mean(x))
    a, _ = jax.scipy.sparse.linalg.cg(
        product, target, x0=scaled(y - optimal.posterior(x).mean), tol=0.0, atol=0.0, maxiter=STEPS
    )
    return 2.0 * jnp.sum(a * target) - jnp.sum(a * product(a))


def _covariance_times(prior: AbstractPrior, x: Array, v: Float[Array, "N P"]) -> Float[Array, "N P"]:
    """Kff v, some rows of Kff at a time."""
    N, n = len(x), min(ROWS, len(x))
    blocks = jnp.pad(x, [(0, -N % n)] + [(0, 0)] * (x.ndim - 1), mode="edge").reshape(-1, n, *x.shape[1:])
    products = jax.lax.map(lambda rows: prior.covariance(rows, x) @ v.reshape(-1), blocks)
    return products.reshape(-1, v.shape[1])[:N]
