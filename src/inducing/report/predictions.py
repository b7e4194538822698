"""Plots of predictions."""

from typing import Any

import jax
import numpy as np

from inducing.checks import check_model, of_held_models
from inducing.data import as_inputs
from inducing.declared import is_whole
from inducing.parameters import as_key
from inducing.report.style import BLUE, CLASSES, GREY, ORANGE, axes_or_new, inducing_inputs, with_inputs

SAMPLES = 500  # of inner layers; with fewer, lines look rough


@of_held_models
def plot_posterior(
    model: Any,
    data: Any = None,
    *,
    X: Any = None,
    output: int = 0,
    level: float = 0.95,
    draws: int = 3,
    key: jax.Array | None = None,
    ax: Any = None,
) -> Any:
    """Plot one output of a model with one-dimensional inputs: data, predictive mean, bands, and draws of f.

    The light band contains labels y with probability `level`, and the dark band the function f, if y is f plus noise.
    For classification, lines show the probability of each class, and dots above them the data of the class. Ticks at
    the bottom are the inducing inputs.

    Args:
        model: the model, or an estimator.
        data: the data to show, an `ig.Data` or a pair (X, y).
        X: the inputs to plot. By default, slightly more than the range of the data.
        output: the number of the output to show.
        level: the probability of the bands.
        draws: the number of functions to draw from q(f).
        key: the random key of the draws.
        ax: Matplotlib axes to draw on. By default, those of a new figure.

    Returns:
        The Matplotlib axes.

    Raises:
        ValueError: if inputs have several columns, or if `output` or `draws` is out of range.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> ax = ig.report.plot_posterior(model, ([0.0, 1.0], [0.5, 0.2]), draws=0)
    """
    check_model(model)
    ax = axes_or_new(ax, (8.0, 4.0))
    Z = inducing_inputs(model)
    data = with_inputs(data)
    x = grid_of(data, X, Z, 400, "plot_posterior")
    pred = model.predict(x, samples=SAMPLES)
    if not is_whole(draws, 0):
        raise ValueError(f"draws must be a whole number of at least 0, got {draws!r}.")
    if not 0 <= output < pred.mean.shape[1]:
        raise ValueError(f"output must be a column number from 0 to {pred.mean.shape[1] - 1}, got {output}.")
    if data is not None and data.y is not None and data.y.shape[1] != pred.mean.shape[1]:
        raise ValueError(f"y has {data.y.shape[1]} columns, but the model has {pred.mean.shape[1]} outputs.")
    y = None if data is None or data.y is None else np.where(np.asarray(data.mask), np.asarray(data.y), np.nan)
    seen = None if data is None or y is None else (np.asarray(data.x)[:, 0], y[:, output])
    if model.likelihood.class_count() is None:
        _draw_numbers(ax, model, x, pred, seen, output, level, draws, as_key(key))
    else:
        _draw_classes(ax, x, np.asarray(pred.probabilities).reshape(len(x), pred.mean.shape[1], -1)[:, output], seen)
    if Z is not None:
        inside = Z[(Z[:, 0] >= x[0]) & (Z[:, 0] <= x[-1]), 0]
        foot = ax.get_xaxis_transform()
        ax.plot(inside, np.zeros_like(inside), "|", color="k", ms=11, transform=foot, label="inducing inputs")
    ax.set(xlim=(x[0], x[-1]), xlabel="x")
    ax.legend(framealpha=0.85, edgecolor="none", fontsize="small", ncols=2)
    return ax


def _draw_numbers(
    ax: Any, model: Any, x: np.ndarray, pred: Any, seen: Any, output: int, level: float, draws: int, key: jax.Array
) -> None:
    """Bands and mean of one output, draws of its function, and the data."""
    lower, upper = (np.asarray(b)[:, output] for b in pred.interval(level))
    ax.fill_between(x, lower, upper, color=BLUE, alpha=0.16, lw=0, label=f"{level:.0%} of y")
    if model.likelihood.adds_noise:
        post = model.posterior(x, samples=SAMPLES)
        low, high = (np.asarray(b)[:, output] for b in post.interval(level))
        ax.fill_between(x, low, high, color=BLUE, alpha=0.3, lw=0, label=f"{level:.0%} of f")
        keys = jax.random.split(key, max(draws, 1))
        for i in range(draws):
            try:
                f = np.asarray(model.draw(keys[i])(x))[:, output]
            except TypeError as error:
                raise TypeError(f"{error} Or pass draws=0 to plot no draws.") from error
            ax.plot(x, f, color=ORANGE, lw=0.9, alpha=0.8, label="draws of f" if i == 0 else None)
    ax.plot(x, np.asarray(pred.mean)[:, output], color=BLUE, lw=1.8, label="mean")
    if seen is not None:
        ax.scatter(*seen, color=GREY, lw=0, zorder=3, label="data", **_dots(len(seen[0])))
    ax.set_ylabel("y" if pred.mean.shape[1] == 1 else f"y[{output}]")


def _draw_classes(ax: Any, x: np.ndarray, probabilities: np.ndarray, seen: Any) -> None:
    """The probability of each class, and above it a row of dots for the data of each class."""
    C = probabilities.shape[1]
    for c, colour in enumerate(_colours(C)):
        ax.plot(x, probabilities[:, c], color=colour, lw=1.8, label=f"class {c}")
        if seen is not None:
            own = seen[0][seen[1] == c]
            ax.scatter(own, np.full(len(own), 1.05 + 0.04 * c), color=colour, lw=0, **_dots(len(seen[0])))
    ax.set(ylim=(-0.02, 1.02 if seen is None else 1.05 + 0.04 * C), ylabel="probability")
    ax.set_yticks(np.linspace(0.0, 1.0, 6))


def _dots(number: int) -> dict[str, float]:
    return {"s": 16.0, "alpha": 0.85} if number <= 300 else {"s": 6.0, "alpha": 0.35}


@of_held_models
def plot_classification(model: Any, data: Any = None, *, size: int = 120, ax: Any = None) -> Any:
    """Plot the predictions of a classifier with two-dimensional inputs as a map.

    The colour shows the most probable class; it is paler where the model is less certain. Lines separate classes,
    crosses are the inducing inputs, and dots are the data in the colour of their class.

    Args:
        model: a model with a classification likelihood.
        data: the data to show, an `ig.Data` or a pair (X, y).
        size: the number of points of the map along each axis.
        ax: Matplotlib axes to draw on. By default, those of a new figure.

    Returns:
        The Matplotlib axes.

    Raises:
        ValueError: if inputs do not have two columns, or if the model has several outputs.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0, 0.0], [1.0, 1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Bernoulli())
        >>> ax = ig.report.plot_classification(model, ([[0.0, 0.0], [1.0, 1.0]], [0, 1]), size=5)
    """
    check_model(model)
    ax = axes_or_new(ax, (5.6, 5.0))
    Z = inducing_inputs(model)
    data = with_inputs(data)
    points = [np.asarray(a) for a in (None if data is None else data.x, Z) if a is not None]
    if not points or points[0].shape[1] != 2:
        raise ValueError("plot_classification needs two-dimensional inputs; pass data (X [N, 2], y).")
    low, high = points[0].min(axis=0), points[0].max(axis=0)
    margin = np.where(high > low, 0.08 * (high - low), 1.0)
    sides = [np.linspace(a - m, b + m, size) for a, b, m in zip(low, high, margin, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1)
    probabilities = np.asarray(model.predict(grid.reshape(-1, 2)).probabilities)
    if probabilities.ndim != 2:
        raise ValueError(f"plot_classification needs a single output, but the model has {probabilities.shape[1]}.")
    probabilities = probabilities.reshape(size, size, -1)
    C = probabilities.shape[-1]
    colours = _colours(C)
    best = probabilities.argmax(axis=-1)
    certainty = (probabilities.max(axis=-1, keepdims=True) - 1.0 / C) / (1.0 - 1.0 / C)
    image = 1.0 - (1.0 - colours[best]) * (0.08 + 0.62 * certainty)
    extent = (sides[0][0], sides[0][-1], sides[1][0], sides[1][-1])
    ax.imshow(image, origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
    for c in range(C if C > 2 else 1):
        others = np.delete(probabilities, c, axis=-1).max(axis=-1)
        ax.contour(*sides, probabilities[..., c] - others, levels=[0.0], colors="k", linewidths=1.2)
    if data is not None and data.y is not None:
        seen = np.asarray(data.mask)[:, 0]
        x, y = np.asarray(data.x)[seen], np.asarray(data.y)[seen, 0]
        few = len(data) <= 1000
        style = {"s": 18 if few else 6, "edgecolor": "w", "lw": 0.4}
        for c in range(C):
            ax.scatter(*x[y == c].T, color=colours[c] * 0.85, label=f"class {c}", **style)
    if Z is not None:
        ax.plot(Z[:, 0], Z[:, 1], "kx", ms=5, mew=1.2, label="inducing inputs")
    ax.set(xlim=extent[:2], ylim=extent[2:], xlabel="x[0]", ylabel="x[1]")
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize="small")
    return ax


def grid_of(data: Any, X: Any, Z: np.ndarray | None, size: int, plot: str) -> np.ndarray:
    """The inputs of a plot, in ascending order: X, or `size` of them over the range of the data or of Z.

    Examples:
        >>> print(grid_of(None, [1.0, 0.0], None, 3, "plot_posterior"))
        [0. 1.]
    """
    given = None if X is None else np.asarray(as_inputs(X))
    known = [a for a in (given, data if data is None else data.x) if a is not None] or [Z]
    if known[0] is None:
        raise ValueError("pass data or X, which give the range to plot.")
    if (width := max(a.shape[1] for a in known)) != 1:
        raise ValueError(f"{plot} needs one-dimensional inputs, but these have {width} columns.")
    if given is not None:
        if np.ptp(given) == 0.0:
            raise ValueError(f"X must have two or more different inputs to plot lines, got only {given[0, 0]:.4g}.")
        return np.sort(given[:, 0])
    low, high = float(known[0].min()), float(known[0].max())
    margin = 0.08 * (high - low) or 1.0
    return np.linspace(low - margin, high + margin, size)


def _colours(num: int) -> np.ndarray:
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    if num <= len(CLASSES):
        return np.array([to_rgb(c) for c in CLASSES[:num]])
    return colormaps["turbo"](np.linspace(0.05, 0.95, num))[:, :3]
