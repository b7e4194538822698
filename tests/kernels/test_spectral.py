"""The spectral mixture and the categorical kernel against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing import kernels as K

RNG = np.random.default_rng(0)
MIXTURE = K.SpectralMixture([1.0, 0.5], [[0.3, -0.2], [0.0, 0.6]], [[0.1, 0.2], [0.3, 0.1]])


def test_a_spectral_mixture_is_its_formula():
    X, Z = RNG.normal(size=(5, 2)) + 100.0, RNG.normal(size=(3, 2)) + 100.0
    tau = X[:, None] - Z[None]
    want = 0.0
    for w, m, s in zip([1.0, 0.5], np.asarray(MIXTURE.means), np.asarray(MIXTURE.scales), strict=True):
        want = want + w * np.exp(-2 * np.pi**2 * np.sum((s * tau) ** 2, -1)) * np.cos(2 * np.pi * tau @ m)
    np.testing.assert_allclose(MIXTURE.gram(X, Z), want, atol=1e-10)
    np.testing.assert_allclose(jax.vmap(lambda x: jax.vmap(lambda z: MIXTURE(x, z))(Z))(X), want, atol=1e-12)


def test_its_spectral_density_is_the_fourier_transform():
    k = K.SpectralMixture([1.0, 0.5], [[0.3], [0.8]], [[0.1], [0.2]])
    s, h = jnp.linspace(-3.0, 3.0, 2001)[:, None], 6.0 / 2000
    for tau in (0.0, 0.7, 2.0):
        back = h * jnp.sum(k.spectral_density(s) * jnp.cos(2 * jnp.pi * s[:, 0] * tau))
        assert back == pytest.approx(float(k(jnp.zeros(1), jnp.full(1, tau))), abs=1e-9)


def test_random_features_have_the_covariance_of_the_kernel():
    """Both kernels, within five standard errors over 200 independent maps."""
    categories = jnp.array([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
    for kernel, X in ((MIXTURE, jnp.asarray(RNG.normal(size=(4, 2)))), (K.Categorical([0.4, 0.7], 1.3), categories)):

        def gram(key, kernel=kernel, X=X):
            phi = kernel.random_features(key, 32, 2)(X)
            return phi @ phi.T

        each = np.asarray(jax.vmap(gram)(jax.random.split(jax.random.key(0), 200)))
        error = each.std(0) / np.sqrt(200)
        assert np.all(np.abs(each.mean(0) - kernel.gram(X)) < 5 * error + 1e-12)


def test_the_start_finds_the_waves_of_the_data():
    """Two waves at irregular inputs, one along each column: frequencies to the resolution 1/range, and their powers."""
    X = RNG.uniform(0.0, [10.0, 5.0], (400, 2))
    y = 2.0 * np.sin(2 * np.pi * 1.3 * X[:, 0]) + np.cos(2 * np.pi * 2.0 * X[:, 1]) + 0.1 * RNG.normal(size=400)
    k = K.SpectralMixture.from_data(X, y, num=2)
    np.testing.assert_allclose(k.means, [[1.3, 0.0], [0.0, 2.0]], atol=0.02)
    np.testing.assert_allclose(k.weights, [2.0, 0.5], rtol=0.15)


def test_the_categorical_kernel_is_a_coregion_kernel_of_equal_correlations():
    X = jnp.array([[0.0], [2.0], [1.0], [2.0]])
    rho = 0.3
    same = K.Coregion(jnp.sqrt(rho) * jnp.ones((3, 1)), (1 - rho) * jnp.ones(3))
    np.testing.assert_allclose(K.Categorical(rho).gram(X), same.gram(X), atol=1e-14)


def test_categories_are_checked_and_shapes_too():
    gp = ig.SparseGP(ig.GP(K.Categorical()), ig.features.InducingPoints([[0.0], [1.0]]))
    with pytest.raises(ValueError, match=r"whole numbers from 0, got 0\.5"):
        ig.elbo(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 0.5], [1.0, 2.0]))
    with pytest.raises(ValueError, match=r"means \[Q, D\]"):
        K.SpectralMixture([1.0], [[1.0], [2.0]], [[1.0], [2.0]])
