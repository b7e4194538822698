"""Models of tables: predictions of every kind of target, files, several targets, and rows that cannot be used."""

import json
import re

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import inducing as ig
from inducing.tables import Encoder, TableModel, read_table
from inducing.tables.fitting import kernel_of
from inducing.training import automatic


def houses(rows, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"area": rng.uniform(40.0, 200.0, rows), "town": rng.choice(["Bonn", "Oslo", "Rome"], rows)})
    frame["truth"] = 1000.0 * frame.area + 20_000.0 * (frame.town == "Oslo")
    frame["price"] = frame.truth + 2000.0 * rng.normal(size=rows)
    return frame


@pytest.fixture(scope="module")
def model():
    frame = houses(60)
    frame.loc[3, "price"] = np.nan  # a missing label
    frame.loc[5, "area"] = np.nan
    return TableModel.fit(frame.drop(columns="truth"), target="price", kernel="matern52", progress=False)


def test_numbers_have_honest_intervals_and_scores(model):
    new = houses(200, seed=1).set_index(pd.Index([f"house {i}" for i in range(200)]))
    found = model.predict(new)
    assert list(found) == ["price mean", "price lower", "price upper"] and found.index.equals(new.index)
    assert np.sqrt(np.mean((found["price mean"] - new.truth) ** 2)) < 2000.0
    inside = (found["price lower"] < new.price) & (new.price < found["price upper"])
    assert 0.88 <= inside.mean() <= 1.0
    scores = model.evaluate(new)
    assert scores.value("RMSE") == pytest.approx(np.sqrt(np.mean((found["price mean"] - new.price) ** 2)))
    assert scores.value("in 95 % interval") == pytest.approx(inside.mean())
    with pytest.raises(KeyError, match="there are RMSE"):
        scores.value("accuracy")


def test_scores_are_those_of_rows_that_the_model_did_not_see(model):
    held = model.held_out
    assert held.rows.num_rows == 6 and held.training.num_rows == 53  # of 59 rows with a label
    assert model.scores == held.model.evaluate(held.rows)
    assert held.model.facts["rows"] == 53 and model.facts["rows"] == 59
    y = np.asarray(held.training["price"])
    other = np.sqrt(np.mean((np.asarray(held.rows["price"]) - y.mean()) ** 2))
    assert model.scores.entries[0].baseline == pytest.approx(other)


def test_a_file_keeps_all_of_it_but_the_rows(model, tmp_path):
    model.save(tmp_path / "a.ig")
    again = TableModel.load(tmp_path / "a.ig")
    assert again.encoder == model.encoder and again.targets == model.targets and again.held_out is None
    assert str(again) == str(model)
    new = houses(5, seed=2)
    pd.testing.assert_frame_equal(again.predict(new), model.predict(new), check_exact=True)
    assert again.scores.value("RMSE") == model.scores.value("RMSE")
    assert ig.load(tmp_path / "a.ig").likelihood.variance == model.model.likelihood.variance
    content = (tmp_path / "a.ig").read_bytes()
    (tmp_path / "b.ig").write_bytes(content.replace(b"Oslo", b"Osla"))
    with pytest.raises(ValueError, match="damaged"):
        TableModel.load(tmp_path / "b.ig")
    ig.save(tmp_path / "c.ig", model.model)
    with pytest.raises(ValueError, match="does not contain a model of a table"):
        TableModel.load(tmp_path / "c.ig")


def test_the_same_rows_of_three_libraries_are_predicted_alike(model):
    new = houses(4, seed=3)[["town", "area"]]
    truth = model.predict(new)
    for other in (pl.from_pandas(new), pa.Table.from_pandas(new)):
        found = model.predict(other)
        assert type(found) is type(other)
        np.testing.assert_array_equal(np.asarray(found["price mean"]), truth["price mean"])


def test_rows_that_cannot_be_used_are_blank_or_fatal(model):
    new = pd.DataFrame({"area": ["100", "large", None, "1e6"], "town": ["Oslo", "Rome", None, "Paris"]})
    with pytest.warns(UserWarning) as said:
        found = model.predict(new)
    assert found.isna().all(axis=1).tolist() == [False, True, True, False]
    messages = [str(w.message) for w in said]
    assert any(re.fullmatch(r"column 'area': 1 cell is not a number \(first in row 2\)", m) for m in messages)
    assert "1 row is far outside the range of the training rows (area): do not rely on the predictions" in messages
    assert "2 of 4 rows cannot be predicted; their predictions are left empty" in messages
    assert any("'town': 1 cell has a value that is rare or absent in the training rows" in m for m in messages)
    with pytest.raises(ValueError, match="2 of 4 rows cannot be predicted: column 'area'"):
        model.predict(new, strict=True)
    with pytest.raises(ValueError, match="lacks the columns 'area'"):
        model.predict(new[["town"]])


def test_the_kernel_sees_every_encoded_column(model):
    assert model.encoder.names == ("area", "area is missing", "town = Bonn", "town = Oslo", "town = Rome")
    assert model.model.layers[0].features.Z.shape[1] == 5


def test_classes_have_probabilities_and_weights_count():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 2.0, 50)
    frame = pd.DataFrame({"x": x, "kind": np.where(x > 1.0, "ash", "oak"), "w": 1.0})
    frame.loc[len(frame)] = [0.1, "ash", 0.0]  # of no weight
    model = TableModel.fit(frame, target="kind", weight="w", test=frame, progress=False, seconds=10)
    found = model.predict(pd.DataFrame({"x": [0.2, 1.8]}))
    assert found["kind predicted"].tolist() == ["oak", "ash"]
    np.testing.assert_allclose(found[["kind = ash", "kind = oak"]].sum(axis=1), 1.0)
    assert "w" not in model.encoder.inputs and model.scores.value("log-loss") < 0.5


def test_groups_are_no_inputs_and_the_second_fit_starts_at_the_first(monkeypatch):
    """The kernel is searched once; the evidence of all rows then improves on the first fit's hyperparameters."""
    frame = houses(60).drop(columns="truth")
    frame["street"] = [f"street {i % 20}" for i in range(60)]
    frame["town"] = [f"town {i % 20}" for i in range(60)]  # those of the held-out streets occur in no other row
    searched: list[int] = []

    def train(data, *others, **options):
        searched.append(len(data))
        return automatic.train(data, *others, **options)

    monkeypatch.setattr("inducing.tables.fitting.train", train)
    model = TableModel.fit(frame, target="price", split_by="street", kernel="matern52", progress=False)
    assert searched == [54] and "The first fit: " in model.facts["message"]
    assert model.held_out.model.encoder == model.encoder
    assert "street  left out: its groups are held out as a whole" in model.encoder.described()
    assert model.model.layers[0].num_features == 60
    data = (model.encoder.encode(frame).X, frame.price.to_numpy())
    first, last = (ig.log_evidence(m.model, data) for m in (model.held_out.model, model))
    assert last >= first


def test_weighted_scores_are_those_of_repeated_rows():
    frame = houses(40).drop(columns="truth")
    frame["w"] = np.arange(40) % 4 > 0
    model = TableModel.fit(frame, target="price", weight="w", test=frame, kernel="matern52", progress=False)
    assert model.scores.rows == 30
    frame["w"] = np.arange(40) % 3
    scores = model.evaluate(frame)
    alone = model.evaluate(frame.loc[frame.index.repeat(frame.w)].drop(columns="w"))
    for weighted, single in zip(scores.entries, alone.entries, strict=True):
        assert (weighted.value, weighted.baseline) == pytest.approx((single.value, single.baseline))
    assert scores.rows == (frame.w > 0).sum()


def test_copies_of_rows_do_not_make_the_model_certain():
    """Twenty copies of rows agree to the last digit; the noise has a standard deviation of 2,000 nevertheless."""
    frame = houses(60).drop(columns="truth")
    copied = pd.concat([frame, frame[:20]], ignore_index=True)
    model = TableModel.fit(copied, target="price", test=houses(100, seed=1), kernel="matern52", progress=False)
    assert model.facts["copies"] == 20 and "20 rows are copies of others" in model.outcome()
    assert 1500.0 < float(model.model.likelihood.variance) ** 0.5 < 2500.0
    assert model.scores.value("in 95 % interval") > 0.85
    frame["w"] = 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inducing.tables.fitting.train", lambda data, *a, **k: pytest.fail(f"{len(data)} rows"))
        for columns in (["area", "town", "price", "w"], ["town", "price"]):  # weights; towns alone have many prices
            weight = "w" if "w" in columns else None
            with pytest.raises(pytest.fail.Exception, match=r"^15 rows"):
                TableModel.fit(
                    frame[columns].iloc[[*range(12), 0, 1, 2]], target="price", weight=weight, progress=False
                )


def test_several_targets_learn_from_each_other():
    """The second is seen in few rows, and is minus the first."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 10.0, 40))
    frame = pd.DataFrame({"x": x, "a": 50.0 + 10.0 * np.sin(2.0 * x), "b": -np.sin(2.0 * x)})
    frame += 0.01 * rng.normal(size=frame.shape)
    frame.loc[np.arange(40) % 4 > 0, "b"] = np.nan
    model = TableModel.fit(frame, target=["a", "b"], test=frame, progress=False, seconds=60)
    new = np.linspace(0.5, 9.5, 30)
    found = model.predict(pd.DataFrame({"x": new}))
    assert list(found) == [f"{t} {c}" for t in "ab" for c in ("mean", "lower", "upper")]
    assert np.sqrt(np.mean((found["b mean"] + np.sin(2.0 * new)) ** 2)) < 0.25
    alone = np.interp(new, frame.x[frame.b.notna()], frame.b[frame.b.notna()])
    assert np.mean((found["b mean"] + np.sin(2 * new)) ** 2) < 0.5 * np.mean((alone + np.sin(2 * new)) ** 2)
    assert model.scores == model.evaluate(frame) and {e.target for e in model.scores.entries} == {"a", "b"}


def test_many_categories_share_an_embedding():
    """The kernel is a product; categories with equal columns of the embedding have covariance as if they were one."""
    words = [f"town {i:02d}" for i in range(12)]
    frame = pd.DataFrame({"x": np.arange(120.0), "town": words * 10})
    assert not Encoder.decide(frame[:-1]).embedded  # too few rows for each category
    encoder = Encoder.decide(frame)
    (block,) = encoder.embedded
    assert len(block) == 12 and "with a learned embedding" in encoder.described()
    assert Encoder.from_json(json.loads(json.dumps(encoder.to_json()))) == encoder

    kernel = kernel_of("matern52", encoder, jax.random.key(0))
    X = encoder.encode(frame).X
    E = np.asarray(kernel.kernels[1].kernel.function.weight)
    r = np.sqrt(5.0) * np.linalg.norm(E[:, 0] - E[:, 1])
    s = np.sqrt(5.0) * 1.0  # x differs by one
    expected = (1 + r + r**2 / 3) * np.exp(-r) * (1 + s + s**2 / 3) * np.exp(-s)
    np.testing.assert_allclose(kernel.gram(jax.numpy.asarray(X[:2]))[0, 1], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "cost"}, "target names the column 'cost', which the table does not have; it has area"),
        ({"drop": ["rooms"]}, "drop names the column 'rooms'"),
        ({"split_by": "rooms"}, "split_by names the column 'rooms'"),
        ({"kernel": "magic"}, "kernel must be one of matern52"),
        ({"noise": "loud"}, "noise must be one of constant"),
        ({"target": "town", "noise": "outliers"}, "for a single target of numbers"),
        ({"num_layers": 0}, "num_layers must be"),
        ({"target": ["price", "truth"], "num_layers": 2}, "several targets need num_layers=1"),
        ({"seconds": 0.0}, "seconds must be a number greater than 0"),
        ({"seed": -1}, "seed must be a whole number, 0 or more"),
        ({"likelihood": "beta"}, "strictly between 0 and 1"),
    ],
)
def test_what_cannot_be_fitted_is_said_before_the_fit(options, says, monkeypatch):
    monkeypatch.setattr("inducing.tables.fitting.train", lambda *a, **k: pytest.fail("a fit was begun"))
    with pytest.raises((ValueError, TypeError), match=says):
        TableModel.fit(houses(30), **({"target": "price"} | options), progress=False)


@pytest.mark.parametrize(
    "options", [{"num_layers": 2, "kernel": "matern32"}, {"noise": "varying"}, {"noise": "outliers"}]
)
def test_other_models_are_what_was_asked_for(options, monkeypatch):
    """Built as asked; training is another matter, and is cut short."""
    seen: list = []

    def stop(part, *others, **options):
        seen.extend([part, *others])
        raise FloatingPointError("enough")

    monkeypatch.setattr("inducing.tables.fitting.fit", stop)
    monkeypatch.setattr("inducing.tables.fitting.train", stop)
    with pytest.raises(FloatingPointError, match="enough"):
        TableModel.fit(houses(15), target="price", drop="truth", **options)
    if "num_layers" in options:
        assert len(seen[0].layers) == 2 and type(seen[0].layers[1].prior.kernels[0]).__name__ == "Matern32"
    else:
        assert (
            type(seen[1]).__name__ == {"varying": "HeteroscedasticGaussian", "outliers": "StudentT"}[options["noise"]]
        )


def test_decisions_are_announced_before_training(monkeypatch):
    said: list[str] = []

    def train(*data, **options):
        raise FloatingPointError(said[0].splitlines()[0])

    monkeypatch.setattr("inducing.tables.fitting.train", train)
    with pytest.raises(FloatingPointError, match="Target price: numbers"):
        TableModel.fit(houses(15), target="price", announce=said.append)
    assert "  area   number\n  town   2 categories (Bonn, Oslo)" in said[0]


def test_facts_are_plain_values(model):
    assert json.loads(json.dumps(model.facts["settings"])) == {
        "kernel": "matern52",
        "noise": "constant",
        "num_layers": 1,
        "seconds": 45.0,
        "seed": 0,
    }
    assert len(model.facts["sha256"]) == 64 and model.facts["versions"]["inducing"] == ig.__version__


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_ordinary_tables_without_options_against_scikit_learn_with_cleaned_columns(data_dir):
    """An exact GP for cars, and logistic regression for the weather; of penguins, the log-loss is known to be low."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fitted(name, target):
        frame = read_table(data_dir / "tables" / f"{name}.csv").to_pandas().dropna(subset=[target])
        order = np.random.default_rng(0).permutation(len(frame))
        train, test = frame.iloc[order[len(frame) // 5 :]], frame.iloc[order[: len(frame) // 5]]
        return TableModel.fit(train, target=target, test=test, progress=False, seconds=120), train, test

    model, *rows = fitted("cars", "Miles_per_Gallon")
    clean = [
        r.drop(columns=["Miles_per_Gallon", "Name", "Year"]).assign(y=pd.to_datetime(r.Year).dt.year) for r in rows
    ]
    train, test = (pd.get_dummies(c.fillna(clean[0].Horsepower.median()), dtype=float).to_numpy(float) for c in clean)
    kernel = ConstantKernel(100.0) * Matern(np.ones(train.shape[1]), nu=2.5) + WhiteKernel(1.0)
    gp = make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True))
    error = gp.fit(train, rows[0].Miles_per_Gallon).predict(test) - rows[1].Miles_per_Gallon
    assert model.scores.value("RMSE") < 1.05 * np.sqrt(np.mean(error**2))

    assert fitted("penguins", "species")[0].scores.value("log-loss") <= 0.08

    model, *rows = fitted("weather", "weather")
    turns = [2 * np.pi * pd.to_datetime(r.date).dt.day_of_year / 365.25 for r in rows]
    train, test = (
        pd.get_dummies(r.drop(columns=["weather", "date"]), dtype=float).assign(sin=np.sin(t), cos=np.cos(t))
        for r, t in zip(rows, turns, strict=True)
    )
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train, rows[0].weather)
    p = logistic.predict_proba(test)[np.arange(len(test)), np.searchsorted(logistic.classes_, rows[1].weather)]
    assert model.scores.value("log-loss") < -np.mean(np.log(p))
