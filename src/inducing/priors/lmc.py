"""Linear mixtures of latent GPs: the linear model of coregionalisation and the intrinsic one."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.kernels.base import AbstractKernel
from inducing.means import AbstractMean, as_mean
from inducing.parameters import as_numbers, positive, real
from inducing.priors.base import AbstractPrior, weights
from inducing.priors.independent import columns
from inducing.priors.latents import repeat
from inducing.priors.stack import (
    as_latents,
    check_rows_are_inputs,
    nonzero_means,
    on_outputs,
    site_weights,
    variances_of_sites,
)


class AbstractMixture(AbstractPrior):
    """A mixture f(x) = μ(x) + W g(x) of the outputs g of a prior. Subclasses define W, the property `matrix`.

    The latents are those of the prior. If each has one site, outputs are mixed by the product of W and the prior's own
    mixing; otherwise a latent has one site for each output.
    """

    latents: eqx.AbstractVar[AbstractPrior]
    mean_function: eqx.AbstractVar[AbstractMean]

    @property
    @abc.abstractmethod
    def matrix(self) -> Float[Array, "P Q"]:
        """W."""

    @property
    def num_latents(self) -> int:
        return self.latents.num_latents

    @property
    def num_sites(self) -> int:
        return 1 if self.latents.num_sites == 1 else self.num_outputs

    @property
    def mixing(self) -> Float[Array, "P L"] | None:
        if self.latents.num_sites > 1:
            return None
        own = weights(self.latents)
        return self.matrix if own is None else self.matrix @ own

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return self.latents.kernels

    @property
    def smoothness(self) -> int | float:
        return self.latents.smoothness

    def has_derivative(self, columns, dim=None):
        return self.latents.has_derivative(columns, dim)

    def differentiated(self, derivatives, dim):
        own = self.latents.differentiated(derivatives, dim)
        if own is None:
            return None
        return LMC(jnp.kron(self.matrix, jnp.eye(len(derivatives), dtype=self.matrix.dtype)), own)

    def mean_functions(self):
        return ((None, self.mean_function), *nonzero_means(self.latents))

    def latent_inputs(self, X):
        return self.latents.latent_inputs(X)

    def check_inputs(self, X):
        self.latents.check_inputs(X)

    def input_columns(self, latent: int) -> int:
        return self.latents.input_columns(latent)

    def mean(self, X):
        return self.latents.mean(X) @ self.matrix.T + columns(self.mean_function(X), self.num_outputs)

    def mu_u(self, features):
        return self.latents.mu_u(features)

    def Kuu(self, features, jitter):
        K = self.latents.Kuu(features, jitter)
        return K if self.latents.num_sites == 1 else repeat(K, self.num_latents)

    def Kuf(self, features, X):
        return self._on_outputs(self.latents.Kuf(features, X), (3,))

    def Kff(self, X, X2=None):
        return self._on_outputs(self.latents.Kff(X, X2), (2, 4))

    def Kff_diag(self, X):
        return self.latents.Kff_diag(X) if self.latents.num_sites == 1 else variances_of_sites(self, X)

    def draw_latents(self, key, num, dim):
        g, sites = self.latents.draw_latents(key, num, dim)
        if self.latents.num_sites == 1:
            return g, sites
        return g, lambda X: jnp.moveaxis(self._on_outputs(jnp.moveaxis(sites(X), 1, 0), (2,)), 0, 1)

    def _on_outputs(self, a: Array, axes: tuple[int, ...]) -> Array:
        """What latents contribute to the outputs, from arrays [K, …] with their sites along the given axes."""
        if self.latents.num_sites == 1:
            return a
        T = jnp.einsum("pq,qlj->plj", self.matrix, site_weights(self.latents, a.dtype))
        a = repeat(a, self.num_latents)
        for axis in axes:
            a = on_outputs(T, a, axis)
        return a


class LMC(AbstractMixture):
    """The linear model of coregionalisation: P outputs that are mixtures of L latent GPs (eq:def_loc_mogp).

        f(x) = μ(x) + W g(x),      K(x, x') = W diag(k_1(x, x'), …, k_L(x, x')) Wᵀ

    Conditioning happens in the space of the latents and takes O(L M³) for any number of outputs.

    Args:
        W: the mixing matrix [P, L], which is trained.
        latents: a sequence of L GPs or kernels, or a single one that all latents share. Members of the sequence may be
            any priors, and so may a single one: their outputs are the functions g, as many as W has columns.
        mean: μ, one of `ig.means` with values [N] or [N, P], or a number; zero if None.

    Raises:
        ValueError: if W is not a matrix, or its columns and the latents differ in number.

    Examples:
        >>> import jax, inducing as ig
        >>> prior = ig.priors.LMC([[1.0, 0.0], [0.5, 1.0], [0.2, -1.0]], [ig.kernels.Matern52(), ig.kernels.Matern32()])
        >>> prior.num_latents, prior.num_outputs
        (2, 3)
        >>> prior.covariance(jax.numpy.zeros((1, 1))).round(2).tolist()      # W Wᵀ
        [[1.0, 0.5, 0.2], [0.5, 1.25, -0.9], [0.2, -0.9, 1.04]]
    """

    W: Float[Array, "P L"] = real()
    latents: AbstractPrior
    mean_function: AbstractMean

    def __init__(self, W: Any, latents: Any, mean: Any = None):
        self.W = as_numbers("W", W)
        self.latents = as_latents(latents, self.W.shape[-1] if self.W.ndim else 1)
        self.mean_function = as_mean(mean)

    def __check_init__(self):
        if self.W.ndim != 2 or not self.W.size:
            raise ValueError(f"W must be [P, L], one row for each output, got shape {list(self.W.shape)}.")
        check_rows_are_inputs(self.latents, "latents")
        if self.latents.num_outputs != self.W.shape[1]:
            raise ValueError(
                f"W has {self.W.shape[1]} columns but there are {self.latents.num_outputs} latents; "
                "W is [P, L], a column for each latent."
            )

    @property
    def num_outputs(self) -> int:
        return self.W.shape[0]

    @property
    def matrix(self) -> Float[Array, "P L"]:
        return self.W


class IntrinsicCoregionalisation(AbstractMixture):
    """Intrinsic coregionalisation: all outputs have the same kernel, scaled by a coregionalisation matrix B.

        K(x, x') = B k(x, x'),      B = W Wᵀ + diag κ
        f_p(x) = μ_p(x) + Σ_r W[p, r] g_r(x) + √κ_p g_{rank + p}(x)

    The first `rank` latents are shared by the outputs, and each of the others belongs to one output.

    Args:
        W: the factor of low rank [P, rank], or [P] for rank one.
        kappa: κ [P], positive.
        latents: one GP or kernel that all rank + P latents share; or a sequence with one for each latent, the shared
            ones first, so that these can have other kernels than those of single outputs.
        mean: μ, one of `ig.means` with values [N] or [N, P], or a number; zero if None.

    Raises:
        ValueError: if the shapes of W and κ or the number of latents do not fit.

    Examples:
        >>> import jax, inducing as ig
        >>> prior = ig.priors.IntrinsicCoregionalisation([1.0, -0.5], [0.1, 0.2], ig.kernels.Matern52())
        >>> prior.covariance(jax.numpy.zeros((1, 1))).round(2).tolist()
        [[1.1, -0.5], [-0.5, 0.45]]
    """

    W: Float[Array, "P rank"] = real()
    kappa: Float[Array, " P"] = positive()
    latents: AbstractPrior
    mean_function: AbstractMean

    def __init__(self, W: Any, kappa: Any, latents: Any, mean: Any = None):
        W = as_numbers("W", W)
        self.W = W[:, None] if W.ndim == 1 else W
        self.kappa = as_numbers("kappa", kappa)
        self.latents = as_latents(latents, max(1, sum(self.W.shape)))
        self.mean_function = as_mean(mean)

    def __check_init__(self):
        W, kappa = self.W, self.kappa
        if W.ndim != 2 or kappa.shape != W.shape[:1] or not kappa.size:
            raise ValueError(
                f"IntrinsicCoregionalisation needs W of shape [P, rank] and kappa of shape [P], "
                f"got W {list(W.shape)} and kappa {list(kappa.shape)}."
            )
        check_rows_are_inputs(self.latents, "latents")
        if self.latents.num_outputs != W.shape[0] + W.shape[1]:
            raise ValueError(
                f"W {list(W.shape)} needs {W.shape[1]} shared latents and {W.shape[0]} of single outputs, "
                f"got {self.latents.num_outputs}; pass {W.shape[0] + W.shape[1]} of them, or one that all share."
            )

    @property
    def num_outputs(self) -> int:
        return self.W.shape[0]

    @property
    def matrix(self) -> Float[Array, "P L"]:
        return jnp.concatenate([self.W, jnp.diag(jnp.sqrt(self.kappa))], axis=1)
