"""Barriers: they make XLA compute an expression once instead of once in each loop that uses it."""

import jax
from jaxtyping import Array

barrier = jax.lax.optimization_barrier
"""Return the arrays of a pytree unchanged. XLA does not fuse operations across a barrier."""


def apart(x: Array) -> Array:
    """Return x in memory that the loop which uses it does not overwrite.

    XLA may let a loop over x write its result where x is stored. The older of its two ways to compile loops, which we
    use, cannot tell that input and output overlap exactly, and so it compiles such a loop without vector instructions.
    For exponentials and logarithms that costs a factor of three. A loop that reads x in another shape than it writes
    does not overwrite x, hence the reshaping.

    Args:
        x: an array of any shape.

    Returns:
        x.

    Examples:
        >>> import jax.numpy as jnp
        >>> apart(jnp.zeros((1, 2))).tolist()
        [[0.0, 0.0]]
    """
    return barrier(x.reshape(-1)).reshape(x.shape)
