"""How we compile: one set of XLA options for everything that runs in a loop or on many data.

The options are worth a factor of two on CPUs. An option that the environment variable `XLA_FLAGS` names keeps the
value given there, and `INDUCING_RUNTIME=plain` switches all of them off.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import jax

from inducing._xla.programs import Programs

OPTIONS: dict[str, Any] = {
    # Our programs are chains of matrix products. This scheduler runs independent operations at the same time, so that
    # each product gets fewer threads, and the chain as a whole takes longer.
    "xla_cpu_enable_concurrency_optimized_scheduler": False,
    # XLA can compile fused loops in two ways. The older one compiles in two thirds of the time, and its loops run as
    # fast, except those that overwrite their own input; `inducing._xla.apart` prevents that.
    "xla_cpu_use_fusion_emitters": False,
    # LLVM's first optimisation level compiles in three quarters of the time of its default level. The code runs as
    # fast, because most of the time is spent in libraries for matrix products and factorisations.
    "xla_backend_optimization_level": 1,
    # The first pass removes `optimization_barrier` before loops are fused. Without the barriers XLA computes an
    # expression again in each loop that uses it. The second pass compiles small loops in one piece, and XLA crashes
    # if it finds a barrier there.
    "xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting",
}

# A program that runs once, on small arrays, takes a third of the time to compile without any optimisation by LLVM.
ONCE: dict[str, Any] = {"xla_backend_optimization_level": 0}


def tuned() -> bool:
    """Whether we choose compiler options and thread limits: on CPUs, unless `INDUCING_RUNTIME=plain`."""
    return os.environ.get("INDUCING_RUNTIME", "") != "plain" and jax.default_backend() == "cpu"


def jit(fn: Callable, once: bool = False) -> Programs:
    """Compile a function with our compiler options; see `Programs`.

    Args:
        fn: the function. It must be the outermost one that is compiled, since options of inner ones are ignored.
        once: whether it runs only once or a few times, on small arrays, so that compiling takes longer than running.

    Returns:
        The compiled function.

    Examples:
        >>> import jax.numpy as jnp
        >>> float(jit(lambda x: 2 * x)(jnp.ones(())))
        2.0
    """
    if not tuned():
        return Programs(fn)
    said = os.environ.get("XLA_FLAGS", "")
    chosen = OPTIONS | ONCE if once else OPTIONS
    options: dict[str, Any] = {"compiler_options": {k: v for k, v in chosen.items() if k not in said}}
    return Programs(fn, **options)


@functools.cache
def compiled(fn: Callable, once: bool = False) -> Programs:
    """Return `jit(fn, once)`, the same object for all callers.

    Reading the backend initialises JAX, so we defer it until the first call: modules decorate nothing with `jit`, but
    call `compiled(fn)` where they need it.

    Examples:
        >>> compiled(abs) is compiled(abs)
        True
    """
    return jit(fn, once)


default_jit = Programs
"""`Programs` with XLA's own options, for small programs that decorate a function when it is defined."""

static_jit = functools.partial(jax.jit, static_argnums=1)
"""`jax.jit` of a function of an array and a static argument: eager calls compile it once, not at every call."""
