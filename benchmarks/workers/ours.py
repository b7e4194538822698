"""This library's side of the benchmarks."""

from functools import partial
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from protocol import Timed, serve

import inducing as ig
from inducing._xla import jit, limited_threads
from inducing.bounds.collapsed import orders_of_sums
from inducing.parameters import partition


def model_of(case: dict, a: dict) -> ig.Model:
    """The case's model at the shared parameters."""
    a = {k: jnp.asarray(v) for k, v in a.items()}
    gaussian = ig.likelihoods.Gaussian(a["noise"])

    def kernel(lengthscale):
        return ig.kernels.SquaredExponential(lengthscale=lengthscale, variance=a["variance"])

    def sparse(prior, suffix=""):
        features = ig.features.InducingPoints(a["Z" + suffix])
        return ig.SparseGP(prior, features, a["mean" + suffix], a["root" + suffix], jitter=case["jitter"])

    if case["kind"] == "lmc":
        prior = ig.priors.LMC(a["W"], [kernel(lengthscale) for lengthscale in a["lengthscale"]])
        return ig.Model(sparse(prior), gaussian)
    if case["kind"] == "deep":
        layers = []
        for i in range(case["layers"] - 1):
            mean = ig.means.Linear(a["project"]) if i == 0 else ig.means.Identity()
            layers.append(sparse(ig.priors.Independent(kernel(a[f"lengthscale{i}"]), case["width"], mean), str(i)))
        last = str(case["layers"] - 1)
        return ig.Model([*layers, sparse(ig.GP(kernel(a["lengthscale" + last])), last)], gaussian)
    gp = sparse(ig.GP(kernel(a["lengthscale"])))
    if case["kind"] == "latent":
        encoder = ig.layers.Amortised.mlp(jax.random.key(0), dim=1, x=case["D"], y=1)
        return ig.Model([ig.layers.LatentVariable(1, encoder), gp], gaussian)
    return ig.Model(gp, ig.likelihoods.Bernoulli() if case["likelihood"] == "bernoulli" else gaussian)


def build(case: dict, a: dict) -> Timed:
    """The work of a case, as users of the library run it."""
    model = model_of(case, a)
    data = ig.Data(a["X"], a["y"])
    if case["kind"] == "collapsed":
        return _collapsed(model, data)
    if case["kind"] == "predict":
        return _predict(model, jnp.asarray(a["X"]), case["cached"])
    return _fit(case, model, data, a["index"][0])


def _fit(case: dict, model: ig.Model, data: ig.Data, batch: np.ndarray) -> Timed:
    """Adam steps of `ig.fit`, by its own clock, which starts after its checks; batches are drawn within."""
    objective = partial(ig.elbo, importance=case["replicates"]) if case["kind"] == "latent" else ig.elbo
    deep = case["kind"] == "deep" and case["layers"] > 1
    frozen = (lambda m: m.layers[0].prior.mean_function) if deep else None  # the projection, as in the peers

    def fit(steps):
        result = ig.fit(
            model,
            data,
            objective=objective,
            method="adam",
            batch_size=min(case["batch"], len(data)),
            steps=steps,
            learning_rate=1e-3,
            initialise=False,
            freeze=frozen,
            progress=False,
        )
        seconds = result.history.seconds
        if len(seconds) != steps or not np.isfinite(result.history.bound).all():
            raise RuntimeError(f"fit took {len(seconds)} of {steps} steps: {result.message}")
        return float(seconds[-1]) / steps

    def value():
        key = jax.random.key(0)
        with mock.patch("jax.random.normal", lambda key, shape=(), dtype=float: jnp.ones(shape, dtype)):
            bound = jit(lambda m, d: objective(m, d, key=key, num_data=len(data)))
            return bound(model, data.rows(jnp.asarray(batch)))

    return Timed(value, fit, single=lambda: fit(1))


def _collapsed(model: ig.Model, data: ig.Data) -> Timed:
    """The collapsed bound and its gradient in the free parameters, as `ig.fit` evaluates them at each step."""
    parts = partition(model, freeze=lambda m: (m.layers[0].mean, m.layers[0].root))
    collapsed_elbo = orders_of_sums(model, data)[0]

    @jit
    def bound_and_gradient(parts, data):
        def bound(free):
            return collapsed_elbo(eqx.tree_at(lambda p: p.free, parts, free).model(), data)

        return jax.value_and_grad(bound)(parts.free)

    def run(steps):
        with limited_threads():
            for _ in range(steps):
                jax.block_until_ready(bound_and_gradient(parts, data))

    return Timed(lambda: jit(ig.collapsed_elbo)(model, data), run)


def _predict(model: ig.Model, X: jax.Array, cached: bool) -> Timed:
    """`model.posterior(X)`; a model keeps its factorised Kuu from its first call, a copy of it has none yet."""

    def moments():
        post = (model if cached else jax.tree.map(lambda leaf: leaf, model)).posterior(X)
        return jax.block_until_ready((post.mean, post.variance))

    def value():
        mean, variance = moments()
        return jnp.sum(jnp.abs(mean)) + jnp.sum(variance)

    def run(steps):
        for _ in range(steps):
            moments()

    return Timed(value, run)


def gemm_rate(n: int = 2048, dtype: str = "float64") -> dict:
    """Operations a second of an n × n product: the better of XLA's and NumPy's, each the best of five."""
    import time

    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, n)).astype(dtype)
    a = jnp.asarray(A)
    product = jax.jit(lambda x: x @ x)
    best = np.inf
    for work in (lambda: product(a).block_until_ready(), lambda: A @ A):
        work()
        for _ in range(5):
            started = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - started)
    return {"flops": 2 * n**3 / best}


def versions() -> dict:
    """What the numbers belong to."""
    import equinox

    return {"inducing": ig.__version__, "jax": jax.__version__, "equinox": equinox.__version__}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    serve(build, {"gemm_rate": gemm_rate, "versions": versions})
