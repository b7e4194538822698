"""Learning online: a sensor that drifts, seen in batches of 50 readings that are thrown away after each update.

`ig.update` adds the bound's factor (q_old(a) / p_old(a))^λ for what was learnt from old rows (Bui, Nguyen & Turner
2017). With λ = 1 nothing is forgotten, and the model keeps believing in the past; with λ = 0.7 it follows the drift.
The cost of an update does not depend on the number of rows seen before. Left: predictions at the end of the stream.
Middle: the error of predictions of the next batch. Right: new features join where
the stream moves to, and hyperparameters adapt.
"""

import os
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
BATCHES = 6 if os.environ.get("INDUCING_QUICK") else 40
rng = np.random.default_rng(0)


def readings(t):
    """Batch t of a sensor whose response moves to the right."""
    x = rng.uniform(0.0, 10.0, 50)
    return x, np.sin(x - 0.08 * t) + 0.2 * rng.normal(size=50)


Z = np.linspace(0.0, 10.0, 15)[:, None]
start = ig.Model(
    ig.SparseGP(ig.GP(ig.kernels.Matern52(2.0)), ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian(0.04)
)
models, errors, seconds = {1.0: start, 0.7: start}, {1.0: [], 0.7: []}, []
for t in range(BATCHES):
    x, y = readings(t)
    for memory, model in models.items():
        errors[memory].append(float(np.sqrt(np.mean((np.asarray(model.predict(x).mean)[:, 0] - y) ** 2))))
        begin = time.perf_counter()
        models[memory] = ig.update(model, (x, y), memory=memory)
        seconds.append(time.perf_counter() - begin)
half = len(seconds) // 2
print(f"seconds per update: {np.median(seconds[2:half]):.4f} in the first half, {np.median(seconds[half:]):.4f} after")
for memory, values in errors.items():
    print(f"memory {memory}: RMSE of the next batch {np.mean(values[len(values) // 2 :]):.3f} (noise 0.2)")

# A stream that moves to new inputs: new points join, and hyperparameters adapt once.
pieces = [np.sort(rng.uniform(3 * i, 3 * (i + 1), 40)) for i in range(3)]
labels = [np.cos(1.5 * x) + 0.2 * rng.normal(size=x.size) for x in pieces]
grown = ig.Model(
    ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(np.linspace(0, 3, 6)[:, None])),
    ig.likelihoods.Gaussian(0.04),
)
grown = ig.fit(grown, (pieces[0], labels[0]), progress=False, steps=200).model
for i in (1, 2):
    more = ig.features.InducingPoints(
        np.concatenate([grown.layers[0].features.Z, np.linspace(3 * i + 0.5, 3 * i + 3, 6)[:, None]])
    )
    grown = ig.update(grown, (pieces[i], labels[i]), features=more, adapt=True, steps=5 if BATCHES < 10 else 150)

fig, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
grid = np.linspace(0.0, 10.0, 200)
axes[0].plot(x, y, "k.", label="last batch")
for memory, model in models.items():
    axes[0].plot(grid, model.predict(grid).mean, label=f"memory {memory}")
    axes[1].plot(errors[memory], label=f"memory {memory}")
axes[0].set(title="The end of a stream with drift", xlabel="x")
axes[1].set(title="Error of the next batch", xlabel="batch", ylabel="RMSE")
axes[1].axhline(0.2, color="k", lw=0.8, ls=":")
wide = np.linspace(-0.5, 9.5, 200)
pred = grown.predict(wide)
low, high = (np.asarray(a)[:, 0] for a in pred.interval(0.95))
axes[2].fill_between(wide, low, high, alpha=0.2)
axes[2].plot(wide, pred.mean)
for x, y in zip(pieces, labels, strict=True):
    axes[2].plot(x, y, ".", ms=4)
axes[2].plot(grown.layers[0].features.Z[:, 0], np.full(18, -1.8), "k|", label="inducing points")
axes[2].set(title="Three pieces, one after the other", xlabel="x")
for axis in axes:
    axis.legend(frameon=False)
Path("out").mkdir(exist_ok=True)
fig.savefig("out/online.png", dpi=120)
print("figure: out/online.png")
