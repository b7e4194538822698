"""Exact regression against NumPy, its noise in every shape, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import inducing as ig

RNG = np.random.default_rng(0)
X, XS = RNG.uniform(-1, 1, (5, 1)), RNG.uniform(-1, 1, (4, 1))
W = np.array([[1.0, 0.3], [-0.5, 0.8]])
PRIOR = ig.priors.LMC(W, [ig.kernels.SquaredExponential(0.6), ig.kernels.Matern32(0.9, 1.3)])
Y = RNG.normal(size=(5, 2))
NOISES = {"number": 0.3, "output": [0.2, 0.5], "datum": np.linspace(0.1, 0.9, 5), "label": RNG.uniform(0.1, 1, (5, 2))}


def covariance(a, b):
    """Σ_l W[p, l] W[q, l] k_l(a, b), flattened datum by datum."""
    r = np.abs(a - b.T)
    smooth, rough = np.exp(-0.5 * (r / 0.6) ** 2), 1.3 * (1 + np.sqrt(3) * r / 0.9) * np.exp(-np.sqrt(3) * r / 0.9)
    K = sum(np.einsum("p,nm,q->npmq", w, k, w) for w, k in zip(W.T, (smooth, rough), strict=True))
    return K.reshape(2 * len(a), 2 * len(b))


@pytest.mark.parametrize("shape", NOISES)
def test_the_posterior_is_the_textbook_one(shape):
    noise = np.asarray(NOISES[shape])
    each = np.broadcast_to(noise[:, None] if shape == "datum" else noise, (5, 2)).reshape(-1)
    exact = PRIOR.condition(X, Y, NOISES[shape])
    Kyy, Ksy = covariance(X, X) + np.diag(each), covariance(XS, X)
    cov = covariance(XS, XS) - Ksy @ np.linalg.solve(Kyy, Ksy.T)
    np.testing.assert_allclose(exact.mean(XS).reshape(-1), Ksy @ np.linalg.solve(Kyy, Y.reshape(-1)), rtol=1e-9)
    np.testing.assert_allclose(exact.covariance(XS), cov, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(exact.variance(XS).reshape(-1), np.diag(cov), rtol=1e-9)
    evidence = multivariate_normal(np.zeros(10), Kyy).logpdf(Y.reshape(-1))
    np.testing.assert_allclose(exact.log_marginal_likelihood, evidence, rtol=1e-10)


def test_the_evidence_has_the_dtype_of_the_prior():
    gp = ig.GP(ig.kernels.Matern12(jnp.ones((), jnp.float32), jnp.ones((), jnp.float32)))
    evidence = jax.eval_shape(lambda: gp.condition(X, Y[:, :1], 0.1).log_marginal_likelihood)
    assert evidence.dtype == jnp.float32


def test_variances_of_many_points_need_no_covariance():
    exact = PRIOR.condition(X, Y, 0.1)
    jaxpr = jax.make_jaxpr(exact.variance)(jnp.linspace(-1, 1, 300)[:, None])
    assert max(v.aval.size for e in jaxpr.jaxpr.eqns for v in e.outvars) < 300 * 300


def test_without_noise_it_interpolates():
    exact = ig.GP(ig.kernels.Matern12()).condition(X, Y[:, :1], 0.0)
    np.testing.assert_allclose(exact.mean(X), Y[:, :1], rtol=1e-10)
    np.testing.assert_allclose(exact.variance(X), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (-0.1, "noise_variance must be finite and at least 0, got -0.1"),
        (np.nan, "noise_variance must be finite and at least 0, got nan"),
        ([0.1, np.inf], "noise_variance must be finite and at least 0, got inf"),
        (np.ones(3), r"noise_variance has shape \[3\]; pass one number, or \[2\], \[5\] or \[5, 2\]"),
        (np.ones((2, 5)), r"noise_variance has shape \[2, 5\]"),
        (np.ones((1, 5, 2)), r"noise_variance has shape \[1, 5, 2\]"),
    ],
)
def test_bad_noise_is_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        PRIOR.condition(X, Y, noise)


@pytest.mark.parametrize("noise", [0.0, 1e-20])
def test_jitter_is_never_added_in_silence(noise):
    twice = np.concatenate([X, X])
    with pytest.raises(ValueError, match=f"not positive definite with noise_variance {noise:.3g}; pass a larger"):
        ig.GP(ig.kernels.SquaredExponential()).condition(twice, np.ones(10), noise)


def test_noise_of_missing_labels_is_not_looked_at():
    y = np.where(np.arange(5)[:, None] == 2, np.nan, Y)
    noise = np.where(np.isnan(y), np.nan, 0.2)
    got, expected = (PRIOR.condition(X, y, n) for n in (noise, 0.2))
    np.testing.assert_allclose(got.mean(XS), expected.mean(XS), rtol=1e-12)
    np.testing.assert_allclose(got.log_marginal_likelihood, expected.log_marginal_likelihood, rtol=1e-12)


def test_traced_noise():
    def evidence(noise):
        return PRIOR.condition(X, Y, noise).log_marginal_likelihood

    slope = jax.jit(jax.grad(evidence))(0.3)
    np.testing.assert_allclose(slope, (evidence(0.3 + 1e-5) - evidence(0.3 - 1e-5)) / 2e-5, rtol=1e-7)
