"""Samples and function draws of a prior: joint at given inputs, or of whole functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import default_jit, in_blocks
from inducing.data import as_inputs
from inducing.likelihoods.sampling import as_shape, sampling_root
from inducing.parameters import as_key, at_least_one, dtype_of
from inducing.priors.base import AbstractPrior, mix_mean
from inducing.priors.latents import BLOCK_ENTRIES, repeat


def checked_rows(prior: AbstractPrior, X: Any) -> Float[Array, "N D"]:
    """Inputs as users pass them, as an array in the dtype of the prior, which accepts their values."""
    X = as_inputs(X, dtype_of(prior))
    check_values(prior, X)
    return X


def check_values(prior: AbstractPrior, X: Float[Array, "N D"]) -> None:
    """Raise a ValueError if the prior cannot take some value of X. Values under `jit` are not known."""
    if not isinstance(X, jax.core.Tracer):
        prior.check_inputs(np.asarray(X))  # NumPy: X may be concrete while the prior is traced


def sample_prior(prior: AbstractPrior, key: Array, X: Any, shape: Any) -> Float[Array, "... N P"]:
    """Values of f at X, joint over inputs and outputs. Roots are those of each latent, O(L (N J)³)."""
    X = checked_rows(prior, X)
    return _sample(prior, as_key(key), X, as_shape(shape, X[:, 0]))


@default_jit
def _sample(prior: AbstractPrior, key: Array, X: Array, shape: tuple[int, ...]) -> Array:
    L, J, N = prior.num_latents, prior.num_sites, X.shape[0]
    roots = jax.vmap(sampling_root)(prior.Kff(X).reshape(-1, N * J, N * J))
    z = jax.random.normal(key, (*shape, L, N * J), X.dtype)
    s = jnp.einsum("lij,...lj->...li", repeat(roots, L), z).reshape(*shape, L, N, J)
    deviations = mix_mean(prior, jnp.swapaxes(s, -3, -2))
    return jnp.broadcast_to(prior.mean(X), deviations.shape) + deviations


def draw_prior(prior: AbstractPrior, key: Array, num: int) -> Callable[[Any], Float[Array, "N P"]]:
    """One function of the prior, by random features."""
    key, num = as_key(key), at_least_one("num_features", num)

    def f(X: Any) -> Float[Array, "N P"]:
        X = checked_rows(prior, X)
        g = centred_draw(prior, key, num, X.shape[1])
        return in_blocks(lambda X: prior.mean(X) + g(X), X, rows_of_draws(prior, num))

    return f


def centred_draw(prior: AbstractPrior, key: Array, num: int, dim: int) -> Callable[[Array], Float[Array, "n P"]]:
    """One function of the prior without its mean."""
    _, sites = prior.draw_latents(key, num, dim)
    return lambda X: mix_mean(prior, sites(X))


def rows_of_draws(prior: AbstractPrior, num: int) -> int:
    """How many rows of inputs a draw of `num` random features takes at a time."""
    return BLOCK_ENTRIES // (num * prior.num_latents * prior.num_sites)
