"""Integral features: the general definition of section 2.3, u[m] = ∫ f(x) φ_m(x) dx."""

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
    """Integrals against any functions over a box: eq:muui_id, eq:sfu:i_id, eq:suuij_id, by Gauss–Legendre quadrature.

        u[m] = ∫ f(x) φ_m(x) dx ≈ Σ_g w_g φ_m(x_g) f(x_g)

    `phi` maps one point [D] to the values of all M functions there [M], and may be an Equinox module with parameters
    that are trained. `lower` and `upper` [D] are the corners of the box and `nodes` the points per dimension. The sum
    on the right is what u *is*, in Kuu, Kuf and draws alike, so bounds are bounds however few nodes there are.

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
        unit, w = tensor(*_panels(self.nodes), self.lower.shape[0])
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
        check_points(kernel, _inside(self.lower, self.upper))


class RegionAverage(AbstractFeatures):
    """Averages of f over M boxes, whose corners are `lower` and `upper` [M, D]: aggregated or areal data.

        u[m] = 1/|B_m| ∫_{B_m} f(x) dx

    With `nodes` Gauss–Legendre points per dimension of each box, in Kuu, Kuf and draws alike.

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
        check_points(kernel, _inside(self.lower, self.upper))


class _Waves(Module):
    a: Float[Array, ""] = fixed()
    b: Float[Array, ""] = fixed()
    num: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, " 1"]) -> Float[Array, " M"]:
        m = jnp.arange(1, self.num + 1, dtype=x.dtype)
        angle = 2.0 * math.pi * m * (x[0] - self.a) / (self.b - self.a)
        return jnp.concatenate([jnp.ones(1, x.dtype), jnp.cos(angle), jnp.sin(angle)])


def plain_fourier(a: Any, b: Any, num: SupportsIndex, nodes: int | None = None) -> Integral:
    """The Fourier features of the paper's definition, with a boundary: u[m] = ∫ₐᵇ f(x) φ_m(x) dx, for any kernel.

    φ = (1, cos ω_m(x − a), …, sin ω_m(x − a), …) with `num` frequencies ω_m = 2πm/(b − a) as in `Fourier`, whose inner
    product is another one: here Kuu is dense and Kuf depends on the kernel and needs quadrature.

    >>> import inducing as ig
    >>> ig.features.plain_fourier(0.0, 1.0, 3).num_features
    7
    """
    num = as_whole(num)
    if not isinstance(num, int) or num < 1:
        raise ValueError(f"plain_fourier: num must be a whole number of frequencies from 1, got {num!r}.")
    nodes = 16 * max(4, num) if nodes is None else nodes
    return Integral(_Waves(a, b, num), jnp.stack([as_float_array(a)]), jnp.stack([as_float_array(b)]), nodes)


def _panels(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """`nodes` points on [0, 1] in panels of 16, which kernels with kinks like better than one rule of high order."""
    return gauss_legendre(nodes) if nodes < 32 else gauss_legendre(16, -(-nodes // 16))


def _inside(lower: Any, upper: Any) -> np.ndarray | None:
    """A point in each box, and in no category of a kernel that has them; None if the boxes are traced."""
    if any(isinstance(v, jax.core.Tracer) for v in (lower, upper)):
        return None
    a, b = np.atleast_2d(lower), np.atleast_2d(upper)
    return a + 0.37 * np.minimum(b - a, 1.0)


def check_box(features: AbstractFeatures, lower: Any, upper: Any, ndim: int = 1) -> None:
    """lower < upper in every dimension."""
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
