"""Options, reading of tables, and checks of files that several commands share."""

import argparse
import os
from pathlib import Path
from typing import Any


def add_reading(command: argparse.ArgumentParser) -> None:
    """Add the options for reading files.

    Args:
        command: the parser of a command.
    """
    reading = command.add_argument_group("reading")
    reading.add_argument(
        "--na", nargs="+", action="extend", default=[], metavar="WORD", help="words that mark missing values"
    )
    reading.add_argument("--decimal", choices=[".", ","], help="the decimal mark (default: .)")
    reading.add_argument("--delimiter", help="the delimiter of CSV (default: detected in the header)")
    reading.add_argument("--encoding", default="utf-8", help="the encoding of CSV (default: utf-8)")


def add_running(command: argparse.ArgumentParser) -> None:
    """Add the options of all commands that compute.

    Args:
        command: the parser of a command.
    """
    command.add_argument("--quiet", action="store_true", help="print only errors, and show no progress bars")
    command.add_argument("--no-cache", action="store_true", help="do not keep compiled programs for the next run")


def add_model(command: argparse.ArgumentParser) -> None:
    """Add the argument that names a model file.

    Args:
        command: the parser of a command.
    """
    command.add_argument("model", metavar="MODEL", help="a model file of `inducing fit --save`")


def model_and_rows(options: argparse.Namespace) -> tuple[Any, Any]:
    """Load the model of a command, and read its table.

    Missing values and the decimal mark are those of the fit, unless the options differ.

    Args:
        options: the options of the command: `model`, `table`, those of `add_reading`, and `out` for its output.

    Returns:
        The `TableModel`, and a pyarrow table.

    Raises:
        ValueError: if the output would overwrite an input, or a file cannot be used.
        OSError: if a file cannot be read, or the output cannot be written.
    """
    from inducing.tables import TableModel

    check_output(options.out, options.model, options.table)
    model = TableModel.load(options.model)
    fitted = model.facts.get("reading", {})
    return model, table_of(options.table, options, fitted.get("na", ()), fitted.get("decimal", "."))


def table_of(path: str, options: argparse.Namespace, na: Any = (), decimal: str = ".") -> Any:
    """Read a table as the options say.

    Args:
        path: the file, or "-" for standard input.
        options: the options of the command.
        na: words that mark missing values, in addition to those of the options.
        decimal: the decimal mark, if the options do not give it.

    Returns:
        A pyarrow table.
    """
    from inducing.tables import read_table

    return read_table(
        path,
        na=[*na, *options.na],
        decimal=options.decimal or decimal,
        delimiter=options.delimiter,
        encoding=options.encoding,
    )


def say(options: argparse.Namespace, text: str) -> None:
    """Print a text, unless `--quiet` was given.

    Args:
        options: the options of the command.
        text: the text.
    """
    if not options.quiet:
        print(text, flush=True)


def check_output(path: str | None, *inputs: str | None) -> None:
    """Raise an error before the work begins, if a file cannot be written or is another file of the command.

    Args:
        path: the file; None if no file is written.
        *inputs: the other files.

    Raises:
        ValueError: if it is one of the other files, or a folder.
        OSError: if it cannot be written.
    """
    if path is None:
        return
    if any(other not in (None, "-") and Path(other).resolve() == Path(path).resolve() for other in inputs):
        raise ValueError(
            f"{path} would be overwritten, because it is also another file of this command; give another name."
        )
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{path} is a folder; give a file.")
    if not os.access(file if file.exists() else file.resolve().parent, os.W_OK):
        raise OSError(f"{path} cannot be written: the folder does not exist, or is not writable.")


def seed(text: str) -> int:
    """Parse a seed.

    Args:
        text: the argument.

    Returns:
        The seed.

    Raises:
        argparse.ArgumentTypeError: if it is not a whole number from 0 to 2⁶³ − 1.
    """
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 2^63 − 1, got {text}")
    return value
