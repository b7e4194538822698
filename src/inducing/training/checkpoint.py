"""Checkpoints: a fit that was killed continues where it was, with the same result as if it had not been killed.

A checkpoint is a folder of safetensors files. Each file is written atomically, and nothing in it is executed. If there
are several processes, the first one writes and all of them read, so they must share the folder. The files are:

- `fit`: the marks of the call. A later call must have the same marks.
- `start-0`: the outcome of the first start. Until the start has ended, there is one of the following instead.
- `start-0-steps`: the state of gradient steps: parameters, optimiser, random key, order of the rows, history, and the
  best parameters.
- `start-0-values-0`, `start-0-values-57`, …: the values and gradients that L-BFGS has asked for. The number is that of
  the first value in the file. SciPy's L-BFGS cannot be stopped and resumed, but it is deterministic. We therefore call
  it again, and answer with the recorded numbers instead of computing them. Hashes ensure that it asks for the same
  points.
"""

import contextlib
import functools
import hashlib
import re
import time
from collections.abc import Callable, Generator, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array, process
from inducing.io.container import NATIVE, read, write
from inducing.training.arguments import Arguments
from inducing.training.interrupt import deferred_termination
from inducing.training.monitor import Clock, History, Monitor, Outcome, Watch
from inducing.training.problem import Problem

SECONDS, SHARE = 30.0, 0.005  # default time between two checkpoints; longer if writing would take more than this share
UNMARKED = {"progress", "checkpoint", "checkpoint_every", "seconds"}  # arguments that may differ from call to call
LONG = 60  # the largest number of characters that an error shows of a value

Arrays = dict[str, np.ndarray]
Record = tuple[np.ndarray, int, float]
"""The computed numbers, the hash of the point, and the time of the fit at which they were computed."""


@contextlib.contextmanager
def opened(given: Arguments, clock: Clock) -> Generator["Checkpoint"]:
    """The checkpoint that the arguments ask for. The end of the block writes what has not been written yet.

    Args:
        given: the arguments of `fit`, with a checkpoint.
        clock: measures the time of the fit over all calls.

    Raises:
        ValueError: if the folder holds the checkpoint of another fit, or damaged files.
        OSError: if the folder cannot be made, read or written.
    """
    assert given.checkpoint is not None
    folder = Path(given.checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(".*.safetensors.*.tmp") if process()[0] == 0 else ():  # of a writer that was killed
        leftover.unlink(missing_ok=True)
    checkpoint = Checkpoint(folder, given.checkpoint_every, clock)
    with deferred_termination(checkpoint.write) as checkpoint.look:
        checkpoint.compare(marks(given))
        try:
            yield checkpoint
        finally:
            checkpoint.write()


class Checkpoint:
    """The record of a fit in a folder.

    Args:
        folder: the folder.
        every: the number of steps, or of values of L-BFGS, between two writes; None for about every 30 seconds.
        clock: measures the time of the fit over all calls.
    """

    def __init__(self, folder: Path, every: int | None, clock: Clock):
        self._folder, self._every, self._clock = folder, every, clock
        self.look: Callable[[], None] = lambda: None
        self._start = ""  # the name of the current start
        self._began = 0.0  # the time at which it began
        self._state: dict[str, Any] | None = None  # of gradient steps, not yet written
        self._values: list[Record] = []  # of L-BFGS, not yet written
        self._num_values = 0  # the number of values of L-BFGS that have been written
        self._replay: Iterator[Record] = iter(())
        self._next: Record | None = None
        self._steps, self._written, self._pause = 0, time.perf_counter(), SECONDS

    def compare(self, now: dict[str, str]) -> None:
        """Raise a ValueError if the folder holds another fit. `now` are the `marks` of this call."""
        record = self._read("fit")
        if record is None:
            self._write("fit", now, {})
            return
        before = record[0]
        differences = [_difference(name, before.get(name), now.get(name)) for name in {**before, **now}]
        if found := [text for text in differences if text]:
            more = f", and {len(found) - 3} more" if len(found) > 3 else ""
            raise ValueError(
                f"checkpoint={str(self._folder)!r} holds another fit: {'; '.join(found[:3])}{more}. Pass the same "
                "arguments to resume it, or another folder to start a new fit."
            )

    def begin(self, number: int, problem: Problem) -> Outcome | None:
        """Begin or resume the start of this number. Returns its outcome if it has already ended."""
        self.write()
        self._start = f"start-{number}"
        self._steps, self._num_values, self._began = 0, 0, self._clock.now()
        if (record := self._read(self._start)) is not None:
            text, arrays = record
            self._clock.go_on(float(arrays["elapsed"]))
            history = History(*(arrays[name] for name in History._fields))
            bound = float.fromhex(text.pop("bound"))
            return Outcome(problem, self._restored(problem.partition.free, arrays, "free"), history, bound, **text)
        self._replay = self._records()
        self._next = next(self._replay, None)
        if self._next is not None:
            self._clock.hold(self._began)
        return None

    def end(self, outcome: Outcome) -> None:
        """Record the outcome of the current start."""
        names = ("reason", "failures", "sampled", "sample")
        text = {name: getattr(outcome, name) for name in names} | {"bound": float(outcome.bound).hex()}
        arrays = _named(outcome.free, "free") | outcome.history._asdict() | {"elapsed": np.array(self._clock.now())}
        self._write(self._start, text, arrays)
        self._state, self._values = None, []
        for path in self._folder.glob(f"{self._start}-*.safetensors") if process()[0] == 0 else ():
            path.unlink(missing_ok=True)

    def restore(self, state: Any, monitor: Monitor) -> Any:
        """The recorded state of gradient steps, or the given `state` if there is none. Also restores the monitor."""
        record = self._read(f"{self._start}-steps")
        if record is None:
            return state
        arrays = record[1]
        self._clock.go_on(float(arrays["elapsed"]))
        moving, rest = eqx.partition(state, eqx.is_array)
        leaves, structure = jax.tree.flatten(moving)
        state = eqx.combine(structure.unflatten(self._restored(leaves, arrays, "state")), rest)
        best = self._restored(state.free, arrays, "best") if "best.0" in arrays else None
        monitor.restore(arrays["numbers"], arrays["bounds"], arrays["times"], best)
        self._steps = monitor.step
        return state

    def keep(self, state: Any, monitor: Monitor) -> None:
        """Keep the state after some steps, and write it if a checkpoint is due."""
        self._state = {
            **_named(jax.tree.leaves(eqx.filter(state, eqx.is_array)), "state"),
            **_named(monitor.best or [], "best"),
            "numbers": monitor.numbers(),
            "bounds": list(monitor.bounds),
            "times": list(monitor.times),
            "elapsed": np.array(self._clock.now()),
        }
        self._tick(monitor.step)

    @property
    def replays(self) -> bool:
        """Whether the numbers that L-BFGS asks for next have been recorded."""
        return self._next is not None

    def watched(self, watch: Watch) -> Watch:
        """The watch for L-BFGS: scores on held-out data are recorded, and callbacks do not see repeated steps."""
        callback, held_out = watch.callback, watch.held_out
        if callback is not None:
            watch = watch._replace(callback=lambda progress: not self.replays and callback(progress))
        if held_out is not None:
            score = functools.partial(self.numbers, lambda free: np.array([held_out(free)], float))
            watch = watch._replace(held_out=lambda free: float(score(free)[0]))
        return watch

    def numbers(self, compute: Callable[[list[Array]], np.ndarray], point: list[Array]) -> np.ndarray:
        """compute(point), which is recorded; or the recorded numbers of an earlier call, if there are any."""
        asked = int.from_bytes(_digest(point)[:8])
        if self._next is None:
            found = compute(point)
            self._values.append((found, asked, self._clock.now()))
            self._tick(self._num_values + len(self._values))
            return found
        found, before, seconds = self._next
        if asked != before:
            raise ValueError(
                f"checkpoint={str(self._folder)!r} cannot be resumed here: L-BFGS asks for another point than before. "
                "Use the same machine, versions and number of threads, or another folder to start a new fit."
            )
        self._next = next(self._replay, None)
        (self._clock.go_on if self._next is None else self._clock.hold)(seconds)
        return found

    def write(self) -> None:
        """Write everything that has not been written yet."""
        began = time.perf_counter()
        if self._state is not None:
            self._write(f"{self._start}-steps", None, self._state)
            self._state = None
        if self._values:
            found, points, seconds = zip(*self._values, strict=True)
            arrays = {"numbers": np.concatenate(found), "lengths": np.array([len(f) for f in found])}
            arrays |= {"points": np.array(points, np.uint64), "seconds": np.array(seconds)}
            self._write(f"{self._start}-values-{self._num_values}", None, arrays | {"began": np.array(self._began)})
            self._num_values, self._values = self._num_values + len(found), []
        self._written = time.perf_counter()
        self._pause = max(SECONDS, (self._written - began) / SHARE)

    def _tick(self, steps: int) -> None:
        late = time.perf_counter() - self._written >= self._pause
        if late if self._every is None else steps - self._steps >= self._every:
            self.write()
            self._steps = steps
        self.look()

    def _records(self) -> Iterator[Record]:
        """The recorded values of the current start. One file is in memory at a time."""
        while (record := self._read(f"{self._start}-values-{self._num_values}")) is not None:
            arrays = record[1]
            self._began = float(arrays["began"])
            self._num_values += len(arrays["points"])
            found = np.split(arrays["numbers"], np.cumsum(arrays["lengths"])[:-1])
            yield from zip(found, map(int, arrays["points"]), map(float, arrays["seconds"]), strict=True)

    def _restored(self, like: list[Any], arrays: Arrays, name: str) -> list[Array]:
        """The recorded arrays of that name, with the dtypes and shapes of the arrays `like`."""
        stored = [arrays[f"{name}.{i}"] for i in range(sum(key.startswith(f"{name}.") for key in arrays))]
        if [_plain(a).nbytes for a in like] != [a.nbytes for a in stored]:
            raise ValueError(
                f"checkpoint={str(self._folder)!r} holds another fit: its optimiser has another state. Pass the same "
                "optimiser to resume it, or another folder to start a new fit."
            )
        return [_as(a, b) for a, b in zip(like, stored, strict=True)]

    def _write(self, name: str, text: Any, arrays: dict[str, Any]) -> None:
        if process()[0] != 0:  # all processes have the same numbers, and the first one writes them
            return
        one = {key: np.concatenate([*a, np.zeros(0)]) if isinstance(a, list) else a for key, a in arrays.items()}
        write(self._folder / f"{name}.safetensors", text, one)

    def _read(self, name: str) -> tuple[Any, Arrays] | None:
        path = self._folder / f"{name}.safetensors"
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"checkpoint: {error} Or start a new fit in another folder.") from error


def marks(given: Arguments) -> dict[str, str]:
    """What two calls of `fit` must have in common to be the same: values, hashes of arrays, and names of functions.

    Args:
        given: the arguments of `fit`.
    """
    found = {"the version of inducing": version("inducing")}
    for name, value in given._asdict().items():
        if name not in UNMARKED:
            leaves, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda v: v is None)
            found |= {name + jax.tree_util.keystr(path): _mark(leaf) for path, leaf in leaves}
            if len(leaves) != 1:
                found[f"the structure of {name}"] = _without_addresses(str(structure))
    return found


def _mark(value: Any) -> str:
    if eqx.is_array(value) or isinstance(value, np.ndarray):
        return f"#{_digest([value]).hex()}"
    if isinstance(value, functools.partial):
        bound = [*map(_mark, value.args), *(f"{name}={_mark(v)}" for name, v in value.keywords.items())]
        return f"{_mark(value.func)}({', '.join(bound)})"
    if callable(value):  # a function, which has a name, or an instance of a user's class
        return getattr(value, "__qualname__", _without_addresses(repr(value)))
    return str(value)


def _difference(name: str, before: str | None, now: str | None) -> str | None:
    if before == now:
        return None
    if before is None or now is None:
        return f"{name} is new" if before is None else f"{name} is gone"
    if before.startswith("#") or now.startswith("#"):
        return f"{name} is another"
    if max(len(before), len(now)) > LONG:  # show the part where they begin to differ
        first = next(
            (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
        before, now = (f"…{text[max(0, first - LONG // 2) :][:LONG]}…" for text in (before, now))
    return f"{name} was {before}, and is {now}"


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _digest(arrays: list[Any]) -> bytes:
    digest = hashlib.sha256()
    for array in map(_plain, arrays):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
    return digest.digest()


def _named(arrays: list[Any], name: str) -> Arrays:
    return {f"{name}.{i}": _plain(array) for i, array in enumerate(arrays)}


def _plain(array: Any) -> np.ndarray:
    """An array or random keys as a NumPy array of a dtype that files support."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(array))
    plain = np.asarray(array)
    return plain if plain.dtype.name in NATIVE else plain.reshape(-1).view(np.uint8)


def _as(like: Any, stored: np.ndarray) -> Array:
    """A stored array, converted to the dtype and shape of `like`."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(own_array(stored, np.uint32), impl=jax.random.key_impl(like))
    return own_array(stored.reshape(-1).view(like.dtype).reshape(like.shape), like.dtype)
