"""`inducing show`: describe a model."""

import argparse
from typing import Any

from inducing.cli.options import add_model


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    show = commands.add_parser("show", help="describe a model: columns, kernel, likelihood, scores")
    add_model(show)
    show.set_defaults(run=run, no_cache=True, quiet=False)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: the options of the command line.

    Raises:
        ValueError: if the file does not contain a model of a table.
    """
    from inducing.tables import TableModel

    print(TableModel.load(options.model))
