"""Heavy metals in the soil of the Jura: cadmium, predicted with the help of nickel and zinc (section 2.4).

Cadmium was measured at 259 sites; at 100 other sites only nickel and zinc are known. A coregionalised GP uses them,
which a GP of cadmium alone cannot. Data: INDUCING_DATA (default ../shared/data), `jura.npz`.
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
data = load("jura")

# Logarithms of cadmium, nickel and zinc (columns 0, 4, 6), standardised; cadmium is hidden at the test sites.
metals = [0, 4, 6]
x = np.concatenate([data["X_train"], data["X_test"]])
log_y = np.log(np.concatenate([data["Y_train"], data["Y_test"]])[:, metals])
n = len(data["X_train"])
log_y[n:, 0] = np.nan
centre, size = np.nanmean(log_y, axis=0), np.nanstd(log_y, axis=0)
y = (log_y - centre) / size
true = data["Y_test"][:, 0]

# A third of the variation is so local that neighbouring sites say nothing of it, but other metals at the same site do:
# one latent has a short lengthscale, and every site is an inducing point.
Z = ig.features.InducingPoints(x[::10] if quick else x)
noise = ig.likelihoods.Gaussian(jnp.full(3, 0.2))


def matern(lengthscale):
    return ig.kernels.Matern32(lengthscale, variance=1.0)


def median_cadmium(model, x):
    return np.exp(np.asarray(model.predict(x).mean)[:, 0] * size[0] + centre[0])


W = np.array([[0.5, 0.6, 0.4], [0.3, 0.6, 0.6], [0.6, 0.5, 0.5]])
models = {
    "cadmium alone": (ig.GP(matern(0.4)), y[:n, :1], x[:n], ig.likelihoods.Gaussian(0.2)),
    "with nickel and zinc": (ig.priors.LMC(W, [matern(0.1), matern(0.4), matern(1.2)]), y, x, noise),
}
fitted, errors = {}, {}
for name, (prior, labels, sites, likelihood) in models.items():
    model = ig.Model(ig.SparseGP(prior, Z), likelihood)
    result = ig.fit(  # with an inducing point at every site, the bound is the evidence itself
        model,
        (sites, labels),
        objective=ig.log_evidence,
        steps=5 if quick else 40,
        progress=False,
        freeze=lambda m: m.layers[0].features,
    )
    fitted[name] = result.model
    errors[name] = np.mean(np.abs(median_cadmium(result.model, data["X_test"]) - true))
    print(f"{name:22s} bound {float(result.bound):8.1f}   mean absolute error of Cd {errors[name]:.4f}")

side = [np.linspace(x[:, d].min() - 0.1, x[:, d].max() + 0.1, 60) for d in range(2)]
grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
for ax, (name, model) in zip(axes, fitted.items(), strict=False):
    levels = np.linspace(0.0, 3.0, 16)
    shown = ax.contourf(*side, median_cadmium(model, grid).reshape(60, 60), levels, cmap="YlOrBr", extend="max")
    ax.scatter(*x[:n].T, c=data["Y_train"][:, 0], s=12, cmap="YlOrBr", vmin=0, vmax=3, edgecolor="k", lw=0.3)
    ax.plot(*x[n:].T, "k+", ms=5, label="test sites")
    ax.set(title=f"{name}: mean error {errors[name]:.3f} ppm", aspect="equal", xlabel="east (km)", ylabel="north (km)")
axes[0].legend(loc="upper left", fontsize=8)
figure.colorbar(shown, ax=axes[:2], label="cadmium (ppm)")
for name, model in fitted.items():
    axes[2].plot(true, median_cadmium(model, data["X_test"]), ".", label=name)
axes[2].plot([0, 4], [0, 4], "k--", lw=0.8)
axes[2].set(
    xlabel="measured cadmium (ppm)", ylabel="predicted (ppm)", title="the hundred test sites", xlim=(0, 4), ylim=(0, 4)
)
axes[2].legend()
Path("out").mkdir(exist_ok=True)
figure.savefig("out/jura.png", dpi=120)
print("figure: out/jura.png")
