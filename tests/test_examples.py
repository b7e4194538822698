"""Every example runs in quick mode, on made-up data, and leaves its figure; the slow ones behind the slow marker."""

import runpy
import sys
from pathlib import Path

import jax
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))
SLOW = {  # by what they compile; the others take about two minutes together
    "auto_encoders",
    "bayesian_network",
    "deep_regression",
    "domains",
    "eigenfeatures",
    "fx2007",
    "gplvm",
    "image_convolution",
    "integral_features",
    "latent_variable_gp",
    "monotone",
    "more_bounds",
    "nuts",
    "online",
    "product_features",
    "shallow_gp",
    "spaces",
    "spherical_harmonics",
    "survival",
}


@pytest.mark.parametrize(
    "example",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem in SLOW else []) for path in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_example_runs_and_saves_its_figure(example, tmp_path, monkeypatch, capsys, unchecked):
    import matplotlib.pyplot as plt

    monkeypatch.setenv("INDUCING_QUICK", "1")
    monkeypatch.setenv("INDUCING_DATA", str(tmp_path))  # an empty folder: made-up data on every machine
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    promotion, rank = jax.config.jax_numpy_dtype_promotion, jax.config.jax_numpy_rank_promotion
    jax.config.update("jax_numpy_dtype_promotion", "standard")  # users write examples with JAX's defaults
    jax.config.update("jax_numpy_rank_promotion", "allow")
    try:
        runpy.run_path(str(example), run_name="__main__")
    finally:
        jax.config.update("jax_numpy_dtype_promotion", promotion)
        jax.config.update("jax_numpy_rank_promotion", rank)
        plt.close("all")
    assert (tmp_path / "out" / f"{example.stem}.png").stat().st_size > 1000
    assert f"figure: out/{example.stem}.png" in capsys.readouterr().out
