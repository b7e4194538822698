"""The Bayesian GP-LVM on the oil-flow data (appendix), shallow and deep: 12 measurements of a pipe, three flow regimes.

There are no inputs. Each datum has a Gaussian q(h), which starts at its principal components. The model is trained
first with the closed-form bound (ψ-statistics of the squared exponential kernel), and then with the sampled bound,
which works for any kernel and any stack of layers. The deep GP-LVM puts two GP layers above the same latent variable.
Data: INDUCING_DATA (default ../shared/data), `oil_flow.npz`.
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
file = load("oil_flow")
rows = np.random.default_rng(0).permutation(len(file["Y_trn"]))[: 60 if quick else 200]
Y, labels = file["Y_trn"][rows].astype(float), file["labels_trn"][rows]
labels = labels.argmax(axis=1) if labels.ndim == 2 else labels.astype(int)
Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)

U, s, _ = np.linalg.svd(Y, full_matrices=False)
dim = 5
start = U[:, :dim] * np.sqrt(len(Y))
latent = ig.LatentVariable(dim, ig.layers.PerDatumEncoder(start, scale=0.3))
prior = ig.priors.Independent(ig.kernels.SquaredExponential(jnp.full(dim, 2.0)), num=Y.shape[1])
Z = ig.initialise.kmeans(start, 20)
model = ig.Model([latent, ig.SparseGP(prior, ig.features.InducingPoints(Z))], ig.likelihoods.Gaussian(0.2))
data = ig.Data(None, Y)


def neighbours(h):
    """How often the nearest neighbour in latent space, by relevance of its dimensions, is of the same phase."""
    distance = ((h[:, None] - h[None]) ** 2).sum(-1) + 1e9 * np.eye(len(h))
    return np.mean(labels == labels[distance.argmin(axis=1)])


result = ig.fit(
    model, data, objective=ig.gplvm_elbo, method="adam", steps=10 if quick else 500, learning_rate=0.03, progress=False
)
sampled = ig.fit(result.model, data, method="natgrad", steps=10 if quick else 200, progress=False)
mean, _, _ = sampled.model.layers[0].posterior(data)
lengthscale = np.asarray(sampled.model.layers[1].prior.latents[0].kernel.lengthscale)
scaled = np.asarray(mean) / lengthscale
order = np.argsort(lengthscale)[:2]
print(f"closed-form bound {float(ig.gplvm_elbo(result.model, data)):.1f}, then sampled: {sampled.bound:.1f}")
print(f"relevance of the {dim} dimensions (1/lengthscale): {np.round(np.sort(1 / lengthscale)[::-1], 2)}")
print(
    f"nearest neighbour of the same phase: GP-LVM {neighbours(scaled):.3f}, two dimensions of it "
    f"{neighbours(scaled[:, order]):.3f}, two principal components {neighbours(start[:, :2]):.3f}"
)

# One more layer below the last: its mean is the identity, it deviates from it by a tenth, and q(u) starts at the prior.
inner_kernel = ig.kernels.SquaredExponential(lengthscale, variance=0.01)
inner_prior = ig.priors.Independent(inner_kernel, num=dim, mean=ig.means.Identity())
inner = ig.SparseGP(inner_prior, ig.features.InducingPoints(ig.initialise.kmeans(mean, 20)))
deep_model = ig.Model([sampled.model.layers[0], inner, sampled.model.layers[1]], sampled.model.likelihood)
deep = ig.fit(deep_model, data, method="natgrad", steps=10 if quick else 800, progress=False)
deep_mean, _, _ = deep.model.layers[0].posterior(data)
deep_lengthscale = np.asarray(deep.model.layers[1].prior.latents[0].kernel.lengthscale)
spread = np.asarray(deep_mean) / deep_lengthscale
deep_order = np.argsort(-spread.std(axis=0))[:2]
print(f"deep GP-LVM: sampled bound {deep.bound:.1f}, nearest neighbour of the same phase {neighbours(spread):.3f}")

figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
panels = {
    "principal components": start[:, :2],
    "Bayesian GP-LVM": scaled[:, order],
    "deep GP-LVM": spread[:, deep_order],
}
for axis, (title, h) in zip(axes, panels.items(), strict=True):
    for phase, marker in zip(np.unique(labels), "o^s", strict=False):
        axis.plot(*h[labels == phase].T, marker, ms=4, alpha=0.7, label=f"phase {phase}")
    axis.set(title=f"{title}\nneighbours of the same phase {neighbours(h):.2f}", xlabel="h₁", ylabel="h₂")
axes[0].legend(frameon=False)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/gplvm.png", dpi=120)
print("figure: out/gplvm.png")
