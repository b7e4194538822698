"""What an inducing feature is: a linear functional of f (section 2.3)."""

import abc
from collections.abc import Callable

from jaxtyping import Array, Float

from ..covariance import AbstractCovariance, Dense
from ..kernels.base import AbstractKernel
from ..parameters import Module


class AbstractFeatures(Module):
    """M linear functionals of a scalar function: u = apply(f).

    Everything else follows: μ_u = apply(μ), Kuf(x) = apply(k(·, x)), Kuu = apply(x ↦ Kuf(x)ᵀ); a kind of
    feature gives Kuu and Kuf in closed form where there is one, and else by `general_Kuu` and `general_Kuf`.
    """

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """M."""

    @abc.abstractmethod
    def apply(self, f: Callable[[Float[Array, "n D"]], Array]) -> Array:
        """u [M, …] of a function f: [n, D] → [n, …]."""

    @abc.abstractmethod
    def Kuu(self, kernel: AbstractKernel, jitter: float) -> AbstractCovariance:
        """Cov(u, u) [M, M], with its structure."""

    @abc.abstractmethod
    def Kuf(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
        """Cov(u, f(X))."""


def general_Kuf(features: AbstractFeatures, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "M N"]:
    """Kuf by its definition, apply to k(·, X): eq:sfu:i_id."""
    return features.apply(lambda Z: kernel.gram(Z, X))


def general_Kuu(features: AbstractFeatures, kernel: AbstractKernel, jitter: float) -> Dense:
    """Kuu by its definition, apply to both arguments of the kernel: eq:suuij_id."""
    K = features.apply(lambda Z: features.Kuf(kernel, Z).T)
    return Dense(0.5 * (K + K.T), jitter)
