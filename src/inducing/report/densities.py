"""Plots of predictive densities, for labels with several modes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import compiled
from inducing.checks import check_counts, check_model, of_held_models
from inducing.likelihoods.predictive import Predictive
from inducing.report.predictions import grid_of
from inducing.report.style import ORANGE, axes_or_new, inducing_inputs, with_inputs


@of_held_models
def plot_density(
    model: Any,
    data: Any = None,
    *,
    X: Any = None,
    Y: Any = None,
    draws: int = 0,
    size: int = 200,
    key: jax.Array | None = None,
    samples: int | None = None,
    ax: Any = None,
) -> Any:
    """Plot p(y | x) of a model with one input and one output: brighter where labels are more likely.

    Use it if there may be several modes, which the mean and the band of `plot_posterior` would hide.

    Args:
        model: the model, or an estimator.
        data: the data whose range to show, an `ig.Data` or a pair (X, y).
        X: the inputs of the grid. By default, slightly more than the range of the data.
        Y: the labels of the grid. By default, slightly more than the range of the data, or that of the predictions.
        draws: if not 0, plot this many sampled labels at each input as dots, instead of the density.
        size: the number of inputs and of labels of the grid.
        key: a random key for the samples of inner layers and for the draws.
        samples: the number of samples of the inner layers, as in `model.predict`.
        ax: Matplotlib axes to draw on. By default, those of a new figure.

    Returns:
        The Matplotlib axes.

    Raises:
        ValueError: if inputs have several columns, the model has several outputs, or `size` or `draws` is not a
            positive integer.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> ax = ig.report.plot_density(model, ([0.0, 1.0], [0.5, 0.2]), size=5)
    """
    check_model(model)
    check_counts(size=size, draws=draws + 1)
    ax = axes_or_new(ax, (5.6, 4.2))
    data = with_inputs(data)
    x = grid_of(data, X, inducing_inputs(model), size, "plot_density")
    pred = model.predict(x, key=key, samples=samples)
    if pred.mean.shape[1] != 1 or model.likelihood.class_count() is not None:
        raise ValueError(
            "plot_density needs a single output of numbers; use plot_posterior for classes and for several outputs."
        )
    y = _labels(Y, data, pred, size)
    if draws:
        values = np.asarray(pred.sample(jax.random.key(0) if key is None else key, draws))[..., 0]
        ax.plot(np.broadcast_to(x, values.shape).ravel(), values.ravel(), ".", color=ORANGE, ms=1.5, alpha=0.5)
    else:
        p = density_grid(pred, y)
        top = np.quantile(p, 0.995)  # otherwise a few bright points would make the rest dark
        ax.pcolormesh(x, y, p, cmap="magma", vmin=0.0, vmax=top, shading="gouraud", rasterized=True)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xlabel="x", ylabel="y")
    return ax


def density_grid(pred: Predictive, y: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m n"]:
    """p(y | x) of predictions at n inputs, for each of m labels.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model(ig.Deterministic(jnp.sin), ig.likelihoods.Gaussian(0.1))
        >>> density_grid(model.predict([0.0, 1.0]), np.linspace(-1.0, 1.0, 3)).shape
        (3, 2)
    """
    bare = Predictive(pred.likelihood, pred.latent_mean, pred.latent_cov, pred.index)
    return np.exp(np.asarray(compiled(_log_probs)(bare, jnp.asarray(y, pred.latent_mean.dtype))))


def _log_probs(pred: Predictive, y: Array) -> Array:
    n = pred.latent_mean.shape[-2]
    return jax.lax.map(lambda v: pred.log_prob(jnp.full((n, 1), v)), y)


def _labels(Y: Any, data: Any, pred: Predictive, size: int) -> np.ndarray:
    """The labels of the grid, in ascending order."""
    if Y is not None:
        return np.sort(np.asarray(Y, float).ravel())
    if data is not None and data.y is not None:
        seen = np.asarray(data.y)[np.asarray(data.mask)]
        low, high = seen.min(), seen.max()
        margin = 0.08 * (high - low) or 1.0
    else:
        low, high, margin = *(float(f(end)) for f, end in zip((np.min, np.max), pred.interval(0.99), strict=True)), 0.0
    return np.linspace(low - margin, high + margin, size)
