# SPDX-License-Identifier: Apache-2.0
"""Batches that are filled in place: where each buffer lies, and metadata whose size never changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from shmarrow.buffer import padded
from shmarrow.ipc.message.encode import PlannedBody, batch_message
from shmarrow.ipc.options import DEFAULT_OPTIONS

Pairs = Sequence[tuple[int, int]]


class BodyPlan:
    """The layout of a message whose body is allocated before its values are known.

    Parameters
    ----------
    start : int
        Offset of the message in its stream.

    Attributes
    ----------
    size : int
        Size of the body in bytes.
    metadata_size : int
        Size of the metadata: that of the first ones, which have no number that is 0 and could be another.
    """

    def __init__(self, start: int = 0) -> None:
        self.size = self.metadata_size = 0
        self._start = start

    def place(self, size: int) -> tuple[int, int]:
        """Give the next buffer a place in the body; returns its offset, a multiple of 64, and its size."""
        offset = self.size
        self.size += padded(size)
        return offset, size

    def metadata(self, rows: int, nodes: Pairs, buffers: Pairs, body: int) -> bytes:
        """Return the message's metadata.

        Parameters
        ----------
        rows : int
            Number of rows.
        nodes : sequence of (int, int)
            Length and null count of each column and child, in pre-order.
        buffers : sequence of (int, int)
            Offset and size of their buffers.
        body : int
            Size of the body, with what follows its places.
        """
        plan = PlannedBody([*chain.from_iterable(nodes)], [*chain.from_iterable(buffers)], [], None, (), body)
        data = batch_message(rows, plan, None, DEFAULT_OPTIONS, self._start)
        self.metadata_size = self.metadata_size or len(data)
        gap = self.metadata_size - len(data)  # a number that is 0 is omitted from the metadata
        return data if gap <= 0 else data[:4] + (self.metadata_size - 8).to_bytes(4, "little") + data[8:] + bytes(gap)
