"""Full Bayes: NUTS over hyperparameters and inducing variables (Hensman, Matthews, Filippone and Ghahramani, 2015).

Variational inference with a point estimate of the hyperparameters θ is replaced by samples of (θ, w) from

    p(w, θ | y) ∝ exp( Σ_n E_{p(f_n | w, θ)} log p(y_n | f_n) ) N(w | 0, I) p(θ),

where w are the whitened inducing variables. `ig.sample_posterior` does that by NumPyro's NUTS. Positive parameters get
the priors that are passed, others a Gaussian about their value. Left: predictions of counts by both. Right: what NUTS
knows of the lengthscale, beside the one value of the variational fit.
"""

import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from numpyro.distributions import LogNormal

import inducing as ig

jax.config.update("jax_enable_x64", True)
QUICK = bool(os.environ.get("INDUCING_QUICK"))
WARMUP, SAMPLES, CHAINS = (10, 10, 1) if QUICK else (300, 500, 2)

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0.0, 10.0, 60))
y = rng.poisson(np.exp(1.0 + np.sin(x))).astype(float)
data = ig.Data(x, y)
grid = np.linspace(-1.0, 11.0, 200)

Z = np.linspace(0.0, 10.0, 12)[:, None]
gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(1.5), ig.means.Constant(1.0)), ig.features.InducingPoints(Z))
model = ig.Model(gp, ig.likelihoods.Poisson())

fitted = ig.fit(model, data, progress=False, steps=50 if QUICK else 1000).model

drawn = ig.sample_posterior(
    fitted,
    data,
    priors=[
        (lambda m: m.layers[0].prior.kernel.lengthscale, LogNormal(0.5, 0.7)),
        (lambda m: m.layers[0].prior.kernel.variance, LogNormal(0.0, 1.0)),
    ],
    warmup=WARMUP,
    samples=SAMPLES,
    chains=CHAINS,
)
for name, row in drawn.summary().items():
    if name != "w":
        said = f"r_hat {row['r_hat']:.3f}, {row['n_eff']:.0f} effective samples"
        print(f"{name}: {row['mean']:.2f} ± {row['std']:.2f}, {said}")
print(f"{drawn.divergences} divergences")
sampled, variational = drawn.predict(grid), fitted.predict(grid)
lengthscales = np.ravel(drawn.values[".layers[0].prior.kernel.lengthscale"])
print(f"lengthscale: {float(lengthscales.mean()):.2f} ± {float(lengthscales.std()):.2f} by NUTS,")
print(f"             {float(fitted.layers[0].prior.kernel.lengthscale):.2f} by maximising the bound")

fig, axes = plt.subplots(1, 2, figsize=(11, 3.6), constrained_layout=True, width_ratios=(2, 1))
axes[0].plot(x, y, "k.", label="counts")
for predictive, colour, name in ((variational, "C0", "variational"), (sampled, "C3", "NUTS")):
    lower, upper = predictive.interval(0.9)
    axes[0].plot(grid, predictive.mean, colour, label=name)
    axes[0].fill_between(grid, lower[:, 0], upper[:, 0], color=colour, alpha=0.15, lw=0)
axes[0].set(xlabel="x", ylabel="y", title="Mean and 90 % of the predictive distribution")
axes[0].legend()
axes[1].hist(np.asarray(lengthscales), bins=25, color="C3", alpha=0.6)
axes[1].axvline(float(fitted.layers[0].prior.kernel.lengthscale), color="C0", label="variational")
axes[1].legend(frameon=False)
axes[1].set(xlabel="lengthscale", ylabel="samples of NUTS", title="Posterior of the lengthscale")
Path("out").mkdir(exist_ok=True)
fig.savefig("out/nuts.png", dpi=150)
print("figure: out/nuts.png")
