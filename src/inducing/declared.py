"""What a field of a part may hold, read from its annotation: a kernel, whole numbers, a function, an array, ….

Parts are checked against these when they are built and when they are read from a file.
"""

import collections.abc
import inspect
import numbers
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin

import jax
import numpy as np
from jaxtyping import AbstractArray


def is_whole(value: Any, least: int | None = None) -> bool:
    """Whether a value is a whole number of Python or NumPy, and no bool.

    Args:
        value: any value.
        least: the smallest number allowed.

    Returns:
        Whether it is a whole number, and at least `least`.

    Examples:
        >>> is_whole(np.int64(3)), is_whole(True), is_whole(2.0), is_whole(0, least=1)
        (True, False, False, False)
    """
    # Python's Integral, which includes NumPy's scalars; not the features of that name
    return (
        isinstance(value, numbers.Integral) and not isinstance(value, bool) and (least is None or bool(value >= least))
    )


# How to recognise Python's own kinds of values; `numbers.Real` includes NumPy's scalars.
_PLAIN: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (is_whole, "a whole number"),
    float: (lambda v: isinstance(v, numbers.Real) and not isinstance(v, bool), "a number"),
    bool: (lambda v: isinstance(v, bool | np.bool_), "True or False"),
    str: (lambda v: isinstance(v, str), "text"),
    type(None): (lambda v: v is None, "None"),
    None: (lambda v: v is None, "None"),
    collections.abc.Callable: (lambda v: callable(v) and not isinstance(v, type), "a function"),
}


def is_array_type(declared: Any) -> bool:
    """Whether an annotation stands for an array, such as `Float[Array, "N D"]` or `jax.Array`.

    Args:
        declared: the annotation.

    Returns:
        Whether it is that of an array.

    Examples:
        >>> is_array_type(jax.Array), is_array_type(int)
        (True, False)
    """
    return isinstance(declared, type) and issubclass(declared, AbstractArray | jax.Array | np.ndarray)


def fits(value: Any, declared: Any) -> bool:
    """Whether a value is of the kind that an annotation declares. Shapes and values are not checked.

    Args:
        value: the value of a field.
        declared: its annotation.

    Returns:
        Whether it fits. Traced values fit everywhere, and annotations that are not understood allow everything.

    Examples:
        >>> fits((1, 2), tuple[int, ...]), fits((1, "a"), tuple[int, ...]), fits(None, int | None)
        (True, False, True)
    """
    origin, parts = get_origin(declared), get_args(declared)
    if isinstance(value, jax.core.Tracer) or declared is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(value is part or (type(value) is type(part) and value == part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and _fit_each(value, parts)
    if origin is collections.abc.Callable:
        return _is_function_of(value, parts[0] if parts else ...)
    return _is_of_kind(value, origin or declared)


def _is_of_kind(value: Any, kind: Any) -> bool:
    if kind in _PLAIN:
        return _PLAIN[kind][0](value)
    if is_array_type(kind):
        return isinstance(value, jax.Array | np.ndarray)
    return not isinstance(kind, type) or isinstance(value, kind)


def _is_function_of(value: Any, arguments: Any) -> bool:
    """Whether a value can be called with this number of arguments. Classes do not count as functions."""
    if not callable(value) or isinstance(value, type):
        return False
    try:
        inspect.signature(value).bind(*(() if arguments is ... else arguments))
    except TypeError:
        return arguments is ...
    except ValueError:  # many functions written in C have no signature
        return True
    return True


def _fit_each(values: tuple, parts: tuple) -> bool:
    """Whether the values of a tuple fit its annotation, that of `tuple[int, ...]` or `tuple[int, str]`."""
    wanted = parts[:1] * len(values) if parts[1:] == (...,) else parts
    return len(values) == len(wanted) and all(map(fits, values, wanted))


def described(declared: Any, name: Callable[[type], str]) -> str:
    """What an annotation asks for, in words.

    Args:
        declared: the annotation.
        name: how to call a class that is not one of Python's own.

    Returns:
        A phrase that follows "must be".

    Examples:
        >>> described(tuple[int, ...] | None, lambda cls: cls.__name__)
        'a tuple of a whole number or None'
    """
    origin, parts = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(part, name) for part in parts))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        inner = dict.fromkeys(described(part, name) for part in parts if part is not ...)
        return f"a tuple of {', '.join(inner)}"
    if (origin or declared) in _PLAIN:
        return _PLAIN[origin or declared][1]
    if is_array_type(declared):
        return "an array of numbers"
    return name(origin or declared)


def shown(value: Any) -> str:
    """How a message shows a wrong value: as Python writes it if that is short, else by its type.

    Args:
        value: any object.

    Returns:
        A short text.

    Examples:
        >>> shown("tanh"), shown([0] * 100), shown(int)
        ("'tanh'", 'a list of 100', 'the class int')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of dtype {value.dtype} and shape {list(value.shape)}"
    if isinstance(value, str | bytes | numbers.Number | None):
        text = "a number too large for float64" if isinstance(value, int) and abs(value) > 10**60 else repr(value)
        return text if len(text) <= 80 else f"{text[:60]}…"
    if isinstance(value, tuple | list | set | dict):
        parts = [shown(v) if isinstance(v, str | numbers.Real | None) else type(v).__name__ for v in value]
        if sum(map(len, parts)) <= 60 and isinstance(value, tuple | list):
            return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({', '.join(parts)})"
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
