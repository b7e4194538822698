"""The source of minibatches: rows that the compiled loop draws from data in memory, or rows read from a stream."""

from collections.abc import Generator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled, copied, local, num_devices, own_array, process, spread
from inducing.data import Data
from inducing.model import Model
from inducing.parameters import dtype_of
from inducing.streams.source import Rows
from inducing.streams.stream import arrays_of
from inducing.training.compiled_steps import CHUNK, Loop, Pace, State, advance, advance_on, start_key
from inducing.training.run import Run

GROUP = 8  # the largest number of minibatches in one call of the compiled program,
ROWS = 2**18  # and the largest number of rows, unless a single minibatch has more


class Drawn:
    """The data are in memory, and the compiled loop draws rows from them."""

    def advance(self, loop: Loop, pace: Pace, state: State, n: int) -> tuple[State, np.ndarray]:
        """The state after n steps, and the objective before each of them."""
        new, values = jax.block_until_ready(compiled(advance)(loop, pace, state, own_array(n, np.int32)))
        return new, np.asarray(values, float)[:n]

    def seconds_of_a_step(self, measured: float) -> float:
        """The time of a step."""
        return measured

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Streamed:
    """Minibatches of a stream, which a thread reads ahead.

    The position in the stream is determined by the number of the step alone.
    """

    def __init__(self, run: Run):
        assert run.given.stream is not None and run.plan.batch_size is not None
        self._stream, self._size, self._model = run.given.stream, run.plan.batch_size, run.model
        self._like, self._agreement = run.given.data, run.watch.agreement
        self._seed = _numbers_of(start_key(*run.seed))
        self._dtype = dtype_of(run.model)
        self._group = min(max(1, ROWS // self._size), GROUP)
        self._rows: Generator[list[np.ndarray]] | None = None
        self._step = -1  # of the next minibatch
        self._unchecked = len(self._stream) // self._size
        self._fixed: tuple[Any, Any, Any, Any] | None = None

    def advance(self, loop: Loop, pace: Pace, state: State, n: int) -> tuple[State, np.ndarray]:
        """The state after n steps, or fewer if a process asks to stop, and the objective before each of them."""
        step = int(state.step)
        if step != self._step:
            self.close()
            self._rows = self._stream.rows(self._size, self._seed, step, *process(), self._prepare)
            self._step = step
        loop, pace = self._everywhere(loop, pace)
        state, values, before, left = copied(state), [], None, min(n, CHUNK)
        while left > 0:
            k = min(left, self._group)
            rows, signals = self._next(k), spread([self._agreement.own(self._dtype)])
            some = copied(own_array(k, np.int32))
            state, found, said = compiled(advance_on)(loop, pace, state, some, rows, *signals)
            self._step, left = self._step + k, left - k
            values.append((found, k))
            # Waiting only for the signals of the previous group keeps two groups under way.
            if before is not None and self._agreement.hears(before):
                break
            before = said
        else:
            self._agreement.hears(said)
        numbers = np.concatenate([np.asarray(local(found), float)[:k] for found, k in values])
        return jax.block_until_ready(local(state)), numbers

    def seconds_of_a_step(self, measured: float) -> float:
        """The duration of a step, the same for all processes, so that they take the same number of steps at a time."""
        return self._agreement.seconds_of_a_step(measured)

    def close(self) -> None:
        """Stop reading."""
        if self._rows is not None:
            self._rows.close()

    def _next(self, k: int) -> Data:
        """The next k minibatches, [devices, group, rows, ...]. The group is padded with zeros, which are not used."""
        group = [self._minibatch() for _ in range(k)]
        empty = [np.zeros_like(a) for a in group[0]]
        devices = num_devices() // process()[1]
        arrays = []
        for parts in zip(*group, *[empty] * (self._group - k), strict=True):
            a = np.stack(parts)
            arrays.append(a.reshape(len(a), devices, -1, *a.shape[2:]).swapaxes(0, 1))
        return jax.tree.unflatten(jax.tree.structure(self._like), spread(arrays))

    def _minibatch(self) -> list[np.ndarray]:
        """The next minibatch of this process, or zeros if it cannot be read. The other processes are then told."""
        try:
            assert self._rows is not None
            return next(self._rows)
        except Exception as error:
            self._agreement.failed(error)
            size = self._size // process()[1]
            return [np.zeros((size, *a.shape[1:]), a.dtype) for a in jax.tree.leaves(self._like)]

    def _prepare(self, rows: Rows) -> list[np.ndarray]:
        """The arrays of a minibatch. Labels are checked during the first epoch of a call."""
        if self._unchecked > 0:
            check_labels(self._model, rows)
            self._unchecked -= 1
        return arrays_of(rows, self._dtype)

    def _everywhere(self, loop: Loop, pace: Pace) -> tuple[Loop, Pace]:
        """Loop and pace on all devices. They are copied only when they change."""
        if self._fixed is None or self._fixed[0] is not loop or self._fixed[1] is not pace:
            self._fixed = loop, pace, copied(loop), copied(pace)
        return self._fixed[2:]


def _numbers_of(key: Array) -> tuple[int, ...]:
    return tuple(map(int, np.asarray(jax.random.key_data(key)).reshape(-1)))


def check_labels(model: Model, rows: Rows) -> None:
    """Raise a ValueError for labels outside the likelihood's support, and for indices that the model has no row for."""
    mask = ~np.isnan(rows.y)
    for layer in model.layers:
        layer.check_index(rows.index)
    model.likelihood.check_index(rows.index, mask)
    model.likelihood.check(rows.y, index=rows.index)
