"""Every kind of model trains: to a known optimum where there is one, and else clearly upwards."""

import os
import subprocess
import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

import inducing as ig

from .problems import MAPPED, elbo, mapped, quiet, regression, wave

KEY = jax.random.key(0)
X, y = wave(30)


def estimate(model, data, **options):
    """The bound and its standard error, from many samples."""
    keys = jax.random.split(jax.random.key(1), 200)
    values = eqx.filter_jit(jax.vmap(lambda k: ig.elbo(model, data, key=k, **options)))(keys)
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def test_a_minibatch_moves_only_the_gaussians_of_its_own_rows():
    """Decay would move all rows."""
    decay = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1))
    mean = np.random.default_rng(0).normal(size=(12, 1))
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(mean, scale=0.5))
    model = ig.Model([latent, ig.BayesianDense(1, 2, key=KEY)], ig.likelihoods.Gaussian(0.1))
    data = ig.Data(None, np.random.default_rng(1).normal(size=(12, 2)))
    moved = quiet(model, data, method="adam", steps=1, batch_size=4, optimiser=decay).model.layers[0].encoder
    rows = np.asarray(moved.mean != mean)[:, 0]
    assert rows.sum() == 4
    assert np.array_equal(np.abs(np.asarray(moved.scale) - 0.5)[:, 0] > 1e-3, rows)


@pytest.mark.parametrize("method", ["natgrad-all", pytest.param("natgrad", marks=pytest.mark.slow)])
def test_a_deep_gp_with_an_idle_layer_reaches_the_optimum_of_the_shallow_one(method):
    """An inner layer that is the identity and hardly varies: its best q(u) is its prior, the rest is a sparse GP."""
    shallow = regression(num=8)
    Z = shallow.layers[0].features
    prior = ig.priors.Independent(ig.kernels.Matern52(1.0, 1e-10), num=1, mean=ig.means.Identity())
    bent = {"mean": np.full((1, 8), 0.5), "root": 0.5 * np.eye(8)} if method == "natgrad-all" else {}
    model = ig.Model([ig.SparseGP(prior, Z, **bent), *shallow.layers], shallow.likelihood)
    held = {
        "freeze": lambda m: (*(layer.prior.kernels for layer in m.layers), [v.features for v in m.layers], m.likelihood)
    }
    result = quiet(model, (X, y), method=method, steps=60, gamma=0.5, initialise=False, **held)
    best = float(eqx.filter_jit(ig.collapsed_elbo)(shallow, (X, y)))
    assert np.isclose(estimate(result.model, (X, y))[0], best, atol=0.02)
    assert estimate(model, (X, y))[0] < best - 10


def skipped(coordinates="w", unit=1.0):
    """x beside f(x), of which f(x) is read; x in any unit."""
    rng = np.random.default_rng(0)
    prior = ig.GP(ig.kernels.SquaredExponential(unit, 0.9))
    Z = ig.features.InducingPoints(unit * np.array([[0.5], [2.0], [3.0]]))
    gp = ig.SparseGP(prior, Z, 0.3 * rng.normal(size=(1, 3)), 0.5 * np.eye(3), jitter=1e-12)
    read = ig.Deterministic(lambda v: v[1:])
    return ig.Model([ig.Skip(gp.with_coordinates(coordinates)), read], ig.likelihoods.Gaussian(0.3))


def test_natural_gradients_reach_what_a_skip_holds():
    """They are the same steps in all coordinates, as gradient steps are not."""
    held = {"freeze": lambda m: (m.layers[0].layers[0].prior, m.layers[0].layers[0].features, m.likelihood)}
    u, w = (quiet(skipped(c), (X, y), method="natgrad-all", gamma=1.0, steps=1, initialise=False, **held) for c in "uw")
    u, w = (r.model.layers[0].layers[0].with_coordinates("w") for r in (u, w))
    assert np.abs(w.mean - skipped().layers[0].layers[0].mean).max() > 0.02  # further than Adam
    np.testing.assert_allclose(u.mean, w.mean, rtol=1e-6)
    np.testing.assert_allclose(u.root, w.root, rtol=1e-6, atol=1e-9)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 0), 0)  # that of the first step of the first start
    step = eqx.filter_jit(ig.natural_gradient_step)
    inside = step(skipped(), (X, y), layer=lambda m: m.layers[0].layers[0], key=key)
    np.testing.assert_allclose(inside.layers[0].layers[0].mean, w.mean, rtol=1e-6)


def test_inducing_points_that_a_skip_holds_move_in_units_of_the_data():
    one, thousand = (
        quiet(skipped(unit=c), (c * X, y), method="adam", steps=2, initialise=False).model.layers[0].layers[0]
        for c in (1.0, 1000.0)
    )
    assert np.abs(one.features.Z - skipped().layers[0].layers[0].features.Z).min() > 1e-3
    np.testing.assert_allclose(thousand.features.Z, 1000.0 * one.features.Z, rtol=1e-6)


@pytest.mark.slow
def test_a_deep_gp_by_adam():
    step = (X[:, 0] > 2.0).astype(float)
    model = ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_inducing=8)
    result = quiet(model, (X, step), method="adam", steps=500, learning_rate=0.02)
    assert estimate(result.model, (X, step))[0] > estimate(model, (X, step))[0] + 20


def test_a_latent_variable_gp_by_importance_weighting():
    """Labels ±1 at the same inputs: without h the best density is that of a Gaussian of variance 1."""
    x, sign = np.linspace(0.0, 1.0, 20), np.tile([1.0, -1.0], 10)
    encoder = ig.layers.Amortised.mlp(KEY, 1, x=1, y=1, hidden=(4, 1))
    Z = ig.initialise.kmeans(np.random.default_rng(0).normal(size=(50, 2)), 6)
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential([1.0, 0.7])), ig.features.InducingPoints(Z))
    model = ig.Model([ig.LatentVariable(1, encoder), gp], ig.likelihoods.Gaussian(0.05))
    objective = partial(ig.elbo, importance=5)
    result = quiet(model, (x, sign), objective=objective, method="natgrad", steps=1000, learning_rate=0.03)
    bound, _ = estimate(result.model, (x, sign), importance=5)
    without = -0.5 * len(x) * (np.log(2 * np.pi) + 1.0)
    assert bound > without + 5 and bound > estimate(result.model, (x, sign))[0] + 1


def test_one_bayesian_layer_reaches_the_evidence_of_linear_regression():
    x = np.random.default_rng(0).normal(size=(15, 2))
    labels = x @ [0.7, -1.2] + 0.3 + 0.2 * np.random.default_rng(1).normal(size=15)
    model = ig.Model(ig.BayesianDense(2, 1, full=True, prior_scale=1.5), ig.likelihoods.Gaussian(0.04))
    result = quiet(model, (x, labels), method="lbfgs", freeze=lambda m: m.likelihood)
    design = np.concatenate([x, np.ones((15, 1))], axis=1)
    cov = 1.5**2 * design @ design.T + 0.04 * np.eye(15)
    _, log_det = np.linalg.slogdet(2 * np.pi * cov)
    assert np.isclose(result.bound, -0.5 * (labels @ np.linalg.solve(cov, labels) + log_det), atol=1e-4)


def test_a_bayesian_network_of_two_layers():
    k1, k2 = jax.random.split(KEY)
    layers = [ig.BayesianDense(1, 8, key=k1), ig.layers.Deterministic(jnp.tanh), ig.BayesianDense(8, 1, key=k2)]
    model = ig.Model(layers, ig.likelihoods.Gaussian(0.3))
    curve = X[:, 0] - 2.0
    result = quiet(model, (X - 2.0, curve), method="adam", steps=500, learning_rate=0.02)
    flat = -0.5 * len(X) * (np.log(2 * np.pi * curve.var()) + 1.0)  # the likelihood of a constant
    assert estimate(result.model, (X - 2.0, curve))[0] > flat + 3


def test_a_linear_autoencoder_is_probabilistic_pca():
    """Its bound reaches the largest likelihood of y ~ N(b, wwᵀ + σ²I), from the eigenvalues of the covariance."""
    rng = np.random.default_rng(0)
    labels = rng.normal(size=(40, 1)) @ [[1.5, -1.0, 0.5]] + 0.4 * rng.normal(size=(40, 3)) + 1.0
    values = np.linalg.eigvalsh(np.cov(labels.T, bias=True))
    noise = values[:2].mean()
    best = -0.5 * 40 * (3 * np.log(2 * np.pi) + np.log(values[2]) + 2 * np.log(noise) + 3)
    k1, k2 = jax.random.split(KEY)
    encoder = ig.layers.Amortised(eqx.nn.Linear(3, 2, key=k1), sees=("y",))
    decoder = ig.layers.Deterministic(eqx.nn.Linear(1, 3, key=k2))
    model = ig.Model([ig.LatentVariable(1, encoder), decoder], ig.likelihoods.Gaussian(0.5))
    result = quiet(model, ig.Data(None, labels), method="adam", steps=3000, learning_rate=0.02)
    bound, error = estimate(result.model, ig.Data(None, labels))
    assert best - 0.5 < bound < best + 4 * error
    w, b = result.model.layers[1].function.weight, result.model.layers[1].function.bias
    C = np.asarray(w @ w.T) + float(result.model.likelihood.variance) * np.eye(3)
    r = labels - np.asarray(b)
    likelihood = -0.5 * (40 * np.linalg.slogdet(2 * np.pi * C)[1] + np.sum(r * np.linalg.solve(C, r.T).T))
    assert best - 0.2 < likelihood < best + 1e-9


def test_a_gplvm_finds_the_curve():
    t = np.linspace(-1.5, 1.5, 20)
    labels = np.stack([t, np.sin(2 * t), np.cos(2 * t)], axis=1)
    start = (t + np.random.default_rng(0).normal(size=20))[:, None]
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(start, scale=0.3))
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(), num=3)
    gp = ig.SparseGP(prior, ig.features.InducingPoints(np.linspace(-2.0, 2.0, 7)[:, None]))
    model = ig.Model([latent, gp], ig.likelihoods.Gaussian(0.1))
    data = ig.Data(None, labels)
    result = quiet(model, data, objective=ig.gplvm_elbo)
    assert result.method == "lbfgs" and result.bound > result.history.bound[0] + 20
    found = result.model  # with the optimal q(u)
    assert abs(np.corrcoef(np.argsort(np.argsort(found.layers[0].encoder.mean[:, 0])), np.arange(20))[0, 1]) > 0.95
    bound, error = estimate(found, data)  # sampled, where it was in closed form
    assert abs(bound - result.bound) < 5 * error


def _trains():
    """All combinations; by default one method for each prior but the two that take long to compile."""
    for number, name in enumerate(MAPPED):
        for i, method in enumerate(("adam", "natgrad", "collapsed")):
            yield pytest.param(
                name, method, marks=[pytest.mark.slow] if (number + i) % 3 or name in ("lmc", "derivative") else []
            )


@pytest.mark.parametrize(("name", "method"), list(_trains()))
def test_every_prior_trains(name, method):
    prior, inputs, places = mapped(name)
    Z = np.unique(places, axis=0)[:: max(1, len(places) // 5)]
    if name == "matrix":
        Z = np.concatenate([Z, np.arange(len(Z))[:, None] % 2], axis=1)
    model = ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian())
    signal = np.sin(inputs.sum(axis=1))[:, None]
    labels = signal * np.linspace(0.5, 1.0, prior.num_outputs) + 0.1 * np.cos(7.0 * inputs[:, :1])
    result = quiet(model, (inputs, labels), method=method, steps=100 if method == "adam" else 12)
    assert "NaN" not in result.message and result.bound > result.history.bound[0] + 0.5
    assert np.isclose(elbo(result.model, (inputs, labels)), result.bound, atol=1e-5)
    for before, after in zip(prior.kernels, result.model.layers[0].prior.kernels, strict=True):
        assert not eqx.tree_equal(before, after)


@pytest.mark.slow
def test_an_own_likelihood_and_an_own_kernel_train_and_predict_as_the_built_in_ones():
    class Noise(ig.likelihoods.AbstractQuadratureLikelihood):
        variance: Array = ig.parameters.positive(0.3)

        def log_prob(self, f, y, *, index=None):
            return -0.5 * (jnp.log(2 * jnp.pi * self.variance) + (y - f) ** 2 / self.variance)

    class Bell(ig.kernels.AbstractPointKernel):
        lengthscale: Array = ig.parameters.positive(0.8)
        variance: Array = ig.parameters.positive(1.3)

        def __call__(self, x, y):
            return self.variance * jnp.exp(-0.5 * jnp.sum((x - y) ** 2) / self.lengthscale**2)

    found = []
    pairs = ((Bell(), Noise()), (ig.kernels.SquaredExponential(0.8, 1.3), ig.likelihoods.Gaussian(0.3)))
    for kernel, likelihood in pairs:
        gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(np.linspace(0, 4, 8)[:, None]))
        model = ig.Model(gp, likelihood)
        result = quiet(model, (X, y), method="natgrad", gamma=0.1, steps=100, initialise=False)
        assert result.bound > float(elbo(model, (X, y))) + 20
        predicted = result.model.predict(X[:5] + 0.05)
        found.append(
            [result.bound, *predicted.log_prob(y[:5, None]).ravel(), *result.model.posterior(X[:5]).mean.ravel()]
        )
    assert np.allclose(found[0], found[1], atol=1e-4)


def test_a_warped_kernel_and_a_mean_by_a_network_train():
    k1, k2 = jax.random.split(KEY)
    warp, bend = eqx.nn.MLP(1, 2, 4, 1, jnp.tanh, key=k1), eqx.nn.MLP(1, "scalar", 4, 1, jnp.tanh, key=k2)
    prior = ig.GP(ig.kernels.Warped(ig.kernels.Matern52(), warp), ig.means.Function(bend))
    model = ig.Model(
        ig.SparseGP(prior, ig.features.InducingPoints(np.linspace(0, 4, 8)[:, None])), ig.likelihoods.Gaussian()
    )
    result = quiet(model, (X, y), steps=60)
    assert result.method == "collapsed" and result.bound > result.history.bound[0] + 10
    trained = result.model.layers[0].prior
    for before, after in ((warp, trained.kernel.function), (bend, trained.mean_function.function)):
        assert not np.allclose(before.layers[0].weight, after.layers[0].weight)


@pytest.mark.parametrize(("N", "method"), [(1, "natgrad"), (5, "collapsed")])
def test_fewer_data_than_inducing_points_give_the_exact_answer(N, method):
    inputs, labels, grid = X[:N], y[:N], np.linspace(0.0, 4.0, 7)[:, None]
    Z = np.concatenate([inputs, np.linspace(0.0, 4.0, 4)[:, None] + 0.03])
    model = regression(Z)
    held = {"freeze": lambda m: (m.layers[0].features, m.layers[0].prior, m.likelihood)}
    result = quiet(model, (inputs, labels), method=method, steps=5, **held)
    K = np.asarray(model.layers[0].prior.kernel.gram(np.concatenate([inputs, grid])))
    cov = K[:N, :N] + 0.3 * np.eye(N)
    evidence = -0.5 * (labels @ np.linalg.solve(cov, labels) + np.linalg.slogdet(2 * np.pi * cov)[1])
    assert np.isclose(elbo(result.model, (inputs, labels)), evidence, atol=1e-5)
    assert np.allclose(result.model.posterior(grid).mean[:, 0], K[N:, :N] @ np.linalg.solve(cov, labels), atol=1e-4)


SINGLE = """
import jax, numpy as np, inducing as ig
assert not jax.config.jax_enable_x64
rng = np.random.default_rng(0)
X = rng.uniform(0.0, 4.0, (60, 1))
y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.normal(size=60)
gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.linspace(0.0, 4.0, 12)[:, None]))
for options in ({}, {"batch_size": 20, "steps": 400, "method": "natgrad"}):
    result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian()), (X, y), progress=False, **options)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(result.model))
    grid = np.linspace(0.2, 3.8, 20)
    predicted = result.model.predict(grid)
    error = np.sqrt(np.mean((np.asarray(predicted.mean)[:, 0] - np.sin(3.0 * grid)) ** 2))
    print(result.method, error, float(np.sqrt(predicted.variance).mean()))
"""


def test_single_precision_without_64_bit_numbers():
    """In a process of its own, since tests run in double precision: sin(3x) within 0.1, the noise of 0.1 recognised."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    run = subprocess.run([sys.executable, "-c", SINGLE], capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert [line[0] for line in lines] == ["collapsed", "natgrad"]
    for _, error, deviation in lines:
        assert float(error) < 0.1 and 0.07 < float(deviation) < 0.2
