"""Reading streams that is interrupted at each bytecode instruction, as by a signal handler that raises, and goes on.

Invariants: an interruption leaves the old state or the new one, or a reader that has failed for good; no dictionary is
extended twice, and no batch is there twice or with the values of another one.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from forms import coded, nested_dictionaries, stream_of
from interrupts import raised

import shmarrow as sa
from shmarrow.ipc import BatchEvent, StreamDecoder

FILES = tuple(map(str, Path(sa.__file__).parent.rglob("*.py")))
STEP = int(os.environ.get("SHMARROW_TEST_STEP", "29"))
"""Cases are interrupted at every 29th instruction unless they name another step; with 1 that takes minutes."""


def batch(words: list[str], indices: list[int]) -> sa.RecordBatch:
    return sa.record_batch([coded(indices, words)], names=["d"])


def nested(words: list[str], indices: list[int]) -> sa.RecordBatch:
    """A dictionary of lists of one item, which are dictionary-encoded."""
    return nested_dictionaries(words, [[i] for i in range(len(words))], indices)


STREAMS: dict[str, list[sa.RecordBatch]] = {
    "deltas and replacements": [
        batch(["x"], [0]),
        batch(["x", "y"], [1, 0]),
        batch(["a", "b"], [0, 1]),
    ],
    "nested": [nested(["x"], [0]), nested(["x", "y"], [1, 0]), nested(["a", "b"], [1])],
}


def written(name: str) -> tuple[bytes, list[Any]]:
    """A stream, and the rows of each of its batches."""
    data = stream_of(*STREAMS[name], emit_dictionary_deltas=True)
    rows = values(STREAMS[name])
    assert values(sa.ipc.open_stream(data)) == rows  # also imports and caches what they need
    return data, rows


def values(batches: Iterable[sa.RecordBatch]) -> list[Any]:
    return [each.column(0).to_pylist() for each in batches]


def instructions(prepare: Callable[[], Callable[[], Any]], step: int = STEP) -> Iterator[int]:
    """Interrupt calls of ``prepare()`` at their first instruction, then at a later one, up to their last."""
    at = 1
    while raised(prepare(), at, FILES):
        yield at
        at += min(STEP, step)
    assert at > 100


@pytest.mark.parametrize("name", STREAMS)
def test_random_access(name: str) -> None:
    """A stream in memory is indexed step by step; what was interrupted is repeated and gives the same batches."""
    data, rows = written(name)
    reader: Any = None

    def prepare(number: int) -> Callable[[], Any]:
        nonlocal reader
        reader = sa.ipc.open_stream(data)
        if number:
            reader.get_batch(number - 1)
        return lambda: reader.get_batch(number)

    for number in range(len(rows)):
        step = 3 if name != "nested" and number > 0 else STEP  # a delta, then a replacement
        for _ in instructions(lambda number=number: prepare(number), step):  # type: ignore[misc]
            assert values(reader.get_batch(i) for i in range(len(rows))) == rows
            assert reader.num_record_batches == len(rows)


@pytest.mark.parametrize("name", STREAMS)
def test_decoding_of_a_dictionary(name: str) -> None:
    """Values are decoded when a column is first asked for; a second attempt finds what the first one left."""
    data, rows = written(name)
    batches: list[Any] = []

    def prepare() -> Callable[[], Any]:
        nonlocal batches
        batches = list(sa.ipc.open_stream(data))
        batches[0].column(0)
        return lambda: batches[-2].column(0)

    for _ in instructions(prepare):
        assert values(batches) == rows


def goes_on(rows: list[Any], number: int, rest: Callable[[], Iterator[Any]]) -> str:
    """Whether a reader interrupted in batch ``number`` is in the old or the new state, or has failed."""
    found = []
    try:
        for each in rest():
            found += values([each])
    except (sa.Failed, sa.InvalidArgument):
        assert found == []
        return "failed"
    if found == rows[number:]:
        return "old"
    assert found == rows[number + 1 :]
    return "new"


def left(reader: Any) -> Iterator[Any]:
    """The batches that the reader has not returned yet."""
    with suppress(StopIteration):
        while True:
            yield reader.read_next_batch()


def iterated(name: str, opened: Callable[[bytes], Any]) -> set[str]:
    data, rows = written(name)
    states = set()
    reader: Any = None

    def prepare(number: int) -> Callable[[], Any]:
        nonlocal reader
        reader = opened(data)
        for _ in range(number):
            reader.read_next_batch()
        return lambda: reader.read_next_batch()

    for number in range(len(rows)):
        for _ in instructions(lambda number=number: prepare(number)):  # type: ignore[misc]
            states.add(goes_on(rows, number, lambda: left(reader)))
    return states


@pytest.mark.parametrize("name", STREAMS)
def test_iteration(name: str) -> None:
    """In memory nothing is final: the batch is read again, unless it was just about to be returned."""
    assert iterated(name, sa.ipc.open_stream) == {"old", "new"}


@pytest.mark.parametrize("name", STREAMS)
def test_sequential_reading(name: str) -> None:
    """From a pipe, the position within a message is unknown afterwards, so the reader fails."""
    assert "failed" in iterated(name, lambda data: sa.ipc.open_stream(io.BufferedReader(io.BytesIO(data))))


@pytest.mark.parametrize("name", STREAMS)
def test_the_decoder(name: str) -> None:
    """A piece was not taken, or was taken, or the decoder has failed: the caller feeds it again, or the next one."""
    data, rows = written(name)
    half = len(data) // 2
    pieces = [data[:half], data[half : half + 8], data[half + 8 :]]
    decoder: Any = None

    def prepare(number: int) -> Callable[[], Any]:
        nonlocal decoder
        decoder = StreamDecoder()
        for piece in pieces[:number]:
            decoder.feed(piece)
        return lambda: decoder.feed(pieces[number])

    for number in range(len(pieces)):
        for at in instructions(lambda number=number: prepare(number)):  # type: ignore[misc]
            outcomes = []
            for first in (number, number + 1):
                raised(prepare(number), at, FILES)
                try:
                    for piece in pieces[first:]:
                        decoder.feed(piece)
                    decoder.close()
                    found = values(event.batch for event in decoder if isinstance(event, BatchEvent))
                    outcomes.append("right" if found == rows else "wrong")
                except sa.ShmarrowError as error:
                    outcomes.append("failed" if isinstance(error, sa.Failed) else "wrong")
            assert outcomes == ["failed", "failed"] or "right" in outcomes
