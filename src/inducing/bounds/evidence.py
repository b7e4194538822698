"""The exact log marginal likelihood of models with Gaussian noise."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.collapsed import optimal_q
from inducing.bounds.conjugate import Conjugate
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.terms import counts, inputs, labels
from inducing.model import Model


class _LogEvidence(AbstractBound):
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, optimal_q)


@_LogEvidence
def log_evidence(model: Model, data: Any) -> Float[Array, ""]:
    """The exact log marginal likelihood of the prior under the model's Gaussian likelihood.

        log p(y) = log N(y | μ, Kff + Σ),    Σ the noise

    A row of weight w has the likelihood N(y | f, σ²)^w, which is N(y | f, σ²/w) times a constant.

    It takes O((NP)³) time and does not depend on the features. As an objective,
    `ig.fit(model, data, objective=ig.log_evidence)` trains an exact GP.

    Args:
        model: one `SparseGP` layer with a Gaussian likelihood. Its features and q(u) do not matter.
        data: (X, y) or `ig.Data`, all of them.

    Returns:
        The log marginal likelihood, one number.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> bool(ig.log_evidence(model, data) >= ig.collapsed_elbo(model, data))
        True
    """
    conjugate = Conjugate(model)
    (y, _), count, noise = labels(data), counts(data), conjugate.noise(data)
    seen = count > 0.0
    count = jnp.where(seen, count, 1.0)
    exact = conjugate.layer.prior.condition(inputs(data), jnp.where(seen, y, jnp.nan), noise / count)
    constant = 0.5 * ((1.0 - count) * jnp.log(2.0 * jnp.pi * noise) - jnp.log(count))
    return exact.log_marginal_likelihood + jnp.sum(jnp.where(seen, constant, 0.0))
