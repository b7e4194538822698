"""Mean and lost variance at single points: values, and derivatives in both modes, against the plain formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inducing._xla import matmul as products
from inducing.layers.reduction import mean_and_reduction, quadratic_forms
from inducing.linalg import Dense

M, N = 5, 7


def fused(K, Kuf, m, R):
    Kuu = jax.vmap(Dense)(K)
    return mean_and_reduction(Kuu, Kuf, m, R)


def plain(K, Kuf, m, R):
    A = jnp.linalg.inv(jnp.linalg.cholesky(K)) @ Kuf
    A = jnp.broadcast_to(A, (m.shape[0], *A.shape[1:]))
    T = jnp.swapaxes(R, 1, 2) @ A
    return jnp.einsum("lm,lmn->ln", m, A), jnp.sum(A**2, 1) - jnp.sum(T**2, 1)


@pytest.mark.parametrize(("shared", "L", "block"), [(1, 1, 128), (1, 1, 2), (1, 3, 2), (3, 3, 2)])
def test_values_and_derivatives(shared, L, block, monkeypatch):
    monkeypatch.setattr(products, "BLOCK", block)  # blocks of two rows: triangular and symmetric products by blocks
    rng = np.random.default_rng(0)
    B = rng.normal(size=(shared, M, M))
    point = (
        jnp.asarray(B @ B.swapaxes(1, 2) + np.eye(M)),
        jnp.asarray(rng.normal(size=(shared, M, N))),
        jnp.asarray(rng.normal(size=(L, M))),
        jnp.asarray(np.tril(rng.normal(size=(L, M, M)))),
    )
    symmetric = rng.normal(size=(shared, M, M))
    others = [rng.normal(size=a.shape) for a in point[1:]]
    direction = (symmetric + symmetric.swapaxes(1, 2), *others[:2], np.tril(others[2]))
    weights = jnp.asarray(rng.normal(size=(2, L, N)))

    def results(moments):
        def value(t):
            out = moments(*(a + t * d for a, d in zip(point, direction, strict=True)))
            return jnp.vdot(weights, jnp.sin(jnp.stack(out)))

        zero = jnp.zeros(())
        first, second = jax.jvp(value, (zero,), (jnp.ones(()),))
        return jnp.stack([first, second, jax.grad(value)(zero), jax.grad(jax.grad(value))(zero)])

    np.testing.assert_allclose(jax.jit(lambda: results(fused))(), jax.jit(lambda: results(plain))(), rtol=1e-9)


@pytest.mark.parametrize("shared", [True, False])
def test_quadratic_forms_of_symmetric_matrices(shared):
    rng = np.random.default_rng(0)
    C, B = rng.normal(size=(2, M, M)), rng.normal(size=(1 if shared else 2, M, N))
    C = C + C.swapaxes(1, 2)
    got = quadratic_forms(jnp.asarray(C), jnp.asarray(B), block=2)
    np.testing.assert_allclose(
        got,
        np.einsum("lmn,lmk,lkn->ln", *(np.broadcast_to(B, (2, M, N)), C, np.broadcast_to(B, (2, M, N)))),
        rtol=1e-12,
    )


def test_factors_of_two_precisions_are_promoted():
    """As a likelihood in float64 above a GP in float32 makes them; users do not promote strictly."""
    A, B = jnp.ones((2, 3), jnp.float32), jnp.full((3, 4), 2.0)
    with jax.numpy_dtype_promotion("standard"):
        value, grads = jax.jit(jax.value_and_grad(lambda A, B: products.product(A, B).sum(), argnums=(0, 1)))(A, B)
    assert value == 48.0 and [g.dtype for g in grads] == [jnp.float32, jnp.float64]
