"""The picture of predictive densities: its numbers against SciPy, its dots, and what it refuses."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import inducing as ig

# y = x ± 2 with noise, a branch for each sign of h, so that p(y | x) has two modes.
BRANCHES = ig.Model(
    [ig.LatentVariable(1), ig.Deterministic(lambda v: v[:1] + 2.0 * jnp.sign(v[1:2]))], ig.likelihoods.Gaussian(0.25)
)
X, Y = np.linspace(-1.0, 1.0, 4), np.linspace(-4.0, 4.0, 5)


def test_the_grid_is_the_density():
    mesh = ig.report.plot_density(BRANCHES, X=X, Y=Y).collections[0]
    truth = np.mean([stats.norm(X[None] + branch, 0.5).pdf(Y[:, None]) for branch in (-2.0, 2.0)], axis=0)
    np.testing.assert_allclose(np.reshape(mesh.get_array(), truth.shape), truth, rtol=5e-3, atol=1e-6)


def test_dots_are_draws():
    line = ig.report.plot_density(BRANCHES, X=X, Y=Y, draws=2000).lines[0]
    rest = line.get_ydata() - line.get_xdata()
    assert rest.size == 8000 and set(np.unique(line.get_xdata())) == set(X)
    side = np.sign(rest)
    assert abs(side.mean()) < 4.5 / 8000**0.5
    assert abs((rest - 2.0 * side).std() - 0.5) < 4.5 * 0.5 / 16000**0.5


def test_what_it_refuses():
    two = ig.Model(ig.Deterministic(lambda v: jnp.tile(v, 2)), ig.likelihoods.Gaussian(0.25))
    with pytest.raises(ValueError, match="a single output of numbers"):
        ig.report.plot_density(two, X=X)
    with pytest.raises(ValueError, match="size"):
        ig.report.plot_density(BRANCHES, X=X, size=0)
