"""Convolution processes: every output is a sum of latent GPs, each convolved with its own smoothing kernel."""

import abc
import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import in_blocks
from inducing.features.quadrature_rules import gauss_legendre, gaussian_grid, tensor
from inducing.kernels.base import AbstractKernel
from inducing.means import AbstractMean, as_mean
from inducing.parameters import REAL, Module, at_least_one, check_part, dtype_of, fixed, positive, question, real
from inducing.priors.base import AbstractPrior
from inducing.priors.convolved_sites import ConvolvedSites, sequentially, shifted
from inducing.priors.gp import draw_kernel
from inducing.priors.independent import Independent, columns, own_means
from inducing.priors.latents import BLOCK_ENTRIES, grouped, repeat
from inducing.priors.stack import as_latents, check_rows_are_inputs, nonzero_means

# For Gaussian smoothing in 1, 2 and 3 dimensions: nodes in each dimension, and how many widths they reach.
NODES = {1: (32, 4.5), 2: (16, 4.0), 3: (8, 3.5)}


class AbstractSmoothing(Module):
    """A matrix G(t) [P, L] of smoothing kernels, functions of a displacement t [D].

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> t, c = ig.priors.GaussianSmoothing(width=[[0.5]]).rule(1, jnp.zeros(()).dtype)
        >>> round(float((c * t[..., 0] ** 2).sum()), 6)      # ∫ G(t) t² dt = 0.5²
        0.25
    """

    _such_as = "a smoothing, such as ig.priors.GaussianSmoothing(width)"

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """The numbers P of outputs and L of latents."""

    @abc.abstractmethod
    def rule(self, dim: int, dtype: jnp.dtype) -> tuple[Float[Array, "P L Q D"], Float[Array, "P L Q"]]:
        """Return a quadrature rule for the convolution with G.

            ∫ G_pl(t) h(x − t) dt ≈ Σ_q c_plq h(x − t_plq)

        Args:
            dim: the number D of input dimensions.
            dtype: the type of the arrays.

        Returns:
            Shifts t [P, L, Q, D] and coefficients c [P, L, Q].
        """

    @property
    @question
    def num_derivatives(self) -> int | float:
        """The highest order of derivatives that `derivative_rule` computes (`math.inf` for all). By default 0.

        Derivatives of a higher order act on the latents.
        """
        return 0

    @question
    def derivative_rule(
        self, columns: tuple[int, ...], dim: int, dtype: jnp.dtype
    ) -> tuple[Float[Array, "P L Q D"], Float[Array, "P L Q"]]:
        """Return a quadrature rule for a partial derivative of the convolution, with the derivative on G.

            ∂/∂x ∫ G_pl(t) h(x − t) dt = ∫ ∂G_pl(t)/∂t h(x − t) dt ≈ Σ_q c_plq h(x − t_plq)

        It needs no derivative of h, and is as accurate as the rule for the convolution itself.

        Args:
            columns: the column of x of each differentiation, one or more.
            dim: the number D of input dimensions.
            dtype: the type of the arrays.

        Returns:
            Shifts t [P, L, Q, D] and coefficients c [P, L, Q].

        Raises:
            TypeError: if the order exceeds `num_derivatives`.

        Examples:
            >>> import jax.numpy as jnp, inducing as ig
            >>> G = ig.priors.GaussianSmoothing(width=[[0.5]])
            >>> t, c = G.derivative_rule((0,), 1, jnp.zeros(()).dtype)
            >>> round(float((c * (3.0 - t[..., 0])).sum()), 6)      # the slope of h(x) = x at x = 3
            1.0
        """
        raise TypeError(f"{type(self).__name__} has no rule for derivatives; implement derivative_rule beside rule.")


class GaussianSmoothing(AbstractSmoothing):
    """Gaussian smoothing kernels.

        G_pl(t) = a_pl Π_d N(t_d | 0, s_pld²)

    The convolution has a closed form for SquaredExponential latents. For Matérn latents it is an integral over one
    number, in any number of dimensions, accurate to 1e-8 of their variance (see `AbstractKernel.smoothed`). For other
    kernels, and for latents that are priors, it is a sum over a grid of 32 nodes (16² in two dimensions, 8³ in three),
    which must be closer than a lengthscale; for wider smoothing use `Smoothing` with a larger `num`. A smoothed process
    has all derivatives, however rough the latents are, and these are about as accurate.

    Args:
        width: the standard deviations s [P, L] or [P, L, D].
        amplitude: a, one number or [P, L].

    Raises:
        ValueError: if the shapes do not fit.

    Examples:
        >>> import inducing as ig
        >>> ig.priors.GaussianSmoothing(width=[[0.1], [0.5]], amplitude=[[1.0], [-2.0]]).shape
        (2, 1)
    """

    width: Float[Array, "P L *D"] = positive()
    amplitude: Float[Array, "..."] = real(1.0)

    def __check_init__(self):
        width, amplitude = np.shape(self.width), np.shape(self.amplitude)
        if len(width) not in (2, 3) or 0 in width or amplitude not in ((), width[:2]):
            raise ValueError(
                f"GaussianSmoothing needs width [P, L] or [P, L, D] and amplitude [P, L], got width {list(width)} and "
                f"amplitude {list(amplitude)}."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.width.shape[0], self.width.shape[1]

    def variances(self, dim: int) -> Float[Array, "P L D"]:
        """The variances s² [P, L, D] for inputs of dimension `dim`."""
        s = self.width[..., None] if self.width.ndim == 2 else self.width
        if s.shape[-1] not in (1, dim):
            raise ValueError(f"GaussianSmoothing.width has {s.shape[-1]} dimensions but the inputs have {dim}.")
        return jnp.broadcast_to(s**2, (*self.shape, dim))

    def amplitudes(self) -> Float[Array, "P L"]:
        """The amplitudes a [P, L]."""
        return jnp.broadcast_to(self.amplitude, self.shape)

    def rule(self, dim, dtype):
        if dim not in NODES:
            raise TypeError(
                f"Gaussian smoothing of other latents than SquaredExponential and Matérn kernels without a mean is "
                f"integrated numerically in up to {max(NODES)} dimensions, and the inputs have {dim}."
            )
        nodes, weights = tensor(*gaussian_grid(*NODES[dim]), dim)
        shifts = jnp.sqrt(self.variances(dim))[:, :, None, :] * jnp.asarray(nodes, dtype)[None, None]
        return shifts, self.amplitudes()[..., None] * jnp.asarray(weights, dtype)[None, None]

    @property
    def num_derivatives(self) -> float:
        return math.inf

    def derivative_rule(self, columns, dim, dtype):
        # G⁽ⁿ⁾(t) = (−1/s)ⁿ Heₙ(t/s) G(t), by Hermite's recursion Heₙ₊₁(z) = z Heₙ(z) − n Heₙ₋₁(z)
        shifts, c = self.rule(dim, dtype)
        for d in sorted(set(columns)):
            s = jnp.sqrt(self.variances(dim))[:, :, None, d]
            z = shifts[..., d] / s
            previous, hermite = jnp.zeros_like(z), jnp.ones_like(z)
            for n in range(columns.count(d)):
                previous, hermite = hermite, z * hermite - n * previous
                c = -c / s
            c = c * hermite
        return shifts, c


class Smoothing(AbstractSmoothing):
    """Smoothing kernels given by any function, integrated numerically over a box.

    The quadrature rule is Gauss–Legendre. It is accurate if G is smooth in the box and vanishes outside of it.

    Args:
        function: G, a function of one displacement t [D] with values [P, L].
        lower: the lower corner of the box [D].
        upper: the upper corner of the box [D].
        num: the number of nodes in each dimension.

    Raises:
        ValueError: if the box is empty, or the shapes do not fit.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> box = ig.priors.Smoothing(lambda t: jnp.ones((2, 1)), lower=[0.0], upper=[1.0])
        >>> box.shape
        (2, 1)
    """

    function: Callable[[Array], Array]
    lower: Float[Array, " D"] = fixed(allowed=REAL)
    upper: Float[Array, " D"] = fixed(allowed=REAL)
    num: int = eqx.field(static=True, default=32)
    num_derivatives = 1  # another one would need derivatives of h at the faces of the box

    def __check_init__(self):
        lower, upper = np.shape(self.lower), np.shape(self.upper)
        if len(lower) != 1 or lower != upper:
            raise ValueError(f"Smoothing.lower and upper must both be [D], got {list(lower)} and {list(upper)}.")
        at_least_one("Smoothing.num", self.num)
        concrete = not any(isinstance(v, jax.core.Tracer) for v in (self.lower, self.upper))
        if concrete and not (np.asarray(self.lower) < np.asarray(self.upper)).all():
            raise ValueError(
                f"Smoothing integrates over a box with lower < upper in each dimension, got lower {self.lower} and "
                f"upper {self.upper}."
            )
        out = jax.eval_shape(self.function, jax.ShapeDtypeStruct(self.lower.shape, self.lower.dtype))
        if len(getattr(out, "shape", ())) != 2:
            raise ValueError(f"Smoothing.function must give a matrix [P, L] for one displacement [D], got {out}.")

    @property
    def shape(self) -> tuple[int, int]:
        return jax.eval_shape(self.function, jax.ShapeDtypeStruct(self.lower.shape, self.lower.dtype)).shape

    def rule(self, dim, dtype):
        if dim != self.lower.shape[0]:
            raise ValueError(f"Smoothing has a box of {self.lower.shape[0]} dimensions but the inputs have {dim}.")
        nodes, weights = tensor(*gauss_legendre(self.num), dim)
        size = self.upper - self.lower
        t = self.lower[None] + size[None] * jnp.asarray(nodes, dtype)
        G = jnp.moveaxis(jax.vmap(self.function)(t), 0, -1)  # [P, L, Q]
        c = G * (jnp.prod(size) * jnp.asarray(weights, dtype))[None, None]
        return jnp.broadcast_to(t, (*G.shape[:2], *t.shape)), c

    def derivative_rule(self, columns, dim, dtype):
        # Integration by parts leaves values of h at the two faces of the box that lie across the column:
        # ∂f/∂x = ∫ ∂G/∂t h(x − t) dt + ∫ G h(x − t) at the lower face − the same at the upper face
        (d,) = columns
        along = jnp.eye(dim, dtype=dtype)[d]
        slope = Smoothing(lambda t: jax.jvp(self.function, (t,), (along,))[1], self.lower, self.upper, self.num)
        parts = [slope.rule(dim, dtype)]
        nodes, weights = tensor(*gauss_legendre(self.num), dim - 1) if dim > 1 else (np.zeros((1, 0)), np.ones(1))
        size = self.upper - self.lower
        area = jnp.prod(size) / size[d] * jnp.asarray(weights, dtype)
        for end, sign in ((0.0, 1.0), (1.0, -1.0)):
            on_face = jnp.asarray(np.insert(nodes, d, end, axis=1), dtype)
            t = self.lower[None] + size[None] * on_face
            G = jnp.moveaxis(jax.vmap(self.function)(t), 0, -1)
            parts.append((jnp.broadcast_to(t, (*G.shape[:2], *t.shape)), sign * G * area[None, None]))
        shifts, coefficients = zip(*parts, strict=True)
        return jnp.concatenate(shifts, axis=2), jnp.concatenate(coefficients, axis=2)


class DerivativesOfSmoothing(AbstractSmoothing):
    """Partial derivatives of smoothing kernels, those of the first output first.

    Args:
        smoothing: G [P, L].
        derivatives: the columns of each derivative; () stands for G itself.
    """

    smoothing: AbstractSmoothing
    derivatives: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        P, L = self.smoothing.shape
        return P * len(self.derivatives), L

    def rule(self, dim, dtype):
        G = self.smoothing
        rules = [G.derivative_rule(c, dim, dtype) if c else G.rule(dim, dtype) for c in self.derivatives]
        most = max(c.shape[2] for _, c in rules)  # all get as many nodes, the last ones without weight
        shifts = [jnp.pad(t, ((0, 0), (0, 0), (0, most - t.shape[2]), (0, 0))) for t, _ in rules]
        c = [jnp.pad(c, ((0, 0), (0, 0), (0, most - c.shape[2]))) for _, c in rules]
        return tuple(jnp.stack(a, axis=1).reshape(self.shape[0], *a[0].shape[1:]) for a in (shifts, c))


class ConvolutionProcess(AbstractPrior):
    """Outputs that are latent GPs convolved with smoothing kernels: eq:def_conv_gp.

        f_p(x) = μ_p(x) + Σ_l ∫ G_pl(x − z) g_l(z) dz

    The inducing variables are features of the latents g.

    Args:
        smoothing: G. `GaussianSmoothing` takes SquaredExponential and Matérn latents in any dimension, and uses a grid
            for others; `Smoothing` takes any function and uses quadrature.
        latents: a sequence of L GPs or kernels, or a single one that all latents share. Members of the sequence may be
            any priors, and so may a single one: their outputs are the functions g, as many as G has columns. Their
            convolution is then computed on the grid of the smoothing, even if that of a GP would not be.
        mean: μ, one of `ig.means` with values [N] or [N, P], or a number; zero if None.

    Raises:
        TypeError: if `smoothing` is not a smoothing.
        ValueError: if smoothing and latents differ in number.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> G = ig.priors.GaussianSmoothing(width=[[2.0], [1e-3]])      # the second output is almost the latent itself
        >>> prior = ig.priors.ConvolutionProcess(G, ig.kernels.SquaredExponential())
        >>> prior.covariance(jnp.zeros((1, 1))).round(4).tolist()      # (1 + 2·2²)^−½, (1 + 2²)^−½ and 1
        [[0.3333, 0.4472], [0.4472, 1.0]]
    """

    smoothing: AbstractSmoothing
    latents: AbstractPrior
    mean_function: AbstractMean
    mixing = None

    def __init__(self, smoothing: AbstractSmoothing, latents: Any, mean: Any = None):
        check_part("smoothing", smoothing, AbstractSmoothing)
        self.smoothing = smoothing
        self.latents = as_latents(latents, smoothing.shape[1])
        self.mean_function = as_mean(mean)

    def __check_init__(self):
        check_rows_are_inputs(self.latents, "latents")
        L, outputs = self.smoothing.shape[1], self.latents.num_outputs
        if outputs != L:
            raise ValueError(f"smoothing has {L} columns but there are {outputs} latents; it is [P, L].")

    @property
    def num_latents(self) -> int:
        return self.latents.num_latents

    @property
    def num_outputs(self) -> int:
        return self.smoothing.shape[0]

    @property
    def num_sites(self) -> int:
        return self.num_outputs

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return self.latents.kernels

    @property
    def smoothness(self) -> int | float:
        return max(self.smoothing.num_derivatives, self.latents.smoothness)

    def has_derivative(self, columns, dim=None):
        return len(columns) <= self.smoothing.num_derivatives or self.latents.has_derivative(columns, dim)

    def differentiated(self, derivatives, dim):
        if self._is_closed(dim) or max(len(c) for c in derivatives) > self.smoothing.num_derivatives:
            return None
        return ConvolutionProcess(DerivativesOfSmoothing(self.smoothing, derivatives), self.latents)

    def mean_functions(self):
        own = own_means(self.latents) if isinstance(self.latents, Independent) else nonzero_means(self.latents)
        return ((None, self.mean_function), *own)

    def latent_inputs(self, X):
        return self.latents.latent_inputs(X)

    def check_inputs(self, X):
        self.latents.check_inputs(X)

    def input_columns(self, latent: int) -> int:
        return self.latents.input_columns(latent)

    def mean(self, X):
        out = columns(self.mean_function(X), self.num_outputs)
        if isinstance(self.latents, Independent) and all(mean.is_zero for _, mean in self.latents.mean_functions()):
            return out
        shifts, c = self.smoothing.rule(X.shape[1], X.dtype)
        for p, l in itertools.product(*map(range, self.smoothing.shape)):
            own = self.latents.mean(shifted(X, shifts[p, l]))[:, l]
            out = out.at[:, p].add(own.reshape(X.shape[0], -1) @ c[p, l])
        return out

    def mu_u(self, features):
        return self.latents.mu_u(features)

    def Kuu(self, features, jitter):
        return repeat(self.latents.Kuu(features, jitter), self.num_latents)

    def Kuf(self, features, X):
        if not isinstance(self.latents, Independent):
            return ConvolvedSites(self.smoothing, self.latents).Kuf(features, X)
        each = features if isinstance(features, tuple) else (features,) * self.num_latents
        closed = self._is_closed(X.shape[1])

        def latent(kernel, own, a, b):
            def output(a: Array, b: Array) -> Float[Array, "M N"]:
                if closed and own.uses_kernel:  # these are functionals of g, which has the kernel before smoothing
                    return b * own.apply(lambda Z: kernel.smoothed(a).gram(Z, X), kernel)
                if closed:
                    return b * own.Kuf(kernel.smoothed(a), X)

                def rows(X: Float[Array, "n D"]) -> Float[Array, "n M"]:
                    return (own.Kuf(kernel, shifted(X, a)).reshape(own.num_features, X.shape[0], -1) @ b).T

                return self._in_blocks(rows, X, own.num_features * b.size).T

            return jnp.moveaxis(jax.vmap(output)(a, b), 0, -1)

        return self._grouped(latent, X, closed, each)

    def Kff(self, X, X2=None):
        if not isinstance(self.latents, Independent):
            return ConvolvedSites(self.smoothing, self.latents).Kff(X, X if X2 is None else X2)
        Y = X if X2 is None else X2
        closed = self._is_closed(X.shape[1])

        def latent(kernel, a, b):
            def pair(a1: Array, b1: Array, a2: Array, b2: Array) -> Float[Array, "N N2"]:
                if closed:
                    return b1 * b2 * kernel.smoothed(a1 + a2).gram(X, Y)

                def one(x: Float[Array, "1 D"]) -> Float[Array, "1 N2"]:
                    def several(y: Float[Array, "n D"]) -> Float[Array, " n"]:
                        return (b1 @ kernel.gram(shifted(x, a1), shifted(y, a2))).reshape(y.shape[0], -1) @ b2

                    return in_blocks(several, Y, BLOCK_ENTRIES // (b1.size * b2.size))[None]

                return in_blocks(one, X, 1)

            over = jax.vmap if closed else sequentially
            K = over(lambda a1, b1: over(lambda a2, b2: pair(a1, b1, a2, b2))(a, b))(a, b)
            return jnp.transpose(K, (2, 0, 3, 1))

        return self._grouped(latent, X, closed)

    def Kff_diag(self, X):
        if not isinstance(self.latents, Independent):
            return ConvolvedSites(self.smoothing, self.latents).Kff_diag(X)
        closed = self._is_closed(X.shape[1])

        def latent(kernel, a, b):
            def output(a: Array, b: Array) -> Float[Array, " N"]:
                if closed:
                    return b**2 * kernel.smoothed(2.0 * a).diag(X)
                return sequentially(lambda x: b @ kernel.gram(x[None] - a) @ b)(X)

            return jax.vmap(output, out_axes=-1)(a, b)

        return self._grouped(latent, X, closed)

    def draw_latents(self, key, num, dim):
        if not isinstance(self.latents, Independent):
            g, sites = self.latents.draw_latents(key, num, dim)
            return g, lambda X: ConvolvedSites(self.smoothing, self.latents).of_draw(sites, X)
        keys = tuple(jax.random.split(key, self.num_latents))  # not in `sites`, which may be traced
        closed = self._is_closed(dim)

        def latent(X, kernel, key, a, b):
            if closed:
                smoothed = _draw_smoothed(kernel, key, num, dim)
                return jax.vmap(lambda a, b: b * smoothed(X, a), out_axes=-1)(a, b)
            g = draw_kernel(kernel, key, num, dim)

            def output(a: Array, b: Array) -> Float[Array, " n"]:
                return self._in_blocks(lambda X: g(shifted(X, a)).reshape(X.shape[0], -1) @ b, X, num * b.size)

            return jax.vmap(output, out_axes=-1)(a, b)

        def sites(X: Float[Array, "n D"]) -> Float[Array, "n L P"]:
            return jnp.swapaxes(self._grouped(lambda *item: latent(X, *item), X, closed, keys), 0, 1)

        if not closed:
            return self.latents.draw_latents(key, num, dim)[0], sites  # which splits the key in the same way

        def own(X, kernel, key):
            return _draw_smoothed(kernel, key, num, dim)(X, jnp.zeros(dim, X.dtype))

        items = list(zip(self._kernels, keys, strict=True))
        return lambda X: grouped(lambda *i: own(X, *i), items).T, sites

    @property
    def _kernels(self) -> tuple[AbstractKernel, ...]:
        kernels = self.latents.kernels
        return kernels * self.num_latents if len(kernels) == 1 else kernels

    def _is_closed(self, dim: int) -> bool:
        """Whether all kernels have a closed form of the smoothing for inputs of dimension `dim`."""
        if not isinstance(self.smoothing, GaussianSmoothing) or not isinstance(self.latents, Independent):
            return False
        variance = jax.ShapeDtypeStruct((dim,), dtype_of(self.smoothing))
        return all(jax.eval_shape(kernel.smoothed, variance) is not None for kernel in self.latents.kernels)

    def _in_blocks(self, fn: Callable, X: Array, entries: int) -> Array:
        """fn of the rows of X in blocks. A row needs `entries` at the nodes of one output; all outputs run at once."""
        return in_blocks(fn, X, BLOCK_ENTRIES // (self.num_outputs * entries))

    def _grouped(self, fn: Callable, X: Array, closed: bool, *each) -> Array:
        """fn for each latent and its smoothing: variances [P, D] and amplitudes [P], or shifts and coefficients."""
        if closed and isinstance(self.smoothing, GaussianSmoothing):
            a, b = self.smoothing.variances(X.shape[1]), self.smoothing.amplitudes()
        else:
            a, b = self.smoothing.rule(X.shape[1], X.dtype)
        a, b = jnp.swapaxes(a, 0, 1), jnp.swapaxes(b, 0, 1)
        return grouped(fn, list(zip(self._kernels, *each, a, b, strict=True)))


def _draw_smoothed(kernel: AbstractKernel, key: Array, num: int, dim: int) -> Callable[[Array, Array], Array]:
    """A draw g as (X, v) ↦ ∫ N(t | 0, diag v) g(X − t) dt."""
    key_features, key_weights = jax.random.split(key)
    phi, damping = kernel.smoothed_features(key_features, num, dim)
    size = jax.eval_shape(phi, jax.ShapeDtypeStruct((1, dim), dtype_of(kernel))).shape[1]
    weights = jax.random.normal(key_weights, (size,), dtype_of(kernel))
    return lambda X, v: phi(X) @ (weights * damping(v))
