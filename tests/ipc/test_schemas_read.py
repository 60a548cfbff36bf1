"""Schemas that are read: beside fields parsed one by one, names, and what is kept of files that went away."""

from __future__ import annotations

import io
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pyarrow as pa
import pytest
from cases.table import cases
from measures import mappings

import shmarrow as sa
from shmarrow.errors import DEFAULT_LIMITS, ShmarrowError
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.message.decode import CONTINUATION
from shmarrow.ipc.schema.lazy import LazySchema, lazy_schema, parse_field

CASES = [case for case in cases(writable=True) if len(case.values)]
EXAMPLES = {case.type: case.array() for case in CASES}
PLAIN = [case.type for case in CASES if not case.type.fields and "extension" not in case.name][::7]


def column_of(type: Any, number: int) -> Any:
    """Three values of a type, others for each number."""
    if type.layout == "primitive" and type.descriptor.values in ("integer", "float"):
        return sa.array([number % 100, None, number % 90]).cast(type)
    example = EXAMPLES[type] if type in EXAMPLES else sa.array([[1], [], [2, 3]]).cast(type)
    return example.take([(number + i) % len(example) for i in range(3)])


def file_of(schema: Any, turn: str = "") -> tuple[bytes, list[Any]]:
    """A file of one batch, written by pyarrow or by us, and its columns."""
    sink = io.BytesIO()
    theirs = isinstance(schema, pa.Schema)
    ours = sa.schema(schema)
    columns = [column_of(field.type, i) for i, field in enumerate(ours)]
    if turn:
        schema = schema.with_metadata({**(schema.metadata or {}), "turn": turn})
    if theirs:
        made = pa.RecordBatch.from_arrays([column.to_pyarrow() for column in columns], schema=schema)
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(made)
    else:
        with sa.ipc.new_file(sink, schema) as file:
            file.write(sa.RecordBatch(schema, 3, columns))
    return sink.getvalue(), columns


def footer_of(data: bytes) -> tuple[int, Any]:
    """Return the offsets of a file's footer and of its root table."""
    size = int.from_bytes(data[-10:-6], "little")
    start = len(data) - 10 - size
    return start, Reader(np.frombuffer(data, np.uint8)[start:-10], "test").root("Footer")


def fields_of(data: bytes) -> list[Any]:
    """Each field of a file's schema, parsed by itself; None if it is refused."""
    schema = footer_of(data)[1]["schema"]
    found = []
    for table in (schema and schema["fields"]) or ():
        try:
            found.append(parse_field(table, DEFAULT_LIMITS).field)
        except ShmarrowError:
            found.append(None)
    return found


def named(count: int) -> list[str]:
    return [f"column {i * 7919 % count}" for i in range(count)]


SCHEMAS = {
    "none": sa.schema([]),
    "all plain": sa.schema([(f"c{i}", type) for i, type in enumerate(PLAIN)]),
    "many alike": sa.schema([(name, sa.float64()) for name in named(400)]),
    "many others": sa.schema([(name, PLAIN[i % len(PLAIN)]) for i, name in enumerate(named(400))]),
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
        [(name, (pa.float64(), pa.string(), pa.bool_())[i % 3]) for i, name in enumerate(named(300))]
    ),
    "times": sa.schema([(f"t{i}", sa.timestamp("us", "UTC" if i % 2 else None)) for i in range(60)]),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_columns_may_be_asked_for_in_any_order(name: str) -> None:
    count = len(SCHEMAS[name])
    orders = (range(count - 1, -1, -1), random.Random(1).sample(range(count), count))
    for turn, order in enumerate(orders):
        data, columns = file_of(SCHEMAS[name], f"{turn}")  # else its schema would be known from the turn before
        fields = sa.schema(SCHEMAS[name]).fields
        reader = sa.ipc.open_file(data)
        batch = reader.get_batch(0)
        for i in order:
            assert batch.column(i).equals(columns[i])
            assert reader.schema.field(i) == fields[i]
        assert reader.schema.names == [field.name for field in fields]
        whole = sa.ipc.open_file(file_of(SCHEMAS[name], f"whole {turn}")[0]).get_batch(0)
        assert pa.record_batch(whole).equals(pa.record_batch(batch))


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in ("none", "many others", "all plain")])
def test_mutations_give_the_same_or_nothing(name: str) -> None:
    """Fields and places by name are those of the fields parsed one by one, or refused."""
    data = file_of(SCHEMAS[name], "mutated")[0]
    start, root = footer_of(data)
    tables = [start + table.position for table in root["schema"]["fields"]]
    chooser = random.Random(name)
    kept = refused = 0
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(chooser.choice((1, 1, 2, 4))):
            at = chooser.choice(
                (chooser.randrange(start, len(data) - 10), chooser.choice(tables) + chooser.randrange(24))
            )
            changed[at] = chooser.choice((0, 1, 3, 4, 8, 127, 128, 255, chooser.randrange(256)))
        try:
            expected = fields_of(bytes(changed))
            schema = sa.ipc.open_file(bytes(changed)).schema
        except ShmarrowError:
            refused += 1
            continue
        if not expected:
            continue
        keys: list[Any] = chooser.sample(range(len(expected)), min(len(expected), 5))
        if None not in expected:
            keys.insert(chooser.randrange(6), chooser.choice(SCHEMAS[name].names))
        for key in keys:
            try:
                if isinstance(key, str):
                    places = [i for i, field in enumerate(expected) if field.name == key]
                    assert schema.get_all_field_indices(key) == places
                else:
                    assert schema.field(key) == expected[key]
                kept += 1
            except ShmarrowError:
                refused += 1
    assert kept > 50 or name == "with metadata"
    assert refused > 10


@pytest.mark.parametrize("name", ["many alike", "of pyarrow", "times", "a list late"])
def test_mutated_types_are_the_same_in_every_export(name: str) -> None:
    """A batch that is exported as a whole has the types of its fields."""
    data = file_of(SCHEMAS[name], "exported")[0]
    start = footer_of(data)[0]
    chooser = random.Random(name)
    kept = refused = 0
    for _ in range(8_000 // len(SCHEMAS[name])):
        changed = bytearray(data)
        for _ in range(chooser.choice((1, 2, 8))):
            at = chooser.randrange(start + (len(data) - start) // 8 * 7, len(data) - 10)
            changed[at] = chooser.choice((0, 1, 4, 8, 255, chooser.randrange(256)))
        try:
            expected = fields_of(bytes(changed))
            batch = sa.ipc.open_file(bytes(changed)).get_batch(0)
            exported = sa.schema(pa.record_batch(batch).schema)
        except ShmarrowError:
            refused += 1
            continue
        kept += 1
        assert [field.type for field in exported] == [field.type for field in expected]
    assert kept
    assert refused


@pytest.mark.parametrize("count", [1, 40, 200])
@pytest.mark.parametrize("form", ["", "a", "ab", "abc", "abcd", "column of rows {}", "{} is first", "é{}", "c{}", "{}"])
def test_names_are_found(form: str, count: int) -> None:
    names = [form.format(i) for i in range(count)]
    for writer in (sa, pa):
        data, _ = file_of(writer.schema([(name, writer.int8()) for name in names]), writer.__name__)
        schema = sa.ipc.open_file(data).schema
        for i in {0, count // 2, count - 1}:
            assert schema.get_all_field_indices(names[i]) == [k for k, name in enumerate(names) if name == names[i]]
        for other in ("", "zz", names[0] + "x", names[-1][:-1], "\ud800", "abcdefghi" * 100):
            assert schema.get_all_field_indices(other) == [k for k, name in enumerate(names) if name == other]


# --- what is kept -----------------------------------------------------------------------------------------------------


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
        assert mappings(path)
        del reader
        assert not mappings(path)
        if keep == "field":
            assert kept == schema.field(1)
        elif keep == "projection":
            assert kept == sa.schema([schema.field(0), schema.field(1)])  # in the order of the schema
        else:
            assert kept.names == schema.names
            assert kept == schema


def test_the_same_schema_is_made_once_for_many_files(tmp_path: Path) -> None:
    schema = sa.schema([(f"once {i}", sa.int32()) for i in range(100)])
    for i in range(4):
        write(tmp_path / str(i), schema, rows=i)
    first, *others = [sa.ipc.open_file(tmp_path / str(i)).schema for i in range(4)]
    assert others[0] is others[1] is others[2]
    assert first == others[0] == schema


def test_a_footer_that_changes_under_a_reader(tmp_path: Path) -> None:
    """Somebody writes into a file that is open, against all advice: its schema was copied when it was opened."""
    path = tmp_path / "file"
    chooser = random.Random(5)
    for turn in range(10):
        schema = sa.schema([(f"changed {turn} {i}", sa.int32()) for i in range(300)])
        write(path, schema)
        reader = sa.ipc.open_file(path)
        batch = reader.get_batch(0)
        path.chmod(0o600)
        size = path.stat().st_size
        with path.open("r+b") as file:
            for _ in range(20):
                file.seek(chooser.randrange(size // 2, size))
                file.write(bytes([chooser.randrange(256)] * 4))
        for key in (chooser.randrange(300), f"changed {turn} 30", 0):
            batch.column(key).validate(full=True)
        assert reader.schema == schema


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
    data = with_a_vtable_in_front(forms.file_of(batch))
    (tmp_path / "file").write_bytes(data)
    assert pa.ipc.open_file(data).get_batch(0).column(0).to_pylist() == [0, 1, 2]
    for place in (tmp_path / "file", tmp_path / "file", tmp_path / "file", data, data):
        assert sa.ipc.open_file(place).get_batch(0).equals(batch)


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for turn in range(6):
        schema = sa.schema([(f"turn {turn // 2}", sa.int32() if turn % 2 else sa.int64())])
        write(path, schema)
        os.utime(path, ns=(1, 1))
        for _ in range(3):
            assert sa.ipc.open_file(path).schema == schema


def test_names_that_are_not_there_cost_a_schema_nothing() -> None:
    """Reading a schema has a budget for its whole life; failed look-ups must not use it up."""
    schema = sa.ipc.open_file(file_of(sa.schema([(f"col{i:04}", sa.int8()) for i in range(60)]))[0]).schema
    for number in range(3_000):
        assert schema.get_field_index(f"oth{number:04}") == -1
    assert schema.get_field_index("col0007") == 7
    assert schema.field(59).name == "col0059"


def test_a_first_name_that_is_left_out_is_empty() -> None:
    fields: list[Any] = [{"name": f"col{i:04}", "type": ("Int", {"bitWidth": 64}), "children": []} for i in range(60)]
    del fields[0]["name"]
    footer = flatbuf_writer.encode("Footer", {"version": 4, "schema": {"fields": fields}})
    data = b"ARROW1\0\0" + footer + len(footer).to_bytes(4, "little") + b"ARROW1"
    schema = sa.ipc.open_file(data).schema
    assert schema.get_field_index("") == 0
    assert schema.get_field_index("col0059") == 59
    assert schema.names[:2] == ["", "col0001"]


def test_threads_read_columns_of_one_batch() -> None:
    """Each reader of columns far apart gets the right ones, though all start at once, and so does who comes later."""
    types = [sa.int8(), sa.string(), sa.float64()]
    schema = sa.schema([(f"column {i:05}", types[i % 3 if i > 3_000 else 0]) for i in range(4_000)])
    data, columns = file_of(schema, "turn 000")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(15):
            batch = sa.ipc.open_file(data.replace(b"turn 000", b"turn %03d" % turn)).get_batch(0)
            with ThreadPoolExecutor(4) as pool:
                places = (3_999, 70, 3_100, 500, 2_000, 3_990)
                for place, found in zip(places, pool.map(batch.column, places), strict=True):
                    assert found.equals(columns[place])
            assert batch.column(3_500).equals(columns[3_500])
    finally:
        sys.setswitchinterval(before)


def test_a_footer_with_broken_metadata_of_its_own_is_refused_each_time_alike(tmp_path: Path) -> None:
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
    for _ in range(4):
        with pytest.raises(sa.InvalidData, match=r"footer: .* needs \["):
            sa.ipc.open_file(path)


def parsed(table: dict[str, Any]) -> LazySchema:
    data = np.frombuffer(flatbuf_writer.encode("Schema", table), np.uint8)
    return lazy_schema(Reader(data, "test").root("Schema"))


@pytest.mark.parametrize("feature", [3, -1, 1 << 40])
def test_a_schema_with_a_feature_that_is_not_known_is_refused_by_its_number(feature: int) -> None:
    """Schema.fbs: readers find out by the features that they do not support what a stream makes use of."""
    values = {"fields": [], "features": np.array([1, feature], "<i8")}
    with pytest.raises(sa.Unsupported, match=f"feature number {feature};"):
        parsed(values)
    message = flatbuf_writer.encode("Message", {"version": 4, "header": ("Schema", values), "bodyLength": 0})
    message += bytes(-len(message) % 8)
    with pytest.raises(sa.Unsupported, match=str(feature)):
        sa.ipc.open_stream(CONTINUATION + len(message).to_bytes(4, "little") + message)


def test_known_features_are_read() -> None:
    assert len(parsed({"fields": [], "features": np.array([0, 1, 2], "<i8")})) == 0
