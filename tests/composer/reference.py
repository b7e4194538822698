"""Dense models in NumPy: q(f), KL divergences, bounds, evidence and predictions, from the description of a model."""

from typing import Any

import numpy as np
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from tests.composer.likelihoods import Labels
from tests.composer.parts import Part
from tests.composer.processes import FUNCTIONS, Jet, apply, covariance, features_of, gram_and_root, prior_of

Array = np.ndarray


def gaussian_kl(m: Array, S: Array, mu: Array, K: Array) -> float:
    """KL( N(m, S) ‖ N(mu, K) )."""
    d = mu - m
    logs = np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1]
    return 0.5 * (np.trace(np.linalg.solve(K, S)) + d @ np.linalg.solve(K, d) - len(m) + logs)


class SparseGP:
    """A sparse GP: p(u), q(u) and q(f) as dense Gaussians over the features of all latents."""

    def __init__(self, part: Part):
        prior, given = prior_of(part.args[0]), part.args[1]
        L = len(prior.kernels)
        each = given if isinstance(given, list) else [given] * L
        features = [features_of(f, k) for k, f in zip(prior.kernels, each, strict=True)]
        pairs = list(zip(prior.kernels, features, strict=True))
        each = [gram_and_root(k, f, part["jitter"]) for k, f in pairs]
        self.prior, self.features = prior, features
        self.mu = np.concatenate([apply(k, f, m) for (k, f), m in zip(pairs, prior.means, strict=True)])
        self.K, root = block_diag(*[K for K, _ in each]), block_diag(*[R for _, R in each])
        m, R = np.asarray(part["mean"], float).ravel(), _dense_root(part["root"], L)
        if part["coordinates"] == "w":
            m, R = root @ m, root @ R
        self.m, self.S = m + (0.0 if part["coordinates"] == "u" else self.mu), R @ R.T

    def kl(self) -> float:
        return gaussian_kl(self.m, self.S, self.mu, self.K)

    def prior_moments(self, X: Array) -> tuple[Array, Array, Array]:
        """Prior mean [n·P], covariance [n·P, n·P] and Kuf [L·M, n·P] of the outputs at X, datum by datum."""
        atoms, mean = self.prior.outputs(X)
        triples = list(zip(self.prior.kernels, self.features, atoms, strict=True))
        Kff = np.sum([covariance(k, a, a) for k, _, a in triples], axis=0)
        return mean, Kff, np.concatenate([covariance(k, f, a) for k, f, a in triples])

    def joint(self, X: Array) -> tuple[Array, Array]:
        """Mean [n·P] and covariance [n·P, n·P] of q(f)."""
        mean, Kff, Kuf = self.prior_moments(X)
        A = np.linalg.solve(self.K, Kuf)
        return mean + A.T @ (self.m - self.mu), Kff - A.T @ (self.K - self.S) @ A

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Mean [n, P] and covariance [n, P, P] of q(f) at each input by itself."""
        P, means, covs = self.prior.num_outputs, [], []
        for rows in np.array_split(X, -(-len(X) // 40)):
            n = len(rows)
            mean, cov = self.joint(rows)
            means.append(mean.reshape(n, P))
            covs.append(cov.reshape(n, P, n, P)[np.arange(n), :, np.arange(n)])
        return np.concatenate(means), np.concatenate(covs)


def _dense_root(root: Any, L: int) -> Array:
    """The root of the covariance of q as one matrix [L·M, L·M]."""
    if isinstance(root, tuple):
        factors = [np.asarray(f.args[0], float) for f in root]
        return block_diag(*[np.kron(*[f[l] for f in factors]) for l in range(L)])
    R = np.asarray(root, float)
    if R.ndim == 3:
        return block_diag(*R)
    return np.diag(R.ravel()) if len(R) == L else R


class BayesianDense:
    """[x, 1] W with independent Gaussian weights."""

    def __init__(self, part: Part):
        self.mean, self.scale, self.prior_scale = (
            np.asarray(part[name], float) for name in ("mean", "scale", "prior_scale")
        )

    def kl(self) -> float:
        m, s, p = self.mean.ravel(), self.scale.ravel(), self.prior_scale.ravel()
        return gaussian_kl(m, np.diag(s**2), 0 * m, np.diag(p**2))

    def marginals(self, X: Array) -> tuple[Array, Array]:
        x = np.concatenate([X, np.ones((len(X), 1))], axis=1)
        variance = x**2 @ self.scale**2
        return x @ self.mean, variance[:, :, None] * np.eye(self.mean.shape[1])

    def joint(self, X: Array) -> tuple[Array, Array]:
        x = np.concatenate([X, np.ones((len(X), 1))], axis=1)
        cov = np.einsum("nd,dp,md->npm", x, self.scale**2, x)
        n, P = len(X), self.mean.shape[1]
        full = np.zeros((n, P, n, P))
        for p in range(P):
            full[:, p, :, p] = cov[:, p]
        return (x @ self.mean).ravel(), full.reshape(n * P, n * P)


def _sample(rng: np.random.Generator, mean: Array, cov: Array) -> Array:
    """One sample of each Gaussian [n, P]."""
    values, vectors = np.linalg.eigh(cov)
    z = rng.standard_normal(mean.shape) * np.sqrt(np.maximum(values, 0.0))
    return mean + np.einsum("npq,nq->np", vectors, z)


class Model:
    """A stack of layers with a likelihood."""

    def __init__(self, part: Part, num_outputs: int):
        layers, likelihood = part.args
        self.labels = Labels(likelihood, num_outputs)
        self.parts = layers
        self.layers = [_layer(layer) for layer in layers]

    def kl(self) -> float:
        return sum(layer.kl() for layer in self.layers if layer is not None)

    @property
    def last(self) -> Any:
        return self.layers[-1]

    def data_term(self, X: Array, Y: Array, weight: Array) -> float:
        """Σ_n weight_n E log p(y_n | f_n) of a model with one layer."""
        mean, cov = self.last.marginals(X)
        return sum(weight[n] * self.labels.expected_log_prob(n, mean[n], cov[n], Y[n]) for n in range(len(X)))

    def inner(self, rng: np.random.Generator, x: Array, rows: Array | None) -> tuple[Array, Array]:
        """A sample of the last layer's inputs at x, of the data `rows` or (None) of new ones, and log p(h)/q(h)."""
        weight = np.zeros(len(x))
        for part, layer in zip(self.parts[:-1], self.layers[:-1], strict=True):
            if part.kind == "Deterministic":
                x = FUNCTIONS[part.args[0].name](Jet(x)).v
            elif part.kind == "LatentVariable":
                h = rng.standard_normal((len(x), part.args[0]))
                encoder = part.get("encoder")
                if encoder is not None and rows is not None:
                    m, s = np.asarray(encoder["mean"], float)[rows], np.asarray(encoder["scale"], float)[rows]
                    log_q = -0.5 * (h**2).sum(axis=1) - np.log(s).sum(axis=1)
                    h = m + s * h
                    weight = weight - 0.5 * (h**2).sum(axis=1) - log_q
                x = np.concatenate([x, h], axis=1)
            else:
                f = _sample(rng, *layer.marginals(x))
                x = np.concatenate([x, f], axis=1) if part.kind == "Skip" else f
        return x, weight

    def data_terms(
        self, rng: np.random.Generator, X: Array, Y: Array, weight: Array, importance: int, samples: int
    ) -> Array:
        """Monte Carlo samples of Σ_n weight_n E log 1/R Σ_r exp(log explik_nr + log p/q_nr) of a deep model."""
        N, R = len(X), importance
        rows = np.tile(np.repeat(np.arange(N), R), samples)
        x, ratio = self.inner(rng, X[rows], rows)
        mean, cov = self.last.marginals(x)
        logs = np.array([self.labels.expected_log_prob(n, m, c, Y[n]) for n, m, c in zip(rows, mean, cov, strict=True)])
        logs = (logs + ratio).reshape(samples, N, R)
        terms = np.logaddexp.reduce(logs, axis=2) - np.log(R)
        return (terms * weight * ~np.isnan(Y).all(axis=1)).sum(axis=1)

    def components(self, rng: np.random.Generator, X: Array, samples: int) -> tuple[Array, Array]:
        """Means and variances [S, n, P] of q(f) given samples of the inner layers."""
        x, _ = self.inner(rng, np.tile(X, (samples, 1)), None)
        mean, cov = self.last.marginals(x)
        shape = samples, len(X), mean.shape[1]
        return mean.reshape(shape), np.diagonal(cov, axis1=1, axis2=2).reshape(shape)

    def joint_components(self, rng: np.random.Generator, X: Array, samples: int) -> tuple[Array, Array]:
        """Means [S, n·P] and covariances [S, n·P, n·P] of q(f) given joint samples of the inner layers."""
        means, covs = zip(*[self.last.joint(self._inner_jointly(rng, X)) for _ in range(samples)], strict=True)
        return np.stack(means), np.stack(covs)

    def _inner_jointly(self, rng: np.random.Generator, x: Array) -> Array:
        """A sample of the last layer's inputs at new x, of which each layer is one function."""
        for part, layer in zip(self.parts[:-1], self.layers[:-1], strict=True):
            if part.kind == "Deterministic":
                x = FUNCTIONS[part.args[0].name](Jet(x)).v
            elif part.kind == "LatentVariable":
                x = np.concatenate([x, rng.standard_normal((len(x), part.args[0]))], axis=1)
            else:
                mean, cov = layer.joint(x)
                f = _sample(rng, mean[None], cov[None]).reshape(len(x), -1)
                x = np.concatenate([x, f], axis=1) if part.kind == "Skip" else f
        return x

    def gaussian_bounds(self, X: Array, Y: Array, weight: Array) -> tuple[float, float]:
        """Titsias' bound and the evidence, for Gaussian noise and one layer; rows occur as often as they count."""
        rows = np.repeat(np.arange(len(X)), weight.astype(int))
        X, Y = X[rows], Y[rows]
        noise = np.stack([self.labels.noise(n) for n in rows]).ravel()
        mean, Kff, Kuf = self.last.prior_moments(X)
        y = Y.ravel()
        seen = ~np.isnan(y)
        mean, Kff, Kuf, y, noise = mean[seen], Kff[np.ix_(seen, seen)], Kuf[:, seen], y[seen], noise[seen]
        Q = Kuf.T @ np.linalg.solve(self.last.K, Kuf)
        lost = 0.5 * np.sum((np.diag(Kff) - np.diag(Q)) / noise)
        bound = multivariate_normal(mean, Q + np.diag(noise)).logpdf(y) - lost
        return bound, multivariate_normal(mean, Kff + np.diag(noise)).logpdf(y)

    def joint_log_prob(self, X: Array, Y: Array) -> float:
        """log p(Y) of new data, for Gaussian noise and one layer."""
        noise = np.tile(self.labels.noise(None), len(X))
        mean, cov = self.last.joint(X)
        seen = ~np.isnan(Y.ravel())
        cov = cov + np.diag(noise)
        return multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).logpdf(Y.ravel()[seen])


def _layer(part: Part) -> Any:
    if part.kind == "SparseGP":
        return SparseGP(part)
    if part.kind == "BayesianDense":
        return BayesianDense(part)
    return _layer(part.args[0]) if part.kind == "Skip" else None
