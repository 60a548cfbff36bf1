"""``sa.array`` from pandas: Series, indexes and arrays of every dtype, as pyarrow reads them."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import python

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

D = decimal.Decimal
INTS = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"]
FLOATS = ["float16", "float32", "float64"]
MOMENTS = pd.DatetimeIndex(["2020-03-29 00:30", None, "1969-12-31 23:59:59.5"])

SOURCES: dict[str, Any] = {
    **{name.lower(): pd.Series([1, 2, 3], dtype=name.lower()) for name in INTS},
    **{name: pd.Series([1, None, 3], dtype=name) for name in INTS},
    **{name: pd.Series([0.5, np.nan, np.inf], dtype=name) for name in FLOATS},
    "Float32": pd.Series([0.5, None], dtype="Float32"),
    "Float64": pd.Series([0.5, None, np.nan], dtype="Float64"),
    "bool": pd.Series([True, False]),
    "boolean": pd.Series([True, None, False], dtype="boolean"),
    **{f"M8[{unit}]": pd.Series(MOMENTS.astype(f"M8[{unit}]")) for unit in ("s", "ms", "us", "ns")},
    **{f"m8[{unit}]": pd.Series(np.array([5, "NaT"], f"m8[{unit}]")) for unit in ("s", "ms", "us", "ns")},
    "zone": pd.Series(MOMENTS.tz_localize("UTC").tz_convert("Europe/Paris")),
    "offset": MOMENTS.tz_localize(dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
    "str": pd.Series(["a", None, "é"]),
    "string": pd.Series(["a", None, "é"], dtype="string"),
    "string[python]": pd.Series(["a", None, "é"], dtype="string[python]"),
    "str[python]": pd.Series(["a", None], dtype=pd.StringDtype("python", na_value=np.nan)),
    "category": pd.Series(["a", None, "b", "a"], dtype="category"),
    "ordered": pd.Categorical([3, 1, None, 3], categories=[3, 2, 1], ordered=True),
    "categorical index": pd.CategoricalIndex([0.5, 1.5]),
    "moments as categories": pd.Series(MOMENTS).astype("category"),
    "arrow int": pd.Series([1, None], dtype=pd.ArrowDtype(pa.int8())),
    "arrow list": pd.Series([[1], None], dtype=pd.ArrowDtype(pa.list_(pa.int16()))),
    "arrow decimal": pd.Series([D("1.5"), None], dtype=pd.ArrowDtype(pa.decimal128(10, 2))),
    "index": pd.Index([3, 1]),
    "range index": pd.RangeIndex(10, 0, -3),
    "text index": pd.Index(["a", "b"]),
    "datetime index": MOMENTS,
    "multi index": pd.MultiIndex.from_tuples([(1, 2), (3, 4)]),
    "objects": pd.Series(["a", None, np.nan, pd.NA], dtype=object),
    "decimals": pd.Series([D("1.5"), None, D("NaN")]),
    "arrow floats": pd.array(pa.array([0.5, float("nan"), None]), dtype=pd.ArrowDtype(pa.float64())),
    "floats with a mask": pd.arrays.FloatingArray(np.array([0.5, np.nan, 1]), np.array([False, False, True])),
    "arrow lists": pd.array(pa.array([[float("nan"), None]]), dtype=pd.ArrowDtype(pa.list_(pa.float32()))),
    "uuids": pd.Series([uuid.UUID(int=1), None]),
    "lists": pd.Series([[1], None, [np.nan, 2]]),
    "dicts": pd.Series([{"a": 1.5}, None, {"a": np.nan}]),
    "ndarrays": pd.Series([np.arange(2), None, np.array([1.5, np.nan])]),
    "slice": pd.Series(np.arange(10))[2:7],
    "reversed": pd.Series(np.arange(10), dtype="Int32")[::-1],
}


@pytest.mark.parametrize("name", SOURCES)
def test_pandas_is_read_as_pyarrow_reads_it(name: str) -> None:
    source = SOURCES[name]
    peer = pa.array(source)
    if isinstance(peer, pa.ChunkedArray):
        peer = peer.combine_chunks()
    made = sa.array(source)
    made.validate(full=True)
    assert made.type == sa.types.as_type(peer.type)
    assert made.to_pyarrow().equals(peer) or repr(made.to_pyarrow().to_pylist()) == repr(peer.to_pylist())
    assert made.null_count == peer.null_count


VIEWS = ["int64", "uint8", "Int32", "M8[us]", "M8[ns]", "m8[s]", "zone", "offset", "ordered", "index",
         "float64", "arrow int", "slice"]  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_values_are_not_copied(name: str) -> None:
    """Two arrays of one source that lie at one address lie where the source does."""
    source = SOURCES[name]
    one, two = sa.array(source), sa.array(source)
    assert one.buffers()[1].ctypes.data == two.buffers()[1].ctypes.data


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (pd.PeriodIndex(["2020"], freq="D"), r"period\[D\].*to_timestamp"),
        (pd.Series(pd.interval_range(0, 2)), "interval.*left"),
        (pd.DataFrame({"a": [1]}), "pandas DataFrame"),
        (pd.Series([1j]), "complex128"),
        (pd.Series(["a", 1], dtype=object), "row 1: .*str, int"),
        (pd.Series([pd.Period("2020"), 1], dtype=object), "Period"),
    ],
    ids=["period", "interval", "frame", "complex", "mixed", "period among others"],
)
def test_what_has_no_type_is_refused_by_name(source: Any, match: str) -> None:
    with pytest.raises(sa.InvalidType, match=match):
        sa.array(source)


def test_sparse_values_are_written_out() -> None:
    assert sa.array(pd.arrays.SparseArray([0, 0, 5])).to_pylist() == [0, 0, 5]
    assert sa.array(pd.Series(pd.arrays.SparseArray([0.5, np.nan]))).to_pylist() == [0.5, None]


def test_nanoseconds_are_kept() -> None:
    """pyarrow cuts them off."""
    made = sa.array(pd.Series([pd.Timestamp(1), pd.NaT], dtype=object))
    assert made.type == sa.timestamp("ns")
    assert made.to_numpy(False).tolist() == [1, None]
    assert sa.array([pd.Timedelta(1), None]).type == sa.duration("ns")
    assert sa.array([pd.Timestamp("2020-01-01", tz="Europe/Paris")]).type == sa.timestamp("us", "Europe/Paris")


def test_missing_values_in_lists_are_null() -> None:
    for values, type, expected in (
        ([pd.NA, 1], sa.int64(), [None, 1]),
        ([pd.NaT, pd.NA, None], sa.null(), [None] * 3),
        ([pd.NaT, dt.date(2020, 1, 1)], sa.date32(), [None, dt.date(2020, 1, 1)]),
        ([[1, pd.NA], pd.NA], sa.list_(sa.int64()), [[1, None], None]),
        ([{"a": pd.NaT}, {"a": 1.5}], sa.struct({"a": sa.float64()}), [{"a": None}, {"a": 1.5}]),
    ):
        for made in (sa.array(values), sa.array(values, type)):
            made.validate(full=True)
            assert (made.type, made.to_pylist()) == (type, expected)


def test_the_choice_of_nan() -> None:
    source = pd.Series([0.5, np.nan])
    assert sa.array(source).null_count == 1
    assert sa.array(source, from_pandas=False).null_count == 0
    with pytest.raises(sa.InvalidType, match=r"str.*float"):
        sa.array(pd.Series(["a", np.nan], dtype=object), from_pandas=False)
    assert sa.array(source, mask=np.array([True, False])).to_pylist() == [None, None]


def test_other_types_masks_and_sizes() -> None:
    assert sa.array(pd.Series([1, 2]), "int8").type == sa.int8()
    assert sa.array(SOURCES["category"], sa.string()).to_pylist() == ["a", None, "b", "a"]
    text = sa.dictionary(sa.int16(), sa.string())
    assert sa.array(pd.Series(["a", "b", None]), text).to_pylist() == ["a", "b", None]
    assert sa.array(pd.Series([1, 2, 3]), size=2, mask=[True, False]).to_pylist() == [None, 2]
    with pytest.raises(sa.InvalidData):
        sa.array(pd.Series([1, 300]), "int8")


@pytest.mark.processes
def test_without_pyarrow() -> None:
    """Only what is pyarrow's in memory needs it."""
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pandas as pd, shmarrow as sa\n"
        "print(sa.array(pd.Series([1, None], dtype='Int64')),\n"
        "      sa.array(pd.Series(['a', None], dtype='string[python]')),\n"
        "      sa.array(pd.Series([1, 2, 1], dtype='category')), sa.array(pd.date_range('2020', periods=1, tz='UTC')))"
    )
    assert python(code) == "[1, null] ['a', null] [1, 2, 1] [2020-01-01 00:00:00+00:00]\n"


@settings(max_examples=100)
@given(st.data())
def test_any_series_of_objects(data: Any) -> None:
    scalars = data.draw(st.sampled_from([
        st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.text(max_size=4), st.booleans(),
        st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)), st.dates(), st.binary(max_size=3),
    ]))  # fmt: skip
    values = data.draw(st.lists(scalars | st.sampled_from([None, np.nan, pd.NaT, pd.NA]), max_size=6))
    source = pd.Series(values, dtype=object)
    try:
        peer = pa.array(source)
    except (pa.ArrowException, ValueError, TypeError):
        return
    made = sa.array(source)
    assert made.type == sa.types.as_type(peer.type)
    assert made.to_pyarrow().equals(peer)
