"""Variational auto-encoders, unconditional and conditional (section 3.3 and the appendix).

The encoder amortises q(h | x, y). The decoder is a network whose weights are point estimates (a Deterministic layer) or
have a posterior (BayesianDense layers). Left: a VAE of points on two half moons. Right: conditional VAEs of p(y | x)
for a relation with two branches and no data for x > 1. There, the samples of the Bayesian decoder spread wider than
those of the point estimate.
"""

import os
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)
steps = 20 if quick else 2500

angle, moon = rng.uniform(0.0, np.pi, 500), rng.random(500) < 0.5
moons = np.where(moon[:, None], np.c_[np.cos(angle), np.sin(angle)], np.c_[1 - np.cos(angle), 0.5 - np.sin(angle)])
moons = moons + 0.05 * rng.normal(size=moons.shape)
x = rng.uniform(-2.0, 1.0, 500)
y = np.where(rng.random(500) < 0.5, 1.0, -1.0) * (0.3 + x**2 / 4) + 0.05 * rng.normal(size=500)


def point_estimate(inputs, outputs):
    return [ig.layers.Deterministic(eqx.nn.MLP(inputs, outputs, 40, 2, jnp.tanh, key=jax.random.key(2)))]


def posterior(inputs, outputs, width=40):
    first, last = jax.random.split(jax.random.key(2))
    hidden = ig.BayesianDense(inputs, width, key=first, scale=0.03, prior_scale=2.0)
    out = ig.BayesianDense(width, outputs, key=last, scale=0.03, prior_scale=2.0 * width**-0.5)
    return [hidden, ig.layers.Deterministic(jnp.tanh), out]


def auto_encoder(inputs, outputs, dim, decoder):
    """h, then a decoder of [x, h]; `inputs` may be 0."""
    encoder = ig.layers.Amortised.mlp(jax.random.key(1), dim, x=inputs, y=outputs, hidden=(40, 2))
    layers = [ig.LatentVariable(dim, encoder), *decoder(inputs + dim, outputs)]
    return ig.Model(layers, ig.likelihoods.Gaussian(0.05))


objective = partial(ig.elbo, importance=10, doubly_reparameterised=True)
new_moons, new_x = np.zeros((500, 0)), np.linspace(-2.0, 2.0, 500)[:, None]
pairs = ig.Data(x, y)
fits = {  # the model, its data, and the inputs at which new labels are sampled: h from its prior, through the decoder
    "VAE samples": (auto_encoder(0, 2, 2, point_estimate), ig.Data(None, moons), new_moons),
    "CVAE, point estimate": (auto_encoder(1, 1, 1, point_estimate), pairs, new_x),
    "CVAE, Bayesian decoder": (auto_encoder(1, 1, 1, posterior), pairs, new_x),
}
samples = {}
for name, (model, data, new) in fits.items():
    result = ig.fit(model, data, objective=objective, steps=steps, progress=False)
    print(f"{name}: bound per datum {result.bound / 500:.3f}")
    samples[name] = np.asarray(result.model.predict(new, samples=1).sample(jax.random.key(3)))

figure, axes = plt.subplots(1, 5, figsize=(16, 3.4), layout="constrained")
for axis, (title, points) in zip(axes, {"data": moons, "VAE samples": samples["VAE samples"]}.items(), strict=False):
    axis.plot(points[:, 0], points[:, 1], ".", ms=3)
    axis.set(title=title, xlabel="y₁", ylabel="y₂", xlim=(-1.4, 2.4), ylim=(-0.9, 1.4))
axes[2].plot(x, y, ".", ms=3)
axes[2].set(title="data")
for axis, title in zip(axes[3:], list(fits)[1:], strict=True):
    axis.plot(new_x[:, 0], samples[title][:, 0], ".", ms=3)
    axis.set(title=title)
for axis in axes[2:]:
    axis.set(xlabel="x", ylabel="y", xlim=(-2.1, 2.1), ylim=(-2.5, 2.5))
Path("out").mkdir(exist_ok=True)
figure.savefig("out/auto_encoders.png", dpi=120)
print("figure: out/auto_encoders.png")
