"""Data larger than memory, and several processes: rows/s of reading, times of steps and passes, memory.

    python benchmarks/scale.py read [ROWS]              rows/s of streams, without training
    python benchmarks/scale.py processes [ROWS]         time per step and per pass on 1 and 2 processes
    python benchmarks/scale.py rows [MOST]              time per row and peak memory against the number of rows
    python benchmarks/scale.py overhead                 a step on a stream against one in memory
    python benchmarks/scale.py flights FILE             held-out log density, streamed and in memory

Parquet files are made on the fly, in a folder that is removed at the end.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import inducing as ig  # noqa: E402

if "INDUCING_PROCESS" in os.environ:
    ig.distributed.initialize()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet  # noqa: E402

D, M, BATCH = 8, 128, 8192
NAMES = [f"x{i}" for i in range(D)]


def write_rows(folder: Path, rows: int, per_file: int = 2**20, group: int = 2**16) -> None:
    """Synthetic rows: a sum of sines with noise."""
    rng = np.random.default_rng(0)
    for i, first in enumerate(range(0, rows, per_file)):
        X = rng.normal(size=(min(per_file, rows - first), D))
        y = np.sin(X).sum(axis=1) + 0.3 * rng.normal(size=len(X))
        table = pa.table({name: X[:, j] for j, name in enumerate(NAMES)} | {"y": y})
        pa.parquet.write_table(table, folder / f"{i:05d}.parquet", row_group_size=group, compression="none")


def stream_of(folder: Path) -> ig.Stream:
    return ig.Stream(folder, x=NAMES, y="y")


def model_of(data: ig.Data) -> ig.Model:
    Z = ig.initialise.random_subset(data.x, M, key=jax.random.key(0))
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(np.ones(D))), ig.features.InducingPoints(Z))
    return ig.initialise.scales(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), data)


def memory() -> float:
    """The peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def read(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), rows)
        stream = stream_of(Path(folder))
        for size in (1024, BATCH):
            began = time.perf_counter()
            count = sum(len(batch) for batch in itertools.islice(stream.rows(size, (0,)), rows // size))
            print(f"minibatches of {size:5d}: {count / (time.perf_counter() - began) / 1e6:6.2f} million rows/s")
        began = time.perf_counter()
        count = sum(len(chunk) for chunk in stream.chunks(2**16))
        rate = count / (time.perf_counter() - began) / 1e6
        print(f"in order:             {rate:6.2f} million rows/s, {memory():.0f} MB")


def steps_and_passes(data: object, sample: ig.Data) -> dict[str, float]:
    """Medians: the time of a step, that of a value and gradient of the collapsed bound per million rows."""
    model = model_of(sample)
    found = {"step": steps_of(data, sample)}
    if isinstance(data, ig.Stream):
        ig.fit(model, data, method="collapsed", steps=2, initialise=False, progress=False)
        began = time.perf_counter()
        ig.collapsed_elbo(model, data)
        found["pass"] = time.perf_counter() - began
    return found | {"memory": memory()}


def one_process(folder: str) -> None:
    stream = stream_of(Path(folder))
    found = steps_and_passes(stream, stream.sample())
    if jax.process_index() == 0:
        print("FOUND " + json.dumps(found), flush=True)


def launched(folder: str, processes: int) -> dict[str, float]:
    command = [sys.executable, "-m", "inducing", "launch", "--restarts", "0", "--processes", str(processes)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    if processes == 1 and sys.platform == "linux":
        command = ["taskset", "-c", "0", *command]
    out = subprocess.run([*command, __file__, "one", folder], env=env, capture_output=True, text=True, check=False)
    lines = [line for line in out.stdout.splitlines() if line.startswith("FOUND ")]
    if not lines:
        raise RuntimeError(out.stderr[-2000:])
    return json.loads(lines[-1].removeprefix("FOUND "))


def processes(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), rows)
        times: dict[int, list[dict[str, float]]] = {1: [], 2: []}
        for _ in range(2):  # interleaved
            for count, found in times.items():
                found.append(launched(folder, count))
        for what in ("step", "pass"):
            best = {count: min(one[what] for one in found) for count, found in times.items()}
            ratio = best[1] / best[2]
            print(f"{what}: 1 process {best[1] * 1e3:.1f} ms, 2 processes {best[2] * 1e3:.1f} ms, {ratio:.2f}×")


def rows_and_memory(most: int) -> None:
    rows = 10**5
    while rows <= most:
        with tempfile.TemporaryDirectory() as folder:
            write_rows(Path(folder), rows)
            found = launched(folder, 1)
        print(
            f"{rows:>11,} rows: step {found['step'] * 1e3:6.1f} ms, pass {found['pass']:8.2f} s, "
            f"{found['pass'] / rows * 1e6:6.2f} µs per row, {found['memory']:6.0f} MB",
            flush=True,
        )
        rows *= 10


def overhead() -> None:
    """Interleaved, on the same rows."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), 2**18)
        stream = stream_of(Path(folder))
        rows = next(stream.chunks(2**18))
        memory_data = ig.Data(rows.x, rows.y)
        times: dict[str, list[float]] = {"in memory": [], "streamed": []}
        for _ in range(3):
            for name, data in (("in memory", memory_data), ("streamed", stream)):
                times[name].append(steps_of(data, stream.sample()))
        best = {name: min(found) for name, found in times.items()}
        print(f"step in memory {best['in memory'] * 1e3:.2f} ms, streamed {best['streamed'] * 1e3:.2f} ms: ", end="")
        print(f"{best['streamed'] / best['in memory'] - 1:+.1%}")


def steps_of(data: object, sample: ig.Data) -> float:
    """The time of a step: what 60 of them take beyond 10; the first fit compiles."""
    model, seconds = model_of(sample), []
    for steps in (2, 10, 60):
        result = ig.fit(model, data, method="natgrad", batch_size=BATCH, steps=steps, initialise=False, progress=False)
        seconds.append(result.history.seconds[-1])
    return (seconds[2] - seconds[1]) / 50


def flights(path: str) -> None:
    """A file .npz with X and Y, of which a tenth is held out; columns are standardised."""
    table = np.load(path)
    table = np.hstack([table["X"], table["Y"].reshape(len(table["X"]), -1)])
    table = table[np.random.default_rng(0).permutation(len(table))]
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    X, y = table[:, :-1], table[:, -1]
    held = len(X) // 10
    train, test = (X[held:], y[held:]), (X[:held], y[:held])
    for name, data in (("in memory", train), ("streamed", ig.Stream(train))):
        Z = ig.initialise.kmeans(train[0], M, key=jax.random.key(0))
        gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(np.ones(X.shape[1]))), ig.features.InducingPoints(Z))
        result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), data, method="natgrad", steps=1000, progress=False)
        density = float(np.mean(result.model.predict(test[0]).log_prob(test[1])))
        print(f"{name}: mean held-out log density {density:.4f}; {result.message}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["read", "processes", "rows", "overhead", "flights", "one"])
    parser.add_argument("argument", nargs="?")
    options = parser.parse_args()
    run = {"read": read, "processes": processes, "rows": rows_and_memory}
    if options.what in run:
        run[options.what](int(float(options.argument or 2**21)))
    elif options.what == "overhead":
        overhead()
    elif options.what == "flights":
        flights(options.argument)
    else:
        one_process(options.argument)


if __name__ == "__main__":
    main()
