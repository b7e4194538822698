"""Whether a model is conjugate: one sparse GP with Gaussian noise, whose optimal q(u) has a closed form."""

from typing import Any

import equinox as eqx

from inducing.layers.sparse_gp import SparseGP


def conjugate_layer(model: Any) -> SparseGP | None:
    """The sparse GP of a model that is one sparse GP with Gaussian noise.

    Args:
        model: any model.

    Returns:
        The sparse GP, or None for other models.

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


def required_layer(model: Any) -> SparseGP:
    """The sparse GP of a conjugate model; a TypeError for other models."""
    layer = conjugate_layer(model)
    if layer is None:
        kinds = ", ".join(type(part).__name__ for part in (*model.layers, model.likelihood))
        raise TypeError(
            f"the optimal q(u) has a closed form for one SparseGP layer with a Gaussian likelihood, not for ({kinds}); "
            "use ig.elbo."
        )
    return layer


def with_layer(model: Any, layer: SparseGP) -> Any:
    """The conjugate model with another sparse GP in place of its own."""
    return eqx.tree_at(lambda m: m.layers[0].as_sparse_gp(), model, layer)
