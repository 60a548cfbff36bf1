# SPDX-License-Identifier: Apache-2.0
"""Overview of an object without reading every message: kind, schema, positions of the batches.

Messages are scanned for, and nodes and buffers of batches read, as far as an overview needs them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.columns import RecordBatch
from shmarrow.errors import DEFAULT_LIMITS, IndexOutOfRange, InvalidData, Limits, ShmarrowError, as_limits
from shmarrow.ipc.batch.codecs import codec_name
from shmarrow.ipc.batch.decode import header_of, pairs
from shmarrow.ipc.contents import expect_arrow, is_file
from shmarrow.ipc.file.footer import (
    BUNDLE_KEY,
    HEAD,
    ROW_COUNTS,
    STATISTICS,
    as_blocks,
    decode_row_counts,
    footer_bytes,
    read_footer,
)
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.flatbuffers.tables import ENUMS, UNIONS
from shmarrow.ipc.message.decode import CONTINUATION, Message, message_at, not_a_message
from shmarrow.ipc.schema.lazy import FieldLayout, LazySchema, schema_in
from shmarrow.memory import Source, is_location, open_source
from shmarrow.scans.sources import find_one
from shmarrow.types import Metadata, Schema
from shmarrow.xray.checks import check_blocks
from shmarrow.xray.model import BufferRole, Finding, expanded, fields_below, roles_of, zeros

if TYPE_CHECKING:
    import numpy.typing as npt


MEMBERS = UNIONS["MessageHeader"]
SCHEMA, DICTIONARY, BATCH, TENSOR, SPARSE = range(1, 6)
"""Kinds of messages: the tags of the union MessageHeader."""
NO_MESSAGES = np.empty((0, 4), np.int64)


class Messages(NamedTuple):
    """The result of a scan for messages.

    Attributes
    ----------
    rows : int64 ndarray, shape (n, 4)
        Offset, metadata length with its prefix, body length and kind of each message.
    end : int
        Offset at which the next message would start.
    marker : int
        Size of the end-of-stream marker at ``end`` in bytes; 0 if absent.
    problem : str
        Why the scan stopped early; empty if it did not.
    cut : tuple of int or None
        The message at ``end``, as in ``rows``, if its metadata is complete but its body is not.
    """

    rows: Any
    end: int
    marker: int
    problem: str
    cut: tuple[int, int, int, int] | None = None


def scan(data: Bytes, start: int, stop: int, limits: Limits, most: int | None = None) -> Messages:
    """Scan for consecutive messages.

    Parameters
    ----------
    data : uint8 ndarray
        The object.
    start, stop : int
        Offset of the first message, and the end that no message may exceed.
    limits : Limits
        Bounds on what is accepted.
    most : int, optional
        Maximum number of messages.
    """
    found: list[tuple[int, int, int, int]] = []
    at, inside = start, data[:stop]
    while at < stop and (most is None or len(found) < most):
        try:
            located = message_at(inside, at, "", limits, parse=read_envelope, cut=True)
            if located is None:
                marker = 8 if inside[at : at + 4].tobytes() == CONTINUATION else 4
                return Messages(_rows(found), at, marker, "")
            length = located.body - at
            kind, body = located.message
            if body > stop - at - length:
                text = f"truncated message: its body needs {body} bytes, only {stop - at - length} remain"
                return Messages(_rows(found), at, 0, text, (at, length, body, kind))
        except ShmarrowError as error:
            return Messages(_rows(found), at, 0, str(error).removeprefix(": ") or type(error).__name__)
        found.append((at, length, body, kind))
        at += length + body
    return Messages(_rows(found), at, 0, "")


def _rows(found: list[tuple[int, int, int, int]]) -> Any:
    return np.array(found, np.int64).reshape(-1, 4)


class Envelope(NamedTuple):
    """The kind of a message, as a number, and the length of its body."""

    kind: int
    body_length: int


def read_envelope(metadata: Bytes, where: str = "", limits: Limits = DEFAULT_LIMITS) -> Envelope:
    """Read only the kind and the body length of a message, which is all that a scan needs."""
    table = Reader(metadata, "the metadata").root("Message")
    kind: int = table["header_type"]
    if not 0 < kind <= len(MEMBERS):
        raise InvalidData(f"a message with a header of type {kind}, expected 1 to {len(MEMBERS)}")
    body = table["bodyLength"]
    if body < 0:
        raise InvalidData(f"a body of {body} bytes")
    return Envelope(kind, body)


class Unparsed(NamedTuple):
    """Metadata of a message, not parsed."""

    metadata: Bytes
    body_length: int = 0


def unparsed(metadata: Bytes, where: str, limits: Limits) -> Unparsed:
    """Return metadata without parsing it, so that malformed metadata can be explained, too."""
    return Unparsed(metadata)


class Batch(NamedTuple):
    """The decoded metadata of a record batch or dictionary message.

    Attributes
    ----------
    message : Message
        The message.
    rows : int
        The number of rows.
    nodes : int64 ndarray, shape (n, 2)
        Length and null count of each field node.
    buffers : int64 ndarray, shape (m, 2)
        Offset in the body, and length, of each buffer.
    variadic : tuple of int
        Number of data buffers of each view column.
    codec : int or None
        The compression codec; None if not compressed.
    body : int
        Offset of the body in the object.
    """

    message: Message
    rows: int
    nodes: Any
    buffers: Any
    variadic: tuple[int, ...]
    codec: int | None
    body: int


def read_batch(data: Bytes, offset: int, length: int, where: str, limits: Limits) -> Batch:
    """Read the metadata of a record batch or dictionary message at ``offset``.

    Raises
    ------
    InvalidData
        If it is a message of another kind, or malformed.
    """
    if offset < 0 or length < 8 or offset + length > len(data):
        raise InvalidData(f"{where}: its block is [{offset}, {offset + length}), of {len(data)} bytes")
    found = message_at(data[: offset + length], offset, where, limits, cut=True)
    if found is None:
        raise InvalidData(f"{where}: its block refers to an end-of-stream marker at {offset}")
    return batch_of(found.message, offset + length, where)


def batch_of(message: Message, body: int, where: str) -> Batch:
    """Decode a record batch or dictionary message whose body starts at ``body``."""
    table = message.header["data"] if message.kind == "DictionaryBatch" else message.header
    if table is None or message.kind not in ("DictionaryBatch", "RecordBatch"):
        raise InvalidData(f"{where}: expected a RecordBatch message, found {message.kind}")
    header = header_of(message, table, where)
    return Batch(
        message,
        header.length,
        pairs(header.nodes),
        pairs(header.buffers),
        tuple(header.variadic_counts(where)),
        None if header.codec is None else header.codec[0],
        body,
    )


_VERSIONS = {number: name for name, number in ENUMS["MetadataVersion"].items()}
_FIRST = 512
"""Maximum zeros between the magic string and the first message, in bytes."""
_KINDS = {SCHEMA: "stream", TENSOR: "tensor", SPARSE: "sparse tensor"}


def _blocks(data: bytes | memoryview) -> npt.NDArray[np.int64]:
    """Blocks of a footer as rows of offset, metadata length and body length."""
    found = as_blocks(data)
    return np.stack([found[name].astype(np.int64) for name in ("offset", "metaDataLength", "bodyLength")], axis=1)


class Overview:
    """The structure of an Arrow object, from its footer or message prefixes; returned by :func:`overview`.

    Attributes
    ----------
    name : str
        The location from which it was opened.
    kind : str
        ``"file"``, ``"stream"``, ``"tensor"``, ``"sparse tensor"`` or ``"bundle"``.
    size : int
        Size of the object in bytes.
    source : Source
        The source of its bytes.
    data : uint8 ndarray of shape (size,)
        Its bytes, read-only: a view of the mapping.
    limits : Limits
        Bounds on what is accepted.
    version : str or None
        The metadata version, such as ``"V5"``; None if no message is readable.
    endianness : str
        ``"little"`` or ``"big"``.
    schema : Schema or None
        None for tensors, and if it cannot be read.
    metadata : mapping of bytes to bytes or None
        The custom metadata of the footer.
    blocks : int64 ndarray of shape (n, 3)
        Offset, metadata length with prefix, and body length of each record batch, in the order of the footer or stream.
    dictionaries : int64 ndarray of shape (m, 3)
        The same for each dictionary batch.
    messages : int64 ndarray of shape (k, 4)
        Offset, metadata length, body length and header type (as numbered by the union MessageHeader) of each message
        of a stream or tensor. For files, only the schema message, or, if the footer is missing, all messages before the
        cut.
    footer : tuple of int or None
        Start and end of a file's footer; None if absent.
    compression : str or None
        The codec of the first record batch, as in :class:`shmarrow.ipc.IpcWriteOptions`.
    findings : tuple of Finding
        Findings that do not require reading every message.

    Notes
    -----
    Thread safety: immutable; threads may share it. It keeps the object mapped.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        data = source.data
        assert data is not None
        self.name = source.name
        self.data: Bytes = data
        self.size = len(data)
        self.limits = limits
        self.version: str | None = None
        self.endianness = "little"
        self.schema: Schema | None = None
        self.metadata: Metadata | None = None
        self.blocks: npt.NDArray[np.int64] = np.empty((0, 3), np.int64)
        self.dictionaries: npt.NDArray[np.int64] = np.empty((0, 3), np.int64)
        self.messages: npt.NDArray[np.int64] = NO_MESSAGES
        self.footer: tuple[int, int] | None = None
        self.compression: str | None = None
        self.source = source
        self._version = 4
        self._cut: int | None = None
        """Offset of the message with a truncated body, if any."""
        findings: list[Finding] = []
        if is_file(data):
            self.kind = "file"
            self._open_file(findings)
        else:
            self.kind = "stream"
            self._open_stream(findings)
        self._open_first()
        self.findings = tuple(findings)

    # --- opening ---

    def _open_file(self, findings: list[Finding]) -> None:
        limits, size = self.limits, self.size
        footer = None
        try:
            start, data = footer_bytes(self.source, limits)
            self.footer = start, start + len(data)
            footer = read_footer(self.source, limits)
            self.metadata = footer.metadata or None
            self.blocks, self.dictionaries = _blocks(footer.batches), _blocks(footer.dictionaries)
            self._take_schema(footer.schema)
        except ShmarrowError as error:
            where = self.footer or (max(size - 10, 0), size)
            message = error.problem.removeprefix(f"{self.name}: ")
            remedy = (
                f"write the file again; `for batch in shmarrow.ipc.open_stream(open(PATH, 'rb').read()[{HEAD}:])` "
                "gives the batches before the cut, then an error"
            )
            findings.append(Finding(*where, "error", message, remedy))
        end = size if self.footer is None else self.footer[0]
        first = HEAD + (zeros(self.data, HEAD, min(end, HEAD + _FIRST)) & ~7)  # arrow-rs pads the magic to 64 bytes
        self.messages = scan(self.data, first, end, limits, most=1).rows
        if BUNDLE_KEY in (self.metadata or ()):
            self.kind = "bundle"
        if footer is None:
            self._list_messages(first, end, findings)
        self._read_schema(findings)
        findings += check_blocks(self.dictionaries, self.blocks, end)

    def _open_stream(self, findings: list[Finding]) -> None:
        expect_arrow(self.data, self.name)
        self._list_messages(0, self.size, findings)
        if len(self.messages):
            self.kind = _KINDS.get(int(self.messages[0, 3]), "stream")
        elif self.data[:4].tobytes() not in (CONTINUATION, bytes(4)):
            raise not_a_message(self.data, 0, self.name)
        self._read_schema(findings)

    def _list_messages(self, start: int, end: int, findings: list[Finding]) -> None:
        """Scan for all messages by their prefixes."""
        found = scan(self.data, start, end, self.limits)
        rows = self.messages = found.rows
        self.blocks, self.dictionaries = rows[rows[:, 3] == BATCH, :3], rows[rows[:, 3] == DICTIONARY, :3]
        if found.problem:
            self._cut = found.end if found.cut else None
            opened = "PATH" if start == 0 else f"open(PATH, 'rb').read()[{start}:]"
            remedy = (
                f"write the object again; `for batch in shmarrow.ipc.open_stream({opened})` gives the batches "
                "before it, then an error"
            )
            what = found.problem if found.cut else f"no message: {found.problem}"
            findings.append(Finding(found.end, end, "error", what, remedy))

    def _read_schema(self, findings: list[Finding]) -> None:
        """Read the schema from the first message if there is no footer."""
        rows = self.messages
        if self.schema is not None or not len(rows) or rows[0, 3] != SCHEMA:
            return
        start, length = rows[0, :2].tolist()
        try:
            where = f"{self.name}: schema message"
            self._take_schema(schema_in(self.data[start : start + length], where, self.limits))
        except ShmarrowError as error:
            problem = str(error).removeprefix(f"{self.name}: ")
            findings.append(Finding(start, start + length, "error", problem, "write the object again"))

    def _take_schema(self, schema: Schema) -> None:
        source = LazySchema.of(schema)
        self.endianness = "big" if source.big_endian else "little"
        source.layouts()  # every field is of a known type
        self.schema = schema

    def _open_first(self) -> None:
        """Read the version from the first readable message, and the codec from the first record batch."""
        for offset, length, *_ in [*self.messages[:1].tolist(), *self.blocks[:1].tolist()]:
            try:
                if not 0 <= offset <= self.size - length:
                    continue
                found = message_at(self.data, offset, "", self.limits, cut=True)
                if found is not None:
                    message = found.message
                    self._version = message.version
                    self.version = self.version or _VERSIONS.get(message.version)
                    codec = message.header["compression"] if message.kind == "RecordBatch" else None
                    if codec is not None:
                        self.compression = codec_name(codec["codec"])
            except ShmarrowError:
                continue  # the walk reports the defect

    # --- columns ---

    @property
    def truncated(self) -> bool:
        """Whether its end is missing."""
        return self._cut is not None or (self.kind == "file" and self.footer is None)

    @property
    def layouts(self) -> list[FieldLayout]:
        """Storage of each column; empty without a schema."""
        return [] if self.schema is None else LazySchema.of(self.schema).layouts()

    @cached_property
    def buffer_roles(self) -> tuple[BufferRole, ...]:
        """One role per buffer of a batch, in order; a single one for all data buffers of a view."""
        return tuple(roles_of(self.layouts, self._version == ENUMS["MetadataVersion"]["V4"]))

    @cached_property
    def num_nodes(self) -> int:
        """The number of field nodes of a batch."""
        return len(list(fields_below(self.layouts)))

    # --- batches ---

    def _range(self, first: int, last: int | None) -> tuple[int, int]:
        count = len(self.blocks)
        stop = count if last is None else last
        if not 0 <= first <= stop <= count:
            raise IndexOutOfRange(f"{self.name}: expected batches within 0 to {count}, found [{first}, {stop})")
        return first, stop

    def batch(self, index: int) -> Batch:
        """Decode the metadata of one record batch.

        Raises
        ------
        InvalidData
            If its message is malformed.
        """
        first, _ = self._range(index, index + 1)
        offset, length, _ = self.blocks[first].tolist()
        return read_batch(self.data, offset, length, f"{self.name}: record batch {first}", self.limits)

    def roles_of(self, batch: Batch) -> tuple[BufferRole, ...]:
        """Return the buffers of one batch, with one role for each data buffer of a view."""
        return tuple(expanded(self.buffer_roles, batch.variadic))

    def rows(self, first: int = 0, last: int | None = None) -> npt.NDArray[np.int64]:
        """Return the number of rows of batches [first, last), from the footer (if by shmarrow) or the messages.

        Returns
        -------
        int64 ndarray of shape (last - first,)
        """
        first, last = self._range(first, last)
        hint = (self.metadata or {}).get(ROW_COUNTS)
        counts = None if hint is None else decode_row_counts(hint, len(self.blocks))
        if counts is not None:
            numbers = np.array(counts, np.int64).reshape(-1, 2)
            return np.repeat(numbers[:, 1], numbers[:, 0])[first:last]
        return np.array([self.batch(number).rows for number in range(first, last)], np.int64)

    @property
    def statistics(self) -> RecordBatch | None:
        """The statistics of the record batches, as :attr:`shmarrow.ipc.RecordBatchFileReader.statistics`.

        Raises
        ------
        InvalidData
            If they are invalid.
        """
        if STATISTICS not in (self.metadata or ()):
            return None
        return RecordBatchFileReader(self.source, self.limits).statistics

    def __repr__(self) -> str:
        return f"<Overview of the {self.kind} {self.name!r}, {self.size} bytes, {len(self.blocks)} batches>"


def overview(target: Any, *, limits: Limits = DEFAULT_LIMITS, accept_users: bool = False) -> Overview:
    """Return the structure of an object, reading only a file's footer and first messages, or a stream's prefixes.

    Parameters
    ----------
    target : path, ``shm:NAME``, ``STORE/NAME``, Segment or bytes-like
        The object. Paths and objects are mapped, without copying, pinning or counting them as used.
    limits : Limits, optional
        Bounds on what is accepted.
    accept_users : bool
        Accept a store that is owned or writable by other users.

    Raises
    ------
    ObjectNotFound
        If no such file or object exists.
    InvalidArgument
        If there are several of this name.
    InvalidData
        If it is not Arrow data. Defects of Arrow data are listed in ``findings``.
    """
    if isinstance(target, Overview):
        return target
    source = find_one(target, accept_users).map(attach=False) if is_location(target) else open_source(target)
    return Overview(source, as_limits(limits))
