"""Which rows make which batch of an epoch: a pure function of the seed and the epoch.

Rules kept here:

* an epoch is one sequence of batches, the same for all ranks and workers; each takes every n-th of them. So each row is
  in one batch of one worker of one rank, and the batches of a rank do not depend on its number of workers;
* shuffling moves blocks of neighbouring rows, then mixes the rows of some blocks: random enough for training, while
  what is read at a time stays close together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]


class Plan(NamedTuple):
    """How rows are made into batches.

    Attributes
    ----------
    num_rows : int
        All rows.
    batch_size : int
        Rows of a batch.
    shuffle : bool
        Whether the order is random.
    block_rows : int
        Rows of a block.
    mixed_blocks : int
        Blocks whose rows are mixed.
    seed : int
        What the order depends on, together with the epoch.
    drop_last : bool
        Whether batches that are not full are left out, and those that not every rank would get.
    """

    num_rows: int
    batch_size: int
    shuffle: bool
    block_rows: int
    mixed_blocks: int
    seed: int
    drop_last: bool

    def num_batches(self, world_size: int = 1) -> int:
        """The batches of all ranks."""
        if not self.drop_last:
            return -(-self.num_rows // self.batch_size)
        return self.num_rows // self.batch_size // world_size * world_size

    def epoch(self, epoch: int) -> Epoch:
        """The order of the rows in one epoch."""
        return Epoch(self, epoch)


class Epoch:
    """The batches of one epoch; for one thread, which asks for batches with rising numbers."""

    def __init__(self, plan: Plan, epoch: int) -> None:
        self._plan = plan
        self._epoch = epoch
        if plan.shuffle:
            count = -(-plan.num_rows // plan.block_rows)
            self._blocks: Rows = self._random(0).permutation(count)
            sizes = np.minimum(plan.block_rows, plan.num_rows - self._blocks * plan.block_rows)
            groups = np.add.reduceat(sizes, np.arange(0, count, plan.mixed_blocks)) if count else sizes
            self._starts: Rows = np.concatenate([[0], np.cumsum(groups)])
            self._group = -1
            self._rows: Rows = np.empty(0, np.int64)

    def _random(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self._plan.seed, self._epoch, part])

    def batch(self, number: int) -> Rows | range:
        """The rows of a batch: a range where they are neighbours."""
        plan = self._plan
        start = number * plan.batch_size
        stop = min(start + plan.batch_size, plan.num_rows)
        if not plan.shuffle:
            return range(start, stop)
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        parts = []
        while start < stop:
            low, high = self._starts[first : first + 2].tolist()
            parts.append(self._mixed(first)[start - low : min(stop, high) - low])
            start, first = min(stop, high), first + 1
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _mixed(self, group: int) -> Rows:
        """The rows of some blocks in random order; the last ones are kept, as the next batch wants them again."""
        if group != self._group:
            plan = self._plan
            blocks = self._blocks[group * plan.mixed_blocks : (group + 1) * plan.mixed_blocks]
            rows = (blocks[:, None] * plan.block_rows + np.arange(plan.block_rows)).reshape(-1)
            rows = rows[rows < plan.num_rows]
            self._random(group + 1).shuffle(rows)
            self._group, self._rows = group, rows
        return self._rows
