"""Do the defaults win? Our estimators against what a data scientist would use otherwise, each with default settings.

    python benchmarks/defaults.py                                       all data sets, libraries and splits
    python benchmarks/defaults.py --data autompg --splits 0 1           some of it
    python benchmarks/defaults.py --libraries ours lightgbm             some libraries
    python benchmarks/defaults.py --libraries ours --data protein --seconds 600
    python benchmarks/defaults.py --missing                             only runs that have no result yet
    python benchmarks/defaults.py --python boosting=PATH                the Python of an environment

The data are in the folder that `INDUCING_DATA` names (default `../shared/data`). A split trains on nine tenths of the
rows; there are ten for at most 2,000 rows, and five for more. Inputs and numeric targets are standardised on the
training rows. Each fit has a process of its own without a cache of compiled programs, so that compilation is a part of
its seconds. Exact GPs run up to 3,000 rows (exact classification, by scikit-learn, up to 1,000). A run that fails, or
takes longer than `--limit` seconds, is recorded with its error, and the next one starts.

Results are merged into `benchmarks/results/defaults.json` after each run. At the end a plot of quality against time is
drawn beside it, and tables are printed and written into `docs/benchmarks.md`.
"""

import argparse
import csv
import datetime
import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from speed import HERE, ROOT, Worker, machine, pythons

RESULTS = HERE / "results" / "defaults.json"
REGRESSION = (
    "yacht", "autompg", "diabetes", "energy", "concrete", "airfoil", "wine", "kin8nm", "power", "pol", "elevators",
    "protein",
)  # fmt: skip
CLASSIFICATION = ("penguins", "breast-cancer", "weather", "digits", "banana")
LIBRARIES = {  # name: (environment, worker, the most rows for regression and for classification)
    "ours": ("ours", "defaults_ours.py", math.inf, math.inf),
    "sklearn-gp": ("boosting", "defaults_sklearn.py", 3000, 1000),
    "hist": ("boosting", "defaults_sklearn.py", math.inf, math.inf),
    "lightgbm": ("boosting", "defaults_sklearn.py", math.inf, math.inf),
    "ngboost": ("boosting", "defaults_sklearn.py", math.inf, math.inf),
    "gpytorch": ("gpytorch", "defaults_gpytorch.py", 3000, 0),
}
NORMAL_975 = 1.959963984540054
SMALLEST = 1e-15  # probabilities below it count as it
LIMIT = 1800  # seconds that a run may take
FEW = 2000  # up to so many rows there are ten splits, else five


def folder() -> Path:
    """The folder of the data."""
    return Path(os.environ.get("INDUCING_DATA", ROOT.parent / "shared" / "data"))


def encoded(name: str, target: str, left_out: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A table with gaps as numbers: text becomes one column for each value, gaps the median; and the classes."""
    with (folder() / "tables" / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = []
    for key in rows[0]:
        values = [row[key] for row in rows]
        if key == target or key in left_out:
            continue
        if key == "date":
            dates = np.array([datetime.date.fromisoformat(v).timetuple()[:8] for v in values], float)
            columns += [dates[:, 0], dates[:, 7]]  # the year and the day of the year
            continue
        try:
            numbers = np.array([float(v) if v not in ("", "NA") else np.nan for v in values])
            columns.append(np.where(np.isnan(numbers), np.nanmedian(numbers), numbers))
        except ValueError:
            columns += [np.array([v == level for v in values], float) for level in sorted(set(values))]
    return np.stack(columns, axis=1), np.array([row[target] for row in rows])


def whole(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels, and the test rows of each split [N, splits]: those that come with the data, or random ones."""
    mask = None
    if name in ("penguins", "weather"):
        X, y = encoded(name, "species" if name == "penguins" else "weather", ())
    elif name in ("digits", "breast-cancer", "diabetes"):
        from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

        load = {"digits": load_digits, "breast-cancer": load_breast_cancer, "diabetes": load_diabetes}[name]
        X, y = load(return_X_y=True)
    else:
        with np.load(folder() / f"{name}.npz") as file:
            if name == "banana":
                X, y = file["X_large"], file["Y_large"][:, 0]
            else:
                X, y = np.asarray(file["X"], float), np.asarray(file["Y"], float).reshape(-1)
                mask = file["test_mask" if "test_mask" in file else "pbp_test_mask"].astype(bool)
    if mask is None:
        orders = [np.random.default_rng(s).permutation(len(X)) for s in range(10)]
        mask = np.stack([order < len(X) // 10 for order in orders], axis=1)
    return X, y, mask


def split(X: np.ndarray, y: np.ndarray, test: np.ndarray, classes: bool) -> dict[str, np.ndarray]:
    """Train and test rows, standardised on the training rows; classes are 0, 1, …"""
    train = ~test
    centre, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - centre) / np.where(spread > 0, spread, 1.0)
    out = {"X": X[train], "Xtest": X[test]}
    if classes:
        names, codes = np.unique(y, return_inverse=True)
        return out | {"y": codes[train], "ytest": codes[test], "classes": np.array(len(names))}
    y = (y - y[train].mean()) / y[train].std()
    return out | {"y": y[train], "ytest": y[test]}


def scores(answer: dict, a: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a run has reached on the test rows. Higher log densities and shares are better, lower errors."""
    if "error" in answer:
        return {"error": answer["error"]}
    out: dict[str, Any] = {"seconds": answer["seconds"]}
    if "message" in answer:
        out["message"] = answer["message"]
    y = a["ytest"]
    if "probabilities" in answer:
        p = np.array(answer["probabilities"])
        out["accuracy"] = float((p.argmax(axis=1) == y).mean())
        out["log_density"] = float(np.log(np.maximum(p[np.arange(len(y)), y], SMALLEST)).mean())
        return out
    mean = np.array(answer["mean"])
    out["rmse"] = float(np.sqrt(((mean - y) ** 2).mean()))
    if "deviation" in answer:
        deviation = np.array(answer["deviation"])
        z = (y - mean) / deviation
        answer = {"lower": mean - NORMAL_975 * deviation, "upper": mean + NORMAL_975 * deviation} | answer
        out["log_density"] = float((-0.5 * np.log(2.0 * np.pi) - np.log(deviation) - 0.5 * z**2).mean())
    if "log_density" in answer:
        out["log_density"] = answer["log_density"]
    if "lower" in answer:
        out["coverage"] = float(((np.array(answer["lower"]) <= y) & (y <= np.array(answer["upper"]))).mean())
    return out


def run(library: str, python: str, a: dict[str, np.ndarray], seconds: float | None, limit: float) -> dict[str, Any]:
    """Fit and predict one split in a new process, which is killed after `limit` seconds."""
    log = ROOT / "out" / f"defaults-{library}.log"
    log.parent.mkdir(exist_ok=True)
    worker = Worker(LIBRARIES[library][1], python, log)
    timer = threading.Timer(limit, worker.process.kill)
    timer.start()
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "split.npz"
            np.savez(path, **a)
            arguments = {"path": str(path), "method": library}
            if library == "ours" and seconds is not None:
                arguments["seconds"] = seconds
            answer = worker.ask(do="call", name="run", arguments=arguments)
    finally:
        timer.cancel()
        worker.close()
    if "error" in answer and time.perf_counter() - began >= limit:
        answer = {"error": f"not done after {limit:g} seconds"}
    return scores(answer, a)


def plot(results: dict[str, dict], path: Path) -> None:
    """Seconds against the log density relative to the best library on each data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from defaults_tables import average

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for axis, kind, title in zip(axes, (REGRESSION, CLASSIFICATION), ("regression", "classification"), strict=True):
        for number, library in enumerate(LIBRARIES):
            points = []
            for name in kind:
                means = {k: average(v, "log_density") for k, v in results.get(name, {}).items()}
                known = {k: m for k, m in means.items() if m is not None}
                if library in known:
                    seconds = average(results[name][library], "seconds")
                    points.append((seconds, max(known.values()) - known[library] + 1e-3))
            if points:
                axis.scatter(*zip(*points, strict=True), label=library, color=f"C{number}", s=25)
        axis.set(xscale="log", yscale="log", title=title, xlabel="seconds to fit and predict")
        axis.set_ylabel("nats per label behind the best (+ 0.001)")
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def shown(name: str, s: int, library: str, entry: dict[str, Any]) -> str:
    """One line about one run."""
    if "error" in entry:
        return f"{name:14} split {s} {library:11} {entry['error']}"
    keys = (k for k in ("rmse", "accuracy", "log_density", "coverage", "seconds") if k in entry)
    return f"{name:14} split {s} {library:11} " + "  ".join(f"{k} {entry[k]:.4g}" for k in keys)


def measured(found: dict[str, str], options: Any, known: dict[str, dict], save: Callable) -> None:
    """Run what was asked for, one library after the other on each split."""
    for name in options.data or [*REGRESSION, *CLASSIFICATION]:
        X, y, tests = whole(name)
        classes = name in CLASSIFICATION
        for s in options.splits if options.splits is not None else range(10 if len(X) <= FEW else 5):
            a = split(X, y, tests[:, s], classes)
            for library in options.libraries:
                environment, _, most, most_classes = LIBRARIES[library]
                kept = f"ours-{options.seconds:g}" if library == "ours" and options.seconds is not None else library
                done = options.missing and "seconds" in known.get(name, {}).get(kept, {}).get(str(s), {})
                if environment in found and len(a["X"]) <= (most_classes if classes else most) and not done:
                    entry = run(library, found[environment], a, options.seconds, options.limit)
                    save(name, kept, s, entry | {"rows": len(a["X"])})
                    print(time.strftime("%H:%M:%S"), shown(name, s, kept, entry), flush=True)


def main(arguments: list[str] | None = None) -> dict:
    """Run, print, merge into the results, draw, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=REGRESSION + CLASSIFICATION, metavar="NAME")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--splits", nargs="+", type=int)
    parser.add_argument("--seconds", type=float, help="a limit for each of our fits; kept as the library ours-SECONDS")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which a run is killed")
    parser.add_argument("--missing", action="store_true", help="only runs that have no result yet")
    parser.add_argument("--python", action="append", default=[], metavar="ENVIRONMENT=PATH")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    results = json.loads(options.out.read_text()) if options.out.exists() else {"sets": {}}
    environments = sorted({LIBRARIES[library][0] for library in options.libraries} - {"ours"})
    found = pythons(options.python, environments)

    def save(name: str, library: str, s: int, entry: dict) -> None:
        entry["date"] = datetime.date.today().isoformat()
        results["sets"].setdefault(name, {}).setdefault(library, {})[str(s)] = entry
        results["machine"] = machine()
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")

    measured(found, options, results["sets"], save)
    if results["sets"]:
        plot(results["sets"], options.out.with_suffix(".png"))
        import defaults_tables

        print(*defaults_tables.made(results["sets"]).values(), sep="\n\n")
        if options.out == RESULTS:
            defaults_tables.write(results["sets"])
    return results


if __name__ == "__main__":
    main()
