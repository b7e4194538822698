"""Mean and covariance of q(f) at new inputs, in compiled blocks for any number of them or jointly."""

import weakref
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import check_memory, compiled, limited_threads, own_array
from inducing.bounds.terms import inputs
from inducing.data import Data
from inducing.declared import shown
from inducing.layers.base import AbstractLayer
from inducing.layers.cache import settled, with_cache
from inducing.numerics.lattices import lattice_normal
from inducing.parameters import as_key, at_least_one, dtype_of

if TYPE_CHECKING:
    from inducing.model import Model

FEW, ROWS = 128, 1024  # rows of a block for few inputs, and for many (divided by the numbers of samples and sites)
NEW = -1  # Data.index of an input that is not a training datum
SHARED = 2**31 - 1  # the number that makes the key of shared noise; the others are those of blocks
DRAWS, LATENT_DRAWS = 100, 1024  # samples by default: of functions alone, and of latent variables


def one_covariance(full_cov: bool, output_cov: bool) -> tuple[bool, bool]:
    """Both arguments as bool; an error if both kinds of covariance are requested, or one is not True or False."""
    for name, value in (("full_cov", full_cov), ("output_cov", output_cov)):
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {shown(value)}.")
    if full_cov and output_cov:
        raise ValueError("full_cov=True holds the covariance of the outputs too; leave output_cov out.")
    return bool(full_cov), bool(output_cov)  # NumPy's are arrays to a compiled function


def samples_need_covariance(model: "Model", mean: Float[Array, "S N F"]) -> bool:
    """Whether samples of f at one input need more than the variances of the F outputs."""
    return mean.shape[-1] > 1 and model.layers[-1].correlated


def latent_dim(model: "Model") -> int:
    """The number of standard normal numbers that determine the latent variables of a datum, in all layers together."""
    return sum(layer.latent_dim for layer in model.layers[:-1])


def rows_of(X: Float[Array, "N D"], index: Array | None) -> Data:
    """New inputs as data without labels; without an index they do not belong to training data."""
    if index is None:
        rows = X.shape[0]
        return Data(X, index=(jnp if is_traced(X) else np).full(rows, NEW))  # under `jit` rows may be a symbol
    return Data(X, index=index)


def moments(
    model: "Model", data: Data, key: Array | None, samples: int | None, correlated: bool, shared: bool = True
) -> tuple[Float[Array, "S N F"], Float[Array, "..."]]:
    """Mean [S, N, F] and variances [S, N, F] (or covariances [S, N, F, F]) of f at each row of data.

    Latent variables come from one randomly shifted lattice over those of all layers, which all rows share unless
    `shared` is False. Random functions are sampled independently for each row and sample.

    Rows are padded to whole blocks, and the number of blocks to a power of two, so that few shapes are compiled. Only
    the blocks that hold rows are computed.
    """
    key, samples = checked_samples(model, key, samples)
    if is_traced(model, data, key):  # under jit, grad or vmap: the outer program compiles this
        cache = model.layers[-1].cache()
        noise = _shared_noise(model, data, as_key(key), samples) if shared else None
        return with_cache(lambda c: _block_moments(model, c, data, as_key(key), noise, samples, correlated), cache)
    N = len(data)
    work = samples * max(layer.num_sites for layer in model.layers)
    size = FEW if N * work <= FEW else max(1, ROWS // work)
    blocks = -(-N // size)
    capacity = 1 << (blocks - 1).bit_length()

    def in_blocks(a: Array) -> np.ndarray:  # filled up by copies of rows: the model need not be finite at 0
        padded = np.pad(np.asarray(a), [(0, capacity * size - N), *[(0, 0)] * (a.ndim - 1)], mode="edge")
        return padded.reshape(capacity, size, *a.shape[1:])

    with limited_threads():
        cache = cache_of(model.layers[-1])
        out = jax.block_until_ready(
            compiled(_all_moments)(
                model, cache, jax.tree.map(in_blocks, data), key, np.int32(blocks), samples, correlated, shared
            )
        )
    mean, cov = (own_array(np.asarray(a)[:, :N], a.dtype) for a in out)  # a[:, :N] would be compiled for each N
    return mean, cov


def joint_moments(
    model: "Model", data: Data, key: Array | None, samples: int | None
) -> tuple[Float[Array, "S N F"], Float[Array, "S NF NF"]]:
    """Mean and covariance of f at all rows together, for each of S independent draws of the layers below the last."""
    key, samples = checked_samples(model, key, samples)
    if is_traced(model, data, key):
        return _joint_of_samples(model, model.layers[-1].cache(), data, key, samples)
    size = len(data) * (model.width(0 if data.x is None else data.x.shape[1]) or 1)
    check_memory("the covariance of all values", (samples, size, size), dtype_of(model), "take fewer rows at a time")
    with limited_threads():
        cache = cache_of(model.layers[-1])
        return jax.block_until_ready(compiled(_joint_of_samples)(model, cache, data, key, samples))


def checked_samples(model: "Model", key: Array | None, samples: int | None) -> tuple[Array | None, int]:
    """The key and the number of samples, checked. None stays None: compiled code makes the default key."""
    if samples is None:
        samples = LATENT_DRAWS if latent_dim(model) else DRAWS
    else:
        at_least_one("samples", samples)
    return None if key is None else as_key(key), (samples if model.is_stochastic else 1)


def is_traced(*trees: Any) -> bool:
    """Whether some array is only known when a program runs."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def _before_last(model: "Model", x: Array, data: Data, key: Array, noise: Array | None = None) -> Array:
    """A sample of the last layer's input at inputs x, [n, 1, D] (each sampled independently) or [1, n, D] (jointly).

    Latent variables are made of `noise` [·, ·, k], or sampled if it is None.
    """
    used = visited = 0

    def visit(layer: AbstractLayer, x: Array) -> Array:
        nonlocal used, visited
        visited += 1
        if noise is None or layer.latent_dim == 0:
            return layer.propagate(x, jax.random.fold_in(key, visited), data, x.shape[1])[0]
        used += layer.latent_dim
        return layer.place(x, noise[..., used - layer.latent_dim : used], data)

    for layer in model.layers[:-1]:
        x = layer.through(x, visit)
    return x


_CACHES: dict[int, Any] = {}


def cache_of(layer: AbstractLayer) -> Any:
    """The layer's cache, computed once: a layer never changes. It is kept for as long as the layer lives."""
    if id(layer) not in _CACHES:
        _CACHES[id(layer)] = settled(compiled(_make_cache, once=True)(layer))
        weakref.finalize(layer, _CACHES.pop, id(layer), None)
    return _CACHES[id(layer)]


def _make_cache(layer: AbstractLayer) -> Any:
    return layer.cache()


def _all_moments(
    model: "Model",
    cache: Any,
    data: Data,
    key: Array | None,
    blocks: Array,
    samples: int,
    correlated: bool,
    shared: bool,
) -> tuple[Array, Array]:
    key = as_key(key)
    noise = _shared_noise(model, data, key, samples) if shared else None

    def one(i):
        block = jax.tree.map(lambda a: a[i], data)
        return _block_moments(model, cache, block, jax.random.fold_in(key, i), noise, samples, correlated)

    def step(i, out):
        return jax.tree.map(lambda all_, block: jax.lax.dynamic_update_index_in_dim(all_, block, i, 1), out, one(i))

    shapes = jax.eval_shape(one, 0)
    out = jax.tree.map(lambda s: jnp.zeros((s.shape[0], len(data), *s.shape[1:]), s.dtype), shapes)
    out = jax.lax.fori_loop(0, blocks, step, out)
    return jax.tree.map(lambda a: a.reshape(a.shape[0], -1, *a.shape[3:]), out)


def _shared_noise(model: "Model", data: Data, key: Array, samples: int) -> Float[Array, "S 1 k"] | None:
    """The noise of latent variables that all rows share."""
    k = latent_dim(model)
    return lattice_normal(jax.random.fold_in(key, SHARED), samples, k, inputs(data).dtype)[:, None] if k else None


def _own_noise(key: Array, rows: int, samples: int, k: int, dtype: Any) -> Float[Array, "S n k"]:
    """The noise of latent variables by a lattice for each row, all shifted independently."""
    noise = jax.vmap(lambda key: lattice_normal(key, samples, k, dtype))(jax.random.split(key, rows))
    return jnp.swapaxes(noise, 0, 1)


def _block_moments(
    model: "Model", cache: Any, data: Data, key: Array, noise: Array | None, samples: int, correlated: bool
) -> tuple[Array, Array]:
    """Mean [S, n, F] and covariance [S, n, F] or [S, n, F, F] of one block; rows are sampled independently."""
    n, k = data.index.shape[0], latent_dim(model)
    if k and noise is None:
        key, own = jax.random.split(key)
        noise = _own_noise(own, n, samples, k, inputs(data).dtype)
    flat = None if noise is None else jnp.broadcast_to(noise, (samples, n, k)).reshape(samples * n, 1, k)
    rows = jax.tree.map(lambda a: jnp.tile(a, (samples,) + (1,) * (a.ndim - 1)), data)
    x = _before_last(model, inputs(rows)[:, None], rows, key, flat)
    mean, cov = model.layers[-1].moments(x, correlated, cache)
    return mean.reshape(samples, n, *mean.shape[2:]), cov.reshape(samples, n, *cov.shape[2:])


def _joint_of_samples(model: "Model", cache: Any, data: Data, key: Array | None, samples: int) -> tuple[Array, Array]:
    noise_key, key = jax.random.split(as_key(key))
    noise = _joint_noise(noise_key, samples, data.index.shape[0], latent_dim(model), inputs(data).dtype)

    def once(item):  # the inputs as replicates of one datum: random functions are drawn jointly over them
        key, noise = item
        x = _before_last(model, inputs(data)[None], data, key, noise[None])
        mean, cov = model.layers[-1].joint(x, cache)
        return mean[0], cov[0]

    return jax.lax.map(once, (jax.random.split(key, samples), noise))


def _joint_noise(key: Array, samples: int, rows: int, k: int, dtype: Any) -> Float[Array, "S n k"]:
    """The noise of latent variables for joint draws: a lattice for each row, its points in random order.

    Each row thus has the points of a lattice, and different rows are independent.
    """
    if k == 0:
        return jnp.zeros((samples, rows, 0), dtype)

    def one(key):
        order, shift = jax.random.split(key)
        return jax.random.permutation(order, lattice_normal(shift, samples, k, dtype))

    return jnp.swapaxes(jax.vmap(one)(jax.random.split(key, rows)), 0, 1)
