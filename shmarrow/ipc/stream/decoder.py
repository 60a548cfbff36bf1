# SPDX-License-Identifier: Apache-2.0
"""Sans-I/O stream decoder: bytes in, events out ("IPC Streaming Format").

Invariants:

* :class:`StreamDecoder` is a push parser: fed pieces of any size, it parses all completed messages immediately and
  queues the events;
* contiguous messages are never copied; small pieces are collected in linear time;
* :data:`TRANSITIONS` defines the states and their transitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import U1, Bytes, as_bytes
from shmarrow.columns import RecordBatch
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, as_limits
from shmarrow.ipc.batch.decode import BatchHeader, read_message
from shmarrow.ipc.batch.dictionaries import DictionaryBudget
from shmarrow.ipc.message.decode import CONTINUATION, Message, read_prefix
from shmarrow.ipc.stream.state import IpcStats, StreamState
from shmarrow.memory import CLOSE, CLOSED, END, ENDED, FAIL, FAILED, NotCopied, StateMachine, Transitions
from shmarrow.types import Schema

PREFIX = "prefix"
METADATA = "metadata"
BODY = "body"

TRANSITIONS: Transitions = {
    PREFIX: {METADATA: METADATA, END: ENDED, FAIL: FAILED, CLOSE: CLOSED},  # between messages
    METADATA: {BODY: BODY, FAIL: FAILED},
    BODY: {PREFIX: PREFIX, FAIL: FAILED},
    ENDED: {CLOSE: CLOSED},  # end-of-stream marker, or close() between messages
    FAILED: {FAIL: FAILED},
    CLOSED: {CLOSE: CLOSED},
}
"""Within a message, events are named after the next part. ``close()`` within a message fails."""

_SMALL = 1 << 12


class SchemaEvent(NamedTuple):
    """The schema was decoded.

    Attributes
    ----------
    schema : Schema
        The schema of the stream.
    """

    schema: Schema


class DictionaryEvent(NamedTuple):
    """A dictionary batch was decoded; ``delta`` if it extends the dictionary of the same id.

    Attributes
    ----------
    id : int
        The dictionary's id.
    delta : bool
        Whether the values extend the dictionary of that id, instead of replacing it.
    """

    id: int
    delta: bool


class BatchEvent(NamedTuple):
    """A record batch was decoded.

    Attributes
    ----------
    batch : RecordBatch
        The batch.
    """

    batch: RecordBatch


class EndEvent(NamedTuple):
    """The end-of-stream marker was decoded."""


Event = SchemaEvent | DictionaryEvent | BatchEvent | EndEvent


class StreamDecoder(NotCopied):
    """A push parser for streams: feed it bytes in pieces of any size and collect events.

    Parameters
    ----------
    limits : Limits, optional
        Bounds on what is accepted.
    where : str
        Describes the bytes in error messages.

    Notes
    -----
    Thread safety: none; use a decoder from one thread at a time. Its batches may be shared between threads.

    Examples
    --------
    >>> import io, shmarrow as sa
    >>> sink, batch = io.BytesIO(), sa.record_batch([sa.array([1, 2])], names=["x"])
    >>> with sa.ipc.new_stream(sink, batch.schema) as writer:
    ...     writer.write(batch)
    >>> decoder = StreamDecoder()
    >>> decoder.feed(sink.getvalue())
    >>> [type(event).__name__ for event in decoder]
    ['SchemaEvent', 'BatchEvent', 'EndEvent']
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS, where: str = "stream") -> None:
        self._limits = as_limits(limits)
        self._stream = StreamState(0, 0, where, limits, DictionaryBudget(limits))
        self._where = where
        self._states = StateMachine(f"the decoder of {where}", TRANSITIONS, PREFIX, shared=True)
        self._events: deque[Event] = deque()
        self._pending: list[Bytes | bytearray] = []
        self._held = 0
        # Any first message has at least 8 bytes; after one with the legacy prefix, a 4-byte end marker may be all that
        # follows.
        self._prefix_size = 8
        self._wants = 8
        self._message: BatchHeader | Message | None = None
        self._before = 0
        self._trailing = bytearray()

    @property
    def schema(self) -> Schema | None:
        """The schema, once decoded."""
        return self._stream.schema

    @property
    def stats(self) -> IpcStats:
        """Number of messages decoded so far, by kind."""
        return self._stream.stats

    @property
    def ended(self) -> bool:
        """Whether the stream has ended: by its end-of-stream marker, or by :meth:`close` between two messages."""
        return self._states.state in (ENDED, CLOSED)

    @property
    def wants(self) -> int:
        """Number of bytes that the decoder needs next; feeding more or fewer is fine. 0 after the end."""
        return self._wants - self._held if self._states.state in _HANDLERS else 0

    @property
    def trailing_data(self) -> bytes:
        """Bytes fed beyond the end of the stream; a copy."""
        return bytes(self._trailing)

    def feed(self, data: Any) -> None:
        """Feed bytes, and parse all messages that they complete.

        Contiguous messages are not copied, so the bytes must not change afterwards. Bytes after the end of the stream
        are kept as :attr:`trailing_data`.

        Raises
        ------
        InvalidData
            If the bytes are invalid; earlier events stay available.
        Failed
            After such an error, which is quoted.
        Closed
            After :meth:`close`.
        """
        states = self._states
        if states.state in (FAILED, CLOSED):
            raise states.refusal()
        piece = as_bytes(data)
        try:
            rest = self._take(piece)
        except BaseException as error:
            states.fail(error)
            raise
        if rest is not None:
            self._trailing += rest.data

    def next_event(self) -> Event | None:
        """Return the next event, or None if more bytes are needed or the stream has ended.

        Raises
        ------
        Failed
            After the last event before an error of :meth:`feed` or :meth:`close`, which is quoted.
        """
        if self._events:
            return self._events.popleft()
        if self._states.failure:
            raise self._states.refusal()
        return None

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the complete events; :meth:`feed` may add more."""
        return iter(self.next_event, None)

    def close(self) -> None:
        """Signal the end of the input; pending events stay available.

        Raises
        ------
        InvalidData
            If a message is truncated, or there was no schema.
        Failed
            After an earlier error, which is quoted.
        """
        states = self._states
        if states.failure:
            raise states.refusal()
        cut = self._held and b"".join(map(bytes, self._pending)) != bytes(4)  # the legacy end marker
        if states.state in (METADATA, BODY) or (states.state == PREFIX and cut):
            what = "a prefix" if states.state == PREFIX else f"a message's {states.state}"
            error = InvalidData(
                f"{self._where}: the stream ends within {what}: {self.wants} of {self._wants} bytes are missing"
            )
            states.fail(error)
            raise error
        if self._stream.schema is None and states.state != CLOSED:
            error = InvalidData(f"{self._where}: the stream ends before its schema")
            states.go(CLOSE)
            raise error
        states.go(CLOSE)

    def _take(self, piece: Bytes) -> Bytes | None:
        """Take all parts that a piece completes, and hold the rest; return what lies beyond the end of the stream.

        A function of its own, as Python 3.12 and later leave ``try`` at the end of a loop's turn, where a signal may
        raise.
        """
        states = self._states
        while states.state in _HANDLERS:
            need = self._wants - self._held
            if need > len(piece):
                self._hold(piece)
                return None
            taken, piece = self._complete(piece, need)
            _HANDLERS[states.state](self, taken)
        return piece

    def _hold(self, piece: Bytes) -> None:
        """Buffer a piece of an incomplete part."""
        if len(piece) >= _SMALL:
            self._pending.append(piece)
        elif len(piece):
            last = self._pending[-1] if self._pending else None
            if not isinstance(last, bytearray):
                self._pending.append(last := bytearray())
            last += piece.data
        self._held += len(piece)

    def _complete(self, piece: Bytes, need: int) -> tuple[Bytes, Bytes]:
        """Complete a part from the buffered bytes and a piece; returns the part and the rest of the piece."""
        if not self._pending:
            return piece[:need], piece[need:]
        whole = np.concatenate([np.frombuffer(part, U1) for part in (*self._pending, piece[:need])])
        whole.flags.writeable = False
        self._pending, self._held = [], 0
        return whole, piece[need:]

    def _take_prefix(self, taken: Bytes) -> None:
        modern = taken[:4].tobytes() == CONTINUATION
        if modern and len(taken) == 4:
            self._wants = 8
            self._hold(taken)
            return
        prefix = read_prefix(taken, 0, self._where, self._limits)
        if prefix is None:
            self._trailing += taken[8 if modern else 4 :].data
            self._events.append(EndEvent())
            self._states.go(END)
            return
        self._prefix_size, self._wants = prefix
        begun = taken[self._prefix_size :]  # the legacy prefix has 4 bytes; the rest is metadata
        if self._wants < len(begun):
            raise InvalidData(f"{self._where}: {self._wants} bytes of metadata")
        self._hold(begun)
        self._states.go(METADATA)

    def _take_metadata(self, taken: Bytes) -> None:
        self._message = read_message(taken, self._where, self._limits)
        self._before = self._prefix_size + len(taken)
        self._wants = self._message.body_length
        self._states.go(BODY)

    def _take_body(self, taken: Bytes) -> None:
        message, self._message = self._message, None
        assert message is not None
        before = self._stream
        after = before.after(message, taken, before.offset + self._before + len(taken))
        if isinstance(message, BatchHeader):
            event: Event = BatchEvent(before.batch(message, taken))
        elif message.kind == "DictionaryBatch":
            event = DictionaryEvent(message.header["id"], message.header["isDelta"])
        else:
            assert after.schema is not None
            event = SchemaEvent(after.schema)
        self._stream = after
        self._events.append(event)
        self._wants = self._prefix_size
        self._states.go(PREFIX)


_HANDLERS = {
    PREFIX: StreamDecoder._take_prefix,
    METADATA: StreamDecoder._take_metadata,
    BODY: StreamDecoder._take_body,
}
"""The handler of each state."""
