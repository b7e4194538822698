"""The predictive distribution of labels at new inputs."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array

from inducing.checks import checked_data, checked_inputs
from inducing.data import Data
from inducing.inference.blocks import moments, one_covariance, rows_of, samples_need_covariance
from inducing.inference.joint import JointPredictive, joint_predictive
from inducing.inference.sources import Marginals
from inducing.likelihoods.predictive import Predictive
from inducing.model import enter

if TYPE_CHECKING:
    from inducing.model import Model


def predict(
    model: "Model",
    X: Any,
    *,
    full_cov: bool = False,
    output_cov: bool = False,
    key: Array | None = None,
    samples: int | None = None,
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
        samples: the number of samples of the inner layers, by default 1,024 if there are latent variables, else 100.
        index: integers [N] that say which training data the inputs are, for likelihoods with `PerDatum` parameters.

    Returns:
        A `Predictive`, or a `JointPredictive` if `full_cov` is set.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if X or `index` does not fit the model, both covariances are asked for, or `index` is given and an
            encoder has q(h) for each training datum: see `reconstruct`.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> pred = ig.inference.predict(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), [0.2, 0.7])
        >>> pred.mean.shape, float(pred.variance[0, 0].round(6))
        ((2, 1), 1.1)
    """
    X, index = checked_inputs(model, X, index)
    full_cov, output_cov = one_covariance(full_cov, output_cov)
    if index is not None and any("index" in encoder.sees for layer in model.layers for encoder in layer.encoders()):
        raise ValueError(
            "index names training data, whose latent variables are known by q(h), but a prediction is for new data, "
            "with h from its prior; use model.reconstruct(data) for known data, or leave index out for new ones."
        )
    return predictive(model, rows_of(X, index), index, full_cov, output_cov, key, samples)


def reconstruct(
    model: "Model",
    data: Any,
    *,
    full_cov: bool = False,
    output_cov: bool = False,
    key: Array | None = None,
    samples: int | None = None,
) -> Predictive | JointPredictive:
    """The distribution of labels of known data, with latent variables from q(h | data); as `Model.reconstruct`.

        p(y*_n | data) = E p(y*_n | f(x_n, h_n)),    h_n ~ q(h_n | data),  f ~ q(f)

    Args:
        model: an `ig.Model`.
        data: `(X, y)` or an `ig.Data`; labels that are missing (NaN) are to be imputed.
        full_cov: whether to compute the covariance [N·F, N·F] of all F latent functions at all data.
        output_cov: whether to compute the covariance [N, F, F] of the latent functions of each datum.
        key: a random key for the samples of inner layers, by default `jax.random.key(0)`.
        samples: the number of samples of the inner layers, by default 1,024 if there are latent variables, else 100.

    Returns:
        A `Predictive`, or a `JointPredictive` if `full_cov` is set.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if the data do not fit the model, or both covariances are asked for.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder([[-1.0], [2.0]], scale=0.1))
        >>> model = ig.Model([latent, ig.Deterministic(lambda h: h * jnp.ones(2))], ig.likelihoods.Gaussian(0.01))
        >>> print(ig.inference.reconstruct(model, (None, [[-1.1, float("nan")], [2.2, 1.9]])).mean.round(3))
        [[-1. -1.]
         [ 2.  2.]]
    """
    data = checked_data(model, data)
    full_cov, output_cov = one_covariance(full_cov, output_cov)
    data = Data(enter(model, data)[:, 0], data.y, data.mask, data.index)
    return predictive(model, data, data.index, full_cov, output_cov, key, samples)


def predictive(
    model: "Model",
    data: Data,
    index: Array | None,
    full_cov: bool,
    output_cov: bool,
    key: Array | None,
    samples: int | None,
) -> Predictive | JointPredictive:
    """The predictive distribution at checked rows of data; with labels, h comes from q(h | data).

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> model = ig.Model(ig.Deterministic(jnp.sin), ig.likelihoods.Gaussian(0.1))
        >>> predictive(model, ig.Data(jnp.zeros((2, 1))), None, False, False, None, None).mean.tolist()
        [[0.0], [0.0]]
    """
    if full_cov:
        return joint_predictive(model, data, index, key, samples)
    known = output_cov or model.likelihood.joint
    mean, cov = moments(model, data, key, samples, known)
    refused = not known and samples_need_covariance(model, mean)
    source = Marginals(model, data, known) if model.is_stochastic else None
    if source is None:
        mean, cov = jnp.squeeze(mean, 0), jnp.squeeze(cov, 0)
    return Predictive(model.likelihood, mean, cov, index, refused, source)
