"""Counts: Poisson, negative binomial, and both with extra zeros."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammaincc, gammaln
from jaxtyping import Array, Float

from inducing.likelihoods.base import (
    BEND,
    AbstractElementwise,
    PerDatum,
    broadcast,
    choose,
    exponential_moments,
    marginal_variance,
    quadrature_expected_log_prob,
    quadrature_moments,
)
from inducing.likelihoods.special import bounded_exp, log_beta
from inducing.likelihoods.supports import COUNT, Support
from inducing.parameters import POSITIVE, fixed, positive, unit_interval
from inducing.quadrature import expectation


def _log_softplus(f: Array) -> Array:
    """log log(1 + e^f), which is f − e^f/2 far on the left."""
    left = f < -15
    return jnp.where(
        left, f - 0.5 * jnp.exp(jnp.where(left, f, 0.0)), jnp.log(jax.nn.softplus(jnp.where(left, 0.0, f)))
    )


def _log_exposure(exposure: Array, y: Array) -> Array:
    """log exposure, or 0 where y = 0 makes it irrelevant: an exposure may be 0 there."""
    return jnp.log(jnp.where(y == 0, 1.0, exposure))


def _poisson_cdf(rate: Array, y: Array) -> Array:
    return jnp.where(y < 0, 0.0, gammaincc(jnp.maximum(jnp.floor(y), 0.0) + 1, rate))


def _negative_binomial_cdf(log_odds: Array, concentration: Array, y: Array) -> Array:
    k = jnp.maximum(jnp.floor(y), 0.0)
    return jnp.where(y < 0, 0.0, betainc(concentration, k + 1, jax.nn.sigmoid(-log_odds)))


def _negative_binomial_log_prob(log_odds: Array, concentration: Array, y: Array) -> Array:
    choices = -jnp.log(y + concentration) - log_beta(concentration, y + 1)  # Γ(y + c) / (y! Γ(c))
    return choices + concentration * jax.nn.log_sigmoid(-log_odds) + y * jax.nn.log_sigmoid(log_odds)


class Poisson(AbstractElementwise):
    """p(y | f) = Poisson(y | exposure · link(f)), link "exp" or "softplus"; exposure is a number, [P] or `PerDatum`.

    With exp, E log p = y (mean + log exposure) − exposure e^{mean + cov/2} − log y!.

    >>> import inducing as ig, jax.numpy as jnp
    >>> one = jnp.ones((1, 1))
    >>> print(ig.likelihoods.Poisson(exposure=2.0).log_prob(0 * one, one).round(4))      # log 2 − 2
    [[-1.3069]]
    """

    link: str = eqx.field(static=True, default="exp")
    exposure: Float[Array, "*P"] | PerDatum = fixed(1.0, POSITIVE)

    def __check_init__(self):
        choose("Poisson", "link", self.link, ("exp", "softplus"))

    @property
    def supports(self) -> tuple[Support, ...]:
        return (COUNT,)

    def log_prob(self, f, y, *, index=None):
        exposure = broadcast(self.exposure, f.shape, index)
        log_rate, rate = (f, bounded_exp(f)) if self.link == "exp" else (_log_softplus(f), jax.nn.softplus(f))
        return y * (log_rate + _log_exposure(exposure, y)) - exposure * rate - gammaln(y + 1)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        if self.link == "exp":
            exposure = broadcast(self.exposure, mean.shape, index)
            rate = jnp.exp(mean + 0.5 * marginal_variance(mean, cov))
            return y * (mean + _log_exposure(exposure, y)) - exposure * rate - gammaln(y + 1)
        zero = jnp.zeros_like(mean)
        return quadrature_expected_log_prob(self, mean, cov, y, index, 48, zero, zero + BEND)

    def _rates(self, f: Array, index: Array | None) -> Array:
        return broadcast(self.exposure, f.shape, index) * (jnp.exp(f) if self.link == "exp" else jax.nn.softplus(f))

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Poisson as Distribution

        return Distribution(self._rates(f, index))

    def cdf(self, f, y, *, index=None):
        return _poisson_cdf(self._rates(f, index), y)

    def focus(self, y, *, index=None):
        exposure = broadcast(self.exposure, y.shape, index)
        level = (jnp.maximum(y, 0.0) + 0.5) / jnp.where(exposure > 0, exposure, 1.0)
        width = 1 / jnp.sqrt(jnp.maximum(y, 0.0) + 1)
        if self.link == "exp":
            return jnp.log(level), width
        return level + jnp.log(-jnp.expm1(-level)), jnp.minimum(width * jnp.maximum(level, 1.0), BEND * (1 + level))

    def predictive_moments(self, mean, cov, *, index=None):
        exposure = broadcast(self.exposure, mean.shape, index)
        if self.link == "exp":
            return exponential_moments(mean, cov, exposure, jnp.zeros_like(exposure), exposure)

        def moments(f: Array) -> tuple[Array, Array]:
            rate = exposure * jax.nn.softplus(f)
            return rate, rate

        return quadrature_moments(moments, mean, cov)


class NegativeBinomial(AbstractElementwise):
    """Counts with mean μ = e^f and variance μ + μ²/concentration: a Poisson of Gamma-distributed rate.

        p(y | f) = Γ(y + c) / (y! Γ(c)) (c/(c + μ))ᶜ (μ/(c + μ))ʸ,    c = `concentration`

    >>> import inducing as ig, jax.numpy as jnp
    >>> zero = jnp.zeros((1, 1))
    >>> print(ig.likelihoods.NegativeBinomial(concentration=1.0).log_prob(zero, zero).round(4))      # log ½
    [[-0.6931]]
    """

    concentration: Float[Array, "*P"] = positive(1.0)

    @property
    def supports(self) -> tuple[Support, ...]:
        return (COUNT,)

    def log_prob(self, f, y, *, index=None):
        r = broadcast(self.concentration, f.shape, index)
        return _negative_binomial_log_prob(f - jnp.log(r), r, y)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        log_r = jnp.log(broadcast(self.concentration, mean.shape, index))
        return quadrature_expected_log_prob(self, mean, cov, y, index, 32, log_r, jnp.full_like(mean, BEND))

    def distribution(self, f, *, index=None):
        from numpyro.distributions import NegativeBinomial2

        return NegativeBinomial2(jnp.exp(f), broadcast(self.concentration, f.shape, index))

    def cdf(self, f, y, *, index=None):
        r = broadcast(self.concentration, f.shape, index)
        return _negative_binomial_cdf(f - jnp.log(r), r, y)

    def focus(self, y, *, index=None):
        r = broadcast(self.concentration, y.shape, index)
        count = jnp.maximum(y, 0.0)
        return jnp.log(count + 0.5), jnp.minimum(jnp.sqrt(1 / (count + 1) + 1 / r), BEND)

    def predictive_moments(self, mean, cov, *, index=None):
        one = jnp.ones_like(mean)
        return exponential_moments(mean, cov, one, 1 / broadcast(self.concentration, mean.shape, index), one)


class ZeroInflatedPoisson(AbstractElementwise):
    """y = 0 with probability `zero_probability`, else Poisson(e^f).

    >>> import inducing as ig, jax.numpy as jnp
    >>> zero = jnp.zeros((1, 1))
    >>> print(ig.likelihoods.ZeroInflatedPoisson(0.5).log_prob(zero, zero).round(4))      # log(½ + ½ e⁻¹)
    [[-0.3799]]
    """

    zero_probability: Float[Array, "*P"] = unit_interval(0.1)

    @property
    def supports(self) -> tuple[Support, ...]:
        return (COUNT,)

    def log_prob(self, f, y, *, index=None):
        gate = broadcast(self.zero_probability, f.shape, index)
        counted = jnp.log1p(-gate) + y * f - bounded_exp(f) - gammaln(y + 1)
        return jnp.where(y == 0, self._log_zero(f, gate), counted)

    def _log_zero(self, f: Array, gate: Array) -> Array:
        return jnp.logaddexp(jnp.log(gate), jnp.log1p(-gate) - bounded_exp(f))

    def expected_log_prob(self, mean, cov, y, *, index=None):
        gate = broadcast(self.zero_probability, mean.shape, index)
        variance = marginal_variance(mean, cov)
        # Where y = 0 this is not used, but an overflow would spoil its gradient.
        rate = jnp.exp(jnp.where(y == 0, 0.0, mean + 0.5 * variance))
        counted = jnp.log1p(-gate) + y * mean - rate - gammaln(y + 1)
        level = 1 - jnp.log(gate)  # the rate at which the Poisson's e^{−rate} falls below the gate
        zero = expectation(lambda f: self._log_zero(f, gate), mean, variance, 64, jnp.log(level), 1 / level)
        return jnp.where(y == 0, zero, counted)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import ZeroInflatedPoisson as Distribution

        return Distribution(broadcast(self.zero_probability, f.shape, index), jnp.exp(f))

    def cdf(self, f, y, *, index=None):
        gate = broadcast(self.zero_probability, f.shape, index)
        return jnp.where(y < 0, 0.0, gate + (1 - gate) * _poisson_cdf(jnp.exp(f), y))

    def focus(self, y, *, index=None):
        count = jnp.maximum(y, 0.0)
        return jnp.log(count + 0.5), 1 / jnp.sqrt(count + 1)

    def predictive_moments(self, mean, cov, *, index=None):
        gate = broadcast(self.zero_probability, mean.shape, index)
        return exponential_moments(mean, cov, 1 - gate, (1 - gate) * gate, 1 - gate)


class ZeroInflatedNegativeBinomial(AbstractElementwise):
    """y = 0 with probability `zero_probability`, else a negative binomial of mean e^f and the given concentration.

    >>> import inducing as ig, jax.numpy as jnp
    >>> zero = jnp.zeros((1, 1))
    >>> lik = ig.likelihoods.ZeroInflatedNegativeBinomial(concentration=1.0, zero_probability=0.5)
    >>> print(lik.log_prob(zero, zero).round(4))                                          # log(½ + ½ ½)
    [[-0.2877]]
    """

    concentration: Float[Array, "*P"] = positive(1.0)
    zero_probability: Float[Array, "*P"] = unit_interval(0.1)

    @property
    def supports(self) -> tuple[Support, ...]:
        return (COUNT,)

    def _parameters(self, f: Array, index: Array | None) -> tuple[Array, Array, Array]:
        r = broadcast(self.concentration, f.shape, index)
        return f - jnp.log(r), r, broadcast(self.zero_probability, f.shape, index)

    def log_prob(self, f, y, *, index=None):
        log_odds, r, gate = self._parameters(f, index)
        counted = jnp.log1p(-gate) + _negative_binomial_log_prob(log_odds, r, y)
        return jnp.where(y == 0, jnp.logaddexp(jnp.log(gate), counted), counted)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        log_r = jnp.log(broadcast(self.concentration, mean.shape, index))
        return quadrature_expected_log_prob(self, mean, cov, y, index, 48, log_r, jnp.full_like(mean, 1.0))

    def distribution(self, f, *, index=None):
        from numpyro.distributions import ZeroInflatedNegativeBinomial2

        _, r, gate = self._parameters(f, index)
        return ZeroInflatedNegativeBinomial2(jnp.exp(f), r, gate=gate)

    def cdf(self, f, y, *, index=None):
        log_odds, r, gate = self._parameters(f, index)
        return jnp.where(y < 0, 0.0, gate + (1 - gate) * _negative_binomial_cdf(log_odds, r, y))

    def focus(self, y, *, index=None):
        r = broadcast(self.concentration, y.shape, index)
        count = jnp.maximum(y, 0.0)
        return jnp.log(count + 0.5), jnp.minimum(jnp.sqrt(1 / (count + 1) + 1 / r), BEND)

    def predictive_moments(self, mean, cov, *, index=None):
        _, r, gate = self._parameters(mean, index)
        return exponential_moments(mean, cov, 1 - gate, (1 - gate) * (gate + 1 / r), 1 - gate)
