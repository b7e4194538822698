"""`inducing fit`: train, score and save a model of a table."""

import argparse
import dataclasses
import shlex
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from inducing.cli.ending import finished_first
from inducing.cli.options import add_reading, add_running, check_output, say, seed, table_of

if TYPE_CHECKING:
    from inducing.tables import TableModel


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    fit = commands.add_parser(
        "fit",
        help="train, score and save a model that predicts a column of a table",
        usage="inducing fit TABLE --target COLUMN [--save MODEL] [options]",
    )
    fit.add_argument("table", metavar="TABLE", help="CSV, Parquet, Arrow or JSON lines; - for CSV from standard input")
    fit.add_argument("--target", nargs="+", required=True, metavar="COLUMN", help="the column to predict, or several")
    fit.add_argument("--save", metavar="FILE", help="save the model to this file")
    fit.add_argument("--report", metavar="FILE", help="write a report on the held-out rows to this HTML file")
    fit.add_argument("--no-rows", action="store_true", help="omit all data of single rows from the report")
    columns = fit.add_argument_group("columns")
    columns.add_argument(
        "--drop", nargs="+", action="extend", default=[], metavar="COLUMN", help="columns to leave out"
    )
    columns.add_argument(
        "--categorical",
        nargs="+",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns of numbers that are categories",
    )
    columns.add_argument("--weight", metavar="COLUMN", help="a column of weights: how often each row counts")
    columns.add_argument("--date-format", metavar="FORMAT", help="the format of dates, such as %%m/%%d/%%Y")
    model = fit.add_argument_group("model")
    model.add_argument("--likelihood", help="the kind of target, or its likelihood (default: chosen by its values)")
    model.add_argument("--kernel", help="the kernel (default: Matérn 5/2, unless another one predicts better)")
    model.add_argument(
        "--noise", default="constant", help="the noise of numbers: constant (default), varying or outliers"
    )
    model.add_argument(
        "--layers", type=int, default=1, help="the number of GP layers (default: 1); a deep GP has 2 or more"
    )
    scores = fit.add_argument_group("scores")
    scores.add_argument(
        "--test", metavar="FILE", help="a table of labelled rows to score on, instead of a tenth of the rows"
    )
    scores.add_argument(
        "--split-by", metavar="COLUMN", help="dates, to hold out the latest rows; or groups, to hold out whole groups"
    )
    fit.add_argument("--seconds", type=float, default=45.0, help="the time limit of training (default: 45)")
    fit.add_argument("--seed", type=seed, default=0, help="the seed of split and training (default: 0)")
    add_reading(fit)
    add_running(fit)
    fit.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: the options of the command line.

    Raises:
        ValueError: if options conflict, or the table cannot be used as requested.
    """
    from inducing.tables import TableModel

    _check(options)
    table = table_of(options.table, options)
    test = None if options.test is None else table_of(options.test, options)
    say(options, f"{options.table}: {table.num_rows:,} rows, {table.num_columns} columns.")
    model = TableModel.fit(
        table,
        target=options.target,
        drop=options.drop,
        categorical=options.categorical,
        weight=options.weight,
        likelihood=options.likelihood,
        kernel=options.kernel,
        noise=options.noise,
        num_layers=options.layers,
        test=test,
        split_by=options.split_by,
        date_format=options.date_format,
        decimal=options.decimal or ".",
        seconds=options.seconds,
        seed=options.seed,
        progress=not options.quiet and sys.stderr.isatty(),
        announce=lambda text: say(options, f"{text}\n"),
    )
    command = shlex.join(["inducing", *options.arguments])
    reading = {"na": options.na, "decimal": options.decimal or "."}
    model = dataclasses.replace(model, facts=model.facts | {"command": command, "reading": reading})
    say(options, model.outcome())
    if model.scores is None:
        say(
            options,
            "There are too few rows to hold some out for scores; use --test, or `inducing evaluate` with other rows.",
        )
    elif test is None:
        say(
            options,
            "The scores are those of a first fit without the held-out rows; the final model was trained on all rows.",
        )
    _write(model, options)


def _check(options: argparse.Namespace) -> None:
    """Raise an error before the table is read if options conflict, or files cannot be written."""
    if options.test and options.split_by:
        raise ValueError(
            "--split-by chooses rows to hold out, but --test gives a table to score on; use only one of them."
        )
    if options.no_rows and not options.report:
        raise ValueError("--no-rows is an option of the report; pass --report FILE too.")
    check_output(options.save, options.table, options.test)
    check_output(options.report, options.table, options.test, options.save)
    if options.report and find_spec("plotly") is None:
        raise ImportError("--report needs Plotly: pip install 'inducing[tables]'")


def _write(model: "TableModel", options: argparse.Namespace) -> None:
    """Write the model and the report."""
    if options.save:
        with finished_first():
            model.save(options.save)
        say(options, f"The model is in {options.save}.")
    else:
        say(options, "The model was not saved; pass --save FILE to keep it.")
    if options.report and model.held_out is not None:
        with finished_first():
            model.report_held_out(options.report, rows=not options.no_rows)
        say(options, f"The report is in {options.report}.")
    elif options.report:
        raise ValueError(
            f"{options.report} is not written: there are too few rows to hold some out; pass a table to --test."
        )
