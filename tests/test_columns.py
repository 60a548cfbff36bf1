"""Operations on columns, which batches and tables share, compared with pyarrow's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import cases
import pyarrow as pa
import pytest

import shmarrow as sa

LAT = sa.array([1.5, None, 3.5])
LON = sa.array([4.5, 5.5, 6.5])
SWAPPED = sa.schema([("lon", sa.float64()), ("lat", sa.float64())])

FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda values: values.to_pylist(),
    "array": lambda values: values,
    "ndarray": lambda values: values.to_numpy(False),
    "chunked": lambda values: sa.ChunkedArray([values.slice(0, 2), values.slice(2)]),
}


@pytest.mark.parametrize("make", [sa.table, sa.record_batch], ids=["table", "batch"])
@pytest.mark.parametrize("form", FORMS)
def test_a_mapping_is_matched_with_the_schema_by_name(form: str, make: Callable[..., Any]) -> None:
    values = {"lat": FORMS[form](LAT), "lon": FORMS[form](LON)}
    rows = make(values, schema=SWAPPED)
    assert rows.column_names == ["lon", "lat"]
    assert rows["lon"].to_pylist() == [4.5, 5.5, 6.5]
    assert rows["lat"].to_pylist()[::2] == [1.5, 3.5]


@pytest.mark.parametrize("make", [sa.table, sa.record_batch], ids=["table", "batch"])
@pytest.mark.parametrize("form", FORMS)
def test_names_that_do_not_match_the_schema_are_refused(form: str, make: Callable[..., Any]) -> None:
    lat, lon = FORMS[form](LAT), FORMS[form](LON)
    with pytest.raises(sa.FieldNotFound, match=r"no column for the fields \['lon'\], it has \['lat', 'x'\]"):
        make({"lat": lat, "x": lon}, schema=SWAPPED)
    with pytest.raises(sa.FieldNotFound, match=r"no column for the fields \['lon'\]"):
        make({"lat": lat}, schema=SWAPPED)
    with pytest.raises(sa.InvalidArgument, match=r"no field for the columns \['x'\]"):
        make({"lat": lat, "x": lon, "lon": lon}, schema=SWAPPED)
    with pytest.raises(sa.InvalidArgument, match="more than once"):
        make({"lat": lat}, schema=sa.schema([("lat", sa.float64()), ("lat", sa.float64())]))


# --- what kind of type a type is --------------------------------------------------------------------------------------

PREDICATES = [name for name in dir(pa.types) if name.startswith("is_") and not name.endswith("_value")]
TYPES = {str(case.type): case.type for case in cases.CASES} | {str(t): t for t in (sa.uuid(), sa.bool8())}
OF_PYARROW = {name: type for name, type in TYPES.items() if name not in ("month_interval", "day_time_interval")}


@pytest.mark.parametrize("predicate", PREDICATES)
def test_predicates_say_of_each_type_what_those_of_pyarrow_say(predicate: str) -> None:
    ours, theirs = getattr(sa.types, predicate), getattr(pa.types, predicate)
    found = {name for name, type in OF_PYARROW.items() if ours(type)}
    assert found == {name for name, type in OF_PYARROW.items() if theirs(type.to_pyarrow())}
    assert ours.__name__ == predicate
    with pytest.raises(sa.InvalidType, match=f"{predicate}: expected a DataType, found str"):
        ours("int8")


# --- one schema for several -------------------------------------------------------------------------------------------

PAIRED = [
    *(sa.null(), sa.bool_(), sa.int8(), sa.int16(), sa.int64(), sa.uint8(), sa.uint32(), sa.uint64()),
    *(sa.float16(), sa.float32(), sa.float64(), sa.decimal32(5, 2), sa.decimal128(20, 3), sa.decimal256(40, 2)),
    *(sa.date32(), sa.date64(), sa.time32("s"), sa.time32("ms"), sa.time64("ns"), sa.duration("s"), sa.duration("ns")),
    *(sa.timestamp("s"), sa.timestamp("us", "UTC"), sa.timestamp("ns", "UTC"), sa.timestamp("ns")),
    *(sa.binary(), sa.string(), sa.large_binary(), sa.large_string(), sa.binary(3), sa.binary(4), sa.string_view()),
    *(sa.list_(sa.int8()), sa.list_(sa.int64()), sa.large_list(sa.int8()), sa.list_(sa.int8(), 2), sa.list_("null")),
    *(sa.struct({"x": sa.int8()}), sa.struct({"y": sa.string(), "x": sa.int16()}), sa.struct({"x": sa.null()})),
    *(sa.map_("string", "int8"), sa.map_("string", "int64"), sa.dictionary("int8", "string")),
    *(
        sa.dictionary("int16", "large_string"),
        sa.dictionary("int16", "string", True),
        sa.run_end_encoded("int16", "int8"),
    ),
]


def _apart(a: Any, b: Any) -> bool:
    """Where ours differ from pyarrow's: decimals do not meet floats, and have digits for every integer."""
    kinds = {type.__class__.__name__ for type in (a, b)}
    return "DecimalType" in kinds and bool(kinds & {"FloatType", "IntType"})


@pytest.mark.parametrize("option", ["default", "permissive"])
def test_schemas_are_unified_as_pyarrow_does(option: str) -> None:
    for a, b in itertools.permutations(PAIRED, 2):
        if _apart(a, b):
            continue
        theirs: Any = [pa.schema([("f", type.to_pyarrow())]) for type in (a, b)]
        ours = [sa.schema([("f", type)]) for type in (a, b)]
        try:
            expected = pa.unify_schemas(theirs, promote_options=option)
        except pa.ArrowTypeError:
            with pytest.raises(sa.InvalidType, match="cannot unify the fields named"):
                sa.unify_schemas(ours, promote_options=option)
        else:
            assert sa.unify_schemas(ours, promote_options=option).to_pyarrow() == expected, (a, b)


@pytest.mark.parametrize(
    ("integer", "decimal", "expected"),
    [
        (sa.int8(), sa.decimal32(5, 2), sa.decimal32(5, 2)),
        (sa.int32(), sa.decimal32(5, 2), sa.decimal64(12, 2)),
        (sa.int64(), sa.decimal64(12, 1), sa.decimal128(20, 1)),
        (sa.uint64(), sa.decimal128(20, 3), sa.decimal128(23, 3)),
        (sa.int8(), sa.decimal64(3, -2), sa.decimal64(5, 0)),
    ],
    ids=str,
)
def test_a_decimal_has_digits_for_every_integer(integer: Any, decimal: Any, expected: Any) -> None:
    largest = (1 << (integer.bits - integer.signed)) - 1
    for types in ((integer, decimal), (decimal, integer)):
        schema = sa.unify_schemas([sa.schema([("f", type)]) for type in types], promote_options="permissive")
        assert schema.field(0).type == expected
    assert len(str(largest)) <= expected.precision - expected.scale


def test_what_unify_schemas_keeps_and_refuses() -> None:
    first = sa.schema([sa.field("a", "int8", False, {"x": "1"}), sa.field("b", "null")], {"k": "1"})
    second = sa.schema([sa.field("c", "int8", False), sa.field("a", "int8", True, {"x": "2"}), ("b", "string")])
    found = sa.unify_schemas([first, second, second])
    assert [str(field) for field in found] == ["a: int8", "b: string", "c: int8 not null"]
    assert (found.metadata, found.field(0).metadata) == ({b"k": b"1"}, {b"x": b"1"})
    twice = sa.schema([("a", "int8"), ("a", "int8")])
    for wrong, error, message in (
        (lambda: sa.unify_schemas([]), sa.InvalidArgument, "at least one schema"),
        (lambda: sa.unify_schemas([first, twice]), sa.InvalidArgument, "'a' occurs more than once"),
        (lambda: sa.unify_schemas([first], promote_options="all"), sa.InvalidArgument, "found 'all'"),
        (lambda: sa.unify_schemas([{"a": 1}]), sa.InvalidType, "found dict"),
        (
            lambda: sa.unify_schemas(
                [sa.schema([("d", sa.decimal128(5, 2))]), sa.schema([("d", "float64")])], promote_options="permissive"
            ),
            sa.InvalidType,
            "decimal128",
        ),
    ):
        with pytest.raises(error, match=message):
            wrong()


# --- fields and schemas -----------------------------------------------------------------------------------------------


def test_schemas_are_changed_by_position() -> None:
    ours, theirs = sa.schema({"a": sa.int8(), "b": sa.string()}), pa.schema({"a": pa.int8(), "b": pa.string()})
    one, other = sa.field("c", "bool", False), pa.field("c", pa.bool_(), False)
    for mine, peer in (
        (ours.append(one), theirs.append(other)),
        (ours.insert(1, one), theirs.insert(1, other)),
        (ours.insert(2, one), theirs.insert(2, other)),
        (ours.set(1, one), theirs.set(1, other)),
        (ours.remove(0), theirs.remove(0)),
        (ours.with_metadata({"k": "v"}).remove_metadata(), theirs),
    ):
        assert mine.to_pyarrow() == peer
    assert ours.get_field_index("missing") == -1
    for change in (lambda: ours.remove(-1), lambda: ours.set(-1, one), lambda: ours.insert(-1, one)):
        with pytest.raises(sa.IndexOutOfRange, match="no position -1"):
            change()
    for change in (lambda: ours.remove(2), lambda: ours.set(2, one), lambda: ours.insert(3, one)):
        with pytest.raises(sa.IndexOutOfRange, match=r"no position [23]: there are [23] to choose from"):
            change()
    for change in (lambda: ours.append("c"), lambda: ours.set(0, ("c", "int8")), lambda: ours.remove("a")):
        with pytest.raises(sa.InvalidType):
            change()


@pytest.mark.parametrize("wrong", [5, "ab", ["ab"], [("a",)], [("a", "int8", True, None, 1)], [5], None], ids=str)
def test_a_schema_is_made_of_fields(wrong: Any) -> None:
    with pytest.raises(sa.InvalidType, match="expected"):
        sa.schema(wrong)


def test_fields_are_flattened_and_lose_their_metadata() -> None:
    inner = sa.struct([sa.field("x", "int8", False, {"k": "v"}), sa.field("y", "string")])
    for nullable in (True, False):
        field = sa.field("s", inner, nullable, {"k": "v"})
        expected = field.to_pyarrow().flatten()
        assert [found.to_pyarrow() for found in field.flatten()] == expected
        assert [found.metadata for found in field.flatten()] == [found.metadata for found in expected]
        assert field.remove_metadata().metadata is None
    plain = sa.field("a", "int8")
    assert plain.flatten() == [plain]


def test_a_schema_gives_an_empty_table() -> None:
    schema = sa.schema([sa.field("a", "int8", False), sa.field("b", sa.dictionary("int8", "string"))], {"k": "v"})
    table = schema.empty_table()
    assert (table.num_rows, table.schema.equals(schema, check_metadata=True)) == (0, True)
    assert table.to_pyarrow().equals(schema.to_pyarrow().empty_table())
