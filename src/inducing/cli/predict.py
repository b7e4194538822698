"""`inducing predict`: predict the rows of a table."""

import argparse
from typing import Any

from inducing.cli.ending import write
from inducing.cli.options import add_model, add_reading, add_running, model_and_rows, say


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    predict = commands.add_parser("predict", help="predict the rows of a table")
    add_model(predict)
    predict.add_argument(
        "table", metavar="TABLE", help="rows with the columns of the training table; - for standard input"
    )
    predict.add_argument("--out", default="predictions.csv", help="a .csv or .parquet file (default: predictions.csv)")
    predict.add_argument("--strict", action="store_true", help="fail if some rows cannot be predicted")
    add_reading(predict)
    add_running(predict)
    predict.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: the options of the command line.

    Raises:
        ValueError: if the rows do not have the columns of the model.
    """
    import pyarrow as pa

    from inducing.tables.writing import check_ending, table_bytes

    check_ending(options.out)
    model, table = model_and_rows(options)
    names = [name for target in model.targets for name in target.columns]
    if (same := next((name for name in names if name in table.column_names), None)) is not None:
        raise ValueError(
            f"the table already has a column {same!r}, where the predictions would go; rename or remove it."
        )
    columns, notes = model.predictions(table, strict=options.strict)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, from_pandas=True))
    write(options.out, table_bytes(options.out, table))
    for note in notes:
        say(options, f"Note: {note}.")
    say(options, f"Predictions for {table.num_rows:,} rows in {options.out}.")
