"""Weights of rows: a row of weight 2 is the row twice, one of weight 0 is left out, in every bound and in fits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(6, 2))
WEIGHT = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 1.0])
MIX = [[1.0, 0.5], [-0.3, 2.0]]
TWICE = np.repeat(np.arange(6), WEIGHT.astype(int))  # the rows as often as they count


def gp(prior=None):
    prior = ig.GP(ig.kernels.Matern52(lengthscale=0.4)) if prior is None else prior
    shape = (prior.num_latents, 3)
    return ig.SparseGP(prior, ig.features.InducingPoints(X[:3]), mean=RNG.normal(size=shape))


def labels(outputs=1):
    y = RNG.normal(size=(6, outputs))
    y[1, -1] = np.nan if outputs > 1 else y[1, -1]
    return y


def both(y, x=X):
    """The weighted data, and the rows repeated as often as they count."""
    return ig.Data(x, y, weight=WEIGHT), ig.Data(x[TWICE], y[TWICE])


MODELS = {
    "gaussian": (ig.Model(gp(), ig.likelihoods.Gaussian(0.3)), labels()),
    "noise per output": (
        ig.Model(
            gp(ig.priors.LMC(RNG.normal(size=(2, 2)), ig.kernels.Matern52())), ig.likelihoods.Gaussian([0.3, 0.2])
        ),
        labels(2),
    ),
    "independent": (
        ig.Model(gp(ig.priors.Independent(ig.kernels.Matern52(), num=2)), ig.likelihoods.Gaussian(0.3)),
        labels(2),
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("bound", [ig.elbo, ig.collapsed_elbo, ig.log_evidence])
def test_a_row_counts_as_often_as_its_weight(name, bound):
    model, y = MODELS[name]
    weighted, repeated = both(y)
    bound = eqx.filter_jit(bound)
    np.testing.assert_allclose(bound(model, weighted), bound(model, repeated), rtol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "noise per output"])
def test_the_optimal_q_of_weighted_rows(name):
    model, y = MODELS[name]
    weighted, repeated = (eqx.filter_jit(ig.collapse)(model, data).layers[0] for data in both(y))
    np.testing.assert_allclose(weighted.mean, repeated.mean, atol=1e-9)
    np.testing.assert_allclose(weighted.root, repeated.root, atol=1e-9)


def test_other_likelihoods_and_minibatches():
    model = ig.Model(gp(), ig.likelihoods.Poisson())
    y = RNG.poisson(2.0, size=(6, 1)).astype(float)
    weighted, repeated = both(y)
    elbo = eqx.filter_jit(ig.elbo)
    whole = elbo(model, repeated)
    np.testing.assert_allclose(elbo(model, weighted), whole, rtol=1e-12)
    rows = [elbo(model, weighted.rows(jnp.array([i])), num_data=6) for i in range(6)]
    np.testing.assert_allclose(np.mean(rows), whole, rtol=1e-12)


def test_a_latent_variable_counts_with_its_row():
    """The term of a row holds log p(h)/q(h): a weight scales both, here those of the only row."""
    encoder = ig.layers.PerDatumEncoder(np.array([[0.7]]), scale=0.5)
    model = ig.Model([ig.LatentVariable(1, encoder), ig.BayesianDense(1, 1)], ig.likelihoods.Gaussian(0.3))
    one, three = (ig.Data(None, [0.4], weight=None if w is None else [w]) for w in (None, 3.0))
    kl = float(model.kl())
    for bound in (ig.elbo, ig.iw_elbo_global):
        terms = [float(bound(model, data, key=KEY, importance=1)) for data in (one, three)]
        if bound is ig.elbo:
            np.testing.assert_allclose(terms[1] + kl, 3.0 * (terms[0] + kl), rtol=1e-12)
        else:
            assert terms[1] != terms[0]


def test_importance_over_weights():
    model = ig.Model(ig.BayesianDense(2, 1), ig.likelihoods.Gaussian(0.3))
    weighted, repeated = both(labels())
    values = [ig.iw_elbo_global(model, data, key=KEY, importance=5) for data in (weighted, repeated)]
    np.testing.assert_allclose(*values, rtol=1e-12)


def test_precomputed_sums():
    x = RNG.uniform(size=(6, 1))
    layer = ig.SparseGP(ig.GP(ig.kernels.Matern32()), ig.features.Fourier.around(x, 5))
    model = ig.Model(layer, ig.likelihoods.Gaussian(0.3))
    weighted, repeated = both(labels(), x)
    values = [ig.PrecomputedElbo(model, data)(model) for data in (weighted, repeated)]
    np.testing.assert_allclose(*values, rtol=1e-10)


def test_a_fit_does_not_see_rows_of_weight_zero():
    model, y = MODELS["gaussian"]
    far = np.where(WEIGHT[:, None] == 0, 1e6, y)  # would change the starting scales
    kept = np.flatnonzero(WEIGHT)
    weighted = ig.fit(model, ig.Data(X, far, weight=(WEIGHT > 0) * 1.0), steps=3, progress=False)
    without = ig.fit(model, (X[kept], y[kept]), steps=3, progress=False)
    for a, b in zip(jax.tree.leaves(weighted.model), jax.tree.leaves(without.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ([1.0, -1.0], "at least 0.*from -1 to 1"),
        ([0.0, 0.0], "not all of them 0"),
        ([1.0], r"shape \(2,\)"),
        ([1.0, np.nan], "weight has nan in row 1"),
        (["a", "b"], "not a number"),
    ],
)
def test_refused(weight, says):
    with pytest.raises((TypeError, ValueError), match=says):
        ig.Data([0.0, 1.0], [0.0, 1.0], weight=weight)


def test_the_closed_form_of_latent_variables():
    """Rows of whole weights against rows that occur so often, each with the same q(h)."""
    means = RNG.normal(size=(6, 1))
    layer = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential()), ig.features.InducingPoints([[0.0], [1.0]]))

    def model(means):
        latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(means, scale=0.1))
        return ig.Model([latent, layer], ig.likelihoods.Gaussian(0.1))

    y = labels()
    bound = eqx.filter_jit(ig.gplvm_elbo)
    weighted = bound(model(means), ig.Data(None, y, weight=WEIGHT))
    np.testing.assert_allclose(weighted, bound(model(means[TWICE]), ig.Data(None, y[TWICE])), rtol=1e-9)
