"""Additive regression on the power-plant data: f(x) = Σ_d f_d(x_d), where each term has its own Fourier features.

Kuu is block diagonal with diagonal-plus-low-rank blocks, and inside the intervals of the features Kuf does not depend
on the kernel's parameters. The figure shows each term by itself, which a model without this structure does not allow.
Data: INDUCING_DATA (default ../shared/data), `power.npz`.
"""

import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from _datasets import load

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
data = load("power")
X, Y = data["X_bb"], data["Y_bb"][:, 0]
X, Y = (X - X.mean(0)) / X.std(0), (Y - Y.mean()) / Y.std()
order = np.random.RandomState(0).permutation(len(X))
train, test = order[: int(0.9 * len(X))], order[int(0.9 * len(X)) :]
train = train[:500] if quick else train
names = ["temperature", "vacuum", "pressure", "humidity"]

k, F = ig.kernels, ig.features
columns = range(4)
kernel = k.Sum([k.ActiveDims(k.Matern32(1.0, 0.3), (d,)) for d in columns])
additive = ig.SparseGP(ig.GP(kernel), F.Additive([F.Fourier.around(X[:, d], 15, margin=0.5) for d in columns]))
points = ig.SparseGP(ig.GP(k.SquaredExponential(np.ones(4))), F.InducingPoints(X[train[:100]]))
results = {}
for name, layer in (("additive, 4 × 31 Fourier features", additive), ("100 inducing points", points)):
    begin = time.perf_counter()
    model = ig.Model(layer, ig.likelihoods.Gaussian(0.1))
    steps = 3 if quick else 25
    result = ig.fit(model, (X[train], Y[train]), method="collapsed", steps=steps, progress=False, initialise=False)
    predicted = result.model.predict(X[test])
    loglik = np.mean(predicted.log_prob(Y[test]))
    rmse = np.sqrt(np.mean((predicted.mean[:, 0] - Y[test]) ** 2))
    seconds = time.perf_counter() - begin
    print(f"{name}: test log-likelihood {loglik:.3f}, RMSE {rmse:.3f}, {seconds:.0f} s for {steps} steps")
    results[name] = result.model

layer = next(iter(results.values())).layers[0]
figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), sharey=True, constrained_layout=True)
cache = layer.cache()
sizes = [part.num_features for part in layer.features.parts]
offsets = np.concatenate([[0], np.cumsum(sizes)])
Kuu = jax.tree.map(lambda a: a[0], cache.Kuu)
alpha = Kuu.root_solve_transpose(cache.mean[0][:, None])[:, 0]
half = Kuu.root_solve_transpose(cache.root[0])
for d, axis in enumerate(axes):
    grid = jnp.linspace(X[:, d].min(), X[:, d].max(), 200)[:, None]
    own = slice(offsets[d], offsets[d + 1])
    term = layer.prior.kernel.kernels[d].kernel
    Kuf = layer.features.parts[d].Kuf(term, grid)
    mean = np.asarray(alpha[own] @ Kuf)
    explained = Kuu.parts[d].root_solve(Kuf)
    variance = term.variance - (explained**2).sum(0) + ((half[own].T @ Kuf) ** 2).sum(0)
    deviation = np.sqrt(np.maximum(np.asarray(variance), 0.0))
    shift = mean.mean()
    axis.plot(grid[:, 0], mean - shift, "C0")
    axis.fill_between(
        grid[:, 0], mean - shift - 2 * deviation, mean - shift + 2 * deviation, color="C0", alpha=0.2, lw=0
    )
    axis.plot(X[train[:300], d], np.full(min(300, len(train)), -2.4), "k|", ms=6, alpha=0.2)
    axis.set(title=f"f_{d + 1}({names[d]})", xlabel="standardised")
axes[0].set(ylabel="contribution to output (s.d.)", ylim=(-2.5, 2.5))
Path("out").mkdir(exist_ok=True)
figure.savefig("out/additive_power.png", dpi=120)
print("figure: out/additive_power.png")
