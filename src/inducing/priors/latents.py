"""The same computation for several latents: equal structures together, different ones in groups."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..features.base import AbstractFeatures


def over_latents(fn: Callable, kernels: Sequence, features=None) -> PyTree:
    """fn(kernel, features) for each latent, stacked along a leading axis K.

    `features` is shared (or None), or a tuple with one entry for each latent. A single kernel with shared features
    gives K = 1.
    """
    if features is None or isinstance(features, AbstractFeatures):
        return grouped(lambda kernel: fn(kernel, features), [(kernel,) for kernel in kernels])
    kernels = tuple(kernels) * len(features) if len(kernels) == 1 else kernels
    return grouped(fn, list(zip(kernels, features, strict=True)))


def grouped(fn: Callable, items: Sequence[tuple]) -> PyTree:
    """fn(*item) for each item, stacked: items of equal structure are stacked and vmapped, others go group by group."""
    groups: list[tuple[PyTree, list[int]]] = []
    split = [eqx.partition(item, eqx.is_array) for item in items]
    for i, (arrays, static) in enumerate(split):
        signature = (jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arrays), static)
        for known, members in groups:
            if eqx.tree_equal(known, signature) is True:
                members.append(i)
                break
        else:
            groups.append((signature, [i]))

    results = []
    for (_, static), members in groups:
        if len(members) == 1:
            out = fn(*items[members[0]])
            results.append(jax.tree.map(lambda a: a[None], out))
        else:
            stacked = jax.tree.map(lambda *a: jnp.stack(a), *(split[i][0] for i in members))
            results.append(jax.vmap(lambda a, static=static: fn(*eqx.combine(a, static)))(stacked))
    if len(results) == 1:
        return results[0]
    if (
        len({jax.tree.structure(r) for r in results}) > 1
        or len({str(jax.tree.map(lambda a: a.shape[1:], r)) for r in results}) > 1
    ):
        raise TypeError(
            "the latents give covariances of different kinds or sizes; use the same kind and number of features for each."
        )
    order = jnp.argsort(jnp.asarray([i for _, members in groups for i in members]))
    return jax.tree.map(lambda *a: jnp.concatenate(a)[order], *results)


def apply_features(features, g: Callable[[Array], Array], L: int) -> Float[Array, "L M"]:
    """u [L, M] of latent functions g: [n, D] → [n, L]."""
    if isinstance(features, AbstractFeatures):
        return features.apply(g).T
    return jnp.stack([f.apply(lambda Z, i=i: g(Z)[:, i]) for i, f in enumerate(features)])
