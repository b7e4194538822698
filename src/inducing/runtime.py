"""How compiled code runs on this machine: settings that are worth a factor of two on CPUs, in one place.

jaxlib calls SciPy's OpenBLAS for Cholesky factorisations and triangular solves; its idle threads spin and starve
XLA's own pool, so BLAS gets one thread while a `fit` or a prediction runs. And XLA's concurrency-optimised
scheduler for CPUs slows chains of matrix products, so it is off in what we compile. So is the pass that removes
`optimization_barrier` before loops are fused: what is behind a barrier is then computed once, not in each loop that
uses it. (With it goes the one that compiles small loops in one piece, in which a barrier ends the process.) And loops
are compiled in the older of XLA's two ways, which takes two thirds of the time to compile and runs
as fast, except where a loop writes over its own input (`apart`). LLVM's first level of optimisation takes three
quarters of the time that its default takes, for code that runs as fast: what takes long is in libraries; programs of
small arrays that run once are not optimised, which takes a third of it (`once`). What the environment variable
XLA_FLAGS names stays as it says; `INDUCING_RUNTIME=plain` leaves all as it is.
"""

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

OPTIONS: dict[str, Any] = {
    "xla_cpu_enable_concurrency_optimized_scheduler": False,
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 1,
    "xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting",
}


def _tuned() -> bool:
    return os.environ.get("INDUCING_RUNTIME", "") != "plain" and jax.default_backend() == "cpu"


def jit(fn: Callable, once: bool = False) -> Callable:
    """`equinox.filter_jit` with the compiler options above; for the outermost function only. `once` says that it runs
    once or a few times, on small arrays.

    >>> import jax.numpy as jnp
    >>> float(jit(lambda x: 2 * x)(jnp.ones(())))
    2.0
    """
    if not _tuned():
        return eqx.filter_jit(fn)
    said = os.environ.get("XLA_FLAGS", "")
    chosen = OPTIONS | {"xla_backend_optimization_level": 0} if once else OPTIONS
    options: dict[str, Any] = {"compiler_options": {k: v for k, v in chosen.items() if k not in said}}
    return eqx.filter_jit(fn, **options)


@functools.cache
def compiled(fn: Callable, once: bool = False) -> Any:
    """`jit(fn, once)`, one for all callers, made on first use: to choose the compiler's options wakes JAX's backend.

    >>> compiled(own_array) is compiled(own_array)
    True
    """
    return jit(fn, once)


def apart(x: Array) -> Array:
    """x, in memory that the loop which uses it does not write over.

    A loop over x that writes where x was is compiled without vector instructions (in XLA's older way of compiling
    loops, it cannot tell that the two overlap exactly); with exponentials or logarithms that costs a factor of three.
    A loop that reads x in another shape than it writes does not overwrite it.

    >>> import jax.numpy as jnp
    >>> apart(jnp.zeros((1, 2))).tolist()
    [[0.0, 0.0]]
    """
    return jax.lax.optimization_barrier(x.reshape(-1)).reshape(x.shape)


def own_array(value: Any, dtype: Any) -> Array:
    """A JAX array, in memory of its own, of concrete values. `jnp.array` would compile a program for each new shape.

    >>> own_array([1, 2], float).tolist()
    [1.0, 2.0]
    """
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    return jnp.asarray(np.array(value, dtype), dtype)  # with its dtype said, JAX takes NumPy's array as it is


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
