"""Columns of a table, each of which may be several inputs of a model, such as one for each category."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inducing.model import Model

Columns = dict[str, tuple[int, ...]]
"""The inputs that belong to each column of a table, by its name."""


def as_columns(names: Any, inputs: int) -> Columns:
    """The positions of the inputs of each column, by its name.

    Args:
        names: a name for each input, or a mapping from column names to the position of an input, or of several. None
            means `x[0]`, `x[1]` and so on.
        inputs: the number of inputs of the model.

    Returns:
        A dictionary from names to positions of inputs.

    Raises:
        ValueError: if names are not unique, or if an input does not belong to exactly one column.

    Examples:
        >>> as_columns({"size": 0, "colour": (1, 2)}, 3)
        {'size': (0,), 'colour': (1, 2)}
    """
    if names is None:
        names = [f"x[{i}]" for i in range(inputs)]
    columns: Columns
    if isinstance(names, Mapping):
        columns = {str(name): tuple(int(i) for i in np.atleast_1d(own)) for name, own in names.items()}
    else:
        if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray) or len(names) != inputs:
            raise ValueError(
                f"names must be a name for each of the {inputs} columns of X, or a mapping from names to numbers of "
                f"columns, got {names!r}."
            )
        columns = {str(name): (i,) for i, name in enumerate(names)}
        if len(columns) < inputs:
            raise ValueError(f"names must be unique, got {list(names)}.")
    given = sorted(i for own in columns.values() for i in own)
    if given != list(range(inputs)):
        raise ValueError(
            f"names must assign each of the {inputs} columns of X, numbered from 0, to one name, got numbers {given}."
        )
    return columns


def lengthscale_of(model: Model, own: tuple[int, ...]) -> float:
    """The shortest lengthscale of the first layer along some inputs; NaN if there is none.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52([1.0, 0.5])), ig.features.InducingPoints([[0.0, 1.0]]))
        >>> lengthscale_of(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (1,))
        0.5
    """
    gp = model.layers[0].as_sparse_gp()
    if gp is None:
        return float("nan")
    found = [kernel.lengthscale_along(i) for kernel in gp.prior.kernels for i in own]
    return min((value for value in found if np.isfinite(value)), default=float("nan"))
