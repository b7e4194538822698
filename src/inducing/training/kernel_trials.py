"""Which kernel to train if the evidence has no closed form, as for classes: short fits, judged by other rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array
from inducing.data import Data, as_inputs, repeated_by_weight
from inducing.features.points import InducingPoints
from inducing.kernels.base import AbstractKernel
from inducing.kernels.composite import Sum
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.model import Model
from inducing.priors.base import AbstractPrior
from inducing.training.fit import FitResult
from inducing.training.initialise import kmeans
from inducing.training.kernel_search import NEW, rows_of_search
from inducing.training.kernel_terms import Gated, gate, new_terms, scaled
from inducing.training.scales import scales

POINTS = 64  # inducing points of a trial
LONG = {"steps": 100, "learning_rate": 0.1, "gamma": 0.3}  # steps for classes,
SHORT = {"steps": 400, "learning_rate": 0.03, "gamma": 0.1}  # and for numbers, which may have little noise

TRIALS = (
    ("Matern52",),
    ("Matern52", "Linear"),
    ("Matern52", "Additive"),
    ("Linear",),
    ("SquaredExponential",),
    ("Matern32",),
    ("RationalQuadratic",),
)
"""Candidates, each a sum of terms."""


class Trial(NamedTuple):
    """A kernel that was tried: the weighted log density of each held-out row, and the trained model."""

    judged: np.ndarray
    candidate: tuple[str, ...]
    model: Model

    @property
    def score(self) -> float:
        """The mean log density."""
        return float(self.judged.mean())


def try_kernels(
    data: Data,
    likelihood: AbstractLikelihood,
    candidates: tuple[tuple[str, ...], ...],
    prior_of: Callable[[AbstractKernel], AbstractPrior],
    fit_rows: Callable[..., FitResult],
    key: Array,
) -> tuple[AbstractPrior, AbstractLikelihood, str]:
    """Train candidates on at most 384 labels by the bound, and let 128 others judge them (of more than 3,000: twice as
    many).

    The candidate with the largest log density of the judges wins, if it exceeds that of the first candidate by more
    than the standard error of the difference; else the first one. A candidate starts where the best one with some of
    its terms has ended.

    Args:
        data: the data.
        likelihood: any likelihood.
        candidates: names of terms, the simplest candidate first.
        prior_of: makes the prior with a kernel.
        fit_rows: `fit` with progress and key, a function of a model, data, a label, and options.
        key: the random key that chooses the rows.

    Returns:
        The prior with the kernel that won and trained hyperparameters, the trained likelihood, and what the message
        says.
    """
    rows = rows_of_search(data, key)
    names = list(dict.fromkeys(name for candidate in candidates for name in candidate))
    start = _start(rows.train, likelihood, names, prior_of)
    tried: list[Trial] = []
    steps = SHORT if likelihood.class_count() is None else LONG
    for candidate in candidates:
        before = [trial for trial in tried if set(trial.candidate) < set(candidate)]
        best = max(before, key=lambda trial: trial.score) if before else None
        share = {name: 1.0 / len(candidate) if best is None else NEW for name in candidate}
        if best is not None:
            share |= dict.fromkeys(best.candidate, 1.0)
        model = _opened(start if best is None else best.model, share)
        label = f"{' + '.join(candidate)} on {rows.count} rows"
        trained = fit_rows(model, rows.train, label, method="natgrad", initialise=False, **steps).model
        tried.append(Trial(_judged(trained, rows.both, rows.train), candidate, trained))
    won = max(tried, key=lambda trial: trial.score)
    change = won.judged - tried[0].judged
    if change.mean() <= change.std() / np.sqrt(len(change)):
        won = tried[0]
    others = ", ".join(f"{' + '.join(t.candidate)} {t.score:.3g}" for t in tried if t is not won)
    said = f"kernel {' + '.join(won.candidate)}: {won.score:.3g} nats for each of {rows.judges} held-out labels"
    return _without_gates(won.model), won.model.likelihood, f"{said} ({others})"


def _start(
    data: Data, likelihood: AbstractLikelihood, names: list[str], prior_of: Callable[[AbstractKernel], AbstractPrior]
) -> Model:
    """All terms with closed gates and the scales of the data; each term alone has the variance of the whole prior."""
    x = as_inputs(data.x)
    Z = kmeans(repeated_by_weight(data).x, POINTS)
    model = scales(Model(SparseGP(prior_of(Sum(new_terms(names, x))), InducingPoints(Z)), likelihood), data)
    y = np.where(np.asarray(data.mask), np.asarray(data.y, float), np.nan)
    known = np.isfinite(likelihood.start(y).variance).any()  # then the terms have the variance of the labels together
    kernels: list[Any] = list(_prior(model).kernels)
    terms = [zip(names, kernel.terms(), strict=True) for kernel in kernels]
    factor = float(len(names)) if known else 1.0
    gated = [Sum([Gated(name, gate(False), scaled(term, factor)) for name, term in own]) for own in terms]
    return _with_kernels(model, gated)


def _opened(model: Model, share: dict[str, float]) -> Model:
    """The model with q(u) at the prior, and some terms open, whose variances are multiplied by their share."""
    gated: list[Any] = [kernel.terms() for kernel in _prior(model).kernels]
    kernels = [
        Sum([Gated(g.name, gate(g.name in share), scaled(g.term, share.get(g.name, 1.0))) for g in terms])
        for terms in gated
    ]
    return _with_kernels(model, kernels)


def _with_kernels(model: Model, kernels: list[Sum]) -> Model:
    layer: Any = model.layers[0].as_sparse_gp()
    prior = eqx.tree_at(lambda prior: list(prior.kernels), layer.prior, kernels)
    return Model(SparseGP(prior, layer.features), model.likelihood)


def _without_gates(model: Model) -> AbstractPrior:
    """The prior with the terms alone whose gates are open."""
    prior = _prior(model)
    gated: list[Any] = [kernel.terms() for kernel in prior.kernels]
    kernels = [[g.term for g in terms if bool(g.is_open)] for terms in gated]
    alone = [terms[0] if len(terms) == 1 else Sum(terms) for terms in kernels]
    return eqx.tree_at(lambda prior: list(prior.kernels), prior, alone)


def _prior(model: Model) -> AbstractPrior:
    layer = model.layers[0].as_sparse_gp()
    assert layer is not None
    return layer.prior


def _judged(model: Model, both: Data, train: Data) -> np.ndarray:
    """The log density of each row in `both` that is not in `train`, times its weight as a multiple of their mean."""
    weight = np.asarray(both.weight)
    chosen = np.flatnonzero(weight > np.asarray(train.weight))
    if not chosen.size:  # of three rows or fewer: all kernels are equally good
        return np.zeros(1)
    judges = both.rows(own_array(chosen, int))
    y = np.where(np.asarray(judges.mask), np.asarray(judges.y), np.nan)
    return np.asarray(model.predict(judges.x).log_prob(y)) * weight[chosen] / weight[chosen].mean()
