"""Starting values: what each likelihood makes of labels, and what the default finds out about a user's likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import inducing as ig
import inducing.likelihoods as L
from inducing.likelihoods.supports import POSITIVE
from inducing.parameters import positive

Y = np.array([[-3.0], [1.0], [5.0], [np.nan]])  # mean 1, variance 32/3
NOISE = 3.2 / 3.0  # a tenth of the variance
LOG = np.log([[1.0], [2.0], [8.0]])  # mean 4/3 log 2, variance 14/9 (log 2)²
NAN = [np.nan]


def starts(likelihood, y):
    centre, variance, own = likelihood.start(np.asarray(y))
    return centre.tolist(), variance.tolist(), [np.asarray(s.value).tolist() for s in own]


@pytest.mark.parametrize(
    ("likelihood", "noise"),
    [
        (L.Gaussian(), NOISE),
        (L.StudentT(), NOISE**0.5),
        (L.Laplace(), NOISE**0.5),
    ],
    ids=lambda v: type(v).__name__,
)
def test_functions_plus_noise(likelihood, noise):
    centre, variance, own = starts(likelihood, Y)
    np.testing.assert_allclose(centre, [1.0])
    np.testing.assert_allclose(variance, [32 / 3])
    np.testing.assert_allclose(own, [noise])


@pytest.mark.parametrize(
    ("likelihood", "shift", "own"),
    [
        (L.LogNormal(), 0.0, [(1.4 / 9) ** 0.5 * np.log(2)]),
        (L.Gamma(4.0), np.log(4.0), []),
        (L.Weibull(2.0), 0.0, []),
        (L.Exponential(), 0.0, []),
    ],
    ids=lambda v: type(v).__name__,
)
def test_logarithms_of_scales(likelihood, shift, own):
    centre, variance, found = starts(likelihood, np.exp(LOG))
    np.testing.assert_allclose(centre, 4 / 3 * np.log(2) - shift, rtol=1e-6)
    np.testing.assert_allclose(variance, 14 / 9 * np.log(2) ** 2, rtol=1e-6)
    np.testing.assert_allclose(found, own)


COUNTS = np.array([[0.0], [2.0], [4.0]])  # mean 2, variance 8/3; of the positive ones 3 and 1


@pytest.mark.parametrize(
    ("likelihood", "centre"),
    [
        (L.Poisson(), np.log(2) - 0.5 * np.log1p(2 / 3)),
        (L.Poisson(exposure=4.0), np.log(0.5) - 0.5 * np.log1p(2 / 3)),
        (L.Poisson(exposure=L.PerDatum([2.0, 4.0, 6.0], new=1.0)), np.log(0.5) - 0.5 * np.log1p(2 / 3)),
        (L.NegativeBinomial(), np.log(2) - 0.5 * np.log1p(2 / 3)),
        (L.ZeroInflatedPoisson(), np.log(3) - 0.5 * np.log1p(1 / 9)),
        (L.ZeroInflatedNegativeBinomial(), np.log(3) - 0.5 * np.log1p(1 / 9)),
    ],
)
def test_counts_say_where_the_logarithm_of_their_mean_is(likelihood, centre):
    found, variance, own = starts(likelihood, COUNTS)
    np.testing.assert_allclose(found, [centre])
    assert np.isnan(variance).all() and own == []


def test_softplus_is_the_identity_for_many_counts():
    many = 100.0 + Y[:3]
    np.testing.assert_allclose(starts(L.Poisson("softplus", exposure=2.0), many)[:2], [[50.5], [8 / 3]])
    for likelihood, y in [
        (L.Poisson("softplus"), COUNTS),
        (L.Poisson("softplus", exposure=L.PerDatum([1.0, 2.0, 3.0], new=1.0)), many),
    ]:
        np.testing.assert_equal(starts(likelihood, y), (NAN, NAN, []))


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (L.Bernoulli(), [[0.0], [1.0]]),
        (L.Binomial(3), [[0.0], [1.0]]),
        (L.Beta(), [[0.2], [0.3]]),
        (L.Softmax(2), [[0.0], [1.0]]),
        (L.RobustMax(3), [[0.0], [1.0]]),
        (L.Ordinal([0.0, 1.0]), [[0.0], [1.0]]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_shares_and_classes_say_nothing(likelihood, y):
    centre, variance, own = likelihood.start(np.asarray(y))
    assert centre.shape == variance.shape == (likelihood.num_latents(1),)
    assert np.isnan(centre).all() and np.isnan(variance).all() and own == []


def test_a_second_latent_is_the_logarithm_of_the_noise():
    centre, variance, own = starts(L.HeteroscedasticGaussian(), Y)
    np.testing.assert_allclose(centre, [1.0, 0.5 * np.log(NOISE)])
    np.testing.assert_allclose(variance, [32 / 3, np.nan])
    assert own == []
    np.testing.assert_allclose(starts(L.HeteroscedasticGaussian(jax.nn.softplus), Y)[0], [1.0, np.nan])


def test_each_output_has_its_own_start():
    likelihood = L.PerOutput([L.Gaussian(), L.Bernoulli(), L.Laplace()])
    y = np.concatenate([Y[:3], [[0.0], [1.0], [0.0]], 10 * Y[:3]], axis=1)
    centre, variance, own = likelihood.start(y)
    np.testing.assert_allclose(centre, [1.0, np.nan, 10.0])
    np.testing.assert_allclose(variance, [32 / 3, np.nan, 3200 / 3])
    first, _, last = likelihood.likelihoods
    assert own[0].leaf is first.variance and own[1].leaf is last.scale
    np.testing.assert_allclose([s.value for s in own], [NOISE, 10 * NOISE**0.5])


def test_values_in_other_units_are_far_off():
    big = 1e6 * Y
    assert [L.Gaussian(v).start(big).own[0].far for v in (1e12, 10.0, 1e-1, 1e20)] == [False, False, True, True]
    assert not L.Gaussian(L.PerDatum(np.ones(4), new=1.0)).start(big).own


# A user's likelihoods: the default finds out what parameters mean.


class AbstractNoise(L.AbstractQuadratureLikelihood):
    size: Array = positive(1.0)


class Variance(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        size = jnp.broadcast_to(self.size, f.shape)
        return -0.5 * (y - f) ** 2 / size - 0.5 * jnp.log(2 * jnp.pi * size)


class Precision(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        return -0.5 * (y - f) ** 2 * self.size + 0.5 * jnp.log(self.size / (2 * jnp.pi))


class Logistic(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        z = (y - f) / self.size
        return -z - 2.0 * jax.nn.softplus(-z) - jnp.log(self.size)


class Laplace(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        return -jnp.abs(y - f) / self.size - jnp.log(2 * self.size)


class Cauchy(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        return -jnp.log(jnp.pi * self.size * (1 + ((y - f) / self.size) ** 2))


class Gumbel(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        z = (y - f) / self.size
        return -z - jnp.exp(-z) - jnp.log(self.size)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Variance, NOISE),
        (Precision, 1 / NOISE),
        (Logistic, (3 * NOISE) ** 0.5 / np.pi),
        (Laplace, (NOISE / 2) ** 0.5),
        (Cauchy, NOISE**0.5),  # no variance: the scale itself is that of the noise
    ],
)
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_a_user_s_noise_gets_a_tenth_of_the_variance(kind, value, size):
    likelihood = kind(size)
    centre, variance, own = likelihood.start(1e6 * Y)
    np.testing.assert_allclose(centre, [1e6], rtol=1e-5)
    np.testing.assert_allclose(variance, [32e12 / 3])
    power = {Variance: 12, Precision: -12}.get(kind, 6)
    assert own[0].leaf is likelihood.size
    np.testing.assert_allclose(own[0].value, value * 10.0**power, rtol=1e-4)


def test_the_mean_of_skewed_noise_is_no_part_of_the_function():
    scale = (6 * NOISE) ** 0.5 / np.pi
    centre, _, (own,) = Gumbel().start(Y)
    np.testing.assert_allclose(own.value, scale, rtol=1e-4)
    np.testing.assert_allclose(centre, [1.0 - np.euler_gamma * scale], rtol=1e-4)


class StudentT(L.AbstractQuadratureLikelihood):
    df: Array = positive(4.0)
    scale: Array = positive(1.0)

    def log_prob(self, f, y, *, index=None):
        return L.StudentT(self.df, self.scale).log_prob(f, y)


class Outliers(L.AbstractQuadratureLikelihood):
    """One label in ten has much more noise."""

    narrow: Array = positive(1.0)
    wide: Array = positive(10.0)

    def log_prob(self, f, y, *, index=None):
        both = [-0.5 * ((y - f) / s) ** 2 - jnp.log(s) for s in (self.narrow, self.wide)]
        return jnp.logaddexp(both[0] + jnp.log(0.9), both[1] + jnp.log(0.1)) - 0.5 * jnp.log(2 * jnp.pi)


def test_of_several_parameters_those_of_the_noise_are_found():
    likelihood = StudentT()
    (own,) = likelihood.start(Y).own
    assert own.leaf is likelihood.scale
    np.testing.assert_allclose(own.value, (NOISE / 2) ** 0.5, rtol=1e-4)  # the variance is twice scale²
    narrow, wide = Outliers().start(Y).own
    np.testing.assert_allclose([narrow.value, wide.value], np.sqrt(NOISE / 10.9) * np.array([1.0, 10.0]), rtol=1e-4)


def test_a_parameter_for_each_output():
    y = Y * np.array([[1.0, 10.0]])
    got, expected = Variance(jnp.ones(2)).start(y), L.Gaussian(jnp.ones(2)).start(y)
    for one, other in zip((*got[:2], got.own[0].value), (*expected[:2], expected.own[0].value), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(Variance().start(y).own[0].value, L.Gaussian().start(y).own[0].value, rtol=1e-5)


class LogNormal(AbstractNoise):
    support = POSITIVE

    def log_prob(self, f, y, *, index=None):
        return L.LogNormal(self.size).log_prob(f, y)


class Gamma(AbstractNoise):
    support = POSITIVE

    def log_prob(self, f, y, *, index=None):
        return L.Gamma(self.size).log_prob(f, y)


def test_of_positive_labels_the_logarithm_may_be_a_function_plus_noise():
    y = 1e5 * np.exp(LOG)
    np.testing.assert_allclose(starts(LogNormal(), y)[0], starts(L.LogNormal(), y)[0], rtol=1e-5)
    np.testing.assert_allclose(starts(LogNormal(), y)[2], starts(L.LogNormal(), y)[2], rtol=1e-4)
    centre, variance, own = starts(Gamma(100.0), y)
    np.testing.assert_allclose(centre, starts(L.Gamma(100.0), y)[0], atol=0.01)  # E log y is about log(shape)
    np.testing.assert_allclose(variance, starts(L.Gamma(100.0), y)[1], rtol=1e-5)
    assert own == []


class Rectified(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        return L.Gaussian(self.size).log_prob(jax.nn.softplus(f), y)


class Broken(AbstractNoise):
    def log_prob(self, f, y, *, index=None):
        raise RuntimeError("no such thing")


class Known(L.AbstractQuadratureLikelihood):
    def log_prob(self, f, y, *, index=None):
        return -0.5 * (y - f) ** 2


def test_what_cannot_be_told_is_unknown():
    for likelihood in (Rectified(), Broken()):
        np.testing.assert_equal(starts(likelihood, Y), (NAN, NAN, []))
    centre, variance, own = Known().start(Y)  # noise of a size that nothing sets
    np.testing.assert_allclose([centre, variance], [[1.0], [32 / 3]])
    assert own == []


def test_a_user_s_likelihood_trains_in_the_units_of_its_labels():
    x = np.linspace(0.0, 6.0, 40)[:, None]
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(x[::5]))
    model = ig.initialise.scales(ig.Model(gp, Logistic()), (x, 1e6 * np.sin(x)))
    (kernel,) = model.layers[0].prior.kernels
    np.testing.assert_allclose(kernel.variance, 1e12 * np.var(np.sin(x)), rtol=1e-5)
    np.testing.assert_allclose(model.likelihood.size, 1e6 * np.sqrt(0.3 * np.var(np.sin(x))) / np.pi, rtol=1e-4)
