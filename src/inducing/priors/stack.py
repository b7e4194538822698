"""Several priors side by side, and linear maps of the outputs of any prior."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.features.base import AbstractFeatures
from inducing.kernels.base import AbstractKernel
from inducing.means import AbstractMean
from inducing.parameters import as_tuple, dtype_of
from inducing.priors.base import AbstractPrior, by_site, dense_weights, weights
from inducing.priors.gp import GP
from inducing.priors.independent import Independent
from inducing.priors.latents import Separate, joined, mapped, repeat


class Stack(AbstractPrior):
    """Independent priors side by side, each of which may have several outputs.

        f(x) = (f_1(x), f_2(x), …),    f_i and f_j independent

    `LMC` and `IntrinsicCoregionalisation` make one of a sequence of priors that are not all scalar GPs. The latents are
    those of the first prior, then those of the second, and so on; each may have features of its own.

    Args:
        priors: the priors; a kernel stands for its GP.

    Raises:
        TypeError: if `priors` is not a sequence of priors, or rows of one of them are (x, p) as in `as_input`.

    Examples:
        >>> import jax.numpy as jnp, inducing as ig
        >>> mixed = ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52())
        >>> both = ig.priors.Stack([mixed, ig.kernels.Matern32(variance=3.0)])
        >>> both.num_latents, both.covariance(jnp.zeros((1, 1))).tolist()
        (2, [[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    """

    priors: tuple[AbstractPrior, ...]

    def __init__(self, priors: Any):
        if not isinstance(priors, Iterable):
            raise TypeError(f"Stack.priors must be a sequence of priors, got {type(priors).__name__}.")
        self.priors = as_tuple(GP(p) if isinstance(p, AbstractKernel) else p for p in priors)

    def __check_init__(self):
        for i, prior in enumerate(self.priors):
            if not isinstance(prior, AbstractPrior):
                raise TypeError(
                    f"Stack.priors[{i}] must be a prior, such as ig.GP(kernel), got {type(prior).__name__}."
                )
            check_rows_are_inputs(prior, f"Stack.priors[{i}]")
        if not self.priors:
            raise ValueError("Stack.priors is empty; pass at least one prior.")

    @property
    def num_latents(self) -> int:
        return sum(p.num_latents for p in self.priors)

    @property
    def num_outputs(self) -> int:
        return sum(p.num_outputs for p in self.priors)

    @property
    def num_sites(self) -> int:
        return 1 if self._are_values else self.num_outputs

    @property
    def mixing(self) -> Float[Array, "P L"] | None:
        if not self._are_values or all(weights(p) is None for p in self.priors):
            return None
        blocks = [dense_weights(p, dtype_of(p)) for p in self.priors]
        return jax.scipy.linalg.block_diag(*blocks)

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        own = [p.kernels for p in self.priors]
        return tuple(
            k for ks, p in zip(own, self.priors, strict=True) for k in ks * (p.num_latents if len(ks) == 1 else 1)
        )

    @property
    def smoothness(self) -> int | float:
        return min(p.smoothness for p in self.priors)

    def has_derivative(self, columns, dim=None):
        return all(p.has_derivative(columns, dim) for p in self.priors)

    def differentiated(self, derivatives, dim):
        from inducing.priors.derivative import Derivative  # which asks the priors of this module

        own = [p.differentiated(derivatives, dim) for p in self.priors]
        if all(p is None for p in own):
            return None
        values, dims = () in derivatives, [c for c in derivatives if c]
        if values and derivatives[0] != ():
            raise TypeError(
                "a Stack of priors that differentiate their covariances in different ways needs values first."
            )
        pairs = zip(own, self.priors, strict=True)
        return Stack([Derivative(p, dims=dims, values=values) if d is None else d for d, p in pairs])

    def mean_functions(self):
        found: list[tuple[int | None, AbstractMean]] = []
        first = 0
        for prior in self.priors:
            found += [(first + (latent or 0), mean) for latent, mean in prior.mean_functions()]
            first += prior.num_latents
        return tuple(found)

    def latent_inputs(self, X):
        places = [p.latent_inputs(X) for p in self.priors]
        if len({rows.shape[1] for rows in places}) > 1:
            widths = [rows.shape[1] for rows in places]
            raise ValueError(f"the latents of the priors in a Stack have {widths} input columns; they must be as many.")
        return np.concatenate(places)

    def check_inputs(self, X):
        for prior in self.priors:
            prior.check_inputs(X)

    def input_columns(self, latent: int) -> int:
        return self.priors[0].input_columns(latent)

    def mean(self, X):
        return jnp.concatenate([p.mean(X) for p in self.priors], axis=1)

    def mu_u(self, features):
        return jnp.concatenate([p.mu_u(own) for p, own in self._each(features)])

    def Kuu(self, features, jitter):
        return joined([repeat(p.Kuu(own, jitter), p.num_latents) for p, own in self._each(features)])

    def Kuf(self, features, X):
        return self._joined([(p, repeat(p.Kuf(own, X), p.num_latents)) for p, own in self._each(features)], (3,))

    def Kff(self, X, X2=None):
        return self._joined([(p, repeat(p.Kff(X, X2), p.num_latents)) for p in self.priors], (2, 4))

    def Kff_diag(self, X):
        if self._are_values:
            return self._joined([(p, repeat(p.Kff_diag(X), p.num_latents)) for p in self.priors], (2,))
        return variances_of_sites(self, X)

    def draw_latents(self, key, num, dim):
        keys = jax.random.split(key, len(self.priors))
        draws = [p.draw_latents(k, num, dim) for p, k in zip(self.priors, keys, strict=True)]
        columns = [c for (g, _), p in zip(draws, self.priors, strict=True) for c in columns_of(g, p.num_latents)]

        def sites(X: Float[Array, "n D"]) -> Float[Array, "n L J"]:
            each = [(p, jnp.moveaxis(s(X), 1, 0)) for (_, s), p in zip(draws, self.priors, strict=True)]
            return jnp.moveaxis(self._joined(each, (2,)), 0, 1)

        return Separate(lambda X: jnp.concatenate([g(X) for g, _ in draws], axis=1), columns), sites

    @property
    def _are_values(self) -> bool:
        """Whether each latent has one site, so that outputs are mixed by a matrix."""
        return all(p.num_sites == 1 for p in self.priors)

    def _each(self, features: Any) -> list[tuple[AbstractPrior, Any]]:
        """Each prior with the features of its latents."""
        if isinstance(features, AbstractFeatures):
            return [(p, features) for p in self.priors]
        ends = np.cumsum([0, *[p.num_latents for p in self.priors]])
        own = [features[a:b] for a, b in itertools.pairwise(ends)]
        return [(p, f[0] if len(f) == 1 else f) for p, f in zip(self.priors, own, strict=True)]

    def _joined(self, arrays: Sequence[tuple[AbstractPrior, Array]], axes: tuple[int, ...]) -> Array:
        """Arrays [L_i, …] of the priors as one [L, …], with sites for all outputs along the given axes."""
        if self._are_values:
            return jnp.concatenate([a for _, a in arrays])
        out, first = [], 0
        for prior, a in arrays:
            T = site_weights(prior, a.dtype)
            for axis in axes:
                a = on_outputs(T, a, axis)
                pad = [(0, 0)] * a.ndim
                pad[axis] = (first, self.num_outputs - first - prior.num_outputs)
                a = jnp.pad(a, pad)
            first += prior.num_outputs
            out.append(a)
        return jnp.concatenate(out)


def site_weights(prior: AbstractPrior, dtype: Any) -> Float[Array, "P L J"]:
    """How much of each site of each latent is in each output.

    Examples:
        >>> import inducing as ig
        >>> slopes = ig.priors.Derivative(ig.GP(ig.kernels.Matern52()), dim=2)
        >>> site_weights(slopes, float).tolist()
        [[[1.0, 0.0]], [[0.0, 1.0]]]
    """
    J = prior.num_sites
    W = by_site(prior, dense_weights(prior, dtype))  # [P/J, J, L]
    return jnp.einsum("qjl,ji->qjli", W, jnp.eye(J, dtype=dtype)).reshape(prior.num_outputs, prior.num_latents, J)


def on_outputs(T: Float[Array, "P L J"], a: Float[Array, "L ..."], axis: int) -> Float[Array, "L ..."]:
    """What each latent contributes to each output, in place of its sites [J] along an axis.

    Examples:
        >>> on_outputs(2.0 * jnp.ones((3, 1, 1)), jnp.ones((1, 5, 1)), 2).shape
        (1, 5, 3)
    """
    return jnp.moveaxis(jnp.einsum("plj,l...j->l...p", T, jnp.moveaxis(a, axis, -1)), -1, axis)


def variances_of_sites(prior: AbstractPrior, X: Float[Array, "N D"]) -> Float[Array, "K N J"]:
    """Var(s_l(x)) from the covariance of the sites at each input."""

    def one(x: Float[Array, " D"]) -> Float[Array, "K J"]:
        return jnp.diagonal(prior.Kff(x[None])[:, 0, :, 0], axis1=1, axis2=2)

    return jnp.swapaxes(jax.vmap(one)(X), 0, 1)


def nonzero_means(latents: AbstractPrior) -> tuple[tuple[int, AbstractMean], ...]:
    """The means of latents that are not zero, each with the number of a latent.

    Examples:
        >>> import inducing as ig
        >>> prior = ig.priors.Stack([ig.GP(ig.kernels.Matern52()), ig.GP(ig.kernels.Matern52(), 1.0)])
        >>> [number for number, _ in nonzero_means(prior)]
        [1]
    """
    return tuple((latent or 0, mean) for latent, mean in latents.mean_functions() if not mean.is_zero)


def columns_of(g: Callable, num: int) -> tuple[Callable, ...]:
    """Drawn latents [n, D] → [n, num] as functions [n, D] → [n]."""
    if isinstance(g, Separate):  # a plain value type
        return g.columns
    return tuple(mapped(g, lambda v, i=i: v[:, i]) for i in range(num))


def check_rows_are_inputs(prior: AbstractPrior, name: str) -> None:
    """Raise a TypeError if rows are (x, p), the number of an output last."""
    if prior.indexes_outputs:
        raise TypeError(f"{name} takes rows (x, p); pass the prior itself, and apply as_input to the whole.")


def as_latents(latents: Any, num: int | None = None) -> AbstractPrior:
    """Turn latents, in any form in which users may pass them, into one prior whose outputs they are.

    Args:
        latents: GPs, kernels or priors in a sequence, or a single one. A single GP or kernel is shared by all.
        num: the number of latents that share a single GP.

    Examples:
        >>> import inducing as ig
        >>> k = ig.kernels.Matern52()
        >>> type(as_latents([k, k])).__name__, type(as_latents([k, ig.priors.LMC([[1.0]], k)])).__name__
        ('Independent', 'Stack')
    """
    if isinstance(latents, GP | AbstractKernel):
        return Independent(latents, num)
    if isinstance(latents, AbstractPrior):
        check_rows_are_inputs(latents, "latents")
        return latents
    latents = as_tuple(latents)
    other = isinstance(latents, tuple) and any(isinstance(g, AbstractPrior) and not isinstance(g, GP) for g in latents)
    return Stack(latents) if other else Independent(latents)
