"""Damaged, crafted and foreign files: `ig.load` gives a correct model or one `ValueError` that names the file.

    python benchmarks/torture files

Five kinds of files are made in turn, each from a file that `ig.save` wrote or from nothing:

- cut: some bytes at the end, the beginning or in the middle are missing, or some are added;
- flipped: up to eight bits are flipped, or a block is overwritten;
- header: the header of safetensors names other shapes, dtypes, places or metadata;
- crafted: structure or arrays are changed, and the checksum is made to fit;
- foreign: random bytes, archives, pickles, texts, and safetensors files of other programs.

Each load belongs to one class, by the first rule that applies:

    wrong      it raised anything but a ValueError, or warned, or took more than 10 s or 1 GB of memory
    unnamed    it raised a ValueError whose message does not begin with the path of the file
    false      it returned a model that is not the one which the file describes: saved again, the structure or a bit
               of an array is another; or a parameter has a value that is not allowed; or the file had been cut or
               flipped, and the model differs from the one that was saved
    correct    it returned any other model
    refused    it raised any other ValueError

There must be none of the first three.
"""

import io
import json
import pickle
import random
import resource
import struct
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = ("correct", "refused", "wrong", "unnamed", "false")
LIMIT = 2**30  # bytes more than at the beginning
SECONDS = 10.0
NUMBERS = (-1, 0, 1, 2, 7, 2**31, 2**53, 2**63, 2**64, 10**30, 0.5, -0.0, float("inf"), float("nan"))
TEXTS = ("", "value", "os.system", "user:f", "é", "\0", "a" * 1000, "float32", "bfloat16", "object", "nan", "0x1p9999")
JUNK = (*NUMBERS, *TEXTS, None, True, [], {}, [[]], ["none"], ["int", "3"], ["tuple"], {"a": ["none"]}, ["part"])
KINDS = [
    "part",
    "function",
    "partial",
    "Partial",
    "array",
    "numpy",
    "scalar",
    "key",
    "tuple",
    "list",
    "dict",
    "none",
    "bool",
]
KINDS += ["int", "float", "str", "dtype"]


def models() -> list[Any]:
    """Small models and parts that hold values of every kind."""
    import equinox as eqx
    import jax

    import inducing as ig

    x = np.linspace(-1.0, 1.0, 5)[:, None]
    kernel = ig.kernels.Matern52([0.5]) + ig.kernels.Periodic(ig.kernels.SquaredExponential())
    gp = ig.SparseGP(ig.GP(kernel, ig.means.Constant(1.0)), ig.features.InducingPoints(x))
    network = eqx.nn.MLP(1, 1, 3, 1, key=jax.random.key(0))
    known = ig.likelihoods.Gaussian(ig.likelihoods.PerDatum([0.1, 0.2], new=0.0))
    return [
        ig.kernels.Matern52(2.0),
        ig.Model(gp, ig.likelihoods.Bernoulli()),
        ig.Model([ig.Deterministic(network), gp], ig.likelihoods.PerOutput([known])),
        ig.Model([ig.BayesianDense(1, 2), ig.BayesianDense(2, 3)], ig.likelihoods.Softmax(3)),
        ig.kernels.ActiveDims(ig.kernels.ArcCosine(order=1), (0, 2)),
    ]


def header_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and what follows it."""
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def with_header(header: Any, rest: bytes) -> bytes:
    """A safetensors file with another header."""
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + rest


def cut(whole: bytes, rng: random.Random) -> bytes:
    """Without some bytes, or with more."""
    a, b = sorted(rng.randrange(len(whole) + 1) for _ in range(2))
    return rng.choice([whole[:a], whole[a:], whole[:a] + whole[b:], whole[:a] + whole[a:b] * 2 + whole[b:], whole[:-1]])


def flipped(whole: bytes, rng: random.Random) -> bytes:
    """With some bits flipped, or a block overwritten."""
    content = bytearray(whole)
    if rng.random() < 0.8:
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    else:
        a, size = rng.randrange(len(content)), rng.choice([1, 8, 64, 4096])
        block = content[a : a + size]
        content[a : a + size] = rng.choice([bytes(len(block)), b"\xff" * len(block), rng.randbytes(len(block))])
    return bytes(content)


def changed(value: Any, rng: random.Random) -> Any:
    """JSON with something else at a random place."""
    holders = _holders(value)
    if not holders or rng.random() < 0.02:
        return rng.choice(JUNK)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        holder = rng.choice(holders)
        names = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not names:
            continue
        name, what = rng.choice(names), rng.random()
        if what < 0.15:
            del holder[name]
        elif what < 0.3:
            holder[name] = json.loads(json.dumps(rng.choice(holders)))
        elif what < 0.4 and isinstance(holder, dict):
            holder[rng.choice(["new", "", "variance", "__class__"])] = holder.pop(name)
        elif what < 0.4:
            holder.insert(rng.randrange(len(holder) + 1), rng.choice(JUNK))
        elif what < 0.5:
            holder[name] = deep(rng.choice([20, 50, 99, 150]), holder[name])
        elif what < 0.7 and isinstance(holder[name], str):
            holder[name] = _similar(holder[name], rng)
        else:
            holder[name] = rng.choice(JUNK)
    return value


def deep(depth: int, value: Any) -> Any:
    """A value in many tuples."""
    for _ in range(depth):  # not too many: Python's own JSON gives up at about a thousand
        value = ["tuple", value]
    return value


def _holders(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(h for v in value.values() for h in _holders(v))]
    return [value, *(h for v in value for h in _holders(v))] if isinstance(value, list) else []


def _similar(text: str, rng: random.Random) -> str:
    """Another text of the same sort: a kind, a tag, a dtype, a name, or a number."""
    from inducing.io.container import NATIVE
    from inducing.io.registry import known_parts

    for sort in (KINDS, sorted(known_parts()), sorted(NATIVE)):
        if text in sort:
            return rng.choice(sort)
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice("0-.xe9a") + text[place + rng.randrange(2) :]


def header(whole: bytes, rng: random.Random) -> bytes:
    """With a header that was tampered with."""
    found, rest = header_of(whole)
    entry = found.get(rng.choice(sorted(found)))
    if rng.random() < 0.5 and isinstance(entry, dict) and "shape" in entry:
        place = rng.choice(["shape", "dtype", "data_offsets"])
        dtypes = ["F8_E4M3", "BF16", "I64", "U8", "BOOL", "F16", "C64", "x", 3, None]
        numbers = rng.choice([[rng.choice(NUMBERS) for _ in range(rng.randrange(4))], [1] * 70])
        entry[place] = rng.choice(dtypes) if place == "dtype" else numbers
        return with_header(found, rest)
    if rng.random() < 0.2:
        size = rng.choice([0, 1, 2**31, 2**63, 2**64 - 1, len(whole), len(whole) - 8, len(whole) - 7])
        return struct.pack("<Q", size) + whole[8:]
    return with_header(changed(found, rng), rest)


def crafted(whole: bytes, rng: random.Random) -> bytes:
    """With another structure or other arrays, and a checksum that fits."""
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    from inducing.io.container import _checksum

    found, _ = header_of(whole)
    structure, arrays = json.loads(found["__metadata__"]["structure"]), load(whole)
    if rng.random() < 0.7:
        structure = changed(structure, rng)
    if arrays and rng.random() < 0.4:
        name = rng.choice(sorted(arrays))
        arrays[name] = _other_array(arrays[name], rng)
    if arrays and rng.random() < 0.05:
        arrays.pop(rng.choice(sorted(arrays)))
    text = json.dumps(structure)
    if rng.random() < 0.05:
        text = rng.choice([text[:-1], text + "]", "[" * 100_000, '{"a":' * 100_000, "NaN", "1e999", "", '"\ud800"'])
    metadata = {"format": "inducing", "version": "1", "structure": text}
    if rng.random() < 0.05:
        metadata[rng.choice(sorted(metadata))] = rng.choice(TEXTS)
    try:
        metadata["sha256"] = _checksum(metadata["structure"], arrays)
        return save(arrays, metadata)
    except (SafetensorError, UnicodeError):
        return with_header({"__metadata__": metadata}, b"")  # safetensors does not write text that is no text


def _other_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """Another value, shape or dtype."""
    what = rng.random()
    if what < 0.4:
        array = np.array(array)
        bad = rng.choice([-1.0, 0.0, np.nan, np.inf, -np.inf, 1e300, 5e-324, 3.0])
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array.flat[rng.randrange(max(1, array.size)) : 10**6] = bad if array.dtype.kind == "f" else 3
        return array
    if what < 0.7:
        shape = rng.choice([(), (0,), (1,), (2,), (5, 1), (1, 5), (1,) * 40, (0, 2**40)])
        return np.ones(shape, array.dtype)
    return array.astype(rng.choice(["float32", "float16", "int64", "uint8", "bool", "float64"]))


def foreign(whole: bytes, rng: random.Random) -> bytes:
    """A file of something else."""
    from safetensors.numpy import save

    archive, arrays = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("model.ig", whole)
    np.savez(arrays, x=np.ones(3))
    size = rng.choice([0, 1, 7, 8, 9, 100, 10_000])
    return rng.choice(
        [
            rng.randbytes(size),
            struct.pack("<Q", rng.choice([0, 2, 8, 100])) + rng.randbytes(size),
            struct.pack("<Q", 2) + b"{}" + rng.randbytes(size),
            archive.getvalue(),
            arrays.getvalue(),
            pickle.dumps({"x": np.ones(3)}),
            b"x,y\n1,2\n" * size,
            json.dumps({"format": "inducing"}).encode(),
            b"\x89PNG\r\n\x1a\n" + rng.randbytes(size),
            save({"x": np.ones(size)}, {"format": rng.choice(["pt", "np", "inducing"])}),
            save({"x": np.ones(size)}),
        ]
    )


KINDS_OF_FILES: tuple[Callable[[bytes, random.Random], bytes], ...] = (cut, flipped, header, crafted, crafted, foreign)


def described(model: Any) -> tuple[Any, dict[str, Any]]:
    """The structure of a model, and its arrays by name as bytes, dtype and shape."""
    from inducing.io.structure import Writer

    writer = Writer()
    structure = writer.describe(model, "")
    return structure, {n: (a.tobytes(), a.dtype.name, a.shape) for n, a in writer.arrays.items()}


def agrees(asked: Any, made: Any, theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Whether a model is what the file asked for: equal, but for defaults of fields and for the names of arrays."""
    from inducing.io.registry import known_parts

    if isinstance(asked, dict) and isinstance(made, dict):
        return asked.keys() <= made.keys() and all(agrees(v, made[k], theirs, ours) for k, v in asked.items())
    if isinstance(asked, list) and isinstance(made, list) and asked[:1] == made[:1]:
        if asked[0] in ("array", "numpy", "scalar", "key") and len(asked) == 3:
            same = theirs[asked[1]][0] == ours[made[1]][0] and theirs[asked[1]][2] == ours[made[1]][2]
            return same and asked[2] == made[2]
        if asked[0] == "function":
            return known_parts()[asked[1]] is known_parts()[made[1]]  # silu and swish are one function
        return len(asked) == len(made) and all(agrees(a, b, theirs, ours) for a, b in zip(asked, made, strict=True))
    return type(asked) is type(made) and asked == made


def outcome(path: Path, original: Any, kind: str) -> str:
    """The class of one load, by the rules at the top."""
    import inducing as ig
    from inducing.io.container import read
    from inducing.parameters import check

    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = ig.load(path)
    except ValueError as error:
        slow = time.perf_counter() - began > SECONDS
        return "wrong" if slow else "refused" if str(error).startswith(str(path)) else "unnamed"
    except BaseException:
        traceback.print_exc(limit=-3)
        return "wrong"
    if time.perf_counter() - began > SECONDS:
        return "wrong"
    check(model)
    made, ours = described(model)
    if kind in ("cut", "flipped"):
        return "correct" if (made, ours) == original else "false"
    asked, arrays = read(path)
    theirs = {n: (a.tobytes(), a.dtype.name, a.shape) for n, a in arrays.items()}
    return "correct" if agrees(asked, made, theirs, ours) else "false"


def main(count: int, seed: int = 0) -> dict[str, int]:
    """Load `count` files.

    Args:
        count: the number of files.
        seed: of what is done to them.

    Returns:
        The number of files of each class.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    import inducing as ig

    rng, found = random.Random(seed), dict.fromkeys(CLASSES, 0)
    with tempfile.TemporaryDirectory() as place:
        path, saved = Path(place) / "model.ig", []
        for model in models():
            ig.save(path, model)
            saved.append((path.read_bytes(), described(ig.load(path))))
        before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + LIMIT, before[1]))
        try:
            for i in range(count):
                whole, original = rng.choice(saved)
                damage = KINDS_OF_FILES[i % len(KINDS_OF_FILES)]
                content = damage(whole, rng)
                path.write_bytes(content)
                kind = outcome(path, original, damage.__name__)
                found[kind] += 1
                if kind not in ("correct", "refused"):
                    print(f"file {i}, {damage.__name__}: {kind}: {content[:5000]!r}", flush=True)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
    print(found, flush=True)
    return found
