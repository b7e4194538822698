"""Writing tables to CSV or Parquet files."""

import io
from pathlib import Path

import pyarrow as pa

from inducing.declared import shown
from inducing.io.container import write_atomically
from inducing.parameters import as_path

EXECUTED = "-=+@\t\r"  # spreadsheets execute cells that begin with one of these


NOT_WRITTEN = (".xlsx", ".xls", ".json", ".jsonl", ".feather", ".arrow")


def check_ending(path: str | Path) -> None:
    """Raise a ValueError if tables cannot be written to files of this extension.

    Args:
        path: the name of the file.

    Examples:
        >>> check_ending("a.xlsx")
        Traceback (most recent call last):
            ...
        ValueError: a.xlsx: tables are written as CSV or Parquet; choose the extension .csv or .parquet.
    """
    if Path(path).suffix.lower() in NOT_WRITTEN:
        raise ValueError(f"{path}: tables are written as CSV or Parquet; choose the extension .csv or .parquet.")


def table_bytes(path: str | Path, table: pa.Table) -> bytes:
    """The content of a Parquet file, if the name ends in .parquet, or of a CSV file.

    In CSV, text that a spreadsheet would execute, such as "=1+1", gets a leading apostrophe.

    Args:
        path: the name of the file.
        table: the table.

    Returns:
        The content.

    Raises:
        ValueError: for other known extensions, such as .xlsx.

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

        safe = pa.table([_safe(column) for column in table.columns], names=_safe_names(table.column_names))
        csv.write_csv(safe, out)
    return out.getvalue()


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write a table to a file. The file is written completely or not at all.

    Args:
        path: the file, with the extension .csv or .parquet.
        table: a pyarrow table.

    Raises:
        OSError: if the file cannot be written.
        TypeError: if `path` is not a path, or `table` is not a pyarrow table.
        ValueError: for other extensions.

    Examples:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_table(f"{folder}/a.csv", pa.table({"x": [1.5]}))
        ...     pathlib.Path(folder, "a.csv").read_text().split()
        ['"x"', '1.5']
    """
    path = as_path(path)
    if not isinstance(table, pa.Table):
        raise TypeError(f"table must be a pyarrow Table, got {shown(table)}; convert data frames by pa.table(frame).")
    write_atomically(path, table_bytes(path, table))


def _safe_names(names: list[str]) -> list[str]:
    return [f"'{name}" if name.startswith(tuple(EXECUTED)) else name for name in names]


def _safe(column: pa.ChunkedArray) -> pa.ChunkedArray:
    from pyarrow.compute import MatchSubstringOptions, call_function  # functions by name, as type checkers need

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type not in (pa.string(), pa.large_string(), pa.string_view()):
        return column
    column = column.cast(pa.large_string())
    executed = call_function("match_substring_regex", [column], MatchSubstringOptions(f"^[{EXECUTED}]"))
    escaped = call_function(
        "binary_join_element_wise", [pa.scalar("'", column.type), column, pa.scalar("", column.type)]
    )
    return call_function("if_else", [executed, escaped, column])
