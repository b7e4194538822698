"""Features built from features: for products and sums of kernels, and several kinds for one kernel."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures, Parts, refuse
from inducing.features.quadrature_rules import at_nodes, check_nodes
from inducing.kernels.base import AbstractKernel
from inducing.linalg import BlockDiagonal, Dense, Kronecker
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
        TypeError: if there are no parts, if one of them is not of ig.features, or if one of them looks at the terms of
            a sum, as `Additive` does. A product of sums is a sum of products, so use Additive of Products instead.
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
        sums = [i for i, part in enumerate(self.parts) if part.uses_terms]
        if sums:
            raise TypeError(
                f"Product.parts[{sums[0]}] looks at the terms of a sum of kernels, but a draw of a product of kernels "
                "does not know them. Expand the product: write the kernel (k1 + k2) * k3 as k1 * k3 + k2 * k3 and the "
                "features as Additive((Product((u1, u3)), Product((u2, u3)))); k3 and u3, if they are the same objects "
                "in both places, keep the same values in training."
            )
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
    only those columns; if that kernel is a sum again, its part may be `Additive` too. The mean of the prior belongs to
    the first term, whose part sees it with all other columns at 0.

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
    uses_terms = True

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
                f"this kernel has {len(terms)} term{'s' if len(terms) > 1 else ''}, a sum of sums being one sum",
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
        items = zip(self.parts, functions, terms, strict=True)
        return jnp.concatenate(
            [part.apply(g if d is None else _of_columns(g, d, width), k) for part, g, (k, d) in items]
        )

    def Kuu(self, kernel, jitter):
        return BlockDiagonal(tuple(p.Kuu(k, jitter) for p, (k, _) in zip(self.parts, self._terms(kernel), strict=True)))

    def Kuf(self, kernel, X):
        items = zip(self.parts, self._terms(kernel), strict=True)
        return jnp.concatenate([p.Kuf(k, X if d is None else X[:, jnp.asarray(d)]) for p, (k, d) in items])

    def check_inputs(self, kernel):
        for part, (k, _) in zip(self.parts, self._terms(kernel), strict=True):
            part.check_inputs(k)


def _of_columns(g: Callable, dims: tuple[int, ...], width: int) -> Callable:
    """g as a function of the columns `dims` of its `width` columns, the others being 0; term by term if g is a sum."""
    if isinstance(g, Parts):
        return Parts([_of_columns(part, dims, width) for part in g.parts])

    def of_columns(Z):
        X = jnp.zeros((Z.shape[0], width), Z.dtype)
        return g(X.at[:, jnp.asarray(dims)].set(Z))

    return of_columns


class Union(AbstractFeatures):
    """Several kinds of features of one function, such as values and slopes.

        u = (u_1, u_2, …),    Kuu[a, b] = a.apply(x ↦ b.Kuf(x)ᵀ) for parts a and b

    The covariance of two `Additive` parts is block-diagonal, since the terms of a sum are independent.

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

    @property
    def uses_terms(self) -> bool:
        return any(part.uses_terms for part in self.parts)

    def apply(self, f, kernel=None):
        return jnp.concatenate([part.apply(f, kernel) for part in self.parts])

    def Kuu(self, kernel, jitter):
        n = len(self.parts)
        rows: list[list[Any]] = [[None] * n for _ in range(n)]
        own = [part.Kuu(kernel, 0.0) for part in self.parts]
        for i, first in enumerate(self.parts):
            rows[i][i] = own[i].dense()
            for j, second in enumerate(self.parts[:i]):
                block = _cross(first, second, kernel)
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


def _cross(first: AbstractFeatures, second: AbstractFeatures, kernel: AbstractKernel) -> Float[Array, "M M2"]:
    """The covariance of two kinds of features of one function, by `apply` of one to Kuf of the other."""
    if isinstance(first, Union):
        return jnp.concatenate([_cross(part, second, kernel) for part in first.parts])
    if isinstance(second, Union):
        return _cross(second, first, kernel).T
    if isinstance(first, Additive) and isinstance(second, Additive):
        triples = zip(first.parts, second.parts, first._terms(kernel), strict=True)
        return block_diag(*[_cross(a, b, k) for a, b, (k, _) in triples])
    # Kuf does not know its terms. Otherwise apply those that are not a quadrature.
    if second.uses_terms or (not first.uses_terms and (first.exact or not second.exact)):
        return first.apply(lambda X: second.Kuf(kernel, X).T, kernel)
    return second.apply(lambda X: first.Kuf(kernel, X).T, kernel).T


def check_parts(features: AbstractFeatures, parts: tuple) -> None:
    """Raise a TypeError unless `parts` are one or more features."""
    if not parts:
        raise TypeError(f"{type(features).__name__}.parts must be one or more ig.features objects, got none.")
