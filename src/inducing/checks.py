"""Whether a model and data fit together: one place, so that every function refuses a mismatch in the same words."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from .data import Data
from .layers.sparse_gp import SparseGP
from .likelihoods.base import PerDatum
from .parameters import dtype_of


def check_model_and_data(model: Any, data: Data) -> None:
    """Raise a ValueError that names the argument, the value and the cure, unless `data` suit `model`.

    Shapes are always checked, values only where they are concrete.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> check_model_and_data(ig.Model(gp, ig.likelihoods.Bernoulli()), ig.Data([0.0, 1.0], [1.0, 2.0]))
    Traceback (most recent call last):
        ...
    ValueError: labels of Bernoulli must be 0 or 1, got 2.0 (1 such labels); map -1/+1 by (y + 1) / 2.
    """
    check_inputs(model, data.x)
    if data.y is None:
        raise ValueError("data have no labels y; pass (X, y).")
    _check_outputs(model, data.y.shape[1])
    if not isinstance(data.y, jax.core.Tracer):
        y, mask = np.asarray(data.y), np.asarray(data.mask)
        empty = np.flatnonzero(~mask.any(axis=0))
        if empty.size:
            raise ValueError(
                f"every label in column {empty[0]} of y is missing; drop that column (and the output) or give labels."
            )
        model.likelihood.check(np.where(mask, y, np.nan))
        _check_index(model, np.asarray(data.index))


def check_inputs(model: Any, x: Any) -> None:
    """Raise a ValueError unless the first layer accepts inputs of the width of `x` [N, D]."""
    layer = model.layers[0]
    if x is None or not isinstance(layer, SparseGP):
        return
    one = jax.ShapeDtypeStruct((1, x.shape[1]), dtype_of(layer))
    try:
        eqx.filter_eval_shape(layer.prior.Kuf, layer.features, one)
    except (ValueError, TypeError) as error:
        raise ValueError(f"X has {x.shape[1]} columns, which layers[0] cannot take: {error}") from error


def _check_outputs(model: Any, num_outputs: int) -> None:
    needed = model.likelihood.num_latents(num_outputs)
    layer = model.layers[-1]
    given = layer.prior.num_outputs if isinstance(layer, SparseGP) else needed
    if needed != given:
        raise ValueError(
            f"y has {num_outputs} columns, for which {type(model.likelihood).__name__} needs {needed} latent "
            f"functions, but the last layer gives {given}; change y, the likelihood or the prior."
        )


def _check_index(model: Any, index: np.ndarray) -> None:
    for part in jax.tree.leaves(model.likelihood, is_leaf=lambda v: isinstance(v, PerDatum)):
        if isinstance(part, PerDatum) and index.max() >= part.values.shape[0]:
            raise ValueError(
                f"the likelihood has PerDatum values for {part.values.shape[0]} data, but data.index reaches "
                f"{index.max()}; pass one value for each datum."
            )
