"""A model that predicts columns of a table from its other columns."""

import dataclasses
import hashlib
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow as pa

from inducing import io
from inducing.data import Data
from inducing.likelihoods import Predictive
from inducing.model import Model
from inducing.report.contents import Baseline
from inducing.report.measures import baseline_of
from inducing.report.summary import summary
from inducing.tables.columns import LeftOut, numbers_of
from inducing.tables.deciding import Options
from inducing.tables.encoder import Encoder, Rows, categorical_columns, check_names, counted, ordered_values
from inducing.tables.fitting import Settings, train_further, train_model
from inducing.tables.frames import as_table, as_texts, check_decimal, check_texts, column_of, like
from inducing.tables.scoring import Scores, score
from inducing.tables.splitting import SplitBy, counted_once, held_out
from inducing.tables.splitting import split_by as split
from inducing.tables.targets import Target, decide_target
from inducing.training.arguments import check_progress
from inducing.training.fit import FitResult
from inducing.training.kernel_search import EXACT
from inducing.training.monitor import TIME

FEWEST = 20  # the fewest labelled rows of which some are held out
COPIES = "with the same inputs and the same target; copies are counted once, because they hide the noise"
FIRST = 0.6  # the share of the time for the fit without the held-out rows


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A trained model of one or several columns of a table, with all that is needed to predict rows of other tables.

    Args:
        encoder: how the input columns become numbers.
        targets: the predicted columns.
        model: the trained `ig.Model`, whose inputs are the encoded columns.
        facts: how the model was trained, and its scores, as a JSON value.
        held_out: after a fit, the held-out rows and the model that was scored on them. Files do not contain them.

    Examples:
        >>> import numpy as np, pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame({"x": rng.uniform(0, 3, 40), "side": ["left", "right"] * 20})
        >>> frame["y"] = np.sin(frame.x) + (frame.side == "left") + 0.02 * rng.normal(size=40)
        >>> model = TableModel.fit(frame, target="y", progress=False)
        >>> model.predict(pd.DataFrame({"x": [1.0], "side": ["left"]}, index=["new"])).round(1)
             y mean  y lower  y upper
        new     1.8      1.8      1.9
    """

    encoder: Encoder
    targets: tuple[Target, ...]
    model: Model
    facts: dict[str, Any]
    held_out: "HeldOut | None" = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def fit(
        cls,
        frame: Any,
        *,
        target: str | Sequence[str],
        drop: str | Sequence[str] = (),
        categorical: str | Sequence[str] = (),
        weight: str | None = None,
        likelihood: str | None = None,
        kernel: str | None = None,
        noise: str = "constant",
        num_layers: int = 1,
        test: Any = None,
        split_by: str | None = None,
        date_format: str | None = None,
        decimal: str = ".",
        seconds: int | float | None = 45.0,
        seed: int = 0,
        progress: bool = True,
        announce: Callable[[str], Any] | None = None,
    ) -> "TableModel":
        """Train a model that predicts some columns of a table from its other columns.

        To score the model, a tenth of the labelled rows (at most 10,000) is held out, and a first model is trained on
        the other rows. The returned model starts there, and is trained on all rows. How inputs are encoded is decided
        once, from the inputs of all labelled rows.

        Args:
            frame: a pandas or polars data frame or a pyarrow table. Empty cells of targets are missing labels.
            target: the column to predict, or several.
            drop: columns that are not used as inputs.
            categorical: columns of numbers that are categories or, for targets, classes.
            weight: a column that says how often each row counts.
            likelihood: the kind of target or its likelihood, such as "count" or "gaussian". By default, it is chosen by
                the values of the target.
            kernel: "matern52", "matern32", "matern12", "squared-exponential" or "rational-quadratic". By default, a
                Matérn 5/2 kernel with one lengthscale per column, unless training finds a better one.
            noise: for a target of numbers: "constant", "varying" with the inputs, or "outliers" for Student-t noise.
            num_layers: the number of GP layers.
            test: labelled rows to score the model on. Then no rows are held out.
            split_by: a column of dates, to hold out the latest rows; or a column of groups, to hold out whole groups.
            date_format: the format of dates, as for `datetime.strptime`. By default, it is detected.
            decimal: the decimal mark of numbers in text.
            seconds: the time limit of training; None for no limit.
            seed: the seed of all random choices.
            progress: whether to show progress bars.
            announce: a function that is called before training with a description of the target and the columns, such
                as `print`.

        Returns:
            The model.

        Raises:
            ValueError: if a column is missing or cannot be used as asked.
        """
        began = time.perf_counter()
        table = as_table(frame)
        names = as_texts("target", target)
        if not names:
            raise ValueError("target is empty; pass the name of the column to predict.")
        drop, categorical = as_texts("drop", drop), as_texts("categorical", categorical)
        check_texts(weight=weight, likelihood=likelihood, split_by=split_by, date_format=date_format)
        check_decimal(decimal)
        check_progress(progress)
        asked: dict[str, Any] = {"drop": drop, "categorical": categorical, "weight": [weight] if weight else []}
        check_names(table.column_names, target=names, split_by=[split_by] if split_by else [], **asked)
        _check_roles(names, weight, split_by)
        settings = Settings(kernel, noise, num_layers, seconds, seed)
        targets = _targets(table, names, likelihood, decimal, categorical)
        reading: dict[str, Any] = {"date_format": date_format, "decimal": decimal}
        columns = {"drop": drop, "categorical": categorical, **reading}
        by = None if split_by is None else split(split_by, column_of(table, split_by), Options(**reading))
        job = _Job(table, targets, weight, settings, columns, by, progress, began)
        labelled = np.flatnonzero(job.labelled)
        encoder = job.encoder(job.rows(labelled))
        if announce is not None:
            announce(_decisions(targets, encoder))
        if test is not None:
            _check_test(as_table(test), encoder, targets)
        held = job.held_out(encoder) if test is None else None
        model = job.train(encoder, labelled, "on all rows", 1.0, None if held is None else held.model)
        if test is not None:
            held = HeldOut(model, as_table(test), table, None)
        scores = None if held is None else held.model.evaluate(held.rows)
        facts = {
            "scores": None if scores is None else scores.to_json(),
            "scored": "rows of the test table" if test is not None else "rows that were held out of a first fit",
            "seconds": time.perf_counter() - began,
        }
        return dataclasses.replace(model, facts=model.facts | facts, held_out=held)

    def predict(self, frame: Any, *, strict: bool = False) -> Any:
        """Predict the targets of rows.

        Args:
            frame: a data frame with the columns that the model was trained on, in any order. Other columns are ignored.
            strict: whether to raise an error for rows that cannot be predicted. Otherwise their predictions are empty,
                with a warning.

        Returns:
            A data frame of the same library with the same index. For each target, it has the mean and the ends of a
            95 % interval, or the most probable class and the probability of each class.

        Raises:
            ValueError: if columns are missing, or rows cannot be predicted and `strict` holds.
        """
        columns, notes = self.predictions(frame, strict=strict)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return like(frame, columns)

    def predictions(self, frame: Any, *, strict: bool = False) -> tuple[dict[str, np.ndarray], list[str]]:
        """The columns of predictions, and messages for the user.

        Args:
            frame: a data frame with the columns that the model was trained on.
            strict: whether to raise an error for rows that cannot be predicted.

        Returns:
            Values [N] by name, and the messages.

        Raises:
            ValueError: if columns are missing, or rows cannot be predicted and `strict` holds.
        """
        rows = self.encoder.encode(frame)
        notes = list(rows.notes)
        blank = int((~rows.usable).sum())
        if blank and strict:
            raise ValueError(f"{blank:,} of {len(rows.X):,} rows cannot be predicted: {'; '.join(notes)}.")
        if blank:
            notes.append(f"{blank:,} of {len(rows.X):,} rows cannot be predicted; their predictions are left empty")
        notes += self._far(rows)
        columns: dict[str, np.ndarray] = {}
        with jax.enable_x64(True):
            if rows.usable.any():
                for target, pred in zip(self.targets, self._outputs(rows.X[rows.usable]), strict=True):
                    columns |= target.prediction(pred)
            else:
                columns = {name: np.zeros(0) for target in self.targets for name in target.columns}
        return {name: _spread(values, rows.usable) for name, values in columns.items()}, notes

    def evaluate(self, frame: Any) -> Scores:
        """Score the predictions of labelled rows.

        If the model was trained with a column of weights and the rows have it too, the scores are weighted.

        Args:
            frame: rows with inputs and targets. Rows without any label are left out.

        Returns:
            The scores of each target, with those of a prediction that ignores the inputs. They print as a table.

        Raises:
            ValueError: if columns are missing, or no row has a label.
        """
        X, labels, weight, used, _ = self.labelled(as_table(frame))
        with jax.enable_x64(True):
            each = [
                entry
                for target, pred, y, baseline in zip(
                    self.targets, self._outputs(X), labels.T, self.baselines, strict=True
                )
                for entry in score(target, pred, y, baseline, weight)
            ]
        return Scores(tuple(each), len(used))

    def report(self, frame: Any, path: str | os.PathLike, *, rows: bool = True) -> None:
        """Write a report on the predictions of labelled rows as one HTML file.

        Args:
            frame: rows with inputs and targets on which the model was not trained.
            path: the file; an existing one is replaced.
            rows: whether the file may contain data of single rows.

        Raises:
            ImportError: if Plotly is missing.
            OSError: if the file cannot be written.
            ValueError: if columns are missing, or no row has a label.
        """
        self._write_report(path, rows, frame, None, "labelled rows")

    def report_held_out(self, path: str | os.PathLike, *, rows: bool = True) -> None:
        """Write a report on the held-out rows of the fit, by the model that was not trained on them.

        Args:
            path: the file; an existing one is replaced.
            rows: whether the file may contain data of single rows.

        Raises:
            ImportError: if Plotly is missing.
            OSError: if the file cannot be written.
            ValueError: if there are no held-out rows, because they were too few or the model comes from a file.
        """
        held = self.held_out
        if held is None:
            raise ValueError("the model has no held-out rows to report on; pass labelled rows to `report`.")
        facts = held.model.facts | {name: self.facts[name] for name in ("command",) if name in self.facts}
        model = dataclasses.replace(held.model, facts=facts)
        what = "rows of the test table" if held.numbers is None else "held-out rows that it was not trained on"
        model._write_report(path, rows, held.rows, held.training, what, held.numbers)

    def _write_report(self, path: str | os.PathLike, rows: bool, *described: Any) -> None:
        from inducing.report.html import write_contents
        from inducing.tables.contents import contents_of

        with jax.enable_x64(True):
            write_contents(path, contents_of(self, *described), rows=rows)

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to a file. `TableModel.load` reads it, and `ig.load` reads the `ig.Model` in it.

        Args:
            path: the file; an existing one is replaced.

        Raises:
            OSError: if the file cannot be written.
        """
        notes = {
            "table": 1,
            "columns": self.encoder.to_json(),
            "targets": [target.to_json() for target in self.targets],
            "facts": _without_nan(self.facts),
        }
        io.save(path, self.model, notes=notes)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "TableModel":
        """Read a model from a file that `save` wrote. Nothing in the file is executed.

        Args:
            path: the file.

        Returns:
            The model.

        Raises:
            ValueError: if the file is damaged, or does not contain a model of a table.
            OSError: if the file does not exist or cannot be read.
        """
        notes = io.load_notes(path)
        if not isinstance(notes, Mapping) or notes.get("table") != 1:
            raise ValueError(
                f"{path} does not contain a model of a table; write one by `inducing fit --save` or TableModel.save."
            )
        try:
            encoder = Encoder.from_json(notes["columns"])
            targets = tuple(Target.from_json(target) for target in notes["targets"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        with jax.enable_x64(True):
            return cls(encoder, targets, io.load(path), notes["facts"])

    @property
    def scores(self) -> Scores | None:
        """The scores on the held-out rows, or on those of `test`; None if there were too few rows to hold some out."""
        stored = self.facts.get("scores")
        return None if stored is None else Scores.from_json(stored)

    def __str__(self) -> str:
        return f"{_decisions(self.targets, self.encoder)}\n\n{self.outcome()}"

    def outcome(self) -> str:
        """A description of the training, the scores, and the parameters of the model.

        Returns:
            Lines of text.
        """
        facts = self.facts
        lines = [f"Trained on {facts['rows']:,} rows in {facts['seconds']:.0f} s: {facts['message']}"]
        if facts["copies"]:
            lines.append(
                f"{counted(facts['copies'], 'row is a copy of another one', 'rows are copies of others')}, {COPIES}."
            )
        if TIME in facts["message"]:
            lines.append("Training ended at the time limit; more time (seconds) may give a better model.")
        lines.append("")
        if (scores := self.scores) is not None:
            lines += [f"Scores on {scores.rows:,} {facts['scored']}:", str(scores), ""]
        with jax.enable_x64(True):
            return "\n".join([*lines, str(summary(self.model))])

    @property
    def baselines(self) -> list[Baseline]:
        """For each target, the prediction that ignores the inputs."""
        return [Baseline(tuple(b["frequencies"]), b["mean"], b["std"]) for b in self.facts["baselines"]]

    def labelled(self, table: pa.Table) -> "Labelled":
        """The rows with a label that the model can predict, and of positive weight.

        Args:
            table: rows with inputs and targets.

        Returns:
            The encoded rows.

        Raises:
            ValueError: if columns are missing, or there is no such row.
        """
        rows, labels, weight = self.encoder.encode(table), labels_of(table, self.targets), self.weights(table)
        usable = rows.usable & ~np.isnan(labels).all(axis=1)
        used = np.flatnonzero(usable if weight is None else usable & (weight > 0))
        if not len(used):
            raise ValueError("no row has a label to compare the predictions with.")
        return Labelled(rows.X[used], labels[used], None if weight is None else weight[used], used, rows)

    def weights(self, table: pa.Table) -> np.ndarray | None:
        """The weights of labelled rows.

        Args:
            table: the rows.

        Returns:
            How often each row counts [N]; None if the model was trained without weights, or the rows do not have them.
        """
        name = self.facts["weight"]
        return None if name not in table.column_names else weights_of(table, name)

    def _outputs(self, X: np.ndarray) -> list[Predictive]:
        """The predictions of each target."""
        pred: Any = self.model.predict(X)
        likelihood: Any = pred.likelihood  # several targets have a PerOutput
        return [pred] if len(self.targets) == 1 else likelihood.each(pred)

    def _far(self, rows: Rows) -> list[str]:
        """A message about rows that are outside the range of the training rows by more than a tenth of it."""
        low, high = (np.asarray(self.facts["ranges"][end], float) for end in ("low", "high"))
        margin = 0.1 * (high - low)
        beyond = ((low - margin > rows.X) | (high + margin < rows.X)) & rows.usable[:, None]
        names = [name for name, far in zip(self.encoder.names, beyond.any(axis=0), strict=True) if far]
        if not names:
            return []
        listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        rows_are = counted(int(beyond.any(axis=1).sum()), "row is", "rows are")
        return [f"{rows_are} far outside the range of the training rows ({listed}): do not rely on the predictions"]


class Labelled(NamedTuple):
    """Encoded rows with labels.

    Attributes:
        X: inputs [n, D].
        y: labels [n, P], NaN where missing.
        weight: how often each row counts [n]; None for once.
        used: the positions [n] of these rows in the table.
        rows: all encoded rows of the table.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    used: np.ndarray
    rows: Rows


class HeldOut(NamedTuple):
    """Rows on which a model was scored.

    Attributes:
        model: the model that was scored, which was not trained on these rows.
        rows: the rows.
        training: the rows that it was trained on.
        numbers: the row numbers in the table that the held-out rows come from; None if they are a table of their own.
    """

    model: TableModel
    rows: pa.Table
    training: pa.Table
    numbers: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class _Job:
    """A table and how to train, for both fits."""

    table: pa.Table
    targets: tuple[Target, ...]
    weight: str | None
    settings: Settings
    columns: dict[str, Any]
    by: SplitBy | None
    progress: bool
    began: float

    @property
    def labelled(self) -> np.ndarray:
        """The rows with a label of any target [N]."""
        return np.asarray(~np.isnan(labels_of(self.table, self.targets)).all(axis=1))

    def rows(self, rows: np.ndarray) -> pa.Table:
        """Some rows of the table."""
        return self.table.take(rows) if len(rows) < len(self.table) else self.table

    def encoder(self, table: pa.Table) -> Encoder:
        """How the inputs are encoded, according to these rows."""
        names = [target.name for target in self.targets]
        inputs = table.drop_columns([*names, *([self.weight] if self.weight else [])])
        drop, categorical = ([n for n in self.columns[k] if n in inputs.column_names] for k in ("drop", "categorical"))
        groups = [] if self.by is None or self.by.dates else [self.by.name]
        columns: dict[str, Any] = self.columns | {"drop": [*drop, *groups], "categorical": categorical}
        encoder = Encoder.decide(inputs, **columns)
        reasons = {name: LeftOut(name, "its groups are held out as a whole") for name in groups}
        return Encoder(tuple(reasons.get(column.name, column) for column in encoder.columns))

    def held_out(self, encoder: Encoder) -> HeldOut | None:
        """Hold some rows out and train a model on the others; None if few rows have labels."""
        labelled = np.flatnonzero(self.labelled)
        if len(labelled) < FEWEST:
            return None
        rows = held_out(self.labelled, self.settings.seed, self.by)
        rest = np.setdiff1d(labelled, rows)
        model = self.train(encoder, rest, f"without {len(rows)} held-out rows", FIRST)
        return HeldOut(model, self.table.take(rows), self.table.take(rest), rows)

    def train(
        self, encoder: Encoder, rows: np.ndarray, label: str, share: float, first: TableModel | None = None
    ) -> TableModel:
        """Train a model on some rows in a share of the time that is left, starting at `first` if it is given."""
        table = self.rows(rows)
        encoded = encoder.encode(table)
        Y = labels_of(table, self.targets)
        for target, y in zip(self.targets, Y.T, strict=True):
            if len(np.unique(y[encoded.usable & ~np.isnan(y)])) < 2:
                raise ValueError(f"the target {target.name!r} has only one value in the rows to train on.")
        weight = None if self.weight is None else weights_of(table, self.weight)[encoded.usable]
        seconds = self.settings.seconds
        if seconds is not None:
            seconds = max(share * (seconds - (time.perf_counter() - self.began)), 1.0)
        X, Y, copies = encoded.X[encoded.usable], Y[encoded.usable], 0
        if weight is None and len(self.targets) == 1 and self.targets[0].is_continuous and len(X) <= EXACT:
            once = counted_once(X, Y[:, 0])
            X, Y, copies = X[once], Y[once], len(X) - len(once)
        with jax.enable_x64(True):
            data, told = Data(X, Y, weight=weight), self.progress and label
            if first is not None:
                result = train_further(first.model, data, self.settings, seconds, told)
                result = result._replace(message=f"{result.message} The first fit: {first.facts['message']}")
            else:
                result = train_model(encoder, self.targets, data, self.settings, seconds, told)
        return TableModel(
            encoder, self.targets, result.model, self._facts(table, X, Y, weight, result) | {"copies": copies}
        )

    def _facts(
        self, table: pa.Table, X: np.ndarray, Y: np.ndarray, weight: np.ndarray | None, result: FitResult
    ) -> dict[str, Any]:
        taken = len(result.history.bound)  # 0 if there was no time for a step
        steps = np.unique(np.linspace(0, taken - 1, min(taken, 200)).astype(int))
        classes = [len(target.classes) for target in self.targets]
        baselines = [baseline_of(y, C, weight)._asdict() for C, y in zip(classes, Y.T, strict=True)]
        return {
            "rows": len(X),
            "seconds": time.perf_counter() - self.began,
            "message": result.message,
            "bound": float(result.bound),
            "history": {
                name: np.asarray(getattr(result.history, name), float)[steps].tolist()
                for name in ("step", "bound", "seconds")
            },
            "settings": dataclasses.asdict(self.settings),
            "weight": self.weight,
            "baselines": baselines,
            "ranges": {"low": X.min(axis=0).tolist(), "high": X.max(axis=0).tolist()},
            "versions": {name: version(name) for name in ("inducing", "jax", "pyarrow")},
            "sha256": data_hash(table),
            "scores": None,
        }


def labels_of(table: pa.Table, targets: Sequence[Target]) -> np.ndarray:
    """The labels of rows.

    Args:
        table: the rows.
        targets: the targets.

    Returns:
        Labels [N, P], NaN where missing.

    Raises:
        ValueError: if a target is missing, or has values of another kind.

    Examples:
        >>> labels_of(pa.table({"x": [1.0]}), [Target("y", "number", "")])
        Traceback (most recent call last):
            ...
        ValueError: the table lacks the target 'y'; it has x.
    """
    lacking = next((target.name for target in targets if target.name not in table.column_names), None)
    if lacking is not None:
        raise ValueError(f"the table lacks the target {lacking!r}; it has {', '.join(table.column_names)}.")
    return np.stack([target.labels(column_of(table, target.name)) for target in targets], axis=1)


def weights_of(table: pa.Table, name: str) -> np.ndarray:
    """A column of weights.

    Args:
        table: the table.
        name: the column.

    Returns:
        Weights [N].

    Raises:
        ValueError: if they are not numbers, or some are negative or missing.

    Examples:
        >>> weights_of(pa.table({"w": ["a"]}), "w")
        Traceback (most recent call last):
            ...
        ValueError: the weights in column 'w' must be numbers of at least 0, without gaps.
    """
    values, _ = numbers_of(column_of(table, name), ".")
    if np.isnan(values).any() or (values < 0).any():
        raise ValueError(f"the weights in column {name!r} must be numbers of at least 0, without gaps.")
    return values


def _decisions(targets: Sequence[Target], encoder: Encoder) -> str:
    lines = [f"Target {target.name}: {target.described}" for target in targets]
    return "\n".join([*lines, "", "Columns:", *(f"  {line}" for line in encoder.described().splitlines())])


def _targets(
    table: pa.Table, names: tuple[str, ...], likelihood: str | None, decimal: str, categorical: tuple[str, ...]
) -> tuple[Target, ...]:
    """What kind of target each of these columns is."""
    classes = {*categorical, *categorical_columns(table)}

    def one(name: str) -> Target:
        order = ordered_values(table, name)
        return decide_target(name, column_of(table, name), likelihood, decimal, name in classes, order)

    return tuple(map(one, names))


def _check_roles(targets: Sequence[str], weight: str | None, split_by: str | None) -> None:
    if len({*targets, weight, split_by}) < len(targets) + len({weight, split_by}):
        raise ValueError("a column can only have one of the roles target, weight and split_by, and only once.")


def _check_test(table: pa.Table, encoder: Encoder, targets: Sequence[Target]) -> None:
    """Raise a ValueError before training if the rows of `test` cannot be scored."""
    encoder.encode(table)
    if np.isnan(labels_of(table, targets)).all():
        raise ValueError("no row of test has a label to compare the predictions with.")


def _spread(values: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Values of the usable rows, filled up with None or NaN for the other rows."""
    if usable.all():
        return values
    out = np.full(len(usable), None, object) if values.dtype == object else np.full(len(usable), np.nan)
    out[usable] = values
    return out


def data_hash(table: pa.Table) -> str:
    """The SHA-256 of the content of a table. It does not depend on the kind of file that the table came from.

    Args:
        table: the table.

    Returns:
        Hexadecimal digits.

    Examples:
        >>> data_hash(pa.table({"x": [1]})) == data_hash(pa.table({"x": [2]}))
        False
    """
    digest = hashlib.sha256(str(table.schema.remove_metadata()).encode())
    for batch in table.combine_chunks().to_batches(max_chunksize=1 << 16):
        digest.update(batch.serialize())
    return digest.hexdigest()


def _without_nan(value: Any) -> Any:
    """A JSON value with null instead of NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
