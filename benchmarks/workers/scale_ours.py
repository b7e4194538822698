"""One process of `benchmarks/scale.py`: runs the jobs of a list in JSON and prints what they gave in JSON.

Each job is a pair of the name of a function below and its arguments.
"""

import json
import resource
import statistics
import sys
import time
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import inducing as ig  # noqa: E402

ig.distributed.initialize()

import numpy as np  # noqa: E402

from inducing._xla import compiled, copied, num_devices, on_each_device, sum_over_devices  # noqa: E402
from inducing.bounds.passes import Pass  # noqa: E402
from inducing.parameters import partition  # noqa: E402
from inducing.training.ascent_by_passes import StreamedAscent  # noqa: E402
from inducing.training.problem import make_problem  # noqa: E402

D, M = 8, 128
NAMES = [f"x{i}" for i in range(D)]
FIRST = 20  # steps that are not counted: the first ones compile


def stream_of(source: Any) -> ig.Stream:
    """The stream of a folder or of a list of files."""
    return ig.Stream(source, x=NAMES, y="y")


def model_of(data: ig.Data, columns: int = D) -> ig.Model:
    """A sparse GP with M inducing points."""
    Z = ig.initialise.random_subset(data.x, M, key=jax.random.key(0))
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(np.ones(columns))), ig.features.InducingPoints(Z))
    return ig.initialise.scales(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), data)


def memory() -> float:
    """The peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def a_step(model: ig.Model, data: Any, size: int, method: str, steps: int) -> float:
    """The median time of a step of a fit."""
    result = ig.fit(model, data, method=method, batch_size=size, steps=FIRST + steps, initialise=False, progress=False)
    return statistics.median(np.diff(result.history.seconds)[FIRST:])


def steps(source: Any, size: int, method: str, count: int) -> float:
    """The time of a step on a stream."""
    stream = stream_of(source)
    return a_step(model_of(stream.sample()), stream, size, method, count)


def passes(source: Any, repeats: int) -> dict[str, float]:
    """The least time of a value of the collapsed bound, and of a value with its gradient."""
    stream = stream_of(source)
    model = model_of(stream.sample())
    problem = make_problem(model, partition(model, lambda m: m.layers[0].gaussians()), stream.sample())
    ascent = StreamedAscent(problem, Pass(stream, stream.sample()), None)
    found: dict[str, list[float]] = {"value": [], "gradient": []}
    for _ in range(1 + repeats):
        for name, call in (
            ("value", lambda: float(ig.collapsed_elbo(model, stream))),
            ("gradient", lambda: ascent.numbers(problem.free, None)),
        ):
            began = time.perf_counter()
            call()
            found[name].append(time.perf_counter() - began)
    return {name: min(times[1:]) for name, times in found.items()}


def all_reduce(numbers: int, repeats: int) -> float:
    """The median time of a program that is one all-reduce of so many numbers of 8 bytes."""
    if num_devices() == 1:
        return 0.0
    vector, times = copied(np.ones(numbers)), []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(compiled(_reduced)(vector))
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def _reduced(vector: Any) -> Any:
    return on_each_device(sum_over_devices, (vector,), ())


def reduced_numbers(source: Any) -> int:
    """How many numbers the all-reduce of a step adds up: value, gradient and signals."""
    model = model_of(stream_of(source).sample())
    return 5 + sum(a.size for a in partition(model, lambda m: ()).free)


def reading(source: Any, size: int, parts: int) -> dict[str, float]:
    """An epoch of one part's share of minibatches, without training: rows/s, and which share of all rows it read."""
    stream = stream_of(source)
    original, read, until = stream._source.read, 0, []

    def counted(block: int) -> Any:
        nonlocal read
        rows = original(block)
        read += len(rows)
        return rows

    def prepare(rows: Any) -> int:
        until.append(read)  # when this minibatch is ready; the thread reads on into the next epoch
        return len(rows)

    stream._source.read = counted
    batches, number, began = stream.rows(size, (0,), 0, 0, parts, prepare), len(stream) // size, time.perf_counter()
    rows = sum(next(batches) for _ in range(number))
    seconds = time.perf_counter() - began
    batches.close()
    return {"rate": rows / seconds, "share": until[number - 1] / len(stream), "memory": memory()}


def in_order(source: Any) -> float:
    """Rows/s of a pass in the order of the files, without training."""
    began = time.perf_counter()
    rows = sum(len(chunk) for chunk in stream_of(source).chunks(2**16))
    return rows / (time.perf_counter() - began)


def counting(source: Any) -> dict[str, float]:
    """The seconds to count the rows and to draw the sample."""
    began = time.perf_counter()
    stream = stream_of(source)
    counted = time.perf_counter()
    stream.sample()
    return {"rows": len(stream), "count": counted - began, "sample": time.perf_counter() - counted, "memory": memory()}


def overhead(source: Any, size: int, count: int, rounds: int) -> dict[str, float]:
    """The time of a step in memory and on a stream of the same rows, interleaved."""
    stream = stream_of(source)
    rows = next(stream.chunks(len(stream)))
    data = {"in memory": ig.Data(rows.x, rows.y), "streamed": stream}
    model, times = model_of(stream.sample()), {name: [] for name in data}
    for _ in range(rounds):
        for name, given in data.items():
            times[name].append(a_step(model, given, size, "natgrad", count))
    return {name: min(found) for name, found in times.items()}


def flights(path: str, count: int) -> dict[str, dict[str, float]]:
    """The mean held-out log density after fits in memory and on a stream; columns are standardised."""
    table = np.load(path)
    table = np.hstack([table["X"], table["Y"].reshape(len(table["X"]), -1)])
    table = table[np.random.default_rng(0).permutation(len(table))]
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    X, y = table[:, :-1], table[:, -1]
    held = len(X) // 10
    train, test, found = (X[held:], y[held:]), (X[:held], y[:held]), {}
    model = model_of(ig.Data(*train), X.shape[1])
    for name, data in (("in memory", train), ("streamed", ig.Stream(train))):
        began = time.perf_counter()
        result = ig.fit(model, data, method="natgrad", batch_size=1024, steps=count, progress=False)
        seconds = time.perf_counter() - began
        density = float(np.mean(result.model.predict(test[0]).log_prob(test[1])))
        found[name] = {"density": density, "seconds": seconds, "rows": len(train[0]), "held out": held}
    return found


def peak() -> float:
    """The peak memory of this process in MB."""
    return memory()


if __name__ == "__main__":
    found = [globals()[name](*arguments) for name, *arguments in json.loads(sys.argv[1])]
    if jax.process_index() == 0:
        print("FOUND " + json.dumps(found), flush=True)
