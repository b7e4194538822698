"""The table of a model, and its pictures."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.parameters import Module, fixed
from inducing.training.fit import FitResult
from inducing.training.monitor import History

Z = np.linspace(0.0, 1.0, 4)[:, None]


def regression():
    return ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian())


def test_rows():
    rows = {row.name: row for row in ig.summary(regression()).rows}
    row = rows["layers[0].prior.kernel.lengthscale"]
    assert (row.shape, row.constraint, row.value) == ("scalar", "positive", "1")
    assert rows["layers[0].features.Z"].shape == "[4, 1]"
    assert rows["layers[0].root"].value == "identity"
    assert rows["likelihood.variance"].constraint == "positive"


def test_number_of_parameters():
    """lengthscale, variance, noise; Z [4, 1], mean [1, 4], and the lower triangle of a 4 × 4 root."""
    summary = ig.summary(regression())
    assert summary.num_trained == 3 + 4 + 4 + 10
    assert str(summary).splitlines()[-1] == "Model: 21 parameters"


def test_tied_and_fixed_parameters_are_said_to_be_so():
    class Pair(Module):
        first: ig.kernels.Matern52
        second: ig.kernels.Matern52
        constant: jnp.ndarray = fixed(2.0)

    kernel = ig.kernels.Matern52([1.0, 2.0])
    summary = ig.summary(Pair(kernel, kernel))
    assert summary.num_trained == 3 and summary.num_fixed == 1
    assert [row.constraint for row in summary.rows] == [
        "positive",
        "positive",
        "tied to first.lengthscale",
        "tied to first.variance",
        "fixed",
    ]


def test_any_module():
    assert "layers[0].weight" in str(ig.summary(eqx.nn.MLP(1, 1, 2, 1, key=jax.random.key(0))))


def test_the_result_of_a_fit_is_no_model():
    """Its history had been counted among the parameters."""
    with pytest.raises(TypeError, match=r"got FitResult; after a fit, pass result.model"):
        ig.summary(FitResult(regression(), History(*np.zeros((3, 1))), "", "adam", 0.0))


def test_lines_are_aligned():
    lines = str(ig.summary(regression())).splitlines()
    column = lines[0].index("constraint")
    assert all(line[column - 2 : column] == "  " and line[column] != " " for line in lines[:-1])


@pytest.fixture
def axes():
    import matplotlib.pyplot as plt

    yield plt.subplots()[1]
    plt.close("all")


def test_plot_posterior(axes):
    """The band of y is that of the predictive distribution, where it is drawn."""
    data = (np.linspace(0, 1, 5), np.zeros(5))
    ax = ig.report.plot_posterior(regression(), data, X=[0.0, 0.5, 1.0], draws=1, ax=axes)
    assert ax is axes
    low, high = regression().predict([0.0, 0.5, 1.0]).interval()
    vertices = ax.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(vertices[:, 1].max(), high.max(), rtol=1e-6)
    np.testing.assert_allclose(vertices[:, 1].min(), low.min(), rtol=1e-6)
    names = {text.get_text() for text in ax.get_legend().get_texts()}
    assert names == {"95% of y", "95% of f", "draws of f", "mean", "data", "inducing inputs"}


def test_plot_posterior_of_samples_is_smooth(axes):
    """y = h + noise with h ~ N(0, 1), so that the mean is 0 everywhere: within five standard errors of 500 samples."""
    latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(jax.random.key(0), dim=1, x=1, y=1))
    model = ig.Model([latent, ig.Deterministic(lambda f: f[1:])], ig.likelihoods.Gaussian(0.1))
    ax = ig.report.plot_posterior(model, ([0.0, 1.0], [0.5, -0.5]), draws=0, ax=axes)
    assert np.abs(ax.lines[0].get_ydata()).max() < 5.0 / np.sqrt(500)


def test_plot_posterior_says_which_output(axes):
    prior = ig.priors.Independent(ig.kernels.Matern52(), 2)
    model = ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian(0.1))
    assert ig.report.plot_posterior(model, X=[0.0, 1.0], output=1, draws=0, ax=axes).get_ylabel() == "y[1]"


def test_plot_posterior_of_classes(axes):
    """The lines are probabilities, not the mean of class numbers; each datum is a dot of its class."""
    prior = ig.priors.Independent(ig.kernels.Matern52(), 3)
    gp = ig.SparseGP(prior, ig.features.InducingPoints(Z), mean=np.eye(3, 4))
    model, x = ig.Model(gp, ig.likelihoods.Softmax(3)), [0.0, 0.5, 1.0]
    labels = [0.0, 2.0, 1.0, np.nan, 2.0]
    ax = ig.report.plot_posterior(model, (np.linspace(0, 1, 5), labels), X=x, ax=axes)
    lines = np.stack([line.get_ydata() for line in ax.lines[:3]], axis=1)
    np.testing.assert_allclose(lines, model.predict(x).probabilities)
    assert [len(dots.get_offsets()) for dots in ax.collections] == [1, 1, 2]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["class 0", "class 1", "class 2", "inducing inputs"]


def test_plot_classification(axes):
    """Binary and multi-class maps draw the boundary and the data."""
    X = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    features = ig.features.InducingPoints(X[:4])
    binary = ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern52()), features), ig.likelihoods.Bernoulli())
    ig.report.plot_classification(binary, (X, X[:, 0] > 0), size=8, ax=axes)
    seen = ig.Data(X, X[:, 0] > 0, mask=np.arange(20) < 5)
    dots = ig.report.plot_classification(binary, seen, size=8).collections
    assert sum(len(c.get_offsets()) for c in dots if type(c).__name__ == "PathCollection") == 5
    image = np.asarray(axes.images[0].get_array())
    assert image.shape == (8, 8, 3) and image.min() >= 0 and image.max() <= 1
    prior = ig.priors.Independent(ig.kernels.Matern52(), 3)
    several = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Softmax(3))
    ax = ig.report.plot_classification(several, (X, np.arange(20) % 3), size=8)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["class 0", "class 1", "class 2", "inducing inputs"]
    along = np.stack([X[:, 0], np.ones(20)], axis=1)  # a column that does not vary has a margin too
    assert ig.report.plot_classification(binary, ig.Data(along), size=8).get_ylim() == (0.0, 2.0)


def test_plot_calibration(axes):
    """Labels from the predictive distribution itself lie in the band; too narrow predictions do not."""
    x = np.linspace(0, 1, 400)
    pred = regression().predict(x)
    y = pred.sample(jax.random.key(0))
    for labels, inside in ((y, True), (3 * y, False)):
        axes.clear()
        ig.report.plot_calibration(pred, labels, ax=axes)
        level, share = axes.lines[0].get_data()
        excess = np.abs(share - level) > 4 * np.sqrt(level * (1 - level) / 400) + 0.01
        assert excess.any() != inside


def test_plot_calibration_of_numbers_beside_rare_counts(axes):
    """Of a count, the probability of the label itself is spread evenly, whatever stands in the other columns."""
    kinds = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(), ig.likelihoods.Poisson()])
    latent = jnp.tile(jnp.array([[0.0, -5.0]]), (3, 1))  # a mean of e⁻⁵: next to all counts are 0
    pred = kinds.predictive(latent, 1e-12 * jnp.ones((3, 2)))
    ig.report.plot_calibration(pred, np.tile([[-9.0, 0.0]], (3, 1)), ax=axes)
    level, share = axes.lines[0].get_data()
    zero = np.exp(-np.exp(-5.0))
    np.testing.assert_allclose(share[1:], 0.5 + 0.5 * np.clip(level / zero, 0.0, 1.0)[1:])
    with pytest.raises(ValueError, match="every label in y is missing"):
        ig.report.plot_calibration(pred, np.full((3, 2), np.nan), ax=axes)


def test_plot_calibration_of_classes(axes):
    """Yes and no from the predictive distribution itself: no S-shaped curve, although only two labels are possible."""
    latent = jnp.linspace(-2.0, 2.0, 512)[:, None]
    pred = ig.likelihoods.Bernoulli().predictive(latent, 0.3 * jnp.ones_like(latent))
    ig.report.plot_calibration(pred, pred.sample(jax.random.key(0)), ax=axes)
    level, share = axes.lines[0].get_data()
    np.testing.assert_allclose(share, level, atol=3 * 0.5 / np.sqrt(512))


def test_plot_history_shows_the_bound_itself(axes):
    """And not its distance from a number above the axis, where that is shorter."""
    bound = -3346.4 - 0.5 ** np.arange(40)
    history = History(np.arange(40), bound, np.arange(40.0))
    ax = ig.report.plot_history(FitResult(None, history, "", "adam", bound[-1]), ax=axes)
    ax.figure.canvas.draw()
    labels = [float(tick.get_text().replace("−", "-")) for tick in ax.get_yticklabels()]
    assert max(labels) < -3346.0 and ax.yaxis.get_offset_text().get_text() == ""


def test_plots_refuse_what_they_cannot_draw():
    with pytest.raises(ValueError, match="two-dimensional"):
        ig.report.plot_classification(regression(), (Z, np.ones(4)))
    with pytest.raises(ValueError, match="one-dimensional inputs, but these have 2 columns"):
        ig.report.plot_posterior(regression(), X=np.ones((3, 2)))
    with pytest.raises(ValueError, match="output must be a column number"):
        ig.report.plot_posterior(regression(), (Z, np.ones(4)), output=2)
    with pytest.raises(ValueError, match="y has 2 columns, but the model has 1 outputs"):
        ig.report.plot_posterior(regression(), (Z, np.ones((4, 2))))
    with pytest.raises(ValueError, match="two or more different inputs to plot lines, got only 1"):
        ig.report.plot_posterior(regression(), X=[1.0])
    for plot in (ig.report.plot_posterior, ig.report.plot_classification):
        with pytest.raises(ValueError, match="data must have inputs X to be plotted"):
            plot(regression(), ig.Data(None, np.ones(4)))


def test_plots_say_what_to_pass_instead():
    model = regression()
    result = FitResult(model, History(np.zeros(1), np.zeros(1), np.zeros(1)), "", "adam", 0.0)
    with pytest.raises(TypeError, match=r"result must be an ig.FitResult, which ig.fit returns, got Model"):
        ig.report.plot_history(model)
    for given in (model, result, model.posterior([0.0])):
        with pytest.raises(TypeError, match=r"pred must be predictions of labels, model.predict\(X\), got"):
            ig.report.plot_calibration(given, [0.0])


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install .inducing\[plot\]"):
        ig.report.plot_posterior(regression(), (Z, np.ones(4)))
