"""Samples of mixtures of Gaussians, and the arguments of methods that sample."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import check_memory
from inducing.declared import shown
from inducing.linalg import Dense, default_jitter
from inducing.numerics.special import safe_sqrt
from inducing.parameters import MOST, as_whole


@contextlib.contextmanager
def lenient():
    """A context with JAX's standard promotion rules, which NumPyro relies on, whatever the user's settings are."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def as_shape(shape: Any, each: Array) -> tuple[int, ...]:
    """A number of samples, or a shape of samples, as a shape.

    Args:
        shape: what the caller asks for.
        each: an array as large as one sample.

    Examples:
        >>> as_shape(3, jnp.zeros(2)), as_shape((2, 3), jnp.zeros(2))
        ((3,), (2, 3))
        >>> as_shape(2.5, jnp.zeros(2))
        Traceback (most recent call last):
            ...
        ValueError: shape must be a number of samples or a tuple of such numbers, got 2.5.
    """
    sizes = tuple(as_whole(n) for n in (shape if isinstance(shape, tuple | list) else (shape,)))
    if not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise ValueError(f"shape must be a number of samples or a tuple of such numbers, got {shape!r}.")
    if max(sizes, default=0) > MOST:
        raise ValueError(f"shape must hold at most {MOST}, got {shown(shape)}; take fewer samples at a time.")
    what = f"shape={shape} asks for so many samples that an array"
    check_memory(what, (4, *sizes, *each.shape), each.dtype, "take fewer at a time")
    return sizes


def refuse_variances_alone(correlated: bool, method: str) -> None:
    """Raise a ValueError if correlated outputs are to be sampled although only their variances are known."""
    if correlated:
        raise ValueError(
            "the outputs are correlated, but only their variances were computed; to sample them use "
            f"{method}(X, output_cov=True)."
        )


def sample_mixture(
    mean: Float[Array, "S N F"], cov: Float[Array, "S N F ..."], key: Array, shape: tuple[int, ...]
) -> Float[Array, "*shape N F"]:
    """Values of f, independently for each input, from a mixture of S Gaussians.

    Args:
        mean: the means of the components [S, N, F].
        cov: their variances [S, N, F] or covariances [S, N, F, F].
        key: a random key.
        shape: the shape of the samples.

    Returns:
        Samples [*shape, N, F].
    """
    S, N, F = mean.shape
    pick, noise = jax.random.split(key)
    s = jax.random.randint(pick, (*shape, N), 0, S)
    n = jnp.broadcast_to(jnp.arange(N), s.shape)
    z = jax.random.normal(noise, (*shape, N, F), mean.dtype)
    if cov.ndim == mean.ndim:
        return mean[s, n] + safe_sqrt(cov[s, n]) * z

    def one(item):  # one input at a time, to bound the memory that roots for all samples take
        cov, s, z = item
        roots = jax.vmap(sampling_root)(cov)
        return z @ roots[0].T if S == 1 else jnp.einsum("...fg,...g->...f", roots[s], z)

    deviations = jax.lax.map(one, (jnp.swapaxes(cov, 0, 1), jnp.moveaxis(s, -1, 0), jnp.moveaxis(z, -2, 0)))
    return mean[s, n] + jnp.moveaxis(deviations, 0, -2)


def sampling_root(cov: Float[Array, "F F"]) -> Float[Array, "F F"]:
    """A root of a covariance that may be singular or zero, up to a jitter that is negligible in samples."""
    diagonal = jnp.diagonal(cov)
    lift = jnp.maximum(diagonal, float(jnp.finfo(cov.dtype).tiny) ** 0.5) - diagonal
    return Dense(cov + jnp.diag(lift), default_jitter(cov.dtype)).root
