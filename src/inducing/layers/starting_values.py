"""Starting values of layers from data, and the samples that they need of the layers below."""

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import default_jit, own_array
from inducing.data import Data, some_rows
from inducing.features.base import AbstractFeatures
from inducing.layers import qu
from inducing.linalg import batched
from inducing.parameters import Start, dtype_of
from inducing.priors.base import AbstractPrior, mix_variance

if TYPE_CHECKING:
    from inducing.layers.base import AbstractLayer
    from inducing.layers.sparse_gp import SparseGP

Sample = Callable[[], Float[Array, "n D"]]


@default_jit
def _propagated(layer: "AbstractLayer", x: Array, data: Data, key: Array) -> Array:
    return layer.propagate(x[:, None], key, data, 1)[0][:, 0]


def start_sample(
    layer: "AbstractLayer", x: Callable[[], Array], data: Data, seeds: Iterator[int]
) -> Callable[[], Float[Array, "n P"]]:
    """A sample of a layer's outputs for `AbstractLayer.start_inputs`: of each row by itself, computed on first use."""

    @functools.cache
    def outputs() -> Array:
        inputs, rows = some_rows((x(), data))  # layers may hold much for each row
        return _propagated(layer, inputs, rows, jax.random.key(next(seeds)))

    return outputs


def sparse_gp_start_inputs(layer: "SparseGP", x: Sample, seeds: Iterator[int]) -> tuple[list[Start], Sample]:
    """`AbstractLayer.start_inputs` of a sparse GP: the starting values of its kernels, and a sample of its prior.

    It samples the prior and not q, because q is about to be set to the prior with other parameters.
    """
    prior = layer.prior
    places = prior.latent_inputs(np.asarray(x()))
    starts = [start for kernel in prior.kernels for start in kernel.start(places)]

    @functools.cache
    def outputs() -> Array:
        mean, variance = (np.asarray(a) for a in _prior_moments(prior, some_rows(x())))
        noise = np.random.default_rng(next(seeds)).standard_normal(mean.shape)
        return own_array(mean + np.sqrt(variance) * noise, mean.dtype)

    return starts, outputs


@default_jit  # one program to compile, not one for each operation
def _prior_moments(prior: AbstractPrior, x: Array) -> tuple[Array, Array]:
    return prior.mean(x), mix_variance(prior, prior.Kff_diag(x))


def sparse_gp_start_outputs(
    layer: "SparseGP", likelihood: Any, x: Array | None, y: np.ndarray, width: int
) -> list[Start]:
    """`AbstractLayer.start_outputs` of a sparse GP, by its prior.

    Where the inputs are unknown, the prior variance is taken at the inducing points, or else at the origin.
    """
    if x is None:
        Z = layer.features.locations if isinstance(layer.features, AbstractFeatures) else None
        x = jnp.zeros((1, width), dtype_of(layer)) if Z is None or Z.shape[1] != width else Z
    return layer.prior.start(likelihood, np.asarray(x), y)


def sparse_gp_is_fresh(layer: "SparseGP") -> bool:
    """Whether q(u) = p(u), or its covariance is a multiple of that of p(u), as in the inner layers of deep GPs."""
    if layer.coordinates != "w":
        return abs(float(layer.kl())) <= 1e-6 * layer.mean.size
    roots = (np.asarray(root) for root in jax.tree.leaves(layer.root))
    return not np.any(np.asarray(layer.mean)) and all(map(_is_scalar, roots))


def _is_scalar(root: np.ndarray) -> bool:
    """Whether a root, or a factor of a Kronecker root, is a multiple of the identity."""
    one = np.eye(root.shape[-1]) if root.shape[-2] == root.shape[-1] else 1.0
    return bool(np.all(root == root.flat[0] * one))


def sparse_gp_at_prior(layer: "SparseGP") -> "SparseGP":
    """The layer with q(u) = p(u), its root diagonal if it was."""
    if layer.coordinates == "w":  # q(w) = N(0, I) is the prior, whatever its parameters are
        return layer
    own = type(layer)(layer.prior, layer.features, coordinates=layer.coordinates, jitter=layer.jitter)
    if not qu.is_diagonal(layer.root):
        return own
    variances = batched("diagonal", qu.repeat(own.Kuu(), own.prior.num_latents))
    return eqx.tree_at(lambda gp: gp.root, own, jnp.sqrt(variances)[:, None])
