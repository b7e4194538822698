"""Correlated outputs, one of which is missing on an interval and is inferred from the others (section 2.4).

Three sensors see two hidden signals, and the third sensor fails for a while. A coregionalised GP predicts it from the
other two; independent GPs can only return to their mean. The same model is then written in the output-as-input view,
where each row (x, p) has one label, and in the naive form, with inducing variables of the outputs instead of the two
hidden signals. The bounds agree.
"""

import os
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

# Data: y = W g(x) + noise, with the third output hidden for x in (3, 6).
x = np.sort(rng.uniform(0.0, 10.0, 120))


def truth(x):
    hidden = np.stack([np.sin(1.3 * x) + 0.3 * x, np.cos(2.1 * x + 0.5)], axis=1)
    return hidden @ np.array([[1.0, 0.3, -0.8], [0.2, 1.0, 0.9]])


y = truth(x) + 0.1 * rng.normal(size=(120, 3))
y[(x > 3.0) & (x < 6.0), 2] = np.nan

features = ig.features.InducingPoints(jnp.linspace(0.0, 10.0, 25)[:, None])
noise = ig.likelihoods.Gaussian(jnp.full(3, 0.05))
kernels = [ig.kernels.SquaredExponential(lengthscale=1.5), ig.kernels.SquaredExponential(lengthscale=0.7)]
constant = ig.means.Constant(np.nanmean(y, axis=0))
priors = {
    "independent": ig.priors.Independent(
        [ig.kernels.SquaredExponential(lengthscale=1.0) for _ in range(3)], mean=constant
    ),
    "coregionalised": ig.priors.LMC(rng.normal(size=(3, 2)), kernels, mean=constant),
}

grid = np.linspace(0.0, 10.0, 400)
gap = (grid > 3.0) & (grid < 6.0)
figure, axes = plt.subplots(3, 2, figsize=(11, 7), sharex=True, sharey="row", layout="constrained")
for column, (name, prior) in enumerate(priors.items()):
    model = ig.Model(ig.SparseGP(prior, features), noise)
    result = ig.fit(model, (x, y), steps=15 if quick else 300, progress=False)
    prediction = result.model.predict(grid)
    mean, sd = np.asarray(prediction.mean), np.sqrt(np.asarray(prediction.variance))
    error = np.sqrt(np.mean((mean - truth(grid))[gap, 2] ** 2))
    print(f"{name:15s} bound {float(result.bound):8.1f}   error of output 3 where it is missing {error:.3f}")
    for p in range(3):
        ax = axes[p, column]
        ax.fill_between(grid, mean[:, p] - 2 * sd[:, p], mean[:, p] + 2 * sd[:, p], color=f"C{p}", alpha=0.2, lw=0)
        ax.plot(grid, mean[:, p], color=f"C{p}", label="mean ± 2 sd")
        ax.plot(grid, truth(grid)[:, p], "k--", lw=0.8, label="truth")
        ax.plot(x, y[:, p], "k.", ms=3, label="data")
        ax.set_ylabel(f"output {p + 1}")
    axes[2, column].axvspan(3.0, 6.0, color="0.92", zorder=-1)
    axes[0, column].set_title(f"{name}: error in the gap {error:.2f}")
    axes[2, column].set_xlabel("x")
axes[0, 0].legend(loc="upper left", fontsize=8)

# The coregionalised model, trained, in two other forms: f(x, p), one label a row; and u of the outputs, rows (z, p).
fitted, bound = result.model.layers[0], eqx.filter_jit(ig.collapsed_elbo)
n, p = np.nonzero(~np.isnan(y))
noise_of_rows = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum(result.model.likelihood.variance[p], new=1.0))
view = ig.priors.as_input(fitted.prior)
as_input = ig.Model(ig.SparseGP(view, fitted.features), noise_of_rows)
value = float(bound(as_input, (np.column_stack([x[n], p]), y[n, p])))
print(f"{'output as input':15s} bound {value:8.1f}   {len(n)} rows (x, p)")
Z = np.column_stack([np.repeat(fitted.features.Z, 3, axis=0), np.tile(np.arange(3.0), 25)])
naive_prior = ig.priors.MatrixValued(view.kernel, num_outputs=3, mean=fitted.prior.mean_function)
naive = ig.Model(ig.SparseGP(naive_prior, ig.features.InducingPoints(Z)), result.model.likelihood)
print(f"{'naive':15s} bound {float(bound(naive, (x, y))):8.1f}   {len(Z)} inducing variables together, not 2 times 25")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/multioutput.png", dpi=120)
print("figure: out/multioutput.png")
