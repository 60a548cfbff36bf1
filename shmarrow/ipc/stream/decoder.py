"""The streaming format ("IPC Streaming Format"): a schema, dictionaries and record batches in any order, an end.

Rules kept here:

* :class:`StreamDecoder` is a push parser: it is fed bytes in any pieces and gives events; it does no I/O. Bytes that
  come in one piece are never copied;
* the reader over a file object asks for exactly the bytes that the next message needs;
* the reader over a mapping builds an index of the messages once and then gives any batch at random.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes, as_bytes
from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidData,
    Limits,
    ShmarrowError,
    Unsupported,
)
from shmarrow.ipc.batch.decode import dictionary_body, read_batch
from shmarrow.ipc.batch.dictionaries import Dictionary, add_dictionary
from shmarrow.ipc.message.decode import Message, parse_metadata
from shmarrow.ipc.message.framing import CONTINUATION, read_prefix
from shmarrow.ipc.schema.cache import read_schema
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.types import Schema

_PREFIX = struct.Struct("<ii").unpack_from


class SchemaEvent(NamedTuple):
    """The stream's schema came."""

    schema: Schema


class DictionaryEvent(NamedTuple):
    """A dictionary came; ``delta`` says that it adds to the one of the same id."""

    id: int
    delta: bool


class BatchEvent(NamedTuple):
    """A record batch came."""

    batch: RecordBatch


class EndEvent(NamedTuple):
    """The stream's end mark came."""


Event = SchemaEvent | DictionaryEvent | BatchEvent | EndEvent


class StreamState:
    """What a stream's messages have brought so far: the schema and the dictionaries."""

    __slots__ = ("_dictionaries", "_shared", "limits", "schema", "where")

    def __init__(self, where: str, limits: Limits) -> None:
        self.schema: Schema | None = None
        self._dictionaries: dict[int, Dictionary] = {}
        self._shared = False
        self.where = where
        self.limits = limits

    @property
    def dictionaries(self) -> dict[int, Dictionary]:
        """The dictionaries as they are now; later messages leave this set as it is."""
        self._shared = True
        return self._dictionaries

    def apply(self, message: Message, body: Bytes) -> Event:
        """Take one message in; gives what it brought."""
        if message.kind == "Schema":
            if self.schema is not None:
                raise InvalidData(f"{self.where}: a second schema in one stream")
            header = message.header
            self.schema = read_schema(header.reader.data, header.position, header.reader.where, self.limits)
            return SchemaEvent(self.schema)
        if message.kind not in ("RecordBatch", "DictionaryBatch"):
            raise Unsupported(
                f"{self.where}: a {message.kind} message in a stream of record batches; ipc.read_tensors finds it"
            )
        if self.schema is None:
            raise InvalidData(f"{self.where}: the stream begins with a {message.kind}, expected a Schema")
        if message.kind == "RecordBatch":
            return BatchEvent(read_batch(message, body, self.schema, self.dictionaries, self.where, self.limits))
        return self._take_dictionary(message, body)

    def _take_dictionary(self, message: Message, body: Bytes) -> DictionaryEvent:
        source = self.schema.source if self.schema is not None else None
        assert isinstance(source, LazySchema)
        nested = source.nested_dictionaries
        found = self._dictionaries if nested else {}
        content, id, delta = dictionary_body(message, body, self.schema, found, self.where, self.limits)
        if self._shared:
            self._dictionaries, self._shared = dict(self._dictionaries), False
        add_dictionary(self._dictionaries, id, content, delta, self.where, self.limits)
        if nested:
            self._dictionaries[id].make(source.dictionary_wires().get(id))
        return DictionaryEvent(id, delta)


class StreamDecoder:
    """A push parser for streams: feed it bytes in any pieces, and take the events.

    Parameters
    ----------
    limits : Limits, optional
        Bounds on what is accepted.
    where : str
        What the bytes are, for error messages.

    Examples
    --------
    >>> decoder = StreamDecoder()
    >>> decoder.wants
    8
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, where: str = "stream") -> None:
        self._state = StreamState(where, limits)
        self._limits = limits
        self._where = where
        self._pending: list[Bytes] = []
        self._held = 0
        self._message: Message | None = None
        self._in_metadata = False
        # Any first message has 8 bytes; after one with the older prefix, an end mark of 4 may be all that comes.
        self._prefix_size = 8
        self._wants = 8
        self._failure: ShmarrowError | None = None
        self.ended = False

    @property
    def schema(self) -> Schema | None:
        """The schema, once it came."""
        return self._state.schema

    @property
    def wants(self) -> int:
        """How many more bytes complete what is being read; more may be fed, and fewer."""
        return max(self._wants - self._held, 0) if not self.ended else 0

    def feed(self, data: Any) -> Iterator[Event]:
        """Take bytes in and give the events that they complete; the bytes must not change afterwards.

        Raises
        ------
        InvalidData
            If the bytes break the format; the decoder says the same of all that is fed to it afterwards.
        """
        if self._failure is not None:
            raise self._failure
        piece = as_bytes(data)
        while not self.ended:
            need = self._wants - self._held
            if need > len(piece):
                if len(piece):
                    self._pending.append(piece)
                    self._held += len(piece)
                return
            taken, piece = self._take(piece, need)
            try:
                event = self._advance(taken)
            except ShmarrowError as error:
                self._failure = error
                raise
            if event is not None:
                yield event

    def _take(self, piece: Bytes, need: int) -> tuple[Bytes, Bytes]:
        if not self._pending:
            return piece[:need], piece[need:]
        whole = np.concatenate([*self._pending, piece[:need]])
        whole.flags.writeable = False
        self._pending, self._held = [], 0
        return whole, piece[need:]

    def _advance(self, taken: Bytes) -> Event | None:
        """Take in what was wanted: a prefix, metadata, or a body."""
        if self._message is not None:
            message, self._message = self._message, None
            self._wants = self._prefix_size
            return self._state.apply(message, taken)
        if not self._in_metadata:
            return self._take_prefix(taken)
        self._in_metadata = False
        message = parse_metadata(taken, self._where, self._limits)
        if message.body_length:
            self._message, self._wants = message, message.body_length
            return None
        self._wants = self._prefix_size
        return self._state.apply(message, taken[:0])

    def _take_prefix(self, taken: Bytes) -> Event | None:
        if taken.tobytes() == CONTINUATION:
            self._pending, self._held, self._wants = [taken], 4, 8
            return None
        prefix = read_prefix(taken, 0, self._where, self._limits)
        if prefix is None:
            self.ended = True
            return EndEvent()
        size, metadata_size = prefix
        begun = taken[size:]  # the older prefix is 4 bytes long, the others that came are metadata
        if metadata_size < len(begun):
            raise InvalidData(f"{self._where}: {metadata_size} bytes of metadata")
        if len(begun):
            self._pending, self._held = [begun], len(begun)
        self._prefix_size = size
        self._in_metadata, self._wants = True, metadata_size
        return None

    def close(self) -> None:
        """Say that no more bytes come.

        Raises
        ------
        InvalidData
            If a message is cut, or no schema came.
        """
        if self.ended:
            return
        body, metadata = self._message is not None, self._in_metadata
        if not body and not metadata and (not self._held or b"".join(map(bytes, self._pending)) == bytes(4)):
            self.ended = True
            return
        what = "a message's body" if body else "a message's metadata" if metadata else "a prefix"
        raise InvalidData(
            f"{self._where}: the stream ends within {what}: {self.wants} of {self._wants} bytes are missing"
        )
