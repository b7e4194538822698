"""Shallow sparse GPs and how to train them well (section 4.1, and the β of section 3.1).

From left to right. Noise that grows with x: a GP with constant noise, and a heteroscedastic one with two functions, the
mean and the logarithm of the noise's standard deviation. Then the first model again, trained with Adam alone: q(u) in
the coordinates u, v = u − μ_u and w = Luu⁻¹ v, of which the whitened w trains best; and generative parameters that are
clamped for the first steps, without which the model first explains the signal as noise. Last, the KL divergence
weighted by β: the smaller β is, the narrower q(f) becomes.
"""

import os
from functools import partial
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import inducing as ig

jax.config.update("jax_enable_x64", True)
quick = "INDUCING_QUICK" in os.environ
rng = np.random.default_rng(0)
steps = 20 if quick else 1000


def noisy(n):
    x = rng.uniform(0.0, 10.0, n)
    return x, 3.0 + np.sin(3.0 * x) + (0.05 + 0.06 * x) * rng.normal(size=n)


(x, y), (x_new, y_new) = noisy(300), noisy(300)
grid = np.linspace(0.0, 10.0, 400)
points = ig.features.InducingPoints(np.linspace(0.0, 10.0, 30)[:, None])


def model_of(lengthscale=0.5, coordinates="w"):
    prior = ig.GP(ig.kernels.SquaredExponential(lengthscale), mean=ig.means.Constant(2.0))
    return ig.Model(ig.SparseGP(prior, points, coordinates=coordinates), ig.likelihoods.Gaussian(0.05))


figure, axes = plt.subplots(1, 4, figsize=(18, 4), layout="constrained")
kernels = [ig.kernels.SquaredExponential(0.5), ig.kernels.SquaredExponential(3.0)]
two = ig.priors.Independent(kernels, mean=ig.means.Constant([2.0, -1.0]))
models = {
    "noise of one size": model_of(),
    "heteroscedastic": ig.Model(ig.SparseGP(two, points), ig.likelihoods.HeteroscedasticGaussian()),
}
axes[0].plot(x, y, "k.", ms=2)
for (name, model), colour in zip(models.items(), ("C1", "C0"), strict=True):
    result = ig.fit(model, (x, y), steps=steps, progress=False)
    score = float(np.mean(result.model.predict(x_new).log_prob(y_new)))
    low, high = result.model.predict(grid).interval(0.95)
    axes[0].fill_between(grid, low[:, 0], high[:, 0], color=colour, alpha=0.35, lw=0, label=f"{name}: {score:.2f}")
    print(f"{name}: held-out log density {score:.3f}")
axes[0].set(title="95 % of new labels, and held-out log density", xlabel="x", ylabel="y", ylim=(0.0, 6.8))
axes[0].legend(frameon=False, loc="upper left")

for coordinates, label in (("u", "u"), ("v", "v = u − μ_u"), ("w", "w = Luu⁻¹ v")):
    model = model_of(1.0, coordinates)
    result = ig.fit(model, (x, y), method="adam", steps=steps, initialise=False, progress=False)
    axes[1].plot(result.history.step, -result.history.bound, label=label)
    print(f"coordinates {label}: bound {result.bound:.1f} after {steps} steps of Adam")
axes[1].set(title="coordinates of q(u)", xlabel="step of Adam", ylabel="− bound", yscale="log")
axes[1].legend(frameon=False)

for clamp in (0, steps // 5):
    path = []  # (step, noise variance), now and then
    result = ig.fit(
        model_of(),
        (x, y),
        method="adam",
        learning_rate=0.1,
        clamp=clamp,
        steps=4 * steps // 5,
        initialise=False,
        progress=False,
        callback=lambda now, path=path: path.append((now.step, float(now.model.likelihood.variance))),
    )
    axes[2].plot(*np.transpose(path), label=f"clamped for {clamp} steps")
    halfway = result.history.bound[2 * steps // 5]
    print(f"clamped for {clamp} steps: bound {halfway:.1f} halfway, {result.bound:.1f} at the end")
axes[2].set(title="generative parameters", xlabel="step of Adam", ylabel="noise variance")
axes[2].legend(frameon=False)

axes[3].plot(x, y, "k.", ms=2)
for beta, colour in ((1.0, "C0"), (0.01, "C3")):
    result = ig.fit(model_of(), (x, y), objective=partial(ig.elbo, beta=beta), steps=steps, progress=False)
    low, high = result.model.posterior(grid).interval(0.95)
    axes[3].fill_between(grid, low[:, 0], high[:, 0], color=colour, alpha=0.6, lw=0, label=f"β = {beta:g}")
    deviation = np.sqrt(np.asarray(result.model.posterior(grid).variance))
    score = float(np.mean(result.model.predict(x_new).log_prob(y_new)))
    print(f"β = {beta:g}: mean standard deviation of q(f) {deviation.mean():.3f}, held-out log density {score:.3f}")
axes[3].set(title="95 % of f, with the KL β times", xlabel="x", ylim=(0.0, 6.8))
axes[3].legend(frameon=False, loc="upper left")
Path("out").mkdir(exist_ok=True)
figure.savefig("out/shallow_gp.png", dpi=120)
print("figure: out/shallow_gp.png")
