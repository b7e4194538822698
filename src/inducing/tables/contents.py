"""The contents of the HTML report on a model of a table."""

from typing import Any

import numpy as np
import pyarrow as pa

from inducing.report.contents import Column, Contents, Training
from inducing.report.contents import Target as Shown
from inducing.report.page import listed
from inducing.tables.columns import Date, Number, days_of, numbers_of
from inducing.tables.encoder import Rows, counted
from inducing.tables.frames import as_table, column_of
from inducing.tables.table_model import TableModel, labels_of
from inducing.training.monitor import History

MOST_TRAINING = 5000  # the most training rows that are used for baselines and for detecting extrapolation


def contents_of(
    model: TableModel, frame: Any, training: pa.Table | None, held_out: str, numbers: np.ndarray | None = None
) -> Contents:
    """The contents of a report on labelled rows.

    Args:
        model: the model.
        frame: the rows.
        training: the rows that the model was trained on, if available.
        held_out: a description of the rows for the reader.
        numbers: the row numbers [N] to show, if the rows are some of those of a table.

    Returns:
        The contents.

    Raises:
        ValueError: if columns are missing, or no row has a label.
    """
    table = as_table(frame)
    X, labels, weight, used, rows = model.labelled(table)
    encoder, facts = model.encoder, model.facts
    shown = [
        Column(column.name, encoder.blocks[column.name], _values(column, table)[used], column.described)
        for column in encoder.columns
        if column.names
    ]
    history = History(*(np.asarray(facts["history"][name]) for name in ("step", "bound", "seconds")))
    copies = f" ({counted(n, 'copy', 'copies')} left out)" if (n := facts["copies"]) else ""
    likelihoods = ", ".join(f"{target.name}: {target.described}" for target in model.targets)
    return Contents(
        title=f"Predicting {listed([target.name for target in model.targets])}",
        model=model.model,
        targets=[Shown(target.name, target.classes) for target in model.targets],
        columns=shown,
        X=X,
        y=labels,
        weight=weight,
        baselines=model.baselines,
        rows=[str(i + 1) for i in (used if numbers is None else numbers[used]).tolist()],
        training=None if training is None else _training(model, training),
        held_out=held_out,
        facts={
            "Target": likelihoods,
            "Training rows": f"{facts['rows']:,}{copies}",
            "Training time": f"{facts['seconds']:.0f} s",
        },
        message=facts["message"],
        history=history,
        left_out={column.name: column.reason for column in encoder.columns if not column.names},
        warnings=_warnings(rows),
        reproduce={
            "Command": facts.get("command") or "inducing.tables.TableModel.fit in Python",
            "Seed": str(facts["settings"]["seed"]),
            "Versions": ", ".join(f"{name} {number}" for name, number in facts["versions"].items()),
            "SHA-256 of the training table": facts["sha256"],
        },
    )


def _warnings(rows: Rows) -> list[str]:
    """What was unusual about the rows, as sentences."""
    blank = int((~rows.usable).sum())
    notes = [*rows.notes, *([f"{counted(blank, 'row', 'rows')} cannot be predicted, and not shown"] if blank else [])]
    return [f"{note[0].upper()}{note[1:]}." for note in notes]


def _training(model: TableModel, table: pa.Table) -> Training:
    some = np.unique(np.linspace(0, table.num_rows - 1, min(table.num_rows, MOST_TRAINING)).astype(int))
    table = table.take(some)
    rows, weight = model.encoder.encode(table), model.weights(table)
    labels = labels_of(table, model.targets)[rows.usable]
    return Training(rows.X[rows.usable], labels, None if weight is None else weight[rows.usable])


def _values(column: Any, table: pa.Table) -> np.ndarray:
    """The values of a column in the table: numbers, dates or text."""
    cells = column_of(table, column.name)
    if column.kind == Number.kind:
        return numbers_of(cells, column.decimal, column.words)[0]
    if column.kind == Date.kind:
        days = days_of(cells, column.date_format, column.words)[0]
        known = np.where(np.isnan(days), 0.0, days)
        moments = np.datetime64("1970-01-01", "s") + (known * 86400).astype("timedelta64[s]")
        return np.where(np.isnan(days), np.datetime64("NaT"), moments)
    return np.array(["" if value is None else str(value) for value in cells.to_pylist()])
