"""Scores of predictions on labelled rows, beside what the labels of the training rows alone would predict."""

from typing import Any, NamedTuple

import numpy as np

from inducing.likelihoods import Predictive
from inducing.tables.targets import LEVEL, Target

TINY = 1e-12


class Score(NamedTuple):
    """One score of one target.

    Attributes:
        target: the name of the target.
        name: the name of the score.
        value: the score.
        error: its standard error; NaN where it has none.
        baseline: the same score of a prediction that does not know the inputs; NaN where it has none.
    """

    target: str
    name: str
    value: float
    error: float
    baseline: float


class Scores(NamedTuple):
    """Scores of one or several targets; prints as a table.

    Attributes:
        entries: the scores.
        rows: the number of rows that were scored.

    Examples:
        >>> print(Scores((Score("y", "RMSE", 1.0, 0.1, 2.5),), 40))
        score  value         without inputs
        RMSE       1 ± 0.1              2.5
    """

    entries: tuple[Score, ...]
    rows: int

    def value(self, name: str, target: str | None = None) -> float:
        """The value of a score.

        Args:
            name: such as "RMSE" or "log-loss".
            target: the name of the target; by default the first.

        Returns:
            The value.

        Raises:
            KeyError: if there is no such score.
        """
        found = [e for e in self.entries if e.name == name and target in (None, e.target)]
        if not found:
            raise KeyError(f"{name!r}; there are {', '.join(dict.fromkeys(e.name for e in self.entries))}")
        return found[0].value

    def to_json(self) -> dict[str, Any]:
        """The scores as JSON holds them."""
        return {"rows": self.rows, "entries": [list(entry) for entry in self.entries]}

    @classmethod
    def from_json(cls, stored: Any) -> "Scores":
        """The scores that `to_json` gave."""
        rows: list[Any] = [[np.nan if value is None else value for value in entry] for entry in stored["entries"]]
        return cls(tuple(Score(*row) for row in rows), stored["rows"])

    def __str__(self) -> str:
        several = len({entry.target for entry in self.entries}) > 1
        names = [f"{e.target}, {e.name}" if several else e.name for e in self.entries]
        width = max(map(len, [*names, "score"]))
        lines = [f"{'score':<{width}}  {'value':<12}  without inputs"]
        for name, entry in zip(names, self.entries, strict=True):
            error = "" if np.isnan(entry.error) else f" ± {entry.error:.2g}"
            baseline = "" if np.isnan(entry.baseline) else f"{entry.baseline:.4g}"
            lines.append(f"{name:<{width}}  {entry.value:>5.4g}{error:<10}  {baseline:>11}".rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


class Baseline(NamedTuple):
    """What the labels of the training rows say without inputs: frequencies of classes, or mean and spread.

    Attributes:
        frequencies: of the classes.
        mean: of numbers.
        std: of numbers.
    """

    frequencies: tuple[float, ...]
    mean: float
    std: float


def baseline_of(target: Target, y: np.ndarray) -> Baseline:
    """The baseline of a target.

    Args:
        target: the target.
        y: labels of the training rows [N].

    Returns:
        The baseline.
    """
    y = y[~np.isnan(y)]
    if target.classes:
        return Baseline(tuple((np.bincount(y.astype(int), minlength=len(target.classes)) / len(y)).tolist()), 0.0, 0.0)
    return Baseline((), float(y.mean()), float(y.std()))


def score(target: Target, pred: Predictive, y: np.ndarray, baseline: Baseline) -> list[Score]:
    """Score the predictions of one target.

    Args:
        target: the target.
        pred: its predictions.
        y: labels [N], NaN where missing.
        baseline: what the training labels say alone.

    Returns:
        Scores; the lower the better, but for accuracy, R² and the share in the interval.
    """
    seen = ~np.isnan(y)
    if not seen.any():
        return []
    if target.classes:
        return _of_classes(target, np.asarray(pred.probabilities, float)[seen], y[seen].astype(int), baseline)
    mean, lower, upper = (np.asarray(a, float)[seen, 0] for a in (pred.mean, *pred.interval(LEVEL)))
    log_score, crps = -np.asarray(pred.log_prob(y), float)[seen], np.asarray(pred.crps(y), float)[seen, 0]
    y = y[seen]
    squares, inside = (y - mean) ** 2, ((lower <= y) & (y <= upper)).astype(float)
    rmse, alone = float(np.sqrt(squares.mean())), float(np.mean((y - baseline.mean) ** 2))
    spread = max(baseline.std, TINY)
    name = target.name
    return [
        Score(name, "RMSE", rmse, _error(squares) / max(2 * rmse, TINY), alone**0.5),
        Score(name, "mean absolute error", float(np.abs(y - mean).mean()), _error(np.abs(y - mean)), np.nan),
        Score(name, "R²", float(1 - squares.mean() / max(np.var(y), TINY)), np.nan, 0.0),
        Score(name, "log score", float(log_score.mean()), _error(log_score), _normal(alone, spread)),
        Score(name, "CRPS", float(crps.mean()), _error(crps), np.nan),
        Score(name, "in 95 % interval", float(inside.mean()), _error(inside), np.nan),
    ]


def _normal(squares: float, std: float) -> float:
    """The mean −log N(y | mean, std²) of labels with this mean square around the mean."""
    return float(0.5 * np.log(2 * np.pi * std**2) + 0.5 * squares / std**2)


def _of_classes(target: Target, p: np.ndarray, codes: np.ndarray, baseline: Baseline) -> list[Score]:
    log_loss = -np.log(np.maximum(p[np.arange(len(p)), codes], TINY))
    right = (p.argmax(axis=1) == codes).astype(float)
    brier = np.sum((p - (codes[:, None] == np.arange(p.shape[1]))) ** 2, axis=1)
    frequencies = np.asarray(baseline.frequencies)
    alone = float(np.mean(-np.log(np.maximum(frequencies[codes], TINY))))
    name = target.name
    return [
        Score(name, "log-loss", float(log_loss.mean()), _error(log_loss), alone),
        Score(name, "accuracy", float(right.mean()), _error(right), float(np.mean(codes == frequencies.argmax()))),
        Score(name, "Brier score", float(brier.mean()), _error(brier), np.nan),
    ]


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
