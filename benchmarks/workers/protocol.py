"""How the driver talks to a worker: one JSON object a line, in and out.

A worker is a process that holds one library. It understands

    {"do": "load", "case": {…}, "arrays": "file.npz"}   ->  {"value": bound at the given parameters, "compile": seconds}
    {"do": "time", "steps": n}                          ->  {"ms": milliseconds of a step, "single": …, "tuned": …}
    {"do": "call", "name": …, "arguments": {…}}         ->  what that function of the worker's module returns
    {"do": "drop"}                                      ->  {}

and answers {"error": …} when something failed. All else that a library prints goes to the standard error.
"""

import contextlib
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


class Timed:
    """Work to be timed: `value()` is the bound at the start; `run(n)` does n steps and returns when they are done.

    `run` works as the library's documentation shows; minibatches are drawn within. It may return seconds for a step
    that it measured itself; else the time of the call is divided by n. `tuned(n)` is the same work made faster than
    documented: minibatches are handed over as row numbers, predictions are compiled, quicker parts are used.
    """

    def __init__(
        self,
        value: Callable[[], float],
        run: Callable[[int], Any],
        *,
        single: Callable[[], float] | None = None,
        tuned: Callable[[int], Any] | None = None,
    ):
        self.value, self.run, self.single, self.tuned = value, run, single, tuned


def serve(build: Callable[[dict, dict[str, np.ndarray]], Timed], functions: dict[str, Callable] | None = None) -> None:
    """Answer requests until the driver closes the pipe."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "load":
                task = None
                gc.collect()
                task, answer = _load(build, request)
            elif request["do"] == "time":
                answer = _time(task, request["steps"])
            elif request["do"] == "call":
                answer = (functions or {})[request["name"]](**request["arguments"])
            else:
                task, answer = None, {}
                gc.collect()
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _load(build: Callable, request: dict) -> tuple[Timed, dict]:
    with np.load(request["arrays"]) as file:
        arrays = dict(file)
    _forget_peak()
    before = _memory("VmRSS")
    task = build(request["case"], arrays)
    stepping = request["case"]["kind"] not in ("collapsed", "predict")
    value = float(task.value()) if stepping else None  # before the parameters move
    started = time.perf_counter()
    (task.tuned or task.run)(1)
    first = time.perf_counter() - started
    value = float(task.value()) if value is None else value
    return task, {"value": value, "compile": first, "memory_mb": _memory("VmHWM") - before}


def _time(task: Timed, steps: int) -> dict:
    answer = {"ms": _milliseconds(task.run, steps)}
    if task.tuned is not None:
        answer["tuned"] = _milliseconds(task.tuned, steps)
    if task.single is not None:
        answer["single"] = 1e3 * task.single()
    return answer


def _milliseconds(run: Callable[[int], Any], steps: int) -> float:
    started = time.perf_counter()
    own = run(steps)
    return 1e3 * ((time.perf_counter() - started) / steps if own is None else own)


def _memory(name: str) -> float:
    """A figure of this process in MB: VmRSS is what it holds, VmHWM the most that it held; nan where there is none."""
    try:
        rows = dict(row.split(":", 1) for row in Path("/proc/self/status").read_text().splitlines())
        return int(rows[name].split()[0]) / 1024
    except (OSError, KeyError):
        return float("nan")


def _forget_peak() -> None:
    """Let VmHWM start again from VmRSS."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
