"""Barriers: what is behind one is computed once, not again in each loop that uses it."""

import jax
from jaxtyping import Array

barrier = jax.lax.optimization_barrier
"""The arrays of a pytree as they are; XLA fuses nothing across it."""


def apart(x: Array) -> Array:
    """x, in memory that the loop which uses it does not write over.

    A loop over x that writes where x was is compiled without vector instructions (in XLA's older way of compiling
    loops, it cannot tell that the two overlap exactly); with exponentials or logarithms that costs a factor of three.
    A loop that reads x in another shape than it writes does not overwrite it.

    >>> import jax.numpy as jnp
    >>> apart(jnp.zeros((1, 2))).tolist()
    [[0.0, 0.0]]
    """
    return barrier(x.reshape(-1)).reshape(x.shape)
