"""Contract checks of inducing features."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing.features.base import AbstractFeatures, general_Kuf, general_Kuu
from inducing.kernels.base import AbstractKernel
from inducing.testing.contract import (
    as_points,
    attempt,
    check_part,
    default_points,
    fail,
    require,
    require_close,
    require_covariance,
    require_finite_gradients,
    require_float32,
    require_shape,
    weighted,
)


def check_features(
    features: AbstractFeatures, kernel: AbstractKernel, X: Any = None, *, definition: bool = True, error: float = 1e-2
) -> None:
    """Check that inducing features keep the contract of `ig.features.AbstractFeatures` with a kernel.

    `apply` is linear; Kuf and Kuu are what `apply` makes of the kernel; the joint covariance of u and f(X) is positive
    semi-definite; features that are values of f are those at their `locations`; gradients are finite.

    Args:
        features: the features to check.
        kernel: a kernel that they can be used with.
        X: inputs [N, D]. By default, six points between −1 and 1 in `features.num_inputs` dimensions (1 if unknown).
        definition: whether to compare Kuf and Kuu with what `apply` gives. Pass False if `apply` takes only functions
            of a special form, as that of `ig.features.Additive` does.
        error: how accurate `apply` is, relative to the standard deviations, where it is a quadrature rule (that is,
            where the class attribute `exact` is False).

    Raises:
        AssertionError: if the features break the contract.

    Examples:
        >>> import inducing as ig
        >>> ig.testing.check_features(ig.features.InducingPoints([[0.0], [1.0]]), ig.kernels.Matern32())
    """
    check_part(features, AbstractFeatures)
    X = as_points(features, 0.7 * jnp.tanh(default_points(features.num_inputs or 1)) if X is None else X)
    attempt(features, "check_inputs must accept the kernel", features.check_inputs, kernel)
    M = features.num_features
    require(isinstance(M, int) and M > 0, features, "num_features must be a whole number from 1", f"it is {M!r}")
    contract = "Kuf and Kuu must be computed under jit"
    Kuf, Kuu = attempt(features, contract, _feature_covariances, features, kernel, X)
    require_shape(features, "Kuf(kernel, X)", Kuf, (M, len(X)))
    require_shape(features, "Kuu(kernel, 0)", Kuu, (M, M))
    require_covariance(features, "Kuu(kernel, 0)", Kuu)
    Kff = kernel.gram(X)
    joint = np.block([[Kuu, Kuf], [np.transpose(Kuf), Kff]])
    require_covariance(features, "the joint covariance of u and f(X), made of Kuu, Kuf and the kernel,", joint)
    if definition:
        _check_definition(features, kernel, X, (Kuf, Kuu, Kff), error)
    _check_locations(features, X)
    require_finite_gradients(features, "gradients of Kuf and Kuu", _feature_gradients, features, kernel, X)
    require_float32(features, "Kuf and Kuu", _feature_covariances, features, kernel, X)


def _check_definition(features: AbstractFeatures, kernel: AbstractKernel, X: Array, given: tuple, error: float) -> None:
    Kuf, Kuu, Kff = (np.asarray(v) for v in given)
    values = attempt(features, "apply must run under jit", _applied, features, kernel, X)
    general_uf, general_uu, both, apart = (np.asarray(v) for v in values)
    require_shape(features, "apply(f) of f: [n, D] → [n, 2]", both, (features.num_features, 2))
    require_close(features, "apply must be linear in f", both, apart, 1e-6)
    scale, deviation = (np.sqrt(np.abs(np.diagonal(K))) for K in (Kuu, Kff))
    error = max(1e-6 if features.exact else error, 30 * float(jnp.finfo(X.dtype).eps) ** 0.5)
    require_close(
        features,
        "Kuf must be apply to k(·, X) (general_Kuf)",
        Kuf,
        general_uf,
        slack=error * np.outer(scale, deviation),
    )
    contract = "Kuu must be apply to both arguments of the kernel (general_Kuu)"
    require_close(features, contract, Kuu, general_uu, slack=error * np.outer(scale, scale))


def _feature_covariances(features: AbstractFeatures, kernel: AbstractKernel, X: Array) -> tuple[Array, Array]:
    return features.Kuf(kernel, X), features.Kuu(kernel, 0.0).dense()


def _smooth(X: Array) -> Array:
    s = jnp.sum(X, axis=-1)
    return jnp.stack([jnp.cos(s), jnp.exp(-0.5 * s * s)], axis=-1)


def _applied(features: AbstractFeatures, kernel: AbstractKernel, X: Array) -> tuple[Array, ...]:
    parts = features.apply(_smooth, kernel)
    mixed = features.apply(lambda X: _smooth(X) + 2.0 * _smooth(X)[:, ::-1], kernel)
    general = general_Kuf(features, kernel, X), general_Kuu(features, kernel, 0.0).dense()
    return *general, mixed, parts + 2.0 * parts[:, ::-1]


def _feature_gradients(features: AbstractFeatures, kernel: AbstractKernel, X: Array) -> Any:
    return eqx.filter_grad(lambda three: weighted(_feature_covariances(*three)))((features, kernel, X))


def _check_locations(features: AbstractFeatures, X: Array) -> None:
    Z = features.locations
    if features.are_values and Z is None:
        fail(features, "are_values says that u = f(locations)", "locations is None")
    if Z is None:
        return
    require_shape(features, "locations", Z, (len(Z), X.shape[1]))
    if features.are_values:
        require_shape(features, "locations of features that are values", Z, (features.num_features, X.shape[1]))
        require_close(
            features, "are_values says that apply(f) = f(locations)", features.apply(_smooth, None), _smooth(Z)
        )
