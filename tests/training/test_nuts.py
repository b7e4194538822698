"""Full Bayes against numerical integration, a long run, and simulation-based calibration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import LogNormal
from scipy.stats import norm

import inducing as ig

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0.0, 4.0, 12))[:, None]
Y = np.sin(2 * X) + 0.3 * RNG.normal(size=X.shape)
Z = ig.features.InducingPoints(np.linspace(0.0, 4.0, 8)[:, None])
PRIOR = LogNormal(-2.0, 0.8)


def model_of(likelihood=None):
    return ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern52(0.7)), Z), likelihood or ig.likelihoods.Gaussian(0.1))


def noise(m):
    return m.likelihood.variance


def kernel(m):
    return m.layers[0].prior


def at(model, value):
    return ig.Model(model.layers, ig.likelihoods.Gaussian(value))


def test_one_parameter_against_a_grid():
    """p(σ² | y) by integration over a grid; predictions are the mixture over it."""
    drawn = ig.sample_posterior(
        model_of(), (X, Y), priors=[(noise, PRIOR)], freeze=kernel, warmup=200, samples=500, chains=2
    )
    (values,) = drawn.values.values()
    grid = np.exp(np.linspace(-6.0, 1.5, 60))
    bounds = jax.jit(jax.vmap(lambda v: ig.collapsed_elbo.evaluate(at(model_of(), v), ig.Data(X, Y))))(
        jnp.asarray(grid)
    )
    log_density = np.asarray(bounds) + np.asarray(PRIOR.log_prob(grid)) + np.log(grid)  # in log σ²
    w = np.exp(log_density - log_density.max())
    w /= w.sum()
    mean = w @ np.log(grid)
    sd = np.sqrt(w @ (np.log(grid) - mean) ** 2)
    (row,) = drawn.summary().values()
    error = 5 * sd / np.sqrt(float(row["n_eff"]))
    assert row["r_hat"] < 1.05
    assert abs(np.log(values).mean() - mean) < error
    assert abs(np.log(values).std() - sd) < error
    assert drawn.divergences == 0
    few = np.flatnonzero(w > 1e-3)
    x = np.array([[0.5], [2.2]])
    collapse = eqx.filter_jit(ig.collapse)
    pieces = [collapse(at(model_of(), float(grid[i])), (X, Y)).predict(x) for i in few[::3]]
    cdf = np.average([p.cdf([[0.7], [0.1]]) for p in pieces], axis=0, weights=w[few[::3]])
    pred = drawn.predict(x, num=200)
    np.testing.assert_allclose(pred.cdf([[0.7], [0.1]]), cdf, atol=0.03)
    samples = np.asarray(pred.sample(jax.random.key(0), 2000))
    np.testing.assert_allclose(samples.mean(0), pred.mean, atol=5 * float(np.sqrt(pred.variance.max() / 2000)))
    np.testing.assert_allclose(samples.var(0), pred.variance, rtol=0.2)
    with pytest.raises(ValueError, match=r"chain must be a whole number from 0 to 1, got 2"):
        drawn.model_at(2, 0)
    data = drawn.to_arviz()
    assert data.posterior.sizes["chain"] == 2


def test_over_u_equals_the_integral_over_u():
    """With Gaussian noise, sampling w as well must give the same predictions as the optimal q(w)."""
    fixed = lambda m: (m.layers[0].prior, m.likelihood)  # noqa: E731
    drawn = ig.sample_posterior(model_of(), (X, Y), over_u=True, freeze=fixed, warmup=150, samples=300, chains=1)
    exact = ig.collapse(model_of(), (X, Y)).layers[0]
    w = drawn.values["w"][0, :, 0]
    sd = np.sqrt(np.sum(np.asarray(exact.root[0]) ** 2, axis=1))
    assert (np.abs(w.mean(0) - exact.mean[0]) < 5 * sd / np.sqrt(np.asarray(drawn.summary()["w"]["n_eff"])[0])).all()
    np.testing.assert_allclose(w.std(0), sd, rtol=0.25)


def test_refusals(unchecked):
    with pytest.raises(TypeError, match="for Gaussian noise only, not Poisson"):
        ig.sample_posterior(model_of(ig.likelihoods.Poisson()), (X, np.ones_like(X)), over_u=False)
    with pytest.raises(TypeError, match="one SparseGP layer"):
        ig.sample_posterior(ig.Model([model_of().layers[0]] * 2, ig.likelihoods.Gaussian()), (X, Y))
    with pytest.raises(ValueError, match="nothing is left to sample"):
        ig.sample_posterior(model_of(), (X, Y), freeze=lambda m: (m.layers[0].prior, m.likelihood))
    with pytest.raises(ValueError, match="one parameter of the model"):
        ig.sample_posterior(model_of(), (X, Y), priors=[(lambda m: m.layers, PRIOR)])
    with pytest.raises(TypeError, match="priors must be pairs"):
        ig.sample_posterior(model_of(), (X, Y), priors=[PRIOR])
    with pytest.raises(ValueError, match="target_accept must be a number between 0 and 1"):
        ig.sample_posterior(model_of(), (X, Y), target_accept=1.5)


@pytest.mark.slow
def test_simulation_based_calibration():
    """Parameters drawn from the prior, labels from the model: ranks of the truth are uniform (Talts et al. 2018)."""
    rng, ranks = np.random.default_rng(1), []
    prior = ig.GP(ig.kernels.Matern52(0.7))
    draws = np.asarray(prior.sample(jax.random.key(1), X, 60))
    for f in draws:
        truth = float(np.exp(-2.0 + 0.8 * rng.normal()))
        y = f + np.sqrt(truth) * rng.normal(size=f.shape)
        drawn = ig.sample_posterior(
            model_of(),
            (X, y),
            priors=[(noise, PRIOR)],
            freeze=kernel,
            objective=ig.log_evidence,
            warmup=200,
            samples=200,
            chains=1,
        )
        (values,) = drawn.values.values()
        ranks.append(np.mean(np.asarray(values)[0, ::10] < truth))
    counts = np.histogram(ranks, bins=5, range=(0, 1.0001))[0]
    assert ((counts - 12) ** 2 / 12).sum() < 18.5  # χ² with 4 degrees of freedom, p = 0.001


@pytest.mark.slow
def test_a_short_run_agrees_with_a_long_one():
    y = np.random.default_rng(1).poisson(np.exp(1 + np.sin(2 * X))).astype(float)
    model = model_of(ig.likelihoods.Poisson())
    short = ig.sample_posterior(model, (X, y), warmup=300, samples=300, chains=2, key=jax.random.key(1))
    long = ig.sample_posterior(model, (X, y), warmup=1000, samples=4000, chains=2, key=jax.random.key(2))
    for name, row in short.summary().items():
        error = row["std"] / np.sqrt(row["n_eff"])
        assert (np.abs(row["mean"] - long.summary()[name]["mean"]) < 5 * error).all()
    x = np.linspace(0.0, 4.0, 5)
    pred = short.predict(x, num=600)
    error = np.sqrt((pred.variance - pred.mean) / min(np.min(row["n_eff"]) for row in short.summary().values()))
    assert (np.abs(pred.mean - long.predict(x, num=1000).mean) < 5 * error).all()  # the variance of rates, over n_eff


@pytest.mark.slow
def test_signs_of_slopes_against_importance_sampling():
    """Monotone functions: GP samples given the values, weighted by the probability Φ(slope/ν) of each sign."""
    x, checks, grid = np.array([0.3, 1.5, 2.4]), np.array([0.8, 1.9, 3.0]), np.linspace(0.0, 3.5, 5)
    noise, nu = 0.05, 0.1
    y, at = np.array([0.4, 0.1, 0.3]), np.concatenate([x, grid])
    d, e, h = at[:, None] - at, at[:, None] - checks, checks[:, None] - checks
    Kfs = e * np.exp(-0.5 * e**2)  # cov(f(a), f'(c)) of the squared exponential kernel
    K = np.block([[np.exp(-0.5 * d**2), Kfs], [Kfs.T, (1 - h**2) * np.exp(-0.5 * h**2)]])
    A = np.linalg.solve(K[:3, :3] + noise * np.eye(3), K[:3, 3:]).T
    draws = np.random.default_rng(0).multivariate_normal(A @ y, K[3:, 3:] - A @ K[:3, 3:], 200_000)
    w = norm.cdf(draws[:, 5:] / nu).prod(axis=1)
    truth = w @ draws[:, :5] / w.sum()

    Y = np.full((6, 4), np.nan)
    Y[:3, [0, 2]], Y[3:, 1] = y[:, None], 0.0
    prior = ig.priors.Derivative(ig.GP(ig.kernels.SquaredExponential()), dim=1, values=True)
    gp = ig.SparseGP(prior, ig.features.InducingPoints(np.linspace(-0.5, 4.0, 10)[:, None]))
    model = ig.Model(gp, ig.likelihoods.Censored(ig.likelihoods.Gaussian([noise, nu**2]), num_outputs=2))
    drawn = ig.sample_posterior(
        model,
        (np.concatenate([x, checks]), Y),
        freeze=lambda m: (m.layers[0].prior, m.likelihood),
        warmup=300,
        samples=1000,
        chains=2,
    )
    sd = np.sqrt(w @ (draws[:, :5] - truth) ** 2 / w.sum())
    error = np.abs(drawn.predict(grid, num=2000).mean[:, 0] - truth)
    assert (error < 5 * sd / np.sqrt(400)).all()
    assert (np.abs(A[:5] @ y - truth) > 0.1).any()  # without signs
