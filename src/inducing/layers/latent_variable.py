"""Latent variables h_n, one for each datum (sections 3.3, 4.2 and 4.5)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla.lapack import triangular_inverse
from inducing.data import Data, as_data
from inducing.layers.base import AbstractLayer, append, refuse_terminal, standard_normal
from inducing.layers.encoders import AbstractEncoder
from inducing.parameters import as_numbers, at_least_one, dtype_of, positive, real


class Sample(NamedTuple):
    """Replicates of h, log p(h)/q(h), and KL(q(h_n) ‖ p(h_n)). The latter two are 0 if h has no weight."""

    h: Float[Array, "N R d"]
    log_ratio: Float[Array, "N R"]
    kl: Float[Array, "N #R"]


class LatentVariable(AbstractLayer):
    """A latent variable of each datum, appended to its input: x ↦ [x, h] (eq:elbo_lv_iid, eq:ugly_log).

        p(h) = N(mean, diag(scale²)),    q(h_n) = encoder

    The log-weight is −KL(q(h_n) ‖ p(h_n)) for one replicate, and log p(h)/q(h) of the sample for several.

    Predictions are for new data without labels. For these, h is sampled from p(h) (eq:pred_lv_iid), or from q(h | x) if
    the encoder sees only x or the layer's input (eq:pred_lv_iid_alt).

    Args:
        dim: d, the dimension of h.
        encoder: q(h_n), such as `PerDatumEncoder` or `Amortised`. Without one, q = p.
        mean: the mean of p(h), one number or [d], trained. By default it is 0 and not trained.
        scale: the standard deviations of p(h), one number or [d], trained. By default they are 1 and not trained.

    Raises:
        TypeError: if `encoder` is not an encoder.
        ValueError: if a shape does not fit `dim`.

    Examples:
        >>> import inducing as ig
        >>> layer = ig.LatentVariable(2, ig.layers.PerDatumEncoder(jnp.zeros((3, 2)), scale=0.1))
        >>> data = ig.Data([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
        >>> y, log_weight = layer.propagate(data.x[:, None], jax.random.key(0), data, replicates=4)
        >>> y.shape, log_weight.shape
        ((3, 4, 3), (3, 4))
    """

    encoder: AbstractEncoder | None
    mean: Float[Array, " d"] | None = real()
    scale: Float[Array, " d"] | None = positive()
    dim: int = eqx.field(static=True)
    random = True
    terminal = False
    couples_replicates = False
    is_fresh = True  # q(h) does not depend on the scales that `fit` sets

    def __init__(self, dim: int, encoder: Any = None, mean: Any = None, scale: Any = None):
        self.dim = dim = at_least_one("dim", dim)
        self.encoder = encoder
        for name, value in (("mean", mean), ("scale", scale)):
            value = None if value is None else as_numbers(name, value)
            setattr(self, name, jnp.broadcast_to(value, (dim,)) if value is not None and not value.ndim else value)

    def __check_init__(self):
        dim = at_least_one("dim", self.dim)
        if self.encoder is not None:
            self.encoder.check(dim)
        for name, value in (("mean", self.mean), ("scale", self.scale)):
            if value is not None and value.shape != (dim,):
                raise ValueError(f"{name} has shape {list(value.shape)} but the latent variable has {dim} dimensions.")

    def sample(
        self, x: Float[Array, "N R0 D"], key: Array, data: Data, replicates: int, shift: Array | None = None
    ) -> Sample:
        """Samples of h.

        Args:
            x: the layer's input.
            key: a random key.
            data: the data that x belongs to.
            replicates: R, the number of samples for each datum. If x has several replicates, R is their number instead.
            shift: what to add to the samples [N, R, d].
        """
        N, R = x.shape[0], replicates if x.shape[1] == 1 else x.shape[1]
        noise = standard_normal(key, (N, R, self.dim), x.dtype)
        mean, root = self._q(x, data)
        h = _coloured(mean, root, noise)
        if self.encoder is None or data.y is None:  # a sample of p(h), or of q(h | x) in a prediction, has no weight
            return Sample(h, jnp.zeros((N, R), x.dtype), jnp.zeros((N, 1), x.dtype))
        h = h if shift is None else h + shift
        prior_mean, prior_scale = self.prior_moments(x.dtype)
        whitened = (h - prior_mean) / prior_scale
        log_det = jnp.sum(jnp.log(_scales(root)) - jnp.log(prior_scale), axis=-1)
        log_ratio = 0.5 * jnp.sum(self._noise(h, mean, root) ** 2 - whitened**2, axis=-1) + log_det
        return Sample(h, log_ratio, self._kl(mean, root))

    def _q(self, x: Array, data: Data) -> tuple[Array, Array]:
        """Mean and root of the Gaussian that h is sampled from: q(h), or p(h) if the encoder cannot be used."""
        if self.encoder is None or (data.y is None and not self._predicts()):
            return self.prior_moments(x.dtype)
        return self.encoder(x, data, self.dim)

    def _kl(self, mean: Array, root: Array) -> Array:
        prior_mean, prior_scale = self.prior_moments(mean.dtype)
        diagonal = root.ndim == 3
        relative = root / (prior_scale if diagonal else prior_scale[..., None])
        trace = jnp.sum(relative**2, axis=-1 if diagonal else (-2, -1))
        log_det = jnp.sum(jnp.log(_scales(root)) - jnp.log(prior_scale), axis=-1)
        return 0.5 * (trace + jnp.sum(((mean - prior_mean) / prior_scale) ** 2, axis=-1) - self.dim) - log_det

    def posterior(self, data: Any) -> tuple[Float[Array, "N d"], Array, Float[Array, " N"]]:
        """The approximate posterior q(h_n) of each datum, for encoders that do not see the layer's own input.

        Args:
            data: `(X, y)` or an `ig.Data`.

        Returns:
            The mean [N, d], the root of the covariance ([N, d] if diagonal, else [N, d, d]), and
            KL(q(h_n) ‖ p(h_n)) [N].

        Raises:
            TypeError: if there is no encoder, or it sees the layer's input.

        Examples:
            >>> import inducing as ig
            >>> layer = ig.LatentVariable(2, ig.layers.PerDatumEncoder(jnp.zeros((3, 2))))
            >>> mean, root, kl = layer.posterior(ig.Data(None, [0.0, 1.0, 2.0]))
            >>> mean.shape, kl.tolist()
            ((3, 2), [0.0, 0.0, 0.0])
        """
        if self.encoder is None or "input" in self.encoder.sees:
            raise TypeError("posterior(data) is for a latent variable whose encoder sees x, y or the index.")
        data = as_data(data, dtype_of(self))
        x = jnp.zeros((len(data), 1, 0), dtype_of(self))
        mean, root = self.encoder(x, data, self.dim)
        return mean[:, 0], root[:, 0], self._kl(mean, root)[:, 0]

    def latent_posterior(self, data):
        return None if self.encoder is None or "input" in self.encoder.sees else self.posterior(data)

    def _noise(self, h: Array, mean: Array, root: Array) -> Array:
        """root⁻¹ (h − mean), the noise as a function of h. Derivatives of log q(h) need it in this form."""
        if root.ndim == 3:
            return (h - mean) / root
        root, difference = _same(root, h - mean)
        inverse = jax.vmap(jax.vmap(triangular_inverse))(root)
        return (inverse @ difference[..., None])[..., 0]

    def prior_moments(self, dtype: Any) -> tuple[Float[Array, "1 1 d"], Float[Array, "1 1 d"]]:
        """Mean and standard deviations of p(h)."""
        mean = jnp.zeros(self.dim, dtype) if self.mean is None else self.mean
        scale = jnp.ones(self.dim, dtype) if self.scale is None else self.scale
        return mean[None, None], scale[None, None]

    def _predicts(self) -> bool:
        return self.encoder is not None and not {"y", "mask", "index"} & set(self.encoder.sees)

    def propagate(self, x, key, data, replicates):
        s = self.sample(x, key, data, replicates)
        return append(x, s.h), s.log_ratio if s.h.shape[1] > 1 else -s.kl

    def cache(self) -> None:
        return None

    def moments(self, x, correlated=False, cache=None):
        refuse_terminal(self)

    def joint(self, X, cache=None):
        refuse_terminal(self)

    def kl(self):
        return jnp.zeros((), dtype_of(self))

    def draw(self, key, num, dim):
        """One h for all inputs or, if the encoder sees inputs, one noise vector for all of them."""

        def f(X: Array, x: Array | None = None) -> Array:
            def one(row, own):
                return self.propagate(row[None, None], key, Data(own[None]), 1)[0][0, 0]

            return jax.vmap(one)(X, X if x is None else x)

        return f

    def width(self, inputs):
        return None if inputs is None else inputs + self.dim

    def variational(self):
        return self.encoder

    def per_datum(self):
        return () if self.encoder is None else self.encoder.per_datum()

    def encoders(self):
        return () if self.encoder is None else (self.encoder,)

    def check_index(self, index):
        if self.encoder is not None:
            self.encoder.check_index(index)

    def sample_global(self, x, key, data, weight):
        s = self.sample(x, key, data, 1)
        return append(x, s.h), jnp.sum(jnp.where(weight > 0.0, weight * s.log_ratio, 0.0))

    @property
    def latent_dim(self) -> int:
        return self.dim

    def place(self, x, noise, data):
        return append(x, _coloured(*self._q(x, data), noise))

    def sample_latents(self, x, key, data, replicates):
        return self.sample(x, key, data, replicates).h

    def shifted(self, x, key, data, replicates, shift):
        s = self.sample(x, key, data, replicates, shift)
        return append(x, s.h), s.log_ratio


def _coloured(mean: Array, root: Array, noise: Array) -> Array:
    """mean + root · noise."""
    return mean + (root * noise if root.ndim == 3 else jnp.einsum("nrij,nrj->nri", *_same(root, noise)))


def _scales(root: Array) -> Array:
    """The diagonal of roots given as [N, R, d] or [N, R, d, d]."""
    return root if root.ndim == 3 else jnp.diagonal(root, axis1=-2, axis2=-1)


def _same(root: Array, vector: Array) -> tuple[Array, Array]:
    """A root [N, R1, d, d] and a vector [N, R2, d] with the same axes before the last ones."""
    shape = np.broadcast_shapes(root.shape[:2], vector.shape[:2])
    d = vector.shape[-1]
    return jnp.broadcast_to(root, (*shape, d, d)), jnp.broadcast_to(vector, (*shape, d))
