"""Squared distances between sets of points, accurate far from the origin and cheap to differentiate."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Up to this many dimensions the sum of squared differences is as fast as the product form (measured), and more exact.
DIRECT_DIMENSIONS = 4


@jax.custom_jvp
def squared_distance(X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
    """s_ij = |x_i − z_j|² ≥ 0.

    In more than four dimensions s = |x|² + |z|² − 2 x·z with the origin moved to the mean of Z. The tangent

        ds_ij = 2 (x_i − z_j)·(dx_i − dz_j)

    is written as products of thin matrices, so that reverse mode is W @ [1, z] and [1, x]ᵀ @ W; clipping s at zero
    does not touch it, so that second derivatives are right at coincident points.
    """
    if X.shape[1] <= DIRECT_DIMENSIONS:
        return direct_squared_distance(X, Z)
    x, z = _centred(X, Z)
    cross = jnp.matmul(x, z.T, precision=lax.Precision.HIGHEST)
    return jnp.maximum(jnp.sum(x * x, 1)[:, None] + jnp.sum(z * z, 1)[None, :] - 2.0 * cross, 0.0)


@squared_distance.defjvp
def _squared_distance_jvp(primals, tangents):
    X, Z = primals
    dX, dZ = tangents
    x, z = _centred(X, Z)
    ds = _left_tangent(x, dX, z) + _right_tangent(x, z, dZ)
    return squared_distance(X, Z), ds


@jax.custom_jvp
def squared_distance_self(X: Float[Array, "N D"]) -> Float[Array, "N N"]:
    """s_ij = |x_i − x_j|², exactly symmetric with an exact zero diagonal."""
    if X.shape[1] <= DIRECT_DIMENSIONS:
        return direct_squared_distance(X, X)
    s = squared_distance(X, X)
    return jnp.where(jnp.eye(X.shape[0], dtype=bool), jnp.zeros((), X.dtype), 0.5 * (s + s.T))


@squared_distance_self.defjvp
def _squared_distance_self_jvp(primals, tangents):
    (X,), (dX,) = primals, tangents
    x, _ = _centred(X, X)
    # The second term is the transpose of the first, but two thin products are cheaper than a transpose in reverse mode.
    return squared_distance_self(X), _left_tangent(x, dX, x) + _right_tangent(x, x, dX)


def direct_squared_distance(X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
    """s_ij by differences in any dimension: exact at coincident points, O(N M D) without a matrix product."""
    s = jnp.zeros((X.shape[0], Z.shape[0]), X.dtype)
    for d in range(X.shape[1]):
        s = s + (X[:, d][:, None] - Z[:, d][None, :]) ** 2
    return s


def _centred(X: Array, Z: Array) -> tuple[Array, Array]:
    centre = lax.stop_gradient(jnp.mean(Z, axis=0))[None, :]
    return X - centre, Z - centre


def _left_tangent(x: Array, dx: Array, z: Array) -> Array:
    """2 (x_i − z_j)·dx_i."""
    left = jnp.concatenate([jnp.sum(x * dx, 1, keepdims=True), -dx], axis=1)
    right = jnp.concatenate([jnp.ones((z.shape[0], 1), z.dtype), z], axis=1)
    return 2.0 * (left @ right.T)


def _right_tangent(x: Array, z: Array, dz: Array) -> Array:
    """2 (z_j − x_i)·dz_j, with [1, x]ᵀ laid out in memory as such, because reverse mode multiplies by it."""
    left = lax.optimization_barrier(jnp.concatenate([jnp.ones((1, x.shape[0]), x.dtype), x.T], axis=0))
    right = jnp.concatenate([jnp.sum(z * dz, 1)[None, :], -dz.T], axis=0)
    return 2.0 * (left.T @ right)
