"""Bayesian neural networks as stacks of layers (sections 3.1, 3.3 and 3.5), with the same bound and the same `fit`.

The noise of the data grows with x. Three networks are compared: one with constant noise, one with two outputs (the mean
and the logarithm of the noise's standard deviation), and one with a latent variable for each datum as a second input.
"""

import os
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)


def noisy(n):
    x = rng.uniform(-2.0, 2.0, n)
    return x, np.sin(2.0 * x) + (0.03 + 0.1 * (x + 2.0)) * rng.normal(size=n)


(x, y), (x_new, y_new) = noisy(600), noisy(600)


def network(inputs, outputs, scales=(0.5, 0.1), width=20):
    """One hidden layer; the prior lets functions bend within the range of the data.

    `scales` are where the standard deviations of q(θ) start. Data say little of most weights, and Adam widens them
    slowly: from 0.03, 3000 steps take the heteroscedastic bound to -160, below the homoscedastic one; from here to -84.
    """
    first, last = jax.random.split(jax.random.key(0))
    return [
        ig.BayesianDense(inputs, width, key=first, scale=scales[0], prior_scale=3.0),
        ig.layers.Deterministic(jnp.tanh),
        ig.BayesianDense(width, outputs, key=last, scale=scales[1], prior_scale=2.0 * width**-0.5),
    ]


latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(jax.random.key(1), dim=1, x=1, y=1))
models = {
    "homoscedastic": (ig.Model(network(1, 1), ig.likelihoods.Gaussian(0.1)), ig.elbo),
    "heteroscedastic": (ig.Model(network(1, 2), ig.likelihoods.HeteroscedasticGaussian()), ig.elbo),
    "latent variable": (
        ig.Model([latent, *network(2, 1, scales=(0.03, 0.03))], ig.likelihoods.Gaussian(0.01)),  # or noise hides h
        partial(ig.elbo, importance=5),
    ),
}
grid = np.linspace(-2.5, 2.5, 200)
figure, axes = plt.subplots(1, 3, figsize=(14, 3.8), sharex=True, sharey=True, layout="constrained")
for axis, (name, (model, objective)) in zip(axes, models.items(), strict=True):
    result = ig.fit(model, (x, y), objective=objective, steps=20 if quick else 3000, progress=False)
    samples = 30 if quick else 200
    score = result.model.predict(x_new, samples=samples).log_prob(y_new)
    prediction = result.model.predict(grid, samples=samples)
    low, high = prediction.interval(0.95)
    axis.plot(x, y, "k.", ms=2, label="data")
    axis.fill_between(grid, low[:, 0], high[:, 0], alpha=0.3, lw=0, label="95 % of new labels")
    axis.plot(grid, prediction.mean[:, 0], label="mean")
    axis.set(title=f"{name}: held-out log density {float(score.mean()):.2f}", xlabel="x", ylim=(-2.5, 2.5))
    print(f"{name}: bound {result.bound:.1f}, held-out log density {float(score.mean()):.3f}")
axes[0].set_ylabel("y")
axes[0].legend(frameon=False, loc="lower left", fontsize=8)
Path("out").mkdir(exist_ok=True)
figure.savefig("out/bayesian_network.png", dpi=120)
print("figure: out/bayesian_network.png")
