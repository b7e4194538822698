"""A model as JSON and named arrays, and back: nothing in a file is imported or executed.

Every value is a list that begins with its kind, so that tuples and lists, integers and floats, NaN and None survive:

    ["part", tag, {field: value}]      a module, by its fields
    ["object", tag, value]             an object that is not a module, as its `to_state` describes it
    ["function", tag]                  a function of a fixed list, or a user's named one
    ["partial", function, args, {…}]   a function with bound arguments
    ["array", name, dtype]             a JAX array; ["numpy", name, dtype]: of NumPy; ["scalar", name, dtype]: a number
                                       of NumPy; ["key", name, impl]: random keys
    ["tuple", …], ["list", …], ["dict", {…}], ["items", [key, value], …],
    ["none"], ["bool", b], ["int", "3"], ["float", hex], ["str", s]
    ["dtype", name]

An array that occurs in several places of a model is one entry, so that the places stay tied.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import jaxtyped

from inducing.io.container import NATIVE
from inducing.io.registry import is_named, tag_of, users_tag
from inducing.parameters import Module

DEEPEST = 100  # nested values; models have about ten


@runtime_checkable
class Stored(Protocol):
    """An object that `ig.save` can write although it is not a module, such as an estimator. Its class defines how.

    Only the caller of `ig.load` can name the class, in `parts`, so that a file makes no object of its own choice.
    """

    def to_state(self) -> dict[str, Any]:
        """What to write: a dictionary of plain values, arrays and modules."""
        ...

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        """The object again, or a ValueError: a file may hold anything."""
        ...


class Writer:
    """Collects the arrays of a model while it is described.

    Examples:
        >>> import inducing as ig
        >>> writer = Writer()
        >>> writer.describe(ig.means.Constant(3.0), "")
        ['part', 'means.Constant', {'value': ['array', 'value', 'float64']}]
        >>> list(writer.arrays)
        ['value']
    """

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, tuple[str, Any]] = {}  # with the array itself, so that no other one gets its id

    def describe(self, value: Any, place: str) -> list:
        """The value as JSON.

        Args:
            value: a module, array, function or plain value.
            place: where it is in the model, for names and errors.

        Returns:
            A list that begins with its kind.

        Raises:
            TypeError: the value cannot be saved.
        """
        for recognises, write in _WRITERS:
            if recognises(value):
                return write(self, value, place)
        raise TypeError(f"{place or 'this'} is a {type(value).__name__}, which ig.save cannot write.")

    def store(self, kind: str, array: np.ndarray, original: Any, place: str, detail: str) -> list:
        """Add an array once, under the name of the first place where it occurs."""
        if id(original) not in self._names:
            name = place or "array"
            while name in self.arrays:  # two places may have the same name, such as the key "a.b" and "b" in "a"
                name += "'"
            self._names[id(original)] = name, original
            self.arrays[name] = array
        return [kind, self._names[id(original)][0], detail]


def _write_module(writer: Writer, module: Any, place: str) -> list:
    tag = tag_of(type(module)) or users_tag(type(module))
    fields = {}
    for field in dataclasses.fields(module):
        if hasattr(module, field.name):  # fields may be left unset
            fields[field.name] = writer.describe(getattr(module, field.name), f"{place}.{field.name}".lstrip("."))
    return ["part", tag, fields]


def _write_object(writer: Writer, value: Stored, place: str) -> list:
    return ["object", users_tag(type(value)), writer.describe(value.to_state(), place)]


def _write_function(writer: Writer, function: Callable, place: str) -> list:
    tag = tag_of(function)
    if tag is None and not is_named(function):
        raise TypeError(
            f"{place} is a lambda or a function that captures variables, which a file cannot hold; define a function "
            "at the top level of a module, or a class of ig.Module, and pass it as ig.load(path, parts=[...])."
        )
    return ["function", tag or users_tag(function)]


def _write_partial(writer: Writer, bound: Any, place: str) -> list:
    kind = "Partial" if isinstance(bound, jax.tree_util.Partial) else "partial"
    wrapped = getattr(bound.func, "fun", None)  # JAX wraps a partial inside a Partial
    function = wrapped if isinstance(wrapped, functools.partial) else bound.func
    names = {name: writer.describe(v, f"{place}.{name}") for name, v in bound.keywords.items()}
    arguments = [writer.describe(v, f"{place}.{i}") for i, v in enumerate(bound.args)]
    return [kind, writer.describe(function, place), arguments, names]


def _write_array(writer: Writer, array: Any, place: str) -> list:
    if isinstance(array, jax.core.Tracer):
        raise TypeError(f"{place or 'this'} is traced: save a model outside of jit, grad and vmap.")
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return writer.store(
            "key", np.asarray(jax.random.key_data(array)), array, place, str(jax.random.key_impl(array))
        )
    values = np.asarray(array)
    if values.dtype.kind in "OUSVMmc" and values.dtype.name not in _EXTENDED:
        raise TypeError(f"{place or 'this'} is an array of dtype {values.dtype}, which ig.save cannot write.")
    stored = values.view(_stored_dtype(values.dtype))
    kind = "array" if isinstance(array, jax.Array) else "numpy"
    return writer.store(kind, stored, array, place, values.dtype.name)


def _stored_dtype(dtype: np.dtype) -> np.dtype:
    """NumPy's own dtypes are stored as they are, bfloat16 and its like as integers of their size."""
    return dtype if dtype.name in NATIVE else np.dtype(f"u{dtype.itemsize}")


def _items(values: Any, place: str) -> list[tuple[Any, str]]:
    return [(v, f"{place}.{i}".lstrip(".")) for i, v in enumerate(values)]


_EXTENDED = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
_FUNCTIONS = (type(jnp.exp), jax.custom_jvp, jax.custom_vjp)
_WRITERS: list[tuple[Callable[[Any], bool], Callable[[Writer, Any, str], list]]] = [
    (lambda v: v is None, lambda w, v, p: ["none"]),
    (lambda v: isinstance(v, bool), lambda w, v, p: ["bool", v]),
    (lambda v: isinstance(v, np.dtype), lambda w, v, p: ["dtype", v.name]),
    (lambda v: isinstance(v, jax.Array | np.ndarray), _write_array),
    (
        lambda v: isinstance(v, np.generic) and not isinstance(v, str),
        lambda w, v, p: ["scalar", *_write_array(w, np.asarray(v), p)[1:]],
    ),
    (lambda v: isinstance(v, int), lambda w, v, p: ["int", str(v)]),
    (lambda v: isinstance(v, float), lambda w, v, p: ["float", v.hex()]),
    (lambda v: isinstance(v, str), lambda w, v, p: ["str", v]),
    (lambda v: type(v) is tuple, lambda w, v, p: ["tuple", *(w.describe(*item) for item in _items(v, p))]),
    (lambda v: type(v) is list, lambda w, v, p: ["list", *(w.describe(*item) for item in _items(v, p))]),
    (
        lambda v: type(v) is dict and all(isinstance(k, str) for k in v),
        lambda w, v, p: ["dict", {k: w.describe(item, f"{p}.{k}") for k, item in v.items()}],
    ),
    (
        lambda v: type(v) is dict,
        lambda w, v, p: ["items", *([w.describe(k, p), w.describe(item, f"{p}.{k}")] for k, item in v.items())],
    ),
    (lambda v: isinstance(v, functools.partial), _write_partial),
    (lambda v: isinstance(v, eqx.Module), _write_module),
    (lambda v: isinstance(v, Stored) and not isinstance(v, type), _write_object),
    (lambda v: callable(v) and (isinstance(v, _FUNCTIONS) or not isinstance(v, type)), _write_function),
]


class Reader:
    """Builds a model from its description and arrays.

    Args:
        arrays: the arrays by name.
        parts: the classes and functions that the file may name, by tag.
    """

    def __init__(self, arrays: dict[str, np.ndarray], parts: dict[str, Any]):
        self.arrays, self.parts = arrays, parts
        self._made: dict[tuple, Any] = {}
        self.used: set[str] = set()

    def build(self, value: Any, place: str, depth: int = 0) -> Any:
        """The value that a description stands for.

        Args:
            value: a list that begins with a kind.
            place: where it is in the model, for errors.
            depth: how deeply it is nested.

        Returns:
            The value.

        Raises:
            ValueError: the description is not valid.
        """
        where = place or "the model"
        if depth > DEEPEST:
            raise ValueError(f"{where} is nested more than {DEEPEST} deep")
        if not isinstance(value, list) or not value or not isinstance(value[0], str) or value[0] not in _READERS:
            raise ValueError(f"{where} is of an unknown kind, {str(value)[:40]}")
        kind, *rest = value
        entries, read = _READERS[kind]
        if entries not in (None, len(rest)):
            raise ValueError(f"{where} is not a valid {kind}: it has {len(rest)} entries instead of {entries}")
        try:
            return read(self, rest, where, depth + 1)
        except (TypeError, IndexError, AttributeError, KeyError, OverflowError) as error:
            raise ValueError(f"{where} is not a valid {kind}: {error}") from error

    def part(self, tag: Any, where: str) -> Any:
        """The class or function of a tag."""
        if tag in self.parts:
            return self.parts[tag]
        if isinstance(tag, str) and tag.startswith("user:"):
            name = tag.removeprefix("user:")
            raise ValueError(f"{where} is a {name}, which is not part of inducing; pass ig.load(path, parts=[{name}])")
        raise ValueError(f"{where} is of the unknown kind {tag!r}")

    def array(self, name: Any, dtype: str, where: str, as_jax: bool) -> Any:
        """An array, the same object for every place that names it."""
        key = (name, dtype, as_jax)
        if key not in self._made:
            if name not in self.arrays:
                raise ValueError(f"{where} has no array in the file")
            stored = self.arrays[name]
            values = stored.view(_dtype(dtype, where))
            if stored.dtype != _stored_dtype(values.dtype):
                raise ValueError(f"{where} is declared as {dtype}, but its array is in {stored.dtype}")
            self._made[key] = _on_device(values, where) if as_jax else values
            self.used.add(name)
        return self._made[key]


def _dtype(name: Any, where: str) -> np.dtype:
    if name not in NATIVE | _EXTENDED:
        raise ValueError(f"{where} has the unknown dtype {name!r}")
    return jnp.dtype(name)


def _on_device(values: np.ndarray, where: str) -> jax.Array:
    if jax.dtypes.canonicalize_dtype(values.dtype) != values.dtype:
        raise ValueError(
            f"{where} is in {values.dtype}, but JAX computes in 32 bits; call "
            'jax.config.update("jax_enable_x64", True) at the start'
        )
    return jnp.asarray(values, values.dtype)


def _read_key(reader: Reader, rest: list, where: str) -> Any:
    name, impl = rest
    if impl not in ("fry", "rbg", "urbg", "threefry2x32", "unsafe_rbg"):
        raise ValueError(f"{where} has random keys of the unknown kind {impl!r}")
    data = reader.array(name, "uint32", where, as_jax=True)
    return reader._made.setdefault((name, impl), jax.random.wrap_key_data(data, impl=impl))


def _read_scalar(reader: Reader, rest: list, where: str) -> np.generic:
    value = reader.array(*rest, where, as_jax=False)
    if value.ndim:
        raise ValueError(f"{where} is not one number, it has shape {list(value.shape)}")
    return value[()]


def _read_module(reader: Reader, rest: list, where: str, depth: int) -> Any:
    tag, fields = rest
    cls = reader.part(tag, where)
    if not isinstance(cls, type) or not issubclass(cls, eqx.Module):
        raise ValueError(f"{where} names {tag!r}, which is not a class of modules")
    declared = {field.name: field for field in dataclasses.fields(cls)}
    unknown, missing = set(fields) - set(declared), set(declared) - set(fields)
    missing -= {name for name in missing if _has_default(declared[name])}
    if unknown or (missing and issubclass(cls, Module)):
        raise ValueError(f"{where}, a {cls.__name__}, has other fields than its class: {sorted(unknown | missing)}")
    module = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(module, name, reader.build(value, f"{where}.{name}", depth))
    _check(module, where)
    return module


def _read_object(reader: Reader, rest: list, where: str, depth: int) -> Any:
    tag, state = rest
    name = str(tag).removeprefix("user:")
    if tag not in reader.parts:
        raise ValueError(f"it holds a {name}; load it by {name}.load, or pass ig.load(path, parts=[{name}])")
    cls = reader.parts[tag]
    if not isinstance(cls, type) or not isinstance(cls, Stored):
        raise ValueError(f"{where} names {tag!r}, which is no class of objects that can be stored")
    with jax.enable_x64(True):  # every array has its own dtype, whatever the flag says
        return cls.from_state(reader.build(state, where, depth))


def _read_items(reader: Reader, rest: list, where: str, depth: int) -> dict:
    return {reader.build(k, where, depth): reader.build(v, where, depth) for k, v in rest}


def _has_default(field: dataclasses.Field) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _check(module: Any, where: str) -> None:
    """What the constructor checks: shapes and dtypes as declared, then `__check_init__` of each class."""
    if isinstance(module, Module):
        with jaxtyped("context"):  # letters in the declared shapes stand for the same numbers in all fields of a part
            for field in dataclasses.fields(module):
                value: Any = getattr(module, field.name, None)
                declared = cast(Any, field.type)
                if eqx.is_array(value) and hasattr(declared, "dims") and not isinstance(value, declared):
                    raise ValueError(
                        f"{where}.{field.name} has shape {list(value.shape)}, which does not fit its class"
                    )
    for cls in type(module).__mro__:
        if "__check_init__" in vars(cls):
            vars(cls)["__check_init__"](module)


def _read_partial(kind: Callable) -> Callable:
    def read(reader: Reader, rest: list, where: str, depth: int) -> Any:
        function, arguments, names = rest
        built = [reader.build(v, where, depth) for v in arguments]
        return kind(
            reader.build(function, where, depth), *built, **{k: reader.build(v, where, depth) for k, v in names.items()}
        )

    return read


def _read_function(reader: Reader, rest: list, where: str) -> Any:
    part = reader.part(rest[0], where)
    if isinstance(part, type) or not callable(part):
        raise ValueError(f"{where} names {rest[0]!r}, which is not a function")
    return part


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {str(value)[:40]}")
    return value


def _read_number(kind: Callable, write: Callable) -> Callable:
    """A number from its text. Only the text that `save` writes is accepted."""

    def read(reader: Reader, rest: list, where: str, depth: int) -> Any:
        text = _exactly(str, rest[0])[:400]
        value = kind(text)
        if write(value) != rest[0]:
            raise ValueError(f"{where} is not a number, {text[:40]!r}")
        return value

    return read


# How many entries follow the kind (None: any number), and how they are read.
_READERS: dict[str, tuple[int | None, Callable[[Reader, list, str, int], Any]]] = {
    "none": (0, lambda r, v, w, d: None),
    "bool": (1, lambda r, v, w, d: _exactly(bool, v[0])),
    "int": (1, _read_number(int, str)),
    "float": (1, _read_number(float.fromhex, float.hex)),
    "str": (1, lambda r, v, w, d: _exactly(str, v[0])),
    "dtype": (1, lambda r, v, w, d: _dtype(v[0], w)),
    "tuple": (None, lambda r, v, w, d: tuple(r.build(item, f"{w}[{i}]", d) for i, item in enumerate(v))),
    "list": (None, lambda r, v, w, d: [r.build(item, f"{w}[{i}]", d) for i, item in enumerate(v)]),
    "dict": (1, lambda r, v, w, d: {k: r.build(item, f"{w}.{k}", d) for k, item in v[0].items()}),
    "items": (None, lambda r, v, w, d: _read_items(r, v, w, d)),
    "object": (2, lambda r, v, w, d: _read_object(r, v, w, d)),
    "array": (2, lambda r, v, w, d: r.array(v[0], v[1], w, as_jax=True)),
    "numpy": (2, lambda r, v, w, d: r.array(v[0], v[1], w, as_jax=False)),
    "scalar": (2, lambda r, v, w, d: _read_scalar(r, v, w)),
    "key": (2, lambda r, v, w, d: _read_key(r, v, w)),
    "function": (1, lambda r, v, w, d: _read_function(r, v, w)),
    "partial": (3, _read_partial(functools.partial)),
    "Partial": (3, _read_partial(jax.tree_util.Partial)),
    "part": (2, _read_module),
}
