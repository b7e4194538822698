"""Eigenfeatures (section 2.3): Kuu is diagonal, and the leading eigenfunctions explain most of f.

Top: eigenfunctions of the squared exponential kernel under a Gaussian density, in closed form and from a sample
(Nyström). Bottom: the gap between bound and evidence. Laplacian features on a box are exact for the kernel
`HilbertSpace`, which approximates the original one; its evidence converges to the original evidence.
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

X = rng.normal(size=300)
y = np.sin(3.0 * X) + 0.1 * rng.normal(size=300)
kernel, likelihood = ig.kernels.SquaredExponential(0.5), ig.likelihoods.Gaussian(0.01)
sizes = [5, 10] if quick else [4, 8, 16, 24]
F = ig.features


def bound(prior_kernel, features):
    def value():
        model = ig.Model(ig.SparseGP(ig.GP(prior_kernel), features, jitter=1e-9), likelihood)
        return ig.collapsed_elbo(model, (X, y))

    return float(jax.jit(value)())


model = ig.Model(ig.SparseGP(ig.GP(kernel), F.InducingPoints([[0.0]])), likelihood)
evidence = float(ig.log_evidence(model, (X, y)))
sample = np.sort(X)[:, None]
box = (-4.5, 4.5)
kinds = {
    "Mercer, closed form": lambda n: (kernel, F.EigenMercer(n, [0.0], [1.0])),
    "numerical (Nyström)": lambda n: (kernel, F.EigenNumerical(sample, n)),
    "inducing points": lambda n: (kernel, F.InducingPoints(np.linspace(X.min(), X.max(), n)[:, None])),
}

grid = np.linspace(-3.0, 3.0, 300)
Z = jnp.asarray(grid)[:, None]
figure, axes = plt.subplots(2, 2, figsize=(11, 7), constrained_layout=True)
mercer = F.EigenMercer(5, [0.0], [1.0])
axes[0, 0].plot(grid, mercer.eigenfunctions(kernel, Z))
axes[0, 0].set(title="eigenfunctions v₀ … v₄ under N(0, 1), closed form", xlabel="x")
numerical = F.EigenNumerical(sample, 5)
v = numerical.Kuf(kernel, Z) / numerical.Kuu(kernel, 0.0).diagonal()[:, None]
axes[0, 1].plot(grid, (v * jnp.sign(v[:, -60])[:, None]).T)
axes[0, 1].set(title="the same by Nyström from 300 inputs", xlabel="x", ylim=axes[0, 0].get_ylim())
for label, make in kinds.items():
    gaps = [evidence - bound(*make(n)) for n in sizes]
    axes[1, 0].plot(sizes, gaps, "o-", label=label)
    print(f"{label}: evidence − bound = {gaps[-1]:.3g} with {sizes[-1]} features")
axes[1, 0].set(yscale="log", xlabel="number of features M", ylabel="evidence − bound", title="the bound")
axes[1, 0].legend()
counts = [10, 20] if quick else [10, 20, 30, 40]
own = []
for n in counts:
    reduced = ig.kernels.HilbertSpace(kernel, box, n)
    own.append(bound(reduced, F.EigenLaplacian(reduced.box, reduced.num)))
axes[1, 1].semilogy(counts, np.abs(np.array(own) - evidence), "o-")
axes[1, 1].set(xlabel="number of eigenfunctions", ylabel="|its evidence − the original's|")
axes[1, 1].set_title("HilbertSpace kernel on a box, where bound = evidence")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/eigenfeatures.png", dpi=120)
print("figure: out/eigenfeatures.png")
