"""The choice of rows to hold out, and of rows to train on."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from inducing.tables.columns import Date, days_of, texts_of
from inducing.tables.deciding import Options, decide

SHARE, MOST = 0.1, 10_000  # the share of the labelled rows, and the most rows


class SplitBy(NamedTuple):
    """A column to split rows by.

    Attributes:
        name: its name.
        values: days, NaN for gaps, or the number of each row's group [N].
        dates: whether they are days.
    """

    name: str
    values: np.ndarray
    dates: bool


def split_by(name: str, cells: pa.Array, options: Options) -> SplitBy:
    """Dates of a column, or its groups of equal values.

    Args:
        name: the name of the column.
        cells: its cells.
        options: settings of the user.

    Returns:
        The dates or groups.

    Raises:
        ValueError: if it is not clear which part of a date is the day.

    Examples:
        >>> split_by("team", pa.array(["a", "b", "a"]), Options())
        SplitBy(name='team', values=array([0, 1, 0]), dates=False)
    """
    column = decide(name, cells, options)
    if isinstance(column, Date):  # a plain value of this package
        return SplitBy(name, days_of(cells, column.date_format, column.words)[0], True)
    return SplitBy(name, texts_of(cells)[1], False)


def held_out(labelled: np.ndarray, seed: int, by: SplitBy | None = None) -> np.ndarray:
    """Choose rows to hold out: a tenth of the labelled rows, at most 10,000.

    Args:
        labelled: which rows have a label [N].
        seed: the seed of the choice.
        by: dates, to hold out the latest rows, or groups, to hold out whole groups.

    Returns:
        The row numbers, in increasing order.

    Raises:
        ValueError: if no row would be left to train on.

    Examples:
        >>> len(held_out(np.ones(50, bool), 0))
        5
        >>> held_out(np.ones(4, bool), 0, SplitBy("team", np.array([0, 0, 1, 1]), False)).tolist() in ([0, 1], [2, 3])
        True
    """
    rows = np.flatnonzero(labelled)
    num = min(int(np.ceil(SHARE * len(rows))), MOST)
    rng = np.random.default_rng(seed)
    if by is None:
        return np.sort(rng.permutation(rows)[:num])
    held = _latest(rows, num, by.values) if by.dates else _groups(rows, num, by.values, rng)
    if len(held) in (0, len(rows)):
        raise ValueError("the column of split_by has too few different values to hold some rows out; choose another.")
    return held


def counted_once(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Leave out rows that are copies of others, unless most rows with the inputs of an earlier row have another label.

    Real labels with noise rarely agree exactly, but the evidence takes copies for measurements that agree: the noise
    of an exact GP then tends to zero, and intervals become far too narrow. Of labels without noise, copies tell
    nothing new.

    Args:
        X: inputs [N, D].
        y: labels [N].

    Returns:
        The row numbers to keep, in increasing order.

    Examples:
        >>> X, y = np.array([[1.0], [2.0], [1.0]]), np.array([5.0, 6.0, 5.0])
        >>> counted_once(X, y).tolist(), counted_once(X, y + [0.0, 0.0, 0.1]).tolist()
        ([0, 1], [0, 1, 2])
    """
    kept = np.unique(np.column_stack([X, y]), axis=0, return_index=True)[1]
    copies, repeats = len(y) - len(kept), len(y) - len(np.unique(X, axis=0))
    return np.sort(kept) if 2 * copies > repeats else np.arange(len(y))


def _latest(rows: np.ndarray, num: int, days: np.ndarray) -> np.ndarray:
    """At least `num` rows with the latest days; rows of the same day stay together."""
    known = np.sort(days[rows][~np.isnan(days[rows])])
    return rows[days[rows] >= known[-min(num, len(known))]] if len(known) else rows[:0]


def _groups(rows: np.ndarray, num: int, group: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random groups with about `num` rows, or the smallest group if all are much larger."""
    group = group[rows] + 1  # gaps, −1, are a group too
    sizes = np.bincount(group)
    chosen, total = [], 0
    for g in rng.permutation(np.flatnonzero(sizes)):
        if total < num and total + sizes[g] <= 2 * num:
            chosen.append(g)
            total += sizes[g]
    return rows[np.isin(group, chosen or np.argmin(np.where(sizes > 0, sizes, np.inf)))]
