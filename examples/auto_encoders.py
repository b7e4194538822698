"""Variational auto-encoders, with and without conditions (section 3.3 and the appendix).

A decoder network is a Deterministic layer (a point estimate), the encoder amortises q(h | x, y); nothing else is new.
Left: a VAE of points on two half moons. Right: a conditional one, for p(y | x) of a relation with two branches.
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
x = rng.uniform(-2.0, 2.0, 500)
y = np.where(rng.random(500) < 0.5, 1.0, -1.0) * (0.3 + x**2 / 4) + 0.05 * rng.normal(size=500)


def auto_encoder(inputs, outputs, dim):
    """h, then a network of [x, h]; `inputs` may be 0."""
    encoder = ig.layers.Amortised.mlp(jax.random.key(1), dim, x=inputs, y=outputs, hidden=(40, 2))
    decoder = eqx.nn.MLP(inputs + dim, outputs, 40, 2, jnp.tanh, key=jax.random.key(2))
    layers = [ig.LatentVariable(dim, encoder), ig.layers.Deterministic(decoder)]
    return ig.Model(layers, ig.likelihoods.Gaussian(0.05))


objective = partial(ig.elbo, importance=10, doubly_reparameterised=True)
vae = ig.fit(auto_encoder(0, 2, 2), ig.Data(None, moons), objective=objective, steps=steps, progress=False)
cvae = ig.fit(auto_encoder(1, 1, 1), (x, y), objective=objective, steps=steps, progress=False)
print(f"VAE: bound per datum {vae.bound / 500:.3f}; CVAE: {cvae.bound / 500:.3f}")


def generate(model, data, key):
    """New labels: h from its prior, through the decoder, plus noise."""
    h, _ = model.propagate(data, key)
    f = model.layers[-1].moments(h)[0][:, 0]
    return f + jnp.sqrt(model.likelihood.variance) * jax.random.normal(jax.random.key(5), f.shape)


new = ig.Data(jnp.zeros((500, 0)))
samples = generate(vae.model, new, jax.random.key(3))
x_new = jnp.linspace(-2.0, 2.0, 500)[:, None]
branches = generate(cvae.model, ig.Data(x_new), jax.random.key(4))
figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), layout="constrained")
for axis, points, title in zip(axes, (moons, samples), ("data", "VAE samples"), strict=False):
    axis.plot(points[:, 0], points[:, 1], ".", ms=3)
    axis.set(title=title, xlim=(-1.4, 2.4), ylim=(-0.9, 1.4))
for axis, (a, b), title in zip(
    axes[2:], ((x, y), (x_new[:, 0], branches[:, 0])), ("data", "CVAE samples"), strict=True
):
    axis.plot(a, b, ".", ms=3)
    axis.set(title=title, xlabel="x", ylim=(-2, 2))
Path("out").mkdir(exist_ok=True)
figure.savefig("out/auto_encoders.png", dpi=120)
