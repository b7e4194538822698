"""The exact evidence against dense NumPy, and what a model trained by it predicts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend.core import jaxprs_in_params
from jax.test_util import check_grads

import inducing as ig
from inducing.linalg import halved

rng = np.random.default_rng(0)
N = 90
X = rng.normal(size=(N, 3))
y = np.sin(X.sum(1)) + 0.1 * rng.normal(size=N)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of at most 24 rows, so that a small matrix is halved twice, the second time with padding."""
    monkeypatch.setattr(halved, "BLOCK", 24)


def model_of(prior, likelihood=None, Z=X[:2]):
    gp = ig.SparseGP(prior, ig.features.InducingPoints(Z))
    return ig.Model(gp, ig.likelihoods.Gaussian(0.1) if likelihood is None else likelihood)


def dense_evidence(model, X, y):
    """log N(y | μ, K + Σ) of the labels that are there, by NumPy."""
    prior, y = model.layers[0].prior, np.asarray(y).reshape(len(X), -1)
    noise = np.broadcast_to(np.asarray(model.likelihood.variance), y.shape).reshape(-1)
    seen = ~np.isnan(y.reshape(-1))
    K = (np.asarray(prior.covariance(jnp.asarray(X))) + np.diag(noise))[np.ix_(seen, seen)]
    r = (y - np.asarray(prior.mean(jnp.asarray(X)))).reshape(-1)[seen]
    return -0.5 * (r @ np.linalg.solve(K, r) + np.linalg.slogdet(K)[1] + len(r) * np.log(2 * np.pi))


def test_evidence_of_one_output():
    model = model_of(ig.GP(ig.kernels.Matern52(jnp.array([0.5, 1.0, 2.0])), ig.means.Constant(0.3)))
    assert halved.depth(N) == 2
    np.testing.assert_allclose(jax.jit(ig.log_evidence)(model, (X, y)), dense_evidence(model, X, y), rtol=1e-12)


def test_evidence_of_several_outputs_with_missing_labels():
    kernels = [ig.kernels.Matern32(0.7), ig.kernels.SquaredExponential(1.5)]
    prior = ig.priors.LMC(jnp.array([[1.0, 0.5], [-0.3, 2.0]]), kernels)
    model = model_of(prior, ig.likelihoods.Gaussian(jnp.array([0.1, 0.4])))
    Y = np.stack([y, np.cos(X[:, 0])], 1)[:31]
    Y[rng.random(Y.shape) < 0.2] = np.nan
    value = jax.jit(ig.log_evidence)(model, (X[:31], Y))
    np.testing.assert_allclose(value, dense_evidence(model, X[:31], Y), rtol=1e-12)


def test_gradient_of_the_evidence():
    """By finite differences, in both modes; and twice differentiated."""
    model = model_of(ig.GP(ig.kernels.SquaredExponential(jnp.array([0.5, 1.0, 2.0])), ig.means.Constant(0.3)))

    def value(lengthscale, noise, x):
        at = eqx.tree_at(
            lambda m: (m.layers[0].prior.kernel.lengthscale, m.likelihood.variance), model, (lengthscale, noise)
        )
        return ig.log_evidence.evaluate(at, eqx.tree_at(lambda d: d.x, ig.Data(X[:40], y[:40]), x))

    start = model.layers[0].prior.kernel.lengthscale, model.likelihood.variance, jnp.asarray(X[:40])
    check_grads(jax.jit(value), start, order=2, rtol=1e-4, eps=1e-4)


def test_gradient_needs_no_array_of_all_pairs_and_columns():
    model = model_of(ig.GP(ig.kernels.Matern52(jnp.ones(3))))
    jaxpr = jax.make_jaxpr(eqx.filter_grad(lambda m: ig.log_evidence(m, (X, y))))(model)
    n = -(-N // 4) * 4

    def sizes(jaxpr):
        for eqn in jaxpr.eqns:
            yield from (v.aval.size for v in eqn.outvars)
            for sub in jaxprs_in_params(eqn.params):
                yield from sizes(sub)

    assert max(sizes(jaxpr.jaxpr)) <= n * n // 4 + n * n // 8


def test_singular_covariance():
    model = model_of(ig.GP(ig.kernels.SquaredExponential(100.0)), ig.likelihoods.Gaussian(1e-30))
    with pytest.raises(ValueError, match="noise variance of 1e-30"):
        ig.log_evidence(model, (X, y))


def test_a_value_that_rounding_would_decide_is_refused():
    """Smooth functions have a covariance that is singular up to rounding; rough ones do not, even without noise."""
    x = np.linspace(0.0, 1.0, 40)

    def evidence(kernel):
        gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(x[:1, None]))
        return float(ig.log_evidence(ig.Model(gp, ig.likelihoods.Gaussian(1e-18)), (x, np.sin(x))))

    with pytest.raises(ValueError, match="noise variance of 1e-18"):
        evidence(ig.kernels.Matern52(16.0, 90.0))
    kernel = ig.kernels.Matern12()
    K = np.exp(-np.abs(x[:, None] - x[None]))
    truth = scipy.stats.multivariate_normal(cov=K).logpdf(np.sin(x))
    np.testing.assert_allclose(evidence(kernel), truth, rtol=1e-9)
