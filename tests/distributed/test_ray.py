"""The example for Ray, where Ray is installed."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import inducing

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "clusters" / "on_ray.py"


@pytest.mark.slow
def test_two_processes_of_a_local_cluster():
    pytest.importorskip("ray")
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    env |= {"PYTHONPATH": os.pathsep.join([str(Path(inducing.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(SCRIPT), "2"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (said,) = (line for line in done.stdout.splitlines() if line.startswith("means at"))  # beside what Ray prints
    means = ast.literal_eval(said.split(": ", 1)[1])
    np.testing.assert_allclose(means, np.sin([1.0, 2.0, 3.0]), atol=0.05)
