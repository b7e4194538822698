"""Estimators in scikit-learn's own tools, and against the models that they wrap."""

import copy
import pickle
import re

import equinox as eqx
import jax
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import inducing as ig
from inducing.sklearn import GPClassifier, GPRegressor
from inducing.tables import Encoder
from inducing.training import automatic, monitor

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


CHEAP = {"num_inducing": 20, "steps": 3, "progress": False}


SOME = {
    "check_dont_overwrite_parameters",
    "check_estimators_nan_inf",
    "check_estimators_partial_fit_n_features",
    "check_estimators_pickle",
    "check_n_features_in",
    "check_requires_y_none",
    "check_sample_weight_equivalence_on_dense_data",
    "check_supervised_y_no_nan",
}
estimators = pytest.mark.parametrize(
    "estimator", [GPRegressor(**CHEAP), GPClassifier(**CHEAP)], ids=["regressor", "classifier"]
)


@pytest.mark.filterwarnings("ignore")  # of scikit-learn's own data, such as labels that are all equal
@estimators
def test_some_of_scikit_learns_checks(estimator, unchecked):
    """Those that look at most of what a fit does."""
    for one, check in estimator_checks_generator(estimator):
        if check.func.__name__ in SOME:
            check(one)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@estimators
def test_scikit_learns_checks(estimator, unchecked):
    """All of them, weights that stand for repeated rows included."""
    done = check_estimator(estimator, on_fail=None, on_skip=None)
    assert [(r["check_name"], str(r["exception"])) for r in done if r["status"] == "failed"] == []
    assert {r["check_name"] for r in done if r["status"] == "skipped"} <= {"check_array_api_input"}  # needs torch
    names = {r["check_name"] for r in done}
    assert {"check_sample_weight_equivalence_on_dense_data", "check_estimators_partial_fit_n_features"} <= names


@pytest.fixture(scope="module")
def regressor():
    return GPRegressor(num_inducing=12, steps=40).fit(pd.DataFrame(X, columns=["a", "b"]), Y)


@pytest.fixture(scope="module")
def classifier():
    return GPClassifier(num_inducing=8, steps=20).fit(X, np.where(Y > 0.0, "yes", "no"))


FRAME = pd.DataFrame(X[:5] + 0.1, columns=["a", "b"])


def test_covariances_intervals_quantiles_and_samples_agree(regressor):
    mean, std = regressor.predict(FRAME, return_std=True)
    other, cov = regressor.predict(FRAME, return_cov=True)
    np.testing.assert_allclose(other, mean, rtol=1e-10)
    np.testing.assert_allclose(np.diag(cov), std**2, rtol=1e-8)
    low, high = regressor.predict_interval(FRAME, level=0.5)
    np.testing.assert_allclose((low, high), (mean - 0.67448975 * std, mean + 0.67448975 * std), rtol=1e-6)
    quantiles = regressor.predict_quantiles(FRAME, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quantiles, np.stack([low, mean, high], axis=1), rtol=1e-6)
    samples = regressor.sample_y(FRAME, 4000, random_state=1)
    assert samples.shape == (5, 4000)
    np.testing.assert_array_less(abs(samples.mean(axis=1) - mean), 5 * std / 4000**0.5)
    correlation = cov / np.outer(std, std)
    np.testing.assert_allclose(np.corrcoef(samples), correlation, atol=5 / 4000**0.5)
    density = np.mean(-0.5 * ((Y[:5] - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(regressor.score_log_density(FRAME, Y[:5]), density, rtol=1e-8)
    with pytest.raises(ValueError, match="return_std and return_cov exclude each other"):
        regressor.predict(FRAME, return_std=True, return_cov=True)


def test_covariances_of_several_outputs_and_of_other_noise():
    both = GPRegressor(num_inducing=8, steps=5).fit(X, np.stack([Y, 3.0 * X[:, 0]], axis=1))
    mean, std = both.predict(X[:4], return_std=True)
    cov = both.predict(X[:4], return_cov=True)[1]
    assert cov.shape == (4, 4, 2) and both.sample_y(X[:4], 3).shape == (4, 2, 3)
    np.testing.assert_allclose(np.einsum("iip->ip", cov), std**2, rtol=1e-8)
    assert both.predict_quantiles(X[:4], 0.5).shape == (4, 2, 1) and both.predict_interval(X[:4])[0].shape == (4, 2)
    np.testing.assert_allclose(both.predict_quantiles(X[:4], 0.5)[..., 0], mean, rtol=1e-6)
    heavy = GPRegressor(num_inducing=5, steps=3, likelihood=ig.likelihoods.StudentT()).fit(X, Y)
    with pytest.raises(ValueError, match="return_cov needs Gaussian noise, not a StudentT; use sample_y"):
        heavy.predict(X[:4], return_cov=True)


def test_missing_labels_are_left_out():
    gaps = np.where(np.arange(60) % 3 == 0, np.nan, Y)
    seen = ~np.isnan(gaps)
    Z = ig.kernels.SquaredExponential([1.0, 1.0])
    some = GPRegressor(Z, num_inducing=80, steps=10).fit(X, gaps)
    result = ig.log_evidence(some.model_, (X[seen], Y[seen]))
    np.testing.assert_allclose(some.result_.bound, result, atol=0.05)  # one point for each row: nearly exact
    one_of_two = GPRegressor(num_inducing=8, steps=3).fit(X, np.stack([Y, gaps], axis=1))
    assert np.isfinite(one_of_two.predict(X)).all()


def test_samples_and_scores_of_classes(classifier):
    p = classifier.predict_proba(X)
    samples = classifier.sample_y(X, 2000)
    assert samples.shape == (60, 2000) and set(np.unique(samples)) == {"no", "yes"}
    error = 5 * np.sqrt(p[:, 1] * p[:, 0] / 2000) + 1e-3
    np.testing.assert_array_less(abs((samples == "yes").mean(axis=1) - p[:, 1]), error)
    y = np.where(Y > 0.0, "yes", "no")
    density = np.log(np.where(y == "yes", p[:, 1], p[:, 0])).mean()
    np.testing.assert_allclose(classifier.score_log_density(X, y), density, rtol=1e-6)


def test_weights_of_classes_are_weights_of_rows():
    y = np.where(Y > 0.0, "yes", "no")
    by_class = GPClassifier(**CHEAP, class_weight={"yes": 3.0, "no": 0.5}).fit(X, y, np.full(60, 2.0))
    by_row = GPClassifier(**CHEAP).fit(X, y, np.where(Y > 0.0, 6.0, 1.0))
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    balanced = GPClassifier(**CHEAP, class_weight="balanced").fit(X, y)
    assert abs(balanced.predict_proba(X) - by_row.predict_proba(X)).max() > 1e-3


def test_partial_fits_are_one_update_of_all_rows():
    """Exact for Gaussian noise, with the inducing points and parameters of the first rows."""
    first = GPRegressor(num_inducing=15, steps=40).fit(X[:30], Y[:30])
    again = GPRegressor(num_inducing=15, steps=40).partial_fit(X[:30], Y[:30])
    np.testing.assert_array_equal(again.predict(X), first.predict(X))
    again.partial_fit(X[30:45], Y[30:45]).partial_fit(X[45:], Y[45:], np.full(15, 2.0))
    weights = np.repeat([1.0, 2.0], [45, 15])
    at_once = eqx.filter_jit(ig.collapse)(first.model_, ig.Data(X, Y, weight=weights))
    np.testing.assert_allclose(again.predict(X), at_once.predict(X).mean[:, 0], atol=1e-6)
    names = np.where(Y > 0.0, "yes", "no")
    online = GPClassifier(num_inducing=8, steps=20).partial_fit(X[:20], names[:20], classes=["maybe", "no", "yes"])
    assert online.predict_proba(X).shape == (60, 3)
    before = online.score_log_density(X[20:], names[20:])
    assert online.partial_fit(X[20:], names[20:]).score_log_density(X[20:], names[20:]) > before
    with pytest.raises(ValueError, match="which is not a class of the fit"):
        online.partial_fit(X[:2], ["no", "never"])


def same(one, other):
    assert type(one) is type(other) and str(one.get_params()) == str(other.get_params())
    for a, b in zip(jax.tree.leaves(one.model_), jax.tree.leaves(other.model_), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    assert one.result_.message == other.result_.message and one.result_.bound == other.result_.bound
    np.testing.assert_array_equal(one.result_.history.bound, other.result_.history.bound)


@pytest.mark.parametrize("x64", [True, False])
def test_estimators_come_back_from_files_and_pickles(regressor, classifier, tmp_path, x64):
    """In their own precision, whatever the flag says."""
    for estimator in (regressor, classifier):
        rows = FRAME if estimator is regressor else FRAME.to_numpy()
        expected = estimator.predict(rows)
        with jax.enable_x64(x64):
            estimator.save(tmp_path / "e.ig")
            joblib.dump(estimator, tmp_path / "e.joblib")
            for again in (
                type(estimator).load(tmp_path / "e.ig"),
                ig.load(tmp_path / "e.ig", parts=[type(estimator)]),
                joblib.load(tmp_path / "e.joblib"),
                pickle.loads(pickle.dumps(estimator)),
                copy.deepcopy(estimator),
            ):
                same(again, estimator)
                np.testing.assert_array_equal(again.predict(rows), expected)
                assert again.predict(rows).dtype == expected.dtype
    assert list(GPRegressor.load(save(regressor, tmp_path)).feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match=r"e\.ig: it holds a GPRegressor; load it by GPRegressor\.load"):
        ig.load(save(regressor, tmp_path))
    with pytest.raises(ValueError, match=r"e\.ig: it holds a GPRegressor; load it by GPRegressor"):
        GPClassifier.load(tmp_path / "e.ig")


def save(estimator, folder):
    ig.save(folder / "e.ig", estimator)
    return folder / "e.ig"


def test_settings_are_saved_too_and_unusual_ones_refused(tmp_path):
    kernel = ig.kernels.Matern32(2.0)
    unfitted = GPClassifier(kernel, class_weight={0: 1.5, 1: 2.0}, seconds=3)
    again = GPClassifier.load(save(unfitted, tmp_path))
    assert again.get_params()["class_weight"] == {0: 1.5, 1: 2.0} and again.seconds == 3
    assert float(again.kernel.lengthscale) == 2.0 and not hasattr(again, "model_")
    with pytest.raises(TypeError, match=r"settings\.random_state is a RandomState, which ig.save cannot write"):
        save(GPRegressor(random_state=np.random.RandomState(0)), tmp_path)
    with pytest.raises(ValueError, match=r"e\.ig"):  # a class that cannot be stored in this way
        ig.load(tmp_path / "e.ig", parts=[type("GPClassifier", (), {})])


def test_weights_are_routed():
    with config_context(enable_metadata_routing=True):
        estimator = GPRegressor(**CHEAP).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), estimator).fit(
            X, Y, sample_weight=np.arange(60.0)
        )
    alone = GPRegressor(**CHEAP).fit(StandardScaler().fit_transform(X), Y, np.arange(60.0))
    np.testing.assert_allclose(pipeline.predict(X), alone.predict(StandardScaler().fit_transform(X)))


def test_a_bar_appears_in_a_terminal_alone_and_late(capsys, monkeypatch):
    GPRegressor(num_inducing=5, steps=3).fit(X, Y)
    assert capsys.readouterr().err == ""
    shown = []
    monkeypatch.setattr("tqdm.auto.tqdm.__init__", lambda self, *args, **options: shown.append(options))
    monitor._bar(10, "fit", "auto")
    monitor._bar(10, "fit", True)
    assert (shown[0]["delay"], shown[0]["disable"]) == (5.0, None) and "delay" not in shown[1]


def test_summaries_and_plots_take_estimators(classifier, regressor):
    assert str(ig.summary(classifier)) == str(ig.summary(classifier.model_))
    y = np.where(Y > 0.0, "yes", "no")
    with jax.enable_x64(False):  # labels as users give them, in the estimator's precision
        ax = ig.report.plot_classification(classifier, (X, y), size=5)
    assert sum(len(c.get_offsets()) for c in ax.collections if hasattr(c, "get_offsets")) >= 60
    assert ig.report.relevance(regressor, FRAME.to_numpy(), num=16).total.shape == (2, 1)
    with pytest.raises(NotFittedError):
        ig.summary(GPClassifier())


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


@pytest.mark.slow
def test_kernels_of_classes_are_compared_by_held_out_rows(monkeypatch):
    """A sum of functions of single columns, and a product of all."""
    monkeypatch.setattr(automatic, "TRIALS", (("Matern52",), ("Matern52", "Additive")))
    rng = np.random.default_rng(4)
    many = rng.uniform(-1.0, 1.0, (600, 5))
    names = np.where(np.sin(4.0 * many).sum(axis=1) + 0.3 * rng.normal(size=600) > 0.0, "yes", "no")
    settings = {"num_inducing": 40, "steps": 100}
    chosen = GPClassifier(kernel="auto", **settings).fit(many[:400], names[:400])
    alone = GPClassifier(**settings).fit(many[:400], names[:400])
    assert re.match(
        r"kernel Matern52 \+ Additive: .* nats for each of \d+ held-out labels \(Matern52 ", chosen.result_.message
    )
    density = [e.score_log_density(many[400:], names[400:]) for e in (chosen, alone)]
    assert density[0] > density[1] + 0.02


def test_what_cannot_be_compared_is_said(monkeypatch):
    """Where each kernel fails, the message says which is used."""

    def fails(*args):
        raise FloatingPointError

    monkeypatch.setattr(automatic, "search_kernel", fails)
    message = GPRegressor(kernel="auto", num_inducing=3, steps=2).fit(X, Y).result_.message
    assert message.startswith("kernel Matern52, compared with no other because the labels have hardly any noise; ")


def mixed(rows, seed=0):
    """A frame with a gap, an identifier, categories and dates; labels depend on all but the identifier."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.uniform(0.0, 3.0, rows),
            "id": rng.permutation(rows),
            "town": rng.choice(["Bonn", "Oslo", "Rome"], rows),
            "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, rows), "D"),
        }
    )
    days = (frame.day - pd.Timestamp("2020-01-01")).dt.days
    y = np.sin(frame.x) + (frame.town == "Oslo") + 0.01 * days
    frame.loc[3, "x"] = np.nan
    return frame, y.to_numpy()


def test_frames_of_text_and_dates_are_encoded_as_tables_are(tmp_path):
    frame, y = mixed(60)
    estimator = GPRegressor(num_inducing=20, steps=30).fit(frame[:50], y[:50])
    encoder = Encoder.decide(frame[:50])
    alone = GPRegressor(num_inducing=20, steps=30).fit(encoder.encode(frame[:50]).X, y[:50])
    expected = alone.predict(encoder.encode(frame[50:]).X)
    np.testing.assert_array_equal(estimator.predict(frame[50:]), expected)
    np.testing.assert_array_equal(estimator.predict(pl.from_pandas(frame[50:])), expected)
    assert estimator.encoder_ == encoder and alone.encoder_ is None
    assert estimator.n_features_in_ == 4 and list(estimator.feature_names_in_) == ["x", "id", "town", "day"]
    shares = estimator.feature_importances_
    assert shares.shape == (4,) and shares[1] == 0.0 and shares.min() >= 0.0 and shares.sum() == pytest.approx(1.0)
    again = GPRegressor.load(save(estimator, tmp_path))
    assert again.encoder_ == encoder
    np.testing.assert_array_equal(again.predict(frame[50:]), expected)
    estimator.partial_fit(frame[50:], y[50:])
    assert np.isfinite(estimator.predict(frame)).all()


def test_frames_in_pipelines_and_scores():
    frame, y = mixed(60)
    frame["kind"] = pd.Categorical(np.where(frame.index % 2 == 0, 4, 8))
    pipeline = make_pipeline("passthrough", GPClassifier(num_inducing=10, steps=10))
    assert cross_val_score(pipeline, frame, np.where(y > 1.7, "dear", "cheap"), cv=2).min() > 0.6
    fitted = clone(pipeline).fit(frame, y > 1.7)[-1]
    assert {"kind = 4", "kind = 8", "town = Oslo", "x is missing"} <= set(fitted.encoder_.names)
    assert fitted.predict_proba(frame[:5]).shape == (5, 2)


def test_frames_that_do_not_fit_are_refused():
    frame, y = mixed(30)
    estimator = GPRegressor(num_inducing=5, steps=2).fit(frame, y)
    wrong = frame.astype({"x": object})
    wrong.loc[2, "x"] = "large"
    with pytest.raises(
        ValueError, match=r"1 of 30 rows cannot be used: column 'x': 1 cell is not a number \(first in row 3"
    ):
        estimator.predict(wrong)
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(frame[["id", "x", "town", "day"]])
    with (
        pytest.raises((TypeError, ValueError), match="must be a pandas or polars DataFrame"),
        pytest.warns(UserWarning),
    ):
        estimator.predict(frame.to_numpy())
    new = frame[:3].assign(town="Paris")
    with pytest.warns(UserWarning, match="'town': 3 cells have a value that is rare or absent in the training rows"):
        estimator.predict(new)
    with pytest.raises(ValueError, match="NaN"):  # frames of numbers alone are used as they are
        GPRegressor(num_inducing=5, steps=2).fit(X, Y).predict(np.full((1, 2), np.nan))


def test_many_categories_of_a_frame_are_embedded():
    frame, y = mixed(120)
    frame["town"] = [f"town {i % 12:02d}" for i in range(120)]
    kernel = GPRegressor(num_inducing=5, steps=2).fit(frame, y).model_.layers[0].prior.kernels[0]
    assert "Warped" in str(kernel)
