"""Spherical harmonics as features (section 2.3), compared with inducing points on real data for equal training time.

Inputs with a bias column are treated as directions on a sphere. For kernels of directions Kuu is diagonal, so only
products of the size of the data remain. Left: the share of a kernel's variance that each degree explains. Right: test
log-likelihood against training time on the power (4 inputs) and kin8nm (8 inputs) data. On these tables the same number
of inducing points does better, because they can go where the data are.
Data: INDUCING_DATA (default ../shared/data), `power.npz` and `kin8nm.npz`.
"""

import os
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from _datasets import load

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
k, F = ig.kernels, ig.features
steps = (2,) if quick else (5, 20, 80)


def standardised(name):
    data = load(name)
    X, Y = data["X"], data["Y"][:, 0]
    X, Y = (X - X.mean(0)) / X.std(0), (Y - Y.mean()) / Y.std()
    test = data["pbp_test_mask"][:, 0]
    rows = slice(0, 300) if quick else slice(None)
    return (X[~test][rows], Y[~test][rows]), (X[test], Y[test])


def train(layer, data, held, num):
    """The time of a fit with `num` L-BFGS steps, after a first one that compiles, and its test log-likelihood."""
    model = ig.Model(layer, ig.likelihoods.Gaussian(0.1))
    options = {"method": "collapsed", "progress": False, "initialise": False}
    ig.fit(model, data, steps=1, **options)
    begin = time.perf_counter()
    fitted = ig.fit(model, data, steps=num, **options).model
    seconds = time.perf_counter() - begin
    return seconds, float(np.mean(fitted.predict(held[0]).log_prob(held[1])))


figure, axes = plt.subplots(1, 3, figsize=(14, 4), constrained_layout=True)
shown = {
    "Matérn 1/2": k.Spherical(k.Matern12(1.0)),
    "Matérn 5/2": k.Spherical(k.Matern52(1.0)),
    "ReLU (arc-cosine 1)": k.SphericalArcCosine(1),
}
features = F.SphericalHarmonics(5, 8)
first = np.array([0] + [F.SphericalHarmonics(5, d).num_features for d in range(8)])  # of each degree
for label, kernel in shown.items():
    a = np.add.reduceat(np.asarray(features.spectrum(kernel)), first)
    axes[0].semilogy(range(9), np.where(a > 1e-12, a, np.nan), "o-", label=label)
axes[0].set(xlabel="degree ℓ", ylabel="prior variance carried", title="five columns: four inputs and a bias")
axes[0].legend()

for axis, name, degrees in ((axes[1], "power", (0, 1, 2, 3, 4)), (axes[2], "kin8nm", (0, 1, 2, 3))):
    data, held = standardised(name)
    dim = data[0].shape[1] + 1
    harmonics = F.SphericalHarmonics(dim, degrees[:2] if quick else degrees)
    biased = (k.with_bias(data[0]), data[1]), (k.with_bias(held[0]), held[1])
    runs = {
        f"{harmonics.num_features} harmonics, Matérn 3/2": (
            ig.SparseGP(ig.GP(k.Spherical(k.Matern32(1.0), 0.5 * np.ones(dim))), harmonics),
            *biased,
        ),
        f"{harmonics.num_features} inducing points, Matérn 3/2": (
            ig.SparseGP(ig.GP(k.Matern32(2.0 * np.ones(dim - 1))), F.InducingPoints(data[0][: harmonics.num_features])),
            data,
            held,
        ),
    }
    for label, (layer, seen, unseen) in runs.items():
        curve = np.array([train(layer, seen, unseen, n) for n in steps])
        axis.plot(curve[:, 0], curve[:, 1], "o-", label=label)
        print(f"{name}, {label}: test log-likelihood {curve[-1, 1]:.3f} after {curve[-1, 0]:.1f} s")
    axis.set(xlabel="seconds", ylabel="test log-likelihood", title=name)
    axis.legend()
Path("out").mkdir(exist_ok=True)
figure.savefig("out/spherical_harmonics.png", dpi=120)
print("figure: out/spherical_harmonics.png")
