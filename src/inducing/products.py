"""Matrix products whose reverse pass is laid out as fast as the forward pass.

JAX transposes B in A @ B into (c̄ᵀ A)ᵀ: a product over leading axes, which runs slower on CPUs, and a transposed copy of
a wide array. `product` has the transpose Aᵀ c̄ with the small A laid out anew.
"""

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

_product = Primitive("product")
_product.def_impl(jnp.matmul)
_product.def_abstract_eval(lambda A, B: A.update(shape=(A.shape[0], B.shape[1])))
mlir.register_lowering(_product, mlir.lower_fun(jnp.matmul, multiple_results=False))
ad.defbilinear(
    _product,
    lambda c, A, B: c @ B.T,
    lambda c, A, B: product(jax.lax.optimization_barrier(A.T), c),
)


def _batched(arguments, axes):
    A, B = (a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(arguments, axes, strict=True))
    return jnp.matmul(A, B), 0


batching.primitive_batchers[_product] = _batched


def product(A: Float[Array, "m k"], B: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """A @ B, for a small A and a wide B.

    >>> product(jnp.ones((2, 3)), jnp.ones((3, 4))).shape
    (2, 4)
    """
    return _product.bind(A, B)


def products(A: Float[Array, "L m k"], B: Float[Array, "K k n"]) -> Float[Array, "L m n"]:
    """A_l B_l for each latent l: a single product if all share B (K = 1).

    >>> products(jnp.ones((3, 2, 2)), jnp.ones((1, 2, 5))).shape
    (3, 2, 5)
    """
    L, m, k = A.shape
    if B.shape[0] == 1:
        return product(A.reshape(L * m, k), B[0]).reshape(L, m, -1)
    return jax.vmap(product)(A, B)
