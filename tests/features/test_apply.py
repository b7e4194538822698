"""`apply` by quadrature: how accurate it is, and that its cost is bounded, in any dimension."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

F, k = ig.features, ig.kernels


def _sphere(dim):
    X = np.random.default_rng(0).normal(size=(8, dim))
    return jnp.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _normal(dim):
    return jnp.asarray(np.random.default_rng(0).normal(size=(8, dim)))


def _mercer(dim, num, lengthscale):
    return F.EigenMercer(num, np.full(dim, 0.1), np.ones(dim)), k.SquaredExponential(lengthscale), _normal(dim)


def _multiscale(dim, width, lengthscale=1.0):
    return F.Multiscale(_normal(dim)[:3], np.full((3, dim), width)), k.SquaredExponential(lengthscale), _normal(dim)


def _gaussian_fourier(dim, num, lengthscale):
    features = F.GaussianFourier.around(_normal(dim), num, lengthscale)
    return features, k.SquaredExponential(lengthscale), _normal(dim)


@pytest.mark.parametrize(
    ("features", "kernel", "X", "error"),
    [
        (*_mercer(1, 100, 0.2), 1e-12),
        (*_mercer(3, 40, 1.0), 1e-7),
        (*_mercer(4, 40, 2.0), 1e-5),
        (*_mercer(5, 40, 1.0), 1e-2),
        (*_mercer(8, 50, 1.5), 1e-2),
        (*_multiscale(1, 1.0, 0.05), 1e-7),
        (*_multiscale(2, 1.0, 0.2), 1e-7),
        (*_multiscale(3, 1.0), 1e-7),
        (*_multiscale(4, 1.0), 1e-3),
        (*_multiscale(8, 0.5), 1e-3),
        (*_gaussian_fourier(1, 40, 0.1), 1e-9),
        (*_gaussian_fourier(2, 20, 0.3), 1e-9),
        (*_gaussian_fourier(3, 5, 1.0), 1e-7),
        (F.SphericalHarmonics(2, 8), k.Spherical(k.Matern32(0.8)), _sphere(2), 1e-9),
        (F.SphericalHarmonics(4, 3), k.SphericalArcCosine(1), _sphere(4), 1e-4),
        (F.SphericalHarmonics(5, 5), k.Spherical(k.Matern52(0.8)), _sphere(5), 1e-2),
        (F.SphericalHarmonics(9, 3), k.SphericalArcCosine(1), _sphere(9), 1e-2),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, F.AbstractFeatures) else "",
)
def test_apply_is_as_accurate_as_documented(features, kernel, X, error):
    """Of functions k(·, x), whose functionals Kuf are known in closed form."""

    @eqx.filter_jit
    def compute(features, kernel, X):
        return features.apply(lambda Z: kernel.gram(Z, X), kernel), features.Kuf(kernel, X), kernel.diag(X)

    got, expected, variance = jax.tree.map(np.asarray, compute(features, kernel, X))
    assert np.abs((got - expected) / np.sqrt(variance)).max() < error
    assert np.abs(expected).max() > 10 * error  # else zeros would do


def test_mercer_apply_in_single_precision():
    """Polynomials of high degree at far nodes do not overflow."""
    features = F.EigenMercer(60, jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.float32))
    kernel = k.SquaredExponential(jnp.float32(0.3), jnp.float32(1.0))
    X = jnp.asarray([[0.2], [-1.0]], jnp.float32)
    got = features.apply(lambda Z: kernel.gram(Z, X), kernel)
    np.testing.assert_allclose(got, features.Kuf(kernel, X), atol=1e-5)


def test_laplacian_apply_is_exact_for_draws_in_many_dimensions():
    """The midpoint rule gives Σ_j c_j φ_j back its coefficients c, of fewer features than the kernel has too."""
    kernel = k.HilbertSpace(k.SquaredExponential(0.8), [(-1.0, 1.0), (0.0, 3.0), (-2.0, 1.0), (0.0, 1.0)], 3)
    rng = np.random.default_rng(0)
    c = jnp.asarray(rng.normal(size=81))

    @jax.jit
    def compute():
        def draw(X):
            return (
                kernel.random_features(jax.random.key(0), 1, 4)(X) / jnp.sqrt(kernel.spectrum(X.dtype))[None, :]
            ) @ c

        return [F.EigenLaplacian(kernel.box, num).apply(draw, kernel) for num in (3, (2, 3, 3, 3))]

    every, fewer = compute()
    np.testing.assert_allclose(every, c, atol=1e-12)
    np.testing.assert_allclose(fewer, c[:54], atol=1e-12)


def test_draws_in_eight_dimensions():
    """Small enough to compute, and of q(f) within Monte Carlo error."""
    X = jnp.asarray(np.random.default_rng(0).normal(size=(20, 8)))
    kernel = k.SquaredExponential(2.5)
    layer = ig.SparseGP(ig.GP(kernel), F.EigenMercer(45, np.zeros(8), np.ones(8)))
    model = ig.collapse(ig.Model(layer, ig.likelihoods.Gaussian(0.01)), ig.Data(X, jnp.sin(X.sum(1))))
    num = 100

    @eqx.filter_jit
    def compute(layer):
        keys = jax.random.split(jax.random.key(0), num)
        return jax.lax.map(lambda key: layer.draw(key, 32, 8)(X[:4])[:, 0], keys), layer.marginals(X[:4])

    draws, (mean, variance) = compute(model.layers[0])
    error = np.sqrt(np.asarray(variance)[:, 0] / num)
    assert (np.abs(draws.mean(0) - mean[:, 0]) < 4.5 * error + 1e-3).all()
    np.testing.assert_allclose(draws.var(0), variance[:, 0], rtol=4.5 * np.sqrt(2 / num))


def test_grids_and_numbers_of_features_have_a_limit():
    """The error names the size and the cure, before anything of that size exists."""
    line = F.Fourier(0.0, 1.0, 20)
    three = [k.ActiveDims(k.Matern32(), (d,)) for d in range(3)]
    cases = [
        (
            lambda: k.HilbertSpace(k.Matern32(), [(-1.0, 1.0)] * 8, 10),
            "10 × .* = 100000000 eigenfunctions, more than 5000",
        ),
        (lambda: F.EigenLaplacian([(-1.0, 1.0)] * 2, (100, 51)), "100 × 51 = 5100 .*use fewer"),
        (lambda: k.HilbertSpace(k.Matern32(), (-1.0, 1.0), 2.5), "num must be a whole number from 1.*2.5"),
        (lambda: F.Product((line,) * 3), "41 × 41 × 41 features are 68921, more than 50000; use fewer"),
        (
            lambda: F.Product((F.Fourier(0.0, 1.0, 9),) * 3).apply(lambda X: X[:, 0], three[0] * three[1] * three[2]),
            r"grid of 272 × 272 × 272 = 20123648 nodes, more than .*use fewer",
        ),
        (lambda: F.Integral(lambda x: x, [0.0] * 5, [1.0] * 5), "64 × 64 × 64 × 64 × 64 = 1073741824 nodes"),
        (lambda: F.RegionAverage([[0.0] * 8], [[1.0] * 8]), "= 16777216 nodes"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_numpy_integers_are_whole_numbers():
    three = np.int64(3)
    assert F.Fourier(0.0, 1.0, three).num_features == 7
    assert F.plain_fourier(0.0, 1.0, three).num_features == 7
    assert F.EigenMercer(three, [0.0], [1.0]).num_features == 3
    assert F.EigenNumerical(np.zeros((4, 1)), three).num_features == 3
    assert F.SphericalHarmonics(three, np.int32(2)).num_features == 9
    assert F.InducingDerivatives(np.zeros((2, 2)), np.int64(1)).num_features == 2
    assert k.HilbertSpace(k.Matern32(), [(-1.0, 1.0)] * 2, three).num == (3, 3)
    one = np.int64(1)
    assert [type(d.degree) for d in (k.Polynomial(three), k.SphericalArcCosine(one))] == [int, int]
    assert k.ArcCosine(one).order == k.ChangePoint((k.Matern32(),) * 2, [0.0], dim=one).dim == 1
    assert F.EigenLaplacian([(-1.0, 1.0)] * 2, np.array([2, 3])).num == (2, 3)
    for call in (lambda: F.Fourier(0.0, 1.0, 2.5), lambda: F.EigenMercer("3", [0.0], [1.0])):
        with pytest.raises((ValueError, TypeError), match="num"):
            call()
