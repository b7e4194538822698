"""Whether a model and data fit together: one place, so that every function refuses a mismatch in the same words."""

from typing import Any

import jax
import numpy as np

from inducing.data import Data
from inducing.layers import encoders
from inducing.model import Model, kind_of
from inducing.parameters import at_least_one
from inducing.priors.derivative import Derivative
from inducing.priors.image import ImageConvolution


def check_model(model: Any) -> None:
    """Raise a TypeError for what is no model, such as the result of a fit.

    >>> import inducing as ig
    >>> check_model(ig.kernels.Matern52())
    Traceback (most recent call last):
        ...
    TypeError: model must be an ig.Model, got Matern52; of a fit, pass result.model.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be an ig.Model, got {kind_of(model)}; of a fit, pass result.model.")


def check_model_and_data(model: Any, data: Data) -> None:
    """Raise a ValueError that names the argument, the value and the cure, unless `model` can be trained on `data`.

    Shapes are always checked, values only where they are concrete. Beyond `check_data`, every output needs a label;
    one of a value and its derivatives is enough, and one of the responses of a latent to the patches of an image.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> check_model_and_data(ig.Model(gp, ig.likelihoods.Bernoulli()), ig.Data([0.0, 1.0], [1.0, 2.0]))
    Traceback (most recent call last):
        ...
    ValueError: labels of Bernoulli must be 0 or 1, got 2.0 (1 of 2 labels are not); map -1/+1 by (y + 1) / 2.
    """
    check_data(model, data)
    if not isinstance(data.mask, jax.core.Tracer):
        seen = np.asarray(data.mask).any(axis=0)
        prior = getattr(model.layers[-1], "prior", None)
        if isinstance(prior, Derivative | ImageConvolution) and np.size(seen) == prior.num_outputs:
            alike = prior.directions if isinstance(prior, Derivative) else prior.num_sites
            seen = np.repeat(seen.reshape(-1, alike).any(axis=1), alike)
        empty = np.flatnonzero(~seen)
        if empty.size:
            raise ValueError(
                f"every label in column {empty[0]} of y is missing; drop that column (and the output) or give labels."
            )


def check_data(model: Any, data: Data) -> None:
    """Raise a ValueError unless widths fit, labels lie in the likelihood's support and indices in what they address.

    Outputs without any label are allowed. Widths are checked under jit too.
    """
    _check_widths(model, data)
    if data.x is not None:
        model.check_inputs(data.x)
    if any(isinstance(a, jax.core.Tracer) for a in (data.y, data.mask, data.index)):
        return
    y, mask, index = (np.asarray(a) for a in (data.y, data.mask, data.index))
    _check_index(model, index)
    model.likelihood.check_index(index, mask)
    model.likelihood.check(np.where(mask, y, np.nan), index=index)


def _check_widths(model: Any, data: Data) -> None:
    if data.y is None:
        raise ValueError("data have no labels y; pass (X, y).")
    given = model.width(0 if data.x is None else data.x.shape[1])
    needed = model.likelihood.num_latents(data.y.shape[1])
    if needed != given:
        raise ValueError(
            f"y has {data.y.shape[1]} columns, for which {type(model.likelihood).__name__} needs {needed} latent "
            f"functions, but the last layer gives {given}; change y, the likelihood or the prior."
        )
    f = jax.ShapeDtypeStruct((len(data), needed), data.y.dtype)
    jax.eval_shape(lambda f, d: model.likelihood.log_prob(f, d.y, index=d.index), f, data)  # do its parameters fit y?


def _check_index(model: Any, index: np.ndarray) -> None:
    if index.min() < 0:
        raise ValueError(f"data.index holds {index.min()}; number the data from 0.")
    for part in jax.tree.leaves(model, is_leaf=lambda v: isinstance(v, encoders.PerDatumEncoder)):
        if isinstance(part, encoders.PerDatumEncoder) and index.max() >= part.mean.shape[0]:
            raise ValueError(
                f"an encoder has Gaussians for {part.mean.shape[0]} data, but data.index reaches {index.max()}; "
                "number the data from 0 as in the encoder."
            )


def check_counts(**counts: Any) -> None:
    """Raise a ValueError unless each argument, given by its name, is a whole number from 1.

    >>> check_counts(samples=0)
    Traceback (most recent call last):
        ...
    ValueError: samples must be an integer of at least 1, got 0.
    """
    for name, value in counts.items():
        at_least_one(name, value)
