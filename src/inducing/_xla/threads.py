"""How many threads BLAS has while our programs run."""

import contextlib
import functools
import importlib
from collections.abc import Generator
from typing import Any

from inducing._xla.compile import tuned


@functools.cache
def _controller() -> Any:
    import threadpoolctl

    importlib.import_module("scipy.linalg.cython_lapack")  # a controller sees what is loaded; jaxlib loads this late
    return threadpoolctl.ThreadpoolController()


@contextlib.contextmanager
def limited_threads() -> Generator[None]:
    """One BLAS thread inside the block, which must end after its results are ready (dispatch is asynchronous)."""
    if not tuned():
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
