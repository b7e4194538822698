"""What all plots share: axes, colours, data with inputs, and the inducing inputs of a model."""

from typing import Any

import numpy as np

from inducing.data import Data, as_data

BLUE, ORANGE, GREY = "#31688e", "#d1602b", "#444444"
CLASSES = ("#31688e", "#d1602b", "#35a06b", "#8a4f9e", "#c9a227", "#7a7a7a")


def axes_or_new(ax: Any, figsize: tuple[float, float]) -> Any:
    """The given axes, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures are drawn with Matplotlib: pip install inducing[plot]") from error
    if ax is None:
        _, ax = plt.subplots(figsize=figsize, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def with_inputs(data: Any) -> Data | None:
    """The data, if there are any, which need inputs to be drawn at."""
    data = None if data is None else as_data(data)
    if data is not None and data.x is None:
        raise ValueError("data have no inputs X to draw them at; pass (X, y).")
    return data


def inducing_inputs(model: Any) -> np.ndarray | None:
    """The inducing inputs Z [M, D] of the first layer, if it has any."""
    Z = model.layers[0].inducing_inputs
    return None if Z is None else np.asarray(Z)
