"""The pages: every block runs, in order, and the list of public names is what they are."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from inducing.__main__ import main

DOCS = Path(__file__).resolve().parents[1] / "docs"
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


@pytest.mark.parametrize("module", API["MODULES"].values())
def test_every_public_name_has_a_docstring_with_an_example(module):
    names = API["public_names"](module)
    assert names
    without = [name for name, value in names.items() if ">>> " not in (value.__doc__ or "")]
    assert not without
    unfinished = [name for name, value in names.items() if not API["first_lines"](value).endswith(".")]
    assert not unfinished
