"""Relevance of columns: how much of the variance of the predictions each of them explains."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from inducing._xla import compiled, in_blocks, limited_threads
from inducing.checks import check_counts, check_model, check_seeds, checked_inputs, of_held_models
from inducing.inference.blocks import cache_of
from inducing.layers.base import AbstractLayer
from inducing.model import Model
from inducing.report.columns import as_columns, lengthscale_of
from inducing.report.style import BLUE, ORANGE, axes_or_new

SETS = 8  # independent sets of samples, whose spread gives standard errors
ROWS = 1024  # rows of a block


class Relevance(NamedTuple):
    """How much each of G columns matters for the predictions of P outputs; prints as a table.

    Attributes:
        names: the names of the columns.
        main: main effects [G, P], the share of the variance that a column explains alone.
        main_error: their standard errors.
        total: total effects [G, P], the share of the variance that a column explains including its interactions.
        total_error: their standard errors.
        lengthscale: the shortest lengthscale [G] along the column's inputs, in their unit; NaN where there is none.

    Examples:
        >>> one = np.array([[0.75], [0.25]])
        >>> print(Relevance(("size", "age"), one, 0 * one, one, 0 * one, np.array([1.0, 20.0])))
        column  main           total          lengthscale
        ──────  ─────────────  ─────────────  ───────────
        size    0.750 ± 0.000  0.750 ± 0.000  1
        age     0.250 ± 0.000  0.250 ± 0.000  20
    """

    names: tuple[str, ...]
    main: Float[np.ndarray, "G P"]
    main_error: Float[np.ndarray, "G P"]
    total: Float[np.ndarray, "G P"]
    total_error: Float[np.ndarray, "G P"]
    lengthscale: Float[np.ndarray, " G"]

    @property
    def share(self) -> Float[np.ndarray, " G"]:
        """The total effects, averaged over the outputs and scaled to sum to 1; all 0 for constant predictions."""
        mean = np.clip(self.total, 0.0, None).mean(axis=1)
        return mean / mean.sum() if mean.sum() > 0 else mean

    @property
    def order(self) -> Int[np.ndarray, " G"]:
        """The positions of the columns, the most relevant one first."""
        return np.argsort(-self.share, kind="stable")

    def __str__(self) -> str:
        P = self.main.shape[1]
        heads = ["column"]
        for p in range(P):
            heads += [f"{kind}{f' y[{p}]' if P > 1 else ''}" for kind in ("main", "total")]
        table = [[*heads, "lengthscale"]]
        for g in self.order:
            cells = [self.names[g]]
            for p in range(P):
                cells.append(f"{self.main[g, p]:.3f} ± {self.main_error[g, p]:.3f}")
                cells.append(f"{self.total[g, p]:.3f} ± {self.total_error[g, p]:.3f}")
            table.append([*cells, f"{self.lengthscale[g]:.3g}" if np.isfinite(self.lengthscale[g]) else "–"])
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        table.insert(1, ["─" * width for width in widths])
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        )

    def __repr__(self) -> str:
        return str(self)


@of_held_models
def relevance(model: Any, X: Any, names: Any = None, *, num: int = 1024, seed: int = 0) -> Relevance:
    """How much each column of the inputs matters: the Sobol indices of the mean prediction.

        main_g = Var[E(m(x) | x_g)] / Var[m(x)],    total_g = E[Var(m(x) | all columns but g)] / Var[m(x)]

    m(x) is the mean prediction of an output. For classes m(x) are their probabilities, and the variances are summed
    over the classes of an output. The main effect is what a column explains alone; the total effect includes its
    interactions with other columns. Without interactions, both are equal and sum to 1.

    The columns x_g are drawn independently of each other, each from its own values in the rows of X. If columns are
    correlated, so that some combinations of values never occur, the indices include the predictions for these
    combinations, and columns with the same information share their relevance in the way the model uses them. The
    indices describe the model, and are not causal.

    The estimators are those of Saltelli et al. (2010) and Jansen (1999). A and B are two independent matrices of draws,
    and A_g is A with column g from B:

        main_g ≈ mean (m(B) − c)(m(A_g) − m(A)) / V,    total_g ≈ mean (m(A) − m(A_g))² / (2 V)

    V and c are variance and mean of m(A) and m(B) together. The draws are eight independently scrambled Sobol
    sequences, and their spread gives the standard errors. The cost is that of G + 2 predictions of `num` rows for G
    columns. If inner layers are sampled, all predictions use the same samples.

    Args:
        model: an `ig.Model` with inputs, or an estimator.
        X: inputs [N, D], such as those of the training data.
        names: a name for each column of X, or a mapping from names to numbers of columns, such as
            `{"size": 0, "colour": (1, 2)}`, if a column of a table has become several inputs. These vary together.
        num: the number of rows of each matrix, rounded up to a power of two.
        seed: the seed of the draws.

    Returns:
        A `Relevance`, which prints as a table.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: if X does not fit the model, `names` does not fit X, or `num` is not a positive integer.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model(ig.Deterministic(lambda x: 2.0 * x[:1] + x[1:2]), ig.likelihoods.Gaussian(0.1))
        >>> X = np.random.default_rng(0).uniform(size=(1000, 3))
        >>> print(ig.report.relevance(model, X, ["length", "width", "noise"]).total.round(2)[:, 0])
        [0.8 0.2 0. ]
    """
    check_model(model)
    X, _ = checked_inputs(model, X)
    rows = np.asarray(X)
    columns = as_columns(names, rows.shape[1])
    check_counts(num=num)
    check_seeds(seed=seed)
    n = 1 << max(0, (-(-num // SETS) - 1).bit_length())
    A, B = _draws(rows, columns, n, seed)
    mA, mB = mean_prediction(model, A), mean_prediction(model, B)
    main, total = [], []
    for own in columns.values():
        mixed = A.copy()
        mixed[:, own] = B[:, own]
        m = mean_prediction(model, mixed)
        centre = (mA.mean(axis=0) + mB.mean(axis=0)) / 2
        main.append(_sets((mB - centre) * (m - mA)))
        total.append(_sets((mA - m) ** 2) / 2)
    both = np.concatenate([mA, mB])
    V = (_sets((mA - both.mean(axis=0)) ** 2) + _sets((mB - both.mean(axis=0)) ** 2)) / 2
    lengthscale = np.array([lengthscale_of(model, own) for own in columns.values()])
    return Relevance(tuple(columns), *_ratio(np.stack(main), V), *_ratio(np.stack(total), V), lengthscale)


def mean_prediction(model: Model, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N P C"]:
    """The mean prediction of each output (C = 1), or the probabilities of its C classes.

    With one layer and Gaussian noise, variances are not computed.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model(ig.Deterministic(lambda x: x), ig.likelihoods.Bernoulli())
        >>> mean_prediction(model, np.zeros((3, 1))).shape
        (3, 1, 2)
    """
    likelihood = model.likelihood
    if (classes := likelihood.class_count()) is not None:
        p: Any = model.predict(X)
        return np.asarray(p.probabilities, float).reshape(len(X), -1, classes)
    P = model.width(X.shape[1])
    if len(model.layers) == 1 and P is not None and likelihood.has_gaussian_noise(P):
        layer = model.layers[0]
        with limited_threads():
            return np.asarray(compiled(_means)(layer, cache_of(layer), jnp.asarray(X)), float)[..., None]
    return np.asarray(model.predict(X).mean, float)[..., None]


def _means(layer: AbstractLayer, cache: Any, X: Array) -> Array:
    """The means of f. XLA does not compute the variances, because they are not used."""
    return in_blocks(lambda x: layer.moments(x[:, None], False, cache)[0][:, 0], X, ROWS)


def _draws(X: np.ndarray, columns: dict[str, tuple[int, ...]], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices of SETS·n rows, in which each column of the table is drawn independently from the rows of X."""
    from scipy.stats.qmc import Sobol  # takes long to import

    G = len(columns)
    seeds = np.random.SeedSequence(int(seed)).spawn(SETS)
    u = np.concatenate([Sobol(2 * G, rng=np.random.default_rng(s)).random(n) for s in seeds])
    A, B = np.empty((len(u), X.shape[1]), X.dtype), np.empty((len(u), X.shape[1]), X.dtype)
    for g, own in enumerate(columns.values()):
        values = X[:, own]
        values = values[np.lexsort(values.T[::-1])]  # sorted, so that close numbers of a sequence give close values
        for out, part in ((A, u[:, g]), (B, u[:, G + g])):
            out[:, own] = values[np.minimum((part * len(X)).astype(int), len(X) - 1)]
    return A, B


def _sets(values: Float[np.ndarray, "N P C"]) -> Float[np.ndarray, "S P"]:
    """The mean of each set of draws, summed over classes."""
    return values.reshape(SETS, -1, *values.shape[1:]).mean(axis=1).sum(axis=-1)


def _ratio(top: Float[np.ndarray, "G S P"], V: Float[np.ndarray, "S P"]) -> tuple[np.ndarray, np.ndarray]:
    """The ratio of the means over sets and its standard error; 0 where V is 0, for constant predictions."""
    mean = V.mean(axis=0)
    safe = np.where(mean > 0, mean, 1.0)
    ratio = top.mean(axis=1) / safe
    spread = (top - ratio[:, None] * V[None]).std(axis=1, ddof=1) / safe
    return ratio, spread / np.sqrt(SETS)


def plot_relevance(relevance: Any, *, output: int = 0, most: int = 20, ax: Any = None) -> Any:
    """Plot how much each column matters: bars of main and total effects, with two standard errors.

    Args:
        relevance: the result of `ig.report.relevance`.
        output: the number of the output to show.
        most: the largest number of columns to show.
        ax: Matplotlib axes to draw on. By default, those of a new figure.

    Returns:
        The Matplotlib axes.

    Raises:
        TypeError: if `relevance` is something else.
        ValueError: if `output` is out of range, or `most` is not a positive integer.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model(ig.Deterministic(lambda x: 2.0 * x[:1] + x[1:2]), ig.likelihoods.Gaussian(0.1))
        >>> found = ig.report.relevance(model, np.random.default_rng(0).uniform(size=(50, 2)), ["length", "width"])
        >>> ax = ig.report.plot_relevance(found)
    """
    if not isinstance(relevance, Relevance):
        raise TypeError(f"relevance must be the result of ig.report.relevance, got {type(relevance).__name__}.")
    check_counts(most=most)
    if not 0 <= output < relevance.main.shape[1]:
        raise ValueError(f"output must be a column number from 0 to {relevance.main.shape[1] - 1}, got {output}.")
    shown = relevance.order[:most]
    ax = axes_or_new(ax, (6.0, 0.8 + 0.45 * len(shown)))
    main = ("main effect", relevance.main, relevance.main_error, -0.2, BLUE)
    total = ("total effect", relevance.total, relevance.total_error, 0.2, ORANGE)
    for label, value, error, offset, colour in (main, total):
        where, error = np.arange(len(shown)) + offset, 2 * error[shown, output]
        ax.barh(where, value[shown, output], 0.36, xerr=error, color=colour, label=label)
    ax.set_yticks(np.arange(len(shown)), [relevance.names[g] for g in shown], parse_math=False)
    ax.invert_yaxis()
    ax.set(xlabel="share of the variance of predictions", xlim=(0, None))
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return ax
