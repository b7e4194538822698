"""The bound that trains every model, and the closed forms that exist for some."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .data import Data, as_data
from .model import Model
from .parameters import dtype_of


def expected_log_likelihood(model: Model, data: Data, x: Float[Array, "N R D"]) -> Float[Array, "N R"]:
    """explik_nr = E_{q(f_L | F_nr)} log p(y_n | f_L), summed over the observed outputs: eq:explik, eq:explik_2."""
    N, R, _ = x.shape
    likelihood = model.likelihood
    mean, cov = model.layers[-1].moments(x, correlated=likelihood.joint)
    y = jnp.where(data.mask, data.y, jnp.asarray(likelihood.fill, x.dtype))
    y, mask, index = (jnp.repeat(a, R, axis=0) for a in (y, data.mask, data.index))
    terms = likelihood.expected_log_prob(
        mean.reshape(N * R, *mean.shape[2:]), cov.reshape(N * R, *cov.shape[2:]), y, index=index
    )
    return jnp.sum(jnp.where(mask, terms, 0.0), axis=1).reshape(N, R)


def elbo(
    model: Model,
    data: Any,
    *,
    key: Array | None = None,
    samples: int = 1,
    importance: int = 1,
    beta: float = 1.0,
    num_data: int | None = None,
) -> Float[Array, ""]:
    """The bound on log p(y) that trains all models (section 4; eq:elbo_sparse_gp_iid, eq:elbo_deep_sgp, eq:ugly_log_2).

        (N/B) Σ_n E[ log 1/R Σ_r exp( explik_nr + β Σ_l log p(h_nr)/q(h_nr) ) ]  −  β Σ_l KL(q_l ‖ p_l)

    `data` is (X, y) or `Data`: all of it, or a minibatch of B of `num_data` = N. `importance` is R, `samples` the
    number of Monte Carlo samples of the outer expectation; both matter only for models that sample, which need a
    `key`. With `beta` ≠ 1 this is β-VI and no longer a bound.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> bound = ig.elbo(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2]))
    >>> bound.shape
    ()
    """
    data = as_data(data, dtype_of(model))
    scale = 1.0 if num_data is None else num_data / len(data)

    def once(key):
        x, log_weight = model.propagate(data, key, importance)
        explik = expected_log_likelihood(model, data, x)
        weights = explik + beta * log_weight
        return jnp.sum(jax.nn.logsumexp(weights, axis=1) - jnp.log(weights.shape[1]).astype(weights.dtype))

    if model.is_stochastic and samples > 1:
        data_term = jnp.mean(jax.vmap(once)(jax.random.split(key, samples)))
    else:
        data_term = once(key)
    return scale * data_term - beta * model.kl()
