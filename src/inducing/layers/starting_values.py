"""Samples of layers, from which the layers above them choose starting values."""

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import default_jit, own_array
from inducing.data import Data, some_rows
from inducing.priors.base import AbstractPrior, mix_variance

if TYPE_CHECKING:
    from inducing.layers.base import AbstractLayer

Sample = Callable[[], Float[Array, "n D"]]


@default_jit
def _propagated(layer: "AbstractLayer", x: Array, data: Data, key: Array) -> Array:
    return layer.propagate(x[:, None], key, data, 1)[0][:, 0]


def start_sample(
    layer: "AbstractLayer", x: Callable[[], Array], data: Data, seeds: Iterator[int]
) -> Callable[[], Float[Array, "n P"]]:
    """A sample of a layer's outputs for `AbstractLayer.start_inputs`: independent rows, computed on first use."""

    @functools.cache
    def outputs() -> Array:
        inputs, rows = some_rows((x(), data))  # a layer may need much memory for each row
        return _propagated(layer, inputs, rows, jax.random.key(next(seeds)))

    return outputs


def start_sample_of_prior(prior: AbstractPrior, x: Sample, seeds: Iterator[int]) -> Sample:
    """A sample of a prior for `AbstractLayer.start_inputs`: independent rows, computed on first use."""

    @functools.cache
    def outputs() -> Array:
        mean, variance = (np.asarray(a) for a in _prior_moments(prior, some_rows(x())))
        noise = np.random.default_rng(next(seeds)).standard_normal(mean.shape)
        return own_array(mean + np.sqrt(variance) * noise, mean.dtype)

    return outputs


@default_jit  # one program to compile, not one for each operation
def _prior_moments(prior: AbstractPrior, x: Array) -> tuple[Array, Array]:
    return prior.mean(x), mix_variance(prior, prior.Kff_diag(x))
