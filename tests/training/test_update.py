"""Learning online: against the fit on all rows at once, and the streaming bound against its definition."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import inducing as ig
from inducing.layers.streamed import streamed
from inducing.training.update import with_features

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 3.0, size=(24, 1))
Y = np.sin(3 * X) + 0.1 * RNG.normal(size=X.shape)
GRID = jnp.linspace(-0.5, 3.5, 9)[:, None]
Z = np.linspace(0.0, 3.0, 6)[:, None]
KERNEL = ig.kernels.Matern52(lengthscale=0.7)


def model_of(features=None, prior=None, likelihood=None, **q):
    prior = ig.GP(KERNEL) if prior is None else prior
    features = ig.features.InducingPoints(Z) if features is None else features
    return ig.Model(ig.SparseGP(prior, features, **q), likelihood or ig.likelihoods.Gaussian(0.1))


joint = eqx.filter_jit(lambda layer, at: layer.joint(at[None]))
collapse = eqx.filter_jit(ig.collapse)


def same_q(a, b, atol):
    for ours, theirs in zip(joint(a.layers[0], GRID), joint(b.layers[0], GRID), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol)


def in_batches(model, x, y, num=3, **options):
    for rows in np.array_split(np.arange(len(x)), num):
        model = ig.update(model, (x[rows], y[rows]), **options)
    return model


LMC = ig.priors.LMC([[1.0, 0.5], [-0.3, 2.0]], [KERNEL, ig.kernels.Matern32()])
EXACT = {
    "points": (model_of(coordinates="u"), Y),
    "fourier": (model_of(ig.features.Fourier(-1.0, 4.0, 8), ig.GP(ig.kernels.Matern32())), Y),
    "coupled": (model_of(prior=LMC, root=np.eye(12)), np.hstack([Y, np.where(Y > 0.5, np.nan, Y)])),
}


@pytest.mark.parametrize("name", EXACT)
def test_gaussian_updates_equal_the_fit_on_all_rows(name):
    model, y = EXACT[name]
    same_q(in_batches(model, X, y), collapse(model, (X, y)), 1e-8)


def test_counts_come_close_to_the_fit_on_all_rows():
    model = model_of(likelihood=ig.likelihoods.Poisson())
    y = RNG.poisson(np.exp(1 + Y)).astype(float)
    same_q(in_batches(model, X, y), ig.update(model, (X, y)), 0.03)


def test_forgotten_rows_count_by_the_memory():
    half = np.arange(24) < 12
    model = ig.update(ig.update(model_of(), (X[half], Y[half])), (X[~half], Y[~half]), memory=0.3)
    same_q(model, collapse(model_of(), ig.Data(X, Y, weight=np.where(half, 0.3, 1.0))), 1e-8)


def test_more_features_that_hold_the_old_ones_lose_nothing():
    """With u ⊇ a, q_old(a) is a Gaussian factor of u, as the collapsed bound of pseudo-labels gives it."""
    half = np.arange(24) < 12
    grown = np.vstack([Z, [[0.33], [2.71]]])
    old = ig.update(model_of(), (X[half], Y[half]))
    new = ig.update(old, (X[~half], Y[~half]), features=ig.features.InducingPoints(grown))
    # the factor by hand: p(u) q_old(a)/p(a) is Gaussian, then condition on labels in the sparse model
    K, Kn = KERNEL.gram(jnp.asarray(grown)), KERNEL.gram(jnp.asarray(grown), jnp.asarray(X[~half]))
    mean, cov = joint(old.layers[0], jnp.asarray(Z))
    a = np.eye(8)[:6]
    precision = np.linalg.inv(cov[0]) - np.linalg.inv(a @ K @ a.T)
    A = np.linalg.solve(K, Kn).T
    S = np.linalg.inv(np.linalg.inv(K) + a.T @ precision @ a + A.T @ A / 0.1)
    m = S @ (a.T @ np.linalg.solve(cov[0], mean[0, :, 0]) + A.T @ Y[~half, 0] / 0.1)
    got = joint(new.layers[0], jnp.asarray(grown))
    np.testing.assert_allclose(got[0][0, :, 0], m, atol=1e-6)
    np.testing.assert_allclose(got[1][0], S, atol=1e-6)


def test_what_values_say_about_slopes():
    """q of slopes, from q of values, is the derivative of the posterior."""
    old = collapse(model_of(prior=ig.GP(ig.kernels.SquaredExponential(0.7))), (X, Y)).layers[0]
    slopes = with_features(old, ig.features.InducingDerivatives(Z[1:4])).with_coordinates("u")
    h = 1e-3
    mean, cov = joint(old, jnp.concatenate([Z[1:4] + h, Z[1:4] - h]))
    difference = np.hstack([np.eye(3), -np.eye(3)]) / (2 * h)
    np.testing.assert_allclose(slopes.mean[0], difference @ mean[0, :, 0], atol=1e-4)
    np.testing.assert_allclose(slopes.root[0] @ slopes.root[0].T, difference @ cov[0] @ difference.T, atol=1e-3)


def kl_term_by_hand(old, new):
    """KL(q ‖ p) − E_q(a) log q_old(a)/p_old(a) by dense Gaussians, for inducing points."""
    a, b = (jnp.asarray(layer.features.Z) for layer in (old, new))

    def of(layer, at):
        mean, cov = joint(layer, at)
        return np.asarray(mean[0, :, 0]), np.asarray(cov[0])

    def prior(layer, at):
        return np.asarray(layer.prior.mean(at)[:, 0]), np.asarray(layer.prior.covariance(at))

    def cross(q, p):  # E_q log p
        return multivariate_normal(*p).logpdf(q[0]) - 0.5 * np.trace(np.linalg.solve(p[1], q[1]))

    q, q_a = of(new, b), of(new, a)
    return cross(q, q) - cross(q, prior(new, b)) - 0.7 * (cross(q_a, of(old, a)) - cross(q_a, prior(old, a)))


def test_the_streaming_bound_by_its_definition():
    old = collapse(model_of(prior=ig.GP(KERNEL, ig.means.Constant(0.3))), (X, Y)).layers[0]
    prior = ig.GP(ig.kernels.Matern52(0.9, 1.3), ig.means.Constant(0.1))
    root = np.tril(RNG.normal(size=(5, 5))) + 2 * np.eye(5)
    new = ig.SparseGP(prior, ig.features.InducingPoints(Z[:5] + 0.2), RNG.normal(size=5), root)
    ours = eqx.filter_jit(lambda: streamed(old, new, 0.7, same=False).kl())()
    np.testing.assert_allclose(ours, kl_term_by_hand(old, new), rtol=1e-5)


def test_adaptation_improves_the_bound_and_keeps_what_is_frozen():
    half = X[:, 0] < 1.5
    old = ig.update(model_of(), (X[half], Y[half]))
    new = (X[~half], Y[~half])
    kept = ig.update(old, new)
    adapted = ig.update(old, new, adapt=True, steps=60, freeze=lambda m: m.likelihood)
    assert float(adapted.likelihood.variance) == 0.1
    assert not np.allclose(adapted.layers[0].prior.kernel.lengthscale, 0.7)

    @eqx.filter_jit
    def bound(model):
        layer = streamed(old.layers[0], model.layers[0], 1.0, same=False)
        return ig.bounds.expected_log_likelihood(model, ig.Data(*new), jnp.asarray(new[0])[:, None]).sum() - layer.kl()

    assert bound(adapted) > bound(kept) + 0.5


def test_an_exact_posterior_becomes_a_sparse_one():
    half = np.arange(24) < 12
    y = np.where(np.arange(24)[:, None] == 3, np.nan, Y)
    exact = ig.GP(KERNEL).condition(X[half], y[half], 0.1)
    all_rows = model_of(ig.features.InducingPoints(X[half]))
    same_q(ig.update(exact, (X[~half], Y[~half])), collapse(all_rows, (X, y)), 1e-8)


def test_updates_of_the_same_size_compile_once(caplog):
    model = in_batches(model_of(), X[:16], Y[:16], 2)
    with jax.log_compiles():
        ig.update(model, (X[16:], Y[16:]), memory=0.9)
        assert "Compiling" not in caplog.text
        ig.update(model, (X[15:], Y[15:]))
    assert "Compiling" in caplog.text  # another size does


def test_refusals():
    deep = ig.Model([model_of().layers[0], model_of().layers[0]], ig.likelihoods.Gaussian())
    with pytest.raises(TypeError, match="one SparseGP layer"):
        ig.update(deep, (X, Y))
    with pytest.raises(TypeError, match="defined by the kernel"):
        ig.update(EXACT["fourier"][0], (X, Y), adapt=True)
    with pytest.raises(TypeError, match="steps only with adapt=True"):
        ig.update(model_of(), (X, Y), steps=3)
    with pytest.raises(ValueError, match="memory must be a number from 0 to 1"):
        ig.update(model_of(), (X, Y), memory=2.0)


def test_noise_of_single_rows_is_given_anew_with_each_update():
    noise = np.linspace(0.01, 0.3, len(X))

    def known(layers, rows):
        return ig.Model(layers, ig.likelihoods.Gaussian(ig.likelihoods.PerDatum(noise[rows], new=0.0)))

    first, second = slice(0, 12), slice(12, 24)
    model = ig.update(known(model_of().layers, first), (X[first], Y[first]))
    model = ig.update(known(model.layers, second), (X[second], Y[second]))
    same_q(model, collapse(known(model_of().layers, slice(None)), (X, Y)), 1e-8)
