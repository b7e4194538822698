"""Several devices, of one process or of several: rows are spread over them, and everything else is replicated.

Programs run under `shard_map`. Each device computes on its own rows. A sum over the devices is a single all-reduce of
one vector, because an all-reduce of some kilobytes is dominated by latency.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from inducing._xla.arrays import own_array

AXIS = "devices"


def num_devices() -> int:
    """The number of devices of all processes.

    Examples:
        >>> num_devices()
        1
    """
    return jax.device_count()


def process() -> tuple[int, int]:
    """The number of this process, and the number of processes.

    Examples:
        >>> process()
        (0, 1)
    """
    return jax.process_index(), jax.process_count()


@functools.cache
def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), (AXIS,))


def spread(arrays: list[np.ndarray]) -> list[Array]:
    """Make arrays whose rows are spread over all devices.

    Args:
        arrays: the rows of this process; every process passes the same number.

    Examples:
        >>> spread([np.ones(2)])[0].tolist()
        [1.0, 1.0]
    """
    if jax.device_count() == 1:
        return [own_array(a, a.dtype) for a in arrays]
    rows = NamedSharding(_mesh(), PartitionSpec(AXIS))
    return [jax.make_array_from_process_local_data(rows, a) for a in arrays]


def copied(tree: Any) -> Any:
    """Copy each array of a pytree to all devices. Every process passes the same values.

    Examples:
        >>> copied((jnp.ones(()), "text"))[1]
        'text'
    """
    if jax.device_count() == 1:
        return tree
    everywhere = NamedSharding(_mesh(), PartitionSpec())
    return _map_arrays(lambda a: jax.make_array_from_process_local_data(everywhere, np.asarray(a)), tree)


def local(tree: Any) -> Any:
    """Replace each array that is replicated on all devices by the copy on a device of this process.

    Examples:
        >>> local([jnp.ones(2)])[0].tolist()
        [1.0, 1.0]
    """
    if jax.device_count() == 1:
        return tree
    return _map_arrays(lambda a: own_array(np.asarray(a.addressable_data(0)), a.dtype), tree)


def _map_arrays(fn: Callable[[Array], Array], tree: Any) -> Any:
    """A pytree with fn of each array; of random keys, fn of the numbers that they hold."""

    def one(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(fn(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        return fn(leaf)

    return jax.tree.map(one, tree)


def on_each_device(fn: Callable, same: tuple, rows: tuple, summed: bool = True) -> Any:
    """Evaluate a function on each device, with its share of the rows.

    Args:
        fn: a function of all of `same` and `rows`, whose results are arrays.
        same: arguments that are the same on all devices.
        rows: arguments whose arrays are spread over the devices.
        summed: whether the results are the same on all devices, because they come from `mean_over_devices` or
            `sum_over_devices`. Otherwise they have a leading axis of the devices.

    Examples:
        >>> float(on_each_device(lambda a, x: a * sum_over_devices(x.sum()), (2.0,), (jnp.ones(3),)))
        6.0
    """
    if jax.device_count() == 1:
        return fn(*same, *rows)
    arrays, rest = eqx.partition((same, rows), eqx.is_array)

    def on_one(same: Any, rows: Any) -> Any:
        same, rows = eqx.combine((same, rows), rest)
        return fn(*same, *rows)

    out = PartitionSpec() if summed else PartitionSpec(AXIS)
    specs = (PartitionSpec(), PartitionSpec(AXIS))
    return jax.shard_map(on_one, mesh=_mesh(), in_specs=specs, out_specs=out, check_vma=False)(*arrays)


def sum_over_devices(tree: Any) -> Any:
    """The sum of each array over the devices, inside `on_each_device`, by one all-reduce."""
    if jax.device_count() == 1:
        return tree
    vector, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(vector, AXIS))


def mean_over_devices(tree: Any) -> Any:
    """The mean of each array over the devices, inside `on_each_device`, by one all-reduce."""
    if jax.device_count() == 1:
        return tree
    vector, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(vector, AXIS) / jax.device_count())


def key_of_device(key: Array) -> Array:
    """A different random key for each device, inside `on_each_device`."""
    return key if jax.device_count() == 1 else jax.random.fold_in(key, jax.lax.axis_index(AXIS))
