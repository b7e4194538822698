"""A thread that reads ahead, so that steps do not wait for data."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

HELD = 2**17  # the most rows in the queue


class Reader:
    """Runs an iterator in another thread.

    Args:
        items: the iterator.
        ahead: the most items in the queue.

    Examples:
        >>> reader = Reader(iter([1, 2]), 4)
        >>> next(reader), next(reader), next(reader, None)
        (1, 2, None)
        >>> reader.close()
    """

    def __init__(self, items: Iterator[Any], ahead: int):
        self._queue: queue.Queue = queue.Queue(max(2, ahead))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(items,), daemon=True, name="reads ahead")
        self._thread.start()

    def __iter__(self) -> "Reader":
        return self

    def __next__(self) -> Any:
        item, error = self._queue.get()
        if error is not None:
            self._put((None, error))  # for the next call
            raise error
        return item

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def _run(self, items: Iterator[Any]) -> None:
        try:
            for item in items:
                if not self._put((item, None)):
                    return
        except BaseException as error:  # raised where the items are used
            self._put((None, error))
        else:
            self._put((None, StopIteration()))

    def _put(self, pair: tuple[Any, BaseException | None]) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(pair, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
