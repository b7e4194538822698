"""The same computation for several latents, vectorised over those of equal structure."""

import contextlib
from collections.abc import Callable, Generator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from inducing.features.base import AbstractFeatures, Parts
from inducing.kernels.base import AbstractKernel
from inducing.linalg import same_rank

BLOCK_ENTRIES = 2**20
"""How many entries of a kernel matrix are in memory at a time where a computation runs in blocks."""


@contextlib.contextmanager
def inputs_of_latents(what: str) -> Generator[None]:
    """Say in errors what the inputs of the latents are, where they are not the inputs x of the prior.

    Args:
        what: the beginning of the message of any ValueError inside the block.

    Examples:
        >>> with inputs_of_latents("features are those of patches"):
        ...     raise ValueError("3 columns")
        Traceback (most recent call last):
            ...
        ValueError: features are those of patches: 3 columns
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def over_latents(fn: Callable, kernels: Sequence, features=None) -> PyTree:
    """Compute fn(kernel, features) for each latent, stacked along a leading axis K.

    Args:
        fn: a function of a kernel and features.
        kernels: one kernel that all latents share, or one for each.
        features: features that all latents share, None, or a tuple with one for each latent.

    Returns:
        The results [K, …], with K = 1 for a single kernel with shared features.
    """
    if features is None or isinstance(features, AbstractFeatures):
        return grouped(lambda kernel: fn(kernel, features), [(kernel,) for kernel in kernels])
    kernels = tuple(kernels) * len(features) if len(kernels) == 1 else kernels
    return grouped(fn, list(zip(kernels, features, strict=True)))


def grouped(fn: Callable, items: Sequence[tuple]) -> PyTree:
    """Compute fn(*item) for each item and stack the results. Items of equal structure are stacked and vmapped."""
    split = [eqx.partition(item, eqx.is_array) for item in items]
    results, groups = [], _equal_structures(split)
    for static, members in groups:
        if len(members) == 1:
            out = fn(*items[members[0]])
            results.append(jax.tree.map(lambda a: a[None], out))
        else:
            stacked = jax.tree.map(lambda *a: jnp.stack(a), *(split[i][0] for i in members))
            results.append(jax.vmap(lambda a, static=static: fn(*eqx.combine(a, static)))(stacked))
    if len(results) == 1:
        return results[0]
    order = jnp.argsort(jnp.asarray([i for _, members in groups for i in members]))
    return jax.tree.map(lambda a: a[order], joined(results))


def joined(results: Sequence[PyTree]) -> PyTree:
    """Concatenate results of several latents along their leading axes."""
    results = same_rank(results)
    if (
        len({jax.tree.structure(r) for r in results}) > 1
        or len({str(jax.tree.map(lambda a: a.shape[1:], r)) for r in results}) > 1
    ):
        kinds = ", ".join(dict.fromkeys(type(r).__name__ for r in results))
        raise TypeError(
            f"the latents' features have covariances of different structures ({kinds}); use one kind of features for "
            "all latents, or wrap each latent's own as features.Union((own,)), which is always dense."
        )
    return jax.tree.map(lambda *a: jnp.concatenate(a), *results)


def _equal_structures(split: Sequence[tuple[PyTree, PyTree]]) -> list[tuple[PyTree, list[int]]]:
    """Group items that differ only in the values of their arrays: the static part of each group, and its members."""
    groups: list[tuple[PyTree, list[int]]] = []
    for i, (arrays, static) in enumerate(split):
        signature = (jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arrays), static)
        members = next((members for known, members in groups if eqx.tree_equal(known, signature) is True), None)
        if members is None:
            groups.append((signature, [i]))
        else:
            members.append(i)
    return [(static, members) for (_, static), members in groups]


def repeat(tree: PyTree, L: int) -> PyTree:
    """Broadcast arrays [K, …] of a pytree to [L, …]."""
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (L, *a.shape[1:])) if a.shape[0] != L else a, tree)


def apply_features(features, kernels: Sequence, g: Callable[[Array], Array], L: int) -> Float[Array, "L M"]:
    """Compute the features u [L, M] of latent functions.

    Args:
        features: features that all latents share, or a tuple with one for each.
        kernels: the kernels of the latents, L or one that all share.
        g: the latent functions [n, D] → [n, L].
        L: the number of latents.
    """
    shared = isinstance(features, AbstractFeatures)
    if shared and (len(kernels) == 1 or not features.uses_kernel):
        return features.apply(g, kernels[0]).T
    features = (features,) * L if shared else features
    kernels = tuple(kernels) * L if len(kernels) == 1 else kernels
    separate = isinstance(g, Separate)  # a plain value type
    own = g.columns if separate else [mapped(g, lambda v, i=i: v[:, i]) for i in range(L)]
    return jnp.stack([f.apply(h, k) for f, h, k in zip(features, own, kernels, strict=True)])


def mapped(g: Callable, fn: Callable) -> Callable:
    """Return x ↦ fn(g(x)) for a linear fn, part by part if g is a sum."""
    if isinstance(g, Parts):  # a plain value type: a function that knows its terms
        return Parts([mapped(part, fn) for part in g.parts])
    return lambda X: fn(g(X))


class Separate:
    """Functions [n, D] → [n, L] whose columns have different terms: draws of sums of different lengths.

    Args:
        together: all columns.
        columns: each column as a function [n, D] → [n], a `Parts` if it is a sum.

    Examples:
        >>> f = Parts([lambda X: X[:, 0], lambda X: X[:, 0]])
        >>> g = Separate(lambda X: jnp.stack([f(X), X[:, 0]], axis=1), [f, lambda X: X[:, 0]])
        >>> g(jnp.ones((1, 1))).tolist(), len(g.columns[0].parts)
        ([[2.0, 1.0]], 2)
    """

    def __init__(self, together: Callable, columns: Sequence[Callable]):
        self.together, self.columns = together, tuple(columns)

    def __call__(self, X: Array) -> Array:
        return self.together(X)


def shape_of_sum(kernel: AbstractKernel) -> tuple:
    """The shapes of the terms of a kernel that is a sum, and () for any other kernel.

    Examples:
        >>> import inducing as ig
        >>> k = ig.kernels.Matern32()
        >>> shape_of_sum(ig.kernels.ActiveDims(k + k, 0) + k)
        (((), ()), ())
    """
    terms = kernel.terms()
    return () if terms[0] is kernel else tuple(shape_of_sum(term) for term in terms)


def sum_of_shape(shape: tuple, leaf: Callable[[tuple[int, ...]], Callable], path: tuple[int, ...] = ()) -> Callable:
    """A function whose terms have a given shape; leaf(path) is the term with these numbers at each level."""
    if not shape:
        return leaf(path)
    return Parts([sum_of_shape(own, leaf, (*path, i)) for i, own in enumerate(shape)])


def mean_of_sum(mean: Callable, kernels: Sequence[AbstractKernel]) -> Callable:
    """Make a mean a sum of functions where the kernels are sums, since features may look at single terms.

    The mean belongs to the first term, and the others have mean zero.
    """

    def shaped(mean: Callable, shape: tuple) -> Callable:
        return sum_of_shape(shape, lambda path: (lambda X: 0.0 * mean(X)) if any(path) else mean)

    shapes = [shape_of_sum(kernel) for kernel in kernels]
    if len(set(shapes)) == 1:
        return shaped(mean, shapes[0])
    return Separate(mean, [shaped(lambda X, i=i: mean(X)[:, i], shape) for i, shape in enumerate(shapes)])
