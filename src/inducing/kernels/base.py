"""What a covariance function is: values at single points, Gram matrices, diagonals, and what it can do besides."""

import abc
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from inducing.parameters import Module, Start, question

Points = Num[Array | np.ndarray, "..."]  # [N, D]; checked by `as_inputs`, which says what to do about other shapes
FeatureMap = Callable[[Float[Array, "N D"]], Float[Array, "N num"]]


class AbstractKernel(Module):
    """A covariance function k(x, y) = cov(f(x), f(y)).

    Kernels form an algebra: `k1 + k2`, `k1 * k2`, `2.0 * k` and `k + 0.1` are kernels; a number is a `Constant`.

    >>> import jax.numpy as jnp, inducing as ig
    >>> k = 2.0 * ig.kernels.SquaredExponential(lengthscale=0.5) + 0.1
    >>> X = jnp.linspace(0.0, 1.0, 4)[:, None]
    >>> k.gram(X).shape, k.gram(X, X[:2]).shape, k.diag(X).shape
    ((4, 4), (4, 2), (4,))
    """

    __array_ufunc__: ClassVar[None] = None  # so that numpy_scalar * kernel reaches __rmul__

    @property
    @abc.abstractmethod
    def smoothness(self) -> int | float:
        """How many derivatives the process has in mean square (`math.inf` for all of them)."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        """The covariance k(x, y) at single points."""

    @abc.abstractmethod
    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        """k(X[i], X2[j]) for X [N, D] and X2 [N2, D]; without X2, X with itself (exactly symmetric)."""

    @abc.abstractmethod
    def diag(self, X: Points) -> Float[Array, " N"]:
        """k(X[i], X[i]) for X [N, D]."""

    @abc.abstractmethod
    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        """A map φ of points [N, dim] to about `num` features, with E φ(x)·φ(y) = k(x, y) over the key.

        With standard normal weights w, φ(·)·w is a random function with (in expectation) this covariance.
        Kernels of finite rank give their exact features, however many there are.
        """

    @question
    def check_inputs(self, X: np.ndarray) -> None:
        """Raise a ValueError if the kernel cannot take some value in X [N, D], such as an unknown category."""

    @question
    def smoothness_along(self, column: int) -> int | float:
        """How many derivatives the process has in mean square along one column of its inputs."""
        return self.smoothness

    @property
    @question
    def continuous_smoothness(self) -> int | float:
        """How many derivatives the process has in mean square along the columns of its inputs that are not categories.

        A kernel of categories alone answers `math.inf`. Priors whose kernels see rows (x, p), with the number of the
        output p as the last column, ask for this.
        """
        return self.smoothness

    @question
    def start(self, x: np.ndarray) -> list[Start]:
        """Starting values of lengthscales and weights for inputs x [N, D]; the variance is set by `amplitude`."""
        return []

    @question
    def amplitude(self) -> list[tuple[Array, float]]:
        """Parameters θ with powers p such that replacing each θ by θ cᵖ multiplies the kernel by c; [] if unknown."""
        variance: Any = getattr(self, "variance", None)
        return [(variance, 1.0)] if eqx.is_inexact_array(variance) else []

    @question
    def lengthscales(self) -> list[Array]:
        """Parameters ℓ such that dividing all of them by c lets functions vary c times as fast.

        By default those of the kernels inside this one.
        """
        parts = jax.tree.leaves(self, is_leaf=lambda v: isinstance(v, AbstractKernel) and v is not self)
        return [leaf for part in parts if isinstance(part, AbstractKernel) for leaf in part.lengthscales()]

    @question
    def units(self, x: np.ndarray) -> list[tuple[Array, np.ndarray]]:
        """Parameters that are locations in the space of x [N, D], each with the unit in which training moves it."""
        return []

    @question
    def terms(self) -> "tuple[AbstractKernel, ...]":
        """The kernels of which this one is the sum; itself if it is none."""
        return (self,)

    @question
    def factors(self) -> "tuple[AbstractKernel, ...]":
        """The kernels of which this one is the product; itself if it is none."""
        return (self,)

    @question
    def on_columns(self) -> "tuple[AbstractKernel, tuple[int, ...] | None]":
        """(k', dims) if this kernel is k'(x[dims], y[dims]), else (self, None)."""
        return self, None

    def __add__(self, other: Any) -> "AbstractKernel":
        from inducing.kernels.composite import Sum

        if isinstance(other, numbers.Real) and other == 0:
            return self  # as sum([k1, k2]) begins
        kernel = _as_kernel(other)
        return NotImplemented if kernel is None else Sum((self, kernel))

    def __mul__(self, other: Any) -> "AbstractKernel":
        from inducing.kernels.composite import Product

        kernel = _as_kernel(other)
        if kernel is None:
            return NotImplemented
        return Product((self, kernel) if kernel is other else (kernel, self))

    def __radd__(self, other: Any) -> "AbstractKernel":
        return self + other

    def __rmul__(self, other: Any) -> "AbstractKernel":
        return self * other


class AbstractPointKernel(AbstractKernel):
    """A kernel given by its value at single points; Gram matrices follow by `vmap`.

    Your own kernel is a subclass with its parameters as fields and `__call__`:

    >>> import jax.numpy as jnp, inducing as ig
    >>> from jaxtyping import Array
    >>> class Brownian(ig.kernels.AbstractPointKernel):
    ...     variance: Array = ig.parameters.positive(1.0)
    ...     def __call__(self, x, y):
    ...         return self.variance * jnp.minimum(x, y).sum()
    >>> Brownian(2.0).gram(jnp.array([[1.0], [3.0]])).tolist()
    [[2.0, 2.0], [2.0, 6.0]]

    Set the class attribute `smoothness` if the process has derivatives in mean square (`math.inf` for all of them):
    features and priors of derivatives need one.
    """

    smoothness: ClassVar[int | float] = 0

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_inputs(self, X, X2)
        K = jax.vmap(lambda x: jax.vmap(lambda y: self(x, y))(X if X2 is None else X2))(X)
        return symmetric(K) if X2 is None else K

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_inputs(self, X)
        return jax.vmap(lambda x: self(x, x))(X)

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        raise TypeError(
            f"{type(self).__name__} knows only its values, so it has no random features and no function draws; "
            "derive it from AbstractKernel and implement random_features, or use a built-in kernel."
        )


def _as_kernel(value: Any) -> AbstractKernel | None:
    """A kernel as it is, and a number as a `Constant`; None for anything else."""
    from inducing.kernels.constant import Constant

    if isinstance(value, AbstractKernel):
        return value
    scalar = isinstance(value, numbers.Real) or (isinstance(value, jax.Array | np.ndarray) and value.ndim == 0)
    return Constant(value) if scalar else None


def as_inputs(kernel: AbstractKernel, X: Any, X2: Any = None) -> tuple[Array, Array | None]:
    """X and X2 as matrices with the same number of columns, or an error that says what to do."""
    X = _as_matrix(kernel, X, "X")
    if X2 is None:
        return X, None
    X2 = _as_matrix(kernel, X2, "X2")
    if X.shape[1] != X2.shape[1]:
        raise ValueError(
            f"{type(kernel).__name__}.gram: X has {X.shape[1]} columns and X2 has {X2.shape[1]}; "
            "pass points of the same dimension."
        )
    return X, X2


def _as_matrix(kernel: AbstractKernel, X: Any, name: str) -> Array:
    X = jnp.asarray(X)
    if not jnp.issubdtype(X.dtype, jnp.floating):
        X = X.astype(float)
    if X.ndim != 2:
        cure = f"pass {name}[:, None] for one-dimensional inputs" if X.ndim == 1 else "reshape it to two axes"
        raise ValueError(f"{type(kernel).__name__}: {name} must have shape [N, D], got {list(X.shape)}; {cure}.")
    return X


def check_size(kernel: AbstractKernel, name: str, parameter: Array, dim: int) -> None:
    """A per-dimension parameter must have as many entries as the inputs have dimensions."""
    if parameter.shape not in ((), (dim,)):
        entries = f"{parameter.size} entries" if parameter.ndim == 1 else f"the shape {list(parameter.shape)}"
        raise ValueError(
            f"{type(kernel).__name__}.{name} has {entries} but the inputs have {dim} dimensions; "
            f"pass one {name} per dimension or a single number, or choose columns with ActiveDims."
        )


def symmetric(K: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """K with its rounding asymmetry removed."""
    return 0.5 * (K + K.T)
