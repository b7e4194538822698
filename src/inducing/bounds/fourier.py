"""The collapsed bound of Fourier features with the sums over the data done once: its cost does not depend on N.

Inside [a, b], Kuf of `features.Fourier` does not depend on the kernel, so neither do Kuf Kfu and Kuf y. And since
products of waves are waves of summed and differing frequencies, Kuf Kfu is made of the 2F + 1 sums Σ_n e^{iω_k x_n}:
Toeplitz plus Hankel blocks, in O(N F) instead of O(N F²).
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from inducing._xla import default_jit
from inducing.bounds.collapsed import inverse_root
from inducing.bounds.objective import AbstractObjective, Optimum
from inducing.checks import check_model
from inducing.data import Data, as_data
from inducing.features.fourier import Fourier
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.gaussian import Gaussian
from inducing.linalg import Dense
from inducing.means import Zero
from inducing.model import Model
from inducing.parameters import dtype_of
from inducing.priors.gp import GP

BLOCK = 2048


class PrecomputedElbo(AbstractObjective):
    """`ig.collapsed_elbo` for one-dimensional data and Fourier features, as an objective that has seen the data.

    Built in O(N F) from a model (one SparseGP with `features.Fourier`, Gaussian noise of one variance, no mean) and
    data inside [a, b]; each evaluation then costs O(M³), M = 2F + 1, whatever N. It ignores q(u), which `fit` sets to
    its optimum at the end. `collapse` gives that in O(M³) too, also for a q(u) that was frozen:

        objective = ig.PrecomputedElbo(model, data)
        result = ig.fit(model, data, objective=objective, freeze=lambda m: (m.layers[0].mean, m.layers[0].root))
        model = objective.collapse(result.model)

    >>> import jax.numpy as jnp, inducing as ig
    >>> X = jnp.linspace(0.0, 1.0, 50)
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern32()), ig.features.Fourier.around(X, 8))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (X, jnp.sin(6 * X))
    >>> objective = ig.PrecomputedElbo(model, data)
    >>> abs(float(objective(model) - ig.collapsed_elbo(model, data))) < 1e-6
    True
    """

    def __init__(self, model: Model, data: Any):
        features = _parts(model)[0].features
        x, y, seen = _checked_columns(features, as_data(data, dtype_of(model)))
        self.num_data = int(seen.sum())
        self.num = features.num
        self.interval = float(features.a), float(features.b)
        self.KufKfu, self.Kufy, self.yy = jax.block_until_ready(_jitted_statistics(features, x, y, seen))

    def __call__(self, model: Model, data: Any = None) -> Float[Array, ""]:
        """The collapsed bound; `data` is not looked at."""
        layer, noise = self._checked(model)
        Lambda, c = self._optimum(layer, noise)
        quadratic = jnp.sum(Lambda.root_solve(c[:, None]) ** 2)
        explained = jnp.sum(Lambda.diagonal() - 1.0)
        trace = self.num_data * layer.prior.kernel.variance / noise
        constant = -self.num_data * jnp.log(2.0 * np.pi * noise) - self.yy / noise
        return 0.5 * (constant + quadratic - Lambda.logdet() - trace + explained)

    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, self.collapse, required=False)

    def collapse(self, model: Model, data: Any = None) -> Model:
        """The same model with the optimal q(u)."""
        layer, noise = self._checked(model)
        Lambda, c = self._optimum(layer, noise)
        m = Lambda.solve(c[:, None])[:, 0]
        root = inverse_root(Lambda.matrix)
        optimal = SparseGP(layer.prior, layer.features, m, root, "w", layer.jitter)
        return eqx.tree_at(lambda m: m.layers, model, (optimal.with_coordinates(layer.coordinates),))

    def _checked(self, model: Model) -> tuple[Any, Array]:
        layer, noise = _parts(model)
        if layer.features.num != self.num:
            raise ValueError(f"the objective was built for {self.num} frequencies, the model has {layer.features.num}.")
        a, b = layer.features.a, layer.features.b
        if not any(isinstance(v, jax.core.Tracer) for v in (a, b)) and (float(a), float(b)) != self.interval:
            raise ValueError(
                f"the objective was built for features on {list(self.interval)}, the model has "
                f"{[float(a), float(b)]}; build it anew from this model."
            )
        return layer, noise

    def _optimum(self, layer: Any, noise: Array) -> tuple[Dense, Array]:
        """Λ = I + Luu⁻¹ Kuf Kfu Luu⁻ᵀ/σ² and c = Luu⁻¹ Kuf y/σ²."""
        Kuu = layer.features.Kuu(layer.prior.kernel, layer.jitter)
        half = Kuu.root_solve(self.KufKfu)
        Psi = Kuu.root_solve(half.T) / noise
        Lambda = Dense(0.5 * (Psi + Psi.T) + jnp.eye(Psi.shape[0], dtype=Psi.dtype))
        return Lambda, Kuu.root_solve(self.Kufy[:, None])[:, 0] / noise


def _parts(model: Model) -> tuple[Any, Array]:
    check_model(model)
    layer, likelihood = model.layers[-1], model.likelihood
    if (
        len(model.layers) == 1
        and isinstance(layer, SparseGP)
        and isinstance(layer.features, Fourier)
        and isinstance(layer.prior, GP)
        and isinstance(layer.prior.mean_function, Zero)
        and isinstance(likelihood, Gaussian)
        and isinstance(likelihood.variance, Array)
        and likelihood.variance.size == 1
    ):
        return layer, likelihood.variance.reshape(())
    raise TypeError(
        "PrecomputedElbo is for one SparseGP with a GP prior without mean, features.Fourier, and a Gaussian likelihood "
        "of one variance; for others use ig.collapsed_elbo."
    )


def _checked_columns(features: Fourier, data: Data) -> tuple[Array, Array, Array]:
    """The inputs, the labels and which of them were seen, [N] each."""
    x, y, mask = data.x, data.y, data.mask
    if x is None or y is None or mask is None or x.shape[1] != 1 or y.shape[1] != 1:
        raise ValueError("PrecomputedElbo needs data with one input column and one output.")
    reach, interval = (float(x.min()), float(x.max())), (float(features.a), float(features.b))
    if reach[0] < interval[0] or reach[1] > interval[1]:
        raise ValueError(
            f"the data reach from {reach[0]:.6g} to {reach[1]:.6g}, beyond [{interval[0]:.6g}, {interval[1]:.6g}], "
            "where the features depend on the kernel; use Fourier.around(X, num), or ig.collapsed_elbo."
        )
    return x[:, 0], y[:, 0], mask[:, 0]


def fourier_statistics(
    features: Fourier, x: Float[Array, " N"], y: Float[Array, " N"], mask: Bool[Array, " N"]
) -> tuple[Float[Array, "M M"], Float[Array, " M"], Float[Array, ""]]:
    """Kuf Kfu, Kuf y and yᵀy over the labels that were seen."""
    F = features.num
    seen = mask.astype(x.dtype)
    y = jnp.where(mask, y, 0.0)
    theta = (2.0 * np.pi / (features.b - features.a)) * (x - features.a)
    N, size = theta.shape[0], min(BLOCK, theta.shape[0])
    blocks = -(-N // size)

    def cut(v):
        return jnp.pad(v, (0, blocks * size - N)).reshape(blocks, size)

    def add(total, block):
        t, s, v = block
        waves = _powers(jax.lax.complex(jnp.cos(t), jnp.sin(t)), 2 * F)  # e^{ikθ}, k = 1 … 2F
        weights = jnp.stack([s, v]).astype(waves.dtype)
        return total + weights @ waves, None

    zero = jnp.zeros((2, 2 * F), jax.lax.complex(theta[:1], theta[:1]).dtype)
    sums, _ = jax.lax.scan(add, zero, (cut(theta), cut(seen), cut(y)))
    C = jnp.concatenate([jnp.sum(seen)[None], jnp.real(sums[0])])
    S = jnp.concatenate([jnp.zeros((1,), C.dtype), jnp.imag(sums[0])])
    i = np.arange(1, F + 1)
    plus, minus = i[:, None] + i[None, :], i[None, :] - i[:, None]
    cc = 0.5 * (C[np.abs(minus)] + C[plus])
    ss = 0.5 * (C[np.abs(minus)] - C[plus])
    cs = 0.5 * (S[plus] + jnp.asarray(np.sign(minus), S.dtype) * S[np.abs(minus)])  # cos ω_i sin ω_j
    first = jnp.concatenate([C[:1], C[1 : F + 1], S[1 : F + 1]])
    below = jnp.concatenate([jnp.concatenate([cc, cs], 1), jnp.concatenate([cs.T, ss], 1)])
    gram = jnp.concatenate([first[None, :], jnp.concatenate([first[1:, None], below], 1)])
    cross = jnp.concatenate([jnp.sum(y)[None], jnp.real(sums[1, :F]), jnp.imag(sums[1, :F])])
    return gram, cross, jnp.sum(y**2)


_jitted_statistics = default_jit(fourier_statistics)


def _powers(z: Complex[Array, " n"], num: int) -> Complex[Array, "n num"]:
    """z, z², …, z^num by doubling: products are much cheaper than waves."""
    out = z[:, None]
    while out.shape[1] < num:
        out = jnp.concatenate([out, out * out[:, -1:]], axis=1)
    return out[:, :num]
