"""Axes, colours, data and inducing inputs, for all plots."""

from typing import Any

import numpy as np

from inducing.data import Data, as_data

BLUE, ORANGE, GREY = "#31688e", "#d1602b", "#444444"
CLASSES = ("#31688e", "#d1602b", "#35a06b", "#8a4f9e", "#c9a227", "#7a7a7a")


def axes_or_new(ax: Any, figsize: tuple[float, float]) -> Any:
    """The given axes, or the axes of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need Matplotlib: pip install 'inducing[plot]'") from error
    if ax is None:
        _, ax = plt.subplots(figsize=figsize, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def with_inputs(data: Any) -> Data | None:
    """The data as an `ig.Data` with inputs, or None."""
    data = None if data is None else as_data(data)
    if data is not None and data.x is None:
        raise ValueError("data must have inputs X to be plotted; pass (X, y).")
    return data


def inducing_inputs(model: Any) -> np.ndarray | None:
    """The inducing inputs Z [M, D] of the first layer, if it has any."""
    Z = model.layers[0].inducing_inputs
    return None if Z is None else np.asarray(Z)
