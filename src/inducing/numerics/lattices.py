"""Randomised quasi-Monte Carlo: randomly shifted lattices of standard normal numbers."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float


@functools.cache
def lattice(num: int, dim: int) -> Float[np.ndarray, "num dim"]:
    """The points i z / num mod 1 of a rank-1 lattice in the unit cube.

    The generator z is chosen one component after the other, each to minimise the mean square error of a randomly
    shifted lattice over periodic functions with square-integrable first derivatives:

        1/num Σ_i Π_j (1 + γ 2π² B₂(i z_j / num)),    γ = 0.3 / dim,  B₂(x) = x² − x + 1/6

    So small a weight γ makes the projections on two dimensions count most.

    Args:
        num: the number of points.
        dim: the dimension of the cube.

    Returns:
        The points, the first of which is 0.

    Examples:
        >>> lattice(4, 1)[:, 0].tolist()
        [0.0, 0.25, 0.5, 0.75]
    """
    i = np.arange(num)
    coprime = np.array([z for z in range(1, num // 2 + 1) if math.gcd(z, num) == 1] or [1])
    tried = int(np.clip(2**22 // (num * max(dim, 1)), 8, 256))
    candidates = coprime[np.unique(np.linspace(0, len(coprime) - 1, tried).astype(int))]
    product, columns, weight = np.ones(num), [], 0.3 / max(dim, 1)
    for j in range(dim):
        some = candidates[:1] if j == 0 else candidates
        x = some[:, None] * i % num / num
        factors = 1.0 + weight * 2.0 * np.pi**2 * (x**2 - x + 1.0 / 6.0)
        best = int(np.argmin(factors @ product))
        product = product * factors[best]
        columns.append(x[best])
    return np.stack(columns, axis=1) if columns else np.zeros((num, 0))


def lattice_normal(key: Array, num: int, dim: int, dtype) -> Float[Array, "num dim"]:
    """Standard normal numbers by a randomly shifted lattice.

    Each point by itself is a standard normal vector, so means over the points are unbiased. Together the points fill
    the space evenly: for smooth functions the error falls nearly as 1/num. A single point is a plain random vector.

    Args:
        key: a random key for the shift.
        num: the number of points.
        dim: their dimension.
        dtype: the floating-point type of the result.

    Returns:
        The points.

    Examples:
        >>> z = lattice_normal(jax.random.key(0), 1024, 2, float)
        >>> print(abs(z.mean(axis=0)).max() < 1e-3, abs(z.var(axis=0) - 1).max() < 1e-2)
        True True
    """
    shift = jax.random.uniform(key, (1, dim), dtype)
    u = jnp.asarray(lattice(num, dim), dtype) + shift
    info = jnp.finfo(dtype)
    return ndtri(jnp.clip(u - jnp.floor(u), float(info.tiny), 1.0 - float(info.epsneg)))
