"""Values and arguments that could be read in two ways, or that numpy would change: refused, or kept as they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa

pd = pytest.importorskip("pandas", reason="the package pandas is not installed")

MAKERS = {"Table": sa.table, "RecordBatch": sa.record_batch}
KINDS = {"Table": sa.Table, "RecordBatch": sa.RecordBatch}


# --- columns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_an_ndarray_are_not_taken_for_columns(kind: str) -> None:
    matrix = np.array([[1, 2], [3, 4], [5, 6]])
    for make in (MAKERS[kind], KINDS[kind].from_arrays):
        with pytest.raises(sa.InvalidType, match=r"pass list\(array\.T\)"):
            make(matrix, names=["a", "b", "c"])
        assert make(list(matrix.T), names=["a", "b"]).to_pydict() == {"a": [1, 3, 5], "b": [2, 4, 6]}


LISTS: list[Any] = [[[1], [2], [3]], ((1,), (2,), (3,)), [None, [2], [3]], [np.array([1]), np.array([2, 3])]]


@pytest.mark.parametrize("values", LISTS, ids=["lists", "tuples", "null", "ndarrays"])
def test_a_table_takes_no_list_of_lists_for_a_column(values: Any) -> None:
    table = sa.table({"a": [1, 2, 3]})
    for change in (
        lambda: table.append_column("n", values),
        lambda: table.add_column(0, "n", values),
        lambda: table.set_column(0, "n", values),
    ):
        with pytest.raises(sa.InvalidType, match=r"shmarrow\.array\(\.\.\.\) for lists, shmarrow\.chunked_array"):
            change()


def test_lists_and_chunks_are_taken_when_they_are_told_apart() -> None:
    table = sa.table({"a": [1, 2, 3]})
    values = [[1], [2], [3]]
    assert table.append_column("n", sa.array(values)).column("n").to_pylist() == values
    assert table.append_column("n", sa.chunked_array(values)).column("n").to_pylist() == [1, 2, 3]
    assert sa.record_batch({"a": [1, 2, 3]}).append_column("n", values).column("n").to_pylist() == values


# --- arguments of types -------------------------------------------------------------------------------------------


def test_a_field_is_nullable_unless_it_says_no() -> None:
    made = sa.field("a", sa.int8(), None, {"k": "v"})
    assert made.nullable is True
    assert made.metadata == {b"k": b"v"}
    assert sa.field("a", "int8", False).with_nullable(None).nullable is True
    assert sa.field("a", "int8", np.bool_(False)).nullable is False
    assert sa.dictionary("int8", "string", None).ordered is False
    assert sa.map_("int8", "string", None).keys_sorted is False


@pytest.mark.parametrize("wrong", [0, "no", {"k": "v"}], ids=repr)
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda wrong: sa.field("a", "int8", wrong), "nullable"),
        (lambda wrong: sa.dictionary("int8", "string", wrong), "ordered"),
        (lambda wrong: sa.map_("int8", "int8", wrong), "keys_sorted"),
    ],
    ids=["field", "dictionary", "map_"],
)
def test_what_is_yes_or_no_is_a_truth_value(make: Any, what: str, wrong: Any) -> None:
    with pytest.raises(sa.InvalidType, match=f"{what} must be True or False, found"):
        make(wrong)


FIELDS = {"a": sa.int8()}
NUMBERS = {
    "precision": (sa.decimal128, "the precision of a decimal"),
    "scale": (lambda scale: sa.decimal256(5, scale), "the scale of a decimal"),
    "list_size": (lambda size: sa.list_("int8", size), "the size of a fixed-size list"),
    "width": (sa.binary, "the width of a fixed-size binary"),
    "type code": (lambda code: sa.dense_union(FIELDS, [code]), "a type code of a union"),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("wrong", [5.0, True, None], ids=repr)
def test_a_number_in_a_type_is_an_int(name: str, wrong: Any) -> None:
    make, what = NUMBERS[name]
    with pytest.raises(sa.InvalidType, match=f"{what} must be an int, found"):
        make(wrong)


def test_integers_of_numpy_are_numbers_in_types() -> None:
    assert sa.decimal128(np.int8(5), np.uint8(2)) == sa.decimal128(5, 2)
    assert str(sa.decimal128(np.int8(5), np.uint8(2))) == "decimal128(5, 2)"
    assert sa.list_("int8", np.int64(-1)) == sa.list_("int8")
    assert sa.binary(np.int32(3)).width.__class__ is int
    assert sa.dense_union(FIELDS, np.array([7])).type_codes == (7,)
    for wrong in (lambda: sa.dense_union(FIELDS, "1"), lambda: sa.field(5, "int8")):
        with pytest.raises(sa.InvalidType, match=r"must be a (list of ints|string), found"):
            wrong()


# --- other arguments ----------------------------------------------------------------------------------------------

RUNS: dict[str, tuple[Any, Any, str]] = {
    "falling": ([2, 1], [1, 2], "run end 1 does not increase: 2, then 1"),
    "equal": ([2, 2], [1, 2], "run end 1 does not increase: 2, then 2"),
    "zero": ([0, 2], [1, 2], "the first run ends at 0, expected at least 1"),
    "negative": ([-1, 2], [1, 2], "the first run ends at -1, expected at least 1"),
    "more values": ([2], [1, 2], "1 run ends for 2 values, expected one for each"),
    "more run ends": ([1, 2], [1], "2 runs but 1 values"),
}


@pytest.mark.parametrize("name", RUNS)
def test_run_ends_rise_and_have_a_value_each(name: str) -> None:
    ends, values, message = RUNS[name]
    with pytest.raises(sa.InvalidData, match=message):
        sa.RunEndEncodedArray.from_arrays(ends, values)


# --- values in ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_of_rows_is_one_of_structs(kind: str) -> None:
    data: Any = {"a": [1, 2], "b": [0.5, None]}
    found = sa.array(MAKERS[kind](data))
    assert str(found.type) == "struct<a: int64, b: double>"
    assert found.to_pylist() == pa.array(pa.record_batch(data)).to_pylist()
    assert sa.array(MAKERS[kind](data).slice(1)).to_pylist() == [{"a": 2, "b": None}]
    assert sa.array(MAKERS[kind](data), mask=[True, False]).to_pylist() == [None, {"a": 2, "b": None}]


def test_rows_of_several_batches_are_one_array() -> None:
    table = sa.concat_tables([sa.table({"a": [1]}), sa.table({"a": [2, None]})])
    assert sa.array(table).to_pylist() == [{"a": 1}, {"a": 2}, {"a": None}]
    empty = sa.array(sa.Table.from_batches([], sa.schema([("a", sa.int8())])))
    assert (str(empty.type), len(empty)) == ("struct<a: int8>", 0)


def test_a_store_takes_a_series_as_an_array_of_it(tmp_path: Path) -> None:
    series, index = pd.Series([1.0, np.nan]), pd.Index([np.nan, 2.0])
    with sa.Store(tmp_path / "store") as store:
        store.put("series", series)
        store.put("index", index)
        assert store.get("series").equals(sa.array(series))
        assert store.get("series").to_pylist() == [1.0, None]
        assert store.get("index").to_pylist() == [None, 2.0]


# --- values out ---------------------------------------------------------------------------------------------------

NANOS = {
    "timestamp": (sa.timestamp("ns", "Europe/Berlin"), 1_720_000_000_000_001_000, "2024-07-03T09:46:40.000001"),
    "utc": (sa.timestamp("ns", "UTC"), -1_000, "1969-12-31T23:59:59.999999"),
    "time": (sa.time64("ns"), 86_399_999_999_000, "86399999999"),
}
"""Types in nanoseconds whose values are those of datetime: a count of whole microseconds, and how it is shown."""


@pytest.mark.parametrize("name", NANOS)
def test_moments_with_a_zone_and_times_are_those_of_datetime_in_every_unit(name: str) -> None:
    type, count, _ = NANOS[name]
    array = sa.array([count, None, 0], type)
    theirs = pa.array([count // 1000, None, 0], pa.int64()).cast(
        pa.time64("us") if name == "time" else pa.timestamp("us", type.tz)
    )
    assert array.to_pylist() == theirs.to_pylist()
    assert [value.__class__ for value in array.to_pylist()] == [value.__class__ for value in theirs.to_pylist()]
    assert [getattr(value, "tzinfo", None) for value in array.to_pylist()] == [
        getattr(value, "tzinfo", None) and array[0].tzinfo for value in theirs.to_pylist()
    ]
    assert array[0] == theirs[0].as_py()
    assert sa.array(array.to_pylist(), type).equals(array)


@pytest.mark.parametrize("name", NANOS)
def test_a_fraction_of_a_microsecond_is_refused(name: str) -> None:
    type, count, shown = NANOS[name]
    array = sa.array([count, count + 1], type)
    assert array.slice(0, 1).to_pylist() == [array[0]]
    for read in (array.to_pylist, lambda: array[1], lambda: list(array), lambda: sa.table({"a": array}).to_pylist()):
        with pytest.raises(sa.InvalidData, match=rf"row 1: .*found {shown}.*the microsecond; (to_numpy|.values)"):
            read()
    assert shown in str(array)
    assert shown in repr(array)
    assert array.values.tolist() == [count, count + 1]
    hidden = sa.Array.from_buffers(type, 2, [np.array([1], np.uint8), array.buffers()[1]])
    assert hidden.to_pylist() == [array[0], None]
    if name != "time":
        assert array.to_numpy()[1] == np.datetime64(count + 1, "ns")


def test_moments_without_a_zone_and_durations_in_nanoseconds_are_those_of_numpy() -> None:
    assert [value.dtype.str for value in sa.array([1, 1000], sa.timestamp("ns")).to_pylist()] == ["<M8[ns]"] * 2
    assert [value.dtype.str for value in sa.array([1, 1000], sa.duration("ns")).to_pylist()] == ["<m8[ns]"] * 2


# --- dates and time zones -----------------------------------------------------------------------------------------

DAY, NAIVE = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)
AWARE = NAIVE.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))


@pytest.mark.parametrize(
    "values",
    [[DAY, NAIVE], [NAIVE, None, DAY], [DAY, AWARE], [DAY, np.datetime64(5, "s")], [DAY, pd.Timestamp(NAIVE)]],
    ids=["date first", "datetime first", "aware", "numpy", "pandas"],
)
def test_a_date_among_moments_has_no_type(values: Any) -> None:
    with pytest.raises(sa.InvalidType, match="no single type fits dates and timestamps"):
        sa.array(values)


def test_dates_by_themselves_or_with_a_type_are_taken() -> None:
    assert sa.array([DAY, np.datetime64("2020-01-02")]).to_pylist() == [DAY, dt.date(2020, 1, 2)]
    assert sa.array([DAY, NAIVE], sa.timestamp("s")).to_pylist() == [dt.datetime(2020, 1, 1), NAIVE]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_a_time_zone_is_neither_dropped_nor_made_up(unit: str) -> None:
    zoned, plain = sa.timestamp(unit, "Europe/Paris"), sa.timestamp(unit)
    for value in (AWARE, pd.Timestamp(AWARE)):
        with pytest.raises(sa.InvalidType, match=r"row 1: .*which has a time zone; .*astimezone"):
            sa.array([NAIVE, value], plain)
        assert sa.array([value], zoned).to_pylist() == [AWARE]
    for value in (NAIVE, pd.Timestamp(NAIVE)):
        with pytest.raises(sa.InvalidType, match=r"row 1: .*which has no time zone; .*replace\(tzinfo=zone\)"):
            sa.array([AWARE, value], zoned)
        with pytest.raises(sa.InvalidType, match="which has no time zone"):
            sa.array([AWARE, None], zoned).fill_null(value)
        assert sa.array([value], plain).to_pylist()[0] == np.datetime64(NAIVE)
    with pytest.raises(sa.InvalidType, match="a date has no time zone"):
        sa.array([DAY], zoned)


def test_counts_and_numbers_of_numpy_are_in_utc() -> None:
    theirs = pa.array(np.array([5], "M8[s]")).cast(pa.timestamp("s", "Europe/Paris")).to_pylist()
    for values in (np.array([5], "M8[s]"), [np.datetime64(5, "s")], [5]):
        assert sa.array(values, sa.timestamp("s", "Europe/Paris")).to_pylist() == theirs


# --- ndarrays of another dtype ------------------------------------------------------------------------------------

EXACT: list[tuple[Any, str, list[Any]]] = [
    ([1, 300], "i2", [1, 300]), ([1.0, -2.0], "i8", [1, -2]), ([1, 2], "f4", [1.0, 2.0]),
    ([0.1], "f4", [np.float32(0.1)]),
    ([True, False], "i1", [1, 0]), ([1, 0], "?", [True, False]), ([1, None], "O", [1.0, "nan"]),
    ([1, 2], "U3", ["1", "2"]), ([1, 2], "c16", [1, 2]), (["a"], "O", ["a"]),
    ([np.datetime64(5, "s"), None], "M8[ns]", [5 * 10**9, "nat"]), ([np.datetime64(5, "s")], "M8[h]", [0]),
    ([np.timedelta64(5, "s"), None], "m8[ms]", [5000, "nat"]), ([np.datetime64(5000, "ms")], "M8[s]", [5]),
]  # fmt: skip
LOSSES: list[tuple[Any, str]] = [
    ([300], "i1"), ([-1], "u8"), ([1.5], "i8"), ([1, None], "i8"), ([2**53 + 1], "f8"), ([2**24 + 1], "f4"),
    ([1e300], "f4"), ([2], "?"), ([np.datetime64(1500, "ms")], "M8[s]"), ([np.timedelta64(1, "ns")], "m8[us]"),
    ([np.datetime64(2**62, "s")], "M8[ns]"),
]  # fmt: skip
FORMS = {
    "Array": sa.array,
    "ChunkedArray": lambda values: sa.chunked_array([sa.array(values), sa.array(values)]).slice(0, len(values)),
    "RecordBatch": lambda values: sa.record_batch({"a": values}),
    "Table": lambda values: sa.table({"a": values}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("values", "dtype"), LOSSES, ids=[f"{values} {dtype}" for values, dtype in LOSSES])
def test_an_ndarray_of_another_dtype_has_the_same_values_or_is_refused(values: Any, dtype: str, form: str) -> None:
    with pytest.raises(sa.InvalidData, match=r"row [01]: .*cannot hold"):
        np.asarray(FORMS[form](values), dtype=dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("values", "dtype", "expected"), EXACT, ids=[f"{row[0]} {row[1]}" for row in EXACT])
def test_an_ndarray_of_another_dtype(values: Any, dtype: str, expected: list[Any], form: str) -> None:
    found = np.asarray(FORMS[form](values), dtype=dtype).reshape(-1)
    assert found.dtype == np.dtype(dtype)
    plain = found.view("i8") if found.dtype.kind in "mM" else found
    assert ["nat" if value == -(2**63) else "nan" if value != value else value for value in plain.tolist()] == expected


def test_copies_of_ndarrays_are_made_when_asked_for() -> None:
    array = sa.array(np.arange(3))
    assert np.shares_memory(np.asarray(array), array.values)
    assert np.shares_memory(np.asarray(array, dtype="i8", copy=False), array.values)
    assert not np.shares_memory(np.array(array, copy=True), array.values)
    assert not np.shares_memory(np.array(array, dtype="i8", copy=True), array.values)
    with pytest.raises(sa.CopyRequired, match="converting int64 to int8 needs a copy"):
        np.asarray(array, dtype="i1", copy=False)
    matrix = np.asarray(sa.array([[1, 2], [3, 4]], sa.list_("int64", 2)), dtype="f4")
    assert (matrix.dtype.str, np.asarray(matrix).tolist()) == ("<f4", [[1.0, 2.0], [3.0, 4.0]])


# --- fields that are not nullable ---------------------------------------------------------------------------------

REQUIRED = sa.field("a", sa.int8(), nullable=False)
SCHEMA = sa.schema([REQUIRED])
SORTED = sa.map_("string", "int64", keys_sorted=True)
NULLS: dict[str, Any] = {
    "table": lambda null: sa.table({"a": [1, null]}, schema=SCHEMA),
    "table of arrays": lambda null: sa.table([sa.array([1, null], "int8")], schema=SCHEMA),
    "from_pylist": lambda null: sa.Table.from_pylist([{"a": 1}, {"a": null}], schema=SCHEMA),
    "append_column": lambda null: sa.table({"b": [1, 2]}).append_column(REQUIRED, [null, 1]),
    "set_column": lambda null: sa.record_batch({"b": [1, 2]}).set_column(0, REQUIRED, [null, 1]),
    "structs": lambda null: sa.StructArray.from_arrays([[1, null]], fields=[REQUIRED]),
    "lists": lambda null: sa.ListArray.from_arrays([0, 2], [1, null], type=sa.list_(REQUIRED)),
    "list views": lambda null: sa.ListViewArray.from_arrays([0], [2], [1, null], type=sa.list_view(REQUIRED)),
    "lists of a size": lambda null: sa.FixedSizeListArray.from_arrays([1, null], type=sa.list_(REQUIRED, 2)),
    "maps": lambda null: sa.MapArray.from_arrays([0, 2], ["x", "y"], [1, null], type=sa.map_("string", REQUIRED)),
    "values of lists": lambda null: sa.array([[1], [null]], sa.list_(REQUIRED)),
    "values of structs": lambda null: sa.array([{"a": 1}, {"a": null}], sa.struct([REQUIRED])),
}


@pytest.mark.parametrize("name", NULLS)
def test_a_null_does_not_go_into_a_field_that_is_not_nullable(name: str) -> None:
    assert len(NULLS[name](7)) >= 1
    with pytest.raises(sa.InvalidData, match="not nullable"):
        NULLS[name](None)


def test_nulls_above_a_field_that_is_not_nullable_are_taken() -> None:
    structs = sa.StructArray.from_arrays([[None, 1]], fields=[REQUIRED], mask=[True, False])
    assert structs.to_pylist() == [None, {"a": 1}]
    assert sa.array([None, {"a": 1}], sa.struct([REQUIRED])).to_pylist() == [None, {"a": 1}]
    assert sa.array([None, [1]], sa.list_(REQUIRED)).to_pylist() == [None, [1]]


def test_maps_with_sorted_keys_are_sorted() -> None:
    with pytest.raises(sa.InvalidData, match=r"row 0: .*the key 'a' comes after 'b', but the type has keys_sorted"):
        sa.MapArray.from_arrays([0, 2], ["b", "a"], [1, 2], type=SORTED)
    with pytest.raises(sa.InvalidData):
        sa.MapArray.from_arrays([0, 5, 2], ["b", "a"], [1, 2], type=SORTED)
    found = sa.MapArray.from_arrays([0, 1, 2], ["b", "a"], [1, 2], type=SORTED)
    assert found.to_pylist() == pa.MapArray.from_arrays([0, 1, 2], ["b", "a"], [1, 2]).to_pylist()


class Zone(dt.tzinfo):
    """A time zone whose offset is what it was made with, or raises it."""

    def __init__(self, offset: Any) -> None:
        self.offset = offset

    def utcoffset(self, moment: Any) -> Any:
        if isinstance(self.offset, Exception):
            raise self.offset
        return self.offset

    def dst(self, moment: Any) -> Any:
        return None

    def __repr__(self) -> str:
        return "Zone()"


NOON = dt.datetime(2020, 1, 1, 12)


STAMP = sa.timestamp("s", "UTC")


def test_a_time_zone_without_an_offset_is_none() -> None:
    unzoned = NOON.replace(tzinfo=Zone(None))
    assert sa.array([unzoned, None, NOON], sa.timestamp("us")).to_pylist() == [NOON, None, NOON]
    with pytest.raises(sa.InvalidType, match="which has no time zone"):
        sa.array([NOON.replace(tzinfo=dt.UTC), unzoned], STAMP)
    with pytest.raises(sa.InvalidType, match="expected datetimes with a time zone"):
        sa.array([unzoned], sa.timestamp_with_offset("s"))


@pytest.mark.parametrize(
    "offset", [dt.timedelta(days=5), RuntimeError("lost"), 7, KeyError("x")], ids=["days", "raises", "int", "key"]
)
def test_a_time_zone_with_no_possible_offset_is_refused(offset: Any) -> None:
    moment = NOON.replace(tzinfo=Zone(offset))
    for type in (STAMP, sa.timestamp("ns"), sa.timestamp_with_offset("s")):
        zone = None if type == sa.timestamp("ns") else dt.UTC
        for values in ([moment], [NOON.replace(tzinfo=zone), None, moment]):
            with pytest.raises(sa.InvalidData, match=r"Zone.*has no offset"):
                sa.array(values, type)
    with pytest.raises(sa.InvalidType, match="no Arrow name"):
        sa.array([moment])
    with pytest.raises(sa.InvalidType, match="no Arrow name"):
        sa.timestamp("s", Zone(offset))
