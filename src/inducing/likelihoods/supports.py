"""The values that labels may take: used to check labels, to fill in missing ones and to search for quantiles."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Support(NamedTuple):
    """A set of values that labels may take.

    Attributes:
        name: a description, for error messages.
        kind: "real", "positive", "unit" or "count", which says how quantiles are searched.
        contains: whether concrete values lie in the set, elementwise.
        fill: a member of the set that replaces missing labels.
        cure: what to do about labels outside the set, for error messages.
        largest: the largest label of each datum and output, given the index of the data [N], or that of any datum,
            given None.

    Examples:
        >>> COUNT.contains(np.array([0.0, 1.5])).tolist()
        [True, False]
    """

    name: str
    kind: str
    contains: Callable[[np.ndarray], np.ndarray]
    fill: float
    cure: str
    largest: Callable[[Any], Any] = lambda index: np.inf


def _integers(y: np.ndarray) -> np.ndarray:
    return (y >= 0) & (y == np.floor(y))


REAL = Support("finite numbers", "real", np.isfinite, 0.0, "drop or correct infinite labels; NaN marks a missing one")
POSITIVE = Support("greater than 0", "positive", lambda y: np.isfinite(y) & (y > 0), 1.0, "shift or drop other labels")
NONNEGATIVE = Support(
    "at least 0", "positive", lambda y: np.isfinite(y) & (y >= 0), 1.0, "shift or drop negative labels"
)
UNIT = Support(
    "strictly between 0 and 1",
    "unit",
    lambda y: (y > 0) & (y < 1),
    0.5,
    "rescale labels; pull exact 0 and 1 inside, such as (y (N - 1) + 0.5) / N",
)
BINARY = Support("0 or 1", "count", lambda y: (y == 0) | (y == 1), 0.0, "map -1/+1 by (y + 1) / 2")
COUNT = Support(
    "whole numbers 0, 1, 2, …", "count", lambda y: np.isfinite(y) & _integers(y), 0.0, "round or drop other labels"
)


def classes(num: int) -> Support:
    """The labels 0, …, num − 1."""
    return Support(
        f"whole numbers from 0 to {num - 1}",
        "count",
        lambda y: _integers(y) & (y < num),
        0.0,
        "number the classes from 0, such as `np.unique(y, return_inverse=True)[1]`",
    )


def check_support(likelihood: str, support: Support, y: jax.Array | np.ndarray, index: Any = None) -> None:
    """Raise a ValueError if a label that is not NaN lies outside the support."""
    if isinstance(y, jax.core.Tracer) or isinstance(index, jax.core.Tracer):
        return
    y = np.asarray(y)
    if not (np.issubdtype(y.dtype, np.number) or y.dtype == bool):
        raise ValueError(f"labels of {likelihood} must be numbers, got dtype {y.dtype}; encode them as numbers.")
    y = y if np.issubdtype(y.dtype, np.floating) else y.astype(float)
    present = ~np.isnan(y)
    bad = y[present & ~(support.contains(y) & (y <= support.largest(index)))]
    if bad.size:
        raise ValueError(
            f"labels of {likelihood} must be {support.name}, got {bad[0].item()!r} "
            f"({bad.size} of {present.sum()} labels are not); {support.cure}."
        )


def fill_missing(y: jax.Array, fill: float | np.ndarray) -> tuple[jax.Array, jax.Array]:
    """The labels y [N, P] with `fill` in place of NaN, and the mask of present labels."""
    present = ~jnp.isnan(y)
    return jnp.where(present, y, jnp.asarray(fill, y.dtype)), present


def successes(trials: np.ndarray, largest: Callable[[Any], Any]) -> Support:
    """The labels 0, …, number of trials: `trials` of all data, `largest(index)` of given data."""
    least, most = np.min(trials), np.max(trials)
    number = f"{most:g}" if least == most else f"{least:g} to {most:g}"
    return Support(
        f"whole numbers from 0 to the number of trials, {number}",
        "count",
        _integers,
        0.0,
        "pass counts of successes, or correct total_count",
        largest,
    )
