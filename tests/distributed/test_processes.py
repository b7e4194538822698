"""Several devices and processes: the same numbers, one all-reduce, and restarts after faults."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import inducing
from inducing.cli.launch import _free_port, launch
from inducing.cli.launch import run as supervise

WORKER = Path(__file__).with_name("trains.py")


def environment(**more):
    """Without what the tests set for themselves, and with the library that they test."""
    plain = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PYTEST_XDIST_WORKER")}
    plain |= {"PYTHONPATH": str(Path(inducing.__file__).parents[1])}
    return plain | {name: str(value) for name, value in more.items()}


def run(folder, processes, *kinds, seconds=120, **more):
    """The results of all processes. They are killed if they take too long."""
    folder.mkdir(exist_ok=True)
    address, running = f"127.0.0.1:{_free_port()}", []
    try:
        for number in range(processes):
            env = (
                environment(INDUCING_PROCESS=f"{address},{processes},{number}", **more)
                if processes > 1
                else environment(**more)
            )
            command = [sys.executable, str(WORKER), str(folder), *kinds]
            running.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
        errors = [process.communicate(timeout=seconds)[1] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0] * processes, errors
    return [json.loads((folder / f"result-{i}.json").read_text()) for i in range(processes)], errors


ALL = ("passes", "steps", "of_a_step", "collapsed")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone"), 1, *ALL)[0][0]


def check(found, errors, alone):
    """The same numbers as in one process, on all processes bit for bit, by as few all-reduces as possible."""
    first = found[0]
    for other in found[1:]:
        assert other == first
    value, gradient = first["passes"]["numbers"][0], np.array(first["passes"]["numbers"][1:])
    expected, slope = alone["passes"]["numbers"][0], np.array(alone["passes"]["numbers"][1:])
    assert abs(value - expected) <= 1e-12 * abs(expected)
    assert np.linalg.norm(gradient - slope) <= 1e-10 * np.linalg.norm(slope)
    for kind in ("steps", "collapsed"):
        np.testing.assert_allclose(first[kind]["bound"], alone[kind]["bound"], rtol=1e-8)
        np.testing.assert_allclose(first[kind]["model"], alone[kind]["model"], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(first["collapsed"]["upper"], alone["collapsed"]["upper"], rtol=1e-8)
    one, none = ({"all-reduce": n, "all-gather": 0, "all-to-all": 0} for n in (1, 0))
    assert first["of_a_step"] == one  # value, gradient of everything, and signals
    assert first["passes"]["of a pass"] == one  # the bound takes one pass, with the gradient two
    assert first["passes"]["of adding"] == none
    assert all("step" not in text for text in errors[1:])  # only the first process shows its progress
    assert "natgrad" in errors[0]


def test_two_processes(tmp_path, alone):
    check(*run(tmp_path, 2, *ALL), alone)


@pytest.mark.slow
def test_four_processes(tmp_path, alone):
    check(*run(tmp_path, 4, *ALL, seconds=300), alone)


def test_several_devices_of_one_process(tmp_path, alone):
    found, errors = run(tmp_path, 1, *ALL, DEVICES=2)
    assert found[0]["devices"] == 2
    check(found, errors, alone)


def test_all_processes_stop_together(tmp_path):
    """After a callback, when the time of one is up, and when one cannot read its rows or makes another call."""
    (tmp_path / "new").mkdir()
    for name in "012":
        (tmp_path / "new" / f"{name}.csv").write_text("a,b\n0.5,1.0\n")
    found, _ = run(tmp_path, 2, "different_calls", "stopped", "unreadable", "spread_rows", "predicted")
    assert [one["predicted"] for one in found] == [["0.parquet", "2.parquet"], ["1.parquet"]]
    assert sorted(path.name for path in (tmp_path / "predicted").iterdir()) == [f"{name}.parquet" for name in "012"]
    for one in found:
        told = [text.split(";")[0].split("different ")[1] for text in one["different_calls"]]
        assert told == ["rows", "models", "arguments", "checkpoint folders"]
    check_spread_rows(found)
    assert found[0]["stopped"] == found[1]["stopped"]
    assert "the callback asked to stop" in found[0]["stopped"]["reason"]
    assert found[0]["stopped"]["asked"] < 200
    assert "the time is up" in found[0]["stopped"]["time"]
    assert found[1]["unreadable"]["error"] == "OSError: the disk is gone"
    assert "another process could not read" in found[0]["unreadable"]["error"]


def check_spread_rows(found):
    """One error that says what to do with arrays whose rows are on several processes."""
    for one in found:
        told = one["spread_rows"]
        assert set(told["said"]) == set(told["calls"])
        assert all("spread over 2 processes" in text and "ig.Stream" in text for text in told["said"].values())
        np.testing.assert_allclose(told["worked"], told["expected"], rtol=1e-12)


def launched(folder, seconds=240, **more):
    """A fit under `inducing launch`; its result and what the supervisor said."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "inducing", "launch", "--processes", "2", str(WORKER), str(folder), "checkpointed"]
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "result-0.json").read_text())["checkpointed"], done.stderr


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return launched(tmp_path_factory.mktemp("undisturbed"))[0]


FAULTS = [(1, signal.SIGKILL), (0, signal.SIGKILL), (1, signal.SIGSTOP)]


@pytest.mark.parametrize(
    ("victim", "how"),
    [FAULTS[0], *(pytest.param(*fault, marks=pytest.mark.slow) for fault in FAULTS[1:])],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_after_a_fault_all_restart_and_the_end_is_the_same(tmp_path, undisturbed, victim, how):
    began = time.monotonic()
    result, said = launched(tmp_path, DIE=f"{victim},70,{int(how)}")
    assert (tmp_path / "died").exists()
    assert "restarting all 2" in said and "(resumed at step" in said
    assert result["bound"] == undisturbed["bound"]
    assert result["model"] == undisturbed["model"]
    assert time.monotonic() - began < 200  # nobody waits for a heartbeat of 100 seconds


@pytest.mark.parametrize("own", [None, "glibc.malloc.tcache_count=0"])
def test_launched_processes_ask_for_huge_pages(tmp_path, monkeypatch, own):
    """Unless the user has settings of their own."""
    if own is None:
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    else:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "number = os.environ['INDUCING_PROCESS'].split(',')[-1]\n"
        "pathlib.Path(sys.argv[1], number).write_text(os.environ['GLIBC_TUNABLES'])\n"
    )
    assert launch([str(script), str(tmp_path)], 2, 0) == 0
    assert {(tmp_path / name).read_text() for name in "01"} == {own or "glibc.malloc.hugetlb=1"}


CHILD = """
import os, signal, sys, time
number, folder, what = os.environ["INDUCING_PROCESS"].split(",")[-1], *sys.argv[1:]
if what == "ignores":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
open(os.path.join(folder, number), "a").write("x")
if what == "fails" and number == "1":
    sys.exit(3)
try:
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(0 if what == "ends" else 1)
"""


@pytest.mark.parametrize(
    ("what", "how", "code", "attempts"),
    [
        ("fails", None, 3, 2),
        ("ends", signal.SIGINT, 0, 1),
        ("ends", signal.SIGTERM, 128 + signal.SIGTERM, 1),
        ("ignores", signal.SIGINT, 128 + signal.SIGKILL, 1),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_exit_codes_and_signals_of_the_supervisor(tmp_path, monkeypatch, what, how, code, attempts):
    """Ctrl-C and SIGTERM reach the processes, and are no reason to restart them."""
    monkeypatch.setattr("inducing.cli.launch.GRACE", 0.5)
    script = tmp_path / "script.py"
    script.write_text(CHILD)

    def interrupt():
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline and not all((tmp_path / name).exists() for name in "01"):
            time.sleep(0.05)
        os.kill(os.getpid(), how)

    if how is not None:
        threading.Thread(target=interrupt).start()
    options = argparse.Namespace(processes=2, restarts=1, script=str(script), rest=[str(tmp_path), what])
    with pytest.raises(SystemExit) as ended:
        supervise(options)
    assert ended.value.code == code
    assert (tmp_path / "1").read_text() == "x" * attempts


def test_the_supervisor_needs_a_script(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no script"):
        supervise(argparse.Namespace(processes=2, restarts=3, script=str(tmp_path / "none.py"), rest=[]))
