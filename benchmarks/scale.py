"""Data larger than memory, and several processes: reading, steps, passes, memory, and a model of what they cost.

    python benchmarks/scale.py                                  everything: about ten minutes on two cores
    python benchmarks/scale.py --only processes rows            some of it
    python benchmarks/scale.py --largest 1e7                    fewer rows
    python benchmarks/scale.py --quick                          tiny sizes, to see whether it runs
    python benchmarks/scale.py --only                           only write the tables

Synthetic Parquet files are written into a folder that is removed at the end; `--largest` and half of the free disk
limit them. Each measurement has processes of its own (`benchmarks/workers/scale_ours.py`), one core for each. Results
are merged into `benchmarks/results/scale.json`, and tables are written into `docs/scale.md`. The data of
`nyc_flights` are in the folder that `INDUCING_DATA` names (default `../shared/data`).
"""

import argparse
import datetime
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import scipy.optimize
from speed import HERE, machine

PAGE, RESULTS, WORKER = HERE.parent / "docs" / "scale.md", HERE / "results" / "scale.json", HERE / "workers"
D, M, BATCH, FILE, GROUP = 8, 128, 8192, 2**17, 2**16
BYTES = 8 * (D + 1)  # of a row
UNALIGNED = 4992  # rows of a minibatch, so that windows do not end where row groups do
LIMIT = 300  # seconds that the processes of one measurement may take
GPU, NCCL = 300, 2e-5  # assumed: how much faster than a core a GPU is, and seconds of a message between GPUs
ETHERNET = 5e-5  # assumed: seconds of a message between machines


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
        batches: sizes of minibatches.
        rows: rows of minibatches in a measurement.
        passes: numbers of files of a pass.
        epoch: rows of which an epoch is read.
        most: the most rows over which a pass is timed.
        flights: steps on nyc_flights.
        rounds: how often measurements that are compared are repeated in turn.
    """

    batches: tuple[int, ...]
    rows: int
    passes: tuple[int, ...]
    epoch: int
    most: int
    flights: int
    rounds: int


FULL = Sizes((1024, 4096, BATCH, 16384), 300_000, (1, 2, 4), 2**22, 10**6, 1000, 2)
QUICK = Sizes((512, 1024, BATCH), 5_000, (1, 2), 2**18, 10**5, 60, 1)


def write_rows(folder: Path, rows: int) -> list[str]:
    """Files of a sum of sines with noise. All hold the same rows, each in another order: that is faster to make."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(min(FILE, rows), D))
    columns = [*X.T, np.sin(X).sum(axis=1) + 0.3 * rng.normal(size=len(X))]
    names = [*(f"x{i}" for i in range(D)), "y"]
    paths = []
    for i, first in enumerate(range(0, rows, FILE)):
        here = [np.roll(column, 977 * i)[: rows - first] for column in columns]
        paths.append(str(folder / f"{i:05d}.parquet"))
        whole = pa.table(dict(zip(names, here, strict=True)))
        pa.parquet.write_table(whole, paths[-1], row_group_size=GROUP, compression="none", use_dictionary=False)
    return paths


def run(processes: int, jobs: list[list[Any]], cores: int | None = None, cache: str | None = None) -> list[Any]:
    """The results of processes with one core each, or of one process with `cores` cores."""
    command = [sys.executable, "-m", "inducing", "launch", "--restarts", "0", "--processes", str(processes)]
    if sys.platform == "linux" and processes == 1:
        command = ["taskset", "-c", f"0-{(cores or 1) - 1}", *command]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")}
    if cache is not None:
        env |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    worker = [str(WORKER / "scale_ours.py"), json.dumps(jobs)]
    with subprocess.Popen([*command, *worker], env=env, stdout=-1, stderr=-1, text=True) as running:
        try:
            said, errors = running.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            running.terminate()  # it ends its processes
            sys.exit(f"{processes} processes took more than {LIMIT} seconds at {jobs}.")
    lines = [line for line in said.splitlines() if line.startswith("FOUND ")]
    if running.returncode or not lines:
        sys.exit(f"{processes} processes failed at {jobs}:\n{errors[-3000:]}")
    return json.loads(lines[-1].removeprefix("FOUND "))


def read(folder: Path, sizes: Sizes, largest: int) -> dict[str, Any]:
    """How many rows are read per second, and which share of them one of several processes reads."""
    files, small = write_rows(folder, min(sizes.epoch, largest)), sizes.batches[0]
    jobs = [["in_order", files], *(["reading", files, size, 1] for size in (small, BATCH))]
    shares = (2, 4, 8, 64)
    jobs += [["reading", files, BATCH, parts] for parts in shares]
    jobs.append(["reading", files, UNALIGNED, 2])
    order, *found = run(1, jobs)
    return {
        "rows": len(files) * FILE,
        "in order": order,
        "minibatches": {str(small): found[0]["rate"], str(BATCH): found[1]["rate"]},
        "shares": {str(parts): one["share"] for parts, one in zip(shares, found[2:], strict=False)},
        "unaligned": found[-1]["share"],
    }


def processes(folder: Path, sizes: Sizes, largest: int) -> dict[str, Any]:
    """Times of steps and passes on 1, 2 and 4 processes: the least of several runs, in which 1 and 2 alternate."""
    files = write_rows(folder, min(FILE * max(sizes.passes), largest))
    jobs: list[list[Any]] = [["reduced_numbers", files], *(["all_reduce", 2**k, 40] for k in (10, 14, 18))]
    kinds = [("natgrad", size) for size in sizes.batches] + [("adam", BATCH)]
    for method, size in kinds:
        jobs.append(["steps", files, size, method, max(20, sizes.rows // size)])
    jobs += [["passes", files[:count], 2] for count in sizes.passes]
    found: dict[int, list[list[Any]]] = {1: [], 2: [], 4: []}
    with tempfile.TemporaryDirectory() as cache:
        for count in [*(1, 2) * sizes.rounds, 4]:
            found[count].append(run(count, jobs, cache=cache))
    steps, bounds = [], []
    for count, rounds in found.items():
        for i, (method, size) in enumerate(kinds, 4):
            least = min(one[i] for one in rounds)
            steps.append({"processes": count, "method": method, "size": size, "seconds": least})
        for i, number in enumerate(sizes.passes, 4 + len(kinds)):
            for kind in ("value", "gradient"):
                least = min(one[i][kind] for one in rounds)
                bounds.append({"processes": count, "kind": kind, "size": number * FILE, "seconds": least})
    reduced = {
        str(count): {str(2**k): min(one[i] for one in found[count]) for i, k in enumerate((10, 14, 18), 1)}
        for count in (2, 4)
    }
    return {"numbers": found[1][0][0], "all-reduce": reduced, "steps": steps, "passes": bounds}


def rows(folder: Path, sizes: Sizes, largest: int) -> list[dict[str, Any]]:
    """Times and peak memory against the number of rows. The largest is read for one epoch, without training."""
    most = min(largest, shutil.disk_usage(folder).free // (2 * BYTES))
    out = []
    for number in itertools.takewhile(lambda n: n <= most, (10**k for k in range(5, 10))):
        inside = folder / str(number)
        inside.mkdir()
        files = write_rows(inside, number)
        jobs: list[list[Any]] = [["counting", files], ["steps", files, BATCH, "natgrad", max(20, sizes.rows // BATCH)]]
        jobs += [["peak"], ["reading", files, BATCH, 1]]
        if number <= sizes.most:
            jobs.append(["passes", files, 1])
        count, step, peak, epoch, *of_passes = run(1, jobs)
        size = sum(os.path.getsize(path) for path in files)
        shutil.rmtree(inside)
        out.append({"rows": number, "bytes": size, "count": count, "step": step, "peak": peak, "epoch": epoch})
        out[-1] |= {"passes": of_passes[0]} if of_passes else {}
    return out


def overhead(folder: Path, sizes: Sizes, largest: int) -> dict[str, Any]:
    """A step on a stream against one in memory, on one core and on two."""
    files = write_rows(folder, min(2 * FILE, largest))
    job = [["overhead", files, BATCH, max(20, sizes.rows // BATCH), sizes.rounds + 1]]
    return {str(cores): run(1, job, cores)[0] for cores in (1, 2)}


def flights(folder: Path, sizes: Sizes, largest: int) -> dict[str, Any]:
    """Held-out log densities, streamed and in memory."""
    data = Path(os.environ.get("INDUCING_DATA", HERE.parent.parent / "shared" / "data"))
    return run(1, [["flights", str((data / "nyc_flights.npz").resolve()), sizes.flights]], 2)[0]


PARTS = {"read": read, "processes": processes, "rows": rows, "overhead": overhead, "flights": flights}


def cost(processes: int, size: int, cores: int = 2) -> list[float]:
    """The factors of r, s and a: rows of a core, processes of a core, and consecutive messages of the ring."""
    here = min(processes, cores)
    return [size / here, processes / here, 2 * (processes - 1)]


def fitted(measured: list[dict[str, Any]]) -> np.ndarray:
    """r, s and a by least squares of relative errors, all at least 0."""
    seconds = np.array([one["seconds"] for one in measured])
    A = np.array([cost(one["processes"], one["size"]) for one in measured]) / seconds[:, None]
    return scipy.optimize.nnls(A, np.ones(len(seconds)))[0]


def model(results: dict[str, Any]) -> dict[str, Any]:
    """The constants of steps and passes, and their predictions of measurements that were not used.

    Fitted to one and two processes, without minibatches of 8,192 rows and without the second largest pass. The others
    and all of four processes are predicted.
    """
    measured = {
        "step": [one for one in results["processes"]["steps"] if one["method"] == "natgrad"],
        "gradient": [one for one in results["processes"]["passes"] if one["kind"] == "gradient"],
    }
    out: dict[str, Any] = {}
    for name, those in measured.items():
        left_out = BATCH if name == "step" else sorted({one["size"] for one in those})[-2]
        used = [one for one in those if one["processes"] <= 2 and one["size"] != left_out]
        constants = fitted(used)
        rest = [one for one in those if one not in used]
        checks = [one | {"predicted": float(constants @ cost(one["processes"], one["size"]))} for one in rest]
        out[name] = {"constants": constants.tolist(), "checks": checks}
    return out


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, and write results and tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--largest", type=lambda text: int(float(text)), default=10**8, help="the most rows")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; the page is not written")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    options = parser.parse_args(arguments)
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    sizes = QUICK if options.quick else FULL
    for name in options.only:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            results[name] = PARTS[name](Path(folder), sizes, options.largest)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        results |= {"machine": machine(), "date": datetime.date.today().isoformat()}
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    if "processes" in results:
        results["model"] = model(results)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    if not options.quick:
        from scale_tables import write_tables

        write_tables(results)
    return results


if __name__ == "__main__":
    main()
