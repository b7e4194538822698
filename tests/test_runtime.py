"""Settings of compiled code: BLAS has one thread while we compute, whenever its library is loaded."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing._xla import own_array
from inducing.parameters import as_float_array

BLAS = """
import jax.numpy as jnp, threadpoolctl
from inducing._xla import limited_threads

def threads():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

with limited_threads():  # before anything was factorised: jaxlib loads LAPACK when it first needs it
    jnp.linalg.cholesky(jnp.eye(3)).block_until_ready()
    print(max(threads()), len(threads()) > 0)
"""


def test_blas_has_one_thread_even_if_it_is_loaded_late():
    out = subprocess.run([sys.executable, "-c", BLAS], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["1", "True"], out.stdout


@pytest.mark.parametrize("make", [lambda x: own_array(x, x.dtype), lambda x: ig.Data(x).x, as_float_array])
def test_arrays_have_memory_of_their_own(make):
    """Also where JAX could read NumPy's memory in place, since it begins at a multiple of 64 bytes."""
    memory = np.zeros(8 * 30 + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    x = memory[begin : begin + 8 * 30].view(np.float64).reshape(30, 1)
    array = make(x)
    x[:] = 7.0
    np.testing.assert_array_equal(array, np.zeros((30, 1)))


def test_small_loops_with_barriers_compile():
    """XLA ended the process at a `jax.checkpoint` in a loop over few numbers."""

    def log_prior(model):
        v = model.likelihood.variance
        step = jax.checkpoint(lambda total, a: (total + jnp.exp(-a * v) * v, None))
        return jax.lax.scan(step, jnp.zeros(()), jnp.arange(5.0))[0]

    x = np.linspace(0.0, 1.0, 20)
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(x[::4, None]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    result = ig.fit(model, (x, np.sin(6.0 * x)), log_prior=log_prior, steps=2, progress=False)
    assert np.isclose(result.bound, ig.collapsed_elbo(result.model, (x, np.sin(6.0 * x))) + log_prior(result.model))
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((5, 1)), scale=0.4))
    one = ig.features.InducingPoints([[0.0]])
    gp = ig.SparseGP(ig.priors.Independent(ig.kernels.SquaredExponential(), num=2), one)
    data = ig.Data(None, np.random.default_rng(1).normal(size=(5, 2)))
    lvm = ig.Model([latent, gp], ig.likelihoods.Gaussian(0.2))
    result = ig.fit(lvm, data, objective=ig.gplvm_elbo, steps=2, progress=False)
    assert np.isclose(result.bound, ig.gplvm_elbo(result.model, data))
