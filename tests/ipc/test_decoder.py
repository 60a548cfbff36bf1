"""The push decoder: eager, in pieces of any size, and what it says at the end of a stream and after an error."""

from __future__ import annotations

import tracemalloc
from typing import Any

import forms
import numpy as np
import pytest
from cases import table as cases
from forms import numbers, stream_of
from wire import messages

import shmarrow as sa
from shmarrow.ipc import BatchEvent, DictionaryEvent, EndEvent, SchemaEvent, StreamDecoder


def names_of(events: Any) -> list[str]:
    return [type(event).__name__ for event in events]


def test_feeding_alone_takes_bytes_in() -> None:
    """Bytes are parsed whether or not anybody asks for events in between; closing loses none."""
    batch = numbers()
    data = stream_of(batch, batch)
    decoder = StreamDecoder()
    assert decoder.feed(data[:1000]) is None
    assert decoder.schema == batch.schema
    decoder.feed(data[1000:])
    assert decoder.ended
    first = decoder.next_event()
    assert first == SchemaEvent(batch.schema)
    decoder.close()
    rest = list(decoder)
    assert names_of(rest) == ["BatchEvent", "BatchEvent", "EndEvent"]
    assert all(event.batch.equals(batch) for event in rest[:2])
    assert decoder.next_event() is None


def test_events_come_as_soon_as_their_last_byte() -> None:
    batch = forms.batch_of(cases.case("dictionary-int8-nulls"))
    data = stream_of(batch)
    ends = []
    decoder = StreamDecoder()
    for at in range(len(data)):
        before = decoder.wants
        decoder.feed(data[at : at + 1])
        if (event := decoder.next_event()) is not None:
            assert before == 1
            ends.append((type(event), at + 1))
            assert decoder.next_event() is None
    assert [kind for kind, _ in ends] == [SchemaEvent, DictionaryEvent, BatchEvent, EndEvent]
    assert ends[-1][1] == len(data)


GROUPS = forms.together(forms.WRITABLE)


@pytest.mark.parametrize("form", ["stream-plain", "stream-legacy", "stream-lz4", "stream-big-zstd"])
@pytest.mark.parametrize("size", [1, 13, "as much as is wanted", 1 << 20])
def test_pieces_of_any_size_and_what_follows_the_end(form: str, size: Any) -> None:
    for batch in GROUPS[:: 3 if size in (1, 13) else 1]:
        data = forms.write(form, [batch, batch.slice(1)], batch.schema)
        both = data + b"what comes next"
        decoder, at = StreamDecoder(), 0
        while at < len(both):
            step = size if isinstance(size, int) else decoder.wants or len(both)
            decoder.feed(both[at : at + step])
            at += step
        events = list(decoder)
        assert (type(events[0]), type(events[-1])) == (SchemaEvent, EndEvent)
        first, second = [event.batch for event in events if isinstance(event, BatchEvent)]
        assert (first.equals(batch), second.equals(batch.slice(1))) == (True, True)
        assert (decoder.trailing_data, decoder.wants) == (b"what comes next", 0)
        decoder.feed(b" and more")
        assert decoder.trailing_data == b"what comes next and more"
        assert list(decoder) == []


def test_bytes_that_come_in_one_piece_are_not_copied() -> None:
    data = np.frombuffer(stream_of(numbers(1000)), "u1")
    decoder = StreamDecoder()
    decoder.feed(data)
    (batch,) = [event.batch for event in decoder if isinstance(event, BatchEvent)]
    assert np.shares_memory(batch.column(0).to_numpy(), data)


@pytest.mark.parametrize("form", ["stream-plain", "stream-legacy"])
def test_closing_says_where_a_stream_is_cut(form: str) -> None:
    batch = numbers()
    data = forms.write(form, [batch], batch.schema)
    mark = 4 if form == "stream-legacy" else 8
    ends = {0, *[at for at, _, _, _ in messages(data)], len(data) - mark, len(data)}
    for size in range(len(data) + 1):
        decoder = StreamDecoder()
        decoder.feed(data[:size])
        if not size:
            with pytest.raises(sa.InvalidData, match="the stream ends before its schema"):
                decoder.close()
        elif size in ends:
            decoder.close()
            assert decoder.ended
        else:
            with pytest.raises(sa.InvalidData, match=r"the stream ends within .* bytes are missing"):
                decoder.close()


def test_an_error_is_said_at_once_and_named_afterwards() -> None:
    batch = numbers()
    good = stream_of(batch)
    decoder = StreamDecoder()
    with pytest.raises(sa.InvalidData, match="-7 bytes") as first:
        decoder.feed(good[:-8] + b"\xff\xff\xff\xff\xf9\xff\xff\xff" + good)
    assert decoder.next_event() == SchemaEvent(batch.schema)
    event = decoder.next_event()
    assert isinstance(event, BatchEvent)
    assert event.batch.equals(batch)
    for again in (decoder.next_event, decoder.close, lambda: decoder.feed(good), lambda: list(decoder)):
        with pytest.raises(sa.Failed) as later:
            again()
        assert str(first.value) in str(later.value)
    assert not decoder.ended
    assert decoder.wants == 0


def test_closed_between_messages() -> None:
    data = stream_of(numbers())
    decoder = StreamDecoder()
    decoder.feed(data[:-8])
    decoder.close()
    decoder.close()
    assert decoder.ended
    with pytest.raises(sa.Closed, match="closed"):
        decoder.feed(data[-8:])
    assert names_of(decoder) == ["SchemaEvent", "BatchEvent"]


def test_what_is_no_bytes_changes_nothing() -> None:
    batch = numbers()
    data = stream_of(batch)
    decoder = StreamDecoder()
    decoder.feed(data[:100])
    with pytest.raises(sa.InvalidType, match="bytes-like"):
        decoder.feed("text")
    decoder.feed(data[100:])
    assert names_of(decoder) == ["SchemaEvent", "BatchEvent", "EndEvent"]


def test_small_pieces_cost_what_their_bytes_do() -> None:
    """A body that comes in pieces of 16 bytes takes about twice its size, not an object for each piece."""
    batch = sa.record_batch({"x": np.arange(1 << 14)})
    data = np.frombuffer(stream_of(batch), "u1")
    decoder = StreamDecoder()
    tracemalloc.start()
    try:
        for start in range(0, len(data), 16):
            decoder.feed(data[start : start + 16])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (got,) = [event.batch for event in decoder if isinstance(event, BatchEvent)]
    assert got.equals(batch)
    assert peak < 3 * len(data)
