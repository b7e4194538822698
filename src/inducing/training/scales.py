"""Starting values from data: variances, lengthscales, noise and constant means in the units of x and y."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from inducing import means
from inducing._xla import default_jit, own_array
from inducing.checks import check_model_and_data
from inducing.data import Data, as_data
from inducing.kernels.composite import ActiveDims, ChangePoint, Product, Sum, Warped
from inducing.kernels.dot_product import ArcCosine, Linear, Polynomial
from inducing.kernels.periodic import Periodic
from inducing.kernels.stationary import AbstractStationary
from inducing.layers import qu
from inducing.layers.base import AbstractLayer
from inducing.layers.deterministic import Skip
from inducing.layers.sparse_gp import SparseGP, sparse_gps
from inducing.likelihoods.starts import LatentStart
from inducing.linalg import batched
from inducing.parameters import FAR, Start, dtype_of
from inducing.priors.as_input import OutputAsInput
from inducing.priors.base import AbstractPrior, mix_variance
from inducing.priors.derivative import Derivative
from inducing.priors.image import ImageConvolution
from inducing.priors.independent import Independent
from inducing.priors.matrix_valued import MatrixValued


def scales(model: Any, data: Any) -> Any:
    """The model with its scales set from data; q(u) becomes the prior of the new kernel.

    Where labels are f and noise (Gaussian, Student-t, Laplace): the prior variance of the last layer becomes the
    variance of y (its kernels keep their proportions), the noise a tenth of it, constant means the mean of y. Where f
    is the logarithm of a scale (LogNormal, Gamma, Weibull, Exponential): the same with log y. A HeteroscedasticGaussian
    has one of each, the second being the logarithm of the noise. Where f is the logarithm of the mean of counts,
    constant means become that of y. So labels of any size need a constant mean where the scale of y is a shift of f.
    Lengthscales become (√D − ½) standard deviations of the latents' inputs: for images patches, above other layers a
    sample of what these give; the steepness of a ChangePoint becomes 2 over the standard deviation of its column. The
    columns of Linear, Polynomial and ArcCosine kernels count alike: each as a variance of one, or together as much as
    the offset or bias. `ig.fit` does this for parameters at their default value; see there.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model = ig.initialise.scales(ig.Model(gp, ig.likelihoods.Gaussian()), ([0.0, 1.0], [0.0, 2e6]))
    >>> print(model.likelihood.variance)
    100000000000.0
    """
    data = as_data(data, dtype_of(model))
    check_model_and_data(model, data)
    return _rescaled(model, data, lambda target: True)[0]


def automatic_scales(model: Any, data: Data, trained: Callable[[Array], bool]) -> tuple[Any, bool]:
    """The model with `scales` where `trained` parameters hold their default or are far off; whether anything changed.

    A model whose q(u) is not as it was made has been trained or set by hand: it stays as it is.
    """
    if not all(map(_is_fresh, sparse_gps(model))):
        return model, False
    default = _at_default(model)
    return _rescaled(model, data, lambda t: trained(t.leaf) and (t.far or default.get(id(t.leaf), False)))


def with_shorter_lengthscales(model: Any, data: Data, trained: Callable[[Array], bool]) -> Any:
    """The model of one sparse GP with its `trained` lengthscales divided so that M features are about one apart; None
    if it has none.

    Where labels vary faster than the lengthscales at the start, a fit may take all of them for noise and stay there.
    Lengthscales from `scales` are √D − ½ standard deviations. M features in D columns are about √12 M^(−1/D) apart
    (random points in many columns √(2D)), and this divides by 2 at least.
    """
    (gp,), x = sparse_gps(model), np.asarray(data.x)
    D = max(1, int((x.min(axis=0) < x.max(axis=0)).sum()))
    apart = max(math.sqrt(12.0), math.sqrt(2.0 * D)) * gp.num_features ** (-1.0 / D)
    factor = max(2.0, (math.sqrt(D) - 0.5) / apart)
    parts = jtu.tree_leaves(gp.prior, is_leaf=lambda v: isinstance(v, AbstractStationary))
    leaves = [part.lengthscale for part in parts if isinstance(part, AbstractStationary)]
    shorter = {id(leaf): np.asarray(leaf) / factor for leaf in leaves if trained(leaf)}
    return _replace(model, shorter) if shorter else None


def _rescaled(model: Any, data: Data, wanted: Callable[[Start], bool]) -> tuple[Any, bool]:
    """First what inputs say, on which the variance of some priors depends; then the rest, which may move it again."""
    before = jtu.tree_leaves(model)
    chosen = {id(t.leaf): t.value for t in _inputs(model, data) if wanted(t)}
    model = _replace(model, chosen) if chosen else model
    set_before = {id(new) for new, old in zip(jtu.tree_leaves(model), before, strict=True) if new is not old}
    more = {id(t.leaf): t.value for t in _outputs(model, data) if id(t.leaf) in set_before or wanted(t)}
    return _replace(model, more) if more else model, bool(chosen or more)


def _is_fresh(layer: SparseGP) -> bool:
    """Whether q(u) = p(u), or its covariance a multiple of that, as in inner layers of deep GPs."""
    if layer.coordinates != "w":
        return abs(float(layer.kl())) <= 1e-6 * layer.mean.size
    return not np.any(np.asarray(layer.mean)) and all(_is_scalar(np.asarray(R)) for R in jtu.tree_leaves(layer.root))


def _is_scalar(root: np.ndarray) -> bool:
    """Whether a root, or a factor of a Kronecker root, is a multiple of the identity."""
    one = np.eye(root.shape[-1]) if root.shape[-2] == root.shape[-1] else 1.0
    return bool(np.all(root == root.flat[0] * one))


def _replace(model: Any, values: dict[int, Any]) -> Any:
    """Leaves by their identity, so that what is tied stays tied; q(u) of layers in u or v follows its prior."""

    def one(leaf):
        return own_array(np.reshape(values[id(leaf)], leaf.shape), leaf.dtype) if id(leaf) in values else leaf

    made: dict[int, Any] = {}
    model = jtu.tree_map(lambda leaf: made.setdefault(id(leaf), one(leaf)) if eqx.is_array(leaf) else leaf, model)

    def at_prior(part):
        if not isinstance(part, SparseGP) or part.coordinates == "w":
            return part
        own = SparseGP(part.prior, part.features, coordinates=part.coordinates, jitter=part.jitter)
        if not qu.is_diagonal(part.root):
            return own
        variances = batched("diagonal", qu.repeat(own.Kuu(), own.prior.num_latents))
        return eqx.tree_at(lambda gp: gp.root, own, jnp.sqrt(variances)[:, None])

    return jtu.tree_map(at_prior, model, is_leaf=lambda v: isinstance(v, SparseGP))


def _at_default(tree: Any) -> dict[int, bool]:
    """For each array that a field declares with a default, whether it still has that value, or a vector of it."""
    found: dict[int, bool] = {}

    def visit(node):
        if not dataclasses.is_dataclass(node):
            return
        for field in dataclasses.fields(node):
            leaf: Any = getattr(node, field.name, None)
            if eqx.is_inexact_array(leaf) and isinstance(field.default, int | float):
                found[id(leaf)] = bool(np.all(np.asarray(leaf) == np.asarray(field.default, leaf.dtype)))

    def is_leaf(node):
        visit(node)
        return False

    jtu.tree_leaves(tree, is_leaf=is_leaf)
    return found


def _inputs(model: Any, data: Data) -> list[Start]:
    """Lengthscales and weights of the sparse GPs; what several of them share is set by the first."""
    if data.x is None or not sparse_gps(model):
        return []
    new = Data(data.x, index=data.index)  # without labels, so that latent variables come from their prior
    found: list[tuple[SparseGP, Array]] = []
    _visit(model.layers, data.x, new, itertools.count(), found, len(sparse_gps(model)))
    pairs = [(kernel, latent_inputs(gp.prior, x)) for gp, x in reversed(found) for kernel in gp.prior.kernels]
    return [t for kernel, x in pairs for t in _lengthscales(kernel, x)]


def _visit(layers: Sequence[AbstractLayer], x: Array, data: Data, seeds: Iterator[int], found: list, num: int) -> Array:
    """Finds the first `num` sparse GPs of a stack with a sample [N, D] of the inputs of each; its outputs."""
    for layer in layers:
        if isinstance(layer, SparseGP):
            found.append((layer, x))
        if len(found) == num:
            break
        x, data = jax.tree.map(_some, (x, data))  # layers may hold much for each row
        if isinstance(layer, Skip):
            x = jnp.concatenate([x, _visit(layer.layers, x, data, seeds, found, num)], axis=1)
        else:
            x = _sampled(layer, x, data, next(seeds))
    return x


def _sampled(layer: AbstractLayer, x: Array, data: Data, seed: int) -> Array:
    """The output of a layer at each row by itself; of a sparse GP that of its prior."""
    if not isinstance(layer, SparseGP):
        return _propagated(layer, x, data, jax.random.key(seed))
    mean, variance = (np.asarray(a) for a in _prior_moments(layer.prior, x))
    noise = np.random.default_rng(seed).standard_normal(mean.shape)
    return own_array(mean + np.sqrt(variance) * noise, mean.dtype)


@default_jit
def _propagated(layer: AbstractLayer, x: Array, data: Data, key: Array) -> Array:
    return layer.propagate(x[:, None], key, data, 1)[0][:, 0]


@default_jit
def _prior_moments(prior: AbstractPrior, x: Array) -> tuple[Array, Array]:
    return prior.mean(x), _prior_variances(prior, x)


def latent_inputs(prior: Any, x: Array) -> np.ndarray:
    """Where the latents of a prior are looked at.

    >>> import inducing as ig
    >>> rows = jnp.array([[0.3, 0.0], [0.7, 1.0]])
    >>> latent_inputs(ig.priors.as_input(ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52())), rows).tolist()
    [[0.3], [0.7]]
    """
    if isinstance(prior, OutputAsInput):
        return latent_inputs(prior.prior, x[:, :-1])
    if isinstance(prior, Derivative):
        return latent_inputs(prior.prior, x)
    if isinstance(prior, ImageConvolution):
        patches = np.asarray(prior.patches(_some(x)), float)
        return patches.reshape(-1, patches.shape[-1])
    if isinstance(prior, MatrixValued):
        P = prior.num_outputs
        return np.concatenate([np.repeat(x, P, axis=0), np.tile(np.arange(P), len(x))[:, None]], axis=1)
    return np.asarray(x, float)


def _lengthscales(kernel: Any, x: np.ndarray) -> list[Start]:
    if isinstance(kernel, ChangePoint):
        return _steepness(kernel, x) + [t for part in kernel.kernels for t in _lengthscales(part, x)]
    if isinstance(kernel, Sum | Product):
        return [t for part in kernel.kernels for t in _lengthscales(part, x)]
    if isinstance(kernel, Warped):
        warped = jax.vmap(kernel.function)(_some(jnp.asarray(x, dtype_of(kernel))))
        return _lengthscales(kernel.kernel, np.asarray(warped, float))
    if isinstance(kernel, ActiveDims):
        return _lengthscales(kernel.kernel, x[:, list(kernel.dims)])
    if isinstance(kernel, Linear):  # whether a user's value is far off, the labels say
        return [t._replace(far=False) for t in _weights(kernel.variance, float(x.any(axis=0).sum()), x)]
    if isinstance(kernel, Polynomial):
        return _weights(kernel.variance, float(kernel.offset), x)
    if isinstance(kernel, ArcCosine):
        return _weights(kernel.weight_variance, float(kernel.bias_variance), x)
    if not isinstance(kernel, AbstractStationary):
        return []
    leaf = kernel.lengthscale
    spread = x.std(axis=0)
    size = np.abs(x).max(axis=0)
    constant = spread <= 1e-13 * size  # such a column matters to no kernel; any positive number will do
    spread = np.where(constant, np.where(size > 0, size, 1.0), spread)
    if leaf.ndim == 0:
        spread = np.sqrt(np.mean((spread if constant.all() else spread[~constant]) ** 2))
    elif leaf.shape != spread.shape:
        return []
    D = max(1, int((~constant).sum()))
    value = (np.sqrt(D) - 0.5) * spread
    ratio = np.asarray(leaf, float) / value
    return [Start(leaf, value, bool((ratio > FAR).any() or (ratio < 1.0 / FAR).any()))]


def _weights(leaf: Array, together: float, x: np.ndarray) -> list[Start]:
    """Weights w of columns that count alike, and together Σ_d w_d mean(x_d²) = `together`."""
    square = np.mean(x**2, axis=0)
    if leaf.shape not in ((), square.shape) or not square.any():
        return []
    D = np.count_nonzero(square)
    each = square.sum() if leaf.ndim == 0 else D * np.where(square > 0, square, 1.0)
    value = together / each
    ratio = np.asarray(leaf, float) / value
    return [Start(leaf, value, bool((ratio > FAR**2).any() or (ratio < FAR**-2).any()))]


def _steepness(kernel: ChangePoint, x: np.ndarray) -> list[Start]:
    """A change takes about a lengthscale of one dimension; a user's may be as sudden as can be."""
    spread = x[:, kernel.dim].std() if kernel.dim < x.shape[1] else 0.0
    if not spread > 0.0:
        return []
    value = np.full(kernel.steepness.shape, 2.0 / spread)
    return [Start(kernel.steepness, value, bool((kernel.steepness < value / FAR).any()))]


def _outputs(model: Any, data: Data) -> list[Start]:
    """Variances and constant means of the last layer, and the noise."""
    layer = model.layers[-1]
    if not isinstance(layer, SparseGP) or data.y is None:
        return []
    y = np.where(np.asarray(data.mask), np.asarray(data.y, float), np.nan)
    prior, x = layer.prior, _places(model, data)
    if isinstance(prior, OutputAsInput) and len(model.layers) == 1 and data.x is not None:
        latent = _of_rows(model.likelihood, np.asarray(data.x)[:, -1].astype(int), y, prior.prior.num_outputs)
        prior, x = prior.prior, x[:, :-1]
    else:
        latent = model.likelihood.start(y)
    return latent.own + _means(prior, latent.centre) + _amplitudes(prior, x, latent.variance)


def _of_rows(likelihood: Any, p: np.ndarray, y: np.ndarray, P: int) -> LatentStart:
    """What labels y [N, 1] of the outputs p [N] say: as a column for each; an output without any is like the others."""
    seen = np.unique(p[np.isfinite(y[:, 0])])
    latent = likelihood.start(np.where(p[:, None] == seen[None], y, np.nan))
    centre, variance = np.full(P, np.nan), np.full(P, latent.variance.mean())
    centre[seen], variance[seen] = latent.centre, latent.variance
    return LatentStart(centre, variance, latent.own)


def _means(prior: Any, centre: np.ndarray) -> list[Start]:
    """Constant means: of the prior, and of independent functions their own. Derivatives have none."""
    if isinstance(prior, Derivative):
        return _means(prior.prior, centre.reshape(-1, prior.directions)[:, 0]) if prior.values else []
    own = prior.latents if isinstance(prior, Independent) and len(prior.latents) == len(centre) else ()
    targets = []
    for gp, c in [(prior, centre), *zip(own, centre, strict=False)]:
        mean = getattr(gp, "mean_function", None)
        if isinstance(mean, means.Constant):
            value = np.where(np.isfinite(c), c, mean.value) if mean.value.ndim else np.mean(c)
            targets += [Start(mean.value, value, False)] if np.isfinite(value).all() else []
    return targets


def _amplitudes(prior: Any, x: Array, variance: np.ndarray) -> list[Start]:
    """Factors that bring the prior variance at x to that of the functions behind the labels."""
    present = np.asarray(_prior_variances(prior, x), float).mean(axis=0)
    own = isinstance(prior, Independent) and len(prior.latents) == len(variance)
    wanted = variance if own else [variance.mean()] * len(prior.kernels)
    found = present if own else [present.mean()] * len(prior.kernels)
    targets = []
    for kernel, target, now in zip(prior.kernels, wanted, found, strict=True):
        if np.isfinite(target) and np.isfinite(now) and now > 0:
            factor = target / now
            far = bool(factor > FAR**2 or factor < FAR**-2)
            targets += [Start(leaf, np.asarray(leaf, float) * factor**power, far) for leaf, power in _sizes(kernel)]
    return targets


@default_jit  # one program to compile, not one for each operation
def _prior_variances(prior: AbstractPrior, x: Array) -> Array:
    return mix_variance(prior, prior.Kff_diag(x))


def _places(model: Any, data: Data) -> Array:
    """Inputs of the last layer: of the data, or about where its inducing points are, or the origin."""
    width = 0 if data.x is None else data.x.shape[1]
    if len(model.layers) == 1 and data.x is not None:
        return _some(data.x)
    for layer in model.layers[:-1]:
        width = layer.width(width)
    Z = getattr(model.layers[-1].features, "Z", None)
    return jnp.zeros((1, width), dtype_of(model)) if Z is None or Z.shape[1] != width else Z


def _some(x: Array) -> Array:
    """At most 256 rows, from all over x."""
    return own_array(np.asarray(x)[:: -(-len(x) // 256)], x.dtype)


def _sizes(kernel: Any) -> list[tuple[Array, float]]:
    """Parameters and powers: with each times c to its power, the kernel is c times what it was."""
    if isinstance(kernel, Sum | ChangePoint):
        parts = [_sizes(part) for part in kernel.kernels]
        return [pair for part in parts for pair in part] if all(parts) else []
    if isinstance(kernel, Product):
        parts = [_sizes(part) for part in kernel.kernels]
        times = Counter(id(leaf) for part in parts for leaf, _ in part)  # a factor that stands there twice
        return [(leaf, power / times[id(leaf)]) for leaf, power in next((part for part in parts if part), [])]
    if isinstance(kernel, Polynomial):
        return [(kernel.variance, 1.0 / kernel.degree), (kernel.offset, 1.0 / kernel.degree)]
    if isinstance(kernel, Periodic):
        return _sizes(kernel.base)
    inner = getattr(kernel, "kernel", None)
    if inner is not None:
        return _sizes(inner)
    leaf: Any = getattr(kernel, "variance", None)
    return [(leaf, 1.0)] if eqx.is_inexact_array(leaf) else []
