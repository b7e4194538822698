"""Parameters: plain arrays that hold their natural value, with the constraint declared on the field.

A module declares what its arrays may be::

    class Kernel(Module):
        lengthscale: Float[Array, "..."] = positive(1.0)

and `kernel.lengthscale` is the number in the formula. Only training maps parameters to and from the
real line, by `unconstrain` and `constrain` (or, with freezing and tying, by `partition`).
"""

import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PyTree

from inducing._xla import own_array
from inducing.declared import described, fits, is_whole, shown

F = TypeVar("F", bound=Callable)


def question(method: F) -> F:
    """Mark a method of an abstract base class as a question with a safe default.

    Classes are abstract or final: a subclass never overrides an implemented method. Questions are the exception. They
    ask a part about itself ("are your outputs correlated?"), and the default answer is always safe: it refuses, or says
    that the answer is unknown. A part that knows better overrides it. For a property, put it below `@property`.

    Args:
        method: the method to mark.

    Returns:
        The same method.

    Examples:
        >>> class AbstractShape(Module):
        ...     @question
        ...     def area(self):
        ...         return None
        >>> AbstractShape.area.is_question
        True
    """
    setattr(method, "is_question", True)  # noqa: B010 — type checkers know no such attribute of functions
    return method


class Start(NamedTuple):
    """A starting value: what the data say that a parameter should be before training.

    `fit` replaces values that are still the default, or that are far off, and keeps all others.

    Attributes:
        leaf: the array in the model, recognised by identity.
        value: its starting value, which broadcasts to the shape of `leaf`.
        far: whether the current value is off by more than a factor of a thousand, so that it must be in other units.

    Examples:
        >>> Start(jnp.ones(()), 3.0, far=False).value
        3.0
    """

    leaf: Array
    value: Any
    far: bool


FAR = 1e3
"""A value that is off by more than this factor is assumed to be in other units."""


class Constraint(NamedTuple):
    """A set of allowed values and a smooth bijection of the real line onto it.

    Attributes:
        name: the name of the set, for messages.
        forward: maps unconstrained to natural values; acts on trailing axes.
        inverse: maps natural to unconstrained values. It should return NumPy arrays for NumPy arrays, so that nothing
            is compiled before a fit.
        log_jacobian: log |d forward / dx| at the unconstrained x, summed.
        valid: whether concrete natural values are allowed.
        cure: what to pass instead of a value that is not allowed, for messages.

    Examples:
        >>> POSITIVE.name, float(POSITIVE.forward(jnp.zeros(()))), POSITIVE.valid(np.array(-1.0))
        ('positive', 1.0, False)
    """

    name: str
    forward: Callable[[Array], Array]
    inverse: Callable[[Any], Any]
    log_jacobian: Callable[[Array], Array]
    valid: Callable[[np.ndarray], bool]
    cure: str


def _ordered_forward(x: Array) -> Array:
    steps = jnp.concatenate([x[..., :1], jnp.exp(x[..., 1:])], axis=-1)
    return jnp.cumsum(steps, axis=-1)


def _log(y: Any) -> Any:
    return y.__array_namespace__().log(y)


def _logit(y: Any) -> Any:
    return _log(y) - y.__array_namespace__().log1p(-y)


def _ordered_inverse(y: Any) -> Any:
    xp = y.__array_namespace__()
    return xp.concat([y[..., :1], xp.log(xp.diff(y, axis=-1))], axis=-1)


def _lower_triangle(x: Any) -> Any:
    return x.__array_namespace__().tril(x) if _is_square(x) else x


def _is_square(x: Any) -> bool:
    return x.ndim >= 2 and x.shape[-1] == x.shape[-2]


def _zero(x: Array) -> Array:
    return jnp.zeros((), x.dtype)


def _is_positive(value: np.ndarray) -> bool:
    """Whether numbers are positive, neither so small that XLA treats them as 0, nor so large that products overflow."""
    info = jnp.finfo(value.dtype)
    return bool(((value >= float(info.tiny)) & (value <= 1e-4 * float(info.max))).all())


REAL = Constraint("real", lambda x: x, lambda x: x, _zero, lambda v: bool(np.isfinite(v).all()), "pass finite numbers")
POSITIVE = Constraint(
    "positive",
    jnp.exp,
    _log,
    jnp.sum,
    _is_positive,
    "pass finite numbers greater than 0",
)
UNIT_INTERVAL = Constraint(
    "in (0, 1)",
    jax.nn.sigmoid,
    _logit,
    lambda x: jnp.sum(jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x)),
    lambda v: bool(((v > 0) & (v < 1)).all()),
    "pass numbers strictly between 0 and 1",
)
ORDERED = Constraint(
    "increasing",
    _ordered_forward,
    _ordered_inverse,
    lambda x: jnp.sum(x[..., 1:]),
    lambda v: bool(np.isfinite(v).all() and (np.diff(v, axis=-1) > 0).all()),
    "pass finite numbers in strictly increasing order",
)
LOWER_TRIANGULAR = Constraint(
    "lower triangular",
    _lower_triangle,
    _lower_triangle,
    _zero,
    lambda v: bool(np.isfinite(v).all() and not (_is_square(v) and np.triu(v, 1).any())),
    "pass the lower Cholesky factor",
)
FIXED = Constraint("fixed", lambda x: x, lambda x: x, _zero, lambda v: True, "")


MOST = 2**31 - 1
"""The largest count of anything, since JAX counts with 32 bits."""


def at_least_one(name: str, value: Any) -> int:
    """Check that a value is a whole number from 1.

    Args:
        name: the name of the argument, for the message.
        value: its value.

    Returns:
        The value as an int.

    Raises:
        ValueError: if it is not a whole number from 1, or too large for any array.

    Examples:
        >>> at_least_one("num", 3)
        3
    """
    if not is_whole(value, 1):
        raise ValueError(f"{name} must be an integer of at least 1, got {shown(value)}.")
    if value > MOST:
        raise ValueError(f"{name} must be at most {MOST}, got {shown(value)}.")
    return int(value)


def as_whole(value: Any) -> Any:
    """Convert a whole number of any type to an int.

    Args:
        value: the number.

    Returns:
        An int, or the value itself if it is not a whole number, for `__check_init__` to refuse.

    Examples:
        >>> import numpy as np
        >>> as_whole(np.int64(3)), as_whole(2.5)
        (3, 2.5)
    """
    try:
        return operator.index(value)
    except TypeError:
        return value


def as_tuple(value: Any) -> Any:
    """Convert a sequence to a tuple.

    Args:
        value: a list or another iterable.

    Returns:
        A tuple, or the value itself if it is not iterable, for `Module` to refuse.

    Examples:
        >>> as_tuple([1, 2]), as_tuple(3)
        ((1, 2), 3)
    """
    try:
        return tuple(value)
    except (TypeError, ValueError, OSError):  # such as an array without axes, or a file
        return value


def one_or_several(value: Any) -> tuple[Any, ...]:
    """The values of a sequence, or one value, as a tuple.

    Args:
        value: a sequence of parts or numbers, or a single one.

    Returns:
        A tuple.

    Examples:
        >>> one_or_several([1, 2]), one_or_several(3)
        ((1, 2), (3,))
    """
    several = as_tuple(value)
    return several if isinstance(several, tuple) else (value,)


def as_key(key: Any) -> Array:
    """Check that a value is a random key.

    Args:
        key: a JAX key, or None for key 0.

    Returns:
        The key.

    Raises:
        TypeError: if it is something else, such as a seed.

    Examples:
        >>> as_key(3)
        Traceback (most recent call last):
            ...
        TypeError: key must be a random key such as jax.random.key(0), got 3.
    """
    if key is not None and not _is_key(key):
        raise TypeError(f"key must be a random key such as jax.random.key(0), got {shown(key)}.")
    return jax.random.key(0) if key is None else key


def _is_key(key: Any) -> bool:
    """Whether a value is a typed key, an old-style key (an array of integers), or traced."""
    if isinstance(key, jax.core.Tracer):
        return True
    if not isinstance(key, jax.Array | np.ndarray):
        return False
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return key.ndim == 0 if typed else key.dtype == np.uint32 and key.ndim == 1


def as_path(path: Any, name: str = "path") -> Path:
    """A path from a string or a path-like object.

    Args:
        path: where the file is.
        name: the name of the argument, for the message.

    Returns:
        The path.

    Raises:
        TypeError: `path` is anything else, such as a file descriptor.
        ValueError: `path` is empty.

    Examples:
        >>> as_path(1)
        Traceback (most recent call last):
            ...
        TypeError: path must be a string or a pathlib.Path, got 1.
    """
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise TypeError(f"{name} must be a string or a pathlib.Path, got {shown(path)}.")
    if not os.fspath(path):
        raise ValueError(f"{name} is empty; pass the name of a file.")
    return Path(path)


def as_float_array(value: Any) -> Any:
    """Convert a parameter to a new floating-point JAX array.

    Float arrays keep their dtype; everything else takes JAX's default. The array is always copied: two modules built
    from one array are independent, while one *module* used in two places shares its arrays, which is how tying is
    recognised. Values that are not numbers pass through, for `Module` to refuse. A tuple of matrices stays a tuple.

    Args:
        value: anything array-like.

    Returns:
        The array, or `value` itself if it is None, traced, or not numeric.

    Examples:
        >>> as_float_array(2).dtype == jnp.zeros(()).dtype
        True
    """
    if isinstance(value, jax.core.Tracer) or value is None:
        return value
    if _is_tuple_of_matrices(value):
        return tuple(as_float_array(v) for v in value)
    if hasattr(value, "__array__") and not isinstance(value, jax.Array | np.ndarray):  # pandas, polars and others
        value = np.asarray(value)
    if isinstance(value, np.ma.MaskedArray):
        value = np.ma.filled(value.astype(float), np.nan)
    if not isinstance(value, jax.Array | np.ndarray):
        return _converted(value)
    if jnp.issubdtype(value.dtype, jnp.floating) and value.dtype.itemsize <= 8:
        return own_array(value, value.dtype)
    numeric = any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))
    with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as such
        return own_array(value, float) if numeric else value


def _is_tuple_of_matrices(value: Any) -> bool:
    arrays = jax.Array | np.ndarray
    return isinstance(value, tuple) and value != () and all(isinstance(v, arrays) and v.ndim >= 2 for v in value)


def _converted(value: Any) -> Any:
    """Numbers and nested lists of them as a floating-point array; other values unchanged, for `Module` to refuse."""
    leaves = jax.tree.leaves(value)
    try:
        plain = all(isinstance(v, int | float) for v in leaves)
        return own_array(value, float) if plain else jnp.array(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return value


def as_numbers(name: str, value: Any) -> Array:
    """Convert an argument to a new floating-point JAX array, or say that it cannot be.

    Args:
        name: the name of the argument, for the message.
        value: anything array-like.

    Returns:
        The array. Traced values stay as they are.

    Raises:
        TypeError: if it does not hold numbers, or has rows of different lengths.

    Examples:
        >>> as_numbers("W", [[1.0], [2.0, 3.0]])
        Traceback (most recent call last):
            ...
        TypeError: W must be an array of numbers, in rows of equal length, got [list, list].
    """
    array = as_float_array(value)
    if not _is_numeric(array):
        rows = ", in rows of equal length" * isinstance(value, list | tuple)
        raise TypeError(f"{name} must be an array of numbers{rows}, got {shown(value)}.")
    return array


def as_probability(name: str, value: Any) -> Any:
    """Check that a value is one number strictly between 0 and 1.

    Args:
        name: the name of the argument, for the message.
        value: its value.

    Returns:
        The value, of other types than float as a JAX array. Traced values stay as they are.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is not one number between 0 and 1.

    Examples:
        >>> as_probability("level", 95)
        Traceback (most recent call last):
            ...
        ValueError: level must lie strictly between 0 and 1, got 95; pass a probability such as 0.95.
    """
    number = value if isinstance(value, float) else as_numbers(name, value)
    if np.ndim(number):
        raise ValueError(f"{name} must be one number, got shape {np.shape(number)}; pass one probability at a time.")
    if not isinstance(number, jax.core.Tracer) and not 0 < number < 1:
        raise ValueError(
            f"{name} must lie strictly between 0 and 1, got {shown(value)}; pass a probability such as 0.95."
        )
    return number


def check_part(name: str, value: Any, kind: "type[Module]") -> None:
    """Raise a TypeError unless an argument is a part of some kind.

    Args:
        name: the name of the argument, for the message.
        value: its value.
        kind: the abstract class of such parts.

    Raises:
        TypeError: if it is something else.

    Examples:
        >>> import inducing as ig
        >>> check_part("kernel", 3, ig.kernels.AbstractKernel)
        Traceback (most recent call last):
            ...
        TypeError: kernel must be a kernel, such as ig.kernels.Matern52(), got 3.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {_called(kind)}, got {shown(value)}.")


def _is_numeric(leaf: Any) -> bool:
    """Whether a leaf is a JAX array of floating-point numbers, or traced."""
    if isinstance(leaf, jax.core.Tracer):
        return True
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)


def _field(
    constraint: Constraint,
    default: Any,
    allowed: Constraint | None = None,
    converter: Callable = as_float_array,
    prior: Any = None,
) -> Any:
    kwargs = {} if default is dataclasses.MISSING else {"default": default}
    metadata = {"constraint": constraint, "allowed": allowed or constraint, "prior": prior}
    return eqx.field(converter=converter, metadata=metadata, **kwargs)


def real(default: Any = dataclasses.MISSING, converter: Callable = as_float_array, prior: Any = None) -> Any:
    """Declare a field of finite real numbers that are trained.

    Training uses the values as they are.

    Args:
        default: the default value of the field. Without one, the argument is required.
        converter: the function that makes an array of what users pass.
        prior: the prior of the value, an object with `log_prob`, for `ig.sample_posterior`.

    Returns:
        A dataclass field for a class derived from `Module`.

    Examples:
        >>> class Offset(Module):
        ...     value: Array = real(0.0)
        >>> Offset().value.tolist()
        0.0
    """
    return _field(REAL, default, converter=converter, prior=prior)


def positive(default: Any = dataclasses.MISSING, prior: Any = None) -> Any:
    """Declare a field of positive numbers that are trained.

    Training uses their logarithm, so that it is equivariant to scale.

    Args:
        default: the default value of the field. Without one, the argument is required.
        prior: the prior of the value, an object with `log_prob`, for `ig.sample_posterior`.

    Returns:
        A dataclass field for a class derived from `Module`.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> round(float(unconstrain(Scale(2.0)).size), 4)                                     # log 2
        0.6931
    """
    return _field(POSITIVE, default, prior=prior)


def unit_interval(default: Any = dataclasses.MISSING, prior: Any = None) -> Any:
    """Declare a field of numbers in (0, 1) that are trained.

    Training uses their logit.

    Args:
        default: the default value of the field. Without one, the argument is required.
        prior: the prior of the value, an object with `log_prob`, for `ig.sample_posterior`.

    Returns:
        A dataclass field for a class derived from `Module`.

    Examples:
        >>> class Share(Module):
        ...     p: Array = unit_interval(0.5)
        >>> round(float(unconstrain(Share(0.75)).p), 4)                                       # log 3
        1.0986
    """
    return _field(UNIT_INTERVAL, default, prior=prior)


def ordered(default: Any = dataclasses.MISSING, prior: Any = None) -> Any:
    """Declare a field whose last axis is strictly increasing, and that is trained.

    Training uses the first value and the logarithms of the steps.

    Args:
        default: the default value of the field. Without one, the argument is required.
        prior: the prior of the value, an object with `log_prob`, for `ig.sample_posterior`.

    Returns:
        A dataclass field for a class derived from `Module`.

    Examples:
        >>> class Cuts(Module):
        ...     at: Array = ordered()
        >>> unconstrain(Cuts([-1.0, 0.0, 1.0])).at.tolist()
        [-1.0, 0.0, 0.0]
    """
    return _field(ORDERED, default, prior=prior)


def lower_triangular(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field of lower-triangular matrices that are trained.

    Arrays that are not square, such as the diagonal of a matrix, may have any finite values.

    Args:
        default: the default value of the field. Without one, the argument is required.

    Returns:
        A dataclass field for a class derived from `Module`.

    Examples:
        >>> class Root(Module):
        ...     value: Array = lower_triangular()
        >>> Root([[1.0, 2.0], [0.0, 1.0]])
        Traceback (most recent call last):
            ...
        ValueError: Root.value must be lower triangular, got [[1., 2.],
         [0., 1.]]; pass the lower Cholesky factor.
    """
    return _field(LOWER_TRIANGULAR, default)


def fixed(default: Any = dataclasses.MISSING, allowed: Constraint = FIXED) -> Any:
    """Declare a field of constants that are never trained.

    Args:
        default: the default value of the field. Without one, the argument is required.
        allowed: the values that are allowed, a `Constraint` such as `POSITIVE`.

    Returns:
        A dataclass field for a class derived from `Module`.

    Examples:
        >>> class Known(Module):
        ...     exposure: Array = fixed(1.0, POSITIVE)
        >>> len(partition(Known()).free)
        0
    """
    return _field(FIXED, default, allowed)


class Module(eqx.Module):
    """An Equinox module that checks the values of its declared parameters when it is built.

    Raises:
        ValueError: if a parameter has a value that its field does not allow.
        TypeError: if a parameter is not numeric.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> Scale(-1.0)
        Traceback (most recent call last):
            ...
        ValueError: Scale.size must be positive, got -1.0; pass finite numbers greater than 0.
    """

    _such_as: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any):
        """Make the class check the kinds of all fields before its own `__check_init__`, which relies on them."""
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("__check_init__")
        if own is not None:

            @functools.wraps(own)
            def check_kinds_first(self):
                _check_kinds(self)
                own(self)

            setattr(cls, "__check_init__", check_kinds_first)  # noqa: B010 — type checkers see an override

    def __check_init__(self):
        _check_kinds(self)
        for field in dataclasses.fields(self):
            allowed = field.metadata.get("allowed")
            if allowed is not None:
                alone = getattr(field.type, "dims", None) == ()  # `dims`: annotations of jaxtyping alone have shapes
                for leaf in _numbers_of(getattr(self, field.name)):
                    if alone and leaf.ndim:
                        raise ValueError(
                            f"{type(self).__name__}.{field.name} must be one number, got shape {list(leaf.shape)}."
                        )
                    _check_leaf(leaf, allowed, f"{type(self).__name__}.{field.name}")


def _numbers_of(value: Any) -> list[Any]:
    """The leaves of a parameter, without modules, which have already checked their own parameters."""
    leaves = jax.tree.leaves(value, is_leaf=lambda x: isinstance(x, Module))
    return [leaf for leaf in leaves if not isinstance(leaf, Module)]


def _check_kinds(module: Module) -> None:
    """Raise a TypeError for a field that holds another kind of value than its annotation declares."""
    for field in dataclasses.fields(module):
        value, declared = getattr(module, field.name), field.type
        name = f"{type(module).__name__}.{field.name}"
        if field.metadata.get("allowed") is None:
            if not isinstance(declared, str) and not fits(value, declared):
                raise TypeError(f"{name} must be {described(declared, _called)}, got {shown(value)}.")
        elif (value is None and not _may_be_none(declared)) or not _holds_numbers(value):
            rows = ", in rows of equal length" * isinstance(value, list | tuple)
            raise TypeError(f"{name} must be numbers{rows}, got {shown(value)}.")
        elif isinstance(value, Module) and not isinstance(declared, str) and not fits(value, declared):
            raise TypeError(f"{name} must be {described(declared, _called)}, got {shown(value)}.")


def _holds_numbers(value: Any) -> bool:
    """Whether a parameter is a part, None, or consists of arrays only; lists of parts and {} do not count."""
    if value is None or isinstance(value, Module):
        return True
    leaves = jax.tree.leaves(value, is_leaf=lambda x: isinstance(x, Module))
    return bool(leaves) and all(_is_numeric(x) or (isinstance(x, Module) and type(value) is tuple) for x in leaves)


def _called(kind: Any) -> str:
    """The description of a kind of value in messages."""
    if isinstance(kind, type) and issubclass(kind, Module) and kind._such_as:
        return kind._such_as
    return f"a {getattr(kind, '__name__', kind)}"


def _may_be_none(declared: Any) -> bool:
    return declared is Any or isinstance(declared, str) or type(None) in get_args(declared)


def _check_leaf(leaf: Any, constraint: Constraint, name: str) -> None:
    if isinstance(leaf, jax.core.Tracer):
        return
    value = np.asarray(leaf)
    if np.iscomplexobj(value):
        raise TypeError(f"{name} must be real numbers, got {value.dtype}.")
    if value.size and not constraint.valid(value):
        got = str(value.item()) if value.ndim == 0 else np.array2string(value, threshold=6, edgeitems=2, separator=", ")
        raise ValueError(f"{name} must be {constraint.name}, got {got}; {constraint.cure}.")


def _constraint_at(tree: Any, path: tuple, role: str = "constraint", undeclared: Any = REAL) -> Any:
    """The constraint that the fields along `path` declare for the leaf at its end. The innermost field wins.

    With `role` "allowed" it is the constraint on allowed values, which fixed parameters have too.
    """
    constraint = undeclared
    for key in path:
        if isinstance(key, jtu.GetAttrKey):
            if dataclasses.is_dataclass(tree):
                declared = {f.name: f.metadata.get(role) for f in dataclasses.fields(tree)}
                constraint = declared.get(key.name) or constraint
            tree = getattr(tree, key.name)
        elif isinstance(key, jtu.SequenceKey):
            tree = tree[key.idx]
        elif isinstance(key, jtu.DictKey):
            tree = tree[key.key]
        else:  # a custom container, whose fields we cannot read
            break
    return constraint


def declared_prior(tree: PyTree, path: tuple) -> Any:
    """The prior that the field of an array declares, or None.

    Args:
        tree: a model, or any part of one.
        path: the path of the array.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0, prior="LogNormal(0, 1)")
        >>> declared_prior(Scale(), (jax.tree_util.GetAttrKey("size"),))
        'LogNormal(0, 1)'
    """
    return _constraint_at(tree, path, "prior", None)


def parameters(tree: PyTree) -> list[tuple[str, Array, Constraint]]:
    """List every floating-point array of a module with its path and constraint.

    Args:
        tree: a model, or any part of one.

    Returns:
        Triples (path, array, constraint), in the order of the pytree's leaves.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> [(name, constraint.name) for name, _, constraint in parameters(Scale())]
        [('.size', 'positive')]
    """
    return [
        (jtu.keystr(path), leaf, _constraint_at(tree, path))
        for path, leaf in jtu.tree_leaves_with_path(tree)
        if eqx.is_inexact_array(leaf)
    ]


def check(tree: PyTree) -> None:
    """Check every parameter against its constraint.

    Modules check their parameters when they are built, but `eqx.tree_at` bypasses that.

    Args:
        tree: a model, or any part of one.

    Raises:
        ValueError: if a parameter has a value that its field does not allow.
        TypeError: if there is a Python number in the place of an array.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> check(eqx.tree_at(lambda s: s.size, Scale(), jnp.asarray(-1.0)))
        Traceback (most recent call last):
            ...
        ValueError: Scale.size must be positive, got -1.0; pass finite numbers greater than 0.
    """
    for path, leaf in jtu.tree_leaves_with_path(tree):
        name = f"{type(tree).__name__}{jtu.keystr(path)}"
        if eqx.is_inexact_array(leaf):
            _check_leaf(leaf, _constraint_at(tree, path, "allowed"), name)
        elif isinstance(leaf, int | float) and _constraint_at(tree, path, undeclared=None) is not None:
            raise TypeError(f"{name} is the Python number {leaf}, which does not train; put jnp.asarray({leaf}) there.")


def _map(tree: PyTree, fn: Callable[[Constraint, Array], Array]) -> PyTree:
    def one(path, leaf):
        return fn(_constraint_at(tree, path), leaf) if eqx.is_inexact_array(leaf) else leaf

    return jtu.tree_map_with_path(one, tree)


def unconstrain(tree: PyTree) -> PyTree:
    """Map each parameter to the real line. The inverse of `constrain`.

    Args:
        tree: a model, or any part of one, with natural values.

    Returns:
        The same tree with unconstrained values.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> float(unconstrain(Scale(1.0)).size)
        0.0
    """
    return _map(tree, lambda c, leaf: c.inverse(leaf))


def constrain(tree: PyTree) -> PyTree:
    """Map each unconstrained parameter back to its natural value. The inverse of `unconstrain`.

    Args:
        tree: a tree of unconstrained values, as `unconstrain` returns it.

    Returns:
        The same tree with natural values.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> bool(constrain(unconstrain(Scale(3.0))).size == 3.0)
        True
    """
    return _map(tree, lambda c, leaf: c.forward(leaf))


def log_jacobian(tree: PyTree) -> Float[Array, ""]:
    """Compute log |d constrain / dx| at an unconstrained tree.

    Added to a log density of natural values, it gives the log density of the unconstrained ones.

    Args:
        tree: a tree of unconstrained values, as `unconstrain` returns it.

    Returns:
        One number, the sum over all parameters.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> round(float(log_jacobian(unconstrain(Scale(2.0)))), 4)                        # d eˣ/dx = eˣ = 2, log 2
        0.6931
    """
    return jnp.asarray(sum(c.log_jacobian(leaf) for _, leaf, c in parameters(tree)))


class Partition(eqx.Module):
    """A model split into the arrays that train (unconstrained, each once) and everything else.

    An array that occurs in several places of the model, because a module is used twice, is one entry of `free`. The
    places therefore stay tied.

    Attributes:
        free: the unconstrained arrays that train.
        rest: all other leaves.
        treedef: the structure of the model.
        slots: for each leaf of the model, whether it trains, and its position in `free` or `rest`.
        constraints: the constraint of each array of `free`.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> parts = partition(Scale(2.0))
        >>> float(parts.replace(Scale(3.0)).model().size.round(6))
        3.0
    """

    free: list[Array]
    rest: list[Any]
    treedef: Any = eqx.field(static=True)
    slots: tuple[tuple[bool, int], ...] = eqx.field(static=True)
    constraints: tuple[Constraint, ...] = eqx.field(static=True)

    def model(self, free: list[Array] | None = None) -> PyTree:
        """The model with natural values, of other arrays `free` if they are given."""
        free = [c.forward(x) for c, x in zip(self.constraints, self.free if free is None else free, strict=True)]
        leaves = [free[i] if trained else self.rest[i] for trained, i in self.slots]
        return jtu.tree_unflatten(self.treedef, leaves)

    def replace(self, model: PyTree) -> "Partition":
        """The same partition with the values of `model`, which has the same structure."""
        leaves = jtu.tree_leaves(model)
        free, rest = list(self.free), list(self.rest)
        for leaf, (trained, i) in zip(leaves, self.slots, strict=True):
            if trained:
                free[i] = self.constraints[i].inverse(leaf)
            else:
                rest[i] = leaf
        return Partition(free, rest, self.treedef, self.slots, self.constraints)


def _frozen_ids(model: PyTree, freeze: Callable[[PyTree], Any]) -> set[int]:
    part = freeze(model)
    chosen = {id(leaf) for leaf in jtu.tree_leaves(part)}
    if part is None or not chosen <= {id(leaf) for leaf in jtu.tree_leaves(model)}:
        raise ValueError(
            "freeze must return parts of the model it is given, such as `lambda m: m.layers[0].features` "
            f"or a tuple of such parts, got {'None' if part is None else f'a {type(part).__name__}'}."
        )
    return chosen


def _unconstrained(leaf: Array, constraint: Constraint) -> Array:
    if isinstance(leaf, jax.core.Tracer):
        return constraint.inverse(leaf)
    return own_array(constraint.inverse(np.asarray(leaf)), leaf.dtype)


def partition(model: PyTree, freeze: Callable[[PyTree], Any] | None = None) -> Partition:
    """Split a model into the arrays that train and the rest.

    Args:
        model: the model.
        freeze: a function that returns the parts of the model that keep their values. By default, none.

    Returns:
        The partition. `partition(model).model()` is the model again.

    Raises:
        ValueError: if `freeze` returns something that is not part of the model.

    Examples:
        >>> class Scale(Module):
        ...     size: Array = positive(1.0)
        >>> one = Scale(2.0)
        >>> len(partition((one, one)).free)      # one module in two places: tied
        1
    """
    frozen = set() if freeze is None else _frozen_ids(model, freeze)
    free: list[Array] = []
    rest: list[Any] = []
    slots: list[tuple[bool, int]] = []
    constraints: list[Constraint] = []
    seen: dict[int, tuple[int, Constraint]] = {}
    leaves, treedef = jtu.tree_flatten_with_path(model)
    for path, leaf in leaves:
        constraint = _constraint_at(model, path)
        if not eqx.is_inexact_array(leaf) or constraint is FIXED or id(leaf) in frozen:
            slots.append((False, len(rest)))
            rest.append(leaf)
        elif id(leaf) in seen and seen[id(leaf)][1] is constraint:
            slots.append((True, seen[id(leaf)][0]))
        else:
            seen[id(leaf)] = (len(free), constraint)
            slots.append((True, len(free)))
            free.append(_unconstrained(leaf, constraint))
            constraints.append(constraint)
    return Partition(free, rest, treedef, tuple(slots), tuple(constraints))


def dtype_of(*trees: PyTree) -> jnp.dtype:
    """Return the floating-point dtype in which a model computes: that of its parameters, promoted.

    Args:
        *trees: models, or parts of them.

    Returns:
        The dtype; JAX's default if there are no floating-point arrays.

    Examples:
        >>> str(dtype_of(jnp.zeros(2, "float32")))
        'float32'
    """
    dtypes: Iterable = {leaf.dtype for leaf in jax.tree.leaves(trees) if eqx.is_inexact_array(leaf)}
    return jnp.result_type(*dtypes) if dtypes else jnp.zeros(()).dtype
