"""Fits where the objective is NaN, or wrong because of rounding."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

from .problems import elbo, quiet, regression, wave

X, y = wave()


def test_many_rows_are_sampled_first(monkeypatch):
    """The last steps see all data: the bound is theirs, also after an interrupt before the first of them."""
    module = importlib.import_module("inducing.training.lbfgs")
    for name, value in {"MANY": 60, "SAMPLE": 30, "FIRST": 4}.items():
        monkeypatch.setattr(module, name, value)
    result = quiet(regression(), (X, y), steps=30)
    assert "(the first 4 on a sample of 30)" in result.message and len(result.history.bound) <= 30
    np.testing.assert_allclose(elbo(result.model, (X, y)), result.bound)
    assert result.bound >= max(result.history.bound[4:])
    stopped = quiet(regression(), (X, y), callback=lambda p: p.step >= 2)
    assert len(stopped.history.bound) == 2 and stopped.bound == stopped.history.bound[1]
    assert "(the first 2 on a sample of 30)" in stopped.message

    search, calls = module.maximise, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return search(*args)

    monkeypatch.setattr(module, "maximise", interrupted)
    cut = quiet(regression(), (X, y), steps=30)
    assert "interrupted" in cut.message and cut.bound == cut.history.bound[3]
    monkeypatch.setattr(module, "maximise", search)

    def in_the_sample(progress):
        if progress.step == 2:
            raise KeyboardInterrupt

    cut = quiet(regression(), (X, y), steps=30, callback=in_the_sample)
    assert "2 steps on all data (the first 2 on a sample of 30): interrupted" in cut.message


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


def test_nothing_but_nan_is_an_error():
    def never(model, data):
        return jnp.nan * model.likelihood.variance

    model = regression()
    for method in ("adam", "natgrad", "lbfgs"):
        with pytest.raises(FloatingPointError, match="at the start"):
            quiet(model, (X, y), objective=never, method=method)
    seen = []
    with pytest.raises(FloatingPointError, match="at the start"):
        quiet(model, (X, y), objective=never, method="adam", callback=lambda p: seen.append(p.step))
    assert max(seen) < 500  # it does not go on in vain


def test_a_line_search_survives_values_that_are_no_numbers():
    def walled(model, data):  # NaN where the noise is small, which is where the optimum lies
        wall = jnp.where(model.likelihood.variance < 0.05, jnp.nan, 1.0)
        return ig.collapsed_elbo(model, data) * wall

    result = quiet(regression(), (X, y), objective=walled)
    assert result.method == "lbfgs" and np.isfinite(result.bound)
    assert 0.05 <= result.model.likelihood.variance < 0.3
    assert "values in line searches were NaN" in result.message


def test_a_line_search_does_not_reach_for_values_that_rounding_made_up():
    def cone(model, data):  # so little curvature far from its top that a secant step passes it by 500
        t = jnp.log(model.likelihood.variance)
        return jnp.where(jnp.abs(t) > 40.0, 1e100, -jnp.sqrt(1.0 + t**2))

    start = regression(noise=np.exp(8.0))
    result = quiet(start, (X, y), objective=cone, method="lbfgs", initialise=False)
    assert np.isclose(result.model.likelihood.variance, 1.0, atol=1e-3) and np.isclose(result.bound, -1.0)


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
    each = ig.priors.Independent([ig.kernels.Matern52(), ig.kernels.Matern52()])
    two = ig.Model(ig.SparseGP(each, regression().layers[0].features), ig.likelihoods.Gaussian([1.0, 1.0]))
    assert told in quiet(two, (X, np.stack([y, same_labels], axis=1)), steps=3).message
    for likelihood in (
        ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(), ig.likelihoods.Poisson()]),
        ig.likelihoods.Laplace([1.0, 1.0]),
    ):
        other = ig.Model(two.layers[0], likelihood)
        assert told in quiet(other, (X, np.stack([same_labels, np.round(y**2)], axis=1)), steps=3).message
        assert told not in quiet(other, (X, np.stack([y, np.round(y**2)], axis=1)), steps=3).message
    one = (X[:1], y[:1])  # no density at one label is higher than 1/|y|, but for a mean that trains
    assert told not in quiet(regression(), one, steps=3).message
    bernoulli = ig.Model(regression().layers[0], ig.likelihoods.Bernoulli())
    assert told not in quiet(bernoulli, (X, np.ones(60)), steps=3).message


@pytest.mark.parametrize("part", ["value", "gradient"])
def test_all_data_may_give_no_number_where_a_sample_leads(monkeypatch, part):
    """The search on all data then begins at the start; a sample that gives none there is left out."""
    module = importlib.import_module("inducing.training.lbfgs")
    for name, value in {"MANY": 60, "SAMPLE": 30, "FIRST": 4}.items():
        monkeypatch.setattr(module, name, value)
    evaluate, seen = module.compiled(module.value_and_gradient), []

    def holed(bad):
        def at(ascent, free, key):
            seen.append(len(ascent.data))
            value, grads = evaluate(ascent, free, key)
            if not bad():
                return value, grads
            return (jnp.nan * value, grads) if part == "value" else (value, [jnp.nan * g for g in grads])

        at.lower = evaluate.lower
        seen.clear()
        return lambda fn: at

    def fitted(bad):
        monkeypatch.setattr(module, "compiled", holed(bad))
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
    """Without noise and far from the prior's mean, the collapsed bound is a difference of numbers of size 1e19."""
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
    """The value that a line search receives there must lie above the one at which it began."""
    x = np.linspace(0.0, 15.0, 300)[:, None]
    labels = np.sin(x[:, 0]) + 0.01 * np.random.default_rng(0).normal(size=300)
    result = quiet(regression(x[::6]), (x, labels))
    np.testing.assert_allclose(result.bound, ig.collapsed_elbo(result.model, (x, labels)), rtol=1e-6)
    assert result.bound > 850


def test_rounding_in_float32_does_not_lead_a_climb_astray():
    """In float32, a noise of a hundredth is already small enough for rounding to matter."""
    x = np.linspace(0.0, 15.0, 300, dtype=np.float32)[:, None]
    labels = np.sin(x[:, 0]) + 0.01 * np.random.default_rng(0).normal(size=300).astype(np.float32)
    result = quiet(regression(x[::6], noise=0.1, dtype=np.float32), (x, labels))
    assert result.bound < 1000 and "skipped (labels with too little noise for float32" in result.message
    assert np.mean((result.model.predict(x).mean[:, 0] - labels) ** 2) < 1e-3
