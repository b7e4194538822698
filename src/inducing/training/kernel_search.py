"""Which kernel to train, and where to begin: fits of the evidence of few rows, judged by other rows too.

All candidates are sums of some of the same terms. One program trains all of them: each term has a gate, and those whose
gate is closed are not computed. So the number of candidates costs no compilation.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from inducing import means
from inducing._xla import own_array
from inducing.bounds.evidence import log_evidence
from inducing.data import Data, as_inputs
from inducing.features.points import InducingPoints
from inducing.kernels.base import AbstractKernel
from inducing.kernels.composite import Sum
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.model import Model
from inducing.parameters import dtype_of
from inducing.priors.base import AbstractPrior
from inducing.priors.gp import GP
from inducing.priors.independent import Independent
from inducing.training.fit import FitResult
from inducing.training.kernel_terms import Gated, gate, new_terms, replaced, scaled, times
from inducing.training.levelling import GAIN, has_levelled
from inducing.training.monitor import LEVELLED, Progress
from inducing.training.scales import scales

EXACT = 3000  # the largest number of labels for which the evidence itself is maximised
ROWS, MORE_ROWS = (288, 96), (384, 128)  # the most labels that train and that judge: of at most EXACT, and of more
STEPS, LOOK = 60, 15  # the most iterations of a candidate, and those after which the better of two starts goes on
ENOUGH = 5e-4  # nats for each label: a candidate ends where ten iterations gain less
SHORTER, NOISE = 4.0, 0.01  # the second start: the factor of lengthscales, and the noise as a share of the variance
CLOSE = 0.1  # nats for each judge: about the standard error of a difference of scores
SHORTEST, LONGEST = 0.1, 30.0  # lengthscales to go on from, as a multiple of those of `ig.initialise.scales`
LEAST, LEAST_NOISE = 1e-3, 0.01  # variances and noise to go on from, as a share of the variance of the labels
NEW = 0.3  # the variance of a new term as a share of that of the terms before

FEW = (
    ("Matern52",),
    ("Matern52", "RationalQuadratic"),
    ("Matern52", "Additive"),
    ("Matern52", "RationalQuadratic", "Additive"),
)
MANY = (
    *FEW,
    ("Matern52", "Linear"),
    ("SquaredExponential",),
    ("Matern32",),
    ("RationalQuadratic",),
    ("SquaredExponential", "Linear"),
    ("Matern32", "Linear"),
    ("RationalQuadratic", "Linear"),
    ("RationalQuadratic", "Additive"),
)
"""Candidates, each a sum of terms. The first of `FEW` is the simplest, and trained first."""


class Found(NamedTuple):
    """What the search has found.

    Attributes:
        prior: the prior with the kernel of the best candidate and trained hyperparameters.
        likelihood: the likelihood, trained too.
        message: which kernel won, and by how much.
        result: the fit of the winner.
        is_final: whether that was a fit to all rows until it levelled off.
    """

    prior: AbstractPrior
    likelihood: AbstractLikelihood
    message: str
    result: FitResult
    is_final: bool


class SearchRows(NamedTuple):
    """Padded data of some rows: all of them, and those that train, which differ in their weights only."""

    both: Data
    train: Data
    count: int
    judges: int
    are_all: bool


class _Tried(NamedTuple):
    """The score of a candidate, and its model with the evidence of all rows of the search."""

    score: float
    candidate: tuple[str, ...]
    result: FitResult


def search_kernel(
    data: Data,
    likelihood: AbstractLikelihood,
    candidates: tuple[tuple[str, ...], ...],
    outputs: int,
    fit_rows: Callable[..., FitResult],
    key: Array,
) -> Found:
    """Train candidates by the evidence of at most 288 labels, and let 96 others judge them (of more than 3,000 labels,
    384 and 128).

    The score of a candidate is log p(judges | train) = log p(both) − log p(train), for each judge. The evidence of a
    sum grows with the number of its terms, even where these explain noise, and the score of so few judges is noisy. So
    of all candidates whose score is within 0.1 of the best, the one with the largest log p(both) − K/2 wins, where K is
    the number of its hyperparameters: one that explains nothing raises the evidence of the rows that train it by half a
    nat on average. What it costs other rows, the judges have counted.

    The first candidate starts twice: with the lengthscales of `ig.initialise.scales`, and with shorter ones and less
    noise. After 15 iterations the better start goes on. Each other candidate starts where the best one with some of its
    terms has ended.

    Args:
        data: the data, whose noise is Gaussian.
        likelihood: a Gaussian likelihood.
        candidates: names of terms, the simplest candidate first.
        outputs: the number of functions.
        fit_rows: `fit` with progress and key, a function of a model, data, a label, and options.
        key: the random key that chooses the rows.

    Returns:
        The kernel and where to begin.

    Raises:
        FloatingPointError: if the covariance of the rows is singular for each candidate, as for labels without noise.
    """
    rows = rows_of_search(data, key)
    names = list(dict.fromkeys(name for candidate in candidates for name in candidate))
    start = _start(data, likelihood, names, outputs)
    options = {"objective": evidence_alone, "initialise": False, "freeze": all_but_hyperparameters}
    tried: list[_Tried] = []
    for candidate in candidates:
        starts = _starts(start, names, candidate, tried, candidates[0])
        found = _scored(rows, candidate, starts, partial(fit_rows, **options))
        tried += [] if found is None else [found]
    if not tried:
        raise FloatingPointError("the evidence is not finite for any kernel; give a kernel and a likelihood.")
    score, winner, last = _best(tried, names)
    if rows.are_all:
        last = fit_rows(last.model, rows.both, " + ".join(winner), callback=once_level(rows.both), **options)
    others = ", ".join(f"{' + '.join(c)} {value:.3g}" for value, c, _ in tried if c != winner)
    said = f"kernel {' + '.join(winner)}: {score:.3g} nats for each of {rows.judges} held-out labels"
    best = Model(SparseGP(_winner(last.model, names, winner), _layer(start).features), last.model.likelihood)
    best = best if rows.are_all else moderated(best, data)
    return Found(_prior(best), best.likelihood, f"{said} ({others})", last, rows.are_all)


def _scored(rows: SearchRows, candidate: tuple[str, ...], starts: list[Model], fit_rows: Callable) -> _Tried | None:
    """Train a candidate at the better of its starts; None if its evidence is not finite at any of them."""
    label = f"{' + '.join(candidate)} on {rows.count} rows"
    looks = []
    for model in starts if len(starts) > 1 else ():
        with contextlib.suppress(FloatingPointError):  # if the noise is too small for repeated rows
            looks.append(fit_rows(model, rows.train, label, steps=LOOK))
    start = max(looks, key=lambda look: look.bound).model if looks else starts[0]
    try:
        level = once_level(rows.train, gain=ENOUGH)
        best = fit_rows(start, rows.train, label, steps=STEPS, callback=level)
        both = fit_rows(best.model, rows.both, None, steps=0)
    except FloatingPointError:
        return None
    return _Tried((both.bound - best.bound) / rows.judges, candidate, both)


def _best(tried: list[_Tried], names: list[str]) -> _Tried:
    """The winner by score, evidence and number of hyperparameters."""

    def merit(one: _Tried) -> float:
        kernels = _winner(one.result.model, names, one.candidate).kernels
        return one.result.bound - 0.5 * sum(leaf.size for leaf in jax.tree.leaves(kernels))

    best_score = max(one.score for one in tried)
    return max((one for one in tried if one.score >= best_score - CLOSE), key=merit)


def once_level(data: Data, steps: int = 10, gain: float = GAIN) -> Callable[[Progress], bool | str]:
    """A callback of `fit` that stops where the last quarter of the steps has gained little.

    By itself L-BFGS takes 80 steps or more before `fit` looks at what they gain. A fit that starts near its end needs
    fewer.

    Args:
        data: the data of the fit.
        steps: the fewest steps that decide.
        gain: the gain in nats for each label that is little.

    Examples:
        >>> level = once_level(Data(np.zeros(10), np.zeros(10)))
        >>> [level(Progress(n, 0.0, 0.0, lambda: None, [np.zeros(n)])) for n in (10, 20)]
        [False, 'levelled off']
    """
    labels = int(np.asarray(data.mask).sum())
    return lambda progress: has_levelled(progress.bounds, labels, steps, False, gain) and LEVELLED


def rows_of_search(data: Data, key: Array) -> SearchRows:
    """Rows in random order, padded by rows that do not count to a number that many sizes share.

    Examples:
        >>> rows = rows_of_search(Data(np.arange(40.0), np.ones(40)), jax.random.key(0))
        >>> rows.count, rows.judges, len(rows.both), rows.are_all
        (40, 10, 64, True)
    """
    N, outputs = len(data), np.asarray(data.mask).shape[1]
    train, judge = ROWS if _is_exact(data) else MORE_ROWS
    few = min(N, max(16, (train + judge) // outputs))
    order = np.random.default_rng(np.asarray(jax.random.key_data(key))).permutation(N)[:few]  # compiles nothing
    training = int(np.ceil(few * train / (train + judge)))
    both = padded(data, order)
    train = without_rows(both, slice(training, None))
    judges = int(np.asarray(both.mask)[training:few].sum())
    return SearchRows(both, train, few, max(judges, 1), few == N)


def padded(data: Data, order: np.ndarray) -> Data:
    """Rows in an order, and rows that do not count up to a multiple of 64 or a sixteenth, which many sizes share.

    Examples:
        >>> len(padded(Data([0.0, 1.0], [2.0, 3.0]), np.arange(2)))
        64
    """
    n = len(order)
    step = 64 * max(1, n // 1024)
    size = -(-n // step) * step
    rows = data.rows(own_array(np.concatenate([order, np.full(size - n, order[0])]), int))
    return without_rows(rows, slice(n, None))


def without_rows(data: Data, left_out: Any) -> Data:
    """The data with some rows, a slice or indices, that do not count: their weight is 0, and their labels are missing.

    Examples:
        >>> without_rows(Data([0.0, 1.0], [2.0, 3.0]), [1]).weight.tolist()
        [1.0, 0.0]
    """
    weight = np.ones(len(data)) if data.weight is None else np.array(data.weight)
    mask = np.array(data.mask)
    weight[left_out], mask[left_out] = 0.0, False
    new = own_array(weight, as_inputs(data.x).dtype), own_array(mask, bool)
    return eqx.tree_at(lambda d: (d.weight, d.mask), data, new, is_leaf=lambda leaf: leaf is None)


def _start(data: Data, likelihood: AbstractLikelihood, names: list[str], outputs: int) -> Model:
    """All terms, with the scales of the data; each term has the variance of the labels."""
    x = as_inputs(data.x)
    kernels: list[AbstractKernel] = [Sum(new_terms(names, x)) for _ in range(outputs)]
    prior = with_constant_means(kernels, x.dtype)
    model = scales(cast(Model(SparseGP(prior, InducingPoints(x[:1])), likelihood), x.dtype), data)
    return _changed(model, names, lambda name, term: Gated(name, gate(False), scaled(term, float(len(names)))))


def _is_exact(data: Data) -> bool:
    """Whether the labels are few enough for the evidence itself."""
    return int(np.asarray(data.mask).sum()) <= EXACT


def moderated(model: Model, data: Data) -> Model:
    """A model trained on few rows, with hyperparameters from which a fit to more rows can go on.

    Few rows may leave a column or a term out: where a lengthscale is huge or a variance tiny, the gradient vanishes,
    and more rows could not bring them back. They may also explain noise by a kernel with tiny lengthscales, for which
    inducing points would have to be as many as the rows, or hold no repeated input, so that the noise becomes tiny.

    Args:
        model: a model of one sparse GP with Gaussian noise.
        data: all rows.

    Returns:
        The model with lengthscales between a tenth and 30 times those of `ig.initialise.scales`, variances of at least
        a thousandth of that of the labels, and, for more than 3,000 labels, a noise of at least a hundredth of it.

    Examples:
        >>> import inducing as ig
        >>> gp = SparseGP(GP(ig.kernels.Matern52(1e-9)), InducingPoints([[0.0]]))
        >>> better = moderated(Model(gp, ig.likelihoods.Gaussian()), Data([0.0, 1.0, 2.0], [0.0, 1.0, 0.0]))
        >>> bool(better.layers[0].prior.kernels[0].lengthscale > 0.01)
        True
    """
    prior, y = _prior(model), np.where(np.asarray(data.mask), np.asarray(data.y, float), np.nan)
    variance = float(np.nanmean(np.nanvar(y, axis=0)))
    x = prior.latent_inputs(np.asarray(data.x))
    new: dict[int, Array] = {}
    for kernel in prior.kernels:
        starts = {id(start.leaf): np.asarray(start.value, float) for start in kernel.start(x)}
        for leaf in kernel.lengthscales():
            if (value := starts.get(id(leaf))) is not None:
                new[id(leaf)] = own_array(np.clip(np.asarray(leaf), SHORTEST * value, LONGEST * value), leaf.dtype)
        for leaf, power in kernel.amplitude():
            if power == 1.0:
                new[id(leaf)] = own_array(np.maximum(np.asarray(leaf), LEAST * variance / leaf.size), leaf.dtype)
    for start in () if _is_exact(data) else model.likelihood.start(y).own:
        new[id(start.leaf)] = own_array(np.maximum(np.asarray(start.leaf), LEAST_NOISE * variance), start.leaf.dtype)
    return replaced(model, new)


def _changed(model: Model, names: list[str], change: Callable[[str, Any], AbstractKernel]) -> Model:
    """The model with other terms: those that `change` makes of names and terms."""
    prior = _prior(model)
    kernels: list[AbstractKernel] = [
        Sum([change(name, term) for name, term in zip(names, kernel.terms(), strict=True)]) for kernel in prior.kernels
    ]
    prior = with_constant_means(kernels, dtype_of(model), prior)
    return Model(SparseGP(prior, _layer(model).features), model.likelihood)


def with_constant_means(kernels: list[AbstractKernel], dtype: Any, like: AbstractPrior | None = None) -> AbstractPrior:
    """Independent functions, one for each kernel, with constant means: zero, or those of another prior.

    Examples:
        >>> import inducing as ig
        >>> with_constant_means([ig.kernels.Matern52()], float).num_outputs
        1
    """
    num = len(kernels)
    mean = means.Constant(own_array(np.zeros(num if num > 1 else ()), dtype))
    if like is not None:
        [(_, mean), *_] = like.mean_functions()
    return GP(kernels[0], mean) if num == 1 else Independent(kernels, num=num, mean=mean)


def cast(parts: Any, dtype: Any) -> Any:
    """The same parts with all real arrays in this precision.

    Examples:
        >>> import inducing as ig
        >>> cast(ig.kernels.Matern52(), "float32").variance.dtype
        dtype('float32')
    """
    return jax.tree.map(lambda a: own_array(a, dtype) if eqx.is_inexact_array(a) else a, parts)


def _starts(
    start: Model,
    names: list[str],
    candidate: tuple[str, ...],
    tried: list[_Tried],
    simplest: tuple[str, ...],
) -> list[Model]:
    """Where a candidate starts: where the best one with some of its terms has ended; else from the data."""
    before = [one for one in tried if set(one.candidate) < set(candidate)]
    if before:
        best = max(before, key=lambda one: one.result.bound)
        share = {name: 1.0 if name in best.candidate else NEW for name in candidate}
        return [_opened(best.result.model, names, share)]
    share = dict.fromkeys(candidate, 1.0 / len(candidate))
    plain = _opened(start, names, share)
    return [plain] if candidate != simplest else [plain, _opened(start, names, share, SHORTER, NOISE)]


def _opened(model: Model, names: list[str], share: dict[str, float], shorter: float = 1.0, noise: float = 1.0) -> Model:
    """The model with open gates for some terms, whose variances are multiplied by their share."""

    def change(name: str, gated: Gated) -> AbstractKernel:
        term = scaled(gated.term, share.get(name, 1.0))
        term = replaced(term, {id(leaf): times(leaf, 1.0 / shorter) for leaf in term.lengthscales()})
        return Gated(name, gate(name in share), term)

    likelihood = jax.tree.map(lambda a: times(a, noise) if eqx.is_inexact_array(a) else a, model.likelihood)
    return Model(_changed(model, names, change).layers, likelihood)


def _winner(model: Model, names: list[str], candidate: tuple[str, ...]) -> AbstractPrior:
    """The prior with the terms of the winner alone."""
    prior = _prior(model)
    kernels: list[AbstractKernel] = []
    for kernel in prior.kernels:
        gated: Any = kernel.terms()
        terms = [one.term for name, one in zip(names, gated, strict=True) if name in candidate]
        kernels.append(terms[0] if len(terms) == 1 else Sum(terms))
    return with_constant_means(kernels, dtype_of(model), prior)


def evidence_alone(model: Model, data: Data) -> Array:
    """`ig.log_evidence` as a function of which `fit` knows no optimal q(u), so that it compiles nothing to set that.

    Examples:
        >>> import inducing as ig
        >>> model = Model(SparseGP(GP(ig.kernels.Matern52()), InducingPoints([[0.0]])), ig.likelihoods.Gaussian())
        >>> data = Data([0.0, 1.0], [2.0, 3.0])
        >>> bool(evidence_alone(model, data) == log_evidence(model, data))
        True
    """
    return log_evidence.evaluate(model, data)


def all_but_hyperparameters(model: Model) -> Any:
    """The features and q(u) of a model of one sparse GP, on which the evidence does not depend.

    Examples:
        >>> import inducing as ig
        >>> model = Model(SparseGP(GP(ig.kernels.Matern52()), InducingPoints([[0.0]])), ig.likelihoods.Gaussian())
        >>> len(all_but_hyperparameters(model))
        3
    """
    layer = _layer(model)
    return layer.features, layer.mean, layer.root


def _layer(model: Model) -> SparseGP:
    layer = model.layers[0].as_sparse_gp()
    assert layer is not None
    return layer


def _prior(model: Model) -> AbstractPrior:
    return _layer(model).prior
