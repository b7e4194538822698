"""Draws from deep GP priors of depth 1, 2, 4 and 8 (section 2.5).

Each layer is a GP with a squared exponential kernel of lengthscale 0.7. With zero means, functions become piecewise
flat with abrupt changes as the depth grows: two inputs that one layer maps to the same value stay together in all
layers above. With identity means they also become abrupt, but keep their range.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import inducing as ig

jax.config.update("jax_enable_x64", True)

X = jnp.linspace(0.0, 10.0, 500)[:, None]
data = ig.Data(X)
depths = (1, 2, 4, 8)
figure, axes = plt.subplots(2, len(depths), figsize=(13, 5.5), sharex=True, sharey="row", layout="constrained")
means = {"mean zero": ig.means.Zero(), "identity mean": ig.means.Identity()}


@jax.jit
def through(layer, f, key):
    """A layer at all inputs together: the points of one datum are drawn jointly."""
    return layer.propagate(f[None], key, data, len(X))[0][0]


for row, (name, mean) in enumerate(means.items()):
    prior = ig.priors.Independent(ig.kernels.SquaredExponential(0.7), num=1, mean=mean)
    layer = ig.SparseGP(prior, ig.features.InducingPoints(jnp.zeros((1, 1))), jitter=1e-9)  # q(u) = p(u): the prior
    for draw in range(3):
        f, ranges = X, []
        for depth in range(1, 9):
            f = through(layer, f, jax.random.key(100 * draw + depth))
            if depth in depths:
                ranges.append(f"{float(jnp.ptp(f)):.2f}")
                axis = axes[row, depths.index(depth)]
                axis.plot(X[:, 0], f[:, 0], lw=1.3)
                axis.set_title(f"{name}, depth {depth}", fontsize=10)
        print(f"{name}, draw {draw}: range of values at depths {depths}: {', '.join(ranges)}")
for axis in axes[:, 0]:
    axis.set_ylabel("f(x)")
for axis in axes[-1]:
    axis.set_xlabel("x")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/deep_prior.png", dpi=120)
print("figure: out/deep_prior.png")
