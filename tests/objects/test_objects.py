"""Values to bytes and back: what pyarrow reads of the bytes, exact sizes, and what is remembered.

Expected values are those that went in, and what pyarrow makes of the bytes.
"""

from __future__ import annotations

import gc
import io
import tracemalloc
from array import array as _stdlib_array
from collections.abc import Callable
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases.definition import Case
from cases.table import cases
from every import every

import shmarrow as sa
from shmarrow import segment
from shmarrow.layout.validation import make_safe
from shmarrow.objects import decode
from shmarrow.objects.check import are_safe
from shmarrow.objects.decode import describe
from shmarrow.objects.encode import encode

Save = Callable[..., segment.Segment]
NULLS = {"i": [1, None], "s": ["a", None], "l": [[1], None], "b": [True, None], "d": [0.5, None]}


@pytest.fixture
def save(tmp_path: Path) -> Save:
    numbers = count()

    def save(value: Any, options: Any = None) -> segment.Segment:
        """The segment of an object that has the bytes of a value, or the bytes given."""
        path = tmp_path / str(next(numbers))
        pieces = [[value]] if isinstance(value, Raw) else encode(value, options).parts
        path.write_bytes(b"".join([bytes(piece) for group in pieces for piece in group]))
        path.chmod(0o400)
        return segment.attach(path)

    return save


class Raw(bytes):
    """Bytes that are an object already."""


@every(cases())
def test_what_is_safe_is_safe_when_it_is_read(case: Case) -> None:
    for array in (case.array(), case.array()[1:]):
        try:
            parts = [bytes(piece) for group in encode(array).parts for piece in group]
        except sa.Unsupported:  # dictionaries of dictionaries
            continue
        with sa.ipc.open_file(b"".join(parts)) as reader:
            found = reader.get_batch(0).column(0)
        assert not are_safe([array]) or make_safe(found) is found


# --- every kind, read by pyarrow --------------------------------------------------------------------------------

TABLE = pa.table({"a": pa.chunked_array([[1], [2, None]]), "s": pa.chunked_array([["x"], [None, "yz"]])})
ROWS = {
    "batch": (sa.record_batch(NULLS), pa.table(NULLS)),
    "wide": (
        sa.record_batch({f"c{i}": np.arange(3.0) for i in range(400)}),
        pa.table({f"c{i}": np.arange(3.0) for i in range(400)}),
    ),
    "no rows": (sa.record_batch({"a": sa.array([], "int8")}), pa.table({"a": pa.array([], "int8")})),
    "no columns": (sa.record_batch({}), pa.table({})),
    "table": (sa.table(TABLE), TABLE),
    "of pyarrow": (TABLE, TABLE),
    "array": (sa.array(["a", None]), pa.table({"values": ["a", None]})),
    "chunks": (sa.table(TABLE).column(0), pa.table({"values": TABLE["a"]})),
    "dictionary": (
        sa.array(["a", None, "a"]).dictionary_encode(),
        pa.table({"values": pa.array(["a", None, "a"]).dictionary_encode()}),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_files_that_pyarrow_reads(name: str, save: Save) -> None:
    value, expected = ROWS[name]
    found = save(value)
    assert found.size == encode(value).size
    table = pa.ipc.open_file(pa.py_buffer(found.data)).read_all()
    assert table.equals(expected)
    assert [column.num_chunks for column in table.columns] == [column.num_chunks for column in expected.columns]
    back = decode(found)
    assert describe(found).kind == encode(value).kind
    if isinstance(back, sa.Array):
        assert back.to_pylist() == expected["values"].to_pylist()
    else:
        assert isinstance(back, (sa.RecordBatch, sa.Table, sa.ChunkedArray))
        mine = back.to_pyarrow()
        mine = pa.table({"values": mine}) if isinstance(back, sa.ChunkedArray) else mine
        assert (pa.Table.from_batches([mine]) if isinstance(back, sa.RecordBatch) else mine).equals(expected)


SINGLE: list[tuple[Any, Any]] = [
    ("é\n", np.frombuffer("é\n".encode(), np.uint8)),
    ("", np.array([], np.uint8)),
    (-(1 << 63), np.array([-(1 << 63)])),
    ((1 << 64) - 1, np.array([(1 << 64) - 1], np.uint64)),
    (-0.1, np.array([-0.1])),
    (True, np.array([1], np.uint8)),
    (False, np.array([0], np.uint8)),
]


@pytest.mark.parametrize(("value", "elements"), SINGLE)
def test_single_values_are_tensors_that_pyarrow_reads(value: Any, elements: Any, save: Save) -> None:
    """They take one slot of a store with a name of up to 80 bytes: text as far as there is room."""
    found = save(value)
    assert found.size == encode(value).size <= 320
    tensor = pa.ipc.read_tensor(pa.py_buffer(found.data)).to_numpy()
    assert (tensor.dtype, tensor.shape, tensor.tolist()) == (elements.dtype, elements.shape, elements.tolist())
    back = decode(found)
    assert (type(back), back) == (type(value), value)
    assert describe(found).kind == encode(value).kind == type(value).__name__
    assert describe(found).shape is None


def test_a_str_that_is_no_text(save: Save) -> None:
    data = b"".join([bytes(piece) for group in encode("text").parts for piece in group])
    at = data.index(b"text")
    with pytest.raises(sa.InvalidData, match="the bytes of a str are not UTF-8: invalid start byte at 0"):
        decode(save(Raw(data[:at] + b"\xff" + data[at + 1 :])))


TENSORS = {
    "numbers": np.arange(6.0),
    "matrix": np.arange(6, dtype=np.int16).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "gaps": np.arange(20)[::3],
    "backwards": np.arange(5)[::-1],
    "backwards, one": np.arange(5)[::-1][:1],
    "repeated": np.broadcast_to(np.arange(3), (4, 3)),
    "a number": np.array(5, np.uint8),
    "empty": np.empty((0, 3)),
    "of size one": np.ones((1, 1, 7))[:, ::-1],
    "other bytes": np.arange(3, dtype=">i4"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_ndarrays_are_tensors_that_pyarrow_reads(name: str, save: Save) -> None:
    value = TENSORS[name]
    found = save(value)
    assert found.size == encode(value).size
    tensor = pa.ipc.read_tensor(pa.BufferReader(pa.py_buffer(found.data)))
    assert tensor.to_numpy().tolist() == value.tolist()
    back = decode(found)
    assert isinstance(back, np.ndarray)
    assert (back.dtype, back.shape) == (value.dtype.newbyteorder("="), value.shape)
    assert back.tolist() == value.tolist()
    assert (describe(found).kind, describe(found).shape) == ("ndarray", value.shape)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [0, 800])
def test_bytes_are_tensors_of_bytes(make: Any, size: int, save: Save) -> None:
    data = np.random.default_rng(size).bytes(size)
    found = save(make(data))
    assert found.size == encode(make(data)).size
    assert pa.ipc.read_tensor(pa.BufferReader(pa.py_buffer(found.data))).to_numpy().tobytes() == data
    assert describe(found) == (make.__name__, None, None, None, sa.uint8(), (size,))
    back = decode(found)
    assert (type(back), bytes(back)) == (make, data)
    if make is memoryview:
        assert back.readonly
    assert type(save(b"no mark").data) is np.ndarray


def test_a_memoryview_keeps_its_form(save: Save) -> None:
    back = decode(save(memoryview(np.arange(6, dtype="f4").reshape(2, 3))))
    assert isinstance(back, memoryview)
    assert (back.format, back.shape, back.tolist()) == ("f", (2, 3), [[0, 1, 2], [3, 4, 5]])
    with pytest.raises(sa.InvalidType, match=r"a memoryview of format 'c'.*value\.cast\('B'\)"):
        encode(memoryview(b"abc").cast("c"))


def test_bundles_and_sparse_tensors(save: Save) -> None:
    dense = np.array([[0, 5, 0], [7, 0, 0]])
    sparse = sa.SparseCOOTensor.from_numpy([5, 7], [[0, 1], [1, 0]], (2, 3))
    tensors = {"w": dense, "gaps": np.arange(9)[::2], "sparse": sparse}
    found = save(tensors)
    assert found.size == encode(tensors).size
    assert pa.ipc.open_file(pa.py_buffer(found.data)).read_all()["name"].to_pylist() == ["w", "gaps", "sparse"]
    back = decode(found)
    assert isinstance(back, sa.Bundle)
    assert back["w"].to_numpy().tolist() == dense.tolist()
    assert back["gaps"].to_numpy().tolist() == [0, 2, 4, 6, 8]
    assert back["sparse"].to_dense().tolist() == dense.tolist()
    assert (describe(found).kind, describe(found).shape) == ("bundle", (3,))
    alone = save(sparse)
    assert alone.size == encode(sparse).size
    assert decode(alone).to_dense().tolist() == dense.tolist()
    assert describe(alone).kind == "sparse_tensor"


def test_batches_of_different_dictionaries_are_a_stream(save: Save) -> None:
    chunks = sa.ChunkedArray([sa.array(each).dictionary_encode() for each in (["a", None], ["b", "c"])])
    found = save(chunks)
    assert found.size == encode(chunks).size
    table = pa.ipc.open_stream(pa.py_buffer(found.data)).read_all()
    assert table["values"].to_pylist() == ["a", None, "b", "c"]
    assert [chunk.to_pylist() for chunk in decode(found).chunks] == [["a", None], ["b", "c"]]
    assert describe(found).kind == "chunked_array"


# --- sizes and memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"metadata_version": "V4", "use_legacy_format": True}])
def test_sizes_are_exact_with_any_options(options: dict[str, Any], save: Save) -> None:
    asked = sa.ipc.IpcWriteOptions(**options)
    for value in (np.arange(7), b"abc", sa.record_batch(NULLS), sa.table(TABLE), "x", {"a": np.ones(3)}):
        encoded = encode(value, asked)
        written = [bytes(piece) for group in encoded.parts for piece in group]
        assert encoded.size == len(b"".join(written))
    for batch in (sa.record_batch(NULLS), sa.record_batch({"x": [1]}, metadata={"k": "v"})):
        assert pa.ipc.open_file(pa.py_buffer(save(batch, asked).data)).read_all().to_pydict() == batch.to_pydict()


def test_nothing_is_copied_to_know_a_size() -> None:
    large = np.ones(1 << 21)  # 16 MiB
    table = sa.table({"a": sa.ChunkedArray([sa.array(large), sa.array(large)])})
    for value in (large, large[::2], sa.array(large), table, {"a": large, "b": large[::2]}, memoryview(large)):
        encode(value)
        tracemalloc.start()
        size = encode(value).size
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert size is not None
        assert size > 1 << 22
        assert peak < 1 << 18


def test_compressed_batches_come_one_by_one(save: Save) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 60, 1 << 18)  # 2 MiB, which compression leaves as large
    table = sa.table({"a": sa.ChunkedArray([sa.array(numbers + i) for i in range(8)])})
    encoded = encode(table, sa.ipc.IpcWriteOptions("zstd"))
    assert encoded.size is None
    tracemalloc.start()
    written = sum(len(piece) for group in encoded.parts for piece in group)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert written > 8 << 20
    assert peak < 8 << 20
    found = save(table.slice(0, 10), sa.ipc.IpcWriteOptions("lz4"))
    assert pa.ipc.open_file(pa.py_buffer(found.data)).read_all()["a"].to_pylist() == numbers[:10].tolist()
    assert decode(found).column(0).to_pylist() == numbers[:10].tolist()
    one = save(table.batches[0], sa.ipc.IpcWriteOptions("zstd"))
    assert decode(one).column(0).to_pylist() == numbers.tolist()


def test_a_small_value_is_one_list() -> None:
    for value in (np.arange(100.0), sa.record_batch(NULLS), b"abc", "abc", 1, {"a": np.ones(2)}, sa.array([1])):
        assert len(list(encode(value).parts)) == 1


# --- what is remembered -----------------------------------------------------------------------------------------


def test_what_is_remembered_is_bounded(save: Save) -> None:
    """As in a service with a new number of rows or new metadata in each put."""

    def put_and_get(rows: int) -> None:
        tensor = sa.Tensor.from_numpy(np.ones(2), metadata={"rows": str(rows)})
        assert decode(save(tensor)).metadata == tensor.metadata
        assert decode(save(np.empty(rows, "u1"))).shape == (rows,)
        assert decode(save(sa.record_batch({"a": np.empty(rows, "u1")}))).num_rows == rows

    def memory_of(numbers: range) -> int:
        before = tracemalloc.get_traced_memory()[0]
        for number in numbers:
            put_and_get(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        memory_of(range(1, 400))
        assert memory_of(range(400, 700)) < 200_000
    finally:
        tracemalloc.stop()


def test_what_is_known_of_one_size_serves_others(save: Save) -> None:
    def values(rows: int) -> list[Any]:
        columns = {"a": np.arange(rows), "b": np.arange(rows) / 2, "t": ["x"] * rows}
        return [np.ones((rows, 2)), sa.record_batch(columns), b"x" * rows, "x" * rows, rows, sa.array(np.arange(rows))]

    def write_all(batch: sa.RecordBatch) -> list[pa.Table]:
        stream, file, tensor = io.BytesIO(), io.BytesIO(), io.BytesIO()
        with sa.ipc.new_stream(stream, batch.schema) as writer:
            writer.write(batch)
        with sa.ipc.new_file(file, batch.schema) as writer:
            writer.write(batch)
        sa.ipc.write_tensor(sa.Tensor.from_numpy(np.ones(batch.num_rows)), tensor)
        assert pa.ipc.read_tensor(pa.BufferReader(tensor.getvalue())).shape == (batch.num_rows,)
        return [pa.ipc.open_stream(stream.getvalue()).read_all(), pa.ipc.open_file(file.getvalue()).read_all()]

    for rows in (3, 1000, 0, 1):
        for value in values(rows):
            found = decode(save(value))
            assert np.array_equal(found, value) if isinstance(value, np.ndarray) else found == value
    write_all(values(3)[1])
    assert [table.to_pydict() for table in write_all(values(7)[1])] == [values(7)[1].to_pydict()] * 2


def test_schemas_that_are_equal_may_say_different_things(save: Save) -> None:
    """Metadata of fields and of children do not count when types are compared, and are written all the same."""
    for value in ("one", "two", "one"):
        child = sa.field("item", sa.int8(), metadata={"k": value})
        schema = sa.schema(
            [sa.field("l", sa.list_(child), metadata={"f": value}), sa.field("n", sa.int8(), value == "one")],
            {"s": value},
        )
        batch = sa.record_batch({"l": [[1]], "n": [2]}, schema=schema)
        found = pa.ipc.open_file(pa.py_buffer(save(batch).data)).schema
        key = value.encode()
        assert found.metadata == {b"s": key}
        assert found.field(0).metadata == {b"f": key}
        assert found.field(0).type.value_field.metadata == {b"k": key}
        assert found.field(1).nullable == (value == "one")
        back = decode(save(batch))
        assert isinstance(back, sa.RecordBatch)
        assert back.schema.equals(schema, check_metadata=True)


# --- marks, and what is refused ---------------------------------------------------------------------------------


def test_a_mark_that_does_not_fit_is_none(save: Save, tmp_path: Path) -> None:
    marks = {
        "int": {"a": ["x"]},
        "str": {"a": [1]},
        "float": {"a": [0.5, 0.5]},
        "bool": {"a": [True], "b": [True]},
    }
    for kind, columns in marks.items():
        batch = sa.record_batch(columns)
        path = tmp_path / kind
        with sa.ipc.new_file(path, batch.schema, metadata={"shmarrow:kind": kind}) as writer:
            writer.write(batch)
        found = segment.attach(path)
        assert isinstance(decode(found), sa.Table)
        assert describe(found).kind == "table"
    nothing = sa.record_batch({"a": sa.array([None], "int64")})
    with sa.ipc.new_file(tmp_path / "null", nothing.schema, metadata={"shmarrow:kind": "int"}) as writer:
        writer.write(nothing)
    assert isinstance(decode(segment.attach(tmp_path / "null")), sa.Table)
    for kind, values in {"bytes": np.ones(3), "bytearray": np.ones((1, 1), np.uint8), "unknown": np.ones(1)}.items():
        sa.ipc.write_tensor(sa.Tensor.from_numpy(values, metadata={"shmarrow:kind": kind}), tmp_path / f"{kind}-tensor")
        assert isinstance(decode(segment.attach(tmp_path / f"{kind}-tensor")), sa.Tensor)


def test_a_tensor_stays_one_whatever_it_was_read_from(save: Save) -> None:
    tensor = sa.ipc.read_tensor(save(np.arange(3)))
    assert tensor.metadata == {b"shmarrow:kind": b"ndarray"}
    back = decode(save(tensor))
    assert isinstance(back, sa.Tensor)
    assert (back.to_numpy().tolist(), back.metadata) == ([0, 1, 2], None)
    chunks = sa.ChunkedArray([sa.array(each).dictionary_encode() for each in (["a"], ["b"])])
    with sa.ipc.open_stream(save(chunks)) as reader:
        table = reader.read_all()
    assert isinstance(decode(save(table)), sa.Table)


class Name(str):
    __slots__ = ()


class Number(int):
    pass


class Module:
    """As a module of torch: its parameters are asked for, and other attributes raise."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "None": (None, sa.InvalidType, "found NoneType"),
    "large": (
        1 << 64,
        sa.InvalidArgument,
        r"from -2\*\*63 to 2\*\*64 - 1, found 18446744073709551616; put str\(value\)",
    ),
    "small": (-(1 << 63) - 1, sa.InvalidArgument, r"found -9223372036854775809; put str"),
    "np.str_": (np.str_("x"), sa.InvalidType, r"found numpy\.str_; str\(value\) is kept as such"),
    "str": (Name("x"), sa.InvalidType, r"found .*Name; str\(value\) is kept as such"),
    "int": (Number(1), sa.InvalidType, r"found .*Number; int\(value\) is kept as such"),
    "dict of str": ({"a": "b"}, sa.InvalidType, r"found str for 'a'; put json\.dumps\(mapping\)"),
    "dict of lists": ({"a": [1]}, sa.InvalidType, r"put shmarrow\.table\(mapping\)"),
    "array.array": (_stdlib_array("i", [1]), sa.InvalidType, r"put memoryview\(value\)"),
    "list": ([1], sa.InvalidType, r"put shmarrow\.array\(values\)"),
    "date": (date(2020, 1, 1), sa.InvalidType, r"put shmarrow\.array\(\[value\]\)"),
    "module": (Module(), sa.InvalidType, r"which raises RuntimeError: no .*; put value\.state_dict\(\)"),
    "path": (Path("x"), sa.InvalidType, r"put_file\(name, path\)"),
    "surrogate": ("\ud800", sa.InvalidArgument, "cannot be encoded as UTF-8: surrogates not allowed at position 0"),
    "object": (object(), sa.InvalidType, "found object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    value, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        encode(value)


def test_options_that_tensors_have_not() -> None:
    with pytest.raises(sa.InvalidArgument, match="tensor messages are uncompressed"):
        encode(b"x", sa.ipc.IpcWriteOptions("zstd"))
