"""MkDocs hooks: checks of the public names, generated pages, links that also work on GitHub, formulas as MathML.

Pages link to files of the repository (`../examples/nuts.py`, `../CONTRIBUTING.md`), so that they can be read on GitHub.
On the site these links lead to the page that shows the file. Formulas are written as GitHub writes them, in ```math
blocks and as $`…`$, and turned into MathML, which browsers show without a script.
"""

import ast
import inspect
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

import api  # noqa: E402 — found by the line above

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if not path.name.startswith("_"))
SHOWN = {  # file of the repository: page or file of the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "gallery.md",
    "benchmarks/results/speed.png": "images/speed.png",
    **{f"examples/{path.name}": f"gallery/{path.stem}.md" for path in EXAMPLES},
    **{f"docs/{path.name}": path.name for path in (ROOT / "docs").glob("*.md")},
}


def on_config(config: Any) -> Any:
    """Refuse to build if a public name lacks a docstring or an example; complete the navigation."""
    faults = [fault for module in api.MODULES.values() for fault in api.faults(module)]
    missing = [path.stem for path in EXAMPLES if not (ROOT / "docs" / "gallery" / f"{path.stem}.webp").exists()]
    faults += [f"examples/{name}.py has no picture: run make gallery" for name in missing]
    if faults:
        raise PluginError("\n".join(["The documentation is incomplete:", *faults]))
    pages = [{api.shown_as(module): f"api/{page}.md"} for page, module in api.MODULES.items()]
    for entry in config.nav:
        if "API" in entry:
            entry["API"] += pages
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from source files: API, examples, contributing, changelog."""
    for page, module in api.MODULES.items():
        files.append(File.generated(config, f"api/{page}.md", content=api_page(module)))
    for path in EXAMPLES:
        files.append(File.generated(config, f"gallery/{path.stem}.md", content=example_page(path)))
    for source in ("CONTRIBUTING.md", "CHANGELOG.md"):
        content = moved_links((ROOT / source).read_text(), "", SHOWN[source])
        files.append(File.generated(config, SHOWN[source], content=content))
    speed = "benchmarks/results/speed.png"
    files.append(File.generated(config, SHOWN[speed], abs_src_path=str(ROOT / speed)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Lead links of committed pages to the site, and take formulas out of Markdown's sight."""
    if page.file.generated_by is None:
        markdown = moved_links(markdown, "docs", page.file.src_uri)
    if page.parent is None:  # alone under its tab: no list of siblings to show
        page.meta["hide"] = ["navigation"]
    if not page.file.src_uri.startswith("gallery/"):
        markdown = linked_names(markdown)
    page.formulas = []

    def stash(latex: str, display: str) -> str:
        page.formulas.append(latex2mathml.converter.convert(latex.strip(), display=display))
        return f"FORMULA{len(page.formulas) - 1}END"

    markdown = re.sub(r"^```math\n(.*?)^```$", lambda m: stash(m[1], "block"), markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\$`([^`]+)`\$", lambda m: stash(m[1], "inline"), markdown)


def on_page_content(html: str, page: Any, **kwargs: Any) -> str:
    """Put the formulas in."""
    html = re.sub(r"<p>(FORMULA\d+END)</p>", r'<div class="formula">\1</div>', html)
    return re.sub(r"FORMULA(\d+)END", lambda m: page.formulas[int(m[1])], html)


def moved_links(markdown: str, folder: str, page: str) -> str:
    """Links relative to `folder` of the repository, made relative to a page of the site."""

    def moved(found: re.Match) -> str:
        target, _, anchor = found[1].partition("#")
        source = posixpath.normpath(posixpath.join(folder, target))
        if source.startswith("src/inducing"):
            module = source.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            names = [name for name, path in api.MODULES.items() if path == module]
            shown = f"api/{names[0]}.md" if names else source
        else:
            shown = SHOWN.get(source)
        if shown is None:  # a file of docs/, where MkDocs checks it
            return found[0]
        shown = posixpath.relpath(shown, posixpath.dirname(page) or ".")
        return f"]({shown}#{anchor})" if anchor else f"]({shown})"

    return re.sub(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)", moved, markdown)


def linked_names(markdown: str) -> str:
    """Code such as `ig.GP(kernel)` leads to the name's entry in the API reference, unless it is part of a link."""

    def linked(found: re.Match) -> str:
        path = paths.get(found[2])
        return found[0] if path is None or found[1] is None else f"[{found[1]}][{path}]"

    paths = {
        f"{api.shown_as(module)}.{name}": api.home(name, value)
        for module in api.MODULES.values()
        for name, value in api.public_names(module).items()
    }
    spans = re.compile(
        r"```.*?^```$|\[[^\]]*\]\([^)]*\)|(?<!`)(`((?:ig|inducing)(?:\.\w+)+)[^`\n]*`)(?!`)", re.MULTILINE | re.DOTALL
    )
    return spans.sub(linked, markdown)


def api_page(module: str) -> str:
    """One module's page: what it is for, its names at a glance, then each of them."""
    names = api.public_names(module)
    lines = [f"# {api.shown_as(module)}", "", inspect.getdoc(sys.modules[module]) or "", ""]
    lines += ["| name | summary |", "|---|---|"]
    own = []
    for name, value in names.items():
        path = api.home(name, value)
        lines.append(f"| [`{name}`][{path}] | {api.summary(value).replace('|', chr(92) + '|')} |")
        own += [path] if path in (f"{module}.{name}", f"{module}.{name}.{name}") else []
    for path in own:
        lines += ["", f"::: {path}"]
    return "\n".join(lines) + "\n"


def example_page(path: Path) -> str:
    """An example's page: its description, its picture, its source."""
    source = path.read_text()
    tree = ast.parse(source)
    first, *rest = (ast.get_docstring(tree) or "").split("\n", 1)
    assert isinstance(tree.body[0], ast.Expr)
    body = "\n".join(source.split("\n")[tree.body[0].end_lineno :]).strip()
    return "\n".join(
        [
            f"# {path.stem.replace('_', ' ')}",
            "",
            first,
            *rest,
            "",
            f"![figure of {path.name}]({path.stem}.webp)",
            "",
            f"The figure is written by `examples/{path.name}`:",
            "",
            "```python",
            body,
            "```",
            "",
        ]
    )
