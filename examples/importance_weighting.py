"""How importance weighting tightens the bound, and how it affects the encoder's gradients (sections 3.2 and 3.4).

The model is a linear-Gaussian latent-variable model, whose evidence is known. Left: the bound approaches the evidence
as R grows. Right: the signal-to-noise ratio of the encoder's gradient falls as 1/√R, while that of the doubly
reparameterised gradient (Tucker et al. 2019) rises.
"""

import os
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)

N, slope, noise = 20, 1.5, 0.3
y = slope * rng.normal(size=N) + np.sqrt(noise) * rng.normal(size=N)
evidence = norm(0.0, np.sqrt(slope**2 + noise)).logpdf(y).sum()
variance = 1.0 / (1.0 + slope**2 / noise)
off = 0.3 + variance * slope * y / noise  # the exact posterior mean, moved
latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(off[:, None], scale=1.5 * variance**0.5))
model = ig.Model([latent, ig.layers.Deterministic(lambda h: slope * h)], ig.likelihoods.Gaussian(noise))
data = ig.Data(None, y)
replicates = (1, 3, 10) if quick else (1, 3, 10, 30, 100, 300)
keys = jax.random.split(jax.random.key(0), 100 if quick else 1000)


@eqx.filter_jit
def study(objective, keys):
    value_and_grad = eqx.filter_value_and_grad(lambda m, k: objective(m, data, key=k))
    value, gradient = jax.lax.map(lambda k: value_and_grad(model, k), keys, batch_size=20)
    return value, gradient.layers[0].encoder.mean


bounds, ratios = [], {"reparameterised": [], "doubly reparameterised": []}
for R in replicates:
    for name in ratios:
        objective = partial(ig.elbo, importance=R, doubly_reparameterised=name.startswith("doubly"))
        value, gradient = study(objective, keys)
        ratios[name].append(float(np.mean(np.abs(np.mean(gradient, axis=0)) / np.std(gradient, axis=0))))
    bounds.append((float(np.mean(value)), float(np.std(value) / len(keys) ** 0.5)))
    print(
        f"R = {R:3d}: bound {bounds[-1][0]:.3f} ± {bounds[-1][1]:.3f} (evidence {evidence:.3f}); "
        + "gradient signal to noise "
        + ", ".join(f"{name} {values[-1]:.2f}" for name, values in ratios.items())
    )

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.errorbar(replicates, [b[0] for b in bounds], [4 * b[1] for b in bounds], marker="o", label="bound (± 4 s.e.)")
left.axhline(evidence, color="k", ls="--", label="evidence")
left.set(xscale="log", xlabel="replicates R", ylabel="log p(y)")
for name, values in ratios.items():
    right.plot(replicates, values, marker="o", label=name)
floor = np.sqrt(2 / np.pi / len(keys))  # what the estimate shows where there is no signal
right.axhline(floor, color="k", ls=":", label=f"no signal, of {len(keys)} gradients")
right.set(xscale="log", yscale="log", xlabel="replicates R", ylabel="signal to noise of encoder gradients")
for axis in (left, right):
    axis.legend(frameon=False)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/importance_weighting.png", dpi=120)
print("figure: out/importance_weighting.png")
