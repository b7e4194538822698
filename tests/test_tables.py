"""Tables without a fit: reading, what is decided for columns and targets, scores, splits and writing."""

import datetime
import gzip
import io
import json
import sys

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from scipy.stats import norm

import inducing as ig
from inducing.report.measures import baseline_of
from inducing.tables import Encoder, read_table, write_table
from inducing.tables.cells import as_days, as_numbers
from inducing.tables.columns import Category, Date, LeftOut, Number, YesNo
from inducing.tables.deciding import Options, decide
from inducing.tables.frames import as_table, column_of, like
from inducing.tables.scoring import score
from inducing.tables.splitting import held_out, split_by
from inducing.tables.targets import Target, decide_target

TABLE = pa.table(
    {"x": [1.5, None, 3.0], "word": ["a", "b", None], "day": [datetime.date(2020, 1, d) for d in (1, 2, 3)]}
)


def decided(values, **options):
    return decide("c", pa.array(values), Options(**options))


# Reading


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_csv_of_any_delimiter_also_in_quoted_names(tmp_path, mark):
    path = tmp_path / "a.csv"
    path.write_text(f'\ufeff"x, in m; or so"{mark} y\n1{mark}a b\n{mark}\n', encoding="utf-8")
    assert read_table(path).to_pydict() == {"x, in m; or so": [1], "y": ["a b"]}  # the empty last row is left out


def test_every_kind_of_file_gives_the_same_table(tmp_path, monkeypatch):
    text = "x,word,day\n1.5,a,2020-01-01\n,b,2020-01-02\n3.0,,2020-01-03\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    parquet.write_table(TABLE, tmp_path / "a.parquet")
    feather.write_feather(TABLE, tmp_path / "a.feather")
    lines = [json.dumps(row, default=str) for row in TABLE.to_pylist()]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    encoder = Encoder.decide(TABLE)
    for name in ("a.csv", "a.csv.gz", "a.parquet", "a.feather", "a.jsonl"):
        np.testing.assert_array_equal(encoder.encode(read_table(tmp_path / name)).X, encoder.encode(TABLE).X)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_table("-").to_pydict() == TABLE.to_pydict()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("größe,y\n1,2\n".encode("latin-1"), r"a\.csv: it is not encoded as utf8 .*--encoding"),
        ("x,y\n1,größe\n".encode("latin-1"), r"a\.csv: it is not encoded as utf8 \(column 'y'\).*--encoding"),
        (b"x,y\n1,2,3\n", r"a\.csv: it cannot be read as a CSV table: .*Expected 2 columns, got 3"),
        (b"", r"a\.csv must have a header and at least one row"),
        (b"x,y\n", r"a\.csv must have a header and at least one row, but has 0 rows"),
        (b"x,x\n1,2\n", r"a\.csv has two columns called 'x'"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, says):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_table(tmp_path / "a.csv")


def test_other_encodings_decimal_marks_and_words_for_gaps(tmp_path):
    (tmp_path / "a.csv").write_bytes("größe;y\n1,5;-99\n2,5;3\n".encode("latin-1"))
    table = read_table(tmp_path / "a.csv", encoding="latin-1", decimal=",", na=["-99"])
    assert table.to_pydict() == {"größe": [1.5, 2.5], "y": [None, 3]}
    (tmp_path / "b.csv").write_bytes("x,y\n1,é\n".encode("utf-16"))
    assert read_table(tmp_path / "b.csv").to_pydict() == {"x": [1], "y": ["é"]}
    for bad in ("a.parquet", "a.feather", "a.jsonl"):
        (tmp_path / bad).write_text("x,y\n1,2\n")
        with pytest.raises(ValueError, match=f"{bad}: it cannot be read as"):
            read_table(tmp_path / bad)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_table(tmp_path / "nowhere.csv")


def test_words_for_gaps_hold_for_every_kind_of_file(tmp_path):
    table = pa.table({"x": [1, -99, 3], "y": [0.5, 1.5, -99.0], "word": ["a", "-99", "gone"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.feather")
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, table.to_pylist())))
    expected = {"x": [1, None, 3], "y": [0.5, 1.5, None], "word": ["a", None, None]}
    for name in ("a.parquet", "a.feather", "a.jsonl"):
        assert read_table(tmp_path / name, na=["-99", "gone"]).to_pydict() == expected


# Cells and columns


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("$1.5", 1.5, "$"),
        ("-$1,234.50", -1234.5, "$"),
        ("1 234 567", 1234567.0, ""),
        ("(12)", -12.0, ""),
        ("−3", -3.0, ""),
        ("7%", 7.0, "%"),
        ("12 kg", 12.0, "kg"),
        ("1e-3", 1e-3, ""),
        (".5", 0.5, ""),
        ("1,23", np.nan, None),
        ("1.2.3", np.nan, None),
        ("12 or so of it", np.nan, None),
        ("(3", np.nan, None),
    ],
)
def test_numbers_in_text(text, value, unit):
    numbers = as_numbers([text])
    np.testing.assert_equal(numbers.values[0], value)
    assert numbers.units == (frozenset([unit]) if unit else frozenset())


def test_dates_in_text_agree_with_python():
    when = datetime.datetime(2021, 3, 4, 18, 30, tzinfo=datetime.UTC)
    days = (when - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds() / 86400
    assert as_days(["2021-03-04T18:30", "2021-03-04 19:30+01:00"], "iso").tolist() == [days, days]
    assert as_days(["03/04/2021 18:30", "03/04/2021 6:30 PM"], "%m/%d/%Y").tolist() == [days, days]


def test_gaps_are_filled_with_the_median_and_marked():
    column = decided([1.0, None, 4.0, 3.0, np.inf])
    assert isinstance(column, Number) and column.names == ("c", "c is missing")
    assert column.encode(pa.array([7.0, None, np.nan])).values.tolist() == [[7.0, 0.0], [3.0, 1.0], [3.0, 1.0]]


def test_words_among_numbers_count_as_gaps_and_new_ones_make_a_row_unusable():
    column = decided([*map(str, range(20)), "unknown"])
    assert column.described == "number, 'unknown' counts as a gap, gaps filled with the median 9.5, with an indicator"
    encoded = column.encode(pa.array(["3", "unknown", "what"]))
    assert encoded.values[:2].tolist() == [[3.0, 0.0], [9.5, 1.0]]
    assert encoded.unusable.tolist() == [False, False, True]


def test_amounts_of_money_are_numbers_or_refused():
    assert decided(["$1.5", "$2,000", "$3"]).described == "number in $"
    with pytest.raises(ValueError, match=r"column 'c' has amounts in several currencies \(\$, €\)"):
        decided(["$1.5", "€2", "€3"])
    with pytest.raises(
        ValueError, match=r"column 'c' has the value '1,5', whose decimal mark seems to be ','.*--decimal"
    ):
        decided(["1,5", "2,25", "3"])
    assert decided(["1,5", "2,25", "3"], decimal=",").encode(pa.array(["1,5"])).values.tolist() == [[1.5]]


def test_categories_rare_unseen_and_missing():
    column = decided(["oak"] * 5 + ["ash"] * 3 + ["yew", "fir", None])
    assert isinstance(column, Category)
    assert column.names == ("c = ash", "c = oak", "c = other", "c is missing")
    encoded = column.encode(pa.array(["ash", "yew", "elm", None, " oak "]))
    assert encoded.values.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0, 0]]
    assert encoded.unseen.tolist() == [False, True, True, False, False]
    whole = decided(["oak", "ash", "yew"] * 4)
    assert whole.encode(pa.array(["elm"])).values.tolist() == [[0.0, 0.0, 0.0]]  # like none of the others


def test_numbers_that_are_categories_do_not_depend_on_how_they_are_stored():
    column = decided([8, 6, 4] * 3, categorical=("c",))
    assert column.names == ("c = 4", "c = 6", "c = 8")
    for cells in ([8], [8.0], ["8"]):
        assert column.encode(pa.array(cells)).values.tolist() == [[0.0, 0.0, 1.0]]


def test_two_values_become_one_number():
    column = decided(["no", "yes", None, "no"])
    assert isinstance(column, YesNo) and column.names == ("c = yes", "c is missing")
    assert column.encode(pa.array(["yes", None, "maybe"])).values.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert decided([True, False, True]).encode(pa.array([True, False])).values.tolist() == [[1.0], [0.0]]


def test_dates_become_days_and_circles_where_they_are_dense():
    days = pd.date_range("2020-01-01", periods=800).date
    column = decided(list(days))
    assert isinstance(column, Date) and column.periods == ("time of year", "weekday")
    values = column.encode(pa.array(list(days))).values
    np.testing.assert_array_equal(values[:, 0], 18262 + np.arange(800))
    np.testing.assert_allclose(values[7:, 3:], values[:-7, 3:], atol=1e-9)  # the same weekday
    np.testing.assert_allclose(np.hypot(values[:, 1], values[:, 2]), 1.0)
    assert decided(list(pd.date_range("1970-01-01", periods=12, freq="YS").date)).periods == ()
    hours = decided(list(pd.date_range("2020-01-01", periods=72, freq="h")))
    assert hours.periods == ("time of day",)


def test_days_and_months_that_cannot_be_told_apart_are_refused():
    with pytest.raises(
        ValueError, match=r"dates such as '01/02/2020', which could be %m/%d/%Y or %d/%m/%Y.*--date-format"
    ):
        decided(["01/02/2020", "03/04/2020"])
    european = decided(["01/02/2020", "03/02/2020"], date_format="%d/%m/%Y")
    assert european.fill == (datetime.date(2020, 2, 2) - datetime.date(1970, 1, 1)).days
    american = decided(["01/31/2020", "02/01/2020"])
    assert american.date_format == "%m/%d/%Y" and american.encode(pa.array(["02/02/2020"])).values[0, 0] == 18294.0


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("id", [7, 3, 9], "identifier"),
        ("", [0, 1, 2], "identifier"),
        ("c", ["a", "b", "c", "d"], "an identifier or free text, with 4 different values in 4 rows"),
        ("c", ["this is a long one", "and this is another", "and a third of them"], "free text"),
        ("c", [2.0, 2.0], "every row has the same value, 2"),
        ("c", ["a", "a"], "every row has the same value, 'a'"),
        ("c", pa.nulls(2), "it is empty"),
        ("c", [[1], [2]], "type list"),
    ],
)
def test_columns_that_are_left_out_and_why(name, values, reason):
    column = decide(name, pa.array(values) if isinstance(values, list) else values, Options())
    assert isinstance(column, LeftOut) and reason in column.described and column.names == ()


def test_frames_of_three_libraries_have_the_same_columns():
    frame = pd.DataFrame({"x": [1.0, None], "kind": pd.Categorical(["a", "b"]), "mixed": [1, "a"]}, index=["u", "v"])
    table = as_table(frame)
    assert table.column_names == ["x", "kind", "mixed"]
    assert column_of(table, "kind").to_pylist() == ["a", "b"] and column_of(table, "mixed").to_pylist() == ["1", "a"]
    assert as_table(pl.DataFrame({"x": ["a", None]})).to_pydict() == {"x": ["a", None]}
    made = {"y": np.array([1.0, 2.0])}
    assert like(frame, made).index.tolist() == ["u", "v"]
    assert isinstance(like(pl.DataFrame({"x": [1, 2]}), made), pl.DataFrame) and like(TABLE, made).num_columns == 1
    with pytest.raises(TypeError, match="frame must be a pandas or polars DataFrame"):
        as_table([[1.0]])


def test_an_encoder_survives_json_and_names_what_is_missing():
    frame = pd.DataFrame(
        {
            "x": ["$1", "$2", None],
            "day": pd.to_datetime(["2020-01-01", "2020-01-05", None]),
            "ok": [True, False, True],
            "town": ["a", "b", "b"],
            "id": [4, 5, 6],
        }
    )
    encoder = Encoder.decide(frame, drop=["town"])
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder and again.inputs == ("x", "day", "ok")
    assert [len(block) for block in encoder.blocks.values()] == [2, 2, len(encoder.names) - 4]
    with pytest.raises(ValueError, match="lacks the columns 'day', 'ok'"):
        encoder.encode(frame[["x", "town"]])
    with pytest.raises(ValueError, match="drop names the column 'y'"):
        Encoder.decide(frame, drop=["y"])
    with pytest.raises(ValueError, match="no column is left to predict from: 'id' is left out"):
        Encoder.decide(frame[["id"]])
    with pytest.raises(ValueError, match="does not describe a column"):
        Encoder.from_json([{"kind": "os.system", "name": "x"}])


def test_a_column_of_mostly_rare_values_is_left_out():
    frequent, rare = ["a", "b", "c", "d"] * 8, [f"rare {i // 2}" for i in range(80)]
    column = decide("plane", pa.array([*frequent, *rare]), Options())  # 4 of 44 values, in 32 of 112 rows
    assert column.described == (
        "left out: 44 different values, and its 4 most frequent values cover only 29% of the rows"
    )
    assert decide("plane", pa.array([*frequent, *rare[:60]]), Options()).names[-1] == "plane = other"


def test_rows_of_other_kinds_are_named_by_the_first_one():
    rows = Encoder.decide(pd.DataFrame({"x": [1.0, 2.0], "y": [2.0, 1.0]})).encode(
        pd.DataFrame({"y": [1.0, 2.0, None], "x": ["3", "red", None]})
    )
    assert rows.usable.tolist() == [True, False, False]
    assert rows.notes == (
        "column 'x': 1 cell is not a number (first in row 2)",
        "1 row is empty",
    )


# Targets


@pytest.mark.parametrize(
    ("values", "kind", "likelihood"),
    [
        ([1.5, -2.0, 3.0], "number", "Gaussian"),
        (["no", "yes", "no"], "two values", "Bernoulli"),
        ([0, 1, 1], "two values", "Bernoulli"),
        ([True, False, None], "two values", "Bernoulli"),
        (["a", "b", "c"] * 3, "classes", "Softmax"),
        ([1, 2, 3, 4, 5] * 3, "grades", "Ordinal"),
        ([0, 0, 1, 7, 2, 12, 1], "count", "NegativeBinomial"),
        ([0.1, 0.5, 0.9], "share", "Beta"),
        (np.exp(np.linspace(-3.0, 3.0, 30)).tolist(), "positive", "LogNormal"),
        ([2e5, 250_000.0, 4e5], "number", "Gaussian"),
        (["$1.50", "$2.25", "$3"], "number", "Gaussian"),
    ],
)
def test_the_kind_of_target_decides_the_likelihood(values, kind, likelihood):
    target = decide_target("y", pa.array(values))
    assert target.kind == kind and target.described.endswith(likelihood) and target.reason in target.described
    again = Target.from_json(json.loads(json.dumps(target.to_json())))
    assert again == target
    labels = target.labels(pa.array(values))
    target.likelihood(labels).check(labels[~np.isnan(labels)][:, None])  # the likelihood allows them


def test_the_user_may_choose_the_likelihood():
    assert decide_target("y", pa.array([1, 2, 3]), "gaussian").kind == "number"
    assert decide_target("y", pa.array([1, 2, 10]), "ordinal").classes == ("1", "2", "10")
    for likelihood, says in (
        ("poisson", "counts|whole"),
        ("bernoulli", "needs two"),
        ("magic", "choose one of number"),
    ):
        with pytest.raises(ValueError, match=says):
            decide_target("y", pa.array([1.5, 2.0, 3.0]), likelihood)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([None, None], "is empty"),
        (["a", "a"], "the same value 'a' in every row"),
        ([*map(str, range(20)), "soon"], "'soon' in row 21, which is not a number"),
        (["1 kg", "2 lb", "3 kg ", "a", "b"], "5 different texts in 5 rows"),
        (["$1", "€2", "€3"], "'€2' in row 2|several currencies"),
        ([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], "values of type date32"),
    ],
)
def test_targets_that_cannot_be_learnt(values, says):
    with pytest.raises(ValueError, match=says):
        decide_target("y", pa.array(values))


def test_grades_in_words_have_no_known_order():
    with pytest.raises(ValueError, match="has words such as 'poor', whose order is not known"):
        decide_target("y", pa.array(["poor", "fair", "good"]), "ordinal")
    for likelihood in (None, "ordinal"):
        target = decide_target("y", pa.array(["poor", "good", "fair"]), likelihood, order=("poor", "fair", "good"))
        assert target.kind == "grades" and target.classes == ("poor", "fair", "good")


def test_hours_and_periods_of_pandas():
    frame = pd.DataFrame({"took": pd.to_timedelta([30, 90], "min"), "month": pd.period_range("2020-01", periods=2)})
    encoder = Encoder.decide(frame)
    assert encoder.described().splitlines() == ["took   number in hours", "month  date, encoded as days"]
    assert encoder.encode(frame).X.tolist() == [[0.5, 18262.0], [1.5, 18263.0]]


def test_unknown_classes_are_refused_when_labels_are_read():
    target = decide_target("y", pa.array(["a", "b"]))
    with pytest.raises(ValueError, match="'c' in row 2, which is not one of the classes a, b"):
        target.labels(pa.array(["a", "c"]))


# Scores, splits and writing


def test_scores_are_those_of_numpy():
    rng = np.random.default_rng(0)
    y, mean, std = rng.normal(size=(3, 40))
    std = np.exp(std)
    pred = ig.likelihoods.Gaussian(0.5).predictive(jnp.asarray(mean)[:, None], jnp.asarray(std)[:, None] ** 2)
    sd = np.sqrt(std**2 + 0.5)
    target = Target("y", "number", "")
    found = {s.name: s for s in score(target, pred, y, baseline_of(np.array([1.0, 3.0, np.nan])))}
    assert found["RMSE"].value == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found["log density"].value == pytest.approx(norm(mean, sd).logpdf(y).mean())
    assert found["log density"].error == pytest.approx(norm(mean, sd).logpdf(y).std(ddof=1) / np.sqrt(40))
    assert found["log density"].baseline == pytest.approx(norm(2.0, 1.0).logpdf(y).mean())
    assert found["in 95 % interval"].value == np.mean(np.abs(y - mean) < norm.ppf(0.975) * sd)


def by(values, **options):
    return split_by("c", pa.array(values), Options(**options))


def test_groups_stay_together_and_the_latest_days_are_held_out():
    groups = np.repeat(["a", "b", "c", "d", "e"], 10)
    held = held_out(np.ones(50, bool), 0, by(groups))
    assert len(held) == 10 and len(set(groups[held])) == 1
    unequal = by(["a"] * 40 + ["b"] * 4 + [None] * 6)  # the large group is never held out
    assert all(max(held_out(np.ones(50, bool), seed, unequal)) >= 40 for seed in range(5))
    days = pd.date_range("2020-01-01", periods=50).date[::-1]
    assert held_out(np.ones(50, bool), 0, by(days)).tolist() == list(range(5))
    european = by([f"{day:%d.%m.%Y}" for day in days])  # dates in text
    assert european.dates and held_out(np.ones(50, bool), 0, european).tolist() == list(range(5))
    assert set(held_out(np.arange(50) % 2 == 0, 0) % 2) == {0}  # rows without a label cannot be scored
    with pytest.raises(ValueError, match="too few different values"):
        held_out(np.ones(3, bool), 0, by(["a", "a", "a"]))


def test_codes_keep_their_leading_zeros(tmp_path):
    (tmp_path / "a.csv").write_text('zip,n,share\n"01067",10,0.5\n80331,20,0\n,30,00.5\n')
    table = read_table(tmp_path / "a.csv")
    assert table.to_pydict() == {"zip": ["01067", "80331", None], "n": [10, 20, 30], "share": [0.5, 0.0, 0.5]}
    write_table(tmp_path / "b.csv", table)
    assert '"01067",10,0.5' in (tmp_path / "b.csv").read_text()
    (tmp_path / "a.csv").write_text("n,zip\n10,01067")
    assert read_table(tmp_path / "a.csv")["zip"].to_pylist() == ["01067"]


def test_cells_that_a_spreadsheet_would_execute_are_text(tmp_path):
    table = pa.table({"=x": ["=1+1", "-2 or so", "@a", "plain", None], "y": [-1.5, 2.0, 3.0, 4.0, 5.0]})
    write_table(tmp_path / "a.csv", table)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines == ['"\'=x","y"', '"\'=1+1",-1.5', '"\'-2 or so",2', '"\'@a",3', '"plain",4', ",5"]
    write_table(tmp_path / "a.parquet", table)
    assert parquet.read_table(tmp_path / "a.parquet").equals(table)
    with pytest.raises(ValueError, match=r"choose the extension \.csv or \.parquet"):
        write_table(tmp_path / "a.xlsx", table)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda table: Encoder.decide(table, categorical=np.ma.masked_array([1.0], [True])),
            "categorical must be text",
        ),
        (lambda table: Encoder.decide(table, drop=np.array(0.5)), "drop must be text or a list of texts"),
        (lambda table: Encoder.decide(table, date_format=3), "date_format must be text or None, got 3"),
        (lambda table: Encoder.decide(table, decimal=np.ones(2)), "decimal must be '.' or ','"),
        (lambda table: read_table(np.ones(2)), "path must be a string or a pathlib.Path, got an array"),
        (lambda table: read_table("a.csv", na=(1, 2)), r"na must be text or a list of texts, got \(1, 2\)"),
        (lambda table: read_table("a.csv", encoding=2), "encoding must be text such as 'utf8', got 2"),
        (lambda table: read_table("a.csv", delimiter="ab"), "delimiter must be one character, got 'ab'"),
        (lambda table: write_table("a.csv", Exception("x")), "table must be a pyarrow Table, got a Exception"),
        (lambda table: write_table(0, table), "path must be a string or a pathlib.Path, got 0"),
    ],
)
def test_arguments_of_a_wrong_kind_are_named(call, says, unchecked):
    with pytest.raises((TypeError, ValueError), match=says):
        call(pa.table({"x": [1.0, 2.0]}))
