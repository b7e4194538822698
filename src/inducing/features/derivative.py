"""Derivative features (section 2.3) and unions of features."""

from functools import reduce
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures, check_columns, general_Kuf, general_Kuu, refuse
from inducing.linalg import Dense
from inducing.parameters import as_tuple, as_whole, real


def _as_dims(dims: Any) -> tuple[int, ...] | int | None:
    dims = as_whole(dims)
    return dims if dims is None or isinstance(dims, int) else tuple(as_whole(d) for d in dims)


class InducingDerivatives(AbstractFeatures):
    """Partial derivatives of the function at given inputs (eq:muui_id_d to eq:suuij_id_d).

        u[m] = ∂f/∂x_{d(m)} (Z_m),    Kuf[m](x) = ∂k(Z_m, x)/∂z_{d(m)},    Kuu[m, n] = ∂²k(Z_m, Z_n)/∂z_{d(m)}∂z'_{d(n)}

    The derivatives are computed by automatic differentiation. The process must have a derivative in mean square along
    the dimensions in question, which Matern12 does not.

    Args:
        Z: the inputs [K, D], which are trained.
        dims: the dimension of each derivative: one for all rows of Z, one for each row [K], or None for all partial
            derivatives at each row, M = K·D features ordered by rows.

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
    """

    Z: Float[Array, "K D"] = real()
    dims: tuple[int, ...] | int | None = eqx.field(static=True, default=None, converter=_as_dims)
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
        wrong = [d for d in dims if not isinstance(d, int) or not 0 <= d < shape[1]]
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

    def _points(self) -> tuple[Array, Array]:
        """The input and the direction of each feature, both [M, D]."""
        K, D = self.Z.shape
        eye = jnp.eye(D, dtype=self.Z.dtype)
        if self.dims is None:
            return jnp.repeat(self.Z, D, axis=0), jnp.tile(eye, (K, 1))
        dims = (self.dims,) * K if isinstance(self.dims, int) else self.dims
        return self.Z, eye[jnp.asarray(dims)]

    def apply(self, f, kernel=None):
        Z, direction = self._points()
        return jax.jvp(f, (Z,), (direction,))[1]

    def Kuu(self, kernel, jitter):
        self._check(kernel)
        return general_Kuu(self, kernel, jitter)

    def Kuf(self, kernel, X):
        self._check(kernel)
        check_columns(self, X, self.Z.shape[1])
        return general_Kuf(self, kernel, X)

    def _check(self, kernel):
        dims = range(self.Z.shape[1]) if self.dims is None else self.dims
        dims = (dims,) if isinstance(dims, int) else dims
        rough = sorted(d for d in dims if kernel.smoothness_along(d) < 1)
        if rough:
            refuse(
                self,
                kernel,
                f"a kernel whose process has a derivative along column {rough[0]}",
                "use Matern32, Matern52, SquaredExponential or another smooth kernel, or features.InducingPoints",
            )


class Union(AbstractFeatures):
    """Several kinds of features of one function, such as values and slopes.

        u = (u_1, u_2, …),    Kuu[a, b] = a.apply(x ↦ b.Kuf(x)ᵀ) for parts a and b

    Args:
        parts: the features to join.

    Raises:
        TypeError: if there are no parts, or if one of them is not of ig.features.

    Examples:
        >>> import inducing as ig
        >>> Z = [[0.0], [1.0]]
        >>> both = ig.features.Union((ig.features.InducingPoints(Z), ig.features.InducingDerivatives(Z)))
        >>> both.num_features, both.Kuu(ig.kernels.SquaredExponential(), 0.0).dense().shape
        (4, (4, 4))
    """

    parts: tuple[AbstractFeatures, ...] = eqx.field(converter=as_tuple)

    def __check_init__(self):
        check_parts(self, self.parts)

    @property
    def num_features(self) -> int:
        return sum(part.num_features for part in self.parts)

    @property
    def locations(self) -> Float[Array, "n D"] | None:
        own = [part.locations for part in self.parts]
        known = [Z for Z in own if Z is not None]
        return jnp.concatenate(known) if len(known) == len(own) else None

    @property
    def are_values(self) -> bool:
        return all(part.are_values for part in self.parts)

    @property
    def num_inputs(self) -> int | None:
        return next((part.num_inputs for part in self.parts if part.num_inputs is not None), None)

    def apply(self, f, kernel=None):
        return jnp.concatenate([part.apply(f, kernel) for part in self.parts])

    def Kuu(self, kernel, jitter):
        n = len(self.parts)
        rows: list[list[Any]] = [[None] * n for _ in range(n)]
        own = [part.Kuu(kernel, 0.0) for part in self.parts]
        for i, first in enumerate(self.parts):
            rows[i][i] = own[i].dense()
            for j, second in enumerate(self.parts[:i]):
                if first.exact or not second.exact:
                    block = first.apply(lambda X, b=second: b.Kuf(kernel, X).T, kernel)
                else:
                    block = second.apply(lambda X, b=first: b.Kuf(kernel, X).T, kernel).T
                rows[i][j], rows[j][i] = block, block.T
        K = Dense(jnp.concatenate([jnp.concatenate(row, 1) for row in rows]), jitter)
        # the parts may have needed jitter of their own
        used = reduce(jnp.maximum, [K.jitter] + [block.relative_jitter for block in own])
        return eqx.tree_at(lambda K: K.jitter, K, used)

    def Kuf(self, kernel, X):
        return jnp.concatenate([part.Kuf(kernel, X) for part in self.parts])

    def check_inputs(self, kernel):
        for part in self.parts:
            part.check_inputs(kernel)


def check_parts(features: AbstractFeatures, parts: tuple) -> None:
    """Raise a TypeError unless `parts` are one or more features."""
    if not parts:
        raise TypeError(f"{type(features).__name__}.parts must be one or more ig.features objects, got none.")
