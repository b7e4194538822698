"""The order of summing and whitening, chosen by an estimate of rounding errors.

Whitening last is faster but loses more digits. `either` decides while running. `whitened_last_or_nan` and
`whitened_first_or_nan` compute one order only and give NaN where rounding would falsify the bound, so that a caller can
change the order.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.conjugate import Conjugate
from inducing.bounds.sums import Statistics, whitened_first, whitened_last
from inducing.bounds.terms import counts, inputs
from inducing.data import Data
from inducing.linalg import AbstractCovariance, Dense, batched
from inducing.parameters import dtype_of
from inducing.priors.base import mix_variance, weights

ROUNDING = 0.03  # the allowed rounding error in nats: of the bound if whitening comes last, else for each label
ROWS = 1024  # the prior variance of f is estimated from this number of rows


def either(conjugate: Conjugate, data: Data, Kuu: AbstractCovariance) -> Statistics:
    """The sums in the faster order, unless rounding would falsify the bound."""
    if not has_two_orders(conjugate, Kuu):
        return whitened_first(conjugate, data, Kuu)
    orders = (partial(order, conjugate, data, Kuu) for order in (whitened_last, whitened_first))
    return jax.lax.cond(rounding(conjugate, data, Kuu) <= ROUNDING, *orders)


def whitened_last_or_nan(conjugate: Conjugate, data: Data, Kuu: AbstractCovariance) -> Statistics:
    """The sums in the faster order, with a NaN where rounding would falsify the bound."""
    if not has_two_orders(conjugate, Kuu):
        return whitened_first(conjugate, data, Kuu)
    stats = whitened_last(conjugate, data, Kuu)
    right = rounding(*jax.lax.stop_gradient((conjugate, data, Kuu))) <= ROUNDING
    return stats._replace(squares=jnp.where(right, stats.squares, jnp.nan))


def whitened_first_or_nan(conjugate: Conjugate, data: Data, Kuu: AbstractCovariance) -> Statistics:
    """The sums in the more accurate order, with a NaN where rounding would falsify even these.

    The bound is a small difference between Σ τ r² + Σ τ k and the part of it that the features explain, which has a
    relative error of ε |Luu⁻¹|.
    """
    return or_nan(whitened_first(conjugate, data, Kuu), Kuu, jnp.sum(counts(data)))


def or_nan(stats: Statistics, Kuu: AbstractCovariance, labels: Float[Array, ""]) -> Statistics:
    """Sums in the more accurate order over this number of labels, with a NaN where rounding would falsify the bound."""
    if not isinstance(Kuu, Dense):
        return stats
    error = jnp.finfo(stats.squares.dtype).eps * jnp.sqrt(_condition(Kuu)) * (stats.squares + stats.trace)
    right = error <= allowed_rounding(error.dtype) * labels
    return stats._replace(squares=jnp.where(right, stats.squares, jnp.nan))


def allowed_rounding(dtype: Any) -> float:
    """The allowed rounding error of the bound for each label, in nats.

    In float32, the estimates are about ten times the actual errors where it matters, so more is allowed.

    Examples:
        >>> allowed_rounding(jnp.float64)
        0.03
    """
    return ROUNDING if dtype == jnp.float64 else 10.0 * ROUNDING


def has_two_orders(conjugate: Conjugate, Kuu: AbstractCovariance) -> bool:
    """Whether whitening last is possible: in float64 and for a dense Kuu."""
    return dtype_of(conjugate) == jnp.float64 and isinstance(Kuu, Dense)


def rounding(conjugate: Conjugate, data: Data, Kuu: AbstractCovariance) -> Float[Array, ""]:
    """An estimate of the largest error of the bound that whitening last may cause.

    By the inequality of Cauchy and Schwarz, the entries of Σ τ Kuf Kfu are at most N τ times the prior variances of u
    and f, with a relative error of ε; whitening multiplies by |Luu⁻¹|². Actual errors reach ten times this product.
    """
    prior, x = conjugate.layer.prior, inputs(data)
    every = -(-len(x) // ROWS)  # not the first rows, because in sorted data variances may grow with the row
    outputs = mix_variance(prior, prior.Kff_diag(x[::every]))
    groups = 1 if weights(prior) is not None else prior.num_latents  # of coupled latents
    of_f = jnp.max(jnp.sum(outputs.reshape(len(outputs), groups, -1), axis=2))
    eps = jnp.finfo(x.dtype).eps
    tau = jnp.max(counts(data) / conjugate.noise(data))
    return 10.0 * eps * len(data) * prior.num_latents * of_f * _condition(Kuu) * tau


def _condition(Kuu: AbstractCovariance) -> Float[Array, ""]:
    """|Luu⁻¹|² in units of the prior variance of u, an upper bound on the condition number of Kuu."""
    assert isinstance(Kuu, Dense)
    return jnp.max(jnp.max(batched("diagonal", Kuu), axis=1) * jnp.sum(Kuu.inverse_root**2, axis=(1, 2)))
