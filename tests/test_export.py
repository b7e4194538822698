"""Predictions as programs of JAX for any number of rows, against the library's own numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import inducing as ig

X = np.random.default_rng(0).normal(size=(40, 2))


def model(likelihood):
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(jnp.ones(2)), ig.means.Constant(0.7)), ig.features.InducingPoints(X[:5]))
    return ig.Model(gp, likelihood)


def everything(pred):
    return pred.mean, pred.variance, pred.quantile(0.9), pred.log_prob(jnp.ones((pred.mean.shape[0], 1)))


@pytest.mark.parametrize("likelihood", [ig.likelihoods.Gaussian(0.1), ig.likelihoods.Poisson()])
def test_an_exported_prediction_is_the_prediction(likelihood, unchecked):  # the checks take a symbol for no int
    gp = model(likelihood)
    rows = jax.ShapeDtypeStruct(export.symbolic_shape("n, 2"), "float64")
    program = export.export(jax.jit(lambda X: (*everything(gp.predict(X)), gp.posterior(X, full_cov=True).covariance)))
    loaded = export.deserialize(program(rows).serialize())
    for n in (1, 40):
        expected = (*everything(gp.predict(X[:n])), gp.posterior(X[:n], full_cov=True).covariance)
        for got, truth in zip(loaded.call(X[:n]), expected, strict=True):
            np.testing.assert_allclose(got, truth, rtol=1e-9, atol=1e-12)
