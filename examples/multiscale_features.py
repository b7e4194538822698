"""Multiscale features (Lázaro-Gredilla & Figueiras-Vidal 2009): inducing features with trained widths.

Each u[m] averages f with a Gaussian weight of trained location and width. Where f is smooth, a wide average is more
informative than a point value, so with few features the bound is slightly higher than with as many inducing points.
"""

import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)

X = np.sort(rng.uniform(0.0, 10.0, 400))
y = np.sin(0.8 * X) + np.exp(-((X - 3.0) ** 2) / 0.05) + 0.1 * rng.normal(size=400)
F, steps = ig.features, 5 if quick else 150


def train(features):
    prior = ig.GP(ig.kernels.SquaredExponential(0.3))
    model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(0.02))
    return ig.fit(model, (X, y), method="collapsed", steps=steps, progress=False)


def multiscale(n):
    return F.Multiscale(np.linspace(0.2, 9.8, n)[:, None], np.full((n, 1), 0.2))


sizes = [6, 8] if quick else [6, 10, 16]
scales = [train(multiscale(n)) for n in sizes]
points = [train(F.InducingPoints(np.linspace(0.2, 9.8, n)[:, None])) for n in sizes]
for n, s, p in zip(sizes, scales, points, strict=True):
    print(f"M = {n}: bound {s.bound:.1f} (multiscale), {p.bound:.1f} (points)")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
best = scales[min(1, len(scales) - 1)].model
grid = np.linspace(0.0, 10.0, 400)
posterior = best.posterior(grid)
mean, deviation = np.asarray(posterior.mean[:, 0]), np.sqrt(np.asarray(posterior.variance[:, 0]))
left.plot(X, y, "k.", ms=2, alpha=0.4)
left.plot(grid, mean, "C0")
left.fill_between(grid, mean - 2 * deviation, mean + 2 * deviation, color="C0", alpha=0.2, lw=0)
features = best.layers[0].features
for i, (z, s) in enumerate(zip(np.asarray(features.Z[:, 0]), np.asarray(features.widths[:, 0]), strict=True)):
    left.plot([z - s, z + s], [-1.6 - 0.08 * (i % 3)] * 2, "C1", lw=2)
    left.plot(z, -1.6 - 0.08 * (i % 3), "C1|", ms=8)
left.set(title=f"{features.num_features} multiscale features: bars are places ± widths", xlabel="x")
right.plot(sizes, [s.bound for s in scales], "o-", label="multiscale")
right.plot(sizes, [p.bound for p in points], "s-", label="inducing points")
right.set(xlabel="number of features M", ylabel="collapsed bound", title="the bound")
right.legend()
Path("out").mkdir(exist_ok=True)
figure.savefig("out/multiscale_features.png", dpi=120)
print("figure: out/multiscale_features.png")
