"""Rows that are held out of a fit, to score it."""

import numpy as np
import pyarrow as pa

from inducing.tables.columns import days_of, texts_of

SHARE, MOST = 0.1, 10_000  # of the rows with a label


def held_out(labelled: np.ndarray, seed: int, by: pa.Array | None = None) -> np.ndarray:
    """Choose rows to hold out: a tenth of those with a label, at most 10,000.

    Args:
        labelled: which rows have a label [N].
        seed: the seed of the choice.
        by: a column whose rows stay together. Of dates, the latest rows are held out; of anything else, whole groups.

    Returns:
        The numbers of the rows, in increasing order.

    Raises:
        ValueError: if all rows belong together.

    Examples:
        >>> len(held_out(np.ones(50, bool), 0))
        5
        >>> held_out(np.ones(4, bool), 0, pa.array([1, 1, 2, 2])).tolist() in ([0, 1], [2, 3])
        True
    """
    rows = np.flatnonzero(labelled)
    num = min(int(np.ceil(SHARE * len(rows))), MOST)
    rng = np.random.default_rng(seed)
    if by is None:
        return np.sort(rng.permutation(rows)[:num])
    if pa.types.is_date(by.type) or pa.types.is_timestamp(by.type):
        days = days_of(by, "iso")[0][rows]
        held = rows[days >= np.sort(days[~np.isnan(days)])[-num]]
    else:
        groups = texts_of(by)[1][rows]
        order = rng.permutation(np.unique(groups))
        sizes = np.cumsum([np.sum(groups == group) for group in order])
        held = rows[np.isin(groups, order[: int(np.searchsorted(sizes, num)) + 1])]
    if len(held) == len(rows):
        raise ValueError("the column to split by has the same value in every row; choose another, or none.")
    return held
