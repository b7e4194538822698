"""Mean functions μ(x) of Gaussian processes, which map points [N, D] to means [N] or [N, P]."""

import abc
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.declared import shown
from inducing.parameters import Module, Start, question, real


class AbstractMean(Module):
    """A mean function μ(x).

    Means form an algebra: `m1 + m2`, `m1 * m2` and `2.0 * m` are means. To write a mean of your own, declare its
    parameters as fields and implement `__call__`. The other methods are questions with safe defaults.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> mean = ig.means.Linear([1.0, 2.0]) + ig.means.Constant(0.5)
        >>> mean(jnp.ones((1, 2))).tolist()
        [3.5]
    """

    _such_as = "a mean, such as ig.means.Constant()"

    __array_ufunc__: ClassVar[None] = None  # so that numpy_scalar * mean calls __rmul__

    @abc.abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N ..."]:
        """The mean at given points.

        Args:
            X: points [N, D].

        Returns:
            μ(X), [N] for one output or [N, P] for several.
        """

    @property
    @question
    def is_zero(self) -> bool:
        """Whether μ is known to be zero everywhere."""
        return False

    @property
    @question
    def is_constant(self) -> bool:
        """Whether μ is known to be the same everywhere."""
        return self.is_zero

    @question
    def start(self, centre: np.ndarray) -> list[Start]:
        """Starting values for the parameters of the mean.

        Args:
            centre: the centre of the labels of each output [P], NaN where it is unknown.

        Returns:
            A starting value for each parameter that has one. By default there are none.

        Examples:
            >>> import numpy as np, inducing as ig
            >>> float(ig.means.Constant().start(np.array([2.0]))[0].value)
            2.0
        """
        return []

    @question
    def units(self, size: Array, spread: Array) -> list[tuple[Array, Array]]:
        """The units in which training moves the parameters of the mean.

        Args:
            size: the prior standard deviation of the outputs.
            spread: the standard deviations [D] of the columns of the inputs, or a single 1 if they are unknown.

        Returns:
            Pairs of a parameter and its unit. By default a parameter that is a single number moves in units of `size`.
        """
        arrays = [leaf for leaf in jax.tree.leaves(self) if eqx.is_inexact_array(leaf)]
        return [(leaf, size) for leaf in arrays if leaf.size == 1]

    def __add__(self, other: Any) -> "AbstractMean":
        return Sum(self, _operand(other))

    def __mul__(self, other: Any) -> "AbstractMean":
        return Product(self, _operand(other))

    def __radd__(self, other: Any) -> "AbstractMean":
        return self.__add__(other)  # not self + other, which would ask a kernel to add a mean, and so on for ever

    def __rmul__(self, other: Any) -> "AbstractMean":
        return self.__mul__(other)


def _operand(value: Any) -> "AbstractMean":
    """The operand of a mean. Anything else is refused here, since lists and tables have operators of their own."""
    try:
        mean = _as_mean(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the operand of a mean must be a mean or a number: {error}") from error
    if mean is None:
        raise TypeError(f"the operand of a mean must be a mean or a number, got {shown(value)}.")
    return mean


def _as_mean(value: Any) -> AbstractMean | None:
    if isinstance(value, AbstractMean):
        return value
    scalar = isinstance(value, numbers.Real) or (isinstance(value, jax.Array | np.ndarray) and value.ndim == 0)
    return Constant(value) if scalar else None


def as_mean(mean: Any) -> AbstractMean:
    """The mean that an argument `mean` stands for: None is zero, and a number is a constant.

    Args:
        mean: a mean, a number or None.

    Returns:
        A mean.

    Raises:
        TypeError: for anything else, such as a plain function.

    Examples:
        >>> import inducing as ig
        >>> ig.means.as_mean(2.0).value.tolist()
        2.0
    """
    try:
        out = Zero() if mean is None else _as_mean(mean)
    except (TypeError, ValueError) as error:
        raise type(error)(f"mean: {error}") from error
    if out is None:
        cure = "ig.means.Function(h) for a function h of one point [D]" if callable(mean) else "ig.means.Constant(c)"
        raise TypeError(f"mean must be one of ig.means, such as {cure}, or a number, got {type(mean).__name__}.")
    return out


class Zero(AbstractMean):
    """Zero mean.

        μ(x) = 0

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.means.Zero()(jnp.ones((2, 3))).tolist()
        [0.0, 0.0]
    """

    is_zero = True

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.zeros(X.shape[:1], X.dtype)


class Constant(AbstractMean):
    """Constant mean.

        μ(x) = c

    Args:
        value: c, one number or one for each output [P].

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.means.Constant(2.0)(jnp.ones((2, 3))).tolist()
        [2.0, 2.0]
    """

    value: Float[Array, "..."] = real(0.0)
    is_constant = True

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N ..."]:
        return jnp.broadcast_to(self.value[None], (X.shape[0], *self.value.shape))

    def start(self, centre: np.ndarray) -> list[Start]:
        value = np.where(np.isfinite(centre), centre, self.value) if self.value.ndim else np.mean(centre)
        return [Start(self.value, value, False)] if np.isfinite(value).all() else []

    def units(self, size: Array, spread: Array) -> list[tuple[Array, Array]]:
        return [(self.value, size)]


class Linear(AbstractMean):
    """Linear mean.

        μ(x) = Aᵀx + b

    Args:
        weights: A, [D] for one output or [D, P] for several.
        bias: b, one number or one for each output [P].

    Raises:
        ValueError: if the weights are not [D] or [D, P], or if the bias does not fit them.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.means.Linear([[1.0, 0.0], [0.0, 2.0]], bias=[0.0, 1.0])(jnp.ones((1, 2))).tolist()
        [[1.0, 3.0]]
    """

    weights: Float[Array, "D ..."] = real()
    bias: Float[Array, "..."] = real(0.0)

    def __check_init__(self):
        if self.weights.ndim not in (1, 2):
            raise ValueError(f"Linear.weights must have shape [D] or [D, P], got {list(self.weights.shape)}.")
        if self.bias.shape not in ((), self.weights.shape[1:]):
            raise ValueError(
                f"Linear.bias has shape {list(self.bias.shape)} but the weights give outputs of shape "
                f"{list(self.weights.shape[1:])}; pass one number or one per output."
            )

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N ..."]:
        if X.shape[1] != self.weights.shape[0]:
            raise ValueError(
                f"Linear.weights has {self.weights.shape[0]} rows but the inputs have {X.shape[1]} dimensions; "
                "pass one row per dimension."
            )
        value = X @ self.weights
        return value + jnp.broadcast_to(self.bias, value.shape)

    def units(self, size: Array, spread: Array) -> list[tuple[Array, Array]]:
        slope = size
        if spread.shape == self.weights.shape[:1]:
            slope = size / spread.astype(self.weights.dtype).reshape(-1, *[1] * (self.weights.ndim - 1))
        return [(self.weights, slope), (self.bias, size)]


class Identity(AbstractMean):
    """Identity mean, the usual choice for the inner layers of deep models.

        μ(x) = x

    There are as many outputs as input dimensions.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.means.Identity()(jnp.ones((1, 2))).tolist()
        [[1.0, 1.0]]
    """

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N D"]:
        return X


class Function(AbstractMean):
    """Mean given by any function.

        μ(x) = h(x)

    Args:
        function: h, a function of one point [D] whose value is a number or a vector [P]. The arrays of an Equinox
            module are trained.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.means.Function(lambda x: x.sum())(jnp.ones((2, 3))).tolist()
        [3.0, 3.0]
    """

    function: Callable[[Array], Array]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N ..."]:
        return jax.vmap(self.function)(X)


class Sum(AbstractMean):
    """Sum of two means, usually written `m1 + m2`.

        μ(x) = μ₁(x) + μ₂(x)

    If one of them has a single output, all outputs of the other share it.

    Args:
        first: μ₁.
        second: μ₂.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> (ig.means.Identity() + 1.0)(jnp.zeros((1, 2))).tolist()
        [[1.0, 1.0]]
    """

    first: AbstractMean
    second: AbstractMean

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N ..."]:
        return jnp.add(*_aligned(self.first(X), self.second(X)))

    @property
    def is_zero(self) -> bool:
        return self.first.is_zero and self.second.is_zero

    @property
    def is_constant(self) -> bool:
        return self.first.is_constant and self.second.is_constant


class Product(AbstractMean):
    """Product of two means, usually written `m1 * m2`.

        μ(x) = μ₁(x) μ₂(x)

    If one of them has a single output, all outputs of the other share it.

    Args:
        first: μ₁.
        second: μ₂.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> (2.0 * ig.means.Identity())(jnp.ones((1, 2))).tolist()
        [[2.0, 2.0]]
    """

    first: AbstractMean
    second: AbstractMean

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N ..."]:
        return jnp.multiply(*_aligned(self.first(X), self.second(X)))

    @property
    def is_zero(self) -> bool:
        return self.first.is_zero or self.second.is_zero

    @property
    def is_constant(self) -> bool:
        return self.is_zero or (self.first.is_constant and self.second.is_constant)


def _aligned(a: Array, b: Array) -> tuple[Array, Array]:
    """Two means in the same shape: [N] is broadcast to the outputs of [N, P]."""
    if a.ndim < b.ndim:
        a = jnp.broadcast_to(a[:, None], b.shape)
    elif b.ndim < a.ndim:
        b = jnp.broadcast_to(b[:, None], a.shape)
    if a.shape != b.shape:
        raise ValueError(
            f"means with {a.shape[1]} and {b.shape[1]} outputs cannot be combined; make the numbers agree."
        )
    return a, b
