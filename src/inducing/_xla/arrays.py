"""Arrays that are made without compiling a program."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def own_array(value: Any, dtype: Any) -> Array:
    """A JAX array, in memory of its own, of concrete values. `jnp.array` would compile a program for each new shape.

    >>> own_array([1, 2], float).tolist()
    [1.0, 2.0]
    """
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    return jnp.asarray(np.array(value, dtype), dtype)  # with its dtype said, JAX takes NumPy's array as it is
