"""Nodes and weights of the integrals that define features, computed once in NumPy."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Array, Float

from inducing._xla import in_blocks
from inducing.parameters import at_least_one

MOST_NODES = 2**23
BLOCK = 8192


@functools.cache
def gauss_legendre(num: int, panels: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1]: `panels` equal pieces with `num` Gauss–Legendre points each.

    >>> t, w = gauss_legendre(3)
    >>> round(float(np.sum(w * t**4)), 12)
    0.2
    """
    x, w = np.polynomial.legendre.leggauss(num)
    x, w = 0.5 * (x + 1.0), 0.5 * w
    return ((np.arange(panels)[:, None] + x[None, :]) / panels).reshape(-1), np.tile(w / panels, panels)


@functools.cache
def gauss_hermite(num: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of expectations under N(0, 1).

    >>> x, w = gauss_hermite(4)
    >>> round(float(np.sum(w * x**4)), 12)
    3.0
    """
    x, w = np.polynomial.hermite_e.hermegauss(num)
    return x, w / np.sqrt(2.0 * np.pi)


@functools.cache
def gaussian_grid(num: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of expectations under N(0, 1), at equal steps over about ±reach, exact up to third powers.

    They suit rough functions: they resolve everything longer than two steps, while Gauss–Hermite quadrature spends many
    of its nodes in the tails.

    >>> x, w = gaussian_grid(32, 4.5)
    >>> round(float(np.sum(w * x**2)), 12), bool(abs(np.sum(w * np.cos(9.0 * x))) < 1e-4)      # exp(−40.5)
    (1.0, True)
    """
    x = np.linspace(-reach, reach, num)
    w = np.exp(-0.5 * x**2)
    w = w / w.sum()
    return x / np.sqrt(np.sum(w * x**2)), w


def tensor(nodes: np.ndarray, weights: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The product rule in `dim` dimensions: nodes [n**dim, dim] and weights [n**dim].

    >>> tensor(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 2)[0].shape
    (4, 2)
    """
    check_nodes([len(nodes)] * dim)
    grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    return grid, functools.reduce(np.multiply.outer, [weights] * dim).reshape(-1)


def check_nodes(sizes: Sequence[int]) -> None:
    """Raise a ValueError for a grid without nodes or with more than `MOST_NODES`, before it is made.

    >>> check_nodes([1000, 1000, 1000])
    Traceback (most recent call last):
        ...
    ValueError: the integrals need a grid of 1000 × 1000 × 1000 = 1000000000 nodes, more than 8388608; use fewer \
features or nodes in each dimension, features.Additive, or features.InducingPoints.
    """
    for n in sizes:
        at_least_one("the number of nodes in each dimension", n)
    total = int(np.prod(np.array(sizes, float)))
    if total > MOST_NODES:
        raise ValueError(
            f"the integrals need a grid of {' × '.join(str(n) for n in sizes)} = {total} nodes, more than "
            f"{MOST_NODES}; use fewer features or nodes in each dimension, features.Additive, or "
            "features.InducingPoints."
        )


def at_nodes(f: Callable[[Float[Array, "n D"]], Array], X: Float[Array, "G D"]) -> Array:
    """f(X) [G, …] at the nodes X, in equal blocks of at most `BLOCK`: a draw of J waves needs arrays [BLOCK, J].

    >>> import jax.numpy as jnp
    >>> at_nodes(lambda X: X[:, 0], jnp.ones((20000, 1))).shape
    (20000,)
    """
    blocks = -(-X.shape[0] // BLOCK)
    return in_blocks(f, X, -(-X.shape[0] // blocks))
