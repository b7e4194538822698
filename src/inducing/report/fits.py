"""Plots of training curves and of calibration."""

from typing import Any

import numpy as np

from inducing.data import as_labels
from inducing.report.style import BLUE, GREY, ORANGE, axes_or_new
from inducing.scores import share_below


def plot_history(result: Any, *, ax: Any = None) -> Any:
    """Plot the objective during a fit, with its running median if minibatches make it noisy.

    The vertical axis omits the steep rise at the start, so that the end is visible.

    Args:
        result: the `FitResult` of `ig.fit`.
        ax: Matplotlib axes to draw on. By default, those of a new figure.

    Returns:
        The Matplotlib axes.

    Raises:
        TypeError: if `result` is not an `ig.FitResult`.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> data = ([0.0, 0.5, 1.0], [0.5, 0.4, 0.2])
        >>> result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), data, steps=3, progress=False)
        >>> ax = ig.report.plot_history(result)
    """
    if not hasattr(result, "history"):
        raise TypeError(f"result must be an ig.FitResult, which ig.fit returns, got {type(result).__name__}.")
    ax = axes_or_new(ax, (6.0, 3.6))
    history = result.history
    x, bound = np.asarray(history.step), np.asarray(history.bound)
    keep = np.isfinite(bound)
    x, bound = x[keep], bound[keep]
    noisy = len(bound) > 20 and np.mean(np.diff(bound) < 0) > 0.2
    ax.plot(x, bound, color=BLUE, lw=1.0 if noisy else 1.8, alpha=0.35 if noisy else 1.0, label="objective")
    if noisy:
        ax.plot(x, _running_median(bound), color=ORANGE, lw=1.8, label="running median")
        ax.legend(frameon=False, fontsize="small", loc="lower right")
    if len(bound) > 20:
        low, high = np.quantile(bound, [0.05, 1.0])
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    ax.set(xlabel="step", ylabel="bound")
    ax.ticklabel_format(axis="y", useOffset=False)  # −3346.4 instead of −0.4 with an offset of −3.346e3
    ax.grid(alpha=0.25)
    return ax


def plot_calibration(pred: Any, y: Any, *, ax: Any = None) -> Any:
    """Plot the share of labels below each predicted quantile. The diagonal is perfect calibration.

    If the curve is above the diagonal on the left and below it on the right, the predictions are too narrow. If the
    predictions are right, the grey band contains the curve with probability 95 % at each point.
    `inducing.scores.share_below` computes the curve, also for discrete labels.

    Args:
        pred: predictions of labels, `model.predict(X)`.
        y: the labels at X, NaN where missing.
        ax: Matplotlib axes to draw on. By default, those of a new figure.

    Returns:
        The Matplotlib axes.

    Raises:
        TypeError: if `pred` is not a prediction of labels.
        ValueError: if every label is missing.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> pred = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).predict([0.2, 0.7])
        >>> ax = ig.report.plot_calibration(pred, [0.1, -0.3])
    """
    level = np.linspace(0.0, 1.0, 201)
    share = share_below(pred, y, level)
    ax = axes_or_new(ax, (4.4, 4.2))
    n = int(np.isfinite(np.asarray(as_labels(y, float))).sum())
    ax.plot(level, share, color=BLUE, lw=1.8, label="observed")
    spread = 1.96 * np.sqrt(level * (1 - level) / n)
    ax.fill_between(level, level - spread, level + spread, color=GREY, alpha=0.18, lw=0, label="95 % by chance")
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.8, ls="--")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share of labels below", aspect="equal")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def _running_median(values: np.ndarray) -> np.ndarray:
    half = max(2, len(values) // 50)
    return np.array([np.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])
