"""Importance-weighted bounds, over latent variables and over weights, against truths.

Most tests use models small enough for the exact evidence: linear decoders, Bayesian linear regression, and GPs whose
kernel is linear, so that they are Bayesian linear regressions too.
"""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import inducing as ig
from inducing.bounds import expected_log_likelihood

from .bounds import (
    DATA,
    KEY,
    NOISE,
    SLOPES,
    UNSUPERVISED,
    N,
    X,
    Y,
    elbo,
    gp,
    latent_gp,
    linear,
    linear_decoder,
    mean_and_error,
    two_latents,
)
from .oracles.deep import importance_weighted, importance_weights


def exact_encoder():
    """The posterior of h in the linear decoder."""
    v = 1 / (1 + 1.3**2 / 0.4)
    return ig.layers.PerDatumEncoder(v * 1.3 * (Y - 0.2) / 0.4, scale=v**0.5)


EVIDENCE = multivariate_normal(0.2, 1.3**2 + 0.4).logpdf(Y).sum()


def test_bounds_increase_with_importance_and_reach_the_evidence_of_a_linear_decoder():
    model = linear_decoder()
    values = [mean_and_error(model, UNSUPERVISED, importance=R, num=1000) for R in (1, 2, 10, 200)]
    for (a, da), (b, db) in itertools.pairwise(values):
        assert b - a > -4.5 * np.hypot(da, db)
    assert values[1][0] - values[0][0] > 10 * values[0][1]  # strictly better, not merely equal
    assert abs(values[-1][0] - EVIDENCE) < 4.5 * values[-1][1] + 0.01 * N
    # and with the exact posterior every weight is the evidence itself, for any number of replicates
    exact = linear_decoder(encoder=exact_encoder())
    for R in (3, 10):
        np.testing.assert_allclose(elbo(exact, UNSUPERVISED, key=KEY, importance=R), EVIDENCE, rtol=1e-12)


def test_one_replicate_is_the_latent_variable_elbo():
    """E[explik] − KL by quadrature over h, for a GP and a non-Gaussian likelihood."""
    base = latent_gp()
    model = eqx.tree_at(lambda m: m.likelihood, base, ig.likelihoods.StudentT(4.0, 0.3))
    _, q, explik, _, kl = eqx.filter_jit(importance_weights)(model, DATA)
    exact = float(jnp.sum(explik @ q - kl) - model.kl())
    mean, error = mean_and_error(model, DATA, importance=1)
    assert abs(mean - exact) < 4.5 * error


@pytest.mark.parametrize("beta", [1.0, 0.6])
def test_the_importance_weighted_bound_is_unbiased(beta):
    """E log 1/5 Σ_r w_r by numerical integration over h: of a linear decoder in SciPy alone, and of a GP."""
    model, xi = linear_decoder(), np.linspace(-12.0, 12.0, 1601)
    q, h = norm.pdf(xi) * (xi[1] - xi[0]), 0.1 + 0.7 * xi
    log_ratio = norm.logpdf(h) - norm.logpdf(h, 0.1, 0.7)
    log_w = norm.logpdf(Y, 0.2 + 1.3 * h, 0.4**0.5) + beta * log_ratio
    exact = sum(importance_weighted(q, row, 5) for row in log_w)
    mean, error = mean_and_error(model, UNSUPERVISED, importance=5, beta=beta, num=10_000)
    assert error < 0.02
    assert abs(mean - exact) < 4.5 * error
    model = latent_gp()
    _, q, explik, log_w, _ = (np.asarray(a) for a in eqx.filter_jit(importance_weights)(model, DATA))
    log_w = explik + beta * (log_w - explik)
    exact = sum(importance_weighted(q, row, 5) for row in log_w) - beta * float(model.kl())
    mean, error = mean_and_error(model, DATA, importance=5, beta=beta)
    assert abs(mean - exact) < 4.5 * error


def test_sampling_the_last_layer_jointly():
    """eq:sparse_gp_iw_lv_marg_lik_3 is eq:ugly_log for one replicate, in expectation, and differs for several."""
    model = latent_gp(root=1.0)
    a, da = mean_and_error(model, DATA, importance=1)
    b, db = mean_and_error(model, DATA, importance=1, integrate=False)
    assert abs(a - b) < 4.5 * np.hypot(da, db)
    a, da = mean_and_error(model, DATA, importance=10)
    b, db = mean_and_error(model, DATA, importance=10, integrate=False)
    assert abs(a - b) > 4.5 * np.hypot(da, db)


def test_latent_variables_at_two_layers_reach_the_evidence():
    """eq:elbo_deep_lv_sgp and eq:ugly_log_2 with everything known: R = 1 and 5 exactly, and the rise to log p(y)."""
    a, b, c, d = SLOPES
    (m1, s1), (m2, s2) = (0.2, 0.8), (-0.1, 0.6)
    residual = Y - c * a * X
    evidence = norm.logpdf(residual, 0.0, np.sqrt((c * b) ** 2 + d**2 + NOISE)).sum()
    squared = (residual - c * b * m1 - d * m2) ** 2 + (c * b * s1) ** 2 + (d * s2) ** 2
    kl = sum(0.5 * (s**2 + m**2 - 1) - np.log(s) for m, s in ((m1, s1), (m2, s2)))
    one = (-0.5 * np.log(2 * np.pi * NOISE) - 0.5 * squared / NOISE - kl).sum()
    xi = np.linspace(-8.0, 8.0, 81)  # both latent variables on a grid
    q = np.outer(norm.pdf(xi), norm.pdf(xi)).reshape(-1) * (xi[1] - xi[0]) ** 2
    h1, h2 = (h.reshape(-1) for h in np.meshgrid(m1 + s1 * xi, m2 + s2 * xi, indexing="ij"))
    log_ratio = norm.logpdf(h1) - norm.logpdf(h1, m1, s1) + norm.logpdf(h2) - norm.logpdf(h2, m2, s2)
    log_w = norm.logpdf(residual, c * b * h1 + d * h2, NOISE**0.5) + log_ratio
    five = sum(importance_weighted(q, row, 5) for row in log_w)
    values = [
        mean_and_error(two_latents(), DATA, importance=R, num=n) for R, n in ((1, 10_000), (5, 10_000), (200, 500))
    ]
    for (mean, error), exact in zip(values, (one, five), strict=False):
        assert abs(mean - exact) < 4.5 * error
    for (low, da), (high, db) in itertools.pairwise(values):
        assert high - low > 4.5 * np.hypot(da, db)  # strictly
    for mean, error in values:
        assert mean < evidence + 3 * error
    assert values[-1][0] > evidence - 0.05


def test_latent_variables_at_two_layers_of_a_deep_gp():
    """An inner GP between two latent variables, one of them amortised: a finite bound and finite gradients."""
    amortised = ig.LatentVariable(1, ig.layers.Amortised.mlp(KEY, 1, x=1, y=1, hidden=(3, 1)))
    layers = [ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((N, 1)))), gp(D=2), amortised, gp(D=2, seed=1)]
    model = ig.Model(layers, ig.likelihoods.Gaussian(NOISE))
    bound = partial(ig.elbo, data=DATA, key=KEY, importance=3, doubly_reparameterised=True)
    value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(bound))(model)
    leaves = jax.tree.leaves(eqx.filter((gradient.layers[0].encoder, gradient.layers[2].encoder), eqx.is_array))
    assert bool(jnp.isfinite(value)) and len(leaves) > 2
    assert all(bool(jnp.isfinite(g).all()) and bool((g != 0).any()) for g in leaves)


ZIGZAG = ig.Data(np.array([-1.0, -0.5, 0.5, 1.0]), np.array([1.0, -1.0, 1.0, -1.0]))


def dense_latent_model():
    """y_n = a·x_n + b·h_n + c + ε with random (a, b, c) shared by all data, through an inner dense layer and a sum."""
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(0.2 * np.ones((N, 1)), scale=0.7))
    inner = ig.BayesianDense(2, 2, scale=np.array([[0.5**0.5], [0.5**0.5], [1.0]]))  # q = p
    return ig.Model([latent, inner, ig.layers.Deterministic(jnp.sum)], ig.likelihoods.Gaussian(NOISE))


def gp_latent_model():
    """The same with a GP of a linear kernel as the inner layer: f(x, h) = a·x + b·h + c, (a, b, c) ~ N(0, I)."""
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(0.2 * np.ones((N, 1)), scale=0.7))
    kernel = ig.kernels.Linear() + ig.kernels.Constant()
    features = ig.features.InducingPoints([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    inner = ig.SparseGP(ig.GP(kernel), features, jitter=1e-9)  # q = p
    return ig.Model([latent, inner, ig.layers.Deterministic(lambda f: f)], ig.likelihoods.Gaussian(NOISE))


def brute_evidence(va, vb, vc):
    """log p(y) of y_n = a x_n + b h_n + c + ε: given b all is Gaussian, and b is on a fine grid."""
    x, y = np.asarray(ZIGZAG.x), np.asarray(ZIGZAG.y)[:, 0]
    b = np.linspace(-8, 8, 2001) * np.sqrt(vb)
    S = va * x @ x.T + vc + (NOISE + b[:, None, None] ** 2) * np.eye(N)
    log_p = -0.5 * (np.linalg.slogdet(2 * np.pi * S)[1] + np.einsum("i,bij,j->b", y, np.linalg.inv(S), y))
    log_p += -0.5 * b**2 / vb - 0.5 * np.log(2 * np.pi * vb)
    return np.max(log_p) + np.log(np.trapezoid(np.exp(log_p - np.max(log_p)), b))


@pytest.mark.parametrize("kind", ["dense", "gp"])
def test_inner_random_functions_never_push_the_bound_over_the_evidence(kind):
    """For data that one function explains badly, drawing it anew for each replicate would exceed the evidence."""
    if kind == "dense":  # two outputs that are summed: variances 2·½ of the weights, and 2 of the bias
        model, evidence = dense_latent_model(), brute_evidence(1.0, 1.0, 2.0)
    else:
        model, evidence = gp_latent_model(), brute_evidence(1.0, 1.0, 1.0)
    np.testing.assert_allclose(model.kl(), 0.0, atol=1e-12)
    for R in (1, 5, 50):
        mean, error = mean_and_error(model, ZIGZAG, importance=R, num=400)
        assert mean < evidence + 3 * error
    assert wrong_bound(model, 50, 200) > evidence + 0.5  # so the test can tell


def wrong_bound(model, R, num):
    """The bound with functions drawn independently for each replicate, by treating replicates as data."""
    repeated = jax.tree.map(lambda a: jnp.repeat(a, R, axis=0), ZIGZAG)

    def run(key):
        latent, inner = model.layers[:2]
        k1, k2 = jax.random.split(key)
        s = latent.sample(ZIGZAG.x[:, None], k1, ZIGZAG, R)
        x = jnp.concatenate([jnp.broadcast_to(ZIGZAG.x[:, None], (N, R, 1)), s.h], -1).reshape(N * R, 1, 2)
        f, _ = inner.propagate(x, k2, repeated, 1)
        explik = expected_log_likelihood(model, repeated, f).reshape(N, R)
        return jnp.sum(jax.nn.logsumexp(explik + s.log_ratio, axis=1) - np.log(R))

    return float(jnp.mean(jax.jit(jax.vmap(run))(jax.random.split(KEY, num))))


def test_minibatches_of_an_index_encoder_are_unbiased_and_order_is_irrelevant():
    encoder = ig.layers.PerDatumEncoder(np.random.default_rng(1).normal(size=(N, 1)), scale=0.6)
    model = latent_gp(encoder)
    full, error = mean_and_error(model, DATA, importance=4)
    parts = [
        mean_and_error(model, DATA.rows(jnp.array(i)), importance=4, num_data=N, key=jax.random.key(7))
        for i in ([3, 0], [2, 1])
    ]
    mean, spread = np.mean([p[0] for p in parts]), np.hypot(parts[0][1], parts[1][1]) / 2
    assert abs(mean - full) < 4.5 * np.hypot(error, spread)
    order = jnp.array([2, 0, 3, 1])
    permuted, error2 = mean_and_error(model, DATA.rows(order), importance=4, key=jax.random.key(8))
    assert abs(permuted - full) < 4.5 * np.hypot(error, error2)
    np.testing.assert_allclose(
        model.layers[0].posterior(DATA.rows(order))[0], np.asarray(encoder.mean)[np.asarray(order)]
    )


def regression(scale=0.5, full=False):
    form = {"root": np.eye(2) * scale} if full else {"scale": scale}
    layer = ig.BayesianDense(1, 1, mean=0.1, prior_scale=[[1.5], [0.7]], **form)
    return ig.Model(layer, ig.likelihoods.Gaussian(NOISE))


def test_global_importance_weighting_reaches_the_evidence_of_bayesian_linear_regression():
    evidence = multivariate_normal(np.zeros(N), 1.5**2 * X @ X.T + 0.7**2 + NOISE * np.eye(N)).logpdf(Y[:, 0])
    run = eqx.filter_jit(partial(ig.iw_elbo_global, samples=400))
    one, five = (float(run(regression(), DATA, key=KEY, importance=S)) for S in (1, 5))
    many = float(eqx.filter_jit(ig.iw_elbo_global)(regression(full=True), DATA, key=KEY, importance=100_000))
    assert one < five < evidence + 0.1
    np.testing.assert_allclose(many, evidence, atol=0.03)
    bound = float(elbo(regression(), DATA))  # one replicate is the ordinary bound, in expectation
    spread = np.std([float(run(regression(), DATA, key=k, importance=1)) for k in jax.random.split(KEY, 10)])
    assert abs(one - bound) < 4.5 * spread


def test_global_importance_weighting_over_weights_and_latent_variables():
    wide = eqx.tree_at(lambda m: m.layers[0].encoder.scale, dense_latent_model(), jnp.ones((N, 1)))  # bounded weights
    run = eqx.filter_jit(ig.iw_elbo_global)
    values = [float(run(wide, ZIGZAG, key=k, importance=200_000)) for k in jax.random.split(KEY, 12)]
    error = np.std(values) / np.sqrt(12)
    assert error < 0.03
    assert abs(np.mean(values) - brute_evidence(1.0, 1.0, 2.0)) < 4.5 * error + 0.01  # and half the variance as bias


def test_global_importance_weighting_looks_into_skips():
    """y = 2x + (a x + b) + ε, and a linear decoder: with exact posteriors every weight is the evidence."""
    S = np.diag([1.5**2, 0.7**2])  # of slope and bias
    design = np.concatenate([X, np.ones((N, 1))], axis=1)
    precision = np.linalg.inv(S) + design.T @ design / NOISE
    V = np.linalg.inv(precision)
    mean = V @ design.T @ (Y - 2.0 * X) / NOISE
    layer = ig.BayesianDense(1, 1, mean=mean, root=np.linalg.cholesky(V), prior_scale=[[1.5], [0.7]])
    model = ig.Model([ig.Skip(layer), linear(2.0, 1.0)], ig.likelihoods.Gaussian(NOISE))
    evidence = multivariate_normal((2.0 * X)[:, 0], design @ S @ design.T + NOISE * np.eye(N)).logpdf(Y[:, 0])
    bound = eqx.filter_jit(ig.iw_elbo_global)
    np.testing.assert_allclose(bound(model, DATA, key=KEY, importance=3), evidence, rtol=1e-10)
    latent = linear_decoder(encoder=exact_encoder())
    skipped = ig.Model([ig.Skip(latent.layers), linear(1.0)], latent.likelihood)
    np.testing.assert_allclose(bound(skipped, UNSUPERVISED, key=KEY, importance=3), EVIDENCE, rtol=1e-10)


def test_global_importance_weighting_over_u_reaches_the_evidence():
    """θ = (u, f(X)): S = 1 is the ELBO in expectation, S → ∞ log p(y), for any features, coordinates and coupling."""
    kernel, W = ig.kernels.SquaredExponential(0.9, 1.2), np.array([[1.0, 0.4], [-0.3, 0.8]])
    y = np.concatenate([Y, 0.5 * Y[::-1]], axis=1)
    prior = ig.priors.LMC(W, [kernel, ig.kernels.Matern32(1.5, 0.5)], 0.3)
    root = np.tril(0.2 * np.random.default_rng(2).normal(size=(4, 4))) + 0.7 * np.eye(4)
    layer = ig.SparseGP(prior, ig.features.InducingPoints(X[::2]), 0.2 * jnp.ones((2, 2)), root, "u")
    model, data = ig.Model(layer, ig.likelihoods.Gaussian(NOISE)), ig.Data(X, y)
    evidence = multivariate_normal(
        0.3 * np.ones(2 * N), prior.covariance(jnp.asarray(X)) + NOISE * np.eye(2 * N)
    ).logpdf(y.ravel())
    run = eqx.filter_jit(ig.iw_elbo_global)
    keys = jax.random.split(KEY, 20)
    one = np.array([run(model, data, key=k, samples=2000, importance=1) for k in keys])
    assert abs(one.mean() - float(elbo(model, data))) < 4.5 * one.std() / 20**0.5
    five = np.array([run(model, data, key=k, samples=400, importance=5) for k in keys])
    many = np.array([run(model, data, key=k, importance=40_000) for k in keys])
    assert one.mean() + 0.1 < five.mean() < many.mean()
    assert many.std() < 0.2
    assert abs(many.mean() - evidence) < 4.5 * many.std() / 20**0.5 + many.std() ** 2  # half the variance is bias


def test_global_importance_weights_of_an_exact_posterior_are_the_evidence():
    """With all inputs as inducing points and the exact q(u), in a Skip too: each weight is p(y) itself."""
    layer = ig.SparseGP(ig.GP(ig.kernels.Matern52(0.8)), ig.features.InducingPoints(X), jitter=1e-12)
    exact = ig.collapse(ig.Model(layer, ig.likelihoods.Gaussian(NOISE)), DATA)
    run = eqx.filter_jit(ig.iw_elbo_global)
    np.testing.assert_allclose(run(exact, DATA, key=KEY, importance=3), ig.log_evidence(exact, DATA), atol=1e-4)
    skipped = ig.Model([ig.Skip(exact.layers[0]), linear(0.0, 1.0)], exact.likelihood)
    np.testing.assert_allclose(run(skipped, DATA, key=KEY, importance=3), ig.log_evidence(exact, DATA), atol=1e-4)


def test_global_importance_weighting_of_a_deep_gp_reaches_the_evidence():
    """Against the average of the outer GP's exact evidence over prior draws of the inner one, in NumPy."""

    def kernel(x, length, variance):
        return variance * np.exp(-0.5 * ((x[:, :, None] - x[:, None, :]) / length) ** 2)

    S, rng = 100_000, np.random.default_rng(0)
    inner = rng.normal(size=(S, N)) @ np.linalg.cholesky(kernel(X.T, 1.0, 0.5)[0] + 1e-9 * np.eye(N)).T + X[:, 0]
    K = kernel(inner, 0.7, 1.2) + NOISE * np.eye(N)
    half = np.linalg.solve(np.linalg.cholesky(K), np.broadcast_to(Y, (S, N, 1)))[..., 0]
    log_p = -0.5 * (half**2).sum(1) - 0.5 * np.linalg.slogdet(K)[1] - 0.5 * N * np.log(2 * np.pi)
    density = np.exp(log_p - log_p.max())
    truth, error = log_p.max() + np.log(density.mean()), density.std() / density.mean() / S**0.5
    points = ig.features.InducingPoints(X[:3])
    first = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(1.0, 0.5), ig.means.Identity()), points)
    last = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(0.7, 1.2)), points)
    model = ig.Model([first, last], ig.likelihoods.Gaussian(NOISE))
    run = eqx.filter_jit(ig.iw_elbo_global)
    values = np.array([run(model, DATA, key=k, importance=50_000) for k in jax.random.split(KEY, 8)])
    assert values.std() < 0.2
    assert abs(values.mean() - truth) < 4.5 * np.hypot(error, values.std() / 8**0.5) + values.std() ** 2


class Opaque(ig.layers.AbstractLayer):
    """A layer that does not say how to sample its weights."""

    random = terminal = True
    propagate = moments = joint = kl = draw = cache = lambda self, *args: None

    def width(self, inputs):
        return 1


def test_global_importance_weighting_refuses_minibatches_and_unknown_layers():
    with pytest.raises(ValueError, match="iw_elbo_global needs all data at once"):
        ig.iw_elbo_global(regression(), DATA, key=KEY, num_data=100)
    with pytest.raises(TypeError, match=r"layers\[1\] is a Opaque, which does not say how to sample its weights"):
        ig.iw_elbo_global(ig.Model([gp(), Opaque()], ig.likelihoods.Gaussian()), DATA, key=KEY)
    with pytest.raises(ValueError, match="beta must be 0 or more, got -1"):
        ig.iw_elbo_global(regression(), DATA, key=KEY, beta=-1.0)
