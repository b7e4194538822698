"""A model: a stack of layers that ends in a likelihood."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.data import Data
from inducing.layers.base import AbstractLayer, check_stack, stack_width, sum_of_kl
from inducing.likelihoods.base import AbstractLikelihood
from inducing.parameters import Module, as_key, dtype_of, one_or_several

if TYPE_CHECKING:
    from inducing.inference.joint import JointPredictive
    from inducing.inference.posterior import Posterior
    from inducing.likelihoods.predictive import Predictive


class Model(Module):
    """A stack of layers that ends in a likelihood.

        y_n ~ p(y | f_n),    f_n = f_L(… f_2(f_1(x_n)))

    A model never changes: `ig.fit` returns a new one with trained parameters.

    Args:
        layers: one layer or a sequence of layers, the first of which sees the inputs. The last one must have Gaussian
            outputs: a `SparseGP`, `BayesianDense` or `Deterministic` layer, or one of your own that is `terminal`.
        likelihood: p(y | f), one of `ig.likelihoods`.

    Raises:
        TypeError: if a layer is not a layer or the likelihood not a likelihood.
        ValueError: if layers and likelihood do not fit together.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> model.predict([0.5]).mean.shape
        (1, 1)
    """

    layers: tuple[AbstractLayer, ...]
    likelihood: AbstractLikelihood

    def __init__(self, layers: AbstractLayer | Sequence[AbstractLayer], likelihood: AbstractLikelihood):
        self.layers = one_or_several(layers)
        for i, layer in enumerate(self.layers):
            if not isinstance(layer, AbstractLayer):
                raise TypeError(
                    f"layers[{i}] must be a layer such as ig.SparseGP(...), got {kind_of(layer)}; wrap functions "
                    "and networks in ig.Deterministic(...)."
                )
        self.likelihood = likelihood

    def __check_init__(self):
        if not self.layers:
            raise ValueError("layers is empty; a model needs at least one layer, such as ig.SparseGP(prior, features).")
        if not self.layers[-1].terminal:
            raise ValueError(
                f"the last layer is a {type(self.layers[-1]).__name__}, which has no Gaussian output; "
                "end the stack with a SparseGP, BayesianDense or Deterministic layer."
            )
        check_stack(self.layers, None, "layers")
        _check_number(self.width(None), self.likelihood)

    def width(self, inputs: int | None) -> int | None:
        """The number of outputs of the last layer.

        Args:
            inputs: the number of columns of the inputs. If it is None, only what follows the first layer of known
                width is checked.

        Returns:
            The number of outputs, or None if it is unknown.

        Raises:
            ValueError: if a layer cannot take the outputs of the one below; the message names both.

        Examples:
            >>> import inducing as ig
            >>> model = ig.Model([ig.LatentVariable(2), ig.BayesianDense(3, 1)], ig.likelihoods.Gaussian())
            >>> model.width(1)
            1
        """
        try:
            return stack_width(self.layers, inputs, "X has")
        except ValueError as error:
            raise ValueError(f"{error}.") from error

    @property
    def is_stochastic(self) -> bool:
        """Whether evaluating the model draws random numbers: all layers but the last are sampled."""
        return any(layer.random for layer in self.layers[:-1])

    def propagate(
        self, data: Data, key: Array | None, replicates: int = 1, shifts: Mapping[int, Array] | None = None
    ) -> tuple[Float[Array, "N R D"], Float[Array, "N R"]]:
        """Sample all layers but the last.

        Args:
            data: the data. If they have no inputs, the first layer sees [N, 1, 0].
            key: a random key; None if no layer below the last is random.
            replicates: R, the number of samples of each latent variable.
            shifts: arrays [N, R, d] to add to the latent variables of layers, by the number of the layer.

        Returns:
            The inputs of the last layer [N, R, D], with R = 1 below the first latent variable, and the sum of the
            log-weights [N, R].

        Examples:
            >>> import inducing as ig
            >>> model = ig.Model([ig.LatentVariable(2), ig.BayesianDense(3, 1)], ig.likelihoods.Gaussian())
            >>> x, log_weight = model.propagate(ig.Data([0.0, 1.0]), jax.random.key(0), replicates=5)
            >>> x.shape, log_weight.shape
            ((2, 5, 3), (2, 5))
        """
        x = enter(self, data)
        log_weight = jnp.zeros(x.shape[:2], x.dtype)
        for i, (layer, k) in enumerate(zip(self.layers[:-1], self.keys(key), strict=False)):
            if shifts and i in shifts:
                x, w = layer.shifted(x, k, data, replicates, shifts[i])
            else:
                x, w = layer.propagate(x, k, data, replicates)
            log_weight = jnp.broadcast_to(log_weight, w.shape) + w
        return x, log_weight

    def keys(self, key: Array | None) -> Any:
        """One key for each layer, including the last; None for each if no layer below the last is random."""
        if not self.is_stochastic and key is None:
            return (None,) * len(self.layers)
        return jax.random.split(needed(key), len(self.layers))

    def kl(self) -> Float[Array, ""]:
        """The sum of the layers' KL divergences, Σ_l KL(q_l ‖ p_l)."""
        return sum_of_kl(self)

    def check_inputs(self, X: Float[Array, "N D"]) -> None:
        """Raise a ValueError if the first layer cannot take some value of X, such as an unknown category.

        Values under `jit` are not known and not checked.
        """
        if not isinstance(X, jax.core.Tracer):
            self.layers[0].check_inputs(np.asarray(X))

    def predict(
        self,
        X: Any,
        *,
        full_cov: bool = False,
        output_cov: bool = False,
        key: Array | None = None,
        samples: int | None = None,
        index: Any = None,
    ) -> "Predictive | JointPredictive":
        """The distribution p(y | X) of labels at new inputs.

            p(y_n | x_n) = E p(y_n | f_n),    f_n ~ q(f(x_n))

        A model of one layer is integrated without sampling. A deep one is a mixture of `samples` Gaussians, one for
        each sample of its inner layers. Latent variables come from their prior p(h), or from q(h | x) if their encoder
        sees only inputs, by randomised quasi-Monte Carlo: the points of one randomly shifted lattice over the latent
        variables of all layers, the same for all inputs. Random functions are sampled independently for each input.
        The result takes 16·S bytes for each input and output; apart from it, memory does not grow with N.

        For training data, whose labels say something about their latent variables, see `reconstruct`.

        Args:
            X: inputs [N, D], or [N] for one column. None for a model without inputs.
            full_cov: whether to compute the covariance [N·F, N·F] of all latent functions at all inputs. The result is
                then a `JointPredictive`, whose samples and log density are joint over all labels.
            output_cov: whether to compute the covariance [N, F, F] of the latent functions at each input, so that
                samples are joint over the labels of an input. Without it the variances [N, F] are computed, which is
                enough for moments, intervals and densities of single labels.
            key: a random key for the samples of inner layers. The default is `jax.random.key(0)`, so the same call
                gives the same answer.
            samples: the number of samples of the inner layers, by default 1,024 if there are latent variables, else
                100.
            index: integers [N] that say which training data the inputs are, for likelihoods with `PerDatum`
                parameters. By default they are new data.

        Returns:
            A `Predictive`, or a `JointPredictive` if `full_cov` is set. Both have `mean`, `variance`, `interval`,
            `quantile`, `cdf`, `log_prob` and `sample`.

        Raises:
            ValueError: if X or `index` does not fit the model, or both covariances are asked for.

        Examples:
            >>> import inducing as ig
            >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
            >>> pred = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).predict([0.2, 0.7])
            >>> pred.mean.shape, float(pred.variance[0, 0].round(6))
            ((2, 1), 1.1)
            >>> low, high = pred.interval(0.95)
        """
        from inducing.inference.predict import predict  # deferred: inference is built on models

        return predict(self, X, full_cov=full_cov, output_cov=output_cov, key=key, samples=samples, index=index)

    def reconstruct(
        self,
        data: Any,
        *,
        full_cov: bool = False,
        output_cov: bool = False,
        key: Array | None = None,
        samples: int | None = None,
    ) -> "Predictive | JointPredictive":
        """The distribution of labels of known data, with latent variables from q(h | data).

            p(y*_n | data) = E p(y*_n | f(x_n, h_n)),    h_n ~ q(h_n | data),  f ~ q(f)

        Use it to impute missing labels, to reconstruct and to denoise. The result describes all labels of a datum,
        seen or not. To score held-out labels, call its `log_prob` with NaN in place of those that were seen.

        An encoder that sees labels takes any data. One with a Gaussian for each datum takes training data, which
        `Data.index` numbers; `infer` makes Gaussians for new data.

        Args:
            data: `(X, y)` or an `ig.Data`; labels that are missing (NaN) are to be imputed.
            full_cov: whether to compute the covariance [N·F, N·F] of all latent functions at all data.
            output_cov: whether to compute the covariance [N, F, F] of the latent functions of each datum.
            key: a random key for the samples of inner layers, by default `jax.random.key(0)`.
            samples: the number of samples of the inner layers, by default 1,024 if there are latent variables, else
                100.

        Returns:
            A `Predictive`, or a `JointPredictive` if `full_cov` is set.

        Raises:
            ValueError: if the data do not fit the model, or both covariances are asked for.

        Examples:
            >>> import inducing as ig
            >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder([[-1.0], [2.0]], scale=0.1))
            >>> model = ig.Model([latent, ig.Deterministic(lambda h: h * jnp.ones(2))], ig.likelihoods.Gaussian(0.01))
            >>> print(model.reconstruct((None, [[-1.1, float("nan")], [2.2, 1.9]])).mean.round(3))
            [[-1. -1.]
             [ 2.  2.]]
        """
        from inducing.inference.predict import reconstruct  # deferred: inference is built on models

        return reconstruct(self, data, full_cov=full_cov, output_cov=output_cov, key=key, samples=samples)

    def infer(self, data: Any, *, steps: int = 500, learning_rate: float = 0.05, key: Array | None = None) -> "Model":
        """The model with q(h) of new data, for latent variables that have a Gaussian for each datum.

        The q(h) of each new datum starts at that of the training datum under which its labels are most likely. Adam
        then maximises the bound with everything else frozen. Encoders that see labels do not need this.

        Args:
            data: `(X, y)` or an `ig.Data`, whose rows are numbered from 0; labels may be missing (NaN).
            steps: the number of steps.
            learning_rate: the step size of Adam at the start; it decays to 0.
            key: a random key, by default `jax.random.key(0)`.

        Returns:
            A model on which to call `reconstruct` for these data. It differs from this one only in q(h).

        Raises:
            ValueError: if the model has no such latent variables, or the data do not fit it.

        Examples:
            >>> import inducing as ig
            >>> latent = ig.LatentVariable(1, ig.layers.PerDatumEncoder([[-1.0], [2.0]], scale=0.1))
            >>> model = ig.Model([latent, ig.Deterministic(lambda h: h * jnp.ones(2))], ig.likelihoods.Gaussian(0.01))
            >>> new = (None, [[0.5, float("nan")], [-2.0, -2.0], [1.0, 1.0]])
            >>> print(model.infer(new).reconstruct(new).mean[:, 1].round(1))
            [ 0.5 -2.   1. ]
        """
        from inducing.training.infer import infer  # deferred: training is built on models

        return infer(self, data, steps=steps, learning_rate=learning_rate, key=key)

    def posterior(
        self,
        X: Any,
        *,
        full_cov: bool = False,
        output_cov: bool = False,
        key: Array | None = None,
        samples: int | None = None,
    ) -> "Posterior":
        """The approximate posterior q(f(X)) of the last layer's P outputs at new inputs.

        For a deep model it is a mixture over samples of the inner layers; mean, variance and covariance are those of
        the mixture, by the laws of total expectation and variance.

        Args:
            X: inputs [N, D], or [N] for one column. None for a model without inputs.
            full_cov: whether to compute the covariance [N·P, N·P] of all values, flattened datum by datum.
            output_cov: whether to compute the covariance [N, P, P] of the outputs at each input.
            key: a random key for the samples of inner layers, by default `jax.random.key(0)`.
            samples: the number of samples of the inner layers, by default 1,024 if there are latent variables, else
                100.

        Returns:
            A `Posterior` with `mean` [N, P], `variance` [N, P], `covariance` as asked for, `interval` and `sample`.

        Raises:
            ValueError: if X does not fit the model, or both covariances are asked for.

        Examples:
            >>> import inducing as ig
            >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
            >>> float(ig.Model(gp, ig.likelihoods.Gaussian(0.1)).posterior([0.2]).variance[0, 0].round(6))
            1.0
            >>> two = ig.SparseGP(ig.priors.LMC([[1.0], [2.0]], ig.kernels.Matern52()), gp.features)
            >>> model = ig.Model(two, ig.likelihoods.Gaussian(0.1))
            >>> model.posterior([0.2], output_cov=True).covariance.round(6).tolist()
            [[[1.0, 2.0], [2.0, 4.0]]]
        """
        from inducing.inference.posterior import posterior  # deferred: inference is built on models

        return posterior(self, X, full_cov=full_cov, output_cov=output_cov, key=key, samples=samples)

    def draw(self, key: Array, num_features: int = 1024) -> Callable[[Any], Float[Array, "N P"]]:
        """One function drawn from q(f).

        Each layer is drawn by pathwise conditioning (Matheron's rule): a draw from the prior by random features of the
        kernel, plus the update that makes its inducing variables a sample of q(u). The mean over draws is that of q(f)
        exactly, and so is the covariance in expectation over the random features. (For a Matérn 3/2 process the
        sample variance of slopes converges slowly over draws: its frequencies have no fourth moment.)

        A latent variable has one value for all inputs (with an encoder of x, one noise vector). In
        `posterior(X, full_cov=True)`, by contrast, each input has its own value.

        Args:
            key: a random key. The same key gives the same function.
            num_features: the number of random features of each kernel that has infinitely many.

        Returns:
            A function f of inputs X [N, D] with values [N, P]. It is the same function at every call.

        Raises:
            TypeError: if a kernel has no random features, because it is given by its values alone. Sample at fixed
                inputs by `posterior(X, full_cov=True).sample(key)` instead.

        Examples:
            >>> import inducing as ig
            >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
            >>> f = ig.Model(gp, ig.likelihoods.Gaussian(0.1)).draw(jax.random.key(0))
            >>> bool(abs(f([0.2, 0.7])[1, 0] - f([0.7])[0, 0]) < 1e-12)
            True
        """
        from inducing.inference.draw import draw  # deferred: inference is built on models

        return draw(self, key, num_features)


def kind_of(value: Any) -> str:
    """The description of a wrong argument in messages: its type, or the class itself if it was not called.

    Examples:
        >>> kind_of(1.0), kind_of(Model)
        ('float', 'the class Model')
    """
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _check_number(latents: int | None, likelihood: AbstractLikelihood) -> None:
    """Raise a ValueError if the likelihood needs another number of latent functions, for any number of labels."""

    def needed_by(outputs: int) -> int:
        try:
            return likelihood.num_latents(outputs)
        except ValueError:
            return 0

    if latents is not None and latents not in {needed_by(outputs) for outputs in range(1, latents + 1)}:
        columns = len(likelihood.supports)
        raise ValueError(
            f"the last layer gives {latents} latent functions, a number that {type(likelihood).__name__} cannot use; "
            f"for {columns} column{'s' * (columns > 1)} of y it needs {likelihood.num_latents(columns)}. Change the "
            "prior's number of outputs, or the likelihood."
        )


def enter(model: Model, data: Data) -> Float[Array, "N 1 D"]:
    """The inputs as the first layer of a model sees them: one replicate of each datum."""
    return jnp.zeros((len(data), 1, 0), dtype_of(model)) if data.x is None else data.x[:, None]


def needed(key: Any) -> Array:
    """The key, or a ValueError that asks for one."""
    if key is None:
        raise ValueError("this model is sampled, which needs a key: pass key=jax.random.key(0), for example.")
    return as_key(key)
