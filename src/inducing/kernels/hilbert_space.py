"""Reduced-rank kernels from Laplacian eigenfunctions on a box (Solin & Särkkä 2020; Riutort-Mayol et al. 2022)."""

import itertools
import math
import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.declared import shown
from inducing.kernels.base import AbstractKernel, FeatureMap, as_points, symmetric
from inducing.kernels.forms import Box, LaplacianBasis
from inducing.kernels.stationary import AbstractStationary

MOST = 5000


def as_box(box: Any) -> Box:
    """A box as pairs (low, high), one for each dimension; a single pair is a box of one dimension.

    >>> as_box((0, 1))
    ((0.0, 1.0),)
    """
    try:
        box = np.atleast_2d(np.asarray(box, float))
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"box must be pairs of numbers (low, high), one for each dimension, got {shown(box)}."
        ) from None
    if box.ndim != 2 or box.shape[1] != 2:
        raise ValueError(f"box must be pairs (low, high), one for each dimension, got shape {list(box.shape)}.")
    for d, (low, high) in enumerate(box):
        if not 0 < high - low < math.inf:
            raise ValueError(f"box must have low < high, both finite, got ({low}, {high}) in dimension {d}.")
    return tuple((float(low), float(high)) for low, high in box)


def as_counts(num: Any, box: Box) -> tuple[int, ...]:
    """The number of eigenfunctions in each dimension of the box; a single number applies to all dimensions."""
    try:
        counts = (operator.index(num),) * len(box) if np.ndim(num) == 0 else tuple(operator.index(n) for n in num)
    except (TypeError, ValueError):  # ValueError: rows of different lengths
        counts = ()
    if len(counts) != len(box) or min(counts) < 1:
        raise ValueError(
            f"num must be a whole number from 1, or one for each of the {len(box)} dimensions, got {num!r}."
        )
    if math.prod(counts) > MOST:
        raise ValueError(
            f"num has {' × '.join(str(n) for n in counts)} = {math.prod(counts)} eigenfunctions, more than {MOST}; use "
            "fewer in each dimension, or features.InducingPoints."
        )
    return counts


def indices(num: tuple[int, ...]) -> np.ndarray:
    """All combinations (j_1, …, j_D) with j_d = 1, …, num_d, the first index varying slowest: [J, D].

    >>> indices((1, 2)).tolist()
    [[1, 1], [1, 2]]
    """
    return np.array(list(itertools.product(*[range(1, n + 1) for n in num])))


def eigenfunctions(box: Box, num: tuple[int, ...], X: Float[Array, "N D"]) -> Float[Array, "N J"]:
    """The eigenfunctions of the Laplacian that vanish on the faces of the box; they are orthonormal.

        φ_j(x) = Π_d (2/L_d)^½ sin(π j_d (x_d − low_d)/L_d),    L_d = high_d − low_d

    >>> eigenfunctions(((0.0, 2.0),), (1,), jnp.ones((1, 1))).tolist()
    [[1.0]]
    """
    if X.shape[1] != len(box):
        raise ValueError(f"the box has {len(box)} dimensions but the inputs have {X.shape[1]} columns.")
    out = jnp.ones((X.shape[0], 1), X.dtype)
    for d, ((low, high), n) in enumerate(zip(box, num, strict=True)):
        j = jnp.arange(1, n + 1, dtype=X.dtype)
        angle = (math.pi / (high - low)) * (X[:, d][:, None] - low) * j[None, :]
        waves = math.sqrt(2.0 / (high - low)) * jnp.sin(angle)
        out = (out[:, :, None] * waves[:, None, :]).reshape(X.shape[0], out.shape[1] * n)
    return out


def frequencies(box: Box, num: tuple[int, ...], dtype: Any) -> Float[Array, "J D"]:
    """The frequencies ω_j = π (j_1/L_1, …, j_D/L_D), whose squared lengths are the eigenvalues of the Laplacian."""
    lengths = np.array([high - low for low, high in box])
    return jnp.asarray(math.pi * indices(num) / lengths[None, :], dtype)


class HilbertSpace(AbstractKernel):
    """Hilbert-space approximation of a stationary kernel, a kernel of finite rank J.

        k(x, y) = Σ_j S(√λ_j) φ_j(x) φ_j(y)

    φ_j and λ_j are the eigenfunctions and eigenvalues of the Laplacian that vanish on the faces of a box, and S is the
    spectral density of the stationary kernel. Inside the box, k approaches the stationary kernel if the box extends
    beyond the data by at least a lengthscale and `num` is large enough. It is a valid kernel in any case, and
    `features.EigenLaplacian` is exact for it, with a diagonal Kuu and a cost of O(N J²).

    Args:
        kernel: a stationary kernel with a spectral density.
        box: pairs (low, high), one for each input dimension; a single pair is one dimension.
        num: the number of eigenfunctions in each dimension, one number for all dimensions or one for each.

    Raises:
        TypeError: if the kernel is not stationary or has no spectral density.
        ValueError: if the box is empty, or if `num` does not fit it or exceeds 5000 eigenfunctions in total.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.HilbertSpace(ig.kernels.Matern52(lengthscale=0.5), box=(-3.0, 3.0), num=32)
        >>> abs(float(k(jnp.zeros(1), jnp.ones(1)) - k.kernel(jnp.zeros(1), jnp.ones(1)))) < 1e-3
        True
    """

    kernel: AbstractStationary
    box: Box = eqx.field(static=True)
    num: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, kernel: AbstractStationary, box: Any, num: Any):
        self.kernel = kernel
        self.box = as_box(box)
        self.num = as_counts(num, self.box)

    def __check_init__(self):
        if not isinstance(self.kernel, AbstractStationary):
            raise TypeError(
                f"HilbertSpace needs a stationary kernel with a spectral density, not {type(self.kernel).__name__}; "
                "use SquaredExponential, Matern12, Matern32 or Matern52."
            )
        as_counts(self.num, as_box(self.box))
        jax.eval_shape(lambda: self.spectrum(self.kernel.variance.dtype))  # raises if there is no spectral density

    @property
    def smoothness(self) -> int | float:
        return math.inf

    def laplacian_basis(self) -> LaplacianBasis:
        return LaplacianBasis(self.box, self.num, self.kernel.spectral_density, self.kernel.variance.dtype)

    def spectrum(self, dtype: Any) -> Float[Array, " J"]:
        """The prior variances S(√λ_j) of the coefficients of φ_j.

        Args:
            dtype: the floating-point type in which to compute.

        Returns:
            The variances [J].
        """
        return self.kernel.spectral_density(frequencies(self.box, self.num, dtype))

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        return jnp.dot(self._scaled(x[None])[0], self._scaled(y[None])[0])

    def _scaled(self, X: Array) -> Float[Array, "N J"]:
        return eigenfunctions(self.box, self.num, X) * jnp.sqrt(self.spectrum(X.dtype))[None, :]

    def gram(self, X, X2=None):
        X, X2 = as_points(self, X, X2)
        A = self._scaled(X)
        return symmetric(A @ A.T) if X2 is None else A @ self._scaled(X2).T

    def diag(self, X):
        X, _ = as_points(self, X)
        return jnp.sum(self._scaled(X) ** 2, axis=1)

    def amplitude(self) -> list[tuple[Array, float]]:
        return self.kernel.amplitude()

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        return self._scaled
