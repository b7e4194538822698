"""Processes that were forked from one in which JAX runs."""

import os

_running = False  # whether JAX was used here
_forked = False  # whether it was used by the process that this one was forked from


def refuse_after_fork() -> None:
    """Raise a RuntimeError in a child process that was forked after its parent had used JAX.

    A fork copies the thread that calls it and no other. JAX waits for its threads, so the child would wait forever.

    Raises:
        RuntimeError: in such a process; the message says what to do.

    Examples:
        >>> refuse_after_fork()
    """
    global _running
    if _forked:
        raise RuntimeError(
            "this process was forked from one that had used JAX, whose threads a fork does not copy, so that it would "
            'wait forever; start processes by multiprocessing.get_context("spawn").'
        )
    _running = True


def _note() -> None:
    global _forked
    _forked = _running


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_note)
