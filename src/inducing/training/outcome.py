"""How one start of a fit is watched, how it ended, and what a fit says of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from inducing.data import Data
from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.gaussian import Gaussian
from inducing.parameters import dtype_of
from inducing.training.monitor import History
from inducing.training.plan import Plan
from inducing.training.problem import Problem

FEW, MOSTLY = 10, 0.9  # labels that say nothing of noise, and the share of it that is worth a word
LITTLE = 0.05  # nats for each label, about a tenth of its variance
Seed = tuple[Array | None, Array]  # the user's key, and the number of a start


class Watch(NamedTuple):
    """What the user asked to see while it runs; `build` makes a model of free arrays, `held_out` a score. `look` raises
    KeyboardInterrupt if the user has pressed Ctrl-C."""

    progress: bool | str
    callback: Callable | None
    patience: int | None
    look: Callable[[], None]
    build: Callable[[list[Array]], Any]
    held_out: Callable[[list[Array]], float] | None


class Outcome(NamedTuple):
    """How one start ended: `free` are its best parameters; `sampled` steps saw only a sample of `sample` rows."""

    problem: Problem
    free: list[Array]
    history: History
    bound: float
    reason: str
    failures: int
    sampled: int = 0
    sample: int = 0


def message(
    plan: Plan,
    best: Outcome,
    reached: list[float],
    interrupted: bool,
    data: Data,
    jitter: float,
    rescaled: bool,
    again: bool,
    noise: float,
    unbounded: bool,
) -> str:
    """`result.message`."""
    says = [f"{plan.method} ({plan.why})"]
    rows = "all data" if plan.batch_size is None else f"minibatches of {plan.batch_size}"
    rows += f" (the first {best.sampled} on a sample of {best.sample})" if best.sampled else ""
    says.append(f"{len(best.history.bound)} steps on {rows}: {best.reason}")
    says.append(f"bound {best.bound:.6g}")
    if len(reached) > 1:
        says.append(f"best of {len(reached)} starts, which reached {', '.join(f'{bound:.6g}' for bound in reached)}")
    if again:
        says.append("labels looked like noise, so that the last start had shorter lengthscales")
    if noise > MOSTLY:
        cure = "more features are needed" if again else "shorter lengthscales are needed at the start, or more features"
        says.append(f"noise is {noise:.0%} of the labels' variance: the inputs say little of them, or {cure}")
    if interrupted and best.reason != "interrupted":
        says.append("interrupted in a later start")
    if rescaled:
        says.append("starting scales set from the data")
    if best.failures:
        hint = (
            f" (labels with too little noise for {dtype_of(best.problem).name}, or far from the prior's mean, which "
            "then needs training: ig.means.Constant())"
        )
        what = "values in line searches" if plan.method in ("collapsed", "lbfgs") else "steps"
        says.append(
            f"{best.failures} {what} were NaN or infinite and skipped{hint if plan.method == 'collapsed' else ''}"
        )
    if unbounded:
        says.append(
            "all labels are equal, or all of one output, so that the bound grows without end as the noise goes to 0: "
            "freeze the likelihood or pass a log_prior of it"
        )
    if data.num_missing:
        says.append(f"{data.num_missing} missing label{'s' if data.num_missing > 1 else ''}")
    says.append(f"largest relative jitter {jitter:.0e}")
    return "; ".join(says) + "."


def noise_share(likelihood: AbstractLikelihood, data: Data) -> float:
    """Gaussian noise over the variance of the labels; 0 where it is not one number, or of few labels."""
    noise = likelihood.variance if isinstance(likelihood, Gaussian) else None
    n, variance = _labels_and_variances(data)
    if not isinstance(noise, jax.Array) or noise.ndim > 0 or n.sum() < FEW:
        return 0.0
    spread = float(np.sum(n * variance) / n.sum())
    return float(noise) / spread if spread > 0 else 0.0


def _labels_and_variances(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The number of labels of each output that has any, and their variance."""
    y, mask = np.asarray(data.y, float), np.asarray(data.mask)
    seen = mask.any(axis=0)
    return mask.sum(axis=0)[seen], np.nanvar(np.where(mask, y, np.nan)[:, seen], axis=0)


def took_for_noise(best: Outcome, data: Data) -> bool:
    """Whether a fit has ended where one Gaussian for all labels of an output is about as good."""
    if not best.reason.startswith(("converged", "the line search")) or data.x is None:
        return False
    n, variance = _labels_and_variances(data)
    if not (variance > 0).all():
        return False
    alike = -0.5 * np.sum(n * (np.log(2.0 * np.pi * variance) + 1.0))
    return bool(np.nanmax(best.history.bound) <= alike + LITTLE * n.sum())


def is_unbounded(plan: Plan, best: Outcome, likelihood: AbstractLikelihood, data: Data) -> bool:
    """Whether a density can be as high as it likes at the labels: all are equal, or all of an output that has a noise
    of its own, and its width trains. One label is no more than equal to a mean that trains."""
    where = best.problem.positions()
    if not jax.tree.leaves(where.likelihood) or plan.objective.log_prior is not None:
        return False
    y, mask = np.asarray(data.y), np.asarray(data.mask)
    kinds = [support.kind for support in likelihood.supports]
    dense = np.array([kind != "count" for kind in kinds]) & mask.any(axis=0)
    mean = getattr(getattr(where.layers[-1], "prior", None), "mean_function", None)
    enough = mask.sum(axis=0) >= (1 if jax.tree.leaves(mean) else 2)
    lowest, highest = np.where(mask, y, np.inf).min(axis=0), np.where(mask, y, -np.inf).max(axis=0)
    equal = ((lowest >= highest) & enough)[dense]
    own = len(kinds) > 1 or any(np.shape(a) == y.shape[1:] for a in jax.tree.leaves(likelihood))  # noise by output
    return bool(equal.any() if own else equal.size and equal.all())
