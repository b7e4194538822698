"""What kernels answer about themselves: how they start, scale and move, and which closed forms they have."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jaxtyping import Array

import inducing as ig
from inducing import kernels as K
from inducing import testing
from inducing.numerics.lattices import lattice_normal
from inducing.parameters import Start, positive
from tests.kernels.test_kernels import KERNELS

X = np.array([[0.0, 10.0, 7.0], [2.0, 50.0, 7.0], [0.0, 10.0, 7.0], [2.0, 50.0, 7.0]])  # spreads 1, 20 and 0
TIED = K.SquaredExponential(0.8, 1.3)
MORE = {
    "HilbertSpace": K.HilbertSpace(K.Matern32(0.9, 1.3), [(-4.0, 4.0), (-4.0, 4.0)], 4),
    "Spherical": K.Spherical(K.Matern32(0.9, 1.3)),
    "SphericalArcCosine": K.SphericalArcCosine(1, 1.3),
    "Squared": TIED * TIED * K.Matern12(),
    "SumOfTied": TIED + TIED,
    "ProductOfSumOfTied": (TIED + TIED) * K.Matern12(),
    "WithoutAmplitude": K.ActiveDims(K.Coregion(np.ones((2, 1)), np.ones(2)), 0) * K.ActiveDims(K.Matern32(), 1),
}


def with_values(kernel, values):
    """The kernel with the arrays of which the ids are given replaced."""
    return jax.tree.map(lambda leaf: values.get(id(leaf), leaf), kernel)


@pytest.mark.parametrize("name", [*KERNELS, *MORE])
def test_amplitude_multiplies_the_kernel(name):
    kernel = {**KERNELS, **MORE}[name]
    x = np.abs(np.random.default_rng(0).normal(size=(3, 2)))
    if name == "WithoutAmplitude":
        x[:, 0] = [0.0, 1.0, 0.0]
    pairs = kernel.amplitude()
    assert pairs
    larger = with_values(kernel, {id(leaf): leaf * 3.0**power for leaf, power in pairs})
    np.testing.assert_allclose(larger.gram(x), 3.0 * kernel.gram(x), rtol=1e-10)


def test_amplitude_is_unknown_where_no_parameter_multiplies_the_kernel():
    categories = K.Coregion(np.ones((2, 1)), np.ones(2))
    assert categories.amplitude() == []
    assert (categories + K.Constant()).amplitude() == []  # one term cannot grow
    assert K.ChangePoint((K.Constant(), categories), [0.0]).amplitude() == []
    assert ((TIED + K.Constant()) * TIED).amplitude() == []  # TIED would grow in both factors, the constant in one


def only(starts):
    [start] = starts
    return start


@pytest.mark.parametrize(
    "given, value, far",
    [
        # two columns vary, so the factor is √2 − ½; the constant column takes its size, 7
        ([1.0, 1.0, 1.0], (math.sqrt(2) - 0.5) * np.array([1.0, 20.0, 7.0]), False),
        (1.0, (math.sqrt(2) - 0.5) * math.sqrt((1 + 400) / 2), False),
        (1e5, (math.sqrt(2) - 0.5) * math.sqrt((1 + 400) / 2), True),
        (1e-3, (math.sqrt(2) - 0.5) * math.sqrt((1 + 400) / 2), True),
        ([1e-4, 20.0, 7.0], (math.sqrt(2) - 0.5) * np.array([1.0, 20.0, 7.0]), True),
    ],
)
def test_lengthscales_start_at_the_spread_of_columns(given, value, far):
    kernel = K.Matern52(given)
    start = only(kernel.start(X))
    assert start.leaf is kernel.lengthscale
    assert start.far is far
    np.testing.assert_allclose(start.value, value)


def test_lengthscales_of_constant_inputs_start_at_their_size():
    np.testing.assert_allclose(only(K.Matern52().start(np.full((3, 1), -4.0))).value, 2.0)
    np.testing.assert_allclose(only(K.Matern52().start(np.zeros((3, 1)))).value, 0.5)
    assert K.Matern52([1.0, 1.0]).start(X) == []  # not as many as columns


def test_weights_start_with_columns_that_contribute_equally():
    squares = np.array([2.0, 1300.0, 49.0])  # mean squares of the columns
    np.testing.assert_allclose(only(K.Linear([1.0, 1.0, 1.0]).start(X)).value, 3.0 / (3 * squares))
    np.testing.assert_allclose(only(K.Linear().start(X)).value, 3.0 / squares.sum())
    assert not only(K.Linear(1e20).start(X)).far  # its weights are its amplitude too, of which labels decide
    np.testing.assert_allclose(only(K.Polynomial(2, 1.0, 5.0).start(X)).value, 5.0 / squares.sum())
    assert only(K.Polynomial(2, 1e20, 5.0).start(X)).far
    start = only(K.ArcCosine(1, 1.0, [1.0, 1.0, 1.0], 6.0).start(X))
    np.testing.assert_allclose(start.value, 6.0 / (3 * squares))
    assert K.Linear().start(np.zeros((2, 1))) == []


def test_composites_start_as_their_parts():
    first, second = K.Matern32(), K.Linear()
    for kernel in (first + second, first * second):
        assert [id(start.leaf) for start in kernel.start(X)] == [id(first.lengthscale), id(second.variance)]
    np.testing.assert_allclose(only(K.ActiveDims(first, (1,)).start(X)).value, 0.5 * 20.0)
    warped = K.Warped(first, lambda x: 3.0 * x[:1])
    np.testing.assert_allclose(only(warped.start(X)).value, 0.5 * 3.0)


def test_change_points_start_and_move_by_the_spread_of_their_column():
    kernel = K.ChangePoint((K.Constant(), K.Constant(), K.Constant()), [0.0, 1.0], [1.0, 1.0], dim=1)
    start = only(kernel.start(X))
    assert start.leaf is kernel.steepness and not start.far
    np.testing.assert_allclose(start.value, [0.1, 0.1])
    slow = K.ChangePoint((K.Constant(), K.Constant()), [0.0], 1e-5, dim=1)
    assert only(slow.start(X)).far
    for whole in (kernel, 2.0 * kernel, K.Matern12() + kernel):
        [(leaf, unit)] = whole.units(X)
        assert leaf is kernel.locations
        np.testing.assert_allclose(unit, 20.0)
    [(leaf, unit)] = K.ActiveDims(kernel, (1, 0)).units(X)
    assert leaf is kernel.locations and unit == 1.0
    constant = K.ChangePoint((K.Constant(), K.Constant()), [0.0], dim=2)
    assert constant.start(X) == [] and constant.units(X)[0][1] == 7.0
    assert K.ChangePoint((K.Constant(), K.Constant()), [0.0], dim=3).units(X) == []


def test_warping_functions_see_few_rows():
    seen = []

    def function(x):
        seen.append(x)
        return x

    many = np.random.default_rng(0).normal(size=(5000, 1))
    value = only(K.Warped(K.Matern12(), function).start(many)).value
    np.testing.assert_allclose(value, 0.5 * many[::20].std())


def test_smoothness_along_columns():
    smooth, rough = K.ActiveDims(K.Matern52(), (0, 2)), K.ActiveDims(K.Matern12(), 1)
    for both in (smooth * rough, smooth + rough, K.ChangePoint((smooth, rough), [0.0])):
        assert [both.smoothness_along(d) for d in range(4)] == [2, 0, 2, math.inf]
    assert K.ActiveDims(smooth * rough, (1, 0, 2)).smoothness_along(0) == 0
    assert K.Matern32().smoothness_along(5) == 1


def test_smoothness_apart_from_categories():
    categories = K.Coregion(np.ones((2, 1)), np.ones(2))
    rows = K.ActiveDims(K.Matern32(), 0) * K.ActiveDims(categories, 1)
    assert rows.continuous_smoothness == 1
    assert rows.smoothness == 0
    assert (rows + K.Constant()).continuous_smoothness == 1
    assert K.Matern52().continuous_smoothness == 2


def test_structure():
    a, b = K.Matern12(), K.Matern32()
    chosen = K.ActiveDims(a, (2,))
    assert (a + b).terms() == (a, b) and (a + b).factors() == (a + b,)
    assert (a * b).factors() == (a, b) and (a * b).terms() == (a * b,)
    assert chosen.on_columns() == (a, (2,)) and a.on_columns() == (a, None)
    assert a.terms() == a.factors() == (a,)
    assert K.Constant().is_constant and not (K.Constant() + a).is_constant


@pytest.mark.parametrize("kernel", [K.Matern12(0.7, 1.3), K.Matern32(0.7, 1.3), K.Matern52(0.7, 1.3)])
def test_matern_form(kernel):
    nu, lengthscale, variance = kernel.matern_form()
    a = math.sqrt(2 * nu) * 0.4 / float(lengthscale)
    truth = float(variance) * 2 ** (1 - nu) / math.gamma(nu) * a**nu * scipy.special.kv(nu, a)
    np.testing.assert_allclose(kernel(jnp.zeros(1), jnp.full(1, 0.4)), truth)
    assert kernel.gaussian_form() is None
    assert K.SquaredExponential().matern_form() is None


def test_laplacian_basis():
    kernel = K.HilbertSpace(K.Matern32(0.5), (0.0, 2.0), 3)
    basis = kernel.laplacian_basis()
    x = np.array([[0.3], [1.1]])
    j = np.arange(1, 4)
    phi = np.sin(np.pi * j * x / 2.0)  # L = 2, so that (2/L)^½ = 1
    S = np.asarray(basis.density(jnp.asarray(np.pi * j[:, None] / 2.0)))
    np.testing.assert_allclose((phi * S) @ phi.T, kernel.gram(x), rtol=1e-6)
    assert K.Matern32().laplacian_basis() is None


def test_gaussian_expectations_are_integrals():
    kernel = K.SquaredExponential(0.7, 1.3)
    Z, mean, variance = np.array([[0.0], [0.6]]), np.array([[0.2], [-0.4]]), np.array([[0.3], [0.1]])
    psi = kernel.gaussian_expectations(*map(jnp.asarray, (Z, mean, variance)))
    t, w = np.polynomial.hermite_e.hermegauss(60)
    w = w / w.sum()
    each = [kernel.gram(m + np.sqrt(v) * t[:, None], Z) for m, v in zip(mean, variance, strict=True)]
    np.testing.assert_allclose(psi.psi0, 2 * 1.3)
    np.testing.assert_allclose(psi.psi1, [w @ k for k in each], rtol=1e-7)
    np.testing.assert_allclose(psi.psi2, sum(k.T @ (w[:, None] * k) for k in each), rtol=1e-7)
    assert K.Matern32().gaussian_expectations(*map(jnp.asarray, (Z, mean, variance))) is None


@pytest.mark.parametrize("kernel", [K.SquaredExponential(0.7, 1.3), K.Matern12(0.7, 1.3), K.Matern52(0.7, 1.3)])
@pytest.mark.parametrize(("width", "lag"), [(0.01, 0.02), (0.4, 0.0), (0.4, 0.5), (20.0, 3.0)])
def test_smoothed_is_an_integral(kernel, width, lag):
    """Over z = lag − t on both sides of the kink at 0, by Gauss–Legendre quadrature in short panels."""
    x, w = np.polynomial.legendre.leggauss(20)
    ends = np.concatenate([[0.0], np.geomspace(1e-4, lag + 10.0 * width, 100)])
    z = (0.5 * (ends[:-1] + ends[1:])[:, None] + 0.5 * np.diff(ends)[:, None] * x).ravel()
    w = (0.5 * np.diff(ends)[:, None] * w).ravel()
    density = sum(np.exp(-0.5 * ((lag - side * z) / width) ** 2) for side in (1, -1)) / (np.sqrt(2 * np.pi) * width)
    truth = (w * density) @ kernel.gram(z[:, None], np.zeros((1, 1)))[:, 0]
    smoothed = kernel.smoothed(jnp.array([width**2]))
    np.testing.assert_allclose(smoothed(jnp.full(1, lag), jnp.zeros(1)), truth, atol=1e-8 * 1.3)
    if lag == 0.0:
        np.testing.assert_allclose(smoothed.diag(jnp.zeros((2, 1))), [truth, truth], atol=1e-8 * 1.3)


def test_smoothed_in_several_dimensions():
    """Against E k(x + √v z, y) over a lattice of z, with a width and a lengthscale for each of three columns."""
    kernel, v = K.Matern12([0.5, 0.8, 2.0], 1.3), np.array([0.3, 0.1, 4.0])
    z = np.asarray(lattice_normal(jax.random.key(0), 2**16, 3, float))
    x = jnp.asarray([[0.4, -0.2, 1.0]])
    samples = np.asarray(kernel.gram(np.asarray(x) + np.sqrt(v) * z, jnp.zeros((1, 3))))
    np.testing.assert_allclose(
        kernel.smoothed(jnp.asarray(v)).gram(x, jnp.zeros((1, 3))), [[samples.mean()]], rtol=2e-4
    )
    assert K.RationalQuadratic().smoothed(jnp.array([0.2])) is None


def test_features_of_a_smoothed_kernel():
    testing.check_kernel(K.Matern12([0.5, 0.8], 1.3).smoothed(jnp.array([0.1, 0.2])))


class Triangle(K.AbstractPointKernel):
    """A user's kernel with the usual fields, and no answers of its own."""

    lengthscale: Array = positive(1.0)
    variance: Array = positive(1.0)

    def __call__(self, x, y):
        return self.variance * jnp.prod(jnp.maximum(0.0, 1.0 - jnp.abs(x - y) / self.lengthscale))


class Started(K.AbstractPointKernel):
    """A user's kernel that says how it starts and that it is a squared exponential."""

    lengthscale: Array = positive(1.0)
    variance: Array = positive(1.0)
    smoothness: ClassVar[float] = math.inf

    def __call__(self, x, y):
        return self.variance * jnp.exp(-0.5 * jnp.sum(((x - y) / self.lengthscale) ** 2))

    def start(self, x):
        return K.start_lengthscale(self.lengthscale, x)

    def gaussian_form(self):
        return K.GaussianForm(self.lengthscale, self.variance)


class Halved(K.AbstractPointKernel):
    """A user's kernel without a field `variance`, which scales by the root of c in each factor."""

    height: Array = positive(1.0)

    def __call__(self, x, y):
        return self.height**2 * jnp.minimum(x, y).sum()

    def amplitude(self):
        return [(self.height, 0.5)]


def test_defaults_of_users_kernels_are_safe():
    kernel = Triangle()
    assert kernel.start(X) == [] and kernel.units(X) == []
    [(leaf, power)] = kernel.amplitude()
    assert leaf is kernel.variance and power == 1.0
    assert kernel.smoothness_along(0) == 0 and kernel.continuous_smoothness == 0
    assert kernel.gaussian_form() is kernel.matern_form() is kernel.laplacian_basis() is None
    assert kernel.smoothed(jnp.ones(1)) is None
    kernel.check_inputs(X)
    wrapped = 2.0 * K.ActiveDims(kernel, 1) + K.Constant()
    assert wrapped.start(X) == [] and len(wrapped.amplitude()) == 2


def test_answers_of_users_kernels_are_used():
    kernel = Started()
    start = only((2.0 * kernel).start(X))
    assert isinstance(start, Start) and start.leaf is kernel.lengthscale
    with pytest.raises(TypeError, match="SquaredExponential"):
        ig.features.EigenMercer(3, [0.0], [1.0]).Kuu(Triangle(), 0.0)
    same = K.SquaredExponential()
    for features in (ig.features.EigenMercer(3, [0.0], [1.0]), ig.features.Multiscale([[0.0], [1.0]], [[0.1], [0.2]])):
        np.testing.assert_allclose(features.Kuu(kernel, 0.0).dense(), features.Kuu(same, 0.0).dense())
    steep = Halved(1.5)
    larger = with_values(steep, {id(leaf): leaf * 3.0**power for leaf, power in (K.Constant() * steep).amplitude()})
    np.testing.assert_allclose(larger.gram(X), steep.gram(X))  # the constant comes first
    larger = with_values(steep, {id(leaf): leaf * 3.0**power for leaf, power in steep.amplitude()})
    np.testing.assert_allclose(larger.gram(X), 3.0 * steep.gram(X))


def test_fit_starts_a_users_kernel_from_the_data():
    x = np.linspace(0.0, 1e4, 30)
    gp = ig.SparseGP(ig.GP(Started()), ig.features.InducingPoints(x[::6, None]))
    model = ig.initialise.scales(ig.Model(gp, ig.likelihoods.Gaussian()), (x, 1e3 * np.sin(x / 1e3)))
    kernel = model.layers[0].prior.kernel
    np.testing.assert_allclose(kernel.lengthscale, 0.5 * x.std(), rtol=1e-6)
    np.testing.assert_allclose(kernel.variance, (1e3 * np.sin(x / 1e3)).var(), rtol=1e-5)


def test_kernels_are_pytrees_after_a_replacement():
    assert eqx.tree_equal(with_values(TIED, {}), TIED)
