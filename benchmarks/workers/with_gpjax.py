"""GPJax's side: its objectives, and steps as its own `fit` takes them (Optax in a compiled loop), compiled once."""

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import numpyro.distributions as npd
import optax
from gpjax.fit import get_batch
from gpjax.parameters import LowerTriangular, Real
from protocol import Timed, serve


class Bernoulli(gpx.likelihoods.Bernoulli):
    """The exact probit link: GPJax's own squeezes the probabilities into [0.001, 0.999]."""

    def link_function(self, f):
        return npd.BernoulliProbs(jax.scipy.special.ndtr(f))


def build(case: dict, a: dict) -> Timed:
    """The work of a case."""
    jax.config.update("jax_enable_x64", case["dtype"] == "float64")
    a = {k: jnp.asarray(v) for k, v in a.items()}
    kernel = gpx.kernels.RBF(lengthscale=a["lengthscale"], variance=a["variance"])
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel, jitter=case["jitter"])
    likelihood = Bernoulli() if case["likelihood"] == "bernoulli" else gpx.likelihoods.Gaussian(jnp.sqrt(a["noise"]))
    model = prior * likelihood
    data = gpx.Dataset(X=a["X"], y=a["y"])
    if case["kind"] == "collapsed":
        q = gpx.variational_families.CollapsedVariationalGaussian(model=model, inducing_inputs=a["Z"])
        return _collapsed(q, data)
    q = gpx.variational_families.WhitenedVariationalGaussian(
        model=model,
        inducing_inputs=a["Z"],
        variational_mean=a["mean"].T,
        variational_root_covariance=a["root"][0],
    )
    assert isinstance(q.variational_root_covariance, LowerTriangular) and isinstance(q.inducing_inputs, Real)
    return _predict(q, a["X"]) if case["kind"] == "predict" else _svgp(q, data, a["index"])


def _svgp(q, data, index) -> Timed:
    optimiser = optax.adam(1e-3)

    def rows(i):
        rows = index[i % len(index)]
        return gpx.Dataset(X=data.X[rows], y=data.y[rows], n_total=data.n)

    def drawn(i):
        return get_batch(data, index.shape[1], jax.random.fold_in(jax.random.key(0), i))

    state = optimiser.init(eqx.filter(q, eqx.is_array))
    params, static = eqx.partition(q, eqx.is_array)

    def bound(params, batch):
        return gpx.objectives.elbo(eqx.combine(params, static), batch)

    def runner(batch):
        @jax.jit
        def steps(params, state, n):
            def step(i, carry):
                params, state = carry
                grads = jax.grad(lambda p: -bound(p, batch(i)))(params)
                updates, state = optimiser.update(grads, state, params)
                return optax.apply_updates(params, updates), state

            return jax.lax.fori_loop(0, n, step, (params, state))

        def run(n):
            jax.block_until_ready(steps(params, state, n))

        return run

    return Timed(lambda: jax.jit(bound)(params, rows(0)), runner(drawn), tuned=runner(rows))


def _collapsed(q, data) -> Timed:
    params, static = eqx.partition(q, eqx.is_array)

    @jax.jit
    def bound_and_gradient(params):
        return jax.value_and_grad(lambda p: gpx.objectives.collapsed_elbo(eqx.combine(p, static), data))(params)

    def run(n):
        for _ in range(n):
            jax.block_until_ready(bound_and_gradient(params))

    return Timed(lambda: bound_and_gradient(params)[0], run)


def _predict(q, X) -> Timed:
    params, static = eqx.partition(q, eqx.is_array)

    @jax.jit
    def moments(params, X):
        f = eqx.combine(params, static).condition(None)(X, covariance="diagonal")
        return f.mean, f.variance

    def run(n):
        for _ in range(n):
            jax.block_until_ready(moments(params, X))

    def value():
        mean, variance = moments(params, X)
        return jnp.sum(jnp.abs(mean)) + jnp.sum(variance)

    return Timed(value, run)


def versions() -> dict:
    """What the numbers belong to."""
    from importlib.metadata import version

    return {"gpjax": version("gpjax"), "jax": jax.__version__}


if __name__ == "__main__":
    serve(build, {"versions": versions})
