"""Types, fields and schemas: names and format strings held against pyarrow, values by equality, mistakes by message."""

from __future__ import annotations

import copy
import ctypes
import pickle
from typing import Any

import pytest
from cases.table import CASES

import shmarrow as sa
from shmarrow.types import MapType, as_type

TYPES = list({str(case.type): case.type for case in CASES}.values())
MORE = [
    sa.struct([sa.field("a", sa.int8(), nullable=False, metadata={"k": "v"}), sa.field("b", sa.list_(sa.null()))]),
    sa.map_(sa.string(), sa.field("item", sa.int8(), nullable=False)),
    sa.dictionary("int8", "string", ordered=True),
    sa.timestamp("ns", tz="Europe/Paris"),
    sa.decimal128(10, -3),
    sa.decimal256(50, 7),
    sa.sparse_union({}),
    sa.uuid(),
    sa.json_(),
    sa.bool8(),
]
ALL = TYPES + MORE
NOT_IN_PYARROW = (sa.month_interval(), sa.day_time_interval())
every_type = pytest.mark.parametrize("type", ALL, ids=str)


@pytest.fixture(scope="module")
def pa() -> Any:
    return pytest.importorskip("pyarrow")


class CSchema(ctypes.Structure):
    """The first member of ``ArrowSchema`` of the C data interface."""

    _fields_ = (("format", ctypes.c_char_p),)


def format_of(peer: Any) -> str:
    """The format string that pyarrow gives through the C data interface."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = peer.__arrow_c_schema__()
    found: bytes = CSchema.from_address(pointer(capsule, b"arrow_schema")).format
    return found.decode()


@pytest.mark.parametrize("type", [type for type in ALL if type not in NOT_IN_PYARROW], ids=str)
def test_names_formats_and_widths_are_those_of_pyarrow(pa: Any, type: Any) -> None:
    theirs = type.to_pyarrow()
    if not any(names in str(type) for names in ("(some: k, v)", "(entries: key, item)")):
        assert str(type) == str(theirs)  # but for the names in maps, of which pyarrow shows other ones
    assert type.format == format_of(theirs)
    # pyarrow counts the values of a list, and none for indices.
    if isinstance(type, sa.ExtensionType) or type.layout in ("fixed_size_list", "dictionary"):
        return
    try:
        bits = theirs.bit_width
    except ValueError:
        bits = 0
    assert (type.bit_width, type.byte_width) == (bits, bits // 8)


# --- values -------------------------------------------------------------------------------------------------------


def test_different_types_are_different() -> None:
    assert len(set(ALL)) == len(ALL)
    for i, left in enumerate(ALL):
        for j, right in enumerate(ALL):
            assert (left == right) is (i == j), (left, right)


@every_type
def test_copies_are_equal(type: Any) -> None:
    for other in (pickle.loads(pickle.dumps(type)), copy.copy(type), copy.deepcopy(type)):
        assert other == type
        assert type.equals(other)
        assert hash(other) == hash(type)
        assert str(other) == str(type)
    assert type != f"{type}?"
    assert repr(type) == f"DataType({type})"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (sa.timestamp("s"), sa.timestamp("s", "UTC")), (sa.timestamp("s"), sa.timestamp("ms")),
        (sa.decimal128(5, 1), sa.decimal128(5, 2)), (sa.decimal128(5, 1), sa.decimal256(5, 1)),
        (sa.list_(sa.int8()), sa.list_(sa.field("item", sa.int8(), nullable=False))),
        (sa.list_(sa.int8(), 2), sa.list_(sa.int8(), 3)), (sa.binary(2), sa.binary(3)), (sa.binary(), sa.string()),
        (sa.struct({"a": sa.int8(), "b": sa.int8()}), sa.struct({"b": sa.int8(), "a": sa.int8()})),
        (sa.dictionary("int8", "string"), sa.dictionary("int8", "string", ordered=True)),
        (sa.map_("int8", "int8"), sa.map_("int8", "int8", keys_sorted=True)),
        (sa.dense_union({"a": sa.int8()}), sa.sparse_union({"a": sa.int8()})),
        (sa.dense_union({"a": sa.int8()}), sa.dense_union({"a": sa.int8()}, [1])),
        (sa.run_end_encoded("int16", "int8"), sa.run_end_encoded("int32", "int8")),
    ],
    ids=str,
)  # fmt: skip
def test_each_parameter_counts(left: Any, right: Any) -> None:
    assert left != right
    assert not left.equals(right)


@pytest.mark.parametrize("make", [sa.list_, sa.large_list, sa.list_view, sa.large_list_view])
def test_names_of_items_do_not_count(pa: Any, make: Any) -> None:
    """As in pyarrow: writers disagree on the name of a list's child."""
    left, right = make(sa.field("item", sa.int8())), make(sa.field("element", sa.int8()))
    assert left == right
    assert hash(left) == hash(right)
    assert left.to_pyarrow() == right.to_pyarrow()
    assert right.value_field.name == "element"


def test_metadata_of_children_do_not_count() -> None:
    left, right = (sa.list_(sa.field("item", sa.int8(), metadata=metadata)) for metadata in (None, {"k": "v"}))
    assert left == right
    assert hash(left) == hash(right)
    assert not sa.field("f", left).equals(sa.field("f", right), check_metadata=True)


def test_a_time_zone_of_no_characters_is_none() -> None:
    assert sa.timestamp("s", "") == sa.timestamp("s")


# --- parameters -----------------------------------------------------------------------------------------------------


WRONG: list[tuple[str, Any, str]] = [
    ("decimal128", lambda: sa.decimal128(39), "precision of 1 to 38, found 39"),
    ("decimal256", lambda: sa.decimal256(77), "precision of 1 to 76, found 77"),
    ("scale", lambda: sa.decimal128(5, 1 << 31), "scale"),
    ("time32", lambda: sa.time32("us"), "64 bits, found 32"),
    ("time-unit", lambda: sa.time64("h"), "time unit must be one of s, ms, us, ns, found 'h'"),
    ("timestamp", lambda: sa.timestamp("minutes"), "found 'minutes'"),
    ("width", lambda: sa.binary(-2), "found -2"),
    ("list-size", lambda: sa.list_(sa.int8(), -2), "found -2"),
    ("map", lambda: MapType(sa.field("entries", sa.int8())), "struct of two fields, found int8"),
    ("union-mode", lambda: sa.union({}, mode="thin"), "found 'thin'"),
    ("union-codes", lambda: sa.dense_union({"a": sa.int8()}, [1, 2]), "expected 1 type codes, .*, found 2"),
    ("union-repeats", lambda: sa.dense_union({"a": sa.int8(), "b": sa.int8()}, [1, 1]), "distinct"),
    ("union-many", lambda: sa.dense_union({f"f{i}": sa.int8() for i in range(129)}), "0 to 127"),
    ("index", lambda: sa.dictionary(sa.float32(), sa.string()), "must be an integer, found float"),
    ("run-ends", lambda: sa.run_end_encoded(sa.int8(), sa.string()), "int16, int32 or int64, found int8"),
    ("alias", lambda: as_type("text"), "no type is named 'text'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_parameters_that_make_no_sense(make: Any, message: str) -> None:
    with pytest.raises(sa.InvalidArgument, match=message):
        make()


def test_child_fields_that_are_not_there() -> None:
    type = sa.struct([("a", sa.int8()), ("a", sa.string())])
    assert (len(type), type.num_fields, type.names, [field.name for field in type]) == (2, 2, ["a", "a"], ["a", "a"])
    with pytest.raises(sa.FieldNotFound, match="2 child fields are named 'a'"):
        type.field("a")
    with pytest.raises(sa.FieldNotFound, match="0 child fields are named 'b'"):
        type.field("b")
    with pytest.raises(sa.FieldNotFound, match="no child field 2, there are 2"):
        type.field(2)


# --- fields and schemas ---------------------------------------------------------------------------------------------


def test_fields() -> None:
    field = sa.field("a", "int8", nullable=False, metadata={"k": "v", b"x": b"\xff"})
    plain = sa.field("a", sa.int8(), nullable=False)
    assert (str(field), field.metadata) == ("a: int8 not null", {b"k": b"v", b"x": b"\xff"})
    assert field == plain
    assert hash(field) == hash(plain)
    assert not field.equals(plain, check_metadata=True)
    assert field.with_name("b") == sa.field("b", sa.int8(), nullable=False)
    assert field.with_type(sa.string()).type == sa.string()
    assert field.with_nullable(True) != field
    assert (field.with_metadata(None).metadata, field.with_metadata({"z": "1"}).metadata) == (None, {b"z": b"1"})
    assert pickle.loads(pickle.dumps(field)).equals(field, check_metadata=True)


def test_schemas_from_fields_pairs_and_mappings() -> None:
    schema = sa.schema([sa.field("a", sa.int8()), sa.field("b", sa.string())])
    for other in ([("a", sa.int8()), ("b", "string")], {"a": "int8", "b": sa.string()}, schema):
        assert sa.schema(other) == schema
        assert hash(sa.schema(other)) == hash(schema)
    assert (schema.names, schema.types, len(schema)) == (["a", "b"], [sa.int8(), sa.string()], 2)
    assert schema.field("b") == schema.field(1) == schema["b"] == schema[-1]
    assert str(schema) == "a: int8\nb: string"
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_lookups() -> None:
    schema = sa.schema([("a", sa.int8()), ("b", sa.int8()), ("a", sa.string())])
    assert schema.get_all_field_indices("a") == [0, 2]
    assert schema.get_all_field_indices("c") == []
    assert [schema.get_field_index(name) for name in "abc"] == [-1, 1, -1]
    assert "a" in schema
    with pytest.raises(sa.FieldNotFound, match=r"'a' occurs 2 times in the schema, at \[0, 2\]; use a position"):
        schema.field("a")
    with pytest.raises(sa.FieldNotFound, match=r"no field is named 'c'; the schema has 3 fields: \['a', 'b', 'a'\]"):
        schema.field("c")
    with pytest.raises(KeyError):
        schema["c"]
    for index in (3, -4):
        with pytest.raises(sa.IndexOutOfRange, match=f"no field {index}: the schema has 3"):
            schema.field(index)
    with pytest.raises(sa.InvalidType, match="found float"):
        schema.field(1.0)


def test_metadata_of_schemas() -> None:
    schema = sa.schema({"a": sa.int8()}, metadata={"k": "v"})
    other = schema.with_metadata({b"k": b"w"})
    assert (schema.metadata, other.metadata) == ({b"k": b"v"}, {b"k": b"w"})
    assert schema == other
    assert not schema.equals(other, check_metadata=True)
    assert schema.remove_metadata().metadata is None
    assert sa.schema(schema, metadata={"z": "1"}).metadata == {b"z": b"1"}
    assert pickle.loads(pickle.dumps(schema)).metadata == {b"k": b"v"}
    assert "k: 'v'" in str(schema)
    inner = sa.schema([sa.field("a", sa.int8(), metadata={"deep": "1"})])
    assert inner == sa.schema({"a": sa.int8()})
    assert not inner.equals(sa.schema({"a": sa.int8()}), check_metadata=True)


def test_what_is_shown_is_bounded() -> None:
    wide = sa.schema({f"column{i}": sa.int8() for i in range(10_000)}, metadata={"k": "v" * 100_000})
    assert len(repr(wide)) < 10_000
    assert "9900 more fields" in str(wide)
    with pytest.raises(sa.FieldNotFound) as caught:
        wide.field("none")
    assert len(str(caught.value)) < 1_000


def test_metadata_of_fields_in_the_values_of_a_dictionary_are_compared() -> None:
    def field(unit: str) -> sa.Field:
        inner = sa.struct([sa.field("x", sa.int8(), metadata={"unit": unit})])
        return sa.field("d", sa.dictionary(sa.int8(), sa.list_(inner)))

    assert field("m").equals(field("s"))
    assert field("m").equals(field("m"), check_metadata=True)
    assert not field("m").equals(field("s"), check_metadata=True)
    assert not sa.schema([field("m")]).equals(sa.schema([field("s")]), check_metadata=True)


@pytest.mark.parametrize("name", ["\ud800", "ok \udfff"])
def test_a_name_without_a_utf8_form_is_refused_when_the_field_is_made(name: str) -> None:
    with pytest.raises(sa.InvalidArgument, match="UTF-8"):
        sa.field(name, sa.int8())
    with pytest.raises(sa.InvalidArgument, match="UTF-8"):
        sa.schema([("a", sa.int8())], metadata={name: "v"})
    with pytest.raises(sa.InvalidArgument, match="UTF-8"):
        sa.field("a", sa.int8(), metadata={"k": name})
    with pytest.raises(sa.InvalidArgument, match="UTF-8"):
        sa.record_batch({name: [1]})


NESTS = {
    "list": sa.list_,
    "struct": lambda type: sa.struct({"a": type}),
    "map": lambda type: sa.map_(sa.int8(), type),
}


def _nested(nest: str, levels: int) -> Any:
    type: Any = sa.int8()
    for _ in range(levels):
        type = NESTS[nest](type)
    return type


@pytest.mark.parametrize("nest", NESTS)
def test_types_nest_to_a_depth(nest: str) -> None:
    with pytest.raises(sa.InvalidArgument, match="types nest up to 96 levels deep, found 97"):
        _nested(nest, 3000)
    type = _nested(nest, 48 if nest == "map" else 96)
    assert "int8" in str(type)
    assert hash(type) == hash(_nested(nest, 48 if nest == "map" else 96))
    assert sa.schema({"a": type}).field("a").type == type


@pytest.mark.parametrize("nest", NESTS)
def test_nulls_of_deep_types_take_no_more_than_one_array_a_level(nest: str) -> None:
    type = _nested(nest, 40)
    made = sa.nulls(2, type)
    made.validate(full=True)
    assert (made.to_pylist(), made.null_count) == ([None, None], 2)
