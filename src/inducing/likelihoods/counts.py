"""Likelihoods of counts: Poisson, negative binomial, and both with extra zeros."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.likelihoods.base import (
    BEND,
    PREDICTIVE_NODES,
    AbstractElementwise,
    PerDatum,
    broadcast,
    exponential_moments,
    marginal_variance,
    quadrature_expected_log_prob,
    quadrature_moments,
)
from inducing.likelihoods.links import AbstractRateLink, as_positive_link, logistic_expected_log_prob
from inducing.likelihoods.starts import LatentStart, start_of_counts, start_of_noisy_labels, unknown_start
from inducing.likelihoods.supports import COUNT
from inducing.numerics.cdfs import threshold_cdf
from inducing.numerics.quadrature import expectation
from inducing.numerics.special import bounded_exp, logistic_log_prob, stirling_remainder
from inducing.parameters import POSITIVE, fixed, positive, unit_interval


def _poisson_log_prob(log_rate: Array, y: Array, log_mean_rate: Array | None = None) -> Array:
    """y log rate − rate − log y!, by Stirling's formula in terms of rate / (y + 1), which do not cancel for large y.

    For the expectation over a random rate, `log_rate` is E[log rate] and `log_mean_rate` is log E[rate].
    """
    x = y + 1
    shift = log_rate - jnp.log(x)
    growth = _bounded_expm1(shift) if log_mean_rate is None else jnp.expm1(log_mean_rate - jnp.log(x))
    counted = y * jnp.where(y == 0, 0.0, shift)  # the rate may be 0 where y is
    return counted - x * growth - 0.5 * jnp.log(2 * math.pi * x) - stirling_remainder(x)


def _bounded_expm1(x: Array) -> Array:
    return jnp.where(x < 1, jnp.expm1(jnp.minimum(x, 1.0)), bounded_exp(x) - 1)


def _negative_binomial_log_prob(log_odds: Array, concentration: Array, y: Array) -> Array:
    n = y + concentration
    return jnp.log(concentration) - jnp.log(n) - jnp.log(n + 1) + logistic_log_prob(log_odds, y, concentration)


def _negative_binomial_expected_log_prob(mean: Array, cov: Array, concentration: Array, y: Array) -> Array:
    n, variance = y + concentration, marginal_variance(mean, cov)
    expected = logistic_expected_log_prob(mean - jnp.log(concentration), variance, y, concentration)
    return jnp.log(concentration) - jnp.log(n) - jnp.log(n + 1) + expected


def _poisson_focus(y: Array) -> tuple[Array, Array]:
    """Where the density of a count has its peak, as a function of log rate, and the width of that."""
    count = jnp.maximum(y, 0.0)
    return jnp.log(count + 0.5), 1 / jnp.sqrt(count + 1)


def _negative_binomial_focus(y: Array, concentration: Array) -> tuple[Array, Array]:
    count = jnp.maximum(y, 0.0)
    return jnp.log(count + 0.5), jnp.minimum(jnp.sqrt(1 / (count + 1) + 1 / concentration), BEND)


def _poisson_cdf(mean: Array, cov: Array, y: Array) -> Array:
    """P(count ≤ y) of a Poisson distribution of rate e^f under f ~ N(mean, cov)."""
    k = jnp.maximum(jnp.floor(y), 0.0)

    def log_density(f: Array) -> Array:  # ∂/∂rate P(count ≤ k | rate) = −p(k | rate)
        return _poisson_log_prob(f, k) + f

    variance = marginal_variance(mean, cov)
    inside = threshold_cdf(log_density, mean, variance, PREDICTIVE_NODES, *_poisson_focus(k))
    return jnp.where(y < 0, 0.0, inside)


def _negative_binomial_cdf(mean: Array, cov: Array, concentration: Array, y: Array) -> Array:
    """P(count ≤ y) of a negative binomial distribution of mean e^f under f ~ N(mean, cov)."""
    k = jnp.maximum(jnp.floor(y), 0.0)

    def log_density(f: Array) -> Array:  # ∂/∂p P(count ≤ k | p) = −(k + c) p(k | p) / (1 − p), p = μ/(c + μ)
        log_odds = f - jnp.log(concentration)
        return _negative_binomial_log_prob(log_odds, concentration, k) + jax.nn.log_sigmoid(log_odds)

    variance = marginal_variance(mean, cov)
    inside = threshold_cdf(log_density, mean, variance, PREDICTIVE_NODES, *_negative_binomial_focus(k, concentration))
    return jnp.where(y < 0, 0.0, inside)


class Poisson(AbstractElementwise):
    """Poisson likelihood of counts.

        p(y | f) = Poisson(y | c · link(f)),    c = `exposure`

    With the link "exp" the expectation has a closed form:

        E log p(y | f) = y (mean + log c) − c e^{mean + cov/2} − log y!

    Args:
        link: "exp" or "softplus".
        exposure: c, one number, one for each output [P], or `PerDatum`. It is not trained.

    Raises:
        ValueError: if `link` is neither of them.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> print(ig.likelihoods.Poisson(exposure=2.0).log_prob(0 * one, one).round(4))  # log 2 − 2
        [[-1.3069]]
    """

    link: AbstractRateLink = eqx.field(converter=as_positive_link, default="exp")
    exposure: Float[Array, "*P"] | PerDatum = fixed(1.0, POSITIVE)
    supports = (COUNT,)

    def start(self, y: np.ndarray) -> LatentStart:
        exposure = self.exposure
        if self.link.exponential:
            each = np.mean(exposure.values, axis=0) if isinstance(exposure, PerDatum) else np.asarray(exposure)
            return start_of_counts(y, each)
        if isinstance(exposure, PerDatum) or exposure.ndim:
            return unknown_start(self.num_latents(y.shape[1]))
        centre, variance, _ = start_of_noisy_labels(y / np.asarray(exposure))
        large = centre > 10.0  # where softplus(f) is f, and there are enough counts to say how it varies
        return LatentStart(np.where(large, centre, np.nan), np.where(large, variance, np.nan), [])

    def log_prob(self, f, y, *, index=None):
        log_exposure = jnp.log(broadcast(self.exposure, f.shape, index, "exposure"))
        return _poisson_log_prob(self.link.log(f) + log_exposure, y)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        if self.link.exponential:
            log_rate = mean + jnp.log(broadcast(self.exposure, mean.shape, index, "exposure"))
            return _poisson_log_prob(log_rate, y, log_rate + 0.5 * marginal_variance(mean, cov))
        zero = jnp.zeros_like(mean)
        return quadrature_expected_log_prob(self, mean, cov, y, index, 48, zero, zero + BEND)

    def _rates(self, f: Array, index: Array | None) -> Array:
        return broadcast(self.exposure, f.shape, index, "exposure") * self.link(f)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Poisson as Distribution

        return Distribution(self._rates(f, index))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        exposure = broadcast(self.exposure, y.shape, index, "exposure")
        exposed = exposure > 0
        log_exposure = jnp.log(jnp.where(exposed, exposure, 1.0))
        if self.link.exponential:
            return jnp.where(exposed | (y < 0), _poisson_cdf(mean + log_exposure, cov, y), 1.0)
        k = jnp.maximum(jnp.floor(y), 0.0)

        def log_density(f: Array) -> Array:
            return _poisson_log_prob(self.link.log(f) + log_exposure, k) + self.link.log_slope(f)

        variance = marginal_variance(mean, cov)
        inside = threshold_cdf(log_density, mean, variance, PREDICTIVE_NODES, *self.focus(k, index=index))
        return jnp.where(y < 0, 0.0, jnp.where(exposed, inside, 1.0))

    def focus(self, y, *, index=None):
        exposure = broadcast(self.exposure, y.shape, index, "exposure")
        exposure = jnp.where(exposure > 0, exposure, 1.0)
        centre, width = _poisson_focus(y)
        return self.link.focus(centre - jnp.log(exposure), width)

    def predictive_moments(self, mean, cov, *, index=None):
        exposure = broadcast(self.exposure, mean.shape, index, "exposure")
        if self.link.exponential:
            return exponential_moments(mean, cov, exposure, jnp.zeros_like(exposure), exposure)

        def moments(f: Array) -> tuple[Array, Array]:
            rate = exposure * self.link(f)
            return rate, rate

        return quadrature_moments(moments, mean, cov)


class NegativeBinomial(AbstractElementwise):
    """Negative binomial likelihood of counts with mean μ and variance μ + μ²/c.

        p(y | f) = Γ(y + c) / (y! Γ(c)) (c/(c + μ))ᶜ (μ/(c + μ))ʸ,    μ = e^f, c = `concentration`

    It is a Poisson distribution whose rate has a Gamma distribution.

    Args:
        concentration: c, one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> zero = jnp.zeros((1, 1))
        >>> print(ig.likelihoods.NegativeBinomial(concentration=1.0).log_prob(zero, zero).round(4))  # log ½
        [[-0.6931]]
    """

    concentration: Float[Array, "*P"] = positive(1.0)
    supports = (COUNT,)

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_counts(y)

    def log_prob(self, f, y, *, index=None):
        r = broadcast(self.concentration, f.shape, index, "concentration")
        return _negative_binomial_log_prob(f - jnp.log(r), r, y)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        return _negative_binomial_expected_log_prob(
            mean, cov, broadcast(self.concentration, mean.shape, index, "concentration"), y
        )

    def distribution(self, f, *, index=None):
        from numpyro.distributions import NegativeBinomial2

        return NegativeBinomial2(jnp.exp(f), broadcast(self.concentration, f.shape, index, "concentration"))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return _negative_binomial_cdf(mean, cov, broadcast(self.concentration, mean.shape, index, "concentration"), y)

    def focus(self, y, *, index=None):
        return _negative_binomial_focus(y, broadcast(self.concentration, y.shape, index, "concentration"))

    def predictive_moments(self, mean, cov, *, index=None):
        one = jnp.ones_like(mean)
        return exponential_moments(
            mean, cov, one, 1 / broadcast(self.concentration, mean.shape, index, "concentration"), one
        )


class ZeroInflatedPoisson(AbstractElementwise):
    """Poisson likelihood of counts with extra zeros.

        p(y | f) = π [y = 0] + (1 − π) Poisson(y | e^f),    π = `zero_probability`

    Args:
        zero_probability: π in (0, 1), one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> zero = jnp.zeros((1, 1))
        >>> print(ig.likelihoods.ZeroInflatedPoisson(0.5).log_prob(zero, zero).round(4))  # log(½ + ½ e⁻¹)
        [[-0.3799]]
    """

    zero_probability: Float[Array, "*P"] = unit_interval(0.1)
    supports = (COUNT,)

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_counts(np.where(y > 0, y, np.nan))

    def log_prob(self, f, y, *, index=None):
        gate = broadcast(self.zero_probability, f.shape, index, "zero_probability")
        counted = jnp.log1p(-gate) + _poisson_log_prob(f, y)
        return jnp.where(y == 0, self._log_zero(f, gate), counted)

    def _log_zero(self, f: Array, gate: Array) -> Array:
        return jnp.logaddexp(jnp.log(gate), jnp.log1p(-gate) - bounded_exp(f))

    def expected_log_prob(self, mean, cov, y, *, index=None):
        gate = broadcast(self.zero_probability, mean.shape, index, "zero_probability")
        variance = marginal_variance(mean, cov)
        # This is not used where y = 0, but an overflow would make its gradient NaN there.
        log_mean_rate = jnp.where(y == 0, 0.0, mean + 0.5 * variance)
        counted = jnp.log1p(-gate) + _poisson_log_prob(mean, y, log_mean_rate)
        level = 1 - jnp.log(gate)  # the rate at which the Poisson's e^{−rate} falls below the gate
        zero = expectation(lambda f: self._log_zero(f, gate), mean, variance, 64, jnp.log(level), 1 / level)
        return jnp.where(y == 0, zero, counted)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import ZeroInflatedPoisson as Distribution

        return Distribution(broadcast(self.zero_probability, f.shape, index, "zero_probability"), jnp.exp(f))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        gate = broadcast(self.zero_probability, mean.shape, index, "zero_probability")
        return jnp.where(y < 0, 0.0, gate + (1 - gate) * _poisson_cdf(mean, cov, y))

    def focus(self, y, *, index=None):
        return _poisson_focus(y)

    def predictive_moments(self, mean, cov, *, index=None):
        gate = broadcast(self.zero_probability, mean.shape, index, "zero_probability")
        return exponential_moments(mean, cov, 1 - gate, (1 - gate) * gate, 1 - gate)


class ZeroInflatedNegativeBinomial(AbstractElementwise):
    """Negative binomial likelihood of counts with extra zeros.

        p(y | f) = π [y = 0] + (1 − π) NegativeBinomial(y | e^f, c),    π = `zero_probability`, c = `concentration`

    Args:
        concentration: c, one number or one for each output [P].
        zero_probability: π in (0, 1), one number or one for each output [P].

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> zero = jnp.zeros((1, 1))
        >>> lik = ig.likelihoods.ZeroInflatedNegativeBinomial(concentration=1.0, zero_probability=0.5)
        >>> print(lik.log_prob(zero, zero).round(4))                                      # log(½ + ½ ½)
        [[-0.2877]]
    """

    concentration: Float[Array, "*#P"] = positive(1.0)
    zero_probability: Float[Array, "*#P"] = unit_interval(0.1)
    supports = (COUNT,)

    def start(self, y: np.ndarray) -> LatentStart:
        return start_of_counts(np.where(y > 0, y, np.nan))

    def _parameters(self, f: Array, index: Array | None) -> tuple[Array, Array, Array]:
        r = broadcast(self.concentration, f.shape, index, "concentration")
        return f - jnp.log(r), r, broadcast(self.zero_probability, f.shape, index, "zero_probability")

    def log_prob(self, f, y, *, index=None):
        log_odds, r, gate = self._parameters(f, index)
        counted = jnp.log1p(-gate) + _negative_binomial_log_prob(log_odds, r, y)
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(gate), counted), counted)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        _, r, gate = self._parameters(mean, index)
        counted = jnp.log1p(-gate) + _negative_binomial_expected_log_prob(mean, cov, r, y)

        def log_zero(f: Array) -> Array:
            return jnp.logaddexp(jnp.log(gate), jnp.log1p(-gate) + r * jax.nn.log_sigmoid(jnp.log(r) - f))

        variance = marginal_variance(mean, cov)
        zero = expectation(log_zero, mean, variance, 48, jnp.log(r), jnp.ones_like(mean))
        return jnp.where(y == 0, zero, counted)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import ZeroInflatedNegativeBinomial2

        _, r, gate = self._parameters(f, index)
        return ZeroInflatedNegativeBinomial2(jnp.exp(f), r, gate=gate)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        _, r, gate = self._parameters(mean, index)
        return jnp.where(y < 0, 0.0, gate + (1 - gate) * _negative_binomial_cdf(mean, cov, r, y))

    def focus(self, y, *, index=None):
        return _negative_binomial_focus(y, broadcast(self.concentration, y.shape, index, "concentration"))

    def predictive_moments(self, mean, cov, *, index=None):
        _, r, gate = self._parameters(mean, index)
        return exponential_moments(mean, cov, 1 - gate, (1 - gate) * (gate + 1 / r), 1 - gate)
