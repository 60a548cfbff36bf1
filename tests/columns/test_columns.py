"""Operations on columns, which batches and tables share, compared with pyarrow's."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases import table as cases
from environment import needs_pyarrow
from forms import broken_file, stream_of

import shmarrow as sa
from shmarrow.errors import EXPANDED_VALUES

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
def test_names_that_do_not_match_the_schema_are_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(sa.FieldNotFound, match=r"no column for the fields \['lon'\], it has \['lat', 'x'\]"):
        make({"lat": LAT, "x": LON}, schema=SWAPPED)
    with pytest.raises(sa.FieldNotFound, match=r"no column for the fields \['lon'\]"):
        make({"lat": LAT}, schema=SWAPPED)
    with pytest.raises(sa.InvalidArgument, match=r"no field for the columns \['x'\]; its fields are"):
        make({"lat": LAT, "x": LON, "lon": LON}, schema=SWAPPED)
    with pytest.raises(sa.InvalidArgument, match="more than once"):
        make({"lat": LAT}, schema=sa.schema([("lat", sa.float64()), ("lat", sa.float64())]))


# --- what kind of type a type is --------------------------------------------------------------------------------------

PREDICATES = [name for name in dir(pa.types) if name.startswith("is_") and not name.endswith("_value")]
TYPES = {str(case.type): case.type for case in cases.CASES} | {str(t): t for t in (sa.uuid(), sa.bool8())}
OF_PYARROW = {name: type for name, type in TYPES.items() if name not in ("month_interval", "day_time_interval")}


@pytest.mark.parametrize("predicate", PREDICATES)
def test_predicates_say_of_each_type_what_those_of_pyarrow_say(predicate: str) -> None:
    needs_pyarrow(26 if predicate == "is_nested" else 0)  # older ones do not count run-end encoding
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
    """Differences from pyarrow: decimals do not meet floats, and have digits for every integer."""
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


def test_schemas_are_changed_at_positions_that_are_there() -> None:
    ours, one = sa.schema({"a": sa.int8(), "b": sa.string()}), sa.field("c", "bool", False)
    assert ours.insert(2, one) == ours.append(one)
    for change in (lambda: ours.remove(-1), lambda: ours.set(-1, one), lambda: ours.insert(-1, one)):
        with pytest.raises(sa.IndexOutOfRange, match="position -1 is out"):
            change()
    for change in (lambda: ours.remove(2), lambda: ours.set(2, one), lambda: ours.insert(3, one)):
        with pytest.raises(sa.IndexOutOfRange, match=r"position [23] is out of range: expected 0 to [12]"):
            change()
    for change in (lambda: ours.append("c"), lambda: ours.set(0, ("c", "int8")), lambda: ours.remove("a")):
        with pytest.raises(sa.InvalidType):
            change()


# --- operations on batches and tables ---------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int16(), metadata={"unit": "m"}),
        pa.field("s", pa.string()),
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        pa.field("t", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.string()))])),
    ],
    metadata={"k": "v"},
)
ROWS = [
    {"n": 3, "s": "a", "d": "u", "t": {"x": 1, "y": ["p"]}},
    {"n": None, "s": "b", "d": None, "t": None},
    {"n": 1, "s": None, "d": "v", "t": {"x": None, "y": None}},
    {"n": -5, "s": "d", "d": "u", "t": {"x": 4, "y": []}},
    {"n": 7, "s": "e", "d": "v", "t": {"x": 5, "y": ["q", None]}},
]
PA_BATCH = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
PA_TABLE = pa.Table.from_batches([PA_BATCH.slice(0, 2), PA_BATCH.slice(2, 0), PA_BATCH.slice(2)])


def read_back(source: Any) -> Any:
    """A table as a reader gives it: columns that are decompressed and built when they are asked for."""
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, source.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in [source] if isinstance(source, pa.RecordBatch) else source.to_batches():
            writer.write_batch(batch, custom_metadata={"of": "the batch"})
    return sa.ipc.open_file(sink.getvalue()).read_all()


def of_kind(kind: str) -> tuple[Any, Any]:
    """The same rows as ours and as pyarrow's."""
    if kind == "batch":
        return read_back(PA_BATCH).batches[0], PA_BATCH
    return {"table": sa.table(PA_TABLE), "read": read_back(PA_TABLE)}[kind], PA_TABLE


KINDS = ["batch", "table", "read"]
COLUMN = [10, None, 30, 40, 50]
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "filter with nulls": lambda rows, lib: rows.filter(
        lib.array([True, False, None, True, None]), null_selection_behavior="emit_null"
    ),
    "take nulls": lambda rows, lib: rows.take(lib.array([1, None, 4])),
    "slice of a slice": lambda rows, lib: rows.slice(1).slice(2, 9),
    "slice by index": lambda rows, lib: rows[2:] if lib is sa else rows.slice(2),
    "select of a select": lambda rows, lib: rows.select(["t", "d", "s"]).select([2, 0]),
    "drop columns": lambda rows, lib: rows.drop_columns(["s", "t"]),
    "remove": lambda rows, lib: rows.remove_column(2),
    "add at the end": lambda rows, lib: rows.add_column(4, lib.field("new", lib.int64()), column_for(rows, lib)),
    "append the same name": lambda rows, lib: rows.append_column("n", column_for(rows, lib)),
    "set": lambda rows, lib: rows.set_column(
        0, lib.field("n", lib.int64(), metadata={"x": "y"}), column_for(rows, lib)
    ),
    "set after slice": lambda rows, lib: rows.slice(1, 4).set_column(1, "s", column_for(rows.slice(1, 4), lib)),
    "slice after set": lambda rows, lib: rows.set_column(1, "s", column_for(rows, lib)).slice(1, 3),
    "select after add": lambda rows, lib: rows.add_column(0, "new", column_for(rows, lib)).select(["d", "new", "n"]),
    "add, remove, slice, take": lambda rows, lib: (
        rows.add_column(2, "p", column_for(rows, lib)).remove_column(0).slice(2).take(lib.array([2, 0]))
    ),
    "filter after append": lambda rows, lib: rows.append_column("p", column_for(rows, lib)).filter(
        lib.array([False, True, True, False, False])
    ),
    "drop null in all": lambda rows, lib: rows.drop_null(),
    "cast": lambda rows, lib: rows.cast(
        lib.schema(
            [("n", lib.int64()), ("s", lib.large_string()), ("d", lib.string()), ("t", rows.schema.field("t").type)],
            metadata={"other": "one"},
        )
    ),
    "metadata": lambda rows, lib: rows.replace_schema_metadata({"a": "b"}),
}


def column_for(rows: Any, lib: Any) -> Any:
    """A column with as many values as there are rows."""
    values = lib.array(COLUMN[: rows.num_rows])
    return values if isinstance(rows, (sa.RecordBatch, pa.RecordBatch)) else lib.chunked_array([values[:1], values[1:]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_give_what_those_of_pyarrow_give(name: str, kind: str) -> None:
    ours, theirs = of_kind(kind)
    got, expected = OPERATIONS[name](ours, sa), OPERATIONS[name](theirs, pa)
    assert type(got) is type(ours)
    got.validate()
    if kind == "batch":
        assert got.metadata == ours.metadata == {b"of": b"the batch"}
    assert got.schema.to_pyarrow().equals(expected.schema, check_metadata=True)
    assert (got.num_rows, got.num_columns, got.shape) == (expected.num_rows, expected.num_columns, expected.shape)
    assert [column.to_pylist() for column in got.columns] == [column.to_pylist() for column in expected.columns]
    assert [column.to_pylist() for column in got.itercolumns()] == [column.to_pylist() for column in expected.columns]
    again = got.to_pyarrow()
    assert again.equals(expected)
    again.validate(full=name != "add at the end")
    assert got.to_pylist() == expected.to_pylist()
    assert got.to_pydict() == expected.to_pydict()


@pytest.mark.parametrize("kind", KINDS)
def test_renaming_by_position_and_by_name(kind: str) -> None:
    ours, theirs = of_kind(kind)
    assert ours.rename_columns(list("wxyz")).to_pylist() == theirs.rename_columns(list("wxyz")).to_pylist()
    some = ours.rename_columns({"t": "n", "n": "t"})
    assert some.column_names == theirs.rename_columns({"t": "n", "n": "t"}).schema.names == ["t", "s", "d", "n"]
    assert some.schema.metadata == {b"k": b"v"}
    with pytest.raises(sa.FieldNotFound, match="no field is named 'x'"):
        ours.rename_columns({"x": "y"})


@pytest.mark.parametrize("kind", KINDS)
def test_structs_and_back(kind: str) -> None:
    ours, theirs = of_kind(kind)
    made, expected = ours.to_struct_array(), theirs.to_struct_array()
    assert (made.type.to_pyarrow(), made.to_pylist()) == (expected.type, expected.to_pylist())
    back = type(ours).from_struct_array(made)
    assert back.equals(ours)
    with_nulls = sa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "c"}])
    found, peer = type(ours).from_struct_array(with_nulls), type(theirs).from_struct_array(with_nulls.to_pyarrow())
    assert found.to_pylist() == peer.to_pylist()
    required = sa.array([{"x": 1}, None], sa.struct([sa.field("x", "int8", False)]))
    found = type(ours).from_struct_array(required)
    found.validate(full=True)
    assert (found.schema.field(0).nullable, found.to_pylist()) == (True, [{"x": 1}, {"x": None}])
    with pytest.raises(sa.InvalidType, match="expected an array of structs"):
        type(ours).from_struct_array(sa.array([1]))


def test_columns_that_are_not_asked_for_are_not_built() -> None:
    """Operations on other columns do not fail where a column is an error when it is built."""
    new = [1, 2, 3, 4, 5]
    data = broken_file({"d": sa.array(["a", "b", "a", None, "b"]).dictionary_encode(), "i": new}, "n", "s")
    batch = sa.ipc.open_file(data).get_batch(0)
    table = sa.Table.from_batches([batch])
    for rows in (batch, table):
        made = [
            rows.set_column(3, "x", new),
            rows.add_column(0, "x", new).slice(1, 2),
            rows.append_column("x", new).select(["x", "n"]),
            rows.remove_column(2),
            rows.drop_columns(["s"]),
            rows.rename_columns({"n": "m"}),
            rows.slice(1, 2).set_column(2, "n", [1, 2]).drop("n"),
            rows.select(["s", "i"]),
            rows.slice(1),
            rows.replace_schema_metadata({"k": "v"}),
            rows.cast(rows.schema.set(1, sa.field("i", "int8"))),
        ]
        assert all(len(found) for found in made)
        assert made[0].column("x").to_pylist() == made[-1].column("i").to_pylist() == new
    assert table.unify_dictionaries().column("d").to_pylist() == ["a", "b", "a", None, "b"]
    for found in (batch, table, *made):
        names = {"n", "m", "s"}.intersection(found.schema.names)
        for name in names:
            with pytest.raises(sa.InvalidData, match=r"column . '[ns]'"):
                found.column(name)


def test_a_new_column_goes_with_the_batches_of_a_table() -> None:
    table = sa.table(PA_TABLE)
    column = sa.chunked_array([[1], [2, 3], [], [4, 5]])
    found = table.append_column("c", column)
    assert [batch.num_rows for batch in found.batches] == [1, 1, 1, 2]
    assert found["c"].to_pylist() == [1, 2, 3, 4, 5]
    assert found.drop("c").equals(table)
    whole = table.append_column("c", [sa.array([1, 2]), sa.array([3, 4, 5])])
    assert [batch.num_rows for batch in whole.batches] == [2, 3]
    empty = table.slice(0, 0).append_column("c", sa.array([], sa.dictionary("int8", "string")))
    assert (empty.num_rows, str(empty.schema.field("c").type)[:10]) == (0, "dictionary")
    none = sa.Table(table.schema).append_column("c", [])
    assert (none.num_rows, none.column_names) == (0, ["n", "s", "d", "t", "c"])


WRONG: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "add beyond": (
        lambda r: r.add_column(5, "x", COLUMN),
        sa.IndexOutOfRange,
        "position 5 .*: expected 0 to 4",
    ),
    "remove beyond": (lambda r: r.remove_column(4), sa.IndexOutOfRange, "position 4 .*: expected 0 to 3"),
    "short column": (
        lambda r: r.append_column("x", [1, 2]),
        sa.InvalidArgument,
        "'x' has 2 values, expected 5",
    ),
    "value": (lambda r: r.append_column(sa.field("x", "int8"), [300] * 5), sa.InvalidData, "column 'x': .*300"),
    "drop": (lambda r: r.drop_columns(["n", "x"]), sa.FieldNotFound, "no field is named 'x'"),
    "rename numbers": (lambda r: r.rename_columns({0: "x"}), sa.InvalidType, "must be strings, found 0"),
    "rename": (lambda r: r.rename_columns(["x"]), sa.InvalidArgument, "expected 4 names, one for each column, found 1"),
    "cast names": (lambda r: r.cast(sa.schema([("n", "int8")])), sa.InvalidArgument, r"\['n'\], expected those"),
    "cast order": (lambda r: r.cast(sa.schema(list(r.schema)[::-1])), sa.InvalidArgument, "another order"),
    "cast value": (
        lambda r: r.select(["n"]).cast(sa.schema([("n", "uint8")])),
        sa.InvalidData,
        "column 'n': .*-5",
    ),
    "cast nulls": (
        lambda r: r.cast(r.schema.set(1, sa.field("s", "string", False))),
        sa.InvalidData,
        "column 's' holds nulls",
    ),
    "take beyond": (lambda r: r.take([5]), sa.IndexOutOfRange, "index 5 is out of range: the (batch|table) has 5 rows"),
    "take beyond without columns": (lambda r: r.select([]).take([5]), sa.IndexOutOfRange, "has 5 rows"),
    "chunk size": (lambda r: r.to_batches(0), sa.InvalidArgument, "at least 1, found 0"),
    "no copy": (lambda r: np.asarray(r, copy=False), sa.CopyRequired, "requires a copy"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str, kind: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call(of_kind(kind)[0])


def test_rows_that_become_null_are_in_nullable_fields() -> None:
    schema = sa.schema([sa.field("a", "int8", False), sa.field("b", "string")])
    for rows in (
        sa.record_batch({"a": [1, 2], "b": ["x", "y"]}, schema),
        sa.table({"a": [1, 2], "b": ["x", "y"]}, schema),
    ):
        for found in (rows.take([1, None]), rows.filter([True, None], "emit_null")):
            found.validate(full=True)
            assert found.schema.field("a").nullable
        for found in (rows.take([1, 0]), rows.filter([True, None])):
            assert not found.schema.field("a").nullable


# --- making them ------------------------------------------------------------------------------------------------------

MAKE = pytest.mark.parametrize("kind", ["RecordBatch", "Table"])


CHUNKS = pa.chunked_array([pa.array([1, 2], pa.int8()), pa.array([None], pa.int8())])
KEPT: dict[str, Any] = {
    "int8": pa.array([1, 2, None], pa.int8()),
    "chunks of int8": CHUNKS,
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "time32": pa.array([1, 2, 3], pa.time32("s")),
    "decimal": pa.array([1, 2, None], pa.decimal128(10, 2)),
    "nulls": pa.array([None] * 3, pa.timestamp("ns", "UTC")),
}


@MAKE
@pytest.mark.parametrize("name", KEPT)
def test_columns_keep_their_type_whoever_made_them(name: str, kind: str) -> None:
    peer = KEPT[name]
    own = (sa.chunked_array if isinstance(peer, pa.ChunkedArray) else sa.array)(peer)
    cls = getattr(sa, kind)
    for given in (peer, own):
        for rows in (
            cls.from_arrays([given], ["a"]),
            cls.from_pydict({"a": given}),
            cls.from_pydict({"b": [1, 2, 3]}).append_column("a", given).select(["a"]),
            cls.from_pydict({"a": [1, 2, 3]}).set_column(0, "a", given),
        ):
            assert rows.schema.field("a").type.to_pyarrow() == peer.type
            assert rows["a"].to_pylist() == own.to_pylist()
    if kind == "Table":
        assert cls.from_pydict({"a": CHUNKS})["a"].num_chunks == 2


@MAKE
def test_arrays_are_not_copied(kind: str) -> None:
    values = np.arange(3)
    rows = getattr(sa, kind).from_pydict({"a": values, "b": sa.array(values)})
    for column in rows.columns:
        chunk = column.chunk(0) if kind == "Table" else column
        assert np.shares_memory(chunk.to_numpy(), values)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "neither": (lambda make: make([[1]]), sa.InvalidArgument, "either names or a schema"),
    "both": (
        lambda make: make([[1]], ["a"], sa.schema([("a", "int8")])), sa.InvalidArgument, "either names or a schema",
    ),
    "too few names": (lambda make: make([[1], [2]], ["a"]), sa.InvalidArgument, "2 arrays for 1 names"),
    "too many fields": (lambda make: make([], sa.schema([("a", "int8")])), sa.InvalidArgument, "0 arrays for 1 fields"),
    "metadata twice": (
        lambda make: make({"a": [1]}, schema=sa.schema([("a", "int8")]), metadata={"k": "v"}),
        sa.InvalidArgument, "a schema already has metadata",
    ),
    "lengths": (lambda make: make({"a": [1], "b": [1, 2]}), sa.InvalidArgument, "'a': 1, 'b': 2"),
    "a value": (lambda make: make({"a": [1], "b": [300]}, schema=sa.schema({"a": "int8", "b": "int8"})),
                sa.InvalidData, "column 'b': .*300"),
}  # fmt: skip


@pytest.mark.parametrize("make", [sa.table, sa.record_batch], ids=["table", "batch"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_columns_is_refused(name: str, make: Callable[..., Any]) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call(make)


@MAKE
def test_rows_lose_no_key(kind: str) -> None:
    cls = getattr(sa, kind)
    with pytest.raises(sa.InvalidArgument, match=r"row 1 has the key 'b', but the columns are"):
        cls.from_pylist([{"a": 1}, {"a": 2, "b": 3}])
    with pytest.raises(sa.InvalidArgument, match=r"row 0 has the key 'b', but the columns are"):
        cls.from_pylist([{"b": 3}], sa.schema([("a", "int8")]))
    with pytest.raises(sa.InvalidType, match="row 1: expected a mapping"):
        cls.from_pylist([{"a": 1}, (2,)])
    assert cls.from_pylist([{}, {}]).shape == (2, 0)


def test_tables_are_made_of_batches_tables_and_readers() -> None:
    ours = sa.table(PA_TABLE)
    for data in (ours, list(ours.batches), ours.to_reader(), tuple(ours.batches)):
        assert sa.table(data).equals(ours, check_metadata=True)
    assert sa.table(ours.batches[0]).num_rows == 2
    wider = ours.schema.set(0, sa.field("n", "int64"))
    assert sa.table(ours, schema=wider).schema.equals(wider)
    assert sa.table(ours, metadata={"x": "y"}).schema.metadata == {b"x": b"y"}
    assert sa.table(sa.RecordBatchReader.from_batches(wider, [])).schema == wider
    with pytest.raises(sa.InvalidArgument, match="already have names"):
        sa.table(ours, ["a", "b", "c", "d"])
    reader = sa.ipc.open_stream(io.BytesIO(stream_of(ours)))
    assert isinstance(reader, sa.RecordBatchReader)
    assert sa.table(reader).equals(ours, check_metadata=True)


# --- ndarrays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [1, 2, 3], "b": [4, 5, 6]},
        {"a": [1, 2, 3], "b": [1.5, None, 2.5]},
        {"a": [1, 2, 3], "b": ["x", "y", None]},
        {"a": [True, False, True], "b": [1, 2, 3]},
        {"a": pa.array([1, 2, 3], pa.timestamp("us")), "b": pa.array([4, 5, None], pa.timestamp("us"))},
        {"a": pa.array([1, 2, 3], pa.int8()), "b": pa.array([1, 2, 3], pa.float32())},
        {"a": [1, 2, 3]},
    ],
    ids=["ints", "floats", "text", "bools", "times", "narrow", "one"],
)
def test_an_ndarray_has_rows_first_as_pyarrows_has(columns: dict[str, Any]) -> None:
    expected = np.asarray(pa.table(columns))
    for rows in (
        sa.table(columns),
        sa.record_batch(columns),
        sa.concat_tables([sa.table(columns).slice(0, 1), sa.table(columns).slice(1)]),
    ):
        found = np.asarray(rows)
        assert (found.shape, found.dtype) == ((3, len(columns)), expected.dtype)
        np.testing.assert_array_equal(found, expected)
        assert np.asarray(rows[:0]).shape == (0, len(columns))
    assert np.asarray(sa.table({"a": [1, 2]}), np.float32).dtype == np.float32


def test_an_ndarray_of_columns_that_share_no_dtype_has_their_values() -> None:
    day = sa.array([1, 2], sa.timestamp("s"))
    found = np.asarray(sa.table({"a": [1, 2], "t": day, "l": [[1], [2, 3]]}))
    assert found.tolist() == [
        list(row.values()) for row in sa.table({"a": [1, 2], "t": day, "l": [[1], [2, 3]]}).to_pylist()
    ]
    pairs = sa.array([[1, 2], [3, 4]], sa.list_("int8", 2))
    assert np.asarray(sa.table({"p": pairs, "q": pairs})).tolist() == [[[1, 2], [1, 2]], [[3, 4], [3, 4]]]
    assert np.asarray(sa.Table.from_pylist([{}, {}])).shape == (2, 0)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1])
def test_an_integer_is_not_rounded_for_the_sake_of_another_column(value: int) -> None:
    with pytest.raises(sa.InvalidData, match=f"column 'a' holds {value}, which has no exact float64"):
        np.asarray(sa.table({"a": [value, 1], "b": [0.5, 1.5]}))
    assert np.asarray(sa.table({"a": [2**53, -(2**60)], "b": [0.5, 1.5]}))[1, 0] == -(2.0**60)
    unsigned = sa.array([2**64 - 1, 0], "uint64")
    with pytest.raises(sa.InvalidData, match=f"holds {2**64 - 1}"):
        np.asarray(sa.table({"u": unsigned, "b": [0.5, 1.5]}))


# --- one after another ------------------------------------------------------------------------------------------------


def test_tables_one_after_another() -> None:
    ours = sa.table(PA_TABLE)
    found = sa.concat_tables([ours, ours.slice(1, 2).replace_schema_metadata({"x": "y"})])
    expected = pa.concat_tables([PA_TABLE, PA_TABLE.slice(1, 2).replace_schema_metadata({"x": "y"})])
    assert found.to_pyarrow().equals(expected, check_metadata=True)
    assert found.batches[0] is ours.batches[0]
    first = {"a": [1, 2], "b": ["x", "y"]}
    for other, option in (
        ({"b": ["z"], "a": [3]}, "default"),
        ({"c": [1.5]}, "default"),
        ({"a": [None]}, "default"),
        ({"a": [1.5], "c": [[1]]}, "permissive"),
        ({"a": pa.array([1], pa.int8()), "b": pa.array([b"x"])}, "permissive"),
    ):
        mine = sa.concat_tables([sa.table(first), sa.table(other)], promote_options=option)
        peer = pa.concat_tables([pa.table(first), pa.table(other)], promote_options=option)
        mine.validate(full=True)
        assert mine.schema.to_pyarrow() == peer.schema
        assert mine.to_pylist() == peer.to_pylist()


def test_a_column_that_is_missing_somewhere_is_nullable() -> None:
    required = sa.table({"a": [1]}, sa.schema([sa.field("a", "int8", False)]))
    found = sa.concat_tables([required, sa.table({"b": [1]})], promote_options="default")
    found.validate(full=True)
    assert (found.schema.field("a").nullable, found.to_pydict()) == (True, {"a": [1, None], "b": [None, 1]})
    same = sa.concat_tables([required, required], promote_options="default")
    assert not same.schema.field("a").nullable


def test_batches_one_after_another() -> None:
    batches = sa.table(PA_TABLE).batches
    found = sa.concat_batches(batches)
    assert found.to_pyarrow().equals(PA_BATCH)
    assert sa.concat_batches(batches[:1]) is batches[0]


A, B = sa.table({"a": [1]}), sa.table({"a": ["x"]})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sa.concat_tables([]), sa.InvalidArgument, "at least one table"),
        (lambda: sa.concat_tables(A), sa.InvalidType, "expected a list of tables"),
        (lambda: sa.concat_tables([A, B]), sa.InvalidType, "the fields of table 1 differ"),
        (lambda: sa.concat_tables([A, B], promote_options="permissive"), sa.InvalidType, "int64 and string"),
        (lambda: sa.concat_batches([A.batches[0], B.batches[0]]), sa.InvalidType, "batch 1 has other fields"),
        (
            lambda: sa.concat_tables(
                [sa.table({"a": [2**53 + 1]}), sa.table({"a": [0.5]})], promote_options="permissive"
            ),
            sa.InvalidData, "9007199254740993",
        ),
    ],
    ids=["no tables", "table", "fields", "types", "batches", "value"],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- batches and readers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_in_batches(kind: str) -> None:
    ours, theirs = of_kind(kind)
    theirs = pa.table(theirs)
    assert [batch.num_rows for batch in ours.to_batches(2)] == [batch.num_rows for batch in theirs.to_batches(2)]
    assert sa.Table.from_batches(ours.to_batches(max_chunksize=1)).to_pylist() == theirs.to_pylist()
    if kind == "batch":
        return
    reader = ours.to_reader(max_chunksize=2)
    assert isinstance(reader, sa.RecordBatchReader)
    assert reader.read_next_batch().num_rows == 2
    assert reader.read_all().to_pylist() == theirs.to_pylist()[2:]
    with pytest.raises(StopIteration):
        reader.read_next_batch()
    with ours.to_reader() as reader:
        assert reader.schema == ours.schema
    with pytest.raises(sa.Closed, match="the reader of batches is closed"):
        next(reader)


def test_a_reader_checks_what_it_is_given() -> None:
    batch = sa.record_batch({"a": [1]})
    reader = sa.RecordBatchReader.from_batches(batch.schema, [batch, sa.record_batch({"b": [1]}), 5])
    assert next(reader) is batch
    with pytest.raises(sa.InvalidType, match="fields of a batch differ from the reader's"):
        next(reader)
    with pytest.raises(sa.Failed, match="the first error was InvalidType: the fields of a batch differ"):
        next(reader)
    with pytest.raises(sa.InvalidType, match="RecordBatch, found int"):
        next(sa.RecordBatchReader.from_batches(batch.schema, [5]))
    with pytest.raises(sa.InvalidType, match="expected a shmarrow"):
        sa.RecordBatchReader.from_batches([("a", "int8")], [batch])


@pytest.mark.parametrize("columns", [1, 2])
def test_columns_without_rows_make_a_table(columns: int) -> None:
    arrays, names = [sa.array([], sa.int8())] * columns, ["a", "b"][:columns]
    made = sa.Table.from_arrays(arrays, names=names)
    assert (made.num_rows, made.schema.types, made.column(0).to_pylist()) == (0, [sa.int8()] * columns, [])
    assert made.to_pyarrow().equals(pa.table([array.to_pyarrow() for array in arrays], names=names))


def test_null_columns_become_those_of_other_tables() -> None:
    rows = EXPANDED_VALUES + 100
    tables = [sa.table({"a": sa.nulls(rows)}), sa.table({"a": sa.array([1], sa.int8())})]
    found = sa.concat_tables(tables, promote_options="default")
    assert found.schema.field("a").type == sa.int8()
    assert (found.num_rows, found["a"].null_count, found["a"][rows]) == (rows + 1, rows, 1)
