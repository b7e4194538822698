"""Whether a model and data fit together: one place, so that every function refuses a mismatch in the same words."""

from typing import Any

import jax
import numpy as np

from .data import Data
from .layers import encoders
from .likelihoods.base import PerDatum


def check_model_and_data(model: Any, data: Data) -> None:
    """Raise a ValueError that names the argument, the value and the cure, unless `data` suit `model`.

    Shapes are always checked, values only where they are concrete.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> check_model_and_data(ig.Model(gp, ig.likelihoods.Bernoulli()), ig.Data([0.0, 1.0], [1.0, 2.0]))
    Traceback (most recent call last):
        ...
    ValueError: labels of Bernoulli must be 0 or 1, got 2.0 (1 of 2 labels are not); map -1/+1 by (y + 1) / 2.
    """
    check_shapes(model, data)
    if not isinstance(data.y, jax.core.Tracer):
        y, mask = np.asarray(data.y), np.asarray(data.mask)
        empty = np.flatnonzero(~mask.any(axis=0))
        if empty.size:
            raise ValueError(
                f"every label in column {empty[0]} of y is missing; drop that column (and the output) or give labels."
            )
        model.likelihood.check(np.where(mask, y, np.nan))
        _check_index(model, np.asarray(data.index))


def check_shapes(model: Any, data: Data) -> None:
    """Raise a ValueError unless the widths of x, of the layers and of y fit; also under jit."""
    if data.y is None:
        raise ValueError("data have no labels y; pass (X, y).")
    given = model.width(0 if data.x is None else data.x.shape[1])
    needed = model.likelihood.num_latents(data.y.shape[1])
    if needed != given:
        raise ValueError(
            f"y has {data.y.shape[1]} columns, for which {type(model.likelihood).__name__} needs {needed} latent "
            f"functions, but the last layer gives {given}; change y, the likelihood or the prior."
        )


def _check_index(model: Any, index: np.ndarray) -> None:
    for part in jax.tree.leaves(model, is_leaf=lambda v: isinstance(v, PerDatum | encoders.PerDatum)):
        if isinstance(part, encoders.PerDatum) and index.max() >= part.mean.shape[0]:
            raise ValueError(
                f"an encoder has Gaussians for {part.mean.shape[0]} data, but data.index reaches {index.max()}; "
                "number the data from 0 as in the encoder."
            )
        if isinstance(part, PerDatum) and index.max() >= part.values.shape[0]:
            raise ValueError(
                f"the likelihood has PerDatum values for {part.values.shape[0]} data, but data.index reaches "
                f"{index.max()}; pass one value for each datum."
            )
