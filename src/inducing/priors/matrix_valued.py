"""A general matrix-valued kernel, with inducing variables that are outputs: the costly form without structure."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.kernels.base import AbstractKernel
from inducing.means import AbstractMean, as_mean
from inducing.parameters import as_whole, at_least_one
from inducing.priors.base import AbstractPrior
from inducing.priors.gp import draw_kernel
from inducing.priors.independent import columns
from inducing.priors.latents import inputs_of_latents, mapped, mean_of_sum, over_latents

ROWS = "the features of MatrixValued are those of rows (x, p), the number of the output in the last column"


class MatrixValued(AbstractPrior):
    """A multioutput GP with any matrix-valued kernel (section 2.4, the naive form).

        f ~ GP(μ, K),    K(x, x')[p, q] = k((x, p), (x', q))

    The only latent is f itself in the output-as-input view. Inducing points are therefore rows (z, p) [M, D + 1]. With
    M of them for each output, conditioning takes O(M³ P³), so this prior is for reference and for small problems.

    Args:
        kernel: k, a scalar kernel of rows (x, p) with the number of the output in the last column, such as
            `ActiveDims(SquaredExponential(), (0,)) * ActiveDims(Coregion(W, kappa), (1,))` or `as_input(prior).kernel`.
        num_outputs: the number P of outputs.
        mean: μ, one of `ig.means` with values [N] or [N, P], or a number; zero if None.

    Raises:
        TypeError: if `kernel` is not a kernel.

    Examples:
        >>> import jax, inducing as ig
        >>> k = ig.kernels.ActiveDims(ig.kernels.SquaredExponential(), (0,))
        >>> k = k * ig.kernels.ActiveDims(ig.kernels.Coregion([[1.0], [2.0]], [0.5, 0.5]), (1,))
        >>> prior = ig.priors.MatrixValued(k, num_outputs=2)
        >>> prior.covariance(jax.numpy.zeros((1, 1))).tolist()
        [[1.5, 2.0], [2.0, 4.5]]
    """

    kernel: AbstractKernel
    mean_function: AbstractMean
    outputs: int = eqx.field(static=True)
    num_latents = 1
    mixing = None

    def __init__(self, kernel: AbstractKernel, num_outputs: int, mean: Any = None):
        self.kernel = kernel
        self.outputs = as_whole(num_outputs)
        self.mean_function = as_mean(mean)

    def __check_init__(self):
        at_least_one("num_outputs", self.outputs)

    @property
    def num_outputs(self) -> int:
        return self.outputs

    @property
    def num_sites(self) -> int:
        return self.outputs

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return (self.kernel,)

    @property
    def smoothness(self) -> int | float:
        return self.kernel.continuous_smoothness  # in x, not in the number of the output

    def has_derivative(self, columns, dim=None):
        if len(columns) <= self.smoothness:
            return True
        return self.kernel.has_derivative(columns, None if dim is None else dim + 1)

    def mean_functions(self):
        return ((None, self.mean_function),)

    def latent_inputs(self, X):
        p = np.tile(np.arange(self.outputs), len(X))
        return np.concatenate([np.repeat(np.asarray(X, float), self.outputs, axis=0), p[:, None]], axis=1)

    def input_columns(self, latent: int) -> int:
        return latent - 1

    def mean(self, X):
        return columns(self.mean_function(X), self.outputs)

    def mu_u(self, features):
        def mean(rows: Float[Array, "n D1"]) -> Float[Array, " n"]:
            return pick(self.mean(rows[:, :-1]), rows)

        return features.apply(mean_of_sum(mean, self.kernels), self.kernel)[None]

    def Kuu(self, features, jitter):
        with inputs_of_latents(ROWS):
            return over_latents(lambda k, f: f.Kuu(k, jitter), (self.kernel,), features)

    def Kuf(self, features, X):
        with inputs_of_latents(ROWS):
            K = features.Kuf(self.kernel, every_output(X, self.outputs))
        return K.reshape(1, -1, X.shape[0], self.outputs)

    def Kff(self, X, X2=None):
        rows = every_output(X, self.outputs)
        K = self.kernel.gram(rows, None if X2 is None else every_output(X2, self.outputs))
        return K.reshape(1, X.shape[0], self.outputs, -1, self.outputs)

    def Kff_diag(self, X):
        return self.kernel.diag(every_output(X, self.outputs)).reshape(1, X.shape[0], self.outputs)

    def draw_latents(self, key, num, dim):
        g = draw_kernel(self.kernel, key, num, dim + 1)
        rows = mapped(g, lambda values: values[:, None])
        return rows, lambda X: g(every_output(X, self.outputs)).reshape(-1, 1, self.outputs)


def every_output(X: Float[Array, "N D"], num: int) -> Float[Array, "NP D1"]:
    """Return rows (x, p) for every output of every input, datum by datum."""
    p = jnp.tile(jnp.arange(num, dtype=X.dtype), X.shape[0])
    return jnp.concatenate([jnp.repeat(X, num, axis=0), p[:, None]], axis=1)


def output_index(rows: Float[Array, "N D1"]) -> Any:
    """Return the numbers of the outputs, the last column of rows (x, p)."""
    return rows[:, -1].astype(int)


def pick(values: Float[Array, "N P"], rows: Float[Array, "N D1"]) -> Float[Array, " N"]:
    """Return values[n, p_n] for rows (x_n, p_n)."""
    return jnp.take_along_axis(values, output_index(rows)[:, None], axis=1)[:, 0]
