"""The model of a table: kernel, likelihood and training."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from inducing import kernels, likelihoods
from inducing.bounds.conjugate import conjugate_layer
from inducing.checks import check_seeds, checked_data
from inducing.data import Data
from inducing.declared import shown
from inducing.features import InducingPoints
from inducing.kernels import AbstractKernel, ActiveDims, Warped
from inducing.layers import SparseGP
from inducing.likelihoods import AbstractLikelihood, PerOutput
from inducing.means import Constant
from inducing.model import Model
from inducing.priors import LMC
from inducing.tables.encoder import Encoder
from inducing.tables.targets import Target
from inducing.training.arguments import check_seconds
from inducing.training.automatic import train
from inducing.training.deep_gp import check_num_layers, deep_gp
from inducing.training.fit import FitResult, fit
from inducing.training.grow import Job, Timer, grow, grow_from, options_of_steps
from inducing.training.monitor import History

KERNELS: dict[str, Any] = {
    "matern52": kernels.Matern52,
    "matern32": kernels.Matern32,
    "matern12": kernels.Matern12,
    "squared-exponential": kernels.SquaredExponential,
    "rational-quadratic": kernels.RationalQuadratic,
}
NOISES: dict[str, Any] = {
    "constant": likelihoods.Gaussian,
    "varying": likelihoods.HeteroscedasticGaussian,
    "outliers": likelihoods.StudentT,
}
DEEP_POINTS = 100  # inducing points of each layer of a deep GP
EMBEDDING = 2  # the dimension of the embedding of columns with many categories


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of training.

    Args:
        kernel: a key of `KERNELS`; None for the default.
        noise: a key of `NOISES`; only for a single target of numbers.
        num_layers: the number of GP layers.
        seconds: the time limit; None for no limit.
        seed: the seed of all random choices.
    """

    kernel: str | None = None
    noise: str = "constant"
    num_layers: int = 1
    seconds: int | float | None = None
    seed: int = 0

    def __post_init__(self):
        for name, value, known in (("kernel", self.kernel, KERNELS), ("noise", self.noise, NOISES)):
            if not isinstance(value, str) or value not in known:
                if name == "kernel" and value is None:
                    continue
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {shown(value)}.")
        check_num_layers(self.num_layers)
        check_seconds(self.seconds)
        check_seeds(seed=self.seed)


def kernel_of(name: str | None, encoder: Encoder, key: Any) -> AbstractKernel | None:
    """A kernel of the encoded columns, with one lengthscale per column.

        k(x, x') = k_0(x_0, x_0') Π_c k_c(E_c h_c, E_c h_c')

    h_c is the one-hot encoding of a column c with many frequent categories. E_c is a trained matrix that embeds each
    category in the plane, so that similar categories are close to each other. k_0 is a kernel of all other columns.

    Args:
        name: a key of `KERNELS`; None for the default.
        encoder: the encoding of the columns.
        key: a random key for the initial values of E_c.

    Returns:
        The kernel; None if no kernel was named and no column has an embedding.
    """
    blocks = encoder.embedded
    if not blocks:
        return None if name is None else KERNELS[name](jnp.ones(len(encoder.names)))
    kind = KERNELS[name or "matern52"]
    rest = tuple(sorted(set(range(len(encoder.names))) - {i for block in blocks for i in block}))
    parts: list[AbstractKernel] = [ActiveDims(kind(jnp.ones(len(rest))), rest)] if rest else []
    for block, own in zip(blocks, jax.random.split(key, len(blocks)), strict=True):
        embedding = eqx.nn.Linear(len(block), EMBEDDING, use_bias=False, key=own)
        start = jax.random.normal(own, embedding.weight.shape)
        embedding = eqx.tree_at(lambda linear: linear.weight, embedding, start)
        parts.append(ActiveDims(Warped(kind(jnp.ones(EMBEDDING)), embedding), block))
    kernel = parts[0]
    for part in parts[1:]:
        kernel = kernel * part
    return kernel


def likelihood_of(targets: Sequence[Target], Y: np.ndarray, settings: Settings) -> AbstractLikelihood:
    """The likelihood of the targets.

    Args:
        targets: the target of each column of Y.
        Y: labels [N, P].
        settings: settings of training.

    Returns:
        One likelihood for all targets.

    Raises:
        ValueError: if the settings need a single target, or a target of numbers.
    """
    if len(targets) > 1 and settings.num_layers > 1:
        raise ValueError("several targets need num_layers=1; leave num_layers out, or choose one target.")
    if settings.noise != "constant":
        if len(targets) > 1 or targets[0].kind != "number":
            raise ValueError(f"noise={settings.noise!r} is for a single target of numbers; leave noise out.")
        return NOISES[settings.noise]()
    each = [target.likelihood(Y[:, p]) for p, target in enumerate(targets)]
    return each[0] if len(each) == 1 else PerOutput(each)


def train_model(
    encoder: Encoder,
    targets: Sequence[Target],
    data: Data,
    settings: Settings,
    seconds: int | float | None,
    progress: bool | str,
) -> FitResult:
    """Train a model of encoded rows. Several targets are linear combinations of shared latent functions.

    Args:
        encoder: the encoding of the columns.
        targets: the target of each column of the labels.
        data: inputs and labels.
        settings: settings of training.
        seconds: the time limit.
        progress: whether to show progress, or the label of the progress bar.

    Returns:
        The `FitResult`.
    """
    assert data.y is not None and data.x is not None
    key = jax.random.key(settings.seed)
    kernel = kernel_of(settings.kernel, encoder, jax.random.fold_in(key, 1))
    likelihood = likelihood_of(targets, np.asarray(data.y), settings)
    options: dict[str, Any] = {"seconds": seconds, "progress": progress, "key": key}
    if len(targets) == 1 and settings.num_layers == 1:
        return train(data, likelihood, kernel=kernel, **options)
    if len(targets) == 1:
        return fit(_deep(data.x, likelihood, settings), data, **options)
    L = likelihood.num_latents(len(targets))
    mixing = jnp.eye(L) + 0.1 * jax.random.normal(jax.random.fold_in(key, 2), (L, L))
    shared = KERNELS["matern52"](jnp.ones(len(encoder.names))) if kernel is None else kernel
    copies = [jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, shared) for _ in range(L)]
    prior = LMC(mixing, copies, Constant(jnp.zeros(L)))
    return grow(Model(SparseGP(prior, InducingPoints(data.x[:1])), likelihood), data, **options)


def train_further(model: Model, data: Data, settings: Settings, seconds: Any, progress: bool | str) -> FitResult:
    """Train a model further, on all rows. An exact GP gets an inducing point at each of them.

    Args:
        model: a model that was trained on most of the rows.
        data: inputs and labels of all rows.
        settings: settings of training.
        seconds: the time limit.
        progress: whether to show progress, or the label of the progress bar.

    Returns:
        The `FitResult`.
    """
    layer, key = conjugate_layer(model), jax.random.key(settings.seed)
    job = Job(checked_data(model, data, every_output=True), Timer(seconds), progress, key)
    if layer is not None and layer.num_features > len(data) // 2:
        none = np.zeros(0)
        first = FitResult(model, History(none, none, none), "", "", float("nan"))
        return grow_from(job, model, first, seen=False)
    options = options_of_steps(job, model.likelihood) if len(model.layers) == 1 else {}
    return job.fit(model, job.data, "all rows", initialise=False, **options)


def _deep(X: Any, likelihood: AbstractLikelihood, settings: Settings) -> Model:
    """A deep GP of encoded rows."""
    kind = None if settings.kernel is None else KERNELS[settings.kernel]
    own = None if kind is None else lambda D: kind(jnp.ones(D))
    distinct = len(np.unique(np.asarray(X), axis=0))
    return deep_gp(X, likelihood, num_layers=settings.num_layers, num_inducing=min(DEEP_POINTS, distinct), kernel=own)
