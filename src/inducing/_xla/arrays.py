"""Arrays made without compiling a program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla.fork import refuse_after_fork


def own_array(value: Any, dtype: Any) -> Array:
    """Make a JAX array of concrete values, in its own memory.

    `jnp.array` would compile a program for each new shape.

    Args:
        value: an array or nested lists of numbers.
        dtype: the type of the entries; float64 becomes float32 where JAX does not use 64 bits.

    Returns:
        The array. Later changes of `value` do not affect it.

    Examples:
        >>> own_array([1, 2], float).tolist()
        [1.0, 2.0]
    """
    refuse_after_fork()
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    return jnp.asarray(np.array(value, dtype), dtype)  # with an explicit dtype JAX takes NumPy's array as it is


def take_rows(a: Array, i: Any) -> Array:
    """The rows i of an array. Those of concrete arrays are copied by NumPy, which compiles nothing.

    Args:
        a: an array [N, ...].
        i: integers [n].

    Examples:
        >>> take_rows(own_array([1.0, 2.0, 3.0], float), [2, 0]).tolist()
        [3.0, 1.0]
    """
    if isinstance(a, jax.core.Tracer) or isinstance(i, jax.core.Tracer):
        return a[i]
    return own_array(np.asarray(a)[np.asarray(i)], a.dtype)
