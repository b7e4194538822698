"""What compiled code does to the process: threads of BLAS, memory of programs, and forks."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import threadpoolctl

import inducing as ig
from inducing._xla import in_blocks, jit, limited_threads, own_array
from inducing._xla.programs import KINDS, SIZES
from inducing.parameters import as_float_array

BLAS = """
import jax.numpy as jnp, threadpoolctl
from inducing._xla import limited_threads

def threads():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

with limited_threads():  # before anything was factorised: jaxlib loads LAPACK when it first needs it
    jnp.linalg.cholesky(jnp.eye(3)).block_until_ready()
    print(max(threads()), len(threads()) > 0)
"""


def test_blas_has_one_thread_even_if_it_is_loaded_late():
    out = subprocess.run([sys.executable, "-c", BLAS], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["1", "True"], out.stdout


THREADS = """
import threading, numpy as np, threadpoolctl
import inducing as ig

def threads():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

x = np.linspace(0.0, 1.0, 20)[:, None]
gp = ig.SparseGP(ig.GP(ig.kernels.Matern52([0.3])), ig.features.InducingPoints(x[::4]))
model = ig.Model(gp, ig.likelihoods.Gaussian())
model.predict(x)  # loads the libraries
threadpoolctl.threadpool_limits(2, "blas")
before, barrier, failed = threads(), threading.Barrier(4), []

def work(n):
    try:
        for i in range(20):
            barrier.wait()
            model.predict(x[: n + 1]).mean
    except BaseException as error:
        failed.append(error)
        barrier.abort()

workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(failed, before == threads(), set(before))
"""


def test_predictions_in_several_threads_leave_blas_as_it_was():
    out = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["[]", "True", "{2}"], out.stdout


def test_the_last_thread_that_leaves_restores_blas():
    """Whatever the order: A enters, B enters, A leaves, B leaves."""

    def threads():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

    with limited_threads():
        pass  # loads the libraries
    with threadpoolctl.threadpool_limits(2, "blas"):
        a, b = limited_threads(), limited_threads()
        a.__enter__()
        b.__enter__()
        a.__exit__(None, None, None)
        assert set(threads()) == {1}
        b.__exit__(None, None, None)
        assert set(threads()) == {2}


FORK = """
import os, sys, warnings
import numpy as np
import inducing as ig

warnings.simplefilter("ignore")  # JAX warns of the fork
x = np.linspace(0.0, 1.0, 10)[:, None]
if sys.argv[1] == "used":
    ig.Data(x)
child = os.fork()
if child == 0:
    try:
        k = ig.kernels.Matern52()
        print(ig.Data(x).x.shape, flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("before, said", [("used", 'multiprocessing.get_context("spawn")'), ("unused", "(10, 1)")])
def test_a_process_forked_after_use_is_refused(before, said):
    """It would wait for threads of XLA that the fork did not copy."""
    code = [sys.executable, "-c", FORK, before]
    out = subprocess.run(code, capture_output=True, text=True, check=True, timeout=120)
    assert said in out.stdout, out.stdout


def test_programs_are_dropped_when_there_are_many():
    """The least recently used size goes first; other kinds of arguments have places of their own."""
    traced = []

    def double(x, fn):
        traced.append(len(x))
        return fn(x)

    run = jit(double)
    for n in (1, 2, 3, 4, 1, 5, 1, 2):  # 5 replaces 2, and 2 replaces 3
        np.testing.assert_array_equal(run(np.ones(n), jnp.negative), -np.ones(n))
    assert traced == [1, 2, 3, 4, 5, 2] and len(run) == SIZES
    run(np.ones(1), jnp.sin)
    assert len(run) == SIZES + 1
    run(np.ones(1), jnp.negative)
    assert traced == [1, 2, 3, 4, 5, 2, 1]


def test_a_dropped_program_leaves_nothing():
    """JAX holds neither the function nor what it was compiled for."""

    class Mark:
        pass

    run, marks = jit(lambda x, mark: 2.0 * x), []
    for _ in range(KINDS + 3):
        mark = Mark()
        run(np.ones(3), mark)
        marks.append(weakref.ref(mark))
    del mark
    gc.collect()
    assert [m() is None for m in marks] == [True] * 3 + [False] * KINDS


MEMORY = """
import gc, sys
import numpy as np
import jax
jax.config.update("jax_enable_x64", True)
import inducing as ig

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024

fits = int(sys.argv[1])
for i in range(fits):
    x = np.linspace(0.0, 1.0, 100 + 7 * i)[:, None]
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52([0.3])), ig.features.InducingPoints(x[::20][:5]))
    ig.fit(ig.Model(gp, ig.likelihoods.Gaussian()), (x, np.sin(6.0 * x)), steps=3, progress=False)
    if i == 0:
        start = resident()
print(resident() - start)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_fits_of_growing_numbers_of_rows_keep_memory():
    """Without a limit each of them kept 15 MB."""
    out = subprocess.run([sys.executable, "-c", MEMORY, "50"], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 150.0


@pytest.mark.parametrize("make", [lambda x: own_array(x, x.dtype), lambda x: ig.Data(x).x, as_float_array])
def test_arrays_have_memory_of_their_own(make):
    """Also where JAX could read NumPy's memory in place, since it begins at a multiple of 64 bytes."""
    memory = np.zeros(8 * 30 + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    x = memory[begin : begin + 8 * 30].view(np.float64).reshape(30, 1)
    array = make(x)
    x[:] = 7.0
    np.testing.assert_array_equal(array, np.zeros((30, 1)))


def test_small_loops_with_barriers_compile():
    """XLA ended the process at a `jax.checkpoint` in a loop over few numbers."""

    def log_prior(model):
        v = model.likelihood.variance
        step = jax.checkpoint(lambda total, a: (total + jnp.exp(-a * v) * v, None))
        return jax.lax.scan(step, jnp.zeros(()), jnp.arange(5.0))[0]

    x = np.linspace(0.0, 1.0, 20)
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(x[::4, None]))
    model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    result = ig.fit(model, (x, np.sin(6.0 * x)), log_prior=log_prior, steps=2, progress=False)
    assert np.isclose(result.bound, ig.collapsed_elbo(result.model, (x, np.sin(6.0 * x))) + log_prior(result.model))
    latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder(np.zeros((5, 1)), scale=0.4))
    one = ig.features.InducingPoints([[0.0]])
    gp = ig.SparseGP(ig.priors.Independent(ig.kernels.SquaredExponential(), num=2), one)
    data = ig.Data(None, np.random.default_rng(1).normal(size=(5, 2)))
    lvm = ig.Model([latent, gp], ig.likelihoods.Gaussian(0.2))
    result = ig.fit(lvm, data, objective=ig.gplvm_elbo, steps=2, progress=False)
    assert np.isclose(result.bound, ig.gplvm_elbo(result.model, data))


def test_modules_with_traced_arrays_are_evaluated_in_blocks():
    X = np.random.default_rng(0).normal(size=(5, 2))
    mean = ig.means.Linear([1.0, -2.0], bias=0.5)
    found = eqx.filter_jit(lambda mean: in_blocks(mean, jnp.asarray(X), 2))(mean)
    np.testing.assert_allclose(found, X @ [1.0, -2.0] + 0.5, rtol=1e-14)
