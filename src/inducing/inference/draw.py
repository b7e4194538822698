"""Functions drawn from q(f)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import in_blocks
from inducing.checks import check_counts, check_model, checked_inputs
from inducing.inference.blocks import ROWS
from inducing.layers.base import draw_stack
from inducing.parameters import as_key

if TYPE_CHECKING:
    from inducing.model import Model


def draw(model: "Model", key: Array, num_features: int = 1024) -> Callable[[Any], Float[Array, "N P"]]:
    """One function drawn from q(f); the same as `Model.draw`.

    Args:
        model: an `ig.Model`.
        key: a random key. The same key gives the same function.
        num_features: the number of random features of each kernel that has infinitely many.

    Returns:
        A function f of inputs X [N, D] with values [N, P]. It is the same function at every call.

    Raises:
        TypeError: if `model` is not a model, or a kernel has no random features.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> f = ig.inference.draw(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), jax.random.key(0))
        >>> f([0.2, 0.7]).shape
        (2, 1)
    """
    check_model(model)
    check_counts(num_features=num_features)
    key = as_key(key)

    def drawn(dim: int) -> Callable:
        return draw_stack(model.layers, key, num_features, dim)

    dim = model.layers[0].num_inputs
    kept = {} if dim is None else {dim: drawn(dim)}  # refuses a kernel that cannot be drawn now, not at the first call

    def f(X: Any) -> Float[Array, "N P"]:
        X, _ = checked_inputs(model, X)
        one_block = kept.get(X.shape[1]) or drawn(X.shape[1])
        if not isinstance(
            jnp.zeros(()), jax.core.Tracer
        ):  # a function drawn under jit holds tracers, which may not leak
            kept[X.shape[1]] = one_block
        return in_blocks(one_block, X, ROWS)

    return f
