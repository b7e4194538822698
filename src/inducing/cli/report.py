"""`inducing report`: write a report of how a model does on labelled rows."""

import argparse
from typing import Any

from inducing.cli.ending import finished_first
from inducing.cli.options import add_reading, add_running, check_output, say, table_of


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    report = commands.add_parser("report", help="write a report of a model and its predictions of labelled rows")
    report.add_argument("model", metavar="MODEL", help="a file of `inducing fit --save`")
    report.add_argument("--data", required=True, metavar="TABLE", help="rows with inputs and targets")
    report.add_argument("--out", default="report.html", metavar="FILE", help="an HTML file (default: report.html)")
    report.add_argument("--no-rows", action="store_true", help="leave out all data of single rows")
    add_reading(report)
    add_running(report)
    report.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: those of the command line.

    Raises:
        ValueError: if the rows do not have the columns of the model, or no labels.
    """
    from inducing.tables import TableModel

    check_output(options.out, options.model, options.data)
    model, table = TableModel.load(options.model), table_of(options.data, options)
    with finished_first():
        model.report(table, options.out, rows=not options.no_rows)
    say(options, f"The report is in {options.out}.")
