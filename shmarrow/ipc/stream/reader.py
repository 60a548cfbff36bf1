"""Stream readers ("IPC Streaming Format"): sequential from a file object, or with random access in memory.

Invariants:

* from a file object, pipe or socket, the reader reads exactly the next message. An error in between is final, as the
  position in the source is unknown;
* in memory, messages are indexed as far as needed, with random access to batches. An invalid message raises on each
  access, and leaves the reader unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index as as_index
from typing import Any, NamedTuple, SupportsIndex

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import IndexOutOfRange, InvalidData, InvalidType, Limits
from shmarrow.ipc.batch.dictionaries import Dictionary
from shmarrow.ipc.batch.header import Header
from shmarrow.ipc.batch.open import decode_metadata, open_batch
from shmarrow.ipc.batch.projection import Projection
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.message.framing import CONTINUATION, read_prefix
from shmarrow.ipc.stream.decoder import BatchEvent, EndEvent, Event, SchemaEvent, StreamDecoder, StreamState
from shmarrow.naming import several
from shmarrow.sources.base import Source
from shmarrow.states import (
    CLOSE,
    CLOSED,
    END,
    ENDED,
    FAIL,
    FAILED,
    OPEN,
    READ,
    SEQUENTIAL,
    NotCopied,
    StateMachine,
    Transitions,
    Turn,
    fork_safe_lock,
)
from shmarrow.tables import RecordBatchReader
from shmarrow.types import Schema

MAPPED: Transitions = {
    OPEN: {READ: OPEN, FAIL: FAILED, CLOSE: CLOSED},
    FAILED: {FAIL: FAILED, CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}
"""States of :class:`MappedStreamReader`: an error ends the iteration, which would otherwise skip the batch.
Random access still works."""


class _BatchReader(RecordBatchReader):
    """Base class of stream readers."""

    _source: Source
    _states: StateMachine

    def __repr__(self) -> str:
        from shmarrow.display import holding, line

        batches = self._known_batches()
        return line(self, f"of {self._source.name}", *holding(batches, None, len(self.schema)), self._states.state)

    def _fail(self, error: BaseException) -> None:
        self._states.fail(error)

    def _known_batches(self) -> int | None:
        """The number of batches, if known."""
        return None

    def _set_schema(self, full: Schema, included: Iterable[int | str] | None) -> None:
        self._full_schema = full
        self._included = None if included is None else Projection(full, included)
        self.schema = full if self._included is None else self._included.schema


class RecordBatchStreamReader(NotCopied, _BatchReader):
    """Reads a stream sequentially from a file object, pipe or socket; made by :func:`open_stream`.

    An error in the middle of a message, such as a timeout, leaves the reader failed: all later calls raise ``Failed``,
    which quotes that error.

    Notes
    -----
    Thread safety: may be shared; each batch is returned to one thread. A forked child can only close its copy.
    """

    def __init__(self, source: Source, limits: Limits, included_fields: Iterable[int | str] | None = None) -> None:
        self._source = source
        self._decoder: StreamDecoder | None = StreamDecoder(limits, source.name)
        self._states = StateMachine(f"the reader of {source.name}", SEQUENTIAL)
        self._turn = Turn(f"the reader of {source.name}")
        try:
            first = self._next()
            if not isinstance(first, SchemaEvent):
                raise InvalidData(f"{source.name}: the stream ends before its schema")
            self._set_schema(first.schema, included_fields)
        except BaseException:
            source.close()
            raise

    def _next(self) -> Event | None:
        """Return the next event; None at the end of the stream."""
        states = self._states
        states.go(READ)
        with self._turn:
            states.go(READ)  # another thread may have closed or failed it meanwhile
            decoder = self._decoder
            if states.state == ENDED or decoder is None:
                return None
            try:
                while (event := decoder.next_event()) is None and not decoder.ended:
                    wanted = decoder.wants
                    data = self._source.take(wanted)
                    decoder.feed(data)
                    if len(data) < wanted:
                        decoder.close()
            except BaseException as error:
                states.fail(error)
                raise
            if event is None or isinstance(event, EndEvent):
                states.go(END)
                return None
            states.go(READ)
            return event

    def read_next_batch(self) -> RecordBatch:
        while (event := self._next()) is not None:
            if isinstance(event, BatchEvent):
                return event.batch if self._included is None else self._included.of(event.batch)
        raise StopIteration

    def close(self) -> None:
        self._states.go(CLOSE)
        self._decoder = None
        self._source.close()


class _Place(NamedTuple):
    """A batch's location in the stream, and its dictionaries."""

    offset: int
    body: int
    end: int
    dictionaries: dict[int, Dictionary]


_indexing = fork_safe_lock()
"""Held while an index grows or a position moves, and during fork, so a child never sees a partial update."""


class _Index:
    """The messages indexed so far of a stream in memory."""

    __slots__ = ("_source", "complete", "data", "latest", "limits", "name", "offset", "places", "position", "state")

    def __init__(self, source: Source, limits: Limits) -> None:
        assert source.data is not None
        self._source = source
        self.data: Bytes = source.data
        self.name = source.name
        self.limits = limits
        self.state = StreamState(source.name, limits)
        self.places: list[_Place] = []
        self.position = 0  # of the iteration
        self.offset = 0  # of the next message
        self.complete = False
        self.latest: tuple[int, Header | Message] | None = None  # the batch that was indexed last

    def message_at(self, offset: int) -> tuple[Header | Message, int] | None:
        """The complete message at ``offset`` and its body's offset; None at the end of the stream."""
        data = self.data
        prefix = read_prefix(data, offset, self.name, self.limits)
        if prefix is None:
            return None
        body = offset + prefix[0] + prefix[1]
        if body > len(data):
            raise InvalidData(
                f"{self.name}: the metadata at {offset} needs [{offset + prefix[0]}, {body}) "
                f"but there are {len(data)} bytes"
            )
        message = decode_metadata(data[offset:body], self.name, self.limits)
        if message is None:
            raise InvalidData(f"{self.name}: the message at {offset} was overwritten while being read")
        if message.body_length > len(data) - body:
            raise InvalidData(
                f"{self.name}: the body of the message at {offset} needs [{body}, {body + message.body_length}) "
                f"but there are {len(data)} bytes"
            )
        return message, body

    def step(self) -> SchemaEvent | None:
        """Index one more message, or the end of the stream. An invalid message changes nothing."""
        offset = self.offset
        found = self.message_at(offset)
        if found is None:
            self.complete = True
            marked = self.data[offset : offset + 4].tobytes()
            self._source.advance(offset + (8 if marked == CONTINUATION else len(marked)))
            return None
        message, body = found
        end = body + message.body_length
        event = None
        if isinstance(message, Header) or message.kind == "RecordBatch":
            if self.state.schema is None:
                raise InvalidData(f"{self.name}: the stream begins with a RecordBatch, expected a Schema")
            self.latest = len(self.places), message
            self.places.append(_Place(offset, body, end, self.state.dictionaries))
        else:
            event = self.state.take(message, self.data[body:end])
        self.offset = end
        self._source.advance(end)
        return event if isinstance(event, SchemaEvent) else None

    def reach(self, count: int) -> bool:
        """Index messages up to ``count`` batches; returns whether there are as many."""
        while len(self.places) < count and not self.complete:
            with _indexing:
                if len(self.places) < count and not self.complete:
                    self.step()
        return len(self.places) >= count

    def message(self, number: int) -> Header | Message:
        """The metadata of a batch."""
        latest, place = self.latest, self.places[number]
        if latest is not None and latest[0] == number:
            return latest[1]
        found = self.message_at(place.offset)
        if found is None or (found[1], found[1] + found[0].body_length) != (place.body, place.end):
            raise InvalidData(f"{self.name}: batch {number} was overwritten since it was indexed")
        return found[0]


class MappedStreamReader(_BatchReader):
    """Reads a stream in memory (mapped file, shared memory or buffer) with random access; made by :func:`open_stream`.

    Zero-copy. Messages are indexed as far as needed.

    Notes
    -----
    Thread safety: may be shared; in an iteration, each batch is returned to one thread. A forked child may use its
    copy. A reader of a path or a ``shm:`` name is pickled by name, and reopened at the first batch on unpickling;
    others cannot be pickled.
    """

    def __init__(self, source: Source, limits: Limits, included_fields: Iterable[int | str] | None = None) -> None:
        self._source = source
        self._limits = limits
        self._arguments = None if included_fields is None else several(included_fields, "positions and names")
        self._states = StateMachine(f"the reader of {source.name}", MAPPED, shared=True)
        self._index: _Index | None = _Index(source, limits)
        try:
            event = self._index.step()
            if event is None:
                raise InvalidData(f"{source.name}: the stream ends before its schema")
            self._set_schema(event.schema, self._arguments)
        except BaseException:
            self._index = None
            source.close()
            raise

    def _opened(self) -> _Index:
        index = self._index
        if index is None:
            raise self._states.refusal()
        return index

    def _known_batches(self) -> int | None:
        index = self._index
        return None if index is None or not index.complete else len(index.places)

    @property
    def num_record_batches(self) -> int:
        """Number of record batches; reads the headers of all messages once."""
        index = self._opened()
        index.reach(1 << 62)
        return len(index.places)

    def get_batch(self, index: SupportsIndex) -> RecordBatch:
        """Return the batch at position ``index``; negative positions count from the end.

        Raises
        ------
        IndexOutOfRange
            If the index is out of range.
        InvalidData
            If a message up to this one is invalid.
        Closed
            After :meth:`close`.
        """
        messages = self._opened()
        number = batch_number(index)
        if number < 0:
            number += self.num_record_batches
        if number < 0 or not messages.reach(number + 1):
            raise IndexOutOfRange(f"no batch {index}: {messages.name} has {len(messages.places)}")
        return self._batch(messages, number)

    @property
    def num_rows(self) -> int:
        """Number of rows in all batches; reads the headers of all messages once."""
        return sum([self._batch(self._opened(), i).num_rows for i in range(self.num_record_batches)])

    def __len__(self) -> int:
        return self.num_record_batches

    def __getitem__(self, index: SupportsIndex) -> RecordBatch:
        return self.get_batch(index)

    def _batch(self, messages: _Index, number: int) -> RecordBatch:
        message, place = messages.message(number), messages.places[number]
        where = f"{messages.name}: batch {number}"
        body = messages.data[place.body : place.end]
        batch = open_batch(message, body, self._full_schema, place.dictionaries, where, self._limits)
        return batch if self._included is None else self._included.of(batch)

    def read_next_batch(self) -> RecordBatch:
        messages = self._opened()
        self._states.go(READ)
        with _indexing:
            number = messages.position
            if not messages.reach(number + 1):
                raise StopIteration
            messages.position += 1
        try:
            return self._batch(messages, number)
        except BaseException as error:
            self._states.fail(error)
            raise

    def close(self) -> None:
        """Release the mapping, descriptor and lock; existing arrays and batches keep the mapping alive."""
        self._states.go(CLOSE)
        self._index = None
        self._source.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened("open_stream", self._source, self._limits, included_fields=self._arguments)


def batch_number(index: SupportsIndex) -> int:
    """Convert a batch index to an int."""
    try:
        return as_index(index)
    except TypeError:
        raise InvalidType(f"the index of a batch must be an int, found {type(index).__name__}") from None


def reopened(opener: str, source: Source, limits: Limits, **arguments: Any) -> tuple[Any, ...]:
    """Reduce a reader to its source's name, for pickling."""
    if source.closed or source.location is None:
        raise InvalidType(
            f"the reader of {source.name} cannot be pickled or copied: only an open reader of a mapped path "
            "or shm: name can be reopened; pass on the name or the bytes"
        )
    return _reopen, (opener, source.location, limits, arguments)


def _reopen(opener: str, name: str, limits: Limits, arguments: dict[str, Any]) -> Any:
    from shmarrow import ipc

    return getattr(ipc, opener)(name, limits=limits, **arguments)
