"""Whole models in weight space and with latent variables: that their bounds are right, that they train, and predict.

All are stacks of the same layers under the same `elbo`, `fit` and `predict`.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import inducing as ig

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
N = 20
X = np.linspace(-1.0, 1.0, N)[:, None]
Y = np.sin(3.0 * X) + 0.1 * RNG.normal(size=(N, 1))
DATA = ig.Data(X, Y)
PAIRS = ig.Data(None, np.concatenate([X, X**2], axis=1) + 0.05 * RNG.normal(size=(N, 2)))
NOISE = ig.likelihoods.Gaussian(0.1)
tanh = ig.layers.Deterministic(jnp.tanh)


@eqx.filter_jit
def estimates(model, data, keys, **options):
    return jax.lax.map(lambda k: ig.elbo(model, data, key=k, **options), keys, batch_size=50)


def mean_and_error(model, data, num=300, **options):
    values = np.asarray(estimates(model, data, jax.random.split(KEY, num), **options))
    return values.mean(), values.std() / np.sqrt(num)


def dense(inputs, outputs, seed, **kwargs):
    return ig.BayesianDense(inputs, outputs, key=jax.random.key(seed), **kwargs)


def mlp(inputs, outputs, seed=1):
    return ig.layers.Deterministic(eqx.nn.MLP(inputs, outputs, 4, 1, jnp.tanh, key=jax.random.key(seed)))


def gp(inputs, outputs, seed=0, root=None):
    Z = np.random.default_rng(seed).normal(size=(5, inputs))
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(np.ones(inputs)), num=outputs)
    root = root if root is None else root * np.stack([np.eye(5)] * outputs)
    return ig.SparseGP(prior, ig.features.InducingPoints(Z), root=root)


def amortised(dim=1, **seen):
    return ig.LatentVariable(dim, ig.layers.Amortised.mlp(KEY, dim, hidden=(4, 1), **seen))


def per_datum(dim):
    means = np.random.default_rng(1).normal(size=(N, dim))
    return ig.LatentVariable(dim, ig.layers.PerDatumEncoder(0.3 * means, scale=0.3))


MODELS = {
    "network": lambda: ([dense(1, 4, 1), tanh, dense(4, 1, 2)], NOISE, DATA),
    "heteroscedastic network": lambda: (
        [dense(1, 4, 1), tanh, dense(4, 2, 2)],
        ig.likelihoods.HeteroscedasticGaussian(),
        DATA,
    ),
    "latent-variable network": lambda: ([per_datum(1), dense(2, 4, 1), tanh, dense(4, 1, 2)], NOISE, DATA),
    "auto-encoder": lambda: ([amortised(y=2), mlp(1, 2)], NOISE, PAIRS),
    "auto-encoder, Bayesian decoder": lambda: ([amortised(y=2), dense(1, 4, 1), tanh, dense(4, 2, 2)], NOISE, PAIRS),
    "conditional auto-encoder": lambda: ([amortised(x=1, y=1), mlp(2, 1)], NOISE, DATA),
    "conditional auto-encoder, Bayesian decoder": lambda: (
        [amortised(x=1, y=1), dense(2, 4, 1), tanh, dense(4, 1, 2)],
        NOISE,
        DATA,
    ),
    "deep GP-LVM": lambda: ([per_datum(1), gp(1, 1, root=0.1), gp(1, 2, 1)], NOISE, PAIRS),
    "GP on a dense layer": lambda: ([dense(1, 2, 1), gp(2, 1)], NOISE, DATA),
    "dense layer on a GP": lambda: ([gp(1, 2, root=0.1), dense(2, 1, 1)], NOISE, DATA),
}


def build(name):
    layers, likelihood, data = MODELS[name]()
    return ig.Model(layers, likelihood), data


SLOW = {"latent-variable network", "auto-encoder", "dense layer on a GP"}  # near relatives of others


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MODELS])
def test_models_train(name):
    """A few steps of `fit`, importance-weighted where there are latent variables, raise the bound by far."""
    model, data = build(name)
    R = 3 if any(isinstance(layer, ig.LatentVariable) for layer in model.layers) else 1
    objective = partial(ig.elbo, importance=R)
    result = ig.fit(model, data, objective=objective, method="adam", steps=60, progress=False, key=KEY)
    bounds = np.asarray(result.history.bound)
    start, end = bounds[:10], bounds[-10:]
    assert np.isfinite(bounds).all()
    assert end.mean() - start.mean() > 5.0 + 4.5 * np.hypot(start.std(), end.std()) / 10**0.5


# --- against truths


def brute(model, data, num):
    """E[log-likelihood] of whole functions, one for all data, by `draw`: no code of `propagate` or `moments`."""

    def one(key):
        f = model.draw(key)(data.x)
        return jnp.sum(model.likelihood.log_prob(f, data.y))

    values = np.asarray(jax.jit(lambda ks: jax.lax.map(one, ks, batch_size=200))(jax.random.split(KEY, num)))
    return values.mean(), values.std() / np.sqrt(num)


@pytest.mark.parametrize("name", ["network", "heteroscedastic network"])
def test_the_bound_of_a_network_is_the_expectation_over_its_weights(name):
    """Local reparameterisation, and the last layer integrated, against draws of all weights."""
    model, data = build(name)
    wide = eqx.tree_at(
        lambda m: [m.layers[i].scale for i in (0, 2)], model, replace_fn=lambda s: 0.3 * jnp.ones_like(s)
    )
    truth, error = brute(wide, data, 20_000)
    mean, error2 = mean_and_error(wide, data, num=2000)
    assert abs(mean + float(wide.kl()) - truth) < 4.5 * np.hypot(error, error2)


def test_a_linear_auto_encoder_with_a_bayesian_decoder_never_exceeds_its_evidence():
    """y_n = w h_n + b + ε: given w all is Gaussian, over all data together, and w is on a grid."""
    y = np.array([[0.9], [-1.3], [0.4]])
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(0.5 * y, scale=0.7))
    decoder = ig.BayesianDense(1, 1, mean=[[0.8], [0.0]], scale=[[0.4], [0.3]], prior_scale=[[1.2], [0.5]])
    model, data = ig.Model([latent, decoder], ig.likelihoods.Gaussian(0.2)), ig.Data(None, y)
    w = np.linspace(-10.0, 10.0, 4001)
    given_w = [multivariate_normal(np.zeros(3), (v**2 + 0.2) * np.eye(3) + 0.25).logpdf(y[:, 0]) for v in w]
    evidence = np.log(np.trapezoid(np.exp(given_w) * norm.pdf(w, 0.0, 1.2), w))
    values = [mean_and_error(model, data, num=1000, importance=R) for R in (1, 10, 100)]
    assert values[1][0] - values[0][0] > 4.5 * np.hypot(values[0][1], values[1][1])
    for mean, error in values:
        assert mean < evidence + 3 * error


@pytest.mark.slow
def test_a_deep_gplvm_with_vanishing_inner_variance_is_the_shallow_one():
    kernel = ig.kernels.SquaredExponential(1.0, 1e-20)
    prior = ig.priors.Independent(kernel, num=1, mean=ig.means.Identity())
    inner = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
    deep, shallow = (ig.Model([per_datum(1), *layers, gp(1, 2)], NOISE) for layers in ([inner], []))
    (a, da), (b, db) = (mean_and_error(m, PAIRS, num=2000, importance=2) for m in (deep, shallow))
    assert abs(a + float(inner.kl()) - b) < 4.5 * np.hypot(da, db)


# --- predictions

GRID = np.linspace(-10.0, 10.0, 2001)
NEW = np.array([-0.7, 0.1, 0.9])


def at(model, x, h):
    """Mean and variance of the last layer at [x, h]."""
    rows = jnp.stack([jnp.full(len(h), x), jnp.asarray(h)], axis=1)
    mean, variance = model.layers[1].marginals(rows)
    return np.asarray(mean)[:, 0], np.asarray(variance)[:, 0]


def latent_gp(encoder, **prior):
    rng = np.random.default_rng(3)
    base = gp(2, 1, seed=2, root=0.3)
    base = eqx.tree_at(lambda g: g.mean, base, jnp.asarray(rng.normal(size=(1, 5))))
    return ig.Model([ig.LatentVariable(1, encoder, **prior), base], NOISE)


def of_x(v):
    """q(h | x) = N(2 x, softplus(−1)²)."""
    return jnp.array([2.0 * v[0], -1.0])


ENCODERS = {
    "per datum": (lambda: ig.layers.PerDatumEncoder(9.0 * np.ones((N, 1))), lambda x: (0.3, 0.6)),
    "of x and y": (lambda: ig.layers.Amortised.mlp(KEY, 1, x=1, y=1), lambda x: (0.3, 0.6)),
    "of x": (lambda: ig.layers.Amortised(of_x, sees=("x",)), lambda x: (2.0 * x, np.log1p(np.exp(-1.0)))),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_predictive_densities_against_quadrature_over_h(name):
    """h from its prior p(h) = N(0.3, 0.6²) for encoders that a prediction cannot use, else from q(h | x)."""
    encoder, moments = ENCODERS[name]
    model, S, y = latent_gp(encoder(), mean=[0.3], scale=[0.6]), 20_000, 0.4
    prediction = model.predict(NEW, samples=S)
    density = norm.pdf(y, prediction.latent_mean[..., 0], np.sqrt(prediction.latent_cov[..., 0] + 0.1))
    error = density.std(axis=0) / np.sqrt(S) / density.mean(axis=0)
    got = np.asarray(prediction.log_prob(np.full(3, y)))
    for i, x in enumerate(NEW):
        mean, variance = at(model, x, GRID)
        weight = norm.pdf(GRID, *moments(x))
        exact = np.log(np.trapezoid(weight * norm.pdf(y, mean, np.sqrt(variance + 0.1)), GRID))
        assert abs(got[i] - exact) < 4.5 * error[i]
        centre = np.trapezoid(weight * mean, GRID)
        total = np.trapezoid(weight * (variance + 0.1 + (mean - centre) ** 2), GRID)
        np.testing.assert_allclose(prediction.variance[i, 0], total, rtol=0.1)


def test_predictions_without_inputs():
    """A model of y alone: `predict(None)` is one new datum, X of no columns are so many, by the same formula."""
    slope = ig.layers.Deterministic(lambda h: jnp.array([1.5, -0.5]) * h[:1] + 0.2)
    model = ig.Model([ig.LatentVariable(1, ig.layers.PerDatumEncoder(5.0 * np.ones((N, 1)))), slope], NOISE)
    one, many = model.predict(None, samples=20_000), model.predict(np.zeros((3, 0)), samples=20_000)
    assert one.mean.shape == (1, 2) and many.mean.shape == (3, 2)
    for prediction in (one, many):
        np.testing.assert_allclose(prediction.mean, 0.2, atol=5 * 1.5 / np.sqrt(20_000))
        np.testing.assert_allclose(prediction.variance, np.tile([2.35, 0.35], (len(prediction.mean), 1)), rtol=0.05)


def test_joint_log_density_of_a_deep_latent_model():
    """p(y_1, y_2) with f shared by both data and an h for each, against brute force over whole functions."""
    inner, S, y = dense(2, 2, 1, scale=0.5), 20_000, np.array([0.8, 0.9])
    model = ig.Model([ig.LatentVariable(1), inner, tanh, dense(2, 1, 2, scale=0.8)], NOISE)
    got = model.predict(NEW[:2], full_cov=True).estimate(y, key=jax.random.key(1), samples=2000)
    rng = np.random.default_rng(5)
    W, V = (
        np.asarray(v.mean) + s * rng.normal(size=(S, *v.mean.shape)) for v, s in ((inner, 0.5), (model.layers[3], 0.8))
    )
    x = np.stack([np.broadcast_to(NEW[:2], (S, 2)), rng.normal(size=(S, 2)), np.ones((S, 2))], axis=-1)
    hidden = np.concatenate([np.tanh(x @ W), np.ones((S, 2, 1))], axis=-1)
    density = norm.pdf(y, (hidden @ V)[..., 0], 0.1**0.5).prod(axis=1)
    error = np.hypot(density.std() / density.mean() / np.sqrt(S), got.standard_error)
    assert error < 0.02
    assert abs(float(got.value) - np.log(density.mean())) < 4.5 * error
    separate = float(model.predict(NEW[:2], samples=S).log_prob(y).sum())
    assert abs(separate - float(got.value)) > 10 * error  # so that it is a joint density


def gplvm(labels, M, noise):
    """60 data on a curve, with means of q(h) where they came from."""
    h = np.sort(np.random.default_rng(0).uniform(-2.0, 2.0, (60, 1)), axis=0)
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(), num=2, mean=ig.means.Constant(np.zeros(2)))
    gp = ig.SparseGP(prior, ig.features.InducingPoints(np.linspace(-2.0, 2.0, M)[:, None]))
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(h, scale=0.1))
    return ig.Model([latent, gp], ig.likelihoods.Gaussian(noise)), ig.Data(None, labels(h))


gplvm_elbo = eqx.filter_jit(ig.gplvm_elbo)


def test_a_closed_form_that_rounding_would_make_up_is_no_number():
    """Labels without noise: L-BFGS had climbed to a bound of 7e28, where `elbo` was −7e24."""
    model, data = gplvm(lambda h: np.concatenate([2.0 * h + 50.0, 20.0 - h], axis=1), 20, 0.1)
    result = ig.fit(model, data, objective=ig.gplvm_elbo, progress=False)
    sampled, error = mean_and_error(result.model, data, num=100)
    assert abs(result.bound - sampled) < 5.0 * error + 0.1
    assert np.isnan(gplvm_elbo(gplvm(lambda h: np.concatenate([h, h], axis=1), 20, 1e-12)[0], data))


def test_a_closed_form_in_float32_is_near_that_in_float64_or_no_number():
    def curve(h):
        return np.concatenate([np.sin(2.0 * h), np.cos(2.0 * h)], axis=1)

    exact = [float(gplvm_elbo(*gplvm(curve, M, 0.1))) for M in (5, 20)]
    with jax.enable_x64(False):
        few, many = (float(gplvm_elbo(*gplvm(curve, M, 0.1))) for M in (5, 20))
    assert abs(few - exact[0]) < 0.1 and np.isnan(many)  # 600 above the truth, it had been
