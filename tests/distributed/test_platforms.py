"""The bounds lower for GPUs and TPUs, although none is here to run them."""

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 2)), RNG.normal(size=(40, 1))


def regression():
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(np.ones(2))), ig.features.InducingPoints(X[:10]))
    return ig.Model(gp, ig.likelihoods.Gaussian(0.1))


def deep():
    latent = ig.LatentVariable(1, ig.layers.Amortised.mlp(jax.random.key(1), dim=1, x=2, y=1))
    inner = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(RNG.normal(size=(5, 3))))
    outer = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(RNG.normal(size=(5, 1))))
    return ig.Model([latent, inner, outer], ig.likelihoods.Bernoulli())


CASES = {
    "elbo": (regression, ig.elbo.evaluate),
    "collapsed": (regression, ig.collapsed_elbo.evaluate),
    "deep": (deep, lambda model, data: ig.elbo.evaluate(model, data, key=jax.random.key(0), importance=2)),
}


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient_lower(case, platform):
    make, bound = CASES[case]
    data = ig.Data(X, Y if case != "deep" else (Y > 0).astype(float))
    model, data = (
        jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, t) for t in (make(), data)
    )
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)

    def value(arrays, data):
        return bound(eqx.combine(arrays, rest), data)

    program = jax.export.export(jax.jit(jax.value_and_grad(value)), platforms=(platform,))(arrays, data)
    assert program.platforms == (platform,)
    assert program.out_avals[0].dtype == jnp.float32
    called = {line.split("@")[1].split("(")[0] for line in program.mlir_module().splitlines() if "custom_call" in line}
    assert not any("lapack" in name for name in called), called  # nothing of the CPU's is left in it
