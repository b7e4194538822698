"""Scores of predictions: how good a predictive distribution is, in one number. Lower is better.

The first four are proper: no prediction scores better on average than the distribution that the labels come from
(Gneiting & Raftery 2007). Missing labels (NaN) are left out, and weights say how often each row counts.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.data import as_labels, as_weight
from inducing.inference.joint import JointPredictive
from inducing.likelihoods.predictive import Predictive
from inducing.parameters import as_numbers


def crps(pred: Any, y: Any, *, weight: Any = None) -> float:
    """The mean continuous ranked probability score, in the unit of y.

        CRPS = ∫ (P(label ≤ z) − 1{z ≥ y})² dz = E|Y − y| − ½ E|Y − Y′|

    It generalises the absolute error and depends on the distance between label and prediction: unlike the log score, it
    stays small if a label lies just outside a narrow prediction. Classes are treated as ordered labels and scored by
    their numbers; for classes without an order use `brier` or `log_score`.

    Args:
        pred: predictions of labels, `model.predict(X)`.
        y: the labels at X, [N, P] or [N], NaN where missing.
        weight: how often each row counts [N], by default once.

    Returns:
        The weighted mean over all labels.

    Raises:
        TypeError: if `pred` is not a prediction of labels.
        ValueError: if `y` or `weight` does not fit, or every label is missing.

    Examples:
        >>> import inducing as ig
        >>> pred = ig.likelihoods.Gaussian(1.0).predictive(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
        >>> round(ig.scores.crps(pred, [0.0, 3.0]), 4)
        1.335
    """
    pred, y, w = _checked(pred, y, weight)
    return _mean(pred.crps(y), w, ~jnp.isnan(y))


def log_score(pred: Any, y: Any, *, weight: Any = None) -> float:
    """The mean log score of rows, −log p(y_n), in nats.

    Args:
        pred: predictions of labels, `model.predict(X)`.
        y: the labels at X, [N, P] or [N], NaN where missing.
        weight: how often each row counts [N], by default once.

    Returns:
        The weighted mean over all rows that have a label; the outputs of a row are summed.

    Raises:
        TypeError: if `pred` is not a prediction of labels.
        ValueError: if `y` or `weight` does not fit, or every label is missing.

    Examples:
        >>> import inducing as ig
        >>> pred = ig.likelihoods.Gaussian(1.0).predictive(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
        >>> round(ig.scores.log_score(pred, [0.0, 2.0], weight=[3.0, 1.0]), 4)  # ½ log 2π + ¼ ½ 2²
        1.4189
    """
    pred, y, w = _checked(pred, y, weight)
    return _mean(-pred.log_prob(y)[:, None], w, ~jnp.isnan(y).all(axis=1, keepdims=True))


def interval_score(pred: Any, y: Any, *, level: float = 0.95, weight: Any = None) -> float:
    """The mean score of central intervals [l, u]: their width, plus a penalty for labels outside.

        u − l + 2/(1 − level) · max(l − y, y − u, 0)

    Args:
        pred: predictions of labels, `model.predict(X)`.
        y: the labels at X, [N, P] or [N], NaN where missing.
        level: the probability that a label lies in the interval.
        weight: how often each row counts [N], by default once.

    Returns:
        The weighted mean over all labels, in the unit of y.

    Raises:
        TypeError: if `pred` is not a prediction of labels.
        ValueError: if `y`, `level` or `weight` does not fit, or every label is missing.

    Examples:
        >>> import inducing as ig
        >>> pred = ig.likelihoods.Gaussian(1.0).predictive(jnp.zeros((1, 1)), jnp.zeros((1, 1)))
        >>> round(ig.scores.interval_score(pred, [0.0]), 2), round(ig.scores.interval_score(pred, [2.96]), 2)
        (3.92, 43.92)
    """
    pred, y, w = _checked(pred, y, weight)
    lower, upper = pred.interval(level)
    outside = jnp.maximum(jnp.maximum(lower - y, y - upper), 0.0)
    return _mean(upper - lower + 2 / (1 - level) * outside, w, ~jnp.isnan(y))


def brier(pred: Any, y: Any, *, weight: Any = None) -> float:
    """The mean Brier score of classes, Σ_c (P(c) − 1{y = c})².

    Args:
        pred: predictions of classes, `model.predict(X)`.
        y: the numbers of the classes at X, [N, P] or [N], NaN where missing.
        weight: how often each row counts [N], by default once.

    Returns:
        The weighted mean over all labels, between 0 and 2.

    Raises:
        TypeError: if `pred` is not a prediction of classes.
        ValueError: if `y` or `weight` does not fit, or every label is missing.

    Examples:
        >>> import inducing as ig
        >>> pred = ig.likelihoods.Bernoulli().predictive(jnp.zeros((1, 1)), jnp.ones((1, 1)))
        >>> round(ig.scores.brier(pred, [1.0]), 4)
        0.5
    """
    pred, y, w = _checked(pred, y, weight)
    p = _probabilities(pred, y)
    hit = (jnp.arange(p.shape[-1], dtype=y.dtype)[None, None] == y[..., None]).astype(p.dtype)
    return _mean(jnp.sum((p - hit) ** 2, axis=-1), w, ~jnp.isnan(y))


def calibration_error(pred: Any, y: Any, *, weight: Any = None) -> float:
    """The difference between predicted probabilities and observed frequencies. It is not a proper score.

        numbers: ∫ |share of labels below the quantile u − u| du        classes: Σ_b w_b |accuracy_b − confidence_b|

    For classes, this is the expected calibration error: b runs over ten equal bins of the probability of the most
    probable class, w_b is the share of labels in a bin. For numbers, a perfect prediction has an error of about 0.3/√N
    by chance. Uninformative predictions, such as the frequency of each class, are calibrated too, so use it together
    with a proper score.

    Args:
        pred: predictions of labels, `model.predict(X)`.
        y: the labels at X, [N, P] or [N], NaN where missing.
        weight: how often each row counts [N], by default once.

    Returns:
        A number from 0 to ½ for numbers, and from 0 to 1 for classes.

    Raises:
        TypeError: if `pred` is not a prediction of labels.
        ValueError: if `y` or `weight` does not fit, or every label is missing.

    Examples:
        >>> import inducing as ig
        >>> pred = ig.likelihoods.Bernoulli().predictive(jnp.zeros((4, 1)), jnp.ones((4, 1)))
        >>> round(ig.scores.calibration_error(pred, [0.0, 1.0, 0.0, 1.0]), 4)
        0.0
    """
    # the two kinds of predictions of labels, plain value types; `share_below` refuses anything else
    if isinstance(pred, Predictive | JointPredictive) and pred.likelihood.class_count() is not None:
        pred, y, w = _checked(pred, y, weight)
        p, labels = np.asarray(_probabilities(pred, y)), np.asarray(y)
        confidence, seen = p.max(axis=-1), np.isfinite(labels)
        gap = (p.argmax(axis=-1) == labels) - confidence
        total = np.broadcast_to(w, labels.shape) * seen
        bins = np.minimum((10 * confidence).astype(int), 9)
        return float(sum(abs(np.sum((total * gap)[bins == b])) for b in range(10)) / total.sum())
    level = np.linspace(0.0, 1.0, 1001)
    return float(np.mean(np.abs(share_below(pred, y, level, weight=weight) - level)))


def share_below(pred: Any, y: Any, level: Float[np.ndarray, "L"], *, weight: Any = None) -> Float[np.ndarray, "L"]:
    """The share of labels below the predicted quantile of each level; perfect calibration gives the levels themselves.

    For discrete labels the probability of the label itself is spread evenly: y counts as below the level u by the share
    (u − P(<y)) / P(y), between 0 and 1.

    Args:
        pred: predictions of labels, `model.predict(X)`.
        y: the labels at X, [N, P] or [N], NaN where missing.
        level: probabilities.
        weight: how often each row counts [N], by default once.

    Returns:
        The weighted share for each level.

    Raises:
        TypeError: if `pred` is not a prediction of labels.
        ValueError: if `y` or `weight` does not fit, or every label is missing.

    Examples:
        >>> import inducing as ig, numpy as np
        >>> pred = ig.likelihoods.Gaussian(1.0).predictive(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
        >>> ig.scores.share_below(pred, [-1.0, 1.0], np.array([0.1, 0.5, 0.9])).tolist()
        [0.0, 0.5, 1.0]
    """
    pred, y, w = _checked(pred, y, weight)
    as_numbers("level", level)  # refuses anything else
    level = np.asarray(level, float).reshape(-1)
    counts = jnp.array([[support.kind == "count" for support in pred.likelihood.supports]], y.dtype)  # 1 or 0
    seen = np.isfinite(np.asarray(y))
    lower, upper = (np.asarray(pred.cdf(a))[seen] for a in (y - counts, y))
    w = np.broadcast_to(w, seen.shape)[seen]
    width = np.maximum(upper - lower, 1e-12)
    return np.array([np.sum(w * np.clip((u - lower) / width, 0.0, 1.0)) for u in level]) / np.sum(w)


def _checked(pred: Any, y: Any, weight: Any) -> tuple[Predictive, Array, np.ndarray]:
    """The prediction of each row by itself, labels [N, P] and weights [N, 1]."""
    if not isinstance(pred, Predictive | JointPredictive):  # plain value types; whatever a user passes arrives here
        raise TypeError(f"pred must be predictions of labels, model.predict(X), got {type(pred).__name__}.")
    pred = pred.marginal if isinstance(pred, JointPredictive) else pred
    y = as_labels(y, pred.latent_mean.dtype)
    w = np.ones((len(y), 1)) if weight is None else np.asarray(as_weight(weight, len(y)))[:, None]
    if not np.sum(w * np.isfinite(np.asarray(y))) > 0:
        raise ValueError("every label in y is missing (NaN) or has weight 0; there is nothing to compare with.")
    return pred, y, w / np.max(w)  # the scale does not matter, but sums of large weights would overflow


def _probabilities(pred: Predictive, y: Array) -> Array:
    """The probabilities [N, P, C] of the classes."""
    p = pred.probabilities
    if y.shape != (p.shape[0], 1 if p.ndim == 2 else p.shape[1]):
        raise ValueError(f"y must have a row for each of the {len(p)} inputs, got shape {y.shape}.")
    pred.likelihood.check(y, index=pred.index)
    return p.reshape(*y.shape, -1)


def _mean(scores: Array, w: np.ndarray, seen: Array) -> float:
    """The weighted mean of the scores [N, P] of labels that are not missing."""
    w = w * np.asarray(seen)
    return float(np.sum(np.where(w > 0, np.asarray(scores), 0.0) * w) / np.sum(w))
