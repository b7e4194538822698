"""Exact Gaussian-process regression, for small data and as a reference for sparse approximations."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from inducing._xla import check_memory, default_jit, in_blocks
from inducing.data import Data
from inducing.likelihoods.base import PerDatum
from inducing.likelihoods.gaussian import Gaussian
from inducing.likelihoods.predictive import Predictive
from inducing.likelihoods.sampling import as_shape, sampling_root
from inducing.linalg import Dense, diagonal_of
from inducing.parameters import REAL, Module, as_key, as_numbers, at_least_one, check_part, dtype_of, fixed
from inducing.priors.base import AbstractPrior, mix_covariance, mix_variance, weights
from inducing.priors.latents import BLOCK_ENTRIES
from inducing.priors.sampling import centred_draw, check_values, checked_rows, rows_of_draws

if TYPE_CHECKING:
    from inducing.inference.joint import JointPredictive


class ExactGP(Module):
    """The exact posterior of f given labels with Gaussian noise (eq:cond_gp with u = y), as `prior.condition` gives it.

        y = f(X) + ε,    ε ~ N(0, σ²)
        f(·) | y ~ GP( μ(·) + k_·X Kyy⁻¹ (y − μ(X)),  k(·,·') − k_·X Kyy⁻¹ k_X·' ),    Kyy = k(X, X) + σ²

    Any prior can be used, also with several outputs and missing labels (NaN in y). Conditioning takes O((N P)³) and
    adds no jitter. Parameters are not trained; to train them use `ig.fit(model, data, objective=ig.log_evidence)`.

    `mean`, `variance`, `covariance`, `sample` and `draw` are those of f; `predict` and `log_prob` are those of new
    labels. `ig.save` writes it to a file.

    Args:
        prior: the prior of f, with P outputs.
        X: inputs [N, D], or [N] for D = 1.
        y: labels [N, P], or [N] for P = 1; NaN where missing.
        noise_variance: σ², one number, or one for each output [P], datum [N] or label [N, P]. It may be 0, for
            interpolation, if the covariance matrix of the labels is not singular.

    Raises:
        ValueError: if the shapes do not fit, or the covariance of the labels is not positive definite.

    Examples:
        >>> import inducing as ig
        >>> exact = ig.GP(ig.kernels.SquaredExponential()).condition([0.0, 1.0], [1.0, 2.0], noise_variance=0.0)
        >>> exact.mean([0.0, 1.0]).round(6).tolist(), exact.covariance([0.5, 0.7]).shape      # it interpolates
        ([[1.0], [2.0]], (2, 2))
    """

    prior: AbstractPrior
    x: Float[Array, "N D"] = fixed(allowed=REAL)
    noise: Float[Array, "N P"] = fixed()
    new_noise: Float[Array, "*P"] | None = fixed()
    seen: Bool[Array, " NP"]
    residual: Float[Array, " NP"] = fixed(allowed=REAL)
    inverse_root: Float[Array, "NP NP"] = fixed(allowed=REAL)

    def __init__(self, prior: AbstractPrior, X: Any, y: Any, noise_variance: Any):
        check_part("prior", prior, AbstractPrior)
        data = Data(X, y).astype(dtype_of(prior))
        if data.x is None or data.y is None or data.mask is None:
            raise ValueError("conditioning needs inputs X and labels y; got None.")
        if data.y.shape[1] != prior.num_outputs:
            raise ValueError(f"y has {data.y.shape[1]} columns but the prior has {prior.num_outputs} outputs.")
        check_values(prior, data.x)  # before anything is computed
        check_memory(
            "an exact posterior", (3, data.y.size, data.y.size), data.y.dtype, "use ig.SparseGP, or fewer rows"
        )
        noise = _noise(noise_variance, data.y.shape, data.y.dtype, data.mask)
        self.prior, self.x, self.seen = prior, data.x, data.mask.reshape(-1)
        self.noise = jnp.where(data.mask, noise, 0.0)
        value = as_numbers("noise_variance", noise_variance).astype(noise.dtype)
        self.new_noise = value if value.ndim == 0 or value.shape in ((1,), (prior.num_outputs,)) else None
        self.residual, self.inverse_root, jitter = _factorised(prior, self.x, data.y, data.mask, self.noise)
        _check_regular(jitter, jnp.min(jnp.where(data.mask, noise, jnp.inf)))

    def __check_init__(self):
        N, P = len(self.x), self.prior.num_outputs
        shapes = {"noise": (N, P), "seen": (N * P,), "residual": (N * P,), "inverse_root": (N * P, N * P)}
        for name, shape in shapes.items():
            if (given := getattr(self, name).shape) != shape:
                raise ValueError(
                    f"ExactGP.{name} has shape {list(given)}; {N} data and {P} outputs need {list(shape)}."
                )
        if self.new_noise is not None:
            _noise(self.new_noise, (1, P), self.noise.dtype, jnp.ones((1, P), bool))
        _noise(self.noise, (N, P), self.noise.dtype, self.seen.reshape(N, P))
        check_values(self.prior, self.x)

    @property
    def log_marginal_likelihood(self) -> Float[Array, ""]:
        """The log marginal likelihood log p(y | X), also called the evidence."""
        a = self.inverse_root @ self.residual
        logdet = -2.0 * jnp.sum(jnp.log(diagonal_of(self.inverse_root)))
        n = jnp.sum(self.seen).astype(a.dtype)
        return -0.5 * (jnp.sum(a**2) + logdet + n * math.log(2.0 * math.pi))

    def mean(self, X: Any) -> Float[Array, "n P"]:
        """Compute the posterior mean E[f(X) | y] [n, P] at inputs X [n, D]."""
        return _blocks(self, self._rows(X), _mean)

    def variance(self, X: Any) -> Float[Array, "n P"]:
        """Compute the posterior variance Var[f(X) | y] [n, P] at inputs X [n, D]."""
        return _blocks(self, self._rows(X), _variance)

    def covariance(self, X: Any) -> Float[Array, "nP nP"]:
        """Compute the posterior covariance Cov[f(X) | y] [n·P, n·P] at inputs X [n, D], flattened datum by datum."""
        return _covariance(self, self._rows(X))

    def predict(
        self, X: Any, *, full_cov: bool = False, output_cov: bool = False, noise_variance: Any = None
    ) -> "Predictive | JointPredictive":
        """The distribution p(y* | y) of labels at new inputs.

        Args:
            X: inputs [n, D], or [n] for one column.
            full_cov: whether to compute the covariance of all outputs at all inputs. The result is then a
                `JointPredictive`, whose samples and log density are joint over all labels.
            output_cov: whether to compute the covariance [n, P, P] of the outputs at each input, so that samples are
                joint over the labels of an input. Without it the variances [n, P] are computed.
            noise_variance: the variance of the noise of the new labels, one number, or one for each output [P], datum
                [n] or label [n, P]. By default the one that the posterior was conditioned with.

        Returns:
            A `Predictive`, or a `JointPredictive` if `full_cov` is set. Both have `mean`, `variance`, `interval`,
            `quantile`, `cdf`, `log_prob` and `sample`.

        Raises:
            ValueError: if X does not fit, both covariances are asked for, or the noise of the new labels is unknown.

        Examples:
            >>> import inducing as ig
            >>> prior = ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52())
            >>> exact = prior.condition([0.0, 1.0], [[1.0, 2.0], [0.5, float("nan")]], noise_variance=0.1)
            >>> exact.predict([0.5]).mean.shape, exact.predict([0.5], output_cov=True).latent_cov.shape
            ((1, 2), (1, 2, 2))
        """
        from inducing.inference.blocks import one_covariance  # deferred: inference is built on priors
        from inducing.inference.joint import JointPredictive

        full_cov, output_cov = one_covariance(full_cov, output_cov)
        X, P = self._rows(X), self.prior.num_outputs
        likelihood, index = self._likelihood(noise_variance, len(X)), jnp.arange(len(X))
        mean = _blocks(self, X, _mean)
        if full_cov:
            return JointPredictive(likelihood, mean[None], _covariance(self, X)[None], index)
        if output_cov:
            return Predictive(likelihood, mean, _blocks(self, X, _output_covariance), index)
        mixed = P > 1 and (self.prior.num_sites > 1 or weights(self.prior) is not None)
        return Predictive(likelihood, mean, _blocks(self, X, _variance), index, correlated=mixed)

    def log_prob(self, X: Any, y: Any, *, noise_variance: Any = None) -> Float[Array, ""]:
        """The joint log density log p(y* | y) of new labels.

        Args:
            X: inputs [n, D], or [n] for one column.
            y: labels [n, P], or [n] for P = 1; those that are missing (NaN) are left out.
            noise_variance: the variance of their noise, as in `predict`.

        Returns:
            One number for all labels.

        Examples:
            >>> import inducing as ig
            >>> prior = ig.GP(ig.kernels.Matern52())
            >>> first = prior.condition([0.0], [1.0], 0.1)
            >>> both = prior.condition([0.0, 1.0], [1.0, 2.0], 0.1)
            >>> total = first.log_marginal_likelihood + first.log_prob([1.0], [2.0])
            >>> bool(abs(total - both.log_marginal_likelihood) < 1e-10)
            True
        """
        return self.predict(X, full_cov=True, noise_variance=noise_variance).log_prob(y)

    def sample(self, key: Array, X: Any, shape: int | tuple[int, ...] = ()) -> Float[Array, "... n P"]:
        """Values of f given y, joint over the inputs and outputs.

        Args:
            key: a random key.
            X: inputs [n, D], or [n] for one column.
            shape: the number of samples, or a shape of samples.

        Returns:
            Samples [*shape, n, P].

        Examples:
            >>> import jax, inducing as ig
            >>> exact = ig.GP(ig.kernels.Matern52()).condition([0.0], [1.0], 0.1)
            >>> exact.sample(jax.random.key(0), [0.0, 0.5, 1.0], 10).shape
            (10, 3, 1)
        """
        X = self._rows(X)
        return _sample(self, as_key(key), X, as_shape(shape, X[:, 0]))

    def draw(self, key: Array, num_features: int = 1024) -> Callable[[Any], Float[Array, "n P"]]:
        """One function of the posterior, by pathwise conditioning (Matheron's rule).

            f(·) = g(·) + k_·X Kyy⁻¹ (y − g(X) − ε),    g ~ prior,  ε ~ N(0, σ²)

        Args:
            key: a random key. The same key gives the same function.
            num_features: the number of random features of each kernel that has infinitely many.

        Returns:
            A function f of inputs X [n, D] with values [n, P]. It is the same function at every call.

        Raises:
            TypeError: if a kernel has no random features. Use `sample` at given inputs instead.

        Examples:
            >>> import jax, inducing as ig
            >>> f = ig.GP(ig.kernels.Matern52()).condition([0.0, 1.0], [1.0, 2.0], 1e-8).draw(jax.random.key(0))
            >>> f([0.0, 1.0]).round(2).tolist()      # it passes through labels without noise
            [[1.0], [2.0]]
        """
        key_g, key_noise = jax.random.split(as_key(key))
        num = at_least_one("num_features", num_features)
        prior, x, P = self.prior, self.x, self.prior.num_outputs
        g = centred_draw(prior, key_g, num, x.shape[1])
        noise = jnp.sqrt(self.noise) * jax.random.normal(key_noise, self.noise.shape, x.dtype)
        own = in_blocks(g, x, rows_of_draws(prior, num)) + noise
        update = self._solve(self.residual - jnp.where(self.seen, own.reshape(-1), 0.0))

        def f(X: Any) -> Float[Array, "n P"]:
            def rows(X: Array) -> Array:
                return prior.mean(X) + g(X) + (update @ _cross(self, X)).reshape(-1, P)

            return in_blocks(rows, self._rows(X), min(rows_of_draws(prior, num), BLOCK_ENTRIES // len(update) // P))

        return f

    def _solve(self, b: Float[Array, " NP"]) -> Float[Array, " NP"]:
        return self.inverse_root.T @ (self.inverse_root @ b)

    def _rows(self, X: Any) -> Float[Array, "n D"]:
        X = checked_rows(self.prior, X)
        if X.shape[1] != self.x.shape[1]:
            raise ValueError(f"X has {X.shape[1]} columns but the prior was conditioned on {self.x.shape[1]}.")
        return X

    def _likelihood(self, noise_variance: Any, n: int) -> Gaussian:
        """The likelihood of n new labels."""
        known = self.new_noise if noise_variance is None else noise_variance
        if known is None:
            raise ValueError(
                "each label had its own noise variance, so the noise of new labels is unknown; pass noise_variance, "
                "one number, or one for each output, datum or label."
            )
        shape = n, self.prior.num_outputs
        noise = _noise(known, shape, self.residual.dtype, np.ones(shape, bool))
        return Gaussian(PerDatum(noise, jnp.zeros((), noise.dtype)))


def _factorised(prior: AbstractPrior, x: Array, y: Array, mask: Array, noise: Array) -> tuple[Array, Array, Array]:
    """The residuals y − μ(x), the inverse root of Kyy, and the jitter that it needed."""
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((prior, x, y, mask, noise)))
    return (_factorise if traced else _compiled_factorise)(prior, x, y, mask, noise)


def _factorise(prior: AbstractPrior, x: Array, y: Array, mask: Array, noise: Array) -> tuple[Array, Array, Array]:
    seen = mask.reshape(-1)
    residual = jnp.where(seen, (y - prior.mean(x)).reshape(-1), 0.0)
    # A missing label is treated as an independent standard normal variable of value zero, which changes nothing.
    keep = seen[:, None] & seen[None, :]
    K = jnp.where(keep, prior.covariance(x), 0.0) + jnp.diag(jnp.where(seen, noise.reshape(-1), 1.0))
    Kyy = Dense(K, 0.0)
    return residual, Kyy.inverse_root, Kyy.jitter


_compiled_factorise = default_jit(_factorise)


def _cross(exact: ExactGP, X: Float[Array, "n D"]) -> Float[Array, "NP nP"]:
    """Cov(y, f(X))."""
    return jnp.where(exact.seen[:, None], exact.prior.covariance(exact.x, X), 0.0)


def _mean(exact: ExactGP, X: Float[Array, "n D"]) -> Float[Array, "n P"]:
    update = exact._solve(exact.residual) @ _cross(exact, X)
    return exact.prior.mean(X) + update.reshape(X.shape[0], -1)


def _variance(exact: ExactGP, X: Float[Array, "n D"]) -> Float[Array, "n P"]:
    prior = mix_variance(exact.prior, exact.prior.Kff_diag(X))
    A = exact.inverse_root @ _cross(exact, X)
    variance = prior - jnp.sum(A**2, axis=0).reshape(prior.shape)
    return jnp.maximum(variance, jnp.finfo(X.dtype).eps * prior)


def _output_covariance(exact: ExactGP, X: Float[Array, "n D"]) -> Float[Array, "n P P"]:
    def one(x: Float[Array, " D"]) -> Float[Array, "P P"]:
        return mix_covariance(exact.prior, exact.prior.Kff(x[None]))[0, :, 0]

    A = (exact.inverse_root @ _cross(exact, X)).reshape(-1, X.shape[0], exact.prior.num_outputs)
    return jax.vmap(one)(X) - jnp.einsum("inp,inq->npq", A, A)


@default_jit
def _covariance(exact: ExactGP, X: Float[Array, "n D"]) -> Float[Array, "nP nP"]:
    A = exact.inverse_root @ _cross(exact, X)
    return exact.prior.covariance(X) - A.T @ A


@default_jit
def _sample(exact: ExactGP, key: Array, X: Array, shape: tuple[int, ...]) -> Array:
    root = sampling_root(_covariance(exact, X))
    z = jax.random.normal(key, (*shape, root.shape[0]), root.dtype)
    deviations = (z @ root.T).reshape(*shape, X.shape[0], -1)
    return jnp.broadcast_to(_mean(exact, X), deviations.shape) + deviations


@default_jit
def _blocks(exact: ExactGP, X: Float[Array, "n D"], fn: Callable) -> Array:
    """fn(exact, rows) in blocks of rows, to limit the memory of Cov(y, f(X))."""
    return in_blocks(lambda X: fn(exact, X), X, BLOCK_ENTRIES // (exact.residual.size * exact.prior.num_outputs))


def _noise(value: Any, shape: tuple[int, ...], dtype: Any, mask: Any) -> Float[Array, "N P"]:
    """Broadcast the noise variances to labels of this shape, and check them where they are concrete."""
    value = as_numbers("noise_variance", value).astype(dtype)
    (N, P), given = shape, list(value.shape)
    if value.ndim == 1 and value.shape[0] not in (1, P):
        value = value[:, None]
    if value.ndim > 2 or any(n not in (1, m) for n, m in zip(value.shape[::-1], (P, N), strict=False)):
        raise ValueError(
            f"noise_variance has shape {given}; pass one number, or [{P}], [{N}] or [{N}, {P}] for each "
            "output, datum or label."
        )
    noise = jnp.broadcast_to(value, shape)
    if not any(isinstance(a, jax.core.Tracer) for a in (noise, mask)):
        seen = np.asarray(noise)[np.asarray(mask)]
        bad = seen[~(np.isfinite(seen) & (seen >= 0))]
        if bad.size:
            raise ValueError(f"noise_variance must be finite and at least 0, got {bad[0]}; pass the variance of y − f.")
    return noise


def _check_regular(jitter: Float[Array, ""], noise: Float[Array, ""]) -> None:
    """Raise a ValueError if jitter was added, since the posterior would be that of another model."""
    if not isinstance(jitter, jax.core.Tracer) and not jitter == 0:
        raise ValueError(
            f"the covariance of the labels is not positive definite with noise_variance {noise:.3g}; pass a larger "
            "noise_variance, or drop repeated inputs."
        )
