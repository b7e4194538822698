"""How much memory the machine has, so that arrays that cannot fit are refused before they are allocated."""

import math
import os
from typing import Any

import numpy as np


def machine_memory() -> float:
    """The machine's memory in bytes; infinite where the system does not say.

    Returns:
        The number of bytes.

    Examples:
        >>> machine_memory() > 2**20
        True
    """
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return math.inf


def check_memory(what: str, shape: tuple[int, ...], dtype: Any, cure: str) -> None:
    """Raise a ValueError if an array would not fit into the machine's memory.

    Args:
        what: what needs the array, for the message.
        shape: its shape.
        dtype: the type of its entries.
        cure: what to do instead, for the message.

    Raises:
        ValueError: if it does not fit.

    Examples:
        >>> check_memory("this matrix", (2**53, 2), float, "use fewer rows")
        Traceback (most recent call last):
            ...
        ValueError: this matrix [9007199254740992, 2] needs 144115188 GB, more than the ... GB of this machine; use \
fewer rows.
    """
    need = min(math.prod(shape) * np.dtype(dtype).itemsize, 10**300)
    if need > min(machine_memory(), 2**50):
        raise ValueError(
            f"{what} {list(shape)} needs {need / 1e9:.0f} GB, more than the {machine_memory() / 1e9:.0f} GB of this "
            f"machine; {cure}."
        )
