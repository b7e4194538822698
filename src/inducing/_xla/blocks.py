"""Functions of many rows, evaluated block by block to limit memory."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def in_blocks(fn: Callable, X: Float[Array, "N D"], size: int) -> Float[Array, "N ..."]:
    """fn of the rows of X, at most `size` of them at a time; the reverse pass recomputes each block.

    Args:
        fn: a function of rows [n, D] with values [n, …], each of which depends on its own row alone.
        X: rows [N, D].
        size: the largest number of rows in a block; less than 1 counts as 1.

    Returns:
        fn(X) [N, …].

    Examples:
        >>> in_blocks(lambda X: X[:, 0], jnp.ones((20000, 1)), 8192).shape
        (20000,)
    """
    N = X.shape[0]
    if not isinstance(N, int):  # a symbol, under `jax.export`: rows cannot be counted
        return fn(X)
    size = min(max(size, 1), N)
    blocks = -(-N // size)
    if blocks == 1:
        return fn(X)
    padded = jnp.pad(X, [(0, blocks * size - N), (0, 0)], mode="edge").reshape(blocks, size, -1)
    # A function of its own, because `checkpoint` hashes what it is given, and a module with traced arrays has no hash.
    out = jax.lax.map(jax.checkpoint(lambda rows: fn(rows)), padded)
    return out.reshape(blocks * size, *out.shape[2:])[:N]
