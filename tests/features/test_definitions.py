"""Kuf, Kuu and μ_u against their definitions, computed another way: SciPy, closed forms, fine grids."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import inducing as ig

from .cases import CASES, SEPARATE
from .test_functionals import rkhs_inner

F, k = ig.features, ig.kernels


def _legendre(low, high, num=80):
    t, w = np.polynomial.legendre.leggauss(num)
    return low + (high - low) * (t + 1) / 2, w * (high - low) / 2


def _matern32(r, lengthscale, variance):
    s = np.sqrt(3.0) * np.abs(r) / lengthscale
    return variance * (1 + s) * np.exp(-s)


def _waves(t, a, b, num):
    angle = 2 * np.pi * np.arange(1, num + 1)[:, None] * (t - a)[None, :] / (b - a)
    return np.concatenate([np.ones((1, len(t))), np.cos(angle), np.sin(angle)])


@pytest.mark.parametrize("plain", [False, True], ids=["integral", "plain fourier"])
def test_integrals_are_integrals(plain):
    """Kuf by SciPy's adaptive rule with a break at the kernel's kink; Kuu by a rule with that break."""
    a, b, length, variance = -1.0, 1.2, 0.6, 1.3

    def phi(t):
        return _waves(t, a, b, 2) if plain else np.cos(np.arange(3)[:, None] * t[None, :])

    features = (
        F.plain_fourier(a, b, 2, 320) if plain else F.Integral(lambda x: jnp.cos(jnp.arange(3.0) * x[0]), [a], [b], 320)
    )
    kernel, X = k.Matern32(length, variance), np.array([0.3, 1.0, 1.7])
    Kuf, Kuu = jax.jit(lambda X: (features.Kuf(kernel, X), features.Kuu(kernel, 0.0).dense()))(jnp.asarray(X)[:, None])

    def adaptive(m, x):
        return quad(
            lambda t: phi(np.array([t]))[m, 0] * _matern32(t - x, length, variance), a, b, points=[min(x, b)], limit=200
        )[0]

    expected = np.array([[adaptive(m, x) for x in X] for m in range(len(Kuf))])
    np.testing.assert_allclose(Kuf, expected, atol=1e-6)

    def inner(x):  # ∫ φ_n(t) k(x, t) dt, in two smooth pieces
        pieces = [_legendre(a, x), _legendre(x, b)]
        return sum(phi(t) @ (w * _matern32(t - x, length, variance)) for t, w in pieces)

    x, w = _legendre(a, b)
    np.testing.assert_allclose(Kuu, (phi(x) * w) @ np.stack([inner(s) for s in x]), atol=1e-6)


def test_region_averages_in_the_plane_are_products_of_averages():
    """The squared exponential is a product over dimensions, and so are its averages over boxes."""
    features, kernel, X = CASES["regions"]
    lower, upper = np.asarray(features.lower), np.asarray(features.upper)
    Kuf, Kuu = jax.jit(lambda: (features.Kuf(kernel, jnp.asarray(X)), features.Kuu(kernel, 0.0).dense()))()
    M, D = lower.shape
    one = np.full((M, len(X)), 1.3)
    two = np.full((M, M), 1.3)
    for d in range(D):
        rules = [_legendre(lower[m, d], upper[m, d], 30) for m in range(M)]
        for m, (t, w) in enumerate(rules):
            w = w / w.sum()
            one[m] *= w @ np.exp(-0.5 * ((t[:, None] - X[None, :, d]) / 0.6) ** 2)
            two[m] *= [w @ np.exp(-0.5 * ((t[:, None] - s[None, :]) / 0.6) ** 2) @ v / v.sum() for s, v in rules]
    np.testing.assert_allclose(Kuf, one, rtol=1e-7)
    np.testing.assert_allclose(Kuu, two, rtol=1e-7)


# μ(x) = 0.3 + weights·x + sin(slope·x + 0.4), whose functionals are known
WEIGHTS, SLOPE = np.array([0.7, -0.4, 0.2]), np.array([1.3, 0.8, -0.6])


def _mean(dim):
    slope = jnp.asarray(SLOPE[:dim])
    return ig.means.Linear(WEIGHTS[:dim], 0.3) + ig.means.Function(lambda x: jnp.sin(slope @ x + 0.4))


def _mu(X):
    dim = X.shape[1]
    return 0.3 + X @ WEIGHTS[:dim] + np.sin(X @ SLOPE[:dim] + 0.4)


def _gradient(X):
    return WEIGHTS[None, :2] + SLOPE[None, :2] * np.cos(X @ SLOPE[:2] + 0.4)[:, None]


def _inner(features, kernel, functions):
    """⟨φ_m, h⟩ in the kernel's Hilbert space, by `rkhs_inner`, of functions of one number: [M, len(functions)]."""
    p = {k.Matern12: 1, k.Matern32: 2, k.Matern52: 3}[type(kernel)]
    lam = np.sqrt(2 * p - 1) / float(kernel.lengthscale)
    a, b, omega = float(features.a), float(features.b), features.frequencies

    def phi(x):
        return jnp.concatenate([jnp.ones(1), jnp.cos(omega * (x - a)), jnp.sin(omega * (x - a))])

    def h(x):
        return jnp.stack([f(x) for f in functions])

    return np.asarray(jax.jit(lambda: rkhs_inner(p, lam, float(kernel.variance), a, b, phi, h))())


def _fourier(features, kernel):
    return _inner(features, kernel, [lambda x: 0.3 + WEIGHTS[0] * x + jnp.sin(SLOPE[0] * x + 0.4)])[:, 0]


def _product(features, kernel):
    """sin(s + t) = sin s cos t + cos s sin t and 1, x: outer products of one-dimensional ones."""
    ones = jnp.ones_like
    first = [ones, lambda x: x, lambda x: jnp.sin(SLOPE[0] * x + 0.4), lambda x: jnp.cos(SLOPE[0] * x + 0.4)]
    second = [ones, lambda x: x, lambda x: jnp.cos(SLOPE[1] * x), lambda x: jnp.sin(SLOPE[1] * x)]
    g = _inner(features.parts[0], SEPARATE[0].kernel, first)
    h = _inner(features.parts[1], SEPARATE[1].kernel, second)
    total = 0.3 * np.outer(g[:, 0], h[:, 0]) + WEIGHTS[0] * np.outer(g[:, 1], h[:, 0])
    total += WEIGHTS[1] * np.outer(g[:, 0], h[:, 1]) + np.outer(g[:, 2], h[:, 2]) + np.outer(g[:, 3], h[:, 3])
    return total.reshape(-1)


def _additive(features, kernel):
    """The mean is the first term's, along that term's column."""
    return np.concatenate([_fourier(features.parts[0], SEPARATE[0].kernel), np.zeros(2)])


def _mercer(features, kernel):
    axes = [np.linspace(m - 8 * s, m + 8 * s, 161) for m, s in zip([0.1, 0.0], [0.6, 0.5], strict=True)]
    X = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    z = (X - np.array([0.1, 0.0])) / np.array([0.6, 0.5])
    rho = np.exp(-0.5 * (z**2).sum(1)) / (2 * np.pi) * 0.1**2  # times the cells' area, in units of the deviations
    return np.asarray(features.eigenfunctions(kernel, jnp.asarray(X))).T @ (rho * _mu(X))


def _multiscale(features, kernel):
    Z, s = np.asarray(features.Z), np.asarray(features.widths)
    damping = np.exp(-0.5 * (s**2) @ SLOPE[:2] ** 2)
    return 0.3 + Z @ WEIGHTS[:2] + damping * np.sin(Z @ SLOPE[:2] + 0.4)


def _union(features, kernel):
    points, slopes = features.parts
    return np.concatenate([_mu(np.asarray(points.Z)), _gradient(np.asarray(slopes.Z))[:, 1]])


def _integral(features, kernel):
    def integrand(t, m):
        return np.cos(m * t) * _mu(np.array([[t]]))[0]

    return np.array([quad(integrand, -1.0, 1.0, args=(m,))[0] for m in range(4)])


def _sphere(features, kernel):
    """Gauss–Legendre in the height, equal steps in the longitude; the process lives at x̂/w."""
    (z, w), longitude = _legendre(-1.0, 1.0, 60), 2 * np.pi * np.arange(120) / 120
    z, angle = (g.reshape(-1) for g in np.meshgrid(z, longitude, indexing="ij"))
    r = np.sqrt(1 - z**2)
    U = np.stack([r * np.cos(angle), z, r * np.sin(angle)], 1)
    values = _mu(U / np.asarray(kernel.scale)) * np.repeat(w, 120) / 240
    return np.asarray(features.harmonics(jnp.asarray(U))).T @ values


@pytest.mark.parametrize(
    ("name", "expected", "error"),
    [
        ("points", lambda f, _: _mu(np.asarray(f.Z)), 1e-12),
        ("fourier 1/2", _fourier, 1e-9),
        ("fourier 3/2", _fourier, 1e-9),
        ("fourier 5/2", _fourier, 1e-9),
        ("free fourier", _fourier, 1e-9),
        ("mercer", _mercer, 1e-9),
        ("multiscale", _multiscale, 1e-12),
        ("derivative", lambda f, _: _gradient(np.asarray(f.Z)).reshape(-1), 1e-12),
        ("integral", _integral, 1e-9),
        ("sphere", _sphere, 1e-9),
        ("product", _product, 1e-9),
        ("additive", _additive, 1e-9),
        ("union", _union, 1e-12),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_mean_of_u(name, expected, error):
    """μ_u = apply(μ): where the prior's q(u) has its mean in u coordinates."""
    features, kernel, X = CASES[name]

    @eqx.filter_jit
    def mean_of_u(features, kernel):
        return ig.SparseGP(ig.GP(kernel, _mean(X.shape[1])), features).with_coordinates("u").mean[0]

    mu = expected(features, kernel)
    assert np.abs(mu).max() > 0.1
    np.testing.assert_allclose(mean_of_u(features, kernel), mu, atol=error * np.abs(mu).max())


class Dirac(F.AbstractFeatures):
    """u[m] = f(Z_m) by the general route alone."""

    Z: jax.Array = ig.parameters.real()

    @property
    def num_features(self):
        return self.Z.shape[0]

    def apply(self, f, kernel=None):
        return f(self.Z)

    def Kuu(self, kernel, jitter):
        return F.general_Kuu(self, kernel, jitter)

    def Kuf(self, kernel, X):
        return F.general_Kuf(self, kernel, X)


def test_dirac_features_are_inducing_points():
    """The same bound, q(u), posterior and draws by the general route."""
    points, kernel, X = CASES["points"]
    X = jnp.asarray(X)
    data, mean = ig.Data(X, jnp.sin(4.0 * X)), ig.means.Linear([0.3], 0.1)

    @eqx.filter_jit
    def compute(features):
        layer = ig.SparseGP(ig.GP(kernel, mean), features, coordinates="u")
        model = ig.collapse(ig.Model(layer, ig.likelihoods.Gaussian(0.05)), data)
        layer = model.layers[0]
        return ig.elbo(model, data), layer.mean, layer.joint(X[None] + 0.1), layer.draw(jax.random.key(0), 16, 1)(X)

    pairs = zip(*[jax.tree.leaves(compute(f)) for f in (points, Dirac(points.Z))], strict=True)
    for expected, got in pairs:
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_union_reports_the_jitter_of_its_parts():
    """Two equal points need jitter, whichever part they stand in and whatever is needed after."""
    twice, slope = F.InducingPoints([[0.2], [0.2]]), F.InducingDerivatives([[1.0]])
    kernel = k.SquaredExponential()
    needed = float(twice.Kuu(kernel, 0.0).relative_jitter)
    K = F.Union((twice, slope)).Kuu(kernel, 0.0)
    assert needed > 0.0 and float(K.relative_jitter) >= needed
    np.testing.assert_allclose(K.root @ K.root.T, K.dense(), rtol=1e-12)
    assert float(F.Union((F.InducingPoints([[0.2], [0.9]]), slope)).Kuu(kernel, 0.0).relative_jitter) == 0.0
