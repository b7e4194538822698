"""Every elementwise likelihood beside SciPy's version of the same conditional distribution."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

import inducing.likelihoods as L


class Mixed:
    """A discrete distribution with the methods of SciPy's that the tests use, from its probabilities [..., K]."""

    def __init__(self, p):
        self.p = p

    def logpmf(self, y):
        return np.log(self.p[..., int(y)])

    def cdf(self, y):
        if y < 0:
            return np.zeros(self.p.shape[:-1])
        return np.cumsum(self.p, -1)[..., min(int(np.floor(y)), self.p.shape[-1] - 1)]

    def mean(self):
        return self.p @ np.arange(self.p.shape[-1])

    def var(self):
        return self.p @ np.arange(self.p.shape[-1]) ** 2 - self.mean() ** 2


class ZeroInflated:
    """SciPy's discrete distribution with extra zeros."""

    def __init__(self, base, gate):
        self.base, self.gate = base, gate

    def logpmf(self, y):
        counted = np.log1p(-self.gate) + self.base.logpmf(y)
        return np.logaddexp(np.log(self.gate), counted) if y == 0 else counted

    def cdf(self, y):
        return (1 - self.gate) * self.base.cdf(y) + self.gate * (y >= 0)

    def mean(self):
        return (1 - self.gate) * self.base.mean()

    def var(self):
        return (1 - self.gate) * (self.base.var() + self.base.mean() ** 2) - self.mean() ** 2


class Case(NamedTuple):
    likelihood: Any
    scipy: Callable[[np.ndarray], Any]  # f -> frozen distribution
    y: list[float]
    discrete: bool = False
    reach: float = 7.0  # standard deviations within which SciPy's log density is finite, and beyond which is nothing


def _nb(r):
    return lambda f: stats.nbinom(r, r / (r + np.exp(f)))


def _ordinal(f):
    edges = np.array([-np.inf, -0.6, 0.5, np.inf])
    x = (edges - np.asarray(f)[..., None]) / 0.7
    low, high = x[..., :-1], x[..., 1:]
    mirrored = low > 0  # differences of small tails, not of numbers near 1
    return Mixed(np.where(mirrored, special.ndtr(-low) - special.ndtr(-high), special.ndtr(high) - special.ndtr(low)))


def _softplus(f):
    return np.logaddexp(0, f)


CASES = {
    "gaussian": Case(L.Gaussian(0.23), lambda f: stats.norm(f, np.sqrt(0.23)), [-1.0, 0.3, 2.0]),
    "student_t": Case(L.StudentT(4.0, 0.5), lambda f: stats.t(4.0, f, 0.5), [-1.0, 0.3, 2.0]),
    "laplace": Case(L.Laplace(0.7), lambda f: stats.laplace(f, 0.7), [-1.0, 0.3, 2.0]),
    "lognormal": Case(L.LogNormal(0.6), lambda f: stats.lognorm(0.6, scale=np.exp(f)), [0.2, 1.0, 3.0], reach=12),
    "gamma": Case(L.Gamma(2.3), lambda f: stats.gamma(2.3, scale=np.exp(f)), [0.2, 1.0, 3.0], reach=12),
    "exponential": Case(L.Exponential(), lambda f: stats.expon(scale=np.exp(f)), [0.2, 1.0, 3.0], reach=12),
    "weibull": Case(L.Weibull(1.7), lambda f: stats.weibull_min(1.7, scale=np.exp(f)), [0.2, 1.0, 3.0], reach=12),
    "beta_probit": Case(
        L.Beta(5.5), lambda f: stats.beta(5.5 * special.ndtr(f), 5.5 * special.ndtr(-f)), [0.1, 0.45, 0.9]
    ),
    "beta_logit": Case(
        L.Beta(5.5, "logit"), lambda f: stats.beta(5.5 * special.expit(f), 5.5 * special.expit(-f)), [0.1, 0.45, 0.9]
    ),
    "bernoulli_probit": Case(L.Bernoulli(), lambda f: stats.bernoulli(special.ndtr(f)), [0, 1, 1], True),
    "bernoulli_logit": Case(L.Bernoulli("logit"), lambda f: stats.bernoulli(special.expit(f)), [0, 1, 0], True),
    "binomial_probit": Case(L.Binomial(7), lambda f: stats.binom(7, special.ndtr(f)), [0, 3, 7], True),
    "binomial_logit": Case(L.Binomial(7, "logit"), lambda f: stats.binom(7, special.expit(f)), [0, 3, 7], True),
    "poisson_exp": Case(L.Poisson(exposure=1.7), lambda f: stats.poisson(1.7 * np.exp(f)), [0, 2, 9], True),
    "poisson_softplus": Case(L.Poisson("softplus"), lambda f: stats.poisson(_softplus(f)), [0, 2, 9], True),
    "negative_binomial": Case(L.NegativeBinomial(2.5), _nb(2.5), [0, 2, 9], True),
    "zero_inflated_poisson": Case(
        L.ZeroInflatedPoisson(0.3), lambda f: ZeroInflated(stats.poisson(np.exp(f)), 0.3), [0, 2, 9], True
    ),
    "zero_inflated_negative_binomial": Case(
        L.ZeroInflatedNegativeBinomial(2.5, 0.3), lambda f: ZeroInflated(_nb(2.5)(f), 0.3), [0, 2, 9], True
    ),
    "ordinal": Case(L.Ordinal([-0.6, 0.5], 0.7), _ordinal, [0, 1, 2], True),
}


def scipy_log_prob(case: Case, f, y):
    d = case.scipy(f)
    return d.logpmf(y) if hasattr(d, "logpmf") else d.logpdf(y)
