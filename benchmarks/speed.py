"""Are we faster? Every case on all libraries that have it, in turn, in one run on one machine.

    python benchmarks/speed.py                          all cases, all libraries whose environments exist
    python benchmarks/speed.py --cases svgp predict     groups or names of cases
    python benchmarks/speed.py --quick                  small sizes, one round: do the scripts work, do the bounds agree
    python benchmarks/speed.py --python gpflow=PATH     the Python of a library, instead of .venv-bench/…/bin/python

Before anything is timed, the bound at equal parameters must agree with ours (float64: to 1e-6, float32: to 1e-4,
relative). All workers stay alive; rounds go through them one after the other, so that a slow minute of the machine
hits all. Results are merged into `benchmarks/results/speed.json`; those of `--quick` go to `out/speed-quick.json`.
"""

import argparse
import dataclasses
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, GROWTH, JITTER, PEERS, Case, arrays, flops, tolerance

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENVIRONMENTS = {
    "gpflow": "tensorflow",
    "gpflux": "tensorflow",
    "gpytorch": "gpytorch",
    "gpjax": "gpjax",
    "boosting": "boosting",
}
RESULTS = HERE / "results" / "speed.json"


class Worker:
    """A process that holds one library; see `workers/protocol.py`."""

    def __init__(self, script: str, python: str, log: Path):
        self.log = log.open("w")
        self.process = subprocess.Popen(
            [python, str(HERE / "workers" / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=ROOT,
        )

    def ask(self, **request: Any) -> dict:
        """Send a request and wait for its answer."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": f"the worker ended; see {self.log.name}"}

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process.stdout.close()
        self.log.close()


def pythons(given: list[str], libraries: list[str]) -> dict[str, str]:
    """The Python of each library that has one: ours is the one that runs this."""
    out = {"ours": sys.executable}
    for library in libraries:
        default = ROOT / ".venv-bench" / ENVIRONMENTS[library] / "bin" / "python"
        out[library] = os.environ.get(f"INDUCING_BENCH_{library.upper()}", str(default))
    out |= dict(item.split("=", 1) for item in given)
    for library in [name for name, path in out.items() if not Path(path).exists()]:
        print(f"{library}: no Python at {out.pop(library)}; left out")
    return out


def run_case(case: Case, workers: dict[str, Worker], rounds: int, seconds: float) -> dict:
    """Load everywhere, compare the bounds, then time in turn."""
    entry: dict[str, Any] = {"case": dataclasses.asdict(case), "flops": flops(case), "libraries": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.npz"
        np.savez(path, **arrays(case))
        request = {"do": "load", "case": dataclasses.asdict(case) | {"jitter": JITTER[case.dtype]}, "arrays": str(path)}
        for library in ("ours", *case.peers):
            if library in workers:
                entry["libraries"][library] = workers[library].ask(**request)
    reached = entry["libraries"]
    truth = reached["ours"].get("value", math.nan)
    for library, result in reached.items():
        if "error" in result or library == "ours":
            continue
        result["difference"] = abs(result["value"] - truth) / max(1.0, abs(truth))
        if not result["difference"] <= tolerance(case, library):
            result["error"] = f"the bound is {result['value']:.10g}, ours {truth:.10g}"
    live = [library for library, result in reached.items() if "error" not in result]
    steps = {}
    for library in list(live):
        answer = workers[library].ask(do="time", steps=2)
        if "error" in answer:
            reached[library]["error"] = answer["error"]
            live.remove(library)
        else:
            steps[library] = int(min(max(1e3 * seconds / answer["ms"], 2), 400))
    times: dict[str, list[dict]] = {library: [] for library in live}
    for _ in range(rounds):
        for library in live:
            time.sleep(0.6)  # threads of the one before may still spin
            times[library].append(workers[library].ask(do="time", steps=steps[library]))
    for library in live:
        failed = [t["error"] for t in times[library] if "error" in t]
        if failed:
            reached[library]["error"] = failed[0]
            continue
        reached[library]["rounds"] = [t["ms"] for t in times[library]]
        reached[library]["ms"] = statistics.median(t["ms"] for t in times[library])
        for kind in {"single", "tuned"} & times[library][0].keys():
            reached[library][kind] = statistics.median(t[kind] for t in times[library])
    for library in reached:
        workers[library].ask(do="drop")
    return entry


def summarise(entry: dict, rates: dict[str, float]) -> dict:
    """Ratio to the best peer, and the fraction of the machine's rate of matrix products."""
    times = {k: v["ms"] for k, v in entry["libraries"].items() if "ms" in v}
    ours = times.pop("ours", None)
    best = min(times, key=lambda k: times[k], default=None)
    entry["best"] = best
    entry["ratio"] = times[best] / ours if best and ours else None
    tuned = [v.get("tuned", v["ms"]) for k, v in entry["libraries"].items() if k in times]
    entry["ratio_tuned"] = min(tuned) / ours if tuned and ours else None
    entry["fraction"] = entry["flops"] / (ours * 1e-3) / rates[entry["case"]["dtype"]] if ours else None
    return entry


def line(entry: dict) -> str:
    """One row of the table that is printed."""
    cells = [f"{entry['case']['name']:28}"]
    for library in ("ours", *PEERS):
        result = entry["libraries"].get(library, {})
        cells.append(f"{result['ms']:9.2f}" if "ms" in result else f"{'error' if 'error' in result else '-':>9}")
    cells.append(f"{entry['ratio']:7.2f}" if entry["ratio"] else f"{'-':>7}")
    cells.append(f"{100 * entry['fraction']:6.0f}%" if entry["fraction"] else f"{'-':>7}")
    compile_s = entry["libraries"]["ours"].get("compile")
    cells.append(f"{compile_s:8.2f}" if compile_s is not None else f"{'-':>8}")
    return " ".join(cells)


def slopes(entries: dict[str, dict]) -> dict[str, float]:
    """d log(time) / d log(size) of each growth curve, by least squares."""
    out = {}
    for group, size in GROWTH.items():
        points = [
            (e["case"][size], e["libraries"]["ours"]["ms"])
            for e in entries.values()
            if e["case"]["group"] == group and "ms" in e["libraries"]["ours"]
        ]
        if len(points) >= 2:
            x, y = np.log(np.array(sorted(points))).T
            out[group] = float(np.polyfit(x, y, 1)[0])
    return out


def import_times(rounds: int) -> dict[str, float]:
    """Seconds to import this library, and what it stands on alone; medians of processes in turn."""
    packages = {"jax, equinox, optax": [], "inducing": []}
    for _ in range(rounds):
        for names, seconds in packages.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {names}"], check=True, cwd=ROOT)
            seconds.append(time.perf_counter() - started)
    return {names: statistics.median(seconds) for names, seconds in packages.items()}


def machine() -> dict:
    """What the numbers belong to; no names of hosts."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [row.split(":", 1)[1].strip() for row in info.read_text().splitlines() if row.startswith("model name")]
        model = models[0] if models else model
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()}


def plot(entries: dict[str, dict], path: Path) -> None:
    """Times of all libraries, and the growth curves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    compared = [e for e in entries.values() if e["case"]["peers"] and "ms" in e["libraries"]["ours"]]
    curves = [g for g in GROWTH if any(e["case"]["group"] == g for e in entries.values())]
    height = max(3.0, 0.42 * len(compared) + 1.2)
    figure = plt.figure(figsize=(13, height), layout="constrained")
    grid = figure.add_gridspec(max(len(curves), 1), 2, width_ratios=[2.2, 1])
    axis = figure.add_subplot(grid[:, 0])
    colours = dict(zip(("ours", *PEERS), ("C3", "C0", "C9", "C1", "C2"), strict=True))
    for row, e in enumerate(reversed(compared)):
        axis.axhline(row, color="0.92", lw=1, zorder=0)
        for library, result in e["libraries"].items():
            if "ms" in result:
                axis.plot(result["ms"], row, "D" if library == "ours" else "o", color=colours[library], ms=7)
    axis.set_yticks(range(len(compared)), [e["case"]["name"] for e in reversed(compared)])
    axis.set_xscale("log")
    axis.set_xlabel("milliseconds a step (lower is better)")
    for library, colour in colours.items():
        if any(library in e["libraries"] for e in compared):
            axis.plot(
                [],
                [],
                "D" if library == "ours" else "o",
                color=colour,
                label="inducing" if library == "ours" else library,
            )
    axis.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=5)
    axis.spines[["top", "right"]].set_visible(False)
    slope = slopes(entries)
    for i, group in enumerate(curves):
        size = GROWTH[group]
        points = sorted(
            (e["case"][size], e["libraries"]["ours"]["ms"])
            for e in entries.values()
            if e["case"]["group"] == group and "ms" in e["libraries"]["ours"]
        )
        small = figure.add_subplot(grid[i, 1])
        if points:
            small.loglog(*np.array(points).T, "D-", color="C3")
        small.set_title(f"{group.removeprefix('growth-')}: slope {slope.get(group, math.nan):.2f}", fontsize=10)
        small.set_ylabel("ms")
        small.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def selected(names: list[str] | None) -> list[Case]:
    """Cases by name or group; all without a selection."""
    if not names:
        return list(CASES)
    known = {c.name for c in CASES} | {c.group for c in CASES}
    unknown = [n for n in names if n not in known]
    if unknown:
        sys.exit(f"no case or group is called {', '.join(unknown)}; there are {', '.join(sorted(known))}.")
    return [c for c in CASES if c.name in names or c.group in names]


def main(arguments: list[str] | None = None) -> dict:
    """Run, print, merge into the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", help="names or groups of cases")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="libraries to compare with")
    parser.add_argument("--python", action="append", default=[], metavar="LIBRARY=PATH")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long one turn of one library lasts")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round, into out/speed-quick.json")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    options.out = options.out or (ROOT / "out" / "speed-quick.json" if options.quick else RESULTS)
    rounds, seconds, scale = (1, 0.02, 0.05) if options.quick else (options.rounds, options.seconds, 1.0)
    cases = [c.sizes(scale) for c in selected(options.cases)]
    results = json.loads(options.out.read_text()) if options.out.exists() else {"cases": {}}

    logs = ROOT / "out"
    logs.mkdir(exist_ok=True)
    needed = {p for c in cases for p in c.peers}
    chosen = pythons(options.python, [p for p in options.peers if p in needed])

    def hire(name: str) -> Worker:
        script = "ours.py" if name == "ours" else f"with_{name}.py"
        return Worker(script, chosen[name], logs / f"bench-{name}.log")

    workers = {name: hire(name) for name in chosen if name == "ours" or name in needed}
    try:
        versions = {name: worker.ask(do="call", name="versions", arguments={}) for name, worker in workers.items()}
        for name, answer in versions.items():
            if "error" in answer:
                print(f"{name}: {answer['error']}")
        size = 256 if options.quick else 2048
        rates = {
            dtype: workers["ours"].ask(do="call", name="gemm_rate", arguments={"n": size, "dtype": dtype})["flops"]
            for dtype in ("float64", "float32")
        }
        print(", ".join(f"{dtype} products: {rate / 1e9:.0f} GFLOP/s" for dtype, rate in rates.items()))
        header = [f"{'case':28}", *(f"{name:>9}" for name in ("ours", *PEERS)), "  ratio", "of GEMM", " first s"]
        print(" ".join(header), flush=True)
        results["imports"] = import_times(1 if options.quick else 5)
        print("import: " + ", ".join(f"{name} {value:.2f} s" for name, value in results["imports"].items()))
        for case in cases:
            if case.group == "million":  # its memory is measured: in a process that holds nothing else
                workers["ours"].close()
                workers["ours"] = hire("ours")
            entry = summarise(run_case(case, workers, rounds, seconds), rates)
            entry["date"] = datetime.date.today().isoformat()
            entry["gemm_rate"] = rates[case.dtype]
            results["cases"][case.name] = entry
            print(line(entry), flush=True)
            for library, result in entry["libraries"].items():
                if "error" in result:
                    print(f"    {library}: {result['error']}", flush=True)
            _write(results, options.out, versions, rates)
    finally:
        for worker in workers.values():
            worker.close()
    for group, slope in slopes(results["cases"]).items():
        print(f"{group}: time grows as size^{slope:.2f}")
    plot(results["cases"], options.out.with_suffix(".png"))
    return results


def _write(results: dict, path: Path, versions: dict, rates: dict) -> None:
    results["machine"] = machine()
    results.setdefault("versions", {}).update({k: v for k, v in versions.items() if "error" not in v})
    results["gemm_rates"] = rates
    results["slopes"] = slopes(results["cases"])
    order = {c.name: i for i, c in enumerate(CASES)}
    results["cases"] = dict(sorted(results["cases"].items(), key=lambda item: order.get(item[0], len(order))))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
