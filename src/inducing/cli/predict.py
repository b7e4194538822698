"""`inducing predict`: predict the rows of a table by a model that was kept."""

import argparse
from typing import Any

from inducing.cli.ending import write
from inducing.cli.options import add_reading, add_running, check_output, say, table_of


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    predict = commands.add_parser("predict", help="predict the rows of a table by a model that was kept")
    predict.add_argument("model", metavar="MODEL", help="a file of `inducing fit --save`")
    predict.add_argument(
        "table", metavar="TABLE", help="rows with the columns of the training rows; - for standard input"
    )
    predict.add_argument("--out", default="predictions.csv", help="a .csv or .parquet file (default: predictions.csv)")
    predict.add_argument("--strict", action="store_true", help="rows that cannot be predicted are an error")
    add_reading(predict)
    add_running(predict)
    predict.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: those of the command line.

    Raises:
        ValueError: if the rows do not have the columns of the model.
    """
    import pyarrow as pa

    from inducing.tables import TableModel
    from inducing.tables.writing import check_ending, table_bytes

    check_ending(options.out)
    check_output(options.out, options.model, options.table)
    model = TableModel.load(options.model)
    table = table_of(options.table, options)
    names = [name for target in model.targets for name in target.columns]
    if (same := next((name for name in names if name in table.column_names), None)) is not None:
        raise ValueError(f"the rows have a column {same!r} already, where the predictions go; rename or remove it.")
    columns, notes = model.predictions(table, strict=options.strict)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, from_pandas=True))
    write(options.out, table_bytes(options.out, table))
    for note in notes:
        say(options, f"Note: {note}.")
    say(options, f"Predictions for {table.num_rows:,} rows in {options.out}.")
