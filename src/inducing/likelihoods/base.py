"""The abstract classes of likelihoods: p(y | f) with its expectations under Gaussian f."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from inducing.likelihoods.predictive import Predictive
from inducing.likelihoods.sampling import lenient
from inducing.likelihoods.starts import LatentStart
from inducing.likelihoods.supports import REAL, Support, check_support
from inducing.likelihoods.symmetry import start_by_symmetry
from inducing.numerics.quadrature import expectation, graded_nodes, log_expectation
from inducing.numerics.roots import peak_of
from inducing.parameters import Module, fixed, question

PREDICTIVE_NODES = 80
BEND = 1.5  # the width in f, around 0, within which links and their logarithms are curved


class PerDatum(Module):
    """A known quantity of each datum: noise variances, exposures or numbers of trials. It is not trained.

    Args:
        values: the quantity of each training datum, [N] or [N, P], addressed by `Data.index`.
        new: its value for data without an index, such as predictions at new inputs.

    Raises:
        ValueError: if a value is negative or not finite.

    Examples:
        >>> import inducing as ig
        >>> lik = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum([0.1, 0.2, 0.3], new=0.0))  # predicts noise-free
        >>> lik.gaussian_noise((2, 1), jnp.array([2, 0])).tolist(), lik.gaussian_noise((1, 1)).tolist()
        ([[0.3], [0.1]], [[0.0]])
    """

    values: Float[Array, "N *P"] = fixed()
    new: Float[Array, ""] = fixed()

    def __check_init__(self):
        if self.values.ndim not in (1, 2) or not self.values.size:
            raise ValueError(f"PerDatum.values must have shape [N] or [N, P], got {list(self.values.shape)}.")
        for name, value in (("values", self.values), ("new", self.new)):
            if eqx.is_array(value) and not isinstance(value, jax.core.Tracer):
                value = np.asarray(value)
                if not (np.isfinite(value).all() and (value >= 0).all()):
                    bad = value[~(np.isfinite(value) & (value >= 0))].reshape(-1)[0]
                    raise ValueError(f"PerDatum.{name} must be at least 0, got {bad.item()}; pass finite numbers.")


def broadcast(parameter: Any, shape: tuple[int, ...], index: Array | None, name: str = "a parameter") -> Array:
    """Broadcast a parameter, which is a scalar, [P] or `PerDatum`, to the shape [..., N, P]."""
    if isinstance(parameter, PerDatum):
        if index is None:
            parameter = parameter.new
        else:
            parameter = parameter.values[index]
            parameter = parameter[:, None] if parameter.ndim == 1 else parameter
    if parameter.ndim and parameter.shape[-1] not in (1, shape[-1]):
        raise ValueError(
            f"{name} of the likelihood has {parameter.shape[-1]} values, but the number of outputs is {shape[-1]}; "
            "pass one number for all outputs or one for each, and wrap values of single data in PerDatum."
        )
    return jnp.broadcast_to(parameter, shape)


def marginal_variance(mean: Array, cov: Array) -> Array:
    """The variances [..., F] of a covariance given as [..., F] or [..., F, F]."""
    return cov if cov.ndim == mean.ndim else jnp.diagonal(cov, axis1=-2, axis2=-1)


class AbstractLikelihood(Module):
    """The distribution p(y | f) of the P outputs y of a datum given its F latent values f.

    Shapes are the same in all methods: y is [N, P]; f and mean are [N, F] with F = `num_latents(P)`; cov is [N, F]
    (variances) or [N, F, F] (covariances). `index` [N] addresses `PerDatum` parameters.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> lik, zero = ig.likelihoods.Softmax(3), jnp.zeros((1, 3))
        >>> lik.num_latents(1), lik.joint
        (3, True)
        >>> print(lik.predictive_log_prob(zero, zero, jnp.ones((1, 1))).round(4))         # log ⅓
        [[-1.0986]]
    """

    _such_as = "a likelihood, such as ig.likelihoods.Gaussian()"

    def __check_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if "constraint" in field.metadata and eqx.is_array(value) and (value.ndim > 1 or not value.size):
                raise ValueError(
                    f"{type(self).__name__}.{field.name} must be one number, or one for each output, got shape "
                    f"{list(value.shape)}; wrap values of single data in PerDatum."
                )

    @property
    @abc.abstractmethod
    def joint(self) -> bool:
        """Whether an output depends on several latents, so that their correlations matter."""

    @property
    @abc.abstractmethod
    def supports(self) -> tuple[Support, ...]:
        """The support of each output, or one for all."""

    @abc.abstractmethod
    def num_latents(self, num_outputs: int) -> int:
        """The number F of latent functions behind `num_outputs` outputs."""

    @abc.abstractmethod
    def log_prob(
        self, f: Float[Array, "N F"], y: Float[Array, "N P"], *, index: Int[Array, "N"] | None = None
    ) -> Float[Array, "N P"]:
        """log p(y | f) of each output.

        Args:
            f: latent values [N, F].
            y: labels [N, P].
            index: which data these are [N], for `PerDatum` parameters.

        Returns:
            Log densities, or log probabilities of discrete labels, [N, P].
        """

    @abc.abstractmethod
    def expected_log_prob(
        self,
        mean: Float[Array, "N F"],
        cov: Float[Array, "N F ..."],
        y: Float[Array, "N P"],
        *,
        index: Int[Array, "N"] | None = None,
    ) -> Float[Array, "N P"]:
        """E log p(y | f) of each output under f ~ N(mean, cov): the likelihood's term in the bound.

        Args:
            mean: means of the latents [N, F].
            cov: their variances [N, F] or covariances [N, F, F].
            y: labels [N, P].
            index: which data these are [N], for `PerDatum` parameters.

        Returns:
            Expectations [N, P].
        """

    @abc.abstractmethod
    def distribution(self, f: Float[Array, "... F"], *, index: Int[Array, "N"] | None = None) -> Any:
        """p(y | f) as a NumPyro distribution with batch shape [..., P].

        Args:
            f: latent values [..., F].
            index: which data these are [N], for `PerDatum` parameters.

        Returns:
            An object with `mean`, `variance`, `cdf`, `log_prob` and `sample`.
        """

    @abc.abstractmethod
    def predictive_log_prob(
        self,
        mean: Float[Array, "N F"],
        cov: Float[Array, "N F ..."],
        y: Float[Array, "N P"],
        *,
        index: Int[Array, "N"] | None = None,
    ) -> Float[Array, "N P"]:
        """log E p(y | f) of each output under f ~ N(mean, cov); arguments as of `expected_log_prob`."""

    @abc.abstractmethod
    def predictive_cdf(
        self,
        mean: Float[Array, "N F"],
        cov: Float[Array, "N F ..."],
        y: Float[Array, "N P"],
        *,
        index: Int[Array, "N"] | None = None,
    ) -> Float[Array, "N P"]:
        """P(label ≤ y) of each output under f ~ N(mean, cov); arguments as of `expected_log_prob`."""

    @abc.abstractmethod
    def predictive_moments(
        self, mean: Float[Array, "N F"], cov: Float[Array, "N F ..."], *, index: Int[Array, "N"] | None = None
    ) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Mean [N, P] and variance [N, P] of the labels under f ~ N(mean, cov)."""

    @question
    def log_tails(
        self, f: Float[Array, "N F"], y: Float[Array, "N P"], *, index: Int[Array, "N"] | None = None
    ) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """log P(label ≤ y | f) and log P(label > y | f), which `Censored` needs.

        By default they come from the cdf of `distribution`, and tails smaller than its rounding error count as that.

        Args:
            f: latent values [N, F].
            y: where to evaluate [N, P].
            index: which data these are [N], for `PerDatum` parameters.

        Raises:
            NotImplementedError: if there is no cdf.
        """
        with lenient():
            try:
                cdf = self.distribution(f, index=index).cdf(y).astype(f.dtype)
            except AttributeError as error:
                raise NotImplementedError(f"{type(self).__name__}.distribution has no cdf.") from error
        info = jnp.finfo(f.dtype)
        return jnp.log(jnp.maximum(cdf, info.tiny)), jnp.log(jnp.maximum(1 - cdf, info.eps))

    @question
    def focus(self, y: Float[Array, "N P"], *, index: Int[Array, "N"] | None = None) -> tuple[Array, Array]:
        """Where f ↦ p(y | f) has its peak or its bend, and the width of that: quadrature nodes are dense there.

        By default it is searched for. It is asked only if each output depends on one latent.

        Args:
            y: labels [N, P].
            index: which data these are [N], for `PerDatum` parameters.

        Returns:
            The place in f and the width, [N, P] each.
        """
        peak, width, falls = peak_of(lambda f: self.log_prob(f, y, index=index), y)
        return jnp.where(falls, peak, 0.0), jnp.where(falls, width, BEND)

    @question
    def class_count(self) -> int | None:
        """The number C of classes, if labels are the numbers 0, …, C − 1 of classes; else None."""
        return None

    @question
    def class_probabilities(
        self, mean: Float[Array, "N F"], cov: Float[Array, "N F ..."], *, index: Int[Array, "N"] | None = None
    ) -> Float[Array, "N P C"]:
        """The probability of each class under f ~ N(mean, cov), if there are classes; arguments as of
        `expected_log_prob`.

        By default it comes from `predictive_log_prob` of each class. Probabilities by quadrature sum to 1 only to about
        1e-5, so they are normalised.
        """
        num = self.class_count()
        assert num is not None
        outputs = 1 if self.joint else mean.shape[-1]
        labels = jnp.broadcast_to(jnp.arange(num, dtype=mean.dtype)[:, None, None], (num, mean.shape[0], outputs))
        logs = jax.vmap(lambda y: self.predictive_log_prob(mean, cov, y, index=index))(labels)
        p = jnp.moveaxis(jnp.exp(logs), 0, -1)
        return p / jnp.sum(p, axis=-1, keepdims=True)

    @property
    @question
    def adds_noise(self) -> bool:
        """Whether a label is its latent value plus noise, so that plots show both on one axis. If in doubt, no."""
        return False

    @question
    def gaussian_noise(self, shape: tuple[int, ...], index: Array | None = None) -> Float[Array, "..."] | None:
        """The noise variances, of `shape` [..., N, P], if y = f + ε with independent Gaussian ε; else None."""
        return None

    @property
    @question
    def shared_noise(self) -> Float[Array, ""] | None:
        """The noise variance, a parameter, if y = f + ε with Gaussian ε of one variance for all labels; else None."""
        return None

    @question
    def start(self, y: np.ndarray) -> LatentStart:
        """What labels say about the latents and about the likelihood's own parameters before training.

        The default tests numerically whether labels are functions plus noise, and which parameters set the size of the
        noise: see `start_by_symmetry`. If it cannot tell, it answers "unknown".

        Args:
            y: labels [N, P], NaN where missing.

        Returns:
            Centres and variances of the latents, NaN where unknown, and starting values of own parameters.
        """
        return start_by_symmetry(self, y)

    @question
    def check_index(self, index: np.ndarray, seen: np.ndarray) -> None:
        """Check that parameters with one value for each datum cover the given data.

        The default checks that every `PerDatum` parameter has a value for each index.

        Args:
            index: which data these are [N], numbers from 0.
            seen: which labels are present [N, P].

        Raises:
            ValueError: if the likelihood has no values for an index, or if they contradict the labels.
        """
        num = self.num_data()
        if num is not None and index.max() >= num:
            raise ValueError(
                f"the likelihood has PerDatum values for {num} data, but data.index reaches {index.max()}; pass one "
                "value for each datum."
            )

    def num_data(self) -> int | None:
        """The number of data for which there are `PerDatum` parameters; None without such parameters."""
        parts = jax.tree.leaves(self, is_leaf=lambda v: isinstance(v, PerDatum))
        return min((part.values.shape[0] for part in parts if isinstance(part, PerDatum)), default=None)

    def has_gaussian_noise(self, num_outputs: int) -> bool:
        """Whether `gaussian_noise` has an answer for `num_outputs` outputs; computes nothing."""
        return jax.eval_shape(lambda: self.gaussian_noise((1, num_outputs))) is not None

    @property
    @question
    def fill(self) -> float | np.ndarray:
        """A label inside the support that replaces missing ones: a number, or [1, P] if the outputs differ."""
        if len(self.supports) == 1:
            return self.supports[0].fill
        return np.array([[s.fill for s in self.supports]])

    @question
    def labelled(self, seen: np.ndarray) -> np.ndarray:
        """Which outputs [N, P] have a label, if `seen` says which columns of y are not missing."""
        return seen

    @question
    def check(self, y: Array | np.ndarray, *, index: Int[Array | np.ndarray, "N"] | None = None) -> None:
        """Check that labels lie inside the support.

        Args:
            y: labels [N, P], NaN where missing. Nothing is checked inside `jax.jit`.
            index: which data these are [N]. Without it, a label may be as large as that of any datum.

        Raises:
            ValueError: if a label that is not NaN lies outside the support.
        """
        if isinstance(y, jax.core.Tracer):
            return
        y = np.asarray(y)
        if len(self.supports) == 1:
            check_support(type(self).__name__, self.supports[0], y, index)
            return
        if y.ndim != 2 or y.shape[1] != len(self.supports):
            raise ValueError(
                f"{type(self).__name__} describes {len(self.supports)} outputs, got y of shape {y.shape}; "
                "pass one column of labels per likelihood."
            )
        for p, support in enumerate(self.supports):
            check_support(f"{type(self).__name__}, output {p},", support, y[:, p : p + 1], index)

    def predictive(
        self, mean: Float[Array, "*S N F"], cov: Float[Array, "..."], *, index: Int[Array, "N"] | None = None
    ) -> Predictive:
        """The predictive distribution p(y) = E p(y | f) under f ~ N(mean, cov).

        Args:
            mean: means of the latents [N, F], or [S, N, F] for an equal mixture of S Gaussians.
            cov: their variances or covariances, [..., F] or [..., F, F].
            index: which data these are [N], for `PerDatum` parameters.

        Returns:
            The distribution of the labels.
        """
        return Predictive(self, mean, cov, index)


class AbstractElementwise(AbstractLikelihood):
    """A likelihood in which output p depends on latent p alone.

    Its predictive log density is computed by quadrature.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> print(ig.likelihoods.Poisson().focus(jnp.array([[3.0]])))                     # log 3½, and 1/√(3 + 1)
        (Array([[1.25276297]], dtype=float64), Array([[0.5]], dtype=float64))
    """

    joint = False

    def num_latents(self, num_outputs: int) -> int:
        return num_outputs

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        def log_prob(f: Array) -> Array:
            return self.log_prob(f, y, index=index)

        focus = self.focus(y, index=index)
        return log_expectation(log_prob, mean, marginal_variance(mean, cov), PREDICTIVE_NODES, *focus)


class AbstractQuadratureLikelihood(AbstractElementwise):
    """The base class for a likelihood of your own: define `log_prob`, and quadrature computes the expectations.

    Output p depends on latent p alone. Training and the predictive log density need only `log_prob`. For predictive
    moments, quantiles and samples, also define `distribution`. Quadrature finds the peak of f ↦ p(y | f), which may be
    much narrower than q(f), or far from it.

    Attributes:
        num_nodes: the number of quadrature nodes in training, a class attribute.
        support: the values that labels may take, a class attribute: REAL by default, or COUNT, POSITIVE, NONNEGATIVE
            or UNIT of `inducing.likelihoods.supports`.

    Examples:
        >>> import inducing as ig, jax.numpy as jnp
        >>> class Cauchy(ig.likelihoods.AbstractQuadratureLikelihood):
        ...     def log_prob(self, f, y, *, index=None):
        ...         return -jnp.log(jnp.pi * (1 + (y - f) ** 2))
        >>> zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
        >>> print(Cauchy().expected_log_prob(zero, one, zero).round(4))
        [[-1.6782]]
    """

    num_nodes: ClassVar[int] = 64
    support: ClassVar[Support] = REAL

    def __check_init__(self):
        name = type(self).__name__
        if self.num_latents(1) != 1:
            raise TypeError(
                f"{name} has {self.num_latents(1)} latents for one output, but AbstractQuadratureLikelihood integrates "
                f"over one; derive {name} from AbstractLikelihood, as HeteroscedasticGaussian is."
            )

    @property
    def supports(self) -> tuple[Support, ...]:
        return (self.support,)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        focus = self.focus(y, index=index)
        return quadrature_expected_log_prob(self, mean, cov, y, index, self.num_nodes, *focus)

    @question
    def distribution(self, f, *, index=None):
        name = type(self).__name__
        raise NotImplementedError(
            f"{name} gives only `log_prob`, so its predictions have a log density but no moments, quantiles or "
            f"samples; define `{name}.distribution(self, f, *, index=None)`, such as a NumPyro distribution."
        )

    def _ask(self, what: str, ask: Callable[[Any], Any], f: Array, index: Array | None) -> Any:
        """An attribute or method of the user's distribution; raises an error that names it if it is missing."""
        conditional, name = self.distribution(f, index=index), type(self).__name__
        # The distribution is the user's, of any class; NumPyro's say whether they are discrete.
        if getattr(conditional, "is_discrete", False) and self.support.kind != "count":
            raise TypeError(
                f"{name}.distribution is discrete, but {name}.support is {self.support.name}; "
                f"set `support = COUNT`, from inducing.likelihoods.supports, in {name}."
            )
        try:
            with lenient():
                return ask(conditional)
        except (AttributeError, NotImplementedError) as error:
            raise NotImplementedError(
                f"{name}.distribution gives a {type(conditional).__name__} without `{what}`, which this prediction "
                "needs; return an object that has it."
            ) from error

    def predictive_moments(self, mean, cov, *, index=None):
        def moments(f: Array) -> tuple[Array, Array]:
            return self._ask("mean` and `variance", lambda d: (d.mean, d.variance), f, index)

        return quadrature_moments(moments, mean, cov)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        def cdf(f: Array) -> Array:
            return self._ask("cdf", lambda d: d.cdf(y), f, index)

        return quadrature_cdf(cdf, mean, cov, self.focus(y, index=index))


def quadrature_expected_log_prob(
    likelihood: AbstractElementwise,
    mean: Array,
    cov: Array,
    y: Array,
    index: Array | None,
    num: int,
    centre: Array,
    width: Array,
) -> Array:
    """E log p(y | f) of an elementwise likelihood by the graded trapezoid rule."""

    def fn(f: Array) -> Array:
        return likelihood.log_prob(f, y, index=index)

    return expectation(fn, mean, marginal_variance(mean, cov), num, centre, width)


def quadrature_cdf(cdf: Callable[[Array], Array], mean: Array, cov: Array, focus: tuple[Array, Array]) -> Array:
    """E[cdf(f)], where cdf(f) = P(label ≤ y | f) has its bend at focus[0], of width focus[1]."""
    return jnp.clip(expectation(cdf, mean, marginal_variance(mean, cov), PREDICTIVE_NODES, *focus), 0.0, 1.0)


def quadrature_moments(moments: Callable[[Array], tuple[Array, Array]], mean: Array, cov: Array) -> tuple[Array, Array]:
    """Mean and variance of a label whose mean and variance given f [N, P] are `moments(f)`, curved around f = 0."""
    zero = jnp.zeros_like(mean)
    f, w = graded_nodes(mean, marginal_variance(mean, cov), PREDICTIVE_NODES, zero, zero + BEND)
    means, variances = jax.vmap(moments)(f)
    first = jnp.sum(w * means, axis=0)
    return first, jnp.sum(w * (variances + (means - first[None]) ** 2), axis=0)


def exponential_moments(mean: Array, cov: Array, c: Array, a: Array, b: Array | None = None) -> tuple[Array, Array]:
    """Mean and variance of a label with E[y | f] = c e^f and Var[y | f] = a e^{2f} + b e^f, in closed form."""
    variance = marginal_variance(mean, cov)
    first = jnp.exp(mean + 0.5 * variance)
    spread = a - c * c * jnp.expm1(-variance)  # a sum of positive terms: nothing cancels
    square = jnp.exp(2 * (mean + variance)) * spread
    return c * first, square if b is None else square + b * first
