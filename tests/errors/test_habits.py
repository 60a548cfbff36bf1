"""What people used to pyarrow, pandas and the standard library write at first, and what a wrong call says."""

from __future__ import annotations

import datetime as dt
import enum
import fractions
import pickle
import uuid
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa

pd = pytest.importorskip("pandas", reason="the package pandas is not installed")

# --- types by name, zones, dtypes ---------------------------------------------------------------------------------

NAMES = ["int64", "double", "float64", "string", "bool", "timestamp[us]", "date32", "no such type", ""]


@pytest.mark.parametrize("name", NAMES)
def test_a_type_equals_its_name(name: str) -> None:
    types = ["int64", "float64", "string", "bool_", "date32"]
    ours = [getattr(sa, each)() == name for each in types] + [sa.timestamp("us") == name]
    assert ours == [getattr(pa, each)() == name for each in types] + [pa.timestamp("us") == name]
    assert ours == [getattr(sa, each)().equals(name) for each in types] + [sa.timestamp("us").equals(name)]
    assert ours == [name == getattr(sa, each)() for each in types] + [name == sa.timestamp("us")]


def test_a_type_of_another_class_equals_no_name() -> None:
    assert sa.list_("int8") != "list"
    assert sa.int64() != "int32"
    assert sa.int64() != 64


@pytest.mark.parametrize(
    "zone",
    [
        zoneinfo.ZoneInfo("Europe/Paris"),
        dt.UTC,
        dt.timezone(dt.timedelta(hours=-7, minutes=-30)),
        dt.timezone(dt.timedelta(hours=2)),
    ],
    ids=["name", "utc", "negative", "positive"],
)
def test_a_time_zone_may_be_a_tzinfo(zone: dt.tzinfo) -> None:
    assert sa.timestamp("s", zone).tz == pa.timestamp("s", zone).tz


def test_a_time_zone_that_is_none() -> None:
    with pytest.raises(sa.InvalidType, match="the time zone of a timestamp must be a string or a tzinfo, found int"):
        sa.timestamp("s", 3)  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidType, match="has no Arrow name"):
        sa.timestamp("s", dt.timezone(dt.timedelta(seconds=1)))


@pytest.mark.parametrize("dtype", ["M8[ms]", "i4", np.float32, "<u2", bool])
def test_what_numpy_makes_a_dtype_of_has_a_type(dtype: Any) -> None:
    assert sa.types.from_numpy_dtype(dtype).to_pyarrow() == pa.from_numpy_dtype(dtype)


def test_what_is_no_dtype() -> None:
    with pytest.raises(sa.InvalidType, match="expected a numpy dtype, found 'nothing': "):
        sa.types.from_numpy_dtype("nothing")


# --- slices ---------------------------------------------------------------------------------------------------------


def test_a_slice_beyond_the_end_is_empty() -> None:
    for library in (pa, sa):
        array = library.array([1, 2, 3])
        assert array.slice(10).to_pylist() == array.slice(10, 5).to_pylist() == array.slice(2**62).to_pylist() == []
        assert library.chunked_array([[1], [2, 3]]).slice(10).to_pylist() == []
        assert library.record_batch({"a": array}).slice(10).num_rows == 0
        assert library.table({"a": array}).slice(10, 2).num_rows == 0
    assert sa.array([1, 2, 3]).slice(1).slice(5).offset == 3


# --- messages -------------------------------------------------------------------------------------------------------

TABLE = sa.table({"a": [1, 2, 3]})
BATCH = sa.record_batch({"a": [1, 2, 3]})

WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "predicate of a type of pyarrow": (
        lambda: sa.types.is_string(pa.string()),
        sa.InvalidType,
        "is_string: expected a DataType, found pyarrow.DataType; shmarrow.DataType.from_pyarrow converts it",
    ),
    "number for a type": (
        lambda: sa.array([1], 8),  # type: ignore[call-overload]
        sa.InvalidType,
        "expected a DataType or the name of one, found 8",
    ),
    "position by name": (
        lambda: TABLE.remove_column("a"),  # type: ignore[arg-type]
        sa.InvalidType,
        "expected a position, found 'a'; drop_columns(['a']) takes names",
    ),
    "position beyond": (
        lambda: TABLE.remove_column(9),
        sa.IndexOutOfRange,
        "position 9 is out of range: expected 0 to 0",
    ),
}


WRONG |= {
    "table of a dict": (
        lambda: sa.Table({"a": [1]}),  # type: ignore[arg-type]
        sa.InvalidType,
        "expected a shmarrow.Schema, found dict; shmarrow.table() takes values",
    ),
    "chunks of values": (
        lambda: sa.ChunkedArray([[1]]),
        sa.InvalidType,
        "expected Arrays, found list; shmarrow.chunked_array() takes values",
    ),
    "table of a Series": (
        lambda: sa.table(pd.Series([1], name="a")),
        sa.InvalidType,
        "a pandas.Series is a single column; give its name, as in {'name': values}",
    ),
    "table of a number": (
        lambda: sa.table(5),
        sa.InvalidType,
        "expected a mapping, arrays, or a data frame, found int",
    ),
    "one table": (
        lambda: sa.concat_tables(TABLE),  # type: ignore[arg-type]
        sa.InvalidType,
        "expected a list of tables, found one shmarrow.Table",
    ),
    "select nothing": (
        lambda: TABLE.select(None),  # type: ignore[arg-type]
        sa.InvalidType,
        "expected a list of positions and names, found None",
    ),
    "select one name": (
        lambda: TABLE.select("a"),
        sa.InvalidType,
        "expected a list of positions and names, found 'a'; write ['a'] for one",
    ),
    "take text": (
        lambda: sa.array([1]).take("a"),
        sa.InvalidType,
        "indices must be integers, found 'a'",
    ),
    "take beyond": (
        lambda: sa.array([1, 2, 3, 4]).take([0, 5]),
        sa.IndexOutOfRange,
        "index 5 is out of range: the array has 4 values",
    ),
    "take beyond a column": (
        lambda: sa.chunked_array([[1]]).take([0, -1]),
        sa.IndexOutOfRange,
        "index -1 is out of range: the column has 1 value",
    ),
    "take beyond a table": (
        lambda: TABLE.take([3]),
        sa.IndexOutOfRange,
        "index 3 is out of range: the table has 3 rows",
    ),
    "text of numbers": (
        lambda: sa.array([1]).cast("string"),
        sa.InvalidType,
        "there is no cast from int64 to string; format or parse the values in Python",
    ),
    "times of text": (
        lambda: sa.array(["2020-01-01"]).cast("date32"),
        sa.InvalidType,
        "there is no cast from string to date32[day]; format or parse the values in Python",
    ),
    "structs of lists": (
        lambda: sa.array([[1]]).cast(sa.struct({"a": "int8"})),
        sa.InvalidType,
        "there is no cast from list<item: int64> to struct<a: int8>",
    ),
    "numbers of a dictionary": (
        lambda: sa.array(["a"]).dictionary_encode().cast("int8"),
        sa.InvalidType,
        "there is no cast from string to int8; format or parse the values in Python",
    ),
    "short column": (
        lambda: TABLE.append_column("n", [1]),
        sa.InvalidArgument,
        "column 'n' has 1 value, expected 3",
    ),
    "column without a field": (
        lambda: sa.table({"a": [1], "b": [2]}, schema=sa.schema({"a": "int8"})),
        sa.InvalidArgument,
        "the schema has no field for the columns ['b']; its fields are ['a']",
    ),
    "key of a later row": (
        lambda: sa.Table.from_pylist([{"a": 1}, {"b": 2}]),
        sa.InvalidArgument,
        "row 1 has the key 'b', but the columns are ['a'] (from the first row); pass a schema that names them all",
    ),
    "batches with other fields": (
        lambda: sa.concat_batches([BATCH, sa.record_batch({"b": [1]})]),
        sa.InvalidType,
        "batch 1 has other fields than the rest: missing: column 'a'; not expected: column 'b'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_says_what_to_do(case: str) -> None:
    call, kind, message = WRONG[case]
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


MAP = sa.map_("string", "int8")
LISTS, STRUCT = sa.list_("int8"), sa.struct({"a": sa.list_("int8")})
RANGE = "not within -128 to 127"

PLACES: dict[str, tuple[Callable[[], Any], str]] = {
    "chunk": (
        lambda: sa.chunked_array([[1, 2], [3, 300]]).cast("int8"),
        f"row 3: int8 cannot hold 300: {RANGE}",
    ),
    "column": (
        lambda: sa.table({"n": sa.chunked_array([[1, 2], [3, 300]])}).cast(sa.schema({"n": "int8"})),
        f"column 'n': row 3: int8 cannot hold 300: {RANGE}",
    ),
    "list": (
        lambda: sa.array([[1], None, [], [2, 300]]).cast(LISTS),
        f"row 3: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "large list": (
        lambda: sa.array([[1], None, [], [2, 300]]).slice(1).cast(sa.large_list("int8")),
        f"row 2: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "list view": (
        lambda: sa.array([[1], None, [2, 300]], sa.list_view("int64")).cast(sa.list_view("int8")),
        f"row 2: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "fixed-size list": (
        lambda: sa.array([[1, 2], None, [2, 300]], sa.list_("int64", 2)).cast(LISTS),
        f"row 2: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "list of lists": (
        lambda: sa.array([[[1]], None, [[2], [3, 300]]]).cast(sa.list_(LISTS)),
        f"row 2: item 1: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "list in a struct": (
        lambda: sa.array([{"a": [1]}, {"a": [2, 300]}]).cast(STRUCT),
        f"field 'a': row 1: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "runs": (
        lambda: sa.array([1, 1, 300]).run_end_encode().cast(sa.run_end_encoded("int32", "int8")),
        f"row 2: int8 cannot hold 300: {RANGE}",
    ),
    "built list": (
        lambda: sa.array([[1], None, [2, 300]], LISTS),
        f"row 2: item 1: int8: cannot convert 300: {RANGE}",
    ),
    "built struct": (
        lambda: sa.array([None, {"a": [1, 300]}], STRUCT),
        f"row 1: field 'a': item 1: int8: cannot convert 300: {RANGE}",
    ),
    "built map": (
        lambda: sa.array([{"x": 1}, {"y": 300}], MAP),
        f"row 1: value: int8: cannot convert 300: {RANGE}",
    ),
    "numbers of numpy": (
        lambda: sa.array([[np.int64(1), np.int64(300)]], LISTS),
        f"row 0: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "lists of ndarrays": (
        lambda: sa.array([np.array([1, 2]), np.array([3, 300])], LISTS),
        f"row 1: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "ndarray of two dimensions": (
        lambda: sa.array(np.array([[1, 2], [3, 300]]), sa.list_("int8", 2)),
        f"row 1: item 1: int8 cannot hold 300: {RANGE}",
    ),
    "inferred list": (
        lambda: sa.array([[1], [2, "a"]]),
        "row 1: item 1: no single type fits all values, which are of the types int, str; pass type=",
    ),
    "inferred struct": (
        lambda: sa.array([None, {"b": 1}, {"a": [1]}, {"a": [2, "a"]}]),
        "row 3: field 'a': item 1: no single type fits all values, which are of the types int, str; pass type=",
    ),
    "inferred value": (
        lambda: sa.array([[1j]]),
        "row 0: item 0: complex has no Arrow type, found 1j; convert to structs of real and imaginary part",
    ),
    "fraction": (
        lambda: sa.array([fractions.Fraction(1, 2)]),
        "row 0: Fraction has no Arrow type, found Fraction(1, 2); convert to floats or decimals",
    ),
    "member of an Enum": (
        lambda: sa.array([Colour.RED]),
        "row 0: Colour has no Arrow type, found <Colour.RED: 1>; convert members to their .value",
    ),
}


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize("case", PLACES)
def test_an_error_names_row_item_and_field(case: str) -> None:
    call, message = PLACES[case]
    with pytest.raises((sa.InvalidData, sa.InvalidType)) as caught:
        call()
    assert str(caught.value) == message


def test_a_value_that_python_cannot_hold_is_named_by_its_row() -> None:
    late = sa.array([0] * 1030 + [2**40], sa.timestamp("s"))
    for read in (lambda: list(late), late.to_pylist, lambda: list(sa.chunked_array([late]))):
        with pytest.raises(sa.InvalidData, match=r"row 1030: timestamp\[s\]: found"):
            read()
    with pytest.raises(sa.InvalidData, match=r"row 1035: timestamp\[s\]: found"):
        sa.chunked_array([late.slice(0, 5), late]).to_pylist()


def test_an_error_with_a_place_can_be_pickled() -> None:
    with pytest.raises(sa.InvalidData) as caught:
        sa.array([1, 300]).cast("int8")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


STORED: dict[str, tuple[Callable[[], Any], str]] = {
    "hours": (
        lambda: np.zeros(2, "M8[h]"),
        "a store keeps an ndarray as a tensor, which has numbers and no nulls, found numpy.ndarray of datetime64[h]; "
        "put shmarrow.array(values) instead",
    ),
    "structs": (
        lambda: np.zeros(2, [("a", "i4")]),
        "a store keeps an ndarray as a tensor, which has numbers and no nulls, found numpy.ndarray of "
        "[('a', '<i4')]; put shmarrow.array(values) instead",
    ),
}


@pytest.mark.parametrize("case", STORED)
def test_what_a_store_does_not_keep(case: str, tmp_path: Path) -> None:
    make, message = STORED[case]
    with sa.Store(tmp_path / "store") as store:
        with pytest.raises(sa.InvalidType) as caught:
            store.put("x", make())
        assert str(caught.value) == message


@pytest.mark.filterwarnings("error")
def test_a_lazy_frame_of_polars_is_refused_without_work(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    with (
        sa.Store(tmp_path / "store") as store,
        pytest.raises(sa.InvalidType, match=r"polars\.LazyFrame; call \.collect\(\)"),
    ):
        store.put("x", pl.LazyFrame({"a": [1]}))


def test_a_uuid_is_sixteen_bytes() -> None:
    values = [uuid.UUID(int=5), None, b"0123456789abcdef"]
    assert sa.array(values, sa.binary(16)).to_pylist() == [bytes(15) + b"\5", None, b"0123456789abcdef"]
    assert sa.array([values[0]], sa.binary(16)).to_pyarrow() == pa.array([values[0]], pa.binary(16))
    with pytest.raises(sa.InvalidData, match="expected 5 bytes, found 16"):
        sa.array([values[0]], sa.binary(5))


def test_validate_takes_full_by_position() -> None:
    broken = sa.Array.from_buffers("string", 1, [None, np.array([0, 1], np.int32), b"\xff"])
    for holder in (
        broken,
        sa.chunked_array([broken]),
        sa.record_batch({"a": broken}),
        sa.table({"a": broken}),
    ):
        holder.validate(False)
        with pytest.raises(sa.InvalidData, match="UTF-8"):
            holder.validate(True)
