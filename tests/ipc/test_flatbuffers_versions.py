"""Output of the Python builder of FlatBuffers in any version since 24.3 is read; ours is valid with each of them.

Up to version 25.9 the builder compares the offsets of slots alone when it looks for a vtable to share. Tables of
different sizes then have one vtable, and what it says of their size is wrong for some of them. pyarrow, which checks
slots against the end of the buffer, reads such messages.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa
from shmarrow.ipc.flatbuffers import builder
from shmarrow.ipc.flatbuffers.reader import Reader, TableVector, TableView
from shmarrow.ipc.flatbuffers.tables import TABLES

STREAM = bytes.fromhex(
    "ffffffff18010000140000000000000000000a000c000a00090004000a00000008000000000104003cffffff040000000200"
    "00006c00000014000000100018001400130012000c00080004001000000014000000140000002c0000000000050128000000"
    "00000000a4ffffff0c00000001000000000000007cffffff000000010800000074ffffff01000000640012001c0018001700"
    "160010000c000800040012000000180000004000000048000000640000000000050160000000010000000c00000008000c00"
    "0800040008000000080000000c0000000100000076000000010000006b000000000000000800080000000400080000000c00"
    "000008000c000800070008000000000000010800000004000400040000000100000061000000ffffffff00000000"
)
"""A stream without batches: two fields of dictionary(int8, string), the first with metadata {"k": "v"}.

Written with flatbuffers 24.3.25; versions 25.2.10 and 25.9.23 give the same bytes. The DictionaryEncoding table of the
second field, of at least 16 bytes, has the vtable of a KeyValue table of 12.
"""

TENSOR = bytes.fromhex(
    "ffffffffb800000014000000000000000c001a0018001700100004000c000000400000000000000000000000180000000000"
    "000404000e002800270020001c00180004000e0000000000000000000000020000000000000000000000100000001c000000"
    "3400000000000002010000000100000000000000000000000100000004000000f2ffffff0200000000000000000006000800"
    "0400060000000800000000000000000000000000000000000000000000000000000000000000000000000708000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000"
)
"""A tensor of the uint8 values 7 and 8, written with the same versions: TensorDim has the vtable of a smaller Int."""


def test_a_schema_of_an_older_builder_is_read() -> None:
    with pa.ipc.open_stream(STREAM) as peer:
        assert peer.schema.field("a").metadata == {b"k": b"v"}
        assert [str(field.type) for field in peer.schema] == [
            "dictionary<values=string, indices=int8, ordered=0>",
            "dictionary<values=string, indices=int8, ordered=0>",
        ]
    schema = sa.ipc.open_stream(STREAM).schema
    encoded = sa.dictionary("int8", "string")
    expected = sa.schema([sa.field("a", encoded, metadata={"k": "v"}), sa.field("d", encoded)])
    assert schema.equals(expected, check_metadata=True)


def test_a_tensor_of_an_older_builder_is_read() -> None:
    assert pa.ipc.read_tensor(pa.BufferReader(TENSOR)).to_numpy().tolist() == [7, 8]
    assert sa.ipc.read_tensor(TENSOR).to_numpy().tolist() == [7, 8]


def tables(view: TableView) -> Iterator[TableView]:
    """A table and all that it refers to."""
    yield view
    for slot, *_ in TABLES[view.name]:
        value = view[slot]
        below = value[1:] if isinstance(value, tuple) else [value]
        for each in value if isinstance(value, TableVector) else below:
            if isinstance(each, TableView):
                yield from tables(each)


def within_their_sizes(message: bytes) -> int:
    """Check every slot of every table against the size that the table's vtable says; how many tables there are."""
    count = 0
    for table in tables(Reader(np.frombuffer(message, np.uint8), "test").root("Message")):
        count += 1
        size = struct.unpack_from("<H", message, table.vtable + 2)[0]
        assert table.position + size <= len(message)
        needed = []
        for slot, kind, *_ in TABLES[table.name]:
            needed += [(slot, 1)] if kind.startswith("union") else []
            needed.append((slot, {"bool": 1, "i1": 1, "i2": 2, "i4": 4, "i8": 8}.get(kind, 4)))
        for (slot, needs), offset in zip(needed, table.offsets, strict=False):
            assert offset == 0 or 4 <= offset <= size - needs, (table.name, slot)
    return count


def test_the_check_of_sizes_finds_what_older_builders_do() -> None:
    with pytest.raises(AssertionError):
        within_their_sizes(STREAM[8:])


def test_what_we_write_gives_tables_their_own_sizes() -> None:
    """With any version of the builder; this runs with the one that is installed."""
    encoded = sa.dictionary("int8", "string")
    fields = [sa.field(f"d{i}", encoded, metadata={f"k{i}": "v"}) for i in range(4)]
    sink = io.BytesIO()
    sa.ipc.new_stream(sink, sa.schema([*fields, sa.field("u", sa.uint32()), sa.field("n", sa.int64())])).close()
    assert within_their_sizes(sink.getvalue()[8:]) > 20
    for values in (np.arange(6, dtype="u1").reshape(2, 3), np.arange(6.0)):
        sink = io.BytesIO()
        sa.ipc.write_tensor(sa.Tensor.from_numpy(values), sink)
        assert within_their_sizes(sink.getvalue()[8:]) > 3
        assert pa.ipc.read_tensor(pa.BufferReader(sink.getvalue())).to_numpy().tolist() == values.tolist()


def test_tables_of_different_sizes_share_no_vtable() -> None:
    """As an older builder would have them share it: the first slot at 8, the second at 4, of other sizes."""
    values = {
        "fields": [
            {
                "type": ("Utf8", {}),
                "dictionary": {"id": 1, "indexType": {"bitWidth": 8, "is_signed": True}},
                "custom_metadata": [{"key": "k", "value": "v"}],
            }
        ]
    }
    data = builder.encode("Schema", values)
    field = Reader(np.frombuffer(data, np.uint8), "test").root("Schema")["fields"][0]
    pair, encoding = field["custom_metadata"][0], field["dictionary"]
    assert pair.offsets[:2] == encoding.offsets[:2] == (8, 4)
    assert pair.vtable != encoding.vtable
    sizes = [struct.unpack_from("<H", data, table.vtable + 2)[0] for table in (pair, encoding)]
    assert sizes[0] == 12
    assert sizes[1] >= 16
