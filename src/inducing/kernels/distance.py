"""Squared distances between sets of points, accurate and cheap to differentiate."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from inducing.runtime import apart

# Up to this many dimensions the sum of squared differences is about as fast as the product form, and more exact.
DIRECT_DIMENSIONS = 4
# The product form has an absolute error of about ε|x|² in s, so ε^½|x| in r = √s near r = 0. Functions with a slope
# in r there pay for differences up to this many dimensions.
DIRECT_DIMENSIONS_IF_ROUGH = 32


def by_differences(dim: int, rough: bool) -> bool:
    """Whether squared distances are sums of squared differences, not products of matrices.

    >>> by_differences(3, rough=False), by_differences(8, rough=False), by_differences(8, rough=True)
    (True, False, True)
    """
    return dim <= (DIRECT_DIMENSIONS_IF_ROUGH if rough else DIRECT_DIMENSIONS)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def squared_distance(X: Float[Array, "N D"], Z: Float[Array, "M D"], rough: bool = False) -> Float[Array, "N M"]:
    """s_ij = |x_i − z_j|² ≥ 0, by differences in few dimensions and else as |x|² + |z|² − 2 x·z, one product
    −2 [x, −|x|²/2, 1]·[z, 1, −|z|²/2].

    The points should be near the origin (`centred`). `rough` says that s feeds a function with a slope in √s at 0.
    The tangent

        ds_ij = 2 (x_i − z_j)·(dx_i − dz_j)

    is written as products of thin matrices, so that reverse mode is W @ [1, z] and [1, x]ᵀ @ W; clipping s at zero
    does not touch it, so that second derivatives are right at coincident points.
    """
    if by_differences(X.shape[1], rough):
        s = jnp.zeros((X.shape[0], Z.shape[0]), X.dtype)
        for d in range(X.shape[1]):
            s = s + (X[:, d][:, None] - Z[:, d][None, :]) ** 2
        return s
    left = jnp.concatenate([X, *_half_squares(X)], axis=1)
    right = jnp.concatenate([Z, *_half_squares(Z)[::-1]], axis=1)
    # apart: XLA's library of products would take the loop over s too, and run it on one core
    return jnp.maximum(-2.0 * apart(jnp.matmul(left, right.T, precision=lax.Precision.HIGHEST)), 0.0)


def _half_squares(X: Float[Array, "N D"]) -> tuple[Float[Array, "N 1"], Float[Array, "N 1"]]:
    """−|x|²/2, and ones beside it."""
    return -0.5 * jnp.sum(X * X, 1, keepdims=True), jnp.ones((X.shape[0], 1), X.dtype)


@squared_distance.defjvp
def _squared_distance_jvp(rough, primals, tangents):
    (X, Z), (dX, dZ) = primals, tangents
    return squared_distance(X, Z, rough), half_tangent(X, 2.0 * dX, Z, 2.0 * dZ)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def squared_distance_self(X: Float[Array, "N D"], rough: bool = False) -> Float[Array, "N N"]:
    """s_ij = |x_i − x_j|², exactly symmetric with an exact zero diagonal."""
    s = squared_distance(X, X, rough)
    return jnp.where(jnp.eye(X.shape[0], dtype=bool), jnp.zeros((), X.dtype), 0.5 * (s + s.T))


@squared_distance_self.defjvp
def _squared_distance_self_jvp(rough, primals, tangents):
    (X,), (dX,) = primals, tangents
    return squared_distance_self(X, rough), half_tangent(X, 2.0 * dX, X, 2.0 * dX)


def centred(X: Float[Array, "N D"], Z: Float[Array, "M D"] | None) -> tuple[Array, Array | None]:
    """X and Z (or X alone) with the origin moved to the mean of Z: for functions of differences only.

    Whatever is far from the origin loses its digits when it is scaled or squared, so this comes first. Differences do
    not depend on the origin, so no gradient flows through it.
    """
    origin = lax.stop_gradient(jnp.mean(X if Z is None else Z, axis=0))[None, :]
    return X - origin, None if Z is None else Z - origin


def half_tangent(
    X: Float[Array, "N D"],
    dX: Float[Array, "N D"],
    Z: Float[Array, "M D"],
    dZ: Float[Array, "M D"],
    constant: Float[Array, ""] | float = 0.0,
) -> Float[Array, "N M"]:
    """½ d|x_i − z_j|² = (x_i − z_j)·(dx_i − dz_j), plus a constant that rides along.

    As two products of thin matrices, so that reverse mode is W @ [1, z] and [1, x]ᵀ @ W, and the sum of W comes with
    them. (For Z = X the one is the transpose of the other, but two thin products are cheaper than a transpose.)

    >>> x = jnp.ones((1, 1))
    >>> half_tangent(x, x, 0.5 * x, 0.0 * x).tolist()
    [[0.5]]
    """
    ones = jnp.ones((Z.shape[0], 1), Z.dtype)
    left = jnp.concatenate([constant + jnp.sum(X * dX, 1, keepdims=True), -dX], axis=1)
    right = jnp.concatenate([jnp.sum(Z * dZ, 1)[None, :], -dZ.T], axis=0)
    # [1, x]ᵀ is laid out in memory as such, because reverse mode multiplies by it
    points = lax.optimization_barrier(jnp.concatenate([jnp.ones((1, X.shape[0]), X.dtype), X.T], axis=0))
    return left @ jnp.concatenate([ones, Z], axis=1).T + points.T @ right
