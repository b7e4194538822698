"""The interface of sources of rows: blocks that can be read one by one."""

import abc
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from inducing.parameters import question

BLOCK = 65_536  # rows of a block if the source has no blocks of its own


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows as NumPy arrays.

    Attributes:
        x: inputs [n, D], or None.
        y: labels [n, P]; missing ones are NaN.
        index: the number of each datum [n].
        weight: how often each row counts [n], or None.
    """

    x: np.ndarray | None
    y: np.ndarray
    index: np.ndarray
    weight: np.ndarray | None

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: Any) -> "Rows":
        """Some of the rows: a slice, or whole numbers."""
        return self.map(lambda a: a[rows])

    def map(self, fn: Callable[[np.ndarray], np.ndarray]) -> "Rows":
        """Apply fn to each array that is not None."""
        arrays = (self.x, self.y, self.index, self.weight)
        return Rows(*(None if a is None else fn(a) for a in arrays))  # ty: ignore[invalid-argument-type]

    def without_labels(self) -> "Rows":
        """The same rows, all labels of which are missing."""
        return dataclasses.replace(self, y=np.full_like(self.y, np.nan))


def joined(pieces: list[Rows]) -> Rows:
    """All rows of some pieces, in order.

    Examples:
        >>> one = Rows(None, np.zeros((2, 1)), np.arange(2), None)
        >>> len(joined([one, one]))
        4
    """
    first = pieces[0]
    if len(pieces) == 1:
        return first

    parts = zip(*((piece.x, piece.y, piece.index, piece.weight) for piece in pieces), strict=True)
    return Rows(*(None if part[0] is None else np.concatenate(part) for part in parts))  # ty: ignore[invalid-argument-type]


class AbstractSource(abc.ABC):
    """Rows in blocks.

    Attributes:
        blocks: the number of rows of each block, in the order of the source.
        seeks: whether blocks can be read in any order. Otherwise the source is read from its beginning in every epoch.
    """

    blocks: np.ndarray
    seeks: bool

    @abc.abstractmethod
    def read(self, block: int) -> Rows:
        """Read a block of a source that seeks. If there is no index, rows are numbered over the whole source."""

    @question
    def replay(self) -> Iterator[Rows]:
        """All blocks, from the beginning."""
        return (self.read(block) for block in range(len(self.blocks)))

    @abc.abstractmethod
    def __repr__(self) -> str:
        """A description that distinguishes the source from others."""

    @property
    def num_rows(self) -> int:
        """The number of all rows."""
        return int(self.blocks.sum())


class Cursor:
    """Reads ranges of rows of a source, given an order of its blocks, and keeps the last block in memory.

    Args:
        source: the source.
        order: the numbers of its blocks, in the order in which rows are counted.
    """

    def __init__(self, source: AbstractSource, order: np.ndarray):
        self._source, self._order = source, order
        self._ends = np.cumsum(source.blocks[order])
        self._held: tuple[int, Rows] | None = None
        self._playing: Iterator[tuple[int, Rows]] = iter(())

    def read(self, first: int, last: int) -> Rows:
        """The rows from `first` to before `last`."""
        pieces = []
        place = int(np.searchsorted(self._ends, first, side="right"))
        while first < last:
            end = int(self._ends[place])
            begin = end - int(self._source.blocks[self._order[place]])
            upto = min(last, end)
            pieces.append(self._block(int(self._order[place])).take(slice(first - begin, upto - begin)))
            first, place = upto, place + 1
        return joined(pieces)

    def _block(self, block: int) -> Rows:
        if self._held is None or self._held[0] != block:
            self._held = None  # so that two large blocks are never in memory at once
            self._held = block, self._source.read(block) if self._source.seeks else self._replayed(block)
        return self._held[1]

    def _replayed(self, block: int) -> Rows:
        """The next block with this number."""
        for number, rows in self._playing:
            if number == block:
                return rows
        self._playing = enumerate(self._source.replay())
        return next(rows for number, rows in self._playing if number == block)


def checked(rows: Rows, block: int, expected: int, where: str, names: tuple[list[str], list[str]]) -> Rows:
    """The rows of a block, after a check of their number and of their values.

    Args:
        rows: the rows.
        block: the number of the block.
        expected: how many rows it should have.
        where: the file or the range of rows, for messages.
        names: the names of the columns of x and of y, for messages.

    Raises:
        ValueError: if their number has changed or a value is not finite; the message names the place and the column.
    """
    if len(rows) != expected:
        raise ValueError(
            f"{where} has {len(rows)} rows in block {block}, and had {expected} when the stream was made; files must "
            "not change while they are read."
        )
    for array, bad, column_names, cure in (
        (rows.x, lambda a: ~np.isfinite(a), names[0], "inputs must be finite; remove or impute such rows"),
        (rows.y, np.isinf, names[1], "labels must be finite; use NaN (null) for a missing one"),
    ):
        if array is not None and (found := bad(array)).any():
            row, column = map(int, np.argwhere(found)[0])
            raise ValueError(f"{where}: column {column_names[column]!r} has {array[row, column]}; {cure}.")
    if rows.weight is not None and not (np.isfinite(rows.weight) & (rows.weight >= 0)).all():
        raise ValueError(f"{where}: weights must be finite numbers of at least 0.")
    return rows


def in_blocks(batches: Iterator[Rows], size: int) -> Iterator[Rows]:
    """The rows of batches of any sizes in blocks of `size` rows; the last one may have fewer.

    Examples:
        >>> batch = Rows(None, np.zeros((3, 1)), np.arange(3), None)
        >>> [len(block) for block in in_blocks(iter([batch, batch]), 4)]
        [4, 2]
    """
    held: list[Rows] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += len(batch)
        while count >= size:
            rows = joined(held)
            yield rows.take(slice(0, size))
            held, count = [rows.take(slice(size, None))], count - size
    if count:
        yield joined(held)


def padded(rows: Rows, size: int) -> Rows:
    """Rows, padded to `size` with copies of the last one without labels.

    Examples:
        >>> rows = padded(Rows(None, np.ones((2, 1)), np.arange(2), None), 3)
        >>> rows.y[:, 0].tolist(), rows.index.tolist()
        ([1.0, 1.0, nan], [0, 1, 1])
    """
    if len(rows) == size:
        return rows
    added = rows.take(np.full(size - len(rows), len(rows) - 1))
    return joined([rows, added.without_labels()])
