"""Gaussian identities against NumPy's plain formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

from inducing import gaussian
from inducing.linalg import Dense, Diagonal

N, M = 4, 3


@pytest.fixture
def joint():
    rng = np.random.default_rng(0)
    G = rng.standard_normal((N + M, 2 * (N + M)))
    S = G @ G.T / (N + M)
    mu = rng.standard_normal(N + M)
    return {"muf": mu[:N], "muu": mu[N:], "Sff": S[:N, :N], "Sfu": S[:N, N:], "Suu": S[N:, N:], "rng": rng, "S": S}


def _arguments(joint):
    arrays = [jnp.asarray(joint[k]) for k in ("muf", "muu", "Sff", "Sfu")]
    return (*arrays, Dense(jnp.asarray(joint["Suu"])))


def test_condition(joint):
    """The conditional by its formula, and by the precision matrix of the joint, which is another way."""
    u = joint["rng"].standard_normal(M)
    mean, cov = gaussian.condition(*_arguments(joint), jnp.asarray(u))
    gain = joint["Sfu"] @ np.linalg.inv(joint["Suu"])
    np.testing.assert_allclose(mean, joint["muf"] + gain @ (u - joint["muu"]), rtol=1e-12)
    precision = np.linalg.inv(joint["S"])
    np.testing.assert_allclose(cov, np.linalg.inv(precision[:N, :N]), rtol=1e-9)


def test_marginalise(joint):
    """∫ p(f | u) q(u) du by the laws of total expectation and covariance."""
    rng = joint["rng"]
    m, R = rng.standard_normal(M), np.tril(rng.standard_normal((M, M)))
    S = R @ R.T
    mean, cov = gaussian.marginalise(*_arguments(joint), jnp.asarray(m), jnp.asarray(S))
    gain = joint["Sfu"] @ np.linalg.inv(joint["Suu"])
    np.testing.assert_allclose(mean, joint["muf"] + gain @ (m - joint["muu"]), rtol=1e-11)
    inner = np.linalg.inv(np.linalg.inv(joint["S"])[:N, :N])
    np.testing.assert_allclose(cov, inner + gain @ S @ gain.T, rtol=1e-9)


def test_marginalise_at_the_prior_is_the_prior(joint):
    mean, cov = gaussian.marginalise(*_arguments(joint), jnp.asarray(joint["muu"]), jnp.asarray(joint["Suu"]))
    np.testing.assert_allclose(mean, joint["muf"], rtol=1e-12)
    np.testing.assert_allclose(cov, joint["Sff"], rtol=1e-10, atol=1e-12)


def test_linear_map(joint):
    Phi = joint["rng"].standard_normal((M, N))
    muu, Sfu, Suu = gaussian.linear_map(*(jnp.asarray(a) for a in (Phi, joint["muf"], joint["Sff"])))
    np.testing.assert_allclose(muu, Phi @ joint["muf"], rtol=1e-12)
    np.testing.assert_allclose(Sfu, joint["Sff"] @ Phi.T, rtol=1e-12)
    np.testing.assert_allclose(Suu.dense(), Phi @ joint["Sff"] @ Phi.T, rtol=1e-12)


def test_identities_chain(joint):
    """Map, condition, map again and integrate: each function takes what the last one returned."""
    rng, S, muf = joint["rng"], jnp.asarray(joint["Sff"]), jnp.asarray(joint["muf"])
    A, B, u = rng.standard_normal((2, N)), rng.standard_normal((1, N)), rng.standard_normal(2)
    muu, Sfu, Suu = gaussian.linear_map(jnp.asarray(A), muf, S)
    mean, cov = gaussian.condition(muf, muu, S, Sfu, Suu, jnp.asarray(u))
    np.testing.assert_allclose(A @ mean, u, rtol=1e-9)
    muv, Sfv, Svv = gaussian.linear_map(jnp.asarray(B), mean, cov)
    m, R = np.array([0.3]), np.array([[0.2]])
    got, spread = gaussian.marginalise(mean, muv, cov, Sfv, Svv, jnp.asarray(m), jnp.asarray(R))
    both = np.concatenate([A, B])
    gain = joint["Sff"] @ both.T @ np.linalg.inv(both @ joint["Sff"] @ both.T)
    expected = joint["muf"] + gain @ (np.concatenate([u, m]) - both @ joint["muf"])
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    rest = joint["Sff"] - gain @ both @ joint["Sff"] + 0.2 * np.outer(gain[:, 2], gain[:, 2])
    np.testing.assert_allclose(spread, rest, atol=1e-10)
    assert np.isfinite(gaussian.kl(jnp.asarray(u), jnp.eye(2), muu, Suu))


def _kl(m, S, mu, K):
    K1 = np.linalg.inv(K)
    d = m - mu
    return 0.5 * (np.trace(K1 @ S) + d @ K1 @ d - len(m) + np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1])


@pytest.mark.parametrize("diagonal", [False, True])
def test_kl(joint, diagonal):
    rng = joint["rng"]
    m = rng.standard_normal(M)
    root = rng.uniform(0.3, 1.5, M) if diagonal else np.tril(rng.standard_normal((M, M)))
    S = np.diag(root**2) if diagonal else root @ root.T
    got = gaussian.kl(jnp.asarray(m), jnp.asarray(root), jnp.asarray(joint["muu"]), Dense(jnp.asarray(joint["Suu"])))
    np.testing.assert_allclose(got, _kl(m, S, joint["muu"], joint["Suu"]), rtol=1e-11)
    got = gaussian.kl_whitened(jnp.asarray(m), jnp.asarray(root))
    np.testing.assert_allclose(got, _kl(m, S, np.zeros(M), np.eye(M)), rtol=1e-11)
    entries = rng.uniform(0.5, 2.0, M)
    got = gaussian.kl(jnp.asarray(m), jnp.asarray(root), jnp.zeros(M), Diagonal(jnp.asarray(entries)))
    np.testing.assert_allclose(got, _kl(m, S, np.zeros(M), np.diag(entries)), rtol=1e-11)


def test_kl_of_a_root_with_negative_diagonal(joint):
    """Signs of the root's diagonal mean nothing: the covariance is what counts."""
    root = np.tril(joint["rng"].standard_normal((M, M)))
    flipped = root * np.array([1.0, -1.0, 1.0])
    m = jnp.zeros(M)
    a, b = (gaussian.kl_whitened(m, jnp.asarray(r)) for r in (root, flipped))
    np.testing.assert_allclose(a, b, rtol=1e-12)
