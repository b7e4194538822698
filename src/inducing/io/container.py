"""The file itself: a safetensors file with a checksum, written atomically."""

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "inducing"
VERSION = "1"
NATIVE = frozenset(
    ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]
)


def write(path: Path, structure: Any, arrays: dict[str, np.ndarray]) -> None:
    """Write a file that holds the structure as JSON and the arrays by name.

    A crash at any time leaves either the old file or the new one: the data go to a temporary file in the same folder,
    which is flushed to the disk and then renamed.

    Args:
        path: the file.
        structure: anything that JSON can hold.
        arrays: NumPy arrays of native dtypes.

    Raises:
        OSError: the file cannot be written; an old file is left as it was.
    """
    from safetensors.numpy import save

    text = json.dumps(structure, separators=(",", ":"), allow_nan=False)
    metadata = {"format": FORMAT, "version": VERSION, "structure": text, "sha256": _checksum(text, arrays)}
    write_atomically(path, save({name: np.asarray(a, order="C") for name, a in arrays.items()}, metadata))


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of a file such that readers and crashes see the old content or the new, never a mixture.

    Args:
        path: the file.
        content: its new content.

    Raises:
        OSError: the file cannot be written; an old file is left as it was.

    Examples:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(pathlib.Path(folder) / "x", b"abc")
        ...     print((pathlib.Path(folder) / "x").read_bytes())
        b'abc'
    """
    path = path.resolve()  # replace what a symbolic link points to, not the link
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "path is a folder; add the name of a file", str(path))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _umask() -> int:
    """The process's mask of permissions; `mkstemp` makes files that only their owner can read."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Flush the rename to the disk, where the system can open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """The structure and the arrays of a file that `write` made, with the checksum verified.

    Args:
        path: the file.

    Returns:
        What JSON held, and the arrays by name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or not one of ours.
    """
    from safetensors import safe_open

    content = path.stat()  # raises FileNotFoundError or another OSError if the file cannot be read
    if not path.is_file():
        raise ValueError(f"{path} is not a file of ig.save: it is not a regular file.")
    with _damage_named(path, content.st_size):
        file = safe_open(path, framework="numpy")
    with file:
        metadata = file.metadata() or {}
        _check_format(path, metadata)  # before arrays of another program are read
        with _damage_named(path, content.st_size):
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — not a dictionary
    text = metadata.get("structure", "")
    if metadata.get("sha256") != _checksum(text, arrays):
        raise ValueError(f"{path} is damaged: its checksum does not match its content; restore it from a copy.")
    try:
        return json.loads(text), arrays
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its structure is not valid JSON ({_first_line(error)}).") from error


@contextlib.contextmanager
def _damage_named(path: Path, size: int) -> Generator[None, None, None]:
    """Turn whatever a reader of safetensors files may raise into one error that names the file."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"{path} is not a file of ig.save, or is damaged ({size} bytes): {_first_line(error)}"
        ) from error


def _check_format(path: Path, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a file of ig.save: it is a safetensors file of another program.")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {metadata.get('version')!r} of the file format; this release reads {VERSION!r}. "
            "Use a newer release of inducing."
        )


def _checksum(text: str, arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of the structure and of every array with its name, dtype and shape."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
