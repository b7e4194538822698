"""Model files: one safetensors file that needs no second model to load, and executes nothing."""

import copyreg
import os
import sys
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax

from inducing.io.container import read, write
from inducing.parameters import as_path, check


def save(path: str | os.PathLike, model: Any, *, notes: Any = None) -> None:
    """Write a model, or any part of one, to a file.

    The file is in the safetensors format. It holds the arrays by their place in the model, the structure as JSON in the
    metadata, and a checksum. Parts are named by tags, such as "kernels.Matern52". Functions may be those of a fixed
    list, such as `jnp.tanh` and `jax.nn.relu`. Your own classes and named functions are stored by name; pass them to
    `ig.load`. Tied arrays stay tied.

    Writing is atomic and durable: after a crash, on a full disk, or with two writers at once, the path holds either the
    old file or a complete new one.

    Args:
        path: the file; an existing one is replaced.
        model: an `ig.Model`, or any kernel, mean, features, prior, likelihood or layer; or an estimator of
            `inducing.sklearn`, which `GPRegressor.load` reads.
        notes: any JSON value to store with the model; `inducing.io.load_notes` reads it.

    Raises:
        TypeError: `path` is not a path, or the model holds something that a file cannot hold: a lambda, a function that
            captures variables, or an object of an unknown kind. The message names the place.
        OSError: the file cannot be written.

    Examples:
        >>> import os, tempfile
        >>> import inducing as ig
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "kernel.ig")
        ...     ig.save(path, ig.kernels.Matern52(lengthscale=2.0))
        ...     print(float(ig.load(path).lengthscale))
        2.0
    """
    from inducing.io.structure import Stored, Writer

    if not isinstance(model, eqx.Module | Stored) or isinstance(model, type):
        raise TypeError(f"model must be an ig.Model or a part of one, got {type(model).__name__}; save result.model.")
    writer = Writer()
    structure: Any = writer.describe(model, "")
    write(as_path(path), structure if notes is None else {"model": structure, "notes": notes}, writer.arrays)


def load(path: str | os.PathLike, parts: Iterable[Any] = ()) -> Any:
    """Read a model, or a part of one, from a file that `ig.save` wrote.

    The result is what was saved, bit for bit: arrays with their dtypes, ties, static settings and structure. Nothing in
    the file is executed or imported. Every part is rebuilt from its fields and then passes the checks of its
    constructor: declared shapes, allowed values and `__check_init__`.

    Args:
        path: the file.
        parts: your own classes and named functions that the model uses.

    Returns:
        The model or part.

    Raises:
        ValueError: the file is damaged, was not written by `ig.save`, holds values that its parts do not allow, or
            names a class or function that is not in `parts`. The message names the file and what is wrong.
        OSError: there is no such file, or it cannot be read.

    Examples:
        >>> import os, tempfile
        >>> import jax.numpy as jnp, inducing as ig
        >>> def wave(x):
        ...     return jnp.sin(x)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "layer.ig")
        ...     ig.save(path, ig.Deterministic(wave))
        ...     layer = ig.load(path, parts=[wave])
        >>> layer.width(3)
        3
    """
    from inducing.io.registry import with_users
    from inducing.io.structure import Reader, Stored

    path, known = as_path(path), with_users(parts)
    structure, arrays = read(path)
    reader = Reader(arrays, known)
    try:
        model = reader.build(_split(structure)[0], "")
        if not isinstance(model, eqx.Module | Stored):
            raise ValueError(f"it holds a {type(model).__name__}, not a model")
        if reader.used != set(arrays):
            raise ValueError(f"it holds arrays that no part uses: {sorted(set(arrays) - reader.used)[:3]}")
        if isinstance(model, eqx.Module):
            check(model)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {str(error).rstrip('.')}.") from error
    return model


def load_notes(path: str | os.PathLike) -> Any:
    """Read the notes that `ig.save` stored with a model.

    Args:
        path: the file.

    Returns:
        The argument `notes` of `ig.save`; None if there was none.

    Raises:
        ValueError: the file is damaged, or was not written by `ig.save`.
        OSError: there is no such file, or it cannot be read.

    Examples:
        >>> import os, tempfile
        >>> import inducing as ig
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "kernel.ig")
        ...     ig.save(path, ig.kernels.Matern52(), notes={"unit": "metres"})
        ...     load_notes(path)
        {'unit': 'metres'}
    """
    return _split(read(as_path(path))[0])[1]


def _split(structure: Any) -> tuple[Any, Any]:
    """The structure of the model and the notes beside it; the structure of a model is a list."""
    if isinstance(structure, dict) and set(structure) == {"model", "notes"}:
        return structure["model"], structure["notes"]
    return structure, None


def _by_name(function: Any) -> Any:
    """How a function that JAX has wrapped is pickled and copied: by its name in its module, as Python's own are."""
    name = getattr(function, "__name__", "")
    known = getattr(sys.modules.get(function.__module__), name, None) is function
    return name if known else function.__reduce_ex__(4)


for _kind in (type(jax.numpy.exp), jax.custom_jvp, jax.custom_vjp):  # links, warps and activations, such as jax.nn.relu
    copyreg.pickle(_kind, _by_name)
