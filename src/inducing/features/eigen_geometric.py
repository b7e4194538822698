"""Features of kernels that are sums over eigenfunctions of a space: Kuu is diagonal on any of them."""

import equinox as eqx
import jax
import jax.numpy as jnp

from inducing.features.base import AbstractFeatures, refuse
from inducing.kernels.base import AbstractKernel
from inducing.kernels.forms import Expansion
from inducing.linalg import Diagonal
from inducing.parameters import as_whole


class EigenGeometric(AbstractFeatures):
    """Coefficients of the first M eigenfunctions of a space, for `kernels.Geometric`.

        u[j] = ∫ f(x) φ_j(x) dμ(x),    Kuf[j](x) = s_j φ_j(x),    Kuu = diag(s),    s_j = σ² S(λ_j)/c

    μ is the uniform distribution on the space. With all eigenfunctions of the kernel nothing is approximated.

    Draws, and means in coordinates "u", need `apply`, which solves for the coefficients of f in all eigenfunctions of
    the kernel at points of the space. This is exact for functions that they span, such as draws.

    Args:
        num: M.

    Raises:
        ValueError: if `num` is not a positive integer.

    Examples:
        >>> import inducing as ig
        >>> ig.features.EigenGeometric(16).num_features
        16
    """

    num: int = eqx.field(static=True, converter=as_whole)

    def __check_init__(self):
        if not isinstance(self.num, int) or self.num < 1:
            raise ValueError(f"EigenGeometric.num must be a whole number from 1, got {self.num!r}.")

    @property
    def num_features(self) -> int:
        return self.num

    def _expansion(self, kernel: AbstractKernel | None) -> Expansion:
        expansion = None if kernel is None else kernel.eigen_expansion()
        if expansion is None:
            refuse(self, kernel, "a sum over eigenfunctions", "use kernels.Geometric, or features.InducingPoints")
        if self.num > len(expansion.variances):
            most = len(expansion.variances)
            raise ValueError(f"EigenGeometric has {self.num} features, but the kernel only {most} eigenfunctions.")
        return expansion

    def apply(self, f, kernel=None):
        expansion = self._expansion(kernel)
        inverse = jnp.linalg.pinv(jax.lax.stop_gradient(expansion.functions(expansion.points)))
        return jnp.tensordot(inverse[: self.num], f(expansion.points), 1)

    def Kuu(self, kernel, jitter):
        return Diagonal(self._expansion(kernel).variances[: self.num])

    def Kuf(self, kernel, X):
        expansion = self._expansion(kernel)
        return expansion.variances[: self.num, None] * expansion.functions(X)[:, : self.num].T
