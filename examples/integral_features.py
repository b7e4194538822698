"""Any φ as a feature (section 2.3, the general definition): u[m] = ∫ f(x) φ_m(x) dx, where φ is a Python function.

Here φ_m is localised around z_m: a bell, or a bell with a change of sign. Its covariances are computed by quadrature.
The rest (the optimal q(u), the bound, training, predictions) is the same as for every other feature.
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

X = np.sort(rng.uniform(0.0, 10.0, 300))
y = np.sin(X) + 0.5 * np.sin(3.1 * X) * (X > 5) + 0.1 * rng.normal(size=300)
prior = ig.GP(ig.kernels.SquaredExponential(0.5))
noise = ig.likelihoods.Gaussian(0.01)
evidence = float(prior.condition(X, y, noise_variance=0.01).log_marginal_likelihood)


def wavelets(M, width):
    """M short waves of width `width`: half of them bells, half bells with a sign change."""
    places = jnp.repeat(jnp.linspace(0.0, 10.0, M // 2), 2)
    odd = jnp.arange(M) % 2

    def phi(x):
        t = (x[0] - places) / width
        return jnp.exp(-0.5 * t**2) * jnp.where(odd == 1, t, 1.0) / width

    return ig.features.Integral(phi, [-2.0], [12.0], 60 if quick else 160), phi


def bound(features):
    return float(ig.collapsed_elbo(ig.Model(ig.SparseGP(prior, features), noise), (X, y)))


sizes = [10, 20] if quick else [10, 16, 20, 24, 30, 36]
rows = {"short waves": [], "bells alone": [], "points": []}
for M in sizes:
    rows["short waves"].append(evidence - bound(wavelets(M, 0.3)[0]))
    bells = ig.features.Multiscale(np.linspace(0.0, 10.0, M)[:, None], np.full((M, 1), 0.3))
    rows["bells alone"].append(evidence - bound(bells))
    rows["points"].append(evidence - bound(ig.features.InducingPoints(np.linspace(0.0, 10.0, M)[:, None])))
for name, gaps in rows.items():
    print(f"{name:12} evidence − bound: " + ", ".join(f"M={M}: {g:.3g}" for M, g in zip(sizes, gaps, strict=True)))

features, phi = wavelets(sizes[-2], 0.3)
model = ig.collapse(ig.Model(ig.SparseGP(prior, features), noise), (X, y))
grid = np.linspace(-1.0, 11.0, 400)
figure, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
waves = np.asarray(jax.vmap(phi)(jnp.asarray(grid)[:, None]))
axes[0].plot(grid, waves[:, 8:12])
axes[0].set(title="four of the φ_m", xlabel="x")
ig.report.plot_posterior(model, (X, y), draws=0, ax=axes[1])
axes[1].set(title=f"{features.num_features} features ∫ f φ_m")
for name, gaps in rows.items():
    axes[2].semilogy(sizes, np.maximum(gaps, 1e-8), "o-", label=name)
axes[2].set(xlabel="number of features M", ylabel="evidence − bound")
axes[2].legend(frameon=False)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/integral_features.png", dpi=120)
print("figure: out/integral_features.png")
