"""Sums of Fourier features over data in O(N F): products of waves are waves of summed and differing frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from inducing._xla import default_jit

BLOCK = 2048


@default_jit
def fourier_sums(
    theta: Float[Array, " N"], y: Float[Array, " N"], count: Float[Array, " N"], F: int
) -> tuple[Float[Array, "M M"], Float[Array, " M"]]:
    """Σ_n w_n φ(θ_n) φ(θ_n)ᵀ and Σ_n w_n φ(θ_n) y_n of φ = (1, cos θ, …, cos Fθ, sin θ, …, sin Fθ).

    The first matrix is made of the 2F + 1 sums Σ_n w_n e^{ikθ_n}: its blocks are Toeplitz plus Hankel matrices.

    Args:
        theta: the angles θ_n [N].
        y: the labels [N].
        count: how often each label counts, w_n [N].
        F: the number of frequencies.

    Returns:
        The two sums, [M, M] and [M] with M = 2F + 1.
    """
    y = count * y
    N, size = theta.shape[0], min(BLOCK, theta.shape[0])
    blocks = -(-N // size)

    def cut(v):
        return jnp.pad(v, (0, blocks * size - N)).reshape(blocks, size)

    def add(total, block):
        t, s, v = block
        powers = _powers(jax.lax.complex(jnp.cos(t), jnp.sin(t)), 2 * F)  # e^{ikθ}, k = 1 … 2F
        weights = jnp.stack([s, v]).astype(powers.dtype)
        return total + weights @ powers, None

    zero = jnp.zeros((2, 2 * F), jax.lax.complex(theta[:1], theta[:1]).dtype)
    sums, _ = jax.lax.scan(add, zero, (cut(theta), cut(count), cut(y)))
    C = jnp.concatenate([jnp.sum(count)[None], jnp.real(sums[0])])
    S = jnp.concatenate([jnp.zeros((1,), C.dtype), jnp.imag(sums[0])])
    i = np.arange(1, F + 1)
    plus, minus = i[:, None] + i[None, :], i[None, :] - i[:, None]
    cc = 0.5 * (C[np.abs(minus)] + C[plus])
    ss = 0.5 * (C[np.abs(minus)] - C[plus])
    cs = 0.5 * (S[plus] + jnp.asarray(np.sign(minus), S.dtype) * S[np.abs(minus)])  # cos iθ sin jθ
    first = jnp.concatenate([C[:1], C[1 : F + 1], S[1 : F + 1]])
    below = jnp.concatenate([jnp.concatenate([cc, cs], 1), jnp.concatenate([cs.T, ss], 1)])
    gram = jnp.concatenate([first[None, :], jnp.concatenate([first[1:, None], below], 1)])
    return gram, jnp.concatenate([jnp.sum(y)[None], jnp.real(sums[1, :F]), jnp.imag(sums[1, :F])])


def _powers(z: Complex[Array, " n"], num: int) -> Complex[Array, "n num"]:
    """z, z², …, z^num by doubling: products are much cheaper than cosines and sines."""
    out = z[:, None]
    while out.shape[1] < num:
        out = jnp.concatenate([out, out * out[:, -1:]], axis=1)
    return out[:, :num]
