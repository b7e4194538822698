"""A likelihood of ordered classes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from inducing.likelihoods.base import AbstractLikelihood, broadcast, marginal_variance
from inducing.likelihoods.starts import LatentStart, unknown_start
from inducing.likelihoods.supports import Support, classes
from inducing.numerics.quadrature import expectation
from inducing.numerics.special import log_ndtr_difference, log_ndtr_narrow
from inducing.parameters import ordered, positive


class Ordinal(AbstractLikelihood):
    """Ordinal likelihood of K ordered classes, y ∈ {0, …, K − 1}.

        p(y = j | f) = Φ((a_j − f)/σ) − Φ((a_{j−1} − f)/σ),    a_{−1} = −∞, a_{K−1} = ∞

    A label says between which cutpoints f + N(0, σ²) lies. Predictions are therefore the same formula with σ² + cov in
    place of σ².

    Args:
        cutpoints: a, the K − 1 boundaries between the classes, in increasing order.
        sigma: σ, one number or one for each output [P].

    Raises:
        ValueError: if `cutpoints` is not an increasing vector.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> lik = ig.likelihoods.Ordinal(cutpoints=[-1.0, 1.0])
        >>> print(lik.predictive(jnp.zeros((1, 1)), jnp.zeros((1, 1))).probabilities.round(4))
        [[0.1587 0.6827 0.1587]]
    """

    cutpoints: Float[Array, "K"] = ordered()
    sigma: Float[Array, "*P"] = positive(1.0)
    joint = False

    def __check_init__(self):
        if self.cutpoints.ndim != 1 or not self.cutpoints.size:
            raise ValueError(
                f"Ordinal.cutpoints must be a vector of one number or more, got shape {list(self.cutpoints.shape)}."
            )

    @property
    def num_classes(self) -> int:
        """K, the number of cutpoints plus one."""
        return self.cutpoints.shape[-1] + 1

    @property
    def supports(self) -> tuple[Support, ...]:
        return (classes(self.num_classes),)

    def num_latents(self, num_outputs: int) -> int:
        return num_outputs

    def class_count(self) -> int:
        return self.num_classes

    def start(self, y: np.ndarray) -> LatentStart:
        return unknown_start(self.num_latents(y.shape[1]))

    def _edges(self, y: Array) -> tuple[Array, Array]:
        """The cutpoints below and above each label; the outermost ones replace −∞ and ∞."""
        last = self.num_classes - 2
        label = y.astype(int)
        return self.cutpoints[jnp.clip(label - 1, 0, last)], self.cutpoints[jnp.clip(label, 0, last)]

    def _log_cell(self, f: Array, sigma: Array, y: Array) -> Array:
        lower, upper = self._edges(y)
        lower = jnp.where(y <= 0, -jnp.inf, (lower - f) / sigma)
        upper = jnp.where(y >= self.num_classes - 1, jnp.inf, (upper - f) / sigma)
        return log_ndtr_difference(lower, upper)

    def _log_any_cell(self, f: Array, sigma: Array, y: Array) -> Array:
        """`_log_cell`, but exact also for cells so narrow that their probability is lost to rounding.

        It is slower, so training does without it.
        """
        lower, upper = self._edges(y)
        middle, width = (0.5 * (lower + upper) - f) / sigma, (upper - lower) / sigma
        small = (y > 0) & (y < self.num_classes - 1) & (width < 10 * float(jnp.finfo(f.dtype).eps) ** 0.5)
        narrow = small & (jnp.abs(middle * width) < 2)
        inside = log_ndtr_narrow(jnp.where(narrow, middle, 0.0), jnp.where(small, width, 1.0))
        return jnp.where(narrow, inside, self._log_cell(f, sigma, y))

    def log_prob(self, f, y, *, index=None):
        return self._log_any_cell(f, broadcast(self.sigma, f.shape, index, "sigma"), y)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        sigma = broadcast(self.sigma, mean.shape, index, "sigma")
        lower, upper = self._edges(y)
        width = jnp.maximum(sigma, 0.5 * (upper - lower))
        variance = marginal_variance(mean, cov)
        return expectation(lambda f: self._log_cell(f, sigma, y), mean, variance, 48, 0.5 * (lower + upper), width)

    def distribution(self, f, *, index=None):
        from numpyro.distributions import CategoricalProbs

        sigma = broadcast(self.sigma, f.shape, index, "sigma")
        labels = jnp.arange(self.num_classes, dtype=f.dtype)
        cells = jax.vmap(lambda j: self._log_any_cell(f, sigma, jnp.broadcast_to(j, f.shape)), out_axes=-1)(labels)
        return CategoricalProbs(jnp.exp(cells))

    def _total(self, mean: Array, cov: Array, index: Array | None) -> Array:
        return jnp.sqrt(broadcast(self.sigma, mean.shape, index, "sigma") ** 2 + marginal_variance(mean, cov))

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        return self._log_any_cell(mean, self._total(mean, cov, index), y)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        label = jnp.floor(y)
        _, upper = self._edges(jnp.clip(label, 0, self.num_classes - 1))
        inside = ndtr((upper - mean) / self._total(mean, cov, index))
        return jnp.where(label < 0, 0.0, jnp.where(label >= self.num_classes - 1, 1.0, inside))

    def predictive_moments(self, mean, cov, *, index=None):
        total = self._total(mean, cov, index)
        labels = jnp.arange(self.num_classes, dtype=mean.dtype)
        p = jnp.exp(jax.vmap(lambda j: self._log_any_cell(mean, total, jnp.broadcast_to(j, mean.shape)))(labels))
        first = jnp.tensordot(labels, p, axes=1)
        return first, jnp.sum(p * (labels[:, None, None] - first[None]) ** 2, axis=0)
