"""The summary of a fit, `result.message`."""

from typing import NamedTuple

import jax
import numpy as np

from inducing.data import Data
from inducing.model import Model
from inducing.parameters import Partition, dtype_of
from inducing.training.monitor import Outcome
from inducing.training.plan import LBFGS, Plan
from inducing.training.problem import free_positions

MOSTLY = 0.9  # the message mentions a larger share of noise


class Facts(NamedTuple):
    """What the message reports.

    Attributes:
        plan: how the model was trained.
        best: the outcome of the best start.
        reached: the bound that each start reached.
        interrupted: whether a start was interrupted.
        rescaled: whether starting scales were set from the data.
        restarted: whether there was one more start with shorter lengthscales, because labels looked like noise.
        jitter: the largest relative jitter.
        noise: the share of the noise in the variance of the labels; 0 if unknown.
        unbounded: whether the bound has no maximum.
        missing: the number of missing labels.
        streamed: the number of rows of a stream, of which `missing` and `noise` describe a sample; None for data in
            memory.
    """

    plan: Plan
    best: Outcome
    reached: list[float]
    interrupted: bool
    rescaled: bool
    restarted: bool
    jitter: float
    noise: float
    unbounded: bool
    missing: int
    streamed: int | None = None


def message(facts: Facts) -> str:
    """`result.message`."""
    best, plan, reached = facts.best, facts.plan, facts.reached
    says = [
        f"{plan.method} ({plan.why})",
        f"{len(best.history.bound)} steps on {_rows(plan, best, facts.streamed)}: {best.reason}",
        f"bound {best.bound:.6g}",
    ]
    if len(reached) > 1:
        says.append(f"best of {len(reached)} starts, which reached {', '.join(f'{bound:.6g}' for bound in reached)}")
    if facts.restarted:
        says.append("labels looked like noise, so the last start had shorter lengthscales")
    if facts.noise > MOSTLY:
        says.append(_noise(facts))
    if facts.interrupted and best.reason != "interrupted":
        says.append("interrupted in a later start")
    if facts.rescaled:
        says.append("starting scales set from the data")
    if best.failures:
        says.append(_failures(plan, best))
    if facts.unbounded:
        says.append(
            "all labels are equal, or all labels of one output, so the bound grows without limit as the noise goes to "
            "0: freeze the likelihood or pass a log_prior of it"
        )
    if facts.missing:
        where = "" if facts.streamed is None else " in a sample"
        says.append(f"{facts.missing} missing label{'s' if facts.missing > 1 else ''}{where}")
    says.append(f"largest relative jitter {facts.jitter:.0e}")
    return "; ".join(says) + "."


def _rows(plan: Plan, best: Outcome, streamed: int | None) -> str:
    rows = "all data" if plan.batch_size is None else f"minibatches of {plan.batch_size}"
    if streamed is not None:
        rows += f", a stream of {streamed} rows" if plan.batch_size is None else f" from a stream of {streamed} rows"
    return rows + (f" (the first {best.sampled} on a sample of {best.sample})" if best.sampled else "")


def _noise(facts: Facts) -> str:
    cure = "more features are needed"
    if not facts.restarted:
        cure = "shorter lengthscales are needed at the start, or more features"
    return f"noise is {facts.noise:.0%} of the labels' variance: the inputs say little about them, or {cure}"


def _failures(plan: Plan, best: Outcome) -> str:
    hint = (
        f" (labels with too little noise for {dtype_of(best.problem).name}, or far from the prior's mean, which "
        "then needs training: ig.means.Constant())"
    )
    what = "values in line searches" if plan.method in LBFGS else "steps"
    return f"{best.failures} {what} were NaN or infinite and skipped{hint if plan.method == 'collapsed' else ''}"


def is_unbounded(plan: Plan, model: Model, parts: Partition, data: Data) -> bool:
    """Whether the density of the labels has no maximum.

    This is the case if the noise is trained and all its labels are equal: those of one output if each output has its
    own noise, else those of all outputs. If there is only one label, a mean must be trained too.

    Args:
        plan: how the model was trained.
        model: the model at the start.
        parts: the same model split for training.
        data: the training data.
    """
    where, likelihood = free_positions(model, parts), model.likelihood
    if plan.objective.log_prior is not None or not _trains(likelihood, where):
        return False
    y, mask = np.asarray(data.y), np.asarray(data.mask)
    kinds = [support.kind for support in likelihood.supports]
    dense = np.array([kind != "count" for kind in kinds]) & mask.any(axis=0)
    gp = model.layers[-1].as_sparse_gp()
    means = () if gp is None else gp.prior.mean_functions()
    enough = mask.sum(axis=0) >= (1 if _trains(means, where) else 2)
    lowest, highest = np.where(mask, y, np.inf).min(axis=0), np.where(mask, y, -np.inf).max(axis=0)
    equal = ((lowest >= highest) & enough)[dense]
    each_has_noise = len(kinds) > 1 or any(np.shape(a) == y.shape[1:] for a in jax.tree.leaves(likelihood))
    return bool(equal.any() if each_has_noise else equal.size and equal.all())


def _trains(part: object, where: dict[int, int]) -> bool:
    return any(id(leaf) in where for leaf in jax.tree.leaves(part))
