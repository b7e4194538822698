"""Kill fits with a checkpoint at random times (kill −9), resume them, and compare the results bit for bit.

    python benchmarks/torture/kills.py [number of kills]

Each case is fitted once without a checkpoint. The same fit with a checkpoint is then killed at a random time between
its launch and its end, again and again until it ends. Parameters, bounds, history and message must be equal.
"""

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CASES = ("adam", "natgrad", "natgrad-all", "collapsed", "lbfgs", "evidence", "gplvm", "held_out")


def case(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """A model, data, and the arguments of a fit that takes a few seconds."""
    import numpy as np
    import optax

    import inducing as ig

    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, (60, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.2 * rng.normal(size=60)
    points = ig.features.InducingPoints(np.linspace(0.0, 4.0, 9)[:, None])
    gp = ig.SparseGP(ig.GP(ig.kernels.Matern52()), points)
    model, data = ig.Model(gp, ig.likelihoods.Gaussian()), (X, y)
    options: dict[str, Any] = {"method": name}
    if name == "adam":
        options |= {"steps": 300, "batch_size": 16, "optimiser": optax.chain(optax.clip(1.0), optax.lion(0.01))}
    elif name == "natgrad":
        options |= {"steps": 200, "batch_size": 16, "starts": 2}
    elif name == "natgrad-all":
        model, options = ig.deep_gp(X, ig.likelihoods.Gaussian(0.1), num_inducing=9), options | {"steps": 100}
    elif name == "collapsed":
        options |= {"starts": 2}
    elif name == "evidence":
        options = {"objective": ig.log_evidence}
    elif name == "gplvm":
        encoder = ig.layers.PerDatumEncoder(rng.normal(size=(60, 1)))
        latent = ig.LatentVariable(1, encoder=encoder)
        model = ig.Model(
            [latent, ig.SparseGP(ig.GP(ig.kernels.SquaredExponential()), points)], ig.likelihoods.Gaussian()
        )
        data, options = ig.Data(None, y), {"objective": ig.gplvm_elbo, "steps": 60}
    elif name == "held_out":
        options = {"held_out": (X[:20] + 0.1, y[:20]), "starts": 2, "patience": 20}
    return model, data, options


def digest(result: Any) -> dict[str, Any]:
    """All that must be equal, clock times excepted."""
    import jax
    import numpy as np

    arrays = [*jax.tree.leaves(result.model), result.history.step, result.history.bound]
    text = hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in arrays)).hexdigest()
    return {"arrays": text, "bound": float(result.bound).hex(), "message": result.message}


def child(name: str, folder: str, answer: str) -> None:
    """Fit one case, in a process of its own, and write what must be equal."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import inducing as ig

    model, data, options = case(name)
    keep = {"checkpoint": folder, "checkpoint_every": 1} if folder else {}
    result = ig.fit(model, data, progress=False, **options, **keep)
    Path(answer).write_text(json.dumps(digest(result)))


def launch(name: str, folder: str, answer: Path) -> subprocess.Popen:
    """Start a process that fits one case."""
    return subprocess.Popen([sys.executable, __file__, "child", name, folder, str(answer)])


def until_done(name: str, folder: Path, seconds: float, rng: random.Random, kills: int) -> tuple[int, dict | None]:
    """Kill a fit up to `kills` times, and let it end; the number of kills and its answer (None: it failed)."""
    answer, done = folder / "answer.json", 0
    while True:
        process = launch(name, str(folder / "run"), answer)
        limit = rng.uniform(0.0, 1.1 * seconds) if done < kills else 600.0
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        if process.poll() is None:
            process.kill()
            process.wait()
            done += 1
        else:
            return done, json.loads(answer.read_text()) if process.returncode == 0 else None


def main(count: int = 100, cases: tuple[str, ...] = CASES, seed: int = 0) -> dict[str, int]:
    """Kill fits `count` times in all.

    Args:
        count: the number of kills.
        cases: the names of the cases.
        seed: of the random times.

    Returns:
        The numbers of kills, of fits that ended, and of those that ended otherwise than undisturbed.
    """
    rng, found = random.Random(seed), {"kills": 0, "fits": 0, "other results": 0}
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{place}/jax")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        for i, name in enumerate(cases):
            quota, kills, fits, wrong = (i + 1) * count // len(cases) - i * count // len(cases), 0, 0, 0
            plain = Path(place) / f"{name}.json"
            for _ in range(2):  # the second time everything is compiled
                began = time.perf_counter()
                assert launch(name, "", plain).wait() == 0
                seconds = time.perf_counter() - began
            expected = json.loads(plain.read_text())
            while kills < quota:
                folder = Path(place) / f"{name}-{fits}"
                folder.mkdir()
                began = time.perf_counter()
                more, answer = until_done(name, folder, seconds, rng, min(8, quota - kills))
                if not more:  # it ended undisturbed: how long a fit takes depends on what else runs
                    seconds = time.perf_counter() - began
                kills, fits, wrong = kills + more, fits + 1, wrong + (answer != expected)
            for what, number in zip(found, (kills, fits, wrong), strict=True):
                found[what] += number
            print(f"{name:12} {kills:4} kills, {fits:3} fits, {wrong} with another result", flush=True)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        sys.exit(main(*map(int, sys.argv[1:2]))["other results"] > 0)
