"""The streaming format ("IPC Streaming Format"): a schema, dictionaries and record batches in any order, an end.

Rules kept here:

* :class:`StreamDecoder` is a push parser: it is fed bytes in any pieces and gives events; it does no I/O. Bytes that
  come in one piece are never copied;
* the reader over a file object asks for exactly the bytes that the next message needs;
* the reader over a mapping builds an index of the messages once and then gives any batch at random.
"""

from __future__ import annotations

import _thread
import struct
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes, as_bytes
from shmarrow.errors import (
    DEFAULT_LIMITS,
    Closed,
    IndexOutOfRange,
    InvalidData,
    Limits,
    ShmarrowError,
    Unsupported,
)
from shmarrow.ipc.batch import dictionary_body, plain_batch, read_batch
from shmarrow.ipc.dictionary import Dictionary, add_dictionary
from shmarrow.ipc.message import CONTINUATION, Message, parse_metadata, read_message, read_prefix
from shmarrow.ipc.projection import Projection
from shmarrow.ipc.quick import Header, batch_header
from shmarrow.ipc.schema_cache import read_schema
from shmarrow.ipc.source import Source
from shmarrow.ipc.wire_schema import WireSchema
from shmarrow.tables import Table
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
        assert isinstance(source, WireSchema)
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


class RecordBatchStreamReader:
    """Reads a stream from a file object, a pipe or a socket, batch after batch."""

    def __init__(self, source: Source, limits: Limits, included_fields: Iterable[int | str] | None = None) -> None:
        self._source = source
        self._decoder = StreamDecoder(limits, source.name)
        self._closed = False
        self._done = False
        first = self._next()
        if not isinstance(first, SchemaEvent):
            raise InvalidData(f"{source.name}: the stream ends before its schema")
        self._set_schema(first.schema, included_fields)

    def _set_schema(self, full: Schema, included: Iterable[int | str] | None) -> None:
        self._full_schema = full
        self._included = None if included is None else Projection(full, included)
        self.schema = full if self._included is None else self._included.schema

    def _next(self) -> Event | None:
        """The next event, None at the end of the stream."""
        if self._closed:
            raise Closed(f"the reader of {self._source.name} is closed")
        while not self._done:
            wanted = self._decoder.wants
            data = self._read(wanted)
            for event in self._decoder.feed(data):
                if isinstance(event, EndEvent):
                    self._done = True
                    return None
                return event
            if len(data) < wanted:
                self._decoder.close()
                self._done = True
        return None

    _PART = 64 << 20

    def _read(self, size: int) -> Bytes:
        """``size`` bytes, or fewer at the end; memory grows with what comes, not with what a message claims."""
        if size <= self._PART:
            room = np.empty(size, np.uint8)
            got = self._source.read_into(room)
            return room[:got]
        parts = []
        left = size
        while left:
            part = self._read(min(left, self._PART))
            parts.append(part)
            left -= len(part)
            if len(part) < min(left + len(part), self._PART):
                break
        return np.concatenate(parts)

    def read_next_batch(self) -> RecordBatch:
        """The next batch.

        Raises
        ------
        StopIteration
            At the end of the stream.
        """
        while (event := self._next()) is not None:
            if isinstance(event, BatchEvent):
                return event.batch if self._included is None else self._included.of(event.batch)
        raise StopIteration

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        return self.read_next_batch()

    def read_all(self) -> Table:
        """All batches that are left, as a table."""
        return Table(self.schema, list(self))

    def close(self) -> None:
        """Let go of the source; arrays stay."""
        self._closed = True
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MappedStreamReader(RecordBatchStreamReader):
    """Reads a stream whose bytes are all there: in a mapping, in shared memory, in a buffer. Nothing is copied.

    An index of the messages is built when it is first needed; any batch can then be had by its number.
    """

    def __init__(self, source: Source, limits: Limits, included_fields: Iterable[int | str] | None = None) -> None:
        self._data = source.all()
        self._source = source
        self._limits = limits
        self._closed = False
        self._offset = 0
        self._state = StreamState(source.name, limits)
        first = self._step()
        if first is None:
            raise InvalidData(f"{source.name}: the stream ends before its schema")
        message, start, end = first
        self._index: list[tuple[int, int, int, dict[int, Dictionary]]] = []
        self._latest: tuple[int, Header] | None = None  # the number and header of the batch that was indexed last
        event = self._state.apply(message, self._data[start:end])
        if not isinstance(event, SchemaEvent):
            raise InvalidData(f"{source.name}: the stream begins with a {message.kind}, expected a Schema")
        self._set_schema(event.schema, included_fields)
        self._position = 0
        self._complete = False
        self._extending = _thread.allocate_lock()

    def _step(self) -> tuple[Message, int, int] | None:
        """The next message and its body's place."""
        found = read_message(self._data, self._offset, self._source.name, self._limits)
        if found is None:
            return None
        message, start = found
        self._offset = start + message.body_length
        return message, start, self._offset

    def _extend(self, count: int) -> bool:
        """Read message headers until ``count`` batches are known; says whether there are that many."""
        if len(self._index) < count and not self._complete:
            with self._extending:
                while len(self._index) < count and not self._complete:
                    self._complete = not self._take_next()
        return len(self._index) >= count

    def _take_next(self) -> bool:
        """Take in one more message; says whether there is one. What is refused once is refused again."""
        offset = self._offset
        plain = self._plain(offset)
        if plain is not None:
            header, start = plain
            self._offset = start + header.body_length
            self._latest = len(self._index), header
            self._index.append((offset, start, self._offset, self._state.dictionaries))
            return True
        step = self._step()
        if step is None:
            return False
        message, start, end = step
        try:
            if message.kind == "RecordBatch":
                self._index.append((offset, start, end, self._state.dictionaries))
            else:
                self._state.apply(message, self._data[start:end])
        except ShmarrowError:
            self._offset = offset
            raise
        return True

    def _plain(self, offset: int) -> tuple[Header, int] | None:
        """The header of the message at ``offset`` and where its body starts, if it is a plain record batch."""
        data = self._data
        if len(data) - offset < 8:
            return None
        continuation, size = _PREFIX(data.data, offset)
        start = offset + 8 + size
        if continuation != -1 or not 32 <= size <= self._limits.metadata_bytes or start > len(data):
            return None
        header = batch_header(data, data.data, offset, 8 + size)
        return None if header is None or header.body_length > len(data) - start else (header, start)

    def _header(self, index: int) -> Header | None:
        """The header of a batch, if it is plain."""
        latest = self._latest
        if latest is not None and latest[0] == index:
            return latest[1]
        offset, start, end, _ = self._index[index]
        plain = self._plain(offset)
        return plain[0] if plain is not None and (plain[1], plain[1] + plain[0].body_length) == (start, end) else None

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the reader of {self._source.name} is closed")

    @property
    def num_record_batches(self) -> int:
        """How many batches the stream has; reads the headers of all messages once."""
        self._check_open()
        self._extend(1 << 62)
        return len(self._index)

    def get_batch(self, index: int) -> RecordBatch:
        """A batch by its number, from 0; negative numbers count from the end."""
        self._check_open()
        if index < 0:
            index += self.num_record_batches
        if index < 0 or not self._extend(index + 1):
            raise IndexOutOfRange(f"no batch {index}: {self._source.name} has {len(self._index)}")
        offset, start, end, dictionaries = self._index[index]
        body = self._data[start:end]
        where = f"{self._source.name}: batch {index}"
        header = self._header(index)
        if header is not None:
            batch = plain_batch(header, body, self._full_schema, dictionaries, where, self._limits)
        else:
            found = read_message(self._data, offset, self._source.name, self._limits)
            if found is None:
                raise InvalidData(f"{where}: the message at {offset} is gone, somebody has written to the bytes")
            batch = read_batch(found[0], body, self._full_schema, dictionaries, where, self._limits)
        return batch if self._included is None else self._included.of(batch)

    def read_next_batch(self) -> RecordBatch:
        self._check_open()
        if not self._extend(self._position + 1):
            raise StopIteration
        self._position += 1
        return self.get_batch(self._position - 1)
