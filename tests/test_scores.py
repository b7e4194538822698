"""Scores of predictions against closed forms, brute force and Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import inducing as ig
from inducing import likelihoods as L
from inducing.likelihoods import crps

ZERO = jnp.zeros((1, 1))


def sample_crps(pred, y, num=4000):
    """E|Y − y| − ½ E|Y − Y′| by samples, with its standard error."""
    a, b = np.asarray(pred.sample(jax.random.key(1), (2, num)))
    terms = 0.5 * (np.abs(a - y) + np.abs(b - y)) - 0.5 * np.abs(a - b)
    return terms.mean(0), terms.std(0) / np.sqrt(num)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (L.Gaussian(0.3), [0.2, -4.0, 1.0]),
        (L.StudentT(4.0, 0.5), [0.2, 30.0, -2.0]),
        (L.LogNormal(0.5), [0.2, 3.0, 30.0]),
        (L.Poisson(), [0.0, 3.0, 40.0]),
        (L.Bernoulli(), [0.0, 1.0, 1.0]),
        (L.HeteroscedasticGaussian(), [0.2, -4.0, 1.0]),
        (L.Softmax(3), [0.0, 1.0, 2.0]),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, ig.likelihoods.AbstractLikelihood) else "",
)
def test_crps_agrees_with_samples(likelihood, y):
    """Of mixtures of two, for a representative of each kind of support and of joint latents."""
    F, y = likelihood.num_latents(1), np.array(y)[:, None]
    rng = np.random.default_rng(0)
    pred = likelihood.predictive(jnp.asarray(rng.normal(size=(2, 3, F))), jnp.asarray(rng.uniform(0.2, 0.6, (2, 3, F))))
    mean, error = sample_crps(pred, y)
    assert np.all(np.abs(pred.crps(y) - mean) < 5 * error + 1e-12)


def test_crps_of_known_distributions():
    """Closed forms: exponential, Student-t, gamma (Jordan et al. 2019), Cauchy-like tails and a far label."""
    for y in (0.01, 1.0, 50.0):
        pred = L.Exponential().predictive(ZERO, ZERO)
        assert pred.crps([y])[0, 0] == pytest.approx(y - 1.5 + 2 * np.exp(-y), rel=2e-5)
        F, p = stats.t(3.0), L.StudentT(3.0, 1.0).predictive(ZERO, ZERO)
        spread = 2 * np.sqrt(3.0) / 2 * special.beta(0.5, 2.5) / special.beta(0.5, 1.5) ** 2
        want = y * (2 * F.cdf(y) - 1) + 2 * F.pdf(y) * (3 + y * y) / 2 - spread
        assert p.crps([y])[0, 0] == pytest.approx(want, rel=2e-5)


def test_crps_of_counts_is_a_sum():
    """Exactly where every count has its own cell, to 1e-3 with 100 times more counts than cells."""
    k = np.arange(2000)
    F = stats.poisson(7.0).cdf(k)
    pred = L.Poisson().predictive(jnp.full((1, 1), np.log(7.0)), ZERO)
    for y in (0.0, 8.0, 200.0):
        assert pred.crps([y])[0, 0] == pytest.approx(np.sum((F - (k >= y)) ** 2), rel=1e-5)
    wide = L.Poisson().predictive(jnp.full((1, 1), np.log(5e6)), ZERO)
    want = np.sqrt(5e6) * (np.sqrt(2) - 1) / np.sqrt(np.pi)  # nearly Gaussian
    assert wide.crps([5e6])[0, 0] == pytest.approx(want, rel=1e-3)


def test_the_integral_agrees_with_the_closed_form_of_mixtures():
    rng = np.random.default_rng(1)
    mean, var = jnp.asarray(rng.normal(size=(6, 4, 2))), jnp.asarray(rng.uniform(0.05, 1.0, (6, 4, 2)))
    pred, y = L.Gaussian(0.1).predictive(mean, var), jnp.asarray(rng.normal(size=(4, 2)))
    quantiles = jnp.stack([pred.quantile(q) for q in crps.LEVELS])
    np.testing.assert_allclose(crps.crps_by_integral(pred.cdf, quantiles, y), pred.crps(y), rtol=2e-5)


def test_other_scores_by_hand():
    rng = np.random.default_rng(2)
    m, y, w = rng.normal(size=(5, 1)), rng.normal(size=(5, 1)), np.array([2.0, 0.0, 1.0, 1.0, 3.0])
    pred = L.Gaussian(0.5).predictive(jnp.asarray(m), jnp.full((5, 1), 0.5))
    lower, upper = stats.norm(m, 1).interval(0.8)
    each = upper - lower + 10 * (np.maximum(lower - y, 0) + np.maximum(y - upper, 0))
    y[2] = np.nan
    keep = np.repeat([0, 3, 4], [2, 1, 3])
    assert ig.scores.interval_score(pred, y, level=0.8, weight=w) == pytest.approx(each[keep].mean())
    assert ig.scores.log_score(pred, y, weight=w) == pytest.approx(-stats.norm(m, 1).logpdf(y)[keep].mean())
    assert ig.scores.crps(pred, y, weight=w) == pytest.approx(np.asarray(pred.crps(y))[keep].mean())
    levels = np.linspace(0, 1, 1001)
    pit = stats.norm(m, 1).cdf(y)[keep, 0]
    want = np.mean(np.abs((pit[:, None] <= levels[None]).mean(0) - levels))
    assert ig.scores.calibration_error(pred, y, weight=w) == pytest.approx(want)

    logits = L.Softmax(3).predictive(jnp.asarray(rng.normal(size=(4, 3))), jnp.zeros((4, 3)))
    p, classes = special.softmax(np.asarray(logits.latent_mean), axis=1), np.array([0, 2, 1, 1])
    assert ig.scores.brier(logits, classes) == pytest.approx(np.sum((p - np.eye(3)[classes]) ** 2, 1).mean(), rel=1e-5)
    gap, bins = (p.argmax(1) == classes) - p.max(1), (10 * p.max(1)).astype(int)
    want = sum(abs(gap[bins == b].sum()) for b in range(10)) / 4
    assert ig.scores.calibration_error(logits, classes) == pytest.approx(want, rel=1e-5)


def test_scores_refuse_what_they_cannot_score():
    pred = L.Gaussian(1.0).predictive(jnp.zeros((2, 1)), jnp.ones((2, 1)))
    with pytest.raises(TypeError, match="pred must be predictions"):
        ig.scores.crps(0.0, [1.0])
    with pytest.raises(ValueError, match="every label"):
        ig.scores.crps(pred, [np.nan, np.nan])
    with pytest.raises(ValueError, match="weight must have one entry"):
        ig.scores.crps(pred, [0.0, 1.0], weight=[1.0])
    with pytest.raises(TypeError, match="not a classification likelihood"):
        ig.scores.brier(pred, [0.0, 1.0])


def test_joint_predictions_are_scored_label_by_label():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    model, y = ig.Model(gp, L.Gaussian(0.1)), [0.3, -1.0]
    alone, joint = model.predict([0.2, 0.7]), model.predict([0.2, 0.7], full_cov=True)
    assert ig.scores.crps(joint, y) == pytest.approx(ig.scores.crps(alone, y), rel=1e-12)


def test_scores_do_not_depend_on_the_scale_of_weights():
    """Of which even the largest must not overflow."""
    pred, y = L.Gaussian(1.0).predictive(jnp.zeros((3, 1)), jnp.zeros((3, 1))), [0.0, 1.0, 2.0]
    weight = np.array([1.0, 2.0, 4.0])
    expected = np.average(-stats.norm.logpdf(y), weights=weight)
    for scale in (1.0, 1e30):
        np.testing.assert_allclose(ig.scores.log_score(pred, y, weight=scale * weight), expected, rtol=1e-5)
