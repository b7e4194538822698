"""Matérn kernels on graphs, spheres and other compact spaces, by the eigenfunctions of GeometricKernels."""

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from inducing import parameters
from inducing.kernels.base import AbstractKernel, FeatureMap, as_points, symmetric
from inducing.kernels.forms import Expansion
from inducing.parameters import as_whole, fixed, positive

_MISSING = {"trapz": np.trapezoid, "in1d": np.isin}  # old names that GeometricKernels and geomstats look up in NumPy


class _Space(NamedTuple):
    """The properties of a space, computed once."""

    dimension: int
    functions: Any  # the eigenfunctions, orthonormal under the uniform distribution on the space
    eigenvalues: np.ndarray  # of the Laplacian, one for each eigenfunction
    points: np.ndarray  # all nodes, or random points, more than there are eigenfunctions
    count: int | None  # the number of nodes, if points are numbers of nodes


@functools.cache
def _opened(make: Callable[[], Any], levels: int) -> _Space:
    """The space and its eigenfunctions, computed once for each function and number of levels."""
    with jax.ensure_compile_time_eval(), _lenient(), _old_names():
        try:
            import geometric_kernels.jax  # noqa: F401 — registers its JAX backend
        except ImportError as error:
            raise ImportError(
                "kernels.Geometric takes eigenfunctions from GeometricKernels, which cannot be imported: "
                f"pip install inducing[geometry] ({error})"
            ) from error
        space = make()
        try:
            functions = space.get_eigenfunctions(levels)
            values = np.asarray(space.get_repeated_eigenvalues(levels), float).reshape(-1)
            points = np.asarray(space.random(np.random.RandomState(0), 3 * len(values) + 3)[1])
            functions(jnp.asarray(points[:1]))
        except (AttributeError, NotImplementedError) as error:
            raise TypeError(
                "Geometric needs a space of GeometricKernels with eigenfunctions that can be evaluated one by one, "
                f"such as Hypersphere, Circle, Graph, Mesh or products of them, not {type(space).__name__}. Spaces "
                "with a continuous spectrum, such as Hyperbolic, have none."
            ) from error
        count = None
        if np.issubdtype(points.dtype, np.integer):  # numbers of nodes, of a graph or mesh
            count = space.num_vertices
            points = np.arange(count)[:, None]
    return _Space(space.dimension, functions, values, points, count)


@contextlib.contextmanager
def _lenient():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def _old_names():
    """NumPy with the functions of `_MISSING`, which it no longer has, as long as a space is imported and made."""
    added = {name: function for name, function in _MISSING.items() if name not in vars(np)}
    vars(np).update(added)
    try:
        yield
    finally:
        for name in added:
            vars(np).pop(name, None)


class Geometric(AbstractKernel):
    """Matérn kernel on a graph, a mesh, or a compact manifold (Borovitskiy et al. 2020, 2021).

        k(x, y) = σ²/c Σ_j S(λ_j) φ_j(x) φ_j(y),    S(λ) = (2ν/ℓ² + λ)^{−ν − d/2},   or e^{−ℓ²λ/2} for ν = ∞

    λ_j and φ_j are eigenvalues and eigenfunctions of the Laplacian of the space, of dimension d (0 for graphs), cut
    after `levels` different eigenvalues (on graphs and meshes: eigenfunctions). c makes σ² the average variance
    on the space. Points are rows of X: coordinates of the ambient space, matrices row by row, angles, or the number of
    a node, in one column. Inducing points must be points of the space too. `features.EigenGeometric` need no points and
    have a diagonal Kuu. They are exact if they include all eigenfunctions of the kernel.

    Args:
        space: a function without arguments that imports and makes a space of `geometric_kernels.spaces`. If it is a
            named function, pass it to `ig.load(path, parts=[…])` too.
        levels: how many eigenvalues to use.
        nu: ν, which is not trained; `math.inf` for the heat kernel.
        lengthscale: ℓ.
        variance: σ².

    Raises:
        ImportError: if GeometricKernels is not installed (`pip install inducing[geometry]`).
        TypeError: if the Laplacian of the space has no eigenfunctions that can be evaluated one by one.

    Examples:
        >>> import inducing as ig
        >>> def globe():
        ...     from geometric_kernels.spaces import Hypersphere
        ...     return Hypersphere(2)
        >>> k = ig.kernels.Geometric(globe, levels=10)      # doctest: +SKIP
        >>> k.diag(jnp.eye(3)).round(6).tolist()      # doctest: +SKIP
        [1.0, 1.0, 1.0]
    """

    space: Callable[[], Any] = eqx.field(static=True)
    levels: int = eqx.field(static=True, converter=as_whole, default=20)
    nu: Float[Array, ""] = fixed(2.5, parameters.FIXED)
    lengthscale: Float[Array, ""] = positive(1.0)
    variance: Float[Array, ""] = positive(1.0)

    def __check_init__(self):
        if not isinstance(self.levels, int) or self.levels < 2:
            raise ValueError(f"Geometric.levels must be a whole number from 2, got {self.levels!r}.")
        if not isinstance(self.nu, jax.core.Tracer) and eqx.is_array(self.nu) and not float(self.nu) > 0:
            raise ValueError(f"Geometric.nu must be greater than 0, or math.inf, got {float(self.nu)}.")
        _opened(self.space, self.levels)

    @property
    def smoothness(self) -> int | float:
        return 0 if self._own.count is not None else math.inf  # a finite sum of smooth functions

    @property
    def _own(self) -> _Space:
        return _opened(self.space, self.levels)

    def check_inputs(self, X: np.ndarray) -> None:
        size, count = math.prod(self._own.points.shape[1:]), self._own.count
        if X.shape[1] != size:
            raise ValueError(f"points of this space have {size} columns, got {X.shape[1]}; matrices go row by row.")
        if count is not None:
            wrong = X[(np.abs(X - np.round(X)) > 1e-6) | (np.abs(X - 0.5 * (count - 1)) > 0.5 * count)]
            if wrong.size:
                raise ValueError(
                    f"points of this space are numbers of nodes from 0 to {count - 1}, got {wrong[0]}; choose inducing "
                    "points among the rows of the data by ig.initialise.random_subset, and freeze them."
                )

    def spectrum(self) -> Float[Array, " J"]:
        """The prior variances of the coefficients of the eigenfunctions."""
        values = jnp.asarray(self._own.eigenvalues, self.variance.dtype)
        heat = jnp.isinf(self.nu)
        nu, square = jnp.where(heat, 1.0, self.nu), self.lengthscale**2
        log_matern = -(nu + 0.5 * self._own.dimension) * jnp.log(2 * nu / square + values)
        return self.variance * jax.nn.softmax(jnp.where(heat, -0.5 * square * values, log_matern))

    def eigenfunctions(self, X: Float[Array, "N D"]) -> Float[Array, "N J"]:
        """The values of all eigenfunctions φ_j, orthonormal under the uniform distribution on the space."""
        points, kind = X.reshape(len(X), *self._own.points.shape[1:]), self._own.points.dtype
        with _lenient():
            out = self._own.functions(points if kind.kind == "f" else jnp.round(points).astype(kind))
        return out.astype(X.dtype)

    def eigen_expansion(self) -> Expansion:
        points = self._own.points
        flat = jnp.asarray(points.reshape(len(points), -1), self.variance.dtype)
        return Expansion(self.spectrum(), self.eigenfunctions, flat)

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return jnp.sum(self._scaled(x[None])[0] * self._scaled(y[None])[0])

    def _scaled(self, X: Array) -> Float[Array, "N J"]:
        return self.eigenfunctions(X) * jnp.sqrt(self.spectrum())[None, :].astype(X.dtype)

    def gram(self, X, X2=None):
        X, X2 = as_points(self, X, X2)
        A = self._scaled(X)
        return symmetric(A @ A.T) if X2 is None else A @ self._scaled(X2).T

    def diag(self, X):
        X, _ = as_points(self, X)
        return jnp.sum(self._scaled(X) ** 2, axis=1)

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        return self._scaled
