"""float32: labels in small and large units, and inputs that it cannot tell apart."""

import equinox as eqx
import jax
import numpy as np
import pytest

import inducing as ig
from inducing.sklearn import GPRegressor

x = np.linspace(0.0, 1.0, 60)
f = np.sin(6.0 * x)
y = f + 0.05 * np.random.default_rng(0).normal(size=60)


def model(unit, dtype):
    kernel = ig.kernels.Matern52(dtype(0.3), dtype(unit**2))
    gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(x[::6, None].astype(dtype)))
    return ig.Model(gp, ig.likelihoods.Gaussian(dtype((0.1 * unit) ** 2)))


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_gradients_do_not_depend_on_the_unit_of_labels(unit):
    """Nor leave the range of float32 on the way, where 1/variance² is 1e52."""
    free = eqx.filter_jit(eqx.filter_grad(lambda m, data: ig.collapsed_elbo(m, data)))

    def logarithmic(unit, dtype):  # derivatives by log σ² of kernel and noise
        m = model(unit, dtype)
        g = free(m, ig.Data(x.astype(dtype), (unit * y).astype(dtype)))
        pairs = (
            (g.layers[0].prior.kernel.variance, m.layers[0].prior.kernel.variance),
            (g.likelihood.variance, m.likelihood.variance),
        )
        return [float(a) * float(b) for a, b in pairs]

    np.testing.assert_allclose(logarithmic(unit, np.float32), logarithmic(1.0, np.float64), rtol=1e-2)


@pytest.mark.parametrize("method, steps", [("collapsed", None), ("natgrad", 150)])
def test_a_fit_of_labels_of_1e_minus_12(method, steps):
    result = ig.fit(model(1.0, np.float32), (x, 1e-12 * y), method=method, steps=steps, progress=False)
    predicted = result.model.predict(x)
    assert predicted.mean.dtype == np.float32
    assert np.sqrt(np.mean((1e12 * np.asarray(predicted.mean, float)[:, 0] - f) ** 2)) < 0.05
    assert np.all(np.asarray(predicted.variance) > 0.0)


def test_a_fit_of_times_that_float32_cannot_tell_apart_is_refused():
    t = 1.7e9 + 10.0 * np.arange(60)
    with pytest.raises(ValueError, match=r"x has 60 different values in column 0, .* subtract an offset"):
        ig.fit(model(1.0, np.float32), (t, y), progress=False)
    with jax.enable_x64(False), pytest.raises(ValueError, match="of which float32 can tell"):
        ig.Data(t, y)


def test_points_that_float32_cannot_tell_apart_are_refused():
    """Also those of features and kernels, and the inputs of an estimator that computes in float32."""
    t = 1.7e9 + 10.0 * np.arange(60)[:, None]
    with pytest.raises(ValueError, match=r"x has 60 different values in column 0, .* of which float32 can tell"):
        GPRegressor(dtype="float32", num_inducing=5, steps=2).fit(t, y)
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=r"Z has 60 different values in column 0, .* of which float32 can tell"):
            ig.features.InducingPoints(t)
        with pytest.raises(ValueError, match=r"X has 60 different values in column 0, .* of which float32 can tell"):
            ig.kernels.Matern52().gram(t)
