"""What every test and doctest runs under: float64, strict promotion, and one thread per worker when run in parallel."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # several workers share the cores: keep each on one, before BLAS and XLA load
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"):
        os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests compile much and compute little: let the compiler not try hard, nor cut programs into parts for other threads.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)

import gc
import json
import signal
from pathlib import Path

import hypothesis
import jax
import jaxtyping
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Programs that JAX has dropped, and those of an earlier run, are read from files: a tenth less time, a third less when
# run again. Each worker has a folder of its own, because another one could read a file before it is complete.
CACHE = Path(__file__).resolve().parent / ".cache" / "jax" / os.environ.get("PYTEST_XDIST_WORKER", "alone")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# The same examples on every run, and no deadline: the first example of a test pays for compilation.
hypothesis.settings.register_profile("inducing", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("inducing")

gc.set_threshold(50_000)  # tracing makes many objects, few in cycles: to look for these took an eighth of the time

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with Ctrl-C ignored

ROOT = Path(__file__).resolve().parent


def _shared(variable: str, default: str) -> Path:
    """The path that an environment variable names; its default is relative to the repository's root."""
    path = Path(os.environ.get(variable, ROOT / default))
    if not path.exists():
        pytest.skip(f"{variable}: {path} does not exist; set {variable} to run this test")
    return path


@pytest.fixture(autouse=True, scope="module")
def forget_compilations():
    """What is compiled serves the next files too, until there is much of it: a program takes 4 to 20 memory maps, of
    which Linux allows a process 65,530, and 1 to 2 MB. The limit here keeps a worker at about 2 GB."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 4_000:
        jax.clear_caches()


@pytest.fixture
def unchecked():
    """Without checks of the types in signatures, which users do not have either: for what they get wrong."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets, ``INDUCING_DATA`` (default ``../shared/data``)."""
    return _shared("INDUCING_DATA", "../shared/data")


@pytest.fixture(scope="session")
def oracles() -> list[dict]:
    """The oracle file's cases: ``INDUCING_ORACLES`` (default ``../shared/oracles/oracles.json``)."""
    return json.loads(_shared("INDUCING_ORACLES", "../shared/oracles/oracles.json").read_text())
