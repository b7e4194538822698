"""Kernels on graphs and spheres against eigendecompositions and addition theorems that are written out here."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import eval_legendre

import inducing as ig

A = np.array([[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 0, 1], [0, 0, 0, 1, 0]], float)


@pytest.fixture(scope="module", autouse=True)
def geometry():
    patch = pytest.MonkeyPatch()
    patch.setattr(np, "trapz", np.trapezoid, raising=False)  # geomstats imports it, which NumPy has renamed
    pytest.importorskip("geometric_kernels")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        import geometric_kernels.jax
        import geometric_kernels.spaces  # noqa: F401
    yield
    patch.undo()


def graph():
    from geometric_kernels.spaces import Graph

    return Graph(A, normalize_laplacian=False)


def globe():
    from geometric_kernels.spaces import Hypersphere

    return Hypersphere(2)


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


def test_refusals():
    with pytest.raises(TypeError, match="one by one"):
        ig.kernels.Geometric(lambda: 3)
    with pytest.raises(TypeError, match="a sum over eigenfunctions, not Matern52"):
        ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.EigenGeometric(3))
