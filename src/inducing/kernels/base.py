"""The interface of covariance functions, and a base class for kernels given by their values at single points."""

import abc
import functools
import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from inducing.data import check_resolution
from inducing.declared import shown
from inducing.kernels.forms import Expansion, GaussianForm, LaplacianBasis, MaternForm, PsiStatistics
from inducing.parameters import Module, Start, as_numbers, question

Points = Num[Array | np.ndarray, "..."]  # [N, D]; `as_points` checks the shape and tells users how to correct it
FeatureMap = Callable[[Float[Array, "N D"]], Float[Array, "N num"]]


class AbstractKernel(Module):
    """A covariance function k(x, y) = Cov(f(x), f(y)).

    Kernels form an algebra: `k1 + k2`, `k1 * k2`, `2.0 * k` and `k + 0.1` are kernels, in which a number stands for a
    `Constant`. To write a kernel of your own, derive it from `AbstractPointKernel` or `AbstractStationary`.

    Besides its values, a kernel answers questions about itself: how to start training, whether it has a closed form
    that some features need, and so on. Every question has a default that is safe for any kernel. Override those to
    which your kernel has a better answer.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = 2.0 * ig.kernels.SquaredExponential(lengthscale=0.5) + 0.1
        >>> X = jnp.linspace(0.0, 1.0, 4)[:, None]
        >>> k.gram(X).shape, k.gram(X, X[:2]).shape, k.diag(X).shape
        ((4, 4), (4, 2), (4,))
    """

    __array_ufunc__: ClassVar[None] = None  # so that numpy_scalar * kernel calls __rmul__
    _such_as = "a kernel, such as ig.kernels.Matern52()"

    def __init_subclass__(cls, **kwargs: Any):
        """Make `kernel(x, y)` refuse matrices, which many formulas would silently reduce to one number."""
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("__call__")
        if own is not None and not getattr(own, "__isabstractmethod__", False):  # set by `abc`, on such methods alone

            @functools.wraps(own)
            def of_points(self, x, y):
                return own(self, *_as_pair(self, x, y))

            setattr(cls, "__call__", of_points)  # noqa: B010 — type checkers take an assignment for an override

    @property
    @abc.abstractmethod
    def smoothness(self) -> int | float:
        """How many derivatives the process has in mean square (`math.inf` if it has all of them)."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        """The covariance of f(x) and f(y).

        Args:
            x: one point [D].
            y: another point [D].

        Returns:
            k(x, y).
        """

    @abc.abstractmethod
    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        """The matrix of covariances k(X[i], X2[j]).

        Args:
            X: points [N, D].
            X2: points [N2, D]; None stands for X, and the result is then exactly symmetric.

        Returns:
            The covariances [N, N2].

        Raises:
            ValueError: if X or X2 is not a matrix, or if their numbers of columns do not fit.
        """

    @abc.abstractmethod
    def diag(self, X: Points) -> Float[Array, " N"]:
        """The variances k(X[i], X[i]).

        Args:
            X: points [N, D].

        Returns:
            The variances [N].
        """

    @abc.abstractmethod
    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        """A random map φ to features, with E φ(x)·φ(y) = k(x, y) over the key.

        With standard normal weights w, φ(·)·w is a random function with this covariance (in expectation over the key).

        Args:
            key: a random key.
            num: about how many features to use. A kernel of finite rank returns its exact features instead, however
                many it has.
            dim: D, the number of columns of the inputs.

        Returns:
            φ, a function of points [N, D] with values [N, num].

        Raises:
            TypeError: if the kernel has no random features.
        """

    @question
    def check_inputs(self, X: np.ndarray) -> None:
        """Raise a ValueError if the kernel cannot take some value in X [N, D], such as an unknown category."""

    @question
    def smoothness_along(self, column: int) -> int | float:
        """How many derivatives the process has in mean square along one column of its inputs.

        Examples:
            >>> import inducing as ig
            >>> smooth = ig.kernels.ActiveDims(ig.kernels.Matern52(), 0)
            >>> rough = ig.kernels.ActiveDims(ig.kernels.Matern12(), 1)
            >>> [(smooth * rough).smoothness_along(column) for column in (0, 1)]
            [2, 0]
        """
        return self.smoothness

    @question
    def has_derivative(self, columns: tuple[int, ...], dim: int | None = None) -> bool:
        """Whether the process has a partial derivative in mean square.

        By default, if it has as many derivatives along each of the columns (`smoothness_along`) as there are columns.

        Args:
            columns: the column of each differentiation: (0,) stands for ∂f/∂x_0, and (0, 0, 1) for ∂³f/∂x_0²∂x_1.
            dim: the number of columns of the inputs, if it is known.

        Examples:
            >>> import inducing as ig
            >>> k = ig.kernels.Matern52()
            >>> k.has_derivative((0, 0)), k.has_derivative((0, 1, 1))
            (True, False)
        """
        return all(len(columns) <= self.smoothness_along(column) for column in columns)

    @property
    @question
    def continuous_smoothness(self) -> int | float:
        """How many derivatives the process has in mean square along the columns of its inputs that are not categories.

        A kernel of categories alone answers `math.inf`. Priors ask for this if their kernels see rows (x, p), with the
        number p of the output as the last column.
        """
        return self.smoothness

    @property
    @question
    def is_constant(self) -> bool:
        """Whether k is known to be the same number for all inputs."""
        return False

    @question
    def start(self, x: np.ndarray) -> list[Start]:
        """Starting values for lengthscales, weights and other parameters in units of the inputs.

        The variance is not among them: training sets it from the labels, by `amplitude`.

        Args:
            x: inputs [N, D] in float64.

        Returns:
            A starting value for each parameter that has one. By default there are none.

        Examples:
            >>> import numpy as np, inducing as ig
            >>> [start] = ig.kernels.Matern52().start(np.array([[0.0], [8.0]]))      # a standard deviation of 4
            >>> float(start.value)
            2.0
        """
        return []

    @question
    def amplitude(self) -> list[tuple[Array, float]]:
        """How to multiply the kernel by a number.

        Returns:
            Parameters θ with powers p such that replacing each θ by θ cᵖ multiplies the kernel by c, for any c > 0; an
            empty list if unknown. By default the field `variance` with power 1, if the kernel has one.

        Examples:
            >>> import inducing as ig
            >>> [(float(theta), p) for theta, p in ig.kernels.Polynomial(degree=2, variance=3.0).amplitude()]
            [(3.0, 0.5), (1.0, 0.5)]
        """
        # the one convention on names: kernels of users have a field `variance` too
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
    def lengthscale_along(self, column: int) -> float:
        """The lengthscale along one column of the inputs, which `ig.report.relevance` shows; NaN if there is none.

        By default the shortest one of the kernels inside this one.

        Examples:
            >>> import inducing as ig
            >>> k = ig.kernels.ActiveDims(ig.kernels.Matern52(2.0), 1) + ig.kernels.Matern52([4.0, 3.0])
            >>> k.lengthscale_along(0), k.lengthscale_along(1)
            (4.0, 2.0)
        """
        parts = jax.tree.leaves(self, is_leaf=lambda v: isinstance(v, AbstractKernel) and v is not self)
        found = [part.lengthscale_along(column) for part in parts if isinstance(part, AbstractKernel)]
        return min((value for value in found if not math.isnan(value)), default=math.nan)

    @question
    def units(self, x: np.ndarray) -> list[tuple[Array, np.ndarray]]:
        """Parameters that are locations in the space of the inputs, with the units in which training moves them.

        Args:
            x: inputs [N, D].

        Returns:
            Pairs of a parameter and its unit. By default there are none.
        """
        return []

    @question
    def terms(self) -> "tuple[AbstractKernel, ...]":
        """The kernels whose sum this kernel is; by default only itself."""
        return (self,)

    @question
    def factors(self) -> "tuple[AbstractKernel, ...]":
        """The kernels whose product this kernel is; by default only itself."""
        return (self,)

    @question
    def on_columns(self) -> "tuple[AbstractKernel, tuple[int, ...] | None]":
        """(k', dims) if this kernel is k'(x[dims], y[dims]); by default (self, None)."""
        return self, None

    @question
    def gaussian_form(self) -> GaussianForm | None:
        """ℓ and σ² if the kernel is a squared exponential; by default None."""
        return None

    @question
    def matern_form(self) -> MaternForm | None:
        """ν, ℓ and σ² if the kernel is a Matérn covariance function; by default None."""
        return None

    @question
    def laplacian_basis(self) -> LaplacianBasis | None:
        """The expansion of the kernel in Laplacian eigenfunctions on a box, if it has one; by default None."""
        return None

    @question
    def eigen_expansion(self) -> Expansion | None:
        """The expansion of the kernel in orthonormal functions on its space, if it has one; by default None."""
        return None

    @question
    def smoothed(self, variance: Float[Array, " D"]) -> "AbstractKernel | None":
        """The kernel averaged over Gaussian shifts of one input.

            k_v(x, y) = ∫ N(t | 0, diag v) k(x − t, y) dt

        Args:
            variance: v, one number for each input dimension [D].

        Returns:
            The kernel k_v, or None (the default) if the kernel cannot compute it.

        Examples:
            >>> import jax.numpy as jnp, inducing as ig
            >>> ig.kernels.SquaredExponential(lengthscale=3.0).smoothed(jnp.array([16.0])).lengthscale.tolist()
            [5.0]
        """
        return None

    @question
    def smoothed_features(
        self, key: PRNGKeyArray, num: int, dim: int
    ) -> tuple[FeatureMap, Callable[[Float[Array, " dim"]], Float[Array, " num"]]]:
        """Random features φ for draws that can be averaged over Gaussian shifts afterwards.

            E φ(x)·(d(v) ⊙ φ(y)) = k_v(x, y),    k_v the kernel `smoothed(v)`

        With standard normal weights w, g(x) = φ(x)·w is a random function, and φ(x)·(d(v) ⊙ w) is its average
        ∫ N(t | 0, diag v) g(x − t) dt, for any v.

        Args:
            key: a random key.
            num: about how many features to use.
            dim: the number of input dimensions.

        Returns:
            The maps φ and d.

        Raises:
            TypeError: if the kernel has no such features, which is the default.
        """
        raise TypeError(
            f"{type(self).__name__} cannot be smoothed after it was drawn, so a ConvolutionProcess with it has no "
            "function draws; implement smoothed_features beside smoothed."
        )

    @question
    def gaussian_expectations(
        self, Z: Float[Array, "M D"], mean: Float[Array, "N D"], variance: Float[Array, "N D"]
    ) -> PsiStatistics | None:
        """The ψ-statistics of the kernel for inputs h_n ~ N(mean_n, diag variance_n).

        Args:
            Z: fixed inputs [M, D], the inducing inputs.
            mean: means of the inputs h [N, D].
            variance: variances of the inputs h [N, D].

        Returns:
            ψ0, ψ1 and ψ2, or None (the default) if there is no closed form.
        """
        return None

    # The operators import composite kernels when called, since these are kernels themselves.

    def __add__(self, other: Any) -> "AbstractKernel":
        from inducing.kernels.composite import Sum

        if isinstance(other, numbers.Real) and other == 0:
            return self  # sum([k1, k2]) starts with 0 + k1
        return Sum((self, _as_kernel(other)))

    def __mul__(self, other: Any) -> "AbstractKernel":
        from inducing.kernels.composite import Product

        kernel = _as_kernel(other)
        return Product((self, kernel) if kernel is other else (kernel, self))

    def __radd__(self, other: Any) -> "AbstractKernel":
        return self.__add__(other)  # not self + other, which would ask a mean to add a kernel, and so on for ever

    def __rmul__(self, other: Any) -> "AbstractKernel":
        return self.__mul__(other)


class AbstractPointKernel(AbstractKernel):
    """A kernel given by its values at single points, from which Gram matrices follow by `vmap`.

    Derive your own kernel from this class, declare its parameters as fields, and implement `__call__`. If the process
    has derivatives in mean square, set the class attribute `smoothness` to their number (`math.inf` for all of them);
    features and priors of derivatives need at least one.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> from jaxtyping import Array
        >>> class Brownian(ig.kernels.AbstractPointKernel):
        ...     variance: Array = ig.parameters.positive(1.0)
        ...     def __call__(self, x, y):
        ...         return self.variance * jnp.minimum(x, y).sum()
        >>> Brownian(2.0).gram(jnp.array([[1.0], [3.0]])).tolist()
        [[2.0, 2.0], [2.0, 6.0]]
    """

    smoothness: ClassVar[int | float] = 0

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        K = jax.vmap(lambda x: jax.vmap(lambda y: self(x, y))(X if X2 is None else X2))(X)
        return symmetric(K) if X2 is None else K

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jax.vmap(lambda x: self(x, x))(X)

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        raise TypeError(
            f"{type(self).__name__} knows only its values, so it has no random features and no function draws; "
            "derive it from AbstractKernel and implement random_features, or use a built-in kernel."
        )


def _as_kernel(value: Any) -> AbstractKernel:
    """The operand of a kernel: a kernel unchanged, and a number as a `Constant`.

    Anything else is refused here and not left to Python, because lists and tables define the same operators.
    """
    # Constant is a kernel, so its module imports this one
    from inducing.kernels.constant import Constant

    if isinstance(value, AbstractKernel):
        return value
    scalar = isinstance(value, numbers.Real) or (isinstance(value, jax.Array | np.ndarray) and value.ndim == 0)
    if not scalar:
        raise TypeError(f"the operand of a kernel must be a kernel or a number, got {shown(value)}.")
    try:
        return Constant(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the operand of a kernel must be a kernel or a positive number: {error}") from error


def as_points(kernel: AbstractKernel, X: Any, X2: Any = None) -> tuple[Array, Array | None]:
    """X and X2 as floating-point matrices with the same number of columns; errors say how to correct them."""
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


def _as_pair(kernel: AbstractKernel, x: Any, y: Any) -> tuple[Array, Array]:
    """x and y as floating-point vectors of equal length; errors say how to correct them."""
    x, y = _as_floats(kernel, x, "x"), _as_floats(kernel, y, "y")
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(
            f"{type(kernel).__name__}: x and y must be points of equal shape [D], got {list(x.shape)} and "
            f"{list(y.shape)}; for matrices of points use gram(X, X2)."
        )
    return x, y


def _as_floats(kernel: AbstractKernel, X: Any, name: str) -> Array:
    if isinstance(X, jax.Array) and jnp.issubdtype(X.dtype, jnp.floating):
        return X
    check_resolution(X, f"{type(kernel).__name__}: {name}")
    return as_numbers(f"{type(kernel).__name__}: {name}", X)


def _as_matrix(kernel: AbstractKernel, X: Any, name: str) -> Array:
    X = _as_floats(kernel, X, name)
    if X.ndim != 2:
        cure = f"pass {name}[:, None] for one-dimensional inputs" if X.ndim == 1 else "reshape it to two axes"
        raise ValueError(f"{type(kernel).__name__}: {name} must have shape [N, D], got {list(X.shape)}; {cure}.")
    return X


def check_size(kernel: AbstractKernel, name: str, parameter: Array, dim: int) -> None:
    """Raise a ValueError unless a parameter is one number or has one entry for each of `dim` input dimensions."""
    if parameter.shape not in ((), (dim,)):
        entries = f"{parameter.size} entries" if parameter.ndim == 1 else f"the shape {list(parameter.shape)}"
        raise ValueError(
            f"{type(kernel).__name__}.{name} has {entries} but the inputs have {dim} dimensions; "
            f"pass one {name} per dimension or a single number, or choose columns with ActiveDims."
        )


def symmetric(K: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """K made exactly symmetric, which removes rounding errors."""
    return 0.5 * (K + K.T)
