"""Starting values: scales from data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import inducing as ig
from inducing.layers import qu
from inducing.parameters import partition
from inducing.training.noise import log_prob_of_constant
from inducing.training.problem import make_problem
from inducing.training.scales import automatic_scales

from .problems import MAPPED, mapped, regression, same, wave

X, y = wave()
init = ig.initialise


def test_scales_are_those_of_the_data():
    points = np.concatenate([X, 100 * X**2], axis=1)
    kernel = ig.kernels.Matern52(lengthscale=[1.0, 1.0], variance=3.0) + ig.kernels.Constant(1.0)
    gp = ig.SparseGP(ig.GP(kernel, mean=ig.means.Constant()), ig.features.InducingPoints(points[:5]))
    model = init.scales(ig.Model(gp, ig.likelihoods.Gaussian()), (points, 1e3 * y + 5e4))
    prior = model.layers[0].prior
    label_variance = 1e6 * y.var()
    assert np.allclose(prior.Kff_diag(jnp.asarray(points)), label_variance)
    assert np.isclose(prior.kernel.kernels[0].variance / prior.kernel.kernels[1].variance, 3.0)
    assert np.isclose(model.likelihood.variance, 0.1 * label_variance)
    assert np.isclose(prior.mean_function.value, 1e3 * y.mean() + 5e4)
    assert np.allclose(prior.kernel.kernels[0].lengthscale, (np.sqrt(2) - 0.5) * points.std(0))


def test_fit_keeps_the_users_values_and_sets_defaults():
    chosen = regression(kernel=ig.kernels.Matern52(lengthscale=0.123, variance=0.45), noise=0.067)
    assert same(ig.fit(chosen, (X, y), method="adam", steps=0, progress=False).model, chosen, 1e-14)
    left = regression(kernel=ig.kernels.Matern52(lengthscale=0.123), noise=0.067)
    fitted = ig.fit(left, (X, y), method="adam", steps=0, progress=False)
    kernel = fitted.model.layers[0].prior.kernel
    assert np.isclose(kernel.lengthscale, 0.123, 1e-14) and np.isclose(kernel.variance, y.var())
    assert np.isclose(fitted.model.likelihood.variance, 0.067, 1e-14)
    assert "scales set from the data" in fitted.message
    assert same(ig.fit(left, (X, y), method="adam", steps=0, initialise=False, progress=False).model, left, 1e-14)
    frozen = ig.fit(left, (X, y), method="adam", steps=0, freeze=lambda m: m.layers[0].prior, progress=False)
    assert frozen.model.layers[0].prior.kernel.variance == 1.0


@pytest.mark.parametrize("coordinates", ["u", "w"])
def test_training_is_the_same_in_any_units(coordinates):
    found = []
    for scale_x, scale_y in [(1.0, 1.0), (1.0, 1e12), (1.0, 1e-12), (1e6, 1.0), (1e-6, 1e-12)]:
        kernel = ig.kernels.Matern52()
        model = regression(np.linspace(0, 4, 10)[:, None] * scale_x, kernel=kernel, noise=1.0, coordinates=coordinates)
        for method in ("collapsed", "natgrad", "adam"):
            result = ig.fit(model, (X * scale_x, y * scale_y), method=method, steps=60, progress=False)
            found.append((method, result.bound + len(y) * np.log(scale_y)))
    for method, atol in (("collapsed", 1e-3), ("natgrad", 1e-2), ("adam", 1e-2)):
        bounds = [bound for name, bound in found if name == method]
        assert np.allclose(bounds, bounds[0], atol=atol), (method, bounds)


@pytest.mark.parametrize("method", ["collapsed", "adam"])
def test_change_points_and_slopes_train_the_same_in_any_units(method):
    found = []
    for scale_x, scale_y in [(1.0, 1.0), (1e3, 1e9), (1e-3, 1e-9)]:
        two = ig.kernels.ChangePoint((ig.kernels.Matern52(), ig.kernels.Matern52()), [1.5 * scale_x])
        prior = ig.GP(two, ig.means.Linear([0.0]))
        model = ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(X[::6] * scale_x)), ig.likelihoods.Gaussian())
        result = ig.fit(model, (X * scale_x, (y + X[:, 0]) * scale_y), method=method, steps=20, progress=False)
        prior = result.model.layers[0].prior
        slope = prior.mean_function.weights[0] * scale_x / scale_y
        found.append(
            [
                prior.kernel.locations[0] / scale_x,
                prior.kernel.steepness * scale_x,
                slope,
                result.bound + len(y) * np.log(scale_y),
            ]
        )
    assert abs(found[0][0] - 1.5) > 0.01 and abs(found[0][2]) > 0.01
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["LogNormal", "Gamma", "Weibull", "Exponential"])
def test_scales_of_labels_that_are_exponentials(name):
    """f is log y, less the logarithm of a Gamma's shape, whose mean is shape·e^f."""
    shape = {"shape": 3.0} if name in ("Gamma", "Weibull") else {}
    prior = ig.GP(ig.kernels.Matern52(), ig.means.Constant())
    gp = ig.SparseGP(prior, ig.features.InducingPoints(X[:5]))
    model = ig.initialise.scales(ig.Model(gp, getattr(ig.likelihoods, name)(**shape)), (X, np.exp(2.0 + y)))
    level = 2.0 + y.mean() - (np.log(3.0) if name == "Gamma" else 0.0)
    np.testing.assert_allclose(model.layers[0].prior.mean_function.value, level)
    np.testing.assert_allclose(model.layers[0].prior.kernel.variance, y.var())
    if name == "LogNormal":
        np.testing.assert_allclose(model.likelihood.scale, np.sqrt(0.1 * y.var()))


@pytest.mark.slow
def test_every_likelihood_of_continuous_labels_trains_the_same_in_any_units():
    L = ig.likelihoods
    each = [L.LogNormal(), L.Gamma(), L.Weibull(), L.Exponential(), L.HeteroscedasticGaussian()]
    rng = np.random.default_rng(0)
    labels = np.stack([np.exp(y) * rng.gamma(2.0, size=len(y)) for _ in range(4)] + [y], axis=1)
    units, found = np.array([1e12, 1e-12, 1e12, 1e-12, 1e-12]), []
    for power in (0.0, 1.0, -1.0):
        prior = ig.priors.Independent([ig.GP(ig.kernels.Matern52(), ig.means.Constant()) for _ in range(6)])
        model = ig.Model(
            ig.SparseGP(prior, ig.features.InducingPoints(np.linspace(0, 4, 10)[:, None])), L.PerOutput(each)
        )
        result = ig.fit(model, (X, labels * units**power), method="natgrad", steps=40, progress=False)
        found.append(result.bound + len(y) * power * np.log(units).sum())
        assert "scales set from the data" in result.message
    assert np.allclose(found, found[0], atol=1e-2), found
    assert found[0] > result.history.bound[0] - len(y) * np.log(units).sum() + 100


@pytest.mark.parametrize("size", [0.1, 1e6])
def test_counts_of_any_size_start_at_their_level(size):
    L, known = ig.likelihoods, ig.likelihoods.PerDatum(np.full(len(y), 20.0), new=1.0)
    each = [
        L.Poisson(),
        L.Poisson(exposure=20.0),
        L.Poisson(exposure=known),
        L.NegativeBinomial(),
        L.Poisson("softplus"),
    ]
    counts = np.random.default_rng(0).poisson(size * np.exp(y)).astype(float)
    labels = np.stack([counts * (20.0 if p in (1, 2) else 1.0) for p in range(5)], axis=1)
    level = np.log(counts.mean()) - 0.5 * np.log1p(counts.var() / counts.mean() ** 2)
    prior = ig.priors.Independent([ig.GP(ig.kernels.Matern52(), ig.means.Constant()) for _ in each])
    gp = ig.SparseGP(prior, ig.features.InducingPoints(np.linspace(0, 4, 10)[:, None]))
    latents = init.scales(ig.Model(gp, L.PerOutput(each)), (X, labels)).layers[0].prior.latents
    large = size > 1.0  # then softplus(f) is f
    assert np.allclose([f.mean_function.value for f in latents], [level] * 4 + [counts.mean() if large else 0.0])
    assert all(f.kernel.variance == 1.0 for f in latents[:4]) and (latents[4].kernel.variance > 1.0) == large
    inflated = ig.Model(ig.SparseGP(prior.latents[0], gp.features), L.ZeroInflatedPoisson())
    zeros = np.where(np.arange(len(y)) % 2, 0.0, counts)
    start = init.scales(inflated, (X, zeros)).layers[0].prior.mean_function.value
    if size > 1.0:  # zeros say nothing of the rate then, as none of them is a count
        assert abs(start - level) < 0.5
    one = ig.Model(ig.SparseGP(prior.latents[0], gp.features), L.Poisson())
    trained = ig.fit(one, (X, counts), steps=100, progress=False)
    assert "NaN" not in trained.message
    assert np.mean((trained.model.predict(X).mean[:, 0] - counts) ** 2) < 0.9 * counts.var()


def test_deep_gps_train_the_same_in_any_units():
    found = []
    for scale in (1.0, 1e12, 1e-12):
        model = ig.deep_gp(X, ig.likelihoods.Gaussian(), num_inducing=6)
        result = ig.fit(model, (X, y * scale), method="natgrad", steps=30, progress=False)
        found.append(result.bound + len(y) * np.log(scale))
    assert np.allclose(found, found[0], atol=1e-2) and np.isfinite(found[0])


def test_scales_of_arc_cosines_are_those_of_the_data():
    """Any unit of x and y gives the same prior in units of y, whose inputs together count as much as the bias."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(3.0, 1.0, (50, 2)), rng.normal(0.0, 1.0, 50)
    grams = []
    for x_unit, y_unit in ((np.ones(2), 1.0), (np.array([1e-6, 1e4]), 1e3)):
        kernel = ig.kernels.ArcCosine(1, weight_variance=[1.0, 1.0])
        gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(X[:3] * x_unit))
        model = ig.initialise.scales(ig.Model(gp, ig.likelihoods.Gaussian()), (X * x_unit, y * y_unit))
        own = model.layers[0].prior.kernel
        grams.append(own.gram(X * x_unit) / y_unit**2)
        share = (X * x_unit) ** 2 @ np.asarray(own.weight_variance)
        np.testing.assert_allclose(share.mean(), own.bias_variance)
    np.testing.assert_allclose(grams[1], grams[0], rtol=1e-10)
    np.testing.assert_allclose(np.diagonal(grams[0]).mean(), y.var())


@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("kind", ["linear", "polynomial", "sum"])
def test_scales_of_linear_and_polynomial_kernels_are_those_of_the_data(kind, automatic):
    """Any unit of each column and of y gives the same prior in units of y, to which all columns add as much."""
    k, rng = ig.kernels, np.random.default_rng(0)
    X, y = rng.normal(3.0, 1.0, (50, 2)), rng.normal(0.0, 1.0, 50)
    kernel = {
        "linear": lambda: k.Linear([1.0, 1.0]),
        "polynomial": lambda: k.Polynomial(3, [1.0, 1.0]),
        "sum": lambda: k.SquaredExponential([1.0, 1.0]) + k.Linear([1.0, 1.0]),
    }[kind]
    grams = []
    for x_unit, y_unit in ((np.ones(2), 1.0), (np.array([1e-6, 1e4]), 1e3)):
        gp = ig.SparseGP(ig.GP(kernel()), ig.features.InducingPoints(X[:3] * x_unit))
        model, data = ig.Model(gp, ig.likelihoods.Gaussian()), ig.Data(X * x_unit, y * y_unit)
        model = automatic_scales(model, data, lambda leaf: True)[0] if automatic else init.scales(model, data)
        own = model.layers[0].prior.kernel
        grams.append(own.gram(X * x_unit) / y_unit**2)
        terms = own.kernels if kind == "sum" else (own,)
        shares = np.asarray(terms[-1].variance) * np.mean((X * x_unit) ** 2, axis=0)
        each = {"linear": 0.5 * y_unit**2 * y.var(), "polynomial": 0.5 * getattr(own, "offset", 1.0)}
        np.testing.assert_allclose(shares, each.get(kind, terms[0].variance), rtol=1e-10)
    np.testing.assert_allclose(grams[1], grams[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(grams[0]).mean(), y.var())


def test_a_users_linear_kernel_stays_as_it_is():
    gp = ig.SparseGP(ig.GP(ig.kernels.Linear(0.5)), ig.features.InducingPoints(2e3 + X[:5]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(0.5))
    kept, _ = automatic_scales(model, ig.Data(2e3 + X, 2e3 * y), lambda leaf: True)
    assert kept.layers[0].prior.kernel.variance == 0.5


def test_scales_of_two_functions_for_each_output():
    labels = np.stack([1e6 * y + 3e6, 1e-6 * y], axis=1)
    prior = ig.priors.Independent([ig.GP(ig.kernels.Matern52(), ig.means.Constant()) for _ in range(4)])
    gp = ig.SparseGP(prior, ig.features.InducingPoints(X[:5]))
    model = init.scales(ig.Model(gp, ig.likelihoods.HeteroscedasticGaussian()), (X, labels))
    latents, variance = model.layers[0].prior.latents, labels.var(axis=0)
    centres = [*labels.mean(axis=0), *(0.5 * np.log(0.1 * variance))]
    assert np.allclose([gp.mean_function.value for gp in latents], centres)
    assert np.allclose([gp.kernel.variance for gp in latents], [*variance, 1.0, 1.0])
    both = ig.SparseGP(ig.priors.Independent(ig.kernels.Matern52(), num=4), ig.features.InducingPoints(X[:5]))
    shared = init.scales(ig.Model(both, ig.likelihoods.HeteroscedasticGaussian()), (X, labels))
    assert shared.layers[0].prior.latents[0].kernel.variance == 1.0  # no one number suits both


@pytest.mark.parametrize("name", MAPPED)
def test_scales_of_priors_that_map_their_latents(name):
    """Lengthscales from where the latents are looked at; the variance of the outputs from that of the labels."""
    prior, inputs, places = mapped(name)
    D, P = places.shape[1], prior.num_outputs
    gp = ig.SparseGP(prior, ig.features.InducingPoints(np.zeros((1, D + (name == "matrix")))))
    labels = np.random.default_rng(4).normal(size=(20, P)) * 1e3
    model = init.scales(ig.Model(gp, ig.likelihoods.Gaussian()), (inputs, labels))
    prior = model.layers[0].prior
    stationary = prior.kernels[0].kernels[0].kernel if name == "matrix" else prior.kernels[0]
    spread = places.std(axis=0) if stationary.lengthscale.ndim else np.sqrt(np.mean(places.var(axis=0)))
    assert np.allclose(stationary.lengthscale, (np.sqrt(D) - 0.5) * spread)
    if name == "as input":  # the labels of each output by themselves
        prior, inputs, p = prior.prior, inputs[:, :-1], inputs[:, -1]
        labels = np.where(p[:, None] == np.arange(3), labels, np.nan)
    variances = np.diagonal(eqx.filter_jit(prior.covariance)(jnp.asarray(inputs)))
    assert np.isclose(variances.mean(), np.nanvar(labels, axis=0).mean())


@pytest.mark.parametrize("kind", ["mixture", "independent"])
def test_outputs_as_inputs_start_as_the_other_view(kind):
    """Labels of two levels, with a constant mean for each; one of three outputs was not seen in either view."""
    levels = np.array([[1e3, -5e2]])
    labels = np.stack([y, 2.0 * y**2], axis=1) + levels
    kernels = [ig.kernels.Matern52(), ig.kernels.SquaredExponential(), ig.kernels.Matern32()]
    if kind == "mixture":
        prior = ig.priors.LMC(np.eye(3) + 0.1, kernels, mean=ig.means.Constant(np.zeros(3)))
    else:
        prior = ig.priors.Independent([ig.GP(k, ig.means.Constant()) for k in kernels])
    view = ig.SparseGP(ig.priors.as_input(prior), ig.features.InducingPoints(X[:5]))
    rows = np.concatenate([np.concatenate([X, np.full_like(X, p)], axis=1) for p in range(2)])
    view = init.scales(ig.Model(view, ig.likelihoods.Gaussian()), (rows, labels.T.reshape(-1)))
    found = view.layers[0].prior.prior
    means = found.mean(jnp.asarray(X[:1]))[0]
    assert np.allclose(means, [*labels.mean(axis=0), 0.0])
    assert np.isclose(view.likelihood.variance, 0.1 * labels.var(axis=0).mean())
    variances = np.diagonal(found.covariance(jnp.asarray(X[:1])))
    average = labels.var(axis=0).mean()
    if kind == "mixture":
        assert np.isclose(variances.mean(), average)
    else:
        assert np.allclose(variances, [*labels.var(axis=0), average])
        units = make_problem(view, partition(view, None), ig.Data(rows, labels.T.reshape(-1))).units
        assert all(np.all(np.asarray(unit[1]) > 0) for unit in units if unit is not None)
        spreads = [unit[1] for unit in units if unit is not None and unit[1].ndim == 2]
        assert np.allclose(spreads, X.std())  # of the data beside Z


def test_labels_of_values_far_from_zero_beside_their_slopes():
    labels = np.stack([y + 1e3, y], axis=1)
    gp = ig.SparseGP(
        ig.priors.Derivative(ig.GP(ig.kernels.Matern52(), 0.0), 1, True), ig.features.InducingPoints(X[:5])
    )
    model = init.scales(ig.Model(gp, ig.likelihoods.Gaussian()), (X, labels))
    assert np.isclose(model.layers[0].prior.prior.mean_function.value, labels[:, 0].mean())


def squared(kernel):
    return kernel * kernel


@pytest.mark.parametrize(
    "kernel",
    [
        ig.kernels.Polynomial(3),
        squared(ig.kernels.SquaredExponential()),
        ig.kernels.ChangePoint((ig.kernels.Matern52(), ig.kernels.Matern32()), [2.0], 3.0),
        ig.kernels.Warped(ig.kernels.SquaredExponential(), jnp.exp),
    ],
    ids=["polynomial", "tied product", "change point", "warped"],
)
def test_the_prior_variance_becomes_that_of_the_labels(kernel):
    model = ig.Model(ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(X[:5])), ig.likelihoods.Gaussian())
    found = init.scales(model, (X, 1e12 * y)).layers[0].prior.kernel
    assert np.isclose(found.diag(X).mean(), (1e12 * y).var())
    moved = getattr(getattr(found, "kernel", found), "kernels", [getattr(found, "kernel", None)])[0]
    assert moved is None or float(moved.lengthscale) != 1.0


def test_a_vector_of_defaults_is_set_from_the_data():
    places = 1e2 * np.concatenate([X, X[::-1]], axis=1)
    for start, stays in (([1.0, 1.0], False), ([1.0, 70.0], True)):
        gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(start)), ig.features.InducingPoints(places[:5]))
        model, _ = automatic_scales(ig.Model(gp, ig.likelihoods.Gaussian()), ig.Data(places, y), lambda leaf: True)
        assert np.array_equal(model.layers[0].prior.kernel.lengthscale, start) == stays


@pytest.mark.parametrize("label", [0.1, 0.0, -1e9])
def test_one_label_of_an_output_says_little_of_its_noise(label):
    labels = np.stack([y, np.full(len(y), np.nan)], axis=1)
    labels[5, 1] = label
    noise = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(), ig.likelihoods.Gaussian()])
    gp = ig.SparseGP(ig.priors.LMC([[1.0], [1.0]], ig.kernels.Matern52()), ig.features.InducingPoints(X[:5]))
    likelihood = init.scales(ig.Model(gp, noise), (X, labels)).likelihood
    assert np.isclose(likelihood.likelihoods[1].variance, 0.1 * (label**2 or 1.0))
    own = ig.likelihoods.Gaussian([0.5])  # one number, written as a vector, for both outputs
    assert init.scales(ig.Model(gp, own), (X, labels)).likelihood.variance.shape == (1,)


def test_training_is_the_same_far_from_the_origin():
    """Milliseconds since 1970, say: a spread of 1e-8 of the inputs' size."""
    bounds = []
    for origin in (0.0, 1e8):
        model = regression(np.linspace(0, 4, 10)[:, None] + origin, kernel=ig.kernels.Matern52(), noise=1.0)
        bounds.append(ig.fit(model, (X + origin, y), method="collapsed", steps=60, progress=False).bound)
    assert np.isclose(*bounds, atol=1e-3)


def test_places_move_in_units_of_the_data_however_far_out_they_start():
    Z = np.array([[0.0], [1.0], [50.0]])
    model = ig.Model(
        ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian()
    )
    units = make_problem(model, partition(model), ig.Data(X, y)).units
    assert np.allclose([u[1] for u in units if u is not None and u[1].ndim == 2], X.std())


def test_a_kronecker_root_is_looked_at_factor_by_factor(monkeypatch):
    monkeypatch.delattr(qu, "expand")
    part = ig.features.Product((ig.features.Fourier(-1.0, 5.0, 2), ig.features.Fourier(-1.0, 5.0, 1)))
    kernel = ig.kernels.ActiveDims(ig.kernels.Matern32(), (0,)) * ig.kernels.ActiveDims(ig.kernels.Matern32(), (1,))
    data = ig.Data(np.concatenate([X, X], axis=1), 1e3 * y)
    for bend, fresh in ((0.0, True), (0.1, False)):
        root = (np.eye(5), np.eye(3) + bend * np.eye(3, k=-1))
        model = ig.Model(ig.SparseGP(ig.GP(kernel), part, root=root), ig.likelihoods.Gaussian())
        assert automatic_scales(model, data, lambda leaf: True)[1] == fresh


def test_values_in_other_units_are_taken_for_a_mistake():
    untrained = float(eqx.filter_jit(ig.elbo)(regression(), (X, y)))
    for scale in (1e12, 1e-12):
        result = ig.fit(regression(), (X, y * scale), progress=False)
        assert result.bound + len(y) * np.log(scale) > untrained + 20


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        ([[1.0]], [2.0]),  # N = 1
        ([[1.0]] * 3, [1.0, 2.0, 1.5]),  # one input, often
        ([[0.0], [1.0], [2.0]], [5.0, 5.0, 5.0]),  # labels all the same
        ([[0.0], [1.0], [2.0]], [0.0, 0.0, 0.0]),
        ([[1e5], [1e5 + 1], [1e5 + 2]], [1.0, 2.0, 3.0]),  # far from the origin
        ([[0.0, 3.0], [1.0, 3.0], [2.0, 3.0]], [1.0, 2.0, float("nan")]),  # a constant column, a missing label
    ],
)
def test_small_and_degenerate_data_train(inputs, labels):
    inputs = np.asarray(inputs)
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(inputs))  # M = N, duplicates and all
    model = ig.Model(gp, ig.likelihoods.Gaussian())
    for method in ("collapsed", "natgrad"):
        result = ig.fit(model, (inputs, labels), method=method, steps=20, progress=False)
        assert np.isfinite(result.bound)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.model))
    if np.isnan(labels).any():
        assert "1 missing label;" in result.message


def test_scales_of_a_column_without_labels_are_refused():
    prior = ig.priors.Independent(ig.kernels.Matern52(), num=2)
    gp = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
    y = np.array([[0.0, np.nan], [1.0, np.nan]])
    with pytest.raises(ValueError, match="every label in column 1 of y is missing"):
        init.scales(ig.Model(gp, ig.likelihoods.Gaussian()), ([0.0, 1.0], y))


@pytest.mark.parametrize("coordinates", ["w", "u"])
def test_scales_of_a_first_layer_inside_a_skip(coordinates):
    """Half a standard deviation for one input; q(u) follows its prior."""
    x = 1e4 * np.array([1.0, 2.0, 3.0, 6.0])
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(x[:2, None]), coordinates=coordinates)
    model = ig.Model([ig.Skip(gp), ig.Deterministic(lambda v: v[1:])], ig.likelihoods.Gaussian(0.1))
    inner = ig.initialise.scales(model, (x, np.ones(4))).layers[0].layers[0]
    np.testing.assert_allclose(inner.prior.kernel.lengthscale, 0.5 * x.std(), rtol=1e-12)
    np.testing.assert_allclose(inner.kl(), 0.0, atol=1e-6)


def test_scales_of_gps_above_a_latent_variable():
    """(√D − ½) standard deviations of x in its units, and of h and f, which are appended to it, by their priors."""
    x = 1e6 * np.random.default_rng(0).normal(size=500)
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((500, 1)), scale=1e-3), scale=2.0)
    kernels = [ig.kernels.Matern52(lengthscale=jnp.ones(2), variance=9.0), ig.kernels.Matern52(lengthscale=jnp.ones(3))]
    gps = [ig.SparseGP(ig.GP(k), ig.features.InducingPoints(np.zeros((1, k.lengthscale.size)))) for k in kernels]
    model = init.scales(ig.Model([latent, ig.Skip(gps[0]), gps[1]], ig.likelihoods.Gaussian()), (x, np.ones(500)))
    first, second = (gp.prior.kernel.lengthscale for gp in (model.layers[1].layers[0], model.layers[2]))
    np.testing.assert_allclose(first / (np.sqrt(2) - 0.5), [x.std(), 2.0], rtol=0.15)
    np.testing.assert_allclose(second / (np.sqrt(3) - 0.5), [x.std(), 2.0, 3.0], rtol=0.15)


def test_scales_above_other_layers_look_at_some_rows_only(monkeypatch):
    seen = []

    def identity(layer, x, key, data, replicates):
        seen.append((len(x), len(data)))
        return x, jnp.zeros(x.shape[:2], x.dtype)

    monkeypatch.setattr(ig.Deterministic, "propagate", identity)
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.zeros((1, 1))))
    model = ig.Model([ig.Deterministic(jnp.sin), gp], ig.likelihoods.Gaussian())
    x = np.linspace(0.0, 1.0, 5000)
    lengthscale = init.scales(model, (x, x)).layers[1].prior.kernel.lengthscale
    assert seen == [(250, 250)]
    np.testing.assert_allclose(lengthscale, 0.5 * x.std(), rtol=1e-2)


def test_a_diagonal_root_stays_diagonal():
    prior, features = ig.GP(ig.kernels.SquaredExponential()), ig.features.InducingPoints([[0.0], [1e3], [2e3]])
    gp = ig.SparseGP(prior, features, root=np.ones(3), coordinates="u")
    model = ig.Model(gp, ig.likelihoods.Bernoulli())
    data = np.linspace(0.0, 2e3, 20), np.arange(20.0) % 2
    assert ig.initialise.scales(model, data).layers[0].root.shape == (1, 1, 3)


def test_large_counts_with_softplus_start_at_their_level():
    x = np.linspace(0.0, 10.0, 50)
    counts = np.random.default_rng(0).poisson(100.0 * np.exp(np.sin(x))).astype(float)
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(), ig.means.Constant()), ig.features.InducingPoints(x[::5, None]))
    start = ig.initialise.scales(ig.Model(gp, ig.likelihoods.Poisson(link="softplus")), (x, counts))
    prior = start.layers[0].prior
    known = ig.likelihoods.PerDatum(np.ones(50), new=1.0)
    ig.initialise.scales(ig.Model(gp, ig.likelihoods.Poisson("softplus", known)), (x, counts))  # left as it is
    assert abs(float(prior.mean_function.value) - counts.mean()) < 1.0 and float(prior.kernel.variance) > 1000.0


def oscillation(lengthscale=1.0):
    x = np.linspace(0.0, 10.0, 150)
    y = np.sin(8.0 * x) + 0.1 * np.random.default_rng(0).normal(size=150)
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(lengthscale)), ig.features.InducingPoints(x[::3, None]))
    return ig.Model(gp, ig.likelihoods.Gaussian()), (x, y)


def test_oscillations_are_not_left_as_noise():
    """From the first lengthscales the evidence itself leads to all noise: RMSE 0.7."""
    model, (x, y) = oscillation()
    first = ig.fit(ig.initialise.scales(model, (x, y)), (x, y), initialise=False, progress=False)
    second = ig.fit(model, (x, y), progress=False)
    assert "looked like noise" not in first.message and float(first.model.likelihood.variance) > 0.4
    assert f"which reached {first.bound:.6g}, {second.bound:.6g}; labels looked like noise" in second.message
    rmse = np.sqrt(np.mean((np.sin(8.0 * x) - np.asarray(second.model.predict(x).mean)[:, 0]) ** 2))
    assert rmse < 0.1 and second.bound > first.bound + 150


def test_outputs_without_labels_do_not_matter_to_what_is_noise():
    """Values were observed and slopes were not: nothing is computed from labels that do not exist."""
    model, (x, y) = oscillation()
    prior = ig.priors.Derivative(model.layers[0].prior, dim=1, values=True)
    both = ig.Model(ig.SparseGP(prior, model.layers[0].features), model.likelihood)
    result = ig.fit(both, (x, np.stack([y, np.full(150, np.nan)], axis=1)), progress=False)
    assert np.isclose(result.bound, ig.fit(model, (x, y), progress=False).bound, rtol=1e-4)


def test_noise_is_noise_and_short_fits_and_frozen_lengthscales_stay():
    model, (x, y) = oscillation(0.7)
    short = ig.fit(model, (x, y), steps=2, progress=False)
    assert "shorter" not in short.message
    frozen = ig.fit(model, (x, y), freeze=lambda m: m.layers[0].prior.kernel.lengthscale, progress=False)
    assert float(frozen.model.layers[0].prior.kernel.lengthscale) == 0.7
    noise = np.random.default_rng(1).normal(size=150)
    linear = ig.SparseGP(ig.GP(ig.kernels.Linear()), ig.features.InducingPoints([[1.0]]))
    told = ig.fit(ig.Model(linear, ig.likelihoods.Gaussian()), (x, noise), progress=False).message
    assert "starts" not in told and "converged" in told
    result = ig.fit(model, (x, noise), progress=False)
    alike = -75.0 * (np.log(2.0 * np.pi * noise.var()) + 1.0)
    assert "best of 2 starts" in result.message and abs(result.bound - alike) < 2.0  # a process costs a nat or so
    assert "of the labels' variance" in result.message and "of the labels' variance" not in short.message
    steps = ig.fit(model, (x, noise), method="natgrad", progress=False)
    assert "of the labels' variance: the inputs say little" in steps.message and "best of 2 starts" in steps.message


@pytest.mark.parametrize("kind", ["classes", "counts", "minibatches"])
def test_oscillations_of_classes_and_counts_are_not_left_as_noise(kind):
    """One criterion for any likelihood: a constant is about as good."""
    model, (x, _) = oscillation()
    rng = np.random.default_rng(0)
    likelihood, labels = ig.likelihoods.Bernoulli(), (np.sin(8.0 * x) > 0).astype(float)
    if kind != "classes":
        likelihood, labels = ig.likelihoods.Poisson(), rng.poisson(np.exp(2.0 + np.sin(8.0 * x))).astype(float)
    options = {"batch_size": 50} if kind == "minibatches" else {}
    model = ig.Model(model.layers, likelihood)
    result = ig.fit(model, (x, labels), steps=600, progress=False, **options)
    assert result.method == "natgrad" and "labels looked like noise" in result.message
    first, second = (float(b) for b in result.message.split("which reached ")[1].split(";")[0].split(", "))
    rate = labels.mean()
    alike = (stats.bernoulli if kind == "classes" else stats.poisson).logpmf(labels, rate).sum()
    assert first < alike + 0.05 * 150 and second > first + 20
    right = np.sin(8.0 * x) if kind == "classes" else np.exp(2.0 + np.sin(8.0 * x))
    assert np.corrcoef(right, np.asarray(result.model.predict(x).mean)[:, 0])[0, 1] > 0.9


def test_the_best_constant_against_closed_forms():
    rng = np.random.default_rng(0)
    x = np.zeros((40, 1))
    counts, classes = rng.poisson(300.0, 40).astype(float), rng.integers(0, 3, 40)
    counts[3] = np.nan
    best = log_prob_of_constant(ig.likelihoods.Poisson(), ig.Data(x, counts))
    assert np.isclose(best, np.nansum(stats.poisson.logpmf(counts, np.nanmean(counts))), rtol=1e-8)
    shares = np.bincount(classes) / 40
    best = log_prob_of_constant(ig.likelihoods.Softmax(3), ig.Data(x, classes.astype(float)))
    assert np.isclose(best, 40 * (shares * np.log(shares)).sum(), rtol=1e-6)
    heavy = rng.standard_t(3.0, 40) * 1e-6 + 5.0
    best = log_prob_of_constant(ig.likelihoods.StudentT(df=3.0, scale=1e-6), ig.Data(x, heavy))
    grid = stats.t.logpdf(heavy[:, None], 3.0, 5.0 + 1e-6 * np.linspace(-1, 1, 2001), 1e-6).sum(axis=0).max()
    assert np.isclose(best, grid, atol=1e-3)
