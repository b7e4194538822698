"""Monotone functions: a fit with observed signs of slopes (Riihimäki & Vehtari 2010)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.bounds.terms import inputs
from inducing.checks import check_model, checked_data
from inducing.data import Data, as_inputs
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.ordinal import Ordinal
from inducing.likelihoods.per_output import PerOutput
from inducing.model import Model
from inducing.parameters import as_whole, one_or_several, partition
from inducing.priors.derivative import Derivative
from inducing.training.fit import fit
from inducing.training.initialise import kmeans
from inducing.training.problem import free_positions
from inducing.training.scales import automatic_scales

POINTS = 50  # the most inputs at which signs are observed, unless they are given
SLACK = 0.05  # ν, relative to the spread of the function over that of the column


def monotone(
    model: Model, data: Any, *, increasing: Any = (), decreasing: Any = (), at: Any = None, **options: Any
) -> Model:
    """Train a sparse GP whose function rises or falls along some columns.

    At inputs z_s, the sign of the slope along each of these columns c is observed (Riihimäki & Vehtari 2010):

        Σ_n E_q log p(y_n | f_n) + Σ_s Σ_c E_q log Φ(± ∂f/∂x_c(z_s) / ν_c) − KL(q(u) ‖ p(u))

    The bound trains q(u), hyperparameters and likelihood together. ν_c, one twentieth of the spread of f over that of
    column c, allows for slopes of almost zero. The posterior is not exactly monotone: between the z_s, and where f is
    flat, functions drawn from it may turn slightly. Signs favour long lengthscales, so that steep steps between flat
    parts come out too gentle; if hyperparameters are known, freeze them.

    Args:
        model: a model of one `SparseGP` layer with one output and one latent function, whose prior is differentiable
            along these columns, such as `ig.GP(ig.kernels.Matern52())`. It may have any features, and any likelihood.
        data: (X, y) or `ig.Data`.
        increasing: the columns, counted from 0, along which the function rises: a number or several.
        decreasing: the columns along which it falls.
        at: z, the inputs [S, D] with signs. By default at most 50 k-means centres of X. Pass more of them, such as a
            grid, if the function is to be monotone far from the data or in wide gaps between them.
        **options: arguments of `ig.fit`, such as `steps=500` or `freeze=lambda m: m.likelihood`. A `callback` sees the
            model with the slopes as additional outputs.

    Returns:
        The trained model, with the layer and the likelihood of `model`. The signs have shaped q(u) and the parameters.

    Raises:
        TypeError: if the model is not one SparseGP layer with a likelihood, or its prior has no such slopes.
        ValueError: if there is more than one output or latent function, or the columns are not columns of X that vary.

    Examples:
        >>> import inducing as ig
        >>> x, y = np.linspace(0.0, 1.0, 8), np.array([0.0, 0.3, -0.1, 0.2, 0.8, 1.2, 0.9, 1.1])
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.SquaredExponential(0.3)), ig.features.InducingPoints(x[:, None]))
        >>> rising = ig.monotone(ig.Model(gp, ig.likelihoods.Gaussian(0.1)), (x, y), increasing=0, progress=False)
        >>> bool(np.all(np.diff(rising.predict(np.linspace(0.0, 1.0, 50)).mean[:, 0]) > 0))
        True
    """
    check_model(model)
    data = checked_data(model, data, every_output=True)
    x, prior = inputs(data), _checked_layer(model).prior
    if prior.num_outputs != 1:
        raise ValueError(
            f"monotone is for one function, and this {type(prior).__name__} has {prior.num_outputs}; fit a model for "
            "each output."
        )
    signs = _signs(increasing, decreasing, x)
    z = kmeans(x, POINTS) if at is None else as_inputs(at, x.dtype)
    if z.shape[1] != x.shape[1]:
        raise ValueError(f"at must have the {x.shape[1]} columns of X, got {z.shape[1]}.")
    if options.get("initialise", True):  # on the values alone: signs of slopes do not tell the amplitude
        free = free_positions(model, partition(model, options.get("freeze")))
        model, _ = automatic_scales(model, data, lambda leaf: id(leaf) in free)
    slopes = [Ordinal(jnp.zeros(1, x.dtype), width) for width in _widths(model, data, signs)]
    parts = (
        Derivative(_checked_layer(model).prior, dims=list(signs), values=True),
        PerOutput([model.likelihood, *slopes]),
    )
    wide = eqx.tree_at(_parts, model, parts)
    given: dict[str, Any] = dict(options)
    for name in ("freeze", "log_prior"):
        if callable(of_model := options.get(name)):
            given[name] = lambda m, of_model=of_model: of_model(_narrow(m))
    own = given.get("freeze")
    given["freeze"] = lambda m: (m.likelihood.likelihoods[1:], None if own is None else own(m))
    if options.get("held_out") is not None:
        given["held_out"] = _widened(checked_data(model, options["held_out"]), z[:0], signs)
    return _narrow(fit(wide, _widened(data, z, signs), **given).model)


def _parts(model: Model) -> Any:
    return _checked_layer(model).prior, model.likelihood


def _narrow(wide: Model) -> Model:
    """The model of the values alone: q(u) is that of the function, whose slopes are no more in the model."""
    prior, likelihood = _parts(wide)
    return eqx.tree_at(_parts, wide, (prior.prior, likelihood.likelihoods[0]))


def _checked_layer(model: Model) -> SparseGP:
    layer = model.layers[0].as_sparse_gp() if len(model.layers) == 1 else None
    if layer is None:
        kinds = ", ".join(type(part).__name__ for part in model.layers)
        raise TypeError(f"monotone is for models of one SparseGP layer, not for layers ({kinds}).")
    return layer


def _widths(model: Model, data: Data, signs: dict[int, float]) -> list[Array]:
    """ν of each column."""
    (variance,) = model.likelihood.start(_labels(data)).variance
    spread = np.sqrt(variance) if np.isfinite(variance) else 1.0
    x = inputs(data)
    return [jnp.asarray(SLACK * spread / np.std(x[:, c]), x.dtype) for c in signs]


def _signs(increasing: Any, decreasing: Any, x: Float[Array, "N D"]) -> dict[int, float]:
    """The label of each column: 1 if the function rises along it, 0 if it falls."""
    pairs = [(as_whole(c), 1.0) for c in one_or_several(increasing)]
    pairs += [(as_whole(c), 0.0) for c in one_or_several(decreasing)]
    signs, D = dict(pairs), x.shape[1]
    if not signs or len(signs) < len(pairs) or not all(isinstance(c, int) and 0 <= c < D for c in signs):
        raise ValueError(
            f"increasing and decreasing must hold columns of X, counted from 0 to {D - 1}, each once, and at least one "
            f"of them; got increasing={increasing!r}, decreasing={decreasing!r}."
        )
    for c in signs:
        if np.ptp(x[:, c]) == 0:
            raise ValueError(f"column {c} of X is constant, so that it has no slopes; leave it out.")
    return signs


def _labels(data: Data) -> np.ndarray:
    y = np.array(data.y)
    y[~np.asarray(data.mask)] = np.nan
    return y


def _widened(data: Data, z: Float[Array, "S D"], signs: dict[int, float]) -> Data:
    """The rows, whose slopes are not observed, and rows at z of which the signs of slopes are all that is observed."""
    seen = _labels(data)
    y = np.full((len(data) + len(z), 1 + len(signs)), np.nan, seen.dtype)
    y[: len(data), :1] = seen
    y[len(data) :, 1:] = list(signs.values())
    index = np.concatenate([data.index, np.full(len(z), data.index[0])])  # any datum: z has no label of it
    weight = None if data.weight is None else np.concatenate([data.weight, np.ones(len(z), y.dtype)])
    return Data(np.concatenate([inputs(data), z]), y, index=index, weight=weight)
