"""The scalar Gaussian process."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from inducing.kernels.base import AbstractKernel
from inducing.means import AbstractMean, as_mean
from inducing.parameters import dtype_of
from inducing.priors.base import AbstractPrior
from inducing.priors.latents import Parts, mapped, mean_of_sum


class GP(AbstractPrior):
    """A scalar Gaussian process: eq:def_gp.

        f ~ GP(μ, k)

    `prior.mean(X)` is [N, 1], `prior.covariance(X)` is [N, N], and `prior.condition(X, y, noise_variance)` is the exact
    posterior, an `ig.priors.ExactGP`.

    Args:
        kernel: k, one of `ig.kernels`.
        mean: μ, one of `ig.means` or a number; zero if None.

    Raises:
        TypeError: if `kernel` is not a kernel or `mean` is not a mean.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> prior = ig.GP(ig.kernels.Matern52(lengthscale=0.5, variance=2.0), mean=1.0)
        >>> X = jnp.array([[0.0], [9.0]])
        >>> prior.mean(X).tolist(), prior.covariance(X).round(6).tolist()
        ([[1.0], [1.0]], [[2.0, 0.0], [0.0, 2.0]])
    """

    kernel: AbstractKernel
    mean_function: AbstractMean
    num_latents = 1
    num_outputs = 1
    num_sites = 1
    mixing = None

    def __init__(self, kernel: AbstractKernel, mean: Any = None):
        self.kernel = kernel
        self.mean_function = as_mean(mean)

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return (self.kernel,)

    @property
    def smoothness(self) -> int | float:
        return self.kernel.smoothness

    def has_derivative(self, columns, dim=None):
        return self.kernel.has_derivative(columns, dim)

    @property
    def shared_kernel(self) -> AbstractKernel:
        return self.kernel

    def mean_functions(self):
        return ((None, self.mean_function),)

    def input_columns(self, latent: int) -> int:
        return latent

    def mean(self, X):
        return column(self.mean_function(X))

    def mu_u(self, features):
        if self.mean_function.is_zero:  # saves the quadrature of features that are defined by one
            return jnp.zeros((1, features.num_features), dtype_of(self, features))
        mean = mean_of_sum(lambda Z: column(self.mean_function(Z)), self.kernels)
        return features.apply(mean, self.kernel).T

    def Kuu(self, features, jitter):
        return jax.tree.map(lambda a: a[None], features.Kuu(self.kernel, jitter))

    def Kuf(self, features, X):
        return features.Kuf(self.kernel, X)[None, :, :, None]

    def Kff(self, X, X2=None):
        return self.kernel.gram(X, X2)[None, :, None, :, None]

    def Kff_diag(self, X):
        return self.kernel.diag(X)[None, :, None]

    def draw_latents(self, key, num, dim):
        g = draw_kernel(self.kernel, key, num, dim)
        return mapped(g, lambda values: values[:, None]), lambda X: g(X)[:, None, None]


def column(values: Array) -> Array:
    """Return values [N] or [N, 1] as [N, 1]; raise a ValueError if there are more columns."""
    out = values[:, None] if values.ndim == 1 else values
    if out.shape[1] != 1:
        raise ValueError(
            f"the mean of a scalar GP gave {out.shape[1]} columns; give a multi-output mean to the prior that maps the "
            "latents, as in ig.priors.Independent(..., mean=ig.means.Identity())."
        )
    return out


def draw_kernel(kernel: AbstractKernel, key: Array, num: int, dim: int) -> Callable[[Array], Array]:
    """A zero-mean function [n, D] → [n] from a kernel's random features φ: f(x) = φ(x)·ε, ε ~ N(0, I).

    A draw for a sum of kernels is a `Parts`, which knows the draws of the terms.
    """
    terms = kernel.terms()
    if terms[0] is not kernel:  # a sum
        keys = jax.random.split(key, len(terms))
        return Parts([draw_kernel(k, own, num, dim) for k, own in zip(terms, keys, strict=True)])
    key_features, key_weights = jax.random.split(key)
    features = kernel.random_features(key_features, num, dim)
    out = jax.eval_shape(features, jax.ShapeDtypeStruct((1, dim), dtype_of(kernel)))
    weights = jax.random.normal(key_weights, (out.shape[1],), out.dtype)
    return lambda X: features(X) @ weights
