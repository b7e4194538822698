"""A description of a model: a tree of calls, which can be printed as Python, run, or read by the reference."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Part:
    """A call `name(*args, **options)`; the names "+" and "*" join their arguments."""

    name: str
    args: tuple = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, option: str) -> Any:
        return self.options[option]

    def get(self, option: str, default: Any = None) -> Any:
        return self.options.get(option, default)

    @property
    def kind(self) -> str:
        """The last word of the name: Matern52 for ig.kernels.Matern52."""
        return self.name.rsplit(".", 1)[-1]


def code(value: Any) -> str:
    """The Python expression that builds what is described."""
    if isinstance(value, Part):
        if value.name in ("+", "*"):
            return "(" + f" {value.name} ".join(map(code, value.args)) + ")"
        options = [f"{name}={code(option)}" for name, option in value.options.items()]
        return f"{value.name}({', '.join([*map(code, value.args), *options])})"
    if isinstance(value, Function):
        return value.name
    if isinstance(value, list):
        return "[" + ", ".join(map(code, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(code, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


@dataclass(frozen=True)
class Function:
    """A function by its name, such as jnp.tanh."""

    name: str
