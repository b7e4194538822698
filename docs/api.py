"""Writes docs/api.md, the list of public names with the first lines of their docstrings: python docs/api.py"""

import ast
import importlib
import inspect
from pathlib import Path

DOCS = Path(__file__).resolve().parent
MODULES = {  # by the name users write
    "ig": "inducing",
    "ig.kernels": "inducing.kernels",
    "ig.means": "inducing.means",
    "ig.features": "inducing.features",
    "ig.priors": "inducing.priors",
    "ig.likelihoods": "inducing.likelihoods",
    "ig.layers": "inducing.layers",
    "ig.initialise": "inducing.training.initialise",
    "ig.report": "inducing.report",
    "ig.inference": "inducing.inference",
    "ig.objectives": "inducing.bounds",
    "ig.parameters": "inducing.parameters",
    "ig.gaussian": "inducing.gaussian",
    "ig.linalg": "inducing.linalg",
    "inducing.sklearn": "inducing.sklearn",
}
INTERNAL = {  # what modules of the library lend each other
    "as_float_array",
    "as_key",
    "as_mean",
    "at_least_one",
    "batched",
    "default_jitter",
    "dtype_of",
    "labels",
    "log_abs_det",
    "root_derivative",
    "same_rank",
}


def public_names(module: str) -> dict[str, object]:
    """The classes and functions that a module defines or hands on (`import x as x`), by name."""
    loaded = importlib.import_module(module)
    names = []
    for node in ast.parse(inspect.getsource(loaded)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names if alias.asname == alias.name]
    shown = sorted((name for name in names if not name.startswith("_") and name not in INTERNAL), key=str.lower)
    return {name: getattr(loaded, name) for name in shown if not inspect.ismodule(getattr(loaded, name))}


def first_lines(value: object) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def page() -> str:
    """The text of docs/api.md."""
    lines = [
        "# API",
        "",
        "Every public name, with `import inducing as ig`. Links lead to the source, where docstrings have shapes, the",
        "formula and an example; `help(ig.fit)` shows the same. `python docs/api.py` writes this page.",
    ]
    for shown, module in MODULES.items():
        lines += ["", f"## {shown}", "", first_lines(importlib.import_module(module)), ""]
        for name, value in public_names(module).items():
            path = value.__module__.replace(".", "/") + ".py"
            lines.append(f"- [`{name}`](../src/{path}): {first_lines(value)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DOCS / "api.md").write_text(page())
