"""Natural gradients of q(u): steps in the geometry of Gaussians, which are the same in the coordinates u, v and w."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla.lapack import cholesky, triangular_inverse
from inducing.bounds.elbo import elbo
from inducing.checks import check_model, checked_data
from inducing.layers import qu
from inducing.layers.base import AbstractLayer
from inducing.parameters import as_numbers

HALVINGS = 40  # the largest number of times that γ is halved


def natural_step(
    mean: Float[Array, "L M"],
    root: Array,
    mean_grad: Float[Array, "L M"],
    root_grad: Array,
    gamma: Any,
    reach: Any = jnp.inf,
) -> tuple[Float[Array, "L M"], Array]:
    """One ascent step of length γ in the natural parameters of q = N(m, S), S = R Rᵀ.

        S_new⁻¹ = S⁻¹ − 2γ ∂/∂S  =  R⁻ᵀ B R⁻¹,   B = I − γ(P + Pᵀ),   P = Φ(Rᵀ R̄)
        R_new = R C,   C Cᵀ = B⁻¹,               m_new = m + γ S_new m̄

    γ is halved until B is positive definite and |m_new − m| ≤ `reach` + |m|/10.

    Args:
        mean: m.
        root: R, full, diagonal or coupled; see `layers.qu`.
        mean_grad: m̄, the gradient of the objective.
        root_grad: R̄, the gradient of the objective.
        gamma: γ.
        reach: how far the mean may move, beyond a tenth of its norm.

    Returns:
        The new mean and root.

    Examples:
        >>> one = jnp.ones((1, 1))
        >>> m, root = natural_step(0.0 * one, one[None], one, -0.5 * one[None], 1.0)
        >>> round(float(root[0, 0, 0] ** 2), 6), round(float(m[0, 0]), 6)
        (0.666667, 0.666667)
    """
    gamma, reach = jnp.asarray(gamma, mean.dtype), jnp.asarray(reach, mean.dtype)
    if qu.is_diagonal(root):
        return _diagonal_step(mean, root, mean_grad, root_grad, gamma, reach)
    if qu.is_coupled(root):
        m, R = _full_step(mean.reshape(-1), root, mean_grad.reshape(-1), root_grad, gamma, reach)
        return m.reshape(mean.shape), R
    return jax.vmap(_full_step, in_axes=(0, 0, 0, 0, None, None))(mean, root, mean_grad, root_grad, gamma, reach)


def _full_step(m: Array, R: Array, m_bar: Array, R_bar: Array, gamma: Array, reach: Array) -> tuple[Array, Array]:
    P = jnp.tril(R.T @ R_bar)
    G = P + jnp.tril(P, -1).T
    eye = jnp.eye(m.shape[0], dtype=m.dtype)
    slope = R.T @ m_bar

    def attempt(g):  # the factor of B with rows and columns reversed, so that C is lower triangular
        C = triangular_inverse(cholesky((eye - g * G)[::-1, ::-1]))[::-1, ::-1].T
        return C, R @ (g * (C @ (C.T @ slope)))

    C, move = _halve(attempt, lambda C, move: _within(reach, m, move), gamma)
    return m + move, jnp.tril(R @ C)


def _diagonal_step(m: Array, R: Array, m_bar: Array, R_bar: Array, gamma: Array, reach: Array) -> tuple[Array, Array]:
    def attempt(g):
        B = 1.0 - g * R * R_bar
        return B, g * R[:, 0] ** 2 * m_bar / B[:, 0]

    def good(B, move):
        return jnp.all(B > 0) & _within(reach, m, move)

    B, move = _halve(attempt, good, gamma)
    return m + move, R / jnp.sqrt(B)


def _within(reach: Array, m: Array, move: Array) -> Array:
    norm = partial(jnp.linalg.norm, axis=-1)
    return jnp.all(norm(move) <= reach + 0.1 * norm(m))


def _halve(attempt: Callable, good: Callable, gamma: Array) -> Any:
    """The first good attempt with γ, γ/2, γ/4, …. An attempt that gives NaN is not good."""
    halves = 2.0 * gamma, jax.tree.map(lambda a: jnp.full(a.shape, jnp.nan, a.dtype), jax.eval_shape(attempt, gamma)), 0
    return jax.lax.while_loop(
        lambda s: ~good(*s[1]) & (s[2] <= HALVINGS), lambda s: (0.5 * s[0], attempt(0.5 * s[0]), s[2] + 1), halves
    )[1]


def natural_gradient_step(
    model: Any,
    data: Any,
    gamma: float | Float[Array, ""] = 1.0,
    *,
    objective: Callable = elbo,
    layer: int | Callable[[Any], Any] = -1,
    key: Array | None = None,
    num_data: int | None = None,
) -> Any:
    """Take one natural-gradient step on q(u) = N(m, S) of a SparseGP layer.

        S_new⁻¹ = S⁻¹ − 2γ ∂/∂S,      m_new = m + γ S_new ∂/∂m

    With a Gaussian likelihood, all data and γ = 1, one step reaches the optimum, like `ig.collapse`. This requires a
    q(u) that can represent the correlations of the optimum. A diagonal q(u), or a separate one for each latent if
    outputs mix latents, overshoots instead and may diverge; use a smaller γ for it, such as 0.1. γ is halved until the
    new covariance is positive definite.

    Args:
        model: a model.
        data: (X, y) or `ig.Data`.
        gamma: γ, the length of the step.
        objective: a function of (model, data) to maximise, such as `ig.elbo`.
        layer: the number of the layer, or a function of the model that returns it, such as
            `lambda m: m.layers[0].layers[1]` for a layer inside a Skip. It can be any layer with one Gaussian q(u).
        key: a JAX random key for the objective, if it needs one.
        num_data: the number of all data, if `data` are a minibatch.

    Returns:
        The model after the step.

    Raises:
        IndexError: if there is no layer of that number.
        TypeError: if the layer does not have exactly one Gaussian q(u), or has a Kronecker root.
        ValueError: if the data do not fit the model, or gamma is not in (0, 1].

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> stepped = ig.natural_gradient_step(model, data)
        >>> abs(float(ig.elbo(stepped, data) - ig.collapsed_elbo(model, data))) < 1e-9
        True
    """
    check_model(model)
    if (gamma := as_numbers("gamma", gamma)).ndim:
        raise ValueError(f"gamma must be one number, got shape {list(gamma.shape)}.")
    if not isinstance(gamma, jax.core.Tracer) and not 0 < gamma <= 1:
        raise ValueError(f"gamma, the length of the step, must be in (0, 1], got {float(gamma):g}.")
    if not callable(layer) and not -len(model.layers) <= layer < len(model.layers):
        raise IndexError(
            f"layer={layer} is none of the {len(model.layers)} layers; pass 0 for the first, -1 for the last."
        )
    pick: Callable[[Any], Any] = layer if callable(layer) else lambda m: m.layers[layer]
    mean, root = _gaussian(pick(model), "layer(model)" if callable(layer) else f"layers[{layer}]")
    data = checked_data(model, data)

    def where(m):
        return pick(m).gaussians()[0]

    def value(q):
        return objective(eqx.tree_at(where, model, q), data, **given)

    given = {name: v for name, v in (("key", key), ("num_data", num_data)) if v is not None}
    grads = jax.grad(value)((mean, root))
    return eqx.tree_at(where, model, natural_step(mean, root, *grads, gamma))


def _gaussian(layer: Any, name: str) -> tuple[Array, Array]:
    """The mean and root of the one Gaussian q(u) of a layer."""
    gaussians = layer.gaussians() if isinstance(layer, AbstractLayer) else ()
    if len(gaussians) != 1:
        raise TypeError(
            f"{name} is a {type(layer).__name__}; natural gradients are for SparseGP layers, and others with one "
            f"Gaussian q(u): this one has {len(gaussians)}."
        )
    ((mean, root),) = gaussians
    if qu.is_kronecker(root):
        raise TypeError("a Kronecker root has no natural-gradient step in closed form; use ig.fit(..., method='adam').")
    return mean, root
