"""What a file may name: the classes and functions of a fixed list, by tags that do not depend on where code lives."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from inducing import features, kernels, layers, likelihoods, means, priors
from inducing.declared import shown
from inducing.features.integral import Waves
from inducing.likelihoods import links
from inducing.model import Model
from inducing.parameters import Module, as_tuple
from inducing.priors.as_input import OutputAsInput, OutputKernel

ROOMS = {
    "kernels": kernels,
    "means": means,
    "features": features,
    "priors": priors,
    "likelihoods": likelihoods,
    "layers": layers,
}
NUMPY = (
    "abs arctan arcsinh cos cosh exp expm1 log log1p logaddexp negative reciprocal sign sin sinh sqrt square tan tanh"
)
NEURAL = (
    "celu elu gelu glu hard_sigmoid hard_silu hard_tanh identity leaky_relu log_sigmoid log_softmax mish relu relu6"
)
NEURAL += " selu sigmoid silu soft_sign softmax softplus sparse_plus squareplus standardize swish tanh"


@functools.cache
def known_parts() -> dict[str, Any]:
    """Every class and function that a file may name without the caller's help, by its tag.

    Tags are public names: "kernels.Matern52" is `ig.kernels.Matern52`, "eqx.nn.MLP" is Equinox's perceptron.

    Returns:
        A dictionary of tags to classes and functions.

    Examples:
        >>> known_parts()["kernels.Matern52"].__name__
        'Matern52'
    """
    found: dict[str, Any] = {"Model": Model, "features.Waves": Waves}
    found |= {"priors.OutputAsInput": OutputAsInput, "priors.OutputKernel": OutputKernel}
    for room, module in ROOMS.items():
        found |= {f"{room}.{name}": part for name, part in vars(module).items() if _is_part(part)}
    found |= {f"links.{name}": part for name, part in vars(links).items() if _is_class(part, links.AbstractLink)}
    found |= {f"eqx.nn.{name}": part for name, part in vars(eqx.nn).items() if _is_class(part, eqx.Module)}
    found["eqx.nn.identity"] = inspect.signature(eqx.nn.MLP).parameters["final_activation"].default
    found |= {f"jnp.{name}": getattr(jnp, name) for name in NUMPY.split()}
    found |= {f"jax.nn.{name}": getattr(jax.nn, name) for name in NEURAL.split()}
    return found


def _is_class(part: Any, base: type) -> bool:
    return inspect.isclass(part) and issubclass(part, base) and not inspect.isabstract(part)


def _is_part(part: Any) -> bool:
    return _is_class(part, Module)


@functools.cache
def _tags() -> dict[int, str]:
    """The tag of each known part, by identity: functions that JAX has wrapped have no names to rely on."""
    return {id(part): tag for tag, part in reversed(known_parts().items())}


def tag_of(part: Any) -> str | None:
    """The tag of a known class or function; None for what only its user knows.

    Args:
        part: a class or function.

    Returns:
        The tag, or None.

    Examples:
        >>> import jax.numpy as jnp
        >>> tag_of(jnp.tanh)
        'jnp.tanh'
    """
    return _tags().get(id(part))


def users_tag(part: Any) -> str:
    """The tag of a user's class or named function: its name.

    Args:
        part: a class or function.

    Returns:
        "user:" and the name.

    Examples:
        >>> def my_function(x): return x
        >>> users_tag(my_function)
        'user:my_function'
    """
    return f"user:{part.__name__}"


def with_users(parts: Iterable[Any]) -> dict[str, Any]:
    """The known parts and those that the caller passes.

    Args:
        parts: the caller's own classes and named functions.

    Returns:
        A dictionary of tags to classes and functions.

    Raises:
        TypeError: an entry has no name, or two have the same.
    """
    own: dict[str, Any] = {}
    if not isinstance(given := as_tuple(parts), tuple):
        raise TypeError(f"parts must be a list of classes and named functions, got {shown(parts)}.")
    for part in given:
        name = getattr(part, "__name__", None)  # whatever a caller may pass
        if not callable(part) or name is None or name == "<lambda>":
            raise TypeError(f"parts must be classes and named functions, got {part!r}.")
        if own.setdefault(users_tag(part), part) is not part:
            raise TypeError(f"parts has two entries named {name}; give them different names.")
    return known_parts() | own


def is_named(function: Callable) -> bool:
    """Whether a function can be found again by its name: it is not a lambda or a method, and captures no variables.

    Args:
        function: any callable.

    Returns:
        Whether it has a usable name.

    Examples:
        >>> is_named(lambda x: x)
        False
    """
    name = getattr(function, "__name__", "<lambda>")  # callables need not have one
    if name == "<lambda>" or inspect.ismethod(function):
        return False
    if (
        getattr(sys.modules.get(getattr(function, "__module__", "")), name, None) is function
    ):  # such as one with a decorator
        return True
    inside = inspect.unwrap(function, stop=_captures)  # of what jax.jit made
    return not _captures(inside)


def _captures(function: Callable) -> bool:
    return bool(getattr(function, "__closure__", None))  # callables need not have one
