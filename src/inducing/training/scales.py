"""Starting values from data: the parts of a model propose them, and this module puts them into the model."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array
from inducing.checks import checked_data
from inducing.data import Data, repeated_by_weight
from inducing.layers.base import stack_width, start_stack
from inducing.model import Model
from inducing.parameters import Start


def scales(model: Model, data: Any) -> Model:
    """A model with its scales set from data, and q(u) set to the prior of the new kernel.

    Each part of a model proposes its own starting values: kernels, means, priors, likelihoods and layers answer
    `start`, `start_inputs` or `start_outputs`, also those that you define yourself.

    - If labels are f plus noise (Gaussian, Student-t, Laplace), the prior variance of the last layer becomes the
      variance of y (its kernels keep their proportions), the noise a tenth of it, and constant means the mean of y.
    - If f is the logarithm of a scale (LogNormal, Gamma, Weibull, Exponential), the same holds with log y.
    - A HeteroscedasticGaussian has one function of each kind, the second being the logarithm of the noise.
    - If f is the logarithm of the mean of counts, constant means become that of y. Labels of any size therefore need a
      constant mean if the scale of y is a shift of f.
    - Lengthscales become (√D − ½) standard deviations of the latents' inputs: for images these are patches, above other
      layers a sample of what those give.
    - The steepness of a ChangePoint becomes 2 divided by the standard deviation of its column.
    - The columns of Linear, Polynomial and ArcCosine kernels contribute equally: each a variance of one, or all
      together as much as the offset or bias.

    `ig.fit` does this for parameters at their default value.

    Args:
        model: a model.
        data: (X, y) or `ig.Data`.

    Returns:
        The model with new values.

    Raises:
        ValueError: if the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.initialise.scales(ig.Model(gp, ig.likelihoods.Gaussian()), ([0.0, 1.0], [0.0, 2e6]))
        >>> print(model.likelihood.variance)
        100000000000.0
    """
    return _rescaled(model, checked_data(model, data, every_output=True), lambda start: True)[0]


def automatic_scales(model: Model, data: Data, trained: Callable[[Array], bool]) -> tuple[Model, bool]:
    """`scales` for parameters that are at their default or far off.

    A model whose q is not as it was made has been trained or set by hand, and keeps its values.

    Args:
        model: a model that fits the data.
        data: the data.
        trained: whether an array of the model is trained.

    Returns:
        The model, and whether anything changed.
    """
    if not all(layer.is_fresh for layer in model.layers):
        return model, False
    default = _at_default(model)
    return _rescaled(model, data, lambda s: trained(s.leaf) and (s.far or default.get(id(s.leaf), False)))


def with_shorter_lengthscales(model: Model, data: Data, trained: Callable[[Array], bool]) -> Model | None:
    """A model with its trained lengthscales divided so that M features are about one lengthscale apart.

    If labels vary faster than the lengthscales at the start allow, a fit may explain them by noise alone.
    Lengthscales from `scales` are √D − ½ standard deviations. M features in D columns are about √12 M^(−1/D) apart
    (random points in many columns √(2D)). Lengthscales are divided by 2 at least.

    Args:
        model: a model of one layer.
        data: the data.
        trained: whether an array of the model is trained.

    Returns:
        The model, or None if no lengthscale is trained.
    """
    gp = model.layers[-1].as_sparse_gp()
    if gp is None or data.x is None:
        return None
    x = np.asarray(data.x)
    D = max(1, int((x.min(axis=0) < x.max(axis=0)).sum()))
    apart = max(math.sqrt(12.0), math.sqrt(2.0 * D)) * gp.num_features ** (-1.0 / D)
    factor = max(2.0, (math.sqrt(D) - 0.5) / apart)
    leaves = [leaf for kernel in gp.prior.kernels for leaf in kernel.lengthscales()]
    shorter = {id(leaf): np.asarray(leaf) / factor for leaf in leaves if trained(leaf)}
    return _replace(model, shorter) if shorter else None


def _rescaled(model: Model, data: Data, wanted: Callable[[Start], bool]) -> tuple[Model, bool]:
    """The model with the starting values that are `wanted`, and whether anything changed.

    First what follows from the inputs, because the variance of some priors depends on it; then what follows from the
    labels, which may change the same arrays again.
    """
    data, before = repeated_by_weight(data), jtu.tree_leaves(model)
    chosen = {id(start.leaf): start.value for start in _from_inputs(model, data) if wanted(start)}
    model = _replace(model, chosen) if chosen else model
    changed = {id(new) for new, old in zip(jtu.tree_leaves(model), before, strict=True) if new is not old}
    starts = [start for start in _from_labels(model, data) if id(start.leaf) in changed or wanted(start)]
    more = {id(start.leaf): start.value for start in starts}
    return _replace(model, more) if more else model, bool(chosen or more)


def _from_inputs(model: Model, data: Data) -> list[Start]:
    """Starting values of lengthscales and weights of all layers."""
    x = data.x
    if x is None:
        return []
    # without labels, so that latent variables are sampled from their prior
    return start_stack(model.layers, lambda: x, data.without_labels(), itertools.count())[0]


def _from_labels(model: Model, data: Data) -> list[Start]:
    """Starting values of the variances and means of the last layer, and of the likelihood."""
    y = np.where(np.asarray(data.mask), np.asarray(data.y, float), np.nan)
    width = stack_width(model.layers[:-1], 0 if data.x is None else data.x.shape[1], "X has")
    assert width is not None  # because that of the inputs is known
    x = data.x if len(model.layers) == 1 else None
    return model.layers[-1].start_outputs(model.likelihood, x, y, width)


def _replace(model: Model, values: dict[int, Any]) -> Model:
    """The model with new values for arrays, given by identity so that tied arrays stay tied, and q at the prior."""

    def one(leaf):
        if id(leaf) not in values:
            return leaf
        value = np.asarray(values[id(leaf)])
        same_size = value.size == leaf.size  # also [1] for a single number
        return own_array(np.reshape(value, leaf.shape) if same_size else np.broadcast_to(value, leaf.shape), leaf.dtype)

    made: dict[int, Any] = {}
    model = jtu.tree_map(lambda leaf: made.setdefault(id(leaf), one(leaf)) if eqx.is_array(leaf) else leaf, model)
    return eqx.tree_at(lambda m: m.layers, model, tuple(layer.at_prior() for layer in model.layers))


def _at_default(tree: Any) -> dict[int, bool]:
    """For each array of a field with a default, by identity, whether all its entries still have that value."""
    found: dict[int, bool] = {}

    def visit(node):
        if dataclasses.is_dataclass(node):
            for field in dataclasses.fields(node):
                leaf: Any = getattr(node, field.name, None)
                if eqx.is_inexact_array(leaf) and isinstance(field.default, int | float):
                    found[id(leaf)] = bool(np.all(np.asarray(leaf) == np.asarray(field.default, leaf.dtype)))
        return False  # visit what is inside, too

    jtu.tree_leaves(tree, is_leaf=visit)
    return found
