"""Predictions of models with latent variables: quasi-Monte Carlo, independent samples, joint densities, known rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import inducing as ig
from inducing.inference import particles
from inducing.numerics.lattices import lattice, lattice_normal

KEY = jax.random.key(0)


def linear(dim, noise=1e-10):
    """y = Σ h / √dim."""
    mix = ig.Deterministic(lambda h: jnp.sum(h, keepdims=True) / dim**0.5)
    return ig.Model([ig.LatentVariable(1)] * dim + [mix], ig.likelihoods.Gaussian(noise))


def stepped():
    """The decoder tanh(4h), deterministic."""
    decoder = ig.Deterministic(lambda v: jnp.tanh(4 * v[1:2]) * (1 + 0.2 * v[:1]))
    return ig.Model([ig.LatentVariable(1), decoder], ig.likelihoods.Gaussian(0.01))


# --- marginals


@pytest.mark.parametrize(("dim", "share"), [(1, 0.01), (2, 0.05)])
def test_moments_and_intervals_over_many_keys(dim, share):
    """One latent variable in each of `dim` layers; default settings."""
    model = linear(dim)
    for seed in range(100):
        pred = model.predict(None, key=jax.random.key(seed))
        assert pred.latent_mean.shape[0] <= 1024
        assert abs(float(pred.mean[0, 0])) < 0.01
        np.testing.assert_allclose(pred.variance, 1.0, rtol=share)
        low, high = pred.interval(0.95)
        np.testing.assert_allclose([-low[0, 0], high[0, 0]], norm.ppf(0.975), rtol=share)


def test_all_inputs_share_their_draws_of_h():
    model = ig.Model([ig.LatentVariable(1), ig.Deterministic(lambda v: v[1:])], ig.likelihoods.Gaussian(0.1))
    f = np.asarray(model.predict(np.linspace(-1.0, 1.0, 5)).latent_mean)[..., 0]
    np.testing.assert_array_equal(f, np.broadcast_to(f[:, :1], f.shape))


def test_lattices_are_even_and_their_points_standard_normal():
    for num, dim in ((1, 2), (64, 1), (100, 3)):
        points = lattice(num, dim)
        for column in points.T:
            np.testing.assert_allclose(np.sort(column), np.arange(num) / num, atol=1e-12)
    ten = np.asarray(jax.vmap(lambda k: lattice_normal(k, 1024, 10, float))(jax.random.split(KEY, 50)))
    products = np.einsum("ksi,ksj->kij", ten, ten) / 1024 - np.eye(10)
    assert np.abs(products).max() < 4.5 / 32  # not worse than independent draws in any pair of dimensions


@pytest.mark.parametrize("full_cov", [False, True])
def test_samples_are_independent(full_cov):
    """5,000 different values, which a test of normality does not tell from exact ones; between rows too."""
    y = np.asarray(linear(1).predict(np.zeros((2, 0)), full_cov=full_cov).sample(KEY, 5000))[..., 0]
    assert len(np.unique(y.round(7))) > 4900
    level = np.sort(norm.cdf(y), axis=0)
    assert np.abs(level - (np.arange(5000)[:, None] + 0.5) / 5000).max() < 2.2 / 5000**0.5  # Kolmogorov–Smirnov
    assert abs(np.corrcoef(y.T)[0, 1]) < 5 / 5000**0.5


def test_samples_of_f_are_independent():
    inner = ig.SparseGP(ig.GP(ig.kernels.Matern52(), mean=ig.means.Identity()), ig.features.InducingPoints([[0.0]]))
    post = ig.Model([inner, ig.Deterministic(lambda v: v)], ig.likelihoods.Gaussian(0.1)).posterior([0.3])
    assert len(np.unique(np.asarray(post.sample(KEY, 1000)).round(9))) == 1000


def test_intervals_of_no_number_and_of_infinite_variance():
    for likelihood in (ig.likelihoods.Gaussian(0.1), ig.likelihoods.StudentT()):
        ends = likelihood.predictive(jnp.array([[np.nan], [1.0]]), jnp.array([[1.0], [np.inf]])).interval()
        assert np.isnan([ends[0][0, 0], ends[1][0, 0]]).all()
        if likelihood.has_gaussian_noise(1):
            np.testing.assert_array_equal([ends[0][1, 0], ends[1][1, 0]], [-np.inf, np.inf])
    for likelihood, ends in ((ig.likelihoods.LogNormal(), [0.0, np.inf]), (ig.likelihoods.Poisson(), [np.nan] * 2)):
        infinite = likelihood.predictive(jnp.ones((1, 1)), jnp.full((1, 1), np.inf)).interval()
        np.testing.assert_array_equal(np.ravel(infinite), ends)
    heavy = ig.likelihoods.StudentT(df=1.5).predictive(jnp.zeros((1, 1)), jnp.zeros((1, 1)))  # finite quantiles
    assert np.isinf(heavy.variance).all() and np.isfinite(heavy.interval()[1]).all()


# --- joint densities


def test_with_a_deterministic_decoder_the_joint_density_is_the_sum_of_marginals():
    model, x = stepped(), np.linspace(-1.0, 1.0, 100)
    pred = model.predict(x, full_cov=True)
    y = np.asarray(pred.sample(KEY))
    h = norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    f = np.tanh(4 * h) * (1 + 0.2 * x[:, None])
    truth = np.log(norm.pdf(y, f, 0.1).mean(axis=1)).sum()
    estimate = pred.estimate(y)
    assert abs(float(pred.log_prob(y)) - truth) < 0.1
    assert abs(float(estimate.value) - truth) < 5 * float(estimate.standard_error) < 0.1
    assert estimate.effective_sample_size > 100


def network(noise=0.1, inner=False):
    """Weights w of a linear map of [x, h]: given h all is Gaussian, given w the data are independent."""
    last = ig.BayesianDense(2, 1, mean=[[0.5], [1.0], [0.0]], scale=[[0.4], [0.5], [0.3]])
    below = [ig.BayesianDense(2, 2, mean=np.eye(3)[:, :2], scale=0.2 * np.ones((3, 2)))] if inner else []
    return ig.Model([ig.LatentVariable(1), *below, last], ig.likelihoods.Gaussian(noise))


def over_weights(x, y, noise):
    """log ∫ Π_n N(y_n | w_0 x_n + w_2, w_1² + noise) p(w) dw, on a grid of w_1 and by closed forms in w_0, w_2."""
    w = np.linspace(1.0 - 5 * 0.5, 1.0 + 5 * 0.5, 801)
    cov = 0.4**2 * np.outer(x, x) + 0.3**2
    logs = [multivariate_normal(0.5 * x, cov + (v**2 + noise) * np.eye(len(x))).logpdf(y) for v in w]
    logs = np.array(logs) + norm.logpdf(w, 1.0, 0.5)
    return np.logaddexp.reduce(logs) + np.log(w[1] - w[0])


@pytest.mark.parametrize("N", [5, pytest.param(50, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.slow)])
def test_joint_density_of_random_functions(N):
    """A Bayesian decoder of h, against an integral over its weights; some labels are missing."""
    model, x = network(), np.linspace(-1.0, 1.0, N)
    pred = model.predict(x, full_cov=True)
    y = np.array(pred.sample(jax.random.key(1)))[:, 0]
    y[2] = np.nan
    seen = ~np.isnan(y)
    truth = over_weights(x[seen], y[seen], 0.1)
    estimate = pred.estimate(y)
    assert abs(float(estimate.value) - truth) < 4.5 * float(estimate.standard_error)
    assert estimate.standard_error < 0.3 and estimate.effective_sample_size > 5


def test_particle_filters_are_unbiased_and_do_what_other_likelihoods_ask(monkeypatch):
    """Two data, latents in two layers, functions in two layers, Student-t noise: against plain Monte Carlo."""
    monkeypatch.setattr(particles, "TRIED", 4)
    base = network(inner=True)
    layers = [*base.layers[:2], ig.LatentVariable(1), ig.BayesianDense(3, 1, mean=[[0.5], [1.0], [0.5], [0.0]])]
    model = ig.Model(layers, ig.likelihoods.StudentT(df=4.0, scale=0.5))
    x, y, S = np.array([-0.5, 0.8]), np.array([0.4, 1.2]), 200_000
    logs = np.asarray(particles.particle_logs(
        model, ig.Data(x), jnp.asarray(y)[:, None], jnp.ones((2, 1), bool), KEY, 16 * 512
    ))  # fmt: skip
    rng = np.random.default_rng(0)
    W = np.eye(3)[:, :2] + 0.2 * rng.normal(size=(S, 3, 2))
    v = np.array([0.5, 1.0, 0.5, 0.0]) + np.asarray(layers[3].scale)[:, 0] * rng.normal(size=(S, 4))
    first = np.stack([np.broadcast_to(x, (S, 2)), rng.normal(size=(S, 2)), np.ones((S, 2))], axis=-1) @ W
    f = np.einsum("snd,sd->sn", np.concatenate([first, rng.normal(size=(S, 2, 1)), np.ones((S, 2, 1))], axis=-1), v)
    log_prob = model.likelihood.log_prob(jnp.asarray(f.reshape(-1, 1)), jnp.asarray(np.tile(y, S))[:, None])
    density = np.exp(np.asarray(log_prob).reshape(S, 2).sum(axis=1))
    p = np.exp(logs)
    error = np.hypot(density.std() / S**0.5, p.std(ddof=1) / len(p) ** 0.5)
    assert abs(p.mean() - density.mean()) < 4.5 * error < 0.1 * density.mean()


def test_a_poor_estimate_says_so():
    model = network(noise=1e-6)
    pred = model.predict(np.linspace(-1.0, 1.0, 6), full_cov=True)
    y = 3.0 * np.ones(6)
    with pytest.warns(UserWarning, match="effective sample size"):
        pred.log_prob(y, samples=16)


# --- known rows


def encoded(encoder):
    decoder = ig.Deterministic(lambda h: jnp.array([1.0, 2.0]) * h)
    return ig.Model([ig.LatentVariable(1, encoder), decoder], ig.likelihoods.Gaussian(0.04))


LABELS = np.array([[0.5, 1.1], [-1.0, np.nan], [np.nan, 0.3]])
ENCODERS = {
    "per datum": ig.layers.PerDatumEncoder([[0.5], [-1.0], [0.2]], scale=[[0.1], [0.2], [0.3]]),
    "amortised": ig.layers.Amortised(
        lambda v: jnp.array([(v[0] + 2 * v[1]) / (v[2] + 4 * v[3]), jnp.log(jnp.expm1(0.1))]), sees=("y", "mask")
    ),
}
MEANS = {"per datum": [0.5, -1.0, 0.2], "amortised": [0.54, -1.0, 0.15]}
SCALES = {"per datum": [0.1, 0.2, 0.3], "amortised": [0.1, 0.1, 0.1]}


@pytest.mark.parametrize("name", ENCODERS)
def test_known_rows_have_h_from_q(name):
    """Moments, quantiles, samples and the density of a held-out entry, in closed form."""
    pred = encoded(ENCODERS[name]).reconstruct((None, LABELS))
    m, s = np.array(MEANS[name])[:, None], np.array(SCALES[name])[:, None]
    mean, variance = m * [1.0, 2.0], s**2 * [1.0, 4.0] + 0.04
    np.testing.assert_allclose(pred.mean, mean, atol=2e-3)
    np.testing.assert_allclose(pred.variance, variance, rtol=0.01)
    np.testing.assert_allclose(pred.quantile(0.9), norm.ppf(0.9, mean, variance**0.5), atol=0.01)
    held = np.array([[0.6, np.nan], [np.nan, -1.7], [0.4, np.nan]])
    truth = np.where(np.isnan(held), 0.0, norm.logpdf(held, mean, variance**0.5)).sum(axis=1)
    np.testing.assert_allclose(pred.log_prob(held), truth, rtol=0.01, atol=0.01)
    y = np.asarray(pred.sample(KEY, 4000))
    np.testing.assert_array_less(np.abs(y.mean(0) - mean), 5 * np.sqrt(variance / 4000))
    np.testing.assert_allclose(y.var(0), variance, rtol=5 * np.sqrt(2 / 4000))


def test_predictions_of_training_data_by_index_are_refused():
    with pytest.raises(ValueError, match=r"model\.reconstruct\(data\)"):
        encoded(ENCODERS["per datum"]).predict(None, index=[0, 1])


def test_new_rows_get_their_own_q():
    """y = (h, 2h) + ε: the optimal q(h) is the posterior N(Σ c y / 0.04, 1) / precision; the rest is as it was."""
    model = encoded(ENCODERS["per datum"])
    y = np.array([[1.0, 2.2], [-0.3, np.nan], [0.0, 0.1], [np.nan, -1.0]])
    new = model.infer((None, y))
    c = np.array([1.0, 2.0]) * ~np.isnan(y)
    precision = 1.0 + (c**2).sum(1) / 0.04
    mean, root, _ = new.layers[0].posterior(ig.Data(None, y))
    np.testing.assert_allclose(mean[:, 0], (c * np.nan_to_num(y)).sum(1) / 0.04 / precision, atol=0.02)
    np.testing.assert_allclose(root[:, 0], precision**-0.5, rtol=0.1)
    assert float(new.likelihood.variance) == 0.04 and model.layers[0].encoder.mean.shape == (3, 1)
    with pytest.raises(ValueError, match="needs no training"):
        encoded(ENCODERS["amortised"]).infer((None, y))
    noise = ig.likelihoods.PerDatum([0.04, 0.05, 0.06], new=0.04)
    with pytest.raises(ValueError, match="infer with a likelihood without them"):
        ig.Model(model.layers, ig.likelihoods.Gaussian(noise)).infer((None, y))
