"""Importance weighting over the weights themselves, and a latent variable inside a deep GP (sections 3.2, 3.4 and 4.6).

Left: Bayesian linear regression with independent weights in q, whose evidence is known. `ig.iw_elbo_global` approaches
the evidence as the number of samples of θ grows; `ig.elbo` stays below. The script also prints the bounds of a model
with a latent variable h for each datum, weighted over h alone (`ig.elbo`) or over θ and h jointly
(`ig.iw_elbo_global`). Weighting over h alone gains only if θ is sampled, since q(h) is optimal for the bound in which θ
is integrated out.
Middle and right: labels that jump between two branches where a hidden switch is on. The inner GP finds where it is on.
A latent variable beside the inner GP's output chooses the branch, one layer above. `Skip` passes on x beside f(x), so
the last layer sees [x, f(x), h].
"""

import os
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 3.8), layout="constrained")

# Importance weights over θ = (slope, bias); the data correlate the two, q does not.
x = np.linspace(-0.5, 1.5, 8)
y = 0.8 * x - 0.3 + 0.3 * rng.normal(size=8)
evidence = multivariate_normal(np.zeros(8), np.outer(x, x) + 1.0 + 0.09 * np.eye(8)).logpdf(y)
layer = ig.BayesianDense(1, 1, mean=[[0.8], [-0.3]], scale=0.15, prior_scale=1.0)
line = ig.fit(ig.Model(layer, ig.likelihoods.Gaussian(0.09)), (x, y), freeze=lambda m: m.likelihood, progress=False)
numbers = (1, 3, 10, 30, 100) if quick else (1, 3, 10, 30, 100, 300, 1000)
bound = eqx.filter_jit(partial(ig.iw_elbo_global, samples=100 if quick else 1000))
values = [float(bound(line.model, (x, y), key=jax.random.key(0), importance=S)) for S in numbers]
print(f"evidence {evidence:.3f}, ELBO {line.bound:.3f}, weighted over θ: " + ", ".join(f"{v:.3f}" for v in values))
left.plot(numbers, values, marker="o", label="ig.iw_elbo_global")
left.axhline(line.bound, color="C1", label="ig.elbo")
left.axhline(evidence, color="k", ls="--", label="evidence")
left.set(xscale="log", xlabel="samples of θ", ylabel="bound of log p(y)", title="Bayesian linear regression")
left.legend(frameon=False)

# With h beside x. Given θ = (slope, effect of h, bias), y has variance effect² + noise: the evidence by samples of θ.
noise = np.random.default_rng(1)
y = y + noise.normal(size=8)
latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(y[:, None] - 0.8 * x[:, None] + 0.3, scale=0.3))
layer = ig.BayesianDense(2, 1, mean=[[0.8], [1.0], [-0.3]], scale=0.15, prior_scale=1.0)
both = ig.Model([latent, layer], ig.likelihoods.Gaussian(0.09))
both = ig.fit(both, (x, y), freeze=lambda m: m.likelihood, steps=20 if quick else 2000, progress=False).model
slope, effect, bias = noise.normal(size=(3, 100_000, 1))
each = norm.logpdf(y, slope * x + bias, np.sqrt(effect**2 + 0.09)).sum(axis=1)
print(f"with a latent variable: evidence {logsumexp(each) - np.log(len(each)):.2f}")
weighted = {
    "over h, θ integrated inside": ig.elbo,
    "over h, θ sampled": partial(ig.elbo, integrate=False),
    "over θ and h": ig.iw_elbo_global,
}
for name, objective in weighted.items():
    bound = eqx.filter_jit(partial(objective, samples=100 if quick else 1000))
    values = [float(bound(both, (x, y), key=jax.random.key(0), importance=S)) for S in (1, 10, 100)]
    print(f"  weighted {name}, with 1, 10 and 100 samples: " + ", ".join(f"{v:.2f}" for v in values))

# A latent variable at the second layer of a deep GP.
x = rng.uniform(-2.0, 2.0, 400)
y = np.where(rng.random(400) < 0.5, 1.0, -1.0) * (x > 0) + 0.2 * np.sin(3 * x) + 0.05 * rng.normal(size=400)
Z = np.linspace(-2.0, 2.0, 20)[:, None]
inner = ig.SparseGP(ig.GP(ig.kernels.Matern52(0.5)), ig.features.InducingPoints(Z), root=0.01 * np.eye(20))
latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(jax.random.key(1), dim=1, x=1, y=1))
above = np.concatenate([rng.choice(Z[:, 0], (60, 1)), rng.normal(size=(60, 2))], axis=1)
last = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(jnp.ones(3))), ig.features.InducingPoints(above))
deep = ig.Model([ig.layers.Skip(inner), latent, last], ig.likelihoods.Gaussian(0.05))
objective = partial(ig.elbo, importance=10)
result = ig.fit(deep, (x, y), objective=objective, steps=20 if quick else 2500, progress=False)
print(f"inner latent variable: bound {result.bound:.1f}")
middle.plot(x, y, "k.", ms=2)
middle.set(title="data", xlabel="x", ylabel="y", xlim=(-2, 2), ylim=(-2, 2))
ig.report.plot_density(result.model, X=np.linspace(-2.0, 2.0, 120), Y=np.linspace(-2.0, 2.0, 120), ax=right)
right.set(title="deep GP, latent variable at layer 2", xlabel="x", ylabel="y")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/more_bounds.png", dpi=120)
print("figure: out/more_bounds.png")
