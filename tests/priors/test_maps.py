"""Convolutions against numerical integration, and derivatives against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

from .brute import matern32, se
from .cases import Z1, gaussian_smoothing, integrated, points

X = np.array([[-0.7], [0.1], [0.9]])
KINDS = {"matern32": (ig.kernels.Matern32, matern32), "squared exponential": (ig.kernels.SquaredExponential, se)}


def joint_of(prior, features):
    N, P = len(X), prior.num_outputs
    Kuf = np.asarray(prior.Kuf(features, jnp.asarray(X)))  # [L, M, N, P]
    return np.asarray(prior.covariance(jnp.asarray(X))), np.transpose(Kuf, (2, 3, 0, 1)).reshape(N * P, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_quadrature_of_any_smoothing(kind):
    """A one-sided exponential and a box, which have no closed form here."""
    kernel, formula = KINDS[kind]

    def G(t):
        return jnp.stack([jnp.exp(-2.0 * t), jnp.ones(1)])  # [2, 1] on [0, 1]

    prior = ig.priors.ConvolutionProcess(ig.priors.Smoothing(G, [0.0], [1.0], num=40), kernel(0.7, 1.2))
    t, w = np.polynomial.legendre.leggauss(400)
    t, w = (t + 1) / 2, w / 2
    nodes = (X - t[None, :]).reshape(-1, 1)  # x − t
    smoothing = np.kron(np.eye(3), np.stack([np.exp(-2 * t) * w, w]))  # [(n, p), (n, t)]
    expected = smoothing @ formula(nodes, nodes, 0.7, 1.2) @ smoothing.T, smoothing @ formula(nodes, Z1, 0.7, 1.2)
    for got, want in zip(joint_of(prior, points(Z1)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4 if kind == "matern32" else 1e-9)
    diagonal = prior.Kff_diag(jnp.asarray(X)).reshape(-1)
    np.testing.assert_allclose(diagonal, np.diagonal(joint_of(prior, points(Z1))[0]), rtol=1e-9)


def test_gaussian_smoothing_of_a_rough_kernel():
    """Against a fine grid."""
    widths = ig.priors.GaussianSmoothing([[0.2, 0.5], [0.6, 0.3]], [[1.0, -0.5], [0.7, 0.8]])
    prior = ig.priors.ConvolutionProcess(widths, [ig.kernels.Matern32(0.7, 1.2), ig.kernels.Matern32(1.5, 0.8)])
    kernels = [lambda A, B: matern32(A, B, 0.7, 1.2), lambda A, B: matern32(A, B, 1.5, 0.8)]
    joint = integrated(X, kernels, [Z1] * 2, gaussian_smoothing, 2, np.linspace(-5, 5, 2001))
    Kff, Kuf = joint_of(prior, points(Z1))
    np.testing.assert_allclose(Kff, joint.Sff, atol=1e-5)
    np.testing.assert_allclose(Kuf, joint.Sfu, atol=1e-5)


@pytest.mark.parametrize(("width", "error"), [(1.0, 1e-4), (5.0, 0.05)])
def test_smoothing_over_many_lengthscales(width, error):
    """The variance ∫ N(t | 0, 2 s²) k(t) dt of a Matérn 3/2 that is smoothed on the grid."""
    half = ig.kernels.Matern32(variance=0.5)
    prior = ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[width]]), half + half)
    t = np.linspace(-10.0, 10.0, 20001)
    normal = np.exp(-0.5 * t**2)
    expected = normal @ matern32(np.zeros((1, 1)), np.sqrt(2.0) * width * t[:, None], 1.0, 1.0)[0] / normal.sum()
    np.testing.assert_allclose(prior.Kff_diag(jnp.zeros((1, 1)))[0, 0, 0], expected, rtol=error)


def test_closed_form_is_its_quadrature_in_two_dimensions():
    """A Gaussian written as any other function, over a box that holds it."""
    width, amplitude = jnp.array([[[0.3, 0.5]], [[0.6, 0.2]]]), jnp.array([[1.0], [-0.7]])

    def G(t):
        s = width[:, 0]
        density = jnp.exp(-0.5 * jnp.sum((t[None] / s) ** 2, axis=1)) / jnp.prod(s * jnp.sqrt(2 * jnp.pi), axis=1)
        return amplitude * density[:, None]

    kernel = ig.kernels.SquaredExponential([0.7, 1.1], 1.3)
    closed = ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing(width, amplitude), kernel)
    numeric = ig.priors.ConvolutionProcess(ig.priors.Smoothing(G, [-3.6, -3.0], [3.6, 3.0], num=48), kernel)
    Z = points(np.array([[0.0, 0.0], [0.5, -0.3]]))
    x = jnp.array([[0.2, 0.4]])
    np.testing.assert_allclose(closed.Kuf(Z, x), numeric.Kuf(Z, x), rtol=1e-6)


def test_draws_of_a_smoothed_sum_know_their_terms():
    """The sites are the smoothed draw, the draw is the sum of its terms, and additive features take it."""
    k = ig.kernels
    kernel = k.ActiveDims(k.Matern32(0.7), (0,)) + k.ActiveDims(k.SquaredExponential(0.5), (0,))
    smoothing = ig.priors.GaussianSmoothing([[0.3, 0.5], [0.6, 0.2]])
    prior = ig.priors.ConvolutionProcess(smoothing, [kernel, kernel])
    x, key = jnp.asarray(X), jax.random.key(0)
    t, c = smoothing.rule(1, x.dtype)  # [P, L, Q, 1] and [P, L, Q]

    @jax.jit
    def everything(nodes):
        g, sites = prior.draw_latents(key, 16, 1)
        return [part(x) for part in g.parts], g(x), sites(x), g(nodes)

    parts, whole, sites, values = everything((x[:, None, None, None] - t[None]).reshape(-1, 1))
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-12)
    values = values.reshape(3, *c.shape, 2)
    expected = np.stack([np.einsum("npq,pq->np", values[:, :, l, :, l], c[:, l]) for l in range(2)], axis=1)
    np.testing.assert_allclose(sites, expected, rtol=1e-10)
    features = ig.features.Additive((points(Z1), points(Z1[:2])))
    assert jax.eval_shape(lambda: ig.SparseGP(prior, features).draw(key, 16, 1)(x)).shape == (3, 2)


def test_means_of_latents_are_smoothed():
    """∫ N(t | 0, s²) (x − t)² dt = x² + s²."""
    gp = ig.GP(ig.kernels.SquaredExponential(), ig.means.Function(lambda x: x[0] ** 2))
    prior = ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[0.5], [0.1]], [[1.0], [2.0]]), gp)
    expected = np.stack([X[:, 0] ** 2 + 0.25, 2.0 * (X[:, 0] ** 2 + 0.01)], axis=1)
    np.testing.assert_allclose(prior.mean(jnp.asarray(X)), expected, rtol=1e-12)


def test_draws_of_derivatives_are_derivatives_of_draws():
    base = ig.priors.LMC([[1.0], [-0.5]], ig.kernels.Matern52([0.8, 1.3], 1.2))
    x, h, key = jnp.array([[0.3, -0.2], [1.0, 0.5]]), 1e-5, jax.random.key(0)
    _, sites = base.draw_latents(key, 16, 2)
    _, slopes = ig.priors.Derivative(base, dim=2).draw_latents(key, 16, 2)
    for d in range(2):
        step = h * jnp.eye(2)[d][None]
        difference = (sites(x + step) - sites(x - step)) / (2 * h)
        np.testing.assert_allclose(slopes(x)[..., d], difference[..., 0], atol=1e-8)


@pytest.mark.parametrize("kernel", [ig.kernels.Matern32, ig.kernels.Matern52])
def test_derivative_kernels_are_finite_differences(kernel):
    gp = ig.GP(kernel([0.8, 1.3], 1.2))
    prior = ig.priors.Derivative(gp, dim=2)
    x, z, h = np.array([[0.3, -0.2]]), np.array([[1.0, 0.5]]), 1e-4
    got = np.asarray(prior.Kff(jnp.asarray(x), jnp.asarray(z)))[0, 0, :, 0]
    for d in range(2):
        for e in range(2):
            a, b = h * np.eye(2)[d][None], h * np.eye(2)[e][None]

            def k(u, v):
                return float(gp.kernel.gram(jnp.asarray(u), jnp.asarray(v))[0, 0])

            second = k(x + a, z + b) - k(x + a, z - b) - k(x - a, z + b) + k(x - a, z - b)
            np.testing.assert_allclose(got[d, e], second / (4 * h * h), rtol=1e-5, atol=1e-6)


def test_second_derivatives():
    """∂⁴k/∂x²∂x'² of a squared exponential at a point is 3/ℓ⁴."""
    prior = ig.priors.Derivative(ig.priors.Derivative(ig.GP(ig.kernels.SquaredExponential(0.5)), dim=1), dim=1)
    covariance, diagonal = jax.jit(lambda x: (prior.covariance(x), prior.Kff_diag(x)))(jnp.zeros((1, 1)))
    np.testing.assert_allclose(covariance, [[48.0]], rtol=1e-10)
    np.testing.assert_allclose(diagonal, [[[48.0]]], rtol=1e-10)


@pytest.mark.parametrize("kind", ["closed", "quadrature"])
def test_draws_of_a_convolution_outside_jit(kind):
    """Keys are concrete there, and what is drawn runs where its inputs are traced."""
    smoothing = ig.priors.GaussianSmoothing([[0.3], [0.5]])
    kernel = ig.kernels.SquaredExponential() if kind == "closed" else ig.kernels.Matern52()
    prior = ig.priors.ConvolutionProcess(smoothing, kernel)
    model = ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(jnp.zeros((1, 1)))), ig.likelihoods.Gaussian(0.1))
    f = model.draw(jax.random.key(0), 16)
    X = jnp.linspace(-1.0, 1.0, 4)[:, None]
    assert f(X).shape == (4, 2)
    np.testing.assert_allclose(f(X[2:]), f(X)[2:], rtol=1e-12)


def test_a_kernel_of_categories_does_not_hide_the_derivatives_in_x():
    B = np.array([[1.5, 2.0], [2.0, 4.5]])
    category = ig.kernels.ActiveDims(ig.kernels.Coregion([[1.0], [2.0]], [0.5, 0.5]), (1,))
    smooth = ig.kernels.ActiveDims(ig.kernels.SquaredExponential(0.5), (0,))
    prior = ig.priors.Derivative(ig.priors.MatrixValued(smooth * category, 2), dim=1)
    np.testing.assert_allclose(prior.covariance(jnp.zeros((1, 1))), 4.0 * B, rtol=1e-12)
    rough = ig.kernels.ActiveDims(ig.kernels.Matern12(), (0,))
    with pytest.raises(TypeError, match="no derivative in mean square"):
        ig.priors.Derivative(ig.priors.MatrixValued(rough * category, 2), dim=1)
