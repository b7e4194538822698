"""Which inputs matter: Sobol indices with closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.report.relevance import mean_prediction

UNIFORM = np.random.default_rng(0).uniform(size=(4000, 3))


def of_function(f, likelihood=None):
    return ig.Model(ig.Deterministic(f), likelihood or ig.likelihoods.Gaussian(0.1))


def close(value, error, truth, slack):
    """Within five standard errors and the difference between the rows' distribution and the uniform one."""
    np.testing.assert_array_less(np.abs(value[:, 0] - truth), 5 * error[:, 0] + slack)


def test_ishigami():
    """Closed forms of Ishigami & Homma (1990) with a = 7, b = 0.1: two columns act only together."""
    x = 2 * np.pi * (np.arange(3000) + 0.5)[:, None] / 3000 - np.pi
    X = np.concatenate([x, np.random.default_rng(1).permutation(x), np.random.default_rng(2).permutation(x)], axis=1)
    model = of_function(lambda x: jnp.sin(x[:1]) + 7 * jnp.sin(x[1:2]) ** 2 + 0.1 * x[2:] ** 4 * jnp.sin(x[:1]))
    a, b, pi4 = 7.0, 0.1, np.pi**4
    V = a**2 / 8 + b * pi4 / 5 + b**2 * pi4**2 / 18 + 0.5
    V1, V2, V13 = 0.5 * (1 + b * pi4 / 5) ** 2, a**2 / 8, b**2 * pi4**2 * (1 / 18 - 1 / 50)
    found = ig.report.relevance(model, X, num=4096)
    close(found.main, found.main_error, np.array([V1, V2, 0.0]) / V, 1e-4)
    close(found.total, found.total_error, np.array([V1 + V13, V2, V13]) / V, 1e-4)
    assert found.main_error.max() < 0.02 and found.total_error.max() < 0.02
    assert found.order.tolist() == np.argsort(-found.total[:, 0]).tolist()


def test_standard_errors_are_those_of_repetitions():
    """Over 20 seeds estimates spread as their standard errors say, within a factor that chance explains."""
    model = of_function(lambda x: x[:1] * x[1:2] + x[2:])
    found = [ig.report.relevance(model, UNIFORM, num=256, seed=seed) for seed in range(20)]
    for kind in ("main", "total"):
        spread = np.std([getattr(f, kind) for f in found], axis=0, ddof=1)[:2]
        stated = np.mean([getattr(f, f"{kind}_error") for f in found], axis=0)[:2]
        assert (stated / spread > 0.4).all() and (stated / spread < 2.5).all()


def test_columns_that_do_not_matter_have_no_total_effect():
    found = ig.report.relevance(of_function(lambda x: jnp.exp(x[:1])), UNIFORM, ["a", "b", "c"], num=2**15)
    np.testing.assert_allclose(found.total[:, 0], [1.0, 0.0, 0.0], atol=1e-3)
    assert found.total[1:].max() == 0.0
    np.testing.assert_allclose(found.share, [1.0, 0.0, 0.0])


def test_inputs_of_one_column_move_together():
    """f = 1 for the first of three categories: alone, it explains everything; apart, its inputs would not."""
    category = np.random.default_rng(0).integers(3, size=500)
    X = np.concatenate([np.eye(3)[category], UNIFORM[:500, :1]], axis=1)
    model = of_function(lambda x: x[:1] * (1 - x[1:2]) * (1 - x[2:3]))
    found = ig.report.relevance(model, X, {"category": (0, 1, 2), "number": 3})
    assert found.names == ("category", "number")
    np.testing.assert_allclose(found.main[:, 0], [1.0, 0.0], atol=0.01)
    np.testing.assert_allclose(found.total[:, 0], [1.0, 0.0], atol=0.01)


def test_several_outputs_have_their_own_effects():
    found = ig.report.relevance(of_function(lambda x: jnp.stack([x[0] + 2 * x[1], x[2]])), UNIFORM)
    np.testing.assert_allclose(found.total.T, [[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]], atol=0.02)
    np.testing.assert_allclose(found.share, [0.1, 0.4, 0.5], atol=0.02)
    assert "total y[1]" in str(found)


def test_classes_count_by_their_probabilities():
    """Of two classes both probabilities vary alike, so that their sum has the index of one."""
    model = of_function(lambda x: 0.3 * x[:1] + 0.6 * x[1:2], ig.likelihoods.Bernoulli())
    p = np.asarray(model.predict(UNIFORM).probabilities)[:, 1]
    found = ig.report.relevance(model, UNIFORM, num=4096)
    design = np.concatenate([np.ones((4000, 1)), UNIFORM], axis=1)  # nearly linear in this range
    slope = np.linalg.lstsq(design, p)[0][1:]
    np.testing.assert_allclose(found.main[:, 0], slope**2 / np.sum(slope**2), atol=0.02)


def test_three_classes():
    model = of_function(lambda x: jnp.stack([5 * x[0], -5 * x[0], 0 * x[1]]), ig.likelihoods.Softmax(3))
    found = ig.report.relevance(model, UNIFORM[:200], num=512)
    close(found.total, found.total_error, np.array([1.0, 0.0, 0.0]), 1e-12)
    close(found.main, found.main_error, np.array([1.0, 0.0, 0.0]), 1e-12)
    assert found.total_error[0, 0] < 0.02


def gp(P=1, likelihood=None):
    rng = np.random.default_rng(0)
    prior = ig.GP(ig.kernels.Matern52([0.5, 1.0])) if P == 1 else ig.priors.Independent(ig.kernels.Matern52(), P)
    layer = ig.SparseGP(prior, ig.features.InducingPoints(rng.uniform(size=(5, 2))), mean=rng.normal(size=(P, 5)))
    return ig.Model(layer, likelihood or ig.likelihoods.Gaussian(0.1))


def test_mean_predictions_without_variances_are_those_of_predict():
    for model in (gp(), gp(2), gp(likelihood=ig.likelihoods.Poisson())):
        expected = np.asarray(model.predict(UNIFORM[:50, :2]).mean)[..., None]
        np.testing.assert_allclose(mean_prediction(model, UNIFORM[:50, :2]), expected, rtol=1e-10)


def test_deep_models_use_the_same_samples_for_all_predictions():
    """A column that the model does not see has no effect, although inner layers are sampled."""
    inner = ig.SparseGP(ig.GP(ig.kernels.ActiveDims(ig.kernels.Matern52(), 0)), ig.features.InducingPoints(np.eye(2)))
    outer = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]), mean=[[1.0, -1.0]])
    found = ig.report.relevance(ig.Model([inner, outer], ig.likelihoods.Gaussian(0.1)), UNIFORM[:50, :2], num=64)
    assert found.total[1, 0] == 0.0 and found.lengthscale[0] == 1.0 and np.isnan(found.lengthscale[1])


def test_constant_predictions():
    found = ig.report.relevance(of_function(lambda x: jnp.ones(1)), UNIFORM[:20], num=16)
    assert (found.total == 0).all() and (found.share == 0).all()


def test_lengthscales_beside_the_effects():
    found = ig.report.relevance(gp(), UNIFORM[:, :2], ["a", "b"], num=64)
    assert found.lengthscale.tolist() == [0.5, 1.0]
    assert str(found).splitlines()[0].split() == ["column", "main", "total", "lengthscale"]


def test_lengthscales_of_warped_inputs_are_unknown():
    """They are in the units of what the kernel inside sees."""
    kernel = ig.kernels.Warped(ig.kernels.Matern52(2.0), lambda x: 10.0 * x)
    assert np.isnan(kernel.lengthscale_along(0))
    assert (kernel * ig.kernels.ActiveDims(ig.kernels.Matern52(3.0), 1)).lengthscale_along(1) == 3.0


def test_summary_with_data_says_which_columns_matter():
    text = str(ig.summary(gp(), (UNIFORM[:, :2], None), ["length", "width"]))
    assert "Model: " in text and "length" in text.split("\n\n")[1]
    assert ig.summary(gp()).relevance is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "a name for each of the 2 columns"),
        ("ab", "a name for each of the 2 columns"),
        (["a", "a"], "must be unique"),
        ({"a": 0}, r"got numbers \[0\]"),
        ({"a": 0, "b": (0, 1)}, r"got numbers \[0, 0, 1\]"),
    ],
)
def test_wrong_names_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        ig.report.relevance(gp(), UNIFORM[:, :2], names)


def test_the_plot_shows_the_most_relevant_columns_first():
    import matplotlib.pyplot as plt

    found = ig.report.relevance(of_function(lambda x: x[:1] + 2 * x[1:2]), UNIFORM, ["$a", "b", "c"])
    ax = ig.report.plot_relevance(found, most=2)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b", "$a"]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches[2:]], found.total[[1, 0], 0])
    with pytest.raises(ValueError, match="output must be"):
        ig.report.plot_relevance(found, output=1)
    with pytest.raises(TypeError, match="relevance must be"):
        ig.report.plot_relevance(gp())
    plt.close("all")


def test_estimators_have_feature_importances():
    from inducing.sklearn import GPClassifier, GPRegressor

    X = UNIFORM[:60, :2]
    regressor = GPRegressor(num_inducing=5, steps=5).fit(X, X[:, 0])
    share = regressor.feature_importances_
    assert share.shape == (2,) and share[0] > share[1] >= 0
    np.testing.assert_allclose(share.sum(), 1.0)
    np.testing.assert_allclose(share, ig.report.relevance(regressor.model_, X).share, atol=0.02)
    classifier = GPClassifier(num_inducing=5, steps=5).fit(X, X[:, 1] > 0.5)
    assert classifier.feature_importances_.argmax() == 1
    assert jax.config.jax_enable_x64
