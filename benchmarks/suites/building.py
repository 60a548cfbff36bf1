"""Building: arrays from Python values, and Python values from arrays, beside pyarrow.

A tenth of the slots are null, where nothing else is said. All sides get the same Python values.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
import time
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
from harness.bench import Bench
from harness.figures import Faster, within

import shmarrow as sa
from suites.values import FIFTH, data_of

UNION = {"i": sa.int64(), "s": sa.string(), "f": sa.float64()}


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
    values = [[number, f"w{number}", None, number / 2][number % 4] for number in numbers]
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


PARTS = {"plain": plain, "lists": lists}
