"""Fourier features whose sums over the data are done once, next to inducing points: time against the number of data.

For one-dimensional data, N = 10⁴, 10⁵, 10⁶ and M = 501 features: the time of one evaluation of the collapsed bound with
its gradient, and a whole fit (L-BFGS) with predictions at 1000 places. Writes `benchmarks/results/fourier.json`.

    python benchmarks/fourier.py [--quick]
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import inducing as ig
from inducing._xla import jit, limited_threads

jax.config.update("jax_enable_x64", True)
QUICK = "--quick" in sys.argv
SIZES = (10**3, 10**4) if QUICK else (10**4, 10**5, 10**6)
FREQUENCIES = 25 if QUICK else 250


def make_data(n):
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 100.0, n))
    return ig.Data(x, np.sin(x) + 0.5 * np.sin(3.7 * x) + 0.3 * rng.normal(size=n))


def make_model(features):
    layer = ig.SparseGP(ig.GP(ig.kernels.Matern32(1.0)), features)
    return ig.Model(layer, ig.likelihoods.Gaussian(0.1))


def hold_q(model):
    return model.layers[0].mean, model.layers[0].root


def evaluation(bound, model, data, repeats):
    """Seconds of the bound and its gradient in kernel and noise, compiled."""

    @jit
    def step(parameters, model, data):
        def value(parameters):
            kernel, noise = parameters
            new = ig.Model(ig.SparseGP(ig.GP(kernel), model.layers[0].features), ig.likelihoods.Gaussian(noise))
            return bound(new, data)

        return jax.value_and_grad(value)(parameters)

    parameters = model.layers[0].prior.kernel, model.likelihood.variance
    with limited_threads():
        jax.block_until_ready(step(parameters, model, data))
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            jax.block_until_ready(step(parameters, model, data))
            times.append(time.perf_counter() - begin)
    return float(np.median(times))


def main():
    rows = []
    for n in SIZES:
        data = make_data(n)
        fourier = make_model(ig.features.Fourier.around(data.x, FREQUENCIES, margin=0.1))
        points = make_model(ig.features.InducingPoints(jnp.linspace(0.0, 100.0, 2 * FREQUENCIES + 1)[:, None]))
        ig.PrecomputedElbo(fourier, data)  # compiles the sums
        begin = time.perf_counter()
        objective = ig.PrecomputedElbo(fourier, data)
        sums = time.perf_counter() - begin
        row = {"N": n, "M": 2 * FREQUENCIES + 1, "sums once": sums}
        row["evaluation, Fourier"] = evaluation(lambda m, d, o=objective: o(m), fourier, None, 5)
        repeats = 3 if n < 10**6 else 1
        row["evaluation, inducing points"] = evaluation(ig.collapsed_elbo, points, data, repeats)
        begin = time.perf_counter()
        objective = ig.PrecomputedElbo(fourier, data)
        result = ig.fit(
            fourier,
            data,
            objective=objective,
            freeze=hold_q,
            method="lbfgs",
            steps=100,
            initialise=False,
            progress=False,
        )
        model = objective.collapse(result.model)
        predicted = model.predict(np.linspace(0.0, 100.0, 1000))
        jax.block_until_ready(predicted.mean)
        row["whole fit and prediction, Fourier"] = time.perf_counter() - begin
        row["bound per datum"] = float(result.bound) / n
        rows.append(row)
        print({key: (f"{value:.4g}" if isinstance(value, float) else value) for key, value in row.items()}, flush=True)
    if not QUICK:
        path = Path(__file__).parent / "results" / "fourier.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
