"""The collapsed bound with sums over the data computed once, for features whose Kuf does not depend on the kernel."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.bounds.conjugate import conjugate_layer, inverse_root, with_q
from inducing.bounds.objective import AbstractObjective, Optimum
from inducing.bounds.passes import pass_over
from inducing.bounds.terms import counts, inputs, labels
from inducing.checks import check_model, checked_data
from inducing.data import Data
from inducing.features.base import AbstractFeatures
from inducing.kernels.base import AbstractKernel
from inducing.layers.sparse_gp import SparseGP
from inducing.linalg import Dense
from inducing.model import Model
from inducing.streams import Stream


class PrecomputedElbo(AbstractObjective):
    """`ig.collapsed_elbo` for Fourier features, as an objective whose cost does not depend on the number of data.

        log N(y | 0, Q + σ²I) − ½ tr(Kff − Q)/σ²,    Q = Kfu Kuu⁻¹ Kuf

    Inside [a, b], Kuf of `features.Fourier` does not depend on the kernel, and neither do Kuf Kfu and Kuf y. These are
    computed once, in O(N F). Each evaluation then takes O(M³) time with M = 2F + 1, whatever the number of data. The
    bound does not depend on q(u), which `ig.fit` sets to its optimum at the end. If you freeze q(u) in the fit, call
    `objective.collapse(result.model)` afterwards.

    Args:
        model: one `SparseGP` with a GP prior without mean and `features.Fourier`, and a `Gaussian` likelihood of one
            variance.
        data: (X, y) or `ig.Data`, with one input column inside [a, b] and one output; or an `ig.Stream` of such data,
            which is read once.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if data lie outside of [a, b], or do not fit the model.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> X = jnp.linspace(0.0, 1.0, 50)
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern32()), ig.features.Fourier.around(X, 8))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (X, jnp.sin(6 * X))
        >>> objective = ig.PrecomputedElbo(model, data)
        >>> abs(float(objective(model) - ig.collapsed_elbo(model, data))) < 1e-6
        True
        >>> result = ig.fit(model, data, objective=objective, steps=5, progress=False)
        >>> bool(result.bound > objective(model))
        True
    """

    needs_data = False

    def __init__(self, model: Model, data: Any):
        check_model(model)
        layer, _, _ = _parts(model)
        self.features = _features(layer)
        if isinstance(data, Stream):
            passes = pass_over(model, data)
            fixed, somewhere = passes.sum(_fixed_sums, self.features), passes.sample
            if not np.isfinite(fixed[0][1]).all():
                raise ValueError(
                    "rows of the stream lie outside of [a, b], where the features depend on the kernel; use "
                    "Fourier(a, b, num) for the whole range, or ig.collapsed_elbo."
                )
        else:
            somewhere = checked_data(model, data)
            fixed = _fixed_sums(self.features, somewhere)
        (self.KufKfu, self.Kufy), self.yy, count = jax.block_until_ready(fixed)
        self.num_data = float(count)
        self._somewhere = inputs(somewhere)[:1]  # a stationary kernel has the same variance everywhere

    def __call__(self, model: Model, data: Any = None) -> Float[Array, ""]:
        """The collapsed bound.

        Args:
            model: a model with the features of the model that the objective was built from.
            data: not used, since the objective holds the sums over the data.

        Returns:
            The bound, one number.
        """
        check_model(model)
        layer, kernel, noise = self._parts(model)
        Lambda, c = self._solved(layer, kernel, noise)
        quadratic = jnp.sum(Lambda.root_solve(c[:, None]) ** 2)
        explained = jnp.sum(Lambda.diagonal() - 1.0)
        trace = self.num_data * kernel.diag(self._somewhere)[0] / noise
        constant = -self.num_data * jnp.log(2.0 * np.pi * noise) - self.yy / noise
        return 0.5 * (constant + quadratic - Lambda.logdet() - trace + explained)

    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, self.collapse, required=False)

    def collapse(self, model: Model, data: Any = None) -> Model:
        """The model with the optimal q(u), in O(M³).

        Args:
            model: a model with the features of the model that the objective was built from.
            data: not used, since the objective holds the sums over the data.

        Returns:
            The same model with another q(u), in the same coordinates.
        """
        check_model(model)
        layer, kernel, noise = self._parts(model)
        Lambda, c = self._solved(layer, kernel, noise)
        return with_q(model, 0, Lambda.solve(c[:, None]).T, inverse_root(Lambda.matrix)[None])

    def _parts(self, model: Model) -> tuple[SparseGP, AbstractKernel, Array]:
        layer, kernel, noise = _parts(model)
        features = _features(layer)
        if not _are_equal(self.features, features):
            raise ValueError(
                f"the objective was built for the features {_described(self.features)}, the model has "
                f"{_described(features)}; build it again from this model."
            )
        return layer, kernel, noise

    def _solved(self, layer: SparseGP, kernel: AbstractKernel, noise: Array) -> tuple[Dense, Float[Array, " M"]]:
        """Λ = I + Luu⁻¹ Kuf Kfu Luu⁻ᵀ/σ² and c = Luu⁻¹ Kuf y/σ²."""
        Kuu = _features(layer).Kuu(kernel, layer.jitter)
        half = Kuu.root_solve(self.KufKfu)
        Psi = Kuu.root_solve(half.T) / noise
        Lambda = Dense(0.5 * (Psi + Psi.T) + jnp.eye(Psi.shape[0], dtype=Psi.dtype))
        return Lambda, Kuu.root_solve(self.Kufy[:, None])[:, 0] / noise


def _fixed_sums(features: AbstractFeatures, data: Data) -> tuple[Any, Array, Array]:
    """Kuf Kfu and Kuf y, Σ y², and the number of labels."""
    x, (y, mask) = inputs(data), labels(data)
    y, count = jnp.where(mask, y, 0.0)[:, 0], counts(data)[:, 0]
    return features.fixed_sums(x, y, count), jnp.sum(count * y**2), jnp.sum(count)


def _parts(model: Model) -> tuple[SparseGP, AbstractKernel, Array]:
    """The sparse GP, its kernel and the noise variance, if the model has the right form."""
    layer, noise = conjugate_layer(model), model.likelihood.shared_noise
    if layer is not None and noise is not None and layer.prior.num_outputs == 1:
        kernel, means = layer.prior.shared_kernel, layer.prior.mean_functions()
        if kernel is not None and means and all(mean.is_zero for _, mean in means):
            return layer, kernel, noise
    raise TypeError(
        "PrecomputedElbo is for one SparseGP with a GP prior without mean, features.Fourier, and a Gaussian likelihood "
        "of one variance; for others use ig.collapsed_elbo."
    )


def _features(layer: SparseGP) -> AbstractFeatures:
    assert not isinstance(layer.features, tuple)  # since there is one latent
    return layer.features


def _are_equal(first: AbstractFeatures, second: AbstractFeatures) -> bool:
    """Whether features are the same. Traced values are assumed to be equal."""
    if jax.tree.structure(first) != jax.tree.structure(second):
        return False
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(isinstance(b, jax.core.Tracer) or np.array_equal(a, b) for a, b in pairs)


def _described(features: AbstractFeatures) -> str:
    values = {field.name: getattr(features, field.name) for field in dataclasses.fields(features)}
    shown = {name: np.asarray(v).tolist() for name, v in values.items() if not isinstance(v, jax.core.Tracer)}
    return f"{type(features).__name__}({', '.join(f'{name}={value}' for name, value in shown.items())})"
