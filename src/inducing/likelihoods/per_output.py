"""A likelihood for each output."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.predictive import Predictive
from inducing.likelihoods.starts import LatentStart
from inducing.likelihoods.supports import Support
from inducing.parameters import as_tuple


class PerOutput(AbstractLikelihood):
    """A different likelihood for each output.

        p(y | f) = Π_p p_p(y_p | f_p)

    The latents of the outputs are concatenated in the order of the outputs.

    Args:
        likelihoods: one likelihood for each output.

    Raises:
        ValueError: if there are none.
        TypeError: if one of them is not a likelihood.

    Examples:
        >>> import inducing as ig
        >>> lik = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(0.1), ig.likelihoods.Bernoulli()])
        >>> lik.num_latents(2)
        2
    """

    likelihoods: tuple[AbstractLikelihood, ...] = eqx.field(converter=as_tuple)

    def __init__(self, likelihoods: Sequence[AbstractLikelihood]):
        self.likelihoods = as_tuple(likelihoods)

    def __check_init__(self):
        if not self.likelihoods:
            raise ValueError("PerOutput.likelihoods must hold one likelihood per output, got none.")

    @property
    def joint(self) -> bool:
        """Whether any output depends on several latents."""
        return any(lik.joint for lik in self.likelihoods)

    @property
    def supports(self) -> tuple[Support, ...]:
        return tuple(lik.supports[0] for lik in self.likelihoods)

    def num_latents(self, num_outputs: int) -> int:
        if num_outputs != len(self.likelihoods):
            raise ValueError(
                f"PerOutput holds {len(self.likelihoods)} likelihoods, but there are {num_outputs} outputs; "
                "pass one likelihood per column of y."
            )
        return sum(lik.num_latents(1) for lik in self.likelihoods)

    def gaussian_noise(self, shape: tuple[int, ...], index: Array | None = None) -> Float[Array, "..."] | None:
        each = [noise for lik in self.likelihoods if (noise := lik.gaussian_noise((*shape[:-1], 1), index)) is not None]
        return jnp.concatenate(each, axis=-1) if len(each) == len(self.likelihoods) else None

    def start(self, y: np.ndarray) -> LatentStart:
        each = [lik.start(column) for lik, column in zip(self.likelihoods, self._labels(y), strict=True)]
        centres, variances, own = zip(*each, strict=True)
        return LatentStart(np.concatenate(centres), np.concatenate(variances), [s for part in own for s in part])

    def check_index(self, index: np.ndarray, seen: np.ndarray) -> None:
        for lik, column in zip(self.likelihoods, self._labels(seen), strict=True):
            lik.check_index(index, column)

    def _slices(self) -> list[slice]:
        ends = [0]
        for lik in self.likelihoods:
            ends.append(ends[-1] + lik.num_latents(1))
        return [slice(a, b) for a, b in itertools.pairwise(ends)]

    def _gaussians(self, mean: Array, cov: Array) -> list[tuple[Array, Array]]:
        if cov.ndim == mean.ndim:
            return [(mean[..., s], cov[..., s]) for s in self._slices()]
        return [(mean[..., s], cov[..., s, s]) for s in self._slices()]

    def each(self, pred: Predictive) -> list[Predictive]:
        """The predictions of each output by itself.

        Args:
            pred: predictions by this likelihood.

        Returns:
            A prediction for each output, with its own likelihood.
        """
        gaussians = self._gaussians(pred.latent_mean, pred.latent_cov)
        return [Predictive(lik, *q, pred.index) for lik, q in zip(self.likelihoods, gaussians, strict=True)]

    def _columns(self, fn: Callable[..., Array], *lists: Sequence) -> Array:
        return jnp.concatenate([fn(*args) for args in zip(self.likelihoods, *lists, strict=True)], axis=-1)

    def _labels(self, y: Any) -> list[Any]:
        return [y[..., p : p + 1] for p in range(len(self.likelihoods))]

    def log_prob(self, f, y, *, index=None):
        latents = [f[..., s] for s in self._slices()]
        return self._columns(lambda lik, f, y: lik.log_prob(f, y, index=index), latents, self._labels(y))

    def expected_log_prob(self, mean, cov, y, *, index=None):
        return self._columns(
            lambda lik, q, y: lik.expected_log_prob(*q, y, index=index), self._gaussians(mean, cov), self._labels(y)
        )

    def distribution(self, f, *, index=None):
        return _Outputs(
            [lik.distribution(f[..., s], index=index) for lik, s in zip(self.likelihoods, self._slices(), strict=True)]
        )

    def log_tails(self, f, y, *, index=None):
        return self._pairs(lambda lik, f, y: lik.log_tails(f, y, index=index), [f[..., s] for s in self._slices()], y)

    def focus(self, y, *, index=None):
        return self._pairs(lambda lik, y, _: lik.focus(y, index=index), self._labels(y), y)

    def _pairs(self, fn: Callable[..., tuple[Array, Array]], first: Sequence, y: Array) -> tuple[Array, Array]:
        each = [fn(*args) for args in zip(self.likelihoods, first, self._labels(y), strict=True)]
        return jnp.concatenate([a for a, _ in each], axis=-1), jnp.concatenate([b for _, b in each], axis=-1)

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        return self._columns(
            lambda lik, q, y: lik.predictive_log_prob(*q, y, index=index), self._gaussians(mean, cov), self._labels(y)
        )

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return self._columns(
            lambda lik, q, y: lik.predictive_cdf(*q, y, index=index), self._gaussians(mean, cov), self._labels(y)
        )

    def predictive_moments(self, mean, cov, *, index=None):
        each = [
            lik.predictive_moments(*q, index=index)
            for lik, q in zip(self.likelihoods, self._gaussians(mean, cov), strict=True)
        ]
        return jnp.concatenate([m for m, _ in each], axis=-1), jnp.concatenate([v for _, v in each], axis=-1)


class _Outputs:
    """Independent distributions side by side, each of batch shape [..., 1]."""

    def __init__(self, parts: list[Any]):
        self.parts = parts

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return (*self.parts[0].batch_shape[:-1], len(self.parts))

    @property
    def mean(self) -> Array:
        return jnp.concatenate([d.mean for d in self.parts], axis=-1)

    @property
    def variance(self) -> Array:
        return jnp.concatenate([d.variance for d in self.parts], axis=-1)

    def log_prob(self, y: Array) -> Array:
        return jnp.concatenate([d.log_prob(y[..., p : p + 1]) for p, d in enumerate(self.parts)], axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        keys = jax.random.split(key, len(self.parts))
        samples = [d.sample(k, sample_shape) for d, k in zip(self.parts, keys, strict=True)]
        dtype = jnp.result_type(*(s.dtype for s in samples))
        return jnp.concatenate([s.astype(dtype) for s in samples], axis=-1)
