"""What labels say about the latent functions and the noise before training."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from inducing.parameters import FAR, Start

NOISE_SHARE = 0.1
"""The share of the labels' variance that is noise at the start."""


class LatentStart(NamedTuple):
    """What labels say about the F latent functions behind them before training.

    Attributes:
        centre: the mean of each latent function [F], NaN where the labels do not tell.
        variance: the variance of each latent function [F], NaN where the labels do not tell.
        own: starting values of the likelihood's own parameters.

    Examples:
        >>> import inducing as ig
        >>> centre, variance, own = ig.likelihoods.Gaussian().start(np.array([[0.0], [2.0]]))
        >>> centre.tolist(), variance.tolist(), float(own[0].value)
        ([1.0], [1.0], 0.1)
    """

    centre: np.ndarray
    variance: np.ndarray
    own: list[Start]


def unknown_start(num_latents: int) -> LatentStart:
    """The answer of a likelihood whose labels say nothing about the scale of its latent functions."""
    unknown = np.full(num_latents, np.nan)
    return LatentStart(unknown, unknown, [])


def start_of_noisy_labels(y: np.ndarray, noise: Any = None, power: float = 1.0) -> LatentStart:
    """The start for labels that are values of a function plus noise.

        centre = mean(y),    variance = var(y),    noise = (var(y)/10)ᵖ,    p = `power`

    Args:
        y: labels [N, P], NaN where missing.
        noise: the parameter that sets the size of the noise, if it is an array; anything else is ignored.
        power: the power of the noise variance that `noise` is: 1 for a variance, ½ for a scale.

    Returns:
        The start; columns without any label have an unknown centre and variance.
    """
    known = np.asarray(np.isfinite(y).any(axis=0))
    y = np.where(known[None], y, 0.0)
    centre, variance = np.nanmean(y, axis=0), np.nanvar(y, axis=0)
    same = variance <= (1e-13 * centre) ** 2  # a single label, or equal ones, still have a size
    variance = np.where(same, np.where(centre != 0, centre**2, 1.0), variance)
    own = []
    if eqx.is_array(noise):
        noise_variance = NOISE_SHARE * (variance if noise.size > 1 else variance.mean())
        own.append(noise_start(noise, noise_variance**power, power))
    return LatentStart(np.where(known, centre, np.nan), np.where(known, variance, np.nan), own)


def noise_start(leaf: Any, value: Any, power: float) -> Start:
    """The starting value of a parameter that is the noise variance to a `power`, and whether it is far from that.

    Noise may well be much smaller than a tenth of the variance, so small values are far off only beyond FAR⁻⁴.
    """
    ratio = (np.asarray(leaf, float) / value) ** (1.0 / power)
    return Start(leaf, value, bool((ratio > FAR**2).any() or (ratio < FAR**-4).any()))


def start_of_counts(y: np.ndarray, exposure: Any = 1.0) -> LatentStart:
    """The start for counts y [N, P] of mean exposure · e^f.

    If f is normal, log E[e^f] = centre + ½ log(1 + Var[e^f]/E[e^f]²), from which the mean and variance of y give the
    centre. The variance of f stays unknown: y does not say how much of its variance comes from f.
    """
    mean, variance, _ = start_of_noisy_labels(y)
    mean = np.where(mean > 0, mean, np.nan)
    return LatentStart(np.log(mean / exposure) - 0.5 * np.log1p(variance / mean**2), np.full_like(mean, np.nan), [])


def log_labels(y: np.ndarray) -> np.ndarray:
    """log y, with 0 as a missing label."""
    return np.log(np.where(y > 0, y, np.nan))
