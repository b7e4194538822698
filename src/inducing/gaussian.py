"""Identities of multivariate Gaussians (section 2.1), and the coordinates u, v, w of q(u) (section 4.1).

The inducing variables u have the prior N(μ_u, Kuu) with Kuu = Luu Luuᵀ. Their coordinates are

    u,      v = u − μ_u,      w = Luu⁻¹ v,

so that a priori v ~ N(0, Kuu) and w ~ N(0, I).
"""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.linalg import AbstractCovariance, Dense, diagonal_of

Coordinates = Literal["u", "v", "w"]


def condition(
    muf: Float[Array, " N"],
    muu: Float[Array, " M"],
    Sff: Float[Array, "N N"],
    Sfu: Float[Array, "N M"],
    Suu: AbstractCovariance,
    u: Float[Array, " M"],
) -> tuple[Float[Array, " N"], Float[Array, "N N"]]:
    """Condition jointly Gaussian variables f on u: eq:cond_mvg.

        f | u ~ N( μ_f + Σfu Σuu⁻¹ (u − μ_u),  Σff − Σfu Σuu⁻¹ Σuf )

    Args:
        muf: the mean μ_f [N].
        muu: the mean μ_u [M].
        Sff: the covariance Σff [N, N].
        Sfu: the covariance Σfu [N, M].
        Suu: the covariance Σuu [M, M], as one of `ig.linalg`.
        u: the observed values [M].

    Returns:
        Mean [N] and covariance [N, N] of f given u.

    Examples:
        >>> from inducing.linalg import Diagonal
        >>> one = jnp.ones(1)
        >>> mean, cov = condition(0 * one, 0 * one, one[:, None], 0.5 * one[:, None], Diagonal(one), 2 * one)
        >>> float(mean[0]), float(cov[0, 0])
        (1.0, 0.75)
    """
    A = Suu.root_solve(Sfu.T)
    mean = muf + A.T @ Suu.root_solve((u - muu)[:, None])[:, 0]
    return mean, Sff - A.T @ A


def marginalise(
    muf: Float[Array, " N"],
    muu: Float[Array, " M"],
    Sff: Float[Array, "N N"],
    Sfu: Float[Array, "N M"],
    Suu: AbstractCovariance,
    m: Float[Array, " M"],
    S: Float[Array, "M M"],
) -> tuple[Float[Array, " N"], Float[Array, "N N"]]:
    """Integrate p(f | u) over another distribution q(u) = N(m, S): eq:sparse_mvg.

        f ~ N( μ_f + Σfu Σuu⁻¹ (m − μ_u),  Σff − Σfu Σuu⁻¹ (Σuu − S) Σuu⁻¹ Σuf )

    Args:
        muf: the mean μ_f [N] under the prior.
        muu: the mean μ_u [M] under the prior.
        Sff: the covariance Σff [N, N].
        Sfu: the covariance Σfu [N, M].
        Suu: the covariance Σuu [M, M], as one of `ig.linalg`.
        m: the mean [M] of q(u).
        S: the covariance [M, M] of q(u).

    Returns:
        Mean [N] and covariance [N, N] of q(f) = ∫ p(f | u) q(u) du.

    Examples:
        >>> from inducing.linalg import Diagonal
        >>> one = jnp.ones(1)
        >>> S = 0.25 * one[:, None]
        >>> mean, cov = marginalise(0 * one, 0 * one, one[:, None], one[:, None], Diagonal(one), 2 * one, S)
        >>> float(mean[0]), float(cov[0, 0])
        (2.0, 0.25)
    """
    mean, conditional = condition(muf, muu, Sff, Sfu, Suu, m)
    B = Suu.solve(Sfu.T)
    return mean, conditional + B.T @ S @ B


def linear_map(
    Phi: Float[Array, "M N"], muf: Float[Array, " N"], Sff: Float[Array, "N N"]
) -> tuple[Float[Array, " M"], Float[Array, "N M"], Dense]:
    """Compute the moments of a linear map u = Φ f of Gaussian variables: eq:muu, eq:sfu, eq:suu.

        μ_u = Φ μ_f,    Σfu = Σff Φᵀ,    Σuu = Φ Σff Φᵀ

    `condition` and `marginalise` take these moments as they are. Their results can be mapped again.

    Args:
        Phi: Φ [M, N].
        muf: the mean μ_f [N].
        Sff: the covariance Σff [N, N].

    Returns:
        μ_u [M], Σfu [N, M], and Σuu [M, M] as an `ig.linalg.Dense`, which adds jitter if it is singular (its field
        `jitter` says how much).

    Examples:
        >>> muf, Sff = jnp.array([1.0, 2.0]), jnp.eye(2)
        >>> muu, Sfu, Suu = linear_map(jnp.array([[1.0, 1.0]]), muf, Sff)
        >>> float(muu[0]), Suu.dense().tolist()
        (3.0, [[2.0]])
        >>> mean, cov = condition(muf, muu, Sff, Sfu, Suu, jnp.array([5.0]))      # f given that f_1 + f_2 = 5
        >>> mean.round(6).tolist(), cov.round(6).tolist()
        ([2.0, 3.0], [[0.5, -0.5], [-0.5, 0.5]])
    """
    Sfu = Sff @ Phi.T
    Suu = Phi @ Sfu
    return Phi @ muf, Sfu, Dense(0.5 * (Suu + Suu.T))


def log_abs_det(root: Array) -> Float[Array, ""]:
    """Compute log |det R|.

    Args:
        root: R, lower-triangular [M, M] or the diagonal [M] of a diagonal matrix.

    Returns:
        The logarithm, a number.

    Examples:
        >>> round(float(log_abs_det(jnp.array([2.0, -0.5]))), 6)
        0.0
    """
    diagonal = diagonal_of(root) if root.ndim == 2 else root
    return jnp.sum(jnp.log(jnp.abs(diagonal)))


def kl(m: Float[Array, " M"], root: Array, mu: Float[Array, " M"], covariance: AbstractCovariance) -> Float[Array, ""]:
    """Compute the Kullback–Leibler divergence between two Gaussians.

        KL( N(m, R Rᵀ) ‖ N(μ, K) ) = ½ ( tr K⁻¹RRᵀ + (m − μ)ᵀ K⁻¹ (m − μ) − M + log |K| − log |RRᵀ| )

    Args:
        m: the first mean [M].
        root: a root R of the first covariance, lower-triangular [M, M] or the diagonal [M] of a diagonal matrix.
        mu: the second mean μ [M].
        covariance: the second covariance K [M, M], as one of `ig.linalg`.

    Returns:
        The divergence, a number.

    Examples:
        >>> from inducing.linalg import Diagonal
        >>> float(kl(jnp.ones(2), jnp.ones(2), jnp.zeros(2), Diagonal(jnp.ones(2))))
        1.0
    """
    w = covariance.root_solve((m - mu)[:, None])
    R = covariance.root_solve(root if root.ndim == 2 else jnp.diag(root))
    return 0.5 * (jnp.sum(R**2) + jnp.sum(w**2) - m.shape[0] + covariance.logdet()) - log_abs_det(root)


def kl_whitened(m: Array, root: Array) -> Float[Array, ""]:
    """Compute the Kullback–Leibler divergence between a Gaussian and the standard normal distribution.

        KL( N(m, R Rᵀ) ‖ N(0, I) ) = ½ ( |R|² + |m|² − M − log |RRᵀ| )

    Args:
        m: the mean [M].
        root: a root R of the covariance, lower-triangular [M, M] or the diagonal [M] of a diagonal matrix.

    Returns:
        The divergence, a number.

    Examples:
        >>> float(kl_whitened(jnp.zeros(3), jnp.eye(3)))
        0.0
    """
    return 0.5 * (jnp.sum(root**2) + jnp.sum(m**2) - m.shape[0]) - log_abs_det(root)
