"""The output-as-input view: any multioutput prior as a scalar prior over rows (x, p)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import in_blocks
from inducing.kernels.base import AbstractKernel, Points, as_points, symmetric
from inducing.priors.base import AbstractPrior, dense_weights, mix_covariance
from inducing.priors.latents import BLOCK_ENTRIES, inputs_of_latents, repeat
from inducing.priors.matrix_valued import output_index, pick


def as_input(prior: AbstractPrior) -> "OutputAsInput":
    """View a multioutput prior as a scalar prior whose inputs contain the number of the output (section 2.4).

        f(x, p) = f_p(x)

    With this view each row of the data is a label of one output, so that different outputs can be observed and
    predicted at different inputs. The view has the same latents as the prior, and therefore the same features and q(u):
    inducing points have no column for p. For priors with several sites (smoothed values, derivatives, patches), all
    sites of a row are computed and one is kept, in blocks of rows.

    Args:
        prior: any prior with P outputs.

    Returns:
        A prior with one output and inputs (x, p) [N, D + 1], whose last column is the number p = 0, …, P − 1.

    Raises:
        TypeError: if `prior` is not a prior.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> prior = ig.priors.LMC([[1.0], [2.0]], ig.kernels.SquaredExponential())
        >>> rows = jnp.array([[0.3, 0.0], [0.3, 1.0]])
        >>> ig.priors.as_input(prior).covariance(rows).tolist()
        [[1.0, 2.0], [2.0, 4.0]]
    """
    return OutputAsInput(prior)


class OutputAsInput(AbstractPrior):
    """The prior that `as_input` returns.

    The only site of a latent at (x, p) is its contribution to output p, W[p, l] s_l[p mod J](x).

    Args:
        prior: the prior that is viewed.
    """

    prior: AbstractPrior
    num_outputs = 1
    num_sites = 1
    mixing = None
    smoothness = 0  # in p. For derivatives in x, view the derivative of the prior: as_input(Derivative(prior, dim))
    indexes_outputs = True

    def __check_init__(self):
        if not isinstance(self.prior, AbstractPrior):
            raise TypeError(f"prior must be a prior such as ig.priors.LMC, got {type(self.prior).__name__}.")

    @property
    def num_latents(self) -> int:
        return self.prior.num_latents

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return self.prior.kernels

    @property
    def kernel(self) -> AbstractKernel:
        """The kernel of rows, k((x, p), (x', q)) = Cov(f_p(x), f_q(x'))."""
        return OutputKernel(self.prior)

    def input_columns(self, latent: int) -> int:
        return self.prior.input_columns(latent) + 1

    def mean_functions(self):
        return self.prior.mean_functions()

    def latent_inputs(self, X):
        return self.prior.latent_inputs(X[:, :-1])

    def check_inputs(self, X):
        check_rows(self.prior, X)
        self.prior.check_inputs(X[:, :-1])

    def start(self, likelihood, x, y):
        if len(x) != len(y):
            return super().start(likelihood, x, y)
        latent = _start_of_rows(likelihood, np.asarray(x)[:, -1].astype(int), y, self.prior.num_outputs)
        amplitudes = self.prior.start_amplitudes(x[:, :-1], latent.variance)
        return latent.own + self.prior.start_means(latent.centre) + amplitudes

    def start_means(self, centre):
        return []  # only `start` knows which outputs the labels belong to

    def mean(self, X):
        return pick(self.prior.mean(self._checked(X)[:, :-1]), X)[:, None]

    def mu_u(self, features):
        return self.prior.mu_u(features)

    def Kuu(self, features, jitter):
        return repeat(self.prior.Kuu(features, jitter), self.num_latents)

    def Kuf(self, features, X):
        first = features[0] if isinstance(features, tuple) else features

        def rows(X: Float[Array, "n D1"]) -> Float[Array, "n K M 1"]:
            with inputs_of_latents("the features of as_input are those of the prior, of inputs without p"):
                K = self.prior.Kuf(features, X[:, :-1])
            return jnp.moveaxis(jnp.take_along_axis(K, self._site(X)[None, None, :, None], axis=3), 2, 0)

        K = self._in_blocks(rows, self._checked(X), first.num_features * self.num_latents)
        return jnp.moveaxis(K, 0, 2) * self._weight(X)[:, None, :, None]

    def Kff(self, X, X2=None):
        X2 = X if X2 is None else self._checked(X2)

        def rows(X: Float[Array, "n D1"]) -> Float[Array, "n K 1 N2 1"]:
            K = self.prior.Kff(X[:, :-1], X2[:, :-1])
            K = jnp.take_along_axis(K, self._site(X)[None, :, None, None, None], axis=2)
            return jnp.moveaxis(jnp.take_along_axis(K, self._site(X2)[None, None, None, :, None], axis=4), 1, 0)

        K = self._in_blocks(rows, self._checked(X), X2.shape[0] * self.num_latents * self.prior.num_sites)
        K = jnp.moveaxis(K, 0, 1)
        return K * self._weight(X)[:, :, None, None, None] * self._weight(X2)[:, None, None, :, None]

    def latent_variances(self, X):
        return self.prior.latent_variances(X[:, :-1])

    def Kff_diag(self, X):
        K = self.prior.Kff_diag(self._checked(X)[:, :-1])
        return jnp.take_along_axis(K, self._site(X)[None, :, None], axis=2) * self._weight(X)[..., None] ** 2

    def draw_latents(self, key, num, dim):
        g, sites = self.prior.draw_latents(key, num, dim - 1)

        def chosen(X: Float[Array, "n D1"]) -> Float[Array, "n L 1"]:
            s = jnp.take_along_axis(sites(self._checked(X)[:, :-1]), self._site(X)[:, None, None], axis=2)
            return s * self._weight(X).T[..., None]

        return g, chosen

    def _in_blocks(self, fn: Callable, X: Array, entries: int) -> Array:
        """fn of the rows of X, in blocks if there are several sites, since all are computed and one is kept."""
        J = self.prior.num_sites
        return fn(X) if J == 1 else in_blocks(fn, X, BLOCK_ENTRIES // (J * entries))

    def _site(self, X: Array) -> Array:
        return output_index(X) % self.prior.num_sites

    def _weight(self, X: Array) -> Float[Array, "L N"]:
        return dense_weights(self.prior, X.dtype)[output_index(X)].T

    def _checked(self, X: Array) -> Array:
        check_rows(self.prior, X)
        return X


def check_rows(prior: AbstractPrior, X: Float[Array | np.ndarray, "N D1"]) -> None:
    """Raise a ValueError unless the last column of X [N, D + 1] holds numbers of outputs. Traced values are skipped."""
    if X.shape[1] < 2:
        raise ValueError("as_input takes rows (x, p), the number of the output in the last column; got one column.")
    if isinstance(X, jax.core.Tracer):
        return
    p, P = np.asarray(X)[:, -1], prior.num_outputs
    wrong = p[(p != np.round(p)) | (p < 0) | (p >= P)]
    if wrong.size:
        raise ValueError(
            f"the last column of the inputs holds {wrong[0]}; with as_input it is the number of the output, "
            f"from 0 to {P - 1}."
        )


def _start_of_rows(likelihood: Any, p: np.ndarray, y: np.ndarray, P: int) -> Any:
    """What the labels y [N, 1] of outputs p [N] say about all P outputs.

    The likelihood gets one column for each output that has labels. The other outputs get no centre, and the mean of
    the variances.
    """
    seen = np.unique(p[np.isfinite(y[:, 0])])
    latent = likelihood.start(np.where(p[:, None] == seen[None], y, np.nan))
    centre, variance = np.full(P, np.nan), np.full(P, latent.variance.mean())
    centre[seen], variance[seen] = latent.centre, latent.variance
    return latent._replace(centre=centre, variance=variance)


class OutputKernel(AbstractKernel):
    """The kernel of rows, `as_input(prior).kernel`.

        k((x, p), (x', q)) = Cov(f_p(x), f_q(x'))

    Args:
        prior: the multioutput prior.
    """

    prior: AbstractPrior
    smoothness = 0  # in p

    @property
    def continuous_smoothness(self) -> int | float:
        return self.prior.smoothness

    def has_derivative(self, columns: tuple[int, ...], dim: int | None = None) -> bool:
        if dim is not None and dim - 1 in columns:
            return False  # in p
        return self.prior.has_derivative(columns, None if dim is None else dim - 1)

    def check_inputs(self, X):
        OutputAsInput(self.prior).check_inputs(X)

    def __call__(self, x: Float[Array, " D1"], y: Float[Array, " D1"]) -> Float[Array, ""]:
        K = mix_covariance(self.prior, self.prior.Kff(x[None, :-1], y[None, :-1]))
        return K[0, x[-1].astype(int), 0, y[-1].astype(int)]

    def gram(self, X: Points, X2: Points | None = None) -> Float[Array, "N N2"]:
        X, X2 = as_points(self, X, X2)
        for rows in (X,) if X2 is None else (X, X2):
            check_rows(self.prior, rows)
        K = jax.vmap(lambda x: jax.vmap(lambda y: self(x, y))(X if X2 is None else X2))(X)
        return symmetric(K) if X2 is None else K

    def diag(self, X: Points) -> Float[Array, " N"]:
        X, _ = as_points(self, X)
        return jax.vmap(lambda x: self(x, x))(X)

    def random_features(self, key, num, dim):
        raise TypeError(
            "the kernel of as_input(prior) has no random features, so it has no function draws; draw from the prior "
            "itself, or from as_input(prior)."
        )
