"""Checkpoints: a fit that was killed and resumed ends with the bits of one that was not."""

import importlib.util
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

import inducing as ig
from inducing.training import checkpoint as module
from inducing.training.monitor import Clock

from .problems import quiet, regression, wave

X, y = wave()
PATH = Path(__file__).parents[2] / "benchmarks" / "torture" / "kills.py"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


kills = load(PATH)


class Killed(BaseException):
    """Ends a fit without another write, as kill −9 does."""


@pytest.fixture
def mortal(monkeypatch):
    """`mortal(n)`: from now on a fit dies when it offers its n-th state or value; None: it lives."""
    left, tick, write = [None], module.Checkpoint._tick, module.write

    def dying(self, steps):
        tick(self, steps)
        if left[0] is not None:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed

    def dead_do_not_write(*args):
        if left[0] is None or left[0] > 0:
            write(*args)

    def lives(n):
        left[0] = n

    monkeypatch.setattr(module.Checkpoint, "_tick", dying)
    monkeypatch.setattr(module, "write", dead_do_not_write)
    return lives


@pytest.mark.parametrize("name", kills.CASES)
def test_a_killed_fit_ends_with_the_same_bits(name, mortal, tmp_path):
    model, data, options = kills.case(name)
    options["steps"] = min(options.get("steps", 40), 60)
    fit = partial(quiet, model, data, **options)
    expected, rng = fit(), random.Random(name)
    deaths = 0
    while True:
        mortal(rng.randint(2, 6))
        try:
            result = fit(checkpoint=tmp_path / "run", checkpoint_every=rng.randint(1, 4))
            break
        except Killed:
            deaths += 1
    mortal(None)
    assert deaths >= 2
    assert kills.digest(result) == kills.digest(expected)
    assert (np.diff(result.history.seconds) >= 0).all()
    assert not list(tmp_path.glob("run/*-*-*"))  # what a finished fit does not need is gone
    again = fit(checkpoint=tmp_path / "run", callback=None)
    assert kills.digest(again) == kills.digest(expected)
    assert np.array_equal(again.history.seconds, result.history.seconds)


def child(name, folder, every, tmp_path):
    """A process that fits a case, once it has begun."""
    code = f"""
import sys, jax
sys.path.insert(0, {str(PATH.parent)!r})
jax.config.update("jax_enable_x64", True)
import kills, inducing as ig
model, data, options = kills.case({name!r})
ig.fit(model, data, progress=False, checkpoint={str(folder)!r}, checkpoint_every={every}, **options)
"""
    return subprocess.Popen([sys.executable, "-c", code])


def appears(path, process):
    while not path.exists():
        assert process.poll() is None, "it ended too early"
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_process_that_was_ended_is_resumed_in_another(how, tmp_path):
    """kill −9 while files are written all the time; SIGTERM, which writes the only one, and ends it as it would."""
    folder = tmp_path / "run"
    process = child("natgrad", folder, 1 if how == "kill" else None, tmp_path)
    appears(folder / f"{'start-0-steps' if how == 'kill' else 'fit'}.safetensors", process)
    getattr(process, how)()
    assert process.wait(60) == (-signal.SIGKILL if how == "kill" else -signal.SIGTERM)
    assert (folder / "start-0-steps.safetensors").exists()
    model, data, options = kills.case("natgrad")
    result = quiet(model, data, checkpoint=folder, **options)
    assert kills.digest(result) == kills.digest(quiet(model, data, **options))


def test_by_default_writing_takes_less_than_a_hundredth_of_the_time(tmp_path, monkeypatch):
    """Slow writes become rare: here a step takes half a second, and a write three."""
    time_is, writing, point = [0.0], [0.0], jax.numpy.zeros(3)

    def slow(*args):
        time_is[0] += 3.0
        writing[0] += 3.0

    monkeypatch.setattr(module.time, "perf_counter", lambda: time_is[0])
    monkeypatch.setattr(module, "write", slow)
    checkpoint = module.Checkpoint(tmp_path, None, Clock())
    for _ in range(20_000):
        time_is[0] += 0.5
        checkpoint.numbers(lambda _: y, [point])
    checkpoint.write()
    assert 3 * 3.0 <= writing[0] < 0.01 * time_is[0]


def test_another_fit_is_refused_and_told_what_differs(tmp_path):
    run = partial(quiet, regression(), (X, y), method="adam", checkpoint=tmp_path)
    run(steps=3)
    files = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"holds another fit: steps was 3, and is 4\. Pass the same"):
        run(steps=4)
    with pytest.raises(ValueError, match=r"model\.likelihood\.variance is another"):
        quiet(regression(noise=0.4), (X, y), method="adam", checkpoint=tmp_path, steps=3)
    with pytest.raises(ValueError, match=r"the structure of model was .*Matern52.*, and is .*Matern32"):
        quiet(regression(kernel=ig.kernels.Matern32(0.8, 1.3)), (X, y), method="adam", checkpoint=tmp_path, steps=3)
    with pytest.raises(ValueError, match=r"data\.y is another"):
        quiet(regression(), (X, y + 1), method="adam", checkpoint=tmp_path, steps=3)
    with pytest.raises(ValueError, match=r"objective was elbo, and is elbo\(beta=0.5\)"):
        run(steps=3, objective=partial(ig.elbo, beta=0.5))
    with pytest.raises(ValueError, match="optimiser"):
        run(steps=3, optimiser=optax.sgd(0.1))
    with pytest.raises(ValueError, match="key"):
        run(steps=3, key=jax.random.key(1))
    assert sorted(tmp_path.iterdir()) == files


def test_arguments(tmp_path):
    with pytest.raises(TypeError, match="checkpoint"):
        quiet(regression(), (X, y), checkpoint=3)
    with pytest.raises(ValueError, match="checkpoint_every must be a whole number"):
        quiet(regression(), (X, y), checkpoint=tmp_path, checkpoint_every=0)
    with pytest.raises(ValueError, match="checkpoint_every needs a folder"):
        quiet(regression(), (X, y), checkpoint_every=3)


@pytest.mark.parametrize("method", ["adam", "collapsed"])
def test_ctrl_c_keeps_all_and_nothing_is_shown_twice(method, tmp_path, capsys):
    seen, when = [], [4]

    def callback(progress):
        seen.append(progress.step)
        if len(seen) == when[0]:
            raise KeyboardInterrupt

    fit = partial(quiet, regression(), (X, y), method=method, steps=60, callback=callback)
    run = partial(fit, checkpoint=tmp_path / "run")
    assert "interrupted" in run().message
    when[0] = 0
    result = run(progress="the bar")
    bar = capsys.readouterr().err
    assert "the bar (resumed" in bar and ("at step 30" in bar) == (method == "adam")
    steps = list(seen)
    seen.clear()
    assert kills.digest(result) == kills.digest(fit())
    assert steps[:3] + steps[4:] == seen  # the judgement that was interrupted is repeated
    seen.clear()
    assert kills.digest(run()) == kills.digest(result) and not seen


def test_a_damaged_checkpoint_and_another_scipy_are_told(tmp_path, mortal):
    mortal(10)
    with pytest.raises(Killed):
        quiet(regression(), (X, y), checkpoint=tmp_path, checkpoint_every=1)
    mortal(None)
    second = tmp_path / "start-0-values-1.safetensors"
    content = second.read_bytes()
    second.write_bytes((tmp_path / "start-0-values-2.safetensors").read_bytes())
    with pytest.raises(ValueError, match="asks for another point"):
        quiet(regression(), (X, y), checkpoint=tmp_path)
    second.write_bytes(content[:-5])
    with pytest.raises(ValueError, match=r"start-0-values-1.*damaged.*another folder"):
        quiet(regression(), (X, y), checkpoint=tmp_path)


def test_any_state_of_an_optimiser_is_restored(tmp_path, mortal):
    """bfloat16 numbers, counters, random keys, and a function of the user inside the model."""
    adam = optax.chain(optax.add_noise(0.01, 0.5, jax.random.key(3)), optax.adam(0.01, mu_dtype="bfloat16"))
    mean = ig.means.Constant(0.3)
    layer = ig.SparseGP(
        ig.GP(ig.kernels.Warped(ig.kernels.Matern52(), lambda x: x**2), mean), ig.features.InducingPoints([[0.5]])
    )
    fit = partial(quiet, ig.Model(layer, ig.likelihoods.Gaussian()), (X, y), method="adam", steps=60, optimiser=adam)
    mortal(4)
    with pytest.raises(Killed):
        fit(checkpoint=tmp_path, checkpoint_every=1)
    mortal(None)
    assert kills.digest(fit(checkpoint=tmp_path)) == kills.digest(fit())


def test_growing_is_resumed_in_the_fit_that_was_killed(tmp_path, mortal, unchecked):
    model = regression(kernel=ig.kernels.Matern52())
    data = np.concatenate([X, X + 0.01]), np.concatenate([y, y])
    grow = partial(ig.grow, model, data, progress=False)
    expected = grow()
    for deaths in (3, 20):
        mortal(deaths)
        with pytest.raises(Killed):
            grow(checkpoint=tmp_path / "run")
    mortal(None)
    result = grow(checkpoint=tmp_path / "run")
    assert kills.digest(result) == kills.digest(expected)
    assert kills.digest(grow(checkpoint=tmp_path / "run")) == kills.digest(expected)
    assert [folder.name.split("-on-")[0] for folder in (tmp_path / "run").iterdir()] == ["3-starts"]
    with pytest.raises(TypeError, match="checkpoint must be the path of a folder, such as 'run/', got 3"):
        grow(checkpoint=3)
