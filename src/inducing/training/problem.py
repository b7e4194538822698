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

from inducing._xla import default_jit, own_array
from inducing.bounds.iw_global import iw_elbo_global
from inducing.data import Data
from inducing.kernels.composite import ActiveDims, ChangePoint
from inducing.layers.deterministic import first_layer
from inducing.layers.sparse_gp import SparseGP, sparse_gps
from inducing.means import Constant, Linear
from inducing.parameters import Partition
from inducing.priors.as_input import OutputAsInput
from inducing.training.scales import latent_inputs


class Objective(eqx.Module):
    """objective(model, data) plus an optional log prior, called with those of key and num_data that it accepts.

    `iw_elbo_global` has no use for minibatches, whatever it accepts.
    """

    fn: Callable = eqx.field(static=True)
    log_prior: Callable | None = eqx.field(static=True)
    takes_key: bool = eqx.field(static=True)
    takes_num_data: bool = eqx.field(static=True)

    def __init__(self, fn: Callable, log_prior: Callable | None = None):
        names = inspect.signature(fn).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
        self.fn, self.log_prior = _known(fn), log_prior
        self.takes_key = anything or ("key" in names and "key" not in bound(fn))
        scales = anything or ("num_data" in names and "num_data" not in bound(fn))
        self.takes_num_data = scales and base(fn) is not iw_elbo_global

    def __call__(self, model: Any, data: Data, key: Array | None, num_data: int) -> Float[Array, ""]:
        kwargs: dict[str, Any] = {"key": key} if self.takes_key else {}
        if self.takes_num_data:
            kwargs["num_data"] = num_data
        value = _number("objective(model, data)", self.fn(model, data, **kwargs))
        return value if self.log_prior is None else value + _number("log_prior(model)", self.log_prior(model))


_partials: dict[Any, Callable] = {}


def _known(fn: Callable) -> Callable:
    """For a `functools.partial`, the first one that held the same: it has been compiled."""
    if not isinstance(fn, functools.partial):
        return fn
    options = frozenset((name, type(value)) for name, value in fn.keywords.items())  # 1 and 1.0 are equal
    try:
        return _partials.setdefault((fn.func, fn.args, options, frozenset(fn.keywords.items())), fn)
    except TypeError:  # options without a hash, such as arrays
        return fn


def _number(name: str, value: Any) -> Float[Array, ""]:
    if jnp.shape(value):
        raise ValueError(f"{name} must be one number, got shape {jnp.shape(value)}; sum it.")
    return value


def base(fn: Callable) -> Callable:
    """The function behind a `functools.partial`."""
    return fn.func if isinstance(fn, functools.partial) else fn


def bound(fn: Callable) -> dict[str, Any]:
    """The options that a `functools.partial` holds."""
    return fn.keywords if isinstance(fn, functools.partial) else {}


class Problem(eqx.Module):
    """A model split for training. What moves are its free arrays in `units`, each an origin and a size.

    Positive parameters are trained through their logarithm and need no unit (None); locations, such as inducing
    inputs, have one, so that a step is equally long in any units. Their origin is where they start: what does not move,
    such as a column of categories, stays exactly as it is.
    """

    partition: Partition
    units: list[tuple[Array, Array] | None]

    @property
    def free(self) -> list[Any]:
        """The arrays that move, at their start; by NumPy, if that is what the problem holds."""
        pairs = zip(self.partition.free, self.units, strict=True)
        return [f if unit is None else (f - unit[0]) / unit[1] for f, unit in pairs]

    def model(self, free: list[Array]) -> Any:
        """The model, with natural values, of free arrays."""
        p = self.partition
        pairs = zip(free, self.units, strict=True)
        values = [f if unit is None else unit[0] + f * unit[1] for f, unit in pairs]
        return Partition(values, p.rest, p.treedef, p.slots, p.constraints).model()

    def positions(self) -> Any:
        """A pytree like the model with the position of each array in `free`, or None where it does not train."""
        slots = [i if trained else None for trained, i in self.partition.slots]
        return jax.tree_util.tree_unflatten(self.partition.treedef, slots)


def make_problem(model: Any, partition: Partition, data: Data) -> Problem:
    """A problem whose locations move in units of the data's spread, or of their own where no data lie beside them."""
    problem = Problem(partition, [None] * len(partition.free))
    units: list[tuple[Array, Array] | None] = [None] * len(partition.free)
    positions: Any = sparse_gps(problem.positions())
    for layer, where in zip(sparse_gps(model), positions, strict=True):
        x = data.x if layer is first_layer(model) else None
        places = None if x is None else latent_inputs(layer.prior, x)
        for leaf, j in zip(jax.tree.leaves(layer.features), _leaves(where.features), strict=True):
            if j is not None and partition.constraints[j].name == "real" and leaf.ndim == 2:
                units[j] = leaf, _column_spread(leaf, places)
        if layer.coordinates != "w":
            size = _output_size(layer, None, None)
            for j in (where.mean, where.root):
                if j is not None:
                    units[j] = jnp.zeros((), size.dtype), size
        for latent, part in _with_means(where.prior):
            slopes = part.mean_function.weights if isinstance(part.mean_function, Linear) else None
            for j in jax.tree.leaves(part.mean_function):
                moves_up = isinstance(part.mean_function, Constant | Linear) or partition.free[j].size == 1
                if moves_up and partition.constraints[j].name == "real":
                    size = _output_size(layer, x, latent)
                    units[j] = partition.free[j], size / _row_spread(partition.free[j], x) if j == slopes else size
        for j, size in _change_points(where.prior, x):
            first = jnp.arange(partition.free[j].size) == 0  # of ordered numbers, the others move as logarithms
            units[j] = jnp.where(first, partition.free[j], 0.0), jnp.where(first, size, 1.0)
    return Problem(partition, units)


def tied_again(model: Any, partition: Partition) -> Any:
    """`model`, of the same structure, with one array again wherever `partition` has one: compiled code copies each."""
    leaves, treedef = jax.tree.flatten(model)
    places = [(trained, i if trained else id(partition.rest[i])) for trained, i in partition.slots]
    one: dict[tuple[bool, int], Any] = {}
    return treedef.unflatten([one.setdefault(place, leaf) for place, leaf in zip(places, leaves, strict=True)])


def _leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda v: v is None)


def _column_spread(Z: Float[Array, "M D"], x: np.ndarray | Array | None) -> Float[Array, "1 D"]:
    """The standard deviation of each column of the data, else that of Z, else the size of its entries.

    That of Z does not come first: a few centres far out make it many times that of the data.
    """
    values = np.asarray(Z)
    size = np.abs(values).max(axis=0, keepdims=True)
    spread = np.where(size > 0, size, 1.0)
    beside = x is not None and x.shape[1] == Z.shape[1]
    for points in (values, np.asarray(x)) if beside else (values,):
        deviation = points.std(axis=0, keepdims=True)
        spread = np.where(deviation > 10 * np.finfo(values.dtype).eps * size, deviation, spread)
    return own_array(spread, Z.dtype)


def _row_spread(weights: Array, x: Array | None) -> Array:
    """The standard deviation of the column of the data that each row of weights [D] or [D, P] multiplies."""
    if x is None or x.shape[1] != weights.shape[0]:
        return jnp.ones((), weights.dtype)
    spread = _column_spread(x, x)[0].astype(weights.dtype)
    return spread.reshape(-1, *[1] * (weights.ndim - 1))


def _change_points(where: Any, x: Array | None) -> list[tuple[int, Array]]:
    """The locations of each ChangePoint that trains, by their position, and the spread of the column they are in."""
    found: list[tuple[int, Array]] = []
    for part in jax.tree.leaves(where, is_leaf=lambda v: isinstance(v, ActiveDims | ChangePoint)):
        if isinstance(part, ActiveDims):
            found += _change_points(part.kernel, None if x is None else x[:, np.array(part.dims)])
        elif isinstance(part, ChangePoint):
            found += _change_points(part.kernels, x)
            if part.locations is not None and x is not None and part.dim < x.shape[1]:
                found.append((part.locations, _column_spread(x, x)[0, part.dim]))
    return found


def _with_means(prior: Any) -> list[tuple[int | None, Any]]:
    """The parts of a prior that have a mean function: itself (None), and its latents by their numbers; of a view or a
    derivative those of what it looks at."""
    if hasattr(prior, "prior"):
        return _with_means(prior.prior)
    latents = getattr(prior, "latents", ())
    parts = [(None, prior), *enumerate(getattr(latents, "latents", latents))]
    return [(number, part) for number, part in parts if hasattr(part, "mean_function")]


def _output_size(layer: SparseGP, x: Array | None, latent: int | None) -> Float[Array, ""]:
    """The prior standard deviation of a latent, or of all of them."""
    variances = np.asarray(_variances(layer, None if x is None else own_array(np.asarray(x)[:256], x.dtype)))
    return own_array(np.sqrt(np.mean(variances if latent is None else variances[latent])), variances.dtype)


@default_jit  # one program to compile, not one for each operation
def _variances(layer: SparseGP, x: Array | None) -> Array:
    prior = layer.prior
    if x is None:
        return jax.vmap(lambda K: K.diagonal())(layer.Kuu())
    if isinstance(prior, OutputAsInput):  # rows of one output may see nothing of a latent
        prior, x = prior.prior, x[:, :-1]
    return prior.Kff_diag(x)


def minibatch(data: Data, order: Int[Array, " N"], step: Array, size: int) -> Data:
    """The rows of one step: consecutive pieces of the shuffled `order`, which holds one epoch."""
    start = (step % (order.shape[0] // size)) * size
    return data.rows(jax.lax.dynamic_slice(order, (start,), (size,)))
