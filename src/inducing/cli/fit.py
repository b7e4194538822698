"""`inducing fit`: train a model of a table, score it, and keep it."""

import argparse
import dataclasses
import shlex
import sys
from typing import Any

from inducing.cli.ending import finished_first
from inducing.cli.options import add_reading, add_running, check_output, say, seed, table_of


def add(commands: Any) -> None:
    """Add the command.

    Args:
        commands: the subparsers of the command line.
    """
    fit = commands.add_parser(
        "fit",
        help="train a model of a column of a table by its other columns, and keep it",
        usage="inducing fit TABLE --target COLUMN [--save MODEL] [options]",
    )
    fit.add_argument("table", metavar="TABLE", help="CSV, Parquet, Arrow or JSON lines; - for CSV from standard input")
    fit.add_argument("--target", nargs="+", required=True, metavar="COLUMN", help="the column to predict, or several")
    fit.add_argument("--save", metavar="FILE", help="keep the model in this file")
    fit.add_argument("--report", metavar="FILE", help="write a report of the held-out rows to this HTML file")
    fit.add_argument("--no-rows", action="store_true", help="a report without data of single rows")
    columns = fit.add_argument_group("columns")
    columns.add_argument(
        "--drop", nargs="+", action="extend", default=[], metavar="COLUMN", help="columns to leave out"
    )
    columns.add_argument(
        "--categorical", nargs="+", action="extend", default=[], metavar="COLUMN", help="numbers that are categories"
    )
    columns.add_argument("--weight", metavar="COLUMN", help="a column that says how often each row counts")
    columns.add_argument("--date-format", metavar="FORMAT", help="the format of dates, such as %%m/%%d/%%Y")
    model = fit.add_argument_group("model")
    model.add_argument("--likelihood", help="the kind of target or its likelihood (default: chosen by its values)")
    model.add_argument("--kernel", help="the kernel (default: Matérn 5/2, unless others predict better)")
    model.add_argument("--noise", default="constant", help="of numbers: constant (default), varying or outliers")
    model.add_argument("--layers", type=int, default=1, help="1: a sparse GP (default); more: a deep GP")
    scores = fit.add_argument_group("scores")
    scores.add_argument("--test", metavar="FILE", help="labelled rows to score on, instead of a tenth of the table")
    scores.add_argument(
        "--split-by", metavar="COLUMN", help="dates, to hold out the latest; or groups that stay together"
    )
    fit.add_argument("--seconds", type=float, default=45.0, help="the time that training may take (default: 45)")
    fit.add_argument("--seed", type=seed, default=0, help="the seed of split and training (default: 0)")
    add_reading(fit)
    add_running(fit)
    fit.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Run the command.

    Args:
        options: those of the command line.

    Raises:
        ValueError: if options conflict, or the table cannot be used as asked.
    """
    from inducing.tables import TableModel

    if options.test and options.split_by:
        raise ValueError(
            "--split-by chooses rows to hold out, but --test gives rows to score on; leave one of them out."
        )
    if options.no_rows and not options.report:
        raise ValueError("--no-rows is about the report, which is written by --report FILE.")
    for path in (options.save, options.report):
        check_output(path, options.table, options.test)
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
        decimal=options.decimal,
        seconds=options.seconds,
        seed=options.seed,
        progress=not options.quiet and sys.stderr.isatty(),
        announce=lambda text: say(options, f"{text}\n"),
    )
    command = shlex.join(["inducing", *options.arguments])
    model = dataclasses.replace(model, facts=model.facts | {"command": command})
    say(options, model.outcome())
    if model.scores is None:
        say(options, "Too few rows to hold some out for scores; score others by `inducing evaluate` or --test.")
    elif test is None:
        say(options, "The scores are those of a model without the held-out rows; the model that is kept saw all rows.")
    if options.save:
        with finished_first():
            model.save(options.save)
        say(options, f"The model is in {options.save}.")
    if options.report and model.held_out is not None:
        with finished_first():
            model.report_held_out(options.report, rows=not options.no_rows)
        say(options, f"The report is in {options.report}.")
    elif options.report:
        raise ValueError(f"{options.report} is not written: there are too few rows to hold some out; give --test rows.")
