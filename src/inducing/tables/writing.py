"""Tables to files: CSV or Parquet, by the file's ending."""

import io
from pathlib import Path

import pyarrow as pa

from inducing.io.container import write_atomically

EXECUTED = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run cells that begin with one of these


NOT_WRITTEN = (".xlsx", ".xls", ".json", ".jsonl", ".feather", ".arrow")


def check_ending(path: str | Path) -> None:
    """Raise a ValueError if tables are not written as files of this ending.

    Args:
        path: the file's name.

    Examples:
        >>> check_ending("a.xlsx")
        Traceback (most recent call last):
            ...
        ValueError: a.xlsx: tables are written as CSV or Parquet; choose the ending .csv or .parquet.
    """
    if Path(path).suffix.lower() in NOT_WRITTEN:
        raise ValueError(f"{path}: tables are written as CSV or Parquet; choose the ending .csv or .parquet.")


def table_bytes(path: str | Path, table: pa.Table) -> bytes:
    """The content of a file: Parquet if its name ends in .parquet, CSV otherwise.

    In CSV, an apostrophe is put before text that a spreadsheet would execute, such as "=1+1".

    Args:
        path: the file's name.
        table: the table.

    Returns:
        The content.

    Raises:
        ValueError: for another ending of a known kind, such as .xlsx.

    Examples:
        >>> table_bytes("a.csv", pa.table({"x": ["=1+1", "red"]})).decode().split()
        ['"x"', '"\\'=1+1"', '"red"']
    """
    check_ending(path)
    out = io.BytesIO()
    if Path(path).suffix.lower() in (".parquet", ".pq"):
        from pyarrow import parquet

        parquet.write_table(table, out)
    else:
        from pyarrow import csv

        safe = pa.table([_safe(column) for column in table.columns], names=[_safe_text(n) for n in table.column_names])
        csv.write_csv(safe, out)
    return out.getvalue()


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write a table to a file, as a whole or not at all.

    Args:
        path: the file, whose name ends in .csv or .parquet.
        table: a table of pyarrow.

    Raises:
        OSError: if the file cannot be written.
        ValueError: for another ending.

    Examples:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_table(f"{folder}/a.csv", pa.table({"x": [1.5]}))
        ...     pathlib.Path(folder, "a.csv").read_text().split()
        ['"x"', '1.5']
    """
    write_atomically(Path(path), table_bytes(path, table))


def _safe_text(text: str) -> str:
    return f"'{text}" if text.startswith(EXECUTED) else text


def _safe(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    return pa.chunked_array([[None if v is None else _safe_text(v) for v in column.to_pylist()]], pa.string())
