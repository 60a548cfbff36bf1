# SPDX-License-Identifier: Apache-2.0
"""File footers: location, contents, and the row counts in their metadata.

A file starts with :data:`MAGIC`, padded to :data:`HEAD` bytes, and ends with the footer, its size and the magic.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

import numpy as np

from shmarrow import memory
from shmarrow.buffer import U1, Bytes, NDArray
from shmarrow.errors import InvalidData, LimitExceeded, Limits
from shmarrow.ipc.flatbuffers.reader import Reader, TableView, TracingReader
from shmarrow.ipc.flatbuffers.tables import ENUMS, STRUCTS
from shmarrow.ipc.message.decode import LARGEST, Holes, TemplateCache, check_version, read_key_values
from shmarrow.ipc.schema.lazy import read_schema, schema_region
from shmarrow.memory import Source
from shmarrow.types import Metadata, Schema, generation

MAGIC = b"ARROW1"
HEAD = 8
SIZE = struct.Struct("<i")
END = struct.Struct(f"<i{len(MAGIC)}s")
_GUESS = 1 << 15
"""Size of the first read at the end of a file read by ranges; covers most footers and small files."""

Block = tuple[int, int, int]
BLOCK = struct.Struct("<qi4xq")


class Footer(NamedTuple):
    """What a footer says; immutable.

    Attributes
    ----------
    end : int
        The offset of the footer, where the bytes end that blocks may refer to.
    batches, dictionaries : bytes or memoryview
        The blocks of the record batches and of the dictionaries, each a :data:`BLOCK`; see :func:`as_blocks`.
    schema : Schema
        The schema.
    metadata : mapping of bytes to bytes
        The footer's own metadata.
    version : int
        The metadata version.
    """

    end: int
    batches: bytes | memoryview
    dictionaries: bytes | memoryview
    schema: Schema
    metadata: Metadata
    version: int


def as_blocks(data: bytes | memoryview) -> NDArray:
    """Blocks of a footer as an array; a view."""
    return np.ndarray(len(data) // BLOCK.size, STRUCTS["Block"], data)


_footer = partial(tuple.__new__, Footer)
_KNOWN = TemplateCache()
"""Schema, metadata and version of footers, by all of their bytes but the blocks."""
_VECTORS = "recordBatches", "dictionaries"


def read_footer(source: Source, limits: Limits) -> Footer:
    """Read the footer of a file. One that differs from another only in its blocks is recognised as a whole."""
    end, data = footer_bytes(source, limits)
    small, key = len(data) <= LARGEST, (limits._key, generation())
    if small:
        own = data.tobytes()
        recognized = _KNOWN.find(own, key)
        if recognized is not None:
            rest, parts = recognized
            return _footer((end, *(*parts, b"")[:2], *rest))
        data = np.frombuffer(own, U1)
    where = f"{source.name}: footer"
    root = (TracingReader if small else Reader)(data, where, limits).root("Footer")
    version, table = root["version"], root["schema"]
    if version > ENUMS["MetadataVersion"]["V5"]:  # old writers omitted the version, which then reads as V1
        check_version(version, source.name)
    if table is None:
        raise InvalidData(f"{source.name}: the footer has no schema")
    schema = read_schema(data, table.position, where, limits, table.lowest)
    vectors = [(start, start + count * BLOCK.size) for start, count in _vectors(root)]
    batches, dictionaries = [root.reader.view[start:stop] for start, stop in vectors]
    metadata = read_key_values(root["custom_metadata"]) or {}
    tracer, region = root.reader, schema_region(schema)
    first = len(data) - region  # all that the schema refers to follows from there on
    holes = [(start, f"{stop - start}s") for start, stop in vectors if start]
    below = max(vectors[0][1], vectors[1][1]) <= first
    if isinstance(tracer, TracingReader) and region and vectors[0][0] and below:
        reads = [span for span in tracer.reads if span[0] < first]
        _KNOWN.add(own, holes, [*reads, (first, len(data))], (schema, metadata, version), key)
    return Footer(end, batches, dictionaries, schema, metadata, version)


def footer_bytes(source: Source, limits: Limits) -> tuple[int, Bytes]:
    """The footer's offset and bytes."""
    name, size = source.name, source.size or 0
    least = HEAD + END.size
    first, data = 0, source.data
    if data is None:  # read from the end; the head is only checked if the same read covers it
        first = max(0, size - _GUESS)
        data = source.read(first, size)
    if not first and data[: len(MAGIC)].tobytes() != MAGIC:
        raise memory.unexpected(f"{name}: expected an Arrow file", data)
    if size < least:
        raise InvalidData(f"{name}: the file is truncated: an Arrow file has at least {least} bytes, found {size}")
    length, tail = END.unpack_from(data.data, len(data) - END.size)
    if tail != MAGIC:
        if first and (head := source.read(0, HEAD))[: len(MAGIC)].tobytes() != MAGIC:
            raise memory.unexpected(f"{name}: expected an Arrow file", head)
        raise InvalidData(
            f"{name}: the file is truncated, or its writer was not closed: expected {MAGIC!r} at its end, "
            f"[{size - 6}, {size}), found {tail!r}",
            hint="write the file again; `shmarrow validate` says how to read the batches that it has",
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
    return [(place, "q") for start, count in _vectors(footer) for place in range(start, start + BLOCK.size * count, 8)]


def _vectors(footer: TableView) -> list[tuple[int, int]]:
    """Where the blocks of the batches and those of the dictionaries start, and their numbers."""
    return [footer.vector_of(name, BLOCK.size) for name in _VECTORS]


ROW_COUNTS = b"shmarrow:row_counts"
"""The footer metadata key for the row count of each batch, written for files of several batches.

The value is ASCII, as many readers treat metadata as text: counts in batch order, separated by commas, with ``n*rows``
for ``n`` consecutive batches of ``rows`` rows. It is an untrusted hint, used only for the number of rows of the file,
and only if it covers as many batches as the footer lists."""


STATISTICS = b"shmarrow:statistics"
"""The footer metadata key for the statistics of each batch; :mod:`shmarrow.ipc.file.statistics` describes the value."""

BUNDLE_KEY = b"shmarrow:bundle"
"""The footer metadata key that marks a file as a bundle of tensors."""

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
