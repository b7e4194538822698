"""Wide q(f), as before training or far from data: quadrature against NumPy's log densities on a fine grid."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import betainc, expit, gammainc, gammaln, log_ndtr, logsumexp, ndtr

import inducing.likelihoods as L

MEAN, SD = 0.7, 100.0
Z = np.linspace(-8.5, 8.5, 100_001)
WEIGHTS = np.exp(-0.5 * Z**2) / np.exp(-0.5 * Z**2).sum()
F = MEAN + SD * Z


def log_sigmoid(f):
    return -np.logaddexp(0, -f)


def log_softplus(f):
    return np.where(f < -30, f, np.log(np.logaddexp(0, np.maximum(f, -30))))


def binomial(n, log_link):
    return lambda y: gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1) + y * log_link(F) + (n - y) * log_link(-F)


def negative_binomial(r):
    log_odds = F - np.log(r)
    return lambda y: (
        gammaln(y + r) - gammaln(r) - gammaln(y + 1) + r * log_sigmoid(-log_odds) + y * log_sigmoid(log_odds)
    )


def inflated(gate, log_prob):
    return lambda y: np.logaddexp(np.log(gate) if y == 0 else -np.inf, np.log1p(-gate) + log_prob(y))


def beta(c, log_link):
    def log_prob(y):
        log_a, log_b = np.log(c) + log_link(F), np.log(c) + log_link(-F)
        a, b = np.exp(log_a), np.exp(log_b)
        normaliser = gammaln(c) - (gammaln(a + 1) - log_a) - (gammaln(b + 1) - log_b)
        return normaliser + (a - 1) * np.log(y) + (b - 1) * np.log1p(-y)

    return log_prob


def ordinal(y):
    edges = np.array([-np.inf, -0.6, 0.5, np.inf])
    low, high = (edges[y] - F) / 0.7, (edges[y + 1] - F) / 0.7
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)  # both in the lower tail
    return log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))


CASES = {
    "binomial_probit": (L.Binomial(7), binomial(7, log_ndtr), [0, 3, 7]),
    "binomial_logit": (L.Binomial(7, "logit"), binomial(7, log_sigmoid), [0, 3, 7]),
    "negative_binomial": (L.NegativeBinomial(2.5), negative_binomial(2.5), [0, 2, 9]),
    "zero_inflated_poisson": (
        L.ZeroInflatedPoisson(0.3), inflated(0.3, lambda y: -np.exp(np.minimum(F, 700.0))), [0]
    ),  # E e^f overflows for other labels
    "few_extra_zeros": (
        L.ZeroInflatedPoisson(1e-3), inflated(1e-3, lambda y: -np.exp(np.minimum(F, 700.0))), [0]
    ),
    "zero_inflated_negative_binomial": (
        L.ZeroInflatedNegativeBinomial(2.5, 0.3), inflated(0.3, negative_binomial(2.5)), [0, 2, 9]
    ),
    "ordinal": (L.Ordinal([-0.6, 0.5], 0.7), ordinal, [0, 1, 2]),
    "student_t": (L.StudentT(4.0, 0.5), lambda y: stats.t(4.0, F, 0.5).logpdf(y), [-1.0, 0.3, 2.0]),
    "beta_probit": (L.Beta(5.5), beta(5.5, log_ndtr), [0.1, 0.45, 0.9]),
    "beta_logit": (L.Beta(5.5, "logit"), beta(5.5, log_sigmoid), [0.1, 0.45, 0.9]),
    "poisson_softplus": (
        L.Poisson("softplus"), lambda y: y * log_softplus(F) - np.logaddexp(0, F) - gammaln(y + 1), [0, 2, 9]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_expected_log_prob(name):
    """The value, and its derivatives E[log p · z]/sd and E[log p · (z² − 1)]/2sd² in mean and variance."""
    lik, log_prob, y = CASES[name]
    terms = np.stack([log_prob(v) for v in y])

    @eqx.filter_jit
    def got(lik, mean, variance, y):
        value = lik.expected_log_prob(mean, variance, y)
        return value, *jax.grad(lambda m, v: lik.expected_log_prob(m, v, y).sum(), (0, 1))(mean, variance)

    column = jnp.asarray(y, float)[:, None]
    value, slope, bend = got(lik, jnp.full_like(column, MEAN), jnp.full_like(column, SD**2), column)
    np.testing.assert_allclose(value[:, 0], terms @ WEIGHTS, rtol=3e-7)
    np.testing.assert_allclose(slope[:, 0], terms @ (WEIGHTS * Z) / SD, rtol=1e-3)
    np.testing.assert_allclose(bend[:, 0], terms @ (WEIGHTS * (Z**2 - 1)) / (2 * SD**2), rtol=1e-3)


@pytest.mark.parametrize(("num", "rtol"), [(2, 1e-6), (3, 5e-3), (5, 5e-3)])
def test_softmax(num, rtol):
    """E log softmax_y = m_y − E log Σ e^f, on a grid of the margin for two classes, by samples for more."""
    mean, y = np.array([0.7, -20.0, 40.0, 10.0, 0.0])[:num], 1
    lik, label = L.Softmax(num), jnp.full((1, 1), float(y))

    @eqx.filter_jit
    def got(mean, variance):
        return jax.value_and_grad(lambda m, v: lik.expected_log_prob(m, v, label).sum(), (0, 1))(mean, variance)

    value, gradients = got(jnp.asarray(mean)[None], jnp.full((1, num), SD**2))
    assert all(np.isfinite(g).all() for g in gradients)
    if num == 2:
        truth = WEIGHTS @ log_sigmoid(mean[1] - mean[0] + np.sqrt(2) * SD * Z)
    else:
        z = np.random.default_rng(0).normal(size=(200_000, num))
        f = mean + SD * np.concatenate([z, -z])
        logs = f[:, y] - np.logaddexp.reduce(f, axis=1)
        truth = logs.mean()
        rtol += 5 * logs.std() / np.sqrt(len(logs)) / abs(truth)
    np.testing.assert_allclose(value, truth, rtol=rtol)


def peaks(spread, mean, log_prob, centre, width):
    """log E p(y | f), f ~ N(mean, spread²), by Gauss–Legendre on intervals that shrink towards the centre."""
    steps = np.geomspace(1e-3, 1e4 * spread / width, 600)
    edges = np.concatenate([-steps[::-1], [0.0], steps])
    x, w = np.polynomial.legendre.leggauss(20)
    half = 0.5 * width * np.diff(edges)
    f = (centre + 0.5 * width * (edges[1:] + edges[:-1]))[:, None] + half[:, None] * x
    return logsumexp(log_prob(f) + stats.norm.logpdf(f, mean, spread), b=half[:, None] * w)


def bounded_exp(f):
    return np.exp(np.clip(f, -300.0, 300.0))


NARROW = {  # likelihood, label, log density, peak and width
    "student_t": (L.StudentT(4.0, 1e-3), 0.3, lambda f: stats.t.logpdf(0.3, 4, f, 1e-3), 0.3, 1e-3),
    "light_tails": (L.StudentT(500.0, 0.02), 0.3, lambda f: stats.t.logpdf(0.3, 500, f, 0.02), 0.3, 0.02),
    "poisson": (L.Poisson(), 1e6, lambda f: stats.poisson.logpmf(1e6, bounded_exp(f)), np.log(1e6), 1e-3),
    "gamma": (L.Gamma(1e6), 2.0, lambda f: stats.gamma.logpdf(2, 1e6, scale=bounded_exp(f)), np.log(2e-6), 1e-3),
    "binomial": (
        L.Binomial(10**6, "logit"),
        4e5,
        lambda f: stats.binom.logpmf(4e5, 1e6, expit(f)),
        np.log(2 / 3),
        2e-3,
    ),
}


@pytest.mark.parametrize("name", NARROW)
def test_predictive_log_prob_of_narrow_likelihoods(name):
    """Likelihoods up to a million times narrower than q(f), which is centred on the label or up to 90 sd off."""
    lik, y, log_prob, centre, width = NARROW[name]
    cases = [(1.0, centre), (1.0, centre + 1.0), (1.0, centre - 8.0), (0.1, centre - 6.0), (1000.0, centre - 300.0)]
    cases += [(1.0, centre + 90.0), (1.0, centre - 25.0)]
    truth = [peaks(spread, mean, log_prob, centre, width) for spread, mean in cases]
    spread, mean = (jnp.asarray(a)[:, None] for a in zip(*cases, strict=True))
    got = eqx.filter_jit(lik.predictive_log_prob)(mean, spread**2, jnp.full_like(mean, y))
    np.testing.assert_allclose(got[:, 0], truth, rtol=5e-5, atol=1e-4)


@pytest.mark.parametrize("link, share", [("probit", ndtr), ("logit", expit)])
def test_moments_of_shares(link, share):
    """Binomial and Beta labels of a q(f) of standard deviation 100, whose mean is 30."""
    p = share(30.0 + SD * Z)
    first = WEIGHTS @ p
    mean, variance = jnp.full((1, 1), 30.0), jnp.full((1, 1), SD**2)
    binomial = L.Binomial(7, link).predictive(mean, variance)
    np.testing.assert_allclose(binomial.mean[0, 0], 7 * first, rtol=1e-6)
    np.testing.assert_allclose(binomial.variance, WEIGHTS @ (7 * p * (1 - p) + 49 * (p - first) ** 2), rtol=1e-6)
    beta = L.Beta(4.0, link).predictive(mean, variance)
    np.testing.assert_allclose(beta.mean[0, 0], first, rtol=1e-6)
    np.testing.assert_allclose(beta.variance, WEIGHTS @ (p * (1 - p) / 5 + (p - first) ** 2), rtol=1e-6)


@pytest.mark.parametrize("link", [jnp.exp, jax.nn.softplus], ids=["exp", "softplus"])
def test_heteroscedastic_outliers(link):
    """Labels that ask for a noise far from what q(f) expects, the latents correlated."""
    scale = {jnp.exp: np.exp, jax.nn.softplus: lambda f: np.logaddexp(0, f)}[link]
    mean, cov = jnp.asarray([[0.2, -0.5]]), jnp.asarray([[[0.5, 0.1], [0.1, 0.09]]])
    f = -0.5 + 0.3 * np.linspace(-100.0, 100.0, 1_000_001)
    slope, rest = 0.1 / 0.09, 0.5 - 0.01 / 0.09
    for y in (0.2, 5.0, 50.0, 1000.0):
        logs = stats.norm.logpdf(y, 0.2 + slope * (f + 0.5), np.sqrt(rest + scale(f) ** 2))
        truth = logsumexp(logs + stats.norm.logpdf(f, -0.5, 0.3)) + np.log(f[1] - f[0])
        got = L.HeteroscedasticGaussian(link).predictive(mean, cov).log_prob(jnp.full((1, 1), y))
        np.testing.assert_allclose(got[0], truth, rtol=1e-4)


class Own(L.AbstractQuadratureLikelihood):
    """Gaussian noise, known by its log density alone."""

    scale: float

    def log_prob(self, f, y, *, index=None):
        return -0.5 * (((y - f) / self.scale) ** 2 + np.log(2 * np.pi)) - jnp.log(self.scale)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import Normal

        return Normal(f, self.scale)


@pytest.mark.parametrize("scale", [1e-6, 0.1, 3.0])
def test_a_likelihood_of_ones_own_finds_its_peak(scale):
    """Much narrower than q(f) or as wide, with labels up to a million standard deviations off: a convolution."""
    lik, closed = Own(scale), L.Gaussian(scale**2)
    y = jnp.asarray([[0.3], [-3.0], [8.0], [30.0], [200.0], [-1e6]])
    args = jnp.full_like(y, 0.1), jnp.ones_like(y)
    np.testing.assert_allclose(lik.predictive(*args).log_prob(y), closed.predictive(*args).log_prob(y), rtol=1e-4)
    one = jnp.ones((1, 1))
    for q in (0.1, 0.9):
        np.testing.assert_allclose(
            lik.predictive(one, one).quantile(q), closed.predictive(one, one).quantile(q), rtol=1e-4
        )


class Cauchy(L.AbstractQuadratureLikelihood):
    def log_prob(self, f, y, *, index=None):
        return -jnp.log1p(((y - f) / 0.01) ** 2)


def test_training_a_likelihood_of_ones_own_much_narrower_than_q():
    """E log p and its derivatives in mean and variance, which nodes spread evenly over q(f) get wrong in sign."""
    one = jnp.ones((1, 1))
    terms = -np.log1p(((0.3 - Z) / 0.01) ** 2)
    value, (slope, bend) = jax.value_and_grad(lambda m, v: Cauchy().expected_log_prob(m, v, 0.3 * one)[0, 0], (0, 1))(
        0 * one, one
    )
    np.testing.assert_allclose(value, terms @ WEIGHTS, rtol=1e-6)
    np.testing.assert_allclose(slope[0, 0], terms @ (WEIGHTS * Z), rtol=1e-5)
    np.testing.assert_allclose(bend[0, 0], terms @ (WEIGHTS * (Z**2 - 1)) / 2, rtol=1e-5)


class Yes(L.AbstractQuadratureLikelihood):
    """log σ(f): a likelihood without a peak."""

    def log_prob(self, f, y, *, index=None):
        return jax.nn.log_sigmoid(f) + 0 * y


def test_a_likelihood_of_ones_own_without_a_peak():
    mean = jnp.asarray([[0.0], [3.0], [-10.0], [-300.0]])
    variance = jnp.asarray([[1.0], [1e4], [1e4], [1.0]])
    truth = [np.log(expit(m + np.sqrt(v) * Z) @ WEIGHTS) for m, v in zip(mean[:3, 0], variance[:3, 0], strict=True)]
    got = Yes().predictive(mean, variance).log_prob(jnp.ones_like(mean))
    np.testing.assert_allclose(got, [*truth, -299.5], rtol=1e-6)


def test_no_waiting_time_and_a_rate_without_bounds():
    """y = 0 of an exponential distribution: p = e^{−f}, whose expectation is e^{variance/2 − mean}."""
    mean, variance = jnp.asarray([[0.0], [-3.0], [0.0]]), jnp.asarray([[1.0], [100.0], [600.0]])
    lik, zero = L.Exponential(), jnp.zeros((3, 1))
    np.testing.assert_allclose(lik.log_prob(-800.0 + zero, zero), 800.0)
    got = lik.predictive(mean, variance).log_prob(zero)
    np.testing.assert_allclose(got, 0.5 * variance[:, 0] - mean[:, 0], rtol=1e-6)


def test_counts_far_from_what_was_expected():
    """Tiny concentrations: p rises within 1 of log(y c), left of its peak at log y, and is flat from there on."""
    f = np.linspace(-40.0, 40.0, 400_001)
    log_odds, density = f - np.log(1e-4), eqx.filter_jit(L.NegativeBinomial(1e-4).predictive_log_prob)
    for y in (10.0, 1000.0, 1e6):
        terms = gammaln(y + 1e-4) - gammaln(1e-4) - gammaln(y + 1) + stats.norm(-100.0, 10.0).logpdf(f)
        terms = terms + 1e-4 * log_sigmoid(-log_odds) + y * log_sigmoid(log_odds)
        got = density(*(jnp.full((1, 1), v) for v in (-100.0, 100.0, y)))
        np.testing.assert_allclose(got, logsumexp(terms) + np.log(f[1] - f[0]), rtol=1e-5)


@pytest.mark.parametrize("lik", [L.Poisson(), L.NegativeBinomial(1e8)], ids=["poisson", "negative_binomial"])
def test_single_precision_of_counts(lik):
    """Nearly Poisson counts, whose log densities hold large terms that cancel, and labels far from the mean."""
    f, w = jnp.asarray([-3.0, 0.7, 3.0], jnp.float32)[:, None], jnp.asarray([1.0, 2.0, 20.0], jnp.float32)[:, None]
    single = jax.tree.map(lambda a: a.astype(jnp.float32), lik)
    np.testing.assert_allclose(single.log_prob(f, w)[:, 0], stats.poisson(np.exp(f)).logpmf(w)[:, 0], rtol=2e-4)
    far = jnp.full_like(f, 100.0)
    density = eqx.filter_jit(lambda lik, *args: lik.predictive_log_prob(*args))
    double = density(lik, *(a.astype(float) for a in (far, 1 + 0 * far, w)))
    np.testing.assert_allclose(density(single, far, 1 + 0 * far, w), double, rtol=1e-4)


@pytest.mark.parametrize(
    ("lik", "dtype"), [(L.Gamma(2.0), float), (L.Exponential(), jnp.float32), (L.Weibull(3.0), jnp.float32)]
)
def test_gradients_of_densities_under_wide_functions(lik, dtype):
    """E p(y | f) where e^{−f} overflows within q(f)."""
    lik = jax.tree.map(lambda a: a.astype(dtype), lik)
    one = jnp.ones((1, 1), dtype)

    @eqx.filter_jit
    def value(m, sd):
        return lik.predictive_log_prob(m, sd * sd, one)[0, 0]

    by_mean, by_sd = jax.grad(value, (0, 1))(-one, 100 * one)
    assert np.isfinite(by_mean).all()
    np.testing.assert_allclose(by_sd, -0.01, rtol=5e-3)  # p(y) is about φ(0) / sd


@pytest.mark.parametrize("variance", [25.0, 400.0, 1e4])
@pytest.mark.parametrize("mean", [0.7, -30.0])
def test_slopes_of_densities_under_wide_functions(mean, variance):
    """By mean and variance: E[f − mean]/variance and E[(f − mean)²/variance − 1]/2 variance under p(f | y)."""
    f = np.sinh(np.linspace(-9.0, 9.0, 200_001))  # label 1, peak at 0
    terms = np.log(1.7) - 1.7 * f - bounded_exp(-1.7 * f) + stats.norm(mean, variance**0.5).logpdf(f)
    weights = np.exp(terms - terms.max()) * np.gradient(f)
    weights, d = weights / weights.sum(), f - mean
    one = jnp.ones((1, 1))
    slope, bend = jax.grad(lambda m, v: L.Weibull(1.7).predictive_log_prob(m, v, one)[0, 0], (0, 1))(
        mean * one, variance * one
    )
    np.testing.assert_allclose(slope[0, 0], weights @ d / variance, rtol=1e-5, atol=1e-5 / variance**0.5)
    np.testing.assert_allclose(bend[0, 0], (weights @ d**2 / variance - 1) / (2 * variance), rtol=1e-4)


def test_moments_of_narrow_labels_in_single_precision():
    """Var = shape e^{2f} of a gamma label, beside a mean whose square is shape times as large."""
    one = jnp.ones((1, 1), jnp.float32)
    pred = L.Gamma(jnp.float32(1e6)).predictive(0 * one, 0 * one)
    np.testing.assert_allclose(pred.variance, 1e6, rtol=1e-5)


THRESHOLDS = {  # likelihood, label, cdf given f
    "poisson": (L.Poisson(exposure=1.7), 0, lambda f: stats.poisson.cdf(0, 1.7 * bounded_exp(f))),
    "many": (L.Poisson(), 10**6, lambda f: stats.poisson.cdf(10**6, bounded_exp(f))),
    "softplus": (L.Poisson("softplus", 100.0), 30, lambda f: stats.poisson.cdf(30, 100 * np.logaddexp(0, f))),
    "negative_binomial": (L.NegativeBinomial(0.1), 3, lambda f: betainc(0.1, 4, expit(np.log(0.1) - f))),
    "binomial_logit": (L.Binomial(1000, "logit"), 999, lambda f: betainc(1, 1000, expit(-f))),
    "binomial_probit": (L.Binomial(50), 7, lambda f: betainc(43, 8, ndtr(-f))),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_cdf_of_a_threshold(name):
    """q(f) of a point, much narrower than the likelihood, as wide and much wider, with the label on either side."""
    lik, y, cdf = THRESHOLDS[name]
    centre, width = (float(a[0, 0]) for a in lik.focus(jnp.full((1, 1), float(y))))
    cases = [(centre + d * max(sd, width), sd) for d in (-2.0, 0.1, 1.0) for sd in (0.0, 1e-4, 0.03, 0.3, 3.0, 30.0)]
    truth = []
    for mean, sd in cases:
        f = centre + width * np.sinh(np.linspace(-30, 30, 60_001)) if sd > 20 * width else mean + sd * Z
        w = np.gradient(f) * stats.norm.pdf(f, mean, sd) if sd > 20 * width else WEIGHTS
        truth.append(w @ cdf(f) / w.sum())
    mean, sd = (jnp.asarray(a)[:, None] for a in zip(*cases, strict=True))
    labels = jnp.full_like(mean, y)
    got = eqx.filter_jit(lik.predictive_cdf)(mean, sd**2, labels)
    np.testing.assert_allclose(got[:, 0], truth, atol=3e-7)
    single = jax.tree.map(lambda a: a.astype(jnp.float32), lik)
    got = eqx.filter_jit(single.predictive_cdf)(*(a.astype(jnp.float32) for a in (mean, sd**2, labels)))
    np.testing.assert_allclose(got[:, 0], truth, atol=2e-3 if name == "many" else 3e-5)  # f itself is that coarse


SCALED = {  # likelihood of a label 1 that e^f scales, cdf given f
    "gamma": (L.Gamma(2.3), lambda f: gammainc(2.3, bounded_exp(-f))),
    "many": (L.Gamma(1e4), lambda f: gammainc(1e4, bounded_exp(-f))),
    "near_zero": (L.Gamma(0.05), lambda f: gammainc(0.05, bounded_exp(-f))),
    "exponential": (L.Exponential(), lambda f: -np.expm1(-bounded_exp(-f))),
    "weibull": (L.Weibull(3.0), lambda f: -np.expm1(-bounded_exp(-3.0 * f))),
}


@pytest.mark.parametrize("name", SCALED)
def test_cdf_of_a_scaled_label(name):
    """q(f) of a point, much narrower than the likelihood, as wide and much wider, down to probabilities of 1e-6."""
    lik, cdf = SCALED[name]
    centre, width = (float(a[0, 0]) for a in lik.focus(jnp.ones((1, 1))))
    cases = [
        (centre + d * np.hypot(sd, width), sd)
        for d in (-4.0, -2.0, 0.1, 1.0, 3.0)
        for sd in (0.0, 1e-4, 0.1, 3.0, 30.0)
    ]
    truth = np.array([WEIGHTS @ cdf(mean + sd * Z) for mean, sd in cases])
    mean, sd = (jnp.asarray(a)[:, None] for a in zip(*cases, strict=True))
    got = eqx.filter_jit(lik.predictive_cdf)(mean, sd**2, jnp.ones_like(mean))
    np.testing.assert_allclose(got[:, 0], truth, rtol=2e-4 if name == "near_zero" else 3e-5, atol=1e-10)


@pytest.mark.parametrize("df", [0.5, 1.0, 4.0, 30.0, 1e4])
def test_cdf_of_heavy_tails(df):
    """Scales from a thousandth to a thousand times the width of q(f), with relative accuracy in the lower tail."""
    mean, t = 0.3, -np.geomspace(0.01, 12.0, 9)
    for scale, sd in ((1e-3, 1.0), (0.5, 1.0), (1.0, 0.3), (1.0, 1e-3), (1.0, 0.0)):
        y = mean + np.hypot(scale, sd) * np.concatenate([np.sinh(t), -t])
        truth = np.array([WEIGHTS @ stats.t.cdf(v, df, mean + sd * Z, scale) for v in y])
        seen = truth > 1e-9
        one = jnp.ones((len(y), 1))
        for dtype, rtol in ((jnp.float64, 1e-6), (jnp.float32, 3e-5)):
            lik = jax.tree.map(lambda a, dtype=dtype: a.astype(dtype), L.StudentT(df, scale))
            args = (a.astype(dtype) for a in (mean * one, sd**2 * one, jnp.asarray(y)[:, None]))
            got = np.asarray(heavy_cdf(lik, *args))[:, 0]
            np.testing.assert_allclose(got[seen], truth[seen], rtol=rtol)


heavy_cdf = eqx.filter_jit(lambda lik, *args: lik.predictive_cdf(*args))


@pytest.mark.parametrize("lik", [L.StudentT(), L.Gamma(), L.Beta(), L.Poisson(), L.Binomial(9)])
def test_cdfs_without_incomplete_functions(lik):
    """JAX's incomplete gamma and beta functions are long loops, at each node: quantiles of 10,000 rows took minutes."""
    half = jnp.full((1, 1), 0.5)
    operations = str(jax.make_jaxpr(lik.predictive_cdf)(half, half, half))
    assert "igamma" not in operations and "regularized_incomplete_beta" not in operations


def poisson_million(f):
    return stats.poisson.logpmf(1e6, np.exp(f))


def million(concentration):
    return lambda f: stats.nbinom.logpmf(1e6, concentration, expit(np.log(concentration) - f))


COUNTS = {  # likelihood, f, label, SciPy's log density
    "poisson": (L.Poisson(), 13.8155, 1e6, poisson_million),
    "exposed": (L.Poisson(exposure=1024.0), 6.884, 1e6, lambda f: stats.poisson.logpmf(1e6, 1024 * np.exp(f))),
    "softplus": (L.Poisson("softplus"), 1e6, 1e6, lambda f: stats.poisson.logpmf(1e6, f)),
    "negative_binomial": (L.NegativeBinomial(1e6), 13.8165, 1e6, million(1e6)),
    "overdispersed": (L.NegativeBinomial(2.5), 12.0, 1e6, million(2.5)),
    "inflated": (L.ZeroInflatedPoisson(0.25), 13.8155, 1e6, lambda f: np.log(0.75) + poisson_million(f)),
    "binomial": (L.Binomial(10**6, "logit"), -0.406, 4e5, lambda f: stats.binom.logpmf(4e5, 1e6, expit(f))),
    "even": (L.Binomial(10**6, "logit"), 0.0, 5e5, lambda f: stats.binom.logpmf(5e5, 1e6, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_large_counts_in_float32(name):
    """A difference of numbers of 10⁷ has no digits left in float32: log densities were off by up to 0.8."""
    lik, f, y, log_prob = COUNTS[name]
    single = jax.tree.map(lambda a: a.astype(jnp.float32), lik)
    f, y = jnp.full((1, 1), f, jnp.float32), jnp.full((1, 1), y, jnp.float32)
    truth = log_prob(float(f[0, 0]))
    np.testing.assert_allclose(single.log_prob(f, y)[0, 0], truth, atol=2e-3)
    if name not in ("negative_binomial", "binomial", "even"):  # E log σ(f) is known to 1e-7, times a million
        np.testing.assert_allclose(single.expected_log_prob(f, 0 * f, y)[0, 0], truth, atol=2e-3)


@pytest.mark.parametrize("f", [0.0, 0.5, -0.5, 3.0, -40.0])
def test_slopes_of_logistic_counts(f):
    """y − n σ(f), also where f = 0 and where f equals the log-odds of the label."""
    for y, n in ((0.0, 7.0), (7.0, 7.0), (3.0, 7.0), (5.0, 10.0)):
        slope = jax.grad(lambda f, y=y, n=n: L.Binomial(n, "logit").log_prob(f, y * jnp.ones((1, 1)))[0, 0])(
            jnp.full((1, 1), f)
        )
        np.testing.assert_allclose(slope[0, 0], y - n * expit(f), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("variance", [0.0, 400.0])
def test_narrow_cells_in_float32(variance):
    """Cells of 1e-4: log(width φ(x) sinh(t)/t), t = ½ width x. They were off by 0.1, or of probability 0."""
    cuts = np.array([-0.5, -0.4999, 0.5, 0.5001], np.float32)
    lik = L.Ordinal(jnp.asarray(cuts), jnp.float32(0.75))
    f = np.array([-300.0, -30.0, -1.0, -0.45, 0.0, 1.0, 30.0, 300.0, 1e4])[:, None]
    scale = np.sqrt(0.75**2 + variance)
    for y in (1, 3):
        low, high = cuts.astype(float)[[y - 1, y]]
        x, width = (0.5 * (low + high) - np.float32(f)) / scale, (high - low) / scale
        t = np.abs(0.5 * x * width)
        truth = np.log(width * np.sinh(t) / t) + stats.norm.logpdf(x)
        mean = jnp.asarray(f, jnp.float32)
        args = jnp.full_like(mean, variance), jnp.full_like(mean, y)
        np.testing.assert_allclose(lik.predictive_log_prob(mean, *args), truth, rtol=1e-6)
        slope = jax.grad(lambda m, args=args: lik.predictive_log_prob(m, *args).sum())(mean)
        np.testing.assert_allclose(slope, x / scale, rtol=1e-3, atol=1e-4)
        value, slope = jax.value_and_grad(lambda m, args=args: lik.expected_log_prob(m, *args).sum())(mean)
        assert np.isfinite(value) and np.isfinite(slope).all()


def test_gamma_labels_in_float32():
    """The least numbers of the dtype, divided by the shape, are 0: there the cdf was not a number."""
    mean = jnp.asarray([[0.0], [30.0]], jnp.float32)
    median = L.Gamma(jnp.float32(2.3)).predictive(mean, 0 * mean).median
    np.testing.assert_allclose(median, stats.gamma(2.3, scale=np.exp(mean)).median(), rtol=1e-4)
    variance = L.Gamma(2.3).predictive(jnp.zeros((1, 1)), jnp.full((1, 1), 1e4)).variance
    assert np.isposinf(variance).all()  # not NaN
