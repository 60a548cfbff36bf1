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
from typing import Self

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import (
    Closed,
    IndexOutOfRange,
    InvalidData,
    Limits,
    ShmarrowError,
)
from shmarrow.ipc.batch.decode import plain_batch, read_batch
from shmarrow.ipc.batch.dictionaries import Dictionary
from shmarrow.ipc.batch.header import Header, batch_header
from shmarrow.ipc.batch.projection import Projection
from shmarrow.ipc.message.decode import Message, read_message
from shmarrow.ipc.stream.decoder import BatchEvent, EndEvent, Event, SchemaEvent, StreamDecoder, StreamState
from shmarrow.sources.base import Source
from shmarrow.tables import Table
from shmarrow.types import Schema

_PREFIX = struct.Struct("<ii").unpack_from


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
        self._data = source.read(0, source.size or 0)
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
        self._source.advance(self._offset)
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
            self._source.advance(self._offset)
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
