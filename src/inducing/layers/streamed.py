"""A sparse GP that keeps what an earlier one learnt from data that are gone (Bui, Nguyen & Turner 2017)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag, solve_triangular
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures
from inducing.features.composite import Union
from inducing.layers import qu
from inducing.layers.base import AbstractLayer
from inducing.layers.sparse_gp import SparseGP
from inducing.linalg import batched, diagonal_of
from inducing.parameters import REAL, Module, fixed


def moments_of_features(layer: SparseGP, features: Any) -> tuple[Float[Array, "L M2"], Float[Array, "G M3 M3"]]:
    """Mean and covariance of other features a of the latents, under the q(u) of a sparse GP.

        E a = μ_a + Aᵀ m,    Cov a = Kaa − Aᵀ A + Aᵀ R Rᵀ A,    A = Luu⁻¹ Kua,  q(w) = N(m, R Rᵀ)

    The cross-covariance Kua is that of `features.Union`.

    Args:
        layer: the sparse GP.
        features: a, for all latents, or a tuple with those of each.

    Returns:
        The mean [L, M'], and one covariance [M', M'] for each latent, or [1, L·M', L·M'] if q(u) couples latents.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]), mean=[1.0, 2.0])
        >>> mean, cov = moments_of_features(gp, ig.features.InducingPoints([[0.3]]))
        >>> bool(abs(mean - gp.marginals(jnp.array([[0.3]]))[0])[0, 0] < 1e-8), cov.shape
        (True, (1, 1, 1))
    """
    Kuu, m, root, _ = layer.factors()
    L, M = m.shape
    K = qu.repeat_dense(layer.prior.Kuu(_united(layer.features, features), layer.jitter), L)
    A = batched("root_solve", qu.repeat(Kuu, L), K[:, :M, M:])
    mean = layer.prior.mu_u(features) + jnp.einsum("lmn,lm->ln", A, m)
    conditional = K[:, M:, M:] - jnp.einsum("lma,lmb->lab", A, A)
    T = qu.root_transpose_matmul(root, A)
    if not qu.is_coupled(root):
        return mean, conditional + jnp.einsum("lma,lmb->lab", T, T)
    T = jnp.moveaxis(T, 0, 1).reshape(T.shape[1], -1)
    return mean, _together(conditional) + (T.T @ T)[None]


def _united(first: Any, second: Any) -> Any:
    """Both features of each latent."""
    if isinstance(first, AbstractFeatures) and isinstance(second, AbstractFeatures):
        return Union((first, second))
    num = len(first) if isinstance(first, tuple) else len(second)
    pairs = zip(*(f if isinstance(f, tuple) else (f,) * num for f in (first, second)), strict=True)
    return tuple(Union(pair) for pair in pairs)


class Factor(Module):
    """The factor (q_old(a) / p_old(a))^λ of old features a, which replaces data that are no longer available.

    Args:
        features: a; None if features and prior of the layer are still the old ones.
        centre: μ_a of the old prior [L, M].
        whitener: Laa⁻¹ of the old prior [L, M, M].
        mean: the mean of q_old(w), w = Laa⁻¹ (a − μ_a), [L, M].
        root: the root of its covariance, [L, M, M] or coupled [L·M, L·M].
        memory: λ.
    """

    features: Any
    centre: Float[Array, "L M"] | None = fixed(allowed=REAL)
    whitener: Float[Array, "L M M"] | None = fixed(allowed=REAL)
    mean: Float[Array, "L M"] = fixed(allowed=REAL)
    root: Float[Array, "..."] = fixed(allowed=REAL)
    memory: Float[Array, ""] = fixed()

    def expected_log(self, layer: SparseGP) -> Float[Array, ""]:
        """λ E log (q_old(a) / p_old(a)) under the q of a sparse GP.

        E log N(w | m, S) / N(w | 0, I) = ½ ( E|w|² − E|R⁻¹(w − m)|² ) − log |R|,    S = R Rᵀ
        """
        if self.centre is None or self.whitener is None:
            mean, root = layer.whitened(layer.Kuu())
            return self.memory * self._of_root(mean, qu.expand(root))
        mean, cov = moments_of_features(layer, self.features)
        mean = jnp.einsum("lab,lb->la", self.whitener, mean - self.centre)
        B = self.whitener if len(cov) == len(mean) else block_diag(*list(self.whitener))[None]
        return self.memory * self._of_moments(mean, B @ cov @ jnp.swapaxes(B, 1, 2))

    def _of_root(self, mean: Array, root: Array) -> Float[Array, ""]:
        shift, old = mean - self.mean, self.root
        if root.ndim == 2 or old.ndim == 2:
            root, old = _together(root), _together(old)
            shift = shift.reshape(1, -1)
        solved = solve_triangular(old, jnp.concatenate([shift[..., None], root], axis=-1), lower=True)
        return 0.5 * (jnp.sum(mean**2) + jnp.sum(root**2) - jnp.sum(solved**2)) - self._log_det()

    def _of_moments(self, mean: Array, cov: Array) -> Float[Array, ""]:
        shift, old = mean - self.mean, self.root
        if len(cov) == 1 or old.ndim == 2:
            cov, old = _together(cov), _together(old)
        shift = shift.reshape(old.shape[0], -1)
        half = solve_triangular(old, jnp.concatenate([shift[..., None], cov], axis=-1), lower=True)
        solved = solve_triangular(old, jnp.swapaxes(half[..., 1:], 1, 2), lower=True)
        kept = jnp.sum(half[..., 0] ** 2) + jnp.sum(diagonal_of(solved))
        return 0.5 * (jnp.sum(mean**2) + jnp.sum(diagonal_of(cov)) - kept) - self._log_det()

    def _log_det(self) -> Float[Array, ""]:
        return jnp.sum(jnp.log(jnp.abs(diagonal_of(self.root))))


def _together(root: Array) -> Float[Array, "1 LM LM"]:
    """One matrix for all latents."""
    return root[None] if root.ndim == 2 else block_diag(*root)[None]


class Streamed(AbstractLayer):
    """A sparse GP with the factor of an earlier one: its `kl` is KL(q ‖ p) − λ E log (q_old / p_old).

    The bound of a model with this layer is therefore the streaming bound, and any method can train it.

    Args:
        layer: the sparse GP.
        factor: the factor of the earlier sparse GP.
    """

    layer: SparseGP
    factor: Factor
    random = True
    terminal = True
    is_fresh = False

    def propagate(self, x, key, data, replicates):
        return self.layer.propagate(x, key, data, replicates)

    def cache(self):
        return self.layer.cache()

    def moments(self, x, correlated=False, cache=None):
        return self.layer.moments(x, correlated, cache)

    def joint(self, X, cache=None):
        return self.layer.joint(X, cache)

    def kl(self):
        return self.layer.kl() - self.factor.expected_log(self.layer)

    def draw(self, key, num, dim):
        return self.layer.draw(key, num, dim)

    def width(self, inputs):
        return self.layer.width(inputs)

    @property
    def correlated(self) -> bool:
        return self.layer.correlated

    @property
    def num_inputs(self) -> int | None:
        return self.layer.num_inputs

    @property
    def num_sites(self) -> int:
        return self.layer.num_sites

    @property
    def group_size(self) -> int:
        return self.layer.group_size

    def check_inputs(self, X):
        self.layer.check_inputs(X)

    def variational(self):
        return self.layer.variational()

    def gaussians(self):
        return self.layer.gaussians()

    @property
    def is_whitened(self) -> bool:
        return self.layer.is_whitened

    def relative_jitter(self):
        return self.layer.relative_jitter()

    def units(self, x):
        return self.layer.units(x)


def streamed(old: SparseGP, new: SparseGP, memory: Any, *, same: bool) -> Streamed:
    """The sparse GP `new` with the factor of `old`.

    Args:
        old: the sparse GP that was trained on earlier data.
        new: the sparse GP to train, starting from its q(u).
        memory: λ.
        same: whether `new` has the same features and prior as `old`, and keeps them.

    Returns:
        The layer.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> float(streamed(gp, gp, 1.0, same=True).kl())      # nothing was learnt
        0.0
    """
    Kuu, m, root, _ = old.factors()
    root, memory = qu.triangular(qu.expand(root)), jnp.asarray(memory, m.dtype)
    if same:
        return Streamed(new, Factor(None, None, None, m, root, memory))
    eye = jnp.broadcast_to(jnp.eye(m.shape[1], dtype=m.dtype), (*m.shape, m.shape[1]))
    whitener = batched("root_solve", qu.repeat(Kuu, m.shape[0]), eye)
    own = jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, old.features)  # a copy, so not tied to `new`
    return Streamed(new, Factor(own, old.prior.mu_u(old.features), whitener, m, root, memory))
