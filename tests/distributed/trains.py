"""What each process of the tests runs: fits on a stream; process 0 writes what they gave.

Arguments: the folder for the results, and which of the fits.
"""

import json
import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax

jax.config.update("jax_enable_x64", True)
if devices := os.environ.get("DEVICES"):
    jax.config.update("jax_num_cpu_devices", int(devices))

import inducing as ig  # noqa: E402

ig.distributed.initialize()

import numpy as np  # noqa: E402

from inducing._xla import compiled, copied, local, num_devices, process, spread  # noqa: E402
from inducing.bounds.passes import Pass, _add, _reduced, sums_of_rows  # noqa: E402
from inducing.parameters import partition  # noqa: E402
from inducing.training import compiled_steps, gradient_steps  # noqa: E402
from inducing.training.ascent_by_passes import StreamedAscent  # noqa: E402
from inducing.training.problem import make_problem  # noqa: E402

N, B = 1000, 64
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.sin(2 * X[:, :1]) + 0.1 * RNG.normal(size=(N, 1))
Y[::17] = np.nan
folder, kinds = Path(sys.argv[1]), sys.argv[2:]
stream = ig.Stream((X, Y), window=256)
fit = partial(ig.fit, data=stream, progress=True)


def model():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(np.ones(2))), ig.features.InducingPoints(X[:10]))
    return ig.Model(gp, ig.likelihoods.Gaussian(0.1))


def flat(tree):
    return np.concatenate([np.ravel(np.asarray(a, float)) for a in jax.tree.leaves(tree)])


def collectives(program, *args):
    text = compiled(program).lower(*args).compile().as_text()
    return {
        kind: len(re.findall(rf" {kind}(?:-start)?\(", text)) for kind in ("all-reduce", "all-gather", "all-to-all")
    }


def passes():
    """Value and gradient of the collapsed bound, and the all-reduces of the programs of a pass."""
    problem = make_problem(model(), partition(model(), lambda m: m.layers[0].gaussians()), stream.sample())
    one = Pass(stream, stream.sample())
    found = {"numbers": StreamedAscent(problem, one, None).numbers(problem.free, None).tolist()}
    chunk = next(one._readable(stream.chunks(one._size, *process(), lambda rows: host(rows)), stream.sample()))
    same = copied((model(),))
    total = one._zeros(sums_of_rows, same, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), chunk))
    signals = spread([np.zeros((num_devices() // process()[1], 4))])
    found["of adding"] = collectives(_add, sums_of_rows, same, total, chunk)
    found["of a pass"] = collectives(_reduced, total, *signals)
    return found


def host(rows):
    from inducing.streams.stream import arrays_of

    return arrays_of(rows, float)


def steps(method="natgrad", **options):
    """A fit by gradient steps."""
    found = {}
    result = fit(model(), method=method, batch_size=B, steps=20, **options)
    found["bound"], found["model"] = result.history.bound.tolist(), flat(result.model).tolist()
    return found


def of_a_step():
    """The all-reduces of a step with natural gradients and Adam."""
    import inducing.training.batches as batches

    seen = []

    def spy(fn, **options):
        program = compiled(fn, **options)
        if fn is not compiled_steps.advance_on:
            return program

        def call(*args):
            if not seen:
                seen.append(collectives(fn, *args))
            return program(*args)

        return call

    setattr(batches, "compiled", spy)  # noqa: B010
    fit(model(), method="natgrad", batch_size=B, steps=1)
    return seen[0]


def collapsed():
    result = fit(model(), method="collapsed", steps=10)
    upper = ig.evidence_upper_bound(result.model, stream)
    return {"bound": result.history.bound.tolist(), "model": flat(result.model).tolist(), "upper": float(upper)}


def checkpointed():
    """A fit that takes a checkpoint every few steps; `DIE` says which process kills itself or stops at which step."""
    victim, at, how = os.environ.get("DIE", "-1,0,0").split(",")
    mark = folder / "died"

    def die(progress):
        if process()[0] == int(victim) and progress.step >= int(at) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), int(how))

    result = fit(
        model(), method="natgrad", batch_size=B, steps=120, callback=die, checkpoint=folder / "run", checkpoint_every=20
    )
    return {"bound": result.history.bound.tolist(), "model": flat(result.model).tolist()}


def stopped():
    """A callback of one process asks to stop, and the time of another one is up: all end at the same step."""

    def ask(progress):
        return process()[0] == process()[1] - 1 and progress.step >= 30

    speed = 1e6 if process()[0] == 0 else 1.0  # by its clock, the first process needs much longer for a step
    setattr(gradient_steps, "time", SimpleNamespace(perf_counter=lambda: speed * time.perf_counter()))  # noqa: B010
    first = fit(model(), method="adam", batch_size=B, steps=4000, callback=ask)
    second = fit(model(), method="adam", batch_size=B, steps=10**6, seconds=3.0 + 5.0 * process()[0])
    return {
        "asked": len(first.history.bound),
        "reason": first.message,
        "in time": len(second.history.bound),
        "time": second.message,
    }


def unreadable():
    """One process cannot read a batch: all raise."""

    trains = False

    def batches():
        for i in range(0, N, 100):
            if i == 500 and process()[0] == process()[1] - 1 and trains:
                raise OSError("the disk is gone")
            yield X[i : i + 100], Y[i : i + 100]

    broken = ig.Stream(batches, num_data=N, window=256)
    broken.sample()
    trains = True
    try:
        ig.fit(model(), broken, method="adam", batch_size=B, steps=100, progress=False)
    except (OSError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def different_calls():
    """Processes that differ in their rows, models, arguments or checkpoints: all of them say so."""
    own = process()[0]
    private = folder / f"private-{own}"
    rows = ig.Stream((X + own, Y)), {}, {}
    models = stream, {"likelihood": ig.likelihoods.Gaussian(0.1 + 0.1 * own)}, {}
    arguments = stream, {}, {"learning_rate": 0.01 * (1 + own)}
    folders = stream, {}, {"checkpoint": private}
    if own == 0:
        private.mkdir()
        (private / "start-0-steps.safetensors").touch()
    said = []
    for data, parts, options in (rows, models, arguments, folders):
        try:
            there = ig.Model(model().layers[0], **{"likelihood": model().likelihood, **parts})
            ig.fit(there, data, method="adam", batch_size=B, steps=2, progress=False, **options)
        except ValueError as error:
            said.append(str(error))
    return said


def predicted():
    """Each process predicts its own files."""
    return [path.name for path in ig.predict_files(model(), folder / "new", folder / "predicted")]


def spread_rows():
    """What users of arrays whose rows are on several processes are told, and that what all of them hold works."""
    n = N // process()[1]
    X_here, Y_here = X[process()[0] * n :][:n], np.nan_to_num(Y[process()[0] * n :][:n])
    data = ig.Data(X_here, Y_here)
    spread_data = jax.tree.unflatten(jax.tree.structure(data), spread(jax.tree.leaves(data)))
    rows = spread([X_here])[0]
    calls = {
        "data": lambda: ig.Data(rows),
        "elbo": lambda: ig.elbo(model(), spread_data),
        "fit": lambda: ig.fit(model(), spread_data, steps=1),
        "predict": lambda: model().predict(rows),
        "initialise": lambda: ig.initialise.kmeans(rows, 3),
        "index": lambda: ig.Data(X_here, Y_here, index=spread_data.index),
        "plot": lambda: ig.report.plot_posterior(model(), data=spread_data),
    }
    said = {}
    for name, call in calls.items():
        try:
            call()
        except ValueError as error:
            said[name] = str(error)
    same, own = copied((model(), data))
    worked = float(ig.elbo(local(same), own)), float(model().predict(copied((X_here,))[0]).variance.sum())
    return {
        "said": said,
        "calls": list(calls),
        "worked": worked,
        "expected": [float(ig.elbo(model(), data)), float(model().predict(X_here).variance.sum())],
    }


found = {kind: globals()[kind]() for kind in kinds}
found["devices"] = num_devices()
(folder / f"result-{process()[0]}.json").write_text(json.dumps(found))
