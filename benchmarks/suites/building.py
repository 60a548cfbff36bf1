"""Building: arrays from Python values, ndarrays and pandas Series, and Python values from arrays, beside pyarrow.

A tenth of the slots are null, where nothing else is said. All sides get the same Python values, or the same ndarrays.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from harness.bench import Bench
from harness.figures import AS_FAST, Faster, Requirement, within

import shmarrow as sa
from suites.values import FIFTH, UNION, data_of, union_values

HALF = within(2)


def plain(bench: Bench) -> None:
    """Numbers and text from Python lists, and back."""
    rows, turns = 100_000 if bench.quick else 1_000_000, 2
    generator = random.Random(0)
    cases: dict[str, list[Any]] = {
        "int": [generator.randrange(-(1 << 40), 1 << 40) for _ in range(rows)],
        "float": [generator.random() for _ in range(rows)],
        "string": [f"value {generator.randrange(1 << 30)}" for _ in range(rows)],
    }
    for kind in list(cases):
        cases[f"{kind}, a tenth null"] = [None if generator.random() < 0.1 else value for value in cases[kind]]
    for kind, data in cases.items():
        bench.row(
            f"build {rows:,} {kind} from a list",
            {"shmarrow": sa.array, "pyarrow": pa.array, "polars": pl.Series},
            within(3),
            turns,
            lambda turn, data=data: data,
        )
        theirs = pa.array(data)
        series = pl.Series(data)
        bench.row(
            f"{rows:,} {kind} to_pylist",
            {
                "shmarrow": lambda arrays: arrays[0].to_pylist(),
                "pyarrow": lambda arrays: arrays[1].to_pylist(),
                "polars": lambda arrays: arrays[2].to_list(),
            },
            within(3),
            turns,
            lambda turn, theirs=theirs, series=series: (sa.array(theirs), theirs, series),
        )
        assert sa.array(data).to_pylist() == data


def lists(bench: Bench) -> None:
    """Arrays from Python values."""
    data = data_of(bench)
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
        bench.row(
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
        bench.row(
            f"{make.__name__}: from a list",
            {
                "shmarrow": lambda _, make=make: sa.array(values, make(UNION)),
                "1 µs a value": lambda _: time.sleep(data.size * 1e-6),
            },
            Faster(1, "1 µs a value"),
            2,
        )


def frames(bench: Bench) -> None:
    """Arrays from ndarrays and pandas Series; numbers that both sides take as they are come in blocks."""
    data = data_of(bench)
    numbers = data.numbers % 100
    given: dict[str, np.ndarray] = {
        kind: numbers.astype(kind)
        for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?", "M8[s]", "M8[ms]", "M8[us]",
                     "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]")
    }  # fmt: skip
    for kind, values in given.items():
        view = kind != "?" and kind[0] not in "Mm"  # NaT has to be looked for
        required = AS_FAST if view else HALF
        _pair(bench, f"{values.dtype} ndarray: array", values, required, view=view)
        series = pd.Series(values)
        view = view and kind[0] != "f"  # NaN has to be looked for
        _pair(bench, f"{series.dtype} Series: array", series, AS_FAST if view else HALF, view=view)
        if kind[0] in "fMm":
            holes = series.where(pd.Series(data.valid))
            _pair(bench, f"{series.dtype} Series with nulls: array", holes, HALF, view=False)
    for kind in ("Int8", "Int64", "Float64", "boolean"):
        holes = pd.Series(numbers % 2 if kind == "boolean" else numbers).astype(kind)
        holes[~data.valid] = pd.NA
        _pair(bench, f"{kind} Series with nulls: array", holes, HALF, view=False)
    _pair(bench, "days ndarray: array", numbers.astype("M8[D]"), HALF, view=False)
    zoned = pd.Series(numbers.astype("M8[ns]")).dt.tz_localize("UTC")
    _pair(bench, "Series with a time zone: array", zoned, HALF, view=False)


def _pair(bench: Bench, what: str, values: Any, required: Requirement, *, view: bool) -> None:
    bench.row(
        what,
        {"shmarrow": lambda _: sa.array(values), "pyarrow": lambda _: pa.array(values)},
        required,
        20 if view else 5,
        block=20 if view else 1,
    )


PARTS = {"plain": plain, "lists": lists, "frames": frames}
