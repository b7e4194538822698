"""The sparse Gaussian process."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import barrier, default_jit, own_array
from inducing._xla.matmul import lower_gram, products
from inducing.data import some_rows
from inducing.features.base import AbstractFeatures
from inducing.gaussian import Coordinates
from inducing.layers import qu
from inducing.layers.base import AbstractLayer, standard_normal
from inducing.layers.cache import Cache, Quadratic
from inducing.layers.reduction import column_sums, mean_and_reduction, quadratic_forms, row_products
from inducing.layers.units import sparse_gp_units
from inducing.linalg import AbstractCovariance, Dense, batched, default_jitter
from inducing.numerics.quadrature import safe_sqrt
from inducing.parameters import as_float_array, dtype_of, lower_triangular, real
from inducing.priors.base import (
    AbstractPrior,
    mix_coupled_covariance,
    mix_coupled_variance,
    mix_covariance,
    mix_mean,
    mix_variance,
)
from inducing.priors.base import (
    weights as output_weights,
)
from inducing.priors.latents import apply_features


class _Sites(NamedTuple):
    """q at the sites of n points: mean [L, n·J], A = Luu⁻¹Kuf [K, M, n·J] and T = Rᵀ A."""

    mean: Array
    A: Array
    T: Array


class SparseGP(AbstractLayer):
    """The sparse GP q(f) = ∫ p(f | u) q(u) du: eq:sparse_mgp, and eq:sparse_mgp_v2, eq:sparse_mgp_v3 in v and w.

        f(·) ~ GP( μ(·) + k_·u Kuu⁻¹ (m_u − μ_u),  k(·,·') − k_·u Kuu⁻¹ (Kuu − S_uu) Kuu⁻¹ k_u·' )

    q(u) is held in one of three `coordinates`: u itself, v = u − μ_u, or w = Luu⁻¹v (whitened, the default). `mean`
    is [L, M] ([M] for one latent), `root` a root of the covariance: lower triangular [L, M, M], diagonal [L, M],
    coupled across latents [L·M, L·M], or a tuple of factors of which it is the Kronecker product (for the many features
    of `features.Product`; in w); without them, q(u) starts at the prior. `features` is one object for all latents or a
    sequence with one for each. `jitter` is relative to the diagonal of Kuu (None: by dtype).

    >>> import jax.numpy as jnp
    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints(jnp.linspace(0, 1, 5)[:, None]))
    >>> mean, variance = gp.marginals(jnp.zeros((3, 1)))
    >>> mean.shape, float(gp.kl())
    ((3, 1), 0.0)
    """

    prior: AbstractPrior
    features: AbstractFeatures | tuple[AbstractFeatures, ...]
    mean: Float[Array, "L M"] = real()
    root: Float[Array, "..."] | tuple[Float[Array, "..."], ...] = lower_triangular()
    coordinates: Coordinates = eqx.field(static=True)
    jitter: float = eqx.field(static=True)

    @property
    def random(self) -> bool:
        return True

    @property
    def terminal(self) -> bool:
        return True

    def __init__(
        self,
        prior: AbstractPrior,
        features: AbstractFeatures | Sequence[AbstractFeatures],
        mean: Any = None,
        root: Any = None,
        coordinates: Coordinates = "w",
        jitter: float | None = None,
    ):
        if not isinstance(prior, AbstractPrior):
            raise TypeError(f"prior must be a prior such as ig.GP(kernel), got {type(prior).__name__}.")
        if coordinates not in ("u", "v", "w"):
            raise ValueError(f"coordinates must be 'u', 'v' or 'w', got {coordinates!r}.")
        self.prior = prior
        self.features = _checked_features(features, prior)
        self.coordinates = coordinates
        dtype = dtype_of(prior, self.features)
        self.jitter = default_jitter(dtype) if jitter is None else _checked_jitter(jitter)
        L, M = prior.num_latents, self.num_features
        jax.eval_shape(lambda: prior.Kuu(self.features, self.jitter))  # refuses features that the kernel cannot serve
        own = self.features if isinstance(self.features, tuple) else (self.features,)
        for part, kernel in zip(own * (L // len(own)), prior.kernels * (L // len(prior.kernels)), strict=True):
            part.check_inputs(kernel)
        if mean is None:
            mean = prior.mu_u(self.features) if coordinates == "u" else np.zeros((L, M), dtype)
            mean = mean if mean.shape == (L, M) else jnp.broadcast_to(mean, (L, M))
        if root is None:
            if coordinates == "w":
                root = np.broadcast_to(np.eye(M, dtype=dtype), (L, M, M))
            else:
                root = jnp.linalg.cholesky(qu.repeat_dense(self.Kuu(), L))
        mean = as_float_array(mean)
        root = tuple(as_float_array(f) for f in root) if isinstance(root, tuple) else as_float_array(root)
        for name, array in (("mean", mean), *(("root", r) for r in jax.tree.leaves(root))):
            if not hasattr(array, "shape"):
                raise TypeError(
                    f"{name} must be an array, got {array!r}; one of [{L}, {M}] is a mean or diagonal root."
                )
        if qu.is_kronecker(root) and coordinates != "w":
            raise ValueError(f"a Kronecker root is for coordinates 'w', not {coordinates!r}; leave coordinates out.")
        if mean.size != L * M or mean.shape[-1] != M:
            raise ValueError(f"mean has shape {list(mean.shape)}; for {L} latents and {M} features pass [{L}, {M}].")
        self.mean = mean.reshape(L, M)
        self.root = qu.as_root(root, L, M)

    @property
    def num_features(self) -> int:
        """M, for each latent."""
        first = self.features if isinstance(self.features, AbstractFeatures) else self.features[0]
        return first.num_features

    @property
    def correlated(self) -> bool:
        """Whether the outputs at one input are correlated: q(u) couples the latents, the prior mixes them, or several
        outputs look at one latent."""
        prior = self.prior
        mixed = qu.is_coupled(self.root) or prior.num_sites > 1 or output_weights(prior) is not None
        return mixed and prior.num_outputs > 1

    def as_sparse_gp(self) -> "SparseGP":
        return self

    def Kuu(self) -> AbstractCovariance:
        """The prior covariance of u, stacked along a leading axis K (L, or 1 if all latents share it)."""
        return self.prior.Kuu(self.features, self.jitter)

    def whitened(self, Kuu: AbstractCovariance) -> tuple[Float[Array, "L M"], qu.Root]:
        """Mean and root of q(w), whatever the coordinates: w = Luu⁻¹ (u − μ_u)."""
        if self.coordinates == "w":
            return self.mean, self.root
        L = self.prior.num_latents
        v = self.mean - self.prior.mu_u(self.features) if self.coordinates == "u" else self.mean
        m = batched("root_solve", qu.repeat(Kuu, L), v[..., None])[..., 0]
        return m, qu.whiten(self.root, Kuu, L)

    def with_coordinates(self, coordinates: Coordinates) -> "SparseGP":
        """The same process with q(u) in other coordinates; a diagonal root becomes a full one.

        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> gp.with_coordinates("u").coordinates
        'u'
        """
        if coordinates == self.coordinates:
            return self
        Kuu, L = self.Kuu(), self.prior.num_latents
        m, root = self.whitened(Kuu)
        root = qu.expand(root)
        if coordinates != "w":
            m = batched("root_matmul", qu.repeat(Kuu, L), m[..., None])[..., 0]
            root = qu.colour(root, Kuu, L)
        if coordinates == "u":
            m = m + self.prior.mu_u(self.features)
        return SparseGP(self.prior, self.features, m, qu.triangular(root), coordinates, self.jitter)

    def kl(self) -> Float[Array, ""]:
        """KL(q(u) ‖ p(u)), which is the KL between the processes q(f) and p(f): eq:kl_derivation."""
        if self.coordinates == "w":
            return qu.kl(self.mean, self.root, qu.log_abs_det(self.root))
        Kuu = self.Kuu()
        m, root = self.whitened(Kuu)
        logdet = jnp.sum(batched("logdet", Kuu)) * (self.prior.num_latents // jax.tree.leaves(Kuu)[0].shape[0])
        return qu.kl(m, root, qu.log_abs_det(self.root) - 0.5 * logdet)

    def cache(self) -> Cache:
        """Factorise Kuu and whiten q(u) once, for `marginals` and `moments` at many inputs; use it by `with_cache`.

        Its quadratic form is taken as it is: `with_cache` leaves it out where it would not be accurate.
        """
        factors = self.factors()
        dense = isinstance(factors.Kuu, Dense) and not qu.is_coupled(self.root)
        if not dense or factors.mean.dtype != jnp.float64:  # in float32 the quadratic form gives negative variances
            return factors
        return factors._replace(quadratic=self._quadratic(factors))

    def factors(self) -> Cache:
        """The factorised Kuu and q(w).

        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> gp.factors().mean.shape
        (1, 2)
        """
        Kuu = self.Kuu()
        return Cache(Kuu, *self.whitened(Kuu))

    def _quadratic(self, factors: Cache) -> Quadratic:
        assert isinstance(factors.Kuu, Dense)
        L, M = factors.mean.shape
        Kuu = qu.repeat(factors.Kuu, L)
        root = qu.expand(factors.root)
        rest = jnp.eye(M, dtype=root.dtype)[None] - lower_gram(root)
        transposed = jnp.swapaxes(Kuu.inverse_root, 1, 2)
        C = products(transposed, jnp.swapaxes(products(transposed, rest, "upper"), 1, 2), "upper")
        alpha = batched("root_solve_transpose", Kuu, factors.mean[..., None])[..., 0]
        # Rounding costs about 100 ε max|C| k² in a variance; the smallest variances are about those at the features.
        smallest = jnp.min(jnp.sum(qu.colour(root, factors.Kuu, L) ** 2, axis=2), axis=1)
        scale = jnp.mean(batched("diagonal", Kuu), axis=1)
        lost = 100.0 * jnp.finfo(C.dtype).eps * jnp.max(jnp.abs(C), axis=(1, 2)) * scale**2
        return Quadratic(alpha, C, jnp.all(lost <= 1e-4 * smallest))

    def _sites(self, X: Float[Array, "n D"], cache: Cache | None = None) -> _Sites:
        Kuu, m, root, _ = self.factors() if cache is None else cache
        Kuf = self.prior.Kuf(self.features, X)
        A = batched("root_solve", Kuu, Kuf.reshape(*Kuf.shape[:2], -1))
        return _Sites(row_products(m, A), A, qu.root_transpose_matmul(root, A))

    def marginals(
        self, X: Float[Array, "n D"], cache: Cache | None = None
    ) -> tuple[Float[Array, "n P"], Float[Array, "n P"]]:
        """Mean and variance of each output of q(f) at each input."""
        n, J, L = X.shape[0], self.prior.num_sites, self.prior.num_latents
        prior_variance = self.prior.Kff_diag(X)
        if cache is not None and cache.quadratic is not None:
            mean_s, reduction = self._quick_reduction(X, cache)
            variance = mix_variance(self.prior, prior_variance - reduction.reshape(L, n, J))
        elif not qu.is_coupled(self.root):
            mean_s, reduction = self._reduction(X, cache)
            variance = mix_variance(self.prior, prior_variance - reduction.reshape(L, n, J))
        else:
            mean_s, A, T = self._sites(X, cache)
            conditional = prior_variance - column_sums(A**2).reshape(-1, n, J)
            C = jnp.einsum("lin,kin->nlk", T, T).reshape(n, J, L, L)
            variance = mix_variance(self.prior, conditional) + mix_coupled_variance(self.prior, C)
        mean = self.prior.mean(X) + mix_mean(self.prior, jnp.moveaxis(mean_s.reshape(L, n, J), 0, 1))
        floor = jnp.finfo(X.dtype).eps * mix_variance(self.prior, prior_variance)
        return mean, jnp.maximum(variance, floor)

    def _reduction(self, X: Float[Array, "n D"], cache: Cache | None) -> tuple[Array, Array]:
        """The mean [L, n·J] of the sites of uncoupled latents, and by how much q reduces their prior variance."""
        Kuu, m, root, _ = self.factors() if cache is None else cache
        if isinstance(Kuu, Dense) and qu.is_full(root):
            Kuf = self.prior.Kuf(self.features, X)
            return mean_and_reduction(Kuu.matrix, Kuu.inverse_root, Kuf.reshape(*Kuf.shape[:2], -1), m, root)
        sites = self._sites(X, cache)
        explained, kept = column_sums(sites.A**2), column_sums(sites.T**2)
        return sites.mean, jnp.broadcast_to(explained, kept.shape) - kept

    def _quick_reduction(self, X: Float[Array, "n D"], cache: Cache) -> tuple[Array, Array]:
        assert cache.quadratic is not None
        alpha, C, _ = cache.quadratic
        Kuf = self.prior.Kuf(self.features, X)
        Kuf = Kuf.reshape(*Kuf.shape[:2], -1)
        return row_products(alpha, Kuf), quadratic_forms(C, Kuf)

    def site_covariance(self, X: Float[Array, "N G D"], cache: Cache | None = None) -> tuple[Array, Array]:
        """Mean [N, L, G, J] and covariance of the sites of each latent, jointly within each group of G points.

        The covariance is [N, L, G·J, G·J], or [N, 1, L·G·J, L·G·J] if q(u) couples the latents.
        """
        N, G, D = X.shape
        J, L = self.prior.num_sites, self.prior.num_latents
        g = G * J
        sites = self._sites(X.reshape(N * G, D), cache)
        mean = jnp.moveaxis(sites.mean.reshape(L, N, G, J), 0, 1)
        Kff = jax.vmap(self.prior.Kff)(X) if g > 1 else self.prior.Kff_diag(X[:, 0]).T
        Kff = Kff.reshape(N, -1, g, g)
        A = sites.A.reshape(*sites.A.shape[:2], N, g)
        T = sites.T.reshape(*sites.T.shape[:2], N, g)
        conditional = Kff - jnp.einsum("kmng,kmnh->nkgh", A, A)
        conditional = jnp.broadcast_to(conditional, (N, L, g, g))
        if not qu.is_coupled(self.root):
            return mean, conditional + jnp.einsum("lmng,lmnh->nlgh", T, T)
        C = jnp.einsum("lmng,kmnh->nlgkh", T, T)
        C = C + jnp.einsum("nlgh,lk->nlgkh", conditional, jnp.eye(L, dtype=X.dtype))
        return mean, C.reshape(N, 1, L * g, L * g)

    def joint(
        self, X: Float[Array, "N G D"], cache: Cache | None = None
    ) -> tuple[Float[Array, "N G P"], Float[Array, "N GP GP"]]:
        """Mean and covariance of all outputs at the G points of each of N groups, flattened point by point."""
        N, G, D = X.shape
        P, J, L = self.prior.num_outputs, self.prior.num_sites, self.prior.num_latents
        mean_s, cov_s = self.site_covariance(X, cache)
        mean = self.prior.mean(X.reshape(N * G, D)).reshape(N, G, P) + mix_mean(self.prior, jnp.swapaxes(mean_s, 1, 2))
        if qu.is_coupled(self.root):
            C = cov_s.reshape(N, L, G, J, L, G, J)
            cov = jax.vmap(lambda c: mix_coupled_covariance(self.prior, c))(C)
        else:
            cov = jax.vmap(lambda c: mix_covariance(self.prior, c))(cov_s.reshape(N, L, G, J, G, J))
        return mean, cov.reshape(N, G * P, G * P)

    def moments(self, x, correlated=False, cache=None):
        N, R, D = x.shape
        P = self.prior.num_outputs
        if correlated and self.correlated:
            mean, cov = self.joint(x.reshape(N * R, 1, D), cache)
            return mean.reshape(N, R, P), cov.reshape(N, R, P, P)
        mean, variance = self.marginals(x.reshape(N * R, D), cache)
        return mean.reshape(N, R, P), variance.reshape(N, R, P)

    def propagate(self, x, key, data, replicates):
        """A sample of f at the replicates of each datum: jointly over replicates, independently over data."""
        N, R, D = x.shape
        zero = jnp.zeros((N, R), x.dtype)
        if R == 1 and self.prior.num_sites == 1 and not qu.is_coupled(self.root):
            return self._sample_each(x[:, 0], key)[:, None], zero
        mean = self.prior.mean(x.reshape(N * R, D)).reshape(N, R, self.prior.num_outputs)
        return mean + mix_mean(self.prior, self._sample_jointly(x, key)), zero

    def _sample_each(self, X: Float[Array, "n D"], key: Array) -> Float[Array, "n P"]:
        """A sample of f at each point by itself, for uncoupled latents with one site."""
        # behind a barrier: XLA would make the transpose a part of the product that gives the mean, and that slow
        mean_s, reduction = barrier(self._reduction(X, None))
        mean = self.prior.mean(X) + mix_mean(self.prior, mean_s.T[..., None])
        prior_variance = jnp.broadcast_to(self.prior.Kff_diag(X)[..., 0], mean_s.shape)
        variance = (prior_variance - reduction).T
        scale = safe_sqrt(jnp.maximum(variance, jnp.finfo(X.dtype).eps * prior_variance.T))
        noise = standard_normal(key, scale.shape, X.dtype)
        return mean + mix_mean(self.prior, (scale * noise)[..., None])

    def _sample_jointly(self, x: Float[Array, "N R D"], key: Array) -> Float[Array, "N R L J"]:
        """A sample of the sites, jointly over the replicates of a datum."""
        mean, cov = self.site_covariance(x)
        # a process without any variance at a datum, such as a linear one at 0, is its mean there
        moves = jnp.max(jnp.diagonal(cov, axis1=2, axis2=3), axis=2)[..., None, None] > 0
        eye = jnp.eye(cov.shape[-1], dtype=cov.dtype)[None, None]
        root = jax.vmap(jax.vmap(lambda c: Dense(c, self.jitter).root))(jnp.where(moves, cov, eye))
        root = jnp.where(moves, root, 0.0)
        noise = standard_normal(key, root.shape[:-1], x.dtype)
        return jnp.swapaxes(mean + jnp.einsum("nlgh,nlh->nlg", root, noise).reshape(mean.shape), 1, 2)

    def draw(self, key: Array, num: int, dim: int):
        """One function [n, D] → [n, P] of q(f), by pathwise conditioning (Matheron's rule).

            f(·) = μ(·) + g(·) + k_·u Kuu⁻¹ (v − apply(g)),     g ~ GP(0, k),  v ~ q(v)

        where g is drawn from `num` random features of the kernel: its mean and covariance over draws are those of q(f).
        """
        key_g, key_u = jax.random.split(key)
        L = self.prior.num_latents
        g, sites = self.prior.draw(key_g, num, dim)
        Kuu = self.Kuu()
        m, root = self.whitened(Kuu)
        noise = standard_normal(key_u, m.shape, m.dtype)
        w = m + qu.root_matmul(root, noise)
        own = apply_features(self.features, self.prior.kernels, g, L)  # [L, M]
        whitened_own = batched("root_solve", qu.repeat(Kuu, L), own[..., None])[..., 0]
        weights = batched("root_solve_transpose", qu.repeat(Kuu, L), (w - whitened_own)[..., None])[..., 0]

        def f(X: Float[Array, "n D"], x: Array | None = None) -> Float[Array, "n P"]:
            Kuf = self.prior.Kuf(self.features, X)
            update = jnp.einsum("lm,lmnj->nlj", weights, jnp.broadcast_to(Kuf, (L, *Kuf.shape[1:])))
            return self.prior.mean(X) + mix_mean(self.prior, sites(X) + update)

        return f

    def width(self, inputs: int | None) -> int:
        if inputs is not None:
            x = jax.ShapeDtypeStruct((1, inputs), dtype_of(self))
            try:
                jax.eval_shape(lambda X: (self.prior.Kuf(self.features, X), self.prior.mean(X)), x)
            except (TypeError, ValueError) as error:
                raise ValueError(f"its prior or features do not take {inputs} inputs ({error})") from error
        return self.prior.num_outputs

    @property
    def couples_replicates(self) -> bool:
        return True  # f is drawn jointly over the replicates of a datum

    @property
    def num_inputs(self) -> int | None:
        features = self.features if isinstance(self.features, AbstractFeatures) else self.features[0]
        return None if features.num_inputs is None else self.prior.input_columns(features.num_inputs)

    @property
    def num_sites(self) -> int:
        return self.prior.num_sites

    @property
    def group_size(self) -> int:
        return self.prior.group_size

    def check_inputs(self, X):
        self.prior.check_inputs(X)

    def check_below(self, below, name):
        if self.prior.indexes_outputs and below is not None and below.random:
            raise ValueError(
                f"{name} takes rows (x, p), the number of the output last, but the {type(below).__name__} below it "
                "puts a random number there; move p to the end by an ig.Deterministic layer between them."
            )

    def variational(self):
        return self.features, self.mean, self.root

    def gaussians(self):
        return ((self.mean, self.root),)

    @property
    def is_whitened(self) -> bool:
        return self.coordinates == "w"

    def relative_jitter(self):
        return jnp.max(self.Kuu().relative_jitter)

    @property
    def is_fresh(self) -> bool:
        """Whether q(u) = p(u), or its covariance is a multiple of that of p(u), as in the inner layers of deep GPs."""
        if self.coordinates != "w":
            return abs(float(self.kl())) <= 1e-6 * self.mean.size
        return not np.any(np.asarray(self.mean)) and all(_is_scalar(np.asarray(R)) for R in jax.tree.leaves(self.root))

    def at_prior(self):
        if self.coordinates == "w":  # q(w) = N(0, I) is the prior, whatever its parameters are
            return self
        own = SparseGP(self.prior, self.features, coordinates=self.coordinates, jitter=self.jitter)
        if not qu.is_diagonal(self.root):
            return own
        variances = batched("diagonal", qu.repeat(own.Kuu(), own.prior.num_latents))
        return eqx.tree_at(lambda gp: gp.root, own, jnp.sqrt(variances)[:, None])

    def units(self, x):
        return sparse_gp_units(self, x)

    def start_inputs(self, x, data, seeds):
        places = self.prior.latent_inputs(np.asarray(x()))
        starts = [start for kernel in self.prior.kernels for start in kernel.start(places)]

        @functools.cache
        def outputs() -> Array:  # of the prior, since q is about to be set to the prior with other parameters
            mean, variance = (np.asarray(a) for a in _prior_moments(self.prior, some_rows(x())))
            noise = np.random.default_rng(next(seeds)).standard_normal(mean.shape)
            return own_array(mean + np.sqrt(variance) * noise, mean.dtype)

        return starts, outputs

    def start_outputs(self, likelihood, x, y, width):
        """Where the inputs are unknown, the prior variance is that at the inducing points, or at the origin."""
        if x is None:
            Z = self.features.locations if isinstance(self.features, AbstractFeatures) else None
            x = jnp.zeros((1, width), dtype_of(self)) if Z is None or Z.shape[1] != width else Z
        return self.prior.start(likelihood, np.asarray(x), y)


@default_jit  # one program to compile, not one for each operation
def _prior_moments(prior: AbstractPrior, x: Array) -> tuple[Array, Array]:
    return prior.mean(x), mix_variance(prior, prior.Kff_diag(x))


def _is_scalar(root: np.ndarray) -> bool:
    """Whether a root, or a factor of a Kronecker root, is a multiple of the identity."""
    one = np.eye(root.shape[-1]) if root.shape[-2] == root.shape[-1] else 1.0
    return bool(np.all(root == root.flat[0] * one))


def sparse_gps(tree: Any) -> list[SparseGP]:
    """The sparse GPs of a model, or of a tree of its structure, in their order; also those inside a `Skip`.

    >>> import inducing as ig
    >>> gp = SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> len(sparse_gps([ig.Skip(gp), ig.LatentVariable(1), gp]))
    2
    """
    parts = jax.tree.leaves(tree, is_leaf=lambda v: isinstance(v, SparseGP))
    return [part for part in parts if isinstance(part, SparseGP)]


def _checked_jitter(jitter: Any) -> float:
    try:
        value = float(jitter)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"jitter must be 0 or a positive number, got {jitter!r}.")
    return value


def _checked_features(features: Any, prior: AbstractPrior) -> Any:
    if isinstance(features, AbstractFeatures):
        return features
    if hasattr(features, "shape"):
        raise TypeError(
            f"features must be one of ig.features, got an array of shape {tuple(features.shape)}; inducing inputs are "
            "ig.features.InducingPoints(Z)."
        )
    features = tuple(features) if isinstance(features, Sequence) else (features,)
    if len(features) != prior.num_latents or not all(isinstance(f, AbstractFeatures) for f in features):
        raise ValueError(
            f"features must be one ig.features object, or one for each of the {prior.num_latents} latents; "
            f"got {', '.join(dict.fromkeys(type(f).__name__ for f in features)) or 'none'} ({len(features)})."
        )
    if len({f.num_features for f in features}) > 1:
        numbers = [f.num_features for f in features]
        raise ValueError(f"features has {numbers} features for the latents; give each latent {max(numbers)}, say.")
    return features if len(features) > 1 else features[0]
