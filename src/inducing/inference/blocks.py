"""Mean and covariance of q(f) at new inputs, in compiled blocks for any number of them or jointly."""

import weakref
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import compiled, limited_threads, own_array
from inducing.data import Data
from inducing.layers.base import AbstractLayer
from inducing.layers.cache import settled, with_cache
from inducing.parameters import as_key, at_least_one

if TYPE_CHECKING:
    from inducing.model import Model

FEW, ROWS = 128, 1024  # rows of a block for few inputs, and for many (divided by the numbers of samples and sites)
NEW = -1  # Data.index of an input that is not a training datum


def one_covariance(full_cov: bool, output_cov: bool) -> None:
    """Raise a ValueError if both kinds of covariance are asked for."""
    if full_cov and output_cov:
        raise ValueError("full_cov=True holds the covariance of the outputs too; leave output_cov out.")


def samples_need_covariance(model: "Model", mean: Float[Array, "S N F"]) -> bool:
    """Whether samples of f at one input need more than the variances of the F outputs."""
    return mean.shape[-1] > 1 and model.layers[-1].correlated


def moments(
    model: "Model", X: Array, index: Array | None, key: Array | None, samples: int, correlated: bool
) -> tuple[Float[Array, "S N F"], Float[Array, "..."]]:
    """Mean [S, N, F] and variances [S, N, F] (or covariances [S, N, F, F]) of f at each input.

    Rows are padded to whole blocks, and the number of blocks to a power of two, so that few shapes are compiled. Only
    the blocks that hold inputs are computed.
    """
    key, samples = _needs_key(model, key, samples)
    if _traced(model, X, index, key):  # under jit, grad or vmap: the outer program compiles this
        own = jnp.full(len(X), NEW) if index is None else index
        cache = model.layers[-1].cache()
        return with_cache(lambda c: _block_moments(model, c, X, own, as_key(key), samples, correlated), cache)
    N = len(X)
    work = samples * max(layer.num_sites for layer in model.layers)
    size = FEW if N * work <= FEW else max(1, ROWS // work)
    blocks = -(-N // size)
    capacity = 1 << (blocks - 1).bit_length()
    x = np.pad(np.asarray(X), [(0, capacity * size - N), (0, 0)], mode="edge")  # the model need not be finite at 0
    rows = np.full(capacity * size, NEW)
    rows[:N] = NEW if index is None else np.asarray(index)
    x, rows = x.reshape(capacity, size, -1), rows.reshape(capacity, size)
    with limited_threads():
        cache = _cache_of(model.layers[-1])
        out = jax.block_until_ready(
            compiled(_all_moments)(model, cache, x, rows, key, np.int32(blocks), samples, correlated)
        )
    mean, cov = (own_array(np.asarray(a)[:, :N], a.dtype) for a in out)  # a[:, :N] would be compiled for each N
    return mean, cov


def joint_moments(
    model: "Model", X: Array, index: Array | None, key: Array | None, samples: int
) -> tuple[Float[Array, "S N F"], Float[Array, "S NF NF"]]:
    """Mean and covariance of f at all inputs together."""
    key, samples = _needs_key(model, key, samples)
    rows = jnp.full(len(X), NEW) if index is None else index
    if _traced(model, X, index, key):
        return _joint_of_samples(model, model.layers[-1].cache(), X, rows, key, samples)
    with limited_threads():
        cache = _cache_of(model.layers[-1])
        return jax.block_until_ready(compiled(_joint_of_samples)(model, cache, X, rows, key, samples))


def _needs_key(model: "Model", key: Array | None, samples: int) -> tuple[Array | None, int]:
    """The key and the number of samples, checked. None stays None: compiled code makes the default key."""
    at_least_one("samples", samples)
    return None if key is None else as_key(key), (samples if model.is_stochastic else 1)


def _traced(*trees: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def _before_last(model: "Model", x: Array, index: Array, key: Array) -> Array:
    """A sample of the last layer's input at inputs x, [n, 1, D] (each sampled by itself) or [1, n, D] (jointly)."""
    inner = model.layers[:-1]
    if not inner:
        return x
    n, replicates, D = x.shape
    data = Data(x.reshape(n * replicates, D), index=index)
    for layer, k in zip(inner, model.keys(key), strict=False):
        x, _ = layer.propagate(x, k, data, replicates)
    return x


_CACHES: dict[int, Any] = {}


def _cache_of(layer: AbstractLayer) -> Any:
    """The layer's cache, computed once: a layer never changes. It is kept for as long as the layer lives."""
    if id(layer) not in _CACHES:
        _CACHES[id(layer)] = settled(compiled(_make_cache, once=True)(layer))
        weakref.finalize(layer, _CACHES.pop, id(layer), None)
    return _CACHES[id(layer)]


def _make_cache(layer: AbstractLayer) -> Any:
    return layer.cache()


def _all_moments(
    model: "Model", cache: Any, x: Array, rows: Array, key: Array | None, blocks: Array, samples: int, correlated: bool
) -> tuple[Array, Array]:
    def one(i):
        return _block_moments(model, cache, x[i], rows[i], jax.random.fold_in(as_key(key), i), samples, correlated)

    def step(i, out):
        return jax.tree.map(lambda all_, block: jax.lax.dynamic_update_index_in_dim(all_, block, i, 1), out, one(i))

    shapes = jax.eval_shape(one, 0)
    out = jax.tree.map(lambda s: jnp.zeros((s.shape[0], x.shape[0], *s.shape[1:]), s.dtype), shapes)
    out = jax.lax.fori_loop(0, blocks, step, out)
    return jax.tree.map(lambda a: a.reshape(a.shape[0], -1, *a.shape[3:]), out)


def _block_moments(
    model: "Model", cache: Any, X: Array, index: Array, key: Array, samples: int, correlated: bool
) -> tuple[Array, Array]:
    """Mean [S, n, F] and covariance [S, n, F] or [S, n, F, F] of one block; each input is sampled by itself."""
    n = len(X)
    x = jnp.tile(X, (samples, 1))
    h = _before_last(model, x[:, None], jnp.tile(index, samples), key)
    mean, cov = model.layers[-1].moments(h, correlated, cache)
    return mean.reshape(samples, n, *mean.shape[2:]), cov.reshape(samples, n, *cov.shape[2:])


def _joint_of_samples(
    model: "Model", cache: Any, X: Array, index: Array, key: Array | None, samples: int
) -> tuple[Array, Array]:
    def once(key):  # the inputs as replicates of one datum: random functions are drawn jointly over them
        x = _before_last(model, X[None], index, key)
        mean, cov = model.layers[-1].joint(x, cache)
        return mean[0], cov[0]

    return jax.lax.map(once, jax.random.split(as_key(key), samples))
