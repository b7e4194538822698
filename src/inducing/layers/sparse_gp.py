"""The sparse Gaussian process."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import check_memory
from inducing.features.base import AbstractFeatures
from inducing.gaussian import Coordinates
from inducing.layers import qu
from inducing.layers.base import AbstractLayer
from inducing.layers.cache import Cache, with_quadratic
from inducing.layers.reduction import column_sums, mean_and_reduction, quadratic_forms, row_products
from inducing.layers.sampling import draw_function, sample_each, sample_jointly, sample_with_u
from inducing.layers.sparse_gp_arguments import (
    check_features_suit,
    check_q,
    checked_features,
    checked_jitter,
    checked_q,
    prior_mean,
    prior_root,
)
from inducing.layers.starting_values import start_sample_of_prior
from inducing.layers.units import feature_variances, mean_units, spread_beside
from inducing.linalg import AbstractCovariance, Dense, batched, default_jitter
from inducing.parameters import REAL, check_part, dtype_of, lower_triangular, parameters, real
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


class _Sites(NamedTuple):
    """q at the sites of n points: mean [L, n·J], A = Luu⁻¹Kuf [K, M, n·J] and T = Rᵀ A."""

    mean: Array
    A: Array
    T: Array


class SparseGP(AbstractLayer):
    """A sparse Gaussian process: the approximate posterior of a GP given by inducing variables u.

        q(f) = ∫ p(f | u) q(u) du
        f(·) ~ GP( μ(·) + k_·u Kuu⁻¹ (m_u − μ_u),  k(·,·') − k_·u Kuu⁻¹ (Kuu − S_uu) Kuu⁻¹ k_u·' )

    These are eq:sparse_mgp, and eq:sparse_mgp_v2 and eq:sparse_mgp_v3 in the coordinates v and w.

    Args:
        prior: the GP, such as `ig.GP(kernel)`, with L latent processes and P outputs.
        features: the features that define u, such as `ig.features.InducingPoints(Z)`: one object for all latents, or a
            sequence with one for each. M is the number of features of each latent. If the latents have different
            numbers of features, M is the largest, and the others are padded with variables that have no effect
            (`ig.features.Padded`).
        mean: the mean of q [L, M], or [M] for one latent. By default that of the prior.
        root: a root of the covariance of q. It is lower triangular [L, M, M], diagonal [L, M], coupled across latents
            [L·M, L·M], or a tuple of factors of a Kronecker product, for the many features of `features.Product` in
            coordinates w. By default that of the prior.
        coordinates: the coordinates of `mean` and `root`: "u", "v" for v = u − μ_u, or "w" for the whitened
            w = Luu⁻¹ v.
        jitter: added to the diagonal of Kuu, relative to it. By default it depends on the dtype.

    Raises:
        TypeError: if an argument has the wrong type, or the features need something that the kernel does not have.
        ValueError: if shapes do not fit together.

    Examples:
        >>> import inducing as ig
        >>> features = ig.features.InducingPoints(jnp.linspace(0, 1, 5)[:, None])
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), features)
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
    random = True
    terminal = True
    couples_replicates = True  # f is drawn jointly over the replicates of a datum

    def __init__(
        self,
        prior: AbstractPrior,
        features: AbstractFeatures | Sequence[AbstractFeatures],
        mean: Any = None,
        root: Any = None,
        coordinates: Coordinates = "w",
        jitter: float | None = None,
    ):
        check_part("prior", prior, AbstractPrior)
        if not isinstance(coordinates, str) or coordinates not in ("u", "v", "w"):
            raise ValueError(f"coordinates must be 'u', 'v' or 'w', got {coordinates!r}.")
        self.prior = prior
        self.features = checked_features(features, prior)
        self.coordinates = coordinates
        dtype = dtype_of(prior, self.features)
        self.jitter = default_jitter(dtype) if jitter is None else checked_jitter(jitter)
        shape = prior.num_latents, self.num_features
        if root is None:
            check_memory("the root of q(u)", (*shape, shape[1]), dtype, "use fewer features or latents")
        if coordinates != "w":  # otherwise `__check_init__` is early enough, since nothing is computed before it
            check_features_suit(self.features, prior, self.jitter)
        if mean is None:
            mean = prior_mean(prior, self.features, coordinates, shape, dtype)
        if root is None:
            root = prior_root(None if coordinates == "w" else self.Kuu(), shape, dtype)
        self.mean, self.root = checked_q(mean, root, coordinates, shape)

    def __check_init__(self):
        check_q(self.mean, self.root, self.coordinates, (self.prior.num_latents, self.num_features))
        checked_jitter(self.jitter)
        if checked_features(self.features, self.prior) is not self.features:
            raise ValueError("features must be one object, or a tuple with features of one size for each latent.")
        check_features_suit(self.features, self.prior, self.jitter)

    @property
    def num_features(self) -> int:
        """M, for each latent."""
        first = self.features if isinstance(self.features, AbstractFeatures) else self.features[0]
        return first.num_features

    @property
    def correlated(self) -> bool:
        """Whether q(u) couples the latents, the prior mixes them, or several outputs are functionals of one latent."""
        prior = self.prior
        mixed = qu.is_coupled(self.root) or prior.num_sites > 1 or output_weights(prior) is not None
        return mixed and prior.num_outputs > 1

    def as_sparse_gp(self) -> "SparseGP":
        return self

    def Kuu(self) -> AbstractCovariance:
        """The prior covariance of u, stacked along a leading axis K (L, or 1 if all latents share it)."""
        return self.prior.Kuu(self.features, self.jitter)

    def whitened(self, Kuu: AbstractCovariance) -> tuple[Float[Array, "L M"], qu.Root]:
        """Mean and root of q(w), w = Luu⁻¹ (u − μ_u), whatever the coordinates of the layer are."""
        if self.coordinates == "w":
            return self.mean, self.root
        L = self.prior.num_latents
        v = self.mean - self.prior.mu_u(self.features) if self.coordinates == "u" else self.mean
        m = batched("root_solve", qu.repeat(Kuu, L), v[..., None])[..., 0]
        return m, qu.whiten(self.root, Kuu, L)

    def with_coordinates(self, coordinates: Coordinates) -> "SparseGP":
        """The same process with q(u) in other coordinates; a diagonal root becomes a full one.

        Args:
            coordinates: "u", "v" or "w".

        Returns:
            The new layer.

        Examples:
            >>> import inducing as ig
            >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
            >>> gp.with_coordinates("u").coordinates
            'u'
        """
        if coordinates == self.coordinates:
            return self
        Kuu = self.Kuu()
        q = self._in_coordinates(coordinates, *self.whitened(Kuu), Kuu)
        return SparseGP(self.prior, self.features, *q, coordinates, self.jitter)

    def with_q(self, mean: Float[Array, "L M"], root: Array) -> "SparseGP":
        """The same layer with another q(u), which keeps its coordinates.

        Args:
            mean: the mean of q(w) [L, M].
            root: the root of the covariance of q(w), [L, M, M] or coupled [L·M, L·M].

        Returns:
            The new layer.

        Examples:
            >>> import inducing as ig
            >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
            >>> gp.with_q(jnp.array([[1.0, 2.0]]), gp.root).mean.tolist()
            [[1.0, 2.0]]
        """
        if self.coordinates != "w":
            mean, root = self._in_coordinates(self.coordinates, mean, root, self.Kuu())
        return eqx.tree_at(lambda gp: (gp.mean, gp.root), self, (mean, root))

    def _in_coordinates(
        self, coordinates: Coordinates, mean: Array, root: qu.Root, Kuu: AbstractCovariance
    ) -> tuple[Float[Array, "L M"], Array]:
        """Mean and lower-triangular root of q in these coordinates, from those of q(w)."""
        L, root = self.prior.num_latents, qu.expand(root)
        if coordinates != "w":
            mean = batched("root_matmul", qu.repeat(Kuu, L), mean[..., None])[..., 0]
            root = qu.colour(root, Kuu, L)
        if coordinates == "u":
            mean = mean + self.prior.mu_u(self.features)
        return mean, qu.triangular(root)

    def kl(self) -> Float[Array, ""]:
        """KL(q(u) ‖ p(u)), which equals the KL divergence between the processes q(f) and p(f): eq:kl_derivation."""
        if self.coordinates == "w":
            return qu.whitened_kl(self.mean, self.root, qu.log_abs_det(self.root))
        Kuu = self.Kuu()
        return qu.whitened_kl(*self.whitened(Kuu), self.log_det_q(Kuu))

    def log_det_q(self, Kuu: AbstractCovariance) -> Float[Array, ""]:
        """log |det R| for the root R of q(w), whatever the coordinates of the layer are."""
        if self.coordinates == "w":
            return qu.log_abs_det(self.root)
        logdet = jnp.sum(batched("logdet", Kuu)) * (self.prior.num_latents // jax.tree.leaves(Kuu)[0].shape[0])
        return qu.log_abs_det(self.root) - 0.5 * logdet

    def cache(self) -> Cache:
        return with_quadratic(self.factors())

    def factors(self) -> Cache:
        """The cache without its quadratic form: the factorised Kuu, and the mean and root of q(w).

        Examples:
            >>> import inducing as ig
            >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
            >>> gp.factors().mean.shape
            (1, 2)
        """
        Kuu = self.Kuu()
        return Cache(Kuu, *self.whitened(Kuu))

    def _sites(self, X: Float[Array, "n D"], cache: Cache | None = None) -> _Sites:
        Kuu, m, root, _ = self.factors() if cache is None else cache
        A = batched("root_solve", Kuu, _flat(self.prior.Kuf(self.features, X)))
        return _Sites(row_products(m, A), A, qu.root_transpose_matmul(root, A))

    def marginals(
        self, X: Float[Array, "n D"], cache: Cache | None = None
    ) -> tuple[Float[Array, "n P"], Float[Array, "n P"]]:
        """Mean and variance of each output of q(f) at each input.

        Args:
            X: inputs [n, D].
            cache: the layer's `cache`, if it is known; use one that is `settled`.

        Returns:
            Mean and variance, [n, P] each.
        """
        n, J, L = X.shape[0], self.prior.num_sites, self.prior.num_latents
        prior_variance = self.prior.Kff_diag(X)
        if not qu.is_coupled(self.root):
            mean_s, reduction = self.mean_and_reduction(X, cache)
            variance = mix_variance(self.prior, prior_variance - reduction.reshape(L, n, J))
        else:
            mean_s, A, T = self._sites(X, cache)
            conditional = prior_variance - column_sums(A**2).reshape(-1, n, J)
            C = jnp.einsum("lin,kin->nlk", T, T).reshape(n, J, L, L)
            variance = mix_variance(self.prior, conditional) + mix_coupled_variance(self.prior, C)
        mean = self.prior.mean(X) + mix_mean(self.prior, jnp.moveaxis(mean_s.reshape(L, n, J), 0, 1))
        floor = jnp.finfo(X.dtype).eps * mix_variance(self.prior, prior_variance)
        return mean, jnp.maximum(variance, floor)

    def mean_and_reduction(
        self, X: Float[Array, "n D"], cache: Cache | None = None
    ) -> tuple[Float[Array, "L nJ"], Float[Array, "L nJ"]]:
        """What q(u) adds to the mean of each site and subtracts from its prior variance. q(u) must not couple latents.

        Examples:
            >>> import inducing as ig
            >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
            >>> mean, reduction = gp.mean_and_reduction(jnp.zeros((3, 1)))
            >>> mean.shape, bool(jnp.all(reduction == 0.0))
            ((1, 3), True)
        """
        Kuu, m, root, quadratic = self.factors() if cache is None else cache
        if quadratic is not None:
            Kuf = _flat(self.prior.Kuf(self.features, X))
            return row_products(quadratic.alpha, Kuf), quadratic_forms(quadratic.C, Kuf)
        if isinstance(Kuu, Dense) and qu.is_full(root):
            return mean_and_reduction(Kuu, _flat(self.prior.Kuf(self.features, X)), m, root)
        sites = self._sites(X, cache)
        explained, kept = column_sums(sites.A**2), column_sums(sites.T**2)
        return sites.mean, jnp.broadcast_to(explained, kept.shape) - kept

    def site_covariance(self, X: Float[Array, "N G D"], cache: Cache | None = None) -> tuple[Array, Array]:
        """Mean [N, L, G, J] and covariance of the sites of each latent, jointly within each group of G points.

        The covariance is [N, L, G·J, G·J], or [N, 1, L·G·J, L·G·J] if q(u) couples the latents.
        """
        N, G, D = X.shape
        J, L = self.prior.num_sites, self.prior.num_latents
        g = G * J
        sites = self._sites(X.reshape(N * G, D), cache)
        mean = jnp.moveaxis(sites.mean.reshape(L, N, G, J), 0, 1)
        Kff = self.prior.Kff_diag(X[:, 0]).T if g == 1 else jax.vmap(self.prior.Kff)(X)
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
        N, R, D = x.shape
        zero = jnp.zeros((N, R), x.dtype)
        if R == 1 and self.prior.num_sites == 1 and not qu.is_coupled(self.root):
            return sample_each(self, x[:, 0], key)[:, None], zero
        mean = self.prior.mean(x.reshape(N * R, D)).reshape(N, R, self.prior.num_outputs)
        return mean + mix_mean(self.prior, sample_jointly(self, x, key)), zero

    def draw(self, key, num, dim):
        return draw_function(self, key, num, dim)

    def sample_global(self, x, key, data, weight):
        f, log_ratio = sample_with_u(self, x[:, 0], key)
        return f[:, None], log_ratio

    def width(self, inputs: int | None) -> int:
        if inputs is not None:
            x = jax.ShapeDtypeStruct((1, inputs), dtype_of(self))
            try:
                jax.eval_shape(lambda X: (self.prior.Kuf(self.features, X), self.prior.mean(X)), x)
            except (TypeError, ValueError) as error:
                raise ValueError(f"its prior or features do not take {inputs} inputs ({error})") from error
        return self.prior.num_outputs

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
        return not np.any(np.asarray(self.mean)) and qu.is_scalar(self.root)

    def at_prior(self):
        """The layer with q(u) = p(u). A diagonal root stays diagonal."""
        if self.coordinates == "w":  # q(w) = N(0, I) is the prior, whatever its parameters are
            return self
        own = SparseGP(self.prior, self.features, coordinates=self.coordinates, jitter=self.jitter)
        if not qu.is_diagonal(self.root):
            return own
        variances = batched("diagonal", qu.repeat(own.Kuu(), own.prior.num_latents))
        return eqx.tree_at(lambda gp: gp.root, own, jnp.sqrt(variances)[:, None])

    def units(self, x):
        """Units of inducing inputs, of q(u) unless it is whitened, of means, and of locations in kernels."""
        places = None if x is None else self.prior.latent_inputs(np.asarray(x))
        features = (self.features,) if isinstance(self.features, AbstractFeatures) else self.features
        units = [unit for own in features for unit in own.units()]
        known = {id(leaf) for leaf, _ in units}
        units += [
            (leaf, spread_beside(np.asarray(leaf), places))
            for _, leaf, constraint in parameters(features)
            if constraint is REAL and leaf.ndim == 2 and id(leaf) not in known
        ]
        if self.coordinates != "w":
            size = np.sqrt(np.mean(np.asarray(feature_variances(self))))
            units += [(leaf, size) for leaf in jax.tree.leaves((self.mean, self.root))]
        units += mean_units(self, x)
        if x is not None and places is not None:
            units += [unit for kernel in self.prior.kernels for unit in kernel.units(places.astype(x.dtype))]
        return units

    def start_inputs(self, x, data, seeds):
        """Starting values of the kernels, and a sample of the prior.

        The prior is sampled instead of q, because q will be set to the prior when this has its new parameters.
        """
        places = self.prior.latent_inputs(np.asarray(x()))
        starts = [start for kernel in self.prior.kernels for start in kernel.start(places)]
        return starts, start_sample_of_prior(self.prior, x, seeds)

    def start_outputs(self, likelihood, x, y, width):
        """Starting values of the prior and the likelihood.

        Where the inputs are unknown, the prior variance is taken at the inducing points, or else at the origin.
        """
        if x is None:
            Z = self.features.locations if isinstance(self.features, AbstractFeatures) else None
            x = jnp.zeros((1, width), dtype_of(self)) if Z is None or Z.shape[1] != width else Z
        return self.prior.start(likelihood, np.asarray(x), y)

    @property
    def inducing_inputs(self) -> Float[Array, "M D"] | None:
        first = self.features[0] if isinstance(self.features, tuple) else self.features
        return first.locations if first.are_values else None


def _flat(Kuf: Float[Array, "K M n J"]) -> Float[Array, "K M nJ"]:
    return Kuf.reshape(*Kuf.shape[:2], -1)
