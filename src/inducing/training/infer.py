"""Latent variables of new data, for models with a Gaussian q(h_n) for each datum."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from inducing._xla import compiled
from inducing.bounds.elbo import elbo
from inducing.bounds.terms import labels
from inducing.checks import check_counts, checked_data
from inducing.data import Data, as_data
from inducing.model import Model, enter
from inducing.parameters import as_key, dtype_of
from inducing.training.fit import fit

DONORS, DRAWS = 256, 8  # training data whose q(h) may be a starting value, and samples of h in an expectation


def infer(model: Model, data: Any, *, steps: int = 500, learning_rate: float = 0.05, key: Array | None = None) -> Model:
    """The model with q(h) of new data in place of those of the training data; the same as `Model.infer`.

    The q(h) of each new datum starts at that of the training datum under which its labels are most likely. Adam then
    maximises the bound with everything else frozen.

    Args:
        model: a trained model whose latent variables have a Gaussian for each datum.
        data: `(X, y)` or an `ig.Data`, whose rows are numbered from 0; labels may be missing (NaN).
        steps: the number of steps.
        learning_rate: the step size of Adam at the start; it decays to 0.
        key: a random key, by default `jax.random.key(0)`.

    Returns:
        A model on which to call `reconstruct` for these data.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if it has no such latent variables, or the data do not fit it.

    Examples:
        >>> import inducing as ig
        >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder([[-1.0], [2.0]], scale=0.1))
        >>> model = ig.Model([latent, ig.Deterministic(lambda h: h * jnp.ones(2))], ig.likelihoods.Gaussian(0.01))
        >>> new = (None, [[0.5, float("nan")], [-2.0, -2.0], [1.0, 1.0]])
        >>> print(ig.training.infer.infer(model, new).reconstruct(new).mean[:, 1].round(1))
        [ 0.5 -2.   1. ]
    """
    check_counts(steps=steps)
    data = as_data(data, dtype_of(model))
    data = Data(data.x, data.y, data.mask)
    _check(model)
    rows = _rows(model)
    donors = np.unique(np.linspace(0, len(rows[0]) - 1, DONORS).astype(int))
    # The index is 0 in this check, because there is no q(h) for all of the rows yet.
    checked_data(model, Data(data.x, data.y, data.mask, np.zeros(len(data), int)))
    scores = np.asarray(compiled(_scores)(model, data, jnp.asarray(donors), as_key(key)))
    best = donors[scores.argmax(axis=0)]
    new = eqx.tree_at(_rows, model, [a[best] for a in rows])

    def others(m: Model) -> list[Any]:
        own = {id(a) for a in _rows(m)}
        return [a for a in jax.tree.leaves(m) if eqx.is_inexact_array(a) and id(a) not in own]

    result = fit(
        new,
        data,
        objective=partial(elbo, samples=DRAWS),
        method="adam",
        steps=steps,
        optimiser=optax.adam(optax.cosine_decay_schedule(learning_rate, steps)),  # decays, since the bound is noisy
        freeze=others,
        initialise=False,
        progress=False,
        key=key,
    )
    return result.model


def _rows(model: Model) -> list[Any]:
    """The arrays of which each row belongs to a datum."""
    return [a for layer in model.layers for a in jax.tree.leaves(layer.per_datum())]


def _check(model: Model) -> None:
    if not _rows(model):
        raise ValueError(
            "infer is for latent variables with a PerDatumEncoder, and this model has none; an encoder that sees "
            "labels needs no training for new data: call model.reconstruct(data)."
        )
    if model.likelihood.num_data() is not None:
        raise ValueError(
            "the likelihood has PerDatum values, which belong to the training data and not to new data; infer with a "
            "likelihood without them, such as ig.Model(model.layers, ig.likelihoods.Gaussian(0.1)).infer(data)."
        )


def _scores(model: Model, data: Data, donors: Array, key: Array) -> Float[Array, "J N"]:
    """The expected log density of the labels of each datum, if its q(h) were that of each donor."""
    seen, mask = labels(data)

    def one(j):
        rows = Data(enter(model, data)[:, 0], data.y, data.mask, jnp.full(len(data), j))
        x, _ = model.propagate(rows, key, DRAWS)
        mean, cov = model.layers[-1].moments(x, model.likelihood.joint)
        y = jnp.where(mask, seen, jnp.asarray(model.likelihood.fill, seen.dtype))

        def draw(mean, cov):
            return model.likelihood.expected_log_prob(mean, cov, y, index=data.index)

        each = jax.vmap(draw, in_axes=1)(mean, cov)
        return jnp.sum(jnp.where(mask, jnp.mean(each, axis=0), 0.0), axis=1)

    return jax.lax.map(one, donors)
