"""Gradient steps inside one compiled loop: any Optax optimiser, and natural gradients for q(u)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from inducing._xla import barrier, key_of_device, mean_over_devices, on_each_device
from inducing.bounds.objective import Target
from inducing.data import Data
from inducing.parameters import as_key
from inducing.training.natural import natural_step
from inducing.training.problem import Problem

CHUNK = 4096  # the largest number of steps in one call of the compiled loop


class Loop(eqx.Module):
    """Everything that does not change during the steps.

    Attributes:
        problem: the model split into free arrays and all the rest.
        data: all data; None if minibatches are passed in.
        objective: what is maximised.
        optimiser: moves all free arrays that do not take natural-gradient steps.
        natural: the positions, among the free arrays, of the mean and root of each q(u) that takes natural-gradient
            steps.
        batch_size: the number of rows in a minibatch; None for all data.
        per_datum: the positions of the arrays whose rows belong to single data. A minibatch moves only its own rows.
        streamed: the number of all data, if minibatches are passed in.
    """

    problem: Problem
    data: Data | None
    objective: Target
    optimiser: optax.GradientTransformation = eqx.field(static=True)
    natural: tuple[tuple[int, int], ...] = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    per_datum: tuple[int, ...] = eqx.field(static=True, default=())
    streamed: int | None = eqx.field(static=True, default=None)

    @property
    def num_data(self) -> int:
        """The number of all data."""
        if self.data is not None:
            return len(self.data)
        assert self.streamed is not None
        return self.streamed

    @property
    def rest(self) -> list[int]:
        """The positions of the free arrays that the optimiser moves."""
        taken = {i for pair in self.natural for i in pair}
        return [i for i in range(len(self.problem.units)) if i not in taken]


class State(eqx.Module):
    """What a step changes.

    Attributes:
        free: the arrays that move.
        optimiser: the state of the optimiser.
        key: the random key of the run.
        order: the shuffled rows of the current epoch; empty without minibatches.
        step: the number of steps taken.
        failures: the number of steps skipped because something was NaN or infinite.
        streak: the number of steps skipped in a row.
    """

    free: list[Array]
    optimiser: Any
    key: Array
    order: Int[Array, " N"]
    step: Int[Array, ""]
    failures: Int[Array, ""]
    streak: Int[Array, ""]


class Pace(eqx.Module):
    """The lengths of steps.

    γ decreases later than the length of gradient steps, because q(u) must keep following the other parameters until
    these have converged.

    Attributes:
        gamma_start: the length γ of the first natural-gradient step.
        gamma: the length γ after `ramp` steps. Until then log γ grows linearly.
        reach: how far q(u) may move in a natural-gradient step; see `natural_step`.
        ramp: the number of steps over which γ grows.
        fade: the number of steps before `end` in which gradient steps become shorter, down to a twentieth. γ decreases
            in the last third of them, down to a tenth.
        end: the last step; infinite if steps keep their length.
        clamp: the number of steps in which only `active` arrays move.
        active: for each free array, whether it moves from the beginning.
    """

    gamma_start: Float[Array, ""]
    gamma: Float[Array, ""]
    reach: Float[Array, ""]
    ramp: Float[Array, ""]
    fade: Float[Array, ""]
    end: Float[Array, ""]
    clamp: Int[Array, ""]
    active: Bool[Array, " free"]


def start_key(key: Array | None, start: Int[Array, ""]) -> Array:
    """The random key of one start of a fit, cheapest to compute inside a compiled program."""
    return jax.random.fold_in(as_key(key), start)


def initial_state(loop: Loop, key: Array | None, start: Int[Array, ""]) -> State:
    """The state before the first step.

    Its arrays are strongly typed, like those after a step; otherwise the loop would be compiled twice.
    """
    free = [jax.lax.convert_element_type(f, f.dtype) for f in loop.problem.free]
    with jax.numpy_dtype_promotion("standard"):
        optimiser = loop.optimiser.init([free[i] for i in loop.rest]) if loop.rest else ()
    zero = jnp.zeros((), jnp.int32)
    drawn = loop.data is not None and loop.batch_size
    order = jnp.arange(loop.num_data if drawn else 0, dtype=jnp.int32)
    return State(free, optimiser, start_key(key, start), order, zero, zero, zero)


def advance(loop: Loop, pace: Pace, state: State, num_steps: Int[Array, ""]) -> tuple[State, Float[Array, " CHUNK"]]:
    """Take steps.

    The rows of a minibatch are gathered during the previous step, so that no step has to wait for them. The loop is
    compiled once for each structure of model, objective and optimiser, whatever their values.

    Args:
        loop: what does not change.
        pace: the lengths of steps.
        state: the state before these steps.
        num_steps: the number of steps, at most `CHUNK`.

    Returns:
        The new state, and the objective before each step, NaN after the last one.
    """

    def body(i, carry):
        state, data, history = carry
        order, ahead = _rows(loop, state.key, state.step + 1, state.order)
        state, value = _step(loop, pace, eqx.tree_at(lambda s: s.order, state, order), data)
        return state, ahead, history.at[i].set(value.astype(history.dtype))

    history = jnp.full((CHUNK,), jnp.nan, jnp.result_type(*state.free))
    order, data = _rows(loop, state.key, state.step, state.order)
    state = eqx.tree_at(lambda s: s.order, state, order)
    state, _, history = jax.lax.fori_loop(0, num_steps, body, (state, data, history))
    return state, history


def _rows(loop: Loop, key: Array, step: Int[Array, ""], order: Array) -> tuple[Int[Array, " N"], Data | None]:
    """The order of rows in the epoch of `step`, and the minibatch of `step` (None: all data).

    `order` is the order of rows in the epoch of the previous step.
    """
    if loop.batch_size is None or loop.data is None:
        return order, None
    size, N = loop.batch_size, loop.num_data

    def new(_):
        return shuffled(jax.random.fold_in(jax.random.fold_in(key, step), 1), N)

    order = jax.lax.cond(step % (N // size) == 0, new, lambda o: o, order)
    first = (step % (N // size)) * size
    return order, loop.data.rows(jax.lax.dynamic_slice(order, (first,), (size,)))


def shuffled(key: Array, N: int) -> Int[Array, " N"]:
    """A random order of N rows.

    With 64-bit integers, 32 random bits and the number of the row are packed into one integer. Sorting integers is ten
    times as fast as sorting pairs, and ties of the random bits are broken by the row.
    """
    if not jax.config.jax_enable_x64:  # ty: ignore[missing-attribute]
        return jax.random.permutation(key, jnp.arange(N, dtype=jnp.int32))
    bits = jax.random.bits(key, (N,), jnp.uint32).astype(jnp.uint64)
    packed = jnp.sort((bits << jnp.uint64(32)) | jnp.arange(N, dtype=jnp.uint64))
    return (packed & jnp.uint64(0xFFFFFFFF)).astype(jnp.int32)


def advance_on(
    loop: Loop, pace: Pace, state: State, num_steps: Int[Array, ""], rows: Data, signals: Float[Array, "devices k"]
) -> tuple[State, Float[Array, " group"], Float[Array, " k"]]:
    """Take one step on each of a few minibatches whose rows are spread over the devices.

    One all-reduce for each step averages value, gradient and signals over the devices, so that Adam and natural
    gradients use the same averages on every device. Taking several steps in one program saves memory allocations.

    Args:
        loop: what does not change. Its data are None.
        pace: the lengths of steps.
        state: the state before the steps.
        num_steps: the number of steps, at least 1 and at most the number of minibatches.
        rows: the minibatches, arrays [devices, minibatches, rows, ...].
        signals: numbers of each device.

    Returns:
        The new state, the objective before each step, and the means of the signals.
    """

    def on_rows(loop, pace, state, num_steps, rows, signals):
        def body(i, carry):
            state, values, _ = carry
            said = []

            def mean(value, grads):
                value, grads, means = mean_over_devices((value, grads, signals[0].astype(value.dtype)))
                said.append(means.astype(signals.dtype))
                return value, grads

            batch = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a[0], i, keepdims=False), rows)
            new, value = _step(loop, pace, state, batch, mean)
            return new, values.at[i].set(value.astype(values.dtype)), said[0]

        values = jnp.full((rows.index.shape[1],), jnp.nan, jnp.result_type(*state.free))
        return jax.lax.fori_loop(0, num_steps, body, (state, values, jnp.zeros_like(signals[0])))

    return on_each_device(on_rows, (loop, pace, state, num_steps), (rows, signals))


def _step(
    loop: Loop, pace: Pace, state: State, rows: Data | None, mean: Callable | None = None
) -> tuple[State, Float[Array, ""]]:
    """Take one step. `mean` averages value and gradient over the devices."""
    data = loop.data if rows is None else rows
    assert data is not None
    step_key = jax.random.fold_in(state.key, state.step)
    step_key = step_key if mean is None else key_of_device(step_key)

    def value_of(free):
        return loop.objective(loop.problem.model(free), data, step_key, loop.num_data)

    value, grads = jax.value_and_grad(value_of)(state.free)
    if mean is not None:
        value, grads = mean(value, grads)
    over_all = value_of if mean is None else lambda free: mean_over_devices(value_of(free))
    free, optimiser = _update(loop, pace, state, value, grads, over_all)
    if loop.batch_size is not None:
        for i in loop.per_datum:
            free[i] = state.free[i].at[data.index].set(free[i][data.index])
    ok = barrier(_finite([value, free, optimiser]))  # computed once, not for each array
    free, optimiser = jax.tree.map(
        lambda new, old: jnp.where(ok, new, old), (free, optimiser), (state.free, state.optimiser)
    )
    failed = (~ok).astype(jnp.int32)
    streak = jnp.where(ok, 0, state.streak + 1)
    new = State(free, optimiser, state.key, state.order, state.step + 1, state.failures + failed, streak)
    return new, value


def _update(
    loop: Loop, pace: Pace, state: State, value: Array, grads: list[Array], value_of: Callable
) -> tuple[list[Array], Any]:
    free = list(state.free)

    def loss(moved: list[Array]) -> Array:
        """The negative objective, for optimisers with a line search."""
        there = list(state.free)
        for i, f in zip(loop.rest, moved, strict=True):
            there[i] = f
        return -value_of(there)

    moves = pace.active | (state.step >= pace.clamp)
    with jax.numpy_dtype_promotion("standard"):
        downhill = [jnp.where(moves[i], -grads[i], 0.0) for i in loop.rest]
        update: Any = optax.with_extra_args_support(loop.optimiser).update
        place = [state.free[i] for i in loop.rest]
        updates, optimiser = [], state.optimiser
        if place:
            updates, optimiser = update(downhill, state.optimiser, place, value=-value, grad=downhill, value_fn=loss)
        length = jnp.clip((pace.end - state.step) / pace.fade, 0.05, 1.0)
        for i, change in zip(loop.rest, updates, strict=True):
            free[i] = state.free[i] + jnp.where(moves[i], length * change, 0.0).astype(free[i].dtype)
    done = jnp.minimum(state.step.astype(pace.ramp.dtype) / pace.ramp, 1.0)
    gamma = jnp.exp((1.0 - done) * jnp.log(pace.gamma_start) + done * jnp.log(pace.gamma))
    gamma = gamma * jnp.clip(3.0 * (pace.end - state.step.astype(pace.end.dtype)) / pace.fade, 0.1, 1.0)
    for m, r in loop.natural:
        free[m], free[r] = natural_step(free[m], free[r], grads[m], grads[r], gamma, pace.reach)
    return free, optimiser


def _finite(tree: Any) -> Array:
    """Whether all entries of all arrays are finite. The sum of an array is finite only if its entries are."""
    sums = [jnp.isfinite(jnp.sum(a)) for a in jax.tree.leaves(tree) if eqx.is_inexact_array(a)]
    return jnp.all(jnp.stack(sums))
