# SPDX-License-Identifier: Apache-2.0
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
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from shmarrow.buffer import Bytes
from shmarrow.columns import RecordBatch, RecordBatchReader, included
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, as_limits
from shmarrow.ipc.batch.decode import BatchHeader, read_message
from shmarrow.ipc.batch.dictionaries import Dictionary, DictionaryBudget, LayeredMap
from shmarrow.ipc.message.decode import CONTINUATION, Message, message_at
from shmarrow.ipc.random_access import IndexedReader
from shmarrow.ipc.stream.decoder import BatchEvent, EndEvent, Event, SchemaEvent, StreamDecoder
from shmarrow.ipc.stream.state import IpcStats, StreamState
from shmarrow.memory import CLOSE, SEQUENTIAL, NotCopied, Source, StateMachine, lock_of_process, open_source


class RecordBatchStreamReader(NotCopied, RecordBatchReader):
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
            self._included, self.schema = included(first.schema, included_fields)
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
            size = decoder.wants
            data = self._source.take(size)
            decoder.feed(data)
            if len(data) < size:
                decoder.close()
        return None if isinstance(event, EndEvent) else event

    def read_next_batch(self) -> RecordBatch:
        while (event := self._states.read(self._next)) is not None:
            if isinstance(event, BatchEvent):
                batch = event.batch
                return batch if self._included is None else batch._arranged(self.schema, self._included, {})
        raise StopIteration

    def bytes_follow(self) -> bool:
        """Return whether bytes follow the end of the stream; False before it. Reads one byte, which may block."""
        decoder = self._decoder
        return decoder is not None and decoder.ended and bool(decoder.trailing_data or len(self._source.take(1)))

    def _fail(self, error: BaseException) -> None:
        self._states.fail(error)

    def __repr__(self) -> str:
        from shmarrow import display

        return display.line(
            self, f"of {self._source.name}", *display.holding(None, None, len(self.schema)), self._states.state
        )

    def close(self) -> None:
        self._states.go(CLOSE)
        self._last_stats = self.stats
        self._decoder = None
        self._source.close()


class _IndexedBatch(NamedTuple):
    """A record batch in the stream: the state before its message, its rows as declared, the offsets of body and end."""

    before: StreamState
    rows: int
    body: int
    end: int


_indexed = partial(tuple.__new__, _IndexedBatch)


class _StreamBatches:
    """The batches of a stream in memory, indexed so far; see :class:`~shmarrow.ipc.random_access.Batches`.

    Attributes
    ----------
    state : StreamState
        The stream up to the last indexed message; replaced by one assignment per message.
    indexed : list of _IndexedBatch
        The record batches. Those beyond ``state.batches`` are of interrupted calls and do not count.
    """

    __slots__ = ("_locks", "_shared", "_source", "data", "indexed", "schema", "state")

    def __init__(self, source: Source, limits: Limits) -> None:
        assert source.data is not None
        self._source = source
        self._locks: dict[int, _thread.RLock] = {}
        self.data: Bytes = source.data
        self._shared = None if source.mapping is None else source.mapping.shared
        self.state = StreamState(0, 0, source.name, limits, DictionaryBudget(limits))
        self.indexed: list[_IndexedBatch] = []
        self._step()
        if self.state.schema is None:
            raise InvalidData(f"{source.name}: the stream ends before its schema")
        self.schema = self.state.schema

    @property
    def lock(self) -> _thread.RLock:
        """The lock for reading further."""
        return lock_of_process(self._locks)

    def _message_after(self, state: StreamState) -> tuple[BatchHeader | Message, Any, int, int] | None:
        """The next message after a state, its body, and where that begins and ends; None at the end of the stream."""
        located = message_at(self.data, state.offset, state.where, state.limits, parse=read_message)
        if located is None:
            return None
        message, _, start, end = located
        body = self.data[start:end]
        return message, body if self._shared is None else self._shared.body(body), start, end

    def _step(self) -> RecordBatch | None:
        """Index one more message, or the end of the stream; returns the batch if it is one."""
        state = self.state
        following = self._message_after(state)
        if following is None:
            self._source.advance(self.end)
            self.state = state._replace(ended=True)
            return None
        message, body, start, end = following
        after = state.after(message, body, end)
        batch = state.batch(message, body) if isinstance(message, BatchHeader) else None
        if self._source.positioned:
            self._source.advance(end)
        if self.state is not state:  # a signal handler has read on meanwhile
            return None
        if batch is not None:
            self.indexed[state.batches :] = [_indexed((state, batch.num_rows, start, end))]
        self.state = after
        return batch

    @property
    def end(self) -> int:
        """The offset after the mark of the end, once all messages are indexed."""
        offset = self.state.offset
        marked = self.data[offset : offset + 4].tobytes()
        return offset + (8 if marked == CONTINUATION else len(marked))

    def reach(self, number: int) -> bool:
        """Index messages up to a batch; returns whether there is one of this number."""
        while self.state.batches <= number and not self.state.ended:
            with self.lock:
                if self.state.batches <= number and not self.state.ended:
                    self._step()
        return self.state.batches > number

    def count(self) -> int:
        self.reach(1 << 62)
        return self.state.batches

    def batch(self, number: int) -> RecordBatch | None:
        while number == self.state.batches and not self.state.ended:  # the next one, built as it is indexed
            with self.lock:
                more = number == self.state.batches and not self.state.ended
                batch = self._step() if more else None
            if batch is not None:
                return batch
        if not self.reach(number):
            return None
        before, _, _, end = self.indexed[number]
        following = self._message_after(before)
        if following is None or following[3] != end:
            raise InvalidData(f"{before.where}: batch {number} was overwritten since it was indexed")
        return before.batch(*following[:2])

    def count_rows(self) -> int:
        rows = [entry.rows for entry in self.indexed[: self.count()]]
        return sum(rows)

    def dictionaries_of(self, number: int) -> LayeredMap[Dictionary]:
        """The dictionaries as of a batch that was read before, by id."""
        return self.indexed[number].before.dictionaries


class MappedStreamReader(IndexedReader, RecordBatchReader):
    """Reads a stream in memory (mapped file, shared memory or buffer) with random access; made by :func:`open_stream`.

    Zero-copy. Messages are indexed as far as needed. Each iteration, table and export has all batches, as those of a
    file; only ``read_next_batch`` and ``next`` have a position.

    Notes
    -----
    Thread safety: may be shared; ``read_next_batch`` returns each batch to one thread. A forked child may use its
    copy. A reader of a path or a ``shm:`` name is pickled by name, and reopened at the first batch on unpickling;
    others cannot be pickled.
    """

    _batches: _StreamBatches | None
    _open = _StreamBatches

    def __init__(self, source: Source, limits: Limits, included_fields: Iterable[int | str] | None = None) -> None:
        super().__init__(source, limits, included_fields)
        self.schema = self._schema
        self._position = 0

    @property
    def stats(self) -> IpcStats:
        """Number of messages up to the last batch asked for, by kind; usable after closing."""
        batches = self._batches
        return self._last_stats if batches is None else batches.state.stats

    def read_next_batch(self) -> RecordBatch:
        batches = self._opened()
        with batches.lock:
            while True:
                number = self._position
                batch = batches.batch(number)
                if batch is None:
                    raise StopIteration
                if self._position == number:  # else a signal handler has taken it meanwhile
                    self._position = number + 1
                    return self._selected(batch, number)

    def bytes_follow(self) -> bool:
        """Return whether bytes follow the end of the stream; reads the headers of all messages once."""
        batches = self._opened()
        batches.count()
        return batches.end < len(batches.data)

    def close(self) -> None:
        if self._batches is not None:
            self._last_stats = self._batches.state.stats
        super().close()

    def __repr__(self) -> str:
        from shmarrow import display

        batches = self._batches
        count = None if batches is None or not batches.state.ended else batches.state.batches
        return display.line(
            self, f"of {self._source.name}", *display.holding(count, None, len(self.schema)), self._states.state
        )

    def __reduce__(self) -> tuple[object, ...]:
        return self._reopened(open_stream)


def open_stream(
    source: Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    memory_map: bool = True,
    included_fields: Iterable[int | str] | None = None,
    unchecked: bool = False,
) -> RecordBatchStreamReader | MappedStreamReader:
    """Open a reader of the streaming format, an iterator of record batches.

    For a path, a name or bytes, returns a :class:`MappedStreamReader`: zero-copy, with random access to batches. For a
    file object or a socket, returns a :class:`RecordBatchStreamReader`, which reads from the current position exactly
    up to the end of the stream. Parameters and errors are those of :func:`open_file`.
    """
    limits = as_limits(limits, unchecked)
    opened = open_source(source, memory_map, sequential=True)
    kind: Any = RecordBatchStreamReader if opened.data is None else MappedStreamReader
    return kind(opened, limits, included_fields)
