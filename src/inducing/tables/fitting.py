"""The model of a table: its kernel, its likelihood and its training."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from inducing import kernels, likelihoods
from inducing.data import Data
from inducing.features import InducingPoints
from inducing.kernels import AbstractKernel, ActiveDims, Warped
from inducing.layers import SparseGP
from inducing.likelihoods import AbstractLikelihood, PerOutput
from inducing.means import Constant
from inducing.model import Model
from inducing.priors import LMC
from inducing.tables.encoder import Encoder
from inducing.tables.targets import Target
from inducing.training.automatic import train
from inducing.training.fit import FitResult
from inducing.training.grow import grow

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
EMBEDDING = 2  # numbers that stand for a category of a column that has many


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        kernel: a key of `KERNELS`.
        noise: a key of `NOISES`; only for a single target of numbers.
        num_layers: the number of GP layers.
        seconds: the time after which to stop; None for no limit.
        seed: the seed of all random choices.
    """

    kernel: str = "matern52"
    noise: str = "constant"
    num_layers: int = 1
    seconds: int | float | None = None
    seed: int = 0

    def __post_init__(self):
        for name, value, known in (("kernel", self.kernel, KERNELS), ("noise", self.noise, NOISES)):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds must be more than 0, got {self.seconds}.")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be 0 or more and below 2^63, got {self.seed}.")


def kernel_of(name: str, encoder: Encoder, key: Any) -> AbstractKernel:
    """A kernel of the encoded columns, with one lengthscale per column.

        k(x, x') = k_0(x_0, x_0') Π_c k_c(E_c h_c, E_c h_c')

    k_0 sees the numbers. h_c are the columns of 0 and 1 of a column with many categories, and the trained matrix E_c
    gives each category two numbers, so that similar categories come to lie close to each other.

    Args:
        name: a key of `KERNELS`.
        encoder: the columns.
        key: a random key, for the first values of E_c.

    Returns:
        The kernel.
    """
    blocks = encoder.many_valued
    if not blocks:
        return KERNELS[name](jnp.ones(len(encoder.names)))
    rest = tuple(sorted(set(range(len(encoder.names))) - {i for block in blocks for i in block}))
    parts: list[AbstractKernel] = [ActiveDims(KERNELS[name](jnp.ones(len(rest))), rest)] if rest else []
    for block, own in zip(blocks, jax.random.split(key, len(blocks)), strict=True):
        embedding = eqx.nn.Linear(len(block), EMBEDDING, use_bias=False, key=own)
        start = jax.random.normal(own, embedding.weight.shape)
        embedding = eqx.tree_at(lambda linear: linear.weight, embedding, start)
        parts.append(ActiveDims(Warped(KERNELS[name](jnp.ones(EMBEDDING)), embedding), block))
    kernel = parts[0]
    for part in parts[1:]:
        kernel = kernel * part
    return kernel


def likelihood_of(targets: Sequence[Target], Y: np.ndarray, settings: Settings) -> AbstractLikelihood:
    """The likelihood of the targets.

    Args:
        targets: what each column of Y is.
        Y: labels [N, P].
        settings: how to train.

    Returns:
        One likelihood for all targets.

    Raises:
        ValueError: if noise was chosen for other targets than a single one of numbers.
    """
    if settings.noise != "constant":
        if len(targets) > 1 or targets[0].kind != "number":
            raise ValueError(f"noise={settings.noise!r} is for a single target of numbers; leave it out.")
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
    """Train a model of encoded rows; several targets are mixtures of latent functions that they share.

    Args:
        encoder: the columns.
        targets: what each column of the labels is.
        data: inputs and labels.
        settings: how to train.
        seconds: the time after which to stop.
        progress: whether to show progress, or its label.

    Returns:
        The `FitResult`.
    """
    assert data.y is not None and data.x is not None
    key = jax.random.key(settings.seed)
    kernel = kernel_of(settings.kernel, encoder, jax.random.fold_in(key, 1))
    likelihood = likelihood_of(targets, np.asarray(data.y), settings)
    options: dict[str, Any] = {"seconds": seconds, "progress": progress, "key": key}
    if len(targets) == 1:
        return train(data, likelihood, kernel=kernel, **options)
    if settings.num_layers > 1:
        raise ValueError("several targets have one layer; leave num_layers out, or choose one target.")
    L = likelihood.num_latents(len(targets))
    mixing = jnp.eye(L) + 0.1 * jax.random.normal(jax.random.fold_in(key, 2), (L, L))
    copies = [jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, kernel) for _ in range(L)]
    prior = LMC(mixing, copies, Constant(jnp.zeros(L)))
    return grow(Model(SparseGP(prior, InducingPoints(data.x[:1])), likelihood), data, **options)
