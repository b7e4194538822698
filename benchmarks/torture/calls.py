"""Bad calls: public constructors and functions with arguments of a wrong kind, shape or value.

    python benchmarks/torture calls

Each call is a good one (good_calls.py, good_functions.py) in which one argument, or sometimes two, are replaced at
random: by objects of any other kind, numbers that mean nothing, arrays of other shapes, and other parts of the library.
It belongs to one class, by the first rule that applies:

    abort      the process ended, or the call and the first use of its result took more than 60 s; of memory, a process
               has 6 GB
    unclear    an exception that is no TypeError, ValueError, FloatingPointError, ImportError or OSError; or one that is
               raised in the code of another library; or one whose message names no argument of the call (alone, in
               the singular, as x, y, labels, mask or index of data, or, of a part, by its class), no field of the
               part, nor, of an operator such as +, its operands. An OSError may name the file instead, a message
               about `frame` the table; and the messages of scikit-learn's validation, which its conventions demand
               for X, y and weights of estimators, are clear
    late       a constructor accepted the arguments, and the first use of the object with good data raised, unless the
               error is clear and says which columns, rows, outputs, latent functions or kernel it needs
    silent     a result with NaN or infinity, although all numbers among the arguments are finite
    clear      any other exception
    good       the call returned

Warnings are allowed. Functions among the arguments are such that they work.
"""

import collections
import contextlib
import datetime
import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

CLASSES = ("good", "clear", "late", "unclear", "silent", "abort")
KINDS = (TypeError, ValueError, FloatingPointError, ImportError, OSError)
SECONDS, MEMORY = 60, 6 * 2**30
BATCH = 2_000
# What an object may need of the data and parts that it meets.
NEEDS = r"column|row|output|latent|input|dimension|data|class|kernel"
HERE = Path(__file__).resolve().parent


def wrong_values() -> list[Any]:
    """Objects of every kind, one of which replaces a good argument."""
    import decimal
    import fractions

    import good_calls as good
    import jax
    import jax.numpy as jnp
    import numpy as np

    import inducing as ig

    numbers: list[Any] = [
        0,
        1,
        -1,
        2,
        2.5,
        -0.5,
        1e-320,
        1e308,
        np.nan,
        np.inf,
        -np.inf,
        True,
        3 + 4j,
        2**30,
        2**31,
        2**53,
        2**63,
        10**400,
    ]
    numbers += [np.float32(0.5), np.float16(2.0), np.int64(3), np.longdouble(1.5), np.bool_(True), np.complex64(1j)]
    numbers += [
        decimal.Decimal("1.5"),
        fractions.Fraction(1, 3),
        datetime.date(2024, 1, 1),
        np.datetime64("2024-01-01"),
    ]
    plain: list[Any] = [
        None,
        "tanh",
        "",
        "0.5",
        b"x",
        object(),
        ...,
        NotImplemented,
        [],
        (),
        {},
        set(),
        {"a": 1},
        {1.0},
        range(3),
    ]
    plain += [[None], ["a"], [1.0, "a"], [[1.0], [1.0, 2.0]], [[]], [[[1.0]]], (1, 2), [True], [10**400], iter([1.0])]
    plain += [
        int,
        float,
        list,
        Exception("x"),
        slice(3),
        memoryview(b"abc"),
        os,
        sys.stdout,
        Path("x"),
        re.compile("x"),
    ]
    shapes = [(), (0,), (1,), (3,), (6,), (0, 1), (6, 0), (1, 1), (3, 1), (6, 1), (6, 2), (1, 6), (3, 3), (2, 2, 2)]
    arrays: list[Any] = [np.full(shape, 0.5) for shape in shapes] + [jnp.ones(shape) for shape in shapes[::3]]
    arrays += [np.full((6, 1), value) for value in (np.nan, np.inf, 1e308, 1e-320, -1.0, 0.0)]
    arrays += [
        np.ones((6, 1), dtype) for dtype in ("int8", "uint64", "bool", "float16", "complex64", "longdouble", "object")
    ]
    arrays += [
        np.array(["a", "b"]),
        np.array([None, 1.0]),
        np.ma.masked_array(X := np.ones((6, 1)), X > 0),
        np.matrix(X),
    ]
    arrays += [
        np.array(["2024-01-01"] * 6, "datetime64[D]"),
        jnp.ones((6, 1), "float32"),
        np.recarray((6,), [("a", "f8")]),
    ]
    arrays += [
        jax.random.key(1),
        jax.random.PRNGKey(1),
        jax.random.split(jax.random.key(1)),
        jax.ShapeDtypeStruct((3,), float),
    ]
    functions: list[Any] = [
        jnp.tanh,
        lambda *a, **k: 0.5,
        lambda x, *a, **k: x,
        abs,
        ig.elbo,
        ig.kernels.Matern52,
        ig.likelihoods.Gaussian,
    ]
    parts: list[Any] = [
        good.SE,
        good.M52,
        good.POINTS,
        good.PRIOR,
        good.LAYER,
        good.MODEL,
        good.CLASSES,
        good.means.Zero(),
    ]
    parts += [
        ig.likelihoods.Gaussian(),
        ig.likelihoods.Softmax(3),
        ig.kernels.White(),
        ig.kernels.Coregion([[1.0]], [1.0]),
    ]
    parts += [
        [good.SE],
        (good.SE, 2),
        [good.SE, good.POINTS],
        {"kernel": good.SE},
        ig.Data([1.0], [2.0]),
        ig.LatentVariable(1),
    ]
    parts += [ig.likelihoods.PerDatum([0.1, 0.2], new=0.1), ig.features.Fourier(-1.0, 1.0, 2), *_tables()]
    return [*numbers, *plain, *arrays, *functions, *parts]


def _tables() -> list[Any]:
    """Columns and tables of other libraries, where they are installed."""
    found: list[Any] = []
    for name in ("pandas", "polars"):
        with contextlib.suppress(ImportError):
            library = __import__(name)
            found += [library.Series([1.0, 2.0]), library.Series(["a", "b"]), library.DataFrame({"a": [1.0, 2.0]})]
    return found


def spoiled(rng: random.Random, calls: dict[str, Any], values: list[Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The name of a call, its arguments, and those of them that were replaced."""
    (name,) = rng.choices(list(calls), [call.weight for call in calls.values()])
    good = calls[name].arguments
    wrong = {k: rng.choice(values) for k in rng.sample(list(good), min(len(good), rng.choice([1, 1, 1, 2])))}
    return name, good | wrong, wrong


def words(call: Any, arguments: dict[str, Any]) -> list[str]:
    """What a clear message may name: arguments, alone or in the singular, the parts of data, fields, classes."""
    import inducing

    found = [*arguments, getattr(call.function, "__name__", ""), *getattr(call.function, "__annotations__", {})]
    found += [name.removesuffix("s") for name in arguments if len(name) > 2]
    found += ["x", "y", "mask", "index", "labels"] * ("data" in arguments) + ["labels"] * ("y" in arguments)
    found += [type(value).__name__ for value in arguments.values() if isinstance(value, inducing.Module)]
    found += ["table"] * ("frame" in arguments)
    return [word for word in found if word and word != "<lambda>"] + ["operand"]  # of Python's own message for +


def is_clear(error: BaseException, names: list[str]) -> bool:
    """Whether an error is of a kind that is meant for users, is our own, and names what is wrong."""
    import inducing

    frames = [f for f in traceback.extract_tb(error.__traceback__) if "equinox" not in f.filename]
    ours = str(Path(inducing.__file__).parent)
    raised_by_us = bool(frames) and frames[-1].filename.startswith((ours, str(HERE), "<"))
    named = any(re.search(rf"\b{re.escape(name)}\b", str(error), re.IGNORECASE) for name in names)
    if isinstance(error, OSError):
        return named or error.filename is not None
    if any("/sklearn/utils/validation.py" in frame.filename for frame in frames):
        return isinstance(error, KINDS)  # estimators must validate X, y and weights by scikit-learn, in its words
    return isinstance(error, KINDS) and raised_by_us and named


def is_finite(value: Any) -> bool:
    """Whether all numbers in a value, however nested, are finite; anything that is no number counts as finite."""
    import jax
    import numpy as np

    for leaf in jax.tree.leaves(value):
        with contextlib.suppress(Exception):
            array = np.ma.filled(leaf, np.nan) if np.ma.isMaskedArray(leaf) else np.asarray(leaf)  # masked: missing
            if array.dtype.kind == "O":
                array = array.astype(float)
            if array.dtype.kind in "fc" and not np.isfinite(array).all():
                return False
    return True


def classify(call: Any, arguments: dict[str, Any]) -> tuple[str, str]:
    """The class of one call, and what it said."""
    import jax

    names = words(call, arguments)
    try:
        result = call.function(**arguments)
    except Exception as error:
        return ("clear" if is_clear(error, names) else "unclear"), _said(error)
    used = result
    if call.use is not None:
        try:
            used = call.use(result)
        except Exception as error:
            fields = [*names, type(result).__name__, *getattr(type(result), "__annotations__", {})]
            needs = is_clear(error, fields) or is_clear(error, ["X", "y", "model"])
            return ("clear" if needs and re.search(NEEDS, str(error)) else "late"), _said(error)
    numbers: list[Any] = [a for a in jax.tree.leaves(used) if eqx_is_number(a)]
    return ("good" if is_finite(numbers) or not is_finite(list(arguments.values())) else "silent"), ""


def eqx_is_number(value: Any) -> bool:
    """Whether a result is an array or a number."""
    import jax
    import numpy as np

    return isinstance(value, jax.Array | np.ndarray | np.generic | float)


def _said(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = "/".join(Path(frame.filename).parts[-3:])
    return f"{type(error).__name__}: {str(error)[:200]} ({place}:{frame.lineno})"


def child(seed: str, start: str, stop: str, answer: str) -> None:
    """Some of the calls, in this process; a line of JSON for each, written before and after it."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from good_functions import calls

    def too_slow(number: int, frame: Any) -> None:
        os._exit(99)

    signal.signal(signal.SIGALRM, too_slow)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory() as folder, Path(answer).open("a") as out:
        os.chdir(folder)  # where a call that takes a text for a path may write
        every, values = calls(folder), wrong_values()
        for i in range(int(start), int(stop)):
            name, arguments, wrong = spoiled(random.Random(f"{seed} {i}"), every, values)
            shown = {k: f"{type(v).__name__} {str(v)[:60] if not callable(v) else ''}" for k, v in wrong.items()}
            print(json.dumps({"i": i, "call": name, "wrong": shown}), file=out, flush=True)
            signal.alarm(SECONDS)
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                kind, said = classify(every[name], arguments)
            signal.alarm(0)
            print(json.dumps({"i": i, "class": kind, "said": said}), file=out, flush=True)


def batch(seed: int, start: int, stop: int, answer: Path) -> list[dict[str, Any]]:
    """Calls `start` to `stop` in processes of their own: another goes on where one has ended."""
    done: dict[int, dict[str, Any]] = {}
    environment = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # compile fast
    while start < stop:
        command = [sys.executable, __file__, "child", str(seed), str(start), str(stop), str(answer)]
        ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        for line in answer.read_text().splitlines() if answer.exists() else []:
            entry = json.loads(line)
            done.setdefault(entry["i"], {}).update(entry)
        if not done or max(done) < start:
            raise RuntimeError(f"calls could not begin: {ended.stderr[-2000:]}")
        last = done[max(done)]
        if "class" not in last:
            last.update({"class": "abort", "said": f"exit code {ended.returncode}: {ended.stderr[-300:]}"})
        start = max(done) + 1
    return list(done.values())


def main(count: int, seed: int = 0) -> dict[str, Any]:
    """Make `count` calls.

    Args:
        count: the number of calls.
        seed: of what is wrong with them.

    Returns:
        The number of calls of each class.
    """
    found = dict.fromkeys(CLASSES, 0)
    seen: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as place:
        for start in range(0, count, BATCH):
            for entry in batch(seed, start, min(start + BATCH, count), Path(place) / f"{start}.jsonl"):
                found[entry["class"]] += 1
                if entry["class"] not in ("good", "clear"):
                    seen[f"{entry['class']:8} {entry['call']:20} {entry['wrong']} {entry['said']}"] += 1
            print(found, flush=True)
    for text, number in sorted(seen.items()):
        print(number, text)
    return found


if __name__ == "__main__" and sys.argv[1:2] == ["child"]:
    child(*sys.argv[2:])
