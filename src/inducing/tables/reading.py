"""Reading tables from files: CSV with any delimiter, Parquet, Arrow and JSON lines."""

import gzip
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from inducing.declared import shown
from inducing.parameters import as_path
from inducing.tables.cells import MISSING, as_numbers
from inducing.tables.frames import as_texts, check_decimal, check_texts

ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


def read_table(
    path: str | Path,
    *,
    na: Sequence[str] = (),
    decimal: str = ".",
    delimiter: str | None = None,
    encoding: str = "utf8",
) -> pa.Table:
    """Read a table from a file.

    The format follows from the file extension: `.parquet`, `.feather` or `.arrow`, and `.jsonl`. Any other file is read
    as CSV with a header, whose cells are separated by commas, semicolons, tabs or vertical bars. CSV and JSON lines may
    be compressed by gzip.

    Args:
        path: the file, or "-" for CSV from standard input.
        na: words that mark missing values, in addition to the usual ones such as "NA" and "null".
        decimal: the decimal mark in CSV, "." or ",".
        delimiter: the delimiter of CSV. By default, it is detected in the header.
        encoding: the encoding of CSV.

    Returns:
        A pyarrow table.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it does not contain a table. The message names the file and the reason.

    Examples:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "a.csv")
        ...     _ = path.write_text("x;day\\n1,5;2020-01-31\\n")
        ...     read_table(path, decimal=",").to_pylist()
        [{'x': 1.5, 'day': datetime.date(2020, 1, 31)}]
    """
    path, na = as_path(path), as_texts("na", na)
    check_decimal(decimal)
    check_texts(delimiter=delimiter)
    if not isinstance(encoding, str):
        raise TypeError(f"encoding must be text such as 'utf8', got {shown(encoding)}.")
    if delimiter is not None and len(delimiter) != 1:
        raise ValueError(f"delimiter must be one character, got {delimiter!r}.")
    name = "standard input" if str(path) == "-" else str(path)
    if str(path) != "-" and Path(path).is_dir():
        raise ValueError(f"{name} is a folder; give a file.")
    kind = ENDINGS.get(Path(str(path).removesuffix(".gz")).suffix.lower(), "csv")
    try:
        table = _READERS[kind](path, na, decimal, delimiter, encoding)
    except (pa.ArrowException, UnicodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{name}: {_explained(error, kind, encoding)}") from error
    if not table.num_columns or not table.num_rows:
        raise ValueError(f"{name} must have a header and at least one row, but has {table.num_rows} rows.")
    twice = next((c for c in table.column_names if table.column_names.count(c) > 1), None)
    if twice is not None:
        raise ValueError(f"{name} has two columns called {twice!r}; rename one of them.")
    return table


def _explained(error: BaseException, kind: str, encoding: str) -> str:
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "UTF8" in said or isinstance(error, UnicodeError):
        return (
            f"it is not encoded as {encoding} ({said}); pass its encoding, such as encoding='latin-1' (on the command "
            "line, --encoding latin-1), or save it as UTF-8."
        )
    what = {"csv": "CSV table", "json": "table of JSON lines", "parquet": "Parquet file", "arrow": "Arrow file"}[kind]
    return f"it cannot be read as a {what}: {said}."


def _content(path: Any) -> bytes:
    content = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def _csv(path: Any, na: tuple[str, ...], decimal: str, delimiter: str | None, encoding: str) -> pa.Table:
    from pyarrow import csv

    content = _content(path)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    if encoding.lower().replace("-", "") not in ("utf8", "utf8sig"):
        try:
            content = content.decode(encoding).encode()
        except LookupError as error:
            raise ValueError(f"encoding {encoding!r} is unknown; use one such as utf-8, latin-1 or cp1252.") from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    header = next((line for line in content[: 1 << 20].splitlines() if line.strip()), b"").decode(errors="replace")
    if not header:
        raise ValueError(f"{path} must have a header and at least one row, but is empty.")
    found = delimiter or max(",;\t|", key=re.sub('"[^"]*"', "", header).count)  # quoted names may contain any delimiter
    read = csv.ReadOptions(block_size=max(1 << 20, min(len(content) // 4, 1 << 26)))
    parse = csv.ParseOptions(delimiter=found, newlines_in_values=b'"' in content)
    convert = csv.ConvertOptions(
        null_values=[*MISSING, *na], strings_can_be_null=True, quoted_strings_can_be_null=True, decimal_point=decimal
    )
    table = csv.read_csv(pa.BufferReader(content), read, parse, convert)
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    if whole and re.search(rb'[%b\n"]0\d+(?:[%b\r\n"]|$)' % (2 * (re.escape(found.encode()),)), content):
        convert.include_columns, convert.column_types = whole, dict.fromkeys(whole, pa.string())
        table = _with_codes(table, csv.read_csv(pa.BufferReader(content), read, parse, convert))
    if (broken := next((f.name for f in table.schema if pa.types.is_binary(f.type)), None)) is not None:
        raise UnicodeError(f"column {broken!r}")
    return _without_empty_rows(table.rename_columns([column.strip() for column in table.column_names]))


def _with_codes(table: pa.Table, texts: pa.Table) -> pa.Table:
    """The table with text instead of whole numbers, some of which are codes that begin with zeros."""
    from pyarrow.compute import MatchSubstringOptions, call_function  # functions by name, as type checkers need

    zeros = MatchSubstringOptions(r"^\s*0\d")
    for name in texts.column_names:
        if call_function("any", [call_function("match_substring_regex", [texts[name]], zeros)]).as_py():
            table = table.set_column(table.column_names.index(name), name, texts[name])
    return table


def _without_empty_rows(table: pa.Table) -> pa.Table:
    """The table without empty rows, which spreadsheets write below a table."""
    if any(column.null_count == 0 for column in table.columns):
        return table
    seen = np.any([column.is_valid().to_numpy() for column in table.columns], axis=0)
    return table if seen.all() else table.filter(pa.array(seen))


def _json(path: Any, na: tuple[str, ...], *options: Any) -> pa.Table:
    from pyarrow import json

    content = _content(path)
    if content.lstrip()[:1] == b"[":
        raise ValueError(f"{path} contains a JSON array; write one object per line (JSON lines).")
    options = json.ReadOptions(block_size=max(1 << 20, len(content)))
    return _without_words(json.read_json(pa.BufferReader(content), read_options=options), na)


def _parquet(path: Any, na: tuple[str, ...], *options: Any) -> pa.Table:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:  # `read_table` would import pyarrow.dataset, which takes half a second
        return _without_words(file.read(), na)


def _arrow(path: Any, na: tuple[str, ...], *options: Any) -> pa.Table:
    from pyarrow import feather

    return _without_words(feather.read_table(path), na)


def _without_words(table: pa.Table, words: tuple[str, ...]) -> pa.Table:
    """The table with gaps instead of words, in columns of text, and of the numbers that they spell."""
    from pyarrow.compute import SetLookupOptions, call_function  # functions by name, as type checkers need

    numbers = pa.array([value for value in as_numbers(words).values if not np.isnan(value)])
    for i, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)) if words else ():
        kind = column.type
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if number or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            values = column.cast(pa.float64(), safe=False) if number else column
            unwanted = SetLookupOptions(numbers if number else pa.array(words, kind))
            found = call_function("is_in", [values], unwanted)
            table = table.set_column(i, name, call_function("if_else", [found, pa.scalar(None, kind), column]))
    return table


_READERS = {"csv": _csv, "json": _json, "parquet": _parquet, "arrow": _arrow}
