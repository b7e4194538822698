"""Convolutions of the outputs of any prior, by quadrature."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import in_blocks
from inducing.priors.base import AbstractPrior
from inducing.priors.latents import BLOCK_ENTRIES, repeat
from inducing.priors.stack import site_weights

if TYPE_CHECKING:
    from inducing.priors.convolution import AbstractSmoothing


class ConvolvedSites:
    """What the latents of a prior contribute to convolutions of its outputs h.

        f_p(x) = Σ_q ∫ G_pq(t) h_q(x − t) dt ≈ Σ_l Σ_r Σ_j B_p[r, l, j] s_lj(x − t_pr)

    Here r counts the nodes of the rules for all q, and B holds their coefficients times the weights of the sites s of
    latent l in h_q. A latent then has one site for each of the P outputs.

    Args:
        smoothing: G [P, Q].
        prior: the prior of h, with Q outputs.

    Examples:
        >>> import inducing as ig
        >>> G = ig.priors.GaussianSmoothing([[0.5, 0.5]])
        >>> sites = ConvolvedSites(G, ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52()))
        >>> X = jnp.zeros((3, 1))
        >>> sites.Kff(X, X).shape, sites.Kff_diag(X).shape
        ((1, 3, 1, 3, 1), (1, 3, 1))
    """

    def __init__(self, smoothing: "AbstractSmoothing", prior: AbstractPrior):
        self.smoothing, self.prior = smoothing, prior

    def Kuf(self, features: Any, X: Float[Array, "N D"]) -> Float[Array, "L M N P"]:
        """Cov(u_l, s_lp(X)) for features u of the latents."""
        L = self.prior.num_latents

        def output(t: Float[Array, "R D"], B: Float[Array, "R L J"]) -> Float[Array, "N L M"]:
            def rows(X: Float[Array, "n D"]) -> Float[Array, "n L M"]:
                K = repeat(self.prior.Kuf(features, shifted(X, t)), L)
                K = K.reshape(L, K.shape[1], X.shape[0], *B.shape[::2])
                return jnp.einsum("lmnrj,rlj->nlm", K, B)

            M = jax.eval_shape(lambda: self.prior.Kuf(features, X[:1])).shape[1]
            return in_blocks(rows, X, BLOCK_ENTRIES // (M * B.size))

        return jnp.transpose(sequentially(output)(*self._nodes(X)), (2, 3, 1, 0))

    def Kff(self, X: Float[Array, "N D"], Y: Float[Array, "N2 D"]) -> Float[Array, "L N P N2 P"]:
        """Cov(s_lp(X), s_lq(Y))."""
        nodes = self._nodes(X)

        def pair(t: Array, B: Array, t2: Array, B2: Array) -> Float[Array, "N N2 L"]:
            def one(x: Float[Array, "1 D"]) -> Float[Array, "1 N2 L"]:
                return in_blocks(lambda y: self._pairs(x, y, t, B, t2, B2), Y, BLOCK_ENTRIES // B.size**2)[None]

            return in_blocks(one, X, 1)

        K = sequentially(lambda t, B: sequentially(lambda t2, B2: pair(t, B, t2, B2))(*nodes))(*nodes)
        return jnp.transpose(K, (4, 2, 0, 3, 1))

    def Kff_diag(self, X: Float[Array, "N D"]) -> Float[Array, "L N P"]:
        """Var(s_lp(X))."""

        def output(t: Array, B: Array) -> Float[Array, "N L"]:
            return in_blocks(lambda x: self._pairs(x, x, t, B, t, B), X, 1)

        return jnp.transpose(sequentially(output)(*self._nodes(X)), (2, 1, 0))

    def of_draw(self, sites: Callable, X: Float[Array, "n D"]) -> Float[Array, "n L P"]:
        """The convolutions of drawn sites [n, D] → [n, L, J] of the latents."""

        def output(t: Float[Array, "R D"], B: Float[Array, "R L J"]) -> Float[Array, "n L"]:
            s = sites(shifted(X, t))
            return jnp.einsum("nrlj,rlj->nl", s.reshape(X.shape[0], *B.shape), B)

        return jnp.transpose(sequentially(output)(*self._nodes(X)), (1, 2, 0))

    def _nodes(self, X: Array) -> tuple[Float[Array, "P R D"], Float[Array, "P R L J"]]:
        """The shifts t and the coefficients B of each output."""
        t, c = self.smoothing.rule(X.shape[1], X.dtype)
        B = c[..., None, None] * site_weights(self.prior, X.dtype)[None, :, None]
        P = self.smoothing.shape[0]
        return t.reshape(P, -1, t.shape[-1]), B.reshape(P, -1, *B.shape[3:])

    def _pairs(self, x: Array, y: Array, t: Array, B: Array, t2: Array, B2: Array) -> Float[Array, "n L"]:
        """Cov(Σ B s(x − t), Σ B2 s(y − t2)) for one x [1, D] and several y [n, D]."""
        L, (R, J) = self.prior.num_latents, B.shape[::2]
        K = repeat(self.prior.Kff(shifted(x, t), shifted(y, t2)), L).reshape(L, R, J, y.shape[0], R, J)
        return jnp.einsum("lrinsj,rli,slj->nl", K, B, B2)


def shifted(X: Float[Array, "N D"], shifts: Float[Array, "Q D"]) -> Float[Array, "NQ D"]:
    """The points x − t, all shifts t of the first x first.

    Examples:
        >>> shifted(jnp.ones((2, 1)), jnp.array([[0.0], [1.0]]))[:, 0].tolist()
        [1.0, 0.0, 1.0, 0.0]
    """
    return (X[:, None, :] - shifts[None, :, :]).reshape(-1, X.shape[1])


def sequentially(fn: Callable) -> Callable:
    """fn over the leading axis, one at a time.

    Examples:
        >>> sequentially(lambda x: 2 * x)(jnp.arange(3)).tolist()
        [0, 2, 4]
    """
    return lambda *args: jax.lax.map(lambda item: fn(*item), args)
