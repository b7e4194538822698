"""CO₂ at Mauna Loa (section 2.3): trend and season as a sum of processes, each with its own features, and a forecast.

    k = trend (quadratic) + slow (Matérn 5/2) + season (periodic × slow change) + short term (Matérn 3/2)

`features.Additive` gives each term of the sum its own inducing variables, so Kuu is block diagonal: Fourier features
for the Matérn terms, inducing points for the others. The data after 2005 are held out.
Data: INDUCING_DATA (default ../shared/data), `mauna_loa_co2.npz`.
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
data = load("mauna_loa_co2")
year, co2 = data["X"][:, 0], data["Y"][:, 0]
train = year < 2005.0
centre, scale = co2[train].mean(), co2[train].std()
X, y = (year[train] - 1980.0) / 10.0, (co2[train] - centre) / scale  # decades

k, F = ig.kernels, ig.features
end = (year.max() - 1980.0) / 10.0 + 1.0
trend = k.Polynomial(degree=2)  # of rank three: three inducing points say all about it
slow = k.Matern52(lengthscale=1.0, variance=0.02)
yearly = k.Periodic(k.SquaredExponential(lengthscale=1.0, variance=0.05), period=0.1)
season = yearly * k.SquaredExponential(lengthscale=5.0)
short = k.Matern32(lengthscale=0.15, variance=0.002)
span = X.min() - 1.0, end
Z = (np.linspace(X.min(), X.max(), 6)[:, None] + np.arange(12)[None, :] / 120.0).reshape(-1, 1)
features = F.Additive(
    (F.InducingPoints([[-2.0], [0.0], [2.0]]), F.Fourier(*span, 30), F.InducingPoints(Z), F.Fourier(*span, 60))
)
prior = ig.GP(trend + slow + season + short)
model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(0.0004))
result = ig.fit(
    model,
    (X, y),
    method="collapsed",
    steps=3 if quick else 60,
    freeze=lambda m: m.layers[0].features,
    initialise=False,
    progress=False,
)
print(result.message)

test = ~train
predicted = result.model.predict((year - 1980.0) / 10.0)
mean = np.asarray(predicted.mean[:, 0]) * scale + centre
deviation = np.sqrt(np.asarray(predicted.variance[:, 0])) * scale
error = mean[test] - co2[test]
inside = np.mean(np.abs(error) < 2 * deviation[test])
rmse = np.sqrt((error**2).mean())
print(f"forecast to {year.max():.0f}: RMSE {rmse:.2f} ppm, {inside:.0%} within two deviations")

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), constrained_layout=True, width_ratios=(3, 2))
left.plot(year[train], co2[train], "k.", ms=2, label="seen")
left.plot(year[test], co2[test], "C3.", ms=2, label="held out")
left.plot(year, mean, "C0", lw=1, label="mean ± 2 s.d.")
left.fill_between(year, mean - 2 * deviation, mean + 2 * deviation, color="C0", alpha=0.25, lw=0)
left.set(title="trend + season + short term, forecast after 2005", xlabel="year", ylabel="CO₂ (ppm)")
left.legend()
near = year > 2000.0
right.plot(year[near & train], co2[near & train], "k.", ms=4)
right.plot(year[near & test], co2[near & test], "C3.", ms=4)
right.plot(year[near], mean[near], "C0", lw=1)
right.fill_between(year[near], (mean - 2 * deviation)[near], (mean + 2 * deviation)[near], color="C0", alpha=0.25, lw=0)
right.set(title="the same from 2000", xlabel="year")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/mauna_loa_co2.png", dpi=120)
print("figure: out/mauna_loa_co2.png")
