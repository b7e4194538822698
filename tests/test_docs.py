"""The pages: every block runs, in order; names and links lead somewhere; public names are documented."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

import inducing as ig
from inducing.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
DOCS, EXAMPLES = ROOT / "docs", sorted((ROOT / "examples").glob("[a-z]*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCKS = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


SLOW_PAGE = pytest.param("decide.md", marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "page",
    ["index.md", "start.md", "choose.md", "extend.md", "export.md", "scale.md", "tables.md", "report.md", SLOW_PAGE],
)
def test_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch, unchecked):
    """In one namespace, without type checks as users have it, with lines numbered as in the page.

    Of the shell's commands, those of this library run.
    """
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
                main([*shlex.split(line, comments=True)[1:], *quiet(line)])
    plt.close("all")


def quiet(line):
    """Options that keep a command from printing and from writing to the user's cache; `inducing show` only prints."""
    return [] if line.startswith("inducing show") else ["--quiet", "--no-cache"]


API = runpy.run_path(str(DOCS / "tools" / "api.py"))


def test_the_page_of_the_api_lists_every_module():
    listed = re.findall(r"^\| \[`([\w.]+)`\]", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert listed == [API["shown_as"](module) for module in API["MODULES"].values()]


def test_its_modules_are_names_after_importing_the_library():
    """By what `__init__.py` imports: other tests of this process import submodules too."""
    imported = set(re.findall(r"^from inducing[\w.]* import (\w+) as \1$", Path(ig.__file__).read_text(), re.MULTILINE))
    shown = [API["shown_as"](module) for module in API["MODULES"].values()]
    assert {name.removeprefix("ig.") for name in shown if name.startswith("ig.")} <= imported


@pytest.mark.parametrize("module", API["MODULES"].values())
def test_every_public_name_has_a_docstring_with_an_example(module):
    assert API["public_names"](module)
    assert API["faults"](module) == []


def test_the_gallery_is_made_from_the_list_of_examples():
    gallery = runpy.run_path(str(DOCS / "tools" / "gallery.py"))
    assert (DOCS / "gallery.md").read_text() == gallery["page"](), "run: python docs/tools/gallery.py"
    pictures = {path.stem: path.stat().st_size for path in (DOCS / "gallery").glob("*.webp")}
    assert set(pictures) == {example.stem for example in EXAMPLES}
    assert sum(pictures.values()) < 2.5e6


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
