"""The same computation for several latents: equal structures together, different ones in groups."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..features.base import AbstractFeatures


def over_latents(fn: Callable, kernels: Sequence, features) -> PyTree:
    """fn(kernel, features) for each latent, stacked along a leading axis K.

    Kernels (with their features) of equal structure are stacked and vmapped; what differs in structure is
    computed group by group. `features` is shared, or a tuple with one entry for each kernel. A single kernel
    with shared features gives K = 1.
    """
    shared = isinstance(features, AbstractFeatures)
    if not shared and len(kernels) == 1:
        kernels = tuple(kernels) * len(features)
    items = [
        (k,) if shared else (k, f)
        for k, f in zip(kernels, (features,) * len(kernels) if shared else features, strict=True)
    ]

    def call(*item):
        return fn(item[0], features if shared else item[1])

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
            out = call(*items[members[0]])
            results.append(jax.tree.map(lambda a: a[None], out))
        else:
            stacked = jax.tree.map(lambda *a: jnp.stack(a), *(split[i][0] for i in members))
            results.append(jax.vmap(lambda a, static=static: call(*eqx.combine(a, static)))(stacked))
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
