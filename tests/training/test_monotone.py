"""Monotone functions: `ig.monotone` against importance sampling, and on columns that rise and fall."""

import equinox as eqx
import numpy as np
import pytest
from scipy.stats import norm

import inducing as ig

X = np.linspace(0.0, 4.0, 12)
Y = np.tanh(X - 2.0) + 0.4 * np.random.default_rng(3).normal(size=12)


def model_of(likelihood=None, dim=1, kernel=None, num=1):
    kernel = ig.kernels.SquaredExponential(np.ones(dim)) if kernel is None else kernel
    prior = ig.GP(kernel) if num == 1 else ig.priors.Independent(kernel, num=num)
    Z = ig.features.InducingPoints(np.random.default_rng(0).uniform(0.0, 4.0, (10, dim)))
    return ig.Model(ig.SparseGP(prior, Z), ig.likelihoods.Gaussian(0.2) if likelihood is None else likelihood)


def everything(model):
    return model.layers[0].prior, model.layers[0].features, model.likelihood


def test_signs_of_slopes_against_importance_sampling():
    """GP samples given the values, weighted by the probability Φ(slope/ν) of each sign."""
    x, z, grid = np.array([0.3, 1.5, 2.4]), np.array([0.8, 1.9, 3.0]), np.linspace(0.0, 3.5, 6)
    y, noise = np.array([0.4, 0.1, 0.5]), 0.1
    nu, at = 0.05 * y.std() / x.std(), np.concatenate([x, grid])
    d, e, h = at[:, None] - at, at[:, None] - z, z[:, None] - z
    Kfs = e * np.exp(-0.5 * e**2)  # cov(f(a), f'(z)) of the squared exponential kernel
    K = np.block([[np.exp(-0.5 * d**2), Kfs], [Kfs.T, (1 - h**2) * np.exp(-0.5 * h**2)]])
    A = np.linalg.solve(K[:3, :3] + noise * np.eye(3), K[:3, 3:]).T
    draws = np.random.default_rng(0).multivariate_normal(A @ y, K[3:, 3:] - A @ K[:3, 3:], 200_000)
    w = norm.cdf(draws[:, 6:] / nu).prod(axis=1)
    mean = w @ draws[:, :6] / w.sum()
    sd = np.sqrt(w @ (draws[:, :6] - mean) ** 2 / w.sum())

    gp = ig.SparseGP(
        ig.GP(ig.kernels.SquaredExponential()), ig.features.InducingPoints(np.linspace(-0.5, 4.0, 10)[:, None])
    )
    model = ig.Model(gp, ig.likelihoods.Gaussian(noise))
    plain = ig.collapse(model, (x, y)).posterior(grid).mean[:, 0]
    q = ig.monotone(
        model, (x, y), increasing=0, at=z, freeze=everything, initialise=False, steps=300, progress=False
    ).posterior(grid)
    assert np.all(np.abs(q.mean[:, 0] - mean) < 0.15 * sd)
    assert np.max(np.abs(plain - mean) / sd) > 1
    assert np.all(np.abs(np.sqrt(q.variance[:4, 0]) / sd[:4] - 0.95) < 0.07)  # beyond the last sign it is skewed


def test_the_fit_does_not_depend_on_units():
    """The amplitude starts from the labels, and ν follows the scales of labels and column."""
    Z = ig.features.InducingPoints(1e3 * model_of().layers[0].features.Z)
    large = eqx.tree_at(lambda m: m.layers[0].features, model_of(), Z)
    a = ig.monotone(model_of(), (X, Y), increasing=0, progress=False).predict(X).mean
    b = ig.monotone(large, (1e3 * X, 1e-3 * Y), increasing=0, progress=False).predict(1e3 * X).mean
    np.testing.assert_allclose(1e3 * b, a, atol=0.02)


SLOW = [pytest.param(lik, marks=pytest.mark.slow) for lik in (ig.likelihoods.Bernoulli(), ig.likelihoods.StudentT(4.0))]


@pytest.mark.parametrize("likelihood", [ig.likelihoods.Poisson(), *SLOW])
def test_columns_that_rise_and_fall_with_any_likelihood(likelihood, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 4.0, (40, 3))  # the last column may do anything
    y = rng.poisson(np.exp(0.5 * (x[:, 0] - x[:, 1]))).clip(max=likelihood.supports[0].largest(None)).astype(float)
    y = np.minimum(y, 1.0) if likelihood.class_count() else y
    data = ig.Data(x, np.where(np.arange(40) == 3, np.nan, y), weight=np.arange(40) % 3)
    model = ig.monotone(model_of(likelihood, 3), data, increasing=0, decreasing=(1,), steps=150, progress=False)
    line = np.linspace(0.5, 3.5, 30)
    for column, sign in ((0, 1.0), (1, -1.0)):
        along = np.full((30, 3), 2.0)
        along[:, column] = line
        assert np.all(sign * np.diff(model.predict(along).mean[:, 0]) > 0)
    assert type(model.likelihood) is type(likelihood)
    ig.save(tmp_path / "model.ig", model)
    np.testing.assert_array_equal(ig.load(tmp_path / "model.ig").predict(x).mean, model.predict(x).mean)


def test_freeze_and_held_out_are_those_of_the_model():
    def freeze(model):
        assert isinstance(model.likelihood, ig.likelihoods.Gaussian)
        return model.likelihood

    model = ig.monotone(
        model_of(),
        (X, Y),
        increasing=0,
        freeze=freeze,
        held_out=(X[:3], Y[:3]),
        steps=20,
        initialise=False,
        progress=False,
    )
    assert float(model.likelihood.variance) == 0.2
    assert float(model.layers[0].prior.kernel.lengthscale[0]) != 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "at least one"),
        ({"increasing": 1}, "counted from 0 to 0"),
        ({"increasing": 0, "decreasing": 0}, "each once"),
        ({"increasing": "a"}, "counted from 0"),
        ({"increasing": 0, "at": np.zeros((3, 2))}, "at must have the 1 columns"),
    ],
)
def test_columns_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        ig.monotone(model_of(), (X, Y), **change)


def test_models_without_such_slopes_are_refused():
    with pytest.raises(TypeError, match="no derivative in mean square"):
        ig.monotone(model_of(kernel=ig.kernels.Matern12()), (X, Y), increasing=0)
    with pytest.raises(ValueError, match="is for one function, and this Independent has 2"):
        ig.monotone(model_of(num=2), (X, np.column_stack([Y, Y])), increasing=0)
    with pytest.raises(TypeError, match="one SparseGP layer"):
        ig.monotone(ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_inducing=5), (X, Y), increasing=0)
    with pytest.raises(ValueError, match="constant"):
        ig.monotone(model_of(dim=2), (np.column_stack([X, np.ones(12)]), Y), increasing=1)
