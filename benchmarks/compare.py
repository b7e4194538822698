"""Compare the speed of two checkouts of this library, interleaved in one run on one machine.

    python benchmarks/compare.py PATH_TO_OLD                       all float64 cases but those with a million rows
    python benchmarks/compare.py PATH_TO_OLD --cases deep svgp     groups or names of cases
    python benchmarks/compare.py PATH_TO_OLD --first               time from the start to the first step, and imports

Rounds alternate between the two checkouts, so that a slow minute of the machine affects both. A ratio above 1 means
that this checkout is slower. Differences up to 3 % are noise.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cases import JITTER, Case, arrays
from speed import ROOT, selected


class Checkout:
    """A worker process that runs the benchmarks' side of one checkout."""

    def __init__(self, root: Path):
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, str(root / "benchmarks" / "workers" / "ours.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=root,
            env=environment(root),
        )

    def ask(self, **request: Any) -> dict:
        """Send a request and wait for its answer."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"error": "the worker ended"}')
        if "error" in answer:
            sys.exit(f"{self.root}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


def environment(root: Path) -> dict[str, str]:
    """The environment in which Python imports the library from this checkout."""
    return os.environ | {"PYTHONPATH": str(root / "src")}


def load_request(case: Case, folder: str) -> dict[str, Any]:
    """The request that loads a case, with its arrays stored in the folder."""
    path = Path(folder) / "arrays.npz"
    np.savez(path, **arrays(case))
    return {"do": "load", "case": dataclasses.asdict(case) | {"jitter": JITTER[case.dtype]}, "arrays": str(path)}


def steady(cases: list[Case], old: Path, rounds: int, seconds: float) -> list[float]:
    """Print the milliseconds of a step for each case; the ratios of new to old."""
    checkouts = [Checkout(old), Checkout(ROOT)]
    ratios = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            request = load_request(case, folder)
            values = [checkout.ask(**request)["value"] for checkout in checkouts]
        step = checkouts[0].ask(do="time", steps=2)["ms"]
        steps = int(min(max(1e3 * seconds / step, 2), 400))
        times: list[list[float]] = [[], []]
        for i in range(rounds):
            for side in (0, 1) if i % 2 == 0 else (1, 0):
                time.sleep(0.3)
                times[side].append(checkouts[side].ask(do="time", steps=steps)["ms"])
        before, after = map(statistics.median, times)
        ratios.append(after / before)
        same = "same value" if values[0] == values[1] else f"values differ by {abs(values[0] - values[1]):.1e}"
        print(f"{case.name:28} {before:9.3f} {after:9.3f} {after / before:7.3f}  {same}", flush=True)
        for checkout in checkouts:
            checkout.ask(do="drop")
    for checkout in checkouts:
        checkout.close()
    return ratios


def first_steps(cases: list[Case], old: Path, rounds: int) -> list[float]:
    """Print the seconds of the first call, compilation included, in a new process for each; the ratios."""
    ratios = []
    for case in cases:
        times: list[list[float]] = [[], []]
        for _ in range(rounds):
            for side, root in enumerate((old, ROOT)):
                checkout = Checkout(root)
                with tempfile.TemporaryDirectory() as folder:
                    times[side].append(checkout.ask(**load_request(case, folder))["compile"])
                checkout.close()
        before, after = map(statistics.median, times)
        ratios.append(after / before)
        print(f"first {case.name:22} {before:9.3f} {after:9.3f} {after / before:7.3f}", flush=True)
    return ratios


def imports(old: Path, rounds: int) -> None:
    """Print the seconds of `import inducing`."""
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, root in enumerate((old, ROOT)):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import inducing"], check=True, env=environment(root))
            times[side].append(time.perf_counter() - started)
    before, after = map(statistics.median, times)
    print(f"{'import':28} {before:9.3f} {after:9.3f} {after / before:7.3f}", flush=True)


def main() -> None:
    """Parse the arguments, run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="the other checkout of this repository")
    parser.add_argument("--cases", nargs="+", help="names or groups of cases")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long one turn of one checkout lasts")
    parser.add_argument("--first", action="store_true", help="time the first step and the import instead")
    options = parser.parse_args()
    cases = [c for c in selected(options.cases) if c.dtype == "float64" and c.group != "million"]
    print(f"{'case':28} {'old':>9} {'new':>9} {'ratio':>7}")
    old = options.old.resolve()
    if options.first:
        imports(old, options.rounds)
        ratios = first_steps(cases, old, options.rounds)
    else:
        ratios = steady(cases, old, options.rounds, options.seconds)
    print(f"geometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}")


if __name__ == "__main__":
    main()
