"""The number of threads of BLAS while our programs run."""

import contextlib
import functools
import importlib
from collections.abc import Generator
from typing import Any

from inducing._xla.compile import tuned


@functools.cache
def _controller() -> Any:
    import threadpoolctl

    # The controller sees only libraries that are loaded already, and jaxlib loads this one late.
    importlib.import_module("scipy.linalg.cython_lapack")
    return threadpoolctl.ThreadpoolController()


@contextlib.contextmanager
def limited_threads() -> Generator[None]:
    """Limit BLAS to one thread inside the block.

    jaxlib calls SciPy's OpenBLAS for Cholesky factorisations and triangular solves. The idle threads of OpenBLAS spin
    and take the cores from XLA's own threads. Wait for results inside the block: JAX runs programs asynchronously.

    Examples:
        >>> import jax.numpy as jnp
        >>> with limited_threads():
        ...     root = jnp.linalg.cholesky(4.0 * jnp.eye(2)).block_until_ready()
    """
    if not tuned():
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
