"""Sources that are files: row groups of Parquet, record batches of Arrow, ranges of lines of CSV, compressed CSV."""

import io
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from inducing.declared import shown
from inducing.streams.arrays import whole
from inducing.streams.source import BLOCK, AbstractSource, Rows, checked, in_blocks

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
}
CHUNK = 2**24  # bytes of a CSV file that are searched for line ends at a time


class Columns(NamedTuple):
    """The names of the columns that are read."""

    x: list[str]
    y: list[str]
    index: str | None
    weight: str | None

    @property
    def all(self) -> list[str]:
        """All names, without repetition."""
        return list(dict.fromkeys([*self.x, *self.y, *(n for n in (self.index, self.weight) if n is not None)]))


class File(NamedTuple):
    """A file of a stream: its path, its size in bytes when the stream was made, and its format."""

    path: str
    size: int
    format: str


class Block(NamedTuple):
    """A part of a file: the number of its row group or record batch, or the bytes from `first` to `last` of a CSV."""

    file: File
    first: int
    last: int
    rows: int


def pyarrow() -> Any:
    """Import pyarrow and the modules that read files."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.fs
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("streams of files require pyarrow; install it: pip install 'inducing[tables]'.") from error
    return pa


def files_of(paths: list[str], filesystem: Any) -> tuple[Any, list[File]]:
    """The file system, and the files that paths, folders and patterns name, sorted by path.

    Args:
        paths: paths, folders, patterns with `*` and `?`, or URIs such as `s3://bucket/rows/*.parquet`.
        filesystem: a file system of pyarrow; None for that of the URI, or the local one.

    Raises:
        TypeError: if `filesystem` is something else.
        FileNotFoundError: if one of them names no file.
        ValueError: if the format of a file is unknown.
    """
    fs = pyarrow().fs
    if not isinstance(filesystem, fs.FileSystem | None):
        raise TypeError(f"filesystem must be a file system of pyarrow.fs, got {shown(filesystem)}.")
    found: dict[str, File] = {}
    for path in paths:
        if filesystem is None and "://" in path:
            scheme, rest = path.split("://", 1)
            filesystem, _ = fs.FileSystem.from_uri(f"{scheme}://{_base(rest)}")
        path = path.split("://", 1)[-1] if "://" in path else path
        files = fs.LocalFileSystem() if filesystem is None else filesystem
        infos = [info for info in _matching(fs, files, path) if info.is_file]
        if not infos:
            raise FileNotFoundError(
                f"no file matches {path!r}; pass as source a path, a folder or a pattern such as 'rows/*.parquet'."
            )
        found |= {info.path: File(info.path, info.size, _format(info.path)) for info in infos}
    return fs.LocalFileSystem() if filesystem is None else filesystem, [found[path] for path in sorted(found)]


def names_in(file: File, filesystem: Any) -> list[str]:
    """The names of the columns of a file."""
    pa = pyarrow()
    with _naming(file.path):
        if file.format == "parquet":
            return pa.parquet.read_schema(filesystem.open_input_file(file.path)).names
        if file.format == "arrow":
            return pa.ipc.open_file(filesystem.open_input_file(file.path)).schema.names
        compression = "gzip" if file.format == "csv.gz" else None
        return pa.csv.open_csv(filesystem.open_input_stream(file.path, compression=compression)).schema.names


def _base(path: str) -> str:
    """The folder of a path before its first part with a `*` or `?`."""
    parts = path.split("/")
    fixed = next((i for i, part in enumerate(parts) if re.search(r"[*?]", part)), len(parts))
    return "/".join(parts[:fixed])


def _matching(fs: Any, files: Any, path: str) -> list[Any]:
    base = _base(path)
    if base == path:
        info = files.get_file_info([path])[0]
        if info.type != fs.FileType.Directory:
            return [info]
        inside = files.get_file_info(fs.FileSelector(path, recursive=True))
        return [info for info in inside if info.is_file and not info.base_name.startswith((".", "_"))]
    pattern = re.escape(path).replace(r"\*\*", ".*").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    if files.get_file_info([base or "."])[0].type != fs.FileType.Directory:
        return []
    inside = files.get_file_info(fs.FileSelector(base or ".", recursive=True))
    return [info for info in inside if re.fullmatch(rf"(\./)?{pattern}", info.path)]


def _format(path: str) -> str:
    if path.endswith(".csv.gz"):
        return "csv.gz"
    suffix = "." + path.rsplit(".", 1)[-1]
    if suffix not in FORMATS:
        raise ValueError(f"{path}: unknown format; streams read {', '.join(FORMATS)} and .csv.gz.")
    return FORMATS[suffix]


class Tables(AbstractSource):
    """Rows of files.

    Args:
        files: the files.
        filesystem: the file system that opens them.
        columns: the names of the columns.

    Raises:
        ValueError: if a file lacks a column or a column does not hold numbers; the message names both.
    """

    def __init__(self, files: list[File], filesystem: Any, columns: Columns):
        self._fs, self._columns, self._files, self._pa = filesystem, columns, files, pyarrow()
        self._metadata: dict[str, Any] = {}
        self.seeks = not any(file.format == "csv.gz" for file in files)
        self._blocks = [block for file in files for block in self._blocks_of(file) if block.rows > 0]
        if not self._blocks:
            raise ValueError(f"{files[0].path} holds no rows; pass files with at least one.")
        if not self.seeks:
            N = sum(block.rows for block in self._blocks)
            self.blocks = np.diff(np.append(np.arange(0, N, BLOCK), N))
        else:
            self.blocks = np.array([block.rows for block in self._blocks])
        self._starts = np.cumsum([0, *(block.rows for block in self._blocks)])

    def read(self, block: int) -> Rows:
        here = self._blocks[block]
        with _naming(here.file.path, self._metadata):
            table = self._table(here)
        return self._checked(table, block, int(self._starts[block]), here.rows)

    def replay(self) -> Iterator[Rows]:
        return in_blocks(self._in_order(), BLOCK)

    def __repr__(self) -> str:
        total = sum(file.size for file in self._files)
        names = f"{self._files[0].path} … {self._files[-1].path}" if len(self._files) > 1 else self._files[0].path
        return f"{len(self._files)} files ({names}), {total} bytes"

    def _checked(self, table: Any, block: int, first: int, expected: int) -> Rows:
        names, path = self._columns, self._blocks[block].file.path
        values = {name: self._numbers(table, name, path) for name in names.all}
        x = np.stack([values[n] for n in names.x], axis=1) if names.x else None
        index = np.arange(first, first + table.num_rows)
        if names.index is not None:
            index = whole(values[names.index], f"{path}: column {names.index!r}")
        weight = None if names.weight is None else values[names.weight]
        y = np.stack([values[n] for n in names.y], axis=1) if names.y else np.empty((table.num_rows, 0))
        rows = Rows(x, y, index, weight)
        return checked(rows, block, expected, path, (names.x, names.y))

    def _numbers(self, table: Any, name: str, path: str) -> np.ndarray:
        column = table.column(name)
        if name not in self._columns.y and column.null_count:
            raise ValueError(
                f"{path}: column {name!r} has {column.null_count} empty cells; impute them, or drop those rows."
            )
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(float)

    def _in_order(self) -> Iterator[Rows]:
        """All rows, file by file."""
        for block, (file, _, _, expected) in enumerate(self._blocks):
            if file.format != "csv.gz":
                yield self.read(block)
                continue
            first = int(self._starts[block])
            with _naming(file.path, self._metadata):
                for batch in self._compressed(file):
                    yield self._checked(batch, block, first, batch.num_rows)
                    first += batch.num_rows
                if first != self._starts[block + 1]:
                    raise ValueError(
                        f"the file no longer has {expected} rows; files must not change while they are read."
                    )

    def _open(self, file: File) -> Any:
        """The file, if it has not changed since the stream was made."""
        info = self._fs.get_file_info([file.path])[0]
        if not info.is_file:
            raise FileNotFoundError(
                "the file has vanished since the stream was made; files must not change during a fit."
            )
        if info.size != file.size:
            raise ValueError(
                f"the file has {info.size} bytes, and had {file.size} when the stream was made; files must not change "
                "during a fit. Write new rows to new files."
            )
        return self._fs.open_input_file(file.path)

    def _compressed(self, file: File) -> Iterator[Any]:
        """The batches of a compressed CSV file."""
        self._open(file).close()
        source = self._fs.open_input_stream(file.path, compression="gzip")
        return iter(self._pa.csv.open_csv(source, convert_options=self._conversion()))

    def _table(self, block: Block) -> Any:
        pa, (file, first, last, _) = self._pa, block
        source = self._open(file)
        if file.format == "parquet":
            found = pa.parquet.ParquetFile(source, metadata=self._metadata[file.path])
            return found.read_row_group(first, columns=self._columns.all, use_threads=False)
        if file.format == "arrow":
            batch = pa.ipc.open_file(source).get_batch(first)
            return pa.Table.from_batches([batch]).select(self._columns.all)
        source.seek(first)
        return self._csv(io.BytesIO(source.read(last - first)), self._metadata[file.path])

    def _csv(self, source: Any, header: list[str]) -> Any:
        reading = self._pa.csv.ReadOptions(column_names=header, use_threads=False)
        return self._pa.csv.read_csv(source, read_options=reading, convert_options=self._conversion())

    def _conversion(self) -> Any:
        wanted = self._columns.all
        types = dict.fromkeys(wanted, self._pa.float64())
        return self._pa.csv.ConvertOptions(column_types=types, include_columns=wanted)

    def _blocks_of(self, file: File) -> list[Block]:
        """Check the columns of a file, and find its blocks."""
        pa = self._pa
        if file.format == "csv.gz":
            self._metadata[file.path] = names_in(file, self._fs)
        with _naming(file.path, self._metadata):
            if file.format == "csv.gz":
                self._check_names(self._metadata[file.path])
                return [Block(file, 0, 0, sum(batch.num_rows for batch in self._compressed(file)))]
            source = self._open(file)
            if file.format == "parquet":
                found = pa.parquet.ParquetFile(source)
                self._check_schema(found.schema_arrow)
                self._metadata[file.path] = meta = found.metadata
                return [Block(file, i, i + 1, meta.row_group(i).num_rows) for i in range(meta.num_row_groups)]
            if file.format == "arrow":
                found = pa.ipc.open_file(source)
                self._check_schema(found.schema)
                sizes = [found.get_batch(i).num_rows for i in range(found.num_record_batches)]
                return [Block(file, i, i + 1, n) for i, n in enumerate(sizes)]
            return self._ranges(file, source)

    def _check_schema(self, schema: Any) -> None:
        types = self._pa.types
        self._check_names(schema.names)
        for name in self._columns.all:
            kind = schema.field(name).type
            if not (
                types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
            ):
                raise ValueError(f"column {name!r} holds {kind}, and must hold numbers; encode it first.")

    def _check_names(self, names: list[str]) -> None:
        for name in self._columns.all:
            if names.count(name) != 1:
                how_many = "there is no column" if name not in names else "there are several columns"
                raise ValueError(f"{how_many} {name!r}; the columns are {', '.join(map(repr, names))}.")

    def _ranges(self, file: File, source: Any) -> list[Block]:
        """Find ranges of lines of a CSV file in one pass. Line ends within quotes do not end a row."""
        ends, quotes, offset, tail = [], 0, 0, b"\n\n"
        while chunk := source.read(CHUNK):
            data = np.frombuffer(tail + chunk, np.uint8)
            newlines, marks = np.flatnonzero(data[2:] == 10), np.flatnonzero(data[2:] == 34)
            before, second = data[newlines + 1], data[newlines]
            newlines = newlines[(before != 10) & ~((before == 13) & (second == 10))]  # pyarrow skips empty lines
            if marks.size or quotes:
                newlines = newlines[(np.searchsorted(marks, newlines) + quotes) % 2 == 0]
            ends.append(newlines + offset + 1)
            quotes, offset, tail = (quotes + marks.size) % 2, offset + len(chunk), (tail + chunk)[-2:]
        lines = np.concatenate([*ends, np.zeros(0, np.int64)])
        if not tail.endswith(b"\n"):
            lines = np.append(lines, offset)  # the last line is not terminated
        if lines.size == 0:
            return []
        source.seek(0)
        header = self._pa.csv.read_csv(io.BytesIO(source.read(int(lines[0])))).column_names
        self._check_names(header)
        self._metadata[file.path] = header
        cuts = np.append(np.arange(0, lines.size - 1, BLOCK), lines.size - 1)
        return [Block(file, int(lines[a]), int(lines[b]), int(b - a)) for a, b in itertools.pairwise(cuts)]


class _naming:
    """Adds the path of the file, and the name of the column, to errors inside the block.

    Args:
        path: the path of the file.
        headers: the names of the columns of CSV files, by their paths.
    """

    def __init__(self, path: str, headers: Mapping[str, Any] | None = None):
        self._path, self._headers = path, {} if headers is None else headers

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"{self._path}: {error}") from error
        if isinstance(error, OSError) and not isinstance(error, ValueError):
            raise OSError(f"{self._path} cannot be read: {error}") from error
        if isinstance(error, ValueError | KeyError):  # those of pyarrow derive from these
            told = re.sub(r"In CSV column #(\d+)", self._column, str(error))
            raise ValueError(f"{self._path}: {told}") from error

    def _column(self, found: re.Match) -> str:
        """The name of a column that a message refers to by number."""
        header = self._headers.get(self._path)
        return f"column {header[int(found[1])]!r}" if header else found[0]
