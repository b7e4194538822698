"""Sums over all rows of a stream in one pass, and the collapsed bound computed from them.

Each device sums over its chunks of rows. At the end of the pass, one all-reduce adds these sums. Memory does not depend
on the number of rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import (
    compiled,
    copied,
    limited_threads,
    local,
    num_devices,
    on_each_device,
    process,
    spread,
    sum_over_devices,
)
from inducing.bounds.conjugate import Conjugate
from inducing.bounds.optimal import bound_of_sums, model_of_sums
from inducing.bounds.rounding import or_nan
from inducing.bounds.sums import Statistics, whitened_first
from inducing.bounds.terms import counts
from inducing.checks import checked_data
from inducing.data import Data
from inducing.parameters import dtype_of
from inducing.streams import Stream
from inducing.streams.agreement import Agreement
from inducing.streams.stream import arrays_of

CHUNK = 2**16  # the largest number of rows that a device processes at a time


class Counted(NamedTuple):
    """The sums that the collapsed bound needs, and the number of labels."""

    stats: Statistics
    labels: Float[Array, ""]


class Pass:
    """Passes over a stream.

    Args:
        stream: the stream.
        sample: its sample, checked against the model.
        agreement: decides when all processes stop.
    """

    def __init__(self, stream: Stream, sample: Data, agreement: Agreement | None = None):
        self.stream, self.sample, self._structure = stream, sample, jax.tree.structure(sample)
        self._agreement = Agreement(lambda: None, lambda: False) if agreement is None else agreement
        self._devices = num_devices() // process()[1]  # of this process
        self._shapes: dict[Callable, Any] = {}
        self._size = min(CHUNK, -(-len(stream) // num_devices())) * self._devices

    def sum(self, fn: Callable, *same: Any) -> Any:
        """Σ fn(*same, rows) over the chunks of rows; all processes get the same result.

        Args:
            fn: a function at the top level of a module, which returns arrays.
            *same: its first arguments, whose structure and shapes must be the same in every call.
        """
        dtype = dtype_of(self.sample)
        with limited_threads():
            chunk = jax.tree.map(lambda a: jax.ShapeDtypeStruct((self._size, *a.shape[1:]), a.dtype), self.sample)
            total, same = self._zeros(fn, same, chunk), copied(same)
            chunks = self.stream.chunks(self._size, *process(), lambda rows: arrays_of(rows, dtype))
            for rows in self._readable(chunks, chunk):
                self._agreement.look()
                total = jax.block_until_ready(compiled(_add)(fn, same, total, rows))
            signals = spread([self._agreement.own(dtype)])
            total, said = jax.block_until_ready(compiled(_reduced)(total, *signals))
        self._agreement.hears(said)
        return local(total)

    def _zeros(self, fn: Callable, same: tuple, chunk: Data) -> Any:
        """Sums of zero rows, for each device."""
        if fn not in self._shapes:  # tracing the function takes time
            self._shapes[fn] = jax.eval_shape(lambda rows: fn(*same, rows), chunk)
        leaves, structure = jax.tree.flatten(self._shapes[fn])
        return structure.unflatten(spread([np.zeros((self._devices, *s.shape), s.dtype) for s in leaves]))

    def _readable(self, chunks: Any, chunk: Data) -> Any:
        """The chunks on the devices. After an error, they are zeros until the end of the pass."""
        left = -(-len(self.stream) // (self._size * process()[1]))
        try:
            for arrays in chunks:
                yield jax.tree.unflatten(self._structure, spread(arrays))
                left -= 1
        except Exception as error:
            self._agreement.failed(error)
            for _ in range(left):
                yield jax.tree.unflatten(
                    self._structure, spread([np.zeros(a.shape, a.dtype) for a in jax.tree.leaves(chunk)])
                )
        finally:
            chunks.close()


def _add(fn: Callable, same: tuple, total: Any, rows: Data) -> Any:
    """Add the sums over the next rows of each device."""

    def one(same: tuple, total: Any, rows: Data) -> Any:
        return jax.tree.map(lambda t, s: t + s[None], total, fn(*same, rows))

    return on_each_device(one, (same,), (total, rows), summed=False)


def _reduced(total: Any, signals: Array) -> Any:
    """Add the sums of all devices."""

    def one(total: Any, signals: Array) -> Any:
        return sum_over_devices((jax.tree.map(lambda t: t[0], total), signals[0]))

    return on_each_device(one, (), (total, signals))


def sums_of_rows(model: Any, rows: Data) -> Counted:
    """The sums over some rows. Whitening comes first, so that rounding errors grow only with √cond(Kuu)."""
    conjugate = Conjugate(model)
    return Counted(whitened_first(conjugate, rows, conjugate.layer.Kuu()), jnp.sum(counts(rows)))


def judged(model: Any, counted: Counted) -> Statistics:
    """The sums, with a NaN if rounding errors would falsify the bound."""
    return or_nan(counted.stats, Conjugate(model).layer.Kuu(), counted.labels)


def _bound(model: Any, counted: Counted) -> Float[Array, ""]:
    return bound_of_sums(judged(model, counted))


def pass_over(model: Any, stream: Stream) -> Pass:
    """Passes over a stream whose sample fits the model."""
    return Pass(stream, checked_data(model, stream.sample()))


def collapsed_bound_of_stream(model: Any, stream: Stream) -> Float[Array, ""]:
    """`ig.collapsed_elbo` by one pass over a stream.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> difference = ig.collapsed_elbo(model, ig.Stream(data)) - ig.collapsed_elbo(model, data)
        >>> bool(abs(difference) < 1e-9)
        True
    """
    return compiled(_bound)(model, pass_over(model, stream).sum(sums_of_rows, model))


def collapsed_on_stream(model: Any, stream: Stream) -> Any:
    """`ig.collapse` by one pass over a stream."""
    return compiled(model_of_counted)(model, pass_over(model, stream).sum(sums_of_rows, model))


def model_of_counted(model: Any, counted: Counted) -> Any:
    """The model with the optimal q(u)."""
    return model_of_sums(model, counted.stats)
