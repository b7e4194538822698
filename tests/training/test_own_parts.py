"""A user's kernel, likelihood and layer train like ours: starting scales, methods, units and natural gradients."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import inducing as ig
from inducing.layers.base import AbstractLayer
from inducing.parameters import Start, positive

from .problems import quiet, regression, same, wave

X, y = wave(30)


class Wrapper(AbstractLayer):
    """A layer that forwards everything to a SparseGP."""

    gp: ig.SparseGP

    random = True
    terminal = True

    def propagate(self, x, key, data, replicates):
        return self.gp.propagate(x, key, data, replicates)

    def cache(self):
        return self.gp.cache()

    def moments(self, x, correlated=False, cache=None):
        return self.gp.moments(x, correlated, cache)

    def joint(self, X, cache=None):
        return self.gp.joint(X, cache)

    def kl(self):
        return self.gp.kl()

    def draw(self, key, num, dim):
        return self.gp.draw(key, num, dim)

    def width(self, inputs):
        return self.gp.width(inputs)

    def variational(self):
        return self.gp.variational()

    def gaussians(self):
        return self.gp.gaussians()

    @property
    def is_whitened(self):
        return self.gp.is_whitened

    @property
    def is_fresh(self):
        return self.gp.is_fresh

    def relative_jitter(self):
        return self.gp.relative_jitter()

    def units(self, x):
        return self.gp.units(x)

    def start_inputs(self, x, data, seeds):
        return self.gp.start_inputs(x, data, seeds)

    def start_outputs(self, likelihood, x, y, width):
        return self.gp.start_outputs(likelihood, x, y, width)


class Collapsible(Wrapper):
    """A layer that also says that it is a sparse GP."""

    def as_sparse_gp(self):
        return self.gp


def wrapped(kind, **options):
    model = regression(**options)
    return ig.Model(kind(model.layers[0]), model.likelihood)


@pytest.mark.parametrize("options", [{"method": "adam", "clamp": 2}, {"method": "natgrad", "gamma": 0.5}])
def test_a_layer_that_forwards_its_answers_trains_like_the_layer_inside(options):
    like = {"Z": 1e3 * np.linspace(0.0, 4.0, 16)[:, None], "kernel": ig.kernels.Matern52(), "noise": 1.0}
    fits = [
        quiet(model, (1e3 * X, 1e6 * y), steps=4, **options)
        for model in (regression(**like), wrapped(Collapsible, **like))
    ]
    assert fits[0].message == fits[1].message and "scales set from the data" in fits[0].message
    assert same(fits[0].model, fits[1].model, 1e-8)


def test_a_layer_that_is_a_sparse_gp_gets_the_collapsed_bound():
    assert quiet(wrapped(Wrapper), (X, y), steps=2).method == "natgrad"
    plain, own = quiet(regression(), (X, y), steps=5), quiet(wrapped(Collapsible), (X, y), steps=5)
    assert own.method == "collapsed" and np.isclose(own.bound, plain.bound)
    assert same(own.model, plain.model, 1e-8)


def test_one_natural_gradient_step_of_a_layer_of_ones_own():
    plain = ig.natural_gradient_step(regression(), (X, y))
    assert same(ig.natural_gradient_step(wrapped(Wrapper), (X, y)), plain, 1e-10)
    two = ig.Skip([regression().layers[0], regression().layers[0]])
    model = ig.Model([two, ig.Deterministic(lambda v: v[1:])], ig.likelihoods.Gaussian(0.1))
    with pytest.raises(TypeError, match="with one Gaussian q\\(u\\): this one has 2"):
        ig.natural_gradient_step(model, (X, y), layer=0)
    with pytest.raises(TypeError, match="layers\\[1\\] is a Deterministic"):
        ig.natural_gradient_step(model, (X, y), layer=1)


class Bell(ig.kernels.AbstractPointKernel):
    """A kernel with starting values and lengthscales of its own."""

    scale: Array = positive(1.0)
    variance: Array = positive(1.0)

    def __call__(self, x, y):
        return self.variance * jnp.exp(-0.5 * jnp.sum((x - y) ** 2) / self.scale**2)

    def start(self, x):
        return [Start(self.scale, 0.5 * x.std(), far=False)]

    def lengthscales(self):
        return [self.scale]


class Noise(ig.likelihoods.AbstractQuadratureLikelihood):
    """A likelihood that leaves its starting values to `log_prob`."""

    scale: Array = positive(1.0)

    def log_prob(self, f, y, *, index=None):
        return -jnp.abs((y - f) / self.scale) - jnp.log(2.0 * self.scale)


def test_a_kernel_and_a_likelihood_of_ones_own_start_at_the_scales_of_the_data():
    gp = ig.SparseGP(ig.GP(Bell(), ig.means.Constant()), ig.features.InducingPoints(1e3 * X[:5]))
    model = ig.initialise.scales(ig.Model(gp, Noise()), (1e3 * X, 1e6 * y))
    prior = model.layers[0].prior
    np.testing.assert_allclose(prior.kernel.scale, 500.0 * X.std())
    assert 0.1 < float(prior.kernel.variance) / (1e12 * y.var()) < 10.0
    assert 0.01 < float(model.likelihood.scale) / (1e6 * y.std()) < 1.0
    np.testing.assert_allclose(prior.mean_function.value, 1e6 * y.mean(), atol=5e5)


def test_a_kernel_of_ones_own_restarts_with_shorter_lengthscales():
    x = np.linspace(0.0, 10.0, 150)
    labels = np.sin(8.0 * x) + 0.1 * np.random.default_rng(0).normal(size=150)
    gp = ig.SparseGP(ig.GP(Bell()), ig.features.InducingPoints(x[::3, None]))
    result = quiet(ig.Model(gp, ig.likelihoods.Gaussian()), (x, labels))
    assert "labels looked like noise" in result.message and float(result.model.likelihood.variance) < 0.05
