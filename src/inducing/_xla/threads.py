"""The number of threads of BLAS while our programs run."""

import contextlib
import functools
import importlib
import threading
from collections.abc import Generator
from typing import Any

from inducing._xla.compile import tuned
from inducing._xla.fork import refuse_after_fork


@functools.cache
def _controller() -> Any:
    import threadpoolctl

    # The controller sees only libraries that are loaded already, and jaxlib loads this one late.
    importlib.import_module("scipy.linalg.cython_lapack")
    return threadpoolctl.ThreadpoolController()


class _Limit:
    """One limit for all threads: BLAS counts its own threads once for the whole process."""

    def __init__(self):
        self._lock, self._inside = threading.Lock(), 0
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._limiter is None:
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limiter.restore_original_limits()
                self._limiter = None


_limit = _Limit()


@contextlib.contextmanager
def limited_threads() -> Generator[None]:
    """Limit BLAS to one thread inside the block.

    jaxlib calls SciPy's OpenBLAS for Cholesky factorisations and triangular solves. The idle threads of OpenBLAS spin
    and take the cores from XLA's own threads. Wait for results inside the block: JAX runs programs asynchronously.
    Several threads may be inside at the same time; the last one that leaves restores the number of threads.

    Examples:
        >>> import jax.numpy as jnp
        >>> with limited_threads():
        ...     root = jnp.linalg.cholesky(4.0 * jnp.eye(2)).block_until_ready()
    """
    refuse_after_fork()
    if not tuned():
        yield
        return
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
