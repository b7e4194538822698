"""Every multioutput prior against dense conditioning on the joint covariance of (f(X), u), from the definition."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

from . import brute
from .cases import BUILDERS, INTERDOMAIN, patch_means, separate

CASES = [build.__name__ for build in (*BUILDERS, *INTERDOMAIN)]
build_case = cache(lambda name: {b.__name__: b for b in (*BUILDERS, *INTERDOMAIN)}[name]())


def random_q(joint, L, coupled):
    """A mean [L, M] and a root of q(u), near the prior."""
    rng = np.random.default_rng(1)
    M = len(joint.mu_u) // L
    m = joint.mu_u + 0.5 * rng.normal(size=L * M)
    if coupled:
        R = np.tril(0.2 * rng.normal(size=(L * M, L * M))) + 0.6 * np.eye(L * M)
        return m.reshape(L, M), R, R @ R.T
    R = np.tril(0.2 * rng.normal(size=(L, M, M))) + 0.6 * np.eye(M)
    S = np.zeros((L, M, L, M))
    for l in range(L):
        S[l, :, l] = R[l] @ R[l].T
    return m.reshape(L, M), R, S.reshape(L * M, L * M)


def labels(N, P):
    """Labels with a third of them missing, and a noise variance for each output."""
    rng = np.random.default_rng(2)
    y = rng.normal(size=(N, P))
    y[rng.uniform(size=(N, P)) < 0.33] = np.nan
    y[0, 0], y[-1, -1] = 0.3, np.nan
    return y, rng.uniform(0.1, 0.5, P)


@eqx.filter_jit
def everything(prior, features, m, root, X, y, noise):
    """What the library says about a case: predictions, bounds and KL."""
    gp = ig.SparseGP(prior, features, m, root, coordinates="u", jitter=0.0)
    model = ig.Model(gp, ig.likelihoods.Gaussian(noise))
    best = ig.collapse(model, (X, y))
    mean, cov = gp.joint(X[None])
    marginal_mean, variance = gp.marginals(X)
    _, outputs = gp.joint(X[:, None])
    return {
        "mean": mean[0],
        "cov": cov[0],
        "marginal_mean": marginal_mean,
        "variance": variance,
        "outputs": outputs,
        "kl": gp.kl(),
        "elbo": ig.elbo(model, (X, y)),
        "collapsed": ig.collapsed_elbo(model, (X, y)),
        "optimal_elbo": ig.elbo(best, (X, y)),
        "optimal_root": best.layers[0].root,
        "evidence": ig.log_evidence(model, (X, y)),
    }


def close(got, expected, rtol=1e-8, atol=1e-9):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=rtol, atol=atol)


COUPLED = ["shared", "lmc", "convolution", "jacobian", "jacobian_and_values"]
SEPARATE = ["separate", "shared", "jacobian_and_values", "patch_responses", "patch_means"]  # outputs of several latents


@pytest.mark.parametrize(
    "name, coupled",
    [(name, False) for name in CASES] + [(name, True) for name in COUPLED],
    ids=CASES + [f"{name}-coupled" for name in COUPLED],
)
def test_dense_conditioning(name, coupled):
    case = build_case(name)
    prior, joint = case.prior, case.joint
    N, P, L = len(case.X), prior.num_outputs, prior.num_latents
    y, noise = labels(N, P)
    m, root, S = random_q(joint, L, coupled)
    got = everything(prior, case.features, m, root, jnp.asarray(case.X), jnp.asarray(y), jnp.asarray(noise))
    flat, spread = y.reshape(-1), np.tile(noise, N)
    mean, cov = brute.posterior(joint, m.reshape(-1), S)
    close(got["mean"].reshape(-1), mean)
    close(got["cov"], cov)
    close(got["marginal_mean"].reshape(-1), mean)
    close(got["variance"].reshape(-1), np.diagonal(cov))
    close(got["outputs"], np.stack([cov[n * P : (n + 1) * P, n * P : (n + 1) * P] for n in range(N)]))
    close(got["kl"], brute.kl(joint, m.reshape(-1), S))
    bound = brute.elbo(joint, m.reshape(-1), S, flat, spread)
    close(got["elbo"], bound)
    best = brute.collapsed(joint, flat, spread)
    close(got["collapsed"], best)
    close(got["optimal_elbo"], best)  # the bound has one maximum, so q(u) is that
    M = case.joint.Suu.shape[0] // L
    assert got["optimal_root"].shape == ((L, M, M) if L == 1 or name in SEPARATE else (L * M, L * M))
    close(got["evidence"], brute.evidence(joint, flat, spread))


@pytest.mark.parametrize("name", ["separate", "lmc", "convolution", "jacobian", "patch_means", "fourier_mixture"])
def test_output_as_input(name):
    """The view of rows (x, p) gives the same numbers, and deleting rows is dropping labels."""
    case = build_case(name)
    prior, X = case.prior, jnp.asarray(case.X)
    N, P = len(X), prior.num_outputs
    y, noise = labels(N, P)
    m, root, _ = random_q(case.joint, prior.num_latents, coupled=False)
    seen = ~np.isnan(y)
    n, p = np.nonzero(seen)
    rows = jnp.concatenate([X[n], jnp.asarray(p, float)[:, None]], axis=1)
    per_row = ig.likelihoods.PerDatum(noise[p], new=0.0)

    @eqx.filter_jit
    def compare(prior, features, X, y, noise, rows, per_row):
        def both(prior, likelihood, x, y):
            gp = ig.SparseGP(prior, features, m, root, jitter=0.0)
            model = ig.Model(gp, likelihood)
            return gp, ig.elbo(model, (x, y)), ig.collapsed_elbo(model, (x, y)), ig.log_evidence(model, (x, y))

        first, *bounds = both(prior, ig.likelihoods.Gaussian(noise), X, y)
        second, *view = both(ig.priors.as_input(prior), ig.likelihoods.Gaussian(per_row), rows, y[n, p])
        return bounds, view, first.joint(X[None]), second.joint(rows[None]), second.marginals(rows)

    bounds, view, (mean, cov), (row_mean, row_cov), (marginal, variance) = compare(
        prior, case.features, X, jnp.asarray(y), jnp.asarray(noise), rows, per_row
    )
    close(view, bounds)
    flat = seen.reshape(-1)
    close(row_mean[0, :, 0], mean[0].reshape(-1)[flat])
    close(marginal[:, 0], mean[0].reshape(-1)[flat])
    close(row_cov[0], np.asarray(cov[0])[np.ix_(flat, flat)])
    close(variance[:, 0], np.diagonal(cov[0])[flat])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(build.__name__, marks=[pytest.mark.slow] if build in (separate, patch_means) else [])
        for build in BUILDERS
    ],
)
def test_draws_have_the_joint_covariance(name):
    """(f(X), u) of many draws, against the joint Gaussian within Monte Carlo error."""
    case = build_case(name)
    prior, X, joint = case.prior, jnp.asarray(case.X), case.joint
    R = 20_000

    @eqx.filter_jit
    def sample(prior, features, X, keys):
        from inducing.priors.base import mix_mean
        from inducing.priors.latents import apply_features

        features = tuple(features) if isinstance(features, list) else features

        def one(key):
            g, sites = prior.draw_latents(key, 32, X.shape[1])
            u = apply_features(features, prior.kernels, g, prior.num_latents)
            return jnp.concatenate([mix_mean(prior, sites(X)).reshape(-1), u.reshape(-1)])

        return jax.lax.map(one, keys, batch_size=1000)

    draws = np.asarray(sample(prior, case.features, X, jax.random.split(jax.random.key(0), R)))
    C = np.block([[joint.Sff, joint.Sfu], [joint.Sfu.T, joint.Suu]])
    products = draws[:, :, None] * draws[:, None, :]
    error = products.std(axis=0) / np.sqrt(R) + 1e-12
    assert np.abs((products.mean(axis=0) - C) / error).max() < 5.0


@pytest.mark.parametrize("name", ["lmc", "convolution", "gradient", "patch_means"])
def test_posterior_draws(name):
    """Functions of q(f) have its mean and covariance, outputs correlated."""
    case = build_case(name)
    m, root, S = random_q(case.joint, case.prior.num_latents, coupled=case.prior.num_latents > 1)
    mean, cov = brute.posterior(case.joint, m.reshape(-1), S)
    X, R = jnp.asarray(case.X), 20_000

    @eqx.filter_jit
    def sample(prior, features, keys):
        gp = ig.SparseGP(prior, features, m, root, "u", jitter=0.0)
        return jax.lax.map(lambda key: gp.draw(key, 32, X.shape[1])(X).reshape(-1), keys, batch_size=1000)

    draws = np.asarray(sample(case.prior, case.features, jax.random.split(jax.random.key(1), R))) - mean
    assert np.abs(draws.mean(axis=0) / (draws.std(axis=0) / np.sqrt(R) + 1e-12)).max() < 5.0
    products = draws[:, :, None] * draws[:, None, :]
    error = products.std(axis=0) / np.sqrt(R) + 1e-12
    assert np.abs((products.mean(axis=0) - cov) / error).max() < 5.0


def test_coregionalised_is_the_naive_prior_when_W_is_invertible():
    """u = W g(Z): the same posterior and bound with inducing variables of the outputs or of the latents."""
    rng = np.random.default_rng(3)
    W = jnp.asarray([[1.0, 0.4], [-0.5, 1.2]])
    prior = ig.priors.LMC(W, [ig.kernels.SquaredExponential(0.7, 1.2), ig.kernels.Matern32(0.9, 0.8)])
    Z, X = jnp.linspace(-1.0, 1.0, 3)[:, None], jnp.asarray(rng.uniform(-1, 1, (6, 1)))
    y = jnp.asarray(rng.normal(size=(6, 2))).at[1, 0].set(jnp.nan)
    pairs = jnp.asarray([[z, p] for z in np.asarray(Z)[:, 0] for p in (0.0, 1.0)])
    naive = ig.priors.MatrixValued(ig.priors.as_input(prior).kernel, num_outputs=2)

    @eqx.filter_jit
    def optimum(prior, Z):
        gp = ig.SparseGP(prior, ig.features.InducingPoints(Z), jitter=0.0)
        model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        best = ig.collapse(model, (X, y)).layers[0]
        return ig.collapsed_elbo(model, (X, y)), best.kl(), best.joint(X[None] + 0.1)

    for got, expected in zip(jax.tree.leaves(optimum(naive, pairs)), jax.tree.leaves(optimum(prior, Z)), strict=True):
        close(got, expected)


@pytest.mark.parametrize("name", ["separate", "shared", "lmc", "convolution"])
def test_natural_gradient_step_is_the_collapsed_optimum(name):
    """One unit step from anywhere, for q per latent (independent outputs) and coupled (mixed ones)."""
    case = build_case(name)
    prior = case.prior
    y, noise = labels(len(case.X), prior.num_outputs)
    m, root, _ = random_q(case.joint, prior.num_latents, coupled=name in ("lmc", "convolution"))
    data = (jnp.asarray(case.X), jnp.asarray(y))

    @eqx.filter_jit
    def step(prior, features):
        gp = ig.SparseGP(prior, features, m, root, jitter=0.0)
        model = ig.Model(gp, ig.likelihoods.Gaussian(jnp.asarray(noise)))
        stepped = ig.natural_gradient_step(model, data, gamma=1.0)
        return ig.elbo(stepped, data), ig.collapsed_elbo(model, data)

    close(*step(prior, case.features), rtol=1e-7)
