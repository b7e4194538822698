"""Full Bayes: NUTS over hyperparameters and inducing variables (Hensman, Matthews, Filippone and Ghahramani, 2015).

Variational inference with a point estimate of the hyperparameters θ is replaced by samples of (θ, w) from

    p(w, θ | y) ∝ exp( Σ_n E_{p(f_n | w, θ)} log p(y_n | f_n) ) N(w | 0, I) p(θ),

where w are the whitened inducing variables. The bracket is the library's expected log-likelihood of a sparse GP whose
q(w) is a point: its mean is the sample and its root is zero. NumPyro does the sampling; `constrain` maps the
unconstrained θ, on which p(θ) is standard normal about the starting values, to the model. Left: predictions of counts
by both. Right: what NUTS knows of the lengthscale, beside the one value of the variational fit.
"""

import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from numpyro.infer import MCMC, NUTS

import inducing as ig

jax.config.update("jax_enable_x64", True)
QUICK = bool(os.environ.get("INDUCING_QUICK"))
WARMUP, SAMPLES = (10, 10) if QUICK else (300, 500)

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0.0, 10.0, 60))
y = rng.poisson(np.exp(1.0 + np.sin(x))).astype(float)
data = ig.Data(x, y)
grid = np.linspace(-1.0, 11.0, 200)

Z = np.linspace(0.0, 10.0, 12)[:, None]
gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(1.5), ig.means.Constant(1.0)), ig.features.InducingPoints(Z))
model = ig.Model(gp, ig.likelihoods.Poisson())

fitted = ig.fit(model, data, progress=False, steps=50 if QUICK else 1000).model

# θ is what trains besides q(w): the kernel's and the mean's parameters; Z stays.
theta = ig.parameters.partition(model, freeze=lambda m: (m.layers[0].features, m.layers[0].mean, m.layers[0].root))


def model_at(sample):
    """The model whose hyperparameters and (deterministic) w are those of a sample."""
    shifted = [start + step for start, step in zip(theta.free, sample["theta"], strict=True)]
    whole = eqx.tree_at(lambda p: p.free, theta, shifted).model()
    point = (sample["w"], jnp.zeros_like(whole.layers[0].root))
    return eqx.tree_at(lambda m: (m.layers[0].mean, m.layers[0].root), whole, point)


def potential(sample):
    """−log p(w, θ, y), up to a constant."""
    log_likelihood = jnp.sum(ig.bounds.expected_log_likelihood(model_at(sample), data, data.x[:, None]))
    log_prior = -0.5 * sum(jnp.sum(v**2) for v in jax.tree.leaves(sample))
    return -(log_likelihood + log_prior)


start = {"theta": [jnp.zeros_like(v) for v in theta.free], "w": fitted.layers[0].mean}
mcmc = MCMC(NUTS(potential_fn=potential), num_warmup=WARMUP, num_samples=SAMPLES, progress_bar=False)
mcmc.run(jax.random.key(0), init_params=start)
samples = mcmc.get_samples()

# The predictive distribution is a mixture over the samples, of which every tenth will do.
moments = jax.jit(jax.vmap(lambda s: model_at(s).layers[0].marginals(jnp.asarray(grid)[:, None])))
mean, variance = moments(jax.tree.map(lambda a: a[::10], samples))
sampled = ig.likelihoods.Predictive(model.likelihood, mean, variance)
variational = fitted.predict(grid)
lengthscales = jax.vmap(lambda s: model_at(s).layers[0].prior.kernel.lengthscale)(samples)
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
