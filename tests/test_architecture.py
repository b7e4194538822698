"""The rules of the architecture: the order of imports, the compiler in one room, abstract or final classes."""

import ast
import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

import inducing as ig

SOURCE = Path(ig.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
ORDER = """
    parameters data declared _xla
    streams distributed
    linalg numerics gaussian
    kernels means
    features
    priors likelihoods
    layers
    model checks
    bounds
    inference
    scores io
    training
    report
    tables
    sklearn cli testing
"""
LEVEL = {room: level for level, rooms in enumerate(ORDER.strip().split("\n")) for room in rooms.split()}
ENTRY_POINTS = {"__init__", "__main__"}  # of the package itself: they stand below everything


def name_of(path: Path) -> str:
    """The dotted name of a module of the library."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The first part of a module's name below the library's."""
    return [*module.split("."), "__init__"][1]


def imports(path: Path) -> list[tuple[str, int, bool]]:
    """(module, line, whether deferred) of every import of the library, in any form."""
    found = []
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]

    def visit(node: ast.AST, deferred: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno, deferred) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            module = importlib.util.resolve_name(name, package) if node.level else name
            for alias in node.names:  # `from inducing import kernels` imports a module, `from inducing import fit` not
                submodule = SOURCE.parent.joinpath(*module.split("."), alias.name)
                is_module = submodule.is_dir() or submodule.with_suffix(".py").is_file()
                found.append((f"{module}.{alias.name}" if is_module else module, node.lineno, deferred))
        inside = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        inside |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text()), False)
    return [(module, line, deferred) for module, line, deferred in found if module.split(".")[0] == "inducing"]


def test_every_room_has_a_place_in_the_order():
    rooms = {room_of(name_of(path)) for path in MODULES} - ENTRY_POINTS
    assert rooms <= set(LEVEL), rooms - set(LEVEL)


def wrong_imports(deferred: bool) -> list[str]:
    """Imports of what stands below, or of the package itself, by the modules of rooms."""
    wrong = []
    for path in MODULES:
        room = room_of(name_of(path))
        if room in ENTRY_POINTS:
            continue
        for module, line, inside in imports(path):
            other = room_of(module)
            if inside == deferred and (other in ENTRY_POINTS or LEVEL[other] > LEVEL[room]):
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {module}")
    return wrong


def test_rooms_import_only_what_stands_above_them():
    """When they are imported, in every form: absolute, relative, `import x.y`."""
    assert wrong_imports(deferred=False) == []


# Imports inside functions (or for type checkers alone) that go against the order, each for the reason given.
UPWARDS = {
    ("priors/exact.py", "inference"): "exact and sparse GPs return the same joint predictive distribution",
    ("model.py", "inference"): "`model.predict(x)` is short for `predict(model, x)`; also `posterior` and `draw`",
    ("model.py", "training"): "`model.infer(data)` is short for `infer(model, data)`",
}


def test_imports_inside_functions_go_against_the_order_only_where_listed():
    found = {(line.split(":")[0], room_of(line.split(" imports ")[1])) for line in wrong_imports(deferred=True)}
    assert found == set(UPWARDS)


COMPILER = {"jit", "filter_jit", "pjit", "optimization_barrier"}


@pytest.mark.parametrize("path", [p for p in MODULES if room_of(name_of(p)) != "_xla"], ids=name_of)
def test_only_one_room_deals_with_the_compiler(path):
    """No `jax.jit`, `eqx.filter_jit` or `lax.optimization_barrier` outside of `_xla`."""
    used = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in COMPILER:
            used.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("inducing"):
            used += [f"line {node.lineno}: {alias.name}" for alias in node.names if alias.name in COMPILER]
    assert used == []


def classes() -> list[type]:
    """Every class that a module of the library defines."""
    found = []
    for path in MODULES:
        if path.name != "__main__.py":
            module = importlib.import_module(name_of(path))
            found += [value for value in vars(module).values() if inspect.isclass(value)]
    return sorted({cls for cls in found if cls.__module__.startswith("inducing")}, key=lambda cls: cls.__qualname__)


def is_abstract(cls: type) -> bool:
    """A class to derive from: its name says so, also that of a private one (`_Abstract…`)."""
    return cls.__name__.lstrip("_").startswith("Abstract")


BASES = {ig.parameters.Module}  # holds what all parts share, and is derived from by users


def test_classes_are_abstract_or_final():
    """No class of the library derives from a concrete class of the library."""
    wrong = [
        f"{cls.__qualname__} derives from {base.__qualname__}"
        for cls in classes()
        for base in cls.__bases__
        if base.__module__.startswith("inducing") and not is_abstract(base) and base not in BASES
    ]
    assert wrong == []


def function_of(member: object) -> object:
    """The function behind a method, property, class method or wrapper."""
    while True:
        inner = getattr(member, "fget", None) or getattr(member, "__func__", None) or getattr(member, "method", None)
        if inner is None:
            return member
        member = inner


OWN = {
    "__init__",
    "__check_init__",
    "__post_init__",
    "__init_subclass__",
    "__doc__",
    "__hash__",
    "__setattr__",  # this and the next two are made for each frozen data class
    "__delattr__",
    "__replace__",
}  # of each class itself


def overridden(cls: type) -> list[str]:
    """Methods of a class that an ancestor of the library implements and does not mark as a question."""
    wrong = []
    for name, member in vars(cls).items():
        if name in OWN or not callable(function_of(member)) or inspect.isclass(member):
            continue
        for base in cls.__mro__[1:]:
            if name not in vars(base) or not base.__module__.startswith("inducing"):
                continue
            above = vars(base)[name]
            function = function_of(above)
            asked = getattr(function, "is_question", False) or getattr(above, "is_question", False)
            if callable(function) and not asked and not getattr(function, "__isabstractmethod__", False):
                wrong.append(f"{cls.__qualname__}.{name} overrides {base.__qualname__}.{name}")
            break  # the nearest ancestor that has the name decides
    return wrong


def test_only_questions_are_overridden():
    """No class overrides a method implemented in an ancestor, unless that ancestor marked it with `@question`."""
    assert [line for cls in classes() for line in overridden(cls)] == []


def test_the_check_of_overrides_sees_methods_and_properties_and_lets_questions_pass():
    class AbstractShape(ig.Module):
        def area(self):
            return 0.0

        @property
        def sides(self):
            return 0

        @ig.parameters.question
        def name(self):
            return ""

    class Square(AbstractShape):
        def area(self):
            return 1.0

        @property
        def sides(self):
            return 4

        def name(self):
            return "square"

    AbstractShape.__module__ = "inducing.made_up"
    assert [line.split(" ")[0].split(".")[-1] for line in overridden(Square)] == ["area", "sides"]
