"""Layers that wrap others: any function as a layer, and layers whose output is appended to their input."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from inducing.data import some_rows
from inducing.declared import shown
from inducing.layers.base import (
    AbstractLayer,
    append,
    check_stack,
    draw_stack,
    refuse_terminal,
    stack_width,
    start_stack,
    sum_of_kl,
)
from inducing.parameters import dtype_of, one_or_several


class Deterministic(AbstractLayer):
    """Any function or Equinox module as a layer.

    Its arrays are trained with the rest of the model, as point estimates. Use it as a feature extractor below a GP, as
    the activation function of a Bayesian neural network, or as the decoder of a variational auto-encoder.

    Args:
        function: a function of one point [D] that returns a vector [P] or a number, such as an `eqx.nn.MLP` or
            `jnp.tanh`.

    Raises:
        TypeError: if it is not a function.

    Examples:
        >>> import inducing as ig
        >>> ig.Deterministic(jnp.tanh).moments(jnp.ones((4, 1, 3)))[0].shape
        (4, 1, 3)
    """

    function: Callable[[Array], Array]
    random = False
    terminal = True
    correlated = False
    couples_replicates = False

    def __init__(self, function: Any):
        if not callable(function):
            raise TypeError(f"function must be a function or an Equinox module of one point, got {shown(function)}.")
        # A plain function would be a leaf of the pytree. Inside a Partial it is part of the structure of the pytree.
        is_leaf = any(leaf is function for leaf in jax.tree.leaves(function))
        is_tree = bool(jax.tree.leaves(function)) and not is_leaf
        self.function = function if is_tree else jax.tree_util.Partial(function)

    def _apply(self, x: Array) -> Array:
        y = jax.vmap(jax.vmap(self.function))(x)
        y = y if jnp.issubdtype(y.dtype, jnp.inexact) else y.astype(x.dtype)  # such as the booleans of v > 0
        return y[..., None] if y.ndim == 2 else y

    def propagate(self, x, key, data, replicates):
        return self._apply(x), jnp.zeros(x.shape[:2], x.dtype)

    def cache(self) -> None:
        return None

    def moments(self, x, correlated=False, cache=None):
        f = self._apply(x)
        return f, jnp.zeros((*f.shape, f.shape[-1]) if correlated else f.shape, f.dtype)

    def joint(self, X, cache=None):
        f = self._apply(X)
        size = f.shape[1] * f.shape[2]
        return f, jnp.zeros((f.shape[0], size, size), f.dtype)

    def kl(self):
        return jnp.zeros((), dtype_of(self))

    def draw(self, key, num, dim):
        return lambda X, x=None: self._apply(X[:, None])[:, 0]

    def width(self, inputs):
        if inputs is None:
            return None
        try:
            out = jax.eval_shape(self.function, jax.ShapeDtypeStruct((inputs,), dtype_of(self)))
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"its function fails for a point of {inputs} entries ({first_line(error)})") from error
        if not isinstance(out, jax.ShapeDtypeStruct) or len(out.shape) > 1:
            given = f"shape {list(out.shape)}" if isinstance(out, jax.ShapeDtypeStruct) else f"a {type(out).__name__}"
            raise ValueError(f"its function must give a number or a vector, but it gives {given}")
        return out.shape[0] if out.shape else 1

    def sample_global(self, x, key, data, weight):
        return self._apply(x), jnp.zeros((), x.dtype)


class Skip(AbstractLayer):
    """Layers whose output is appended to their input: x ↦ [x, f(x)].

    Args:
        layers: one layer or a sequence of layers, which make up f.

    Raises:
        TypeError: if one of them is not a layer.
        ValueError: if there is none.

    Examples:
        >>> import inducing as ig
        >>> skip = ig.Skip(ig.Deterministic(jnp.sin))
        >>> skip.propagate(jnp.ones((4, 1, 2)), None, ig.Data(jnp.ones((4, 2))), 1)[0].shape
        (4, 1, 4)
    """

    layers: tuple[AbstractLayer, ...]
    terminal = False

    @property
    def random(self) -> bool:
        return any(layer.random for layer in self.layers)

    def __init__(self, layers: AbstractLayer | Sequence[AbstractLayer]):
        self.layers = one_or_several(layers)
        for layer in self.layers:
            if not isinstance(layer, AbstractLayer):
                raise TypeError(f"Skip holds layers, not {shown(layer)}; wrap it in ig.Deterministic(...).")

    def __check_init__(self):
        if not self.layers:
            raise ValueError("layers is empty; give Skip at least one layer.")

    def propagate(self, x, key, data, replicates):
        keys: Any = [None] * len(self.layers) if key is None else jax.random.split(key, len(self.layers))
        y, log_weight = x, jnp.zeros((), x.dtype)
        for layer, k in zip(self.layers, keys, strict=True):
            y, w = layer.propagate(y, k, data, replicates)
            log_weight = jnp.broadcast_to(log_weight, w.shape) + w
        return append(x, y), log_weight

    def cache(self) -> None:
        return None

    def moments(self, x, correlated=False, cache=None):
        refuse_terminal(self)

    def joint(self, X, cache=None):
        refuse_terminal(self)

    def kl(self):
        return sum_of_kl(self)

    def draw(self, key, num, dim):
        f = draw_stack(self.layers, key, num, dim)
        return lambda X, x=None: jnp.concatenate([X, f(X, x)], axis=-1)

    def width(self, inputs):
        width = stack_width(self.layers, inputs, "its input has")
        return None if inputs is None or width is None else inputs + width

    @property
    def couples_replicates(self) -> bool:
        return any(layer.couples_replicates for layer in self.layers)

    @property
    def num_inputs(self) -> int | None:
        return self.layers[0].num_inputs

    @property
    def num_sites(self) -> int:
        return max(layer.num_sites for layer in self.layers)

    def check_inputs(self, X):
        self.layers[0].check_inputs(X)

    def check_below(self, below, name):
        check_stack(self.layers, below, f"{name}.layers")

    def variational(self):
        return tuple(layer.variational() for layer in self.layers)

    def gaussians(self):
        return tuple(q for layer in self.layers for q in layer.gaussians())

    @property
    def is_whitened(self) -> bool:
        return all(layer.is_whitened for layer in self.layers)

    def per_datum(self):
        return tuple(layer.per_datum() for layer in self.layers)

    def encoders(self):
        return tuple(encoder for layer in self.layers for encoder in layer.encoders())

    def check_index(self, index):
        for layer in self.layers:
            layer.check_index(index)

    def sample_global(self, x, key, data, weight):
        y, total = x, jnp.zeros((), x.dtype)
        for layer, k in zip(self.layers, jax.random.split(key, len(self.layers)), strict=True):
            sampled = layer.sample_global(y, k, data, weight)
            if sampled is None:
                return None
            y, total = sampled[0], total + sampled[1]
        return append(x, y), total

    @property
    def latent_dim(self) -> int:
        return sum(layer.latent_dim for layer in self.layers)

    def through(self, x, visit):
        y = x
        for layer in self.layers:
            y = layer.through(y, visit)
        return append(x, y)

    def relative_jitter(self):
        return functools.reduce(jnp.maximum, [layer.relative_jitter() for layer in self.layers])

    @property
    def is_fresh(self) -> bool:
        return all(layer.is_fresh for layer in self.layers)

    def at_prior(self):
        return Skip([layer.at_prior() for layer in self.layers])

    def units(self, x):
        return [unit for i, layer in enumerate(self.layers) for unit in layer.units(x if i == 0 else None)]

    def start_inputs(self, x, data, seeds):
        inputs = functools.cache(lambda: some_rows(x()))
        starts, outputs = start_stack(self.layers, inputs, data, seeds)
        return starts, functools.cache(lambda: jnp.concatenate([inputs(), outputs()], axis=1))


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its type if it has none.

    Examples:
        >>> first_line(ValueError("no\\nmore"))
        'no'
    """
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
