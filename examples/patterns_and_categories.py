"""Two kernels: spectral mixtures, which find periodic patterns by themselves, and categories.

Left: a sum of two waves with noise, of which the last third is held out. `ig.kernels.SpectralMixture.from_data` takes
initial frequencies from the spectrum of the data. A Matérn kernel fits as well, but returns to its mean beyond them.
Right: sales of shops of which some have few records, and one none. `ig.kernels.Categorical` shares what shops have in
common: each shop has its own curve, close to those of the others, and the new shop gets their average with a wide
interval.
"""

import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
QUICK = bool(os.environ.get("INDUCING_QUICK"))
STEPS = 5 if QUICK else 150
rng = np.random.default_rng(0)
fig, axes = plt.subplots(1, 2, figsize=(13, 3.8), layout="constrained", width_ratios=(3, 2))

x = np.linspace(0.0, 30.0, 300)
truth = np.sin(2 * np.pi * 0.31 * x) + 0.7 * np.cos(2 * np.pi * 0.83 * x)
y = truth + 0.2 * rng.normal(size=300)
train = x < 20.0
axes[0].plot(x, y, "k.", ms=3)
kernels = {
    "Matérn 5/2": ig.kernels.Matern52(),
    "spectral mixture": ig.kernels.SpectralMixture.from_data(x[train], y[train], num=3),
}
for name, kernel in kernels.items():
    gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(np.linspace(0.0, 20.0, 60)[:, None]))
    model = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(0.04)), (x[train], y[train]), steps=STEPS, progress=False).model
    mean = np.asarray(model.predict(x).mean)[:, 0]
    error = np.sqrt(np.mean((mean - truth)[~train] ** 2))
    print(f"{name}: RMSE beyond the data {error:.2f} of {truth.std():.2f}")
    axes[0].plot(x, mean, label=f"{name}, error {error:.2f}")
found = model.layers[0].prior.kernel
print(f"frequencies {np.round(np.asarray(found.means)[:, 0], 3)}, weights {np.round(np.asarray(found.weights), 2)}")
axes[0].axvline(20.0, color="0.5", ls=":")
axes[0].set(title="Patterns that continue beyond the data", xlabel="x", ylim=(-2.6, 2.2))
axes[0].legend(frameon=False, ncols=2, loc="lower left")

counts = [40, 40, 40, 6, 3]
shop = np.repeat(np.arange(5.0), counts)
week = rng.uniform(0.0, 10.0, len(shop))
sales = 3 + np.sin(week) + 0.4 * shop * np.cos(0.5 * week) + 0.15 * rng.normal(size=len(shop))
rows = np.column_stack([week, shop])
common = ig.kernels.ActiveDims(ig.kernels.Matern52(2.0), (0,))
own = ig.kernels.ActiveDims(ig.kernels.Categorical(0.7), (1,))
Z = ig.features.InducingPoints(ig.initialise.random_subset(rows, 60))
gp = ig.SparseGP(ig.GP(common * own, ig.means.Constant(3.0)), Z)
model = ig.Model(gp, ig.likelihoods.Gaussian(0.05))
model = ig.fit(model, (rows, sales), freeze=lambda m: m.layers[0].features, steps=STEPS, progress=False).model
print(f"correlation of shops {float(model.layers[0].prior.kernel.kernels[1].kernel.correlation):.2f}")
weeks = np.linspace(0.0, 10.0, 100)
for number, name in ((2, "40 records"), (4, "3 records"), (5, "a new shop")):
    pred = model.predict(np.column_stack([weeks, np.full(100, float(number))]))
    low, high = (np.asarray(a)[:, 0] for a in pred.interval(0.9))
    (line,) = axes[1].plot(weeks, pred.mean, label=name)
    axes[1].fill_between(weeks, low, high, color=line.get_color(), alpha=0.15)
    axes[1].plot(week[shop == number], sales[shop == number], "o", ms=3, color=line.get_color())
axes[1].set(title="Shops as categories", xlabel="week", ylabel="sales")
axes[1].legend(frameon=False, fontsize=8)
Path("out").mkdir(exist_ok=True)
fig.savefig("out/patterns_and_categories.png", dpi=110)
print("figure: out/patterns_and_categories.png")
