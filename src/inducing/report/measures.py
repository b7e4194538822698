"""How good predictions are, with standard errors, beside those of simple baselines."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtr, ndtri

from inducing.likelihoods.predictive import Predictive
from inducing.report.contents import Baseline, Contents
from inducing.scores import share_below

LEVELS = (0.5, 0.8, 0.9, 0.95)
RIDGE = 1e-6  # of the linear baseline, relative to the spread of a column
MOST_TRAINING = 5000  # training rows that a regression baseline is fitted to
TINY = 1e-12


class Judged(NamedTuple):
    """The predictions of one target for the rows with a known label.

    Attributes:
        index: the row numbers [n].
        y: the labels [n].
        mean: the mean predictions [n].
        lower: the lower ends of the 95 % intervals [n]; numbers only.
        upper: the upper ends [n]; numbers only.
        log_density: the log density of each label [n].
        crps: the CRPS of each label [n]; numbers only.
        probabilities: the probabilities of the classes [n, C]; None for numbers.
        weight: how often each row counts [n], scaled to mean 1.
    """

    index: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    log_density: np.ndarray
    crps: np.ndarray
    probabilities: np.ndarray | None
    weight: np.ndarray

    def rows(self, kept: np.ndarray) -> "Judged":
        """Some of the rows."""
        return jax.tree.map(lambda a: a[kept], self)

    @property
    def size(self) -> float:
        """The effective number of rows (Σ w)² / Σ w² (Kish): their number, if all weights are equal."""
        return float(self.weight.sum() ** 2 / np.sum(self.weight**2))


class Measure(NamedTuple):
    """One score of the model and of the baselines.

    Attributes:
        name: the name of the score.
        meaning: what it measures, for readers who do not know it.
        sign: 1 if higher is better, −1 if lower is better, 0 if there is one right value.
        digits: how to print it: "number" or "percent".
        values: pairs of the value and its standard error, of the model first and then of each baseline.
    """

    name: str
    meaning: str
    sign: int
    digits: str
    values: tuple[tuple[float, float], ...]


def judge(
    pred: Predictive, y: Float[np.ndarray, "N P"], p: int = 0, num_classes: int = 0, weight: np.ndarray | None = None
) -> Judged:
    """The predictions of output p, for the rows where its label is known and the weight is not 0.

    Args:
        pred: predictions of labels.
        y: labels [N, P], NaN where missing.
        p: the number of the output.
        num_classes: the number of classes; 0 for numbers.
        weight: how often each row counts [N]; by default, once.

    Returns:
        The predictions and their scores, row by row.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model(ig.Deterministic(lambda x: x), ig.likelihoods.Gaussian(0.1))
        >>> judge(model.predict(np.zeros((2, 1))), np.array([[0.0], [np.nan]])).index.tolist()
        [0]
    """
    y = only(y, p)
    seen = np.isfinite(y[:, p]) if weight is None else np.isfinite(y[:, p]) & (weight > 0)
    index, labels = np.flatnonzero(seen), y[seen, p]
    counts = np.ones(len(index)) if weight is None else np.asarray(weight, float)[seen]
    counts = counts / counts.mean() if len(counts) else counts
    if num_classes:
        probabilities = class_probabilities(pred, p, y.shape[1], num_classes)[seen]
        of_label = probabilities[np.arange(len(index)), labels.astype(int)]
        none = np.full(len(index), np.nan)
        log_density = np.log(np.maximum(of_label, TINY))
        return Judged(index, labels, none, none, none, log_density, none, probabilities, counts)
    log_density = np.asarray(pred.log_prob(y), float)[seen]
    lower, upper = pred.interval(0.95)
    mean, lower, upper, crps = (np.asarray(a, float)[seen, p] for a in (pred.mean, lower, upper, pred.crps(y)))
    return Judged(index, labels, mean, lower, upper, log_density, crps, None, counts)


def only(y: np.ndarray, p: int) -> np.ndarray:
    """Labels of column p; those of the other columns become missing.

    Examples:
        >>> only(np.ones((1, 2)), 1).tolist()
        [[nan, 1.0]]
    """
    out = np.full(y.shape, np.nan)
    out[:, p] = y[:, p]
    return out


def class_probabilities(pred: Predictive, p: int, outputs: int, classes: int) -> Float[np.ndarray, "N C"]:
    """The class probabilities of output p. The other outputs may be numbers.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> pred = ig.likelihoods.Bernoulli().predictive(jnp.zeros((1, 2)), jnp.ones((1, 2)))
        >>> class_probabilities(pred, 1, 2, 2).round(3).tolist()
        [[0.5, 0.5]]
    """
    rows = pred.latent_mean.shape[-2]
    if pred.likelihood.class_count() is not None:
        return np.asarray(pred.probabilities, float).reshape(rows, outputs, classes)[:, p]
    each = []
    for c in range(classes):
        y = np.full((rows, outputs), np.nan)
        y[:, p] = c
        each.append(np.exp(np.asarray(pred.log_prob(y), float)))
    out = np.stack(each, axis=1)
    return out / out.sum(axis=1, keepdims=True)


def baseline_of(labels: np.ndarray, num_classes: int = 0, weight: np.ndarray | None = None) -> Baseline:
    """The prediction that ignores the inputs: class frequencies, or the mean and standard deviation of the labels.

    Half a row is added to each class, so that no class has probability 0.

    Args:
        labels: labels of training rows [N]; missing ones (NaN) are left out.
        num_classes: the number of classes; 0 for numbers.
        weight: how often each row counts [N]; by default, once.

    Examples:
        >>> baseline_of(np.array([1.0, 3.0, np.nan])).mean
        2.0
        >>> baseline_of(np.array([0.0, 0.0, 1.0]), num_classes=2).frequencies
        (0.625, 0.375)
    """
    seen = ~np.isnan(labels)
    labels, weight = labels[seen], np.ones(seen.sum()) if weight is None else np.asarray(weight, float)[seen]
    if num_classes:
        count = np.bincount(labels.astype(int), weights=weight, minlength=num_classes) + 0.5
        return Baseline(tuple((count / count.sum()).tolist()), 0.0, 0.0)
    mean = float(np.average(labels, weights=weight))
    return Baseline((), mean, float(np.sqrt(np.average((labels - mean) ** 2, weights=weight))))


def measures_of(contents: Contents, p: int, own: Judged) -> tuple[tuple[str, ...], list[Measure]]:
    """The names of the model and of the baselines, and the scores of each."""
    classes = own.probabilities is not None
    names = ["this model", "class frequencies" if classes else "always the average"]
    baseline, guess = contents.baselines[p] if contents.baselines else _baseline(contents, p, own), None
    if contents.training is not None:
        X, y, weight = contents.training
        seen = np.flatnonzero(np.isfinite(y[:, p]))
        seen = seen[:: -(-len(seen) // MOST_TRAINING)] if len(seen) else seen
        if len(seen) > X.shape[1] + 2:
            names.append("logistic regression" if classes else "linear regression")
            labels, test = y[seen, p], np.asarray(contents.X, float)[own.index]
            counts = np.ones(len(seen)) if weight is None else weight[seen] / weight[seen].mean()
            if own.probabilities is not None:
                guess = _logistic(X[seen], test, labels.astype(int), own.probabilities.shape[1], counts)
            else:
                guess = _linear(X[seen], test, labels, counts)
    return tuple(names), measures(own, baseline, guess)


def _baseline(contents: Contents, p: int, own: Judged) -> Baseline:
    num_classes = 0 if own.probabilities is None else own.probabilities.shape[1]
    if contents.training is not None:
        _, y, weight = contents.training
        if np.isfinite(y[:, p]).any():
            return baseline_of(y[:, p], num_classes, weight)
    return baseline_of(own.y, num_classes, own.weight)


def measures(own: Judged, baseline: Baseline, guess: Any = None) -> list[Measure]:
    """The scores of the model and of the baselines.

    Args:
        own: the predictions of the model.
        baseline: the prediction that ignores the inputs.
        guess: the predictions of a regression baseline: mean and standard deviation [n], or probabilities [n, C].

    Returns:
        The scores, weighted by how often each row counts.
    """
    return _of_classes(own, baseline, guess) if own.probabilities is not None else _of_numbers(own, baseline, guess)


def _of_numbers(own: Judged, baseline: Baseline, guess: Any) -> list[Measure]:
    n, w = len(own.y), own.weight
    guesses = [(np.full(n, baseline.mean), np.full(n, max(baseline.std, TINY))), *([] if guess is None else [guess])]
    gaussians = [_gaussian(own.y, mean, std) for mean, std in guesses]
    means = [own.mean, *(mean for mean, _ in guesses)]
    squares = [(own.y - mean) ** 2 for mean in means]
    densities = [own.log_density, *(g[0] for g in gaussians)]
    crps = [own.crps, *(g[1] for g in gaussians)]
    inside = [(own.lower <= own.y) & (own.y <= own.upper), *(g[2] for g in gaussians)]
    around = (own.y - np.average(own.y, weights=w)) ** 2
    return [
        Measure("RMSE", "typical error, in the unit of the target; large errors count more", -1, "number",
                tuple(_root(s, w) for s in squares)),
        Measure("mean absolute error", "average distance between prediction and true value", -1, "number",
                tuple(_mean(np.sqrt(s), w) for s in squares)),
        Measure("R²", "variance explained: 100 % is a perfect prediction, 0 % is no better than the average", 1,
                "percent", tuple(_explained(s, around, w) for s in squares)),
        Measure("CRPS", "error of the whole predicted distribution, in the unit of the target", -1, "number",
                tuple(_mean(c, w) for c in crps)),
        Measure("log density", "how likely the model considered the true values, in nats per row", 1, "number",
                tuple(_mean(d, w) for d in densities)),
        Measure("in 95 % interval", "should be 95 %; less means overconfident, more means underconfident", 0,
                "percent", tuple(share_of(i, w) for i in inside)),
    ]  # fmt: skip


def _of_classes(own: Judged, baseline: Baseline, guess: Any) -> list[Measure]:
    assert own.probabilities is not None
    codes, C, w = own.y.astype(int), own.probabilities.shape[1], own.weight
    frequencies = np.broadcast_to(np.asarray(baseline.frequencies), (len(codes), C))
    guesses = [own.probabilities, frequencies, *([] if guess is None else [guess])]
    hit = codes[:, None] == np.arange(C)
    right = [g.argmax(axis=1) == codes for g in guesses]
    loss = [-np.log(np.maximum(g[hit], TINY)) for g in guesses]
    brier = [np.sum((g - hit) ** 2, axis=1) for g in guesses]
    return [
        Measure("accuracy", "share of rows whose most probable class is the true one", 1, "percent",
                tuple(share_of(r, w) for r in right)),
        Measure("log-loss", "how surprised the model is by the true class, in nats per row; 0 is perfect", -1,
                "number", tuple(_mean(v, w) for v in loss)),
        Measure("Brier score", "squared distance between probabilities and truth, from 0 (perfect) to 2", -1,
                "number", tuple(_mean(b, w) for b in brier)),
    ]  # fmt: skip


def _mean(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """A weighted mean and its standard error √Σ w²(v − mean)² / Σ w, corrected for few rows."""
    n, mean = len(values), float(np.average(values, weights=weight))
    if n < 2:
        return mean, float("nan")
    return mean, float(np.sqrt(np.sum((weight * (values - mean)) ** 2) * n / (n - 1)) / weight.sum())


def share_of(hits: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """A weighted share and its standard error.

    The error is at least that of a share of 1/n: a sample without exceptions does not prove that there are none.
    """
    n, share = weight.sum() ** 2 / np.sum(weight**2), float(np.average(hits, weights=weight))
    return share, float(np.sqrt(max(share * (1 - share), 1 / n) / n))


def _root(squares: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """√mean and its standard error by the delta method."""
    mean, error = _mean(squares, weight)
    root = np.sqrt(mean)
    return float(root), float(error / (2 * root)) if root > 0 else 0.0


def _explained(squares: np.ndarray, around: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """1 − Σ squares / Σ around and its standard error, that of a ratio of means."""
    total = np.average(around, weights=weight)
    if not total > 0:
        return float("nan"), float("nan")
    ratio = np.average(squares, weights=weight) / total
    return float(1 - ratio), _mean((squares - ratio * around) / total, weight)[1]


def _gaussian(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log density, CRPS, and whether y is in the 95 % interval, of N(mean, std²)."""
    z = (y - mean) / std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    log_density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(std)
    crps = std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    return log_density, crps, np.abs(z) <= ndtri(0.975)


def _with_ones(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns with mean 0 and standard deviation 1 in the training rows, and a column of ones."""
    mean, std = train.mean(axis=0), train.std(axis=0)
    std = np.where(std > 0, std, 1.0)
    scaled = ((train - mean) / std, (test - mean) / std)
    A, B = (np.concatenate([np.ones((len(a), 1)), a], axis=1) for a in scaled)
    return A, B


def _linear(train: np.ndarray, test: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted least squares with Gaussian noise: mean and standard deviation of the predictions."""
    A, B = _with_ones(train, test)
    gram = A.T @ (weight[:, None] * A) + RIDGE * len(A) * np.eye(A.shape[1])
    coefficients = np.linalg.solve(gram, A.T @ (weight * y))
    noise = np.sum(weight * (y - A @ coefficients) ** 2) / max(len(y) - A.shape[1], 1)
    leverage = np.einsum("nd,nd->n", B, np.linalg.solve(gram, B.T).T)
    return B @ coefficients, np.sqrt(np.maximum(noise * (1 + leverage), TINY))


def _logistic(train: np.ndarray, test: np.ndarray, labels: np.ndarray, C: int, weight: np.ndarray) -> np.ndarray:
    """Multinomial logistic regression with a ridge penalty of weight 1: the class probabilities."""
    A, B = _with_ones(train, test)
    hit = (labels[:, None] == np.arange(C)).astype(float)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(-1, C)
        logs = log_softmax(A @ W, axis=1)
        ridge = np.concatenate([np.zeros((1, C)), W[1:]])
        gradient = A.T @ (weight[:, None] * (np.exp(logs) - hit)) + ridge
        return -np.sum(weight[:, None] * hit * logs) + 0.5 * np.sum(ridge**2), gradient.ravel()

    W = minimize(loss, np.zeros(A.shape[1] * C), jac=True, method="L-BFGS-B").x.reshape(-1, C)
    return np.exp(log_softmax(B @ W, axis=1))


def coverage(pred: Predictive, own: Judged, p: int) -> list[tuple[float, float, float]]:
    """The share of labels in the central interval of each level, with its standard error."""
    out = []
    for level in LEVELS:
        low, high = pred.interval(level)
        low, high = (np.asarray(a, float)[own.index, p] for a in (low, high))
        out.append((level, *share_of((low <= own.y) & (own.y <= high), own.weight)))
    return out


def below(contents: Contents, pred: Predictive, p: int, level: np.ndarray) -> np.ndarray:
    """The share of labels of target p below the predicted quantile of each level."""
    return share_below(pred, only(contents.y, p), level, weight=contents.weight)
