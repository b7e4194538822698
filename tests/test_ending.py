"""How the command line ends: at Ctrl-C, and when its output is not read to the end."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from inducing.cli import ending


def started(folder, rows, *more):
    x = np.linspace(0.0, 9.0, rows)
    table = "x,y\n" + "".join(f"{a},{b}\n" for a, b in zip(x, np.sin(x), strict=True))
    (folder / "train.csv").write_text(table)
    command = [
        sys.executable,
        "-m",
        "inducing",
        "fit",
        "train.csv",
        "--target",
        "y",
        "--kernel",
        "matern52",
        "--no-cache",
        *more,
    ]
    paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_ctrl_c_ends_with_130_and_one_line(tmp_path):
    """During a fit, which a library call would end with what was reached; no model is written from that."""
    process = started(tmp_path, 20_000, "--save", "model.ig")
    assert process.stdout.readline() == "train.csv: 20,000 rows, 2 columns.\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120) == ("", "inducing: interrupted\n")
    assert process.returncode == 130
    assert sorted(p.name for p in tmp_path.iterdir()) == ["train.csv"]


def test_output_that_is_not_read_ends_quietly(tmp_path):
    """As by `inducing fit … | head -1`."""
    with started(tmp_path, 15) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=120) == 141


def test_a_file_is_finished_before_ctrl_c_ends_the_command(tmp_path, monkeypatch):
    class Left(Exception):
        pass

    def leave(code):
        raise Left(code)

    def slow(path, content):
        signal.raise_signal(signal.SIGINT)
        path.write_bytes(content)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(ending, "write_atomically", slow)
    monkeypatch.setattr(ending._Writing, "pressed", False)
    with pytest.raises(Left) as left, ending.ends_early():
        ending.write(tmp_path / "a", b"abc")
    assert (tmp_path / "a").read_bytes() == b"abc" and left.value.args == (130,)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_no_plain_file_is_written_in_place():
    ending.write(os.devnull, b"abc")
    assert not os.path.isfile(os.devnull)
