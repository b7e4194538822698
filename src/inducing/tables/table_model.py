"""A model of columns of a table."""

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
from inducing.report.summary import summary
from inducing.tables.encoder import Encoder, Rows, check_names
from inducing.tables.fitting import Settings, train_further, train_model
from inducing.tables.frames import as_table, column_of, like
from inducing.tables.scoring import Baseline, Scores, baseline_of, score
from inducing.tables.splitting import held_out
from inducing.tables.targets import Target, decide_target
from inducing.training.fit import FitResult

FEWEST = 20  # labelled rows of which some are held out
FIRST = 0.6  # the share of the time that the fit without the held-out rows gets


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A trained model of one or several columns of a table, with all that is needed to predict rows of another.

    Args:
        encoder: how the columns of inputs become numbers.
        targets: the columns that are predicted.
        model: the trained `ig.Model`, which sees the encoded columns.
        facts: how it was trained and what it scored, as JSON holds it.
        held_out: after a fit, the rows of the scores and the model that did not see them; files do not keep them.

    Examples:
        >>> import numpy as np, pandas as pd
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame({"x": rng.uniform(0, 3, 40), "side": ["left", "right"] * 20})
        >>> frame["y"] = np.sin(frame.x) + (frame.side == "left")
        >>> model = TableModel.fit(frame, target="y", progress=False)
        >>> model.predict(pd.DataFrame({"x": [1.0], "side": ["left"]}, index=["new"])).round(1)
             y mean  y lower  y upper
        new     1.8      1.8      1.8
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
        """Train a model of some columns of a table by the others.

        A tenth of the labelled rows is held out first, and a model without them is scored on them. The model that is
        returned is then trained on all rows.

        Args:
            frame: a pandas or polars frame or a pyarrow table. Gaps in targets are missing labels.
            target: the column to predict, or several.
            drop: columns that are no inputs.
            categorical: columns that are categories although they hold numbers.
            weight: a column that says how often each row counts.
            likelihood: the kind of target or its likelihood, such as "count" or "gaussian"; by default it is chosen.
            kernel: "matern52", "matern32", "matern12", "squared-exponential" or "rational-quadratic"; by default a
                Matérn 5/2 kernel with one lengthscale per column, unless training finds a better one.
            noise: of numbers: "constant", "varying" with the inputs, or "outliers" for Student-t noise.
            num_layers: the number of GP layers.
            test: labelled rows to score on, instead of rows that are held out.
            split_by: a column of dates, of which the latest are held out, or of groups, which are held out as a whole.
            date_format: the format of dates, as for `datetime.strptime`; by default it is found.
            decimal: the decimal mark of numbers in text.
            seconds: the time that training may take; None for no limit.
            seed: the seed of all random choices.
            progress: whether to show progress bars.
            announce: a function that is called before training with what was decided, such as `print`.

        Returns:
            The model.

        Raises:
            ValueError: if a column is missing or cannot be used as asked.
        """
        began = time.perf_counter()
        table = as_table(frame)
        names, drop, categorical = (_listed(value) for value in (target, drop, categorical))
        asked: dict[str, Any] = {"drop": drop, "categorical": categorical, "weight": [weight] if weight else []}
        check_names(table.column_names, target=names, split_by=[split_by] if split_by else [], **asked)
        settings = Settings(kernel, noise, num_layers, seconds, seed)
        targets = tuple(decide_target(name, column_of(table, name), likelihood, decimal) for name in names)
        columns: dict[str, Any] = {
            "drop": drop,
            "categorical": categorical,
            "date_format": date_format,
            "decimal": decimal,
        }
        job = _Job(table, targets, weight, settings, columns, _no_groups(table, split_by), progress, began)
        labelled = np.flatnonzero(job.labelled)
        if announce is not None:
            announce(_decisions(targets, job.encoder(job.rows(labelled))))
        held: HeldOut | None = None
        if test is None and len(labelled) >= FEWEST:
            rows = held_out(job.labelled, seed, column_of(table, split_by) if split_by else None)
            rest = np.setdiff1d(labelled, rows)
            first = job.train(rest, f"without {len(rows)} held-out rows", FIRST)
            held = HeldOut(first, table.take(rows), table.take(rest))
        model = job.train(labelled, "on all rows", 1.0, None if held is None else held.model)
        if test is not None:
            held = HeldOut(model, as_table(test), table)
        scores = None if held is None else held.model.evaluate(held.rows)
        facts = {"scores": None if scores is None else scores.to_json(), "seconds": time.perf_counter() - began}
        return dataclasses.replace(model, facts=model.facts | facts, held_out=held)

    def predict(self, frame: Any, *, strict: bool = False) -> Any:
        """Predict the targets of rows.

        Args:
            frame: a frame with the columns of the training rows, in any order; others are ignored.
            strict: whether rows that cannot be predicted are an error. Otherwise they get no values, with a warning.

        Returns:
            A frame of the same library with the same index. For each target it has the mean and the ends of a 95 %
            interval, or the most probable class and the probability of each.

        Raises:
            ValueError: if columns are missing, or rows cannot be predicted and `strict` holds.
        """
        columns, notes = self.predictions(frame, strict=strict)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return like(frame, columns)

    def predictions(self, frame: Any, *, strict: bool = False) -> tuple[dict[str, np.ndarray], list[str]]:
        """The columns of predictions and what was noticed on the way.

        Args:
            frame: a frame with the columns of the training rows.
            strict: whether rows that cannot be predicted are an error.

        Returns:
            Values [N] by name, and sentences for the user.

        Raises:
            ValueError: if columns are missing, or rows cannot be predicted and `strict` holds.
        """
        rows = self.encoder.encode(frame)
        notes = list(rows.notes)
        blank = int((~rows.usable).sum())
        if blank and strict:
            raise ValueError(f"{blank} of {len(rows.X)} rows cannot be predicted: {'; '.join(notes)}.")
        if blank:
            notes.append(f"{blank} of {len(rows.X)} rows cannot be predicted and are left blank")
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
        """Score predictions of labelled rows.

        Args:
            frame: rows with inputs and targets; those without any label are left out.

        Returns:
            Scores of each target, beside those of a prediction that does not know the inputs. They print as a table.

        Raises:
            ValueError: if columns are missing, or no row has a label.
        """
        table = as_table(frame)
        check_names(table.column_names, target=[target.name for target in self.targets])
        rows = self.encoder.encode(table)
        labels = [target.labels(column_of(table, target.name)) for target in self.targets]
        used = rows.usable & ~np.isnan(np.stack(labels)).all(axis=0)
        if not used.any():
            raise ValueError("no row has a label to compare with.")
        baselines = [Baseline(tuple(b["frequencies"]), b["mean"], b["std"]) for b in self.facts["baselines"]]
        with jax.enable_x64(True):
            outputs = self._outputs(rows.X[used])
            each = [
                entry
                for target, pred, y, baseline in zip(self.targets, outputs, labels, baselines, strict=True)
                for entry in score(target, pred, y[used], baseline)
            ]
        return Scores(tuple(each), int(used.sum()))

    def report(self, frame: Any, path: str | os.PathLike, *, rows: bool = True) -> None:
        """Write a report of the predictions of labelled rows as one HTML file.

        Args:
            frame: rows with inputs and targets, which the model should not have seen.
            path: the file; an existing one is replaced.
            rows: whether the file may hold data of single rows.

        Raises:
            ImportError: if Plotly is missing.
            OSError: if the file cannot be written.
            ValueError: if columns are missing, or no row has a label.
        """
        self._write_report(frame, path, None, "rows", rows)

    def report_held_out(self, path: str | os.PathLike, *, rows: bool = True) -> None:
        """Write a report of the rows that a fit held out, by the model that did not see them.

        Args:
            path: the file; an existing one is replaced.
            rows: whether the file may hold data of single rows.

        Raises:
            ImportError: if Plotly is missing.
            OSError: if the file cannot be written.
            ValueError: if there are no held-out rows, because they were too few or the model comes from a file.
        """
        held = self.held_out
        if held is None:
            raise ValueError("there are no held-out rows to report on; pass labelled rows to `report`.")
        facts = held.model.facts | {name: self.facts[name] for name in ("command",) if name in self.facts}
        model = dataclasses.replace(held.model, facts=facts)
        model._write_report(held.rows, path, held.training, "rows that were held out of training", rows)

    def _write_report(
        self, frame: Any, path: str | os.PathLike, training: pa.Table | None, held_out: str, rows: bool
    ) -> None:
        from inducing.report.html import write_contents
        from inducing.tables.contents import contents_of

        with jax.enable_x64(True):
            write_contents(path, contents_of(self, frame, training, held_out), rows=rows)

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to a file, which `TableModel.load` reads; `ig.load` reads its `ig.Model`.

        Args:
            path: the file; an existing one is replaced.

        Raises:
            OSError: the file cannot be written.
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
            ValueError: the file is damaged, or holds no model of a table.
            OSError: there is no such file, or it cannot be read.
        """
        notes = io.load_notes(path)
        if not isinstance(notes, Mapping) or notes.get("table") != 1:
            raise ValueError(f"{path} holds no model of a table; write one by `inducing fit` or TableModel.save.")
        try:
            encoder = Encoder.from_json(notes["columns"])
            targets = tuple(Target.from_json(target) for target in notes["targets"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
        with jax.enable_x64(True):
            return cls(encoder, targets, io.load(path), notes["facts"])

    @property
    def scores(self) -> Scores | None:
        """The scores on rows that were held out, or given for the purpose; None if there were too few rows."""
        stored = self.facts.get("scores")
        return None if stored is None else Scores.from_json(stored)

    def __str__(self) -> str:
        return f"{_decisions(self.targets, self.encoder)}\n\n{self.outcome()}"

    def outcome(self) -> str:
        """How training went, the scores, and the parameters of the model.

        Returns:
            Lines of text.
        """
        facts = self.facts
        lines = [f"Trained on {facts['rows']:,} rows in {facts['seconds']:.0f} s: {facts['message']}", ""]
        if (scores := self.scores) is not None:
            lines += [f"Scores on {scores.rows:,} rows that a model did not see:", str(scores), ""]
        with jax.enable_x64(True):
            return "\n".join([*lines, str(summary(self.model))])

    def _outputs(self, X: np.ndarray) -> list[Predictive]:
        """The predictions of each target."""
        pred: Any = self.model.predict(X)
        likelihood: Any = pred.likelihood  # several targets have a PerOutput
        return [pred] if len(self.targets) == 1 else likelihood.each(pred)

    def _far(self, rows: Rows) -> list[str]:
        """Rows outside of the range of the training rows, by more than a tenth of it."""
        low, high = (np.asarray(self.facts["ranges"][end], float) for end in ("low", "high"))
        margin = 0.1 * (high - low)
        beyond = ((low - margin > rows.X) | (high + margin < rows.X)) & rows.usable[:, None]
        names = [name for name, far in zip(self.encoder.names, beyond.any(axis=0), strict=True) if far]
        if not names:
            return []
        listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        return [f"{beyond.any(axis=1).sum()} rows lie far outside of the training rows ({listed}): do not rely on them"]


class HeldOut(NamedTuple):
    """Rows on which a model was scored.

    Attributes:
        model: the model that was scored, which did not see the rows.
        rows: the rows.
        training: the rows that it saw.
    """

    model: TableModel
    rows: pa.Table
    training: pa.Table


@dataclasses.dataclass(frozen=True)
class _Job:
    """What the two fits of a table share."""

    table: pa.Table
    targets: tuple[Target, ...]
    weight: str | None
    settings: Settings
    columns: dict[str, Any]
    groups: tuple[str, ...]
    progress: bool
    began: float

    @property
    def labelled(self) -> np.ndarray:
        """Rows with a label of any target, and a weight."""
        labels = [target.labels(column_of(self.table, target.name)) for target in self.targets]
        return np.asarray(~np.isnan(np.stack(labels)).all(axis=0))

    def rows(self, rows: np.ndarray) -> pa.Table:
        """Some rows of the table."""
        return self.table.take(rows) if len(rows) < len(self.table) else self.table

    def encoder(self, table: pa.Table) -> Encoder:
        """What these rows say of the inputs."""
        names = [target.name for target in self.targets]
        inputs = table.drop_columns([*names, *([self.weight] if self.weight else [])])
        drop = [name for name in (*self.columns["drop"], *self.groups) if name in inputs.column_names]
        columns: dict[str, Any] = self.columns | {"drop": drop}
        return Encoder.decide(inputs, **columns)

    def train(self, rows: np.ndarray, label: str, share: float, first: TableModel | None = None) -> TableModel:
        """A model of some rows, in this share of the time that is left; it begins at `first` if that is possible."""
        table = self.rows(rows)
        encoder = self.encoder(table)
        encoded = encoder.encode(table)
        Y = np.stack([target.labels(column_of(table, target.name)) for target in self.targets], axis=1)
        for target, y in zip(self.targets, Y.T, strict=True):
            if len(np.unique(y[encoded.usable & ~np.isnan(y)])) < 2:
                raise ValueError(f"the target {target.name!r} has no two different values in the rows to train on.")
        weight = None if self.weight is None else self._weights(table, self.weight)[encoded.usable]
        seconds = self.settings.seconds
        if seconds is not None:
            seconds = max(share * (seconds - (time.perf_counter() - self.began)), 1.0)
        X, Y = encoded.X[encoded.usable], Y[encoded.usable]
        with jax.enable_x64(True):
            data, told = Data(X, Y, weight=weight), self.progress and label
            result = None
            if first is not None and first.encoder.names == encoder.names:
                result = train_further(first.model, data, self.settings, seconds, told)
            if result is None:
                result = train_model(encoder, self.targets, data, self.settings, seconds, told)
        return TableModel(encoder, self.targets, result.model, self._facts(table, X, Y, result))

    def _weights(self, table: pa.Table, name: str) -> np.ndarray:
        values = column_of(table, name).cast(pa.float64()).to_numpy(zero_copy_only=False)
        if np.isnan(values).any() or (values < 0).any():
            raise ValueError(f"the weights in column {name!r} must be numbers of 0 or more, without gaps.")
        return values

    def _facts(self, table: pa.Table, X: np.ndarray, Y: np.ndarray, result: FitResult) -> dict[str, Any]:
        taken = len(result.history.bound)  # none if the time was over at once
        steps = np.unique(np.linspace(0, taken - 1, min(taken, 200)).astype(int))
        baselines = [baseline_of(target, y)._asdict() for target, y in zip(self.targets, Y.T, strict=True)]
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
            "baselines": baselines,
            "ranges": {"low": X.min(axis=0).tolist(), "high": X.max(axis=0).tolist()},
            "versions": {name: version(name) for name in ("inducing", "jax", "pyarrow")},
            "sha256": data_hash(table),
            "scores": None,
        }


def _decisions(targets: Sequence[Target], encoder: Encoder) -> str:
    lines = [f"Target {target.name}: {target.described}" for target in targets]
    return "\n".join([*lines, "", "Columns:", *(f"  {line}" for line in encoder.described().splitlines())])


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _no_groups(table: pa.Table, split_by: str | None) -> tuple[str, ...]:
    """A column of groups is no input: new rows are of other groups. A column of dates is one."""
    if split_by is None or pa.types.is_temporal(table.schema.field(split_by).type):
        return ()
    return (split_by,)


def _spread(values: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Values of the usable rows among all rows; the others are None or NaN."""
    if usable.all():
        return values
    out = np.full(len(usable), None, object) if values.dtype == object else np.full(len(usable), np.nan)
    out[usable] = values
    return out


def data_hash(table: pa.Table) -> str:
    """The SHA-256 of a table's content, independent of the file that it came from.

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
    """JSON has no NaN: null takes its place."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
