"""Fourier features of two inputs (section 2.3): Kuu is a Kronecker product, and so is the root of q(u).

The kernel is a product of two Matérn kernels on the plane, and the features are all products of their Fourier features.
M = M₁ M₂ is large, but Kuu is never formed, and the root of q(u) has M₁² + M₂² entries instead of M². The labels are
binary.
"""

import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)

N = 300 if quick else 4000
X = rng.uniform(-1.0, 1.0, (N, 2))


def surface(x):
    return 2.5 * np.sin(3.0 * x[:, 0] + 2.0 * x[:, 1] ** 2) * np.cos(2.0 * x[:, 1])


y = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-2.0 * surface(X)))).astype(float)
k, F = ig.kernels, ig.features
kernel = k.ActiveDims(k.Matern52(0.5, variance=4.0), (0,)) * k.ActiveDims(k.Matern52(0.5), (1,))
num = 3 if quick else 12
features = F.Product((F.Fourier.around(X[:, :1], num, margin=0.5), F.Fourier.around(X[:, 1:], num, margin=0.5)))
sizes = [part.num_features for part in features.parts]
gp = ig.SparseGP(ig.GP(kernel), features, root=tuple(jnp.eye(n) for n in sizes))
began = time.perf_counter()
model = ig.Model(gp, ig.likelihoods.Bernoulli("logit"))
result = ig.fit(model, (X, y), method="adam", batch_size=min(N, 512), steps=5 if quick else 1500, progress=False)
root = result.model.layers[0].root
print(
    f"M = {' × '.join(map(str, sizes))} = {features.num_features} features, "
    f"{sum(f.size for f in root)} numbers in the root of q(u) instead of {features.num_features**2}"
)
print(f"bound {float(ig.elbo(result.model, (X, y))):.1f} after {time.perf_counter() - began:.0f} s")

axis = np.linspace(-1.0, 1.0, 20 if quick else 60)
grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
probability = np.asarray(result.model.predict(grid).mean[:, 0])
deviation = np.sqrt(np.asarray(result.model.posterior(grid).variance[:, 0]))
truth = 1.0 / (1.0 + np.exp(-2.0 * surface(grid)))
print(f"mean absolute error of p(y = 1): {np.abs(probability - truth).mean():.3f}")

figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
panels = {"true p(y = 1), and some data": truth, "predicted p(y = 1)": probability, "deviation of f": deviation}
for panel, (title, values) in zip(axes, panels.items(), strict=True):
    shown = panel.contourf(axis, axis, values.reshape(len(axis), -1), 20, cmap="RdBu_r" if "p(" in title else "viridis")
    figure.colorbar(shown, ax=panel)
    panel.set(title=title, aspect="equal", xlabel="x₁", ylabel="x₂")
few = slice(0, 300)
axes[0].scatter(*X[few].T, c=y[few], cmap="RdBu_r", edgecolors="k", s=12)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/product_features.png", dpi=120)
print("figure: out/product_features.png")
