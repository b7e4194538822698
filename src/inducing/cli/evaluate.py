"""`inducing evaluate`: score a model on labelled rows."""

import argparse
from typing import Any

from inducing.cli.options import add_model, add_reading, add_running, model_and_rows


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    evaluate = commands.add_parser("evaluate", help="score a model on labelled rows")
    add_model(evaluate)
    evaluate.add_argument("table", metavar="TABLE", help="rows with inputs and targets; - for standard input")
    add_reading(evaluate)
    add_running(evaluate)
    evaluate.set_defaults(run=run, out=None)


def run(options: argparse.Namespace) -> None:
    """Run the command. It prints the scores, also with `--quiet`.

    Args:
        options: the options of the command line.

    Raises:
        ValueError: if the rows do not have the columns of the model, or no labels.
    """
    model, table = model_and_rows(options)
    scores = model.evaluate(table)
    print(f"{scores.rows:,} rows\n{scores}")
