"""The joint predictive distribution of the labels at several inputs."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from inducing._xla import default_jit
from inducing.data import Data
from inducing.inference.blocks import LATENT_DRAWS, inputs, joint_moments, latent_dim, moments
from inducing.inference.estimates import Estimate as Estimate
from inducing.inference.estimates import exact, of_mean, of_product, warn_if_poor
from inducing.inference.particles import functions, particle_logs
from inducing.inference.sources import Joint, Marginals, Stack
from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.predictive import Predictive, gaussian_log_prob, labels_given
from inducing.likelihoods.sampling import as_shape, sampling_root
from inducing.likelihoods.supports import fill_missing
from inducing.parameters import as_key, at_least_one

if TYPE_CHECKING:
    from inducing.model import Model

SETS = 8  # independent sets of draws of each latent variable, of which the spread gives a standard error


class JointPredictive(eqx.Module):
    """The joint distribution of the labels at N inputs, as `Model.predict(X, full_cov=True)` returns it.

        p(y_1, …, y_N) = E[ Π_n p(y_n | f_n) ]

    The expectation is over all random functions, and over a latent variable of each datum. `sample` and `log_prob` are
    joint over all labels. Mean, variance, quantiles and intervals are those of each label by itself.

    Args:
        likelihood: p(y | f).
        latent_mean: the means [S, N, F] of the latent functions, a mixture if inner layers were sampled; None if there
            are latent variables.
        latent_cov: their covariances [S, N·F, N·F], flattened datum by datum, or None.
        index: integers [N] that say which training data the rows are, or None.
        stack: the layers to sample again, or None if there is nothing to sample but f.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> pred = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).predict([0.2, 0.7], full_cov=True)
        >>> pred.log_prob([0.0, 0.1]).shape, pred.mean.shape
        ((), (2, 1))
    """

    likelihood: AbstractLikelihood
    latent_mean: Float[Array, "S N F"] | None
    latent_cov: Float[Array, "S NF NF"] | None
    index: Int[Array, " N"] | None = None
    stack: Stack | None = None

    @property
    def marginal(self) -> Predictive:
        """The predictive distribution at each input by itself, joint over its outputs."""
        source = None if self.stack is None else Marginals(self.stack.model, self.stack.data, True)
        if self.latent_mean is None or self.latent_cov is None:
            model, data, key, samples = self._stack
            mean, cov = moments(model, data, key, samples, True)
            return Predictive(self.likelihood, mean, cov, self.index, source=source)
        S, N, F = self.latent_mean.shape
        blocks = self.latent_cov.reshape(S, N, F, N, F)
        cov = jnp.moveaxis(jnp.diagonal(blocks, axis1=1, axis2=3), -1, 1)
        return Predictive(self.likelihood, self.latent_mean, cov, self.index, source=source)

    @property
    def mean(self) -> Float[Array, "N P"]:
        """The mean E[y] of each label."""
        return self.marginal.mean

    @property
    def variance(self) -> Float[Array, "N P"]:
        """The variance Var[y] of each label."""
        return self.marginal.variance

    def quantile(self, q: float) -> Float[Array, "N P"]:
        """The quantile q of each label by itself."""
        return self.marginal.quantile(q)

    def interval(self, level: float = 0.95) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """The central interval of each label by itself that holds probability `level`."""
        return self.marginal.interval(level)

    def cdf(self, y: Any) -> Float[Array, "N P"]:
        """The probability P(label ≤ y) of each label by itself."""
        return self.marginal.cdf(y)

    def crps(self, y: Any) -> Float[Array, "N P"]:
        """The continuous ranked probability score of each label by itself."""
        return self.marginal.crps(y)

    def log_prob(self, y: Any, *, key: Array | None = None, samples: int | None = None) -> Float[Array, ""]:
        """The joint log density log p(y_1, …, y_N).

        It has a closed form for Gaussian likelihoods where no inner layer is sampled. Elsewhere it is the value of
        `estimate`, with a warning if its effective sample size is small.

        Args:
            y: labels [N, P]; missing ones (NaN) are left out.
            key: a random key for the estimate, by default `jax.random.key(0)`.
            samples: the number of samples of the estimate.

        Returns:
            One number for all labels.
        """
        estimate = self.estimate(y, key=key, samples=samples)
        warn_if_poor(estimate, "raise `samples`, or take fewer inputs at a time")
        return estimate.value

    def estimate(self, y: Any, *, key: Array | None = None, samples: int | None = None) -> Estimate:
        """The joint log density, with a standard error and an effective sample size.

        An unbiased estimate of the density, of which this is the logarithm, is for models

        - without latent variables: the mean over samples of the functions below the last layer, or of f if the noise
          is not Gaussian;
        - of latent variables and deterministic layers: the product over data of means over draws of h_n, by lattices
          that are shifted independently for each datum;
        - of latent variables and random functions: that of particle filters, which go through the data one by one and
          condition the functions on what they have seen. Their cost grows as N³.

        Args:
            y: labels [N, P]; missing ones (NaN) are left out.
            key: a random key, by default `jax.random.key(0)`.
            samples: the number of samples: of f (by default 1,000; for Gaussian noise, those that `predict` took), of
                each latent variable (8,192), or of particles (512), which try 32 values of h for each datum.

        Returns:
            The value, its standard error and its effective sample size.

        Raises:
            ValueError: if labels have the wrong shape or lie outside the support of the likelihood.

        Examples:
            >>> import inducing as ig
            >>> model = ig.Model([ig.LatentVariable(1), ig.Deterministic(jnp.tanh)], ig.likelihoods.Gaussian(0.1))
            >>> estimate = model.predict(None, full_cov=True).estimate([[0.3]])
            >>> bool(estimate.standard_error < 1e-3), bool(estimate.effective_sample_size > 1000)
            (True, True)
        """
        if samples is not None:
            at_least_one("samples", samples)
        if key is not None:
            as_key(key)
        y = self._labels(y)
        self.likelihood.check(y, index=self.index)
        y, present = fill_missing(y, self.likelihood.fill)
        if self.latent_mean is not None and self.latent_cov is not None:
            return _of_functions(self, self.latent_mean, self.latent_cov, y, present, key, samples or 1000)
        model, data, _, _ = self._stack
        if functions(model, data):
            return of_mean(particle_logs(model, data, y, present, key, samples or 512))
        return _of_latents(self, y, present, as_key(key), -(-samples // SETS) if samples else LATENT_DRAWS)

    def sample(self, key: Array, shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Labels sampled jointly over the inputs.

        A model whose inner layers are sampled is run again for each sample, so that all samples are independent.

        Args:
            key: a random key.
            shape: the number of samples, or a shape of samples.

        Returns:
            Samples [*shape, N, P].
        """
        latent, label = jax.random.split(as_key(key))
        if self.stack is not None:
            f = Joint(self.stack.model, self.stack.data)(latent, as_shape(shape, self.stack.data.index))
        else:
            assert self.latent_mean is not None and self.latent_cov is not None  # since nothing else is sampled
            f = sample_jointly(self.latent_mean, self.latent_cov, latent, as_shape(shape, self.latent_mean[0]))
        return labels_given(self.likelihood, f, self.index, label)

    @property
    def _stack(self) -> tuple["Model", Data, Array | None, int | None]:
        assert self.stack is not None  # since there are latent variables
        return self.stack.model, self.stack.data, self.stack.key, self.stack.samples

    def _labels(self, y: Any) -> Array:
        if self.latent_mean is not None:
            f = self.latent_mean[0]
        else:
            model, data, _, _ = self._stack
            x = inputs(data)
            f = jnp.zeros((len(data), model.width(x.shape[1])), x.dtype)
        return Predictive(self.likelihood, f, f, self.index)._labels(y)


def joint_predictive(
    model: "Model", data: Data, index: Array | None, key: Array | None, samples: int | None
) -> JointPredictive:
    """The joint predictive distribution at checked rows of data.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model(ig.Deterministic(jnp.sin), ig.likelihoods.Gaussian(0.1))
        >>> joint_predictive(model, ig.Data(jnp.zeros((2, 1))), None, None, None).mean.tolist()
        [[0.0], [0.0]]
    """
    stack = Stack(model, data, key, samples) if model.is_stochastic else None
    if latent_dim(model):
        return JointPredictive(model.likelihood, None, None, index, stack)
    return JointPredictive(model.likelihood, *joint_moments(model, data, key, samples), index, stack)


def _of_functions(
    pred: JointPredictive, means: Array, covs: Array, y: Array, present: Array, key: Array | None, samples: int
) -> Estimate:
    """From Gaussian components for all labels together: exact if there is one and the noise is Gaussian."""
    noise = pred.likelihood.gaussian_noise(y.shape, pred.index)
    if noise is not None:
        logs = jax.vmap(lambda m, c: gaussian_log_prob(y, m, c, noise, present))(means, covs)
        return exact(logs[0]) if len(logs) == 1 else of_mean(logs)
    f = sample_jointly(means, covs, as_key(key), (samples,))
    return of_mean(jnp.sum(_log_probs(pred.likelihood, f, y, present, pred.index), axis=1))


def _of_latents(pred: JointPredictive, y: Array, present: Array, key: Array, samples: int) -> Estimate:
    """From draws of the latent variable of each datum, given which the data are independent of each other."""
    (model, data, _, _), sets = pred._stack, []
    for own in jax.random.split(key, SETS):
        f, _ = moments(model, data, own, samples, False, shared=False)
        sets.append(_log_probs(pred.likelihood, f, y, present, pred.index))
    return of_product(jnp.stack(sets))


@default_jit
def _log_probs(
    likelihood: AbstractLikelihood, f: Array, y: Array, present: Array, index: Array | None
) -> Float[Array, "S N"]:
    """log p(y_n | f_n) of each datum for each of S values of f [S, N, F], summed over the labels that are present."""
    each = jax.lax.map(lambda f: likelihood.log_prob(f, y, index=index), f, batch_size=100)
    return jnp.sum(jnp.where(present[None], each, 0.0), axis=2)


def sample_jointly(means: Array, covs: Array, key: Array, shape: tuple[int, ...]) -> Array:
    """Samples [*shape, N, F] of a mixture of Gaussians, with one component for all inputs of a sample."""
    S, N, F = means.shape
    pick, noise = jax.random.split(key)
    s = jax.random.randint(pick, shape, 0, S)
    roots = jax.vmap(sampling_root)(covs)
    z = jax.random.normal(noise, (*shape, N * F), means.dtype)
    flat = z @ roots[0].T if S == 1 else jnp.einsum("...ij,...j->...i", roots[s], z)
    return means[s] + flat.reshape(*shape, N, F)
