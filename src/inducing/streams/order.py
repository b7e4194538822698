"""The rows of the batch of each step, which depend on the seed and the step only.

In each epoch, the blocks of a source are permuted. Their rows are cut into equal lanes, each of which is read from its
beginning to its end. A window consists of the next rows of every lane, and holds a whole number of batches. It is cut
into S equal shards, ranges of adjacent rows of one lane, which are shuffled. Batch i of a window consists of the rows
i·B/S … (i + 1)·B/S of each shard. Process p of P serves the shards p·S/P … (p + 1)·S/P. Neither the rows of a batch nor
their order depend on P.

A process reads only the lanes of its shards: 1/P of all rows if there are at least P lanes, and otherwise one lane. A
single process keeps a block of every lane in memory, which limits the number of lanes.
"""

from typing import NamedTuple

import numpy as np

SHARDS = 64  # the most shards
HELD = 4  # one block of each lane: together at most this many times the rows of a window


class Range(NamedTuple):
    """Rows of a lane: from `first` to before `last`, in the order of the epoch."""

    lane: int
    first: int
    last: int


class Place(NamedTuple):
    """The position of a step: the epoch, the window in the epoch, and the batch in the window."""

    epoch: int
    window: int
    batch: int


class Order(NamedTuple):
    """The order of the rows of a source.

    Attributes:
        blocks: the number of rows of each block of the source.
        seeks: whether blocks are permuted.
        batch_size: B.
        window: the approximate number of rows that are shuffled together.
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
        """The number of batches of an epoch. Rows that do not fill a batch at its end are left out of this epoch."""
        return int(self.blocks.sum()) // self.batch_size

    @property
    def per_window(self) -> int:
        """The number of batches of a window, which mixes the rows of at least two blocks."""
        rows = max(self.window, 2 * int(self.blocks.max()) if self.seeks else 0)
        return min(max(1, rows // self.batch_size), self.per_epoch)

    def place(self, step: int) -> Place:
        """The position of a step."""
        epoch, batch = divmod(step, self.per_epoch)
        return Place(epoch, *divmod(batch, self.per_window))

    def batches_of(self, window: int) -> int:
        """The number of batches of a window. The last window of an epoch may have fewer."""
        return min(self.per_window, self.per_epoch - window * self.per_window)

    def order_of_blocks(self, epoch: int) -> np.ndarray:
        """The permutation of the blocks in an epoch."""
        if not self.seeks:
            return np.arange(len(self.blocks))
        return np.random.default_rng([1, *self.seed, epoch]).permutation(len(self.blocks))

    def ranges_of(self, window: int, part: int, parts: int) -> list[Range]:
        """The rows of the shards of a window that one part reads, in the order of the shards."""
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
        """For each batch of a window, its rows among the joined ranges of a part, [k, B/P]."""
        k, S = self.batches_of(window), self.shards
        each, mine = k * self.batch_size // S, S // parts
        rows = np.empty((k, mine, self.batch_size // S), np.int64)
        for s in range(mine):
            rng = np.random.default_rng([2, *self.seed, epoch, window, part * mine + s])
            rows[:, s] = s * each + rng.permutation(each).reshape(k, -1)
        return rows.reshape(k, -1)
