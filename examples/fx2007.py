"""Exchange rates of 2007: three currencies are hidden for a while, and predicted from the other ten (section 2.4).

The Canadian dollar is hidden for days 50–100, the yen for 100–150, and the Australian dollar for 150–200. Three priors
are compared: independent GPs; coregionalised GPs, which add latent signals that all currencies share; and convolved
GPs, in which each currency sees the shared signals through a smoothing kernel of its own.
The score is the SMSE, the squared error relative to that of predicting the mean of the observed rates, averaged over
the three currencies, in dollars: .263, .081 and .067 here. Nguyen & Bonilla (2014) published .5996 (independent), .2427
(convolved) and .2125 (their collaborative model).
Data: INDUCING_DATA (default ../shared/data), `fx2007.npz`.
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from _datasets import load

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rates = 1.0 / load("fx2007")["Y"]  # dollars for one unit
N, P = rates.shape
day = np.arange(N, dtype=float)
hidden = {"CAD": (3, slice(49, 100)), "JPY": (5, slice(99, 150)), "AUD": (8, slice(149, 200))}

y = rates.copy()
for p, stretch in hidden.values():
    y[stretch, p] = np.nan
centre, size = np.nanmean(y, axis=0), np.nanstd(y, axis=0)
y, true = (y - centre) / size, (rates - centre) / size

# Where to start: the loadings of the principal components of the rates, with gaps filled by straight lines.
rank = 3
filled = np.stack([np.interp(day, day[~np.isnan(c)], c[~np.isnan(c)]) for c in y.T], axis=1)
_, s, Vt = np.linalg.svd(filled - filled.mean(axis=0), full_matrices=False)
loadings = (Vt.T * s / np.sqrt(N))[:, :rank]


def kernels(kind, num, days):
    return [kind(lengthscale=days, variance=1.0) for _ in range(num)]


# The convolved prior has the currencies' own signals as latents too, smoothed by next to nothing.
amplitude = np.concatenate([loadings, 0.3 * np.eye(P)], axis=1)
smoothing = ig.priors.GaussianSmoothing(np.full((P, rank + P), 2.0), amplitude)
own = np.full(P, 0.1)
priors = {
    "independent": ig.priors.Independent(kernels(ig.kernels.Matern32, P, 40.0)),
    "coregionalised": ig.priors.IntrinsicCoregionalisation(loadings, own, kernels(ig.kernels.Matern32, rank + P, 40.0)),
    "convolved": ig.priors.ConvolutionProcess(smoothing, kernels(ig.kernels.SquaredExponential, rank + P, 10.0)),
}
M, steps = (10, 3) if quick else (60, 80)
features = ig.features.InducingPoints(jnp.linspace(0.0, N - 1.0, M)[:, None])

figure, axes = plt.subplots(3, 3, figsize=(13, 8), sharey="row", layout="constrained")
for column, (name, prior) in enumerate(priors.items()):
    model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(jnp.full(P, 0.02)))
    result = ig.fit(
        model, (day, y), steps=steps, progress=False, initialise=False, freeze=lambda m: m.layers[0].features
    )
    prediction = result.model.predict(day)
    mean, sd = np.asarray(prediction.mean), np.sqrt(np.asarray(prediction.variance))
    scores = []
    for row, (p, stretch) in enumerate(hidden.values()):
        scores.append(np.mean((mean - true)[stretch, p] ** 2) / np.mean(true[stretch, p] ** 2))
        ax = axes[row, column]
        ax.axvspan(stretch.start, stretch.stop, color="0.92", zorder=-1)
        ax.fill_between(day, mean[:, p] - 2 * sd[:, p], mean[:, p] + 2 * sd[:, p], alpha=0.25, lw=0)
        ax.plot(day, mean[:, p], label="mean ± 2 sd")
        ax.plot(day, true[:, p], "k.", ms=2, label="rate, hidden where grey")
        ax.text(0.98, 0.05, f"SMSE {scores[-1]:.2f}", transform=ax.transAxes, ha="right")
    axes[0, column].set_title(f"{name}: SMSE {np.mean(scores):.3f}")
    axes[2, column].set_xlabel("trading day of 2007")
    print(f"{name:15s} bound {float(result.bound):8.1f}   SMSE {np.mean(scores):.4f}  {np.round(scores, 3)}")
for ax, currency in zip(axes[:, 0], hidden, strict=True):
    ax.set_ylabel(f"{currency}, standardised")
axes[0, 0].legend(loc="upper left", fontsize=8)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/fx2007.png", dpi=120)
print("figure: out/fx2007.png")
