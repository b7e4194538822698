"""Contract checks of encoders."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled
from inducing.data import Data, as_data
from inducing.layers.encoders import AbstractEncoder
from inducing.parameters import dtype_of
from inducing.testing.contract import (
    attempt,
    check_part,
    require,
    require_close,
    require_finite_gradients,
    require_float32,
    require_own_arrays,
    weighted,
)


def check_encoder(encoder: AbstractEncoder, dim: int, data: Any) -> None:
    """Check that an encoder keeps the contract of `ig.layers.AbstractEncoder`.

    Mean and root have the right shapes, are finite and depend on each datum alone, and `per_datum` names arrays of the
    encoder.

    Args:
        encoder: the encoder to check.
        dim: the dimension d of the latent variable.
        data: (X, y) or an `ig.Data`, with everything that the encoder sees; at least two rows.

    Raises:
        AssertionError: if the encoder breaks the contract.

    Examples:
        >>> import inducing as ig
        >>> encoder = ig.layers.PerDatumEncoder([[0.0], [1.0], [2.0]], scale=0.1)
        >>> ig.testing.check_encoder(encoder, 1, ig.Data(None, [1.0, 2.0, 3.0]))
    """
    check_part(encoder, AbstractEncoder)
    data = as_data(data, dtype_of(encoder))
    attempt(encoder, f"check({dim}) must accept the dimension", encoder.check, dim)
    known = {"x", "y", "mask", "index", "input"}
    ok = set(encoder.sees) <= known
    require(ok, encoder, f"sees must name some of {sorted(known)}", f"it is {encoder.sees}")
    attempt(encoder, "check_index must accept data.index", encoder.check_index, np.asarray(data.index))
    mean, root = attempt(encoder, "it must run under jit", _encode, encoder, data, dim)
    N = len(data)
    ok = mean.ndim == 3 and mean.shape[0] == N and mean.shape[2] == dim
    require(ok, encoder, f"the mean must have shape [{N}, R, {dim}]", f"it has {list(mean.shape)}")
    ok = root.shape in (mean.shape, (*mean.shape, dim))
    require(ok, encoder, "the root must have the shape of the mean, or one more axis", f"it has {list(root.shape)}")
    last = compiled(_encode, True)(encoder, data.rows(jnp.arange(N - 1, N)), dim)
    require_close(encoder, "q(h_n) must depend on datum n alone", last[0], mean[-1:])
    require_close(encoder, "q(h_n) must depend on datum n alone", last[1], root[-1:])
    require_finite_gradients(encoder, "gradients", _encoder_gradients, encoder, data, dim)
    require_float32(encoder, "mean and root", _encode, encoder, data, dim)
    require_own_arrays(encoder, "per_datum", jax.tree.leaves(encoder.per_datum()), encoder)


def _encode(encoder: AbstractEncoder, data: Data, dim: int) -> tuple[Array, Array]:
    x = jnp.zeros((len(data), 0), dtype_of(encoder)) if data.x is None else data.x
    return encoder(x[:, None], data, dim)


def _encoder_gradients(encoder: AbstractEncoder, data: Data, dim: int) -> Any:
    return eqx.filter_grad(lambda e: weighted(_encode(e, data, dim)))(encoder)
