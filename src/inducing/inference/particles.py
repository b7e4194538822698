"""The joint density of labels under a model with latent variables and random functions, by particle filters.

    p(y_1, …, y_N) = ∫ Π_n p(y_n | f_n) p(f_n | x_n, h_n, past) p(h_n) dh_n df_n

For each random function, a particle stores the inputs at which the function was observed and the observations: sampled
values, or the labels of a last layer with Gaussian noise. Given these, the function at a new input is Gaussian. For
each datum, a particle proposes K values of h_n and of the functions below the last layer (a lattice, shifted at random
for each particle and datum). Its weight is multiplied by the mean of the densities of y_n, and it continues with one of
the proposals, drawn with probability proportional to its density. Particles are resampled when their weights have
become uneven. The product over the data of the mean weights is an unbiased estimate of the density, and so is the mean
over independent filters.

The covariances of all inputs of a particle are computed for each datum: the cost is N (N + K)² for each particle.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from inducing._xla import compiled, limited_threads
from inducing.data import Data
from inducing.inference.blocks import cache_of, inputs, is_traced
from inducing.layers.base import AbstractLayer
from inducing.likelihoods.predictive import gaussian_log_prob
from inducing.likelihoods.sampling import sampling_root
from inducing.linalg import Dense, default_jitter
from inducing.numerics.lattices import lattice_normal
from inducing.parameters import as_key

if TYPE_CHECKING:
    from inducing.model import Model

FILTERS, TRIED = 16, 32  # independent filters, and proposals of a particle for each datum
ENTRIES = 2**22  # the number of entries of covariances that are computed at a time


class Labels(NamedTuple):
    """Labels with missing ones filled in, and which are present."""

    y: Float[Array, "N P"]
    present: Bool[Array, "N P"]


class History(NamedTuple):
    """The inputs at which the particles observed a function, and the observations."""

    inputs: Float[Array, "T N D"]
    values: Float[Array, "T N P"]


def functions(model: "Model", data: Data) -> list[tuple[AbstractLayer, int, int]]:
    """The layers that are random functions, with the numbers of their inputs and outputs.

    Raises:
        TypeError: if a layer is random but neither a latent variable nor a function with a joint distribution.

    Examples:
        >>> import inducing as ig
        >>> model = ig.Model([ig.LatentVariable(1), ig.BayesianDense(2, 3)], ig.likelihoods.Gaussian())
        >>> [(D, P) for _, D, P in functions(model, ig.Data([0.0, 1.0]))]
        [(2, 3)]
    """
    found: list[tuple[AbstractLayer, int, int]] = []

    def visit(layer: AbstractLayer, x: Array) -> Array:
        if layer.latent_dim:
            return layer.place(x, jnp.zeros((*x.shape[:2], layer.latent_dim), x.dtype), data)
        if not layer.random:
            return layer.propagate(x, jax.random.key(0), data, 1)[0]
        if not layer.terminal:
            raise TypeError(
                f"the joint density of labels needs the joint distribution of each random layer, which a "
                f"{type(layer).__name__} does not have; give it `joint`, or `through` if it is made of other layers."
            )
        mean, _ = layer.moments(x)
        found.append((layer, x.shape[2], mean.shape[2]))
        return mean

    def run(x: Array) -> Array:
        for layer in model.layers:
            x = layer.through(x, visit)
        return x

    jax.eval_shape(run, inputs(data)[:, None])
    return found


def particle_logs(
    model: "Model", data: Data, y: Array, present: Array, key: Array | None, particles: int
) -> Float[Array, " B"]:
    """The logarithms of independent unbiased estimates of the joint density, one for each filter.

    Args:
        model: the model.
        data: the rows, with inputs.
        y: labels [N, P], with missing ones filled in.
        present: which labels are not missing.
        key: a random key.
        particles: the number of particles of all filters together.
    """
    args = model, data, Labels(y, present), key, max(1, particles // FILTERS)
    if is_traced(args):
        return _run(*args[:1], [layer.cache() for layer, _, _ in functions(model, data)], *args[1:])
    with limited_threads():
        caches = [cache_of(layer) for layer, _, _ in functions(model, data)]
        return jax.block_until_ready(compiled(_run)(args[0], caches, *args[1:]))


def _run(
    model: "Model", caches: list[Any], data: Data, labels: Labels, key: Array | None, size: int
) -> Float[Array, " B"]:
    """All filters together: the particles of filter b are those from b·size on."""
    N, T = len(data), FILTERS * size
    parts, dtype = functions(model, data), inputs(data).dtype
    noise = model.likelihood.gaussian_noise(labels.y.shape, data.index)
    past = [History(jnp.zeros((T, N, D), dtype), jnp.zeros((T, N, P), dtype)) for _, D, P in parts]

    def step(carry, n):
        past, logs, total, key = carry
        key, own, pick, again = jax.random.split(key, 4)
        tried, log_weight = _try(model, caches, past, data, labels, noise, n, own, T)
        chosen = jax.random.categorical(pick, log_weight, axis=1)

        def add(all_: Array, new: Array) -> Array:
            return all_.at[:, n].set(jnp.take_along_axis(new, chosen[:, None, None], axis=1)[:, 0])

        past = jax.tree.map(add, past, tried)
        logs = logs + (jax.nn.logsumexp(log_weight, axis=1) - math.log(TRIED)).reshape(FILTERS, size)
        step_total = jax.nn.logsumexp(logs, axis=1)
        ancestors, logs = _resample(again, logs - step_total[:, None])
        return (jax.tree.map(lambda a: a[ancestors], past), logs, total + step_total, key), None

    start = past, jnp.full((FILTERS, size), -math.log(size), dtype), jnp.zeros(FILTERS, dtype), as_key(key)
    return jax.lax.scan(step, start, jnp.arange(N))[0][2]


def _resample(key: Array, logs: Float[Array, "B S"]) -> tuple[Array, Float[Array, "B S"]]:
    """The surviving particles, numbered over all filters, and their log-weights; weights sum to 1 in each filter.

    A filter whose effective sample size is below half of its particles is resampled systematically.
    """
    B, S = logs.shape
    uneven = jnp.exp(-jax.nn.logsumexp(2.0 * logs, axis=1)) < 0.5 * S
    points = (jnp.arange(S, dtype=logs.dtype)[None] + jax.random.uniform(key, (B, 1), logs.dtype)) / S
    cdf = jnp.cumsum(jnp.exp(logs), axis=1)
    drawn = jnp.minimum(jax.vmap(jnp.searchsorted)(cdf, points), S - 1)
    kept = jnp.where(uneven[:, None], drawn, jnp.arange(S, dtype=drawn.dtype)[None])
    ancestors = (kept + S * jnp.arange(B, dtype=kept.dtype)[:, None]).reshape(-1)
    return ancestors, jnp.where(uneven[:, None], -math.log(S), logs)


def _try(
    model: "Model",
    caches: list[Any],
    past: list[History],
    data: Data,
    labels: Labels,
    noise: Array | None,
    n: Array,
    key: Array,
    T: int,
) -> tuple[list[History], Float[Array, "T K"]]:
    """The proposals of T particles for datum n: inputs and values of each function, and the log density of y_n."""
    rows = data.rows(jnp.full(T, n))
    x = jnp.broadcast_to(inputs(rows)[:, None], (T, TRIED, inputs(rows).shape[1]))
    k = sum(layer.latent_dim for layer in model.layers) + sum(p.values.shape[2] for p in past)
    z = jax.vmap(lambda key: lattice_normal(key, TRIED, k, x.dtype))(jax.random.split(key, T))
    tried: list[History] = []
    used = 0

    def take(count: int) -> Array:
        nonlocal used
        used += count
        return z[..., used - count : used]

    def given_past(layer: AbstractLayer, x: Array, extra: Array | None) -> tuple[Array, Array]:
        i = len(tried)
        seen = jnp.arange(len(data))[:, None] < n
        seen = jnp.broadcast_to(seen, past[i].values.shape[1:]) if extra is None else seen & labels.present
        return _conditional(layer, caches[i], past[i], x, seen, extra)

    def visit(layer: AbstractLayer, x: Array) -> Array:
        if layer.latent_dim:
            return layer.place(x, take(layer.latent_dim), rows)
        if not layer.random:
            return layer.propagate(x, jax.random.key(0), rows, TRIED)[0]
        mean, cov = given_past(layer, x, None)
        values = mean + _coloured(cov, take(mean.shape[2]))
        tried.append(History(x, values))
        return values

    for layer in model.layers[:-1]:
        x = layer.through(x, visit)
    last, y, present = model.layers[-1], labels.y[n], labels.present[n]
    if last.random and noise is not None:  # condition on the label itself
        mean, cov = given_past(last, x, noise)
        tried.append(History(x, jnp.broadcast_to(y, mean.shape)))
        return tried, _label_density(y, present, mean, cov, noise[n])
    f = last.through(x, visit)
    each = jax.vmap(lambda f: model.likelihood.log_prob(f, jnp.broadcast_to(y, (T, *y.shape)), index=rows.index))
    log_prob = each(jnp.swapaxes(f, 0, 1))  # [K, T, P]
    return tried, jnp.sum(jnp.where(present[None, None], log_prob, 0.0), axis=2).T


def _label_density(y: Array, present: Array, mean: Array, cov: Array, noise: Array) -> Float[Array, "T K"]:
    """log N(y | mean, cov + diag(noise)) of a datum for each trial; cov is [T, K, b, q, q] with P = b·q."""
    b, q = cov.shape[2:4]
    y, present, noise = (a.reshape(1, 1, b, q) if q == 1 else a.reshape(b, q) for a in (y, present, noise))

    if q == 1:  # without a Cholesky factor for each number
        variance = cov[..., 0, 0] + noise[..., 0]
        each = -0.5 * (jnp.log(2.0 * math.pi * variance) + (y[..., 0] - mean) ** 2 / variance)
        return jnp.sum(jnp.where(present[..., 0], each, 0.0), axis=2)

    def one(mean, cov):
        return jnp.sum(jax.vmap(gaussian_log_prob)(y, mean.reshape(b, q), cov, noise, present))

    return jax.vmap(jax.vmap(one))(mean, cov)


def _coloured(cov: Float[Array, "T K b q q"], z: Float[Array, "T K P"]) -> Float[Array, "T K P"]:
    """A root of each covariance times z."""
    q = cov.shape[-1]
    if q == 1:
        return jnp.sqrt(cov[..., 0, 0]) * z
    roots = jax.vmap(sampling_root)(cov.reshape(-1, q, q))
    return (roots @ z.reshape(-1, q, 1)).reshape(z.shape)


def _conditional(
    layer: AbstractLayer,
    cache: Any,
    past: History,
    x: Float[Array, "T K D"],
    seen: Bool[Array, "N P"],
    noise: Float[Array, "N P"] | None,
) -> tuple[Float[Array, "T K P"], Float[Array, "T K b q q"]]:
    """Mean and covariance of a function at each of K inputs, given its observations.

    The outputs are in b blocks of q: one block, or P blocks of one output each if they are not correlated.
    """
    one = _of_one_particle(layer, cache, seen, noise)
    T, K, _ = x.shape
    N, P = past.values.shape[1:]
    return jax.lax.map(one, (*past, x), batch_size=max(1, min(T, ENTRIES // ((N + K) * P) ** 2)))


def _of_one_particle(layer: AbstractLayer, cache: Any, seen: Array, noise: Array | None) -> Callable:
    N, P = seen.shape
    blocks = 1 if layer.correlated else P
    q = P // blocks

    def split(a: Array) -> Array:
        """[N, P] as [b, N·q]."""
        return jnp.swapaxes(a.reshape(N, blocks, q), 0, 1).reshape(blocks, N * q)

    def one(item: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        inputs, values, x = item
        K = len(x)
        mean, cov = layer.joint(jnp.concatenate([inputs, x])[None], cache)
        mean, cov = mean[0], cov[0].reshape(N + K, P, N + K, P)
        cov = (
            cov[None] if blocks == 1 else jnp.moveaxis(jnp.diagonal(cov, axis1=1, axis2=3), -1, 0)[:, :, None, :, None]
        )
        known = split(seen)
        own = jnp.where(known[:, :, None] & known[:, None, :], cov[:, :N, :, :N].reshape(blocks, N * q, N * q), 0.0)
        more = jnp.where(known, 0.0 if noise is None else split(noise), 1.0)
        own = own + more[:, :, None] * jnp.eye(N * q, dtype=own.dtype)[None]
        factor = jax.vmap(lambda k: Dense(k, default_jitter(k.dtype)).inverse_root)(own)
        cross = jnp.where(known[..., None], cov[:, :N, :, N:].reshape(blocks, N * q, K * q), 0.0)
        residual = jnp.where(known, split(values - mean[:N]), 0.0)
        W = factor @ cross
        shift = jnp.einsum("bmk,bm->bk", W, (factor @ residual[..., None])[..., 0]).reshape(blocks, K, q)
        W = W.reshape(blocks, N * q, K, q)
        ahead = jnp.moveaxis(jnp.diagonal(cov[:, N:, :, N:], axis1=1, axis2=3), -1, 1)  # [b, K, q, q]
        left = ahead - jnp.einsum("bmki,bmkj->bkij", W, W)
        floor = jnp.finfo(left.dtype).eps * jnp.diagonal(ahead, axis1=2, axis2=3)
        short = jnp.maximum(floor - jnp.diagonal(left, axis1=2, axis2=3), 0.0)  # may be negative because of rounding
        left = left + short[..., None] * jnp.eye(q, dtype=left.dtype)[None, None]
        return mean[N:] + jnp.swapaxes(shift, 0, 1).reshape(K, P), jnp.swapaxes(left, 0, 1)

    return one
