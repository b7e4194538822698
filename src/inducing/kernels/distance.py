"""Squared distances between sets of points, accurate and cheap to differentiate."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from inducing._xla import apart, barrier

# Up to this many dimensions the sum of squared differences is about as fast as the product form, and more accurate.
DIRECT_DIMENSIONS = 4
# The product form has an absolute error of about ε|x|² in s, hence of √ε|x| in r = √s near r = 0. For functions with a
# slope in r there, differences are worth their cost up to this many dimensions.
DIRECT_DIMENSIONS_IF_ROUGH = 32


def largest_coordinate(dtype: jnp.dtype, dim: int) -> float:
    """A bound b for coordinates, so that sums of `dim` products of two coordinates do not overflow.

    >>> largest_coordinate(jnp.dtype("float32"), 1) ** 2 < 3.4e38
    True
    """
    return math.sqrt(float(jnp.finfo(dtype).max) / (16 * dim))


def bounded(X: Float[Array, "N D"]) -> Float[Array, "N D"]:
    """Coordinates of at most `largest_coordinate`. Points that far away have no covariance with any other."""
    b = largest_coordinate(X.dtype, X.shape[1])
    return jnp.clip(X, -b, b)


def by_differences(dim: int, rough: bool) -> bool:
    """Whether to compute squared distances as sums of squared differences instead of matrix products.

    >>> by_differences(3, rough=False), by_differences(8, rough=False), by_differences(8, rough=True)
    (True, False, True)
    """
    return dim <= (DIRECT_DIMENSIONS_IF_ROUGH if rough else DIRECT_DIMENSIONS)


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def squared_distance(
    X: Float[Array, "N D"], Z: Float[Array, "M D"], lengthscale: Float[Array, " D"], rough: bool = False
) -> Float[Array, "N M"]:
    """Squared scaled distances s_ij = Σ_d ((x_id − z_jd)/ℓ_d)² ≥ 0.

    In few dimensions s is a sum of squared differences. Otherwise it is |x|² + |z|² − 2 x·z with x and z in units of ℓ,
    as the single matrix product −2 [x, −|x|²/2, 1]·[z, 1, −|z|²/2], clipped at zero. The tangent is `half_tangent`,
    which ignores the clipping, so that second derivatives are correct at coincident points.

    Sums of squared differences may be infinite. The product form first moves points to within `largest_coordinate`.

    Args:
        X: points [N, D] near the origin (see `centred`).
        Z: points [M, D] near the origin.
        lengthscale: ℓ [D].
        rough: whether s is the argument of a function with a slope in √s at 0.

    Returns:
        s [N, M].
    """
    X, Z = X / lengthscale[None, :], Z / lengthscale[None, :]
    if by_differences(X.shape[1], rough):
        X, Z = _finite(X), _finite(Z)
        s = jnp.zeros((X.shape[0], Z.shape[0]), X.dtype)
        for d in range(X.shape[1]):
            s = s + (X[:, d][:, None] - Z[:, d][None, :]) ** 2
        return s
    X, Z = bounded(X), bounded(Z)  # as in `half_tangent`, so that XLA computes them once for both
    left = jnp.concatenate([X, *_half_squares(X)], axis=1)
    right = jnp.concatenate([Z, *_half_squares(Z)[::-1]], axis=1)
    # `apart` keeps XLA from fusing the loop over s into the library call, which would run it on one core
    return jnp.maximum(-2.0 * apart(jnp.matmul(left, right.T, precision=lax.Precision.HIGHEST)), 0.0)


def _finite(X: Array) -> Array:
    """X with the largest number instead of infinity, since ∞ − ∞ is NaN."""
    most = jnp.finfo(X.dtype).max
    return jnp.clip(X, -most, most)


def _half_squares(X: Float[Array, "N D"]) -> tuple[Float[Array, "N 1"], Float[Array, "N 1"]]:
    """The columns −|x|²/2 and 1."""
    return -0.5 * jnp.sum(X * X, 1, keepdims=True), jnp.ones((X.shape[0], 1), X.dtype)


@partial(squared_distance.defjvp, symbolic_zeros=True)
def _squared_distance_jvp(rough, primals, tangents):
    return squared_distance(*primals, rough), half_tangent(primals, tangents, 2.0)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def squared_distance_self(
    X: Float[Array, "N D"], lengthscale: Float[Array, " D"], rough: bool = False
) -> Float[Array, "N N"]:
    """Squared scaled distances of points with themselves, exactly symmetric and with an exact zero diagonal."""
    s = squared_distance(X, X, lengthscale, rough)
    return jnp.where(jnp.eye(X.shape[0], dtype=bool), jnp.zeros((), X.dtype), 0.5 * (s + s.T))


@partial(squared_distance_self.defjvp, symbolic_zeros=True)
def _squared_distance_self_jvp(rough, primals, tangents):
    (X, lengthscale), (dX, dlengthscale) = primals, tangents
    return squared_distance_self(X, lengthscale, rough), half_tangent((X, X, lengthscale), (dX, dX, dlengthscale), 2.0)


def centred(X: Float[Array, "N D"], Z: Float[Array, "M D"] | None) -> tuple[Array, Array | None]:
    """X and Z with the origin moved to the mean of Z (or of X if Z is None), for functions of differences only.

    Points far from the origin lose digits when they are scaled or squared, so shift them first. Differences do not
    depend on the origin, so no gradient flows through it.
    """
    origin = lax.stop_gradient(jnp.mean(X if Z is None else Z, axis=0))[None, :]
    origin = jnp.where(jnp.isfinite(origin), origin, 0.0)  # the sum of huge numbers overflows
    return X - origin, None if Z is None else Z - origin


def half_tangent(
    primals: tuple[Array, Array, Array], tangents: tuple[Any, Any, Any], factor: float, constant: Array | float = 0.0
) -> Float[Array, "N M"]:
    """factor · ½ ds + constant, for the squared distances s of X [N, D] and Z [M, D] with lengthscales ℓ [D].

    With x, z and their tangents dx, dz in units of ℓ, and dλ = dℓ/ℓ,

        ½ ds_ij = (x_i − z_j)·(dx_i − dz_j) − Σ_d (x_id − z_jd)² dλ_d,

    computed by products of thin matrices. If Z has no tangent (data, for example), one product with [1, z, z²]ᵀ is
    enough, whose reverse is W @ [1, z, z²]; otherwise two products, with [1, z]ᵀ and [1, x]. The constant is part of
    the first product. (If Z = X, one product is the transpose of the other, but a product is cheaper than a transpose.)

    >>> x, one = jnp.full((1, 1), 3.0), jnp.ones(1)
    >>> half_tangent((x, 0.5 * x, one), (x, 0.0 * x, 0.0 * one), 1.0).tolist()
    [[4.5]]
    """
    X, Z, lengthscale = primals
    dX, dZ, dlengthscale = tangents
    unit = lengthscale[None, :]
    # Where a coordinate is that large, the covariance is 0, and 0·∞ would be NaN.
    x, z = bounded(X / unit), bounded(Z / unit)
    dx, dlog = factor * moved(dX) / unit, factor * moved(dlengthscale)[None, :] / unit
    if isinstance(dZ, SymbolicZero):
        share = constant + jnp.sum(x * (dx - x * dlog), 1, keepdims=True)
        left = jnp.concatenate([share, 2.0 * x * dlog - dx, jnp.broadcast_to(-dlog, x.shape)], axis=1)
        return left @ _rows_of([z, z * z])
    dx, dz = dx - x * dlog, factor * moved(dZ) / unit - z * dlog
    left = jnp.concatenate([constant + jnp.sum(x * dx, 1, keepdims=True), -dx], axis=1)
    right = jnp.concatenate([jnp.sum(z * dz, 1)[None, :], -dz.T], axis=0)
    return left @ _rows_of([z]) + _rows_of([x]).T @ right


def moved(tangent: Any) -> Array:
    """A tangent, with symbolic zeros as arrays of zeros.

    >>> moved(jnp.ones(2)).tolist()
    [1.0, 1.0]
    """
    return jnp.zeros(tangent.shape, tangent.dtype) if isinstance(tangent, SymbolicZero) else tangent


def _rows_of(parts: list[Array]) -> Array:
    """[1, part, …]ᵀ, laid out in memory by rows, which is fastest for the products of the reverse pass."""
    ones = jnp.ones((1, parts[0].shape[0]), parts[0].dtype)
    return barrier(jnp.concatenate([ones, *(part.T for part in parts)], axis=0))
