"""Contract checks of likelihoods."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import compiled
from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.supports import Support
from inducing.parameters import dtype_of
from inducing.testing.contract import (
    ERRORS,
    attempt,
    check_part,
    check_starts,
    fail,
    require,
    require_close,
    require_finite_gradients,
    require_float32,
    require_own_arrays,
    require_shape,
    weighted,
)


def check_likelihood(likelihood: AbstractLikelihood, y: Any = None, *, error: float = 1e-2) -> None:
    """Check that a likelihood keeps the contract of `ig.likelihoods.AbstractLikelihood`.

    The predictive density integrates (or sums) to one over the support; `expected_log_prob` and `predictive_log_prob`
    are the expectations of `log_prob`; predictive mean, variance, cdf and samples belong to that density; labels
    outside the support are refused; the answers about noise, classes and starting values are true. A likelihood without
    `distribution` may refuse moments, cdf and samples.

    Args:
        likelihood: the likelihood to check.
        y: labels [N, P] inside the support. By default, three rows that suit the support.
        error: the relative error that is allowed in expectations.

    Raises:
        AssertionError: if the likelihood breaks the contract.

    Examples:
        >>> import inducing as ig
        >>> ig.testing.check_likelihood(ig.likelihoods.StudentT(df=5.0, scale=0.5))
    """
    check_part(likelihood, AbstractLikelihood)
    dtype = dtype_of(likelihood)
    y = jnp.asarray(_labels(likelihood.supports) if y is None else y, dtype)
    _check_support(likelihood, np.asarray(y))
    (N, P), F = y.shape, likelihood.num_latents(y.shape[1])
    rng = np.random.default_rng(0)
    mean, var = (jnp.asarray(v, dtype) for v in (rng.uniform(-0.5, 0.5, (N, F)), rng.uniform(0.3, 0.6, (N, F))))
    log_prob = attempt(likelihood, "log_prob must run under jit", _log_prob, likelihood, mean, y)
    require_shape(likelihood, "log_prob(f, y)", log_prob, (N, P))
    z, w = _normal_nodes(likelihood.joint, F)
    f = mean[None] + jnp.sqrt(var)[None] * jnp.asarray(z, dtype)[:, None]
    each = np.asarray(jax.vmap(lambda f: compiled(_log_prob, True)(likelihood, f, y))(f))  # [nodes, N, P]
    expected = attempt(likelihood, "expected_log_prob must run under jit", _expected, likelihood, mean, var, y)
    density, at_labels = _densities(likelihood, mean, var, y)
    for contract, value, values in (
        ("expected_log_prob must be E log p(y | f)", expected, each),
        ("predictive_log_prob must be log E p(y | f)", at_labels, np.exp(each)),
    ):
        average = np.einsum("s,snp->np", w, values)
        spread = np.sqrt(np.einsum("s,snp->np", w, (values - average) ** 2) * np.sum(w**2))
        require_close(likelihood, contract, value, average, error, ERRORS * spread if likelihood.joint else 0.0)
    if not likelihood.joint:
        full = var[:, :, None] * jnp.eye(F, dtype=dtype)[None]
        contract = "without joint, only variances may matter, so that cov [N, F] and [N, F, F] give the same"
        require_close(likelihood, contract, compiled(_expected, True)(likelihood, mean, full, y), expected)
    require_finite_gradients(
        likelihood, "gradients of expected_log_prob", _likelihood_gradients, likelihood, mean, var, y
    )
    require_float32(likelihood, "log_prob", _log_prob, likelihood, mean, y)
    require_float32(likelihood, "expected_log_prob", _expected, likelihood, mean, var, y)
    _check_density(likelihood, mean, var, y, density, error)
    _check_answers(likelihood, mean, y, log_prob)


def _log_prob(likelihood: AbstractLikelihood, f: Array, y: Array) -> Array:
    return likelihood.log_prob(f, y)


def _expected(likelihood: AbstractLikelihood, mean: Array, cov: Array, y: Array) -> Array:
    return likelihood.expected_log_prob(mean, cov, y)


def _likelihood_gradients(likelihood: AbstractLikelihood, mean: Array, cov: Array, y: Array) -> Any:
    return eqx.filter_grad(lambda three: weighted(three[0].expected_log_prob(*three[1:], y)))((likelihood, mean, cov))


def _labels(supports: tuple[Support, ...]) -> np.ndarray:
    rows = {"real": [-1.0, 0.3, 2.0], "positive": [0.2, 1.0, 3.0], "unit": [0.1, 0.45, 0.9], "count": [0.0, 1.0, 2.0]}
    columns = [np.where(s.contains(np.array(rows[s.kind])), rows[s.kind], s.fill) for s in supports]
    return np.minimum(np.stack(columns, axis=1), [s.largest(None) for s in supports])


def _check_support(likelihood: AbstractLikelihood, y: np.ndarray) -> None:
    attempt(likelihood, "check must accept labels of the support", likelihood.check, y)
    fill = np.broadcast_to(likelihood.fill, y.shape)
    attempt(likelihood, "fill must lie inside the support", likelihood.check, fill)
    outside = {"real": np.inf, "positive": -1.0, "unit": 1.5, "count": 0.5}[likelihood.supports[0].kind]
    try:
        likelihood.check(np.where(np.arange(y.shape[1]) == 0, outside, y))
    except ValueError:
        return
    fail(likelihood, "check must refuse labels outside the support", f"it accepts {outside}")


def _normal_nodes(joint: bool, F: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [S, F] and weights of a standard normal: a fine grid for each latent by itself, else random ones."""
    if joint:
        return np.random.default_rng(1).normal(size=(4000, F)), np.full(4000, 1 / 4000)
    z = np.linspace(-8.0, 8.0, 801)
    w = np.exp(-0.5 * z**2)
    return np.repeat(z[:, None], F, axis=1), w / w.sum()


def _grid(support: Support) -> tuple[np.ndarray, np.ndarray]:
    """Labels across a support, and weights with which sums over them are integrals."""
    if support.kind == "count":
        labels = np.arange(200.0)
        keep = support.contains(labels) & (labels <= np.max(support.largest(None)))
        return labels[keep], np.ones(keep.sum())
    t = np.linspace(-30.0, 30.0, 601)
    y, slope = {
        "real": (np.sinh(t), np.cosh(t)),
        "positive": (np.exp(t), np.exp(t)),
        "unit": (1 / (1 + np.exp(-t)), 1 / (2 + 2 * np.cosh(t))),
    }[support.kind]
    return y, slope * (t[1] - t[0])


def _densities(likelihood: AbstractLikelihood, mean: Array, var: Array, y: Array) -> tuple[np.ndarray, np.ndarray]:
    """The predictive density across the support of each output [N, G, P], and at the labels [N, P]."""
    (N, P), fill = y.shape, np.broadcast_to(likelihood.fill, y.shape)
    grids = _grids(likelihood, P)
    G = max(len(labels) for labels, _ in grids)
    rows = np.repeat(fill[:, None], G + 1, axis=1)
    for p, (labels, _) in enumerate(grids):
        rows[:, : len(labels), p] = labels
    rows[:, G] = y
    many = [jnp.repeat(v, G + 1, axis=0) for v in (mean, var)]
    flat = jnp.asarray(rows.reshape(-1, P), y.dtype)
    log_density = attempt(likelihood, "predictive_log_prob must run under jit", _predictive, likelihood, *many, flat)
    require_shape(likelihood, "predictive_log_prob(mean, cov, y)", log_density, flat.shape)
    density = np.nan_to_num(np.exp(np.asarray(log_density, float))).reshape(N, G + 1, P)
    return density[:, :G], density[:, G]


def _grids(likelihood: AbstractLikelihood, P: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [_grid(s) for s in likelihood.supports * (P if len(likelihood.supports) == 1 else 1)]


def _check_density(
    likelihood: AbstractLikelihood, mean: Array, var: Array, y: Array, density: np.ndarray, error: float
) -> None:
    """Integrals of the predictive density over its support, against what the likelihood says about them."""
    try:
        stated = [np.asarray(v) for v in compiled(_stated, True)(likelihood, mean, var, y)]
    except NotImplementedError:
        stated = []  # there is only a log density
    for p, (labels, weights) in enumerate(_grids(likelihood, y.shape[1])):
        for n in range(len(y)):
            mass = density[n, : len(labels), p] * weights
            contract = "the predictive density must integrate to 1 over the support"
            require_close(likelihood, contract, np.sum(mass), 1.0, error)
            if stated:
                _check_stated(likelihood, labels, mass, [s[n, p] for s in stated], float(y[n, p]), error)
    if stated:
        _check_samples(likelihood, mean, var, y, stated[2])


def _predictive(likelihood: AbstractLikelihood, mean: Array, var: Array, y: Array) -> Array:
    return likelihood.predictive_log_prob(mean, var, y)


def _stated(likelihood: AbstractLikelihood, mean: Array, var: Array, y: Array) -> tuple[Array, ...]:
    return *likelihood.predictive_moments(mean, var), likelihood.predictive_cdf(mean, var, y)


def _check_stated(likelihood: Any, y: np.ndarray, mass: np.ndarray, stated: list, label: float, error: float) -> None:
    """Mean, variance and cdf; moments that do not exist, of distributions with heavy tails, are left out."""
    first = np.sum(y * mass)
    spread = np.sqrt(np.sum((y - first) ** 2 * mass))
    ends = np.abs(y[[0, -1]])
    if np.isfinite(stated[0]) and (ends * mass[[0, -1]]).max() < 1e-6:
        contract = "predictive_moments must give the mean of the label"
        require_close(likelihood, contract, stated[0], first, slack=3 * error * spread)
    if np.isfinite(stated[1]) and (ends**2 * mass[[0, -1]]).max() < 1e-6:
        contract = "predictive_moments must give the variance of the label"
        require_close(likelihood, contract, stated[1], spread**2, 3 * error)
    nearest = np.argsort(np.abs(y - label))[:2]
    counts = np.all(y == np.round(y))
    slack = error + (0.0 if counts else mass[nearest].max())  # the label lies between two nodes
    contract = "predictive_cdf(y) must be the probability of labels up to y"
    require_close(likelihood, contract, stated[2], np.sum(mass[y <= label]), slack=slack)


def _check_samples(likelihood: AbstractLikelihood, mean: Array, var: Array, y: Array, cdf: np.ndarray) -> None:
    samples = attempt(likelihood, "samples must be drawn", _label_samples, likelihood, mean, var, jit=False)
    require_shape(likelihood, "samples of labels", samples, (2000, *y.shape))
    attempt(likelihood, "samples must lie inside the support", likelihood.check, samples.reshape(-1, y.shape[1]))
    share = np.mean(samples <= np.asarray(y), axis=0)
    slack = ERRORS * np.sqrt(np.maximum(cdf * (1 - cdf), 1e-4) / len(samples))
    contract = "distribution must draw labels of the density, P(label ≤ y) = predictive_cdf(y)"
    require_close(likelihood, contract, share, cdf, slack=slack)


def _label_samples(likelihood: AbstractLikelihood, mean: Array, var: Array) -> np.ndarray:
    return np.asarray(likelihood.predictive(mean, var).sample(jax.random.key(0), 2000))


def _check_answers(likelihood: AbstractLikelihood, f: Array, y: Array, log_prob: Array) -> None:
    noise = likelihood.gaussian_noise(y.shape)
    if noise is not None:
        require_shape(likelihood, "gaussian_noise(shape)", noise, y.shape)
        normal = -0.5 * (jnp.log(2 * jnp.pi * noise) + (y - f) ** 2 / noise)
        contract = "gaussian_noise says that log_prob is that of Gaussian noise of this variance"
        require_close(likelihood, contract, log_prob, normal, 1e-6)
    shared = likelihood.shared_noise
    if shared is not None:
        require_own_arrays(likelihood, "shared_noise", [shared], likelihood)
        contract = "shared_noise must be gaussian_noise"
        require_close(likelihood, contract, jnp.broadcast_to(shared, y.shape), jnp.nan if noise is None else noise)
    count = likelihood.class_count()
    if count is not None:
        labels = jnp.arange(count, dtype=y.dtype)
        each = jax.vmap(lambda c: likelihood.log_prob(f, jnp.full_like(y, c)))(labels)
        contract = f"the probabilities of the {count} classes of class_count() must sum to 1"
        require_close(likelihood, contract, jnp.sum(jnp.exp(each), axis=0), jnp.ones_like(y), 1e-6)
        var = 0.5 * jnp.ones_like(f)
        each = jax.vmap(lambda c: likelihood.predictive_log_prob(f, var, jnp.full_like(y, c)), out_axes=-1)(labels)
        contract = "class_probabilities must be those of predictive_log_prob"
        require_close(likelihood, contract, likelihood.class_probabilities(f, var), jnp.exp(each), 1e-3)
    start = likelihood.start(np.asarray(y, float))
    for name in ("centre", "variance"):
        require_shape(likelihood, f"start(y).{name}", getattr(start, name), (f.shape[1],))
    negative = np.asarray(start.variance)[~(np.nan_to_num(start.variance) >= 0)]
    require(negative.size == 0, likelihood, "start(y).variance must not be negative", f"it holds {negative}")
    check_starts(likelihood, "start", start.own, likelihood)
