"""The command line on a table: numbers, classes, new rows, and what cannot be read."""

import csv
import io
import sys

import numpy as np
import pytest

import inducing as ig
from inducing.cli.main import main
from inducing.cli.table import _kind, _labels, _read, _write, run

RNG = np.random.default_rng(0)


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_numbers_are_regressed_with_honest_intervals(tmp_path):
    x = RNG.uniform(-2.0, 2.0, (60, 2))
    y = 1000.0 + 50.0 * np.sin(2.0 * x[:, 0]) + RNG.normal(size=60)
    cells = ["" if i % 10 == 0 else v for i, v in enumerate(y)]  # missing labels
    train = write(tmp_path / "train.csv", ["a", "b", "y"], np.column_stack([x, cells]).tolist())
    new = write(tmp_path / "new.csv", ["name", "b", "a"], [["first", 0.0, 0.5], ["second", 0.0, -0.5]])
    out = tmp_path / "out.csv"
    main(["table", train, "--target", "y", "--new", new, "--out", str(out), "--inducing", "20", "--silent"])
    rows = read(out)
    assert list(rows[0]) == ["name", "b", "a", "y mean", "y lower", "y upper"] and rows[1]["name"] == "second"
    truth = 1000.0 + 50.0 * np.sin([1.0, -1.0])
    mean, lower, upper = (np.array([float(r[f"y {k}"]) for r in rows]) for k in ("mean", "lower", "upper"))
    assert (np.abs(mean - truth) < 3.0).all() and ((lower < truth) & (truth < upper)).all()
    assert ((upper - lower > 2.0) & (upper - lower < 20.0)).all()  # noise of 1: intervals of 4 and a little more


@pytest.mark.parametrize("names", [("0", "1"), ("-1", "1000001"), ("ash", "oak", "yew")])
def test_classes_have_probabilities(tmp_path, capsys, names):
    x = RNG.uniform(0.0, len(names), 40)
    rows = [[v, names[int(v)]] for v in x]
    train = write(tmp_path / "train.csv", ["x", "tree"], rows)
    new = write(tmp_path / "new.csv", ["x"], [[i + 0.5] for i in range(len(names))])
    out = tmp_path / "out.csv"
    main(["table", train, "--target", "tree", "--new", new, "--out", str(out), "--inducing", "6", "--silent"])
    assert f"likelihood of {len(names)} classes, inputs x." in capsys.readouterr().out
    p = np.array([[float(row[f"tree = {name}"]) for name in names] for row in read(out)])
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-6)
    assert (p.argmax(1) == np.arange(len(names))).all()


def test_without_new_rows_some_are_held_out_and_scored(tmp_path, capsys):
    x = np.linspace(0.0, 3.0, 50)
    train = write(tmp_path / "train.csv", ["x", "y"], np.column_stack([x, np.sin(x) + 0.01 * RNG.normal(size=50)]))
    main(["table", train, "--target", "y", "--inducing", "10", "--silent"])
    said = capsys.readouterr().out
    assert "Rows held out: 5;" in said and "RMSE 0.0" in said and "lengthscale" in said
    held = np.sort(np.random.default_rng(0).permutation(50)[:5])
    y = np.loadtxt(train, delimiter=",", skiprows=1)[:, 1]
    alone = np.sqrt(np.mean((y[held] - np.delete(y, held).mean()) ** 2))
    assert f"Without inputs: RMSE {alone:.4g} by the mean of the other rows." in said


def test_held_out_classes_are_compared_with_the_most_frequent(tmp_path, capsys):
    train = write(tmp_path / "train.csv", ["x", "y"], [[i, "no" if i % 3 else "yes"] for i in range(21)])
    run(train, "y", num_inducing=3, progress=False)
    held = np.random.default_rng(0).permutation(21)[:3]
    assert f"Without inputs: accuracy {np.mean(held % 3 != 0):.4g} by the most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x,y\n1,2\nred,3\n", "column 'x': 'red' in row 2 below the header is no finite number; change that cell"),
        ("x,y\n1,2\n2020-01-01,3\n", "'2020-01-01' in row 2 below the header is no finite number; change that cell"),
        ("x,y\nred,2\n,3\n", "'' in row 2 below the header is none of the words ['red']; fill in the gap"),
        ("x,y\n" + "".join(f"w{i},{i}\n" for i in range(31)), "'x' has 31 different words, such as 'w0'"),
        ("x,y\n1,2\n,3\n", "'' in row 2 below the header is no finite number; fill in the gap"),
        (",x,y\n0,1,2\n1,2,3\n", "column 1 has no name in the header; name it, or leave it out (--drop '')"),
        ("x,y\n2020-01-01,2\n2020-01-02,1\n,3\n", "'' in row 3 below the header is no date such as 2020-01-31; fill"),
        ("x,y\n,1\n,2\n", "'' in row 1 below the header is no finite number; fill in the gap"),
        ('x,y\n"' + 200000 * "1" + "\n", "is not a text table in UTF-8 (field larger than field limit"),
        ("x,z\n1,2\n", "no column 'y'; it has x, z"),
        ("y\n1\n2.5\n", "no column beside 'y'"),
        ("x,y\n1,\n2,\n", "all cells of the target 'y' are empty"),
        ("x,y\n1,a\n2,a\n", "single class 'a'"),
        ("x,y\n\n1\n", "line 3: 1 cells, but the header has 2"),
        ("x;y\n1,5;2\n", "'1,5' in row 1 below the header is no finite number; write numbers with decimal points"),
        ("x,y\n1,2\n2,3\n3,inf\n", "the target 'y' has 'inf' in row 3 below the header among numbers"),
        ("x,y\n", "a header and at least one row"),
    ],
)
def test_tables_that_cannot_be_fitted(tmp_path, capsys, text, says):
    path = tmp_path / "train.csv"
    path.write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["table", str(path), "--target", "y"])
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_words_and_dates_are_inputs(tmp_path, capsys):
    """A word has an effect of its own, a date is a number of days; columns that are dropped are no inputs."""
    days, towns = RNG.permutation(60), np.array(["Bonn", "Oslo"])[RNG.integers(2, size=60)]
    price = days / 10 + 5.0 * (towns == "Oslo") + 0.01 * RNG.normal(size=60)
    dates = np.datetime64("2020-01-01") + days
    rows = np.column_stack([np.arange(60), dates.astype(str), towns, price])
    train = write(tmp_path / "train.csv", ["id", "sold on", "town", "price"], rows)
    new = write(tmp_path / "new.csv", ["town", "sold on"], [["Bonn", "2020-01-21T12:00"], ["Oslo ", "2020-01-21"]])
    out = tmp_path / "out.csv"
    arguments = ["table", train, "--target", "price", "--new", new, "--drop", "id", "--out", str(out)]
    main([*arguments, "--inducing", "20", "--silent"])
    assert "inputs sold on, town = Bonn, town = Oslo." in capsys.readouterr().out
    np.testing.assert_allclose([float(row["price mean"]) for row in read(out)], [2.05, 7.0], atol=0.1)
    for cells, says in (
        (["Rome", "2020-01-21"], "'Rome' in row 1 below the header is none of the words ['Bonn', 'Oslo']"),
        (["Bonn", "20"], "'20' in row 1 below the header is no date such as 2020-01-31"),
    ):
        write(tmp_path / "new.csv", ["town", "sold on"], [cells])
        with pytest.raises(SystemExit):
            main([*arguments, "--silent"])
        assert says in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["table", train, "--target", "price", "--drop", "idd"])
    assert "has no column 'idd'; it has id, sold on, town, price" in capsys.readouterr().err


def test_files_that_are_not_there_and_new_rows_that_lack_a_column(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["table", str(tmp_path / "none.csv"), "--target", "y"])
    assert "none.csv" in capsys.readouterr().err
    train = write(tmp_path / "train.csv", ["x", "y"], [[i, i * i] for i in range(5)])
    new = write(tmp_path / "new.csv", ["z"], [[1.0]])
    with pytest.raises(SystemExit):
        main(["table", train, "--target", "y", "--new", new, "--silent"])
    assert f"lacks the columns x of {train}; add them, or leave them out (--drop)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [
        ("x,x,y\n1,2,3\n2,3,4\n", "two columns called 'x'"),
        ("x;y\n1;1,5\n2;1,5\n3;2,5\n", "the target 'y' has '1,5'; write numbers with decimal points, without commas"),
        ('x,y\n1,900\n2,"1,200.5"\n3,800\n', "the target 'y' has '1,200.5'; write numbers with decimal points"),
        ("x,y\n1,2\n2,3\n3,4\n4,oak\n", "'oak' in row 4 below the header among numbers"),
        ("x,y\n1,2\n", "no two different values in the 0 rows to fit, of 1 in all"),
        ("x,y\n1,2\n2,3\n", "no two different values in the 1 rows to fit, of 2 in all"),
        ("x,y\n1,2\n2,2\n3,2\n4,\n5,2\n", "the target 'y' has no two different values in the 4 rows"),
    ],
)
def test_tables_that_would_be_misread_are_refused(tmp_path, text, message):
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "train.csv", "y")


def test_missing_words_byte_order_marks_and_ones_with_a_point(tmp_path):
    (tmp_path / "train.csv").write_bytes("\ufeffy,x\n1.5,0\nNA,1\nnan,2\n".encode())
    labels = _labels(_read(tmp_path / "train.csv")["y"], "y", "train.csv")
    np.testing.assert_array_equal(labels[0], [1.5, np.nan, np.nan])
    numbers, classes = _labels(["0", "1", "1.0", "null"], "y", "train.csv")
    assert classes == ["0", "1"]
    np.testing.assert_array_equal(numbers, [0.0, 1.0, 1.0, np.nan])


@pytest.mark.parametrize("mark", [";", "\t"])
def test_cells_may_be_separated_by_semicolons_and_tabs(tmp_path, mark):
    (tmp_path / "train.csv").write_text(f'"x, in m"{mark}y{mark}z\n1{mark}2{mark}3\n')
    assert _read(tmp_path / "train.csv") == {"x, in m": ["1"], "y": ["2"], "z": ["3"]}


def test_row_numbers_of_pandas_can_be_left_out_and_empty_rows_are_skipped(tmp_path):
    rows = [[i, i / 5, np.sin(i / 5)] for i in range(20)]
    train = write(tmp_path / "train.csv", ["", "x", "y"], [*rows, ["", "", ""], [" "]])
    new = write(tmp_path / "new.csv", ["", "x"], [["first", 0.5], ["", ""]])
    out = str(tmp_path / "out.csv")
    main(["table", train, "--target", "y", "--drop", "", "--new", new, "--out", out, "--inducing", "8", "--silent"])
    (row,) = read(out)
    assert list(row) == ["", "x", "y mean", "y lower", "y upper"] and row[""] == "first"
    np.testing.assert_allclose(float(row["y mean"]), np.sin(0.5), atol=0.02)


def test_a_column_is_what_half_of_its_cells_are():
    assert _kind(["1", "2,5", "red"], "x", "train.csv") == "numbers"
    assert _kind(["911", "beetle", "golf"], "x", "train.csv") == ["911", "beetle", "golf"]
    assert _kind(["2020-01-31", "2020-02-01T12:00", "soon"], "x", "train.csv") == "dates"


def test_other_encodings_seeds_and_folders_are_refused_before_the_fit(tmp_path, capsys):
    train = write(tmp_path / "train.csv", ["x", "y"], [[0.0, 1.0], [1.0, 2.5]])
    (tmp_path / "latin.csv").write_bytes("größe,y\n1,2\n".encode("latin-1"))
    calls = (
        ([str(tmp_path / "latin.csv")], "latin.csv is not a text table in UTF-8"),
        ([train, "--seed", "-1"], "--seed must be 0 or more, got -1"),
        ([train, "--new", train, "--out", str(tmp_path / "nowhere" / "out.csv")], "nowhere"),
    )
    for arguments, says in calls:
        with pytest.raises(SystemExit) as stop:
            main(["table", *arguments, "--target", "y", "--silent"])
        said = capsys.readouterr()
        assert stop.value.code == 2 and says in said.err and said.out == ""


def test_new_predictions_replace_those_that_a_table_has(tmp_path):
    _write(tmp_path / "out.csv", {"x": ["1"], "y mean": ["5"]}, {"y mean": np.array([7.0])})
    assert (tmp_path / "out.csv").read_text().split() == ["x,y", "mean", "1,7"]


def test_targets_far_from_zero(tmp_path, capsys):
    """Far from the data predictions return to their mean."""
    rows = [(i / 10, 1e6 + np.sin(i / 3)) for i in range(40)]
    (tmp_path / "train.csv").write_text("x,y\n" + "".join(f"{x},{y:.8f}\n" for x, y in rows))
    (tmp_path / "new.csv").write_text("x\n2.05\n1000\n")
    run(tmp_path / "train.csv", "y", tmp_path / "new.csv", tmp_path / "out.csv", num_inducing=12, progress=False)
    near, far = np.genfromtxt(tmp_path / "out.csv", delimiter=",", skip_header=1)[:, 1] - 1e6
    assert abs(near - np.sin(20.5 / 3)) < 0.1 and abs(far) < 1.0


def test_rows_without_a_label_are_not_held_out(tmp_path):
    """There is nothing to score them by: of 30 rows of which 20 have labels, two are scored whatever the seed."""
    rows = [(i / 10, np.sin(i / 3) if i % 3 else "") for i in range(30)]
    train = write(tmp_path / "train.csv", ["x", "y"], rows)
    for seed in range(2):
        scores = run(train, "y", num_inducing=5, seed=seed, progress=False)
        assert scores["in 95 % interval"] in (0.0, 0.5, 1.0)


def test_encodings_without_the_lines_of_a_table_do_not_end_a_run(tmp_path, monkeypatch):
    """Such as that of a file to which Windows writes."""
    train = write(tmp_path / "train.csv", ["x", "y"], [[i / 5, np.sin(i / 5)] for i in range(10)])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    main(["table", train, "--target", "y", "--new", train, "--out", str(tmp_path / "out.csv"), "--silent"])
    assert len(read(tmp_path / "out.csv")) == 10


def test_without_a_command_it_says_which_there_are(capsys):
    main([])
    said = capsys.readouterr().out
    assert "table" in said and "demo" in said


def test_a_file_behind_the_columns_to_drop_is_told_where_it_belongs(capsys):
    with pytest.raises(SystemExit):
        main(["table", "--target", "y", "--drop", "id", "train.csv"])
    assert "usage: inducing table TRAIN --target TARGET [options]" in capsys.readouterr().err


def test_a_file_for_predictions_without_new_rows_is_refused(tmp_path, capsys):
    train = write(tmp_path / "train.csv", ["x", "y"], [[0.0, 1.0], [1.0, 2.5]])
    with pytest.raises(SystemExit) as stop:
        main(["table", train, "--target", "y", "--out", str(tmp_path / "out.csv")])
    assert stop.value.code == 2 and "--out is the file for the predictions of --new" in capsys.readouterr().err


def test_the_command_knows_its_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"inducing {ig.__version__}\n"


@pytest.mark.parametrize(
    "cells", [["1 kg", "2 kg", "3 kg"], ["7%", "8%", "9%", "9%"], ["2020-01-31", "2020-02-01", "soon"]]
)
def test_numbers_with_units_are_no_classes(tmp_path, cells):
    write(tmp_path / "train.csv", ["x", "y"], enumerate(cells))
    with pytest.raises(ValueError, match=f"3 different words in {len(cells)} rows, such as"):
        run(tmp_path / "train.csv", "y", tmp_path / "train.csv", tmp_path / "out.csv")


def test_predictions_do_not_overwrite_what_they_come_from(tmp_path, capsys):
    train = write(tmp_path / "train.csv", ["x", "y"], [[1, 2.5], [2, 3.5], [3, 1.5]])
    new = write(tmp_path / "new.csv", ["x"], [[1]])
    for out in (train, new):
        with pytest.raises(SystemExit):
            main(["table", train, "--target", "y", "--new", new, "--out", out])
        assert "would overwrite" in capsys.readouterr().err
    assert len(_read(train)["y"]) == 3


def test_predictions_have_the_digits_of_targets_far_from_zero(tmp_path):
    x = RNG.uniform(0.0, 10.0, 60)
    labels = [f"{v:.3f}" for v in 1.7e9 + 60.0 * np.sin(x) + RNG.normal(size=60)]
    train = write(tmp_path / "train.csv", ["x", "y"], zip(x, labels, strict=True))
    new = write(tmp_path / "new.csv", ["x"], [[1.5]])
    run(train, "y", new, tmp_path / "out.csv", num_inducing=10, progress=False)
    row = read(tmp_path / "out.csv")[0]
    lower, mean, upper = (float(row[f"y {k}"]) - 1.7e9 for k in ("lower", "mean", "upper"))
    assert abs(mean - 60.0 * np.sin(1.5)) < 5.0 and mean - 20.0 < lower < mean < upper < mean + 20.0


def test_names_in_quotes_and_empty_first_lines_do_not_hide_the_separator(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text('\n"floor, m";"age, y";y\n1;2;3\n')
    assert list(_read(path)) == ["floor, m", "age, y", "y"]


def test_a_fit_that_fails_is_one_line_and_leaves_no_file(tmp_path, capsys, monkeypatch):
    def fails(*data, **options):
        raise FloatingPointError("no number")

    monkeypatch.setattr("inducing.cli.table.fit", fails)
    x = np.linspace(0.0, 10.0, 40)
    train = write(tmp_path / "train.csv", ["x", "y"], zip(x, np.sin(x), strict=True))
    new, out = write(tmp_path / "new.csv", ["x"], [[1.5]]), tmp_path / "out.csv"
    with pytest.raises(SystemExit):
        main(["table", train, "--target", "y", "--new", new, "--out", str(out), "--inducing", "5", "--silent"])
    assert capsys.readouterr().err == "inducing: no number\n" and not out.exists()
    with pytest.raises(SystemExit):
        main(["table", train, "--target", "y", "--seed", str(2**70)])
    assert "--seed must be below 2^63" in capsys.readouterr().err
