"""Eigenfeatures: integrals against eigenfunctions of the kernel, for which Kuu is diagonal (section 2.3)."""

import functools
import itertools
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla.lapack import eigh
from inducing.features.base import AbstractFeatures, check_columns, refuse
from inducing.features.quadrature_rules import at_nodes, gauss_hermite, gauss_legendre, tensor
from inducing.kernels.base import AbstractKernel, check_size
from inducing.kernels.forms import Box, GaussianForm, LaplacianBasis
from inducing.kernels.hilbert_space import as_box, as_counts, eigenfunctions, frequencies
from inducing.linalg import Diagonal
from inducing.numerics.cubature import qmc_rule
from inducing.parameters import as_whole, fixed


class EigenMercer(AbstractFeatures):
    """Eigenfeatures of the squared exponential for Gaussian inputs (Rasmussen & Williams 2006, eq. 4.39).

        u[m] = ∫ f(x) v_m(x) ρ(x) dx,   ρ = N(mean, diag std²),   Kuf[m](x) = λ_m v_m(x),   Kuu = diag(λ)

    In one dimension, with a = 1/(4 std²), b = 1/(2ℓ²), c = (a² + 2ab)^½, A = a + b + c and z = x − mean,

        λ_k = σ² (2a/A)^½ (b/A)ᵏ,    v_k(x) = (c/a)^¼ (2ᵏ k!)^−½ exp(−(c − a) z²) H_k((2c)^½ z)

    In several dimensions, eigenvalues and eigenfunctions are products of these. The multi-indices (k_1, …, k_D) are
    ordered by their sum, so the features for a smaller `num` are the first of those for a larger one.

    Draws, and means in coordinates "u", need `apply`. It uses Gauss–Hermite quadrature with about 8000 nodes up to 4
    dimensions, and quasi-Monte Carlo with 8192 nodes beyond, where errors are below 1e-2 of f's standard deviation.

    Args:
        num: M, the number of features.
        mean: the mean of the inputs [D], not trained.
        std: the standard deviation of the inputs [D], not trained.

    Raises:
        ValueError: if `num` is not a positive integer, or if `mean` and `std` are not vectors of equal length.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> features = ig.features.EigenMercer(8, mean=[0.0], std=[1.0])
        >>> Kuu = features.Kuu(ig.kernels.SquaredExponential(), 0.0)
        >>> type(Kuu).__name__, round(float(Kuu.diagonal().sum()), 2)      # all λ together: σ²
        ('Diagonal', 1.0)
    """

    num: int = eqx.field(static=True, converter=as_whole)
    mean: Float[Array, " D"] = fixed()
    std: Float[Array, " D"] = fixed()

    def __check_init__(self):
        if not isinstance(self.num, int) or self.num < 1:
            raise ValueError(f"EigenMercer.num must be a whole number of features from 1, got {self.num!r}.")
        if any(isinstance(v, jax.core.Tracer) or not eqx.is_array(v) for v in (self.mean, self.std)):
            return
        if self.mean.ndim != 1 or self.mean.shape != self.std.shape:
            raise ValueError(
                f"EigenMercer: mean and std must both be [D], got {list(self.mean.shape)} and {list(self.std.shape)}."
            )
        if not np.isfinite(self.mean).all():
            raise ValueError(f"EigenMercer.mean must be finite, got {self.mean}.")
        if not (np.isfinite(self.std) & (np.asarray(self.std) > 0)).all():
            raise ValueError(f"EigenMercer.std must be positive and finite, got {self.std}.")

    @property
    def num_features(self) -> int:
        return self.num

    @property
    def num_inputs(self) -> int:
        return self.mean.shape[0]

    def spectrum(self, kernel: AbstractKernel) -> Float[Array, " M"]:
        """The eigenvalues of the kernel.

        Args:
            kernel: a squared exponential kernel.

        Returns:
            λ [M].
        """
        form = self._form(kernel)
        a, b, c = self._constants(form)
        A = a + b + c
        k = jnp.asarray(_by_degree(self.num, self.mean.shape[0]), a.dtype)
        log = jnp.sum(0.5 * jnp.log(2.0 * a / A)[None, :] + k * jnp.log(b / A)[None, :], axis=1)
        smallest = math.log(float(jnp.finfo(a.dtype).tiny)) * 0.5  # far below rounding errors, but keeps Kuu invertible
        return form.variance * jnp.exp(jnp.maximum(log, smallest))

    def eigenfunctions(self, kernel: AbstractKernel, X: Float[Array, "N D"]) -> Float[Array, "N M"]:
        """The eigenfunctions of the kernel, which are orthonormal under ρ.

        Args:
            kernel: a squared exponential kernel.
            X: points [N, D].

        Returns:
            v(X) [N, M].
        """
        a, _, c = self._constants(self._form(kernel))
        check_columns(self, X, self.mean.shape[0])
        z = X - self.mean[None, :]
        return self._hermite(
            (c / a)[None, :] ** 0.25 * jnp.exp(-(c - a)[None, :] * z**2), jnp.sqrt(2.0 * c)[None, :] * z
        )

    def _hermite(self, first: Float[Array, "N D"], t: Float[Array, "N D"]) -> Float[Array, "N M"]:
        """Π_d first_d (2ᵏ k!)^−½ H_k(t_d), k = k_d of each feature's multi-index, by the recurrence of H_k."""
        k = _by_degree(self.num, self.mean.shape[0])
        j = np.arange(k.max())

        def step(carry, factors):
            (before, h), (up, down) = carry, factors
            new = up * t * h - down * before
            return (h, new), new

        factors = jnp.asarray(np.stack([np.sqrt(2.0 / (j + 1)), np.sqrt(j / (j + 1))], 1), t.dtype)
        _, higher = jax.lax.scan(step, (jnp.zeros_like(first), first), (factors[:, 0], factors[:, 1]))
        H = jnp.concatenate([first[None], higher])  # [degrees, N, D]
        return functools.reduce(jnp.multiply, [H[k[:, d], :, d] for d in range(k.shape[1])]).T

    def _form(self, kernel: AbstractKernel | None) -> GaussianForm:
        form = None if kernel is None else kernel.gaussian_form()
        if kernel is None or form is None:
            refuse(
                self,
                kernel,
                "a SquaredExponential kernel",
                "for others use features.EigenNumerical, or kernels.HilbertSpace with features.EigenLaplacian",
            )
        check_size(kernel, "lengthscale", form.lengthscale, self.std.shape[0])
        return form

    def _constants(self, form: GaussianForm) -> tuple[Array, Array, Array]:
        """a, b and c of the formula, for each dimension."""
        a = 0.25 / self.std**2
        b = 0.5 / jnp.broadcast_to(form.lengthscale, self.std.shape) ** 2
        return a, b, jnp.sqrt(a * a + 2.0 * a * b)

    def apply(self, f, kernel=None):
        # v ρ dx is a polynomial times N(ζ | 0, 1) dζ with z = ζ/(2(a + c))^½. Half of the exponent of that Gaussian
        # stays with the polynomials and half with the weights, so that neither overflows.
        a, _, c = self._constants(self._form(kernel))
        D, dtype = self.mean.shape[0], a.dtype
        zeta, w = tensor(*gauss_hermite(300 if D == 1 else round(8192 ** (1 / D))), D) if D <= 4 else qmc_rule(D, 8192)
        w = jnp.asarray(w * np.exp(0.25 * np.sum(zeta**2, axis=1)), dtype)
        zeta = jnp.asarray(zeta, dtype)
        z = zeta / jnp.sqrt(2.0 * (a + c))[None, :]
        first = ((c / a) ** 0.25 * jnp.sqrt(2.0 * a / (a + c)))[None, :] * jnp.exp(-0.25 * zeta**2)
        v = self._hermite(first, jnp.sqrt(2.0 * c)[None, :] * z) * w[:, None]
        return jnp.tensordot(v.T, f(self.mean[None, :] + z), 1)

    def Kuu(self, kernel, jitter):
        return Diagonal(self.spectrum(kernel))

    def Kuf(self, kernel, X):
        return self.spectrum(kernel)[:, None] * self.eigenfunctions(kernel, X).T


@functools.cache
def _by_degree(num: int, dim: int) -> np.ndarray:
    """The first `num` multi-indices of `dim` dimensions, by their sum: [num, dim]."""
    out: list[tuple[int, ...]] = []
    degree = 0
    while len(out) < num:
        bars = itertools.combinations(range(degree + dim - 1), dim - 1)
        for bar in bars:
            edges = (-1, *bar, degree + dim - 1)
            out.append(tuple(edges[i + 1] - edges[i] - 1 for i in range(dim)))
        degree += 1
    return np.array(out[:num])


class EigenNumerical(AbstractFeatures):
    """Eigenfeatures of any kernel, from the eigenvectors of a Gram matrix (Nyström).

        k(Z, Z)/n = U diag(λ) Uᵀ,    u = U_Mᵀ f(Z)/√n,    Kuf = U_Mᵀ k(Z, x)/√n,    Kuu = diag(λ_1, …, λ_M)

    These are the eigenfunctions v_m(x) = k(x, Z) U_m/(√n λ_m) for inputs distributed as the points Z. The eigenvectors
    cost O(n³) whenever the kernel changes.

    Args:
        Z: points [n, D], typically many of the data; not trained.
        num: M, how many leading eigenvectors to keep.

    Raises:
        ValueError: if Z is not a matrix, or if `num` is not between 1 and n.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> features = ig.features.EigenNumerical(jnp.linspace(0.0, 1.0, 20)[:, None], num=5)
        >>> features.Kuf(ig.kernels.Matern32(), jnp.zeros((3, 1))).shape
        (5, 3)
    """

    Z: Float[Array, "n D"] = fixed()
    num: int = eqx.field(static=True, converter=as_whole)
    exact: ClassVar[bool] = True

    def __check_init__(self):
        if not eqx.is_array(self.Z):
            return
        if self.Z.ndim != 2:
            raise ValueError(f"EigenNumerical.Z must be [n, D], one input per row, got shape {list(self.Z.shape)}.")
        if not isinstance(self.num, int) or not 1 <= self.num <= self.Z.shape[0]:
            raise ValueError(
                f"EigenNumerical.num must be between 1 and the {self.Z.shape[0]} points of Z, got {self.num!r}."
            )

    @property
    def num_features(self) -> int:
        return self.num

    @property
    def locations(self) -> Float[Array, "n D"]:
        return self.Z

    def eigenvectors(self, kernel: AbstractKernel) -> tuple[Float[Array, " M"], Float[Array, "n M"]]:
        """The leading eigenvalues and eigenvectors of k(Z, Z)/n.

        Args:
            kernel: any kernel.

        Returns:
            Eigenvalues [M] in decreasing order, and eigenvectors [n, M].
        """
        return leading_eigenvectors(kernel.gram(self.Z) / self.Z.shape[0], self.num)

    def apply(self, f, kernel=None):
        assert kernel is not None, "the eigenvectors are the kernel's"
        _, U = self.eigenvectors(kernel)
        return jnp.tensordot(U.T, f(self.Z), 1) / math.sqrt(self.Z.shape[0])

    def Kuu(self, kernel, jitter):
        return Diagonal(self.eigenvectors(kernel)[0])

    def Kuf(self, kernel, X):
        check_columns(self, X, self.Z.shape[1])
        _, U = self.eigenvectors(kernel)
        return U.T @ kernel.gram(self.Z, X) / math.sqrt(self.Z.shape[0])


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def leading_eigenvectors(K: Float[Array, "n n"], num: int) -> tuple[Float[Array, " M"], Float[Array, "n M"]]:
    """The `num` largest eigenvalues (at least ε λ_1) and their eigenvectors of a symmetric matrix.

        dλ_i = U_iᵀ dK U_i,    dU_i = Σ_{j ≠ i} U_j (U_jᵀ dK U_i)/(λ_i − λ_j)

    Pairs of eigenvalues that are equal up to rounding errors are left out of the sum.
    """
    return _leading(*_falling(K), num)


def _falling(K: Array) -> tuple[Array, Array]:
    """Eigenvalues in decreasing order, and eigenvectors with the sign that makes Σ_i 2⁻ⁱ U_i positive.

    LAPACK's sign is arbitrary and may change with the last digit of K, so that the same q(u) would mean another q(f).
    """
    values, vectors = eigh(K)
    values, vectors = values[::-1], vectors[:, ::-1]
    side = jnp.asarray(0.5 ** np.arange(len(K)), K.dtype) @ vectors
    return values, vectors * jnp.where(side < 0, -1.0, 1.0).astype(K.dtype)[None, :]


def _leading(values: Array, vectors: Array, num: int) -> tuple[Array, Array]:
    floor = jnp.finfo(values.dtype).eps * values[0]
    return jnp.maximum(values[:num], floor), vectors[:, :num]


@leading_eigenvectors.defjvp
def _leading_eigenvectors_jvp(num, primals, tangents):
    (K,), (dK,) = primals, tangents
    values, vectors = _falling(K)
    out = _leading(values, vectors, num)
    P = vectors.T @ dK @ out[1]  # [n, M]
    gap = values[None, :num] - values[:, None]
    tiny = 100.0 * jnp.finfo(values.dtype).eps * values[0]
    F = jnp.where(jnp.abs(gap) > tiny, 1.0 / jnp.where(jnp.abs(gap) > tiny, gap, 1.0), 0.0)
    kept = values[:num] > jnp.finfo(values.dtype).eps * values[0]
    return out, (jnp.where(kept, jnp.diagonal(P[:num]), 0.0), vectors @ (F * P))


class EigenLaplacian(AbstractFeatures):
    """Coefficients of a process with a `kernels.HilbertSpace` kernel in Laplacian eigenfunctions on a box.

        u[j] = ∫ f(x) φ_j(x) dx,    Kuf[j](x) = S(√λ_j) φ_j(x),    Kuu = diag(S(√λ_j))

    With the box and `num` of the kernel the features are exact: Kfu Kuu⁻¹ Kuf = Kff. With the original stationary
    kernel they would not be linear functionals of f: Kff − Kfu Kuu⁻¹ Kuf would not be positive semi-definite, and the
    bound could exceed the evidence. That combination is refused.

    Draws, and means in coordinates "u", need `apply`. It uses Gauss–Legendre quadrature if 65536 nodes suffice, and
    otherwise the midpoint rule, which is exact for draws of the kernel and of second order for other functions.

    Args:
        box: pairs (low, high), one for each input dimension; a single pair is one dimension.
        num: the number of eigenfunctions in each dimension, one number for all dimensions or one for each.

    Raises:
        ValueError: if the box is empty, or if `num` does not fit it or exceeds 5000 eigenfunctions in total.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.HilbertSpace(ig.kernels.Matern32(), box=(-1.0, 2.0), num=16)
        >>> features, X = ig.features.EigenLaplacian(k.box, k.num), jnp.linspace(0.0, 1.0, 3)[:, None]
        >>> Kuf = features.Kuf(k, X)
        >>> bool(jnp.allclose(Kuf.T @ features.Kuu(k, 0.0).solve(Kuf), k.gram(X)))
        True
    """

    box: Box = eqx.field(static=True)
    num: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, box: Any, num: Any):
        self.box = as_box(box)
        self.num = as_counts(num, self.box)

    def __check_init__(self):
        as_counts(self.num, as_box(self.box))

    @property
    def num_features(self) -> int:
        return math.prod(self.num)

    @property
    def num_inputs(self) -> int:
        return len(self.box)

    def _basis(self, kernel: AbstractKernel) -> LaplacianBasis:
        basis = kernel.laplacian_basis()
        if basis is None:
            refuse(
                self,
                kernel,
                "a kernels.HilbertSpace kernel",
                "with the original kernel they are not linear functionals of f and the bound can exceed the evidence; "
                "wrap it: kernels.HilbertSpace(kernel, box, num)",
            )
        if basis.box != self.box or any(own > n for own, n in zip(self.num, basis.num, strict=True)):
            raise ValueError(
                f"EigenLaplacian has the box {self.box} and {self.num} functions, but the kernel "
                f"{basis.box} and {basis.num}; pass EigenLaplacian(kernel.box, kernel.num)."
            )
        return basis

    def _spectrum(self, kernel: AbstractKernel) -> Float[Array, " M"]:
        basis = self._basis(kernel)
        return basis.density(frequencies(self.box, self.num, basis.dtype))

    def apply(self, f, kernel=None):
        basis = None if kernel is None else self._basis(kernel)
        dtype = jnp.zeros(()).dtype if basis is None else basis.dtype
        rules = [gauss_legendre(8, n // 2 + 4) for n in self.num]
        if math.prod(len(t) for t, _ in rules) > 65536:
            rules = [gauss_legendre(1, n + 1) for n in (self.num if basis is None else basis.num)]
        grid = np.stack(np.meshgrid(*[t for t, _ in rules], indexing="ij"), -1).reshape(-1, len(rules))
        w = functools.reduce(np.multiply.outer, [w for _, w in rules]).reshape(-1)
        low, size = np.array([b[0] for b in self.box]), np.array([b[1] - b[0] for b in self.box])
        X = jnp.asarray(low[None, :] + size[None, :] * grid, dtype)
        phi = eigenfunctions(self.box, self.num, X) * jnp.asarray(w * np.prod(size), dtype)[:, None]
        return jnp.tensordot(phi.T, at_nodes(f, X), 1)

    def Kuu(self, kernel, jitter):
        return Diagonal(self._spectrum(kernel))

    def Kuf(self, kernel, X):
        return self._spectrum(kernel)[:, None] * eigenfunctions(self.box, self.num, X).T
