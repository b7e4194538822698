"""The bound of deep, latent-variable and importance-weighted models against truths.

Most tests use models small enough for the exact evidence: linear decoders, Bayesian linear regression, and GPs whose
kernel is linear, so that they are Bayesian linear regressions too.
"""

import itertools
from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import inducing as ig
from inducing.objectives import _log_weights, expected_log_likelihood

from .oracles.deep import importance_weighted, importance_weights, nested_quadrature

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
N = 4
X = np.linspace(-1.0, 1.0, N)[:, None]
Y = np.sin(2.0 * X) + 0.3 * RNG.normal(size=(N, 1))
DATA = ig.Data(X, Y)
NOISE = 0.2


@eqx.filter_jit
def estimates(model, data, keys, **options):
    """One estimate of the bound for each key."""
    return jax.lax.map(lambda k: ig.elbo(model, data, key=k, **options), keys, batch_size=50)


elbo = eqx.filter_jit(ig.elbo)


def mean_and_error(model, data, num=2000, key=KEY, **options):
    values = np.asarray(estimates(model, data, jax.random.split(key, num), **options))
    return values.mean(), values.std() / np.sqrt(num)


def gp(width=1, D=1, mean=None, root=0.3, M=4, seed=0):
    rng = np.random.default_rng(seed)
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(0.9 * np.ones(D), 0.8), num=width, mean=mean)
    roots = root * np.broadcast_to(np.eye(M), (width, M, M))
    Z = np.linspace(-1.5, 1.5, M)[:, None] * np.ones((1, D)) if D == 1 else rng.normal(size=(M, D))
    return ig.SparseGP(prior, ig.features.InducingPoints(Z), 0.5 * rng.normal(size=(width, M)), roots, jitter=1e-10)


def latent_gp(encoder=None, **kwargs):
    encoder = ig.layers.PerDatum(0.3 * np.ones((N, 1)), scale=0.6) if encoder is None else encoder
    return ig.Model([ig.LatentVariable(1, encoder), gp(D=2, **kwargs)], ig.likelihoods.Gaussian(NOISE))


def deep_latent_gp():
    latent = ig.LatentVariable(1, ig.layers.PerDatum(0.3 * np.ones((N, 1)), scale=0.6))
    layers = [latent, gp(2, D=2, mean=ig.means.Identity()), gp(D=2, seed=1)]
    return ig.Model(layers, ig.likelihoods.Gaussian(NOISE))


# --- depth


def test_a_deterministic_layer_below_a_gp_is_a_gp_of_its_output():
    """One layer, and one layer on the identity, are the same model, to machine precision, and need no key."""
    shallow = ig.Model(gp(), ig.likelihoods.Gaussian(NOISE))
    deep = ig.Model([ig.layers.Deterministic(lambda x: x), gp()], ig.likelihoods.Gaussian(NOISE))
    assert not deep.is_stochastic
    np.testing.assert_allclose(elbo(deep, DATA), elbo(shallow, DATA), rtol=1e-14)


def test_a_deep_gp_with_vanishing_inner_variance_is_the_shallow_one():
    """An inner layer f(x) = x + (almost nothing) adds nothing but its own KL."""
    kernel = ig.kernels.SquaredExponential(1.0, 1e-20)
    features = ig.features.InducingPoints(X)
    inner = ig.SparseGP(ig.priors.Independent(kernel, num=1, mean=ig.means.Identity()), features)
    deep = ig.Model([inner, gp()], ig.likelihoods.Gaussian(NOISE))
    shallow = ig.Model(gp(), ig.likelihoods.Gaussian(NOISE))
    np.testing.assert_allclose(elbo(deep, DATA, key=KEY) + inner.kl(), elbo(shallow, DATA), rtol=1e-8)


def test_the_deep_bound_is_unbiased():
    """Against nested Gauss–Hermite quadrature through the layers' moments."""
    layers = [gp(mean=ig.means.Identity()), gp(mean=ig.means.Identity(), seed=1), gp(seed=2)]
    model = ig.Model(layers, ig.likelihoods.Gaussian(NOISE))
    exact = float(jnp.sum(eqx.filter_jit(nested_quadrature)(model, DATA, 40)) - model.kl())
    for samples in (1, 7):
        mean, error = mean_and_error(model, DATA, num=2000 // samples, samples=samples)
        assert abs(mean - exact) < 4.5 * error
    mean, error = mean_and_error(model, DATA, integrate=False)  # the last layer sampled as well
    assert abs(mean - exact) < 4.5 * error


def test_minibatches_are_scaled():
    model = ig.Model(gp(), ig.likelihoods.Gaussian(NOISE))
    halves = [elbo(model, DATA.rows(jnp.array(i)), num_data=N) for i in ([0, 1], [2, 3])]
    np.testing.assert_allclose(np.mean(halves), elbo(model, DATA), rtol=1e-12)


# --- latent variables


def linear_decoder(slope=1.3, bias=0.2, noise=0.4, encoder=None):
    """y = slope·h + bias + ε, h ~ N(0, 1): the evidence is N(y | bias, slope² + noise)."""
    encoder = ig.layers.PerDatum(np.full((N, 1), 0.1), scale=0.7) if encoder is None else encoder
    layers = [ig.LatentVariable(1, encoder), ig.layers.Deterministic(eqx.nn.Linear(1, 1, key=KEY))]
    layers[1] = eqx.tree_at(
        lambda d: (d.function.weight, d.function.bias), layers[1], (jnp.array([[slope]]), jnp.array([bias]))
    )
    return ig.Model(layers, ig.likelihoods.Gaussian(noise))


def exact_encoder():
    """The posterior of h in the linear decoder."""
    v = 1 / (1 + 1.3**2 / 0.4)
    return ig.layers.PerDatum(v * 1.3 * (Y - 0.2) / 0.4, scale=v**0.5)


UNSUPERVISED = ig.Data(None, Y)
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


# --- latent variables at several layers

SLOPES = (0.5, 0.9, 0.7, 1.1)  # y = 0.7 (0.5 x + 0.9 h₁) + 1.1 h₂ + ε


def linear(*weights):
    """x ↦ weights·x, as a point estimate."""
    module = eqx.nn.Linear(len(weights), 1, use_bias=False, key=KEY)
    return ig.layers.Deterministic(eqx.tree_at(lambda m: m.weight, module, jnp.array([weights])))


def two_latents():
    a, b, c, d = SLOPES
    encoders = [ig.layers.PerDatum(np.full((N, 1), m), scale=s) for m, s in ((0.2, 0.8), (-0.1, 0.6))]
    first, second = (ig.LatentVariable(1, e) for e in encoders)
    return ig.Model([first, linear(a, b), second, linear(c, d)], ig.likelihoods.Gaussian(NOISE))


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


def test_doubly_reparameterised_gradients_of_two_encoders_are_unbiased():
    def gradients(doubly):
        def gradient(key):
            options = {"importance": 4, "beta": 0.8, "doubly_reparameterised": doubly}
            g = eqx.filter_grad(lambda m: ig.elbo(m, DATA, key=key, **options))(two_latents())
            parts = [p for i in (0, 2) for p in (g.layers[i].encoder.mean, g.layers[i].encoder.scale)]
            return jnp.stack([p.sum() for p in parts]), g.layers[1].function.weight

        return jax.jit(lambda ks: jax.lax.map(gradient, ks, batch_size=100))(jax.random.split(KEY, 3000))

    (plain, decoder), (doubly, same) = gradients(False), gradients(True)
    np.testing.assert_allclose(decoder, same, rtol=1e-8, atol=1e-10)
    error = np.hypot(np.std(plain, axis=0), np.std(doubly, axis=0)) / np.sqrt(3000)
    assert (np.abs(np.mean(plain, axis=0)) > 4.5 * error).any()  # so that there is something to compare
    np.testing.assert_array_less(np.abs(np.mean(plain, axis=0) - np.mean(doubly, axis=0)), 4.5 * error)


def test_latent_variables_at_two_layers_of_a_deep_gp():
    """An inner GP between two latent variables, one of them amortised: a finite bound and finite gradients."""
    amortised = ig.LatentVariable(1, ig.layers.Amortised.mlp(KEY, 1, x=1, y=1, hidden=(3, 1)))
    layers = [ig.LatentVariable(1, ig.layers.PerDatum(np.zeros((N, 1)))), gp(D=2), amortised, gp(D=2, seed=1)]
    model = ig.Model(layers, ig.likelihoods.Gaussian(NOISE))
    bound = partial(ig.elbo, data=DATA, key=KEY, importance=3, doubly_reparameterised=True)
    value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(bound))(model)
    leaves = jax.tree.leaves(eqx.filter((gradient.layers[0].encoder, gradient.layers[2].encoder), eqx.is_array))
    assert bool(jnp.isfinite(value)) and len(leaves) > 2
    assert all(bool(jnp.isfinite(g).all()) and bool((g != 0).any()) for g in leaves)


# --- inner random functions


ZIGZAG = ig.Data(np.array([-1.0, -0.5, 0.5, 1.0]), np.array([1.0, -1.0, 1.0, -1.0]))


def dense_latent_model():
    """y_n = a·x_n + b·h_n + c + ε with random (a, b, c) shared by all data, through an inner dense layer and a sum."""
    latent = ig.LatentVariable(1, ig.layers.PerDatum(0.2 * np.ones((N, 1)), scale=0.7))
    inner = ig.BayesianDense(2, 2, scale=np.array([[0.5**0.5], [0.5**0.5], [1.0]]))  # q = p
    return ig.Model([latent, inner, ig.layers.Deterministic(jnp.sum)], ig.likelihoods.Gaussian(NOISE))


def gp_latent_model():
    """The same with a GP of a linear kernel as the inner layer: f(x, h) = a·x + b·h + c, (a, b, c) ~ N(0, I)."""
    latent = ig.LatentVariable(1, ig.layers.PerDatum(0.2 * np.ones((N, 1)), scale=0.7))
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
    encoder = ig.layers.PerDatum(RNG.normal(size=(N, 1)), scale=0.6)
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


def test_permuting_data_changes_nothing():
    """To machine precision where nothing of a datum is sampled, or where what is sampled does not depend on noise."""
    order = np.array([2, 0, 3, 1])
    permuted = DATA.rows(jnp.asarray(order))
    shallow = ig.Model(gp(), ig.likelihoods.StudentT(4.0, 0.3))
    on_features = ig.Model([ig.layers.Deterministic(jnp.sin), gp()], ig.likelihoods.Gaussian(NOISE))
    for model in (shallow, on_features):
        np.testing.assert_allclose(elbo(model, permuted), elbo(model, DATA), rtol=1e-13)
    means = RNG.normal(size=(N, 1))  # q(h_n) of their own, next to points: rows of another datum would be noticed
    certain = latent_gp(ig.layers.PerDatum(means, scale=1e-9))
    values = [elbo(certain, d, key=KEY) for d in (DATA, permuted)]
    np.testing.assert_allclose(*values, rtol=1e-6)
    assert abs(elbo(certain, ig.Data(X[order], Y[order]), key=KEY) - values[0]) > 0.01  # renumbered: so it can tell


def test_rows_without_labels_contribute_nothing():
    model = latent_gp(ig.layers.PerDatum(RNG.normal(size=(N + 1, 1)), scale=0.6))
    more = ig.Data(np.concatenate([X, [[0.3]]]), np.concatenate([Y, [[np.nan]]]))
    a, da = mean_and_error(model, DATA, importance=3)
    b, db = mean_and_error(model, more, importance=3)
    assert abs(a - b) < 4.5 * np.hypot(da, db)
    grad = eqx.filter_jit(eqx.filter_grad(lambda m: ig.elbo(m, more, key=KEY, importance=3)))(model)
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grad))
    assert not grad.layers[0].encoder.mean[-1].any()


def test_beta_weighs_every_divergence():
    model = latent_gp()
    one, zero, two = (float(elbo(model, DATA, key=KEY, beta=jnp.asarray(b))) for b in (1.0, 0.0, 2.0))
    kl = float(model.kl() + model.layers[0].posterior(DATA)[2].sum())
    np.testing.assert_allclose([zero - one, one - two], [kl, kl], rtol=1e-10)


# --- gradients


def amortised_network():
    """[x, h] through a Bayesian dense layer, then a GP, with an amortised encoder."""
    latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(KEY, 1, x=1, y=1, hidden=(3, 1)), scale=[1.2])
    dense = ig.BayesianDense(2, 2, key=KEY, scale=0.3)
    return ig.Model([latent, dense, gp(D=2)], ig.likelihoods.Gaussian(NOISE))


CASES = [
    (deep_latent_gp, {"importance": 2}),
    (deep_latent_gp, {"importance": 3, "integrate": False}),
    (amortised_network, {"importance": 1}),
    (amortised_network, {"importance": 3}),
]


@pytest.mark.parametrize(("make", "options"), CASES)
def test_gradients_against_finite_differences(make, options):
    model = make()
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(arrays)
    both = jax.jit(jax.value_and_grad(lambda v: ig.elbo(eqx.combine(unravel(v), static), DATA, key=KEY, **options)))
    gradient = both(flat)[1]
    for seed in range(3):
        direction = jax.random.normal(jax.random.key(seed), flat.shape)
        eps = 1e-5
        difference = (both(flat + eps * direction)[0] - both(flat - eps * direction)[0]) / (2 * eps)
        np.testing.assert_allclose(gradient @ direction, difference, rtol=2e-6)


def encoder_gradients(model, data, num, **options):
    def gradient(key):
        value, g = eqx.filter_value_and_grad(lambda m: ig.elbo(m, data, key=key, **options))(model)
        return g.layers[0].encoder.mean.sum(), g.layers[-1], value

    run = eqx.filter_jit(lambda ks: jax.lax.map(gradient, ks, batch_size=100))
    return run(jax.random.split(jax.random.key(3), num))


def latent_gp_with_a_skip():
    """[x, h] handed on beside a GP of them, which is drawn jointly over the replicates."""
    latent = ig.LatentVariable(1, ig.layers.PerDatum(0.3 * np.ones((N, 1)), scale=0.6))
    last = ig.layers.Deterministic(eqx.nn.Linear(3, 1, key=KEY))
    return ig.Model([latent, ig.Skip(gp(D=2, root=1.0)), last], ig.likelihoods.Gaussian(NOISE))


@pytest.mark.parametrize(("make", "beta"), [(linear_decoder, 0.5), (deep_latent_gp, 0.7)])
def test_doubly_reparameterised_gradients_are_unbiased(make, beta):
    """The same value and decoder gradient for each key, and the encoder gradient in expectation: also when a GP is
    drawn jointly over the replicates, so that a weight depends on all latent variables of its datum."""
    model, R, num = make(), 3, 2000
    data = UNSUPERVISED if make is linear_decoder else DATA
    options = {"importance": R, "beta": beta}
    plain, decoder, values = encoder_gradients(model, data, num, **options)
    doubly, same, others = encoder_gradients(model, data, num, doubly_reparameterised=True, **options)
    np.testing.assert_allclose(others, values, rtol=1e-12)
    for a, b in zip(jax.tree.leaves(decoder), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    error = np.hypot(np.std(plain), np.std(doubly)) / np.sqrt(num)
    assert abs(np.mean(plain) - np.mean(doubly)) < 4.5 * error


class Lines(ig.layers.AbstractLayer):
    """A layer of one's own: f(x) = a·x, a ~ N(0, I), by a root of the covariance of its values at the replicates."""

    random: ClassVar[bool] = True
    terminal: ClassVar[bool] = False

    def propagate(self, x, key, data, replicates):
        N, R, _ = x.shape
        root = jnp.linalg.cholesky(x @ jnp.swapaxes(x, 1, 2) + 0.1 * jnp.eye(R)[None])
        return root @ jax.random.normal(key, (N, R, 1)), jnp.zeros((N, R))

    def kl(self):
        return jnp.zeros(())

    def width(self, inputs):
        return 1

    cache = moments = joint = draw = None


def latent_model_of_ones_own():
    latent = ig.LatentVariable(1, ig.layers.PerDatum(0.3 * np.ones((N, 1)), scale=0.6))
    return ig.Model([latent, Lines(), linear(0.8)], ig.likelihoods.Gaussian(NOISE))


@pytest.mark.parametrize("make", [deep_latent_gp, latent_gp_with_a_skip, latent_model_of_ones_own])
def test_doubly_reparameterised_gradients_couple_the_replicates_of_a_gp(make):
    """Σ_rs c_rs ∂log w_s/∂h_r, c_rs = ω_s − β ω_r (δ_rs − ω_s), by the whole Jacobian, wherever the GP stands."""
    model, R, beta = make(), 3, 0.7

    def log_weights(shift):
        return _log_weights(model, DATA, KEY, R, beta, True, {0: shift})

    value, J = jax.jit(lambda z: (log_weights(z), jax.jacobian(log_weights)(z)))(jnp.zeros((N, R, 1)))
    J = np.einsum("nsnr->nsr", np.asarray(J)[..., 0])
    omega = np.exp(value - np.log(np.exp(value).sum(axis=1, keepdims=True)))
    c = omega[:, None] - beta * omega[:, :, None] * (np.eye(R)[None] - omega[:, None])  # [N, r, s]
    options = {"key": KEY, "importance": R, "beta": beta, "doubly_reparameterised": True}
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: ig.elbo(m, DATA, **options)))(model)
    np.testing.assert_allclose(gradient.layers[0].encoder.mean[:, 0], np.einsum("nrs,nsr->n", c, J), rtol=1e-8)


def test_doubly_reparameterised_gradients_are_less_noisy():
    model = linear_decoder()
    plain, *_ = encoder_gradients(model, UNSUPERVISED, 300, importance=50)
    doubly, *_ = encoder_gradients(model, UNSUPERVISED, 300, importance=50, doubly_reparameterised=True)
    assert np.std(doubly) < 0.3 * np.std(plain)


# --- importance weighting over weights


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


def test_global_importance_weighting_refuses_minibatches_and_gps():
    with pytest.raises(ValueError, match="iw_elbo_global needs all data at once"):
        ig.iw_elbo_global(regression(), DATA, key=KEY, num_data=100)
    with pytest.raises(TypeError, match=r"layers\[1\] is a SparseGP; importance weighting over θ is for weight-space"):
        ig.iw_elbo_global(latent_gp(), DATA, key=KEY)
    with pytest.raises(TypeError, match=r"layers\[0\] is a Skip; importance weighting over θ is for weight-space"):
        ig.iw_elbo_global(ig.Model([ig.Skip(gp()), linear(1.0, 1.0)], ig.likelihoods.Gaussian()), DATA, key=KEY)
    with pytest.raises(ValueError, match="beta must be 0 or more, got -1"):
        ig.iw_elbo_global(regression(), DATA, key=KEY, beta=-1.0)


# --- unsupervised


def test_a_linear_auto_encoder_reaches_probabilistic_pca():
    """At PPCA's maximum-likelihood decoder, with the exact posterior as amortised encoder."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(50, 4)) + 1.0
    centre, S = y.mean(axis=0), np.cov(y.T, bias=True)
    values, vectors = np.linalg.eigh(S)
    noise = values[:2].mean()
    W = vectors[:, 2:] * np.sqrt(values[2:] - noise)
    evidence = multivariate_normal(centre, W @ W.T + noise * np.eye(4)).logpdf(y).sum()
    V = np.linalg.inv(np.eye(2) + W.T @ W / noise)
    raw = np.log(np.expm1(np.sqrt(np.diag(V))))  # V is diagonal at the maximum
    decoder = ig.layers.Deterministic(lambda h: jnp.asarray(W) @ h + centre)
    encoder = ig.layers.Amortised(
        lambda v: jnp.concatenate([jnp.asarray(V @ W.T / noise) @ (v - centre), jnp.asarray(raw)]), sees=("y",)
    )
    model = ig.Model([ig.LatentVariable(2, encoder), decoder], ig.likelihoods.Gaussian(noise))
    np.testing.assert_allclose(elbo(model, ig.Data(None, y), key=KEY, importance=3), evidence, rtol=1e-10)
    mean, error = mean_and_error(model, ig.Data(None, y), num=500)
    assert abs(mean - evidence) < 4.5 * error


def test_the_sampled_gplvm_bound_agrees_with_the_closed_form():
    rng = np.random.default_rng(4)
    y, level = rng.normal(size=(5, 2)), np.array([3.0, -50.0])
    data = ig.Data(None, y)
    latent = ig.LatentVariable(1, ig.layers.PerDatum(rng.normal(size=(5, 1)), scale=0.5))
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(0.8, 1.2), num=2)
    model = ig.Model(
        [latent, ig.SparseGP(prior, ig.features.InducingPoints([[-1.0], [0.0], [1.0]]))], ig.likelihoods.Gaussian(0.3)
    )
    bound = eqx.filter_jit(ig.gplvm_elbo)
    closed = float(bound(model, data))
    levels = ig.priors.Independent(ig.kernels.SquaredExponential(0.8, 1.2), num=2, mean=ig.means.Constant(level))
    far = eqx.tree_at(lambda m: m.layers[1].prior, model, levels)
    np.testing.assert_allclose(bound(far, ig.Data(None, y + level)), closed, rtol=1e-9)
    at_prior, error = mean_and_error(model, data, num=1000)
    assert at_prior < closed + 3 * error
    best, error = mean_and_error(eqx.filter_jit(ig.gplvm_collapse)(model, data), data, num=4000)
    assert abs(best - closed) < 4.5 * error
    with pytest.raises(TypeError, match="the closed form is for data without inputs"):
        ig.gplvm_elbo(latent_gp(), DATA)


# --- bad input


def test_bad_input_is_refused(unchecked):
    model = latent_gp()
    with pytest.raises(ValueError, match="importance must be an integer of at least 1, got 0"):
        ig.elbo(model, DATA, key=KEY, importance=0)
    with pytest.raises(ValueError, match="samples must be an integer of at least 1, got 0"):
        ig.elbo(model, DATA, key=KEY, samples=0)
    with pytest.raises(ValueError, match=r"pass key=jax.random.key\(0\)"):
        ig.elbo(model, DATA)
    with pytest.raises(ValueError, match=r"pass key=jax.random.key\(0\)"):
        ig.elbo(ig.Model(gp(), ig.likelihoods.Gaussian(NOISE)), DATA, integrate=False)
    with pytest.raises(ValueError, match=r"this model is sampled.* pass key=jax.random.key\(0\)"):
        ig.iw_elbo_global(ig.Model(ig.BayesianDense(1, 1), ig.likelihoods.Gaussian(NOISE)), DATA, key=None)
    with pytest.raises(TypeError, match=r"key must be a random key .* got 7"):
        ig.elbo(model, DATA, key=7)
    with pytest.raises(ValueError, match="data have no labels y"):
        ig.elbo(model, ig.Data(X), key=KEY)
    with pytest.raises(ValueError, match="layers is empty"):
        ig.Model([], ig.likelihoods.Gaussian())
    with pytest.raises(ValueError, match="the last layer is a LatentVariable"):
        ig.Model([ig.LatentVariable(1)], ig.likelihoods.Gaussian())
    with pytest.raises(
        ValueError, match=r"layers\[0\], a SparseGP, gives 3 columns, which do not fit layers\[1\], a BayesianDense"
    ):
        ig.Model([gp(3), ig.BayesianDense(2, 1)], ig.likelihoods.Gaussian())
    with pytest.raises(ValueError, match=r"layers\[0\], a SparseGP, gives 3 columns, which do not fit layers\[1\]"):
        ig.Model([gp(3), gp(D=2)], ig.likelihoods.Gaussian())
    with pytest.raises(
        ValueError, match=r"X has 1 columns, .* its function fails for a point of 1 entries .Too many ind"
    ):
        ig.elbo(ig.Model([ig.Deterministic(lambda X: X[:, :1]), gp()], ig.likelihoods.Gaussian()), DATA)
    rows = ig.LatentVariable(1, ig.layers.Amortised(lambda V: V[:, :2]))
    with pytest.raises(ValueError, match=r"network fails for the 3 numbers that it sees .* It says: Too many indices"):
        ig.elbo(ig.Model([rows, gp(D=2)], ig.likelihoods.Gaussian()), DATA, key=KEY)
    with pytest.raises(ValueError, match="X has 2 columns"):
        ig.elbo(ig.Model(gp(), ig.likelihoods.Gaussian()), (np.zeros((3, 2)), np.zeros(3)))
    with pytest.raises(ValueError, match="gives 1 latent functions, a number that HeteroscedasticGaussian cannot use"):
        ig.Model(gp(), ig.likelihoods.HeteroscedasticGaussian())
    inner = ig.layers.Amortised(lambda v: jnp.concatenate([v[:1], v[:1]]), sees=("input",))
    seeing = ig.Model([gp(), ig.LatentVariable(1, inner), gp(D=2)], ig.likelihoods.Gaussian(NOISE))
    with pytest.raises(TypeError, match=r"the encoder of layers\[1\] sees its layer's input"):
        ig.elbo(seeing, DATA, key=KEY, importance=2, doubly_reparameterised=True)
    with pytest.raises(TypeError, match="for models with a LatentVariable that has an encoder"):
        ig.elbo(
            ig.Model([gp(), gp()], ig.likelihoods.Gaussian()), DATA, key=KEY, importance=2, doubly_reparameterised=True
        )
