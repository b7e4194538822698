"""Effects of columns: averages with closed forms, and bands from the joint posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

rng = np.random.default_rng(0)
X = rng.uniform(size=(60, 2))


def gp(likelihood=None, outputs=1):
    prior = ig.GP(ig.kernels.Matern52([0.5, 1.0])) if outputs == 1 else ig.priors.LMC(
        rng.normal(size=(outputs, 2)), [ig.kernels.Matern52(0.5), ig.kernels.Matern52(1.0)]
    )  # fmt: skip
    L = prior.num_latents
    root = 0.3 * np.tril(rng.normal(size=(L, 5, 5))) + 0.2 * np.eye(5)
    layer = ig.SparseGP(prior, ig.features.InducingPoints(X[:5]), mean=rng.normal(size=(L, 5)), root=root)
    return ig.Model(layer, likelihood or ig.likelihoods.Gaussian(0.1))


def test_mean_and_band_are_those_of_the_joint_posterior():
    """The average of n jointly Gaussian values, by NumPy; the band is 1.96 standard deviations wide on each side."""
    model = gp()
    found = ig.report.effect(model, X, 0, ["a", "b"], points=3, num=60)
    for t, value in enumerate(found.values):
        rows = np.stack([np.full(60, value), X[:, 1]], axis=1)
        post = model.posterior(rows, full_cov=True)
        mean, std = np.mean(post.mean), np.sqrt(np.sum(post.covariance)) / 60
        np.testing.assert_allclose(found.mean[t, 0, 0], mean, rtol=1e-9)
        np.testing.assert_allclose(found.upper[t, 0, 0] - mean, 1.959964 * std, rtol=1e-5)
        np.testing.assert_allclose(mean - found.lower[t, 0, 0], 1.959964 * std, rtol=1e-5)


def test_bands_of_outputs_are_their_own():
    model = gp(outputs=3)
    found = ig.report.effect(model, X, 1, points=2, num=60)
    rows = np.stack([X[:, 0], np.full(60, found.values[1])], axis=1)
    cov = np.asarray(model.posterior(rows, full_cov=True).covariance).reshape(60, 3, 60, 3)
    std = [np.sqrt(cov[:, p, :, p].sum()) / 60 for p in range(3)]
    np.testing.assert_allclose((found.upper - found.lower)[1, :, 0] / (2 * 1.959964), std, rtol=1e-5)


def test_sampled_bands_agree_with_the_closed_form():
    """A log-normal likelihood has E[y | f] = exp(f + v/2): samples of f must give the moments of exp of a Gaussian."""
    model = gp(ig.likelihoods.LogNormal(0.01))
    found = ig.report.effect(model, X[:1], 0, points=2, values=[0.3], num=1)
    post = model.posterior(np.array([[X[0, 0], X[0, 1]]]))
    m, v = float(post.mean[0, 0]), float(post.variance[0, 0])
    expected = np.exp(m + v / 2 + 0.005)
    spread = expected * np.sqrt(np.exp(v) - 1) / np.sqrt(200)
    assert abs(found.mean[0, 0, 0] - expected) < 5 * spread
    quantile = np.exp(m - 1.959964 * np.sqrt(v) + 0.005)
    assert abs(np.log(found.lower[0, 0, 0] / quantile)) < 5 * np.sqrt(v) * 0.2


def test_probabilities_of_classes_sum_to_one():
    model = gp(ig.likelihoods.Bernoulli())
    found = ig.report.effect(model, X, "x[1]", points=4, num=20)
    assert found.mean.shape == (4, 1, 2)
    np.testing.assert_allclose(found.mean.sum(axis=2), 1.0)
    assert (found.lower <= found.mean).all() and (found.mean <= found.upper).all()


def test_text_stands_for_its_inputs():
    """Three categories of one column with effects 1, 2 and 4; the rarest is left out if two are asked for."""
    codes = np.array([0] * 5 + [1] * 4 + [2] * 3)
    inputs = np.concatenate([np.eye(3)[codes], rng.uniform(size=(12, 1))], axis=1)
    model = ig.Model(ig.Deterministic(lambda x: (x[:3] @ jnp.array([1.0, 2.0, 4.0]))[None]), ig.likelihoods.Gaussian())
    names, text = {"colour": (0, 1, 2), "size": 3}, np.array(["red", "green", "blue"])[codes]
    found = ig.report.effect(model, inputs, "colour", names, values=text)
    assert dict(zip(found.values, found.mean[:, 0, 0], strict=True)) == {"blue": 4.0, "green": 2.0, "red": 1.0}
    assert ig.report.effect(model, inputs, "colour", names, values=text, points=2).values.tolist() == ["green", "red"]


def test_shown_values_may_differ_from_inputs():
    """A column in other units, with gaps: its effect is a line of the slope that the units give."""
    model = ig.Model(ig.Deterministic(lambda x: 3.0 * x[:1]), ig.likelihoods.Gaussian(0.1))
    values = 100.0 * X[:, 0]
    values[::7] = np.nan
    found = ig.report.effect(model, X, 0, values=values, points=15)
    np.testing.assert_allclose(found.mean[:, 0, 0], 0.03 * found.values, rtol=1e-9)
    assert np.isfinite(found.values).all() and len(found.values) == 15


def test_deep_models_have_effects():
    inner = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(X[:3]), mean=[[1.0, -1.0, 0.5]])
    outer = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]), mean=[[1.0, -1.0]])
    found = ig.report.effect(ig.Model([inner, outer], ig.likelihoods.Gaussian(0.1)), X, 0, points=2, num=4)
    assert (found.lower < found.mean).all() and (found.mean < found.upper).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"column": "z"}, "column must be one of x"),
        ({"column": 2}, "column must be one of x"),
        ({"column": 0, "values": [1.0]}, "values must have one entry"),
    ],
)
def test_wrong_arguments_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        ig.report.effect(gp(), X, **given)
    assert jax.config.jax_enable_x64
