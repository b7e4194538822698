"""Fourier features with frequency vectors: limits, and training them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import inducing as ig

F, k = ig.features, ig.kernels
RNG = np.random.default_rng(0)


def test_the_constant_feature_is_a_gaussian_average():
    """And a cosine of a vanishing frequency is the constant."""
    kernel, X = k.SquaredExponential([0.6, 0.9], 1.3), jnp.asarray(RNG.normal(size=(5, 2)))
    average = F.Multiscale([[0.2, -0.1]], [[0.5, 0.8]])
    waves = F.GaussianFourier([[1e-9, 0.0]], [0.2, -0.1], [0.5, 0.8])
    for got in waves.Kuf(kernel, X)[:2]:
        np.testing.assert_allclose(got, average.Kuf(kernel, X)[0], rtol=1e-12)
    np.testing.assert_allclose(waves.Kuu(kernel, 0.0).dense()[:2, :2], average.Kuu(kernel, 0.0).dense()[0, 0])


def test_enough_frequencies_explain_the_process():
    """Inside the window, K − Q vanishes as frequencies are added."""
    kernel = k.SquaredExponential(0.8, 1.3)
    X = jnp.asarray(RNG.uniform(-1.0, 1.0, (20, 2)))

    def unexplained(num):
        features = F.GaussianFourier.around(1.5 * RNG.normal(size=(200, 2)), num, 0.8)
        A = features.Kuu(kernel, 1e-10).root_solve(features.Kuf(kernel, X))
        return float(jnp.mean(kernel.diag(X) - jnp.sum(A**2, axis=0)))

    few, some, many = (unexplained(num) for num in (5, 30, 120))
    assert few > 5.0 * some > 20.0 * many > 0.0
    assert many < 0.01


def data(scale):
    X = np.random.default_rng(1).uniform(-1.0, 1.0, (150, 2))
    y = np.sin(X @ [3.0, 1.2]) + 0.1 * np.random.default_rng(2).normal(size=150)
    features = F.GaussianFourier(np.array([[2.2, 1.8]]) / scale, [0.0, 0.0], 0.8 * scale * np.ones(2))
    gp = ig.SparseGP(ig.GP(k.SquaredExponential(1.5 * scale)), F.Union((features,)) if scale > 1 else features)
    return ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (scale * X, y)


def test_frequencies_are_trained_in_any_units():
    """They move to where the energy is; inputs a thousand times as large change nothing, in a Union too."""
    found = []
    for scale in (1.0, 1000.0):
        model, (X, y) = data(scale)
        result = ig.fit(model, (X, y), method="collapsed", steps=60, progress=False, initialise=False)
        [omega] = [v for v in jax.tree.leaves(result.model.layers[0].features) if v.ndim == 2]
        found.append((result.bound, scale * np.asarray(omega)))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-3)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=0.02)
    assert found[0][0] > float(ig.collapsed_elbo(*data(1.0))) + 20.0


def test_a_box_in_one_dimension_is_the_plain_fourier_basis():
    a, b, num = -1.5, 1.6, 3
    plain = F.plain_fourier(a, b, num, 64)
    omega = 2.0 * np.pi * np.arange(1, num + 1) / (b - a)
    box = F.BoxFourier(omega[:, None], [a], [b], 64)
    X = jnp.linspace(-2.0, 2.0, 7)[:, None]
    phase = omega * (b - a) / 2.0  # waves start at the centre here, and at a there
    C, S = np.diag(np.cos(phase)), np.diag(np.sin(phase))
    turn = jax.scipy.linalg.block_diag(np.ones((1, 1)), np.block([[C, -S], [S, C]])) * (b - a)
    got = turn @ np.asarray(box.Kuf(k.Matern32(), X))
    np.testing.assert_allclose(got, plain.Kuf(k.Matern32(), X), atol=1e-12)


def test_draws_are_those_of_the_posterior():
    """Pathwise draws with Gaussian windows have the moments of q(f), so `apply` suits Kuu even where it is small."""
    features = F.GaussianFourier.around(RNG.normal(size=(50, 1)), 6, 0.5)
    mean = RNG.normal(size=13)
    gp = ig.SparseGP(ig.GP(k.SquaredExponential(0.5)), features, mean, 0.1 * np.ones(13))
    x = jnp.linspace(-1.0, 1.0, 4)[:, None]
    draws = eqx.filter_jit(jax.vmap(lambda key: gp.draw(key, 32, 1)(x)[:, 0]))(
        jax.random.split(jax.random.key(0), 1000)
    )
    centre, variance = gp.marginals(x)
    error = np.sqrt(np.asarray(variance)[:, 0] / 1000)
    assert (np.abs(np.asarray(draws).mean(0) - centre[:, 0]) < 5.0 * error).all()
    np.testing.assert_allclose(np.asarray(draws).var(0), variance[:, 0], rtol=0.2)
