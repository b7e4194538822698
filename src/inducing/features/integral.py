"""Integral features, the general definition of section 2.3."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures, check_columns, check_points, general_Kuf, general_Kuu
from inducing.features.quadrature_rules import check_nodes, gauss_legendre, tensor
from inducing.parameters import Module, as_float_array, as_whole, fixed, real


class Integral(AbstractFeatures):
    """Integrals against arbitrary functions over a box, by Gauss–Legendre quadrature (eq:muui_id to eq:suuij_id).

        u[m] = ∫ f(x) φ_m(x) dx ≈ Σ_g w_g φ_m(x_g) f(x_g)

    The sum on the right defines u in Kuu, Kuf and draws alike, so the bound is valid for any number of nodes.

    Args:
        phi: φ, a function of one point [D] with the values of all functions [M]. An Equinox module is trained.
        lower: the lower corner of the box [D], not trained.
        upper: the upper corner of the box [D], not trained.
        nodes: the number of nodes in each dimension.

    Raises:
        ValueError: if the box is empty, if there are too many nodes, or if φ does not return a vector.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> moments = ig.features.Integral(lambda x: jnp.array([1.0, x[0]]), [0.0], [1.0])
        >>> [round(float(u), 6) for u in moments.apply(lambda X: X[:, 0])]
        [0.5, 0.333333]
    """

    phi: Callable[[Float[Array, " D"]], Float[Array, " M"]]
    lower: Float[Array, " D"] = fixed()
    upper: Float[Array, " D"] = fixed()
    nodes: int = eqx.field(static=True, default=64, converter=as_whole)
    exact: ClassVar[bool] = True
    uses_kernel: ClassVar[bool] = False

    def __check_init__(self):
        check_box(self, self.lower, self.upper)
        check_nodes([self.nodes] * self.lower.shape[0])
        shape = jax.eval_shape(self.phi, jax.ShapeDtypeStruct(self.lower.shape, self.lower.dtype)).shape
        if len(shape) != 1:
            raise ValueError(
                f"Integral.phi must give a vector, one value for each feature; it gives shape {list(shape)}."
            )

    @property
    def num_features(self) -> int:
        return jax.eval_shape(self.phi, jax.ShapeDtypeStruct(self.lower.shape, self.lower.dtype)).shape[0]

    @property
    def num_inputs(self) -> int:
        return self.lower.shape[0]

    def _rule(self) -> tuple[Array, Array]:
        unit, w = tensor(*panels(self.nodes), self.lower.shape[0])
        size = self.upper - self.lower
        dtype = self.lower.dtype
        return self.lower[None, :] + size[None, :] * jnp.asarray(unit, dtype), jnp.prod(size) * jnp.asarray(w, dtype)

    def apply(self, f, kernel=None):
        x, w = self._rule()
        return jnp.tensordot(jax.vmap(self.phi)(x).T * w[None, :], f(x), 1)

    def Kuu(self, kernel, jitter):
        return general_Kuu(self, kernel, jitter)

    def Kuf(self, kernel, X):
        check_columns(self, X, self.lower.shape[0])
        return general_Kuf(self, kernel, X)

    def check_inputs(self, kernel):
        check_points(kernel, inside(self.lower, self.upper))


class RegionAverage(AbstractFeatures):
    """Averages of the function over boxes, for aggregated or areal data.

        u[m] = 1/|B_m| ∫_{B_m} f(x) dx

    The integrals are Gauss–Legendre sums in Kuu, Kuf and draws alike.

    Args:
        lower: the lower corners of the boxes [M, D].
        upper: the upper corners of the boxes [M, D].
        nodes: the number of nodes in each dimension of a box.

    Raises:
        ValueError: if a box is empty, if the shapes differ, or if there are too many nodes.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> halves = ig.features.RegionAverage([[0.0], [0.5]], [[0.5], [1.0]])
        >>> [round(float(u), 6) for u in halves.apply(lambda X: X[:, 0])]
        [0.25, 0.75]
    """

    lower: Float[Array, "M D"] = real()
    upper: Float[Array, "M D"] = real()
    nodes: int = eqx.field(static=True, default=8, converter=as_whole)
    exact: ClassVar[bool] = True
    uses_kernel: ClassVar[bool] = False

    def __check_init__(self):
        check_box(self, self.lower, self.upper, 2)
        check_nodes([self.nodes] * self.lower.shape[1])

    @property
    def num_features(self) -> int:
        return self.lower.shape[0]

    @property
    def num_inputs(self) -> int:
        return self.lower.shape[1]

    def apply(self, f, kernel=None):
        M, D = self.lower.shape
        unit, w = tensor(*gauss_legendre(self.nodes), D)
        x = self.lower[:, None, :] + (self.upper - self.lower)[:, None, :] * jnp.asarray(unit, self.lower.dtype)[None]
        values = f(x.reshape(-1, D))
        values = values.reshape(M, w.shape[0], *values.shape[1:])
        return jnp.tensordot(jnp.asarray(w, self.lower.dtype), values, (0, 1))

    def Kuu(self, kernel, jitter):
        return general_Kuu(self, kernel, jitter)

    def Kuf(self, kernel, X):
        check_columns(self, X, self.lower.shape[1])
        return general_Kuf(self, kernel, X)

    def check_inputs(self, kernel):
        check_points(kernel, inside(self.lower, self.upper))


class Waves(Module):
    """The functions 1, cos 2πm(x − a)/(b − a) and sin 2πm(x − a)/(b − a) of `plain_fourier`."""

    a: Float[Array, ""] = fixed()
    b: Float[Array, ""] = fixed()
    num: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, " 1"]) -> Float[Array, " M"]:
        m = jnp.arange(1, self.num + 1, dtype=x.dtype)
        angle = 2.0 * math.pi * m * (x[0] - self.a) / (self.b - self.a)
        return jnp.concatenate([jnp.ones(1, x.dtype), jnp.cos(angle), jnp.sin(angle)])


def plain_fourier(a: Any, b: Any, num: SupportsIndex, nodes: int | None = None) -> Integral:
    """Integrals against sines and cosines on an interval, for any kernel.

        u[m] = ∫ₐᵇ f(x) φ_m(x) dx,    φ = (1, cos ω_m(x − a), …, sin ω_m(x − a), …),    ω_m = 2πm/(b − a)

    These are the Fourier features of the paper's definition. `Fourier` uses another inner product, for which Kuu is
    nearly diagonal; here Kuu is dense, and Kuf depends on the kernel and needs quadrature.

    Args:
        a: the lower end of the interval.
        b: the upper end of the interval.
        num: the number of frequencies.
        nodes: the number of quadrature nodes; by default 16 for each frequency, and at least 64.

    Returns:
        Features with 2 num + 1 functions.

    Raises:
        ValueError: if `num` is not a positive integer, or if a < b does not hold.

    Examples:
        >>> import inducing as ig
        >>> ig.features.plain_fourier(0.0, 1.0, 3).num_features
        7
    """
    num = as_whole(num)
    if not isinstance(num, int) or num < 1:
        raise ValueError(f"plain_fourier: num must be a whole number of frequencies from 1, got {num!r}.")
    nodes = 16 * max(4, num) if nodes is None else nodes
    return Integral(Waves(a, b, num), jnp.stack([as_float_array(a)]), jnp.stack([as_float_array(b)]), nodes)


def panels(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """About `nodes` points on [0, 1]; panels of 16 suit kernels with kinks better than one rule of high order."""
    return gauss_legendre(nodes) if nodes < 32 else gauss_legendre(16, -(-nodes // 16))


def inside(lower: Any, upper: Any) -> np.ndarray | None:
    """A point in each box that is not a whole number, so that kernels of categories refuse it; None if traced."""
    if any(isinstance(v, jax.core.Tracer) for v in (lower, upper)):
        return None
    a, b = np.atleast_2d(lower), np.atleast_2d(upper)
    return a + 0.37 * np.minimum(b - a, 1.0)


def check_box(features: AbstractFeatures, lower: Any, upper: Any, ndim: int = 1) -> None:
    """Raise a ValueError unless lower < upper in every dimension."""
    if any(isinstance(v, jax.core.Tracer) or not eqx.is_array(v) for v in (lower, upper)):
        return
    name, shape = type(features).__name__, "[D]" if ndim == 1 else "[M, D]"
    if lower.ndim != ndim or lower.shape != upper.shape:
        raise ValueError(
            f"{name}: lower and upper must both have shape {shape}, got {list(lower.shape)} and {list(upper.shape)}."
        )
    wrong = np.argwhere(~(np.asarray(lower) < np.asarray(upper)))
    if wrong.size:
        at = tuple(wrong[0])
        raise ValueError(
            f"{name}: lower must be below upper, got {lower[at]} and {upper[at]} at {[int(i) for i in at]}."
        )
