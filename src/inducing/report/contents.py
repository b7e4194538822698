"""The contents of an HTML report: plain values, which `ig.report.write_html` and `inducing.tables` fill in."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from inducing.likelihoods.predictive import Predictive
from inducing.model import Model
from inducing.training.monitor import History


class Baseline(NamedTuple):
    """The prediction of one target that ignores the inputs.

    Attributes:
        frequencies: the frequency of each class; empty for numbers.
        mean: the mean label; numbers only.
        std: the standard deviation of the labels; numbers only.
    """

    frequencies: tuple[float, ...]
    mean: float
    std: float


class Training(NamedTuple):
    """Training rows, or some of them.

    Attributes:
        X: inputs [N, D].
        y: labels [N, P], NaN where missing.
        weight: how often each row counts [N]; None for once.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """A quantity that the model predicts.

    Args:
        name: its name.
        classes: the names of the classes in the order of their numbers; empty for numbers.
    """

    name: str
    classes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of the table, and the model inputs that it became.

    Args:
        name: its name.
        inputs: the numbers of the columns of X that belong to it.
        values: its values in the rows of `Contents.X`, as they stand in the table [N]: numbers (NaN where missing),
            `datetime64`, or text.
        decision: how the column is used, in a few words.
    """

    name: str
    inputs: tuple[int, ...]
    values: np.ndarray
    decision: str = ""


@dataclasses.dataclass(frozen=True)
class Contents:
    """Everything that a report shows.

    The model is evaluated on the given rows. There may be many: scores use all of them, plots at most 5,000.

    Args:
        title: the title of the page.
        model: the model, whose relevance and effects are shown.
        targets: the predicted quantities, one for each column of y.
        columns: the columns of the table. Each column of X belongs to one of them.
        X: the inputs of the rows [N, D].
        y: their labels [N, P], NaN where missing; for classes, the class numbers.
        weight: how often each row counts in the scores [N]; None for once.
        predictions: the predictions for these rows, by a model that was not trained on them. By default those of
            `model`.
        rows: how to name each row [N], such as its number or the index of a frame; by default 1, 2, ….
        training: training rows, or some of them. They are used for the baselines, and to detect extrapolation.
        baselines: for each target, the prediction that ignores the inputs. By default, it is computed from the training
            rows, or without those from y.
        held_out: a description of the rows that completes the sentence "It was evaluated on 80 …".
        facts: what was fitted and how, as pairs of a short name and a value.
        message: the message of the fit.
        history: the objective during the fit, or None.
        left_out: columns that the model does not use, each with the reason.
        warnings: what the reader should know before trusting the model, one sentence each.
        reproduce: how to make the report again, as pairs of a name and a value: command, versions, seed, data hash.
    """

    title: str
    model: Model
    targets: Sequence[Target]
    columns: Sequence[Column]
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    weight: Float[np.ndarray, " N"] | None = None
    predictions: Predictive | None = None
    rows: Sequence[Any] | None = None
    training: Training | None = None
    baselines: Sequence[Baseline] = ()
    held_out: str = "rows that it was not trained on"
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    message: str = ""
    history: History | None = None
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()
    reproduce: Mapping[str, str] = dataclasses.field(default_factory=dict)
