"""The Bayesian dense layer: a linear map with random weights (sections 3.1 and 3.5)."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import check_memory
from inducing.declared import shown
from inducing.layers.base import AbstractLayer, standard_normal
from inducing.parameters import (
    POSITIVE,
    REAL,
    as_key,
    as_numbers,
    as_whole,
    at_least_one,
    fixed,
    lower_triangular,
    positive,
    real,
)


class BayesianDense(AbstractLayer):
    """A linear map with random weights (eq:elbo_iid in weight space).

        f(x) = [x, 1] W,    p(W) = N(prior_mean, diag(τ prior_scale)²),    q(W) = N(mean, diag(scale²)) or N(mean, R Rᵀ)

    W is [D+1, P]; its last row is the bias. Only the factor τ of the prior is trained, if it is given. For a Bayesian
    neural network, put activation functions such as `Deterministic(jnp.tanh)` between such layers.

    Weights are drawn for each datum and shared by its replicates. With a single replicate and independent weights, the
    outputs are independent Gaussians and are sampled directly (local reparameterisation).

    Args:
        num_inputs: D; 0 for a bias alone.
        num_outputs: P.
        key: a random key for the initial means of q(W), which are 0 without it.
        full: whether the covariance of q(W) is full.
        mean: the mean of q(W), one number or [D+1, P].
        scale: the standard deviations of q(W), one number or [D+1, P].
        root: a lower-triangular root R of the covariance of q(W), [(D+1)·P, (D+1)·P], with the weights in row-major
            order.
        prior_mean: the mean of p(W), one number or [D+1, P].
        prior_scale: the standard deviations of p(W), one number or [D+1, P]. By default 1/√D for weights and 1 for
            biases.
        prior_factor: τ, which is trained: one number, [D+1, 1] with one for each input (automatic relevance
            determination), or [1, P] with one for each output. Without it, τ = 1 is not trained.

    Raises:
        ValueError: if a number is too small or a shape does not fit.

    Examples:
        >>> import inducing as ig
        >>> layer = ig.BayesianDense(3, 2, key=jax.random.key(0))
        >>> mean, variance = layer.moments(jnp.ones((5, 1, 3)))
        >>> mean.shape, variance.shape
        ((5, 1, 2), (5, 1, 2))
    """

    mean: Float[Array, "D1 P"] = real()
    scale: Any = positive()  # [D+1, P], or None if the covariance is full
    root: Any = lower_triangular()  # [K, K], or None
    prior_mean: Float[Array, "D1 P"] = fixed(allowed=REAL)
    prior_scale: Float[Array, "D1 P"] = fixed(allowed=POSITIVE)
    prior_factor: Any = positive()  # [#D+1, #P], or None if it is not trained
    random = True
    terminal = True
    couples_replicates = False  # given the shared weights, each replicate depends only on its own input
    is_fresh = True  # `fit` sets no scales of the weights

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        *,
        key: Array | None = None,
        full: bool = False,
        mean: Any = None,
        scale: Any = 0.05,
        root: Any = None,
        prior_mean: Any = 0.0,
        prior_scale: Any = None,
        prior_factor: Any = None,
    ):
        num_inputs = as_whole(num_inputs)
        if not isinstance(num_inputs, int) or num_inputs < 0:
            raise ValueError(f"num_inputs must be a whole number from 0, got {num_inputs!r}.")
        if not isinstance(full, bool):
            raise TypeError(f"full must be True or False, got {shown(full)}.")
        shape = (num_inputs + 1, at_least_one("num_outputs", num_outputs))
        size = shape[0] * shape[1]
        many = (size, size) if full else shape
        check_memory("the weights of BayesianDense", many, float, "use fewer inputs or outputs")
        if mean is None:
            mean = jnp.zeros(shape) if key is None else _random_mean(as_key(key), shape)
        self.mean = _broadcast("mean", mean, shape)
        dtype = self.mean.dtype
        if prior_scale is None:
            prior_scale = jnp.ones(shape, dtype).at[:-1].set(max(num_inputs, 1) ** -0.5)
        self.prior_mean = _broadcast("prior_mean", prior_mean, shape).astype(dtype)
        self.prior_scale = _broadcast("prior_scale", prior_scale, shape).astype(dtype)
        self.prior_factor = _factor(prior_factor, shape, dtype)
        scale = _broadcast("scale", scale, shape).astype(dtype)
        if full or root is not None:
            root = jnp.diag(scale.reshape(-1)) if root is None else as_numbers("root", root)
        self.scale = scale if root is None else None
        self.root = root

    def __check_init__(self):
        shape, size = self.mean.shape, self.mean.size
        if self.mean.ndim != 2 or not size:
            raise ValueError(f"mean must be [D + 1, P], got shape {list(shape)}.")
        for name in ("prior_mean", "prior_scale") if self.scale is None else ("prior_mean", "prior_scale", "scale"):
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {list(getattr(self, name).shape)}; that of mean is {list(shape)}.")
        if (self.scale is None) == (self.root is None):
            raise ValueError("BayesianDense needs either a scale or a root; the other one must be None.")
        if self.root is not None and self.root.shape != (size, size):
            raise ValueError(f"root has shape {list(self.root.shape)}; {size} weights need [{size}, {size}].")
        factors = (1, 1), (shape[0], 1), (1, shape[1])
        if self.prior_factor is not None and self.prior_factor.shape not in factors:
            raise ValueError(f"prior_factor has shape {list(self.prior_factor.shape)}; pass one of {factors}.")

    def sample_weights(self, key: Array) -> tuple[Float[Array, "D1 P"], Float[Array, ""]]:
        """One sample W ~ q(W) and log p(W)/q(W), for importance weighting over the weights (eq:iw_vi_3)."""
        noise = standard_normal(key, self.mean.shape, self.mean.dtype)
        W = self._weights(noise)
        if self.root is None:
            whitened, log_det = (W - self.mean) / self.scale, jnp.sum(jnp.log(self.scale))
        else:
            difference = (W - self.mean).reshape(-1, 1)
            whitened = jax.scipy.linalg.solve_triangular(self.root, difference, lower=True)
            log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.root))))
        prior_scale = self._prior_scales()
        z = (W - self.prior_mean) / prior_scale
        return W, 0.5 * (jnp.sum(whitened**2) - jnp.sum(z**2)) + log_det - jnp.sum(jnp.log(prior_scale))

    def _prior_scales(self) -> Float[Array, "D1 P"]:
        """The standard deviations of p(W)."""
        return self.prior_scale if self.prior_factor is None else self.prior_factor * self.prior_scale

    def _weights(self, noise: Float[Array, "*B D1 P"]) -> Float[Array, "*B D1 P"]:
        mean = jnp.broadcast_to(self.mean, noise.shape)
        if self.root is None:
            return mean + jnp.broadcast_to(self.scale, noise.shape) * noise
        flat = noise.reshape(*noise.shape[:-2], -1)
        return mean + (flat @ self.root.T).reshape(noise.shape)

    def propagate(self, x, key, data, replicates):
        N, R, _ = x.shape
        zero = jnp.zeros((N, R), x.dtype)
        if R == 1 and self.root is None:
            mean, variance = self.moments(x)
            return mean + jnp.sqrt(variance) * standard_normal(key, mean.shape, x.dtype), zero
        W = self._weights(standard_normal(key, (N, *self.mean.shape), x.dtype))
        return jnp.einsum("nrd,ndp->nrp", with_one(x), W), zero

    def cache(self) -> None:
        return None

    def moments(self, x, correlated=False, cache=None):
        x = with_one(x)
        mean = x @ self.mean
        if self.root is None:
            variance = x**2 @ self.scale**2
            if not correlated:
                return mean, variance
            return mean, variance[..., None] * jnp.eye(mean.shape[-1], dtype=x.dtype)[None, None]
        T = self._output_roots(x)
        return mean, jnp.einsum("nrpk,nrqk->nrpq", T, T) if correlated else jnp.sum(T**2, axis=-1)

    def _output_roots(self, x: Float[Array, "N R D1"]) -> Float[Array, "N R P K"]:
        """The matrices T with Cov(f(x), f(x')) = T(x) T(x')ᵀ, if q(W) has a full covariance."""
        return jnp.einsum("nrd,dpk->nrpk", x, self.root.reshape(*self.mean.shape, -1))

    def joint(self, X, cache=None):
        X = with_one(X)
        mean = X @ self.mean
        N, G, P = mean.shape
        if self.root is None:
            cov = jnp.einsum("ngd,dp,nhd,pq->ngphq", X, self.scale**2, X, jnp.eye(P, dtype=X.dtype))
        else:
            T = self._output_roots(X)
            cov = jnp.einsum("ngpk,nhqk->ngphq", T, T)
        return mean, cov.reshape(N, G * P, G * P)

    def kl(self):
        prior_scale = self._prior_scales()
        z = (self.mean - self.prior_mean) / prior_scale
        if self.root is None:
            ratio = self.scale / prior_scale
            return jnp.sum(0.5 * (ratio**2 + z**2 - 1.0) - jnp.log(ratio))
        R = self.root / prior_scale.reshape(-1)[:, None]
        return 0.5 * (jnp.sum(R**2) + jnp.sum(z**2) - z.size) - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(R))))

    def draw(self, key, num, dim):
        W, _ = self.sample_weights(key)
        return lambda X, x=None: with_one(X) @ W

    def width(self, inputs):
        D = self.mean.shape[0] - 1
        if inputs not in (None, D):
            raise ValueError(f"it takes {D} inputs")
        return self.mean.shape[1]

    @property
    def correlated(self) -> bool:
        return self.root is not None and self.mean.shape[1] > 1

    @property
    def num_inputs(self) -> int:
        return self.mean.shape[0] - 1

    def variational(self):
        return self.mean, self.scale, self.root

    def sample_global(self, x, key, data, weight):
        W, log_ratio = self.sample_weights(key)
        return with_one(x) @ W, log_ratio


def with_one(x: Float[Array, "*B D"]) -> Float[Array, "*B D1"]:
    """The inputs with a column of ones, [x, 1]."""
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)


def _random_mean(key: Array, shape: tuple[int, int]) -> Array:
    return (jax.random.normal(key, shape) * max(shape[0] - 1, 1) ** -0.5).at[-1].set(0.0)


def _factor(value: Any, shape: tuple[int, int], dtype: Any) -> Array | None:
    """τ [#D+1, #P]. One factor for each weight is not allowed, because the prior would then become q(W)."""
    if value is None:
        return None
    factor = as_numbers("prior_factor", value)
    allowed = {(): (1, 1), (1, 1): (1, 1), (shape[0], 1): (shape[0], 1), (1, shape[1]): (1, shape[1])}
    wide = allowed.get(tuple(factor.shape))
    if wide is None:
        raise ValueError(
            f"prior_factor has shape {list(factor.shape)}; pass one number, [{shape[0]}, 1] for each input and the "
            f"bias, or [1, {shape[1]}] for each output."
        )
    return jnp.array(factor.reshape(wide), dtype)


def _broadcast(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    value = as_numbers(name, value)
    try:
        return jnp.array(jnp.broadcast_to(value, shape))
    except ValueError:
        raise ValueError(f"{name} has shape {list(value.shape)}; pass one number or {list(shape)}.") from None
