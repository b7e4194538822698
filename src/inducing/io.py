"""Model files: the arrays of a model in a NumPy archive, by name. Also how functions in models are pickled."""

import copyreg
import dataclasses
import json
import os
import sys
import zipfile
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from inducing.layers.sparse_gp import SparseGP

FORMAT = "inducing-1"
M = TypeVar("M")


def save(path: str | os.PathLike, model: eqx.Module) -> None:
    """Write all arrays of a model, or of any part of one, to a file.

    The file is a NumPy archive without pickles. Arrays are named by their place in the model, such as
    `.layers[0].prior.kernel.lengthscale`, so `numpy.load` reads them too. The file does not hold the structure of the
    model, only the kinds of its parts. `load` takes the structure from a model that was built in the same way, and
    compares the kinds.

    Models can also be pickled if all functions in them have names. An `eqx.nn.MLP` then needs
    `final_activation=jax.nn.identity`, because Equinox's default is a lambda.

    Args:
        path: the file to write.
        model: an `ig.Model`, or any part of one.

    Raises:
        TypeError: if `model` is not an Equinox module, for example the result of `fit`.

    Examples:
        >>> import os, tempfile
        >>> import inducing as ig
        >>> kernel = ig.kernels.Matern52(lengthscale=2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ig.save(os.path.join(folder, "kernel.npz"), kernel)
        ...     again = ig.load(os.path.join(folder, "kernel.npz"), ig.kernels.Matern52())
        >>> float(again.lengthscale)
        2.0
    """
    if not isinstance(model, eqx.Module):
        raise TypeError(f"model must be an ig.Model or a part of one, got {type(model).__name__}; save result.model.")
    names, leaves, _ = _named(model)
    about = {"format": np.asarray(FORMAT), "structure": np.asarray(json.dumps(_kinds(model)))}
    arrays = about | {n: np.asarray(leaf) for n, leaf in zip(names, leaves, strict=True)}
    with open(path, "wb") as file:  # or else NumPy appends .npz to the name
        np.savez(file, **arrays)  # ty: ignore[invalid-argument-type]


def load(path: str | os.PathLike, like: M) -> M:
    """Read a model from a file that `save` wrote.

    Arrays keep the dtype of the file. Parameters that are tied in `like` are tied in the result.

    Args:
        path: the file to read.
        like: a model with the structure of the saved one: the same layers, kernels, features and likelihood, with
            arrays of the same shapes. Their values do not matter, and the root of q(u) may have any of its forms.

    Returns:
        The model `like` with the arrays of the file.

    Raises:
        TypeError: if `like` is not an Equinox module.
        ValueError: if the file is not one of `save`, holds a model of another structure, or is in float64 while JAX
            computes in float32.

    Examples:
        >>> import os, tempfile
        >>> import inducing as ig
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.npz")
        ...     ig.save(path, ig.means.Constant(3.0))
        ...     print(float(ig.load(path, ig.means.Constant(0.0)).value))
        3.0
    """
    if not isinstance(like, eqx.Module):
        raise TypeError(
            f"like must be a model, or a part of one, built as the saved one was, got {type(like).__name__}; of a fit, "
            "pass result.model."
        )
    found, kinds = _read(path)
    like = _with_roots(like, found)
    names, leaves, rebuild = _named(like)
    _check_names(path, names, leaves, found)
    for place, kind in _kinds(like).items():
        if (saved := kinds.get(place)) != kind:
            raise ValueError(
                f"{place or 'the whole'} is {saved} in {os.fspath(path)} and {kind} in `like`; build `like` as "
                "the saved model was built."
            )
    first: dict[int, str] = {}
    for name, leaf in zip(names, leaves, strict=True):
        other = first.setdefault(id(leaf), name)
        if not np.array_equal(found[name], found[other], equal_nan=True):
            raise ValueError(
                f"{name} and {other} are tied in `like` but differ in {os.fspath(path)}; build `like` as the saved "
                "model was built."
            )
    arrays = {name: jnp.asarray(found[name]) for name in first.values()}
    return rebuild([arrays[first[id(leaf)]] for leaf in leaves])


def _read(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays in a file by their names, and the kinds of the parts that hold them."""
    try:
        with open(path, "rb") as archive, np.lib.npyio.NpzFile(archive, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError, RuntimeError) as error:
        raise ValueError(f"{os.fspath(path)} is no file of ig.save: {error}") from error
    if (written := str(found.pop("format", "none"))) != FORMAT:
        raise ValueError(f"{os.fspath(path)} is no file of this version's ig.save: format {written}, not {FORMAT}.")
    return found, json.loads(str(found.pop("structure", "{}")))


def _check_names(path: str | os.PathLike, names: list[str], leaves: list, found: dict[str, np.ndarray]) -> None:
    """Raise a ValueError if the arrays of a file are not those of `like`, by name, shape and dtype."""
    if set(names) != set(found):
        lacks, extra = sorted(set(names) - set(found)), sorted(set(found) - set(names))
        raise ValueError(
            f"{os.fspath(path)} holds a model of another structure: "
            + "; ".join([f"it lacks {name}" for name in lacks[:3]] + [f"it has {name}" for name in extra[:3]])
            + ". Build `like` as the saved model was built."
        )
    for name, leaf in zip(names, leaves, strict=True):
        if found[name].shape != leaf.shape:
            raise ValueError(
                f"{name} has shape {list(found[name].shape)} in {os.fspath(path)} and {list(leaf.shape)} in `like`; "
                "build `like` with as many features and dimensions as the saved model."
            )
    if jnp.result_type(float) != jnp.float64 and any(array.dtype == np.float64 for array in found.values()):
        raise ValueError(
            f"{os.fspath(path)} holds a model in float64, but JAX computes in float32; call "
            'jax.config.update("jax_enable_x64", True) at the start.'
        )


def _with_roots(model: M, found: dict[str, np.ndarray]) -> M:
    """The model with roots of q(u) in the forms of the file: full, diagonal, or coupled, as `collapse` makes them."""

    # The class matters here: only a SparseGP may hold its root in several forms, and this looks for it at any depth.
    def one(path, node):
        if not isinstance(node, SparseGP) or isinstance(node.root, tuple):
            return node
        L, size = node.prior.num_latents, node.num_features
        shape = found.get(jax.tree_util.keystr(path) + ".root", np.empty(0)).shape
        if shape == node.root.shape or shape not in {(L, size, size), (L, 1, size), (L * size, L * size)}:
            return node
        return eqx.tree_at(lambda layer: layer.root, node, jnp.zeros(shape, node.root.dtype))

    return jax.tree_util.tree_map_with_path(one, model, is_leaf=lambda node: isinstance(node, SparseGP))


def _kinds(node: Any, place: str = "") -> dict[str, str]:
    """The class of each part of a model by its place, with its settings that are numbers or words; functions' names."""
    if isinstance(node, tuple | list):
        return {k: v for i, part in enumerate(node) for k, v in _kinds(part, f"{place}[{i}]").items()}
    if not isinstance(node, eqx.Module):
        return {place: name} if callable(node) and (name := getattr(node, "__name__", None)) else {}
    values = {field.name: (getattr(node, field.name), field.metadata) for field in dataclasses.fields(node)}
    settings = [f"{n}={v!r}" for n, (v, _) in values.items() if v is not None and _is_plain(v)]
    kinds = {place: f"{type(node).__name__}({', '.join(settings)})"}
    for name, (value, _) in values.items():
        kinds |= _kinds(value, f"{place}.{name}")
    return kinds


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _named(model):
    """Names and values of all arrays, and a function that puts others in their place."""
    arrays, rest = eqx.partition(model, eqx.is_array)
    pairs, treedef = jax.tree_util.tree_flatten_with_path(arrays)
    names = [jax.tree_util.keystr(path) for path, _ in pairs]
    return names, [leaf for _, leaf in pairs], lambda new: eqx.combine(jax.tree.unflatten(treedef, new), rest)


def _by_name(function: Any) -> Any:
    """How a function that JAX has wrapped is pickled and copied: by its name in its module, as Python's own are."""
    name = getattr(function, "__name__", "")
    known = getattr(sys.modules.get(function.__module__), name, None) is function
    return name if known else function.__reduce_ex__(4)


for _kind in (type(jax.numpy.exp), jax.custom_jvp, jax.custom_vjp):  # links, warps and activations, such as jax.nn.relu
    copyreg.pickle(_kind, _by_name)
