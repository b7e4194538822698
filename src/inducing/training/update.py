"""Online learning: update a model with new rows, without access to the old ones."""

import numbers
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing._xla import default_jit
from inducing.bounds.collapsed import collapse
from inducing.bounds.elbo import elbo
from inducing.checks import check_model, checked_data
from inducing.data import Data
from inducing.declared import shown
from inducing.features.points import InducingPoints
from inducing.layers import qu
from inducing.layers.sparse_gp import SparseGP
from inducing.layers.sparse_gp_arguments import checked_features
from inducing.layers.streamed import Streamed, moments_of_features, streamed
from inducing.likelihoods.base import PerDatum
from inducing.likelihoods.gaussian import Gaussian
from inducing.linalg import Dense, default_jitter
from inducing.model import Model
from inducing.priors.exact import ExactGP
from inducing.training.fit import fit
from inducing.training.natural import natural_gradient_step

STEPS = 200  # the most steps of natural gradients; Gaussian noise needs one
TOLERANCE = 1e-11  # the relative change of the bound at which steps end


def update(
    model: Model | ExactGP, data: Any, *, memory: float = 1.0, features: Any = None, adapt: bool = False, **options: Any
) -> Model:
    """Condition a trained sparse GP on new rows without the old ones (Bui, Nguyen & Turner 2017).

    q_old(a), for the old features a, summarises the old rows and enters the bound as an additional factor:

        Σ_n E_q log p(y_n | f_n) − KL(q(u) ‖ p(u)) + λ E_q log (q_old(a) / p_old(a)),    n over the new rows

    p_old is the prior with the old hyperparameters, and q(a) = ∫ p(a | u) q(u) du. By default features (u = a) and
    hyperparameters stay the same, and natural gradients maximise the bound with respect to q(u). With Gaussian noise
    the result is exact: it equals the q(u) of `ig.collapse` on all rows at once, for any split of the rows. The cost
    depends only on the number of new rows. You can also update a model that has seen no data, with q(u) = p(u).

    q(u) keeps the form of its root. Priors that mix latents, such as `LMC`, need a coupled root to be exact.
    `ig.collapse` and fits by the collapsed bound return one; for a model without data it is `root=np.eye(L * M)` in
    coordinates "w".

    Args:
        model: a model of one `SparseGP` layer, with any prior, features and likelihood. An exact posterior
            (`prior.condition`) becomes a sparse one first, with `features`, or with all its rows as inducing points.
        data: the new rows, (X, y) or an `ig.Data`, which may have weights. If the likelihood holds values of single
            rows (`PerDatum`, or bounds of `Censored`), first give the model one with those of the new rows:
            `ig.Model(model.layers, likelihood)`.
        memory: λ, from 0 to 1. With λ < 1 each update discounts the old rows, which suits processes that drift: after
            k more updates the weight of a row is λ^k.
        features: new features u that replace the old ones, for all latents, or a tuple with those of each latent.
            Information in q_old that they cannot represent is lost.
        adapt: whether to train features, hyperparameters and likelihood too, by `ig.fit` on this bound. Features that
            are defined by the kernel (Fourier, eigenfunctions) do not allow this: a different kernel would change
            the functionals that define the old a.
        **options: with `adapt`, arguments of `ig.fit`, such as `steps=500` or `freeze=lambda m: m.likelihood`.

    Returns:
        The model with the new q(u).

    Raises:
        TypeError: if the model is not one SparseGP layer with a likelihood, its q(u) is a Kronecker product, or its
            features do not allow other hyperparameters.
        ValueError: if `memory` is not a number from 0 to 1, or the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> streamed = ig.update(ig.update(model, ([0.0, 0.3], [0.5, 0.4])), ([1.0], [0.2]))
        >>> at_once = ig.collapse(model, ([0.0, 0.3, 1.0], [0.5, 0.4, 0.2]))
        >>> bool(abs(streamed.predict([0.7]).mean - at_once.predict([0.7]).mean)[0, 0] < 1e-9)
        True
    """
    if isinstance(model, ExactGP):  # a plain value: the arrays of a posterior
        model, features = _sparse(model, features), None
    check_model(model)
    if isinstance(memory, bool) or not isinstance(memory, numbers.Real) or not 0 <= memory <= 1:
        raise ValueError(f"memory must be a number from 0 to 1, got {memory!r}; 1 forgets nothing.")
    old = _checked_layer(model)
    _check_options(old, adapt, options)
    data = checked_data(model, data)
    new = old if features is None else with_features(old, checked_features(features, old.prior))
    layer = _streamed(old, new, jnp.asarray(memory, old.mean.dtype), features is None and not adapt)
    wrapped = eqx.tree_at(_inner, model, layer)
    return _unwrapped(_adapted(wrapped, data, options) if adapt else _climbed(wrapped, data))


def _inner(model: Model) -> Any:
    return model.layers[0].as_sparse_gp()


def _unwrapped(model: Model) -> Model:
    """The model with the sparse GP in place of the `Streamed` layer that holds it."""
    return jax.tree.map(lambda part: part.layer if _is_streamed(part) else part, model, is_leaf=_is_streamed)


def _is_streamed(part: Any) -> bool:
    return isinstance(part, Streamed)  # the wrapper that this module puts there


def _checked_layer(model: Model) -> SparseGP:
    layer = _inner(model) if len(model.layers) == 1 else None
    if layer is None:
        kinds = ", ".join(type(part).__name__ for part in model.layers)
        raise TypeError(
            f"update is for models of one SparseGP layer, not for layers ({kinds}): in a deep model, q of one layer "
            "was learnt for the inputs that the others gave it, and no longer summarises the old rows once they "
            "change; use ig.fit on all rows."
        )
    if qu.is_kronecker(layer.root):
        raise TypeError("update needs a full, coupled or diagonal q(u), not a Kronecker product; pass another root.")
    return layer


def _check_options(layer: SparseGP, adapt: bool, options: dict[str, Any]) -> None:
    if not isinstance(adapt, bool):
        raise TypeError(f"adapt must be True or False, got {shown(adapt)}.")
    if options and not adapt:
        raise TypeError(f"update takes {', '.join(options)} only with adapt=True, for ig.fit.")
    own = layer.features if isinstance(layer.features, tuple) else (layer.features,)
    for features in own:
        if adapt and features.uses_kernel:
            raise TypeError(
                f"{type(features).__name__} features are defined by the kernel, so that what was learnt of them does "
                "not hold for other hyperparameters; use adapt=False, or features.InducingPoints."
            )


def with_features(layer: SparseGP, features: Any) -> SparseGP:
    """The sparse GP with other features u and q(u) = ∫ p(u | a) q(a) da, where a are its present features.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]), mean=[1.0, 2.0])
        >>> more = with_features(gp, ig.features.InducingPoints([[0.0], [0.3], [1.0]]))
        >>> x = jnp.array([[0.3]])
        >>> bool(abs(more.marginals(x)[0] - gp.marginals(x)[0])[0, 0] < 1e-6)
        True
    """
    mean, root = _q_of_features(layer, features)
    changed = SparseGP(layer.prior, features, mean, root if root.shape[0] > 1 else root[0], "u", layer.jitter)
    return changed.with_coordinates(layer.coordinates)


@default_jit
def _q_of_features(layer: SparseGP, features: Any) -> tuple[Array, Array]:
    mean, cov = moments_of_features(layer, features)
    return mean, jax.vmap(lambda c: Dense(c, default_jitter(c.dtype)).root)(cov)


@default_jit
def _streamed(old: SparseGP, new: SparseGP, memory: Any, same: bool) -> Streamed:
    return streamed(old, new, memory, same=same)


def _sparse(exact: ExactGP, features: Any) -> Model:
    """The sparse GP that approximates an exact posterior best, by default with its rows as inducing points."""
    if exact.new_noise is None:
        raise ValueError("the posterior was conditioned with noise of single rows, so that of new rows is unknown.")
    layer = SparseGP(exact.prior, InducingPoints(exact.x) if features is None else features)
    seen = exact.seen.reshape(exact.noise.shape)
    y = exact.residual.reshape(seen.shape) + exact.prior.mean(exact.x)
    noise = PerDatum(jnp.where(seen, exact.noise, 1.0), jnp.zeros(()))
    model = collapse(Model(layer, Gaussian(noise)), (exact.x, jnp.where(seen, y, jnp.nan)))
    return Model(model.layers, Gaussian(exact.new_noise))


def _adapted(model: Model, data: Data, options: dict[str, Any]) -> Model:
    """The model after a fit of everything but the old factor."""
    user = options.get("freeze")

    def freeze(model: Model) -> Any:
        (layer,) = (part for part in jax.tree.leaves(model, is_leaf=_is_streamed) if _is_streamed(part))
        return layer.factor, None if user is None else user(_unwrapped(model))

    given: dict[str, Any] = {"progress": False, "initialise": False} | options | {"freeze": freeze}
    return fit(model, data, **given).model


def _climbed(model: Model, data: Data) -> Model:
    """The model with the best q(u), by natural gradients."""
    bound, gamma = _bound(model, data), 1.0
    for _ in range(STEPS):
        trial, value = _step(model, data, jnp.asarray(gamma, bound.dtype))
        gain = float(value - bound)
        if gain > -TOLERANCE * abs(float(bound)):
            model, bound = trial, value
            if gain < gamma * (TOLERANCE * abs(float(bound)) + TOLERANCE):  # a short step gains little anyway
                break
            gamma = min(1.0, 2 * gamma)
        else:  # the bound fell, or is NaN
            gamma = 0.5 * gamma
    return model


@default_jit
def _bound(model: Model, data: Data) -> Float[Array, ""]:
    return elbo.evaluate(model, data)


@default_jit
def _step(model: Model, data: Data, gamma: Array) -> tuple[Model, Array]:
    """The model after one step, and its bound."""
    model = natural_gradient_step(model, data, gamma)
    return model, elbo.evaluate(model, data)
