"""A table of the parameters of a model."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from inducing.checks import of_held_models
from inducing.data import as_data
from inducing.parameters import FIXED, LOWER_TRIANGULAR, Constraint, parameters
from inducing.report.relevance import Relevance, relevance


class Row(NamedTuple):
    """One parameter: its place in the module, its shape, its constraint, and its value in short."""

    name: str
    shape: str
    constraint: str
    value: str


class Summary(NamedTuple):
    """The parameters of a module as `rows`, and how many numbers are trained; prints as a table.

    If data were given, `relevance` says how much each column of the inputs matters.
    """

    title: str
    rows: list[Row]
    num_trained: int
    num_fixed: int
    relevance: Relevance | None = None

    def __str__(self) -> str:
        table = [Row("name", "shape", "constraint", "value"), *self.rows]
        widths = [max(len(row[i]) for row in table) for i in range(4)]
        cells = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in table]
        cells.insert(1, ["─" * width for width in widths])
        lines = ["  ".join(row).rstrip() for row in cells]
        fixed = f", {self.num_fixed:,} fixed" if self.num_fixed else ""
        total = f"{self.title}: {self.num_trained:,} parameters{fixed}"
        matter = "" if self.relevance is None else f"\n\n{self.relevance}"
        return "\n".join([*lines, total]) + matter

    def __repr__(self) -> str:
        return str(self)


@of_held_models
def summary(module: Any, data: Any = None, names: Any = None) -> Summary:
    """Summarise the parameters of a model, or of any part of one, in a table.

    An array that occurs in several places, because a module is used twice, is one parameter and is marked as tied.

    Args:
        module: an `ig.Model`, any part of one, or an estimator.
        data: an `ig.Data` or a pair (X, y). If given, the summary includes how much each column of X matters for the
            predictions of the model: see `ig.report.relevance`.
        names: the names of the columns, as for `ig.report.relevance`.

    Returns:
        The summary, which prints as a table.

    Raises:
        TypeError: if `module` is not a module, for example the result of `fit`.
        ValueError: if the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> print(ig.summary(ig.kernels.Matern52(lengthscale=[1.0, 0.5], variance=2.0)))
        name         shape   constraint  value
        ───────────  ──────  ──────────  ────────
        lengthscale  [2]     positive    [1, 0.5]
        variance     scalar  positive    2
        Matern52: 3 parameters
    """
    if not isinstance(module, eqx.Module):
        raise TypeError(
            f"module must be an ig.Model or a part of one, got {type(module).__name__}; after a fit, pass result.model."
        )
    matter = None if data is None else relevance(module, as_data(data).x, names)
    rows: list[Row] = []
    first: dict[int, str] = {}
    trained = fixed = 0
    for path, leaf, constraint in parameters(module):
        name = path.lstrip(".")
        kind = constraint.name
        if id(leaf) in first:
            kind = f"tied to {first[id(leaf)]}"
        elif constraint is FIXED:
            fixed += leaf.size
        else:
            trained += _free(leaf, constraint)
        first.setdefault(id(leaf), name)
        rows.append(Row(name, str(list(leaf.shape)) if leaf.ndim else "scalar", kind, _short(np.asarray(leaf))))
    return Summary(type(module).__name__, rows, trained, fixed, matter)


def _free(leaf: Any, constraint: Constraint) -> int:
    """How many numbers of an array are trained; for a triangular matrix, those of the triangle."""
    *rest, M = leaf.shape or (1,)
    if constraint is LOWER_TRIANGULAR and rest and rest[-1] == M:
        return leaf.size * (M + 1) // (2 * M)
    return leaf.size


def _short(value: np.ndarray) -> str:
    if value.ndim == 0:
        return f"{value:.4g}"
    if value.size == 0:
        return "[]"
    if value.ndim == 1 and value.size <= 8:
        return "[" + ", ".join(f"{v:.4g}" for v in value) + "]"
    if (value == value.flat[0]).all():
        return f"all {value.flat[0]:.4g}"
    square = value.ndim >= 2 and value.shape[-1] == value.shape[-2]
    if square and (value == np.eye(value.shape[-1], dtype=value.dtype)).all():
        return "identity"
    return f"{value.min():.4g} … {value.max():.4g}"
