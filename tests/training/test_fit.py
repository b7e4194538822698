"""fit: reaches the truth, and moves what it should move."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import polars as pl
import pytest

import inducing as ig
from inducing.parameters import parameters

from .problems import elbo, quiet, regression, same, wave

X, y = wave()


@pytest.fixture(scope="module")
def evidence():
    """The largest exact evidence, over lengthscale, variance and noise, by scipy on a dense covariance."""
    from scipy.optimize import minimize

    r = np.abs(X - X.T)

    def loss(theta):
        ell, variance, noise = np.exp(theta)
        s = np.sqrt(5.0) * r / ell
        K = variance * (1 + s + s**2 / 3) * np.exp(-s) + noise * np.eye(len(y))
        L = np.linalg.cholesky(K)
        a = np.linalg.solve(L, y)
        return 0.5 * a @ a + np.log(np.diagonal(L)).sum() + 0.5 * len(y) * np.log(2 * np.pi)

    return -minimize(loss, np.log([0.8, 1.3, 0.3]), method="L-BFGS-B").fun


def test_exact_gp_is_trained_by_its_evidence(evidence):
    result = quiet(regression(), (X, y), objective=ig.log_evidence)
    assert result.method == "lbfgs"
    assert np.isclose(result.bound, evidence, atol=1e-4)


def test_collapsed_bound_comes_close_to_the_evidence_and_sets_q(evidence):
    result = quiet(regression(), (X, y))
    assert result.method == "collapsed"
    assert evidence - 1.0 < result.bound < evidence + 1e-6
    assert np.isclose(elbo(result.model, (X, y)), result.bound, atol=1e-6)
    assert "closed form" in result.message and "jitter" in result.message


def test_natural_gradients_reach_what_the_collapsed_bound_reaches(evidence):
    result = quiet(regression(), (X, y), method="natgrad", steps=1500)
    assert evidence - 1.5 < result.bound < evidence
    assert np.isclose(elbo(result.model, (X, y)), result.bound, atol=1e-6)


def test_adam_improves_the_bound_and_history_tells():
    result = quiet(regression(), (X, y), method="adam", steps=300)
    h = result.history
    assert len(h.bound) == len(h.step) == len(h.seconds) == 300
    assert np.isclose(h.bound[0], elbo(regression(), (X, y)))
    assert result.bound > h.bound[0] + 20
    assert np.isclose(elbo(result.model, (X, y)), result.bound) and result.bound >= h.bound.max() - 0.1
    assert (np.diff(h.seconds) >= 0).all()


def test_the_model_that_is_passed_stays_as_it_is():
    model = regression()
    before = [np.array(leaf) for leaf in jax.tree.leaves(model)]
    quiet(model, (X, y), method="natgrad", steps=5)
    assert all(np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(model), strict=True))


def test_same_key_same_result_and_another_key_another():
    run = partial(quiet, regression(), (X, y), method="adam", steps=120, batch_size=16)
    a, b, c = run(), run(key=jax.random.key(0)), run(key=jax.random.key(1))
    assert same(a.model, b.model) and np.array_equal(a.history.bound, b.history.bound)
    assert not same(a.model, c.model)


def test_minibatches_of_an_epoch_are_disjoint_and_average_to_the_full_bound():
    model = regression()
    # Steps of length zero leave the model as it is: the mean over an epoch's minibatches is then the full bound.
    still = optax.sgd(0.0)
    result = quiet(model, (X, y), method="adam", steps=18, batch_size=10, optimiser=still)
    full = float(elbo(model, (X, y)))
    epochs = result.history.bound.reshape(3, 6)
    assert np.allclose(epochs.mean(axis=1), full, rtol=1e-12)
    assert epochs.std(axis=1).min() > 1e-3 and not np.allclose(epochs[0], epochs[1])


def test_frozen_parts_stay():
    model = regression()
    result = quiet(model, (X, y), method="natgrad", steps=10, freeze=lambda m: (m.layers[0].features, m.likelihood))
    assert np.array_equal(result.model.layers[0].features.Z, model.layers[0].features.Z)
    assert result.model.likelihood.variance == model.likelihood.variance
    assert result.model.layers[0].prior.kernel.lengthscale != model.layers[0].prior.kernel.lengthscale


def test_freezing_everything_only_sets_q():
    model = regression()
    result = quiet(model, (X, y), freeze=lambda m: (m.layers[0].prior, m.layers[0].features, m.likelihood))
    assert result.model.likelihood.variance == model.likelihood.variance
    best = eqx.filter_jit(ig.collapsed_elbo)(model, (X, y))
    assert np.isclose(elbo(result.model, (X, y)), best)
    assert np.isclose(result.bound, best) and "nothing to train" in result.message


def test_a_fit_without_a_step_knows_its_bound():
    model = regression()
    exact = elbo(model, (X, y))
    assert np.isclose(quiet(model, (X, y), freeze=lambda m: m).bound, exact)
    assert np.isclose(
        quiet(model, (X, y), freeze=lambda m: m, held_out=(X[::2], y[::2])).bound,
        elbo(model, (X[::2], y[::2]), num_data=60),
    )
    one = quiet(model, (X, y), freeze=lambda m: m, method="adam", batch_size=1).bound
    bound = jax.jit(jax.vmap(lambda x, y: ig.elbo(model, (x, y), num_data=60)))
    each = np.asarray(bound(X[:, None], y[:, None]))
    assert np.isclose(each, one).any()
    assert np.isclose(each, quiet(model, (X, y), steps=0, method="adam", batch_size=1, initialise=False).bound).any()


def test_tied_parameters_stay_tied():
    part = ig.kernels.Matern52(0.9, 1.1)
    for options in ({"method": "adam", "steps": 10}, {"steps": 3}):
        model = regression(kernel=part + part * ig.kernels.Matern12(2.0, 0.7))  # each place has its own gradient
        tied = [row.name for row in ig.summary(model).rows if row.constraint.startswith("tied")]
        assert len(tied) == 2
        for _ in range(2):  # a fit of what was fitted knows no less
            model = quiet(model, (X, y), **options).model
            a, b = (model.layers[0].prior.kernel.kernels[0], model.layers[0].prior.kernel.kernels[1].kernels[0])
            assert a.lengthscale == b.lengthscale != part.lengthscale and a.variance == b.variance != part.variance
            assert [row.name for row in ig.summary(model).rows if row.constraint.startswith("tied")] == tied
    frozen = quiet(model, (X, y), method="adam", steps=2, freeze=lambda m: m.layers[0].prior).model
    assert ig.summary(frozen).num_trained == ig.summary(model).num_trained


def test_clamped_generative_parameters_wait():
    model = regression()
    clamped = quiet(model, (X, y), steps=30, clamp=30).model
    assert clamped.layers[0].prior.kernel.lengthscale == model.layers[0].prior.kernel.lengthscale
    assert clamped.likelihood.variance == model.likelihood.variance
    assert not np.array_equal(clamped.layers[0].mean, model.layers[0].mean)
    assert not np.array_equal(clamped.layers[0].features.Z, model.layers[0].features.Z)
    released = quiet(model, (X, y), steps=60, clamp=30).model
    assert released.likelihood.variance != model.likelihood.variance


def test_clamped_are_priors_of_latent_variables_decoders_and_what_a_skip_holds():
    k1, k2 = jax.random.split(jax.random.key(0))
    encoder = ig.layers.Amortised.mlp(k1, 1, y=2, hidden=(3, 1))
    inner = ig.SparseGP(ig.GP(ig.kernels.Matern52(0.7, 1.1)), ig.features.InducingPoints([[0.0], [1.0]]))
    model = ig.Model(
        [
            ig.LatentVariable(1, encoder, mean=0.1, scale=0.9),
            ig.layers.Skip(inner),
            ig.BayesianDense(2, 2, key=k2),
            ig.layers.Deterministic(eqx.nn.Linear(2, 2, key=k2)),
        ],
        ig.likelihoods.Gaussian(0.2),
    )
    data = ig.Data(None, np.random.default_rng(0).normal(size=(9, 2)))
    moved = quiet(model, data, method="adam", steps=3, clamp=3, initialise=False).model
    moves = {
        name
        for (name, before, _), (_, after, _) in zip(parameters(model), parameters(moved), strict=True)
        if not np.allclose(before, after, rtol=1e-12, atol=0.0)
    }
    expected = {f".layers[0].encoder{name}" for name, _, _ in parameters(encoder)}
    expected |= {f".layers[1].layers[0].{name}" for name in ("mean", "root", "features.Z")}
    assert moves == expected | {".layers[2].mean", ".layers[2].scale"}
    released = quiet(model, data, method="adam", steps=5, clamp=3, initialise=False).model
    assert released.layers[0].scale != model.layers[0].scale
    assert not np.array_equal(released.layers[3].function.weight, model.layers[3].function.weight)


def test_adam_fades_under_noise_and_no_other_optimiser_does():
    """On a slope of one Adam moves by its rate at each step; under noise by 5 % of it in the end."""

    def slope(model, data, key=None):
        return jnp.sum(model.layers[0].mean) + (0.0 if key is None else 1e-6 * jax.random.normal(key))

    def moved(**options):
        result = quiet(regression(), (X, y), method="adam", steps=300, **options)
        return np.asarray(result.model.layers[0].mean)

    last = np.clip(np.arange(100, 0, -1) / 100, 0.05, 1.0).sum()
    np.testing.assert_allclose(moved(objective=slope), 0.01 * (200 + last), rtol=1e-6)
    np.testing.assert_allclose(moved(objective=lambda m, d: slope(m, d)), 3.0, rtol=1e-6)
    np.testing.assert_allclose(moved(objective=slope, optimiser=optax.adam(0.01)), 3.0, rtol=1e-6)


def test_natural_gradients_fade_under_noise():
    """On a slope of one, q(w) = N(m, I) moves by γ: 0.1 approached over 10 steps, and a tenth of it in the end."""

    def slope(model, data, key=None):
        return jnp.sum(model.layers[0].mean) + (0.0 if key is None else 1e-6 * jax.random.normal(key))

    def moved(objective):
        return quiet(regression(), (X, y), method="natgrad", steps=300, objective=objective).model.layers[0].mean

    step = np.arange(300)
    gamma = 0.1 ** (3.0 - 2.0 * np.minimum(step / 10, 1.0))
    np.testing.assert_allclose(moved(lambda m, d: slope(m, d)), gamma.sum(), rtol=1e-6)
    np.testing.assert_allclose(moved(slope), (gamma * np.clip((300 - step) * 9 / 300, 0.1, 1.0)).sum(), rtol=1e-6)


def test_log_prior_is_over_natural_values():
    # A Gamma density alone has its maximum at its mode (a − 1)/b, not at a/b, where that of the logarithm lies.
    def log_prior(model):
        return 2.0 * jnp.log(model.likelihood.variance) - 5.0 * model.likelihood.variance

    def nothing(model, data):
        return 0.0 * model.likelihood.variance

    result = quiet(regression(), (X, y), objective=nothing, log_prior=log_prior, method="lbfgs")
    assert np.isclose(result.model.likelihood.variance, 2.0 / 5.0, rtol=1e-4)


def test_beta_and_any_optimiser():
    result = quiet(
        regression(),
        (X, y),
        objective=partial(ig.elbo, beta=0.5),
        freeze=lambda m: m.layers[0].features,
        method="natgrad",
        optimiser=optax.chain(optax.clip_by_global_norm(1.0), optax.rmsprop(0.01)),
        steps=20,
    )
    assert np.isclose(result.bound, elbo(result.model, (X, y), beta=0.5))


def test_an_optimiser_that_searches_along_a_line():
    """It is given the objective, and climbs farther in as many steps than one that is not."""
    bounds = [
        ig.fit(regression(), (X, y), optimiser=optax.lbfgs(), method="adam", steps=30, progress=False).bound,
        ig.fit(regression(), (X, y), optimiser=optax.adam(0.01), method="adam", steps=30, progress=False).bound,
    ]
    assert bounds[0] > bounds[1] + 10


def test_float32():
    X32, y32 = wave(dtype=np.float32)
    for method in ("collapsed", "natgrad"):
        result = quiet(regression(dtype=np.float32), (X32, y32), method=method, steps=30)
        assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(result.model))
        assert result.bound > float(elbo(regression(), (X, y))) + 20


def test_zero_steps_and_warm_start():
    model = regression()
    assert same(quiet(model, (X, y), method="adam", steps=0).model, model, 1e-14)
    first = quiet(model, (X, y), method="natgrad", steps=50)
    again = quiet(first.model, (X, y), method="natgrad", steps=1)
    assert np.isclose(again.history.bound[0], first.bound)
    assert eqx.tree_equal(jax.tree.structure(first.model), jax.tree.structure(model))


def test_frames_go_in_everywhere():
    """pandas and polars frames are the arrays that they hold: in bounds, fits, predictions and conditioning."""
    plain, frames = (X, y), (pd.DataFrame({"x": X[:, 0]}), pl.Series("y", y))
    model = regression()
    bounds = [float(jax.jit(partial(ig.elbo, data=data))(model)) for data in (plain, frames)]
    assert bounds[0] == bounds[1]
    fits = [quiet(model, data, steps=3) for data in (plain, frames)]
    assert same(fits[0].model, fits[1].model)
    new = pl.DataFrame({"x": [0.5, 1.5]})
    pred = fits[1].model.predict(new)
    np.testing.assert_array_equal(pred.mean, fits[0].model.predict([0.5, 1.5]).mean)
    np.testing.assert_array_equal(pred.log_prob(pd.Series([0.1, 0.2])), pred.log_prob([0.1, 0.2]))
    exact = [model.layers[0].prior.condition(*data, noise_variance=0.1).mean([0.5]) for data in (plain, frames)]
    np.testing.assert_array_equal(*exact)
