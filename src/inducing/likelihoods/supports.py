"""What values a label may take: for checking user data, filling missing labels and bracketing quantiles."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Support(NamedTuple):
    """A set of labels: a test of concrete values, a cure for the error message, and a member to fill gaps with.

    `kind` is "real", "positive", "unit" or "count": how quantiles are searched. `largest(index)` is the largest label
    of each datum and output, if there is one; without an index, that of any.
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
    """Raise a ValueError when a label that is not NaN lies outside the support."""
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
    """y [N, P] with NaN replaced by `fill`, and the mask of present labels."""
    present = ~jnp.isnan(y)
    return jnp.where(present, y, jnp.asarray(fill, y.dtype)), present


def successes(trials: np.ndarray, largest: Callable[[Any], Any]) -> Support:
    """The labels 0, …, number of trials: `trials` for all data, `largest(index)` for those at hand."""
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
