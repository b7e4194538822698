"""Which rows make the batch of a step: a function of the seed and the step alone.

In each epoch the blocks of a source are permuted, and their rows are cut into equal lanes, each of which is read from
its beginning to its end. A window takes the next rows of every lane, a whole number of batches in all. It is cut into
S equal shards, each a range of neighbouring rows of one lane, which are shuffled. Batch i of a window consists of the
rows i·B/S … (i + 1)·B/S of each shard. Process p of P serves shards p·S/P … (p + 1)·S/P. The rows of a batch do not
depend on P, nor does their order.

A process reads the lanes of its shards alone: 1/P of all rows if there are at least P lanes, and otherwise one lane. A
single process keeps a block of every lane in memory, so that the number of lanes is limited.
"""

from typing import NamedTuple

import numpy as np

SHARDS = 64  # the most shards
HELD = 4  # the rows of a block of each lane are at most so many times those of a window


class Range(NamedTuple):
    """Rows of a lane: from `first` to before `last`, in the order of the epoch."""

    lane: int
    first: int
    last: int


class Place(NamedTuple):
    """Where a step is: its epoch, the window in it, and the number of its batch in that window."""

    epoch: int
    window: int
    batch: int


class Order(NamedTuple):
    """The order of the rows of a source.

    Attributes:
        blocks: the number of rows of each block of the source.
        seeks: whether blocks are permuted.
        batch_size: B.
        window: about how many rows are shuffled at a time.
        seed: whole numbers.
    """

    blocks: np.ndarray
    seeks: bool
    batch_size: int
    window: int
    seed: tuple[int, ...]

    @property
    def shards(self) -> int:
        """S, the largest power of two up to 64 that divides the size of a batch."""
        return int(np.gcd(self.batch_size, SHARDS))

    @property
    def lanes(self) -> int:
        """L, the number of lanes: a power of two that divides S."""
        most = min(self.shards, HELD * self.window // int(self.blocks.max()), len(self.blocks)) if self.seeks else 1
        return 2 ** (max(1, most).bit_length() - 1)

    @property
    def per_epoch(self) -> int:
        """The number of batches of an epoch. Rows that do not fill the last batch wait for another epoch."""
        return int(self.blocks.sum()) // self.batch_size

    @property
    def per_window(self) -> int:
        """The number of batches of a window, which mixes the rows of two blocks or more."""
        rows = max(self.window, 2 * int(self.blocks.max()) if self.seeks else 0)
        return min(max(1, rows // self.batch_size), self.per_epoch)

    def place(self, step: int) -> Place:
        """Where a step is."""
        epoch, batch = divmod(step, self.per_epoch)
        return Place(epoch, *divmod(batch, self.per_window))

    def batches_of(self, window: int) -> int:
        """The number of batches of a window of an epoch, of which the last one may have fewer."""
        return min(self.per_window, self.per_epoch - window * self.per_window)

    def order_of_blocks(self, epoch: int) -> np.ndarray:
        """The permutation of the blocks in an epoch."""
        if not self.seeks:
            return np.arange(len(self.blocks))
        return np.random.default_rng([1, *self.seed, epoch]).permutation(len(self.blocks))

    def ranges_of(self, window: int, part: int, parts: int) -> list[Range]:
        """The rows of those shards of a window that a part reads, in the order of the shards."""
        each, mine = self.batches_of(window) * self.batch_size // self.shards, self.shards // parts
        in_lane = self.shards // self.lanes  # shards
        share = self.batch_size // self.lanes  # rows of a batch that come from a lane
        found = []
        for lane in range(part * mine // in_lane, -(-(part + 1) * mine // in_lane)):
            first, last = (np.clip((part + i) * mine - lane * in_lane, 0, in_lane) * each for i in (0, 1))
            begin = (lane * self.per_epoch + window * self.per_window) * share
            found.append(Range(lane, int(begin + first), int(begin + last)))
        return found

    def rows_of(self, epoch: int, window: int, part: int, parts: int) -> np.ndarray:
        """For each batch of a window [k, B/P], which rows of the ranges of a part, joined, it has."""
        k, S = self.batches_of(window), self.shards
        each, mine = k * self.batch_size // S, S // parts
        rows = np.empty((k, mine, self.batch_size // S), np.int64)
        for s in range(mine):
            rng = np.random.default_rng([2, *self.seed, epoch, window, part * mine + s])
            rows[:, s] = s * each + rng.permutation(each).reshape(k, -1)
        return rows.reshape(k, -1)
