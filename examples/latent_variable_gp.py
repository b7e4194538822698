"""A latent variable makes a GP's predictions multimodal (sections 4.2 and 4.3).

The data have two branches over one input. A GP can only blur them. A GP of [x, h], with a latent variable h for each
datum, separates them, and separates them better if it is trained with importance weights. Finally, predictions sample h
from q(h | x) instead of the prior p(h). Since x does not reveal the branch of a datum, q(h | x) must stay broad.
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


def branches(n):
    x = rng.uniform(-2.0, 2.0, n)
    side = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return x, side * (0.4 + np.abs(np.sin(1.5 * x))) + 0.07 * rng.normal(size=n)


(x, y), (x_new, y_new) = branches(400), branches(400)


def latent_gp(**sees):
    encoder = ig.layers.Amortised.mlp(jax.random.key(0), dim=1, **sees)
    latent = ig.LatentVariable(1, encoder)
    kernel = lambda D: ig.kernels.SquaredExponential(jnp.ones(D))  # noqa: E731
    return ig.deep_gp(x, ig.likelihoods.Gaussian(0.05), num_layers=1, num_inducing=50, kernel=kernel, latent=latent)


weighted = partial(ig.elbo, importance=10)
models = {
    "GP": (ig.deep_gp(x, ig.likelihoods.Gaussian(0.5), num_layers=1, num_inducing=30), ig.elbo),
    "LV-GP, R = 1": (latent_gp(x=1, y=1), ig.elbo),
    "LV-GP, R = 10": (latent_gp(x=1, y=1), weighted),
    "LV-GP, q(h | x), R = 10": (latent_gp(x=1), weighted),
}
grid = np.linspace(-2.0, 2.0, 120)
figure, axes = plt.subplots(1, 5, figsize=(18, 3.6), sharex=True, sharey=True, layout="constrained")
axes[0].plot(x, y, "k.", ms=2)
axes[0].set_title("data")
for axis, (name, (model, objective)) in zip(axes[1:], models.items(), strict=True):
    result = ig.fit(model, (x, y), objective=objective, steps=30 if quick else 2500, progress=False)
    score = result.model.predict(x_new).log_prob(y_new)
    ig.report.plot_density(result.model, X=grid, Y=grid, ax=axis)
    axis.set_title(f"{name}\nheld-out log density {float(score.mean()):.2f}", fontsize=10)
    print(f"{name}: bound {result.bound:.1f}, held-out log density {float(score.mean()):.3f}")
axes[0].set_ylabel("y")
for axis in axes:
    axis.set_xlabel("x")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/latent_variable_gp.png", dpi=120)
print("figure: out/latent_variable_gp.png")
