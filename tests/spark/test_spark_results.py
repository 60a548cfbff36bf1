"""Results of users' functions in ``SharedFrame.map`` and ``share``: without Java, beside pyarrow's own casts.

Invariants: each kind of result is given once as what it is and once in an iterator; errors name the column.
"""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

from pyspark.sql import Row  # noqa: E402
from pyspark.sql import types as st  # noqa: E402

from shmarrow.spark.results import PIECE_BYTES, SparkCaster, batches_of, check_unique, pyarrow_batches  # noqa: E402


def caster(*fields: tuple[Any, ...]) -> SparkCaster:
    struct = st.StructType([st.StructField(*field) for field in fields])
    check_unique(struct)
    return SparkCaster(struct)


def fitted(found: Any, *fields: tuple[Any, ...]) -> Any:
    """Return what Spark would get, as one table of pyarrow's."""
    fits = caster(*fields)
    return pa.Table.from_batches(fits.cast(found), fits.schema)


ROWS = {"n": [1, 2], "word": ["a", None]}
N, WORD = ("n", st.LongType()), ("word", st.StringType())

RESULTS: dict[str, Any] = {
    "batch": sa.record_batch(ROWS),
    "table": sa.table(ROWS),
    "reader": sa.table(ROWS).to_reader,
    "pyarrow batch": pa.record_batch(ROWS),
    "pyarrow table": pa.table(ROWS),
    "pyarrow reader": pa.table(ROWS).to_reader,
    "polars": pl.DataFrame(ROWS),
    "pandas": pd.DataFrame(ROWS, index=[7, 3]),
    "pandas, with a named index": pd.DataFrame({"word": ["a", None]}, index=pd.Index([1, 2], name="n")),
    "dict": ROWS,
    "dict of arrays": {"word": pl.Series(["a", None]), "n": np.array([1, 2], "u1")},
}


@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_of_result(kind: str) -> None:
    def made() -> Any:
        return RESULTS[kind]() if callable(RESULTS[kind]) else RESULTS[kind]

    assert fitted(made(), N, WORD).to_pydict() == ROWS
    assert fitted([made(), None, made()], N, WORD).to_pydict() == {name: values * 2 for name, values in ROWS.items()}
    found = pa.Table.from_batches(pyarrow_batches(iter([made()])))
    assert {name: found[name].to_pylist() for name in sorted(found.column_names)} == ROWS


def test_nothing() -> None:
    for nothing in ([], iter(()), [None, None], sa.table({"word": [], "n": []}), {"n": [], "word": []}):
        assert fitted(nothing, N, WORD).num_rows == 0


def test_one_batch_is_held_at_a_time() -> None:
    made = []

    def function() -> Iterator[Any]:
        for number in range(3):
            made.append(number)
            yield {"n": [number]}

    for number, batch in enumerate(caster(N).cast(function())):
        assert batch.to_pydict() == {"n": [number]}
        assert made == list(range(number + 1))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("text", "found str"),
        (None, "found None; it may lack a `return`"),
        ([5], "found int"),
        ([(1, "x")], "found tuple"),
        ([Row(n=1)], r"found pyspark\..*Row"),
        (pd.Series([1]), r"found pandas\.Series"),
        (pl.LazyFrame(ROWS), r"found polars\.LazyFrame; call \.collect\(\) first"),
    ],
)
def test_what_is_no_table(found: Any, message: str) -> None:
    with pytest.raises(sa.InvalidType, match=f"expected from the function: a dict of columns.*{message}"):
        list(caster(N).cast(found))
    with pytest.raises(sa.InvalidType, match=message):
        list(batches_of(found))


def test_objects_of_a_data_frame_get_the_declared_types() -> None:
    at = pd.Timestamp("2024-03-31 02:00", tz="UTC")
    frame = pd.DataFrame({
        "m": [{"a": 1}, None], "l": [[at], []], "d": [decimal.Decimal("1.5"), None], "e": [[], []], "i": [1.0, None],
        "o": [None, None],
    })  # fmt: skip
    frame.attrs = {"not stored": object()}
    found = fitted(
        frame, ("m", st.MapType(st.StringType(), st.LongType())), ("l", st.ArrayType(st.TimestampType())),
        ("d", st.DecimalType(10, 3)), ("e", st.ArrayType(st.StringType())), ("i", st.IntegerType()),
        ("o", st.StringType()),
    )  # fmt: skip
    assert found.to_pydict() == {
        "m": [[("a", 1)], None], "l": [[at], []], "d": [decimal.Decimal("1.500"), None], "e": [[], []], "i": [1, None],
        "o": [None, None],
    }  # fmt: skip
    with pytest.raises(sa.InvalidArgument, match="several named 'n'"):
        fitted(pd.DataFrame([[1, 2]], columns=["n", "n"]), N)


def test_columns_are_matched_by_name() -> None:
    assert fitted({"word": ["a"], "n": [1]}, N, WORD).to_pydict() == {"n": [1], "word": ["a"]}
    for given, message in [
        ({"n": [1]}, "returned the columns 'n'; the schema has 'n', 'word': it lacks 'word'$"),
        ({"n": [1], "word": ["a"], "x": [1], "y": [1]}, "it does not expect 'x', 'y'$"),
        ({"N": [1], "word": ["a"]}, "it lacks 'n'; does not expect 'N'$"),
    ]:
        with pytest.raises(sa.InvalidType, match=message):
            fitted(given, N, WORD)
    twice = pa.Table.from_arrays([pa.array([1])] * 2, ["n", "n"])
    with pytest.raises(sa.InvalidType, match="it wants once 'n'"):
        fitted(twice, N)
    with pytest.raises(sa.InvalidType, match="schema: 2 columns are named 'n', and columns are matched by name"):
        caster(N, N)
    odd = {"a.b": [1], "": [2], "c`d": [3]}
    assert fitted(odd, *[(name, st.LongType()) for name in odd]).to_pydict() == odd


WORDS = pa.array(["a", "b", None, "a"])
CASTS: list[tuple[Any, Any]] = [
    (WORDS.dictionary_encode(), st.StringType()),
    (WORDS.cast(pa.string_view()), st.StringType()),
    (WORDS.cast(pa.large_string()), st.StringType()),
    (pa.RunEndEncodedArray.from_arrays([1, 4], pa.array([None, "x"])), st.StringType()),
    (pa.array([1, 2, None], pa.uint64()), st.LongType()),
    (pa.array([1, 2, None], pa.uint64()), st.DecimalType(20, 0)),
    (pa.array([1.0, 2.0, None]), st.LongType()),
    (pa.array([1, 2, None]), st.DoubleType()),
    (pa.array([0.5, None], pa.float16()), st.FloatType()),
    (pa.array([decimal.Decimal("1.50")], pa.decimal256(50, 2)), st.DecimalType(10, 3)),
    (pa.array([dt.datetime(2020, 1, 2, 3)], pa.timestamp("s", "Asia/Tokyo")), st.TimestampType()),
    (pa.array([10_000], pa.timestamp("ns")), st.TimestampNTZType()),
    (pa.array([86_400_000], pa.date64()), st.DateType()),
    (pa.array([1], pa.time32("s")), st.TimeType(6)),
    (pa.array([5], pa.duration("ms")), st.DayTimeIntervalType()),
    (pa.array([[1, None], None], pa.list_view(pa.int8())), st.ArrayType(st.LongType())),
    (pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), st.ArrayType(st.DoubleType())),
    (pa.array([b"ab"], pa.binary(2)), st.BinaryType()),
    (pa.nulls(2), st.MapType(st.StringType(), st.LongType())),
    (pa.array([{"b": 1, "a": 2}]), st.StructType([st.StructField(name, st.LongType()) for name in "ab"])),
]  # fmt: skip


@pytest.mark.parametrize(("values", "type"), CASTS, ids=lambda each: str(getattr(each, "type", each)))
def test_values_become_what_spark_expects(values: Any, type: Any) -> None:
    fits = caster(("x", type))
    (batch,) = fits.cast(pa.record_batch({"x": values}))
    assert batch.schema == fits.schema
    assert batch["x"].to_pylist() == values.to_pylist()
    batch.validate(full=True)


def test_columns_of_the_right_type_are_not_copied() -> None:
    values, text = pa.array(range(100)), pa.array(["x"] * 100)
    (batch,) = caster(N, WORD).cast(pa.record_batch({"word": text, "n": values}))
    addresses = [[buffer and buffer.address for buffer in column.buffers()] for column in batch.columns]
    assert addresses == [[buffer and buffer.address for buffer in column.buffers()] for column in (values, text)]


def nested_times(nanoseconds: list[int], type: Any) -> Iterator[Any]:
    """Times alone, and in columns of other types."""
    values = pa.array(nanoseconds, pa.time64("ns"))
    yield values, type
    yield pa.ListArray.from_arrays([0, len(values)], values), st.ArrayType(type)
    yield pa.StructArray.from_arrays([values], ["t"]), st.StructType([st.StructField("t", type)])
    keys = pa.array(range(len(values)), pa.int32())
    yield pa.MapArray.from_arrays([0, len(values)], keys, values), st.MapType(st.IntegerType(), type)


def test_times_with_the_fractions_that_their_types_have() -> None:
    for p in range(10):
        for values, type in nested_times([0, 7 * 10 ** (9 - p)], st.TimeType(p)):
            assert (
                fitted(pa.table({"x": values}), ("x", type))["x"]
                .combine_chunks()
                .equals(values.cast(caster(("x", type)).schema[0].type))
            )
    hidden = pa.array([[1], [2000]], pa.list_(pa.time64("ns"))).slice(1)
    assert fitted(pa.table({"x": hidden}), ("x", st.ArrayType(st.TimeType(6)))).num_rows == 1


@pytest.mark.parametrize(
    ("values", "type", "error", "message"),
    [
        ([300], st.ByteType(), sa.InvalidData, "column 'x': .*300: not within -128 to 127"),
        ([1.5], st.LongType(), sa.InvalidData, "column 'x': .*1.5.*round the values first, or declare another type$"),
        ([1], st.StringType(), sa.InvalidType, "column 'x': int64 has no exact cast to string"),
        (pa.array([1], pa.timestamp("ns")), st.TimestampNTZType(), sa.InvalidData, "column 'x': .*1.*round"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), st.DayTimeIntervalType(), sa.InvalidType,
         "column 'x': month_day_nano_interval has no exact cast"),
        (pa.array([{"a": 1, "b": 2}]), st.StructType([st.StructField("a", st.LongType())]), sa.InvalidType,
         "column 'x': .*no exact cast"),
        (pa.array(["a"]).dictionary_encode(), st.LongType(), sa.InvalidType, "column 'x': .*no exact cast to int64"),
        *[
            (values, type, sa.InvalidData, rf"column 'x'.*: value {10 ** (8 - p)} ns at row 1 does not fit time\({p}\)")
            for p in (0, 2, 3, 5, 6)
            for values, type in nested_times([0, 10 ** (8 - p)], st.TimeType(p))
        ],
    ],
)  # fmt: skip
def test_what_does_not_fit(values: Any, type: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        fitted(pa.table({"x": values}), ("x", type))


REQUIRED = [
    (pa.array([[1], [None]]), st.ArrayType(st.LongType(), False)),
    (pa.array([{"a": None}], pa.struct({"a": pa.int64()})), st.StructType([st.StructField("a", st.LongType(), False)])),
    (pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())), st.MapType(st.StringType(), st.LongType(), False)),
]


@pytest.mark.parametrize(("values", "type"), REQUIRED)
def test_nulls_where_there_are_none(values: Any, type: Any) -> None:
    with pytest.raises(sa.InvalidData, match=r"column 'x': .*not nullable but has 1 null"):
        fitted(pa.table({"x": values}), ("x", type))
    nothing = pa.nulls(1, values.type)  # under a null there may be anything
    assert fitted(pa.table({"x": nothing}), ("x", type)).to_pydict() == {"x": [None]}
    with pytest.raises(sa.InvalidData, match=r"column 'x' holds nulls, which the schema does not allow"):
        fitted(pa.table({"x": nothing}), ("x", type, False))
    with pytest.raises(sa.InvalidData, match=r"column 'x' holds nulls"):
        fitted({"x": [None]}, ("x", type, False))


def test_times_without_a_zone_are_not_taken_for_instants() -> None:
    """Spark's own functions take them to be in the time zone of the session, which a worker is not told."""
    at = dt.datetime(2020, 1, 1, 12)
    instants = ("t", st.TimestampType())
    for naive in (
        pd.DataFrame({"t": [at]}), {"t": np.array([at], "M8[us]")}, pa.table({"t": pa.array([at], pa.timestamp("ns"))}),
    ):  # fmt: skip
        with pytest.raises(sa.InvalidType, match=r"'t' has times without a time zone.*tz_localize.*timestamp_ntz"):
            fitted(naive, instants)
        assert fitted(naive, ("t", st.TimestampNTZType())).to_pydict() == {"t": [at]}
    with pytest.raises(sa.InvalidType, match=r"column 't': .*which has no time zone"):
        fitted({"t": [at]}, instants)
    with pytest.raises(sa.InvalidType, match=r"column 't' has times without a time zone"):
        fitted(pa.table({"t": [[at]]}), ("t", st.ArrayType(st.TimestampType())))
    here = at.replace(tzinfo=ZoneInfo("Europe/Oslo"))
    localized = pd.Series([at]).dt.tz_localize("Europe/Oslo")
    for zoned in (
        pd.DataFrame({"t": localized}), {"t": localized}, {"t": [here]},
        pa.table({"t": pa.array([here], pa.timestamp("us", "Europe/Oslo"))}),
    ):  # fmt: skip
        assert fitted(zoned, instants)["t"].to_pylist() == [here]
    assert fitted({"t": [None]}, instants).to_pydict() == {"t": [None]}


def test_large_batches_are_cut() -> None:
    rows = 5 * PIECE_BYTES // 8
    found = list(caster(N).cast({"n": np.arange(rows)}))
    assert [batch.num_rows for batch in found] == [PIECE_BYTES // 8] * 5
    assert [int(batch["n"][0]) for batch in found] == list(range(0, rows, PIECE_BYTES // 8))


def test_a_caster_travels() -> None:
    again = pickle.loads(pickle.dumps(caster(N, WORD)))
    assert [batch.to_pydict() for batch in again.cast(ROWS)] == [ROWS]


@pytest.mark.parametrize(
    "type",
    [
        st.YearMonthIntervalType(),
        st.ArrayType(st.YearMonthIntervalType()),
        st.CalendarIntervalType(),
        st.VarcharType(3),
    ],
    ids=str,
)
def test_schemas_that_spark_takes_from_no_function(type: Any) -> None:
    with pytest.raises(sa.InvalidType, match="column 'x y': Spark's Arrow code has no type for"):
        caster(("x y", type))
