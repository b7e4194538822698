"""Features padded with independent variables, so that latents may have different numbers of features."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures
from inducing.linalg import Dense
from inducing.parameters import as_whole, at_least_one


class Padded(AbstractFeatures):
    """Features of f, followed by standard normal variables that are independent of f.

        u = (own.apply(f), ε),    ε ~ N(0, I),    Kuu = [[Kuu of own, 0], [0, I]],    Kuf = [Kuf of own; 0]

    `SparseGP` uses them if its latents have different numbers of features, because its arrays have one size for all
    latents. The padding changes neither predictions nor bounds as long as its q equals the prior N(0, I), where q
    starts and where training leaves it.

    Args:
        own: the features of f.
        num: the number of all features; at least that of `own`.

    Raises:
        ValueError: if `num` is less than the number of features in `own`.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> features = ig.features.Padded(ig.features.InducingPoints([[0.0], [9.0]]), 3)
        >>> features.Kuu(ig.kernels.Matern52(2.0), 0.0).dense().round(1).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    own: AbstractFeatures
    num: int = eqx.field(static=True, converter=as_whole)

    def __check_init__(self):
        at_least_one("Padded.num", self.num)
        if self.num < self.own.num_features:
            raise ValueError(f"Padded.num is {self.num}, less than the {self.own.num_features} features in own.")

    @property
    def num_features(self) -> int:
        return self.num

    @property
    def locations(self) -> Float[Array, "n D"] | None:
        return self.own.locations

    @property
    def num_inputs(self) -> int | None:
        return self.own.num_inputs

    @property
    def uses_terms(self) -> bool:
        return self.own.uses_terms

    def apply(self, f, kernel=None):
        return self._padded(self.own.apply(f, kernel))

    def Kuu(self, kernel, jitter):
        inner = self.own.Kuu(kernel, 0.0)
        K, extra = inner.dense(), self.num - self.own.num_features
        K = jnp.pad(K, (0, extra)) + jnp.diag(jnp.pad(jnp.ones(extra, K.dtype), (self.own.num_features, 0)))
        out = Dense(K, jitter)
        return eqx.tree_at(lambda K: K.jitter, out, jnp.maximum(out.jitter, inner.relative_jitter))

    def Kuf(self, kernel, X):
        return self._padded(self.own.Kuf(kernel, X))

    def check_inputs(self, kernel):
        self.own.check_inputs(kernel)

    def _padded(self, values: Float[Array, "m *rest"]) -> Float[Array, "M *rest"]:
        return jnp.pad(values, ((0, self.num - self.own.num_features), *[(0, 0)] * (values.ndim - 1)))
