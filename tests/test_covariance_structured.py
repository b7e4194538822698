"""Structured covariances against their dense matrices: every verb, both kinds of derivative, batched, in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inducing.linalg import BlockDiagonal, Dense, Diagonal, DiagonalPlusLowRank, Kronecker, batched


def _dense(theta, size, seed):
    A = jnp.asarray(np.random.default_rng(seed).normal(size=(size, size)))
    return Dense(A @ A.T + theta * jnp.eye(size))


def _diagonal(theta, size, seed):
    return Diagonal(theta + jnp.asarray(np.random.default_rng(seed).uniform(0.5, 2.0, size)))


def _low_rank(theta, size, rank, seed):
    rng = np.random.default_rng(seed)
    V = jnp.asarray(rng.normal(size=(size, rank)))
    return DiagonalPlusLowRank(theta * jnp.asarray(rng.uniform(0.5, 2.0, size)), V * theta**2)


KINDS = {
    "dense": lambda t: _dense(t, 4, 0),
    "diagonal": lambda t: _diagonal(t, 5, 1),
    "low rank 1": lambda t: _low_rank(t, 5, 1, 2),
    "low rank 1, padded": lambda t: _low_rank(t, 5, 1, 2).padded(3),
    "low rank 3": lambda t: _low_rank(t, 7, 3, 3),
    "kronecker": lambda t: Kronecker((_low_rank(t, 3, 1, 4), _dense(t, 2, 5), _diagonal(t, 4, 6))),
    "blocks": lambda t: BlockDiagonal((_low_rank(t, 4, 2, 7), _dense(t, 3, 8), _diagonal(t, 2, 9))),
    "blocks of kronecker": lambda t: BlockDiagonal((Kronecker((_dense(t, 2, 1), _dense(t, 2, 2))), _diagonal(t, 3, 3))),
}


def _verbs(cov, B):
    verbs = "matmul", "solve", "root_solve", "root_solve_transpose"
    out = {verb: getattr(cov, verb)(B) for verb in verbs}
    out |= {"B": B, "K": cov.dense(), "R": cov.root_matmul(jnp.eye(len(B))), "logdet": cov.logdet()}
    return out | {"diagonal": cov.diagonal(), "relative_jitter": cov.relative_jitter}


def _compare(got):
    got = jax.tree.map(np.asarray, got)
    B, K, R = got["B"], got["K"], got["R"]
    np.testing.assert_allclose(R @ R.T, K, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got["matmul"], K @ B, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got["solve"], np.linalg.solve(K, B), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(got["root_solve"], np.linalg.solve(R, B), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(got["root_solve_transpose"], np.linalg.solve(R.T, B), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(got["logdet"], np.linalg.slogdet(K)[1], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got["diagonal"], np.diag(K), rtol=1e-13, atol=1e-13)
    assert got["relative_jitter"] == 0.0


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_verbs_are_those_of_the_dense_matrix(make):
    @jax.jit
    def everything(t):
        cov = make(t)
        return _verbs(cov, jnp.asarray(np.random.default_rng(10).normal(size=(cov.diagonal().shape[0], 3))))

    _compare(everything(jnp.asarray(1.3)))


@jax.jit
def _of_entries(z, B):
    """All verbs of a low-rank, a Kronecker and a block-diagonal matrix that are made of the numbers z [19]."""
    columns = 3.0 * jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])  # independent, whatever is added
    low = DiagonalPlusLowRank(0.5 + z[:4] ** 2, columns + jnp.tanh(z[4:12].reshape(4, 2)))
    A = z[12:16].reshape(2, 2)
    dense, diagonal = Dense(A @ A.T + jnp.eye(2)), Diagonal(0.5 + z[16:19] ** 2)
    kronecker, blocks = Kronecker((dense, diagonal)), BlockDiagonal((low, dense))
    return _verbs(low, B[:4]), _verbs(kronecker, B), _verbs(blocks, B)


@given(arrays(float, 19, elements=st.floats(-3, 3)), arrays(float, (6, 2), elements=st.floats(-10, 10)))
def test_verbs_for_any_entries(z, B):
    for got in _of_entries(z, B):
        _compare(got)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_derivatives_match_finite_differences(make):
    """The root is smooth in what the matrix is made of, forwards and backwards."""

    def value(t):
        cov = make(t)
        M = cov.diagonal().shape[0]
        B = jnp.asarray(np.random.default_rng(11).normal(size=(M, 2)))
        return cov.logdet() + jnp.sum(cov.root_solve(B) ** 3) + jnp.sum(cov.root_matmul(B) ** 3)

    h = 1e-5
    values, reverse, forward = jax.jit(lambda t: (jax.vmap(value)(t), jax.grad(value)(t[1]), jax.jacfwd(value)(t[1])))(
        jnp.array([0.8 - h, 0.8, 0.8 + h])
    )
    central = (values[2] - values[0]) / (2 * h)
    np.testing.assert_allclose(reverse, central, rtol=1e-7)
    np.testing.assert_allclose(forward, central, rtol=1e-7)


def test_stacks_of_structured_covariances():
    stack = jax.vmap(KINDS["kronecker"])(jnp.array([0.7, 1.9]))
    B = jnp.ones((2, 24, 1))
    got = batched("solve", stack, B)
    for i, t in enumerate((0.7, 1.9)):
        K = np.asarray(KINDS["kronecker"](jnp.asarray(t)).dense())
        np.testing.assert_allclose(got[i], np.linalg.solve(K, B[i]), rtol=1e-9)


def test_low_rank_in_float32():
    rng = np.random.default_rng(0)
    d, V = rng.uniform(0.5, 2.0, 6).astype(np.float32), rng.normal(size=(6, 2)).astype(np.float32)
    cov = DiagonalPlusLowRank(jnp.asarray(d), jnp.asarray(V))
    R = cov.root_matmul(jnp.eye(6, dtype=jnp.float32))
    assert R.dtype == jnp.float32
    np.testing.assert_allclose(R @ R.T, np.diag(d) + V @ V.T, rtol=2e-5, atol=2e-5)


def test_low_rank_costs_no_square_matrix():
    """A million entries: nothing of size M × M is made."""
    M = 1_000_000
    cov = DiagonalPlusLowRank(jnp.ones(M), jnp.ones((M, 1)))
    np.testing.assert_allclose(cov.solve(jnp.ones((M, 1)))[0, 0], 1.0 / (M + 1.0), rtol=1e-9)
