"""The terms of which kernels are compared. Each has a gate, so that one program serves all sums of some of them."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from inducing._xla import own_array
from inducing.kernels.additive import Additive
from inducing.kernels.base import AbstractKernel, FeatureMap, Points
from inducing.kernels.dot_product import Linear
from inducing.kernels.stationary import Matern32, Matern52, RationalQuadratic, SquaredExponential


class Gated(AbstractKernel):
    """A term of a sum, which costs nothing while its gate is closed."""

    name: str = eqx.field(static=True)
    is_open: Bool[Array, ""]
    term: AbstractKernel

    @property
    def smoothness(self) -> int | float:
        return self.term.smoothness

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return self._if_open(lambda: self.term(x, y))

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        return self._if_open(lambda: self.term.gram(X, X2))

    def diag(self, X: Points) -> Float[Array, " N"]:
        return self._if_open(lambda: self.term.diag(X))

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        return self.term.random_features(key, num, dim)

    def lengthscales(self) -> list[Array]:
        return self.term.lengthscales()

    def _if_open(self, covariance: Callable[[], Array]) -> Array:
        shape = jax.eval_shape(covariance)
        return jax.lax.cond(self.is_open, covariance, lambda: jnp.zeros(shape.shape, shape.dtype))


def gate(is_open: bool) -> Bool[Array, ""]:
    """A gate.

    Examples:
        >>> bool(gate(True))
        True
    """
    return own_array(is_open, bool)


def new_terms(names: Sequence[str], x: Float[Array, "N D"]) -> list[AbstractKernel]:
    """Kernels of these names for inputs x, each with a variance of about 1.

    Examples:
        >>> [type(term).__name__ for term in new_terms(["Matern52", "Linear"], jnp.zeros((1, 3)))]
        ['Matern52', 'Linear']
    """
    one = own_array(np.ones(x.shape[1]), x.dtype)
    each = times(one, 1.0 / x.shape[1])
    made: dict[str, Callable[[], AbstractKernel]] = {
        "Matern52": lambda: Matern52(one),
        "Matern32": lambda: Matern32(one),
        "SquaredExponential": lambda: SquaredExponential(one),
        "RationalQuadratic": lambda: RationalQuadratic(one),
        "Additive": lambda: Additive(one, each),
        "Linear": lambda: Linear(each),
    }
    return [made[name]() for name in names]


def scaled(kernel: AbstractKernel, factor: float) -> AbstractKernel:
    """The kernel times a number, by its own parameters.

    Examples:
        >>> float(scaled(Matern52(), 2.0).variance)
        2.0
    """
    return replaced(kernel, {id(theta): times(theta, factor**power) for theta, power in kernel.amplitude()})


def times(a: Array, factor: float) -> Array:
    """A concrete array times a number, by NumPy, which compiles nothing.

    Examples:
        >>> times(own_array([1.0, 2.0], float), 2.0).tolist()
        [2.0, 4.0]
    """
    return own_array(np.asarray(a) * factor, a.dtype)


def replaced(tree: Any, values: dict[int, Array]) -> Any:
    """The tree with other arrays, given by identity.

    Examples:
        >>> kernel = Matern52()
        >>> float(replaced(kernel, {id(kernel.variance): jnp.array(3.0)}).variance)
        3.0
    """
    return jax.tree.map(lambda leaf: values.get(id(leaf), leaf), tree)
