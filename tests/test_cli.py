"""The command line on tables: the whole journey, what it prints, and what it refuses in one line."""

import csv
import io
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from pyarrow import parquet

import inducing as ig
from inducing.cli import cache
from inducing.cli.main import main


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def houses(path, rows, seed=0):
    rng = np.random.default_rng(seed)
    towns = [["Bonn", "Oslo"][i] for i in rng.integers(2, size=rows)]
    area = rng.uniform(40.0, 200.0, rows)
    cells = [
        [f"no {i}", f"{a:.1f}", town, f"${1000 * a + 20_000 * (town == 'Oslo') + 500 * rng.normal():,.0f}"]
        for i, (a, town) in enumerate(zip(area, towns, strict=True))
    ]
    return write(path, ["=name", "area", "town", "price"], cells)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table and a model of it."""
    place = tmp_path_factory.mktemp("houses")
    train = houses(place / "train.csv", 50)
    kept = ["--save", str(place / "a.ig"), "--kernel", "matern52"]
    main(["fit", train, "--target", "price", *kept, "--quiet", "--no-cache"])
    return place


@pytest.fixture
def run(capsys):
    """Run a command and return what it printed."""

    def run(*arguments):
        main([*map(str, arguments), *([] if arguments[0] == "show" else ["--no-cache"])])
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """Run a command that ends with 2 and one line, and return that line."""

    def refused(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([*map(str, arguments), "--no-cache"])
        said = capsys.readouterr().err
        assert stop.value.code == 2 and (said.count("\n") == 1 or "usage:" in said)
        return said

    return refused


def test_the_journey_from_a_table_to_predictions(folder, run, tmp_path):
    more = houses(folder / "more.csv", 20, seed=1)
    said = run("predict", folder / "a.ig", more, "--out", tmp_path / "out.csv")
    assert said == f"Predictions for 20 rows in {tmp_path / 'out.csv'}.\n"
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["'=name", "area", "town", "price", "price mean", "price lower", "price upper"]
    for row in rows:
        truth = float(row["price"].strip("$").replace(",", ""))
        assert abs(float(row["price mean"]) - truth) < 2500.0
        assert float(row["price lower"]) < float(row["price mean"]) < float(row["price upper"])
    run("predict", folder / "a.ig", more, "--out", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == 20
    assert run("evaluate", folder / "a.ig", more).startswith("20 rows\nscore ")
    shown = run("show", folder / "a.ig")
    assert "Target price: numbers; likelihood: Gaussian" in shown
    assert "=name  left out: an identifier or free text, with 50 different values in 50 rows" in shown
    assert "town   0 for 'Bonn', 1 for 'Oslo'" in shown and "lengthscale" in shown
    assert "Scores on 5 rows that were held out of a first fit" in shown


def test_a_report_is_one_file_with_the_names_of_the_table(folder, run, tmp_path):
    more, out = houses(folder / "more.csv", 20, seed=1), tmp_path / "a.html"
    assert run("report", folder / "a.ig", "--data", more, "--out", out) == f"The report is in {out}.\n"
    text = out.read_text()
    assert "Predicting price" in text and "area" in text and len(text) < 6e6
    assert "an identifier or free text" in text and "fit " in text and "--target price" in text  # how to make it again


def test_rows_may_come_from_standard_input(folder, run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"area,town\n100,Bonn\nbig,Oslo\n")))
    said = run("predict", folder / "a.ig", "-", "--out", tmp_path / "out.csv")
    assert "Note: column 'area': 1 cell is not a number (first in row 2)." in said
    assert "Note: 1 of 2 rows cannot be predicted; their predictions are left empty." in said
    assert (tmp_path / "out.csv").read_text().splitlines()[2] == '"big","Oslo",,,'


def test_files_are_read_as_those_of_the_fit(run, tmp_path):
    """Words for gaps and the decimal mark are those of the fit, unless the user says otherwise."""
    rng = np.random.default_rng(0)
    rows = [(f"{a:.2f}".replace(".", ","), "-99" if i == 3 else i % 7, a) for i, a in enumerate(rng.uniform(1, 2, 30))]
    lines = "\n".join(f"{x};{z};{y:.3f}".replace(".", ",") for x, z, y in rows)
    (tmp_path / "a.csv").write_text(f"x;z;y\n{lines}\n")
    options = ("--decimal", ",", "--na", "-99", "--kernel", "matern52", "--quiet")
    run("fit", tmp_path / "a.csv", "--target", "y", "--save", tmp_path / "a.ig", *options)
    (tmp_path / "b.csv").write_text("x;z\n1,5;-99\n")
    said = run("predict", tmp_path / "a.ig", tmp_path / "b.csv", "--out", tmp_path / "c.csv")
    assert "Note" not in said
    with open(tmp_path / "c.csv", newline="") as file:
        assert abs(float(next(csv.DictReader(file))["y mean"]) - 1.5) < 0.05
    (tmp_path / "d.csv").write_text("x,z\n1.5,-99\n")
    said = run("predict", tmp_path / "a.ig", tmp_path / "d.csv", "--out", tmp_path / "c.csv", "--decimal", ".")
    assert "Note" not in said and "1.5" in (tmp_path / "c.csv").read_text()


def test_predictions_never_replace_anything_silently(folder, refused, tmp_path):
    taken = write(folder / "taken.csv", ["area", "town", "price mean"], [[100, "Bonn", 5]])
    assert "the table already has a column 'price mean'" in refused("predict", folder / "a.ig", taken)
    for out in (taken, folder / "a.ig"):
        assert "would be overwritten" in refused("predict", folder / "a.ig", taken, "--out", out)
    assert "the folder does not exist" in refused(
        "predict", folder / "a.ig", taken, "--out", tmp_path / "no" / "out.csv"
    )
    assert "choose the extension" in refused("predict", folder / "a.ig", taken, "--out", tmp_path / "out.xlsx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "{}/train.csv", "--target", "cost"], "target names the column 'cost', which the table does not have"),
        (["fit", "{}/nowhere.csv", "--target", "y"], "No such file"),
        (["fit", "{}/train.csv", "--target", "price", "--test", "a", "--split-by", "town"], "use only one of them"),
        (["fit", "{}/train.csv", "--target", "price", "--save", "{}/train.csv"], "would be overwritten"),
        (["fit", "{}/train.csv", "--target", "price", "--seed", "-1"], "must be a whole number from 0 to 2^63"),
        (["fit", "{}/train.csv", "--target", "price", "--kernel", "x"], "kernel must be one of matern52"),
        (["fit", "{}/train.csv", "--target", "price", "--drop", "area", "town"], "no column is left to predict from"),
        (["predict", "{}/train.csv", "{}/train.csv"], "train.csv is not a file of ig.save"),
        (["predict", "{}/a.ig", "{}/short.csv", "--out", "{}/o.csv"], "lacks the columns 'town'"),
        (["predict", "{}/a.ig", "{}/bad.csv", "--out", "{}/o.csv", "--strict"], "1 of 1 rows cannot be predicted"),
        (["evaluate", "{}/a.ig", "{}/new.csv"], "lacks the target 'price'"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, says, folder, refused):
    write(folder / "short.csv", ["area"], [[1]])
    write(folder / "new.csv", ["area", "town"], [[1, "Oslo"]])
    write(folder / "bad.csv", ["area", "town"], [["big", "Oslo"]])
    assert says in refused(*(argument.format(folder) for argument in arguments))
    assert not (folder / "o.csv").exists()


def test_a_fit_that_fails_is_one_line_and_leaves_no_file(folder, refused, monkeypatch, tmp_path):
    def fails(*data, **options):
        raise FloatingPointError("the bound is NaN")

    monkeypatch.setattr("inducing.tables.fitting.train", fails)
    said = refused("fit", folder / "train.csv", "--target", "price", "--save", tmp_path / "b.ig", "--quiet")
    assert said == "inducing: the bound is NaN\n" and list(tmp_path.iterdir()) == []


def test_without_a_command_it_says_which_there_are(capsys):
    main([])
    said = capsys.readouterr().out
    assert all(command in said for command in ("fit", "predict", "evaluate", "report", "show", "demo"))
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"inducing {ig.__version__}\n"


def test_encodings_without_the_signs_of_a_table_do_not_end_a_run(folder, monkeypatch):
    """Such as that of a file to which Windows writes."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    main(["show", str(folder / "a.ig")])


@pytest.fixture
def own_cache(monkeypatch):
    before = jax.config.values["jax_compilation_cache_dir"]
    names = ("jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes")
    values = {name: jax.config.values[name] for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in values.items():
        jax.config.update(name, value)
    jax.config.update("jax_compilation_cache_dir", before)


def test_kept_programs_take_a_bounded_space(tmp_path, own_cache):
    for i in range(4):
        (tmp_path / f"{i}").write_bytes(bytes(1000))
        os.utime(tmp_path / f"{i}", (i, i))
    cache.keep_programs(tmp_path, most=2500)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]  # the newest
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path)
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    cache.keep_programs(tmp_path, most=0)  # the user's choice stays, and nothing is deleted
    assert jax.config.values["jax_compilation_cache_dir"] == "elsewhere" and len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_a_second_run_compiles_nothing(folder, tmp_path):
    """The folder of programs does not change, and `--no-cache` makes none."""
    shutil.copy(folder / "a.ig", tmp_path / "a.ig")
    houses(tmp_path / "more.csv", 20, seed=1)
    sizes = []
    for i, more in enumerate((["--no-cache"], [], [])):
        command = [sys.executable, "-m", "inducing", "predict", "a.ig", "more.csv", "--out", f"{i}.csv", *more]
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=300)
        sizes.append(sum(1 for p in (tmp_path / "cache").rglob("*") if p.is_file()))
    assert sizes[0] == 0 and sizes[1] == sizes[2] > 0
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()
