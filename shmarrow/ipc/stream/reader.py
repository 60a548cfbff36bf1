"""Stream readers ("IPC Streaming Format"): sequential from a file object, or with random access in memory.

Invariants:

* from a file object, pipe or socket, the reader reads exactly the next message. An error in between is final, as the
  position in the source is unknown;
* in memory, messages are indexed as far as needed, with random access to batches. An exception leaves the reader
  unchanged: an invalid message raises on each access, and what was interrupted can be repeated;
* a stream is locked by itself, so that a page fault on a slow disk holds up no other stream.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Iterable
from functools import partial
from operator import index as as_index
from typing import Any, NamedTuple, SupportsIndex

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.column_names import included, several
from shmarrow.errors import IndexOutOfRange, InvalidData, InvalidType, Limits
from shmarrow.habits import no_batch
from shmarrow.ipc.batch.dictionaries import ById, Dictionary, DictionaryBudget
from shmarrow.ipc.batch.header import read_message
from shmarrow.ipc.message.decode import Located, message_at
from shmarrow.ipc.message.framing import CONTINUATION
from shmarrow.ipc.stream.decoder import BatchEvent, EndEvent, Event, SchemaEvent, StreamDecoder
from shmarrow.ipc.stream.state import IpcStats, StreamState
from shmarrow.sources.base import Source
from shmarrow.state_machine import (
    CLOSE,
    CLOSED,
    FAIL,
    FAILED,
    OPEN,
    READ,
    SEQUENTIAL,
    NotCopied,
    StateMachine,
    Transitions,
)
from shmarrow.tables import RecordBatchReader, RecordBatchWithMetadata, with_metadata
from shmarrow.types import Schema

MAPPED: Transitions = {
    OPEN: {READ: OPEN, FAIL: FAILED, CLOSE: CLOSED},
    FAILED: {FAIL: FAILED, CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}
"""States of :class:`MappedStreamReader`. Reading can be repeated, so only the iteration fails: if a batch was read that
could not be handed to another library, which would otherwise miss it."""


class _BatchReader(RecordBatchReader):
    """Base class of stream readers."""

    _source: Source
    _states: StateMachine
    _last_stats: IpcStats
    """The counts when the reader was closed."""

    def __repr__(self) -> str:
        from shmarrow import display

        batches = self._known_batches()
        return display.line(
            self, f"of {self._source.name}", *display.holding(batches, None, len(self.schema)), self._states.state
        )

    def _fail(self, error: BaseException) -> None:
        self._states.fail(error)

    def _known_batches(self) -> int | None:
        """The number of batches, if known."""
        return None

    def _set_schema(self, full: Schema, fields: Iterable[int | str] | None) -> None:
        self._full_schema = full
        self._included, self.schema = included(full, fields)

    def _selected(self, batch: RecordBatch) -> RecordBatch:
        return batch if self._included is None else batch._arranged(self.schema, self._included, {})


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
        try:
            first = self._states.read(self._next)
            if not isinstance(first, SchemaEvent):
                raise InvalidData(f"{source.name}: the stream ends before its schema")
            self._set_schema(first.schema, included_fields)
        except BaseException:
            source.close()
            raise

    @property
    def stats(self) -> IpcStats:
        """Number of messages read so far, by kind; usable after closing."""
        decoder = self._decoder
        return self._last_stats if decoder is None else decoder.stats

    def _next(self) -> Event | None:
        """Return the next event; None at the end of the stream."""
        decoder = self._decoder
        if decoder is None:
            return None
        while (event := decoder.next_event()) is None and not decoder.ended:
            wanted = decoder.wants
            data = self._source.take(wanted)
            decoder.feed(data)
            if len(data) < wanted:
                decoder.close()
        return None if isinstance(event, EndEvent) else event

    def read_next_batch(self) -> RecordBatch:
        while (event := self._states.read(self._next)) is not None:
            if isinstance(event, BatchEvent):
                return self._selected(event.batch)
        raise StopIteration

    def close(self) -> None:
        self._states.go(CLOSE)
        self._last_stats = self.stats
        self._decoder = None
        self._source.close()


class _Place(NamedTuple):
    """A record batch in the stream: the state before its message, its rows as declared, the offsets of body and end."""

    before: StreamState
    rows: int
    body: int
    end: int


class _Index:
    """The messages indexed so far of a stream in memory.

    Attributes
    ----------
    state : StreamState
        The stream up to the last indexed message; replaced by one assignment per message.
    places : list of _Place
        The record batches. Those beyond ``state.batches`` are of interrupted calls and do not count.
    position : int
        The next batch of the iteration.
    """

    __slots__ = ("_locks", "_shared", "_source", "_version", "data", "places", "position", "state")

    def __init__(self, source: Source, limits: Limits) -> None:
        assert source.data is not None
        self._source = source
        self._locks: dict[int, _thread.RLock] = {}
        self._version = source.version("stream")
        self.data: Bytes = source.data
        self._shared = None if source.mapping is None else source.mapping.shared
        self.state = StreamState(source.name, limits, DictionaryBudget(limits))
        self.places: list[_Place] = []
        self.position = 0

    @property
    def lock(self) -> _thread.RLock:
        """The lock for reading further; each process has its own, as a fork may copy one that is held."""
        found = self._locks.get(os.getpid())
        return self._locks.setdefault(os.getpid(), _thread.RLock()) if found is None else found

    def message_after(self, state: StreamState) -> Located | None:
        """The next message after a state; None at the end of the stream."""
        return message_at(self.data, state.offset, state.where, state.limits, parse=read_message)

    def step(self, build: bool = False) -> RecordBatch | None:
        """Index one more message, or the end of the stream; returns the batch if it is one and to be built."""
        state = self.state
        found = self.message_after(state)
        if found is None:
            offset = state.offset
            marked = self.data[offset : offset + 4].tobytes()
            self._source.advance(offset + (8 if marked == CONTINUATION else len(marked)))
            self.state = state._replace(ended=True)
            return None
        message, end, body = found.message, found.end, self._body(found)
        after = state.after(message, body, end)
        batch = state.batch(message, body, self._version) if build and after.batches > state.batches else None
        self._source.advance(end)
        if self.state is not state:  # a signal handler has read on meanwhile
            return None
        if after.batches > state.batches:
            self.places[state.batches :] = [_Place(state, message.length, found.body, end)]
        self.state = after
        return batch

    def reach(self, count: int) -> bool:
        """Index messages up to ``count`` batches; returns whether there are as many."""
        while self.state.batches < count and not self.state.ended:
            with self.lock:
                if self.state.batches < count and not self.state.ended:
                    self.step()
        return self.state.batches >= count

    def batch(self, number: int) -> RecordBatch:
        """Read an indexed batch."""
        before, _, _, end = self.places[number]
        found = self.message_after(before)
        if found is None or found.end != end:
            raise InvalidData(f"{before.where}: batch {number} was overwritten since it was indexed")
        return before.batch(found.message, self._body(found), self._version)

    def _body(self, found: Located) -> Any:
        """The body of a message."""
        body = self.data[found.body : found.end]
        return body if self._shared is None else self._shared.body(body)

    def next_batch(self) -> RecordBatch | None:
        """Read the next batch of the iteration; None at the end. An exception leaves the position unchanged."""
        with self.lock:
            while True:
                number, batch = self.position, None
                if number < self.state.batches:
                    batch = self.batch(number)
                elif not self.state.ended:
                    batch = self.step(build=True)
                else:
                    return None
                if batch is not None and self.position == number:  # else a signal handler has taken it meanwhile
                    self.position = number + 1
                    return batch


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
            self._index.step()
            schema = self._index.state.schema
            if schema is None:
                raise InvalidData(f"{source.name}: the stream ends before its schema")
            self._set_schema(schema, self._arguments)
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
        return None if index is None or not index.state.ended else index.state.batches

    @property
    def stats(self) -> IpcStats:
        """Number of messages up to the last batch asked for, by kind; usable after closing."""
        index = self._index
        return self._last_stats if index is None else index.state.stats

    @property
    def num_record_batches(self) -> int:
        """Number of record batches; reads the headers of all messages once."""
        index = self._opened()
        index.reach(1 << 62)
        return index.state.batches

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
            raise IndexOutOfRange(f"no batch {index}: {self._source.name} has {messages.state.batches}")
        return self._selected(messages.batch(number))

    @property
    def num_rows(self) -> int:
        """Number of rows in all batches; reads the headers of all messages once."""
        messages, count = self._opened(), self.num_record_batches
        rows = [place.rows for place in messages.places[:count]]
        return sum([n if n >= 0 else messages.batch(i).num_rows for i, n in enumerate(rows)])

    def count_rows(self) -> int:
        """Return :attr:`num_rows`; pyarrow's name."""
        return self.num_rows

    def get_batch_with_custom_metadata(self, index: SupportsIndex) -> RecordBatchWithMetadata:
        """Return a batch and its metadata. Errors as :meth:`get_batch`."""
        return with_metadata(self.get_batch(index))

    def __len__(self) -> int:
        return self.num_record_batches

    def __getitem__(self, index: SupportsIndex) -> RecordBatch:
        return self.get_batch(index)

    def _dictionaries_of(self, number: int) -> ById[Dictionary]:
        """The dictionaries as of a batch that was read before, by id."""
        return self._opened().places[number].before.dictionaries

    def read_next_batch(self) -> RecordBatch:
        messages = self._opened()
        self._states.go(READ)
        batch = messages.next_batch()
        if batch is None:
            raise StopIteration
        return self._selected(batch)

    def close(self) -> None:
        """Release the mapping; existing arrays and batches keep the mapping alive."""
        self._states.go(CLOSE)
        self._last_stats = self.stats
        self._index = None
        self._source.close()

    def __reduce__(self) -> tuple[object, ...]:
        from shmarrow.ipc import open_stream

        return reopened(open_stream, self._source, self._limits, included_fields=self._arguments)


def batch_number(index: SupportsIndex) -> int:
    """Convert a batch index to an int."""
    try:
        return as_index(index)
    except TypeError:
        raise no_batch(index) from None


def reopened(opener: Callable[..., Any], source: Source, limits: Limits, **arguments: Any) -> tuple[Any, ...]:
    """Reduce a reader to its source's name and the function that opens it, for pickling."""
    if source.closed or source.location is None:
        raise InvalidType(
            f"the reader of {source.name} cannot be pickled or copied: only an open reader of a mapped path "
            "or shm: name can be reopened; pass on the name or the bytes"
        )
    return partial(opener, source.location, limits=limits, **arguments), ()
