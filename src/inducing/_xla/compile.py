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

import functools
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

OPTIONS: dict[str, Any] = {
    "xla_cpu_enable_concurrency_optimized_scheduler": False,
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 1,
    "xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting",
}


def tuned() -> bool:
    return os.environ.get("INDUCING_RUNTIME", "") != "plain" and jax.default_backend() == "cpu"


def jit(fn: Callable, once: bool = False) -> Callable:
    """`equinox.filter_jit` with the compiler options above; for the outermost function only. `once` says that it runs
    once or a few times, on small arrays.

    >>> import jax.numpy as jnp
    >>> float(jit(lambda x: 2 * x)(jnp.ones(())))
    2.0
    """
    if not tuned():
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


default_jit = eqx.filter_jit
"""`equinox.filter_jit` with XLA's own options."""

static_jit = functools.partial(jax.jit, static_argnums=1)
"""`jax.jit` of a function of an array and a static argument: eager calls compile it once, not at every call."""
