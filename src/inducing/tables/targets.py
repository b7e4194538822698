"""Targets: the kind of each predicted column determines its likelihood."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from inducing import likelihoods
from inducing.likelihoods import AbstractLikelihood, Predictive
from inducing.tables.columns import codes_of, numbers_of, texts_of
from inducing.tables.deciding import MOSTLY, Options, decide

GRADES = 10  # the largest grade
SKEWED, WIDE = 1.0, 10.0  # the least skewness and the least ratio of largest to smallest of positive numbers
FEW = 30.0  # the largest median of counts
LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Target:
    """A column to predict.

    Args:
        name: the name of the column.
        kind: a key of `KINDS`, which determines the likelihood.
        reason: why this kind was chosen; empty for plain numbers.
        classes: the classes in their order, for kinds that have classes.
        decimal: the decimal mark of numbers that are stored as text.
    """

    name: str
    kind: str
    reason: str
    classes: tuple[str, ...] = ()
    decimal: str = "."

    @property
    def described(self) -> str:
        """The kind, the likelihood and the reason, in one line."""
        which = f": {', '.join(self.classes[:8])}{', …' if len(self.classes) > 8 else ''}" if self.classes else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{KINDS[self.kind].words}{which}{reason}; likelihood: {type(self.likelihood(np.ones(1))).__name__}"

    def likelihood(self, y: np.ndarray) -> AbstractLikelihood:
        """The likelihood before training.

        Args:
            y: labels [N], NaN where missing.

        Returns:
            One of `ig.likelihoods`.
        """
        return KINDS[self.kind].likelihood(self, y)

    @property
    def is_continuous(self) -> bool:
        """Whether the labels are real numbers, and not classes or counts."""
        return KINDS[self.kind].is_continuous

    def labels(self, cells: pa.Array) -> np.ndarray:
        """Labels [N] as numbers, NaN where missing; classes are numbered from 0.

        Args:
            cells: the column, of any type.

        Returns:
            The labels.

        Raises:
            ValueError: if a cell is not of the target's kind, or has an unknown class.
        """
        if self.classes:
            codes, gaps = codes_of(cells, self.classes)
            if (codes == len(self.classes)).any():
                row = int(np.argmax(codes == len(self.classes)))
                raise ValueError(
                    f"the target {self.name!r} has {cells[row].as_py()!r} in row {row + 1}, which is not one of the "
                    f"classes {', '.join(self.classes)}."
                )
            return np.where(gaps, np.nan, codes)
        values, wrong = numbers_of(cells, self.decimal)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"the target {self.name!r} has {cells[row].as_py()!r} in row {row + 1}, which is not a number; if it "
                "marks a missing label, empty the cell, or pass the word as na (on the command line, --na)."
            )
        return values

    def prediction(self, pred: Predictive) -> dict[str, np.ndarray]:
        """The columns of predictions: mean and interval, or the most probable class and the probability of each class.

        Args:
            pred: predictions of this target alone.

        Returns:
            Values [N] by name.
        """
        if self.classes:
            p = np.asarray(pred.probabilities, float)
            best = np.array(self.classes, object)[p.argmax(axis=1)]
            return {self.columns[0]: best} | dict(zip(self.columns[1:], p.T, strict=True))
        lower, upper = pred.interval(LEVEL)
        values = (np.asarray(a, float)[:, 0] for a in (pred.mean, lower, upper))
        return dict(zip(self.columns, values, strict=True))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of predictions."""
        if self.classes:
            return (f"{self.name} predicted", *(f"{self.name} = {value}" for value in self.classes))
        return (f"{self.name} mean", f"{self.name} lower", f"{self.name} upper")

    def to_json(self) -> dict[str, Any]:
        """The target as a JSON value."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Target":
        """The target that `to_json` returned."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"it does not describe a target: {stored}") from error


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of target: a description, its likelihood, and whether its labels are continuous, classes, or counts."""

    words: str
    likelihood: Callable[[Target, np.ndarray], AbstractLikelihood]
    has_classes: bool = False
    is_continuous: bool = False


def _cutpoints(target: Target, y: np.ndarray) -> AbstractLikelihood:
    return likelihoods.Ordinal(jnp.linspace(-1.5, 1.5, len(target.classes) - 1))


KINDS: dict[str, Kind] = {
    "number": Kind("numbers", lambda target, y: likelihoods.Gaussian(), is_continuous=True),
    "robust": Kind("numbers with outliers", lambda target, y: likelihoods.StudentT(), is_continuous=True),
    "positive": Kind("positive numbers", lambda target, y: likelihoods.LogNormal(), is_continuous=True),
    "share": Kind("shares between 0 and 1", lambda target, y: likelihoods.Beta(), is_continuous=True),
    "count": Kind("counts", lambda target, y: likelihoods.NegativeBinomial()),
    "two values": Kind("two values", lambda target, y: likelihoods.Bernoulli(), True),
    "classes": Kind("classes", lambda target, y: likelihoods.Softmax(len(target.classes)), True),
    "grades": Kind("ordered grades", _cutpoints, True),
}
NAMES = {  # names of likelihoods, which the user may give instead of a kind
    "gaussian": "number",
    "student": "robust",
    "lognormal": "positive",
    "beta": "share",
    "counts": "count",
    "poisson": "count",
    "bernoulli": "two values",
    "softmax": "classes",
    "ordinal": "grades",
}


def decide_target(
    name: str,
    cells: pa.Array,
    likelihood: str | None = None,
    decimal: str = ".",
    categorical: bool = False,
    order: tuple[str, ...] = (),
) -> Target:
    """Decide what kind of target a column is.

    Args:
        name: the name of the column.
        cells: its cells; gaps are missing labels.
        likelihood: the kind or the likelihood, if the user gives it.
        decimal: the decimal mark of numbers that are stored as text.
        categorical: whether numbers are classes.
        order: the values in their order, if the type of the column says it.

    Returns:
        The target.

    Raises:
        ValueError: if the column cannot be predicted, or not by this likelihood.

    Examples:
        >>> decide_target("y", pa.array(["no", "yes", "no"])).described
        'two values: no, yes (it has two different values); likelihood: Bernoulli'
    """
    texts, indices = texts_of(cells)
    if len(texts) < 2:
        said = f"has the same value {texts[0]!r} in every row" if texts else "is empty"
        raise ValueError(f"the target {name!r} {said}; there is nothing to learn.")
    if pa.types.is_date(cells.type) or pa.types.is_timestamp(cells.type) or pa.types.is_nested(cells.type):
        raise ValueError(
            f"the target {name!r} has values of type {cells.type}; predict a number instead, such as days since a date."
        )
    values, wrong = numbers_of(cells, decimal)
    present = values[~np.isnan(values)]
    if likelihood is not None:
        return _asked(name, texts, present, wrong, likelihood, decimal, order)
    if len(texts) == 2:
        return Target(name, "two values", "it has two different values", _in_order(texts))
    if order:
        return Target(name, "grades", "its type is ordered", order)
    if categorical:
        return Target(name, "classes", "it is categorical", _in_order(texts))
    seen = int(np.sum(indices >= 0))
    decide(name, cells, Options(decimal=decimal))  # refuses several currencies and other decimal marks
    if wrong.sum() > (1 - MOSTLY) * seen:
        if len(texts) > 0.5 * seen:
            raise ValueError(
                f"the target {name!r} has {len(texts):,} different texts in {seen:,} rows, such as {texts[0]!r}; it "
                "must hold numbers, or classes with several rows each."
            )
        return Target(name, "classes", "its values are words", _in_order(texts))
    if wrong.any():
        Target(name, "number", "", decimal=decimal).labels(cells)  # names the word among the numbers
    kind, reason = _kind_of_numbers(present)
    classes = _in_order(texts) if KINDS[kind].has_classes else ()
    return Target(name, kind, reason, classes, decimal)


def _kind_of_numbers(y: np.ndarray) -> tuple[str, str]:
    least, most = y.min(), y.max()
    if (y == np.round(y)).all():
        num = len(np.unique(y))
        if least >= 1 and most <= GRADES and most - least == num - 1:
            return "grades", f"whole numbers from {least:g} to {most:g}"
        if 0 <= least <= 3 and np.median(y) <= FEW:
            return "count", "whole numbers of at least 0, most of them small"
    elif least > 0 and most < 1:
        return "share", "numbers between 0 and 1"
    if least > 0 and most > WIDE * least:
        plain, logs = abs(_skewness(y)), abs(_skewness(np.log(y)))
        if plain > SKEWED and logs < 0.5 * plain:
            return "positive", f"skewness {plain:.2g}, of their logarithms {logs:.2g}"
    return "number", ""


def _asked(
    name: str,
    texts: list[str],
    present: np.ndarray,
    wrong: np.ndarray,
    likelihood: str,
    decimal: str,
    order: tuple[str, ...],
) -> Target:
    kind = NAMES.get(likelihood.lower(), likelihood.lower())
    if kind not in KINDS:
        raise ValueError(f"likelihood {likelihood!r} is unknown; choose one of {', '.join((*KINDS, *NAMES))}.")
    if KINDS[kind].has_classes:
        if kind == "two values" and len(texts) != 2:
            raise ValueError(
                f"the target {name!r} has {len(texts):,} different values, but likelihood {likelihood!r} needs two."
            )
        if kind == "grades" and wrong.any() and not order:
            raise ValueError(
                f"the target {name!r} has words such as {texts[0]!r}, whose order is not known, but likelihood "
                f"{likelihood!r} needs it; replace them by numbers in their order, such as 1, 2 and 3."
            )
        return Target(name, kind, "as requested", order or _in_order(texts))
    if wrong.any():
        raise ValueError(f"the target {name!r} has values that are not numbers, which likelihood {likelihood!r} needs.")
    target = Target(name, kind, "as requested", (), decimal)
    target.likelihood(present).check(present[:, None])
    return target


def _in_order(texts: list[str]) -> tuple[str, ...]:
    """Numbers sorted by value, words alphabetically."""
    try:
        return tuple(sorted(texts, key=float))
    except ValueError:
        return tuple(sorted(texts))


def _skewness(y: np.ndarray) -> float:
    """E (y − E y)³ / σ³."""
    return float(np.mean((y - y.mean()) ** 3) / y.std() ** 3)
