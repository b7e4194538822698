"""L-BFGS on the whole data, for objectives without noise."""

import importlib
import threading
from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import compiled, own_array
from inducing.data import Data
from inducing.training.monitor import Monitor
from inducing.training.problem import Objective, Problem

RESTARTS = 3
SPELL = 10  # for how many values the careful objective is kept to, when it is first needed
REACH = 3.0  # how far one step may move a free number: a factor of e³ for a scale, three spreads for a place


class Ascent(eqx.Module):
    """A problem with all its data, or with some rows that stand for `num_data`. Where `objective` gives no number,
    `careful` may, and is kept to for a while."""

    problem: Problem
    data: Data
    num_data: int
    objective: Objective
    careful: Objective | None = None


def value_and_gradient(ascent: Ascent, free: list[Array], key: Array | None) -> tuple[Float[Array, ""], list[Array]]:
    """The objective at free arrays, and its gradient."""

    def value_of(free):
        return ascent.objective(ascent.problem.model(free), ascent.data, key, ascent.num_data)

    return jax.value_and_grad(value_of)(free)


def _evaluator(ascent: Ascent, key: Array | None) -> Callable:
    """`value_and_gradient` at free arrays. Spells of `careful` become longer each time that `objective` has failed."""
    evaluate = compiled(value_and_gradient)
    careful = None if ascent.careful is None else Ascent(ascent.problem, ascent.data, ascent.num_data, ascent.careful)
    left, spell = 0, SPELL

    def at(free: list[Array]) -> tuple[Array, list[Array]]:
        nonlocal left, spell
        if left == 0:
            value, grads = evaluate(ascent, free, key)
            if careful is None or np.isfinite(value):
                return value, grads
        value, grads = evaluate(careful, free, key)
        if left > 0:
            left -= 1
        elif np.isfinite(value):  # else it is the place that is bad, not the objective
            left, spell = spell, 2 * spell
        return value, grads

    return at


class _Stop(Exception):
    """Ends the optimiser from inside its callback."""


def maximise(ascent: Ascent, start: list[Array], steps: int, monitor: Monitor, key: Array | None) -> tuple[str, int]:
    """Climb from `start` until the bound settles or `steps` iterations are done; why it ended, and how many values were
    no numbers.

    The parameters are in `monitor.best`. Where a line search meets a value that is no number, or reaches so far that
    rounding would make up values (a noise of 1e-80), it is told of a slope that leads back, and shortens its step.
    """
    evaluate = _evaluator(ascent, key)
    shapes = [f.shape for f in start]
    ends = np.cumsum([f.size for f in start])[:-1]
    best_x, best_f, began, failures = _flat(start), np.inf, -np.inf, 0  # `began`: the value where a line search begins

    def unflatten(x: np.ndarray) -> list[Array]:
        pieces = np.split(x, ends)  # copied: SciPy goes on writing into x
        return [own_array(p.reshape(s), f.dtype) for p, s, f in zip(pieces, shapes, start, strict=True)]

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best_x, best_f, failures
        if np.isfinite(best_f):
            monitor.look()
        away, top = x - best_x, max(best_f, began)
        wall = 10.0 * (1.0 + abs(top))
        if np.abs(away).max() <= REACH:
            value, grads = evaluate(unflatten(x))
            f, g = -float(value), -_flat(grads)
            if np.isfinite(f) and np.isfinite(g).all():
                if f < best_f:
                    best_x, best_f = x.copy(), f
                return f, g
            failures += 1
            if not np.isfinite(best_f):
                return f, g
        return top + wall, 2.0 * wall * away / max(float(away @ away), 1e-300)

    def callback(intermediate_result):
        nonlocal began
        began = float(intermediate_result.fun)
        monitor.record(np.array([-intermediate_result.fun]))
        reason = monitor.judge(unflatten(intermediate_result.x), -float(intermediate_result.fun))
        if reason:
            raise _Stop(reason)

    compiled(value_and_gradient).lower(ascent, start, key)
    threading.Thread(target=importlib.import_module, args=("scipy.optimize",)).start()  # while XLA compiles
    f, _ = fun(best_x)
    if not np.isfinite(best_f):
        what = "gradient of the objective is not finite" if np.isfinite(f) else f"objective is {-f}"
        raise FloatingPointError(
            f"the {what} at the start; check the starting values, or let initialise=True set their scales. Labels much "
            "farther from the prior's mean than from each other need a trained one, ig.means.Constant(); those with "
            'little noise, float64: jax.config.update("jax_enable_x64", True).'
        )
    if stop := monitor.judge(unflatten(best_x), -f):
        return stop, failures
    from scipy.optimize import minimize

    reason = "all steps done"
    try:
        for _ in range(RESTARTS):
            before = began = best_f
            left = steps - monitor.step
            if left <= 0:
                break
            options = {"maxiter": left, "maxfun": 20 * left, "maxcor": 60, "maxls": 30, "ftol": 1e-10, "gtol": 1e-5}
            done = minimize(fun, best_x, jac=True, method="L-BFGS-B", callback=callback, options=options)
            if done.status == 0:
                reason = "converged"
                break
            if before - best_f <= 1e-9 * (1.0 + abs(best_f)):  # the line search fails where rounding hides the slope
                reason = "converged as far as rounding allows"
                break
        else:
            reason = "the line search gave up" if monitor.step < steps else reason
    except _Stop as stop:
        reason = str(stop)
    return reason, failures


def _flat(arrays: list[Array]) -> np.ndarray:
    return np.concatenate([np.asarray(a, float).reshape(-1) for a in arrays])
