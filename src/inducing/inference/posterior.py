"""q(f) at new inputs."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.checks import checked_inputs
from inducing.inference.blocks import joint_moments, moments, one_covariance, rows_of, samples_need_covariance
from inducing.inference.joint import sample_jointly
from inducing.inference.sources import Joint, Marginals
from inducing.likelihoods.base import PerDatum
from inducing.likelihoods.gaussian import Gaussian
from inducing.likelihoods.predictive import Predictive
from inducing.likelihoods.sampling import as_shape, refuse_variances_alone, sample_mixture
from inducing.parameters import as_key

if TYPE_CHECKING:
    from inducing.model import Model


class Posterior(eqx.Module):
    """The approximate posterior q(f) at N inputs, as `Model.posterior` returns it.

        f_n ~ 1/S Σ_s N(mean_s, cov_s)

    S is 1 unless inner layers were sampled.

    Args:
        means: the means [S, N, P] of the components.
        covs: their covariances: [S, N, P] (variances), [S, N, P, P] (of the outputs at each input) or [S, N·P, N·P]
            (of all values, flattened datum by datum).
        full_cov: whether `covs` holds the covariance of all values.
        output_cov: whether the covariance of the outputs at each input was asked for. It is [S, N, P] if they are not
            correlated.
        correlated: whether the outputs may be correlated although `covs` holds only variances. Sampling is then
            refused.
        source: a function (key, shape) that draws f [*shape, N, P] anew, for `sample`. Without one f is drawn from the
            components.

    Examples:
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
    source: Any = None

    @property
    def mean(self) -> Float[Array, "N P"]:
        """The mean E[f]."""
        return jnp.mean(self.means, axis=0)

    @property
    def variance(self) -> Float[Array, "N P"]:
        """The variance Var[f] = E[cov_s] + Var[mean_s], by the law of total variance."""
        return jnp.mean(self._variances(), axis=0) + jnp.var(self.means, axis=0)

    @property
    def covariance(self) -> Float[Array, "NP NP"] | Float[Array, "N P P"]:
        """The covariance Cov[f] = E[cov_s] + Cov[mean_s].

        It is [N·P, N·P], flattened datum by datum, for `full_cov`, and [N, P, P] for `output_cov`. With neither of
        them this raises a ValueError.
        """
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
        """The central interval of each value of f.

        Args:
            level: the probability that the interval holds.

        Returns:
            Its lower and upper ends, [N, P] each.
        """
        noiseless = Gaussian(PerDatum(jnp.zeros(1), jnp.zeros(())))
        return Predictive(noiseless, self.means, self._variances()).interval(level)

    def sample(self, key: Array, shape: int | tuple[int, ...] = ()) -> Float[Array, "... N P"]:
        """Values of f, sampled jointly as far as covariances were computed.

        With `full_cov` samples are joint over all inputs and outputs, else over the outputs at each input. If inner
        layers are sampled, they are sampled again for each sample.

        Args:
            key: a random key.
            shape: the number of samples, or a shape of samples.

        Returns:
            Samples [*shape, N, P].

        Raises:
            ValueError: if the outputs may be correlated and only variances were computed.
        """
        key, shape = as_key(key), as_shape(shape, self.means[0])
        if not self.full_cov:
            refuse_variances_alone(self.correlated, "posterior")
        if self.source is not None:
            return self.source(key, shape)
        if self.full_cov:
            return sample_jointly(self.means, self.covs, key, shape)
        return sample_mixture(self.means, self.covs, key, shape)

    def _variances(self) -> Float[Array, "S N P"]:
        if self.full_cov or self.covs.ndim == 4:
            return jnp.diagonal(self.covs, axis1=-2, axis2=-1).reshape(self.means.shape)
        return self.covs


def posterior(
    model: "Model",
    X: Any,
    *,
    full_cov: bool = False,
    output_cov: bool = False,
    key: Array | None = None,
    samples: int | None = None,
) -> Posterior:
    """The approximate posterior q(f(X)) of the last layer's P outputs; the same as `Model.posterior`.

    Args:
        model: an `ig.Model`.
        X: inputs [N, D], or [N] for one column. None for a model without inputs.
        full_cov: whether to compute the covariance [N·P, N·P] of all values, flattened datum by datum.
        output_cov: whether to compute the covariance [N, P, P] of the outputs at each input.
        key: a random key for the samples of inner layers, by default `jax.random.key(0)`.
        samples: the number of samples of the inner layers, by default 1,024 if there are latent variables, else 100.

    Returns:
        A `Posterior`. For a deep model it is a mixture over the samples of the inner layers.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if X does not fit the model, or both covariances are asked for.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> post = ig.inference.posterior(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), [0.2])
        >>> float(post.variance[0, 0].round(6))
        1.0
    """
    X, _ = checked_inputs(model, X)
    full_cov, output_cov = one_covariance(full_cov, output_cov)
    data = rows_of(X, None)
    if full_cov:
        source = Joint(model, data) if model.is_stochastic else None
        return Posterior(*joint_moments(model, data, key, samples), full_cov=True, source=source)
    mean, cov = moments(model, data, key, samples, output_cov)
    refused = not output_cov and samples_need_covariance(model, mean)
    source = Marginals(model, data, output_cov) if model.is_stochastic else None
    return Posterior(mean, cov, False, output_cov, correlated=refused, source=source)
