"""Factorisations of batches: right, and in pieces that one thread computes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from inducing._xla.lapack import ONE_THREAD, eigh, triangular_inverse
from inducing.linalg import Dense
from inducing.training.natural import natural_step


@pytest.mark.parametrize("size", [1, 5, 97, 200])
def test_triangular_inverse(size):
    rng = np.random.default_rng(size)
    L = np.tril(rng.standard_normal((size, size))) / np.sqrt(size) + 2.0 * np.eye(size)
    np.testing.assert_allclose(triangular_inverse(jnp.asarray(L)) @ L, np.eye(size), atol=1e-11)


def test_triangular_inverse_in_single_precision():
    """Of a smooth kernel with the default jitter: k(x, x) − |L⁻¹ k(Z, x)|² at x = Z is 0 to the jitter."""
    Z = np.linspace(0.0, 10.0, 300)
    K = np.exp(-0.5 * (Z[:, None] - Z) ** 2).astype(np.float32)
    L = np.linalg.cholesky(K * (1.0 + np.float32(1e-5) * np.eye(300, dtype=np.float32)))
    A = triangular_inverse(jnp.asarray(L)) @ K
    np.testing.assert_allclose(np.sum(np.asarray(A) ** 2, axis=0), 1.0, atol=1e-4)


def test_triangular_inverse_has_derivatives():
    L = np.tril(np.random.default_rng(0).normal(size=(3, 4, 4))) + 3.0 * np.eye(4)

    def value(L):
        return jnp.sum(jax.vmap(triangular_inverse)(L) ** 2)

    check_grads(value, (jnp.asarray(L),), order=2, rtol=1e-5)


def test_batches_equal_their_matrices():
    K = np.random.default_rng(0).normal(size=(30, 2, 20, 20))
    K = K @ np.swapaxes(K, 2, 3) + np.eye(20)
    stack = jax.vmap(jax.vmap(Dense))(jnp.asarray(K))
    np.testing.assert_allclose(stack.root, np.linalg.cholesky(K), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(stack.inverse_root @ stack.root, np.broadcast_to(np.eye(20), K.shape), atol=1e-9)
    values, vectors = jax.vmap(jax.vmap(eigh))(jnp.asarray(K))
    np.testing.assert_allclose(K @ vectors, vectors * values[..., None, :], atol=1e-9)


def _lapack_calls(fn, *args):
    """[..., M, M] of the matrices that each LAPACK call of a program is given."""
    text = jax.jit(fn).lower(*args).as_text()
    shapes = re.findall(r"custom_call @lapack_\w+\(.*: \(tensor<([0-9x]+)xf64>", text)
    return [tuple(int(d) for d in shape.split("x")) for shape in shapes]


def _step(mean, root):
    return natural_step(mean, root, mean, root, 0.5)


@pytest.mark.parametrize(
    "fn, shapes",
    [
        (lambda K: jax.vmap(Dense)(K).inverse_root, [(3, 128, 128)]),
        (lambda K: jax.vmap(jax.vmap(Dense))(K).root, [(200, 2, 20, 20)]),
        (_step, [(3, 128), (3, 128, 128)]),
        (jax.vmap(eigh), [(3, 64, 64)]),
    ],
    ids=["several large", "many small", "natural gradients", "eigenvectors"],
)
def test_batches_are_too_small_for_threads_of_lapack(fn, shapes):
    # Larger batches are spread over threads that wait for each other: two at a time stop two cores for good.
    calls = _lapack_calls(fn, *(jnp.zeros(shape) for shape in shapes))
    assert calls
    for *batch, M, _ in calls:
        size = int(np.prod(batch))
        assert size == 1 or size * M**3 <= ONE_THREAD
