"""Estimators in scikit-learn's own tools, and against the models that they wrap."""

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import inducing as ig
from inducing.sklearn import GPClassifier, GPRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (60, 2))
Y = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.05 * RNG.standard_normal(60)


def test_regressor_is_the_model():
    estimator = GPRegressor(num_inducing=12, steps=40).fit(X, Y)
    mean, std = estimator.predict(X, return_std=True)
    pred = estimator.model_.predict(X)
    np.testing.assert_allclose(mean, pred.mean[:, 0], rtol=1e-12)
    np.testing.assert_allclose(std**2, pred.variance[:, 0], rtol=1e-12)
    assert estimator.score(X, Y) > 0.95 and estimator.result_.method == "collapsed"


def test_the_default_is_exact():
    estimator = GPRegressor().fit(X, Y)
    gp, noise = estimator.model_.layers[0].prior, estimator.model_.likelihood.variance
    exact = gp.condition(X, Y, noise)
    mean, std = estimator.predict(X[:7] + 0.1, return_std=True)
    np.testing.assert_allclose(mean, exact.predict(X[:7] + 0.1).mean[:, 0], atol=0.02 * std.min())  # the jitter of Kuu
    np.testing.assert_allclose(std**2, exact.predict(X[:7] + 0.1).variance[:, 0], rtol=0.01)
    np.testing.assert_allclose(estimator.result_.bound, exact.log_marginal_likelihood, rtol=1e-9)
    assert "exact" in estimator.result_.message and 0.02 < std.min() < 0.1


def test_float64_whatever_the_flag():
    """Labels with so little noise that a fit in float32 is far off."""
    quiet = np.sin(3.0 * X[:, 0]) + X[:, 1]
    there = GPRegressor().fit(X, quiet)
    with jax.enable_x64(False):
        here = GPRegressor().fit(X, quiet)
        predicted = here.predict(X)
        assert not jax.config.jax_enable_x64
    assert predicted.dtype == np.float64
    np.testing.assert_allclose(predicted, there.predict(X), rtol=1e-12)
    rough = GPRegressor(dtype="float32", num_inducing=5, steps=3).fit(X, Y)
    assert rough.predict(X).dtype == np.float32 and jax.config.jax_enable_x64


def test_several_outputs():
    estimator = GPRegressor(num_inducing=8, steps=5).fit(X, np.stack([Y + 50.0, -Y], axis=1))
    assert estimator.predict(X[:4]).shape == (4, 2)
    np.testing.assert_allclose(estimator.predict([[99.0, 99.0]]), [[50.0, 0.0]], atol=2.0)  # the level of the labels


def test_labels_far_from_zero():
    """The same fit wherever zero is, and far from the data their mean, not zero."""
    here, there = (GPRegressor(num_inducing=12, steps=60).fit(X, Y + shift) for shift in (0.0, 1e6))
    np.testing.assert_allclose(there.predict(X) - 1e6, here.predict(X), atol=1e-3)
    np.testing.assert_allclose(there.predict([[1e5, 1e5]]), 1e6, atol=2.0)
    several = GPRegressor(num_inducing=12, steps=60).fit(X, np.stack([Y, Y + 1e6], axis=1)).predict(X)
    np.testing.assert_allclose(several[:, 1] - 1e6, several[:, 0], atol=1e-2)


def test_two_functions_of_one_label():
    noisy = GPRegressor(num_inducing=8, steps=5, likelihood=ig.likelihoods.HeteroscedasticGaussian()).fit(X, Y)
    mean, std = noisy.predict(X[:3], return_std=True)
    assert mean.shape == std.shape == (3,)


def test_pipelines_searches_and_frames():
    frame = pd.DataFrame(1e3 * X, columns=["a", "b"])
    pipeline = make_pipeline(StandardScaler(), GPRegressor(num_inducing=8, steps=10))
    assert cross_val_score(pipeline, frame, Y, cv=2).min() > 0.5
    kernels = [ig.kernels.SquaredExponential(), ig.kernels.Constant()]
    search = GridSearchCV(GPRegressor(num_inducing=8, steps=10), {"kernel": kernels}, cv=2).fit(X, Y)
    assert isinstance(search.best_params_["kernel"], ig.kernels.SquaredExponential)


@pytest.mark.parametrize("centres", [2, 3])
def test_classifier(centres):
    points, labels = make_blobs(60, centers=centres, cluster_std=0.6, random_state=1)
    names = np.array(["ash", "beech", "oak"])[labels]
    estimator = GPClassifier(num_inducing=10, steps=60).fit(points, names)
    p = estimator.predict_proba(points)
    assert p.shape == (60, centres)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert estimator.score(points, names) > 0.95


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="1 class"):
        GPClassifier().fit(X, np.zeros(60))


@pytest.mark.parametrize("given, number", [(ig.likelihoods.Softmax(3), "3"), (ig.likelihoods.Gaussian(), "no")])
def test_a_likelihood_of_other_classes_is_refused(given, number):
    with pytest.raises(ValueError, match=f"likelihood is for {number} classes, but y has 2: no, yes"):
        GPClassifier(likelihood=given).fit(X, np.where(Y > 0.0, "yes", "no"))


def test_parameters_of_another_kind_are_refused():
    with pytest.raises(TypeError, match=r"must be one of ig.likelihoods such as Gaussian\(...\), got <class"):
        GPRegressor(likelihood=ig.likelihoods.StudentT).fit(X, Y)
    with pytest.raises(ValueError, match="num_inducing must be an integer of at least 1, got 0"):
        GPRegressor(num_inducing=0).fit(X, Y)
    with pytest.raises(ValueError, match="pass num_inducing=100 too"):
        GPRegressor(steps=3).fit(X, Y)
    with pytest.raises(ValueError, match="dtype must be 'float64' or 'float32', got 'half'"):
        GPRegressor(dtype="half").fit(X, Y)


@pytest.mark.parametrize("estimator", [GPRegressor(), GPClassifier()])
def test_unfitted_estimators_say_so(estimator):
    with pytest.raises(NotFittedError, match="not fitted"):
        estimator.predict(X)


def test_several_outputs_are_as_if_fitted_alone():
    """With one noise for all, noise of size 1000 in one output had been that of the other."""
    both = np.stack([Y, 1000.0 * RNG.standard_normal(60)], axis=1)
    together, alone = (GPRegressor(num_inducing=12).fit(X, labels) for labels in (both, Y))
    mean, std = together.predict(X, return_std=True)
    own_mean, own_std = alone.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 0], own_mean, atol=0.02)
    np.testing.assert_allclose(std[:, 0], own_std, rtol=0.1)
    assert std[0, 1] > 500.0


def test_equal_labels_are_warned_of():
    with pytest.warns(UserWarning, match="are equal"):
        GPRegressor(num_inducing=3, steps=3).fit(X, np.full(60, 2.0))


def louder():
    """Labels whose noise grows with x."""
    x = np.linspace(0.05, 1.0, 150)
    return x, np.sin(6.0 * x) + 0.5 * x**2 * np.random.default_rng(5).standard_normal(150)


@pytest.mark.slow
def test_the_noise_is_chosen_by_held_out_rows():
    x, y = louder()
    assert GPRegressor(num_inducing=10, steps=150, noise="auto").fit(x[:, None], y).noise_ == "heteroscedastic"


def test_noise_by_one_word():
    """Noise that grows with x; and words that do not exist."""
    x, y = louder()
    estimator = GPRegressor(num_inducing=10, steps=150, noise="heteroscedastic").fit(x[:, None], y)
    std = estimator.predict([[0.1], [1.0]], return_std=True)[1]
    assert std[1] > 3.0 * std[0]
    with pytest.raises(ValueError, match=r"noise must be 'gaussian', 'student-t', 'heteroscedastic' or 'auto'"):
        GPRegressor(noise="loud").fit(X, Y)
    with pytest.raises(ValueError, match=r"either noise or likelihood"):
        GPRegressor(noise="student-t", likelihood=ig.likelihoods.Gaussian()).fit(X, Y)


def test_two_layers():
    estimator = GPRegressor(num_layers=2, num_inducing=5, steps=3).fit(X, Y)
    assert len(estimator.model_.layers) == 2 and estimator.predict(X[:3]).shape == (3,)
    with pytest.raises(ValueError, match="kernel is for num_layers=1"):
        GPRegressor(num_layers=2, kernel=ig.kernels.Matern52()).fit(X, Y)


def test_the_kernel_is_chosen_by_evidence_and_held_out_rows():
    """A sum of functions of single columns, and a product of all."""
    rng = np.random.default_rng(3)
    many = rng.uniform(-1.0, 1.0, (150, 5))
    additive = np.sin(4.0 * many).sum(axis=1) + 0.1 * rng.standard_normal(150)
    chosen = GPRegressor().fit(many[:100], additive[:100])
    alone = GPRegressor(kernel=ig.kernels.Matern52(np.ones(5))).fit(many[:100], additive[:100])
    assert "Additive:" in chosen.result_.message
    errors = [np.mean((e.predict(many[100:]) - additive[100:]) ** 2) for e in (chosen, alone)]
    assert errors[0] < 0.5 * errors[1]
    with pytest.raises(ValueError, match=r"kernel must be one of ig\.kernels, 'auto' or None, got 'rbf'"):
        GPRegressor(kernel="rbf").fit(X, Y)
