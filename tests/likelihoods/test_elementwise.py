"""Each elementwise likelihood against SciPy's density integrated by brute force."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import integrate

from .cases import CASES, scipy_log_prob

MEAN = np.array([0.3, -0.8, 1.1])
VARIANCE = np.array([0.1, 0.7, 2.0])
GRID = np.linspace(-9, 9, 20001)
WEIGHTS = np.exp(-0.5 * GRID**2) / np.exp(-0.5 * GRID**2).sum()

pytestmark = pytest.mark.parametrize("name", CASES)

log_prob = eqx.filter_jit(lambda lik, f, y: lik.log_prob(f, y))
expected_log_prob = eqx.filter_jit(lambda lik, mean, variance, y: lik.expected_log_prob(mean, variance, y))
density = eqx.filter_jit(lambda lik, mean, variance, y: lik.predictive(mean, variance).log_prob(y))


def column(a):
    return jnp.asarray(a, float)[:, None]


def nodes(i):
    return MEAN[i] + np.sqrt(VARIANCE[i]) * GRID


def predictive(name):
    return CASES[name].likelihood.predictive(column(MEAN), column(VARIANCE))


def test_log_prob(name):
    case = CASES[name]
    f = np.repeat(np.linspace(-3, 3, 7), 3)
    y = np.tile(case.y, 7)
    expected = [float(scipy_log_prob(case, np.asarray(fi), yi)) for fi, yi in zip(f, y, strict=True)]
    np.testing.assert_allclose(log_prob(case.likelihood, column(f), column(y))[:, 0], expected, rtol=1e-9, atol=1e-11)


def test_expected_log_prob(name):
    case = CASES[name]

    def truth(i):
        m, sd, y = MEAN[i], np.sqrt(VARIANCE[i]), case.y[i]
        kink = [(y - m) / sd] if name == "laplace" else None

        def integrand(z):
            return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * float(scipy_log_prob(case, np.asarray(m + sd * z), y))

        return integrate.quad(integrand, -case.reach, case.reach, epsabs=1e-10, epsrel=1e-10, limit=200, points=kink)[0]

    got = expected_log_prob(case.likelihood, column(MEAN), column(VARIANCE), column(case.y))[:, 0]
    np.testing.assert_allclose(got, [truth(i) for i in range(3)], rtol=1e-7, atol=2e-8)


def test_expected_log_prob_is_its_monte_carlo_mean(name):
    lik, num = CASES[name].likelihood, 20000
    z = np.random.default_rng(3).normal(size=(num, 3))
    f = (MEAN + np.sqrt(VARIANCE) * z).reshape(-1)
    logs = np.asarray(log_prob(lik, column(f), column(np.tile(CASES[name].y, num)))).reshape(num, 3)
    got = expected_log_prob(lik, column(MEAN), column(VARIANCE), column(CASES[name].y))[:, 0]
    assert np.all(np.abs(got - logs.mean(0)) < 5 * logs.std(0) / np.sqrt(num))


def test_gradients(name):
    """Both modes; mean, variance and the likelihood's own parameters; against finite differences."""
    lik, y = CASES[name].likelihood, column(CASES[name].y)
    trained = not name.startswith("binomial")  # the number of trials is no parameter to differentiate
    arrays, static = eqx.partition(lik, lambda a: eqx.is_inexact_array(a) and trained)

    @jax.jit
    def fn(arrays, mean, variance):
        return jnp.sum(eqx.combine(arrays, static).expected_log_prob(mean, variance, y))

    check_grads(fn, (arrays, column(MEAN), column(VARIANCE)), order=1, rtol=1e-5, atol=1e-5, eps=1e-5)


def test_predictive_moments(name):
    case, pred = CASES[name], predictive(name)
    mean, variance = pred.mean, pred.variance
    for i in range(3):
        d = case.scipy(nodes(i))
        expected = WEIGHTS @ d.mean()
        np.testing.assert_allclose(mean[i, 0], expected, rtol=1e-7)
        np.testing.assert_allclose(variance[i, 0], WEIGHTS @ (d.var() + (d.mean() - expected) ** 2), rtol=1e-6)


def test_predictive_density_and_missing_labels(name):
    case = CASES[name]
    q = column(MEAN), column(VARIANCE)
    got = density(case.likelihood, *q, column(case.y))
    with np.errstate(divide="ignore"):
        expected = [np.log(WEIGHTS @ np.exp(scipy_log_prob(case, nodes(i), case.y[i]))) for i in range(3)]
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-8)
    some = density(case.likelihood, *q, column([case.y[0], np.nan, case.y[2]]))
    np.testing.assert_allclose(some, np.asarray(got) * [1.0, 0.0, 1.0])


def test_predictive_quantiles(name):
    """The brute-force cdf at the quantile is q; for labels that are whole numbers it first reaches q there."""
    case, pred = CASES[name], predictive(name)
    for q in (1e-3, 0.5, 0.99):
        value = np.asarray(pred.quantile(q)[:, 0])
        for i in range(3):
            at = WEIGHTS @ case.scipy(nodes(i)).cdf(value[i])
            if case.discrete:
                assert value[i] == np.floor(value[i])
                assert at >= q - 1e-9
                assert WEIGHTS @ case.scipy(nodes(i)).cdf(value[i] - 1) < q
            elif name.startswith("beta") and value[i] == 1:  # no number below 1 is large enough
                assert WEIGHTS @ case.scipy(nodes(i)).cdf(np.nextafter(1, 0)) < q
            else:
                np.testing.assert_allclose(at, q, rtol=1e-6, atol=2e-8)  # the cdf is a quadrature


def test_samples(name):
    """Labels sampled at a known f have SciPy's mean and cdf there."""
    case, num = CASES[name], 4000
    f = np.array([-1.5, 0.2, 1.5])
    sample = np.asarray(case.likelihood.predictive(column(f), column(0 * f)).sample(jax.random.key(1), (num,)))[..., 0]
    assert sample.shape == (num, 3)
    d = case.scipy(f)
    assert np.all(np.abs(sample.mean(0) - d.mean()) < 5 * np.sqrt(d.var() / num))
    y = np.quantile(sample[:, 1], 0.7)
    assert abs((sample[:, 1] <= y).mean() - np.asarray(d.cdf(y))[1]) < 5 * 0.5 / np.sqrt(num)


def test_deterministic_latents(name):
    """Variance 0: the density at f itself, with finite gradients; one datum at a time under vmap."""
    lik, y = CASES[name].likelihood, column(CASES[name].y)
    at_f = log_prob(lik, column(MEAN), y)

    @jax.jit
    @jax.vmap
    def value_and_grad(m, v, y):
        return jax.value_and_grad(lambda m, v: lik.expected_log_prob(m[None], v[None], y[None])[0, 0], (0, 1))(m, v)

    value, gradients = value_and_grad(column(MEAN), jnp.zeros((3, 1)), y)
    np.testing.assert_allclose(value, at_f[:, 0], rtol=1e-9)
    assert all(np.all(np.isfinite(g)) for g in gradients)
    predicted = density(lik, column(MEAN), jnp.zeros((3, 1)), y)
    np.testing.assert_allclose(predicted, at_f[:, 0], rtol=1e-6, atol=1e-9)


def test_float32(name):
    lik, y = CASES[name].likelihood, column(CASES[name].y)
    single = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, lik)
    args = [a.astype(jnp.float32) for a in (column(MEAN), column(VARIANCE), y)]
    got = expected_log_prob(single, *args)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, expected_log_prob(lik, column(MEAN), column(VARIANCE), y), rtol=1e-4, atol=1e-5)
    predicted = density(single, *args)
    assert predicted.dtype == jnp.float32
    np.testing.assert_allclose(predicted, density(lik, column(MEAN), column(VARIANCE), y), rtol=1e-4, atol=1e-5)


def test_support(name):
    case = CASES[name]
    lik = case.likelihood
    lik.check(np.array([[case.y[0]], [np.nan], [case.y[1]]]))
    lik.check(np.array([[lik.fill]]))
    bad = 1.5 if case.discrete or name.startswith("beta") else np.inf
    with pytest.raises(ValueError, match=f"labels of {type(lik).__name__} must be .*got {bad}"):
        lik.check(np.array([[case.y[0]], [bad]]))
    assert lik.num_latents(2) == 2 and not lik.joint
