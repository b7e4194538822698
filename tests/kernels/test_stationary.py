"""Stationary kernels: values, derivatives at coincident points, spectra, far-off inputs."""

import math
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inducing import features
from inducing import kernels as K

ALPHA = 1.7
PROFILES = {
    "SquaredExponential": lambda r: np.exp(-0.5 * r**2),
    "Matern12": lambda r: np.exp(-r),
    "Matern32": lambda r: (1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r),
    "Matern52": lambda r: (1 + math.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-math.sqrt(5) * r),
    "RationalQuadratic": lambda r: (1 + r**2 / (2 * ALPHA)) ** -ALPHA,
}
# var f'(x) in units of σ²/ℓ²: −k''(0)
SLOPES = {"SquaredExponential": 1.0, "Matern32": 3.0, "Matern52": 5 / 3, "RationalQuadratic": 1.0}


@partial(jax.jit, static_argnums=0)
def mixed_derivatives(f, *args):
    """∂²f/∂x∂y by all four combinations of forward and reverse mode."""
    modes = list(product([jax.jacfwd, jax.jacrev], repeat=2))
    return [outer(inner(f, len(args) - 2), len(args) - 1)(*args) for outer, inner in modes]


gram = jax.jit(lambda kernel, X, Z=None: kernel.gram(X, Z))


def single(kernel, x, y):
    return kernel(x, y)


def in_a_gram_matrix(kernel, X, x, y):
    return kernel.gram(x[None], jnp.concatenate([y[None], X]))[0, 0]


def make(name, lengthscale=1.0, variance=1.0):
    extra = {"alpha": np.asarray(ALPHA, np.asarray(variance).dtype)} if name == "RationalQuadratic" else {}
    return getattr(K, name)(lengthscale=lengthscale, variance=variance, **extra)


def reference(name, X, Z, lengthscale, variance):
    """The Gram matrix by differences in extended precision."""
    X, Z = np.asarray(X, np.longdouble), np.asarray(Z, np.longdouble)
    r = np.sqrt((((X[:, None] - Z[None]) / np.asarray(lengthscale, np.longdouble)) ** 2).sum(-1))
    return np.asarray(variance * PROFILES[name](r), float)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("dim", [1, 3, 7])
def test_values(name, dim):
    rng = np.random.default_rng(dim)
    X, Z = rng.normal(size=(6, dim)), rng.normal(size=(4, dim))
    lengthscale = rng.uniform(0.5, 2.0, dim)
    kernel = make(name, lengthscale, 1.3)
    np.testing.assert_allclose(gram(kernel, X, Z), reference(name, X, Z, lengthscale, 1.3), rtol=1e-12, atol=1e-14)
    K_self = np.asarray(gram(kernel, X))
    np.testing.assert_allclose(K_self, reference(name, X, X, lengthscale, 1.3), rtol=1e-12, atol=1e-14)
    assert (K_self == K_self.T).all() and (np.diag(K_self) == 1.3).all()
    np.testing.assert_array_equal(kernel.diag(X), np.full(6, 1.3))
    np.testing.assert_allclose(kernel(jnp.asarray(X[0]), jnp.asarray(Z[0])), gram(kernel, X, Z)[0, 0], rtol=1e-12)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("dim", [1, 8])
def test_float32_far_from_the_origin(name, dim):
    rng = np.random.default_rng(0)
    X = (1000 + rng.normal(size=(20, dim))).astype(np.float32)
    Z = X[:5] + rng.normal(size=(5, dim)).astype(np.float32)
    kernel = make(name, np.float32(0.7), np.float32(1.0))
    # The product form has an error of a few ε|x|² in s, here up to 1e-5; without care it would be 0.1 and more.
    for X2 in (Z, X):
        got = gram(kernel, X, X2)
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, reference(name, X, X2, np.float32(0.7), 1.0), atol=2e-5)
    np.testing.assert_allclose(gram(kernel, X), reference(name, X, X, np.float32(0.7), 1.0), atol=2e-5)


@pytest.mark.parametrize("name", ["Matern12"])
def test_rough_kernels_are_exact_at_coincident_points(name):
    X = np.random.default_rng(0).normal(size=(10, 12))
    np.testing.assert_array_equal(np.diag(make(name).gram(X, X.copy())), np.ones(10))


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("lengthscale", [1e-6, 1e6])
def test_extreme_lengthscales(name, lengthscale):
    X = np.random.default_rng(0).normal(size=(5, 6))
    kernel = make(name, lengthscale)
    np.testing.assert_allclose(gram(kernel, X), reference(name, X, X, lengthscale, 1.0), rtol=1e-9, atol=1e-300)
    gradient = jax.jit(jax.grad(lambda k: k.gram(X, X[:2]).sum()))(kernel)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("name", SLOPES)
def test_slope_variance_at_coincident_points(name):
    lengthscale = jnp.array([0.5, 2.0])
    kernel = make(name, lengthscale, 1.3)
    x = jnp.array([0.3, -0.8])
    expected = np.diag(SLOPES[name] * 1.3 / np.asarray(lengthscale) ** 2)
    for got in mixed_derivatives(single, kernel, x, x):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(jax.jit(jax.grad(single, 1))(kernel, x, x), np.zeros(2))


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("dim", [2, 6])
def test_slope_variance_through_the_gram_matrix(name, dim):
    lengthscale = np.linspace(0.5, 2.0, dim)
    kernel = make(name, lengthscale, 1.3)
    X = jnp.asarray(np.random.default_rng(1).normal(size=(3, dim)))
    expected = np.diag(SLOPES[name] * 1.3 / lengthscale**2)
    # The product form of the distance leaves s ~ 1e-16 instead of 0, and Matérn 3/2 sees its root.
    for got in mixed_derivatives(in_a_gram_matrix, kernel, X, X[1], X[1]):
        np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize(("name", "expected"), [("SquaredExponential", 3.0), ("Matern52", 25.0)])
def test_curvature_variance_at_coincident_points(name, expected):
    kernel = make(name, 0.5, 1.3)

    def k(x, y):
        return kernel(x[None], y[None])

    for d in (jax.grad, jax.jacfwd):
        fourth = jax.jit(d(d(d(d(k, 0), 0), 1), 1))(jnp.array(0.2), jnp.array(0.2))
        assert float(fourth) == pytest.approx(expected * 1.3 / 0.5**4, rel=1e-12)
        third = jax.jit(d(d(d(k, 0), 0), 1))(jnp.array(0.2), jnp.array(0.2))
        assert float(third) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", PROFILES)
def test_derivatives_at_separate_points(name):
    kernel = make(name, jnp.array([0.5, 2.0]), 1.3)
    x, y = np.array([0.3, -0.8]), np.array([0.6, 0.5])
    step = 1e-4
    shifts = step * np.eye(2)

    def k(a, b):
        return reference(name, a[None], b[None], [0.5, 2.0], 1.3)[0, 0]

    first = [(k(x + e, y) - k(x - e, y)) / (2 * step) for e in shifts]
    second = [
        [(k(x + e, y + h) - k(x - e, y + h) - k(x + e, y - h) + k(x - e, y - h)) / (4 * step**2) for h in shifts]
        for e in shifts
    ]
    gradient = jax.jit(jax.grad(single, 1))(kernel, jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(gradient, first, rtol=1e-6, atol=1e-7)
    for got in mixed_derivatives(single, kernel, jnp.asarray(x), jnp.asarray(y)):
        np.testing.assert_allclose(got, second, atol=1e-6)


def test_matern12_has_finite_gradients_at_coincident_points():
    kernel = make("Matern12", jnp.array([0.5, 2.0]))
    assert kernel.smoothness == 0
    for X in (jnp.zeros((3, 2)), jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))):
        of_kernel, of_inputs = jax.jit(jax.grad(lambda k, x, X: k.gram(x, X).sum(), (0, 1)))(kernel, X, X)
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((of_kernel, of_inputs)))
    np.testing.assert_array_equal(jax.grad(kernel, 0)(X[0], X[0]), np.zeros(2))


@pytest.mark.parametrize("name", ["Matern32", "Matern52"])
def test_slopes_where_the_kernel_is_a_constant_of_compiled_code(name):
    """x/ℓ − x/ℓ is then a rounding error, and not the same one wherever the compiler computes it."""
    kernel, X = make(name, 0.6, 1.3), jnp.asarray(np.random.default_rng(0).uniform(-1.0, 1.0, (7, 2)))
    variances = jnp.diagonal(jax.jit(lambda X: features.InducingDerivatives(X).Kuu(kernel, 0.0).dense())(X))
    np.testing.assert_allclose(variances, SLOPES[name] * 1.3 / 0.6**2, rtol=1e-12)


@pytest.mark.parametrize("name", ["SquaredExponential", "Matern12", "Matern32", "Matern52"])
def test_spectral_density_is_the_fourier_transform(name):
    kernel = make(name, 0.6, 1.3)
    grid = np.linspace(0.0, 30.0, 300_001)
    values = reference(name, np.zeros((1, 1)), grid[:, None], 0.6, 1.3)[0]
    omega = np.array([0.0, 0.7, 2.5])
    expected = [2 * np.trapezoid(values * np.cos(w * grid), grid) for w in omega]
    np.testing.assert_allclose(kernel.spectral_density(jnp.asarray(omega)[:, None]), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["SquaredExponential", "Matern32", "Matern52"])
def test_anisotropic_spectral_density_in_two_dimensions(name):
    lengthscale = np.array([0.5, 0.9])
    axes = [np.linspace(-12.0, 12.0, 1201) * ell for ell in lengthscale]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    values = reference(name, np.zeros((1, 2)), points, lengthscale, 1.3)[0]
    area = np.prod([axis[1] - axis[0] for axis in axes])
    omega = np.array([[0.0, 0.0], [1.0, -0.5], [2.0, 1.0]])
    expected = [area * (values * np.cos(points @ w)).sum() for w in omega]
    got = make(name, lengthscale, 1.3).spectral_density(jnp.asarray(omega))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_rational_quadratic_says_that_it_has_no_spectral_density():
    with pytest.raises(TypeError, match=r"RationalQuadratic.*SquaredExponential"):
        make("RationalQuadratic").spectral_density(jnp.ones((1, 1)))


@pytest.mark.parametrize(("name", "dim"), [("SquaredExponential", 8), ("SquaredExponential", 2), ("Matern32", 8)])
def test_derivatives_with_fixed_inputs_are_those_of_differences(name, dim):
    """Inputs that do not move take another formula, in first and second derivatives, also of stacked kernels."""
    rng = np.random.default_rng(0)
    Z, X, W = (jnp.asarray(rng.normal(size=s)) for s in ((3, dim), (5, dim), (3, 5)))
    lengthscale, variance = jnp.linspace(1.0, 2.0, dim), jnp.asarray(1.5)

    def by_gram(lengthscale, variance, Z):
        return jnp.sum(W * jnp.sin(getattr(K, name)(lengthscale, variance).gram(Z, X)))

    def by_differences(lengthscale, variance, Z):
        kernel = getattr(K, name)(lengthscale, variance)
        return jnp.sum(W * jnp.sin(jax.vmap(lambda z: jax.vmap(lambda x: kernel(z, x))(X))(Z)))

    def both_derivatives(f):
        stacked = jax.grad(lambda scales: jnp.sum(jax.vmap(lambda s: f(s, variance, Z))(scales)))
        at = (lengthscale, variance, Z)
        each = jax.grad(f, (0, 1, 2))(*at), jax.hessian(f, (0, 2))(*at), jax.grad(f, 1)(*at)
        return each, stacked(jnp.stack([lengthscale, 2.0 * lengthscale]))

    ours, truth = (jax.jit(lambda f=f: both_derivatives(f))() for f in (by_gram, by_differences))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(truth), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 6])
@pytest.mark.parametrize("name", PROFILES)
def test_limit_at_infinity(name, dim):
    """Points so far away that squares overflow have no covariance with others, and gradients are finite."""
    for dtype, far in ((np.float32, 1e20), (np.float64, 1e308)):
        kernel = make(name, lengthscale=np.full(dim, 0.5, dtype), variance=np.asarray(2.0, dtype))
        X = np.full((3, dim), 0.3, dtype) * np.asarray([[far], [-far], [1.0]], dtype)
        near = np.zeros((2, dim), dtype)
        near[1] = 1.0

        def values(kernel, X, near):
            return kernel.gram(X, near), kernel.gram(X), kernel(X[0], near[0])

        cross, own, single = jax.jit(values)(kernel, X, near)
        np.testing.assert_allclose(cross[:2], 0.0, atol=1e-30)
        np.testing.assert_allclose(own, 2.0 * np.eye(3), atol=1e-30)
        assert abs(single) < 1e-30
        total = jax.jit(jax.grad(lambda *args: sum(v.sum() for v in values(*args)), argnums=(0, 1, 2)))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(total(kernel, X, near)))


@pytest.mark.parametrize("kernel", [K.Cosine(), K.Periodic(K.Matern32())])
def test_periodic_kernels_are_finite_far_away(kernel):
    X = jnp.asarray([[1e308], [-1e308], [0.3]])
    assert np.isfinite(kernel.gram(X)).all()
    assert np.isfinite(kernel(X[0], X[2]))
    near = X[2:]
    np.testing.assert_allclose(kernel.gram(near + 3.0, jnp.zeros((1, 1))), kernel.gram(near, jnp.zeros((1, 1))))
