"""The assignment of rows to the batches of an epoch: a pure function of the seed and the epoch.

Invariants:

* an epoch is one sequence of batches, the same for all ranks and workers; each gets every n-th of them. So each row is
  in one batch of one worker of one rank, and the batches of a rank do not depend on its number of workers;
* shuffling permutes blocks of consecutive rows, then mixes the rows of groups of blocks: random enough for training,
  while rows that are read together stay close in memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shmarrow.buffer import Indices


class Plan(NamedTuple):
    """Parameters of the division of rows into batches.

    Attributes
    ----------
    num_rows : int
        Number of rows.
    batch_size : int
        Rows per batch.
    shuffle : bool
        Whether the order is random.
    block_rows : int
        Rows per block.
    mixed_blocks : int
        Number of blocks whose rows are mixed.
    seed : int
        Determines the order, together with the epoch.
    drop_last : bool
        Whether batches that are not full, or that not every rank would get, are dropped.
    """

    num_rows: int
    batch_size: int
    shuffle: bool
    block_rows: int
    mixed_blocks: int
    seed: int
    drop_last: bool

    def num_batches(self, world_size: int = 1) -> int:
        """Return the number of batches of all ranks."""
        if not self.drop_last:
            return -(-self.num_rows // self.batch_size)
        return self.num_rows // self.batch_size // world_size * world_size

    def epoch(self, epoch: int) -> Epoch:
        """Return the order of the rows in one epoch."""
        return Epoch(self, epoch)


class Epoch:
    """The batches of one epoch; not thread-safe, and fastest if batches are requested in increasing order."""

    def __init__(self, plan: Plan, epoch: int) -> None:
        self._plan = plan
        self._epoch = epoch
        if plan.shuffle:
            count = -(-plan.num_rows // plan.block_rows)
            self._blocks: Indices = self._random(0).permutation(count)
            sizes = np.minimum(plan.block_rows, plan.num_rows - self._blocks * plan.block_rows)
            groups = np.add.reduceat(sizes, np.arange(0, count, plan.mixed_blocks)) if count else sizes
            self._starts: Indices = np.concatenate([[0], np.cumsum(groups)])
            self._group = -1
            self._rows: Indices = np.empty(0, np.int64)

    def _random(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self._plan.seed, self._epoch, part])

    def batch(self, number: int) -> Indices | range:
        """Return the rows of a batch; a range if they are consecutive."""
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

    def _mixed(self, group: int) -> Indices:
        """Return the rows of a group of blocks in random order; the last group is cached for the next batch."""
        if group != self._group:
            plan = self._plan
            blocks = self._blocks[group * plan.mixed_blocks : (group + 1) * plan.mixed_blocks]
            rows = (blocks[:, None] * plan.block_rows + np.arange(plan.block_rows)).reshape(-1)
            rows = rows[rows < plan.num_rows]
            self._random(group + 1).shuffle(rows)
            self._group, self._rows = group, rows
        return self._rows
