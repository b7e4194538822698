"""The units in which training moves the parameters of a sparse GP: those of the data, or of its own prior."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import default_jit, own_array
from inducing.kernels.starting_values import column_spread
from inducing.priors.base import AbstractPrior

if TYPE_CHECKING:
    from inducing.layers.sparse_gp import SparseGP

Units = list[tuple[Array, Any]]
ROWS = 256  # the prior standard deviation is estimated from this number of inputs


def mean_units(layer: "SparseGP", x: Float[Array, "N D"] | None) -> Units:
    """The units of the mean functions of a sparse GP, from the size of its prior and the spread of the inputs x."""
    means = [(latent, mean) for latent, mean in layer.prior.mean_functions() if jax.tree.leaves(mean)]
    if not means:
        return []
    if x is None:
        spread, variances = np.ones(()), np.asarray(feature_variances(layer))
    else:
        spread = column_spread(np.asarray(x))
        variances = np.asarray(_latent_variances(layer.prior, own_array(np.asarray(x)[:ROWS], x.dtype)))
    units: Units = []
    for latent, mean in means:
        size = np.sqrt(np.mean(variances if latent is None else variances[latent]))
        units += mean.units(own_array(size, variances.dtype), own_array(spread, variances.dtype))
    return units


def spread_beside(Z: np.ndarray, x: np.ndarray | None) -> np.ndarray:
    """The standard deviation [1, D] of each column of x [N, D], or of the locations Z [M, D] where x does not vary.

    That of x is preferred, because a few locations may lie far from the data. Where Z does not vary either, the largest
    absolute value in the column of Z is used, or 1 if that is 0.

    Examples:
        >>> spread_beside(np.array([[0.0], [50.0]]), np.array([[0.0], [2.0]])).tolist()
        [[1.0]]
    """
    size = np.abs(Z).max(axis=0, keepdims=True)
    spread = np.where(size > 0, size, 1.0)
    beside = x is not None and x.shape[1] == Z.shape[1]
    for points in (Z, x) if beside else (Z,):
        deviation = points.std(axis=0, keepdims=True)
        spread = np.where(deviation > 10 * np.finfo(Z.dtype).eps * size, deviation, spread)
    return spread


@default_jit  # one program to compile, not one for each operation
def feature_variances(layer: "SparseGP") -> Float[Array, "K M"]:
    """The prior variances of u."""
    return jax.vmap(lambda K: K.diagonal())(layer.Kuu())


@default_jit
def _latent_variances(prior: AbstractPrior, x: Array) -> Float[Array, "K N J"]:
    return prior.latent_variances(x)
