"""Curved inputs: angles of two joints on a torus, and the surface of a mesh.

`ig.kernels.Geometric` takes its eigenfunctions from GeometricKernels, and `ig.features.EigenGeometric` have a diagonal
Kuu. Left: a function of two angles, which is continuous across the edges of the picture. Right: a function on the
surface of an ellipsoid, seen at 60 of its vertices. All data are made up. Without GeometricKernels the picture is
empty.
"""

import importlib.util
import os
import sys
import warnings
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

import inducing as ig

jax.config.update("jax_enable_x64", True)
QUICK = bool(os.environ.get("INDUCING_QUICK"))
rng = np.random.default_rng(0)
here = Path(__file__).resolve().parent  # an example here has the name of a package that GeometricKernels imports
sys.path = [folder for folder in sys.path if Path(folder or ".").resolve() != here]
warnings.filterwarnings("ignore")  # of what GeometricKernels imports


def torus():
    """Pairs of angles."""
    from geometric_kernels.spaces import Circle, ProductDiscreteSpectrumSpace

    return ProductDiscreteSpectrumSpace(Circle(), Circle(), num_levels=36, num_levels_per_space=6)


golden = np.pi * (3 - np.sqrt(5)) * np.arange(400)
z = np.linspace(-0.99, 0.99, 400)
ball = np.stack([np.sqrt(1 - z**2) * np.cos(golden), np.sqrt(1 - z**2) * np.sin(golden), z], axis=1)
faces = ConvexHull(ball).simplices
vertices = ball * [2.0, 1.0, 1.0]


def surface():
    """An ellipsoid of 400 vertices."""
    from geometric_kernels.spaces import Mesh

    return Mesh(vertices, faces)


def trained(kernel, features, X, y):
    """A sparse GP with these features, fitted to the data."""
    model = ig.Model(ig.SparseGP(ig.GP(kernel), features), ig.likelihoods.Gaussian(0.05))
    return ig.fit(model, (X, y), steps=5 if QUICK else 100, progress=False).model


def error(name, guess, truth):
    """Print the error of predictions."""
    print(f"{name}: RMSE {np.sqrt(np.mean((np.asarray(guess) - truth) ** 2)):.3f} of {truth.std():.3f}")


fig = plt.figure(figsize=(9, 3.9), layout="constrained")
if importlib.util.find_spec("geometric_kernels") is None:
    print("GeometricKernels is not installed: pip install inducing[geometry]")
else:
    angles = rng.uniform(0, 2 * np.pi, (60, 2))
    energy = lambda a: np.sin(a[:, 0] + a[:, 1]) + np.cos(a[:, 1])  # noqa: E731
    levels = 9 if QUICK else 36
    kernel = ig.kernels.Geometric(torus, levels=levels)
    on_torus = trained(kernel, ig.features.EigenGeometric(levels), angles, energy(angles) + 0.1 * rng.normal(size=60))
    side = np.linspace(0, 2 * np.pi, 50)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    mean = np.asarray(on_torus.predict(grid).mean)
    error("torus", mean[:, 0], energy(grid))
    ax = fig.add_subplot(121)
    ax.contourf(side, side, mean.reshape(50, 50), 20, cmap="RdBu_r")
    ax.plot(*angles.T, "k.", ms=3)
    ax.set(title="Energy of two joints", xlabel="first angle", ylabel="second angle")

    seen = rng.permutation(400)[:60]
    heat = np.sin(2 * vertices[:, 0]) * vertices[:, 2]
    kernel = ig.kernels.Geometric(surface, levels=10 if QUICK else 60)
    data = (seen[:, None].astype(float), heat[seen] + 0.05 * rng.normal(size=60))
    on_mesh = trained(kernel, ig.features.EigenGeometric(10 if QUICK else 60), *data)
    mean = np.asarray(on_mesh.predict(np.arange(400.0)[:, None]).mean)[:, 0]
    error("mesh", mean, heat)
    ax = fig.add_subplot(122, projection="3d")
    patches = ax.plot_trisurf(*vertices.T, triangles=faces, cmap="RdBu_r", lw=0.1)
    patches.set_array(mean[faces].mean(axis=1))
    ax.set(title="Heat on a surface", xticks=[], yticks=[], zticks=[])
    ax.set_box_aspect((2, 1, 1), zoom=1.4)
Path("out").mkdir(exist_ok=True)
fig.savefig("out/spaces.png", dpi=110)
print("figure: out/spaces.png")
