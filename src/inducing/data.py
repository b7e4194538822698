"""Conversion of users' data to one form, with checks."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from inducing._xla import local, own_array, take_rows
from inducing.declared import shown
from inducing.parameters import MOST

COARSE, FINE = 2**10, 2**20  # limits on how many different numbers a dtype has in a column's range: _check_resolution
COPIES = 8  # the mean number of copies of a row by which `repeated_by_weight` represents weights


class Data(eqx.Module):
    """Inputs and labels, which labels are present, and the numbers of the rows.

    Args:
        x: inputs [N, D], or [N] for one column. None or [N, 0] if there are none (unsupervised models).
        y: labels [N, P], or [N] for one column; NaN where a label is missing. None if there are none.
        mask: True [N, P] where a label is present. By default everywhere but where y is NaN.
        index: integers [N] that say which datum each row is. Quantities that belong to single data, such as latent
            variables and known noise, are looked up by it. By default 0, …, N − 1.
        weight: numbers [N] that say how often each row counts: every bound multiplies the term of a row by its weight.
            A row of weight 2 counts as two equal rows, one of weight 0 is left out. By default 1. Weights are not
            precisions: equal rows are evidence of little noise. For labels of noise variance σ²/w, such as means of w
            values, pass known variances, `ig.likelihoods.Gaussian(PerDatum(variance / w, new=variance))`, or a
            likelihood that trains σ² ("Precision weights" in `docs/choose.md`).

    Arrays, nested lists, and pandas or polars frames are accepted.

    Raises:
        TypeError: if x or y does not hold numbers.
        ValueError: if there are neither inputs nor labels, shapes do not fit, values are not finite, or the rows of an
            array are spread over several processes. Also if different values are equal in float32, JAX's default
            precision, because they are far from zero.

    Examples:
        >>> data = Data([0.0, 1.0], [1.0, float("nan")])
        >>> data.x.shape, data.y.shape, data.mask[:, 0].tolist()
        ((2, 1), (2, 1), [True, False])

        A row of weight 2 is the row twice:

        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> weighted = ig.elbo(model, Data([0.0, 1.0], [0.5, 0.2], weight=[2.0, 1.0]))
        >>> bool(abs(weighted - ig.elbo(model, Data([0.0, 0.0, 1.0], [0.5, 0.5, 0.2]))) < 1e-9)
        True
    """

    x: Float[Array, "N D"] | None
    y: Float[Array, "N P"] | None
    mask: Bool[Array, "N P"] | None
    index: Int[Array, " N"]
    weight: Float[Array, " N"] | None

    def __init__(self, x: Any, y: Any = None, mask: Any = None, index: Any = None, weight: Any = None):
        if x is None and y is None:
            raise ValueError("Data needs inputs x, labels y, or both; got neither.")
        self.x = None if x is None else _columns(x, "x", allow_nan=False)
        self.y = None if y is None else _columns(y, "y", allow_nan=True)
        rows = {name: v.shape[0] for name, v in (("x", self.x), ("y", self.y)) if v is not None}
        if len(set(rows.values())) > 1:
            raise ValueError(f"x has {rows['x']} rows and y has {rows['y']}; each row of x needs its row of y.")
        n = next(iter(rows.values()))
        self.mask = _mask(self.y, mask)
        if index is None:
            self.index = own_array(np.arange(n), int)
        else:
            self.index = _whole(index)
            if self.index.shape != (n,):
                raise ValueError(f"index must have one entry per row, shape ({n},), got {self.index.shape}.")
        self.weight = None if weight is None else as_weight(weight, n)

    def __len__(self) -> int:
        return self.index.shape[0]

    @property
    def num_missing(self) -> int:
        """The number of missing labels, without those of rows of weight 0."""
        if self.mask is None:
            return 0
        missing = ~np.asarray(self.mask)
        return int(missing.sum() if self.weight is None else missing[np.asarray(self.weight) > 0].sum())

    def rows(self, i: Array) -> "Data":
        """The data of the rows i, integers [n]."""
        return jax.tree.map(lambda a: take_rows(a, i), self)

    def without_labels(self) -> "Data":
        """The inputs and the numbers of the rows, without labels and weights."""
        return eqx.tree_at(
            lambda d: (d.y, d.mask, d.weight), self, (None, None, None), is_leaf=lambda leaf: leaf is None
        )

    def reweighted(self, factor: float) -> "Data":
        """The same data with all weights multiplied by `factor`."""
        a = self.x if self.y is None else self.y
        assert a is not None
        weight = jnp.ones(len(self), a.dtype) if self.weight is None else self.weight
        return eqx.tree_at(lambda d: d.weight, self, factor * weight, is_leaf=lambda leaf: leaf is None)

    def astype(self, dtype) -> "Data":
        """The same data in another floating-point dtype."""
        return jax.tree_util.tree_map_with_path(
            lambda path, a: _cast(a, dtype, path[0].name) if eqx.is_inexact_array(a) else a, self
        )


def as_inputs(x: Any, dtype=None) -> Float[Array, "N D"]:
    """New inputs as an array [N, D] of finite numbers.

    Args:
        x: anything like an array, [N, D] or [N].
        dtype: the floating-point dtype of the result, by default that of x.

    Examples:
        >>> as_inputs([1, 2, 3]).shape
        (3, 1)
    """
    out = _columns(x, "X", allow_nan=False)
    return out if dtype is None else _cast(out, dtype, "X")


def as_labels(y: Any, dtype) -> Float[Array, "N P"]:
    """Labels as an array [N, P], which may hold NaN and infinite values.

    Examples:
        >>> as_labels([1, None], float).tolist()
        [[1.0], [nan]]
    """
    return jnp.asarray(_on_device(_matrix(y, "y")), dtype)


def as_data(data: Any, dtype=None) -> Data:
    """Convert a user's data to `Data`.

    Args:
        data: a `Data`, or a tuple (x, y), (x, y, mask) or (x, y, mask, index).
        dtype: the floating-point dtype of the result; None keeps that of the data.

    Examples:
        >>> len(as_data(([1.0, 2.0], [3.0, 4.0])))
        2
    """
    if not isinstance(data, Data):
        if not isinstance(data, tuple | list) or not 2 <= len(data) <= 4:
            size = f" of {len(data)}" if isinstance(data, tuple | list) else ""
            raise TypeError(f"data must be a pair (X, y) or an ig.Data, got {type(data).__name__}{size}.")
        data = Data(*data)
    else:
        data = jax.tree.map(lambda a: _here(a, "data"), data)
    return data if dtype is None else data.astype(dtype)


def some_rows(tree: Any) -> Any:
    """At most 256 evenly spaced rows of each array of a pytree, which are enough to choose starting values.

    Applying it twice gives the same rows as applying it once, so arrays of the same length stay aligned.

    Args:
        tree: a pytree of concrete arrays with N rows each, such as an array or a `Data`.

    Returns:
        The same pytree with every ⌈N/256⌉-th row of each array. JAX arrays stay JAX arrays.

    Examples:
        >>> some_rows(np.arange(1000.0)[:, None]).shape
        (250, 1)
    """

    def some(a: Any) -> Any:
        rows = np.asarray(a)[:: -(-len(a) // 256)]
        return own_array(rows, a.dtype) if isinstance(a, jax.Array) else rows

    return jax.tree.map(some, tree)


def repeated_by_weight(data: Data) -> Data:
    """The data with each row repeated in proportion to its weight. Starting values are statistics of these rows.

    If weights are small whole numbers, they are the numbers of copies. Otherwise the numbers of copies are rounded.

    Examples:
        >>> repeated_by_weight(Data([1.0, 2.0], weight=[1.0, 2.0])).x[:, 0].tolist()
        [1.0, 2.0, 2.0]
    """
    if data.weight is None:
        return data
    weight = np.asarray(data.weight, float)
    whole = np.array_equal(weight, np.round(weight)) and weight.mean() <= COPIES
    copies = weight if whole else np.round(COPIES * weight / weight.mean())
    return data.rows(own_array(np.repeat(np.arange(len(data)), copies.astype(int)), int))


def _mask(y: Array | None, mask: Any) -> Array | None:
    if y is None:
        return None
    seen = ~jnp.isnan(y) if isinstance(y, jax.core.Tracer) else own_array(~np.isnan(y), bool)
    if mask is None:
        return seen
    what = "mask must hold True where a label is present and False where it is missing"
    if not isinstance(mask, jax.core.Tracer):
        values = _as_numpy(mask, what)
        if values.dtype.kind == "V" or not np.isin(values, (0, 1)).all():
            raise ValueError(f"{what}, got {shown(mask)}.")
    mask = jnp.asarray(mask, bool)
    mask = mask[:, None] if mask.ndim == 1 else mask
    if mask.shape != y.shape:
        raise ValueError(f"mask must have the shape of y, {y.shape}, got {mask.shape}.")
    return mask & seen


def as_weight(weight: Any, n: int) -> Float[Array, " N"]:
    """Weights of n rows, numbers of at least 0.

    Examples:
        >>> as_weight([2, 1], 2).tolist()
        [2.0, 1.0]
    """
    weight = _columns(weight, "weight", allow_nan=False)
    if weight.shape != (n, 1):
        raise ValueError(f"weight must have one entry per row, shape ({n},), got {tuple(weight.shape)}.")
    if not isinstance(weight, jax.core.Tracer):
        values = np.asarray(weight)
        if values.min() < 0 or values.max() == 0:
            raise ValueError(
                f"weight must hold numbers of at least 0, not all of them 0; they reach from {values.min():.4g} to "
                f"{values.max():.4g}."
            )
        return own_array(values[:, 0], values.dtype)
    return weight[:, 0]


def _as_numpy(value: Any, what: str) -> np.ndarray:
    """An argument as a NumPy array. If it cannot be converted, a TypeError says `what` it must be."""
    value = _here(value, what.split()[0])
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:  # such as random keys, and rows of different lengths
        raise TypeError(f"{what}, got {shown(value)}.") from error


def _whole(index: Any) -> Array:
    if not isinstance(index, jax.core.Tracer):
        values = _as_numpy(index, "index must hold whole numbers, the number of each datum")
        if values.dtype.kind not in "iuf" or not np.array_equal(values, np.round(values)):
            raise ValueError(f"index must hold whole numbers, the number of each datum, got {values.reshape(-1)[:3]} …")
        if values.size and not -MOST <= values.min() <= values.max() <= MOST:
            raise ValueError(f"index holds {values[np.abs(values.astype(float)) > MOST][0]:.4g}, more than {MOST}.")
        return own_array(values, int)
    return jnp.asarray(index, int)


def _columns(value: Any, name: str, allow_nan: bool) -> Array:
    """A floating-point array [N, columns] of at least one row. Concrete values are checked."""
    array = _matrix(value, name)
    if isinstance(array, jax.core.Tracer):
        return array
    if array.shape[0] == 0 or (array.shape[1] == 0 and name == "y"):
        raise ValueError(f"{name} is empty: shape {tuple(array.shape)}; pass at least one row and one column.")
    concrete = np.asarray(array)
    bad = np.isinf(concrete) if allow_nan else ~np.isfinite(concrete)
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        cure = "remove or impute that row" if not allow_nan else "labels must be finite; use NaN for a missing one"
        where = f"row {row}, column {_called(value, column)}"
        raise ValueError(f"{name} has {concrete[row, column]} in {where}; {cure}.")
    if allow_nan and np.isnan(concrete).all():
        raise ValueError(f"every label in {name} is missing (NaN); there is nothing to learn from.")
    return _on_device(_cast(array, jax.dtypes.canonicalize_dtype(array.dtype), name))


def _cast(array: Any, dtype: Any, name: str) -> Any:
    """The array in another floating-point dtype. Numbers that become infinite or too coarse raise a ValueError."""
    with np.errstate(over="ignore", under="ignore"):
        out = array.astype(dtype)
    if isinstance(array, jax.core.Tracer) or jnp.finfo(dtype).max >= jnp.finfo(array.dtype).max:
        return out
    beyond = np.argwhere(np.isinf(out) & np.isfinite(array))
    if beyond.size:
        row, column = beyond[0]
        raise ValueError(
            f"{name} has {array[row, column]:.4g} in row {row}, column {column}, too large for {jnp.dtype(dtype)}; "
            'scale that column, or compute in float64: jax.config.update("jax_enable_x64", True) at the start.'
        )
    _check_resolution(np.asarray(array), np.asarray(out), name)
    return out


def check_resolution(value: Any, name: str) -> None:
    """Raise an error or warn if JAX's default dtype makes different points equal; see `Data`.

    Args:
        value: points [N, D] in any form. Anything but a matrix of numbers is ignored, because other checks refuse it.
        name: the name of the points in messages.

    Examples:
        >>> with jax.enable_x64(False):
        ...     check_resolution([[1.7e9], [1.7e9 + 10.0], [1.7e9 + 20.0]], "Z")
        Traceback (most recent call last):
            ...
        ValueError: Z has 3 different values in column 0, between 1700000000 and 1700000020, of which float32 can ...
    """
    if isinstance(value, jax.Array) or jax.config.read("jax_enable_x64"):
        return
    try:
        given = np.asarray(value)
    except ValueError:  # rows of different lengths
        return
    if given.ndim == 2 and given.size and given.dtype.kind in "iuf":
        _check_resolution(given.astype(float), given.astype(jnp.float32), name)


def _check_resolution(given: np.ndarray, cast: np.ndarray, name: str) -> None:
    """Raise a ValueError or warn if different numbers of a column became equal in a dtype of less precision.

    The dtype has about s = (max x − min x) / (ε max |x|) different numbers in the range of a column. The farther a
    column is from zero, compared with its spread, the smaller is s. If s is large (2²² or more in float32 for a column
    around zero), numbers that become equal were equal for any kernel, and nothing is checked. Otherwise the different
    values before and after the conversion are counted. A loss is a ValueError if s is below `COARSE`, and a warning if
    it is below `FINE`. There are no warnings for labels, because their noise is larger.

    Args:
        given: numbers [N, columns], NaN where one is missing.
        cast: the same numbers in a dtype of less precision.
        name: the name of the numbers in messages.
    """
    low, high = np.fmin.reduce(given, axis=0), np.fmax.reduce(given, axis=0)
    size, info = np.maximum(np.abs(low), np.abs(high)), jnp.finfo(cast.dtype)
    spread, step = high - low, np.maximum(float(info.eps) * size, float(info.tiny))
    rounded = 2**12 * float(jnp.finfo(given.dtype).eps) * size  # the difference of equal numbers due to rounding
    for column in np.flatnonzero((spread > rounded) & (spread < (COARSE if name == "y" else FINE) * step)):
        kept = np.where(np.abs(cast[:, column]) < info.tiny, 0, cast[:, column])  # XLA takes smaller ones for 0
        before, after = len(np.unique(given[:, column])), len(np.unique(kept))
        if after == before:
            continue
        said = (
            f"{name} has {before} different values in column {column}, between {low[column]:.10g} and "
            f"{high[column]:.10g}, of which {cast.dtype} can tell {after} apart; subtract an offset from that column "
            'and scale it first, or compute in float64: jax.config.update("jax_enable_x64", True) at the start.'
        )
        if spread[column] < COARSE * step[column]:
            raise ValueError(said)
        warnings.warn(said, stacklevel=2)


def _on_device(array: Array | np.ndarray) -> Array:
    return array if isinstance(array, jax.Array) else own_array(array, array.dtype)


# Pandas, polars and SciPy are not dependencies, so the functions below recognise their types by the methods they have.


def _called(value: Any, column: int) -> str:
    """The name of a column in messages: that of a data frame, or else its number."""
    names = getattr(value, "columns", None)
    return str(column) if names is None else repr(names[column])


def _matrix(value: Any, name: str) -> Array | np.ndarray:
    """A floating-point array [N, columns]. A vector becomes one column."""
    if isinstance(value, jax.core.Tracer):
        return value[:, None] if value.ndim == 1 else value
    array = _array(value, name)
    if array.ndim not in (1, 2):
        got = type(value).__name__ if array.dtype.kind == "O" else f"shape {tuple(array.shape)}"
        raise ValueError(f"{name} must be a vector [N] or a matrix [N, columns], got {got}.")
    if array.dtype.kind in "OUS":
        array = _numbers(np.asarray(array), name, value)
    _check_kind(array.dtype, name)
    if array.ndim == 1:
        array = np.asarray(array)[:, None]  # indexing a JAX array under jit gives a tracer, even of a concrete one
    if not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize > 8:
        array = np.asarray(array, float)
    return array


def _here(value: Any, name: str) -> Any:
    """A value that this process can read. Of an array that all processes hold, it is the copy of this process.

    Raises:
        ValueError: if it is an array of which each process holds only some rows.
    """
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer) or value.is_fully_addressable:
        return value
    if not value.is_fully_replicated:
        raise ValueError(
            f"{name}: the entries of an array {list(value.shape)} are spread over {jax.process_count()} processes. To "
            "train on such rows, pass an ig.Stream, of which each process reads its share; for anything else, pass the "
            "rows of this process, or all of them: jax.experimental.multihost_utils.process_allgather(a, tiled=True)."
        )
    return local(value)


def _array(value: Any, name: str) -> Array | np.ndarray:
    """An array of any shape and kind of entries."""
    value = _here(value, name)
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise TypeError(f"{name} must be an array of numbers, got random keys.")
    if hasattr(value, "to_numpy"):  # pandas and polars
        _no_dates(value, name)
        value = value.to_numpy()
    if hasattr(value, "toarray"):  # SciPy's sparse matrices
        raise TypeError(f"{name} is sparse, a {type(value).__name__}; pass {name}.toarray().")
    if isinstance(value, np.ma.MaskedArray):  # masked entries are missing
        value = np.where(np.ma.getmaskarray(value), np.nan, value.data)
    try:
        return value if isinstance(value, jax.Array) else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must have rows of equal length: {error}") from error


def _check_kind(dtype: Any, name: str) -> None:
    """Raise a TypeError unless the entries are real numbers."""
    if dtype.names:
        raise TypeError(
            f"{name} has named columns, {', '.join(dtype.names)}; make a matrix of them by "
            "numpy.lib.recfunctions.structured_to_unstructured."
        )
    if dtype.kind == "c":
        raise TypeError(f"{name} must be real numbers, got dtype {dtype}.")
    if dtype.kind in "mM":
        raise TypeError(
            f"{name} must be numbers, got dates or times of dtype {dtype}; count them in a unit, such as "
            "(t - t.min()) / np.timedelta64(1, 'D')."
        )


def _no_dates(value: Any, name: str) -> None:
    """Raise a TypeError for dates or times in a polars frame, which polars would convert to days or microseconds."""
    if type(value).__module__.startswith("polars"):
        for column, dtype in getattr(value, "schema", {}).items():
            if dtype.is_temporal():
                raise TypeError(
                    f"{name} must be numbers, got dates or times, {dtype}, in column {column!r}; count them in a unit, "
                    "such as (t - t.min()).dt.total_seconds() / 86400."
                )


def _numbers(array: np.ndarray, name: str, given: Any) -> np.ndarray:
    if array.dtype.kind == "O":  # nullable columns of pandas hold NA, which becomes NaN
        array = np.where(np.frompyfunc(lambda v: type(v).__name__ == "NAType", 1, 1)(array).astype(bool), np.nan, array)
    try:
        return array.astype(float)
    except (TypeError, ValueError, OverflowError):
        for column, values in enumerate(np.atleast_2d(array.T).tolist()):
            for v in values:
                try:
                    float(v)
                except OverflowError:
                    raise ValueError(
                        f"{name} has a number in column {_called(given, column)} that float64 cannot hold; choose "
                        "another unit."
                    ) from None
                except (TypeError, ValueError):
                    raise TypeError(
                        f"{name} has {v!r} in column {_called(given, column)}, which is not a number; encode text as "
                        "numbers, and count times in a unit, first."
                    ) from None
        raise
