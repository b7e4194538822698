"""A vector field from gradient observations (section 2.4, derivative GP).

The slope of an unknown landscape was measured at thirty locations, and its height at two. The derivative prior predicts
the whole vector field and the landscape itself, both with standard deviations.
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
rng = np.random.default_rng(1)


def height(x):
    return jnp.exp(-jnp.sum((x - jnp.array([0.8, 0.5])) ** 2)) - jnp.exp(-jnp.sum((x + jnp.array([0.7, 0.6])) ** 2))


# Labels are (height, slope in x, slope in y): NaN where something was not measured.
x = jnp.asarray(rng.uniform(-2.0, 2.0, (32, 2)))
y = np.full((32, 3), np.nan)
y[:30, 1:] = jax.vmap(jax.grad(height))(x[:30]) + 0.05 * rng.normal(size=(30, 2))
y[30:, 0] = jax.vmap(height)(x[30:]) + 0.05 * rng.normal(size=2)

landscape = ig.GP(ig.kernels.SquaredExponential(lengthscale=[1.0, 1.0]))
prior = ig.priors.Derivative(landscape, dim=2, values=True)
corners = jnp.linspace(-2.2, 2.2, 6)
features = ig.features.InducingPoints(jnp.stack(jnp.meshgrid(corners, corners), axis=-1).reshape(-1, 2))
model = ig.Model(ig.SparseGP(prior, features), ig.likelihoods.Gaussian(jnp.full(3, 0.01)))
result = ig.fit(model, (x, y), steps=15 if quick else 200, progress=False)

side = np.linspace(-2.0, 2.0, 40)
grid = jnp.asarray(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
posterior = result.model.posterior(grid)
mean, sd = np.asarray(posterior.mean), np.sqrt(np.asarray(posterior.variance))
true_height, true_slope = jax.vmap(height)(grid), jax.vmap(jax.grad(height))(grid)
print(f"bound {float(result.bound):.1f}; labels missing {int(np.isnan(y).sum())} of {y.size}")
for what, got, want, spread in (
    ("slopes", mean[:, 1:], true_slope, sd[:, 1:]),
    ("heights", mean[:, 0], true_height, sd[:, 0]),
):
    print(
        f"error of the {what:8s} {np.sqrt(np.mean((got - want) ** 2)):.3f} (their size {np.std(want):.3f}), "
        f"{np.mean(np.abs(got - want) < 2 * spread):.0%} within two standard deviations"
    )

figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
shape, thin = (40, 40), np.ix_(range(1, 40, 3), range(1, 40, 3))
for ax, z, slopes, title in [
    (axes[0], np.asarray(true_height), np.asarray(true_slope), "truth; measured slopes (gold), heights (stars)"),
    (axes[1], mean[:, 0], mean[:, 1:], "posterior mean"),
]:
    shown = ax.contourf(side, side, z.reshape(shape), levels=np.linspace(-1.1, 1.1, 23), cmap="RdBu_r", extend="both")
    u, v = (slopes[:, d].reshape(shape)[thin] for d in (0, 1))
    ax.quiver(side[1::3], side[1::3], u, v, color="0.2", scale=18, width=0.004)
    ax.set_title(title)
axes[0].quiver(x[:30, 0], x[:30, 1], y[:30, 1], y[:30, 2], color="gold", scale=18, width=0.008, edgecolor="k", lw=0.4)
axes[0].plot(x[30:, 0], x[30:, 1], "k*", ms=12, mfc="w", clip_on=False)
figure.colorbar(shown, ax=axes[:2], label="height")
spread = axes[2].contourf(side, side, np.sqrt((sd[:, 1:] ** 2).sum(axis=1)).reshape(shape), 15, cmap="viridis")
axes[2].plot(x[:30, 0], x[:30, 1], "w.", ms=5)
axes[2].set_title("standard deviation of the slope")
figure.colorbar(spread, ax=axes[2])
for ax in axes:
    ax.set(aspect="equal", xlabel="x₁", ylabel="x₂")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/vector_field.png", dpi=120)
print("figure: out/vector_field.png")
