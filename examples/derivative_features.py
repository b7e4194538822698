"""Function values and derivatives as inducing variables (section 2.3, derivative features; `features.Union`).

A value and a derivative at each of a few locations are nearly as good as values at twice as many locations. Left: q(f)
with 6 of each kind; they need not share locations. Right: the bound for equal numbers of features.
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

X = np.sort(rng.uniform(0.0, 6.0, 150))
y = np.sin(1.5 * X) + 0.5 * np.sin(4.0 * X) + 0.1 * rng.normal(size=150)
F, steps = ig.features, 5 if quick else 100


def both(Z):
    return F.Union((F.InducingPoints(Z), F.InducingDerivatives(Z)))


def train(features):
    model = ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern52(0.7)), features), ig.likelihoods.Gaussian(0.02))
    return ig.fit(model, (X, y), method="collapsed", steps=steps, progress=False)


def places(n):
    return np.linspace(0.3, 5.7, n)[:, None]


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
grid = np.linspace(-0.5, 6.5, 300)
sizes = [4] if quick else [4, 8, 12]
values = [train(F.InducingPoints(places(n))).bound for n in sizes]
results = [train(both(places(n // 2))) for n in sizes]
mixed = [r.bound for r in results]
result, K = results[-1], sizes[-1] // 2
predicted = result.model.posterior(grid)
mean, deviation = np.asarray(predicted.mean[:, 0]), np.sqrt(np.asarray(predicted.variance[:, 0]))
left.plot(X, y, "k.", ms=3, alpha=0.5)
left.plot(grid, mean, "C0")
left.fill_between(grid, mean - 2 * deviation, mean + 2 * deviation, color="C0", alpha=0.2, lw=0)
layer = result.model.layers[0].with_coordinates("u")
points, slopes = layer.features.parts
for (z,), value in zip(np.asarray(points.Z), np.asarray(layer.mean[0, :K]), strict=True):
    left.plot(z, value, "C1o")
at = result.model.posterior(np.asarray(slopes.Z)).mean
for (z,), value, slope in zip(np.asarray(slopes.Z), np.asarray(at[:, 0]), np.asarray(layer.mean[0, K:]), strict=True):
    left.plot([z - 0.25, z + 0.25], [value - 0.25 * slope, value + 0.25 * slope], "C3", lw=2)
left.set(title=f"{K} values (dots) and {K} slopes (bars); mean ± 2 s.d.", xlabel="x", ylim=(-2, 2))

right.plot(sizes, values, "o-", label="M values")
right.plot(sizes, mixed, "s-", label="M/2 values and M/2 slopes")
right.set(xlabel="number of features M", ylabel="collapsed bound, places trained", title="the bound")
right.legend()
print("bounds with values alone:", np.round(values, 1), "and with slopes:", np.round(mixed, 1))
Path("out").mkdir(exist_ok=True)
figure.savefig("out/derivative_features.png", dpi=120)
print("figure: out/derivative_features.png")
