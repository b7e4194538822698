"""What the commands share: options, reading tables, and checks of files."""

import argparse
import os
from pathlib import Path
from typing import Any


def add_reading(command: argparse.ArgumentParser) -> None:
    """Add the options that say how files are read.

    Args:
        command: the parser of a command.
    """
    reading = command.add_argument_group("reading")
    reading.add_argument("--na", nargs="+", action="extend", default=[], metavar="WORD", help="words that mean a gap")
    reading.add_argument("--decimal", default=".", choices=[".", ","], help="the decimal mark (default: .)")
    reading.add_argument("--delimiter", help="what separates the cells of CSV (default: found in the header)")
    reading.add_argument("--encoding", default="utf-8", help="the encoding of CSV (default: utf-8)")


def add_running(command: argparse.ArgumentParser) -> None:
    """Add the options that every command has which computes something.

    Args:
        command: the parser of a command.
    """
    command.add_argument("--quiet", action="store_true", help="print errors only, and no progress bars")
    command.add_argument("--no-cache", action="store_true", help="do not keep compiled programs for the next run")


def table_of(path: str, options: argparse.Namespace) -> Any:
    """A table from a file, read as the options say.

    Args:
        path: the file, or "-" for standard input.
        options: those of the command.

    Returns:
        A table of pyarrow.
    """
    from inducing.tables import read_table

    return read_table(
        path, na=options.na, decimal=options.decimal, delimiter=options.delimiter, encoding=options.encoding
    )


def say(options: argparse.Namespace, text: str) -> None:
    """Print unless the user wants quiet.

    Args:
        options: those of the command.
        text: what to print.
    """
    if not options.quiet:
        print(text, flush=True)


def check_output(path: str | None, *inputs: str | None) -> None:
    """Raise an error now if a file could not be written at the end, or would overwrite an input.

    Args:
        path: the file; None for none.
        *inputs: files that are read.

    Raises:
        ValueError: if it is one of the inputs.
        OSError: if it cannot be written.
    """
    if path is None:
        return
    if any(other not in (None, "-") and Path(other).resolve() == Path(path).resolve() for other in inputs):
        raise ValueError(f"{path} would be overwritten, which is read too; name another file.")
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{path} is a folder; name a file.")
    if not os.access(file if file.exists() else file.resolve().parent, os.W_OK):
        raise OSError(f"{path} cannot be written: there is no such folder, or no permission.")


def seed(text: str) -> int:
    """A seed from the command line.

    Args:
        text: what the user wrote.

    Returns:
        The number.

    Raises:
        argparse.ArgumentTypeError: if it is no whole number from 0 to 2⁶³ − 1.
    """
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 2^63 − 1, got {text}")
    return value
