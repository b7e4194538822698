"""The optimisation problem: the trained arrays of a model, each in its own unit."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array
from inducing.data import Data, repeated_by_weight
from inducing.model import Model
from inducing.parameters import LOWER_TRIANGULAR, ORDERED, REAL, Constraint, Partition


class Problem(eqx.Module):
    """A model split for training.

    Positive parameters are trained through their logarithm and need no unit. Locations such as inducing inputs have
    one, so that a step has the same effect whatever the units of the data. The origin of a location is its starting
    value, so that a location that does not move, such as one in a column of categories, keeps its value exactly.

    Attributes:
        partition: the model split into free arrays and all the rest.
        units: for each free array its origin and its unit, or None.
    """

    partition: Partition
    units: list[tuple[Array, Array] | None]

    @property
    def free(self) -> list[Any]:
        """The initial values of the free arrays, in their units."""
        pairs = zip(self.partition.free, self.units, strict=True)
        return [f if unit is None else (f - unit[0]) / unit[1] for f, unit in pairs]

    def model(self, free: list[Array]) -> Any:
        """The model with the natural values of these free arrays."""
        pairs = zip(free, self.units, strict=True)
        return self.partition.model([f if unit is None else unit[0] + f * unit[1] for f, unit in pairs])


def make_problem(model: Model, partition: Partition, data: Data) -> Problem:
    """A problem whose parameters move in the units that the layers ask for.

    Args:
        model: the model at the start.
        partition: the model, or one of the same structure, split for training.
        data: the training data.
    """
    where = free_positions(model, partition)
    q = {id(leaf) for layer in model.layers for leaf in jax.tree.leaves(layer.gaussians())}
    units: list[tuple[Array, Array] | None] = [None] * len(partition.free)
    x = repeated_by_weight(data).x
    for i, layer in enumerate(model.layers):
        for leaf, unit in layer.units(x if i == 0 else None):
            if id(leaf) in where:
                j = where[id(leaf)]
                start, constraint = np.asarray(partition.free[j]), partition.constraints[j]
                units[j] = _origin_and_unit(np.zeros((), start.dtype) if id(leaf) in q else start, unit, constraint)
    return Problem(partition, units)


def _origin_and_unit(start: np.ndarray, unit: Any, constraint: Constraint) -> tuple[Array, Array] | None:
    """The origin and unit of a free array of locations; None for other arrays.

    Of an ordered array, only the first entry is a location. The others are logarithms of differences.
    """
    if constraint is ORDERED:
        first = np.arange(start.size) == 0
        start, unit = np.where(first, start, 0.0), np.where(first, unit, 1.0)
    elif constraint not in (REAL, LOWER_TRIANGULAR):
        return None
    return own_array(start, start.dtype), own_array(unit, start.dtype)


def free_positions(model: Model, partition: Partition) -> dict[int, int]:
    """The position of each array of the model among the free arrays, by the identity of the array."""
    leaves = zip(jax.tree.leaves(model), partition.slots, strict=True)
    return {id(leaf): i for leaf, (trained, i) in leaves if trained}


def flat(arrays: Iterable[Any]) -> np.ndarray:
    """The entries of all arrays as one float64 vector, for SciPy.

    Examples:
        >>> flat([np.ones((1, 2)), 3]).tolist()
        [1.0, 1.0, 3.0]
    """
    return np.concatenate([np.asarray(a, float).reshape(-1) for a in arrays])


def restore_ties(model: Any, partition: Partition) -> Any:
    """The model with one array in all places that `partition` ties. Compiled code returns a copy for each place."""
    leaves, treedef = jax.tree.flatten(model)
    places = [(trained, i if trained else id(partition.rest[i])) for trained, i in partition.slots]
    one: dict[tuple[bool, int], Any] = {}
    return treedef.unflatten([one.setdefault(place, leaf) for place, leaf in zip(places, leaves, strict=True)])
