"""Objectives: functions of a model and data that `fit` maximises, with answers to questions about themselves."""

import abc
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from inducing.checks import checked_data
from inducing.data import Data
from inducing.parameters import question
from inducing.streams import Stream


class Optimum(NamedTuple):
    """The optimal q(u) of an objective.

    Attributes:
        bound: the objective at the optimal q(u), as a function of the other parameters alone.
        attain: a function of a model and its `Data` that gives the model with the optimal q(u).
        collapsed: whether `bound` is `ig.collapsed_elbo`, which `fit(method="collapsed")` maximises.
        required: whether `fit` must set q(u) at the end, so that it refuses to freeze q(u).

    Examples:
        >>> import inducing as ig
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model = ig.Model(gp, ig.likelihoods.Gaussian(0.1))
        >>> ig.elbo.optimum(model, {}).bound is ig.collapsed_elbo
        True
        >>> ig.elbo.optimum(model, {"beta": 0.5}) is None
        True
    """

    bound: "AbstractObjective"
    attain: Callable[[Any, Data], Any]
    collapsed: bool = False
    required: bool = True


class AbstractObjective(abc.ABC):
    """A function of a model and data that `fit` maximises.

    `ig.elbo` and its relatives are objectives. `fit` also takes any function of (model, data). It reads from the
    signature whether the function takes a random `key` and `num_data`, and assumes that it is noisy if it takes a key.
    If more is known about your objective, derive a class from this one, implement `__call__`, and answer the questions.
    Each question has a safe default. `options` are the keyword arguments that `functools.partial` has bound.

    Examples:
        >>> import inducing as ig
        >>> class MeanElbo(ig.bounds.AbstractObjective):
        ...     takes_minibatches = True
        ...     def __call__(self, model, data, *, key=None, num_data=None):
        ...         return ig.elbo.evaluate(model, data, key=key, num_data=num_data) / (num_data or len(data))
        ...     def is_noisy(self, model, options):
        ...         return model.is_stochastic
        >>> gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), ig.features.InducingPoints([[0.0], [1.0]]))
        >>> model, data = ig.Model(gp, ig.likelihoods.Gaussian(0.1)), ([0.0, 1.0], [0.5, 0.2])
        >>> ig.fit(model, data, objective=MeanElbo(), steps=5, progress=False).method
        'natgrad'
    """

    @abc.abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Float[Array, ""]:
        """objective(model, data, **options): the value to maximise.

        Args:
            *args: the model, and the data or a minibatch of them.
            **kwargs: `key`, a random key, and `num_data`, the number of all data, if the signature has them; and
                options.

        Returns:
            One number.
        """

    @question
    def evaluate(self, model: Any, data: Data, **options: Any) -> Any:
        """The value for a model and `Data` that have been checked. This is what `fit` compiles."""
        return self(model, data, **options)

    @property
    @question
    def takes_minibatches(self) -> bool:
        """Whether, given `num_data`, the value on a random minibatch estimates the value on all data."""
        return False

    @property
    @question
    def is_in_nats(self) -> bool:
        """Whether the value is log p(y), or a bound on it, in nats. If in doubt, no."""
        return False

    @property
    @question
    def needs_data(self) -> bool:
        """Whether the value depends on the data that it is called with. If in doubt, yes."""
        return True

    @question
    def is_noisy(self, model: Any, options: Mapping[str, Any]) -> bool:
        """Whether the value on all data depends on the random key."""
        return True

    @question
    def is_quadratic(self, model: Any, options: Mapping[str, Any]) -> bool:
        """Whether the value is quadratic in u, so that natural-gradient steps of any length are safe."""
        return False

    @question
    def optimum(self, model: Any, options: Mapping[str, Any]) -> Optimum | None:
        """The bound at the optimal q(u), and how to find that q(u), if both have a closed form; else None."""
        return None


class AbstractBound(AbstractObjective):
    """An objective made from a function of a model and checked `Data`. A subclass decorates the function.

    A call checks the model and the data and then evaluates the function. The objective has the name, signature and
    docstring of the function.
    """

    __name__: str
    is_in_nats = True

    def __init__(self, function: Callable[..., Float[Array, ""]]):
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, model: Any, data: Any, **options: Any) -> Float[Array, ""]:
        if isinstance(data, Stream):
            return self.on_stream(model, data, options)
        return self._function(model, checked_data(model, data), **options)

    @question
    def on_stream(self, model: Any, stream: Stream, options: Mapping[str, Any]) -> Float[Array, ""]:
        """The value on all rows of a stream."""
        raise TypeError(
            f"{self.__name__} needs data in memory; pass a batch of the stream, or stream.sample(), and num_data if it "
            "takes that. ig.fit takes the stream itself."
        )

    def evaluate(self, model: Any, data: Data, **options: Any) -> Float[Array, ""]:
        return self._function(model, data, **options)

    def __repr__(self) -> str:
        return f"<objective {self.__name__}{inspect.signature(self._function)}>"

    def __reduce__(self) -> str:
        return self.__name__  # pickled and copied by name, as a function is


class _Function(AbstractObjective):
    """A user's function, about which only its signature is known."""

    takes_minibatches = True  # if its signature has num_data, which `Target` finds out

    def __init__(self, function: Callable):
        self._function = function

    def __call__(self, model: Any, data: Any, **options: Any) -> Any:  # the value is checked by `Target`
        return self._function(model, data, **options)


class Target(eqx.Module):
    """What `fit` maximises: an objective with its options, plus an optional log prior of the model's parameters.

    Args:
        fn: an `AbstractObjective`, a function of (model, data), or a `functools.partial` of either.
        log_prior: a function of the model.

    Attributes:
        fn: as given, or an equal `functools.partial` of an earlier target, for which programs have been compiled.
        log_prior: as given.
        takes_key: whether the objective is called with a random key.
        takes_num_data: whether the objective takes minibatches, and so is called with the number of all data.
        is_in_nats: whether the objective is log p(y), or a bound on it, in nats.
    """

    fn: Callable = eqx.field(static=True)
    log_prior: Callable | None = eqx.field(static=True)
    takes_key: bool = eqx.field(static=True)
    takes_num_data: bool = eqx.field(static=True)
    is_in_nats: bool = eqx.field(static=True)

    def __init__(self, fn: Callable, log_prior: Callable | None = None):
        objective, options = unwrapped(fn)
        names = inspect.signature(fn).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
        self.fn, self.log_prior = _known(fn) if isinstance(fn, functools.partial) else fn, log_prior
        self.takes_key = "key" not in options and (anything or "key" in names)
        scales = "num_data" not in options and (anything or "num_data" in names)
        self.takes_num_data = scales and objective.takes_minibatches
        self.is_in_nats = objective.is_in_nats

    def __call__(self, model: Any, data: Data, key: Array | None, num_data: int) -> Float[Array, ""]:
        objective, options = unwrapped(self.fn)
        if self.takes_key:
            options["key"] = key
        if self.takes_num_data:
            options["num_data"] = num_data
        value = _number("objective(model, data)", objective.evaluate(model, data, **options))
        return value if self.log_prior is None else value + _number("log_prior(model)", self.log_prior(model))


def unwrapped(fn: Callable) -> tuple[AbstractObjective, dict[str, Any]]:
    """The objective inside any number of `functools.partial`, and the options that these have bound.

    Args:
        fn: an objective, a function of (model, data), or a partial of either.

    Returns:
        The objective and its options. A function that is not an `AbstractObjective` becomes one whose answers about
        itself are the safe defaults.

    Examples:
        >>> from functools import partial
        >>> import inducing as ig
        >>> objective, options = unwrapped(partial(partial(ig.elbo, beta=0.5), samples=3))
        >>> objective is ig.elbo, options
        (True, {'beta': 0.5, 'samples': 3})
    """
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    while isinstance(fn, functools.partial):
        args, options = (*fn.args, *args), {**fn.keywords, **options}
        fn = fn.func
    if isinstance(fn, AbstractObjective) and not args:
        return fn, options
    return _Function(functools.partial(fn, *args) if args else fn), options


_partials: dict[Any, Callable] = {}


def _known(fn: functools.partial) -> Callable:
    """The first `functools.partial` that held the same, for which programs have been compiled."""
    options = frozenset((name, type(value)) for name, value in fn.keywords.items())  # because 1 == 1.0
    try:
        return _partials.setdefault((fn.func, fn.args, options, frozenset(fn.keywords.items())), fn)
    except TypeError:  # options that cannot be hashed, such as arrays
        return fn


def _number(name: str, value: Any) -> Float[Array, ""]:
    if jnp.shape(value):
        raise ValueError(f"{name} must be one number, got shape {jnp.shape(value)}; sum it.")
    return value
