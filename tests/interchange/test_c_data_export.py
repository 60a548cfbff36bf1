"""Export through the Arrow C data and stream interfaces: what consumers get, from where, and when.

The expected schemas and values come from pyarrow's IPC reader, over bytes of ours: another route to the same thing.
"""

from __future__ import annotations

import ctypes
import gc
import io
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases.table import case as by_name
from cases.table import cases
from forms import file_of, stream_of
from wire import batch_header, message, messages, stream_from

import shmarrow as sa
from shmarrow.layout import make_array

pa = pytest.importorskip("pyarrow")
pytest.importorskip("nanoarrow")

from shmarrow.types.c_schema import ARRAY, SCHEMA, pointer  # noqa: E402


def numbers(start: int, count: int = 5) -> Any:
    column = sa.array(np.arange(start, start + count))
    return sa.record_batch({"n": column, "s": [f"text {i}" for i in range(start, start + count)]})


def structure(address: int, dtype: Any) -> Any:
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0]


def words(address: int, count: int) -> list[int]:
    return np.frombuffer(ctypes.string_at(address, 8 * count), np.uint64).tolist()


# --- schemas and structures -------------------------------------------------------------------------------------


def test_each_export_of_a_type_is_a_capsule_of_its_own() -> None:
    """A consumer takes what a capsule holds, and leaves nothing for the next one."""
    for thing in (sa.list_(sa.int64()), sa.field("x", "int64"), sa.schema([("x", "int64")])):
        kind = {sa.Schema: pa.Schema, sa.Field: pa.Field}.get(type(thing), pa.DataType)
        first, second = [kind._import_from_c_capsule(thing.__arrow_c_schema__()) for _ in range(2)]
        assert first == second


def test_schemas_carry_names_nullability_metadata_and_extensions() -> None:
    schema = sa.schema(
        [
            sa.field("a", "int64", False, {"k": "v"}),
            ("é", sa.dictionary("int8", "string", True)),
            ("map", sa.map_("string", "int32", True)),
            ("id", sa.uuid()),
            ("json", sa.json_()),
            ("id", sa.list_(sa.struct([("x", sa.bool8()), ("y", "string_view")]))),
            *[(case.name, case.type) for case in cases(writable=True)],
        ],
        {"of": "schema", "empty": ""},
    )
    expected = pa.ipc.open_file(file_of(*[sa.RecordBatch(schema, 0, [sa.nulls(0, type) for type in schema.types])]))
    assert pa.schema(schema).equals(expected.schema, check_metadata=True)
    for i, field in enumerate(schema):
        assert pa.field(field).equals(expected.schema.field(i), check_metadata=True)
        assert pa.DataType._import_from_c_capsule(field.type.__arrow_c_schema__()) == expected.schema.field(i).type
    # The flags by their numbers: 1 ordered dictionary, 2 nullable, 4 sorted keys.
    capsule = schema.__arrow_c_schema__()
    root = structure(pointer(capsule, "arrow_schema"), SCHEMA)
    assert root["flags"] == 0
    children = words(int(root["children"]), len(schema))
    assert [int(structure(at, SCHEMA)["flags"]) for at in children[:6]] == [0, 3, 6, 2, 2, 2]


def test_a_nul_character_cannot_be_in_a_name() -> None:
    schema = sa.schema([("good", "int8"), ("a\0b", "int8")])
    with pytest.raises(sa.ExportRefused, match=r"'a\\x00b' contains a NUL character"):
        schema.__arrow_c_schema__()
    with pytest.raises(sa.ExportRefused, match="NUL"):
        sa.RecordBatch(schema, 0, [sa.array([], "int8")] * 2).__arrow_c_array__()


def test_structures_follow_the_interface() -> None:
    # A bitmap that file says nothing of: the consumer counts. None: there is nothing to count.
    for name, n_buffers, null_count, present in (
        ("spec-int32", 2, -1, [True, True]),
        ("spec-int32-bitmap-of-ones", 2, 0, [False, True]),
        ("odd-no-offsets-buffer", 3, 0, [False, True, True]),
        ("spec-null", 0, 3, []),
        ("spec-dense-union", 2, 0, [True, True]),
        ("spec-run-end-encoded", 0, 0, []),
        ("odd-two-data-buffers", 5, 0, [False, True, True, True, True]),
        ("string-view-empty", 3, 0, [False, True, True]),
        ("dictionary-nested-nulls", 2, -1, [True, True]),
    ):
        array = by_name(name).array()
        kept = array.__arrow_c_array__()
        found = structure(pointer(kept[1], "arrow_array"), ARRAY)
        assert (int(found["n_buffers"]), int(found["null_count"])) == (n_buffers, null_count), name
        assert int(found["length"]) == len(array)
        assert int(found["release"]) > 1
        assert [at != 0 for at in words(int(found["buffers"]), n_buffers)] == present, name
        assert (found["dictionary"] != 0) == name.startswith("dictionary")
    array = by_name("odd-two-data-buffers").array()
    kept = array.__arrow_c_array__()
    buffers = words(int(structure(pointer(kept[1], "arrow_array"), ARRAY)["buffers"]), 5)
    assert words(buffers[4], 2) == [22, 21]  # the sizes of "??the first of the two" and "the second of the two"
    assert buffers[1:4] == [data.address for data in array.buffers()[1:]]


def test_batches_of_numbers_are_handed_over_in_place() -> None:
    names = [f"c{i}" for i in range(30)]
    kinds = ["int8", "float64", "timestamp[us]"]
    columns = {
        name: sa.array(np.arange(100 * i, 100 * i + 100) % 100, "int64").cast(kinds[i % 3])
        for i, name in enumerate(names)
    }
    expected = pa.ipc.open_file(file_of(sa.record_batch(columns))).get_batch(0)
    reader = sa.ipc.open_file(file_of(sa.record_batch(columns)))
    for change in (
        lambda batch: batch,
        lambda batch: batch.slice(13, 50),
        lambda batch: batch.select(["c7", "c3", "c29"]),
        lambda batch: batch.slice(20).select(["c4", "c4"]).slice(5, 9),
        lambda batch: batch.rename_columns([name.upper() for name in batch.schema.names]),
        lambda batch: batch.slice(100),
    ):
        batch = change(reader.get_batch(0))
        found = pa.record_batch(batch)
        found.validate(full=True)
        assert found.equals(change(expected))
        assert (
            found.column(0).buffers()[1].address
            == reader.get_batch(0).column(batch.schema.names[0].lower()).buffers()[1].address
        )
    start, batch = messages(stream_of(sa.record_batch(columns)))[:2]
    nodes, buffers = (batch.message.header[name] for name in ("nodes", "buffers"))
    body = batch.data[batch.body - batch.start :]
    for place in ((0, 1 << 40), (1 << 40, 800), (-64, 800), (0, 8), (0, -1)):
        changed = buffers.copy()
        changed[3] = place
        wrong = message("RecordBatch", batch_header(100, nodes, changed), body)
        with pytest.raises(sa.InvalidData, match="column 1 'c1'"):
            pa.record_batch(sa.ipc.open_stream(stream_from([start, wrong])).read_next_batch())


# --- what is wrong ----------------------------------------------------------------------------------------------


def test_what_leads_out_of_its_buffers_is_refused() -> None:
    offsets = np.array([0, 100, 2], "<i4").view("u1")
    column = make_array(sa.string(), 2, [None, offsets, np.zeros(2, "u1")], 0)
    batch = sa.RecordBatch(sa.schema([("good", "int8"), ("bad", "string")]), 2, [sa.array([1, 2], "int8"), column])
    for export in (pa.table, pa.record_batch):
        with pytest.raises(sa.InvalidData, match="column 1 'bad'"):
            export(batch)
    other = sa.RecordBatch(sa.schema([("n", "int64")]), 2, [sa.array([1, 2], "int8")])
    with pytest.raises(sa.InvalidData, match="expected int64, found int8"):
        other.__arrow_c_array__()
    short = sa.RecordBatch(sa.schema([("n", "int8")]), 3, [sa.array([1, 2], "int8")])
    with pytest.raises(sa.InvalidData, match="expected 3 values, found 2"):
        short.__arrow_c_stream__()


def test_unknown_keywords() -> None:
    batch = numbers(0)
    assert len(batch.__arrow_c_array__(None, something=None)) == 2
    with pytest.raises(NotImplementedError, match="something"):
        batch.__arrow_c_array__(something=1)
    with pytest.raises(sa.Unsupported, match="something"):
        sa.table(batch).__arrow_c_stream__(something=1)


# --- requested schemas ------------------------------------------------------------------------------------------


def test_a_requested_schema_is_kept_without_loss() -> None:
    batch = sa.record_batch({
        "n": sa.array([1, 2, None], "int64"),
        "v": sa.array(["a", "long enough to need a buffer", None], "string_view"),
        "d": sa.array(["x", "y", "x"]).dictionary_encode(),
    })  # fmt: skip
    wanted = pa.schema([("n", pa.int16()), ("v", pa.large_string()), ("d", pa.string())])
    rows = [
        {"n": 1, "v": "a", "d": "x"},
        {"n": 2, "v": "long enough to need a buffer", "d": "y"},
        {"n": None, "v": None, "d": "x"},
    ]
    for source in (batch, sa.table(batch), sa.Table.from_batches([batch] * 40), sa.ipc.open_file(file_of(batch))):
        found = pa.table(source, schema=wanted)
        assert found.schema == wanted
        assert found.to_pylist() == rows * (found.num_rows // 3)
    assert pa.record_batch(batch, schema=wanted).to_pylist() == rows
    assert pa.array(batch.column(0), type=pa.uint8()).to_pylist() == [1, 2, None]
    assert pa.chunked_array(sa.chunked_array([batch.column(2)]), type=pa.string()).to_pylist() == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        ([("n", "int8"), ("s", "string")], sa.InvalidData, "not within -128 to 127"),
        ([("n", "date32"), ("s", "string")], sa.InvalidType, "no cast from int64"),
        ([("n", "int64")], sa.InvalidArgument, "names"),
        ([("m", "int64"), ("s", "string")], sa.InvalidArgument, "names"),
    ],
    ids=["lossy", "no cast", "fewer", "renamed"],
)
def test_a_requested_schema_that_does_not_fit(wanted: Any, error: Any, text: str) -> None:
    batch, capsule = numbers(298), sa.schema(wanted).__arrow_c_schema__()
    with pytest.raises(error, match=text):
        batch.__arrow_c_array__(capsule)
    with pytest.raises(error, match=text):
        sa.table(batch).__arrow_c_stream__(requested_schema=sa.schema(wanted).__arrow_c_schema__())


# --- streams ----------------------------------------------------------------------------------------------------


def test_streams_take_batches_as_they_are_asked_for() -> None:
    taken = []

    def batches() -> Iterator[Any]:
        for i in range(1000):
            taken.append(i)
            yield numbers(i)

    schema = numbers(0).schema
    reader = pa.RecordBatchReader.from_stream(sa.RecordBatchReader.from_batches(schema, batches()))
    assert taken == []
    assert reader.read_next_batch().column(0).to_pylist() == [0, 1, 2, 3, 4]
    assert taken == [0]
    assert reader.read_next_batch().column(0).to_pylist() == [1, 2, 3, 4, 5]
    assert taken == [0, 1]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_files_and_mapped_streams_are_given_to_any_number_of_consumers_and_pipes_to_one(
    count: int, tmp_path: Any
) -> None:
    batches = [numbers(5 * i) for i in range(count)]
    expected = [{"n": i, "s": f"text {i}"} for i in range(5 * count)]
    path = tmp_path / "file.arrow"
    path.write_bytes(file_of(*batches))
    with sa.ipc.open_file(path) as reader:
        assert pa.table(reader).to_pylist() == expected
        found = pa.table(reader)
    assert found.to_pylist() == expected
    compressed = sa.ipc.open_file(file_of(*batches, compression="lz4"))
    assert pa.table(compressed).to_pylist() == expected
    assert pa.table(sa.ipc.open_file(path, included_fields=["s"])).column_names == ["s"]
    stream = stream_of(*batches)
    mapped, piped = sa.ipc.open_stream(stream), sa.ipc.open_stream(io.BufferedReader(io.BytesIO(stream)))  # type: ignore[arg-type]
    for source in (mapped, mapped, piped):
        assert pa.table(source).to_pylist() == expected
    with pytest.raises(sa.Closed):
        pa.table(piped)
    table = sa.Table.from_batches(batches)
    assert pa.table(table).to_pylist() == expected
    assert pa.table(table.to_reader()).to_pylist() == expected


def test_errors_of_a_stream_reach_the_consumer() -> None:
    schema = numbers(0).schema

    def broken(error: BaseException) -> Any:
        def batches() -> Iterator[Any]:
            yield numbers(0)
            raise error

        return sa.RecordBatchReader.from_batches(schema, batches())

    with pytest.raises(pa.ArrowException, match="batch 1 is broken"):
        pa.table(broken(sa.InvalidData("batch 1 is broken")))
    closed = sa.ipc.open_file(file_of(numbers(0)))
    closed.close()
    with pytest.raises(sa.Closed):
        pa.table(closed)


@pytest.mark.parametrize("library", ["pyarrow", "polars", "duckdb"])
def test_an_interrupt_ends_the_query_and_the_reader(library: str) -> None:
    """SIGTERM or Ctrl-C while a batch is read is an error of the consumer's; the rest is never taken for the whole."""
    module = pytest.importorskip(library)
    consume = {
        "pyarrow": lambda source: module.table(source),
        "polars": lambda source: module.DataFrame(source),
        "duckdb": lambda source: module.sql("select sum(n) from source").fetchall(),
    }[library]

    def batches(error: BaseException) -> Iterator[Any]:
        yield numbers(0)
        raise error

    for error in (KeyboardInterrupt(), SystemExit(143)):
        reader = sa.RecordBatchReader.from_batches(numbers(0).schema, batches(error))
        with pytest.raises(Exception, match=type(error).__name__):
            consume(reader)
        with pytest.raises(sa.Failed, match=type(error).__name__):
            reader.read_next_batch()


def test_no_retry_goes_on_without_the_batch_that_failed() -> None:
    """A reader that is read once ends with its first error, wherever that is found; later calls name it."""
    good, other = numbers(0), sa.record_batch({"z": [1]})
    schema = good.schema
    stream = stream_of(*[sa.record_batch({"n": [1], "s": [name]}) for name in ("good", "wrong", "good")])
    broken = stream.replace(b"wrong", b"\xff" * 5)
    one = pa.record_batch({"n": [1, 2], "s": ["a", "b"]})
    two = pa.record_batch({"n": [1, 1000], "s": ["a", "b"]})
    bytes_only = sa.schema([("n", "int8"), ("s", "string")])
    theirs = pa.Table.from_batches([one, two, one])
    readers: list[Callable[[], Any]] = [
        lambda: sa.RecordBatchReader.from_batches(schema, [good, other, good]),
        lambda: sa.RecordBatchReader.from_batches(schema, (batch for batch in [good, other, good])),
        lambda: sa.RecordBatchReader.from_stream(theirs, bytes_only),
        lambda: sa.ipc.open_stream(io.BufferedReader(io.BytesIO(broken))),  # type: ignore[arg-type]
        lambda: sa.RecordBatchReader.from_stream(pa.ipc.open_stream(broken)),
    ]
    refused = (sa.InvalidType, sa.InvalidData, sa.Failed, pa.ArrowException)
    for number, make in enumerate(readers):
        ways = [pa.table] if number >= 3 else [pa.table, sa.table, list, lambda reader: reader.read_all()]
        for first in ways:
            reader = make()
            with pytest.raises(refused) as failed:
                first(reader)
            for way in [pa.table, sa.table, list, next]:
                with pytest.raises(refused, match="the first error was Invalid"):
                    way(reader)
            assert "first error" not in str(failed.value)
    mapped = sa.ipc.open_stream(broken)
    for _ in range(2):
        with pytest.raises(refused, match="not UTF-8"):
            pa.table(mapped)
    capsule = pa.RecordBatchReader.from_stream(sa.RecordBatchReader.from_batches(schema, [good, other, good]))
    assert capsule.read_next_batch().num_rows == 5
    for _ in range(2):  # the stream itself comes to no end either
        with pytest.raises(pa.ArrowException, match="fields of a batch differ"):
            capsule.read_next_batch()


@pytest.mark.parametrize("count", [3, 40])
def test_a_stream_of_a_mapped_file_outlives_its_reader(count: int, tmp_path: Any) -> None:
    path = tmp_path / "file.arrow"
    path.write_bytes(file_of(*[numbers(i) for i in range(count)]))
    with sa.ipc.open_file(path) as reader:
        whole = pa.RecordBatchReader.from_stream(reader)
    part = sa.ipc.open_file(path, included_fields=["n"])
    started = pa.RecordBatchReader.from_stream(part)
    assert started.read_next_batch().num_columns == 1
    part.close()
    path.unlink()
    assert whole.read_all().num_rows == 5 * count
    assert started.read_all().column("n").to_pylist() == [i + j for i in range(1, count) for j in range(5)]


# --- other consumers --------------------------------------------------------------------------------------------


def test_polars_and_duckdb_and_pandas_take_rows_of_a_file(tmp_path: Any) -> None:
    """Which columns they use in place is the matter of ``parity/test_other_libraries.py``."""
    pl, duckdb, pd = (pytest.importorskip(name) for name in ("polars", "duckdb", "pandas"))
    path = tmp_path / "file.arrow"
    path.write_bytes(file_of(sa.record_batch({"n": np.arange(1000), "f": np.linspace(0, 1, 1000)})))
    reader = sa.ipc.open_file(path)
    mapped = reader.get_batch(0)
    assert pl.DataFrame(reader).height == pl.DataFrame(reader.read_all()).height == 1000
    assert pl.Series("x", mapped.column("f")).to_arrow().buffers()[1].address == mapped["f"].buffers()[1].address
    assert pl.Series(by_name("odd-fixed-size-list-offset").array()).to_list() == [[3, 4], [5, 6]]
    table = sa.Table.from_batches([mapped] * 20)
    for source, times in ((mapped, 1), (reader, 1), (table, 20), (table.to_reader(), 20)):
        # DuckDB finds it by the name of the variable.
        assert duckdb.sql("select sum(n), max(f) from source").fetchall() == [(499500 * times, 1.0)], source
    assert pd.DataFrame.from_arrow(mapped)["n"].tolist() == list(range(1000))
    assert pd.Series.from_arrow(table.column("n")).sum() == 20 * 499500


def test_what_was_exported_is_not_remembered_for_ever() -> None:
    """A service that passes on tables of a new schema each time."""

    def export(first: int) -> None:
        for number in range(first, first + 100):
            kept = sa.struct({f"{number} {field}": sa.int8() for field in range(100)})
            assert len(pa.field(sa.field("x", kept)).type) == 100

    export(0)
    gc.collect()
    tracemalloc.start()
    try:
        export(100)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000  # one type takes more than 10,000 bytes
