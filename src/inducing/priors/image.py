"""Image-convolutional processes: one GP over patches, evaluated at every patch of an image."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import in_blocks
from inducing.data import some_rows
from inducing.declared import shown
from inducing.kernels.base import AbstractKernel
from inducing.means import AbstractMean, as_mean
from inducing.parameters import as_whole, at_least_one, dtype_of, real
from inducing.priors.base import AbstractPrior
from inducing.priors.independent import Independent, Latents, as_independent, columns, own_means
from inducing.priors.latents import BLOCK_ENTRIES, inputs_of_latents, over_latents


class ImageConvolution(AbstractPrior):
    """A GP over images that is made of a GP over patches (section 2.4; van der Wilk et al. 2017).

        f(x)[i] = g(x[i])                  without weights: the responses of the I patches x[i] of an image x
        f(x) = 1/I Σ_i w_i g(x[i])         with weights: their weighted mean

    An input is a flattened image [H·W·C]. Inducing points are patches [M, h·w·C]. Sums over patches run in blocks of
    images, to save memory.

    Args:
        latents: the GP or kernel of patches, or a sequence of them.
        image_shape: (H, W) or (H, W, C).
        patch_shape: (h, w). A patch contains all channels and is flattened to [h·w·C].
        stride: how many pixels patches are apart, in rows and columns.
        weights: w [I], which are trained; True for ones; None for the responses themselves.
        num: how many latents share a single GP. There are num·I responses, those of one latent together, or num
            weighted means.
        mean: one of `ig.means` of images with values [N] or [N, P], or a number; zero if None.

    Raises:
        ValueError: if the shapes of images, patches, weights or latents do not fit.

    Examples:
        >>> import inducing as ig
        >>> k = ig.kernels.SquaredExponential()
        >>> responses = ig.priors.ImageConvolution(k, image_shape=(5, 5), patch_shape=(3, 3))
        >>> classes = ig.priors.ImageConvolution(k, (28, 28), (4, 4), stride=2, weights=True, num=10)
        >>> responses.num_outputs, classes.num_outputs, classes.num_patches
        (9, 10, 169)
    """

    latents: Independent
    weights: Float[Array, " I"] | None = real()
    mean_function: AbstractMean
    image_shape: tuple[int, int, int] = eqx.field(static=True)
    patch_shape: tuple[int, int] = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    mixing = None

    def __init__(
        self,
        latents: Latents,
        image_shape: Sequence[int] | np.ndarray,
        patch_shape: Sequence[int] | np.ndarray,
        stride: int = 1,
        weights: Any = None,
        num: int = 1,
        mean: Any = None,
    ):
        H, W, C = (*_whole_numbers("image_shape", image_shape, (2, 3)), 1)[:3]
        h, w = _whole_numbers("patch_shape", patch_shape, (2,))
        self.image_shape, self.patch_shape, self.stride = (H, W, C), (h, w), as_whole(stride)
        self._check_patches()  # their number is that of the weights
        self.latents = as_independent(latents, num)
        if num not in (1, self.latents.num):
            raise ValueError(f"latents holds {self.latents.num} GPs but num is {num}; leave num out.")
        self.mean_function = as_mean(mean)
        if isinstance(weights, bool):
            weights = jnp.ones(self.num_patches, dtype_of(self.latents)) if weights else None
        self.weights = weights

    def __check_init__(self):
        self._check_patches()
        I = self.num_patches
        if self.weights is not None and self.weights.shape != (I,):
            raise ValueError(
                f"weights must have one entry for each of the {I} patches, got shape {self.weights.shape}."
            )

    def _check_patches(self) -> None:
        """Raise a ValueError unless the patches cover the image."""
        stride = at_least_one("stride", self.stride)
        _whole_numbers("image_shape", self.image_shape, (3,))
        for name, size, patch in zip(("high", "wide"), self.image_shape, self.patch_shape, strict=False):
            at_least_one("each number of patch_shape", patch)
            if patch > size or (size - patch) % stride:
                raise ValueError(
                    f"patches {patch} pixels {name} and {stride} apart do not cover an image {size} pixels {name}; "
                    f"choose them so that {size} − patch is a multiple of the stride."
                )

    @property
    def num_patches(self) -> int:
        """The number I of patches of an image."""
        (H, W, _), (h, w), s = self.image_shape, self.patch_shape, self.stride
        return ((H - h) // s + 1) * ((W - w) // s + 1)

    @property
    def num_latents(self) -> int:
        return self.latents.num

    @property
    def num_outputs(self) -> int:
        return self.num_latents * self.num_sites

    @property
    def num_sites(self) -> int:
        return self.num_patches if self.weights is None else 1

    @property
    def kernels(self) -> tuple[AbstractKernel, ...]:
        return self.latents.kernels

    @property
    def smoothness(self) -> int | float:
        return self.latents.smoothness

    @property
    def group_size(self) -> int:
        return self.num_sites  # the responses of one latent

    def mean_functions(self):
        return ((None, self.mean_function), *own_means(self.latents))

    def latent_inputs(self, X):
        images = np.asarray(some_rows(X), float)  # NumPy: inputs may be concrete while the model is traced
        pixels = self._pixels(images.shape[1])
        return images[:, pixels].reshape(-1, pixels.shape[1])

    def patches(self, X: Float[Array, "N HWC"]) -> Float[Array, "N I hwC"]:
        """Cut images into patches, for example to choose inducing patches among them.

        Args:
            X: flattened images [N, H·W·C].

        Returns:
            Their patches [N, I, h·w·C].
        """
        return X[:, self._pixels(X.shape[1])]

    def _pixels(self, columns: int) -> np.ndarray:
        """The numbers [I, h·w·C] of the columns in each patch."""
        H, W, C = self.image_shape
        if columns != H * W * C:
            raise ValueError(
                f"the images have {columns} entries, but image_shape {self.image_shape} needs {H * W * C}."
            )
        h, w = self.patch_shape
        numbers = np.arange(H * W * C).reshape(H, W, C)
        corners = [(i, j) for i in range(0, H - h + 1, self.stride) for j in range(0, W - w + 1, self.stride)]
        return np.stack([numbers[i : i + h, j : j + w].reshape(-1) for i, j in corners])

    def input_columns(self, latent: int) -> int:
        H, W, C = self.image_shape
        return H * W * C

    def mean(self, X):
        own = self._sites_of(self.latents.mean)(X)  # [N, L, J]
        return own.reshape(X.shape[0], -1) + columns(self.mean_function(X), self.num_outputs)

    def mu_u(self, features):
        return self.latents.mu_u(features)

    def Kuu(self, features, jitter):
        return self.latents.Kuu(features, jitter)

    def Kuf(self, features, X):
        I = self.num_patches

        def rows(kernel, own, X: Float[Array, "n HWC"]) -> Float[Array, "n M J"]:
            patches = self.patches(X).reshape(X.shape[0] * I, -1)
            with inputs_of_latents(f"the features of ImageConvolution are those of patches [{patches.shape[1]}]"):
                K = own.Kuf(kernel, patches)
            return jnp.swapaxes(self._read(K.reshape(-1, X.shape[0], I)), 0, 1)

        def latent(kernel, own) -> Float[Array, "M N J"]:
            K = in_blocks(lambda x: rows(kernel, own, x), X, BLOCK_ENTRIES // (I * own.num_features))
            return jnp.swapaxes(K, 0, 1)

        return over_latents(latent, self.latents.kernels, features)

    def Kff(self, X, X2=None):
        Y, I = X if X2 is None else X2, self.num_patches

        def latent(kernel, _) -> Float[Array, "N J N2 J"]:
            def one(x: Float[Array, "1 HWC"]) -> Float[Array, "1 J N2 J"]:
                def several(y: Float[Array, "n HWC"]) -> Float[Array, "n J J"]:
                    K = kernel.gram(self.patches(x)[0], self.patches(y).reshape(y.shape[0] * I, -1))
                    K = self._read(K.reshape(I, -1, I))  # [I, n, J]
                    return jnp.moveaxis(self._read(jnp.moveaxis(K, 0, -1)), 2, 1)  # [n, J of x, J of y]

                return jnp.swapaxes(in_blocks(several, Y, BLOCK_ENTRIES // I**2), 0, 1)[None]

            return in_blocks(one, X, 1)

        return over_latents(latent, self.latents.kernels)

    def Kff_diag(self, X):
        def rows(kernel, X: Float[Array, "n HWC"]) -> Float[Array, "n J"]:
            if self.weights is None:
                return kernel.diag(self.patches(X).reshape(X.shape[0] * self.num_patches, -1)).reshape(X.shape[0], -1)
            w = self.weights / self.num_patches
            return jax.vmap(lambda patches: w @ kernel.gram(patches) @ w)(self.patches(X))[:, None]

        size = BLOCK_ENTRIES // self.num_patches ** (1 if self.weights is None else 2)
        return over_latents(lambda k, _: in_blocks(lambda x: rows(k, x), X, size), self.latents.kernels)

    def draw_latents(self, key, num, dim):
        h, w = self.patch_shape
        g, _ = self.latents.draw_latents(key, num, h * w * self.image_shape[2])
        size = BLOCK_ENTRIES // (self.num_patches * self.num_latents * num)
        return g, lambda X: in_blocks(self._sites_of(g), X, size)

    def _sites_of(self, g):
        """Return the sites [n, L, J] of latent functions g: [n, hwC] → [n, L] as a function of images."""

        def sites(X: Float[Array, "n HWC"]) -> Float[Array, "n L J"]:
            values = g(self.patches(X).reshape(X.shape[0] * self.num_patches, -1))
            return self._read(jnp.swapaxes(values.reshape(X.shape[0], self.num_patches, -1), 1, 2))

        return sites

    def _read(self, values: Float[Array, "a b I"]) -> Float[Array, "a b J"]:
        """Reduce values at the I patches to the J sites: all of them, or their weighted mean."""
        return values if self.weights is None else (values @ (self.weights / self.num_patches))[..., None]


def _whole_numbers(name: str, value: Any, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of an image or a patch as a tuple of int, or a ValueError."""
    sizes = tuple(value) if isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1 else ()
    if len(sizes) not in lengths:
        form = "(H, W) or (H, W, C)" if 3 in lengths else "(h, w)"
        raise ValueError(f"{name} must be {form}, got {shown(value)}.")
    return tuple(at_least_one(f"each number of {name}", n) for n in sizes)
