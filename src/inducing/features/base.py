"""What an inducing feature is: a linear functional of f (section 2.3)."""

import abc
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar, NoReturn

import jax
import numpy as np
from jaxtyping import Array, Float

from inducing.kernels.base import AbstractKernel
from inducing.linalg import AbstractCovariance, Dense
from inducing.parameters import Module, question


class AbstractFeatures(Module):
    """M linear functionals of a scalar function: u = apply(f).

    Everything else follows: μ_u = apply(μ), Kuf(x) = apply(k(·, x)), Kuu = apply(x ↦ Kuf(x)ᵀ), and the residual of a
    pathwise draw is apply(prior draw). A kind of feature gives Kuu and Kuf in closed form where there is one, and else
    by `general_Kuu` and `general_Kuf`. Some functionals are made of the kernel (inner products in its Hilbert space,
    its eigenfunctions), so `apply` is told the kernel; the others ignore it.

    `exact` says that `apply` is the functional itself and no quadrature of it, so that `Union` prefers it;
    `uses_kernel` that it depends on the kernel. For a kind of your own see docs/extend.md.

    >>> import jax.numpy as jnp, inducing as ig
    >>> features = ig.features.InducingDerivatives([[0.0], [1.0]])
    >>> features.apply(lambda X: X[:, 0] ** 2).tolist()      # the slopes of x² at 0 and 1
    [0.0, 2.0]
    """

    exact: ClassVar[bool] = False
    uses_kernel: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """M."""

    @abc.abstractmethod
    def apply(self, f: Callable[[Float[Array, "n D"]], Array], kernel: AbstractKernel | None = None) -> Array:
        """u [M, …] of a function f: [n, D] → [n, …]."""

    @abc.abstractmethod
    def Kuu(self, kernel: AbstractKernel, jitter: float) -> AbstractCovariance:
        """Cov(u, u) [M, M], with its structure."""

    @abc.abstractmethod
    def Kuf(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """Cov(u, f(X))."""

    @property
    @question
    def locations(self) -> Float[Array, "n D"] | None:
        """The points [n, D] in the space of inputs at which the features look at f; None if not at points.

        Often there is one point for each feature, but there may be more or fewer: all partial derivatives at one point
        are D features.
        """
        return None

    @property
    @question
    def are_values(self) -> bool:
        """Whether u = f(Z) with Z = `locations`: the features are values of f."""
        return False

    @property
    @question
    def num_inputs(self) -> int | None:
        """D, the number of columns of the inputs, if the features know it."""
        return None if self.locations is None else self.locations.shape[1]

    @question
    def check_inputs(self, kernel: AbstractKernel) -> None:
        """Raise a ValueError if the kernel cannot take the points that the features look at."""
        check_points(kernel, self.locations)


class Parts:
    """A function that is a sum of functions and knows its terms: a draw of a process whose kernel is a sum.

    Args:
        parts: the terms, functions of points [n, D].

    Examples:
        >>> import jax.numpy as jnp
        >>> f = Parts([lambda X: X[:, 0], lambda X: 2.0 * X[:, 0]])
        >>> f(jnp.ones((1, 1))).tolist(), len(f.parts)
        ([3.0], 2)
    """

    def __init__(self, parts: Sequence[Callable]):
        self.parts = tuple(parts)

    def __call__(self, X: Array) -> Array:
        return sum(part(X) for part in self.parts[1:]) + self.parts[0](X)


def general_Kuf(features: AbstractFeatures, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
    """Kuf by its definition, apply to k(·, X): eq:sfu:i_id.

    >>> import jax.numpy as jnp, inducing as ig
    >>> X, kernel = jnp.linspace(0.0, 1.0, 3)[:, None], ig.kernels.Matern32()
    >>> features = ig.features.Fourier(-2.0, 3.0, 4)      # Kuf in closed form
    >>> general = ig.features.general_Kuf(features, kernel, X)      # by quadrature
    >>> bool(jnp.allclose(general, features.Kuf(kernel, X), atol=1e-4))
    True
    """
    return features.apply(lambda Z: kernel.gram(Z, X), kernel)


def general_Kuu(features: AbstractFeatures, kernel: AbstractKernel, jitter: float) -> Dense:
    """Kuu by its definition, apply to both arguments of the kernel: eq:suuij_id.

    >>> import inducing as ig
    >>> slopes = ig.features.InducingDerivatives([[0.0], [2.0]])
    >>> ig.features.general_Kuu(slopes, ig.kernels.SquaredExponential(), 0.0).dense().round(3).tolist()      # −3 e⁻²
    [[1.0, -0.406], [-0.406, 1.0]]
    """
    K = features.apply(lambda Z: features.Kuf(kernel, Z).T, kernel)
    return Dense(0.5 * (K + K.T), jitter)


def refuse(features: AbstractFeatures, kernel: Any, needs: str, alternatives: str) -> NoReturn:
    """The error of a pair that cannot work: names the feature, the kernel, what is missing, and what to use instead."""
    own = type(features).__name__
    if isinstance(kernel, AbstractKernel):
        factors = kernel.factors()
        rest = [factor for factor in factors if not factor.is_constant]
        if 0 < len(rest) < len(factors) and _takes(features, reduce(operator.mul, rest)):
            alternatives = "a number in front, as in 2.0 * k, belongs into the variance of k"
        inner, columns = kernel.on_columns()
        if columns is not None and _takes(features, inner):
            alternatives = f"features.Product(({own}(…),)) reads the columns of an ActiveDims kernel"
    raise TypeError(f"{own} features need {needs}, not {type(kernel).__name__}; {alternatives}.")


def _takes(features: AbstractFeatures, kernel: AbstractKernel) -> bool:
    try:
        jax.eval_shape(lambda: features.Kuu(kernel, 0.0))
    except (TypeError, ValueError):
        return False
    return True


def check_points(kernel: AbstractKernel, Z: Any) -> None:
    """Points Z [n, D] must be such that the kernel takes; values under `jit` are not seen."""
    if Z is not None and not isinstance(Z, jax.core.Tracer):
        kernel.check_inputs(np.asarray(Z))


def check_columns(features: AbstractFeatures, X: Array | np.ndarray, dim: int) -> None:
    """Inputs must have the dimension that the features live in."""
    columns = X.shape[-1]
    if columns != dim:
        cure = "give them one for each column of the inputs"
        if dim == 1 and features.locations is None:
            cure = "for several use features.Product (product kernels) or features.Additive (sums)"
        raise ValueError(
            f"{type(features).__name__} features live in {dim} dimension{'s' if dim > 1 else ''} but the inputs have "
            f"{columns} column{'s' if columns != 1 else ''}; {cure}."
        )
