"""`inducing show`: say what a model is that was kept."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    show = commands.add_parser("show", help="say what a model is that was kept: columns, kernel, likelihood, scores")
    show.add_argument("model", metavar="MODEL", help="a file of `inducing fit --save`")
    show.set_defaults(run=run, no_cache=True, quiet=False)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: those of the command line.

    Raises:
        ValueError: if the file holds no model of a table.
    """
    from inducing.tables import TableModel

    print(TableModel.load(options.model))
