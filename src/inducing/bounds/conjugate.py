"""Conjugate models, one sparse GP with Gaussian noise, whose optimal q(u) has a closed form."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from inducing.bounds.terms import labels
from inducing.data import Data
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.linalg import Dense


def conjugate_layer(model: Any) -> SparseGP | None:
    """The sparse GP of a conjugate model.

    Args:
        model: any model.

    Returns:
        The sparse GP, or None if the model is not conjugate.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> conjugate_layer(ig.Model(gp, ig.likelihoods.Gaussian(0.1))) is gp
        True
        >>> conjugate_layer(ig.Model(gp, ig.likelihoods.Bernoulli())) is None
        True
    """
    if len(model.layers) != 1:
        return None
    layer = model.layers[0].as_sparse_gp()
    gaussian = layer is not None and model.likelihood.has_gaussian_noise(layer.prior.num_outputs)
    return layer if gaussian else None


class Conjugate(eqx.Module):
    """A sparse GP and the Gaussian noise on its outputs.

    Raises:
        TypeError: for models that are not conjugate.
    """

    layer: SparseGP
    likelihood: AbstractLikelihood

    def __init__(self, model: Any):
        layer = conjugate_layer(model)
        if layer is None:
            kinds = ", ".join(type(part).__name__ for part in (*model.layers, model.likelihood))
            raise TypeError(
                "the optimal q(u) has a closed form for one SparseGP layer with a Gaussian likelihood, not for "
                f"({kinds}); use ig.elbo."
            )
        self.layer, self.likelihood = layer, model.likelihood

    def noise(self, data: Data) -> Float[Array, "N P"]:
        """The noise variances."""
        noise = self.likelihood.gaussian_noise(labels(data)[0].shape, data.index)
        assert noise is not None
        return noise


def with_q(model: Any, number: int, mean: Float[Array, "L M"], root: Array) -> Any:
    """The model with another q(w) of the sparse GP in layer `number`."""
    return eqx.tree_at(lambda m: m.layers[number].as_sparse_gp(), model, replace_fn=lambda gp: gp.with_q(mean, root))


def inverse_root(Lambda: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower-triangular R with R Rᵀ = Λ⁻¹, from the Cholesky factor of Λ with rows and columns reversed.

    Examples:
        >>> import jax.numpy as jnp
        >>> R = inverse_root(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
        >>> bool(jnp.allclose(R @ R.T, jnp.linalg.inv(jnp.array([[2.0, 1.0], [1.0, 2.0]]))))
        True
    """
    return Dense(Lambda[::-1, ::-1]).inverse_root[::-1, ::-1].T
