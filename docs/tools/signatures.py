"""A Griffe extension that shows docstrings and signatures as Python sees them.

Griffe reads the source and does not run it. It cannot know the constructor of an Equinox module, which is made from
the fields of the class and its bases, so this extension takes it from the imported class. It also fences examples that
stand outside of an `Examples:` section, where Markdown would take `>>>` for a quotation.
"""

import importlib
import inspect
import re
from typing import Any

import griffe

WORD_JOINER = "\N{WORD JOINER}"  # invisible


class Signatures(griffe.Extension):
    """Add missing constructors and fence bare examples."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        if "__init__" in cls.members:
            return
        try:
            value = getattr(importlib.import_module(cls.module.path), cls.name)
            signature = inspect.signature(value)
        except (AttributeError, ValueError):  # a class inside a function or class, or one written in C
            return
        names = list(signature.parameters.values())
        if not names or issubclass(value, BaseException):
            return
        parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        for parameter in names:
            kind = griffe.ParameterKind(parameter.kind.description)
            default = None if parameter.default is parameter.empty else _default(parameter.default)
            parameters.append(griffe.Parameter(parameter.name, kind=kind, default=default))
        init = griffe.Function("__init__", parameters=griffe.Parameters(*parameters), parent=cls, runtime=True)
        init.lineno, init.endlineno = cls.lineno, cls.lineno
        cls.set_member("__init__", init)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)


def _default(value: Any) -> str:
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return "…" if len(repr(value)) > 30 else repr(value)


def fence(text: str) -> str:
    """The text with examples at its left margin in fenced blocks, and without accidental links.

    Markdown takes `Kuf[m](x)` and `E[f] [N, P]` for links; docstrings have none, so an invisible character parts them.
    """
    lines, fenced, example = [], False, False
    for line in inspect.cleandoc(text).split("\n"):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if line.startswith(">>>") and not fenced:
            lines += ["", "```pycon"] if lines and lines[-1] else ["```pycon"]
            fenced = True
        elif fenced and not line:
            lines.append("```")
            fenced = False
        lines.append(line if example else re.sub(r"\](?= ?[\[(])", "]" + WORD_JOINER, line))
    return "\n".join([*lines, "```"] if fenced else lines)
