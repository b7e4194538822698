"""Independent outputs: one scalar GP for each."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.kernels.base import AbstractKernel
from inducing.means import AbstractMean, as_mean
from inducing.parameters import as_whole, at_least_one, one_or_several
from inducing.priors.base import AbstractPrior, prior_variances, scaled_kernel
from inducing.priors.gp import GP, column, draw_kernel
from inducing.priors.latents import (
    Separate,
    apply_features,
    grouped,
    mean_of_sum,
    over_latents,
    shape_of_sum,
    sum_of_shape,
)

Latents = Any
"""What users pass for latent processes: one GP that all share, or a sequence of them. A kernel stands for its GP with
mean zero. The type is Any because `as_gp` explains what is wrong with anything else."""


class Independent(AbstractPrior):
    """Outputs that are independent GPs (section 2.4, separate independent multioutput GP).

        f_p ~ GP(μ_p, k_p),    K(x, x')[p, q] = δ_pq k_p(x, x')

    Args:
        latents: a sequence of GPs or kernels, one for each output; or a single one that all outputs share, so that Kuu
            and Kuf are computed once.
        num: the number P of outputs, needed if they share one GP.
        mean: one of `ig.means` with values [N] or [N, P], or a number. It is added to the means of the GPs.

    Raises:
        TypeError: if `latents` contains anything other than GPs and kernels.
        ValueError: if `num` is missing or does not fit.

    Examples:
        >>> import inducing as ig
        >>> separate = ig.priors.Independent([ig.GP(ig.kernels.Matern52()), ig.GP(ig.kernels.SquaredExponential())])
        >>> shared = ig.priors.Independent(ig.kernels.Matern52(), num=2, mean=ig.means.Identity())
        >>> separate.num_outputs, shared.num_outputs
        (2, 2)
    """

    latents: tuple[GP, ...]
    mean_function: AbstractMean
    num: int = eqx.field(static=True)
    num_sites = 1
    mixing = None

    def __init__(self, latents: Latents, num: int | None = None, mean: Any = None):
        num = None if num is None else at_least_one("num", num)
        alone = isinstance(latents, GP | AbstractKernel)
        self.latents = tuple(as_gp(g) for g in ([latents] if alone else one_or_several(latents)))
        if alone and num is None:
            raise ValueError("num is missing: say how many outputs share the one GP, or pass a sequence of GPs.")
        if not self.latents or (not alone and num not in (None, len(self.latents))):
            raise ValueError(f"latents holds {len(self.latents)} GPs but num is {num}; pass one GP for each output.")
        self.num = len(self.latents) if num is None else as_whole(num)
        self.mean_function = as_mean(mean)

    def __check_init__(self):
        at_least_one("num", self.num)
        if len(self.latents) not in (1, self.num):
            raise ValueError(f"latents holds {len(self.latents)} GPs but num is {self.num}; pass one for each output.")

    @property
    def num_latents(self) -> int:
        return self.num

    @property
    def num_outputs(self) -> int:
        return self.num

    @property
    def smoothness(self) -> int | float:
        return min(g.smoothness for g in self.latents)

    def has_derivative(self, columns, dim=None):
        return all(g.has_derivative(columns, dim) for g in self.latents)

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return tuple(g.kernel for g in self.latents)

    @property
    def shared_kernel(self) -> AbstractKernel | None:
        return self.latents[0].kernel if len(self.latents) == 1 else None

    def mean_functions(self):
        return ((None, self.mean_function), *own_means(self))

    def start_means(self, centre):
        starts = self.mean_function.start(centre)
        if len(self.latents) == self.num:  # one for each output
            starts = starts + [t for p, mean in own_means(self) for t in mean.start(centre[p : p + 1])]
        return starts

    def start_amplitudes(self, x, variance):
        present = prior_variances(self, x)
        if len(self.latents) < self.num:  # all outputs share one kernel, and so one factor
            return scaled_kernel(self.latents[0].kernel, present.mean(), variance.mean())
        triples = zip(self.kernels, present, variance, strict=True)
        return [t for kernel, now, wanted in triples for t in scaled_kernel(kernel, now, wanted)]

    def input_columns(self, latent: int) -> int:
        return latent

    def mean(self, X):
        own = [column(g.mean_function(X)) for g in self.latents]
        own = jnp.broadcast_to(jnp.concatenate(own, axis=1), (X.shape[0], self.num))
        return own + columns(self.mean_function(X), self.num)

    def mu_u(self, features):
        return apply_features(features, self.kernels, mean_of_sum(self.mean, self.kernels), self.num)

    def Kuu(self, features, jitter):
        return over_latents(lambda k, f: f.Kuu(k, jitter), self.kernels, features)

    def Kuf(self, features, X):
        return over_latents(lambda k, f: f.Kuf(k, X), self.kernels, features)[..., None]

    def Kff(self, X, X2=None):
        return over_latents(lambda k, _: k.gram(X, X2), self.kernels)[:, :, None, :, None]

    def Kff_diag(self, X):
        return over_latents(lambda k, _: k.diag(X), self.kernels)[..., None]

    def draw_latents(self, key, num, dim):
        keys = jax.random.split(key, self.num)
        kernels = self.kernels * self.num if len(self.kernels) == 1 else self.kernels

        def latents(choose: Callable) -> Callable[[Float[Array, "n D"]], Float[Array, "n L"]]:
            items = list(zip(kernels, keys, strict=True))
            return lambda X: grouped(lambda k, key: choose(draw_kernel(k, key, num, dim))(X), items).T

        def term(path: tuple[int, ...]) -> Callable:
            return latents(lambda f: reduce(lambda part, i: part.parts[i], path, f))

        shapes = {shape_of_sum(kernel) for kernel in kernels}
        if len(shapes) == 1:  # all are sums of as many terms, or none is a sum
            g = sum_of_shape(shapes.pop(), term)
        else:
            own = [draw_kernel(k, key, num, dim) for k, key in zip(kernels, keys, strict=True)]
            g = Separate(term(()), own)
        return g, lambda X: g(X)[..., None]


def as_gp(latent: Any) -> GP:
    """Turn a kernel into its GP with mean zero, and return a GP unchanged; raise a TypeError for anything else."""
    if isinstance(latent, AbstractKernel):
        return GP(latent)
    if not isinstance(latent, GP):
        other = "; ig.priors.Stack and ig.priors.LMC take any priors, also image-convolutional ones"
        cure = other if isinstance(latent, AbstractPrior) else ""
        got = type(latent).__name__
        raise TypeError(f"latents must be GPs such as ig.GP(ig.kernels.Matern52()), got {got}{cure}.")
    return latent


def own_means(latents: Independent) -> tuple[tuple[int, AbstractMean], ...]:
    """The mean functions of single latents, by their numbers."""
    return tuple((number, gp.mean_function) for number, gp in enumerate(latents.latents))


def as_independent(latents: Latents, num: int | None = None) -> Independent:
    """Turn latents, in any form in which users may pass them, into one prior. A single GP is shared by `num`."""
    if isinstance(latents, Independent):
        return latents
    if isinstance(latents, GP | AbstractKernel):
        return Independent(latents, num)
    return Independent(latents)


def columns(values: Array, num: int) -> Float[Array, "N P"]:
    """Return the values of a mean, [N] for all outputs or [N, P], as [N, P]."""
    if values.ndim == 1:
        return jnp.broadcast_to(values[:, None], (values.shape[0], num))
    if values.shape[1] != num:
        raise ValueError(f"the mean function gives {values.shape[1]} columns but the prior has {num} outputs.")
    return values
