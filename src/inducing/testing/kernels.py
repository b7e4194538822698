"""Contract checks of kernels."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled
from inducing.kernels.base import AbstractKernel
from inducing.testing.contract import (
    ERRORS,
    as_points,
    attempt,
    check_part,
    check_starts,
    check_units,
    default_points,
    refused,
    require,
    require_close,
    require_covariance,
    require_finite_gradients,
    require_float32,
    require_own_arrays,
    require_shape,
    weighted,
)


def check_kernel(kernel: AbstractKernel, X: Any = None) -> None:
    """Check that a kernel keeps the contract of `ig.kernels.AbstractKernel`.

    `gram` agrees with the values at single points and with `diag`, is symmetric and positive semi-definite; gradients
    are finite, also where inputs coincide; random features reproduce the kernel or are refused; the process is as
    smooth as the kernel claims; `amplitude`, `start` and `units` name arrays of the kernel and do what they say.

    Args:
        kernel: the kernel to check.
        X: inputs [N, D] that the kernel accepts, at least three rows. By default, six points in two dimensions.

    Raises:
        AssertionError: if the kernel breaks the contract.

    Examples:
        >>> import inducing as ig
        >>> ig.testing.check_kernel(ig.kernels.Matern52(lengthscale=0.5))
    """
    check_part(kernel, AbstractKernel)
    X = as_points(kernel, default_points(2) if X is None else X)
    X = jnp.concatenate([X, X[:1]])  # coincident points
    attempt(kernel, "check_inputs must accept X", kernel.check_inputs, np.asarray(X))
    Z = X[::-1][:4]
    cross, gram, diag, single = attempt(
        kernel, "gram, diag and single values must run under jit", _kernel_values, kernel, X, Z
    )
    require_shape(kernel, "gram(X, X2)", cross, (len(X), len(Z)))
    require_shape(kernel, "gram(X)", gram, (len(X), len(X)))
    require_shape(kernel, "diag(X)", diag, (len(X),))
    require_close(kernel, "gram(X, X2) must hold the kernel's values k(x, y)", cross, single)
    require_close(kernel, "gram(X) must equal gram(X, X)", gram[:, -4:], cross[:, ::-1], 1e-6)
    require_close(kernel, "diag(X) must be the diagonal of gram(X)", diag, jnp.diagonal(gram))
    require_covariance(kernel, "gram(X)", gram)
    require_finite_gradients(
        kernel, "gradients of gram and diag, also at coincident inputs,", _kernel_gradients, kernel, X, Z
    )
    require_float32(kernel, "gram(X, X2), gram(X) and diag(X)", _kernel_values, kernel, X, Z)
    _check_random_features(kernel, X, gram)
    _check_smoothness(kernel, X)
    _check_amplitude(kernel, X, Z, gram)
    check_starts(kernel, "start", kernel.start(np.asarray(X)), kernel)
    check_units(kernel, kernel.units(np.asarray(X)))


def _kernel_values(kernel: AbstractKernel, X: Array, Z: Array) -> tuple[Array, ...]:
    single = jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(Z))(X)
    return kernel.gram(X, Z), kernel.gram(X), kernel.diag(X), single


def _kernel_gradients(kernel: AbstractKernel, X: Array, Z: Array) -> Any:
    def total(arguments: Any) -> Array:
        k, X, Z = arguments
        return weighted((k.gram(X, Z), k.gram(X), k.diag(X)))

    return eqx.filter_grad(total)((kernel, X, Z))


def _check_random_features(kernel: AbstractKernel, X: Array, gram: Array) -> None:
    keys = jax.random.split(jax.random.key(0), 16)
    if refused(_feature_products, kernel, X, keys, 256):
        return  # a kernel may have none
    each = attempt(kernel, "random_features must run under jit and vmap", _feature_products, kernel, X, keys, 256)
    contract = "random_features φ must satisfy E φ(x)·φ(y) = k(x, y)"
    require_close(kernel, contract, np.mean(each, axis=0), gram, 2e-3, ERRORS * np.std(each, axis=0) / 4)


def _feature_products(kernel: AbstractKernel, X: Array, keys: Array, num: int) -> Array:
    def one(key: Array) -> Array:
        phi = kernel.random_features(key, num, X.shape[1])(X)
        return phi @ phi.T

    return jax.vmap(one)(keys)


def _check_smoothness(kernel: AbstractKernel, X: Array) -> None:
    """The variance of n-th differences with step h must fall like h²ⁿ if there are n derivatives in mean square."""
    columns = range(X.shape[1])
    claims = [kernel.smoothness, *(kernel.smoothness_along(c) for c in columns)]
    require(all(c >= 0 for c in claims), kernel, "smoothness must be a number from 0", f"it is {claims[0]!r}")
    if X.dtype != np.float64:  # differences cancel too much in float32
        return
    h = 0.1 * 0.5 ** jnp.arange(24, dtype=X.dtype)
    K = np.asarray(compiled(_increments, True)(kernel, X[0], h))  # [D, steps, 3, 3]
    for column in columns:
        for order in range(1, 1 + int(min(claims[1 + column], 2))):
            c = np.array([-1.0, 1.0, 0.0]) if order == 1 else np.array([1.0, -2.0, 1.0])
            v = np.einsum("i,sij,j->s", c, K[column], c)
            informative = np.flatnonzero(v[1:] > 1e-9 * np.abs(K[column]).max())  # others are rounding errors
            if informative.size == 0:
                continue
            ratio = v[informative[-1]] / v[informative[-1] + 1]
            found = f"halving the step divides the variance of differences of order {order} by {ratio:.1f} only"
            claim = f"smoothness {claims[1 + column]} along column {column} must be true"
            require(ratio > 4**order / math.sqrt(2), kernel, claim, f"{found} ({4**order} for {order} derivatives)")


def _increments(kernel: AbstractKernel, x: Array, h: Array) -> Array:
    def one(direction: Array, step: Array) -> Array:
        points = x[None] + step * jnp.arange(3, dtype=x.dtype)[:, None] * direction[None]
        return jax.vmap(lambda a: jax.vmap(lambda b: kernel(a, b))(points))(points)

    return jax.vmap(lambda d: jax.vmap(lambda s: one(d, s))(h))(jnp.eye(len(x), dtype=x.dtype))


def _check_amplitude(kernel: AbstractKernel, X: Array, Z: Array, gram: Array) -> None:
    named = kernel.amplitude()
    require_own_arrays(kernel, "amplitude", [leaf for leaf, _ in named], kernel)
    if named:
        powers = {id(leaf): power for leaf, power in named}
        scaled = jax.tree.map(lambda v: v * 3.0 ** powers[id(v)] if id(v) in powers else v, kernel)
        contract = "multiplying the parameters of amplitude() by cᵖ must multiply the kernel by c"
        require_close(kernel, contract, compiled(_kernel_values, True)(scaled, X, Z)[1], 3.0 * gram, 1e-6)
