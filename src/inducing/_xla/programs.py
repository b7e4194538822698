"""Compiled programs of one function, of which the least recently used are dropped.

XLA compiles a program for each structure, shape and dtype of the arguments. JAX keeps them all for as long as the
function lives, several megabytes each, so that memory would grow with every new number of rows.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from inducing._xla.fork import refuse_after_fork

KINDS = 16  # kinds of arguments (structures of models, objectives, …) for which programs of one function are kept
SIZES = 4  # programs of each kind: shapes, dtypes and plain numbers, such as that of the data


class _Rest(eqx.Module):
    """What a function returns besides arrays."""

    leaves: Any = eqx.field(static=True)


class Programs:
    """A function that is compiled, with a limited number of programs in memory.

    As for `equinox.filter_jit`, arrays are traced, and everything else in the arguments is static. A program is a
    `jax.jit` of its own: when it is dropped, all that JAX keeps for it goes too.

    Args:
        fn: the function.
        **options: those of `jax.jit`.

    Examples:
        >>> import jax.numpy as jnp
        >>> double = Programs(lambda x: 2 * x)
        >>> [float(double(jnp.ones(n)).sum()) for n in (1, 2, 1)], len(double)
        ([2.0, 4.0, 2.0], 2)
    """

    def __init__(self, fn: Callable, **options: Any):
        functools.update_wrapper(self, fn)
        self._fn, self._options = fn, options
        self._programs: OrderedDict[Any, OrderedDict[Any, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program, arrays = self._find(args, kwargs)
        out, rest = program(arrays)
        return eqx.combine(out, rest.leaves)

    def __len__(self) -> int:
        return sum(map(len, self._programs.values()))

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Trace the function for these arguments, so that a call only has to compile and run it."""
        program, arrays = self._find(args, kwargs)
        return program.lower(arrays)

    def _find(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, list]:
        """The program for these arguments, and the arrays among them."""
        refuse_after_fork()
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays, rest, parts, size = [], [], [], []
        for leaf in leaves:
            if eqx.is_array(leaf):
                arrays.append(leaf)
                rest.append(None)  # no leaf is None
                size.append((leaf.shape, leaf.dtype))
            else:
                rest.append(leaf)
                (size if isinstance(leaf, int | float) else parts).append((type(leaf), leaf))
        kind, size = (structure, *parts), tuple(size)
        with self._lock:
            programs = _recent(self._programs, kind, OrderedDict, KINDS)
            return _recent(programs, size, lambda: self._new(structure, rest), SIZES), arrays

    def _new(self, structure: Any, rest: list) -> Any:
        fn = self._fn

        @functools.wraps(fn)
        def program(arrays: list) -> tuple[Any, _Rest]:
            left = iter(arrays)
            args, kwargs = jax.tree.unflatten(structure, [next(left) if r is None else r for r in rest])
            out, other = eqx.partition(fn(*args, **kwargs), eqx.is_array)
            return out, _Rest(other)

        return jax.jit(program, **self._options)


def _recent(held: OrderedDict[Any, Any], key: Any, new: Callable[[], Any], most: int) -> Any:
    """The entry of this key, a new one if there is none, which replaces the least recently used one."""
    found = held.get(key)
    if found is None:
        found = held[key] = new()
        if len(held) > most:
            held.popitem(last=False)
    else:
        held.move_to_end(key)
    return found
