"""Binary labels and numbers of successes: Bernoulli and Binomial."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.likelihoods.base import (
    BEND,
    PREDICTIVE_NODES,
    AbstractElementwise,
    AbstractLikelihood,
    PerDatum,
    broadcast,
    marginal_variance,
    quadrature_moments,
)
from inducing.likelihoods.links import AbstractShareLink, as_share_link
from inducing.likelihoods.starts import LatentStart, unknown_start
from inducing.likelihoods.supports import BINARY, COUNT, Support, successes
from inducing.numerics.cdfs import threshold_cdf
from inducing.numerics.quadrature import tower_expectation
from inducing.parameters import MOST, fixed


class Bernoulli(AbstractLikelihood):
    """Bernoulli likelihood of binary labels, y ∈ {0, 1}.

        p(y = 1 | f) = Φ(f)  (link "probit")  or  1 / (1 + e^{−f})  (link "logit")

    The predictive probability of the probit is Φ(mean / √(1 + cov)). Other expectations use quadrature.

    Args:
        link: "probit" or "logit".

    Raises:
        ValueError: if `link` is neither of them.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> print(ig.likelihoods.Bernoulli().predictive(one, one).mean.round(4))            # Φ(1 / √2)
        [[0.7602]]
    """

    link: AbstractShareLink = eqx.field(converter=as_share_link, default="probit")
    joint = False
    supports = (BINARY,)

    def num_latents(self, num_outputs: int) -> int:
        return num_outputs

    def class_count(self) -> int:
        return 2

    def start(self, y: np.ndarray) -> LatentStart:
        return unknown_start(self.num_latents(y.shape[1]))

    def log_prob(self, f, y, *, index=None):
        return self.link.log((2 * y - 1) * f)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        # As a function of (2y − 1) f the integrand is log link for both labels.
        variance = marginal_variance(mean, cov)
        zero = jnp.zeros_like(mean)
        return tower_expectation(self.link.log_tower, (2 * y - 1) * mean, variance, 28, zero, BEND)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import BernoulliProbs

        return BernoulliProbs(self.link(f))

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        mean, variance = (2 * y - 1) * mean, marginal_variance(mean, cov)
        return self.link.log_mean(mean, variance)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        failure = jnp.exp(self.predictive_log_prob(mean, cov, jnp.zeros_like(y), index=index))
        return jnp.where(y < 0, 0.0, jnp.where(y < 1, failure, 1.0))

    def predictive_moments(self, mean, cov, *, index=None):
        p = jnp.exp(self.predictive_log_prob(mean, cov, jnp.ones_like(mean), index=index))
        return p, p * (1 - p)


class Binomial(AbstractElementwise):
    """Binomial likelihood of numbers of successes, y ∈ {0, …, n}.

        p(y | f) = Binomial(y | n, p),    p = Φ(f)  (link "probit")  or  1 / (1 + e^{−f})  (link "logit")

    Args:
        total_count: n, the number of trials: one number, one for each output [P], or `PerDatum`. It is not trained.
        link: "probit" or "logit".

    Raises:
        ValueError: if `total_count` is not whole, or `link` is neither of them.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> lik = ig.likelihoods.Binomial(total_count=10, link="logit")
        >>> print(lik.log_prob(jnp.zeros((1, 1)), jnp.full((1, 1), 5.0)).round(4))
        [[-1.4020]]
    """

    total_count: Float[Array, "*P"] | PerDatum = fixed()
    link: AbstractShareLink = eqx.field(converter=as_share_link, default="probit")

    def __check_init__(self):
        for value in jax.tree.leaves(self.total_count):
            if eqx.is_array(value) and not isinstance(value, jax.core.Tracer):
                value = np.asarray(value)
                bad = value[~(np.isfinite(value) & (value >= 0) & (value <= MOST) & (value == np.floor(value)))]
                if bad.size:
                    raise ValueError(
                        f"Binomial.total_count must be whole numbers from 0 to {MOST}, got {bad[0].item()}; pass "
                        "the number of trials."
                    )

    @property
    def supports(self) -> tuple[Support, ...]:
        total = self.total_count
        values = total.values if isinstance(total, PerDatum) else total
        if isinstance(values, jax.core.Tracer):
            return (COUNT,)
        trials = np.asarray(values)

        def largest(index):
            if not isinstance(total, PerDatum):
                return trials
            return trials.max() if index is None else trials[np.asarray(index)].reshape(len(index), -1)

        return (successes(trials, largest),)

    def start(self, y: np.ndarray) -> LatentStart:
        return unknown_start(self.num_latents(y.shape[1]))

    def log_prob(self, f, y, *, index=None):
        n = broadcast(self.total_count, f.shape, index, "total_count")
        return self.link.binomial_log_prob(f, y, n)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        n = broadcast(self.total_count, mean.shape, index, "total_count")
        return self.link.expected_binomial_log_prob(mean, marginal_variance(mean, cov), y, n)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import BinomialProbs

        return BinomialProbs(self.link(f), broadcast(self.total_count, f.shape, index, "total_count").astype(int))

    def predictive_moments(self, mean, cov, *, index=None):
        n = broadcast(self.total_count, mean.shape, index, "total_count")

        def moments(f: Array) -> tuple[Array, Array]:
            p = self.link(f)
            return n * p, n * p * self.link(-f)

        return quadrature_moments(moments, mean, cov)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        n = broadcast(self.total_count, mean.shape, index, "total_count")
        k = jnp.clip(jnp.floor(y), 0.0, jnp.maximum(n - 1, 0.0))

        def log_density(f: Array) -> Array:  # ∂/∂p P(label ≤ k | p) = −(n − k) p(k | p) / (1 − p)
            return self.log_prob(f, k, index=index) + self.link.log_hazard(f)

        focus = self.focus(k, index=index)
        inside = threshold_cdf(log_density, mean, marginal_variance(mean, cov), PREDICTIVE_NODES, *focus)
        return jnp.where(y < 0, 0.0, jnp.where(jnp.floor(y) >= n, 1.0, inside))

    def focus(self, y, *, index=None):
        n = jnp.maximum(broadcast(self.total_count, y.shape, index, "total_count"), 1.0)
        share = (jnp.clip(y, 0.0, n) + 0.5) / (n + 1)
        return self.link.focus(share, n + 1)
