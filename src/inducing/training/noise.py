"""Whether a fit explains the labels by noise alone."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import compiled, own_array
from inducing.bounds.terms import labels
from inducing.data import Data
from inducing.likelihoods.base import AbstractLikelihood
from inducing.parameters import dtype_of
from inducing.training.monitor import ENDED, Outcome
from inducing.training.problem import Problem

FEW = 10  # with fewer labels, the share of the noise is not reported
LITTLE = 0.05  # nats for each label, about a tenth of its variance
SETTLED = 300  # a run of fewer gradient steps may have ended too early to tell


def is_no_better_than_constant(
    best: Outcome, noisy: bool, likelihood: AbstractLikelihood, data: Data, num_data: int
) -> bool:
    """Whether a fit has ended where a constant function is about as good.

        bound ≤ max_c Σ log p(y | f = c) + 0.05 (number of labels)

    Args:
        best: how the best start ended, by an objective in nats.
        noisy: whether that objective is noisy.
        likelihood: the likelihood before training.
        data: the training data, or a sample of them.
        num_data: the number of training data.
    """
    bounds = best.history.bound[np.isfinite(best.history.bound)]
    done = best.reason.startswith(ENDED) or (best.reason == "all steps done" and len(bounds) >= SETTLED)
    n, variance = labels_and_variances(data)
    if not done or not bounds.size or data.x is None or not (variance > 0).all():
        return False
    reached = bounds[-max(50, len(bounds) // 10) :].mean() if noisy else bounds.max()
    reached = reached * (len(data) / num_data)
    if likelihood.shared_noise is None and jax.tree.leaves(likelihood):  # else nothing in it was trained, or matters
        likelihood = compiled(_likelihood, once=True)(best.problem, best.free)
    return bool(reached <= log_prob_of_constant(likelihood, data) + LITTLE * n.sum())


def _likelihood(problem: Problem, free: list[Array]) -> AbstractLikelihood:
    return problem.model(free).likelihood


def log_prob_of_constant(likelihood: AbstractLikelihood, data: Data) -> float:
    """max_c Σ log p(y | f = c), the log density of all labels under the best constant function.

    Args:
        likelihood: the likelihood. If all labels of an output share one Gaussian noise, the best noise is taken too.
        data: the data.

    Returns:
        The maximum.

    Examples:
        >>> import inducing as ig
        >>> data = ig.Data([0.0, 1.0, 2.0], [1.0, 1.0, 0.0])
        >>> round(log_prob_of_constant(ig.likelihoods.Bernoulli(), data), 6)  # 2 log(2/3) + log(1/3)
        -1.909543
    """
    mask = np.asarray(data.mask)
    if likelihood.shared_noise is not None:
        n, variance = labels_and_variances(data)
        return float(-0.5 * np.sum(n * (np.log(2.0 * np.pi * variance) + 1.0)))
    from scipy.optimize import minimize

    dtype = dtype_of(data)
    start = likelihood.start(np.where(mask, np.asarray(data.y, float), np.nan))
    centre = np.where(np.isfinite(start.centre), start.centre, 0.0)
    unit = np.sqrt(np.where(start.variance > 0, start.variance, 1.0))
    count = int(mask.sum())

    def descent(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = compiled(_log_prob, once=True)(likelihood, own_array(centre + unit * z, dtype), data)
        return -float(value) / count, -unit * np.asarray(slope, float) / count

    return -float(minimize(descent, np.zeros(len(unit)), jac=True, method="L-BFGS-B").fun) * count


def _log_prob(likelihood: AbstractLikelihood, c: Float[Array, " F"], data: Data) -> tuple[Array, Array]:
    """The log density of labels if all latent functions are constant, and its gradient."""
    y, mask = labels(data)
    y = jnp.where(mask, y, jnp.asarray(likelihood.fill, y.dtype))

    def value(c: Array) -> Array:
        f = jnp.broadcast_to(c, (len(data), c.shape[0]))
        return jnp.sum(jnp.where(mask, likelihood.log_prob(f, y, index=data.index), 0.0))

    return jax.value_and_grad(value)(c)


def noise_share(likelihood: AbstractLikelihood, data: Data) -> float:
    """The noise variance divided by the variance of the labels; 0 if it is not one number, or for few labels."""
    noise = likelihood.shared_noise
    n, variance = labels_and_variances(data)
    if noise is None or n.sum() < FEW:
        return 0.0
    spread = float(np.sum(n * variance) / n.sum())
    return float(noise) / spread if spread > 0 else 0.0


def labels_and_variances(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The number of labels of each output that has any, and their variance."""
    y, mask = np.asarray(data.y, float), np.asarray(data.mask)
    seen = mask.any(axis=0)
    return mask.sum(axis=0)[seen], np.nanvar(np.where(mask, y, np.nan)[:, seen], axis=0)
