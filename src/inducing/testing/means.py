"""Contract checks of mean functions."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing.means import AbstractMean
from inducing.testing.contract import (
    as_points,
    attempt,
    check_part,
    check_starts,
    check_units,
    default_points,
    require,
    require_close,
    require_finite_gradients,
    require_float32,
    weighted,
)


def check_mean(mean: AbstractMean, X: Any = None) -> None:
    """Check that a mean function keeps the contract of `ig.means.AbstractMean`.

    Its values are [N] or [N, P], each row depends only on its own input, gradients are finite, `is_zero` and
    `is_constant` are true where claimed, and `start` and `units` name arrays of the mean.

    Args:
        mean: the mean function to check.
        X: inputs [N, D] that it accepts. By default, six points in two dimensions.

    Raises:
        AssertionError: if the mean breaks the contract.

    Examples:
        >>> import inducing as ig
        >>> ig.testing.check_mean(ig.means.Linear([1.0, -2.0], bias=0.5))
    """
    check_part(mean, AbstractMean)
    X = as_points(mean, default_points(2) if X is None else X)
    values, first = attempt(mean, "its values must be computed under jit", _mean_values, mean, X)
    ok = values.ndim in (1, 2) and values.shape[0] == len(X)
    require(ok, mean, f"mean(X) must have shape [N] or [N, P] with N = {len(X)}", f"it has {list(values.shape)}")
    require_close(mean, "each row of mean(X) must depend only on its own input", values[:1], first)
    require_finite_gradients(mean, "gradients", _mean_gradients, mean, X)
    require_float32(mean, "mean(X)", _mean_values, mean, X)
    if mean.is_zero:
        require_close(mean, "is_zero says that the mean is zero", values, jnp.zeros_like(values))
    if mean.is_constant:
        require_close(mean, "is_constant says that the mean is the same everywhere", values, values[:1] + 0 * values)
    P = values.shape[1] if values.ndim == 2 else 1
    check_starts(mean, "start", mean.start(np.full(P, 0.5)), mean)
    check_units(mean, mean.units(jnp.ones((), X.dtype), jnp.ones(X.shape[1], X.dtype)))


def _mean_values(mean: AbstractMean, X: Array) -> tuple[Array, Array]:
    return mean(X), mean(X[:1])


def _mean_gradients(mean: AbstractMean, X: Array) -> Any:
    return eqx.filter_grad(lambda both: weighted(both[0](both[1])))((mean, X))
