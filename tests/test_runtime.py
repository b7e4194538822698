"""Settings of compiled code: BLAS has one thread while we compute, whenever its library is loaded."""

import subprocess
import sys

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
