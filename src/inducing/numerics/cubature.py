"""Expectations under Gaussians of several dimensions: tensor and quasi-Monte Carlo rules."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.numerics.special import safe_sqrt


@functools.cache
def tensor_rule(dim: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [K, dim] and weights [K] for N(0, I): a product of trapezoid rules of `num` nodes without its corners."""
    reach = 6.5
    z1 = np.linspace(-reach, reach, num)
    z = np.stack(np.meshgrid(*[z1] * dim, indexing="ij"), -1).reshape(-1, dim)
    z = z[(z**2).sum(-1) <= reach**2 * 1.0001]
    w = np.exp(-0.5 * (z**2).sum(-1))
    return z, w / w.sum()


@functools.cache
def qmc_rule(dim: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [num, dim] and weights [num] for N(0, I): antithetic pairs of scrambled Sobol points with a fixed seed."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    half = num // 2
    sobol = qmc.Sobol(dim, scramble=True, rng=np.random.default_rng(0))
    u = sobol.random_base2(math.ceil(math.log2(half)))[:half]
    z = ndtri(np.clip(u, 1e-12, 1 - 1e-12))
    z = np.concatenate([z, -z])
    return z, np.full(len(z), 1.0 / len(z))


@functools.cache
def matched_rule(dim: int, num: int) -> np.ndarray:
    """Nodes [num, dim] of equal weight for N(0, I): those of `qmc_rule`, made to have the covariance I.

    Being antithetic as well, they integrate all polynomials of degree three exactly. In more than num/4 dimensions
    they are too few for that, and only their variances are made 1.
    """
    z = qmc_rule(dim, num)[0]
    if 4 * dim > num:
        return z / np.sqrt((z**2).mean(axis=0))
    values, vectors = np.linalg.eigh(z.T @ z / len(z))
    return z @ (vectors / np.sqrt(values)) @ vectors.T


def root(cov: Float[Array, "*N F F"]) -> Float[Array, "*N F F"]:
    """A lower-triangular square root of positive semi-definite matrices, singular ones included.

    Columns whose pivot vanishes are set to zero, with zero derivative, so that zero variances and perfectly correlated
    latents are allowed. F, the number of latents of one datum, is small.
    """
    F = cov.shape[-1]
    eps = jnp.finfo(cov.dtype).eps
    diagonal = jnp.diagonal(cov, axis1=-2, axis2=-1)
    columns = []
    rest = cov
    for i in range(F):
        pivot = rest[..., i, i]
        good = pivot > 10 * eps * jnp.abs(diagonal[..., i])
        scale = jnp.where(good, jax.lax.rsqrt(jnp.where(good, pivot, 1.0)), 0.0)
        below = jnp.asarray(np.arange(F) >= i, cov.dtype)
        column = rest[..., :, i] * scale[..., None] * jnp.broadcast_to(below, rest.shape[:-1])
        rest = rest - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return jnp.stack(columns, axis=-1)


def gaussian_nodes(mean: Float[Array, "*N F"], cov: Float[Array, "..."], z: np.ndarray) -> Float[Array, "K *N F"]:
    """Nodes z [K, F] for N(0, I), mapped to N(mean, cov); cov is [*N, F] (variances) or [*N, F, F]."""
    nodes = jnp.asarray(z, mean.dtype)
    if cov.ndim == mean.ndim:
        return mean[None] + safe_sqrt(cov)[None] * nodes.reshape((len(z),) + (1,) * (mean.ndim - 1) + (z.shape[-1],))
    return mean[None] + jnp.einsum("...fg,kg->k...f", root(cov), nodes)
