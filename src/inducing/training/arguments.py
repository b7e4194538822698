"""What a fit is given, checked before anything is compiled."""

from typing import Any

import jax
import numpy as np

from inducing.checks import check_model_and_data
from inducing.data import Data, as_data
from inducing.layers.encoders import PerDatumEncoder
from inducing.likelihoods.base import PerDatum
from inducing.model import Model
from inducing.parameters import dtype_of


def checked_held_out(model: Model, held_out: Any, data: Data) -> Data:
    """Held-out data, which must be such that the model can be judged by them."""
    try:
        held = as_data(held_out, dtype_of(model))
    except (TypeError, ValueError) as error:
        raise type(error)(f"held_out: {error}") from error
    kinds = {type(v) for v in jax.tree.leaves(model, is_leaf=lambda v: isinstance(v, PerDatumEncoder | PerDatum))}
    if PerDatumEncoder in kinds:
        raise ValueError(
            "held_out needs q(h) of new data, but the PerDatumEncoder holds only those of the training data; "
            "use ig.layers.Amortised, or leave held_out out."
        )
    if PerDatum in kinds and (shared := np.intersect1d(held.index, data.index)).size:
        raise ValueError(
            f"held_out has rows of index {shared[0]}, a training datum, whose PerDatum value is not theirs; "
            "pass ig.Data(X, y, index=...) with the rows of PerDatum values that belong to held_out."
        )
    try:
        check_model_and_data(model, held)
    except ValueError as error:
        raise ValueError(f"held_out: {error}") from error
    return held


def check_functions(objective: Any, freeze: Any, log_prior: Any, optimiser: Any, callback: Any) -> None:
    """Refuse what cannot be called as a fit will."""
    if not callable(objective):
        raise TypeError(f"objective must be callable as objective(model, data), got {type(objective).__name__}.")
    if freeze is not None and not callable(freeze):
        raise TypeError(
            "freeze must be a function of the model such as lambda m: m.layers[0].features, got "
            f"{type(freeze).__name__}."
        )
    if log_prior is not None and not callable(log_prior):
        raise TypeError(f"log_prior must be callable as log_prior(model), got {type(log_prior).__name__}.")
    if optimiser is not None and not callable(getattr(optimiser, "update", None)):
        raise TypeError(f"optimiser must be an Optax one such as optax.adam(0.01), got {optimiser!r}.")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable as callback(progress), got {type(callback).__name__}.")


def check_numbers(steps, batch_size, learning_rate, gamma, clamp, starts, patience, N) -> None:
    """Refuse numbers that are none, or out of range; N is the number of rows."""

    def whole(name, value, least, most=None):
        bounds = f"at least {least}" if most is None else f"from {least} to the number of rows, {most}"
        within = _is_number(value) and value % 1 == 0 and least <= value and (most is None or value <= most)
        if not within:
            raise ValueError(f"{name} must be a whole number, {bounds}; got {value!r}.")

    for name, value, *bounds in (("steps", steps, 0), ("batch_size", batch_size, 1, N), ("patience", patience, 1)):
        if value is not None:
            whole(name, value, *bounds)
    whole("clamp", clamp, 0)
    whole("starts", starts, 1)
    if callable(learning_rate):
        raise TypeError("learning_rate must be a number; pass a schedule as optimiser=optax.adam(schedule).")
    if learning_rate is not None and not (_is_number(learning_rate) and 0 < learning_rate < np.inf):
        raise ValueError(f"learning_rate must be a number greater than 0, got {learning_rate!r}.")
    if gamma is not None and not (_is_number(gamma) and 0 < gamma <= 1):
        raise ValueError(f"gamma, the length of natural-gradient steps, must be in (0, 1], got {gamma!r}.")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"
