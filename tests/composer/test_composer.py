"""Random models against the dense reference: covariances, KL, bounds, posterior, predictions, draws and files."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import inducing as ig
from tests.composer.compose import QUADRATURE, Composition, compose

Array = np.ndarray
# Those that compile quickly.
SEEDS = (0, 10, 19, 21, 40, 50, 67, 68, 83, 94, 96, 98, 105, 143, 174, 190, 233, 254, 273, 294)
MANY = sorted(set(range(300)) - set(SEEDS))
DRAWS = 300
ERRORS = 4.0  # standard errors
POOR = 5.0  # the effective sample size below which `log_prob` warns


def close(name: str, value: Any, truth: Any, tolerance: float) -> None:
    """Raise if numbers differ by more than the tolerance, relative to the largest of them where that exceeds 1."""
    value, truth = np.asarray(value), np.asarray(truth)
    scale = max(1.0, float(np.abs(truth).max(initial=0.0)))
    np.testing.assert_allclose(value, truth, rtol=0.0, atol=tolerance * scale, err_msg=name)


Estimate = tuple[Array, Array]  # values and their standard errors


def mean_of(samples: Array) -> Estimate:
    """The mean of samples [S, …] and its standard error."""
    return samples.mean(axis=0), samples.std(axis=0) / np.sqrt(len(samples))


def covariance_of(means: Array, covs: Array | float = 0.0) -> Estimate:
    """The covariance of a mixture with means [S, n] and covariances [S, n, n], and its standard error."""
    centred = means - means.mean(axis=0)
    return mean_of(centred[:, :, None] * centred[:, None, :] + covs)


def within_errors(name: str, sampled: Callable[[int, int], tuple[Estimate, Estimate]]) -> None:
    """Compare two estimates, which sampled(seed, factor) takes from factor times as many samples.

    Where they differ by more than four standard errors, as one number in 16,000 does, more samples decide.
    """
    for seed, factor in ((0, 1), (1, 16)):
        (value, error), (truth, own) = sampled(seed, factor)
        error = np.sqrt(np.asarray(error) ** 2 + np.asarray(own) ** 2) + 1e-9
        distance = np.abs(np.asarray(value) - truth) / error
        if distance.max() <= ERRORS:
            return
    raise AssertionError(f"{name}: {distance.max():.1f} standard errors\n{value}\n{truth}\n±\n{error}")


def exactly(truth: Any) -> Estimate:
    return np.asarray(truth), np.asarray(0.0)


class Check:
    """The comparisons of one composition."""

    def __init__(self, c: Composition):
        self.c, self.model, self.reference = c, c.library(), c.reference()
        self.data = ig.Data(c.X, c.Y, weight=c.weight)
        self.weight = np.ones(len(c.X)) if c.weight is None else c.weight
        noise = self.reference.labels.noise(None)
        self.gaussian = noise is not None
        self.tolerance = c.tolerance if self.gaussian else max(c.tolerance, QUADRATURE)

    def every(self, path: Any) -> None:
        if self.c.deep:
            close("KL", eqx.filter_jit(ig.Model.kl)(self.model), self.reference.kl(), self.c.tolerance)
            self.deep_bound()
            self.deep_posterior()
        else:
            values = self.shallow()
            self.joint_density()
        self.draws()
        loaded = self.file(path)
        if not self.c.deep:
            again = _values(loaded, self.data, self.c.X_new, self.c.Y_new, self.gaussian)
            for name, value in values.items():
                assert np.asarray(value).tobytes() == np.asarray(again[name]).tobytes(), f"{name} of the loaded model"

    def file(self, path: Any) -> ig.Model:
        """What a file gives back is the model, bit for bit."""
        ig.save(path, self.model)
        loaded = ig.load(path)
        assert jax.tree.structure(loaded) == jax.tree.structure(self.model)
        for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(self.model), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        return loaded

    def shallow(self) -> dict[str, Any]:
        """All that needs no sampling in a model of one layer."""
        c, ref, last = self.c, self.reference, self.reference.last
        values = _values(self.model, self.data, c.X_new, c.Y_new, self.gaussian)
        mean, cov = last.joint(c.X_new)
        own_mean, own_cov = last.marginals(c.X_new)
        prior_mean, Kff, _ = last.prior_moments(c.X_new)
        rows = [ref.labels.predictive(own_mean[n], own_cov[n], c.Y_new[n]) for n in range(len(c.X_new))]
        means, variances, logs, cdfs = (np.stack(column) for column in zip(*rows, strict=True))
        truths = {
            "KL": (ref.kl(), c.tolerance),
            "prior mean": (prior_mean.reshape(own_mean.shape), c.tolerance),
            "prior covariance": (Kff, c.tolerance),
            "mean of q(f)": (own_mean, c.tolerance),
            "covariance of q(f)": (cov, c.tolerance),
            "covariance of outputs": (own_cov, c.tolerance),
            "variance of q(f)": (np.diagonal(own_cov, axis1=1, axis2=2), c.tolerance),
            "bound": (ref.data_term(c.X, c.Y, self.weight) - ref.kl(), self.tolerance),
            "mean of labels": (means, self.tolerance),
            "variance of labels": (variances, self.tolerance),
            "log density": (logs, self.tolerance),
            "cdf": (cdfs, self.tolerance),
        }
        close("joint mean", mean, own_mean.ravel(), 1e-10)  # the reference agrees with itself
        if self.gaussian:
            bound, evidence = ref.gaussian_bounds(c.X, c.Y, self.weight)
            truths |= {
                "collapsed bound": (bound, c.tolerance),
                "evidence": (evidence, c.tolerance),
                "joint log density": (ref.joint_log_prob(c.X_new, c.Y_new), c.tolerance),
            }
        for name, (truth, tolerance) in truths.items():
            close(name, values[name], truth, tolerance)
        return values

    def joint_density(self) -> None:
        """log p(y) of all new labels together, where it is an integral over f."""
        if self.gaussian:
            return
        c, ref = self.c, self.reference
        mean, cov = ref.last.joint(c.X_new)

        if _joint_density(self.model, c.X_new, c.Y_new, jax.random.key(0), 2000)[2] < POOR:
            pred: Any = self.model.predict(c.X_new, full_cov=True)  # a few draws decide, so that no error is known
            with pytest.warns(UserWarning, match="poor estimate: its effective sample size"):
                pred.log_prob(c.Y_new, key=jax.random.key(0), samples=2000)
            return

        def sampled(seed: int, factor: int) -> tuple[Estimate, Estimate]:
            own = _joint_density(self.model, c.X_new, c.Y_new, jax.random.key(seed), 2000 * factor)
            rng = np.random.default_rng(seed)
            f = rng.multivariate_normal(mean, cov, 20_000 * factor, method="eigh")
            f = f.reshape(len(f), len(c.X_new), -1)
            density, error = mean_of(np.exp(ref.labels.log_prob(f, c.Y_new)))
            return (np.asarray(own[0]), np.asarray(own[1])), (np.log(density), error / density)

        within_errors("joint log density", sampled)

    def deep_bound(self) -> None:
        c = self.c

        def sampled(seed: int, factor: int) -> tuple[Estimate, Estimate]:
            keys = jax.random.split(jax.random.key(seed), 500 * factor)
            values = np.asarray(_elbos(self.model, self.data, keys, c.importance))
            rng = np.random.default_rng(seed)
            terms = self.reference.data_terms(rng, c.X, c.Y, self.weight, c.importance, 50 * factor)
            return mean_of(values), mean_of(terms - self.reference.kl())

        within_errors("bound", sampled)

    def deep_posterior(self) -> None:
        c = self.c

        def sampled(seed: int, factor: int) -> tuple[Estimate, Estimate]:
            means, covs = _joint_components(self.model, c.X_new, jax.random.key(seed), 500 * factor)
            own = np.asarray(means).reshape(len(means), -1), np.asarray(covs)
            theirs = self.reference.joint_components(np.random.default_rng(seed), c.X_new, 300 * factor)
            pairs = [(mean_of(means), covariance_of(means, covs)) for means, covs in (own, theirs)]
            return tuple(_together(*pair) for pair in pairs)  # ty: ignore[invalid-return-type]

        within_errors("joint q(f)", sampled)

    def draws(self) -> None:
        """The first two moments of functions drawn from q(f)."""
        c = self.c
        if c.deep and any(part.kind == "LatentVariable" for part in self.reference.parts):
            return  # a drawn function has one h for all inputs

        def sampled(seed: int, factor: int) -> tuple[Estimate, Estimate]:
            keys = jax.random.split(jax.random.key(seed), DRAWS * factor)
            f = np.asarray(_draws(self.model, keys, c.X_new)).reshape(len(keys), -1)
            value = _together(mean_of(f), covariance_of(f))
            if not c.deep:
                mean, cov = self.reference.last.joint(c.X_new)
                return value, exactly(np.append(mean, cov))
            means, covs = self.reference.joint_components(np.random.default_rng(seed), c.X_new, 300 * factor)
            return value, _together(mean_of(means), covariance_of(means, covs))

        within_errors("draws", sampled)


def _together(first: Estimate, second: Estimate) -> Estimate:
    return tuple(np.append(a, b) for a, b in zip(first, second, strict=True))  # ty: ignore[invalid-return-type]


@eqx.filter_jit
def _values(model: ig.Model, data: ig.Data, X: Array, Y: Array, gaussian: bool) -> dict[str, Any]:
    """Everything of a model of one layer that the reference knows, in one program."""
    prior = model.layers[0].prior
    pred, post = model.predict(X), model.posterior(X, full_cov=True)
    out = {
        "KL": model.kl(),
        "prior mean": prior.mean(jnp.asarray(X)),
        "prior covariance": prior.covariance(jnp.asarray(X)),
        "mean of q(f)": post.mean,
        "covariance of q(f)": post.covariance,
        "covariance of outputs": model.posterior(X, output_cov=True).covariance,
        "variance of q(f)": model.posterior(X).variance,
        "bound": ig.bounds.elbo(model, data),
        "mean of labels": pred.mean,
        "variance of labels": pred.variance,
        "log density": pred.log_prob(Y),
        "cdf": pred.cdf(Y),
    }
    if gaussian:
        out["collapsed bound"] = ig.bounds.collapsed_elbo(model, data)
        out["evidence"] = ig.bounds.log_evidence(model, data)
        out["joint log density"] = model.predict(X, full_cov=True).log_prob(Y)
    return out


# Everything runs compiled: each operation outside would be a program of its own, of which many take seconds.


@eqx.filter_jit
def _joint_density(model: ig.Model, X: Array, Y: Array, key: Array, samples: int) -> Any:
    own = model.predict(X, full_cov=True).estimate(Y, key=key, samples=samples)
    return own.value, own.standard_error, own.effective_sample_size


@eqx.filter_jit
def _joint_components(model: ig.Model, X: Array, key: Array, samples: int) -> Any:
    post = model.posterior(X, full_cov=True, key=key, samples=samples)
    return post.means, post.covs


@eqx.filter_jit
def _elbos(model: ig.Model, data: ig.Data, keys: Array, importance: int) -> Array:
    return jax.lax.map(lambda key: ig.bounds.elbo(model, data, key=key, importance=importance), keys, batch_size=100)


@eqx.filter_jit
def _draws(model: ig.Model, keys: Array, X: Array) -> Array:
    return jax.lax.map(lambda key: model.draw(key, 8)(X), keys, batch_size=100)


def check(seed: int, path: Any) -> None:
    """Compare a composition with its reference; a failure prints the code that builds it."""
    c = compose(seed)
    try:
        Check(c).every(path)
    except Exception as error:
        error.add_note(c.recipe())
        raise


@pytest.mark.parametrize("seed", SEEDS)
def test_compositions(seed, tmp_path):
    check(seed, tmp_path / "model.ig")


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_many_compositions(seed, tmp_path):
    check(seed, tmp_path / "model.ig")
    jax.clear_caches()  # the programs of 300 compositions would need more memory maps than Linux allows
