"""`inducing report`: write a report on a model and its predictions of labelled rows."""

import argparse
from typing import Any

from inducing.cli.ending import finished_first
from inducing.cli.options import add_model, add_reading, add_running, model_and_rows, say


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    report = commands.add_parser("report", help="write a report on a model and its predictions of labelled rows")
    add_model(report)
    report.add_argument(
        "--data",
        dest="table",
        required=True,
        metavar="TABLE",
        help="rows with inputs and targets; - for standard input",
    )
    report.add_argument("--out", default="report.html", metavar="FILE", help="an HTML file (default: report.html)")
    report.add_argument("--no-rows", action="store_true", help="omit all data of single rows")
    add_reading(report)
    add_running(report)
    report.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: the options of the command line.

    Raises:
        ValueError: if the rows do not have the columns of the model, or no labels.
    """
    model, table = model_and_rows(options)
    with finished_first():
        model.report(table, options.out, rows=not options.no_rows)
    say(options, f"The report is in {options.out}.")
