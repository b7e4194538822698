"""The cache of a sparse GP: the part of its predictions that does not depend on the inputs."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from inducing._xla.matmul import lower_gram, products
from inducing.layers import qu
from inducing.linalg import AbstractCovariance, Dense, batched


class Quadratic(NamedTuple):
    """The posterior as a linear and a quadratic form of Kuf.

        α = Kuu⁻¹ m_v,      C = Kuu⁻¹ (Kuu − S_vv) Kuu⁻¹
        mean = Kfu α,       variance = Kff − diag(Kfu C Kuf)

    It needs one large matrix product, while the factors of Kuu need two. But the variance suffers from cancellation if
    Kuu is ill-conditioned; `accurate` says whether enough digits are left.
    """

    alpha: Float[Array, "L M"]
    C: Float[Array, "L M M"]
    accurate: Bool[Array, ""]


class Cache(NamedTuple):
    """The factorised Kuu, mean and root of q(w), and the quadratic form if there is one."""

    Kuu: AbstractCovariance
    mean: Float[Array, "L M"]
    root: qu.Root
    quadratic: Quadratic | None = None


def with_quadratic(factors: Cache) -> Cache:
    """The cache with its quadratic form, if there is one.

    There is one for a dense Kuu, latents that q(u) does not couple, and double precision. In float32 the quadratic form
    would give negative variances.
    """
    if not isinstance(factors.Kuu, Dense) or qu.is_coupled(factors.root) or factors.mean.dtype != jnp.float64:
        return factors
    L, M = factors.mean.shape
    Kuu = qu.repeat(factors.Kuu, L)
    root = qu.expand(factors.root)
    rest = jnp.eye(M, dtype=root.dtype)[None] - lower_gram(root)
    transposed = jnp.swapaxes(Kuu.inverse_root, 1, 2)
    C = products(transposed, jnp.swapaxes(products(transposed, rest, "upper"), 1, 2), "upper")
    alpha = batched("root_solve_transpose", Kuu, factors.mean[..., None])[..., 0]
    # The rounding error of a variance is about 100 ε max|C| k². The smallest variances are about those at the features.
    smallest = jnp.min(jnp.sum(qu.colour(root, factors.Kuu, L) ** 2, axis=2), axis=1)
    scale = jnp.mean(batched("diagonal", Kuu), axis=1)
    lost = 100.0 * jnp.finfo(C.dtype).eps * jnp.max(jnp.abs(C), axis=(1, 2)) * scale**2
    return factors._replace(quadratic=Quadratic(alpha, C, jnp.all(lost <= 1e-4 * smallest)))


def settled(cache: Any) -> Any:
    """A concrete cache of any layer, without the quadratic forms in it that are not accurate.

    The caches of sparse GPs may be anywhere in the pytree, so a layer that contains a sparse GP can simply return its
    cache.

    Examples:
        >>> settled(None) is None
        True
    """
    return jax.tree.map(
        lambda part: _without_quadratic(part) if _has_quadratic(part) and not part.quadratic.accurate else part,
        cache,
        is_leaf=_has_quadratic,
    )


def with_cache(run: Callable[[Any], Any], cache: Any) -> Any:
    """run(cache) in traced code, with quadratic forms left out unless all of them are accurate.

    The choice is made when the program runs; `settled` makes it before a program is compiled.

    Examples:
        >>> with_cache(lambda cache: cache, None) is None
        True
    """
    parts = [part for part in jax.tree.leaves(cache, is_leaf=_has_quadratic) if _has_quadratic(part)]
    if not parts:
        return run(cache)
    accurate = functools.reduce(jnp.logical_and, [part.quadratic.accurate for part in parts])

    def careful(cache: Any) -> Any:
        return run(jax.tree.map(_without_quadratic, cache, is_leaf=_has_quadratic))

    return jax.lax.cond(accurate, run, careful, cache)


def _has_quadratic(part: Any) -> bool:
    return isinstance(part, Cache) and part.quadratic is not None


def _without_quadratic(part: Any) -> Any:
    return part._replace(quadratic=None) if _has_quadratic(part) else part
