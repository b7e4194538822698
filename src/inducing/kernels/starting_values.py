"""Starting values of kernel parameters from inputs: lengthscales, weights of columns, and the spread of a column."""

import numpy as np
from jaxtyping import Array

from inducing.parameters import FAR, Start


def start_lengthscale(lengthscale: Array, x: np.ndarray) -> list[Start]:
    """Starting value of a lengthscale: (√D − ½) standard deviations of the inputs.

    D counts the columns that vary. Distances between random points grow as √D, so this keeps typical points correlated
    in any number of columns. Use it to answer `start` in a kernel of your own.

    Args:
        lengthscale: the parameter, one number or one for each column [D].
        x: inputs [N, D].

    Returns:
        One starting value, or none if the parameter fits neither one number nor the columns of x.

    Examples:
        >>> import jax.numpy as jnp, numpy as np, inducing as ig
        >>> x = np.array([[0.0, 0.0], [2.0, 200.0]])      # standard deviations 1 and 100
        >>> [start] = ig.kernels.start_lengthscale(jnp.ones(2), x)
        >>> start.value.round(3).tolist(), start.far
        ([0.914, 91.421], False)
    """
    deviation, size = x.std(axis=0), np.abs(x).max(axis=0)
    constant = deviation <= 1e-13 * size  # such a column does not affect the kernel, so any positive number will do
    spread = np.where(constant, np.where(size > 0, size, 1.0), deviation)
    if lengthscale.ndim == 0:
        spread = np.sqrt(np.mean((spread if constant.all() else spread[~constant]) ** 2))
    elif lengthscale.shape != spread.shape:
        return []
    D = max(1, int((~constant).sum()))
    value = (np.sqrt(D) - 0.5) * spread
    ratio = np.asarray(lengthscale, float) / value
    return [Start(lengthscale, value, bool((ratio > FAR).any() or (ratio < 1.0 / FAR).any()))]


def start_weights(weights: Array, total: float, x: np.ndarray) -> list[Start]:
    """Starting value of prior variances w of linear weights, such that all columns contribute equally.

        Σ_d w_d mean(x_d²) = total

    Args:
        weights: the parameter w, one number or one for each column [D].
        total: the variance that the columns contribute together.
        x: inputs [N, D].

    Returns:
        One starting value, or none if all inputs are zero or the parameter does not fit the columns of x.

    Examples:
        >>> import jax.numpy as jnp, numpy as np, inducing as ig
        >>> x = np.array([[1.0, 10.0], [-1.0, 10.0]])
        >>> ig.kernels.start_weights(jnp.ones(2), 1.0, x)[0].value.round(6).tolist()
        [0.5, 0.005]
    """
    square = np.mean(x**2, axis=0)
    if weights.shape not in ((), square.shape) or not square.any():
        return []
    D = np.count_nonzero(square)
    each = square.sum() if weights.ndim == 0 else D * np.where(square > 0, square, 1.0)
    value = total / each
    ratio = np.asarray(weights, float) / value
    return [Start(weights, value, bool((ratio > FAR**2).any() or (ratio < FAR**-2).any()))]


def column_spread(x: np.ndarray) -> np.ndarray:
    """The standard deviation of each column of x [N, D]; of a constant column its size, and 1 where that is 0.

    >>> column_spread(np.array([[0.0, 5.0, 0.0], [2.0, 5.0, 0.0]])).tolist()
    [1.0, 5.0, 1.0]
    """
    x = np.ascontiguousarray(x)  # so that rounding does not depend on how chosen columns lie in memory
    size, deviation = np.abs(x).max(axis=0), x.std(axis=0)
    # a constant column may have a deviation of a few rounding errors
    varies = deviation > 10 * np.finfo(x.dtype).eps * size
    return np.where(varies, deviation, np.where(size > 0, size, 1.0)).astype(x.dtype)
