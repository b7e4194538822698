"""What features answer about themselves: where they look, and at how many columns."""

import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing import features as F
from inducing import kernels as K

Z = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
POINTS, SLOPES = F.InducingPoints(Z), F.InducingDerivatives(Z, dims=0)
FEATURES = {  # the number of columns, the points that they look at, and whether they are values of f there
    "InducingPoints": (POINTS, 2, Z, True),
    "InducingDerivatives": (SLOPES, 2, Z, False),
    "Multiscale": (F.Multiscale(Z, np.ones((3, 2))), 2, Z, False),
    "EigenNumerical": (F.EigenNumerical(Z, 2), 2, Z, False),
    "EigenMercer": (F.EigenMercer(3, [0.0, 0.0], [1.0, 1.0]), 2, None, False),
    "EigenLaplacian": (F.EigenLaplacian([(0.0, 1.0), (0.0, 1.0)], 2), 2, None, False),
    "Fourier": (F.Fourier(0.0, 1.0, 2), 1, None, False),
    "FreeFourier": (F.FreeFourier(0.0, 1.0, [2.0]), 1, None, False),
    "GaussianFourier": (F.GaussianFourier(Z, [0.0, 0.0], [1.0, 1.0]), 2, None, False),
    "BoxFourier": (F.BoxFourier(Z, [0.0, 0.0], [1.0, 1.0], 4), 2, None, False),
    "Integral": (F.Integral(lambda x: x, [0.0, 0.0], [1.0, 1.0]), 2, None, False),
    "RegionAverage": (F.RegionAverage(np.zeros((3, 2)), np.ones((3, 2))), 2, None, False),
    "SphericalHarmonics": (F.SphericalHarmonics(3, 1), 3, None, False),
    "Product": (F.Product((POINTS, POINTS)), None, None, False),
    "Additive": (F.Additive((POINTS, POINTS)), None, None, False),
    "Union": (F.Union((POINTS, SLOPES)), 2, Z + Z, False),
    "UnionOfValues": (F.Union((POINTS, POINTS)), 2, Z + Z, True),
    "UnionWithIntegrals": (F.Union((F.EigenMercer(3, [0.0, 0.0], [1.0, 1.0]), POINTS)), 2, None, False),
}


@pytest.mark.parametrize("name", FEATURES)
def test_where_features_look(name):
    features, columns, points, values = FEATURES[name]
    assert features.num_inputs == columns
    assert features.are_values is values
    if points is None:
        assert features.locations is None
    else:
        np.testing.assert_array_equal(features.locations, points)


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: F.Union((f,))], ids=["alone", "union"])
def test_features_refuse_points_that_the_kernel_cannot_take(wrap):
    categories = K.ActiveDims(K.Coregion(np.ones((2, 1)), np.ones(2)), 1)
    wrap(F.InducingPoints([[0.5, 1.0]])).check_inputs(categories)
    with pytest.raises(ValueError, match=r"whole numbers from 0 to 1, got 2\.5"):
        wrap(F.InducingPoints([[0.5, 2.5]])).check_inputs(categories)
    with pytest.raises(ValueError, match="whole numbers"):
        F.Additive((POINTS, F.InducingPoints([[2.5]]))).check_inputs(K.Matern32() + categories)


class Middles(F.AbstractFeatures):
    """A user's features, with no answers of their own."""

    @property
    def num_features(self):
        return 1

    def apply(self, f, kernel=None):
        return f(jnp.full((1, 1), 0.5))

    def Kuu(self, kernel, jitter):
        return F.general_Kuu(self, kernel, jitter)

    def Kuf(self, kernel, X):
        return F.general_Kuf(self, kernel, X)


def test_defaults_of_users_features_are_safe():
    features = Middles()
    assert features.locations is None and features.num_inputs is None and features.are_values is False
    features.check_inputs(K.Matern32())
    gp = ig.SparseGP(ig.GP(K.Matern32()), features)
    assert gp.num_features == 1


def test_a_users_sum_and_matern_kernel_are_served():
    class Own(K.AbstractPointKernel):
        def __call__(self, x, y):
            return K.Matern32()(x, y)

        def matern_form(self):
            return K.Matern32().matern_form()

    features = F.Fourier(0.0, 1.0, 3)
    np.testing.assert_allclose(features.Kuu(Own(), 0.0).dense(), features.Kuu(K.Matern32(), 0.0).dense())

    class Both(K.AbstractPointKernel):
        def __call__(self, x, y):
            return K.Matern32()(x, y) + K.Matern12()(x, y)

        def terms(self):
            return K.Matern32(), K.Matern12()

    additive, same = F.Additive((features, features)), K.Matern32() + K.Matern12()
    np.testing.assert_allclose(additive.Kuu(Both(), 0.0).dense(), additive.Kuu(same, 0.0).dense())
