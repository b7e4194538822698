"""The predictive distribution of labels at new inputs."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array

from inducing.checks import checked_inputs
from inducing.inference.blocks import joint_moments, moments, one_covariance, samples_need_covariance
from inducing.inference.joint import JointPredictive
from inducing.likelihoods.predictive import Predictive

if TYPE_CHECKING:
    from inducing.model import Model


def predict(
    model: "Model",
    X: Any,
    *,
    full_cov: bool = False,
    output_cov: bool = False,
    key: Array | None = None,
    samples: int = 100,
    index: Any = None,
) -> Predictive | JointPredictive:
    """The distribution p(y | X) of labels at new inputs; the same as `Model.predict`.

        p(y_n | x_n) = E p(y_n | f_n),    f_n ~ q(f(x_n))

    Args:
        model: an `ig.Model`.
        X: inputs [N, D], or [N] for one column. None for a model without inputs.
        full_cov: whether to compute the covariance [N·F, N·F] of all F latent functions at all inputs.
        output_cov: whether to compute the covariance [N, F, F] of the latent functions at each input. Without it,
            their variances [N, F] are computed, unless the likelihood mixes them.
        key: a random key for the samples of inner layers, by default `jax.random.key(0)`.
        samples: the number of samples of the inner layers.
        index: integers [N] that say which training data the inputs are, for likelihoods with `PerDatum` parameters.

    Returns:
        A `Predictive`, or a `JointPredictive` if `full_cov` is set.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if X or `index` does not fit the model, or both covariances are asked for.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> pred = ig.inference.predict(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), [0.2, 0.7])
        >>> pred.mean.shape, float(pred.variance[0, 0].round(6))
        ((2, 1), 1.1)
    """
    X, index = checked_inputs(model, X, index)
    one_covariance(full_cov, output_cov)
    if full_cov:
        mean, cov = joint_moments(model, X, index, key, samples)
        return JointPredictive(model.likelihood, mean, cov, index)
    known = output_cov or model.likelihood.joint
    mean, cov = moments(model, X, index, key, samples, known)
    refused = not known and samples_need_covariance(model, mean)
    if not model.is_stochastic:
        mean, cov = jnp.squeeze(mean, 0), jnp.squeeze(cov, 0)
    return Predictive(model.likelihood, mean, cov, index, correlated=refused)
