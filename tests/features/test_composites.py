"""Additive features inside and beside other composites: covariances, means and draws against their definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.features.base import Parts

F, K = ig.features, ig.kernels
X = np.random.default_rng(0).uniform(-0.7, 0.8, (4, 2))
LINE = [[-0.5], [0.1], [0.6]]
ONE, TWO, THREE = K.SquaredExponential(0.6, 1.3), K.Matern52(0.8, 0.7), K.Matern32(0.9)
PLANAR = K.ActiveDims(ONE, (0,)) + K.ActiveDims(TWO, (1,))
points = F.InducingPoints


FORMULAS = {
    "one": lambda r: 1.3 * np.exp(-0.5 * (r / 0.6) ** 2),
    "two": lambda r: 0.7 * (1 + (a := np.sqrt(5) * r / 0.8) + a**2 / 3) * np.exp(-a),
    "three": lambda r: (1 + (a := np.sqrt(3) * r / 0.9)) * np.exp(-a),
}


def tensor(columns, u, v):
    """Covariances of functionals that are (x, names): the values at x of the sum of these terms, each of one column."""
    total = np.zeros((len(u), len(v)))
    for i, (x, names) in enumerate(u):
        for j, (y, others) in enumerate(v):
            for name in set(names) & set(others):
                d = columns[name]
                total[i, j] += FORMULAS[name](abs(x[d] - y[d]))
    return total


def at(Z, column, *terms):
    """Values of a sum of terms at points of one column."""
    rows = np.zeros((len(Z), 2))
    rows[:, column] = np.asarray(Z)[:, 0]
    return [(row, terms) for row in rows]


A, B, C = LINE, [[-0.2], [0.5]], [[0.3], [-0.6]]
NESTED = K.ActiveDims(ONE + THREE, (0,)) + K.ActiveDims(TWO, (1,))
CASES = {
    "union of one": (
        F.Union((F.Additive((points(A), points(B))),)),
        PLANAR,
        {"one": 0, "two": 1},
        at(A, 0, "one") + at(B, 1, "two"),
    ),
    "union of two": (
        F.Union((F.Additive((points(A), points(B))), F.Additive((points(C), points(A))), points(X[:2]))),
        PLANAR,
        {"one": 0, "two": 1},
        at(A, 0, "one") + at(B, 1, "two") + at(C, 0, "one") + at(A, 1, "two") + [(x, ("one", "two")) for x in X[:2]],
    ),
    "nested": (
        F.Additive((F.Additive((points(A), points(C))), points(B))),
        NESTED,
        {"one": 0, "three": 0, "two": 1},
        at(A, 0, "one") + at(C, 0, "three") + at(B, 1, "two"),
    ),
    "nested in a union": (
        F.Union((F.Additive((F.Additive((points(A), points(C))), points(B))), F.Additive((points(B), points(A))))),
        NESTED,
        {"one": 0, "three": 0, "two": 1},
        at(A, 0, "one") + at(C, 0, "three") + at(B, 1, "two") + at(B, 0, "one", "three") + at(A, 1, "two"),
    ),
    "columns of a sum": (
        F.Additive((points(A), points(C))),
        K.ActiveDims(ONE + THREE, (1,)),
        {"one": 1, "three": 1},
        at(A, 1, "one") + at(C, 1, "three"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_composites_are_functionals_of_the_terms(name):
    """Kuu and Kuf against the covariances of the terms; μ_u of a mean of the first term; moments of u of draws."""
    features, kernel, terms, u = CASES[name]
    f = [(x, tuple(terms)) for x in X]
    np.testing.assert_allclose(features.Kuu(kernel, 0.0).dense(), tensor(terms, u, u), atol=1e-12)
    np.testing.assert_allclose(features.Kuf(kernel, jnp.asarray(X)), tensor(terms, u, f), atol=1e-12)

    prior = ig.GP(kernel, ig.means.Function(lambda x: 1.0 + x[0] - 2.0 * x[1]))
    mean = [1.0 + x[0] - 2.0 * x[1] if next(iter(terms)) in own else 0.0 for x, own in u]
    np.testing.assert_allclose(prior.mu_u(features)[0], mean, rtol=1e-12)

    def sample(key):
        g, sites = prior.draw_latents(key, 16, 2)
        return jnp.concatenate([features.apply(g, kernel)[:, 0], sites(jnp.asarray(X))[:, 0, 0]])

    S = 4000
    draws = np.asarray(jax.jit(jax.vmap(sample))(jax.random.split(jax.random.key(1), S)))
    truth = tensor(terms, u + f, u + f)
    deviations = np.sqrt(S) * (draws.T @ draws / S - truth) / (draws.T**2 @ draws**2 / S - truth**2) ** 0.5
    assert np.abs(deviations).max() < 5.0


def test_sums_of_different_length():
    """Latents that are sums of two terms and of one: u and f of a draw, and μ_u, each as for that latent alone."""
    features = F.Union((F.Additive((points(A), points(B))),)), points([*A, *B])
    gps = ig.GP(K.ActiveDims(ONE, 0) + K.ActiveDims(TWO, 0), 2.0), ig.GP(THREE, -1.0)
    prior = ig.priors.LMC([[1.0, 0.5], [0.0, 1.0], [1.0, 1.0]], gps)
    x = jnp.linspace(-1.0, 1.0, 5)[:, None]
    np.testing.assert_allclose(prior.mu_u(features), [[2.0] * 3 + [0.0] * 2, [-1.0] * 5])
    for l, (own, gp) in enumerate(zip(features, gps, strict=True)):
        np.testing.assert_allclose(prior.Kuu(features, 0.0).dense()[l], own.Kuu(gp.kernel, 0.0).dense())

    def sample(key):  # q(u) is the prior, so f has the moments of the prior
        return ig.SparseGP(prior, features).draw(key, 32, 1)(x)

    S = 2000
    draws = np.asarray(jax.jit(jax.vmap(sample))(jax.random.split(jax.random.key(0), S))).reshape(S, -1)
    draws = draws - np.asarray(prior.mean(x)).reshape(-1)
    truth = np.asarray(prior.covariance(x))
    deviations = np.sqrt(S) * (draws.T @ draws / S - truth) / (draws.T**2 @ draws**2 / S - truth**2) ** 0.5
    assert np.abs(deviations).max() < 5.0


def test_additive_parts_of_a_product_are_refused_and_the_cure_works():
    with pytest.raises(TypeError, match=r"Product.parts\[1\].*k1 \* k3 \+ k2 \* k3.*Additive"):
        F.Product((points(A), F.Union((F.Additive((points(A), points(B))),))))
    with pytest.raises(TypeError, match=r"Product.parts\[0\]"):
        F.Product((F.Additive((points(A), points(B))), points(C)))
    one, two, three = K.ActiveDims(ONE, 0), K.ActiveDims(TWO, 0), K.ActiveDims(THREE, 1)
    features = F.Additive((F.Product((points(A), points(C))), F.Product((points(B), points(C)))))
    kernel = one * three + two * three
    grid = [[a[0], c[0]] for Z in (A, B) for a in Z for c in C]
    got = ig.SparseGP(ig.GP(kernel, 1.0), features, coordinates="u")
    np.testing.assert_allclose(got.prior.mu_u(features)[0], [1.0] * 6 + [0.0] * 4)
    G = jnp.asarray(grid)
    expected = jax.scipy.linalg.block_diag((one * three).gram(G[:6]), (two * three).gram(G[6:]))
    np.testing.assert_allclose(features.Kuu(kernel, 0.0).dense(), expected, atol=1e-12)
    assert jax.eval_shape(lambda: got.draw(jax.random.key(0), 8, 2)(jnp.asarray(X))).shape == (4, 1)


def test_a_sum_of_the_wrong_length_is_refused_with_the_model():
    with pytest.raises(TypeError, match=r"sum of 2 kernels.*3 terms, a sum of sums being one sum"):
        ig.SparseGP(ig.GP((ONE + TWO) + THREE), F.Additive((F.Additive((points(A), points(B))), points(C))))
    plain = F.Additive((points(A), points(B)))
    with pytest.raises(TypeError, match="terms of f"):
        plain.apply(lambda X: X[:, 0], ONE + TWO)
    assert plain.apply(Parts([lambda X: X[:, 0], lambda X: 0.0 * X[:, 0]]), ONE + TWO).shape == (5,)
