"""Likelihoods in which a label depends on several latents, and likelihoods that differ by output."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import special, stats

import inducing.likelihoods as L

RNG = np.random.default_rng(0)
GRID = np.linspace(-7, 7, 701)
Z0, Z1 = np.meshgrid(GRID, GRID, indexing="ij")
PLANE = np.exp(-0.5 * (Z0**2 + Z1**2))
PLANE /= PLANE.sum()


def gaussians(N, F, scale=0.7):
    """Random means and correlated covariances."""
    root = scale * RNG.normal(size=(N, F, F)) / np.sqrt(F)
    return jnp.asarray(RNG.normal(size=(N, F))), jnp.asarray(root @ np.swapaxes(root, 1, 2) + 0.05 * np.eye(F))


def plane(mean, cov):
    """Dense nodes (f0, f1) of a two-dimensional Gaussian with weights PLANE."""
    root = np.linalg.cholesky(np.asarray(cov))
    return mean[0] + root[0, 0] * Z0, mean[1] + root[1, 0] * Z0 + root[1, 1] * Z1


@pytest.mark.parametrize("link", [jnp.exp, jax.nn.softplus], ids=["exp", "softplus"])
@pytest.mark.parametrize("correlated", [True, False])
def test_heteroscedastic_gaussian(link, correlated):
    lik = L.HeteroscedasticGaussian(link)
    mean, cov = gaussians(3, 2, 0.4)
    mean = mean.at[:, 1].set(0.3)  # noise that the dense grid resolves
    variance = jnp.diagonal(cov, axis1=1, axis2=2)
    full = cov if correlated else jax.vmap(jnp.diag)(variance)
    y = jnp.asarray([[0.2], [-1.0], [1.5]])
    pred = lik.predictive(mean, full if correlated else variance)
    got = lik.expected_log_prob(mean, full if correlated else variance, y)
    quantile = pred.quantile(0.9)
    for i in range(3):
        f0, f1 = plane(mean[i], full[i])
        d = stats.norm(f0, np.asarray(link(jnp.asarray(f1))))
        np.testing.assert_allclose(got[i, 0], (PLANE * d.logpdf(y[i, 0])).sum(), rtol=1e-7)
        np.testing.assert_allclose(pred.log_prob(y)[i], np.log((PLANE * d.pdf(y[i, 0])).sum()), rtol=1e-6)
        np.testing.assert_allclose((PLANE * d.cdf(quantile[i, 0])).sum(), 0.9, rtol=1e-6)
        np.testing.assert_allclose(pred.mean[i, 0], (PLANE * f0).sum(), atol=1e-8)
        second = (PLANE * (d.var() + f0**2)).sum() - (PLANE * f0).sum() ** 2
        np.testing.assert_allclose(pred.variance[i, 0], second, rtol=1e-6)
    sample = pred.sample(jax.random.key(0), (8000,))[..., 0]
    assert np.all(np.abs(sample.mean(0) - pred.mean[:, 0]) < 5 * np.sqrt(pred.variance[:, 0] / 8000))
    fn = jax.jit(lambda m, c: lik.expected_log_prob(m, c, y).sum())
    check_grads(fn, (mean, full), order=1, rtol=1e-5, atol=1e-5)


def test_heteroscedastic_outputs_stand_side_by_side():
    """With P outputs the first P latents are the means: the same as one output at a time."""
    lik = L.HeteroscedasticGaussian()
    mean, cov = gaussians(2, 4)
    y = jnp.asarray(RNG.normal(size=(2, 2)))
    assert lik.num_latents(2) == 4
    got = lik.expected_log_prob(mean, cov, y)
    for p in range(2):
        pick = jnp.array([p, 2 + p])
        one = lik.expected_log_prob(mean[:, pick], cov[:, pick][:, :, pick], y[:, p : p + 1])
        np.testing.assert_allclose(got[:, p : p + 1], one, rtol=1e-12)
    assert np.all(np.isfinite(jax.grad(lambda c: lik.expected_log_prob(mean, c, y).sum())(0 * cov)))


@pytest.mark.parametrize("num", [2, pytest.param(3, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("correlated", [True, False])
@pytest.mark.parametrize("kind", [L.Softmax, L.RobustMax])
def test_classes_against_monte_carlo(kind, num, correlated):
    lik = kind(num)
    mean, cov = gaussians(3, num, 1.5)
    variance = jnp.diagonal(cov, axis1=1, axis2=2)
    argument = cov if correlated else variance
    y = jnp.asarray([[0.0], [1.0], [num - 1.0]])
    draws = 200_000
    full = np.asarray(cov if correlated else jax.vmap(jnp.diag)(variance))
    z = RNG.normal(size=(draws, 3, num))
    f = np.asarray(mean) + np.einsum("nij,knj->kni", np.linalg.cholesky(full), z)
    if kind is L.Softmax:
        p = special.softmax(f, -1)
    else:
        p = np.where(np.arange(num) == f.argmax(-1)[..., None], 1 - 1e-3, 1e-3 / (num - 1))
    logs = np.log(np.take_along_axis(p, np.asarray(y, int)[None].repeat(draws, 0), -1))[..., 0]
    quasi = 3e-3 if (num == 5 and kind is L.Softmax) or (correlated and kind is L.RobustMax and num > 2) else 0.0
    got = eqx.filter_jit(lik.expected_log_prob)(mean, argument, y)[:, 0]
    scale = 1 if kind is L.Softmax else 7  # log 0.999 − log(0.001 / (C − 1)): what an error of P is multiplied by
    few = 3e-2 if num == 5 and kind is L.Softmax and not correlated else scale * quasi  # the bound takes few nodes
    assert np.all(np.abs(got - logs.mean(0)) < 5 * logs.std(0) / np.sqrt(draws) + few)

    @eqx.filter_jit
    def answers(lik, mean, argument):
        pred = lik.predictive(mean, argument)
        return pred.probabilities, pred.log_prob(y), pred.mean, pred.variance, pred.median

    probabilities, log_prob, expected, variances, median = map(np.asarray, answers(lik, mean, argument))
    assert np.all(np.abs(probabilities - p.mean(0)) < 5 * p.std(0) / np.sqrt(draws) + quasi + 1e-9)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-12)
    taken = np.take_along_axis(probabilities, np.asarray(y, int), 1)[:, 0]
    np.testing.assert_allclose(np.exp(log_prob), taken, atol=1e-4 + quasi)  # before they are made to sum to 1
    labels = np.arange(num)
    first = p @ labels
    second = (p * (labels - first.mean(0)[:, None]) ** 2).sum(-1)
    for got, values in ((expected, first), (variances, second)):
        error = 5 * values.std(0) / np.sqrt(draws) + num**2 * quasi + 1e-9
        assert np.all(np.abs(got[:, 0] - values.mean(0)) < error)
    median = median[:, 0].astype(int)
    total = np.cumsum(probabilities, -1)
    assert all(total[i, k] >= 0.5 - 1e-6 and (k == 0 or total[i, k - 1] < 0.5 + 1e-6) for i, k in enumerate(median))


@pytest.mark.parametrize(
    ("num", "sd", "each", "mean"), [(5, 0.5, 6e-4, 2e-4), (10, 1.5, 1.2e-2, 3e-3), (5, 5.0, 0.1, 2e-2)]
)
def test_stated_errors_of_the_bound_of_many_classes(num, sd, each, mean):
    """The few nodes of the bound have no random noise, but a bias: of each datum, and on average over data."""
    rows, rng = 300, np.random.default_rng(num)
    m, s = rng.normal(size=(rows, num)) * sd, rng.uniform(0.5, 1.2, (rows, num)) * sd
    z = stats.norm.ppf(stats.qmc.Sobol(num, rng=rng).random(2**13))
    truth = np.array([a[0] - special.logsumexp(a + b * z, axis=1).mean() for a, b in zip(m, s, strict=True)])
    got = jax.jit(L.Softmax(num).expected_log_prob)(jnp.asarray(m), jnp.asarray(s**2), jnp.zeros((rows, 1)))
    error = np.asarray(got)[:, 0] - truth
    assert np.sqrt(np.mean(error**2)) < each and abs(np.mean(error)) < mean


def test_three_classes_against_a_dense_grid():
    mean, cov = gaussians(4, 3, 1.5)
    variance = jnp.diagonal(cov, axis1=1, axis2=2)
    for second, full in ((variance, jax.vmap(jnp.diag)(variance)), (cov, cov)):
        got = L.Softmax(3).expected_log_prob(mean, second, jnp.full((4, 1), 1.0))
        to_margin = np.array([[0.0, -1.0, 1.0], [1.0, -1.0, 0.0]])  # of the third and the first class
        for i in range(4):
            a, b = plane(to_margin @ np.asarray(mean[i]), to_margin @ np.asarray(full[i]) @ to_margin.T)
            truth = -(PLANE * np.logaddexp(np.logaddexp(0.0, a), b)).sum()
            np.testing.assert_allclose(got[i, 0], truth, atol=2e-5)


@pytest.mark.parametrize("num", [3, 5])
@pytest.mark.parametrize("kind", [L.Softmax, L.RobustMax])
def test_gradients_of_classes(kind, num):
    mean, cov = gaussians(2, num)
    y = jnp.asarray([[0.0], [2.0]])
    lik = kind(num)
    variance = jnp.diagonal(cov, axis1=1, axis2=2)
    for second in (variance, cov) if num == 3 else (variance,):
        fn = jax.jit(lambda m, c: lik.expected_log_prob(m, c, y).sum())
        check_grads(fn, (mean, second), order=1, rtol=1e-5, atol=1e-5)
        assert np.all(np.isfinite(jax.grad(fn, 1)(mean, jnp.zeros_like(second))))


F = np.array([[0.3, -1.0, 2.0, 0.1], [1.5, 1.4, -0.2, 0.0], [-700.0, 0.0, 10.0, 700.0]])


def conditional(kind):
    """p(y = c | f) [3, 4] at F."""
    if kind is L.Softmax:
        return special.softmax(F, -1)
    return np.where(np.arange(4) == F.argmax(-1)[:, None], 1 - 0.02, 0.02 / 3)


@pytest.mark.parametrize("lik", [L.Softmax(4), L.RobustMax(4, 0.02)], ids=["softmax", "robust max"])
def test_log_prob_of_classes(lik):
    logs = special.log_softmax(F, -1) if isinstance(lik, L.Softmax) else np.log(conditional(L.RobustMax))
    got = [lik.log_prob(jnp.asarray(F), jnp.full((3, 1), float(c))) for c in range(4)]
    np.testing.assert_allclose(jnp.concatenate(got, 1), logs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("lik", [L.Softmax(4), L.RobustMax(4, 0.02)], ids=["softmax", "robust max"])
def test_samples_of_classes(lik):
    """Frequencies at a known f are the probabilities there; those of a predictive are its own."""
    num, zero = 8000, jnp.zeros((3, 4))
    spread = lik.predictive(jnp.asarray(F[:2]), jnp.ones((2, 4)))
    for pred, p in (
        (lik.predictive(jnp.asarray(F), zero), conditional(type(lik))),
        (spread, np.asarray(spread.probabilities)),
    ):
        sample = np.asarray(pred.sample(jax.random.key(2), (num,)))[..., 0]
        frequency = (sample[..., None] == np.arange(4)).mean(0)
        assert np.all(np.abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / num) + 1e-3)


@pytest.mark.parametrize("lik", [L.Softmax(3), L.RobustMax(3)], ids=["softmax", "robust max"])
def test_classes_in_float32(lik):
    mean, cov = gaussians(3, 3)
    y = jnp.asarray([[0.0], [1.0], [2.0]])
    single = jax.tree.map(lambda a: a.astype(jnp.float32), lik)

    @eqx.filter_jit
    def values(lik, mean, cov, y):
        variance = jnp.diagonal(cov, axis1=1, axis2=2)
        both = [(lik.expected_log_prob(mean, c, y), lik.predictive_log_prob(mean, c, y)) for c in (variance, cov)]
        return *both, lik.log_prob(mean, y)

    got = values(single, *(a.astype(jnp.float32) for a in (mean, cov, y)))
    assert {a.dtype for a in jax.tree.leaves(got)} == {jnp.dtype("float32")}
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(values(lik, mean, cov, y)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_correlated_form_agrees_with_the_independent_one():
    """RobustMax by sequential conditioning of a diagonal covariance = its product of cdfs."""
    mean, cov = gaussians(4, 4)
    variance = jnp.diagonal(cov, axis1=1, axis2=2)
    y = jnp.asarray([[0.0], [1.0], [2.0], [3.0]])
    lik = L.RobustMax(4)
    independent = lik.prob_largest(mean, variance, y)
    np.testing.assert_allclose(lik.prob_largest(mean, jax.vmap(jnp.diag)(variance), y), independent, atol=2e-3)


@pytest.mark.parametrize(
    ("mean", "sd"),
    [([0.0, 0.0, -0.1], [1.0, 1.0, 1e-3]), ([0.0, 0.5, 0.3], [1.0, 2.0, 0.01]), ([0.1, 2.9, 0.0], [1.0, 1.0, 1e-3])],
)
def test_the_largest_of_latents_known_to_different_precision(mean, sd):
    """Among rivals the narrowest sets where the product of their cdfs rises; probabilities were off by 0.014."""
    mean, sd = np.array(mean), np.array(sd)
    z = np.linspace(-9, 9, 200_001)
    w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    truth = []
    for y in range(3):
        f = mean[y] + sd[y] * z
        truth.append(w @ np.prod([special.ndtr((f - mean[c]) / sd[c]) for c in range(3) if c != y], axis=0))
    rows = jnp.ones((3, 1)) * jnp.asarray(mean)[None], jnp.ones((3, 1)) * jnp.asarray(sd**2)[None]
    got = L.RobustMax(3).prob_largest(*rows, jnp.arange(3.0)[:, None])[:, 0]
    np.testing.assert_allclose(got, truth, atol=2e-6)


@pytest.mark.parametrize("sd", [0.3, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_three_classes_under_wide_latents(sd, correlation):
    """E[1 / (1 + e^a + e^b)], integrated over b given a in terms of the logistic density; they were off by 0.06."""
    cov = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.3 * correlation], [0.0, 0.3 * correlation, 0.2]]) * sd**2
    mean = np.array([0.3, -0.2, 0.5]) * sd
    x = np.linspace(-40.0, 40.0, 4001)  # of logistic noise
    logistic = special.expit(x) * special.expit(-x) * (x[1] - x[0])
    t = np.linspace(-9.0, 9.0, 2001)
    a = np.sinh(t)
    truth = []
    for y in range(3):
        contrast = np.delete(np.eye(3) - np.eye(3)[y], y, axis=0)
        (ma, mb), c = contrast @ mean, contrast @ cov @ contrast.T
        slope = c[1, 0] / c[0, 0]
        rest = np.sqrt(c[1, 1] - slope * c[1, 0])
        inner = special.ndtr((np.logaddexp(0, a) - mb - slope * (a - ma))[:, None] / rest - x / rest) @ logistic
        w = (t[1] - t[0]) * np.cosh(t) * stats.norm.pdf(a, ma, np.sqrt(c[0, 0]))
        truth.append(w @ (inner * special.expit(-a)))
    lik, rows = L.Softmax(3), jnp.ones((3, 1))
    args = rows * jnp.asarray(mean)[None], rows[:, :, None] * jnp.asarray(cov)[None], jnp.arange(3.0)[:, None]
    np.testing.assert_allclose(np.sum(truth), 1.0, atol=2e-6)
    np.testing.assert_allclose(np.exp(predictive_log_prob(lik, *args))[:, 0], truth, atol=3e-5)


predictive_log_prob = eqx.filter_jit(lambda lik, *args: lik.predictive_log_prob(*args))


def test_a_likelihood_per_output():
    parts = (L.Gaussian(0.2), L.HeteroscedasticGaussian(), L.Bernoulli("logit"), L.LogNormal(0.3))
    lik = L.PerOutput(parts)
    assert lik.num_latents(4) == 5 and lik.joint
    mean, cov = gaussians(2, 5)
    y = jnp.asarray([[0.3, -0.2, 1.0, 2.0], [1.0, 0.4, 0.0, 0.5]])
    spans = [slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 5)]
    got, pred = lik.expected_log_prob(mean, cov, y), lik.predictive(mean, cov)
    total = 0.0
    quantile, lower = pred.quantile(0.8), pred.mean
    for p, (part, s) in enumerate(zip(parts, spans, strict=True)):
        label = y[:, p : p + 1]
        np.testing.assert_allclose(got[:, p : p + 1], part.expected_log_prob(mean[:, s], cov[:, s, s], label))
        one = part.predictive(mean[:, s], cov[:, s, s])
        total = total + one.log_prob(label)
        np.testing.assert_allclose(quantile[:, p : p + 1], one.quantile(0.8))
        np.testing.assert_allclose(lower[:, p : p + 1], one.mean)
    np.testing.assert_allclose(pred.log_prob(y), total)
    sample = np.asarray(pred.sample(jax.random.key(0), (4000,)))
    assert np.all(np.abs(sample.mean(0) - pred.mean) < 5 * np.sqrt(pred.variance / 4000))
    lik.check(np.array([[0.0, np.nan, 1.0, 3.0]]))
    assert lik.fill.shape == (1, 4)
    with pytest.raises(ValueError, match="output 2, must be 0 or 1"):
        lik.check(np.array([[0.0, 0.0, -1.0, 3.0]]))
    with pytest.raises(ValueError, match="one column of labels per likelihood"):
        lik.check(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="4 likelihoods, but there are 3 outputs"):
        lik.num_latents(3)


@pytest.mark.parametrize(
    "make", [lambda: L.Softmax(3).num_latents(2), lambda: L.RobustMax(3, 0.0), lambda: L.PerOutput([])]
)
def test_refused(make):
    with pytest.raises(ValueError):
        make()


def test_labels_of_classes():
    with pytest.raises(ValueError, match=r"Softmax must be whole numbers from 0 to 2, got 3.0 \(1 of 2 labels"):
        L.Softmax(3).check(np.array([[0.0], [3.0]]))


@pytest.mark.parametrize("variance", [0.0, 0.5, 3.0, 25.0, 100.0])
def test_small_noise_decides_where_its_size_is_uncertain(variance):
    """E softplus(f)⁻² is an integral far below the mean of f, which rules around the mean cut off (by 3e-4 at 3)."""
    m0, m1, v0, y = 0.3, -1.0, 0.2, 1.0
    c = 0.5 * np.sqrt(v0 * variance)
    slope, sd = (c / variance if variance else 0.0), np.sqrt(variance)
    z = np.linspace(-9.0 - 2.0 * sd, 9.0, 20_001)
    f = m1 + sd * z
    log_scale = np.log(np.logaddexp(0.0, f))
    square = (y - m0 - slope * (f - m1)) ** 2 + v0 - slope * c
    log_w = -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) + np.log(z[1] - z[0])
    terms = np.exp(log_w) * (-0.5 * np.log(2.0 * np.pi) - log_scale) - 0.5 * square * np.exp(log_w - 2.0 * log_scale)
    likelihood = L.HeteroscedasticGaussian("softplus")
    cov = jnp.array([[[v0, c], [c, variance]]])
    found = likelihood.expected_log_prob(jnp.array([[m0, m1]]), cov, jnp.array([[y]]))
    np.testing.assert_allclose(found, [[terms.sum()]], rtol=1e-9)
