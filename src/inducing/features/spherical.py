"""Spherical harmonics, the eigenfeatures of zonal kernels (Dutordoir, Durrande & Hensman 2020)."""

import functools
import math
from typing import Any, SupportsIndex

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.declared import shown
from inducing.features.base import AbstractFeatures, check_columns, refuse
from inducing.features.quadrature_rules import gauss_legendre
from inducing.kernels.hilbert_space import MOST
from inducing.kernels.zonal import AbstractZonal
from inducing.linalg import Diagonal
from inducing.numerics.cubature import qmc_rule
from inducing.parameters import as_whole, one_or_several


class SphericalHarmonics(AbstractFeatures):
    """Integrals over directions against spherical harmonics Y_ℓk.

        u[ℓk] = ∫ f(x̂/w) Y_ℓk(x̂) dx̂ over the unit sphere (of area one),   w the kernel's `scale`
        Kuf[ℓk](x) = a_ℓ |wx|ⁿ Y_ℓk(x̂),    Kuu = diag(a_ℓ),    a_ℓ = ∫ g(θ) P_ℓ(cos θ) dθ̂   (Funk–Hecke)

    They are for zonal kernels: `Spherical` and `SphericalArcCosine`. To use them for data in ℝᵈ, map these to the
    sphere in dim = d + 1 columns with `kernels.with_bias`.

    Draws, and means in coordinates "u", need `apply`. It uses a product rule up to 4 columns, with errors below 1e-4 of
    f's standard deviation, and quasi-Monte Carlo with 16384 directions beyond, with errors below 1e-2.

    Args:
        dim: the number of columns, including the bias, from 2 to 9.
        degrees: the degrees ℓ, as a sequence of integers, or the highest one. The kernel of rectified linear units
            (order 1) has a_ℓ = 0 for odd ℓ ≥ 3, so use [0, 1, 2, 4, …] for it.

    Raises:
        ValueError: if `dim` or `degrees` are out of range, or if there are more than 5000 features.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> features = ig.features.SphericalHarmonics(dim=3, degrees=4)
        >>> k = ig.kernels.Spherical(ig.kernels.Matern52())
        >>> features.num_features, features.Kuf(k, ig.kernels.with_bias(jnp.zeros((5, 2)))).shape
        (25, (25, 5))
    """

    dim: int = eqx.field(static=True)
    degrees: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, dim: SupportsIndex, degrees: Any):
        self.dim = as_whole(dim)
        most = as_whole(degrees)
        if isinstance(most, int):
            degrees = range(min(most, MOST) + 1)  # refused below if there are more
        self.degrees = tuple(as_whole(d) for d in one_or_several(degrees))

    def __check_init__(self):
        if not 2 <= self.dim <= 9:
            raise ValueError(f"SphericalHarmonics.dim must be from 2 to 9 (columns, with the bias), got {self.dim!r}.")
        if not self.degrees or min(self.degrees) < 0 or len(set(self.degrees)) < len(self.degrees):
            raise ValueError(
                f"SphericalHarmonics.degrees must be different whole numbers from 0, got {shown(self.degrees)}."
            )
        if max(self.degrees) > MOST or self.num_features > MOST:
            raise ValueError(
                f"SphericalHarmonics of degrees up to {max(self.degrees)} in {self.dim} columns are too many "
                f"features, more than {MOST}; use lower degrees."
            )

    @property
    def num_features(self) -> int:
        return sum(count(self.dim, degree) for degree in self.degrees)

    @property
    def num_inputs(self) -> int:
        return self.dim

    def spectrum(self, kernel: Any) -> Float[Array, " M"]:
        """The eigenvalues of the kernel.

        Args:
            kernel: a zonal kernel.

        Returns:
            a_ℓ for each feature [M].

        Raises:
            TypeError: if the kernel is not zonal.
        """
        if not isinstance(kernel, AbstractZonal):
            refuse(
                self,
                kernel,
                "a kernel of directions",
                "use kernels.Spherical(kernels.Matern32()) or kernels.SphericalArcCosine(1) on kernels.with_bias(X)",
            )
        t, w = gauss_legendre(16, max(self.degrees) // 2 + 8)
        theta = math.pi * t**3  # most nodes at small angles, where g is concentrated if lengthscales are short
        weights = w * t**2 * np.sin(theta) ** (self.dim - 2)
        weights = weights / weights.sum()  # the distribution of the angle between two random directions
        P = legendre(self.dim, max(self.degrees), np.cos(theta))[np.array(self.degrees)]
        g = kernel.angular(jnp.asarray(4.0 * np.sin(0.5 * theta) ** 2, kernel.scale.dtype))
        a = jnp.asarray(P * weights[None, :], g.dtype) @ g
        floor = jnp.finfo(g.dtype).eps * jnp.max(a)
        return jnp.repeat(jnp.maximum(a, floor), np.array([count(self.dim, d) for d in self.degrees]))

    def harmonics(self, U: Float[Array, "N E"]) -> Float[Array, "N M"]:
        """The spherical harmonics, which are orthonormal under the uniform distribution of directions.

        Args:
            U: unit vectors [N, dim].

        Returns:
            Y_ℓk at U [N, M].
        """
        return _harmonics(self.dim, self.degrees, U, lambda a: jnp.asarray(a, U.dtype), jnp)

    def apply(self, f, kernel=None):
        a = self.spectrum(kernel)
        assert isinstance(kernel, AbstractZonal)  # `spectrum` refuses others
        U, Y = _weighted_harmonics(self.dim, self.degrees)
        U = jnp.asarray(U, a.dtype)
        return jnp.tensordot(jnp.asarray(Y.T, a.dtype), f(U / jnp.broadcast_to(kernel.scale, U.shape)), 1)

    def Kuu(self, kernel, jitter):
        return Diagonal(self.spectrum(kernel))

    def Kuf(self, kernel, X):
        a = self.spectrum(kernel)
        check_columns(self, X, self.dim)
        U, radius = kernel.polar(X)
        return a[:, None] * (self.harmonics(U) * radius[:, None]).T


def count(dim: int, degree: int) -> int:
    """The number of spherical harmonics of a degree in ℝ^dim.

    >>> [count(3, d) for d in range(4)], [count(2, d) for d in range(3)]
    ([1, 3, 5, 7], [1, 2, 2])
    """
    if degree == 0:
        return 1
    return (2 * degree + dim - 2) * math.comb(degree + dim - 3, degree - 1) // degree


def legendre(dim: int, degree: int, t: Any) -> list | np.ndarray:
    """The Legendre (normalised Gegenbauer) polynomials P_0 … P_degree of ℝ^dim, P_ℓ(1) = 1.

    >>> legendre(3, 2, np.array([0.5]))[2].tolist()
    [-0.125]
    """
    P = [t * 0.0 + 1.0, t]
    for j in range(1, degree):
        P.append(((2 * j + dim - 2) * t * P[j] - j * P[j - 1]) / (j + dim - 2))
    return np.stack(P[: degree + 1]) if isinstance(t, np.ndarray) else P[: degree + 1]


@functools.cache
def fundamental_system(dim: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions V [K, dim] and L⁻¹, L Lᵀ = K P_ℓ(V Vᵀ): Y = L⁻¹ K P_ℓ(V x̂) is orthonormal (addition theorem).

    The directions are chosen one by one, each where the conditional variance of the harmonics is largest (pivoted
    Cholesky).
    """
    K = count(dim, degree)
    if degree == 0:
        return np.eye(dim)[:1], np.ones((1, 1))
    rng = np.random.default_rng(dim * 1000 + degree)
    pool = rng.normal(size=(max(20 * K, 500), dim))
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    rest, rows, chosen = np.full(len(pool), float(K)), np.zeros((K, len(pool))), []
    for i in range(K):
        best = int(np.argmax(rest))
        chosen.append(best)
        column = K * legendre(dim, degree, pool @ pool[best])[degree] - rows[:i].T @ rows[:i, best]
        rows[i] = column / math.sqrt(rest[best])
        rest = np.maximum(rest - rows[i] ** 2, 0.0)
    V = pool[chosen]
    L = np.linalg.cholesky(K * legendre(dim, degree, V @ V.T)[degree])
    return V, np.linalg.inv(L)


def _harmonics(dim: int, degrees: tuple[int, ...], U: Any, constant: Any, numpy: Any) -> Any:
    rows = []
    for degree in degrees:
        V, inverse = fundamental_system(dim, degree)
        zonal = legendre(dim, degree, U @ constant(V.T))[degree] * float(count(dim, degree))
        rows.append(zonal @ constant(inverse.T))
    return numpy.concatenate(rows, axis=1)


@functools.cache
def _weighted_harmonics(dim: int, degrees: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The directions of `sphere_rule`, and Y_ℓk there times the weights; in NumPy, so that XLA need not fold them."""
    U, w = sphere_rule(dim, max(degrees))
    return U, _harmonics(dim, degrees, U, np.asarray, np) * w[:, None]


@functools.cache
def sphere_rule(dim: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions and weights of integrals over the unit sphere (weights sum to one).

    Up to 4 columns this is a product rule in spherical coordinates; beyond, the directions come from a scrambled Sobol
    sequence and its mirror image.
    """
    if dim > 4:
        points, w = qmc_rule(dim, 16384)
        return points / np.linalg.norm(points, axis=1, keepdims=True), w
    n = {2: 1024, 3: 128, 4: 40}[dim] + 2 * degree
    phi = 2.0 * math.pi * (np.arange(n) + 0.5) / n
    U, w = np.stack([np.cos(phi), np.sin(phi)], 1), np.full(n, 1.0 / n)
    for d in range(3, dim + 1):
        t, wt = gauss_legendre(n // 2)
        theta = math.pi * t
        wt = wt * np.sin(theta) ** (d - 2)
        U = np.concatenate(
            [
                (np.sin(theta)[:, None, None] * U[None]).reshape(-1, d - 1),
                np.repeat(np.cos(theta), len(U))[:, None],
            ],
            1,
        )
        w = np.outer(wt / wt.sum(), w).reshape(-1)
    return U, w
