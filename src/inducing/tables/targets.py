"""What is predicted: the kind of each target decides the likelihood."""

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

GRADES, SKEWED, WIDE, FEW = 10, 1.0, 10.0, 30.0  # most grades; what makes positive numbers; the median of counts
LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Target:
    """A column to predict.

    Args:
        name: the name of the column.
        kind: one of `KINDS`, which decides the likelihood.
        reason: why it was taken for this kind.
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
        return f"{KINDS[self.kind].words}{which} ({self.reason}) → {type(self.likelihood(np.ones(1))).__name__}"

    def likelihood(self, y: np.ndarray) -> AbstractLikelihood:
        """The likelihood before training.

        Args:
            y: labels [N], NaN where missing.

        Returns:
            One of `ig.likelihoods`.
        """
        return KINDS[self.kind].likelihood(self, y)

    def labels(self, cells: pa.Array) -> np.ndarray:
        """Labels [N] as the likelihood counts them, NaN where missing.

        Args:
            cells: the column, of any type.

        Returns:
            The labels.

        Raises:
            ValueError: if a cell is not of the target's kind, or a class is unknown.
        """
        if self.classes:
            codes, gaps = codes_of(cells, self.classes)
            if (codes == len(self.classes)).any():
                row = int(np.argmax(codes == len(self.classes)))
                raise ValueError(
                    f"the target {self.name!r} has {cells[row].as_py()!r} in row {row + 1}, which is none of the "
                    f"classes {', '.join(self.classes)}."
                )
            return np.where(gaps, np.nan, codes)
        values, wrong = numbers_of(cells, self.decimal)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"the target {self.name!r} has {cells[row].as_py()!r} in row {row + 1} among numbers; empty that cell "
                "if the label is missing, or pass the word as a missing value (na, --na)."
            )
        return values

    def prediction(self, pred: Predictive) -> dict[str, np.ndarray]:
        """The columns of predictions: mean and interval, or the best class and the probability of each.

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
        """The target as JSON holds it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Target":
        """The target that `to_json` gave."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"it holds no description of a target: {stored}") from error


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of target: what users call it, and its likelihood."""

    words: str
    likelihood: Callable[[Target, np.ndarray], AbstractLikelihood]
    has_classes: bool = False


def _cutpoints(target: Target, y: np.ndarray) -> AbstractLikelihood:
    return likelihoods.Ordinal(jnp.linspace(-1.5, 1.5, len(target.classes) - 1))


KINDS: dict[str, Kind] = {
    "number": Kind("numbers", lambda target, y: likelihoods.Gaussian()),
    "robust": Kind("numbers with outliers", lambda target, y: likelihoods.StudentT()),
    "positive": Kind("positive numbers", lambda target, y: likelihoods.LogNormal()),
    "share": Kind("shares between 0 and 1", lambda target, y: likelihoods.Beta()),
    "count": Kind("counts", lambda target, y: likelihoods.NegativeBinomial()),
    "two values": Kind("two values", lambda target, y: likelihoods.Bernoulli(), True),
    "classes": Kind("classes", lambda target, y: likelihoods.Softmax(len(target.classes)), True),
    "grades": Kind("ordered grades", _cutpoints, True),
}
NAMES = {  # what `likelihood` may be, besides the kinds themselves
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


def decide_target(name: str, cells: pa.Array, likelihood: str | None = None, decimal: str = ".") -> Target:
    """Decide what kind of target a column is.

    Args:
        name: the name of the column.
        cells: its cells; gaps are missing labels.
        likelihood: the kind or the likelihood, if the user says.
        decimal: the decimal mark of numbers that are stored as text.

    Returns:
        The target.

    Raises:
        ValueError: if the column cannot be predicted, or not with this likelihood.

    Examples:
        >>> decide_target("y", pa.array(["no", "yes", "no"])).described
        'two values: no, yes (it has two different values) → Bernoulli'
    """
    texts, indices = texts_of(cells)
    if len(texts) < 2:
        said = f"has the same value {texts[0]!r} in every row" if texts else "has no values"
        raise ValueError(f"the target {name!r} {said}; there is nothing to learn.")
    if pa.types.is_date(cells.type) or pa.types.is_timestamp(cells.type) or pa.types.is_nested(cells.type):
        raise ValueError(
            f"the target {name!r} holds values of type {cells.type}; predict a number, such as days since some date."
        )
    values, wrong = numbers_of(cells, decimal)
    present = values[~np.isnan(values)]
    if likelihood is not None:
        return _asked(name, texts, present, wrong, likelihood, decimal)
    if len(texts) == 2:
        return Target(name, "two values", "it has two different values", _in_order(texts))
    seen = int(np.sum(indices >= 0))
    decide(name, cells, Options(decimal=decimal))  # refuses several currencies and other decimal marks
    if wrong.sum() > (1 - MOSTLY) * seen:
        if len(texts) > 0.5 * seen:
            raise ValueError(
                f"the target {name!r} has {len(texts)} different words in {seen} rows, such as {texts[0]!r}; write "
                "numbers as digits, or give classes with several rows each."
            )
        return Target(name, "classes", "it holds words", _in_order(texts))
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
            return "count", "whole numbers from 0 on, most of them small"
    elif least > 0 and most < 1:
        return "share", "numbers between 0 and 1"
    if least > 0 and most > WIDE * least:
        plain, logs = abs(_skewness(y)), abs(_skewness(np.log(y)))
        if plain > SKEWED and logs < 0.5 * plain:
            return "positive", f"positive and skewed: skewness {plain:.2g}, of logarithms {logs:.2g}"
    return "number", "numbers"


def _asked(
    name: str, texts: list[str], present: np.ndarray, wrong: np.ndarray, likelihood: str, decimal: str
) -> Target:
    kind = NAMES.get(likelihood.lower(), likelihood.lower())
    if kind not in KINDS:
        raise ValueError(f"likelihood {likelihood!r} is unknown; choose one of {', '.join((*KINDS, *NAMES))}.")
    if KINDS[kind].has_classes:
        if kind == "two values" and len(texts) != 2:
            raise ValueError(f"the target {name!r} has {len(texts)} different values, not two.")
        return Target(name, kind, "as you asked", _in_order(texts))
    if wrong.any():
        raise ValueError(f"the target {name!r} holds words, which {likelihood!r} does not allow.")
    target = Target(name, kind, "as you asked", (), decimal)
    target.likelihood(present).check(present[:, None])
    return target


def _in_order(texts: list[str]) -> tuple[str, ...]:
    """Numbers in their order, words in the order of the alphabet."""
    try:
        return tuple(sorted(texts, key=float))
    except ValueError:
        return tuple(sorted(texts))


def _skewness(y: np.ndarray) -> float:
    """E (y − E y)³ / σ³."""
    return float(np.mean((y - y.mean()) ** 3) / y.std() ** 3)
