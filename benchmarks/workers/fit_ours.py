"""This library's fits: quality with default settings, and the race to a given quality."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from protocol import serve
from race import Clock, load, log_density

import inducing as ig


def quality(path: str, M: int) -> dict:
    """One split with defaults: k-means inducing points, an isotropic squared exponential, `ig.fit`."""
    a = load(path)
    started = time.perf_counter()
    Z = ig.initialise.kmeans(a["X"], M, key=jax.random.key(0))
    gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential()), ig.features.InducingPoints(Z))
    result = ig.fit(ig.Model(gp, ig.likelihoods.Gaussian()), (a["X"], a["y"]), progress=False)
    seconds = time.perf_counter() - started
    return {**scores(result.model, a), "seconds": seconds, "message": result.message, "method": result.method}


def deep(path: str, M: int, layers: int, cap: float) -> dict:
    """One split of a deep GP with the defaults of `ig.deep_gp` and `ig.fit`, stopped after `cap` seconds."""
    a = load(path)
    started = time.perf_counter()
    model = ig.deep_gp(a["X"], ig.likelihoods.Gaussian(0.01), num_layers=layers, num_inducing=M)
    result = ig.fit(
        model,
        (a["X"], a["y"]),
        steps=20_000,
        progress=False,
        callback=lambda p: p.seconds > cap,
        key=jax.random.key(1),
    )
    seconds = time.perf_counter() - started
    return {**scores(result.model, a), "seconds": seconds, "message": result.message, "method": result.method}


def scores(model: ig.Model, a: dict) -> dict:
    """Log-likelihood, RMSE and coverage on the test rows."""
    pred = model.predict(a["Xtest"])
    y = jnp.asarray(a["ytest"])
    out = {
        "ll": float(jnp.mean(pred.log_prob(y))),
        "rmse": float(jnp.sqrt(jnp.mean((y - pred.mean) ** 2))),
    }
    for level in (0.5, 0.9, 0.95):
        lower, upper = pred.interval(level)
        out[f"coverage{round(100 * level)}"] = float(jnp.mean((lower <= y) & (y <= upper)))
    return out


def race(path: str, method: str, cap: float, batch: int) -> dict:
    """Train until the cap or until settled; the held-out log-likelihood along the way."""
    a = load(path)
    kernel = ig.kernels.SquaredExponential(lengthscale=a["lengthscale"], variance=a["variance"])
    gp = ig.SparseGP(ig.GP(kernel), ig.features.InducingPoints(a["Z"]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(a["noise"]))
    data = ig.Data(a["X"], a["y"])

    def evaluate(at):  # what a callback is given, or the result: its model is made when it is asked for
        pred = at.model.predict(a["Xtest"])
        return log_density(a["ytest"], np.asarray(pred.mean), np.asarray(pred.variance))

    clock = Clock(evaluate, cap)
    options = {"steps": 10_000} if method == "auto" else {"method": method, "batch_size": batch, "steps": 20_000}
    result = ig.fit(model, data, progress=False, callback=clock.look, **options)
    clock.look(result, last=True)
    return {"trace": clock.trace, "message": result.message}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    serve(None, {"quality": quality, "race": race, "deep": deep})
