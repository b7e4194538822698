"""Lifetimes that have not ended: accelerated failure times with censored labels, beside a parametric model.

432 men were released from prison and watched for a year; 114 were arrested again (Rossi et al. 1980; the data set comes
with lifelines). For the others it is known only that their time exceeds 52 weeks, which `ig.likelihoods.Censored` takes
as labels [lower, NaN]. The logarithm of the time scale is a Gaussian process of seven covariates. Left: its survival
curves, Weibull and log-normal, averaged over all men, beside the Kaplan–Meier curve. Right: two men, one with few and
one with many prior convictions. Printed are held-out log densities beside lifelines' Weibull model. Without lifelines
the example runs on made-up data, without the parametric model.
"""

import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
QUICK = bool(os.environ.get("INDUCING_QUICK"))
NAMES = ["fin", "age", "race", "wexp", "mar", "paro", "prio"]
try:
    if QUICK:
        raise ImportError
    import pandas as pd
    from lifelines import WeibullAFTFitter
    from lifelines.datasets import load_rossi

    table = load_rossi()
    time, event, X = table["week"].to_numpy(float), table["arrest"].to_numpy() == 1, table[NAMES].to_numpy(float)
except ImportError:
    print("lifelines is not installed (or quick mode); made-up data of the same kind")
    WeibullAFTFitter, made = None, np.random.default_rng(0)
    X = np.column_stack([made.integers(0, 2, 432), 20 + made.exponential(6, 432), *made.integers(0, 2, (4, 432))])
    X = np.column_stack([X, made.poisson(3, 432)]).astype(float)
    life = np.exp(5.0 + 0.3 * X[:, 0] - 0.1 * X[:, 6]) * made.weibull(1.4, 432)
    time, event = np.minimum(np.ceil(life), 52.0), life < 52

y = np.column_stack([time, np.where(event, time, np.nan)])  # [lower, upper]; NaN: not ended
scaled = (X - X.mean(axis=0)) / X.std(axis=0)


def kaplan_meier(time, event):
    """The times and values of the Kaplan–Meier estimate of P(label > t)."""
    at = np.unique(time[event])
    risk = np.array([(time >= t).sum() for t in at])
    died = np.array([((time == t) & event).sum() for t in at])
    return at, np.cumprod(1 - died / risk)


def fitted(likelihood, rows, kernel):
    """A GP of log lifetimes, trained on some rows."""
    Z = ig.features.InducingPoints(ig.initialise.kmeans(scaled[rows], 20))
    prior = ig.GP(kernel, ig.means.Constant(5.0))
    model = ig.Model(ig.SparseGP(prior, Z), ig.likelihoods.Censored(likelihood))
    return ig.fit(model, (scaled[rows], y[rows]), steps=5 if QUICK else 1500, learning_rate=0.02, progress=False).model


rbf = ig.kernels.SquaredExponential(np.full(7, 3.0), 0.3)
fold = np.random.default_rng(1).integers(0, 2 if QUICK else 4, len(y))
scores = {"GP, Weibull": [], "GP, log-normal": [], "lifelines, Weibull": []}
for k in range(1 if QUICK else 4):
    train, test = fold != k, fold == k
    for name, likelihood in (
        ("GP, Weibull", ig.likelihoods.Weibull(1.2)),
        ("GP, log-normal", ig.likelihoods.LogNormal(1.5)),
    ):
        scores[name].append(fitted(likelihood, train, rbf).predict(scaled[test]).log_prob(y[test]))
    if WeibullAFTFitter is not None:
        frame = pd.DataFrame(np.column_stack([scaled, time, event]), columns=[*NAMES, "time", "event"])
        parametric = WeibullAFTFitter().fit(frame[train], "time", "event")
        held = frame[test]
        scale = np.exp(
            (
                parametric.params_["lambda_"][[*NAMES, "Intercept"]].to_numpy()
                * np.column_stack([scaled[test], np.ones(test.sum())])
            ).sum(axis=1)
        )
        shape = np.exp(parametric.params_["rho_"]["Intercept"])
        hazard = (held["time"] / scale) ** shape
        density = np.log(shape / scale) + (shape - 1) * np.log(held["time"] / scale)
        scores["lifelines, Weibull"].append(np.asarray(np.where(held["event"] == 1, density, 0.0) - hazard))
for name, values in scores.items():
    if values:
        print(f"{name}: held-out log density {np.concatenate([np.ravel(v) for v in values]).mean():.4f} a man")

everyone = np.full(len(y), True)
models = {"Weibull": fitted(ig.likelihoods.Weibull(1.2), everyone, rbf)}
models["log-normal"] = fitted(ig.likelihoods.LogNormal(1.5), everyone, rbf)
weeks = np.linspace(1.0, 52.0, 52)
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained", sharey=True)
axes[0].step(*kaplan_meier(time, event), "k", where="post", label="Kaplan–Meier")
for name, model in models.items():
    pred = model.predict(scaled)
    axes[0].plot(weeks, [1 - float(np.mean(pred.cdf(np.full((len(y), 1), t)))) for t in weeks], label=name)
axes[0].set(title="All men", xlabel="weeks", ylabel="P(not arrested yet)", ylim=(0.0, 1.02))
axes[0].legend(frameon=False)
two = np.zeros((2, 7))
two[:, 6] = (np.array([0.0, 10.0]) - X[:, 6].mean()) / X[:, 6].std()
ig.report.plot_survival(
    models["Weibull"], two, times=weeks, names=["no prior conviction", "10 prior convictions"], ax=axes[1]
)
axes[1].set(title="Two men, otherwise average", xlabel="weeks", ylabel="")
Path("out").mkdir(exist_ok=True)
fig.savefig("out/survival.png", dpi=120)
print("figure: out/survival.png")
