"""From the C data and stream interfaces: what other libraries hand over, and structures that break the rules.

Invariants: expected values come from the library that hands over, or are written down; broken structures are laid
out by hand.
"""

from __future__ import annotations

import ctypes
import gc
import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from cases.table import CASES
from forms import broken_file
from processes import ended, forked, python

import shmarrow as sa
from shmarrow.columns.batch import batch_of
from shmarrow.layout.c_array import array_from_capsules, rows_from_capsules
from shmarrow.layout.c_stream import open_stream
from shmarrow.types.c_schema import ARRAY, SCHEMA, STREAM, field_from_capsule, schema_from_capsule

pa = pytest.importorskip("pyarrow")
na = pytest.importorskip("nanoarrow")
pl = pytest.importorskip("polars")

# --- what others hand over ------------------------------------------------------------------------------------------


def test_types_of_nanoarrow_are_those_of_its_format_strings() -> None:
    for case in CASES:
        theirs = na.c_schema(case.type)
        assert field_from_capsule(theirs.__arrow_c_schema__()).type == case.type
        assert sa.schema(na.c_schema(sa.schema({"x": case.type}))).field("x").type == case.type


def test_frames_of_polars_in_several_chunks() -> None:
    """Columns of each type come from Polars, DuckDB, nanoarrow and arro3 in ``parity/test_other_libraries.py``."""
    frame = pl.DataFrame({"s": ["a", None, "longer than twelve bytes"], "n": [None] * 3, "l": [[1, None], [], None]})
    whole = pl.concat([frame, frame.slice(1)], rechunk=False)
    ours = sa.table(whole)
    ours.validate(full=True)
    assert ours.to_pydict() == sa.record_batch(whole).to_pydict() == whole.to_dict(as_series=False)
    assert sum(batch.num_rows for batch in ours.batches) == 5


def test_schemas_and_arrays_of_arro3() -> None:
    arro3 = pytest.importorskip("arro3.core")
    source = pa.table({"a": [1, None], "s": ["x", None]}, metadata={"k": "v"})
    assert sa.table(arro3.Table(source)).schema.metadata == {b"k": b"v"}
    assert sa.array(arro3.Array(source["a"].chunk(0))).to_pylist() == [1, None]
    assert sa.schema(arro3.Schema(source.schema)) == sa.schema(source.schema)


@pytest.mark.parametrize("offset", [0, 1, 9])
def test_nulls_and_offsets_of_rows(offset: int) -> None:
    """Rows that are null make every column null; the offset of the rows is not that of the columns."""
    fields = [pa.array(range(20)).slice(3), pa.array([str(i) for i in range(17)])]
    rows = pa.StructArray.from_arrays(fields, ["i", "s"], mask=pa.array([i % 3 == 0 for i in range(17)])).slice(offset)
    batch = sa.record_batch(rows)
    expected = [row or {"i": None, "s": None} for row in rows.to_pylist()]
    assert batch.to_pylist() == expected
    whole = pa.StructArray.from_arrays(fields, ["i", "s"]).slice(offset)
    ours = sa.record_batch(whole)
    assert ours.to_pylist() == whole.to_pylist()
    assert ours.column(0).to_numpy().ctypes.data == fields[0].to_numpy().ctypes.data + 8 * offset


def test_metadata_and_extension_types() -> None:
    field = pa.field("u", pa.uuid(), nullable=False, metadata={"own": "kept"})
    theirs = pa.schema([field, pa.field("d", pa.dictionary(pa.int8(), pa.string(), ordered=True))], {"k": b"\xff\x00"})
    ours = sa.schema(theirs)
    assert (ours.metadata, ours.field("u").metadata) == ({b"k": b"\xff\x00"}, {b"own": b"kept"})
    assert ours.field("u") == sa.field("u", sa.uuid(), nullable=False)
    assert ours.field("d").type == sa.dictionary(sa.int8(), sa.string(), ordered=True)


# --- where they are accepted ----------------------------------------------------------------------------------------


def test_everywhere_that_ours_are(tmp_path: Any) -> None:
    batch = pa.record_batch({"a": [1, 2]})
    assert sa.array([1], pa.int8()).type == sa.int8()
    assert sa.list_(pa.field("e", pa.int8(), nullable=False)) == sa.list_(sa.field("e", sa.int8(), nullable=False))
    assert sa.struct({"x": pa.string()}) == sa.struct({"x": sa.string()})
    assert sa.field(pa.field("x", pa.int8())) == sa.field("x", sa.int8())
    assert sa.schema([pa.field("x", pa.int8()), ("y", pa.string())]) == sa.schema({"x": sa.int8(), "y": sa.string()})
    table = sa.table({"a": [1, 2]})
    assert table.cast(pa.schema({"a": pa.int8()})).schema == sa.schema({"a": sa.int8()})
    assert table.append_column("b", pa.chunked_array([["x"], ["y"]])).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    assert table.append_column(pa.field("b", pa.int8()), pa.array([3, 4])).schema.field("b").type == sa.int8()
    assert sa.chunked_array(pa.chunked_array([[1], [2, 3]])).num_chunks == 2
    assert sa.chunked_array(pl.Series([1, 2]), sa.int8()).type == sa.int8()
    assert sa.Table.from_batches([batch, batch]).num_rows == 4
    assert sa.table([batch, batch], schema=pa.schema({"a": pa.int8()})).column("a").type == sa.int8()
    assert sa.table(pl.DataFrame({"a": [1]}), schema=sa.schema({"a": sa.int8()})).schema.types == [sa.int8()]
    reader = sa.RecordBatchReader.from_stream(batch, schema=pa.schema({"a": pa.float64()}))
    assert (reader.schema.types, reader.read_all().to_pydict()) == ([sa.float64()], {"a": [1.0, 2.0]})
    with sa.ipc.new_file(tmp_path / "x.arrow", batch.schema) as writer:
        writer.write(batch)
        writer.write(pl.DataFrame({"a": [3]}))
        writer.write(pa.RecordBatchReader.from_batches(batch.schema, [batch]))
        writer.write_batch(batch, {"k": "v"})
        writer.write_table(pa.table(batch), max_chunksize=1)
    with sa.ipc.open_file(tmp_path / "x.arrow") as file:
        assert file.read_all().to_pydict() == {"a": [1, 2, 3, 1, 2, 1, 2, 1, 2]}
        assert file.num_record_batches == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sa.table(pl.LazyFrame({"a": [1]})), r"found polars.LazyFrame; call .collect\(\) first"),
        (lambda: sa.array([1], pa.field("x", pa.int8())), r"expected a type, found pyarrow.Field; pass its .type"),
        (lambda: sa.array([1], pa.schema([])), r"expected a type, found pyarrow.Schema"),
        (lambda: field_from_capsule(pa.array([1]).__arrow_c_array__()[1]), r"expected a PyCapsule named"),
        (lambda: schema_from_capsule(pa.int8().__arrow_c_schema__()), r"int8"),
    ],
    ids=["lazy-table", "field", "schema", "capsule", "type"],
)
def test_what_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(sa.InvalidType, match=message):
        call()


def test_a_producer_that_refuses() -> None:
    class Refusing:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            raise RuntimeError("read already")

    with pytest.raises(
        sa.InvalidArgument, match=r"__arrow_c_stream__\(\) failed: RuntimeError: read already"
    ) as caught:
        sa.table(Refusing())
    assert isinstance(caught.value.__cause__, RuntimeError)


# --- streams --------------------------------------------------------------------------------------------------------

ONE = pa.schema({"x": pa.int64()})


def counting(pulled: list[int], stop: int, error: Exception | None = None) -> Any:
    """A reader of pyarrow over a generator of Python, which says what was asked for."""

    def batches() -> Iterator[Any]:
        for i in range(stop):
            pulled.append(i)
            yield pa.record_batch({"x": [i]})
        if error is not None:
            raise error

    return pa.RecordBatchReader.from_batches(ONE, batches())


def test_a_stream_is_read_as_far_as_it_is_asked_for() -> None:
    pulled: list[int] = []
    with sa.RecordBatchReader.from_stream(counting(pulled, 100_000)) as reader:
        assert pulled == []
        assert [reader.read_next_batch().to_pydict()["x"] for _ in range(3)] == [[0], [1], [2]]
        assert pulled == [0, 1, 2]
    with pytest.raises(sa.Closed):
        reader.read_next_batch()
    assert pulled == [0, 1, 2]


def test_a_stream_that_fails() -> None:
    reader = sa.RecordBatchReader.from_stream(counting([], 2, ValueError("no more rows")))
    assert [next(reader).num_rows for _ in range(2)] == [1, 1]
    with pytest.raises(sa.InvalidData, match=r"failed to produce batch 2: .*no more rows"):
        next(reader)
    with pytest.raises(sa.Failed, match="no more rows"):
        next(reader)
    reader.close()
    with pytest.raises(sa.ShmarrowError, match="no more rows"):
        sa.table(counting([], 1, ValueError("no more rows")))


def test_the_end_of_a_stream_stays_its_end() -> None:
    reader = sa.RecordBatchReader.from_stream(counting([], 1))
    assert next(reader).num_rows == 1
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(reader)
    assert "1 column" in repr(reader)
    assert sa.table(ONE.empty_table()).num_rows == 0


def test_threads_share_a_stream() -> None:
    """Each batch goes to one of them; the producer, which needs the GIL, is asked without it."""
    reader = sa.RecordBatchReader.from_stream(counting([], 400))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: [batch.column(0)[0] for batch in reader], range(4)))
    assert sorted(value for part in found for value in part) == list(range(400))


def test_a_producer_that_waits_for_another_thread() -> None:
    go = threading.Event()

    def batches() -> Iterator[Any]:
        threading.Thread(target=go.set).start()
        assert go.wait(30)
        yield pa.record_batch({"x": [1]})

    assert sa.table(pa.RecordBatchReader.from_batches(ONE, batches())).num_rows == 1


class Same:
    """An object that gives the same capsules whenever it is asked."""

    def __init__(self, peer: Any) -> None:
        self.capsules = peer.__arrow_c_array__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.capsules


@pytest.mark.parametrize("read", [sa.array, sa.record_batch])
def test_a_structure_is_moved_out_of_its_capsule(read: Callable[[Any], Any]) -> None:
    """Another consumer of the same capsules can neither read nor release it; nor can they read what another has."""
    gc.collect()
    before = pa.total_allocated_bytes()
    peer = pa.StructArray.from_arrays([pa.array([f"{i} is a text" for i in range(10_000)])], ["x"])
    given = Same(peer)
    ours = read(given)
    with pytest.raises(pa.ArrowInvalid, match="released ArrowSchema"):
        pa.array(given)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    left = np.frombuffer(ctypes.string_at(pointer(given.capsules[1], b"arrow_array"), ARRAY.itemsize), ARRAY)
    assert left["release"][0] == 0
    for again in (sa.array, sa.record_batch):
        with pytest.raises(
            sa.InvalidData, match="ArrowSchema has already been released; each capsule can be imported once"
        ):
            again(given)
    with pytest.raises(sa.InvalidData, match="ArrowArray has already been released; each capsule can be imported once"):
        array_from_capsules(peer.type.__arrow_c_schema__(), given.capsules[1])
    del peer, given
    gc.collect()
    assert ours.to_pylist()[9_999] == {"x": "9999 is a text"}
    del ours
    gc.collect()
    assert pa.total_allocated_bytes() == before
    taken = Same(pa.array([{"x": 1}]))
    assert pa.array(taken).to_pylist() == [{"x": 1}]
    with pytest.raises(sa.InvalidData, match="already been released"):
        read(taken)


def test_one_thread_gets_the_structure_of_a_capsule() -> None:
    peer = pa.array(list(range(100)))
    for _ in range(200):
        array = peer.__arrow_c_array__()[1]
        ready = threading.Barrier(4)

        def read(_: int, array: Any = array, ready: Any = ready) -> Any:
            type = pa.int64().__arrow_c_schema__()
            ready.wait(10)
            try:
                return array_from_capsules(type, array).to_pylist()
            except sa.InvalidData:
                return None

        with ThreadPoolExecutor(4) as pool:
            found = [values for values in pool.map(read, range(4)) if values is not None]
        assert found == [list(range(100))]


@pytest.mark.processes
def test_a_forked_child_can_read_arrays_but_not_the_stream() -> None:
    reader = sa.RecordBatchReader.from_stream(counting([], 5))
    batch = next(reader)

    def child() -> None:
        with pytest.raises(sa.Closed):
            next(reader)
        reader.close()
        assert batch.to_pydict() == {"x": [0]}

    assert ended(forked(child)) == 0
    assert next(reader).to_pydict() == {"x": [1]}


# --- memory ---------------------------------------------------------------------------------------------------------


def test_memory_is_released_once_with_the_last_view() -> None:
    """pyarrow's allocator says when: arrays, slices and ndarrays keep it, and nothing else does."""
    gc.collect()
    before = pa.total_allocated_bytes()
    source = pa.table({"x": pa.array(np.arange(100_000).tolist()), "s": pa.array(["text"] * 1000 * 100)})
    kept = sa.table(source).column("x").chunks[0].slice(5, 10).to_numpy()
    del source
    gc.collect()
    assert pa.total_allocated_bytes() > before
    assert kept.tolist() == list(range(5, 15))
    assert not kept.flags.writeable
    done = threading.Thread(target=lambda box: box.clear(), args=([kept],))
    del kept
    done.start()
    done.join()
    del done
    gc.collect()
    assert pa.total_allocated_bytes() == before
    for _ in range(50):
        sa.record_batch(pa.record_batch({"x": pa.array(list(range(1000)))}))
        reader = sa.RecordBatchReader.from_stream(pa.table({"x": pa.array(list(range(1000)))}))
        next(reader)
        sa.schema(pa.schema({"x": pa.int8()}))
    del reader
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.processes
def test_without_pyarrow() -> None:
    """Objects of polars, duckdb, nanoarrow and arro3 need no pyarrow, and arrays of them no nanoarrow."""
    code = """
import sys
sys.modules['pyarrow'] = None
import polars as pl, shmarrow as sa, nanoarrow as na
assert sa.table(pl.DataFrame({'a': [1, None], 's': ['x', 'y']})).to_pydict() == {'a': [1, None], 's': ['x', 'y']}
assert sa.array(na.c_array([1, 2, 3], na.int64())).to_pylist() == [1, 2, 3]
assert sa.schema(na.c_schema(na.struct({'x': na.int8()}))) == sa.schema({'x': sa.int8()})
try:
    import duckdb, arro3.core
except ImportError:
    pass
else:
    assert sa.table(duckdb.sql('SELECT 1 AS x')).to_pydict() == {'x': [1]}
    assert sa.array(arro3.core.Array([1, 2], arro3.core.DataType.int8())).to_pylist() == [1, 2]
"""
    python(code)


# --- structures that break the rules --------------------------------------------------------------------------------

_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
NOTHING = ctypes.cast(ctypes.CDLL(None).getppid, ctypes.c_void_p).value or 0
"""A compiled function that takes what it is called with and does nothing: the release callback of these structures."""
KEPT: list[Any] = []
"""The memory of the structures, and the names of capsules."""


def at(data: Any) -> int:
    """Return the address of bytes that are kept."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(bytes(data) or b"\0", np.uint8)
    KEPT.append(array)
    return int(array.ctypes.data)


def pointers(*addresses: int) -> int:
    return at(np.array(addresses, np.uint64)) if addresses else 0


def schema(format: bytes | None, children: Any = (), **changes: int) -> int:
    """An ``ArrowSchema`` by hand."""
    made = np.zeros(1, SCHEMA)
    made["format"] = 0 if format is None else at(format + b"\0")
    made["name"] = at(b"x\0")
    made["flags"], made["release"] = 2, NOTHING
    made["n_children"], made["children"] = len(children), pointers(*children)
    for name, value in changes.items():
        made[name] = value
    return at(made)


def array(length: int, parts: Any, children: Any = (), **changes: int) -> int:
    """An ``ArrowArray`` by hand; buffers are bytes, or None."""
    made = np.zeros(1, ARRAY)
    made["length"], made["null_count"], made["release"] = length, 0, NOTHING
    made["n_buffers"] = len(parts)
    made["buffers"] = pointers(*[0 if data is None else at(data) for data in parts])
    made["n_children"], made["children"] = len(children), pointers(*children)
    for name, value in changes.items():
        made[name] = value
    return at(made)


def capsule(address: int, name: bytes) -> Any:
    """A capsule with a copy of a structure, as reading it moves it out."""
    kind = {b"arrow_schema": SCHEMA, b"arrow_array": ARRAY, b"arrow_array_stream": STREAM}[name]
    KEPT.append(name)
    return _new(at(ctypes.string_at(address, kind.itemsize)), name, None)


def read(type: int, values: int) -> Any:
    return array_from_capsules(capsule(type, b"arrow_schema"), capsule(values, b"arrow_array"))


def i4(*numbers: int) -> bytes:
    return np.array(numbers, "<i4").tobytes()


def i8(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


INT, TEXT, VIEW = schema(b"i"), schema(b"u"), schema(b"vu")
LIST, STRUCT = schema(b"+l", [INT]), schema(b"+s", [INT])
DICTIONARY = schema(b"c", dictionary=TEXT)
NUMBERS = array(2, [None, i4(5, 6)])

RIGHT: dict[str, tuple[int, int, list[Any]]] = {
    "null-name": (schema(b"i", name=0), NUMBERS, [5, 6]),
    "null-count-unknown": (INT, array(2, [b"\x02", i4(5, 6)], null_count=-1), [None, 6]),
    "offset": (INT, array(1, [None, i4(5, 6)], offset=1), [6]),
    "misaligned": (INT, array(2, [None, np.frombuffer(b"\0" + i4(5, 6), np.uint8)[1:]]), [5, 6]),
    "no-data-at-length-0": (TEXT, array(0, [None, None, None]), []),
    "no-data-for-empty-text": (TEXT, array(2, [None, i4(0, 0, 0), None]), ["", ""]),
    "offsets-into-data-left-out": (TEXT, array(0, [None, i4(0, 7), None], offset=1), []),
    "list": (LIST, array(1, [None, i4(0, 2)], [NUMBERS]), [[5, 6]]),
    "struct-with-offset": (STRUCT, array(1, [None], [NUMBERS], offset=1), [{"x": 6}]),
    "views": (VIEW, array(1, [None, i4(1, ord("a"), 0, 0), i8()]), ["a"]),
    "views-with-data": (
        VIEW,
        array(1, [None, i4(13, int.from_bytes(b"abcd", "little"), 0, 0), b"abcdefghijklm", i8(13)]),
        ["abcdefghijklm"],
    ),
    "dictionary": (
        DICTIONARY,
        array(2, [None, b"\x01\x00"], dictionary=array(2, [None, i4(0, 1, 2), b"ab"])),
        ["b", "a"],
    ),
    "null": (schema(b"n"), array(2, [], null_count=2), [None, None]),
    "nothing-at-all": (INT, array(0, [None, None]), []),
}


@pytest.mark.parametrize("name", RIGHT)
def test_structures_that_keep_the_rules(name: str) -> None:
    type, values, expected = RIGHT[name]
    made = read(type, values)
    made.validate(full=True)
    assert made.to_pylist() == expected


def deep(levels: int) -> int:
    made = schema(b"i")
    for _ in range(levels):
        made = schema(b"+l", [made])
    return made


WRONG: dict[str, tuple[int, int, type[Exception], str]] = {
    "schema-released": (schema(b"i", release=0), NUMBERS, sa.InvalidData, "ArrowSchema has already been released"),
    "format-null": (schema(None), NUMBERS, sa.InvalidData, "expected a format string"),
    "format-unknown": (schema(b"x!"), NUMBERS, sa.Unsupported, "'x!'"),
    "format-bytes": (schema(b"\xff"), NUMBERS, sa.InvalidData, "not UTF-8"),
    "format-parameters": (schema(b"d:0,0"), NUMBERS, sa.Unsupported, "precision"),
    "name-bytes": (schema(b"i", name=at(b"\xff\0")), NUMBERS, sa.InvalidData, "field name .* is not UTF-8"),
    "metadata": (schema(b"i", metadata=at(i4(-1))), NUMBERS, sa.InvalidData, "metadata: expected a count"),
    "metadata-size": (schema(b"i", metadata=at(i4(1, -5))), NUMBERS, sa.InvalidData, "found -5"),
    "schema-children-negative": (schema(b"+s", n_children=-1), NUMBERS, sa.InvalidData, "n_children .* found -1"),
    "schema-children-many": (schema(b"+s", n_children=1 << 40), NUMBERS, sa.LimitExceeded, "children"),
    "schema-children-null": (schema(b"+s", n_children=1), NUMBERS, sa.InvalidData, "is NULL"),
    "schema-child-null": (schema(b"+s", [0]), NUMBERS, sa.InvalidData, "child 0 is NULL"),
    "schema-child-released": (schema(b"+l", [schema(b"i", release=0)]), NUMBERS, sa.InvalidData, "released"),
    "list-without-child": (schema(b"+l"), NUMBERS, sa.Unsupported, "child"),
    "deep": (deep(200), NUMBERS, sa.LimitExceeded, "levels"),
    "dictionary-of-floats": (schema(b"g", dictionary=TEXT), NUMBERS, sa.InvalidData, "dictionary"),
    "released": (INT, array(2, [None, i4(5, 6)], release=0), sa.InvalidData, "ArrowArray has already been released"),
    "length-negative": (INT, array(-1, [None, i4(5)]), sa.InvalidData, "found -1"),
    "offset-negative": (INT, array(1, [None, i4(5)], offset=-1), sa.InvalidData, "-1"),
    "length-overflow": (INT, array((1 << 63) - 1, [None, i4(5)], offset=9), sa.InvalidData, "length"),
    "too-long": (schema(b"l"), array(1 << 61, [None, i4(5)]), sa.InvalidData, "do not fit into memory"),
    "null-count": (INT, array(1, [None, i4(5)], null_count=2), sa.InvalidData, "null_count of -1 to 1, found 2"),
    "null-count-negative": (INT, array(1, [None, i4(5)], null_count=-2), sa.InvalidData, "found -2"),
    "nulls-without-bitmap": (INT, array(1, [None, i4(5)], null_count=1), sa.InvalidData, "bitmap is NULL"),
    "buffers-few": (INT, array(1, [None]), sa.InvalidData, "expected 2 buffers, found n_buffers 1"),
    "buffers-many": (INT, array(1, [None, i4(5), None]), sa.InvalidData, "expected 2 buffers, found n_buffers 3"),
    "buffers-null": (INT, array(1, [None, i4(5)], buffers=0), sa.InvalidData, "NULL pointer"),
    "buffers-negative": (VIEW, array(1, [], n_buffers=-3), sa.InvalidData, "found n_buffers -3"),
    "values-null": (INT, array(1, [None, None]), sa.InvalidData, "expected 4 bytes of values, found NULL"),
    "offsets-null": (TEXT, array(1, [None, None, b"a"]), sa.InvalidData, "found NULL"),
    "data-null": (TEXT, array(1, [None, i4(0, 1), None]), sa.InvalidData, "bytes of data, found NULL"),
    "last-offset-negative": (TEXT, array(1, [None, i4(0, -1), b"a"]), sa.InvalidData, "last offset is -1"),
    "children-none": (LIST, array(1, [None, i4(0, 1)]), sa.InvalidData, "expected 1 children, found n_children 0"),
    "children-null": (LIST, array(1, [None, i4(0, 1)], n_children=1), sa.InvalidData, "NULL"),
    "child-null": (LIST, array(1, [None, i4(0, 1)], [0]), sa.InvalidData, "child 0 is NULL"),
    "child-short": (LIST, array(1, [None, i4(0, 3)], [NUMBERS]), sa.InvalidData, "3"),
    "struct-child-short": (STRUCT, array(3, [None], [NUMBERS]), sa.InvalidData, "needs 3 slots but has 2"),
    "child-released": (STRUCT, array(1, [None], [array(1, [None, i4(1)], release=0)]), sa.InvalidData, "released"),
    "dictionary-null": (DICTIONARY, array(1, [None, b"\0"]), sa.InvalidData, "expected a dictionary, found NULL"),
    "dictionary-extra": (INT, array(1, [None, i4(1)], dictionary=NUMBERS), sa.InvalidData, "found a dictionary"),
    "views-without-sizes": (VIEW, array(1, [None, i4(1, 97, 0, 0)]), sa.InvalidData, "expected 3 or more buffers"),
    "view-sizes-null": (VIEW, array(1, [None, i4(1, 97, 0, 0), b"a", None]), sa.InvalidData, "sizes of 1 data"),
    "view-size-negative": (VIEW, array(1, [None, i4(1, 97, 0, 0), b"a", i8(-1)]), sa.InvalidData, "-1 bytes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_structures_that_break_the_rules(name: str) -> None:
    type, values, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        read(type, values)


def test_batches_that_break_the_rules() -> None:
    def batch(type: int, values: int) -> Any:
        return batch_of(rows_from_capsules(capsule(type, b"arrow_schema"), capsule(values, b"arrow_array")))

    with pytest.raises(sa.InvalidData, match="2 columns, its schema 1 fields"):
        batch(STRUCT, array(2, [None], [NUMBERS, NUMBERS]))
    with pytest.raises(sa.InvalidData, match="n_buffers 2"):
        batch(STRUCT, array(2, [None, None], [NUMBERS]))
    with pytest.raises(sa.InvalidType, match="int32"):
        batch(INT, NUMBERS)
    short = batch(STRUCT, array(3, [None], [NUMBERS]))
    with pytest.raises(sa.InvalidData, match=r"column 0 'x': expected 3 values, found 2"):
        short.column(0)


def test_streams_that_break_the_rules() -> None:
    made = np.zeros(1, STREAM)
    with pytest.raises(sa.InvalidData, match="already been released"):
        open_stream(capsule(at(made), b"arrow_array_stream"))
    made["release"] = 1
    with pytest.raises(sa.InvalidData, match="get_schema or get_next is NULL"):
        open_stream(capsule(at(made), b"arrow_array_stream"))
    functions = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    said = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    ended: list[int] = []
    keep = [
        functions(lambda stream, schema: 5),
        said(lambda stream: at(b"no schema \xff today\0")),
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ended.append),
    ]
    get, text, release = [ctypes.cast(function, ctypes.c_void_p).value for function in keep]
    made["get_schema"] = made["get_next"] = get
    made["release"] = release
    for last_error, message in ((text, "its schema: no schema . today"), (0, "its schema: Input/output error")):
        made["get_last_error"] = last_error
        with pytest.raises(sa.StorageError, match=message):
            open_stream(capsule(at(made), b"arrow_array_stream"))
    assert len(ended) == 2


def test_a_table_of_a_table_or_reader_puts_no_chunks_together() -> None:
    sink, batch = io.BytesIO(), sa.record_batch({"x": np.arange(1000)})
    whole = sa.Table.from_batches([batch, batch])
    with sa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_table(whole)
    for source in (whole, whole.to_reader(), sa.ipc.open_file(sink.getvalue())):
        made = sa.table(source, metadata={"a": "b"})
        assert [len(chunk) for chunk in made["x"].chunks] == [1000, 1000]
        assert made.schema.metadata == {b"a": b"b"}
    assert [chunk.buffers()[1].address for chunk in sa.table(whole)["x"].chunks] == [
        batch["x"].buffers()[1].address
    ] * 2


def test_a_batch_of_a_batch_builds_no_columns() -> None:
    made = sa.record_batch(sa.ipc.open_file(broken_file({"x": [1, 2]}, "s")).get_batch(0))
    assert made.column("x").to_pylist() == [1, 2]
    with pytest.raises(sa.InvalidData, match="column 1 's'"):
        made.column("s")
