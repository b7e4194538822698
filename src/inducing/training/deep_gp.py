"""Deep GPs with starting values that train well (section 4.4)."""

from collections.abc import Callable, Mapping
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

INNER_ROOT = 1e-3  # q(w) of inner layers starts almost deterministic, so that information passes through them
# the standard deviation of an inner layer around its mean function, relative to the spread of its inputs
INNER_SCALE = 0.1
MOST = 100  # layers


def deep_gp(
    X: Any,
    likelihood: AbstractLikelihood,
    *,
    num_layers: int = 2,
    width: int | None = None,
    num_outputs: int | None = None,
    num_inducing: int = 100,
    kernel: Callable[[int], AbstractKernel] | None = None,
    latent: LatentVariable | Mapping[int, LatentVariable] | None = None,
) -> Model:
    """Build a deep GP with the starting values that the theory recommends (section 4.4).

    The outputs of an inner layer share one kernel and one set of inducing points. The mean of an inner layer is the
    identity if its inputs and outputs have the same width. If it has fewer outputs, the mean is the projection on the
    principal components; if it has more, the mean pads the inputs with zeros. Its q(u) starts almost deterministic. The
    inducing points are k-means centres of X, mapped through the means of the layers below. The last layer has a
    constant mean, and its q(u) starts at the prior.

    Args:
        X: the training inputs [N, D]; for a deep GP-LVM, which has no inputs, `np.zeros((N, 0))`.
        likelihood: the likelihood.
        num_layers: the number of GP layers.
        width: the number of outputs of inner layers (default: the number of columns of X, at most 30).
        num_outputs: the number of latent functions, as many as the likelihood needs for all columns of y. By default
            those for one column, or for all columns of a `PerOutput`.
        num_inducing: the number of inducing points of each layer.
        kernel: a function that makes a kernel from its number of inputs (default: a squared exponential with one
            lengthscale for each input, from the spread of the inputs).
        latent: a latent variable, which becomes the first layer and is appended to X; or a dictionary of latent
            variables, {l: latent}, each appended to the inputs of GP layer l, counted from 0.

    Returns:
        The model.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if a number is not a whole number of at least 1, or `latent` names a layer that does not exist.

    Examples:
        >>> import jax.numpy as jnp
        >>> import inducing as ig
        >>> X = jnp.linspace(0.0, 1.0, 30)[:, None]
        >>> model = ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_layers=3, num_inducing=10)
        >>> [type(layer.prior).__name__ for layer in model.layers]
        ['Independent', 'Independent', 'GP']
        >>> latent = {0: ig.LatentVariable(1), 1: ig.LatentVariable(2)}      # at both layers
        >>> model = ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_inducing=10, latent=latent)
        >>> [type(layer).__name__ for layer in model.layers]
        ['LatentVariable', 'SparseGP', 'LatentVariable', 'SparseGP']
    """
    inputs = as_inputs(X)
    x, dtype = np.asarray(inputs, float), inputs.dtype
    latents = latent if isinstance(latent, Mapping) else {} if latent is None else {0: latent}
    _check_parts(likelihood, kernel, latents)
    num_outputs = likelihood.num_latents(len(likelihood.supports)) if num_outputs is None else num_outputs
    check_counts(num_inducing=num_inducing, num_outputs=num_outputs)
    check_num_layers(num_layers)
    _check_layers(latents, num_layers)
    if width is not None:
        check_counts(width=width)
    if (np.abs(x) > np.finfo(dtype).max ** 0.25).any():
        raise ValueError(f"X has a column whose variance is too large for {dtype}; scale the columns first.")
    Z = np.asarray(kmeans(x, num_inducing))
    layers: list[AbstractLayer] = []
    for l in range(num_layers):
        if l in latents:
            layers.append(latents[l])
            # k-means returns fewer points if inputs are equal; they are repeated here, and will differ in h
            Z = np.resize(Z, (min(num_inducing, len(x)), Z.shape[1]))
            Z, x = _with_latent(latents[l], Z, x, dtype, l)
        width = min(x.shape[1], 30) if width is None else width
        if l < num_layers - 1:
            layer, matrix = _inner_layer(x, Z, width, kernel, dtype)
            layers.append(layer)
            x, Z = x @ matrix, Z @ matrix
    k = _default_kernel(x, 1.0, dtype) if kernel is None else kernel(x.shape[1])
    layers.append(_last_layer(k, num_outputs, Z, dtype))
    return Model(layers, likelihood)


def _check_parts(likelihood: Any, kernel: Any, latents: Mapping[Any, Any]) -> None:
    if not isinstance(likelihood, AbstractLikelihood):
        raise TypeError(f"likelihood must be one of ig.likelihoods, got {kind_of(likelihood)}.")
    if kernel is not None and (isinstance(kernel, AbstractKernel | type) or not callable(kernel)):
        got = kind_of(kernel) if isinstance(kernel, type) else f"a {type(kernel).__name__} itself"
        raise TypeError(
            "kernel must be a function that makes one from its number of inputs, such as "
            f"lambda D: ig.kernels.Matern52(np.ones(D)), since layers have different widths; got {got}."
        )
    # Not just any layer: the inducing points of the layers above need the moments of p(h).
    for latent in latents.values():
        if not isinstance(latent, LatentVariable):
            raise TypeError(f"latent must be an ig.LatentVariable or a dictionary of them, got {kind_of(latent)}.")


def check_num_layers(num_layers: Any) -> None:
    """Raise a ValueError unless a number of layers is a whole number from 1 to 100.

    Examples:
        >>> check_num_layers(1000)
        Traceback (most recent call last):
            ...
        ValueError: num_layers must be at most 100, got 1000; the layers of a deep GP are compiled one by one.
    """
    check_counts(num_layers=num_layers)
    if num_layers > MOST:
        raise ValueError(
            f"num_layers must be at most {MOST}, got {num_layers}; the layers of a deep GP are compiled one by one."
        )


def _check_layers(latents: Mapping[Any, Any], num_layers: int) -> None:
    wrong = [l for l in latents if isinstance(l, bool) or not isinstance(l, int) or not 0 <= l < num_layers]
    if wrong:
        raise ValueError(f"latent has the key {wrong[0]!r}; pass numbers of GP layers, from 0 to {num_layers - 1}.")


def _with_latent(
    latent: LatentVariable, Z: np.ndarray, x: np.ndarray, dtype: Any, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Z and x with samples of p(h) appended."""
    rng = np.random.default_rng(seed)
    mean, scale = (np.asarray(a)[0] for a in latent.prior_moments(dtype))
    Z = np.concatenate([Z, mean + scale * rng.standard_normal((len(Z), latent.dim))], axis=1)
    return Z, np.concatenate([x, mean + scale * rng.standard_normal((len(x), latent.dim))], axis=1)


def _inner_layer(
    x: np.ndarray, Z: np.ndarray, width: int, kernel: Callable[[int], AbstractKernel] | None, dtype: Any
) -> tuple[SparseGP, np.ndarray]:
    """An inner layer and the matrix [D, width] of its mean."""
    mean, matrix = _inner_mean(x, width, dtype)
    scale = INNER_SCALE * float((x @ matrix).std(axis=0).mean())
    k = _default_kernel(x, scale or INNER_SCALE, dtype) if kernel is None else kernel(x.shape[1])
    root = np.broadcast_to(INNER_ROOT * np.eye(len(Z), dtype=dtype), (width, len(Z), len(Z)))
    prior = Independent(k, num=width, mean=mean)
    return SparseGP(prior, InducingPoints(own_array(Z, dtype)), root=root), matrix


def _last_layer(kernel: AbstractKernel, num_outputs: int, Z: np.ndarray, dtype: Any) -> SparseGP:
    level = Constant(own_array(np.zeros(num_outputs if num_outputs > 1 else ()), dtype))
    prior = GP(kernel, level) if num_outputs == 1 else Independent(kernel, num_outputs, level)
    return SparseGP(prior, InducingPoints(own_array(Z, dtype)))


def _default_kernel(x: np.ndarray, scale: float, dtype: Any) -> AbstractKernel:
    spread = x.std(axis=0)
    lengthscale = np.where(spread > 0, spread, 1.0) * x.shape[1] ** 0.5
    return SquaredExponential(own_array(lengthscale, dtype), own_array(scale**2, dtype))


def _inner_mean(x: np.ndarray, width: int, dtype: Any) -> tuple[AbstractMean, np.ndarray]:
    """A linear mean that keeps as much of its input as possible, and its matrix [D, width]."""
    D = x.shape[1]
    if width == D:
        return Identity(), np.eye(D)
    if width > D:
        matrix = np.concatenate([np.eye(D), np.zeros((D, width - D))], axis=1)
    else:
        # with fewer rows than columns, only the full matrices have all D directions
        directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=len(x) < D)[2]
        matrix = directions[:width].T
    return Linear(own_array(matrix, dtype), own_array(0.0, dtype)), matrix
