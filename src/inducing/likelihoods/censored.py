"""Labels that are known only to lie in an interval, or that are seen only if they lie in one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.likelihoods.base import PREDICTIVE_NODES, AbstractLikelihood, marginal_variance
from inducing.likelihoods.starts import LatentStart
from inducing.likelihoods.supports import Support
from inducing.numerics.quadrature import expectation, log_expectation
from inducing.numerics.special import log1mexp
from inducing.parameters import as_whole, fixed, question

TRAINING_NODES = 64


def _sum_of_tails(parts: tuple[AbstractLikelihood, Array], y: Array) -> Array:
    likelihood, f = parts
    low, high = likelihood.log_tails(f, y)
    return jnp.sum(low + high)


class Censored(AbstractLikelihood):
    """Censored labels of another likelihood, of which only bounds are known, such as lifetimes that have not ended.

    The labels are pairs y = [lower, upper], two columns for one output, with NaN where there is no bound:

        exact            lower = upper = y      p(y | f)
        right-censored   [lower, NaN]           P(label > lower | f)
        left-censored    [NaN, upper]           P(label ≤ upper | f)
        interval         [lower, upper]         P(lower < label ≤ upper | f)      (counts: lower ≤ label ≤ upper)
        missing          [NaN, NaN]

    For P outputs, the P lower bounds come first. Labels with P columns are exact. Predictions describe the label
    itself, not censored, and `log_prob` of a prediction takes both kinds of labels. 1 − `cdf` is the survival function.

    With `above` or `below`, labels are truncated too: datum n is there only because its label lies between them, as in
    lifetimes with delayed entry. Its term is log p(y_n | f) − log P(above_n < label ≤ below_n | f). The bounds belong
    to training data, which `Data.index` numbers; predictions for new data are not truncated.

    Args:
        base: the likelihood of the label, with a cdf. Each output depends on one latent function.
        num_outputs: P.
        above: truncation from below, [N] or [N, P]; −inf where there is none.
        below: truncation from above; inf where there is none.

    Raises:
        TypeError: if `base` has no cdf, or its outputs depend on several latents, or its cdf has no derivatives in JAX,
            like those of `Beta` and `NegativeBinomial`.

    Examples:
        >>> import inducing as ig
        >>> zero, lifetimes = jnp.zeros((2, 1)), jnp.array([[2.0, 2.0], [2.0, jnp.nan]])      # ended; not yet ended
        >>> lik = ig.likelihoods.Censored(ig.likelihoods.Exponential())
        >>> print(lik.log_prob(zero, lifetimes)[:, 0])      # log e^{−2} both times
        [-2. -2.]
    """

    base: AbstractLikelihood
    num_outputs: int = eqx.field(static=True, converter=as_whole, default=1)
    above: Float[Array, "N *P"] | None = fixed(None)
    below: Float[Array, "N *P"] | None = fixed(None)

    def __check_init__(self):
        if not isinstance(self.num_outputs, int) or self.num_outputs < 1:
            raise ValueError(f"Censored.num_outputs must be a whole number from 1, got {self.num_outputs!r}.")
        P = self.num_outputs
        for name, bound in (("above", self.above), ("below", self.below)):
            if bound is not None and (bound.ndim not in (1, 2) or bound.shape[1:] not in ((), (1,), (P,))):
                raise ValueError(f"Censored.{name} must have shape [N] or [N, {P}], got {list(bound.shape)}.")
        if self.base.joint or self.base.num_latents(P) != P:
            raise TypeError(
                f"Censored needs a likelihood whose outputs depend on one latent each, not {type(self.base).__name__}."
            )
        one = jax.ShapeDtypeStruct((1, P), jnp.zeros(()).dtype)
        try:
            jax.eval_shape(lambda f, y: self.base.log_tails(f, y), one, one)
        except NotImplementedError as error:
            raise TypeError(f"Censored needs a likelihood with a cdf: {error}") from error
        try:  # JAX has no derivative of the incomplete beta function by its parameters
            jax.eval_shape(lambda f, y: eqx.filter_grad(_sum_of_tails)((self.base, f), y), one, one)
        except ValueError as error:
            raise TypeError(
                f"Censored needs a likelihood whose cdf has derivatives, not {type(self.base).__name__}: {error}"
            ) from error

    @property
    def joint(self) -> bool:
        return False

    @property
    def adds_noise(self) -> bool:
        return self.base.adds_noise

    @property
    def supports(self) -> tuple[Support, ...]:
        return self.base.supports

    @property
    def fill(self) -> float:
        return float("nan")  # a missing bound is information, so it must not be filled in

    def num_latents(self, num_outputs: int) -> int:
        if num_outputs not in (self.num_outputs, 2 * self.num_outputs):
            raise ValueError(
                f"labels of Censored are pairs [lower, upper] in {2 * self.num_outputs} columns, or exact ones in "
                f"{self.num_outputs}, got {num_outputs} columns."
            )
        return self.num_outputs

    def class_count(self) -> int | None:
        return self.base.class_count()

    def check(self, y, *, index=None):
        if isinstance(y, jax.core.Tracer):
            return
        lower, upper = self._bounds(np.asarray(y))
        self.base.check(lower, index=index)
        self.base.check(upper, index=index)
        wrong = np.argwhere(lower > upper)
        if wrong.size:
            n, p = wrong[0]
            raise ValueError(
                f"labels of Censored are pairs [lower, upper], got lower {lower[n, p]:.6g} above upper "
                f"{upper[n, p]:.6g} in row {n}; use NaN where there is no bound."
            )
        if index is not None and not isinstance(index, jax.core.Tracer):
            self._check_truncation(lower, upper, np.asarray(index))

    def _check_truncation(self, lower: np.ndarray, upper: np.ndarray, index: np.ndarray) -> None:
        """Raise a ValueError if a label has no part between its bounds of truncation."""
        for name, bound, side, is_outside in (
            ("above", self.above, upper, np.less_equal), ("below", self.below, lower, np.greater)
        ):  # fmt: skip
            if bound is None or isinstance(bound, jax.core.Tracer):
                continue
            rows = np.flatnonzero((index >= 0) & (index < len(bound)))  # those of training data
            ends = np.asarray(bound)[index[rows]].reshape(len(rows), -1)
            wrong = np.argwhere(is_outside(side[rows], ends))  # not for NaN, where there is no label or no end
            if wrong.size:
                n, p = wrong[0]
                raise ValueError(
                    f"Censored.{name} is {np.broadcast_to(ends, side[rows].shape)[n, p]:.6g} in row {rows[n]}, but the "
                    f"label ends at {side[rows][n, p]:.6g}; truncated data have labels between `above` and `below`."
                )

    def labelled(self, seen):
        lower, upper = self._bounds(seen)
        return lower | upper

    def check_index(self, index, seen):
        self.base.check_index(index, self.labelled(seen))
        for name, bound in (("above", self.above), ("below", self.below)):
            if bound is not None and index.max() >= len(bound):
                raise ValueError(
                    f"Censored.{name} has values for {len(bound)} data, but data.index reaches {index.max()}."
                )

    def start(self, y: np.ndarray) -> LatentStart:
        lower, upper = self._bounds(y)
        middle = np.where(np.isnan(lower), upper, np.where(np.isnan(upper), lower, 0.5 * (lower + upper)))
        return self.base.start(np.where(self._counts(), np.round(middle), middle))

    def _counts(self) -> np.ndarray:
        """Which outputs are counts, [1, P] or [1, 1]."""
        return np.array([[support.kind == "count" for support in self.base.supports]])

    def _bounds(self, y: Any) -> tuple[Any, Any]:
        P = self.num_outputs
        return y[..., :P], y[..., -P:]  # the same for exact labels

    def _terms(self, y: Array, index: Array | None, exact: Callable, interval: Callable) -> Array:
        """The term of each label, in the first of its columns that is present.

        Args:
            y: labels.
            index: which data these are.
            exact: a function of exact labels [N, P].
            interval: a function of (log probability of f, centre, width) that gives the term of an interval.
        """
        lower, upper = self._bounds(y)
        known = lower == upper
        fill = jnp.broadcast_to(jnp.asarray(self.base.fill, y.dtype), lower.shape)
        label = jnp.where(known, lower, fill)
        terms = exact(label)
        if y.shape[-1] > self.num_outputs:
            ends = jnp.where(known, fill, lower), jnp.where(known, fill, upper)
            terms = jnp.where(known, terms, interval(self._cell(*ends, index), *self._bend(*ends, index)))
        if index is not None and (self.above is not None or self.below is not None):
            ends = self._at(self.above, index, -jnp.inf, terms), self._at(self.below, index, jnp.inf, terms)
            terms = terms - interval(self._cell(*ends, index), *self._bend(*ends, index))
        if y.shape[-1] == self.num_outputs:
            return terms
        first = ~jnp.isnan(lower)
        return jnp.concatenate([jnp.where(first, terms, 0.0), jnp.where(first, 0.0, terms)], axis=-1)

    def _at(self, bound: Array | None, index: Array, default: float, like: Array) -> Array:
        if bound is None:
            return jnp.full_like(like, default)
        own = bound[index]
        return jnp.broadcast_to(own[:, None] if own.ndim == 1 else own, like.shape).astype(like.dtype)

    def _cell(self, lower: Array, upper: Array, index: Array | None) -> Callable[[Array], Array]:
        return lambda f: self._log_cell(f, lower, upper, index)

    def _bend(self, lower: Array, upper: Array, index: Array | None) -> tuple[Array, Array]:
        """Where f ↦ P(lower < label ≤ upper | f) is curved, and the width of that."""
        fill = jnp.asarray(self.base.fill, lower.dtype)
        low, high = jnp.isfinite(lower), jnp.isfinite(upper)
        a = self.base.focus(jnp.where(low, lower, jnp.where(high, upper, fill)), index=index)
        b = self.base.focus(jnp.where(high, upper, jnp.where(low, lower, fill)), index=index)
        return 0.5 * (a[0] + b[0]), jnp.maximum(jnp.maximum(a[1], b[1]), 0.5 * jnp.abs(b[0] - a[0]))

    def _log_cell(self, f: Array, lower: Array, upper: Array, index: Array | None) -> Array:
        """log P(lower < label ≤ upper | f), where a bound that is not finite is none; counts may equal `lower`."""
        below, above = jnp.isfinite(lower), jnp.isfinite(upper)
        fill = jnp.asarray(self.base.fill, f.dtype)
        counts = self._counts()
        below, lower = below & ((lower > 0) | ~counts), jnp.where(counts, lower - 1, lower)
        low, above_low = self.base.log_tails(f, jnp.where(below, lower, fill), index=index)
        high, above_high = self.base.log_tails(f, jnp.where(above, upper, fill), index=index)
        left = high < above_low  # of two differences, the one of smaller numbers
        a, b = jnp.where(left, high, above_low), jnp.where(left, low, above_high)
        gap = jnp.where(below & above, b - a, -1.0)
        both = a + log1mexp(jnp.minimum(gap, -jnp.finfo(f.dtype).eps))
        one = jnp.where(below, above_low, jnp.where(above, high, 0.0))
        return jnp.where(below & above, both, one)

    def log_prob(self, f, y, *, index=None):
        return self._terms(y, index, lambda y: self.base.log_prob(f, y, index=index), lambda cell, *_: cell(f))

    def expected_log_prob(self, mean, cov, y, *, index=None):
        variance = marginal_variance(mean, cov)

        def interval(log_cell: Callable, centre: Array, width: Array) -> Array:
            return expectation(log_cell, mean, variance, TRAINING_NODES, centre, width)

        return self._terms(y, index, lambda y: self.base.expected_log_prob(mean, cov, y, index=index), interval)

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        variance = marginal_variance(mean, cov)

        def interval(log_cell: Callable, centre: Array, width: Array) -> Array:
            return log_expectation(log_cell, mean, variance, PREDICTIVE_NODES, centre, width)

        return self._untruncated()._terms(
            y, index, lambda y: self.base.predictive_log_prob(mean, cov, y, index=index), interval
        )

    def _untruncated(self) -> "Censored":
        return eqx.tree_at(lambda c: (c.above, c.below), self, (None, None), is_leaf=lambda leaf: leaf is None)

    @question
    def distribution(self, f, *, index=None):
        return self.base.distribution(f, index=index)

    def focus(self, y, *, index=None):
        lower, upper = self._bounds(y)
        return self._bend(lower, upper, index)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        y = jnp.where(jnp.isnan(y), jnp.asarray(self.base.fill, y.dtype), y)
        return self.base.predictive_cdf(mean, cov, y, index=index)

    def predictive_moments(self, mean, cov, *, index=None):
        return self.base.predictive_moments(mean, cov, index=index)

    def log_tails(self, f, y, *, index=None):
        return self.base.log_tails(f, y, index=index)
