"""The collapsed bound and the optimal q(u), given the sums over the data."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.conjugate import Conjugate, inverse_root, with_q
from inducing.bounds.sums import Statistics
from inducing.linalg import Dense, batched


def precision(stats: Statistics) -> Dense:
    """Λ = I + Ψ of each group of latents, stacked [G, M', M']."""
    eye = jnp.eye(stats.Psi.shape[1], dtype=stats.Psi.dtype)[None]
    return jax.vmap(Dense)(stats.Psi + eye)


def bound_of_sums(stats: Statistics) -> Float[Array, ""]:
    """½ ( Σ log τ/2π − Σ τ r² + cᵀΛ⁻¹c − log |Λ| − Σ τ k + tr Ψ )."""
    Lambda = precision(stats)
    quadratic = jnp.sum(batched("root_solve", Lambda, stats.c[..., None]) ** 2)
    explained = jnp.sum(batched("diagonal", Lambda) - 1.0)
    constant = stats.log_tau - stats.squares
    return 0.5 * (constant + quadratic - jnp.sum(batched("logdet", Lambda)) - stats.trace + explained)


def model_of_sums(model: Any, stats: Statistics) -> Any:
    """The model with the optimal q(w) = N(Λ⁻¹c, Λ⁻¹)."""
    layer, Lambda = Conjugate(model).layer, precision(stats)
    L, M = layer.prior.num_latents, layer.num_features
    m = batched("solve", Lambda, stats.c[..., None])[..., 0].reshape(L, M)
    root = jax.vmap(inverse_root)(Lambda.matrix)
    return with_q(model, 0, m, root if root.shape[0] == L else root[0])
