"""Bayesian dense and deterministic layers, and Skip, against dense linear algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

import inducing as ig

KEY = jax.random.key(1)
RNG = np.random.default_rng(1)
D, P = 2, 2
SIZE = (D + 1) * P
MEAN = RNG.normal(size=(D + 1, P))
SCALE = RNG.uniform(0.3, 1.0, size=(D + 1, P))
ROOT = np.tril(RNG.normal(size=(SIZE, SIZE))) + 0.5 * np.eye(SIZE)
PRIOR_SCALE = RNG.uniform(0.5, 2.0, size=(D + 1, P))


def layer(full):
    form = {"root": ROOT} if full else {"scale": SCALE}
    return ig.BayesianDense(D, P, mean=MEAN, prior_mean=0.3, prior_scale=PRIOR_SCALE, **form)


def covariance(full):
    return ROOT @ ROOT.T if full else np.diag(SCALE.reshape(-1) ** 2)


def design(X):
    """Φ [G·P, (D+1)·P] with f = Φ vec(W), weights flattened row by row, outputs point by point."""
    X1 = np.concatenate([X, np.ones((len(X), 1))], axis=1)
    return np.einsum("gd,pq->gpdq", X1, np.eye(P)).reshape(len(X) * P, SIZE)


@pytest.mark.parametrize("full", [False, True])
def test_moments(full):
    X = RNG.normal(size=(3, D))
    Phi = design(X)
    S = Phi @ covariance(full) @ Phi.T
    mean, cov = layer(full).joint(jnp.asarray(X)[None])
    np.testing.assert_allclose(mean[0].reshape(-1), Phi @ MEAN.reshape(-1), rtol=1e-12)
    np.testing.assert_allclose(cov[0], S, rtol=1e-10, atol=1e-12)
    _, variance = layer(full).moments(jnp.asarray(X)[:, None])
    np.testing.assert_allclose(variance.reshape(-1), np.diag(S), rtol=1e-10)
    _, blocks = layer(full).moments(jnp.asarray(X)[:, None], correlated=True)
    np.testing.assert_allclose(blocks[:, 0], [S[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] for i in range(3)], atol=1e-12)


@pytest.mark.parametrize("full", [False, True])
def test_kl_and_log_ratio(full):
    p = multivariate_normal(np.full(SIZE, 0.3), np.diag(PRIOR_SCALE.reshape(-1) ** 2))
    q = multivariate_normal(MEAN.reshape(-1), covariance(full))
    W, log_ratio = layer(full).sample_weights(KEY)
    w = np.asarray(W).reshape(-1)
    np.testing.assert_allclose(log_ratio, p.logpdf(w) - q.logpdf(w), rtol=1e-9)
    S, T = covariance(full), np.diag(PRIOR_SCALE.reshape(-1) ** 2)
    d = MEAN.reshape(-1) - 0.3
    kl = 0.5 * (np.trace(np.linalg.solve(T, S)) + d @ np.linalg.solve(T, d) - SIZE)
    kl += 0.5 * (np.linalg.slogdet(T)[1] - np.linalg.slogdet(S)[1])
    np.testing.assert_allclose(layer(full).kl(), kl, rtol=1e-10)


def joint_draws(some_layer, X, num):
    """`num` data with the same replicates X [R, D]: the samples [num, R·P] of their outputs."""
    x = jnp.broadcast_to(X, (num, *X.shape))
    data = ig.Data(jnp.zeros((num, 1)))
    out = eqx.filter_jit(lambda m: m.propagate(x, KEY, data, X.shape[0])[0])(some_layer)
    return np.asarray(out).reshape(num, -1)


def assert_moments(samples, mean, cov):
    n = len(samples)
    variance = np.diag(cov)
    np.testing.assert_array_less(np.abs(samples.mean(axis=0) - mean), 5 * np.sqrt(variance / n))
    error = np.sqrt((cov**2 + variance[:, None] * variance[None]) / n)  # of an empirical covariance of Gaussians
    np.testing.assert_array_less(np.abs(np.cov(samples.T) - cov), 5 * error + 1e-12)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("R", [1, 3])
def test_dense_draws_are_joint_over_replicates_and_independent_over_data(full, R):
    X = RNG.normal(size=(R, D))
    samples = joint_draws(layer(full), jnp.asarray(X), 30_000)
    Phi = design(X)
    assert_moments(samples, Phi @ MEAN.reshape(-1), Phi @ covariance(full) @ Phi.T)
    a, b = samples[:15_000, 0], samples[15_000:, 0]
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(15_000)


@pytest.mark.parametrize("kind", ["shared", "coupled", "mixed"])
def test_gp_draws_are_joint_over_replicates(kind):
    """The covariance of a sparse GP's draws over the replicates of a datum is that of the formula, in plain NumPy."""
    Z, X = RNG.normal(size=(3, 1)), RNG.normal(size=(3, 1))
    kernel = ig.kernels.SquaredExponential(0.8, 1.3)
    L, M = 2, 3
    m = RNG.normal(size=(L, M))
    root = np.tril(RNG.normal(size=(L * M, L * M))) if kind == "coupled" else np.tril(RNG.normal(size=(L, M, M)))
    W = np.array([[1.0, 0.5], [-0.3, 0.8]]) if kind == "mixed" else np.eye(2)
    prior = ig.priors.LMC(W, kernel) if kind == "mixed" else ig.priors.Independent(kernel, num=2)
    gp = ig.SparseGP(prior, ig.features.InducingPoints(Z), m, root, jitter=0.0)

    def k(a, b):
        return 1.3 * np.exp(-0.5 * ((a - b.T) / 0.8) ** 2)

    Luu = np.linalg.cholesky(k(Z, Z))
    A = np.linalg.solve(Luu, k(Z, X))  # [M, 3]
    S = root @ root.T if kind == "coupled" else None
    latent = np.zeros((L, 3, L, 3))
    for i in range(L):
        latent[i, :, i] += k(X, X) - A.T @ A
        for j in range(L):
            block = S[i * M : (i + 1) * M, j * M : (j + 1) * M] if S is not None else (i == j) * root[i] @ root[j].T
            latent[i, :, j] += A.T @ block @ A
    cov = np.einsum("pl,lgkh,qk->gphq", W, latent, W).reshape(6, 6)
    mean = (W @ m @ A).T.reshape(-1)
    np.testing.assert_allclose(gp.joint(jnp.asarray(X)[None])[1][0], cov, atol=1e-9)
    assert_moments(joint_draws(gp, jnp.asarray(X), 30_000), mean, cov)
    assert_moments(joint_draws(gp, jnp.asarray(X[:1]), 30_000), mean[:2], cov[:2, :2])  # the outputs at one point


def largest(jaxpr):
    """The number of entries of the largest array that a computation makes."""
    sizes = [1]
    for eqn in jaxpr.eqns:
        sizes += [v.aval.size for v in eqn.outvars]
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(value, "jaxpr", value)
            sizes += [largest(inner)] if hasattr(inner, "eqns") else []
    return max(sizes)


def test_memory_grows_with_replicates_squared_times_data():
    """Of a sample of the layer, and of the gradient of the whole bound: nothing as large as (N R)²."""
    N, R, M = 40, 20, 3
    features = ig.features.InducingPoints(jnp.zeros((M, 1)))
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential()), features)
    data = ig.Data(jnp.zeros((N, 0)), jnp.zeros(N))
    run = jax.make_jaxpr(lambda x: gp.propagate(x, KEY, data, R))(jnp.zeros((N, R, 1)))
    assert N * R * R <= largest(run.jaxpr) <= 2 * N * R * R
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(jnp.zeros((N, 1))))
    arrays, static = eqx.partition(ig.Model([latent, gp, gp], ig.likelihoods.Gaussian(0.1)), eqx.is_inexact_array)

    def bound(arrays):
        return ig.elbo(eqx.combine(arrays, static), data, key=KEY, importance=R)

    run = jax.make_jaxpr(jax.grad(bound))(arrays)
    assert N * R * R <= largest(run.jaxpr) <= 2 * N * R * R


def test_a_drawn_function_is_consistent():
    f = layer(True).draw(KEY, 0, D)
    X = jnp.asarray(RNG.normal(size=(4, D)))
    W, _ = layer(True).sample_weights(KEY)
    np.testing.assert_allclose(f(X), X @ W[:-1] + W[-1:], rtol=1e-12)


@pytest.mark.parametrize("factor", [0.7, [[0.5], [1.0], [2.0]], [[0.5, 2.0]]])
def test_a_factor_of_the_prior_is_part_of_its_scale(factor):
    one = ig.BayesianDense(D, P, mean=MEAN, scale=SCALE, prior_mean=0.3, prior_scale=PRIOR_SCALE, prior_factor=factor)
    same = ig.BayesianDense(D, P, mean=MEAN, scale=SCALE, prior_mean=0.3, prior_scale=np.array(factor) * PRIOR_SCALE)
    np.testing.assert_allclose(one.kl(), same.kl(), rtol=1e-12)
    np.testing.assert_allclose(one.sample_weights(KEY)[1], same.sample_weights(KEY)[1], rtol=1e-12)
    assert len(ig.parameters.partition(one).free) == len(ig.parameters.partition(same).free) + 1


def test_the_scale_of_a_prior_is_trained_to_the_maximum_of_the_evidence():
    X = RNG.normal(size=(20, 1))
    y = 3.0 * X[:, 0] - 2.0 + 0.3 * RNG.normal(size=20)
    K = X @ X.T + 1.0

    def loss(log_tau):
        return -multivariate_normal(np.zeros(20), np.exp(2.0 * log_tau) * K + 0.09 * np.eye(20)).logpdf(y)

    best = minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded")
    layer = ig.BayesianDense(1, 1, full=True, prior_factor=1.0)
    model = ig.Model(layer, ig.likelihoods.Gaussian(0.09))
    result = ig.fit(model, (X, y), freeze=lambda m: m.likelihood, method="lbfgs", progress=False)
    np.testing.assert_allclose(result.bound, -best.fun, atol=1e-4)
    np.testing.assert_allclose(np.log(result.model.layers[0].prior_factor), [[best.x]], atol=0.02)


def test_a_bias_alone():
    """y = b + ε without inputs: with the exact posterior the bound is the evidence."""
    y = np.array([0.5, 1.2, 0.9])
    v = 1.0 / (1.0 + 3.0 / 0.2)
    layer = ig.BayesianDense(0, 1, mean=v * y.sum() / 0.2, scale=v**0.5)
    assert layer.prior_scale.tolist() == [[1.0]]
    model, data = ig.Model(layer, ig.likelihoods.Gaussian(0.2)), ig.Data(None, y)
    evidence = multivariate_normal(np.zeros(3), 1.0 + 0.2 * np.eye(3)).logpdf(y)
    np.testing.assert_allclose(ig.elbo(model, data), evidence, rtol=1e-12)
    assert ig.BayesianDense(0, 2, key=KEY).mean.tolist() == [[0.0, 0.0]]
    with pytest.raises(ValueError, match="num_inputs must be a whole number from 0, got -1"):
        ig.BayesianDense(-1, 2)
    with pytest.raises(ValueError, match=r"prior_factor has shape \[3, 2\]; pass one number, \[3, 1\]"):
        ig.BayesianDense(2, 2, prior_factor=np.ones((3, 2)))


def test_starting_values():
    fresh = ig.BayesianDense(100, 3, key=KEY)
    assert abs(float(fresh.mean[:-1].std()) - 0.1) < 0.02
    np.testing.assert_allclose(fresh.prior_scale[:-1], 0.1)
    np.testing.assert_allclose(fresh.prior_scale[-1], 1.0)
    assert ig.BayesianDense(2, 1, key=KEY, full=True).root.shape == (3, 3)


def test_deterministic_layers():
    mlp = eqx.nn.MLP(2, 3, 4, 1, key=KEY)
    some = ig.layers.Deterministic(mlp)
    x = jnp.asarray(RNG.normal(size=(5, 2, 2)))
    mean, variance = some.moments(x)
    np.testing.assert_allclose(mean[3, 1], mlp(x[3, 1]))
    assert not variance.any() and some.width(2) == 3
    assert some.moments(x, correlated=True)[1].shape == (5, 2, 3, 3)
    assert ig.layers.Deterministic(jnp.sum).moments(x)[0].shape == (5, 2, 1)
    assert jax.tree.leaves(ig.layers.Deterministic(jnp.tanh)) == []
    with pytest.raises(TypeError, match="function must be"):
        ig.layers.Deterministic(3.0)


def test_skip_concatenates():
    skip = ig.layers.Skip([ig.LatentVariable(1), ig.layers.Deterministic(jnp.sin)])
    data = ig.Data(jnp.ones((4, 2)))
    out, log_weight = skip.propagate(data.x[:, None], KEY, data, 3)
    assert out.shape == (4, 3, 5) and log_weight.shape == (4, 3)
    np.testing.assert_allclose(out[..., :2], 1.0)
    np.testing.assert_allclose(out[..., 2:4], np.sin(1.0))
    assert skip.width(2) == 5 and skip.random
    assert skip.draw(KEY, 10, 2)(data.x).shape == (4, 5)
    inner = ig.BayesianDense(2, 3, key=KEY)
    np.testing.assert_allclose(ig.layers.Skip(inner).kl(), inner.kl())


def test_bad_input_is_refused(unchecked):
    with pytest.raises(ValueError, match="num_outputs must be an integer of at least 1, got 0"):
        ig.BayesianDense(1, 0)
    assert ig.BayesianDense(np.int64(2), np.int32(1)).mean.shape == (3, 1)
    with pytest.raises(TypeError, match=r"key must be a random key .* got 3"):
        ig.BayesianDense(2, 1, key=3)
    pair = ig.Model([ig.Deterministic(lambda v: (v, v)), layer(False)], ig.likelihoods.Gaussian())
    with pytest.raises(
        ValueError, match=r"layers\[0\], a Deterministic: .* a number or a vector, but it gives a tuple"
    ):
        pair.predict(np.zeros((1, D)))
    with pytest.raises(ValueError, match=r"root has shape \[2, 2\]; 6 weights need \[6, 6\]"):
        ig.BayesianDense(2, 2, root=np.eye(2))
    with pytest.raises(ValueError, match=r"mean has shape \[4\]; pass one number or \[3, 2\]"):
        ig.BayesianDense(2, 2, mean=np.zeros(4))
    with pytest.raises(ValueError, match=r"BayesianDense\.scale must be positive"):
        ig.BayesianDense(2, 2, scale=-1.0)
    with pytest.raises(ValueError, match="layers is empty"):
        ig.layers.Skip([])
