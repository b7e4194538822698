"""One model with everything at once against the paper's formulas, written in NumPy alone.

Two GP layers below each of which a latent variable enters: q(h) with a full covariance for each datum, then an encoder
of x and y; coregionalised inner functions whose q(v) is coupled; outputs with likelihoods of their own; missing labels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import inducing as ig

RNG = np.random.default_rng(1)
X = np.array([[-0.7], [0.2], [0.9]])
Y = np.array([[0.4, 1.0], [-0.3, np.nan], [np.nan, 0.0]])
NOISE = 0.3
SAMPLES, KEYS = 20_000, 4000

PRIOR_MEAN, PRIOR_SCALE = np.array([0.1, -0.2]), np.array([1.2, 0.8])  # of the first h
MEANS, SCALES, LOWER = 0.3 * RNG.normal(size=(3, 2)), RNG.uniform(0.5, 0.7, (3, 2)), 0.4 * RNG.normal(size=(3, 1))
A, B = 0.4 * RNG.normal(size=(2, 5)), np.array([0.1, 0.2])  # the encoder of the second: A (x, y, mask) + b

Z1, Z2, W = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 4)), RNG.normal(size=(3, 2))
M1, ROOT1 = RNG.normal(size=(2, 2)), np.tril(0.4 * RNG.normal(size=(4, 4))) + 0.5 * np.eye(4)  # of v
M2, ROOT2 = RNG.normal(size=(2, 2)), np.tril(0.3 * RNG.normal(size=(2, 2, 2))) + 0.4 * np.eye(2)  # of w
LEVELS = np.array([0.2, -0.1])


def model():
    encoder = eqx.tree_at(lambda e: e.lower, ig.layers.PerDatumEncoder(MEANS, SCALES, full=True), jnp.asarray(LOWER))
    first = ig.LatentVariable(2, encoder, mean=PRIOR_MEAN, scale=PRIOR_SCALE)
    kernels = [ig.kernels.SquaredExponential(0.9 * np.ones(3), 0.8), ig.kernels.Matern32(1.1 * np.ones(3), 0.6)]
    inner = ig.SparseGP(ig.priors.LMC(W, kernels), ig.features.InducingPoints(Z1), M1, ROOT1, "v", jitter=0.0)
    second = ig.LatentVariable(1, ig.layers.Amortised(lambda v: jnp.asarray(A) @ v + jnp.asarray(B)))
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(1.3 * np.ones(4), 0.9), 2, ig.means.Constant(LEVELS))
    last = ig.SparseGP(prior, ig.features.InducingPoints(Z2), M2, ROOT2, jitter=0.0)
    likelihood = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(NOISE), ig.likelihoods.Bernoulli()])
    return ig.Model([first, inner, second, last], likelihood)


def distance(a, b):
    return np.sqrt(((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(axis=-1))


def smooth(a, b):
    return 0.8 * np.exp(-0.5 * (distance(a, b) / 0.9) ** 2)


def rough(a, b):
    r = np.sqrt(3.0) * distance(a, b) / 1.1
    return 0.6 * (1.0 + r) * np.exp(-r)


def top(a, b):
    return 0.9 * np.exp(-0.5 * (distance(a, b) / 1.3) ** 2)


def blocks(a, b):
    """Block-diagonal over latents."""
    zero = np.zeros_like(a)
    return np.concatenate([np.concatenate([a, zero], -1), np.concatenate([zero, b], -1)], -2)


def sparse_gp(Kuu, Kuf, Kff, m, S):
    """eq:sparse_mgp_v2 at the points of each sample."""
    C = np.swapaxes(np.linalg.solve(Kuu, Kuf), 1, 2)
    return C @ m, Kff - C @ (Kuu - S) @ np.swapaxes(C, 1, 2)


def sample(rng, mean, cov):
    root = np.linalg.cholesky(cov + 1e-12 * np.eye(cov.shape[-1]))
    return mean + (root @ rng.normal(size=(*mean.shape, 1)))[..., 0]


def kl(m, S, K):
    trace = np.trace(np.linalg.solve(K, S)) + m @ np.linalg.solve(K, m) - len(m)
    return 0.5 * (trace + np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1])


def log_density(output, y, f):
    return norm.logcdf((2.0 * y - 1.0) * f) if output else norm.logpdf(y, f, NOISE**0.5)


def brute_force(R, beta, integrate):
    """eq:ugly_log_2 with a latent variable at each layer, and with f sampled as in eq:sparse_gp_iw_lv_marg_lik_3."""
    rng = np.random.default_rng(2)
    K1, S1, K2 = blocks(smooth(Z1, Z1), rough(Z1, Z1)), ROOT1 @ ROOT1.T, top(Z2, Z2)
    L2 = np.linalg.cholesky(K2)
    q2 = [(L2 @ m, L2 @ root @ root.T @ L2.T) for m, root in zip(M2, ROOT2, strict=True)]
    total, error = -beta * (kl(M1.ravel(), S1, K1) + sum(kl(m, S, K2) for m, S in q2)), 0.0
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    for n in range(3):
        seen, y = ~np.isnan(Y[n]), np.nan_to_num(Y[n])
        root = np.diag(SCALES[n]) + np.array([[0.0, 0.0], [LOWER[n, 0], 0.0]])
        h = MEANS[n] + rng.normal(size=(SAMPLES, R, 2)) @ root.T
        log_ratio = norm.logpdf(h, PRIOR_MEAN, PRIOR_SCALE).sum(axis=2)
        log_ratio -= multivariate_normal(MEANS[n], root @ root.T).logpdf(h).reshape(SAMPLES, R)
        x = np.concatenate([np.broadcast_to(X[n], (SAMPLES, R, 1)), h], axis=2)
        Kuf = blocks(smooth(Z1[None], x), rough(Z1[None], x))
        g = sample(rng, *sparse_gp(K1, Kuf, blocks(smooth(x, x), rough(x, x)), M1.ravel(), S1))
        m, raw = A @ np.concatenate([X[n], y, seen]) + B
        s = np.log1p(np.exp(raw))
        h = m + s * rng.normal(size=(SAMPLES, R))
        log_ratio += norm.logpdf(h) - norm.logpdf(h, m, s)
        x = np.concatenate([np.swapaxes(W @ g.reshape(SAMPLES, 2, R), 1, 2), h[..., None]], axis=2)
        log_w = beta * log_ratio
        for p in np.flatnonzero(seen):
            mean, cov = sparse_gp(K2, top(Z2[None], x), top(x, x), *q2[p])
            mean = mean + LEVELS[p]
            if integrate:
                nodes = mean[..., None] + np.sqrt(np.diagonal(cov, axis1=1, axis2=2))[..., None] * z
                log_w = log_w + log_density(p, y[p], nodes) @ (weights / weights.sum())
            else:
                log_w = log_w + log_density(p, y[p], sample(rng, mean, cov))
        values = logsumexp(log_w, axis=1) - np.log(R)
        total, error = total + values.mean(), error + values.var() / SAMPLES
    return total, error**0.5


@pytest.mark.parametrize(("R", "beta", "integrate"), [(1, 1.0, True), (4, 0.6, True), (3, 1.5, False)])
def test_the_bound_of_everything_at_once(R, beta, integrate):
    options = {"importance": R, "beta": beta, "integrate": integrate}

    @eqx.filter_jit
    def estimates(model, keys):
        return jax.lax.map(lambda k: ig.elbo(model, ig.Data(X, Y), key=k, **options), keys, batch_size=100)

    values = np.asarray(estimates(model(), jax.random.split(jax.random.key(R), KEYS)))
    exact, error = brute_force(R, beta, integrate)
    error = np.hypot(error, values.std() / np.sqrt(KEYS))
    assert error < 0.1
    assert abs(values.mean() - exact) < 4.5 * error
