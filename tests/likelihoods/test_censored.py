"""Censored and truncated labels against SciPy's distributions and quadrature over f."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.checks import checked_data

from .cases import CASES

L = ig.likelihoods
NAN = np.nan
POSITIVE = [[0.7, 0.7], [0.7, NAN], [NAN, 1.3], [0.4, 2.5], [NAN, NAN]]
PAIRS = {
    "gaussian": [[0.2, 0.2], [0.5, NAN], [NAN, -0.3], [-0.4, 3.0], [NAN, NAN]],
    "student_t": [[0.2, 0.2], [0.5, NAN], [NAN, -0.3], [-0.4, 3.0], [NAN, NAN]],
    "laplace": [[0.2, 0.2], [0.5, NAN], [NAN, -0.3], [-0.4, 3.0], [NAN, NAN]],
    "lognormal": POSITIVE,
    "weibull": POSITIVE,
    "gamma": POSITIVE,
    "poisson_exp": [[2.0, 2.0], [2.0, NAN], [NAN, 3.0], [1.0, 4.0], [NAN, NAN]],
}


def scipy_terms(case, y, f):
    """log p of each row for each f [n], by SciPy."""
    given = case.scipy(f)
    step = 1 if case.discrete else 0
    rows = []
    for lower, upper in y:
        if lower == upper:
            rows.append(given.logpmf(lower) if case.discrete else given.logpdf(lower))
        elif np.isnan(lower) and np.isnan(upper):
            rows.append(np.zeros_like(f))
        else:
            high = 1.0 if np.isnan(upper) else given.cdf(upper)
            low = 0.0 if np.isnan(lower) else given.cdf(lower - step)
            with np.errstate(divide="ignore"):  # SciPy's cdf runs out of digits in the tails
                rows.append(np.log(high - low))
    return np.array(rows)


@jax.jit
def all_of(likelihood, f, mean, variance, y):
    one = jnp.sum(jax.vmap(lambda f: likelihood.log_prob(f + 0 * mean, y))(f), axis=-1)
    expected = jnp.sum(likelihood.expected_log_prob(mean, variance, y), axis=-1)
    return one, expected, jnp.sum(likelihood.predictive_log_prob(mean, variance, y), axis=-1)


RARE = {"student_t", "laplace", "lognormal", "gamma"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in RARE else []) for n in PAIRS])
def test_against_scipy(name):
    case, y = CASES[name], np.array(PAIRS[name])
    likelihood = L.Censored(case.likelihood)
    mean, variance = np.full((len(y), 1), 0.3), np.full((len(y), 1), 0.8)
    nodes = np.linspace(-6.5, 6.5, 401)
    f = 0.3 + np.sqrt(0.8) * nodes
    w = np.exp(-0.5 * nodes**2) / np.exp(-0.5 * nodes**2).sum()
    terms = scipy_terms(case, y, f)
    few = slice(150, 251, 25)
    one, expected, predictive = all_of(likelihood, jnp.asarray(f[few]), *map(jnp.asarray, (mean, variance, y)))
    np.testing.assert_allclose(one, terms[:, few].T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(predictive, np.log(np.exp(terms) @ w), rtol=1e-4, atol=1e-6)
    finite = np.isfinite(terms).all(axis=1)
    assert finite.sum() >= 2
    np.testing.assert_allclose(np.asarray(expected)[finite], (terms @ w)[finite], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["student_t", "weibull"])
def test_far_tails_have_finite_gradients(name):
    likelihood = L.Censored(CASES[name].likelihood)
    y = jnp.array([[3.0, NAN], [NAN, 3.0], [3.0, 3.001], [NAN, NAN], [3.0, 3.0]])
    for mean in (-30.0, 30.0):
        gradient = jax.grad(lambda m: jnp.sum(likelihood.log_prob(m, y)))(jnp.full((5, 1), mean))
        assert np.isfinite(gradient).all()


def test_tails_of_gaussians_keep_their_digits():
    from scipy.stats import norm

    likelihood = L.Censored(L.Gaussian(1.0))
    y = jnp.array([[40.0, NAN], [NAN, -40.0], [40.0, 40.5]])
    truth = [
        norm.logsf(40.0),
        norm.logcdf(-40.0),
        norm.logsf(40.0) + np.log1p(-np.exp(norm.logsf(40.5) - norm.logsf(40.0))),
    ]
    np.testing.assert_allclose(jnp.sum(likelihood.log_prob(jnp.zeros((3, 1)), y), axis=1), truth, rtol=1e-12)


def test_truncated_rows_are_normalised_between_their_bounds():
    above, below = np.array([0.5, -np.inf, 0.2]), np.array([np.inf, 1.0, 2.0])
    truncated, plain = L.Censored(L.Weibull(1.5), above=above, below=below), L.Weibull(1.5)
    f, index = jnp.full((3, 1), 0.2), jnp.arange(3)
    grid = np.linspace(1e-6, 12.0, 40001)
    for n in range(3):
        inside = grid[(grid > above[n]) & (grid < below[n])]
        rows = jnp.full(inside.size, n)
        density = np.exp(truncated.log_prob(jnp.full((inside.size, 1), 0.2), jnp.asarray(inside)[:, None], index=rows))
        np.testing.assert_allclose(np.trapezoid(density[:, 0], inside), 1.0, atol=1e-3)
    y = jnp.array([[0.7], [0.7], [0.7]])  # and predictions are of the label itself
    np.testing.assert_array_equal(
        truncated.predictive_log_prob(f, 0.1 + 0 * f, y, index=index), plain.predictive_log_prob(f, 0.1 + 0 * f, y)
    )


def test_a_fit_predictions_and_a_file(tmp_path):
    """Censoring half of the labels: ignoring that is biased, and leaving them out too."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 1.0, 400)
    life = np.exp(1.0 + x) * rng.weibull(2.0, 400)
    end = np.where(life < 6.0, life, NAN)
    y = np.column_stack([np.minimum(life, 6.0), end])
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(1.0), 0.0), ig.features.InducingPoints([[0.0], [0.5], [1.0]]))
    model = ig.fit(ig.Model(gp, L.Censored(L.Weibull())), (x, y), steps=150, progress=False).model
    f = model.posterior([0.0, 0.5, 1.0])
    assert (np.abs(f.mean[:, 0] - np.array([1.0, 1.5, 2.0])) < 3 * np.sqrt(f.variance[:, 0])).all()
    assert f.variance.max() < 0.1**2
    np.testing.assert_allclose(model.likelihood.base.shape, 2.0, rtol=0.15)
    ig.save(tmp_path / "model.safetensors", model)
    pred = ig.load(tmp_path / "model.safetensors").predict([0.5, 0.5])
    assert pred.mean.shape == (2, 1)
    np.testing.assert_allclose(
        pred.log_prob([[2.0, NAN], [NAN, 2.0]]),
        np.log([1 - pred.cdf([[2.0]] * 2)[0, 0], pred.cdf([[2.0]] * 2)[0, 0]]),
        rtol=1e-4,
    )
    assert pred.crps([[2.0], [3.0]]).shape == (2, 1)
    ax = ig.report.plot_survival(model, [[0.0], [1.0]])
    line = ax.lines[0].get_ydata()
    assert line[0] > 0.98
    assert (np.diff(line) <= 0).all()


def test_refusals():
    with pytest.raises(TypeError, match="depend on one latent each, not Softmax"):
        L.Censored(L.Softmax(3))
    with pytest.raises(TypeError, match="a likelihood with a cdf"):
        L.Censored(NoDistribution())
    for likelihood in (L.Beta(), L.NegativeBinomial()):  # JAX does not differentiate their cdfs
        with pytest.raises(TypeError, match="whose cdf has derivatives"):
            L.Censored(likelihood)
    with pytest.raises(ValueError, match="lower 2 above upper 1 in row 0"):
        L.Censored(L.Weibull()).check(np.array([[2.0, 1.0]]))
    with pytest.raises(ValueError, match="pairs \\[lower, upper\\] in 2 columns"):
        L.Censored(L.Weibull()).num_latents(3)


class NoDistribution(L.AbstractQuadratureLikelihood):
    def log_prob(self, f, y, *, index=None):
        return -((y - f) ** 2)


def test_outputs_of_different_kinds():
    """The terms of lifetimes and counts, and their focus, are those of each output by itself."""
    parts, f = (L.Weibull(1.5), L.Poisson()), jnp.array([[0.3, 0.8], [-0.2, 1.0], [0.1, 0.4]])
    first, second = jnp.array([[0.7, NAN], [NAN, 1.3], [0.4, 2.5]]), jnp.array([[1.0, 4.0], [2.0, NAN], [3.0, 3.0]])
    both = L.Censored(L.PerOutput(parts), num_outputs=2)
    y = jnp.stack([first[:, 0], second[:, 0], first[:, 1], second[:, 1]], axis=1)
    both.check(np.asarray(y))
    for name in ("log_prob", "expected_log_prob"):
        given = (lambda s: (f[:, s],)) if name == "log_prob" else (lambda s: (f[:, s], 0.5 * jnp.ones_like(f[:, s])))
        terms = getattr(both, name)(*given(slice(None)), y)
        for p, labels in enumerate((first, second)):
            alone = getattr(L.Censored(parts[p]), name)(*given(slice(p, p + 1)), labels)
            np.testing.assert_allclose(terms[:, p] + terms[:, p + 2], alone.sum(axis=1), rtol=1e-12)


def test_a_side_without_bounds_is_not_a_missing_output():
    prior = ig.priors.Independent([ig.GP(ig.kernels.Matern52())] * 2)
    gp = ig.SparseGP(prior, ig.features.InducingPoints([[0.0], [1.0]]))
    model, x = ig.Model(gp, L.Censored(L.Gaussian(), num_outputs=2)), np.array([0.0, 1.0])
    checked_data(model, (x, np.array([[1.0, 0.5, NAN, NAN], [2.0, NAN, 2.0, NAN]])), every_output=True)
    with pytest.raises(ValueError, match="every label in column 1 of y is missing"):
        checked_data(model, (x, np.array([[1.0, NAN, NAN, NAN], [2.0, NAN, 2.0, NAN]])), every_output=True)


def test_labels_outside_their_truncation_are_refused():
    lifetimes = ig.Data([0.0, 1.0, 2.0], [[1.0, 1.0], [2.0, np.nan], [3.0, 3.0]])
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0]]))

    def bound(**truncation):
        return ig.elbo(ig.Model(gp, L.Censored(L.Weibull(), **truncation)), lifetimes)

    assert np.isfinite(bound(above=[0.5, 1.0, 2.5], below=[1.0, 4.0, 4.0]))
    with pytest.raises(ValueError, match=r"Censored.above is 1 in row 0, but the label ends at 1"):
        bound(above=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"Censored.below is 2.5 in row 2, but the label ends at 3"):
        bound(below=[4.0, 4.0, 2.5])
