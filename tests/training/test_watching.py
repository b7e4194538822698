"""Watching a fit: what decides, what is kept, and when it stops."""

import importlib
import signal
import time
from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from inducing.streams.agreement import Agreement
from inducing.training.levelling import has_levelled
from inducing.training.monitor import Clock, Monitor, Watch

from .problems import elbo, quiet, regression, same, wave

X, y = wave()


def test_interrupt_returns_the_best_so_far():
    seen = []

    def interrupt(progress):
        seen.append(progress)
        if progress.step >= 20:
            raise KeyboardInterrupt

    for method in ("adam", "collapsed"):
        seen.clear()
        result = quiet(regression(), (X, y), method=method, steps=100, callback=interrupt)
        assert "interrupted" in result.message
        assert result.bound == max(p.bound for p in seen)
        assert np.isclose(elbo(result.model, (X, y)), result.bound, atol=1e-6)


def test_interrupt_under_minibatches():
    seen = []

    def interrupt(progress):
        seen.append(progress.bound)
        if progress.step >= 20:
            raise KeyboardInterrupt

    options = {"method": "adam", "steps": 100, "batch_size": 16, "initialise": False}
    result = quiet(regression(), (X, y), starts=3, callback=interrupt, **options)
    assert "interrupted" in result.message and result.bound == max(seen)
    assert len(result.history.bound) == 20  # and no other start was made
    assert same(result.model, quiet(regression(), (X, y), callback=lambda p: p.step >= 20, **options).model)
    assert elbo(result.model, (X, y)) > elbo(regression(), (X, y))


class Garbage:
    """What is raised while it is collected is ignored by Python."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("method", ["adam", "collapsed"])
def test_ctrl_c_is_not_lost_where_exceptions_are(method):
    result = quiet(regression(), (X, y), method=method, steps=100, callback=lambda progress: Garbage() and None)
    assert "interrupted" in result.message and len(result.history.bound) < 20
    assert np.isclose(elbo(result.model, (X, y)), result.bound, atol=1e-6)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait_and_other_handlers_stay():
    passed = []

    def twice(progress):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
            passed.append(progress.step)

    assert "interrupted" in quiet(regression(), (X, y), method="adam", steps=100, callback=twice).message
    assert passed == [0]
    before = signal.signal(signal.SIGINT, lambda number, frame: passed.append(number))
    try:
        quiet(regression(), (X, y), method="adam", steps=10, callback=lambda p: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert signal.SIGINT in passed


def test_interrupt_before_anything_was_judged(monkeypatch):
    module = importlib.import_module("inducing.training.batches")
    compiled, calls = module.compiled, []

    def once(*args):
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return compiled(module.advance)(*args)

    monkeypatch.setattr(module, "compiled", lambda fn, **how: once if fn is module.advance else compiled(fn, **how))
    options = {"method": "adam", "steps": 100, "batch_size": 16, "initialise": False}
    result = quiet(regression(), (X, y), **options)
    assert "interrupted" in result.message and result.bound == result.history.bound[0]
    with pytest.raises(KeyboardInterrupt):  # before the first step there is no bound to return
        quiet(regression(), (X, y), **options)


@pytest.mark.parametrize("place", ["_perturbed", "maximise", "_trained_model"])
def test_interrupt_after_the_first_start_keeps_it(monkeypatch, place):
    module = importlib.import_module(f"inducing.training.{'lbfgs' if place == 'maximise' else 'fit'}")
    inner, calls = getattr(module, place), []

    def second(*args):
        calls.append(args)
        if len(calls) == (2 if place == "maximise" else 1):
            raise KeyboardInterrupt
        return inner(*args)

    monkeypatch.setattr(module, place, second)
    options = {"objective": lambda model, data: -(model.likelihood.variance**2), "method": "lbfgs", "initialise": False}
    result = quiet(regression(), (X, y), starts=1 if place == "_trained_model" else 3, **options)
    assert result.bound > -1e-3 and ("interrupted in a later start" in result.message) == (place != "_trained_model")


def test_callback_sees_models_and_can_stop():
    result = quiet(regression(), (X, y), method="adam", steps=200, callback=lambda p: p.step >= 50)
    assert len(result.history.bound) < 100 and "callback" in result.message
    result = quiet(regression(), (X, y), callback=lambda p: True)
    assert len(result.history.bound) == 0 and "callback" in result.message
    seen = []
    quiet(regression(), (X, y), steps=2, callback=lambda p: seen.append((p.bound, elbo(p.model, (X, y)))))
    assert len(seen) == 3
    np.testing.assert_allclose(*zip(*seen, strict=True))  # with the optimal q(u) that the collapsed bound is of
    bounds = []
    result = quiet(regression(), (X, y), callback=lambda p: bounds.append(p.bounds) or (p.step >= 3 and "far enough"))
    assert "3 steps on all data: far enough" in result.message
    np.testing.assert_array_equal(bounds[-1], result.history.bound)
    models = []
    quiet(regression(), (X, y), method="adam", steps=2, callback=lambda p: models.append(p.model))
    assert isinstance(models[0], ig.Model)


def test_the_moving_average_does_not_depend_on_the_clock():
    """Steps come in pieces of any length; the first ones, fewer than the window, have their mean."""
    values, found = np.arange(20.0) ** 2, []
    for cuts in ([], [1, 10], [1, 3, 11, 15]):
        agreement = Agreement(lambda: None, lambda: False)
        monitor = Monitor(20, "", 50.0, Watch(False, None, None, agreement, lambda free: free, None, Clock()))
        for piece in np.split(values, cuts):
            monitor.record(piece)
        found.append(monitor.smoothed)
    np.testing.assert_allclose(found, values.mean())


def test_held_out_data_decide_and_stop():
    held = wave(num=30, seed=1)
    scores = []
    result = quiet(
        regression(),
        (X[:8], y[:8]),
        method="adam",
        steps=1000,
        learning_rate=0.1,
        held_out=held,
        patience=100,
        callback=lambda p: scores.append(p.bound),
    )
    assert "no improvement" in result.message and len(result.history.bound) < 1000
    assert result.bound == max(scores) > scores[-1]
    assert np.isclose(elbo(result.model, held, num_data=8), result.bound)


def test_held_out_data_with_the_collapsed_bound():
    held = wave(num=30, seed=1)
    result = quiet(regression(), (X, y), held_out=held, steps=10)
    assert np.isclose(elbo(result.model, held, num_data=len(y)), result.bound, atol=1e-6)


def test_starts_keep_the_best():
    def two_hills(model, data):  # of log σ²: the lower one at 0, where the first start stands, the higher one at 1.2
        t = jnp.log(model.likelihood.variance)
        return 5.0 * jnp.exp(-20.0 * (t - 1.2) ** 2) + jnp.exp(-20.0 * t**2)

    run = partial(quiet, regression(noise=1.0), (X, y), objective=two_hills, method="lbfgs", initialise=False)
    one, several = run(), run(starts=8)
    assert np.isclose(one.bound, 1.0) and np.isclose(one.model.likelihood.variance, 1.0)
    assert np.isclose(several.bound, 5.0) and np.isclose(several.model.likelihood.variance, np.exp(1.2), rtol=1e-4)
    assert "best of 8 starts, which reached 1," in several.message


def test_a_start_without_a_number_loses_no_other():
    def holes(model, data, inside):  # NaN far from the first start, or near it
        t = jnp.abs(jnp.log(model.likelihood.variance))
        return jnp.where((t < 0.4) == inside, -(t**2), jnp.nan)

    run = partial(quiet, regression(noise=1.0), (X, y), method="lbfgs", initialise=False, starts=4)
    for inside in (True, False):
        result = run(objective=partial(holes, inside=inside))
        assert np.isfinite(result.bound) and "best of 4 starts" in result.message and "nan" in result.message


def test_progress_can_be_silenced_and_shows_bound_and_speed(capsys):
    quiet(regression(), (X, y), method="adam", steps=5)
    out = capsys.readouterr()
    assert out.out == "" and out.err == ""
    ig.fit(regression(), (X, y), method="adam", steps=5, progress="fold 3")
    out = capsys.readouterr()
    assert out.err.lstrip("\r").startswith("fold 3:")
    assert out.out == "" and "bound" in out.err and "step/s" in out.err
    assert out.err.rstrip().endswith("all steps done]")


def test_the_progress_bar_says_that_a_fit_ended_early_because_it_converged(capsys):
    result = ig.fit(regression(), (X, y), method="collapsed")
    assert capsys.readouterr().err.rstrip().endswith(f"bound {result.bound:.6g}, converged]")


def test_patience_without_held_out_data_and_values_that_tree_at_left():
    result = quiet(regression(), (X, y), method="adam", steps=20_000, patience=300)
    assert len(result.history.bound) < 20_000 and "no improvement for 300 steps" in result.message
    assert result.bound > elbo(regression(), (X, y)) + 100
    broken = eqx.tree_at(lambda m: m.likelihood.variance, regression(), jnp.asarray(-1.0))
    with pytest.raises(ValueError, match="variance must be positive, got -1"):
        quiet(broken, (X, y))


def test_a_fit_ends_when_the_bound_has_levelled_off_whatever_the_units():
    """For f = c the bound rises by less and less; how far it then is from its limit is known."""

    def rising(bound, scale):  # what a user's objective in nats is: a bound of all labels
        return has_levelled(scale * bound, int(scale), 40, False)

    slow, quick = -np.exp(-np.arange(2000.0) / 500.0), -np.exp(-np.arange(2000.0) / 20.0)
    for scale in (10.0, 1e6):
        assert not any(rising(slow[:k], scale) for k in range(0, 2000, 50))
        stop = next(k for k in range(0, 2000, 10) if rising(quick[:k], scale))
        assert 80 <= stop < 300 and -quick[stop] < 1e-3
    rng = np.random.default_rng(0)
    noise = 0.03 * rng.normal(size=20_000)
    steady, growing = noise, noise + 1e-5 * np.arange(20_000)  # by 0.05 nats in 5000 steps
    assert not any(has_levelled(100 * growing[:k], 100, 300, True) for k in range(500, 20_000, 500))
    assert any(has_levelled(100 * steady[:k], 100, 300, True) for k in range(500, 20_000, 500))


def test_levelled_fits_end_early_and_are_as_good():
    model = ig.fit(regression(), (X, y), progress=False).model  # nothing is left to gain
    minibatches = {"method": "natgrad", "batch_size": 59, "steps": 20_000, "learning_rate": 1e-3}
    for options, most in (({"method": "natgrad"}, 1500), (minibatches, 10_000)):
        result = quiet(model, (X, y), initialise=False, **options)
        assert "levelled off" in result.message and len(result.history.bound) <= most
        assert elbo(result.model, (X, y)) > elbo(model, (X, y)) - 0.05
    for options in ({"patience": 10_000}, {"objective": lambda m, d: ig.elbo(m, d)}):  # another rule, or unknown units
        result = quiet(model, (X, y), method="natgrad", initialise=False, steps=900, **options)
        assert len(result.history.bound) == 900


@pytest.mark.parametrize("method", ["natgrad", "collapsed"])
def test_seconds_end_a_fit_which_goes_on_with_more(method, tmp_path, capsys):
    fit = partial(ig.fit, regression(), (X, y), method=method, steps=10**6, patience=10**6, checkpoint=tmp_path / "run")
    quiet(regression(), (X, y), method=method, steps=1)
    slow = lambda progress: time.sleep(0.05)  # noqa: E731
    began = time.perf_counter()
    short = fit(seconds=1.0, callback=slow)
    assert "the time is up" in short.message and time.perf_counter() - began < 5.0
    assert "s left" in capsys.readouterr().err
    np.testing.assert_allclose(elbo(short.model, (X, y)), short.bound, rtol=1e-6)
    steps = len(short.history.bound)
    again = fit(seconds=1.0, callback=slow, progress=False)
    assert "the time is up" in again.message and len(again.history.bound) <= steps + 10
    if method == "natgrad":
        more = fit(seconds=2.0, callback=slow, progress=False)
        assert len(more.history.bound) > steps and np.array_equal(more.history.bound[:steps], short.history.bound)
        assert more.history.seconds[-1] < 4.0
    with pytest.raises(ValueError, match="seconds must be a number greater than 0"):
        fit(seconds=0.0)
