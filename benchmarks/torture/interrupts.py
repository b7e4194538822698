"""Ctrl-C at random times: of fits, which return what they reached, and of the command line, which ends with 130."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

COMMANDS = 0.2  # the share of commands: each starts a Python of its own


def fits(count: int, rng: random.Random) -> dict[str, int]:
    """Interrupt `count` fits at random times between their beginning and their end.

    A fit must end with its result, which says that it was interrupted if it was, or with KeyboardInterrupt before its
    first step; handlers of signals and the threads of BLAS must be as before.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    import numpy as np
    from threads import blas

    import inducing as ig

    x = np.linspace(0.0, 1.0, 200)[:, None]
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52([0.3])), ig.features.InducingPoints(x[::20]))
    model, y = ig.Model(gp, ig.likelihoods.Gaussian()), np.sin(6.0 * x)
    found = {"fits that said so": 0, "fits ended before": 0, "KeyboardInterrupt": 0, "fits that went wrong": 0}
    options = [{"method": "collapsed"}, {"method": "natgrad", "steps": 500, "batch_size": 50}]
    seconds = []
    for option in options:
        for _ in range(2):  # the second time everything is compiled
            began = time.perf_counter()
            ig.fit(model, (x, y), progress=False, **option)
        seconds.append(time.perf_counter() - began)
    before = blas()
    for i in range(count):
        which, pressed = i % len(options), threading.Event()

        def press(wait: float, pressed: threading.Event = pressed) -> None:
            time.sleep(wait)
            pressed.set()
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press, args=(rng.uniform(0.0, 1.1 * seconds[which]),))
        try:
            thread.start()
            result = ig.fit(model, (x, y), progress=False, **options[which])
            said = "interrupted" in result.message
            ok = np.isfinite(result.bound) and (pressed.is_set() or not said)
            thread.join()  # Ctrl-C after the fit
            found["fits that said so" if said else "fits ended before"] += 1
        except KeyboardInterrupt:
            ok = pressed.is_set()
            found["KeyboardInterrupt"] += 1
        with contextlib.suppress(KeyboardInterrupt):
            thread.join()
        ok = ok and signal.getsignal(signal.SIGINT) is signal.default_int_handler and blas() == before
        found["fits that went wrong"] += not ok
    return found


def command(folder: Path) -> subprocess.Popen:
    """Start `inducing fit` on a small table, and wait until it says what it fits."""
    arguments = ["fit", "train.csv", "--target", "y", "--save", "model.ig", "--no-cache"]
    process = subprocess.Popen(
        [sys.executable, "-m", "inducing", *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def commands(count: int, rng: random.Random) -> dict[str, int]:
    """Interrupt `count` commands at random times after their first line.

    A command must end with 130 and one line, or as if nothing had happened if it was done; its file must be whole or
    not there, and nothing else may be left in the folder.
    """
    import inducing as ig

    found = {"commands ended by 130": 0, "commands ended before": 0, "commands that went wrong": 0}
    with tempfile.TemporaryDirectory() as place:
        folder, names = Path(place), ["train.csv"]
        (folder / "train.csv").write_text("x,y\n" + "".join(f"{i / 10},{(i % 7) / 3}\n" for i in range(200)))
        out = folder / "model.ig"
        for _ in range(2):
            process, began = command(folder), time.perf_counter()
            process.communicate()
            seconds = time.perf_counter() - began
        for _ in range(count):
            out.unlink(missing_ok=True)
            process = command(folder)
            time.sleep(rng.uniform(0.0, 1.05 * seconds))
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
            left = sorted(p.name for p in folder.iterdir())
            ended = process.returncode == 130 and said == "inducing: interrupted\n"
            before = process.returncode == 0 and said == "" and out.exists()
            kept = left == names or (left == sorted([*names, out.name]) and ig.load(out) is not None)
            found["commands ended by 130"] += ended
            found["commands ended before"] += before
            if not ((ended or before) and kept):
                found["commands that went wrong"] += 1
                print(process.returncode, left, said, flush=True)
    return found


def main(count: int) -> dict[str, int]:
    """Press Ctrl-C `count` times.

    Args:
        count: how often; a fifth of it on the command line.

    Returns:
        What happened, and how often.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with Ctrl-C ignored
    rng, few = random.Random(0), max(1, round(COMMANDS * count))
    found = fits(count - few, rng)
    print(found, flush=True)
    found |= commands(few, rng)
    print(found, flush=True)
    return found
