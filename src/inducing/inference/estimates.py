"""Estimates of a joint density by sampling, and how far to trust them."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import default_jit


class Estimate(NamedTuple):
    """The logarithm of an unbiased estimate of a density.

    Its expectation is below the true value, by about half the square of the standard error where that is small.

    Args:
        value: the estimate of log p(y).
        standard_error: its standard error; 0 if the value is exact.
        effective_sample_size: (Σ w)² / Σ w² of the independent estimates w that were averaged, or of the draws of the
            latent variable of the datum for which it is smallest; infinite if the value is exact. If it is small, a few
            lucky draws decide, and the standard error itself is not to be trusted.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> pred = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).predict([0.2, 0.7], full_cov=True)
        >>> print(pred.estimate([0.0, 0.1]).standard_error)
        0.0
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]
    effective_sample_size: Float[Array, ""]


def exact(value: Float[Array, ""]) -> Estimate:
    """A value without Monte Carlo error.

    Examples:
        >>> print(exact(jnp.ones(())).effective_sample_size)
        inf
    """
    return Estimate(value, jnp.zeros_like(value), jnp.full_like(value, jnp.inf))


@default_jit
def of_mean(logs: Float[Array, " B"]) -> Estimate:
    """The logarithm of the mean of independent estimates, given by their logarithms.

    Examples:
        >>> e = of_mean(jnp.log(jnp.array([1.0, 3.0])))
        >>> print([round(float(v), 3) for v in e])
        [0.693, 0.5, 1.6]
    """
    B = len(logs)
    log_sum = jax.nn.logsumexp(logs)
    size = jnp.exp(2.0 * log_sum - jax.nn.logsumexp(2.0 * logs))
    spread = jnp.maximum(1.0 / size - 1.0 / B, 0.0) * (B / max(B - 1, 1))
    return Estimate(log_sum - np.log(B), jnp.sqrt(spread), size)


@default_jit
def of_product(logs: Float[Array, "B S N"]) -> Estimate:
    """The logarithm of a product over data of means over draws, from B independent sets of S draws for each datum.

    Examples:
        >>> print([float(v) for v in of_product(jnp.zeros((2, 5, 3)))])
        [0.0, 0.0, 10.0]
    """
    B, S, _ = logs.shape
    sets = jax.nn.logsumexp(logs, axis=1) - np.log(S)
    each = jax.nn.logsumexp(sets, axis=0) - np.log(B)
    relative = jnp.exp(sets - each[None]) - 1.0
    error = jnp.sqrt(jnp.sum(relative**2) / (B * max(B - 1, 1)))
    flat = logs.reshape(B * S, -1)
    sizes = jnp.exp(2.0 * jax.nn.logsumexp(flat, axis=0) - jax.nn.logsumexp(2.0 * flat, axis=0))
    return Estimate(jnp.sum(each), error, jnp.min(sizes))


def warn_if_poor(estimate: Estimate, cure: str) -> None:
    """Warn if so few draws decide that the estimate is not to be trusted.

    Examples:
        >>> warn_if_poor(exact(jnp.ones(())), "")
    """
    size = estimate.effective_sample_size
    if not isinstance(size, jax.core.Tracer) and not size >= 5.0:
        warnings.warn(
            f"the joint log density {float(estimate.value):.4g} is a poor estimate: its effective sample size is "
            f"{float(size):.2g}, and its expectation is below the true value; {cure}.",
            stacklevel=3,
        )
