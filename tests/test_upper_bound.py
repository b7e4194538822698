"""The upper bound of the evidence: above the exact one, below the looser one, and tight where features suffice."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.bounds import upper

collapsed_elbo, log_evidence = eqx.filter_jit(ig.collapsed_elbo), eqx.filter_jit(ig.log_evidence)

rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, size=(60, 2))
Y = np.stack([np.sin(4 * X[:, 0]), np.cos(3 * X[:, 1])], 1) + 0.1 * rng.normal(size=(60, 2))


def model_of(Z, prior=None, noise=0.05):
    prior = ig.GP(ig.kernels.Matern32(0.6), ig.means.Constant(0.2)) if prior is None else prior
    return ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(Z), jitter=1e-10), ig.likelihoods.Gaussian(noise))


def test_between_the_evidence_and_the_bound_by_the_trace(monkeypatch):
    """Both forms, which take the same log determinant; nested points lower the one by the trace."""
    data, loose = (X, Y[:, 0]), []
    exact = float(log_evidence(model_of(X[:1]), data))
    for M in (2, 8, 30):
        model = model_of(X[:M])
        tight = float(ig.evidence_upper_bound(model, data))
        with monkeypatch.context() as patch:
            patch.setattr(upper, "LABELS", 0)
            loose.append(float(upper._upper(model, ig.Data(*data))))
        assert float(collapsed_elbo(model, data)) < exact < tight < loose[-1]
    assert loose[0] > loose[1] > loose[2]


def test_all_inputs_as_points_leave_nothing():
    model, data = model_of(X), (X, Y[:, 0])
    exact = log_evidence(model, data)
    np.testing.assert_allclose(ig.evidence_upper_bound(model, data), exact, atol=1e-5)


@pytest.mark.parametrize("coupled", [True, False])
def test_several_outputs_with_missing_labels_and_weights(coupled, monkeypatch):
    monkeypatch.setattr(upper, "ROWS", 7)  # so that the last block is not full
    kernels = [ig.kernels.Matern32(0.7), ig.kernels.SquaredExponential(0.8)]
    mixed = ig.priors.LMC(jnp.array([[1.0, 0.5], [-0.3, 2.0]]), kernels)
    prior = mixed if coupled else ig.priors.Independent(kernels)
    labels = np.where(rng.random(Y.shape) < 0.2, np.nan, Y)
    data = ig.Data(X, labels, weight=rng.integers(0, 3, len(X)).astype(float))
    model = model_of(X[:12], prior, jnp.array([0.1, 0.4]))
    exact, bound = float(log_evidence(model, data)), float(ig.evidence_upper_bound(model, data))
    assert float(collapsed_elbo(model, data)) < exact < bound
    assert bound < exact + 60  # far above it would be no certificate
    full = model_of(X, prior, jnp.array([0.1, 0.4]))
    np.testing.assert_allclose(ig.evidence_upper_bound(full, data), log_evidence(full, data), atol=1e-4)


def test_other_models_are_refused():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern32()), ig.features.InducingPoints(X[:3]))
    with pytest.raises(TypeError, match="one SparseGP layer with a Gaussian likelihood"):
        ig.evidence_upper_bound(ig.Model(gp, ig.likelihoods.Bernoulli()), (X, (Y[:, 0] > 0).astype(float)))
