"""The work of other processes on the objects that they get, for ``test_handles.py``; it imports little."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from parts import dictionary_of

import shmarrow as sa


def memory(thing: Any) -> Iterator[Any]:
    """The ndarrays of all parts that are not empty."""
    if isinstance(thing, (sa.Table, sa.RecordBatch)):
        parts: Any = thing.columns
    elif isinstance(thing, sa.ChunkedArray):
        parts = thing.chunks
    elif isinstance(thing, sa.Array):
        yield from (data for data in thing.buffers() if data is not None and len(data))
        parts = [each for each in (dictionary_of(thing),) if each is not None]
    else:
        yield thing.storage
        parts = []
    for part in parts:
        yield from memory(part)


def mapped(thing: Any) -> set[str]:
    """The files that the memory of an object lies in, as the kernel sees it; empty text for memory without a file."""
    ranges = []
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            words = line.split(None, 5)
            low, high = (int(end, 16) for end in words[0].split("-"))
            ranges.append((low, high, words[5].strip() if len(words) > 5 and "/" in words[5] else ""))
    found = set()
    for array in memory(thing):
        address = array.__array_interface__["data"][0]
        found |= {name for low, high, name in ranges if low <= address < high}
    return found


def look(thing: Any) -> tuple[int, set[str], int, Any]:
    """The view of a worker: its process, the files, the length, the first value."""
    values = thing.column(0) if isinstance(thing, (sa.Table, sa.RecordBatch)) else thing
    first = values[0] if len(values) else None
    return os.getpid(), mapped(thing), len(thing), first


def look_opened(handle: sa.Handle[Any]) -> tuple[int, set[str], int, Any]:
    """The view of a worker of what a handle leads to."""
    return look(handle.open())


def hand_back(thing: Any) -> Any:
    return thing


class Removes:
    """Removes an object of a store while the message that contains it is pickled."""

    def __init__(self, store: str, name: str) -> None:
        self.store, self.name = store, name

    def __reduce__(self) -> tuple[Any, ...]:
        sa.Store(self.store).delete(self.name)
        return str, ()


def made_and_removed(store: str) -> Any:
    """A result whose object is gone before anybody receives it."""
    sa.Store(store).put("result", sa.record_batch({"x": range(1000)}))
    return sa.Store(store).get("result"), Removes(store, "result")


def rows_of_first(pair: Any) -> int:
    return int(pair[0].num_rows)


def put_into(queue: Any, thing: Any) -> None:
    queue.put(thing)
