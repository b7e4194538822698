"""Kernels on graphs, spheres and other spaces against eigendecompositions, addition theorems and integrals."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.special import eval_legendre

import inducing as ig

A = np.array([[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 1], [0, 0, 0, 1, 0]], float)


@pytest.fixture(scope="module", autouse=True)
def geometry():
    pytest.importorskip("geometric_kernels")  # its submodules are imported by the kernel, which gives NumPy old names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        ig.kernels.Geometric(globe, 2)


def graph():
    from geometric_kernels.spaces import Graph

    return Graph(A, normalize_laplacian=False)


def globe():
    from geometric_kernels.spaces import Hypersphere

    return Hypersphere(2)


def torus():
    from geometric_kernels.spaces import Circle, ProductDiscreteSpectrumSpace

    return ProductDiscreteSpectrumSpace(Circle(), Circle(), num_levels=9, num_levels_per_space=4)


def mesh():
    """The sphere again, as triangles."""
    from geometric_kernels.spaces import Mesh

    vertices = np.asarray(fibonacci(500))
    return Mesh(vertices, ConvexHull(vertices).simplices)


def plane():
    from geometric_kernels.spaces import Hyperbolic

    return Hyperbolic(2)


def rotations():
    from geometric_kernels.spaces import SpecialOrthogonal

    return SpecialOrthogonal(3)


def test_a_graph():
    """Matérn kernel of a graph: U S(Λ) Uᵀ of the Laplacian, all nodes equally likely (Borovitskiy et al. 2021)."""
    kernel = ig.kernels.Geometric(graph, 5, nu=1.5, lengthscale=0.8, variance=1.7)
    values, U = np.linalg.eigh(np.diag(A.sum(0)) - A)
    S = (2 * 1.5 / 0.8**2 + values) ** -1.5
    truth = 1.7 * 5 * (U * S) @ U.T / S.sum()
    nodes = jnp.arange(5.0)[:, None]
    np.testing.assert_allclose(kernel.gram(nodes), truth, atol=1e-6)
    with pytest.raises(ValueError, match="numbers of nodes from 0 to 4, got 5"):
        ig.GP(kernel).sample(jax.random.key(0), [[5.0]])
    # all eigenfunctions as features are the exact GP
    y = np.sin(np.arange(4.0))
    gp = ig.SparseGP(ig.GP(kernel), ig.features.EigenGeometric(5))
    model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    np.testing.assert_allclose(
        ig.collapsed_elbo(model, (nodes[:4], y)),
        ig.GP(kernel).condition(nodes[:4], y, 0.1).log_marginal_likelihood,
        rtol=1e-7,
    )


def test_a_sphere(tmp_path):
    """Matérn kernel of the sphere by the addition theorem: Σ_l S(l(l + 1)) (2l + 1) P_l(cos θ)."""
    kernel = ig.kernels.Geometric(globe, 8, nu=2.5, lengthscale=0.5, variance=1.3)
    X = np.random.default_rng(0).normal(size=(6, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    degree = np.arange(8)
    S = (2 * 2.5 / 0.5**2 + degree * (degree + 1)) ** -3.5 * (2 * degree + 1)
    truth = 1.3 * np.einsum("l,lnm->nm", S / S.sum(), [eval_legendre(d, X @ X.T) for d in degree])
    np.testing.assert_allclose(kernel.gram(jnp.asarray(X)), truth, atol=1e-5)
    prior = ig.GP(kernel)
    f = prior.draw(jax.random.key(0))
    features = ig.features.EigenGeometric(9)
    u = features.apply(f, kernel)
    coefficients = np.linalg.lstsq(
        np.asarray(kernel.eigenfunctions(big := sphere_points(400))), np.asarray(f(big)), rcond=None
    )[0]
    np.testing.assert_allclose(u, coefficients[:9], atol=1e-5)
    model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(0.1))
    fitted = ig.fit(model, (X, X[:, 2]), steps=3, progress=False).model
    ig.save(tmp_path / "globe.safetensors", fitted)
    loaded = ig.load(tmp_path / "globe.safetensors", parts=[globe])
    np.testing.assert_array_equal(loaded.predict(X).mean, fitted.predict(X).mean)


def sphere_points(num):
    X = np.random.default_rng(1).normal(size=(num, 3))
    return jnp.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def fibonacci(num):
    z, angle = np.linspace(-1, 1, num), np.pi * (3 - np.sqrt(5)) * np.arange(num)
    return np.stack([np.sqrt(1 - z**2) * np.cos(angle), np.sqrt(1 - z**2) * np.sin(angle), z], axis=1)


def fitted_and_loaded(model, X, y, path, space):
    """A fit, a draw, and the predictions of a file."""
    model = ig.fit(model, (X, y), steps=3, progress=False).model
    assert np.isfinite(model.draw(jax.random.key(0))(X)).all()
    ig.save(path, model)
    np.testing.assert_array_equal(ig.load(path, parts=[space]).predict(X).mean, model.predict(X).mean)


def test_a_torus(tmp_path):
    """A product of circles: Σ_ij S(i² + j²) c_i cos(iΔ) c_j cos(jΔ'), c_0 = 1, c_i = 2, over the pairs below 9."""
    kernel = ig.kernels.Geometric(torus, 9, nu=1.5, lengthscale=0.7, variance=1.3)
    X = np.random.default_rng(0).uniform(0, 2 * np.pi, (6, 2))
    d = X[:, None] - X[None]
    truth = total = 0.0
    for i, j in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2)]:
        size = (2 * 1.5 / 0.7**2 + i * i + j * j) ** -2.5 * (2 if i else 1) * (2 if j else 1)
        truth, total = truth + size * np.cos(i * d[..., 0]) * np.cos(j * d[..., 1]), total + size
    np.testing.assert_allclose(kernel.gram(jnp.asarray(X)), 1.3 * truth / total, atol=1e-8)
    gp = ig.SparseGP(ig.GP(kernel), ig.features.EigenGeometric(9))
    model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    fitted_and_loaded(model, X, np.sin(X[:, 0]), tmp_path / "torus.safetensors", torus)


def test_a_mesh_of_the_sphere():
    """It approaches the sphere, degrees 0 to 3."""
    kernel = ig.kernels.Geometric(mesh, 16, nu=2.5, lengthscale=0.7)
    X, degree = fibonacci(500)[::50], np.arange(4)
    S = (2 * 2.5 / 0.7**2 + degree * (degree + 1)) ** -3.5 * (2 * degree + 1)
    truth = np.einsum("l,lnm->nm", S / S.sum(), [eval_legendre(d, X @ X.T) for d in degree])
    np.testing.assert_allclose(kernel.gram(jnp.arange(0.0, 500.0, 50.0)[:, None]), truth, atol=0.02)


def test_numpy_is_left_as_it_was():
    assert hasattr(np, "trapz") == (int(np.__version__.split(".")[1]) < 4)


def test_refusals():
    with pytest.raises(TypeError, match="one by one"):
        ig.kernels.Geometric(rotations)
    with pytest.raises(TypeError, match="Spaces with a continuous spectrum, such as Hyperbolic"):
        ig.kernels.Geometric(plane)
    with pytest.raises(ValueError, match="levels must be a whole number from 2, got 1"):
        ig.kernels.Geometric(globe, 1)
    with pytest.raises(TypeError, match="a sum over eigenfunctions, not Matern52"):
        ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.EigenGeometric(3))
