"""Inducing points: values of the function."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures, as_inducing_inputs, check_columns
from inducing.linalg import Dense
from inducing.parameters import real


class InducingPoints(AbstractFeatures):
    """Inducing points, the values of the function at M inputs (section 2.2; Dirac features in section 2.3).

        u[m] = f(Z_m),    Kuu[m, n] = k(Z_m, Z_n),    Kuf[m](x) = k(Z_m, x)

    Args:
        Z: the inducing inputs [M, D], which are trained.

    Raises:
        ValueError: if Z is not a matrix or has no rows.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> ig.features.InducingPoints([[0.0], [1.0]]).Kuf(ig.kernels.SquaredExponential(), jnp.zeros((3, 1))).shape
        (2, 3)
    """

    Z: Float[Array, "M D"] = real(converter=as_inducing_inputs)
    exact: ClassVar[bool] = True
    uses_kernel: ClassVar[bool] = False
    are_values = True

    def __check_init__(self):
        if not eqx.is_array(self.Z):
            return
        if self.Z.ndim != 2:
            raise ValueError(
                f"Z must be [M, D], one inducing input per row, got shape {tuple(self.Z.shape)}; for one dimension "
                "pass Z[:, None]."
            )
        if self.Z.shape[0] == 0:
            raise ValueError(f"Z has no rows, shape {tuple(self.Z.shape)}; pass at least one inducing input.")

    @property
    def locations(self) -> Float[Array, "M D"]:
        return self.Z

    @property
    def num_features(self) -> int:
        return self.Z.shape[0]

    def apply(self, f, kernel=None):
        return f(self.Z)

    def Kuu(self, kernel, jitter):
        return Dense(kernel.gram(self.Z), jitter)

    def Kuf(self, kernel, X):
        check_columns(self, X, self.Z.shape[1])
        return kernel.gram(self.Z, X)
