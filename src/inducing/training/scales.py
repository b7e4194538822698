"""Starting values from data: variances, lengthscales, noise and constant means in the units of x and y."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from .. import likelihoods, means
from ..checks import check_model_and_data
from ..data import Data, as_data
from ..kernels.composite import ActiveDims, Product, Sum
from ..kernels.periodic import Periodic
from ..kernels.stationary import AbstractStationary
from ..layers import qu
from ..layers.sparse_gp import SparseGP
from ..parameters import dtype_of

NOISE_SHARE = 0.1  # of the labels' variance that is noise at the start
FAR = 1e3  # a user's value that is off by more than this factor is taken for one in other units


class _Target(NamedTuple):
    """A leaf of the model, the value from data, and whether a user's own value would be far from it."""

    leaf: Array
    value: Any
    far: bool


def scales(model: Any, data: Any) -> Any:
    """The model with its scales set from data; q(u) becomes the prior of the new kernel.

    Under Gaussian, Student-t and Laplace noise: the prior variance of the last layer becomes the variance of y (its
    kernels keep their proportions), the noise a tenth of it, constant means the mean of y. Lengthscales of the first
    layer become (√D − ½) standard deviations of the inputs. `ig.fit` does this for parameters at their
    default value; see there.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model = ig.initialise.scales(ig.Model(gp, ig.likelihoods.Gaussian()), ([0.0, 1.0], [0.0, 2e6]))
    >>> print(model.likelihood.variance)
    100000000000.0
    """
    data = as_data(data, dtype_of(model))
    check_model_and_data(model, data)
    return _replace(model, {id(t.leaf): t.value for t in _targets(model, data)})


def automatic_scales(model: Any, data: Data, trained: Callable[[Array], bool]) -> tuple[Any, bool]:
    """The model with `scales` where `trained` parameters hold their default or are far off; whether anything changed.

    A model whose q(u) is not the prior has been trained or set by hand: it stays as it is.
    """
    if not all(_is_prior(layer) for layer in model.layers if isinstance(layer, SparseGP)):
        return model, False
    default = _at_default(model)
    chosen = {
        id(t.leaf): t.value for t in _targets(model, data) if trained(t.leaf) and (t.far or default.get(id(t.leaf)))
    }
    return (_replace(model, chosen), True) if chosen else (model, False)


def _is_prior(layer: SparseGP) -> bool:
    """Whether q(u) = p(u)."""
    if layer.coordinates != "w":
        return abs(float(layer.kl())) <= 1e-6 * layer.mean.size
    root = np.asarray(qu.expand(layer.root) if qu.is_kronecker(layer.root) else layer.root)
    eye = np.eye(root.shape[-1]) if root.shape[-2] == root.shape[-1] else 1.0
    return not np.any(layer.mean) and bool(np.all(root == eye))


def _replace(model: Any, values: dict[int, Any]) -> Any:
    """Leaves by their identity, so that what is tied stays tied; q(u) of layers in u or v follows its prior."""
    new = {i: jnp.asarray(v) for i, v in values.items()}

    def one(leaf):
        return new[id(leaf)].astype(leaf.dtype).reshape(leaf.shape) if id(leaf) in new else leaf

    made: dict[int, Any] = {}
    model = jtu.tree_map(lambda leaf: made.setdefault(id(leaf), one(leaf)) if eqx.is_array(leaf) else leaf, model)
    layers = tuple(
        SparseGP(layer.prior, layer.features, coordinates=layer.coordinates, jitter=layer.jitter)
        if isinstance(layer, SparseGP) and layer.coordinates != "w"
        else layer
        for layer in model.layers
    )
    return eqx.tree_at(lambda m: m.layers, model, layers)


def _at_default(tree: Any) -> dict[int, bool]:
    """For each array that a field declares with a default, whether it still has that value."""
    found: dict[int, bool] = {}

    def visit(node):
        if not dataclasses.is_dataclass(node):
            return
        for field in dataclasses.fields(node):
            leaf: Any = getattr(node, field.name, None)
            if eqx.is_inexact_array(leaf) and isinstance(field.default, int | float):
                found[id(leaf)] = leaf.ndim == 0 and bool(leaf == field.default)

    def is_leaf(node):
        visit(node)
        return False

    jtu.tree_leaves(tree, is_leaf=is_leaf)
    return found


def _targets(model: Any, data: Data) -> list[_Target]:
    targets: list[_Target] = []
    first, last = model.layers[0], model.layers[-1]
    if isinstance(first, SparseGP) and data.x is not None:
        x = np.asarray(data.x, float)
        for kernel in _kernels(first.prior):
            targets += _lengthscales(kernel, x)
    if isinstance(last, SparseGP) and data.y is not None:
        targets += _outputs(model, last, data)
    return targets


def _latents(prior: Any) -> tuple[Any, ...]:
    """The scalar GPs that a prior maps, or those that it has in place of them."""
    while not isinstance(prior, tuple):
        inner = getattr(prior, "latents", None) or getattr(prior, "prior", None)
        if inner is None:
            return (prior,) if hasattr(prior, "kernel") else ()
        prior = inner
    return prior


def _kernels(prior: Any) -> tuple[Any, ...]:
    """The kernels of the latents: one that all share, or one for each."""
    return tuple(gp.kernel for gp in _latents(prior))


def _lengthscales(kernel: Any, x: np.ndarray) -> list[_Target]:
    if isinstance(kernel, Sum | Product):
        return [t for part in kernel.kernels for t in _lengthscales(part, x)]
    if isinstance(kernel, ActiveDims):
        return _lengthscales(kernel.kernel, x[:, list(kernel.dims)])
    if not isinstance(kernel, AbstractStationary):
        return []
    leaf = kernel.lengthscale
    spread = x.std(axis=0)
    size = np.abs(x).max(axis=0)
    constant = spread <= 1e-9 * size  # such a column matters to no kernel; any positive number will do
    spread = np.where(constant, np.where(size > 0, size, 1.0), spread)
    if leaf.ndim == 0:
        spread = np.sqrt(np.mean((spread if constant.all() else spread[~constant]) ** 2))
    elif leaf.shape != spread.shape:
        return []
    D = max(1, int((~constant).sum()))
    value = (np.sqrt(D) - 0.5) * spread
    ratio = np.asarray(leaf, float) / value
    return [_Target(leaf, value, bool((ratio > FAR).any() or (ratio < 1.0 / FAR).any()))]


def _outputs(model: Any, layer: SparseGP, data: Data) -> list[_Target]:
    likelihood = model.likelihood
    y = np.where(np.asarray(data.mask), np.asarray(data.y, float), np.nan)
    centre = np.nanmean(y, axis=0)
    variance = np.nanvar(y, axis=0)
    if isinstance(likelihood, likelihoods.Gaussian):
        noise, power = likelihood.variance, 1.0
    elif isinstance(likelihood, likelihoods.StudentT | likelihoods.Laplace):
        noise, power = likelihood.scale, 0.5
    else:
        return []
    floor = (1e-6 * np.abs(centre)) ** 2  # labels that are all the same still have a size
    variance = np.where(variance > floor, variance, np.where(floor > 0, 1e6 * floor, 1.0))
    targets = _amplitudes(layer, data, variance)
    if eqx.is_array(noise):
        value = (NOISE_SHARE * (variance if noise.ndim else variance.mean())) ** power
        ratio = (np.asarray(noise, float) / value) ** (1.0 / power)
        targets.append(_Target(noise, value, bool((ratio > FAR**2).any() or (ratio < FAR**-4).any())))
    latents = _latents(layer.prior)
    own = latents if len(latents) == len(centre) and layer.prior.mixing is None else ()
    for gp, c in [
        (layer.prior, centre),
        *((gp, c) for gp, c in zip(own, centre, strict=False) if gp is not layer.prior),
    ]:
        mean = getattr(gp, "mean_function", None)
        if isinstance(mean, means.Constant):
            targets.append(_Target(mean.value, c if mean.value.ndim else np.mean(c), False))
    return targets


def _amplitudes(layer: SparseGP, data: Data, variance: np.ndarray) -> list[_Target]:
    """Factors that bring the prior variance at the data to that of the labels."""
    prior, L = layer.prior, layer.prior.num_latents
    if data.x is None or layer.prior.num_sites > 1:
        return []
    kernels = _kernels(prior)
    own = len(kernels) == L and prior.mixing is None and prior.num_outputs == L
    wanted = variance if own else np.full(len(kernels), variance.mean())
    targets = []
    for kernel, target in zip(kernels, wanted, strict=True):
        try:
            present = float(np.mean(np.asarray(kernel.diag(data.x[:1000]))))
        except (TypeError, ValueError):  # an inner layer, or a kernel of other inputs: at its own points then
            present = np.nan
        if np.isfinite(present) and present > 0:
            factor = target / present
            far = factor > FAR**2 or factor < FAR**-2
            targets += [_Target(leaf, np.asarray(leaf, float) * factor, far) for leaf in _variances(kernel)]
    return targets


def _variances(kernel: Any) -> list[Array]:
    """The parameters whose common factor is a factor of the kernel."""
    if isinstance(kernel, Sum):
        parts = [_variances(part) for part in kernel.kernels]
        return [leaf for part in parts for leaf in part] if all(parts) else []
    if isinstance(kernel, Product):
        return next((found for part in kernel.kernels if (found := _variances(part))), [])
    if isinstance(kernel, Periodic):
        return _variances(kernel.base)
    inner = getattr(kernel, "kernel", None)
    if inner is not None:
        return _variances(inner)
    leaf: Any = getattr(kernel, "variance", None)
    return [leaf] if eqx.is_inexact_array(leaf) else []
