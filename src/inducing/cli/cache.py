"""The cache of compiled programs between runs of the command."""

import os
import sys
from pathlib import Path

import jax

MOST = 512 * 2**20  # bytes


def cache_folder() -> Path:
    """The folder of compiled programs, in the user's cache folder.

    Returns:
        The folder; it need not exist.
    """
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        home = Path.home() / "Library" / "Caches"
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "inducing" / "programs"


def keep_programs(folder: Path | None = None, most: int = MOST) -> None:
    """Keep compiled programs in a folder, so that the next run on data of the same shape need not compile them.

    If the user has set `JAX_COMPILATION_CACHE_DIR`, nothing changes. If the folder cannot be written, no programs are
    kept.

    Args:
        folder: the folder; by default in the user's cache folder.
        most: the largest size in bytes. Beyond it, the oldest programs are deleted.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_folder() if folder is None else folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _prune(folder, most)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _prune(folder: Path, most: int) -> None:
    files = sorted(((f.stat().st_mtime, f.stat().st_size, f) for f in folder.iterdir() if f.is_file()), reverse=True)
    total = 0
    for _, size, file in files:
        total += size
        if total > most:
            file.unlink(missing_ok=True)
