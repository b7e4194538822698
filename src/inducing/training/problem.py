"""What is optimised: a model split into free arrays, an objective, and data."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..data import Data
from ..layers.sparse_gp import SparseGP
from ..parameters import Partition


class Objective(eqx.Module):
    """objective(model, data) plus an optional log prior, called with those of key and num_data that it accepts."""

    fn: Callable = eqx.field(static=True)
    log_prior: Callable | None = eqx.field(static=True)
    takes_key: bool = eqx.field(static=True)
    takes_num_data: bool = eqx.field(static=True)

    def __init__(self, fn: Callable, log_prior: Callable | None = None):
        names = inspect.signature(fn).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
        bound = fn.keywords if isinstance(fn, functools.partial) else {}
        self.fn, self.log_prior = fn, log_prior
        self.takes_key = anything or ("key" in names and "key" not in bound)
        self.takes_num_data = anything or ("num_data" in names and "num_data" not in bound)

    def __call__(self, model: Any, data: Data, key: Array, num_data: int) -> Float[Array, ""]:
        kwargs: dict[str, Any] = {"key": key} if self.takes_key else {}
        if self.takes_num_data:
            kwargs["num_data"] = num_data
        value = self.fn(model, data, **kwargs)
        return value if self.log_prior is None else value + self.log_prior(model)


class Problem(eqx.Module):
    """A model split for training. What moves are its free arrays divided by `scales`, their typical sizes.

    Positive parameters are trained through their logarithm and need no scale (None); locations, such as inducing
    inputs, have one, so that a step is equally long in any units.
    """

    partition: Partition
    scales: list[Array | None]

    @property
    def free(self) -> list[Array]:
        """The arrays that move, at their start."""
        return [f if s is None else f / s for f, s in zip(self.partition.free, self.scales, strict=True)]

    def model(self, free: list[Array]) -> Any:
        """The model, with natural values, of free arrays."""
        p = self.partition
        values = [f if s is None else f * s for f, s in zip(free, self.scales, strict=True)]
        return Partition(values, p.rest, p.treedef, p.slots, p.constraints).model()

    def positions(self) -> Any:
        """A pytree like the model with the position of each array in `free`, or None where it does not train."""
        slots = [i if trained else None for trained, i in self.partition.slots]
        return jax.tree_util.tree_unflatten(self.partition.treedef, slots)


def make_problem(model: Any, partition: Partition, data: Data) -> Problem:
    """A problem whose locations move in units of their own spread."""
    problem = Problem(partition, [None] * len(partition.free))
    scales: list[Array | None] = [None] * len(partition.free)
    position = problem.positions()
    for i, layer in enumerate(model.layers):
        if isinstance(layer, SparseGP):
            x = data.x if i == 0 else None
            where = position.layers[i]
            features = (layer.features, where.features)
            for leaf, j in zip(jax.tree.leaves(features[0]), _leaves(features[1]), strict=True):
                if j is not None and partition.constraints[j].name == "real" and leaf.ndim == 2:
                    scales[j] = _column_spread(leaf, x)
            if layer.coordinates != "w":
                size = jnp.sqrt(jnp.mean(jax.vmap(lambda K: K.diagonal())(layer.Kuu())))
                for j in (where.mean, where.root):
                    if j is not None:
                        scales[j] = size
            for j in _leaves(getattr(where.prior, "mean_function", None)):
                if j is not None and partition.constraints[j].name == "real" and partition.free[j].size == 1:
                    scales[j] = _output_size(layer, x)
    return Problem(partition, scales)


def _leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda v: v is None)


def _column_spread(Z: Float[Array, "M D"], x: Array | None) -> Float[Array, "1 D"]:
    """The standard deviation of each column, from the data where Z has none, and else the size of its entries."""
    values = np.asarray(Z)
    size = np.abs(values).max(axis=0, keepdims=True)
    candidates = [values.std(axis=0, keepdims=True)]
    if x is not None and x.shape[1] == Z.shape[1]:
        candidates.append(np.asarray(x).std(axis=0, keepdims=True))
    spread = np.where(size > 0, size, 1.0)
    for candidate in reversed(candidates):
        spread = np.where(candidate > 1e-6 * size, candidate, spread)
    return jnp.asarray(spread, Z.dtype)


def _output_size(layer: SparseGP, x: Array | None) -> Float[Array, ""]:
    """The prior standard deviation of a latent."""
    if x is None:
        return jnp.sqrt(jnp.mean(jax.vmap(lambda K: K.diagonal())(layer.Kuu())))
    return jnp.sqrt(jnp.mean(layer.prior.Kff_diag(x[:256])))


def minibatch(data: Data, order: Int[Array, " N"], step: Array, size: int) -> Data:
    """The rows of one step: consecutive pieces of the shuffled `order`, which holds one epoch."""
    start = (step % (order.shape[0] // size)) * size
    return data.rows(jax.lax.dynamic_slice(order, (start,), (size,)))
