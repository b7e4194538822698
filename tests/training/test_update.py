"""Updates with new rows against fits to all rows at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 4.0, (24, 1))
Y = np.sin(2 * X) + 0.1 * RNG.normal(size=(24, 2))
Z = np.linspace(0.0, 4.0, 6)[:, None]


def gaussian(P=1, coordinates="w"):
    prior = (
        ig.GP(ig.kernels.Matern52()) if P == 1 else ig.priors.LMC([[1.0, 0.2], [0.5, 1.0]], [ig.kernels.Matern52()] * 2)
    )
    return ig.Model(
        ig.SparseGP(prior, ig.features.InducingPoints(Z), coordinates=coordinates), ig.likelihoods.Gaussian(0.05)
    )


@pytest.mark.parametrize("coordinates", ["u", "w"])
def test_updates_with_gaussian_noise_equal_the_fit_on_all_rows(coordinates):
    model = gaussian(coordinates=coordinates)
    streamed = model
    for rows in (slice(0, 3), slice(3, 20), slice(20, 24)):
        streamed = ig.update(streamed, (X[rows], Y[rows, :1]))
    a, b = (
        streamed.posterior(Z + 0.3, full_cov=True),
        ig.collapse(model, (X, Y[:, :1])).posterior(Z + 0.3, full_cov=True),
    )
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-8)
    np.testing.assert_allclose(a.covariance, b.covariance, atol=1e-8)


def test_outputs_that_mix_latents_are_exact_too_with_a_coupled_q():
    model = gaussian(P=2)
    first = ig.collapse(model, (X[:10], Y[:10]))
    a, b = ig.update(first, (X[10:], Y[10:])), ig.collapse(model, (X, Y))
    np.testing.assert_allclose(a.posterior(Z).mean, b.posterior(Z).mean, atol=1e-8)
    np.testing.assert_allclose(a.posterior(Z).variance, b.posterior(Z).variance, atol=1e-8)


def test_weights_and_memory_count_rows():
    """λ = ½ is old rows of weight ½; λ = 0 is a fit to the new rows."""
    model = gaussian()
    old, new = (X[:14], Y[:14, :1]), (X[14:], Y[14:, :1])
    first = ig.collapse(model, old)
    for memory in (0.5, 0.0):
        weight = np.where(np.arange(24) < 14, memory, 2.0)
        b = ig.collapse(model, ig.Data(X, Y[:, :1], weight=weight))
        a = ig.update(first, ig.Data(*new, weight=np.full(10, 2.0)), memory=memory)
        np.testing.assert_allclose(a.posterior(Z).mean, b.posterior(Z).mean, atol=1e-8)
        np.testing.assert_allclose(a.posterior(Z).variance, b.posterior(Z).variance, atol=1e-8)


def test_any_likelihood_reaches_the_maximum_of_its_bound():
    """From the prior it is that of ig.elbo, where a further natural step changes nothing; more rows make q surer."""
    labels = (Y[:, :1] > 0).astype(float)
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(Z))
    fresh = ig.Model(gp, ig.likelihoods.Bernoulli())
    first = ig.update(fresh, (X[:12], labels[:12]))
    grads = jax.grad(
        lambda q: ig.elbo(ig.Model(ig.SparseGP(gp.prior, gp.features, *q), fresh.likelihood), (X[:12], labels[:12]))
    )((first.layers[0].mean, first.layers[0].root))
    assert all(float(jnp.max(jnp.abs(jnp.tril(g) if g.ndim == 3 else g))) < 1e-4 for g in grads)
    both = ig.update(first, (X[12:], labels[12:]))
    alone = ig.update(fresh, (X, labels))  # on all rows: close, but not equal, since old rows enter as a Gaussian
    assert float(jnp.max(jnp.abs(both.posterior(X).mean - alone.posterior(X).mean))) < 0.1
    assert float(jnp.mean(both.posterior(X).variance)) < float(jnp.mean(first.posterior(X).variance))


def test_deep_models_are_refused_with_the_reason():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(Z))
    with pytest.raises(TypeError, match="one SparseGP layer"):
        ig.update(ig.Model([gp, gp], ig.likelihoods.Gaussian(0.1)), (X, Y[:, :1]))
    with pytest.raises(ValueError, match="memory must be"):
        ig.update(gaussian(), (X, Y[:, :1]), memory=1.5)
