"""Small problems that the tests of training share, so that they compile once."""

import jax
import jax.numpy as jnp
import numpy as np

import inducing as ig


def wave(num=60, noise=0.2, seed=0, dtype=float):
    """Noisy sines on [0, 4]: inputs [N, 1] and labels [N]."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 4.0, size=(num, 1))
    return X.astype(dtype), (np.sin(3.0 * X[:, 0]) + noise * rng.normal(size=num)).astype(dtype)


def regression(Z=None, *, num=16, coordinates="w", noise=0.3, kernel=None, dtype=float, **options):
    """A sparse GP with Gaussian noise."""
    Z = np.linspace(0.0, 4.0, num)[:, None] if Z is None else Z
    if kernel is None:
        kernel = ig.kernels.Matern52(lengthscale=jnp.asarray(0.8, dtype), variance=jnp.asarray(1.3, dtype))
    gp = ig.SparseGP(
        ig.GP(kernel), ig.features.InducingPoints(np.asarray(Z, dtype)), coordinates=coordinates, **options
    )
    return ig.Model(gp, ig.likelihoods.Gaussian(jnp.asarray(noise, dtype)))


def leaves(model):
    """All arrays of a model."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model)]


def same(a, b, rtol=0.0):
    """Whether two models hold the same numbers: exactly, or but for the rounding of exp(log x)."""
    return all(np.allclose(x, y, rtol, 0.0) for x, y in zip(leaves(a), leaves(b), strict=True))
