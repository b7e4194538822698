"""Scores of predictions of labelled rows, compared with a prediction that ignores the inputs."""

from typing import Any, NamedTuple

import numpy as np

from inducing.likelihoods import Predictive
from inducing.report.contents import Baseline
from inducing.report.measures import judge, measures
from inducing.tables.targets import Target


class Score(NamedTuple):
    """One score of one target.

    Attributes:
        target: the name of the target.
        name: the name of the score.
        value: the score.
        error: its standard error; NaN if there is none.
        baseline: the same score of a prediction that ignores the inputs.
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
            target: the name of the target; by default the first one.

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
        """The scores as a JSON value."""
        return {"rows": self.rows, "entries": [list(entry) for entry in self.entries]}

    @classmethod
    def from_json(cls, stored: Any) -> "Scores":
        """The scores that `to_json` returned."""
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


def score(
    target: Target, pred: Predictive, y: np.ndarray, baseline: Baseline, weight: np.ndarray | None = None
) -> list[Score]:
    """Score the predictions of one target.

    Args:
        target: the target.
        pred: its predictions.
        y: its labels [N], NaN where missing.
        baseline: the prediction that ignores the inputs.
        weight: how often each row counts [N]; by default, once.

    Returns:
        The scores; none if no row has a label.
    """
    own = judge(pred, y[:, None], 0, len(target.classes), weight)
    if not len(own.y):
        return []
    return [Score(target.name, m.name, *m.values[0], m.values[1][0]) for m in measures(own, baseline)]
