"""Starting values: inducing inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import inducing as ig

from .problems import wave

X, _ = wave()
init = ig.initialise


def spread_out(points, centres):
    """Mean squared distance of points to the nearest centre."""
    return np.min(((points[:, None] - np.asarray(centres)[None]) ** 2).sum(-1), axis=1).mean()


def test_kmeans_is_as_good_as_scikit_learns():
    from sklearn.cluster import KMeans

    points = np.random.default_rng(0).normal(size=(400, 3))
    theirs = KMeans(12, n_init=3, random_state=0).fit(points).cluster_centers_
    ours = init.kmeans(points, 12)
    assert ours.shape == (12, 3)
    assert spread_out(points, ours) < 1.1 * spread_out(points, theirs)


def test_kmeans_finds_separate_clusters_in_any_units():
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal(c, 0.01, size=(50, 2)) for c in (0.0, 1.0, 2.0)]) * [1e6, 1e-6]
    found = np.asarray(init.kmeans(points, 3))
    assert np.allclose(np.sort(found, axis=0) / [1e6, 1e-6], [[0, 0], [1, 1], [2, 2]], atol=0.01)


def test_inducing_inputs_by_key_dtype_and_kind_of_array():
    for choose in (init.kmeans, init.random_subset):
        a, b, c = choose(X, 5, key=jax.random.key(1)), choose(X, 5, key=jax.random.key(1)), choose(X, 5)
        assert np.array_equal(a, b) and not np.array_equal(a, c)
        assert choose(X[:, 0].astype(np.float32), 5).dtype == np.float32
        assert choose(pd.DataFrame({"a": X[:, 0]}), 5).shape == (5, 1)
        assert choose(X, 5, key=jax.random.PRNGKey(2)).shape == (5, 1)
    assert init.greedy_variance(ig.kernels.Matern52(), X[:, 0].astype(np.float32), 5).dtype == np.float32


def test_duplicates_give_each_point_once():
    rows = np.repeat([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], 7, axis=0)
    kernel = ig.kernels.SquaredExponential()
    for Z in (init.kmeans(rows, 10), init.random_subset(rows, 10), init.greedy_variance(kernel, rows, 10)):
        assert np.allclose(np.sort(Z, axis=0), [[0, 1], [2, 3], [4, 5]])
    assert init.kmeans(np.ones((1, 2)), 4).shape == (1, 2)


def test_constant_columns_do_not_matter():
    points = np.concatenate([X, np.full_like(X, 7.0)], axis=1)
    Z = init.kmeans(points, 6)
    assert np.isfinite(Z).all() and np.allclose(Z[:, 1], 7.0)


def test_greedy_variance_picks_the_largest_conditional_variance():
    kernel = ig.kernels.Matern52(lengthscale=0.7)
    points = jnp.asarray(X[:25])
    Z = init.greedy_variance(kernel, points, 6)
    K = np.asarray(kernel.gram(points))
    chosen = [int(np.flatnonzero((np.asarray(points) == z).all(1))[0]) for z in np.asarray(Z)]
    for m in range(1, 6):
        past = chosen[:m]
        conditional = np.diagonal(K - K[:, past] @ np.linalg.solve(K[np.ix_(past, past)], K[past]))
        assert np.isclose(conditional[chosen[m]], conditional.max())
    assert init.greedy_variance(ig.kernels.Linear(), np.zeros((3, 2)), 2).shape == (0, 2)  # no variance anywhere


@pytest.mark.parametrize("M", [0, -1, "3"])
def test_impossible_numbers_of_points(M, unchecked):
    for choose in (init.kmeans, init.random_subset, lambda X, M: init.greedy_variance(ig.kernels.Matern52(), X, M)):
        with pytest.raises(ValueError, match="M must be a whole number"):
            choose(X, M)


def test_kmeans_of_outliers_and_of_tiny_and_huge_numbers():
    x = np.linspace(0.0, 1.0, 30)[:, None]
    near, outlier = np.sort(ig.initialise.kmeans(np.concatenate([x, [[1e20]]]), 10), axis=0)[:, 0]
    assert 0.0 <= near <= 1.0 and outlier == 1e20  # what is near is one point beside that
    for size in (1e-200, 1e200):
        centres = np.sort(ig.initialise.kmeans(size * x, 10)[:, 0]) / size
        assert (np.diff(centres) > 0.01).all() and centres[0] >= 0.0 and centres[-1] <= 1.0
    assert ig.initialise.random_subset([[0.0], [-0.0], [1.0]], 3).shape == (2, 1)
