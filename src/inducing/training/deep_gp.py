"""Deep models with starting values that train well (section 4.4)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from inducing._xla import own_array
from inducing.checks import check_counts
from inducing.data import as_inputs
from inducing.features.points import InducingPoints
from inducing.kernels.base import AbstractKernel
from inducing.kernels.stationary import SquaredExponential
from inducing.layers.base import AbstractLayer
from inducing.layers.latent_variable import LatentVariable
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.means import AbstractMean, Constant, Identity, Linear
from inducing.model import Model, kind_of
from inducing.priors.gp import GP
from inducing.priors.independent import Independent
from inducing.training.initialise import kmeans

INNER_ROOT = 1e-3  # q(w) of inner layers starts almost deterministic, so that information flows through them
INNER_SCALE = 0.1  # standard deviation of an inner layer about its mean function, relative to the spread of its inputs


def deep_gp(
    X: Any,
    likelihood: AbstractLikelihood,
    *,
    num_layers: int = 2,
    width: int | None = None,
    num_outputs: int | None = None,
    num_inducing: int = 100,
    kernel: Callable[[int], AbstractKernel] | None = None,
    latent: LatentVariable | None = None,
) -> Model:
    """A deep GP of `num_layers` layers for inputs X, with the starting values that the theory recommends.

    Inner layers have `width` outputs (by default as many as X has columns, at most 30) that share kernel and inducing
    points; their mean is the identity, or where widths differ the projection on principal components, or zero-padding;
    their q(u) starts almost deterministic. Inducing points are k-means centres of X, carried upwards through the means.
    The last layer has a constant mean and starts at its prior. `num_outputs` is the number of functions that the
    likelihood needs for all columns of y; by default those of one column (of a `PerOutput`, of all).

    `kernel` makes a kernel from its number of inputs; by default a squared exponential with one lengthscale for each,
    from the spread of the inputs. `latent` is put first, and appends its latent variable to X; without inputs, for a
    deep GP-LVM, X is `np.zeros((N, 0))`.

    >>> import jax.numpy as jnp
    >>> import inducing as ig
    >>> X = jnp.linspace(0.0, 1.0, 30)[:, None]
    >>> model = ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_layers=3, num_inducing=10)
    >>> [type(layer.prior).__name__ for layer in model.layers]
    ['Independent', 'Independent', 'GP']
    """
    inputs = as_inputs(X)
    x, dtype = np.asarray(inputs, float), inputs.dtype
    if not isinstance(likelihood, AbstractLikelihood):
        raise TypeError(f"likelihood must be one of ig.likelihoods, got {kind_of(likelihood)}.")
    if num_outputs is None:
        num_outputs = likelihood.num_latents(len(likelihood.supports))
    check_counts(num_layers=num_layers, num_inducing=num_inducing, num_outputs=num_outputs)
    if width is not None:
        check_counts(width=width)
    if kernel is not None and (isinstance(kernel, AbstractKernel | type) or not callable(kernel)):
        got = kind_of(kernel) if isinstance(kernel, type) else f"a {type(kernel).__name__} itself"
        raise TypeError(
            "kernel must be a function that makes one from its number of inputs, such as "
            f"lambda D: ig.kernels.Matern52(np.ones(D)), since layers have different widths; got {got}."
        )
    Z = np.asarray(kmeans(x, num_inducing))
    layers: list[AbstractLayer] = []
    if latent is not None:
        if not isinstance(latent, LatentVariable):
            raise TypeError(f"latent must be an ig.LatentVariable, got {kind_of(latent)}.")
        layers.append(latent)
        rng = np.random.default_rng(0)
        Z = np.resize(Z, (min(num_inducing, len(x)), Z.shape[1]))  # equal inputs are different with different h
        mean, scale = (np.asarray(a)[0] for a in latent.prior_moments(dtype))
        Z, x = (np.concatenate([a, mean + scale * rng.standard_normal((len(a), latent.dim))], axis=1) for a in (Z, x))
    width = min(x.shape[1], 30) if width is None else width
    for _ in range(num_layers - 1):
        mean, matrix = _inner_mean(x, width, dtype)
        scale = INNER_SCALE * float((x @ matrix).std(axis=0).mean())
        k = _default_kernel(x, scale or INNER_SCALE, dtype) if kernel is None else kernel(x.shape[1])
        prior = Independent(k, num=width, mean=mean)
        root = np.broadcast_to(INNER_ROOT * np.eye(len(Z), dtype=dtype), (width, len(Z), len(Z)))
        layers.append(SparseGP(prior, InducingPoints(own_array(Z, dtype)), root=root))
        x, Z = x @ matrix, Z @ matrix
    k = _default_kernel(x, 1.0, dtype) if kernel is None else kernel(x.shape[1])
    level = Constant(own_array(np.zeros(num_outputs if num_outputs > 1 else ()), dtype))
    prior = GP(k, level) if num_outputs == 1 else Independent(k, num_outputs, level)
    layers.append(SparseGP(prior, InducingPoints(own_array(Z, dtype))))
    return Model(layers, likelihood)


def _default_kernel(x: np.ndarray, scale: float, dtype: Any) -> AbstractKernel:
    spread = x.std(axis=0)
    lengthscale = np.where(spread > 0, spread, 1.0) * x.shape[1] ** 0.5
    return SquaredExponential(own_array(lengthscale, dtype), own_array(scale**2, dtype))


def _inner_mean(x: np.ndarray, width: int, dtype: Any) -> tuple[AbstractMean, np.ndarray]:
    """A linear mean that keeps as much of its input as it can, and its matrix [D, width]."""
    D = x.shape[1]
    if width == D:
        return Identity(), np.eye(D)
    if width > D:
        matrix = np.concatenate([np.eye(D), np.zeros((D, width - D))], axis=1)
    else:
        matrix = np.linalg.svd(x - x.mean(axis=0), full_matrices=len(x) < D)[2][:width].T  # [D, D] if data are few
    return Linear(own_array(matrix, dtype), own_array(0.0, dtype)), matrix
