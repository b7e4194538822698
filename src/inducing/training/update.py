"""Learning online: new rows, without the old ones."""

import numbers
from typing import Any

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from inducing._xla import default_jit
from inducing.bounds.elbo import elbo
from inducing.checks import check_model, checked_data
from inducing.data import Data
from inducing.layers import qu
from inducing.linalg import diagonal_of
from inducing.model import Model
from inducing.training.natural import natural_gradient_step

STEPS = 200  # of natural gradients, at most; Gaussian noise needs one
TOLERANCE = 1e-11  # of the bound, relative


def update(model: Model, data: Any, *, memory: float = 1.0) -> Model:
    """Condition a trained sparse GP on new rows without the old ones (Bui, Nguyen & Turner 2017).

    What was learnt from old rows is in q_old(u), which enters the bound as one more factor:

        Σ_n E_q log p(y_n | f_n) − KL(q(u) ‖ p(u)) + λ E_q log (q_old(u) / p(u)),    n over the new rows

    The bound is maximised over q(u) by natural gradients; features and hyperparameters stay. With Gaussian noise the
    result is exact: it is the q(u) of `ig.collapse` on all rows at once, however they were split. The cost depends on
    the number of new rows alone. A model that has seen no data, q(u) = p(u), may be updated too.

    Args:
        model: a model of one `SparseGP` layer, with any prior, features and likelihood.
        data: the new rows, (X, y) or an `ig.Data`, with weights if you like.
        memory: λ, from 0 to 1. With λ < 1 each update forgets some of the old rows, for processes that drift: after k
            more updates they count λ^k times.

    Returns:
        The model with the new q(u).

    Raises:
        TypeError: if the model is not one SparseGP layer with a likelihood, or its q(u) is a Kronecker product.
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
    check_model(model)
    if isinstance(memory, bool) or not isinstance(memory, numbers.Real) or not 0 <= memory <= 1:
        raise ValueError(f"memory must be a number from 0 to 1, got {memory!r}; 1 forgets nothing.")
    layer = model.layers[0].as_sparse_gp() if len(model.layers) == 1 else None
    if layer is None:
        kinds = ", ".join(type(part).__name__ for part in model.layers)
        raise TypeError(
            f"update is for models of one SparseGP layer, not for layers ({kinds}): in a deep model, q of one layer "
            "was learnt for the inputs that the others gave it, so that it is no summary of the old rows once they "
            "change; use ig.fit on all rows."
        )
    if qu.is_kronecker(layer.root):
        raise TypeError("update needs a full, coupled or diagonal q(u), not a Kronecker product; pass another root.")
    data = checked_data(model, data)
    m, root = layer.whitened(layer.Kuu())
    old = (m, qu.triangular(qu.expand(root)))
    bound, gamma = _streaming_elbo(model, data, old, jnp.asarray(memory, m.dtype)), 1.0
    for _ in range(STEPS):
        trial, value = _step(model, data, old, jnp.asarray(memory, m.dtype), jnp.asarray(gamma, m.dtype))
        gain = float(value - bound)
        if gain > -TOLERANCE * abs(float(bound)):
            model, bound = trial, value
            if gain < TOLERANCE * abs(float(bound)) + TOLERANCE:
                break
            gamma = min(1.0, 2 * gamma)
        else:  # the bound fell, or is NaN
            gamma = 0.5 * gamma
    return model


@default_jit
def _step(model: Model, data: Data, old: tuple[Array, Array], memory: Array, gamma: Array) -> tuple[Model, Array]:
    """The model after one step, and its bound."""

    def objective(model: Any, data: Any) -> Array:
        return _streaming_elbo(model, data, old, memory)

    model = natural_gradient_step(model, data, gamma, objective=objective, layer=lambda m: m.layers[0].as_sparse_gp())
    return model, objective(model, data)


@default_jit
def _streaming_elbo(model: Model, data: Data, old: tuple[Array, Array], memory: Array) -> Float[Array, ""]:
    layer = model.layers[0].as_sparse_gp()
    assert layer is not None
    m, root = layer.whitened(layer.Kuu())
    return elbo(model, data) + memory * _log_ratio(m, qu.expand(root), *old)


def _log_ratio(m: Array, root: Array, m_old: Array, root_old: Array) -> Float[Array, ""]:
    """E log N(w | m_old, R_old R_oldᵀ) − E log N(w | 0, I) under w ~ N(m, R Rᵀ), summed over latents."""
    if root_old.ndim == 2:  # coupled latents
        m, m_old, root, root_old = m.reshape(1, -1), m_old.reshape(1, -1), root[None], root_old[None]
    both = jnp.concatenate([(m - m_old)[..., None], root], axis=-1)
    solved = solve_triangular(root_old, both, lower=True)
    log_det = jnp.sum(jnp.log(jnp.abs(diagonal_of(root_old))))
    return 0.5 * (jnp.sum(m**2) + jnp.sum(root**2) - jnp.sum(solved**2)) - log_det
