"""Check what `make release` has built: `python tools/release.py dist` reads the metadata of the wheel and the sdist."""

import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

EXTRAS = {"bayes", "docs", "geometry", "plot", "sklearn", "tables", "test"}


def metadata(path: Path) -> Metadata:
    """The validated metadata of a distribution; an invalid field raises."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            text = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
    else:
        with tarfile.open(path) as archive:
            member = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
            assert member is not None
            text = member.read()
    return Metadata.from_email(text, validate=True)


def check(folder: Path) -> None:
    """Both distributions are there, say the same, and hold what they should."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    for path in (wheel, sdist):
        found = metadata(path)
        assert found.name == "inducing" and str(found.version) in path.name, path
        assert found.description and found.description_content_type == "text/markdown", path
        assert found.license_expression == "Apache-2.0" and found.license_files == ["LICENSE"], path
        assert set(found.provides_extra or []) == EXTRAS, path
        print(f"{path.name}: metadata are valid, version {found.version}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "inducing/py.typed" in names and "inducing/__init__.py" in names
    foreign = [name for name in names if not name.startswith(("inducing/", "inducing-"))]
    assert not foreign, foreign
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[-1] for name in archive.getnames()]
    for needed in ("pyproject.toml", "README.md", "LICENSE", "src/inducing/__init__.py", "tests/test_packaging.py"):
        assert needed in names, needed


if __name__ == "__main__":
    check(Path(sys.argv[1]))
