"""Likelihoods of unordered classes, with one latent function for each class."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr, ndtri
from jaxtyping import Array, Float

from inducing.likelihoods.base import BEND, AbstractLikelihood
from inducing.likelihoods.gaussian import regress
from inducing.likelihoods.starts import LatentStart, unknown_start
from inducing.likelihoods.supports import Support, classes
from inducing.numerics.classes import expected_log_of_three, expected_logsumexp, prob_largest
from inducing.numerics.cubature import gaussian_nodes, matched_rule, qmc_rule, root
from inducing.numerics.quadrature import graded_nodes, log_expectation, tower_expectation
from inducing.numerics.special import log_sigmoid_tower, safe_sqrt
from inducing.parameters import MOST, UNIT_INTERVAL, as_whole, fixed

QMC_NODES = 1024  # for predictions
TRAINING_NODES = 128  # for the bound of independent latents: its cost is mostly theirs
THREE = 22  # in each dimension, for the bound of three classes
LARGEST, TRAINING_LARGEST = 80, 32  # nodes in one dimension, for predictions and for the bound


class AbstractCategorical(AbstractLikelihood):
    """A likelihood of one label in {0, …, C − 1} that depends on C latents."""

    num_classes: eqx.AbstractVar[int]
    joint = True

    def __check_init__(self):
        if not isinstance(self.num_classes, int) or not 2 <= self.num_classes <= MOST:
            raise ValueError(
                f"{type(self).__name__}.num_classes must be a whole number from 2 to {MOST}, got {self.num_classes!r}."
            )

    @property
    def supports(self) -> tuple[Support, ...]:
        return (classes(self.num_classes),)

    def num_latents(self, num_outputs: int) -> int:
        if num_outputs != 1:
            raise ValueError(
                f"{type(self).__name__} describes one column of class labels, got {num_outputs} outputs; "
                "pass labels 0, …, C − 1 in one column, or use PerOutput for several."
            )
        return self.num_classes

    def class_count(self) -> int:
        return self.num_classes

    def start(self, y: np.ndarray) -> LatentStart:
        return unknown_start(self.num_latents(y.shape[1]))

    def predictive_cdf(self, mean, cov, y, *, index=None):
        p = self.class_probabilities(mean, cov, index=index)[:, 0]
        labels = jnp.arange(self.num_classes, dtype=mean.dtype)[None]
        return jnp.minimum(jnp.sum(jnp.where(labels <= y, p, 0.0), axis=-1, keepdims=True), 1.0)

    def predictive_moments(self, mean, cov, *, index=None):
        p = self.class_probabilities(mean, cov, index=index)[:, 0]
        labels = jnp.arange(self.num_classes, dtype=mean.dtype)[None]
        first = jnp.sum(p * labels, axis=-1, keepdims=True)
        return first, jnp.sum(p * (labels - first) ** 2, axis=-1, keepdims=True)


def _others(y: Array, num: int) -> Array:
    """The indices [N, C − 1] of the classes other than y [N, 1]."""
    return (y.astype(int) + 1 + jnp.arange(num - 1)[None]) % num


def _margins(mean: Array, cov: Array, y: Array) -> tuple[Array, Array]:
    """Mean and covariance of the margins f_c − f_y of the other classes c, [N, C − 1] and [N, C − 1, C − 1]."""
    num = mean.shape[-1]
    own, others = y.astype(int), _others(y, num)
    margin = jnp.take_along_axis(mean, others, axis=1) - jnp.take_along_axis(mean, own, axis=1)
    if cov.ndim == mean.ndim:
        eye = jnp.eye(num - 1, dtype=mean.dtype)[None]
        spread = jnp.take_along_axis(cov, others, axis=1)[:, :, None] * eye
        return margin, spread + jnp.take_along_axis(cov, own, axis=1)[:, :, None]
    rows = jnp.take_along_axis(cov, others[:, :, None], axis=1)
    block = jnp.take_along_axis(rows, others[:, None, :], axis=2)
    cross = jnp.take_along_axis(rows, own[:, None, :], axis=2)
    corner = jnp.take_along_axis(jnp.take_along_axis(cov, own[:, :, None], axis=1), own[:, None, :], axis=2)
    return margin, block - cross - jnp.swapaxes(cross, 1, 2) + corner


class Softmax(AbstractCategorical):
    """Softmax likelihood of C classes, with labels 0, …, C − 1 in one column.

        p(y = c | f) = e^{f_c} / Σ_j e^{f_j}

    Only the C − 1 margins f_c − f_y matter. For two and three classes, rules in one and two dimensions average over
    them. For more classes the bound, E log p = E f_y − E log Σ_c e^{f_c}, averages over 128 fixed quasi-Monte Carlo
    nodes if latents are independent, in time proportional to C. It has no variance, but a bias: for latents with a
    standard deviation of 0.5, 1.5 and 5, the error of a datum is about 3e-4, 1e-2 and 0.07 nats (root mean square; four
    times that at most), and its mean over data 1e-4, 1e-3 and 0.007. Predictions, and bounds of correlated latents,
    take 1024 nodes, with an error of about 1e-3 (1e-2 for a standard deviation of 5).

    Args:
        num_classes: C, at least 2.

    Raises:
        ValueError: if `num_classes` is not a whole number of at least 2.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> lik = ig.likelihoods.Softmax(num_classes=3)
        >>> print(lik.predictive(jnp.zeros((1, 3)), jnp.ones((1, 3))).probabilities.round(4))
        [[0.3333 0.3333 0.3333]]
    """

    num_classes: int = eqx.field(static=True, converter=as_whole)

    def log_prob(self, f, y, *, index=None):
        return jnp.take_along_axis(jax.nn.log_softmax(f, axis=-1), y.astype(int), axis=-1)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import CategoricalLogits

        return CategoricalLogits(f[..., None, :])

    def expected_log_prob(self, mean, cov, y, *, index=None):
        if self.num_classes == 2:
            margin, spread = _margins(mean, cov, y)
            zero = jnp.zeros_like(margin)
            return tower_expectation(log_sigmoid_tower, -margin, spread[..., 0], 28, zero, BEND)
        if self.num_classes == 3:
            margin, spread = _margins(mean, cov, y)
            factor = root(spread).reshape(-1, 4)[:, np.array([0, 2, 3])]  # its lower triangle
            return -expected_log_of_three(margin, factor, THREE)
        own = jnp.arange(self.num_classes, dtype=y.dtype)[None, :] == y
        if cov.ndim == mean.ndim:
            expected = expected_logsumexp(mean, cov, TRAINING_NODES)
        else:
            nodes = gaussian_nodes(mean, cov, matched_rule(self.num_classes, QMC_NODES))
            expected = jnp.mean(logsumexp(nodes, axis=-1, keepdims=True), axis=0)
        return jnp.sum(jnp.where(own, mean, 0.0), axis=1, keepdims=True) - expected

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        if self.num_classes == 2:
            margin, spread = _margins(mean, cov, y)
            zero = jnp.zeros_like(margin)
            return log_expectation(jax.nn.log_sigmoid, -margin, spread[..., 0], 80, zero, zero + BEND)
        if self.num_classes == 3:
            return _log_first_of_three(*_margins(mean, cov, y))
        z, _ = qmc_rule(self.num_classes, QMC_NODES)
        logs = jax.vmap(lambda f: self.log_prob(f, y))(gaussian_nodes(mean, cov, z))
        return logsumexp(logs, axis=0) - math.log(QMC_NODES)

    def class_probabilities(self, mean, cov, *, index=None):
        if self.num_classes <= 3:
            return super().class_probabilities(mean, cov, index=index)
        z, _ = qmc_rule(self.num_classes, QMC_NODES)  # one pass for all classes
        return jnp.mean(jax.nn.softmax(gaussian_nodes(mean, cov, z), axis=-1), axis=0)[:, None]


def _log_first_of_three(margin: Array, cov: Array) -> Array:
    """log E[1 / (1 + e^a + e^b)] [N, 1] of two margins a, b [N, 2]: b given a, then a.

    A factor 1 / (1 + e^a), and σ(log(1 + e^a) − b), which steps down at b = log(1 + e^a): nodes gather there.
    """
    a, b = margin[:, :1], margin[:, 1:]
    variance_b = cov[:, 1:, 1]
    slope, rest = regress(variance_b, cov[:, :1, 0], cov[:, 1:, 0])
    step = jax.nn.softplus(b - 2 * safe_sqrt(variance_b))  # in a: at 0, unless b is greater for sure
    at_a, w_a = graded_nodes(a, cov[:, :1, 0], 32, step, jnp.full_like(a, BEND))
    edge = jax.nn.softplus(at_a)
    given_a = b[None] + slope[None] * (at_a - a[None]), jnp.broadcast_to(rest[None], at_a.shape)
    at_b, w_b = graded_nodes(*given_a, 32, edge, jnp.full_like(at_a, BEND))
    inner = logsumexp(jax.nn.log_sigmoid(edge[None] - at_b), b=w_b, axis=0)
    return logsumexp(inner - edge, b=w_a, axis=0)


class RobustMax(AbstractCategorical):
    """Robust-max likelihood of C classes, which tolerates mislabelled data.

        p(y = c | f) = 1 − ε if c = argmax f, else ε/(C − 1),    ε = `epsilon`
        E log p(y | f) = P log(1 − ε) + (1 − P) log(ε/(C − 1)),    P = P(f_y is the largest)

    For independent latents P is a one-dimensional integral of a product of normal cdfs, in time proportional to C: the
    bound takes 32 nodes, with an error of P of at most 2e-5, predictions 80. For correlated latents it is
    computed by quasi-Monte Carlo.

    Args:
        num_classes: C, at least 2.
        epsilon: ε in (0, 1), the probability of a wrong label. It is not trained.

    Raises:
        ValueError: if `num_classes` is not a whole number of at least 2.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> lik = ig.likelihoods.RobustMax(num_classes=4)
        >>> print(lik.predictive(jnp.zeros((1, 4)), jnp.ones((1, 4))).probabilities.round(4))
        [[0.25 0.25 0.25 0.25]]
    """

    num_classes: int = eqx.field(static=True, converter=as_whole)
    epsilon: Float[Array, ""] = fixed(1e-3, UNIT_INTERVAL)

    def _log_hit(self) -> tuple[Array, Array]:
        return jnp.log1p(-self.epsilon), jnp.log(self.epsilon / (self.num_classes - 1))

    def log_prob(self, f, y, *, index=None):
        hit = jnp.argmax(f, axis=-1, keepdims=True) == y.astype(int)
        return jnp.where(hit, *self._log_hit())

    def distribution(self, f, *, index=None):
        from numpyro.distributions import CategoricalProbs

        best = jax.nn.one_hot(jnp.argmax(f, axis=-1), self.num_classes, dtype=f.dtype)[..., None, :]
        return CategoricalProbs(best * (1 - self.epsilon) + (1 - best) * (self.epsilon / (self.num_classes - 1)))

    def prob_largest(
        self, mean: Float[Array, "N C"], cov: Float[Array, "N C ..."], y: Float[Array, "N 1"]
    ) -> Float[Array, "N 1"]:
        """P(f_y > f_c for all c ≠ y) under f ~ N(mean, cov).

        Args:
            mean: means of the latents [N, C].
            cov: their variances [N, C] or covariances [N, C, C].
            y: labels [N, 1].

        Returns:
            Probabilities [N, 1].
        """
        if cov.ndim == mean.ndim:
            return prob_largest(mean, cov, y, LARGEST)
        return _largest_correlated(*_margins(mean, cov, y))

    def expected_log_prob(self, mean, cov, y, *, index=None):
        independent = cov.ndim == mean.ndim
        P = prob_largest(mean, cov, y, TRAINING_LARGEST) if independent else self.prob_largest(mean, cov, y)
        hit, miss = self._log_hit()
        return P * hit + (1 - P) * miss

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        P = self.prob_largest(mean, cov, y)
        return jnp.log(P * (1 - self.epsilon) + (1 - P) * (self.epsilon / (self.num_classes - 1)))


def _largest_correlated(margin: Array, cov: Array) -> Array:
    """P(all margins < 0) by Genz's method: one margin after the other, each sampled below 0 given those before."""
    factor = root(cov)
    dim = margin.shape[-1]
    nodes, weights = qmc_rule(max(dim - 1, 1), QMC_NODES)
    u = ndtr(jnp.asarray(nodes, margin.dtype))
    log_p = jnp.zeros((u.shape[0], margin.shape[0]), margin.dtype)
    tiny = jnp.finfo(margin.dtype).eps
    z: list[Array] = []
    for i in range(dim):
        shift = jnp.broadcast_to(margin[None, :, i], log_p.shape)
        for j, previous in enumerate(z):
            shift = shift + factor[None, :, i, j] * previous
        scale = factor[None, :, i, i]
        free = scale > 0
        ratio = -shift / jnp.where(free, scale, 1.0)
        p = jnp.where(free, ndtr(ratio), jnp.where(shift < 0, 1.0, 0.0))
        log_p = log_p + jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
        if i < dim - 1:
            z.append(ndtri(jnp.clip(p * u[:, i, None], tiny, 1 - tiny)))
    return jnp.tensordot(jnp.asarray(weights, margin.dtype), jnp.exp(log_p), axes=1)[:, None]
