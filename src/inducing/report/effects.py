"""The effect of a column on the predictions: partial dependence with posterior uncertainty."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from inducing._xla import compiled
from inducing.checks import check_counts, check_model, check_seeds, checked_inputs
from inducing.likelihoods.base import AbstractLikelihood
from inducing.model import Model
from inducing.parameters import as_probability
from inducing.report.columns import as_columns

SAMPLES = 200  # sampled functions, if there is no closed form
INNER = 32  # samples of inner layers
FEW = 12  # up to this many different numbers are shown one by one


class Effect(NamedTuple):
    """The average prediction as a function of one column.

    Attributes:
        name: the name of the column.
        values: the values of the column, numbers or text [T].
        mean: the average prediction [T, P, C] of P outputs; C is 1, or the number of classes.
        lower: the lower end of its interval [T, P, C].
        upper: the upper end of its interval [T, P, C].

    Examples:
        >>> one = np.ones((1, 1, 1))
        >>> Effect("size", np.array([3.0]), one, one - 0.1, one + 0.1).mean.shape
        (1, 1, 1)
    """

    name: str
    values: np.ndarray
    mean: Float[np.ndarray, "T P C"]
    lower: Float[np.ndarray, "T P C"]
    upper: Float[np.ndarray, "T P C"]


def effect(
    model: Any,
    X: Any,
    column: str | int,
    names: Any = None,
    *,
    values: Any = None,
    points: int = 20,
    num: int = 100,
    level: float = 0.95,
    seed: int = 0,
) -> Effect:
    """The effect of one column on the predictions: their average over rows in which only this column is changed.

        g(t) = 1/n Σ_i E[y | f(x_i with column = t)]

    This is the partial dependence (Friedman 2001). f is uncertain, and so is g: with Gaussian noise g(t) is Gaussian,
    with the mean and the variance 1/n² Σ_ij Cov[f(x_i), f(x_j)] of the joint posterior at the n rows. For other
    likelihoods, functions are sampled from that posterior. The band is the uncertainty of the average only; single
    predictions vary more. As for `relevance`, correlated columns lead to rows that never occur.

    The cost is that of `points` joint posteriors at `num` rows each, 2 `num` M² operations for M inducing points. All
    points use the same random rows, whose choice shifts the curve by about the standard deviation of f over √`num`, but
    hardly changes its shape.

    Args:
        model: an `ig.Model` with inputs.
        X: inputs [N, D], such as those of the training data.
        column: the name of the column, or its number.
        names: the names of the columns, as for `ig.report.relevance`.
        values: the values of the column [N] to show, numbers or text, if X contains an encoding of them. By default,
            those in X.
        points: the number of values to show. They are evenly spaced between the 2 % and 98 % quantiles; for text and
            for inputs with few different values, they are the most frequent ones.
        num: the number of rows n to average over.
        level: the probability of the interval.
        seed: the seed of the rows and of samples.

    Returns:
        An `Effect`.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if X does not fit the model, or there is no such column.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model(ig.Deterministic(lambda x: 2.0 * x[:1] + x[1:2]), ig.likelihoods.Gaussian(0.1))
        >>> X = np.random.default_rng(0).uniform(size=(1000, 2))
        >>> found = ig.report.effect(model, X, "length", ["length", "width"])
        >>> slope = np.diff(found.mean[:, 0, 0]) / np.diff(found.values)
        >>> print(slope.min().round(6), slope.max().round(6))
        2.0 2.0
    """
    check_model(model)
    X, _ = checked_inputs(model, X)
    rows = np.asarray(X)
    columns = as_columns(names, rows.shape[1])
    check_counts(points=points, num=num)
    check_seeds(seed=seed)
    level = float(as_probability("level", level))
    known = list(columns)
    if isinstance(column, int) and 0 <= column < len(known):
        column = known[column]
    if column not in columns:
        raise ValueError(f"column must be one of {', '.join(known)}, or its number, got {column!r}.")
    own = list(columns[column])
    shown = rows[:, own[0]] if values is None else np.asarray(values)
    if shown.shape != (len(rows),):
        raise ValueError(f"values must have one entry for each of the {len(rows)} rows, got shape {shown.shape}.")
    where, settings = grid(shown, rows[:, own], points)
    return effect_at(model, rows, str(column), own, where, settings, num, level, seed)


def effect_at(
    model: Model,
    rows: Float[np.ndarray, "N D"],
    name: str,
    own: list[int],
    where: np.ndarray,
    settings: Float[np.ndarray, "T K"],
    num: int = 100,
    level: float = 0.95,
    seed: int = 0,
) -> Effect:
    """The effect of a column at given values, which are encoded as `settings`: see `effect`."""
    rng = np.random.default_rng(seed)
    base = rows[rng.choice(len(rows), min(num, len(rows)), replace=False)]
    found = []
    for setting in settings:
        changed = base.copy()
        changed[:, own] = setting
        found.append(_average(model, changed, level, jax.random.key(seed)))
    return Effect(name, where, *(np.stack(part) for part in zip(*found, strict=True)))


def grid(shown: np.ndarray, codes: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The values to show, and the inputs [T, K] that encode them."""
    if shown.dtype.kind not in "fiub":
        labels, first, count = np.unique(shown.astype(str), return_index=True, return_counts=True)
        kept = np.sort(np.argsort(-count, kind="stable")[:points])
        return labels[kept], codes[first[kept]]
    numbers = shown.astype(float)
    present = np.isfinite(numbers)
    values, first = np.unique(numbers[present], return_index=True)
    codes = codes[present][first]
    if len(values) <= min(FEW, points):
        return values, codes
    low, high = np.quantile(numbers[present], [0.02, 0.98])
    where = np.linspace(low, high, points)
    # interpolates the encoding between rows, which is exact if it is linear, as for scaled numbers
    return where, np.stack([np.interp(where, values, code) for code in codes.T], axis=1)


def _average(model: Model, X: np.ndarray, level: float, key: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and interval [P, C] of the average prediction at rows X."""
    post = model.posterior(X, full_cov=True, samples=INNER)
    n, F = post.mean.shape
    if model.likelihood.has_gaussian_noise(F):
        mean = np.asarray(post.mean, float).mean(axis=0)
        cov = np.asarray(post.covariance, float).reshape(n, F, n, F)
        std = np.sqrt(np.maximum(np.einsum("ipjp->p", cov), 0.0)) / n
        half = ndtri(0.5 + 0.5 * level) * std
        return tuple(a[:, None] for a in (mean, mean - half, mean + half))
    f = post.sample(key, SAMPLES).reshape(SAMPLES * n, F)
    each = np.asarray(compiled(_expected)(model.likelihood, f), float)
    average = each.reshape(SAMPLES, n, *each.shape[1:]).mean(axis=1)
    low, high = np.quantile(average, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    return average.mean(axis=0), low, high


def _expected(likelihood: AbstractLikelihood, f: Float[Array, "N F"]) -> Float[Array, "N P C"]:
    """E[y | f], or the probability of each class."""
    classes = likelihood.class_count()
    if classes is None:
        variances = jnp.zeros((*f.shape, f.shape[-1]) if likelihood.joint else f.shape, f.dtype)
        return likelihood.predictive_moments(f, variances)[0][..., None]
    P = 1 if likelihood.joint else f.shape[-1]
    labels = jnp.broadcast_to(jnp.arange(classes, dtype=f.dtype)[:, None, None], (classes, len(f), P))
    return jnp.moveaxis(jnp.exp(jax.vmap(lambda y: likelihood.log_prob(f, y))(labels)), 0, -1)
