"""What an HTML report is made from: plain values, which `ig.report.write_html` and `inducing.tables` fill in."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from inducing.likelihoods.predictive import Predictive
from inducing.model import Model
from inducing.training.monitor import History


@dataclasses.dataclass(frozen=True)
class Target:
    """What is predicted.

    Args:
        name: its name.
        classes: the names of the classes in the order of their numbers; empty for numbers.
    """

    name: str
    classes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of the table, and which inputs of the model it became.

    Args:
        name: its name.
        inputs: the numbers of the columns of X that belong to it.
        values: its values in the rows of `Contents.X`, as the user knows them [N]: numbers (NaN where missing),
            `datetime64`, or text.
        decision: what was decided for it, in a few words.
    """

    name: str
    inputs: tuple[int, ...]
    values: np.ndarray
    decision: str = ""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a report shows.

    Rows are those on which the model is judged. They may be many: scores use all of them, plots at most 5,000.

    Args:
        title: the title of the page.
        model: the model, of which relevance and effects are shown.
        targets: what is predicted, one for each column of y.
        columns: the columns of the table. Each column of X belongs to one of them.
        X: the inputs of the rows [N, D].
        y: their labels [N, P], NaN where missing; for classes the numbers of the classes.
        predictions: the predictions for these rows, by a model that was not trained on them. By default those of
            `model`.
        rows: how to name each row [N], such as its number or the index of a frame; by default 1, 2, ….
        training: inputs and labels (X, y) of training rows, or of some of them. They give the baselines, and say where
            predictions are extrapolated. By default baselines are made from y alone.
        held_out: what the rows are, to complete the sentence "It was judged on 80 …".
        facts: what was fitted and how, as pairs of a short name and a value.
        message: what the fit reported.
        history: the objective along the fit, or None.
        left_out: columns that the model does not see, each with the reason.
        warnings: what the reader should know before trusting the model, one sentence each.
        reproduce: how to make the report again, as pairs of a name and a value: command, versions, seed, data hash.
    """

    title: str
    model: Model
    targets: Sequence[Target]
    columns: Sequence[Column]
    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    predictions: Predictive | None = None
    rows: Sequence[Any] | None = None
    training: tuple[np.ndarray, np.ndarray] | None = None
    held_out: str = "rows that it was not trained on"
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    message: str = ""
    history: History | None = None
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()
    reproduce: Mapping[str, str] = dataclasses.field(default_factory=dict)
