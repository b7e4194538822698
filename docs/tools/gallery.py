"""Remake the gallery: `make gallery` runs all examples; this script shrinks their figures and writes the page.

Figures of `out/` become small pictures in `docs/gallery/`. Titles come from the table of `examples/README.md`.
"""

import re
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 1100
SECTIONS = {
    "2.3": "Interdomain features",
    "2.4": "Several outputs",
    "2.5": "Deep Gaussian processes",
    "3": "Networks, latent variables and importance weighting",
    "4": "Sparse GPs, latent variables and depth",
    "appendix": "Unsupervised learning",
}


def shrink(source: Path, target: Path) -> None:
    """Save a figure as a small WebP picture, if the figure was made."""
    if not source.exists():
        return
    with Image.open(source) as image:
        picture = image.convert("RGB")
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    picture.save(target, quality=82, method=6)


def home() -> None:
    """Draw the picture of the home page by running the code on that page."""
    code = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    (ROOT / "out").mkdir(exist_ok=True)
    exec(compile(code.replace("home.png", str(ROOT / "out" / "home.png")), "docs/index.md", "exec"), {})


def examples() -> list[tuple[str, str, str]]:
    """(name, what it shows, section) of every example, as `examples/README.md` lists them."""
    rows = (ROOT / "examples" / "README.md").read_text()
    found = re.findall(r"^\| \[(\w+)\]\(\w+\.py\) \| (.*?) \| ([^|]*) \|$", rows, flags=re.MULTILINE)
    return [(name, re.sub(r"; data: .*", "", shows).replace("\\|", "|"), section) for name, shows, section in found]


def page() -> str:
    """The text of docs/gallery.md."""
    lines = [
        "# Gallery",
        "",
        "Select a figure to see the code that draws it. To run an example yourself: `python examples/nuts.py`.",
    ]
    for start, heading in SECTIONS.items():
        lines += ["", f"## {heading}", "", '<div class="grid cards" markdown>', ""]
        for name, shows, section in examples():
            if section.startswith(start):
                picture = f"![{shows}](gallery/{name}.webp)"
                lines += [
                    f"- [{picture}](../examples/{name}.py)",
                    "",
                    f"    [{name}](../examples/{name}.py): {shows}",
                    "",
                ]
        lines += ["</div>"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, _, _ in examples():
        shrink(ROOT / "out" / f"{name}.png", ROOT / "docs" / "gallery" / f"{name}.webp")
    home()
    shrink(ROOT / "out" / "home.png", ROOT / "docs" / "images" / "home.webp")
    (ROOT / "docs" / "gallery.md").write_text(page())
