"""Mixtures, blocks, missing labels, tails, known quantities of each datum, likelihoods of one's own, errors."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import inducing.likelihoods as L
from inducing.likelihoods.quantiles import SEARCHES
from inducing.likelihoods.supports import COUNT, Support

ONE = jnp.ones((1, 1))
DENSE = np.linspace(-14, 14, 400001)
WEIGHTS = np.exp(-0.5 * DENSE**2) / np.exp(-0.5 * DENSE**2).sum()


@pytest.mark.parametrize("lik", [L.Gaussian(0.3), L.Poisson()], ids=["gaussian", "poisson"])
def test_mixture(lik):
    """S propagated samples: rows mixed by log-mean-exp, moments by the law of total variance."""
    rng = np.random.default_rng(0)
    mean, cov = jnp.asarray(rng.normal(size=(3, 2, 2))), jnp.asarray(rng.uniform(0.1, 0.5, size=(3, 2, 2)))
    y = jnp.asarray([[1.0, np.nan], [0.0, 2.0]])
    parts = [lik.predictive(m, c) for m, c in zip(mean, cov, strict=True)]
    pred = lik.predictive(mean, cov)
    rows = np.stack([p.log_prob(y) for p in parts])
    np.testing.assert_allclose(pred.log_prob(y), special.logsumexp(rows, 0) - np.log(3))
    means, variances = np.stack([p.mean for p in parts]), np.stack([p.variance for p in parts])
    np.testing.assert_allclose(pred.mean, means.mean(0))
    np.testing.assert_allclose(pred.variance, (variances + means**2).mean(0) - means.mean(0) ** 2, rtol=1e-9)
    at = pred.quantile(0.9)
    cdf = np.mean([p.cdf(at) for p in parts], 0)
    assert np.all(cdf >= 0.9 - 1e-9)
    sample = np.asarray(pred.sample(jax.random.key(0), (20000,)))
    assert np.all(np.abs(sample.mean(0) - pred.mean) < 5 * np.sqrt(np.asarray(pred.variance) / 20000))


def test_many_inputs_go_in_blocks():
    N = 8192 + 7
    mean = jnp.linspace(-2, 2, N)[:, None]
    lik = L.Poisson(exposure=L.PerDatum(np.linspace(1, 2, N), new=1.0))
    index = jnp.arange(N)[::-1]
    pred, y = lik.predictive(mean, jnp.full((N, 1), 0.5), index=index), jnp.full((N, 1), 2.0)
    last = lik.predictive(mean[-3:], jnp.full((3, 1), 0.5), index=index[-3:])
    np.testing.assert_allclose(pred.log_prob(y)[-3:], last.log_prob(y[:3]), rtol=1e-12)
    np.testing.assert_allclose(pred.mean[-3:], last.mean, rtol=1e-12)


def test_known_quantities_of_each_datum():
    """Noise, exposure and trials are gathered by index; new inputs take `new`."""
    noise, f, y = np.array([0.1, 0.5, 2.0]), jnp.array([[0.3], [0.7]]), jnp.array([[1.0], [2.0]])
    index = jnp.array([2, 0])
    lik = L.Gaussian(L.PerDatum(noise, new=0.0))
    expected = stats.norm(f[:, 0], np.sqrt(noise[[2, 0]])).logpdf(y[:, 0])
    np.testing.assert_allclose(lik.log_prob(f, y, index=index)[:, 0], expected)
    np.testing.assert_allclose(lik.predictive(f, 0.5 * jnp.ones((2, 1))).variance, 0.5)
    poisson = L.Poisson(exposure=L.PerDatum(noise, new=3.0))
    expected = stats.poisson(noise[[2, 0]] * np.exp(f[:, 0])).logpmf(y[:, 0])
    np.testing.assert_allclose(poisson.log_prob(f, y, index=index)[:, 0], expected)
    np.testing.assert_allclose(poisson.predictive(f, 0 * f).mean, 3 * np.exp(f))
    binomial = L.Binomial(L.PerDatum([2, 5, 9], new=4))
    expected = stats.binom([9, 2], special.ndtr(f[:, 0])).logpmf(y[:, 0])
    np.testing.assert_allclose(binomial.log_prob(f, y, index=index)[:, 0], expected)
    with pytest.raises(ValueError, match=r"the number of trials, 2 to 9, got 10.0"):
        binomial.check(np.array([[10.0]]))
    with pytest.raises(ValueError, match=r"PerDatum.values must be at least 0, got -1.0"):
        L.PerDatum([1.0, -1.0], new=0.0)


@pytest.mark.parametrize("link", ["exp", "softplus"])
def test_no_exposure_and_no_count(link):
    """p(0 | f) = 1 where nothing was exposed, whatever f: values 0, gradients 0; a count is impossible there."""
    lik = L.Poisson(link, L.PerDatum([0.0, 2.0], new=1.0))
    y, index = jnp.zeros((1, 1)), jnp.array([0])

    def values(f):
        explik = lik.expected_log_prob(f, ONE, y, index=index)
        return jnp.concatenate([lik.log_prob(f, y, index=index), explik])

    np.testing.assert_array_equal(values(0.7 * ONE), 0.0)
    np.testing.assert_array_equal(jax.jacobian(values)(0.7 * ONE), 0.0)
    pred = lik.predictive(0.7 * ONE, ONE, index=index)
    np.testing.assert_allclose(pred.log_prob(y), 0.0, atol=1e-9)
    np.testing.assert_array_equal([pred.mean, pred.variance, pred.quantile(0.99)], 0.0)
    assert lik.log_prob(ONE, ONE, index=index) == -np.inf


def test_parameters_per_output():
    lik = L.Gaussian([0.1, 2.0])
    f = jnp.zeros((3, 2))
    np.testing.assert_allclose(lik.predictive(f, f).variance, np.broadcast_to([0.1, 2.0], (3, 2)))
    np.testing.assert_allclose(L.Laplace([0.1, 2.0]).log_prob(f, f), np.broadcast_to(-np.log([0.2, 4.0]), (3, 2)))


class Cauchy(L.AbstractQuadratureLikelihood):
    def log_prob(self, f, y, *, index=None):
        return -jnp.log(jnp.pi * (1 + (y - f) ** 2))


class FullCauchy(L.AbstractQuadratureLikelihood):
    def log_prob(self, f, y, *, index=None):
        return -jnp.log(jnp.pi * (1 + (y - f) ** 2))

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Cauchy

        return Cauchy(f, 1.0)


def test_a_likelihood_of_ones_own():
    mean, variance, y = 0.4 * ONE, 0.7 * ONE, 1.3 * ONE
    f = 0.4 + np.sqrt(0.7) * DENSE
    got = Cauchy().expected_log_prob(mean, variance, y)
    np.testing.assert_allclose(got[0, 0], WEIGHTS @ stats.cauchy(f).logpdf(1.3), rtol=1e-8)
    pred = Cauchy().predictive(mean, variance)
    np.testing.assert_allclose(pred.log_prob(y)[0], np.log(WEIGHTS @ stats.cauchy(f).pdf(1.3)), rtol=1e-8)
    for use in (lambda: pred.mean, lambda: pred.quantile(0.5), lambda: pred.sample(jax.random.key(0))):
        with pytest.raises(NotImplementedError, match=r"define `Cauchy.distribution"):
            use()
    full = FullCauchy().predictive(mean, variance)
    np.testing.assert_allclose(WEIGHTS @ stats.cauchy(f).cdf(float(full.quantile(0.9)[0, 0])), 0.9, rtol=1e-7)
    assert full.sample(jax.random.key(0), (2,)).shape == (2, 1, 1)


class Counts(L.AbstractQuadratureLikelihood):
    support: ClassVar[Support] = COUNT

    def log_prob(self, f, y, *, index=None):
        return y * f - jnp.exp(f) - jax.scipy.special.gammaln(y + 1)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Poisson

        return Poisson(jnp.exp(f))


class Undeclared(L.AbstractQuadratureLikelihood):
    def log_prob(self, f, y, *, index=None):
        return Counts().log_prob(f, y)

    def distribution(self, f, *, index=None):
        return Counts().distribution(f)


class Circular(L.AbstractQuadratureLikelihood):
    def log_prob(self, f, y, *, index=None):
        return jnp.cos(y - f) - np.log(2 * np.pi * special.i0(1.0))

    def distribution(self, f, *, index=None):
        from types import SimpleNamespace

        return SimpleNamespace(mean=f, variance=jnp.ones_like(f))


class Twofold(L.AbstractQuadratureLikelihood):
    def num_latents(self, num_outputs):
        return 2 * num_outputs

    def log_prob(self, f, y, *, index=None):
        return -0.5 * (y - f[..., :1]) ** 2 - f[..., 1:]


def test_counts_of_ones_own():
    """As Poisson has them. Without `support` the lower end of an interval was −2e17."""
    args = 0.3 * ONE, 0.5 * ONE
    own, known = Counts().predictive(*args), L.Poisson().predictive(*args)
    np.testing.assert_allclose(own.log_prob(2 * ONE), known.log_prob(2 * ONE), rtol=1e-9)
    np.testing.assert_allclose([own.mean, own.variance], [known.mean, known.variance], rtol=1e-7)
    np.testing.assert_array_equal(own.interval(0.95), known.interval(0.95))
    with pytest.raises(ValueError, match="labels of Counts must be whole numbers"):
        own.log_prob(0.5 * ONE)
    with pytest.raises(TypeError, match=r"Undeclared.distribution is discrete.*set `support = COUNT`"):
        Undeclared().predictive(*args).interval(0.95)


def test_what_a_likelihood_of_ones_own_lacks():
    pred = Circular().predictive(ONE, ONE)
    np.testing.assert_allclose(pred.variance, 2.0)
    with pytest.raises(NotImplementedError, match=r"Circular.distribution gives a SimpleNamespace without `cdf`"):
        pred.median
    with pytest.raises(
        TypeError, match=r"Twofold has 2 latents for one output.*derive Twofold from AbstractLikelihood"
    ):
        Twofold()


@pytest.mark.parametrize("lik", [L.LogNormal(0.1), L.Gamma(2.0)], ids=["lognormal", "gamma"])
@pytest.mark.parametrize(("dtype", "spread"), [(jnp.float32, 100.0), (float, 900.0)])
def test_moments_whose_factors_overflow(lik, dtype, spread):
    """Var[y] = (E[y² | f = 0] e^variance − E[y | f = 0]²) e^{2 mean + variance}, about e⁰ here."""
    square = {L.LogNormal: np.exp(2 * 0.01), L.Gamma: 6.0}[type(lik)]
    single = jax.tree.map(lambda a: a.astype(dtype), lik)
    pred = single.predictive(jnp.full((1, 1), -spread, dtype), jnp.full((1, 1), spread, dtype))
    np.testing.assert_allclose(pred.variance, square, rtol=1e-4)


@pytest.mark.parametrize("name", ["probit", "logit"])
def test_wide_latents_stay_finite_and_right(name):
    """Bernoulli with q(f) of variance 10⁴ and far from its label."""
    log_link = {"probit": special.log_ndtr, "logit": lambda f: -np.logaddexp(0, -f)}[name]
    lik = L.Bernoulli(name)
    for m in (-1000.0, -50.0, 0.0, 100.0, 1000.0):
        f = m + 100 * DENSE
        value, grads = jax.value_and_grad(lambda m, v: lik.expected_log_prob(m, v, ONE)[0, 0], (0, 1))(
            m * ONE, 1e4 * ONE
        )
        np.testing.assert_allclose(value, WEIGHTS @ log_link(f), rtol=1e-4, atol=1e-3)
        assert all(np.isfinite(g).all() for g in grads)
        density = lik.predictive(m * ONE, 1e4 * ONE).log_prob(ONE)[0]
        exact = special.log_ndtr(m / np.sqrt(1e4 + 1)) if name == "probit" else np.log(WEIGHTS @ special.expit(f))
        np.testing.assert_allclose(density, exact, rtol=1e-4, atol=1e-7)


def test_densities_far_in_the_tails():
    """A label 20 standard deviations of q(f) away: the density is that of the convolution, not of a cut-off."""
    y = 20 * ONE
    laplace = float(L.Laplace(0.3).predictive(0 * ONE, ONE).log_prob(y)[0])
    z = np.linspace(-40, 40, 800001)
    exact = special.logsumexp(stats.norm.logpdf(z) + stats.laplace(z, 0.3).logpdf(20.0)) + np.log(z[1] - z[0])
    np.testing.assert_allclose(laplace, exact, rtol=1e-6)
    student = float(L.StudentT(3.0, 0.05).predictive(0 * ONE, ONE).log_prob(y)[0])
    exact = special.logsumexp(stats.norm.logpdf(z) + stats.t(3.0, z, 0.05).logpdf(20.0)) + np.log(z[1] - z[0])
    np.testing.assert_allclose(student, exact, rtol=1e-5)
    poisson = float(L.Poisson().predictive(0 * ONE, 0.01 * ONE).log_prob(8 * ONE)[0])
    exact = special.logsumexp(stats.norm.logpdf(z) + stats.poisson(np.exp(0.1 * z)).logpmf(8)) + np.log(z[1] - z[0])
    np.testing.assert_allclose(poisson, exact, rtol=1e-6)
    beta = L.Beta(3.0).log_prob(jnp.array([[-60.0], [60.0]]), 0.5 * jnp.ones((2, 1)))
    assert np.all(np.isfinite(beta))
    ordinal = L.Ordinal([-1.0, 1.0]).log_prob(jnp.array([[40.0], [-40.0]]), jnp.ones((2, 1)))
    np.testing.assert_allclose(ordinal, special.log_ndtr(-39.0), rtol=1e-9)


def test_quantiles_of_any_scale_and_far_out():
    for scale in (1e-12, 1.0, 1e12):
        pred = L.Gaussian(scale**2).predictive(scale * ONE, scale**2 * ONE)
        for q in (1e-10, 0.3, 1 - 1e-6):
            np.testing.assert_allclose(pred.quantile(q)[0, 0], scale * (1 + np.sqrt(2) * special.ndtri(q)), rtol=1e-6)
    heavy = L.StudentT(1.0, 1.0).predictive(0 * ONE, 0 * ONE)
    np.testing.assert_allclose(heavy.quantile(1e-6)[0, 0], stats.cauchy.ppf(1e-6), rtol=1e-5)
    assert L.Poisson().predictive(12 * ONE, 0 * ONE).quantile(0.5)[0, 0] == stats.poisson(np.exp(12)).ppf(0.5)


@pytest.mark.parametrize("lik", [L.StudentT(), L.Gamma(2.0), L.Beta(3.0)], ids=["real", "positive", "unit"])
def test_quantiles_can_be_differentiated(lik):
    """By mean and variance of q(f), against central differences."""

    @jax.jit
    @jax.value_and_grad
    def quantile(at):
        return lik.predictive(at[:1, None], at[1:, None]).quantile(0.9)[0, 0]

    at, h = jnp.array([0.3, 0.5]), 1e-5
    differences = [(quantile(at + h * e)[0] - quantile(at - h * e)[0]) / (2 * h) for e in jnp.eye(2)]
    np.testing.assert_allclose(quantile(at)[1], differences, rtol=1e-6)


def test_quantiles_of_counts_look_no_further_than_they_must():
    """A cdf of 0, 1, …, 40 that is known up to 63 alone: the rest of the dtype's integers cost as much each."""
    q, one = jnp.array([[0.01], [0.5], [0.99]]), jnp.ones((3, 1))
    found = SEARCHES["count"](lambda y: jnp.where(y > 63, 0.0, (y + 1) / 41), q, one, one)
    np.testing.assert_array_equal(found[:, 0], [0.0, 20.0, 40.0])


def test_per_class_probabilities():
    np.testing.assert_allclose(L.Bernoulli().predictive(0 * ONE, ONE).probabilities, [[0.5, 0.5]])
    with pytest.raises(TypeError, match="not a classification likelihood"):
        L.Gaussian().predictive(ONE, ONE).probabilities


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: L.Gaussian(-1.0), "Gaussian.variance must be positive"),
        (lambda: L.Bernoulli("cloglog"), 'Bernoulli.link must be "probit" or "logit"'),
        (lambda: L.Poisson("log"), 'Poisson.link must be "exp" or "softplus"'),
        (lambda: L.Ordinal([1.0, 0.0]), "Ordinal.cutpoints must be increasing"),
        (lambda: L.Bernoulli().check(np.array([[-1.0], [1.0]])), r"got -1.0.*\(y \+ 1\) / 2"),
        (lambda: L.Poisson().check(np.array([["a"]])), "must be numbers"),
        (lambda: L.Gaussian().predictive(ONE, ONE).log_prob(jnp.ones((2, 1))), "a row for each of the 1 inputs"),
        (lambda: L.Gaussian().predictive(ONE, ONE).quantile(1.0), "strictly between 0 and 1"),
        (lambda: L.Gaussian().predictive(ONE, ONE).interval(95.0), "strictly between 0 and 1"),
        (lambda: L.Bernoulli().predictive(ONE, ONE).log_prob(2 * ONE), "must be 0 or 1"),
    ],
)
def test_errors(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        *((kind, bad) for kind in (L.Gamma, L.LogNormal, L.Weibull) for bad in (0.0, -0.5)),
        (L.Exponential, -0.5),
        *((kind, -1.0) for kind in (L.Poisson, L.NegativeBinomial, L.ZeroInflatedPoisson)),
        *((kind, -1.0) for kind in (L.ZeroInflatedNegativeBinomial, lambda: L.Binomial(3), lambda: L.Ordinal([0.0]))),
    ],
)
def test_labels_below_the_support(kind, bad):
    lik = kind()
    with pytest.raises(ValueError, match=rf"labels of {type(lik).__name__} must be .*, got {bad} \(1 of 2 labels are"):
        lik.check(np.array([[1.0], [bad]]))
    if isinstance(lik, L.Exponential):
        lik.check(np.zeros((1, 1)))


def test_predictions_inside_jit_and_grad():
    def loss(mean):
        return L.StudentT().predictive(mean, ONE).log_prob(ONE).sum()

    gradient = jax.jit(jax.grad(loss))(0.3 * ONE)
    numeric = (loss(0.3 * ONE + 1e-5) - loss(0.3 * ONE - 1e-5)) / 2e-5
    np.testing.assert_allclose(gradient[0, 0], numeric, rtol=1e-6)
    assert eqx.filter_jit(lambda p: p.quantile(0.5))(L.Gaussian().predictive(ONE, ONE)) == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("scale", [1e-2, 1e-4, 1e-8])
def test_laplace_noise_much_narrower_than_the_function(dtype, scale):
    """Then y has the distribution of f, up to O(scale²)."""
    one = jnp.ones((1, 1), dtype)
    pred = L.Laplace(jnp.asarray(scale, dtype)).predictive(0 * one, one)
    np.testing.assert_allclose(pred.log_prob(one), stats.norm.logpdf(1.0), atol=2e-5)
    np.testing.assert_allclose(pred.interval(0.95)[1], stats.norm.ppf(0.975), rtol=1e-3)


def test_shares_that_crowd_at_zero():
    """Half of the rows have more than 2.5 % of their labels below the least number; the quantile there was 1."""
    mean = jnp.asarray([[-4.0], [-2.3], [0.0], [4.0]])
    pred = L.Beta(5.5).predictive(mean, 0.64 * jnp.ones_like(mean))
    lower, upper = pred.interval(0.95)
    assert np.all(lower <= upper) and np.all(lower[:2] < 1e-300)
    np.testing.assert_allclose(pred.cdf(lower)[2:], 0.025, rtol=1e-9)


@pytest.mark.parametrize("scale, sd, y", [(500.0, 5.0, 1e-3), (5.0, 30.0, 1e-8), (50.0, 5.0, 0.999)])
def test_beta_labels_far_from_what_was_expected(scale, sd, y):
    """Against a fine grid around the f that the label speaks of."""
    likelihood, one = L.Beta(scale), jnp.ones((1, 1))
    f = stats.norm.ppf(y) + np.linspace(-6.0, 6.0, 400_001)[:, None]
    terms = np.asarray(likelihood.log_prob(jnp.asarray(f), jnp.full_like(f, y)))[:, 0] + stats.norm(8.0, sd).logpdf(
        f[:, 0]
    )
    expected = np.log(np.trapezoid(np.exp(terms - terms.max()), f[:, 0])) + terms.max()
    found = likelihood.predictive_log_prob(8.0 * one, sd**2 * one, y * one)
    np.testing.assert_allclose(found, expected, atol=0.01)


class Counting(L.AbstractQuadratureLikelihood):
    """Unit Gaussian noise that counts how often it is traced."""

    calls: list = eqx.field(static=True)

    def log_prob(self, f, y, *, index=None):
        self.calls.append(f.shape)
        return -0.5 * (y - f) ** 2 - 0.5 * np.log(2 * np.pi)


def test_one_compilation_serves_all_numbers_of_rows_up_to_a_power_of_two():
    """And none of the rows that fill up is seen: mixtures, covariances and missing labels included."""
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(3, 8, 1)), rng.uniform(0.1, 2.0, size=(3, 8, 1))
    y = np.where(np.arange(8) == 1, np.nan, 0.3)
    lik = Counting([])
    for N in (8, 5, 6, 7):
        m, v = jnp.asarray(mean[:, :N]), jnp.asarray(variance[:, :N])
        density = stats.norm.pdf(y[:N], m[..., 0], np.sqrt(1 + v[..., 0])).mean(axis=0)
        truth = np.where(np.isnan(y[:N]), 0.0, np.log(density))
        np.testing.assert_allclose(lik.predictive(m, v).log_prob(y[:N]), truth, atol=1e-8)
        full = L.Gaussian(1.0).predictive(m[0], v[0][..., None])
        np.testing.assert_allclose(full.quantile(0.9)[:, 0], stats.norm.ppf(0.9, m[0, :, 0], np.sqrt(1 + v[0, :, 0])))
        if N == 8:
            before = len(lik.calls)
    assert len(lik.calls) == before


def test_cdf_beyond_the_support():
    """Positive labels and shares, also as outputs of one model: 0 to the left, 1 to the right, NaN where y is."""
    parts = (L.Gamma(2.0), L.LogNormal(), L.Weibull(2.0), L.Beta(5.0), L.Exponential(), L.Gaussian())
    one = jnp.ones((5, len(parts)))
    labels = jnp.asarray([-1.0, 0.0, 1.0, jnp.inf, jnp.nan])[:, None] * one
    got = np.asarray(L.PerOutput(parts).predictive(0 * one, one).cdf(labels))
    np.testing.assert_array_equal(got[:2, :5], 0.0)
    np.testing.assert_array_equal(got[2, 3], 1.0)
    np.testing.assert_array_equal(got[3], 1.0)
    assert np.isnan(got[4]).all()
    np.testing.assert_allclose(got[:, 5], stats.norm(0.0, np.sqrt(2.0)).cdf([-1.0, 0.0, 1.0, np.inf, np.nan]))
    f = DENSE[:, None]
    truth = [
        stats.gamma(2.0, scale=np.exp(f)),
        None,
        stats.weibull_min(2.0, scale=np.exp(f)),
        None,
        stats.expon(0, np.exp(f)),
    ]
    for p in (0, 2, 4):
        np.testing.assert_allclose(got[2, p], WEIGHTS @ truth[p].cdf(1.0)[:, 0], rtol=1e-7)


def test_numbers_that_are_rounded_to_zero_are_told():
    """XLA rounds numbers below 2e-308 to 0: a quantile stays finite, and known noise of this size is refused."""
    pred = L.Gaussian(1.0).predictive(0 * ONE, 0 * ONE)
    assert -40.0 < float(pred.quantile(1e-320)[0, 0]) < -37.0
    tiny = L.Gaussian(L.PerDatum([1e-320], new=1.0))
    with pytest.raises(ValueError, match="has the value 1e-320 for the datum of index 0"):
        tiny.check_index(np.array([0]), np.array([[True]]))
