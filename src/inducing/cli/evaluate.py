"""`inducing evaluate`: score a model that was kept on labelled rows."""

import argparse
from typing import Any

from inducing.cli.options import add_reading, add_running, table_of


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    evaluate = commands.add_parser("evaluate", help="score a model that was kept on labelled rows")
    evaluate.add_argument("model", metavar="MODEL", help="a file of `inducing fit --save`")
    evaluate.add_argument("table", metavar="TABLE", help="rows with inputs and targets; - for standard input")
    add_reading(evaluate)
    add_running(evaluate)
    evaluate.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command; scores are its output, and are printed in any case.

    Args:
        options: those of the command line.

    Raises:
        ValueError: if the rows do not have the columns of the model, or no labels.
    """
    from inducing.tables import TableModel

    scores = TableModel.load(options.model).evaluate(table_of(options.table, options))
    print(f"{scores.rows:,} rows\n{scores}")
