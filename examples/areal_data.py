"""Aggregated data: a map inferred from averages over regions (`features.RegionAverage`, section 2.3).

Only noisy averages of a surface over 60 rectangles are observed. The noise-free averages are the inducing variables u.
Their posterior p(u | y) has a closed form, and the sparse GP with q(u) = p(u | y) is the exact posterior of the
surface.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

import inducing as ig

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(3)


def surface(X):
    return jnp.sin(4.0 * X[:, 0]) * jnp.cos(3.0 * X[:, 1]) + X[:, 0]


cuts = [np.concatenate([[0.0], np.sort(rng.uniform(0.05, 0.95, 5)), [1.0]]) for _ in range(10)]
rows = np.linspace(0.0, 1.0, 11)
lower = np.array([[c[i], rows[r]] for r, c in enumerate(cuts) for i in range(6)])
upper = np.array([[c[i + 1], rows[r + 1]] for r, c in enumerate(cuts) for i in range(6)])
regions = ig.features.RegionAverage(lower, upper)
truth = regions.apply(surface)
noise = 0.05**2
y = truth + 0.05 * rng.normal(size=truth.shape)

prior = ig.GP(ig.kernels.SquaredExponential(0.3))
Kuu = regions.Kuu(prior.kernel, 1e-9).dense()
gain = jnp.linalg.solve(Kuu + noise * jnp.eye(len(y)), Kuu).T
covariance = Kuu - gain @ Kuu
root = jnp.linalg.cholesky(0.5 * (covariance + covariance.T) + 1e-9 * jnp.eye(len(y)))
layer = ig.SparseGP(prior, regions, mean=gain @ y, root=root, coordinates="u")

side = 60
grid = np.stack(np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side)), -1).reshape(-1, 2)
mean, variance = layer.marginals(jnp.asarray(grid))
actual = np.asarray(surface(jnp.asarray(grid)))
error = np.asarray(mean[:, 0]) - actual
print(
    f"root mean squared error of the map: {np.sqrt((error**2).mean()):.3f}; of the averages themselves, as a map:",
    end=" ",
)
inside = ((grid[:, None, :] >= lower[None]) & (grid[:, None, :] <= upper[None])).all(-1).argmax(1)
print(f"{np.sqrt(((np.asarray(y)[inside] - actual) ** 2).mean()):.3f}")

figure, axes = plt.subplots(1, 4, figsize=(14, 3.6), constrained_layout=True)
limits = {"vmin": actual.min(), "vmax": actual.max()}
for axis, values, title in (
    (axes[0], actual, "the surface"),
    (axes[2], np.asarray(mean[:, 0]), "posterior mean"),
    (axes[3], np.sqrt(np.asarray(variance[:, 0])), "posterior standard deviation"),
):
    extra = limits if axis is not axes[3] else {"cmap": "magma"}
    image = axis.imshow(values.reshape(side, side), origin="lower", extent=(0, 1, 0, 1), **extra)
    axis.set_title(title)
    figure.colorbar(image, ax=axis, shrink=0.8)
colours = plt.get_cmap()
for low, high, value in zip(lower, upper, np.asarray(y), strict=True):
    shade = colours((value - limits["vmin"]) / (limits["vmax"] - limits["vmin"]))
    axes[1].add_patch(Rectangle(low, *(high - low), facecolor=shade, edgecolor="w", lw=0.5))
axes[1].set(title="what was seen: 60 averages", aspect="equal")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/areal_data.png", dpi=120)
print("figure: out/areal_data.png")
