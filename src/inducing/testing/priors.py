"""Contract checks of priors."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing.priors.base import AbstractPrior
from inducing.testing.contract import (
    as_points,
    attempt,
    check_part,
    default_points,
    refused,
    require,
    require_close,
    require_covariance,
    require_finite_gradients,
    require_float32,
    require_moments,
    require_shape,
    weighted,
)


def check_prior(prior: AbstractPrior, features: Any, X: Any = None) -> None:
    """Check that a prior keeps the contract of `ig.priors.AbstractPrior`.

    All shapes fit the numbers of latents L, outputs P and sites J; `Kff_diag` is the diagonal of `Kff`; the joint
    covariance of the inducing variables and the sites is positive semi-definite; draws have these covariances, or are
    refused; `mean` depends on each input alone; gradients are finite.

    Args:
        prior: the prior to check.
        features: inducing features of the latents, one for all or a sequence with one for each.
        X: inputs [N, D] that the prior accepts. By default, six points in two dimensions, or in as many as the
            features know of.

    Raises:
        AssertionError: if the prior breaks the contract.

    Examples:
        >>> import inducing as ig
        >>> prior = ig.priors.LMC([[1.0], [-2.0]], ig.kernels.Matern32())
        >>> ig.testing.check_prior(prior, ig.features.InducingPoints([[0.0], [1.0]]))
    """
    check_part(prior, AbstractPrior)
    features = tuple(features) if isinstance(features, Iterable) else features
    each = features if isinstance(features, tuple) else (features,)
    X = as_points(prior, default_points(prior.input_columns(each[0].num_inputs or 2))[:4] if X is None else X)
    attempt(prior, "check_inputs must accept X", prior.check_inputs, np.asarray(X))
    N, L, P, J = len(X), prior.num_latents, prior.num_outputs, prior.num_sites
    require(P % J == 0, prior, "num_sites must divide num_outputs", f"they are {J} and {P}")
    kernels = prior.kernels
    require(len(kernels) in (1, L), prior, f"kernels must hold 1 or L = {L} kernels", f"it holds {len(kernels)}")
    if prior.mixing is not None:
        require_shape(prior, "mixing", prior.mixing, (P, L))
    values = attempt(prior, "its covariances and means must be computed under jit", _prior_values, prior, features, X)
    Kuu, Kuf, Kff, cross, diag, mean, first, mu_u = (np.asarray(v) for v in values)
    require(Kuu.ndim == 3, prior, "Kuu must be [K, M, M]", f"it has shape {list(Kuu.shape)}")
    K, M = Kuu.shape[:2]
    require(K in (1, L), prior, f"Kuu must have a leading axis of 1 or L = {L}", f"it has {K}")
    require_shape(prior, "Kuf(features, X) as [K, M, N, J]", Kuf, (K, M, N, J))
    require(Kff.shape[0] in (1, L), prior, f"Kff must have a leading axis of 1 or L = {L}", f"it has {len(Kff)}")
    require_shape(prior, "Kff(X) as [K, N, J, N, J]", Kff, (len(Kff), N, J, N, J))
    require_shape(prior, "Kff_diag(X) as [K, N, J]", diag, (len(Kff), N, J))
    require_shape(prior, "mean(X)", mean, (N, P))
    require_shape(prior, "mu_u(features)", mu_u, (mu_u.shape[0], M))
    require_close(prior, "each row of mean(X) must depend only on its own input", mean[:1], first)
    require_close(prior, "Kff(X, X2) must agree with Kff(X)", cross, Kff[:, :, :, :2], 1e-6)
    require_close(prior, "Kff_diag(X) must be the diagonal of Kff(X)", diag, np.einsum("knjnj->knj", Kff), 1e-8)
    flat, Kus = Kff.reshape(len(Kff), N * J, N * J), Kuf.reshape(K, M, N * J)
    for k in range(max(K, len(Kff))):
        uu, us, ss = Kuu[min(k, K - 1)], Kus[min(k, K - 1)], flat[min(k, len(Kff) - 1)]
        joint = np.block([[uu, us], [us.T, ss]])
        require_covariance(prior, f"the joint covariance of u and the sites of latent {k}", joint)
    require_finite_gradients(prior, "gradients of the covariances and the mean", _prior_gradients, prior, features, X)
    require_float32(prior, "its covariances and means", _prior_values, prior, features, X)
    if prior.shared_kernel is not None:
        gram = np.asarray(prior.shared_kernel.gram(X))
        require_close(prior, "shared_kernel must be the kernel of every output", flat[0], gram, 1e-8)
    _check_draws(prior, features, X, Kuu, Kus, flat)


def _prior_values(prior: AbstractPrior, features: Any, X: Array) -> tuple[Array, ...]:
    Kuu = eqx.filter_vmap(lambda K: K.dense())(prior.Kuu(features, 0.0))
    Kuf = prior.Kuf(features, X)
    means = prior.mean(X), prior.mean(X[:1]), prior.mu_u(features)
    return Kuu, Kuf, prior.Kff(X), prior.Kff(X, X[:2]), prior.Kff_diag(X), *means


def _prior_gradients(prior: AbstractPrior, features: Any, X: Array) -> Any:
    return eqx.filter_grad(lambda three: weighted(_prior_values(*three)))((prior, features, X))


def _check_draws(prior: AbstractPrior, features: Any, X: Array, Kuu: Any, Kus: Any, Kss: Any) -> None:
    L, J, N = prior.num_latents, prior.num_sites, len(X)
    keys = jax.random.split(jax.random.key(0), 400)
    if refused(_prior_draws, prior, features, X, keys):
        return  # kernels without random features have no draws
    drawn = attempt(prior, "draw_latents must run under jit and vmap", _prior_draws, prior, features, X, keys)
    u, s = (np.asarray(v) for v in drawn)  # [draws, L, M], [draws, N, L, J]
    require_shape(prior, "the sites of a draw as [N, L, J]", s[0], (N, L, J))
    for latent in range(L):
        own = [v[min(latent, len(v) - 1)] for v in (Kuu, Kus, Kss)]
        cov = np.block([[own[0], own[1]], [own[1].T, own[2]]])
        samples = np.concatenate([u[:, latent], s[:, :, latent].reshape(len(s), -1)], axis=1)
        what = f"the features and sites of draws of latent {latent}"
        require_moments(prior, what, samples, np.zeros(len(cov)), cov, 1e-2)


def _prior_draws(prior: AbstractPrior, features: Any, X: Array, keys: Array) -> tuple[Array, Array]:
    def one(key: Array) -> tuple[Array, Array]:
        g, sites = prior.draw_latents(key, 64, X.shape[1])
        each = features if isinstance(features, tuple) else (features,) * prior.num_latents
        kernels = prior.kernels * (prior.num_latents if len(prior.kernels) == 1 else 1)
        u = [f.apply(g, k)[:, i] for i, (f, k) in enumerate(zip(each, kernels, strict=True))]
        return jnp.stack(u), sites(X)

    return jax.vmap(one)(keys)
