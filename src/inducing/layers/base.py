"""The contract of layers: approximate posteriors over random functions, or over a latent variable of each datum."""

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from inducing._xla import barrier
from inducing.data import Data
from inducing.layers.starting_values import start_sample
from inducing.parameters import Module, Start, dtype_of, question

if TYPE_CHECKING:
    from inducing.layers.encoders import AbstractEncoder
    from inducing.layers.sparse_gp import SparseGP


def standard_normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Standard normal random numbers.

    The barrier keeps XLA from generating them again in each loop that uses them. They are generated as a vector, which
    compiles to much less machine code than generating a matrix.

    Examples:
        >>> standard_normal(jax.random.key(0), (2, 3), "float32").shape
        (2, 3)
    """
    return barrier(jax.random.normal(key, (math.prod(shape),), dtype)).reshape(shape)


class AbstractLayer(Module):
    """A layer of a model: an approximate posterior over a random function, or over a latent variable of each datum.

    Inputs and outputs have the shape [N, R, width], for R replicates of each of N data. The abstract methods define the
    layer. The other methods are *questions*. Each has a safe default answer, which a layer overrides if it has a better
    one. See docs/extend.md for how to write a layer, and `inducing.testing.check_layer` for a test of it.

    `propagate` samples a layer. Its rules:

    - A random function is drawn jointly over the replicates of a datum and independently over data. So for x of shape
      [1, N, D], the function is drawn once and evaluated at all N inputs. (If it were drawn independently for each
      replicate, the average over functions would be inside the logarithm of an importance-weighted bound, which could
      then exceed the evidence.)
    - x enters a model as [N, 1, D], or [N, 1, 0] if there are no inputs. The first layer that samples a latent variable
      of each datum turns it into [N, R, ·] with R = `replicates`.
    - The log-weight is log p(h)/q(h) for the sampled latent variables h, and 0 for functions. With R = 1 a layer may
      return the expectation −KL(q(h_n) ‖ p(h_n)) instead.
    - `data` holds the rows that x belongs to. In a prediction `data.y` is None. Latent variables are then sampled from
      their prior, or from q(h | x) if their encoder sees only inputs, and all log-weights are 0.

    `moments` and `joint` integrate over the layer's function instead of sampling it. The last layer of a model needs
    them, because training integrates over it.

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> x, data = jnp.zeros((5, 1, 1)), ig.Data(jnp.zeros((5, 1)))
        >>> f, log_weight = gp.propagate(x, jax.random.key(0), data, replicates=1)
        >>> f.shape, log_weight.shape, gp.moments(x)[1][0, 0].round(6).tolist()
        ((5, 1, 1), (5, 1), [1.0])
    """

    _such_as = "a layer, such as ig.SparseGP(prior, features)"

    @property
    @abc.abstractmethod
    def random(self) -> bool:
        """Whether `propagate` draws random numbers."""

    @property
    @abc.abstractmethod
    def terminal(self) -> bool:
        """Whether the layer can be the last one of a model: whether it has `moments` and `joint`."""

    @abc.abstractmethod
    def propagate(
        self, x: Float[Array, "N R D"], key: Array, data: Data, replicates: int
    ) -> tuple[Float[Array, "N R2 D2"], Float[Array, "N R2"]]:
        """A sample of the outputs, and its log-weights.

        Args:
            x: the layer's inputs.
            key: a random key; None if the layer is not `random`.
            data: the data that x belongs to.
            replicates: R, the number of samples of the latent variables of each datum.

        Returns:
            The outputs and the log-weights, as the class docstring explains.
        """

    @abc.abstractmethod
    def cache(self) -> Any:
        """The part of the computation of `moments` and `joint` that does not depend on the inputs, or None."""

    @abc.abstractmethod
    def moments(
        self, x: Float[Array, "N R D"], correlated: bool = False, cache: Any = None
    ) -> tuple[Float[Array, "N R P"], Float[Array, "N R P"] | Float[Array, "N R P P"]]:
        """Mean and variance of the outputs at each input.

        Args:
            x: the layer's inputs.
            correlated: whether to return the covariance [N, R, P, P] of the outputs. A layer whose outputs are not
                `correlated` may return the variances all the same.
            cache: the layer's `cache`, if it is known.

        Returns:
            The mean, and the variances or covariances.
        """

    @abc.abstractmethod
    def joint(
        self, X: Float[Array, "N G D"], cache: Any = None
    ) -> tuple[Float[Array, "N G P"], Float[Array, "N GP GP"]]:
        """Mean and covariance of all outputs at the G points of each of N groups, flattened point by point.

        Args:
            X: the points of each group.
            cache: the layer's `cache`, if it is known.
        """

    @abc.abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL(q ‖ p) of the layer's random function; 0 for a latent variable, whose KL is part of the log-weight."""

    @abc.abstractmethod
    def draw(self, key: Array, num: int, dim: int) -> Callable[..., Float[Array, "n P"]]:
        """One function drawn from the layer's posterior.

        Args:
            key: a random key.
            num: the number of random features for a function that has infinitely many.
            dim: the number of columns of the inputs.

        Returns:
            A function f(X, x=None) of inputs X [n, dim] that is the same at every call. x holds the model's inputs that
            belong to X, for encoders that see them; by default they are X.
        """

    @abc.abstractmethod
    def width(self, inputs: int | None) -> int | None:
        """The number of outputs for this number of inputs; None if it is unknown.

        Raises:
            ValueError: if the layer does not take that number of inputs.
        """

    @property
    @question
    def correlated(self) -> bool:
        """Whether the outputs at one input may be correlated; samples then need their covariance. If in doubt, yes."""
        return True

    @property
    @question
    def couples_replicates(self) -> bool:
        """Whether the output of one replicate of a datum depends on its other replicates. If in doubt, yes."""
        return True

    @property
    @question
    def num_inputs(self) -> int | None:
        """The number of columns of the inputs; None if the layer takes any number, or does not know it."""
        return None

    @property
    @question
    def num_sites(self) -> int:
        """The number of values of each latent function for one input, by which predictions reduce their blocks."""
        return 1

    @property
    @question
    def group_size(self) -> int:
        """The number of consecutive outputs that are functionals of one function. Labels of one of them are enough."""
        return 1

    @property
    @question
    def inducing_inputs(self) -> Float[Array, "M D"] | None:
        """The inducing inputs, for plots; None if there are none."""
        return None

    @question
    def check_inputs(self, X: np.ndarray) -> None:
        """Raise a ValueError if the layer cannot take some value in X [N, D], such as an unknown category."""

    @question
    def check_below(self, below: "AbstractLayer | None", name: str) -> None:
        """Raise a ValueError if the layer cannot be placed above another one.

        Args:
            below: the layer below; None if this layer sees the model's inputs.
            name: how the message names this layer, such as "layers[1]".
        """

    @question
    def variational(self) -> Any:
        """A pytree of the variational parameters: features, and q of functions, weights or latent variables."""
        return ()

    @question
    def gaussians(self) -> tuple[tuple[Array, Any], ...]:
        """The mean [L, M] and root of each Gaussian q(u) of the layer, which natural gradients may move."""
        return ()

    @question
    def as_sparse_gp(self) -> "SparseGP | None":
        """The sparse GP whose outputs are the layer's outputs: the layer itself or a part of it. None if there is none.

        With Gaussian noise, its optimal q(u) has a closed form.
        """
        return None

    @property
    @question
    def is_whitened(self) -> bool:
        """Whether the prior of u is N(0, I) for each of the `gaussians`. If in doubt, no."""
        return not self.gaussians()

    @question
    def latent_posterior(self, data: Data) -> tuple[Float[Array, "N d"], Array, Float[Array, " N"]] | None:
        """Mean, root and KL(q(h_n) ‖ p(h_n)) of the Gaussian latent variables h_n that the layer appends to its input.

        None if it has none, or if q(h_n) depends on the layer's input.
        """
        return None

    @question
    def per_datum(self) -> Any:
        """A pytree of the layer's arrays that have one row for each datum, addressed by `Data.index`."""
        return ()

    @question
    def encoders(self) -> "tuple[AbstractEncoder, ...]":
        """The encoders of the layer's latent variables."""
        return ()

    @question
    def check_index(self, index: np.ndarray) -> None:
        """Raise a ValueError if `per_datum` arrays have no row for some entry of `index` [N]."""

    @question
    def sample_global(
        self, x: Float[Array, "N 1 D"], key: Array, data: Data, weight: Float[Array, "N 1"]
    ) -> tuple[Float[Array, "N 1 P"], Float[Array, ""]] | None:
        """One sample of the layer's weights θ, shared by all data and applied to x, and log p(θ)/q(θ).

        It is used for importance weighting over θ itself. Latent variables are sampled too; their log-ratios are
        multiplied by `weight` and added.

        Args:
            x: the layer's inputs.
            key: a random key.
            data: the data that x belongs to.
            weight: how often each row counts, 0 for one without labels.

        Returns:
            The outputs and the log-ratio; None if the layer cannot sample its weights once for all data.
        """
        return None

    @question
    def sample_latents(
        self, x: Float[Array, "N R D"], key: Array, data: Data, replicates: int
    ) -> Float[Array, "N R2 d"] | None:
        """The latent variables h that `propagate` samples from the same arguments; None if they cannot be shifted."""
        return None

    @question
    def shifted(
        self, x: Float[Array, "N R D"], key: Array, data: Data, replicates: int, shift: Float[Array, "N R2 d"]
    ) -> tuple[Float[Array, "N R2 D2"], Float[Array, "N R2"]]:
        """`propagate` with `shift` added to the latent variables, for layers that answer `sample_latents`.

        The log-weight is that of the sample, log p(h)/q(h), for any number of replicates.
        """
        raise TypeError(f"{type(self).__name__} has no latent variables that could be shifted.")

    @property
    @question
    def latent_dim(self) -> int:
        """The number of standard normal numbers that determine the latent variables of a datum; 0 if there are none."""
        return 0

    @question
    def place(self, x: Float[Array, "N R D"], noise: Float[Array, "N R k"], data: Data) -> Float[Array, "N R D2"]:
        """The outputs for latent variables computed from `noise`, k = `latent_dim` standard normal numbers each.

        This is for layers of latent variables. A layer made of other layers implements `through` instead.
        """
        raise TypeError(f"{type(self).__name__} has no latent variables that could be placed.")

    @question
    def through(self, x: Float[Array, "N R D"], visit: "Callable[[AbstractLayer, Array], Array]") -> Array:
        """The outputs, computed by visit(layer, x) for each layer that does not contain other layers.

        A layer made of other layers passes x through them by calling `through` of each.
        """
        return visit(self, x)

    @question
    def relative_jitter(self) -> Float[Array, ""]:
        """The largest jitter on a diagonal of Kuu, relative to that diagonal; 0 if the layer factorises no Kuu."""
        return jnp.zeros((), dtype_of(self))

    @property
    @question
    def is_fresh(self) -> bool:
        """Whether `fit` may choose new scales for the prior, because no q that depends on them was trained or set.

        If in doubt, no. By default a layer is fresh if it declares no `variational` arrays.
        """
        return not jax.tree.leaves(self.variational())

    @question
    def at_prior(self) -> "AbstractLayer":
        """The layer with q set to the prior. It is called after the prior's parameters have changed."""
        return self

    @question
    def units(self, x: Float[Array, "N D"] | None) -> list[tuple[Array, Any]]:
        """Parameters that are locations or levels, with the unit in which training moves each.

        With such units, a gradient step has the same effect whatever the units of the data. Parameters that are trained
        through their logarithm need no unit, and units for them are ignored.

        Args:
            x: the layer's inputs, if it is the first layer; else None.

        Returns:
            Pairs of an array of the layer and its unit, which broadcasts to its shape. If there are several units for
            the same array, the last one is used.
        """
        return []

    @question
    def start_inputs(
        self, x: Callable[[], Float[Array, "n D"]], data: Data, seeds: Iterator[int]
    ) -> tuple[list[Start], Callable[[], Float[Array, "n2 P"]]]:
        """Starting values that follow from the layer's inputs, and a sample of its outputs.

        Samples are passed as functions without arguments, because computing a sample compiles and runs the layers
        below. A layer calls x() only if it needs its inputs, and the sample of the last layer is never computed. See
        `start_stack`.

        Args:
            x: returns a sample of the layer's inputs. For the first layer these are all inputs.
            data: the data without labels, so that latent variables are sampled from their prior. If the sample has
                fewer rows, `some_rows` selects the rows of the data that belong to it.
            seeds: an iterator of seeds. A layer takes one if it is sampled, after it has evaluated x().

        Returns:
            Starting values, and a function that returns a sample of the outputs at `some_rows` of the inputs. If there
            are several starting values for the same array, the last one is used.
        """
        return [], start_sample(self, x, data, seeds)

    @question
    def start_outputs(
        self, likelihood: Any, x: Float[Array, "N D"] | None, y: Float[np.ndarray, "N P"], width: int
    ) -> list[Start]:
        """Starting values of a last layer and of the likelihood, from the labels.

        Args:
            likelihood: the model's likelihood.
            x: the inputs of the layer that belong to the labels, if it is the only layer; else None.
            y: the labels, NaN where missing.
            width: the number of columns of the layer's inputs.
        """
        return []


def start_stack(
    layers: Sequence[AbstractLayer], x: Callable[[], Float[Array, "n D"]], data: Data, seeds: Iterator[int]
) -> tuple[list[Start], Callable[[], Float[Array, "n2 P"]]]:
    """`AbstractLayer.start_inputs` for a stack of layers.

    The lowest of several layers that share an array sets its starting value, because those of lower layers come last.

    Examples:
        >>> import itertools
        >>> import inducing as ig
        >>> x, layers = jnp.ones((3, 1)), [ig.LatentVariable(2), ig.BayesianDense(3, 1)]
        >>> starts, sample = start_stack(layers, lambda: x, ig.Data(x), itertools.count())
        >>> starts, sample().shape
        ([], (3, 1))
    """
    starts: list[Start] = []
    for layer in layers:
        own, x = layer.start_inputs(x, data, seeds)
        starts = own + starts
    return starts, x


def check_stack(layers: Sequence[AbstractLayer], below: AbstractLayer | None, name: str) -> None:
    """Check that each layer can be placed above the one before it. Messages call the layers `name`."""
    for i, layer in enumerate(layers):
        layer.check_below(below, f"{name}[{i}]")
        below = layer


def refuse_terminal(layer: AbstractLayer) -> NoReturn:
    """Raise the TypeError of a layer without `moments` and `joint`."""
    raise TypeError(
        f"{type(layer).__name__} cannot be the last layer of a model: its output is not a Gaussian function of its "
        "input. End the stack with a SparseGP, BayesianDense or Deterministic layer."
    )


def append(x: Float[Array, "N R0 D"], h: Float[Array, "N R d"]) -> Float[Array, "N R D+d"]:
    """[x, h], where x may have one replicate only."""
    return jnp.concatenate([jnp.broadcast_to(x, (*h.shape[:2], x.shape[2])), h], axis=-1)


def stack_width(layers: Sequence[AbstractLayer], inputs: int | None, first: str) -> int | None:
    """The number of outputs of a stack of layers.

    Args:
        layers: the layers, the lowest first.
        inputs: the number of inputs of the first layer; None if it is unknown.
        first: the source of the inputs of the first layer, such as "X has", for messages.

    Raises:
        ValueError: if a layer cannot take the outputs of the one below; the message names both.

    Examples:
        >>> import inducing as ig
        >>> stack_width([ig.LatentVariable(2), ig.BayesianDense(3, 1)], 1, "X has")
        1
    """
    width = inputs
    for i, layer in enumerate(layers):
        kind = f"layers[{i}], a {type(layer).__name__}"
        try:
            following = layer.width(width)
        except ValueError as error:
            if width is None:  # the number of inputs is unknown, so the error is about the layer itself
                raise ValueError(f"{kind}: {error}") from error
            source = first if i == 0 else f"layers[{i - 1}], a {type(layers[i - 1]).__name__}, gives"
            raise ValueError(f"{source} {width} columns, which do not fit {kind}: {error}") from error
        width = following
    return width


def draw_stack(layers: Sequence[AbstractLayer], key: Array, num: int, dim: int) -> Callable[..., Float[Array, "n P"]]:
    """`AbstractLayer.draw` for a stack of layers.

    Examples:
        >>> import inducing as ig
        >>> f = draw_stack([ig.LatentVariable(2), ig.BayesianDense(3, 1)], jax.random.key(0), 1, dim=1)
        >>> f(jnp.zeros((4, 1))).shape
        (4, 1)
    """
    functions, width = [], dim
    for layer, k in zip(layers, jax.random.split(key, len(layers)), strict=True):
        functions.append(layer.draw(k, num, width))
        following = layer.width(width)
        assert following is not None  # because the number of inputs is known
        width = following

    def f(X: Float[Array, "n D"], x: Array | None = None) -> Float[Array, "n P"]:
        Y = X
        for function in functions:
            Y = function(Y, X if x is None else x)
        return Y

    return f


def sum_of_kl(stack: Any) -> Float[Array, ""]:
    """The sum Σ_l KL(q_l ‖ p_l) over `stack.layers`, in the dtype of the stack, since some layers have no arrays.

    Examples:
        >>> import inducing as ig
        >>> float(sum_of_kl(ig.Skip(ig.Deterministic(jnp.tanh))))
        0.0
    """
    dtype = dtype_of(stack)
    return sum((layer.kl().astype(dtype) for layer in stack.layers), jnp.zeros((), dtype))
