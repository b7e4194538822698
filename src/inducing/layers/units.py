"""The units in which training moves the parameters of a sparse GP: those of the data, or of its own prior."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import default_jit, own_array
from inducing.features.base import AbstractFeatures
from inducing.kernels.starting_values import column_spread
from inducing.parameters import REAL, parameters
from inducing.priors.base import AbstractPrior

if TYPE_CHECKING:
    from inducing.layers.sparse_gp import SparseGP

Units = list[tuple[Array, Any]]
ROWS = 256  # so many inputs are enough to estimate a prior standard deviation


def sparse_gp_units(layer: "SparseGP", x: Float[Array, "N D"] | None) -> Units:
    """`AbstractLayer.units` of a sparse GP: inducing inputs, q(u) unless whitened, means, and locations in kernels."""
    places = None if x is None else layer.prior.latent_inputs(np.asarray(x))
    features = (layer.features,) if isinstance(layer.features, AbstractFeatures) else layer.features
    units: Units = [unit for own in features for unit in own.units()]
    known = {id(leaf) for leaf, _ in units}
    units += [
        (leaf, spread_beside(np.asarray(leaf), places))
        for _, leaf, constraint in parameters(features)
        if constraint is REAL and leaf.ndim == 2 and id(leaf) not in known
    ]
    if layer.coordinates != "w":
        size = np.sqrt(np.mean(np.asarray(_feature_variances(layer))))
        units += [(leaf, size) for leaf in jax.tree.leaves((layer.mean, layer.root))]
    units += _mean_units(layer, x)
    if x is not None and places is not None:
        units += [unit for kernel in layer.prior.kernels for unit in kernel.units(places.astype(x.dtype))]
    return units


def _mean_units(layer: "SparseGP", x: Array | None) -> Units:
    means = [(latent, mean) for latent, mean in layer.prior.mean_functions() if jax.tree.leaves(mean)]
    if not means:
        return []
    if x is None:
        spread, variances = np.ones(()), np.asarray(_feature_variances(layer))
    else:
        spread = column_spread(np.asarray(x))
        variances = np.asarray(_latent_variances(layer.prior, own_array(np.asarray(x)[:ROWS], x.dtype)))
    units: Units = []
    for latent, mean in means:
        size = np.sqrt(np.mean(variances if latent is None else variances[latent]))
        units += mean.units(own_array(size, variances.dtype), own_array(spread, variances.dtype))
    return units


def spread_beside(Z: np.ndarray, x: np.ndarray | None) -> np.ndarray:
    """The standard deviation [1, D] of each column of x [N, D]; where x does not vary, that of the locations Z [M, D].

    That of Z would be misleading if a few locations lie far from the data. Where Z does not vary either, its size is
    used.

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
def _feature_variances(layer: "SparseGP") -> Float[Array, "K M"]:
    return jax.vmap(lambda K: K.diagonal())(layer.Kuu())


@default_jit
def _latent_variances(prior: AbstractPrior, x: Array) -> Float[Array, "K N J"]:
    return prior.latent_variances(x)
