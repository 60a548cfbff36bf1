"""What people used to pyarrow, pandas and the standard library write at first, and what a wrong call says."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa

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
    with pytest.raises(sa.InvalidType, match="the time zone of a timestamp is a string or a tzinfo, found int"):
        sa.timestamp("s", 3)  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidType, match="has no name in Arrow"):
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
    "type of pyarrow": (
        lambda: sa.array([1], pa.int8()),
        sa.InvalidType,
        "expected a DataType or the name of one, found pyarrow.DataType; shmarrow.DataType.from_pyarrow converts it",
    ),
    "derived type of pyarrow": (
        lambda: sa.array([1]).cast(pa.list_(pa.int8())),
        sa.InvalidType,
        "expected a DataType or the name of one, found pyarrow.ListType; shmarrow.DataType.from_pyarrow converts it",
    ),
    "predicate of a type of pyarrow": (
        lambda: sa.types.is_string(pa.string()),
        sa.InvalidType,
        "is_string: expected a DataType, found pyarrow.DataType; shmarrow.DataType.from_pyarrow converts it",
    ),
    "schema with a type of pyarrow": (
        lambda: sa.schema([("a", pa.int8())]),
        sa.InvalidType,
        "expected a DataType or the name of one, found pyarrow.DataType; shmarrow.DataType.from_pyarrow converts it",
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


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_says_what_to_do(case: str) -> None:
    call, kind, message = WRONG[case]
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


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
