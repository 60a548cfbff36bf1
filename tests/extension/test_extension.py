"""Extension types: the registry, the canonical types and their accessors, unknown and hostile ones, pyarrow as a peer.

Expectations come from the document of the canonical extension types, from Python's own ``uuid`` and ``datetime``, from
Arrow's golden files and from pyarrow.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from environment import needs_pyarrow
from forms import file_of, peers_stream
from forms import stream_of as written
from processes import python

import shmarrow as sa
from shmarrow import extension
from shmarrow.extension import METADATA_KEY, NAME_KEY, ExtensionType

WEST, EAST = dt.timezone(dt.timedelta(hours=-7)), dt.timezone(dt.timedelta(hours=5, minutes=30))
MOMENTS = [dt.datetime(2025, 1, 1, tzinfo=WEST), None, dt.datetime(1969, 7, 20, 20, 17, 40, tzinfo=EAST)]
TENSORS = [[0, 1, 2, 3, 4, 5], None, [6, 7, 8, 9, 10, 11]]
IDS = [uuid.UUID("12345678-1234-5678-1234-567812345678"), None, uuid.UUID(int=0)]

CASES: list[tuple[Any, list[Any], Any]] = [
    (sa.uuid(), IDS, pa.uuid()),
    (sa.bool8(), [True, None, False], pa.bool8()),
    (sa.json_(), ['{"a": [1, null]}', None, "3"], pa.json_()),
    (sa.json_("large_string"), ["[]", None, '"é"'], pa.json_(pa.large_string())),
    (sa.json_("string_view"), ["[]", None, '"longer than twelve bytes"'], pa.json_(pa.string_view())),
    (sa.fixed_shape_tensor("int16", [2, 3]), TENSORS, pa.fixed_shape_tensor(pa.int16(), [2, 3])),
    (
        sa.fixed_shape_tensor("float32", [3, 2], ["x", "é"], [1, 0]),
        TENSORS,
        pa.fixed_shape_tensor(pa.float32(), [3, 2], ["x", "é"], [1, 0]),
    ),
    (sa.fixed_shape_tensor("int8", []), [[1], None, [2]], pa.fixed_shape_tensor(pa.int8(), [])),
    (sa.opaque("string", 'of "quotes"', "é"), ["x", None, ""], pa.opaque(pa.string(), 'of "quotes"', "é")),
    (sa.opaque("null", "varray", "Oracle"), [None, None, None], pa.opaque(pa.null(), "varray", "Oracle")),
    (sa.opaque(sa.list_("int8"), "a", "b"), [[1], None, []], pa.opaque(pa.list_(pa.int8()), "a", "b")),
    (
        sa.variable_shape_tensor("double", 2),
        [{"data": [1.0, 2.0], "shape": [2, 1]}, None, {"data": [], "shape": [0, 7]}],
        None,
    ),
    (
        sa.parquet_variant(),
        [{"metadata": b"\x01\x00\x00", "value": b"\x00"}, None, {"metadata": b"", "value": b""}],
        None,
    ),
    (sa.timestamp_with_offset("us"), MOMENTS, None),
    (sa.timestamp_with_offset("s", sa.run_end_encoded("int16", "int16")), MOMENTS, None),
    (sa.timestamp_with_offset("ms", sa.dictionary("int8", "int16")), MOMENTS, None),
]
"""A type, values of it with a null in the middle, and what pyarrow calls the type."""

IN_PYARROW = [case for case in CASES if case[2] is not None]
WITHOUT_DICTIONARY = [case for case in CASES if not any(f.type.layout == "dictionary" for f in case[0].fields)]


def each(cases: list[Any]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(case, id=str(case[0])) for case in cases])


def read(data: bytes) -> Any:
    table = sa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    return table


def column_of(storage: Any, name: str, serialized: bytes) -> Any:
    """A batch of one column whose metadata say that it is of an extension type."""
    metadata = {NAME_KEY: name.encode(), METADATA_KEY: serialized, b"more": b"\xff"}
    return sa.record_batch([storage], schema=sa.schema([sa.field("x", storage.type, metadata=metadata)]))


# --- the registry -----------------------------------------------------------------------------------------------


class Celsius(ExtensionType):
    """Temperatures with a parameter, as a user would write them."""

    __slots__ = ("place",)
    extension_name = "test.celsius"

    def __init__(self, storage_type: Any, place: str) -> None:
        super().__init__(storage_type)
        self.place = place

    def serialize(self) -> bytes:
        return self.place.encode()

    @classmethod
    def deserialize(cls, storage_type: Any, serialized: bytes) -> Celsius:
        if storage_type != sa.float64():
            raise RuntimeError("only doubles")
        return cls(storage_type, serialized.decode())

    def to_python(self, value: Any) -> Any:
        return f"{value} °C"

    def from_python(self, value: Any) -> Any:
        return float(value.removesuffix(" °C"))


@pytest.fixture
def celsius() -> Iterator[Celsius]:
    sa.register_extension_type(Celsius)
    yield Celsius(sa.float64(), "Malmö")
    sa.unregister_extension_type("test.celsius")


def test_a_type_of_a_user(celsius: Celsius) -> None:
    array = sa.array(["1.5 °C", None], celsius)
    assert array.storage.to_pylist() == [1.5, None]
    batch = read(written(sa.record_batch({"t": array, "l": sa.array([["2.0 °C"], []], sa.list_(celsius))})))
    assert batch.schema.field("t").type == celsius
    assert batch.schema.field("t").type.place == "Malmö"
    assert batch.schema.field("t").metadata is None
    assert batch.to_pydict() == {"t": ["1.5 °C", None], "l": [["2.0 °C"], []]}
    assert str(celsius) == "extension<test.celsius>"
    assert celsius == Celsius(sa.float64(), "Malmö") != Celsius(sa.float64(), "Lund")
    assert hash(celsius) == hash(Celsius(sa.float64(), "Malmö"))
    assert pickle.loads(pickle.dumps(celsius)).place == "Malmö"


def test_what_is_read_follows_the_registry() -> None:
    data = written(column_of(sa.array([1.0]), "test.celsius", b"Lund"))
    assert read(data).schema.field(0).type == sa.float64()
    sa.register_extension_type(Celsius)
    try:
        assert read(data).to_pydict() == {"x": ["1.0 °C"]}
        assert read(data).schema.field(0).metadata == {b"more": b"\xff"}
        assert read(written(column_of(sa.array([1]), "test.celsius", b"Lund"))).to_pydict() == {
            "x": [1]
        }  # RuntimeError
        assert read(written(column_of(sa.array([1.0]), "test.celsius", b"\xff"))).to_pydict() == {"x": [1.0]}
    finally:
        sa.unregister_extension_type("test.celsius")
    assert read(data).to_pydict() == {"x": [1.0]}


def test_the_registry_refuses() -> None:
    class Nameless(ExtensionType):
        pass

    class Mine(ExtensionType):
        extension_name = "arrow.uuid"

    with pytest.raises(sa.InvalidType, match="subclass of ExtensionType"):
        sa.register_extension_type(sa.uuid())  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidArgument, match="non-empty"):
        sa.register_extension_type(Nameless)
    with pytest.raises(sa.InvalidArgument, match=r"'arrow\.uuid' is registered"):
        sa.register_extension_type(Mine)
    with pytest.raises(sa.InvalidArgument, match=r"no extension type is registered as 'test.none'.*arrow.bool8"):
        sa.unregister_extension_type("test.none")
    with pytest.raises(sa.InvalidArgument, match="the storage cannot be an extension type"):
        sa.opaque(sa.uuid(), "a", "b")
    with pytest.raises(sa.InvalidArgument, match="the storage cannot be an extension type"):
        sa.opaque(sa.dictionary("int8", sa.uuid()), "a", "b")


def test_one_of_many_threads_registers() -> None:
    start = threading.Barrier(8)

    def attempt(_: int) -> bool:
        start.wait()
        try:
            sa.register_extension_type(Celsius)
        except sa.InvalidArgument:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(attempt, range(8)))
    sa.unregister_extension_type("test.celsius")
    assert sorted(outcomes) == [False] * 7 + [True]


# --- what all of them do ----------------------------------------------------------------------------------------


@each(CASES)
def test_array(case: Any) -> None:
    type, values, _ = case
    array = sa.array(values, type)
    assert isinstance(array, sa.ExtensionArray)
    assert array.type is type
    assert array.to_pylist() == values
    assert [array[i] for i in range(3)] == values
    assert list(array) == values
    assert array.storage.type == type.storage_type
    assert sa.ExtensionArray.from_storage(type, array.storage).equals(array)
    assert array.null_count == array.storage.null_count
    assert array.is_valid().tolist() == array.storage.is_valid().tolist()
    array.validate(full=True)
    assert array.slice(1).to_pylist() == values[1:]
    assert array.slice(2).trim().to_pylist() == values[2:]
    assert array.take([2, 0, 1, 0]).to_pylist() == [values[i] for i in (2, 0, 1, 0)]
    assert array.drop_null().to_pylist() == [value for value in values if value is not None]
    joined = sa.concat_arrays([array.slice(2), array])
    assert joined.type == type
    assert joined.to_pylist() == values[2:] + values
    joined.validate(full=True)
    assert array.slice(2) == array.take([2])
    assert sa.array([], type).to_pylist() == []
    assert sa.array([None, None], type).to_pylist() == [None, None]
    assert sa.nulls(2, type).to_pylist() == [None, None]
    assert pickle.loads(pickle.dumps(array)) == array
    assert pickle.loads(pickle.dumps(type)) == type
    assert repr(array).startswith("<shmarrow.Array extension<")
    assert array != array.storage


@each(CASES)
def test_messages(case: Any) -> None:
    type, values, _ = case
    array = sa.array(values, type)
    columns = {
        "plain": array,
        "sliced": sa.concat_arrays([array, array]).slice(2, 3),
        "list": sa.array([values, [], None], sa.list_(type)),
        "struct": sa.array([{"a": value} for value in values], sa.struct([("a", type)])),
        "map": sa.array([[("k", value)] for value in values], sa.map_("string", type)),
        "runs": sa.array(values, sa.run_end_encoded("int16", type)),
        "after": sa.array([1, 2, 3]),
    }
    if case in WITHOUT_DICTIONARY and "opaque" not in str(type):
        columns["dictionary"] = sa.array(values, sa.dictionary("int8", type))
    batch = sa.record_batch(columns)
    for back in (
        read(written(batch, endianness="big")),
        sa.ipc.open_file(file_of(batch, compression="lz4")).read_all(),
    ):
        assert back.schema == batch.schema
        assert back.to_pydict() == batch.to_pydict()
        assert {field.metadata for field in back.schema} == {None}


def test_a_dictionary_as_storage_comes_first() -> None:
    values = sa.array(["a", "b", "a"], sa.dictionary("int8", "string"))
    type = sa.opaque(values.type, "enum", "a database")
    batch = sa.record_batch({"x": sa.ExtensionArray.from_storage(type, values)})
    assert read(written(batch)).schema.field(0).type == type
    assert read(written(batch)).to_pydict() == {"x": ["a", "b", "a"]}


def test_casts() -> None:
    array = sa.array(IDS, sa.uuid())
    raw = array.cast(sa.binary(16))
    assert raw.to_pylist() == [IDS[0].bytes, None, bytes(16)]
    assert raw.cast(sa.uuid()) == array
    encoded = array.dictionary_encode()
    assert encoded.type == sa.dictionary("int32", sa.uuid())
    assert encoded.to_pylist() == IDS
    assert encoded.cast(sa.uuid()) == array
    assert array.cast(sa.dictionary("int8", sa.binary(16))).to_pylist() == raw.to_pylist()
    assert array.run_end_encode().to_pylist() == IDS
    text = sa.array(["1", None], sa.json_())
    assert text.cast(sa.json_("string_view")).to_pylist() == ["1", None]
    assert sa.array([None, None]).cast(sa.uuid()).to_pylist() == [None, None]
    with pytest.raises(sa.InvalidType, match=r"there is no cast from extension<arrow.json> to extension<arrow.uuid>"):
        text.cast(sa.uuid())
    with pytest.raises(sa.InvalidType, match="expected a storage array of fixed_size_binary"):
        sa.ExtensionArray.from_storage(sa.uuid(), sa.array([1]))
    with pytest.raises(sa.InvalidType, match="expected an ExtensionType"):
        sa.ExtensionArray.from_storage(sa.int8(), sa.array([1], "int8"))


# --- pyarrow as a peer ------------------------------------------------------------------------------------------


@each(IN_PYARROW)
def test_types_of_pyarrow(case: Any) -> None:
    ours, _, theirs = case
    assert str(ours) == str(theirs)
    assert sa.types.as_type(theirs) == ours
    assert ours.to_pyarrow() == theirs
    assert sa.types.as_type(pa.list_(theirs)) == sa.list_(ours)
    assert sa.struct([("a", ours)]).to_pyarrow() == pa.struct([("a", theirs)])


@each(IN_PYARROW)
def test_pyarrow_reads_what_we_write_and_we_its(case: Any) -> None:
    type, values, theirs = case
    lists = sa.array([values, [], None], sa.list_(type))
    table = pa.ipc.open_stream(written(sa.record_batch({"x": sa.array(values, type), "l": lists}))).read_all()
    table.validate(full=True)
    assert table.schema.types == [theirs, pa.list_(theirs)]
    assert table.to_pydict() == {"x": values, "l": [values, [], None]}
    column = pa.ExtensionArray.from_storage(theirs, table["x"].chunk(0).storage)
    back = read(peers_stream(pa.record_batch({"x": column, "s": pa.StructArray.from_arrays([column], ["a"])})))
    assert back.schema.types == [type, sa.struct([("a", type)])]
    assert back.to_pydict() == {"x": values, "s": [{"a": value} for value in values]}


@each(CASES)
def test_exchange_in_memory(case: Any) -> None:
    type, values, theirs = case
    if type.storage_type == sa.string_view():
        needs_pyarrow(21)  # older ones lose the characters of views in extension arrays
    array = sa.array(values, type)
    batch = sa.record_batch({"x": array, "l": sa.array([values, [], None], sa.list_(type))})
    handed = batch.to_pyarrow()
    handed.validate(full=True)
    if theirs is not None:
        assert handed.column(0).type == theirs
        assert handed.column(0).to_pylist() == values
    back = sa.record_batch(handed)
    assert back.schema == batch.schema
    assert back == batch
    assert sa.record_batch(handed.slice(1)).to_pydict() == batch.slice(1).to_pydict()


# --- unknown, misfit and hostile --------------------------------------------------------------------------------


def metadata_of(data: bytes) -> Any:
    return pa.ipc.open_stream(data).schema.field(0).metadata


def passes_through(storage: Any, name: str, serialized: bytes) -> bool:
    """Whether a column is read as its storage, and written again with the same entries."""
    batch = column_of(storage, name, serialized)
    back = read(written(batch))
    field = back.schema.field(0)
    entries = {NAME_KEY: name.encode(), METADATA_KEY: serialized, b"more": b"\xff"}
    again = read(written(back.batches[0])).schema.field(0)
    return (
        field.type == storage.type
        and field.metadata == entries == again.metadata
        and back.to_pydict() == {"x": storage.to_pylist()}
    )


def test_unknown_types_pass_through_untouched() -> None:
    storage = sa.array([b"a", None])
    assert passes_through(storage, "test.unknown", b"\x00\xff{")
    data = written(read(written(column_of(storage, "test.unknown", b"\x00\xff{"))).batches[0])
    assert metadata_of(data) == {NAME_KEY: b"test.unknown", METADATA_KEY: b"\x00\xff{", b"more": b"\xff"}
    batch = sa.record_batch(
        [storage], schema=sa.schema([sa.field("x", storage.type, metadata={NAME_KEY: b"\xff\xfe"})])
    )
    assert read(written(batch)).schema.field(0).metadata == {NAME_KEY: b"\xff\xfe"}


_FLAT = sa.array([list(range(6))], sa.list_(sa.int8(), 6))
_VARIABLE = sa.variable_shape_tensor("int8", 2)
DEEP = b"[" * 30_000
FIXED, VARIABLE, OPAQUE = "arrow.fixed_shape_tensor", "arrow.variable_shape_tensor", "arrow.opaque"

HOSTILE: list[tuple[str, Any, bytes]] = [
    *[
        (FIXED, _FLAT, text)
        for text in (
            b"", b"{", b"null", b"[2, 3]", b'"shape"', b"{}", b"\xff\xfe", DEEP, b'{"shape":' + DEEP,
            b'{"shape": 6}', b'{"shape": "6"}', b'{"shape": {"0": 6}}', b'{"shape": null}', b'{"shape": [null]}',
            b'{"shape": [2, 4]}', b'{"shape": [-2, -3]}', b'{"shape": [2.0, 3.0]}', b'{"shape": [6, true]}',
            b'{"shape": [NaN]}', b'{"shape": [Infinity]}', b'{"shape": [6e0]}', b'{"shape": [[6]]}',
            b'{"shape": [0, 4611686018427387904]}', b'{"shape": [' + b"9" * 5000 + b"]}",
            b'{"shape": [6' + b", 1" * 64 + b"]}", b'{"shape": [6' + b", 1" * 20_000 + b"]}",
            b'{"shape": [2, 3], "dim_names": ["a"]}', b'{"shape": [2, 3], "dim_names": "ab"}',
            b'{"shape": [2, 3], "dim_names": ["a", 1]}', b'{"shape": [2, 3], "dim_names": ["a", "\\ud800"]}',
            b'{"shape": [2, 3], "permutation": [0]}', b'{"shape": [2, 3], "permutation": [0, 0]}',
            b'{"shape": [2, 3], "permutation": [1, 2]}', b'{"shape": [2, 3], "permutation": [true, false]}',
            b'{"shape": [2, 3], "permutation": 1}', b'{"shape": [2, 3]}' + b" " * (1 << 16),
        )
    ],
    (FIXED, sa.array([[1, 2]], sa.list_(sa.int8())), b'{"shape": [2]}'),
    (FIXED, sa.array([1]), b'{"shape": [1]}'),
    *[
        (VARIABLE, sa.array([None], _VARIABLE.storage_type), text)
        for text in (
            b"[]", b"1", b"{", b'{"dim_names": ["a"]}', b'{"permutation": [0, 2]}', b'{"uniform_shape": [1]}',
            b'{"uniform_shape": [1, -1]}', b'{"uniform_shape": [1, "2"]}', b'{"uniform_shape": 2}', DEEP,
        )
    ],
    (VARIABLE, sa.array([None], sa.struct({"data": sa.list_("int8"), "shape": sa.list_("int32")})), b""),
    (VARIABLE, sa.array([None], sa.struct({"data": sa.list_("int8"), "shape": sa.list_("int64", 2)})), b""),
    (VARIABLE, sa.array([None], sa.struct({"data": sa.list_("int8"), "shape": sa.list_("int32", 99)})), b""),
    (VARIABLE, sa.array([None], sa.struct([("data", sa.list_("int8")), ("data", sa.list_("int32", 2))])), b""),
    (VARIABLE, sa.array([None], sa.struct({})), b""),
    *[
        (OPAQUE, sa.array([1]), text)
        for text in (b"", b"{}", b'{"type_name": "a"}', b'{"type_name": "a", "vendor_name": 1}', b'{"type_name": null}',
                     b'{"type_name": "\\udfff", "vendor_name": "b"}', DEEP)
    ],
    ("arrow.json", sa.array([b"1"]), b""),
    ("arrow.json", sa.array([1]), b""),
    ("arrow.json", sa.array(["1"]), b"[]"),
    ("arrow.json", sa.array(["1"]), DEEP),
    ("arrow.uuid", sa.array([b"x" * 15], sa.binary(15)), b""),
    ("arrow.uuid", sa.array(["x"]), b""),
    ("arrow.bool8", sa.array([1], "uint8"), b""),
    ("arrow.bool8", sa.array([True]), b""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "storage", "serialized"), [pytest.param(*row, id=f"{row[0]}-{i}") for i, row in enumerate(HOSTILE)]
)
def test_what_does_not_fit_stays_its_storage(name: str, storage: Any, serialized: bytes) -> None:
    assert passes_through(storage, name, serialized)
    canonical: type[ExtensionType] = getattr(extension, extension.CANONICAL[name])
    assert canonical.extension_name == name
    with pytest.raises((sa.InvalidArgument, sa.Unsupported)):
        canonical.deserialize(storage.type, serialized)


def test_parameters_of_the_specification() -> None:
    """The document's examples of serialized parameters, read and written again."""
    lists = sa.list_(sa.int8(), 100 * 200 * 500)
    read_fixed, read_variable = (
        extension.FixedShapeTensorType.deserialize,
        extension.VariableShapeTensorType.deserialize,
    )
    assert read_fixed(sa.list_(sa.int8(), 10), b'{ "shape": [2, 5]}') == sa.fixed_shape_tensor("int8", [2, 5])
    named = read_fixed(lists, b'{ "shape": [100, 200, 500], "dim_names": ["C", "H", "W"]}')
    assert named.dim_names == ("C", "H", "W")
    permuted = read_fixed(lists, b'{ "shape": [100, 200, 500], "permutation": [2, 0, 1]}')
    assert permuted.logical_shape == (500, 100, 200)
    storage = sa.variable_shape_tensor("int8", 3).storage_type
    assert read_variable(storage, b"") == sa.variable_shape_tensor("int8", 3)
    images = read_variable(storage, b'{ "dim_names": ["H", "W", "C"], "uniform_shape": [400, null, 3] }')
    assert images == sa.variable_shape_tensor("int8", 3, dim_names=["H", "W", "C"], uniform_shape=[400, None, 3])
    assert json.loads(images.serialize()) == {"dim_names": ["H", "W", "C"], "uniform_shape": [400, None, 3]}
    assert json.loads(permuted.serialize()) == {"shape": [100, 200, 500], "permutation": [2, 0, 1]}
    found = extension.OpaqueType.deserialize(
        sa.binary(), b'{"type_name": "geometry", "vendor_name": "PostGIS", "x": 1}'
    )
    assert (found.type_name, found.vendor_name) == ("geometry", "PostGIS")
    assert extension.JsonType.deserialize(sa.string(), b"{}") == sa.json_()


# --- golden files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0.0-littleendian", "cpp-21.0.0"])
@pytest.mark.parametrize("form", ["stream", "arrow_file"])
def test_golden_files(arrow_testing: Path, version: str, form: str) -> None:
    path = arrow_testing / "integration" / version / f"generated_extension.{form}"
    opened = sa.ipc.open_stream(path) if form == "stream" else sa.ipc.open_file(path)
    table = opened.read_all()
    theirs = (pa.ipc.open_stream if form == "stream" else pa.ipc.open_file)(path.read_bytes()).read_all()
    canonical = version.startswith("cpp")
    uuids, dictionaries = table.schema
    assert uuids.type == (sa.uuid() if canonical else sa.binary(16))
    assert uuids.metadata == (None if canonical else {NAME_KEY: b"uuid", METADATA_KEY: b"uuid-serialized"})
    assert dictionaries.type == sa.dictionary("int8", "string")
    assert dictionaries.metadata == {NAME_KEY: b"dict-extension", METADATA_KEY: b"dict-extension-serialized"}
    assert table.to_pydict() == theirs.to_pydict()
    again = pa.ipc.open_stream(b"".join([written(table.batches[-1])])).read_all()
    assert again.schema.equals(theirs.schema, check_metadata=True)
    assert again.to_pydict() == pa.Table.from_batches([theirs.to_batches()[-1]]).to_pydict()


# --- tensors ----------------------------------------------------------------------------------------------------


def test_a_column_of_tensors_is_one_ndarray(tmp_path: Path) -> None:
    values = np.arange(4 * 2 * 3, dtype="f4").reshape(4, 2, 3)
    array = sa.FixedShapeTensorArray.from_numpy_ndarray(values)
    assert array.type == sa.fixed_shape_tensor("float32", [2, 3])
    assert array.to_numpy_ndarray().ctypes.data == values.ctypes.data
    with sa.ipc.new_file(tmp_path / "t.arrow", sa.schema([("t", array.type)])) as writer:
        writer.write(sa.record_batch({"t": array}))
    batch = sa.ipc.open_file(tmp_path / "t.arrow").get_batch(0)
    found = batch.column("t").to_numpy_ndarray()
    assert np.array_equal(found, values)
    assert found.ctypes.data == batch.column("t").storage.values.buffers()[1].address
    assert not found.flags.writeable
    assert np.array_equal(batch.column("t").slice(1, 2).to_numpy(), values[1:3])
    assert np.array_equal(batch.column("t").tensor(3), values[3])
    with pytest.raises(sa.IndexOutOfRange):
        batch.column("t").tensor(4)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 3, 1), (0, 3, 2, 1)])
def test_tensors_in_any_order_of_dimensions(order: tuple[int, ...]) -> None:
    values = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).transpose(order)
    names = ["abc"[axis - 1] for axis in order[1:]]
    array = sa.FixedShapeTensorArray.from_numpy_ndarray(values, names)
    assert array.type.shape == (3, 4, 5)
    assert array.type.dim_names == ("a", "b", "c")
    # Dimension i of the logical view is the physical dimension permutation[i].
    assert (array.type.permutation or (0, 1, 2)) == tuple(axis - 1 for axis in order[1:])
    assert np.array_equal(array.to_numpy_ndarray(), values)
    assert array.to_numpy_ndarray().ctypes.data == values.ctypes.data
    assert array.storage.to_pylist() == np.arange(120).reshape(2, 60).tolist()
    assert sa.array(np.ascontiguousarray(values), array.type) == array
    assert sa.array(list(values), array.type) == array
    assert np.array_equal(array.tensor(1), values[1])


def test_tensors_beside_pyarrow() -> None:
    values = np.arange(12, dtype="i8").reshape(2, 3, 2).transpose(0, 2, 1)
    ours, theirs = (
        sa.FixedShapeTensorArray.from_numpy_ndarray(values),
        pa.FixedShapeTensorArray.from_numpy_ndarray(values),
    )
    assert ours.to_pyarrow() == theirs
    assert np.array_equal(ours.to_pyarrow().to_numpy_ndarray(), values)
    assert np.array_equal(sa.array(theirs).to_numpy_ndarray(), theirs.to_numpy_ndarray())


def test_what_tensors_cannot_do() -> None:
    type = sa.fixed_shape_tensor("int8", [2])
    with pytest.raises(sa.CopyRequired, match="1 null "):
        sa.array([[1, 2], None], type).to_numpy_ndarray()
    assert sa.array([[1, 2], None], type).to_numpy(False).tolist() == [[1, 2], None]
    assert sa.array([[1, 2], None], type).tensor(1) is None
    with pytest.raises(sa.CopyRequired):
        sa.array([[1, None]], type).to_numpy_ndarray()
    with pytest.raises(sa.CopyRequired):
        sa.array([["a"]], sa.fixed_shape_tensor("string", [1])).to_numpy_ndarray()
    with pytest.raises(sa.InvalidArgument, match="largest stride"):
        sa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 3)).T)
    with pytest.raises(sa.InvalidArgument, match="at least one dimension"):
        sa.FixedShapeTensorArray.from_numpy_ndarray(np.array(1))
    with pytest.raises(sa.InvalidArgument, match="one per dimension, found 2"):
        sa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 3)), ["a", "b"])
    with pytest.raises(sa.InvalidData, match=r"rows of the shape \(2,\), found an ndarray \(1, 3\)"):
        sa.array(np.zeros((1, 3), "i1"), type)
    with pytest.raises(sa.InvalidData, match=r"of the shape \(2,\), found \(3,\)"):
        sa.array([np.zeros(3, "i1")], type)
    with pytest.raises(sa.Unsupported, match="dimensions, found 64"):
        sa.fixed_shape_tensor("int8", [1] * 64)
    most = sa.array([[1]], sa.fixed_shape_tensor("int8", [1] * 63))
    assert most.to_numpy_ndarray().shape == (1,) * 64
    huge = sa.fixed_shape_tensor("int8", [0, (1 << 31) - 1, (1 << 31) - 1, (1 << 31) - 1])
    with pytest.raises(sa.InvalidData, match="invalid shape for an ndarray"):
        sa.array([[]], huge).to_numpy_ndarray()
    assert sa.array([[], []], sa.fixed_shape_tensor("int8", [2, 0])).to_numpy_ndarray().shape == (2, 2, 0)


def test_tensors_of_many_shapes() -> None:
    values = [np.arange(6, dtype="f8").reshape(2, 3), None, np.ones((1, 1)), np.empty((0, 5))]
    array = sa.array(values, sa.variable_shape_tensor("float64", 2))
    array.validate(full=True)
    for view in (array, array.slice(1), sa.concat_arrays([array.slice(2), array]).slice(2)):
        first = len(values) - len(view)
        for found, value in zip(view.to_tensors(), values[first:], strict=True):
            assert (found is None) == (value is None)
            assert found is None or (found.shape == value.shape and np.array_equal(found, value))
    elements = array.storage.field("data").values
    assert array.tensor(0).ctypes.data == elements.buffers()[1].address
    assert array.tensor(2).ctypes.data == elements.buffers()[1].address + 6 * 8
    assert array.tensor(1) is None
    assert array.shapes()[[0, 2, 3]].tolist() == [[2, 3], [1, 1], [0, 5]]
    turned = sa.array([np.arange(24).reshape(4, 2, 3)], sa.variable_shape_tensor("int64", 3, permutation=[2, 0, 1]))
    assert turned.storage.to_pylist()[0]["shape"] == [2, 3, 4]
    assert np.array_equal(turned.tensor(0), np.arange(24).reshape(4, 2, 3))
    with pytest.raises(sa.InvalidData, match="2 dimensions"):
        sa.array([np.zeros(3)], array.type)


@pytest.mark.parametrize(
    ("row", "uniform"),
    [
        ({"data": [1, 2], "shape": [1, 1]}, None),
        ({"data": [1], "shape": [-1, -1]}, None),
        ({"data": [], "shape": [1 << 30, 1 << 30]}, None),
        ({"data": [1], "shape": [1, None]}, None),
        ({"data": [1], "shape": None}, None),
        ({"data": None, "shape": [0, 0]}, None),
        ({"data": [1, 2], "shape": [1, 2]}, [2, None]),
    ],
)
def test_shapes_that_do_not_fit(row: Any, uniform: Any) -> None:
    type = sa.variable_shape_tensor("int8", 2, uniform_shape=uniform)
    good = {"data": [7, 8], "shape": [2, 1]}
    array = sa.array([good, row], type)
    with pytest.raises(sa.InvalidData, match="tensor 1 has the shape"):
        array.validate(full=True)
    with pytest.raises(sa.InvalidData, match="tensor 1 has the shape"):
        array.to_tensors()
    assert array.tensor(0).tolist() == [[7], [8]]
    masked = array.take([0, None])
    masked.validate(full=True)
    assert masked.tensor(1) is None


# --- the other canonical types ----------------------------------------------------------------------------------


def test_uuid() -> None:
    array = sa.array([IDS[0], IDS[2].bytes], sa.uuid())
    assert array.storage.to_pylist() == [bytes.fromhex("12345678123456781234567812345678"), bytes(16)]
    assert str(array) == "[12345678-1234-5678-1234-567812345678, 00000000-0000-0000-0000-000000000000]"
    assert array.to_numpy().dtype == np.dtype("V16")
    assert sa.array(np.array(IDS, object), sa.uuid()).to_pylist() == IDS
    with pytest.raises(sa.ShmarrowError):
        sa.array([b"short"], sa.uuid())


def test_bool8() -> None:
    source = np.array([True, False, True])
    array = sa.array(source, sa.bool8())
    assert array.to_numpy().ctypes.data == source.ctypes.data
    assert array.to_numpy().tolist() == [True, False, True]
    assert array.slice(1).to_numpy().tolist() == [False, True]
    odd = sa.array(np.array([0, 2, -1], "i1"), sa.bool8())
    assert odd.to_pylist() == [False, True, True]
    with pytest.raises(sa.CopyRequired, match="other than 0 and 1"):
        odd.to_numpy()
    assert odd.to_numpy(False).tolist() == [False, True, True]
    holes = sa.array([True, None], sa.bool8())
    with pytest.raises(sa.CopyRequired, match="1 null "):
        holes.to_numpy()
    assert holes.to_numpy(False).tolist() == [True, None]
    assert sa.array([], sa.bool8()).to_numpy().dtype == np.bool_
    assert sa.array(np.ma.array(source, mask=[0, 1, 0]), sa.bool8()).to_pylist() == [True, None, True]


def test_json() -> None:
    array = sa.array(['{"a": [1, 2.5, null]}', None, "null", '"é"'], sa.json_())
    assert array.parse() == [{"a": [1, 2.5, None]}, None, None, "é"]
    for text in ("{", "", "[1,]", "[" * 100_000, "9" * 5000):
        broken = sa.array(["1", text], sa.json_())
        assert broken.to_pylist() == ["1", text]
        with pytest.raises(sa.InvalidData, match="row 1: "):
            broken.parse()
        with pytest.raises(sa.InvalidData, match="row 1: "):
            broken.validate(full=True)


def moments(unit: str, rows: list[Any]) -> Any:
    fields = [sa.field("timestamp", sa.timestamp(unit, "UTC")), sa.field("offset_minutes", sa.int16())]
    type = extension.TimestampWithOffsetType(sa.struct(fields))
    return sa.ExtensionArray.from_storage(type, sa.array(rows, type.storage_type))


def test_timestamp_with_offset() -> None:
    array = sa.array(MOMENTS, sa.timestamp_with_offset("us"))
    assert isinstance(array, extension.TimestampWithOffsetArray)
    assert array.type.unit == "us"
    assert [value.utcoffset() for value in array.to_pylist() if value] == [WEST.utcoffset(None), EAST.utcoffset(None)]
    assert array.timestamps[0] == dt.datetime(2025, 1, 1, 7, tzinfo=dt.UTC)
    assert array.offset_minutes[0] == -7 * 60
    runs = sa.array(MOMENTS, sa.timestamp_with_offset("us", sa.run_end_encoded("int16", "int16")))
    assert runs.offset_minutes.to_pylist()[2] == 5 * 60 + 30
    at = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
    # A null moment is a null value; a null offset is none.
    rows = moments("s", [{"timestamp": None, "offset_minutes": 5}, {"timestamp": at, "offset_minutes": None}])
    rows.validate(full=True)
    assert rows.to_pylist() == [None, at]
    assert rows[0] is None
    assert str(rows) == "[null, 2025-01-01 00:00:00+00:00]"


def test_timestamp_with_offset_beyond_python() -> None:
    moment = np.datetime64("2025-01-01T00:00:00.000001", "ns")
    array = moments("ns", [{"timestamp": moment, "offset_minutes": -420}])
    local = dt.datetime(2024, 12, 31, 17, 0, 0, 1, dt.timezone(dt.timedelta(hours=-7)))
    assert array.to_pylist() == [local]
    assert array.to_pylist()[0].utcoffset() == dt.timedelta(hours=-7)
    array = moments("ns", [{"timestamp": moment + 1, "offset_minutes": -420}])
    with pytest.raises(sa.InvalidData, match=r"row 0: .*found 2025-01-01T00:00:00\.000001001"):
        array.to_pylist()
    assert array.timestamps.to_numpy()[0] == moment + 1
    last = {"timestamp": dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC), "offset_minutes": 600}
    assert moments("s", [last]).to_pylist() == [last]
    wild = moments("s", [{"timestamp": dt.datetime(2025, 1, 1, tzinfo=dt.UTC), "offset_minutes": 30_000}])
    assert wild.to_pylist()[0]["offset_minutes"] == 30_000
    for minutes, fits in ((-780, False), (-779, True), (780, True), (781, False)):
        array = moments("s", [None, {"timestamp": dt.datetime(2025, 1, 1, tzinfo=dt.UTC), "offset_minutes": minutes}])
        if fits:
            array.validate(full=True)
        else:
            with pytest.raises(
                sa.InvalidData, match=rf"row 1: .*expected a UTC offset of -779 to 780 minutes, found {minutes}"
            ):
                array.validate(full=True)
    type = sa.timestamp_with_offset("us")
    with pytest.raises(sa.InvalidType, match="with a time zone"):
        sa.array([dt.datetime(2025, 1, 1)], type)
    for offset in (dt.timedelta(hours=14), dt.timedelta(minutes=1, seconds=1)):
        with pytest.raises(sa.InvalidData, match="whole minutes"):
            sa.array([dt.datetime(2025, 1, 1, tzinfo=dt.timezone(offset))], type)


def variant(*fields: Any) -> Any:
    return sa.struct([field if isinstance(field, sa.Field) else sa.field(*field) for field in fields])


def required(name: str, type: Any) -> sa.Field:
    return sa.field(name, type, nullable=False)


_METADATA = required("metadata", sa.binary())
_VALUE = sa.field("value", sa.binary_view())
_PART = sa.struct([_VALUE, sa.field("typed_value", sa.int64())])

VARIANTS = [
    variant(_METADATA, _VALUE),
    variant(_VALUE, required("metadata", sa.large_binary())),
    variant(required("metadata", sa.dictionary("int8", sa.binary())), _VALUE),
    variant(required("metadata", sa.run_end_encoded("int16", sa.binary_view())), _VALUE),
    *[
        variant(_METADATA, sa.field("typed_value", type))
        for type in (
            sa.null(), sa.bool_(), sa.uint32(), sa.float32(), sa.decimal128(38, 2), sa.date32(), sa.time64("us"),
            sa.timestamp("us", "UTC"), sa.timestamp("ns"), sa.string_view(), sa.uuid(),
            sa.list_(required("element", _PART)), sa.list_view(required("element", _PART)),
            sa.struct([required("a", _PART), required("b", sa.struct([_VALUE]))]),
            sa.struct([required("a", sa.struct([sa.field("typed_value", sa.list_(required("e", _PART)))]))]),
        )
    ],
]  # fmt: skip

NO_VARIANTS = [
    sa.binary(),
    variant(_METADATA),
    variant(sa.field("metadata", sa.binary()), _VALUE),
    variant(required("metadata", sa.string()), _VALUE),
    variant(_METADATA, sa.field("value", sa.string())),
    variant(_METADATA, _VALUE, sa.field("more", sa.binary())),
    variant(_METADATA, _VALUE, _VALUE),
    variant(_VALUE),
    *[
        variant(_METADATA, sa.field("typed_value", type))
        for type in (
            sa.float16(), sa.decimal256(76, 2), sa.date64(), sa.time32("s"), sa.timestamp("ms"), sa.duration("s"),
            sa.timestamp("us", "Europe/Paris"), sa.binary(16), sa.list_(_PART), sa.list_(required("e", sa.int8())),
            sa.struct([("a", _PART)]), sa.struct([required("a", sa.struct([]))]), sa.list_(required("e", _PART), 2),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize("storage", VARIANTS, ids=str)
def test_variants(storage: Any) -> None:
    type = sa.parquet_variant(storage)
    assert type.shredded == ("typed_value" in storage.names)
    array = sa.nulls(2, type)
    back = read(written(sa.record_batch({"v": array})))
    assert back.schema.field(0).type == type
    assert array.metadata.type == storage.field("metadata").type
    assert (array.value is None) == ("value" not in storage.names)
    assert (array.typed_value is None) == ("typed_value" not in storage.names)


@pytest.mark.parametrize("storage", NO_VARIANTS, ids=str)
def test_no_variants(storage: Any) -> None:
    with pytest.raises(sa.InvalidArgument):
        sa.parquet_variant(storage)
    assert passes_through(sa.nulls(1, storage), "arrow.parquet.variant", b"")


def test_types_of_users_are_immutable_once_they_are_made() -> None:
    class Unit(ExtensionType):
        extension_name = "test.unit"

        def __init__(self, storage_type: Any, unit: str) -> None:
            self.unit = unit
            super().__init__(storage_type)
            self.label = f"in {unit}"

    made = Unit("int8", "m")
    assert (made.unit, made.label, made.storage_type) == ("m", "in m", sa.int8())
    for type, names in (
        (made, ("unit", "label", "storage_type", "other")),
        (sa.opaque("int8", "a", "b"), ("type_name",)),
    ):
        for name in names:
            with pytest.raises(AttributeError, match="immutable"):
                setattr(type, name, "x")
            with pytest.raises(AttributeError, match="immutable"):
                delattr(type, name)


@pytest.mark.processes
def test_threads_that_meet_lazy_parts_have_them_whole() -> None:
    """Threads ask for a class that another one is importing, in a fresh process."""
    code = """if True:
        import threading, time
        import shmarrow as sa
        from shmarrow.layout import Array
        real, half_done, found = Array.__init_subclass__.__func__, threading.Event(), []
        def slow(cls, **keywords):
            half_done.set()
            time.sleep(0.1)  # the others go on now
            real(cls, **keywords)
        Array.__init_subclass__ = classmethod(slow)
        def ask():
            half_done.wait()
            found.append(sa.FixedShapeTensorArray)
        asks = [threading.Thread(target=ask) for _ in range(3)]
        for thread in asks:
            thread.start()
        tensors = sa.array([[1, 2, 3, 4]], sa.fixed_shape_tensor("int32", [2, 2]))
        for thread in asks:
            thread.join()
        print([type(tensors) is each for each in found], tensors.to_numpy().tolist())
    """
    assert python(code) == "[True, True, True] [[[1, 2], [3, 4]]]\n"


def test_operations_on_the_storage_take_extension_arrays() -> None:
    """As indices, offsets, numbers and lists, an array of an extension type is its storage."""
    bits = sa.array([True, False, None], sa.bool8())
    assert sa.array([5, 6]).take(bits).to_pylist() == [6, 5, None]
    assert sa.ListArray.from_arrays(bits[1::-1], [7]).to_pylist() == [[7]]
    floats = sa.array([1.0, float("nan"), None], sa.opaque(sa.float64(), "number", "test"))
    assert floats.is_null(nan_is_null=True).to_pylist() == [False, True, True]
    assert floats.fill_null(2.0).to_pylist()[2] == 2.0
    masked = floats.to_masked_array()
    assert (masked.mask.tolist(), masked[0]) == ([False, False, True], 1.0)
    pairs = sa.array(
        [[{"k": 1, "v": 2}], None], sa.opaque(sa.list_(sa.struct({"k": "int8", "v": "int8"})), "pairs", "test")
    )
    assert pairs.cast(sa.map_("int8", "int8")).to_pylist() == [[(1, 2)], None]
    assert sa.opaque("int64", "a", "b") != bits.view("uint8").type == sa.uint8()
    records = sa.struct({"a": sa.opaque(sa.struct({"b": "int8"}), "record", "test")})
    assert sa.array([{"a": {"b": 1}}], records).to_structured_array()["a"].tolist() == [{"b": 1}]


def test_a_class_of_arrays_names_its_type() -> None:
    class MetresType(ExtensionType):
        extension_name = "test.metres"

    class MetresArray(sa.ExtensionArray, of=MetresType):
        def feet(self) -> Any:
            return self.to_numpy() / 0.3048

    assert sa.array([0.3048, 3.048], MetresType("float64")).feet().tolist() == [1.0, 10.0]
    assert ExtensionType.array_class is sa.ExtensionArray
    assert extension.UuidType.array_class is sa.ExtensionArray
    assert extension.Bool8Type.array_class is extension.Bool8Array


class Picky(sa.ExtensionType):
    extension_name = "test.picky"

    def __init__(self) -> None:
        super().__init__(sa.int64())

    @classmethod
    def deserialize(cls, storage_type: sa.DataType, serialized: bytes) -> sa.ExtensionType:
        raise KeyError("lost")

    def to_python(self, value: Any) -> Any:
        return {1: "one"}[value]

    def from_python(self, value: Any) -> Any:
        return {"one": 1, "two": 2}[value]


def test_conversions_of_extension_types_that_raise() -> None:
    held = sa.array(["one", None, "two"], Picky())
    assert held[:2].to_pylist() == ["one", None]
    found = r"row 2: extension<test.picky>: to_python\(2\) raised KeyError\(2\)"
    for read in (held.to_pylist, lambda: held[2], lambda: sa.array([held[2]])):
        with pytest.raises(sa.InvalidData, match=found) as caught:
            read()
        assert isinstance(caught.value.__cause__, KeyError)
    assert "one" in repr(held)
    assert "2" in repr(held)
    found = r"row 1: .*from_python\('ten'\) raised KeyError\('ten'\)"
    with pytest.raises(sa.InvalidData, match=found) as caught:
        sa.array(["one", "ten"], Picky())
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(sa.InvalidData, match=r"from_python\('ten'\) raised"):
        held.fill_null("ten")
    with pytest.raises(sa.InvalidData, match=r"test.picky over int64: deserialize\(b''\) raised KeyError\('lost'\)"):
        pickle.loads(pickle.dumps(Picky()))
