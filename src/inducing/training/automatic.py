"""Train a model of a table without settings: what the estimators and the command line do."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from inducing._xla import own_array, take_rows
from inducing.bounds.conjugate import conjugate_layer
from inducing.checks import check_counts, checked_data
from inducing.data import Data, as_inputs, repeated_by_weight
from inducing.features.points import InducingPoints
from inducing.kernels.base import AbstractKernel
from inducing.kernels.stationary import Matern52
from inducing.layers.sparse_gp import SparseGP
from inducing.likelihoods.base import AbstractLikelihood
from inducing.likelihoods.continuous import StudentT
from inducing.likelihoods.gaussian import Gaussian, HeteroscedasticGaussian
from inducing.means import Constant
from inducing.model import Model
from inducing.parameters import as_key
from inducing.priors.base import AbstractPrior
from inducing.priors.independent import Independent
from inducing.scores import log_score
from inducing.training.deep_gp import check_num_layers, deep_gp
from inducing.training.fit import FitResult, fit
from inducing.training.grow import Job, Timer, grow, grow_from, with_points
from inducing.training.initialise import kmeans
from inducing.training.kernel_search import FEW, MANY, Found, cast, search_kernel, with_constant_means
from inducing.training.kernel_trials import TRIALS, try_kernels

NOISES = ("gaussian", "student-t", "heteroscedastic")
JUDGED = 1000  # the most rows on which kinds of noise are compared


def train(
    data: Data,
    likelihood: AbstractLikelihood,
    *,
    kernel: AbstractKernel | str | None = None,
    num_inducing: int | str = "auto",
    num_layers: int = 1,
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
        kernel: a kernel. By default, a Matérn 5/2 kernel with one lengthscale per column; if the noise is Gaussian and
            `num_inducing="auto"`, a rational quadratic kernel, an `Additive` one, or both are added where the evidence
            and held-out rows are in favour. "auto" compares more: squared exponential, Matérn 3/2 and 5/2 and rational
            quadratic, each with and without a `Linear` kernel. For other noise, and for classes, "auto" compares
            kernels by the log density of held-out rows. The message says which won. Classes share one kernel;
            several outputs, or several latent functions of one output, have a copy each.
        num_inducing: "auto" for as many inducing points as `ig.grow` finds useful, or a number. Several layers have 100
            each by default.
        num_layers: the number of GP layers; with more than one, a deep GP, `ig.deep_gp`, by `ig.fit`.
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
    _check_settings(kernel, num_inducing, num_layers, method, steps)
    assert data.x is not None and data.y is not None
    key, dtype = as_key(key), data.x.dtype
    if num_layers > 1:
        points = 100 if num_inducing == "auto" else int(num_inducing)
        outputs, likelihood = likelihood.num_latents(data.y.shape[1]), cast(likelihood, dtype)
        deep = deep_gp(data.x, likelihood, num_layers=num_layers, num_outputs=outputs, num_inducing=points)
        return fit(deep, data, method=method, steps=steps, seconds=seconds, progress=progress, key=key)
    given = None if kernel is None or isinstance(kernel, str) else kernel
    first, likelihood = cast((_default_kernel(data) if given is None else given, likelihood), dtype)
    model = _model(_prior(first, likelihood, data.y.shape[1], dtype), likelihood, data)
    data = checked_data(model, data, every_output=True)
    job = Job(data, Timer(seconds), progress, key)
    candidates = MANY if isinstance(kernel, str) else FEW if kernel is None and num_inducing == "auto" else ()
    found, said = None, ""
    if conjugate_layer(model) is not None:
        found, said = _searched(job, model, candidates)
    elif isinstance(kernel, str):
        model, said = _tried(job, model)
    result = _trained(job, model, found, num_inducing, method, steps)
    return result._replace(message=f"{said}{result.message}")


def likelihood_of(noise: str, outputs: int) -> AbstractLikelihood:
    """The likelihood of a kind of noise.

    Args:
        noise: "gaussian", "student-t" or "heteroscedastic".
        outputs: the number of outputs.

    Examples:
        >>> type(likelihood_of("student-t", 1)).__name__
        'StudentT'
    """
    scale = own_array(np.ones(outputs if outputs > 1 else ()), float)
    if noise == "heteroscedastic":
        return HeteroscedasticGaussian()
    return StudentT(scale=scale) if noise == "student-t" else Gaussian(scale)


def best_noise(data: Data, *, seconds: int | float | None = None, key: Array | None = None, **settings: Any) -> str:
    """The kind of noise that predicts held-out rows best.

    Each kind is trained on four fifths of at most 1,000 rows, and judged by the log density of the others.

    Args:
        data: inputs and labels.
        seconds: the time for each kind.
        key: a JAX random key (default: key 0), which chooses the rows.
        settings: those of `train`.

    Returns:
        "gaussian", "student-t" or "heteroscedastic".

    Examples:
        >>> import numpy as np
        >>> import inducing as ig
        >>> X = np.linspace(0.0, 1.0, 40)
        >>> best_noise(ig.Data(X, np.sin(6 * X)), num_inducing=5, steps=20, progress=False) in NOISES
        True
    """
    key = as_key(key)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 2), len(data)))[:JUDGED]
    few = max(1, len(order) // 5)
    judges, rows = (data.rows(own_array(np.sort(part), int)) for part in (order[:few], order[few:]))
    outputs = np.asarray(data.mask).shape[1]
    scores = {}
    for noise in NOISES:
        result = train(rows, likelihood_of(noise, outputs), seconds=seconds, key=key, **settings)
        y = np.where(np.asarray(judges.mask), np.asarray(judges.y), np.nan)
        weight = None if judges.weight is None else np.asarray(judges.weight)
        scores[noise] = log_score(result.model.predict(judges.x), y, weight=weight)
    return min(scores, key=lambda noise: scores[noise])


def _tried(job: Job, model: Model) -> tuple[Model, str]:
    """The model with the kernel that predicts held-out rows best, and what the message says of it."""
    data, outputs = job.data, np.asarray(job.data.mask).shape[1]

    def prior_of(kernel: AbstractKernel) -> AbstractPrior:
        return _prior(kernel, model.likelihood, outputs, as_inputs(data.x).dtype)

    prior, likelihood, said = try_kernels(data, model.likelihood, TRIALS, prior_of, job.fit, job.key)
    return _model(prior, likelihood, data), f"{said}; "


def _searched(job: Job, model: Model, candidates: tuple[tuple[str, ...], ...]) -> tuple[Found | None, str]:
    """The best kernel by the evidence, and what the message says of it."""
    if not candidates:
        return None, ""
    outputs = np.asarray(job.data.mask).shape[1]
    try:
        found = search_kernel(job.data, model.likelihood, candidates, outputs, job.fit, job.key)
    except FloatingPointError:
        return None, "kernel Matern52, compared with no other because the labels have hardly any noise; "
    return found, f"{found.message}; "


def _trained(
    job: Job, model: Model, found: Found | None, num_inducing: int | str, method: str, steps: int | None
) -> FitResult:
    if num_inducing != "auto":
        start = model if found is None else _model(found.prior, found.likelihood, job.data)
        Z = kmeans(repeated_by_weight(job.data).x, int(num_inducing), key=job.key)
        label = f"{len(Z)} inducing points"
        return job.fit(with_points(start, Z), job.data, label, method=method, steps=steps, initialise=found is None)
    if found is None:
        return grow(model, job.data, seconds=job.timer.left, progress=job.progress, key=job.key)
    start = _model(found.prior, found.likelihood, job.data)
    return grow_from(job, model, found.result._replace(model=start), found.is_final)


def _check_settings(kernel: Any, num_inducing: int | str, num_layers: int, method: str, steps: int | None) -> None:
    check_num_layers(num_layers)
    if num_layers > 1 and kernel is not None:
        raise ValueError(f"kernel is for num_layers=1, got {num_layers} layers; build others by ig.deep_gp.")
    if isinstance(kernel, str) and kernel != "auto":
        raise ValueError(f"kernel must be one of ig.kernels, 'auto' or None, got {kernel!r}.")
    if num_inducing != "auto":
        check_counts(num_inducing=num_inducing)
    elif num_layers == 1 and (method != "auto" or steps is not None):
        raise ValueError(
            "method and steps are for a given number of inducing points; pass num_inducing=100 too, or limit the time "
            "by seconds."
        )


def _default_kernel(data: Data) -> AbstractKernel:
    assert data.x is not None
    return Matern52(own_array(np.ones(data.x.shape[1]), data.x.dtype))


def _prior(kernel: AbstractKernel, likelihood: AbstractLikelihood, outputs: int, dtype: Any) -> AbstractPrior:
    """Independent functions with constant means, which start at the mean of y and are trained."""
    latents = likelihood.num_latents(outputs)
    if latents > 1 and likelihood.class_count() is not None:  # classes share the kernel
        return Independent(kernel, num=latents, mean=Constant(own_array(np.zeros(latents), dtype)))
    return with_constant_means(_copies(kernel, latents), dtype)


def _model(prior: AbstractPrior, likelihood: AbstractLikelihood, data: Data) -> Model:
    return Model(SparseGP(prior, InducingPoints(take_rows(as_inputs(data.x), [0]))), likelihood)


def _copies(kernel: AbstractKernel, num: int) -> list[AbstractKernel]:
    """A number of kernels with separate arrays, because shared arrays would be tied."""
    return [jax.tree.map(lambda a: own_array(a, a.dtype) if eqx.is_array(a) else a, kernel) for _ in range(num)]
