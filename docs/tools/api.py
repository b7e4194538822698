"""The public names of the library, module by module: what the API reference shows and the tests check."""

import ast
import functools
import importlib
import inspect
from pathlib import Path

MODULES = {  # name of the page: (module, heading). The order is that of the navigation.
    "inducing": "inducing",
    "kernels": "inducing.kernels",
    "means": "inducing.means",
    "features": "inducing.features",
    "priors": "inducing.priors",
    "likelihoods": "inducing.likelihoods",
    "layers": "inducing.layers",
    "bounds": "inducing.bounds",
    "inference": "inducing.inference",
    "initialise": "inducing.training.initialise",
    "distributed": "inducing.distributed",
    "scores": "inducing.scores",
    "report": "inducing.report",
    "parameters": "inducing.parameters",
    "linalg": "inducing.linalg",
    "gaussian": "inducing.gaussian",
    "testing": "inducing.testing",
    "tables": "inducing.tables",
    "sklearn": "inducing.sklearn",
}
INTERNAL = {  # exported for other modules of the library, not for users
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


def shown_as(module: str) -> str:
    """How users write a module's name after `import inducing as ig`."""
    if module in ("inducing.sklearn", "inducing.tables"):  # imported by themselves, since they need an extra
        return module
    return "ig" if module == "inducing" else "ig." + module.rsplit(".", 1)[-1]


@functools.cache
def public_names(module: str) -> dict[str, object]:
    """The classes and functions that a module defines or exports (`import x as x`), by name."""
    loaded = importlib.import_module(module)
    names = []
    for node in ast.parse(inspect.getsource(loaded)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names if alias.asname == alias.name]
    shown = [name for name in names if not name.startswith("_") and name not in INTERNAL]
    shown.sort(key=lambda name: (name.startswith("Abstract"), name.lower()))  # abstract bases come last
    return {name: getattr(loaded, name) for name in shown if not inspect.ismodule(getattr(loaded, name))}


def home(name: str, value: object) -> str:
    """The dotted path under which the reference documents a name: that of its package, else the top level."""
    for module in list(MODULES.values())[1:]:
        if public_names(module).get(name) is value:
            return _path(module, name)
    return _path("inducing", name)


def _path(module: str, name: str) -> str:
    """`inducing.bounds.elbo` is a function and a module; the documentation wants the function inside of the module."""
    loaded = importlib.import_module(module)
    also_module = hasattr(loaded, "__path__") and (Path(loaded.__path__[0]) / f"{name}.py").exists()
    return f"{module}.{name}.{name}" if also_module else f"{module}.{name}"


def summary(value: object) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def parameters(value: object) -> list[str]:
    """The names of the arguments that a class or function takes."""
    try:
        return [name for name in inspect.signature(value).parameters if name not in ("self", "args", "kwargs")]
    except ValueError:  # of C, without a signature
        return []


def faults(module: str) -> list[str]:
    """What the docstrings of a module's public names lack: a summary, arguments, an example."""
    found = []
    for name, value in public_names(module).items():
        where, text = f"{module}.{name}", inspect.getdoc(value) or ""
        described = "\nArgs:\n" in text or "\nAttributes:\n" in text
        if not text:
            found.append(f"{where} has no docstring")
        elif not summary(value).endswith("."):
            found.append(f"{where}: the first paragraph of the docstring does not end in a full stop")
        elif "\nExamples:\n" not in text or ">>> " not in text:
            found.append(f"{where} has no example under Examples:")
        elif parameters(value) and not name.startswith("Abstract") and not described:
            found.append(f"{where} does not describe its arguments under Args:")
    return found
