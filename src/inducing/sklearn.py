"""Estimators for scikit-learn's pipelines, cross-validation and searches (`pip install inducing[sklearn]`).

    from inducing.sklearn import GPRegressor, GPClassifier

After `fit`, `estimator.model_` is the trained `ig.Model` and `estimator.result_` the `ig.FitResult`. Estimators compute
in float64 whatever JAX's flag says, and do not change that flag. Where it is off, call methods of `model_` inside
`with jax.enable_x64(True):`.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("inducing.sklearn needs scikit-learn: pip install 'inducing[sklearn]'") from error

from inducing import likelihoods
from inducing.data import Data, some_rows
from inducing.likelihoods.base import AbstractLikelihood
from inducing.parameters import question
from inducing.report.relevance import relevance
from inducing.training.automatic import NOISES, best_noise, likelihood_of, train


class _AbstractGP(BaseEstimator):
    """A sparse GP with a constant mean, trained by `ig.grow` or `ig.fit`: what both estimators share."""

    def __init__(
        self,
        kernel: Any = None,
        num_inducing: int | str = "auto",
        likelihood: Any = None,
        num_layers: int = 1,
        method: str = "auto",
        steps: int | None = None,
        seconds: int | float | None = None,
        dtype: str = "float64",
        progress: bool = False,
        random_state: Any = 0,
    ):
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.likelihood = likelihood
        self.num_layers = num_layers
        self.method = method
        self.steps = steps
        self.seconds = seconds
        self.dtype = dtype
        self.progress = progress
        self.random_state = random_state

    def _chosen(self, default: AbstractLikelihood) -> AbstractLikelihood:
        if not isinstance(self.likelihood, AbstractLikelihood | None):
            raise TypeError(
                f"likelihood must be one of ig.likelihoods such as {type(default).__name__}(...), got "
                f"{self.likelihood!r}."
            )
        return default if self.likelihood is None else self.likelihood

    def _settings(self) -> dict[str, Any]:
        """All but the seconds."""
        seed = self.random_state
        seed = seed if isinstance(seed, int) else check_random_state(seed).randint(2**31)
        names = ("kernel", "num_inducing", "num_layers", "method", "steps", "progress")
        return {name: self.get_params(deep=False)[name] for name in names} | {"key": jax.random.key(seed)}

    def _train(self, X: np.ndarray, y: np.ndarray, likelihood: AbstractLikelihood, seconds: int | float | None) -> Any:
        self._check_dtype()
        with self._precision():
            self.result_ = train(Data(X, y).astype(self.dtype), likelihood, seconds=seconds, **self._settings())
        self.model_ = self.result_.model
        self._some_rows = some_rows(X)
        return self

    @property
    def feature_importances_(self) -> np.ndarray:
        """How much each column matters [D]: its total effect on the predictions, scaled to sum to 1.

        They are computed when they are asked for, from a sample of the rows of the fit: see `ig.report.relevance`.
        """
        check_is_fitted(self)
        with self._precision():
            return relevance(self.model_, self._some_rows).share

    def _check_dtype(self) -> None:
        if self.dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be 'float64' or 'float32', got {self.dtype!r}.")

    def _precision(self) -> Any:
        """The precision of all that JAX computes inside this context; afterwards the user's flag holds again."""
        return jax.enable_x64(self.dtype == "float64")

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=np.float64)

    @question
    def _labels(self, y: Any) -> np.ndarray:
        """Labels as the model counts them."""
        return np.asarray(y, float)


class GPRegressor(RegressorMixin, _AbstractGP):
    """Sparse GP regression for scikit-learn.

    Several outputs, or several latent functions of one output, are independent, each with its own kernel. y must not
    have missing labels; use `ig.fit` for those. After `fit`, `model_` is the trained `ig.Model`, whose `predict` and
    `posterior` give intervals, covariances and the function without noise, and `result_` is the `ig.FitResult`.

    Args:
        kernel: one of `ig.kernels`. By default, a Matérn 5/2 kernel with one lengthscale per column, to which a
            rational quadratic kernel, an `ig.kernels.Additive` one, or both are added where the evidence and held-out
            rows are in favour (for Gaussian noise and `num_inducing="auto"`). "auto" compares more kernels.
            `result_.message` says which won.
        num_inducing: "auto" for as many inducing points as `ig.grow` finds useful; for Gaussian noise and at most
            3,000 labels the GP is exact. If a number is given, that many points are used, starting at k-means centres
            of X.
        likelihood: a likelihood of numbers, instead of `noise`.
        noise: "gaussian", with one variance per output; "student-t", for outliers; "heteroscedastic", where its size
            depends on X; or "auto" for the one with the best log density of held-out rows, which `noise_` names.
        num_layers: the number of GP layers; 2 is a deep GP, which takes minutes.
        method: the training method of `ig.fit`, for a given number of inducing points.
        steps: the number of training steps, for a given number of inducing points; None for the default of `ig.fit`.
        seconds: the time after which to stop training; None for no limit.
        dtype: "float64", or "float32" for speed where labels have much noise.
        progress: whether to show a progress bar.
        random_state: the seed, or a NumPy random state.

    Examples:
        >>> import numpy as np
        >>> from inducing.sklearn import GPRegressor
        >>> X = np.linspace(0.0, 1.0, 20)[:, None]
        >>> model = GPRegressor(num_inducing=5, steps=20).fit(X, np.sin(6 * X[:, 0]))
        >>> mean, std = model.predict(X[:3], return_std=True)
        >>> mean.shape, bool(model.score(X, np.sin(6 * X[:, 0])) > 0.9)
        ((3,), True)
    """

    def __init__(
        self,
        kernel: Any = None,
        num_inducing: int | str = "auto",
        likelihood: Any = None,
        noise: str = "gaussian",
        num_layers: int = 1,
        method: str = "auto",
        steps: int | None = None,
        seconds: int | float | None = None,
        dtype: str = "float64",
        progress: bool = False,
        random_state: Any = 0,
    ):
        super().__init__(
            kernel, num_inducing, likelihood, num_layers, method, steps, seconds, dtype, progress, random_state
        )
        self.noise = noise

    def fit(self, X: Any, y: Any) -> "GPRegressor":
        """Train the model.

        Args:
            X: inputs [N, D].
            y: labels [N] or [N, P].

        Returns:
            The estimator itself.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._flat = y.ndim == 1
        P = 1 if self._flat else y.shape[1]
        seconds = self._choose_noise(X, y)
        likelihood = self._chosen(likelihood_of(self.noise_, P))
        if (y.min(axis=0) == y.max(axis=0)).any():
            warnings.warn(
                "all labels (of an output) are equal: they say nothing of how far others may be off, and standard "
                "deviations will be about 0; give a likelihood that is not trained, or more labels.",
                stacklevel=2,
            )
        return self._train(X, y, likelihood, seconds)

    def _choose_noise(self, X: np.ndarray, y: np.ndarray) -> int | float | None:
        """Set `noise_`, and return the seconds that are left for the fit: half of them, if kinds are compared."""
        self._check_dtype()
        if self.noise not in (*NOISES, "auto"):
            raise ValueError(f"noise must be {', '.join(map(repr, NOISES))} or 'auto', got {self.noise!r}.")
        if self.likelihood is not None and self.noise != "gaussian":
            raise ValueError(f"pass either noise or likelihood, got noise={self.noise!r} and {self.likelihood!r}.")
        self.noise_ = self.noise
        if self.noise != "auto":
            return self.seconds
        each = None if self.seconds is None else 0.5 * self.seconds / len(NOISES)
        with self._precision():
            self.noise_ = best_noise(Data(X, y).astype(self.dtype), seconds=each, **self._settings())
        return None if self.seconds is None else 0.5 * self.seconds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of y.

        Args:
            X: inputs [N, D].
            return_std: whether to return the standard deviation of y too, including noise.

        Returns:
            The mean [N] or [N, P], or a pair of the mean and the standard deviation.
        """
        X = self._inputs(X)

        def shaped(a: Any) -> np.ndarray:
            return np.asarray(a)[:, 0] if self._flat else np.asarray(a)

        with self._precision():
            pred = self.model_.predict(X)
            return (shaped(pred.mean), np.sqrt(shaped(pred.variance))) if return_std else shaped(pred.mean)


class GPClassifier(ClassifierMixin, _AbstractGP):
    """Sparse GP classification for scikit-learn.

    Labels may be of any type. Two classes have a Bernoulli likelihood, more classes a softmax of one function each.

    Args:
        kernel: one of `ig.kernels`. By default, a Matérn 5/2 kernel with one lengthscale per column.
        num_inducing: "auto" for as many inducing points as `ig.grow` finds useful; for Gaussian noise and at most
            3,000 labels the GP is exact. If a number is given, that many points are used, starting at k-means centres
            of X.
        likelihood: a likelihood of classes. By default, Bernoulli or softmax.
        num_layers: the number of GP layers; 2 is a deep GP, which takes minutes.
        method: the training method of `ig.fit`, for a given number of inducing points.
        steps: the number of training steps, for a given number of inducing points; None for the default of `ig.fit`.
        seconds: the time after which to stop training; None for no limit.
        dtype: "float64", or "float32" for speed where labels have much noise.
        progress: whether to show a progress bar.
        random_state: the seed, or a NumPy random state.

    Examples:
        >>> import numpy as np
        >>> from inducing.sklearn import GPClassifier
        >>> X = np.linspace(0.0, 1.0, 30)[:, None]
        >>> model = GPClassifier(num_inducing=5, steps=50).fit(X, np.where(X[:, 0] > 0.5, "yes", "no"))
        >>> [str(label) for label in model.predict([[0.1], [0.9]])]
        ['no', 'yes']
    """

    def fit(self, X: Any, y: Any) -> "GPClassifier":
        """Train the model.

        Args:
            X: inputs [N, D].
            y: labels [N] of any type.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if y has fewer than two classes, or another number of classes than the likelihood.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        C = len(self.classes_)
        if C < 2:
            raise ValueError(f"y has {C} class; a classifier needs two or more classes.")
        likelihood = self._chosen(likelihoods.Bernoulli() if C == 2 else likelihoods.Softmax(C))
        if (given := likelihood.class_count()) != C:
            raise ValueError(
                f"likelihood is for {given or 'no'} classes, but y has {C}: {', '.join(map(str, self.classes_))}."
            )
        return self._train(X, codes.astype(float), likelihood, self.seconds)

    def _labels(self, y: Any) -> np.ndarray:
        if not (known := np.isin(y, self.classes_)).all():
            raise ValueError(f"y holds {np.asarray(y)[~known][0]!r}, which is not a class of the fit; leave it out.")
        return np.searchsorted(self.classes_, y).astype(float)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each class.

        Args:
            X: inputs [N, D].

        Returns:
            Probabilities [N, C], in the order of `classes_`.
        """
        X = self._inputs(X)
        with self._precision():
            return np.asarray(self.model_.predict(X).probabilities, float).reshape(len(X), len(self.classes_))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class.

        Args:
            X: inputs [N, D].

        Returns:
            Labels [N].
        """
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]


def scorer(score: Callable[..., float]) -> Callable[..., float]:
    """A score of `inducing.scores` for scikit-learn's cross-validation and searches, which maximise: its negative.

    Args:
        score: a function (prediction, labels, weight) such as `ig.scores.crps`; lower is better.

    Returns:
        A function (estimator, X, y, sample_weight) for the argument `scoring`.

    Examples:
        >>> import inducing as ig, numpy as np
        >>> from inducing.sklearn import GPRegressor, scorer
        >>> X = np.linspace(0.0, 1.0, 20)[:, None]
        >>> model = GPRegressor(num_inducing=5, steps=20).fit(X, np.sin(6 * X[:, 0]))
        >>> bool(-0.05 < scorer(ig.scores.crps)(model, X, np.sin(6 * X[:, 0])) < 0.0)
        True
    """

    def scored(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        X = estimator._inputs(X)
        with estimator._precision():
            return -score(estimator.model_.predict(X), estimator._labels(y), weight=sample_weight)

    return scored
