"""How compiled code runs on this machine: settings that are worth a factor of two on CPUs, in one place.

jaxlib calls SciPy's OpenBLAS for Cholesky factorisations and triangular solves; its idle threads spin and starve
XLA's own pool, so BLAS gets one thread while a `fit` or a prediction runs. And XLA's concurrency-optimised
scheduler for CPUs slows chains of matrix products, so it is off in what we compile. So is the pass that removes
`optimization_barrier` before loops are fused: what is behind a barrier is then computed once, not in each loop that
uses it. And loops are compiled in the older of XLA's two ways, which takes two thirds of the time to compile and runs
as fast. Set the environment variable `INDUCING_RUNTIME=plain` to leave all as it is.
"""

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax


def _tuned() -> bool:
    return os.environ.get("INDUCING_RUNTIME", "") != "plain" and jax.default_backend() == "cpu"


def jit(fn: Callable) -> Callable:
    """`equinox.filter_jit` with the compiler options above; for the outermost function only.

    >>> import jax.numpy as jnp
    >>> float(jit(lambda x: 2 * x)(jnp.ones(())))
    2.0
    """
    options: dict[str, Any] = {}
    if _tuned():
        options["compiler_options"] = {
            "xla_cpu_enable_concurrency_optimized_scheduler": False,
            "xla_cpu_use_fusion_emitters": False,
            "xla_disable_hlo_passes": "cse_barrier_expander",
        }
    return eqx.filter_jit(fn, **options)


@functools.cache
def _controller() -> Any:
    import threadpoolctl

    importlib.import_module("scipy.linalg.cython_lapack")  # a controller sees what is loaded; jaxlib loads this late
    return threadpoolctl.ThreadpoolController()


@contextlib.contextmanager
def limited_threads() -> Generator[None]:
    """One BLAS thread inside the block, which must end after its results are ready (dispatch is asynchronous)."""
    if not _tuned():
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
