"""Conversion of pandas and polars data frames to pyarrow tables, and of predictions to the type of the input."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from inducing.declared import shown
from inducing.parameters import as_tuple


def library_of(frame: Any) -> str:
    """The library of a data frame.

    Args:
        frame: a pandas or polars data frame, or a pyarrow table.

    Returns:
        "pandas", "polars" or "pyarrow".

    Raises:
        TypeError: for anything else.

    Examples:
        >>> library_of(pa.table({"x": [1.0]}))
        'pyarrow'
    """
    # pandas and polars are not dependencies, so their data frames are recognised by the module of their class
    for kind in type(frame).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("pandas", "polars", "pyarrow") and kind.__name__ in ("DataFrame", "Table"):
            return library
    raise TypeError(
        f"frame must be a pandas or polars DataFrame or a pyarrow Table, got {type(frame).__name__}; read files by "
        "inducing.tables.read_table."
    )


def as_texts(argument: str, value: Any) -> tuple[str, ...]:
    """One text or a sequence of texts, as a tuple.

    Args:
        argument: the name of the argument, for the message.
        value: its value.

    Returns:
        The texts.

    Raises:
        TypeError: for anything else.

    Examples:
        >>> as_texts("drop", "x"), as_texts("drop", ["x", "y"])
        (('x',), ('x', 'y'))
        >>> as_texts("drop", 3)
        Traceback (most recent call last):
            ...
        TypeError: drop must be text or a list of texts, got 3.
    """
    texts = (value,) if isinstance(value, str) else as_tuple(value)
    if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{argument} must be text or a list of texts, got {shown(value)}.")
    return texts


def check_texts(**values: Any) -> None:
    """Raise a TypeError unless each argument, given by its name, is text or None.

    Examples:
        >>> check_texts(weight=3)
        Traceback (most recent call last):
            ...
        TypeError: weight must be text or None, got 3.
    """
    for name, value in values.items():
        if not isinstance(value, str | None):
            raise TypeError(f"{name} must be text or None, got {shown(value)}.")


def check_decimal(decimal: Any) -> None:
    """Raise a ValueError for what is no decimal mark.

    Examples:
        >>> check_decimal(";")
        Traceback (most recent call last):
            ...
        ValueError: decimal must be '.' or ',', got ';'.
    """
    if not isinstance(decimal, str) or decimal not in (".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {shown(decimal)}.")


def as_table(frame: Any) -> pa.Table:
    """Convert a data frame to a pyarrow table, without its index.

    Args:
        frame: a pandas or polars data frame, or a pyarrow table.

    Returns:
        The table.

    Raises:
        TypeError: if it is not a data frame, or a column has values that pyarrow cannot store together.
        ValueError: if it has no columns, or two columns of the same name.

    Examples:
        >>> import pandas as pd
        >>> as_table(pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"])).column_names
        ['x']
    """
    library = library_of(frame)
    names = [str(name) for name in (frame.column_names if library == "pyarrow" else frame.columns)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the table has two columns called {twice!r}; rename one of them.")
    if not names:
        raise ValueError("the table has no columns.")
    if library == "pyarrow":
        return frame
    if library == "polars":
        return frame.to_arrow()
    return pa.table({name: _series(frame.iloc[:, i], name) for i, name in enumerate(names)})


def _series(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Convert a column of pandas. A column with both numbers and text becomes text, and periods become dates."""
    if str(series.dtype).startswith("period"):
        series = series.dt.to_timestamp()
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass
    try:
        return pa.array([None if gap else str(value) for value, gap in zip(series, series.isna(), strict=True)])
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"column {name!r} has values of several types: {error}; convert them to numbers or text."
        ) from error


def like(frame: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """Make a data frame of the same library and with the same index as another one.

    Args:
        frame: the other data frame.
        columns: values [N] by name; None or NaN where missing.

    Returns:
        The data frame.

    Examples:
        >>> import pandas as pd
        >>> like(pd.DataFrame({"x": [1.0]}, index=["a"]), {"y": np.array([2.0])}).to_dict()
        {'y': {'a': 2.0}}
    """
    library = library_of(frame)
    if library == "pandas":
        import pandas as pd

        return pd.DataFrame(dict(columns), index=frame.index)
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    if library == "polars":
        import polars as pl

        return pl.from_arrow(pa.table(arrays))
    return pa.table(arrays)


def column_of(table: pa.Table, name: str) -> pa.Array:
    """A column as one array. Categorical columns become columns of their values.

    Args:
        table: the table.
        name: a column of it.

    Returns:
        The values.

    Examples:
        >>> column_of(pa.table({"x": pa.array(["a", "b"]).dictionary_encode()}), "x").type
        DataType(string)
    """
    column = table.column(name).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column  # older versions return one chunk
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type) or column.type == pa.string_view():
        column = column.cast(pa.string())
    return column
