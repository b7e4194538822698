"""Contract checks of layers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled
from inducing.data import Data, as_data
from inducing.layers.base import AbstractLayer
from inducing.testing.contract import (
    as_points,
    attempt,
    check_part,
    check_starts,
    default_points,
    fail,
    refused,
    require,
    require_close,
    require_covariance,
    require_finite_gradients,
    require_float32,
    require_moments,
    require_own_arrays,
    require_shape,
    weighted,
)


def check_layer(layer: AbstractLayer, X: Any = None, data: Any = None) -> None:
    """Check that a layer keeps the contract of `ig.layers.AbstractLayer`.

    Shapes fit `width`; the KL divergence is finite and not negative; `moments` is the diagonal of `joint`, and samples
    of `propagate` have these moments jointly over the replicates of a datum; `correlated` and `couples_replicates` are
    true; `draw` gives one function with the same moments, or is refused; gradients are finite; `variational`,
    `gaussians` and `per_datum` name arrays of the layer.

    Args:
        layer: the layer to check.
        X: inputs [N, D] that the layer accepts, at least three rows. By default, six points in `layer.num_inputs`
            dimensions (2 if unknown).
        data: the `ig.Data` that the rows of X belong to, for layers with encoders that see labels. By default, X alone.

    Raises:
        AssertionError: if the layer breaks the contract.

    Examples:
        >>> import inducing as ig
        >>> ig.testing.check_layer(ig.BayesianDense(2, 3))
    """
    check_part(layer, AbstractLayer)
    if X is None and data is not None:
        X = as_data(data).x
    X = as_points(layer, default_points(layer.num_inputs or 2) if X is None else X)
    data = Data(X) if data is None else as_data(data, X.dtype)
    (N, D), R = X.shape, 3
    attempt(layer, "check_inputs must accept X", layer.check_inputs, np.asarray(X))
    P = attempt(layer, f"width({D}) must be the number of outputs", layer.width, D, jit=False)
    key = jax.random.key(0)
    values = attempt(layer, "propagate and kl must run under jit", _layer_values, layer, X, key, data, R)
    _check_propagate(layer, values, (N, R, P))
    require_finite_gradients(layer, "gradients of propagate and kl", _layer_gradients, layer, X, key, data, R)
    require_float32(layer, "propagate", _propagate, layer, X, key, data, R)
    leaves = {"variational": layer.variational(), "per_datum": layer.per_datum(), "gaussians": layer.gaussians()}
    for name, named in leaves.items():
        require_own_arrays(layer, name, jax.tree.leaves(named), layer)
    if layer.gaussians() and layer.is_fresh:
        contract = "at_prior() of a fresh layer must set q to the prior, so that its KL is 0"
        require_close(layer, contract, compiled(_kl, True)(layer.at_prior()), jnp.zeros(()), slack=1e-6)
    unlabelled = data.without_labels()
    starts, outputs = layer.start_inputs(lambda: X, unlabelled, iter(range(10)))
    sample = outputs()
    found = f"it has {list(sample.shape)}"
    require(sample.shape[1:] == (P,), layer, f"the sample of start_inputs must have {P} columns", found)
    check_starts(layer, "start_inputs", starts, layer)
    if not layer.terminal:
        _check_refusal(layer, X)
    else:
        _check_moments(layer, X, P, data)
    _check_layer_draws(layer, X, P)


def _kl(layer: AbstractLayer) -> Array:
    return layer.kl()


def _layer_values(layer: AbstractLayer, X: Array, key: Array, data: Data, R: int) -> tuple[Array, ...]:
    x, w = layer.propagate(X[:, None], key, data, R)
    wide = jnp.repeat(X[:, None], R, axis=1)
    other = wide.at[:, 0].set(wide[::-1, 0])
    y, v = layer.propagate(wide, key, data, R)
    return x, w, y, v, layer.kl(), layer.propagate(other, key, data, R)[0]


def _propagate(layer: AbstractLayer, X: Array, key: Array, data: Data, R: int) -> tuple[Array, Array]:
    return layer.propagate(X[:, None], key, data, R)


def _layer_gradients(layer: AbstractLayer, X: Array, key: Array, data: Data, R: int) -> Any:
    return eqx.filter_grad(lambda b: weighted((_propagate(*b, key, data, R), b[0].kl())))((layer, X))


def _check_propagate(layer: AbstractLayer, values: tuple[Array, ...], shape: tuple[int, int, int]) -> None:
    x, w, y, v, kl, other = values
    N, R, P = shape
    ok = x.ndim == 3 and x.shape in ((N, 1, P), (N, R, P))
    found = f"the output has {list(x.shape)}"
    require(ok, layer, f"propagate must turn [N, 1, D] into [N, R, P] or [N, 1, P] of {list(shape)}", found)
    require_shape(layer, "the output of propagate for inputs [N, R, D]", y, shape)
    for value, weight in ((x, w), (y, v)):
        require_shape(layer, "the log-weights of propagate", weight, value.shape[:2])
        ok = bool(np.isfinite(value).all() and np.isfinite(weight).all())
        require(ok, layer, "propagate must give finite outputs and log-weights", "some are not")
    require_shape(layer, "kl()", kl, ())
    ok = bool(np.isfinite(kl)) and float(kl) > -1e-6
    require(ok, layer, "kl() must be finite and not negative", f"it is {float(kl)}")
    if not layer.random:
        contract = "a layer that is not random must give equal replicates for equal inputs"
        require_close(layer, contract, y, y[:, :1] + 0 * y)
    if not layer.couples_replicates:
        contract = "without couples_replicates, an output must not depend on the other replicates"
        require_close(layer, contract, other[:, 1:], y[:, 1:])


def _check_refusal(layer: AbstractLayer, X: Array) -> None:
    for name, method in (("moments", layer.moments), ("joint", layer.joint)):
        try:
            method(X[:, None])
        except TypeError:
            continue
        fail(layer, f"a layer that is not terminal must raise a TypeError in {name}", "it returns a value")


def _check_moments(layer: AbstractLayer, X: Array, P: int, data: Data) -> None:
    G = 3
    groups = jnp.stack([X[:G], X[-G:]])
    values = attempt(layer, "moments and joint must run under jit", _layer_moments, layer, groups)
    (mean, var), (_, block), (whole, cov), cached = values
    require_shape(layer, "the mean of moments", mean, (2, G, P))
    require_shape(layer, "the variance of moments", var, (2, G, P))
    require_shape(layer, "the mean of joint", whole, (2, G, P))
    require_shape(layer, "the covariance of joint", cov, (2, G * P, G * P))
    for i in range(2):
        require_covariance(layer, "the covariance of joint", cov[i])
    blocks = np.asarray(cov).reshape(2, G, P, G, P)
    own = np.einsum("ngpgq->ngpq", blocks)
    require_close(layer, "moments and joint must have the same mean", mean, whole, 1e-6)
    diagonal = np.diagonal(own, axis1=2, axis2=3)
    require_close(layer, "the variances of moments must be the diagonal of joint", var, diagonal, 1e-6)
    require_close(layer, "moments with the cache must agree with moments without", cached, var, 1e-6)
    full = block if block.ndim == 4 else block[..., None] * jnp.eye(P, dtype=block.dtype)[None, None]
    require_shape(layer, "moments(x, correlated=True)[1]", full, (2, G, P, P))
    require_close(
        layer, "moments(x, correlated=True) must give the covariance of outputs as joint does", full, own, 1e-6
    )
    if not layer.correlated:
        off = own * (1 - np.eye(P))
        require_close(layer, "correlated is False, so that outputs must not covary", off, np.zeros_like(off), 1e-8)
    rows = data.rows(jnp.zeros(3000, int))
    samples = compiled(_layer_samples, True)(layer, X[:G], jax.random.key(1), rows)
    samples = np.asarray(samples).reshape(len(samples), -1)
    what = "the outputs of propagate at the replicates of a datum"
    require_moments(layer, what, samples, np.reshape(whole[0], -1), np.asarray(cov[0]))


def _layer_moments(layer: AbstractLayer, groups: Array) -> tuple:
    cached = layer.moments(groups, cache=layer.cache())[1]
    return layer.moments(groups), layer.moments(groups, correlated=True), layer.joint(groups), cached


def _layer_samples(layer: AbstractLayer, X: Array, key: Array, data: Data) -> Array:
    x = jnp.broadcast_to(X[None], (len(data), *X.shape))
    return layer.propagate(x, key, data, X.shape[0])[0]


def _check_layer_draws(layer: AbstractLayer, X: Array, P: int) -> None:
    keys = jax.random.split(jax.random.key(0), 400 if layer.terminal else 1)
    if refused(_layer_draws, layer, X[:3], keys):
        return  # some parts have no draws, and say so
    values, again = attempt(layer, "draw must run under jit and vmap", _layer_draws, layer, X[:3], keys)
    require_shape(layer, "f(X) of draw", values[0], (3, P))
    require_close(layer, "draw must give one function, the same wherever it is evaluated", again, values[:, :2], 1e-5)
    if layer.terminal:
        mean, cov = compiled(_layer_moments, True)(layer, jnp.stack([X[:3], X[-3:]]))[2]
        flat = np.asarray(values).reshape(len(values), -1)
        require_moments(layer, "draws", flat, np.reshape(mean[0], -1), np.asarray(cov[0]), 1e-2)


def _layer_draws(layer: AbstractLayer, X: Array, keys: Array) -> tuple[Array, Array]:
    def one(key: Array) -> tuple[Array, Array]:
        f = layer.draw(key, 64, X.shape[1])
        return f(X), f(X[:2])

    return jax.vmap(one)(keys)
