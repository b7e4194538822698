"""The collapsed bound and its gradient by two passes over a stream.

The bound is a function B(S) of sums S(θ) over the rows. The first pass computes S, which determines the cotangent
S̄ = ∂B/∂S. The second pass computes the gradient Σ_n S̄ · ∂s_n/∂θ for fixed S̄. It equals the gradient of `ig.elbo` at the
optimal q(u).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import compiled
from inducing.bounds.optimal import bound_of_sums
from inducing.bounds.passes import Counted, Pass, judged, sums_of_rows
from inducing.bounds.sums import Statistics
from inducing.data import Data
from inducing.training.problem import Problem, flat


class StreamedAscent(NamedTuple):
    """The objective that L-BFGS maximises on a stream.

    Attributes:
        problem: the model, split into free arrays and the rest.
        passes: passes over the stream.
        log_prior: a function of the model that is added to the bound, or None.
    """

    problem: Problem
    passes: Pass
    log_prior: Callable | None

    def trace(self, free: list[Array], key: Array | None) -> None:
        """Do nothing: the first pass traces the programs."""

    def numbers(self, free: list[Array], key: Array | None) -> np.ndarray:
        """The bound at free arrays, followed by its gradient."""
        counted = self.passes.sum(sums_at, self.problem, free)
        value, cotangent, own = compiled(_bound_and_cotangent)(self.problem, free, counted, self.log_prior)
        if not np.isfinite(float(value)):
            return np.full(1 + sum(f.size for f in free), np.nan)
        grads = self.passes.sum(slope_at, self.problem, free, cotangent)
        return flat([value, *(np.asarray(g, float) + np.asarray(o, float) for g, o in zip(grads, own, strict=True))])


def sums_at(problem: Problem, free: list[Array], rows: Data) -> Counted:
    """The sums over some rows, at free arrays."""
    return sums_of_rows(problem.model(free), rows)


def slope_at(problem: Problem, free: list[Array], cotangent: Statistics, rows: Data) -> list[Array]:
    """S̄ · ∂s/∂θ for some rows."""

    def weighted(free: list[Array]) -> Float[Array, ""]:
        stats = sums_of_rows(problem.model(free), rows).stats
        return sum(
            (jnp.sum(s * c) for s, c in zip(stats, cotangent, strict=True)), jnp.zeros((), cotangent.trace.dtype)
        )

    return jax.grad(weighted)(free)


def _bound_and_cotangent(
    problem: Problem, free: list[Array], counted: Counted, log_prior: Callable | None
) -> tuple[Float[Array, ""], Statistics, Any]:
    """The objective, the cotangent of the sums, and the gradient of the log prior."""
    stats = judged(problem.model(free), counted)
    value, cotangent = jax.value_and_grad(bound_of_sums)(stats)
    if log_prior is None:
        return value, cotangent, [jnp.zeros_like(f) for f in free]
    prior, own = jax.value_and_grad(lambda free: log_prior(problem.model(free)))(free)
    return value + prior, cotangent, own
