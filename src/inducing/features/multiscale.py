"""Multiscale features of the squared exponential (Lázaro-Gredilla & Figueiras-Vidal 2009)."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures, as_inducing_inputs, check_columns, refuse
from inducing.features.quadrature_rules import at_nodes, gauss_hermite, gaussian_grid, tensor
from inducing.kernels.base import check_size
from inducing.linalg import Dense
from inducing.numerics.cubature import qmc_rule
from inducing.parameters import positive, real


class Multiscale(AbstractFeatures):
    """Gaussian averages of the function around M inputs, each with its own widths.

        u[m] = ∫ f(x) N(x | Z_m, diag s_m²) dx
        Kuf[m](x)  = σ² Π_d ℓ_d/√(ℓ_d² + s_md²)         exp(−½ (x_d − Z_md)²/(ℓ_d² + s_md²))
        Kuu[m, n]  = σ² Π_d ℓ_d/√(ℓ_d² + s_md² + s_nd²) exp(−½ (Z_md − Z_nd)²/(ℓ_d² + s_md² + s_nd²))

    for a squared exponential kernel. Wide features suit regions where f is smooth; narrow ones are inducing points.

    Draws, and means in coordinates "u", need `apply`. It uses an equidistant grid in one dimension (256 nodes per
    feature, for widths up to 20 ℓ) and two (64² nodes, 5 ℓ), Gauss–Hermite quadrature in three (16³ nodes, ℓ), and
    quasi-Monte Carlo beyond (4096 nodes, errors below 1e-3 of f's standard deviation for widths up to ℓ).

    Args:
        Z: the centres [M, D], which are trained.
        widths: s, the standard deviations of the averages [M, D], which are trained.

    Raises:
        ValueError: if Z and widths are not matrices of the same shape.

    Examples:
        >>> import inducing as ig
        >>> features = ig.features.Multiscale(Z=[[0.0], [1.0]], widths=[[0.1], [2.0]])
        >>> features.Kuu(ig.kernels.SquaredExponential(), 0.0).diagonal().round(4).tolist()      # (1 + 2s²)^−½
        [0.9901, 0.3333]
    """

    Z: Float[Array, "M D"] = real(converter=as_inducing_inputs)
    widths: Float[Array, "M D"] = positive()
    uses_kernel: ClassVar[bool] = False

    def __check_init__(self):
        if not eqx.is_array(self.Z) or not eqx.is_array(self.widths):
            return
        if self.Z.ndim != 2 or self.widths.shape != self.Z.shape:
            raise ValueError(
                f"Multiscale: Z and widths must both be [M, D], got {list(self.Z.shape)} and {list(self.widths.shape)}."
            )

    @property
    def locations(self) -> Float[Array, "M D"]:
        return self.Z

    @property
    def num_features(self) -> int:
        return self.Z.shape[0]

    def apply(self, f, kernel=None):
        M, D = self.Z.shape
        if D <= 3:
            x, w = tensor(*(gauss_hermite(16) if D == 3 else gaussian_grid((256, 64)[D - 1], 7.0)), D)
        else:
            x, w = qmc_rule(D, 4096)
        points = self.Z[:, None, :] + self.widths[:, None, :] * jnp.asarray(x, self.Z.dtype)[None]
        values = at_nodes(f, points.reshape(-1, D))
        return jnp.tensordot(jnp.asarray(w, self.Z.dtype), values.reshape(M, w.shape[0], *values.shape[1:]), (0, 1))

    def Kuu(self, kernel, jitter):
        s2 = self.widths**2
        return Dense(self._smoothed(kernel, self.Z, s2[:, None, :] + s2[None, :, :]), jitter)

    def Kuf(self, kernel, X):
        check_columns(self, X, self.Z.shape[1])
        return self._smoothed(kernel, X, (self.widths**2)[:, None, :])

    def _smoothed(self, kernel, X: Float[Array, "N D"], s2: Float[Array, "M n D"]) -> Float[Array, "M N"]:
        form = kernel.gaussian_form()
        if form is None:
            refuse(
                self,
                kernel,
                "a SquaredExponential kernel",
                "for others use features.Integral or InducingPoints",
            )
        check_size(kernel, "lengthscale", form.lengthscale, self.Z.shape[1])
        l2 = jnp.broadcast_to(form.lengthscale, self.Z.shape[1:]) ** 2
        total = l2[None, None, :] + s2
        difference = self.Z[:, None, :] - X[None, :, :]
        exponent = jnp.sum(difference**2 / total + jnp.log(total / l2[None, None, :]), axis=-1)
        return form.variance * jnp.exp(-0.5 * exponent)
