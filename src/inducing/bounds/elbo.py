"""The bound that trains every model."""

import numbers
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.bounds.collapsed import collapsed_elbo, optimal_q
from inducing.bounds.conjugate import conjugate_layer
from inducing.bounds.doubly_reparameterised import doubly_reparameterised as with_two_paths
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.terms import log_mean_exp, log_weights, weighted_sum
from inducing.checks import check_counts
from inducing.declared import shown
from inducing.model import Model, needed
from inducing.parameters import MOST


class _Elbo(AbstractBound):
    takes_minibatches = True

    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return model.is_stochastic or not options.get("integrate", True)

    def is_quadratic(self, model: Any, options: Mapping[str, Any]) -> bool:
        return conjugate_layer(model) is not None and options.get("integrate", True)

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum | None:
        if conjugate_layer(model) is None or (options and not _is_ordinary(**options)):
            return None
        return Optimum(collapsed_elbo, optimal_q, collapsed=True)


def _is_ordinary(
    key: Any = None,
    samples: int = 1,
    importance: int = 1,
    beta: Any = 1.0,
    integrate: bool = True,
    **others: Any,
) -> bool:
    """Whether these options give the ordinary bound of a model without latent variables."""
    check_counts(samples=samples, importance=importance)
    return isinstance(beta, numbers.Real) and beta == 1 and integrate and not others


@_Elbo
def elbo(
    model: Model,
    data: Any,
    *,
    key: Array | None = None,
    samples: int = 1,
    importance: int = 1,
    beta: float | Float[Array, ""] = 1.0,
    num_data: int | None = None,
    integrate: bool = True,
    doubly_reparameterised: bool = False,
) -> Float[Array, ""]:
    """The lower bound on log p(y) that trains all models (section 4).

        (N/B) Σ_n E[ log 1/R Σ_r exp( log explik_nr + β Σ_l log p(h_nr)/q(h_nr) ) ]  −  β Σ_l KL(q_l ‖ p_l)

    See eq:elbo_sparse_gp_iid, eq:elbo_deep_sgp and eq:ugly_log_2. A model with one layer and no latent variables needs
    no sampling: the value is exact. Otherwise it is an unbiased estimate of the bound.

    Args:
        model: the model.
        data: (X, y) or `ig.Data`: all data, or a minibatch of B rows.
        key: a random key, needed if the model has inner random layers, or if `integrate` is False.
        samples: the number of Monte Carlo samples of the outer expectation.
        importance: R, the number of importance samples of the latent variables of each datum. A larger R gives a
            tighter bound. It has no effect on models without latent variables.
        beta: β, the weight of all divergences. The value is a bound for β = 1 only; other weights give β-VI.
        num_data: N, the number of all data, if `data` are a minibatch.
        integrate: whether to integrate the last layer in closed form or by quadrature. If False, the last layer is
            sampled as well, jointly over the replicates of a datum (eq:sparse_gp_iw_lv_marg_lik_3).
        doubly_reparameterised: whether to use the gradient of Tucker et al. (2019) for the encoders if R > 1. Its
            signal-to-noise ratio does not decrease with R. The value and all other gradients stay the same. Encoders
            must not see a layer's sampled input, and `ig.LatentVariable` layers must not be inside a `Skip`.

    Returns:
        The bound, one number.

    Raises:
        ValueError: if the data do not fit the model, a key is missing, or an option is out of range.
        TypeError: if `model` is not a model, or `doubly_reparameterised` is not possible for it.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> bool(ig.elbo(model, data) < ig.log_evidence(model, data))
        True

        The average of the values on minibatches, here of one row, is the value on all data:

        >>> rows = [ig.elbo(model, ([x], [y]), num_data=2) for x, y in zip(*data, strict=True)]
        >>> bool(abs(sum(rows) / 2 - ig.elbo(model, data)) < 1e-9)
        True
    """
    check_counts(samples=samples, importance=importance)
    if num_data is not None and not _is_one_number(num_data):
        check_counts(num_data=num_data)
    check_beta(beta)
    scale = 1.0 if num_data is None else num_data / len(data)
    if model.is_stochastic or not integrate:
        key = needed(key)

    def once(key):
        if doubly_reparameterised and importance > 1:
            return with_two_paths(model, data, key, importance, beta, integrate)
        return log_mean_exp(log_weights(model, data, key, importance, beta, integrate))

    def data_term(key):
        return weighted_sum(data, once(key))

    if key is not None and samples > 1:
        term = jnp.mean(jax.vmap(data_term)(jax.random.split(key, samples)))
    else:
        term = data_term(key)
    return scale * term - beta * model.kl()


def _is_one_number(value: Any) -> bool:
    """Whether a value is a number that JAX holds, perhaps traced."""
    return isinstance(value, jax.Array) and value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.number)


def check_beta(beta: Any) -> None:
    """Raise a ValueError unless `beta` is a number of at least 0. Traced values are not checked."""
    if isinstance(beta, jax.core.Tracer):
        return
    plain = isinstance(beta, numbers.Real | jax.Array | np.ndarray) and np.ndim(beta) == 0
    if not plain or np.asarray(beta).dtype.kind not in "iuf" or not 0 <= float(beta) <= MOST:
        raise ValueError(f"beta must be 0 or more, got {shown(beta)}; {MOST} is the most.")
