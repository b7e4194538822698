"""Contract checks of objectives."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled
from inducing.data import Data, as_data
from inducing.model import Model
from inducing.parameters import dtype_of
from inducing.testing.contract import attempt, require, require_close, require_shape


def check_objective(objective: Callable, model: Model, data: Any) -> None:
    """Check that a function can be the objective of `ig.fit` for a model and data.

    It gives one finite number with finite gradients under jit. If it takes `num_data`, it scales minibatches: the mean
    over the two halves of the data, each scaled up, is the value for all data (where the objective takes no key).

    Args:
        objective: a function of (model, data), which may also take `key` and `num_data`.
        model: a model for which the objective is meant.
        data: (X, y) or an `ig.Data`.

    Raises:
        AssertionError: if the objective cannot be used.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> ig.testing.check_objective(ig.collapsed_elbo, model, ([0.0, 0.5, 1.0, 2.0], [1.0, 0.0, 1.0, 0.5]))
    """
    data = as_data(data, dtype_of(model))
    takes = inspect.signature(objective).parameters
    key = {"key": jax.random.key(0)} if "key" in takes else {}
    value, gradients = attempt(
        objective, "it must run under jit and grad", _value_and_grad, objective, model, data, key
    )
    require_shape(objective, "its value", value, ())
    arrays = [g for g in jax.tree.leaves(gradients) if eqx.is_inexact_array(g)]
    ok = bool(np.isfinite(value)) and all(bool(np.isfinite(g).all()) for g in arrays)
    require(ok, objective, "its value and gradients must be finite", f"the value is {float(value)}")
    if "num_data" in takes and len(data) > 1:
        N, half = len(data), len(data) // 2
        parts = [data.rows(jnp.arange(half)), data.rows(jnp.arange(half, 2 * half)), data.rows(jnp.arange(2 * half))]
        each = [compiled(_scaled, True)(objective, model, part, key, N) for part in parts]
        if not key:
            contract = "with num_data it must scale minibatches to the whole data"
            require_close(objective, contract, 0.5 * (each[0] + each[1]), each[2], 1e-6)


def _value_and_grad(objective: Callable, model: Model, data: Data, key: dict) -> tuple[Array, Any]:
    return eqx.filter_value_and_grad(lambda m: objective(m, data, **key))(model)


def _scaled(objective: Callable, model: Model, data: Data, key: dict, num_data: int) -> Array:
    return objective(model, data, num_data=num_data, **key)
