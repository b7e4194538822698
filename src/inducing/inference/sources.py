"""Samples of f for which the stack of a model is run again, so that all of them are independent."""

import math
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.data import Data
from inducing.inference.blocks import joint_moments, moments
from inducing.likelihoods.sampling import sample_mixture, sampling_root

if TYPE_CHECKING:
    from inducing.model import Model


class Stack(eqx.Module):
    """A model whose inner layers are sampled, and where.

    Args:
        model: the model.
        data: the rows, with inputs [N, D]; with labels, latent variables come from q(h | data).
        key: the random key for the samples of inner layers, or None for `jax.random.key(0)`.
        samples: the number of samples of the inner layers; None for the default.
    """

    model: "Model"
    data: Data
    key: Array | None
    samples: int | None = eqx.field(static=True)


class Marginals(eqx.Module):
    """Draws f at each row of data by itself.

    Args:
        model: the model.
        data: the rows, with inputs [N, D].
        correlated: whether f is drawn jointly over its outputs.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model([ig.LatentVariable(1), ig.Deterministic(jnp.tanh)], ig.likelihoods.Gaussian())
        >>> f = Marginals(model, ig.Data(jnp.zeros((2, 0))), False)
        >>> f(jax.random.key(0), (3,)).shape
        (3, 2, 1)
    """

    model: "Model"
    data: Data
    correlated: bool = eqx.field(static=True)

    def __call__(self, key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
        num = math.prod(shape)
        rows = jax.tree.map(lambda a: jnp.tile(a, (max(num, 1),) + (1,) * (a.ndim - 1)), self.data)
        inner, last = jax.random.split(key)
        mean, cov = moments(self.model, rows, inner, 1, self.correlated, shared=False)
        f = sample_mixture(mean, cov, last, ())
        return f.reshape(max(num, 1), -1, f.shape[-1])[:num].reshape(*shape, self.data.index.shape[0], f.shape[-1])


class Joint(eqx.Module):
    """Draws f jointly at all rows of data.

    Args:
        model: the model.
        data: the rows, with inputs [N, D].

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model([ig.LatentVariable(1), ig.BayesianDense(1, 2)], ig.likelihoods.Gaussian())
        >>> Joint(model, ig.Data(jnp.zeros((2, 0))))(jax.random.key(0), (3,)).shape
        (3, 2, 2)
    """

    model: "Model"
    data: Data

    def __call__(self, key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
        num = math.prod(shape)
        keys = jax.random.split(key, max(num, 1))

        def one(key: Array) -> Array:
            inner, last = jax.random.split(key)
            mean, cov = joint_moments(self.model, self.data, inner, 1)
            noise = jax.random.normal(last, cov.shape[1:2], mean.dtype)
            return mean[0] + (sampling_root(cov[0]) @ noise).reshape(mean.shape[1:])

        f = jax.lax.map(one, keys)
        return f[:num].reshape(*shape, *f.shape[1:])
