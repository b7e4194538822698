"""Fourier features with trained frequencies (the "future research direction" of section 2.3), and when they help.

The signal has two sharp frequencies that are not multiples of 2π/(b − a). Harmonic features must include all
frequencies up to the highest, and represent each of the two by its neighbours. Trained frequencies start at the peaks
of the periodogram and move to the true ones. With few features the bound is therefore much higher; with many it is not.

The second part has three plane waves in two dimensions, and frequency vectors under a Gaussian window. A few
frequencies predict what the same number of inducing points cannot. But for the same training time, inducing points soon
reach a higher bound: they are cheaper, and each explains all frequencies in its neighbourhood, as the trace term of the
bound requires.
"""

import os
import time
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


def peaks(num):
    """The largest peaks of the periodogram, half a unit apart."""
    omega = np.linspace(0.3, 12.0, 800)
    power = np.abs(np.exp(1j * omega[:, None] * X[None, :]) @ y) ** 2
    chosen = []
    while len(chosen) < num:
        chosen.append(omega[np.argmax(power)])
        power[np.abs(omega - chosen[-1]) < 0.45] = 0.0
    return np.sort(chosen)


prior, likelihood = ig.GP(ig.kernels.Matern32(0.5)), ig.likelihoods.Gaussian(0.05)
options = {"method": "collapsed", "progress": False, "initialise": False}
sizes = [2] if quick else [4, 8, 20]
harmonic, free = [], []
for n in sizes:
    model = ig.Model(ig.SparseGP(prior, ig.features.Fourier(a, b, n)), likelihood)
    harmonic.append(ig.fit(model, (X, y), steps=steps, **options))
    model = ig.Model(ig.SparseGP(prior, ig.features.FreeFourier(a, b, peaks(n))), likelihood)
    if not free:  # kernel and noise first, since the optimum in the frequencies is narrow
        model = ig.fit(model, (X, y), steps=steps // 4, freeze=lambda m: m.layers[0].features, **options).model
        prior, likelihood = model.layers[0].prior, model.likelihood
    free.append(ig.fit(model, (X, y), steps=steps, **options))
    print(f"{n} frequencies: bound {harmonic[-1].bound:.1f} (harmonic), {free[-1].bound:.1f} (trained)")

inputs = rng.uniform(-1.0, 1.0, (200 if quick else 2000, 2))
waves = np.array([[14.0, 5.0], [-6.0, 16.0], [9.0, -12.0]])
clean = np.sin(inputs @ waves.T) @ [1.0, 0.7, 0.5]
labels = clean + 0.2 * rng.normal(size=len(clean))


def vector_peaks(num):
    """The largest peaks of the periodogram in the half-plane of frequency vectors, two units apart."""
    axis = np.linspace(-25.0, 25.0, 101)
    omega = np.stack(np.meshgrid(axis[51:], axis, indexing="ij"), -1).reshape(-1, 2)
    power = np.abs(np.exp(1j * inputs @ omega.T).T @ labels) ** 2
    chosen = []
    while len(chosen) < num:
        chosen.append(omega[np.argmax(power)])
        power[np.linalg.norm(omega - chosen[-1], axis=1) < 2.2] = 0.0
    return np.array(chosen)


def timed(features):
    """Features, the bound that they reach, the error of the prediction, and the seconds of the fit, compiled before."""
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential([0.2, 0.2])), features)
    model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    ig.fit(model, (inputs, labels), steps=1, **options)
    start = time.perf_counter()
    result = ig.fit(model, (inputs, labels), steps=5 if quick else 60, **options)
    seconds = time.perf_counter() - start
    rmse = np.sqrt(np.mean((np.asarray(result.model.posterior(inputs).mean[:, 0]) - clean) ** 2))
    name = f"{type(features).__name__}, M = {features.num_features}"
    print(f"{name}: bound {result.bound:.0f}, rmse {rmse:.3f}, {seconds:.1f} s")
    return seconds, result.bound


points = [
    timed(ig.features.InducingPoints(ig.initialise.kmeans(inputs, M))) for M in ([9] if quick else [50, 100, 200])
]
window = inputs.mean(axis=0), inputs.std(axis=0)
vectors = [timed(ig.features.GaussianFourier(vector_peaks(n), *window)) for n in ([4] if quick else [6, 25, 100])]

figure, (left, right, plane) = plt.subplots(1, 3, figsize=(15, 4), constrained_layout=True)
plane.plot(*zip(*points, strict=True), "o-", label="inducing points")
plane.plot(*zip(*vectors, strict=True), "s-", label="frequency vectors, Gaussian window")
plane.set(xlabel="seconds", ylabel="collapsed bound", title="Three plane waves in two dimensions")
plane.legend()
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
print("figure: out/trainable_frequencies.png")
