"""Fourier features on an interval (section 2.3): variational features, the paper's plain features, and inducing points.

Left: the interval [a, b] must extend beyond the data, because the features are periodic on it. Right: the collapsed
bound approaches the evidence as features are added. For the variational features, Kuu is diagonal plus low rank.
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)

X = np.sort(rng.uniform(0.0, 4.0, 200))
y = np.sin(3.0 * X) + 0.4 * X + 0.3 * np.cos(11.0 * X) + 0.15 * rng.normal(size=200)
kernel, likelihood = ig.kernels.Matern32(lengthscale=0.6), ig.likelihoods.Gaussian(0.02)


def model_of(features):
    return ig.Model(ig.SparseGP(ig.GP(kernel), features, jitter=1e-8), likelihood)


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
grid = np.linspace(-1.0, 5.0, 300)
intervals = {
    "[a, b] = the data's range": ig.features.Fourier(0.0, 4.0, 30),
    "reaching beyond": ig.features.Fourier.around(X, 60, margin=0.6),
}
for (label, features), colour in zip(intervals.items(), ("C3", "C0"), strict=True):
    predict = jax.jit(lambda f: ig.collapse(model_of(f), (X, y)).layers[0].marginals(jnp.asarray(grid)[:, None]))
    mean, variance = predict(features)
    mean, deviation = np.asarray(mean[:, 0]), np.sqrt(np.asarray(variance[:, 0]))
    left.plot(grid, mean, colour, label=label)
    left.fill_between(grid, mean - 2 * deviation, mean + 2 * deviation, color=colour, alpha=0.15, lw=0)
left.plot(X, y, "k.", ms=3, alpha=0.6)
left.set(title="q(f) ± 2 s.d.: periodic features pull the ends together", xlabel="x", ylim=(-2.5, 4))
left.legend(loc="lower right")

evidence = float(jax.jit(lambda: ig.log_evidence(model_of(ig.features.Fourier.around(X, 1)), (X, y)))())
sizes = [5, 10] if quick else [5, 10, 20, 40, 60]
kinds = {
    "variational Fourier": ig.features.Fourier,
    "plain Fourier": ig.features.plain_fourier,
    "inducing points": lambda a, b, n: ig.features.InducingPoints(np.linspace(0.0, 4.0, 2 * n + 1)[:, None]),
}
for label, kind in kinds.items():
    bound = jax.jit(lambda features: ig.collapsed_elbo(model_of(features), (X, y)))
    bounds = [float(bound(kind(-2.0, 6.0, n))) for n in sizes]
    right.plot([2 * n + 1 for n in sizes], evidence - np.array(bounds), "o-", label=label)
    print(f"{label}: bound {bounds[-1]:.2f} with {2 * sizes[-1] + 1} features; evidence {evidence:.2f}")
right.set(yscale="log", xlabel="number of features M", ylabel="evidence − bound", title="More features, tighter bound")
right.legend()
Path("out").mkdir(exist_ok=True)
figure.savefig("out/fourier_features.png", dpi=120)
print("figure: out/fourier_features.png")
