"""The collapsed bound of Gaussian likelihoods (Titsias 2009): q(u) at its optimum, in closed form.

With the sums Ψ and c of the module `sums` and Λ = I + Ψ, the optimal q(w) = N(Λ⁻¹c, Λ⁻¹) gives the bound

    ½ ( Σ log τ/2π − Σ τ r² + cᵀΛ⁻¹c − log |Λ| − Σ τ k + tr Ψ ).

Where outputs mix latents, Λ couples them: it is [L·M, L·M], else one [M, M] for each latent.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jaxtyping import Array, Float

from inducing.bounds.conjugate import Conjugate
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.optimal import bound_of_sums, model_of_sums
from inducing.bounds.passes import collapsed_bound_of_stream, collapsed_on_stream
from inducing.bounds.rounding import either, has_two_orders, whitened_first_or_nan, whitened_last_or_nan
from inducing.bounds.sums import Statistics, num_blocks, whitened_first
from inducing.checks import checked_data
from inducing.data import Data
from inducing.linalg import AbstractCovariance
from inducing.model import Model
from inducing.streams import Stream

_Order = Callable[[Conjugate, Data, AbstractCovariance], Statistics]  # of summing and whitening


class _CollapsedElbo(AbstractBound):
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return False

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum:
        return Optimum(self, optimal_q, collapsed=True)

    def on_stream(self, model: Any, stream: Stream, options: Mapping[str, Any]) -> Float[Array, ""]:
        return collapsed_bound_of_stream(model, stream)


@_CollapsedElbo
def collapsed_elbo(model: Model, data: Any) -> Float[Array, ""]:
    """Titsias' bound: the `elbo` of a one-layer model with a Gaussian likelihood at its optimal q(u).

        log N(y | μ, Q + Σ) − ½ tr Σ⁻¹ (Kff − Q),    Q = Kfu Kuu⁻¹ Kuf,    Σ the noise

    It takes O(N M²) time and O(M²) memory beyond the data: the sums run over blocks of rows, which the reverse pass
    computes again.

    Args:
        model: one `SparseGP` layer with a Gaussian likelihood. Its q(u) does not matter.
        data: (X, y) or `ig.Data`, all of them; or an `ig.Stream`, over which this is one pass.

    Returns:
        The bound, one number.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> bool(ig.collapsed_elbo(model, data) >= ig.elbo(model, data))
        True
    """
    return _bound(model, data, either)


@_CollapsedElbo
def quick_bound(model: Model, data: Any) -> Float[Array, ""]:
    """`collapsed_elbo` computed in the faster of its two orders of summing only.

    It also compiles faster than `collapsed_elbo`. It is NaN where rounding would falsify it.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> abs(float(quick_bound(model, data) - careful_bound(model, data))) < 1e-9
        True
    """
    return _bound(model, data, whitened_last_or_nan)


@_CollapsedElbo
def careful_bound(model: Model, data: Any) -> Float[Array, ""]:
    """`collapsed_elbo` computed in the more accurate of its two orders of summing only.

    It is NaN where rounding would falsify even this order.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> abs(float(careful_bound(model, data) - ig.collapsed_elbo(model, data))) < 1e-9
        True
    """
    return _bound(model, data, whitened_first_or_nan)


def orders_of_sums(model: Model, data: Data) -> tuple[AbstractBound, ...]:
    """The bounds that L-BFGS maximises: `quick_bound`, and `careful_bound` for when the former is NaN.

    If the data fit into one block, it is `careful_bound` alone, which then costs no more.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> len(orders_of_sums(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ig.Data([0.0, 1.0], [0.5, 0.2])))
        1
    """
    conjugate = Conjugate(model)
    one_block = num_blocks(conjugate.layer, len(data)) == 1
    if one_block or not has_two_orders(conjugate, jax.eval_shape(conjugate.layer.Kuu)):
        return (careful_bound,)
    return quick_bound, careful_bound


def bound_of_sample(model: Model, data: Data, bound: Any, num_data: int) -> Float[Array, ""]:
    """The collapsed bound of `num_data` rows, estimated from a random sample of them.

    The weight of each row of the sample is multiplied by num_data/n. The estimate is biased, because the bound is not a
    sum over rows, but accurate enough if there are many rows.

    Args:
        model: a conjugate model.
        data: the sample, n rows that have been checked.
        bound: `quick_bound` or `careful_bound`.
        num_data: the number of rows that the sample stands for.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> twice = ig.collapsed_elbo(model, ([0.0, 1.0, 0.0, 1.0], [0.5, 0.2, 0.5, 0.2]))
        >>> abs(float(bound_of_sample(model, ig.Data([0.0, 1.0], [0.5, 0.2]), careful_bound, 4) - twice)) < 1e-9
        True
    """
    return bound.evaluate(model, data.reweighted(num_data / len(data)))


def collapse(model: Model, data: Any) -> Model:
    """The model with the optimal q(u) for its Gaussian likelihood.

        q(w) = N(S A Σ⁻¹ (y − μ), S),    S = (I + A Σ⁻¹ Aᵀ)⁻¹,    A = Luu⁻¹ Kuf,    Σ the noise, w = Luu⁻¹ (u − μ_u)

    Where outputs mix latents, the optimum couples them and the root becomes [L·M, L·M].

    Args:
        model: one `SparseGP` layer with a Gaussian likelihood.
        data: (X, y) or `ig.Data`, all of them; or an `ig.Stream`.

    Returns:
        The same model with another q(u), in the same coordinates.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> optimal = ig.collapse(model, data)
        >>> abs(float(ig.elbo(optimal, data) - ig.collapsed_elbo(model, data))) < 1e-9
        True
    """
    if isinstance(data, Stream):
        return collapsed_on_stream(model, data)
    return optimal_q(model, checked_data(model, data))


def optimal_q(model: Model, data: Data) -> Model:
    """`collapse` for a model and data that have been checked."""
    conjugate = Conjugate(model)
    return model_of_sums(model, whitened_first(conjugate, data, conjugate.layer.Kuu()))


def _bound(model: Model, data: Data, whitened: _Order) -> Float[Array, ""]:
    conjugate = Conjugate(model)
    return bound_of_sums(whitened(conjugate, data, conjugate.layer.Kuu()))
