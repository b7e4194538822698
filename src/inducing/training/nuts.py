"""Full Bayes: NUTS over hyperparameters, and over u where it has no closed form (Hensman et al. 2015)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from inducing._xla import default_jit
from inducing.bounds.collapsed import collapsed_elbo, optimal_q
from inducing.bounds.conjugate import conjugate_layer
from inducing.bounds.evidence import log_evidence
from inducing.bounds.objective import AbstractObjective
from inducing.bounds.terms import expected_log_likelihood, inputs, weighted_sum
from inducing.checks import check_counts, check_model, checked_data, checked_inputs
from inducing.data import Data
from inducing.declared import shown
from inducing.features.points import InducingPoints
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.predictive import Predictive
from inducing.likelihoods.sampling import lenient
from inducing.likelihoods.supports import Support
from inducing.model import Model
from inducing.parameters import Partition, as_key, as_tuple, as_whole, declared_prior, partition
from inducing.training.arguments import is_number

WIDTH = 1.0  # of the default prior, on the unconstrained scale


class PosteriorSamples(eqx.Module):
    """Samples of hyperparameters, and of w where they were sampled, from `ig.sample_posterior`.

    Attributes:
        model: the model that was passed, whose parameters the samples replace.
        data: the data.
        values: the natural values of each parameter by its path, [chains, samples, …]; w is "w".
        divergences: how many steps diverged; more than a few are a reason to distrust the samples.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 0.5, 1.0], [0.5, 0.4, 0.2])
        >>> drawn = ig.sample_posterior(model, data)      # doctest: +SKIP
        >>> drawn.summary()[".likelihood.variance"]["r_hat"] < 1.01      # doctest: +SKIP
        True
    """

    model: Model
    data: Data
    values: dict[str, Array]
    divergences: int
    _parts: Partition
    _samples: Any

    def summary(self) -> dict[str, dict[str, Any]]:
        """Mean, standard deviation, quantiles, effective sample size (`n_eff`) and `r_hat` of each parameter.

        r_hat above 1.01 says that the chains do not agree yet.
        """
        from numpyro.diagnostics import summary

        return summary({name: np.asarray(value) for name, value in self.values.items()}, group_by_chain=True)

    def to_arviz(self) -> Any:
        """The samples as an `arviz.InferenceData`, for its plots and diagnostics (`pip install inducing[bayes]`)."""
        try:
            import arviz
        except ImportError as error:
            raise ImportError("samples are exported to ArviZ: pip install inducing[bayes]") from error
        return arviz.from_dict(posterior={name: np.asarray(value) for name, value in self.values.items()})

    def model_at(self, chain: int, sample: int) -> Model:
        """The model with the values of one sample, with its w as a point or the optimal q(u)."""
        chains, samples = jax.tree.leaves(self._samples)[0].shape[:2]
        for name, value, size in (("chain", chain, chains), ("sample", sample, samples)):
            number = as_whole(value)
            if not isinstance(number, int) or not -size <= number < size:
                raise ValueError(f"{name} must be a whole number from 0 to {size - 1}, got {shown(value)}.")
        one = jax.tree.map(lambda a: a[chain, sample], self._samples)
        return _solved(self._parts, one, self.data)

    def predict(self, X: Any, *, num: int = 100) -> Predictive:
        """The distribution of labels at new inputs, an equal mixture over evenly spaced samples.

            p(y* | y) ≈ 1/S Σ_s p(y* | θ_s, w_s)

        Args:
            X: inputs [N, D], or [N] for one column.
            num: S, at most.

        Returns:
            A `Predictive`, whose samples are independent for each input.

        Raises:
            TypeError: if the likelihood needs correlations of outputs.
            ValueError: if X does not fit the model.
        """
        X, _ = checked_inputs(self.model, X)
        check_counts(num=num)
        layer = self.model.layers[0].as_sparse_gp()
        if self.model.likelihood.joint and layer is not None and layer.correlated:
            raise TypeError(
                f"{type(self.model.likelihood).__name__} needs correlations between outputs, which a mixture over "
                "samples does not keep; average the predictions of `model_at`."
            )
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), self._samples)
        total = len(jax.tree.leaves(flat)[0])
        chosen = np.linspace(0, total - 1, min(num, total)).round().astype(int)
        mean, variance, likelihood = _moments(self._parts, jax.tree.map(lambda a: a[chosen], flat), self.data, X)
        N = len(X)
        wide = (jnp.moveaxis(a, 0, 1).reshape(N, -1) for a in (mean, variance))
        return _Mixture(likelihood, len(chosen)).predictive(*wide)


def sample_posterior(
    model: Model,
    data: Any,
    *,
    priors: Sequence[tuple[Callable[[Model], Any], Any]] = (),
    over_u: bool | None = None,
    objective: AbstractObjective = collapsed_elbo,
    freeze: Callable[[Model], Any] | None = None,
    warmup: int = 500,
    samples: int = 500,
    chains: int = 4,
    target_accept: float = 0.8,
    key: Array | None = None,
    progress: bool = False,
) -> PosteriorSamples:
    """Sample hyperparameters θ, and w where asked, from their posterior by NUTS, with NumPyro.

        p(θ | y) ∝ exp(bound(θ)) p(θ)                                      u integrated, with Gaussian noise
        p(w, θ | y) ∝ exp( Σ_n E_{p(f_n | w, θ)} log p(y_n | f_n) ) N(w | 0, I) p(θ)      over_u

    The bound is `ig.collapsed_elbo`, or the evidence itself. w = Luu⁻¹ (u − μ_u) are the whitened inducing variables
    (Hensman, Matthews, Filippone & Ghahramani 2015). Inducing features stay where they are.

    Priors are densities of natural values: those of `priors`, else those that fields declare
    (`positive(1.0, prior=…)`), else the unconstrained value (the logarithm of a positive one) is N(v, 1) about its
    value v in `model`, so pass a model that was fitted, or has sensible scales.

    Args:
        model: a model of one `SparseGP` layer.
        data: (X, y) or `ig.Data`, all of them.
        priors: pairs of a function that picks a parameter of the model, and its prior, an object with `log_prob`, such
            as `(lambda m: m.likelihood.variance, numpyro.distributions.LogNormal(-2.0, 1.0))`.
        over_u: whether to sample w as well. By default, unless the noise is Gaussian.
        objective: `ig.collapsed_elbo` or `ig.log_evidence`, if w is not sampled. Predictions of the evidence put
            inducing points at all rows.
        freeze: a function of the model that returns parts to keep fixed, as in `ig.fit`.
        warmup: the number of steps of each chain that adapt the sampler and are thrown away.
        samples: the number of samples of each chain.
        chains: the number of chains, which run one after the other.
        target_accept: the acceptance probability that step sizes aim at; raise it if there are divergences.
        key: a random key, by default `jax.random.key(0)`.
        progress: whether to show a progress bar.

    Returns:
        The samples, with `summary()`, `predict(X)`, `to_arviz()` and `model_at`.

    Raises:
        TypeError: if the model is of another kind.
        ValueError: if nothing is left to sample, or the data do not fit the model.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 0.5, 1.0], [0.5, 0.4, 0.2])
        >>> drawn = ig.sample_posterior(model, data, warmup=10, samples=10, chains=1)      # doctest: +SKIP
        >>> drawn.predict([0.2]).mean.shape      # doctest: +SKIP
        (1, 1)
    """
    from numpyro.infer import MCMC, NUTS

    check_model(model)
    check_counts(warmup=warmup, samples=samples, chains=chains)
    _check_arguments(priors, freeze, target_accept)
    data = checked_data(model, data, every_output=True)
    model, over_u = _prepared(model, data, over_u, objective)
    parts = partition(model, lambda m: _kept(m, freeze))
    layer = _layer(model)
    start = {"theta": list(parts.free)} | ({"w": jnp.zeros_like(layer.mean)} if over_u else {})
    if not jax.tree.leaves(start):
        raise ValueError("nothing is left to sample: all parameters are frozen, and u is integrated.")
    log_priors = _log_priors(model, parts, priors)

    def potential(sample: Any) -> Float[Array, ""]:
        at = _with_sample(parts, sample)
        if over_u:
            terms = expected_log_likelihood(at, data, inputs(data)[:, None])[:, 0]
            value = weighted_sum(data, terms) - 0.5 * jnp.sum(sample["w"] ** 2)
        else:
            value = objective.evaluate(at, data)
        for x, log_prior in zip(sample["theta"], log_priors, strict=True):
            value = value + log_prior(x)
        return -jnp.where(jnp.isfinite(value), value, -jnp.inf)

    key, jitter = jax.random.split(as_key(key))
    init = _spread(start, jitter, chains)
    with lenient():
        kernel = NUTS(potential_fn=potential, target_accept_prob=target_accept)
        mcmc = MCMC(
            kernel,
            num_warmup=warmup,
            num_samples=samples,
            num_chains=chains,
            chain_method="sequential",
            progress_bar=progress,
        )
        mcmc.run(key, init_params=init, extra_fields=("diverging",))
        drawn = mcmc.get_samples(group_by_chain=True)
    diverged = int(np.sum(np.asarray(mcmc.get_extra_fields()["diverging"])))
    return PosteriorSamples(model, data, _natural(model, parts, drawn), diverged, parts, drawn)


def _check_arguments(priors: Any, freeze: Any, target_accept: Any) -> None:
    pairs = as_tuple(priors)
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 and callable(pair[0]) for pair in pairs
    ):
        raise TypeError(
            f"priors must be pairs of a function that picks a parameter and its prior, got {shown(priors)}; such as "
            "[(lambda m: m.likelihood.variance, numpyro.distributions.LogNormal(-2.0, 1.0))]."
        )
    if freeze is not None and not callable(freeze):
        raise TypeError(f"freeze must be a function of the model, got {shown(freeze)}.")
    if not is_number(target_accept) or not 0 < target_accept < 1:
        raise ValueError(f"target_accept must be a number between 0 and 1, got {shown(target_accept)}.")


def _layer(model: Model) -> SparseGP:
    layer = model.layers[0].as_sparse_gp() if len(model.layers) == 1 else None
    if layer is None:
        kinds = ", ".join(type(part).__name__ for part in model.layers)
        raise TypeError(f"sample_posterior is for models of one SparseGP layer, not for layers ({kinds}).")
    return layer


def _prepared(model: Model, data: Data, over_u: bool | None, objective: Any) -> tuple[Model, bool]:
    """The model in w coordinates, and whether w is sampled."""
    layer = _layer(model)
    conjugate = conjugate_layer(model) is not None
    over_u = not conjugate if over_u is None else over_u
    if objective is not collapsed_elbo and objective is not log_evidence:
        raise TypeError("objective must be ig.collapsed_elbo or ig.log_evidence; other bounds depend on q(u).")
    if not over_u and not conjugate:
        raise TypeError(
            f"u can be integrated for Gaussian noise only, not {type(model.likelihood).__name__}; use over_u."
        )
    if not over_u and objective is log_evidence:
        layer = SparseGP(layer.prior, InducingPoints(inputs(data)), jitter=layer.jitter)
    layer = SparseGP(layer.prior, layer.features, jitter=layer.jitter)
    return eqx.tree_at(lambda m: m.layers[0].as_sparse_gp(), model, layer), over_u


def _kept(model: Model, freeze: Callable | None) -> Any:
    layer = _layer(model)
    return layer.features, layer.mean, layer.root, None if freeze is None else freeze(model)


def _with_sample(parts: Partition, sample: Any) -> Model:
    """The model with the values of a sample, and w, if it was sampled, as a point."""
    model = eqx.tree_at(lambda p: p.free, parts, sample["theta"]).model()
    if "w" not in sample:
        return model
    zero = jnp.zeros((sample["w"].shape[0], 1, sample["w"].shape[1]), sample["w"].dtype)

    def q(m: Model) -> Any:
        layer = _layer(m)
        return layer.mean, layer.root

    return eqx.tree_at(q, model, (sample["w"], zero))


def _solved(parts: Partition, sample: Any, data: Data) -> Model:
    model = _with_sample(parts, sample)
    return model if "w" in sample else optimal_q(model, data)


@default_jit
def _moments(parts: Partition, samples: Any, data: Data, X: Array) -> tuple[Array, Array, AbstractLikelihood]:
    """Mean and variance of the outputs [S, N, P] for each sample, and the likelihoods, stacked."""

    def one(sample: Any) -> Any:
        model = _solved(parts, sample, data)
        mean, variance = model.layers[0].moments(X[:, None])
        return mean[:, 0], variance[:, 0], eqx.filter(model.likelihood, eqx.is_array)

    mean, variance, arrays = jax.lax.map(one, samples)
    static = eqx.filter(parts.model().likelihood, eqx.is_array, inverse=True)
    return mean, variance, eqx.combine(arrays, static)


def _paths(model: Model, parts: Partition) -> list[tuple[tuple, Any]]:
    """The path and the leaf of each free array, in their order."""
    found: dict[int, tuple[tuple, Any]] = {}
    for (path, leaf), (trained, i) in zip(jtu.tree_leaves_with_path(model), parts.slots, strict=True):
        if trained:
            found.setdefault(i, (path, leaf))
    return [found[i] for i in range(len(parts.free))]


def _log_priors(model: Model, parts: Partition, priors: Any) -> list[Callable[[Array], Array]]:
    """The log prior density of each unconstrained array."""
    passed: dict[int, Any] = {}
    for where, prior in priors:
        leaves = jax.tree.leaves(where(model))
        free = {id(leaf) for _, leaf in _paths(model, parts)}
        if len(leaves) != 1 or id(leaves[0]) not in free:
            raise ValueError("each function in priors must return one parameter of the model that is sampled.")
        passed[id(leaves[0])] = prior
    out = []
    for (path, leaf), start, constraint in zip(_paths(model, parts), parts.free, parts.constraints, strict=True):
        prior = passed.get(id(leaf), declared_prior(model, path))
        out.append(_default_prior(start) if prior is None else _natural_prior(prior, constraint))
    return out


def _default_prior(start: Array) -> Callable[[Array], Array]:
    return lambda x: -0.5 * jnp.sum(((x - start) / WIDTH) ** 2)


def _natural_prior(prior: Any, constraint: Any) -> Callable[[Array], Array]:
    def log_prior(x: Array) -> Array:
        with lenient():
            return jnp.sum(prior.log_prob(constraint.forward(x))).astype(x.dtype) + constraint.log_jacobian(x)

    return log_prior


def _spread(start: Any, key: Array, chains: int) -> Any:
    """Where the chains begin: a little apart."""
    leaves, structure = jax.tree.flatten(start)
    keys = jax.random.split(key, len(leaves))
    apart = [
        v[None] + 0.1 * jax.random.normal(k, (chains, *v.shape), v.dtype) for v, k in zip(leaves, keys, strict=True)
    ]
    many = jax.tree.unflatten(structure, apart)
    return many if chains > 1 else jax.tree.map(lambda a: a[0], many)


def _natural(model: Model, parts: Partition, drawn: Any) -> dict[str, Array]:
    each = zip(_paths(model, parts), drawn["theta"], parts.constraints, strict=True)
    values = {jtu.keystr(path): constraint.forward(x) for (path, _), x, constraint in each}
    return values | ({"w": drawn["w"]} if "w" in drawn else {})


class _Mixture(AbstractLikelihood):
    """An equal mixture of S likelihoods, whose arrays are stacked in `base`, each with latents of its own."""

    base: AbstractLikelihood
    num: int = eqx.field(static=True)

    def _each(self, fn: Callable, *latents: Array) -> Any:
        """fn(likelihood, latents) for each component, stacked."""
        split = [jnp.moveaxis(a.reshape(*a.shape[:-1], self.num, -1), -2, 0) for a in latents]
        arrays, static = eqx.partition(self.base, eqx.is_array)
        return jax.vmap(lambda a, *q: fn(eqx.combine(a, static), *q))(arrays, *split)

    def _one(self) -> AbstractLikelihood:
        return jax.tree.map(lambda a: a[0] if eqx.is_array(a) else a, self.base)

    @property
    def joint(self) -> bool:
        return False

    @property
    def supports(self) -> tuple[Support, ...]:
        return self._one().supports

    @property
    def fill(self) -> Any:
        return self._one().fill

    def class_count(self) -> int | None:
        return self._one().class_count()

    def num_latents(self, num_outputs: int) -> int:
        return self.num * self._one().num_latents(num_outputs)

    def check(self, y, *, index=None):
        self._one().check(y, index=index)

    def log_prob(self, f, y, *, index=None):
        each = self._each(lambda lik, f: lik.log_prob(f, y, index=index), f)
        return logsumexp(each, axis=0) - np.log(self.num)

    def expected_log_prob(self, mean, cov, y, *, index=None):
        return jnp.mean(self._each(lambda lik, m, c: lik.expected_log_prob(m, c, y, index=index), mean, cov), axis=0)

    def predictive_log_prob(self, mean, cov, y, *, index=None):
        each = self._each(lambda lik, m, c: lik.predictive_log_prob(m, c, y, index=index), mean, cov)
        return logsumexp(each, axis=0) - np.log(self.num)

    def predictive_cdf(self, mean, cov, y, *, index=None):
        return jnp.mean(self._each(lambda lik, m, c: lik.predictive_cdf(m, c, y, index=index), mean, cov), axis=0)

    def predictive_moments(self, mean, cov, *, index=None):
        means, variances = self._each(lambda lik, m, c: lik.predictive_moments(m, c, index=index), mean, cov)
        first = jnp.mean(means, axis=0)
        return first, jnp.mean(variances + (means - first[None]) ** 2, axis=0)

    def distribution(self, f, *, index=None):
        return _Components(self, f, index)


class _Components:
    """p(y | f) of a mixture, to sample from."""

    def __init__(self, mixture: _Mixture, f: Array, index: Array | None):
        self.mixture, self.f, self.index = mixture, f, index

    def sample(self, key: Array) -> Array:
        own, pick = jax.random.split(key)
        keys = jax.random.split(own, self.mixture.num)
        split = jnp.moveaxis(self.f.reshape(*self.f.shape[:-1], self.mixture.num, -1), -2, 0)
        arrays, static = eqx.partition(self.mixture.base, eqx.is_array)

        def one(a: Any, f: Array, key: Array) -> Array:
            return eqx.combine(a, static).distribution(f, index=self.index).sample(key).astype(f.dtype)

        each = jax.vmap(one)(arrays, split, keys)
        chosen = jax.random.randint(pick, each.shape[1:-1], 0, self.mixture.num)
        return jnp.take_along_axis(each, chosen[None, ..., None], axis=0)[0]
