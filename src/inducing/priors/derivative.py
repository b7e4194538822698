"""The derivatives of a Gaussian process, which are a vector-valued Gaussian process."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.kernels.base import AbstractKernel
from inducing.parameters import at_least_one
from inducing.priors.base import AbstractPrior, weights


class Derivative(AbstractPrior):
    """The gradient of a scalar GP, or the flattened Jacobian of a multioutput one (section 2.4, derivative GP).

        f(x)[p·D + d] = ∂f_p/∂x_d (x),      K(x, x') = ∇_x ∇_x' k(x, x')

    The inducing variables remain features of the latents, such as their values. Derivatives of derivatives exist as far
    as the kernel is smooth.

    Args:
        prior: the prior to differentiate, with P outputs.
        dim: the number D of input columns.
        values: whether each output is followed by its derivatives, f_p, ∂f_p/∂x_1, …, ∂f_p/∂x_D. Values and gradients
            can then be observed together, with NaN in y for what was not measured.

    Raises:
        TypeError: if the prior has no derivative in mean square, or is the output-as-input view of another.
        ValueError: if `dim` is not a positive whole number.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> prior = ig.priors.Derivative(ig.GP(ig.kernels.SquaredExponential(lengthscale=[1.0, 2.0])), dim=2)
        >>> prior.covariance(jnp.zeros((1, 2))).tolist()
        [[1.0, 0.0], [0.0, 0.25]]
    """

    prior: AbstractPrior
    dim: int = eqx.field(static=True)
    values: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not isinstance(self.prior, AbstractPrior):
            raise TypeError(f"prior must be a prior such as ig.GP(kernel), got {type(self.prior).__name__}.")
        if self.prior.indexes_outputs:
            raise TypeError("rows (x, p) have no derivative in p; write as_input(Derivative(prior, dim)) instead.")
        if not self.prior.smoothness >= 1:
            kernels = {type(k).__name__ for k in jax.tree.leaves(self.prior, is_leaf=_is_kernel) if _is_kernel(k)}
            raise TypeError(
                f"this {type(self.prior).__name__} has no derivative in mean square (kernel: {', '.join(kernels)}); "
                "use a smoother kernel, such as Matern32, Matern52 or SquaredExponential."
            )
        at_least_one("dim", self.dim)

    @property
    def directions(self) -> int:
        """The number of outputs for each output of the prior: D derivatives, and its value with `values`."""
        return self.dim + int(self.values)

    @property
    def num_latents(self) -> int:
        return self.prior.num_latents

    @property
    def num_outputs(self) -> int:
        return self.prior.num_outputs * self.directions

    @property
    def num_sites(self) -> int:
        return self.prior.num_sites * self.directions

    @property
    def mixing(self) -> Float[Array, "P L"] | None:
        W = weights(self.prior)
        return None if W is None else jnp.repeat(W, self.directions, axis=0)

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return self.prior.kernels

    @property
    def smoothness(self) -> int | float:
        return self.prior.smoothness - 1

    @property
    def group_size(self) -> int:
        return self.directions * self.prior.group_size

    def mean_functions(self):
        return self.prior.mean_functions()

    def latent_inputs(self, X):
        return self.prior.latent_inputs(X)

    def start_means(self, centre):
        # Labels of derivatives say nothing about the level of the function.
        return self.prior.start_means(centre.reshape(-1, self.directions)[:, 0]) if self.values else []

    def input_columns(self, latent: int) -> int:
        return self.prior.input_columns(latent)

    def mean(self, X):
        return self._along(self.prior.mean, X).reshape(X.shape[0], -1)

    def mu_u(self, features):
        return self.prior.mu_u(features)

    def Kuu(self, features, jitter):
        return self.prior.Kuu(features, jitter)

    def Kuf(self, features, X):
        K = self._along(lambda X: self.prior.Kuf(features, X), X)
        return K.reshape(*K.shape[:3], -1)

    def Kff(self, X, X2=None):
        X2 = X if X2 is None else X2

        def inner(X2: Array) -> Array:
            K = self._along(lambda X: self.prior.Kff(X, X2), X)  # [K, N, J, N2, J2, d]
            return jnp.moveaxis(K, 5, 3)  # [K, N, J, d, N2, J2]

        K = self._along(inner, X2)  # [K, N, J, d, N2, J2, e]
        n, m = self.num_sites, X2.shape[0]
        return K.reshape(K.shape[0], X.shape[0], n, m, n)

    def Kff_diag(self, X):
        def one(x: Float[Array, " D"]) -> Float[Array, "K J"]:
            return jnp.diagonal(self.Kff(x[None], x[None])[:, 0, :, 0], axis1=1, axis2=2)

        return jnp.swapaxes(jax.vmap(one)(X), 0, 1)

    def draw(self, key, num, dim):
        g, sites = self.prior.draw(key, num, dim)

        def derivatives(X: Float[Array, "n D"]) -> Float[Array, "n L J"]:
            s = self._along(sites, X)
            return s.reshape(*s.shape[:2], -1)

        return g, derivatives

    def _along(self, fn, X: Float[Array, "N D"]) -> Float[Array, "..."]:
        """∂fn/∂x_d along a new last axis, for a function whose results for a row of X depend on that row only."""
        if X.shape[1] != self.dim:
            raise ValueError(f"Derivative has dim={self.dim} but the inputs have {X.shape[1]} columns.")
        basis = jnp.broadcast_to(jnp.eye(self.dim, dtype=X.dtype)[:, None, :], (self.dim, *X.shape))
        value, slopes = jax.vmap(lambda along: jax.jvp(fn, (X,), (along,)), out_axes=(None, -1))(basis)
        return jnp.concatenate([value[..., None], slopes], axis=-1) if self.values else slopes


def _is_kernel(node) -> bool:
    return isinstance(node, AbstractKernel)
