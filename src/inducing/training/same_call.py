"""A check that all processes that train together make the same call of `fit`."""

import hashlib
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import compiled, local, num_devices, on_each_device, process, spread, sum_over_devices
from inducing.training.arguments import Arguments
from inducing.training.checkpoint import marks

OWN = ("model", "data", "stream", "callback")  # have their own hashes, except for callbacks, which may differ
DIGITS = np.uint32(0xFFFFF000)  # the leading bits of a float32, because processors may round differently
CURES = {
    "rows": "let all of them read the same files, and start when these are complete",
    "models": "give random numbers the same seed on all of them",
    "arguments": "pass the same ones on all of them",
    "checkpoint folders": "use a folder that all of them can read",
}


def check_same_call(given: Arguments) -> None:
    """Compare the calls of all processes that train on a stream.

    One all-reduce adds the hashes of all processes, so that every process sees whether they differ.

    Args:
        given: the checked arguments of `fit`.

    Raises:
        ValueError: on all processes, if rows, models, arguments or files of the checkpoint differ.
    """
    if given.stream is None or process()[1] == 1:
        return

    own = np.array([_number(found) for found in _what_must_agree(given)], np.float32)
    sums = compiled(_summed)(*spread([np.tile(own, (num_devices() // process()[1], 1))]))
    for what, differs in zip(CURES, np.asarray(local(sums)) != num_devices() * own, strict=True):
        if differs:
            raise ValueError(f"the processes of this fit have different {what}; {CURES[what]}.")


def _what_must_agree(given: Arguments) -> list[bytes]:
    """What must be equal on all processes, in the order of `CURES`."""
    assert given.stream is not None
    rows = [given.stream.layout(), *map(np.asarray, jax.tree.leaves(given.data))]
    arrays = jax.tree.leaves(eqx.filter(given.model, eqx.is_inexact_array))
    rest = {name: mark for name, mark in marks(given).items() if not name.startswith(OWN)}
    return [
        b"".join(np.ascontiguousarray(a).tobytes() for a in rows),
        b"".join(map(_leading, arrays)) + repr([a.shape for a in arrays]).encode(),
        repr(rest).encode(),
        repr(_files(given)).encode(),
    ]


def _leading(array: Array) -> bytes:
    return (np.asarray(array, np.float32).view(np.uint32) & DIGITS).tobytes()


def _files(given: Arguments) -> list[str]:
    return [] if given.checkpoint is None else sorted(p.name for p in Path(given.checkpoint).glob("[!.]*.safetensors"))


def _number(found: bytes) -> int:
    """A hash of 16 bits. A float32 holds the sum over up to 256 devices exactly."""
    return int.from_bytes(hashlib.sha256(found).digest()[:2])


def _summed(own: Float[Array, "devices k"]) -> Float[Array, " k"]:
    return on_each_device(lambda own: sum_over_devices(own[0]), (), (own,))
