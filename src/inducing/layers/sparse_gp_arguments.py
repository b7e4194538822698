"""The checks of what users pass to `SparseGP`."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures
from inducing.features.padded import Padded
from inducing.gaussian import Coordinates
from inducing.layers import qu
from inducing.linalg import AbstractCovariance
from inducing.parameters import as_numbers
from inducing.priors.base import AbstractPrior


def checked_jitter(jitter: Any) -> float:
    """The jitter as a finite number of at least 0, or a ValueError."""
    try:
        value = float(jitter)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"jitter must be 0 or a positive number, got {jitter!r}.")
    return value


def checked_features(features: Any, prior: AbstractPrior) -> Any:
    """The features of all latents, or a tuple with those of each. Other arguments raise an error."""
    if isinstance(features, AbstractFeatures):
        return features
    if isinstance(features, jax.Array | np.ndarray):
        raise TypeError(
            f"features must be one of ig.features, got an array of shape {tuple(features.shape)}; inducing inputs are "
            "ig.features.InducingPoints(Z)."
        )
    features = tuple(features) if isinstance(features, Sequence) else (features,)
    if len(features) != prior.num_latents or not all(isinstance(f, AbstractFeatures) for f in features):
        raise ValueError(
            f"features must be one ig.features object, or one for each of the {prior.num_latents} latents; "
            f"got {', '.join(dict.fromkeys(type(f).__name__ for f in features)) or 'none'} ({len(features)})."
        )
    if len({f.num_features for f in features}) > 1:
        most = max(f.num_features for f in features)
        features = tuple(Padded(f, most) for f in features)
    return features if len(features) > 1 else features[0]


def check_features_suit(features: Any, prior: AbstractPrior, jitter: float) -> None:
    """Raise an error if a kernel has no covariances of the features, or cannot take their locations."""
    jax.eval_shape(lambda: prior.Kuu(features, jitter))
    L = prior.num_latents
    own = features if isinstance(features, tuple) else (features,)
    for part, kernel in zip(own * (L // len(own)), prior.kernels * (L // len(prior.kernels)), strict=True):
        part.check_inputs(kernel)


def prior_mean(prior: AbstractPrior, features: Any, coordinates: Coordinates, shape: tuple, dtype: Any) -> Any:
    """The mean [L, M] of q(u) = p(u) in these coordinates."""
    mean = prior.mu_u(features) if coordinates == "u" else np.zeros(shape, dtype)
    return mean if mean.shape == shape else jnp.broadcast_to(mean, shape)


def prior_root(Kuu: AbstractCovariance | None, shape: tuple[int, int], dtype: Any) -> Any:
    """The root [L, M, M] of the covariance of q(u) = p(u): that of Kuu, or the identity in w coordinates (None)."""
    L, M = shape
    if Kuu is None:
        return np.broadcast_to(np.eye(M, dtype=dtype), (L, M, M))
    return jnp.linalg.cholesky(qu.repeat_dense(Kuu, L))


def checked_q(
    mean: Any, root: Any, coordinates: Coordinates, shape: tuple[int, int]
) -> tuple[Float[Array, "L M"], qu.Root]:
    """Mean and root of q(u) as arrays of the right shape. Raises an error if their shapes do not fit."""
    L, M = shape
    mean = as_numbers("mean", mean)
    root = tuple(as_numbers("root", f) for f in root) if isinstance(root, tuple) else as_numbers("root", root)
    if qu.is_kronecker(root) and coordinates != "w":
        raise ValueError(f"a Kronecker root is for coordinates 'w', not {coordinates!r}; leave coordinates out.")
    if mean.size != L * M or mean.shape[-1:] != (M,):
        raise ValueError(f"mean has shape {list(mean.shape)}; for {L} latents and {M} features pass [{L}, {M}].")
    return mean.reshape(L, M), qu.as_root(root, L, M)


def check_q(mean: Array, root: qu.Root, coordinates: Coordinates, shape: tuple[int, int]) -> None:
    """Raise a ValueError unless mean and root of q(u) have the shapes in which layers keep them."""
    L, M = shape
    if mean.shape != (L, M):
        raise ValueError(f"mean has shape {list(mean.shape)}; for {L} latents and {M} features pass [{L}, {M}].")
    if isinstance(root, tuple):
        sizes = [f.shape[-1] if f.ndim == 3 and f.shape == (L, f.shape[2], f.shape[2]) else 0 for f in root]
        good = math.prod(sizes) == M and coordinates == "w"
    else:
        good = root.shape in ((L, M, M), (L, 1, M), (L * M, L * M) if L > 1 else (L, M, M))
    if not good:
        shapes = jax.tree.map(lambda r: list(r.shape), root)
        raise ValueError(
            f"root has shape {shapes}; for {L} latents and {M} features in coordinates {coordinates!r} it is "
            f"{[L, M, M]}, {[L, 1, M]}, {[L * M, L * M]}, or a tuple of factors in coordinates 'w'."
        )
