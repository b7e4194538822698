"""Train a model of a table without settings: what the estimators and the command line do."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array
from inducing.checks import check_counts
from inducing.data import Data, as_often_as_they_count
from inducing.features.points import InducingPoints
from inducing.kernels.base import AbstractKernel
from inducing.kernels.stationary import Matern52
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.means import Constant
from inducing.model import Model
from inducing.parameters import as_key
from inducing.priors.base import AbstractPrior
from inducing.priors.gp import GP
from inducing.priors.independent import Independent
from inducing.training.fit import FitResult, fit
from inducing.training.grow import grow
from inducing.training.initialise import kmeans


def train(
    data: Data,
    likelihood: AbstractLikelihood,
    *,
    kernel: AbstractKernel | None = None,
    num_inducing: int | str = "auto",
    method: str = "auto",
    steps: int | None = None,
    seconds: int | float | None = None,
    progress: bool | str = True,
    key: Array | None = None,
) -> FitResult:
    """Train a sparse GP with a constant mean on a table of numbers, in the precision of the data.

    Args:
        data: inputs and labels, which may have weights, missing labels and several outputs.
        likelihood: the likelihood of the labels.
        kernel: a kernel. By default, a Matérn 5/2 kernel with one lengthscale per column. Classes share one kernel;
            several outputs, or several latent functions of one output, have a copy each.
        num_inducing: "auto" for as many inducing points as `ig.grow` finds useful, or a number.
        method: the training method of `ig.fit`, for a given number of inducing points.
        steps: the number of training steps, for a given number of inducing points; None for the default of `ig.fit`.
        seconds: the time after which to stop training; None for no limit.
        progress: whether to show progress bars.
        key: a JAX random key (default: key 0).

    Returns:
        The `FitResult`.

    Raises:
        ValueError: if an argument is out of range, or the data do not fit the likelihood.

    Examples:
        >>> import numpy as np
        >>> import inducing as ig
        >>> X = np.linspace(0.0, 1.0, 20)
        >>> result = train(ig.Data(X, np.sin(6 * X)), ig.likelihoods.Gaussian(), progress=False)
        >>> result.model.layers[0].num_features
        20
    """
    _check_settings(num_inducing, method, steps)
    assert data.x is not None and data.y is not None
    key, dtype = as_key(key), data.x.dtype
    kernel, likelihood = _cast((_default_kernel(data) if kernel is None else kernel, likelihood), dtype)
    prior = _prior(kernel, likelihood, data.y.shape[1], dtype)
    options: dict[str, Any] = {"seconds": seconds, "progress": progress, "key": jax.random.fold_in(key, 1)}
    if num_inducing == "auto":
        return grow(Model(SparseGP(prior, InducingPoints(data.x[:1])), likelihood), data, **options)
    Z = kmeans(as_often_as_they_count(data).x, int(num_inducing), key=key)
    return fit(Model(SparseGP(prior, InducingPoints(Z)), likelihood), data, method=method, steps=steps, **options)


def _check_settings(num_inducing: int | str, method: str, steps: int | None) -> None:
    if num_inducing != "auto":
        check_counts(num_inducing=num_inducing)
    elif method != "auto" or steps is not None:
        raise ValueError(
            "method and steps are for a given number of inducing points; pass num_inducing=100 too, or limit the time "
            "by seconds."
        )


def _default_kernel(data: Data) -> AbstractKernel:
    assert data.x is not None
    return Matern52(jnp.ones(data.x.shape[1], data.x.dtype))


def _prior(kernel: AbstractKernel, likelihood: AbstractLikelihood, outputs: int, dtype: Any) -> AbstractPrior:
    """Independent functions with constant means, which start at the mean of y and are trained."""
    latents = likelihood.num_latents(outputs)
    mean = Constant(own_array(np.zeros(latents if latents > 1 else ()), dtype))
    if latents == 1:
        return GP(kernel, mean)
    shared = likelihood.class_count() is not None
    return Independent(kernel if shared else _copies(kernel, latents), num=latents, mean=mean)


def _cast(parts: Any, dtype: Any) -> Any:
    """The same parts with all real arrays in this precision."""
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, parts)


def _copies(kernel: AbstractKernel, num: int) -> list[AbstractKernel]:
    """So many kernels, with arrays of their own: what is shared would be tied."""
    return [jax.tree.map(lambda a: jnp.array(a) if eqx.is_array(a) else a, kernel) for _ in range(num)]
