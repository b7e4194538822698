"""The log-likelihood of each datum, given the last layer or a sample of it."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.data import Data
from inducing.model import Model


def expected_log_likelihood(model: Model, data: Data, x: Float[Array, "N R D"]) -> Float[Array, "N R"]:
    """log explik_nr = E_{q(f_L | F_nr)} log p(y_n | f_L), summed over the observed outputs: eq:explik, eq:explik_2.

    x is the input of the last layer. Of a model with one layer, the bound is its sum minus the KL:

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
    """log p(y_n | f_nr), summed over the observed outputs.

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


def labels(data: Data) -> tuple[Float[Array, "N P"], Array]:
    """y and its mask of data that have labels."""
    assert data.y is not None and data.mask is not None
    return data.y, data.mask
