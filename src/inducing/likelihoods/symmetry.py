"""Starting values for likelihoods that give only their density: by shifts and changes of unit."""

import itertools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled
from inducing.likelihoods.starts import (
    NOISE_SHARE,
    LatentStart,
    log_labels,
    noise_start,
    start_of_noisy_labels,
    unknown_start,
)
from inducing.parameters import POSITIVE, dtype_of, parameters

if TYPE_CHECKING:
    from inducing.likelihoods.base import AbstractLikelihood

POWERS = (0, 1, 2, -1, -2)  # of the unit of y, in a parameter: unrelated, scale, variance, inverse scale, precision
MOST_PARAMETERS = 3  # with 3 positive parameters there are 5³ combinations of powers
CASES = 128  # the number of evaluations at a time, more than 5³ + 2 − 1. It is constant, so that there is one program
SHIFT, UNIT = 1.3, 2.7
# Near 0, where links such as softplus bend, and with residuals of very different sizes.
F = np.array([-1.1, -0.4, 0.0, 0.3, 0.6, 1.2, 0.1])
RESIDUAL = np.array([0.01, -0.3, 1.0, 0.0, -5.0, 2.2, 20.0])


def start_by_symmetry(likelihood: "AbstractLikelihood", y: np.ndarray) -> LatentStart:
    """What labels y say about the latents of a likelihood, as far as symmetries of its density tell.

    Let g(f, z; θ) be the log density of z given f, where z = y for labels on the real line and z = log y for positive
    labels. If a shift changes nothing,

        g(f + c, z + c; θ) = g(f, z; θ),

    then z is f plus noise, and the latents have the centre (less the mean of the noise) and the variance of z. If a
    change of unit can be compensated by positive parameters θ_j,

        g(c f, c z; c^p_j θ_j) = g(f, z; θ_j) − log c,    p_j ∈ {0, 1, 2, −1, −2},

    then θ_j is the scale of the noise (p = 1), its variance (2), an inverse scale (−1) or a precision (−2), and

        θ_j ← θ_j (σ/s)^p_j,    σ² = Var[z]/10,

    where s is the standard deviation of the noise under the present θ, an integral over z. If that is infinite, s is
    the geometric mean of θ_j^(1/p_j).

    Both equations are tested numerically at a few points. If the first fails, if an output depends on several latents,
    or if anything raises an exception, the answer is "unknown".

    Args:
        likelihood: a likelihood with one latent per output.
        y: labels [N, P], NaN where missing.

    Returns:
        The start of the latents and of the parameters that set the size of the noise.
    """
    unknown = unknown_start(likelihood.num_latents(y.shape[1]))
    kinds = {support.kind for support in likelihood.supports}
    if likelihood.joint or len(unknown.centre) != y.shape[1] or kinds not in ({"real"}, {"positive"}):
        return unknown
    try:
        return _start(likelihood, y, positive=kinds == {"positive"}) or unknown
    except Exception:  # a density that cannot be evaluated here says nothing; training will report its error
        return unknown


def _start(likelihood: "AbstractLikelihood", y: np.ndarray, *, positive: bool) -> LatentStart | None:
    """The start, or None if labels are not functions plus noise."""
    density = _Density(likelihood, y.shape[1], positive)
    powers = np.array(list(itertools.product(POWERS, repeat=len(density.leaves))))[1:]  # without zeros only
    powers = powers[np.argsort((powers != 0).sum(axis=1), kind="stable")]  # the simplest explanation first
    zero = np.zeros((1, len(density.leaves)))
    f, z = F, F + RESIDUAL
    cases = [(f, z), (f + SHIFT, z + SHIFT)] + [(UNIT * f, UNIT * z)] * len(powers)
    f, z = (np.stack(a)[..., None] for a in zip(*cases, strict=True))
    present, shifted, *scaled = density(f, z, np.concatenate([zero, zero, powers]))
    if not np.isfinite(present).all() or not density.equal(shifted, present):
        return None
    start = start_of_noisy_labels(log_labels(y) if positive else y)
    mean, variance = density.noise_moments()
    found = powers[[density.equal(log_density, present - np.log(UNIT)) for log_density in scaled]]
    if not len(found):
        return start._replace(centre=start.centre - mean)
    chosen = [(leaf, p) for leaf, p in zip(density.leaves, found[0], strict=True) if p]
    if not np.isfinite(variance).all():
        logs = sum(np.log(np.asarray(leaf, float)) * 2.0 / p for leaf, p in chosen) / len(chosen)
        variance = np.broadcast_to(np.exp(logs), y.shape[1:])
    return _rescaled(start, chosen, mean, variance)


def _rescaled(start: LatentStart, chosen: list, mean: np.ndarray, variance: np.ndarray) -> LatentStart:
    """The start with parameters under which the noise, of given mean and variance, is a tenth of Var[z]."""
    wanted = NOISE_SHARE * np.where(np.isfinite(start.variance), start.variance, 1.0)
    own = []
    for leaf, p in chosen:
        ratio = wanted / variance if leaf.size > 1 else wanted.mean() / variance.mean()
        own.append(noise_start(leaf, np.asarray(leaf, float) * ratio ** (0.5 * p), 0.5 * p))
    return LatentStart(start.centre - mean * np.sqrt(wanted / variance), start.variance, own)


class _Density:
    """g(f, z; θ) of a likelihood of P outputs, with the positive parameters `leaves` in any unit."""

    def __init__(self, likelihood: "AbstractLikelihood", num_outputs: int, positive: bool):
        # tied parameters count once; too many are not tried at all
        found = {id(leaf): leaf for _, leaf, constraint in parameters(likelihood) if constraint is POSITIVE}
        self.leaves = list(found.values()) if len(found) <= MOST_PARAMETERS else []
        self.likelihood, self.num_outputs, self.positive = likelihood, num_outputs, positive
        self.dtype = np.dtype(dtype_of(likelihood))
        slots = {id(leaf): i for i, leaf in enumerate(self.leaves)}
        self.where = jax.tree.map(lambda leaf: slots.get(id(leaf), -1), likelihood)

    def __call__(self, f: np.ndarray, z: np.ndarray, exponents: np.ndarray) -> np.ndarray:
        """g at f and z [K, n, P or 1], with the parameters times `UNIT` to the exponents [K, number of leaves]."""
        f, z = (np.broadcast_to(a, (*a.shape[:2], self.num_outputs)) for a in (f, z))
        y = np.exp(z) if self.positive else z
        more = [(0, CASES - len(f)), (0, 0), (0, 0)]
        arrays = (jnp.asarray(np.pad(a, more[: a.ndim], mode="edge"), self.dtype) for a in (f, y, exponents))
        out = compiled(_log_prob_in_units, once=True)(self.likelihood, self.where, *arrays)
        out = np.asarray(out, float)[: len(f)]
        return out + z if self.positive else out

    def equal(self, one: np.ndarray, other: np.ndarray) -> bool:
        tolerance = float(np.finfo(self.dtype).eps) ** 0.5
        return np.allclose(one, other, rtol=tolerance, atol=tolerance)

    def noise_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance [P] of z given f = 0: zero and ∞ if the variance is infinite.

        A trapezoid rule in log |z − c|, where c moves to the largest value of the density until that is resolved.
        """
        # z spans e⁻³⁰ to e³⁰; z = log y ends where y overflows.
        n = len(F)
        u = np.linspace(-30.0, 4.3 if self.positive else 30.0, CASES // 2 * n)
        size = np.exp(u)[:, None]
        offset = np.concatenate([-size, size])
        c = np.zeros(self.num_outputs)
        mean, variance = c, c
        for _ in range(5):
            z = (c + offset).reshape(-1, n, self.num_outputs)
            log_density = self(np.zeros_like(z), z, np.zeros((len(z), len(self.leaves))))
            log_mass = np.where(np.isnan(log_density), -np.inf, log_density).reshape(2, len(u), -1) + u[:, None]
            below, above = np.exp(log_mass - log_mass.max(axis=(0, 1)))
            total, square = (below + above).sum(axis=0), size**2 * (below + above)
            mean = (size * above).sum(axis=0) / total - (size * below).sum(axis=0) / total
            variance = square.sum(axis=0) / total - mean**2
            finite = (square[-1] < 1e-6 * square.sum(axis=0)) & (variance > 0)
            mean, variance = np.where(finite, c + mean, 0.0), np.where(finite, variance, np.inf)
            peak = offset[np.nanargmax(log_density.reshape(-1, self.num_outputs), axis=0), 0]
            if (np.abs(peak) <= 0.1 * np.sqrt(variance)).all():
                break
            c = c + peak
        return mean, variance


def _log_prob_in_units(likelihood: "AbstractLikelihood", where: Any, f: Array, y: Array, exponents: Array) -> Array:
    """log p(y | f) for f and y [K, n, P], with parameters times `UNIT` to the exponents [K, …].

    `where` has the structure of the likelihood and holds, for each leaf, its column in `exponents`, or −1.
    """

    def one(f: Array, y: Array, exponent: Array) -> Array:
        def in_unit(leaf: Any, column: int) -> Any:
            return leaf if column < 0 else leaf * UNIT ** exponent[column]

        return jax.tree.map(in_unit, likelihood, where).log_prob(f, y)

    return jax.vmap(one)(f, y, exponents)
