"""The demo: its pixels, and a whole run of the command with next to no training."""

import numpy as np
import pytest

from inducing.cli import demo
from inducing.cli.main import main
from inducing.training.monitor import Progress

TRAIN = demo.train


def test_letters_are_outlines_without_their_holes():
    """The D: ink left of its middle, a hole within, and the whole frame used."""
    points = demo.letters("D", width=60)
    assert points.min() == pytest.approx(-3.0, abs=0.2) and points.max() == pytest.approx(3.0, abs=0.2)

    def ink(x, y):
        return (np.abs(points - [x, y]).max(axis=1) < 0.15).any()

    assert ink(-1.0, 2.6) and ink(2.6, 0.5)  # the upper end of the stem (the letters are oblique), and the bow
    assert not ink(0.2, 0.0)  # the hole
    assert len(demo.letters()) > 10_000


def test_budgets_divide_the_time():
    quick, default, full = (demo.budget(kind) for kind in ("quick", "default", "full"))
    for less, more in ((quick, default), (default, full)):
        assert all(less.steps[name] < more.steps[name] for name in demo.SHARES)
    assert sum(quick.seconds.values()) == pytest.approx(60.0)
    assert sum(full.seconds.values()) == pytest.approx(3600.0)


@pytest.mark.parametrize("arguments", [["--out", "file"], ["--seed", "-1"]])
def test_what_cannot_be_done_is_said_before_anything_is_fitted(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(demo, "letters", lambda: np.zeros((20, 2)))
    monkeypatch.setattr(demo, "train", lambda *arguments: pytest.fail("a fit was begun"))
    with pytest.raises(SystemExit) as stop:
        main(["demo", *arguments, "--no-cache"])
    assert stop.value.code == 2
    assert "inducing" in capsys.readouterr().err


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_command_prints_a_table_and_writes_a_figure(real, tmp_path, monkeypatch, capsys):
    """All of it, for 3 steps a model on a small picture; in the short test one GP stands in for all four models."""
    small = demo.letters(width=40)
    few = demo.Budget(dict.fromkeys(demo.SHARES, 3), dict.fromkeys(demo.SHARES, 60.0), 5, 2, 16, 6)
    monkeypatch.setattr(demo, "letters", lambda: small)
    monkeypatch.setattr(demo, "budget", lambda kind: few)
    if not real:
        few.steps["LV-DGP"] = 4  # of which its stand-in takes 3, as if its time were up
        trained = []

        def train(name, *arguments):
            trained.append(trained[0] if trained else TRAIN(name, *arguments))
            return trained[0]

        monkeypatch.setattr(demo, "train", train)
    main(["demo", "--quick", "--out", str(tmp_path / "new"), "--quiet", "--no-cache", "--seed", "1"])
    printed = capsys.readouterr().out.splitlines()
    assert f"{len(small) - len(small) // 10} pixels of the letters DGP, {len(small) // 10} held out" in printed[0]
    head = next(i for i, line in enumerate(printed) if line.startswith("model"))
    rows = [line.split() for line in printed[head + 1 : head + 5]]
    assert [row[0] for row in rows] == list(demo.SHARES)
    for _, bound, score, _, error, seconds, steps in rows:
        assert np.isfinite([float(v) for v in (bound, score, error)]).all()
        assert float(seconds) >= 0 and steps == "3"
    assert any("for all steps within the time limit: LV-DGP (3 of 4 steps)." in line for line in printed) is not real
    assert real or any(line.startswith("DGP and GP differ by less than a standard error") for line in printed)
    assert (tmp_path / "new" / "demo.png").stat().st_size > 10_000


def test_a_slow_fit_is_stopped():
    """After so many seconds since the first call, which comes after compilation."""
    late = demo._limit(10.0)
    assert [late(Progress(0, 0.0, seconds, lambda: None)) for seconds in (50.0, 59.0, 61.0)] == [False, False, True]
