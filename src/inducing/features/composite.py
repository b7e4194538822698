"""Features for products and sums of kernels, built from features for the single kernels."""

from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from inducing.features.base import AbstractFeatures, Parts, refuse
from inducing.features.derivative import check_parts
from inducing.features.quadrature_rules import at_nodes, check_nodes
from inducing.kernels.base import AbstractKernel
from inducing.linalg import BlockDiagonal, Kronecker
from inducing.parameters import as_tuple

MOST = 50_000


class Product(AbstractFeatures):
    """Tensor products of features, one kind for each factor of a product of kernels of different columns.

        k(x, x') = Π_i k_i(x[dims_i], x'[dims_i])
        u[m_1, m_2, …] = (u_1 ⊗ u_2 ⊗ …) f,    Kuf[m](x) = Π_i Kuf_i[m_i](x[dims_i]),    Kuu = Kuu_1 ⊗ Kuu_2 ⊗ …

    The functionals u_i of part i act on the columns of factor i. There are M = Π M_i features; the index of the first
    part varies slowest. Each factor must be an `ActiveDims` kernel, and their columns must not overlap. To scale the
    kernel, multiply the variance of one factor; do not write a number in front, as in `2.0 * k`.

    Draws, and means in coordinates "u", need `apply`, which evaluates f on the grid of all combinations of the parts'
    nodes. Fourier parts with 2 frequencies have 160 nodes each. More than 2²³ nodes are refused. Bounds and predictions
    do not need `apply`.

    Args:
        parts: the features of each factor, in the order of the factors.

    Raises:
        TypeError: if there are no parts, or if one of them is not of ig.features.
        ValueError: if there are more than 50,000 features.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.ActiveDims(ig.kernels.Matern32(), (0,)) * ig.kernels.ActiveDims(ig.kernels.Matern12(), (1,))
        >>> features = ig.features.Product((ig.features.Fourier(0.0, 1.0, 2), ig.features.Fourier(0.0, 1.0, 3)))
        >>> features.num_features, features.Kuf(k, jnp.zeros((4, 2))).shape
        (35, (35, 4))
    """

    parts: tuple[AbstractFeatures, ...] = eqx.field(converter=as_tuple)

    def __check_init__(self):
        check_parts(self, self.parts)
        if self.num_features > MOST:
            sizes = " × ".join(str(part.num_features) for part in self.parts)
            raise ValueError(
                f"Product of {sizes} features are {self.num_features}, more than {MOST}; use fewer features in each "
                "part, or features.Additive with a sum of kernels."
            )

    @property
    def num_features(self) -> int:
        return reduce(int.__mul__, [part.num_features for part in self.parts])

    def _factors(self, kernel: AbstractKernel | None) -> list[tuple[AbstractKernel, tuple[int, ...]]]:
        """The kernel and the columns of each factor."""
        factors = [] if kernel is None else [factor.on_columns() for factor in kernel.factors()]
        separate = [(k, dims) for k, dims in factors if dims is not None]
        used = [d for _, dims in separate for d in dims]
        if len(separate) != len(factors) or len(factors) != len(self.parts) or len(set(used)) != len(used):
            refuse(
                self,
                kernel,
                f"a product of {len(self.parts)} ActiveDims kernels of different columns",
                "write it as kernels.ActiveDims(k1, (0,)) * kernels.ActiveDims(k2, (1,))",
            )
        return separate

    def apply(self, f, kernel=None):
        factors = self._factors(kernel)
        width = 1 + max(d for _, dims in factors for d in dims)

        def nested(i: int, chosen: list[Array]) -> Array:
            """The functionals i, i + 1, … of f, at all combinations of points [n_j, d_j] of the earlier factors."""
            if i == len(factors):
                return _on_grid(f, [dims for _, dims in factors], chosen, width)  # [n_1, n_2, …, rest]
            own = self.parts[i].apply(lambda Z: jnp.moveaxis(nested(i + 1, [*chosen, Z]), i, 0), factors[i][0])
            return jnp.moveaxis(own, 0, i)

        u = nested(0, [])
        return u.reshape(self.num_features, *u.shape[len(factors) :])

    def Kuu(self, kernel, jitter):
        pairs = zip(self.parts, self._factors(kernel), strict=True)
        return Kronecker(tuple(part.Kuu(k, jitter) for part, (k, _) in pairs))

    def Kuf(self, kernel, X):
        pairs = zip(self.parts, self._factors(kernel), strict=True)
        each = [part.Kuf(k, X[:, jnp.asarray(dims)]) for part, (k, dims) in pairs]
        return reduce(lambda A, B: (A[:, None, :] * B[None, :, :]).reshape(len(A) * len(B), X.shape[0]), each)

    def check_inputs(self, kernel):
        for part, (k, _) in zip(self.parts, self._factors(kernel), strict=True):
            part.check_inputs(k)


def _on_grid(f: Any, dims: list[tuple[int, ...]], points: list[Array], width: int) -> Array:
    """f at all combinations of points [n_i, d_i] of the columns dims[i]: [n_1, n_2, …, rest]."""
    sizes = tuple(p.shape[0] for p in points)
    check_nodes(sizes)
    X = jnp.zeros((*sizes, width), points[0].dtype)
    for i, (own, p) in enumerate(zip(dims, points, strict=True)):
        shape = [1] * len(sizes)
        shape[i] = sizes[i]
        for column, d in enumerate(own):
            X = X.at[..., d].set(jnp.broadcast_to(p[:, column].reshape(shape), sizes))
    values = at_nodes(f, X.reshape(-1, width))
    return values.reshape(*sizes, *values.shape[1:])


class Additive(AbstractFeatures):
    """Features of the terms of a sum of kernels.

        f = Σ_i f_i,    k = Σ_i k_i,    u = (u_1, u_2, …),    u_i = parts[i].apply(f_i)
        Kuf = (Kuf_1, Kuf_2, …),    Kuu = blockdiag(Kuu_1, Kuu_2, …)

    Kuu is block diagonal because the terms are independent a priori. If a term is an `ActiveDims` kernel, its part sees
    only those columns. The mean of the prior belongs to the first term, whose part sees it with all other columns at 0.

    Args:
        parts: the features of each term, in the order of the terms.

    Raises:
        TypeError: if there are no parts, or if one of them is not of ig.features.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.ActiveDims(ig.kernels.Matern32(), (0,)) + ig.kernels.ActiveDims(ig.kernels.Matern12(), (1,))
        >>> features = ig.features.Additive((ig.features.Fourier(0.0, 1.0, 2), ig.features.Fourier(0.0, 1.0, 3)))
        >>> features.num_features, features.Kuf(k, jnp.zeros((4, 2))).shape
        (12, (12, 4))
    """

    parts: tuple[AbstractFeatures, ...] = eqx.field(converter=as_tuple)

    def __check_init__(self):
        check_parts(self, self.parts)

    @property
    def num_features(self) -> int:
        return sum(part.num_features for part in self.parts)

    def _terms(self, kernel: AbstractKernel | None) -> list[tuple[AbstractKernel, tuple[int, ...] | None]]:
        """The kernel and the columns of each term; None stands for all columns."""
        terms = () if kernel is None else kernel.terms()
        if len(terms) != len(self.parts):
            refuse(
                self,
                kernel,
                f"a sum of {len(self.parts)} kernels, one for each part",
                f"this kernel has {len(terms)} term{'s' if len(terms) > 1 else ''}",
            )
        return [term.on_columns() for term in terms]

    def apply(self, f, kernel=None):
        terms = self._terms(kernel)
        functions = f.parts if isinstance(f, Parts) else (f,)
        if len(functions) != len(terms):
            raise TypeError(
                f"Additive features are functionals of the {len(terms)} terms of f, so f must be a sum that knows its "
                f"terms (as draws of a prior with a sum of kernels do), not a plain function."
            )

        width = 1 + max((d for _, dims in terms for d in dims or ()), default=0)

        def spread(g: Any, dims: tuple[int, ...]) -> Any:
            def of_columns(Z):
                X = jnp.zeros((Z.shape[0], width), Z.dtype)
                return g(X.at[:, jnp.asarray(dims)].set(Z))

            return of_columns

        items = zip(self.parts, functions, terms, strict=True)
        return jnp.concatenate([part.apply(g if d is None else spread(g, d), k) for part, g, (k, d) in items])

    def Kuu(self, kernel, jitter):
        return BlockDiagonal(tuple(p.Kuu(k, jitter) for p, (k, _) in zip(self.parts, self._terms(kernel), strict=True)))

    def Kuf(self, kernel, X):
        items = zip(self.parts, self._terms(kernel), strict=True)
        return jnp.concatenate([p.Kuf(k, X if d is None else X[:, jnp.asarray(d)]) for p, (k, d) in items])

    def check_inputs(self, kernel):
        for part, (k, _) in zip(self.parts, self._terms(kernel), strict=True):
            part.check_inputs(k)
