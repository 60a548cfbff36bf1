"""A budget belongs to one operation on foreign bytes: what is valid stays readable, however often it is asked for.

Schemas are cached by their bytes and shared by all readers of a process, so whatever a request used up of them would be
missing for the next one. Hostile bytes, which refer to the same things many times, stay bounded in each operation.
"""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.errors import EXPANDED_VALUES, InvalidArgument, LimitExceeded, Limits, Unsupported
from shmarrow.ipc.flatbuffers import builder
from shmarrow.ipc.flatbuffers.builder import Built
from shmarrow.ipc.flatbuffers.reader import FlatBuffer, Reader
from shmarrow.ipc.message.framing import CONTINUATION
from shmarrow.ipc.schema.lazy import LazySchema, lazy_schema

VALUES = {"a": [1, None], "b": [1, 2]}
SCHEMA = sa.schema(
    [sa.field("a", sa.int64(), metadata={"f": "g"}), sa.field("b", sa.int64(), nullable=False)], metadata={"k": "v"}
)


def written(new: Any) -> bytes:
    sink = io.BytesIO()
    more = {"metadata": {"m": "n"}} if new is sa.ipc.new_file else {}
    with new(sink, SCHEMA, **more) as writer:
        writer.write(sa.record_batch(VALUES, schema=SCHEMA))
    return sink.getvalue()


FILE, STREAM = written(sa.ipc.new_file), written(sa.ipc.new_stream)


def ask(schema: sa.Schema) -> None:
    """Everything that a schema can be asked for."""
    assert schema.names == ["a", "b"]
    assert schema.get_all_field_indices("b") == [1]
    assert schema.get_field_index("nothing") == -1
    assert schema.field("a").metadata == {b"f": b"g"}
    assert schema.field(1).nullable is False
    assert schema.types == [sa.int64()] * 2
    assert schema.metadata == {b"k": b"v"}
    assert [field.name for field in schema.fields] == ["a", "b"]


def test_one_file_is_opened_thousands_of_times(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(FILE)
    for turn in range(600):
        with sa.ipc.open_file(path if turn % 2 else FILE) as reader:
            assert reader.get_batch(0).to_pydict() == VALUES
            assert reader.metadata == {b"m": b"n"}
            ask(reader.schema)


def test_one_reader_answers_thousands_of_times(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(FILE)
    for source in (path, FILE):
        reader = sa.ipc.open_file(source)
        batch = reader.get_batch(0)
        for _ in range(2_000):
            assert reader.metadata == {b"m": b"n"}
            assert batch.schema.names == ["a", "b"]
            ask(reader.schema)
        for _ in range(300):
            assert reader.get_batch(0).to_pydict() == VALUES


def test_streams_of_one_schema_are_read_thousands_of_times() -> None:
    for turn in range(300):
        with sa.ipc.open_stream(STREAM if turn % 2 else io.BufferedReader(io.BytesIO(STREAM))) as reader:  # type: ignore[type-var]
            ask(reader.schema)
            assert reader.read_all().to_pydict() == VALUES


def test_a_schema_that_was_asked_before_answers_a_hundred_thousand_times() -> None:
    schema = sa.ipc.open_file(FILE).schema
    for _ in range(100_000):
        assert schema.metadata == {b"k": b"v"}
        assert schema.field(0).name == "a"
    for _ in range(10_000):
        assert schema.names == ["a", "b"]


def parsed(table: dict[str, Any]) -> LazySchema:
    data = np.frombuffer(builder.encode("Schema", table), np.uint8)
    return lazy_schema(Reader(data, "test").root("Schema"))


def shared(count: int, **values: Any) -> LazySchema:
    """Many references to one field."""
    made = builder.new_builder()
    field = builder.add_table(made, "Field", values)
    fields = Built(builder.add_offsets(made, [field] * count))
    root = builder.add_table(made, "Schema", {"fields": fields})
    data = np.frombuffer(builder.finish(made, root), np.uint8)
    return lazy_schema(Reader(data, "test").root("Schema"))


@pytest.mark.parametrize("ask_for", ["fields", "names", "dictionary_wires"])
def test_many_fields_that_are_one_are_refused_in_one_operation(ask_for: str) -> None:
    """2,000 references to a field with 40,000 bytes of text would make 80 MB out of 48 kB."""
    type = ("Timestamp", {"unit": 0, "timezone": "UTC" * 10})
    name, value = ("n" * 40_000, "v") if ask_for == "names" else ("n", "v" * 40_000)
    schema = shared(2_000, name=name, type=type, children=[], custom_metadata=[{"key": "k", "value": value}])
    for _ in range(3):
        with pytest.raises(LimitExceeded, match="16 times"):
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
    with pytest.raises(LimitExceeded, match=r"Limits\.tables"):
        _ = sa.ipc.open_stream(sink.getvalue(), limits=Limits(tables=60)).schema.fields
    schema = sa.ipc.open_stream(sink.getvalue(), limits=Limits(tables=61)).schema
    for _ in range(100):
        assert schema.field(29).type == sa.list_(sa.int8())  # of four tables


def test_limits_have_no_field_without_effect() -> None:
    with pytest.raises(TypeError):
        Limits(expanded_values=5)  # type: ignore[call-arg]
    assert EXPANDED_VALUES == 1 << 24


def test_a_shared_buffer_has_nothing_to_use_up() -> None:
    buffer = FlatBuffer(np.zeros(64, np.uint8), "test")
    assert not hasattr(buffer, "spend")
    one, two = buffer.operation(), buffer.operation()
    one.spend(90, 0)
    two.spend(90, 0)
    with pytest.raises(LimitExceeded):
        one.spend(90, 0)


@pytest.mark.parametrize("feature", [3, -1, 1 << 40])
def test_a_schema_with_a_feature_that_is_not_known_is_refused_by_its_number(feature: int) -> None:
    """Schema.fbs: readers find out by the features that they do not support what a stream makes use of."""
    values = {"fields": [], "features": np.array([1, feature], "<i8")}
    with pytest.raises(Unsupported, match=f"feature number {feature};"):
        parsed(values)
    message = builder.encode("Message", {"version": 4, "header": ("Schema", values), "bodyLength": 0})
    message += bytes(-len(message) % 8)
    with pytest.raises(Unsupported, match=str(feature)):
        sa.ipc.open_stream(CONTINUATION + len(message).to_bytes(4, "little") + message)


def test_known_features_are_read() -> None:
    assert len(parsed({"fields": [], "features": np.array([0, 1, 2], "<i8")})) == 0


@pytest.mark.parametrize("name", ["\ud800", "ok \udfff"])
def test_a_name_without_a_utf8_form_is_refused_when_the_field_is_made(name: str) -> None:
    with pytest.raises(InvalidArgument, match="UTF-8"):
        sa.field(name, sa.int8())
    with pytest.raises(InvalidArgument, match="UTF-8"):
        sa.schema([("a", sa.int8())], metadata={name: "v"})
    with pytest.raises(InvalidArgument, match="UTF-8"):
        sa.field("a", sa.int8(), metadata={"k": name})
    with pytest.raises(InvalidArgument, match="UTF-8"):
        sa.record_batch({name: [1]})
