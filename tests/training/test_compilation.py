"""One compilation serves a whole fit, and the next one of the same shapes."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest

import inducing as ig
from inducing.bounds.objective import Target

from .problems import regression, wave


def counting():
    """An objective that counts how often Python runs it: once for each trace."""
    calls = []

    def objective(model, data, key=None, num_data=None):
        calls.append(1)
        return ig.elbo(model, data, num_data=num_data)

    return objective, calls


def test_steps_trace_once_whatever_the_values_batches_and_numbers_of_steps():
    objective, calls = counting()
    X, y = wave(50)

    def run(model, **options):
        return ig.fit(model, (X, y), objective=objective, progress=False, **options)

    run(regression(), method="natgrad", steps=300, batch_size=8)
    assert len(calls) == 1
    run(regression(noise=0.7), method="natgrad", steps=77, batch_size=8, key=jax.random.key(3), starts=2)
    assert len(calls) == 1
    run(regression(), method="natgrad", steps=3, batch_size=9)  # another shape
    assert len(calls) == 2


def test_options_written_anew_for_each_fit_trace_once():
    calls = []

    def objective(model, data, beta, where=None):
        calls.append(beta)
        return ig.elbo(model, data, beta=beta)

    X, y = wave(50)
    for beta in (0.5, 0.5, 0.7):
        ig.fit(regression(), (X, y), objective=partial(objective, beta=beta), method="adam", steps=1, progress=False)
    assert calls == [0.5, 0.7]
    held = partial(objective, beta=0.5, where=jnp.ones(2))  # has no hash
    assert Target(held).fn is held


def test_lbfgs_traces_once():
    calls = []

    def objective(model, data):
        calls.append(1)
        return ig.collapsed_elbo(model, data)

    X, y = wave(50)
    for noise in (0.3, 0.6):
        result = ig.fit(regression(noise=noise), (X, y), objective=objective, progress=False)
        assert result.method == "lbfgs" and len(result.history.bound) > 3
    assert len(calls) == 1


def test_weakly_typed_parameters_and_schedules_trace_once():
    objective, calls = counting()
    X, y = wave(50)
    weak = jnp.asarray(0.5)
    assert weak.weak_type
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52(weak, weak)), ig.features.InducingPoints(X[:5]))
    adam = optax.adam(optax.cosine_decay_schedule(0.01, 40))
    options = {"method": "natgrad", "steps": 40, "batch_size": 8, "optimiser": adam, "progress": False}
    ig.fit(ig.Model(gp, ig.likelihoods.Gaussian(weak)), (X, y), objective=objective, **options)
    assert len(calls) == 1


FIRST = """
import jax, numpy as np
names = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, _, **about: names.append(about["fun_name"]) if "backend_compile" in event else None
)
import inducing as ig
x = np.linspace(0.0, 1.0, 30)[:, None]
gp = ig.SparseGP(ig.GP(ig.kernels.Matern52([0.3])), ig.features.InducingPoints(x[::5]))
model = ig.Model(gp, ig.likelihoods.Gaussian())
ig.fit(model, (x, np.sin(x)), method=METHOD, steps=3, progress=False)
print(*names)
"""


@pytest.mark.parametrize(
    "method, programs",
    [
        ("collapsed", ["_prior_variances", "value_and_gradient", "_trained_model"]),
        ("natgrad", ["_prior_variances", "initial_state", "advance", "_trained_model"]),
    ],
)
def test_a_first_fit_compiles_nothing_but_its_programs(method, programs):
    """From NumPy arrays to the trained model: no operation outside of them, each of which would be compiled alone."""
    code = FIRST.replace("METHOD", repr(method))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"jit({name})" for name in programs]
