"""Sources in memory, memory maps, and batches from a user's function."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from inducing.data import Data
from inducing.declared import shown
from inducing.streams.source import BLOCK, AbstractSource, Rows, checked, in_blocks

Names = tuple[list[Any], list[Any]]


class Arrays(AbstractSource):
    """Rows of NumPy arrays. Of memory maps, only the rows that are needed are read.

    Args:
        x: inputs [N, D], or None.
        y: labels [N, P].
        index: the number of each datum [N], or None.
        weight: how often each row counts [N], or None.
    """

    seeks = True

    def __init__(self, x: Any, y: Any, index: Any = None, weight: Any = None):
        self._arrays = x, y, index, weight
        if not np.ndim(y):
            raise TypeError(f"source must be arrays (X, y) with labels y of shape [N] or [N, P], got {shown(y)} as y.")
        self._N = len(y)
        for name, a in (("x", x), ("index", index), ("weight", weight)):
            rows = 0 if a is None or not np.ndim(a) else len(a)
            if a is not None and rows != self._N:
                raise ValueError(f"{name} has {rows} rows and y has {self._N}; each row needs its label.")
        if self._N == 0:
            raise ValueError("the arrays have no rows; pass at least one.")
        for name, a in (("x", x), ("y", y)):
            if a is not None and (a.dtype.kind not in "iufb" or a.ndim not in (1, 2)):
                raise TypeError(
                    f"{name} must hold numbers [N, columns] or [N], got {a.dtype.name} {list(a.shape)}; "
                    "convert it first."
                )
        self.blocks = np.diff(np.append(np.arange(0, self._N, BLOCK), self._N))
        self._names = [
            [f"{name}[{i}]" for i in range(1 if np.ndim(a) < 2 else a.shape[1])] for name, a in (("x", x), ("y", y))
        ]

    def read(self, block: int) -> Rows:
        first = block * BLOCK
        here = slice(first, first + int(self.blocks[block]))
        x, y, index, weight = (None if a is None else np.array(a[here]) for a in self._arrays)
        assert y is not None
        index = np.arange(here.start, here.stop) if index is None else whole(index, "index")
        rows = Rows(None if x is None else columns(x), columns(y), index, weight)
        return checked(rows, block, int(self.blocks[block]), f"rows {here.start} to {here.stop}", tuple(self._names))  # ty: ignore[invalid-argument-type]

    def __repr__(self) -> str:
        return f"arrays of {self._N} rows"


class Replayed(AbstractSource):
    """Batches from a function or an iterable, which is restarted when earlier rows are needed.

    Args:
        begin: returns an iterator of batches: `ig.Data`, (x, y) tuples, or mappings of columns.
        num_data: the number of all rows.
        names: the names of the columns of inputs and of labels, if batches are mappings.
        others: the names of the columns of index and weight, or None.
    """

    seeks = False

    def __init__(self, begin: Callable[[], Iterable[Any]], num_data: int, names: Names, others: tuple[Any, Any]):
        self._begin, self._names, self._others, self._N = begin, names, others, num_data
        self.blocks = np.diff(np.append(np.arange(0, num_data, BLOCK), num_data))

    def read(self, block: int) -> Rows:
        raise NotImplementedError("these batches can only be read from the beginning")

    def replay(self) -> Iterator[Rows]:
        playing, last = in_blocks(self._numbered(), BLOCK), len(self.blocks) - 1
        for block, expected in enumerate(map(int, self.blocks)):
            rows = next(playing, None)
            if rows is None or len(rows) < expected:
                raise ValueError(
                    f"the batches end before row {self._N}, which num_data={self._N} promises; pass the number of rows "
                    "of one pass over the batches, and make every pass start from the beginning."
                )
            if len(rows) > expected or (block == last and next(playing, None) is not None):
                raise ValueError(f"the batches hold more than num_data={self._N} rows; pass their number.")
            yield checked(
                rows, block, expected, f"rows {block * BLOCK} to {block * BLOCK + expected}", self._shown(rows)
            )

    def _shown(self, rows: Rows) -> tuple[list[str], list[str]]:
        """The names of the columns in messages."""
        if self._names[1]:
            return self._names
        x = [] if rows.x is None else [f"x[{i}]" for i in range(rows.x.shape[1])]
        return x, [f"y[{i}]" for i in range(rows.y.shape[1])]

    def _numbered(self) -> Iterator[Rows]:
        """The batches as rows, which are numbered if they have no index."""
        first, shapes = 0, None
        for batch in self._begin():
            rows = self._rows(batch, first)
            widths = [None if a is None else a.shape[1] for a in (rows.x, rows.y)]
            if shapes not in (None, widths):
                raise ValueError(f"a batch has {widths} columns of x and y, and those before have {shapes}.")
            first, shapes = first + len(rows), widths
            yield rows

    def _rows(self, batch: Any, first: int) -> Rows:
        x, y, index, weight = (None if a is None else np.asarray(a) for a in self._parts(batch))
        if y is None or any(a.dtype.kind not in "iufb" for a in (x, y) if a is not None):
            raise TypeError("a batch must hold labels y, and numbers in x and y.")
        lengths = [len(a) for a in (x, y, index, weight) if a is not None]
        if len(set(lengths)) > 1:
            raise ValueError(f"the columns of a batch must have equally many rows, got {lengths}.")
        index = np.arange(first, first + len(y)) if index is None else whole(index, "index")
        return Rows(None if x is None else columns(x), columns(y), index, weight)

    def _parts(self, batch: Any) -> tuple[Any, Any, Any, Any]:
        """Inputs, labels, index and weight of a batch; None for those that it lacks."""
        if isinstance(batch, Data):
            return batch.x, batch.y, None, batch.weight
        if isinstance(batch, tuple) and len(batch) == 2:
            return *batch, None, None
        if isinstance(batch, Mapping) and self._names[1]:
            for name in (*self._names[0], *self._names[1], *(n for n in self._others if n is not None)):
                if name not in batch:
                    raise ValueError(f"a batch has no column {name!r}; it has {', '.join(map(repr, batch))}.")
            x, y = (np.stack([np.asarray(batch[n], float) for n in ns], axis=1) if ns else None for ns in self._names)
            index, weight = (None if n is None else batch[n] for n in self._others)
            return x, y, index, weight
        raise TypeError(
            "a batch must be a tuple (x, y), an ig.Data, or with x= and y= a mapping of columns; got "
            f"{type(batch).__name__}."
        )

    def __repr__(self) -> str:
        return f"batches of {self._N} rows in all"


def columns(a: np.ndarray) -> np.ndarray:
    """Floating-point numbers [n, columns]."""
    a = a[:, None] if a.ndim == 1 else a
    return a if a.dtype in (np.float32, np.float64) else a.astype(float)


def whole(a: np.ndarray, name: str) -> np.ndarray:
    """The array as integers; a ValueError unless they are whole numbers of at least 0."""
    if (a.dtype.kind not in "iu" and not np.array_equal(a, np.round(a))) or (len(a) and a.min() < 0):
        raise ValueError(f"{name} must hold whole numbers, the number of each datum from 0.")
    return a.astype(np.int64)
