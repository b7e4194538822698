"""The bound of deep, latent-variable and unsupervised models against truths."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import inducing as ig

from .bounds import DATA, KEY, NOISE, N, X, Y, elbo, gp, latent_gp, mean_and_error
from .oracles.deep import nested_quadrature


def test_a_deterministic_layer_below_a_gp_is_a_gp_of_its_output():
    """One layer, and one layer on the identity, are the same model, to machine precision, and need no key."""
    shallow = ig.Model(gp(), ig.likelihoods.Gaussian(NOISE))
    deep = ig.Model([ig.layers.Deterministic(lambda x: x), gp()], ig.likelihoods.Gaussian(NOISE))
    assert not deep.is_stochastic
    np.testing.assert_allclose(elbo(deep, DATA), elbo(shallow, DATA), rtol=1e-14)


def test_a_deep_gp_with_vanishing_inner_variance_is_the_shallow_one():
    """An inner layer f(x) = x + (almost nothing) adds nothing but its own KL."""
    kernel = ig.kernels.SquaredExponential(1.0, 1e-20)
    features = ig.features.InducingPoints(X)
    inner = ig.SparseGP(ig.priors.Independent(kernel, num=1, mean=ig.means.Identity()), features)
    deep = ig.Model([inner, gp()], ig.likelihoods.Gaussian(NOISE))
    shallow = ig.Model(gp(), ig.likelihoods.Gaussian(NOISE))
    np.testing.assert_allclose(elbo(deep, DATA, key=KEY) + inner.kl(), elbo(shallow, DATA), rtol=1e-8)


def test_the_deep_bound_is_unbiased():
    """Against nested Gauss–Hermite quadrature through the layers' moments."""
    layers = [gp(mean=ig.means.Identity()), gp(mean=ig.means.Identity(), seed=1), gp(seed=2)]
    model = ig.Model(layers, ig.likelihoods.Gaussian(NOISE))
    exact = float(jnp.sum(eqx.filter_jit(nested_quadrature)(model, DATA, 40)) - model.kl())
    for samples in (1, 7):
        mean, error = mean_and_error(model, DATA, num=2000 // samples, samples=samples)
        assert abs(mean - exact) < 4.5 * error
    mean, error = mean_and_error(model, DATA, integrate=False)  # the last layer sampled as well
    assert abs(mean - exact) < 4.5 * error


def test_minibatches_are_scaled():
    model = ig.Model(gp(), ig.likelihoods.Gaussian(NOISE))
    halves = [elbo(model, DATA.rows(jnp.array(i)), num_data=N) for i in ([0, 1], [2, 3])]
    np.testing.assert_allclose(np.mean(halves), elbo(model, DATA), rtol=1e-12)


def test_permuting_data_changes_nothing():
    """To machine precision where nothing of a datum is sampled, or where what is sampled does not depend on noise."""
    order = np.array([2, 0, 3, 1])
    permuted = DATA.rows(jnp.asarray(order))
    shallow = ig.Model(gp(), ig.likelihoods.StudentT(4.0, 0.3))
    on_features = ig.Model([ig.layers.Deterministic(jnp.sin), gp()], ig.likelihoods.Gaussian(NOISE))
    for model in (shallow, on_features):
        np.testing.assert_allclose(elbo(model, permuted), elbo(model, DATA), rtol=1e-13)
    # q(h_n) of their own, next to points: rows of another datum would be noticed
    means = np.random.default_rng(1).normal(size=(N, 1))
    certain = latent_gp(ig.layers.PerDatumEncoder(means, scale=1e-9))
    values = [elbo(certain, d, key=KEY) for d in (DATA, permuted)]
    np.testing.assert_allclose(*values, rtol=1e-6)
    assert abs(elbo(certain, ig.Data(X[order], Y[order]), key=KEY) - values[0]) > 0.01  # renumbered: so it can tell


def test_rows_without_labels_contribute_nothing():
    model = latent_gp(ig.layers.PerDatumEncoder(np.random.default_rng(1).normal(size=(N + 1, 1)), scale=0.6))
    more = ig.Data(np.concatenate([X, [[0.3]]]), np.concatenate([Y, [[np.nan]]]))
    a, da = mean_and_error(model, DATA, importance=3)
    b, db = mean_and_error(model, more, importance=3)
    assert abs(a - b) < 4.5 * np.hypot(da, db)
    grad = eqx.filter_jit(eqx.filter_grad(lambda m: ig.elbo(m, more, key=KEY, importance=3)))(model)
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grad))
    assert not grad.layers[0].encoder.mean[-1].any()


def test_beta_weighs_every_divergence():
    model = latent_gp()
    one, zero, two = (float(elbo(model, DATA, key=KEY, beta=jnp.asarray(b))) for b in (1.0, 0.0, 2.0))
    kl = float(model.kl() + model.layers[0].posterior(DATA)[2].sum())
    np.testing.assert_allclose([zero - one, one - two], [kl, kl], rtol=1e-10)


def test_a_linear_auto_encoder_reaches_probabilistic_pca():
    """At PPCA's maximum-likelihood decoder, with the exact posterior as amortised encoder."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(50, 4)) + 1.0
    centre, S = y.mean(axis=0), np.cov(y.T, bias=True)
    values, vectors = np.linalg.eigh(S)
    noise = values[:2].mean()
    W = vectors[:, 2:] * np.sqrt(values[2:] - noise)
    evidence = multivariate_normal(centre, W @ W.T + noise * np.eye(4)).logpdf(y).sum()
    V = np.linalg.inv(np.eye(2) + W.T @ W / noise)
    raw = np.log(np.expm1(np.sqrt(np.diag(V))))  # V is diagonal at the maximum
    decoder = ig.layers.Deterministic(lambda h: jnp.asarray(W) @ h + centre)
    encoder = ig.layers.Amortised(
        lambda v: jnp.concatenate([jnp.asarray(V @ W.T / noise) @ (v - centre), jnp.asarray(raw)]), sees=("y",)
    )
    model = ig.Model([ig.LatentVariable(2, encoder), decoder], ig.likelihoods.Gaussian(noise))
    np.testing.assert_allclose(elbo(model, ig.Data(None, y), key=KEY, importance=3), evidence, rtol=1e-10)
    mean, error = mean_and_error(model, ig.Data(None, y), num=500)
    assert abs(mean - evidence) < 4.5 * error


def test_the_sampled_gplvm_bound_agrees_with_the_closed_form():
    rng = np.random.default_rng(4)
    y, level = rng.normal(size=(5, 2)), np.array([3.0, -50.0])
    data = ig.Data(None, y)
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(rng.normal(size=(5, 1)), scale=0.5))
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(0.8, 1.2), num=2)
    model = ig.Model(
        [latent, ig.SparseGP(prior, ig.features.InducingPoints([[-1.0], [0.0], [1.0]]))], ig.likelihoods.Gaussian(0.3)
    )
    bound = eqx.filter_jit(ig.gplvm_elbo)
    closed = float(bound(model, data))
    levels = ig.priors.Independent(ig.kernels.SquaredExponential(0.8, 1.2), num=2, mean=ig.means.Constant(level))
    far = eqx.tree_at(lambda m: m.layers[1].prior, model, levels)
    np.testing.assert_allclose(bound(far, ig.Data(None, y + level)), closed, rtol=1e-9)
    at_prior, error = mean_and_error(model, data, num=1000)
    assert at_prior < closed + 3 * error
    best, error = mean_and_error(eqx.filter_jit(ig.gplvm_collapse)(model, data), data, num=4000)
    assert abs(best - closed) < 4.5 * error
    with pytest.raises(TypeError, match="the closed form is for data without inputs"):
        ig.gplvm_elbo(latent_gp(), DATA)


def test_the_closed_gplvm_bound_with_missing_labels():
    """For h without doubt, the collapsed bounds of the outputs, each on its own rows; otherwise sampled."""
    rng = np.random.default_rng(4)
    y, h, Z = rng.normal(size=(6, 3)), rng.normal(size=(6, 1)), [[-1.0], [0.0], [1.0]]
    y[[0, 2, 3], [0, 0, 2]] = np.nan
    y[4] = np.nan  # a row without labels contributes nothing
    kernel, data = ig.kernels.SquaredExponential(0.8, 1.2), ig.Data(None, y)

    def model(scale):
        latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(h, scale=scale))
        gp = ig.SparseGP(ig.priors.Independent(kernel, num=3, mean=0.4), ig.features.InducingPoints(Z))
        return ig.Model([latent, gp], ig.likelihoods.Gaussian(0.3))

    alone = ig.Model(ig.SparseGP(ig.GP(kernel, 0.4), ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian(0.3))
    seen = ~np.isnan(y)
    exact = sum(float(ig.collapsed_elbo(alone, (h[s], y[s, p]))) for p, s in enumerate(seen.T))
    sure = model(1e-8)
    kl = np.delete(0.5 * (1e-16 + h[:, 0] ** 2 - 1.0) - np.log(1e-8), 4).sum()
    bound = eqx.filter_jit(ig.gplvm_elbo)
    np.testing.assert_allclose(bound(sure, data), exact - kl, rtol=1e-10)
    unsure = model(0.5)
    best, error = mean_and_error(eqx.filter_jit(ig.gplvm_collapse)(unsure, data), data, num=4000)
    assert abs(best - float(bound(unsure, data))) < 4.5 * error


def test_bad_input_is_refused(unchecked):
    model = latent_gp()
    with pytest.raises(ValueError, match="importance must be an integer of at least 1, got 0"):
        ig.elbo(model, DATA, key=KEY, importance=0)
    with pytest.raises(ValueError, match="samples must be an integer of at least 1, got 0"):
        ig.elbo(model, DATA, key=KEY, samples=0)
    with pytest.raises(ValueError, match=r"pass key=jax.random.key\(0\)"):
        ig.elbo(model, DATA)
    with pytest.raises(ValueError, match=r"pass key=jax.random.key\(0\)"):
        ig.elbo(ig.Model(gp(), ig.likelihoods.Gaussian(NOISE)), DATA, integrate=False)
    with pytest.raises(ValueError, match=r"this model is sampled.* pass key=jax.random.key\(0\)"):
        ig.iw_elbo_global(ig.Model(ig.BayesianDense(1, 1), ig.likelihoods.Gaussian(NOISE)), DATA, key=None)
    with pytest.raises(TypeError, match=r"key must be a random key .* got 7"):
        ig.elbo(model, DATA, key=7)
    with pytest.raises(ValueError, match="data have no labels y"):
        ig.elbo(model, ig.Data(X), key=KEY)
    with pytest.raises(ValueError, match="layers is empty"):
        ig.Model([], ig.likelihoods.Gaussian())
    with pytest.raises(ValueError, match="the last layer is a LatentVariable"):
        ig.Model([ig.LatentVariable(1)], ig.likelihoods.Gaussian())
    with pytest.raises(
        ValueError, match=r"layers\[0\], a SparseGP, gives 3 columns, which do not fit layers\[1\], a BayesianDense"
    ):
        ig.Model([gp(3), ig.BayesianDense(2, 1)], ig.likelihoods.Gaussian())
    with pytest.raises(ValueError, match=r"layers\[0\], a SparseGP, gives 3 columns, which do not fit layers\[1\]"):
        ig.Model([gp(3), gp(D=2)], ig.likelihoods.Gaussian())
    with pytest.raises(
        ValueError, match=r"X has 1 columns, .* its function fails for a point of 1 entries .Too many ind"
    ):
        ig.elbo(ig.Model([ig.Deterministic(lambda X: X[:, :1]), gp()], ig.likelihoods.Gaussian()), DATA)
    rows = ig.LatentVariable(1, ig.layers.Amortised(lambda V: V[:, :2]))
    with pytest.raises(ValueError, match=r"network fails for the 3 numbers that it sees .* It says: Too many indices"):
        ig.elbo(ig.Model([rows, gp(D=2)], ig.likelihoods.Gaussian()), DATA, key=KEY)
    with pytest.raises(ValueError, match="X has 2 columns"):
        ig.elbo(ig.Model(gp(), ig.likelihoods.Gaussian()), (np.zeros((3, 2)), np.zeros(3)))
    with pytest.raises(ValueError, match="gives 1 latent functions, a number that HeteroscedasticGaussian cannot use"):
        ig.Model(gp(), ig.likelihoods.HeteroscedasticGaussian())
    inner = ig.layers.Amortised(lambda v: jnp.concatenate([v[:1], v[:1]]), sees=("input",))
    seeing = ig.Model([gp(), ig.LatentVariable(1, inner), gp(D=2)], ig.likelihoods.Gaussian(NOISE))
    with pytest.raises(TypeError, match=r"the encoder of layers\[1\] sees its layer's input"):
        ig.elbo(seeing, DATA, key=KEY, importance=2, doubly_reparameterised=True)
    with pytest.raises(TypeError, match="for models with a LatentVariable that has an encoder"):
        ig.elbo(
            ig.Model([gp(), gp()], ig.likelihoods.Gaussian()), DATA, key=KEY, importance=2, doubly_reparameterised=True
        )
