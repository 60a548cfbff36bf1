"""The footer of a file: where it is, and what our writers add to its metadata.

A file begins with :data:`MAGIC`, padded to :data:`HEAD` bytes, and ends with the footer, its size and the magic.
"""

from __future__ import annotations

import struct

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, LimitExceeded, Limits
from shmarrow.sources.base import Source

MAGIC = b"ARROW1"
HEAD = 8
SIZE = struct.Struct("<i")
_TAIL = SIZE.size + len(MAGIC)
_GUESS = 1 << 15
"""Bytes that are read at the end of a file that is read by ranges: most footers, and all of a small file."""

Block = tuple[int, int, int]


def read_footer(source: Source, limits: Limits) -> tuple[int, Bytes]:
    """Where the footer starts, and its bytes."""
    name, size = source.name, source.size or 0
    if size < HEAD + _TAIL:
        raise InvalidData(f"{name}: an Arrow file has at least {HEAD + _TAIL} bytes, found {size}")
    # What is not in memory is read from its end on; then the head is looked at only where it is among what was read.
    first = 0 if source.data is not None else max(0, size - _GUESS)
    data = source.read(first, size)
    if not first and (head := data[: len(MAGIC)].tobytes()) != MAGIC:
        raise InvalidData(f"{name}: no Arrow file: expected {MAGIC!r} at its start, found {head!r}; is it a stream?")
    end = data[-_TAIL:].tobytes()
    if (tail := end[SIZE.size :]) != MAGIC:
        raise InvalidData(
            f"{name}: the file is cut: expected {MAGIC!r} at its end, [{size - 6}, {size}), found {tail!r}"
        )
    (length,) = SIZE.unpack_from(end)
    start = size - _TAIL - length
    if length <= 0 or start < HEAD:
        raise InvalidData(f"{name}: the footer says that it has {length} bytes, but {size - _TAIL - HEAD} are there")
    if length > limits.metadata_bytes:
        raise LimitExceeded(
            f"{name}: a footer of {length} bytes, more than Limits.metadata_bytes = {limits.metadata_bytes}"
        )
    if start < first:
        return start, source.read(start, start + length)
    return start, data[start - first : start - first + length]


ROW_COUNTS = b"shmarrow:row_counts"
"""The key in the footer's metadata under which our writers put how many rows each batch has.

The value is ASCII, as metadata are text to many readers: the counts in the order of the batches, separated by commas,
``n*rows`` for ``n`` batches in succession of as many. It is a hint from whoever wrote the file: it is used where it
counts as many batches as the footer lists, for the number of rows of the file and for nothing that is read."""


class RowCounts:
    """The number of rows of each batch of a file, as runs of equal numbers.

    Attributes
    ----------
    runs : list of (int, int)
        How many batches follow each other that have so many rows.
    """

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []

    def add(self, rows: int, batches: int = 1) -> None:
        """One more batch, or several that have as many rows each."""
        if self.runs and self.runs[-1][1] == rows:
            batches += self.runs.pop()[0]
        self.runs.append((batches, rows))

    @property
    def batches(self) -> int:
        """How many batches were counted."""
        return sum([batches for batches, _ in self.runs])

    @property
    def rows(self) -> int:
        """The rows of all batches."""
        return sum([batches * rows for batches, rows in self.runs])

    def encode(self) -> bytes:
        """The value in the footer's metadata."""
        return ",".join([f"{n}*{rows}" if n > 1 else f"{rows}" for n, rows in self.runs]).encode()

    @classmethod
    def decode(cls, value: bytes, batches: int) -> RowCounts | None:
        """The counts of a footer that lists so many batches; None where the value cannot be those."""
        counts = cls()
        for run in value.split(b","):
            n, star, rows = run.rpartition(b"*")
            if not rows.isdigit() or len(run) > _LONGEST_RUN or (star and not n.isdigit()):
                return None
            counts.add(int(rows), int(n or 1))
        return counts if counts.batches == batches and all(n > 0 for n, _ in counts.runs) else None


_LONGEST_RUN = 2 * len(str(1 << 63)) + 1
