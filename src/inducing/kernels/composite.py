"""Kernels built from kernels: sums, products, kernels of some columns, of warped inputs, and change points."""

import itertools
import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from inducing._xla import own_array
from inducing.data import some_rows
from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points
from inducing.kernels.starting_values import column_spread
from inducing.parameters import FAR, Start, as_tuple, as_whole, dtype_of, one_or_several, ordered, positive


def _from_all(kernels: Iterable[AbstractKernel], ask: Callable[[AbstractKernel], list]) -> list:
    return [answer for kernel in kernels for answer in ask(kernel)]


def _amplitude_of_sum(kernels: tuple[AbstractKernel, ...]) -> list[tuple[Array, float]]:
    """A sum grows by a factor only if every term can."""
    amplitudes = [kernel.amplitude() for kernel in kernels]
    return [pair for own in amplitudes for pair in own] if all(amplitudes) else []


def _check_kernels(owner: object, kernels: tuple) -> None:
    if not kernels:
        raise TypeError(f"{type(owner).__name__}.kernels must be one or more kernels, got none.")


class Sum(AbstractKernel):
    """Sum of kernels, the covariance of a sum of independent processes; usually written `k1 + k2`.

        k(x, y) = Σ_i k_i(x, y)

    Args:
        kernels: the terms k_i. Sums among them are replaced by their own terms.

    Raises:
        TypeError: if there are no kernels, or if one of them is not a kernel.

    Examples:
        >>> import inducing as ig
        >>> k = ig.kernels.Linear() + ig.kernels.Matern32() + 0.5      # a number is a Constant kernel
        >>> len(k.kernels)
        3
    """

    kernels: tuple[AbstractKernel, ...]

    def __init__(self, kernels: Any):
        kernels = as_tuple(kernels)
        flat = isinstance(kernels, tuple)
        self.kernels = sum((k.kernels if isinstance(k, Sum) else (k,) for k in kernels), ()) if flat else kernels

    def __check_init__(self):
        _check_kernels(self, self.kernels)

    @property
    def smoothness(self) -> int | float:
        return min(kernel.smoothness for kernel in self.kernels)

    def check_inputs(self, X: np.ndarray) -> None:
        for kernel in self.kernels:
            kernel.check_inputs(X)

    def smoothness_along(self, column: int) -> int | float:
        return min(kernel.smoothness_along(column) for kernel in self.kernels)

    def has_derivative(self, columns: tuple[int, ...], dim: int | None = None) -> bool:
        return all(kernel.has_derivative(columns, dim) for kernel in self.kernels)

    @property
    def continuous_smoothness(self) -> int | float:
        return min(kernel.continuous_smoothness for kernel in self.kernels)

    def start(self, x: np.ndarray) -> list[Start]:
        return _from_all(self.kernels, lambda kernel: kernel.start(x))

    def amplitude(self) -> list[tuple[Array, float]]:
        return _amplitude_of_sum(self.kernels)

    def units(self, x: np.ndarray) -> list[tuple[Array, np.ndarray]]:
        return _from_all(self.kernels, lambda kernel: kernel.units(x))

    def terms(self) -> tuple[AbstractKernel, ...]:
        return self.kernels

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return reduce(jnp.add, [kernel(x, y) for kernel in self.kernels])

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        return reduce(jnp.add, [kernel.gram(X, X2) for kernel in self.kernels])

    def diag(self, X: Points) -> Float[Array, " N"]:
        return reduce(jnp.add, [kernel.diag(X) for kernel in self.kernels])

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        keys = jax.random.split(key, len(self.kernels))
        maps = [kernel.random_features(k, num, dim) for kernel, k in zip(self.kernels, keys, strict=True)]
        return lambda X: jnp.concatenate([features(X) for features in maps], axis=1)


class Product(AbstractKernel):
    """Product of kernels, the covariance of a product of independent processes; usually written `k1 * k2`.

        k(x, y) = Π_i k_i(x, y)

    Args:
        kernels: the factors k_i. Products among them are replaced by their own factors.

    Raises:
        TypeError: if there are no kernels, or if one of them is not a kernel.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = 2.0 * ig.kernels.SquaredExponential() * ig.kernels.Cosine()      # a number is a Constant kernel
        >>> float(k(jnp.zeros(1), jnp.zeros(1)))
        2.0
    """

    kernels: tuple[AbstractKernel, ...]

    def __init__(self, kernels: Any):
        kernels = as_tuple(kernels)
        flat = isinstance(kernels, tuple)
        # a product of products is one product; this class asks for itself alone
        self.kernels = sum((k.kernels if isinstance(k, Product) else (k,) for k in kernels), ()) if flat else kernels

    def __check_init__(self):
        _check_kernels(self, self.kernels)

    @property
    def smoothness(self) -> int | float:
        return min(kernel.smoothness for kernel in self.kernels)

    def check_inputs(self, X: np.ndarray) -> None:
        for kernel in self.kernels:
            kernel.check_inputs(X)

    def smoothness_along(self, column: int) -> int | float:
        return min(kernel.smoothness_along(column) for kernel in self.kernels)

    def has_derivative(self, columns: tuple[int, ...], dim: int | None = None) -> bool:
        return all(kernel.has_derivative(columns, dim) for kernel in self.kernels)

    @property
    def continuous_smoothness(self) -> int | float:
        return min(kernel.continuous_smoothness for kernel in self.kernels)

    def start(self, x: np.ndarray) -> list[Start]:
        return _from_all(self.kernels, lambda kernel: kernel.start(x))

    def units(self, x: np.ndarray) -> list[tuple[Array, np.ndarray]]:
        return _from_all(self.kernels, lambda kernel: kernel.units(x))

    def amplitude(self) -> list[tuple[Array, float]]:
        """The amplitude of the first factor that has one; if the same factor occurs n times, its powers become p/n."""
        amplitudes = [{id(leaf): power for leaf, power in kernel.amplitude()} for kernel in self.kernels]
        for kernel, own in zip(self.kernels, amplitudes, strict=True):
            sharing = [other for other in amplitudes if other.keys() & own.keys()]
            if own and all(other == own for other in sharing):
                return [(leaf, power / len(sharing)) for leaf, power in kernel.amplitude()]
        return []

    def factors(self) -> tuple[AbstractKernel, ...]:
        return self.kernels

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return reduce(jnp.multiply, [kernel(x, y) for kernel in self.kernels])

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        return reduce(jnp.multiply, [kernel.gram(X, X2) for kernel in self.kernels])

    def diag(self, X: Points) -> Float[Array, " N"]:
        return reduce(jnp.multiply, [kernel.diag(X) for kernel in self.kernels])

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        features, *rest = [
            kernel.random_features(k, num, dim)
            for kernel, k in zip(self.kernels, jax.random.split(key, len(self.kernels)), strict=True)
        ]
        for i, other in enumerate(rest):
            features = _product_features(jax.random.fold_in(key, i), num, features, other)
        return features


def _product_features(key: PRNGKeyArray, num: int, first: FeatureMap, second: FeatureMap) -> FeatureMap:
    """Products of features of two kernels, whose expected inner product is the product of the kernels.

    If there are at most `num` products, use all of them. Otherwise use about `num`: pair every feature of the first
    kernel equally often with features of the second, which come in random order.
    """

    def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
        a, b = first(X), second(X)
        n, m = a.shape[1], b.shape[1]
        if n * m <= max(num, n, m):
            return (a[:, :, None] * b[:, None, :]).reshape(X.shape[0], n * m)
        total = n * -(-num // n)
        # Shuffle all copies as one. If every copy had the same order and the features of `first` were such products
        # themselves, each of them would always meet the same partner.
        order = jax.random.permutation(key, jnp.tile(jnp.arange(m), -(-total // m)))[:total]
        a = jnp.tile(a, (1, total // n))
        return jnp.sqrt(jnp.asarray(n * m / total, X.dtype)) * a * b[:, order]

    return features


def _as_columns(dims: Any) -> tuple[int, ...]:
    """Integers of any type as a tuple of int; other values are left for `__check_init__` to refuse."""
    return tuple(as_whole(d) for d in one_or_several(dims))


class ActiveDims(AbstractKernel):
    """Kernel of some columns of the inputs.

        k(x, y) = k'(x[dims], y[dims])

    Args:
        kernel: k', a kernel of as many columns as there are in `dims`.
        dims: the numbers of the columns, counted from 0; a single number is one column.

    Raises:
        ValueError: if `dims` is empty or holds anything but column numbers.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.ActiveDims(ig.kernels.SquaredExponential(), (1,))
        >>> float(k(jnp.array([5.0, 0.0]), jnp.array([7.0, 0.0])))      # column 0 does not matter
        1.0
    """

    kernel: AbstractKernel
    dims: tuple[int, ...] = eqx.field(static=True, converter=_as_columns)

    def __check_init__(self):
        if not self.dims or min(self.dims) < 0:
            raise ValueError(f"ActiveDims.dims must be column numbers counted from 0, got {self.dims}.")

    @property
    def smoothness(self) -> int | float:
        return self.kernel.smoothness

    def _columns(self, X: Array) -> Array:
        if max(self.dims) >= X.shape[-1]:
            raise ValueError(
                f"ActiveDims.dims are {self.dims} but the inputs have {X.shape[-1]} dimensions; "
                f"choose columns from 0 to {X.shape[-1] - 1}."
            )
        return jnp.stack([X[..., d] for d in self.dims], axis=-1)

    def check_inputs(self, X: np.ndarray) -> None:
        if max(self.dims) < X.shape[1]:  # too few columns are refused by `gram`, under jit too
            self.kernel.check_inputs(X[:, self.dims])

    def smoothness_along(self, column: int) -> int | float:
        own = [self.kernel.smoothness_along(i) for i, d in enumerate(self.dims) if d == column]
        return min(own, default=math.inf)

    def lengthscale_along(self, column: int) -> float:
        own = [self.kernel.lengthscale_along(i) for i, d in enumerate(self.dims) if d == column]
        return min(own, default=math.nan)

    def has_derivative(self, columns: tuple[int, ...], dim: int | None = None) -> bool:
        own = [[i for i, d in enumerate(self.dims) if d == column] for column in columns if column in self.dims]
        return all(self.kernel.has_derivative(choice, len(self.dims)) for choice in itertools.product(*own))

    @property
    def continuous_smoothness(self) -> int | float:
        return self.kernel.continuous_smoothness

    def start(self, x: np.ndarray) -> list[Start]:
        return self.kernel.start(x[:, list(self.dims)])

    def amplitude(self) -> list[tuple[Array, float]]:
        return self.kernel.amplitude()

    def units(self, x: np.ndarray) -> list[tuple[Array, np.ndarray]]:
        return self.kernel.units(x[:, list(self.dims)])

    def on_columns(self) -> tuple[AbstractKernel, tuple[int, ...]]:
        return self.kernel, self.dims

    def terms(self) -> tuple[AbstractKernel, ...]:
        terms = self.kernel.terms()
        return (self,) if terms[0] is self.kernel else tuple(ActiveDims(term, self.dims) for term in terms)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self.kernel(self._columns(x), self._columns(y))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        return self.kernel.gram(self._columns(X), None if X2 is None else self._columns(X2))

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return self.kernel.diag(self._columns(X))

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        features = self.kernel.random_features(key, num, len(self.dims))
        return lambda X: features(self._columns(X))


class Warped(AbstractKernel):
    """Kernel of transformed inputs; with a neural network as the transformation, a deep kernel.

        k(x, y) = k'(h(x), h(y))

    The kernel reports the smoothness of k', which is right if h is at least as smooth.

    Args:
        kernel: k', a kernel of points [D'].
        function: h, a function of one point [D] with values [D']. An Equinox module is trained too.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.Warped(ig.kernels.Linear(), jnp.exp)
        >>> float(k(jnp.zeros(1), jnp.zeros(1)))
        1.0
    """

    kernel: AbstractKernel
    function: Callable[[Array], Array]

    def lengthscale_along(self, column: int) -> float:
        return math.nan  # those of the kernel inside are in the units of the warped inputs

    @property
    def smoothness(self) -> int | float:
        return self.kernel.smoothness

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self.kernel(self.function(x), self.function(y))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        warp = jax.vmap(self.function)
        return self.kernel.gram(warp(X), None if X2 is None else warp(X2))

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return self.kernel.diag(jax.vmap(self.function)(X))

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        warped = jax.eval_shape(self.function, jax.ShapeDtypeStruct((dim,), jnp.zeros(()).dtype))
        features = self.kernel.random_features(key, num, warped.shape[0])
        return lambda X: features(jax.vmap(self.function)(X))

    def start(self, x: np.ndarray) -> list[Start]:
        return self.kernel.start(np.asarray(self._warped_sample(x), float))

    def amplitude(self) -> list[tuple[Array, float]]:
        return self.kernel.amplitude()

    def units(self, x: np.ndarray) -> list[tuple[Array, np.ndarray]]:
        return self.kernel.units(self._warped_sample(x))

    def _warped_sample(self, x: np.ndarray) -> np.ndarray:
        """h at some rows of x only, since h may be expensive."""
        return np.asarray(jax.vmap(self.function)(own_array(some_rows(x), dtype_of(self))))


class ChangePoint(AbstractKernel):
    """Kernel that changes from one kernel to the next along one input dimension.

        k(x, y) = Σ_i w_i(x) k_i(x, y) w_i(y),    w_i = σ_i (1 − σ_{i+1}),    i = 0, …, C
        σ_j(x) = sigmoid(s_j (x[dim] − c_j)),    σ_0 = 1,    σ_{C+1} = 0

    Args:
        kernels: the C + 1 kernels k_i, in the order of x[dim].
        locations: c, the change points in increasing order [C].
        steepness: s, how sudden the changes are, one number or one for each change point [C].
        dim: the number of the column along which the kernel changes, counted from 0.

    Raises:
        TypeError: if there are no kernels, or if one of them is not a kernel.
        ValueError: if `locations` or `steepness` do not fit the number of kernels.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> parts = ig.kernels.Constant(1.0), ig.kernels.Constant(4.0)
        >>> k = ig.kernels.ChangePoint(parts, locations=[0.0], steepness=50.0)
        >>> [round(float(v), 3) for v in k.diag(jnp.array([[-1.0], [1.0]]))]
        [1.0, 4.0]
    """

    kernels: tuple[AbstractKernel, ...] = eqx.field(converter=as_tuple)
    locations: Float[Array, " C"] = ordered()
    steepness: Float[Array, "..."] = positive(1.0)
    dim: int = eqx.field(static=True, default=0, converter=as_whole)

    def __check_init__(self):
        _check_kernels(self, self.kernels)
        if self.dim < 0:
            raise ValueError(f"ChangePoint.dim must be a column number counted from 0, got {self.dim}.")
        if self.locations.shape != (len(self.kernels) - 1,):
            raise ValueError(
                f"ChangePoint.locations must have one entry fewer than there are kernels ({len(self.kernels)}), "
                f"got shape {list(self.locations.shape)}."
            )
        if self.steepness.shape not in ((), self.locations.shape):
            raise ValueError(
                f"ChangePoint.steepness must be one number or one per location ({self.locations.size}), "
                f"got shape {list(self.steepness.shape)}."
            )

    @property
    def smoothness(self) -> int | float:
        return min(kernel.smoothness for kernel in self.kernels)

    def check_inputs(self, X: np.ndarray) -> None:
        for kernel in self.kernels:
            kernel.check_inputs(X)

    def smoothness_along(self, column: int) -> int | float:
        return min(kernel.smoothness_along(column) for kernel in self.kernels)

    def has_derivative(self, columns: tuple[int, ...], dim: int | None = None) -> bool:
        return all(kernel.has_derivative(columns, dim) for kernel in self.kernels)

    @property
    def continuous_smoothness(self) -> int | float:
        return min(kernel.continuous_smoothness for kernel in self.kernels)

    def start(self, x: np.ndarray) -> list[Start]:
        return self._start_steepness(x) + _from_all(self.kernels, lambda kernel: kernel.start(x))

    def _start_steepness(self, x: np.ndarray) -> list[Start]:
        """A change takes about one lengthscale of a single column. A user's value may be arbitrarily large."""
        spread = x[:, self.dim].std() if self.dim < x.shape[1] else 0.0
        if not spread > 0.0:
            return []
        value = np.full(self.steepness.shape, 2.0 / spread)
        return [Start(self.steepness, value, bool((np.asarray(self.steepness) < value / FAR).any()))]

    def units(self, x: np.ndarray) -> list[tuple[Array, np.ndarray]]:
        units = _from_all(self.kernels, lambda kernel: kernel.units(x))
        return [*units, (self.locations, np.asarray(column_spread(x)[self.dim]))] if self.dim < x.shape[1] else units

    def amplitude(self) -> list[tuple[Array, float]]:
        return _amplitude_of_sum(self.kernels)

    def _weights(self, X: Float[Array, "N D"]) -> Float[Array, "K N"]:
        if not 0 <= self.dim < X.shape[-1]:
            raise ValueError(
                f"ChangePoint.dim is {self.dim} but the inputs have {X.shape[-1]} dimensions; "
                f"choose a column from 0 to {X.shape[-1] - 1}."
            )
        steepness = jnp.broadcast_to(self.steepness, self.locations.shape)
        z = steepness[:, None] * (X[:, self.dim][None, :] - self.locations[:, None])
        one = jnp.ones((1, X.shape[0]), z.dtype)
        return jnp.concatenate([one, jax.nn.sigmoid(z)]) * jnp.concatenate([jax.nn.sigmoid(-z), one])

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        w = self._weights(jnp.stack([x, y]))
        return reduce(jnp.add, [w[i, 0] * kernel(x, y) * w[i, 1] for i, kernel in enumerate(self.kernels)])

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        w = self._weights(X)
        w2 = w if X2 is None else self._weights(X2)
        terms = [(w[i][:, None] * w2[i][None, :]) * kernel.gram(X, X2) for i, kernel in enumerate(self.kernels)]
        return reduce(jnp.add, terms)

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        w = self._weights(X)
        return reduce(jnp.add, [w[i] ** 2 * kernel.diag(X) for i, kernel in enumerate(self.kernels)])

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        keys = jax.random.split(key, len(self.kernels))
        maps = [kernel.random_features(k, num, dim) for kernel, k in zip(self.kernels, keys, strict=True)]

        def features(X: Float[Array, "N D"]) -> Float[Array, "N num"]:
            w = self._weights(X)
            return jnp.concatenate([w[i][:, None] * part(X) for i, part in enumerate(maps)], axis=1)

        return features
