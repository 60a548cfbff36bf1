# SPDX-License-Identifier: Apache-2.0
"""Framing and reading of messages ("Encapsulated message format").

A message is a prefix, metadata as a FlatBuffer, padding, and a body. :func:`message_at` finds the one at an offset and
checks that all of it is there; every reader of complete messages uses it: streams and files in memory, files read by
ranges, tensors, bundles, the explanation of a file's bytes. :class:`~shmarrow.ipc.stream.decoder.StreamDecoder` and
the sequential reader of tensors receive a message in pieces, and so check one piece after another.

Invariants:

* both framings are read and written: the continuation marker ``FF FF FF FF`` and the metadata size, and the legacy one
  without marker;
* a stream ends at a size of zero, or at the end of the input before a prefix;
* the sizes of a message and of its prefix with metadata are multiples of 64 bytes;
* metadata versions V4 and V5 are read, all others rejected.

Pure functions; ``encode`` is the inverse.

Templates: FlatBuffers that are constant except for a few numbers.

The messages of a writer's batches, the tensors of a model and the footers of a store's objects mostly differ in
lengths, offsets and sizes only. A :class:`Template` is filled in for writing, which saves building the FlatBuffer.
:class:`TemplateCache` recognises one for reading, which saves parsing it: if all constant bytes are those of a
FlatBuffer that was checked before, only the numbers have to be checked again.

What was read of a FlatBuffer follows from its constants only if no number is part of anything else: hostile bytes may
use a vector of numbers as a table, too. So the first reading is traced, and nothing is kept where reads overlap.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from operator import gt, itemgetter
from typing import Any, NamedTuple

from shmarrow import memory
from shmarrow.buffer import Bytes, padded
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, LimitExceeded, Limits, Unsupported
from shmarrow.ipc.flatbuffers.reader import Reader, TableVector, TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.types import FrozenMetadata, Metadata

_MOST, _MOST_LAYOUTS = 256, 8
LARGEST = 1 << 13
"""The largest FlatBuffers that are recognised; comparing larger ones costs more than reading what is asked for."""


Holes = Sequence[tuple[int, str]]
"""Positions in a FlatBuffer, and what is there as a format of :mod:`struct`: ``"q"``, or ``"24s"`` for 24 bytes."""


class Template:
    """A FlatBuffer with holes, in any order.

    Attributes
    ----------
    layout : struct.Struct
        Splits the bytes into constants and holes, in turn.
    constants : tuple of bytes
        The bytes between the holes.
    order : list of int
        The holes by position.

    Notes
    -----
    Thread safety: immutable.
    """

    __slots__ = ("_values", "constants", "layout", "order")

    def __init__(self, data: bytes, holes: Holes) -> None:
        self.order = sorted(range(len(holes)), key=lambda i: holes[i][0])
        formats, end = ["<"], 0
        for place, each in [holes[i] for i in self.order]:
            formats += [f"{place - end}s", each]
            end = place + struct.calcsize("<" + each)
        self.layout = struct.Struct("".join([*formats, f"{len(data) - end}s"]))
        self._values = list(self.layout.unpack(data))
        self.constants = tuple(self._values[::2])

    def filled(self, values: Sequence[Any]) -> bytes:
        """The FlatBuffer with these values in its holes."""
        parts = self._values.copy()
        parts[1::2] = map(values.__getitem__, self.order)
        return self.layout.pack(*parts)


class TemplateCache:
    """A cache of what was decoded from small FlatBuffers, by their constant bytes; bounded, and cleared when full.

    Notes
    -----
    Thread safety: may be shared. What is kept must be immutable and follow from the constants alone, so races are
    harmless.
    """

    def __init__(self) -> None:
        self._layouts: dict[int, tuple[tuple[struct.Struct, dict[Any, tuple[Any, Any]]], ...]] = {}
        self._count = 0

    def add(
        self, data: bytes, holes: Holes, reads: Iterable[tuple[int, int]], value: Any, key: Hashable = None
    ) -> None:
        """Keep what was found of a FlatBuffer, under its constants and a key.

        Not if it is large, or if what was read of it overlaps.

        Parameters
        ----------
        data : bytes
            The FlatBuffer.
        holes : sequence of (int, str)
            Numbers, or vectors of them, which were read as such.
        reads : iterable of (int, int)
            Start and end of all that was read, recorded by :class:`~shmarrow.ipc.flatbuffers.reader.TracingReader`.
        """
        spans = sorted([span for span in reads if span[0] < span[1]])
        starts, ends = zip(*spans, strict=True)
        overlap = any(map(gt, ends, starts[1:]))
        if overlap or len(data) > LARGEST or len({place for place, _ in holes}) < len(holes):
            return
        template = Template(data, holes)
        self._count += 1
        if self._count > _MOST:
            self._layouts.clear()
            self._count = 1
        places = [2 * template.order.index(hole) + 1 for hole in range(len(holes))]
        take = itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))
        layouts = self._layouts.get(len(data), ())
        entries = next((entries for layout, entries in layouts if layout.format == template.layout.format), None)
        if entries is None:
            entries = {}
            self._layouts[len(data)] = (*layouts[1 - _MOST_LAYOUTS :], (template.layout, entries))
        entries[key, template.constants] = take, value

    def find(self, data: bytes, key: Hashable = None) -> tuple[Any, tuple[Any, ...]] | None:
        """Return what was decoded from a FlatBuffer with these constants, and the values in the holes of this one."""
        for layout, entries in self._layouts.get(len(data), ()):
            parts = layout.unpack(data)
            entry = entries.get((key, parts[::2]))  # of another layout, equal constants would be other bytes
            if entry is not None:
                take, value = entry
                return value, take(parts)
        return None


CONTINUATION = b"\xff\xff\xff\xff"
_SIZE = struct.Struct("<i")


def not_a_message(data: Any, offset: int, where: str) -> InvalidData:
    """The error for bytes that are not a message; names their format if recognised."""
    return memory.unexpected(f"{where}: expected an Arrow message at {offset}", data[offset:])


def _is_plausible(data: Any, offset: int, size: int) -> bool:
    """Whether bytes may be a prefix of the legacy framing.

    Text and most magic numbers would mean more than 16 MiB of metadata, so smaller sizes are accepted, except odd ones,
    and 64-bit sizes, which start safetensors files.
    """
    from shmarrow.memory import formats

    if 0 <= size < 1 << 24 and not size & 1:
        return bytes(data[offset + 4 : offset + 8]) != bytes(4)
    return size >= 0 and not formats.recognized(bytes(data[offset : offset + formats.HEAD])).name


def read_prefix(data: Any, offset: int, where: str, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int] | None:
    """Read the prefix at ``offset``: its size and the metadata's; None at the end of the stream.

    Parameters
    ----------
    data : uint8 ndarray or bytes
        The input; must have 8 bytes at ``offset``, unless it ends before.
    """
    left = len(data) - offset
    if left <= 0:
        return None
    if left < 4:
        raise InvalidData(f"{where}: a message prefix needs 4 bytes at {offset}, found {left}")
    size = _SIZE.unpack_from(data, offset)[0]
    prefix = 4
    if size == -1:
        if left < 8:
            raise InvalidData(f"{where}: a message prefix needs 8 bytes at {offset}, found {left}")
        size = _SIZE.unpack_from(data, offset + 4)[0]
        prefix = 8
    if size == 0:
        return None
    if prefix == 4 and not _is_plausible(data, offset, size):
        raise not_a_message(data, offset, where)
    if size < 0:
        raise InvalidData(f"{where}: the message at {offset} declares {size} bytes of metadata")
    if size > limits.metadata_bytes:
        raise LimitExceeded(
            f"{where}: the message at {offset} has {size} bytes of metadata, "
            f"more than Limits.metadata_bytes = {limits.metadata_bytes}"
        )
    return prefix, size


def frame(flatbuffer: bytes | bytearray, legacy: bool, start: int = 0) -> bytes:
    """Add prefix and padding to a FlatBuffer at offset ``start``, such that its end is aligned."""
    prefix = 4 if legacy else 8
    total = padded(start + prefix + len(flatbuffer)) - start
    size = _SIZE.pack(total - prefix)
    head = size if legacy else CONTINUATION + size
    return b"".join([head, flatbuffer, bytes(total - prefix - len(flatbuffer))])


def end_of_stream(legacy: bool) -> bytes:
    """The end-of-stream marker."""
    return bytes(4) if legacy else CONTINUATION + bytes(4)


# --- messages -----------------------------------------------------------------------------------------------------

_VERSIONS = {number: name for name, number in ENUMS["MetadataVersion"].items()}
READ_VERSIONS = ("V4", "V5")


class Message(NamedTuple):
    """A message with parsed metadata.

    Attributes
    ----------
    kind : str
        ``Schema``, ``RecordBatch``, ``DictionaryBatch``, ``Tensor`` or ``SparseTensor``.
    header : TableView
        The table of that kind.
    version : int
        The metadata version, 3 for V4 and 4 for V5.
    body_length : int
        Size of the body in bytes.
    table : TableView
        The Message table.
    metadata : uint8 ndarray
        The raw metadata.
    """

    kind: str
    header: TableView
    version: int
    body_length: int
    table: TableView
    metadata: Bytes

    @property
    def custom_metadata(self) -> Metadata | None:
        """The message's custom metadata."""
        return read_key_values(self.table["custom_metadata"])


def parse_metadata(
    metadata: Bytes, where: str, limits: Limits = DEFAULT_LIMITS, reader: type[Reader] = Reader
) -> Message:
    """Parse the metadata of a message, with a reader of some class."""
    table = reader(metadata, where, limits).root("Message")
    version = table["version"]
    check_version(version, where)
    kind, header = table["header"]
    if header is None:
        raise InvalidData(f"{where}: the message header has an unknown kind, found {kind}")
    body_length = table["bodyLength"]
    if body_length < 0:
        raise InvalidData(f"{where}: the message declares a body of {body_length} bytes")
    return Message(kind, header, version, body_length, table, metadata)


def check_version(version: int, where: str) -> None:
    """Reject metadata versions other than V4 and V5."""
    name = _VERSIONS.get(version, f"number {version}, later than V5" if version > 4 else f"number {version}")
    if name not in READ_VERSIONS:
        raise Unsupported(f"{where}: metadata version {name}; versions V4 and V5 are read")


class Located(NamedTuple):
    """A message within its bounds.

    Attributes
    ----------
    message : Message
        The metadata, as ``parse`` returned them.
    metadata : int
        Offset of the metadata, a FlatBuffer that is followed by padding up to the body.
    body, end : int
        Offset of the body, and where it ends.
    """

    message: Any
    metadata: int
    body: int
    end: int


_located = partial(tuple.__new__, Located)


def message_at(
    data: Any,
    offset: int,
    where: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    block: tuple[int, int] | None = None,
    parse: Callable[[Bytes, str, Limits], Any] = parse_metadata,
    cut: bool = False,
) -> Located | None:
    """Locate and parse the message at ``offset``; None at the end of the stream.

    All reading of messages that are complete in memory, or within reach of a file's footer, goes through this check of
    prefix, metadata and body against the bytes that there are.

    Parameters
    ----------
    data : uint8 ndarray or SourceRange
        The bytes that messages may take. Ranges, which are only read when they are sliced, need ``block``.
    offset : int
        Where the message begins.
    where : str
        Describes the message in errors.
    limits : Limits
        Bounds on what is accepted.
    block : tuple of int, optional
        What a footer said about the message: the size of its prefix and metadata, and of its body.
    parse : callable
        Parses the metadata; the result has a ``body_length``.
    cut : bool
        Whether to accept a message whose body is cut off by the end of the data.

    Raises
    ------
    InvalidData
        If the message is truncated or invalid, or is not what its block says.
    LimitExceeded
        If its metadata exceed the limits.
    """
    size = len(data)
    head, at = data, offset
    if block is not None:
        body, end = offset + block[0], offset + block[0] + block[1]
        if offset < 0 or block[0] < 8 or block[1] < 0 or end > size:
            raise InvalidData(
                f"{where} needs [{offset}, {end}), {block[0]} bytes of it metadata, but the footer starts at {size}"
            )
        head, at = data[offset:body], 0
    prefix = read_prefix(head, at, where, limits)
    if prefix is None:
        if block is None:
            return None
        raise InvalidData(f"{where}: its block refers to an end-of-stream marker at {offset}")
    start, length = prefix[0] + at, sum(prefix)
    if block is not None and length != block[0]:
        raise InvalidData(f"{where}: the footer declares {block[0]} bytes of metadata, the message {length}")
    if at + length > size:
        raise InvalidData(
            f"{where}: the metadata at {offset} needs [{start}, {at + length}) but there are {size} bytes"
        )
    message = parse(head[start : at + length], where, limits)
    body, needed = offset + length, message.body_length
    if block is not None and needed != block[1]:
        raise InvalidData(f"{where}: the footer declares {block[1]} bytes of body, the message {needed}")
    if needed > size - body and not cut:
        raise InvalidData(
            f"{where}: the body of the message at {offset} needs [{body}, {body + needed}) but there are {size} bytes"
        )
    return _located((message, offset + prefix[0], body, body + needed))


def read_key_values(vector: TableVector, reader: Reader | None = None) -> Metadata | None:
    """Read metadata from a vector of KeyValue tables; None if empty.

    Parameters
    ----------
    vector : TableVector
        The vector.
    reader : Reader, optional
        The operation this is part of; a new one by default.
    """
    if not len(vector):
        return None
    tables = vector.within(reader or vector.reader.operation())
    return FrozenMetadata({item["key"] or b"": item["value"] or b"" for item in tables})
