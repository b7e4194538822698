"""Settings of compiled code: BLAS has one thread while we compute, whenever its library is loaded."""

import subprocess
import sys

import numpy as np
import pytest

import inducing as ig
from inducing.parameters import as_float_array
from inducing.runtime import own_array

BLAS = """
import jax.numpy as jnp, threadpoolctl
from inducing.runtime import limited_threads

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
