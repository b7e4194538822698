"""Encoders: the approximate posterior q(h_n) of a latent variable (section 3.3)."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.data import Data
from inducing.declared import shown
from inducing.layers.deterministic import first_line
from inducing.parameters import Module, as_key, as_numbers, as_tuple, at_least_one, positive, question, real


class AbstractEncoder(Module):
    """The approximate posterior q(h_n) of a latent variable, a Gaussian.

    If functions are drawn jointly over the data, the layer's input is [1, N, D], and mean and root are [1, N, ·] too.

    Examples:
        >>> import inducing as ig
        >>> network = lambda v: jnp.concatenate([2.0 * v, v])      # mean 2x, standard deviation softplus(x)
        >>> encoder = ig.layers.Amortised(network, sees=("x",))
        >>> mean, root = encoder(jnp.ones((3, 1, 1)), ig.Data([1.0, 2.0, 3.0]), 1)
        >>> encoder.sees, mean[:, 0, 0].tolist()
        (('x',), [2.0, 4.0, 6.0])
    """

    _such_as = "an encoder, such as ig.layers.PerDatumEncoder(mean)"

    @property
    @abc.abstractmethod
    def sees(self) -> tuple[str, ...]:
        """What q(h_n) depends on: "x", "y" and "mask" of the datum, its "index", or the layer's own "input"."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "N R D"], data: Data, dim: int) -> tuple[Array, Array]:
        """Mean and root of q(h_n).

        Args:
            x: the layer's input.
            data: the data that x belongs to.
            dim: d, the dimension of h.

        Returns:
            The mean [N, R, d], and a root of the covariance: [N, R, d] (standard deviations) or [N, R, d, d] (lower
            triangular). R may be 1.
        """

    @abc.abstractmethod
    def check(self, dim: int) -> None:
        """Raise a ValueError if the encoder is not for latent variables of this dimension."""

    @question
    def per_datum(self) -> Any:
        """A pytree of the encoder's arrays that have one row for each datum, addressed by `Data.index`."""
        return ()

    @question
    def check_index(self, index: np.ndarray) -> None:
        """Raise a ValueError if the encoder has no Gaussian for some entry of `index` [N]."""


class PerDatumEncoder(AbstractEncoder):
    """One Gaussian for each datum.

    `Data.index` says which Gaussian belongs to a row, so the data may be shuffled or come in minibatches.

    Args:
        mean: the means [N, d].
        scale: the standard deviations, which broadcast to [N, d].
        full: whether the covariance is full. Its root is diag(scale) plus a strictly lower triangle that starts at 0.

    Raises:
        ValueError: if the shapes of `mean` and `scale` do not fit.

    Examples:
        >>> import inducing as ig
        >>> encoder = ig.layers.PerDatumEncoder(jnp.zeros((5, 2)), scale=0.1, full=True)
        >>> mean, root = encoder(jnp.zeros((2, 1, 0)), ig.Data(None, [1.0, 2.0], index=[4, 0]), 2)
        >>> mean.shape, root.shape
        ((2, 1, 2), (2, 1, 2, 2))
    """

    mean: Float[Array, "N d"] = real()
    scale: Float[Array, "N d"] = positive()
    lower: Float[Array, "N k"] | None = real()
    sees = ("index",)

    def __init__(self, mean: Any, scale: Any = 1.0, full: bool = False):
        mean = as_numbers("mean", mean)
        if not isinstance(full, bool):
            raise TypeError(f"full must be True or False, got {shown(full)}.")
        if mean.ndim != 2:
            raise ValueError(f"mean must be [N, d], one row for each datum, got shape {list(mean.shape)}.")
        scale = as_numbers("scale", scale).astype(mean.dtype)
        if scale.ndim > 2 or any(a not in (1, b) for a, b in zip(scale.shape[::-1], mean.shape[::-1], strict=False)):
            raise ValueError(
                f"scale has shape {list(scale.shape)}; for a mean {list(mean.shape)} pass one number, one for each of "
                f"the {mean.shape[1]} dimensions, or {list(mean.shape)} (one for each datum: [{mean.shape[0]}, 1])."
            )
        self.mean = mean
        self.scale = jnp.broadcast_to(scale, mean.shape)
        self.lower = jnp.zeros((mean.shape[0], _num_lower(mean.shape[1])), mean.dtype) if full else None

    def __check_init__(self):
        if self.mean.ndim != 2 or 0 in self.mean.shape or self.scale.shape != self.mean.shape:
            raise ValueError(
                f"mean and scale must both be [N, d], got {list(self.mean.shape)} and {list(self.scale.shape)}."
            )
        lower = (self.mean.shape[0], _num_lower(self.mean.shape[1]))
        if self.lower is not None and self.lower.shape != lower:
            raise ValueError(f"lower has shape {list(self.lower.shape)}; a mean {list(self.mean.shape)} needs {lower}.")

    def __call__(self, x, data, dim):
        N = self.mean.shape[0]
        # The checks of a model do not cover `LatentVariable.posterior`, and JAX clamps an index that is out of range.
        if not isinstance(data.index, jax.core.Tracer):
            least, most = np.asarray(data.index).min(), np.asarray(data.index).max()
            if least < 0 or most >= N:
                raise ValueError(
                    f"Data.index goes from {least} up to {most} but the encoder has Gaussians for {N} data; number the "
                    "data of all batches from 0 as in the encoder."
                )
        lower = None if self.lower is None else self.lower[data.index][:, None]
        return self.mean[data.index][:, None], _root(self.scale[data.index][:, None], lower)

    def check(self, dim):
        if self.mean.shape[1] != dim:
            raise ValueError(
                f"the encoder's Gaussians have {self.mean.shape[1]} dimensions but the latent variable has {dim}."
            )

    def per_datum(self):
        return self.mean, self.scale, self.lower

    def check_index(self, index):
        N = self.mean.shape[0]
        if index.max() >= N:
            raise ValueError(
                f"an encoder has Gaussians for {N} data, but data.index reaches {index.max()}; "
                "number the data from 0 as in the encoder."
            )


class Amortised(AbstractEncoder):
    """The Gaussian q(h | x, y) that a network computes.

    Args:
        network: a function or Equinox module of one vector, the concatenation of what it sees. It returns 2d numbers:
            the mean, and the standard deviations before a softplus. For a full covariance it returns d + d(d+1)/2
            numbers: the mean, the diagonal of the root before a softplus, and the strictly lower triangle of the root.
        sees: what the network sees: any of "x", "y", "mask" and "input". Missing labels are 0 in "y" and in "mask". An
            encoder that sees only "x" is used in predictions too (eq:pred_lv_iid_alt). "input" is the layer's own
            input, which differs from "x" in inner layers.

    Raises:
        TypeError: if `network` is not a function.
        ValueError: if `sees` contains any other name.

    Examples:
        >>> import inducing as ig
        >>> encoder = ig.layers.Amortised.mlp(jax.random.key(0), dim=1, x=2, y=1)
        >>> mean, root = encoder(jnp.zeros((3, 1, 2)), ig.Data(jnp.zeros((3, 2)), jnp.zeros(3)), 1)
        >>> mean.shape, root.shape
        ((3, 1, 1), (3, 1, 1))
    """

    network: Callable[[Array], Array]
    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, network: Any, sees: tuple[str, ...] = ("x", "y", "mask")):
        if not callable(network):
            raise TypeError(f"network must be a function or an Equinox module of one vector, got {shown(network)}.")
        self.network = network
        self.names = (sees,) if isinstance(sees, str) else as_tuple(sees)

    def __check_init__(self):
        if not self.names or not set(self.names) <= {"x", "y", "mask", "input"}:
            raise ValueError(f'sees must name some of "x", "y", "mask" and "input", got {self.names}.')

    @staticmethod
    def mlp(
        key: Array,
        dim: int,
        *,
        x: int = 0,
        y: int = 0,
        hidden: tuple[int, int] = (20, 2),
        full: bool = False,
        activation: Any = jnp.tanh,
    ) -> "Amortised":
        """An encoder with a multilayer perceptron as its network.

        Args:
            key: a random key for its initial weights.
            dim: d, the dimension of the latent variable.
            x: the number of columns of x that it sees; 0 if it does not see x.
            y: the number of columns of y that it sees; 0 if it does not see y.
            hidden: width and depth of the hidden layers.
            full: whether the covariance of q(h) is full.
            activation: the activation function of the hidden layers.

        Returns:
            The encoder.

        Examples:
            >>> import inducing as ig
            >>> ig.layers.Amortised.mlp(jax.random.key(0), dim=2, y=12).sees
            ('y', 'mask')
        """
        if x == 0 and y == 0:
            raise ValueError("pass the number of columns that the encoder sees: x=…, y=…, or both.")
        for name, count in (("dim", dim), ("x", x or 1), ("y", y or 1)):
            at_least_one(name, count)
        if not isinstance(hidden, tuple | list) or len(hidden) != 2:
            raise ValueError(f"hidden must be (width, depth), got {hidden!r}; (20, 2) is two layers of 20 units.")
        out = dim + dim + (_num_lower(dim) if full else 0)
        sees = (("x",) if x else ()) + (("y", "mask") if y else ())
        last = jax.nn.identity  # a function with a name can be pickled
        return Amortised(eqx.nn.MLP(x + 2 * y, out, hidden[0], hidden[1], activation, last, key=as_key(key)), sees)

    @property
    def sees(self) -> tuple[str, ...]:
        return self.names

    def __call__(self, x, data, dim):
        out = self._apply([self._part(name, x, data) for name in self.names])
        sizes = (2 * dim, 2 * dim + _num_lower(dim))
        if out.ndim != 3 or out.shape[2] not in sizes:
            given = f"{out.shape[2]} numbers" if out.ndim == 3 else f"an array of shape {list(out.shape[2:])}"
            raise ValueError(
                f"the encoder's network gives {given}; a latent variable of {dim} dimensions needs {sizes[0]} numbers "
                f"(diagonal covariance) or {sizes[1]} (full)."
            )
        mean, raw, lower = out[..., :dim], out[..., dim : 2 * dim], out[..., 2 * dim :]
        return mean, _root(jax.nn.softplus(raw), lower if lower.shape[-1] else None)

    def _apply(self, parts: list[Array]) -> Array:
        """The network applied to the concatenated parts. If it fails, a ValueError states their widths."""
        R = max(p.shape[1] for p in parts)
        v = jnp.concatenate([jnp.broadcast_to(p, (p.shape[0], R, p.shape[2])) for p in parts], axis=-1)
        try:
            return jax.vmap(jax.vmap(self.network))(v)
        except (IndexError, TypeError, ValueError) as error:
            seen = ", ".join(f"{p.shape[2]} of {name}" for name, p in zip(self.names, parts, strict=True))
            raise ValueError(
                f"the encoder's network fails for the {v.shape[2]} numbers that it sees ({seen}); give it that "
                f"many inputs, or change `sees`. It says: {first_line(error)}"
            ) from error

    def _part(self, name: str, x: Array, data: Data) -> Array:
        """One of the parts that the encoder sees: [N, R, ·], or [1, N, ·] if x has that shape."""
        if name == "input":
            return x
        if name == "x":
            if data.x is None:
                raise ValueError('the encoder sees "x" but the data have no inputs; let it see ("y", "mask").')
            rows = data.x
        elif data.y is None or data.mask is None:
            raise ValueError(
                'the encoder sees "y", which a prediction does not have: there latent variables come from their prior. '
                'An encoder with sees=("x",) can be used for predictions too.'
            )
        else:
            rows = jnp.where(data.mask, data.y, 0.0) if name == "y" else data.mask.astype(data.y.dtype)
        return rows[:, None] if x.shape[0] == len(data) else rows[None]

    def check(self, dim):
        pass  # the widths of x and y, and so that of the network's input, are not known before the first call


def _num_lower(dim: int) -> int:
    return dim * (dim - 1) // 2


def _root(scale: Float[Array, "... d"], lower: Float[Array, "... k"] | None) -> Array:
    """The standard deviations [..., d] or, with a strictly lower triangle, the root [..., d, d]."""
    if lower is None or lower.shape[-1] == 0:
        return scale
    d = scale.shape[-1]
    rows, columns = jnp.tril_indices(d, -1)
    root = scale[..., None] * jnp.eye(d, dtype=scale.dtype).reshape((1,) * (scale.ndim - 1) + (d, d))
    return root.at[..., rows, columns].set(lower)
