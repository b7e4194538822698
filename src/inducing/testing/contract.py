"""What all contract checks share: error messages, comparisons, and checks of structure, dtypes and gradients."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from inducing import parameters
from inducing._xla import compiled
from inducing.parameters import Start, dtype_of

ERRORS = 6.0  # Monte Carlo averages may be this many standard errors off


def name(part: Any) -> str:
    if isinstance(part, functools.partial):
        part = part.func
    return getattr(part, "__name__", type(part).__name__)  # an objective is a function, other parts are instances


def fail(part: Any, contract: str, found: str) -> NoReturn:
    raise AssertionError(f"{name(part)}: {contract}, but {found}.")


def require(ok: Any, part: Any, contract: str, found: str) -> None:
    if not ok:
        fail(part, contract, found)


def check_part(part: Any, base: type) -> None:
    """The class of a part, and the fields that hold its arrays and settings."""
    require(isinstance(part, base), part, f"it must be derived from {base.__name__}", f"it is a {type(part).__name__}")
    for field in dataclasses.fields(part):
        if field.metadata.get("static", False):
            try:
                hash(getattr(part, field.name))
            except TypeError as error:
                fail(
                    part, "static fields must be hashable, so that it can be compiled", f"{field.name} is not: {error}"
                )
    for path, leaf in jtu.tree_leaves_with_path(part):
        name = undeclared(part, path) if eqx.is_inexact_array(leaf) else None
        if name is not None:
            cure = "declare it with positive(), real(), … or fixed() of inducing.parameters"
            fail(part, f"fields with arrays must be declared; {cure}", f"{name} is not")
    attempt(part, "parameters must have values that their fields allow", parameters.check, part)


def undeclared(part: Any, path: tuple) -> str | None:
    """The field of one of our modules that holds the array at the end of `path` without a declaration, if it does."""
    owner, name, node = None, "", part
    for key in path:
        if isinstance(key, jtu.GetAttrKey):
            owner, name, node = node, key.name, getattr(node, key.name)
        elif isinstance(key, jtu.SequenceKey):
            node = node[key.idx]
        else:  # a container of another library
            return None
    if not isinstance(owner, parameters.Module) or "constraint" in owner.__dataclass_fields__[name].metadata:
        return None
    return f"{type(owner).__name__}.{name}"


def default_points(dim: int) -> Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(6, dim)), float)


def as_points(part: Any, X: Any) -> Array:
    X = jnp.asarray(X, dtype_of(part))
    require(X.ndim == 2, part, "X must have shape [N, D]", f"it has {list(X.shape)}")
    return X


def attempt(part: Any, contract: str, fn: Callable, *args: Any, jit: bool = True) -> Any:
    """fn(*args), compiled if it is one of ours; an error becomes a broken contract."""
    run = compiled(fn, True) if jit and fn.__module__.startswith("inducing.testing.") else fn
    try:
        return run(*args)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        shown = lines[0].rstrip(".") if lines else "no message"
        raise AssertionError(f"{name(part)}: {contract}, but raised {type(error).__name__}: {shown}.") from error


def refused(fn: Callable, *args: Any) -> bool:
    """Whether a part says that it cannot do something: a TypeError, ValueError or NotImplementedError with a reason."""
    try:
        eqx.filter_eval_shape(fn, *args)
    except (TypeError, ValueError, NotImplementedError):
        return True
    return False


def require_shape(part: Any, what: str, value: Any, shape: tuple) -> None:
    found = np.shape(value)
    require(found == shape, part, f"{what} must have shape {list(shape)}", f"it has {list(found)}")


def require_close(part: Any, contract: str, got: Any, expected: Any, error: float = 0.0, slack: Any = 0.0) -> None:
    """Equality up to a share `error` of the largest number and to `slack`, and always up to rounding errors."""
    got, expected = np.asarray(got), np.asarray(expected)
    rounding = 1e-8 if got.dtype == np.float64 else 50 * float(np.finfo(np.float32).eps) ** 0.5
    scale = np.abs(expected).max(initial=0.0)
    tolerance = np.broadcast_to(max(error, rounding) * scale + slack + 1e-12, expected.shape)
    wrong = np.argwhere(~(np.abs(got - expected) <= tolerance))
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        place = f" at {list(at)}" if at else ""
        fail(part, contract, f"found {float(got[at]):.6g} where {float(expected[at]):.6g} was expected{place}")


def require_covariance(part: Any, what: str, K: Any) -> None:
    K = np.asarray(K, float)
    size = 1e-8 if K.dtype == np.float64 and jax.config.read("jax_enable_x64") else 1e-4
    trace = max(np.abs(np.diagonal(K)).sum(), 1e-300)
    apart = np.abs(K - K.T).max()
    require(apart <= size * trace, part, f"{what} must be symmetric", f"K and Kᵀ differ by {apart:.3g}")
    least = np.linalg.eigvalsh(0.5 * (K + K.T)).min()
    found = f"its smallest eigenvalue is {least:.3g}"
    require(least >= -size * trace, part, f"{what} must be positive semi-definite", found)


def weighted(values: Any) -> Array:
    """A sum of all arrays in which every entry has its own weight, so that gradients do not cancel."""
    leaves = [v for v in jax.tree.leaves(values) if eqx.is_inexact_array(v)]
    each = [jnp.sum(v * jnp.cos(jnp.arange(v.size, dtype=v.dtype)).reshape(v.shape)) for v in leaves]
    return jnp.sum(jnp.stack(each))


def require_finite_gradients(part: Any, what: str, gradients: Callable, *args: Any) -> None:
    found = attempt(part, f"{what} must be computed under jit", gradients, *args)
    for path, leaf in jtu.tree_leaves_with_path(found):
        if eqx.is_inexact_array(leaf):
            bad = np.asarray(leaf)[~np.isfinite(leaf)]
            require(not bad.size, part, f"{what} must be finite", f"the one for {jtu.keystr(path)} holds {bad[:1]}")


def require_float32(part: Any, what: str, fn: Callable, *args: Any) -> None:
    """float32 in, float32 out. Tracing finds that; nothing is computed."""
    args = jax.tree.map(lambda v: v.astype(jnp.float32) if eqx.is_inexact_array(v) else v, args)
    contract = f"{what} must be float32 for float32 parameters and inputs"
    try:
        found = eqx.filter_eval_shape(fn, *args)
    except Exception as error:
        shown = str(error).splitlines()[0] if str(error) else ""
        raise AssertionError(f"{name(part)}: {contract}, but raised {type(error).__name__}: {shown}") from error
    dtypes = sorted({str(v.dtype) for v in jax.tree.leaves(found) if jnp.issubdtype(v.dtype, jnp.inexact)})
    require(dtypes == ["float32"], part, contract, f"the results are {' and '.join(dtypes)}")


def require_own_arrays(part: Any, name: str, leaves: Iterable, owner: Any) -> None:
    own = {id(leaf) for leaf in jax.tree.leaves(owner)}
    ok = all(id(leaf) in own for leaf in leaves)
    require(ok, part, f"{name} must return the part's own arrays, not new ones", "an array is not one of them")


def check_starts(part: Any, name: str, starts: list[Start], owner: Any) -> None:
    require_own_arrays(part, name, [start.leaf for start in starts], owner)
    allowed = {id(leaf): constraint for _, leaf, constraint in parameters.parameters(owner)}
    for start in starts:
        value = np.asarray(start.value)
        try:
            value = np.broadcast_to(value, start.leaf.shape)
        except ValueError:
            fail(part, f"values of {name} must have the shape of their parameters", f"one has {list(value.shape)}")
        ok = allowed[id(start.leaf)].valid(value)
        found = f"it holds {value.reshape(-1)[0] if value.size else value}"
        require(ok, part, f"a value of {name} must be {allowed[id(start.leaf)].name}", found)


def check_units(part: Any, units: list) -> None:
    require_own_arrays(part, "units", [leaf for leaf, _ in units], part)
    for leaf, unit in units:
        shown = f"{list(np.shape(unit))} for a parameter of shape {list(leaf.shape)}"
        ok = np.broadcast_shapes(np.shape(unit), leaf.shape) == leaf.shape if np.ndim(unit) <= leaf.ndim else False
        require(ok, part, "units must broadcast to their parameters", f"one has shape {shown}")


def require_moments(part: Any, what: str, samples: np.ndarray, mean: Any, cov: Any, bias: float = 1e-6) -> None:
    """The first two moments of `samples` [S, K], within Monte Carlo error; `bias` is a share of the variances."""
    root = np.sqrt(len(samples))
    deviation = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    slack = (ERRORS / root + bias) * deviation + 1e-9
    require_close(part, f"{what} must have the stated mean", samples.mean(0), mean, slack=slack)
    centred = samples - np.asarray(mean)
    products = centred[:, :, None] * centred[:, None, :]
    slack = ERRORS * products.std(0) / root + bias * np.outer(deviation, deviation) + 1e-9
    require_close(part, f"{what} must have the stated covariance", products.mean(0), cov, slack=slack)
