"""Fit a small model with the installed package, without any extra: the last step of `make release`."""

from pathlib import Path

import jax
import numpy as np

import inducing as ig

assert "site-packages" in str(Path(ig.__file__)), f"not the installed package: {ig.__file__}"
jax.config.update("jax_enable_x64", True)
x = np.linspace(0.0, 6.0, 100)
points = ig.features.InducingPoints(np.linspace(0.0, 6.0, 10)[:, None])
model = ig.Model(ig.SparseGP(ig.GP(ig.kernels.Matern52()), points), ig.likelihoods.Gaussian(0.1))
result = ig.fit(model, (x, np.sin(x)), progress=False)
error = np.abs(np.asarray(result.model.predict(x).mean)[:, 0] - np.sin(x)).max()
assert error < 0.05, error
print(f"inducing {ig.__version__}: fitted a sine to {error:.4f}")
