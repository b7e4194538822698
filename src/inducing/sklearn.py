"""Estimators for scikit-learn's pipelines, cross-validation and searches (`pip install inducing[sklearn]`).

    from inducing.sklearn import GPRegressor, GPClassifier

After `fit`, `estimator.model_` is the trained `ig.Model` and `estimator.result_` the `ig.FitResult`. Estimators compute
in float64 whatever JAX's flag says, and do not change that flag. Where it is off, call methods of `model_` inside
`with jax.enable_x64(True):`.

X may be a data frame of pandas or polars with columns of text, categories or dates, or with gaps. Its columns are then
encoded as `inducing.tables` does, and `estimator.encoder_` says how. Frames of complete numbers are used as they are.
"""

import contextlib
import pickle
import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_sample_weight,
        _get_feature_names,
        check_array,
        check_consistent_length,
        check_is_fitted,
        check_X_y,
        validate_data,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("inducing.sklearn needs scikit-learn: pip install 'inducing[sklearn]'") from error

from inducing import likelihoods
from inducing.checks import check_counts, check_model, check_seeds
from inducing.data import Data, some_rows
from inducing.declared import is_whole, shown
from inducing.io import load, save
from inducing.likelihoods.base import AbstractLikelihood
from inducing.model import Model
from inducing.parameters import as_numbers, as_probability, check, one_or_several, question
from inducing.report.relevance import relevance
from inducing.scores import log_score
from inducing.training.automatic import NOISES, best_noise, likelihood_of, train
from inducing.training.fit import FitResult
from inducing.training.monitor import History
from inducing.training.update import update

NAMES = {"classes_", "feature_names_in_"}  # attributes that may be arrays of texts


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
        progress: bool | str = "auto",
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
        names = ("kernel", "num_inducing", "num_layers", "method", "steps", "progress")
        settings = {name: self.get_params(deep=False)[name] for name in names} | {"key": _key(self.random_state)}
        if self.kernel is None and self.num_layers == 1 and self.encoder_ is not None:
            from inducing.tables.fitting import kernel_of

            settings["kernel"] = kernel_of(None, self.encoder_, settings["key"])
        return settings

    def _train(
        self, X: np.ndarray, y: np.ndarray, likelihood: AbstractLikelihood, weight: Any, seconds: int | float | None
    ) -> Any:
        self._check_dtype()
        with self._precision():
            self.result_ = train(self._data(X, y, weight), likelihood, seconds=seconds, **self._settings())
        self.model_ = self.result_.model
        self._some_rows = some_rows(X)
        return self

    def _update(self, X: np.ndarray, y: np.ndarray, weight: Any) -> Any:
        with self._precision():
            self.model_ = update(self.model_, self._data(X, y, weight))
        return self

    def _data(self, X: np.ndarray, y: np.ndarray, weight: Any) -> Data:
        if weight is not None:
            weight = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
            X, y, weight = (a[weight > 0] for a in (X, y, weight)) if weight.any() else (X, y, weight)
        return Data(X, y, weight=weight).astype(self.dtype)

    @contextlib.contextmanager
    def computing(self) -> Generator[Model]:
        """The trained model, inside a context in which JAX computes in its precision.

        Examples:
            >>> import numpy as np
            >>> from inducing.sklearn import GPRegressor
            >>> estimator = GPRegressor(num_inducing=3, steps=2).fit([[0.0], [0.5], [1.0]], [0.0, 1.0, 0.5])
            >>> with estimator.computing() as model:
            ...     print(model.predict([[0.2]]).mean.shape)
            (1, 1)
        """
        check_is_fitted(self)
        with self._precision():
            yield self.model_

    @question
    def encode(self, y: Any) -> np.ndarray:
        """Labels as the model counts them."""
        return np.asarray(y, float)

    def score_log_density(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean log density of labels, or log probability of classes: higher is better.

        Args:
            X: inputs [N, D].
            y: labels [N] or [N, P]; missing ones (NaN) are left out.
            sample_weight: weights [N] of the rows.

        Returns:
            The mean over the labels.
        """
        X = self._inputs(X)
        with self.computing() as model:
            return -log_score(model.predict(X), self.encode(y), weight=sample_weight)

    def _samples(self, X: Any, n_samples: int, random_state: Any) -> np.ndarray:
        """Labels as the model counts them [n_samples, N, P], jointly over the rows."""
        check_counts(n_samples=n_samples)
        X = self._inputs(X)
        with self.computing() as model:
            return np.asarray(model.predict(X, full_cov=True).sample(_key(random_state), n_samples), float)

    def save(self, path: Any) -> None:
        """Write the estimator to a safetensors file, which `load` reads without executing anything.

        See `ig.save`: settings, trained model and training curve come back bit for bit.

        Args:
            path: the file; an existing one is replaced.

        Raises:
            TypeError: if a setting cannot be stored, such as a NumPy random state.
        """
        save(path, self)

    @classmethod
    def load(cls, path: Any, parts: Iterable[Any] = ()) -> Any:
        """Read an estimator from a file that `save` wrote.

        Args:
            path: the file.
            parts: your own classes and named functions that the model uses.

        Returns:
            The estimator.

        Raises:
            ValueError: if the file is damaged, or holds something else.
        """
        estimator = load(path, (cls, *one_or_several(parts)))
        if type(estimator) is not cls:
            raise ValueError(f"{path}: it holds a {type(estimator).__name__}, not a {cls.__name__}; use ig.load.")
        return estimator

    def to_state(self) -> dict[str, Any]:
        """Settings, and what was fitted, for `ig.save`."""
        settings, fitted = self.get_params(deep=False), None
        if "model_" in vars(self):
            fitted = {name: value for name, value in vars(self).items() if name not in settings}
            result = fitted.pop("result_")
            fitted |= {f"result_.{name}": value for name, value in result._asdict().items() if name != "history"}
            fitted |= {f"history.{name}": value for name, value in result.history._asdict().items()}
            for name in fitted.keys() & NAMES:  # NumPy's arrays of texts
                fitted[name] = [fitted[name].dtype.str, fitted[name].tolist()]
            if fitted["encoder_"] is not None:
                fitted["encoder_"] = fitted["encoder_"].to_json()
        return {"settings": settings, "fitted": fitted}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        """The estimator of settings and what was fitted, for `ig.load`."""
        estimator, fitted = cls(**state["settings"]), state["fitted"]
        if fitted is None:
            return estimator
        history = History(*(fitted.pop(f"history.{name}") for name in History._fields))
        parts = {name: fitted.pop(f"result_.{name}") for name in FitResult._fields if name != "history"}
        estimator.result_ = FitResult(history=history, **parts)
        for name in fitted.keys() & NAMES:
            kind, values = fitted[name]
            fitted[name] = np.array(values, dtype=kind)
        if fitted["encoder_"] is not None:
            from inducing.tables.encoder import Encoder

            fitted["encoder_"] = Encoder.from_json(fitted["encoder_"])
        for model in (fitted["model_"], parts["model"]):
            check_model(model)
            check(model)
        vars(estimator).update(fitted)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in state.keys() & {"model_", "result_"}:  # to be unpickled in their own precision
            state[name] = pickle.dumps(state[name])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        with jax.enable_x64(True):
            loaded = {name: pickle.loads(state[name]) for name in state.keys() & {"model_", "result_"}}
        super().__setstate__(state | loaded)

    @property
    def feature_importances_(self) -> np.ndarray:
        """How much each column matters [D]: its total effect on the predictions, scaled to sum to 1.

        They are computed when they are asked for, from a sample of the rows of the fit: see `ig.report.relevance`.
        """
        check_is_fitted(self)
        blocks = None if self.encoder_ is None else self.encoder_.blocks
        with self._precision():
            share = relevance(self.model_, self._some_rows, blocks).share
        if blocks is None:
            return share
        used = dict(zip(blocks, share, strict=True))
        return np.array([used.get(name, 0.0) for name in vars(self)["feature_names_in_"]])

    def _check_dtype(self) -> None:
        if not isinstance(self.dtype, str) or self.dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be 'float64' or 'float32', got {shown(self.dtype)}.")

    def _precision(self) -> Any:
        """The precision of all that JAX computes inside this context; afterwards the user's flag holds again."""
        return jax.enable_x64(self.dtype == "float64")

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        encoded = self._encoded(X, reset=False)
        return validate_data(self, X, reset=False, dtype=np.float64) if encoded is None else encoded

    def _encoded(self, X: Any, reset: bool) -> np.ndarray | None:
        """Data frames with other columns than complete numbers, encoded [N, D]; None for other inputs."""
        if reset:
            self.encoder_ = _encoder_of(X)
        if self.encoder_ is None:
            return None
        validate_data(self, X, reset=reset, skip_check_array=True)  # names and number of columns
        rows = self.encoder_.encode(X)
        if not rows.usable.all():
            raise ValueError(f"{(~rows.usable).sum()} of {len(rows.X)} rows cannot be used: {'; '.join(rows.notes)}.")
        for note in () if reset else rows.notes:
            warnings.warn(note, stacklevel=4)
        return rows.X


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
        progress: whether to show progress bars; "auto" for bars in a terminal, of fits that take over five seconds.
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
        progress: bool | str = "auto",
        random_state: Any = 0,
    ):
        super().__init__(
            kernel, num_inducing, likelihood, num_layers, method, steps, seconds, dtype, progress, random_state
        )
        self.noise = noise

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GPRegressor":
        """Train the model.

        Args:
            X: inputs [N, D].
            y: labels [N] or [N, P]; NaN where one is missing.
            sample_weight: weights [N]: how often each row counts, as if it were repeated. By default, once. They are
                not precisions, since repeated labels are evidence of little noise; for noise σ²/w see "Precision
                weights" in `docs/choose.md`.

        Returns:
            The estimator itself.
        """
        X, y = self._checked(X, y, reset=True)
        self._flat = y.ndim == 1
        P = 1 if self._flat else y.shape[1]
        seconds = self._choose_noise(X, y, sample_weight)
        likelihood = self._chosen(likelihood_of(self.noise_, P))
        if (np.fmin.reduce(y, axis=0) == np.fmax.reduce(y, axis=0)).any():
            warnings.warn(
                "all labels (of an output) are equal: they say nothing of how far others may be off, and standard "
                "deviations will be about 0; give a likelihood that is not trained, or more labels.",
                stacklevel=2,
            )
        return self._train(X, y, likelihood, sample_weight, seconds)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GPRegressor":
        """Learn from more rows without the earlier ones, by `ig.update`; at first, the same as `fit`.

        Inducing points and hyperparameters stay those of the first rows, which should cover the range of the inputs.
        Given these, the result for Gaussian noise is that of all rows at once. `result_` stays that of the first rows.

        Args:
            X: new inputs [N, D].
            y: their labels [N] or [N, P]; NaN where one is missing.
            sample_weight: weights [N]: how often each row counts, as if it were repeated. By default, once. They are
                not precisions, since repeated labels are evidence of little noise; for noise σ²/w see "Precision
                weights" in `docs/choose.md`.

        Returns:
            The estimator itself.
        """
        if "model_" not in vars(self):
            return self.fit(X, y, sample_weight)
        return self._update(*self._checked(X, y, reset=False), sample_weight)

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels as scikit-learn checks them, but for labels that may be NaN."""
        labels = {"dtype": np.float64, "ensure_2d": False, "ensure_all_finite": "allow-nan"}
        inputs = {"dtype": np.float64}
        encoded = self._encoded(X, reset)
        if encoded is None:
            X, y = validate_data(self, X, y, reset=reset, validate_separately=(inputs, labels))
        else:
            X, y = encoded, check_array(y, input_name="y", **labels)
        check_consistent_length(X, y)
        return X, y

    def _choose_noise(self, X: np.ndarray, y: np.ndarray, weight: Any) -> int | float | None:
        """Set `noise_`, and return the seconds that are left for the fit: half of them, if kinds are compared."""
        self._check_dtype()
        if not isinstance(self.noise, str) or self.noise not in (*NOISES, "auto"):
            raise ValueError(f"noise must be {', '.join(map(repr, NOISES))} or 'auto', got {shown(self.noise)}.")
        if self.likelihood is not None and self.noise != "gaussian":
            raise ValueError(f"pass either noise or likelihood, got noise={self.noise!r} and {self.likelihood!r}.")
        self.noise_ = self.noise
        if self.noise != "auto":
            return self.seconds
        each = None if self.seconds is None else 0.5 * self.seconds / len(NOISES)
        with self._precision():
            self.noise_ = best_noise(self._data(X, y, weight), seconds=each, **self._settings())
        return None if self.seconds is None else 0.5 * self.seconds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict the mean of y.

        Args:
            X: inputs [N, D].
            return_std: whether to return the standard deviation of y too, including noise.
            return_cov: whether to return the covariance of y at all inputs too, including noise.

        Returns:
            The mean [N] or [N, P], or a pair of the mean and the standard deviation [N] or [N, P], or of the mean and
            the covariance [N, N] or [N, N, P] of each output.

        Raises:
            ValueError: if both are asked for, or the covariance of labels whose noise is not Gaussian.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov exclude each other; the covariance holds both.")
        X = self._inputs(X)
        with self.computing() as model:
            if return_cov:
                return self._mean_and_covariance(model, X)
            pred = model.predict(X)
            mean = self._shaped(pred.mean)
            return (mean, np.sqrt(self._shaped(pred.variance))) if return_std else mean

    def _mean_and_covariance(self, model: Model, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        post = model.posterior(X, full_cov=True)
        N, P = post.mean.shape
        noise = model.likelihood.gaussian_noise((N, P))
        if noise is None:
            raise ValueError(
                f"return_cov needs Gaussian noise, not a {type(model.likelihood).__name__}; use sample_y for samples "
                "that are joint over the rows."
            )
        f = np.asarray(post.covariance).reshape(N, P, N, P)
        cov = np.stack([f[:, p, :, p] + np.diag(np.asarray(noise)[:, p]) for p in range(P)], axis=-1)
        return self._shaped(post.mean), cov[..., 0] if self._flat else cov

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Predict the central interval that holds a label with a given probability.

        Args:
            X: inputs [N, D].
            level: the probability.

        Returns:
            The lower and upper ends, [N] or [N, P] each.
        """
        X = self._inputs(X)
        with self.computing() as model:
            low, high = model.predict(X).interval(level)
            return self._shaped(low), self._shaped(high)

    def predict_quantiles(self, X: Any, quantiles: Any) -> np.ndarray:
        """Predict quantiles of y.

        Args:
            X: inputs [N, D].
            quantiles: Q probabilities between 0 and 1.

        Returns:
            Quantiles [N, Q] or [N, P, Q].
        """
        levels = np.atleast_1d(np.asarray(as_numbers("quantiles", quantiles), float))
        if levels.ndim > 1 or not len(levels):
            raise ValueError(f"quantiles must be a list of probabilities, got {shown(quantiles)}.")
        levels = [as_probability("quantiles", float(q)) for q in levels]
        X = self._inputs(X)
        with self.computing() as model:
            pred = model.predict(X)
            return np.stack([self._shaped(pred.quantile(q)) for q in levels], axis=-1)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Sample labels, noise included, jointly over the rows.

        Args:
            X: inputs [N, D].
            n_samples: the number of samples.
            random_state: the seed, or a NumPy random state.

        Returns:
            Samples [N, n_samples] or [N, P, n_samples].
        """
        samples = np.moveaxis(self._samples(X, n_samples, random_state), 0, -1)
        return samples[:, 0] if self._flat else samples

    def _shaped(self, a: Any) -> np.ndarray:
        return np.asarray(a)[:, 0] if self._flat else np.asarray(a)


class GPClassifier(ClassifierMixin, _AbstractGP):
    """Sparse GP classification for scikit-learn.

    Labels may be of any type. Two classes have a Bernoulli likelihood, more classes a softmax of one function each.

    Args:
        kernel: one of `ig.kernels`. By default, a Matérn 5/2 kernel with one lengthscale per column. "auto" compares
            it with other kernels by the log density of held-out rows; `result_.message` says which won.
        num_inducing: "auto" for as many inducing points as `ig.grow` finds useful. If a number is given, that many
            points are used, starting at k-means centres of X.
        likelihood: a likelihood of classes. By default, Bernoulli or softmax; `ig.likelihoods.RobustMax(C)` tolerates
            wrong labels.
        num_layers: the number of GP layers; 2 is a deep GP, which takes minutes.
        method: the training method of `ig.fit`, for a given number of inducing points.
        steps: the number of training steps, for a given number of inducing points; None for the default of `ig.fit`.
        seconds: the time after which to stop training; None for no limit.
        dtype: "float64", or "float32" for speed where labels have much noise.
        progress: whether to show progress bars; "auto" for bars in a terminal, of fits that take over five seconds.
        random_state: the seed, or a NumPy random state.
        class_weight: a dictionary from classes to weights, or "balanced" for the inverse of their frequencies. By
            default, all count alike.

    Examples:
        >>> import numpy as np
        >>> from inducing.sklearn import GPClassifier
        >>> X = np.linspace(0.0, 1.0, 30)[:, None]
        >>> model = GPClassifier(num_inducing=5, steps=50).fit(X, np.where(X[:, 0] > 0.5, "yes", "no"))
        >>> [str(label) for label in model.predict([[0.1], [0.9]])]
        ['no', 'yes']
    """

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
        progress: bool | str = "auto",
        random_state: Any = 0,
        class_weight: Any = None,
    ):
        super().__init__(
            kernel, num_inducing, likelihood, num_layers, method, steps, seconds, dtype, progress, random_state
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GPClassifier":
        """Train the model.

        Args:
            X: inputs [N, D].
            y: labels [N] of any type.
            sample_weight: weights [N]: how often each row counts, as if it were repeated. By default, once.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if y has fewer than two classes, or another number of classes than the likelihood.
        """
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        return self._fit_classes(X, y, np.unique(y), sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "GPClassifier":
        """Learn from more rows without the earlier ones, by `ig.update`; at first, train as `fit` does.

        Inducing points and hyperparameters stay those of the first rows, which should cover the range of the inputs.
        `result_` stays that of the first rows.

        Args:
            X: new inputs [N, D].
            y: their labels [N].
            classes: all classes, in the first call; those of the first rows by default.
            sample_weight: weights [N]: how often each row counts, as if it were repeated. By default, once.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if y holds other classes than those of the first call.
        """
        first = "model_" not in vars(self)
        X, y = self._checked(X, y, reset=first)
        if first:
            return self._fit_classes(X, y, np.unique(y if classes is None else classes), sample_weight)
        return self._update(X, self.encode(y), self._weight(y, sample_weight))

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels as scikit-learn checks them."""
        encoded = self._encoded(X, reset)
        if encoded is None:
            return validate_data(self, X, y, dtype=np.float64, reset=reset)
        return check_X_y(encoded, y, dtype=np.float64)

    def _fit_classes(self, X: np.ndarray, y: np.ndarray, classes: np.ndarray, sample_weight: Any) -> "GPClassifier":
        self.classes_, C = classes, len(classes)
        if C < 2:
            raise ValueError(f"y has {C} class; a classifier needs two or more classes.")
        likelihood = self._chosen(likelihoods.Bernoulli() if C == 2 else likelihoods.Softmax(C))
        if (given := likelihood.class_count()) != C:
            raise ValueError(
                f"likelihood is for {given or 'no'} classes, but y has {C}: {', '.join(map(str, self.classes_))}."
            )
        return self._train(X, self.encode(y), likelihood, self._weight(y, sample_weight), self.seconds)

    def _weight(self, y: np.ndarray, sample_weight: Any) -> Any:
        """The weights of rows and classes together."""
        if self.class_weight is None:
            return sample_weight
        weight = compute_sample_weight(self.class_weight, y)
        return weight if sample_weight is None else weight * np.asarray(sample_weight, float)

    def encode(self, y: Any) -> np.ndarray:
        """Classes as the model counts them, from 0."""
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
        with self.computing() as model:
            pred: Any = model.predict(X)
            return np.asarray(pred.probabilities, float).reshape(len(X), len(self.classes_))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class.

        Args:
            X: inputs [N, D].

        Returns:
            Labels [N].
        """
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Sample classes, jointly over the rows.

        Args:
            X: inputs [N, D].
            n_samples: the number of samples.
            random_state: the seed, or a NumPy random state.

        Returns:
            Samples [N, n_samples].
        """
        return self.classes_[self._samples(X, n_samples, random_state)[..., 0].astype(int).T]


def _encoder_of(X: Any) -> Any:
    """The encoder of a data frame with other columns than complete numbers; None for other inputs."""
    if _get_feature_names(X) is None:
        return None
    if np.asarray(X[:0]).dtype.kind in "biuf" and not np.isnan(np.asarray(X, float)).any():
        return None
    from inducing.tables.encoder import Encoder  # needs pyarrow

    return Encoder.decide(X)


def _key(random_state: Any) -> Array:
    """A random key of a seed, or of a NumPy random state."""
    if is_whole(random_state):
        check_seeds(random_state=random_state)
        return jax.random.key(int(random_state))
    try:
        return jax.random.key(check_random_state(random_state).randint(2**31))
    except (TypeError, ValueError):
        raise ValueError(
            f"random_state must be a whole number, None or a NumPy random state, got {shown(random_state)}."
        ) from None


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
        with estimator.computing() as model:
            return -score(model.predict(X), estimator.encode(y), weight=sample_weight)

    return scored
