"""fit: reaches the truth, keeps what it should keep, and stops as asked."""

import importlib
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
from inducing.training.monitor import Monitor

from .problems import regression, same, wave

X, y = wave()
quiet = partial(ig.fit, progress=False)
elbo = eqx.filter_jit(ig.elbo)


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


def test_interrupt_returns_the_best_so_far():
    seen = []

    def interrupt(progress):
        seen.append(progress)
        if progress.step >= 20:
            raise KeyboardInterrupt

    for method in ("adam", "collapsed"):
        seen.clear()
        result = quiet(regression(), (X, y), method=method, steps=100, callback=interrupt)
        assert "interrupted" in result.message
        assert result.bound == max(p.bound for p in seen)
        assert np.isclose(elbo(result.model, (X, y)), result.bound, atol=1e-6)


def test_interrupt_under_minibatches():
    seen = []

    def interrupt(progress):
        seen.append(progress.bound)
        if progress.step >= 20:
            raise KeyboardInterrupt

    options = {"method": "adam", "steps": 100, "batch_size": 16, "initialise": False}
    result = quiet(regression(), (X, y), starts=3, callback=interrupt, **options)
    assert "interrupted" in result.message and result.bound == max(seen)
    assert len(result.history.bound) == 20  # and no other start was made
    assert same(result.model, quiet(regression(), (X, y), callback=lambda p: p.step >= 20, **options).model)
    assert elbo(result.model, (X, y)) > elbo(regression(), (X, y))


def test_interrupt_before_anything_was_judged(monkeypatch):
    module = importlib.import_module("inducing.training.walk")  # not the function of that name
    steps, calls = module.compiled_steps(), []

    def once(*args):
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return steps(*args)

    monkeypatch.setattr(module, "compiled_steps", lambda: once)
    options = {"method": "adam", "steps": 100, "batch_size": 16, "initialise": False}
    result = quiet(regression(), (X, y), **options)
    assert "interrupted" in result.message and result.bound == result.history.bound[0]


def test_many_rows_are_sampled_first(monkeypatch):
    """The last steps see all data: the bound is theirs, also after an interrupt before the first of them."""
    module = importlib.import_module("inducing.training.climb")
    for name, value in {"MANY": 60, "SAMPLE": 30, "FIRST": 4}.items():
        monkeypatch.setattr(module, name, value)
    result = quiet(regression(), (X, y), steps=30)
    assert "(the first 4 on a sample of 30)" in result.message and len(result.history.bound) <= 30
    np.testing.assert_allclose(elbo(result.model, (X, y)), result.bound)
    assert result.bound >= max(result.history.bound[4:])
    stopped = quiet(regression(), (X, y), callback=lambda p: p.step >= 2)
    assert len(stopped.history.bound) == 2 and stopped.bound == stopped.history.bound[1]
    assert "(the first 2 on a sample of 30)" in stopped.message

    climb, calls = module.maximise, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return climb(*args)

    monkeypatch.setattr(module, "maximise", interrupted)
    cut = quiet(regression(), (X, y), steps=30)
    assert "interrupted" in cut.message and cut.bound == cut.history.bound[3]
    monkeypatch.setattr(module, "maximise", climb)

    def in_the_sample(progress):
        if progress.step == 2:
            raise KeyboardInterrupt

    cut = quiet(regression(), (X, y), steps=30, callback=in_the_sample)
    assert "2 steps on all data (the first 2 on a sample of 30): interrupted" in cut.message


@pytest.mark.parametrize("place", ["_perturbed", "maximise", "_finish"])
def test_interrupt_after_the_first_start_keeps_it(monkeypatch, place):
    module = importlib.import_module(f"inducing.training.{'climb' if place == 'maximise' else 'fit'}")
    inner, calls = getattr(module, place), []

    def second(*args):
        calls.append(args)
        if len(calls) == (2 if place == "maximise" else 1):
            raise KeyboardInterrupt
        return inner(*args)

    monkeypatch.setattr(module, place, second)
    options = {"objective": lambda model, data: -(model.likelihood.variance**2), "method": "lbfgs", "initialise": False}
    result = quiet(regression(), (X, y), starts=1 if place == "_finish" else 3, **options)
    assert result.bound > -1e-3 and ("interrupted in a later start" in result.message) == (place != "_finish")


def test_callback_sees_models_and_can_stop():
    result = quiet(regression(), (X, y), method="adam", steps=200, callback=lambda p: p.step >= 50)
    assert len(result.history.bound) < 100 and "callback" in result.message
    result = quiet(regression(), (X, y), callback=lambda p: True)
    assert len(result.history.bound) == 0 and "callback" in result.message
    seen = []
    quiet(regression(), (X, y), steps=2, callback=lambda p: seen.append((p.bound, elbo(p.model, (X, y)))))
    assert len(seen) == 3
    np.testing.assert_allclose(*zip(*seen, strict=True))  # with the optimal q(u) that the collapsed bound is of
    models = []
    quiet(regression(), (X, y), method="adam", steps=2, callback=lambda p: models.append(p.model))
    assert isinstance(models[0], ig.Model)


def test_noise_and_nan_are_survived():
    """The best is chosen by its average, not by a lucky draw; steps that turn NaN are skipped and counted."""

    def wild(model, data, key):  # noise far larger than the signal, and NaN every third time
        luck, fate = jax.random.split(key)
        bad = jax.random.bernoulli(fate, 1 / 3)
        return jnp.where(bad, jnp.nan, 1.0) * (ig.elbo(model, data) + 1e4 * jax.random.normal(luck))

    result = quiet(regression(), (X, y), objective=wild, method="adam", steps=300)
    failed = int(np.isnan(result.history.bound).sum())
    assert 60 < failed < 140 and f"{failed} steps were NaN" in result.message
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.model))
    assert result.bound < np.nanmax(result.history.bound) - 1e4
    assert elbo(result.model, (X, y)) > elbo(regression(), (X, y)) + 5


def test_nothing_but_nan_ends_early_with_the_start():
    def never(model, data):
        return jnp.nan * model.likelihood.variance

    model = regression()
    result = quiet(model, (X, y), objective=never, method="adam", steps=3000)
    assert len(result.history.bound) < 500 and "NaN" in result.message
    assert same(result.model, model, 1e-14)
    with pytest.raises(FloatingPointError, match="at the start"):
        quiet(model, (X, y), objective=never, method="lbfgs")


def test_a_line_search_survives_values_that_are_no_numbers():
    def walled(model, data):  # no number where the noise is small, which is where the optimum lies
        wall = jnp.where(model.likelihood.variance < 0.05, jnp.nan, 1.0)
        return ig.collapsed_elbo(model, data) * wall

    result = quiet(regression(), (X, y), objective=walled)
    assert result.method == "lbfgs" and np.isfinite(result.bound)
    assert 0.05 <= result.model.likelihood.variance < 0.3


def test_a_line_search_does_not_reach_for_values_that_rounding_made_up():
    def cone(model, data):  # so little curvature far from its top that a secant step passes it by 500
        t = jnp.log(model.likelihood.variance)
        return jnp.where(jnp.abs(t) > 40.0, 1e100, -jnp.sqrt(1.0 + t**2))

    start = regression(noise=np.exp(8.0))
    result = quiet(start, (X, y), objective=cone, method="lbfgs", initialise=False)
    assert np.isclose(result.model.likelihood.variance, 1.0, atol=1e-3) and np.isclose(result.bound, -1.0)


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


def test_the_moving_average_does_not_depend_on_the_clock():
    """Steps come in pieces of any length; the first ones, fewer than the window, have their mean."""
    values, found, options = np.arange(20.0) ** 2, [], ("callback", "patience", "held_out")
    for cuts in ([], [1, 10], [1, 3, 11, 15]):
        monitor = Monitor(20, label="", window=50.0, build=lambda free: free, progress=False, **dict.fromkeys(options))
        for piece in np.split(values, cuts):
            monitor.record(piece)
        found.append(monitor.smoothed)
    np.testing.assert_allclose(found, values.mean())


def test_held_out_data_decide_and_stop():
    held = wave(num=30, seed=1)
    scores = []
    result = quiet(
        regression(),
        (X[:8], y[:8]),
        method="adam",
        steps=1000,
        learning_rate=0.1,
        held_out=held,
        patience=100,
        callback=lambda p: scores.append(p.bound),
    )
    assert "no improvement" in result.message and len(result.history.bound) < 1000
    assert result.bound == max(scores) > scores[-1]
    assert np.isclose(elbo(result.model, held, num_data=8), result.bound)


def test_held_out_data_with_the_collapsed_bound():
    held = wave(num=30, seed=1)
    result = quiet(regression(), (X, y), held_out=held, steps=10)
    assert np.isclose(elbo(result.model, held, num_data=len(y)), result.bound, atol=1e-6)


def test_starts_keep_the_best():
    def two_hills(model, data):  # of log σ²: the lower one at 0, where the first start stands, the higher one at 1.2
        t = jnp.log(model.likelihood.variance)
        return 5.0 * jnp.exp(-20.0 * (t - 1.2) ** 2) + jnp.exp(-20.0 * t**2)

    run = partial(quiet, regression(noise=1.0), (X, y), objective=two_hills, method="lbfgs", initialise=False)
    one, several = run(), run(starts=8)
    assert np.isclose(one.bound, 1.0) and np.isclose(one.model.likelihood.variance, 1.0)
    assert np.isclose(several.bound, 5.0) and np.isclose(several.model.likelihood.variance, np.exp(1.2), rtol=1e-4)
    assert "best of 8 starts, which reached 1," in several.message


def test_a_start_without_a_number_loses_no_other():
    def holes(model, data, inside):  # no number far from where the first start stands, or near it
        t = jnp.abs(jnp.log(model.likelihood.variance))
        return jnp.where((t < 0.4) == inside, -(t**2), jnp.nan)

    run = partial(quiet, regression(noise=1.0), (X, y), method="lbfgs", initialise=False, starts=4)
    for inside in (True, False):
        result = run(objective=partial(holes, inside=inside))
        assert np.isfinite(result.bound) and "best of 4 starts" in result.message and "nan" in result.message


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


def test_progress_can_be_silenced_and_shows_bound_and_speed(capsys):
    quiet(regression(), (X, y), method="adam", steps=5)
    out = capsys.readouterr()
    assert out.out == "" and out.err == ""
    ig.fit(regression(), (X, y), method="adam", steps=5, progress="fold 3")
    out = capsys.readouterr()
    assert out.err.lstrip("\r").startswith("fold 3:")
    assert out.out == "" and "bound" in out.err and "step/s" in out.err
    assert out.err.rstrip().endswith("all steps done]")


def test_the_progress_bar_says_that_a_fit_ended_early_because_it_converged(capsys):
    result = ig.fit(regression(), (X, y), method="collapsed")
    assert capsys.readouterr().err.rstrip().endswith(f"bound {result.bound:.6g}, converged]")


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


def test_patience_without_held_out_data_and_values_that_tree_at_left():
    result = quiet(regression(), (X, y), method="adam", steps=20_000, patience=300)
    assert len(result.history.bound) < 20_000 and "no improvement for 300 steps" in result.message
    assert result.bound > elbo(regression(), (X, y)) + 100
    broken = eqx.tree_at(lambda m: m.likelihood.variance, regression(), jnp.asarray(-1.0))
    with pytest.raises(ValueError, match="variance must be positive, got -1"):
        quiet(broken, (X, y))


def test_equal_labels_are_told_where_noise_may_go_to_zero():
    same_labels = np.full(60, 3.0)
    told = "all labels are equal"
    for method in ("collapsed", "natgrad", "adam"):
        assert told in quiet(regression(), (X, same_labels), method=method, steps=3).message
    some = np.where(np.arange(60) < 30, np.nan, 3.0)
    assert told in quiet(regression(), (X, some), steps=3).message
    assert told not in quiet(regression(), (X, y), steps=3).message
    assert told not in quiet(regression(), (X, same_labels), steps=3, freeze=lambda m: m.likelihood).message
    assert (
        told not in quiet(regression(), (X, same_labels), steps=3, log_prior=lambda m: -m.likelihood.variance).message
    )
    bernoulli = ig.Model(regression().layers[0], ig.likelihoods.Bernoulli())
    assert told not in quiet(bernoulli, (X, np.ones(60)), steps=3).message


@pytest.mark.parametrize("part", ["value", "gradient"])
def test_all_data_may_give_no_number_where_a_sample_leads(monkeypatch, part):
    """The climb on all data then begins at the start; a sample that gives none there is left out."""
    module, climbs = (importlib.import_module(f"inducing.training.{name}") for name in ("climb", "lbfgs"))
    for name, value in {"MANY": 60, "SAMPLE": 30, "FIRST": 4}.items():
        monkeypatch.setattr(module, name, value)
    evaluate, seen = climbs.compiled_value_and_gradient(), []

    def holed(bad):
        def at(ascent, free, key):
            seen.append(len(ascent.data))
            value, grads = evaluate(ascent, free, key)
            if not bad():
                return value, grads
            return (jnp.nan * value, grads) if part == "value" else (value, [jnp.nan * g for g in grads])

        at.lower = evaluate.lower
        seen.clear()
        return lambda: at

    def fitted(bad):
        monkeypatch.setattr(climbs, "compiled_value_and_gradient", holed(bad))
        return quiet(regression(), (X, y), steps=30)

    led = fitted(lambda: seen[-1] == 60 and seen.count(60) == 1)
    assert "(the first 4 on a sample of 30)" in led.message and led.bound == max(led.history.bound[4:])
    np.testing.assert_allclose(elbo(led.model, (X, y)), led.bound)
    without = fitted(lambda: seen[-1] == 30)
    assert "sample" not in without.message
    np.testing.assert_allclose(elbo(without.model, (X, y)), without.bound)
    what = "objective is nan" if part == "value" else "gradient of the objective is not finite"
    with pytest.raises(FloatingPointError, match=f"the {what} at the start"):
        fitted(lambda: True)


def test_rounding_does_not_lead_a_climb_astray():
    """Without noise, far from the prior's mean, the collapsed bound ends in a difference of numbers of 1e19. Values of
    1e16 that rounding had made up passed for the best."""
    x = np.random.default_rng(0).uniform(0.0, 4.0, size=(200, 1))
    for labels in (50.0 + 2.0 * x[:, 0], np.full(200, 3.0)):
        result = quiet(regression(kernel=ig.kernels.SquaredExponential(), noise=1.0), (x, labels))
        assert abs(elbo(result.model, (x, labels)) - result.bound) < 0.03 * 200 and result.bound > 900
    assert (
        "skipped (labels with too little noise for float64" in quiet(regression(), (x, 3e4 + np.sin(x[:, 0]))).message
    )
    with pytest.raises(FloatingPointError, match=r"ig\.means\.Constant"):
        quiet(regression(), (x, 1e9 + np.sin(x[:, 0])))


def test_a_step_that_reaches_too_far_is_not_taken():
    """What a line search is told there had been below the value where it began, and passed for the end of the climb."""
    x = np.linspace(0.0, 15.0, 300)[:, None]
    labels = np.sin(x[:, 0]) + 0.01 * np.random.default_rng(0).normal(size=300)
    result = quiet(regression(x[::6]), (x, labels))
    np.testing.assert_allclose(result.bound, ig.collapsed_elbo(result.model, (x, labels)), rtol=1e-6)
    assert result.bound > 850


def test_rounding_in_float32_does_not_lead_a_climb_astray():
    """There a noise of a hundredth is little already: the bound had been 6e13, and R² −326."""
    x = np.linspace(0.0, 15.0, 300, dtype=np.float32)[:, None]
    labels = np.sin(x[:, 0]) + 0.01 * np.random.default_rng(0).normal(size=300).astype(np.float32)
    result = quiet(regression(x[::6], noise=0.1, dtype=np.float32), (x, labels))
    assert result.bound < 1000 and "skipped (labels with too little noise for float32" in result.message
    assert np.mean((result.model.predict(x).mean[:, 0] - labels) ** 2) < 1e-3
