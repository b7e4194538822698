"""Checks of arguments. Each public function calls one of these once, and inner functions do not check again.

They raise an error if a model does not fit its data or inputs, in the same words everywhere. Shapes are always checked.
Values are checked only if they are concrete, because under `jit` they are not known.
"""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from inducing.data import Data, as_data, as_inputs
from inducing.declared import is_whole, shown
from inducing.model import Model, kind_of
from inducing.parameters import at_least_one, dtype_of


@runtime_checkable
class HoldsModel(Protocol):
    """An object that holds a trained model, such as an estimator."""

    def computing(self) -> AbstractContextManager[Model]:
        """The model, inside a context in which JAX computes in its precision."""
        ...

    def encode(self, y: Any) -> Any:
        """Labels, encoded as numbers of the model."""
        ...


def of_held_models(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of a model, so that it also accepts an object that holds a model.

    If the function has an argument `data`, its labels are then those of the object, and are encoded for the model.

    Args:
        function: a function whose first argument is a model.

    Returns:
        The function of a model or of an object that holds one.
    """
    parameters = inspect.signature(function)

    @functools.wraps(function)
    def of_any(*args: Any, **options: Any) -> Any:
        first = next(iter(parameters.parameters))
        given = parameters.bind_partial(*args, **options).arguments
        holder = given.get(first)
        if not isinstance(holder, HoldsModel) or isinstance(holder, type):
            return function(*args, **options)
        data = given.get("data")
        if isinstance(data, tuple | list) and len(data) == 2:
            given["data"] = data[0], holder.encode(data[1])
        rest = given.pop("options", {})
        with holder.computing() as model:
            return function(**(given | rest | {first: model}))

    return of_any


def check_model(model: Any) -> None:
    """Raise a TypeError for anything that is not a model, such as the result of a fit.

    Examples:
        >>> import inducing as ig
        >>> check_model(ig.kernels.Matern52())
        Traceback (most recent call last):
            ...
        TypeError: model must be an ig.Model, got Matern52; of a fit, pass result.model.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be an ig.Model, got {kind_of(model)}; of a fit, pass result.model.")


def checked_data(model: Any, data: Any, *, every_output: bool = False) -> Data:
    """Data with labels that fit a model, in the model's dtype.

    Args:
        model: an `ig.Model`.
        data: `(X, y)`, `(X, y, mask)` or an `ig.Data`.
        every_output: whether each output needs a label, as in training. Outputs that are functionals of one function
            need only one label together: for example a value and its derivatives, or the responses to the patches of an
            image.

    Returns:
        The data. Their widths fit the model, their labels are in the likelihood's support, and the model has rows for
        their indices.

    Raises:
        TypeError: if `model` is not a model, or `data` cannot be turned into data.
        ValueError: if they do not fit together; the message names the argument, its value and what to do.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> checked_data(ig.Model(gp, ig.likelihoods.Bernoulli()), ([0.0, 1.0], [1.0, 2.0]))
        Traceback (most recent call last):
            ...
        ValueError: labels of Bernoulli must be 0 or 1, got 2.0 (1 of 2 labels are not); map -1/+1 by (y + 1) / 2.
    """
    check_model(model)
    data = as_data(data, dtype_of(model))
    width = _check_widths(model, data)
    if data.x is not None:
        model.check_inputs(data.x)
    if not any(isinstance(a, jax.core.Tracer) for a in (data.y, data.mask, data.index)):
        y, mask, index = (np.asarray(a) for a in (data.y, data.mask, data.index))
        _check_index(model, index, mask)
        model.likelihood.check(np.where(mask, y, np.nan), index=index)
    if every_output and not isinstance(data.mask, jax.core.Tracer):
        _check_every_output(model, np.asarray(data.mask), width)
    return data


def _check_widths(model: Model, data: Data) -> int:
    """The number of latent functions. A ValueError is raised unless it is the number that the labels need."""
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
    # raises an error if the shapes of the likelihood's parameters do not fit y
    jax.eval_shape(lambda f, d: model.likelihood.log_prob(f, d.y, index=d.index), f, data)
    return needed


def _check_index(model: Model, index: np.ndarray, mask: np.ndarray) -> None:
    if index.min() < 0:
        raise ValueError(f"data.index holds {index.min()}; number the data from 0.")
    for layer in model.layers:
        layer.check_index(index)
    model.likelihood.check_index(index, mask)


def _check_every_output(model: Model, mask: np.ndarray, width: int) -> None:
    seen = model.likelihood.labelled(mask).any(axis=0)
    if seen.all():
        return
    alike = model.layers[-1].group_size
    if seen.size == width:  # a label belongs to one latent function
        seen = np.repeat(seen.reshape(-1, alike).any(axis=1), alike)
    empty = np.flatnonzero(~seen)
    if empty.size:
        raise ValueError(
            f"every label in column {empty[0]} of y is missing; drop that column (and the output) or give labels."
        )


def checked_inputs(model: Any, X: Any, index: Any = None) -> tuple[Float[Array, "N D"], Int[Array, " N"] | None]:
    """New inputs that fit a model, in its dtype, and their index.

    Args:
        model: an `ig.Model`.
        X: inputs [N, D], or [N] for one column. None for a model without inputs; there is then one datum, or one for
            each entry of `index`.
        index: integers [N] that say which training data the inputs are, or None.

    Returns:
        X [N, D] and the index as an array, or None.

    Raises:
        TypeError: if `model` is not a model, or X does not hold numbers.
        ValueError: if X or the index does not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> checked_inputs(ig.Model(gp, ig.likelihoods.Gaussian()), [[0.0, 1.0]])
        Traceback (most recent call last):
            ...
        ValueError: X has 2 columns but the model's inputs have 1; pass X of shape [N, 1].
    """
    check_model(model)
    if X is None:
        X = jnp.zeros((1 if index is None else len(index), 0), dtype_of(model))
    else:
        X = as_inputs(X, dtype_of(model))
    dim = model.layers[0].num_inputs
    if dim is None:
        model.width(X.shape[1])
    elif X.shape[1] != dim:
        raise ValueError(
            f"X has {X.shape[1]} column{'s' * (X.shape[1] != 1)} but the model's inputs have {dim}; "
            f"pass X of shape [N, {dim}]."
        )
    model.check_inputs(X)
    return X, None if index is None else _checked_index(model, index, len(X))


def _checked_index(model: Model, index: Any, rows: int) -> Int[Array, " N"]:
    try:
        index = index if isinstance(index, jax.Array) else np.asarray(index)
    except ValueError:  # rows of different lengths
        raise ValueError(f"index must hold one whole number for each row of X, got {shown(index)}.") from None
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(f"index must hold whole numbers, the rows of training data, got dtype {index.dtype}.")
    if index.shape != (rows,):
        raise ValueError(f"index must have one entry per row of X, shape ({rows},), got {tuple(index.shape)}.")
    if not isinstance(index, jax.core.Tracer):
        numbers = np.asarray(index)
        if numbers.min() < 0:
            raise ValueError(
                f"index holds {numbers.min()}; training data are numbered from 0. Leave index out for new inputs."
            )
        try:
            model.likelihood.check_index(numbers, np.zeros((rows, 1), bool))  # no labels are seen
        except ValueError as error:
            raise ValueError(f"index does not fit the likelihood: {error} Leave index out for new inputs.") from error
    return jnp.asarray(index, int)


def check_seeds(**seeds: Any) -> None:
    """Raise a ValueError unless each argument, given by its name, is a whole number from 0, below 2⁶³.

    Examples:
        >>> check_seeds(seed=-1)
        Traceback (most recent call last):
            ...
        ValueError: seed must be a whole number, 0 or more and below 2^63, got -1.
    """
    for name, seed in seeds.items():
        if not is_whole(seed, 0) or seed >= 2**63:
            raise ValueError(f"{name} must be a whole number, 0 or more and below 2^63, got {shown(seed)}.")


def check_counts(**counts: Any) -> None:
    """Raise a ValueError unless each argument, given by its name, is an integer of at least 1.

    Examples:
        >>> check_counts(samples=0)
        Traceback (most recent call last):
            ...
        ValueError: samples must be an integer of at least 1, got 0.
    """
    for name, value in counts.items():
        at_least_one(name, value)
