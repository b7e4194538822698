"""Priors and exact posteriors as models: samples, draws, predictions and files, against dense NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import inducing as ig

K = ig.kernels
RNG = np.random.default_rng(0)
KEY = jax.random.key(3)
W = np.array([[1.0, 0.3], [-0.5, 0.8], [0.7, 0.0]])
LMC = ig.priors.LMC(W, [K.SquaredExponential(0.6), K.Matern32(0.9, 1.3)], mean=ig.means.Constant([1.0, 0.0, -2.0]))
X, XS = RNG.uniform(-1, 1, (6, 1)), np.linspace(-1.2, 1.2, 4)[:, None]
Y = np.where(RNG.uniform(size=(6, 3)) < 0.25, np.nan, RNG.normal(size=(6, 3)))
PATCHES = ig.priors.ImageConvolution(K.SquaredExponential(1.5), (3, 3), (2, 2))
IMAGES, NEW_IMAGES = RNG.normal(size=(5, 9)), RNG.normal(size=(3, 9))
CASES = {
    "lmc": (LMC, X, Y, XS),
    "independent": (ig.priors.Independent([K.Matern12(), K.Matern52(2.0)]), X, Y[:, :2], XS),
    "slopes": (ig.priors.Derivative(ig.GP(K.Matern52(), 1.0), 1, values=True), X, Y[:, 1:], XS),
    "patches": (PATCHES, IMAGES, RNG.normal(size=(5, 4)), NEW_IMAGES),
    "rows": (ig.priors.as_input(LMC), np.c_[X, [0, 1, 2, 0, 1, 2]], Y[:, :1], np.c_[XS, [0, 1, 2, 2]]),
    "matrix": (ig.priors.MatrixValued(ig.priors.as_input(LMC).kernel, 3), X, Y, XS),
}  # fmt: skip


def truth(prior, X, Y, XS, noise):
    """Mean [n·P] and covariance of f(XS) given the labels that are present, and their log density."""
    n, seen = X.shape[0] * Y.shape[1], np.isfinite(Y).reshape(-1)
    both = jnp.asarray(np.concatenate([X, XS]))
    mean, cov = (np.asarray(v) for v in jax.jit(lambda p, b: (p.mean(b).reshape(-1), p.covariance(b)))(prior, both))
    S = cov[:n, :n][seen][:, seen] + np.diag(np.broadcast_to(noise, Y.shape).reshape(-1)[seen])
    gain = np.linalg.solve(S, cov[:n, n:][seen]).T
    y = Y.reshape(-1)[seen]
    evidence = multivariate_normal(mean[:n][seen], S).logpdf(y)
    return mean[n:] + gain @ (y - mean[:n][seen]), cov[n:, n:] - gain @ cov[:n, n:][seen], evidence


@pytest.mark.parametrize("name", CASES)
def test_every_prior_has_its_exact_posterior(name):
    prior, X, Y, XS = CASES[name]
    P = prior.num_outputs
    noise = np.linspace(0.1, 0.3, P)
    mean, cov, evidence = truth(prior, X, Y, XS, noise)
    exact = prior.condition(X, Y, noise)
    np.testing.assert_allclose(exact.log_marginal_likelihood, evidence, rtol=1e-9)
    every = cov.reshape(len(XS), P, len(XS), P)
    marginal, outputs = exact.predict(XS), exact.predict(XS, output_cov=True)
    joint = exact.predict(XS, full_cov=True)
    for predicted in (marginal, outputs, joint):
        np.testing.assert_allclose(predicted.mean.reshape(-1), mean, rtol=1e-7, atol=1e-9)
        variance = np.diagonal(cov).reshape(-1, P) + noise
        np.testing.assert_allclose(predicted.variance, variance, rtol=1e-7)
    np.testing.assert_allclose(outputs.latent_cov, np.einsum("npnq->npq", every), atol=1e-9)
    np.testing.assert_allclose(joint.latent_cov[0], cov, atol=1e-9)
    y = RNG.normal(size=(len(XS), P))
    y[0, 0] = np.nan
    seen = np.isfinite(y).reshape(-1)
    S = (cov + np.diag(np.tile(noise, len(XS))))[seen][:, seen]
    expected = multivariate_normal(mean[seen], S).logpdf(y.reshape(-1)[seen])
    np.testing.assert_allclose(exact.log_prob(XS, y), expected, rtol=1e-7)


def test_noise_of_new_labels():
    exact = ig.GP(K.Matern52()).condition([0.0, 1.0], [1.0, 2.0], np.array([[0.1], [0.2]]))
    with pytest.raises(ValueError, match="its own noise variance"):
        exact.predict([0.5])
    f = exact.variance([0.5, 0.7, 0.9])
    got = exact.predict([0.5, 0.7, 0.9], noise_variance=[0.3, 0.0, 0.2]).variance
    np.testing.assert_allclose(got[:, 0], np.asarray(f)[:, 0] + [0.3, 0.0, 0.2], rtol=1e-12)
    quiet = exact.predict([0.5], noise_variance=0.0)
    low, high = quiet.interval(0.9)
    np.testing.assert_allclose(high - low, 2 * norm.ppf(0.95) * np.sqrt(exact.variance([0.5])), rtol=1e-6)
    with pytest.raises(ValueError, match="leave output_cov out"):
        exact.predict([0.5], full_cov=True, output_cov=True, noise_variance=0.1)
    with pytest.raises(ValueError, match="X has 2 columns"):
        exact.mean([[0.5, 1.0]])
    with pytest.raises(ValueError, match="output_cov=True"):
        LMC.condition(X, Y, 0.1).predict(XS).sample(KEY)


def check_moments(samples, mean, cov):
    """Means and covariances of S samples [S, n] within five standard errors."""
    S = len(samples)
    centred = samples - mean[None]
    scale = np.sqrt(np.diagonal(cov))
    assert (np.abs(centred.mean(0)) < 5 * scale / math.sqrt(S) + 1e-6).all()
    spread = np.sqrt(np.outer(scale**2, scale**2) + cov**2)
    assert (np.abs(centred.T @ centred / S - cov) < 5 * spread / math.sqrt(S) + 1e-6).all()


def test_samples_and_draws():
    """Samples and function draws of the prior and of its posterior have their moments."""
    prior, X, Y, XS = CASES["lmc"]
    noise, P = 0.2, prior.num_outputs
    rows = jnp.asarray(XS)
    before = np.asarray(prior.mean(rows)).reshape(-1), np.asarray(prior.covariance(rows))
    exact = prior.condition(X, Y, noise)
    after = truth(prior, X, Y, XS, noise)[:2]
    for part, (mean, cov) in ((prior, before), (exact, after)):
        samples = part.sample(KEY, XS, (2, 1000))
        assert samples.shape == (2, 1000, len(XS), P)
        check_moments(np.asarray(samples).reshape(2000, -1), mean, cov)
        drawn = jax.jit(lambda keys, part=part: jax.vmap(lambda k: part.draw(k, 32)(rows))(keys))
        check_moments(np.asarray(drawn(jax.random.split(KEY, 2000))).reshape(2000, -1), mean, cov)
    f = exact.draw(KEY, 16)
    np.testing.assert_allclose(f(XS)[:2], f(XS[:2]), atol=1e-10)


def test_draws_of_kernels_without_features_are_refused():
    class Brownian(K.AbstractPointKernel):
        def __call__(self, x, y):
            return jnp.minimum(x, y).sum()

    prior = ig.GP(Brownian())
    assert prior.sample(KEY, [1.0, 2.0], 3).shape == (3, 2, 1)
    with pytest.raises(TypeError, match="no random features"):
        prior.draw(KEY)([1.0])
    with pytest.raises(TypeError, match="no random features"):
        prior.condition([1.0], [2.0], 0.1).draw(KEY)
    with pytest.raises(ValueError, match="num_features"):
        prior.draw(KEY, 0)
    with pytest.raises(ValueError, match="last column"):
        ig.priors.as_input(LMC).sample(KEY, [[0.3, 5.0]])


def test_a_process_without_variance_is_its_mean():
    prior = ig.GP(K.Linear(), 2.0)
    np.testing.assert_allclose(prior.sample(KEY, [0.0], 5), 2.0, atol=1e-6)


def test_files(tmp_path):
    exact = LMC.condition(X, Y, [0.1, 0.2, 0.3])
    ig.save(tmp_path / "exact.ig", exact)
    loaded = ig.load(tmp_path / "exact.ig")
    np.testing.assert_array_equal(loaded.predict(XS).mean, exact.predict(XS).mean)
    np.testing.assert_array_equal(loaded.draw(KEY, 8)(XS), exact.draw(KEY, 8)(XS))
    own = LMC.condition(X, Y, np.full(Y.shape, 0.1))
    ig.save(tmp_path / "own.ig", own)
    np.testing.assert_array_equal(ig.load(tmp_path / "own.ig").mean(XS), own.mean(XS))


def test_predictions_of_many_inputs_are_made_in_blocks():
    exact = ig.GP(K.Matern52(0.7), 0.5).condition(X, Y[:, 0], 0.1)
    many = np.linspace(-1, 1, 200_001)[:, None]
    few = np.array([0, 100_000])
    np.testing.assert_allclose(exact.predict(many).variance[few], exact.predict(many[few]).variance)
