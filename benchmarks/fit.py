"""Do we fit as well, and how soon? Real data, default settings, no tuning by data set.

    python benchmarks/fit.py                                     quality, deep and race on all data sets
    python benchmarks/fit.py quality --data power --splits 0 1   some of it
    python benchmarks/fit.py race --data kin8nm --cap 300        held-out log-likelihood against seconds, with the peers
    python benchmarks/fit.py deep --data kin8nm                  deep GPs, split 0

The data are in the folder that `INDUCING_DATA` names (default `../shared/data`). Split s shuffles the rows with
`numpy.random.seed(s)` and trains on the first 90 %; inputs and outputs are standardised on all rows; M = 100. Results
are merged into `benchmarks/results/fit.json`.
"""

import argparse
import datetime
import json
import os
import tempfile
from pathlib import Path

import numpy as np
from speed import HERE, ROOT, Worker, machine, pythons

RESULTS = HERE / "results" / "fit.json"
QUALITY = ("concrete", "energy", "power", "yacht", "kin8nm", "protein")
DEEP = {"kin8nm": (2, 3), "yacht": (2,), "energy": (2,), "protein": (2,)}
RACE = ("power", "kin8nm", "protein", "nyc_flights")
RUNNERS = {  # name: (library, method)
    "ours": ("ours", "auto"),
    "ours-minibatch": ("ours", "natgrad"),
    "gpflow-sgpr": ("gpflow", "sgpr"),
    "gpflow-natgrad": ("gpflow", "natgrad"),
    "gpytorch-adam": ("gpytorch", "adam"),
    "gpytorch-ngd": ("gpytorch", "ngd"),
}
M = 100
BATCH = 1024
NEAR = 0.005  # a run has reached a log-likelihood when it is this close to it


def split(name: str, s: int) -> tuple[dict[str, np.ndarray], float]:
    """Train and test rows of split s, standardised, and the standard deviation of the raw outputs."""
    folder = Path(os.environ.get("INDUCING_DATA", ROOT.parent / "shared" / "data"))
    with np.load(folder / f"{name}.npz") as file:
        X, Y = (file["X_bb"], file["Y_bb"]) if name == "power" else (file["X"], file["Y"])
    X, Y = np.asarray(X, float), np.asarray(Y, float).reshape(len(X), -1)[:, :1]
    scale = float(Y.std())
    spread = X.std(axis=0)
    X, Y = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0), (Y - Y.mean(axis=0)) / scale
    rows = np.arange(len(X))
    np.random.seed(s)
    np.random.shuffle(rows)
    train, test = np.split(rows, [int(0.9 * len(X))])
    return {"X": X[train], "y": Y[train], "Xtest": X[test], "ytest": Y[test]}, scale


def start(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What all runners of a race start from."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(0)
    X = data["X"][rng.choice(len(data["X"]), min(len(data["X"]), 20_000), replace=False)]
    Z = KMeans(M, n_init=1, max_iter=20, random_state=0).fit(X).cluster_centers_
    D = X.shape[1]
    return data | {"Z": Z, "lengthscale": np.full(D, np.sqrt(D)), "variance": np.ones(()), "noise": np.full((), 0.1)}


def seconds_to(trace: list, target: float) -> float | None:
    """When a run came within `NEAR` of a log-likelihood, and None if it never did."""
    return next((t for t, value in trace if value >= target - NEAR), None)


def verdict(runs: dict[str, dict]) -> dict:
    """The best peer's final log-likelihood, when each run reached it, and the first peer's time over that of `ours`."""
    peers = {k: r["trace"][-1][1] for k, r in runs.items() if not k.startswith("ours") and r.get("trace")}
    if not peers:
        return {}
    best = max(peers, key=lambda k: peers[k])
    times = {k: seconds_to(r["trace"], peers[best]) for k, r in runs.items() if r.get("trace")}
    ours = times.get("ours")
    theirs = min((t for k, t in times.items() if not k.startswith("ours") and t is not None), default=None)
    return {"best": best, "target": peers[best], "seconds": times, "ratio": theirs / ours if ours and theirs else None}


class Crew:
    """Workers, started when first needed."""

    def __init__(self, chosen: dict[str, str]):
        self.chosen, self.workers = chosen, {}

    def ask(self, library: str, function: str, data: dict[str, np.ndarray], **arguments) -> dict:
        """Call a function of a worker on a split."""
        if library not in self.chosen:
            return {"error": "not installed"}
        if library not in self.workers:
            log = ROOT / "out" / f"fit-{library}.log"
            log.parent.mkdir(exist_ok=True)
            self.workers[library] = Worker(f"fit_{library}.py", self.chosen[library], log)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "split.npz"
            np.savez(path, **data)
            return self.workers[library].ask(do="call", name=function, arguments={"path": str(path), **arguments})

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers.values():
            worker.close()


def main(arguments: list[str] | None = None) -> dict:
    """Run, print, merge into the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["quality", "deep", "race"], help="quality, deep, race")
    parser.add_argument("--data", nargs="+", help="names of data sets")
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(10)), help="for quality")
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=list(RUNNERS), help="for race")
    parser.add_argument("--cap", type=float, help="seconds of one run (race: 900, deep: 1200)")
    parser.add_argument("--python", action="append", default=[], metavar="LIBRARY=PATH")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    needed = sorted({RUNNERS[r][0] for r in options.runners} - {"ours"}) if "race" in options.what else []
    crew = Crew(pythons(options.python, needed))

    def chosen(known):
        return [name for name in known if not options.data or name in options.data]

    def save(*path, entry):
        entry["date"] = datetime.date.today().isoformat()
        node = results
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = entry
        results["machine"] = machine()
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")

    try:
        for name in chosen(QUALITY) if "quality" in options.what else ():
            for s in options.splits:
                data, scale = split(name, s)
                entry = crew.ask("ours", "quality", data, M=M) | {"scale": scale}
                save("quality", name, str(s), entry=entry)
                print(f"quality {name:12} split {s}  {_scores(entry)}", flush=True)
        for name in chosen(DEEP) if "deep" in options.what else ():
            for layers in DEEP[name]:
                data, scale = split(name, 0)
                entry = crew.ask("ours", "deep", data, M=M, layers=layers, cap=options.cap or 1200.0) | {"scale": scale}
                save("deep", name, str(layers), entry=entry)
                print(f"deep {name:12} {layers} layers  {_scores(entry)}", flush=True)
        for name in chosen(RACE) if "race" in options.what else ():
            data = start(split(name, 0)[0])
            for runner in options.runners:
                library, method = RUNNERS[runner]
                cap = options.cap or 900.0
                entry = crew.ask(library, "race", data, method=method, cap=cap, batch=BATCH) | {"cap": cap}
                save("race", name, runner, entry=entry)
                last = "{:.1f} s, log-likelihood {:.4f}".format(*entry["trace"][-1]) if entry.get("trace") else entry
                print(f"race {name:12} {runner:15} {last}", flush=True)
            print(f"race {name:12} {_verdict(verdict(results['race'][name]))}", flush=True)
    finally:
        crew.close()
    return results


def _scores(entry: dict) -> str:
    if "error" in entry:
        return entry["error"]
    cover = "/".join(f"{100 * entry[f'coverage{level}']:.0f}" for level in (50, 90, 95))
    return f"log-likelihood {entry['ll']:.4f}, RMSE {entry['rmse']:.4f}, coverage {cover} %, {entry['seconds']:.1f} s"


def _verdict(result: dict) -> str:
    if not result:
        return "no peer ran"
    times = ", ".join(f"{k} {'not reached' if t is None else f'{t:.1f} s'}" for k, t in result["seconds"].items())
    ratio = f"{result['ratio']:.1f}" if result["ratio"] else "-"
    return f"to {result['target']:.4f} of {result['best']}: {times}; ratio {ratio}"


if __name__ == "__main__":
    main()
