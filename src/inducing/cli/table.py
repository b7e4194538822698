"""A table in, predictions out: what `inducing table` does."""

import csv
import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inducing import likelihoods
from inducing.cli.ending import write
from inducing.likelihoods import AbstractLikelihood
from inducing.report.summary import summary
from inducing.scores import calibration_error, crps
from inducing.training.deep_gp import deep_gp
from inducing.training.fit import fit

HELD_OUT = 0.1
MOST = 30  # different words in a column of text
MISSING = {"", "nan", "na", "n/a", "null", "none"}


def run(
    train: str | Path,
    target: str,
    new: str | Path | None = None,
    out: str | Path = "predictions.csv",
    *,
    drop: Sequence[str] = (),
    num_inducing: int = 100,
    num_layers: int = 1,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, float]:
    """Fit the column `target` of a CSV file with a header by its other columns but `drop`; predict rows of `new`.

    Cells are separated by commas, semicolons or tabs, whichever the header has most of; numbers have decimal points.
    An input of text becomes one column of 0 and 1 for each of its words, dates (2020-01-31, also with a time) a number
    of days; inputs may not have gaps. As target, numbers are regressed with Gaussian noise; text, or numbers of which
    there are but two, such as 0 and 1, are classes. An empty target, or one of NA, NaN, null and None, is a missing
    label. Rows that are empty throughout are skipped. `out` gets the columns of `new` and, for each row, the mean and a
    95 % interval, or the probability of each class. Without `new`, a tenth of the rows with a label is held out of the
    fit, and their scores are printed and returned, next to those of a prediction without inputs.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     train, new, out = (pathlib.Path(folder, name) for name in ("train.csv", "new.csv", "out.csv"))
    ...     _ = train.write_text("x,y\\n" + "".join(f"{i / 10},{2 * i}\\n" for i in range(20)))
    ...     _ = new.write_text("x\\n0.55\\n")
    ...     _ = run(train, "y", new, out, num_inducing=5, progress=False)              # doctest: +ELLIPSIS
    ...     print(out.read_text().splitlines()[0])
    Gaussian likelihood...
    x,y mean,y lower,y upper
    """
    table = _read(train)
    names = _inputs(table, target, drop, train)
    kinds = {name: _kind(table[name], name, train) for name in names}
    columns = _encoded(table, kinds, train)
    X = np.stack(list(columns.values()), axis=1)
    y, classes = _labels(table[target], target, train)
    rows, Xnew = ({}, X[:0]) if new is None else _read_new(new, kinds, train, out)
    kept, held = _split(y, seed, hold_out=new is None)
    if len(np.unique(y[kept][~np.isnan(y[kept])])) < 2:  # equal labels need no noise, and the density is unbounded
        raise ValueError(
            f"{train}: the target {target!r} has no two different values in the {len(kept)} rows to fit, of {len(X)} "
            "in all; give more rows."
        )
    likelihood = _likelihood(classes)
    which = f" of {len(classes)} classes" if classes else ""
    print(f"{type(likelihood).__name__} likelihood{which}, inputs {', '.join(columns)}.", flush=True)
    model = deep_gp(
        X[kept],
        likelihood,
        num_layers=num_layers,
        num_outputs=likelihood.num_latents(1),
        num_inducing=min(num_inducing, len(np.unique(X[kept], axis=0))),
    )
    result = fit(model, (X[kept], y[kept]), progress=progress, key=jax.random.key(seed))
    print(f"{result.message}\n{summary(result.model)}")
    if new is None:
        return _report(result.model, X[held], y[held], y[kept], bool(classes))
    _write(out, rows, _columns(result.model, Xnew, target, classes))
    print(f"Predictions for {len(Xnew)} rows in {out}.")
    return {}


def _read_new(
    new: str | Path, kinds: dict[str, Any], train: str | Path, out: str | Path
) -> tuple[dict[str, list[str]], np.ndarray]:
    """The rows to predict, as text and as inputs; a ValueError if a column is missing or `out` is an input file."""
    rows = _read(new)
    missing = [name for name in kinds if name not in rows]
    if missing:
        raise ValueError(
            f"{new} lacks the columns {', '.join(missing)} of {train}; add them, or leave them out (--drop)."
        )
    X = np.stack(list(_encoded(rows, kinds, new).values()), axis=1)
    if Path(out).resolve() in (Path(train).resolve(), Path(new).resolve()):
        raise ValueError(f"the predictions would overwrite {out}; give them a file of their own (--out).")
    _check_writable(Path(out))
    return rows, X


def _split(y: np.ndarray, seed: int, *, hold_out: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows to fit, and a tenth of the rows with a label, held out for scores."""
    labelled = np.random.default_rng(seed).permutation(np.flatnonzero(~np.isnan(y)))
    held = np.sort(labelled[: int(np.ceil(HELD_OUT * len(labelled)))]) if hold_out else labelled[:0]
    return np.setdiff1d(np.arange(len(y)), held), held


def _likelihood(classes: list[str]) -> AbstractLikelihood:
    if not classes:
        return likelihoods.Gaussian()
    return likelihoods.Bernoulli() if len(classes) == 2 else likelihoods.Softmax(len(classes))


def _read(path: str | Path) -> dict[str, list[str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte-order mark
            header = next((line for line in file if line.strip()), "")
            delimiter = max(",;\t", key=re.sub('"[^"]*"', "", header).count)  # names in quotes may hold any
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter)
            lines = [(reader.line_num, line) for line in reader if any(map(str.strip, line))]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a text table in UTF-8 ({error}); save it as a CSV file.") from error
    if len(lines) < 2:
        raise ValueError(f"{path} must have a header and at least one row, got {len(lines)} lines.")
    header = [name.strip() for name in lines[0][1]]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path} has two columns called {twice!r}; rename one of them.")
    for number, line in lines[1:]:
        if len(line) != len(header):
            raise ValueError(f"{path}, line {number}: {len(line)} cells, but the header has {len(header)}.")
    return dict(zip(header, map(list, zip(*(line for _, line in lines[1:]), strict=True)), strict=True))


def _inputs(table: dict[str, list[str]], target: str, drop: Sequence[str], path: str | Path) -> list[str]:
    for name in (target, *drop):
        if name not in table:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(table)}.")
    names = [name for name in table if name not in (target, *drop)]
    if not names:
        raise ValueError(f"{path} has no column beside {', '.join(map(repr, (target, *drop)))} to predict it from.")
    if "" in names:  # such as the row numbers that pandas writes
        raise ValueError(
            f"{path}: column {list(table).index('') + 1} has no name in the header; name it, or leave it out "
            "(--drop '')."
        )
    return names


def _number(cell: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _day(cell: str) -> float | None:
    """A date, with or without a time, as days since 1970; or None."""
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() / 86400


def _kind(cells: list[str], name: str, path: str | Path) -> str | list[str]:
    """What an input holds, by half of its cells or more: "numbers", "dates", or else the list of its words."""
    present = [cell.strip() for cell in cells if cell.strip().lower() not in MISSING]
    if sum(_number(cell.replace(",", "")) is not None for cell in present) >= 0.5 * len(present):
        return "numbers"
    if sum(_day(cell) is not None for cell in present) >= 0.5 * len(present):
        return "dates"
    words = sorted(set(present))
    if len(words) > MOST:
        raise ValueError(
            f"{path}, column {name!r} has {len(words)} different words, such as {words[0]!r}; the most that become "
            f"columns of 0 and 1 are {MOST}. Leave it out (--drop), or write numbers, or dates such as 2020-01-31."
        )
    return words


def _encoded(table: dict[str, list[str]], kinds: dict[str, str | list[str]], path: str | Path) -> dict[str, np.ndarray]:
    """The columns of X by name, one for each word of a text."""
    columns = {}
    for name, kind in kinds.items():
        if isinstance(kind, list):
            cells = [cell.strip() for cell in table[name]]
            _refuse(cells, [None if cell not in kind else 0.0 for cell in cells], name, path, f"words {kind}")
            columns |= {f"{name} = {word}": np.asarray([float(cell == word) for cell in cells]) for word in kind}
        else:
            values = [_number(cell) if kind == "numbers" else _day(cell) for cell in table[name]]
            _refuse(table[name], values, name, path, kind)
            columns[name] = np.asarray(values, float)
    return columns


def _refuse(cells: list[str], values: list[float | None], name: str, path: str | Path, kind: str) -> None:
    """Raise a ValueError that names the first cell without a value, if there is one."""
    bad = next((i for i, value in enumerate(values) if value is None), None)
    if bad is not None:
        what = {"numbers": "no finite number", "dates": "no date such as 2020-01-31"}.get(kind, f"none of the {kind}")
        raise ValueError(
            f"{path}, column {name!r}: {cells[bad]!r} in row {bad + 1} below the header is {what}; {_cure(cells[bad])}."
        )


def _cure(cell: str) -> str:
    """What to do about an input that is not of its column's kind."""
    if cell.strip().lower() in MISSING:
        return "fill in the gap, remove the row, or leave the column out (--drop)"
    if _number(cell.replace(",", "")) is not None:
        return "write numbers with decimal points, without commas"
    return "change that cell, remove the row, or leave the column out (--drop)"


def _labels(cells: list[str], target: str, path: str | Path) -> tuple[np.ndarray, list[str]]:
    """The target as numbers, NaN where missing, and its classes, if it has any."""
    cells = ["" if cell.strip().lower() in MISSING else cell.strip() for cell in cells]
    present = [cell for cell in cells if cell]
    numbers = [_number(cell) for cell in present]
    words = sum(v is None for v in numbers)
    _check_target(cells, present, words, target, path)
    if not words and len(set(numbers)) != 2:
        return np.asarray([float(cell) if cell else np.nan for cell in cells]), []
    cells = cells if words else [np.format_float_positional(float(v), trim="-") if v else v for v in cells]
    classes = sorted(set(cells) - {""})
    _check_classes(classes, len(present), target, path)
    code = {name: float(i) for i, name in enumerate(classes)} | {"": np.nan}
    return np.asarray([code[cell] for cell in cells]), classes


def _check_target(cells: list[str], present: list[str], words: int, target: str, path: str | Path) -> None:
    """Raise a ValueError if all labels are missing, if numbers have commas, or if some numbers are words."""
    if not present:
        raise ValueError(f"{path}: all cells of the target {target!r} are empty.")
    comma = next((cell for cell in present if "," in cell and _number(cell.replace(",", "")) is not None), None)
    if comma is not None:
        raise ValueError(f"{path}: the target {target!r} has {comma!r}; {_cure(comma)}.")
    if 0 < words < 0.5 * len(present):
        word = next(cell for cell in present if _number(cell) is None)
        raise ValueError(
            f"{path}: the target {target!r} has {word!r} in row {cells.index(word) + 1} below the header among "
            "numbers; empty that cell if the label is missing, or write all classes as words."
        )


def _check_classes(classes: list[str], labels: int, target: str, path: str | Path) -> None:
    """Raise a ValueError if there is one class only, or nearly as many classes as labels."""
    if len(classes) < 2:
        raise ValueError(f"{path}: the target {target!r} has the single class {classes[0]!r}; two are needed.")
    if 2 < len(classes) > 0.5 * labels:
        raise ValueError(
            f"{path}: the target {target!r} has {len(classes)} different words in {labels} rows, such as "
            f"{classes[0]!r}; write numbers as digits alone, or give classes with several rows each."
        )


def _names(target: str, classes: list[str]) -> list[str]:
    """The columns of predictions."""
    return [f"{target} = {name}" for name in classes] or [f"{target} {name}" for name in ("mean", "lower", "upper")]


def _columns(model: Any, X: np.ndarray, target: str, classes: list[str]) -> dict[str, np.ndarray]:
    pred = model.predict(X)
    if classes:
        values = np.asarray(pred.probabilities).reshape(len(X), len(classes))
    else:
        values = np.concatenate([pred.mean, *pred.interval(0.95)], axis=1)
    return dict(zip(_names(target, classes), values.T, strict=True))


def _report(model: Any, X: np.ndarray, y: np.ndarray, others: np.ndarray, classes: bool) -> dict[str, float]:
    """Scores of the labels y held out, printed beside what the labels of the other rows alone would predict."""
    pred = model.predict(X)
    scores = {"log-likelihood": float(jnp.mean(pred.log_prob(y[:, None])))}
    others = others[~np.isnan(others)]
    if classes:
        best = np.asarray(pred.probabilities).reshape(len(y), -1).argmax(axis=1)
        scores["accuracy"] = float(np.mean(best == y))
        scores["calibration error"] = calibration_error(pred, y)
        alone = f"accuracy {np.mean(y == np.bincount(others.astype(int)).argmax()):.4g} by the most frequent class"
    else:
        lower, upper = (np.asarray(a)[:, 0] for a in pred.interval(0.95))
        scores["RMSE"] = float(np.sqrt(np.mean((np.asarray(pred.mean)[:, 0] - y) ** 2)))
        scores["CRPS"] = crps(pred, y)
        scores["in 95 % interval"] = float(np.mean((lower <= y) & (y <= upper)))
        alone = f"RMSE {np.sqrt(np.mean((others.mean() - y) ** 2)):.4g} by the mean"
    print(f"Rows held out: {len(y)}; " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
    print(f"Without inputs: {alone} of the other rows.")
    return scores


def _check_writable(path: Path) -> None:
    """What cannot be written is better known before the fit than after it. A new file is not left behind."""
    new = not path.exists()
    open(path, "a").close()
    if new:
        path.unlink()


def _write(path: str | Path, rows: dict[str, list[str]], columns: dict[str, np.ndarray]) -> None:
    table = rows | {name: [f"{v:.15g}" for v in column] for name, column in columns.items()}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    write(path, text.getvalue().encode())
