"""Deep GPs with the recommended starting values: what these are, and that they make the models they should."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)) @ np.array([[2.0, 0.3, 0.1], [0.0, 1.0, 0.2], [0.0, 0.0, 0.3]]) + 0.5
Y = np.sin(X[:, :1])
NOISE = ig.likelihoods.Gaussian(0.1)

elbo = eqx.filter_jit(ig.elbo)


def kernel(D):
    return ig.kernels.Matern52(0.9 * jnp.ones(D), 0.7)


def test_one_layer_is_the_svgp_built_by_hand():
    model = ig.deep_gp(X, NOISE, num_layers=1, num_inducing=5, kernel=kernel)
    gp = ig.SparseGP(ig.GP(kernel(3)), ig.features.InducingPoints(ig.initialise.kmeans(X, 5)))
    np.testing.assert_array_equal(elbo(model, (X, Y)), elbo(ig.Model(gp, NOISE), (X, Y)))
    np.testing.assert_allclose(gp.kl(), 0.0, atol=1e-12)  # it starts at its prior


def test_widths_that_agree_have_identity_means():
    model = ig.deep_gp(X, NOISE, num_layers=3, num_inducing=5)
    Z = np.asarray(ig.initialise.kmeans(X, 5))
    for layer in model.layers:
        np.testing.assert_allclose(layer.features.Z, Z)  # carried upwards through the identity
    for layer in model.layers[:2]:
        assert isinstance(layer.prior.mean_function, ig.means.Identity)
    assert isinstance(model.layers[2].prior.mean_function, ig.means.Constant)


def test_inner_layers_start_almost_deterministic():
    """At its inducing points an inner layer is its mean function, up to 1e-3 of the prior's standard deviation."""
    inner = ig.deep_gp(X, NOISE, num_inducing=5).layers[0]
    Z = inner.features.Z
    mean, variance = inner.marginals(Z)
    prior = inner.prior.latents[0].kernel.diag(Z)[:, None]
    np.testing.assert_allclose(mean, Z, atol=1e-12)
    np.testing.assert_allclose(variance, 1e-6 * np.broadcast_to(prior, (5, 3)), rtol=0.05)
    np.testing.assert_allclose(np.sqrt(prior), 0.1 * X.std(axis=0).mean(), rtol=1e-10)


def test_a_new_deep_gp_is_almost_the_shallow_one():
    """With all data as inducing points the inner layer passes them on; what is left is its own KL."""
    deep, shallow = (ig.deep_gp(X, NOISE, num_layers=n, num_inducing=12) for n in (2, 1))
    value = elbo(deep, (X, Y), key=KEY) + deep.layers[0].kl()
    np.testing.assert_allclose(value, elbo(shallow, (X, Y)), rtol=1e-4)


def test_narrow_layers_project_on_principal_components():
    model = ig.deep_gp(X, NOISE, num_layers=3, width=2, num_inducing=5)
    matrix = np.asarray(model.layers[0].prior.mean_function.weights)
    vectors = np.linalg.eigh(np.cov(X.T))[1][:, :0:-1]
    np.testing.assert_allclose(np.abs(vectors.T @ matrix), np.eye(2), atol=1e-10)
    Z = np.asarray(ig.initialise.kmeans(X, 5))
    np.testing.assert_allclose(model.layers[0].features.Z, Z)
    for layer in model.layers[1:]:
        np.testing.assert_allclose(layer.features.Z, Z @ matrix)
    assert isinstance(model.layers[1].prior.mean_function, ig.means.Identity)
    assert model.width(3) == 1


def test_wide_layers_pad_with_zeros():
    model = ig.deep_gp(X, NOISE, width=5, num_inducing=5)
    mean = model.layers[0].prior.mean_function(jnp.asarray(X))
    np.testing.assert_allclose(mean, np.concatenate([X, np.zeros((12, 2))], axis=1))
    np.testing.assert_allclose(model.layers[1].features.Z[:, 3:], 0.0)


def test_outputs_and_a_latent_variable():
    latent = ig.LatentVariable(2, ig.layers.PerDatumEncoder(np.zeros((12, 2))))
    model = ig.deep_gp(X, ig.likelihoods.HeteroscedasticGaussian(), num_inducing=5, latent=latent)
    assert [type(layer).__name__ for layer in model.layers] == ["LatentVariable", "SparseGP", "SparseGP"]
    assert model.layers[1].features.Z.shape == (5, 5)  # inputs and latent variable
    assert model.width(3) == 2
    assert np.isfinite(elbo(model, (X, Y), key=KEY, importance=2))


def test_latent_variables_at_any_layer():
    latents = {0: ig.LatentVariable(1), 2: ig.LatentVariable(2)}
    model = ig.deep_gp(X, NOISE, num_layers=3, num_inducing=5, latent=latents)
    kinds = ["LatentVariable", "SparseGP", "SparseGP", "LatentVariable", "SparseGP"]
    assert [type(layer).__name__ for layer in model.layers] == kinds
    assert [layer.features.Z.shape for layer in model.layers if hasattr(layer, "features")] == [(5, 4), (5, 4), (5, 6)]
    Z, h = model.layers[4].features.Z[:, :4], np.asarray(model.layers[4].features.Z[:, 4:])
    np.testing.assert_allclose(Z, model.layers[1].features.Z)  # through identity means
    assert np.linalg.matrix_rank(np.concatenate([h, Z[:, 3:]], axis=1)) == 3  # latents are independent
    np.testing.assert_array_equal(  # one latent variable is that of the first layer
        ig.deep_gp(X, NOISE, num_inducing=5, latent={0: latents[0]}).layers[1].features.Z,
        ig.deep_gp(X, NOISE, num_inducing=5, latent=latents[0]).layers[1].features.Z,
    )


def test_a_latent_variable_above_an_idle_layer_is_one_below_it():
    """An inner layer that passes its inputs on, then h; against h and then the same last layer."""
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(RNG.normal(size=(12, 1)), scale=1e-7))
    deep = ig.deep_gp(X, NOISE, num_inducing=12, latent={1: latent})
    shallow = ig.Model([latent, deep.layers[2]], NOISE)
    value = elbo(deep, (X, Y), key=KEY) + deep.layers[0].kl()
    np.testing.assert_allclose(value, elbo(shallow, (X, Y), key=KEY), rtol=1e-4)


REFUSED = {
    "latent": ({"latent": {0: "h"}}, TypeError, "latent must be an ig.LatentVariable or a dictionary of them, got str"),
    "layer": ({"latent": {2: ig.LatentVariable(1)}}, ValueError, "latent has the key 2; .* from 0 to 1"),
    "layers": ({"num_layers": 0}, ValueError, "num_layers must be an integer of at least 1, got 0"),
    "inducing": ({"num_inducing": -1}, ValueError, "num_inducing must be an integer of at least 1, got -1"),
    "outputs": ({"num_outputs": 0}, ValueError, "num_outputs must be an integer of at least 1, got 0"),
    "width": ({"width": 0}, ValueError, "width must be an integer of at least 1, got 0"),
    "no inputs": ({"X": None}, ValueError, r"X must be a vector \[N\] or a matrix \[N, columns\], got NoneType"),
    "likelihood": ({"likelihood": "gaussian"}, TypeError, "likelihood must be one of ig.likelihoods, got str"),
    "kernel": ({"kernel": kernel(3)}, TypeError, "kernel must be a function that makes one from its number of inputs"),
    "class": ({"kernel": ig.kernels.Matern52}, TypeError, "kernel must be a function .* got the class Matern52"),
    "text": ({"kernel": "rbf"}, TypeError, "kernel must be a function .* got a str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, unchecked):
    arguments, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        ig.deep_gp(**{"X": X, "likelihood": NOISE, **arguments})


def test_fewer_data_than_the_width():
    X = np.random.default_rng(0).normal(size=(6, 12))
    model = ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_inducing=4, width=8)
    assert [layer.width(None) for layer in model.layers] == [8, 1]
    W = np.asarray(model.layers[0].prior.mean_function.weights)
    np.testing.assert_allclose(W.T @ W, np.eye(8), atol=1e-12)


def test_inducing_points_lie_where_the_latent_variable_does():
    latent = ig.LatentVariable(1, mean=[50.0], scale=[5.0])
    layer = ig.deep_gp(np.zeros((40, 0)), NOISE, num_layers=1, num_inducing=40, latent=latent).layers[1]
    h = np.asarray(layer.features.Z)
    assert abs(h.mean() - 50.0) < 4.5 * 5.0 / 40**0.5 and 3.0 < h.std() < 7.0
    assert 3.0 < layer.prior.kernel.lengthscale[0] < 7.0


def test_equal_inputs_with_different_latents_are_different_inducing_points():
    latent = ig.LatentVariable(2)
    for X, num, shape in ((np.zeros((30, 0)), 5, (5, 2)), (np.repeat([0.0, 1.0, 2.0], 10)[:, None], 20, (20, 3))):
        model = ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_inducing=num, latent=latent)
        Z = np.asarray(model.layers[1].features.Z)
        assert Z.shape == shape and len(np.unique(Z, axis=0)) == num


@pytest.mark.parametrize("kind", ["marginal", "mixed", "replicates"])
def test_an_inner_process_without_variance_at_a_datum(kind):
    """It is its mean there: bound and gradients stay finite."""
    X = np.array([[0.0, 0.0], [1.0, 0.5], [-1.0, 0.3]])
    prior = ig.priors.LMC([[1.0], [2.0]], ig.kernels.Linear()) if kind == "mixed" else None
    prior = prior or ig.priors.Independent(ig.kernels.ActiveDims(ig.kernels.Linear(), (0, 1)), num=2)
    latent = [ig.LatentVariable(1)] if kind == "replicates" else []
    inner = ig.SparseGP(prior, ig.features.InducingPoints(np.eye(2, 2 + len(latent))))
    last = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.eye(3, 2)))
    model = ig.Model([*latent, inner, last], ig.likelihoods.Gaussian(0.1))

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def bound(model):
        return ig.elbo(model, (X, np.ones(3)), key=jax.random.key(0), importance=3)

    value, gradient = bound(model)
    assert np.isfinite(value) and all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))


def test_layers_without_arrays_take_the_dtype_of_the_others():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    model = ig.Model(
        [ig.Skip(ig.Deterministic(jnp.tanh)), ig.Deterministic(lambda x: x[:1]), gp], ig.likelihoods.Gaussian()
    )
    model = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    X, y = np.ones((3, 1), np.float32), np.ones(3, np.float32)
    assert eqx.filter_jit(ig.elbo)(model, (X, y)).dtype == jnp.float32
    assert model.predict(X, full_cov=True).log_prob(y).dtype == jnp.float32


@pytest.mark.parametrize("num_layers", [1, 2])
def test_deep_gps_know_the_level_of_the_labels(num_layers):
    """Labels far from 0 need no centring, and far from the data predictions come back to their level."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1))
    y = 3e5 + 1e4 * np.sin(2 * X) + 1e3 * rng.standard_normal((60, 1))
    model = ig.deep_gp(X, ig.likelihoods.Gaussian(), num_layers=num_layers, num_inducing=15)
    model = ig.fit(model, (X, y), steps=150, progress=False).model
    mean = np.asarray(model.predict(np.append(X, [[100.0]], axis=0), samples=10).mean)
    assert np.sqrt(np.mean((mean[:-1] - y) ** 2)) < 1500 and abs(mean[-1, 0] - 3e5) < 2e4
