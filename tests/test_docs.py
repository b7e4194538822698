"""The pages: every block runs, in order; names and links lead somewhere; the list of public names is what they are."""

import ast
import re
import runpy
import shlex
from pathlib import Path

import pytest

import inducing as ig
from inducing.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
DOCS, EXAMPLES = ROOT / "docs", sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCKS = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["start.md", "choose.md", "extend.md"])
def test_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    """In one namespace, with lines numbered as in the page; of the shell's commands those of this library."""
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text()
    namespace = {"__name__": page.removesuffix(".md")}
    for found in BLOCKS.finditer(text):
        kind, block = found.groups()
        if kind == "python":
            above = "\n" * text[: found.start(2)].count("\n")
            exec(compile(above + block, DOCS / page, "exec"), namespace)
        for line in block.splitlines():
            if kind == "sh" and line.startswith("inducing "):
                main([*shlex.split(line, comments=True)[1:], "--silent"])
    plt.close("all")


API = runpy.run_path(str(DOCS / "api.py"))


def test_the_list_of_public_names_is_up_to_date():
    assert (DOCS / "api.md").read_text() == API["page"](), "run: python docs/api.py"


def test_its_headings_are_names_after_importing_the_library():
    """By what `__init__.py` imports: other tests of this process import submodules too."""
    imported = set(re.findall(r"^from \.[\w.]* import (\w+) as \1$", Path(ig.__file__).read_text(), re.MULTILINE))
    assert {shown.removeprefix("ig.") for shown in API["MODULES"] if shown.startswith("ig.")} <= imported


@pytest.mark.parametrize("module", API["MODULES"].values())
def test_every_public_name_has_a_docstring_with_an_example(module):
    names = API["public_names"](module)
    assert names
    without = [name for name, value in names.items() if ">>> " not in (value.__doc__ or "")]
    assert not without
    unfinished = [name for name, value in names.items() if not API["first_lines"](value).endswith(".")]
    assert not unfinished


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_names_lead_somewhere(page):
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if not link.startswith("http")]
    assert [link for link in links if not (page.parent / link).exists()] == []
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))
    scripts = re.findall(r"examples/(\w+\.py)", spans)
    assert [name for name in scripts if not (ROOT / "examples" / name).exists()] == []
    names = set(re.findall(r"\big((?:\.[A-Za-z_]\w*)+)", spans))
    assert [name for name in sorted(names) if not reachable(name)] == []


def test_every_numbered_equation_of_the_paper_is_on_the_page_of_the_theory():
    found = re.findall(r"\((\d+(?:, \d+)*)\) eq:", (DOCS / "theory.md").read_text())
    assert sorted(int(number) for numbers in found for number in numbers.split(", ")) == list(range(1, 88))


def test_rooms_import_only_what_stands_to_their_left():
    """In the chart of the page on architecture."""
    left = "parameters data, covariance kernels means, features, priors, layers likelihoods"
    right = "model, objectives prediction, training report"
    order = {room: i for i, rooms in enumerate(f"{left}, {right}".split(", ")) for room in rooms.split()}
    source = Path(ig.__file__).parent
    for path in source.rglob("*.py"):
        *folder, name = path.relative_to(source).with_suffix("").parts
        room = folder[0] if folder else name
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module is not None and room in order:
                away = node.level == len(folder) + 1 or node.module.startswith("inducing.")
                other = node.module.removeprefix("inducing.").split(".")[0]
                assert not away or other not in order or order[other] <= order[room], f"{path}: {other}"


def reachable(name):
    value = ig
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return value is not None


def test_every_example_is_listed_and_says_where_its_figure_is():
    listed = (ROOT / "examples" / "README.md").read_text()
    for example in EXAMPLES:
        assert f"[{example.stem}]({example.name})" in listed
        assert f'print("figure: out/{example.stem}.png")' in example.read_text()


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "sys.exit" in e.read_text()], ids=lambda e: e.stem)
def test_examples_without_their_data_say_so_and_stop(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(example))
    assert stop.value.code == 0
    assert f"{tmp_path}" in capsys.readouterr().out
