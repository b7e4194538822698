"""Likelihoods in SciPy, and their expectations under Gaussians by quadrature with many nodes."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from scipy import special, stats

from tests.composer.parts import Part

Array = np.ndarray

LINKS: dict[str, Callable[[Array], Array]] = {
    "probit": stats.norm.cdf,
    "logit": special.expit,
    "exp": np.exp,
    "softplus": lambda f: np.logaddexp(0.0, f),
}


class ZeroInflated:
    """A distribution of counts with more zeros."""

    def __init__(self, zero: float, counts: Any):
        self.zero, self.counts = zero, counts

    def logpmf(self, y: Any) -> Array:
        counts = np.log1p(-self.zero) + self.counts.logpmf(y)
        return np.logaddexp(np.log(self.zero), counts) if y == 0 else counts

    def cdf(self, y: Any) -> Array:
        return (self.zero + (1 - self.zero) * self.counts.cdf(y)) * (y >= 0)

    def mean(self) -> Array:
        return (1 - self.zero) * self.counts.mean()

    def var(self) -> Array:
        second = self.counts.var() + self.counts.mean() ** 2
        return (1 - self.zero) * second - self.mean() ** 2


class Binomial:
    """Counts of `total` trials with probabilities p of success and q = 1 − p, either of which may be tiny."""

    def __init__(self, total: int, p: Array, q: Array):
        self.total, self.p, self.q = total, p, q

    def logpmf(self, y: Any) -> Array:
        n = self.total
        return np.log(special.comb(n, y)) + y * np.log(self.p) + (n - y) * np.log(self.q)

    def cdf(self, y: Any) -> Array:
        return np.sum([np.exp(self.logpmf(k)) for k in range(int(np.floor(y)) + 1)], axis=0)

    def mean(self) -> Array:
        return self.total * self.p

    def var(self) -> Array:
        return self.total * self.p * self.q


class Classes:
    """Labels 0, …, C − 1 with given probabilities [..., C]."""

    def __init__(self, probabilities: Array):
        self.p = np.maximum(probabilities, 1e-300)

    def logpmf(self, y: Any) -> Array:
        return np.log(self.p[..., int(y)])

    def cdf(self, y: Any) -> Array:
        return self.p[..., : int(np.floor(y)) + 1].sum(axis=-1)

    def mean(self) -> Array:
        return self.p @ np.arange(self.p.shape[-1])

    def var(self) -> Array:
        return self.p @ np.arange(self.p.shape[-1]) ** 2.0 - self.mean() ** 2


def _ordinal(part: Part, f: Array) -> Classes:
    edges = np.array([-np.inf, *part["cutpoints"], np.inf])
    # Differences in the tail where both terms are small, so that none cancels.
    upper, lower = (edges[1:] - f[..., None]) / part["sigma"], (edges[:-1] - f[..., None]) / part["sigma"]
    flip = lower > 0
    a, b = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    return Classes(stats.norm.cdf(b) - stats.norm.cdf(a))


def _nbinom(part: Part, f: Array) -> Any:
    return stats.nbinom(part["concentration"], part["concentration"] / (part["concentration"] + np.exp(f)))


def distribution(part: Part, f: list[Array], p: int, n: int | None) -> Any:
    """p(y | f) of output p of datum n (None for a new one), as a distribution of SciPy, for values f of its latents."""

    def option(name: str) -> float:
        value = part[name]
        if isinstance(value, Part):  # per datum
            value = value["new"] if n is None else value["values"][n]
        value = np.asarray(value, float)
        return float(value[p] if value.ndim and value.size > 1 else value.squeeze())

    own = {name: option(name) for name in part.options if name not in ("link", "cutpoints")}
    link = LINKS.get(part.get("link"), np.exp)
    makers: dict[str, Callable[[], Any]] = {
        "Gaussian": lambda: stats.norm(f[0], np.sqrt(own["variance"])),
        "HeteroscedasticGaussian": lambda: stats.norm(f[0], link(f[1])),
        "StudentT": lambda: stats.t(own["df"], f[0], own["scale"]),
        "Laplace": lambda: stats.laplace(f[0], own["scale"]),
        "LogNormal": lambda: stats.lognorm(own["scale"], scale=np.exp(f[0])),
        "Gamma": lambda: stats.gamma(own["shape"], scale=np.exp(f[0])),
        "Exponential": lambda: stats.expon(scale=np.exp(f[0])),
        "Weibull": lambda: stats.weibull_min(own["shape"], scale=np.exp(f[0])),
        "Beta": lambda: stats.beta(own["scale"] * link(f[0]), own["scale"] * link(-f[0])),
        "Bernoulli": lambda: Classes(np.stack([link(-f[0]), link(f[0])], axis=-1)),
        "Binomial": lambda: Binomial(int(own["total_count"]), link(f[0]), link(-f[0])),
        "Poisson": lambda: stats.poisson(own["exposure"] * link(f[0])),
        "NegativeBinomial": lambda: _nbinom(part, f[0]),
        "ZeroInflatedPoisson": lambda: ZeroInflated(own["zero_probability"], stats.poisson(np.exp(f[0]))),
        "ZeroInflatedNegativeBinomial": lambda: ZeroInflated(own["zero_probability"], _nbinom(part, f[0])),
        "Ordinal": lambda: _ordinal(part, f[0]),
        "Softmax": lambda: Classes(special.softmax(np.stack(f, axis=-1), axis=-1)),
    }
    return makers[part.kind]()


def log_density(dist: Any, y: float) -> Array:
    """log p(y), of a density or of a probability."""
    return dist.logpdf(y) if hasattr(dist, "pdf") or hasattr(dist, "logpdf") else dist.logpmf(y)


def latents_of(part: Part, p: int, num_outputs: int) -> list[int]:
    """Which latents output p depends on."""
    if part.kind == "HeteroscedasticGaussian":
        return [p, num_outputs + p]
    if part.kind == "Softmax":
        return list(range(part.args[0]))
    return [p]


def part_of(likelihood: Part, p: int) -> tuple[Part, int]:
    """The likelihood of output p, and the number of the output in it."""
    return (likelihood.args[0][p], 0) if likelihood.kind == "PerOutput" else (likelihood, p)


def _line(mean: float, variance: float, kink: float | None) -> tuple[list[Array], Array]:
    """Nodes and weights of N(mean, variance), by Gauss–Legendre on panels that meet at a kink."""
    sd = np.sqrt(variance)
    reach = 9.0 + 2.0 * min(sd, 8.0)  # the mass of exp(2f) N(f) lies 2 sd from the centre
    # Panels of ¾ sd, and of length 1 at most: the density of a label changes over less than its scale of 0.3 to 1.
    cuts = np.linspace(-reach, reach, 1 + int(np.ceil(reach * max(1.0 / 0.375, 2.0 * sd))))
    if kink is not None and sd > 0 and abs(kink - mean) < reach * sd:
        cuts = np.sort(np.append(cuts, (kink - mean) / sd))
    t, w = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(cuts)[:, None]
    z = (cuts[:-1, None] + half * (t[None] + 1)).ravel()
    weights = (half * w[None]).ravel() * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return [mean + sd * z], weights


def _grid(mean: Array, cov: Array) -> tuple[list[Array], Array]:
    """Nodes and weights of a Gaussian in two or three dimensions, by the trapezoid rule.

    Its error is that of the bend of a sigmoid, which Gauss–Hermite does not resolve in a wide Gaussian.
    """
    values, vectors = np.linalg.eigh(cov)
    reach, step = (8.0 + 2.0 * min(values.max() ** 0.5, 4.0), 0.1) if len(mean) == 2 else (7.0, 0.25)
    z = np.arange(-reach, reach + step, step)  # in two dimensions, as far as the mass of exp(2f) N(f) lies
    w = np.exp(-0.5 * z**2)
    w = w / w.sum()
    Z = np.stack([g.ravel() for g in np.meshgrid(*[z] * len(mean), indexing="ij")])
    f = mean[:, None] + vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * Z)
    return list(f), reduce(np.multiply.outer, [w] * len(mean)).ravel()


class Labels:
    """The likelihood of the labels of a model, with expectations over latents f ~ N(mean_n, cov_n)."""

    def __init__(self, likelihood: Part, num_outputs: int):
        self.likelihood, self.num_outputs = likelihood, num_outputs

    def _at(self, p: int, n: int | None, mean: Array, cov: Array, y: float | None) -> tuple[Any, Array]:
        """p(y | f) at nodes of f, and their weights."""
        part, own = part_of(self.likelihood, p)
        use = latents_of(part, p, self.num_outputs)
        if len(use) == 1:
            kink = y if part.kind == "Laplace" else None
            f, weights = _line(mean[use[0]], cov[use[0], use[0]], kink)
        else:
            f, weights = _grid(mean[use], cov[np.ix_(use, use)])
        return distribution(part, f, own, n), weights

    def expected_log_prob(self, n: int | None, mean: Array, cov: Array, y: Array) -> float:
        """Σ_p E log p(y_p | f) over the labels that are present."""
        total = 0.0
        for p in np.flatnonzero(~np.isnan(y)):
            dist, weights = self._at(p, n, mean, cov, y[p])
            total += weights @ log_density(dist, y[p])
        return total

    def log_prob(self, f: Array, Y: Array) -> Array:
        """log p(Y | f) [S] of new data [n, P] given samples of their latents [S, n, F]."""
        total = np.zeros(len(f))
        for n, p in zip(*np.nonzero(~np.isnan(Y)), strict=True):
            part, own = part_of(self.likelihood, p)
            latents = [f[:, n, i] for i in latents_of(part, p, self.num_outputs)]
            total += log_density(distribution(part, latents, own, None), Y[n, p])
        return total

    def predictive(self, mean: Array, cov: Array, y: Array) -> tuple[Array, Array, float, Array]:
        """Mean and variance of each label, Σ_p log E p(y_p | f), and P(label ≤ y_p), of a new datum."""
        means, variances, cdfs, total = [], [], [], 0.0
        for p in range(self.num_outputs):
            dist, weights = self._label(p, mean, cov, y[p])
            m = np.broadcast_to(dist.mean(), weights.shape)
            first = weights @ m
            means.append(first)
            variances.append(weights @ np.broadcast_to(dist.var(), weights.shape) + weights @ (m - first) ** 2)
            cdfs.append(weights @ dist.cdf(y[p]))
            total += np.log(weights @ np.exp(log_density(dist, y[p])))
        return np.array(means), np.array(variances), total, np.array(cdfs)

    def _label(self, p: int, mean: Array, cov: Array, y: float) -> tuple[Any, Array]:
        """A new label as a mixture: its distributions and their weights."""
        part, own = part_of(self.likelihood, p)
        if part.kind != "HeteroscedasticGaussian":
            return self._at(p, None, mean, cov, y)
        level, scale = latents_of(part, p, self.num_outputs)  # given the scale, the label is Gaussian
        f, weights = _line(mean[scale], cov[scale, scale], None)
        slope = cov[level, scale] / cov[scale, scale]
        rest = cov[level, level] - slope * cov[level, scale]
        size = distribution(part, [np.zeros(1), f[0]], own, None).std()
        return stats.norm(mean[level] + slope * (f[0] - mean[scale]), np.sqrt(rest + size**2)), weights

    def noise(self, n: int | None) -> Array | None:
        """The variances of Gaussian noise [P], or None."""
        parts = [part_of(self.likelihood, p) for p in range(self.num_outputs)]
        if any(part.kind != "Gaussian" for part, _ in parts):
            return None
        return np.array([distribution(part, [np.zeros(1)], p, n).var()[0] for part, p in parts])
