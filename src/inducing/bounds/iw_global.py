"""Importance weighting over the weights and functions θ of a model."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.elbo import check_beta
from inducing.bounds.objective import AbstractBound
from inducing.bounds.terms import counts, log_likelihood, log_mean_exp, weighted_sum
from inducing.checks import check_counts
from inducing.model import Model, enter, needed
from inducing.parameters import dtype_of


class _GlobalImportance(AbstractBound):
    """It is always noisy and does not take minibatches, so the default answers to all questions are right."""


@_GlobalImportance
def iw_elbo_global(
    model: Model,
    data: Any,
    *,
    key: Array,
    importance: int = 10,
    samples: int = 1,
    beta: float | Float[Array, ""] = 1.0,
    num_data: int | None = None,
) -> Float[Array, ""]:
    """The importance-weighted bound with samples of the weights or functions θ (sections 3.2 and 3.4).

        E[ log 1/S Σ_s exp( Σ_n log p(y_n | θ_s, h_sn, x_n) + β log p(θ_s)/q(θ_s) + β Σ_n log p(h_sn)/q(h_sn) ) ]

    See eq:iw_vi_iid and eq:iw_vi_lv. It tends to log p(y) as S grows. For `BayesianDense` layers, θ are the weights.
    For `SparseGP` layers, θ are u and the values f of the layer, sampled from q(u) p(f | u) jointly over all data, so
    that p(θ)/q(θ) = p(u)/q(u). This takes O((M + N)³) operations, once for the first layer and for each sample above
    random layers. All data share θ, so minibatches are not possible. The weight of a row multiplies all of its terms
    inside the exponential.

    Args:
        model: the model.
        data: (X, y) or `ig.Data`, all of them.
        key: a random key.
        importance: S, the number of importance samples of θ and of the latent variables h.
        samples: the number of Monte Carlo samples of the outer expectation.
        beta: β, the weight of all divergences. The value is a bound for β = 1 only.
        num_data: the number of data, which must be that of `data`.

    Returns:
        An unbiased estimate of the bound, one number.

    Raises:
        ValueError: if the data do not fit the model, are a minibatch, or an option is out of range.
        TypeError: if a layer does not say how to sample its weights (`sample_global`).

    Examples:
        >>> import jax
        >>> import inducing as ig
        >>> model = ig.Model(ig.BayesianDense(1, 1), ig.likelihoods.Gaussian(0.1))
        >>> ig.iw_elbo_global(model, ([0.0, 1.0], [0.5, 0.2]), key=jax.random.key(0), importance=5).shape
        ()
    """
    key = needed(key)
    check_counts(samples=samples, importance=importance)
    check_beta(beta)
    if num_data not in (None, len(data)):
        raise ValueError(
            "iw_elbo_global needs all data at once: the logarithm of its mean over θ is not a sum over data, so a "
            f"minibatch of {len(data)} of {num_data} gives no unbiased estimate. Pass batch_size=None, or use ig.elbo."
        )
    weight = jnp.max(counts(data), axis=1, keepdims=True)  # a row without labels contributes nothing

    def log_weight(key):
        x, total = enter(model, data), jnp.zeros((), dtype_of(model))
        for i, (layer, k) in enumerate(zip(model.layers, model.keys(key), strict=True)):
            sampled = layer.sample_global(x, k, data, weight)
            if sampled is None:
                raise TypeError(
                    f"layers[{i}] is a {type(layer).__name__}, which does not say how to sample its weights once for "
                    "all data (`sample_global`). Use ig.elbo(..., importance=...)."
                )
            x, total = sampled[0], total + sampled[1]
        return weighted_sum(data, log_likelihood(model, data, x)[:, 0]) + beta * total

    log_w = jax.vmap(log_weight)(jax.random.split(key, samples * importance))
    return jnp.mean(log_mean_exp(log_w.reshape(samples, importance)))
