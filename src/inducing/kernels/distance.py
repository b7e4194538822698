"""Squared distances between sets of points, accurate and cheap to differentiate."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Up to this many dimensions the sum of squared differences is about as fast as the product form, and more exact.
DIRECT_DIMENSIONS = 4
# The product form has an absolute error of about ε|x|² in s, so ε^½|x| in r = √s near r = 0. Functions with a slope
# in r there pay for differences up to this many dimensions.
DIRECT_DIMENSIONS_IF_ROUGH = 32


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def squared_distance(X: Float[Array, "N D"], Z: Float[Array, "M D"], rough: bool = False) -> Float[Array, "N M"]:
    """s_ij = |x_i − z_j|² ≥ 0, by differences in few dimensions and else as |x|² + |z|² − 2 x·z.

    The points should be near the origin (`centred`). `rough` says that s feeds a function with a slope in √s at 0.
    The tangent

        ds_ij = 2 (x_i − z_j)·(dx_i − dz_j)

    is written as products of thin matrices, so that reverse mode is W @ [1, z] and [1, x]ᵀ @ W; clipping s at zero
    does not touch it, so that second derivatives are right at coincident points.
    """
    if X.shape[1] <= (DIRECT_DIMENSIONS_IF_ROUGH if rough else DIRECT_DIMENSIONS):
        s = jnp.zeros((X.shape[0], Z.shape[0]), X.dtype)
        for d in range(X.shape[1]):
            s = s + (X[:, d][:, None] - Z[:, d][None, :]) ** 2
        return s
    cross = jnp.matmul(X, Z.T, precision=lax.Precision.HIGHEST)
    return jnp.maximum(jnp.sum(X * X, 1)[:, None] + jnp.sum(Z * Z, 1)[None, :] - 2.0 * cross, 0.0)


@squared_distance.defjvp
def _squared_distance_jvp(rough, primals, tangents):
    (X, Z), (dX, dZ) = primals, tangents
    return squared_distance(X, Z, rough), _left_tangent(X, dX, Z) + _right_tangent(X, Z, dZ)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def squared_distance_self(X: Float[Array, "N D"], rough: bool = False) -> Float[Array, "N N"]:
    """s_ij = |x_i − x_j|², exactly symmetric with an exact zero diagonal."""
    s = squared_distance(X, X, rough)
    return jnp.where(jnp.eye(X.shape[0], dtype=bool), jnp.zeros((), X.dtype), 0.5 * (s + s.T))


@squared_distance_self.defjvp
def _squared_distance_self_jvp(rough, primals, tangents):
    (X,), (dX,) = primals, tangents
    # The second term is the transpose of the first, but two thin products are cheaper than a transpose in reverse mode.
    return squared_distance_self(X, rough), _left_tangent(X, dX, X) + _right_tangent(X, X, dX)


def centred(X: Float[Array, "N D"], Z: Float[Array, "M D"] | None) -> tuple[Array, Array | None]:
    """X and Z (or X alone) with the origin moved to the mean of Z: for functions of differences only.

    Whatever is far from the origin loses its digits when it is scaled or squared, so this comes first. Differences do
    not depend on the origin, so no gradient flows through it.
    """
    origin = lax.stop_gradient(jnp.mean(X if Z is None else Z, axis=0))[None, :]
    return X - origin, None if Z is None else Z - origin


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
