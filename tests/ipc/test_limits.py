"""Limits of a reader: per column, per reader and per operation, whoever else reads at the same time.

No operation uses up what another one may count on, so what is valid stays readable, however often it is asked for.
"""

from __future__ import annotations

import io
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forms import peers_file, peers_stream

import shmarrow as sa
from shmarrow.ipc.flatbuffers import builder
from shmarrow.ipc.flatbuffers.builder import Built
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.schema.lazy import LazySchema, lazy_schema

ROWS = 10_000
SIZE = 8 * ROWS  # of one column of int64, decompressed


def file_of(columns: dict[str, Any], codec: str | None = "lz4") -> bytes:
    return peers_file(pa.record_batch(columns), compression=codec)


def numbers(seed: int) -> Any:
    return pa.array(np.arange(ROWS) % 100 + seed)


def opened(data: bytes, **limits: int) -> Any:
    return sa.ipc.open_file(data, limits=sa.ipc.Limits(**limits)).get_batch(0)


ASKED: dict[str, Callable[[Any], Any]] = {
    "column": lambda batch: batch.column(1),
    "columns": lambda batch: batch.columns[1],
    "slice": lambda batch: batch.slice(0, 1).columns[1],
    "select": lambda batch: batch.select([0, 1]).columns[1],
}


# --- decompressed bytes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("how", ASKED)
def test_decompressed_bytes_are_counted_by_column(how: str, codec: str) -> None:
    """A batch of many columns may hold more than the limit; one column with its children may not, however it is had."""
    data = file_of({f"c{i}": numbers(i) for i in range(20)}, codec)
    assert ASKED[how](opened(data, decompressed_bytes=SIZE)).to_pylist()[:1] == [1]
    with pytest.raises(sa.LimitExceeded, match=rf"declare {SIZE} bytes, more than .*decompressed_bytes = {SIZE - 1}"):
        ASKED[how](opened(data, decompressed_bytes=SIZE - 1))
    pairs = pa.StructArray.from_arrays([numbers(0), numbers(1)], ["x", "y"])
    data = file_of({"a": numbers(0), "b": pairs}, codec)
    assert ASKED[how](opened(data, decompressed_bytes=2 * SIZE)).to_pylist()[:1] == [{"x": 0, "y": 1}]
    with pytest.raises(sa.LimitExceeded, match=rf"declare {2 * SIZE} bytes, more than"):
        ASKED[how](opened(data, decompressed_bytes=2 * SIZE - 1))


def test_a_column_may_become_1000_times_its_compressed_size_by_default() -> None:
    """The claimed size counts: 3 MB of noise may claim 1,000 times as much, and then turn out to be less."""
    rows = 3 << 17
    noise = np.random.default_rng(5).integers(0, 1 << 63, rows)
    data = file_of({"x": pa.array(noise)}, "zstd")
    size = (8 * rows).to_bytes(8, "little")
    assert data.count(size) == 1
    block = next(iter(pa.ipc.open_file(data).get_batch(0).column(0).buffers()[1:]))
    assert block.size == 8 * rows
    claim = 1000 * len(data)
    with pytest.raises(
        sa.LimitExceeded, match=rf"declare {claim} bytes, more than Limits.decompressed_bytes = \d+; if"
    ):
        sa.ipc.open_file(data.replace(size, claim.to_bytes(8, "little"))).get_batch(0).column(0)
    assert sa.ipc.open_file(data).get_batch(0).column(0).to_numpy()[-1] == noise[-1]


@pytest.mark.parametrize("depth", [97, 2000])
def test_a_limit_that_recursion_does_not_allow_is_refused(depth: int) -> None:
    with pytest.raises(sa.InvalidArgument, match=rf"Limits.depth must be at most 96, found {depth}"):
        sa.Limits(depth=depth)


@pytest.mark.parametrize("nest", [lambda type: sa.list_(type), lambda type: sa.struct([("x", type)])])
def test_types_of_the_largest_depth_can_be_used(nest: Callable[[Any], Any]) -> None:
    type = sa.int8()
    for _ in range(95):
        type = nest(type)
    sink = io.BytesIO()
    batch = sa.record_batch([sa.nulls(2, type)], names=["x"])
    with sa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    column = sa.ipc.open_stream(sink.getvalue(), limits=sa.Limits(depth=96)).read_all().column("x").chunk(0)
    column.validate(full=True)
    assert column.to_pylist() == [None, None]
    assert column.take([1, 0]).equals(column)
    assert sa.concat_arrays([column, column]).null_count == 4
    assert "null" in str(column)


def test_a_claim_that_no_frame_can_keep_takes_no_memory() -> None:
    """A size that is far beyond what the codec reaches is refused, and names the buffer."""
    data = bytearray(file_of({"a": numbers(0)}))
    claim = np.array([SIZE], "<i8").tobytes() + b"\x04\x22\x4d\x18"
    assert data.count(claim) == 1
    at = data.index(claim)
    data[at : at + 8] = np.array([1 << 35], "<i8").tobytes()
    with pytest.raises(sa.InvalidData, match=r"column 0 'a': compressed buffer 1: \d+ bytes of LZ4_FRAME cannot hold"):
        opened(bytes(data)).column(0)


# --- dictionaries -----------------------------------------------------------------------------------------------------

WORDS = [f"a word of this length {i:06}" for i in range(1000)]


def words(start: int) -> Any:
    return pa.array([f"{word}{start}" for word in WORDS]).dictionary_encode()


WORD_BYTES = 4 * 1001 + sum(len(word) + 1 for word in WORDS)


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_dictionary_bytes_are_counted_by_reader(codec: str | None) -> None:
    """All dictionaries of a reader count together, each once, over all of its batches."""
    data = file_of({name: words(i) for i, name in enumerate("abc")}, codec)
    for most, readable in ((3 * WORD_BYTES, 3), (3 * WORD_BYTES - 1, 2), (WORD_BYTES, 1), (WORD_BYTES - 1, 0)):
        reader = sa.ipc.open_file(data, limits=sa.ipc.Limits(dictionary_bytes=most))
        for _ in range(2):
            batch = reader.get_batch(0)
            for i in range(readable):
                assert batch.column(i).to_pylist()[-1] == f"{WORDS[-1]}{i}"
            for i in range(readable, 3):
                with pytest.raises(sa.LimitExceeded, match=rf"Limits.dictionary_bytes = {most}"):
                    batch.column(i)
    with pytest.raises(sa.LimitExceeded, match="dictionary_bytes"):
        sa.ipc.open_file(data, limits=sa.ipc.Limits(dictionary_bytes=3 * WORD_BYTES - 1)).read_all().to_pydict()


def stream_of(arrays: list[Any], deltas: bool = False) -> bytes:
    return peers_stream(*[pa.record_batch([array], ["d"]) for array in arrays], emit_dictionary_deltas=deltas)


@pytest.mark.parametrize("source", [lambda data: data, io.BytesIO, lambda data: io.BufferedReader(io.BytesIO(data))])
def test_a_dictionary_that_is_replaced_no_longer_counts(source: Callable[[bytes], Any]) -> None:
    """A stream may bring any number of dictionaries of one id, each within the limit."""
    data = stream_of([words(i) for i in range(9)])
    limits = sa.ipc.Limits(dictionary_bytes=WORD_BYTES)
    for i, batch in enumerate(sa.ipc.open_stream(source(data), limits=limits)):
        assert batch.column(0).to_pylist()[-1] == f"{WORDS[-1]}{i}"
    with pytest.raises(sa.LimitExceeded, match=r"Limits.dictionary_bytes"):
        next(sa.ipc.open_stream(source(data), limits=limits.replace(dictionary_bytes=WORD_BYTES - 1))).column(0)


def test_deltas_count_with_what_they_add_to() -> None:
    grown = [pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(WORDS[:count])) for count in (250, 500, 750, 1000)]
    data = stream_of(grown, deltas=True)
    sizes = [sum(map(len, WORDS[:count])) + 4 * (count + 1) for count in (250, 500, 750, 1000)]
    for readable, most in enumerate(sizes, 1):
        batches = list(sa.ipc.open_stream(data, limits=sa.ipc.Limits(dictionary_bytes=most)))
        for i, batch in enumerate(batches):
            if i < readable:
                assert len(batch.column(0).dictionary) == (250, 500, 750, 1000)[i]
            else:
                with pytest.raises(sa.LimitExceeded, match=rf"Limits.dictionary_bytes = {most}"):
                    batch.column(0)


def test_versions_of_a_dictionary_in_threads() -> None:
    """Later versions do not change what earlier batches say, whoever asks first."""
    counts = list(range(1, 200, 7))
    grown = [pa.DictionaryArray.from_arrays(pa.array([n - 1]), pa.array(WORDS[:n])) for n in counts]
    data = stream_of(grown, deltas=True)
    expected = [[WORDS[n - 1]] for n in counts]
    batches = list(sa.ipc.open_stream(data, limits=sa.ipc.Limits(dictionary_bytes=1 << 20)))
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(
            target=lambda seed=seed: found.update(
                {seed: [batches[(i + seed) % len(counts)].column(0).to_pylist() for i in range(len(counts))]}
            )
        )
        for seed in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: expected[seed:] + expected[:seed] for seed in range(8)}


def test_threads_that_read_dictionaries_count_them_once() -> None:
    data = file_of({f"d{i}": words(i) for i in range(6)})
    for _ in range(5):
        reader = sa.ipc.open_file(data, limits=sa.ipc.Limits(dictionary_bytes=6 * WORD_BYTES))
        refused: list[Any] = []
        barrier = threading.Barrier(8)

        def work(reader: Any = reader, refused: list[Any] = refused, barrier: Any = barrier) -> None:
            barrier.wait()
            try:
                batch = reader.get_batch(0)
                assert [column[0] for column in batch.columns] == [f"{WORDS[0]}{i}" for i in range(6)]
            except Exception as error:
                refused.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refused == []


def test_dictionary_bytes_hold_before_anything_is_decompressed() -> None:
    """A few kB that claim a dictionary of 64 MiB are refused by what they claim."""
    claimed = 64 << 20
    words = pa.array(np.zeros(claimed, "u1"))
    data = file_of({"d": pa.DictionaryArray.from_arrays(pa.array([0, 0]), words)}, "zstd")
    assert len(data) < 1 << 16
    limits = sa.ipc.Limits(dictionary_bytes=1 << 20)
    batch = sa.ipc.open_file(data, limits=limits).get_batch(0)
    with pytest.raises(sa.LimitExceeded, match=rf"declare {claimed} bytes.* Limits.dictionary_bytes = {1 << 20}"):
        batch.column(0)
    assert sa.ipc.open_file(data).get_batch(0).column(0).to_pylist() == [0, 0]


# --- one operation after another --------------------------------------------------------------------------------------

# Schemas are cached by their bytes and shared by all readers of a process: what one operation used up of them would be
# missing for the next one.


def shared(count: int, **values: Any) -> LazySchema:
    """Many references to one field."""
    made = builder.new_builder()
    field = builder.add_table(made, "Field", values)
    fields = Built(builder.add_offsets(made, [field] * count))
    root = builder.add_table(made, "Schema", {"fields": fields})
    data = np.frombuffer(builder.finish(made, root), np.uint8)
    return lazy_schema(Reader(data, "test").root("Schema"))


@pytest.mark.parametrize("ask_for", ["fields", "names", "dictionary_layouts"])
def test_many_fields_that_are_one_are_refused_in_one_operation(ask_for: str) -> None:
    """2,000 references to a field with 40,000 bytes of text would make 80 MB out of 48 kB."""
    type = ("Timestamp", {"unit": 0, "timezone": "UTC" * 10})
    name, value = ("n" * 40_000, "v") if ask_for == "names" else ("n", "v" * 40_000)
    schema = shared(2_000, name=name, type=type, children=[], custom_metadata=[{"key": "k", "value": value}])
    for _ in range(3):
        with pytest.raises(sa.LimitExceeded, match="16 times"):
            getattr(schema, ask_for)()


def test_fields_that_are_one_are_read_one_by_one_without_being_held() -> None:
    schema = shared(
        2_000,
        name="n",
        type=("Timestamp", {"unit": 0, "timezone": "UTC"}),
        children=[],
        custom_metadata=[{"key": "k", "value": "v" * 40_000}],
    )
    tracemalloc.start()
    try:
        for i in range(len(schema)):
            assert len((schema.field(i).metadata or {})[b"k"]) == 40_000
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 16e6


def test_limits_tables_counts_those_of_one_operation() -> None:
    sink = io.BytesIO()
    sa.ipc.new_stream(sink, sa.schema([sa.field(f"c{i}", sa.list_(sa.int8())) for i in range(30)])).close()
    with pytest.raises(sa.LimitExceeded, match=r"Limits\.tables"):
        _ = sa.ipc.open_stream(sink.getvalue(), limits=sa.Limits(tables=60)).schema.fields
    schema = sa.ipc.open_stream(sink.getvalue(), limits=sa.Limits(tables=61)).schema
    for _ in range(100):
        assert schema.field(29).type == sa.list_(sa.int8())  # of four tables
