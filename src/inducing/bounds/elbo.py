"""The bound that trains every model, and its relatives."""

import numbers
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.bounds.collapsed import collapsed_elbo, optimal_q
from inducing.bounds.conjugate import conjugate_layer
from inducing.bounds.objective import AbstractBound, Optimum
from inducing.bounds.terms import expected_log_likelihood, labels, log_likelihood
from inducing.checks import check_counts
from inducing.data import Data
from inducing.layers.base import append
from inducing.layers.bayesian_dense import BayesianDense, with_one
from inducing.layers.deterministic import Deterministic, Skip
from inducing.layers.encoders import AbstractEncoder
from inducing.layers.latent_variable import LatentVariable
from inducing.model import Model, enter, needed
from inducing.parameters import dtype_of


class _Elbo(AbstractBound):
    takes_minibatches = True

    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        return model.is_stochastic or not options.get("integrate", True)

    def is_quadratic(self, model: Any, options: Mapping[str, Any]) -> bool:
        return conjugate_layer(model) is not None and options.get("integrate", True)

    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum | None:
        if conjugate_layer(model) is None or not _is_ordinary(**options):
            return None
        return Optimum(collapsed_elbo, optimal_q, collapsed=True)


def _is_ordinary(
    key: Any = None,
    samples: int = 1,
    importance: int = 1,
    beta: Any = 1.0,
    integrate: bool = True,
    **others: Any,
) -> bool:
    """Whether options leave the ordinary bound of a model that has no latent variables."""
    check_counts(samples=samples, importance=importance)
    return isinstance(beta, numbers.Real) and beta == 1 and integrate and not others


@_Elbo
def elbo(
    model: Model,
    data: Any,
    *,
    key: Array | None = None,
    samples: int = 1,
    importance: int = 1,
    beta: float | Float[Array, ""] = 1.0,
    num_data: int | None = None,
    integrate: bool = True,
    doubly_reparameterised: bool = False,
) -> Float[Array, ""]:
    """The bound on log p(y) that trains all models (section 4; eq:elbo_sparse_gp_iid, eq:elbo_deep_sgp, eq:ugly_log_2).

        (N/B) Σ_n E[ log 1/R Σ_r exp( log explik_nr + β Σ_l log p(h_nr)/q(h_nr) ) ]  −  β Σ_l KL(q_l ‖ p_l)

    `data` is (X, y) or `Data`: all of it, or a minibatch of B of `num_data` = N. `importance` is R, which matters for
    models with latent variables; `samples` is the number of Monte Carlo samples of the outer expectation; models that
    sample need a `key`. With `beta` ≠ 1 this is β-VI and no longer a bound.

    `integrate=False` samples the last layer too, jointly over the replicates of a datum, instead of taking the expected
    log-likelihood (eq:sparse_gp_iw_lv_marg_lik_3). `doubly_reparameterised=True` gives the encoders, for R > 1, the
    gradient of Tucker et al. (2019), whose signal-to-noise ratio does not fall with R; the value is the same, and so
    are all other gradients. It needs encoders that do not see a layer's sampled input, outside Skip layers.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
    >>> bool(ig.elbo(model, data) < ig.log_evidence(model, data))
    True
    >>> rows = [ig.elbo(model, ([x], [y]), num_data=2) for x, y in zip(*data, strict=True)]      # minibatches of one
    >>> bool(abs(sum(rows) / 2 - ig.elbo(model, data)) < 1e-9)
    True
    """
    check_counts(samples=samples, importance=importance)
    if num_data is not None and not isinstance(num_data, jax.Array):
        check_counts(num_data=num_data)
    _check_beta(beta)
    scale = 1.0 if num_data is None else num_data / len(data)
    doubly = doubly_reparameterised and importance > 1
    if doubly:
        _check_doubly(model)
    if model.is_stochastic or not integrate:
        key = needed(key)

    def once(key):
        if doubly:
            return _doubly_reparameterised(model, data, key, importance, beta, integrate)
        return _log_mean_exp(_log_weights(model, data, key, importance, beta, integrate, {}))

    seen = jnp.any(labels(data)[1], axis=1)  # a row without labels contributes nothing, its latent variables included

    def data_term(key):
        return jnp.sum(jnp.where(seen, once(key), 0.0))

    if key is not None and samples > 1:
        term = jnp.mean(jax.vmap(data_term)(jax.random.split(key, samples)))
    else:
        term = data_term(key)
    return scale * term - beta * model.kl()


class _GlobalImportance(AbstractBound):
    """Always noisy; it takes all data at once."""


@_GlobalImportance
def iw_elbo_global(
    model: Model,
    data: Any,
    *,
    key: Array,
    importance: int = 10,
    samples: int = 1,
    beta: float | Float[Array, ""] = 1.0,
    num_data: int | None = None,
) -> Float[Array, ""]:
    """Importance weighting over the weights θ themselves, and over latent variables h with them (sections 3.2 and 3.4).

        E[ log 1/S Σ_s exp( Σ_n log p(y_n | θ_s, h_sn, x_n) + β log p(θ_s)/q(θ_s) + β Σ_n log p(h_sn)/q(h_sn) ) ]

    eq:iw_vi_iid, eq:iw_vi_lv: tends to log p(y) as S = `importance` grows. For weight-space models (BayesianDense,
    Deterministic and LatentVariable layers, and Skip of these). One θ serves all data, so there are no minibatches.

    >>> import jax
    >>> import inducing as ig
    >>> model = ig.Model(ig.BayesianDense(1, 1), ig.likelihoods.Gaussian(0.1))
    >>> ig.iw_elbo_global(model, ([0.0, 1.0], [0.5, 0.2]), key=jax.random.key(0), importance=5).shape
    ()
    """
    key = needed(key)
    check_counts(samples=samples, importance=importance)
    _check_beta(beta)
    if num_data not in (None, len(data)):
        raise ValueError(
            f"iw_elbo_global needs all data at once: the log of its mean over θ is no sum over data, so a minibatch of "
            f"{len(data)} of {num_data} gives no unbiased estimate. Pass batch_size=None, or use ig.elbo."
        )
    for i, layer in enumerate(model.layers):
        if not _in_weight_space(layer):
            raise TypeError(
                f"layers[{i}] is a {type(layer).__name__}; importance weighting over θ is for weight-space models "
                "(BayesianDense, Deterministic, LatentVariable, Skip of these). Use ig.elbo(..., importance=...)."
            )

    seen = jnp.any(labels(data)[1], axis=1, keepdims=True)  # as in `elbo`

    def sample(layer, x, key):
        """The layer with one θ for all data, and log p/q of what was sampled."""
        if isinstance(layer, BayesianDense):
            W, log_ratio = layer.sample_weights(key)
            return with_one(x) @ W, log_ratio
        if isinstance(layer, LatentVariable):
            s = layer.sample(x, key, data, 1)
            return append(x, s.h), jnp.sum(jnp.where(seen, s.log_ratio, 0.0))
        if isinstance(layer, Skip):
            y, total = x, jnp.zeros((), x.dtype)
            for inner, k in zip(layer.layers, jax.random.split(key, len(layer.layers)), strict=True):
                y, log_ratio = sample(inner, y, k)
                total = total + log_ratio
            return append(x, y), total
        return layer.propagate(x, key, data, 1)[0], jnp.zeros((), x.dtype)

    def log_weight(key):
        x, total = enter(model, data), jnp.zeros((), dtype_of(model))
        for layer, k in zip(model.layers, model.keys(key), strict=True):
            x, log_ratio = sample(layer, x, k)
            total = total + log_ratio
        return jnp.sum(log_likelihood(model, data, x)) + beta * total

    log_weights = jax.vmap(log_weight)(jax.random.split(key, samples * importance))
    return jnp.mean(_log_mean_exp(log_weights.reshape(samples, importance)))


def _in_weight_space(layer: Any) -> bool:
    if isinstance(layer, Skip):
        return all(map(_in_weight_space, layer.layers))
    return isinstance(layer, BayesianDense | Deterministic | LatentVariable)


def _check_beta(beta: Any) -> None:
    if not (beta >= 0 if isinstance(beta, numbers.Real) else hasattr(beta, "ndim")):
        raise ValueError(f"beta must be 0 or more, got {beta!r}.")


def _log_weights(
    model: Model,
    data: Data,
    key: Array | None,
    replicates: int,
    beta: float | Float[Array, ""],
    integrate: bool,
    shifts: dict[int, Array],
) -> Float[Array, "N R"]:
    """log explik + β Σ_l log p(h)/q(h) of each replicate; `shifts` move the latent variables of layers, by number."""
    x, log_weight = model.propagate(data, key, replicates, shifts)
    if integrate:
        return expected_log_likelihood(model, data, x) + beta * log_weight
    f, _ = model.layers[-1].propagate(x, model.keys(key)[-1], data, replicates)
    return log_likelihood(model, data, f) + beta * log_weight


def _doubly_reparameterised(
    model: Model, data: Data, key: Array, R: int, beta: float | Float[Array, ""], integrate: bool
) -> Float[Array, " N"]:
    """log 1/R Σ_r w_r of each datum, with the doubly reparameterised gradient for the encoders.

    Writing the score term of the gradient as a path derivative leaves, for encoder parameters φ,

        Σ_r Σ_s c_rs (∂ log w_s / ∂h_r) (∂h_r / ∂φ),     c_rs = ω_s − β ω_r (δ_rs − ω_s),    ω = softmax(log w),

    which is ω_r² on the diagonal for β = 1. The off-diagonal terms vanish unless a GP is drawn jointly over replicates.
    """
    latents, keys = _encoded(model), model.keys(key)
    frozen = eqx.tree_at(
        lambda m: [m.layers[i].encoder for i in latents], model, [_stopped(v.encoder) for v in latents.values()]
    )
    samples = {i: layer.sample(enter(model, data), keys[i], data, R).h for i, layer in latents.items()}

    def log_weights(shifts):
        return _log_weights(frozen, data, key, R, beta, integrate, shifts)

    value, pull = jax.vjp(log_weights, jax.tree.map(jnp.zeros_like, samples))
    omega = jax.nn.softmax(value, axis=1)
    if _couples_replicates(model, integrate):
        (whole,) = pull(omega)

        def of_replicate(r):  # one by one: together they would take R times the memory
            (each,) = pull(jnp.where(jnp.arange(R)[None] == r, omega, 0.0))
            return jax.tree.map(lambda a: a[:, r], each)

        own = jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1), jax.lax.map(of_replicate, jnp.arange(R)))
        gradient = jax.tree.map(lambda w, o: (1.0 + beta * omega)[..., None] * w - beta * o, whole, own)
    else:
        (gradient,) = pull(omega - beta * omega * (1.0 - omega))
    gradient = jax.lax.stop_gradient(gradient)
    path = sum(
        jnp.sum(gradient[i] * (samples[i] - jax.lax.stop_gradient(samples[i])), axis=(1, 2)) for i in latents
    )  # zero, with the gradient above
    return _log_mean_exp(value) + path


def _encoded(model: Model) -> dict[int, LatentVariable]:
    """The latent variables that have an encoder, by the number of their layer."""
    layers = enumerate(model.layers)
    return {i: v for i, v in layers if isinstance(v, LatentVariable) and v.encoder is not None}


def _is_encoder(part: Any) -> bool:
    return isinstance(part, AbstractEncoder)


def _stopped(tree: Any) -> Any:
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, tree)


def _couples_replicates(model: Model, integrate: bool) -> bool:
    """Whether a weight depends on the latent variables of other replicates."""
    sampled = model.layers[:-1] if integrate else model.layers
    return not all(map(_in_weight_space, sampled[min(_encoded(model)) :]))


def _check_doubly(model: Model) -> None:
    skips = [layer for layer in model.layers if isinstance(layer, Skip)]
    if any(map(_is_encoder, jax.tree.leaves(skips, is_leaf=_is_encoder))):
        raise TypeError("doubly_reparameterised does not look into Skip layers; put the latent variables outside them.")
    if not _encoded(model):
        raise TypeError("doubly_reparameterised is for models with a LatentVariable that has an encoder; here is none.")
    for i, layer in _encoded(model).items():
        if layer.encoder is not None and "input" in layer.encoder.sees:
            raise TypeError(
                f"the encoder of layers[{i}] sees its layer's input, which other layers sample, so its gradient cannot "
                'be separated from theirs; let it see ("x", "y", "mask"), or set doubly_reparameterised=False.'
            )


def _log_mean_exp(log_weights: Float[Array, "N R"]) -> Float[Array, " N"]:
    return jax.nn.logsumexp(log_weights, axis=1) - jnp.log(jnp.asarray(log_weights.shape[1], log_weights.dtype))
