"""Fourier features whose frequencies are trained (the "future research direction" of section 2.3): when it pays.

A Matérn 3/2 process observed through a signal with a few sharp frequencies that are no multiples of 2π/(b − a). With a
handful of features, harmonics have to share the signal's energy between neighbours; trained frequencies go where it is.
"""

import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(1)

X = np.sort(rng.uniform(0.0, 10.0, 400))
truth = (5.3, 8.1)
y = np.sin(truth[0] * X) + 0.7 * np.cos(truth[1] * X) + 0.2 * rng.normal(size=400)
a, b, steps = -1.0, 11.0, 5 if quick else 100


def train(features):
    model = ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern32(0.5)), features), ig.likelihoods.Gaussian(0.1))
    return ig.fit(model, (X, y), method="collapsed", steps=steps, progress=False)


sizes = [4] if quick else [4, 8, 16, 24]
harmonic, free = [], []
for n in sizes:
    fixed = ig.features.Fourier(a, b, n)
    start = np.linspace(0.5, 10.0, n)
    harmonic.append(train(fixed))
    free.append(train(ig.features.FreeFourier(a, b, start)))
    print(f"{n} frequencies: bound {harmonic[-1].bound:.1f} (harmonic), {free[-1].bound:.1f} (trained)")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
left.plot(sizes, [r.bound for r in harmonic], "o-", label="harmonic, Kuu = D + VVᵀ")
left.plot(sizes, [r.bound for r in free], "s-", label="trained, Kuu dense")
left.set(
    xlabel="number of frequencies", ylabel="collapsed bound", title="With few features, training the frequencies pays"
)
left.legend()
trained = free[min(1, len(free) - 1)].model
grid = np.linspace(0.0, 10.0, 500)
predicted = trained.predict(grid)
mean = np.asarray(predicted.mean[:, 0])
right.plot(X, y, "k.", ms=2, alpha=0.5)
right.plot(grid, mean, "C1", lw=1)
frequencies = np.sort(np.asarray(trained.layers[0].features.frequencies))
right.set(
    title="trained frequencies " + ", ".join(f"{w:.1f}" for w in frequencies) + f"; true ones {truth[0]}, {truth[1]}",
    xlabel="x",
)
right.title.set_fontsize(9)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/trainable_frequencies.png", dpi=120)
