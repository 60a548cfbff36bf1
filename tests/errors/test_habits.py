"""Calls that users of pyarrow, pandas and the standard library try first, and the errors of wrong ones."""

from __future__ import annotations

import datetime as dt
import fractions
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa

# --- types by name, zones, dtypes ---------------------------------------------------------------------------------


def test_a_type_equals_its_name() -> None:
    for name in ("int64", "double", "float64", "string", "bool", "timestamp[us]", "date32", "no such type", ""):
        for type in ("int64", "float64", "string", "bool_", "date32"):
            ours, theirs = getattr(sa, type)(), getattr(pa, type)()
            assert (ours == name) == (name == ours) == ours.equals(name) == (theirs == name), (type, name)
    assert sa.timestamp("us") == "timestamp[us]"
    assert sa.list_("int8") != "list"
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

LISTS, STRUCT = sa.list_("int8"), sa.struct({"a": sa.list_("int8")})
ROWS = [[1], None, [], [2, 300]]
CAST = "int8 cannot hold 300: not within -128 to 127"
BUILT = "int8: cannot convert 300: not within -128 to 127"
TYPES = "no single type fits all values, which are of the types int, str; pass type="

PLACES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "chunk": (lambda: sa.chunked_array([[1, 2], [3, 300]]).cast("int8"), "row 3", CAST),
    "column": (lambda: sa.table({"n": [1, 300]}).cast(sa.schema({"n": "int8"})), "column 'n': row 1", CAST),
    "list": (lambda: sa.array(ROWS).cast(LISTS), "row 3: item 1", CAST),
    "large list": (lambda: sa.array(ROWS).slice(1).cast(sa.large_list("int8")), "row 2: item 1", CAST),
    "list view": (lambda: sa.array(ROWS, sa.list_view("int64")).cast(sa.list_view("int8")), "row 3: item 1", CAST),
    "fixed-size list": (lambda: sa.array([[1, 2], None, [2, 300]], sa.list_("int64", 2)).cast(LISTS),
                        "row 2: item 1", CAST),
    "list of lists": (lambda: sa.array([[[1]], None, [[2], [3, 300]]]).cast(sa.list_(LISTS)),
                      "row 2: item 1: item 1", CAST),
    "list in a struct": (lambda: sa.array([{"a": [1]}, {"a": [2, 300]}]).cast(STRUCT),
                         "field 'a': row 1: item 1", CAST),
    "runs": (lambda: sa.array([1, 1, 300]).run_end_encode().cast(sa.run_end_encoded("int32", "int8")), "row 2", CAST),
    "built list": (lambda: sa.array(ROWS, LISTS), "row 3: item 1", BUILT),
    "built struct": (lambda: sa.array([None, {"a": [1, 300]}], STRUCT), "row 1: field 'a': item 1", BUILT),
    "built map": (lambda: sa.array([{"x": 1}, {"y": 300}], sa.map_("string", "int8")), "row 1: value", BUILT),
    "numbers of numpy": (lambda: sa.array([[np.int64(1), np.int64(300)]], LISTS), "row 0: item 1", CAST),
    "lists of ndarrays": (lambda: sa.array([np.array([1, 2]), np.array([3, 300])], LISTS), "row 1: item 1", CAST),
    "two dimensions": (lambda: sa.array(np.array([[1, 2], [3, 300]]), sa.list_("int8", 2)), "row 1: item 1", CAST),
    "inferred list": (lambda: sa.array([[1], [2, "a"]]), "row 1: item 1", TYPES),
    "inferred struct": (lambda: sa.array([None, {"b": 1}, {"a": [1]}, {"a": [2, "a"]}]),
                        "row 3: field 'a': item 1", TYPES),
    "fraction": (lambda: sa.array([fractions.Fraction(1, 2)]), "row 0",
                 "Fraction has no Arrow type, found Fraction(1, 2); convert to floats or decimals"),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_an_error_names_row_item_and_field(case: str) -> None:
    call, place, message = PLACES[case]
    with pytest.raises((sa.InvalidData, sa.InvalidType)) as caught:
        call()
    assert str(caught.value) == f"{place}: {message}"


def test_a_uuid_is_sixteen_bytes() -> None:
    values = [uuid.UUID(int=5), None, b"0123456789abcdef"]
    assert sa.array(values, sa.binary(16)).to_pylist() == [bytes(15) + b"\5", None, b"0123456789abcdef"]
    assert sa.array([values[0]], sa.binary(16)).to_pyarrow() == pa.array([values[0].bytes], pa.binary(16))
    with pytest.raises(sa.InvalidData, match="expected 5 bytes, found 16"):
        sa.array([values[0]], sa.binary(5))
