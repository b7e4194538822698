"""A different likelihood for each output."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.gaussian import Gaussian
from inducing.likelihoods.supports import Support


class PerOutput(AbstractLikelihood):
    """Output p has the likelihood `likelihoods[p]`; the latents of the outputs stand one after the other.

    >>> import inducing as ig
    >>> lik = ig.likelihoods.PerOutput([ig.likelihoods.Gaussian(0.1), ig.likelihoods.Bernoulli()])
    >>> lik.num_latents(2)
    2
    """

    likelihoods: tuple[AbstractLikelihood, ...] = eqx.field(converter=tuple)

    def __init__(self, likelihoods: Sequence[AbstractLikelihood]):
        self.likelihoods = tuple(likelihoods)

    def __check_init__(self):
        if not self.likelihoods:
            raise ValueError("PerOutput.likelihoods must hold one likelihood per output, got none.")
        for part in self.likelihoods:
            if not isinstance(part, AbstractLikelihood):
                raise TypeError(f"PerOutput.likelihoods must be likelihoods of one output, got {type(part).__name__}.")

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

    def noise(self, shape: tuple[int, ...], index: Array | None = None) -> Float[Array, "..."]:
        """The noise variances as an array of `shape` [..., N, P], where all the likelihoods are Gaussian."""
        each = [lik.noise((*shape[:-1], 1), index) for lik in self.likelihoods if is_gaussian(lik)]
        return jnp.concatenate(each, axis=-1)

    def _slices(self) -> list[slice]:
        ends = [0]
        for lik in self.likelihoods:
            ends.append(ends[-1] + lik.num_latents(1))
        return [slice(a, b) for a, b in itertools.pairwise(ends)]

    def _gaussians(self, mean: Array, cov: Array) -> list[tuple[Array, Array]]:
        if cov.ndim == mean.ndim:
            return [(mean[..., s], cov[..., s]) for s in self._slices()]
        return [(mean[..., s], cov[..., s, s]) for s in self._slices()]

    def _columns(self, fn: Callable[..., Array], *lists: Sequence) -> Array:
        return jnp.concatenate([fn(*args) for args in zip(self.likelihoods, *lists, strict=True)], axis=-1)

    def _labels(self, y: Array) -> list[Array]:
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


def is_gaussian(likelihood: AbstractLikelihood) -> TypeGuard[Gaussian | PerOutput]:
    """Whether labels are functions and Gaussian noise, of a variance that `noise` knows.

    >>> import inducing as ig
    >>> is_gaussian(PerOutput([Gaussian(), Gaussian(0.1)])), is_gaussian(PerOutput([ig.likelihoods.Bernoulli()]))
    (True, False)
    """
    if isinstance(likelihood, PerOutput):
        return all(map(is_gaussian, likelihood.likelihoods))
    return isinstance(likelihood, Gaussian)


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
