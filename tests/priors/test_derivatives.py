"""Derivatives along chosen columns, of higher order, and of smoothed processes, against closed forms and quadrature."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import inducing as ig

K = ig.kernels
covariance = jax.jit(lambda prior, X: prior.covariance(X))
sites = jax.jit(lambda prior, X: prior.Kff(X)[0])
PROFILES = {
    "Matern12": lambda r: np.exp(-r),
    "Matern32": lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
    "Matern52": lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r),
}


def smoothed_covariance(profile, s, lag, order):
    """(−1)ⁿ ∂²ⁿ/∂τ²ⁿ ∫ N(t | 0, 2s²) k(τ − t) dt, with the derivative on the Gaussian, by adaptive quadrature."""
    v = 2 * s**2
    hermite = [lambda t: 1.0, lambda t: 1 / v - t**2 / v**2, lambda t: t**4 / v**4 - 6 * t**2 / v**3 + 3 / v**2][order]

    def integrand(z):  # z = τ − t, so that the kink is at 0
        t = lag - z
        return hermite(t) * np.exp(-(t**2) / (2 * v)) / np.sqrt(2 * np.pi * v) * profile(abs(z))

    ends = lag - 12 * s, 0.0, lag + 12 * s
    parts = [scipy.integrate.quad(integrand, a, b, epsabs=1e-13, limit=400)[0] for a, b in itertools.pairwise(ends)]
    return sum(parts)


@pytest.mark.parametrize(("name", "width"), [("Matern12", 0.05), ("Matern12", 0.5), ("Matern52", 2.0)])
def test_slopes_of_a_smoothed_rough_process(name, width):
    """Values and derivatives are accurate to 1e-8 of their variances, and exist for Matern12 too."""
    smooth = ig.priors.ConvolutionProcess(ig.priors.GaussianSmoothing([[width]]), getattr(K, name)())
    prior = ig.priors.Derivative(smooth, dims=[0, (0, 0)], values=True)
    X = jnp.asarray([[0.0], [0.7]])
    Kff = np.asarray(sites(prior, X))
    for order in range(3):
        for place, lag in ((0, 0.0), (1, 0.7)):
            truth = smoothed_covariance(PROFILES[name], width, lag, order)
            scale = smoothed_covariance(PROFILES[name], width, 0.0, order)
            np.testing.assert_allclose(Kff[0, order, place, order], truth, atol=1e-8 * scale)
    np.testing.assert_allclose(prior.Kff_diag(X)[0], np.einsum("njnj->nj", Kff), rtol=1e-10)


def test_cross_covariance_and_draws_of_smoothed_slopes():
    """Kuf by quadrature; features and sites of draws have the covariances Kuu, Kuf and Kff."""
    G = ig.priors.GaussianSmoothing([[1.0], [0.5]], [[1.0], [-2.0]])
    prior = ig.priors.Derivative(ig.priors.ConvolutionProcess(G, K.Matern32()), dim=1)
    features = ig.features.InducingPoints([[0.0], [1.0]])
    X = jnp.asarray([[0.3], [1.5]])
    Kuf = np.asarray(prior.Kuf(features, X))[0]
    for p, (s, a) in enumerate(((1.0, 1.0), (0.5, -2.0))):

        def slope(t, z, x, s=s, a=a):
            g = a * np.exp(-(t**2) / (2 * s**2)) / np.sqrt(2 * np.pi * s**2)
            return -t / s**2 * g * PROFILES["Matern32"](abs(x - t - z))

        for m, z in enumerate((0.0, 1.0)):
            for n, x in enumerate((0.3, 1.5)):
                truth = sum(
                    scipy.integrate.quad(slope, *ends, args=(z, x))[0] for ends in ((-9.0, x - z), (x - z, 9.0))
                )
                np.testing.assert_allclose(Kuf[m, n, p], truth, atol=1e-7)
    ig.testing.check_prior(prior, features, X)


def test_slopes_of_any_smoothing_count_the_faces_of_the_box():
    """A moving average in two dimensions: f(x) = ∫ over a box, whose slope is a difference of face integrals."""
    box = ig.priors.Smoothing(lambda t: jnp.reshape(1.0 + t[0], (1, 1)), [0.0, 0.0], [1.0, 2.0], num=12)
    prior = ig.priors.Derivative(ig.priors.ConvolutionProcess(box, K.SquaredExponential()), dim=2)
    rough = ig.priors.Derivative(ig.priors.ConvolutionProcess(box, K.Matern12()), dim=2)
    assert rough.num_outputs == 2
    features, x = ig.features.InducingPoints([[0.2, -0.4]]), np.array([0.5, 1.0])
    got = np.asarray(prior.Kuf(features, jnp.asarray(x)[None]))[0, 0, 0]

    def value(x):
        def integrand(t2, t1):
            return (1.0 + t1) * np.exp(-0.5 * ((x[0] - t1 - 0.2) ** 2 + (x[1] - t2 + 0.4) ** 2))

        return scipy.integrate.dblquad(integrand, 0, 1, 0, 2, epsabs=1e-12)[0]

    steps = 1e-4 * np.eye(2)
    np.testing.assert_allclose(got, [(value(x + h) - value(x - h)) / 2e-4 for h in steps], atol=1e-7)


def test_columns_that_have_no_derivative():
    time, place = K.ActiveDims(K.Matern32(0.5), 0), K.ActiveDims(K.Matern12(), 1)
    category = K.ActiveDims(K.Coregion([[1.0], [2.0]], [0.5, 0.5]), 1)
    for other in (place, category):
        prior = ig.priors.Derivative(ig.GP(time * other), dims=0, values=True)
        X = jnp.asarray([[0.0, 0.0], [0.3, 1.0]])
        got = np.asarray(sites(prior, X))
        factor = np.asarray(other.gram(X))
        slopes = np.asarray(sites(ig.priors.Derivative(ig.GP(K.Matern32(0.5)), 1, values=True), X[:, :1]))
        np.testing.assert_allclose(got, slopes * factor[:, None, :, None], rtol=1e-10)
        with pytest.raises(TypeError, match="no derivative in mean square along column 1"):
            ig.priors.Derivative(ig.GP(time * other), dim=2)
    with pytest.raises(TypeError, match=r"columns \(0, 0\) together"):
        ig.priors.Derivative(ig.GP(time * place), dims=[(0, 0)])
    mixture = ig.priors.LMC([[1.0], [2.0]], [time * place])
    assert ig.priors.Derivative(mixture, dims=0).num_outputs == 2
    with pytest.raises(TypeError, match="column 1"):
        ig.priors.Derivative(mixture, dims=(0, 1))
    with pytest.raises(ValueError, match="holds column 2 but the inputs have 2"):
        ig.priors.Derivative(ig.GP(K.Matern32()), dims=2).mean(jnp.zeros((1, 2)))
    with pytest.raises(ValueError, match="twice"):
        ig.priors.Derivative(ig.GP(K.SquaredExponential()), dims=(0, 0))
    for wrong in ({}, {"dim": 1, "dims": 0}):
        with pytest.raises(ValueError, match="either dim"):
            ig.priors.Derivative(ig.GP(K.SquaredExponential()), **wrong)
    with pytest.raises(ValueError, match="dims must hold columns"):
        ig.priors.Derivative(ig.GP(K.SquaredExponential()), dims=[0.5])


def test_no_derivative_in_the_number_of_the_output():
    rows = ig.priors.as_input(ig.priors.LMC([[1.0], [2.0]], K.SquaredExponential())).kernel
    Z = [[0.0, 0.0], [1.0, 1.0]]
    prior = ig.priors.MatrixValued(rows, 2)
    for dims in (None, 1):
        with pytest.raises(TypeError, match="column 1"):
            ig.SparseGP(prior, ig.features.InducingDerivatives(Z, dims=dims))
    Kuu = ig.SparseGP(prior, ig.features.InducingDerivatives(Z, dims=0), jitter=0.0).Kuu().dense()[0]
    np.testing.assert_allclose(Kuu, [[1.0, 0.0], [0.0, 4.0]], atol=1e-12)  # slopes of an SE have no covariance at τ = ℓ
    assert ig.priors.Derivative(prior, dim=1).num_outputs == 2
    with pytest.raises(TypeError, match="column 1"):
        ig.priors.Derivative(ig.GP(rows), dims=1).Kff(jnp.asarray(Z))


def test_higher_order():
    """∂²/∂x² and the mixed derivative of Matérn 5/2 and of a product, against the even derivatives of k at τ."""
    ell, X = 0.8, jnp.asarray([[0.0], [0.3]])
    prior = ig.priors.Derivative(ig.GP(K.Matern52(ell)), dims=[(0, 0)])
    c = 5**0.5 / ell
    fourth = lambda r: c**4 / 3 * (3 - 5 * c * r + (c * r) ** 2) * np.exp(-c * r)  # noqa: E731
    truth = [[fourth(0.0), fourth(0.3)], [fourth(0.3), fourth(0.0)]]
    np.testing.assert_allclose(covariance(prior, X), truth, rtol=1e-9)
    curvature = ig.features.InducingDerivatives(X, dims=[(0, 0), 0])
    Kuu = np.asarray(jax.jit(lambda k: curvature.Kuu(k, 0.0).dense())(K.Matern52(ell)))
    second = lambda r: c**2 / 3 * (1 + c * r - (c * r) ** 2) * np.exp(-c * r)  # noqa: E731
    third = lambda r: -(c**4) / 3 * r * (3 - c * r) * np.exp(-c * r)  # noqa: E731  d/dτ of `second`
    np.testing.assert_allclose(np.diagonal(Kuu), [fourth(0.0), second(0.0)], rtol=1e-9)
    np.testing.assert_allclose(Kuu[0, 1], -third(0.3), rtol=1e-9)
    with pytest.raises(TypeError, match=r"columns \(0, 0\)"):
        curvature.Kuu(K.Matern32(), 0.0)
    product = K.ActiveDims(K.Matern32(), 0) * K.ActiveDims(K.Matern32(2.0), 1)
    mixed = ig.priors.Derivative(ig.GP(product), dims=[(0, 1)])
    np.testing.assert_allclose(covariance(mixed, jnp.zeros((1, 2))), [[3.0 * 0.75]], rtol=1e-9)
    with pytest.raises(TypeError, match=r"columns \(0, 1\) together"):
        ig.priors.Derivative(ig.GP(K.Matern32()), dims=[(1, 0)])


def test_training_on_chosen_derivatives():
    """Labels of ∂f/∂t alone, beside a category, give f up to a constant by its features."""
    kernel = K.ActiveDims(K.SquaredExponential(), 0) * K.ActiveDims(K.Coregion([[1.0], [1.0]], [1e-3, 1e-3]), 1)
    prior = ig.priors.Derivative(ig.GP(kernel), dims=0, values=True)
    t = np.linspace(-2.0, 2.0, 9)
    X = np.stack([np.tile(t, 2), np.repeat([0.0, 1.0], 9)], axis=1)
    y = np.stack([np.where(np.arange(18) == 4, 0.0, np.nan), np.cos(X[:, 0])], axis=1)
    mean = jax.jit(lambda: prior.condition(X, y, 1e-6).mean(X))()
    np.testing.assert_allclose(mean[:, 0], np.sin(X[:, 0]), atol=2e-2)
