"""Links: functions that turn a latent value into a parameter of the labels' distribution.

A likelihood asks its link for what it needs. `as_share_link` and `as_positive_link` convert what users write.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from inducing.declared import fits
from inducing.likelihoods.base import BEND, PREDICTIVE_NODES
from inducing.numerics.quadrature import expectation, log_expectation, tower_expectation
from inducing.numerics.special import (
    beta_remainder,
    log_beta,
    log_ndtr,
    log_ndtr_tower,
    log_sigmoid_tower,
    log_softplus,
    logistic_log_prob,
    logistic_terms,
    mills_ratio,
)
from inducing.parameters import Module, question


class AbstractLink(Module):
    """A function of one latent value. Links have no parameters."""

    @abc.abstractmethod
    def __call__(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        """link(f)."""

    @abc.abstractmethod
    def log(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        """log link(f)."""


class AbstractPositiveLink(AbstractLink):
    """A link whose values are positive."""

    _such_as = '"exp", "softplus" or a positive function'

    @property
    @question
    def exponential(self) -> bool:
        """Whether link(f) = e^f, whose expectations under Gaussian f have closed forms."""
        return False


class AbstractRateLink(AbstractPositiveLink):
    """A link for the rate of counts."""

    _such_as = '"exp" or "softplus"'

    @abc.abstractmethod
    def log_slope(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        """log link′(f)."""

    @abc.abstractmethod
    def focus(
        self, log_rate: Float[Array, "..."], width: Float[Array, "..."]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The f with log link(f) = `log_rate`, and the width in f that belongs to a width in log link(f)."""


class Exp(AbstractRateLink):
    """link(f) = e^f.

    Examples:
        >>> import inducing as ig
        >>> ig.likelihoods.Poisson("exp").link
        Exp()
    """

    exponential = True

    def __call__(self, f):
        return jnp.exp(f)

    def log(self, f):
        return f

    def log_slope(self, f):
        return f

    def focus(self, log_rate, width):
        return log_rate, width


class Softplus(AbstractRateLink):
    """link(f) = log(1 + e^f).

    Examples:
        >>> import inducing as ig
        >>> ig.likelihoods.Poisson("softplus").link
        Softplus()
    """

    def __call__(self, f):
        return jax.nn.softplus(f)

    def log(self, f):
        return log_softplus(f)

    def log_slope(self, f):
        return jax.nn.log_sigmoid(f)

    def focus(self, log_rate, width):
        rate = jnp.exp(log_rate)
        return rate + jnp.log(-jnp.expm1(-rate)), jnp.minimum(width * jnp.maximum(rate, 1.0), BEND * (1 + rate))


class PositiveFunction(AbstractPositiveLink):
    """Any positive function as a link.

    Args:
        function: an elementwise function of arrays with positive values.

    Examples:
        >>> import inducing as ig
        >>> float(ig.likelihoods.HeteroscedasticGaussian(jnp.cosh).link(jnp.zeros(())))
        1.0
    """

    function: Callable[[Array], Array] = eqx.field(static=True)

    def __check_init__(self):
        with jax.ensure_compile_time_eval():
            tried = jnp.linspace(-1.0, 1.0, 4)
            values = np.asarray(self.function(tried))
        if not (values > 0).all():
            bad = np.flatnonzero(np.broadcast_to(~(values > 0), tried.shape))[0]
            raise ValueError(
                f"link must be a function with positive values, got {np.broadcast_to(values, tried.shape)[bad]:.4g} at "
                f"{tried[bad]:.4g}; pass its exponential, or softplus."
            )

    def __call__(self, f):
        return self.function(f)

    def log(self, f):
        return jnp.log(self.function(f))


class AbstractShareLink(AbstractLink):
    """A link whose values are shares p in (0, 1), with link(−f) = 1 − link(f)."""

    _such_as = '"probit" or "logit"'

    @property
    @abc.abstractmethod
    def log_tower(self) -> Callable[[Array], tuple[Array, Array, Array]]:
        """The function whose values are log link(f) and its first two derivatives."""

    @abc.abstractmethod
    def log_hazard(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        """log(link′(f) / (1 − link(f)))."""

    @abc.abstractmethod
    def log_mean(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """log E[link(f)] under f ~ N(mean, variance)."""

    @abc.abstractmethod
    def binomial_log_prob(
        self, f: Float[Array, "..."], y: Float[Array, "..."], n: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """log Binomial(y | n, link(f))."""

    @abc.abstractmethod
    def expected_binomial_log_prob(
        self, mean: Float[Array, "..."], variance: Float[Array, "..."], y: Float[Array, "..."], n: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """E log Binomial(y | n, link(f)) under f ~ N(mean, variance)."""

    @abc.abstractmethod
    def focus(self, share: Float[Array, "..."], count: Float[Array, "..."]) -> tuple[Array, Array]:
        """The f with link(f) = `share`, and the width in f within which `count` trials determine it."""


class Probit(AbstractShareLink):
    """link(f) = Φ(f), the cdf of the standard normal distribution.

    Examples:
        >>> import inducing as ig
        >>> ig.likelihoods.Bernoulli().link
        Probit()
    """

    def __call__(self, f):
        return ndtr(f)

    def log(self, f):
        return log_ndtr(f)

    @property
    def log_tower(self):
        return log_ndtr_tower

    def log_hazard(self, f):
        return jnp.log(mills_ratio(-f))

    def log_mean(self, mean, variance):
        return log_ndtr(mean / jnp.sqrt(1 + variance))

    def binomial_log_prob(self, f, y, n):
        choices = -jnp.log(n + 1) - log_beta(y + 1, n - y + 1)
        return choices + y * log_ndtr(f) + (n - y) * log_ndtr(-f)

    def expected_binomial_log_prob(self, mean, variance, y, n):
        zero = jnp.zeros_like(mean)
        return expectation(lambda f: self.binomial_log_prob(f, y, n), mean, variance, 32, zero, zero + BEND)

    def focus(self, share, count):
        f = ndtri(share)
        spread = jnp.sqrt(share * (1 - share) / count)
        return f, jnp.minimum(spread * jnp.sqrt(2 * jnp.pi) * jnp.exp(0.5 * f * f), BEND)


class Logit(AbstractShareLink):
    """link(f) = 1 / (1 + e^{−f}).

    Examples:
        >>> import inducing as ig
        >>> link = ig.likelihoods.Bernoulli("logit").link
        >>> [round(float(v), 3) for v in link.focus(jnp.asarray(0.5), jnp.asarray(100.0))]
        [0.0, 0.2]
    """

    def __call__(self, f):
        return jax.nn.sigmoid(f)

    def log(self, f):
        return jax.nn.log_sigmoid(f)

    @property
    def log_tower(self):
        return log_sigmoid_tower

    def log_hazard(self, f):
        return jax.nn.log_sigmoid(f)

    def log_mean(self, mean, variance):
        zero = jnp.zeros_like(mean)
        return log_expectation(jax.nn.log_sigmoid, mean, variance, PREDICTIVE_NODES, zero, zero + BEND)

    def binomial_log_prob(self, f, y, n):
        return logistic_log_prob(f, y, n - y) - jnp.log(n + 1)

    def expected_binomial_log_prob(self, mean, variance, y, n):
        return logistic_expected_log_prob(mean, variance, y, n - y) - jnp.log(n + 1)

    def focus(self, share, count):
        spread = jnp.sqrt(share * (1 - share) / count)
        return jnp.log(share) - jnp.log1p(-share), jnp.minimum(spread / (share * (1 - share)), BEND)


def logistic_expected_log_prob(
    mean: Float[Array, "..."], variance: Float[Array, "..."], y: Float[Array, "..."], rest: Float[Array, "..."]
) -> Float[Array, "..."]:
    """E[`logistic_log_prob`(f, y, rest)] under f ~ N(mean, variance).

    Since log σ(f) = f + log σ(−f), one integral is enough.

    Examples:
        >>> one = jnp.ones(1)
        >>> print(logistic_expected_log_prob(0 * one, one, one, one).round(4))      # log 6 + 2 E log σ(f)
        [0.179]
    """
    zero = jnp.zeros_like(mean)
    bend = tower_expectation(log_sigmoid_tower, jnp.where(mean > 0, mean, -mean), variance, 32, zero, BEND)
    return beta_remainder(y + 1, rest + 1) + logistic_terms(mean, bend, y, rest)


def as_share_link(link: Any) -> Any:
    """A link for shares from its name; other values stay as they are, for the check of the field to refuse.

    Args:
        link: "probit", "logit" or a link.

    Returns:
        The link.

    Examples:
        >>> as_share_link("logit")
        Logit()
    """
    return _named(link, {"probit": Probit(), "logit": Logit()})


def as_positive_link(link: Any) -> Any:
    """A positive link from its name or from a function; the check of the field refuses other values.

    Args:
        link: "exp", "softplus", any positive function of arrays, or a link.

    Returns:
        The link.

    Examples:
        >>> as_positive_link("softplus"), as_positive_link(jnp.exp)
        (Softplus(), Exp())
    """
    # The one place that recognises a function by identity: users write jnp.exp, which has closed forms.
    if link is jnp.exp:
        return Exp()
    known = _named(link, {"exp": Exp(), "softplus": Softplus()})
    is_function = fits(known, Callable[[Any], Any]) and not isinstance(known, AbstractLink)
    return PositiveFunction(known) if is_function else known


def _named(link: Any, links: dict[str, AbstractLink]) -> Any:
    return links.get(link, link) if isinstance(link, str) else link
