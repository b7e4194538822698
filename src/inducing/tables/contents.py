"""What the HTML report of a table shows."""

from typing import Any

import numpy as np
import pyarrow as pa

from inducing.report.contents import Column, Contents
from inducing.report.contents import Target as Shown
from inducing.tables.columns import Date, Number, days_of, numbers_of
from inducing.tables.encoder import Encoder
from inducing.tables.frames import as_table, column_of
from inducing.training.monitor import History

MOST_TRAINING = 5000  # rows that stand for the training rows


def contents_of(model: Any, frame: Any, training: pa.Table | None, held_out: str) -> Contents:
    """The contents of a report of labelled rows.

    Args:
        model: a `TableModel`.
        frame: the rows.
        training: the rows that the model was trained on, if they are at hand.
        held_out: what the rows are, for the reader.

    Returns:
        The contents.

    Raises:
        ValueError: if columns are missing, or no row has a label.
    """
    table = as_table(frame)
    encoder: Encoder = model.encoder
    rows, labels = encoder.encode(table), _labels(model, table)
    used = rows.usable & ~np.isnan(labels).all(axis=1)
    if not used.any():
        raise ValueError("no row has a label to compare with.")
    facts = model.facts
    blank = int((~rows.usable).sum())
    warnings = [*rows.notes, *([f"{blank} rows cannot be predicted and are left out"] if blank else [])]
    shown = [
        Column(column.name, encoder.blocks[column.name], _values(column, table)[used], column.described)
        for column in encoder.columns
        if column.names
    ]
    history = History(*(np.asarray(facts["history"][name]) for name in ("step", "bound", "seconds")))
    likelihoods = ", ".join(f"{target.name}: {target.described}" for target in model.targets)
    return Contents(
        title=f"Predicting {' and '.join(target.name for target in model.targets)}",
        model=model.model,
        targets=[Shown(target.name, target.classes) for target in model.targets],
        columns=shown,
        X=rows.X[used],
        y=labels[used],
        rows=[str(int(i) + 1) for i in np.flatnonzero(used)],
        training=None if training is None else _training(model, training),
        held_out=held_out,
        facts={
            "Target": likelihoods,
            "Rows for training": f"{facts['rows']:,}",
            "Kernel": facts["settings"]["kernel"] or "the default",
            "Layers": str(facts["settings"]["num_layers"]),
            "Seconds": f"{facts['seconds']:.0f}",
        },
        message=facts["message"],
        history=history,
        left_out={column.name: column.reason for column in encoder.columns if not column.names},
        warnings=[f"{warning[0].upper()}{warning[1:]}." for warning in warnings],
        reproduce={
            "Command": facts.get("command") or "TableModel.fit in Python",
            "Seed": str(facts["settings"]["seed"]),
            "Versions": ", ".join(f"{name} {number}" for name, number in facts["versions"].items()),
            "SHA-256 of the training rows": facts["sha256"],
        },
    )


def _labels(model: Any, table: pa.Table) -> np.ndarray:
    return np.stack([target.labels(column_of(table, target.name)) for target in model.targets], axis=1)


def _training(model: Any, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    some = np.unique(np.linspace(0, table.num_rows - 1, min(table.num_rows, MOST_TRAINING)).astype(int))
    table = table.take(some)
    rows = model.encoder.encode(table)
    return rows.X[rows.usable], _labels(model, table)[rows.usable]


def _values(column: Any, table: pa.Table) -> np.ndarray:
    """A column as the user knows it: numbers, dates or text."""
    cells = column_of(table, column.name)
    if column.kind == Number.kind:
        return numbers_of(cells, column.decimal, column.words)[0]
    if column.kind == Date.kind:
        days = days_of(cells, column.date_format, column.words)[0]
        known = np.where(np.isnan(days), 0.0, days)
        moments = np.datetime64("1970-01-01", "s") + (known * 86400).astype("timedelta64[s]")
        return np.where(np.isnan(days), np.datetime64("NaT"), moments)
    return np.array(["" if value is None else str(value) for value in cells.to_pylist()])
