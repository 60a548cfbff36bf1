"""Values: comparing, checking, building and converting a million of them, beside pyarrow; run it with ``make bench``.

A tenth of the slots are null, where nothing else is said. Both sides work on the same buffers, or on the same Python
values. What is compared are two copies, as either side sees at once that an array is itself.
"""

from __future__ import annotations

import datetime as dt
import decimal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from _bench import AS_FAST, Bench, Faster, Requirement, bench, within

import shmarrow as sa

HALF, THIRD, QUARTER, FIFTH = within(2), within(3), within(4), within(5)

Make = Callable[[], Any]


class Data:
    """What arrays of a given number of slots are made of."""

    def __init__(self, size: int) -> None:
        random = np.random.default_rng(0)
        self.size = size
        self.valid = random.random(size) >= 0.1
        self.numbers = random.integers(0, 1_000_000, size)
        self.words = self.nulled([f"w{number}" for number in self.numbers.tolist()])
        self.texts = [word and f"a longer value that ends in {word}" for word in self.words]
        self.lengths = np.where(self.valid, self.numbers % 5, 0)
        self.offsets = np.append(0, np.cumsum(self.lengths))
        self.items = np.arange(self.offsets[-1])
        self.wide = np.stack([self.numbers.astype("u8"), np.zeros(size, "u8")], 1)

    def nulled(self, values: list[Any]) -> list[Any]:
        return [value if ok else None for value, ok in zip(values, self.valid.tolist(), strict=True)]

    def array(self, values: np.ndarray, type: Any = None) -> Any:
        return sa.array(values, type, mask=~self.valid)

    def storage(self, type: Any, values: np.ndarray) -> Any:
        """An array of a type over its storage."""
        validity = np.packbits(self.valid, bitorder="little")
        return sa.PrimitiveArray(type, self.size, [validity, np.ascontiguousarray(values).reshape(-1).view("u1")])


def fixed(data: Data) -> dict[str, Make]:
    """Arrays of the types whose values all have the same size, by what they are called."""
    numbers, wide = data.numbers, data.wide
    days = numbers % 40_000
    made: dict[str, Make] = {
        "null": lambda: sa.nulls(data.size),
        "bool": lambda: data.array(numbers % 2 == 0),
    }
    for type in (
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ):
        made[type] = lambda type=type: data.storage(
            sa.types.as_type(type), (numbers % 100).astype(sa.types.as_type(type).storage)
        )
    return made | {
        "date32": lambda: data.storage(sa.date32(), days.astype("i4")),
        "date64": lambda: data.storage(sa.date64(), days * 86_400_000),
        "time32": lambda: data.storage(sa.time32("ms"), numbers.astype("i4")),
        "time64": lambda: data.storage(sa.time64("us"), numbers),
        "timestamp": lambda: data.storage(sa.timestamp("us"), numbers),
        "timestamp, zone": lambda: data.storage(sa.timestamp("s", "Europe/Oslo"), numbers),
        "duration": lambda: data.storage(sa.duration("ns"), numbers),
        "decimal32": lambda: data.storage(sa.decimal32(9, 2), numbers.astype("i4")),
        "decimal64": lambda: data.storage(sa.decimal64(15, 2), numbers),
        "decimal128": lambda: data.storage(sa.decimal128(30, 2), wide),
        "decimal256": lambda: data.storage(sa.decimal256(60, 2), np.concatenate([wide, wide * 0], 1)),
        "month_day_nano interval": lambda: data.storage(sa.month_day_nano_interval(), wide % 1000),
        "fixed_size_binary": lambda: data.storage(sa.binary(16), wide),
        "uuid": lambda: data.storage(sa.binary(16), wide).cast(sa.uuid()),
    }


def variable(data: Data) -> dict[str, Make]:
    """Arrays of text, bytes and views of both."""
    made: dict[str, Make] = {}
    for name in ("string", "large_string", "string_view", "binary", "large_binary", "binary_view"):
        type = sa.types.as_type(name)
        made[name] = lambda type=type: sa.array(data.words).cast(type)
        made[f"{name}, long"] = lambda type=type: sa.array(data.texts).cast(type)
    return made


def nested(data: Data) -> dict[str, Make]:
    """Arrays of the types that have children or a dictionary."""
    offsets, lengths, drop = data.offsets, data.lengths, ~data.valid
    fields = {"n": sa.int64(), "w": sa.string()}
    runs = np.append(np.flatnonzero(np.diff(data.numbers % 3)) + 1, data.size).astype("i4")
    pairs = np.minimum(np.arange(data.size + 1) * 2, 2 * (data.size // 2)).astype("i4")
    keys = [word or "none" for word in data.words]
    few = [word and word[:2] for word in data.words]

    def structs() -> Any:
        return sa.StructArray.from_arrays([data.array(data.numbers), sa.array(data.words)], list(fields), mask=drop)

    return {
        "list": lambda: sa.ListArray.from_arrays(offsets, sa.array(data.items), mask=drop),
        "large_list": lambda: sa.ListArray.from_arrays(offsets, sa.array(data.items), mask=drop).cast(
            sa.large_list(sa.int64())
        ),
        "list of string": lambda: sa.ListArray.from_arrays(pairs, sa.array(data.words), mask=drop),
        "list_view": lambda: sa.ListViewArray.from_arrays(offsets[:-1], lengths, sa.array(data.items), mask=drop),
        "fixed_size_list": lambda: sa.FixedSizeListArray.from_arrays(sa.array(np.arange(2 * data.size)), 2, mask=drop),
        "map": lambda: sa.MapArray.from_arrays(pairs, sa.array(keys), sa.array(data.numbers)),
        "struct": structs,
        "dictionary": lambda: sa.array(few).dictionary_encode(),
        "dense_union": lambda: sa.array(union_values(data), sa.dense_union(UNION)),
        "sparse_union": lambda: sa.array(union_values(data), sa.sparse_union(UNION)),
        "run_end_encoded": lambda: sa.RunEndEncodedArray.from_arrays(runs, sa.array(data.words)[: len(runs)]),
    }


UNION = {"i": sa.int64(), "s": sa.string(), "f": sa.float64()}


def union_values(data: Data) -> list[Any]:
    return [[number, f"w{number}", None, number / 2][number % 4] for number in data.numbers.tolist()]


def comparisons(page: Bench, made: dict[str, Make]) -> None:
    for name, make in made.items():
        one, two = make(), make()
        theirs = [pa.concat_arrays([each.to_pyarrow(), each.to_pyarrow()[:0]]) for each in (one, two)]
        assert one.equals(two)
        assert theirs[0].equals(theirs[1])
        page.row(
            f"{name}: equals",
            {"shmarrow": lambda _, one=one, two=two: one.equals(two), "pyarrow": lambda _, p=theirs: p[0].equals(p[1])},
            THIRD,
            5,
        )


Both = Callable[[Any, Any], Any]
"""An operation of both libraries: it takes the module and an array."""


def both(page: Bench, what: str, array: Any, operation: Both, required: Requirement, turns: int = 3) -> None:
    """A row for the same operation on an array and on its pyarrow form."""
    theirs = array.to_pyarrow()
    page.row(
        what,
        {"shmarrow": lambda _: operation(sa, array), "pyarrow": lambda _: operation(pa, theirs)},
        required,
        turns,
    )


def views(page: Bench, made: dict[str, Make]) -> None:
    for name in ("string_view", "string_view, long", "binary_view", "binary_view, long"):
        array = made[name]()
        plain = array.cast("string" if "string" in name else "binary")
        both(page, f"{name}: validate in full", array, lambda _, each: each.validate(full=True), QUARTER)
        both(page, f"{name}: to_pylist", array, lambda _, each: each.to_pylist(), QUARTER)
        both(page, f"{name}: to {plain.type}", array, _cast_to(str(plain.type)), QUARTER)
        both(page, f"{name}: from {plain.type}", plain, _cast_to(str(array.type)), QUARTER)


def _cast_to(name: str) -> Both:
    return lambda arrow, array: array.cast(getattr(arrow, name)())


def others(page: Bench, data: Data, made: dict[str, Make]) -> None:
    for name in ("decimal32", "decimal64", "decimal128", "decimal256"):
        both(page, f"{name}: validate in full", made[name](), lambda _, each: each.validate(full=True), FIFTH, 5)
    name = "month_day_nano interval"
    both(page, f"{name}: to_pylist", made[name](), lambda _, each: each.to_pylist(), FIFTH)
    lists = made["list"]()
    both(page, "list: to large_list", lists, lambda arrow, each: each.cast(arrow.large_list(arrow.int64())), FIFTH)


def lists(page: Bench, data: Data) -> None:
    """Arrays from Python values."""
    numbers = data.numbers.tolist()
    day = dt.datetime(2024, 5, 6)
    cases: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
        "decimal64": (lambda arrow: arrow.decimal64(15, 2), [decimal.Decimal(number).scaleb(-2) for number in numbers]),
        "decimal128": (
            lambda arrow: arrow.decimal128(30, 2),
            [decimal.Decimal(number).scaleb(-2) for number in numbers],
        ),
        "decimal256": (
            lambda arrow: arrow.decimal256(60, 2),
            [decimal.Decimal(number).scaleb(-2) for number in numbers],
        ),
        "time64": (
            lambda arrow: arrow.time64("us"),
            [dt.time(number % 24, number % 60, microsecond=number) for number in numbers],
        ),
        "duration": (lambda arrow: arrow.duration("us"), [dt.timedelta(microseconds=number) for number in numbers]),
        "timestamp": (
            lambda arrow: arrow.timestamp("us"),
            [day + dt.timedelta(microseconds=number) for number in numbers],
        ),
        "date32": (lambda arrow: arrow.date32(), [day.date() + dt.timedelta(number % 10_000) for number in numbers]),
        "bool": (lambda arrow: arrow.bool_(), [number % 2 == 0 for number in numbers]),
        "binary": (lambda arrow: arrow.binary(), [b"w%d" % number for number in numbers]),
        "fixed_size_binary": (lambda arrow: arrow.binary(16), [b"%016d" % number for number in numbers]),
        "list": (lambda arrow: arrow.list_(arrow.int64()), [[number, number] for number in numbers]),
        "struct": (lambda arrow: arrow.struct([("n", arrow.int64())]), [{"n": number} for number in numbers]),
    }
    for name, (type_in, values) in cases.items():
        given, types = data.nulled(values), (type_in(sa), type_in(pa))
        page.row(
            f"{name}: from a list",
            {
                "shmarrow": lambda _, given=given, type=types[0]: sa.array(given, type),
                "pyarrow": lambda _, given=given, type=types[1]: pa.array(given, type),
            },
            FIFTH,
            2,
        )
    values = union_values(data)
    # pyarrow builds no unions from values; a microsecond a value is what is asked for.
    for make in (sa.dense_union, sa.sparse_union):
        page.row(
            f"{make.__name__}: from a list",
            {
                "shmarrow": lambda _, make=make: sa.array(values, make(UNION)),
                "1 µs a value": lambda _: time.sleep(data.size * 1e-6),
            },
            Faster(1, "1 µs a value"),
            2,
        )


def frames(page: Bench, data: Data) -> None:
    """Arrays from ndarrays and pandas Series; numbers that both sides take as they are come in blocks."""
    numbers = data.numbers % 100
    given: dict[str, np.ndarray] = {
        kind: numbers.astype(kind)
        for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?", "M8[s]", "M8[ms]", "M8[us]",
                     "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]")
    }  # fmt: skip
    for kind, values in given.items():
        view = kind != "?" and kind[0] not in "Mm"  # NaT has to be looked for
        required = AS_FAST if view else HALF
        _pair(page, f"{values.dtype} ndarray: array", values, required, view=view)
        series = pd.Series(values)
        view = view and kind[0] != "f"  # NaN has to be looked for
        _pair(page, f"{series.dtype} Series: array", series, AS_FAST if view else HALF, view=view)
        if kind[0] in "fMm":
            holes = series.where(pd.Series(data.valid))
            _pair(page, f"{series.dtype} Series with nulls: array", holes, HALF, view=False)
    for kind in ("Int8", "Int64", "Float64", "boolean"):
        holes = pd.Series(numbers % 2 if kind == "boolean" else numbers).astype(kind)
        holes[~data.valid] = pd.NA
        _pair(page, f"{kind} Series with nulls: array", holes, HALF, view=False)
    _pair(page, "days ndarray: array", numbers.astype("M8[D]"), HALF, view=False)
    zoned = pd.Series(numbers.astype("M8[ns]")).dt.tz_localize("UTC")
    _pair(page, "Series with a time zone: array", zoned, HALF, view=False)


def _pair(page: Bench, what: str, values: Any, required: Requirement, *, view: bool) -> None:
    page.row(
        what,
        {"shmarrow": lambda _: sa.array(values), "pyarrow": lambda _: pa.array(values)},
        required,
        20 if view else 5,
        block=20 if view else 1,
    )


def main() -> None:
    with bench("Values") as page:
        data = Data(100_000 if page.quick else 1_000_000)
        made = fixed(data) | variable(data) | nested(data)
        comparisons(page, made)
        views(page, made)
        others(page, data, made)
        lists(page, data)
        frames(page, data)


if __name__ == "__main__":
    main()
