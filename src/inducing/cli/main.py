"""The command line, `inducing COMMAND` or `python -m inducing COMMAND`."""

import argparse
import io
import sys
from collections.abc import Sequence
from importlib.metadata import version

from inducing.cli import demo, evaluate, fit, launch, predict, report, show
from inducing.cli.cache import keep_programs
from inducing.cli.ending import ends_early


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, or without one print the help.

    Errors that the user can correct are printed as one line, with exit code 2. Ctrl-C ends the process with exit code
    130; files are written completely or not at all.

    Args:
        arguments: the arguments; by default, those of this process.
    """
    with ends_early():
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):  # replace characters that the encoding lacks
        sys.stdout.reconfigure(errors="replace")
    parser = argparse.ArgumentParser(prog="inducing", description="Sparse variational Gaussian processes.")
    parser.add_argument("--version", action="version", version=f"inducing {version('inducing')}")
    commands = parser.add_subparsers(dest="command")
    for command in (fit, predict, evaluate, report, show, demo, launch):
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
        parser.exit(2, f"inducing: {' '.join(str(error).split())}\n")
