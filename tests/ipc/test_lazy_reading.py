"""Reading builds no more than is asked for, keeps what is built, and takes shortcuts that make no difference."""

from __future__ import annotations

import gc
import io
import random
import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases.definition import Case
from cases.table import CASES
from every import every
from forms import peers_file, stream_of

import shmarrow as sa
from shmarrow.errors import ShmarrowError

ROWS = 1000
COLUMNS = {
    "a": pa.array(range(ROWS)),
    "b": pa.array([str(i) if i % 7 else None for i in range(ROWS)]),
    "c": pa.array([[i, i + 1] for i in range(ROWS)]),
    "d": pa.array([f"w{i % 5}" for i in range(ROWS)]).dictionary_encode(),
    "e": pa.array([i / 2 for i in range(ROWS)]),
}


def file_of(columns: dict[str, Any], codec: str | None = None, batches: int = 1) -> bytes:
    return peers_file(*[pa.record_batch(columns)] * batches, compression=codec)


def test_columns_that_are_built_are_shared() -> None:
    batch = sa.ipc.open_file(file_of(COLUMNS, "zstd")).get_batch(0)
    column = batch.column("a")
    for derived in (
        batch.rename_columns(list("vwxyz")),
        batch.replace_schema_metadata({"k": "v"}),
        batch.select(["a"]),
        batch.select([1, 0]).select([1]).replace_schema_metadata(),
    ):
        assert derived.column(derived.num_columns - 1 if derived.num_columns == 1 else 0) is column
    assert np.shares_memory(batch.slice(10, 5).column(0).to_numpy(), column.to_numpy())
    renamed = batch.rename_columns(list("vwxyz"))
    assert renamed.column("z") is batch.column("e")


def test_a_selection_holds_no_other_columns() -> None:
    """Other columns that were built are freed with the batch that they were built for."""
    batch = sa.ipc.open_file(file_of(COLUMNS, "zstd")).get_batch(0)
    other, column = batch.column("e"), batch.column("a")
    selected = batch.select(["a"])
    held = sys.getrefcount(other)
    del batch
    assert sys.getrefcount(other) == held - 1
    assert selected.column("a") is column


def test_long_chains_do_not_grow() -> None:
    batch = sa.ipc.open_file(file_of(COLUMNS)).get_batch(0)
    for _ in range(sys.getrecursionlimit()):
        batch = batch.slice(0).select(range(batch.num_columns)).replace_schema_metadata({"k": "v"})
    assert batch.column("a").to_pylist() == list(range(ROWS))
    assert batch.slice(3, 2).column("b").to_pylist() == ["3", "4"]


# --- some of the fields -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("included", [[2, 0, 0], [0, 1, 2, 3, 4], [4]])
def test_included_fields_are_those_of_pyarrow(included: list[int]) -> None:
    """Each field is there once, in the order of the schema, whatever the order that is asked for."""
    data = file_of(COLUMNS)
    theirs = pa.ipc.open_file(data, options=pa.ipc.IpcReadOptions(included_fields=included)).get_batch(0)
    names = list(COLUMNS)
    for asked in (included, [names[i] for i in included], [i - 5 for i in included]):
        ours = sa.ipc.open_file(data, included_fields=asked).get_batch(0)
        assert ours.column_names == theirs.schema.names
        assert [column.to_pylist() for column in ours.columns] == [column.to_pylist() for column in theirs.columns]


# --- shortcuts --------------------------------------------------------------------------------------------------------

WRITABLE = [case for case in CASES if not case.name.startswith("dictionary-dictionary")]
WIDE = 60


def same(one: Any, other: Any) -> bool:
    """Whether arrays are equal, by their values or, as NaN is not equal to itself, by their text."""
    return one.type == other.type and (one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist()))


@every(WRITABLE)
def test_what_is_read_at_once_is_what_is_read_one_by_one(case: Case) -> None:
    """A column alone, and among so many that fields, buffers and names are found with array operations.

    The second batch is written and read with the templates of the first one.
    """
    array: Any = case.array()
    names = [f"{case.name} {i}" for i in range(WIDE)]
    numbers = sa.array(range(len(array)), "int64")
    wide = sa.RecordBatch.from_arrays([array if i % 3 else numbers for i in range(WIDE)], names)
    narrow = sa.RecordBatch.from_arrays([array], ["x"])
    found: dict[str, list[Any]] = {}
    for form, batch in {"wide": wide, "narrow": narrow}.items():
        reader = sa.ipc.open_stream(stream_of(batch, batch))
        assert reader.schema.equals(batch.schema, check_metadata=True)
        assert reader.schema.fields == batch.schema.fields
        found[form] = list(reader)
    alone = found["narrow"][0].column(0)
    alone.validate(full=True)
    assert same(alone, array)
    assert same(found["narrow"][1].column("x"), alone)
    first, second = found["wide"]
    for i, column in enumerate(first.columns):
        assert same(column, alone if i % 3 else numbers)
    for i in range(1, 8):  # the first few are built, and looked up, in another way than the others
        assert same(second.column(names[i]), alone if i % 3 else numbers)
    assert [second.schema.get_field_index(name) for name in names] == list(range(WIDE))


# --- the cache of schemas ---------------------------------------------------------------------------------------------


def stream(name: str, count: int, type: Any = None) -> bytes:
    sink = io.BytesIO()
    schema = sa.schema([sa.field(f"{name}{i:05}", type or sa.float64()) for i in range(count)])
    sa.ipc.new_stream(sink, schema).close()
    return sink.getvalue()


def schema_of(data: bytes) -> sa.Schema:
    return sa.ipc.open_stream(data).schema


@pytest.mark.parametrize("types", [[sa.null()] * 20, [sa.null()] * 20 + [sa.int8()]])
def test_all_of_many_columns_without_buffers_are_read(types: list[sa.DataType]) -> None:
    batch = sa.record_batch({str(i): sa.nulls(3, type) for i, type in enumerate(types)})
    assert sa.ipc.open_stream(stream_of(batch)).read_all().to_pylist() == 3 * [dict.fromkeys(batch.schema.names)]


@pytest.mark.parametrize(("others", "columns"), [(1100, 2), (6, 20_000)])
def test_schemas_that_were_read_are_held_within_bounds(others: int, columns: int) -> None:
    """At most 1,024 of them, and at most 4 MiB of their bytes."""
    data = stream(f"{columns} first ", columns)
    first = weakref.ref(schema_of(data))
    assert schema_of(data) is first()
    for number in range(others):
        schema_of(stream(f"{columns} {number} ", columns))
    gc.collect()
    assert first() is None


@pytest.mark.parametrize("type", [sa.float64(), sa.list_(sa.int32()), sa.dictionary("int8", "string")], ids=str)
def test_all_fields_are_held_in_proportion_to_the_bytes(type: sa.DataType) -> None:
    """Measured by tracemalloc, for names of one to three letters: each field is built once, and all fit the bound."""
    sink = io.BytesIO()
    sa.ipc.new_stream(sink, sa.schema([(f"{i:x}", type) for i in range(1000)])).close()
    data = sink.getvalue()
    schema = schema_of(data)
    tracemalloc.start()
    try:
        fields = [id(field) for field in schema.fields]
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 32 * len(data)
    assert fields == [id(field) for field in schema.fields]


def test_threads_agree_on_schemas() -> None:
    data = [stream(f"threads {i} ", 60) for i in range(12)]
    names = [[f"threads {i} {k:05}" for k in range(60)] for i in range(12)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(seed: int) -> None:
        for turn in range(60):
            number = (seed * 7 + turn * 5) % 12
            schema = schema_of(data[number])
            assert schema.names == names[number]
            assert schema.field(turn % 60).name == names[number][turn % 60]
            assert schema.get_field_index(names[number][59]) == 59

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
    finally:
        sys.setswitchinterval(before)


def test_equal_keys_and_other_bytes_are_told_apart() -> None:
    """The key has a schema's size, and its first and last bytes; the names in the middle make the difference."""
    names = [f"column {i:05}" for i in range(500)]
    others = [*names]
    others[250] = "COLUMN 00250"
    for each in (names, others, names, others):
        sink = io.BytesIO()
        sa.ipc.new_stream(sink, sa.schema([(name, sa.int8()) for name in each])).close()
        assert schema_of(sink.getvalue()).names == each


# --- row counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_legacy_format": True},
        {"metadata_version": pa.ipc.MetadataVersion.V4},
        {"compression": "zstd"},
    ],
    ids=str,
)
def test_rows_are_counted_from_the_metadata_of_all_batches(options: dict[str, Any]) -> None:
    lengths = [0, 3, 3, 0, 0, 5, 1]
    sink = io.BytesIO()
    types = {"x": pa.int64(), "y": pa.string()}
    batches = [
        pa.record_batch(
            {name: pa.array(range(n)).cast(type) if n else pa.array([], type) for name, type in types.items()}
        )
        for n in lengths
    ]
    with pa.ipc.new_file(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for i, batch in enumerate(batches):
            writer.write_batch(batch, custom_metadata={"number": str(i)} if i % 2 else None)
    reader = sa.ipc.open_file(sink.getvalue())
    assert reader.num_rows == sum(lengths)
    assert [batch.num_rows for batch in reader] == lengths


def test_rows_of_changed_bytes_are_those_of_the_batches() -> None:
    """Each count comes from the same numbers as the batch's own, or the batch is refused."""
    chooser = random.Random(3)
    data = file_of({"x": pa.array([1, 2, 3])}, batches=3)
    counted = refused = 0
    for _ in range(1000):
        changed = bytearray(data)
        for _ in range(chooser.choice((1, 1, 2))):
            changed[chooser.randrange(len(data))] = chooser.choice((0, 1, 4, 8, 127, 255, chooser.randrange(256)))
        try:
            reader = sa.ipc.open_file(bytes(changed))
            rows = [batch.num_rows for batch in reader]
        except ShmarrowError:
            refused += 1
            continue
        counted += 1
        assert reader.num_rows == sum(rows)
    assert counted > 150
    assert refused > 150
