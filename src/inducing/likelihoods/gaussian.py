"""Gaussian noise: of a given variance, or of a variance that a second latent function sets."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from inducing.likelihoods.base import PREDICTIVE_NODES, AbstractLikelihood, PerDatum, broadcast, marginal_variance
from inducing.likelihoods.links import AbstractPositiveLink, as_positive_link
from inducing.likelihoods.starts import NOISE_SHARE, LatentStart, start_of_noisy_labels
from inducing.likelihoods.supports import REAL
from inducing.numerics.quadrature import expectation, log_expectation, skewed_nodes
from inducing.numerics.roots import peak_of
from inducing.numerics.special import log_ndtr, quotient
from inducing.parameters import positive

_LOG_2PI = math.log(2 * math.pi)


def _normal_log_prob(y: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * (_LOG_2PI + jnp.log(variance) + quotient((y - mean) ** 2, variance))


class Gaussian(AbstractLikelihood):
    """Gaussian noise. All expectations have closed forms.

        p(y | f) = N(y | f, σ²),    E log p(y | f) = log N(y | mean, σ²) − ½ cov / σ²

    Args:
        variance: σ², one number, one for each output [P], or known noise variances `PerDatum`, which are not trained.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
        >>> print(ig.likelihoods.Gaussian(variance=0.5).expected_log_prob(zero, one, zero).round(4))
        [[-1.5724]]
    """

    variance: Float[Array, "*P"] | PerDatum = positive(1.0)
    adds_noise = True
    joint = False
    supports = (REAL,)

    def num_latents(self, num_outputs: int) -> int:
        return num_outputs

    def gaussian_noise(self, shape: tuple[int, ...], index: Array | None = None) -> Float[Array, "..."]:
        return broadcast(self.variance, shape, index, "variance")

    @property
    def shared_noise(self) -> Float[Array, ""] | None:
        if isinstance(self.variance, PerDatum) or self.variance.size > 1:
            return None
        return self.variance if self.variance.ndim == 0 else self.variance.reshape(())

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_noisy_labels(y, self.variance)

    def check_index(self, index: np.ndarray, seen: np.ndarray) -> None:
        super().check_index(index, seen)
        # Known noise may be 0 where nothing was observed, such as for predictions, but not where there is a label.
        if isinstance(self.variance, PerDatum) and not isinstance(self.variance.values, jax.core.Tracer):
            noise = np.asarray(self.variance.values)[index].reshape(len(index), -1)
            tiny = np.finfo(noise.dtype).tiny  # XLA rounds smaller numbers to 0
            bad = np.flatnonzero(((noise < tiny) & seen).any(axis=1))
            if bad.size:
                least = f"{noise[bad[0]].min():.3g}"
                raise ValueError(
                    f"Gaussian.variance has the value {least} for the datum of index {index[bad[0]]}, which has a "
                    "label; pass noise variances greater than 0."
                )

    def log_prob(self, f, y, *, index=None):
        return _normal_log_prob(y, f, self.gaussian_noise(f.shape, index))

    def expected_log_prob(self, mean, cov, y, *, index=None):
        noise = self.gaussian_noise(mean.shape, index)
        return _normal_log_prob(y, mean, noise) - 0.5 * quotient(marginal_variance(mean, cov), noise)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Normal

        return Normal(f, jnp.sqrt(self.gaussian_noise(f.shape, index)))

    def focus(self, y, *, index=None):
        return y, jnp.sqrt(self.gaussian_noise(y.shape, index))

    def log_tails(self, f, y, *, index=None):
        z = (y - f) / jnp.sqrt(self.gaussian_noise(f.shape, index))
        return log_ndtr(z), log_ndtr(-z)

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        return _normal_log_prob(y, *self.predictive_moments(mean, cov, index=index))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        mean, variance = self.predictive_moments(mean, cov, index=index)
        return ndtr((y - mean) / jnp.sqrt(variance))

    def predictive_moments(self, mean, cov, *, index=None):
        return mean, marginal_variance(mean, cov) + self.gaussian_noise(mean.shape, index)


class HeteroscedasticGaussian(AbstractLikelihood):
    """Gaussian noise whose standard deviation is a function of the inputs too.

        p(y | f) = N(y | f_0, link(f_1)²)

    The first P latents are the means, the next P set the standard deviations. With the link exp the expectation has a
    closed form, also for correlated latents: multiplying N(f_0, f_1) by exp(−2 f_1) shifts f_0 by −2 Cov(f_0, f_1), so

        E[e^{−2 f_1} (y − f_0)²] = e^{−2 m_1 + 2 v_1} ((y − m_0 + 2 c_01)² + v_0).

    Args:
        link: "exp" (or `jnp.exp`), "softplus", or any positive function of arrays.

    Raises:
        ValueError: if `link` is neither a known name nor a function.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> lik = ig.likelihoods.HeteroscedasticGaussian()
        >>> lik.num_latents(1)
        2
        >>> print(lik.log_prob(jnp.zeros((1, 2)), jnp.zeros((1, 1))).round(4))
        [[-0.9189]]
    """

    link: AbstractPositiveLink = eqx.field(converter=as_positive_link, default="exp")
    joint = True
    supports = (REAL,)

    def num_latents(self, num_outputs: int) -> int:
        return 2 * num_outputs

    def start(self, y: np.ndarray) -> LatentStart:
        centre, variance, _ = start_of_noisy_labels(y)
        unknown = np.full_like(centre, np.nan)
        log_noise = 0.5 * np.log(NOISE_SHARE * variance) if self.link.exponential else unknown
        return LatentStart(np.concatenate([centre, log_noise]), np.concatenate([variance, unknown]), [])

    def log_prob(self, f, y, *, index=None):
        P = f.shape[-1] // 2
        log_scale = self.link.log(f[..., P:])
        return -0.5 * (_LOG_2PI + (y - f[..., :P]) ** 2 * jnp.exp(-2 * log_scale)) - log_scale

    def expected_log_prob(self, mean, cov, y, *, index=None):
        m0, m1, v0, v1, c = _split(mean, cov)
        if self.link.exponential:
            return -0.5 * (_LOG_2PI + jnp.exp(2 * (v1 - m1)) * ((y - m0 + 2 * c) ** 2 + v0)) - m1
        slope, rest = regress(v0, v1, c)

        # link(f)⁻² grows at most like e^{−2f} as f falls
        f1, log_w = skewed_nodes(m1, v1, PREDICTIVE_NODES, 2.0)
        log_scale = self.link.log(f1)
        square = (y[None] - m0[None] - slope[None] * (f1 - m1[None])) ** 2 + rest[None]
        terms = 0.5 * square * jnp.exp(log_w - 2 * log_scale) + jnp.exp(log_w) * log_scale
        return -0.5 * _LOG_2PI - jnp.sum(terms, axis=0)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Normal

        P = f.shape[-1] // 2
        return Normal(f[..., :P], self.link(f[..., P:]))

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        m0, m1, v0, v1, c = _split(mean, cov)
        slope, rest = regress(v0, v1, c)

        def log_prob(f1: Array) -> Array:
            return _normal_log_prob(y, m0 + slope * (f1 - m1), rest + self.link(f1) ** 2)

        # The density of a label far from the mean peaks where the noise is as large as that distance.
        peak, width, _ = peak_of(log_prob, m1)
        return log_expectation(log_prob, m1, v1, PREDICTIVE_NODES, peak, width)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        m0, m1, v0, v1, c = _split(mean, cov)
        slope, rest = regress(v0, v1, c)

        def cdf(f1: Array) -> Array:
            return ndtr((y - m0 - slope * (f1 - m1)) / jnp.sqrt(rest + self.link(f1) ** 2))

        return expectation(cdf, m1, v1, PREDICTIVE_NODES)

    def predictive_moments(self, mean, cov, *, index=None):
        m0, m1, v0, v1, _ = _split(mean, cov)
        square = (
            jnp.exp(2 * (m1 + v1)) if self.link.exponential else expectation(lambda f: self.link(f) ** 2, m1, v1, 64)
        )
        return m0, v0 + square


def _split(mean: Array, cov: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Means, variances and covariance of (f_0, f_1) for each output."""
    P = mean.shape[-1] // 2
    variance = marginal_variance(mean, cov)
    cross = jnp.zeros_like(mean[..., :P]) if cov.ndim == mean.ndim else jax.vmap(jnp.diagonal)(cov[:, :P, P:])
    return mean[..., :P], mean[..., P:], variance[..., :P], variance[..., P:], cross


def regress(v0: Array, v1: Array, c: Array) -> tuple[Array, Array]:
    """E[f_0 | f_1] = m_0 + slope (f_1 − m_1), with variance `rest`."""
    slope = jnp.where(v1 > 0, c / jnp.where(v1 > 0, v1, 1.0), 0.0)
    return slope, jnp.maximum(v0 - slope * c, 0.0)
