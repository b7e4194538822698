"""Predictions: blocks, joint distributions, deep mixtures, draws, and what is refused."""

import gc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import inducing as ig
from inducing.inference import blocks as moments

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
Z = np.linspace(-1.0, 1.0, 5)[:, None]
XS = np.array([-0.7, 0.1, 0.4, 1.3])


def sparse_gp(seed=0, D=1, scale=0.5, mean=None, **kwargs):
    """A sparse GP with a q(u) that is far from the prior."""
    rng = np.random.default_rng(seed)
    M = len(Z)
    z = rng.uniform(-1, 1, (M, D)) if D > 1 else Z
    root = scale * (np.tril(0.3 * rng.standard_normal((M, M))) + np.eye(M))
    prior = ig.GP(ig.kernels.Matern52(0.8, 1.5), mean)
    return ig.SparseGP(prior, ig.features.InducingPoints(z), rng.standard_normal(M), root, **kwargs)


def shallow(likelihood=None, **kwargs):
    return ig.Model(sparse_gp(**kwargs), likelihood or ig.likelihoods.Gaussian(0.1))


def deep(inner=0.5, jitter=None):
    layers = [sparse_gp(1, scale=inner, mean=ig.means.Identity(), jitter=jitter), sparse_gp(2)]
    return ig.Model(layers, ig.likelihoods.Gaussian(0.1))


@pytest.mark.parametrize("N", [1, 128, 129, 2048, 2049, 9000])
def test_blocks_change_nothing(N):
    model = shallow()
    X = np.linspace(-2, 2, N)
    pred, post = model.predict(X), model.posterior(X)
    mean, variance = eqx.filter_jit(sparse_gp().marginals)(jnp.asarray(X)[:, None])
    assert pred.mean.shape == (N, 1) and post.variance.shape == (N, 1)
    np.testing.assert_allclose(post.mean, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(post.variance, variance, rtol=1e-8)
    np.testing.assert_allclose(pred.variance, variance + 0.1, rtol=1e-8)


class Counting(ig.means.AbstractMean):
    """A mean that counts how often it is traced."""

    calls: list = eqx.field(static=True)

    def __call__(self, X):
        self.calls.append(X.shape)
        return jnp.zeros(X.shape[:1], X.dtype)


def test_few_compilations():
    """All small sets share one compilation, and so do all numbers of blocks up to the next power of two."""
    calls = []
    model = ig.Model(sparse_gp(mean=Counting(calls)), ig.likelihoods.Gaussian(0.1))
    model.predict(np.ones(3))
    for sizes in [(1, 60, 128), (129, 500, 1024), (6000, 7000, 8192)]:
        model.predict(np.ones(sizes[0]))
        before = len(calls)
        for N in sizes[1:]:
            model.predict(np.ones(N))
        changed = eqx.tree_at(lambda m: m.likelihood.variance, model, jnp.asarray(0.3, float))
        changed.predict(np.ones(sizes[0]))
        assert len(calls) == before


@pytest.mark.parametrize(("noise", "accurate"), [(1e-1, True), (1e-7, False)])
def test_quick_variances_only_where_they_are_right(noise, accurate):
    """With much noise one product is exact enough; with little it would be off by half, and is not used."""
    X = np.random.default_rng(1).uniform(-2, 2, (400, 1))
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(1.0)), ig.features.InducingPoints(X[:100]))
    model = ig.collapse(ig.Model(gp, ig.likelihoods.Gaussian(noise)), (X, np.sin(X)))
    assert bool(eqx.filter_jit(model.layers[0].cache)().quadratic.accurate) == accurate
    _, variance = eqx.filter_jit(model.layers[0].marginals)(jnp.asarray(X[:50]))
    np.testing.assert_allclose(model.posterior(X[:50]).variance, variance, rtol=1e-3)


def test_a_model_is_factorised_once_and_forgotten_with_the_model():
    gc.collect()
    before = set(moments._CACHES)
    model = shallow()
    first = model.posterior(XS)
    (new,) = set(moments._CACHES) - before
    kept = moments._CACHES[new]
    model.posterior(XS[:2])
    assert moments._CACHES[new] is kept
    moved = eqx.tree_at(lambda m: m.layers[0].mean, model, model.layers[0].mean + 1.0)
    assert not np.allclose(moved.posterior(XS).mean, first.mean)
    del model, moved
    gc.collect()
    assert set(moments._CACHES) == before


def test_several_outputs_and_likelihoods_that_mix_them():
    """Softmax needs the covariance of correlated latents; independent ones give variances alone."""
    rng = np.random.default_rng(3)
    W = rng.standard_normal((3, 3))
    kernel = ig.kernels.Matern52()
    for prior in (ig.priors.Independent(kernel, 3), ig.priors.LMC(W, kernel)):
        gp = ig.SparseGP(prior, ig.features.InducingPoints(Z), rng.standard_normal((3, len(Z))))
        model = ig.Model(gp, ig.likelihoods.Softmax(3))
        pred, joint = model.predict(XS), model.posterior(XS, full_cov=True)
        blocks = np.asarray(joint.covariance).reshape(4, 3, 4, 3)
        exact = np.stack([blocks[n, :, n] for n in range(4)])
        if pred.latent_cov.ndim == 2:
            np.testing.assert_allclose(pred.latent_cov, np.diagonal(exact, axis1=1, axis2=2), rtol=1e-6)
            assert np.abs(exact - np.eye(3) * exact).max() < 1e-12
        else:
            np.testing.assert_allclose(pred.latent_cov, exact, rtol=1e-6)
        np.testing.assert_allclose(pred.probabilities.sum(axis=1), 1.0, rtol=1e-3)
        np.testing.assert_allclose(
            model.predict(XS, full_cov=True).marginal.probabilities, pred.probabilities, rtol=1e-4
        )


def test_joint_log_density_of_gaussian_labels():
    model = shallow()
    post = model.posterior(XS, full_cov=True)
    assert post.covariance.shape == (4, 4)
    np.testing.assert_allclose(jnp.diagonal(post.covariance)[:, None], model.posterior(XS).variance, rtol=1e-6)
    y = np.array([0.3, -1.0, 0.2, 2.0])
    pred = model.predict(XS, full_cov=True)
    cov = np.asarray(post.covariance) + 0.1 * np.eye(4)
    truth = multivariate_normal(np.asarray(post.mean)[:, 0], cov)
    np.testing.assert_allclose(pred.log_prob(y), truth.logpdf(y), rtol=1e-9)
    keep = np.array([0, 2, 3])
    truth = multivariate_normal(np.asarray(post.mean)[keep, 0], cov[np.ix_(keep, keep)])
    np.testing.assert_allclose(pred.log_prob(np.where(np.arange(4) == 1, np.nan, y)), truth.logpdf(y[keep]), rtol=1e-9)


def test_joint_log_density_by_sampling():
    """Two Poisson counts, against a tensor Gauss–Hermite rule over both values of f."""
    model = shallow(ig.likelihoods.Poisson())
    x, y = XS[1:3], np.array([1.0, 3.0])
    pred = model.predict(x, full_cov=True)
    got = float(pred.log_prob(y, key=KEY, samples=40_000))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    w = np.outer(weights, weights).reshape(-1) / (2 * np.pi)
    post = model.posterior(x, full_cov=True)
    f = np.asarray(post.mean)[:, 0] + f @ np.linalg.cholesky(np.asarray(post.covariance)).T
    p = np.exp((y * f - np.exp(f)).sum(1)) / 6.0
    truth = w @ p
    error = np.sqrt((w @ p**2 - truth**2) / 40_000) / truth
    assert abs(got - np.log(truth)) < 5 * error
    assert error < 0.02


def test_joint_samples():
    """Mean and covariance of joint samples of f and of y."""
    model, S = shallow(), 20_000
    post = model.posterior(XS, full_cov=True)
    f = np.asarray(post.sample(KEY, (S,)))[..., 0]
    y = np.asarray(model.predict(XS, full_cov=True).sample(KEY, (S,)))[..., 0]
    cov, mean = np.asarray(post.covariance), np.asarray(post.mean)[:, 0]
    for values, truth in ((f, cov), (y, cov + 0.1 * np.eye(4))):
        np.testing.assert_array_less(np.abs(values.mean(0) - mean), 5 * np.sqrt(np.diag(truth) / S))
        spread = np.sqrt((np.outer(np.diag(truth), np.diag(truth)) + truth**2) / S)
        np.testing.assert_array_less(np.abs(np.cov(values.T) - truth), 5 * spread)
    assert model.predict(XS, full_cov=True).sample(KEY).shape == (4, 1)


def test_independent_samples():
    """Without the full covariance, values at different inputs are sampled independently."""
    f = np.asarray(shallow().posterior(XS).sample(KEY, (20_000,)))[..., 0]
    correlation = np.corrcoef(f.T) - np.eye(4)
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


def correlated(likelihood=None, inner=()):
    """Three outputs of two latents."""
    rng = np.random.default_rng(3)
    prior = ig.priors.LMC(rng.standard_normal((3, 2)), ig.kernels.Matern52(0.8, 1.5))
    root = 0.5 * np.eye(5) + 0.2 * np.tril(rng.standard_normal((2, 5, 5)))
    gp = ig.SparseGP(prior, ig.features.InducingPoints(Z), rng.standard_normal((2, 5)), root)
    return ig.Model([*inner, gp], likelihood or ig.likelihoods.Gaussian([0.1, 0.2, 0.3]))


def blocks_of(cov, P=3):
    """The P × P blocks on the diagonal of a joint covariance."""
    N = len(cov) // P
    return np.stack([np.asarray(cov).reshape(N, P, N, P)[n, :, n] for n in range(N)])


def assert_moments(samples, mean, cov):
    """Means and covariances of samples [T, N, P] at each input, within five standard errors."""
    T = len(samples)
    for n in range(samples.shape[1]):
        variance = np.diag(cov[n])
        np.testing.assert_array_less(np.abs(samples[:, n].mean(0) - mean[n]), 5 * np.sqrt(variance / T))
        error = np.sqrt((np.outer(variance, variance) + cov[n] ** 2) / T)
        np.testing.assert_array_less(np.abs(np.cov(samples[:, n].T) - cov[n]), 5 * error)


def test_covariance_of_outputs():
    """P × P at each input: the blocks of the joint covariance, which itself is checked densely with the priors."""
    model = correlated()
    post, joint = model.posterior(XS, output_cov=True), model.posterior(XS, full_cov=True)
    assert post.covariance.shape == (4, 3, 3)
    np.testing.assert_allclose(post.covariance, blocks_of(joint.covariance), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(post.variance, model.posterior(XS).variance, rtol=1e-8)
    independent = ig.Model(
        ig.SparseGP(ig.priors.Independent(ig.kernels.Matern52(), num=3), ig.features.InducingPoints(Z)),
        model.likelihood,
    )
    post = independent.posterior(XS, output_cov=True)
    np.testing.assert_allclose(post.covariance, np.asarray(post.variance)[:, :, None] * np.eye(3), rtol=1e-12)


def test_samples_of_correlated_outputs():
    """Samples of f and of labels have the analytic covariance of the outputs; inputs are independent of each other."""
    model, T = correlated(), 20_000
    post, pred = model.posterior(XS, output_cov=True), model.predict(XS, output_cov=True)
    mean, cov = np.asarray(post.mean), np.asarray(post.covariance)
    noise = np.diag([0.1, 0.2, 0.3])
    correlation = cov / np.sqrt(np.einsum("npp,nqq->npq", cov, cov))
    assert np.abs(correlation[:, np.triu_indices(3, 1)[0], np.triu_indices(3, 1)[1]]).max() > 0.5
    f = np.asarray(post.sample(KEY, (T,)))
    assert_moments(f, mean, cov)
    assert np.abs(np.corrcoef(f[:, :, 0].T) - np.eye(4)).max() < 5 / np.sqrt(T)
    assert_moments(np.asarray(pred.sample(KEY, (T,))), mean, cov + noise)
    assert_moments(np.asarray(model.predict(XS, full_cov=True).marginal.sample(KEY, (T,))), mean, cov + noise)
    np.testing.assert_allclose(pred.variance, model.predict(XS).variance, rtol=1e-8)
    assert pred.sample(KEY).shape == (4, 3) and post.sample(KEY, (2, 5)).shape == (2, 5, 4, 3)


def test_outputs_of_a_deep_mixture():
    """Total covariance over the components, and samples that have it."""
    model, T = correlated(inner=[sparse_gp(1, mean=ig.means.Identity())]), 20_000
    post = model.posterior(XS, output_cov=True, samples=30)
    means, covs = np.asarray(post.means), np.asarray(post.covs)
    assert covs.shape == (30, 4, 3, 3)
    centred = means - means.mean(0)
    total = covs.mean(0) + np.einsum("snp,snq->npq", centred, centred) / 30
    np.testing.assert_allclose(post.covariance, total, rtol=1e-10)
    many = model.posterior(XS, output_cov=True, samples=T)  # samples are those of the model, not of 30 components
    mean, samples = np.asarray(many.mean), np.asarray(post.sample(KEY, (T,)))
    products = np.einsum("tnp,tnq->tnpq", samples - mean, samples - mean)
    error = np.sqrt(2) * products.std(0) / np.sqrt(T)
    np.testing.assert_array_less(np.abs(products.mean(0) - np.asarray(many.covariance)), 5 * error)


def test_samples_of_a_function_without_variance():
    """A deterministic last layer: every covariance is zero, every sample the value itself."""
    model = ig.Model(ig.layers.Deterministic(lambda x: jnp.concatenate([jnp.sin(x), x])), ig.likelihoods.Gaussian())
    values = np.stack([np.sin(XS), XS], axis=1)
    for asked in ({}, {"output_cov": True}, {"full_cov": True}):
        np.testing.assert_allclose(model.posterior(XS, **asked).sample(KEY), values, atol=1e-12)


def test_intervals():
    post = shallow().posterior(XS)
    sd = np.sqrt(np.asarray(post.variance))
    low, high = post.interval(0.9)
    np.testing.assert_allclose(low, post.mean + norm.ppf(0.05) * sd, rtol=1e-7)
    np.testing.assert_allclose(high, post.mean + norm.ppf(0.95) * sd, rtol=1e-7)


def test_deep_mixture():
    """A mixture over samples: reproducible by its key, and with the moments of the laws of total expectation."""
    model = deep()
    pred, post = model.predict(XS, samples=30), model.posterior(XS, samples=30)
    assert pred.latent_mean.shape == (30, 4, 1)
    np.testing.assert_array_equal(pred.mean, model.predict(XS, samples=30, key=jax.random.key(0)).mean)
    assert np.abs(np.asarray(model.predict(XS, samples=30, key=jax.random.key(1)).mean - pred.mean)).min() > 1e-6
    means, covs = np.asarray(pred.latent_mean), np.asarray(pred.latent_cov)
    np.testing.assert_allclose(post.mean, means.mean(0), rtol=1e-12)
    np.testing.assert_allclose(post.variance, covs.mean(0) + means.var(0), rtol=1e-10)
    np.testing.assert_allclose(pred.variance, post.variance + 0.1, rtol=1e-10)
    y = np.zeros(4)
    density = norm.pdf(0.0, means[..., 0], np.sqrt(covs[..., 0] + 0.1)).mean(0)
    np.testing.assert_allclose(pred.log_prob(y), np.log(density), rtol=1e-9)
    low, high = post.interval(0.9)
    for bound, level in ((low, 0.05), (high, 0.95)):
        cdf = norm.cdf(np.asarray(bound)[None], means, np.sqrt(covs)).mean(0)
        np.testing.assert_allclose(cdf, level, rtol=1e-6)


def test_deep_joint_agrees_with_deep_marginals():
    """Sampling the inner function jointly over the inputs changes no marginal; it does correlate them."""
    model, S = deep(), 4000
    joint, marginal = model.posterior(XS, full_cov=True, samples=S), model.posterior(XS, samples=S, key=KEY)
    means = np.asarray(marginal.means)[..., 0]
    error = np.sqrt(2) * means.std(0) / np.sqrt(S)
    np.testing.assert_array_less(np.abs(np.asarray(joint.mean - marginal.mean))[:, 0], 5 * error)
    np.testing.assert_allclose(joint.variance, marginal.variance, rtol=0.15)
    near = model.posterior([0.1, 0.1 + 1e-6], full_cov=True, samples=200)
    cov = np.asarray(near.covariance)
    np.testing.assert_allclose(cov[0, 1], cov[0, 0], rtol=1e-2)


def test_deep_with_a_deterministic_inner_layer_is_a_composition():
    """With next to no inner variance (and Z far denser than needed) the outer GP sees the inner mean."""
    inner = ig.layers.Deterministic(jnp.sin)
    model = ig.Model([inner, sparse_gp(2)], ig.likelihoods.Gaussian(0.1))
    np.testing.assert_allclose(
        model.posterior(XS).mean, ig.Model(sparse_gp(2), model.likelihood).posterior(np.sin(XS)).mean, rtol=1e-10
    )
    assert model.predict(XS).latent_mean.ndim == 2


@pytest.mark.parametrize("model", [shallow(), deep()], ids=["shallow", "deep"])
def test_draws_are_functions(model):
    f = model.draw(KEY)
    x = np.linspace(-2, 2, 7)
    np.testing.assert_allclose(f(x), f(x[:, None]), rtol=0)
    np.testing.assert_allclose(f(x)[3:5], f(x[3:5]), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(f(x), model.draw(KEY)(x), rtol=0)
    assert np.abs(np.asarray(f(x) - model.draw(jax.random.key(1))(x))).max() > 1e-3
    many = np.linspace(-2, 2, 5001)
    np.testing.assert_allclose(f(many)[::1000], f(many[::1000]), rtol=1e-9, atol=1e-11)


def test_deep_draws_have_the_mean_of_the_mixture():
    model, S = deep(), 1500

    @jax.jit
    def values(keys):
        return jax.lax.map(lambda k: model.draw(k, 128)(jnp.asarray(XS)), keys, batch_size=100)

    f = np.asarray(values(jax.random.split(KEY, S)))[..., 0]
    post = model.posterior(XS, samples=S)
    error = np.sqrt(2 * f.var(0) / S)
    np.testing.assert_array_less(np.abs(f.mean(0) - np.asarray(post.mean)[:, 0]), 5 * error)
    np.testing.assert_allclose(f.var(0), np.asarray(post.variance)[:, 0], rtol=0.25)


class Brownian(ig.kernels.AbstractPointKernel):
    def __call__(self, x, y):
        return jnp.sum(jnp.minimum(x, y))


def test_kernels_without_random_features_are_refused():
    model = ig.Model(ig.SparseGP(ig.GP(Brownian()), ig.features.InducingPoints(Z + 2)), ig.likelihoods.Gaussian())
    with pytest.raises(TypeError, match=r"Brownian.*random features"):
        model.draw(KEY)
    assert model.posterior([1.0, 2.0], full_cov=True).sample(KEY).shape == (2, 1)


def test_per_datum_noise():
    """Training data by their index, new data by the value for new ones."""
    noise = ig.likelihoods.PerDatum([0.1, 0.2, 0.3], new=0.05)
    model = ig.Model(sparse_gp(), ig.likelihoods.Gaussian(noise))
    variance = np.asarray(model.posterior(XS).variance)
    np.testing.assert_allclose(model.predict(XS).variance, variance + 0.05, rtol=1e-7)
    added = np.array([0.3, 0.1, 0.1, 0.2])[:, None]
    np.testing.assert_allclose(model.predict(XS, index=[2, 0, 0, 1]).variance, variance + added, rtol=1e-7)


def test_derivatives_of_predictions():
    """Under jit, grad or vmap predictions trace like any function."""
    model = shallow()

    def mean(x):
        return model.posterior(x[None]).mean[0, 0]

    x = jnp.asarray([0.3])
    step = 1e-6
    finite = (mean(x + step) - mean(x - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.grad(mean))(x)[0], finite, rtol=1e-6)
    variances = jax.vmap(lambda x: model.predict(x[None], full_cov=True).variance[0, 0])(jnp.asarray(XS)[:, None])
    np.testing.assert_allclose(variances, model.predict(XS).variance[:, 0], rtol=1e-7)


def test_float32():
    model = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, shallow())
    pred, exact = model.predict(XS), shallow().predict(XS)
    assert pred.mean.dtype == jnp.float32
    np.testing.assert_allclose(pred.mean, exact.mean, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(pred.variance, exact.variance, rtol=1e-3)
    assert model.draw(KEY)(XS).dtype == jnp.float32
    assert model.predict(XS, full_cov=True).sample(KEY).dtype == jnp.float32


def known_noise():
    return shallow(ig.likelihoods.Gaussian(ig.likelihoods.PerDatum([0.1, 0.2, 0.3], new=0.05)))


def rows_of_outputs():
    prior = ig.priors.as_input(ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52()))
    return ig.Model(ig.SparseGP(prior, ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian(0.1))


def test_nothing_of_a_trace_is_kept():
    """A draw or a prediction under jit, also one that does not depend on what is traced, and then without."""
    dense = ig.BayesianDense(1, 1, key=KEY)
    for model in (ig.Model([ig.Deterministic(jnp.tanh), dense], ig.likelihoods.Gaussian(0.1)), shallow()):
        f = model.draw(KEY, 8)

        @jax.jit
        def both(x, model=model, f=f):
            return f(x), model.predict(XS).mean, model.posterior(XS, full_cov=True).covariance

        under = both(jnp.asarray(XS))
        without = f(XS), model.predict(XS).mean, model.posterior(XS, full_cov=True).covariance
        for a, b in zip(under, without, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


REFUSED = {
    "columns": (lambda: shallow().predict(np.ones((3, 2))), ValueError, ["X has 2 columns", "inputs have 1", "[N, 1]"]),
    "one column": (lambda: shallow(D=2).draw(KEY)(np.ones(3)), ValueError, ["X has 1 column", "inputs have 2"]),
    "nan": (lambda: shallow().predict([0.0, np.nan]), ValueError, ["X has nan", "row 1"]),
    "index": (lambda: shallow().predict(XS, index=[0]), ValueError, ["index", "(4,)", "(1,)"]),
    "index of no datum": (lambda: known_noise().predict(XS, index=[0, 1, 2, 3]), ValueError, ["3 data", "reaches 3"]),
    "negative index": (lambda: known_noise().predict(XS, index=[0, 1, 2, -1]), ValueError, ["index holds -1", "new"]),
    "index of fractions": (lambda: shallow().predict(XS, index=[0.5] * 4), ValueError, ["index", "float64"]),
    "both covariances": (
        lambda: shallow().posterior(XS, full_cov=True, output_cov=True), ValueError, ["leave output_cov out"],
    ),
    "samples of f by variances": (
        lambda: correlated().posterior(XS).sample(KEY), ValueError, ["correlated", "posterior(X, output_cov=True)"],
    ),
    "samples of y by variances": (
        lambda: correlated().predict(XS).sample(KEY), ValueError, ["correlated", "predict(X, output_cov=True)"],
    ),
    "rows of an output too many": (
        lambda: rows_of_outputs().predict([[0.3, 2.0]]), ValueError, ["last column", "2.0", "from 0 to 1"],
    ),
    "rows of half an output": (
        lambda: rows_of_outputs().posterior([[0.3, 0.5]]), ValueError, ["last column", "0.5", "from 0 to 1"],
    ),
    "draws of half an output": (
        lambda: rows_of_outputs().draw(KEY)([[0.3, 0.5]]), ValueError, ["last column", "0.5", "from 0 to 1"],
    ),
    "samples": (lambda: deep().predict(XS, samples=0), ValueError, ["samples", "0"]),
    "features": (lambda: shallow().draw(KEY, 0), ValueError, ["num_features", "0"]),
    "features by halves": (lambda: shallow().draw(KEY, 2.5), ValueError, ["num_features", "2.5"]),
    "a number for a prediction": (lambda: deep().predict(XS, key=3), TypeError, ["jax.random.key(0)", "got 3"]),
    "a number for samples of f": (lambda: shallow().posterior(XS).sample(3), TypeError, ["jax.random.key(0)", "got 3"]),
    "a number for samples of all labels": (
        lambda: shallow().predict(XS, full_cov=True).sample(3), TypeError, ["jax.random.key(0)", "got 3"],
    ),
    "covariance": (lambda: shallow().posterior(XS).covariance, ValueError, ["full_cov=True"]),
    "level": (lambda: shallow().posterior(XS).interval(9.5), ValueError, ["level", "9.5"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, unchecked):
    call, kind, words = REFUSED[name]
    with pytest.raises(kind) as error:
        call()
    for word in words:
        assert word in str(error.value)


def test_models_that_are_not_finite_at_zero_predict_elsewhere():
    """Rows that fill up a block are copies of inputs, not zeros."""
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.6]]), mean=[[0.3, -0.1]])
    model = ig.Model([ig.Deterministic(jnp.log), gp], ig.likelihoods.Gaussian(0.1))
    X = np.array([[1.0], [2.0], [5.0]])
    np.testing.assert_allclose(model.predict(X).mean, jax.jit(lambda X: model.predict(X).mean)(X), rtol=1e-12)
    many = np.ones((1100, 1))
    assert np.isfinite(model.posterior(many).variance).all() and np.isfinite(model.draw(KEY, 16)(many)).all()


def test_output_cov_makes_the_labels_of_an_input_joint():
    root = np.array([[0.01, 0, 0, 0], [0, 0.01, 0, 0], [0, 0, 1.0, 0], [0, 0, 0.999, 0.01]])
    together = ig.likelihoods.Gaussian([0.01, 0.02])
    each = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(0.01), ig.likelihoods.Gaussian(0.02)])
    models = [ig.Model(ig.BayesianDense(1, 2, root=root), noise) for noise in (together, each)]
    for y in ([[1.0, -1.0]], [[1.0, np.nan]]):
        joint = [model.predict([0.7], full_cov=True).log_prob(y) for model in models]
        one_input = [model.predict([0.7], output_cov=True).log_prob(y)[0] for model in models]
        np.testing.assert_allclose([joint[1], *one_input], joint[0], rtol=1e-9)


def test_a_block_of_images_holds_about_as_many_patches_as_others_hold_inputs(monkeypatch):
    rows, original = [], moments._block_moments
    monkeypatch.setattr(
        moments, "_block_moments", lambda m, c, X, *rest: rows.append(len(X)) or original(m, c, X, *rest)
    )
    prior = ig.priors.ImageConvolution(ig.kernels.SquaredExponential(), (9, 9), (2, 2))  # 64 responses
    images = np.random.default_rng(0).normal(size=(40, 81))
    layer = ig.SparseGP(prior, ig.features.InducingPoints(np.eye(4)), mean=[1.0, 0.5, -0.5, 2.0], root=0.1 * np.ones(4))
    got = ig.Model(layer, ig.likelihoods.Gaussian(0.1)).posterior(images)
    mean, variance = eqx.filter_jit(layer.marginals)(jnp.asarray(images))
    np.testing.assert_allclose(got.mean, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got.variance, variance, rtol=1e-9)
    assert set(rows) == {1024 // 64}


class Forwarding(ig.layers.AbstractLayer):
    """A user's layer: what it must answer goes to a sparse GP, and none of the questions with a default does."""

    gp: ig.SparseGP

    @property
    def random(self):
        return True

    @property
    def terminal(self):
        return True

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


class Independent(Forwarding):
    """A user's layer that knows that its outputs are independent."""

    @property
    def correlated(self):
        return self.gp.correlated


def test_outputs_of_a_layer_of_your_own_are_sampled_correctly_or_not_at_all():
    """Two outputs that are multiples of one latent have correlation 1. Unless a layer says that its outputs are
    independent, they are not sampled by their variances."""
    gp = ig.SparseGP(ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52()), ig.features.InducingPoints(Z))
    noiseless = ig.likelihoods.Gaussian(1e-10)
    for layer in (gp, Forwarding(gp)):
        model = ig.Model(layer, noiseless)
        with pytest.raises(ValueError, match="the outputs are correlated, but only their variances were computed"):
            model.predict([0.5]).sample(KEY, 4000)
        with pytest.raises(ValueError, match=r"posterior\(X, output_cov=True\)"):
            model.posterior([0.5]).sample(KEY, 4000)
        for result in (model.predict([0.5], output_cov=True), model.posterior([0.5], full_cov=True)):
            samples = np.asarray(result.sample(KEY, 4000))[:, 0]
            assert np.corrcoef(samples.T)[0, 1] > 0.999
    apart = ig.SparseGP(ig.priors.Independent(ig.kernels.Matern52(), num=2), ig.features.InducingPoints(Z))
    samples = np.asarray(ig.Model(Independent(apart), noiseless).predict([0.5]).sample(KEY, 4000))[:, 0]
    assert abs(np.corrcoef(samples.T)[0, 1]) < 0.1


def test_quick_variances_of_a_layer_of_your_own_only_where_they_are_right():
    """The cache of a sparse GP is settled wherever it stands, also in a layer that hands it on unseen."""
    X = np.random.default_rng(1).uniform(-2, 2, (400, 1))
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(1.0)), ig.features.InducingPoints(X[:100]))
    (trained,) = eqx.filter_jit(ig.collapse)(ig.Model(gp, ig.likelihoods.Gaussian(1e-7)), (X, np.sin(X))).layers
    _, variance = eqx.filter_jit(trained.marginals)(jnp.asarray(X[:50]))
    model = ig.Model(Forwarding(trained), ig.likelihoods.Gaussian(0.1))
    np.testing.assert_allclose(model.posterior(X[:50]).variance, variance, rtol=1e-3)
    traced = eqx.filter_jit(lambda m, X: m.posterior(X).variance)(model, jnp.asarray(X[:50]))
    np.testing.assert_allclose(traced, variance, rtol=1e-3)
