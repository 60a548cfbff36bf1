"""Schemas that are read: the quick readers beside the generic ones, names, and what is kept of files that went away."""

from __future__ import annotations

import io
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa
from shmarrow.errors import DEFAULT_LIMITS, ShmarrowError
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.schema.decode import parse_field
from shmarrow.ipc.schema.fast_decode import flat_field
from shmarrow.ipc.schema.lazy import lazy_schema
from shmarrow.testing.table import CASES

PLAIN = [case.type for case in CASES if not case.type.fields and "extension" not in case.name][::7]


def footer(schema: Any) -> np.ndarray:
    """The footer that pyarrow or we write for a schema."""
    sink = io.BytesIO()
    with (pa.ipc.new_file if isinstance(schema, pa.Schema) else sa.ipc.new_file)(sink, schema):
        pass
    data = np.frombuffer(sink.getvalue(), np.uint8)
    size = int(data[-10:-6].view("<i4")[0])
    return data[len(data) - 10 - size : len(data) - 10].copy()


def table_of(data: np.ndarray) -> Any:
    return Reader(data, "test").root("Footer")["schema"]


def slow(data: np.ndarray) -> tuple[list[Any], list[int]]:
    """All fields, and where the buffers of each column start if it has one node, by the generic readers."""
    source = lazy_schema(table_of(data))
    totals = source._scan() if len(source) else np.zeros(0, np.uint8)
    tables = source._tables.positions.tolist()
    fields = [parse_field(Reader(data, "test").table("Field", at), DEFAULT_LIMITS) for at in tables]
    starts = np.concatenate([[0], np.cumsum(totals if totals.ndim == 1 else totals[1], dtype=np.int64)])
    return fields, starts.tolist()


def named(count: int) -> list[str]:
    return [f"column {i * 7919 % count}" for i in range(count)]


SCHEMAS = {
    "none": sa.schema([]),
    "few": sa.schema([(f"c{i}", type) for i, type in enumerate(PLAIN[:20])]),
    "all plain": sa.schema([(f"c{i}", type) for i, type in enumerate(PLAIN)]),
    "many alike": sa.schema([(name, sa.float64()) for name in named(1000)]),
    "many others": sa.schema([(name, PLAIN[i % len(PLAIN)]) for i, name in enumerate(named(1000))]),
    "nullable or not": sa.schema([sa.field(name, sa.int8(), nullable=i % 3 > 0) for i, name in enumerate(named(300))]),
    "a list late": sa.schema(
        [(name, sa.list_(sa.int8()) if i == 250 else sa.int8()) for i, name in enumerate(named(300))]
    ),
    "a dictionary early": sa.schema(
        [(name, sa.dictionary("int8", "string") if i == 3 else sa.bool_()) for i, name in enumerate(named(300))]
    ),
    "with metadata": sa.schema([("a", sa.int8())], metadata={"k": "v"}),
    "names of one length": sa.schema([(f"column {i:04}", sa.float64()) for i in range(300)]),
    "names of one length, one other": sa.schema(
        [(f"column {i:04}", sa.string() if i == 280 else sa.date32()) for i in range(300)]
    ),
    "names of one length, first other": pa.schema(
        [(f"column {i:04}", pa.int8() if i else pa.string()) for i in range(300)]
    ),
    "names of one length, of pyarrow": pa.schema([(f"column {i:04}", pa.float64()) for i in range(300)]),
    "of pyarrow": pa.schema(
        [(name, (pa.float64(), pa.string(), pa.bool_())[i % 3]) for i, name in enumerate(named(500))]
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_and_start_is_what_the_generic_readers_give(name: str) -> None:
    data = footer(SCHEMAS[name])
    fields, starts = slow(data)
    for order in (
        range(len(fields)),
        range(len(fields) - 1, -1, -1),
        random.Random(1).sample(range(len(fields)), len(fields)),
    ):
        source = lazy_schema(table_of(data))
        for i in order:
            assert source.start(i)[1] == starts[i]
            assert source.start(i + 1)[1] == starts[i + 1]
            flat = source.flat_start(i)
            assert flat in (starts[i], -1)
            assert source.wire(i) == fields[i]
        assert source.names() == [field.field.name for field in fields]
        primitive = [f.type.layout == "primitive" and f.field.type == f.type for f in fields]
        for each in (source, lazy_schema(table_of(data))):
            assert each.plain_types() == [f.type if plain else None for f, plain in zip(fields, primitive, strict=True)]
        flat_starts = source.flat_starts()
        assert flat_starts is None or flat_starts.tolist() == starts


def test_what_is_flat_is_read_the_fast_way() -> None:
    data = footer(SCHEMAS["all plain"])
    source = lazy_schema(table_of(data))
    reader = Reader(data, "test")
    fields = [parse_field(reader.table("Field", int(at)), DEFAULT_LIMITS) for at in source._tables.positions]
    fast = [flat_field(reader, int(at)) for at in source._tables.positions]
    assert [field for field in fast if field is not None] == [f for f, q in zip(fields, fast, strict=True) if q]
    # Timestamps are made anew each time, as their time zones lie outside of their tables.
    assert {str(f.type) for f, q in zip(fields, fast, strict=True) if q is None} == {
        str(type) for type in PLAIN if isinstance(type, sa.types.TimestampType | sa.types.DictionaryType)
    }
    other = footer(SCHEMAS["a dictionary early"])
    assert flat_field(Reader(other, "test"), int(lazy_schema(table_of(other))._tables.positions[3])) is None


@pytest.mark.parametrize("name", ["few", "with metadata", "a dictionary early", "nullable or not"])
def test_mutations_give_the_same_or_nothing(name: str) -> None:
    data = footer(SCHEMAS[name])
    table = table_of(data).position
    slow(data)  # whose types are known from now on
    chooser = random.Random(name)
    kept = 0
    for _ in range(4_000):
        changed = data.copy()
        for _ in range(chooser.choice((1, 1, 2, 4))):
            at = chooser.randrange(len(changed))
            changed[at] = chooser.choice((0, 1, 4, 8, 127, 128, 255, chooser.randrange(256)))
        try:
            generic = lazy_schema(Reader(changed, "test").table("Schema", table))
        except ShmarrowError:
            continue
        for at in generic._tables.positions[:5]:
            reader = Reader(changed, "test")
            try:
                fast = flat_field(reader, int(at))
            except ShmarrowError:
                with pytest.raises(ShmarrowError):
                    parse_field(Reader(changed, "test").table("Field", int(at)), DEFAULT_LIMITS)
                continue
            if fast is not None:
                kept += 1
                assert fast == parse_field(Reader(changed, "test").table("Field", int(at)), DEFAULT_LIMITS)
    assert kept > 1000 or name == "a dictionary early"


@pytest.mark.parametrize("count", [1, 40, 700])
@pytest.mark.parametrize("form", ["", "a", "ab", "abc", "abcd", "column of rows {}", "{} is first", "é{}", "c{}", "{}"])
def test_names_are_found(form: str, count: int) -> None:
    names = [form.format(i) for i in range(count)]
    for writer in (sa, pa):
        schema = writer.schema([(name, writer.int8()) for name in names])
        source = lazy_schema(table_of(footer(schema)))
        for i in {0, count // 2, count - 1}:
            assert source.find(names[i]) == [k for k, name in enumerate(names) if name == names[i]]
        for other in ("", "zz", names[0] + "x", names[-1][:-1], "\ud800", "abcdefghi" * 100):
            assert source.find(other) == [k for k, name in enumerate(names) if name == other]


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name.startswith("names of one length")])
def test_tables_that_go_on_evenly_but_for_a_few_bytes(name: str) -> None:
    """Starts and names are those of the generic scan and of the names one by one, or refused by both."""
    data = footer(SCHEMAS[name])
    source = lazy_schema(table_of(data))
    assert source._tables.run_of(1, 300) is not None
    assert source._tables.name_run() is not None
    first, tables = source._tables.first, source._tables.positions.tolist()
    names = source.names()
    chooser = random.Random(name)
    refused = other = 0
    for _ in range(1_500):
        changed = data.copy()
        place = chooser.choice((first + 4 * chooser.randrange(300), chooser.choice(tables)))
        changed[place + chooser.randrange(24)] = chooser.choice((0, 1, 3, 4, 8, 127, 128, 255, chooser.randrange(256)))
        try:
            generic = lazy_schema(table_of(changed))
            totals = generic._scan()
        except ShmarrowError:
            refused += 1
            with pytest.raises(ShmarrowError):
                lazy_schema(table_of(changed)).scan()
            continue
        found = lazy_schema(table_of(changed))
        starts = found.flat_starts()
        if totals.ndim > 1:
            assert starts is None
        else:
            assert starts is not None
            assert starts.tolist() == [0, *np.cumsum(totals, dtype=np.int64).tolist()]
        wanted = names[chooser.randrange(300)]
        try:
            all_names = found.names()
        except ShmarrowError:
            continue
        other += all_names != names
        assert found.find(wanted) == [i for i, each in enumerate(all_names) if each == wanted]
    assert refused > 10
    assert other > 10


@pytest.mark.parametrize("name", ["many alike", "of pyarrow", "many times", "a list late"])
def test_mutated_types_are_the_same_or_left_out(name: str) -> None:
    times = sa.schema([(f"t{i}", sa.timestamp("us", "UTC" if i % 2 else None)) for i in range(60)])
    data = footer(times if name == "many times" else SCHEMAS[name])
    chooser = random.Random(name)
    kept = refused = 0
    for _ in range(300):
        changed = data.copy()
        for _ in range(chooser.choice((1, 2, 8))):
            at = chooser.randrange(len(changed) // 8 * 7, len(changed))
            changed[at] = chooser.choice((0, 1, 4, 8, 255, chooser.randrange(256)))
        try:
            source = lazy_schema(table_of(changed))
            types = source.plain_types()
        except ShmarrowError:
            refused += 1
            continue
        for i in chooser.sample(range(len(types)), 20):
            try:
                expected = source.wire(i).type
            except ShmarrowError:  # what is wrong there is not the type, for its name is asked for by nobody before
                continue
            if types[i] is not None:
                kept += 1
                assert types[i] == expected
    assert kept > 500
    assert refused


# --- what is kept -----------------------------------------------------------------------------------------------------


def mapped(path: Path) -> int:
    """How many mappings of a file this process has, removed files included."""
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def write(path: Path, schema: sa.Schema, rows: int = 3) -> None:
    batch = sa.RecordBatch(schema, rows, [sa.array(range(rows), field.type) for field in schema])
    with sa.ipc.new_file(path, schema, overwrite=True) as writer:
        writer.write(batch)


@pytest.mark.parametrize("count", [3, 200])
@pytest.mark.parametrize("keep", ["reader", "batch", "table", "field", "projection"])
def test_a_schema_that_is_kept_holds_no_file(tmp_path: Path, keep: str, count: int) -> None:
    path = tmp_path / "file"
    schema = sa.schema([(f"{keep} {count} {i}", sa.int32()) for i in range(count)])
    write(path, schema)
    for _ in range(3):
        reader = sa.ipc.open_file(path, included_fields=[1, 0] if keep == "projection" else None)
        kept: Any = {
            "reader": lambda r: r.schema,
            "batch": lambda r: r.get_batch(0).schema,
            "table": lambda r: r.read_all().schema,
            "field": lambda r: r.get_batch(0).field(1),
            "projection": lambda r: r.schema,
        }[keep](reader)
        assert mapped(path)
        del reader
        assert not mapped(path)
        if keep == "field":
            assert kept == schema.field(1)
        elif keep == "projection":
            assert kept == sa.schema([schema.field(0), schema.field(1)])  # in the order of the schema
        else:
            assert kept.names == schema.names
            assert kept == schema


def test_a_batch_reads_columns_when_its_reader_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, sa.schema([(f"gone {i}", sa.int32()) for i in range(100)]))
    batch = sa.ipc.open_file(path).get_batch(0)
    path.unlink()
    assert batch.column(50).to_pylist() == [0, 1, 2]
    assert batch.column("gone 99").to_pylist() == [0, 1, 2]
    column = batch.column(0)
    del batch
    assert column.to_pylist() == [0, 1, 2]


def test_the_same_schema_is_made_once_for_many_files(tmp_path: Path) -> None:
    schema = sa.schema([(f"once {i}", sa.int32()) for i in range(100)])
    for i in range(4):
        write(tmp_path / str(i), schema, rows=i)
    first, *others = [sa.ipc.open_file(tmp_path / str(i)).schema for i in range(4)]
    assert others[0] is others[1] is others[2]
    assert first == others[0] == schema


def test_files_that_change_under_a_reader(tmp_path: Path) -> None:
    """Somebody writes into a file that is open, against all advice: what comes is data or one of our errors."""
    path = tmp_path / "file"
    chooser = random.Random(5)
    outcomes = set()
    for turn in range(300):
        schema = sa.schema([(f"changed {turn} {i}", sa.int32()) for i in range(60)])
        write(path, schema)
        reader = sa.ipc.open_file(path)
        batch = reader.get_batch(0)
        path.chmod(0o600)
        size = path.stat().st_size
        with path.open("r+b") as file:
            for _ in range(20):
                file.seek(chooser.randrange(size // 2, size))
                file.write(bytes([chooser.randrange(256)] * 4))
        for key in (chooser.randrange(60), f"changed {turn} 30", 0):
            try:
                batch.column(key).validate(full=True)
                outcomes.add("data")
            except ShmarrowError:
                outcomes.add("error")
        try:
            assert len(reader.schema.names) == 60
        except ShmarrowError:
            outcomes.add("error")
    assert outcomes == {"data", "error"}


def with_a_vtable_in_front(data: bytes) -> bytes:
    """A file whose footer has the vtable of its first field's type before all else, as FlatBuffers may."""
    size = int.from_bytes(data[-10:-6], "little")
    old, room = data[-10 - size : -10], 16
    new = bytearray(room) + old
    new[:4] = (int.from_bytes(old[:4], "little") + room).to_bytes(4, "little")
    reader = Reader(np.frombuffer(bytes(new), np.uint8), "test")
    at = reader.root("Footer")["schema"]["fields"][0]["type"][1].position
    vtable = at - int.from_bytes(new[at : at + 4], "little", signed=True)
    length = int.from_bytes(new[vtable : vtable + 2], "little")
    assert length <= room - 4
    new[4 : 4 + length] = new[vtable : vtable + length]
    new[at : at + 4] = (at - 4).to_bytes(4, "little", signed=True)
    return data[: -10 - size] + bytes(new) + len(new).to_bytes(4, "little") + b"ARROW1"


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize("nested", [False, True])
def test_a_vtable_in_front_of_the_schema_is_read_every_time(tmp_path: Path, count: int, nested: bool) -> None:
    columns = {f"in front {i}": np.arange(3, dtype="i4") for i in range(count)}
    batch = sa.record_batch(columns | ({"list": [[1], [2], [3]]} if nested else {}))
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, batch.schema) as writer:
        writer.write(batch)
    data = with_a_vtable_in_front(sink.getvalue())
    (tmp_path / "file").write_bytes(data)
    assert pa.ipc.open_file(data).get_batch(0).column(0).to_pylist() == [0, 1, 2]
    for place in (tmp_path / "file", tmp_path / "file", tmp_path / "file", data, data):
        assert sa.ipc.open_file(place).get_batch(0).equals(batch)


@pytest.mark.parametrize("what", ["vtable", "tag"])
def test_what_changes_between_two_reads_is_found(tmp_path: Path, what: str) -> None:
    path = tmp_path / "file"
    schema = sa.schema([(f"between {what} {i}", sa.int32()) for i in range(300)])
    batch = sa.RecordBatch(schema, 3, [sa.array([1, 2, 3], sa.int32())] * 300)
    with sa.ipc.new_file(path, schema, mode=0o600) as writer:
        writer.write(batch)
    reader = sa.ipc.open_file(path)
    source: Any = reader._full_schema.source
    end = len(reader._opened().data)
    if what == "vtable":
        assert reader._full_schema.get_field_index(f"between {what} 7") == 7
    else:
        assert source.scan()
    data = bytearray(path.read_bytes())
    at = int(source._tables.positions[5 if what == "tag" else 0])
    vtable = at - int.from_bytes(data[end + at : end + at + 4], "little", signed=True)
    tag = int.from_bytes(data[end + vtable + 8 : end + vtable + 10], "little")
    if what == "tag":
        data[end + at + tag] = 200
    else:
        size = source._tables.buffer.size - at
        data[end + vtable + 2 : end + vtable + 4] = size.to_bytes(2, "little")
        data[end + vtable + 8 : end + vtable + 10] = (size - 1).to_bytes(2, "little")
    with path.open("r+b") as file:
        file.write(data)
    with pytest.raises(ShmarrowError):
        _ = reader.get_batch(0).columns


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for turn in range(6):
        schema = sa.schema([(f"turn {turn // 2}", sa.int32() if turn % 2 else sa.int64())])
        write(path, schema)
        os.utime(path, ns=(1, 1))
        for _ in range(3):
            assert sa.ipc.open_file(path).schema == schema


def test_names_that_are_not_there_cost_a_schema_nothing() -> None:
    """What is read of a schema has a budget, for its whole life; looking in vain must not use it up."""
    batch = sa.record_batch({f"col{i:04}": [i] for i in range(60)})
    source = lazy_schema(table_of(footer(batch.schema)))
    for number in range(3_000):
        assert source.find(f"oth{number:04}") == []
    assert source.find("col0007") == [7]
    assert source.wire(59).field.name == "col0059"


def test_a_first_name_that_is_left_out_is_empty() -> None:
    fields: list[Any] = [{"name": f"col{i:04}", "type": ("Int", {"bitWidth": 64}), "children": []} for i in range(60)]
    del fields[0]["name"]
    data = np.frombuffer(flatbuf_writer.encode("Footer", {"schema": {"fields": fields}}), np.uint8)
    source = lazy_schema(table_of(data))
    assert source.find("") == [0]
    assert source.find("col0059") == [59]
    assert source.names()[:2] == ["", "col0001"]


def test_threads_scan_one_schema() -> None:
    """Each reader of columns far apart has their right places, though all scan at once, and so has who comes later."""
    types = [sa.int8(), sa.string(), sa.float64()]
    schema = sa.schema([(f"column {i:05}", types[i % 3 if i > 3_000 else 0]) for i in range(4_000)])
    data = footer(schema)
    starts = slow(data)[1]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(150):
            source = lazy_schema(table_of(data))
            with ThreadPoolExecutor(4) as pool:
                places = (3_999, 70, 3_100, 500, 2_000, 3_990)
                assert list(pool.map(source.flat_start, places)) == [starts[i] for i in places]
            flat = source.flat_starts()
            assert flat is not None
            assert flat.tolist() == starts
    finally:
        sys.setswitchinterval(before)


def test_a_footer_with_broken_metadata_of_its_own_opens_each_time_alike(tmp_path: Path) -> None:
    sink = io.BytesIO()
    batch = sa.record_batch({"a": [1]})
    with sa.ipc.new_file(sink, batch.schema, metadata={"kkkkkkkk": "vvvvvvvv"}) as writer:
        writer.write(batch)
    raw = bytearray(sink.getvalue())
    size = raw.rindex(b"vvvvvvvv") - 4
    raw[size : size + 4] = b"\xff\xff\xff\x7f"
    path = tmp_path / "a"
    path.write_bytes(raw)
    path.chmod(0o400)
    time.sleep(0.15)
    for _ in range(4):
        with sa.ipc.open_file(path) as reader:
            assert reader.get_batch(0).to_pydict() == {"a": [1]}
            with pytest.raises(sa.InvalidData):
                _ = reader.metadata


def test_what_is_known_of_a_file_is_nobodys_to_change(tmp_path: Path) -> None:
    path = tmp_path / "a"
    batch = sa.record_batch({"a": [1]})
    with sa.ipc.new_file(path, batch.schema, metadata={"k": "v"}) as writer:
        writer.write(batch)
    time.sleep(0.15)
    for _ in range(4):
        with sa.ipc.open_file(path) as reader:
            assert reader.metadata == {b"k": b"v"}
            with pytest.raises(sa.InvalidType):
                reader.metadata.clear()
            assert reader.get_batch(0).to_pydict() == {"a": [1]}
