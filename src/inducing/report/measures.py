"""How good predictions are, with standard errors, beside those of simple baselines."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtr, ndtri

from inducing.likelihoods.predictive import Predictive
from inducing.report.contents import Contents
from inducing.scores import share_below

LEVELS = (0.5, 0.8, 0.9, 0.95)
RIDGE = 1e-6  # of baselines, relative to the spread of a column
MOST_TRAINING = 5000  # rows that a baseline is fitted to
TINY = 1e-12


class Judged(NamedTuple):
    """The predictions of one target for the rows whose label is known.

    Attributes:
        index: the numbers of those rows [n].
        y: their labels [n].
        mean: the mean predictions [n].
        lower: the lower ends of the 95 % intervals [n]; of numbers only.
        upper: the upper ends [n]; of numbers only.
        log_density: of each label [n].
        crps: of each label [n]; of numbers only.
        probabilities: of the classes [n, C]; None for numbers.
    """

    index: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    log_density: np.ndarray
    crps: np.ndarray
    probabilities: np.ndarray | None

    def rows(self, kept: np.ndarray) -> "Judged":
        """Some of the rows."""
        return jax.tree.map(lambda a: a[kept], self)


class Measure(NamedTuple):
    """One score of the model and of the baselines.

    Attributes:
        name: its name.
        meaning: what it says, for a reader who does not know it.
        sign: 1 if more is better, −1 if less is better, 0 if it has a value that is right.
        digits: how to write it: "number" or "percent".
        values: pairs of value and standard error, of the model and then of each baseline.
    """

    name: str
    meaning: str
    sign: int
    digits: str
    values: tuple[tuple[float, float], ...]


def judged(contents: Contents, pred: Predictive, p: int) -> Judged:
    """The predictions of target p, where its label is known.

    Examples:
        >>> import inducing as ig
        >>> from inducing.report.contents import Column, Target
        >>> model = ig.Model(ig.Deterministic(lambda x: x), ig.likelihoods.Gaussian(0.1))
        >>> X = np.zeros((2, 1))
        >>> contents = Contents("t", model, [Target("y")], [Column("x", (0,), X[:, 0])], X, np.array([[0.0], [np.nan]]))
        >>> judged(contents, model.predict(X), 0).index.tolist()
        [0]
    """
    y = only(contents.y, p)
    seen = np.isfinite(y[:, p])
    classes = contents.targets[p].classes
    index, labels = np.flatnonzero(seen), y[seen, p]
    if classes:
        probabilities = class_probabilities(pred, p, y.shape[1], len(classes))[seen]
        of_label = probabilities[np.arange(len(index)), labels.astype(int)]
        none = np.full(len(index), np.nan)
        return Judged(index, labels, none, none, none, np.log(np.maximum(of_label, TINY)), none, probabilities)
    log_density = np.asarray(pred.log_prob(y), float)[seen]
    lower, upper = pred.interval(0.95)
    mean, lower, upper, crps = (np.asarray(a, float)[seen, p] for a in (pred.mean, lower, upper, pred.crps(y)))
    return Judged(index, labels, mean, lower, upper, log_density, crps, None)


def only(y: np.ndarray, p: int) -> np.ndarray:
    """Labels of which all but those of column p are missing.

    Examples:
        >>> only(np.ones((1, 2)), 1).tolist()
        [[nan, 1.0]]
    """
    out = np.full(y.shape, np.nan)
    out[:, p] = y[:, p]
    return out


def class_probabilities(pred: Predictive, p: int, outputs: int, classes: int) -> Float[np.ndarray, "N C"]:
    """The probabilities of the classes of output p, also where other outputs are numbers.

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


def measures_of(contents: Contents, p: int, own: Judged) -> tuple[tuple[str, ...], list[Measure]]:
    """The names of the model and of the baselines, and the scores of each."""
    train_X, train_y = contents.training or (None, contents.y)
    labels = np.asarray(train_y, float)[:, p]
    seen = np.flatnonzero(np.isfinite(labels))
    seen = seen[:: -(-len(seen) // MOST_TRAINING)] if len(seen) else seen
    if len(seen) == 0:  # no label to make a baseline of
        train_X, labels = None, own.y
        seen = np.arange(len(labels))
    inputs = None if train_X is None else (np.asarray(train_X, float)[seen], np.asarray(contents.X, float)[own.index])
    if own.probabilities is not None:
        return _of_classes(own, labels[seen].astype(int), inputs)
    return _of_numbers(own, labels[seen], inputs)


def _of_numbers(own: Judged, labels: np.ndarray, inputs: Any) -> tuple[tuple[str, ...], list[Measure]]:
    names = ["this model", "always the average"]
    n, spread = len(own.y), max(float(labels.std()), TINY)
    guesses = [(np.full(n, labels.mean()), np.full(n, spread))]
    if inputs is not None and len(labels) > inputs[0].shape[1] + 2:
        names.append("linear regression")
        guesses.append(_linear(*inputs, labels))
    gaussians = [_gaussian(own.y, mean, std) for mean, std in guesses]
    means = [own.mean, *(mean for mean, _ in guesses)]
    squares = [(own.y - mean) ** 2 for mean in means]
    densities = [own.log_density, *(g[0] for g in gaussians)]
    crps = [own.crps, *(g[1] for g in gaussians)]
    inside = [(own.lower <= own.y) & (own.y <= own.upper), *(g[2] for g in gaussians)]
    around = (own.y - own.y.mean()) ** 2
    return tuple(names), [
        Measure("RMSE", "typical error, in the unit of the target; large errors count more", -1, "number",
                tuple(_root(s) for s in squares)),
        Measure("mean absolute error", "average distance between prediction and truth", -1, "number",
                tuple(_mean(np.sqrt(s)) for s in squares)),
        Measure("variance explained (R²)", "100 % is a perfect prediction, 0 % is no better than the average", 1,
                "percent", tuple(_explained(s, around) for s in squares)),
        Measure("CRPS", "error of the whole predicted distribution, in the unit of the target", -1, "number",
                tuple(_mean(c) for c in crps)),
        Measure("log density", "how likely the true values were held to be, in nats per row", 1, "number",
                tuple(_mean(d) for d in densities)),
        Measure("inside the 95 % interval", "should be 95 %: less means too sure, more means too cautious", 0,
                "percent", tuple(_share(i) for i in inside)),
    ]  # fmt: skip


def _of_classes(own: Judged, labels: np.ndarray, inputs: Any) -> tuple[tuple[str, ...], list[Measure]]:
    assert own.probabilities is not None
    codes, C = own.y.astype(int), own.probabilities.shape[1]
    names = ["this model", "frequencies alone"]
    frequency = (np.bincount(labels, minlength=C) + 0.5) / (len(labels) + 0.5 * C)
    guesses = [own.probabilities, np.broadcast_to(frequency, (len(codes), C))]
    if inputs is not None:
        names.append("logistic regression")
        guesses.append(_logistic(*inputs, labels, C))
    hit = codes[:, None] == np.arange(C)
    right = [q.argmax(axis=1) == codes for q in guesses]
    loss = [-np.log(np.maximum(q[np.arange(len(codes)), codes], TINY)) for q in guesses]
    brier = [np.sum((q - hit) ** 2, axis=1) for q in guesses]
    return tuple(names), [
        Measure("accuracy", "share of rows whose most probable class is right", 1, "percent",
                tuple(_share(r) for r in right)),
        Measure("log-loss", "how surprised the model is by the true class, in nats per row; 0 is perfect", -1,
                "number", tuple(_mean(v) for v in loss)),
        Measure("Brier score", "squared distance between probabilities and truth, from 0 (perfect) to 2", -1,
                "number", tuple(_mean(b) for b in brier)),
    ]  # fmt: skip


def _mean(values: np.ndarray) -> tuple[float, float]:
    n = len(values)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def _share(hits: np.ndarray) -> tuple[float, float]:
    """A share and its standard error, as if at least one row in n were different: no row proves that there is none."""
    n, share = len(hits), float(np.mean(hits))
    return share, float(np.sqrt(max(share * (1 - share), 1 / n) / n))


def _root(squares: np.ndarray) -> tuple[float, float]:
    """√mean and its standard error by the delta method."""
    mean, error = _mean(squares)
    root = np.sqrt(mean)
    return float(root), float(error / (2 * root)) if root > 0 else 0.0


def _explained(squares: np.ndarray, around: np.ndarray) -> tuple[float, float]:
    """1 − Σ squares / Σ around and its standard error, that of a ratio of means."""
    total = around.mean()
    if not total > 0:
        return float("nan"), float("nan")
    ratio = squares.mean() / total
    return float(1 - ratio), _mean((squares - ratio * around) / total)[1]


def _gaussian(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log density, CRPS, and whether y is in the 95 % interval, of N(mean, std²)."""
    z = (y - mean) / std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    log_density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(std)
    crps = std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    return log_density, crps, np.abs(z) <= ndtri(0.975)


def _scaled(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns with mean 0 and standard deviation 1 in the training rows."""
    mean, std = train.mean(axis=0), train.std(axis=0)
    std = np.where(std > 0, std, 1.0)
    return (train - mean) / std, (test - mean) / std


def _linear(train: np.ndarray, test: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares with Gaussian noise: mean and standard deviation of predictions."""
    A, B = _scaled(train, test)
    A, B = (np.concatenate([np.ones((len(a), 1)), a], axis=1) for a in (A, B))
    gram = A.T @ A + RIDGE * len(A) * np.eye(A.shape[1])
    weights = np.linalg.solve(gram, A.T @ y)
    noise = np.sum((y - A @ weights) ** 2) / max(len(y) - A.shape[1], 1)
    leverage = np.einsum("nd,nd->n", B, np.linalg.solve(gram, B.T).T)
    return B @ weights, np.sqrt(np.maximum(noise * (1 + leverage), TINY))


def _logistic(train: np.ndarray, test: np.ndarray, labels: np.ndarray, C: int) -> np.ndarray:
    """Multinomial logistic regression with a ridge of weight 1: probabilities of the classes."""
    A, B = _scaled(train, test)
    A, B = (np.concatenate([np.ones((len(a), 1)), a], axis=1) for a in (A, B))
    hit = (labels[:, None] == np.arange(C)).astype(float)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(-1, C)
        logs = log_softmax(A @ W, axis=1)
        ridge = np.concatenate([np.zeros((1, C)), W[1:]])
        return -np.sum(hit * logs) + 0.5 * np.sum(ridge**2), (A.T @ (np.exp(logs) - hit) + ridge).ravel()

    W = minimize(loss, np.zeros(A.shape[1] * C), jac=True, method="L-BFGS-B").x.reshape(-1, C)
    return np.exp(log_softmax(B @ W, axis=1))


def coverage(pred: Predictive, own: Judged, p: int) -> list[tuple[float, float, float]]:
    """The share of labels in the central interval of each level, with its standard error."""
    out = []
    for level in LEVELS:
        low, high = pred.interval(level)
        low, high = (np.asarray(a, float)[own.index, p] for a in (low, high))
        out.append((level, *_share((low <= own.y) & (own.y <= high))))
    return out


def below(contents: Contents, pred: Predictive, p: int, level: np.ndarray) -> np.ndarray:
    """The share of labels of target p below the predicted quantile of each level."""
    return share_below(pred, only(contents.y, p), level)
