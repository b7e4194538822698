"""One small example of every kind of features, with a kernel it goes with."""

import jax.numpy as jnp
import numpy as np

import inducing as ig

F, k = ig.features, ig.kernels
LINE = np.linspace(-0.7, 0.8, 7)[:, None]
PLANE = np.random.default_rng(0).uniform(-0.7, 0.8, (8, 2))
SCALE = [0.8, 1.0, 1.3]
HILBERT = k.HilbertSpace(k.Matern32(0.5, 1.2), [(-1.5, 1.6), (-1.4, 1.5)], (4, 3))
SEPARATE = k.ActiveDims(k.Matern52(0.6, 1.2), (0,)), k.ActiveDims(k.Matern32(0.8), (1,))

CASES = {
    "points": (F.InducingPoints(np.linspace(-1.0, 1.0, 5)[:, None]), k.Matern32(0.6, 1.3), LINE),
    "fourier 1/2": (F.Fourier(-1.5, 1.6, 3), k.Matern12(0.6, 1.3), LINE),
    "fourier 3/2": (F.Fourier(-1.5, 1.6, 3), k.Matern32(0.6, 1.3), LINE),
    "fourier 5/2": (F.Fourier(-1.5, 1.6, 3), k.Matern52(0.6, 1.3), LINE),
    "fourier beyond": (F.Fourier(-0.5, 0.5, 3), k.Matern52(0.6, 1.3), LINE),
    "free fourier": (F.FreeFourier(-1.5, 1.6, [1.3, 2.9, 4.4]), k.Matern32(0.6, 1.3), LINE),
    "plain fourier": (F.plain_fourier(-1.5, 1.6, 3), k.SquaredExponential(0.6, 1.3), LINE),
    "derivative": (F.InducingDerivatives(PLANE[:3]), k.Matern52([0.6, 0.9], 1.3), PLANE),
    "union": (
        F.Union((F.InducingPoints(PLANE[:3] + 0.1), F.InducingDerivatives(PLANE[:3], 1))),
        k.Matern32(0.7, 1.3),
        PLANE,
    ),
    "union of fourier": (F.Union((F.InducingPoints([[0.1], [0.6]]), F.Fourier(-1.5, 1.6, 2))), k.Matern52(0.6), LINE),
    "integral": (F.Integral(lambda x: jnp.cos(jnp.arange(4.0) * x[0]), [-1.0], [1.0], 40), k.Matern32(0.6), LINE),
    "regions": (F.RegionAverage(PLANE[:4], PLANE[:4] + 0.3, 4), k.SquaredExponential(0.6, 1.3), PLANE),
    "multiscale": (
        F.Multiscale(PLANE[:4], 0.2 + 0.1 * np.abs(PLANE[:4])),
        k.SquaredExponential([0.6, 0.8], 1.3),
        PLANE,
    ),
    "gaussian fourier": (
        F.GaussianFourier([[1.5, 0.3], [-0.4, 2.1]], [0.1, 0.0], [0.5, 0.7]),
        k.SquaredExponential([0.6, 0.8], 1.3),
        PLANE,
    ),
    "box fourier": (F.BoxFourier([[1.3], [2.9]], [-1.0], [1.1], 40), k.Matern32(0.6, 1.3), LINE),
    "mercer": (F.EigenMercer(9, [0.1, 0.0], [0.6, 0.5]), k.SquaredExponential([0.6, 0.8], 1.3), PLANE),
    "numerical": (F.EigenNumerical(np.linspace(-1.0, 1.1, 20)[:, None], 6), k.Matern32(0.6, 1.3), LINE),
    "laplacian": (F.EigenLaplacian(HILBERT.box, HILBERT.num), HILBERT, PLANE),
    "sphere": (F.SphericalHarmonics(3, 3), k.Spherical(k.Matern32(0.8, 1.3), SCALE), k.with_bias(PLANE)),
    "sphere relu": (
        F.SphericalHarmonics(3, (0, 1, 2, 4)),
        k.SphericalArcCosine(1, 1.3, [0.8, 1.0, 1.3]),
        k.with_bias(PLANE),
    ),
    "product": (F.Product((F.Fourier(-1.5, 1.6, 2), F.Fourier(-1.5, 1.6, 1))), SEPARATE[0] * SEPARATE[1], PLANE),
    "additive": (
        F.Additive((F.Fourier(-1.5, 1.6, 2), F.InducingPoints([[0.0], [0.7]]))),
        SEPARATE[0] + SEPARATE[1],
        PLANE,
    ),
}
IDS = list(CASES)
VARIANTS = {
    "points",
    "fourier 1/2",
    "fourier 3/2",
    "fourier beyond",
    "union of fourier",
    "sphere relu",
    "box fourier",
}  # of others


def model_of(name, coordinates="w", mean=None):
    """A model with these features, Gaussian noise, and data for it."""
    features, kernel, X = CASES[name]
    layer = ig.SparseGP(ig.GP(kernel, mean), features, coordinates=coordinates)
    X = jnp.asarray(X)
    y = jnp.sin(2.0 * X.sum(1)) + 0.3 * jnp.cos(17.0 * X[:, 0])
    return ig.Model(layer, ig.likelihoods.Gaussian(0.1)), ig.Data(X, y)
