"""Closed forms that a kernel may have: what features, priors and bounds ask a kernel for."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Float

Box = tuple[tuple[float, float], ...]


class GaussianForm(NamedTuple):
    """The kernel is a Gaussian function of the difference of its inputs, the squared exponential.

        k(x, y) = σ² exp(−½ Σ_d ((x_d − y_d)/ℓ_d)²)

    Args:
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ².

    Examples:
        >>> import inducing as ig
        >>> ig.kernels.SquaredExponential(2.0).gaussian_form().lengthscale.tolist()
        2.0
        >>> ig.kernels.Matern32().gaussian_form() is None
        True
    """

    lengthscale: Float[Array, "..."]
    variance: Float[Array, ""]


class MaternForm(NamedTuple):
    """The kernel is a Matérn covariance function of half-integer order.

        k(x, y) = σ² 2^(1−ν)/Γ(ν) (√(2ν) r)^ν K_ν(√(2ν) r),    r² = Σ_d ((x_d − y_d)/ℓ_d)²

    Args:
        order: ν, such as 0.5, 1.5 or 2.5.
        lengthscale: ℓ, one number or one for each input dimension [D].
        variance: σ².

    Examples:
        >>> import inducing as ig
        >>> ig.kernels.Matern52().matern_form().order
        2.5
    """

    order: float
    lengthscale: Float[Array, "..."]
    variance: Float[Array, ""]


class LaplacianBasis(NamedTuple):
    """The kernel is a finite sum over Laplacian eigenfunctions on a box.

        k(x, y) = Σ_j S(ω_j) φ_j(x) φ_j(y),    ω_j = π (j_1/L_1, …, j_D/L_D),    j_d = 1, …, num_d

    Args:
        box: pairs (low, high), one for each input dimension; L_d = high_d − low_d.
        num: the number of eigenfunctions in each dimension.
        density: S as a function of frequencies [J, D], with values [J].
        dtype: the floating-point type of the values of S.

    Examples:
        >>> import inducing as ig
        >>> ig.kernels.HilbertSpace(ig.kernels.Matern32(), box=(0.0, 1.0), num=8).laplacian_basis().num
        (8,)
    """

    box: Box
    num: tuple[int, ...]
    density: Callable[[Float[Array, "J D"]], Float[Array, " J"]]
    dtype: Any


class Expansion(NamedTuple):
    """The kernel is a finite sum over functions that are orthonormal under a distribution of points.

        k(x, y) = Σ_j s_j φ_j(x) φ_j(y)

    Args:
        variances: s [J].
        functions: φ as a function of points [N, D], with values [N, J].
        points: points at which the functions are linearly independent.

    Examples:
        >>> import inducing as ig
        >>> ig.kernels.Matern32().eigen_expansion() is None
        True
    """

    variances: Float[Array, " J"]
    functions: Callable[[Float[Array, "N D"]], Float[Array, "N J"]]
    points: Float[Array, "n D"]


class PsiStatistics(NamedTuple):
    """Expectations of a kernel at Gaussian inputs h_n ~ q(h_n), the ψ-statistics of Titsias and Lawrence (2010).

        ψ0 = Σ_n E k(h_n, h_n),    ψ1[n, m] = E k(h_n, z_m),    ψ2[m, m'] = Σ_n E k(z_m, h_n) k(h_n, z_m')

    Args:
        psi0: ψ0, a number.
        psi1: ψ1 [N, M].
        psi2: ψ2 [M, M].

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> Z = jnp.zeros((1, 1))
        >>> psi = ig.kernels.SquaredExponential().gaussian_expectations(Z, Z, 0.0 * Z)      # h = 0 without doubt
        >>> float(psi.psi0), float(psi.psi1[0, 0]), float(psi.psi2[0, 0])
        (1.0, 1.0, 1.0)
    """

    psi0: Float[Array, ""]
    psi1: Float[Array, "N M"]
    psi2: Float[Array, "M M"]
