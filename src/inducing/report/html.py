"""The HTML report: one file that shows what a model is, how good it is, and what it has learned."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from inducing.checks import check_model, checked_data
from inducing.data import Data, as_data
from inducing.kernels import AbstractKernel
from inducing.likelihoods.predictive import Predictive
from inducing.model import Model
from inducing.parameters import as_path
from inducing.report import figures as draw
from inducing.report.columns import as_columns
from inducing.report.contents import Column, Contents, Target, Training
from inducing.report.effects import FEW, Effect, effect_at, grid
from inducing.report.measures import Judged, Measure, below, coverage, judge, measures_of, share_of
from inducing.report.page import escaped, figure, listed, page, plain, table
from inducing.report.relevance import relevance
from inducing.report.summary import summary
from inducing.training.monitor import TIME

MOST_ROWS = 5000  # the most rows that are plotted
MOST_EFFECTS = 6  # the most columns whose effects are shown
TITLES = {"R²": "variance explained (R²)", "in 95 % interval": "inside the 95 % interval"}  # on cards
LEAST = 0.005  # the smallest total effect that is shown
SHOWN = 14  # the most columns in the text of a row
DATES = 60  # points of the effect of dates, which may be periodic
FAR = 0.5  # a row is far if the data say less than this share of what they say about a typical training row


def write_html(
    path: str | os.PathLike,
    model: Any,
    data: Any,
    *,
    names: Any = None,
    training: Any = None,
    result: Any = None,
    targets: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    title: str = "Model report",
    rows: bool = True,
) -> Path:
    """Write a report on a model as one self-contained HTML file.

    The report shows what was fitted, how good the predictions for the given rows are compared with simple baselines,
    whether their uncertainty is calibrated, which columns matter and how, and what to be careful about. Its figures are
    interactive. At most 5,000 rows are plotted, so that the file stays below 6 MB. Writing it needs Plotly
    (`pip install inducing[tables]`).

    Args:
        path: the file to write.
        model: an `ig.Model` with inputs.
        data: labelled rows on which the model was not trained: a pair (X, y), or an `ig.Data`, whose weights say how
            often each row counts in the scores.
        names: the names of the columns of X, as for `ig.report.relevance`.
        training: the training data, or some of them, for the baselines and for warnings about extrapolation.
        result: the `FitResult` of `ig.fit`, for the training curve and the message.
        targets: the names of the columns of y.
        classes: the names of the classes, in the order of their numbers.
        title: the title of the page.
        rows: whether to show single rows. If not, the file contains no data of any single row.

    Returns:
        The path of the file.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if data do not fit the model, or names do not fit the data.
        ImportError: if Plotly is missing.

    Examples:
        >>> import tempfile, inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = ig.report.write_html(f"{folder}/report.html", model, ([0.1, 0.9], [0.5, 0.2]), names=["age"])
        ...     path.stat().st_size < 6e6
        True
    """
    check_model(model)
    test = checked_data(model, data)
    if test.x is None:
        raise ValueError("data must have inputs X to report on; pass (X, y).")
    X, y = np.asarray(test.x), np.where(np.asarray(test.mask), np.asarray(test.y), np.nan)
    P = y.shape[1]
    targets = (["y"] if P == 1 else [f"y[{p}]" for p in range(P)]) if targets is None else list(targets)
    if len(targets) != P:
        raise ValueError(f"targets must name the {P} columns of y, got {targets}.")
    count = model.likelihood.class_count() or 0
    classes = tuple(classes) or tuple(str(c) for c in range(count))
    if len(classes) != count:
        raise ValueError(f"classes must name the {count} classes of the likelihood, got {list(classes)}.")
    shown = as_columns(names, X.shape[1])
    columns = [Column(name, own, _values(X[:, own])) for name, own in shown.items()]
    contents = Contents(
        title, model, [Target(name, classes) for name in targets], columns, X, y, weight=_weight(test),
        training=None if training is None else _training(as_data(training)),
        message="" if result is None else result.message, history=None if result is None else result.history,
    )  # fmt: skip
    return write_contents(path, contents, rows=rows)


def _weight(data: Data) -> np.ndarray | None:
    return None if data.weight is None else np.asarray(data.weight, float)


def _training(data: Data) -> Training:
    return Training(np.asarray(data.x), np.where(np.asarray(data.mask), np.asarray(data.y), np.nan), _weight(data))


def write_contents(path: str | os.PathLike, contents: Contents, *, rows: bool = True) -> Path:
    """Write a report with the given contents.

    Args:
        path: the file to write.
        contents: the contents of the report.
        rows: whether to show single rows.

    Returns:
        The path of the file.

    Raises:
        ImportError: if Plotly is missing.
        TypeError: if `path` is no path.
    """
    path = as_path(path)
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("reports need Plotly: pip install 'inducing[tables]'") from error
    text = page(contents.title, *_Report(contents, rows).parts(), get_plotlyjs())
    path.write_text(text, encoding="utf-8")
    return path


def _values(inputs: np.ndarray) -> np.ndarray:
    """The values of a column: its input, or the number of the largest of several inputs."""
    return inputs[:, 0] if inputs.shape[1] == 1 else np.char.mod("input %d", inputs.argmax(axis=1))


@dataclasses.dataclass
class _Report:
    """The sections of a report, and what they share."""

    contents: Contents
    rows: bool

    def __post_init__(self):
        c = self.contents
        pred: Any = c.model.predict(c.X) if c.predictions is None else c.predictions
        self.pred: Predictive = pred
        judged = [judge(pred, c.y, p, len(target.classes), c.weight) for p, target in enumerate(c.targets)]
        self.judged = [own if len(own.y) else None for own in judged]
        spread = np.linspace(0, len(c.X) - 1, min(len(c.X), MOST_ROWS)).astype(int)
        self.plotted = np.unique(spread)
        self.far = np.zeros(len(c.X), bool)
        self.far[self.plotted] = far_rows(c, self.plotted)
        self.figures: list[list[dict[str, Any]]] = []
        self.heads: list[list[str]] = [[] for _ in self.judged]
        groups = {column.name: column.inputs for column in c.columns}
        self.relevance = relevance(c.model, c.X, groups, num=1024 if c.model.likelihood.class_count() is None else 512)

    def parts(self) -> tuple[str, list[tuple[str, str]], dict[str, Any]]:
        """The body, the headings, and the figures with the texts of the rows."""
        sections: list[tuple[str, str, Callable[[], str]]] = [
            ("overview", "Overview", self.overview),
            ("scores", "How good it is", self.scores),
            ("predictions", "Predictions", self.predictions),
            ("columns-that-matter", "What matters", self.matters),
            ("columns", "Columns", self.columns),
            ("model", "Model and training", self.model),
            ("reproduce", "How to reproduce it", self.reproduce),
        ]
        body, headings = [], []
        for anchor, name, make in sections:
            if html := make():
                headings.append((anchor, name))
                heading = "" if anchor == "overview" else f"<h2>{escaped(name)}</h2>"
                body.append(f'<section id="{anchor}">{heading}{html}</section>')
        return "\n".join(body), headings, {"figures": self.figures, **self.texts()}

    def add(self, made: draw.Figure, heading: str = "") -> str:
        """Store a figure, and return the HTML element that it will fill."""
        self.figures.append([plot for _, plot in made.plots])
        title = f"{heading}: {made.title}" if heading else made.title
        choices = [choice for choice, _ in made.plots]
        return figure(len(self.figures) - 1, title, made.text, made.alt, choices, made.size)

    def overview(self) -> str:
        """What was fitted, the main scores, and warnings."""
        c = self.contents
        known = sum(own is not None for own in self.judged)
        what = listed([f"<b>{escaped(target.name)}</b>" for target in c.targets])
        kinds = "the probability of each class" if all(target.classes for target in c.targets) else (
            "an expected value, and an interval that should contain the true value in 95 of 100 cases"
        )  # fmt: skip
        lead = (
            f"This model predicts {what} from {len(c.columns)} column{'s' * (len(c.columns) != 1)}. It is a Gaussian "
            f"process: for each row it predicts {kinds}. "
        )
        if known:
            lead += f"It was evaluated on {len(c.X):,} {escaped(c.held_out)}."
        if c.weight is not None:
            lead += " Scores count each row as often as its weight says."
        return (
            f'<h1>{escaped(c.title)}</h1><p class="lead">{lead}</p>'
            f'<div class="cards">{"".join(self.cards())}</div>{self.warnings()}'
        )

    def cards(self) -> list[str]:
        """The main scores, and the column that matters most."""
        out = []
        for p, own in enumerate(self.judged):
            if own is None:
                continue
            names, found = measures_of(self.contents, p, own)
            name = self.contents.targets[p].name if len(self.judged) > 1 else ""
            by_name = {m.name: m for m in found}
            keys = ("accuracy", "log-loss") if own.probabilities is not None else (
                "R²", "RMSE", "in 95 % interval"
            )  # fmt: skip
            keys = keys[:2] if len(self.judged) > 1 else keys
            for key in keys:
                m = by_name[key]
                beside = f"{names[1]}: {_number(m.values[1][0], m.digits)}" if m.sign else "should be 95 %"
                title = f"{name} {TITLES.get(key, key)}".strip()
                out.append(_card(_number(m.values[0][0], m.digits), title, beside))
        best = self.relevance.order[0]
        if self.relevance.share[best] > 0:
            share = f"{min(self.relevance.total[best].mean(), 1.0):.0%} of the variance of the predictions"
            out.append(_card(self.relevance.names[best], "most relevant column", share))
        return out

    def warnings(self) -> str:
        """What the reader should know before relying on the model."""
        c = self.contents
        found = [str(warning) for warning in c.warnings]
        if self.far.any():
            n = self.far.sum()
            found.append(
                f"{n:,} of {len(self.plotted):,} rows {'lies' if n == 1 else 'lie'} far from the training data, which "
                "say less than half as much there as about a typical training row. These predictions extrapolate."
            )
        for p, own in enumerate(self.judged):
            name = c.targets[p].name
            if own is None:
                found.append(f"The predictions of {name} were not evaluated, because no row has a label.")
            elif len(own.y) < 50:
                found.append(f"Only {len(own.y)} rows have a label of {name}, so its scores are uncertain.")
            elif own.probabilities is None:
                share, _ = share_of((own.lower <= own.y) & (own.y <= own.upper), own.weight)
                if abs(share - 0.95) > 3 * np.sqrt(0.95 * 0.05 / own.size):
                    said = f"too {'narrow' if share < 0.95 else 'wide'}"
                    found.append(
                        f"{share:.1%} of the 95 % intervals of {name} contain the true value: they are {said}."
                    )
        if TIME in c.message:
            found.append("Training ended at its time limit. With more time, the model may predict better.")
        if c.left_out:
            found.append("The model does not use these columns: " + ", ".join(map(str, c.left_out)) + ".")
        if not found:
            return ""
        items = "".join(f"<li>{escaped(warning)}</li>" for warning in found)
        return f'<div class="warning" role="note"><b>Before you rely on it</b><ul>{items}</ul></div>'

    def scores(self) -> str:
        """Tables of scores."""
        out = [
            "<p>Each score is given with its standard error. A difference of less than about two standard errors may "
            "be due to chance.</p>"
        ]
        for p, own in enumerate(self.judged):
            if own is not None:
                names, found = measures_of(self.contents, p, own)
                n = f"{len(own.y):,} rows"
                caption = f"Scores of {self.contents.targets[p].name} on {n}"
                rows = [[m.name, *(_with_error(*v, m.digits) for v in m.values), _meaning(m)] for m in found]
                out.append(table(["score", *names, "what it measures"], rows, caption, "scores"))
        return "".join(out) if len(out) > 1 else ""

    def predictions(self) -> str:
        """Predictions and labels, calibration and residuals; or confusion and reliability."""
        out = []
        for p, own in enumerate(self.judged):
            if own is None:
                continue
            target = self.contents.targets[p]
            heading = target.name if len(self.judged) > 1 else ""
            if own.probabilities is not None:
                made = [draw.confusion(own, target.classes), draw.reliability(own, target.classes)]
                out.append(_grid(self.add(f, heading) for f in made))
            else:
                places = [self.add(f, heading) for f in self.of_numbers(p, own)]
                out.append(_grid([*places, f'<div class="half">{self.coverage(p, own)}</div>']))
        return "".join(out)

    def of_numbers(self, p: int, own: Judged) -> list[draw.Figure]:
        """The figures of a target of numbers."""
        level = np.linspace(0.0, 1.0, 101)
        rows, shown = own, None
        if self.rows:
            rows = own.rows(np.isin(own.index, self.plotted))
            shown = draw.Shown(np.searchsorted(self.plotted, rows.index), p)
            self.heads[p] = [""] * len(self.plotted)
            for j, place in enumerate(shown.places):
                self.heads[p][place] = self.head(rows, p, j)
        columns = [(column.name, np.asarray(column.values)[rows.index]) for column in self.contents.columns]
        by_relevance = [columns[g] for g in self.relevance.order[:12]]
        far = self.far[rows.index]
        name = self.contents.targets[p].name
        return [
            draw.against(rows, far, name, shown),
            draw.residuals(rows, by_relevance, shown),
            draw.calibration(level, below(self.contents, self.pred, p, level), own.size),
        ]

    def coverage(self, p: int, own: Judged) -> str:
        """How often intervals contain the true value."""
        found = coverage(self.pred, own, p)
        rows = [[f"{level:.0%}", f"{share:.1%} ± {error:.1%}"] for level, share, error in found]
        return table(["interval", "rows inside"], rows, f"Coverage of the intervals of {self.contents.targets[p].name}")

    def head(self, own: Judged, p: int, j: int) -> str:
        """The first lines of the text that appears over row j: label and prediction."""
        name = plain(self.contents.targets[p].name)
        interval = f"{own.lower[j]:.5g} to {own.upper[j]:.5g}"
        return f"{name}: {own.y[j]:.5g}<br>predicted {own.mean[j]:.5g} ({interval})"

    def tail(self, i: int) -> str:
        """The other lines: the values of row i."""
        columns = self.contents.columns
        lines = [f"{plain(column.name)}: {plain(_cell(column.values[i]))}" for column in columns[:SHOWN]]
        return "<br>".join([*lines, "…"] if len(columns) > SHOWN else lines)

    def texts(self) -> dict[str, list[Any]]:
        """The texts of the plotted rows."""
        if not any(self.heads):
            return {"names": [], "heads": self.heads, "tails": []}
        names = self.contents.rows
        return {
            "names": [f"<b>row {plain(i + 1 if names is None else names[i])}</b>" for i in self.plotted],
            "heads": self.heads,
            "tails": [self.tail(int(i)) for i in self.plotted],
        }

    def matters(self) -> str:
        """Relevance and effects."""
        c, found = self.contents, self.relevance
        if not found.share.any():
            return "<p>The predictions are the same for all rows: no column matters.</p>"
        several = len(c.targets) > 1
        made = [
            self.add(draw.relevance(found, min(p, found.total.shape[1] - 1)), target.name if several else "")
            for p, target in enumerate(c.targets)
        ]
        chosen = [g for g in found.order[:MOST_EFFECTS] if found.total[g].max() > LEAST]
        effects = []
        for g in chosen:
            if (curve := self.effect(c.columns[g])) is None:
                continue
            for p, target in enumerate(c.targets):
                if found.total[g, p] > LEAST:
                    effects.append(self.add(draw.effect(curve, p, target.name, target.classes)))
        text = (
            "The average prediction if only this column were changed, in all rows. The band is the model's 95 % "
            "uncertainty about that average. Single rows vary more, and the average includes combinations of values "
            "that never occur."
        )
        return _grid(made) + f"<h3>Effects of the most relevant columns</h3><p>{text}</p>" + _grid(effects)

    def effect(self, column: Column) -> Effect | None:
        """The effect of a column; without single rows, only at values that several rows share."""
        c, own, values = self.contents, list(column.inputs), _for_effects(column.values)
        common = np.arange(len(values)) if self.rows else _frequent(values)
        if len(common) == 0:
            return None
        dates = np.asarray(column.values).dtype.kind == "M"
        points = DATES if dates else 20
        where, settings = grid(values[common], c.X[common][:, own], points)
        found = effect_at(c.model, c.X, column.name, own, where, settings)
        return found._replace(values=_as_dates(found.values)) if dates else found

    def columns(self) -> str:
        """How each column is used."""
        c, found = self.contents, self.relevance
        rows = []
        for g, column in enumerate(c.columns):
            rows.append(
                [column.name, column.decision or _kind(column.values), f"{min(found.total[g].mean(), 1.0):.1%}"]
            )
        rows += [[name, f"left out: {reason}", "–"] for name, reason in c.left_out.items()]
        return table(["column", "how it is used", "total effect"], rows, "All columns of the table")

    def model(self) -> str:
        """Facts about the model, the message of the fit, and the training curve."""
        c = self.contents
        facts = {**_facts(c), **c.facts}
        if c.message:
            facts["Fit"] = c.message
        out = table(["", ""], [[str(k), str(v)] for k, v in facts.items()], "Model and training", "facts")
        if c.history is not None and np.isfinite(np.asarray(c.history.bound, float)).any():
            out += _grid([self.add(draw.training(c.history))])
        return out

    def reproduce(self) -> str:
        """Command, versions, seed and data."""
        rows = [[str(k), str(v)] for k, v in self.contents.reproduce.items()]
        return table(["", ""], rows, "How to make this report again", "facts") if rows else ""


def far_rows(contents: Contents, rows: np.ndarray) -> np.ndarray:
    """Which of some rows are far from the training data.

    The training data reduce the variance of f at a row by the share 1 − Var[f | data] / Var[f]. A row is far if this
    share is less than half of its median over the training rows. Without training rows, the inducing inputs are used
    instead. For models with several layers no row is far.

    Args:
        contents: the contents of the report.
        rows: the numbers of the rows [n].

    Returns:
        A boolean for each row [n].
    """
    model, none = contents.model, np.zeros(len(rows), bool)
    if len(model.layers) > 1 or model.layers[0].as_sparse_gp() is None:
        return none
    near = model.layers[0].inducing_inputs if contents.training is None else contents.training[0]
    if near is None:
        return none
    near = np.asarray(near)[:: -(-len(near) // 1000)]
    prior = eqx.tree_at(lambda m: m.layers[0], model, model.layers[0].at_prior())

    def known(X: np.ndarray) -> np.ndarray:
        left = np.asarray(model.posterior(X).variance, float) / np.asarray(prior.posterior(X).variance, float)
        return 1 - left.mean(axis=1)

    return known(contents.X[rows]) < FAR * np.median(known(near))


def _facts(c: Contents) -> dict[str, str]:
    """Facts about the model itself."""
    model: Model = c.model
    gp = model.layers[0].as_sparse_gp()
    Z = model.layers[0].inducing_inputs
    layers = f"{len(model.layers)} layers" if len(model.layers) > 1 else "sparse Gaussian process"
    facts = {
        "Model": layers
        if gp is None or len(model.layers) > 1
        else f"{layers} with {len(gp.mean[0])} inducing variables"
    }
    if gp is not None:
        facts["Kernel"] = ", ".join(dict.fromkeys(map(_kernel, gp.prior.kernels)))
    facts["Likelihood"] = type(model.likelihood).__name__
    facts["Inputs of the model"] = str(c.X.shape[1] if Z is None else Z.shape[1])
    facts["Trained parameters"] = f"{summary(model).num_trained:,}"
    return facts


def _kernel(kernel: AbstractKernel) -> str:
    """The class of a kernel, and those of the kernels in it."""

    def is_part(node: Any) -> bool:
        return node is not kernel and isinstance(node, AbstractKernel)

    parts = [_kernel(part) for part in jax.tree.leaves(kernel, is_leaf=is_part) if is_part(part)]
    return type(kernel).__name__ + (f"({', '.join(parts)})" if parts else "")


def _frequent(values: np.ndarray) -> np.ndarray:
    """The rows whose value occurs often enough; all rows for numbers with many different values."""
    values = np.asarray(values)
    if values.dtype.kind in "fiub" and len(np.unique(values[np.isfinite(values)])) > FEW:
        return np.arange(len(values))
    _, inverse, count = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    return np.flatnonzero(count[inverse] >= draw.FEWEST)


def _for_effects(values: np.ndarray) -> np.ndarray:
    """Dates as years; other values unchanged."""
    values = np.asarray(values)
    if values.dtype.kind != "M":
        return values
    years = 1970 + values.astype("datetime64[s]").astype(float) / (365.2425 * 86400)
    return np.where(np.isnat(values), np.nan, years)


def _as_dates(years: np.ndarray) -> np.ndarray:
    seconds = np.round((years - 1970) * 365.2425 * 86400)
    return np.datetime64("1970-01-01", "s") + seconds.astype("timedelta64[s]")


def _kind(values: np.ndarray) -> str:
    kind = np.asarray(values).dtype.kind
    return "number" if kind in "fiub" else "date" if kind == "M" else "category"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)[:80]


def _number(value: float, digits: str) -> str:
    if not np.isfinite(value):
        return "–"
    return (f"{value:.1%}" if digits == "percent" else f"{value:.4g}").replace("-", "−")


def _with_error(value: float, error: float, digits: str) -> str:
    """A value and its standard error, to two digits of the error."""
    if not (np.isfinite(value) and np.isfinite(error)):
        return _number(value, digits)
    factor, unit = (100.0, "%") if digits == "percent" else (1.0, "")
    value, error = factor * value, factor * error
    places = int(1 - np.floor(np.log10(error))) if error > 0 else 2
    if not -6 <= places <= 5:
        return f"{value:.4g}{unit} ± {error:.2g}{unit}".replace("-", "−")
    shown = [f"{round(v, places):,.{max(places, 0)}f}{unit}" for v in (value, error)]
    return " ± ".join(shown).replace("-", "−")


def _meaning(m: Measure) -> str:
    return m.meaning + {1: "; higher is better", -1: "; lower is better", 0: ""}[m.sign]


def _card(value: str, name: str, beside: str) -> str:
    return f'<div class="card"><em>{escaped(name)}</em><b>{escaped(value)}</b><span>{escaped(beside)}</span></div>'


def _grid(figures: Any) -> str:
    return f'<div class="figures">{"".join(figures)}</div>'
