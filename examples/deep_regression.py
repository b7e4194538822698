"""A deep GP on a step function and on the motorcycle data (section 4.4): jumps that a stationary GP cannot follow.

`ig.deep_gp` builds the deep model, and `ig.fit` trains it like the shallow one. Held-out labels are scored one by one
and jointly (eq:pred_sparse_gp_iid, eq:pred_deep_sparse_gp_iid); joint scores account for the errors that neighbours
share.
Data: INDUCING_DATA (default ../shared/data), `mcycle.npz`.
"""

import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from _datasets import load

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)


def step_data():
    x = np.sort(rng.uniform(-1.0, 1.0, 120))
    return x, np.sign(x) + 0.05 * rng.normal(size=120)


def motorcycle():
    file = load("mcycle")
    x, y = file["X"].astype(float).reshape(-1), file["Y"].astype(float).reshape(-1)
    return (x - x.mean()) / x.std(), (y - y.mean()) / y.std()


units = {"step": ("x", "y"), "motorcycle": ("time (standardised)", "acceleration (standardised)")}
sets = {"step": step_data(), "motorcycle": motorcycle()}
figure, axes = plt.subplots(
    len(sets), 2, figsize=(11, 3.6 * len(sets)), sharex="row", sharey="row", layout="constrained"
)
for row, (name, (x, y)) in zip(np.atleast_2d(axes), sets.items(), strict=True):
    row[0].set_ylabel(units[name][1])
    held = np.arange(len(x)) % 5 == 2
    grid = np.linspace(x.min() - 0.1, x.max() + 0.1, 400)
    for axis, layers in zip(row, (1, 2), strict=True):
        model = ig.deep_gp(x, ig.likelihoods.Gaussian(0.1), num_layers=layers, num_inducing=25)
        result = ig.fit(model, (x[~held], y[~held]), steps=30 if quick else 2500, progress=False)
        sampling = {"key": jax.random.key(1), "samples": 50 if quick else 300}
        score = result.model.predict(x[held], **sampling).log_prob(y[held])
        joint = float(result.model.predict(x[held], full_cov=True, **sampling).log_prob(y[held])) / held.sum()
        prediction = result.model.predict(grid, **sampling)
        low, high = prediction.interval(0.95)
        axis.fill_between(grid, low[:, 0], high[:, 0], alpha=0.25, lw=0, label="95 % of new labels")
        axis.plot(grid, prediction.mean[:, 0], label="mean")
        axis.plot(x[~held], y[~held], "k.", ms=3, label="seen")
        axis.plot(x[held], y[held], "C3x", ms=4, label="held out")
        kind = "GP" if layers == 1 else "deep GP, 2 layers"
        axis.set(title=f"{name}: {kind}, held-out log density {float(score.mean()):.2f}", xlabel=units[name][0])
        scores = f"{float(score.mean()):.3f} each, {joint:.3f} jointly"
        print(f"{name}, {layers} layer(s): bound {result.bound:.1f}, held-out log density {scores}")
np.atleast_2d(axes)[0, 0].legend(frameon=False, loc="upper left")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/deep_regression.png", dpi=120)
print("figure: out/deep_regression.png")
