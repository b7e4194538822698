"""Small problems that the tests of training share, so that they compile once."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import inducing as ig

quiet = partial(ig.fit, progress=False)
elbo = eqx.filter_jit(ig.elbo)


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


MAPPED = ("lmc", "coregionalised", "as input", "derivative", "smoothed", "matrix", "image")


def mapped(name):
    """A prior of that kind, which maps its latents, with inputs, and the inputs of its latents."""
    p, k = ig.priors, ig.kernels
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20, 2)) * [10.0, 0.1]
    lmc = p.LMC([[1.0, 0.3], [2.0, 0.0], [0.5, 5.0]], [k.Matern52([1.0, 1.0]), k.Matern32([1.0, 1.0])])
    if name == "lmc":
        return lmc, x, x
    if name == "coregionalised":
        return p.IntrinsicCoregionalisation([1.0, 0.5], [0.3, 0.1], k.Matern52([1.0, 1.0])), x, x
    if name == "as input":
        return p.as_input(lmc), np.concatenate([x, np.arange(20)[:, None] % 3], axis=1), x
    if name == "derivative":
        return p.Derivative(ig.GP(k.Matern52([1.0, 1.0])), dim=2), x, x
    if name == "smoothed":
        smoothing = p.GaussianSmoothing([[0.1], [0.5]])
        return p.ConvolutionProcess(smoothing, k.SquaredExponential([1.0, 1.0])), x, x
    if name == "matrix":
        pair = k.ActiveDims(k.Coregion([[1.0], [2.0]], [0.5, 0.5]), (2,))
        return p.MatrixValued(k.ActiveDims(k.Matern52([1.0, 1.0]), (0, 1)) * pair, num_outputs=2), x, x
    images = rng.normal(size=(20, 3, 4)) * np.arange(1.0, 13.0).reshape(3, 4)
    patches = [images[:, i : i + 2, j : j + 2].reshape(20, 4) for i in range(2) for j in range(3)]
    prior = p.ImageConvolution(k.Matern52(), (3, 4), (2, 2), weights=True)
    return prior, images.reshape(20, 12), np.concatenate(patches)


def leaves(model):
    """All arrays of a model."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model)]


def same(a, b, rtol=0.0):
    """Whether two models hold the same numbers: exactly, or but for the rounding of exp(log x)."""
    return all(np.allclose(x, y, rtol, 0.0) for x, y in zip(leaves(a), leaves(b), strict=True))
