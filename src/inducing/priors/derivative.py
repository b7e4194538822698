"""The derivatives of a Gaussian process, which are a vector-valued Gaussian process."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.features.derivative import as_derivatives, differentiate
from inducing.kernels.base import AbstractKernel
from inducing.parameters import at_least_one
from inducing.priors.base import AbstractPrior, weights


class Derivative(AbstractPrior):
    """Partial derivatives of a GP, such as the gradient of a scalar one (section 2.4, derivative GP).

        f(x)[p·D + d] = ∂f_p/∂x_d (x),      K(x, x') = ∇_x ∇_x' k(x, x')

    The inducing variables remain features of the latents, such as their values. Derivatives of derivatives exist as far
    as the kernel is smooth.

    Args:
        prior: the prior to differentiate, with P outputs.
        dim: the number D of input columns, for the gradient along all of them.
        values: whether each output is followed by its derivatives, f_p, ∂f_p/∂x_1, …, ∂f_p/∂x_D. Values and gradients
            can then be observed together, with NaN in y for what was not measured.
        dims: which derivatives, instead of `dim`: a column of x, counted from 0, or a sequence of columns. An entry
            that is a tuple of columns is a derivative of higher order: [0, (0, 0)] are ∂f/∂x_0 and ∂²f/∂x_0². The
            prior may be rough along the other columns, or these may be categories.

    Raises:
        TypeError: if the prior does not have these derivatives in mean square, or is the output-as-input view of
            another.
        ValueError: if neither or both of `dim` and `dims` are given, or `dim` is not a positive whole number, or `dims`
            holds anything but columns, or a derivative twice.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> prior = ig.priors.Derivative(ig.GP(ig.kernels.SquaredExponential(lengthscale=[1.0, 2.0])), dim=2)
        >>> prior.covariance(jnp.zeros((1, 2))).tolist()
        [[1.0, 0.0], [0.0, 0.25]]
        >>> smooth = ig.kernels.ActiveDims(ig.kernels.Matern52(), 0)
        >>> rough = ig.kernels.ActiveDims(ig.kernels.Matern12(), 1)
        >>> speed_and_acceleration = ig.priors.Derivative(ig.GP(smooth * rough), dims=[0, (0, 0)])
        >>> speed_and_acceleration.covariance(jnp.zeros((1, 2))).round(3).tolist()      # variances 5/3 and 25
        [[1.667, 0.0], [0.0, 25.0]]
    """

    prior: AbstractPrior
    dim: int | None = eqx.field(static=True)
    values: bool = eqx.field(static=True)
    dims: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(self, prior: AbstractPrior, dim: int | None = None, values: bool = False, dims: Any = None):
        if not isinstance(prior, AbstractPrior):
            raise TypeError(f"prior must be a prior such as ig.GP(kernel), got {type(prior).__name__}.")
        if (dim is None) == (dims is None):
            raise ValueError("pass either dim, the number of input columns, or dims, the columns to differentiate.")
        self.prior, self.values = prior, values
        self.dim = None if dim is None else at_least_one("dim", dim)
        chosen = range(self.dim) if self.dim else dims
        self.dims = as_derivatives("dims", chosen if isinstance(chosen, Iterable) else [chosen])

    def __check_init__(self):
        if self.prior.indexes_outputs:
            raise TypeError("rows (x, p) have no derivative in p; write as_input(Derivative(prior, dim)) instead.")
        every = self.dims if self.dim is None else tuple((c,) for c in range(at_least_one("dim", self.dim)))
        if self.dims != every or as_derivatives("dims", self.dims) != self.dims:
            raise ValueError(f"dims must hold the columns of each derivative in increasing order, got {self.dims}.")
        twice = [columns for i, columns in enumerate(self.dims) if columns in self.dims[:i]]
        if twice:
            raise ValueError(f"dims holds {twice[0]} twice; a second derivative is a tuple in a list, dims=[(0, 0)].")
        self._check_smooth(self.dim)

    def _check_smooth(self, dim: int | None) -> None:
        """Raise a TypeError if a derivative does not exist. Without `dim`, the last column is not known to be one."""
        for columns in self.dims:
            if self.prior.has_derivative(columns, dim):
                continue
            rough = [c for c in columns if not self.prior.has_derivative((c,), dim)]
            where = f"along column {rough[0]}" if rough else f"along the columns {columns} together"
            kernels = {type(k).__name__ for k in jax.tree.leaves(self.prior, is_leaf=_is_kernel) if _is_kernel(k)}
            raise TypeError(
                f"this {type(self.prior).__name__} has no derivative in mean square {where} (kernel: "
                f"{', '.join(kernels)}); use a smoother kernel, such as Matern32, Matern52 or SquaredExponential, or "
                "choose other columns by dims."
            )

    @property
    def derivatives(self) -> tuple[tuple[int, ...], ...]:
        """The columns of the derivatives of each output, () for its value."""
        return ((), *self.dims) if self.values else self.dims

    @property
    def directions(self) -> int:
        """The number of outputs for each output of the prior: its derivatives, and its value with `values`."""
        return len(self.derivatives)

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
        return self.prior.smoothness - max(len(columns) for columns in self.dims)

    def has_derivative(self, columns, dim=None):
        return all(self.prior.has_derivative((*own, *columns), dim) for own in self.derivatives)

    def differentiated(self, derivatives, dim):
        both = tuple((*own, *columns) for own in self.derivatives for columns in derivatives)
        return self.prior.differentiated(both, dim)

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
        own = self._own(X)
        if own is not None:
            return own.Kuf(features, X)
        K = self._along(lambda X: self.prior.Kuf(features, X), X)
        return K.reshape(*K.shape[:3], -1)

    def Kff(self, X, X2=None):
        own = self._own(X)
        if own is not None:
            return own.Kff(X, X2)
        X2 = X if X2 is None else X2

        def inner(X2: Array) -> Array:
            K = self._along(lambda X: self.prior.Kff(X, X2), X)  # [K, N, J, N2, J2, d]
            return jnp.moveaxis(K, 5, 3)  # [K, N, J, d, N2, J2]

        K = self._along(inner, X2)  # [K, N, J, d, N2, J2, e]
        n, m = self.num_sites, X2.shape[0]
        return K.reshape(K.shape[0], X.shape[0], n, m, n)

    def Kff_diag(self, X):
        own = self._own(X)
        if own is not None:
            return own.Kff_diag(X)

        def one(x: Float[Array, " D"]) -> Float[Array, "K J"]:
            return jnp.diagonal(self.Kff(x[None], x[None])[:, 0, :, 0], axis1=1, axis2=2)

        return jnp.swapaxes(jax.vmap(one)(X), 0, 1)

    def draw_latents(self, key, num, dim):
        own = self.prior.differentiated(self.derivatives, dim)
        if own is not None:
            return own.draw_latents(key, num, dim)
        g, sites = self.prior.draw_latents(key, num, dim)

        def derivatives(X: Float[Array, "n D"]) -> Float[Array, "n L J"]:
            s = self._along(sites, X)
            return s.reshape(*s.shape[:2], -1)

        return g, derivatives

    def _own(self, X: Float[Array, "N D"]) -> AbstractPrior | None:
        """The prior of the derivatives, if the prior knows a better one than automatic differentiation gives."""
        self._check_columns(X)
        return self.prior.differentiated(self.derivatives, X.shape[1])

    def _check_columns(self, X: Float[Array, "N D"]) -> None:
        if self.dim not in (None, X.shape[1]):
            raise ValueError(f"Derivative has dim={self.dim} but the inputs have {X.shape[1]} columns.")
        most = max(max(columns) for columns in self.dims)
        if most >= X.shape[1]:
            raise ValueError(f"Derivative.dims holds column {most} but the inputs have {X.shape[1]}, counted from 0.")
        if self.dim is None:
            self._check_smooth(X.shape[1])

    def _along(self, fn: Callable, X: Float[Array, "N D"]) -> Float[Array, "..."]:
        """The derivatives along a new last axis, of a function whose results for a row of X depend on that row only."""
        self._check_columns(X)
        return differentiate(fn, X, self.derivatives)


def _is_kernel(node) -> bool:
    return isinstance(node, AbstractKernel)
