"""The cache of schemas: bounded by the memory that it takes, least recently used out first, for threads and forks."""

from __future__ import annotations

import io
import os
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.schema import cache
from shmarrow.ipc.schema.cache import SchemaCache
from shmarrow.ipc.schema.lazy import lazy_schema


def stream(name: str, count: int, type: Any = None) -> bytes:
    sink = io.BytesIO()
    schema = sa.schema([sa.field(f"{name}{i:05}", type or sa.float64()) for i in range(count)])
    sa.ipc.new_stream(sink, schema).close()
    return sink.getvalue()


def entry(number: int, columns: int = 3) -> tuple[bytearray, sa.Schema, Any]:
    """A schema that was read, with its bytes and its source."""
    data = bytearray(stream(f"{number} ", columns)[8:-8])
    reader = Reader(np.frombuffer(data, np.uint8), "test")
    source = lazy_schema(reader.root("Message")["header"][1])
    return data, sa.Schema(source=source), source


def held_by(own: SchemaCache) -> int:
    return sum([entry.size for entry in own._order])


def test_the_least_recently_used_goes_first() -> None:
    entries = [entry(i) for i in range(4)]
    size = len(entries[0][0]) + 4096 + 3 * 64
    own = SchemaCache(3 * size)
    for data, schema, source in entries[:3]:
        own.add("key", data, schema, source)
    assert own.held == 3 * size
    assert own.find("key", memoryview(entries[0][0])) is entries[0][1]
    own.add("key", *entries[3])
    found = [own.find("key", memoryview(data)) for data, _, _ in entries]
    assert found == [entries[0][1], None, entries[2][1], entries[3][1]]
    assert own.find("other", memoryview(entries[0][0])) is None
    assert own.held == held_by(own) == 3 * size


def test_fields_that_are_made_later_count() -> None:
    own = SchemaCache(1 << 20)
    added = [entry(i, 200) for i in range(10)]
    for number, (data, schema, source) in enumerate(added):
        own.add(number, data, schema, source)
    assert len(own) == 10
    before = own.held
    for _, schema, _ in added:
        assert len(schema.fields) == 200
        assert held_by(own) == own.held <= 1 << 20
    assert own.held > 3 * before
    assert len(own) < 10
    own.add("one", *entry(11, 3))
    assert held_by(own) == own.held


def test_one_that_is_too_large_is_not_kept() -> None:
    own = SchemaCache(10_000)
    own.add(0, *entry(0, 3))
    data, schema, source = entry(1, 1000)
    own.add(1, data, schema, source)
    assert (len(own), own.held) == (0, 0)
    assert len(schema.fields) == 1000
    assert own.held == 0


@pytest.mark.parametrize("count", [200, 1_000])
@pytest.mark.parametrize("type", [sa.float64(), sa.list_(sa.int32()), sa.dictionary("int8", "string")], ids=str)
def test_what_is_counted_is_what_is_held(count: int, type: sa.DataType) -> None:
    """By tracemalloc: neither less than is held, but for a fifth, nor so much that the cache is of no use."""
    data = [stream(f"{count} {type} {turn} ", count, type) for turn in range(3)]
    assert len(sa.ipc.open_stream(data[0]).schema.fields) == count
    cached = [id(entry) for entry in cache._CACHE._order]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for each in data[1:]:
            assert len(sa.ipc.open_stream(each).schema.fields) == count
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = sum([entry.size for entry in cache._CACHE._order if id(entry) not in cached])
    assert 0.8 * held < counted < 4 * held
    assert cache._CACHE.held <= cache.CACHE_BYTES


def test_threads_agree_on_schemas_and_on_bytes() -> None:
    data = [stream(f"threads {i} ", 60) for i in range(12)]
    names = [[f"threads {i} {k:05}" for k in range(60)] for i in range(12)]
    own = SchemaCache(400_000)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(seed: int) -> None:
        for turn in range(60):
            number = (seed * 7 + turn * 5) % 12
            schema = sa.ipc.open_stream(data[number]).schema
            assert schema.names == names[number]
            assert schema.field(turn % 60).name == names[number][turn % 60]
            assert schema.get_field_index(names[number][59]) == 59
            made, built, source = entry(turn, 20)
            own.add(turn, made, built, source)
            assert len(built.fields) == 20
            found = own.find(turn, memoryview(made))
            assert found is None or found == built

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert held_by(own) == own.held <= 400_000
    assert held_by(cache._CACHE) == cache._CACHE.held
    assert sorted(map(len, own._entries.values())) != []
    assert sum(map(len, own._entries.values())) == len(own)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_busy_process_goes_on_with_the_cache() -> None:
    """The lock is free and the books are right in each child, though threads hold the lock most of the time."""
    data = [stream(f"fork {i} ", 30) for i in range(4)]
    stop = False

    def busy() -> None:
        turn = 0
        while not stop:
            turn += 1
            assert len(sa.ipc.open_stream(data[turn % 4]).schema.fields) == 30
            with cache._CACHE._lock:
                assert held_by(cache._CACHE) == cache._CACHE.held

    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(busy) for _ in range(2)]
        try:
            for _ in range(20):
                pid = os.fork()
                if not pid:
                    code = 1
                    try:
                        good = held_by(cache._CACHE) == cache._CACHE.held
                        good &= len(sa.ipc.open_stream(data[0]).schema.fields) == 30
                        good &= len(sa.ipc.open_stream(stream("child ", 3)).schema.fields) == 3
                        code = 0 if good else 2
                    finally:
                        os._exit(code)
                assert os.waitpid(pid, 0)[1] == 0
        finally:
            stop = True
        for thread in threads:
            thread.result()


def test_equal_keys_and_other_bytes_are_told_apart() -> None:
    """The key has a schema's size, and its first and last bytes; the names in the middle make the difference."""
    names = [f"column {i:05}" for i in range(500)]
    others = [*names]
    others[250] = "COLUMN 00250"
    schemas = []
    for each in (names, others, names, others):
        sink = io.BytesIO()
        sa.ipc.new_stream(sink, sa.schema([(name, sa.int8()) for name in each])).close()
        schemas.append(sa.ipc.open_stream(sink.getvalue()).schema)
        assert schemas[-1].names == each
    assert schemas[0] is schemas[2]
    assert schemas[1] is schemas[3]
    assert schemas[0] is not schemas[1]
