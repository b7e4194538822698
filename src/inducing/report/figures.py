"""The figures of an HTML report, as Plotly's JSON. The page replaces colours such as "@blue" by those of its theme."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from inducing.report.effects import Effect
from inducing.report.measures import Judged
from inducing.report.page import plain
from inducing.report.relevance import Relevance
from inducing.training.monitor import History

Trace = dict[str, Any]
COLOURS = ("@blue", "@orange", "@green", "@purple", "@red", "@sky", "@grey")
FEWEST = 5  # the fewest rows of a group that is shown in a report without single rows
MOST_BARS = 400  # the most rows whose intervals are drawn one by one


class Figure(NamedTuple):
    """One figure.

    Attributes:
        title: its heading.
        text: what it shows and how to read it.
        alt: a description for readers who cannot see it.
        plots: one plot, or several from which the reader selects one: pairs of a label and Plotly's data and layout.
        size: "wide", "half" or "small".
    """

    title: str
    text: str
    alt: str
    plots: Sequence[tuple[str, dict[str, Any]]]
    size: str = "half"


def plot(traces: Sequence[Trace], x: str = "", y: str = "", **layout: Any) -> dict[str, Any]:
    """Traces and axis titles in the form that Plotly expects.

    Examples:
        >>> plot([], "<x>", "y")["layout"]["xaxis"]
        {'title': {'text': '&lt;x&gt;'}}
    """
    for axis, title in (("xaxis", x), ("yaxis", y)):
        layout[axis] = {**layout.get(axis, {}), "title": {"text": plain(title)}}
    return {"data": list(traces), "layout": layout}


def numbers(values: Any, digits: int = 5) -> list[Any]:
    """Numbers for JSON, rounded to a number of significant digits; None for values that are not finite.

    Examples:
        >>> numbers([1.23456789, float("nan")])
        [1.2346, None]
    """
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in np.asarray(values, float).ravel()]


def line(x: Any, y: Any, name: str, colour: str, **more: Any) -> Trace:
    """A line."""
    return {
        "type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "name": plain(name),
        "line": {"color": colour, "width": 2}, **more,
    }  # fmt: skip


def band(x: Any, lower: Any, upper: Any, name: str, colour: str) -> Trace:
    """A filled band."""
    x, around = np.asarray(x, float), np.concatenate([np.asarray(upper, float), np.asarray(lower, float)[::-1]])
    return {
        "type": "scatter", "mode": "lines", "x": numbers(np.concatenate([x, x[::-1]])), "y": numbers(around),
        "fill": "toself", "fillcolor": colour + "-soft", "line": {"width": 0}, "name": plain(name),
        "hoverinfo": "skip",
    }  # fmt: skip


class Shown(NamedTuple):
    """The rows that points represent. The page shows the text of a row when the pointer is over its point.

    Attributes:
        places: the positions [n] of the rows among the plotted rows.
        target: the number of the target.
    """

    places: np.ndarray
    target: int


def dots(x: Any, y: Any, shown: Shown, name: str, colour: str, symbol: str = "circle") -> Trace:
    """A point for each row."""
    many = len(shown.places) > 500
    return {
        "type": "scatter", "mode": "markers", "x": numbers(x), "y": numbers(y), "hoverinfo": "text",
        "rows": shown.places.tolist(), "target": shown.target, "name": plain(name),
        "marker": {"color": colour, "size": 4 if many else 7, "opacity": 0.5 if many else 0.8, "symbol": symbol},
    }  # fmt: skip


def against(own: Judged, far: np.ndarray, name: str, shown: Shown | None) -> Figure:
    """Observed against predicted values, with intervals; without `shown`, the number of rows in each cell of a grid."""
    low, high = float(min(own.mean.min(), own.y.min())), float(max(own.mean.max(), own.y.max()))
    diagonal = line([low, high], [low, high], "perfect prediction", "@grey", hoverinfo="skip")
    diagonal["line"] |= {"dash": "dot"}
    inside = (own.lower <= own.y) & (own.y <= own.upper)
    traces: list[Trace] = []
    if shown is None:
        return _against_in_cells(own, name)
    if len(own.y) <= MOST_BARS:
        gap = np.full(len(own.y), np.nan)
        bars = line(np.stack([own.mean, own.mean, gap], 1), np.stack([own.lower, own.upper, gap], 1),
                    "95 % interval", "@grey-soft", hoverinfo="skip")  # fmt: skip
        traces.append(bars)
    else:
        order = np.argsort(own.mean)
        parts = [part for part in np.array_split(order, 40) if len(part)]
        at, lo, hi = ([np.median(v[part]) for part in parts] for v in (own.mean, own.lower, own.upper))
        traces.append(band(at, lo, hi, "typical 95 % interval", "@grey"))
    for mask, label, colour, symbol in (
        (inside & ~far, "inside the interval", "@blue", "circle"),
        (~inside & ~far, "outside", "@red", "diamond"),
        (far, "far from the training data", "@orange", "cross"),
    ):
        if mask.any():
            some = shown._replace(places=shown.places[mask])
            traces.append(dots(own.mean[mask], own.y[mask], some, label, colour, symbol))
    alt = (
        f"Scatter plot of {len(own.y)} rows, observed {name} against predicted. {np.mean(inside):.0%} of them lie "
        f"inside their 95 % interval. The correlation is {_correlation(own.mean, own.y):.2f}."
    )
    text = (
        "Each point is one row. The closer it is to the diagonal, the better. Point at it, or tap it, to see the row."
    )
    return Figure("Predicted and observed", text, alt,
                  [("", plot([*traces, diagonal], f"predicted {name}", f"observed {name}"))], "wide")  # fmt: skip


def _against_in_cells(own: Judged, name: str) -> Figure:
    """The number of rows in each cell of a grid, without cells of few rows."""
    ends = [np.quantile(np.concatenate([own.mean, own.y]), level) for level in (0.01, 0.99)]  # extremes are rows
    diagonal = line(ends, ends, "perfect prediction", "@grey", hoverinfo="skip")
    diagonal["line"] |= {"dash": "dot"}
    edges = np.linspace(*ends, 26)
    count, _, _ = np.histogram2d(own.y, own.mean, [edges, edges])
    middle = numbers((edges[1:] + edges[:-1]) / 2)
    shown = [[int(c) if c >= FEWEST else None for c in row] for row in count]
    heat = {"type": "heatmap", "x": middle, "y": middle, "z": shown, "colorscale": "@scale", "hoverongaps": False,
            "colorbar": {"title": {"text": "rows"}},
            "hovertemplate": "predicted %{x}<br>observed %{y}<br>%{z} rows<extra></extra>"}  # fmt: skip
    hidden = int(count[(count > 0) & (count < FEWEST)].sum())
    text = f"The number of rows in each cell. Cells with fewer than {FEWEST} rows ({hidden} rows in all) are left out."
    return Figure("Predicted and observed", text, f"Heat map. {text}",
                  [("", plot([heat, diagonal], f"predicted {name}", f"observed {name}"))], "wide")  # fmt: skip


def calibration(level: np.ndarray, share: np.ndarray, n: float) -> Figure:
    """The share of labels below each predicted quantile."""
    spread = 1.96 * np.sqrt(level * (1 - level) / n)
    ideal = line([0, 1], [0, 1], "perfect prediction", "@grey", hoverinfo="skip")
    ideal["line"] |= {"dash": "dot"}
    traces = [
        band(level, level - spread, level + spread, "expected by chance (95 %)", "@grey"), ideal,
        line(level, share, "observed", "@blue",
             hovertemplate="predicted %{x:.0%}<br>observed %{y:.0%}<extra></extra>"),
    ]  # fmt: skip
    worst = int(np.argmax(np.abs(share - level)))
    alt = (
        f"Calibration curve. The largest gap is {abs(share[worst] - level[worst]):.0%}, at a predicted probability of "
        f"{level[worst]:.0%}."
    )
    text = (
        "The share of true values below each predicted quantile. If the predicted uncertainty is right, the curve lies "
        "on the diagonal, up to chance (the grey band)."
    )
    axis = {"range": [0, 1], "tickformat": ".0%"}
    layout = plot(traces, "predicted probability", "share of rows below", xaxis=axis, yaxis=axis)
    return Figure("Calibration", text, alt, [("", layout)])


def residuals(own: Judged, columns: Sequence[tuple[str, np.ndarray]], shown: Shown | None) -> Figure:
    """Observed minus predicted values against a column that the reader selects."""
    error = own.y - own.mean
    plots = []
    for name, values in [("prediction", own.mean), *columns]:
        traces: list[Trace] = []
        if values.dtype.kind in "fiub":
            if shown is not None:
                traces.append(dots(values, error, shown, "rows", "@blue"))
            x, middle, half = _bins(values.astype(float), error)
            style = {"mode": "lines+markers", "marker": {"color": "@orange", "size": 7}}
            bars = {"type": "data", "array": numbers(2 * half), "color": "@orange"}
            traces.append(line(x, middle, "average ± 2 standard errors", "@orange", error_y=bars, **style))
        elif values.dtype.kind == "M":
            stamps = values.astype("datetime64[s]").astype(float)
            stamps[np.isnat(values)] = np.nan
            when = [str(v) if not np.isnat(v) else None for v in values.astype("datetime64[s]")]
            if shown is not None:
                traces.append({**dots(stamps, error, shown, "rows", "@blue"), "x": when})
            x, middle, half = _bins(stamps, error)
            stops = [str(v) for v in x.astype("datetime64[s]")]
            bars = {"type": "data", "array": numbers(2 * half), "color": "@orange"}
            traces.append({**line(x, middle, "average ± 2 standard errors", "@orange", error_y=bars), "x": stops})
        else:
            traces += _boxes(values.astype(str), error, shown)
        plots.append((name, plot(traces, name, "observed − predicted")))
    alt = f"Residuals by column. Their mean is {error.mean():.3g}, their standard deviation {error.std():.3g}."
    text = "What the model misses. The averages should be close to 0 everywhere; a trend shows that it could do better."
    return Figure("Residuals by column", text, alt, plots, "wide")


def _bins(values: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean values, averages and standard errors in bins of about equally many rows."""
    seen = np.flatnonzero(np.isfinite(values))
    order = seen[np.argsort(values[seen], kind="stable")]
    parts = [part for part in np.array_split(order, min(10, max(1, len(order) // 8))) if len(part) >= FEWEST]
    means = np.array([[values[part].mean(), error[part].mean(), _standard_error(error[part])] for part in parts])
    return tuple(means.reshape(-1, 3).T)  # ty: ignore[invalid-return-type]


def _boxes(values: np.ndarray, error: np.ndarray, shown: Shown | None) -> list[Trace]:
    """The average of each category, and its rows."""
    labels, count = np.unique(values, return_counts=True)
    labels = labels[np.argsort(-count, kind="stable")][:20]
    traces: list[Trace] = []
    kept = [label for label in labels if shown or np.sum(values == label) >= FEWEST]
    names = [plain(str(label)) or "(empty)" for label in kept]
    if shown is not None:
        own = np.flatnonzero(np.isin(values, kept))
        by_label = {str(label): name for label, name in zip(kept, names, strict=True)}
        points = dots(np.zeros(len(own)), error[own], shown._replace(places=shown.places[own]), "rows", "@blue")
        traces.append({**points, "x": [by_label[str(values[i])] for i in own]})
    groups = [error[values == label] for label in kept]
    half = [_standard_error(group) for group in groups]
    average = line([], [g.mean() for g in groups], "average ± 2 standard errors", "@orange", mode="markers",
                   marker={"color": "@orange", "size": 9})  # fmt: skip
    bars = {"type": "data", "array": numbers(2 * np.array(half)), "color": "@orange"}
    traces.append({**average, "x": names, "error_y": bars})
    return traces


def relevance(found: Relevance, p: int, most: int = 15) -> Figure:
    """Bars of main and total effects."""
    order = np.argsort(-found.total[:, p], kind="stable")[:most][::-1]
    names = [_short(found.names[g]) for g in order]
    traces = [
        {"type": "bar", "orientation": "h", "y": names, "x": numbers(np.maximum(value[order, p], 0.0)), "name": label,
         "marker": {"color": colour},
         "error_x": {"type": "data", "array": numbers(2 * error[order, p]), "color": "@grey"},
         "hovertemplate": "%{x:.1%}<extra></extra>"}
        for label, value, error, colour in (
            ("with interactions (total effect)", found.total, found.total_error, "@orange"),
            ("alone (main effect)", found.main, found.main_error, "@blue"),
        )
    ]  # fmt: skip
    best = ", ".join(f"{found.names[g]} {found.total[g, p]:.0%}" for g in order[::-1][:5])
    text = (
        "The share of the variance of the predictions that a column explains alone, and including its interactions "
        "with other columns. This describes the model, and says nothing about causes."
    )
    layout = {"height": 130 + 34 * len(names), "barmode": "group",
              "xaxis": {"tickformat": ".0%", "rangemode": "tozero"}, "yaxis": {"automargin": True},
              "legend": {"traceorder": "reversed"}}  # fmt: skip
    return Figure("Which columns matter", text, f"Bar chart of total effects: {best}.",
                  [("", plot(traces, "share of the variance of predictions", "", **layout))], "wide")  # fmt: skip


def effect(found: Effect, p: int, target: str, classes: Sequence[str]) -> Figure:
    """The average prediction as a function of one column, with its uncertainty."""
    curves = found.mean.shape[2]
    kept = range(curves) if curves != 2 else [1]
    traces: list[Trace] = []
    numeric = found.values.dtype.kind in "fiubM"
    for place, c in enumerate(kept):
        name = classes[c] if curves > 1 else "average prediction"
        own = Curve(found.values, found.mean[:, p, c], found.lower[:, p, c], found.upper[:, p, c])
        traces += (_smooth if numeric else _marks)(own, name, COLOURS[place % len(COLOURS)])
    several = len(kept) > 1
    of = f"probability of {classes[1]}" if curves == 2 and classes else "probability" if several else target
    layout: dict[str, Any] = {"height": 300, "showlegend": several}
    if curves > 1:
        layout["yaxis"] = {"rangemode": "tozero"}
    if not numeric:
        layout["xaxis"] = {"type": "category"}
    low, high = float(found.mean[:, p, kept[0]].min()), float(found.mean[:, p, kept[0]].max())
    alt = f"Effect of {found.name}: the average {of} lies between {low:.4g} and {high:.4g}."
    return Figure(found.name, "", alt, [("", plot(traces, found.name, of, **layout))], "small")


class Curve(NamedTuple):
    """Averages of predictions at values of a column, all [T].

    Attributes:
        values: numbers, dates or text.
        mean: the averages.
        lower: the lower ends of their intervals.
        upper: the upper ends of their intervals.
    """

    values: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def _smooth(own: Curve, name: str, colour: str) -> list[Trace]:
    """A line with a band, for numbers and dates."""
    dates = own.values.dtype.kind == "M"
    x: Any = np.arange(len(own.values)) if dates else own.values
    area = band(x, own.lower, own.upper, f"95 % band of {name}", colour) | {"showlegend": False}
    mean = line(x, own.mean, name, colour, mode="lines+markers" if len(own.values) <= 12 else "lines")
    if dates:
        when = [str(value) for value in own.values]
        area, mean = area | {"x": when + when[::-1]}, mean | {"x": when}
    return [area, mean]


def _marks(own: Curve, name: str, colour: str) -> list[Trace]:
    """Points with intervals, for text."""
    ends = {"array": numbers(own.upper - own.mean), "arrayminus": numbers(own.mean - own.lower)}
    bars = {"type": "data", "symmetric": False, **ends}
    mark = line([], own.mean, name, colour, mode="markers", error_y=bars, marker={"color": colour, "size": 9})
    return [{**mark, "x": [_short(str(v)) or "(empty)" for v in own.values]}]


def confusion(own: Judged, classes: Sequence[str]) -> Figure:
    """How often each class was predicted for each true class."""
    assert own.probabilities is not None
    C = len(classes)
    count = np.zeros((C, C), int)
    np.add.at(count, (own.y.astype(int), own.probabilities.argmax(axis=1)), 1)
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    names = [_short(name) for name in classes]
    heat = {"type": "heatmap", "x": names, "y": names, "z": share.round(4).tolist(), "zmin": 0, "zmax": 1,
            "colorscale": "@scale", "text": [[f"{n:,}" for n in row] for row in count.tolist()],
            "texttemplate": "%{text}",
            "hovertemplate": "true %{y}<br>predicted %{x}<br>%{text} rows, %{z:.0%} of the class<extra></extra>",
            "showscale": False}  # fmt: skip
    wrong = [(int(count[i, j]), i, j) for i in range(C) for j in range(C) if i != j and count[i, j]]
    said = "; ".join(f"{n} of {classes[i]} predicted as {classes[j]}" for n, i, j in sorted(wrong, reverse=True)[:5])
    axis = {"type": "category", "automargin": True}
    layout = plot([heat], "predicted class", "true class", xaxis=axis, yaxis={**axis, "autorange": "reversed"})
    return Figure("Confusion matrix", "Numbers of rows. The colour is the share of the rows of the true class.",
                  f"Confusion matrix. {said or 'All rows are classified correctly'}.", [("", layout)])  # fmt: skip


def reliability(own: Judged, classes: Sequence[str]) -> Figure:
    """How often a class is the true one, where its predicted probability is p."""
    assert own.probabilities is not None
    ideal = line([0, 1], [0, 1], "perfect prediction", "@grey", hoverinfo="skip", showlegend=False)
    ideal["line"] |= {"dash": "dot"}
    traces, gaps = [ideal], []
    kept = [1] if len(classes) == 2 else range(min(len(classes), len(COLOURS)))
    for place, c in enumerate(kept):
        predicted, true = own.probabilities[:, c], (own.y == c).astype(float)
        parts = np.array_split(np.argsort(predicted, kind="stable"), min(8, max(2, len(true) // 15)))
        x, y = (np.array([np.average(v[part], weights=own.weight[part]) for part in parts]) for v in (predicted, true))
        # the spread of the predicted probabilities, because the observed spread of rare classes may be 0
        half = [1.96 * np.sqrt(np.mean(predicted[part] * (1 - predicted[part])) / len(part)) for part in parts]
        gaps.append(float(np.abs(x - y).mean()))
        bars = {"type": "data", "array": numbers(half), "color": COLOURS[place]}
        hover = f"{_short(classes[c])}<extra></extra>".replace("%", "&#37;")
        traces.append(line(x, y, classes[c], COLOURS[place], mode="lines+markers", error_y=bars,
                           hovertemplate="predicted %{x:.0%}, observed %{y:.0%}<br>" + hover))  # fmt: skip
    text = (
        "Rows are grouped by predicted probability; each point shows how often the class is the true one in a group. "
        "If the probabilities are right, the points lie on the diagonal, up to chance (the bars)."
    )
    axis = {"range": [-0.03, 1.03], "tickformat": ".0%"}
    layout = plot(traces, "predicted probability", "share of rows", xaxis=axis, yaxis=axis)
    return Figure("Reliability", text, f"Reliability curves; the average gap is {np.mean(gaps):.1%}.", [("", layout)])


def training(history: History) -> Figure:
    """The objective during the fit."""
    step, bound = np.asarray(history.step), np.asarray(history.bound, float)
    keep = np.isfinite(bound)
    step, bound = step[keep], bound[keep]
    kept = np.unique(np.linspace(0, len(step) - 1, min(len(step), 1000)).astype(int))
    layout: dict[str, Any] = {"height": 300, "showlegend": False}
    if len(bound) > 20:
        low, high = np.quantile(bound, [0.05, 1.0])
        layout["yaxis"] = {"range": [low - 0.05 * (high - low), high + 0.05 * (high - low)]}
    trace = line(step[kept], bound[kept], "objective", "@blue", mode="lines" if len(kept) > 30 else "lines+markers")
    trace |= {"y": numbers(bound[kept], 9)}
    alt = f"Training curve: the objective rises from {bound[0]:.6g} to {bound[-1]:.6g} in {len(bound)} steps."
    return Figure("Training", "The objective during the fit. It should be flat at the end.", alt,
                  [("", plot([trace], "step", "objective", **layout))])  # fmt: skip


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _short(name: str, most: int = 28) -> str:
    """A name for an axis, cut off if it is long."""
    return plain(name if len(name) <= most else name[: most - 1] + "…")
