"""To and from pyarrow: every case both ways, sliced, nested, with the same values at the same addresses."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from cases.definition import Case
from cases.table import CASES
from cases.table import case as by_name
from environment import needs_pyarrow
from every import every
from forms import peers_stream
from parts import has_validity, own_buffers
from processes import python

import shmarrow as sa
from shmarrow.layout.validation import make_safe

pa = pytest.importorskip("pyarrow")

PYARROW_LACKS = {"interval-month", "interval-day-time"}
"""Types that pyarrow has no name for in Python."""

KNOWN = [case for case in CASES if not case.name.startswith(tuple(PYARROW_LACKS)) or "month-day" in case.name]

NO_PYLIST = {
    "struct-duplicate-names": "to_pylist refuses structs with duplicate names",
    "time64-ns": "to_pylist gives datetime.time, which has no nanoseconds",
}
if importlib.util.find_spec("pandas") is None:
    NO_PYLIST |= dict.fromkeys(("timestamp-ns", "duration-ns"), "to_pylist gives datetime objects without pandas")
"""Cases that pyarrow takes and validates, but does not give as Python values."""

NOT_BUILT = ("union", "ree", "spec-run", "spec-dense", "spec-sparse", "dictionary", "odd-")
"""Layouts that ``pa.array`` does not build from Python values, or not of all value types."""

OFFSETS = (1, 3, 8, 13)


def of(case: Case, names: Iterable[str]) -> bool:
    return any(name in case.name for name in names)


def addresses(array: Any) -> set[int]:
    """Return the addresses of the bytes of an array of either side, without the dictionaries of nested arrays."""
    found = {buffer.address for buffer in array.buffers() if buffer is not None and len(memoryview(buffer))}
    if isinstance(array.type, (pa.DictionaryType, sa.types.DictionaryType)):
        found |= addresses(array.dictionary)
    return found


MOVED = {"struct", "fixed_size_list", "sparse_union"}
"""Layouts that may be handed out from their first slot on, so that children hold no other slots than theirs."""


def needed(array: Any, moved: bool = False) -> set[int]:
    """Return the addresses of the bytes of one of our arrays, without bitmaps without a null, which pyarrow drops."""
    buffers = own_buffers(array)
    moved = moved or array.offset > 0
    if (array.null_count == 0 and has_validity(array)) or (moved and array.type.layout in MOVED):
        buffers[0] = None
    found = {data.ctypes.data for data in buffers if data is not None and len(data)}
    return found.union(*[needed(child, moved) for child in array.children])


def same_memory(theirs: Any, ours: Any) -> bool:
    """Whether our array copies nothing; the C data interface does not tell of buffers that no slot refers to."""
    return needed(ours) <= addresses(theirs)


def check_peer(case: Case, theirs: Any, ours: Any, values: list[Any]) -> None:
    """The same values at the same addresses, right by both sides' own rules."""
    theirs.validate(full=True)
    ours.validate(full=True)
    assert len(theirs) == len(ours) == len(values)
    assert theirs.null_count == ours.null_count
    assert not values or same_memory(theirs, ours)
    assert ours.to_pylist() == values
    if "sparse" in case.name or "struct-union" in case.name:
        needs_pyarrow(25)  # older ones show other values of slices
    if not of(case, NO_PYLIST):
        assert theirs.to_pylist() == values


@every(KNOWN)
def test_there_and_back(case: Case) -> None:
    built, values = case.repeated()
    ours = make_safe(built)  # a copy of views where null ones lead anywhere
    theirs = built.to_pyarrow()
    check_peer(case, theirs, ours, values)
    back = sa.array(theirs)
    check_peer(case, theirs, back, values)
    assert back == ours or "odd-names" in case.name
    for offset in (offset for offset in OFFSETS if offset < len(values)):
        for length in (None, 0, 9):
            end = None if length is None else offset + length
            there = ours.slice(offset, length).to_pyarrow()
            if ours.type.layout != "sparse_union":
                assert there.offset == (ours.offset + offset if len(there) else 0)
                assert addresses(there) <= addresses(ours)
            check_peer(case, there, ours.slice(offset, length), values[offset:end])
            here = sa.array(theirs.slice(offset, length))
            assert here.offset == (theirs.offset + offset if len(here) else 0)
            check_peer(case, theirs.slice(offset, length), here, values[offset:end])
            check_peer(case, here.to_pyarrow(), here, values[offset:end])


BUILT = [case for case in KNOWN if not of(case, NOT_BUILT) and case.physical is None]


@every(BUILT)
def test_what_pyarrow_builds(case: Case) -> None:
    """pyarrow's own array of the same values is ours, and nested in a sliced struct too."""
    if "float16" in case.name:
        needs_pyarrow(21)  # older ones take numpy's floats only
    theirs = pa.array(case.values, case.type.to_pyarrow())
    ours = sa.array(theirs)
    check_peer(case, theirs, ours, case.values)
    assert ours == case.array() or "odd-names" in case.name
    assert theirs.equals(case.array().to_pyarrow())
    outer = pa.StructArray.from_arrays([theirs, pa.array(range(len(theirs)))], ["inner", "i"])
    for offset in (offset for offset in OFFSETS if offset < len(theirs)):
        here = sa.array(outer.slice(offset))
        here.validate(full=True)
        assert here.field("inner").to_pylist() == case.values[offset:]
        assert here.field("i").to_pylist() == list(range(offset, len(theirs)))
        assert here.to_pyarrow().equals(outer.slice(offset))
        assert same_memory(outer, here)


@pytest.mark.parametrize("offset", [0, *OFFSETS])
def test_children_of_slices_of_slices(offset: int) -> None:
    """Offsets of parents and of children add up, three levels deep, in each layout whose children are cut."""
    numbers = pa.array(range(100)).slice(5)
    inner = pa.StructArray.from_arrays([numbers], ["n"]).slice(7)
    ids = pa.array([i % 2 for i in range(len(inner))], pa.int8())
    union = pa.UnionArray.from_sparse(ids, [inner, inner.field(0)], ["s", "n"]).slice(3)
    outer = pa.StructArray.from_arrays([union, inner.slice(3)], ["u", "s"]).slice(offset)
    ours = sa.array(outer)
    ours.validate(full=True)
    assert ours.to_pylist() == outer.to_pylist()
    assert ours.to_pylist()[0]["s"] == {"n": 15 + offset}
    assert same_memory(outer, ours)
    back = ours.to_pyarrow()
    back.validate(full=True)
    assert back.equals(outer)


def test_pyarrow_cannot_write_into_ours_and_we_not_into_theirs() -> None:
    source = np.arange(10)
    ours = sa.array(source)
    assert not ours.to_pyarrow().buffers()[1].is_mutable
    mutable = pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(source)])
    assert mutable.buffers()[1].is_mutable
    assert not sa.array(mutable).to_numpy().flags.writeable


# --- types, fields, schemas ---------------------------------------------------------------------------------------


def test_nullability_of_fields() -> None:
    assert sa.field(pa.field("f", pa.int8(), nullable=False)) == sa.field("f", sa.int8(), nullable=False)
    assert sa.field("f", sa.int8(), nullable=False).to_pyarrow().nullable is False
    assert sa.field("f", sa.null(), nullable=False).to_pyarrow().type == pa.null()


def test_entries_of_maps_are_named_by_pyarrow() -> None:
    type = by_name("map-odd-names").type
    back = sa.types.as_type(type.to_pyarrow())
    assert back.entries_field.name == "entries"
    assert (back.key_field.type, back.item_field.type) == (type.key_field.type, type.item_field.type)
    assert (back.key_field.nullable, back.item_field.nullable) == (False, type.item_field.nullable)


def test_metadata_on_every_level() -> None:
    inner = pa.field("inner", pa.int8(), nullable=False, metadata={"level": "2"})
    outer = pa.field("outer", pa.struct([inner]), metadata={"level": "1"})
    items = pa.field("items", pa.list_(pa.field("element", pa.int8(), metadata={"level": "item"})))
    theirs = pa.schema([outer, items, pa.field("last", pa.null())], metadata={"level": "0", "bytes": b"\xff\x00"})
    ours = sa.schema(theirs)
    assert ours.names == ["outer", "items", "last"]
    assert ours.metadata == {b"level": b"0", b"bytes": b"\xff\x00"}
    assert ours.field(0).metadata == {b"level": b"1"}
    assert ours.field(0).type.field(0).metadata == {b"level": b"2"}
    assert not ours.field(0).type.field(0).nullable
    assert ours.field(1).type.value_field.metadata == {b"level": b"item"}
    assert ours.field(1).type.value_field.name == "element"
    assert ours.to_pyarrow().equals(theirs, check_metadata=True)


def test_an_extension_type_over_a_dictionary() -> None:
    type = pa.opaque(pa.dictionary(pa.int8(), pa.string()), "kind", "vendor")
    theirs = pa.ExtensionArray.from_storage(type, pa.array(["a", None, "a"]).cast(type.storage_type))
    ours = sa.array(theirs)
    assert ours.type == sa.opaque(sa.dictionary(sa.int8(), sa.string()), "kind", "vendor")
    assert ours.storage.to_pylist() == ["a", None, "a"]
    assert ours.to_pyarrow().equals(theirs)


def test_an_extension_type_that_pyarrow_does_not_know() -> None:
    ours = sa.field("t", sa.timestamp_with_offset("us"))
    theirs = ours.to_pyarrow()
    assert not isinstance(theirs.type, pa.BaseExtensionType)
    assert theirs.type == ours.type.storage_type.to_pyarrow()
    assert theirs.metadata[b"ARROW:extension:name"] == b"arrow.timestamp_with_offset"
    assert sa.field(theirs) == ours
    batch = sa.RecordBatch(sa.schema([ours]), 2, [sa.nulls(2, ours.type)])
    assert sa.record_batch(batch.to_pyarrow()) == batch


def test_an_extension_name_over_a_storage_that_does_not_fit() -> None:
    metadata = {b"ARROW:extension:name": b"arrow.uuid", b"ARROW:extension:metadata": b""}
    theirs = pa.field("f", pa.int8(), metadata=metadata)
    ours = sa.field(theirs)
    assert (ours.type, ours.metadata) == (sa.int8(), metadata)
    assert ours.to_pyarrow().equals(pa.field("f", pa.int8()), check_metadata=True)  # DuckDB would take the name's word
    theirs = pa.field("f", pa.int8(), metadata={b"ARROW:extension:name": b"arrow.json"})
    with pytest.raises(sa.Unsupported, match=r"pyarrow has no type for .*JsonExtensionType"):  # nor does it read one
        sa.field(theirs).to_pyarrow()


class Fahrenheit(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.float64(), "test.fahrenheit")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"serialized \x00"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Fahrenheit:
        return cls()


def test_extension_types_that_only_pyarrow_knows() -> None:
    theirs = pa.ExtensionArray.from_storage(Fahrenheit(), pa.array([1.0, None, 3.0]))
    ours = sa.array(theirs.slice(1))
    assert ours.type == sa.float64()
    assert ours.to_pylist() == [None, 3.0]
    assert addresses(ours) == addresses(theirs.storage)
    source = pa.record_batch({"f": theirs, "l": pa.array([[1.5], None, []])})
    batch = sa.record_batch(source)
    metadata = {b"ARROW:extension:name": b"test.fahrenheit", b"ARROW:extension:metadata": b"serialized \x00"}
    assert batch.schema.field("f").metadata == metadata
    struct = pa.StructArray.from_arrays([theirs], ["f"])
    assert sa.array(struct.slice(2)).to_pylist() == [{"f": 3.0}]
    back = batch.to_pyarrow()
    assert (back.schema.field("f").type, back.schema.field("f").metadata) == (pa.float64(), metadata)
    pa.register_extension_type(Fahrenheit())
    try:
        assert batch.to_pyarrow().equals(source, check_metadata=True)
    finally:
        pa.unregister_extension_type("test.fahrenheit")


# --- record batches, tables, chunked arrays -------------------------------------------------------------------------


def all_columns() -> Any:
    """A pyarrow table with a column of every type that it has, all of one length."""
    cases = [case for case in KNOWN if case.name.endswith("-nulls") and not case.name.endswith("odd-names-nulls")]
    columns = {}
    for case in cases:
        array, _ = case.repeated()
        columns[case.name] = array.slice(0, 40).to_pyarrow()
    return pa.table(columns)


def test_record_batches_of_every_type() -> None:
    theirs = all_columns().to_batches()[0]
    for part in (theirs, theirs.slice(3), theirs.slice(13, 9), theirs.slice(0, 0)):
        ours = sa.record_batch(part)
        ours.validate(full=True)
        assert (ours.num_rows, ours.num_columns) == (part.num_rows, part.num_columns)
        assert ours.column_names == part.column_names
        back = ours.to_pyarrow()
        back.validate(full=True)
        assert back.equals(part, check_metadata=True)
        for mine, column in zip(ours.columns, part.columns, strict=True):
            assert same_memory(column, mine)


def test_tables_with_chunks_that_do_not_line_up() -> None:
    theirs = pa.table(
        {
            "a": pa.chunked_array([[1, 2, 3], [], [4, None]]),
            "b": pa.chunked_array([["x"], ["y", None, "z"], ["w"]]),
        },
        metadata={"k": "v"},
    )
    ours = sa.table(theirs)
    ours.validate(full=True)
    assert [batch.num_rows for batch in ours.batches if batch.num_rows] == [1, 2, 1, 1]
    assert ours.to_pydict() == theirs.to_pydict()
    assert ours.schema.metadata == {b"k": b"v"}
    back = ours.to_pyarrow()
    back.validate(full=True)
    assert back.equals(theirs)
    assert back.schema.metadata == {b"k": b"v"}
    assert back.column("a").num_chunks == len(ours.batches)


def test_columns_of_tables_share_their_memory() -> None:
    theirs = pa.table({"a": pa.chunked_array([list(range(100)), list(range(50))])})
    back = sa.table(theirs).to_pyarrow()
    assert [addresses(chunk) for chunk in back.column(0).chunks] == [
        addresses(chunk) for chunk in theirs.column(0).chunks
    ]


def test_a_dictionary_that_chunks_share_stays_one() -> None:
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b"]))
    second = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["c", "d"]))
    theirs = pa.table({"d": pa.chunked_array([first, first.slice(1), second])})
    dictionaries = [batch.column(0).dictionary for batch in sa.table(theirs).batches]
    assert dictionaries[0] is dictionaries[1]
    assert dictionaries[2].to_pylist() == ["c", "d"]
    chunks = sa.chunked_array(theirs.column(0)).chunks
    assert chunks[0].dictionary is chunks[1].dictionary
    assert chunks[2].dictionary is not chunks[0].dictionary


def test_dictionaries_that_only_look_like_one() -> None:
    """Nothing at all under two types, the same bytes under two types, the same indices into two dictionaries."""
    nothing = pa.array([], pa.int8())
    numbers = pa.array([1, 2], pa.int32())
    days = numbers.view(pa.date32())
    indices = pa.array([0, 1], pa.int8())
    letters, words = pa.array(["a", "b"]), pa.array(["one", "two"])
    columns = [
        pa.DictionaryArray.from_arrays(nothing, pa.array([], pa.string())),
        pa.DictionaryArray.from_arrays(nothing, pa.array([], pa.int64())),
        pa.DictionaryArray.from_arrays(nothing, pa.nulls(0)),
    ]
    for batch in (
        pa.record_batch(columns, names=["a", "b", "c"]),
        pa.record_batch(
            [pa.DictionaryArray.from_arrays(indices, values) for values in (numbers, days)], names=["a", "b"]
        ),
        pa.record_batch(
            [
                pa.DictionaryArray.from_arrays(indices, pa.DictionaryArray.from_arrays(indices, values))
                for values in (letters, words)
            ],
            names=["a", "b"],
        ),
    ):
        ours = sa.record_batch(batch)
        ours.validate(full=True)
        assert ours.to_pydict() == batch.to_pydict()


def test_chunked_arrays() -> None:
    theirs = pa.chunked_array([["a", None], [], ["b"]], pa.string_view())
    ours = sa.chunked_array(theirs)
    assert isinstance(ours, sa.ChunkedArray)
    assert ours.to_pylist() == ["a", None, "b"]
    assert [len(chunk) for chunk in ours.chunks] == [2, 0, 1]
    back = ours.to_pyarrow()
    back.validate(full=True)
    assert back.equals(theirs)
    nothing = pa.chunked_array([], pa.int8())
    assert sa.chunked_array(nothing).to_pyarrow().equals(nothing)


@pytest.mark.parametrize("rows", [0, 5])
def test_no_columns(rows: int) -> None:
    ours = sa.RecordBatch(sa.schema([], metadata={"k": "v"}), rows, [])
    theirs = ours.to_pyarrow()
    assert (theirs.num_rows, theirs.num_columns) == (rows, 0)
    assert theirs.schema.metadata == {b"k": b"v"}
    assert sa.record_batch(theirs).num_rows == rows


def test_no_rows() -> None:
    theirs = pa.schema([("a", pa.int8()), ("b", pa.string())]).empty_table()
    ours = sa.table(theirs)
    assert (ours.num_rows, ours.num_columns) == (0, 2)
    assert ours.to_pyarrow().equals(theirs)


@pytest.mark.parametrize("type", ["string", "large_binary", "list<int8>", "map<int8, int8>"])
def test_offsets_of_no_rows_may_be_anything(type: str) -> None:
    """pyarrow writes them as it has them; some libraries leave the first offset of a slice."""
    kinds = {
        "string": (pa.string(), "i4", []),
        "large_binary": (pa.large_binary(), "i8", []),
        "list<int8>": (pa.list_(pa.int8()), "i4", [pa.array([1, 2], pa.int8())]),
        "map<int8, int8>": (
            pa.map_(pa.int8(), pa.int8()),
            "i4",
            [
                pa.StructArray.from_arrays(
                    [pa.array([1], pa.int8())] * 2,
                    fields=list(pa.struct([pa.field("key", pa.int8(), False), pa.field("value", pa.int8())])),
                )
            ],
        ),
    }
    made, offset, children = kinds[type]
    buffers = [None, pa.py_buffer(np.array([1], offset).tobytes()), *([] if children else [pa.py_buffer(b"ab")])]
    column = pa.Array.from_buffers(made, 0, buffers, children=children)
    batch = pa.record_batch([column, pa.StructArray.from_arrays([column], ["x"])], ["top", "nested"])
    data = peers_stream(batch)
    assert pa.ipc.open_stream(data).read_all().to_pylist() == []
    found = sa.ipc.open_stream(data).read_all()
    found.validate(full=True)
    assert found.to_pylist() == []
    assert pa.table(found).equals(pa.table(batch))
    assert sa.concat_tables([found, sa.table(batch)]).num_rows == 0


def test_an_empty_slice_has_no_offset_anywhere() -> None:
    """pyarrow finds the buffers of a child too short for an offset that its parent's length makes useless."""
    values = sa.array(["a", "b", "c", "a value of more than 12 bytes"], sa.string_view()).slice(1)
    views = sa.FixedSizeListArray.from_arrays(values, 1)
    assert pa.array(views).to_pylist() == [["b"], ["c"], ["a value of more than 12 bytes"]]
    for column in (views.slice(2, 0), sa.StructArray.from_arrays([views], ["x"]).slice(2, 0)):
        found = pa.array(column)
        found.validate(full=True)
        assert found.to_pylist() == []


def test_duplicate_and_non_nullable_columns() -> None:
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False), pa.field("a", pa.string())])
    theirs = pa.record_batch([pa.array([1, 2], pa.int8()), pa.array(["x", None])], schema=schema)
    ours = sa.record_batch(theirs)
    assert [column.to_pylist() for column in ours.columns] == [[1, 2], ["x", None]]
    assert ours.to_pyarrow().equals(theirs)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", [sa.month_interval(), sa.day_time_interval()], ids=str)
def test_types_without_a_factory_in_pyarrow(type: Any) -> None:
    theirs = sa.nulls(3, sa.list_(type)).to_pyarrow()
    assert str(theirs.type.value_type) == str(type)
    assert (len(theirs), theirs.null_count) == (3, 3)
    assert sa.array(theirs).type == sa.list_(type)
    with pytest.raises(sa.Unsupported, match=f"pyarrow has no type for .*{type}"):
        sa.nulls(3, type).to_pyarrow()


def test_equals_reads_objects_of_other_libraries() -> None:
    batch = sa.record_batch({"n": [1, None], "s": ["x", "y"]})
    table, other = sa.table(batch), sa.record_batch({"n": [1, 2], "s": ["x", "y"]})
    for ours, same, different in (
        (batch, batch.to_pyarrow(), other.to_pyarrow()),
        (batch, pa.table(batch.to_pyarrow()), pa.table({"n": [1, None]})),
        (table, pa.table(batch.to_pyarrow()), pa.table(other.to_pyarrow())),
        (batch["n"], pa.array([1, None]), pa.array([1, None], "int8")),
        (table["n"], pa.chunked_array([[1], [None]], "int64"), pa.chunked_array([[1, 2]])),
        (batch.schema, pa.schema({"n": "int64", "s": "string"}), pa.schema({"n": "int64", "s": "int8"})),
        (batch.schema.field("n"), pa.field("n", "int64"), pa.field("n", "int64", nullable=False)),
        (sa.list_("int8"), pa.list_(pa.int8()), pa.list_(pa.int16())),
    ):
        assert ours.equals(same)
        assert not ours.equals(different)
    text = batch.schema.with_metadata({"k": "v"})
    assert text.equals(text.to_pyarrow(), check_metadata=True)
    assert not text.equals(batch.schema.to_pyarrow(), check_metadata=True)
    assert sa.int8().equals("int8")
    assert not sa.int8().equals("no type")
    for ours, wrong, match in (
        (batch, table, r"found shmarrow.Table; shmarrow.record_batch\(...\) converts it"),
        (table, batch, r"found shmarrow.RecordBatch; shmarrow.table\(...\) converts it"),
        (batch["n"], [1, None], r"found list; shmarrow.array\(...\) converts it"),
        (batch.schema, batch, "found shmarrow.RecordBatch; pass its .schema"),
        (batch, None, "found NoneType$"),
        (sa.int8(), None, "expected a shmarrow.DataType to compare with, found NoneType"),
        (sa.int8(), pa.field("a", "int8"), "pass its .type"),
        (batch.schema.field("n"), "n", "expected a shmarrow.Field to compare with, found str"),
    ):
        with pytest.raises(sa.InvalidType, match=match):
            ours.equals(wrong)
        assert ours != wrong


def test_rows_and_arrays_of_several_libraries_are_put_together() -> None:
    batch = sa.record_batch({"n": [1]})
    peer = batch.to_pyarrow()
    made = sa.concat_tables([batch, peer, pa.table(peer), sa.table(batch)])
    assert made.to_pydict() == {"n": [1, 1, 1, 1]}
    assert sa.concat_batches([peer]).equals(batch)
    assert sa.concat_arrays([pa.array([2]), batch["n"]]).to_pylist() == [2, 1]
    assert sa.concat_arrays([pa.array([2])]).equals(sa.array([2]))


def test_null_keys_never_reach_pyarrow() -> None:
    """pyarrow ends the process over them, even where no map has them."""
    type = sa.map_(sa.int8(), sa.int8())
    keys = sa.array([1, None], sa.int8())
    entries = sa.StructArray(type.entries_field.type, 2, [None], 0, 0, [keys, keys])
    maps = sa.MapArray(type, 1, [None, np.array([0, 1], "<i4").view("u1")], 0, 0, [entries])
    with pytest.raises(sa.InvalidData, match="the keys of a map must not be null, found 1 null"):
        maps.to_pyarrow()
    assert maps.trim().to_pyarrow().to_pylist() == [[(1, 1)]]


@pytest.mark.processes
def test_without_pyarrow() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import shmarrow as sa\n"
        "try: sa.array([1]).to_pyarrow()\n"
        "except sa.MissingExtra as error: print(error)\n"
    )
    assert "pip install 'shmarrow[arrow]'" in python(code)
