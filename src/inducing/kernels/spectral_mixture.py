"""The spectral mixture kernel, which approximates any stationary covariance by Gaussians over frequencies."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from inducing.data import as_data
from inducing.kernels.base import AbstractKernel, FeatureMap, Points, as_points, symmetric
from inducing.kernels.distance import centred
from inducing.kernels.stationary import SquaredExponential, fourier_features
from inducing.parameters import at_least_one, positive, real

GRID = 4096  # frequencies of each column at which the spectrum of the data is evaluated
ROWS = 4096  # the most rows of the data that it uses


class SpectralMixture(AbstractKernel):
    """Spectral mixture kernel (Wilson & Adams 2013): its spectral density is a mixture of Q Gaussians.

        k(x, y) = Σ_q w_q exp(−2π² Σ_d σ_qd² τ_d²) cos(2π Σ_d μ_qd τ_d),    τ = x − y
        S(s)    = ½ Σ_q w_q (N(s | μ_q, diag σ_q²) + N(s | −μ_q, diag σ_q²)),    s in cycles per unit of x

    With enough components it approximates any stationary kernel, and it extrapolates periodic and quasi-periodic
    patterns. The bound has many local maxima in μ, so choose initial values from data by `SpectralMixture.from_data`.

    Args:
        weights: w, the variance of each component [Q].
        means: μ, the frequencies [Q, D].
        scales: σ, their standard deviations [Q, D]; 1/(2πσ) is the lengthscale over which a wave loses its phase.

    Raises:
        ValueError: if the shapes do not agree.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> k = ig.kernels.SpectralMixture(weights=[1.0, 0.5], means=[[0.5], [0.0]], scales=[[0.01], [0.1]])
        >>> k.gram(jnp.array([[0.0], [1.0]])).round(4).tolist()
        [[1.5, -0.5876], [-0.5876, 1.5]]
    """

    weights: Float[Array, " Q"] = positive()
    means: Float[Array, "Q D"] = real()
    scales: Float[Array, "Q D"] = positive()
    smoothness: ClassVar[int | float] = math.inf

    def __check_init__(self):
        shapes = [list(a.shape) for a in (self.weights, self.means, self.scales)]
        if self.means.ndim != 2 or shapes[1] != shapes[2] or shapes[0] != shapes[1][:1]:
            raise ValueError(
                "SpectralMixture needs weights [Q], means [Q, D] and scales [Q, D], got shapes "
                f"{shapes[0]}, {shapes[1]} and {shapes[2]}."
            )

    @staticmethod
    def from_data(X: Any, y: Any, num: int = 4) -> "SpectralMixture":
        """Initial values from the spectrum of the data, by matching pursuit.

        The waves a cos 2πsx + b sin 2πsx, along one column of X each, are found one by one: s maximises the periodogram
        of the residual of the earlier waves, on a grid of up to 4,096 frequencies below N/(2 range), the
        Nyquist frequency of as many evenly spaced inputs. Then w = ½ (a² + b²) by least squares, μ = s, and σ is half
        of the resolution 1/range of each column.

        Args:
            X: inputs [N, D].
            y: labels [N], NaN where missing; if there are several outputs [N, P], the first is used.
            num: Q, the number of components.

        Returns:
            The kernel, with parameters from which to start training.

        Examples:
            >>> import numpy as np, inducing as ig
            >>> X = np.linspace(0.0, 10.0, 200)
            >>> k = ig.kernels.SpectralMixture.from_data(X, 2.0 * np.sin(2 * np.pi * 1.5 * X), num=1)
            >>> round(float(k.means[0, 0]), 2), round(float(k.weights[0]), 1)
            (1.5, 2.0)
        """
        num = at_least_one("num", num)
        data = as_data((X, y))
        x, residual = np.asarray(data.x, float), np.asarray(data.y, float)[:, 0]
        keep = np.flatnonzero(np.isfinite(residual))
        keep = keep[np.linspace(0, len(keep) - 1, min(ROWS, len(keep))).astype(int)]
        x, residual = x[keep] - x[keep].mean(axis=0), residual[keep] - residual[keep].mean()
        spread = np.where(np.ptp(x, axis=0) > 0, np.ptp(x, axis=0), 1.0)
        steps = min(GRID, 8 * len(x))  # up to N/(2 range), or as far as the grid reaches with 16 steps per resolution
        grid = np.arange(1, steps + 1) / 16.0
        variance, found = max(float(residual.var()), 1e-12), []
        for _ in range(num):
            powers = [_periodogram(x[:, d] / spread[d], residual, grid) for d in range(x.shape[1])]
            d = int(np.argmax([p.max() for p in powers]))
            s = grid[powers[d].argmax()] / spread[d]
            waves = np.stack([np.cos(2 * np.pi * s * x[:, d]), np.sin(2 * np.pi * s * x[:, d])], axis=1)
            ab = np.linalg.lstsq(waves, residual, rcond=None)[0]
            residual = residual - waves @ ab
            found.append((max(0.5 * float(ab @ ab), 1e-3 * variance), s * np.eye(x.shape[1])[d]))
        weights, means = (jnp.asarray(np.array(a)) for a in zip(*found, strict=True))
        return SpectralMixture(weights, means, jnp.asarray(np.tile(0.5 / spread, (num, 1))))

    def _columns(self, X: Array) -> None:
        if X.shape[-1] != self.means.shape[1]:
            raise ValueError(
                f"SpectralMixture.means has {self.means.shape[1]} columns, but inputs have {X.shape[-1]}; pass means "
                "and scales [Q, D], or choose columns with ActiveDims."
            )

    def __call__(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Float[Array, ""]:
        self._columns(x)
        decay = jnp.sum((self.scales * (x - y)[None]) ** 2, axis=1)
        wave = jnp.cos(2 * math.pi * (self.means @ (x - y)))
        return jnp.sum(self.weights * jnp.exp(-2 * math.pi**2 * decay) * wave)

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        self._columns(X)
        X, X2 = centred(X, X2)

        def component(w: Array, mean: Array, scale: Array) -> Array:
            unit = fourier_features(2 * math.pi * mean[None], jnp.ones_like(w)[None])
            waves = unit(X)
            products = symmetric(waves @ waves.T) if X2 is None else waves @ unit(X2).T
            return products * SquaredExponential(variance=w).gram_at(X, X2, 1 / (2 * math.pi * scale))

        parts = [component(*parts) for parts in zip(self.weights, self.means, self.scales, strict=True)]
        return sum(parts[1:], parts[0])

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jnp.broadcast_to(jnp.sum(self.weights), X.shape[:1])

    def amplitude(self) -> list[tuple[Array, float]]:
        return [(self.weights, 1.0)]

    def spectral_density(self, s: Float[Array, "K D"]) -> Float[Array, " K"]:
        """The spectral density S(s), the Fourier transform ∫ k(τ) e^{−2πi s·τ} dτ.

        Args:
            s: frequencies [K, D], in cycles per unit of x.

        Returns:
            Densities [K], whose integral is k(0) = Σ_q w_q.
        """
        self._columns(s)

        def one(sign: float) -> Array:
            z = (s[:, None] - sign * self.means[None]) / self.scales[None]
            norm = jnp.prod(math.sqrt(2 * math.pi) * self.scales, axis=1)
            return jnp.exp(-0.5 * jnp.sum(z * z, axis=-1)) @ (self.weights / norm)

        return 0.5 * (one(1.0) + one(-1.0))

    def random_features(self, key: PRNGKeyArray, num: int, dim: int) -> FeatureMap:
        # The same number of frequencies for each component, so that its variance is exact.
        Q = len(self.weights)
        each = -(-num // (2 * Q))
        normal = jax.random.normal(key, (each, Q, dim), self.means.dtype)
        omega = 2 * math.pi * (self.means[None] + self.scales[None] * normal)
        return fourier_features(omega.reshape(-1, dim), jnp.tile(self.weights / each, each))


def _periodogram(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The power |Σ_n y_n e^{−2πi s x_n}|² of each frequency, in blocks of frequencies."""
    blocks = np.array_split(grid, -(-len(grid) // 256))
    return np.concatenate([np.abs(np.exp(-2j * np.pi * block[:, None] * x[None]) @ y) ** 2 for block in blocks])
