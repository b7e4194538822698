"""The distribution: it declares what it imports, pins what it needs, and importing it has no side effects."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "inducing"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(code: str) -> str:
    """Standard output of a fresh interpreter, warnings being errors."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def top_level_imports(tree: ast.Module) -> set[str]:
    """Packages imported when the module is: statements outside functions and outside ``if TYPE_CHECKING``."""
    found, todo = set(), list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found


def test_every_top_level_import_is_a_declared_dependency():
    declared = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    undeclared = {}
    of_an_extra = {"sklearn.py": {"sklearn"}, "tables": {"pyarrow"}}  # nothing else imports these when it is imported
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0]
        known = set(sys.stdlib_module_names) | {"inducing"} | of_an_extra.get(part, set())
        for name in top_level_imports(ast.parse(path.read_text())) - known:
            if canonicalize_name(name) not in declared:
                undeclared.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not undeclared


def test_constraints_pin_all_that_the_test_environment_needs():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    unpinned = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    assert not unpinned
    pins = {canonicalize_name(line.split("==")[0]) for line in lines}

    needed, todo = set(), [(text, "") for text in PROJECT["dependencies"]]
    todo += [(text, "") for extra in PROJECT["optional-dependencies"].values() for text in extra]
    while todo:
        text, parent_extra = todo.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": parent_extra}):
            continue
        if name == "inducing" or name in needed:
            continue
        needed.add(name)
        for extra in requirement.extras | {""}:
            todo += [(child, extra) for child in importlib.metadata.requires(name) or []]
    assert needed <= pins


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_import_is_light_and_leaves_jax_alone():
    """No optional or slow package is imported, and JAX can still be configured: no array was made, no flag set."""
    code = """
import sys, inducing, jax
print(sorted({"matplotlib", "sklearn", "pandas", "polars", "pyarrow", "numpyro", "beartype"} & set(sys.modules)))
print(jax.config.jax_enable_x64)
jax.config.update("jax_num_cpu_devices", 3)
print(len(jax.devices("cpu")))
"""
    assert run(code).split("\n")[:3] == ["[]", "False", "3"]


def test_the_first_model_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert blocks
    table = run(blocks[0])
    assert "lengthscale" in table


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))])
def test_relative_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_version_is_in_one_place():
    """In pyproject.toml; everything else reads it from the installed package, or does not name it."""
    assert "dynamic" not in PROJECT
    for path in [*PACKAGE.rglob("*.py"), ROOT / "CITATION.cff", ROOT / "mkdocs.yml"]:
        assert PROJECT["version"] not in path.read_text(), path


def test_the_citation_file_has_what_the_format_requires():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_workflow_calls_targets_of_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    called = re.findall(r"run: make (\S+)", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert called and set(called) <= targets
