"""Which kernel to train, and where to begin: fits of the evidence of few rows, judged by other rows too.

All candidates are sums of some of the same terms. One program trains all of them: a term is left out by a factor near
zero, its gate, for which its gradient vanishes, too. So the number of candidates costs no compilation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing import means
from inducing._xla import compiled, own_array
from inducing.bounds.evidence import log_evidence
from inducing.data import Data, as_inputs
from inducing.features.points import InducingPoints
from inducing.kernels.additive import Additive
from inducing.kernels.base import AbstractKernel
from inducing.kernels.composite import Product, Sum
from inducing.kernels.constant import Constant
from inducing.kernels.dot_product import Linear
from inducing.kernels.stationary import Matern32, Matern52, RationalQuadratic, SquaredExponential
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.model import Model
from inducing.parameters import dtype_of
from inducing.priors.base import AbstractPrior
from inducing.priors.gp import GP
from inducing.priors.independent import Independent
from inducing.training.fit import FitResult
from inducing.training.scales import scales

ROWS, JUDGES = 384, 128  # the most labels that train and that judge
STEPS = 60  # iterations of a candidate
SHORTER, NOISE = 4.0, 0.01  # the second start: the factor of lengthscales, and the noise as a share of the variance
CLOSED = 1e-30  # the factor of a term that is left out; a positive number
CLOSE = 0.05  # nats for each judge: differences in scores that may be chance
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
        result: the last fit.
        is_final: whether that was a fit to all rows until it levelled off.
    """

    prior: AbstractPrior
    likelihood: AbstractLikelihood
    message: str
    result: FitResult
    is_final: bool


class _Rows(NamedTuple):
    """Padded data of some rows: all of them, and those that train, which differ in their weights only."""

    both: Data
    train: Data
    judges: int
    are_all: bool


class _Tried(NamedTuple):
    score: float
    evidence: float
    candidate: tuple[str, ...]
    model: Model


def search_kernel(
    data: Data,
    likelihood: AbstractLikelihood,
    candidates: tuple[tuple[str, ...], ...],
    outputs: int,
    fit_rows: Callable[..., FitResult],
    key: Array,
) -> Found:
    """Train candidates by the evidence of at most 384 labels, and let 128 others judge them.

    The score of a candidate is log p(judges | train) = log p(both) − log p(train), for each judge. The evidence of a
    sum grows with the number of its terms, even where these explain noise, and the score of so few judges is noisy. So
    of all candidates whose score is within 0.05 of the best, the one with the largest log p(both) wins.

    The first candidate starts twice: with the lengthscales of `ig.initialise.scales`, and with shorter ones and less
    noise. Each other candidate starts where the first has ended, if its terms contain those of the first.

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
    rows = _some_rows(data, key)
    names = list(dict.fromkeys(name for candidate in candidates for name in candidate))
    start = _start(data, likelihood, names, outputs)
    options = {"objective": log_evidence, "initialise": False, "freeze": _frozen}
    tried: list[_Tried] = []
    for candidate in candidates:
        best = None
        for model in _starts(start, names, candidate, tried, candidates[0]):
            label = f"{' + '.join(candidate)} on {len(rows.both)} rows"
            try:
                result = fit_rows(model, rows.train, label, steps=STEPS, **options)
            except FloatingPointError:  # the noise was too small for repeated rows
                continue
            if best is None or result.bound > best.bound:
                best = result
        if best is not None:
            tried.append(_judged(candidate, best.model, rows))
    if not any(np.isfinite(entry.score) for entry in tried):
        raise FloatingPointError("the evidence is not finite for any kernel; give a kernel and a likelihood.")
    best_score = max(entry.score for entry in tried)
    score, _, winner, model = max((t for t in tried if t.score >= best_score - CLOSE), key=lambda t: t.evidence)
    last = fit_rows(model, rows.both, f"{' + '.join(winner)}", steps=None if rows.are_all else STEPS, **options)
    others = ", ".join(f"{' + '.join(c)} {value:.3g}" for value, _, c, _ in tried if c != winner)
    said = f"kernel {' + '.join(winner)}: {score:.3g} nats for each of {rows.judges} held-out labels"
    prior = _without_gates(last.model, names, winner)
    return Found(prior, last.model.likelihood, f"{said} ({others})", last, rows.are_all)


def _some_rows(data: Data, key: Array) -> _Rows:
    """Rows in random order, padded by rows of weight 0 to a number that many sizes share."""
    N, outputs = len(data), np.asarray(data.mask).shape[1]
    few = min(N, max(16, (ROWS + JUDGES) // outputs))
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 1), N))[:few]
    training = int(np.ceil(few * ROWS / (ROWS + JUDGES)))
    both = padded(data, order)
    place = np.arange(len(both))
    w = own_array(np.where(place < training, np.asarray(both.weight), 0.0), as_inputs(data.x).dtype)
    judges = int(np.asarray(both.mask)[training:few].sum())
    return _Rows(both, eqx.tree_at(lambda d: d.weight, both, w), max(judges, 1), few == N)


def padded(data: Data, order: np.ndarray) -> Data:
    """Rows in an order, and rows of weight 0 up to a multiple of 64 or a sixteenth, which many sizes share.

    Examples:
        >>> len(padded(Data([0.0, 1.0], [2.0, 3.0]), np.arange(2)))
        64
    """
    n = len(order)
    step = 64 * max(1, n // 1024)
    size = -(-n // step) * step
    rows = data.rows(own_array(np.concatenate([order, np.full(size - n, order[0])]), int))
    weight = np.ones(size) if rows.weight is None else np.array(rows.weight)
    weight[n:] = 0.0
    w = own_array(weight, as_inputs(data.x).dtype)
    return eqx.tree_at(lambda d: d.weight, rows, w, is_leaf=lambda leaf: leaf is None)


def _start(data: Data, likelihood: AbstractLikelihood, names: list[str], outputs: int) -> Model:
    """All terms behind gates, with the scales of the data; each term has the variance of the labels."""
    x = as_inputs(data.x)
    one, each = jnp.ones(x.shape[1], x.dtype), jnp.full(x.shape[1], 1.0 / x.shape[1], x.dtype)
    made: dict[str, Callable[[], AbstractKernel]] = {
        "Matern52": lambda: Matern52(one),
        "Matern32": lambda: Matern32(one),
        "SquaredExponential": lambda: SquaredExponential(one),
        "RationalQuadratic": lambda: RationalQuadratic(one),
        "Additive": lambda: Additive(one, each),
        "Linear": lambda: Linear(each),
    }
    kernels: list[AbstractKernel] = [Sum([made[name]() for name in names]) for _ in range(outputs)]
    prior = with_constant_means(kernels, x.dtype)
    model = scales(cast(Model(SparseGP(prior, InducingPoints(x[:1])), likelihood), x.dtype), data)
    closed = jnp.full((), CLOSED, x.dtype)
    terms = [[_scaled(term, float(len(names))) for term in kernel.terms()] for kernel in _prior(model).kernels]
    gated: list[AbstractKernel] = [Sum([Product([Constant(closed), term]) for term in own]) for own in terms]
    prior = with_constant_means(gated, x.dtype, _prior(model))
    return Model(SparseGP(prior, InducingPoints(x[:1])), model.likelihood)


def with_constant_means(kernels: list[AbstractKernel], dtype: Any, like: AbstractPrior | None = None) -> AbstractPrior:
    """Independent functions, one for each kernel, with constant means: zero, or those of another prior.

    Examples:
        >>> with_constant_means([Matern52()], float).num_outputs
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
        >>> cast(Matern52(), "float32").variance.dtype
        dtype('float32')
    """
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, parts)


def _starts(
    start: Model,
    names: list[str],
    candidate: tuple[str, ...],
    tried: list[_Tried],
    simplest: tuple[str, ...],
) -> list[Model]:
    """Where a candidate starts: where the simplest has ended, if it has the same terms and more; else from the data."""
    before = [model for _, _, other, model in tried if other == simplest and set(other) < set(candidate)]
    if before:
        added = {name: NEW for name in candidate if name not in simplest}
        return [_with_gates(_with_noise(before[0], 1.0, 1.0, added, names), names, candidate)]
    share = dict.fromkeys(names, 1.0 / len(candidate))
    plain = _with_noise(start, 1.0, 1.0, share, names)
    starts = [plain] if candidate != simplest else [plain, _with_noise(start, SHORTER, NOISE, share, names)]
    return [_with_gates(model, names, candidate) for model in starts]


def _with_noise(model: Model, shorter: float, noise: float, share: dict[str, float], names: list[str]) -> Model:
    """The model with shorter lengthscales, a tenth of the noise or so, and other variances of some terms."""
    prior = _prior(model)
    kernels: list[AbstractKernel] = []
    for kernel in prior.kernels:
        terms = [
            Product([gate, _scaled(term, share.get(name, 1.0))])
            for name, (gate, term) in zip(names, (term.factors() for term in kernel.terms()), strict=True)
        ]
        whole = Sum(terms)
        short = {id(leaf): leaf / shorter for leaf in whole.lengthscales()}
        kernels.append(_replaced(whole, short))
    likelihood = jax.tree.map(lambda a: a * noise if eqx.is_inexact_array(a) else a, model.likelihood)
    prior = with_constant_means(kernels, dtype_of(model), prior)
    return Model(SparseGP(prior, _layer(model).features), likelihood)


def _with_gates(model: Model, names: list[str], candidate: tuple[str, ...]) -> Model:
    """The model with open gates for the terms of a candidate."""
    values = [1.0 if name in candidate else CLOSED for name in names]
    new = {
        id(gate): jnp.full_like(gate, value)
        for kernel in _prior(model).kernels
        for value, gate in zip(values, _gates(kernel), strict=True)
    }
    return _replaced(model, new)


def _without_gates(model: Model, names: list[str], winner: tuple[str, ...]) -> AbstractPrior:
    """The prior with the kernel of the winner alone."""
    prior = _prior(model)
    kernels: list[AbstractKernel] = []
    for kernel in prior.kernels:
        terms = [term.factors()[1] for name, term in zip(names, kernel.terms(), strict=True) if name in winner]
        kernels.append(terms[0] if len(terms) == 1 else Sum(terms))
    return with_constant_means(kernels, dtype_of(model), prior)


def _judged(candidate: tuple[str, ...], model: Model, rows: _Rows) -> _Tried:
    both, train = (float(compiled(_log_evidence)(model, data)) for data in (rows.both, rows.train))
    if not np.isfinite([both, train]).all():  # the covariance is singular
        return _Tried(-np.inf, -np.inf, candidate, model)
    return _Tried((both - train) / rows.judges, both, candidate, model)


def _log_evidence(model: Model, data: Data) -> Array:
    return log_evidence(model, data)


def _frozen(model: Model) -> Any:
    """Features do not matter, and gates stay."""
    return _layer(model).features, [_gates(kernel) for kernel in _prior(model).kernels]


def _gates(kernel: AbstractKernel) -> list[Array]:
    return [term.factors()[0].amplitude()[0][0] for term in kernel.terms()]


def _layer(model: Model) -> SparseGP:
    layer = model.layers[0].as_sparse_gp()
    assert layer is not None
    return layer


def _prior(model: Model) -> AbstractPrior:
    return _layer(model).prior


def _scaled(kernel: AbstractKernel, factor: float) -> AbstractKernel:
    """The kernel times a number, by its own parameters."""
    return _replaced(kernel, {id(theta): theta * factor**power for theta, power in kernel.amplitude()})


def _replaced(tree: Any, values: dict[int, Array]) -> Any:
    """The tree with other arrays, given by identity."""
    return jax.tree.map(lambda leaf: values.get(id(leaf), leaf), tree)
