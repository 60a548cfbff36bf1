"""Shared objects cannot be changed: schemas, fields, metadata; lists that are returned are copies."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
from forms import stream_of

import shmarrow as sa
from shmarrow.types import FrozenMetadata


def stream() -> bytes:
    batch = sa.record_batch({"x": [1], "y": ["s"]})
    schema = sa.schema(
        [sa.field("x", batch.schema.types[0], metadata={"f": "g"}), batch.schema.field(1)], metadata={"k": "v"}
    )
    return stream_of(sa.RecordBatch(schema, 1, batch.columns))


DATA = stream()


def read() -> sa.Schema:
    return sa.ipc.open_stream(DATA).schema


def check(schema: sa.Schema) -> None:
    """The schema is what was written."""
    assert schema.names == ["x", "y"]
    assert schema.metadata == {b"k": b"v"}
    assert schema.field("x").metadata == {b"f": b"g"}
    assert schema.field("y").nullable


CHANGES: dict[str, Any] = {
    "schema metadata, an item": lambda s: s.metadata.__setitem__(b"k", b"other"),
    "schema metadata, merged": lambda s: s.metadata.__ior__({b"k": b"other"}),
    "field metadata": lambda s: s.field("x").metadata.__setitem__(b"f", b"other"),
    "schema.metadata": lambda s: setattr(s, "metadata", None),
    "field.name": lambda s: setattr(s.field("x"), "name", "z"),
    "del field.name": lambda s: delattr(s.field("x"), "name"),
    "del schema.metadata": lambda s: delattr(s, "metadata"),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("made", ["read", "built"])
def test_nothing_can_be_set(what: str, made: str) -> None:
    schema = read() if made == "read" else sa.schema(read().fields, metadata={"k": "v"})
    with pytest.raises((AttributeError, TypeError), match=r"cannot be|is immutable"):
        CHANGES[what](schema)
    check(schema)
    check(read())


def test_lists_that_are_given_out_are_copies() -> None:
    for schema in (read(), sa.schema(read().fields, metadata={"k": "v"})):
        for _ in range(2):
            schema.get_all_field_indices("x").append(7)
            schema.names.append("z")
            schema.fields.clear()
            schema.types.clear()
            assert schema.get_all_field_indices("x") == [0]
            assert schema.field("x").name == "x"
            assert len(schema.fields) == len(schema.types) == 2
            check(schema)


def test_columns_and_batches_that_are_given_out_are_copies() -> None:
    table = sa.table({"a": [[1], [2]]})
    table.batches[0].columns.clear()
    table.to_batches().clear()
    table.columns.clear()
    for parts in (table.batches, table["a"].chunks, table["a"].chunk(0).children):
        assert isinstance(parts, tuple)
    assert table.to_pydict() == {"a": [[1], [2]]}


def test_the_metadata_of_a_footer_cannot_be_changed() -> None:
    sink = io.BytesIO()
    sa.ipc.new_file(sink, read(), metadata={"a": "b"}).close()
    reader = sa.ipc.open_file(sink.getvalue())
    with pytest.raises(TypeError, match="dict\\(metadata\\)"):
        reader.metadata[b"a"] = b""  # type: ignore[index]
    assert sa.ipc.open_file(sink.getvalue()).metadata == reader.metadata == {b"a": b"b"}


def test_metadata_are_a_mapping_in_all_other_ways() -> None:
    metadata = read().metadata
    assert metadata == {b"k": b"v"} != {b"k": b"other"}
    assert {**metadata, b"a": b"b"} == metadata | {b"a": b"b"} == {b"k": b"v", b"a": b"b"}
    assert hash(metadata) == hash(sa.schema([], metadata={"k": "v"}).metadata)
    for same in (pickle.loads(pickle.dumps(metadata)), copy.copy(metadata), copy.deepcopy(metadata)):
        assert type(same) is FrozenMetadata
        assert same == metadata


def test_what_is_given_in_is_copied() -> None:
    given = {b"k": b"v"}
    schema, field = sa.schema([], metadata=given), sa.field("a", sa.int8(), metadata=given)
    given[b"k"] = b"other"
    assert schema.metadata == field.metadata == {b"k": b"v"}
