"""Nodes and weights of the integrals that define features: constants, computed once in NumPy."""

import functools

import numpy as np


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


def tensor(nodes: np.ndarray, weights: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The product rule in `dim` dimensions: nodes [n**dim, dim] and weights [n**dim].

    >>> tensor(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 2)[0].shape
    (4, 2)
    """
    grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    return grid, functools.reduce(np.multiply.outer, [weights] * dim).reshape(-1)
