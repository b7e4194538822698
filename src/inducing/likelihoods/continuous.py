"""Likelihoods of continuous labels: real numbers with heavy tails, positive numbers, and shares."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammainc, gammaincc, gammaln, ndtr
from jaxtyping import Array, Float

from inducing import parameters
from inducing.likelihoods.base import (
    BEND,
    PREDICTIVE_NODES,
    AbstractElementwise,
    AbstractLikelihood,
    broadcast,
    exponential_moments,
    marginal_variance,
    quadrature_cdf,
    quadrature_expected_log_prob,
    quadrature_moments,
)
from inducing.likelihoods.links import AbstractShareLink, as_share_link
from inducing.likelihoods.starts import LatentStart, log_labels, start_of_noisy_labels, unknown_start
from inducing.likelihoods.supports import NONNEGATIVE, POSITIVE, REAL, UNIT
from inducing.numerics.cdfs import student_t_cdf, threshold_cdf
from inducing.numerics.special import beta_cdf, bounded_exp, half_erfcx, log1mexp, log_beta, log_ndtr
from inducing.parameters import fixed, positive

_LOG_2PI = math.log(2 * math.pi)


class StudentT(AbstractElementwise):
    """Student-t noise, which is robust to outliers.

        p(y | f) = Γ((ν + 1)/2) / (Γ(ν/2) √(πν) s) (1 + ((y − f)/s)²/ν)^−(ν + 1)/2,    ν = `df`, s = `scale`

    Args:
        df: ν, the degrees of freedom, one number or one for each output [P]. It is not trained.
        scale: s, one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> print(ig.likelihoods.StudentT(df=4.0, scale=0.5).log_prob(jnp.zeros((1, 1)), jnp.zeros((1, 1))).round(4))
        [[-0.2877]]
    """

    df: Float[Array, "*#P"] = fixed(4.0, parameters.POSITIVE)
    scale: Float[Array, "*#P"] = positive(1.0)
    adds_noise = True
    supports = (REAL,)

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_noisy_labels(y, self.scale, 0.5)

    def log_prob(self, f, y, *, index=None):
        df, scale = broadcast(self.df, f.shape, index, "df"), broadcast(self.scale, f.shape, index, "scale")
        constant = -log_beta(0.5 * df, jnp.full_like(df, 0.5)) - 0.5 * jnp.log(df) - jnp.log(scale)
        return constant - 0.5 * (df + 1) * jnp.log1p(((y - f) / scale) ** 2 / df)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        bend = 0.5 * broadcast(self.scale * jnp.sqrt(self.df), mean.shape, index, "scale or df")
        return quadrature_expected_log_prob(self, mean, cov, y, index, 64, y, bend)

    def log_tails(self, f, y, *, index=None):
        df, scale = broadcast(self.df, f.shape, index, "df"), broadcast(self.scale, f.shape, index, "scale")
        z, df = (y - f) / scale, jax.lax.stop_gradient(df)  # which is not trained; JAX has no derivative by it
        tail = 0.5 * betainc(0.5 * df, jnp.full_like(df, 0.5), df / (df + z * z))
        near, far = jnp.log(jnp.maximum(tail, jnp.finfo(f.dtype).tiny)), jnp.log1p(-tail)
        return jnp.where(z < 0, near, far), jnp.where(z < 0, far, near)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import StudentT as Distribution

        return Distribution(broadcast(self.df, f.shape, index, "df"), f, broadcast(self.scale, f.shape, index, "scale"))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        df, scale = broadcast(self.df, mean.shape, index, "df"), broadcast(self.scale, mean.shape, index, "scale")
        return student_t_cdf((y - mean) / scale, df, marginal_variance(mean, cov) / scale**2, PREDICTIVE_NODES)

    def focus(self, y, *, index=None):
        return y, broadcast(self.scale * jnp.minimum(0.5 * jnp.sqrt(self.df), 1.0), y.shape, index, "scale or df")

    def predictive_moments(self, mean, cov, *, index=None):
        df, scale = broadcast(self.df, mean.shape, index, "df"), broadcast(self.scale, mean.shape, index, "scale")
        noise = jnp.where(df > 2, scale**2 * df / jnp.where(df > 2, df - 2, 1.0), jnp.inf)
        return jnp.where(df > 1, mean, jnp.nan), marginal_variance(mean, cov) + noise


class Laplace(AbstractLikelihood):
    """Laplace noise. All expectations are closed forms of the normal cdf.

        p(y | f) = e^{−|y − f|/s} / (2 s),    s = `scale`

    Args:
        scale: s, one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
        >>> print(ig.likelihoods.Laplace().expected_log_prob(zero, one, zero).round(4))  # −log 2 − √(2/π)
        [[-1.491]]
    """

    scale: Float[Array, "*P"] = positive(1.0)
    adds_noise = True
    joint = False
    supports = (REAL,)

    def num_latents(self, num_outputs: int) -> int:
        return num_outputs

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_noisy_labels(y, self.scale, 0.5)

    def log_prob(self, f, y, *, index=None):
        scale = broadcast(self.scale, f.shape, index, "scale")
        return -jnp.abs(y - f) / scale - jnp.log(2 * scale)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        scale = broadcast(self.scale, mean.shape, index, "scale")
        variance = marginal_variance(mean, cov)
        random = variance > 0
        sd = jnp.sqrt(jnp.where(random, variance, 1.0))
        u = (y - mean) / sd
        folded = sd * (math.sqrt(2 / math.pi) * jnp.exp(-0.5 * u * u) + u * (2 * ndtr(u) - 1))
        return -jnp.where(random, folded, jnp.abs(y - mean)) / scale - jnp.log(2 * scale)

    def focus(self, y, *, index=None):
        return y, broadcast(self.scale, y.shape, index, "scale")

    def log_tails(self, f, y, *, index=None):
        z = (y - f) / broadcast(self.scale, f.shape, index, "scale")
        near, far = -jnp.abs(z) - math.log(2), jnp.log1p(-0.5 * jnp.exp(-jnp.abs(z)))
        return jnp.where(z < 0, near, far), jnp.where(z < 0, far, near)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Laplace as Distribution

        return Distribution(f, broadcast(self.scale, f.shape, index, "scale"))

    def _tails(self, mean, cov, y, index):
        """log E of the two exponential sides e^{∓(y − f)/scale} over their half-lines, and the standardised y."""
        scale = broadcast(self.scale, mean.shape, index, "scale")
        floor = scale**2 * 100 * jnp.finfo(mean.dtype).eps  # a narrower q(f) is a point to within rounding
        variance = jnp.maximum(marginal_variance(mean, cov), floor)
        sd = jnp.sqrt(variance)
        u, ratio = (y - mean) / sd, sd / scale

        def side(u: Array) -> Array:
            """½ ratio² − u ratio + log Φ(a), a = u − ratio."""
            a = u - ratio
            # For a < 0 the same is −½u² + log(Φ(a) e^{a²/2}), where no large terms cancel.
            left = jnp.log(half_erfcx(math.sqrt(0.5) * jnp.maximum(-a, 0.0))) - 0.5 * u * u
            return jnp.where(a < 0, left, ratio * (0.5 * ratio - u) + log_ndtr(jnp.maximum(a, 0.0)))

        return side(u), side(-u), u, scale  # f < y, f > y

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        below, above, _, scale = self._tails(mean, cov, y, index)
        return jnp.logaddexp(below, above) - jnp.log(2 * scale)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        below, above, u, _ = self._tails(mean, cov, y, index)
        return jnp.clip(ndtr(u) - 0.5 * jnp.exp(below) + 0.5 * jnp.exp(above), 0.0, 1.0)

    def predictive_moments(self, mean, cov, *, index=None):
        return mean, marginal_variance(mean, cov) + 2 * broadcast(self.scale, mean.shape, index, "scale") ** 2


class LogNormal(AbstractLikelihood):
    """Log-normal likelihood of positive labels: Gaussian noise on log y. All expectations have closed forms.

        log y ~ N(f, s²),    s = `scale`

    Args:
        scale: s, one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> lik = ig.likelihoods.LogNormal(scale=0.5)
        >>> print(lik.predictive(jnp.zeros((1, 1)), jnp.zeros((1, 1))).median.round(4))
        [[1.]]
    """

    scale: Float[Array, "*P"] = positive(1.0)
    joint = False
    supports = (POSITIVE,)

    def num_latents(self, num_outputs: int) -> int:
        return num_outputs

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_noisy_labels(log_labels(y), self.scale, 0.5)

    def _log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        log_y = jnp.log(y)
        return -0.5 * (_LOG_2PI + jnp.log(variance) + (log_y - mean) ** 2 / variance) - log_y

    def log_prob(self, f, y, *, index=None):
        return self._log_density(y, f, broadcast(self.scale, f.shape, index, "scale") ** 2)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        noise = broadcast(self.scale, mean.shape, index, "scale") ** 2
        return self._log_density(y, mean, noise) - 0.5 * marginal_variance(mean, cov) / noise

    def focus(self, y, *, index=None):
        return jnp.log(y), broadcast(self.scale, y.shape, index, "scale")

    def log_tails(self, f, y, *, index=None):
        z = (jnp.log(y) - f) / broadcast(self.scale, f.shape, index, "scale")
        return log_ndtr(z), log_ndtr(-z)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import LogNormal as Distribution

        return Distribution(f, broadcast(self.scale, f.shape, index, "scale"))

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        return self._log_density(y, mean, self._total(mean, cov, index))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return ndtr((jnp.log(y) - mean) / jnp.sqrt(self._total(mean, cov, index)))

    def predictive_moments(self, mean, cov, *, index=None):
        total = self._total(mean, cov, index)
        return jnp.exp(mean + 0.5 * total), -jnp.exp(2 * (mean + total)) * jnp.expm1(-total)

    def _total(self, mean: Array, cov: Array, index: Array | None) -> Array:
        return marginal_variance(mean, cov) + broadcast(self.scale, mean.shape, index, "scale") ** 2


def _scaled_cdf(likelihood: AbstractElementwise, mean: Array, cov: Array, y: Array, index: Array | None) -> Array:
    """P(label ≤ y) of a label with scale e^f under f ~ N(mean, cov), from ∂/∂f P(label ≤ y | f) = −y p(y | f)."""
    focus = likelihood.focus(y, index=index)
    variance = marginal_variance(mean, cov)
    return threshold_cdf(lambda f: likelihood.log_prob(f, y, index=index), mean, variance, PREDICTIVE_NODES, *focus)


def _tails_of_hazard(log_hazard: Array) -> tuple[Array, Array]:
    """log(1 − e^{−H}) and −H for a cumulative hazard H."""
    hazard = bounded_exp(jnp.maximum(log_hazard, -600.0 if log_hazard.dtype == jnp.float64 else -80.0))
    return log1mexp(-hazard), -hazard


class Gamma(AbstractElementwise):
    """Gamma likelihood of positive labels, with scale e^f.

        p(y | f) = y^{a − 1} exp(−y e^{−f}) / (Γ(a) e^{a f}),    a = `shape`

    Args:
        shape: a, one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> print(ig.likelihoods.Gamma(shape=1.0).log_prob(0 * one, one))
        [[-1.]]
    """

    shape: Float[Array, "*P"] = positive(1.0)
    supports = (POSITIVE,)

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_noisy_labels(log_labels(y) - np.log(np.asarray(self.shape)))

    def _log_density(self, f: Array, ratio: Array, y: Array) -> Array:
        """The log density, given ratio = y e^{−f} or its expectation."""
        shape = broadcast(self.shape, f.shape, None, "shape")
        return (shape - 1) * jnp.log(y) - ratio - gammaln(shape) - shape * f

    def log_prob(self, f, y, *, index=None):
        return self._log_density(f, bounded_exp(jnp.log(y) - f), y)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        return self._log_density(mean, y * jnp.exp(0.5 * marginal_variance(mean, cov) - mean), y)

    def log_tails(self, f, y, *, index=None):
        shape, ratio = broadcast(self.shape, f.shape, index, "shape"), bounded_exp(jnp.log(y) - f)
        below, above = (jnp.maximum(p(shape, ratio), jnp.finfo(f.dtype).tiny) for p in (gammainc, gammaincc))
        return jnp.log(below), jnp.log(above)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Gamma as Distribution

        return Distribution(broadcast(self.shape, f.shape, index, "shape"), jnp.exp(-f))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return _scaled_cdf(self, mean, cov, y, index)

    def focus(self, y, *, index=None):
        shape = broadcast(self.shape, y.shape, index, "shape")
        return jnp.log(y) - jnp.log(shape), jnp.minimum(1 / jnp.sqrt(shape), 1.0)

    def predictive_moments(self, mean, cov, *, index=None):
        shape = broadcast(self.shape, mean.shape, index, "shape")
        return exponential_moments(mean, cov, shape, shape)


class Exponential(AbstractElementwise):
    """Exponential distribution of labels y ≥ 0, with mean e^f.

        p(y | f) = e^{−f} exp(−y e^{−f})

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> print(ig.likelihoods.Exponential().log_prob(0 * one, one))
        [[-1.]]
    """

    supports = (NONNEGATIVE,)

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_noisy_labels(log_labels(y))

    def log_prob(self, f, y, *, index=None):
        return -f - bounded_exp(jnp.log(y) - f)  # y e^{−f} could be 0 · ∞

    def expected_log_prob(self, mean, cov, y, *, index=None):
        return -mean - y * jnp.exp(0.5 * marginal_variance(mean, cov) - mean)

    def log_tails(self, f, y, *, index=None):
        return _tails_of_hazard(jnp.log(y) - f)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Exponential as Distribution

        return Distribution(jnp.exp(-f))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return _scaled_cdf(self, mean, cov, y, index)

    def focus(self, y, *, index=None):
        return jnp.log(jnp.maximum(y, jnp.finfo(y.dtype).tiny)), jnp.ones_like(y)

    def predictive_moments(self, mean, cov, *, index=None):
        one = jnp.ones_like(mean)
        return exponential_moments(mean, cov, one, one)


class Weibull(AbstractElementwise):
    """Weibull likelihood of positive labels such as lifetimes.

        p(y | f) = (k/λ) (y/λ)^{k − 1} exp(−(y/λ)^k),    λ = e^f, k = `shape`

    Args:
        shape: k, one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> print(ig.likelihoods.Weibull(shape=1.0).log_prob(0 * one, one))
        [[-1.]]
    """

    shape: Float[Array, "*P"] = positive(1.0)
    supports = (POSITIVE,)

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_noisy_labels(log_labels(y))

    def log_prob(self, f, y, *, index=None):
        k = broadcast(self.shape, f.shape, index, "shape")
        log_ratio = jnp.log(y) - f
        return jnp.log(k) - jnp.log(y) + k * log_ratio - bounded_exp(k * log_ratio)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        k = broadcast(self.shape, mean.shape, index, "shape")
        log_ratio = jnp.log(y) - mean
        mean_power = bounded_exp(k * log_ratio + 0.5 * k * k * marginal_variance(mean, cov))
        return jnp.log(k) - jnp.log(y) + k * log_ratio - mean_power

    def log_tails(self, f, y, *, index=None):
        return _tails_of_hazard(broadcast(self.shape, f.shape, index, "shape") * (jnp.log(y) - f))

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Weibull as Distribution

        return Distribution(jnp.exp(f), broadcast(self.shape, f.shape, index, "shape"))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return _scaled_cdf(self, mean, cov, y, index)

    def focus(self, y, *, index=None):
        return jnp.log(y), jnp.minimum(1 / broadcast(self.shape, y.shape, index, "shape"), 1.0)

    def predictive_moments(self, mean, cov, *, index=None):
        k = broadcast(self.shape, mean.shape, index, "shape")
        first, excess = jnp.exp(gammaln(1 + 1 / k)), gammaln(1 + 2 / k) - 2 * gammaln(1 + 1 / k)
        return exponential_moments(mean, cov, first, first**2 * jnp.expm1(jnp.maximum(excess, 0.0)))


class Beta(AbstractElementwise):
    """Beta likelihood of shares, 0 < y < 1, with mean p.

        p(y | f) = Beta(y; s p, s (1 − p)),    p = Φ(f)  (link "probit")  or  1 / (1 + e^{−f})  (link "logit")

    Args:
        scale: s, one number or one for each output [P]. The variance of y is p (1 − p) / (1 + s).
        link: "probit" or "logit".

    Raises:
        ValueError: if `link` is neither of them.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> half = jnp.full((1, 1), 0.5)
        >>> print(ig.likelihoods.Beta(scale=4.0).log_prob(0 * half, half).round(4))  # log Beta(½; 2, 2)
        [[0.4055]]
    """

    scale: Float[Array, "*P"] = positive(1.0)
    link: AbstractShareLink = eqx.field(converter=as_share_link, default="probit")
    supports = (UNIT,)

    def start(self, y: np.ndarray) -> LatentStart:
        return unknown_start(self.num_latents(y.shape[1]))

    def log_prob(self, f, y, *, index=None):
        scale = broadcast(self.scale, f.shape, index, "scale")
        log_scale = jnp.log(scale)
        log_a, log_b = log_scale + self.link.log(f), log_scale + self.link.log(-f)
        a, b = jnp.exp(log_a), jnp.exp(log_b)
        # log Γ(a) = log Γ(1 + a) − log a holds where a underflows: its logarithm does not
        normaliser = gammaln(1 + a) - log_a + gammaln(1 + b) - log_b - gammaln(scale)
        return (a - 1) * jnp.log(y) + (b - 1) * jnp.log1p(-y) - normaliser

    def expected_log_prob(self, mean, cov, y, *, index=None):
        zero = jnp.zeros_like(mean)
        return quadrature_expected_log_prob(self, mean, cov, y, index, 48, zero, zero + BEND)

    def _shapes(self, f: Array, index: Array | None) -> tuple[Array, Array]:
        scale = broadcast(self.scale, f.shape, index, "scale")
        tiny = jnp.finfo(f.dtype).tiny ** 0.5
        return scale * jnp.maximum(self.link(f), tiny), scale * jnp.maximum(self.link(-f), tiny)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Beta as Distribution

        return Distribution(*self._shapes(f, index))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return quadrature_cdf(lambda f: beta_cdf(*self._shapes(f, index), y), mean, cov, self.focus(y, index=index))

    def focus(self, y, *, index=None):
        scale = broadcast(self.scale, y.shape, index, "scale")
        # For p = a / scale with a < 1 the density is about a y^a / y, whose peak is at a = −1 / log y, not at p = y.
        least = jnp.minimum(1 / (scale * (1 - jnp.log(y))), 0.5)
        rest = jnp.minimum(1 / (scale * (1 - jnp.log1p(-y))), 0.5)
        return self.link.focus(jnp.clip(y, least, 1 - rest), 1 + scale)

    def predictive_moments(self, mean, cov, *, index=None):
        scale = broadcast(self.scale, mean.shape, index, "scale")

        def moments(f: Array) -> tuple[Array, Array]:
            p = self.link(f)
            return p, p * self.link(-f) / (1 + scale)

        return quadrature_moments(moments, mean, cov)
