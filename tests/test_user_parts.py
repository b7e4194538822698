"""A user's parts get what ours get: starting values, training methods, correlated samples, checks and plots."""

from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import inducing as ig
from inducing.parameters import positive, real

X = np.linspace(0.0, 5.0, 30)
Y = np.sin(X) + 0.1 * np.cos(37.0 * X)
Z = ig.features.InducingPoints(np.linspace(0.0, 5.0, 6)[:, None])


class Forwarding(ig.layers.AbstractLayer):
    """A layer that does what another does, and says nothing else about itself."""

    inner: ig.layers.AbstractLayer

    random: ClassVar[bool] = True
    terminal: ClassVar[bool] = True

    def propagate(self, x, key, data, replicates):
        return self.inner.propagate(x, key, data, replicates)

    def cache(self):
        return self.inner.cache()

    def moments(self, x, correlated=False, cache=None):
        return self.inner.moments(x, correlated, cache)

    def joint(self, X, cache=None):
        return self.inner.joint(X, cache)

    def kl(self):
        return self.inner.kl()

    def draw(self, key, num, dim):
        return self.inner.draw(key, num, dim)

    def width(self, inputs):
        return self.inner.width(inputs)


class Logistic(ig.likelihoods.AbstractQuadratureLikelihood):
    scale: Array = positive(1.0)

    def log_prob(self, f, y, *, index=None):
        z = (y - f) / self.scale
        return -z - 2.0 * jax.nn.softplus(-z) - jnp.log(self.scale)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Logistic

        return Logistic(f, self.scale)


class Wave(ig.kernels.AbstractPointKernel):
    """A kernel that takes no negative inputs."""

    variance: Array = positive(1.0)
    lengthscale: Array = positive(1.0)

    def __call__(self, x, y):
        return self.variance * jnp.exp(-0.5 * jnp.sum((x - y) ** 2) / self.lengthscale**2)

    def check_inputs(self, X):
        if (X < 0).any():
            raise ValueError("Wave takes no negative inputs.")


class Shifted(ig.priors.AbstractPrior):
    """f(x) = g(x − delay), for inputs up to 10."""

    latent: ig.GP
    delay: Array = real(0.0)

    num_latents: ClassVar[int] = 1
    num_outputs: ClassVar[int] = 1
    num_sites: ClassVar[int] = 1
    mixing: ClassVar[None] = None

    @property
    def kernels(self):
        return self.latent.kernels

    @property
    def smoothness(self):
        return self.latent.smoothness

    def input_columns(self, latent):
        return latent

    def mean(self, X):
        return self.latent.mean(X - self.delay)

    def mu_u(self, features):
        return self.latent.mu_u(features)

    def Kuu(self, features, jitter):
        return self.latent.Kuu(features, jitter)

    def Kuf(self, features, X):
        return self.latent.Kuf(features, X - self.delay)

    def Kff(self, X, X2=None):
        return self.latent.Kff(X - self.delay, None if X2 is None else X2 - self.delay)

    def Kff_diag(self, X):
        return self.latent.Kff_diag(X - self.delay)

    def draw_latents(self, key, num, dim):
        g, sites = self.latent.draw_latents(key, num, dim)
        return g, lambda X: sites(X - self.delay)

    def check_inputs(self, X):
        if (X > 10.0).any():
            raise ValueError("Shifted takes inputs up to 10.")


def model_of(prior=None, likelihood=None, features=Z):
    prior = ig.GP(ig.kernels.Matern52()) if prior is None else prior
    return ig.Model(ig.SparseGP(prior, features), likelihood or ig.likelihoods.Gaussian(0.1))


def fit(model, y=Y, **options):
    return ig.fit(model, (X, y), steps=options.pop("steps", 5), progress=False, **options)


def test_a_layer_that_forwards_to_correlated_outputs_does_not_sample_them_independently():
    gp = ig.SparseGP(ig.priors.LMC([[1.0], [1.0]], ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    model = ig.Model(Forwarding(gp), ig.likelihoods.Gaussian(1e-6))
    with pytest.raises(ValueError, match="output_cov=True"):
        model.predict([0.5]).sample(jax.random.key(0), 4)
    samples = model.predict([0.5], output_cov=True).sample(jax.random.key(0), 4000)
    assert np.corrcoef(samples[:, 0].T)[0, 1] > 0.999


def test_a_likelihood_gets_starting_scales():
    """As Laplace does: the latents have the variance of the labels, and the noise is a tenth of it."""
    y = 1e6 * np.sin(X)
    ours, theirs = (fit(model_of(likelihood=lik), y, steps=1).model for lik in (ig.likelihoods.Laplace(), Logistic()))
    for model in (ours, theirs):
        assert 1e11 < float(model.layers[0].prior.kernel.variance) < 1e13
        assert 1e4 < float(model.likelihood.scale) < 1e6


def test_a_partial_objective_trains_as_the_objective_does():
    plain, bound = fit(model_of()), fit(model_of(), objective=partial(ig.elbo, beta=1.0))
    assert plain.method == bound.method == "collapsed"
    np.testing.assert_allclose(plain.history.bound, bound.history.bound, rtol=1e-9)
    assert fit(model_of(), objective=partial(ig.elbo, beta=0.5)).method != "collapsed"


def test_checks_of_inputs_are_called():
    for prior, bad, message in (
        (ig.GP(Wave()), -1.0, "no negative inputs"),
        (Shifted(ig.GP(ig.kernels.Matern52())), 11.0, "inputs up to 10"),
    ):
        model = model_of(prior)
        with pytest.raises(ValueError, match=message):
            ig.fit(model, (np.append(X, bad), np.append(Y, 0.0)), progress=False)
        with pytest.raises(ValueError, match=message):
            model.predict([bad])


def test_plots_of_a_likelihood():
    import matplotlib.pyplot as plt

    class Signal(Logistic):
        @property
        def adds_noise(self):
            return True

    for likelihood, bands in ((Logistic(0.1), ["95% of y"]), (Signal(0.1), ["95% of y", "95% of f"])):
        ax = ig.report.plot_posterior(model_of(likelihood=likelihood), (X, Y), draws=1 if len(bands) > 1 else 0)
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert [label for label in labels if label.startswith("95%")] == bands
        assert "inducing inputs" in labels
    plt.close("all")


class Decay(ig.means.AbstractMean):
    height: Array = real(1.0)

    def __call__(self, X):
        return self.height * jnp.exp(-X[:, 0])


class Increments(ig.features.AbstractFeatures):
    Z: Array = real()

    @property
    def num_features(self):
        return len(self.Z) - 1

    def apply(self, f, kernel=None):
        return f(self.Z[1:]) - f(self.Z[:-1])

    def Kuf(self, kernel, X):
        return ig.features.general_Kuf(self, kernel, X)

    def Kuu(self, kernel, jitter):
        return ig.features.general_Kuu(self, kernel, jitter)


class Recogniser(ig.layers.AbstractEncoder):
    slope: Array = real(1.0)

    sees: ClassVar[tuple[str, ...]] = ("y",)

    def __call__(self, x, data, dim):
        mean = self.slope * data.y[:, None]
        return mean, jnp.full_like(mean, 0.5)

    def check(self, dim):
        assert dim == 1


def penalised(model, data, *, num_data=None):
    return ig.elbo(model, data, num_data=num_data) - model.likelihood.variance


CASES = {
    "kernel": (lambda: model_of(ig.GP(Wave())), {}, "collapsed"),
    "mean": (lambda: model_of(ig.GP(ig.kernels.Matern52(), mean=Decay())), {}, "collapsed"),
    "features": (lambda: model_of(features=Increments(Z.Z)), {}, "collapsed"),
    "prior": (lambda: model_of(Shifted(ig.GP(ig.kernels.Matern52()))), {}, "collapsed"),
    "likelihood": (lambda: model_of(likelihood=Logistic()), {}, "natgrad"),
    "layer": (lambda: ig.Model(Forwarding(model_of().layers[0]), ig.likelihoods.Gaussian(0.1)), {}, None),
    "encoder": (
        lambda: ig.Model(
            [ig.LatentVariable(1, Recogniser()), ig.Deterministic(lambda v: jnp.sin(jnp.sum(v)))],
            ig.likelihoods.Gaussian(0.1),
        ),
        {},
        None,
    ),
    "objective": (model_of, {"objective": penalised}, "natgrad"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_part_in_a_fit_and_a_prediction(name):
    build, options, method = CASES[name]
    result = fit(build(), **options)
    assert np.isfinite(result.history.bound).all()
    if method is not None:
        assert result.method == method
    pred = result.model.predict([0.5, 1.5], samples=8)
    assert pred.mean.shape == (2, 1) and np.isfinite(pred.mean).all() and np.isfinite(pred.log_prob([0.1, 0.2])).all()
