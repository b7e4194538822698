"""The terms of the bound: log-likelihoods and importance weights of single data."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from inducing.data import Data
from inducing.model import Model


def expected_log_likelihood(model: Model, data: Data, x: Float[Array, "N R D"]) -> Float[Array, "N R"]:
    """The expected log-likelihood of each datum under the last layer (eq:explik, eq:explik_2).

        log explik_nr = E_{q(f_L | F_nr)} log p(y_n | f_L)

    It is summed over the observed outputs.

    Args:
        model: the model.
        data: the data, with labels.
        x: the inputs of the last layer [N, R, D]. For a model with one layer these are `data.x[:, None]`.

    Returns:
        One value for each datum and replicate [N, R].

    Examples:
        For a model with one layer, the bound is the sum of these terms minus the KL divergence.

        >>> import jax.numpy as jnp
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]), mean=[0.5, 0.2])
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ig.Data([0.0, 1.0], [0.5, 0.2])
        >>> each = ig.bounds.expected_log_likelihood(model, data, data.x[:, None])
        >>> each.shape, bool(jnp.allclose(each.sum() - model.kl(), ig.elbo(model, data)))
        ((2, 1), True)
    """
    mean, cov = model.layers[-1].moments(x, correlated=model.likelihood.joint)
    return _over_labels(model.likelihood.expected_log_prob, model, data, mean, cov)


def log_likelihood(model: Model, data: Data, f: Float[Array, "N R F"]) -> Float[Array, "N R"]:
    """The log-likelihood log p(y_n | f_nr) of each datum, summed over the observed outputs.

    Args:
        model: the model.
        data: the data, with labels.
        f: the latent values [N, R, F], such as a sample of the last layer.

    Returns:
        One value for each datum and replicate [N, R].

    Examples:
        >>> import jax.numpy as jnp
        >>> import inducing as ig
        >>> model = ig.Model(ig.BayesianDense(1, 1), ig.likelihoods.Gaussian(1.0))
        >>> data = ig.Data([0.0, 1.0], [0.0, float("nan")])
        >>> ig.bounds.log_likelihood(model, data, jnp.zeros((2, 1, 1)))[:, 0].round(4).tolist()
        [-0.9189, 0.0]
    """
    return _over_labels(model.likelihood.log_prob, model, data, f)


def _over_labels(fn: Callable, model: Model, data: Data, *latents: Array) -> Float[Array, "N R"]:
    N, R = latents[0].shape[:2]
    y, mask = labels(data)
    y = jnp.where(mask, y, jnp.asarray(model.likelihood.fill, latents[0].dtype))
    y, mask, index = (jnp.repeat(a, R, axis=0) for a in (y, mask, data.index))
    terms = fn(*(a.reshape(N * R, *a.shape[2:]) for a in latents), y, index=index)
    return jnp.sum(jnp.where(mask, terms, 0.0), axis=1).reshape(N, R)


def log_weights(
    model: Model,
    data: Data,
    key: Array | None,
    replicates: int,
    beta: float | Float[Array, ""],
    integrate: bool,
    shifts: Mapping[int, Array] | None = None,
) -> Float[Array, "N R"]:
    """log explik_nr + β Σ_l log p(h_nr)/q(h_nr) of each replicate.

    Args:
        model: the model.
        data: the data, with labels.
        key: a random key, needed if something is sampled.
        replicates: R.
        beta: β.
        integrate: whether to integrate the last layer instead of sampling it.
        shifts: what to add to the latent variables of layers, by the number of the layer.
    """
    x, log_weight = model.propagate(data, key, replicates, shifts)
    if integrate:
        return expected_log_likelihood(model, data, x) + beta * log_weight
    f, _ = model.layers[-1].propagate(x, model.keys(key)[-1], data, replicates)
    return log_likelihood(model, data, f) + beta * log_weight


def log_mean_exp(values: Float[Array, "N R"]) -> Float[Array, " N"]:
    """log 1/R Σ_r exp(values_nr)."""
    return jax.nn.logsumexp(values, axis=1) - jnp.log(jnp.asarray(values.shape[1], values.dtype))


def weighted_sum(data: Data, terms: Float[Array, " N"]) -> Float[Array, ""]:
    """Σ_n weight_n terms_n over the rows that have labels. Other rows contribute nothing, not even a KL divergence."""
    seen = jnp.any(labels(data)[1], axis=1)
    if data.weight is None:
        return jnp.sum(jnp.where(seen, terms, 0.0))
    return jnp.sum(jnp.where(seen & (data.weight > 0.0), data.weight * terms, 0.0))


def counts(data: Data) -> Float[Array, "N P"]:
    """How often each label counts: the weight of its row, or 0 if it is missing."""
    y, mask = labels(data)
    weight = jnp.ones((), y.dtype) if data.weight is None else data.weight[:, None]
    return jnp.where(mask, weight, 0.0)


def labels(data: Data) -> tuple[Float[Array, "N P"], Bool[Array, "N P"]]:
    """y and its mask, for data that have labels."""
    assert data.y is not None and data.mask is not None
    return data.y, data.mask


def inputs(data: Data) -> Float[Array, "*N D"]:
    """x, for data that have inputs."""
    assert data.x is not None
    return data.x
