"""The push decoder: eager, in pieces of any size, and what it says at the end of a stream and after an error."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from typing import Any

import forms
import numpy as np
import pytest
from forms import numbers, stream_of

import shmarrow as sa
from shmarrow.ipc import BatchEvent, DictionaryEvent, EndEvent, SchemaEvent, StreamDecoder
from shmarrow.testing import table as cases


def names_of(events: Any) -> list[str]:
    return [type(event).__name__ for event in events]


def test_feeding_alone_takes_bytes_in() -> None:
    """What was fed is parsed, whether or not anybody asks for events in between; closing loses none."""
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


@pytest.mark.parametrize("form", ["stream-plain", "stream-legacy"])
@pytest.mark.parametrize("size", [1, 3, 7, 64, 1 << 20])
def test_what_follows_the_end_is_trailing_data(form: str, size: int) -> None:
    batch = numbers()
    data = forms.write(form, [batch], batch.schema)
    extra = b"what comes next"
    decoder = StreamDecoder()
    both = data + extra
    for start in range(0, len(both), size):
        decoder.feed(both[start : start + size])
    assert names_of(decoder) == ["SchemaEvent", "BatchEvent", "EndEvent"]
    assert decoder.trailing_data == extra
    assert decoder.wants == 0
    decoder.feed(b" and more")
    assert decoder.trailing_data == extra + b" and more"
    assert list(decoder) == []


def test_two_streams_one_behind_the_other() -> None:
    one, two = numbers(3), numbers(5)
    first, second = StreamDecoder(), StreamDecoder()
    first.feed(stream_of(one) + stream_of(two))
    second.feed(first.trailing_data)
    assert [event.batch.num_rows for d in (first, second) for event in d if isinstance(event, BatchEvent)] == [3, 5]


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


def test_closing_says_what_is_missing() -> None:
    data = stream_of(numbers())
    decoder = StreamDecoder(where="a peer")
    decoder.feed(data[:-20])
    missing = decoder.wants
    with pytest.raises(sa.InvalidData, match=rf"a peer: the stream ends within a message's body: {missing} of \d+"):
        decoder.close()
    assert names_of([decoder.next_event()]) == ["SchemaEvent"]
    with pytest.raises(sa.Failed, match=r"a message's body"):
        decoder.close()


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
    batch = sa.record_batch({"x": np.arange(1 << 16)})
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


def test_pieces_large_and_small_in_turn() -> None:
    batch = sa.record_batch({"x": np.arange(100_000)})
    data = stream_of(batch)
    decoder = StreamDecoder()
    at = 0
    for size in [1, 9000, 3, 5, 100_000, 7] * 20:
        decoder.feed(data[at : at + size])
        at += size
    assert [event.batch.equals(batch) for event in decoder if isinstance(event, BatchEvent)] == [True]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_decoder_is_not_copied(copied: Any) -> None:
    with pytest.raises(sa.InvalidType, match="StreamDecoder cannot be pickled or copied"):
        copied(StreamDecoder())
