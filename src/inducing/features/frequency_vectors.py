"""Fourier features with frequency vectors in several dimensions, under a window (section 2.3)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.data import as_inputs
from inducing.features.base import (
    AbstractFeatures,
    check_columns,
    check_points,
    general_Kuf,
    general_Kuu,
    refuse,
)
from inducing.features.integral import check_box, inside, panels
from inducing.features.quadrature_rules import at_nodes, check_nodes, gaussian_grid, tensor
from inducing.kernels.base import check_size
from inducing.linalg import BlockDiagonal, Dense
from inducing.numerics.cubature import qmc_rule
from inducing.parameters import POSITIVE, REAL, as_whole, at_least_one, fixed, real

GRID = (1024, 192, 48)  # nodes in each of one, two or three dimensions
REACH = 7.0


class GaussianFourier(AbstractFeatures):
    """Fourier features with frequency vectors, under a Gaussian window (Lázaro-Gredilla & Figueiras-Vidal 2009).

        u[m] = ∫ f(x) N(x | c, diag s²) φ_m(x) dx,    φ = (1, cos ω_1ᵀ(x − c), …, sin ω_1ᵀ(x − c), …),    ω_m ∈ ℝᴰ

    for a squared exponential kernel. Without a window Kuu would be infinite. With a = ℓ² + s², b = ℓ² + 2s² and
    t = x − c, all of them vectors [D], Kuf of a cosine (and likewise of a sine) and Kuu are

        Kuf[ω](x) = σ² Π_d (ℓ_d/√a_d) exp(−½ t_d²/a_d − ½ ω_d² ℓ_d² s_d²/a_d) cos(Σ_d ω_d t_d s_d²/a_d)
        C(α, β) = σ² Π_d (ℓ_d/√b_d) exp(−½ (α_d² + β_d²) s_d² a_d/b_d − α_d β_d s_d⁴/b_d)
        Kuu[α, β] = ½ (C(α, −β) ± C(α, β)) for two cosines (+) or two sines (−), and 0 for one of each

    The constant is the cosine of frequency 0. The features depend on f only inside the window, and their number must
    grow with the number of waves of f there. Use them in few dimensions, and if f is smooth or has few frequencies.

    Draws, and means in coordinates "u", need `apply`, which uses an equidistant grid in up to three dimensions and is
    refused beyond. Bounds and predictions do not need it.

    Args:
        frequencies: ω [F, D], which are trained. No two may be equal up to sign, and none may be 0.
        centre: c, the centre of the window [D], not trained.
        widths: s, the standard deviations of the window [D], not trained.

    Raises:
        ValueError: if the shapes do not fit, or the widths are not positive.

    Examples:
        >>> import inducing as ig
        >>> features = ig.features.GaussianFourier([[1.0, 0.0], [0.0, 2.0]], centre=[0.0, 0.0], widths=[1.0, 1.0])
        >>> features.num_features, type(features.Kuu(ig.kernels.SquaredExponential(), 0.0)).__name__
        (5, 'BlockDiagonal')
    """

    frequencies: Float[Array, "F D"] = real()
    centre: Float[Array, " D"] = fixed(allowed=REAL)
    widths: Float[Array, " D"] = fixed(allowed=POSITIVE)
    uses_kernel: ClassVar[bool] = False

    def __check_init__(self):
        _check_shapes(self, self.frequencies, centre=self.centre, widths=self.widths)

    @classmethod
    def around(cls, X: Any, num: int, lengthscale: Any) -> "GaussianFourier":
        """Features for given data: the window has their mean and standard deviations.

        The frequencies follow the spectral density of a squared exponential kernel, N(0, diag ℓ⁻²).

        Args:
            X: inputs [N, D], or [N] for D = 1.
            num: the number F of frequencies.
            lengthscale: ℓ, one number or one for each column [D].

        Returns:
            The features.

        Raises:
            ValueError: if `num` is not a positive integer, or if a column of X is constant.

        Examples:
            >>> import numpy as np, inducing as ig
            >>> X = np.random.default_rng(0).normal(size=(50, 2))
            >>> ig.features.GaussianFourier.around(X, 10, lengthscale=0.5).num_features
            21
        """
        X = as_inputs(X)
        z = qmc_rule(X.shape[1], 2 * at_least_one("num", num))[0][:num]  # the other half is the same up to sign
        frequencies = jnp.asarray(z, X.dtype) / jnp.asarray(lengthscale, X.dtype)
        return cls(frequencies, jnp.mean(X, axis=0), jnp.std(X, axis=0))

    @property
    def num_features(self) -> int:
        return 2 * self.frequencies.shape[0] + 1

    @property
    def num_inputs(self) -> int:
        return self.frequencies.shape[1]

    def units(self):
        return [(self.frequencies, 1.0 / np.asarray(self.widths)[None, :])]

    def apply(self, f, kernel=None):
        D = self.num_inputs
        if D > 3:
            raise ValueError(
                f"draws of GaussianFourier features, and means in coordinates 'u', need integrals over {D} dimensions, "
                "which are computed up to 3; use coordinates 'w' or 'v', model.predict, or features.InducingPoints."
            )
        x, w = (jnp.asarray(a, self.centre.dtype) for a in tensor(*gaussian_grid(GRID[D - 1], REACH), D))
        x = self.centre[None, :] + self.widths[None, :] * x
        return jnp.tensordot(_waves(self.frequencies, x - self.centre[None, :]) * w[None, :], at_nodes(f, x), 1)

    def Kuu(self, kernel, jitter):
        l2, variance = self._form(kernel)
        s2 = self.widths**2
        b = l2 + 2.0 * s2
        every = jnp.concatenate([jnp.zeros((1, self.num_inputs), l2.dtype), self.frequencies])
        size = variance * jnp.prod(jnp.sqrt(l2 / b))
        scaled = every * (s2 / jnp.sqrt(b))[None, :]  # whose products are αβ s⁴/b
        own = jnp.sum(every**2 * (s2 * l2 / b)[None, :], axis=1)  # s² a/b = s⁴/b + s² ℓ²/b
        own = 0.5 * (own[:, None] + own[None, :])

        def C(sign: float) -> Array:
            total = scaled[:, None, :] + sign * scaled[None, :, :]
            return size * jnp.exp(-own - 0.5 * jnp.sum(total**2, axis=-1))

        minus, plus = C(-1.0), C(1.0)
        return BlockDiagonal(
            (Dense(0.5 * (minus + plus), jitter), Dense(0.5 * (minus[1:, 1:] - plus[1:, 1:]), jitter)),
        )

    def Kuf(self, kernel, X):
        check_columns(self, X, self.num_inputs)
        l2, variance = self._form(kernel)
        s2 = self.widths**2
        a = l2 + s2
        x = X - self.centre[None, :]
        seen = variance * jnp.prod(jnp.sqrt(l2 / a)) * jnp.exp(-0.5 * jnp.sum(x**2 / a[None, :], axis=1))
        damping = jnp.exp(-0.5 * jnp.sum(self.frequencies**2 * (l2 * s2 / a)[None, :], axis=1))
        damping = jnp.concatenate([jnp.ones((1,), x.dtype), damping, damping])
        return damping[:, None] * seen[None, :] * _waves(self.frequencies, x * (s2 / a)[None, :])

    def _form(self, kernel) -> tuple[Float[Array, " D"], Float[Array, ""]]:
        """ℓ² [D] and σ² of a squared exponential kernel; raises for others."""
        form = kernel.gaussian_form()
        if form is None:
            refuse(self, kernel, "a SquaredExponential kernel", "for others use features.BoxFourier or InducingPoints")
        check_size(kernel, "lengthscale", form.lengthscale, self.num_inputs)
        return jnp.broadcast_to(form.lengthscale, (self.num_inputs,)) ** 2, form.variance


class BoxFourier(AbstractFeatures):
    """Fourier features with frequency vectors on a box, for any kernel, by Gauss–Legendre quadrature.

        u[m] = 1/|B| ∫_B f(x) φ_m(x) dx ≈ Σ_g w_g φ_m(x_g) f(x_g)
        φ = (1, cos ω_1ᵀ(x − c), …, sin ω_1ᵀ(x − c), …),    ω_m ∈ ℝᴰ,    c the centre of B

    The sum on the right defines u in Kuu, Kuf and draws alike, so the bound is valid for any number of nodes. Its cost
    grows with the square of nodesᴰ: use one or two dimensions.

    Args:
        frequencies: ω [F, D], which are trained. No two may be equal up to sign, and none may be 0.
        lower: the lower corner of the box [D], not trained.
        upper: the upper corner of the box [D], not trained.
        nodes: the number of nodes in each dimension; at least four for each wave.

    Raises:
        ValueError: if the shapes do not fit, if the box is empty, or if there are too many nodes.

    Examples:
        >>> import inducing as ig
        >>> features = ig.features.BoxFourier([[3.0]], lower=[0.0], upper=[1.0])
        >>> [round(float(u), 4) for u in features.apply(lambda X: X[:, 0])]
        [0.5, 0.3325, 0.1981]
    """

    frequencies: Float[Array, "F D"] = real()
    lower: Float[Array, " D"] = fixed()
    upper: Float[Array, " D"] = fixed()
    nodes: int = eqx.field(static=True, default=32, converter=as_whole)
    exact: ClassVar[bool] = True
    uses_kernel: ClassVar[bool] = False

    def __check_init__(self):
        check_box(self, self.lower, self.upper)
        _check_shapes(self, self.frequencies, lower=self.lower, upper=self.upper)
        check_nodes([self.nodes] * self.num_inputs)

    @property
    def num_features(self) -> int:
        return 2 * self.frequencies.shape[0] + 1

    @property
    def num_inputs(self) -> int:
        return self.frequencies.shape[1]

    def units(self):
        return [(self.frequencies, np.sqrt(12.0) / np.asarray(self.upper - self.lower)[None, :])]

    def apply(self, f, kernel=None):
        unit, w = (jnp.asarray(a, self.lower.dtype) for a in tensor(*panels(self.nodes), self.num_inputs))
        size = self.upper - self.lower
        waves = _waves(self.frequencies, size[None, :] * (unit - 0.5)) * w[None, :]
        return jnp.tensordot(waves, f(self.lower[None, :] + size[None, :] * unit), 1)

    def Kuu(self, kernel, jitter):
        return general_Kuu(self, kernel, jitter)

    def Kuf(self, kernel, X):
        check_columns(self, X, self.num_inputs)
        return general_Kuf(self, kernel, X)

    def check_inputs(self, kernel):
        check_points(kernel, inside(self.lower, self.upper))


def _waves(frequencies: Float[Array, "F D"], x: Float[Array, "n D"]) -> Float[Array, "M n"]:
    """1, cos ωᵀx and sin ωᵀx."""
    angle = frequencies @ x.T
    return jnp.concatenate([jnp.ones((1, x.shape[0]), x.dtype), jnp.cos(angle), jnp.sin(angle)])


def _check_shapes(features: AbstractFeatures, frequencies: Any, **vectors: Any) -> None:
    """Raise a ValueError unless the frequencies are [F, D], different and not 0, and the vectors are [D]."""
    name = type(features).__name__
    if not eqx.is_array(frequencies):
        return
    if frequencies.ndim != 2 or frequencies.shape[0] == 0:
        raise ValueError(f"{name}.frequencies must be [F, D], one vector in each row, got {list(frequencies.shape)}.")
    for key, vector in vectors.items():
        if eqx.is_array(vector) and vector.shape != frequencies.shape[1:]:
            D = frequencies.shape[1]
            raise ValueError(f"{name}.{key} has shape {list(vector.shape)} but the frequencies have {D} columns.")
    if isinstance(frequencies, jax.core.Tracer):
        return
    both = np.concatenate([np.asarray(frequencies), -np.asarray(frequencies)])
    if len(np.unique(both + 0.0, axis=0)) < len(both):
        raise ValueError(f"{name}.frequencies must not be 0 or equal up to sign, since their features are the same.")
