"""The tables that `benchmarks/defaults.py` prints and writes into `docs/benchmarks.md`."""

import math
import statistics

from defaults import CLASSIFICATION, FEW, LIBRARIES, REGRESSION
from tables import PAGE, replace, table

MANY = 50_000  # rows of the largest tables that have an aim for their seconds
AIMED = (  # data set, whose run, what, whether more is better, aim
    ("airfoil", "ours", "log_density", True, 0.33),
    ("airfoil", "ours", "rmse", False, 0.170),
    ("pol", "ours", "rmse", False, 0.10),
    ("pol", "ours", "seconds", False, 90.0),
    ("protein", "ours-600", "log_density", True, -0.98),
    ("concrete", "ours", "seconds", False, 10.0),
)


def paired(ours: dict[str, dict], theirs: dict[str, dict], what: str) -> tuple[float, float] | None:
    """The mean difference over the splits that both have, and its standard error (NaN for one split)."""
    common = [s for s in ours if what in ours[s] and what in theirs.get(s, {})]
    differences = [ours[s][what] - theirs[s][what] for s in common]
    if not differences:
        return None
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    return statistics.fmean(differences), error


def average(splits: dict[str, dict], what: str) -> float | None:
    """The mean over splits that have it."""
    values = [entry[what] for entry in splits.values() if what in entry]
    return statistics.fmean(values) if values else None


def ranks(results: dict[str, dict], what: str, higher: bool) -> dict[str, float]:
    """The mean rank of each library over the data sets on which it has a score; 1 is best."""
    places: dict[str, list[float]] = {}
    for libraries in results.values():
        means = {library: m for library, splits in libraries.items() if (m := average(splits, what)) is not None}
        for place, library in enumerate(sorted(means, key=lambda k: means[k], reverse=higher), 1):
            places.setdefault(library, []).append(place)
    return {library: statistics.fmean(values) for library, values in places.items()}


def defaults_table(sets: dict, kind: tuple[str, ...], errors: str) -> str:
    """Each data set with the log density of every library, its difference from ours, `errors`, and seconds."""
    header = ["", "library", "log density", "ours − theirs", errors, "coverage of 95 %", "seconds", "splits"]
    rows = []
    for name in kind:
        libraries = sets.get(name, {})
        known = {k: average(v, "log_density") for k, v in libraries.items()}
        best = max((m for m in known.values() if m is not None), default=None)
        for library, splits in libraries.items():
            means = {what: average(splits, what) for what in ("log_density", errors, "coverage", "seconds")}
            cells = ["–" if m is None else f"{m:.3g}" if what == "seconds" else f"{m:.3f}" for what, m in means.items()]
            if best is not None and known[library] == best:
                cells[0] = f"**{cells[0]}**"
            difference = None if library == "ours" else paired(libraries.get("ours", {}), splits, "log_density")
            said = "" if difference is None else f"{difference[0]:+.3f} ± {difference[1]:.3f}".removesuffix(" ± nan")
            rows.append([name if library == next(iter(libraries)) else "", library, cells[0], said, *cells[1:]])
            done, failed = (sum(what in entry for entry in splits.values()) for what in ("seconds", "error"))
            rows[-1].append(f"{done}, {failed} failed" if failed else str(done))
    return table(header, rows)


def defaults_ranks(sets: dict) -> str:
    """Mean ranks over the regression sets, and the median seconds."""
    sets = {name: sets[name] for name in REGRESSION if name in sets}
    by_density, by_error = ranks(sets, "log_density", higher=True), ranks(sets, "rmse", higher=False)
    rows = []
    for library in (*LIBRARIES, *sorted({library for of in sets.values() for library in of} - LIBRARIES.keys())):
        times = [average(sets[name].get(library, {}), "seconds") for name in sets]
        known = [t for t in times if t is not None]
        if known:
            places = (
                "–" if place is None else f"{place:.2f}" for place in (by_density.get(library), by_error.get(library))
            )
            rows.append([library, *places, f"{statistics.median(known):.3g}"])
    return table(["library", "rank by log density", "rank by RMSE", "median seconds"], rows)


def _wins(sets: dict, what: str, higher: bool, libraries: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The data sets on which ours is better than all of these, and the others, with the library that is best."""
    won, lost = [], []
    for name, of in sets.items():
        means = {k: average(of.get(k, {}), what) for k in ("ours", *libraries)}
        known = {k: m if higher else -m for k, m in means.items() if m is not None}
        if "ours" in known and len(known) > 1:
            best = max(known, key=lambda k: known[k])
            won.append(name) if best == "ours" else lost.append(f"{name} ({best})")
    return won, lost


def _compared(sets: dict) -> list[list[str]]:
    """Aims that compare with other libraries."""
    rows = []
    others = tuple(library for library in LIBRARIES if library != "ours")
    for title, what, higher, against, share in (
        ("log density better than every alternative", "log_density", True, others, 70),
        ("RMSE better than LightGBM", "rmse", False, ("lightgbm",), 60),
    ):
        won, lost = _wins(sets, what, higher, against)
        if won or lost:
            measured = f"{100 * len(won) / len(won + lost):.0f} %" + f"; not on {', '.join(lost)}" * bool(lost)
            rows.append([title, f"≥ {share} % of regression sets", measured])
    differences = {k: paired(of.get("ours", {}), of.get("sklearn-gp", {}), "log_density") for k, of in sets.items()}
    known = {k: d[0] for k, d in differences.items() if d is not None}
    if known:
        worst = min(known, key=lambda k: known[k])
        rows.append(["log density minus that of scikit-learn's GP", "≥ −0.01", f"{known[worst]:+.3f} ({worst})"])
    ratios = {k: paired(of.get("ours", {}), of.get("sklearn-gp", {}), "seconds") for k, of in sets.items()}
    slower = [f"{k} ({d[0]:+.1f} s)" for k, d in ratios.items() if d is not None and _rows(sets[k]) >= 500 and d[0] > 0]
    if known:
        rows.append(["slower than scikit-learn's GP from 500 rows on", "nowhere", ", ".join(slower) or "nowhere"])
    return rows


def _rows(libraries: dict) -> float:
    return average(libraries.get("ours", {}), "rows") or math.nan


def targets(sets: dict) -> str:
    """What we aim at for regression, and what was measured."""
    sets = {name: sets[name] for name in REGRESSION if "ours" in sets.get(name, {})}
    rows = _compared(sets)
    covered = [c for of in sets.values() if (c := average(of["ours"], "coverage")) is not None]
    if covered:
        rows.append(["coverage of 95 % intervals, mean", "93 to 97 %", f"{100 * statistics.fmean(covered):.1f} %"])
    for most, aim in ((FEW, 5), (MANY, 60)):
        times = {k: average(of["ours"], "seconds") for k, of in sets.items() if _rows(of) <= most}
        known = [t for t in times.values() if t is not None]
        if known:
            title = f"median seconds of up to {most:,} rows"
            rows.append([title, f"< {aim}", f"{statistics.median(known):.3g} (at most {max(known):.3g})"])
    for name, library, what, higher, aim in AIMED:
        found = average(sets.get(name, {}).get(library, {}), what)
        if found is not None:
            rows.append([f"{name}, {library}: {what}", f"{'≥' if higher else '≤'} {aim:g}", f"{found:.3g}"])
    return table(["aim", "", "measured"], rows)


def made(sets: dict) -> dict[str, str]:
    """All tables by the names of their markers."""
    return {
        "defaults-regression": defaults_table(sets, REGRESSION, "rmse"),
        "defaults-ranks": defaults_ranks(sets),
        "defaults-targets": targets(sets),
        "defaults-classification": defaults_table(sets, CLASSIFICATION, "accuracy"),
    }


def write(sets: dict) -> None:
    """Put the tables into the page."""
    page = PAGE.read_text()
    for name, text in made(sets).items():
        page = replace(page, name, text)
    PAGE.write_text(page)
