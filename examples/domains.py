"""Inputs that are not real vectors: the globe, the nodes of a road graph, and words.

GeometricKernels gives `ig.kernels.Geometric` the eigenfunctions of spheres, graphs and other spaces, on which
`ig.features.EigenGeometric` have a diagonal Kuu. Left: temperatures on the globe from 150 stations. Middle: speeds on a
road graph of which a quarter of the crossings is measured; a road, not the crow's flight, says what is near. Right: a
kernel on words that counts common pairs of letters, written in a few lines, with inducing words. Words enter as the
numbers of their letters, padded by −1, so that data, fit, predictions and files need to know nothing about them. All
data are made up. Without GeometricKernels the left and middle are left out.
"""

import importlib.util
import os
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
QUICK = bool(os.environ.get("INDUCING_QUICK"))
rng = np.random.default_rng(0)
here = Path(__file__).resolve().parent  # an example here has the name of a package that GeometricKernels imports
sys.path = [folder for folder in sys.path if Path(folder or ".").resolve() != here]
warnings.filterwarnings("ignore")  # of what GeometricKernels imports
GEOMETRY = importlib.util.find_spec("geometric_kernels") is not None
if not GEOMETRY:
    print("GeometricKernels is not installed: pip install inducing[geometry]")


def globe():
    """The sphere."""
    from geometric_kernels.spaces import Hypersphere

    return Hypersphere(2)


def directions(latitude, longitude):
    """Points on the sphere, from degrees."""
    a, b = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)], axis=-1)


SIDE = 9
places = np.array([(i, j) for i in range(SIDE) for j in range(SIDE)])
near = np.abs(places[:, None] - places[None]).sum(axis=2) == 1
river = (places[:, None, 0] <= 4) & (places[None, :, 0] > 4) & (places[:, None, 1] != 0)  # one bridge, at the left
roads = (near & ~river & ~river.T).astype(float)


def town():
    """The crossings of a town with a river and one bridge."""
    from geometric_kernels.spaces import Graph

    return Graph(roads, normalize_laplacian=False)


class Pairs(ig.kernels.AbstractPointKernel):
    """k(x, y) = σ² c(x, y) / √(c(x, x) c(y, y)), where c counts equal pairs of adjacent letters."""

    variance: jax.Array = ig.parameters.positive(1.0)

    def _common(self, x, y):
        a, b = (jnp.where(w[1:] < 0, -1, 32 * w[:-1] + w[1:]) for w in (x, y))
        return jnp.sum((a[:, None] == b[None]) & (a[:, None] >= 0)).astype(x.dtype)

    def __call__(self, x, y):
        return self.variance * self._common(x, y) / jnp.sqrt(self._common(x, x) * self._common(y, y))


def codes(words, width=10):
    """The numbers of the letters, padded by −1."""
    return np.array([[ord(c) - 97 for c in word.ljust(width, "`")] for word in words], float)


fig, axes = plt.subplots(1, 3, figsize=(14, 3.8), layout="constrained")
if GEOMETRY:
    latitude, longitude = np.rad2deg(np.arcsin(rng.uniform(-1, 1, 150))), rng.uniform(-180, 180, 150)
    truth = (
        28
        - 45 * np.sin(np.deg2rad(latitude)) ** 2
        + 5 * np.sin(np.deg2rad(2 * longitude)) * np.cos(np.deg2rad(latitude))
    )
    y = truth + rng.normal(size=150)
    kernel = ig.kernels.Geometric(globe, levels=6 if QUICK else 12, lengthscale=0.5, variance=200.0)
    gp = ig.SparseGP(ig.GP(kernel, ig.means.Constant(10.0)), ig.features.EigenGeometric(16 if QUICK else 100))
    model = ig.fit(
        ig.Model(gp, ig.likelihoods.Gaussian(1.0)),
        (directions(latitude, longitude), y),
        steps=5 if QUICK else 100,
        progress=False,
    ).model
    lat, lon = np.meshgrid(np.linspace(-88, 88, 45), np.linspace(-180, 180, 91), indexing="ij")
    mean = np.asarray(model.predict(directions(lat, lon).reshape(-1, 3)).mean).reshape(lat.shape)
    picture = axes[0].pcolormesh(lon, lat, mean, shading="auto", cmap="RdYlBu_r")
    axes[0].plot(longitude, latitude, "k.", ms=3)
    fig.colorbar(picture, ax=axes[0], label="°C")

    speed = 50 - 30 * np.exp(-((places - [2, 6]) ** 2).sum(axis=1) / 6) - 15 * (places[:, 0] > 4)
    seen = rng.permutation(len(places))[:20]
    graph = ig.SparseGP(
        ig.GP(
            ig.kernels.Geometric(town, levels=len(places), nu=2.5, lengthscale=3.0, variance=100.0),
            ig.means.Constant(40.0),
        ),
        ig.features.EigenGeometric(len(places)),
    )
    data = (seen[:, None].astype(float), speed[seen] + rng.normal(size=20))
    roads_model = ig.fit(
        ig.Model(graph, ig.likelihoods.Gaussian(1.0)), data, steps=5 if QUICK else 100, progress=False
    ).model
    guess = np.asarray(roads_model.predict(np.arange(len(places), dtype=float)[:, None]).mean)[:, 0]
    flat = ig.SparseGP(
        ig.GP(ig.kernels.Matern52(2.0, 100.0), ig.means.Constant(40.0)),
        ig.features.InducingPoints(places[seen].astype(float)),
    )
    flat_data = (places[seen].astype(float), data[1])
    crow = ig.fit(
        ig.Model(flat, ig.likelihoods.Gaussian(1.0)), flat_data, steps=5 if QUICK else 100, progress=False
    ).model
    straight = np.asarray(crow.predict(places.astype(float)).mean)[:, 0]
    hidden = np.setdiff1d(np.arange(len(places)), seen)
    for name, value in (("along roads", guess), ("as the crow flies", straight)):
        print(f"speeds {name}: RMSE {np.sqrt(np.mean((value - speed)[hidden] ** 2)):.2f}")
    for a, b in np.argwhere(np.triu(roads)):
        axes[1].plot(*places[[a, b]].T[::-1], color="0.7", lw=1, zorder=0)
    dots = axes[1].scatter(places[:, 1], places[:, 0], c=guess, s=40, cmap="viridis")
    axes[1].scatter(places[seen, 1], places[seen, 0], s=90, facecolors="none", edgecolors="k")
    fig.colorbar(dots, ax=axes[1], label="km/h")
axes[0].set(title="Temperatures on the globe", xlabel="longitude", ylabel="latitude")
axes[1].set(title="Speeds in a town with one bridge", xticks=[], yticks=[])

parts = ["ka", "lo", "mi", "ru", "te", "sha", "ping", "dor"]
worth = dict(zip(parts, rng.normal(size=len(parts)), strict=True))
pieces = [rng.choice(parts, 3) for _ in range(160)]
words = ["".join(p)[:10] for p in pieces]
y = np.array([sum(worth[s] for s in p) for p in pieces]) + 0.1 * rng.normal(size=160)
X, train = codes(words), np.arange(160) < 120
Z = ig.initialise.greedy_variance(Pairs(), X[train], 40)  # inducing words, chosen among those of the data
words_gp = ig.Model(
    ig.SparseGP(ig.GP(Pairs(2.0), ig.means.Constant(0.0)), ig.features.InducingPoints(Z)), ig.likelihoods.Gaussian(0.1)
)
words_gp = ig.fit(
    words_gp, (X[train], y[train]), freeze=lambda m: m.layers[0].features, steps=5 if QUICK else 100, progress=False
).model
Path("out").mkdir(exist_ok=True)
ig.save("out/words.safetensors", words_gp)
pred = ig.load("out/words.safetensors", parts=[Pairs]).predict(X[~train])
low, high = (np.asarray(a)[:, 0] for a in pred.interval(0.9))
error = np.sqrt(np.mean((np.asarray(pred.mean)[:, 0] - y[~train]) ** 2))
print(f"words: RMSE {error:.2f} of labels with standard deviation {y.std():.2f}")
axes[2].errorbar(y[~train], pred.mean[:, 0], [pred.mean[:, 0] - low, high - pred.mean[:, 0]], fmt=".", lw=0.8)
axes[2].plot([y.min(), y.max()], [y.min(), y.max()], "k", lw=0.8)
axes[2].set(title=f"Words such as {words[0]}", xlabel="label", ylabel="prediction")
fig.savefig("out/domains.png", dpi=110)
print("figure: out/domains.png")
