"""Starting values: inducing inputs and scales from data."""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import check_memory, default_jit
from inducing.data import as_inputs
from inducing.kernels.base import AbstractKernel
from inducing.parameters import as_key, check_part, dtype_of
from inducing.training.scales import scales as scales

ROWS, ITERATIONS = 20_000, 20  # the most rows and iterations of k-means


def random_subset(X: Any, M: int, *, key: Array | None = None) -> Float[Array, "M D"]:
    """Choose distinct rows of X at random.

    Args:
        X: inputs [N, D] or [N].
        M: the number of rows.
        key: a JAX random key (default: key 0). The same key gives the same rows.

    Returns:
        M rows of X; all distinct rows if there are fewer.

    Raises:
        ValueError: if M is not a whole number of at least 1.

    Examples:
        >>> import inducing as ig
        >>> ig.initialise.random_subset([0.0, 1.0, 2.0, 3.0], 2).shape
        (2, 1)
    """
    X = as_inputs(X)
    M = _checked_size(M)
    rows = np.asarray(X) + 0.0  # so that −0 equals 0 byte by byte
    order = _generator(key).permutation(len(rows))
    kept: dict[bytes, int] = {}
    for i in order:
        kept.setdefault(rows[i].tobytes(), int(i))
        if len(kept) == M:
            break
    return X[jnp.asarray(list(kept.values()))]


def kmeans(X: Any, M: int, *, lengthscales: Any = None, key: Array | None = None) -> Float[Array, "M D"]:
    """Find centres of X by k-means: Lloyd's iterations from k-means++ seeds.

    Each column is measured in units of its spread, or of its lengthscale. If X has more than 20,000 rows, a random
    subset of that size is used.

    Args:
        X: inputs [N, D] or [N].
        M: the number of centres.
        lengthscales: those of a trained kernel [D]; the centres then ignore columns that the kernel ignores.
        key: a JAX random key (default: key 0). The same key gives the same centres.

    Returns:
        M centres. If X has at most M distinct rows, these are returned; there may be fewer than M also if rows differ
        only by rounding errors.

    Raises:
        ValueError: if M is not a whole number of at least 1.

    Examples:
        >>> import inducing as ig
        >>> sorted(ig.initialise.kmeans([0.0, 0.1, 5.0, 5.1], 2)[:, 0].tolist())
        [0.05, 5.05]
    """
    X = as_inputs(X)
    M = _checked_size(M)
    rng = _generator(key)
    rows = np.asarray(X, float)
    if len(rows) > ROWS:
        rows = rows[rng.choice(len(rows), ROWS, replace=False)]
    size = np.abs(rows).max(axis=0)  # divide by it first, so that squares neither overflow nor underflow
    size = np.where(size > 0, size, 1.0)
    centre, spread = size * (rows / size).mean(axis=0), size * (rows / size).std(axis=0)
    spread = np.where(spread > 0, spread, size)
    if lengthscales is not None:
        spread = np.broadcast_to(np.asarray(lengthscales, float), spread.shape)
    distinct, weight = np.unique(rows, axis=0, return_counts=True)
    if len(distinct) <= M:
        return jnp.asarray(distinct, X.dtype)
    points = (distinct - centre) / spread
    centres = _seeds(points, weight, M, rng)
    for _ in range(ITERATIONS):
        moved = _lloyd(points, weight, centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return jnp.asarray(centres * spread + centre, X.dtype)


def _seeds(points: np.ndarray, weight: np.ndarray, M: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++: each seed is drawn with probability proportional to its squared distance from the previous seeds."""
    chosen = [int(rng.choice(len(points), p=weight / weight.sum()))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    for _ in range(M - 1):
        mass = distance * weight
        if not mass.sum() > 0:  # up to rounding, all others equal a seed, as next to an outlier of 1e20
            break
        chosen.append(int(rng.choice(len(points), p=mass / mass.sum())))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]


def _lloyd(points: np.ndarray, weight: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """One iteration; a centre that is nearest to no point stays."""
    nearest = np.empty(len(points), int)
    half = 0.5 * (centres**2).sum(axis=1)
    for start in range(0, len(points), 4096):
        block = points[start : start + 4096]
        nearest[start : start + 4096] = np.argmin(half - block @ centres.T, axis=1)
    mass = np.bincount(nearest, weights=weight, minlength=len(centres))
    sums = np.stack([np.bincount(nearest, weights=weight * c, minlength=len(centres)) for c in points.T], axis=1)
    return np.where(mass[:, None] > 0, sums / np.maximum(mass, 1)[:, None], centres)


def greedy_variance(kernel: AbstractKernel, X: Any, M: int) -> Float[Array, "M D"]:
    """Choose rows of X one by one, each with the largest variance given the rows before it (Burt et al. 2020).

    The choice is deterministic and costs O(N M²).

    Args:
        kernel: the kernel of the prior.
        X: inputs [N, D] or [N].
        M: the number of rows.

    Returns:
        M rows of X; fewer if the remaining variance is rounding error, as for duplicated rows.

    Raises:
        ValueError: if M is not a whole number of at least 1.

    Examples:
        >>> import inducing as ig
        >>> Z = ig.initialise.greedy_variance(ig.kernels.SquaredExponential(), [0.0, 0.1, 5.0, 5.1], 2)
        >>> sorted(Z[:, 0].tolist())
        [0.0, 5.0]
    """
    check_part("kernel", kernel, AbstractKernel)
    X = as_inputs(X)
    M = min(_checked_size(M), len(X))
    check_memory("a factor of the kernel matrix", (M, len(X)), float, "choose fewer points, or use kmeans")
    return X[_greedy(kernel, X.astype(dtype_of(kernel)), M)]


@default_jit
def _column(kernel: AbstractKernel, X: Array, i: Array) -> Array:
    return kernel.gram(X, X[i][None, :])[:, 0]


def _greedy(kernel: AbstractKernel, X: Array, M: int) -> Array:
    """The pivots of a Cholesky factorisation of Kff that always takes the largest one."""
    variance = np.array(kernel.diag(X), float)
    smallest = 1e-10 * variance.max()
    factor = np.zeros((M, len(X)))
    chosen: list[int] = []
    for m in range(M):
        i = int(np.argmax(variance))
        if variance[i] <= smallest:
            break
        chosen.append(i)
        k = np.asarray(_column(kernel, X, jnp.asarray(i)), float)
        factor[m] = (k - factor[:m, i] @ factor[:m]) / np.sqrt(variance[i])
        variance = np.maximum(variance - factor[m] ** 2, 0.0)
        variance[chosen] = 0.0
    return jnp.asarray(chosen, int)


def _checked_size(M: int) -> int:
    if not isinstance(M, numbers.Real) or M % 1 != 0 or M < 1:
        raise ValueError(f"M must be a whole number of at least 1, got {M!r}.")
    return int(M)


def _generator(key: Array | None) -> np.random.Generator:
    """A NumPy generator seeded by a JAX key; None is key 0."""
    if key is None:
        return np.random.default_rng([0, 0])
    key = as_key(key)
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.random.default_rng(np.asarray(data).astype(np.uint32).reshape(-1).tolist())
