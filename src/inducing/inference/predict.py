"""Predictions: q(f) and p(y) at new inputs, in blocks for any number of them, jointly on request, or as functions."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from inducing.checks import check_counts, check_model
from inducing.data import as_inputs
from inducing.inference.blocks import ROWS, joint_moments, moments
from inducing.layers.base import AbstractLayer, draw_stack
from inducing.layers.bayesian_dense import BayesianDense
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood, PerDatum
from inducing.likelihoods.gaussian import Gaussian
from inducing.likelihoods.predictive import (
    Predictive,
    as_shape,
    gaussian_log_prob,
    lenient,
    refuse_variances_alone,
    sample_mixture,
    sampling_root,
)
from inducing.likelihoods.supports import fill_missing
from inducing.parameters import as_key, dtype_of
from inducing.priors.latents import in_blocks

if TYPE_CHECKING:
    from inducing.model import Model


class Posterior(eqx.Module):
    """q(f) at N inputs: f_n ~ 1/S Σ_s N(mean_s, cov_s), with S = 1 unless inner layers were sampled.

    `means` is [S, N, P]. `covs` is [S, N, P] (variances), [S, N, P, P] (the outputs of each input jointly, if
    `output_cov` was asked for and they are correlated), or [S, N·P, N·P] (all values jointly, flattened datum by datum,
    for `full_cov`). `correlated` says that outputs are correlated although only their variances are here.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> post = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).posterior([0.2, 0.7], full_cov=True)
    >>> post.mean.shape, post.variance.shape, post.covariance.shape
    ((2, 1), (2, 1), (2, 2))
    """

    means: Float[Array, "S N P"]
    covs: Float[Array, "..."]
    full_cov: bool = eqx.field(static=True)
    output_cov: bool = eqx.field(static=True, default=False)
    correlated: bool = eqx.field(static=True, default=False)

    @property
    def mean(self) -> Float[Array, "N P"]:
        """E[f]."""
        return jnp.mean(self.means, axis=0)

    @property
    def variance(self) -> Float[Array, "N P"]:
        """Var[f] = E[cov_s] + Var[mean_s], by the law of total variance."""
        return jnp.mean(self._variances(), axis=0) + jnp.var(self.means, axis=0)

    @property
    def covariance(self) -> Float[Array, "NP NP"] | Float[Array, "N P P"]:
        """Cov[f] = E[cov_s] + Cov[mean_s]: [N·P, N·P] for `full_cov`, flattened datum by datum; [N, P, P] for
        `output_cov`."""
        centred = self.means - self.mean[None]
        if self.full_cov:
            flat = centred.reshape(len(centred), -1)
            return jnp.mean(self.covs, axis=0) + flat.T @ flat / len(flat)
        if not self.output_cov:
            raise ValueError(
                "only variances were computed; use posterior(X, full_cov=True) for the covariance of all values "
                "or posterior(X, output_cov=True) for that of the outputs at each input."
            )
        within = jnp.mean(self.covs, axis=0)
        if self.covs.ndim == 3:  # uncorrelated outputs
            within = within[..., None] * jnp.eye(within.shape[1], dtype=within.dtype)[None]
        return within + jnp.einsum("snp,snq->npq", centred, centred) / len(centred)

    def interval(self, level: float = 0.95) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """The central interval of each value of f that holds probability `level`."""
        noiseless = Gaussian(PerDatum(jnp.zeros(1), jnp.zeros(())))
        return Predictive(noiseless, self.means, self._variances()).interval(level)

    def sample(self, key: Array, shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Values of f: joint over all inputs and outputs for `full_cov`, else over the outputs of each input.

        Correlated outputs need one of `posterior(X, output_cov=True)` and `posterior(X, full_cov=True)`.
        """
        key = as_key(key)
        if self.full_cov:
            return _sample_joint(self.means, self.covs, key, as_shape(shape))
        refuse_variances_alone(self.correlated, "posterior")
        return sample_mixture(self.means, self.covs, key, as_shape(shape))

    def _variances(self) -> Float[Array, "S N P"]:
        if self.full_cov or self.covs.ndim == 4:
            return jnp.diagonal(self.covs, axis1=-2, axis2=-1).reshape(self.means.shape)
        return self.covs


class JointPredictive(eqx.Module):
    """The joint distribution of the labels at N inputs.

        p(y_1, …, y_N) = 1/S Σ_s E[ Π_n p(y_n | f_n) ],    f ~ N(mean_s, cov_s)

    `sample` and `log_prob` are joint; mean, variance, quantiles and intervals are those of each label by itself.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> pred = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).predict([0.2, 0.7], full_cov=True)
    >>> pred.log_prob([0.0, 0.1]).shape, pred.mean.shape
    ((), (2, 1))
    """

    likelihood: AbstractLikelihood
    latent_mean: Float[Array, "S N F"]
    latent_cov: Float[Array, "S NF NF"]
    index: Int[Array, " N"] | None = None

    @property
    def marginal(self) -> Predictive:
        """The predictive distribution of each input by itself, its outputs jointly."""
        S, N, F = self.latent_mean.shape
        blocks = self.latent_cov.reshape(S, N, F, N, F)
        cov = jnp.moveaxis(jnp.diagonal(blocks, axis1=1, axis2=3), -1, 1)
        return Predictive(self.likelihood, self.latent_mean, cov, self.index)

    @property
    def mean(self) -> Float[Array, "N P"]:
        """E[y]."""
        return self.marginal.mean

    @property
    def variance(self) -> Float[Array, "N P"]:
        """Var[y]."""
        return self.marginal.variance

    def quantile(self, q: float) -> Float[Array, "N P"]:
        """The quantile q of each label by itself."""
        return self.marginal.quantile(q)

    def interval(self, level: float = 0.95) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """The central interval of each label by itself that holds probability `level`."""
        return self.marginal.interval(level)

    def cdf(self, y: Any) -> Float[Array, "N P"]:
        """P(label ≤ y), of each label by itself."""
        return self.marginal.cdf(y)

    def log_prob(self, y: Any, *, key: Array | None = None, samples: int = 1000) -> Float[Array, ""]:
        """log p(y_1, …, y_N), one number for all labels; missing ones (NaN) are left out.

        Closed form for Gaussian likelihoods; else the log-mean-exp over `samples` joint samples of f from `key`
        (default `jax.random.key(0)`), whose expectation is below the truth and reaches it with the samples.
        """
        y = self.marginal._labels(y)
        self.likelihood.check(y, index=self.index)
        y, present = fill_missing(y, self.likelihood.fill)
        noise = self.likelihood.gaussian_noise(y.shape, self.index)
        if noise is not None:
            logs = jax.vmap(lambda m, c: gaussian_log_prob(y, m, c, noise, present))(self.latent_mean, self.latent_cov)
        else:
            f = _sample_joint(self.latent_mean, self.latent_cov, as_key(key), (samples,))

            def one(f):
                each = self.likelihood.log_prob(f, y, index=self.index)
                return jnp.sum(jnp.where(present, each, 0.0))

            logs = jax.lax.map(one, f, batch_size=100)
        return jax.nn.logsumexp(logs) - jnp.log(jnp.asarray(len(logs), logs.dtype))

    def sample(self, key: Array, shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Labels drawn jointly over the inputs."""
        latent, label = jax.random.split(as_key(key))
        f = _sample_joint(self.latent_mean, self.latent_cov, latent, as_shape(shape))
        with lenient():
            return self.likelihood.distribution(f, index=self.index).sample(label).astype(f.dtype)


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
    """The distribution p(y | X) of labels at new inputs X [N, D] (or [N]: one dimension; None: a model without inputs).

    A model with one layer needs no sampling. A deep one is a mixture of `samples` Gaussians, from as many samples of
    its inner layers, by `key` (default `jax.random.key(0)`: the same call gives the same answer). `index` says which
    training data the inputs are, for likelihoods with `PerDatum` parameters. Latent variables come from their prior
    p(h), whatever an encoder of y or of the index says, or from q(h | x) if their encoder sees only inputs. Inputs are
    processed in blocks, so that memory beyond the result is bounded for any N. What is known of the P latents:

        predict(X)                     their variances [N, P] (covariances if the likelihood mixes them): each label
        predict(X, output_cov=True)    their covariance [N, P, P] at each input: the labels of an input jointly
        predict(X, full_cov=True)      their covariance [N·P, N·P]: all labels jointly, a `JointPredictive`

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> pred = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).predict([0.2, 0.7])
    >>> pred.mean.shape, float(pred.variance[0, 0].round(6))
    ((2, 1), 1.1)
    """
    X, index = _checked(model, X, index)
    _one_of(full_cov, output_cov)
    if full_cov:
        mean, cov = joint_moments(model, X, index, key, samples)
        return JointPredictive(model.likelihood, mean, cov, index)
    known = output_cov or model.likelihood.joint
    mean, cov = moments(model, X, index, key, samples, known)
    mean, cov = (mean, cov) if model.is_stochastic else (jnp.squeeze(a, 0) for a in (mean, cov))
    return Predictive(model.likelihood, mean, cov, index, correlated=not known and _correlated(model.layers[-1]))


def posterior(
    model: "Model",
    X: Any,
    *,
    full_cov: bool = False,
    output_cov: bool = False,
    key: Array | None = None,
    samples: int = 100,
) -> Posterior:
    """q(f) at new inputs, of the last layer's P outputs: mean, variance and, as asked, covariance.

        posterior(X)                     variances [N, P]
        posterior(X, output_cov=True)    and the covariance [N, P, P] of the outputs at each input
        posterior(X, full_cov=True)      and the covariance [N·P, N·P] of all values, flattened datum by datum

    Samples respect the covariance that was asked for. For a deep model q(f) is a mixture over `samples` samples of the
    inner layers (see `predict`); mean, variance and covariance are those of the mixture, by the laws of total
    expectation and variance.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> float(ig.Model(gp, ig.likelihoods.Gaussian(0.1)).posterior([0.2]).variance[0, 0].round(6))
    1.0
    >>> two = ig.SparseGP(ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52()), gp.features)
    >>> ig.Model(two, ig.likelihoods.Gaussian(0.1)).posterior([0.2], output_cov=True).covariance.round(6).tolist()
    [[[1.0, 2.0], [2.0, 4.0]]]
    """
    X, index = _checked(model, X, None)
    _one_of(full_cov, output_cov)
    if full_cov:
        return Posterior(*joint_moments(model, X, index, key, samples), full_cov=True)
    mean, cov = moments(model, X, index, key, samples, output_cov)
    return Posterior(mean, cov, False, output_cov, correlated=not output_cov and _correlated(model.layers[-1]))


def _one_of(full_cov: bool, output_cov: bool) -> None:
    if full_cov and output_cov:
        raise ValueError("full_cov=True holds the covariance of the outputs too; leave output_cov out.")


def _correlated(layer: AbstractLayer) -> bool:
    """Whether outputs at one input are correlated."""
    if isinstance(layer, SparseGP):
        return layer.correlated
    return isinstance(layer, BayesianDense) and layer.root is not None and layer.mean.shape[1] > 1


def draw(model: "Model", key: Array, num_features: int = 1024) -> Callable[[Any], Float[Array, "N P"]]:
    """One function f of the posterior: f(X) [N, P] at any inputs X, always the same f.

    Each layer is drawn by pathwise conditioning (Matheron's rule): a prior draw from `num_features` random features
    of the kernel, plus the update that makes its inducing variables a sample of q(u). The mean over draws is that of
    q(f) exactly; the covariance too, in expectation over the random features (the frequencies of a Matérn 3/2 process
    have no fourth moment, so that over draws the sample variance of its slopes converges slowly). A kernel without
    random features (one given by its values alone) raises a TypeError; sample at fixed inputs by
    `posterior(X, full_cov=True)`.
    A latent variable has one value for all inputs (for an encoder of x, one noise), while in
    `posterior(X, full_cov=True)` every input has its own.

    >>> import jax
    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> f = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).draw(jax.random.key(0))
    >>> bool(abs(f([0.2, 0.7])[1, 0] - f([0.7])[0, 0]) < 1e-12)
    True
    """
    check_model(model)
    check_counts(num_features=num_features)
    key = as_key(key)

    def drawn(dim: int) -> Callable:
        return draw_stack(model.layers, key, num_features, dim)

    dim = _input_dim(model)
    kept = {} if dim is None else {dim: drawn(dim)}  # a kernel that cannot be drawn is refused here

    def f(X: Any) -> Float[Array, "N P"]:
        X, _ = _checked(model, X, None)
        one_block = kept.get(X.shape[1]) or drawn(X.shape[1])
        if not isinstance(jnp.zeros(()), jax.core.Tracer):  # under jit, what was drawn may not be kept
            kept[X.shape[1]] = one_block
        return in_blocks(one_block, X, ROWS)

    return f


def _checked(model: "Model", X: Any, index: Any) -> tuple[Float[Array, "N D"], Int[Array, " N"] | None]:
    check_model(model)
    if X is None:  # a model without inputs: one datum, or as many as the index names
        X = jnp.zeros((1 if index is None else len(index), 0), dtype_of(model))
    else:
        X = as_inputs(X, dtype_of(model))
    dim = _input_dim(model)
    if dim is None:
        model.width(X.shape[1])
    elif X.shape[1] != dim:
        raise ValueError(
            f"X has {X.shape[1]} column{'s' * (X.shape[1] != 1)} but the model's inputs have {dim}; "
            f"pass X of shape [N, {dim}]."
        )
    model.check_inputs(X)
    return X, None if index is None else _checked_index(model, index, len(X))


def _checked_index(model: "Model", index: Any, rows: int) -> Int[Array, " N"]:
    index = index if isinstance(index, jax.Array) else np.asarray(index)
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(f"index must hold whole numbers, the rows of training data, got dtype {index.dtype}.")
    if index.shape != (rows,):
        raise ValueError(f"index must have one entry per row of X, shape ({rows},), got {tuple(index.shape)}.")
    parts = jax.tree.leaves(model.likelihood, is_leaf=lambda v: isinstance(v, PerDatum))
    for N in {part.values.shape[0] for part in parts if isinstance(part, PerDatum)}:
        wrong = [] if isinstance(index, jax.core.Tracer) else [i for i in np.asarray(index) if not 0 <= i < N]
        if wrong:
            raise ValueError(
                f"index holds {wrong[0]}, but the likelihood has PerDatum values for data 0 to {N - 1}; "
                "leave index out for new inputs."
            )
    return jnp.asarray(index, int)


def _input_dim(model: "Model") -> int | None:
    """D, where the first layer's features tell."""
    layer = model.layers[0]
    if not isinstance(layer, SparseGP):
        return None
    features = layer.features[0] if isinstance(layer.features, tuple) else layer.features
    Z = getattr(features, "Z", None)
    return layer.prior.input_columns(Z.shape[1]) if Z is not None and Z.ndim == 2 else None


def _sample_joint(means: Array, covs: Array, key: Array, shape: tuple[int, ...]) -> Array:
    """Values [*shape, N, F] of the mixture, jointly: one component for all inputs."""
    S, N, F = means.shape
    pick, noise = jax.random.split(key)
    s = jax.random.randint(pick, shape, 0, S)
    roots = jax.vmap(sampling_root)(covs)
    z = jax.random.normal(noise, (*shape, N * F), means.dtype)
    flat = z @ roots[0].T if S == 1 else jnp.einsum("...ij,...j->...i", roots[s], z)
    return means[s] + flat.reshape(*shape, N, F)
