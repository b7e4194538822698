"""`ig.grow`: exact for few rows, and as many inducing points as are useful for more."""

import jax
import numpy as np
import pytest

import inducing as ig
from inducing.training import grow as growing

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 6.0, 300))
Y = np.sin(8.0 * X) + 0.1 * RNG.standard_normal(300)


def model(likelihood=None, Z=((0.0,),)):
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(Z))
    return ig.Model(gp, likelihood or ig.likelihoods.Gaussian())


@pytest.fixture
def small(monkeypatch):
    """The same rules at a hundredth of the size."""
    for name, value in {"EXACT": 100, "SUBSET": 80, "FIRST": 5}.items():
        monkeypatch.setattr(growing, name, value)


def test_points_grow_until_they_gain_little(small):
    slow = np.sin(2.0 * X) + 0.1 * RNG.standard_normal(300)
    result = ig.grow(model(), (X, slow), progress=False)
    assert result.model.layers[0].num_features in (20, 80)  # two periods need more than 5 points, and not all 300
    evidence = float(ig.log_evidence(result.model, (X, slow)))
    assert evidence - 0.02 * 300 < result.bound <= evidence
    assert "KL(q ‖ posterior) ≤" in result.message


def test_growing_ends_as_well_as_the_last_number_from_the_start(small):
    """With 5 points these labels are noise, and a fit of 20 points that started there stayed there."""
    result = ig.grow(model(), (X, Y), most=20, progress=False)
    direct = ig.fit(model(Z=ig.initialise.kmeans(X, 20)), (X, Y), progress=False)
    assert result.model.layers[0].num_features == 20
    assert result.bound > direct.bound - 0.005 * 300


def test_sizes_that_gain_little_are_left_out_and_seconds_allow_more_points():
    """An iteration takes N M² / 8·10⁹ seconds, and fifty of them half of the time."""
    assert growing._sizes(256, 2048, 1e9) == [256, 1024, 2048]
    assert growing._sizes(256, 2048, 1100.0) == [256, 1024]
    assert growing._sizes(256, 2048, 300.0) == [256]
    assert growing._sizes(256, 200, 1e9) == [200] and growing._sizes(256, 2048, 90.0) == []


def test_no_more_points_than_distinct_inputs(small):
    repeated = np.repeat(X[:12], 20)
    result = ig.grow(model(), (repeated, np.cos(repeated) + 0.1 * RNG.standard_normal(240)), progress=False)
    assert result.model.layers[0].num_features <= 12


def test_exact_with_repeated_rows():
    """Without repeated rows, a part of these labels has no noise, and its covariance is singular for all rows."""
    twice = np.concatenate([X[:60], X[:60]])
    result = ig.grow(model(), (twice, np.sin(twice)), progress=False)
    assert np.isfinite(result.bound) and result.model.layers[0].num_features == 60
    np.testing.assert_allclose(result.model.predict(X[:60]).mean[:, 0], np.sin(X[:60]), atol=1e-3)


@pytest.mark.parametrize(("function", "end"), [(np.sin, 1.0), (np.exp, 1.0), (lambda x: x**3, 2.0)])
def test_labels_without_noise(function, end):
    """Rounding errors must not exceed the predicted standard deviations, which come from the jitter."""
    x, new = np.linspace(0.0, end, 40), np.linspace(0.0, end, 77)
    prediction = ig.grow(model(), (x, function(x)), progress=False).model.predict(new)
    error = np.abs(np.asarray(prediction.mean)[:, 0] - function(new))
    assert error.max() < 2.0 * np.sqrt(np.asarray(prediction.variance)).max() < 0.02 * np.ptp(function(x))


def test_other_likelihoods_and_budgets():
    y = (np.sin(2.0 * X) > 0.0).astype(float)
    key = jax.random.key(1)
    result = ig.grow(model(ig.likelihoods.Bernoulli()), (X, y), most=20, seconds=20, progress=False, key=key)
    assert result.model.layers[0].num_features == 20
    assert np.mean((np.asarray(result.model.predict(X).probabilities).reshape(300, -1)[:, -1] > 0.5) == y) > 0.97


def switching(frequency):
    """Two classes that alternate along x, with some noise."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0.0, 6.0, 400))
    return x, (np.sin(frequency * x) + 0.3 * rng.standard_normal(400) > 0.0).astype(float)


def grown(monkeypatch, data):
    for name, value in {"FEWER": 10, "QUICK": 400 * 10**2, "SLOW": 400 * 40**2}.items():
        monkeypatch.setattr(growing, name, value)
    return ig.grow(model(ig.likelihoods.Bernoulli()), data, progress=False)


def test_other_likelihoods_grow_by_the_bound_and_held_out_rows(monkeypatch):
    """Ten points cannot follow nine periods."""
    data = switching(9.0)
    result = grown(monkeypatch, data)
    assert result.model.layers[0].num_features == 40
    assert "log density of each of 40 held-out rows: " in result.message and "with 10, " in result.message
    start = model(ig.likelihoods.Bernoulli(), ig.initialise.kmeans(data[0], 40))
    direct = ig.fit(start, data, progress=False, **growing.RATES)
    assert result.bound > direct.bound - 0.01 * 400  # never worse than the final number from the start


def test_few_points_are_kept_where_more_gain_nothing(monkeypatch):
    assert grown(monkeypatch, switching(1.0)).model.layers[0].num_features == 10


def test_other_models_and_limits_are_refused(unchecked):
    deep = ig.Model([model().layers[0], model().layers[0]], ig.likelihoods.Gaussian())
    with pytest.raises(TypeError, match=r"train other models by ig\.fit"):
        ig.grow(deep, (X, Y))
    with pytest.raises(ValueError, match="gain must be a number, got 'small'"):
        ig.grow(model(), (X, Y), gain="small")
    with pytest.raises(ValueError, match="seconds must be a number greater than 0, got 0"):
        ig.grow(model(), (X, Y), seconds=0)


def test_centres_ignore_columns_with_long_lengthscales():
    both = np.stack([X, 1e3 * RNG.standard_normal(300)], axis=1)
    centres = np.sort(np.asarray(ig.initialise.kmeans(both, 6, lengthscales=[1.0, 1e9]))[:, 0])
    alone = np.sort(np.asarray(ig.initialise.kmeans(X, 6))[:, 0])
    np.testing.assert_allclose(centres, alone, atol=0.3)
