"""Survival curves of predictions."""

from typing import Any

import numpy as np

from inducing.checks import check_model, checked_inputs
from inducing.report.style import CLASSES, axes_or_new


def plot_survival(
    model: Any, X: Any, *, times: Any = None, names: Any = None, output: int = 0, level: float = 0.9, ax: Any = None
) -> Any:
    """Plot the survival function of the label at each input, S(t) = P(label > t), with a band for the uncertainty of f.

    The line is 1 − `cdf` of the prediction, which averages over q(f). The band contains P(label > t | f) for all f in
    their interval of probability `level`.

    Args:
        model: a model, such as one with `ig.likelihoods.Censored`.
        X: a few inputs [N, D], each of which gives a curve.
        times: the times t to plot [T]. By default, up to the largest 95 % quantile.
        names: the name of each curve, for the legend.
        output: the number of the output to show.
        level: the probability of the band.
        ax: Matplotlib axes to draw on. By default, those of a new figure.

    Returns:
        The Matplotlib axes.

    Raises:
        ValueError: if X does not fit the model, or there are not as many names as inputs.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Censored(ig.likelihoods.Weibull()))
        >>> ax = ig.report.plot_survival(model, [[0.0]], times=[0.5, 1.0, 2.0])
    """
    check_model(model)
    ax = axes_or_new(ax, (6.0, 4.0))
    X, _ = checked_inputs(model, X)
    N, pred = len(X), model.predict(X)
    if names is not None and len(names) != N:
        raise ValueError(f"names must have one name for each of the {N} inputs, got {len(names)}.")
    P = pred.mean.shape[1]
    if times is None:
        last = float(np.max(np.asarray(pred.quantile(0.95))[:, output]))
        times = np.linspace(min(0.0, last), last, 101)[1:]
    times = np.asarray(times, float)
    rows, many = np.repeat(np.arange(N), len(times)), np.tile(times, N)[:, None] * np.ones(P)
    curve = 1 - np.asarray(model.predict(X[rows]).cdf(many))[:, output].reshape(N, -1)
    posterior = model.posterior(X[rows])
    ends = [
        1 - np.asarray(model.likelihood.predictive_cdf(f, 0 * f, many.astype(f.dtype)))[:, output].reshape(N, -1)
        for f in posterior.interval(level)
    ]
    for n in range(N):
        colour = CLASSES[n % len(CLASSES)]
        ax.plot(times, curve[n], color=colour, label=None if names is None else names[n])
        ax.fill_between(times, ends[0][n], ends[1][n], color=colour, alpha=0.15, lw=0)
    ax.set(xlabel="t", ylabel="P(label > t)", ylim=(0.0, 1.02), xlim=(times[0], times[-1]))
    if names is not None:
        ax.legend(frameon=False)
    return ax
