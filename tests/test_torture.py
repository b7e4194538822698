"""The quick part of `make torture`: damaged files and bad calls, by the rules of benchmarks/torture."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "torture"


def part(name):
    """A module of the folder."""
    spec = importlib.util.spec_from_file_location(f"torture_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory by what Linux tells of it")
def test_damaged_crafted_and_foreign_files_load_correctly_or_are_refused():
    found = part("files").main(240, seed=1)
    assert found["wrong"] == found["unnamed"] == found["false"] == 0
    assert found["correct"] > 5 and found["refused"] > 150


def test_bad_calls_are_answered():
    found = part("calls").main(150, seed=3)
    assert found["abort"] == found["silent"] == 0
    assert found["late"] + found["unclear"] <= 1 and found["clear"] > 120
