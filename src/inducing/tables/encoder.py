"""Encoding of tables with mixed columns as matrices of numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from inducing.tables.columns import AbstractColumn, Category, Encoded, LeftOut, column_from_json, texts_of
from inducing.tables.deciding import Options, decide
from inducing.tables.frames import as_table, as_texts, check_decimal, check_texts, column_of


class Rows(NamedTuple):
    """Encoded rows of a table.

    Attributes:
        X: numbers [N, D].
        usable: the rows [N] that a model can use: each cell could be read, and not all cells are empty.
        notes: messages about unusual cells, for the user.
    """

    X: np.ndarray
    usable: np.ndarray
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Encoder:
    """How each column of a table becomes numbers.

    Args:
        columns: the encoding of each column.

    Examples:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"x": [1.0, None, 3.0], "day": pd.to_datetime(["2020-01-01", "2020-01-02", None])})
        >>> encoder = Encoder.decide(frame)
        >>> encoder.names
        ('x', 'x is missing', 'day', 'day is missing')
        >>> encoder.encode(frame).X.tolist()
        [[1.0, 0.0, 18262.0, 0.0], [2.0, 1.0, 18263.0, 0.0], [3.0, 0.0, 18262.5, 1.0]]
    """

    columns: tuple[AbstractColumn, ...]

    @classmethod
    def decide(
        cls,
        frame: Any,
        *,
        drop: str | Sequence[str] = (),
        categorical: str | Sequence[str] = (),
        date_format: str | None = None,
        decimal: str = ".",
    ) -> "Encoder":
        """Decide how each column becomes numbers.

        Columns of pandas' and polars' categorical types are categories, whatever their values.

        Args:
            frame: the inputs of the training rows: a pandas or polars data frame or a pyarrow table.
            drop: columns to leave out.
            categorical: columns of numbers that are categories.
            date_format: the format of dates, as for `datetime.strptime`. By default, it is detected.
            decimal: the decimal mark of numbers in text.

        Returns:
            The encoder.

        Raises:
            ValueError: if a named column does not exist, or no column can be used.
        """
        table = as_table(frame)
        drop, categorical = as_texts("drop", drop), as_texts("categorical", categorical)
        check_names(table.column_names, drop=drop, categorical=categorical)
        check_texts(date_format=date_format)
        check_decimal(decimal)
        options = Options(categorical, categorical_columns(table), date_format, decimal)
        columns = [
            LeftOut(name, "as requested") if name in drop else decide(name, column_of(table, name), options)
            for name in table.column_names
        ]
        if not any(column.names for column in columns):
            said = "; ".join(f"{c.name!r} is {c.described}" for c in columns)
            raise ValueError(f"no column is left to predict from: {said or 'there are no columns besides the target'}.")
        return cls(tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the table that are used."""
        return tuple(column.name for column in self.columns if column.names)

    @property
    def blocks(self) -> dict[str, tuple[int, ...]]:
        """For each used column of the table, the positions of its encoded columns."""
        places, start = {}, 0
        for column in self.columns:
            if column.names:
                places[column.name] = tuple(range(start, start + len(column.names)))
                start += len(column.names)
        return places

    @property
    def embedded(self) -> tuple[tuple[int, ...], ...]:
        """The positions of the encoded columns of each column whose categories get an embedding."""
        blocks = self.blocks
        return tuple(
            blocks[column.name][: column.num_values]
            for column in self.columns
            if isinstance(column, Category) and column.embedded  # a plain value of this package
        )

    def encode(self, frame: Any) -> Rows:
        """Encode rows.

        Args:
            frame: a data frame with the used columns in any order. Other columns are ignored.

        Returns:
            The numbers, which rows are usable, and messages about unusual cells.

        Raises:
            ValueError: if columns are missing.
        """
        table = as_table(frame)
        missing = [name for name in self.inputs if name not in table.column_names]
        if missing:
            raise ValueError(
                f"the table lacks the columns {', '.join(map(repr, missing))}, which the model was trained on; it has "
                f"{', '.join(table.column_names)}."
            )
        each = {c.name: c.encode(column_of(table, c.name)) for c in self.columns if c.names}
        empty = np.all([e.gaps for e in each.values()], axis=0)
        usable = ~np.any([e.unusable for e in each.values()], axis=0) & ~empty
        return Rows(
            np.concatenate([e.values for e in each.values()], axis=1), usable, tuple(_notes(self.columns, each, empty))
        )

    def described(self) -> str:
        """A description of the encoding, one line for each column.

        Examples:
            >>> import pandas as pd
            >>> print(Encoder.decide(pd.DataFrame({"x": [1.0, 2.0], "id": [7, 8]})).described())
            x   number
            id  left out: an identifier, by its name and because all values are different
        """
        names = [column.name or "(no name)" for column in self.columns]
        width = max(map(len, names))
        return "\n".join(f"{name:<{width}}  {c.described}" for name, c in zip(names, self.columns, strict=True))

    def to_json(self) -> list[dict[str, Any]]:
        """The encoder as a JSON value."""
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, stored: Sequence[Mapping[str, Any]]) -> "Encoder":
        """The encoder that `to_json` returned."""
        return cls(tuple(column_from_json(column) for column in stored))


def check_names(existing: Sequence[str], **asked: Sequence[str]) -> None:
    """Raise a ValueError if a named column does not exist.

    Args:
        existing: the columns of the table.
        **asked: for each argument, the columns that it names.

    Examples:
        >>> check_names(["x"], drop=["y"])
        Traceback (most recent call last):
            ...
        ValueError: drop names the column 'y', which the table does not have; it has x.
    """
    for argument, names in asked.items():
        wrong = next((name for name in names if name not in existing), None)
        if wrong is not None:
            close = get_close_matches(wrong, existing, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            some = ", ".join(existing[:30]) + (", …" if len(existing) > 30 else "")
            raise ValueError(
                f"{argument} names the column {wrong!r}, which the table does not have; it has {some}.{meant}"
            )


def counted(number: int, one: str, many: str) -> str:
    """A number with the singular or plural of its noun.

    Examples:
        >>> counted(1, "row is", "rows are"), counted(2000, "row is", "rows are")
        ('1 row is', '2,000 rows are')
    """
    return f"{number:,} {one if number == 1 else many}"


def _notes(columns: Sequence[AbstractColumn], each: Mapping[str, Encoded], empty: np.ndarray) -> list[str]:
    notes = []
    for column in columns:
        if column.name not in each:
            continue
        encoded, kind = each[column.name], column.kind
        unseen = "that is rare or absent in the training rows"
        for rows, one, many in (
            (encoded.unusable, f"cell is not a {kind}", f"cells are not {kind}s"),
            (encoded.unseen, f"cell has a value {unseen}", f"cells have a value {unseen}"),
        ):
            if rows.any():
                first = int(np.argmax(rows)) + 1
                notes.append(f"column {column.name!r}: {counted(int(rows.sum()), one, many)} (first in row {first})")
    if empty.any():
        notes.append(counted(int(empty.sum()), "row is empty", "rows are empty"))
    return notes


def categorical_columns(table: pa.Table) -> tuple[str, ...]:
    """The columns of numbers whose type says that they are categories. Text needs no such type.

    Examples:
        >>> categorical_columns(pa.table({"x": pa.array([4, 6]).dictionary_encode(), "y": [4, 6]}))
        ('x',)
    """
    text = (pa.string(), pa.large_string(), pa.string_view())
    return tuple(f.name for f in table.schema if pa.types.is_dictionary(f.type) and f.type.value_type not in text)


def ordered_values(table: pa.Table, name: str) -> tuple[str, ...]:
    """The values of a column of an ordered categorical type, in their order; empty for other columns.

    Examples:
        >>> import pandas as pd
        >>> grades = pd.Categorical(["good", "poor"], ["poor", "fair", "good"], ordered=True)
        >>> ordered_values(as_table(pd.DataFrame({"grade": grades})), "grade")
        ('poor', 'good')
    """
    column = table.column(name)
    if not pa.types.is_dictionary(column.type) or not column.type.ordered or not column.num_chunks:
        return ()
    seen = set(texts_of(column_of(table, name))[0])
    return tuple(text for text in texts_of(column.unify_dictionaries().chunk(0).dictionary)[0] if text in seen)
