"""The command line: `inducing fit`, `predict`, `evaluate`, `show` and `demo`, or `python -m inducing …`."""

import argparse
import io
import sys
from collections.abc import Sequence
from importlib.metadata import version

from inducing.cli import demo, evaluate, fit, predict, show
from inducing.cli.cache import keep_programs
from inducing.cli.ending import ends_early


def main(arguments: Sequence[str] | None = None) -> None:
<<<<<<< HEAD
    """Run a command, or list the commands if there is none. Ctrl-C ends it with exit code 130 and no partial files."""
=======
    """Run a command; without one, say which there are. Ctrl-C ends it with exit code 130, writing nothing half.

    What the user can correct is one line on standard error and exit code 2.

    Args:
        arguments: those of the command line, by default of this process.
    """
>>>>>>> main
    with ends_early():
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):  # replace characters that the encoding lacks
        sys.stdout.reconfigure(errors="replace")
    parser = argparse.ArgumentParser(prog="inducing", description="Sparse variational Gaussian processes.")
    parser.add_argument("--version", action="version", version=f"inducing {version('inducing')}")
    commands = parser.add_subparsers(dest="command")
    for command in (fit, predict, evaluate, show, demo):
        command.add(commands)
    options = parser.parse_args(arguments)
    options.arguments = list(sys.argv[1:] if arguments is None else arguments)
    if options.command is None:
        parser.print_help()
        return

    import jax

    jax.config.update("jax_enable_x64", True)
    if not options.no_cache:
        keep_programs()
    try:
        options.run(options)
    except BrokenPipeError:
        raise
    except (FloatingPointError, ImportError, OSError, ValueError) as error:
<<<<<<< HEAD
        parser.exit(2, f"inducing: {error}\n")


def _add_demo(commands: Any) -> argparse.ArgumentParser:
    demo = commands.add_parser("demo", help="compare four models on the letters DGP: a table and a figure")
    demo.add_argument("--out", default="out", help="folder for the figure (default: out)")
    effort = demo.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_const", const="quick", dest="kind", help="90 seconds on two cores")
    effort.add_argument(
        "--full", action="store_const", const="full", dest="kind", help="up to an hour, the paper's quality"
    )
    demo.set_defaults(kind="default")
    return demo


def _add_table(commands: Any) -> argparse.ArgumentParser:
    table = commands.add_parser(
        "table",
        help="fit a column of a CSV file by its other columns, and predict new rows",
        usage="inducing table TRAIN --target TARGET [options]",  # a file after --drop would be a column
    )
    table.add_argument(
        "train", metavar="TRAIN", help="CSV file with a header; an empty cell of the target is a missing label"
    )
    table.add_argument(
        "--target", required=True, help="the column to predict: numbers; text, or two numbers, are classes"
    )
    table.add_argument(
        "--new", help="CSV file with rows to predict; without it, a tenth of the rows is held out and scored"
    )
    table.add_argument(
        "--drop", nargs="+", action="extend", default=[], metavar="NAME", help="columns that are not inputs"
    )
    table.add_argument("--out", help="file for the predictions of --new (default: predictions.csv)")
    table.add_argument("--inducing", type=int, default=100, help="number of inducing points (default: 100)")
    table.add_argument("--layers", type=int, default=1, help="1: a sparse GP (default); more: a deep GP")
    return table
=======
        parser.exit(2, f"inducing: {' '.join(str(error).split())}\n")
>>>>>>> main
