"""The arguments of `fit`, checked before anything is compiled."""

import inspect
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from inducing._xla import own_array
from inducing.checks import check_model, checked_data
from inducing.data import Data, as_data
from inducing.declared import fits, shown
from inducing.model import Model
from inducing.parameters import as_key, check, dtype_of
from inducing.streams import Stream


class Arguments(NamedTuple):
    """The arguments of `fit`, which documents them.

    `checked` converts `data` and `held_out` to `Data`. If `data` is a stream, it is moved to `stream` and replaced by a
    sample of its rows, which starting values and the message are based on.
    """

    model: Model
    data: Any
    objective: Callable
    method: str
    steps: int | None
    batch_size: int | None
    optimiser: optax.GradientTransformation | None
    learning_rate: float | None
    gamma: float | None
    freeze: Callable[[Any], Any] | None
    clamp: int
    log_prior: Callable[[Any], Any] | None
    initialise: bool
    starts: int
    held_out: Any
    patience: int | None
    callback: Callable | None
    progress: bool | str
    key: Array | None
    checkpoint: str | os.PathLike | None
    checkpoint_every: int | None
    seconds: float | None
    stream: Stream | None = None

    @property
    def num_data(self) -> int:
        """The number of rows of the data or the stream."""
        return len(self.data if self.stream is None else self.stream)


def checked(given: Arguments) -> Arguments:
    """The arguments with the data as `Data` in the model's dtype, and whole numbers as int.

    Raises:
        TypeError: for an argument of the wrong kind.
        ValueError: for an argument out of range, or data that do not fit the model.
    """
    model = given.model
    check_model(model)
    _check_functions(given)
    check(model)
    stream = given.data if isinstance(given.data, Stream) else None
    data = checked_data(model, given.data if stream is None else stream.sample(), every_output=True)
    if data.weight is not None:
        data = _without_weightless(data, np.asarray(data.weight))
    _check_numbers(given, len(data) if stream is None else len(stream))
    if given.log_prior is not None:
        _check_log_prior(given.log_prior, model)
    if given.key is not None:
        as_key(given.key)  # None is kept: compiled code makes key 0 where it needs one
    return given._replace(
        data=data,
        stream=stream,
        held_out=None if given.held_out is None else _checked_held_out(model, given.held_out, data),
        steps=None if given.steps is None else int(given.steps),
        batch_size=None if given.batch_size is None else int(given.batch_size),
        starts=int(given.starts),
    )


def _without_weightless(data: Data, weight: np.ndarray) -> Data:
    """The data without labelled rows of weight 0, so that starting values and minibatches do not see them either.

    Rows of weight 0 without labels stay: they pad data of different sizes to one, so that these share a program.
    """
    keep = (weight > 0) | ~np.asarray(data.mask).any(axis=1)
    return data if keep.all() else data.rows(own_array(np.flatnonzero(keep), int))


def _checked_held_out(model: Model, held_out: Any, data: Data) -> Data:
    """Held-out data as `Data`, if the model can be evaluated on them."""
    try:
        held = as_data(held_out, dtype_of(model))
    except (TypeError, ValueError) as error:
        raise type(error)(f"held_out: {error}") from error
    if jax.tree.leaves([layer.per_datum() for layer in model.layers]):
        raise ValueError(
            "held_out needs q(h) of new data, but the PerDatumEncoder holds only those of the training data; "
            "use ig.layers.Amortised, or leave held_out out."
        )
    known = model.likelihood.num_data() is not None
    if known and (shared := np.intersect1d(held.index, data.index)).size:
        raise ValueError(
            f"held_out has rows of index {shared[0]}, a training datum, whose PerDatum value is not theirs; "
            "pass ig.Data(X, y, index=...) with the rows of PerDatum values that belong to held_out."
        )
    try:
        return checked_data(model, held, every_output=True)
    except ValueError as error:
        raise ValueError(f"held_out: {error}") from error


def _check_functions(given: Arguments) -> None:
    if not _takes_model_and_data(given.objective):
        raise TypeError(f"objective must be callable as objective(model, data), got {shown(given.objective)}.")
    if given.freeze is not None and not callable(given.freeze):
        raise TypeError(
            "freeze must be a function of the model such as lambda m: m.layers[0].features, got "
            f"{type(given.freeze).__name__}."
        )
    if given.log_prior is not None and not fits(given.log_prior, Callable[[Any], Any]):
        raise TypeError(f"log_prior must be callable as log_prior(model), got {shown(given.log_prior)}.")
    # any object with Optax's method `update` is accepted, not only Optax's own classes
    if given.optimiser is not None and not callable(getattr(given.optimiser, "update", None)):
        raise TypeError(f"optimiser must be an Optax optimiser such as optax.adam(0.01), got {given.optimiser!r}.")
    check_progress(given.progress)
    if given.callback is not None and not callable(given.callback):
        raise TypeError(f"callback must be callable as callback(progress), got {type(given.callback).__name__}.")


def _takes_model_and_data(objective: Any) -> bool:
    """Whether a function can be called as `fit` calls objectives."""
    if not callable(objective) or isinstance(objective, type):
        return False
    try:
        signature = inspect.signature(objective)
        signature.bind(None, None, **{name: None for name in ("key", "num_data") if name in signature.parameters})
    except (TypeError, ValueError):  # ValueError: a C function whose signature is not known
        return False
    return True


def _check_log_prior(log_prior: Callable[[Any], Any], model: Model) -> None:
    """Raise an error that names `log_prior` if it is not a function of a model."""
    try:
        eqx.filter_eval_shape(log_prior, model)
    except (AttributeError, TypeError) as error:
        raise TypeError(f"log_prior is called as log_prior(model), which raised: {error}") from error


def _check_numbers(given: Arguments, N: int) -> None:
    """Raise an error for numeric arguments of the wrong type or out of range. N is the number of rows."""
    if given.steps is not None:
        _check_whole("steps", given.steps, 0)
    if given.batch_size is not None:
        _check_whole("batch_size", given.batch_size, 1, N)
    if given.patience is not None:
        _check_whole("patience", given.patience, 1)
    if given.checkpoint is not None and not isinstance(given.checkpoint, str | os.PathLike):
        raise TypeError(f"checkpoint must be the path of a folder, such as 'run/', got {given.checkpoint!r}.")
    if given.checkpoint_every is not None:
        _check_whole("checkpoint_every", given.checkpoint_every, 1)
        if given.checkpoint is None:
            raise ValueError("checkpoint_every needs a folder; pass checkpoint='run/' too.")
    _check_whole("clamp", given.clamp, 0)
    _check_whole("starts", given.starts, 1)
    check_seconds(given.seconds)
    _check_lengths(given.learning_rate, given.gamma)


def check_progress(progress: Any) -> None:
    """Raise a TypeError unless `progress` is True, False or a label.

    Examples:
        >>> check_progress(1)
        Traceback (most recent call last):
            ...
        TypeError: progress must be True, False or a label for the bar, got 1.
    """
    if not isinstance(progress, bool | str):
        raise TypeError(f"progress must be True, False or a label for the bar, got {shown(progress)}.")


def check_seconds(seconds: Any) -> None:
    """Raise a ValueError unless a time limit is None or a positive number.

    Examples:
        >>> check_seconds(0)
        Traceback (most recent call last):
            ...
        ValueError: seconds must be a number greater than 0, got 0.
    """
    if seconds is not None and not (is_number(seconds) and seconds > 0):
        raise ValueError(f"seconds must be a number greater than 0, got {shown(seconds)}.")


def _check_lengths(rate: Any, gamma: Any) -> None:
    """Raise an error unless the learning rate and gamma are None or numbers in their range."""
    if callable(rate):
        raise TypeError("learning_rate must be a number; pass a schedule as optimiser=optax.adam(schedule).")
    if rate is not None and not (is_number(rate) and 0 < rate < np.inf):
        raise ValueError(f"learning_rate must be a number greater than 0, got {rate!r}.")
    if gamma is not None and not (is_number(gamma) and 0 < gamma <= 1):
        raise ValueError(f"gamma, the length of natural-gradient steps, must be in (0, 1], got {gamma!r}.")


def _check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    if not (is_number(value) and value % 1 == 0 and least <= value <= (np.inf if most is None else most)):
        bounds = f"at least {least}" if most is None else f"from {least} to the number of rows, {most}"
        raise ValueError(f"{name} must be a whole number, {bounds}; got {value!r}.")


def is_number(value: Any) -> bool:
    """Whether a value is a single real number of any numeric type.

    Examples:
        >>> is_number(np.float32(2.0)), is_number(True), is_number("2")
        (True, False, False)
    """
    if isinstance(value, bool | list | tuple):
        return False
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jnp.number):  # such as random keys
        return False
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"
