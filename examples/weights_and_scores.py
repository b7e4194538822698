"""Weights of rows, and scores of predictions.

100,000 people are asked whether they wear glasses. Only their age in years matters, so that there are at most 2 × 63
different rows; each goes in once, with its number as weight. The fit is that of all rows, at the cost of 126. Left: the
probability by age, from the first 100 people and from all. Right: `ig.scores` of predictions of numbers, by a Gaussian
and a Student-t likelihood, where some labels are wild.
"""

import os
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import inducing as ig

jax.config.update("jax_enable_x64", True)
QUICK = bool(os.environ.get("INDUCING_QUICK"))
STEPS = 5 if QUICK else 300
rng = np.random.default_rng(0)


def share(age):
    """The truth."""
    return 0.25 + 0.65 / (1.0 + np.exp(-0.25 * (age - 45.0)))


age = rng.integers(18, 81, 100_000).astype(float)
glasses = (rng.random(age.size) < share(age)).astype(float)


def fitted(age, glasses):
    """A classifier of the different rows, each with the number of its copies as weight."""
    rows, counts = np.unique(np.column_stack([age, glasses]), axis=0, return_counts=True)
    gp = ig.SparseGP(
        ig.GP(ig.kernels.Matern52(20.0), ig.means.Constant(0.0)),
        ig.features.InducingPoints(np.linspace(18.0, 80.0, 12)[:, None]),
    )
    model = ig.Model(gp, ig.likelihoods.Bernoulli())
    data = ig.Data(rows[:, :1], rows[:, 1], weight=counts.astype(float))
    return ig.fit(model, data, steps=STEPS, progress=False).model, data


begin = time.perf_counter()
model, data = fitted(age, glasses)
print(f"{len(data)} weighted rows instead of {age.size}: fitted in {time.perf_counter() - begin:.1f} s")
weighted, repeated = float(ig.elbo(model, data)), float(ig.elbo(model, (age, glasses)))
print(f"bound of weighted rows {weighted:.6f}, of all rows {repeated:.6f}")
few, _ = fitted(age[:100], glasses[:100])

x = np.sort(rng.uniform(0.0, 10.0, 300))
y = np.sin(x) + 0.2 * rng.normal(size=300)
y[::15] += 4.0 * rng.normal(size=20)
train = np.arange(300) % 2 == 0
scores = {}
for name, likelihood in (("Gaussian", ig.likelihoods.Gaussian(0.2)), ("Student-t", ig.likelihoods.StudentT(4.0, 0.2))):
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(1.5)), ig.features.InducingPoints(np.linspace(0, 10, 15)[:, None]))
    pred = ig.fit(ig.Model(gp, likelihood), (x[train], y[train]), steps=STEPS, progress=False).model.predict(x[~train])
    scores[name] = {
        "CRPS": ig.scores.crps(pred, y[~train]),
        "log score": ig.scores.log_score(pred, y[~train]),
        "interval score": ig.scores.interval_score(pred, y[~train], level=0.9),
        "calibration error": ig.scores.calibration_error(pred, y[~train]),
    }
    print(name, {key: round(value, 3) for key, value in scores[name].items()})

fig, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
years = np.linspace(18.0, 80.0, 100)
for fit, label in ((few, "100 people"), (model, "100,000 people")):
    f = fit.posterior(years)
    low, high = (norm.cdf(np.asarray(a)[:, 0]) for a in f.interval(0.9))  # the link is Φ
    axes[0].fill_between(years, low, high, alpha=0.25)
    axes[0].plot(years, fit.predict(years).mean, label=label)
axes[0].plot(years, share(years), "k--", lw=0.8, label="truth")
axes[0].set(title="126 rows with weights", xlabel="age", ylabel="P(glasses)", ylim=(0.0, 1.0))
axes[0].legend(frameon=False)
names = list(scores["Gaussian"])
for i, (name, values) in enumerate(scores.items()):
    axes[1].bar(np.arange(4) + 0.35 * i, [values[key] for key in names], 0.33, label=name)
axes[1].set(title="Scores, where some labels are wild; lower is better")
axes[1].set_xticks(np.arange(4) + 0.17, names)
axes[1].legend(frameon=False)
Path("out").mkdir(exist_ok=True)
fig.savefig("out/weights_and_scores.png", dpi=110)
print("figure: out/weights_and_scores.png")
