"""`Stream`, for data larger than memory."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from inducing.data import Data
from inducing.declared import fits, is_whole, shown
from inducing.parameters import as_tuple, at_least_one
from inducing.streams.arrays import Arrays, Replayed
from inducing.streams.order import Order
from inducing.streams.reader import HELD, Reader
from inducing.streams.source import AbstractSource, Cursor, Rows, joined, padded
from inducing.streams.tables import Columns, Tables, files_of

SAMPLE, PLACES = 20_000, 16  # rows of a sample, and the most blocks that it is taken from


class Stream:
    """Rows that are read during training, so that memory does not grow with their number.

    Use it in place of the data in `ig.fit`, `ig.collapsed_elbo`, `ig.collapse` and `ig.evidence_upper_bound`. Where a
    function needs data in memory, for example `ig.initialise.kmeans`, pass `stream.sample()`.

    The minibatch of a step depends on the random key and the step only. In each epoch, the blocks of the source (such
    as row groups of Parquet files) are permuted, and rows are shuffled within a window. With several processes, each
    reads its own part, and together they have the same minibatch as a single process.

    Args:
        source: one of

            - a path, a folder, a pattern such as `"rows/*.parquet"`, a URI such as `"s3://bucket/rows"`, or a list of
              these. Files are Parquet, Arrow (`.arrow`, `.feather`), `.csv` or `.csv.gz`. This requires pyarrow:
              `pip install 'inducing[tables]'`.
            - a pair of arrays (X, y), or one array [N, columns]; of a memory map only the rows that are needed are
              read.
            - an iterable of batches that can be repeated, such as a data loader, or a function that returns an
              iterator of them. Batches are pairs (X, y), `ig.Data`, or mappings of columns. Needs `num_data`.
        x: the name of the column of inputs, or a list of names; column numbers if the source is one array.
        y: the same for labels. Empty cells and NaN are missing labels.
        weight: the name of the column of weights: a row of weight 2 counts twice.
        index: the name of a column with the number of each datum, for parameters that belong to single data. By
            default, rows are numbered from 0.
        num_data: the number of rows, if the source gives batches.
        filesystem: a file system of pyarrow that opens the paths.
        window: the approximate number of rows that are in memory and shuffled together.

    Raises:
        ImportError: if files are to be read and pyarrow is not installed.
        FileNotFoundError: if no file has that name.
        ValueError: if a file lacks a column, or a column does not hold numbers.
        TypeError: if the source is of another kind.

    Examples:
        >>> stream = Stream((np.arange(100.0), np.ones(100)))
        >>> len(stream), stream.sample().x.shape
        (100, (100, 1))
        >>> batch = next(stream.batches(4))
        >>> batch.x.shape, batch.y.shape
        ((4, 1), (4, 1))
    """

    def __init__(
        self,
        source: Any,
        x: Any = None,
        y: Any = None,
        *,
        weight: str | None = None,
        index: str | None = None,
        num_data: int | None = None,
        filesystem: Any = None,
        window: int = 2**18,
    ):
        self._window = at_least_one("window", window)
        names = _listed("x", x), _listed("y", y)
        for name, column in (("weight", weight), ("index", index)):
            if not (column is None or isinstance(column, str) or is_whole(column)):
                raise TypeError(f"{name} must be the name of a column, got {shown(column)}.")
        self._source = _source(source, names, (index, weight), num_data, filesystem)
        self._sample: Rows | None = None

    def __len__(self) -> int:
        return self._source.num_rows

    def __repr__(self) -> str:
        return f"Stream({self._source!r}, {len(self)} rows, window {self._window})"

    def layout(self) -> np.ndarray:
        """The rows of each block and those of the window: what the order of the rows depends on, besides the seed."""
        return np.append(self._source.blocks, self._window)

    def sample(self) -> Data:
        """Up to 20,000 rows in memory, the same on every process and for every random key.

        They are drawn at random from up to 16 blocks that are spread over the source. If the source can only be read
        from the beginning, they are drawn from its first 16 blocks of 65,536 rows.

        Returns:
            The rows as `ig.Data`.
        """
        if self._sample is None:
            self._sample = self._drawn()
        rows = self._sample
        return Data(rows.x, rows.y, None, rows.index, rows.weight)

    def batches(self, batch_size: int, *, seed: int | tuple[int, ...] = 0, first: int = 0) -> Iterator[Data]:
        """Iterate over the minibatches of all steps, without end.

        Args:
            batch_size: the number of rows in a minibatch.
            seed: whole numbers that determine the order of the rows.
            first: the first step.

        Returns:
            An iterator of `ig.Data`. A thread reads ahead.

        Raises:
            ValueError: if there are fewer rows than `batch_size`.
        """
        seeds: Any = (seed,) if is_whole(seed) else as_tuple(seed)
        if not isinstance(seeds, tuple) or not all(is_whole(s, 0) for s in seeds):
            raise ValueError(f"seed must be whole numbers of at least 0, got {shown(seed)}.")
        if not is_whole(first, 0):
            raise ValueError(f"first must be the number of a step, counted from 0, got {shown(first)}.")
        self._check_batch_size(batch_size)
        return (Data(r.x, r.y, None, r.index, r.weight) for r in self.rows(batch_size, seeds, first))

    def _check_batch_size(self, batch_size: Any) -> None:
        if at_least_one("batch_size", batch_size) > len(self):
            raise ValueError(
                f"batch_size must be a whole number from 1 to the number of rows, {len(self)}, got {batch_size}."
            )

    def rows(
        self,
        batch_size: int,
        seed: tuple[int, ...],
        first: int = 0,
        part: int = 0,
        parts: int = 1,
        prepare: Callable[[Rows], Any] = lambda rows: rows,
    ) -> Generator[Any]:
        """One part of the minibatches of all steps, as NumPy arrays, which a thread reads ahead.

        Args:
            batch_size: the number of rows in a minibatch, of which a part has an equal share.
            seed: whole numbers that determine the order of the rows.
            first: the first step.
            part: the number of the part.
            parts: the number of parts, which divides `batch_size` and 64.
            prepare: a function of a minibatch, called in that thread; its results are yielded.
        """
        self._check_batch_size(batch_size)
        order = Order(self._source.blocks, self._source.seeks, batch_size, self._window, seed)
        if order.shards % parts:
            raise ValueError(
                f"a minibatch of {batch_size} rows cannot be shared by {parts} processes; use a batch_size that is a "
                f"multiple of {parts}, and a number of processes that divides 64."
            )
        prepared = map(prepare, self._in_order(order, first, part, parts))
        return _closing(Reader(prepared, HELD * parts // batch_size))

    def _in_order(self, order: Order, step: int, part: int, parts: int) -> Iterator[Rows]:
        epoch, window, batch = order.place(step)
        while True:
            blocks = order.order_of_blocks(epoch)
            cursors = [Cursor(self._source, blocks) for _ in range(order.lanes)]
            while window * order.per_window < order.per_epoch:
                ranges = order.ranges_of(window, part, parts)
                held = joined([cursors[lane].read(first, last) for lane, first, last in ranges])
                for rows in order.rows_of(epoch, window, part, parts)[batch:]:
                    yield held.take(rows)
                window, batch = window + 1, 0
            epoch, window = epoch + 1, 0

    def chunks(
        self, size: int, part: int = 0, parts: int = 1, prepare: Callable[[Rows], Any] = lambda rows: rows
    ) -> Generator[Any]:
        """All rows once, in the order of the source, which a thread reads ahead.

        Args:
            size: the number of rows of a chunk. The last chunks are padded with rows without labels.
            part: the number of the part.
            parts: the number of parts. All have the same number of chunks.
            prepare: a function of a chunk, called in that thread; its results are yielded.
        """

        def read() -> Iterator[Rows]:
            cursor = Cursor(self._source, np.arange(len(self._source.blocks)))
            nothing = cursor.read(0, 1).without_labels()
            each = -(-len(self) // (size * parts))  # chunks of a part
            for chunk in range(part * each, (part + 1) * each):
                first, last = min(chunk * size, len(self)), min((chunk + 1) * size, len(self))
                rows = cursor.read(first, last) if first < last else nothing
                yield padded(rows, size)

        return _closing(Reader(map(prepare, read()), HELD // size))

    def _drawn(self) -> Rows:
        """Rows for `sample`."""
        blocks, rng = self._source.blocks, np.random.default_rng(0)
        if self._source.seeks:
            chosen = np.unique(np.linspace(0, len(blocks) - 1, PLACES).astype(int))
        else:
            chosen = np.arange(min(PLACES, len(blocks)))
        total = int(blocks[chosen].sum())
        ends, cursor, pieces = np.cumsum(blocks), Cursor(self._source, np.arange(len(blocks))), []
        for block in chosen:
            rows = cursor.read(int(ends[block] - blocks[block]), int(ends[block]))
            size = -(-SAMPLE * len(rows) // total)
            pieces.append(rows if total <= SAMPLE else rows.take(np.sort(rng.permutation(len(rows))[:size])))
        return joined(pieces).take(slice(0, SAMPLE)) if total <= SAMPLE else joined(pieces)


def _closing(reader: Reader) -> Generator[Any]:
    """Yield the items of a reader, and close it at the end."""
    try:
        yield from reader
    finally:
        reader.close()


def arrays_of(rows: Rows, dtype: Any) -> list[np.ndarray]:
    """The arrays of a `Data` of these rows, in the order of its leaves.

    Args:
        rows: the rows.
        dtype: the floating-point dtype.

    Examples:
        >>> [a.dtype.name for a in arrays_of(Rows(None, np.zeros((2, 1)), np.arange(2), None), np.float32)]
        ['float32', 'bool', 'int64']
    """
    whole = jax.dtypes.canonicalize_dtype(np.int64)
    arrays = (rows.x, rows.y, ~np.isnan(rows.y), rows.index, rows.weight)
    kinds = (dtype, dtype, bool, whole, dtype)
    return [a.astype(kind, copy=False) for a, kind in zip(arrays, kinds, strict=True) if a is not None]


def _listed(name: str, columns: Any) -> list[Any]:
    """A list of names of columns."""
    if columns is None:
        return []
    several = (columns,) if isinstance(columns, str) or is_whole(columns) else as_tuple(columns)
    if not isinstance(several, tuple) or not all(isinstance(column, str) or is_whole(column) for column in several):
        raise TypeError(f"{name} must be the name of a column, or a list of names, got {shown(columns)}.")
    return list(several)


def _source(
    source: Any, names: tuple[list, list], others: tuple[Any, Any], num_data: int | None, filesystem: Any
) -> AbstractSource:
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if isinstance(paths, list) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
        return _of_files([os.fspath(path) for path in paths], names, others, filesystem)
    if isinstance(source, np.ndarray):
        return _of_matrix(source, names, others)
    if isinstance(source, tuple) and len(source) == 2:
        return Arrays(*(None if a is None else a if isinstance(a, np.ndarray) else np.asarray(a) for a in source))
    begin = _beginning(source)
    if num_data is None:
        raise ValueError(
            f"a source of batches, here of type {type(source).__name__}, needs num_data, the number of its rows. Pass "
            "arrays as a pair (X, y)."
        )
    return Replayed(begin, at_least_one("num_data", num_data), names, others)


def _of_files(paths: list[str], names: tuple[list, list], others: tuple[Any, Any], filesystem: Any) -> AbstractSource:
    if not names[1] or not all(isinstance(name, str) for name in (*names[0], *names[1])):
        raise ValueError("files need the names of their columns: x=['a', 'b'], y='price'.")
    fs, files = files_of(paths, filesystem)
    return Tables(files, fs, Columns(*names, *others))


def _of_matrix(source: np.ndarray, names: tuple[list, list], others: tuple[Any, Any]) -> AbstractSource:
    if source.ndim != 2 or not names[1]:
        raise ValueError(
            "source is an array, which must be [N, columns], with the numbers of its columns: x=[0, 1], y=2; got "
            f"{shown(source)}."
        )
    width = source.shape[1]
    for name, columns in (("x", names[0]), ("y", names[1]), ("index", others[:1]), ("weight", others[1:])):
        for column in columns:
            if column is not None and (isinstance(column, str) or not -width <= column < width):
                raise ValueError(
                    f"{name} must be columns of the array, numbered from 0 to {width - 1}, got {column!r}."
                )
    x = _Selected(source, names[0]) if names[0] else None
    rest = [None if column is None else source[:, column] for column in others]
    return Arrays(x, _Selected(source, names[1]), *rest)


def _beginning(source: Any) -> Callable[[], Iterable[Any]]:
    """A function that starts the batches from the beginning."""
    if fits(source, Callable[[], Any]):
        return source
    if isinstance(source, Iterable) and iter(source) is not source:
        return lambda: source
    raise TypeError(
        "source must be paths, arrays (X, y), or batches that can be repeated (an iterable, or a function that "
        f"returns an iterator), got {shown(source)}."
    )


class _Selected:
    """Some columns of an array [N, columns], read when rows are taken."""

    ndim = 2

    def __init__(self, array: np.ndarray, columns: list[int]):
        self._array, self._columns, self.dtype = array, columns, array.dtype
        self.shape = (len(array), len(columns))

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self._array[rows][:, self._columns]
