"""The joint predictive distribution of the labels at several inputs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.predictive import Predictive, gaussian_log_prob
from inducing.likelihoods.sampling import as_shape, lenient, sampling_root
from inducing.likelihoods.supports import fill_missing
from inducing.parameters import as_key


class JointPredictive(eqx.Module):
    """The joint distribution of the labels at N inputs, as `Model.predict(X, full_cov=True)` returns it.

        p(y_1, …, y_N) = 1/S Σ_s E[ Π_n p(y_n | f_n) ],    f ~ N(mean_s, cov_s)

    `sample` and `log_prob` are joint over all labels. Mean, variance, quantiles and intervals are those of each label
    by itself.

    Args:
        likelihood: p(y | f).
        latent_mean: the means [S, N, F] of the latent functions.
        latent_cov: their covariances [S, N·F, N·F], flattened datum by datum.
        index: integers [N] that say which training data the inputs are, or None.

    Examples:
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
        """The predictive distribution at each input by itself, joint over its outputs."""
        S, N, F = self.latent_mean.shape
        blocks = self.latent_cov.reshape(S, N, F, N, F)
        cov = jnp.moveaxis(jnp.diagonal(blocks, axis1=1, axis2=3), -1, 1)
        return Predictive(self.likelihood, self.latent_mean, cov, self.index)

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

    def log_prob(self, y: Any, *, key: Array | None = None, samples: int = 1000) -> Float[Array, ""]:
        """The joint log density log p(y_1, …, y_N).

        It has a closed form for Gaussian likelihoods. For others it is the log-mean-exp over samples of f: its
        expectation is below the true value, and tends to it as the number of samples grows.

        Args:
            y: labels [N, P]; missing ones (NaN) are left out.
            key: a random key for the samples of f, by default `jax.random.key(0)`.
            samples: the number of samples of f.

        Returns:
            One number for all labels.
        """
        y = self.marginal._labels(y)
        self.likelihood.check(y, index=self.index)
        y, present = fill_missing(y, self.likelihood.fill)
        noise = self.likelihood.gaussian_noise(y.shape, self.index)
        if noise is not None:
            logs = jax.vmap(lambda m, c: gaussian_log_prob(y, m, c, noise, present))(self.latent_mean, self.latent_cov)
        else:
            f = sample_jointly(self.latent_mean, self.latent_cov, as_key(key), (samples,))

            def one(f):
                each = self.likelihood.log_prob(f, y, index=self.index)
                return jnp.sum(jnp.where(present, each, 0.0))

            logs = jax.lax.map(one, f, batch_size=100)
        return jax.nn.logsumexp(logs) - jnp.log(jnp.asarray(len(logs), logs.dtype))

    def sample(self, key: Array, shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Labels sampled jointly over the inputs.

        Args:
            key: a random key.
            shape: the number of samples, or a shape of samples.

        Returns:
            Samples [*shape, N, P].
        """
        latent, label = jax.random.split(as_key(key))
        f = sample_jointly(self.latent_mean, self.latent_cov, latent, as_shape(shape))
        with lenient():
            return self.likelihood.distribution(f, index=self.index).sample(label).astype(f.dtype)


def sample_jointly(means: Array, covs: Array, key: Array, shape: tuple[int, ...]) -> Array:
    """Samples [*shape, N, F] of a mixture of Gaussians, with one component for all inputs of a sample."""
    S, N, F = means.shape
    pick, noise = jax.random.split(key)
    s = jax.random.randint(pick, shape, 0, S)
    roots = jax.vmap(sampling_root)(covs)
    z = jax.random.normal(noise, (*shape, N * F), means.dtype)
    flat = z @ roots[0].T if S == 1 else jnp.einsum("...ij,...j->...i", roots[s], z)
    return means[s] + flat.reshape(*shape, N, F)
