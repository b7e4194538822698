"""Derivative features (section 2.3)."""

from collections.abc import Callable
from functools import reduce
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.declared import shown
from inducing.features.base import AbstractFeatures, as_inducing_inputs, check_columns, general_Kuf, general_Kuu, refuse
from inducing.parameters import as_tuple, as_whole, one_or_several, real


def as_derivatives(name: str, dims: Any) -> tuple[tuple[int, ...], ...]:
    """Derivatives as tuples of columns.

    Args:
        name: the name of the argument, for the message.
        dims: a sequence of columns, counted from 0, or of tuples of columns for derivatives of higher order.

    Returns:
        The columns of each derivative, in increasing order.

    Raises:
        ValueError: if `dims` is empty or holds anything else.

    Examples:
        >>> as_derivatives("dims", [0, (1, 0)])      # ∂f/∂x_0 and ∂²f/∂x_0∂x_1
        ((0,), (0, 1))
    """
    several = dims if isinstance(dims := as_tuple(dims), tuple) else ()
    out = [tuple(as_whole(c) for c in one_or_several(d)) for d in several]
    wrong = [columns for columns in out if not columns or not all(isinstance(c, int) and c >= 0 for c in columns)]
    if wrong or not out:
        raise ValueError(
            f"{name} must hold columns counted from 0, such as 1, or tuples of columns such as (0, 0) for a second "
            f"derivative; got {dims!r}."
        )
    return tuple(tuple(sorted(columns)) for columns in out)


def directional(fn: Callable, X: Float[Array, "N D"], along: Float[Array, "order N D"]) -> Array:
    """The derivative of fn(X) along several directions one after the other, one for each row of X.

    Args:
        fn: a function of X whose results for a row depend on that row only.
        X: the points.
        along: the directions; fn(X) itself if there are none.

    Returns:
        An array of the shape of fn(X).

    Examples:
        >>> X = jnp.full((1, 1), 2.0)
        >>> directional(lambda X: X**3, X, jnp.ones((2, 1, 1))).tolist()      # 6 x
        [[12.0]]
    """

    def slope(fn: Callable, direction: Array) -> Callable:
        return lambda X: jax.jvp(fn, (X,), (direction,))[1]

    return reduce(slope, along, fn)(X)


def differentiate(fn: Callable, X: Float[Array, "N D"], derivatives: tuple[tuple[int, ...], ...]) -> Array:
    """Partial derivatives of fn(X) along a new last axis.

    Args:
        fn: a function of X whose results for a row depend on that row only.
        X: the points.
        derivatives: the columns of each derivative; () stands for fn(X) itself.

    Returns:
        An array [*fn(X).shape, number of derivatives].

    Examples:
        >>> differentiate(lambda X: X[:, 0] ** 3, jnp.full((1, 1), 2.0), ((), (0,), (0, 0))).tolist()
        [[8.0, 12.0, 12.0]]
    """
    eye, results, places = np.eye(X.shape[1]), [], []
    for order in sorted({len(columns) for columns in derivatives}):  # those of one order at once
        own = [i for i, columns in enumerate(derivatives) if len(columns) == order]
        along = jnp.asarray([[eye[c] for c in derivatives[i]] for i in own], X.dtype)
        along = jnp.broadcast_to(along.reshape(len(own), order, 1, X.shape[1]), (len(own), order, *X.shape))
        results.append(jax.vmap(lambda along: directional(fn, X, along), out_axes=-1)(along))
        places += own
    return jnp.concatenate(results, axis=-1)[..., np.argsort(places)]


def _as_dims(dims: Any) -> Any:
    dims = as_whole(as_tuple(dims))
    if isinstance(dims, jax.Array):
        raise TypeError(f"dims must hold columns counted from 0, got {shown(dims)}.")
    if not isinstance(dims, tuple):
        return dims  # one column, None, or what `Module` refuses
    each = (as_tuple(d) for d in dims)
    return tuple(tuple(as_whole(c) for c in d) if isinstance(d, tuple) else as_whole(d) for d in each)


class InducingDerivatives(AbstractFeatures):
    """Partial derivatives of the function at given inputs (eq:muui_id_d to eq:suuij_id_d).

        u[m] = ∂f/∂x_{d(m)} (Z_m),    Kuf[m](x) = ∂k(Z_m, x)/∂z_{d(m)},    Kuu[m, n] = ∂²k(Z_m, Z_n)/∂z_{d(m)}∂z'_{d(n)}

    The derivatives are computed by automatic differentiation. The process must have them in mean square; Matern12, for
    example, has none, and Matern32 has first derivatives only.

    Args:
        Z: the inputs [K, D], which are trained.
        dims: the dimension of each derivative: one for all rows of Z, one for each row [K], or None for all partial
            derivatives at each row, M = K·D features ordered by rows. For a derivative of higher order give a row
            several dimensions, such as (0, 0) for ∂²f/∂x_0².

    Raises:
        ValueError: if Z is not a matrix, or if `dims` does not fit it.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> gradient = ig.features.InducingDerivatives([[0.0, 1.0], [2.0, 3.0]])
        >>> gradient.num_features
        4
        >>> slope = ig.features.InducingDerivatives([[0.0, 1.0], [2.0, 3.0]], dims=1)
        >>> slope.apply(lambda X: X[:, 0] * X[:, 1] ** 2).tolist()
        [0.0, 12.0]
        >>> curvature = ig.features.InducingDerivatives([[0.0, 1.0], [2.0, 3.0]], dims=[(1, 1), (1, 1)])
        >>> curvature.apply(lambda X: X[:, 0] * X[:, 1] ** 2).tolist()
        [0.0, 4.0]
    """

    Z: Float[Array, "K D"] = real(converter=as_inducing_inputs)
    dims: tuple[int | tuple[int, ...], ...] | int | None = eqx.field(static=True, default=None, converter=_as_dims)
    exact: ClassVar[bool] = True
    uses_kernel: ClassVar[bool] = False

    def __check_init__(self):
        if not eqx.is_array(self.Z):
            return
        shape = self.Z.shape
        if len(shape) != 2:
            raise ValueError(f"InducingDerivatives.Z must be [K, D], one input per row, got shape {list(shape)}.")
        dims = (self.dims,) if isinstance(self.dims, int) else self.dims
        if dims is None:
            return
        if not isinstance(self.dims, int) and len(dims) != shape[0]:
            raise ValueError(
                f"InducingDerivatives.dims has {len(dims)} entries for {shape[0]} rows of Z; pass one for each row."
            )
        every = [c for d in dims for c in (d if isinstance(d, tuple) else (d,))]
        wrong = [d for d in every if not isinstance(d, int) or not 0 <= d < shape[1]]
        if wrong:
            raise ValueError(
                f"InducingDerivatives.dims holds {wrong[0]!r} but Z has {shape[1]} columns, counted from 0."
            )

    @property
    def locations(self) -> Float[Array, "K D"]:
        return self.Z

    @property
    def num_features(self) -> int:
        return self.Z.shape[0] * (self.Z.shape[1] if self.dims is None else 1)

    def _derivatives(self) -> tuple[tuple[int, ...], ...]:
        """The dimensions of each of the M derivatives."""
        K, D = self.Z.shape
        if self.dims is None:
            return tuple((d,) for d in range(D)) * K
        dims = (self.dims,) * K if isinstance(self.dims, int) else self.dims
        return tuple(d if isinstance(d, tuple) else (d,) for d in dims)

    def apply(self, f, kernel=None):
        D, dims = self.Z.shape[1], self._derivatives()
        Z = jnp.repeat(self.Z, D, axis=0) if self.dims is None else self.Z
        eye, results, places = np.eye(D), [], []
        for order in sorted({len(d) for d in dims}):  # those of one order at once
            own = [m for m, d in enumerate(dims) if len(d) == order]
            along = np.asarray([[eye[dims[m][i]] for m in own] for i in range(order)]).reshape(order, len(own), D)
            rows = Z if len(own) == len(dims) else Z[np.asarray(own)]
            results.append(directional(f, rows, jnp.asarray(along, Z.dtype)))
            places += own
        return results[0] if len(results) == 1 else jnp.concatenate(results)[np.argsort(places)]

    def Kuu(self, kernel, jitter):
        self._check(kernel)
        return general_Kuu(self, kernel, jitter)

    def Kuf(self, kernel, X):
        self._check(kernel)
        check_columns(self, X, self.Z.shape[1])
        return general_Kuf(self, kernel, X)

    def _check(self, kernel):
        D = self.Z.shape[1]
        missing = [d for d in sorted(set(self._derivatives())) if not kernel.has_derivative(d, D)]
        if missing:
            rough = [column for column in missing[0] if not kernel.has_derivative((column,), D)]
            what = f"a derivative along column {rough[0]}" if rough else f"the derivative along columns {missing[0]}"
            refuse(
                self,
                kernel,
                f"a kernel whose process has {what}",
                "use Matern32, Matern52, SquaredExponential or another smooth kernel, or features.InducingPoints",
            )
