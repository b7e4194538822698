"""A model: a stack of layers that ends in a likelihood."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing.data import Data
from inducing.layers.base import AbstractLayer, check_stack, stack_width, sum_of_kl
from inducing.layers.deterministic import first_layer
from inducing.likelihoods.base import AbstractLikelihood
from inducing.parameters import Module, as_key, dtype_of
from inducing.priors.as_input import OutputAsInput
from inducing.priors.gp import GP
from inducing.priors.independent import Independent
from inducing.priors.lmc import AbstractMixture
from inducing.priors.matrix_valued import MatrixValued, every_output

if TYPE_CHECKING:
    from inducing.inference.predict import JointPredictive, Posterior, Predictive


class Model(Module):
    """Layers and a likelihood: y_n ~ p(y | f_L), f_L = the last layer at the output of those before it.

    `layers` is one layer or a sequence of them. `predict(X)` is the distribution of new labels, `posterior(X)` that of
    f_L, `draw(key)` a function drawn from it, `kl()` the sum of the layers' KLs; `help(ig.inference.predict)` and so
    on say more. `ig.fit` gives a trained model.

    >>> import inducing as ig
    >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
    >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
    >>> model.predict([0.5]).mean.shape
    (1, 1)
    """

    layers: tuple[AbstractLayer, ...]
    likelihood: AbstractLikelihood

    def __init__(self, layers: AbstractLayer | Sequence[AbstractLayer], likelihood: AbstractLikelihood):
        layers = tuple(layers) if isinstance(layers, Iterable) else (layers,)
        if not layers:
            raise ValueError("layers is empty; a model needs at least one layer, such as ig.SparseGP(prior, features).")
        for i, layer in enumerate(layers):
            if not isinstance(layer, AbstractLayer):
                raise TypeError(
                    f"layers[{i}] must be a layer such as ig.SparseGP(...), got {kind_of(layer)}; wrap functions "
                    "and networks in ig.Deterministic(...)."
                )
        if not layers[-1].terminal:
            raise ValueError(
                f"the last layer is a {type(layers[-1]).__name__}, which has no Gaussian output; "
                "end the stack with a SparseGP, BayesianDense or Deterministic layer."
            )
        check_stack(layers, None, "layers")
        if not isinstance(likelihood, AbstractLikelihood):
            raise TypeError(f"likelihood must be one of ig.likelihoods, got {kind_of(likelihood)}.")
        self.layers = layers
        self.likelihood = likelihood
        _check_number(self.width(None), likelihood)

    def width(self, inputs: int | None) -> int | None:
        """The number of outputs of the last layer for so many inputs; a ValueError names layers that do not fit.

        None stands for an unknown number of inputs: then what follows the first layer of known width is checked.
        """
        try:
            return stack_width(self.layers, inputs, "X has")
        except ValueError as error:
            raise ValueError(f"{error}.") from error

    @property
    def is_stochastic(self) -> bool:
        """Whether evaluating the model samples anything: all layers but the last are sampled."""
        return any(layer.random for layer in self.layers[:-1])

    def propagate(
        self, data: Data, key: Array | None, replicates: int = 1, shifts: Mapping[int, Array] | None = None
    ) -> tuple[Float[Array, "N R D"], Float[Array, "N R"]]:
        """Sample all layers but the last; the input of the last one and the summed log-weights.

        Data without inputs enter as [N, 1, 0]. R is `replicates` from the first latent variable on, 1 before it.
        `shifts` move the latent variables of layers, by number.
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
        """One key for each layer, the last included; needed only if inner layers are random."""
        if not self.is_stochastic and key is None:
            return (None,) * len(self.layers)
        return jax.random.split(needed(key), len(self.layers))

    def kl(self) -> Float[Array, ""]:
        """Σ_l KL(q_l ‖ p_l) over the layers."""
        return sum_of_kl(self)

    def check_inputs(self, X: Float[Array, "N D"]) -> None:
        """Raise a ValueError for values of X that the first layer cannot take: unknown categories or outputs."""
        prior = getattr(first_layer(self), "prior", None)
        rows = X if isinstance(X, jax.core.Tracer) else np.asarray(X)
        if isinstance(prior, OutputAsInput):
            prior.check_inputs(rows)
            prior, rows = prior.prior, rows[:, :-1]
        if isinstance(prior, GP | Independent | AbstractMixture | MatrixValued) and isinstance(rows, np.ndarray):
            if isinstance(prior, MatrixValued):
                with jax.ensure_compile_time_eval():
                    rows = np.asarray(every_output(jnp.asarray(rows), prior.num_outputs))
            for kernel in prior.kernels:
                kernel.check_inputs(rows)

    def predict(
        self,
        X: Any,
        *,
        full_cov: bool = False,
        output_cov: bool = False,
        key: Array | None = None,
        samples: int = 100,
        index: Any = None,
    ) -> "Predictive | JointPredictive":
        """The predictive distribution p(y | X) of new labels: see `inducing.inference.predict`."""
        from inducing.inference.predict import predict

        return predict(self, X, full_cov=full_cov, output_cov=output_cov, key=key, samples=samples, index=index)

    def posterior(
        self,
        X: Any,
        *,
        full_cov: bool = False,
        output_cov: bool = False,
        key: Array | None = None,
        samples: int = 100,
    ) -> "Posterior":
        """q(f(X)), mean, variance and covariance as asked: see `inducing.inference.posterior`."""
        from inducing.inference.predict import posterior

        return posterior(self, X, full_cov=full_cov, output_cov=output_cov, key=key, samples=samples)

    def draw(self, key: Array, num_features: int = 1024) -> Callable:
        """One function of q(f), the same wherever it is evaluated: see `inducing.inference.draw`."""
        from inducing.inference.predict import draw

        return draw(self, key, num_features)


def kind_of(value: Any) -> str:
    """How an error names what was given: by its type, a class as such, since that is one that was not called.

    >>> kind_of(1.0), kind_of(GP)
    ('float', 'the class GP')
    """
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _check_number(latents: int | None, likelihood: AbstractLikelihood) -> None:
    """Raise a ValueError if no number of outputs needs so many latent functions."""

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
    """The inputs as a model's first layer sees them."""
    return jnp.zeros((len(data), 1, 0), dtype_of(model)) if data.x is None else data.x[:, None]


def needed(key: Any) -> Array:
    """The key, or an error that asks for one."""
    if key is None:
        raise ValueError("this model is sampled, for which a key is needed: pass key=jax.random.key(0), say.")
    return as_key(key)
