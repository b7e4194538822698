"""Tables of mixed columns as matrices of numbers, with what was decided for each column."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from inducing.tables.columns import AbstractColumn, Category, Encoded, LeftOut, column_from_json
from inducing.tables.deciding import Options, decide
from inducing.tables.frames import as_table, column_of


class Rows(NamedTuple):
    """Rows of a table as numbers.

    Attributes:
        X: the numbers [N, D].
        usable: rows [N] that a model can predict: no cell is of another kind than its column, and not all are gaps.
        notes: what was noticed, in sentences for the user.
    """

    X: np.ndarray
    usable: np.ndarray
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Encoder:
    """How each column of a table becomes numbers.

    Args:
        columns: a decision for each column.

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
        drop: Sequence[str] = (),
        categorical: Sequence[str] = (),
        date_format: str | None = None,
        decimal: str = ".",
    ) -> "Encoder":
        """Decide for each column what it is and how it becomes numbers.

        Args:
            frame: a pandas or polars frame or a pyarrow table: the inputs of the training rows.
            drop: columns to leave out.
            categorical: columns that are categories although they hold numbers.
            date_format: the format of dates, as for `datetime.strptime`; by default it is found.
            decimal: the decimal mark of numbers in text.

        Returns:
            The encoder.

        Raises:
            ValueError: if a named column does not exist, or nothing is left to learn from.
        """
        table = as_table(frame)
        check_names(table.column_names, drop=drop, categorical=categorical)
        options = Options(tuple(categorical), date_format, decimal)
        columns = [
            LeftOut(name, "as you asked") if name in drop else decide(name, column_of(table, name), options)
            for name in table.column_names
        ]
        if not any(column.names for column in columns):
            said = "; ".join(f"{c.name!r} is {c.described}" for c in columns)
            raise ValueError(f"no column is left to predict from: {said or 'there is none beside the target'}.")
        return cls(tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the columns of the table that are not left out."""
        return tuple(column.name for column in self.columns if column.names)

    @property
    def blocks(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the encoded columns of each column of the table."""
        places, start = {}, 0
        for column in self.columns:
            if column.names:
                places[column.name] = tuple(range(start, start + len(column.names)))
                start += len(column.names)
        return places

    @property
    def many_valued(self) -> tuple[tuple[int, ...], ...]:
        """The encoded columns of the categories of each column that has many."""
        blocks = self.blocks
        return tuple(
            blocks[column.name][: column.num_values]
            for column in self.columns
            if isinstance(column, Category) and column.num_values > 8  # a plain value of this package
        )

    def encode(self, frame: Any) -> Rows:
        """Rows as numbers.

        Args:
            frame: a frame with the columns that are not left out, in any order, and any others.

        Returns:
            The numbers, which rows are usable, and what was noticed.

        Raises:
            ValueError: if columns are missing.
        """
        table = as_table(frame)
        missing = [name for name in self.inputs if name not in table.column_names]
        if missing:
            raise ValueError(
                f"the table lacks the columns {', '.join(map(repr, missing))} that the model was trained with; it has "
                f"{', '.join(table.column_names)}."
            )
        each = {c.name: c.encode(column_of(table, c.name)) for c in self.columns if c.names}
        empty = np.all([e.gaps for e in each.values()], axis=0)
        usable = ~np.any([e.unusable for e in each.values()], axis=0) & ~empty
        return Rows(np.concatenate([e.values for e in each.values()], axis=1), usable, tuple(_notes(each, empty)))

    def described(self) -> str:
        """A line for each column, which says what becomes of it.

        Examples:
            >>> import pandas as pd
            >>> print(Encoder.decide(pd.DataFrame({"x": [1.0, 2.0], "id": [7, 8]})).described())
            x   number
            id  left out: its name and its values, which are all different, say that it is an identifier
        """
        width = max(len(column.name) for column in self.columns)
        return "\n".join(f"{column.name:<{width}}  {column.described}" for column in self.columns)

    def to_json(self) -> list[dict[str, Any]]:
        """The decisions as JSON holds them."""
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, stored: Sequence[Mapping[str, Any]]) -> "Encoder":
        """The encoder that `to_json` gave."""
        return cls(tuple(column_from_json(column) for column in stored))


def check_names(existing: Sequence[str], **asked: Sequence[str]) -> None:
    """Raise a ValueError if a column does not exist.

    Args:
        existing: the columns of the table.
        **asked: names of columns, by the argument that asks for them.

    Examples:
        >>> check_names(["x"], drop=["y"])
        Traceback (most recent call last):
            ...
        ValueError: drop names the column 'y', which the table does not have; it has x.
    """
    for argument, names in asked.items():
        wrong = next((name for name in names if name not in existing), None)
        if wrong is not None:
            raise ValueError(
                f"{argument} names the column {wrong!r}, which the table does not have; it has {', '.join(existing)}."
            )


def _notes(each: Mapping[str, Encoded], empty: np.ndarray) -> list[str]:
    notes = []
    for name, encoded in each.items():
        for rows, what in (
            (encoded.unusable, "cannot be read as what the column holds"),
            (encoded.unseen, "are categories that training did not have"),
        ):
            if rows.any():
                notes.append(f"column {name!r}: {rows.sum()} cells {what} (first in row {int(np.argmax(rows)) + 1})")
    if empty.any():
        notes.append(f"{empty.sum()} rows are empty")
    return notes
