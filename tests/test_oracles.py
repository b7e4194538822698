"""Numbers of other libraries and of direct quadrature: one test for each case of the file INDUCING_ORACLES."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from .oracles import BUILDERS

PATH = Path(os.environ.get("INDUCING_ORACLES", Path(__file__).parents[1] / "../shared/oracles/oracles.json"))
if not PATH.exists():
    pytest.skip(f"{PATH} does not exist; set INDUCING_ORACLES to run the oracles", allow_module_level=True)

pytestmark = pytest.mark.data
CASES = json.loads(PATH.read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_oracle(case):
    """Every expected value that is no Monte Carlo estimate, at the stated tolerance."""
    got = BUILDERS[case["group"]](case)
    for key, expected in case["expected"].items():
        if key.startswith("mc"):
            continue
        assert key in got, f"nothing was computed for {key}"
        expected, value = np.asarray(expected, float), np.asarray(got[key], float)
        assert value.shape == expected.shape, f"{key}: shape {value.shape} instead of {expected.shape}"
        error = np.abs(value - expected) - case["rtol"] * np.abs(expected) - case["atol"]
        assert (error <= 0).all(), f"{key} exceeds its tolerance by {error.max():.2e}: {value} instead of {expected}"
