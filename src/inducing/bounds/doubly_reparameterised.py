"""The doubly reparameterised gradient of importance-weighted bounds (Tucker et al. 2019)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.terms import log_mean_exp, log_weights
from inducing.data import Data
from inducing.model import Model, enter


def doubly_reparameterised(
    model: Model, data: Data, key: Array, R: int, beta: float | Float[Array, ""], integrate: bool
) -> Float[Array, " N"]:
    """log 1/R Σ_r w_r of each datum, with the doubly reparameterised gradient for the encoders.

    Writing the score term of the gradient as a path derivative leaves, for encoder parameters φ,

        Σ_r Σ_s c_rs (∂ log w_s / ∂h_r) (∂h_r / ∂φ),     c_rs = ω_s − β ω_r (δ_rs − ω_s),    ω = softmax(log w),

    which is ω_r² on the diagonal for β = 1. The off-diagonal terms vanish unless a GP is drawn jointly over replicates.
    """
    latents = [i for i, layer in enumerate(model.layers) if layer.encoders()]
    _check(model, latents)
    encoders = [encoder for i in latents for encoder in model.layers[i].encoders()]
    frozen = eqx.tree_at(
        lambda m: [encoder for i in latents for encoder in m.layers[i].encoders()], model, _stopped(encoders)
    )
    samples = _samples(model, data, key, R, latents)

    def shifted(shifts):
        return log_weights(frozen, data, key, R, beta, integrate, shifts)

    value, pull = jax.vjp(shifted, jax.tree.map(jnp.zeros_like, samples))
    omega = jax.nn.softmax(value, axis=1)
    sampled = model.layers[:-1] if integrate else model.layers
    if any(layer.couples_replicates for layer in sampled[latents[0] :]):
        (whole,) = pull(omega)

        def of_replicate(r):  # one at a time, because all at once would take R times the memory
            (each,) = pull(jnp.where(jnp.arange(R)[None] == r, omega, 0.0))
            return jax.tree.map(lambda a: a[:, r], each)

        own = jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1), jax.lax.map(of_replicate, jnp.arange(R)))
        gradient = jax.tree.map(lambda w, o: (1.0 + beta * omega)[..., None] * w - beta * o, whole, own)
    else:
        (gradient,) = pull(omega - beta * omega * (1.0 - omega))
    gradient = jax.lax.stop_gradient(gradient)
    path = sum(
        jnp.sum(gradient[i] * (samples[i] - jax.lax.stop_gradient(samples[i])), axis=(1, 2)) for i in latents
    )  # its value is zero, and its gradient is the one above
    return log_mean_exp(value) + path


def _samples(model: Model, data: Data, key: Array, R: int, latents: list[int]) -> dict[int, Float[Array, "N R d"]]:
    """The latent variables of each layer that has encoders, by the number of the layer."""
    x, keys, samples = enter(model, data), model.keys(key), {}
    for i in latents:
        h = model.layers[i].sample_latents(x, keys[i], data, R)
        if h is None:
            raise TypeError(
                f"doubly_reparameterised does not look into layers[{i}], a {type(model.layers[i]).__name__}; put its "
                "latent variables into an ig.LatentVariable layer outside it."
            )
        samples[i] = h
    return samples


def _check(model: Model, latents: list[int]) -> None:
    if not latents:
        raise TypeError(
            "doubly_reparameterised is for models with a LatentVariable that has an encoder; this one has none."
        )
    for i in latents:
        if any("input" in encoder.sees for encoder in model.layers[i].encoders()):
            raise TypeError(
                f"the encoder of layers[{i}] sees its layer's input, which other layers sample, so its gradient cannot "
                'be separated from theirs; let it see ("x", "y", "mask"), or set doubly_reparameterised=False.'
            )


def _stopped(tree: Any) -> Any:
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, tree)
