"""The interface of inducing features, linear functionals of f (section 2.3)."""

import abc
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, ClassVar, NoReturn

import jax
import numpy as np
from jaxtyping import Array, Float

from inducing.data import check_resolution
from inducing.kernels.base import AbstractKernel
from inducing.linalg import AbstractCovariance, Dense
from inducing.parameters import Module, as_float_array, question


def as_inducing_inputs(Z: Any) -> Any:
    """Inducing inputs as a new floating-point array, unless its dtype cannot tell them apart."""
    check_resolution(Z, "Z")
    return as_float_array(Z)


class AbstractFeatures(Module):
    """M linear functionals of a scalar function, u = apply(f).

        μ_u = apply(μ),    Kuf(x) = apply(k(·, x)),    Kuu = apply(x ↦ Kuf(x)ᵀ)

    `apply` defines the features, and everything else follows from it; the residual of a pathwise draw, for example, is
    apply(prior draw). Features implement Kuu and Kuf in closed form where there is one, and otherwise call
    `general_Kuu` and `general_Kuf`. Some functionals depend on the kernel (inner products in its Hilbert space,
    integrals against its eigenfunctions), so `apply` receives the kernel; others ignore it.

    Two class attributes describe `apply`. `exact` is True if it is the functional itself and not a quadrature of it.
    `uses_kernel` is True if it depends on the kernel. docs/extend.md shows how to write features of your own.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> features = ig.features.InducingDerivatives([[0.0], [1.0]])
        >>> features.apply(lambda X: X[:, 0] ** 2).tolist()      # the slopes of x² at 0 and 1
        [0.0, 2.0]
    """

    _such_as = "features, such as ig.features.InducingPoints(Z)"

    exact: ClassVar[bool] = False
    uses_kernel: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """M, the number of features."""

    @abc.abstractmethod
    def apply(self, f: Callable[[Float[Array, "n D"]], Array], kernel: AbstractKernel | None = None) -> Array:
        """The features of a function.

        Args:
            f: a function of points [n, D] with values [n, …]. The result is linear in f.
            kernel: the kernel of the process; features with `uses_kernel` need it.

        Returns:
            u [M, …].
        """

    @abc.abstractmethod
    def Kuu(self, kernel: AbstractKernel, jitter: float) -> AbstractCovariance:
        """The prior covariance of the features.

        Args:
            kernel: the kernel of the process.
            jitter: what to add to the diagonal of a dense matrix, relative to each entry.

        Returns:
            Cov(u, u) [M, M], as a structured operator.

        Raises:
            TypeError: if the features cannot be used with this kernel.
        """

    @abc.abstractmethod
    def Kuf(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """The prior covariance of the features and the function values.

        Args:
            kernel: the kernel of the process.
            X: points [N, D].

        Returns:
            Cov(u, f(X)) [M, N].

        Raises:
            TypeError: if the features cannot be used with this kernel.
            ValueError: if X does not have as many columns as the features expect.
        """

    @property
    @question
    def locations(self) -> Float[Array, "n D"] | None:
        """The locations [n, D] of the features in the space of the inputs; None if they have none.

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

    @property
    @question
    def uses_terms(self) -> bool:
        """Whether u depends on the single terms of a sum f = Σ_i f_i, and not only on f."""
        return False

    @question
    def units(self) -> list[tuple[Array, Any]]:
        """Parameters that are not locations, with the units in which training moves them.

        Unconstrained matrices that are not among them are taken for locations in the space of inputs. By default, the
        answers of features inside these features.
        """
        parts = jax.tree.leaves(self, is_leaf=lambda v: isinstance(v, AbstractFeatures) and v is not self)
        return [unit for part in parts if isinstance(part, AbstractFeatures) for unit in part.units()]

    @question
    def fixed_sums(
        self, X: Float[Array, "N D"], y: Float[Array, " N"], count: Float[Array, " N"]
    ) -> tuple[Float[Array, "M M"], Float[Array, " M"]]:
        """Kuf W Kfu and Kuf W y over the data, for features whose Kuf does not depend on the kernel's parameters.

        W = diag(count). They need a stationary kernel. By default features refuse.

        Args:
            X: concrete inputs [N, D].
            y: the labels of one output [N].
            count: how often each label counts [N]: the weight of its row, and 0 if it is missing.

        Returns:
            The two sums.

        Raises:
            TypeError: if Kuf depends on the kernel's parameters.
            ValueError: if it does so at some of the inputs.
        """
        raise TypeError(
            f"Kuf of {type(self).__name__} features depends on the parameters of the kernel, so sums over the data "
            "cannot be computed in advance; use features.Fourier, or ig.collapsed_elbo."
        )

    @question
    def check_inputs(self, kernel: AbstractKernel) -> None:
        """Raise a ValueError if the kernel cannot take the locations of the features."""
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
    """Kuf by its definition (eq:sfu:i_id).

        Kuf = apply(k(·, X))

    Args:
        features: the features.
        kernel: the kernel of the process.
        X: points [N, D].

    Returns:
        Cov(u, f(X)) [M, N].

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> X, kernel = jnp.linspace(0.0, 1.0, 3)[:, None], ig.kernels.Matern32()
        >>> features = ig.features.Fourier(-2.0, 3.0, 4)      # Kuf in closed form
        >>> general = ig.features.general_Kuf(features, kernel, X)      # by quadrature
        >>> bool(jnp.allclose(general, features.Kuf(kernel, X), atol=1e-4))
        True
    """
    return features.apply(lambda Z: kernel.gram(Z, X), kernel)


def general_Kuu(features: AbstractFeatures, kernel: AbstractKernel, jitter: float) -> Dense:
    """Kuu by its definition (eq:suuij_id): the functionals of both arguments of the kernel.

        Kuu = apply(x ↦ Kuf(x)ᵀ)

    Args:
        features: the features.
        kernel: the kernel of the process.
        jitter: what to add to the diagonal, relative to each entry.

    Returns:
        Cov(u, u) [M, M], as a dense operator.

    Examples:
        >>> import inducing as ig
        >>> slopes = ig.features.InducingDerivatives([[0.0], [2.0]])
        >>> ig.features.general_Kuu(slopes, ig.kernels.SquaredExponential(), 0.0).dense().round(3).tolist()  # −3 e⁻²
        [[1.0, -0.406], [-0.406, 1.0]]
    """
    K = features.apply(lambda Z: features.Kuf(kernel, Z).T, kernel)
    return Dense(0.5 * (K + K.T), jitter)


def refuse(features: AbstractFeatures, kernel: Any, needs: str, alternatives: str) -> NoReturn:
    """Raise a TypeError for features and a kernel that do not fit: what the features need, and what to use instead."""
    own = type(features).__name__
    if isinstance(kernel, AbstractKernel):
        factors = kernel.factors()
        rest = [factor for factor in factors if not factor.is_constant]
        if 0 < len(rest) < len(factors) and _takes(features, reduce(operator.mul, rest)):
            alternatives = "a number in front, as in 2.0 * k, must become part of the variance of k"
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
    """Raise a ValueError if the kernel cannot take the points Z [n, D]; under `jit` their values are not checked."""
    if Z is not None and not isinstance(Z, jax.core.Tracer):
        kernel.check_inputs(np.asarray(Z))


def check_columns(features: AbstractFeatures, X: Array | np.ndarray, dim: int) -> None:
    """Raise a ValueError unless the inputs have as many columns as the features expect."""
    columns = X.shape[-1]
    if columns != dim:
        cure = "give them one for each column of the inputs"
        if dim == 1 and features.locations is None:
            cure = "for several use features.Product (product kernels) or features.Additive (sums)"
        raise ValueError(
            f"{type(features).__name__} features live in {dim} dimension{'s' if dim > 1 else ''} but the inputs have "
            f"{columns} column{'s' if columns != 1 else ''}; {cure}."
        )
