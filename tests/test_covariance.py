"""Dense and diagonal covariances: each verb against NumPy, derivatives against finite differences, jitter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inducing.linalg import Dense, Diagonal, batched, default_jitter

M = 4
entries = arrays(float, (M, M), elements=st.floats(-2.0, 2.0))


DENSE = eqx.filter_jit(Dense)


def _positive(G):
    return G @ G.T + 0.1 * np.eye(len(G))


@eqx.filter_jit
def _verbs(cov, B):
    solved = {name: getattr(cov, name)(B) for name in VERBS}
    return solved | {"logdet": cov.logdet(), "diagonal": cov.diagonal(), "dense": cov.dense()}


VERBS = ("matmul", "solve", "root_matmul", "root_solve", "root_solve_transpose")


def _check_verbs(cov, K, B):
    got = {name: np.asarray(value) for name, value in _verbs(cov, jnp.asarray(B)).items()}
    R = np.asarray(cov.root_matmul(jnp.eye(len(K))))
    np.testing.assert_allclose(R @ R.T, K, rtol=1e-10, atol=1e-12)
    expected = {
        "matmul": K @ B,
        "solve": np.linalg.solve(K, B),
        "root_matmul": R @ B,
        "root_solve": np.linalg.solve(R, B),
        "root_solve_transpose": np.linalg.solve(R.T, B),
        "logdet": np.linalg.slogdet(K)[1],
        "diagonal": np.diagonal(K),
        "dense": K,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-8, atol=1e-9, err_msg=name)


@given(entries, arrays(float, (M, 3), elements=st.floats(-3.0, 3.0)))
def test_dense_verbs(G, B):
    K = _positive(G)
    _check_verbs(DENSE(jnp.asarray(K)), K, B)


@given(arrays(float, M, elements=st.floats(0.01, 100.0)), arrays(float, (M, 3), elements=st.floats(-3.0, 3.0)))
def test_diagonal_verbs(d, B):
    _check_verbs(Diagonal(jnp.asarray(d)), np.diag(d), B)


def _symmetric(v):
    return v + v.T


def _scalar(K, jitter=0.0):
    """A function of the matrix that sees the root, its inverse, the matrix itself and the determinant."""
    cov = Dense(_symmetric(K), jitter)
    a, b, c = (jnp.cos(jnp.arange(M * M, dtype=K.dtype) + s).reshape(M, M) for s in (0.0, 1.0, 2.0))
    return jnp.sum(a * cov.root) + jnp.sum(b * cov.inverse_root) + jnp.sum(c * cov.dense()) + cov.logdet()


@pytest.mark.parametrize("jitter", [0.0, 1e-2])
def test_dense_derivatives(jitter):
    """Forward and reverse mode against central differences; the jitter moves with the diagonal."""
    rng = np.random.default_rng(1)
    K = jnp.asarray(0.5 * _positive(rng.standard_normal((M, M))))
    f = jax.jit(lambda K: _scalar(K, jitter))
    V = jnp.asarray(rng.standard_normal((M, M)))
    step = 1e-5
    finite = (f(K + step * V) - f(K - step * V)) / (2 * step)
    _, forward = jax.jvp(f, (K,), (V,))
    reverse = jnp.sum(jax.grad(f)(K) * V)
    np.testing.assert_allclose(forward, finite, rtol=1e-7)
    np.testing.assert_allclose(reverse, forward, rtol=1e-12)


def test_dense_second_derivatives():
    """Forward over reverse, as a Hessian-vector product needs it."""
    rng = np.random.default_rng(2)
    K = jnp.asarray(0.5 * _positive(rng.standard_normal((M, M))))
    V = jnp.asarray(rng.standard_normal((M, M)))
    gradient = jax.jit(jax.grad(_scalar))
    _, got = jax.jvp(gradient, (K,), (V,))
    step = 1e-5
    finite = (gradient(K + step * V) - gradient(K - step * V)) / (2 * step)
    np.testing.assert_allclose(got, finite, rtol=1e-5, atol=1e-6)


def test_no_jitter_unless_needed():
    K = Dense(jnp.asarray(_positive(np.eye(M))), 0.0)
    assert float(K.relative_jitter) == 0.0
    K = Dense(jnp.eye(M), 1e-6)
    np.testing.assert_allclose(K.relative_jitter, 1e-6)
    np.testing.assert_allclose(jnp.diagonal(K.dense()), 1.0 + 1e-6, rtol=1e-14)


def test_jitter_is_the_same_in_any_units():
    """Values and slopes stand beside each other in Kuu, and the variance of a slope depends on the unit of x."""
    K = _positive(np.random.default_rng(3).standard_normal((M, M)))
    unit = np.array([1e-6, 1.0, 1e3, 1e9])
    own, other = Dense(jnp.asarray(K), 1e-2), Dense(jnp.asarray(unit[:, None] * K * unit), 1e-2)
    np.testing.assert_allclose(other.root, unit[:, None] * own.root, rtol=1e-12)
    np.testing.assert_allclose(other.relative_jitter, 1e-2)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_jitter_escalates_on_singular_matrices(dtype, scale):
    """A matrix of rank one factorises with a jitter that is reported, relative to the size of the matrix."""
    K = jnp.full((M, M), scale, dtype) - jnp.asarray(3e-7 * scale, dtype) * jnp.eye(M, dtype=dtype)
    cov = Dense(K, 0.0)
    used = float(cov.relative_jitter)
    assert 0.0 < used < 1e-4
    assert cov.root.dtype == dtype
    np.testing.assert_allclose(cov.root @ cov.root.T, K, rtol=10 * used)
    np.testing.assert_allclose(cov.dense(), np.asarray(K) + used * scale * np.eye(M), rtol=1e-6)
    gradient = jax.jit(jax.grad(lambda K: jnp.sum(Dense(K, 0.0).root ** 2)))(K)
    assert bool(jnp.isfinite(gradient).all())


def test_vmapped_escalation_keeps_the_others():
    """In a batch, only the matrix that fails gets a jitter."""
    good, bad = 2.0 * jnp.eye(M), jnp.ones((M, M))
    stack = jax.vmap(lambda K: Dense(K, 0.0))(jnp.stack([good, bad]))
    assert float(stack.relative_jitter[0]) == 0.0
    np.testing.assert_array_equal(stack.root[0], np.sqrt(2.0) * np.eye(M))
    assert bool(jnp.isfinite(stack.root[1]).all())


def test_nan_stays_nan():
    """A NaN is no reason to search for a jitter, and it is not hidden."""
    cov = Dense(jnp.eye(M).at[1, 1].set(jnp.nan))
    assert bool(jnp.isnan(cov.logdet()))


def test_batched():
    rng = np.random.default_rng(3)
    Ks = np.stack([_positive(rng.standard_normal((M, M))) for _ in range(3)])
    B = rng.standard_normal((3, M, 2))
    stack = jax.vmap(Dense)(jnp.asarray(Ks))
    np.testing.assert_allclose(batched("solve", stack, jnp.asarray(B)), np.linalg.solve(Ks, B), rtol=1e-9)
    np.testing.assert_allclose(batched("logdet", stack), np.linalg.slogdet(Ks)[1], rtol=1e-10)


def test_default_jitter_depends_on_precision():
    assert default_jitter(jnp.float32) > default_jitter(jnp.float64) > 0
