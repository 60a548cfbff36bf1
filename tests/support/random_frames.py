"""Random data frames of pandas: every kind of column, index, label and attribute, alone and together."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

D = decimal.Decimal
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "+07:30", dt.timezone(dt.timedelta(hours=-3)), "Asia/Kathmandu"]
UNITS = ["s", "ms", "us", "ns"]
FREQUENCIES = ["D", "h", "MS", "W-WED", "B", "YE", "37min"]
PERIODS = ["D", "M", "Y", "W-WED", "h", "Q-NOV", "3h"]
Make = Callable[["Random", int], Any]


class Random:
    """A source of random choices, and of the values made with them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, part: float) -> bool:
        return bool(self.rng.random() < part)

    def numbers(self, count: int, low: int = -100, high: int = 100) -> list[int]:
        return self.rng.integers(low, high, count).tolist()

    def with_missing(self, values: list[Any], missing: Any) -> list[Any]:
        """Replace some, all or none of the values."""
        part = self.one([0, 0.3, 0.3, 1])
        return [missing if self.chance(part) else value for value in values]


# --- values: a pandas array or ndarray of n values ----------------------------------------------------------------


def numbers(r: Random, n: int) -> Any:
    dtype = np.dtype(r.one(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?"]))
    if dtype.kind == "?":
        return np.array(r.numbers(n)) > 0
    values = np.array(r.numbers(n, 0 if dtype.kind == "u" else -100)).astype(dtype)
    if dtype.kind == "f":
        values[np.array([r.chance(0.2) for _ in range(n)], bool)] = np.nan
    elif dtype.itemsize == 8 and n:
        values[0] = np.iinfo(dtype).max
    return values


def moments(r: Random, n: int) -> Any:
    values = pd.DatetimeIndex(np.array(r.numbers(n, -(10**9), 10**9), "M8[s]")).as_unit(r.one(UNITS))
    values = values.where(np.array([r.chance(0.8) for _ in range(n)], bool))
    return values.tz_localize("UTC").tz_convert(r.one(ZONES)) if r.chance(0.6) else values


def spans(r: Random, n: int) -> Any:
    return pd.TimedeltaIndex(np.array(r.with_missing(r.numbers(n), "NaT"), "m8[s]")).as_unit(r.one(UNITS))


def periods(r: Random, n: int) -> Any:
    return pd.PeriodIndex.from_ordinals(r.numbers(n, 0, 500), freq=r.one(PERIODS)).where(
        np.array([r.chance(0.8) for _ in range(n)], bool)
    )


def intervals(r: Random, n: int) -> Any:
    left: Any = r.one([np.array(r.numbers(n)), np.array(r.numbers(n)) / 4, None, None])
    if left is None:
        left = r.one([moments, spans])(r, n)
    width = 1 if left.dtype.kind in "iuf" else pd.Timedelta(1, "D")
    values = pd.arrays.IntervalArray.from_arrays(left, left + width, closed=r.one(["left", "right", "both", "neither"]))
    return pd.array(r.with_missing(list(values), np.nan), dtype=values.dtype) if left.dtype.kind == "f" else values


def nullable(r: Random, n: int) -> Any:
    kinds = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt64", "Float32", "Float64", "boolean"]
    dtype = r.one(kinds)
    values = [value > 0 for value in r.numbers(n)] if dtype == "boolean" else r.numbers(n, 0)
    made = pd.array(r.with_missing(values, None), dtype=dtype)
    if dtype.startswith("F") and r.chance(0.5):  # NaN beside its own missing values
        numbers = made._data.copy()
        numbers[np.array([r.chance(0.3) for _ in range(n)], bool)] = np.nan
        return pd.arrays.FloatingArray(numbers, made._mask)
    return made


def words(r: Random, n: int) -> list[str]:
    return [r.one(["", "a", "é", "nan", "None", "0", "long " * 5, "日本"]) for _ in range(n)]


def text(r: Random, n: int) -> Any:
    dtype = r.one([
        "str", "string", pd.StringDtype("python"), pd.StringDtype("python", na_value=np.nan),
        pd.StringDtype("pyarrow"),
    ])  # fmt: skip
    return pd.array(r.with_missing(words(r, n), None), dtype=dtype)


def arrow_backed(r: Random, n: int) -> Any:
    ints = r.numbers(n, 0)
    seconds = [dt.datetime(2020, 1, 1) + dt.timedelta(seconds=i) for i in ints]
    floats = [r.one([i / 2, i / 2, np.nan]) for i in ints]
    values, type = r.one([
        (floats, pa.float64()), (floats, pa.float32()), ([[x, None] for x in floats], pa.list_(pa.float64())),
        ([{"x": r.one([x, None])} for x in floats], pa.struct([("x", pa.float32())])),
        ([[("k", x)] for x in floats], pa.map_("string", "double")), ([[x] for x in floats], pa.list_(pa.float64(), 1)),
        ([[[x], None] for x in floats], pa.large_list(pa.list_(pa.float32()))),
        (floats, pa.dictionary(pa.int8(), pa.float64())),
        (ints, pa.int8()), (ints, pa.uint64()), ([i / 2 for i in ints], pa.float32()), (words(r, n), pa.string()),
        (words(r, n), pa.large_string()), ([D(i) for i in ints], pa.decimal128(9, 2)),
        ([D(i) for i in ints], pa.decimal256(50, -1 + 1)), ([[i] for i in ints], pa.list_(pa.int16())),
        ([[i, None] for i in ints], pa.list_(pa.int64(), 2)), ([{"a": i, "b": "x"} for i in ints],
        pa.struct([("a", pa.int64()), ("b", pa.string())])), ([[("k", i)] for i in ints], pa.map_("string", "int8")),
        (seconds, pa.timestamp("ms", "Asia/Tokyo")), (seconds, pa.timestamp("ns")), ([b"%d" % i for i in ints],
        pa.binary()), ([b"%03d" % i for i in ints], pa.binary(3)), ([dt.date(2020, 1, 1 + i % 9) for i in ints],
        pa.date32()), ([dt.time(i % 24) for i in ints], pa.time64("us")), ([dt.timedelta(i) for i in ints],
        pa.duration("s")), (words(r, n), pa.dictionary(pa.int16(), pa.string())), ([i > 9 for i in ints], pa.bool_()),
        ([None] * n, pa.null()), ([[t] for t in seconds], pa.list_(pa.timestamp("us", "Europe/Berlin"))),
    ])  # fmt: skip
    return pd.array(pa.array(r.with_missing(values, None), type), dtype=pd.ArrowDtype(type))


def categories(r: Random, n: int) -> Any:
    size = r.one([0, 1, 3, 200])
    values = r.one([numbers, moments, spans, periods, intervals, nullable, text, objects, arrow_backed])(r, size)
    try:
        distinct = index_of(values).dropna().unique()
    except (TypeError, NotImplementedError, pa.ArrowException):  # no hash, as of lists
        distinct = pd.Index(["x", "y"])
    codes = r.rng.integers(-1, len(distinct), n)
    return pd.Categorical.from_codes(codes, distinct, ordered=r.chance(0.3))


def objects(r: Random, n: int) -> Any:
    ints = r.numbers(n, 0)
    values = r.one([
        words(r, n), ints, [i / 4 for i in ints], [i > 9 for i in ints], [b"%d" % i for i in ints],
        [D(i).scaleb(-2) for i in ints], [dt.date(2020, 1, 1 + i % 9) for i in ints], [dt.time(i % 24) for i in ints],
        [dt.datetime(2020, 1, 1, i % 24) for i in ints], [pd.Timestamp(i, unit="D", tz="Asia/Tokyo") for i in ints],
        [pd.Timestamp(i) for i in ints], [pd.Timedelta(i) for i in ints], [dt.timedelta(i) for i in ints],
        [uuid.UUID(int=i) for i in ints], [pd.Period(ordinal=i, freq="D") for i in ints],
        [r.one(["a", 1, 2.5]) for i in ints], [[r.one([i / 2, np.nan, None])] for i in ints],
        [{"x": r.one([i / 2, np.nan, None]), "y": "t"} for i in ints], [(i, i + 1) for i in ints],
        [np.array([i / 2, np.nan]) for i in ints], [[r.one(["a", None])] for i in ints],
        [np.datetime64(i, "s") for i in ints], [np.timedelta64(i, "us") for i in ints],
        [np.float32(i / 2) for i in ints], [[pd.Timestamp(i, unit="s", tz="Asia/Tokyo")] for i in ints],
        [[pd.Timestamp(i)] for i in ints], [(pd.Timedelta(i), None) for i in ints], [{(i, i)} for i in ints],
        [[dt.datetime(2020, 1, 1 + i % 9, tzinfo=dt.UTC)] for i in ints], [[{"a": [(i,)]}] for i in ints],
        [bytearray(b"a%d" % i) for i in ints], [{i, i + 1} for i in ints], [[[i], None] for i in ints],
        [np.int16(i) for i in ints], [r.one([i, i / 2]) for i in ints], [r.one([i > 9, i]) for i in ints],
        [[dt.date(2020, 1, 1 + i % 9)] for i in ints], [{"when": pd.Timestamp(i)} for i in ints],
        [[r.one([i, pd.NA])] for i in ints], [r.one([{"a": i}, {"b": i}]) for i in ints], [np.str_(i) for i in ints],
    ])  # fmt: skip
    missing = [r.one([None, None, np.nan, pd.NA, pd.NaT])]
    if r.chance(0.1):
        missing.append(None)
    made = np.empty(n, object)
    made[:] = [r.one(missing) if r.chance(0.2) else value for value in values]
    return made


def lists(r: Random, n: int) -> Any:
    made = np.empty(n, object)
    made[:] = [r.one([[i], [i, i], [], None]) for i in r.numbers(n)]
    return made


def structs(r: Random, n: int) -> Any:
    made = np.empty(n, object)
    made[:] = [{"a": i, "t": "x"} for i in r.numbers(n)]
    return made


def sparse(r: Random, n: int) -> Any:
    values = np.array(r.numbers(n, 0, 3)).astype(r.one(["i8", "f8", "i4"]))
    return pd.arrays.SparseArray(values, fill_value=r.one([0, 1]))


COLUMNS: list[Make] = [
    numbers, moments, spans, periods, intervals, nullable, text, arrow_backed, arrow_backed, categories, objects,
    objects, lists, structs, sparse,
]  # fmt: skip

# --- indexes ------------------------------------------------------------------------------------------------------


def name(r: Random) -> Any:
    return r.one(
        [None, None, "name", "c0", 0, 7.5, ("a", 1), dt.date(2020, 1, 1), pd.Timestamp("2020"), True, b"x", ""]
    )


def range_index(r: Random, n: int) -> Any:
    start, step = r.one([(0, 1), (5, 3), (10, -2)])
    return pd.RangeIndex(start, start + n * step, step)


def steps(r: Random, n: int) -> Any:
    zone = r.one([None, "Europe/Berlin", "UTC"])
    made = pd.date_range("2020-03-01", periods=n, freq=r.one(FREQUENCIES), tz=zone)
    return r.one([made, pd.timedelta_range("1h", periods=n, freq=r.one(["D", "37min", "s"])), made.as_unit("s")])


def period_steps(r: Random, n: int) -> Any:
    return pd.period_range("2020", periods=n, freq=r.one(PERIODS))


def several_levels(r: Random, n: int) -> Any:
    count = r.one([1, 2, 2, 3])
    levels = []
    for _ in range(count):
        some = r.one([numbers, moments, spans, periods, intervals, nullable, text, categories, objects, arrow_backed])
        levels.append(index_of(some(r, n)))
    names = [name(r) for _ in range(count)]
    try:
        return pd.MultiIndex.from_arrays(levels, names=names)
    except (TypeError, NotImplementedError, pa.ArrowException):  # no hash, as of lists
        return pd.MultiIndex.from_arrays([text(r, n)] * count, names=names)


def one_level(r: Random, n: int) -> Any:
    make = r.one([numbers, moments, spans, periods, intervals, nullable, text, categories, objects, arrow_backed])
    return index_of(make(r, n))


def index_of(values: Any) -> Any:
    if values.dtype == object:
        return pd.Index(values, dtype=object, tupleize_cols=False)
    return pd.Index(values.astype("f4") if values.dtype == "float16" else values)


def repeated(r: Random, n: int) -> Any:
    return pd.Index([r.one(["a", "b"]) for _ in range(n)])


def mixed(r: Random, n: int) -> Any:
    """Labels of several kinds, which only columns may have."""
    choices = [
        "a", 1, "1", 2.5, None, np.nan, True, pd.NaT, dt.date(2020, 1, 1), b"b", pd.Timestamp("2020"), D("1.5"),
        pd.Period("2020", "M"), pd.Interval(0, 1), dt.time(5), pd.Timedelta(1, "h"), uuid.UUID(int=7), ("t", 1),
    ]  # fmt: skip
    made = np.empty(n, object)
    made[:] = [r.one(choices) for _ in range(n)]
    return pd.Index(made, dtype=object, tupleize_cols=False)


ROWS: list[Make] = [range_index, range_index, steps, period_steps, several_levels, one_level, one_level, repeated]
LABELS: list[Make] = [*ROWS, mixed, mixed]


def plain_labels(r: Random, n: int) -> Any:
    return pd.Index([f"c{i}" for i in range(n)], dtype=r.one(["str", "str", object]))


def named(r: Random, index: Any) -> Any:
    return index if isinstance(index, pd.MultiIndex) else index.rename(name(r))


ATTRS: list[Any] = [
    {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
    {"source": "here", "numbers": [1, 2.5, None, True]}, {1: "one", "t": (1, 2)},
{"d": dt.date(2020, 1, 1)},
    {"nested": {"a": {"b": [1]}}}, {"when": pd.Timestamp("2020", tz="UTC"), "nan": float("nan")}, {"o": object()},
    {"s": {1, 2}}, {"array": np.arange(3)},
]  # fmt: skip


def frame(seed: int) -> Any:
    """Make the random frame of a seed."""
    r = Random(seed)
    n, width = r.one([0, 1, 2, 5, 9]), r.one([0, 1, 2, 3, 4])
    labels = named(r, r.one(LABELS)(r, width)) if r.chance(0.5) else plain_labels(r, width)
    index = named(r, r.one(ROWS)(r, n)) if r.chance(0.6) else pd.RangeIndex(n)
    columns = [r.one(COLUMNS)(r, n) for _ in range(width)]
    series = {i: pd.Series(x, dtype=object if x.dtype == object else None) for i, x in enumerate(columns)}
    made = pd.DataFrame(series, index=pd.RangeIndex(n))
    made.index, made.columns = index, labels
    made.attrs = dict(r.one(ATTRS))
    return made
