"""What a prior is: a linear map of independent latent GPs (section 2.4)."""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures
from inducing.kernels.base import AbstractKernel
from inducing.linalg import AbstractCovariance
from inducing.parameters import Module, Start, dtype_of, question
from inducing.priors.latents import repeat

if TYPE_CHECKING:
    from inducing.means import AbstractMean
    from inducing.priors.exact import ExactGP

Features = AbstractFeatures | tuple[AbstractFeatures, ...]
"""One kind of features for all latents, or one for each."""


class AbstractPrior(Module):
    """A Gaussian process f: ℝᴰ → ℝᴾ that is a linear map of L independent latent processes g_l.

        f_p(x) = μ_p(x) + Σ_l W[p, l] s_l[p mod J](x),      s_l(x) = (T g_l)(x) ∈ ℝᴶ

    The J *sites* of a latent are what the outputs look at: its value at x (J = 1), its partial derivatives
    (J = D), or one functional of it for each output (J = P: a smoothed value, the value at a patch). J divides P,
    and W is `mixing`. None stands for two simple ones: if P = L·J, outputs l·J, …, l·J + J − 1 are the sites of latent
    l and see no other (the identity, if J = 1); else it is ones. The inducing variables are features of the latents,
    u_l = features.apply(g_l), so conditioning happens per latent and in O(L M³), and the map comes after.

    Arrays that concern latents have a leading axis K: L, or 1 if all latents share kernel and features; Kuu and Kuf
    agree on it. For a prior of your own see docs/extend.md.

    >>> import jax.numpy as jnp, inducing as ig
    >>> prior = ig.priors.Derivative(ig.GP(ig.kernels.Matern52()), dim=2)      # one latent, two slopes of it
    >>> prior.num_latents, prior.num_outputs, prior.num_sites
    (1, 2, 2)
    >>> X, features = jnp.zeros((5, 2)), ig.features.InducingPoints(jnp.ones((3, 2)))
    >>> prior.Kuf(features, X).shape, prior.covariance(X).shape
    ((1, 3, 5, 2), (10, 10))
    """

    @property
    @abc.abstractmethod
    def num_latents(self) -> int:
        """L."""

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int:
        """P."""

    @property
    @abc.abstractmethod
    def num_sites(self) -> int:
        """J, a divisor of P."""

    @property
    @abc.abstractmethod
    def mixing(self) -> Float[Array, "P L"] | None:
        """W."""

    @property
    @abc.abstractmethod
    def kernels(self) -> tuple[AbstractKernel, ...]:
        """The kernels of the latents: L, or one that all share."""

    @property
    @abc.abstractmethod
    def smoothness(self) -> int | float:
        """How many derivatives every output has in mean square."""

    @abc.abstractmethod
    def input_columns(self, latent: int) -> int:
        """D, the number of columns of x, if the inputs of the latents have `latent` columns."""

    @abc.abstractmethod
    def mean(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """The mean function of f."""

    @abc.abstractmethod
    def mu_u(self, features: Any) -> Float[Array, "L M"]:
        """The prior mean of u: the features of the latents' means."""

    @abc.abstractmethod
    def Kuu(self, features: Any, jitter: float) -> AbstractCovariance:
        """Cov(u_l, u_l), stacked along a leading axis K."""

    @abc.abstractmethod
    def Kuf(self, features: Any, X: Float[Array, "N D"]) -> Float[Array, "K M N J"]:
        """Cov(u_l, s_l(X))."""

    @abc.abstractmethod
    def Kff(self, X: Float[Array, "N D"], X2: Float[Array, "N2 D"] | None = None) -> Float[Array, "K N J N2 J"]:
        """Cov(s_l(X), s_l(X2))."""

    @abc.abstractmethod
    def Kff_diag(self, X: Float[Array, "N D"]) -> Float[Array, "K N J"]:
        """Var(s_l(X))."""

    @abc.abstractmethod
    def draw(self, key: Array, num: int, dim: int) -> tuple[Callable, Callable]:
        """One draw of the zero-mean latents from `num` random features of inputs of dimension `dim`.

        Returns two functions that belong together: the latents g: [n, D] → [n, L], whose features are u, and
        their sites: [n, D] → [n, L, J].
        """

    @property
    @question
    def shared_kernel(self) -> AbstractKernel | None:
        """k, if the outputs are the latents themselves, independent GPs that all have the kernel k; else None."""
        return None

    @property
    @question
    def indexes_outputs(self) -> bool:
        """Whether the last column of the inputs is the number of an output."""
        return False

    @property
    @question
    def group_size(self) -> int:
        """How many consecutive outputs are functionals of one function, so that labels of one of them are enough."""
        return 1

    @question
    def mean_functions(self) -> "tuple[tuple[int | None, AbstractMean], ...]":
        """The mean functions, each with the number of the latent it belongs to (None: of all outputs)."""
        return ()

    @question
    def latent_inputs(self, X: np.ndarray) -> np.ndarray:
        """Where the latents are evaluated for inputs X [N, D], as an array [n, D'] of concrete numbers."""
        return np.asarray(X, float)

    @question
    def check_inputs(self, X: np.ndarray) -> None:
        """Raise a ValueError if the prior cannot take some value in X [N, D], such as an unknown category."""
        for kernel in self.kernels:
            kernel.check_inputs(self.latent_inputs(X))

    @question
    def start(self, likelihood: Any, x: np.ndarray, y: np.ndarray) -> list[Start]:
        """Starting values of means, amplitudes and noise, for inputs x [N, D] and labels y [N, P], NaN if missing."""
        return []

    def covariance(self, X: Float[Array, "N D"], X2: Float[Array, "N2 D"] | None = None) -> Float[Array, "NP N2P"]:
        """The prior covariance of f(X) and f(X2), flattened datum by datum: [N·P, N2·P]."""
        K = mix_covariance(self, self.Kff(X, X2))
        N, P, N2, _ = K.shape
        return K.reshape(N * P, N2 * P)

    def condition(self, X: Any, y: Any, noise_variance: Any) -> "ExactGP":
        """The exact posterior given y = f(X) + ε, ε ~ N(0, noise_variance): O((NP)³).

        >>> import inducing as ig
        >>> exact = ig.GP(ig.kernels.SquaredExponential()).condition([0.0, 1.0], [1.0, 2.0], noise_variance=0.1)
        >>> exact.mean([0.5]).shape
        (1, 1)
        """
        from inducing.priors.exact import ExactGP

        return ExactGP(self, X, y, noise_variance)


def weights(prior: AbstractPrior) -> Float[Array, "P L"] | None:
    """W, with the implied ones of several latents that share an output's site; None: outputs are the latents' sites."""
    W, P, L = prior.mixing, prior.num_outputs, prior.num_latents
    if W is None and L * prior.num_sites != P:
        return jnp.ones((P, L), dtype_of(prior))
    return W


def dense_weights(prior: AbstractPrior, dtype: Any) -> Float[Array, "P L"]:
    """W as an array, whatever it is."""
    W = weights(prior)
    return jnp.repeat(jnp.eye(prior.num_latents, dtype=dtype), prior.num_sites, axis=0) if W is None else W


def by_site(prior: AbstractPrior, W: Float[Array, "P *rest"]) -> Float[Array, "Q J *rest"]:
    """An array over outputs as one over (q, j): output q·J + j looks at site j."""
    return W.reshape(-1, prior.num_sites, *W.shape[1:])


def mix_mean(prior: AbstractPrior, s: Float[Array, "*B L J"]) -> Float[Array, "*B P"]:
    """Outputs from sites: Σ_l W[p, l] s_l[p mod J]."""
    W = weights(prior)
    if W is None:
        return s.reshape(*s.shape[:-2], -1)
    if prior.num_sites == 1:
        return s[..., 0] @ W.T
    return jnp.einsum("qjl,...lj->...qj", by_site(prior, W), s).reshape(*s.shape[:-2], -1)


def mix_variance(prior: AbstractPrior, v: Float[Array, "K N J"]) -> Float[Array, "N P"]:
    """Output variances from those of uncorrelated latents: Σ_l W[p, l]² v_l[p mod J]."""
    W, v = weights(prior), repeat(v, prior.num_latents)
    if W is None:
        return jnp.swapaxes(v, 0, 1).reshape(v.shape[1], -1)
    if prior.num_sites == 1:
        return v[..., 0].T @ (W**2).T
    return jnp.einsum("qjl,lnj->nqj", by_site(prior, W**2), v).reshape(v.shape[1], -1)


def mix_covariance(prior: AbstractPrior, K: Float[Array, "K N J N2 J"]) -> Float[Array, "N P N2 P"]:
    """Output covariances from those of uncorrelated latents: Σ_l W[p, l] W[q, l] K_l[·, p mod J, ·, q mod J]."""
    W, K = by_site(prior, dense_weights(prior, K.dtype)), repeat(K, prior.num_latents)
    C = jnp.einsum("ajl,lnjmk,bkl->najmbk", W, K, W)
    return C.reshape(K.shape[1], prior.num_outputs, K.shape[3], prior.num_outputs)


def mix_coupled_variance(prior: AbstractPrior, C: Float[Array, "N J L L"]) -> Float[Array, "N P"]:
    """Output variances from the covariance of correlated latents: Σ_lk W[p, l] W[p, k] C[p mod J, l, k]."""
    W, N, L = weights(prior), C.shape[0], prior.num_latents
    if W is None:
        return jnp.swapaxes(jnp.diagonal(C, axis1=2, axis2=3), 1, 2).reshape(N, -1)
    squares = by_site(prior, (W[:, :, None] * W[:, None, :]).reshape(-1, L * L))
    return jnp.einsum("qjc,njc->nqj", squares, C.reshape(N, -1, L * L)).reshape(N, -1)


def mix_coupled_covariance(prior: AbstractPrior, C: Float[Array, "L N J L N J"]) -> Float[Array, "N P N P"]:
    """Output covariances from those of correlated latents: Σ_lk W[p, l] W[q, k] C[l, ·, p mod J, k, ·, q mod J]."""
    W = by_site(prior, dense_weights(prior, C.dtype))
    out = jnp.einsum("ajl,lnjkmi,bik->najmbi", W, C, W)
    return out.reshape(C.shape[1], prior.num_outputs, C.shape[4], prior.num_outputs)
