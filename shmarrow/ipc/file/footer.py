"""File footers: location, checks, and the row counts in their metadata.

A file starts with :data:`MAGIC`, padded to :data:`HEAD` bytes, and ends with the footer, its size and the magic.
"""

from __future__ import annotations

import struct

from shmarrow import late
from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, LimitExceeded, Limits, ShmarrowError
from shmarrow.ipc.flatbuffers.reader import TableView
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.decode import message_at
from shmarrow.ipc.message.framing import CONTINUATION
from shmarrow.ipc.message.template import Holes
from shmarrow.sources.base import Source

MAGIC = b"ARROW1"
HEAD = 8
SIZE = struct.Struct("<i")
END = struct.Struct(f"<i{len(MAGIC)}s")
_GUESS = 1 << 15
"""Size of the first read at the end of a file read by ranges; covers most footers and small files."""

Block = tuple[int, int, int]
_BLOCK = STRUCTS["Block"].itemsize


def read_footer(source: Source, limits: Limits) -> tuple[int, Bytes]:
    """The footer's offset and bytes."""
    name, size = source.name, source.size or 0
    least = HEAD + END.size
    first, data = 0, source.data
    if data is None:  # read from the end; the head is only checked if the same read covers it
        first = max(0, size - _GUESS)
        data = source.read(first, size)
    if not first and data[: len(MAGIC)].tobytes() != MAGIC:
        raise _no_file(name, data, limits)
    if size < least:
        raise InvalidData(f"{name}: the file is truncated: an Arrow file has at least {least} bytes, found {size}")
    length, tail = END.unpack(data[-END.size :].data)
    if tail != MAGIC:
        if first and (head := source.read(0, HEAD))[: len(MAGIC)].tobytes() != MAGIC:
            raise _no_file(name, head, limits)
        raise InvalidData(
            f"{name}: the file is truncated, or its writer was not closed: expected {MAGIC!r} at its end, "
            f"[{size - 6}, {size}), found {tail!r}"
        )
    start = size - END.size - length
    if length <= 0 or start < HEAD:
        raise InvalidData(
            f"{name}: the footer declares {length} bytes, but only {size - END.size - HEAD} are available"
        )
    if length > limits.metadata_bytes:
        raise LimitExceeded(
            f"{name}: a footer of {length} bytes, more than Limits.metadata_bytes = {limits.metadata_bytes}"
        )
    if start < first:
        return start, source.read(start, start + length)
    return start, data[start - first : start - first + length]


def footer_holes(footer: TableView) -> Holes:
    """The numbers of a footer's blocks as the holes of a template: those of the batches, then those of dictionaries."""
    holes = []
    for name in ("recordBatches", "dictionaries"):
        slot = footer.offset_of(name)
        start, count = footer.reader.vector_at(slot, _BLOCK, footer.name, name) if slot else (0, 0)
        holes += [(place, "q") for place in range(start, start + _BLOCK * count, 8)]
    return holes


def _no_file(name: str, data: Bytes, limits: Limits) -> InvalidData:
    """The error for bytes that are not an Arrow file; names their format if recognised."""
    head = data[: late.sources.formats.HEAD].tobytes()
    if not head:
        return InvalidData(f"{name}: expected an Arrow file, found an empty file")
    found, hint = _message(data, limits) if head[:4] == CONTINUATION else late.sources.formats.recognized(head)
    if found:
        return InvalidData(f"{name}: expected an Arrow file, found {found}", hint=hint)
    return InvalidData(f"{name}: expected an Arrow file, which starts with {MAGIC!r}, found {head[: len(MAGIC)]!r}")


def _message(data: Bytes, limits: Limits) -> tuple[str, str]:
    """Describe what a message at the start of a file belongs to; and the hint that says how to read it."""
    try:
        found = message_at(data, 0, "", limits)
    except ShmarrowError:
        found = None
    kind = "Schema" if found is None else found.message.kind
    if kind in ("Tensor", "SparseTensor"):
        return f"a {kind} message", "ipc.read_tensor reads it"
    return "an Arrow stream", "ipc.open_stream reads it"


ROW_COUNTS = b"shmarrow:row_counts"
"""The footer metadata key for the row count of each batch, written for files of several batches.

The value is ASCII, as many readers treat metadata as text: counts in batch order, separated by commas, with ``n*rows``
for ``n`` consecutive batches of ``rows`` rows. It is an untrusted hint, used only for the number of rows of the file,
and only if it covers as many batches as the footer lists."""


RowCounts = list[tuple[int, int]]
"""Run-length encoded row counts: (consecutive batches, rows of each), in batch order."""
_LONGEST_RUN = 2 * len(str(1 << 63)) + 1


def add_rows(counts: RowCounts, rows: int) -> None:
    """Count one more batch."""
    counts.append((counts.pop()[0] + 1 if counts and counts[-1][1] == rows else 1, rows))


def encode_row_counts(counts: RowCounts) -> bytes:
    """Encode row counts for the footer's metadata."""
    return ",".join([f"{n}*{rows}" if n > 1 else f"{rows}" for n, rows in counts]).encode()


def decode_row_counts(value: bytes, batches: int) -> RowCounts | None:
    """Decode the row counts of ``batches`` batches; None if the value is invalid."""
    counts = []
    for run in value.split(b","):
        n, star, rows = run.rpartition(b"*")
        if not rows.isdigit() or len(run) > _LONGEST_RUN or (star and not n.isdigit()):
            return None
        counts.append((int(n or 1), int(rows)))
    return counts if sum([n for n, _ in counts]) == batches else None
